"""Public URIs of sources and chunks."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rag.errors import NotFoundError
from rag.uris import NOT_FOUND, parse_id, range_id, resource_uri, split_id

IDS = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=1, max_size=32)
SEQS = st.none() | st.integers(0, 999_999_999)
COLLECTIONS = st.sampled_from(["documents", "a", "my-notes_2"])


@given(COLLECTIONS, IDS, SEQS)
def test_a_name_is_read_back_as_it_was_given_with_or_without_its_scheme(
    collection: str, source_id: str, seq: int | None
) -> None:
    id_ = source_id if seq is None else f"{source_id}/{seq}"
    assert parse_id(id_) == id_
    assert parse_id(resource_uri(collection, id_)) == id_


@given(COLLECTIONS, IDS, st.integers(0, 999_999_999), st.integers(0, 999_999_999))
def test_a_range_is_read_back_as_it_was_given_unless_it_runs_backwards(
    collection: str, source_id: str, first: int, last: int
) -> None:
    first, last = sorted((first, last))
    id_ = range_id(source_id, first, last)
    assert parse_id(resource_uri(collection, id_)) == id_
    assert split_id(id_) == (source_id, range(first, last + 1))
    assert split_id(source_id) == (source_id, range(0))
    if first < last:
        with pytest.raises(NotFoundError):
            parse_id(f"{source_id}/{last}-{first}")


@given(st.text() | st.from_regex(r"(refdesk:)?/*[a-z2-7./%-]*[/0-9\s]*", fullmatch=True))
@example("mfzq/03")
@example("mfzq/")
@example("mfzq/-1")
@example("mfzq/1/2")
@example("mfzq/1-2")
@example("mfzq/2-1")
@example("mfzq/1-02")
@example("mfzq/1-")
@example("mfzq/1-2-3")
@example("mfzq-1")
@example("mfzq/1–2")
@example("mfzq/٣")
@example("mfzq\n")
@example("MFZQ")
@example("mf01")
@example("m" * 33)
@example("mfzq/1234567890")
@example("refdesk://documents")
@example("refdesk://documents/")
@example("refdesk:///mfzq")
@example("refdesk:// /mfzq")
@example("refdesk://../mfzq")
@example("refdesk://a/b/mfzq")
@example("refdesk://a/mfzq/1?x")
@example("REFDESK://a/mfzq")
@example("http://a/mfzq")
@example("file:///etc/passwd")
@example("' OR true --")
def test_anything_else_is_not_found_and_not_echoed(name: str) -> None:
    try:
        id_ = parse_id(name)
    except NotFoundError as error:
        assert str(error) == NOT_FOUND  # noqa: PT017 most of the names raise, not all
    else:
        assert name in {id_, name.removesuffix(id_) + id_}
        source_id, _, seq = id_.partition("/")
        assert name in {id_, resource_uri(name.split("/")[2], id_) if "//" in name else id_}
        assert source_id.isalnum()
        assert seq == "" or seq == "-".join(str(int(one)) for one in seq.split("-"))


@given(st.text(max_size=6), st.text(max_size=6))
def test_no_character_may_be_put_before_or_behind(before: str, behind: str) -> None:
    assume(
        before.strip("abcdefghijklmnopqrstuvwxyz234567") or behind.strip("abcdefghijklmnopqrstuvwxyz234567")
    )
    assume(not re.fullmatch(r"/\d+(-\d+)?", behind, re.ASCII) or before)
    with pytest.raises(NotFoundError):
        parse_id(f"{before}mfzq{behind}")

"""Public URIs of sources and chunks, and the addresses of documents that a person may be sent to."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rag.errors import InvalidRequestError, NotFoundError
from rag.uris import (
    NO_REVISION,
    NOT_FOUND,
    is_template,
    named_id,
    page_address,
    parse_id,
    range_id,
    resource_uri,
    seconds_asked,
    split_citation,
    split_id,
    web_address,
    without_revision,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
IDS = st.text(LETTERS, min_size=1, max_size=32)
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


@given(
    COLLECTIONS, st.text(LETTERS, min_size=16, max_size=32), st.text(LETTERS, min_size=8, max_size=8), SEQS
)
def test_a_revision_is_read_only_where_it_is_asked_for_and_refused_elsewhere(
    collection: str, source_id: str, revision: str, seq: int | None
) -> None:
    behind = "" if seq is None else f"/{seq}"
    cited, bare = f"{source_id}@{revision}{behind}", f"{source_id}{behind}"
    assert parse_id(resource_uri(collection, cited)) == cited
    assert split_citation(cited) == (source_id, revision, range(0) if seq is None else range(seq, seq + 1))
    assert split_citation(bare) == (source_id, None, split_id(bare)[1])
    assert without_revision(cited) == bare
    with pytest.raises(InvalidRequestError) as refused:
        split_id(cited)
    assert str(refused.value) == NO_REVISION.format(bare)


@pytest.mark.parametrize(
    ("form", "collection"),
    [
        ("[{id}]", None),
        ("Handbook › Leave [{id}]", None),
        ("Notes [draft] [refdesk://handbook/{id}]", "handbook"),
        ("http://127.0.0.1:8300/passages/{id}#cited", None),
        ("https://desk.example.com/docs/passages/{id}", None),
    ],
)
def test_an_id_is_read_from_what_replies_show_of_it(form: str, collection: str | None) -> None:
    for id_ in ("a" * 16, "a" * 16 + "@k3v2m7qa/5", "a" * 16 + "/2-4"):
        assert named_id(form.format(id=id_)) == (collection, id_)


@pytest.mark.parametrize("before", ["", "refdesk://handbook/"])
def test_the_number_of_a_chunk_may_be_a_fragment(before: str) -> None:
    assert named_id(f"{before}{'a' * 16}#12")[1] == f"{'a' * 16}/12"
    with pytest.raises(NotFoundError):
        named_id("leave#12")


@pytest.mark.parametrize("title", ["Handbook [final]", "[a] and [b]", "https://example.com/passages/final"])
def test_a_word_in_brackets_at_the_end_of_a_title_is_no_id(title: str) -> None:
    with pytest.raises(NotFoundError):
        named_id(title)


@pytest.mark.parametrize(
    "wrong", ["mail@personal", "{id}@", "{id}@abc", "{id}@abcdefghi", "{id}@ABCDEFGH", "{id}/3@abcdefgh"]
)
def test_what_only_looks_like_a_revision_is_no_id(wrong: str) -> None:
    with pytest.raises(NotFoundError):
        parse_id(wrong.format(id="a" * 16))


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
        assert seq == "" or seq == "-".join(str(int(part)) for part in seq.split("-"))


@given(st.text(max_size=6), st.text(max_size=6))
def test_no_character_may_be_put_before_or_behind(before: str, behind: str) -> None:
    assume(
        before.strip("abcdefghijklmnopqrstuvwxyz234567") or behind.strip("abcdefghijklmnopqrstuvwxyz234567")
    )
    assume(not re.fullmatch(r"/\d+(-\d+)?", behind, re.ASCII) or before)
    with pytest.raises(NotFoundError):
        parse_id(f"{before}mfzq{behind}")


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("https://example.org", "https://example.org"),
        (" HTTPS://Example.ORG:8443/x ", "https://example.org:8443/x"),
        ("https://example.org/a b?ü#c d", "https://example.org/a%20b?%C3%BC#c%20d"),
        ("https://example.org/%20%C3%BC%zz%", "https://example.org/%20%C3%BC%25zz%25"),
        ('https://example.org/"><script>', "https://example.org/%22%3E%3Cscript%3E"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_an_address_is_percent_encoded(written: str, address: str) -> None:
    assert web_address(written) == address
    assert web_address(address) == address


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "example.org",
            "//example.org/",
            "/x",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
        ),
        *(
            "ftp://example.org",
            "https:///x",
            "https://",
            "https://a b/",
            "https://a..b/",
            "https://x.org:99999/",
        ),
        *(
            "https://bank.example@evil.example",
            "https://x.org\\@evil.example",
            "https://[::1",
            "https://x.org/a\nb",
        ),
        *("https://x.org/a\u202eb", "https://x.org/" + "x" * 2000),
    ],
)
def test_anything_else_is_no_address(written: str) -> None:
    assert web_address(written) is None


@pytest.mark.parametrize(
    ("template", "right"),
    [
        ("https://wiki.example.com/{path}", True),
        ("https://wiki.example.com:8080/w/{stem}?p={path}#x", True),
        ("https://wiki.example.com/", False),
        ("https://{path}", False),
        ("https://{stem}.example.com/", False),
        ("https://wiki.example.com:{path}/", False),
        ("https://wiki.example.com/{path}/{title}", False),
        ("https://wiki.example.com/{{path}}", False),
        ("javascript:{path}", False),
        ("{path}", False),
    ],
)
def test_a_template_has_a_place_for_the_path_behind_its_host(template: str, right: bool) -> None:  # noqa: FBT001 the parameter
    assert is_template(template) is right


def test_a_page_has_its_path_or_its_stem_in_its_address() -> None:
    assert page_address("https://w.example/{path}", "hr/New hires?#%.md") == (
        "https://w.example/hr/New%20hires%3F%23%25.md"
    )
    assert page_address("https://w.example/{stem}?of={path}", "hr/v1.2/é.md") == (
        "https://w.example/hr/v1.2/%C3%A9?of=hr/v1.2/%C3%A9.md"
    )
    assert page_address("https://w.example/{stem}", "README") == "https://w.example/README"
    assert page_address("https://w.example/{path}", "{stem}.md") == "https://w.example/%7Bstem%7D.md"
    assert page_address("https://w.example/{path}", "x" * 2000) is None
    assert page_address("https://w.example/{path}", "") is None


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_no_path_leaves_the_host_or_comes_back_changed(path: str) -> None:
    address = page_address("https://w.example/docs/{path}", path)
    assert address
    assert address.isascii()
    parts = urlsplit(address)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "w.example", "", "")
    assert unquote(parts.path) == f"/docs/{path}"


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (" 7 ", 7),
        ("86400000000", 86_400_000_000),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37", 0),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
    ],
)
def test_a_reply_asks_to_wait_in_seconds_or_until_a_date(retry_after: str, seconds: float | None) -> None:
    assert seconds_asked(retry_after) == seconds


def test_a_date_without_a_zone_is_one_of_greenwich() -> None:
    with_zone, without = (seconds_asked(f"Fri, 01 Jan 2100 00:00:00{zone}") for zone in (" GMT", ""))
    assert with_zone
    assert without == pytest.approx(with_zone, abs=60)

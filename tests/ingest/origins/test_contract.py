"""Records: what a line may say, and what becomes of one that says it wrongly."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from rag.corpus import Access
from rag.ingest.origins.piped_records import NOBODY, Record, Stream, StreamError

RIGHT = {"id": "a", "text": "t", "access": {"visibility": "restricted", "allow": ["group:hr"]}}
HEAD = {"refdesk": "records", "version": 1, "sync": "full"}


def parsed(*lines: object, head: object = HEAD, end: object = None) -> tuple[Stream, list[Record]]:
    """The stream of these lines, with the right end where none is given."""
    last = {"end": True, "count": len(lines)} if end is None else end
    written = [
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in (head, *lines, last)
    ]
    stream = Stream(BytesIO(b"\n".join(written)), 20_000)
    stream.begin()
    return stream, list(stream.records())


def test_a_right_stream_is_complete_and_has_no_problems() -> None:
    more = {"title": "T", "url": "https://x.org/a", "date": "2026-01-01", "type": "markdown"}
    stream, (first, second) = parsed(
        RIGHT | more | {"metadata": {"n": 1, "tags": ["a", "b, c"]}}, RIGHT | {"id": "b/c"}
    )
    assert (stream.is_complete, stream.problems) == (True, [])
    assert first.access == Access("restricted", frozenset({"group:hr"}))
    stated = {"title": "T", "url": "https://x.org/a", "date": "2026-01-01", "n": "1", "tags": 'a, "b, c"'}
    assert first.stated == stated
    assert second.id == "b/c"


@pytest.mark.parametrize(
    "access",
    [
        None,
        {},
        [],
        "tenant",
        {"allow": ["group:hr"]},
        {"visibility": "everybody"},
        {"visibility": "restricted", "allow": "group:hr"},
        {"visibility": "restricted", "allow": ["hr"]},
        {"visibility": "restricted", "allow": [["group:hr"]]},
        {"visibility": "tenant", "allow": ["group:hr"]},
        {"visibility": "tenant", "denied": ["user:bob"]},
        {"visibility": "restricted", "allow": [f"user:{n}" for n in range(500)]},
    ],
)
def test_access_that_cannot_be_read_is_for_nobody(access: Any) -> None:  # noqa: ANN401 any JSON
    stream, (record,) = parsed(RIGHT | {"access": access})
    assert record.access == NOBODY
    assert record.problems
    assert stream.is_complete  # it is known which record it was


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": None},
        {"text": 1},
        {"path": "x.md"},
        {"type": "docx"},
        {"Access": {}},
        {"url": "javascript:x"},
        {"date": 2026},
        {"metadata": []},
        {"metadata": {"a": {"b": 1}}},
        {"metadata": {"Visibility": "tenant"}},
    ],
)
def test_a_record_that_breaks_the_contract_keeps_its_access(wrong: dict[str, object]) -> None:
    _, (record,) = parsed(RIGHT | wrong)
    assert record.problems
    assert record.access == Access("restricted", frozenset({"group:hr"}))


@pytest.mark.parametrize(
    "deletion",
    [{"id": "a", "deleted": "yes"}, {"id": "a", "deleted": True, "text": "t"}, {"id": "a", "deleted": False}],
)
def test_a_deletion_that_is_written_wrongly_is_for_nobody(deletion: dict[str, object]) -> None:
    changes = HEAD | {"sync": "changes"}
    _, (record,) = parsed(deletion, head=changes)
    assert (record.deleted, record.access) == (False, NOBODY)
    _, (full,) = parsed({"id": "a", "deleted": True})
    assert (full.deleted, full.access) == (False, NOBODY)
    _, (right,) = parsed({"id": "a", "deleted": True}, head=changes)
    assert right.deleted  # the control


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"id": "a", "id": "b", "text": "t"}',
        b'{"id": "a", "text": NaN}',
        b"[" * 900,
        b'{"id": "a", "text": "' + b"x" * 20_000 + b'"}',
        {"text": "t"},
        {"id": ""},
        {"id": 1, "text": "t"},
        {"id": "../a", "text": "t"},
        {"id": "a//b", "text": "t"},
        {"id": "a\u202eb", "text": "t"},
        {"id": "a\nb", "text": "t"},
        {"id": "x" * 1001, "text": "t"},
    ],
)
def test_a_line_that_is_no_record_makes_the_stream_incomplete(line: object) -> None:
    stream, _ = parsed(line, RIGHT | {"id": "z"})
    assert not stream.is_complete
    assert stream.problems


@pytest.mark.parametrize(
    "end",
    [
        b"",
        {"end": True},
        {"end": True, "count": 2},
        {"end": True, "count": True},
        {"end": 1, "count": 1},
        {"end": True, "count": 1, "more": 1},
        b'{"end": true, "count": 1}\n{"id": "b", "text": "t"}',
    ],
)
def test_without_its_right_end_a_stream_is_not_complete(end: object) -> None:
    stream, records = parsed(RIGHT, end=end)
    assert not stream.is_complete
    assert [record.id for record in records] == ["a"]


@pytest.mark.parametrize(
    "head",
    [
        b"",
        RIGHT,
        {},
        HEAD | {"version": 2},
        HEAD | {"version": True},
        HEAD | {"sync": "partial"},
        HEAD | {"more": 1},
        {"refdesk": "records", "version": 1},
    ],
)
def test_a_stream_without_its_head_counts_for_nothing(head: object) -> None:
    with pytest.raises(StreamError):
        parsed(RIGHT, head=head)

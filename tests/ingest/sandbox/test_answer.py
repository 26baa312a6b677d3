"""What a confined parser says is believed only where it can be a document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.corpus import Block, Document
from rag.errors import ParseError
from rag.ingest.parse import parsers
from rag.ingest.parse.document_parts import MAX_LEVEL
from rag.ingest.parse.parsers import parse
from rag.ingest.sandbox import parser_child
from rag.ingest.sandbox.parser_child import MAX_ABOUT_BYTES, _answer, _document_values, _json_bytes
from rag.ingest.sandbox.parser_pool import NoDocumentError, document_of

pytestmark = pytest.mark.slow

TEXT = b"One\n\ntwo"
GOOD: dict[str, Any] = {
    "title": "One",
    "mime_type": "text/html",
    "blocks": [["heading", 0, 3, 1, "One"], ["paragraph", 5, 8, 0, ""]],
    "pages": [0, 5],
    "date": "2024-05-01T00:00:00+00:00",
    "url": "https://example.com/a",
    "metadata": {"language": "en"},
}


def _document_with(**changes: object) -> Document:
    return document_of(json.dumps({"document": GOOD | changes}).encode(), TEXT)


def test_a_document_comes_back_as_it_was() -> None:
    heading, paragraph = Block("heading", 0, 3, 1, "One"), Block("paragraph", 5, 8)
    document = Document(
        text="One\n\ntwo",
        title="One",
        mime_type="text/html",
        blocks=(heading, paragraph),
        pages=(0, 5),
        date=datetime(2024, 5, 1, tzinfo=UTC),
        url="https://example.com/a",
        metadata={"language": "en"},
    )
    assert _document_with() == document
    assert document_of(_json_bytes({"document": _document_values(document)}), TEXT) == document


@given(st.text(), st.sampled_from(["a.md", "a.html", "a.txt", "a.rst", "a.py", "a.csv", "a.jsonl"]))
def test_whatever_a_parser_makes_of_a_text_comes_back_or_its_reason_does(text: str, name: str) -> None:
    data = text.encode("utf-8", "replace")
    try:
        expected: Document | str = parse(data, name)
    except ParseError as error:
        expected = " ".join(str(error).split())
    try:
        answer: Document | str = document_of(*_answer(data, name))
    except ParseError as error:
        answer = str(error)
    assert answer == expected


def test_half_a_character_does_not_shift_the_text_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    document = Document("a\ud800b", "t", "text/plain", (Block("paragraph", 0, 3),))
    monkeypatch.setattr(parsers, "parse", lambda *_, **__: document)
    assert document_of(*_answer(b"", "t")).text == "a?b"


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "One"},
        {"title": ["One"]},
        {"mime_type": "text/html; <script>"},
        {"blocks": []},
        {"blocks": [["heading", 0, 3, 1]]},
        {"blocks": [["picture", 0, 3, 1, "One"]]},
        {"blocks": [["heading", -1, 3, 1, "One"]]},
        {"blocks": [["heading", 0, 9, 1, "One"]]},
        {"blocks": [["heading", 3, 0, 1, "One"]]},
        {"blocks": [["heading", "0", 3, 1, "One"]]},
        {"blocks": [["heading", 0, 3, 1, "One"], ["paragraph", 2, 8, 0, ""]]},
        {"blocks": [["heading", 0, 10**30, 1, "One"]]},
        {"blocks": [["heading", 0, 3, MAX_LEVEL + 1, "One"]]},
        {"pages": [5, 0]},
        {"pages": [9]},
        {"date": "yesterday"},
        {"url": "javascript:alert(1)"},
        {"url": "https://" + "a" * 5000},
        {"metadata": {"language": 5}},
        {"metadata": ["en"]},
        {"visibility": "tenant"},
    ],
)
def test_what_can_not_be_a_document_is_none(changes: dict[str, object]) -> None:
    with pytest.raises(NoDocumentError):
        _document_with(**changes)


@pytest.mark.parametrize(
    "answer", [b"", b"{", b"null", b"[]", b"5", b"\xff", b'{"document": 5}', b"[" * 10_000]
)
def test_what_is_no_answer_is_no_document(answer: bytes) -> None:
    with pytest.raises(NoDocumentError):
        document_of(answer, TEXT)


def test_a_text_that_is_none_is_no_document() -> None:
    with pytest.raises(NoDocumentError, match="UTF-8"):
        document_of(json.dumps({"document": GOOD}).encode(), b"One\n\ntw\xff")


def test_more_parts_than_a_document_has_never_leave_the_parser_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = (Block("code", 0, 0),) * (MAX_ABOUT_BYTES // 17)
    monkeypatch.setattr(parsers, "parse", lambda *_, **__: Document("a", "t", "text/plain", blocks))
    with pytest.raises(ParseError, match="too many parts") as refused:
        document_of(*_answer(b"", "t"))
    assert refused.value.cause == "too large"


def test_a_longer_text_than_can_be_cut_in_time_never_leaves_the_parser_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parser_child, "MAX_TEXT_CHARS", 10)
    with pytest.raises(ParseError, match=r"its text has over \d+ million characters") as refused:
        document_of(*_answer(b"a" * 11, "t.txt"))
    assert refused.value.cause == "too large"
    assert document_of(*_answer(b"a" * 10, "t.txt")).text == "a" * 10
    with pytest.raises(NoDocumentError):
        document_of(json.dumps({"document": GOOD}).encode(), TEXT + b"...")


def test_titles_are_one_line_and_reasons_are_not_endless() -> None:
    assert _document_with(title="One\n  two " + "x" * 500).title == "One two " + "x" * 192
    assert _document_with(blocks=[["heading", 0, 3, 1, "a\nb"]]).blocks[0].title == "a b"
    for error, expected in (
        ("no\nway", "no way"),
        ("x" * 5000, "x" * 200),
        ("", "the parser gave no reason"),
    ):
        with pytest.raises(ParseError) as reason:
            document_of(json.dumps({"error": error}).encode(), b"")
        assert str(reason.value) == expected

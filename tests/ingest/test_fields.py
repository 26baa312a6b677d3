"""Metadata as the declared fields of a collection, and the complaints about values that don't fit."""

from __future__ import annotations

import unicodedata
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import pytest

from rag.corpus import FieldType
from rag.ingest.metadata import declared_fields, undeclared_names
from rag.ingest.parse.parsers import parse
from rag.ingest.report import field_notes

if TYPE_CHECKING:
    from rag.corpus import Value

COMPLAINTS: dict[FieldType, str] = {
    "string": "a string of at most 512 characters",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "datetime": "a date",
    "string list": "a list of strings of at most 512 characters",
}
LONGEST = 512  # characters of a filter's string: nothing longer could ever be asked for


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("string", "draft", "draft"),
        ("string", "  two  words ", "two  words"),
        ("string", "2024", "2024"),
        ("string", "x" * LONGEST, "x" * LONGEST),
        ("integer", "2024", 2024),
        ("integer", "-7", -7),
        ("integer", " 7 ", 7),
        ("integer", str(2**53), 2**53),
        ("integer", str(-(2**53)), -(2**53)),
        ("number", "2.5", 2.5),
        ("number", "3", 3.0),
        ("number", "-1e3", -1000.0),
        ("datetime", "2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        ("datetime", "2024-05-01T10:30:00", datetime(2024, 5, 1, 10, 30, tzinfo=UTC)),
        ("datetime", "2024-05-01T01:30:00+02:00", datetime(2024, 4, 30, 23, 30, tzinfo=UTC)),
        ("datetime", "Wed, 01 May 2024 10:30:00 +0000", datetime(2024, 5, 1, 10, 30, tzinfo=UTC)),
        ("string list", "one", ("one",)),
        ("string list", "b, a,b", ("b", "a", "b")),
        ("string list", " two words ,, other, ", ("two words", "other")),
    ],
)
def test_values_of_the_declared_type_are_converted(kind: FieldType, written: str, value: Value) -> None:
    fields, complaints = declared_fields({"it": written}, {"it": kind})
    assert (fields, complaints) == ({"it": value}, [])
    assert type(fields["it"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("string", "x" * (LONGEST + 1)),
        ("integer", "many"),
        ("integer", "2.0"),
        ("integer", "1,000"),
        ("integer", str(2**53 + 1)),
        ("integer", str(-(2**53) - 1)),
        ("integer", "9" * 5000),
        ("number", "2,5"),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "-inf"),
        ("number", "1e999"),
        ("boolean", "maybe"),
        ("boolean", "2"),
        ("datetime", "yesterday"),
        ("datetime", "2024-13-01"),
        ("datetime", "01.05.2024"),
        ("datetime", "0001-01-01T00:00:00+14:00"),
        ("string list", ","),
        ("string list", "short," + "x" * (LONGEST + 1)),
    ],
)
def test_values_of_another_type_are_left_out_and_reported(kind: FieldType, written: str) -> None:
    fields, (complaint,) = declared_fields({"it": written}, {"it": kind})
    assert fields == {}
    assert complaint == f"it is not {COMPLAINTS[kind]}"


@pytest.mark.parametrize("truth", [True, False])
def test_a_boolean_is_written_in_one_of_four_ways_in_any_case(truth: bool) -> None:  # noqa: FBT001 the parameter
    for word in ("true", "yes", "on", "1") if truth else ("false", "no", "off", "0"):
        for written in (word, word.upper(), word.title()):
            fields, complaints = declared_fields({"final": written}, {"final": "boolean"})
            assert fields["final"] is truth
            assert complaints == []


@pytest.mark.parametrize("kind", get_args(FieldType))
def test_a_field_that_is_missing_or_blank_has_no_value_and_is_no_complaint(kind: FieldType) -> None:
    for metadata in ({}, {"it": ""}, {"it": " \t"}, {"other": "1"}):
        assert declared_fields(metadata, {"it": kind}) == ({}, [])


def test_strings_are_composed_so_that_equal_words_are_equal() -> None:
    apart = unicodedata.normalize("NFD", "Zoë")
    declared: dict[str, FieldType] = {"author": "string", "authors": "string list"}
    fields, _ = declared_fields({"author": apart, "authors": f"{apart}, Ann"}, declared)
    assert apart != "Zoë"
    assert fields == {"author": "Zoë", "authors": ("Zoë", "Ann")}


def test_a_length_counts_after_composition() -> None:
    apart = unicodedata.normalize("NFD", "ë" * LONGEST)
    assert declared_fields({"it": apart}, {"it": "string"}) == ({"it": "ë" * LONGEST}, [])


def test_zero_has_no_sign() -> None:
    fields, _ = declared_fields({"it": "-0.0"}, {"it": "number"})
    assert str(fields["it"]) == "0.0"


def test_every_wrong_field_is_named_in_the_order_of_declaration_and_the_right_ones_stay() -> None:
    declared: dict[str, FieldType] = {
        "year": "integer",
        "pages": "integer",
        "tags": "string list",
        "final": "boolean",
    }
    metadata = {"final": "perhaps", "pages": "many", "year": "2024", "tags": "a, b"}
    assert declared_fields(metadata, declared) == (
        {"year": 2024, "tags": ("a", "b")},
        ["pages is not an integer", "final is not a boolean"],
    )


def test_what_nobody_declared_is_no_field() -> None:
    assert declared_fields({"year": "2024", "pages": "many"}, {"year": "integer"}) == ({"year": 2024}, [])
    assert declared_fields({"year": "2024"}, {}) == ({}, [])


def test_metadata_without_a_declared_field_is_named() -> None:
    text = b"---\nstatus: open\nyear: 2024\nauthor: Ann\nallow: group:hr\n---\nText."
    sidecar = b'author = "Bob"\ndate = 2024-05-01\ntags = ["a"]'
    declared: dict[str, FieldType] = {"year": "integer"}
    assert undeclared_names(parse(text, "a.md"), sidecar, declared) == ("author", "status", "tags")
    assert undeclared_names(parse(text, "a.md"), b"", declared) == ("status",)
    assert undeclared_names(parse(b"<meta name=author content=Ann>Text.", "a.html"), b"", declared) == ()
    notes = [*field_notes(Counter(status=3, tags=1), "papers")]
    assert len(notes) == 1
    assert all(
        word in notes[0] for word in ("status (3 documents)", "tags (1 document)", "set papers --field")
    )
    assert not [*field_notes(Counter(), "papers")]

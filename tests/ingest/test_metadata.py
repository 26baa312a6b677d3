"""Metadata: what a file beside a document says, and the fields that a collection declares."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from rag.config.settings import IngestSettings
from rag.corpus import Access, FieldType, Value
from rag.errors import ParseError
from rag.ingest import prepare
from rag.ingest.containers import MAX_NAME_CHARS, inner_path
from rag.ingest.discover import discover
from rag.ingest.parse.office.docx import MIME_TYPE as DOCX
from rag.ingest.parse.parsers import parse
from rag.ingest.prepare import declared_fields, read_sidecar, undeclared_names, with_stated_metadata
from rag.ingest.report import field_notes
from rag.ingest.requested_access import Rights
from rag.ingest.source_files import LocalFile
from rag.originals import SIDECAR_BYTES

# A file beside a document describes it, before what it says of itself; one that can't be read
# refuses it.

NOT_PLAIN = "must be a plain value"
DOCUMENT = parse(b"---\nyear: 1999\nAllow: group:everyone\n---\n# Plans\n\ntext\n", "plans.md")


def _metadata_with(toml: str) -> dict[str, str]:
    return dict(with_stated_metadata(DOCUMENT, toml.encode()).metadata)


def test_values_of_a_sidecar_are_metadata_as_in_front_matter() -> None:
    metadata = _metadata_with(
        'year = 2024\nweight = 1.5\nfinal = true\nstatus = " open "\ndue = 2024-05-01\n'
        'at = 2024-05-01T10:00:00Z\ntags = ["law", "Smith, Ann", 5]\n'
    )
    assert metadata == {
        "year": "2024",
        "weight": "1.5",
        "final": "true",
        "status": "open",
        "due": "2024-05-01",
        "at": "2024-05-01T10:00:00+00:00",
        "tags": 'law, "Smith, Ann", 5',
        "Allow": "group:everyone",
    }


def test_title_and_date_of_a_sidecar_are_the_documents() -> None:
    document = with_stated_metadata(DOCUMENT, b'title = "The\\nplan"\ndate = 2024-05-01\n')
    assert (document.title, document.date) == ("The plan", datetime(2024, 5, 1, tzinfo=UTC))
    assert with_stated_metadata(DOCUMENT, b"year = 1\n").title == "Plans"
    assert with_stated_metadata(DOCUMENT, b"") is DOCUMENT


@pytest.mark.parametrize(
    "written",
    [
        *(
            "1 May 2024",
            "May 1st, 2024",
            "Wednesday, 1 May 2024",
            "01-May-2024",
            "1. Mai 2024",
            "1er mai 2024",
        ),
        *(
            "1 de mayo de 2024",
            "1 maggio 2024",
            "1 de maio de 2024",
            "1 mei 2024",
            "1 мая 2024",
            "1. maj 2024",
        ),
        *("01.05.2024", "1.5.2024", "2024/5/1", "2024.05.01", "2024-5-1", "2024年5月1日"),
        *("1 мая 2024 г.", "01.05.2024г.", "1 maja 2024 r.", "1 травня 2024 р.", "١ مايو ٢٠٢٤ م"),
        *(
            "令和6年5月1日",
            "令和６年５月１日（水）",
            "二〇二四年五月一日",
            "R6.5.1",
            "民國113年5月1日",
            "1 พฤษภาคม 2567",
        ),
    ],
)
def test_a_date_is_read_as_people_write_it(written: str) -> None:
    document = with_stated_metadata(parse(f"---\ndate: {written}\n---\ntext".encode(), "a.md"), b"")
    assert (document.date, document.remarks) == (datetime(2024, 5, 1, tzinfo=UTC), ())


VALID = b"# Fees\n\nValid from 1 May 2024\n\nEveryone pays.\n"


def test_the_validity_in_the_first_lines_is_metadata_unless_a_date_is_stated() -> None:
    document = parse(VALID, "fees.md")
    assert with_stated_metadata(document, b"").metadata == {"validity": "2024-05-01/.."}
    assert not with_stated_metadata(document, b"date = 2023-01-01").metadata
    of_front_matter = parse(b"---\nupdated: 2023-01-01\n---\n" + VALID, "fees.md")
    assert "validity" not in with_stated_metadata(of_front_matter, b"").metadata
    plain = parse(b"# Fees\n\nEveryone pays.\n", "fees.md")
    by_sidecar = with_stated_metadata(plain, b"valid_from = 2024-05-01").metadata
    assert by_sidecar == {"valid_from": "2024-05-01", "validity": "2024-05-01/.."}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "host,valid_from,note\na,2022-01-01,x\nb,2026-06-01,y"),
        ("a.jsonl", '{"id": 1, "updated": "2021-03-01"}\n{"id": 2, "updated": "2026-10-01"}'),
        ("a.json", '[{"id": 1, "valid_from": "2021-03-01"}, {"id": 2}]'),
        (
            "a.json",
            '[{"title": "a", "updated": "2021-03-01", "body": "1\\n2\\n3"}, {"title": "b", "status": "x"}]',
        ),
    ],
)
def test_a_list_of_records_is_not_valid_from_the_day_of_a_row(name: str, text: str) -> None:
    assert "validity" not in with_stated_metadata(parse(text.encode(), name), b"").metadata


def test_a_list_and_a_single_record_say_themselves_from_when_they_are_valid() -> None:
    prices = parse(b"Prices, valid from 1 May 2024\n\nItem;Price;Note\na;1.10;x\nb;2.20;y", "a.csv")
    record = parse(b'{"title": "Prices", "valid_from": "2024-05-01"}', "a.jsonl")
    for document in (prices, record):
        assert with_stated_metadata(document, b"").metadata["validity"] == "2024-05-01/.."


def test_validity_goes_before_the_time_at_which_an_office_program_saved_a_file() -> None:
    saved = replace(parse(VALID, "fees.md"), mime_type=DOCX, date=datetime(2025, 1, 1, tzinfo=UTC))
    assert with_stated_metadata(saved, b"").metadata == {"validity": "2024-05-01/.."}
    assert not with_stated_metadata(saved, b"date = 2023-01-01").metadata


def test_months_and_days_are_told_apart_where_they_can_be() -> None:
    for written, day in {"12/25/2024": 25, "25/12/2024": 25, "12/12/2024": 12}.items():
        document = with_stated_metadata(DOCUMENT, f'date = "{written}"'.encode())
        assert document.date == datetime(2024, 12, day, tzinfo=UTC)
    unclear = with_stated_metadata(DOCUMENT, b'date = "05/06/2024"')
    assert (unclear.date, unclear.remarks) == (None, (prepare.UNCLEAR_DATE.format("05/06/2024"),))


def test_a_url_from_the_front_matter_or_the_sidecar_is_the_documents() -> None:
    paper = parse(b"---\nurl: https://example.org/a b\nyear: 1999\n---\ntext", "a.md")
    document = with_stated_metadata(paper, b"")
    assert (document.url, document.metadata) == ("https://example.org/a%20b", {"year": "1999"})
    assert with_stated_metadata(paper, b'url = "https://example.org/c"').url == "https://example.org/c"
    for wrong in ("javascript:alert(1)", "example.org/c", "https://me@example.org"):
        document = with_stated_metadata(DOCUMENT, f'url = "{wrong}"'.encode())
        assert document.url is None
        assert document.remarks == ("its url is not an http or https address",)
        assert document.metadata["url"] == wrong


def test_a_sidecar_hides_nothing() -> None:
    toml = r"""title = "\u001b]0;Pl\u200bans\u202e"
"k\ufe01" = "v\U000e0041"
tags = ["a\u3164", "می‌خواهم"]"""
    document = with_stated_metadata(DOCUMENT, toml.encode())
    assert document.title == "]0;Plans"
    assert {"k": "v", "tags": "a, می‌خواهم"}.items() <= document.metadata.items()


def test_access_comes_from_the_sidecar_or_the_document_but_not_from_both() -> None:
    rights = Rights("tenant", of_documents=True)

    def access(toml: bytes) -> Access | None:
        return rights.claim(Path("/notes/plans.md"), with_stated_metadata(DOCUMENT, toml).metadata).access

    everyone, hr = Access("restricted", frozenset({"group:everyone"}), revision=1), frozenset({"group:hr"})
    assert access(b"year = 1") == everyone
    assert access(b'allow = ["group:hr"]') == Access("restricted", hr, revision=1)
    assert access(b'visibility = "restricted"') == Access("restricted", revision=1)
    for wrong in (b'visibility = "secret"', b'allow = ["hr"]', b"allow = []", b'allow = ["group:a,group:b"]'):
        with pytest.raises(ParseError):
            access(wrong)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (b"year = ", "is not valid TOML"),
        (b'"allow\\u200b" = "group:all"\nallow = "group:hr"', "two of its keys look the same"),
        (b"\xff", "it is not in UTF-8"),
        (b"[allow]\ngroup = 1\n", f"allow {NOT_PLAIN}"),
        (b"tags = [[1]]", f"tags {NOT_PLAIN}"),
    ],
)
def test_an_invalid_sidecar_rejects_the_document(toml: bytes, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        with_stated_metadata(DOCUMENT, toml)


def test_a_sidecar_that_can_not_be_read_refuses_the_document(tmp_path: Path) -> None:
    file = LocalFile.local(tmp_path / "plans.md", "plans.md")
    beside = tmp_path / "plans.md.meta.toml"
    assert read_sidecar(file) == b""
    beside.write_bytes(b"year = 1")
    assert read_sidecar(file) == b"year = 1"
    beside.write_bytes(b"#" * (SIDECAR_BYTES + 1))
    with pytest.raises(ParseError, match=r"its plans\.md\.meta\.toml: it is larger than 64 kB"):
        read_sidecar(file)
    for target in ("elsewhere", "nowhere"):
        beside.unlink()
        (tmp_path / "elsewhere").touch()
        beside.symlink_to(tmp_path / target)
        with pytest.raises(ParseError):
            read_sidecar(file)


def test_a_file_in_a_folder_that_is_gone_is_refused_and_not_taken_for_one_without_a_sidecar(
    tmp_path: Path,
) -> None:
    (tmp_path / "hr").mkdir()
    file = LocalFile.local(tmp_path / "hr" / "plans.md", "hr/plans.md")
    assert read_sidecar(file) == b""
    (tmp_path / "hr").rename(tmp_path / "hr-2026")
    with pytest.raises(ParseError, match=r"its plans\.md\.meta\.toml: .*the folder 'hr' above it is gone"):
        read_sidecar(file)


def test_a_file_whose_name_leaves_no_room_for_a_sidecar_has_none(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 252 + ".md")
    path.touch()
    assert read_sidecar(LocalFile.local(path, path.name)) == b""


def test_a_sidecar_is_no_document(tmp_path: Path) -> None:
    for name in ("plans.md", "plans.md.meta.toml", "notes.toml"):
        (tmp_path / name).write_text("a = 1\n")
    walked = discover([tmp_path], IngestSettings())
    assert [file.name for file in walked.files.values()] == ["notes.toml", "plans.md"]
    (outcome,) = walked.outcomes
    assert (outcome.outcome, outcome.reason) == ("ignored", "metadata of plans.md, read with it")
    (named,) = discover([tmp_path / "plans.md.meta.toml"], IngestSettings()).outcomes
    assert named.outcome == "skipped"


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_changed_sidecar_makes_the_source_anew(small_desk: ModuleType, tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "plans.txt").write_text("plans")

    async def counts() -> dict[str, Any]:
        report = await small_desk.ingested(tmp_path / "data", papers)
        return {kind: count for kind, count in report.counts.items() if count and kind != "ignored"}

    assert await counts() == {"added": 1}
    (papers / "plans.txt.meta.toml").write_text("year = 1")
    assert await counts() == {"replaced": 1}
    assert await counts() == {"unchanged": 1}
    (papers / "plans.txt.meta.toml").write_text("year = ")
    assert await counts() == {"skipped": 1}
    (papers / "plans.txt.meta.toml").unlink()
    assert await counts() == {"replaced": 1}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_a_sidecar_is_read_as_editors_of_windows_save_it(encoding: str) -> None:
    written = 'title = "Größe"\r\nallow = ["group:hr"]\r\n'.encode(encoding)
    document = with_stated_metadata(DOCUMENT, written)
    assert (document.title, document.metadata["allow"]) == ("Größe", "group:hr")


@pytest.mark.parametrize("data", ['title = "Größe"\n'.encode("cp1252"), b"\xff\xfea", b"\x00\x01\xd8"])
def test_a_sidecar_in_another_encoding_is_refused_in_one_line_that_says_so(data: bytes) -> None:
    with pytest.raises(ParseError, match="UTF-8") as refused:
        with_stated_metadata(DOCUMENT, data)
    assert "codec" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_dots_hide_from_the_limit_in_no_encoding() -> None:
    key = ".".join(["ਊ"] * 1100)  # U+0A0A: its bytes are line ends
    with pytest.raises(ParseError, match="dots"):
        with_stated_metadata(DOCUMENT, f'"x"{key} = 1'.encode("utf-16"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_front_matter_is_read_in_the_encoding_of_its_file(encoding: str) -> None:
    written = "---\nstatus: größer\nallow: group:hr\n---\n# Plans for the big room\n\ntext\n"
    document = parse(written.encode(encoding), "a.md")
    assert (document.metadata["status"], document.metadata["allow"]) == ("größer", "group:hr")


# Sidecars and names that would end a run, or take all memory of it, are refused.


@pytest.mark.parametrize(
    "hostile", [b"year = " + b"1" * 5000, b"year = 0x" + b"f" * 60_000, b"a." * 31_000 + b"a = 1"]
)
def test_a_sidecar_that_would_end_the_run_is_refused(hostile: bytes) -> None:
    with pytest.raises(ParseError, match=r"its \.meta\.toml file"):
        prepare._entries(hostile)  # noqa: SLF001 where it is read
    assert prepare._entries(b"year = 2024") == {"year": "2024"}  # noqa: SLF001 the control


def test_a_member_s_path_has_a_length() -> None:
    assert inner_path("a/" * 400 + "x.md") == "a/" * 400 + "x.md"
    assert inner_path("a/" * MAX_NAME_CHARS + "x.md") is None


# Metadata as the declared fields of a collection, and the complaints about values that don't fit.

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
        ("datetime", "05/06/2024"),
        ("datetime", "31.02.2024"),
        ("datetime", "May 2024"),
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
    for stated in ({}, {"it": ""}, {"it": " \t"}, {"other": "1"}):
        assert declared_fields(stated, {"it": kind}) == ({}, [])


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


def test_a_field_takes_the_entry_that_documents_write_in_capitals_or_with_other_signs() -> None:
    text = "---\npython-version: 3.12\nversions:\n  fpt: x\nShortTitle: T\nGröße: 4\nя: 1\n2nd: b\n---\nText."
    document = parse(text.encode(), "a.md")
    kinds: dict[str, FieldType] = {
        "grosse": "integer",
        "python_version": "string",
        "shorttitle": "string",
        "versions_fpt": "string",
    }
    assert undeclared_names(document, b"", {}) == (*kinds,)
    assert undeclared_names(document, b"", kinds) == ()
    fields = {"grosse": 4, "python_version": "3.12", "shorttitle": "T", "versions_fpt": "x"}
    assert declared_fields(document.metadata, kinds) == (fields, [])
    both = {"status": "final", "Status": "draft"}
    assert declared_fields(both, {"status": "string"}) == ({"status": "final"}, [])

from __future__ import annotations

import codecs

import pytest

from rag.errors import ParseError
from rag.ingest.parse.decode import decode

TEXT = "Käse – 汉字 🧀\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_unicode_is_read_with_and_without_its_mark(encoding: str) -> None:
    marks = {
        "utf-16-le": codecs.BOM_UTF16_LE,
        "utf-16-be": codecs.BOM_UTF16_BE,
        "utf-32-le": codecs.BOM_UTF32_LE,
        "utf-32-be": codecs.BOM_UTF32_BE,
    }
    assert decode(marks.get(encoding, b"") + TEXT.encode(encoding))[0] == TEXT


def test_what_is_not_utf_8_is_read_as_windows_1252() -> None:
    assert decode("“Käse” – 5 €".encode("cp1252")) == ("“Käse” – 5 €", "cp1252")


def test_all_line_ends_become_line_feeds() -> None:
    assert decode(b"a\r\nb\rc\n")[0] == "a\nb\nc\n"


def test_terminal_colors_are_left_out_and_form_feeds_stay() -> None:
    log = b"\x1b[31mred\x1b[0m\x0c" * 10
    assert decode(log)[0] == "red\x0c" * 10


@pytest.mark.parametrize(
    "data", [b"a\x00b", b"\x7fELF\x02\x01\x01", b"\x01\x02 text", b"\xff\xd8\xff\xe0\x00\x10JFIF"]
)
def test_binary_data_is_no_text(data: bytes) -> None:
    with pytest.raises(ParseError, match=r"^binary data, not text$"):
        decode(data)


def test_bytes_without_a_meaning_are_refused() -> None:
    with pytest.raises(ParseError, match="neither UTF-8 nor Windows-1252"):
        decode(b"K\x81se")


def test_a_mark_is_a_promise() -> None:
    with pytest.raises(ParseError, match="invalid UTF-16 text"):
        decode(codecs.BOM_UTF16_LE + b"a")

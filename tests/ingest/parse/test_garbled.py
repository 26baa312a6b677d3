"""PDFs whose fonts have no map to characters, in raw PDF, and real text, which is never taken for one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse
from rag.ingest.parse.pdf.readable_pages import NO_CHARACTERS, is_garbled
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget

Codes: TypeAlias = Callable[[str], bytes]

LANGUAGES = ("en", "de", "ru", "hi", "vi", "zh")
DESCRIPTOR = (
    b"<</Type/FontDescriptor/FontName/ABCDEF+Arial/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0"
    b"/Ascent 900/Descent -200/CapHeight 700/StemV 80>>"
)
CHARACTERS = b"<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
NUMBERED = (
    b"<</Type/Font/Subtype/Type0/BaseFont/ABCDEF+Arial/Encoding/Identity-H/DescendantFonts[6 0 R]>>",
    b"<</Type/Font/Subtype/CIDFontType2/BaseFont/ABCDEF+Arial/CIDSystemInfo %s/FontDescriptor 7 0 R/DW 600>>"
    % CHARACTERS,
    DESCRIPTOR,
)
"""A font of glyphs that are named by two bytes."""


def simple(encoding: bytes = b"") -> tuple[bytes, ...]:
    """A font of glyphs that are named by one byte."""
    widths = b"600 " * 256
    return (
        b"<</Type/Font/Subtype/TrueType/BaseFont/ABCDEF+Arial/FirstChar 0/LastChar 255/Widths["
        + widths
        + b"]/FontDescriptor 6 0 R"
        + encoding
        + b">>",
        DESCRIPTOR,
    )


def differences(name: Callable[[int], str]) -> bytes:
    names = "".join(f"/{name(number)}" for number in range(1, 256))
    return f"/Encoding<</Type/Encoding/Differences[1 {names}]>>".encode()


def pdf(text: str, codes: Codes, font: tuple[bytes, ...]) -> bytes:
    """A page with this text in lines, shown by the codes of a font, with no map back to characters."""
    lines = [text[at : at + 90] for at in range(0, len(text), 90)]
    strings = b"".join(b"<%s> Tj T*\n" % codes(line).hex().encode() for line in lines)
    content = b"BT /F1 10 Tf 50 800 Td 12 TL\n" + strings + b"ET"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        *font,
    ]
    written, starts = b"%PDF-1.5\n", []
    for number, body in enumerate(objects, 1):
        starts.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    size = len(objects) + 1
    return written + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (size, table, size, len(written))
    )


def glyphs_of_arial(text: str) -> bytes:
    """Glyph numbers as in Arial: ASCII less 29, and other letters in the order of Unicode from 98 on."""
    beyond_ascii = sorted({letter for letter in text if not letter.isascii()})
    numbers = {letter: 98 + 7 * at for at, letter in enumerate(beyond_ascii)}
    return b"".join(numbers.get(letter, ord(letter) - 29).to_bytes(2, "big") for letter in text)


def by_appearance(first: int, width: int = 1) -> Codes:
    """Glyph numbers in the order in which glyphs appear, as in fonts reduced to what a document uses."""
    number, numbers = count(first), dict[str, int]()

    def codes(text: str) -> bytes:
        for letter in text:
            if letter not in numbers:
                numbers[letter] = min(next(number), 255 if width == 1 else 60_000)
        return b"".join(numbers[letter].to_bytes(width, "big") for letter in text)

    return codes


@pytest.fixture(scope="module")
def texts(judged: Path) -> dict[str, str]:
    """A text of a few thousand characters in each language."""
    return {language: " ".join(passages(judged, language)[:6]) for language in LANGUAGES}


def passages(judged: Path, language: str) -> list[str]:
    lines = (judged / f"xquad_{language}" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [re.sub(r"\s+", " ", json.loads(line)["text"]) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("codes", "font"),
    [
        (lambda: glyphs_of_arial, NUMBERED),
        (lambda: by_appearance(3, 2), NUMBERED),
        (lambda: by_appearance(1), simple()),
        (lambda: by_appearance(33), simple()),
        (lambda: by_appearance(1), simple(differences("g{:03}".format))),
        (lambda: by_appearance(1), simple(differences(lambda number: f"uni{0xE000 + number:04X}"))),
    ],
    ids=["glyphs of Arial", "two bytes", "one byte", "printable bytes", "names", "private use"],
)
def test_text_without_a_map_to_characters_is_refused_in_six_languages(
    texts: dict[str, str], language: str, codes: Callable[[], Codes], font: tuple[bytes, ...]
) -> None:
    data = pdf(texts[language], codes(), font)
    with pytest.raises(ParseError, match=NO_CHARACTERS):
        parse(data, "a.pdf")


def test_the_same_page_with_a_map_is_read(corpus: Path) -> None:
    page = (corpus / "gps-time.md").read_text(encoding="utf-8").encode("ascii", "ignore").decode()
    text = " ".join(page.split())[:2000]
    text_with_map = parse(pdf(text, lambda line: line.encode("latin-1"), simple()), "a.pdf").text
    assert "GPS" in text_with_map
    garbled = pdf(text, glyphs_of_arial, NUMBERED)
    with pytest.raises(ParseError, match="run OCR on it first"):
        parse(garbled, "a.pdf")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_in_six_languages_is_garbled(judged: Path, language: str) -> None:
    texts = passages(judged, language)
    assert len(texts) > 200
    assert not [text for text in texts if is_garbled(text)]


@pytest.mark.slow
def test_no_real_pdf_is_garbled(judged: Path, corpus: Path) -> None:
    readable = 0
    for path in [*judged.rglob("*.pdf"), *corpus.glob("*.pdf")]:
        try:
            readable += bool(parse(path.read_bytes(), path.name).text)
        except ParseError as error:
            assert "glyphs" not in str(error), path  # noqa: PT017 others have no text or a password
    assert readable >= 20


RUSSIAN = "Это обычный русский текст о часах и о времени, записанный в старой кодировке. " * 5


@pytest.mark.parametrize(
    ("text", "garbled"),
    [
        (RUSSIAN, False),
        (RUSSIAN.encode("cp1251").decode("latin-1"), True),
        ("7KH TXLFN EURZQ IR[ MXPSV RYHU WKH OD]\\ GRJ. " * 9, True),
        ("THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG. " * 9, False),
        ("\ufffd\ufffd \ufffd\ufffd\ufffd " * 99, True),
        ("(cid:12)(cid:7)(cid:33)(cid:4) " * 40, True),
        ("/c03/c03\n" * 9, True),  # short as it is
        ("\n".join(f"{n}  {n * 7919 % 1000:,}.00  {n * 31 % 97} %" for n in range(200)), False),
        ("R1 10k 0603; C4 100nF X7R; U2 LM358D; J3 RJ45; " * 12, False),
        ("Chapter ............................................. 12\n" * 20, False),
        ("d = {'a': [1, 2], 'b': (x + y) * z[0]}; f(&p->q, *r); /* ok */\n" * 9, False),
        (
            "Genir pawb â'i gilydd: urddas, hawliau, rheswm, chydwybod a dylai pawb ymddwyn y naill. " * 6,
            False,
        ),
        ("Saa ya zamani ilikuwa kubwa na nzito, lakini watu wengi waliipenda sana. " * 6, False),
        ("ATGCGTACCTGAAGTCCGATTACGGCTA " * 12, False),
        ("東京とニューヨークの時刻はどれほど違うのか。ABCとΔtの話。" * 9, False),
        ('!"#$ %&', False),
        ("", False),
    ],
)
def test_only_noise_is_garbled(text: str, *, garbled: bool) -> None:
    assert is_garbled(text) == garbled


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["a.txt", "a.md", "README", "a.PDF"])
async def test_a_pdf_is_a_pdf_whatever_its_name_and_parsed_in_the_sandbox(
    corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.ingest.parse.parsers.parse", None)  # what would parse it in this process
    data = (corpus / "the-longitude-problem.pdf").read_bytes()
    document = await parse_safely(data, name, budget=Budget(60))
    assert (document.mime_type, bool(document.pages)) == ("application/pdf", True)
    assert "%PDF" not in document.text


def test_a_web_page_is_one_in_a_text_file_and_no_pdf() -> None:
    page = b"\xef\xbb\xbf\n<!DOCTYPE html><title>T</title><p>Words."
    document = parse(page, "a.txt")
    assert (document.title, document.text, document.mime_type) == ("T", "Words.", "text/html")
    with pytest.raises(ParseError, match="an HTML page"):
        parse(page.removeprefix(b"\xef\xbb\xbf"), "a.pdf")


def test_a_text_that_only_speaks_of_formats_stays_a_text() -> None:
    for text in ("%PDF-1.7 begins a file.", "A page begins with <!doctype html>.", "<htmlish> words"):
        assert parse(text.encode(), "a.txt").mime_type == "text/plain"


def test_a_short_text_of_characters_without_a_meaning_is_garbled() -> None:
    assert is_garbled("\ufffd" * 14)
    assert is_garbled("\uf76f\uf770 \uf765")
    assert not is_garbled("\uf0b7 one \uf0b7 two")

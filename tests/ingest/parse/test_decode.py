"""From bytes to text: the encoding, data that is no text, and the format of the content."""

from __future__ import annotations

import base64
import codecs
import hashlib
import io
import string
import struct
import zipfile
import zlib
from collections.abc import Sequence

import pytest

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.decode import (
    DATA_LEFT_OUT,
    Decoded,
    codec_of,
    declared_in,
    decode,
    decode_part,
    without_encoded_data,
)
from rag.ingest.parse.office import xls
from rag.ingest.parse.parsers import format_of, members, parse, sniffed_suffix
from rag.ingest.parse.zip_package import OLE

TEXT = "Käse – 汉字 🧀\n"
NOISE = bytes(range(0x80, 0x100))


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


RUSSIAN = "Шапочка обязательна для всех посетителей бассейна."
CHINESE = "食堂早餐时间改为七点到九点。"
JAPANESE = "温泉旅館の料金は一泊二食付きです。"
KOREAN = "열람실은 오전 아홉 시부터 이용할 수 있습니다."
GREEK = "Η βιβλιοθήκη θα παραμείνει κλειστή την Παρασκευή."
HEBREW = "הבריכה סגורה ביום שלישי לצורך ניקוי."


@pytest.mark.parametrize(
    "text",
    [
        "“Käse” – 5 €",
        "Zoë",
        "it’s",
        "5 °C ± 2",
        "© 2024 Example",
        "price: 5 £",
        "El Niño: año",
        "à l'été déjà vu",
        "½ Liter Milch (¤), 2½ Eier für Büros",
        "Ein Preis von 5 ¤? Größe: 2½ m",
        "Nimm ½ Liter süße Milch.",
    ],
)
def test_a_western_text_without_a_declaration_is_windows_1252(text: str) -> None:
    decoded = decode(text.encode("cp1252"))
    assert (decoded.text, decoded.encoding, decoded.remark) == (text, "cp1252", "")


@pytest.mark.parametrize("declared", ["iso-2022-jp", ""])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b$BF|;~$O-!7nMKF|$G$9!#\x1b(B", "日時は①月曜日です。"),
        (b'A\x1b$B-jK\\4[!"|b66\x1b(B 03', "A㈱本館、髙橋 03"),
        (b"\x1b(I6^2D^\x1b(B guide", "ｶﾞｲﾄﾞ guide"),
    ],
)
def test_signs_that_mail_programs_add_to_iso_2022_jp_are_read(data: bytes, text: str, declared: str) -> None:
    assert decode(data, declared).text == text
    assert decode_part(data, declared).text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((RUSSIAN, encoding) for encoding in ("cp1251", "koi8-r", "cp866", "iso8859-5", "mac-cyrillic")),
        *((GREEK, encoding) for encoding in ("cp1253", "iso8859-7", "cp737")),
        *((HEBREW, encoding) for encoding in ("cp1255", "cp862")),
        *((CHINESE, encoding) for encoding in ("gbk", "gb18030")),
        *((JAPANESE, encoding) for encoding in ("cp932", "euc_jp", "iso2022_jp")),
        (KOREAN, "cp949"),
        ("員工食堂早餐時間改為七點到九點。", "big5"),
        ("Большая книга", "utf-16-be"),
        ("Tick tock", "utf-16-le"),
        *(
            (text, encoding)
            for text in ("Цена: 12 р., т. 5, с. 7 (USB-кабель)", "ул. Ленина, д. 5, корп. 2, кв. 17")
            for encoding in ("cp1251", "koi8-r", "cp866", "iso8859-5")
        ),
        *(
            (text, encoding)
            for text in ("НАЧАЛЬНИК ОТДЕЛА: КЛЮЧ; ФАМИЛИЯ", "КЛЮЧ ОТ КВАРТИРЫ, ЛЮДЯМ", RUSSIAN.upper())
            for encoding in ("cp1251", "koi8-r", "cp866", "iso8859-5")
        ),
        *((text, "cp932") for text in ("ｺｰﾄﾞ,ｼﾒｲ,ｼﾞｭｳｼｮ\n1,ﾔﾏﾀﾞ ﾀﾛｳ,ﾄｳｷｮｳﾄ", "ｶﾌﾞｼｷｶﾞｲｼｬ ﾀﾞｲﾋｮｳ\nﾌﾘｺﾐ 12,000")),
        *(
            (text, "iso8859-15")
            for text in (
                "Le cœur de l'œuvre coûte à la sœur.",
                "Cœur de Ville;12\nÉcole;3",
                "El importe es de 1.234,56 € más IVA. La reunión será mañana.",
                "Der Preis beträgt 5,00 € für die Büros.",
                "Šakki ja žetoni maksavat päivässä.",
            )
        ),
    ],
)
def test_a_text_in_another_encoding_is_read_in_it_without_a_declaration(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("word", "encoding"),
    [
        ("名称", "gb18030"),
        ("이름", "cp949"),
        ("Заметки", "cp1251"),
        ("Σημειώσεις", "cp1253"),
        ("הערות", "cp1255"),
        ("หมายเหตุ", "cp874"),
        ("Müller", "cp1252"),
    ],
)
def test_a_word_of_another_script_is_read_in_an_english_table(word: str, encoding: str) -> None:
    english = "The technician noted that entry {} of the log was complete and that nothing else happened"
    table = "\n".join(f"{english.format(row)};{'none' if row % 10 else word};checked" for row in range(30))
    assert decode(table.encode(encoding)).text == table


def test_an_encoding_that_is_only_guessed_is_told() -> None:
    assert "cp1253" in decode(GREEK.encode("cp1253")).remark
    assert not decode(GREEK.encode()).remark


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("gb2312", "gb18030"),
        ("iso-8859-1", "cp1252"),
        ("ISO-8859-8-I", "iso8859-8"),
        ("windows-31j", "cp932"),
        ("cp-850", "cp850"),
        ("utf8mb4", "utf-8"),
        ("iso-2022-kr", "iso2022_kr"),
        ("unknown-8bit", ""),
        ("rot13", ""),
        ("unicode_escape", ""),
        ("idna", ""),
    ],
)
def test_labels_mean_what_they_mean_to_a_browser(label: str, codec: str) -> None:
    assert codec_of(label) == codec


@pytest.mark.parametrize(
    ("before", "label", "text"),
    [
        ('<?xml version="1.0" encoding="koi8-r"?>\n', "koi8-r", "Да"),
        ('@charset "windows-1251";\n', "windows-1251", "Да"),
        ("#!/usr/bin/python\n# -*- coding: cp1251 -*-\n", "cp1251", "Да"),
        ("% !TeX encoding = latin2\n", "latin2", "Żółw"),
        ("\\usepackage[latin2]{inputenc}\n", "latin2", "Żółw"),
        ("Content-Type: text/plain; charset=gb2312\n\n", "gb2312", "食堂"),
        ("BEGIN:VCARD\nFN;CHARSET=SHIFT_JIS:", "SHIFT_JIS", "温泉"),
        ("#+CODING: iso-8859-5\n", "iso-8859-5", "Да"),
        ('<?xml version="1.0" encoding="windows-1251"?>\n', "windows-1251", "А1 12 р., Б2 7 р."),
        ("Content-Type: text/plain; charset=koi8-r\n\n", "koi8-r", "И. И. Иванов, т. 5, д. 7"),
        ("#+CODING: iso-8859-7\n", "iso-8859-7", "R = 5 Ω, Α΄ τάξη"),
        ("# coding: windows-1251\n", "windows-1251", "SIMки, VIPы и PDFку"),
        ("# coding: windows-1251\n", "windows-1251", "IPадрес, Сoмнительный"),
    ],
)
def test_a_declared_encoding_is_read_however_short_the_text(before: str, label: str, text: str) -> None:
    data = f"{before}{text}".encode(codec_of(label))
    assert declared_in(data) == label
    assert (decode(data).text, decode(data).remark) == (before + text, "")


@pytest.mark.parametrize(
    ("label", "page", "text"),
    [
        ("iso-8859-2", "cp1250", "„oferta” – 500 zł"),
        ("iso-8859-7", "cp1253", "“προσφορά” – €500"),
        ("iso-8859-8-i", "cp1255", "“הצעה” – דוד"),
        ("iso-8859-9", "cp1254", "“Teklif” – €500 İstanbul"),
        ("iso-8859-15", "cp1252", "“L’été” – 5 ans"),
        ("big5", "cp950", "價格€500"),
        ("big5", "big5hkscs", "係咪啲嘢嚟嘅"),
        ("iso-8859-2", "iso8859-2", "Zażółć gęślą jaźń"),
        ("shift_jis", "cp932", "お知らせ\n┌──┬──┐\n│項目│金額│\n━━━━━━━━━"),
        ("euc-kr", "cp949", "공지\n──────────\n회의 안내"),
    ],
)
def test_a_stated_encoding_has_the_signs_that_windows_adds_and_lines(
    label: str, page: str, text: str
) -> None:
    decoded = decode(text.encode(page), label)
    assert (decoded.text, decoded.encoding, decoded.remark) == (text, page, "")


def test_lines_in_a_text_without_a_declaration_are_no_damage() -> None:
    for text in (
        "お知らせ\n──────────\n本文です\n",
        "┌──┬──┐\n│項目│金額│\n└──┴──┘\n来週の会議は火曜日です。",
    ):
        assert decode(text.encode("cp932")).text == text


@pytest.mark.parametrize("label", ["cp437", "cp866"])
def test_capitals_that_look_like_lines_in_a_stated_code_page_are_no_lines(label: str) -> None:
    for text in ("НАЧАЛЬНИК ОТДЕЛА: КЛЮЧ", "ВСЕГО"):
        assert decode_part(text.encode("cp1251"), label).text == text


def test_a_polish_word_is_not_taken_for_french() -> None:
    for text in ("Umowa nr 7/2024 na dostawę śrub", "protokół ze środy"):
        assert decode(text.encode("cp1250")).text == text
    assert decode("un œil, le cœur".encode("cp1252")).encoding == "cp1252"


def test_a_page_declares_its_encoding_in_a_meta_element_outside_of_comments() -> None:
    page = (
        f'<!-- <meta charset="utf-16"> --><META http-equiv=x content="text/html; charset=koi8-r"><p>{RUSSIAN}'
    )
    assert decode(page.encode("koi8-r"), page=True).text == page


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "utf-8", "Käse"),
        ("utf-8", "cp1252", "Käse – für Zoë"),
        ("windows-1252", "cp1251", RUSSIAN),
        ("windows-1251", "cp1252", "Käse für Gäste, à la carte"),
        ("gb2312", "utf-8", CHINESE),
    ],
)
def test_a_false_declaration_yields_to_the_bytes_and_is_told(declared: str, encoding: str, text: str) -> None:
    decoded = decode(text.encode(encoding), declared)
    assert decoded.text == text
    assert repr(declared) in decoded.remark


def test_a_mark_goes_before_a_declaration() -> None:
    assert decode("Käse".encode("utf-8-sig"), "koi8-r").text == "Käse"


def test_a_wrong_byte_costs_one_character_and_is_told() -> None:
    damaged = 30 * "ä".encode() + b"\xff"
    decoded = decode(damaged)
    assert (decoded.text, decoded.lost) == (30 * "ä" + "\ufffd", 1)
    document = decoded.annotated(Document("", "", "", ()))
    assert document.remarks
    assert "1 character lost" in document.metadata["encoding"]


@pytest.mark.parametrize(
    ("label", "text"),
    [("big5", "附件為報價單，請查收。"), ("shift_jis", JAPANESE), ("euc-kr", KOREAN), ("euc-jp", JAPANESE)],
)
def test_a_character_that_was_cut_costs_itself_in_the_stated_encoding(label: str, text: str) -> None:
    damaged = text[:-1].encode(codec_of(label))[:-1] + b"\n> ok\xff"
    decoded = decode(damaged.removesuffix(b"\xff"), label)
    assert (decoded.text, decoded.lost) == (f"{text[:-2]}\ufffd\n> ok", 1)
    with_noise = decode(f"{text}\n".encode(codec_of(label)) + b"\xff ok", label)
    assert with_noise.text == f"{text}\n\ufffd ok"


def test_a_false_declaration_of_an_east_asian_encoding_yields_to_detection() -> None:
    for label in ("big5", "euc-kr", "shift_jis", "gb2312"):
        assert decode(RUSSIAN.encode("cp1251"), label).text == RUSSIAN


def test_a_part_is_read_in_any_case() -> None:
    lost = decode_part(NOISE, "unknown-8bit")
    assert lost.lost
    assert "unknown-8bit" in lost.remark
    assert decode_part("Käse".encode(), "unknown-8bit") == Decoded("Käse", "utf-8")


def test_all_line_ends_become_line_feeds() -> None:
    assert decode(b"a\r\nb\rc\n")[0] == "a\nb\nc\n"


def test_terminal_colors_are_left_out_and_form_feeds_stay() -> None:
    log = b"\x1b[31mred\x1b[0m\x0c" * 10
    assert decode(log)[0] == "red\x0c" * 10


@pytest.mark.parametrize(
    "data",
    [b"a\x00b", b"\x7fELF\x02\x01\x01", b"\x01\x02 text", b"\xff\xd8\xff\xe0\x00\x10JFIF", b"\x01\x80"],
)
def test_binary_data_is_no_text(data: bytes) -> None:
    with pytest.raises(ParseError, match=r"^binary data, not text$"):
        decode(data)


def test_bytes_without_a_meaning_are_refused() -> None:
    with pytest.raises(ParseError, match=r"^its encoding can't be detected\. Save it as UTF-8$"):
        decode(NOISE)


def test_a_mark_is_a_promise() -> None:
    with pytest.raises(ParseError, match="invalid UTF-16 text"):
        decode(codecs.BOM_UTF16_LE + b"a")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_hidden_characters_are_counted_in_every_form_of_unicode(encoding: str) -> None:
    document = parse("Pass\u200bword and a few more words\u2060.\n".encode(encoding), "a.txt")
    assert document.text.startswith("Password")
    assert document.metadata["left_out"] == "2 hidden characters"


@pytest.mark.parametrize(
    ("names", "codepage"),
    [
        (("Отчёт.txt", "Приказ.doc"), "cp866"),
        (("Überblick.txt",), "cp437"),
        (("Résumé.txt", "Größe.txt"), "cp850"),
        (("資料.txt", "会議録.txt"), "cp932"),
        (("会议记录.txt",), "gbk"),
        (("Żółć.txt", "święto.txt"), "cp852"),
        (("Überblick.txt", "Отчёт.txt"), "utf-8"),
    ],
)
def test_the_names_in_a_zip_are_read_in_the_code_page_that_fits_all(
    names: tuple[str, ...], codepage: str
) -> None:
    assert [member.name for member in members(_zip(names, codepage), "a.zip")] == list(names)


def test_a_name_in_a_zip_is_what_its_field_for_unicode_says() -> None:
    raw = "Отчёт.txt".encode("cp866")
    name = "Отчёт 2.txt".encode()
    right = struct.pack("<HHBI", 0x7075, 5 + len(name), 1, zlib.crc32(raw)) + name
    wrong = struct.pack("<HHBI", 0x7075, 5 + len(name), 1, 0) + name
    assert [member.name for member in members(_zip(["Отчёт.txt"], "cp866", right), "a.zip")] == [
        "Отчёт 2.txt"
    ]
    second_archive = members(_zip(["Отчёт.txt", "Приказ.txt"], "cp866", wrong), "a.zip")
    assert [member.name for member in second_archive] == ["Отчёт.txt", "Приказ.txt"]


def _zip(names: Sequence[str], codepage: str, extra: bytes = b"") -> bytes:
    """A ZIP archive whose names are in a code page that it doesn't state, as DOS wrote it."""
    file = io.BytesIO()
    written = [name.encode(codepage) for name in names]
    raw = {f"{at}".rjust(len(name), "_").encode(): name for at, name in enumerate(written)}
    with zipfile.ZipFile(file, "w") as archive:
        for stand_in in raw:
            entry = zipfile.ZipInfo(stand_in.decode())
            entry.create_system, entry.extra = 0, extra
            archive.writestr(entry, b"text")
    data = file.getvalue()
    for stand_in, name in raw.items():
        data = data.replace(stand_in, name)
    return data


@pytest.mark.parametrize(
    ("written", "codepage", "text"),
    [
        ("Größe".encode("cp1252"), 1252, "Größe"),
        (RUSSIAN.encode("cp1251"), 1251, RUSSIAN),
        (RUSSIAN.encode("cp1251"), 1252, RUSSIAN),  # many programs state 1252 whatever they write
        (RUSSIAN.encode(), 65001, RUSSIAN),
        ("Größe\0".encode("utf-16-le"), 1200, "Größe"),
        ("Größe".encode("mac-roman"), 10000, "Größe"),
        (b"plain\0", None, "plain"),
        ("plain", 1252, "plain"),
        (None, 1252, ""),
        ("Größe".encode("cp1252"), 4711, "Größe"),
    ],
)
def test_a_property_of_an_old_office_file_is_in_its_code_page_or_what_its_bytes_are(
    written: bytes | str | None, codepage: int | None, text: str
) -> None:
    assert xls._property_text(written, codepage) == text  # noqa: SLF001 no library writes such files


# Data that is encoded as text is no text, however it is wrapped.

DATA = base64.b64encode(hashlib.shake_128(b"picture").digest(30_000)).decode()
WRAPPED = "\n".join(DATA[start : start + 76] for start in range(0, len(DATA), 76))


@pytest.mark.parametrize("data", [DATA, WRAPPED, base64.urlsafe_b64encode(DATA.encode()).decode()])
def test_data_in_a_text_is_replaced_by_a_mark_and_a_remark(data: str) -> None:
    text, remark = without_encoded_data(f"Before.\n\n{data}\n\nAfter.\n")
    assert text == f"Before.\n\n{DATA_LEFT_OUT}\n\nAfter.\n"
    assert remark == f"{len(data) - len(DATA_LEFT_OUT)} characters of encoded data left out"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.md", "# Plan\n\n![clock](data:image/png;base64,", ")\n\nText.\n"),
        ("a.xml", "<Invoice><Reason>Text.</Reason><Attachment>", "</Attachment></Invoice>"),
        ("a.xml", '<mxfile><note>Text.</note><diagram data="', '"/></mxfile>'),
        ("a.fb2", "<FictionBook><body><p>Text.</p></body><binary>", "</binary></FictionBook>"),
    ],
)
@pytest.mark.parametrize("data", [DATA, WRAPPED], ids=["line", "lines"])
def test_data_in_a_document_takes_no_room(name: str, before: str, after: str, data: str) -> None:
    document = parse(f"{before}{data}{after}".encode(), name)
    assert len(document.text) < 300
    assert "Text." in document.text
    assert len(document.remarks) == 1


def test_a_program_behind_the_address_of_a_playground_takes_no_room() -> None:
    text = f"Try [it](https://play.example.org/#{DATA[:400]}) or [https://a.example/{DATA[:400]}#b]"
    shown = text.replace(f"#{DATA[:400]}", f"#{DATA_LEFT_OUT}")
    assert without_encoded_data(text)[0] == shown


@pytest.mark.parametrize(
    "text",
    [
        f"https://example.org/#{'a-long-heading-' * 20}",
        f"https://example.org/#{'%E8%83%BD' * 40}",
        "a" * 100_000,
        "ACGT" * 10_000,
        "x" * 1999,
        (string.ascii_lowercase * 400),
        "\n".join(["https://example.org/" + "Ab1" * 19] * 30),
        "\n".join(["0123456789abcdef" * 4] * 19),
        "/usr/share/doc " * 1000,
        "時計" * 5000,
    ],
)
def test_other_long_words_stay(text: str) -> None:
    assert without_encoded_data(text) == (text, "")


def test_data_is_found_in_time_in_proportion_to_the_text() -> None:
    hostile = ("A1" * 40 + "\n") * 19 + ".\n"
    text = hostile * 500 + ("A1b" * 600 + " ") * 500
    assert without_encoded_data(text)[0] == text


# A file is what its content says, where that leaves no doubt and its name says nothing or something
# else.

MAIL = b"From: ann@example.org\nTo: bob@example.org\nMessage-ID: <1@x>\nSubject: Plans\n\ntext\n"
NOTEBOOK = b'{"cells": [{"cell_type": "markdown", "source": ["text"]}], "nbformat": 4}'


def _compound(stream: str) -> bytes:
    """The beginning of an OLE file, and the name of a stream."""
    return OLE + stream.encode("utf-16-le")


def _zipped(name: str, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "suffix"),
    [
        (b"%PDF-1.7\n1 0 obj", "scan.txt", ".pdf"),
        (b"%PDF-1.7\n1 0 obj", "scan", ".pdf"),
        (b"<html><table><tr><td>1</td></tr></table></html>", "report.xls", ".html"),
        (b"\xef\xbb\xbf<!DOCTYPE html><p>text", "page", ".html"),
        (b"name\tyear\nHarrison\t1735\n", "export.xls", ".csv"),
        (b"name;year\nHarrison;1735\n", "export.xlsx", ".csv"),
        (b"From ann Wed May  1 10:00:00 2024\n" + MAIL, "Inbox", ".mbox"),
        (MAIL, "1234", ".eml"),
        (NOTEBOOK, "notes", ".ipynb"),
        (_zipped("mimetype", b"application/epub+zip"), "book", ".epub"),
        (_zipped("word/document.xml"), "letter", ".docx"),
        (_zipped("word/document.xml"), "letter.xlsx", ".docx"),
        (_zipped("word/document.xml"), "letter.doc", ".docx"),
        (b"{\\rtf1 text}", "letter.doc", ".rtf"),
        (_compound("WordDocument"), "letter.doc", ".doc"),
        (_zipped("ppt/presentation.xml"), "talk.pot", ".pptx"),
        (_compound("PowerPoint Document"), "talk.pot", ".pot"),
        (_zipped("xl/workbook.xml"), "book.xlsb", ".xlsx"),
        (_zipped("xl/workbook.bin"), "book.xlsb", ".xlsb"),
        (_zipped("xl/workbook.xml"), "book.xlam", ".xlsx"),
        (_compound("Workbook"), "book.xla", ".xls"),
        (b"<html><table>", "book.xla", ".html"),
        (b'<?xml version="1.0"?><article/>', "paper", ".xml"),
        (b"<html>", "page.md", ".md"),
        (b"<html><table>", "table.csv", ".html"),
        (MAIL, "mail.txt", ".txt"),
        (b"MIME-Version: 1.0\n" + MAIL, "mail.txt", ".eml"),
        (MAIL, "mail.msg", ".eml"),
        (_compound("WordDocument"), "mail.msg", ".msg"),  # with a document in it
        (_zipped("word/document.xml"), "letter.pdf", ".docx"),
        (_zipped("xl/workbook.xml"), "table.csv", ".xlsx"),
        (_zipped("ppt/presentation.xml"), "talk.txt", ".pptx"),
        (_zipped("mimetype", b"application/vnd.oasis.opendocument.text"), "letter.html", ".odt"),
        (_zipped("mimetype", b"application/epub+zip"), "book.txt", ".epub"),
        (_zipped("word/document.xml"), "book.epub", ".epub"),
        (_compound("Workbook"), "table.csv", ".xls"),
        (b"{\\rtf1 text}", "letter.txt", ".rtf"),
        (_zipped("word/document.xml"), "letters.zip", ".zip"),
        (_zipped("letter.docx"), "letters.csv", ".csv"),
        (b"plain words\n", "README", "readme"),
        (b"plain words\n", "notes", "notes"),
        (b"\x7fELF\x02\x01\x01", "program", "program"),
        (b"\x00" * 100, "x.xls", ".xls"),
        (b'<?xml version="1.0"?><office:document/>', "a.fodt", ".fodt"),
    ],
)
def test_the_format_is_that_of_the_content(data: bytes, name: str, suffix: str) -> None:
    assert format_of(data, name) == suffix


@pytest.mark.parametrize("text", [b"", b"From: here to there\n", b"{}", b"words", b"From the sea\n\n10:00\n"])
def test_a_file_of_doubtful_content_may_have_any_format(text: bytes) -> None:
    assert sniffed_suffix(text) == ""


def test_an_exported_table_is_read_by_its_content() -> None:
    page = b"<html><table><tr><th>Name</th></tr><tr><td>Harrison</td></tr></table></html>"
    assert "Harrison" in parse(page, "a.xls").text
    assert "Harrison" in parse(b"name\tyear\nHarrison\t1735\n", "a.xls").text


@pytest.mark.usefixtures("in_linear_time")
def test_a_beginning_full_of_times_is_looked_through_once() -> None:
    line = b"From ann" + b"10:00" * 12_000  # of each time it tried the rest of the line, for minutes
    assert (sniffed_suffix(line), sniffed_suffix(line + b"\nSubject: Plans\n")) == ("", ".mbox")
    assert [*members(line, "a.mbox")] == []

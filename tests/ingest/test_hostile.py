"""Hostile files cost little and say why, each in a line of the report, and the others come in."""

from __future__ import annotations

import io
import json
import os
import socket
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from rag.config.settings import IngestSettings
from rag.errors import ParseError
from rag.ingest.parse.parsers import SUFFIXES
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget
from rag.ingest.split_text import Measure, within

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


# Hostile files, all in one run: each is a line of the report within the limits, and the others come
# in.

CONTROL = "# Control\n\nthe verge and the foliot\n"
CANARY = "never to be read"
LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
BOMB = f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a0 "ha">{LAUGHS}]><r>&a11;</r>'
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY x SYSTEM "file://{path}">]><r>&x;</r>'
SIZE = 70 << 20  # zeros, which take 70 kB; one part may have 64 MiB


def _package(parts: dict[str, bytes], zeros: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
        if zeros:
            with archive.open(zeros, "w") as part:
                for _ in range(SIZE >> 20):
                    part.write(bytes(1 << 20))
    return out.getvalue()


TYPES = b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def _write(folder: Path, secret: Path, port: int) -> None:
    files: dict[str, bytes] = {
        "a-control.md": CONTROL.encode(),
        "z-control.html": b"<h1>Control</h1><p>the verge and the foliot</p>",
        "elf.md": b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40,
        "nul.txt": b"a\0b" * 1000,
        "unbroken.txt": b"ab,cd.ef;" * 20_000,
        "deep.json": b"[" * 200_000 + b"]" * 200_000,
        "deep.html": b"<div>" * 200_000 + b"text",
        "laughs.xml": BOMB.encode(),
        "outside.xml": OUTSIDE.format(path=secret).encode(),
        "outside.svg": OUTSIDE.format(path=secret).encode(),
        "remote.html": (
            f"<img src='http://127.0.0.1:{port}/'><iframe src='http://127.0.0.1:{port}/'></iframe>"
            f"<link rel=stylesheet href='http://127.0.0.1:{port}/'><p>text</p>"
        ).encode(),
        "stars.md": b"*" * 50_000 + b"a" + b"[" * 50_000,
        "bomb.docx": _package({"[Content_Types].xml": TYPES}, "word/document.xml"),
        "bomb.xlsx": _package({"[Content_Types].xml": TYPES}, "xl/worksheets/sheet1.xml"),
        "bomb.odt": _package({"mimetype": b"application/vnd.oasis.opendocument.text"}, "content.xml"),
        "bomb.epub": _package({"mimetype": b"application/epub+zip"}, "OEBPS/content.opf"),
        "many.xlsx": _package({f"xl/{number}.xml": b"" for number in range(6_000)}),
        "numbers.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": ["[" * 90_000]}]}).encode(),
        "'quote\n\u202ename.md": CONTROL.encode(),
        "-rf.md": CONTROL.encode(),
        ("é" * 100 + ".md"): CONTROL.encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with (folder / "sparse.txt").open("wb") as file:
        file.truncate(20 << 30)
    os.mkfifo(folder / "pipe.md")
    (folder / "zero.md").symlink_to("/dev/zero")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "dangling.md").symlink_to("nowhere.md")
    (folder / "out.md").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    deep = folder
    for _ in range(120):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text(CONTROL)


async def test_hostile_files_end_as_a_line_each_and_the_others_come_in(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    (folder := tmp_path / "docs").mkdir()
    (secret := tmp_path / "secret.txt").write_text(CANARY)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket.md"))
        _write(folder, secret, listener.getsockname()[1])
        settings = IngestSettings(parse_timeout_seconds=10)
        report = await small_desk.ingested(tmp_path / "data", folder, settings=settings)
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    outcomes = {outcome.path.removeprefix(f"{folder}/"): outcome for outcome in report.outcomes}
    entries = [entry for entry in folder.iterdir() if entry.name != "d"]
    assert len(outcomes) == len(report.outcomes) == len(entries) + 1
    stored = {name for name, outcome in outcomes.items() if outcome.outcome == "added"}
    deep = "/".join([*"d" * 120, "deep.md"])
    assert stored > {"a-control.md", "z-control.html", "-rf.md", "é" * 100 + ".md", deep}
    failed = {name: outcome.cause for name, outcome in outcomes.items() if outcome.outcome == "skipped"}
    expected = {
        "elf.md": "unsupported",
        "nul.txt": "unsupported",
        "sparse.txt": "too large",
        "pipe.md": "unreadable",
        "socket.md": "unreadable",
        "bomb.docx": "too large",
    }
    assert {name: failed.get(name) for name in expected} == expected
    assert {outcomes[link].outcome for link in ("zero.md", "out.md")} == {"ignored"}
    for name in ("bomb.xlsx", "bomb.odt", "bomb.epub", "many.xlsx", "deep.json"):
        assert name in failed or f".{name.rpartition('.')[2]}" not in SUFFIXES
    text = b"".join(file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file())
    assert (b"foliot" in text, CANARY.encode() in text) == (True, False)


def test_cutting_a_text_ends_in_time() -> None:
    with pytest.raises(ParseError) as error:
        Measure("word " * 100, within(-1, lambda _: []))
    assert error.value.cause == "timeout"
    assert Measure("word", within(60, lambda _: [(0, 4)])).tokens(0, 4) == 1


# PDFs that claim what isn't there, or go round in circles, cost little and say why.

HELLO = b"BT /F 9 Tf 9 9 Td (Hello) Tj ET "
SECONDS = 20.0  # for each file; the slowest takes less than two


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, the first of which is its catalog."""
    data, starts = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        starts.append(b"%010d 00000 n \n" % len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    size, at = len(objects) + 1, len(data)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, b"".join(starts))
    return (
        data + table + b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, at)
    )


def stream(content: bytes, about: bytes = b"") -> bytes:
    packed = zlib.compress(content)
    return b"<<%s/Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (about, len(packed), packed)


CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def one_page(content: bytes, *more: bytes, count: int = 1, trailer: bytes = b"") -> bytes:
    """A page with this content, which may use font F and the first further object as picture X."""
    resources = b"/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R%s>>" % resources
    pages = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % count
    return pdf(CATALOG, pages, page, stream(content), FONT, *more, trailer=trailer)


IMAGE = b"/Type/XObject/Subtype/Image/Width 60000/Height 60000/BitsPerComponent 8/ColorSpace/DeviceRGB"
READ = {
    "pages that aren't there": one_page(HELLO, count=100_000_000),
    "a table that comes before itself": one_page(HELLO, trailer=b"/Prev 9"),
    "a huge picture beside text": one_page(HELLO + b"/X Do", stream(b"", IMAGE)),
}
REFUSED = {
    "pages in a circle": (pdf(CATALOG, b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 1000>>"), "damaged"),
    "a huge picture": (one_page(b"/X Do", stream(b"", IMAGE)), "only images"),
    "half a file": (one_page(HELLO)[:200], "damaged"),
}


@pytest.mark.parametrize("data", READ.values(), ids=list(READ))
async def test_what_a_pdf_claims_beside_its_text_does_no_harm(data: bytes) -> None:
    assert (await parse_safely(data, "a.pdf", budget=Budget(SECONDS))).text == "Hello"


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=list(REFUSED))
async def test_a_hostile_pdf_is_refused_and_the_next_file_is_read(data: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        await parse_safely(data, "a.pdf", budget=Budget(SECONDS))
    assert (await parse_safely(one_page(HELLO), "b.pdf", budget=Budget(SECONDS))).text == "Hello"


def chain(count: int) -> Sequence[bytes]:
    """Entries of an outline, each of which is followed by the first."""
    return [b"<</Title(Hello)/Dest[3 0 R/Fit]/Parent 6 0 R/Next 7 0 R/First 6 0 R>>"] * count


async def test_an_outline_in_a_circle_ends() -> None:
    data = one_page(HELLO, b"<</First 7 0 R/Last 7 0 R>>", *chain(3))
    data = data.replace(CATALOG, b"<</Type/Catalog/Pages 2 0 R/Outlines 6 0 R>>")
    document = await parse_safely(data, "a.pdf", budget=Budget(SECONDS))
    assert [block.title for block in document.blocks] == ["Hello"]

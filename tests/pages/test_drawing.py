"""A page is drawn by a process that can do nothing else, and nothing of its answer is believed."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from rag.confined import page_drawing
from rag.confined.page_drawing import Picture, checked_picture, picture
from rag.errors import ParseError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGE = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]%s/Contents %d 0 R/Resources<</Font<</F 6 0 R>>>>>>"
FIRST = b"BT /F 20 Tf 50 700 Td (The pendulum clock was invented by Huygens) Tj ET"
SECOND = b"1 0 0 rg 100 100 400 600 re f BT /F 20 Tf 50 50 Td (Red squares are not about time) Tj ET"
PASSAGE = "The pendulum clock was invented by Huygens"


def pdf(first: bytes = FIRST, second: bytes = SECOND, about: bytes = b"") -> bytes:
    """Two pages; pdfium finds the objects by itself, without a table."""
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>",
        PAGE % (about, 5),
        PAGE % (about, 7),
        b"<</Length %d>>stream\n%s\nendstream" % (len(first), first),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(second), second),
    )
    written = b"".join(b"%d 0 obj\n%s\nendobj\n" % (at, one) for at, one in enumerate(objects, 1))
    return b"%PDF-1.7\n" + written + b"trailer\n<</Size 8/Root 1 0 R>>\n%%EOF\n"


def pixels(drawn: Picture) -> tuple[int, list[bytes]]:
    """The channels and the lines of a PNG, read by hand."""
    assert drawn.png.startswith(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    width, height, depth, colour, *rest = struct.unpack("!IIBBBBB", drawn.png[16:29])
    assert (width, height, depth, rest) == (drawn.width, drawn.height, 8, [0, 0, 0])
    (size,) = struct.unpack("!I", drawn.png[33:37])
    lines = zlib.decompress(drawn.png[41 : 41 + size])
    channels = {0: 1, 2: 3}[colour]
    length = 1 + width * channels
    return channels, [lines[at + 1 : at + length] for at in range(0, len(lines), length)]


def ink(drawn: Picture) -> tuple[int, int]:
    """The dark pixels within the marks, and those outside of them."""
    channels, lines = pixels(drawn)
    inside = outside = 0
    for y, line in enumerate(lines):
        for x in (at // channels for at in range(0, len(line), channels) if line[at] < 128):
            across, down = x / drawn.width, y / drawn.height
            marked = any(
                left <= across <= left + width and top <= down <= top + height
                for left, top, width, height in drawn.marks
            )
            inside, outside = inside + marked, outside + (not marked)
    return inside, outside


async def test_a_page_is_a_picture_with_the_passage_marked() -> None:
    drawn = await picture(pdf(), 1, PASSAGE)
    assert drawn.pages == 2
    assert len(drawn.marks) == 1
    inside, outside = ink(drawn)
    assert inside > 1_000
    assert outside < inside / 50  # the edges of letters


@pytest.mark.parametrize("turned", [b"/Rotate 90", b"/Rotate 180/CropBox[20 300 580 780]"])
async def test_marks_are_where_the_words_are_on_a_turned_or_cropped_page(turned: bytes) -> None:
    drawn = await picture(pdf(about=turned), 1, PASSAGE)
    inside, outside = ink(drawn)
    assert inside > 1_000
    assert outside < inside / 50


async def test_a_page_without_the_passage_has_no_marks_and_keeps_its_colours() -> None:
    drawn = await picture(pdf(), 2, PASSAGE)
    channels, lines = pixels(drawn)
    assert drawn.marks == ()
    assert channels == 3
    middle = lines[drawn.height // 2]
    assert middle[3 * (drawn.width // 2) :][:3] == b"\xff\0\0"


async def test_of_several_pages_the_one_is_drawn_that_has_most_of_the_passage() -> None:
    passage = "by Huygens. Red squares are not about time"
    assert [(await picture(pdf(), 1, passage, ahead=ahead)).ahead for ahead in (0, 1, 5)] == [0, 1, 1]
    assert (await picture(pdf(), 1, PASSAGE, ahead=5)).ahead == 0
    assert (await picture(pdf(), 1, "neither here nor there", ahead=5)).ahead == 0
    assert (await picture(pdf(), 2, PASSAGE, ahead=5)).ahead == 0
    twice = pdf(second=FIRST + SECOND)  # what both pages have counts for the first
    assert (await picture(twice, 1, PASSAGE, ahead=5)).ahead == 0


@pytest.mark.parametrize("number", [0, 3, 4_000_000_000])
async def test_a_page_that_is_not_there_is_none(number: int) -> None:
    with pytest.raises(ParseError, match="can't be drawn"):
        await picture(pdf(), number, PASSAGE)
    assert await picture(pdf(), 1, PASSAGE)


HOSTILE = {
    "no pdf": b"hello",
    "nothing": b"",
    "half of it": pdf()[:150],
    "an endless page": pdf(about=b"/MediaBox[0 0 1e30 1e30]"),
    "a page without a size": pdf(about=b"/MediaBox[0 0 0 0]/CropBox[0 0 0 0]"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
async def test_what_is_no_page_is_refused_or_drawn_within_the_limits(data: bytes) -> None:
    try:
        drawn = await picture(data, 1, PASSAGE)
    except ParseError as error:
        assert str(error) == page_drawing.FAILED  # noqa: PT017 either is fine
    else:
        assert max(drawn.width, drawn.height) <= page_drawing.MOST_PIXELS
        assert len(drawn.png) <= 150_000


async def test_a_page_that_is_hard_to_pack_is_coarse_or_small() -> None:
    noise = b"".join(
        b"%.2f %.2f %.2f rg %d %d 4 4 re f " % (x * 37 % 97 / 97, y * 61 % 89 / 89, x * y % 83 / 83, x, y)
        for x in range(0, 600, 4)
        for y in range(0, 800, 4)
    )
    drawn = await picture(pdf(noise), 1, PASSAGE)
    assert len(drawn.png) <= 150_000


def answer(packed: bytes, **facts: Any) -> bytes:  # noqa: ANN401 any JSON
    told = json.dumps({"pages": 1, "width": 2, "height": 2, "channels": 1, "marks": []} | facts).encode()
    return struct.pack("!I", len(told)) + told + packed


GOOD = zlib.compress(b"\0ab\0cd")
FORGED: Mapping[str, bytes] = {
    "nothing": b"",
    "a length alone": struct.pack("!I", 1 << 31),
    "too few pixels": answer(zlib.compress(b"\0ab")),
    "too many pixels": answer(zlib.compress(b"\0ab\0cd\0ef")),
    "a bomb": answer(zlib.compress(bytes(5_000_000))),
    "another filter": answer(zlib.compress(b"\0ab\4cd")),
    "no compression": answer(b"\0ab\0cd"),
    "half of it": answer(GOOD[:-5]),
    "something behind": answer(GOOD + b"<script>"),
    "a huge picture": answer(GOOD, width=100_000),
    "another kind": answer(GOOD, channels=4),
    "a mark outside": answer(GOOD, marks=[[0, 0, 2, 1]]),
    "a mark that is none": answer(GOOD, marks=[["<b>", 0, 0, 0]]),
    "marks without end": answer(GOOD, marks=[[0, 0, 0, 0]] * 201),
    "a page far ahead": answer(GOOD, ahead=6),
    "more than is asked for": answer(GOOD, html="<script>"),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=list(FORGED))
def test_an_answer_that_is_not_what_it_says_is_refused(forged: bytes) -> None:
    with pytest.raises(ParseError):
        checked_picture(forged)


def test_an_answer_that_is_what_it_says_is_a_picture() -> None:
    drawn = checked_picture(answer(GOOD, marks=[[0.1, 0.2, 0.3, 0.4]]))
    assert pixels(drawn) == (1, [b"ab", b"cd"])
    assert drawn.marks == ((0.1, 0.2, 0.3, 0.4),)


EXPLOITED = """
import sys; sys.path[:] = sys.argv[3:]
import os, socket, zlib
from rag.confined import confinement
from rag.confined import page_process as child
def outcomes():
    for attempt in (
        lambda: open("/etc/passwd"), lambda: os.listdir("/etc"), lambda: os.pipe(), lambda: socket.socket(),
    ):
        try:
            attempt()
        except OSError:
            continue
        yield attempt
def exploited(data, number, ahead, passage):
    did = len(list(outcomes()))
    facts = {"pages": did, "width": 1, "height": 1, "channels": 1, "marks": []}
    return facts, zlib.compress(bytes(2))
child._answer = exploited
"""
"""A process that a page has taken over; it tells as its number of pages how much it could do."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only descriptors are limited")
@pytest.mark.parametrize(("held", "did"), [("", 0), ("child.confine = lambda memory: None", 4)])
async def test_a_process_that_is_taken_over_can_do_nothing(
    monkeypatch: pytest.MonkeyPatch, held: str, did: int
) -> None:
    """Without what confines it, it can do all of it: that is the control."""
    monkeypatch.setattr(page_drawing, "PROGRAM", f"{EXPLOITED}\n{held}\nchild.main()")
    drawn = await picture(pdf(), 1, PASSAGE)
    assert drawn.pages == did


@pytest.mark.parametrize(
    "last_words",
    ["raise SystemExit(1)", "print('hello')", "import os; os.abort()", "while True: print('x' * 99)"],
)
async def test_a_process_that_ends_otherwise_is_no_picture(
    monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    monkeypatch.setattr(page_drawing, "PROGRAM", last_words)
    with pytest.raises(ParseError):
        await picture(pdf(), 1, PASSAGE)


async def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_drawing, "PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(page_drawing, "SECONDS", 0.2)
    with pytest.raises(ParseError, match="can't be drawn"):
        await picture(pdf(), 1, PASSAGE)


def test_whoever_asks_for_a_picture_never_has_pdfium_in_its_own_process() -> None:
    program = "import sys, rag.search.page_picture; print([name for name in sys.modules if 'pdfium' in name])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


decoders = pytest.mark.skipif(not find_spec("PIL"), reason="refdesk[ocr] is not installed")


def picture_file(*images: Any, kind: str = "PNG", **options: object) -> bytes:  # noqa: ANN401 of the extra
    """A file of these pictures."""
    file = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if images[1:] else {}
    images[0].save(file, kind, **more, **options)
    return file.getvalue()


@decoders
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP"])
async def test_a_picture_file_is_drawn_in_its_colours(kind: str) -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    red = picture_file(Image.new("RGB", (60, 40), (255, 0, 0)), kind=kind)
    drawn = await picture(red, 1, PASSAGE, "pictures")
    channels, lines = pixels(drawn)
    assert (drawn.width, drawn.height, drawn.pages, drawn.marks, channels) == (60, 40, 1, (), 3)
    reds, greens = lines[20][90], lines[20][91]
    assert reds > 250
    assert greens < 10
    with pytest.raises(ParseError, match="can't be drawn"):
        await picture(red, 2, PASSAGE, "pictures")


@decoders
async def test_the_pictures_of_a_file_are_its_pages() -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    both = picture_file(*(Image.new("L", (40, 30), grey) for grey in (0, 255)), kind="TIFF")
    drawn = [await picture(both, number, PASSAGE, "pictures") for number in (1, 2)]
    assert [one.pages for one in drawn] == [2, 2]
    assert [pixels(one)[1][9][9] for one in drawn] == [0, 255]


@decoders
async def test_a_picture_is_turned_as_it_states_and_stands_on_white() -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    image = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 60, 5))  # its upper edge
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right
    drawn = await picture(picture_file(image, exif=exif), 1, PASSAGE, "pictures")
    _, lines = pixels(drawn)
    assert (drawn.width, drawn.height) == (40, 60)
    assert (lines[30][2], lines[30][38]) == (255, 0)


@decoders
async def test_a_scan_is_scaled_until_it_is_small_enough() -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    scan = Image.effect_noise((2480, 3508), 90)
    drawn = await picture(picture_file(scan, kind="JPEG"), 1, PASSAGE, "pictures")
    assert len(drawn.png) <= 150_000
    assert max(drawn.width, drawn.height) > 400


@decoders
async def test_a_scan_of_coloured_paper_is_grey_and_its_words_are_dark() -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    grain = Image.effect_noise((1654, 2339), 30)
    paper = Image.merge("RGB", (grain.point(lambda light: light + 90), grain.rotate(180), grain.rotate(0)))
    paper.paste((20, 20, 60), (0, 0, 1654, 300))
    drawn = await picture(picture_file(paper, kind="JPEG"), 1, PASSAGE, "pictures")
    channels, lines = pixels(drawn)
    assert channels == 1
    assert drawn.width > 600
    assert max(lines[drawn.height // 20]) < min(lines[drawn.height // 2])


@decoders
async def test_what_is_no_picture_is_refused_and_a_huge_one_too() -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    good = picture_file(Image.new("1", (4_000, 4_000)))
    assert await picture(good, 1, PASSAGE, "pictures")
    huge = picture_file(Image.new("1", (4_000, 4_001)))
    other = picture_file(Image.new("P", (40, 40)), kind="GIF")
    for data in (b"", b"hello", good[:200], pdf(), huge, other):
        with pytest.raises(ParseError, match="can't be drawn"):
            await picture(data, 1, PASSAGE, "pictures")
    with pytest.raises(ParseError, match="can't be drawn"):
        await picture(good, 1, PASSAGE, "pdf")


@decoders
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only descriptors are limited")
@pytest.mark.parametrize(("held", "did"), [("", 0), ("child.confine = lambda memory: None", 4)])
async def test_a_process_that_a_picture_takes_over_can_do_nothing(
    monkeypatch: pytest.MonkeyPatch, held: str, did: int
) -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    taken_over = (
        f"{EXPLOITED}\nchild._answer_of_pictures = lambda data, number: exploited(data, number, 0, '')"
    )
    monkeypatch.setattr(page_drawing, "PROGRAM", f"{taken_over}\n{held}\nchild.main()")
    drawn = await picture(picture_file(Image.new("1", (9, 9))), 1, PASSAGE, "pictures")
    assert drawn.pages == did

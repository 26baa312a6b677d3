"""The process that draws one page for `rag.confined.page_drawing`: request on stdin, answer on stdout.

A request is a header (`REQUEST`: the number of the page, how many pages ahead it may be, and the length of
the passage), the passage and the file: a PDF, or pictures, one per page. An answer is a length (`LENGTH`),
JSON and, if the page was drawn, its pixels: the compressed lines of a PNG. On a PDF page, it has the boxes of
the words of the passage.

It uses the raw bindings (`pypdfium2_raw`): the helpers around them take longer to import than a page to draw.
"""

from __future__ import annotations

import ctypes
import io
import json
import math
import re
import struct
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeAlias

import pypdfium2_raw as pdfium

from rag.confined.confinement import allow_cpu, confine

REQUEST = struct.Struct("!III")
LENGTH = struct.Struct("!I")
PICTURES = "pictures"  # the argument of the process for a file of pictures
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP")  # as for OCR
MOST_PICTURE_PIXELS = 16_000_000  # as for OCR
CPU_SECONDS = 5  # a page takes some 30 ms; a hostile one as long as it may
MOST_BYTES = 149_000  # of compressed pixels; a PNG adds less than 100
LEVEL = 4  # of compression: 6 takes nearly twice the time, and saves 8 % of the bytes
AREA = 1_150_000  # pixels: A4 at 110 dots an inch
LONGEST = 1_600  # pixels of a side
WHITE = 0xFFFFFFFF
GREY, COLOURED = 1, 3  # channels
ATTEMPTS = (
    *((1.0, 16, COLOURED), (1.0, 8, COLOURED), (0.75, 8, COLOURED), (0.5, 8, COLOURED)),
    *((0.75, 8, GREY), (0.5, 8, GREY), (0.25, 4, COLOURED), (0.1, 4, COLOURED)),
)
"""Attempts until a page is small enough: shares of the area, levels of each colour, and channels.

Pages of text fit at once. A scan of coloured paper fits in grey, which is easier to read than a smaller one.
"""

SHINGLE = 3  # consecutive words that a passage and a page must share
GAP = 8  # words between two shared runs that belong to the passage, too: hyphenated ones, or cells
MOST_CHARACTERS = 20_000  # of a page that are looked at
MOST_MARKS = 200
HYPHEN = "\ufffe"  # pdfium's character for a hyphen at the end of a line
_WORD = re.compile(rf"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:[{HYPHEN}\u00ad]\s*[^\W_]+)*")
"""A word; of a script without spaces it is one character."""
_CUT = re.compile(rf"[{HYPHEN}\u00ad\s]+")


Pointer: TypeAlias = Any
"""A pointer of the bindings, which have no types."""
Box: TypeAlias = "tuple[int, int, int, int]"
"""Left, top, right and bottom on the page as it is shown, in ten-thousandths of it."""
_FINE = 10_000


class PagePixels(NamedTuple):
    """The lines of pixels, uncompressed and without what PNG adds to each."""

    width: int
    height: int
    channels: int
    pixels: bytes


def main() -> None:
    """Answer one request."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    of_pictures = sys.argv[1] == PICTURES
    if of_pictures:
        _import_decoders()
    confine(int(sys.argv[2]))
    allow_cpu(CPU_SECONDS)
    number, ahead, size = REQUEST.unpack(requests.read(REQUEST.size))
    passage = requests.read(size).decode()
    data = requests.read()
    facts, pixels = (
        _answer_of_pictures(data, number) if of_pictures else _answer(data, number, ahead, passage)
    )
    header = json.dumps(facts).encode()
    answers.write(LENGTH.pack(len(header)) + header + pixels)
    answers.flush()


def _answer(data: bytes, number: int, ahead: int, passage: str) -> tuple[dict[str, Any], bytes]:
    pdfium.FPDF_InitLibrary()
    document = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    pages = pdfium.FPDF_GetPageCount(document) if document else 0
    indexes = range(number - 1, min(number + ahead, pages)) if number else range(0)
    if not indexes:
        return {"pages": pages}, b""
    index = _page_with_most(document, indexes, passage) if ahead else number - 1
    page = _open_page(document, index)
    width, height = (
        (pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)) if page else (0.0, 0.0)
    )
    if not (math.isfinite(width * height) and min(width, height) > 1):
        return {"pages": pages}, b""
    facts, packed = _within_bytes(lambda area: _draw(page, width, height, area))
    if packed:
        facts["marks"] = line_boxes(_marks(page, passage))[:MOST_MARKS]
    return {"pages": pages, "ahead": index - number + 1, **facts}, packed


def _page_with_most(document: Pointer, indexes: Iterable[int], passage: str) -> int:
    """The first page with the longest run of the passage's words."""
    passage_words = [word for word, _, _ in words_of(passage)]
    longest = {}
    for index in indexes:
        page = pdfium.FPDF_LoadPage(document, index)
        words = [word for word, _, _ in words_of(_text_of(page and pdfium.FPDFText_LoadPage(page)))]
        longest[index] = SequenceMatcher(None, passage_words, words, autojunk=False).find_longest_match().size
    return max(longest, key=lambda index: longest[index])


def _within_bytes(draw: Callable[[float], PagePixels]) -> tuple[dict[str, Any], bytes]:
    """The first attempt that is small enough, with its size; nothing if none is."""
    for share, levels, channels in ATTEMPTS:
        drawn = draw(AREA * share)
        if channels < drawn.channels:  # green is nearest to the grey that eyes see
            drawn = PagePixels(drawn.width, drawn.height, GREY, drawn.pixels[1::COLOURED])
        packed = packed_lines(drawn, levels)
        if len(packed) <= MOST_BYTES:
            return {"width": drawn.width, "height": drawn.height, "channels": drawn.channels}, packed
    return {}, b""


def _import_decoders() -> None:
    """Import what decodes pictures, because no file can be opened later."""
    from PIL import Image, ImageOps, TiffImagePlugin, WebPImagePlugin  # noqa: F401, PLC0415 of the extra ocr

    Image.preinit()  # the others of `FORMATS`
    Image.MAX_IMAGE_PIXELS = None  # ours is lower


def _answer_of_pictures(data: bytes, number: int) -> tuple[dict[str, Any], bytes]:
    from PIL import Image  # noqa: PLC0415 imported before the process was confined

    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        pages = getattr(image, "n_frames", 1)
        if not 0 < number <= pages:
            return {"pages": pages}, b""
        image.seek(number - 1)
        if image.width * image.height > MOST_PICTURE_PIXELS:
            return {"pages": pages}, b""
        largest = _resized(_upright(image), AREA)  # a scan has ten times the pixels of any attempt

    def draw(area: float) -> PagePixels:
        smaller = _resized(largest, area)
        return _with_channels(smaller.width, smaller.height, smaller.tobytes())

    facts, packed = _within_bytes(draw)
    return {"pages": pages, **facts}, packed


def _upright(image: Any) -> Any:  # noqa: ANN401 of the extra
    """The picture as it is shown: turned as it states, on white, in colours."""
    from PIL import Image, ImageOps  # noqa: PLC0415 imported before the process was confined

    upright = ImageOps.exif_transpose(image)
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    white = Image.new("RGBA", upright.size, "white")
    white.alpha_composite(upright.convert("RGBA"))
    return white.convert("RGB")


def _resized(image: Any, area: float) -> Any:  # noqa: ANN401 the same
    """The picture in at most `area` pixels."""
    scale = min(_scale(image.width, image.height, area), 1.0)
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))


def _open_page(document: Pointer, index: int) -> Pointer:
    """A page with the values of its fields and its notes, as they were parsed."""
    page = pdfium.FPDF_LoadPage(document, index)
    if not page or pdfium.FPDFPage_GetAnnotCount(page) < 1:
        return page
    if pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return page
    pdfium.FPDF_ClosePage(page)
    return pdfium.FPDF_LoadPage(document, index)


def _draw(page: Pointer, wide: float, high: float, area: float) -> PagePixels:
    """The page drawn in about `area` pixels."""
    scale = _scale(wide, high, area)
    width, height = max(1, round(wide * scale)), max(1, round(high * scale))
    bitmap = pdfium.FPDFBitmap_CreateEx(width, height, pdfium.FPDFBitmap_BGR, None, 0)
    pdfium.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, WHITE)
    flags = pdfium.FPDF_REVERSE_BYTE_ORDER | pdfium.FPDF_ANNOT  # red first, as in a PNG
    pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, flags)
    stride = pdfium.FPDFBitmap_GetStride(bitmap)
    padded = ctypes.string_at(pdfium.FPDFBitmap_GetBuffer(bitmap), stride * height)
    pdfium.FPDFBitmap_Destroy(bitmap)
    line = 3 * width
    return _with_channels(width, height, padded if stride == line else b"".join(_lines(padded, stride, line)))


def _scale(wide: float, high: float, area: float) -> float:
    """The factor that scales a page to this area."""
    return min(math.sqrt(area / (wide * high)), LONGEST / max(wide, high))


def _with_channels(width: int, height: int, pixels: bytes) -> PagePixels:
    """Pixels in red, green and blue; in one channel if they have no colours."""
    red = pixels[::3]
    if red == pixels[1::3] == pixels[2::3]:
        return PagePixels(width, height, 1, red)
    return PagePixels(width, height, 3, pixels)


def _lines(pixels: bytes, stride: int, length: int) -> Iterator[bytes]:
    return (pixels[at : at + length] for at in range(0, len(pixels), stride))


def packed_lines(drawn: PagePixels, levels: int) -> bytes:
    """PNG scanlines (filter 0), quantized to `levels` per channel, compressed."""
    step = 255 / (levels - 1)
    coarse = drawn.pixels.translate(bytes(round(round(value / step) * step) for value in range(256)))
    length = drawn.width * drawn.channels
    return zlib.compress(b"\0" + b"\0".join(_lines(coarse, length, length)), LEVEL)


def _marks(page: Pointer, passage: str) -> Iterator[Box]:
    passage_words = [word for word, _, _ in words_of(passage)]
    text = pdfium.FPDFText_LoadPage(page)
    for start, end in shared_places(passage_words, words_of(_text_of(text))):
        for at in range(pdfium.FPDFText_CountRects(text, start, end - start)):
            box = _box(page, text, at)
            if box is not None:
                yield box


def _text_of(text: Pointer) -> str:
    """The characters of a page's text; none if it has no text."""
    count = min(pdfium.FPDFText_CountChars(text), MOST_CHARACTERS) if text else 0
    return "".join(chr(pdfium.FPDFText_GetUnicode(text, at) & 0xFFFF) for at in range(count))


def line_boxes(boxes: Iterable[Box]) -> list[list[float]]:
    """The boxes of a line as one: left, top, width and height, as shares of the page."""
    lines: list[Box] = []
    for x0, y0, x1, y1 in boxes:
        if lines and _is_beside(lines[-1], (x0, y0, x1, y1)):
            left, top, right, bottom = lines[-1]
            lines[-1] = min(left, x0), min(top, y0), max(right, x1), max(bottom, y1)
        else:
            lines.append((x0, y0, x1, y1))
    return [
        [left / _FINE, top / _FINE, (right - left) / _FINE, (bottom - top) / _FINE]
        for left, top, right, bottom in lines
    ]


def _is_beside(first: Box, second: Box) -> bool:
    """Whether `second` continues the line of `first`, at most a space away."""
    _, top, right, bottom = first
    left, next_top, _, next_bottom = second
    height = max(bottom - top, next_bottom - next_top)
    is_level = top < (next_top + next_bottom) / 2 < bottom or next_top < (top + bottom) / 2 < next_bottom
    return is_level and -height < left - right < height


def _box(page: Pointer, text: Pointer, at: int) -> Box | None:
    """A part of a line of marked words; None if none of it is on the page."""
    edges = [ctypes.c_double() for _ in range(4)]
    pdfium.FPDFText_GetRect(text, at, *(ctypes.byref(edge) for edge in edges))
    left, top, right, bottom = (edge.value for edge in edges)
    corners = [_on_page(page, left, top), _on_page(page, right, bottom)]
    (x0, x1), (y0, y1) = sorted(corner[0] for corner in corners), sorted(corner[1] for corner in corners)
    if x0 >= x1 or y0 >= y1:
        return None
    return x0, y0, x1, y1


def _on_page(page: Pointer, x: float, y: float) -> tuple[int, int]:
    """A point of the page as it is shown, turned and cropped, in ten-thousandths of it."""
    across, down = ctypes.c_int(), ctypes.c_int()
    out = ctypes.byref(across), ctypes.byref(down)
    pdfium.FPDF_PageToDevice(page, 0, 0, _FINE, _FINE, 0, x, y, *out)
    return min(max(across.value, 0), _FINE), min(max(down.value, 0), _FINE)


def words_of(text: str) -> list[tuple[str, int, int]]:
    """The words of a text as they are compared, each with its place: "Two" -> ("two", 0, 3)."""
    return [
        (unicodedata.normalize("NFKC", _CUT.sub("", match[0])).casefold(), match.start(), match.end())
        for match in _WORD.finditer(text)
    ]


def shared_places(passage: Sequence[str], words: Sequence[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """The spans of characters on a page with consecutive words of a passage."""
    length = min(SHINGLE, len(passage))
    if not length:
        return []
    shared = {tuple(passage[at : at + length]) for at in range(len(passage) - length + 1)}
    firsts = [
        at
        for at in range(len(words) - length + 1)
        if tuple(word for word, _, _ in words[at : at + length]) in shared
    ]
    return [(words[first][1], words[last][2]) for first, last in _runs(firsts, length)]


def _runs(firsts: Iterable[int], length: int) -> list[tuple[int, int]]:
    """The first and last words of runs: [1, 2, 3, 30] with runs of 3 words -> [(1, 5), (30, 32)]."""
    runs: list[tuple[int, int]] = []
    for at in firsts:
        if runs and at - runs[-1][1] <= GAP:
            runs[-1] = runs[-1][0], at + length - 1
        else:
            runs.append((at, at + length - 1))
    return runs

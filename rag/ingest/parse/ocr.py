"""OCR, an extra (`refdesk[ocr]`): the words in pages and pictures, by rapidocr and the models in its wheel.

It runs in the confined process only: `prepare` loads the models before the process loses access to files.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import PurePath
from statistics import median
from typing import Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.pdf.pdf_document import parts_on, text_of_pages
from rag.ingest.parse.pdf.pdf_words import Line, PageLines
from rag.ingest.parse.pdf.text_page import Box

_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
SUFFIXES = tuple(_TYPES)
LIBRARIES = ("pypdfium2", "pypdf.*", "numpy", "PIL.ImageOps")

DOTS = 200  # per inch, that a page is drawn with
MAX_PIXELS = 16_000_000  # of a picture: an A3 page has 7.7 million
MAX_PAGES = 2_000  # of a picture file


_INCH = 72.0  # points
_FOUND_AT = 960  # pixels that the longer side is reduced to when lines are looked for: memory grows with it
_LETTERS = 0.75  # share of the height of a line that is the size of its letters
_SURE = 0.8  # the average certainty below which a page may be turned
_SAME = 1.35  # times another height: up to here letters are of one size
_UPRIGHT = 1.5  # times its width: how high the box of a line is that runs across
_engines: list[Any] = []


def prepare() -> None:
    """Load the models, and what Pillow and rapidocr import late, with a first picture."""
    import cv2  # noqa: PLC0415 of the extra
    import numpy as np  # noqa: PLC0415 in the child only
    from PIL import Image  # noqa: PLC0415 of the extra
    from rapidocr import RapidOCR  # noqa: PLC0415 of the extra

    Image.init()
    cv2.setNumThreads(1)  # no threads can be started later
    engine = RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": _FOUND_AT,
            "Rec.rec_batch_num": 1,
        }
    )
    words = np.full((100, 400, 3), 255, dtype=np.uint8)
    cv2.putText(words, "refdesk reads", (30, 60), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
    engine(words)  # a picture without words would leave the second model out
    _engines[:] = [engine]


class OcrReader:
    """Reads pictures of pages within a time limit."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def page(self, page: Any) -> PageLines | None:  # noqa: ANN401 of pypdfium2, which has no types
        """The words of a PDF page; None if time or memory is short."""
        if time.monotonic() > self._until:
            return None
        width, height = page.get_size()
        scale = min(DOTS / _INCH, (MAX_PIXELS / max(width * height, 1.0)) ** 0.5)
        try:
            bitmap = page.render(scale=scale, may_draw_forms=False)
            return _sheet(bitmap.to_numpy()[:, :, :3], 1 / scale)
        except (MemoryError, RuntimeError):  # onnxruntime raises the latter when memory is short
            return None

    def picture(self, pixels: Any) -> PageLines | None:  # noqa: ANN401 an array of height, width, 3
        """The words of a picture, in its own pixels; None if time is short."""
        return _sheet(pixels, 1.0) if time.monotonic() <= self._until else None


def _sheet(pixels: Any, scale: float) -> PageLines:  # noqa: ANN401 see above
    """The lines of a picture, read in its best rotation. `scale` is points per pixel."""
    best = _recognized_lines(pixels)
    if best and (_is_sideways(best) or _certainty(best) < _SURE):
        import numpy as np  # noqa: PLC0415 see above

        turned = [_recognized_lines(np.ascontiguousarray(np.rot90(pixels, quarter))) for quarter in (1, 2, 3)]
        best = max([best, *turned], key=_amount_read)
    return PageLines(
        _with_usual_heights(
            [_line(order, *recognized_line, scale) for order, recognized_line in enumerate(best)]
        ),
        [],
    )


def _with_usual_heights(lines: list[Line]) -> list[Line]:
    """The lines with the usual height unless theirs clearly differs: boxes fit their letters tightly."""
    usual = median(line.box.height for line in lines) if lines else 0.0
    return [
        line._replace(
            box=line.box._replace(top=line.box.middle - usual / 2, bottom=line.box.middle + usual / 2),
            size=round(usual * _LETTERS),
        )
        if usual / _SAME < line.box.height < usual * _SAME
        else line
        for line in lines
    ]


def _recognized_lines(pixels: Any) -> list[tuple[Any, str, float]]:  # noqa: ANN401 see above
    """The corners, words and certainty of each line of a picture."""
    result = _engines[0](pixels)
    if result.txts is None or result.boxes is None:
        return []
    return list(zip(result.boxes.tolist(), result.txts, map(float, result.scores), strict=True))


def _amount_read(lines: list[tuple[Any, str, float]]) -> float:
    return 0.0 if _is_sideways(lines) else sum(len(text) * certainty for _, text, certainty in lines)


def _certainty(lines: list[tuple[Any, str, float]]) -> float:
    length = sum(len(text) for _, text, _ in lines)
    return sum(len(text) * certainty for _, text, certainty in lines) / max(length, 1)


def _is_sideways(lines: list[tuple[Any, str, float]]) -> bool:
    """Whether most lines are higher than wide."""
    boxes = [_box(corners, 1.0) for corners, _, _ in lines]
    return 2 * sum(box.height > _UPRIGHT * box.width for box in boxes) > len(boxes)


def _line(order: int, corners: Any, text: str, _certainty: float, scale: float) -> Line:  # noqa: ANN401 see above
    box = _box(corners, scale)
    return Line(text, box, round(box.height * _LETTERS), order=order)


def _box(corners: Any, scale: float) -> Box:  # noqa: ANN401 see above
    across, down = ([corner[axis] * scale for corner in corners] for axis in (0, 1))
    return Box(min(across), min(down), max(across), max(down))


def pictures(data: bytes) -> Iterator[Any]:
    """The pictures in a file as BGR arrays (height, width, 3), rotated as its EXIF data states.

    Raises:
        ParseError: the file is damaged, or a picture is too large.
    """
    import numpy as np  # noqa: PLC0415 see above
    from PIL import Image, ImageOps  # noqa: PLC0415 of the extra

    Image.MAX_IMAGE_PIXELS = None  # our limit is lower, and has a clear message
    try:
        with Image.open(io.BytesIO(data)) as image:
            for number in range(min(getattr(image, "n_frames", 1), MAX_PAGES)):
                image.seek(number)
                _check_size(image.width, image.height)
                yield np.asarray(ImageOps.exif_transpose(image).convert("RGB"))[:, :, ::-1]
    except ParseError:
        raise
    except Exception as error:  # Pillow raises all kinds of errors on damaged files
        raise ParseError("the picture is damaged") from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ParseError(
            f"the picture has {width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read", "too large"
        )


def parse(data: bytes, name: str, reader: OcrReader) -> Document:
    """The document of a file of pictures.

    Raises:
        ParseError: the file is damaged, a picture is too large, or OCR finds no words.
    """
    sheets = [reader.picture(pixels) for pixels in pictures(data)]
    text, blocks, starts = text_of_pages(parts_on([sheet or PageLines([], []) for sheet in sheets]))
    if not blocks:
        raise ParseError("the picture shows no words that OCR finds", "no text")
    unread = sum(sheet is None for sheet in sheets)
    return Document(
        text=text,
        title=name,
        mime_type=_TYPES[PurePath(name).suffix.lower()],
        blocks=tuple(blocks),
        pages=tuple(starts),
        remarks=("read by OCR", *([f"{unread} pages left out: OCR took too long"] if unread else [])),
    )

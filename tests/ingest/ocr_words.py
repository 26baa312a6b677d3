"""Measures OCR: `python -m tests.ingest.ocr_words TEXT…` draws texts as pages and reads them back.

Each text file is drawn as one page with a font of this machine, at 150, 200 and 300 dots per inch, clean,
with noise, askew by two degrees, and turned by a quarter. It prints the share of words that are wrong or
missing, and the characters read in a second of CPU. It needs refdesk[ocr].
"""

from __future__ import annotations

import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag.ingest.parse import ocr
from tests.ingest.pdf_words import order, words

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf"
POINTS, COLUMNS, MARGIN = 10, 88, 50  # of the letters; letters in a line; points around the text


def drawn(text: str, dots: int) -> Any:  # noqa: ANN401 a picture of Pillow, which has no types
    """A page of A4 with the text."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 of the extra

    page = Image.new("L", (595 * dots // 72, 842 * dots // 72), 255)
    font = ImageFont.truetype(FONT, POINTS * dots / 72)
    place = (MARGIN * dots // 72, MARGIN * dots // 72)
    ImageDraw.Draw(page).multiline_text(place, textwrap.fill(text, COLUMNS), 0, font, spacing=dots // 20)
    return page


def changed(page: Any, how: str) -> Any:  # noqa: ANN401 see above
    """The page as a poor scanner makes it."""
    import numpy as np  # noqa: PLC0415 of the extra
    from PIL import Image, ImageFilter  # noqa: PLC0415 of the extra

    match how:
        case "noisy":
            noise = np.random.default_rng(0).normal(0, 40, (page.height, page.width))
            blurred = np.asarray(page.filter(ImageFilter.GaussianBlur(0.8)), dtype=float)
            return Image.fromarray(np.clip(blurred * 0.85 + noise, 0, 255).astype("uint8"))
        case "askew":
            return page.rotate(2, fillcolor=255, expand=True)
        case "turned":
            return page.rotate(90, expand=True)
    return page


def main(files: list[str]) -> int:
    """Print the table."""
    if not find_spec("rapidocr"):
        print("OCR is not installed: pip install 'refdesk[ocr]'")  # noqa: T201 a script
        return 0
    import numpy as np  # noqa: PLC0415 of the extra

    ocr.prepare()
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        for dots in (150, 200, 300):
            for how in ("clean", "noisy", "askew", "turned"):
                picture = changed(drawn(text, dots), how).convert("RGB")
                begun = time.process_time()
                page = ocr.OcrReader(600).picture(np.asarray(picture))
                took = time.process_time() - begun
                text_of_page = " ".join(line.text for line in page.lines) if page else ""
                error = 1 - order(words(text_of_page), words(text))
                speed = f"{len(text_of_page) / took:6.0f} characters/s"
                print(f"{Path(file).stem:12} {dots} {how:7} {error:6.1%} {speed}")  # noqa: T201 a script
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

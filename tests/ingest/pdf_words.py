"""Compares the words that PDF readers find, and their order: `python -m tests.ingest.pdf_words FOLDER…`.

The reference for a file a.pdf is a.txt beside it, if there is one, else what pdftotext (poppler) finds. It
prints, for each file, the F1 of the words and the share of words in order (longest common subsequence) of
refdesk, pypdf and pdftotext, then the pages that refdesk and pypdf read in a second of CPU.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pypdf import PdfReader

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Callable

SLACK = 0.01  # as much as the page numbers that refdesk leaves out on purpose
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """The words of a text, in small letters and without the rules of tables."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def f1(words_read: list[str], words_expected: list[str]) -> float:
    """The harmonic mean of precision and recall, counting each occurrence. Two empty lists agree."""
    shared = (Counter(words_read) & Counter(words_expected)).total()
    return 2 * shared / (len(words_read) + len(words_expected)) if words_read or words_expected else 1.0


def order(words_read: list[str], words_expected: list[str]) -> float:
    """The same for words in the same order: twice the longest common subsequence over both lengths.

    Source: Hyyro, Bit-parallel LCS-length computation revisited, AWOCA 2004.
    """
    places: dict[str, int] = {}
    for at, word in enumerate(words_expected):
        places[word] = places.get(word, 0) | 1 << at
    everything = (1 << len(words_expected)) - 1
    free = everything
    for word in words_read:
        here = free & places.get(word, 0)
        free = ((free + here) | (free - here)) & everything
    shared = len(words_expected) - free.bit_count()
    return 2 * shared / (len(words_read) + len(words_expected)) if words_read or words_expected else 1.0


def by_refdesk(data: bytes, name: str) -> str:
    """The text that an ingestion stores."""
    return parse(data, name).text


def by_pypdf(data: bytes, _name: str) -> str:
    """The text of all pages by pypdf."""
    return "\n\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


def by_pdftotext(path: Path, *options: str) -> str:
    """The text by poppler."""
    command = ["pdftotext", *options, str(path), "-"]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode("utf-8", "replace")


def _timed(reader: Callable[[bytes, str], str], data: bytes, name: str) -> tuple[str, float]:
    begun = time.process_time()
    try:
        text = reader(data, name)
    except Exception as error:  # noqa: BLE001 pypdf raises all kinds of errors
        text = ""
        if isinstance(error, ParseError) and "no text" not in str(error):
            print(f"  {name}: {error}")  # noqa: T201 a script
    return text, time.process_time() - begun


def main(folders: list[str]) -> int:
    """Print the table. Returns how many files refdesk reads worse than pypdf."""
    if not shutil.which("pdftotext"):
        print("pdftotext is not installed (Debian: poppler-utils): nothing to compare with")  # noqa: T201 a script
        return 0
    print(f"{'file':44} {'words':>6}   refdesk      pypdf        pdftotext    -layout")  # noqa: T201 a script
    seconds, count, worse = [0.0, 0.0], 0, 0
    for path in sorted(file for folder in folders for file in Path(folder).glob("*.pdf")):
        data, truth = path.read_bytes(), path.with_suffix(".txt")
        plain, laid_out = by_pdftotext(path), by_pdftotext(path, "-layout")
        words_expected = words(truth.read_text(encoding="utf-8") if truth.exists() else plain)
        ours, ours_took = _timed(by_refdesk, data, path.name)
        theirs, theirs_took = _timed(by_pypdf, data, path.name)
        count += plain.count("\f")
        seconds = [seconds[0] + ours_took, seconds[1] + theirs_took]
        readings = [words(text) for text in (ours, theirs, plain, laid_out)]
        scores = [(f1(reading, words_expected), order(reading, words_expected)) for reading in readings]
        is_worse = any(
            score < pypdf_score - SLACK for score, pypdf_score in zip(scores[0], scores[1], strict=True)
        )
        worse += is_worse
        columns = "  ".join(f"{overlap:.3f} {in_order:.3f}" for overlap, in_order in scores)
        mark = "  worse" if is_worse else ""
        print(f"{path.stem[-44:]:44} {len(words_expected):6} {columns}{mark}{' (own text)' * truth.exists()}")  # noqa: T201 a script
    print(f"{count} pages; a second of CPU: refdesk {count / seconds[0]:.0f}, pypdf {count / seconds[1]:.0f}")  # noqa: T201 a script
    return worse


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))

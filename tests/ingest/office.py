"""Compares what the parsers read of office documents with what LibreOffice does, word by word.

Not part of the tests: `python -m tests.ingest.office [FOLDER]`. It prints, for each format, how many files
were read and the F1 of their words against the reference, taken together and of the worst file. The reference
of a text document is LibreOffice's export as text. That of slides is the text of the slides, charts and
notes in the file's own XML, and that of a sheet LibreOffice's export of all its sheets as CSV, below their
names.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from click import echo

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse
from rag.ingest.parse.zip_package import xml_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

SAMPLES = Path(__file__).parents[3] / "shared/data/office"
_TEXTS = (".docx", ".odt", ".rtf", ".doc")
_SHEETS = (".xlsx", ".xls", ".ods")
_SLIDES = (".pptx", ".odp", ".ppt")
_CSV = "csv:Text - txt - csv (StarCalc):9,34,76,1,,0,false,true,false,false,false,-1"
_WORD = re.compile(r"\w+")
_GROUPS = re.compile(r"(?<=\d)[,'\u2019\u202f\xa0](?=\d{3})")  # between thousands


def words(text: str) -> Counter[str]:
    """The words of a text, by how often each occurs."""
    return Counter(_WORD.findall(_GROUPS.sub("", text.casefold())))


def f1(words_read: Counter[str], reference: Counter[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 of words against a reference; 1 if both are empty."""
    common = (words_read & reference).total()
    precision = common / words_read.total() if words_read else float(not reference)
    recall = common / reference.total() if reference else float(not words_read)
    return (
        precision,
        recall,
        2 * precision * recall / (precision + recall) if common else float(not words_read),
    )


def reference(path: Path, folder: Path) -> str | None:
    """What LibreOffice reads, None if it can't open the file."""
    suffix, target = path.suffix.lower(), folder / f"{abs(hash(str(path)))}"
    if suffix == ".pptx":
        return _slides(path)
    if suffix in _SLIDES:
        path = _converted(path, target, "pptx") or path
        return _slides(path) if path.suffix == ".pptx" else None
    if suffix in _SHEETS:
        _converted(path, target, _CSV)
        names = {file: file.stem.removeprefix(f"{path.stem}-") for file in sorted(target.glob("*.csv"))}
        texts = [
            f"{name}\n{text}" for file, name in names.items() if (text := file.read_text("utf-8")).strip()
        ]
        return "\n".join([*texts, _in_shapes(path)]) if texts else None
    text_file = _converted(path, target, "txt:Text (encoded):UTF8")
    return text_file.read_text(encoding="utf-8-sig") + _not_exported(path) if text_file else None


def _converted(path: Path, target: Path, form: str) -> Path | None:
    command = ["soffice", "--headless", "--convert-to", form, "--outdir", str(target), str(path)]
    subprocess.run(command, capture_output=True, timeout=120, check=False)
    return next(iter(sorted(target.glob("*"))), None)


def _not_exported(path: Path) -> str:
    """The text in the shapes and equations of a Word file, which LibreOffice leaves out of its text."""
    if not zipfile.is_zipfile(path) or path.suffix.lower() != ".docx":
        return ""
    with zipfile.ZipFile(path) as archive:
        root = xml_root(archive.read("word/document.xml"), "")
    again = {id(node) for fallback in root.iter("Fallback") for node in fallback.iter()}
    boxes = [box for box in root.iter("txbxContent") if id(box) not in again]
    shapes = ["".join(p.itertext()) for box in boxes for p in box.iter("p")]
    equations = [" ".join(math.itertext()) for math in root.iter("oMath")]
    return "\n".join(["", *shapes, *equations])


def _in_shapes(path: Path) -> str:
    """The text of shapes on the sheets of an Excel file, which have no place in CSV."""
    if not zipfile.is_zipfile(path):
        return ""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("xl/drawings/drawing")]
        shapes = [shape for name in names for shape in xml_root(archive.read(name), "").iter("sp")]
    return "\n".join("".join(p.itertext()) for shape in shapes for p in shape.iter("p"))


def _slides(path: Path) -> str | None:
    """The text of a presentation's slides, charts and notes, paragraph by paragraph, as its XML has it."""
    if not zipfile.is_zipfile(path):
        return None
    texts = []
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"ppt/(slides|notesSlides|diagrams)/(slide|notesSlide|data)\d+\.xml", name):
                for paragraph in xml_root(archive.read(name), "").iter("p"):
                    fields = {id(node) for field in paragraph.iter("fld") for node in field.iter()}
                    texts.append("".join(t.text or "" for t in paragraph.iter("t") if id(t) not in fields))
            elif re.fullmatch(r"ppt/charts/chart\d+\.xml", name):
                chart = xml_root(archive.read(name), "")
                again = {id(node) for series in [*chart.iter("ser")][1:] for node in series.iter("cat")}
                nodes = [node for node in _outside(chart, again) if node.tag in {"t", "v"}]
                texts += [node.text or "" for node in nodes]
    return "\n".join(texts)


def _outside(tree: Element, left_out: set[int]) -> Iterator[Element]:
    """What is in a tree, without some of its branches."""
    if id(tree) not in left_out:
        yield tree
        for branch in tree:
            yield from _outside(branch, left_out)


def compare(folder: Path, suffixes: tuple[str, ...]) -> None:
    """Print a line for each file and a table of the formats."""
    totals: dict[str, list[tuple[float, str]]] = defaultdict(list)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(folder.rglob("*")):
            suffix = path.suffix.lower()
            if suffix not in suffixes:
                continue
            expected = reference(path, Path(scratch))
            try:
                text = parse(path.read_bytes(), path.name).text
            except ParseError as error:
                echo(f"{path.name}: {error} (reference: {'none' if expected is None else len(expected)})")
                if expected and expected.strip():
                    totals[suffix].append((0.0, path.name))
                continue
            if expected is None:
                echo(f"{path.name}: read, but LibreOffice opens it not")
                continue
            words_read, words_expected = words(text), words(expected)
            precision, recall, value = f1(words_read, words_expected)
            totals[suffix].append((value, path.name))
            for at, count in enumerate(
                ((words_read & words_expected).total(), words_read.total(), words_expected.total())
            ):
                sums[suffix][at] += count
            if value < 1:
                more, less = (
                    (words_read - words_expected).most_common(6),
                    (words_expected - words_read).most_common(6),
                )
                echo(f"{path.name}: P {precision:.3f} R {recall:.3f} F1 {value:.3f}  +{more}  -{less}")
    for suffix, values in sorted(totals.items()):
        common, found_sum, wanted_sum = sums[suffix]
        mean = sum(value for value, _ in values) / len(values)
        together = 2 * common / ((found_sum + wanted_sum) or 1)
        echo(
            f"{suffix:6} {len(values):3} files  F1 {together:.4f} together, {mean:.4f} on average, worst"
            f" {min(values)[0]:.4f} ({min(values)[1]})"
        )


if __name__ == "__main__":
    if which("soffice") is None:
        sys.exit("Skipped: LibreOffice (soffice) is not installed.")
    chosen = [Path(argument) for argument in sys.argv[1:] if not argument.startswith(".")] or [SAMPLES]
    if not chosen[0].is_dir():
        sys.exit(f"Skipped: the samples are not at {chosen[0]}.")
    compare(
        chosen[0],
        tuple(argument for argument in sys.argv[1:] if argument.startswith("."))
        or _TEXTS + _SHEETS + _SLIDES,
    )

"""Formats of the extra `refdesk[formats]`, read by xberg: legacy Word and PowerPoint, iWork and more.

xberg's binary contains download clients. It runs in the confined process only, which has no network. One
asyncio event loop serves all files, because a new one would need file descriptors.
"""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import clean, title_line
from rag.ingest.parse.markdown import markdown_blocks
from rag.text.table_heads import pipe_table

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFICE_SUFFIXES = (".doc", ".dot", ".ppt", ".pps", ".pot", ".xlsb", ".xla", ".xlam")
"""Of Microsoft Office. Files of these names often have the content of a format with a parser of ours."""
SUFFIXES = (
    *OFFICE_SUFFIXES,
    *(".pages", ".numbers", ".key"),  # iWork
    *(".wpd", ".wp", ".wp5", ".wp6", ".hwp", ".hwpx", ".fodg"),  # other offices
    *(".typ", ".typst", ".dj", ".djot"),  # markup
    *(".bib", ".dbf"),
)
LIBRARIES = ("xberg", "asyncio")
NO_NUMBERS = "the numbers of its lists are lost: save it as .docx"
NO_SPANS = "the merged cells of its tables are lost, and cells behind them moved: save it as .docx"
_WORD = (".doc", ".dot")
_NUMBERED = re.compile(r"^([^\S\n]*)\d{1,9}\. +(?=\S)(.*)$", re.MULTILINE)
_LISTED = 1_000  # characters of a list of authors or keywords
_loops: list[asyncio.AbstractEventLoop] = []


def is_installed() -> bool:
    """Whether the extra is installed."""
    return bool(find_spec("xberg"))


def prepare() -> None:
    """Start xberg's event loop and threads, which can't be started once confined."""
    _loops[:] = [asyncio.new_event_loop()]
    _loops[0].run_until_complete(_extract(b"refdesk reads", "a.txt"))


def parse(data: bytes, name: str) -> Document:
    """The document of a file, which xberg converts to Markdown.

    Raises:
        ParseError: xberg can't read the file.
    """
    try:
        extraction = _loops[0].run_until_complete(_extract(data, name))
    except Exception as error:  # xberg raises all kinds of errors on damaged files
        raise ParseError("the file is damaged, or encrypted") from error
    if not extraction.results:
        raise ParseError("the file is damaged, or encrypted")
    read = extraction.results[0]
    text, remarks = clean(read.content or "").strip(), list[str]()
    if name.lower().endswith(_WORD):
        plain = _loops[0].run_until_complete(_extract(data, name, "plain")).results[0]
        text, remarks = with_cells(text, clean(plain.content or ""))
    blocks = tuple(markdown_blocks(text))
    metadata = _metadata(read.metadata)
    return Document(
        text=text,
        title=metadata.pop("title", ""),
        mime_type=read.mime_type.lower(),
        blocks=blocks,
        metadata=metadata,
        remarks=tuple(remarks),
    )


def with_cells(text: str, plain: str) -> tuple[str, list[str]]:
    r"""The Markdown of a Word file with its tables, and without numbers that xberg gives to items; remarks.

    In the plain text, a tab ends each cell, and a further one each row. Numbers there are typed.
    Example: ("a b  1 2", "a\tb\t\t1\t2") -> a table of two rows.
    """
    lines = {*map(str.strip, plain.split("\n"))}

    def without_number(item: re.Match[str]) -> str:
        return item[0] if item[0].strip() in lines else f"{item[1]}- {item[2]}"

    marked = _NUMBERED.sub(without_number, text)
    remarks = [NO_NUMBERS] if marked != text else []
    for line in lines:
        rows = [*_rows([*line.split("\t"), ""])] if "\t\t" in line else []
        width = max(map(len, rows), default=0)
        whole = sum(len(row) == width for row in rows)
        if width > 1 and whole > 1:  # else the tabs move words, or cells have several paragraphs
            marked = marked.replace(line.replace("\t", " "), pipe_table(rows, columns=width), 1)
            remarks += [NO_SPANS] if whole < len(rows) and NO_SPANS not in remarks else []
    return marked, remarks


def _rows(cells: list[str]) -> Iterator[list[str]]:
    """The rows of a table, by its cells with a blank one at the end of each row.

    A row has as many cells as the first one, if a blank one follows these; else it ends before its first
    blank.
    """
    width, at = cells.index(""), 0
    while at < len(cells):
        is_whole = cells[at + width : at + width + 1] == [""]
        end = at + width if is_whole else cells.index("", at)
        yield cells[at:end]
        at = end + 1


async def _extract(data: bytes, name: str, form: str = "markdown") -> Any:  # noqa: ANN401 of xberg
    import xberg  # noqa: PLC0415 of the extra

    source = xberg.ExtractInput(kind="bytes", bytes=data, filename=name)
    how = xberg.ExtractionConfig(use_cache=False, disable_ocr=True, output_format=form)
    return await xberg.extract(source, how)


def _metadata(about: Any) -> dict[str, str]:  # noqa: ANN401 of xberg
    metadata = {}
    for key in ("title", "author", "keywords", "subject", "language"):
        value = getattr(about, "authors" if key == "author" else key, None)
        value = ", ".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(value, str) and value.strip():
            metadata[key] = title_line(value[:_LISTED])
    return metadata

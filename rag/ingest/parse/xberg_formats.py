"""Formats of the extra `refdesk[formats]`, read by xberg: legacy Word and PowerPoint, iWork and more.

xberg's binary contains download clients. It runs in the confined process only, which has no network. One
asyncio event loop serves all files, because a new one would need file descriptors.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import clean, title_line
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.titles_and_questions import first_heading

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
    text = clean(read.content or "").strip()
    blocks = tuple(markdown_blocks(text))
    metadata = _metadata(read.metadata)
    return Document(
        text=text,
        title=metadata.pop("title", "") or first_heading(text, blocks, name) or name,
        mime_type=read.mime_type.lower(),
        blocks=blocks,
        metadata=metadata,
    )


async def _extract(data: bytes, name: str) -> Any:  # noqa: ANN401 of xberg
    import xberg  # noqa: PLC0415 of the extra

    source = xberg.ExtractInput(kind="bytes", bytes=data, filename=name)
    how = xberg.ExtractionConfig(use_cache=False, disable_ocr=True, output_format="markdown")
    return await xberg.extract(source, how)


def _metadata(about: Any) -> dict[str, str]:  # noqa: ANN401 of xberg
    metadata = {}
    for key in ("title", "author", "keywords", "subject", "language"):
        value = getattr(about, "authors" if key == "author" else key, None)
        value = ", ".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(value, str) and value.strip():
            metadata[key] = title_line(value[:_LISTED])
    return metadata

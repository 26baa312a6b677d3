"""JSON with text for people: Jupyter notebooks, transcripts of speech, and exports of chats and notes.

Notebooks are read as text and code in order, with the outputs that are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Any

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import html_page, markdown
from rag.ingest.parse.chat_exports import chat_document, dicts, mapping, moment_of, string
from rag.ingest.parse.document_parts import clean, facts
from rag.ingest.parse.text_and_settings import parse_subtitles
from rag.ingest.parse.xml_document import composed_entries
from rag.text.plain_text import one_line

NOTEBOOK_SUFFIXES = (".ipynb",)

_MAX_OUTPUT = 4000  # characters of one output: a training log would drown the rest
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)
_IMAGE = re.compile(
    r"!\[((?:[^\]!]|!(?!\[))*+)\]\((?:data:|attachment:)(?:[^)!]|!(?!\[))*+\)"
    r"|<img\b[^<>]{0,1000}?\bsrc=[\"']data:(?:[^<>]|<(?!img\b))*+>"
)


def parse_notebook(text: str, name: str) -> Document:
    """The document of a notebook, read as Markdown with fenced code.

    Raises:
        ParseError: the file is not a notebook.
    """
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("the notebook is damaged: it is not valid JSON") from error
    cells = _cells(book)
    if cells is None:
        raise ParseError("it is not a notebook: it has no cells")
    about = mapping(book.get("metadata"))
    kernel = mapping(about.get("kernelspec")) | mapping(about.get("language_info"))
    language = string(kernel, "language") or string(kernel, "name")
    document = markdown.parse(
        clean("\n\n".join(part for cell in cells for part in _parts(cell, language))), name
    )
    stated = facts(author=[string(author, "name") for author in dicts(about.get("authors"))])
    return replace(
        document,
        title=string(about, "title") or document.title,
        mime_type="application/x-ipynb+json",
        metadata={**stated, **document.metadata},
    )


def _cells(book: object) -> list[dict[str, Any]] | None:
    """The cells, None if the notebook has none. Format 3 keeps them in worksheets."""
    sheets = mapping(book).get("worksheets")
    books = sheets if isinstance(sheets, list) else [book]
    cell_lists = [cells for sheet in books if isinstance(cells := mapping(sheet).get("cells"), list)]
    return [cell for cells in cell_lists for cell in dicts(cells)] if cell_lists else None


def _parts(cell: dict[str, object], language: str) -> Iterator[str]:
    text = _source_text(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "markdown" | "raw":
            yield _IMAGE.sub(r"\1", text)
        case "heading":
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) else 1)} {text}"
        case "code":
            yield _fenced_block(text, language)
            for output in dicts(cell.get("outputs")):
                yield _output_text(output)


def _output_text(output: dict[str, object]) -> str:
    """An output that is text: a table as a table, an error without its traceback."""
    if output.get("output_type") in {"error", "pyerr"}:
        return _fenced_block(f"{_source_text(output.get('ename'))}: {_source_text(output.get('evalue'))}", "")
    data = mapping(output.get("data")) or output
    page = _source_text(data.get("text/html") or data.get("html"))
    if "<table" in page:
        return html_page.content_of(page[: 10 * _MAX_OUTPUT])[:_MAX_OUTPUT]  # a page has more tags than text
    if text := _source_text(data.get("text/markdown") or data.get("text/latex")):
        return _IMAGE.sub(r"\1", text)[:_MAX_OUTPUT]
    text = _source_text(data.get("text/plain") or data.get("text"))
    excess = len(text) - _MAX_OUTPUT
    return _fenced_block(f"{text[:_MAX_OUTPUT]}\n… ({excess:,} more characters)" if excess > 0 else text, "")


def _fenced_block(text: str, language: str) -> str:
    text = clean(text).strip("\n")
    longest = max((len(match[1]) for match in _FENCE.finditer(text)), default=2)
    fence = "`" * (longest + 1)  # the text may have fences of its own
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""


def _source_text(value: object) -> str:
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def export_document(value: object, name: str, folder: str) -> Document | None:
    """The document of a transcript, a chat export or a note; None for other JSON values.

    `folder` is the one that the file is in.

    Raises:
        EmptyFileError: it is a note that is in the trash.
    """
    if captions := "\n\n".join(_captions(mapping(value))):
        title = _line(value, "title") or name
        return replace(parse_subtitles(f"WEBVTT\n\n{captions}", title), mime_type="application/json")
    return chat_document(value, name, folder) or _note_document(value, name)


def _captions(transcript: Mapping[str, object]) -> Iterator[str]:
    """The captions of a transcript, as Whisper, Deepgram and AWS Transcribe write it; none of other JSON."""
    results = mapping(transcript.get("results"))
    segments = transcript.get("segments") or results.get("utterances") or results.get("audio_segments")
    spoken = [
        (segment, start, text)
        for segment in dicts(segments)
        if (start := _seconds(segment)) is not None
        and isinstance(text := segment.get("text", segment.get("transcript")), str)
    ]
    said = sum(len(text) for _, _, text in spoken)
    # Else they are marks in a text, whose starts count its letters.
    is_whole = len(string(transcript, "text")) <= 2 * said
    if is_whole and len(spoken) == len(dicts(segments)):
        for segment, start, text in spoken:
            speaker = segment.get("speaker", segment.get("speaker_label"))
            speaker = f"Speaker {speaker}" if isinstance(speaker, int) else speaker
            voice = "" if speaker is None else f"<v {escape(one_line(str(speaker)))}>"
            time = f"{start // 3600:02}:{start // 60 % 60:02}:{start % 60:02}.000"
            yield f"{time} --> {time}\n{voice}{escape(one_line(clean(text)))}"


def _seconds(segment: Mapping[str, object]) -> int | None:
    start = segment.get("start", segment.get("start_time"))
    try:
        return int(float(start)) if isinstance(start, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _line(item: object, key: str) -> str:
    return one_line(clean(string(item, key)))


_CARDS = frozenset({"text", "file", "link", "group"})


def _note_document(value: object, name: str) -> Document | None:
    note = mapping(value)
    edited, cards = note.get("userEditedTimestampUsec"), dicts(note.get("nodes"))
    if "isTrashed" in note and isinstance(edited, int):
        if note["isTrashed"] is True:
            raise EmptyFileError("the note isn't kept")
        text, blocks = composed_entries([((), "\n\n".join(filter(None, _keep_texts(note))))])
        title = _line(note, "title") or name
        return Document(text, title, "application/json", blocks, date=moment_of(edited / 1e6))
    if cards and all(card.get("type") in _CARDS and "x" in card for card in cards):
        text, blocks = composed_entries(((), text) for text in _canvas_texts(cards, dicts(note.get("edges"))))
        return Document(text, name, "application/json", blocks)
    return None


def _keep_texts(note: Mapping[str, object]) -> Iterator[str]:
    yield " ".join(f"#{label}" for item in dicts(note.get("labels")) if (label := _line(item, "name")))
    yield clean(string(note, "textContent"))
    yield "\n".join(
        f"- [{'x' if item.get('isChecked') is True else ' '}] {_line(item, 'text')}"
        for item in dicts(note.get("listContent"))
    )
    for page in dicts(note.get("annotations")):
        yield " ".join(filter(None, (_line(page, "title"), _line(page, "url"))))


def _canvas_texts(cards: list[dict[str, Any]], arrows: list[dict[str, Any]]) -> Iterator[str]:
    """What the cards of a canvas say, in their order in the file; then its labelled arrows."""
    texts = {}
    for card in cards:
        text = markdown.parse(clean(string(card, "text")), "").text or _line(card, "label")
        file = f"[[{_line(card, 'file')}]]" if "file" in card else ""
        text = text or file or _line(card, "url")
        texts[string(card, "id")] = text
        yield text
    for arrow in arrows:
        cards_of = (texts.get(string(arrow, key), "") for key in ("fromNode", "toNode"))
        ends = (text.partition("\n")[0].lstrip("# ") for text in cards_of)
        if label := _line(arrow, "label"):
            yield f" → {label} → ".join(ends)

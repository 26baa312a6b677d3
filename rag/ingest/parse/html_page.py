"""HTML: converted to Markdown, without navigation and other boilerplate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import html_to_markdown
from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions, WarningKind

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.blocks import clean, date, first_heading
from rag.ingest.parse.facts import facts
from rag.ingest.parse.html_hidden import without_hidden_orders
from rag.ingest.parse.html_seen import with_seen, without_marks
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.office.properties import left_out
from rag.ingest.parse.questions import with_questions
from rag.text.segments import without_note_ids
from rag.uris import web_address

if TYPE_CHECKING:
    from datetime import datetime

    from html_to_markdown import ConversionResult

SUFFIXES = (".html", ".htm", ".xhtml")

HIDDEN_ORDERS = (
    "hidden piece of text that looks like instructions to a model",
    "hidden pieces of text that look like instructions to a model",
)
_NOISE = ["nav", "header", "footer", "aside", "script", "style", "template", "noscript", "[role=navigation]"]
_ANCHORS = [".headerlink", ".anchor", ".anchor-link"]  # the "¶" that documentation tools add to headings
_AS_IT_IS = PreprocessingOptions(enabled=False)
_PAGE = ConversionOptions(preprocessing=_AS_IT_IS)
_CONTENT = ConversionOptions(
    extract_metadata=False,
    exclude_selectors=_NOISE + _ANCHORS,
    preprocessing=_AS_IT_IS,
    compact_tables=True,
    autolinks=False,
    skip_images=True,
)
_DATES = ("article-published_time", "article:published_time", "date", "dc.date", "dcterms.created")
_TIME = re.compile(r"<time\b[^<>]{0,300}?\bdatetime\s?=\s?[\"']([^\"'<>]{4,40})", re.IGNORECASE)


def parse(text: str, name: str) -> Document:
    """The document of a page: its main part if it marks one, otherwise all but the boilerplate."""
    text, orders = without_hidden_orders(text)
    page = _converted(text, _PAGE)
    head = page.metadata.document
    content, labels, ends = without_marks(_marked_content(_main(text)) or _marked_content(text))
    blocks = with_questions(content, tuple(markdown_blocks(content)), labels=labels, ends=ends)
    return Document(
        text=content,
        title=head.title or head.open_graph.get("title") or first_heading(blocks) or name,
        mime_type="text/html",
        blocks=blocks,
        date=_published(head.meta_tags, text),
        url=web_address(clean(head.canonical_url or "")),
        metadata=facts(
            author=head.author or head.meta_tags.get("article-author") or head.meta_tags.get("dc.creator"),
            keywords=head.keywords,
            language=head.language,
            description=head.description or head.open_graph.get("description"),
        ),
        remarks=tuple(left_out(orders, *HIDDEN_ORDERS)),
    )


def content_of(html: str) -> str:
    """The Markdown of a page or a part of one, without boilerplate.

    Raises:
        ParseError: it can't be parsed.
    """
    return without_marks(_marked_content(html))[0]


def _marked_content(html: str) -> str:
    """The same, with the marks of `with_seen`."""
    return without_note_ids(clean(_converted(with_seen(html), _CONTENT).content or "").strip())


def _converted(html: str, options: ConversionOptions) -> ConversionResult:
    try:
        result = html_to_markdown.convert(html, options)
    except ConversionError as error:
        raise ParseError("the HTML can't be parsed") from error
    if any(warning.kind == WarningKind.DEPTH_LIMIT_EXCEEDED for warning in result.warnings):
        raise ParseError("nested too deeply")
    return result


def _main(html: str) -> str:
    """From the first <main> to the last </main>, otherwise the same for <article>, otherwise all."""
    for tag in ("main", "article"):
        opening = re.search(rf"<{tag}[\s>]", html, re.IGNORECASE)
        closings = [match.end() for match in re.finditer(rf"</{tag}\s*>", html, re.IGNORECASE)]
        if opening and closings and opening.start() < closings[-1]:
            return html[opening.start() : closings[-1]]
    return html


def _published(meta: dict[str, str], html: str) -> datetime | None:
    time = _TIME.search(html)
    written = [*(meta.get(key, "") for key in _DATES), time[1] if time else ""]
    return next(filter(None, map(date, written)), None)

"""Sources as protocol resources: how they are listed, paged and read."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from mcp import MCPError, types

from rag.search.reply.reply_parts import shown_date, timestamp
from rag.search.reply.source_reply import begins_in_prose
from rag.search.reply.untrusted import altered, disarmed, label
from rag.uris import CHUNK_TEMPLATE, SOURCE_TEMPLATE, resource_uri

if TYPE_CHECKING:
    from rag.answers import Extract
    from rag.corpus import Source

TEMPLATES = [
    types.ResourceTemplate(
        name="source",
        title="Document",
        uri_template=SOURCE_TEMPLATE,
        description="The text of an ingested document.",
        mime_type="text/plain",
    ),
    types.ResourceTemplate(
        name="chunk",
        title="Passage",
        uri_template=CHUNK_TEMPLATE,
        description="A passage of a document, as search finds it. seq is its number, or a range such as 6-7.",
        mime_type="text/plain",
    ),
]
URI_TEMPLATES = frozenset(template.uri_template for template in TEMPLATES)


def resource(source: Source, size: int | None) -> types.Resource:
    """A source as `resources/list` shows it. `size` is that of its text in bytes, if it is known.

    It was modified at the date that the document states, or else when it was ingested.
    """
    described = label(source.metadata.get("description", ""))
    return types.Resource(
        name=label(source.metadata.get("path", source.title)),
        title=label(source.title),
        uri=resource_uri(source.collection, source.id),
        description=described or f"In the collection {source.collection}.",
        mime_type="text/plain",
        size=size,
        annotations=types.Annotations(last_modified=shown_date(source) or timestamp(source.ingested_at)),
    )


def contents(uri: str, extract: Extract, max_chars: int) -> types.ReadResourceResult:
    """The window's text, up to `max_chars`, with a note if it was altered or if more was asked for."""
    end = extract.start + min(max_chars, len(extract.text))
    written = extract.text[:max_chars]
    text = disarmed(written, from_prose=begins_in_prose(extract))
    for note in altered([(written, text)]):
        text += f"\n\n[{note}]"
    if rest := extract.until - end:
        text += f"\n\n[{rest} more characters: open the document with start={end}]"
    shown = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    return types.ReadResourceResult(contents=[shown])


def cursor(last: Source) -> str:
    """The cursor of the page after `last`. It holds only what the page has shown already."""
    return base64.urlsafe_b64encode(f"{last.collection}/{last.id}".encode()).decode()


def read_cursor(value: str | None) -> tuple[str, str]:
    """The (collection, source id) after which a page begins; ("", "") for the first page.

    Raises:
        MCPError: it is not a cursor of ours.
    """
    if value is None:
        return "", ""
    try:
        collection, id_ = base64.b64decode(value, altchars=b"-_", validate=True).decode("ascii").split("/")
    except ValueError as error:
        raise MCPError(types.INVALID_PARAMS, "Invalid cursor") from error
    return collection, id_

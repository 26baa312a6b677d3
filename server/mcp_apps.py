"""MCP Apps: the page that hosts show next to an answer (extension `io.modelcontextprotocol/ui`, 2026-01-26).

Only clients that declare the extension get any of it, as its specification asks; others notice nothing. The
page is `passages.html`. It shows the results of the search tool, reads on with the opener, and shows pages of
PDFs with the tool `page_picture`. The host calls these tools for it, with the rights of the person who asks.
So everything on the page has passed the same gate, and the page itself holds no secret.

Pictures come from a tool and not from a resource, because only a tool can be reserved for the page: by its
`visibility`, hosts don't offer it to models, and pages of other servers can't call it. Resources have no such
mark; hosts show templates to people and models. A tool can also say why there is no picture.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import types

from rag.answers import Hit
from rag.config.server_settings import PAGE_PICTURE, ToolSettings
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from rag.search.page_picture import Page

EXTENSION = "io.modelcontextprotocol/ui"
URI = "ui://refdesk/passages"
MIME_TYPE = "text/html;profile=mcp-app"
PASSAGES = Path(__file__).with_name("passages.html")
RESULT_META = "refdesk/app"
NOTHING_FROM_OUTSIDE: Mapping[str, list[str]] = {
    "connectDomains": [],
    "resourceDomains": [],
    "frameDomains": [],
    "baseUriDomains": [],
}
SESSION = "mcp-apps"
"""The session id for a client of the older protocol that declares the extension over HTTP.

Such a client declares it only once, and this server keeps no sessions. So the client's requests repeat the
declaration by this id. It isn't secret: it grants no access to documents.
"""
SESSION_HEADER = "mcp-session-id"
DECLARED = "refdesk.apps"
"""The key in the scope of an HTTP request in which a client has declared the extension."""


def shows_apps(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client of a request has declared that it shows MCP Apps."""
    capabilities = context.session.client_capabilities
    if capabilities is not None and _declares(capabilities.extensions):
        return True
    return context.request is not None and context.request.headers.get(SESSION_HEADER) == SESSION


def _declares(extensions: object) -> bool:
    """Whether the client's declared extensions include this one, for HTML pages."""
    settings = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    mime_types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(mime_types, list | tuple) and MIME_TYPE in mime_types


async def note_declaration(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware: mark an HTTP request that initializes and declares the extension."""
    if ctx.method == "initialize" and ctx.request is not None:
        capabilities = (ctx.params or {}).get("capabilities")
        if isinstance(capabilities, dict) and _declares(capabilities.get("extensions")):
            ctx.request.scope[DECLARED] = True
    return await call_next(ctx)


def with_page(listed: Sequence[types.Tool], tools: Sequence[ToolSettings]) -> list[types.Tool]:
    """The tools for a client that shows the page: search tools name it, and it alone has `page_picture`."""
    names = {tool.name for tool in tools}
    page = {"ui": {"resourceUri": URI}}
    with_meta = [
        tool.model_copy(update={"meta": {**(tool.meta or {}), **page}}) if tool.name in names else tool
        for tool in listed
    ]
    return [*with_meta, _pictures()] if tools else with_meta


@cache
def _pictures() -> types.Tool:
    return types.Tool(
        name=PAGE_PICTURE,
        title="Show a page",
        description="A page as a picture, with a passage marked. For the page of passages only.",
        input_schema={
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "A result's id."},
                "page": {"type": "integer", "minimum": 1, "description": "By default that of the passage."},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        _meta={"ui": {"visibility": ["app"]}},
    )


def search_meta(
    tool: ToolSettings, hits: Sequence[Hit], results: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Further data for the page: the opener, titles, and the results that may have a picture."""
    # Imported here, because only servers with the page draw pictures.
    from rag.search.page_picture import may_have_pages  # noqa: PLC0415

    titles = {hit.cited: label(hit.source.title) for hit in hits}
    of_pdfs = {hit.cited for hit in hits if may_have_pages(hit.source)}
    pages = [at for at, result in enumerate(results) if result["id"] in of_pdfs]
    shown_titles = [titles[result["id"]] for result in results]
    return {
        RESULT_META: {
            "opener": tool.opener.name if tool.opener else None,
            "titles": shown_titles,
            "pages": pages,
        }
    }


def image(page: Page) -> types.ImageContent:
    """A page as content of a result."""
    return types.ImageContent(data=base64.b64encode(page.picture.png).decode(), mime_type="image/png")


def picture_result(id_: str, page: Page) -> types.CallToolResult:
    """A page as a picture, with the data that the page of passages needs to show it."""
    picture = page.picture
    facts = {
        "id": id_,
        "page": page.number,
        "pages": picture.pages,
        "width": picture.width,
        "height": picture.height,
        "marks": picture.marks,
    }
    return types.CallToolResult(content=[image(page)], structured_content=facts)


def contents() -> types.ReadResourceResult:
    """The page of passages, with a policy that lets it load nothing from outside."""
    meta = {"ui": {"csp": dict(NOTHING_FROM_OUTSIDE), "prefersBorder": True}}
    page = types.TextResourceContents(uri=URI, mime_type=MIME_TYPE, text=_html(), _meta=meta)
    return types.ReadResourceResult(contents=[page])


@cache
def _html() -> str:
    return PASSAGES.read_text(encoding="utf-8")

"""Sources as protocol resources; completion of typed arguments; and the skill that explains this desk.

Arguments of resource templates and of the prompt are completed with collections, sources, passages, and
declared fields with their values. All of these have passed the gate, so neither a completion nor a total
reveals anything that the principal can't read.

Skills over MCP are the extension `io.modelcontextprotocol/skills` (SEP-2640). The server has one skill of one
file: the output of `refdesk-admin connect --skill`, with the tools that the caller may call. It isn't listed
as a resource, because clients that know the extension ask for it; any caller who knows its URI can read it.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mcp import MCPError, types

from rag.answers import Extract
from rag.config.server_settings import ServerSettings, ToolSettings
from rag.corpus import Principal, Source
from rag.errors import NotFoundError
from rag.search.agents import skill, skill_name
from rag.search.overview import CollectionOverview, Single
from rag.search.reply.reply_parts import shown_date, timestamp
from rag.search.reply.source_reply import begins_in_prose
from rag.search.reply.untrusted import alteration_notes, disarm, label
from rag.uris import CHUNK_TEMPLATE, SOURCE_TEMPLATE, resource_uri

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from rag.search.desk import Desk


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
    """A source as `resources/list` shows it. `size` is the size of its text in bytes, if known.

    Its modification date is the document's own, or else the time of ingestion.
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
    original = extract.text[:max_chars]
    text = disarm(original, from_prose=begins_in_prose(extract))
    for note in (*alteration_notes([(original, text)]), *extract.notes):
        text += f"\n\n[{note}]"
    if remaining := extract.until - end:
        text += f"\n\n[{remaining} more characters: open the document with start={end}]"
    resource_contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    return types.ReadResourceResult(contents=[resource_contents])


def cursor(last: Source) -> str:
    """The cursor of the page after `last`. It contains only values that the page has shown."""
    return base64.urlsafe_b64encode(f"{last.collection}/{last.id}".encode()).decode()


def read_cursor(value: str | None) -> tuple[str, str]:
    """The (collection, source id) after which a page begins; ("", "") for the first page.

    Raises:
        MCPError: `value` is not a cursor of ours.
    """
    if value is None:
        return "", ""
    try:
        collection, id_ = base64.b64decode(value, altchars=b"-_", validate=True).decode("ascii").split("/")
    except ValueError as error:
        raise MCPError(types.INVALID_PARAMS, "Invalid cursor") from error
    return collection, id_


MAX_COMPLETIONS = 100  # the protocol's own limit
MAX_TYPED = 200  # characters: no name is longer
TEMPLATE_ARGUMENTS = {"collection", "source_id", "seq"}
PROMPT_ARGUMENTS = {"collection", "filter"}


def completion(values: Sequence[str] = (), *, is_more: bool = False) -> types.CompleteResult:
    """The first values. With `is_more`, there are more than these, and their number is unknown."""
    first = list(values[:MAX_COMPLETIONS])
    total = None if is_more else len(values)
    has_more = is_more or len(values) > len(first)
    return types.CompleteResult(completion=types.Completion(values=first, total=total, has_more=has_more))


def can_complete(params: types.CompleteRequestParams) -> bool:
    """Whether the argument can be completed. If not, the desk needn't open."""
    if len(params.argument.value) > MAX_TYPED:
        return False
    if isinstance(params.ref, types.ResourceTemplateReference):
        return params.ref.uri in URI_TEMPLATES and params.argument.name in TEMPLATE_ARGUMENTS
    return params.ref.name == "answer" and params.argument.name in PROMPT_ARGUMENTS


async def complete_argument(
    desk: Desk, principal: Principal, params: types.CompleteRequestParams
) -> types.CompleteResult:
    """The completions of the argument, narrowed by the arguments chosen before: a collection, a source."""
    typed, chosen = params.argument.value, (params.context and params.context.arguments) or {}
    match params.argument.name:
        case "collection":
            readable = await desk.collections(principal)
            return completion(
                [collection.name for collection in readable if collection.name.startswith(typed.lower())]
            )
        case "source_id":
            sources = await desk.sources_beginning_with(principal, typed, chosen.get("collection"))
            return completion([source.id for source in sources])
        case "seq":
            return completion(await _passages(desk, principal, typed, chosen))
    overview = await desk.overview(principal)
    chosen_collections = [
        summary for summary in overview if chosen.get("collection") in {None, summary.collection.name}
    ]
    name, equals, beginning = typed.partition("=")
    return (
        _values(chosen_collections, name, beginning.lower())
        if equals
        else completion(_fields(chosen_collections, name))
    )


async def _passages(desk: Desk, principal: Principal, typed: str, chosen: Mapping[str, str]) -> Sequence[str]:
    id_ = chosen.get("source_id", "")
    sources = await desk.sources_beginning_with(principal, id_, chosen.get("collection")) if id_ else []
    counts = [source.chunk_count for source in sources if source.id == id_]
    return [number for number in map(str, range(sum(counts))) if number.startswith(typed)]


def _fields(overview: Sequence[CollectionOverview], typed: str) -> Sequence[str]:
    """The names of fields, to type a value behind: "st" -> ["status="]."""
    names = {name for summary in overview for name in summary.fields if name.startswith(typed)}
    return [f"{name}=" for name in sorted(names)]


def _values(overview: Sequence[CollectionOverview], name: str, beginning: str) -> types.CompleteResult:
    """The values of a field, most frequent first: "status=F" -> ["status=final"]."""
    fields = [summary.fields[name] for summary in overview if name in summary.fields]
    counts: Counter[str] = Counter()
    for value, count in (pair for field in fields for pair in field.frequent):
        if (typed_value := _typable(value)) and typed_value.lower().startswith(beginning):
            counts[typed_value] += count
    ranked = sorted(counts, key=lambda shown: (-counts[shown], shown))
    is_more = any(field.distinct > len(field.frequent) for field in fields)
    return completion([f"{name}={typed_value}" for typed_value in ranked], is_more=is_more)


def _typable(value: Single) -> str:
    """A value as a caller types it; empty for text that can't be shown unchanged on a line."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case str():
            return value if label(value) == value else ""
    return str(value)


SKILLS = "io.modelcontextprotocol/skills"
NO_SKILL = "No skill is served at this URI. skills/list has those that are."
ONE_PAGE = "cursor is not valid: skills/list has one page. Leave it out."
SINCE = "2026-07-28"  # the first protocol version with cache lifetimes of results
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}  # like our other lists, it depends on the caller's tools


class GetSkillParams(types.RequestParams):
    """The parameters of `skills/get`."""

    uri: str


def skill_uri(server: ServerSettings) -> str:
    """The URI of the skill's only file."""
    return f"skill://{skill_name(server.name)}/SKILL.md"


def read_skill(server: ServerSettings, tools: Sequence[ToolSettings]) -> types.ReadResourceResult:
    """The file of the skill.

    Raises:
        NotFoundError: the caller has no tools, and so no skill.
    """
    if not tools:
        raise NotFoundError(NO_SKILL)
    text = skill(server.name, tools)
    file = types.TextResourceContents(uri=skill_uri(server), mime_type="text/markdown", text=text)
    return types.ReadResourceResult(contents=[file])


def skill_entry(server: ServerSettings, tools: Sequence[ToolSettings]) -> dict[str, Any]:
    """The skill in results: its front matter, and its files with their digests."""
    import yaml  # noqa: PLC0415 few clients ask, and the server starts faster without it

    text, uri = skill(server.name, tools), skill_uri(server)
    content = text.encode()
    file = {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
    return {"uri": uri, "frontmatter": yaml.safe_load(text.split("---\n")[1]), "resources": [file]}


def with_lifetime(context: ServerRequestContext[Any, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result of a method of skills, as long as it may be kept."""
    return result | NOT_KEPT if context.protocol_version >= SINCE else result

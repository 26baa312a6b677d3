"""Skills over MCP: the skill that teaches an agent to use this desk.

The extension is `io.modelcontextprotocol/skills` (SEP-2640). The server has one skill of one file:
the text that `refdesk-admin connect --skill` prints, with the tools that the caller may call. Clients ask for
it only if they know the extension. So it stands in no list of resources; whoever knows its URI can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcp import types

from rag.config.server_settings import ServerSettings, ToolSettings
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.agents import skill, skill_name

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

EXTENSION = "io.modelcontextprotocol/skills"
SCHEME = "skill://"
MIME_TYPE = "text/markdown"
NO_SKILL = "No skill is served at this URI. skills/list has those that are."
ONE_PAGE = "cursor is not valid: skills/list has one page. Leave it out."
SINCE = "2026-07-28"  # the protocol that says of each result how long it may be kept
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}  # as of our other lists: it depends on the caller's tools


class GetSkillParams(types.RequestParams):
    """The parameters of `skills/get`."""

    uri: str


def list_skills(
    context: ServerRequestContext[Any, Any],
    params: types.PaginatedRequestParams,
    server: ServerSettings,
    tools: Sequence[ToolSettings],
) -> dict[str, Any]:
    """The result of `skills/list`: the skill, or none for a caller without tools.

    Raises InvalidRequestError if the request is for another page.
    """
    if params.cursor is not None:
        raise InvalidRequestError(ONE_PAGE)
    return _result(context, {"skills": [_entry(server, tools)] if tools else []})


def get_skill(
    context: ServerRequestContext[Any, Any],
    params: GetSkillParams,
    server: ServerSettings,
    tools: Sequence[ToolSettings],
) -> dict[str, Any]:
    """The result of `skills/get`; raises NotFoundError if the caller has no such skill."""
    if not tools or params.uri != uri_of(server):
        raise NotFoundError(NO_SKILL)
    return _result(context, {"skill": _entry(server, tools)})


def uri_of(server: ServerSettings) -> str:
    """The URI of the skill's only file."""
    return f"{SCHEME}{skill_name(server.name)}/SKILL.md"


def read_skill(server: ServerSettings, tools: Sequence[ToolSettings]) -> types.ReadResourceResult:
    """The file of the skill; raises NotFoundError for a caller without tools, and so without a skill."""
    if not tools:
        raise NotFoundError(NO_SKILL)
    text = skill(server.name, tools)
    file = types.TextResourceContents(uri=uri_of(server), mime_type=MIME_TYPE, text=text)
    return types.ReadResourceResult(contents=[file])


def _entry(server: ServerSettings, tools: Sequence[ToolSettings]) -> dict[str, Any]:
    """The skill as results describe it: its front matter, and its files with their digests."""
    import yaml  # noqa: PLC0415 few clients ask, and the server starts faster without

    text, uri = skill(server.name, tools), uri_of(server)
    content = text.encode()
    file = {"uri": uri, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
    return {"uri": uri, "frontmatter": yaml.safe_load(text.split("---\n")[1]), "resources": [file]}


def _result(context: ServerRequestContext[Any, Any], result: dict[str, Any]) -> dict[str, Any]:
    return result | NOT_KEPT if context.protocol_version >= SINCE else result

"""What is published: extensions, and the tools, who may call which and what they reach through each.

A tool's binding becomes one of the caller's bindings, so that everything behind it obeys it by structure.
Resources and completions belong to no tool: through them a caller reaches what any of its tools may show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rag.config.published import FETCH, PAGE_PICTURE, SEARCH
from rag.corpus import Binding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.config.published import ServerSettings, ToolSettings
    from rag.config.settings import Settings
    from rag.corpus import Principal

OPEN = Binding()
BY_ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"
BY_CLIENT = "io.modelcontextprotocol/oauth-client-credentials"


def extensions(settings: Settings) -> dict[str, dict[str, object]]:
    """The extensions that a server over HTTP offers: ways to get a token that it accepts.

    Both are matters of the client and the issuer, and the tokens are like others. But one without a user
    counts only for clients that the settings list.
    """
    if "oauth" not in settings.http.authentication:
        return {}
    offered = (BY_ENTERPRISE, BY_CLIENT) if settings.oauth.clients else (BY_ENTERPRISE,)
    return {name: {} for name in offered}


def callable_tools(server: ServerSettings, principal: Principal) -> tuple[ToolSettings, ...]:
    """The search tools that the principal may call, each with its opener, in the order of the settings."""
    bound_to = [binding.tools for binding in principal.bindings if binding.tools is not None]
    return tuple(tool for tool in server.tools if all(tool.name in names for names in bound_to))


def through(principal: Principal, tool: ToolSettings) -> Principal:
    """The principal as it asks through a tool: bound as the tool is, too."""
    return _bound(principal, tool.binding)


def through_any(principal: Principal, tools: Sequence[ToolSettings]) -> Principal:
    """The principal as it reads resources: it reaches what at least one of the tools may show."""
    bindings = tuple(tool.binding for tool in tools)
    return principal if OPEN in bindings else _bound(principal, Binding(any_of=bindings))


def _bound(principal: Principal, binding: Binding) -> Principal:
    if binding == OPEN:
        return principal
    return replace(principal, bindings=(*principal.bindings, binding))


def fetches(server: ServerSettings, tool: ToolSettings) -> bool:
    """Whether `fetch`, too, opens what a search tool finds."""
    return server.openai_compat and tool.name == SEARCH


def search_names(server: ServerSettings) -> frozenset[str]:
    """The names of all search tools."""
    return frozenset(tool.name for tool in server.tools)


def opener_names(server: ServerSettings) -> frozenset[str]:
    """The names of all tools that open a document."""
    names = frozenset(tool.opener.name for tool in server.tools)
    names |= {FETCH} if server.openai_compat else set()
    return names | {PAGE_PICTURE} if server.apps else names

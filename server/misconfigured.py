"""A server in place of one that can't start. It answers every call with what is wrong.

Hosts show why a call failed, but seldom what a program wrote before it ended. So a local server whose
settings are wrong speaks the protocol all the same, and lists its tools, so that they can be called.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

from mcp import MCPError, types
from mcp.server.lowlevel import Server

from rag.access.names import DEFAULT_TENANT
from rag.config.published import ToolSettings
from rag.config.settings import Settings
from rag.corpus import Principal
from server import tools

if TYPE_CHECKING:
    from server.app import Context

EXPLANATION = "refdesk can't work, because its configuration is wrong. {} Correct that, then restart refdesk."


def create_misconfigured_server(mistake: str) -> Server[Any]:
    """A protocol server that knows nothing but the mistake, which its messages quote."""
    explanation = EXPLANATION.format(mistake)

    async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
        listed = tools.listed(Settings(), ToolSettings(), Principal(DEFAULT_TENANT), ())
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Context, _params: object) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=explanation)], is_error=True)

    async def list_prompts(_context: Context, _params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[tools.PROMPT])

    async def refuse(_context: Context, _params: object) -> NoReturn:
        raise MCPError(types.INTERNAL_ERROR, explanation)

    return Server(
        "refdesk",
        title="Reference desk",
        version=version("refdesk"),
        instructions=explanation,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=refuse,
        on_list_resources=refuse,
        on_list_resource_templates=refuse,
        on_read_resource=refuse,
        on_completion=refuse,
    )

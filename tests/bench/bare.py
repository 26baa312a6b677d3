"""A minimal server on the same SDK: its one tool makes the engine's calls. Run as a file, by process.py."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    from tests.bench.engine import Engine

CHECKOUT = Path(__file__).resolve().parents[2]
Context: TypeAlias = ServerRequestContext[Any, Any]
TOOL = types.Tool(name="search", description="Search.", input_schema={"type": "object"})


class Bare:
    """The handlers. The engine is imported and opened at the first search."""

    def __init__(self, data: Path, stack: AsyncExitStack) -> None:
        self._data = data
        self._stack = stack
        self._engine: Engine | None = None

    async def list_tools(self, _context: Context, _params: object) -> types.ListToolsResult:
        """tools/list."""
        return types.ListToolsResult(tools=[TOOL])

    async def call_tool(self, _context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """tools/call."""
        self._engine = self._engine or await self._opened()
        await self._engine.search("hybrid", (params.arguments or {})["query"])
        return types.CallToolResult(content=[types.TextContent(text="searched")])

    async def _opened(self) -> Engine:
        from rag.config.model_settings import EmbedderSettings  # noqa: PLC0415 the same
        from rag.models.embed import open_embedder  # noqa: PLC0415 not before the first answer
        from tests.bench.engine import open_engine  # noqa: PLC0415 the same

        embedder = await self._stack.enter_async_context(open_embedder(EmbedderSettings(), os.environ))
        return await open_engine(self._data, embedder)


async def serve(data: Path) -> None:
    """Serve until standard input ends."""
    async with AsyncExitStack() as stack, stdio_server() as (incoming, write):
        bare = Bare(data, stack)
        server: Server[Any] = Server("bare", on_list_tools=bare.list_tools, on_call_tool=bare.call_tool)
        await server.run(incoming, write, server.create_initialization_options())


if __name__ == "__main__":
    sys.path.append(str(CHECKOUT))
    anyio.run(serve, Path(sys.argv[1]))

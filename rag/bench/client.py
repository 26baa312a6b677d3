"""The installed server as a host has it: a process of its own, asked through the SDK's client."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp import Client, StdioServerParameters

from rag.bench.process import script
from rag.errors import RefdeskError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Call = Callable[..., Awaitable[object]]


@asynccontextmanager
async def connected(data: Path) -> AsyncIterator[Call]:
    """What calls a tool of a server on this data folder: `await call("search", query="…")`."""
    command, *arguments = script("refdesk", data)
    async with Client(StdioServerParameters(command=command, args=arguments)) as client:

        async def call(tool: str, **arguments: object) -> object:
            result = await client.call_tool(tool, arguments)
            if result.is_error:
                raise RefdeskError(f"The server answered {tool} with an error: {result.content}")
            return result

        yield call

"""The installed commands in child processes, which end with the block that uses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, StdioServerParameters

from rag.access.names import DEFAULT_TENANT
from rag.errors import ConfigurationError, RefdeskError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from anyio.abc import Process

    Call = Callable[..., Awaitable[object]]

BARE = Path(__file__).with_name("bare.py")
LONGEST_LINE = 10_000_000  # bytes of an answer
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "refdesk-admin bench", "version": "1"},
}


def script(name: str, data: Path, *arguments: str) -> list[str]:
    """The command line of an installed script, on a data folder and with empty settings.

    Raises:
        ConfigurationError: the script isn't installed.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(name, path=scripts)
    if path is None:
        raise ConfigurationError(f"The command {name} is not in {scripts}. Install refdesk completely.")
    settings = data.with_name("no-settings.toml")
    settings.touch()
    return [path, *arguments, "--config", str(settings), "--data", str(data)]


def bare_server(data: Path) -> list[str]:
    """The command line of the minimal server in bare.py."""
    return [sys.executable, "-P", str(BARE), str(data)]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that speaks MCP over stdio, driven with raw lines: no client is faster."""

    process: Process
    _lines: BufferedByteReceiveStream

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        """The result of a request.

        Raises:
            RefdeskError: the server answered with an error, or not at all.
        """
        try:
            await self._send({"id": 1, "method": method, "params": params})
            reply = json.loads(await self._lines.receive_until(b"\n", LONGEST_LINE))
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            raise RefdeskError("The measured server exited. Its own message stands above.") from error
        result: dict[str, Any] = reply.get("result", {"isError": True})
        if result.get("isError"):
            raise RefdeskError(f"The measured server answered {method} with an error: {reply}")
        return result

    async def begin(self) -> None:
        """Complete the handshake."""
        await self.ask("initialize", **INITIALIZE)
        await self._send({"method": "notifications/initialized"})

    async def search(self, query: str) -> None:
        """Call the search tool."""
        await self.ask("tools/call", name="search", arguments={"query": query})

    async def _send(self, message: dict[str, object]) -> None:
        assert self.process.stdin  # noqa: S101 it was opened with a pipe
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")


@asynccontextmanager
async def served(command: Sequence[str]) -> AsyncIterator[Server]:
    """A server that runs until the context ends. Its standard error is shown."""
    async with running(command, stderr=None) as process:
        assert process.stdout  # noqa: S101 it was opened with a pipe
        yield Server(process, BufferedByteReceiveStream(process.stdout))


@asynccontextmanager
async def connected(data: Path) -> AsyncIterator[Call]:
    """The SDK's client of a server on this data folder: `await call("search", query="…")`."""
    command, *arguments = script("refdesk", data)
    async with Client(StdioServerParameters(command=command, args=arguments)) as client:

        async def call(tool: str, **arguments: object) -> object:
            result = await client.call_tool(tool, arguments)
            if result.is_error:
                raise RefdeskError(f"The server answered {tool} with an error: {result.content}")
            return result

        yield call


@asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Process]:
    """A process with these environment variables, killed at the end of the context if it still runs."""
    env = environment() | dict(settings)
    async with await anyio.open_process(command, stderr=stderr, env=env) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def environment() -> dict[str, str]:
    """This process's environment without refdesk's settings, except for the default tenant."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REFDESK_")}
    return kept | {"REFDESK_PRINCIPAL_TENANT": DEFAULT_TENANT}

"""The installed commands in child processes, which end with the block that uses them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from rag.access.rule import DEFAULT_TENANT
from rag.errors import ConfigurationError, RefdeskError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from anyio.abc import Process


BARE = Path(__file__).with_name("bare.py")
SETTINGS = "settings.toml"
LONGEST_LINE = 10_000_000  # bytes of an answer
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "refdesk-admin bench", "version": "1"},
}


def script(name: str, data: Path, *arguments: str) -> list[str]:
    """The command line of an installed script, on a data folder and with empty settings beside it.

    Raises:
        ConfigurationError: the script isn't installed.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(name, path=scripts)
    if path is None:
        raise ConfigurationError(f"The command {name} is not in {scripts}. Install refdesk completely.")
    settings = data.with_name(SETTINGS)
    settings.touch()
    return [path, *arguments, "--config", str(settings), "--data", str(data)]


def bare_server(data: Path) -> list[str]:
    """The command line of the minimal server in bare.py."""
    return [sys.executable, "-P", str(BARE), str(data)]


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request, and the bytes of the line that brought it."""

    result: dict[str, Any]
    size: int


@dataclass(frozen=True, slots=True)
class Server:
    """A server that speaks MCP over stdio, driven with raw lines: no client is faster."""

    process: Process
    _lines: BufferedByteReceiveStream
    _ids: Iterator[int] = field(default_factory=itertools.count)
    _reading: anyio.Lock = field(default_factory=anyio.Lock)

    async def ask(self, method: str, **params: object) -> Reply:
        """The reply to a request. Of several at once, each gets whichever reply comes next.

        Raises:
            RefdeskError: the server answered with an error, or not at all.
        """
        try:
            await self._send({"id": next(self._ids), "method": method, "params": params})
            async with self._reading:
                line = await self._lines.receive_until(b"\n", LONGEST_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            raise RefdeskError("The measured server exited. Its own message stands above.") from error
        message = json.loads(line)
        result: dict[str, Any] = message.get("result", {"isError": True})
        if result.get("isError"):
            raise RefdeskError(f"The measured server answered {method} with an error: {message}")
        return Reply(result, len(line) + 1)

    async def begin(self) -> None:
        """Complete the handshake."""
        await self.ask("initialize", **INITIALIZE)
        await self._send({"method": "notifications/initialized"})

    async def call(self, tool: str, **arguments: object) -> Reply:
        """The reply of a tool."""
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def _send(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")


@asynccontextmanager
async def served(command: Sequence[str]) -> AsyncIterator[Server]:
    """A server that runs until the context ends. Its standard error is shown."""
    async with running(command, stderr=None) as process:
        assert process.stdout
        yield Server(process, BufferedByteReceiveStream(process.stdout))


@asynccontextmanager
async def connected(data: Path) -> AsyncIterator[Server]:
    """Our server on this data folder, after the handshake."""
    async with served(script("refdesk", data, "--alone")) as server:
        await server.begin()
        yield server


@asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    stdout: int = subprocess.PIPE,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Process]:
    """A process with these environment variables, killed at the end of the context if it still runs."""
    env = environment() | dict(settings)
    async with await anyio.open_process(command, stdout=stdout, stderr=stderr, env=env) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def environment() -> dict[str, str]:
    """This process's environment without refdesk's settings, except for the default tenant."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REFDESK_")}
    return inherited | {"REFDESK_PRINCIPAL_TENANT": DEFAULT_TENANT}

"""`refdesk-admin connect --check`: start the server by a host's entry, and see what the host would see."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, Tool

from rag.admin.command_line import same_desk
from rag.admin.connect.host_config import HostFile
from rag.admin.connect.known_hosts import Host
from rag.admin.terminal import echo, print_json
from rag.errors import ConfigurationError, RefdeskError
from rag.models import web_client

PATIENCE_SECONDS = 120  # a cold start on a slow disk takes some; mcp-remote is fetched first
SOCKETS = ("XDG_RUNTIME_DIR",)  # the variable by which hosts find the desk that they share
QUESTION = "What are these documents about?"
_REFERENCE = re.compile(r"\$\{(?P<kind>env:|input:)?(?P<name>\w+)\}")


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What a host sees of a server. `holds` is the search tool's sentence about the documents."""

    server: str
    protocol: str
    ready_seconds: float
    tools: list[str]
    holds: str
    search_seconds: float
    passages: int
    first: str


async def check_entry(file: HostFile, host: Host, name: str, key: Callable[[], str]) -> None:
    """Print what the host would see through its entry with this name.

    Raises:
        ConfigurationError: the entry is missing or incomplete.
        RefdeskError: the server can't be reached, or can't search.
    """
    entry = file.at((host.section, name))
    if not isinstance(entry, dict):
        raise ConfigurationError(
            f"{host.title} has no entry {name} in {file.path}. Leave out --check to add it."
        )
    session = await check_server(entry, key, sys.stderr)
    warning = hidden_tools_warning(host, entry)
    print_json({"host": host.name, "name": name, **asdict(session), "hidden_tools": warning})
    server = f"{session.server} (MCP {session.protocol})"
    echo(f"{host.title} reaches {server}, ready after {session.ready_seconds:.1f} s.")
    echo(f"Tools: {', '.join(session.tools)}")
    if warning:
        echo(warning)
    if not (session.holds or session.passages):
        echo(f"There are no documents yet that it may read. Add some: refdesk-admin ingest PATH{same_desk()}")
        return
    echo(session.holds or "The server doesn't say what it holds.")
    first = f", the first from {session.first}" if session.first else ""
    echo(f"A first search took {session.search_seconds:.1f} s and found {session.passages} passages{first}.")


def hidden_tools_warning(host: Host, entry: Mapping[str, Any]) -> str:
    """When the host doesn't show the tools to its model, and what helps; empty if we know of no such case."""
    lacking = {member: value for member, value in host.loads_tools.items() if entry.get(member) != value}
    if not lacking:
        return host.hides_tools
    return (
        f"{host.title} keeps these tools out of a conversation until its model looks for them, which it "
        f"seldom does. Add {json.dumps(lacking)[1:-1]} to the entry."
    )


def address_in(entry: Mapping[str, Any]) -> str:
    """The address that an entry leads to; empty if it starts a program."""
    return str(entry.get("url") or entry.get("serverUrl") or entry.get("uri") or "")


async def check_server(entry: dict[str, Any], key: Callable[[], str], log: TextIO) -> ServerCheck:
    """What a host with this entry sees. `key` is called if the host keeps the key itself.

    `log`, a real file, gets the log of a server that this starts.

    Raises:
        ConfigurationError: the entry is incomplete.
        RefdeskError: the server can't be reached, or can't search.
    """
    began = time.monotonic()
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with _client(entry, key, log) as client:
                tools = (await client.list_tools()).tools
                ready = time.monotonic()
                # The first one that takes a query: an operator can give it another name.
                tool = next(
                    (tool for tool in tools if "query" in tool.input_schema.get("properties", {})), None
                )
                result = await client.call_tool(tool.name, {"query": QUESTION}) if tool else None
                server, protocol = client.server_info, client.protocol_version
    except TimeoutError as error:
        raise RefdeskError(f"The server did not answer within {PATIENCE_SECONDS} seconds.") from error
    except (OSError, MCPError, ExceptionGroup) as error:
        raise RefdeskError(f"The server can't be reached: {_reason(error)}") from error
    if tool is None or result is None:
        raise RefdeskError("The server answers, but has no tool that searches.")
    if result.is_error:
        raise RefdeskError(f"The server answers, but can't search: {_text(result)}")
    passages = (result.structured_content or {}).get("results", [])
    return ServerCheck(
        server=f"{server.name} {server.version}" if server else "a server without a name",
        protocol=protocol,
        ready_seconds=round(ready - began, 2),
        tools=[tool.name for tool in tools],
        holds=_holds(tool),
        search_seconds=round(time.monotonic() - ready, 2),
        passages=len(passages),
        first=str(passages[0].get("cite_as") or passages[0].get("title", "")) if passages else "",
    )


def _holds(tool: Tool) -> str:
    """The last paragraph of the tool's description, if it is about the documents."""
    part = (tool.description or "").rpartition("\n\n")[2]
    return part if part.startswith("You can search") else ""


@asynccontextmanager
async def _client(entry: dict[str, Any], key: Callable[[], str], log: TextIO) -> AsyncIterator[Client]:
    if command := entry.get("command") or entry.get("cmd"):
        server = StdioServerParameters(
            command=str(command),
            args=[str(argument) for argument in entry.get("args") or ()],
            env={name: os.environ[name] for name in SOCKETS if name in os.environ}
            | {
                str(name): str(value) for name, value in (entry.get("env") or entry.get("envs") or {}).items()
            },
            cwd=Path.home().anchor,  # a host starts it anywhere, and relative paths lead nowhere then
        )
        async with Client(stdio_client(server, errlog=log)) as client:
            yield client
        return
    url = address_in(entry)
    if not url:
        raise ConfigurationError("The entry has neither a command nor an address.")
    async with (
        web_client.client(headers=_headers(entry, key), timeout=PATIENCE_SECONDS) as http,
        Client(streamable_http_client(str(url), http_client=http)) as client,
    ):
        yield client


def _headers(entry: dict[str, Any], key: Callable[[], str]) -> dict[str, str]:
    """The headers of an entry, with the variables that they name replaced by their values."""

    def value(match: re.Match[str]) -> str:
        if match["kind"] == "input:":
            return key()
        if match["name"] not in os.environ:
            raise ConfigurationError(
                f"{match['name']} is not set here. Set it to the key, for the host, too."
            )
        return os.environ[match["name"]]

    headers = entry.get("headers") or entry.get("http_headers") or {}
    if variable := entry.get("bearer_token_env_var"):
        headers = {"Authorization": f"Bearer ${{{variable}}}"}
    return {str(name): _REFERENCE.sub(value, str(header)) for name, header in headers.items()}


def _reason(error: BaseException) -> str:
    """The cause within exception groups, on one line."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, OSError | MCPError | httpx2.HTTPError):
        raise error
    return f"{error.strerror}." if isinstance(error, OSError) and error.strerror else f"{error}."


def _text(result: CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))

"""Parsers that can be made to hang or to eat memory run in a process of their own, with limits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio import to_process, to_thread

from rag.errors import ParseError
from rag.ingest.parse import parse

if TYPE_CHECKING:
    from rag.records import Document

MEMORY_BYTES = 1 << 30
SANDBOXED = (".pdf", ".html", ".htm", ".xhtml")  # their parsers can be made to take quadratic time
LARGE_BYTES = 1_000_000  # from here on the others, too, can be made to eat memory


async def parse_safely(
    data: bytes, name: str, *, timeout_seconds: float, memory_bytes: int = MEMORY_BYTES
) -> Document:
    """Parse a file off the event loop, within limits where its format or size is risky.

    Raises:
        ParseError: it can't be parsed, or not within the limits.
    """
    if len(data) < LARGE_BYTES and not name.lower().endswith(SANDBOXED):
        return await to_thread.run_sync(parse, data, name)
    try:
        with anyio.fail_after(timeout_seconds):
            return await to_process.run_sync(_parse_limited, data, name, memory_bytes, cancellable=True)
    except TimeoutError as error:
        raise ParseError(f"parsing took over {timeout_seconds:g} s (ingest.parse_timeout_seconds)") from error
    except (anyio.BrokenWorkerProcess, MemoryError) as error:
        raise ParseError(f"parsing crashed or needed over {memory_bytes >> 20} MB of memory") from error


def _parse_limited(data: bytes, name: str, memory_bytes: int) -> Document:
    # Windows has no limits, macOS refuses this one: there the time limit stands alone.
    with suppress(ImportError, ValueError):
        import resource  # noqa: PLC0415 see above

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    return parse(data, name)

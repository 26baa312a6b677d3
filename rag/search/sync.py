"""The desk for scripts and notebooks: the same methods, without `await`.

with SyncDesk.open(Settings.load()) as desk:
    answer = desk.search(Principal("default"), "who invented the pendulum clock?", limit=3)
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import start_blocking_portal

from rag.answers import Answer, Context
from rag.config.settings import Settings
from rag.search.desk import Desk

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _blocking(
    method: Callable[Concatenate[Desk, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[SyncDesk, Arguments], Result]:
    """A method of `Desk` as one that waits for its result."""

    @wraps(method)
    def call(desk: SyncDesk, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        return desk.portal.call(partial(method, desk.desk, *arguments, **named))

    return call


class SyncDesk:
    """A `Desk` with an event loop in a thread of its own, so it also works inside a running loop.

    Each method does and raises what the method of this name of `Desk` does. Safe to share between threads.
    Hooks can be set on `desk`.
    """

    def __init__(self, desk: Desk, portal: BlockingPortal) -> None:
        self.desk = desk
        self.portal = portal

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[SyncDesk]:
        """Open the desk; the thread ends with the block. `environment` holds the keys of remote models."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(Desk.open(settings, environment)) as desk,
        ):
            yield cls(desk, portal)

    search = _blocking(Desk.search)
    why_not = _blocking(Desk.why_not)
    with_warnings = _blocking(Desk.with_warnings)
    extract = _blocking(Desk.extract)
    page = _blocking(Desk.page)
    listing = _blocking(Desk.listing)
    collections = _blocking(Desk.collections)
    sources = _blocking(Desk.sources)

    def as_context(self, answer: Answer, *, tokens: int | None = None) -> Context:
        """The hits as one text for a prompt, within a token budget."""
        return self.desk.as_context(answer, tokens=tokens)

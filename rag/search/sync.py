"""The desk for scripts and notebooks: the same methods, without `await`.

with SyncDesk.open(Settings.load()) as desk:
    answer = desk.search(Principal("default"), "who invented the pendulum clock?", limit=3)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Unpack

from anyio.from_thread import start_blocking_portal

from rag.answers import WHOLE, Answer, Context, Extract, Part, RequestValues, SearchRequest
from rag.config.settings import Settings
from rag.corpus import Collection, Principal, Source
from rag.search.browse import MAX_ENTRIES, Folder
from rag.search.desk import Desk
from rag.search.why import SourceTrace

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from rag.search.page_picture import Page


class SyncDesk:
    """A `Desk` with an event loop in a thread of its own, so it also works inside a running loop.

    Each method does and raises what the method of this name of `Desk` does. Safe to share between threads.
    Hooks can be set on `desk`.
    """

    def __init__(self, desk: Desk, portal: BlockingPortal) -> None:
        self.desk = desk
        self._portal = portal

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[SyncDesk]:
        """Open the desk; the thread ends with the block. `environment` holds the keys of remote models."""
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(Desk.open(settings, environment)) as desk,
        ):
            yield cls(desk, portal)

    def search(
        self,
        principal: Principal,
        query: SearchRequest | str,
        *,
        trace: bool = False,
        **values: Unpack[RequestValues],
    ) -> Answer:
        """The best hits, and notes that their reader must know."""
        return self._portal.call(partial(self.desk.search, principal, query, trace=trace, **values))

    def why_not(self, principal: Principal, request: SearchRequest, id_: str) -> tuple[Answer, SourceTrace]:
        """A search with its trace, and what happened in it to a source."""
        return self._portal.call(self.desk.why_not, principal, request, id_)

    def with_warnings(self, answer: Answer) -> Answer:
        """The answer with the changed and missing files of its hits, and with their flags."""
        return self._portal.call(self.desk.with_warnings, answer)

    def as_context(self, answer: Answer, *, tokens: int | None = None) -> Context:
        """The hits as one text for a prompt, within a token budget."""
        return self.desk.as_context(answer, tokens=tokens)

    def extract(self, principal: Principal, id_: str, *, max_chars: int, part: Part = WHOLE) -> Extract:
        """A window on a source."""
        return self._portal.call(partial(self.desk.extract, principal, id_, max_chars=max_chars, part=part))

    def page(self, principal: Principal, id_: str, number: int | None = None) -> Page:
        """A page of a document as a picture, with the passage marked that `id_` names."""
        return self._portal.call(self.desk.page, principal, id_, number)

    def listing(
        self, principal: Principal, path: str = "", *, after: str | None = None, limit: int = MAX_ENTRIES
    ) -> Folder:
        """A page of a folder: "handbook/leave"; an empty path is the list of collections."""
        return self._portal.call(partial(self.desk.listing, principal, path, after=after, limit=limit))

    def collections(self, principal: Principal) -> tuple[Collection, ...]:
        """The collections in which the principal may read anything, ordered by name."""
        return self._portal.call(self.desk.collections, principal)

    def sources(self, principal: Principal, *, after: tuple[str, str] = ("", ""), limit: int) -> list[Source]:
        """Up to `limit` readable sources after (collection, source id), ordered by the two."""
        return self._portal.call(partial(self.desk.sources, principal, after=after, limit=limit))

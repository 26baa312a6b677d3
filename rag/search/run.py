"""What the steps of one search share: its plan, its models, and what they have to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag.answers import Answer, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Context, Hit, Listing, SubQuery
    from rag.models.chat import Chat
    from rag.models.embed import Embedder
    from rag.models.rerank import Reranker
    from rag.search.gate import Alarm
    from rag.search.plan import Plan
    from rag.search.trace import Steps
    from rag.search.view import View


@dataclass(frozen=True, slots=True)
class Models:
    """The models that a search may call. A profile's stages name only models that are there."""

    embedder: Embedder
    chat: Chat | None = None
    reranker: Reranker | None = None


@dataclass(slots=True)
class Run:
    """One search while it runs. `views` are the collections that it looks at, as its principal sees them.

    Steps add to `notes`, which the reader of the answer must know. `queries` and `listings` are for the
    trace; `listings` hold only chunks that the gate admitted.
    """

    plan: Plan
    views: Sequence[View]
    models: Models
    alarm: Alarm
    steps: Steps
    notes: list[str] = field(default_factory=list)
    queries: Sequence[SubQuery] = ()
    listings: Mapping[str, tuple[Listing, ...]] = field(default_factory=dict)

    def note(self, notes: Iterable[str]) -> None:
        """Add notes for the reader of the answer."""
        self.notes.extend(notes)

    def answer(self, hits: Sequence[Hit], context: Context | None) -> Answer:
        """The answer with these hits."""
        trace = Trace(tuple(self.queries), self.listings) if self.steps.detailed else None
        return Answer(tuple(hits), tuple(self.notes), context, self.steps.ended(), trace)

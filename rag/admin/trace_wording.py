"""How a search's trace says where things stand and what they took, on a terminal and on a page."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

from rag.answers import Usage
from rag.hidden import in_one_line
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit, Listing, Stage, SubQuery


def one_line(text: str) -> str:
    """All of a text on one line with single blanks; terminals take nothing in it for a command."""
    return " ".join(in_one_line(text).split())


def place(hit: Hit) -> str:
    """Where a hit stands: its title, section and page."""
    return ", ".join(place_parts(hit))


def place_parts(hit: Hit) -> list[str]:
    """Title, section and page, as far as there are such."""
    path = hit.chunk.section[1:] if hit.chunk.section[:1] == (hit.source.title,) else hit.chunk.section
    page = f"p. {hit.chunk.page}" if hit.chunk.page else ""
    return [part for part in (label(hit.source.title), label(" > ".join(path)), page) if part]


def query_details(query: SubQuery) -> str:
    """What there is to say of a query beside its text: 'weight 0.70, in handbook, where {"year": 2020}'."""
    said = [f"weight {query.weight:.2f}"] if query.weight != 1 else []
    if query.collections:
        said.append(f"in {', '.join(query.collections)}")
    if query.filter is not None:
        said.append(f"where {label(json.dumps(query.filter, ensure_ascii=False, default=str))}")
    return ", ".join(said)


def listings_said(listings: Sequence[Listing], *, queries: int) -> str:
    """Example: "dense 3 (0.43), sparse 1 (1.00)"; of several queries each is named."""
    by_query = sorted(listings, key=lambda one: (one.query, one.list))
    said = []
    for query, of_query in groupby(by_query, key=lambda one: one.query):
        places = ", ".join(f"{one.list} {one.rank} ({one.score:.2f})" for one in of_query)
        said.append(f"query {query + 1}: {places}" if queries > 1 else places)
    return "; ".join(said)


def way_said(changes: Sequence[tuple[str, int | None]]) -> str:
    """Example: ("fuse", 3), ("rerank", 1), ("limit", None) -> "fuse 3 → rerank 1 → limit out"."""
    return " → ".join(f"{name} {rank or 'out'}" for name, rank in changes)


def all_used(stages: Sequence[Stage]) -> Usage | None:
    """What all stages used together; None if no model was asked that counts."""
    used = [stage.usage for stage in stages if stage.usage]
    return sum(used, Usage()) if used else None


def tokens(usage: Usage | None) -> str:
    """Example: "412 in, 96 out"."""
    return f"{usage.input_tokens} in, {usage.output_tokens} out" if usage else ""


def cost(usage: Usage | None) -> str:
    """The cost by the settings' prices; nothing if they name none."""
    return f"{usage.cost:.4f}" if usage and usage.cost else ""


def milliseconds(seconds: float) -> str:
    """Example: 0.0123 -> "12.3"."""
    return f"{1000 * seconds:.1f}"


def counts(stage: Stage) -> str:
    """How many queries or hits came in and went out: "30 → 8"."""
    return " → ".join(str(count) for count in (stage.before, stage.after) if count is not None)

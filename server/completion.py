"""Completes what a person types into a resource template or into the prompt, from what they may read.

Collections, sources, passages, and declared fields with their values. All of it has passed the gate, so no
completion and no total tells of anything that the principal can't read.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from mcp import types

from rag.search.reply.untrusted import label
from server import resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.corpus import Principal
    from rag.search.desk import Desk
    from rag.search.readable_overview import Holding, Single

MAX_COMPLETIONS = 100  # the protocol's own limit
MAX_TYPED = 200  # characters: no name is longer
TEMPLATE_ARGUMENTS = {"collection", "source_id", "seq"}
PROMPT_ARGUMENTS = {"collection", "filter"}


def completion(values: Sequence[str] = (), *, more: bool = False) -> types.CompleteResult:
    """The first values. If there are `more` than these, nobody knows how many."""
    shown = list(values[:MAX_COMPLETIONS])
    total = None if more else len(values)
    has_more = more or len(values) > len(shown)
    return types.CompleteResult(completion=types.Completion(values=shown, total=total, has_more=has_more))


def completes(params: types.CompleteRequestParams) -> bool:
    """Whether the argument is one that is completed. If not, nobody has to open the desk."""
    if len(params.argument.value) > MAX_TYPED:
        return False
    if isinstance(params.ref, types.ResourceTemplateReference):
        return params.ref.uri in resources.URI_TEMPLATES and params.argument.name in TEMPLATE_ARGUMENTS
    return params.ref.name == "answer" and params.argument.name in PROMPT_ARGUMENTS


async def completed(
    desk: Desk, principal: Principal, params: types.CompleteRequestParams
) -> types.CompleteResult:
    """What completes the argument. The arguments chosen before narrow it: a collection, a source."""
    typed, chosen = params.argument.value, (params.context and params.context.arguments) or {}
    match params.argument.name:
        case "collection":
            readable = await desk.collections(principal)
            return completion([one.name for one in readable if one.name.startswith(typed)])
        case "source_id":
            found = await desk.beginning(principal, typed, chosen.get("collection"))
            return completion([source.id for source in found])
        case "seq":
            return completion(await _passages(desk, principal, typed, chosen))
    overview = await desk.overview(principal)
    named = [one for one in overview if chosen.get("collection") in {None, one.collection.name}]
    name, equals, beginning = typed.partition("=")
    return _values(named, name, beginning.lower()) if equals else completion(_fields(named, name))


async def _passages(desk: Desk, principal: Principal, typed: str, chosen: Mapping[str, str]) -> Sequence[str]:
    """The numbers of the passages of the source that was chosen."""
    id_ = chosen.get("source_id", "")
    found = await desk.beginning(principal, id_, chosen.get("collection")) if id_ else []
    counts = [source.chunk_count for source in found if source.id == id_]
    return [number for number in map(str, range(sum(counts))) if number.startswith(typed)]


def _fields(overview: Sequence[Holding], typed: str) -> Sequence[str]:
    """The names of fields, to be followed by a value: "st" -> ["status="]."""
    names = {name for one in overview for name in one.fields if name.startswith(typed)}
    return [f"{name}=" for name in sorted(names)]


def _values(overview: Sequence[Holding], name: str, beginning: str) -> types.CompleteResult:
    """The values of a field, most frequent first: "status=F" -> ["status=final"]."""
    fields = [one.fields[name] for one in overview if name in one.fields]
    counts: Counter[str] = Counter()
    for value, count in (pair for field in fields for pair in field.frequent):
        if (shown := _shown(value)) and shown.lower().startswith(beginning):
            counts[shown] += count
    ranked = sorted(counts, key=lambda shown: (-counts[shown], shown))
    more = any(field.distinct > len(field.frequent) for field in fields)
    return completion([f"{name}={shown}" for shown in ranked], more=more)


def _shown(value: Single) -> str:
    """A value as it can be typed; empty for text that can't be shown on a line as it is."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case str():
            return value if label(value) == value else ""
    return str(value)

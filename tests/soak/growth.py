"""How the time of a search grows with the collection, against the smallest one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

from rag.answers import Mode, SearchRequest
from tests.bench.corpus import QUESTIONS
from tests.bench.measure import measured
from tests.bench.search import PRINCIPAL, desk_on
from tests.bench.stock import stocked
from tests.bench.timing import interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.search.desk import Desk
    from tests.bench.measure import Measure
    from tests.bench.stock import Bench


async def measure_growth(bench: Bench, sizes: Sequence[int]) -> list[Measure]:
    """Warm searches of each mode in collections of so many chunks each."""
    desks = {size: desk_on(bench, await stocked(bench, size)) for size in sizes}
    measures = []
    for mode in get_args(Mode):
        bench.say(f"searching collections of every size in mode {mode}")
        searches = {size: partial(_search, desk, mode) for size, desk in desks.items()}
        took = await interleaved(searches, QUESTIONS, bench.sizes.searches)
        measures += [
            measured(f"growth/{mode}/{size} chunks", times, "ms", took[min(took)])
            for size, times in took.items()
        ]
    return measures


async def _search(desk: Desk, mode: Mode, query: str) -> None:
    await desk.search(PRINCIPAL, SearchRequest(query, mode=mode))

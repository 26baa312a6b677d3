"""The stage `custom` of hits: a function of the operator's own orders, scores anew or leaves out."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

import anyio

from rag.records import Hit
from rag.search.custom import CustomError, outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.profiles import CustomStage
    from rag.search.stages import Step

FAILED = "The stage {} failed ({}); the passages are as they were before it."


async def custom_hits(hits: Sequence[Hit], stage: CustomStage, query: str, step: Step) -> list[Hit]:
    """What `function(query, hits, options)` makes of the hits; if that is none, they stay, with a warning.

    It may return any of them once, in any order, each with another score of at most 1, and nothing else.

    Raises:
        ConfigurationError: there is no such function.
    """
    try:
        with anyio.fail_after(stage.timeout_seconds):
            made = await outcome(stage, query, tuple(hits))
    except TimeoutError:
        cause = f"no answer within {stage.timeout_seconds:g} seconds"
    except CustomError as error:
        cause = str(error).removesuffix(".")
    else:
        if isinstance(made, list | tuple) and _are_some_of(made, hits):
            given = {hit.chunk.id: hit for hit in hits}
            return [replace(given[one.chunk.id], score=float(one.score)) for one in made]
        cause = "it returned something else than hits of those that it was given"
    step.warns(FAILED.format(stage.call, cause), failed=True)
    return list(hits)


def _are_some_of(made: Sequence[object], hits: Sequence[Hit]) -> bool:
    """Whether all are hits that were given, but for their scores, and none is there twice."""
    given = {hit.chunk.id: hit for hit in hits}
    for one in made:
        if not (isinstance(one, Hit) and isinstance(one.score, Real) and -inf < one.score <= 1):
            return False
        before = given.pop(one.chunk.id, None)
        if before is None or replace(one, score=before.score) != before:
            return False
    return True

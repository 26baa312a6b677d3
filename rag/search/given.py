"""A search by a vector that the request brings, instead of one that the embedding model makes of its query.

It is for what a query can't say, and for what was embedded elsewhere. No embedding model is called, so what
needs one for other texts is left out: stages that add queries, and comparing sentences by their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rag.config.profiles import CompressStage, RerankStage
from rag.corpus import NO_VECTORS
from rag.errors import InvalidRequestError
from rag.search.recall import Meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from rag.search.plan import Plan
    from rag.search.run import OpenStep, Run

OTHER_LENGTH = {
    "hybrid": "Searched by words alone, because they have no vectors as long as the one given: {}.",
    "dense": "Not searched, because they have no vectors as long as the one given: {}.",
    "sparse": "Some results have no similarity, because they have no vectors as long as the one given: {}.",
}
SKIPPED = "These stages were skipped, because the request brings a vector: {}."
FIRST_SENTENCES = "Snippets without a word of the query are the first sentences of their passages."
MAX_DIMENSION = 8192  # as of embedder.dimensions


@dataclass(frozen=True, slots=True)
class Given:
    """A vector of unit length, and the names of the stages that can't run with it."""

    vector: npt.NDArray[np.float32]
    skipped: tuple[str, ...] = ()


def with_vector(plan: Plan, numbers: Sequence[float]) -> Plan:
    """The plan of a request that brings a vector, without the stages that can't run with it.

    Raises:
        InvalidRequestError: the vector is no use.
    """
    if plan.mode not in {"dense", "sparse", "hybrid"}:
        raise InvalidRequestError(f"mode {plan.mode} doesn't use a vector. Leave the vector out.")
    need_text = (CompressStage,) if plan.query else (CompressStage, RerankStage)
    kept = tuple(stage for stage in plan.hit_stages if not isinstance(stage, need_text))
    skipped = [stage.stage for stage in (*plan.query_stages, *plan.hit_stages) if stage not in kept]
    given = Given(unit_vector(numbers), tuple(dict.fromkeys(skipped)))
    return replace(plan, given=given, query_stages=(), hit_stages=kept)


def unit_vector(numbers: Sequence[float]) -> npt.NDArray[np.float32]:
    """A vector scaled to unit length. Example: [3, 4] -> [0.6, 0.8].

    Raises:
        InvalidRequestError: it is no list of 1 to 8192 finite numbers, or all of them are 0.
    """
    try:
        vector = np.asarray(numbers)
    except ValueError as error:  # lists of different lengths
        raise InvalidRequestError("vector must be a list of numbers.") from error
    if vector.ndim != 1 or vector.dtype.kind not in "iuf":
        raise InvalidRequestError("vector must be a list of numbers.")
    if not 1 <= len(vector) <= MAX_DIMENSION:
        raise InvalidRequestError(f"vector must have from 1 to {MAX_DIMENSION} numbers, not {len(vector)}.")
    vector = vector.astype(np.float64)
    largest = np.abs(vector).max()
    if not np.isfinite(largest):
        raise InvalidRequestError("vector must have finite numbers only, no nan or inf.")
    if not largest:
        raise InvalidRequestError("vector must not be all zeros: it points nowhere.")
    vector /= largest  # so that squares neither overflow nor vanish
    unit: npt.NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def meanings_of_vector(given: Given, run: Run, step: OpenStep) -> Mapping[str, Meaning]:
    """The meaning of a given vector for the collections that it compares with, by the names of embedders.

    Adapts the run's views. The embedders need not be in the settings, because none is called.

    Raises:
        InvalidRequestError: none of the collections has vectors of this length, or one that is named hasn't,
            or those that have are of several models.
    """
    dimension, collections = len(given.vector), [view.table.collection for view in run.views]
    theirs = [
        one for one in collections if one.embedder.dimension == dimension and one.embedder != NO_VECTORS
    ]
    others = [one for one in collections if one not in theirs]
    if not theirs or (others and run.plan.names_collections):
        lengths = ", ".join(
            f"{one.name}: {'none' if one.embedder == NO_VECTORS else one.embedder.dimension}"
            for one in others
        )
        raise InvalidRequestError(
            f"The vector has {dimension} dimensions; the vectors of these collections have others: {lengths}."
        )
    if any(one.embedder != theirs[0].embedder for one in theirs):
        raise InvalidRequestError(
            f"Several models made the vectors with {dimension} dimensions, and a vector can be of one only. "
            f"Name collections of one model. These are of several: {', '.join(one.name for one in theirs)}."
        )
    asked = {view.table.collection.name for view in run.views if view.table.retrieves}
    dense = run.plan.mode == "dense"
    _note(given, [one.name for one in others if dense or one.name not in asked], run, step)
    views = [replace(view, comparable=view.table.collection in theirs) for view in run.views]
    run.views = [view for view in views if view.comparable or run.plan.mode != "dense"]
    return {
        one.embedder_name: Meaning(given.vector, scale=run.scale_of(one.embedder_name), given=True)
        for one in theirs
    }


def _note(given: Given, others: Sequence[str], run: Run, step: OpenStep) -> None:
    if others:
        step.warns(OTHER_LENGTH[run.plan.mode].format(", ".join(others)))
    if given.skipped:
        step.warns(SKIPPED.format(", ".join(given.skipped)))
    if run.plan.detail == "snippet":
        step.warns(FIRST_SENTENCES)

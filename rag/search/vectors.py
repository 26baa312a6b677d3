"""The vectors of a search's queries, and a search without them or with few of them.

Only the dense list and the similarities need vectors. So if the embedding model fails, mode sparse finds the
same without similarities, and mode hybrid goes by words alone, if the plan allows it. Only mode dense fails.
In the same way, a collection whose vectors another model made has no dense list.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from rag.errors import ProviderError
from rag.models.breaker import note_failure
from rag.store.catalog import check_embedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import EmbedderIdentity, Vectors
    from rag.models.embed import Embedder
    from rag.search.plan import Plan
    from rag.search.run import OpenStep, Run
    from rag.search.view import View

HURRIED_SECONDS = 1.0  # for a remote model, in a search that can do without it
PATIENT_SECONDS = 20.0  # in one that can't; less than the server gives a request, so that it can say why

WORDS_ALONE = (
    "The embedding model is not available just now, so this search went by words alone. Passages that say it "
    "in other words may be missing. Try again in a minute, or use the words of the text."
)
NO_SIMILARITIES = "The embedding model is not available just now, so the results have no similarities."
NO_THRESHOLDS = "Without similarities, the thresholds for them don't apply."
OTHER_MODEL = {
    "hybrid": "Searched by words alone, because another embedding model made their vectors: {}.",
    "dense": "Not searched, because another embedding model made their vectors: {}. "
    "Mode sparse searches them, and hybrid, too.",
    "sparse": "Results have no similarity in collections whose vectors another embedding model made: {}.",
}
"""The note on collections whose vectors are not comparable with those of the queries, by mode."""

log = logging.getLogger(__name__)


async def query_vectors(texts: Sequence[str], run: Run, step: OpenStep) -> Vectors | None:
    """The vectors of the queries; None if the search goes without. Adapts the run's plan and views to that.

    Raises:
        ProviderError: the embedding model failed, and the search can't do without it.
        ConfigurationError: the request names a collection for mode dense that another model made.
    """
    _set_apart(run, run.models.embedder.identity)
    vectors = None
    if any(view.comparable for view in run.views):
        try:
            vectors = await _embedded(texts, run)
        except ProviderError as error:
            if _is_needed(run.plan):
                raise ProviderError(str(error), for_caller=_advice(error, run.plan)) from error
            note_failure(log, error)
            _go_without(run, step)
            return None
    _note_others(run, step)
    return vectors


def is_remote(embedder: Embedder) -> bool:
    """Whether the model is behind an endpoint, so that it can fail and be slow."""
    return embedder.identity.provider == "openai"


def _is_needed(plan: Plan) -> bool:
    """Whether the plan can't do without vectors."""
    return plan.mode == "dense" or (plan.mode == "hybrid" and not plan.degrade)


async def _embedded(texts: Sequence[str], run: Run) -> Vectors:
    embedder, seconds = run.models.embedder, None
    if is_remote(embedder):
        seconds = PATIENT_SECONDS if _is_needed(run.plan) else HURRIED_SECONDS
    try:
        with anyio.fail_after(seconds):
            vectors = await embedder.embed(texts, "query")
    except TimeoutError as error:
        raise ProviderError(
            f"The embedding model gave no answer within {seconds:g} seconds.",
            for_caller="The embedding model gave no answer in time.",
        ) from error
    dimension = vectors.shape[1]
    if not any(
        view.table.collection.embedder.dimension == dimension for view in run.views if view.comparable
    ):
        raise ProviderError(
            f"The embedding model {embedder.identity.model} returned vectors with {dimension} dimensions; no "
            "collection that this search covers has such vectors.",
            for_caller="The embedding model gave an invalid answer.",
        )
    if dimension != embedder.identity.dimension:  # it was not known before
        _set_apart(run, replace(embedder.identity, dimension=dimension))
    return vectors


def _set_apart(run: Run, identity: EmbedderIdentity) -> None:
    """Mark the views whose vectors another model made."""
    run.views = [_marked(view, identity) for view in run.views]
    if run.plan.mode == "dense" and run.plan.names_collections:
        for view in run.views:
            check_embedder(view.table.collection, identity)


def _marked(view: View, identity: EmbedderIdentity) -> View:
    theirs = view.table.collection.embedder
    return replace(view, comparable=theirs == identity or theirs.may_compare(identity))


def _go_without(run: Run, step: OpenStep) -> None:
    hybrid = run.plan.mode == "hybrid"
    step.warns(WORDS_ALONE if hybrid else NO_SIMILARITIES, failed=True)
    run.degraded.append("dense" if hybrid else "similarity")
    run.plan = replace(run.plan, mode="sparse")
    if run.plan.has_thresholds:
        step.warns(NO_THRESHOLDS)


def _note_others(run: Run, step: OpenStep) -> None:
    """Say which collections another model made; mode dense leaves them out."""
    mode, others = run.plan.mode, [view.table.collection for view in run.views if not view.comparable]
    if not others:
        return
    for collection in others:
        log.warning(
            "The collection %r was made with another embedder than [embedder] names, so it has no dense list",
            collection.name,
        )
    step.warns(OTHER_MODEL[mode].format(", ".join(one.name for one in others)))
    run.degraded.append("similarity" if mode == "sparse" else "dense")
    if mode == "dense":
        run.views = [view for view in run.views if view.comparable]


def _advice(error: ProviderError, plan: Plan) -> str:
    """What a caller reads: what is wrong, and what it can do."""
    other = ", or search in mode sparse" if "mode" in plan.overrides else ""
    return f"{error.for_caller} There is no search by meaning without it. Try again in a minute{other}."

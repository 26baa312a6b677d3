"""The vectors of a search's queries: from embedding models, or the one that the request brings.

The models of the searched collections run concurrently, each with all queries in one batch.

Only the dense ranking and the similarities need vectors. If a model fails, mode sparse finds the same without
similarities, and mode hybrid falls back to words if the plan allows it; only mode dense fails. With several
models, that applies to the collections of the failing one. A collection whose vectors another model made, or
whose embedder the settings lack, has no dense ranking either.

With a vector in the request, no model is called, and what would need one for other texts is left out: stages
that add queries, and comparing sentences by meaning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio
from anyio import to_thread

from rag.corpus import NO_VECTORS, Calibration, Collection, EmbedderIdentity, Vectors
from rag.errors import ConfigurationError, InvalidRequestError, NotReadyError, ProviderError
from rag.models.breaker import note_failure
from rag.models.embed import Embedder, mean_query
from rag.runtime import concurrently, grouped
from rag.search.recall import Meaning
from rag.search.search_plan import RequestVector, SearchPlan
from rag.search.search_state import OpenStep, SearchState
from rag.search.view import joined_names
from rag.store.read.catalog import check_embedder

HURRIED_SECONDS = 1.0  # for a remote model, in a search that can do without it
PATIENT_SECONDS = 20.0  # in one that can't; below the server's request timeout, so that the reply can say why

WORDS_ALONE = (
    "The embedding model is not available just now, so this search went by words alone. Passages that say it "
    "in other words may be missing. Try again in a minute. If it goes on, tell the operator."
)
NO_SIMILARITIES = "The embedding model is not available just now, so the results have no similarities."
NO_THRESHOLDS = "Without similarities, the thresholds for them don't apply."
NOT_BY_MEANING = {
    "hybrid": "Searched by words alone, because {}: {}.",
    "dense": "Not searched, because {}: {}. Mode sparse searches them, and hybrid, too.",
    "sparse": "Some results have no similarity, because {}: {}.",
}
"""The note on collections for which there are no vectors of the queries, by mode."""
OTHER_MODEL = "another embedding model made their vectors"
NOT_SET_UP = "their embedding model is not set up"
AWAY = "their embedding model is not available just now"
NO_VECTORS_THERE = "they have no vectors"
NOT_BY_WORDS = {
    "hybrid": "Searched by meaning alone, because they have no full-text index: {}.",
    "sparse": "Not searched, because they have no full-text index: {}. Mode dense searches them.",
}
"""The note on attached tables without a full-text index, by mode."""
NEITHER = "Not searched, because they have no full-text index, and no vectors of an embedding model: {}."
OTHER_LENGTH = "they have no vectors as long as the one given"
SKIPPED = "These stages were skipped, because the request brings a vector: {}."
FIRST_SENTENCES = "Snippets without a word of the query are the first sentences of their passages."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddedQueries:
    """The vectors of a search's queries, from one embedder.

    `identity` is None if the settings lack the embedder or it can't be loaded. `vectors` is None if it failed
    with `trouble`, or if no searched collection has vectors of its identity.
    """

    identity: EmbedderIdentity | None = None
    vectors: Vectors | None = None
    known_shares: tuple[float, ...] = ()
    trouble: ProviderError | None = None

    def suits(self, collection: Collection) -> bool:
        """Whether the collection's vectors are comparable with these."""
        return self.vectors is not None and _is_comparable(collection, self.identity)


async def query_meanings(
    texts: Sequence[str], state: SearchState, step: OpenStep
) -> tuple[SearchState, list[Mapping[str, Meaning]]]:
    """The state with the mode and views that the vectors allow, and the meanings of each text, by embedder.

    A model that fails has no meanings.

    Raises:
        ProviderError: an embedding model failed, and the search can't do without it.
        InvalidRequestError: the request's vector compares with no collection, or not with a named one, or
            with vectors of several models.
        ConfigurationError: another model made a collection that the search can't do without.
        NotReadyError: the request names a collection for mode sparse that has no full-text index.
    """
    _check_words(state)
    if state.plan.request_vector:
        state, meanings = _with_request_vector(state.plan.request_vector, state, step)
        return _without_wordless(state, step), [meanings for _ in texts]
    by_name = grouped((collection.embedder_name, collection) for collection in _collections(state))
    calls = [partial(_embed, name, theirs, texts, state) for name, theirs in by_name.items()]
    embedded = dict(zip(by_name, await concurrently(calls), strict=True))
    for collection in _needing_meaning(state):
        check_embedder(collection, embedded[collection.embedder_name].identity)
    usable = {
        name: (output.vectors, output.known_shares)
        for name, output in embedded.items()
        if output.vectors is not None
    }
    failures = [output.trouble for output in embedded.values() if output.trouble]
    _note_failures(failures, state.plan, others_answer=bool(usable))
    suitable = [
        replace(view, comparable=embedded[view.collection.embedder_name].suits(view.collection))
        for view in state.views
    ]
    state = replace(state, views=tuple(suitable))
    goes_without = bool(failures) and not usable
    if goes_without:
        state = _by_words_alone(state, step)
    state = _without_wordless(state, step)  # by the mode that is left
    if not goes_without:  # otherwise one warning has said it of all collections
        state = _without_incomparable(state, step, embedded)
    scales = {name: _scale(name, state) for name in usable}
    return state, [
        {
            name: Meaning(
                vectors[at], shares[at], scales[name], mean_query=mean_query(embedded[name].identity)
            )
            for name, (vectors, shares) in usable.items()
        }
        for at in range(len(texts))
    ]


def _needing_meaning(state: SearchState) -> list[Collection]:
    """The collections that mustn't be searched without vectors of their model.

    Mode dense searches each collection that the request names, or none. With `degrade = false`, that holds
    for all collections that have vectors, and for mode hybrid.
    """
    plan = state.plan
    if plan.mode == "dense" and plan.collections:
        return _collections(state)
    if plan.degrade or plan.mode == "sparse":
        return []
    return [collection for collection in _collections(state) if collection.embedder != NO_VECTORS]


def _note_failures(failures: Iterable[ProviderError], plan: SearchPlan, *, others_answer: bool) -> None:
    """Log the failures of models, or raise the first that the search can't do without.

    Other models may still answer, but a search that names its collections must not drop one silently.
    """
    may_leave_out = others_answer and plan.mode == "dense" and plan.degrade and not plan.collections
    for failure in failures:
        if _is_needed(plan) and not may_leave_out:
            raise ProviderError(str(failure), for_caller=_advice(failure, plan)) from failure
        note_failure(log, failure)


def _with_request_vector(
    request_vector: RequestVector, state: SearchState, step: OpenStep
) -> tuple[SearchState, Mapping[str, Meaning]]:
    """The state with the collections that the request's vector compares with, and its meaning by embedder.

    The embedders need not be in the settings, because none is called.
    """
    collections = _collections(state)
    comparable = [collection for collection in collections if _compares(collection.embedder, request_vector)]
    incomparable = [collection for collection in collections if collection not in comparable]
    if request_vector.model is None:
        _check_vector(len(request_vector.vector), comparable, incomparable, state.plan)
    is_dense = state.plan.mode == "dense"
    retrieved = {view.name for view in state.views if view.table.retrieves}
    _warn_of_request_vector(
        request_vector,
        [collection.name for collection in incomparable if is_dense or collection.name not in retrieved],
        state,
        step,
    )
    views = tuple(replace(view, comparable=view.collection in comparable) for view in state.views)
    state = replace(state, views=tuple(view for view in views if view.comparable or not is_dense))
    return state, {
        collection.embedder_name: Meaning(
            request_vector.vector, scale=_scale(collection.embedder_name, state), is_from_request=True
        )
        for collection in comparable
    }


def _compares(embedder: EmbedderIdentity, request_vector: RequestVector) -> bool:
    if request_vector.model is not None:
        return embedder == request_vector.model
    return embedder.dimension == len(request_vector.vector) and embedder != NO_VECTORS


def _check_vector(
    dimension: int, comparable: Sequence[Collection], incomparable: Sequence[Collection], plan: SearchPlan
) -> None:
    """Check that a caller's own vector compares with every named collection, and with vectors of one model.

    Raises:
        InvalidRequestError: it doesn't.
    """
    if not comparable or (incomparable and plan.collections):
        lengths = ", ".join(
            f"{name}: {'none' if embedder == NO_VECTORS else embedder.dimension}"
            for name, embedder in ((collection.name, collection.embedder) for collection in incomparable)
        )
        raise InvalidRequestError(
            f"The vector has {dimension} dimensions; the vectors of these collections have others: {lengths}."
        )
    if any(collection.embedder != comparable[0].embedder for collection in comparable):
        names = joined_names(collection.name for collection in comparable)
        raise InvalidRequestError(
            f"Several models made the vectors with {dimension} dimensions, and a vector can be of one only. "
            f"Name collections of one model. These are of several: {names}."
        )


def _warn_of_request_vector(
    request_vector: RequestVector, incomparable: Sequence[str], state: SearchState, step: OpenStep
) -> None:
    if incomparable:
        why = OTHER_MODEL if request_vector.model else OTHER_LENGTH
        step.add_warnings(NOT_BY_MEANING[state.plan.mode].format(why, joined_names(incomparable)))
    if request_vector.skipped:
        step.add_warnings(SKIPPED.format(", ".join(request_vector.skipped)))
    if state.plan.detail == "snippet":
        step.add_warnings(FIRST_SENTENCES)


def _scale(embedder_name: str, state: SearchState) -> Calibration:
    """How this embedder's cosines become similarities: by the settings, else as measured at ingestion."""
    baseline = state.models.embedders.baseline(embedder_name)
    if baseline is not None:
        return Calibration(baseline)
    measured = [
        replace(calibration, elsewhere=None, sampled=0)  # of the collection, not of the model's scale
        for view in state.views
        if view.comparable
        and view.collection.embedder_name == embedder_name
        and (calibration := view.collection.calibration)
    ]
    return min(measured, key=lambda calibration: calibration.unrelated, default=Calibration(0.0))


def is_remote(embedder: Embedder) -> bool:
    """Whether the model is behind an endpoint: it can be slow or fail."""
    return embedder.identity.provider == "openai"


def _collections(state: SearchState) -> list[Collection]:
    return [view.collection for view in state.views]


def _is_needed(plan: SearchPlan) -> bool:
    return plan.mode == "dense" or (plan.mode == "hybrid" and not plan.degrade)


async def _embed(
    name: str, collections: Sequence[Collection], texts: Sequence[str], state: SearchState
) -> EmbeddedQueries:
    """The texts, embedded by the embedder of this name for the collections that name it."""
    try:
        embedder = await state.models.embedders.embedder(name)
    except ConfigurationError:  # `_without_incomparable` warns of its collections
        return EmbeddedQueries()
    identity = embedder.identity
    theirs = [collection for collection in collections if _is_comparable(collection, identity)]
    if not theirs:
        return EmbeddedQueries(identity)
    try:
        vectors = await _vectors(embedder, texts, state.plan)
        identity = replace(identity, dimension=vectors.shape[1])  # unknown before an endpoint's first vector
        _check_dimension(identity, theirs)
    except ProviderError as error:
        return EmbeddedQueries(embedder.identity, trouble=error)
    known_shares = await to_thread.run_sync(lambda: tuple(map(embedder.vocabulary_share, texts)))
    return EmbeddedQueries(identity, vectors, known_shares)


async def _vectors(embedder: Embedder, texts: Sequence[str], plan: SearchPlan) -> Vectors:
    seconds = None
    if is_remote(embedder):
        seconds = PATIENT_SECONDS if _is_needed(plan) else HURRIED_SECONDS
    try:
        with anyio.fail_after(seconds):  # None, so no deadline, for a model in this process
            return await embedder.embed(texts, "query")
    except TimeoutError as error:
        raise ProviderError(
            f"The embedding model gave no answer within {seconds:g} seconds.",
            for_caller="The embedding model gave no answer in time.",
        ) from error


def _check_dimension(identity: EmbedderIdentity, collections: Sequence[Collection]) -> None:
    """Check the dimension of a model's vectors, which may be known only now, against the collections."""
    if not any(_is_comparable(collection, identity) for collection in collections):
        raise ProviderError(
            f"The embedding model {identity.model} returned vectors with {identity.dimension} dimensions; no "
            "collection that this search covers has such vectors.",
            for_caller="The embedding model gave an invalid answer.",
        )


def _is_comparable(collection: Collection, identity: EmbedderIdentity | None) -> bool:
    theirs = collection.embedder
    return identity is not None and (theirs == identity or theirs.may_compare(identity))


def _by_words_alone(state: SearchState, step: OpenStep) -> SearchState:
    is_hybrid = state.plan.mode == "hybrid"
    step.add_warnings(WORDS_ALONE if is_hybrid else NO_SIMILARITIES, failed=True)
    state.degraded.append("dense" if is_hybrid else "similarity")
    if state.plan.has_thresholds:
        step.add_warnings(NO_THRESHOLDS)
    return replace(state, plan=replace(state.plan, mode="sparse"))


def _without_incomparable(
    state: SearchState, step: OpenStep, embedded: Mapping[str, EmbeddedQueries]
) -> SearchState:
    """Warn of collections that the vectors don't compare with. Mode dense doesn't search them."""
    mode = state.plan.mode
    incomparable = [
        view.collection
        for view in state.views
        if not view.comparable and (mode == "dense" or not view.table.retrieves)
    ]
    if not incomparable:
        return state
    reasons = {
        collection.name: _why_not_by_meaning(collection, embedded[collection.embedder_name])
        for collection in incomparable
    }
    for why in (OTHER_MODEL, NOT_SET_UP, AWAY, NO_VECTORS_THERE):
        if names := [name for name, reason in reasons.items() if reason == why]:
            step.add_warnings(NOT_BY_MEANING[mode].format(why, joined_names(names)))
    if lacking := [name for name, reason in reasons.items() if reason in {OTHER_MODEL, NOT_SET_UP}]:
        log.warning("No dense list of %s: see refdesk-admin config check.", joined_names(lacking))
    state.degraded.append("similarity" if mode == "sparse" else "dense")
    if mode == "dense":
        return replace(state, views=tuple(view for view in state.views if view.comparable))
    if state.plan.has_thresholds:
        step.add_warnings(NO_THRESHOLDS)
    return state


def _why_not_by_meaning(collection: Collection, output: EmbeddedQueries) -> str:
    if collection.embedder == NO_VECTORS:
        return NO_VECTORS_THERE
    if output.identity is None:
        return NOT_SET_UP
    return AWAY if output.trouble and _is_comparable(collection, output.identity) else OTHER_MODEL


def _check_words(state: SearchState) -> None:
    """Check that mode sparse can search every collection that the request names."""
    wordless = [view.name for view in state.views if not view.table.by_words]
    if wordless and state.plan.mode == "sparse" and state.plan.collections:
        note = NOT_BY_WORDS["sparse"].format(joined_names(wordless))
        raise NotReadyError(f"{note} Only the owner of an attached table can make an index.", for_caller=note)


def _without_wordless(state: SearchState, step: OpenStep) -> SearchState:
    """Warn of attached tables without a full-text index. Those that can't be searched at all are left out."""
    mode, wordless = state.plan.mode, [view for view in state.views if not view.table.by_words]
    if mode == "dense" or not wordless:
        return state
    # Mode sparse searches none of them, and has one note for all.
    by_meaning = [view for view in wordless if mode == "sparse" or view.comparable]
    neither = [view for view in wordless if view not in by_meaning]
    for note, views in ((NOT_BY_WORDS[mode], by_meaning), (NEITHER, neither)):
        if views:
            step.add_warnings(note.format(joined_names(view.name for view in views)))
    state.degraded.append("sparse")
    left_out = wordless if mode == "sparse" else neither
    return replace(state, views=tuple(view for view in state.views if view not in left_out))


def _advice(error: ProviderError, plan: SearchPlan) -> str:
    alternative = ", or search in mode sparse" if "mode" in plan.overrides else ""
    return (
        f"{error.for_caller} There is no search by meaning without it. Try again in a minute{alternative}. "
        "If it goes on, tell the operator."
    )

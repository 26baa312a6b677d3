"""One run: search for every question, and score the hits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rag.answers import MAX_LIMIT, SearchRequest
from rag.errors import InvalidRequestError, NotFoundError
from rag.evaluate import metrics
from rag.evaluate.metrics import Stretch
from rag.evaluate.runs import Finding, QuestionResult
from rag.evaluate.shown import SHOWN, default_reply, shown_metrics
from rag.search.answer_citations import check_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.answers import Hit, Mode
    from rag.config.server_settings import ServerSettings
    from rag.evaluate.expected import Expected
    from rag.search.desk import Desk

SHOWN_HITS = 10  # kept with the run, per question
PASSAGES = 5  # the usual cut-off of passage metrics
RANKED: dict[str, Callable[[Sequence[str], dict[str, int], int], float]] = {
    "nDCG@10": metrics.ndcg,
    "MRR@10": metrics.reciprocal_rank,
    "MAP@100": metrics.average_precision,
    "recall@5": metrics.recall,
    "recall@10": metrics.recall,
    "recall@20": metrics.recall,
    "recall@100": metrics.recall,
    "precision@5": metrics.precision,
    "precision@10": metrics.precision,
    "hit_rate@5": metrics.hit_rate,
    "hit_rate@10": metrics.hit_rate,
}
TOKENS = tuple(f"{name}@{PASSAGES}" for name in ("token_recall", "token_precision", "token_IoU"))
FAITHFUL = ("citations_readable", "quotes_verbatim", "grounded")
"""Of a stored answer: shares of its citations and quotes, and whether all that it says is cited."""
METRICS = (*RANKED, *TOKENS, *SHOWN, *FAITHFUL)
"""The scores that can be compared and required. They lie in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A profile and mode to evaluate."""

    profile: str
    mode: Mode


async def ask_all(
    desk: Desk,
    questions: Sequence[Expected],
    contender: Contender,
    *,
    candidates: int,
    server: ServerSettings,
    progress: Callable[[], None],
) -> tuple[QuestionResult, ...]:
    """The results of all questions, in order. Calls `progress` after each; `candidates` is the profile's.

    `server` says how much a reply shows by default.

    Raises:
        InvalidRequestError: a question is not a valid query.
        NotFoundError: a question names a collection that doesn't exist for its asker.
    """
    ask = partial(SearchRequest, profile=contender.profile, mode=contender.mode)
    results = []
    for number, one in enumerate(questions):
        try:
            if number == 0:  # a warm-up, so that the first latency counts no loading
                await desk.search(one.principal, _request(one, ask))
            results.append(await _asked(desk, one, ask, candidates=candidates, server=server))
        except (InvalidRequestError, NotFoundError) as error:
            raise type(error)(f"Question {one.question.id}: {error}") from error
        progress()
    return tuple(results)


async def _asked(
    desk: Desk, one: Expected, ask: Callable[..., SearchRequest], *, candidates: int, server: ServerSettings
) -> QuestionResult:
    """Three searches: as the tool's default, timed; down to the last candidate; and with the maximum limit.

    The first is what an assistant is shown. The others rank passages. The third fetches more candidates
    than the second, which can change the order, so only metrics with a cut-off beyond the second use it.
    """
    began = time.perf_counter()
    answer = await desk.search(one.principal, _request(one, partial(ask, joined=True)))
    took = time.perf_counter() - began
    reply = default_reply(await desk.checked(answer), server)
    depth = min(candidates, MAX_LIMIT)
    near = (await desk.search(one.principal, _request(one, ask, limit=depth))).hits
    deep = near
    if depth < MAX_LIMIT:
        deep = (await desk.search(one.principal, _request(one, ask, limit=MAX_LIMIT))).hits
    return QuestionResult(
        id=one.question.id,
        text=one.question.text,
        metrics=_metrics(one, near, deep, depth) | shown_metrics(one, reply) | await _faithfulness(desk, one),
        latency_ms=round(took * 1000, 3),
        expected=one.grades,
        hits=tuple(_finding(one, hit) for hit in near[:SHOWN_HITS]),
        leaks=tuple(dict.fromkeys(one.leaks([*answer.hits, *near, *deep]))),
    )


def _request(one: Expected, ask: Callable[..., SearchRequest], limit: int | None = None) -> SearchRequest:
    return ask(
        one.question.text,
        limit=limit,
        collections=one.question.asking.collections,
        sources=one.sources,
        exclude_sources=one.exclude_sources,
        filter=one.question.asking.filter,
    )


def _metrics(one: Expected, near: Sequence[Hit], deep: Sequence[Hit], depth: int) -> dict[str, float]:
    rankings = one.ranking(near), one.ranking(deep)
    scores = {}
    for name, metric in RANKED.items():
        k = int(name.partition("@")[2])
        scores[name] = metric(rankings[k > depth], one.grades, k)
    if one.of_passages:
        found = [stretch for hit in near[:PASSAGES] for stretch in _shown(hit)]
        tokens = metrics.token_scores(found, one.wanted(found))
        scores |= zip(TOKENS, (tokens.recall, tokens.precision, tokens.iou), strict=True)
    return scores


def _shown(hit: Hit) -> list[Stretch]:
    """The positions of a hit's shown text in its source."""
    parts = hit.excerpts or (hit.chunk,)
    return [Stretch(hit.source.id, part.start, part.end) for part in parts]


async def _faithfulness(desk: Desk, one: Expected) -> dict[str, float]:
    """How faithful the stored answer is, if there is one. Quotes without a citation make it ungrounded."""
    if not one.question.answer.strip():
        return {}
    checked = await check_answer(desk, one.principal, one.question.answer)
    citations = [citation.readable for citation in checked.citations]
    quotes = [quote.verdict == "verbatim" for quote in checked.quotes if quote.cited]
    pairs = zip(FAITHFUL, (citations, quotes, [checked.grounded]), strict=True)
    return {name: fmean(of_each) for name, of_each in pairs if of_each}


def _finding(one: Expected, hit: Hit) -> Finding:
    return Finding(
        id=hit.chunk.id,
        title=hit.source.title,
        score=round(hit.score, 4),
        similarity=None if hit.similarity is None else round(hit.similarity, 4),
        finds=tuple(target.name for target in one.targets if target.is_found_by(hit)),
    )

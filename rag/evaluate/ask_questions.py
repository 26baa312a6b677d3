"""One run: search for every question, and score the hits and the reply that an assistant would read.

`default_reply` renders an answer with the same functions as the tool `search`, within the operator's
`max_chars`. A hit that doesn't fit is not shown, and a truncated one only with its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rag.answers import MAX_LIMIT, Answer, Hit, Mode, SearchRequest
from rag.config.server_settings import ServerSettings
from rag.errors import InvalidRequestError, NotFoundError, NotReadyError
from rag.evaluate import ranking_metrics
from rag.evaluate.compare_runs import QuestionResult, StoredHit
from rag.evaluate.judgements import ResolvedQuestion
from rag.evaluate.ranking_metrics import Stretch, ndcg, recall, token_scores
from rag.search.answer_citations import check_answer
from rag.search.reply.search_reply import HitRecord, SearchReply, search_reply

if TYPE_CHECKING:
    from rag.search.desk import Desk

NDCG, RECALL, TOKEN_RECALL = "shown_nDCG@10", "shown_recall", "shown_token_recall"
SHOWN = (NDCG, RECALL, TOKEN_RECALL)
"""Scores of the reply: its first ten documents or passages in order, the share of the expected ones that it
shows, and for passages the share of their characters."""
CHARS = "shown_chars"
"""The length of the reply in characters of JSON. Not a score: neither more nor less is better by itself."""
SIZES = frozenset({CHARS})


def default_reply(answer: Answer, server: ServerSettings) -> SearchReply:
    """The reply of the tool `search` by default. The answer must come from `Desk.with_warnings`, as there."""
    return search_reply(
        answer,
        server.max_chars,
        vectors=server.include_vectors,
        urls=server.openai_compat,
        brief=not server.full_results,
    )


def shown_metrics(question: ResolvedQuestion, reply: SearchReply) -> dict[str, float]:
    """The scores of a reply to a question, and its length."""
    shown_parts = [stretches(record) for record in reply.results]
    ranking = question.ranked(
        (record.id, parts) for record, parts in zip(reply.results, shown_parts, strict=True)
    )
    scores = {
        NDCG: ndcg(ranking, question.grades, 10),
        RECALL: recall(ranking, question.grades, len(ranking)),
    }
    if question.of_passages:
        all_parts = [part for parts in shown_parts for part in parts]
        scores[TOKEN_RECALL] = token_scores(all_parts, question.expected_stretches(all_parts)).recall
    return scores | {CHARS: float(len(reply.compact()))}


def stretches(record: HitRecord) -> Sequence[Stretch]:
    """The positions of a result's text in its source."""
    source_id = record.id.partition("/")[0]
    return [Stretch(source_id, *part) for part in record.excerpts or [[record.start, record.end]]]


SHOWN_HITS = 10  # kept with the run, per question
PASSAGES = 5  # the usual cut-off of passage metrics
RANKED: dict[str, Callable[[Sequence[str], dict[str, int], int], float]] = {
    "nDCG@10": ranking_metrics.ndcg,
    "MRR@10": ranking_metrics.reciprocal_rank,
    "MAP@100": ranking_metrics.average_precision,
    "recall@5": ranking_metrics.recall,
    "recall@10": ranking_metrics.recall,
    "recall@20": ranking_metrics.recall,
    "recall@100": ranking_metrics.recall,
    "precision@5": ranking_metrics.precision,
    "precision@10": ranking_metrics.precision,
    "hit_rate@5": ranking_metrics.hit_rate,
    "hit_rate@10": ranking_metrics.hit_rate,
}
TOKENS = tuple(f"{name}@{PASSAGES}" for name in ("token_recall", "token_precision", "token_IoU"))
FAITHFUL = ("citations_readable", "quotes_verbatim", "grounded")
"""Scores of a stored answer: the shares of right citations and quotes, and whether all of it is cited."""
METRICS = (*RANKED, *TOKENS, *SHOWN, *FAITHFUL)
"""The scores that can be compared and required. They lie in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A profile and mode to evaluate."""

    profile: str
    mode: Mode


async def ask_all(
    desk: Desk,
    questions: Sequence[ResolvedQuestion],
    contender: Contender,
    *,
    candidates: int,
    server: ServerSettings,
    progress: Callable[[], None] | None,
) -> tuple[QuestionResult, ...]:
    """Ask all questions. Returns the results in order; calls `progress`, if any, after each.

    `candidates` is the profile's number; `server` has the size of a default reply.

    Raises:
        InvalidRequestError: a question is not a valid query.
        NotFoundError: a question names a collection that doesn't exist for its asker.
        NotReadyError: a stage or an attached collection failed.
    """
    results = []
    for number, question in enumerate(questions):
        try:
            if number == 0:  # a warm-up, so that the first latency counts no loading
                await _search(desk, question, _request(question, contender))
            results.append(await _ask(desk, question, contender, candidates=candidates, server=server))
        except (InvalidRequestError, NotFoundError, NotReadyError) as error:
            raise type(error)(f"Question {question.question.id}: {error}") from error
        if progress:
            progress()
    return tuple(results)


async def _ask(
    desk: Desk,
    question: ResolvedQuestion,
    contender: Contender,
    *,
    candidates: int,
    server: ServerSettings,
) -> QuestionResult:
    """The result of a question by three searches: the tool's default, timed; all candidates; highest limit.

    The first gives the reply. The others rank passages. The third fetches more candidates than the second,
    which can change the order, so only metrics with a cut-off beyond the second use it.
    """
    began = time.perf_counter()
    answer = await _search(desk, question, _request(question, contender, joined=True))
    took = time.perf_counter() - began
    reply = default_reply(await desk.with_warnings(answer), server)
    depth = min(candidates, MAX_LIMIT)
    near = (await _search(desk, question, _request(question, contender, limit=depth))).hits
    deep = near
    if depth < MAX_LIMIT:
        deep = (await _search(desk, question, _request(question, contender, limit=MAX_LIMIT))).hits
    return QuestionResult(
        id=question.question.id,
        text=question.question.text,
        metrics=_metrics(question, near, deep, depth)
        | shown_metrics(question, reply)
        | await _faithfulness(desk, question),
        latency_ms=round(took * 1000, 3),
        expected=question.grades,
        hits=tuple(_stored_hit(question, hit) for hit in near[:SHOWN_HITS]),
        leaks=tuple(dict.fromkeys(question.leaks([*answer.hits, *near, *deep]))),
    )


async def _search(desk: Desk, question: ResolvedQuestion, request: SearchRequest) -> Answer:
    """The answer to a request, unless it lacks a stage or a collection that the run would count as used.

    Tables that have no vectors or no index of words by nature are measured as they are. With
    `degrade = false`, a model that fails is an error of the search itself.
    """
    answer = await desk.search(question.principal, request)
    failed = [name for name in answer.degraded if name not in {"dense", "sparse", "similarity"}]
    if failed:
        warnings = [warning for step in answer.steps if step.name in failed for warning in step.warnings]
        raise NotReadyError(
            f"The search failed in part ({', '.join(failed)}), so there is no run. "
            f"{' '.join(warnings or answer.notes)}"
        )
    return answer


def _request(
    question: ResolvedQuestion, contender: Contender, *, limit: int | None = None, joined: bool = False
) -> SearchRequest:
    return SearchRequest(
        question.question.text,
        profile=contender.profile,
        mode=contender.mode,
        limit=limit,
        joined=joined,
        collections=question.question.asking.collections,
        sources=question.sources,
        exclude_sources=question.exclude_sources,
        filter=question.question.asking.filter,
    )


def _metrics(
    question: ResolvedQuestion, near: Sequence[Hit], deep: Sequence[Hit], depth: int
) -> dict[str, float]:
    rankings = question.ranking(near), question.ranking(deep)
    scores = {}
    for name, metric in RANKED.items():
        k = int(name.partition("@")[2])
        scores[name] = metric(rankings[k > depth], question.grades, k)
    if question.of_passages:
        parts = [
            Stretch(hit.source.id, part.start, part.end)
            for hit in near[:PASSAGES]
            for part in hit.excerpts or (hit.chunk,)
        ]
        tokens = ranking_metrics.token_scores(parts, question.expected_stretches(parts))
        scores |= zip(TOKENS, (tokens.recall, tokens.precision, tokens.iou), strict=True)
    return scores


async def _faithfulness(desk: Desk, question: ResolvedQuestion) -> dict[str, float]:
    """The scores of the stored answer, if there is one. Quotes without a citation make it ungrounded."""
    if not question.question.answer.strip():
        return {}
    checked = await check_answer(desk, question.principal, question.question.answer)
    citations = [citation.readable for citation in checked.citations]
    quotes = [quote.verdict == "verbatim" for quote in checked.quotes if quote.cited]
    pairs = zip(FAITHFUL, (citations, quotes, [checked.grounded]), strict=True)
    return {name: fmean(of_each) for name, of_each in pairs if of_each}


def _stored_hit(question: ResolvedQuestion, hit: Hit) -> StoredHit:
    return StoredHit(
        id=hit.chunk.id,
        title=hit.source.title,
        score=round(hit.score, 4),
        similarity=None if hit.similarity is None else round(hit.similarity, 4),
        finds=tuple(target.name for target in question.targets if target.is_found_by(hit)),
    )

"""One search, on one page: read `search` from top to bottom. Each step of the trace is a line here.

    plan -> queries (the question and those that query stages add) -> vectors -> lists -> one ranking
    -> what the principal may read -> what is near enough -> hit stages -> neighbours as one -> answer

The query changes form twice: a profile completes the request to a `Plan`, and each text to search for becomes
a `Query` with its vector. Each step is explained in the module that it is imported from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.answers import Answer, Context, Hit, SubQuery
from rag.errors import InvalidRequestError
from rag.report.text_and_html import counted
from rag.search.exact import find_exact, scan_deadline
from rag.search.gate import admit
from rag.search.planning import needles_of
from rag.search.query_vectors import query_meanings
from rag.search.recall import Query, fuse, is_moot, recall
from rag.search.reply.reply_parts import assemble
from rag.search.search_plan import Plan
from rag.search.stages import apply_hit_stages, as_detailed, more_queries
from rag.search.stages.query_stages import PLAN_FINDS_NOTHING, as_planned
from rag.search.stages.thresholds import DISTANT, UNGROUNDED, WEAK_SHOWN, lacks_evidence, near_enough
from rag.search.view import View, narrowed
from rag.search.why_nothing import explain_nothing, record_lists
from rag.store.read.word_analysis import MAX_TERMS, query_words, stop_languages

if TYPE_CHECKING:
    from rag.search.search_state import OpenStep, Run

WITHOUT_PHRASE = 0.7  # times the score of a passage that lacks a phrase of the query
NO_HITS_WANTED = "No passages were asked for: the limit is 0."
NO_DOCUMENTS = (
    "There are no documents that you may search. Ask the operator to ingest some, or to let you see them."
)
"""The same whether there are none or all are hidden."""
NO_EXACT = "retrievers can't search for exact text"
NO_STRICT = "the scores of retrievers could reveal what you may not read"
MOOT = "Searched by words alone, because the embedding model knows no word of the query: {}."
CHANCE = (
    "The embedding model knows no word of the query, so similarities are little more than chance. "
    "Mode hybrid searches by words, too: {}."
)
FILTERS_CLASH = "One sub-query was skipped because its filter can't be combined with the request's ({})."


async def search(run: Run) -> tuple[Answer, Run]:
    """Answer the plan of a run from its views. The answer's notes say what its reader must know.

    Returns the run, too, as it was searched: with the mode and the views for which there were vectors.
    """
    run = _without_retrievers(replace(run, queries=_asked(run.plan)))
    if not run.views or not run.plan.limit or run.plan.sources == ():
        run.note(_why_none(run))
        return run.answer([], None), run
    if run.plan.mode == "exact":
        queries = [Query(run.plan.query, {}, run.views)]
        run = replace(run, scan_until=scan_deadline(queries[0]))
    else:
        run, queries = await embed(await add_queries(run))
    if not run.views:  # none of the collections has vectors of the model, or words, to search by
        return run.answer([], None), run
    plan = run.plan
    run.note(await to_thread.run_sync(_truncations, queries[0], run))
    run.note(_chance(queries[0], run))
    planned = as_planned(queries, run) if plan.query_stages else queries
    hits = await find(planned, run)
    if not hits and planned is not queries:
        run.note([PLAN_FINDS_NOTHING])
        run.left_out.clear()
        hits = await find(queries, run)
    if not hits and not run.is_late:
        with run.steps.step("explain"):
            relaxed = await explain_nothing(queries[0], run, _finds_any)
        if relaxed is not None:
            queries = [relaxed]
            hits = await find(queries, run)
    if plan.hit_stages or plan.seed:
        hits = await apply_hit_stages(hits, queries[0], run)
    hits = await run.joined(hits, queries[0].views_by_collection)  # wider than the plan's if it was relaxed
    if plan.detail != "passage":
        hits = await as_detailed(hits, queries[0], run)
    run.note_left_out()
    run.note(await to_thread.run_sync(_lacking, hits, plan) if plan.phrases else [])
    if await to_thread.run_sync(lacks_evidence, hits, queries[0], plan):
        run.notes.insert(0, UNGROUNDED)  # its reader needs it before all else
        hits = hits[:WEAK_SHOWN] if plan.thresholds.weak_evidence == "note" else []
    return run.answer(hits, _context(hits, run) if plan.context_tokens and hits else None), run


def _without_retrievers(run: Run) -> Run:
    """The run without retrievers where they can't be held to what the plan promises. A note says so."""
    why = NO_EXACT if run.plan.mode == "exact" else NO_STRICT if run.plan.strict else None
    left_out = [view for view in run.views if view.table.retrieves] if why else []
    if not left_out:
        return run
    names = ", ".join(view.table.collection.name for view in left_out)
    run.note([f"Not searched, because {why}: {names}."])
    run.degraded.append("collections")
    return replace(run, views=tuple(view for view in run.views if view not in left_out))


def _why_none(run: Run) -> list[str]:
    """Why nothing is searched, unless another note says so."""
    if run.views:
        return [] if run.plan.sources == () else [NO_HITS_WANTED]
    return [] if run.broken or run.degraded else [NO_DOCUMENTS]


def _asked(plan: Plan) -> tuple[SubQuery, ...]:
    """The question. If it has words besides its phrases, those that lack a phrase come behind."""
    question = SubQuery(plan.query)
    if plan.unquoted is None:
        return (question,)
    return question, SubQuery(plan.unquoted, WITHOUT_PHRASE, "without quotation marks")


async def add_queries(run: Run) -> Run:
    """The run with the queries that the plan's query stages add; the question stays first and unchanged."""
    for stage in run.plan.query_stages:
        with run.steps.step(stage.stage) as step:
            rewritten = await more_queries(
                stage,
                run.queries,
                chat=run.models.chat,
                collections=[view.table.collection for view in run.views],
                today=datetime.now(UTC).date(),
                used=step.uses,
            )
            step.warns(*rewritten.warnings, failed=rewritten.failed)
            step.made(len(rewritten.queries), of=len(run.queries))
        run.note(rewritten.warnings)
        run = replace(run, queries=tuple(rewritten.queries))
    return run


async def embed(run: Run) -> tuple[Run, list[Query]]:
    """The queries with their meanings, made in one batch, each with the views that it searches.

    If an embedding model fails, a search that can do without it goes on by words: the run that is returned
    says how, and where (`rag.search.query_vectors`).
    """
    with run.steps.step("embed") as step:
        run, meanings = await query_meanings([query.text for query in run.queries], run, step)
        queries = [
            Query(query.text, meaning, tuple(await _views_of(query, run, step)), query.weight)
            for query, meaning in zip(run.queries, meanings, strict=True)
        ]
    run.note(step.record.warnings)
    return run, queries


async def find(queries: Sequence[Query], run: Run) -> list[Hit]:
    """The hits of these queries, best first. The first query is the caller's; similarities are to it.

    Enough of them for the plan's limit, or all if thresholds or hit stages select among them.
    """
    plan = run.plan
    if plan.mode == "exact":
        return await find_exact(queries[0], run)
    with run.steps.step("recall") as recalled:
        lists = await recall(queries, plan)
        recalled.warns(*_moot(queries, run))
    with run.steps.step("fuse") as fused:
        candidates = fuse(queries, lists, plan)
    wanted = len(candidates) if plan.drops_distant or plan.hit_stages else run.looked_at
    with run.steps.step("gate") as gate:
        hits = await admit(candidates, queries[0], wanted, run.alarm)
        if wanted < len(candidates) and run.takes_more_than(hits):
            hits = await admit(candidates, queries[0], len(candidates), run.alarm)
        gate.made(len(hits))
    if run.steps.detailed:
        await record_lists(candidates, lists, hits, (recalled, fused, gate), queries[0], run)
    if not plan.drops_distant:
        return hits
    with run.steps.step("thresholds") as step:
        tables = [view.table.collection for view in run.views]
        metrics = {one.name: plan.distance or one.distance for one in tables}
        near = near_enough(hits, plan.thresholds, metrics)
        step.left(near, of=len(hits))
    run.leaves_out(DISTANT, hits, near)
    return near


async def _finds_any(query: Query, run: Run) -> bool:
    """Whether a query finds anything. Runs inside the step `explain`, so it has no steps of its own."""
    # One hit answers the question, and these searches run only after a search found nothing, several at once.
    # So one candidate per list is enough. In mode hybrid the dense list alone is: it has a chunk if any chunk
    # satisfies the filter, and if its best chunk fails the thresholds, the sparse list has no nearer one. But
    # the best chunk of a sparse list may fail them and a later one not. A moot list is empty.
    has_both = run.plan.mode == "hybrid" and all(
        view.comparable and not is_moot(query, view, run.plan) for view in query.views
    )
    plan = replace(run.plan, limit=1, mode="dense" if has_both else run.plan.mode)
    if plan.mode == "dense" or (plan.mode != "exact" and not plan.drops_distant):
        plan = replace(plan, candidates=1)
    return bool(await find([query], run.aside(plan)))


def _chance(question: Query, run: Run) -> list[str]:
    """A note on mode dense where the model knows no word of the question: an explicit mode is kept to."""
    unknown = [view.table.collection.name for view in run.views if question.unknown_in(view)]
    return [CHANCE.format(", ".join(unknown))] if unknown and run.plan.mode == "dense" else []


def _moot(queries: Sequence[Query], run: Run) -> list[str]:
    """Which collections were not searched by meaning, because their model knows no word of a query."""
    moot = {
        view.table.collection.name: None
        for query in queries
        for view in query.views
        if is_moot(query, view, run.plan)
    }
    return [MOOT.format(", ".join(moot))] if moot else []


async def _views_of(query: SubQuery, run: Run, step: OpenStep) -> Sequence[View]:
    """The views that a query searches, narrowed by its phrases and its own filter, too."""
    names = query.collections
    chosen = [view for view in run.views if not names or view.table.collection.name in names]
    if query.filter is not None:
        both = query.filter if run.plan.filter is None else {"$and": [run.plan.filter, query.filter]}
        try:
            chosen = await narrowed(chosen, replace(run.plan, filter=both))
        except InvalidRequestError as error:
            step.warns(FILTERS_CLASH.format(str(error).rstrip(".")))
            return ()
    phrases = needles_of(query.text)
    return [replace(view, contains=(*view.contains, *phrases)) for view in chosen] if phrases else chosen


def _truncations(question: Query, run: Run) -> list[str]:
    """Notes on a question that is too long: only its beginning is searched for."""
    plan = run.plan
    notes: list[str] = []
    if plan.mode == "exact":
        return notes
    languages = {stop_languages(view.table.collection) for view in run.views}
    if plan.mode != "dense" and any(len(query_words(plan.query, one)) > MAX_TERMS for one in languages):
        notes.append(f"Keyword search used only the first {MAX_TERMS} words of the query.")
    if plan.mode != "sparse":
        asked = [
            run.models.embedders.opened[name]
            for name, one in question.meanings.items()
            if not one.given and (one.known or plan.mode == "dense")
        ]
        cut = [one.window for one in asked if len(one.token_spans(plan.query)) > one.window]
        notes += [f"Semantic search used only the first {min(cut)} tokens of the query."] if cut else []
    return notes


def _lacking(hits: Sequence[Hit], plan: Plan) -> list[str]:
    """A note on passages without the phrases of the query, if there are any."""
    texts = [[hit.chunk.text, *(part.text for part in hit.excerpts)] for hit in hits]
    lacking = sum(
        not all(any(any(phrase.spans(text)) for text in of_hit) for phrase in plan.phrases)
        for of_hit in texts
    )
    named = ", ".join(f'"{phrase.written}"' for phrase in plan.phrases)
    named = f"all of {named}" if len(plan.phrases) > 1 else named
    if not lacking:
        return []
    if lacking == len(hits):
        return [f"No passage contains {named}. These have only some of the words, or a similar meaning."]
    negated = "doesn't" if lacking == 1 else "don't"
    return [f"{counted(lacking, 'passage')} of {len(hits)} {negated} contain {named}."]


def _context(hits: Sequence[Hit], run: Run) -> Context:
    """The hits as one text for a prompt, within the plan's token budget."""
    with run.steps.step("context") as step:
        spans = run.models.embedders.default.token_spans
        context = assemble(hits, budget=run.plan.context_tokens, token_spans=spans)
        step.left([hit for hit in hits if hit.chunk.id in context.chunk_ids], of=len(hits))
    return context

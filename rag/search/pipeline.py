"""One search, on one page: read `search` from top to bottom. Each step of the trace is a line here.

    plan -> queries (the question, and those that query stages add) -> vectors -> rankings -> one ranking
    -> the gate (access check) -> thresholds -> hit stages -> adjacent hits joined -> answer

A profile completes the request to a `SearchPlan`, and each text to search for becomes a `Query` with its
vector. Each step is explained in the module that it is imported from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain, combinations

from anyio import to_thread

from rag.answers import Answer, Context, Hit, SubQuery
from rag.errors import InvalidRequestError
from rag.filters.needles import Needle, otherwise_written, without_quotes
from rag.rank import editions
from rag.report import counted
from rag.search.exact import find_exact, scan_deadline
from rag.search.query_vectors import query_meanings
from rag.search.recall import WIDER, Query, admit, fuse, recall, skips_dense
from rag.search.reply.reply_parts import assemble_context
from rag.search.reply.untrusted import label
from rag.search.search_plan import SearchPlan, phrase_needles
from rag.search.search_state import OpenStep, SearchState
from rag.search.stages import apply_hit_stages, more_queries, query_stages, thresholds, with_detail
from rag.search.view import LACKING_FIELDS, View, joined_names, narrow_views
from rag.search.why import explain_nothing, record_lists
from rag.store.read.spelling import Spelling
from rag.store.read.word_analysis import MAX_TERMS, query_words, stop_languages, version_pattern
from rag.text.plain_text import ending, questions_in

WITHOUT_PHRASE = 0.7  # times the score of a passage that lacks a phrase of the query
BESIDE_QUESTION = 0.5  # times the score of a passage that only the text around a question finds
LONG_QUERY = 800  # characters: about what a model reads, of scripts without spaces between words
ASKED = 'The query is long, so its questions counted most: "{}"'
ENDED = 'The query is long, so its end was searched for, too: "{}"'
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
NEWEST = "Of several editions of a document, the newest one is preferred."
OWN_AND_NEWER = "The desk's own documents come before attached ones, and newer ones before older ones."
DIFFERING = (  # invoices and reports of each month are as alike as editions
    "Documents of one name have nearly the same words and other numbers: editions, or records of other "
    "dates. {}"
)
NEWER_EDITIONS = "Newer ones come before older ones."
COMPARE_DATES = "Compare their dates."
OF_YEARS = "Of several editions of a document, the one of {} is preferred, or else the last one before."
OF_VERSION = "Of several editions of a document, the version that the query names is preferred."
NOT_OF_YEARS = "Of several editions of a document, the newest one that isn't of {} is preferred."
BY_FILES = "Where documents state no date, versions in their names and the times of their files tell."
ACCENTED = "Accents and spaces count in quotation marks. Some passages contain {}."
LACKING = 'No document has "{}".'
NOT_SHOWN = 'None of these passages has "{}".'
RESPELT = 'No document has "{}"; searched for {}, too.'
FILTERS_CLASH = "One sub-query was skipped because its filter can't be combined with the request's ({})."


async def search(state: SearchState) -> tuple[Answer, SearchState]:
    """Answer the state's plan. Returns the final state, too, with the mode and views that were searched."""
    text = state.plan.query
    state = _without_retrievers(_with_queries(state))
    if not state.views or not state.plan.limit or state.plan.sources == ():
        state.note(_why_none(state))
        return state.answer([], None), state
    if state.plan.mode == "exact":
        queries = [Query(state.plan.query, {}, state.views)]
        state = replace(state, scan_until=scan_deadline(queries[0]))
    else:
        state, queries = await embed(await add_queries(state))
    if not state.views:  # none of the collections has vectors of the model, or words, to search by
        return state.answer([], None), state
    plan = state.plan
    state.note(await to_thread.run_sync(_truncation_notes, text, queries[0], state))
    state.note(_chance_notes(queries[0], state))
    hits = await find_by_stages(queries, state) if plan.query_stages else await find(queries, state)
    # Of a search that ran out of time it isn't known that nothing matches, and more scans would take as long.
    if not hits and not state.is_late:
        with state.steps.step("explain"):
            relaxed = await explain_nothing(queries[0], state, find)
        if relaxed is not None:
            queries = [relaxed]
            hits = await find(queries, state)
    state.note(_spelling_notes(state.spellings))
    if plan.hit_stages or plan.seed:
        hits = await apply_hit_stages(hits, queries[0], state)
    first_hits = state.judged(hits)  # before the limit cuts them: it must not decide what is evidence
    hits = state.joined(hits)
    hits = _with_differing_editions(hits, queries[0], state)
    if plan.detail != "passage":
        hits = await with_detail(hits, queries[0], state)
    state.note_left_out()
    state.note(await to_thread.run_sync(_lacking_phrases_notes, hits, plan) if plan.phrases else [])
    is_weak = await thresholds.lacks_evidence(first_hits, queries[0], plan, state.spellings)
    state.notes[:0] = thresholds.evidence_notes(hits, queries[0], is_weak=is_weak)  # needed before all else
    if is_weak:
        hits = _weak_hits(hits, state) if plan.thresholds.weak_evidence == "note" else []
    versions = _versions_in(queries[0].text)
    state.note(await to_thread.run_sync(_lacking_versions_notes, hits, versions) if versions else [])
    return state.answer(hits, _context(hits, state) if plan.context_tokens and hits else None), state


def _weak_hits(hits: Sequence[Hit], state: SearchState) -> list[Hit]:
    shown = hits[: thresholds.WEAK_SHOWN]
    ordered = editions.own_and_newer_first(shown, state.foreign)
    if state.foreign and [hit.chunk.id for hit in ordered] != [hit.chunk.id for hit in shown]:
        state.note([OWN_AND_NEWER])
    return ordered


def _without_retrievers(state: SearchState) -> SearchState:
    """The state without retrievers, and with a note, if they can't keep what the plan promises."""
    why = NO_EXACT if state.plan.mode == "exact" else NO_STRICT if state.plan.strict else None
    left_out = [view for view in state.views if view.table.retrieves] if why else []
    if not left_out:
        return state
    names = joined_names(view.name for view in left_out)
    state.note([f"Not searched, because {why}: {names}."])
    state.degraded.append("collections")
    return replace(state, views=tuple(view for view in state.views if view not in left_out))


def _why_none(state: SearchState) -> list[str]:
    """The note on why nothing is searched, unless another note says so."""
    if state.views:
        return [] if state.plan.sources == () else [NO_HITS_WANTED]
    lacking = any(note.startswith(LACKING_FIELDS.partition("{")[0]) for note in state.notes)
    return [] if lacking or state.broken or state.degraded else [NO_DOCUMENTS]


def _with_queries(state: SearchState) -> SearchState:
    """The state with the question as the first query.

    A question with words besides its phrases gets a second query, unquoted and with a lower weight.

    Of a long text, like a log, only the beginning is searched for. So the questions in it become the first
    query, with their phrases, and the text the last; without questions, the end of the text is the last.
    """
    plan, besides = state.plan, list[SubQuery]()
    end = ending(plan.query) if _is_divided(plan) else plan.query
    question = questions_in(plan.query) if end != plan.query else ""
    if question:
        state.note([ASKED.format(label(question))])
        text, phrases = plan.unquoted or plan.query, phrase_needles(question)
        besides = [SubQuery(text, BESIDE_QUESTION, "the text around the question")]
        unquoted = (without_quotes(question) or text) if phrases else None
        plan = replace(plan, query=question, phrases=phrases, unquoted=unquoted)
    elif end != plan.query and not plan.phrases:
        state.note([ENDED.format(label(end))])
        besides = [SubQuery(end, 1.0, "the end of the text")]
    if plan.unquoted is not None:
        besides.insert(0, SubQuery(plan.unquoted, WITHOUT_PHRASE, "without quotation marks"))
    return replace(state, plan=plan, queries=(SubQuery(plan.query), *besides))


def _is_divided(plan: SearchPlan) -> bool:
    """Whether the end of a query may not be searched for. Exact texts, and phrases that must occur, stay."""
    is_long = len(plan.query) > LONG_QUERY or len(plan.query.split()) > MAX_TERMS
    return is_long and plan.mode != "exact" and (plan.unquoted is not None or not plan.phrases)


async def add_queries(state: SearchState) -> SearchState:
    """Add the queries of the plan's query stages. The question stays first and unchanged."""
    for stage in state.plan.query_stages:
        with state.steps.step(stage.stage) as step:
            queries = await more_queries(
                stage,
                state.queries,
                step,
                chat=state.models.chat,
                collections=[view.collection for view in state.views],
                today=datetime.now(UTC).date(),
            )
            step.record_count(len(queries), of=len(state.queries))
        state.note(step.record.warnings)
        state = replace(state, queries=queries)
    return state


async def embed(state: SearchState) -> tuple[SearchState, list[Query]]:
    """Embed all queries in one batch. Returns each with its meanings and the views that it searches.

    The new state has the mode and views that are left if a model fails (`rag.search.query_vectors`).
    """
    with state.steps.step("embed") as step:
        state, meanings = await query_meanings([query.text for query in state.queries], state, step)
        queries = [
            Query(query.text, meaning, tuple(await _views_of(query, state, step)), query.weight)
            for query, meaning in zip(state.queries, meanings, strict=True)
        ]
    state.note(step.record.warnings)
    return state, queries


async def find_by_stages(queries: Sequence[Query], state: SearchState) -> list[Hit]:
    """As `find`, by the queries to which query stages narrow the search, or by all if these find nothing."""
    planned = query_stages.narrowed_by_plan(queries, state)
    hits = await find(planned, state)
    if hits or planned is queries:
        return hits
    state.note([query_stages.PLAN_FINDS_NOTHING])
    state.left_out.clear()  # counted in the search that found nothing
    return await find(queries, state)


async def find(queries: Sequence[Query], state: SearchState) -> list[Hit]:
    """The hits of these queries, best first: enough for the plan's limit, or all if later steps select.

    The first query is the caller's. Similarities are to it.
    """
    plan = state.plan
    if plan.mode == "exact":
        return await find_exact(queries[0], state)
    with state.steps.step("recall") as recalled:
        lists = await recall(queries, plan)
        recalled.add_warnings(*_skipped_meaning_notes(queries, state))
    state.spellings.update(lists[0].spellings)  # the evidence counts these for the words that they replace
    with state.steps.step("fuse") as fused:
        candidates = fuse(queries, lists, plan)
    today = datetime.now(UTC).date()
    wanted_time = editions.asked_time(queries[0].text, today)
    # The gate reads the source of each candidate, so it stops at the limit, unless a later step drops hits.
    needs_all = plan.drops_distant or plan.hit_stages or wanted_time
    enough = len(candidates) if needs_all else state.hits_to_check
    with state.steps.step("gate") as gate:
        hits = await admit(candidates, queries[0], enough, state.alarm)
        # Many adjacent hits became one: the limit is not full, so the gate checks more.
        while enough < len(candidates) and state.takes_more_than(hits):
            enough *= WIDER
            hits = await admit(candidates, queries[0], enough, state.alarm)
        gate.record_count(len(hits))
    if state.steps.detailed:
        await record_lists(candidates, lists, hits, (recalled, fused, gate), queries[0], state)
    hits = state.with_copies_as_one(await _in_order_of_editions(hits, wanted_time, today, state))
    if not plan.drops_distant:
        return hits
    with state.steps.step("thresholds") as step:
        near = thresholds.near_hits(hits, plan, state.views)
        step.record_hits(near, of=len(hits))
    state.count_left_out(thresholds.DISTANT, hits, near)
    return near


async def _in_order_of_editions(
    hits: list[Hit], wanted_time: editions.AskedTime | None, today: date, state: SearchState
) -> list[Hit]:
    """The hits with the editions first that the question asks for, or newer ones where they differ."""
    if wanted_time:
        preferred = await to_thread.run_sync(editions.prefer_editions, hits, wanted_time)
    else:
        preferred = editions.preferred_where_they_differ(hits, today, state.foreign)
    before, after = ([hit.chunk.id for hit in order] for order in (hits, preferred))
    if not wanted_time and before == after:
        return hits
    with state.steps.step("editions") as step:
        step.record_hits(preferred, of=len(hits))
    limit = state.plan.limit
    if wanted_time and before[:limit] != after[:limit]:  # no note on hits that the reader doesn't see
        scores = {hit.chunk.id: hit.score for hit in hits}
        # For a version, dates don't matter, so the note doesn't say what they are from.
        dated = [] if wanted_time.version else preferred
        others = [hit for hit in dated if hit.score < scores[hit.chunk.id]]
        state.note([_with_source_of_dates(_edition_note(wanted_time), others)])
    return preferred


def _with_source_of_dates(note: str, hits: Iterable[Hit]) -> str:
    """The note, and what tells the order if one of these hits has only the time of its file."""
    return f"{note} {BY_FILES}" if any(hit.dating and hit.dating.by == "file" for hit in hits) else note


def _edition_note(wanted_time: editions.AskedTime) -> str:
    if wanted_time.version:
        return OF_VERSION
    years = " and ".join(map(str, sorted(wanted_time.years or wanted_time.excluded)))
    if wanted_time.years:
        return OF_YEARS.format(years)
    return NOT_OF_YEARS.format(years) if years else NEWEST


def _with_differing_editions(hits: list[Hit], question: Query, state: SearchState) -> list[Hit]:
    """The hits; of near copies of one name with different numbers, each gets its date, and a note says so.

    Not if the question asks for a time: then `_in_order_of_editions` has chosen.
    """
    differing = [] if editions.asked_time(question.text) else editions.differing_editions(hits)
    if not differing:
        return hits
    hits = editions.with_datings(hits, [*chain(*differing)])
    are_own = [hit.source.collection not in state.foreign for hit in hits]
    present = editions.AskedTime(today=datetime.now(UTC).date())
    in_order = all(
        are_own[first] > are_own[second]
        or (are_own[first] == are_own[second] and present.prefers(hits[first].dating, hits[second].dating))
        for ranks in differing
        for first, second in combinations(ranks, 2)
    )
    order = OWN_AND_NEWER if state.foreign else NEWER_EDITIONS
    note = DIFFERING.format(order if in_order else COMPARE_DATES)
    state.note([_with_source_of_dates(note, (hits[rank] for rank in chain(*differing)))])
    return hits


def _chance_notes(question: Query, state: SearchState) -> list[str]:
    """A note for mode dense if the model knows no word of the question."""
    unknown = [view.name for view in state.views if question.unknown_in(view)]
    # Only a note: a caller that asks for mode dense doesn't want hits by words.
    return [CHANCE.format(", ".join(unknown))] if unknown and state.plan.mode == "dense" else []


def _skipped_meaning_notes(queries: Sequence[Query], state: SearchState) -> list[str]:
    """A note on collections searched without meaning, because their model knows no word of a query."""
    moot = {
        view.name: None for query in queries for view in query.views if skips_dense(query, view, state.plan)
    }
    return [MOOT.format(", ".join(moot))] if moot else []


def _spelling_notes(spellings: Mapping[str, Sequence[Spelling]]) -> list[str]:
    """A note on each word of the question that no document has: a number, or one with other spellings."""
    return [
        RESPELT.format(word, ", ".join(f'"{near.written}"' for near in nearest))
        if nearest
        else LACKING.format(label(word))
        for word, nearest in spellings.items()
    ]


async def _views_of(query: SubQuery, state: SearchState, step: OpenStep) -> Sequence[View]:
    """The views that a query searches, narrowed by its phrases and by its own filter."""
    names = query.collections
    chosen = [view for view in state.views if not names or view.name in names]
    if query.filter is not None:
        combined = query.filter if state.plan.filter is None else {"$and": [state.plan.filter, query.filter]}
        try:
            chosen = await narrow_views(chosen, replace(state.plan, filter=combined))
        except InvalidRequestError as error:
            step.add_warnings(FILTERS_CLASH.format(str(error).rstrip(".")))
            return ()
    phrases = phrase_needles(query.text)
    return [replace(view, contains=(*view.contains, *phrases)) for view in chosen] if phrases else chosen


def _truncation_notes(text: str, question: Query, state: SearchState) -> list[str]:
    """Notes if only the beginning of a long query was searched for. `question` holds its vectors."""
    plan = state.plan
    notes: list[str] = []
    if plan.mode == "exact":
        return notes
    languages = {stop_languages(view.collection) for view in state.views}
    if plan.mode != "dense" and any(len(query_words(text, analysis)) > MAX_TERMS for analysis in languages):
        notes.append(f"Keyword search used only the first {MAX_TERMS} words of the query.")
    if plan.mode != "sparse":
        embedders = [
            state.models.embedders.opened[name]
            for name, meaning in question.meanings.items()
            # A model that knows no word was not asked (`skips_dense`), so nothing was cut for it.
            if not meaning.is_from_request and (meaning.known_share or plan.mode == "dense")
        ]
        cut = [embedder.window for embedder in embedders if len(embedder.token_spans(text)) > embedder.window]
        notes += [f"Semantic search used only the first {min(cut)} tokens of the query."] if cut else []
    return notes


def _lacking_phrases_notes(hits: Sequence[Hit], plan: SearchPlan) -> list[str]:
    """Notes on hits that lack the phrases of the query, or have them in another form, if any do."""
    texts = [[hit.chunk.text, *(part.text for part in hit.excerpts)] for hit in hits]
    lacking = [
        of_hit for of_hit in texts if not all(any(map(phrase.occurs_in, of_hit)) for phrase in plan.phrases)
    ]
    if not lacking:
        return []
    accented = [forms for of_hit in lacking if (forms := _accented_phrases(of_hit, plan.phrases))]
    notes = [ACCENTED.format(_quoted(accented[0]))] if accented and plan.unquoted else []
    phrases = _quoted([phrase.query for phrase in plan.phrases])
    if len(lacking) == len(hits) and not accented:
        return [f"No passage contains {phrases}. These have only some of the words, or a similar meaning."]
    if not (missing := len(lacking) - len(accented)):
        return notes
    negated = "doesn't" if missing == 1 else "don't"
    return [*notes, f"{counted(missing, 'passage')} of {len(hits)} {negated} contain {phrases}."]


def _versions_in(query: str) -> list[str]:
    """The versions among the words of a query that are searched for, each once."""
    words = query_words(query, ["none"])[:MAX_TERMS]
    return list(dict.fromkeys(word.text for word in words if word.is_version))


def _lacking_versions_notes(hits: Sequence[Hit], versions: Iterable[str]) -> list[str]:
    """A note on the versions that no hit has in its text, headings, names or metadata.

    Passages on other versions have nearly the same words.
    """
    texts = [
        "\n".join([*hit.source.metadata.values(), hit.source.name, hit.text_with_headings, hit.chunk.text])
        for hit in hits
    ]
    lacking = [version for version in versions if not any(map(version_pattern(version).search, texts))]
    return [NOT_SHOWN.format('" or "'.join(map(label, lacking)))] if hits and lacking else []


def _quoted(phrases: Sequence[str]) -> str:
    quoted = ", ".join(f'"{phrase}"' for phrase in phrases)
    return f"all of {quoted}" if len(phrases) > 1 else quoted


def _accented_phrases(texts: Sequence[str], phrases: Iterable[Needle]) -> list[str] | None:
    """The phrases as these texts write them (`otherwise_written`); None if a phrase is in no form there."""
    forms = [
        next(filter(None, (otherwise_written(phrase, text) for text in texts)), None) for phrase in phrases
    ]
    return [form for form in forms if form] if all(forms) else None


def _context(hits: Sequence[Hit], state: SearchState) -> Context:
    with state.steps.step("context") as step:
        spans = state.models.embedders.default.token_spans
        context = assemble_context(hits, budget=state.plan.context_tokens, token_spans=spans)
        step.record_hits([hit for hit in hits if hit.chunk.id in context.chunk_ids], of=len(hits))
    return context

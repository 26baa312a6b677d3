"""The pages of searches: searching as any user, with a trace; and judged questions.

The administrator asks questions, marks the right documents, keeps both as a set, and measures searches by it.
A set is a JSON Lines file in the data folder, which `refdesk-admin eval` reads, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from rag.access.rule import valid_name
from rag.admin.search_command import answer_and_fate
from rag.admin.search_output import hit_articles, summary_line, trace_sections
from rag.admin.web.console import Asker, Console, number_in, see_other
from rag.answers import MAX_LIMIT, Answer, Hit, Mode, SearchRequest
from rag.config.profiles import DEFAULT_PROFILE
from rag.errors import InvalidRequestError, NotFoundError, RefdeskError
from rag.evaluate.compare_runs import Comparison, Summary, compare, keep_runs, load_run, load_summaries
from rag.evaluate.evaluation import contenders, evaluate, evaluation_settings, prepare_existing
from rag.evaluate.judged_sets import JudgedLine, PrincipalLine, file_content, judged_lines, read_set
from rag.report import counted
from rag.runtime import grouped
from rag.store.write.desk_folder import judged_folder, make_private, writable, write_whole
from rag.uris import split_id

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response


async def search(console: Console, request: Request) -> Response:
    """The page: a form, and the hits with their trace if there is a question."""
    parameters = request.query_params
    asker = Asker.of(parameters, console.settings)
    expected = parameters.get("expect", "").strip()
    answer, fate, problem = None, None, ""
    if parameters.get("q", "").strip():
        try:
            answer, fate = await answer_and_fate(
                console.desk, asker.principal(console.tenant), search_request(parameters), expected or None
            )
        except RefdeskError as error:
            problem = str(error)
    return console.page(
        "search.html",
        status=400 if problem else 200,
        parameters=parameters,
        refined=any(value.strip() for name, value in parameters.items() if name != "q"),
        asker=asker,
        modes=get_args(Mode),
        profiles=sorted(console.settings.search.profiles),
        collections=await console.collections(),
        problem=problem,
        fate=fate,
        answer=answer,
        took=summary_line(answer) if answer else "",
        hits=hit_articles(answer, address_of) if answer else (),
        trace=trace_sections(answer) if answer else (),
    )


def search_request(parameters: Mapping[str, str]) -> SearchRequest:
    """The search that a form asks for. Empty fields leave the choice to the profile.

    Raises:
        InvalidRequestError: the limit is out of range.
    """
    limit, collection = parameters.get("limit", "").strip(), parameters.get("collection", "")
    number = number_in(limit, 0, MAX_LIMIT)
    if limit and number is None:
        raise InvalidRequestError(f"The number of hits is from 0 to {MAX_LIMIT}.")
    mode = parameters.get("mode", "")
    return SearchRequest(
        parameters.get("q", "").strip(),
        profile=parameters.get("profile") or None,
        limit=number,
        mode=cast("Mode", mode) if mode else None,
        collections=(collection,) if collection else None,
        joined=True,
    )


def address_of(hit: Hit) -> str:
    """The address of the page that shows a hit's passage."""
    _, seqs = split_id(hit.chunk.id)
    seq = seqs[0] if seqs else 0
    return f"/documents/{hit.source.id}?passage={seq}#p{seq}"


METRIC = "nDCG@10"
SHOWN_METRICS = (METRIC, "MRR@10", "recall@10")
SUFFIX = ".jsonl"
ASKED_HITS = 20


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A kept run of a set, and the change of the metric since the previous run; None for the first."""

    id: int
    summary: Summary
    moved: float | None


async def sets(console: Console, _request: Request) -> Response:
    """The page of the sets."""
    counts = {file.stem: len(judged_lines(file)) for file in sorted(_folder(console).glob(f"*{SUFFIX}"))}
    runs = {name: await _runs(console, name) for name in counts}
    return console.page("sets.html", sets=counts, runs=runs, metric=METRIC, folder=_folder(console))


async def judged_set(console: Console, request: Request) -> Response:
    """The page of a set: a question with its hits to mark, the set's questions, and its runs."""
    name, parameters = request.path_params["name"], request.query_params
    lines, asker = judged_lines(_file(console, name)), Asker.of(parameters, console.settings)
    answer: Answer | None = None
    problem, text = "", parameters.get("q", "").strip()
    if text:
        try:
            answer = await console.desk.search(
                asker.principal(console.tenant), SearchRequest(text, limit=ASKED_HITS), trace=False
            )
        except RefdeskError as error:
            problem = str(error)
    right = next((line.expect for line in lines if line.text == text), ())
    runs = await _runs(console, name)
    return console.page(
        "judged.html",
        status=400 if problem else 200,
        name=name,
        file=_file(console, name),
        parameters=parameters,
        asker=asker,
        problem=problem,
        documents=_documents(answer) if answer else [],
        is_asked=answer is not None,
        right=frozenset(right),
        questions=list(enumerate(lines)),
        runs=runs,
        comparison=await _comparison(console, runs),
        metric=METRIC,
        metrics=SHOWN_METRICS,
        modes=get_args(Mode),
        profiles=sorted({DEFAULT_PROFILE, *console.settings.search.profiles}),
    )


async def new_set(_console: Console, _request: Request, form: FormData) -> Response:
    """Go to the page of a new set. Its file is made with the first question."""
    return see_other(f"/judged/{valid_name(str(form.get('name', '')).strip())}")


async def judge(console: Console, request: Request, form: FormData) -> Response:
    """Store a question with the documents that answer it, replacing the same question."""
    name, text = request.path_params["name"], str(form.get("q", "")).strip()
    expect = tuple(dict.fromkeys(str(source_id) for source_id in form.getlist("right")))
    if not text or not expect:
        raise InvalidRequestError("Mark at least one document that answers the question.")
    asker = Asker(str(form.get("user", "")).strip(), str(form.get("groups", "")).strip())
    principal = asker.principal(console.tenant)
    asked_as = PrincipalLine(tenant=principal.tenant, user=principal.user, groups=principal.groups)
    line = JudgedLine(
        text=text, expect=expect, principal=asked_as if principal.user or principal.groups else None
    )
    lines = [other_line for other_line in judged_lines(_file(console, name)) if other_line.text != text]
    _write(_file(console, name), [*lines, line])
    console.say(f"Kept the question, with {counted(len(expect), 'document')} that answer it.")
    return see_other(f"/judged/{name}")


async def forget(console: Console, request: Request, form: FormData) -> Response:
    """Remove a question from a set."""
    name, text = request.path_params["name"], str(form.get("q", ""))
    lines = judged_lines(_file(console, name))
    remaining = [line for line in lines if line.text != text]
    if len(remaining) == len(lines):
        raise NotFoundError("There is no such question. It may be gone already.")
    _write(_file(console, name), remaining)
    console.say("Took the question out.")
    return see_other(f"/judged/{name}")


async def measure(console: Console, request: Request, form: FormData) -> Response:
    """Ask all questions of a set, and keep the run, like `refdesk-admin eval`."""
    name, mode = request.path_params["name"], str(form.get("mode", ""))
    if mode not in {"", *get_args(Mode)}:
        raise InvalidRequestError("Choose a mode of the list.")
    settings = evaluation_settings(console.settings)
    read = read_set(_file(console, name))
    profile = str(form.get("profile", "")) or DEFAULT_PROFILE
    chosen = contenders(settings, [profile], [cast("Mode", mode) if mode else None])
    async with prepare_existing(read, settings, None) as prepared:
        runs = await evaluate(read, prepared, os.environ, chosen)
    (run,) = await keep_runs(settings.home, console.tenant, runs)
    console.say(f"Run {run.id}: {METRIC} is {run.summary.metrics[METRIC]:.4f}.")
    return see_other(f"/judged/{name}")


def _folder(console: Console) -> Path:
    return judged_folder(console.base_settings.data, console.tenant)


def _file(console: Console, name: str) -> Path:
    """The file of a set; raises ConfigurationError if the name is not valid."""
    return _folder(console) / f"{valid_name(name)}{SUFFIX}"


def _write(file: Path, lines: list[JudgedLine]) -> None:
    with writable(f"The folder {file.parent} can't be made"):
        make_private(file.parent)
    write_whole(file, file_content(lines))


def _documents(answer: Answer) -> list[Mapping[str, object]]:
    """The documents of the hits, best first, each with its hits."""
    shown = zip(answer.hits, hit_articles(answer, address_of), strict=True)
    articles = grouped(((hit.source.id, hit.source.title), article) for hit, article in shown)
    return [{"id": id_, "title": title, "hits": hits} for (id_, title), hits in articles.items()]


async def _runs(console: Console, name: str) -> list[MeasuredRun]:
    """The kept runs of a set, newest first."""
    summaries = await load_summaries(console.settings.home, console.tenant)
    measured: list[MeasuredRun] = []
    for id_, summary in summaries.items():
        if summary and summary.set == name and METRIC in summary.metrics:
            before = measured[-1].summary.metrics[METRIC] if measured else None
            value = summary.metrics[METRIC]
            measured.append(MeasuredRun(id_, summary, None if before is None else value - before))
    return measured[::-1]


async def _comparison(console: Console, runs: list[MeasuredRun]) -> Comparison | None:
    try:
        last, before = [await load_run(console.settings.home, console.tenant, run.id) for run in runs[:2]]
        return compare(before, last, METRIC)
    except (ValueError, RefdeskError):  # only one run, or no common question
        return None

"""The queries of a search: the question itself, and what query stages make of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag.answers import SubQuery
from rag.errors import InvalidRequestError
from rag.search.recall import Query
from rag.search.stages.queries import more_queries
from rag.search.view import narrowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.search.pipeline import Pipeline
    from rag.search.plan import Plan
    from rag.search.trace import Step
    from rag.search.view import View

NARROWER = "A part of the question was left out: its filter can't be put on top of the request's ({})."


async def sub_queries(views: Sequence[View], search: Pipeline) -> list[SubQuery]:
    """The question, first and as it is, and what the plan's query stages add; why one failed is noted."""
    queries = [SubQuery(search.plan.query)]
    for stage in search.plan.query_stages:
        with search.stages.stage(stage.stage) as step:
            made = await more_queries(
                stage,
                queries,
                chat=search.models.chat,
                collections=[view.table.collection for view in views],
                today=datetime.now(UTC).date(),
                used=step.uses,
            )
            step.warns(*made.warnings, failed=made.failed)
            step.made(len(made.queries), of=len(queries))
        search.notes.extend(made.warnings)
        queries = list(made.queries)
    return queries


async def embedded(queries: Sequence[SubQuery], views: Sequence[View], search: Pipeline) -> list[Query]:
    """The queries with their vectors, all made in one batch, each with what it looks at, if anything."""
    with search.stages.stage("embed") as step:
        embedder = search.models.embedder
        vectors = await embedder.embed([query.text for query in queries], "query")
        made = [
            Query(
                query.text,
                vector,
                embedder.known(query.text),
                tuple(_views(query, views, search.plan, step)),
                query.weight,
            )
            for query, vector in zip(queries, vectors, strict=True)
        ]
    search.notes.extend(step.stage.warnings)
    return made


def _views(query: SubQuery, views: Sequence[View], plan: Plan, step: Step) -> Sequence[View]:
    """The views that a query looks at, narrowed by its own filter on top of the request's."""
    names = query.collections
    chosen = [view for view in views if not names or view.table.collection.name in names]
    if query.filter is None:
        return chosen
    both = query.filter if plan.filter is None else {"$and": [plan.filter, query.filter]}
    try:
        return narrowed(chosen, replace(plan, filter=both))
    except InvalidRequestError as error:
        step.warns(NARROWER.format(str(error).rstrip(".")))
        return ()

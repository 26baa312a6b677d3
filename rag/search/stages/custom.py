"""The stage `custom`: an operator's own function adds queries, or reorders, rescores or drops hits.

A function that fails or returns anything else changes nothing: the search continues with a warning. Warnings
and logs above DEBUG never repeat texts of the function, which can contain parts of documents.
"""

from __future__ import annotations

import inspect
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from math import inf
from numbers import Real
from typing import TypeAlias

import anyio

from rag.answers import Hit, SubQuery
from rag.config.profiles import CustomStage
from rag.errors import ConfigurationError, RefdeskError
from rag.runtime import FOREIGN_ERRORS, named_object, raise_own_cancellation
from rag.search.recall import Query
from rag.search.search_state import OpenStep, SearchState

CustomFunction: TypeAlias = "Callable[..., Awaitable[object]]"

log = logging.getLogger(__name__)


class CustomError(RefdeskError):
    """An operator's function failed. The message says how, without any text of the function."""


def load_function(stage: CustomStage) -> CustomFunction:
    """The function that a stage calls: "package.module:function" -> package.module.function.

    Raises:
        ConfigurationError: the module or the function doesn't exist, or it isn't `async def`.
    """
    function: CustomFunction = (
        named_object(stage.call, "The stage custom calls") if isinstance(stage.call, str) else stage.call
    )
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"The stage custom calls {stage.called}, which isn't an async def function.")
    return function


async def call(stage: CustomStage, *arguments: object) -> object:
    """Call the stage's function with the arguments and the stage's options, and return its result.

    Raises:
        CustomError: the function raised an exception.
        ConfigurationError: as `load_function`.
    """
    function = load_function(stage)
    try:
        return await function(*arguments, stage.options)
    except FOREIGN_ERRORS as error:
        raise_own_cancellation(error)
        where = "".join(traceback.format_tb(error.__traceback__))
        log.debug("%s raised %s:\n%s", stage.called, type(error).__name__, where)
        raise CustomError(f"it raised {type(error).__name__}") from error


async def custom_queries(stage: CustomStage, question: str) -> list[SubQuery]:
    """The queries that the stage's function returns. Only the types of their values are checked here.

    Raises:
        CustomError: it raised an exception, or didn't return a sequence of strings and sub-queries.
        ConfigurationError: as `load_function`.
    """
    returned = await call(stage, question)
    try:
        return _sub_queries(returned)
    except (TypeError, ValueError, RecursionError) as error:
        raise CustomError("it returned something other than queries") from error


def _sub_queries(returned: object) -> list[SubQuery]:
    if not isinstance(returned, Sequence) or isinstance(returned, str):
        raise TypeError
    return [_sub_query(SubQuery(draft) if isinstance(draft, str) else draft) for draft in returned]


def _sub_query(draft: object) -> SubQuery:
    if not (
        isinstance(draft, SubQuery)
        and isinstance(draft.text, str)
        and isinstance(draft.weight, float | int)
        and isinstance(draft.reason, str)
        and isinstance(draft.collections, Sequence)
        and all(isinstance(name, str) for name in draft.collections)
    ):
        raise TypeError
    # Raises for values that JSON can't hold: a filter goes into keys and notes as JSON.
    return replace(draft, filter=json.loads(json.dumps(draft.filter)))


FAILED = "The stage {} failed ({}); it left the passages unchanged."


async def custom_stage(
    hits: Sequence[Hit], stage: CustomStage, query: Query, _run: SearchState, step: OpenStep
) -> list[Hit]:
    """The hits as `function(query, hits, options)` returns them; unchanged, with a warning, if it fails.

    It may return each of the hits at most once, in any order, with a new score of at most 1; nothing else.

    Raises:
        ConfigurationError: as `load_function`.
    """
    try:
        with anyio.fail_after(stage.timeout_seconds):
            returned = await call(stage, query.text, tuple(hits))
    except TimeoutError:
        cause = f"no answer within {stage.timeout_seconds:g} seconds"
    except CustomError as error:
        cause = str(error).removesuffix(".")
    else:
        if isinstance(returned, list | tuple) and _are_some_of(returned, hits):
            by_id = {hit.chunk.id: hit for hit in hits}  # what isn't compared (vectors) is ours again
            return [replace(by_id[hit.chunk.id], score=float(hit.score)) for hit in returned]
        cause = "it returned something other than hits that it was given"
    step.add_warnings(FAILED.format(stage.called, cause), failed=True)
    return list(hits)


def _are_some_of(returned: Sequence[object], hits: Sequence[Hit]) -> bool:
    """Whether `returned` has only these hits, each at most once, changed in nothing but the score."""
    # Only hits that passed the gate may leave, so a hit that the function made up or altered is refused.
    remaining = {hit.chunk.id: hit for hit in hits}
    for item in returned:
        if not (isinstance(item, Hit) and isinstance(item.score, Real) and -inf < item.score <= 1):
            return False
        hit = remaining.pop(item.chunk.id, None)
        if hit is None or replace(item, score=hit.score) != hit:
            return False
    return True

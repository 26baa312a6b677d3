"""Functions of the operator's own, which stages call by their dotted paths.

The stage `custom` of hits: a function of the operator's own orders, scores anew or leaves out.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import traceback
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias

import anyio

from rag.answers import Hit, SubQuery
from rag.errors import ConfigurationError, RefdeskError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import ModuleType

    from rag.config.profiles import CustomStage
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run


CustomFunction: TypeAlias = "Callable[..., Awaitable[object]]"

log = logging.getLogger(__name__)


class CustomError(RefdeskError):
    """An operator's function failed. The message is the end of "the function failed: ", without its texts."""


def loaded(stage: CustomStage) -> CustomFunction:
    """The function that a stage calls: "package.module:function" -> package.module.function.

    Raises:
        ConfigurationError: there is none, or it isn't `async def`.
    """
    module_name, _, name = stage.call.partition(":")
    function: CustomFunction | None = getattr(_module(stage.call, module_name), name, None)
    if function is None:
        raise ConfigurationError(f"The stage custom calls {stage.call}, but that module has no {name}.")
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"The stage custom calls {stage.call}, which isn't an async def function.")
    return function


def _module(call: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            why = f"there is no module {error.name} in refdesk's environment"
        else:
            why = f"importing its module raised {type(error).__name__}"
        raise ConfigurationError(f"The stage custom calls {call}, but {why}.") from error


async def outcome(stage: CustomStage, *given: object) -> object:
    """What the stage's function makes of what it is given and the stage's options.

    Raises:
        CustomError: the function raised something.
        ConfigurationError: there is no such function.
    """
    function = loaded(stage)
    try:
        return await function(*given, stage.options)
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__))
        log.debug("%s raised %s:\n%s", stage.call, type(error).__name__, where)
        raise CustomError(f"it raised {type(error).__name__}") from error


async def custom_queries(stage: CustomStage, question: str) -> list[SubQuery]:
    """What the stage's function would ask, as it says it; of the values only the types are checked.

    Raises:
        CustomError: it raised something, or returned something else than a sequence of texts and sub-queries.
        ConfigurationError: there is no such function.
    """
    made = await outcome(stage, question)
    try:
        return _sub_queries(made)
    except (TypeError, ValueError, RecursionError) as error:
        raise CustomError("it returned something other than queries") from error


def _sub_queries(made: object) -> list[SubQuery]:
    if not isinstance(made, Sequence) or isinstance(made, str):
        raise TypeError
    return [_sub_query(SubQuery(one) if isinstance(one, str) else one) for one in made]


def _sub_query(one: object) -> SubQuery:
    if not (
        isinstance(one, SubQuery)
        and isinstance(one.text, str)
        and isinstance(one.weight, float | int)
        and isinstance(one.reason, str)
        and isinstance(one.collections, Sequence)
        and all(isinstance(name, str) for name in one.collections)
    ):
        raise TypeError
    return replace(one, filter=json.loads(json.dumps(one.filter)))


FAILED = "The stage {} failed ({}); it left the passages unchanged."


async def custom_hits(hits: Sequence[Hit], stage: CustomStage, query: str, step: OpenStep) -> list[Hit]:
    """What `function(query, hits, options)` makes of the hits; if that is none, they stay, with a warning.

    It may return any of them once, in any order, each with another score of at most 1, and nothing else.

    Raises:
        ConfigurationError: there is no such function.
    """
    try:
        with anyio.fail_after(stage.timeout_seconds):
            made = await outcome(stage, query, tuple(hits))
    except TimeoutError:
        cause = f"no answer within {stage.timeout_seconds:g} seconds"
    except CustomError as error:
        cause = str(error).removesuffix(".")
    else:
        if isinstance(made, list | tuple) and _are_some_of(made, hits):
            given = {hit.chunk.id: hit for hit in hits}
            return [replace(given[one.chunk.id], score=float(one.score)) for one in made]
        cause = "it returned something other than hits that it was given"
    step.warns(FAILED.format(stage.call, cause), failed=True)
    return list(hits)


def _are_some_of(made: Sequence[object], hits: Sequence[Hit]) -> bool:
    """Whether all are hits that were given, but for their scores, and none is there twice."""
    given = {hit.chunk.id: hit for hit in hits}
    for one in made:
        if not (isinstance(one, Hit) and isinstance(one.score, Real) and -inf < one.score <= 1):
            return False
        before = given.pop(one.chunk.id, None)
        if before is None or replace(one, score=before.score) != before:
            return False
    return True


async def custom(
    hits: Sequence[Hit], stage: CustomStage, query: Query, _run: Run, step: OpenStep
) -> list[Hit]:
    """The stage `custom` for hits; see `custom_hits`."""
    return await custom_hits(hits, stage, query.text, step)

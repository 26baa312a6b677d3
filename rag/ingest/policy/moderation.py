"""Moderation: an operator's function, command or endpoint decides for each document whether it is stored.

It is asked only for documents that are new or changed, with their text as it would be stored, and for a
limited time. After some failures in a row it isn't asked any more in this run.
"""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import anyio

from rag.config.model_settings import EndpointOptions
from rag.config.settings import ModerationSettings
from rag.corpus import Document
from rag.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from rag.models.endpoint import Endpoint

Verdict = Literal["allow", "flag", "skip"]
Ask: TypeAlias = "Callable[[Mapping[str, object]], Awaitable[str]]"

PIECE_CHARS = 8000  # of a text that an endpoint is asked about; some take no more than 8,192 tokens
PIECES = 32  # in a request, as OpenAI has it
FAILURES = 3  # in a row, after which it isn't asked any more


class ModerationError(Exception):
    """No verdict; the message says why, without any text of the operator's program."""


@dataclass(slots=True)
class Moderator:
    """Who decides, by `settings`. `ask` gets path, title, text and metadata of a document."""

    settings: ModerationSettings
    ask: Ask
    failures: int = 0

    @property
    def recipe(self) -> str:
        """What the verdicts depend on."""
        return self.settings.model_dump_json(include={"call", "command", "base_url", "model", "flagged"})

    async def verdict(self, document: Document, path: str) -> Verdict:
        """What is to become of a document.

        Raises:
            ModerationError: there is no verdict.
        """
        if self.failures >= FAILURES:
            raise ModerationError(f"it failed {FAILURES} times in a row and was not asked any more")
        request = {
            "path": path,
            "title": document.title,
            "text": document.text,
            "metadata": dict(document.metadata),
        }
        try:
            with anyio.fail_after(self.settings.timeout_seconds):
                reply = await self.ask(request)
        except TimeoutError:
            error = ModerationError(f"no answer within {self.settings.timeout_seconds:g} seconds")
        except ModerationError as failed:
            error = failed
        else:
            if reply in get_args(Verdict):
                self.failures = 0
                return cast("Verdict", reply)
            error = ModerationError("it answered none of allow, flag and skip")
        self.failures += 1
        raise error


@asynccontextmanager
async def open_moderation(
    settings: ModerationSettings, environment: Mapping[str, str]
) -> AsyncIterator[Moderator | None]:
    """The moderator of the settings, for as long as the context lasts; None without moderation.

    Raises:
        ConfigurationError: the function or program doesn't exist, or a key is missing.
    """
    if settings.call:
        yield Moderator(settings, _calling(settings.call))
    elif settings.command:
        if not shutil.which(settings.command[0]):
            raise ConfigurationError(
                f"moderation.command is {settings.command[0]!r}, but this machine has no such program. "
                "Install it, or give its whole path."
            )
        yield Moderator(settings, partial(_run, settings.command))
    elif settings.base_url:
        from rag.models.endpoint import open_endpoint  # noqa: PLC0415 takes 0.5 s and more

        model = _Model(settings.base_url, settings.model, settings.api_key_env, EndpointOptions())
        seconds = settings.timeout_seconds
        async with open_endpoint("moderation", model, environment, timeout_seconds=seconds) as endpoint:
            yield Moderator(settings, partial(_ask_endpoint, endpoint, settings))
    else:
        yield None


def unasked(settings: ModerationSettings) -> Moderator | None:
    """A moderator that allows everything, for a run that stores and sends nothing."""

    async def allow(_document: Mapping[str, object]) -> str:
        return "allow"

    return Moderator(settings, allow) if settings.call or settings.command or settings.base_url else None


def _calling(path: str) -> Ask:
    module_name, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise ConfigurationError(
            f"moderation.call is {path}, but importing its module raised {type(error).__name__}."
        ) from error
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"moderation.call is {path}, which isn't an async def function of that module."
        )

    async def ask(document: Mapping[str, object]) -> str:
        try:
            return str(await function(document))
        except Exception as error:
            raise ModerationError(f"it raised {type(error).__name__}") from error

    return ask


async def _run(command: Sequence[str], document: Mapping[str, object]) -> str:
    """What a command prints when it reads the document as JSON. It ends if it is cancelled."""
    try:
        done = await anyio.run_process(
            list(command), input=json.dumps(document).encode(), stderr=DEVNULL, check=False
        )
    except OSError as error:
        raise ModerationError(f"the command can't be run: {error.strerror}") from error
    if done.returncode:
        raise ModerationError(f"the command ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class _Model:
    base_url: str
    model: str
    api_key_env: str
    options: EndpointOptions


async def _ask_endpoint(
    endpoint: Endpoint, settings: ModerationSettings, document: Mapping[str, object]
) -> str:
    """What an endpoint with OpenAI's moderation API says of the title and all pieces of the text."""
    text = f"{document['title']}\n{document['text']}"
    pieces = [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
    for start in range(0, len(pieces), PIECES):
        if await _flags(endpoint, settings.model, pieces[start : start + PIECES]):
            return settings.flagged
    return "allow"


async def _flags(endpoint: Endpoint, model: str, pieces: Sequence[str]) -> bool:
    async def request() -> bytes:
        body = {"input": list(pieces)} | ({"model": model} if model else {})
        reply = await endpoint.client.moderations.with_raw_response.create(**body)  # type: ignore[arg-type]
        return reply.content

    try:
        results = json.loads(await endpoint.answer(request))["results"]
        flagged = [result["flagged"] for result in results]
    except ProviderError as error:
        raise ModerationError(str(error).rstrip(".")) from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ModerationError("the endpoint's answer is not valid") from error
    if len(flagged) != len(pieces) or not all(isinstance(verdict, bool) for verdict in flagged):
        raise ModerationError("the endpoint's answer is not valid")
    return any(flagged)

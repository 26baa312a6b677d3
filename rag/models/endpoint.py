"""Requests to a remote model, with retries and exponential backoff; failures become errors in our own words.

The retry loop is our own because the SDK's has no timeout per attempt, obeys the reply's `x-should-retry`,
and doesn't report how many attempts it made.
"""

from __future__ import annotations

import random
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import urlsplit

import anyio
import openai

from rag.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

CallError: TypeAlias = openai.APIStatusError | openai.APIConnectionError | TimeoutError

FIRST_DELAY = 0.5  # seconds before the second attempt
ATTEMPTS = 5
LONGEST_WAIT = 30  # seconds; caps the server's Retry-After
TRANSIENT = frozenset({408, 409, 429})  # worth another attempt, like all statuses from 500
REFUSED = frozenset({400, 413, 422})  # how servers refuse a large batch, a long text or a parameter
SERVER_ERROR = 500
ADVICE = {
    401: "; check the API key in {key}",
    403: "; check the API key in {key}",
    404: "; check model and base_url in the settings",
}


class RefusedError(ProviderError):
    """The endpoint refuses this request; it may accept a smaller one, or one with fewer parameters."""


class RemoteModel(Protocol):
    """What the settings of the embedder, the chat model and the reranker have in common."""

    @property
    def base_url(self) -> str:
        """The URL that request paths are appended to."""

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""

    @property
    def api_key_env(self) -> str:
        """The environment variable that holds the API key."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model behind one URL.

    `name` begins every message about it. `key_name` is the environment variable of its API key.
    `timeout_seconds` applies to each attempt. `first_delay`, in seconds, doubles with every attempt.
    """

    client: openai.AsyncOpenAI
    name: str
    key_name: str
    timeout_seconds: float
    first_delay: float = FIRST_DELAY

    async def answer(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """The result of `request`, called until it succeeds or the attempts are used up.

        Raises:
            RefusedError: the endpoint refuses this request.
            ProviderError: it gave no answer.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                with anyio.fail_after(self.timeout_seconds):
                    return await request()
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if attempt == ATTEMPTS or not _is_transient(error):
                    raise self._failure(error, attempt) from error
                delay = delay_after(attempt, _retry_after(error), first_delay=self.first_delay)
            await anyio.sleep(delay)

    def _failure(self, error: CallError, attempts: int) -> ProviderError:
        kind = RefusedError if _status(error) in REFUSED else ProviderError
        return kind(f"{self.name} failed after {attempts} of {ATTEMPTS} attempts: {self._cause(error)}.")

    def _cause(self, error: CallError) -> str:
        if status := _status(error):
            return f"HTTP {status}" + ADVICE.get(status, "").format(key=self.key_name)
        if isinstance(error, TimeoutError):
            return f"no answer within {self.timeout_seconds:g} seconds"
        # What is left is a connection error of the SDK. Only the class of its cause is safe to rely on.
        if type(error.__cause__).__name__ == "ConnectError":
            return "no connection; check base_url, and whether the server is running"
        return "the connection broke"


@asynccontextmanager
async def open_endpoint(
    kind: str,
    model: RemoteModel,
    environment: Mapping[str, str],
    *,
    timeout_seconds: float,
    first_delay: float = FIRST_DELAY,
) -> AsyncIterator[Endpoint]:
    """The endpoint of `model`, for as long as the context lasts. Opening sends no request.

    `kind` appears in messages: "chat" -> 'The chat endpoint http://127.0.0.1:8000/v1 (model tiny)'.

    Raises:
        ConfigurationError: the endpoint is OpenAI's own, and `environment` has no key.
    """
    key = _api_key(model, environment)
    # Endpoint has its own timeout and retries instead of the SDK's.
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=key, timeout=None, max_retries=0)
    if not _is_openai(model):  # the SDK reads them from the environment; other providers must not get them
        client.organization = client.project = None
    async with client:
        yield Endpoint(client, _name(kind, model), model.api_key_env, timeout_seconds, first_delay)


def _api_key(model: RemoteModel, environment: Mapping[str, str]) -> str:
    key = environment.get(model.api_key_env)
    if key:
        return key
    if _is_openai(model):
        raise ConfigurationError(
            f"OpenAI needs an API key. Set the environment variable {model.api_key_env}."
        )
    return "none"  # local servers need no key, but the SDK does


def _is_openai(model: RemoteModel) -> bool:
    return urlsplit(model.base_url).hostname == "api.openai.com"


def _name(kind: str, model: RemoteModel) -> str:
    """The URL and the model, without credentials that the URL may contain."""
    url = urlsplit(model.base_url)
    shown = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return f"The {kind} endpoint {shown}" + (f" (model {model.model})" if model.model else "")


def _status(error: CallError) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _is_transient(error: CallError) -> bool:
    status = _status(error)
    return status is None or status in TRANSIENT or status >= SERVER_ERROR


def _retry_after(error: CallError) -> str:
    return error.response.headers.get("Retry-After", "") if isinstance(error, openai.APIStatusError) else ""


def delay_after(attempt: int, retry_after: str, *, first_delay: float) -> float:
    """Seconds to wait after the failed `attempt` (from 1): Retry-After, or exponential backoff with jitter.

    A Retry-After in the form of a date is ignored.
    """
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return min(int(retry_after), LONGEST_WAIT)
    jitter = random.uniform(0, first_delay / 2)  # noqa: S311 it only spreads clients out, so it need not be unpredictable
    return first_delay * 2.0 ** (attempt - 1) + jitter

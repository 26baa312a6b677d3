"""One request to a remote model: tried again with growing delays, and its failure told in words.

Retries are a loop of our own: the SDK's has no limit for a call as a whole, draws its
jitter otherwise, lets a reply's `x-should-retry` decide, and doesn't tell the attempts.
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
LONGEST_WAIT = 30  # seconds that a Retry-After is granted at most
PASSING = frozenset({408, 409, 429})  # statuses that another attempt can mend, like all from 500
TOO_MUCH = frozenset({400, 413, 422})  # how servers refuse a batch, a long text or a parameter
SERVER_ERROR = 500
ADVICE = {
    401: "; is the key in {key} right?",
    403: "; is the key in {key} right?",
    404: "; are model and base_url right?",
}


class RefusedError(ProviderError):
    """The endpoint won't take this request; it may take a smaller or plainer one."""


class RemoteModel(Protocol):
    """What the settings of embedder, chat and reranker have in common."""

    @property
    def base_url(self) -> str:
        """What the paths of requests are put below."""

    @property
    def model(self) -> str:
        """As the endpoint knows it."""

    @property
    def api_key_env(self) -> str:
        """The environment variable of its key."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model behind one URL.

    `name` begins every message about it, `key_name` is the environment variable of its key,
    `timeout_seconds` are for one attempt, and `first_delay` (seconds) doubles with every attempt.
    """

    client: openai.AsyncOpenAI
    name: str
    key_name: str
    timeout_seconds: float
    first_delay: float = FIRST_DELAY

    async def answer(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """What `request` returns the first time that it succeeds.

        Raises:
            RefusedError: the endpoint won't take this request.
            ProviderError: it gave no answer.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                with anyio.fail_after(self.timeout_seconds):
                    return await request()
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if attempt == ATTEMPTS or not _may_pass(error):
                    raise self._failure(error, attempt) from error
                delay = delay_after(attempt, _retry_after(error), first_delay=self.first_delay)
            await anyio.sleep(delay)

    def _failure(self, error: CallError, attempts: int) -> ProviderError:
        kind = RefusedError if _status(error) in TOO_MUCH else ProviderError
        return kind(f"{self.name} failed after {attempts} of {ATTEMPTS} attempts: {self._cause(error)}.")

    def _cause(self, error: CallError) -> str:
        if status := _status(error):
            return f"HTTP {status}" + ADVICE.get(status, "").format(key=self.key_name)
        if isinstance(error, TimeoutError):
            return f"no answer within {self.timeout_seconds:g} seconds"
        return f"no connection ({type(error.__cause__).__name__})"


@asynccontextmanager
async def open_endpoint(
    kind: str,
    model: RemoteModel,
    environment: Mapping[str, str],
    *,
    timeout_seconds: float,
    first_delay: float = FIRST_DELAY,
) -> AsyncIterator[Endpoint]:
    """The endpoint of `model`, connected as long as the context lasts; nothing is sent yet.

    `kind` is for messages: "chat" -> 'The chat endpoint http://127.0.0.1:8000/v1 (model tiny)'.

    Raises:
        ConfigurationError: `environment` has no key for OpenAI itself.
    """
    key = _api_key(model, environment)
    # Timeout and retries are the endpoint's own, not the SDK's.
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=key, timeout=None, max_retries=0)
    if not _is_openai(model):  # the SDK takes them from the environment; they are no business of others
        client.organization = client.project = None
    async with client:
        yield Endpoint(client, _name(kind, model), model.api_key_env, timeout_seconds, first_delay)


def _api_key(model: RemoteModel, environment: Mapping[str, str]) -> str:
    key = environment.get(model.api_key_env)
    if key:
        return key
    if _is_openai(model):
        raise ConfigurationError(
            f"OpenAI wants a key: put it into the environment variable {model.api_key_env}."
        )
    return "none"  # local servers want none, the SDK does


def _is_openai(model: RemoteModel) -> bool:
    return urlsplit(model.base_url).hostname == "api.openai.com"


def _name(kind: str, model: RemoteModel) -> str:
    """The URL and model, without credentials that a URL can hold."""
    url = urlsplit(model.base_url)
    place = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return f"The {kind} endpoint {place}" + (f" (model {model.model})" if model.model else "")


def _status(error: CallError) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def _may_pass(error: CallError) -> bool:
    status = _status(error)
    return status is None or status in PASSING or status >= SERVER_ERROR


def _retry_after(error: CallError) -> str:
    return error.response.headers.get("Retry-After", "") if isinstance(error, openai.APIStatusError) else ""


def delay_after(attempt: int, retry_after: str, *, first_delay: float) -> float:
    """Seconds to wait after the failed `attempt` (from 1): what the server says, else doubled every time.

    A Retry-After that is a date counts as none.
    """
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return min(int(retry_after), LONGEST_WAIT)
    jitter = random.uniform(0, first_delay / 2)  # noqa: S311 it spreads clients and is no secret
    return first_delay * 2.0 ** (attempt - 1) + jitter

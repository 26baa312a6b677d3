"""Requests to a remote model: retries with exponential backoff, a circuit breaker, errors in our own words.

The retry loop is our own because the SDK's has no timeout per attempt, obeys the reply's `x-should-retry`,
and doesn't report how many attempts it made.

The caller may set a deadline (`anyio.fail_after`). A little before it, the call ends itself with an error
that says what happened, and its breaker learns that the endpoint was late.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio
import openai

from rag.config.model_settings import ChatSettings, EmbedderSettings, RerankerSettings
from rag.errors import ConfigurationError, ProviderError
from rag.models import web_client
from rag.models.breaker import Breaker, Call, HeldBackError, RefusedError
from rag.models.web_client import UnreachableError, proxy_for
from rag.uris import redirect_target, seconds_asked

if TYPE_CHECKING:
    import httpx2


RemoteModel: TypeAlias = ChatSettings | EmbedderSettings | RerankerSettings
CallError: TypeAlias = openai.APIStatusError | openai.APIConnectionError | TimeoutError

FIRST_DELAY = 0.5  # seconds before the second attempt; doubled with every attempt
ATTEMPTS = 5
LONGEST_WAIT = 30  # seconds; caps the server's Retry-After
SPARE = 0.05  # the share of the caller's time that is left when a call ends itself
MOST_SPARE = 1.0  # the most of it, in seconds
TRANSIENT = frozenset({408, 409, 429})  # worth another attempt, like all statuses from 500
REFUSED = frozenset({400, 413, 422})  # statuses for a large batch, a long text or a wrong parameter
SERVER_ERROR = 500
PAYMENT_REQUIRED = 402
ADVICE = {
    404: "; check model and base_url in the settings",
    407: "; that proxy wants a user name and a password in its variable",
    429: "; its request limit is reached or its credit is used up: wait, or raise the limit there",
}
NO_CREDIT = "; the credit there is used up. Add some, or raise the account's limit"
NO_MODEL = "; it has no such model. Check model in the settings, or fetch the model there"
UNAUTHORIZED = frozenset({401, 403})
CHECK_KEY = "; check the API key in {}"
NO_KEY_SENT = "; no API key was sent. "
REDIRECTS = range(300, 400)
REDIRECTED = (
    "; it redirects to {target}, where nothing was sent. If that is the right endpoint, set base_url to it"
)
UNAVAILABLE = "is not available just now"
LATE = "gave no answer in time"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model behind one URL.

    `name` begins every message about it, for operators; callers read of "the `kind` model". `check_key` is
    the advice if it refuses the API key, or the lack of one. `timeout_seconds` applies to each attempt.
    """

    client: openai.AsyncOpenAI
    kind: str
    name: str
    check_key: str
    timeout_seconds: float
    breaker: Breaker

    async def answer(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """The result of `request`, called until it succeeds, or the attempts or the caller's time run out.

        Raises:
            RefusedError: the endpoint refuses this request.
            HeldBackError: it failed a moment ago, so nothing was sent.
            ProviderError: it gave no answer.
        """
        deadline = anyio.current_effective_deadline()
        call = self._begun(deadline - anyio.current_time())
        last = deadline - min(SPARE * call.patience, MOST_SPARE)
        try:
            body = await self._attempts(request, call, last)
        except RefusedError:
            self._succeeded(call)  # it answered, so it isn't failing
            raise
        except anyio.get_cancelled_exc_class():
            if anyio.current_time() >= last:  # the event loop was too busy to end the call in time
                self.breaker.failed(call, self._lateness(call), late=True)
            raise
        finally:
            # After any other outcome this does nothing. A trial without one would hold back calls for good.
            self.breaker.abandoned(call)
        self._succeeded(call)
        return body

    def json_of(self, body: bytes) -> Any:  # noqa: ANN401 any JSON
        """The JSON of an answer.

        Raises:
            ProviderError: it isn't JSON, but for example the page of a proxy or of a wrong address.
        """
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self.invalid("answers with something else than JSON. Check base_url") from error
        if isinstance(reply, dict) and reply.get("error"):
            raise self.invalid("returned an error instead of an answer, with HTTP status 200")
        return reply

    def invalid(self, problem: str, *, for_caller: str = "gave an invalid answer") -> ProviderError:
        """The error for a useless answer: `problem` is a predicate, "refused to answer"."""
        self.breaker.failures += 1  # it answered at once, so no call is held back
        return self._error(problem, for_caller)

    def _begun(self, patience: float) -> Call:
        try:
            return self.breaker.begin(patience)
        except HeldBackError as error:
            raise self._error(f"is not asked again yet, because it {error}", kind=HeldBackError) from None

    def _succeeded(self, call: Call) -> None:
        if self.breaker.succeeded(call):
            log.warning("%s answers again.", self.name)

    async def _attempts(self, request: Callable[[], Awaitable[bytes]], call: Call, deadline: float) -> bytes:
        attempt = 0
        while True:
            attempt += 1
            remaining = deadline - anyio.current_time()
            try:
                with anyio.fail_after(min(self.timeout_seconds, remaining)):
                    return await request()
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if _status(error) in REFUSED:
                    cause = self._cause(error, attempt)
                    raise self._error(cause, "refused this request", kind=RefusedError) from error
                if isinstance(error, TimeoutError) and remaining < self.timeout_seconds:
                    self.breaker.failed(call, self._lateness(call), late=True)
                    raise self._error(self._lateness(call), LATE) from error
                delay = delay_after(attempt, _retry_after(error))
                in_vain = anyio.current_time() + delay >= deadline
                # A trial isn't repeated: while it lasts, all other calls are held back.
                if attempt == ATTEMPTS or call.trial or in_vain or not _is_transient(error):
                    cause = self._cause(error, attempt)
                    asked = seconds_asked(_retry_after(error)) or 0.0
                    self.breaker.failed(call, cause, late=False, asked=asked)
                    raise self._error(cause) from error
                if attempt > 1 or isinstance(error, TimeoutError):  # a single refusal is soon over
                    again = f"{self._reason(error)}. Attempt {attempt + 1} of {ATTEMPTS} follows."
                    log.warning("%s: %s", self.name, again)
            await anyio.sleep(delay)

    def _error(
        self, problem: str, for_caller: str = UNAVAILABLE, *, kind: type[ProviderError] = ProviderError
    ) -> ProviderError:
        return kind(f"{self.name} {problem}.", for_caller=f"The {self.kind} model {for_caller}.")

    def _lateness(self, call: Call) -> str:
        return f"gave no answer within {call.patience:.2g} seconds"

    def _cause(self, error: CallError, attempts: int) -> str:
        return f"failed after {attempts} of {ATTEMPTS} attempts: {self._reason(error)}"

    def _reason(self, error: CallError) -> str:
        through = f", through the proxy of {proxy}" if (proxy := proxy_for(self.url)) else ""
        if isinstance(error, openai.APIStatusError):
            status, advice = error.status_code, ADVICE.get(error.status_code, "")
            if status in REDIRECTS and (location := error.response.headers.get("Location")):
                target = redirect_target(str(error.request.url), location)
                return f"HTTP {status}{through}" + REDIRECTED.format(target=target)
            advice = NO_CREDIT if lacks_credit(error) else NO_MODEL if _lacks_model(error) else advice
            return f"HTTP {status}{through}" + (self.check_key if status in UNAUTHORIZED else advice)
        if isinstance(error, TimeoutError):
            return f"no answer within {self.timeout_seconds:g} seconds{through}"
        # Otherwise it is a connection error of the SDK. Only its cause is reliable.
        if isinstance(error.__cause__, UnreachableError):
            return str(error.__cause__)
        if type(error.__cause__).__name__ == "ConnectError":
            return "no connection; check base_url, and whether the server is running"
        return "the connection broke"

    @property
    def url(self) -> str:
        """Where requests go to."""
        return str(self.client.base_url)


@asynccontextmanager
async def open_endpoint(
    kind: str,
    model: RemoteModel,
    environment: Mapping[str, str],
    timeout_seconds: float,
    breaker: Breaker | None = None,
) -> AsyncIterator[Endpoint]:
    """The endpoint of `model`, for as long as the context lasts. Opening sends no request.

    `kind` appears in messages: "chat" -> 'The chat endpoint http://127.0.0.1:8000/v1 (model tiny)'.

    Raises:
        ConfigurationError: the endpoint is OpenAI's own, and `environment` has no key; or it lacks the value
            of a header, or that can't be sent.
    """
    key = _api_key(model, environment)
    headers, hooks = _headers(model, environment), []
    if model.options.headers_env and not environment.get(model.api_key_env):
        hooks.append(_without_bearer)
    # Endpoint has its own timeout and retries instead of the SDK's.
    client = openai.AsyncOpenAI(
        base_url=model.base_url,
        api_key=key,
        timeout=None,
        max_retries=0,
        default_headers=headers,
        # A redirect would take texts and headers to a server that nobody configured.
        http_client=web_client.client(follow_redirects=False, event_hooks={"request": hooks}),
    )
    if not _is_openai(model):  # the SDK reads them from the environment; other providers must not get them
        client.organization = client.project = None
    async with client:
        name, check_key = _name(kind, model), _check_key(model, environment)
        yield Endpoint(client, kind, name, check_key, timeout_seconds, breaker or Breaker())


def _api_key(model: RemoteModel, environment: Mapping[str, str]) -> str:
    key = environment.get(model.api_key_env)
    if key:
        return key
    if _is_openai(model):
        raise ConfigurationError(f"OpenAI needs an API key. {_set_key(model)}.")
    return "none"  # local servers need no key, but the SDK does


def _check_key(model: RemoteModel, environment: Mapping[str, str]) -> str:
    """The advice if the endpoint refuses the key, which a header of the options may hold."""
    names = (model.api_key_env, *model.options.headers_env.values())
    if sent := [name for name in names if environment.get(name)]:
        return CHECK_KEY.format(" or ".join(sent))
    return NO_KEY_SENT + _set_key(model)


def _set_key(model: RemoteModel) -> str:
    if model.api_key_env:
        return f"Set the environment variable {model.api_key_env}"
    return "Name its environment variable in api_key_env"


def _headers(model: RemoteModel, environment: Mapping[str, str]) -> dict[str, str]:
    headers = dict(model.options.headers)
    for name, variable in model.options.headers_env.items():
        value = environment.get(variable)
        if not value:
            raise ConfigurationError(
                f"The header {name} in the options of {model.model or model.base_url} has no value. Set the "
                f"environment variable {variable}."
            )
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value):
            raise ConfigurationError(
                f"The environment variable {variable} can't be sent as the header {name}: it has a line "
                "break, white space at an end, or characters other than printable ASCII."
            )
        headers[name] = value
    return headers


async def _without_bearer(request: httpx2.Request) -> None:
    """Don't send the SDK's placeholder for an API key: a header of the options has the key."""
    del request.headers["Authorization"]


def _is_openai(model: RemoteModel) -> bool:
    return urlsplit(model.base_url).hostname == "api.openai.com"


def _name(kind: str, model: RemoteModel) -> str:
    """The URL and the model, without credentials that the URL may contain."""
    url = urlsplit(model.base_url)
    public_url = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return f"The {kind} endpoint {public_url}" + (f" (model {model.model})" if model.model else "")


def _status(error: CallError) -> int | None:
    return error.status_code if isinstance(error, openai.APIStatusError) else None


def lacks_credit(error: CallError) -> bool:
    """Whether the endpoint refuses because the account has no credit: waiting doesn't help."""
    return _status(error) == PAYMENT_REQUIRED or (
        isinstance(error, openai.APIStatusError)
        and "insufficient_quota" in (error.code, error.type)  # lists, perhaps, so no set
    )


def _lacks_model(error: openai.APIStatusError) -> bool:
    """Whether the endpoint doesn't know the model, by OpenAI's code or by the words of Ollama and others."""
    words = str(error.body.get("message", "")) if isinstance(error.body, dict) else ""
    return error.code == "model_not_found" or bool(re.match(r"model\b.{1,200}\bnot found", words))


def _is_transient(error: CallError) -> bool:
    if lacks_credit(error):
        return False
    if isinstance(error.__cause__, UnreachableError):
        return not error.__cause__.lasting
    status = _status(error)
    return status is None or status in TRANSIENT or status >= SERVER_ERROR


def _retry_after(error: CallError) -> str:
    return error.response.headers.get("Retry-After", "") if isinstance(error, openai.APIStatusError) else ""


def delay_after(attempt: int, retry_after: str) -> float:
    """Seconds to wait after failed `attempt` (from 1): Retry-After, or exponential backoff with jitter."""
    if (seconds := seconds_asked(retry_after)) is not None:
        return min(seconds, LONGEST_WAIT)
    jitter = random.uniform(0, FIRST_DELAY / 2)  # noqa: S311 it only spreads clients out, so it need not be unpredictable
    return FIRST_DELAY * 2.0 ** (attempt - 1) + jitter

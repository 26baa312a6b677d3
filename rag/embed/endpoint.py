"""One request to an endpoint that speaks OpenAI's embedding protocol: retried, and its reply checked.

Retries are a loop of our own: the SDK's has no limit for a call as a whole, draws its
jitter otherwise, lets a reply's `x-should-retry` decide, and doesn't tell the attempts.
"""

from __future__ import annotations

import base64
import json
import random
import re
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import numpy as np
import openai

from rag.embed.vectors import unit_rows
from rag.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rag.records import Vectors
    from rag.settings import EmbedderSettings

Encoding = Literal["base64", "float"]
CallError: TypeAlias = openai.APIStatusError | openai.APIConnectionError | TimeoutError

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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model behind one URL. `first_delay` is that of the second attempt, in seconds; it doubles."""

    client: openai.AsyncOpenAI
    settings: EmbedderSettings
    first_delay: float

    async def vectors(
        self, texts: Sequence[str], encoding: Encoding, dimension: int | None = None
    ) -> Vectors:
        """One unit vector per text, in order, of length `dimension` where that is known.

        Raises:
            RefusedError: the endpoint won't take this request.
            ProviderError: it gave no answer, or one that is not such vectors.
        """
        body = await self._answer(texts, encoding)
        try:
            return unit_rows(_rows(body, len(texts), dimension))
        except (ProviderError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            length = f" of length {dimension}" if dimension else ""
            raise ProviderError(
                f"{self.name} answered {len(texts)} texts with something else than as many vectors{length}."
            ) from error

    async def _answer(self, texts: Sequence[str], encoding: Encoding) -> bytes:
        """The body of the first good reply."""
        attempt = 0
        while True:
            attempt += 1
            try:
                with anyio.fail_after(self.settings.timeout_seconds):
                    return await self._request(texts, encoding)
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if attempt == ATTEMPTS or not _may_pass(error):
                    raise self._failure(error, attempt) from error
                delay = delay_after(attempt, _retry_after(error), first_delay=self.first_delay)
            await anyio.sleep(delay)

    async def _request(self, texts: Sequence[str], encoding: Encoding) -> bytes:
        reply = await self.client.embeddings.with_raw_response.create(
            input=list(texts),
            model=self.settings.model,
            encoding_format=encoding,
            dimensions=self.settings.dimensions or openai.omit,
        )
        return reply.content  # parsing it through the SDK's models costs many times more

    def _failure(self, error: CallError, attempts: int) -> ProviderError:
        kind = RefusedError if _status(error) in TOO_MUCH else ProviderError
        return kind(f"{self.name} failed after {attempts} of {ATTEMPTS} attempts: {self._cause(error)}.")

    def _cause(self, error: CallError) -> str:
        if status := _status(error):
            return f"HTTP {status}" + ADVICE.get(status, "").format(key=self.settings.api_key_env)
        if isinstance(error, TimeoutError):
            return f"no answer within {self.settings.timeout_seconds:g} seconds"
        return f"no connection ({type(error.__cause__).__name__})"

    @property
    def name(self) -> str:
        """The URL and model, without credentials that a URL can hold."""
        url = urlsplit(self.settings.base_url)
        place = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return f"The embedding endpoint {place} (model {self.settings.model})"


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


def _rows(body: bytes, count: int, dimension: int | None) -> npt.NDArray[np.float64]:
    """The vectors in a reply's body, by their `index`. Whatever it raises means that it isn't so."""
    data = sorted(json.loads(body)["data"], key=itemgetter("index"))
    rows = np.stack([_row(item["embedding"]) for item in data])
    expected = (count, dimension or rows.shape[-1])
    if [item["index"] for item in data] != list(range(count)) or rows.shape != expected:
        raise ValueError("another index or shape")
    return rows


def _row(embedding: str | list[float]) -> npt.NDArray[np.float64]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4").astype(np.float64)
    return np.asarray(embedding, np.float64)

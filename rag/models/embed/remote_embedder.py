"""Embedding by an endpoint with OpenAI's embeddings API: OpenAI, Ollama, vLLM, TEI, LM Studio and others."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import anyio
import numpy as np
import openai

from rag.config.model_settings import EmbedderSettings
from rag.corpus import EmbedderIdentity, Vectors
from rag.errors import ConfigurationError, ProviderError
from rag.models.breaker import Breaker, RefusedError
from rag.models.embed import CONTROL, TextKind, unit_rows
from rag.models.endpoint import Endpoint, delay_after, lacks_credit, open_endpoint
from rag.models.text_encoder import BUILTIN_MODEL, Tokens

if TYPE_CHECKING:
    import numpy.typing as npt


Encoding = Literal["base64", "float"]


@dataclass(slots=True)
class SentTexts:
    """Totals of an endpoint: texts that it embedded, and their tokens as it reports them.

    `unreported` counts the texts of answers without a number of tokens.
    """

    texts: int = 0
    tokens: int = 0
    unreported: int = 0

    def note(self, texts: int, reply: Mapping[str, Any]) -> None:
        """Count an answer to this number of texts."""
        self.texts += texts
        usage = reply.get("usage")
        reported = (usage.get("total_tokens") or usage.get("prompt_tokens")) if isinstance(usage, dict) else 0
        if isinstance(reported, int) and reported > 0:
            self.tokens += reported
        else:
            self.unreported += texts


@dataclass(slots=True)
class VectorModel:
    """One embedding model behind one endpoint. `encoding` is the fastest that it accepts, once known."""

    endpoint: Endpoint
    settings: EmbedderSettings
    encoding: Encoding | None = None
    sent: SentTexts = field(default_factory=SentTexts)

    async def vectors(self, texts: Sequence[str], dimension: int = 0, kind: TextKind = "document") -> Vectors:
        """One vector of unit length per text, in order; each has `dimension` components, unless that is 0.

        A vector that isn't finite becomes zero.

        Raises:
            TooFastError: the endpoint limits the rate, and there are several texts.
            RefusedError: the endpoint refuses this request.
            ProviderError: it gave no answer, or one without such vectors.
        """
        body = await self._answer(texts, kind)
        try:
            reply = self.endpoint.json_of(body)
            vectors = unit_rows(_rows(reply, len(texts), dimension))
        except WrongVectorsError as error:
            raise self.invalid(len(texts), dimension, str(error)) from error
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise self.invalid(len(texts), dimension) from error
        self.sent.note(len(texts), reply)
        return vectors

    def invalid(self, count: int, dimension: int, fault: str = "") -> ProviderError:
        """The error for a reply to this many texts that lacks valid vectors; `fault` says why, if known."""
        length = f" with {dimension} dimensions" if dimension else ""
        texts = "1 text" if count == 1 else f"each of {count} texts"
        why = f": {fault}" if fault else ""
        return self.endpoint.invalid(f"did not return a valid vector{length} for {texts}{why}")

    async def _answer(self, texts: Sequence[str], kind: TextKind) -> bytes:
        if self.encoding is None:
            return await self._first_answer(texts, kind)
        return await self.endpoint.answer(partial(self._request, texts, kind, self.encoding))

    async def _first_answer(self, texts: Sequence[str], kind: TextKind) -> bytes:
        try:
            body = await self.endpoint.answer(partial(self._request, texts, kind, "base64"))
            self.encoding = "base64"
        except RefusedError:
            body = await self.endpoint.answer(partial(self._request, texts, kind, "float"))
            self.encoding = "float"
        return body

    async def _request(self, texts: Sequence[str], kind: TextKind, encoding: Encoding) -> bytes:
        options = self.settings.options
        try:
            reply = await self.endpoint.client.embeddings.with_raw_response.create(
                input=list(texts),
                model=self.settings.model,
                encoding_format=encoding,
                dimensions=self.settings.dimensions or openai.omit,
                extra_body=(options.of_queries if kind == "query" else options.of_documents) or None,
            )
        except openai.RateLimitError as error:
            # Smaller batches fit a limit of tokens better than the same one again.
            if len(texts) > 1 and not lacks_credit(error):
                raise TooFastError(error.response.headers.get("Retry-After", "")) from error
            raise
        return reply.content  # the SDK's own parsing is many times slower


class WrongVectorsError(ValueError):
    """A reply doesn't have the requested vectors; the message says what it has."""


NOT_FINITE = "its components are zero, or not finite"


def _rows(reply: Mapping[str, Any], count: int, dimension: int) -> npt.NDArray[np.float64]:
    """The vectors in a reply, ordered by their `index`. Any exception means an invalid reply."""
    data = reply["data"]
    if len(data) != count:
        raise WrongVectorsError(f"it returned {len(data):,}")
    if not all("index" in item for item in data):
        raise WrongVectorsError("they have no index")
    data = sorted(data, key=itemgetter("index"))
    rows = np.stack([_row(item["embedding"]) for item in data])
    if [item["index"] for item in data] != list(range(count)) or rows.ndim != 2:  # noqa: PLR2004 a matrix
        raise ValueError("wrong index or shape")
    if dimension not in {0, rows.shape[1]}:
        raise WrongVectorsError(f"they have {rows.shape[1]:,}")
    return rows


def _row(embedding: str | list[float]) -> npt.NDArray[np.float64]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4").astype(np.float64)
    return np.asarray(embedding, np.float64)


# Batches of texts: a refused batch is halved, and the accepted size is remembered.
#
# An endpoint refuses a batch because it is too large, or because of one text in it. Halving finds out: if
# every part is accepted, the size was the cause, and later batches are not larger. If a single text is
# refused, that text was the cause, and the former size applies again.
#
# If an endpoint limits the rate, batches get smaller, after the wait that it asks for. They grow again; if it
# limits the rate again, the next growth comes after twice as many batches.

BATCH_TEXTS = 256  # of one request: OpenAI takes 2,048; an endpoint that refuses it gets fewer from then on
BATCH_TOKENS = 100_000  # of one request, estimated: OpenAI takes 300,000; if one refuses, it gets fewer texts
GROWS_AFTER = 8  # accepted batches in a row, before a batch that the rate limit shrank doubles


class TooFastError(Exception):
    """The endpoint limits the rate (HTTP 429) of a batch of several texts. `retry_after` is its header."""

    def __init__(self, retry_after: str) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


@dataclass(slots=True)
class BatchSize:
    """The number of texts that an endpoint accepts at once, learnt during the life of its embedder.

    `limit` is `BATCH_TEXTS`, or the accepted size if the endpoint refused more. `now` is smaller while the
    endpoint limits the rate.
    """

    limit: int
    now: int
    accepted: int = 0
    grows_after: int = GROWS_AFTER
    grew: bool = False

    def next_size(self, counts: Sequence[int], start: int) -> int:
        """The number of texts from `start` in the next batch, at least one. `counts` are their tokens."""
        total = 0
        for number, count in enumerate(counts[start : start + self.now]):
            total += count
            if number and total > BATCH_TOKENS:
                return number
        return min(self.now, len(counts) - start)

    def shrink_to(self, texts: int) -> None:
        """Take at most this many texts at once."""
        self.limit = self.now = texts

    def slow_down(self, refused: int) -> None:
        """Halve the batches after one of this size came too fast."""
        if self.grew:
            self.grows_after, self.grew = 2 * self.grows_after, False
        self.now, self.accepted = max(1, refused // 2), 0

    def note_accepted(self) -> None:
        """Count an accepted batch. After several in a row, batches grow again."""
        self.accepted += 1
        if self.accepted >= self.grows_after and self.now < self.limit:
            self.now, self.accepted, self.grew = min(self.limit, self.now * 2), 0, True


LONGEST_TOKEN = 16  # characters; WordPiece may count a longer unknown word as one token, other models don't


@dataclass(frozen=True, slots=True)
class RemoteEmbedder:
    """An embedder behind HTTP. Its token counts are estimates, because its tokenizer isn't available here.

    `control` is its vector of `CONTROL`, for the cache of embeddings; None without a probe.
    """

    identity: EmbedderIdentity
    model: VectorModel
    tokens: Tokens
    size: BatchSize
    control: Vectors | None = None

    @property
    def window(self) -> int:
        """`max_tokens` in the settings, less the document prefix."""
        return self.model.settings.max_tokens - len(self.token_spans(self.identity.document_prefix))

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """A high estimate: the built-in model's tokens, and every character of words unknown to it."""
        return [
            span
            for start, end in self.tokens.spans(text)
            for span in _split(start, end, whole=end - start <= LONGEST_TOKEN and text[start:end].isascii())
        ]

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 the protocol's
        """1, because the model's vocabulary is unknown."""
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One vector of unit length per text, truncated to the window, in batches of the size learnt.

        A document that the endpoint refuses, or for which it has no valid vector, gets zeros.

        Raises:
            ProviderError: the endpoint failed, its reply is invalid, or a query has no valid vector.
        """
        parts = [part async for part in self.parts(texts, kind)]
        return np.concatenate(parts) if parts else np.empty((0, self.identity.dimension), np.float32)

    async def parts(self, texts: Sequence[str], kind: TextKind) -> AsyncGenerator[Vectors]:
        """The same in parts, each as soon as it arrives, so that paid vectors survive a failure."""
        prefix = self.identity.query_prefix if kind == "query" else self.identity.document_prefix
        cut = [self._truncate(text) for text in texts]
        inputs, counts = [prefix + text for text, _ in cut], [count for _, count in cut]
        refused: list[tuple[int, int]] = []  # where a refused batch ends, and the limit before it
        done = hurried = 0
        while done < len(inputs):
            batch = inputs[done : done + self.size.next_size(counts, done)]
            try:
                part = await self._vectors(batch, kind)
            except TooFastError as error:
                hurried += 1
                self.size.slow_down(len(batch))
                await anyio.sleep(delay_after(hurried, error.retry_after))
                continue
            except RefusedError:
                if len(batch) > 1:
                    refused.append((done + len(batch), self.size.limit))
                    self.size.shrink_to(len(batch) // 2)
                    continue
                if kind == "query":
                    raise
                part = np.zeros_like(await self.model.vectors([CONTROL], self.identity.dimension))
                self.size.shrink_to(next((before for end, before in refused if end > done), self.size.limit))
            self.size.note_accepted()
            hurried = 0
            done += len(batch)
            yield part

    async def _vectors(self, batch: Sequence[str], kind: TextKind) -> Vectors:
        vectors = await self.model.vectors(batch, self.identity.dimension, kind)
        if kind == "query" and not vectors.any(axis=1).all():
            raise self.model.invalid(len(batch), self.identity.dimension, NOT_FINITE)
        return vectors

    def _truncate(self, text: str) -> tuple[str, int]:
        """The text cut to the window, and its tokens."""
        spans, window = self.token_spans(text), self.window
        return (text, len(spans)) if len(spans) <= window else (text[: spans[window - 1][1]], window)


def _split(start: int, end: int, *, whole: bool) -> Sequence[tuple[int, int]]:
    return [(start, end)] if whole else [(at, at + 1) for at in range(start, end)]


@asynccontextmanager
async def remote_embedder(
    settings: EmbedderSettings,
    environment: Mapping[str, str],
    *,
    probe: bool = True,
    breaker: Breaker | None = None,
) -> AsyncIterator[RemoteEmbedder]:
    """The embedder behind an endpoint, for as long as the context lasts.

    Opening embeds one text to learn the dimension. Without a `probe` it sends no request; the dimension of
    its identity is that of the settings or else 0, and its vectors can have any.

    Raises:
        ConfigurationError: OpenAI's key is missing, or the vectors have another length than `dimensions`.
        ProviderError: the endpoint fails or refuses the text.
    """
    opening = open_endpoint("embedding", settings, environment, settings.timeout_seconds, breaker)
    async with opening as endpoint:
        model = VectorModel(endpoint, settings)
        control = await _probe(model) if probe else None
        model.sent = SentTexts()
        dimension = settings.dimensions or 0 if control is None else control.shape[1]
        body = settings.options.of_documents
        identity = EmbedderIdentity(
            settings.provider,
            settings.model,
            dimension,
            settings.query_prefix or "",
            settings.document_prefix or "",
            json.dumps(body, sort_keys=True, ensure_ascii=False) if body else "",
        )
        size = BatchSize(BATCH_TEXTS, BATCH_TEXTS)
        yield RemoteEmbedder(identity, model, Tokens(BUILTIN_MODEL / "tokenizer.json"), size, control)


async def _probe(model: VectorModel) -> Vectors:
    """The endpoint's vector of `CONTROL`."""
    vectors = await model.vectors([CONTROL])
    if not vectors.any():
        raise model.invalid(1, 0, NOT_FINITE)
    dimension: int = vectors.shape[1]
    expected = model.settings.dimensions
    if expected not in {None, dimension}:
        raise ConfigurationError(
            f"{model.endpoint.name} returns vectors with {dimension} dimensions, but embedder.dimensions is "
            f"{expected}. Remove that setting, or use a model that can shorten its vectors."
        )
    return vectors

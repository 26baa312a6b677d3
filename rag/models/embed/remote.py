"""One batch of texts to an endpoint that speaks OpenAI's embedding protocol, and its reply checked.

Embedding by an endpoint that speaks OpenAI's protocol: OpenAI, Ollama, vLLM, TEI, LM Studio and more.
"""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import numpy as np
import openai

from rag.corpus import EmbedderIdentity
from rag.errors import ConfigurationError, ProviderError
from rag.models.embed.vectors import unit_rows
from rag.models.endpoint import FIRST_DELAY, RefusedError, open_endpoint
from rag.models.tokens import BUILTIN_MODEL, Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import numpy.typing as npt

    from rag.config.settings import EmbedderSettings
    from rag.corpus import Vectors
    from rag.models.embed import TextKind
    from rag.models.endpoint import Endpoint


Encoding = Literal["base64", "float"]


@dataclass(frozen=True, slots=True)
class VectorModel:
    """One embedding model behind one endpoint."""

    endpoint: Endpoint
    settings: EmbedderSettings

    async def vectors(
        self, texts: Sequence[str], encoding: Encoding, dimension: int | None = None
    ) -> Vectors:
        """One unit vector per text, in order, of length `dimension` where that is known.

        Raises:
            RefusedError: the endpoint won't take this request.
            ProviderError: it gave no answer, or one that is not such vectors.
        """
        body = await self.endpoint.answer(lambda: self._request(texts, encoding))
        try:
            return unit_rows(_rows(body, len(texts), dimension))
        except (ProviderError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            length = f" of length {dimension}" if dimension else ""
            raise ProviderError(
                f"{self.endpoint.name} answered {len(texts)} texts "
                f"with something else than as many vectors{length}."
            ) from error

    async def _request(self, texts: Sequence[str], encoding: Encoding) -> bytes:
        reply = await self.endpoint.client.embeddings.with_raw_response.create(
            input=list(texts),
            model=self.settings.model,
            encoding_format=encoding,
            dimensions=self.settings.dimensions or openai.omit,
        )
        return reply.content  # parsing it through the SDK's models costs many times more


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


LONGEST_TOKEN = 16  # characters; WordPiece calls any longer unknown word one token, other models don't


@dataclass(frozen=True, slots=True)
class RemoteEmbedder:
    """An embedder behind HTTP. Its tokens are estimated, as the model's own tokenizer isn't here."""

    identity: EmbedderIdentity
    model: VectorModel
    encoding: Encoding
    tokens: Tokens

    @property
    def window(self) -> int:
        """`max_tokens` of the settings, without the prefix of a document."""
        return self.model.settings.max_tokens - len(self.token_spans(self.identity.document_prefix))

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """An estimate, rather too many: the built-in model's tokens, what is unknown to it by character."""
        return [
            span
            for start, end in self.tokens.spans(text)
            for span in _split(start, end, whole=end - start <= LONGEST_TOKEN and text[start:end].isascii())
        ]

    def known(self, text: str) -> float:  # noqa: ARG002 the protocol's
        """All of it, as nothing tells otherwise."""
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """What the window holds of each text, in batches that get smaller when the endpoint refuses one.

        Raises:
            ProviderError: the endpoint failed, or answered with something else than such vectors.
        """
        prefix = self.identity.query_prefix if kind == "query" else self.identity.document_prefix
        size, done = self.model.settings.batch_size, 0
        parts = [np.empty((0, self.identity.dimension), np.float32)]
        while done < len(texts):
            batch = [prefix + self._beginning(text) for text in texts[done : done + size]]
            try:
                parts.append(await self.model.vectors(batch, self.encoding, self.identity.dimension))
            except RefusedError:
                if len(batch) == 1:
                    raise
                size = len(batch) // 2
            else:
                done += len(batch)
        return np.concatenate(parts)

    def _beginning(self, text: str) -> str:
        spans, window = self.token_spans(text), self.window
        return text if len(spans) <= window else text[: spans[window - 1][1]]


def _split(start: int, end: int, *, whole: bool) -> Sequence[tuple[int, int]]:
    return [(start, end)] if whole else [(at, at + 1) for at in range(start, end)]


@asynccontextmanager
async def remote_embedder(
    settings: EmbedderSettings, environment: Mapping[str, str], *, first_delay: float = FIRST_DELAY
) -> AsyncIterator[RemoteEmbedder]:
    """An embedder whose connection lives as long as the context; it embeds one text to learn the dimension.

    Raises:
        ConfigurationError: no key for OpenAI itself, or vectors of another length than `dimensions`.
        ProviderError: the endpoint doesn't answer or refuses.
    """
    timeout = settings.timeout_seconds
    async with open_endpoint(
        "embedding", settings, environment, timeout_seconds=timeout, first_delay=first_delay
    ) as endpoint:
        model = VectorModel(endpoint, settings)
        encoding, dimension = await _probed(model)
        if settings.dimensions not in {None, dimension}:
            raise ConfigurationError(
                f"{endpoint.name} gives vectors of length {dimension}, though embedder.dimensions "
                f"asks for {settings.dimensions}. Take that setting out, or name a model that heeds it."
            )
        identity = EmbedderIdentity(
            settings.provider, settings.model, dimension, settings.query_prefix, settings.document_prefix
        )
        yield RemoteEmbedder(identity, model, encoding, Tokens(BUILTIN_MODEL / "tokenizer.json"))


async def _probed(model: VectorModel) -> tuple[Encoding, int]:
    """The encoding that the endpoint takes, the faster one if it can, and its vectors' length."""
    try:
        return "base64", (await model.vectors(["refdesk"], "base64")).shape[1]
    except RefusedError:
        return "float", (await model.vectors(["refdesk"], "float")).shape[1]

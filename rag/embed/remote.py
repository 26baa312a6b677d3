"""Embedding by an endpoint that speaks OpenAI's protocol: OpenAI, Ollama, vLLM, TEI, LM Studio and more."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rag.embed.endpoint import VectorModel
from rag.embed.tokens import BUILTIN_MODEL, Tokens
from rag.endpoint import FIRST_DELAY, RefusedError, open_endpoint
from rag.errors import ConfigurationError
from rag.records import EmbedderIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.embed import TextKind
    from rag.embed.endpoint import Encoding
    from rag.records import Vectors
    from rag.settings import EmbedderSettings

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

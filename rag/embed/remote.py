"""Embedding by an endpoint that speaks OpenAI's protocol: OpenAI, Ollama, vLLM, TEI, LM Studio and more."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import openai

from rag.embed.endpoint import Encoding, Endpoint, RefusedError
from rag.embed.tokens import BUILTIN_MODEL, Tokens
from rag.errors import ConfigurationError
from rag.records import EmbedderIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.embed import TextKind
    from rag.records import Vectors
    from rag.settings import EmbedderSettings

LONGEST_TOKEN = 16  # characters; WordPiece calls any longer unknown word one token, other models don't


@dataclass(frozen=True, slots=True)
class RemoteEmbedder:
    """An embedder behind HTTP. Its tokens are estimated, as the model's own tokenizer isn't here."""

    identity: EmbedderIdentity
    endpoint: Endpoint
    encoding: Encoding
    tokens: Tokens

    @property
    def window(self) -> int:
        """`max_tokens` of the settings, without the prefix of a document."""
        return self.endpoint.settings.max_tokens - len(self.token_spans(self.identity.document_prefix))

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
        size, done = self.endpoint.settings.batch_size, 0
        parts = [np.empty((0, self.identity.dimension), np.float32)]
        while done < len(texts):
            batch = [prefix + self._beginning(text) for text in texts[done : done + size]]
            try:
                parts.append(await self.endpoint.vectors(batch, self.encoding, self.identity.dimension))
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
    settings: EmbedderSettings, environment: Mapping[str, str], *, first_delay: float = 0.5
) -> AsyncIterator[RemoteEmbedder]:
    """An embedder whose connection lives as long as the context; it embeds one text to learn the dimension.

    Raises:
        ConfigurationError: no key for OpenAI itself, or vectors of another length than `dimensions`.
        ProviderError: the endpoint doesn't answer or refuses.
    """
    key = _api_key(settings, environment)
    # Timeout and retries are the endpoint's own, not the SDK's.
    client = openai.AsyncOpenAI(base_url=settings.base_url, api_key=key, timeout=None, max_retries=0)
    async with client:
        endpoint = Endpoint(client, settings, first_delay)
        encoding, dimension = await _probed(endpoint)
        if settings.dimensions not in {None, dimension}:
            raise ConfigurationError(
                f"{endpoint.name} gives vectors of length {dimension}, though embedder.dimensions "
                f"asks for {settings.dimensions}. Take that setting out, or name a model that heeds it."
            )
        identity = EmbedderIdentity(
            settings.provider, settings.model, dimension, settings.query_prefix, settings.document_prefix
        )
        yield RemoteEmbedder(identity, endpoint, encoding, Tokens(BUILTIN_MODEL / "tokenizer.json"))


def _api_key(settings: EmbedderSettings, environment: Mapping[str, str]) -> str:
    key = environment.get(settings.api_key_env)
    if key:
        return key
    if urlsplit(settings.base_url).hostname == "api.openai.com":
        raise ConfigurationError(
            f"OpenAI wants a key: put it into the environment variable {settings.api_key_env}."
        )
    return "none"  # local servers want none, the SDK does


async def _probed(endpoint: Endpoint) -> tuple[Encoding, int]:
    """The encoding that the endpoint takes, the faster one if it can, and its vectors' length."""
    try:
        return "base64", (await endpoint.vectors(["refdesk"], "base64")).shape[1]
    except RefusedError:
        return "float", (await endpoint.vectors(["refdesk"], "float")).shape[1]

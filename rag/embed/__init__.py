"""Text to vectors: the built-in model, a local ONNX folder, or an OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.records import EmbedderIdentity, Vectors

TextKind = Literal["query", "document"]


class Embedder(Protocol):
    """A model that turns text into vectors; safe to share between tasks."""

    @property
    def identity(self) -> EmbedderIdentity:
        """What makes its vectors comparable; collections remember it."""

    @property
    def window(self) -> int:
        """How many tokens of text the model sees at most, its own special tokens not counted."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The model's tokens in `text`, each as (start, end) in characters, in order."""

    def known(self, text: str) -> float:
        """The share of a text, from 0 to 1, that the model has words for; 1 where that can't be told."""

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One unit vector per text, in order. Texts are not blank.

        Raises:
            ProviderError: a remote model failed, or answered with something that is no vector.
        """

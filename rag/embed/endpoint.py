"""One batch of texts to an endpoint that speaks OpenAI's embedding protocol, and its reply checked."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import numpy as np
import openai

from rag.embed.vectors import unit_rows
from rag.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rag.endpoint import Endpoint
    from rag.records import Vectors
    from rag.settings import EmbedderSettings

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

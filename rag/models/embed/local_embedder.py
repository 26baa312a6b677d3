"""Embedding on this machine, with ONNX Runtime: the built-in models, or another one in a folder.

One text per run, as many runs at once as there are cores. Each thread takes the next text itself, so none
waits for the event loop, which may be busy.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from anyio import from_thread, to_thread

from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, EmbedderSettings
from rag.corpus import EmbedderIdentity, Pooling, Vectors
from rag.errors import ConfigurationError
from rag.models import text_encoder
from rag.models.embed import TextKind, check_queries, mean_queries, unit_rows
from rag.models.model_folder import ModelFacts, check_pulled, facts_of_folder
from rag.models.text_encoder import Head, SentencePieces, Tokens
from rag.runtime import concurrently, cores
from rag.text.plain_text import share_beyond_latin

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnxruntime


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A model that comes with refdesk: its folder, and its publisher's facts.

    `limit` is in tokens, special ones included. Vectors have 384 dimensions.
    """

    folder: Path
    tokens: Callable[[Path], Tokens | SentencePieces]
    limit: int
    query_prefix: str = ""
    document_prefix: str = ""


BUILTIN_DIMENSION = 384
BUILTIN = {
    ENGLISH_MODEL: BuiltinModel(
        text_encoder.BUILTIN_MODEL, lambda folder: Tokens(folder / "tokenizer.json"), 256
    ),
    MULTILINGUAL_MODEL: BuiltinModel(
        text_encoder.MULTILINGUAL_FOLDER,
        lambda folder: SentencePieces(folder / "tokenizer.model"),
        512,
        "query: ",
        "passage: ",
    ),
}
OF_MEAN_QUERY, OF_OWN_MEAN, GIVEN_BACK = 0.2, 0.4, 0.15
"""So much of the mean query is subtracted, or of the mean query of the query's own language, less a part of
the former, so that cosines stay on one scale.

What queries have in common tells nothing about any of them, and it is nearer to some passages than to others,
above all across languages (rag/evaluate/measuring.md). The language is the one whose mean query is nearest.
Among Latin letters that is no sign: keywords in English are near the mean of Thai.
"""
BEYOND_LATIN = 0.05  # of a query's letters: 94 % of Vietnamese questions have more, and few English claims

PROBED = 512  # tokens at most: attention over a window of 8,192 tokens would take gigabytes


@dataclass(frozen=True, slots=True)
class LocalEmbedder:
    """An embedder in this process. `output` is its graph's, `limit` in tokens, special ones included.

    `facts` are those of a model in a folder. A part of `mean_queries` is subtracted from each query.
    """

    identity: EmbedderIdentity
    session: onnxruntime.InferenceSession
    output: str
    head: Head
    tokens: Tokens | SentencePieces
    limit: int
    facts: ModelFacts | None = None
    mean_queries: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    runs: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(cores()))

    @property
    def window(self) -> int:
        """The context window in tokens, without the special ones and the document prefix."""
        return self.tokens.window(self.limit, self.identity.document_prefix)

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The model's own tokens."""
        return self.tokens.spans(text)

    def vocabulary_share(self, text: str) -> float:
        """The share by tokens for a built-in model, and for one whose facts say that it has one language."""
        is_told = self.facts is None or self.facts.multilingual is False
        return self.tokens.vocabulary_share(text) if is_told else 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One vector of unit length per text; texts longer than the window are truncated."""
        prefix = self.identity.query_prefix if kind == "query" else self.identity.document_prefix
        rows = np.empty((len(texts), self.identity.dimension), np.float32)
        rows_to_fill = iter(range(len(texts)))  # one step of it is atomic

        def fill() -> None:
            for row in rows_to_fill:
                ids = self.tokens.ids(prefix + texts[row], self.limit)
                rows[row] = self.head(text_encoder.run(self.session, self.output, ids))
                from_thread.check_cancelled()

        work = partial(to_thread.run_sync, fill, limiter=self.runs)
        await concurrently([work] * min(len(texts), cores()))
        vectors = unit_rows(rows)
        check_queries(vectors, kind)
        if kind == "query" and self.mean_queries is not None:
            return unit_rows(vectors - shared_parts(texts, vectors, self.mean_queries))
        return vectors


def shared_parts(texts: Sequence[str], vectors: Vectors, means: Vectors) -> Vectors:
    """The vectors to subtract from each query's; `means` are those of languages, English first."""
    middle = means.mean(axis=0)
    parts = np.tile(OF_MEAN_QUERY * middle, (len(texts), 1))
    directions = unit_rows(means - middle)
    for row, text in enumerate(texts):
        if share_beyond_latin(text) > BEYOND_LATIN:
            nearest = int(np.argmax(directions @ (vectors[row] - middle)))
            if nearest:
                parts[row] = OF_OWN_MEAN * means[nearest] - GIVEN_BACK * middle
    return parts


def builtin_embedder(settings: EmbedderSettings) -> LocalEmbedder:
    """A model from this package, all-MiniLM-L6-v2 unless the settings name the other one.

    Raises:
        ConfigurationError: the installation lacks the model.
    """
    name = settings.model or ENGLISH_MODEL
    model = BUILTIN[name]
    if not model.folder.is_dir():
        raise ConfigurationError(f"The built-in model {model.folder} is missing. Reinstall refdesk with pip.")
    query_prefix, document_prefix = settings.query_prefix, settings.document_prefix
    identity = EmbedderIdentity(
        settings.provider,
        name,
        BUILTIN_DIMENSION,
        model.query_prefix if query_prefix is None else query_prefix,
        model.document_prefix if document_prefix is None else document_prefix,
    )
    return LocalEmbedder(
        identity,
        text_encoder.opened_model(model.folder / "model.onnx"),
        POOLED,
        Head("graph"),
        model.tokens(model.folder),
        model.limit,
        mean_queries=mean_queries(name),
    )


def folder_embedder(settings: EmbedderSettings, folder: Path) -> LocalEmbedder:
    """The model in `folder`: the graph and tokenizer.json of a text encoder.

    Other facts come from the folder's files (`facts_of_folder`) or the settings.

    Raises:
        ConfigurationError: a file is missing or invalid, the settings contradict the files, both lack a
            necessary fact, or the model doesn't map text to one vector.
    """
    check_pulled(settings.model, folder)
    facts = facts_of_folder(folder)
    tokens = Tokens(folder / "tokenizer.json")
    limit = min(settings.max_tokens, facts.window or settings.max_tokens)
    session = text_encoder.opened_model(folder / facts.graph)
    output = output_of(session)
    try:
        ids = tokens.ids("a " * limit, min(limit, PROBED) if facts.window else limit)
        probe = text_encoder.run(session, output, ids)
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        raise ConfigurationError(
            f"The model in {folder} fails on a text of {limit} tokens. If its context window is smaller, "
            "lower embedder.max_tokens. Otherwise it is not a text encoder that returns one vector per text."
        ) from error
    head = head_of(folder, facts, settings, probe)
    dimension = head(probe).shape[1]
    prefixes = prefixes_of(settings, facts)
    model = f"{folder.name}-{_digest(folder, facts, head)}"
    identity = EmbedderIdentity(settings.provider, model, dimension, *prefixes)
    return LocalEmbedder(identity, session, output, head, tokens, limit, facts)


def _digest(folder: Path, facts: ModelFacts, head: Head) -> str:
    """A short hash of what determines the vectors, including separate weights."""
    sha = hashlib.sha256()
    graph = folder / facts.graph
    for path in [*sorted(graph.parent.glob(f"{graph.name}*")), folder / "tokenizer.json"]:
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    former = "cls" if facts.pooling == "cls" else "mean"
    if head.layers or head.pooling not in {"graph", former}:
        sha.update(head.pooling.encode())
        for path in [folder / layer / text_encoder.WEIGHTS for layer in facts.dense if head.layers]:
            with path.open("rb") as file:
                sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:12]


# Facts about a model's vectors from its graph, its files and the settings together; nothing is guessed.
#
# If two of them contradict each other, the model isn't loaded. Only prefixes may differ from the files,
# because people try them out; that is logged.

POOLED = "sentence_embedding"
OF_TOKENS = ("last_hidden_state", "token_embeddings")
ADD_AGAIN = (
    "Or add it by refdesk-admin model add FOLDER --pooling, with what its description says: cls, mean, max, "
    "last or weighted."
)

log = logging.getLogger(__name__)


def output_of(session: onnxruntime.InferenceSession) -> str:
    """The output to read: the text's vector if the graph has it.

    Raises:
        ConfigurationError: there are several outputs, and none has a known name.
    """
    names = [node.name for node in session.get_outputs()]
    of_tokens = [name for name in OF_TOKENS if name in names]
    if POOLED in names:
        return POOLED
    if not of_tokens and len(names) > 1:
        raise ConfigurationError(
            f"The model's graph has the outputs {', '.join(names)}, and none is called "
            f"{', '.join([POOLED, *OF_TOKENS])}. Export it with one of these."
        )
    return (of_tokens or names)[0]


def head_of(
    folder: Path, facts: ModelFacts, settings: EmbedderSettings, output: npt.NDArray[np.float32]
) -> Head:
    """The head of a model whose graph returns `output` for one text.

    Raises:
        ConfigurationError: files and settings contradict each other or the graph, or the pooling is unknown.
    """
    pooling = _pooling(folder, facts, output)
    width = output.shape[-1]
    dense = tuple(text_encoder.layer(folder / path) for path in facts.dense)
    if pooling == "graph" and dense and width == dense[-1].weight.shape[0]:
        dense = ()  # an exported graph that pools includes the dense layers
    if dense and width != dense[0].weight.shape[1]:
        raise ConfigurationError(
            f"The graph of the model in {folder} returns {width} components, and its dense layer takes "
            f"{dense[0].weight.shape[1]}. Download all files of the model again."
        )
    whole = dense[-1].weight.shape[0] if dense else width
    if facts.dimension not in {None, whole}:
        raise ConfigurationError(
            f"The model in {folder} returns vectors with {whole} dimensions, and by its files they have "
            f"{facts.dimension}. Download all files of the model again."
        )
    return Head(pooling, dense, _kept_components(folder, facts, settings.dimensions, whole))


def _pooling(folder: Path, facts: ModelFacts, output: npt.NDArray[np.float32]) -> Pooling:
    if output.ndim != text_encoder.TOKEN_RANK:
        return "graph"
    if facts.pooling == "graph":
        raise ConfigurationError(
            f"The model in {folder} is said to pool in its graph, which returns a vector per token. "
            f"{ADD_AGAIN}"
        )
    if facts.pooling is None:
        raise ConfigurationError(
            f"How the model in {folder} makes one vector of the vectors of its tokens, its files "
            f"(modules.json, 1_Pooling/config.json) don't say. Download these files, too. {ADD_AGAIN}"
        )
    return facts.pooling


def _kept_components(folder: Path, facts: ModelFacts, setting: int | None, whole: int) -> int:
    """The number of components of `whole` to keep; 0: all."""
    if setting in {None, whole}:
        return 0
    if setting not in facts.truncations:
        allowed = ", ".join(map(str, sorted({*facts.truncations, whole})))
        raise ConfigurationError(
            f"embedder.dimensions is {setting}, but the files of the model in {folder} allow {allowed} "
            "dimensions (matryoshka_dimensions in config.json)."
        )
    return setting or 0


def prefixes_of(settings: EmbedderSettings, facts: ModelFacts) -> tuple[str, str]:
    """The prefixes of queries and of documents, from the settings or else from the files."""
    prefixes = []
    for kind in ("query_prefix", "document_prefix"):
        setting, published = getattr(settings, kind), getattr(facts, kind)
        if setting is not None and published and setting != published:
            log.warning(
                "embedder.%s is %r, but the files of the model %s say %r.",
                kind,
                setting,
                facts.name,
                published,
            )
        prefixes.append((published if setting is None else setting) or "")
    return prefixes[0], prefixes[1]

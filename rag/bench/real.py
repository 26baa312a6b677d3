"""The benchmark on somebody's own documents, with their settings for reading and embedding them."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import textwrap
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from anyio import to_thread

from rag.bench.corpus import SEED, SHORTEST
from rag.bench.engine import TENANT
from rag.bench.ingestion import EMBEDDED, embedded, ingested
from rag.bench.measure import measured
from rag.bench.process import SETTINGS
from rag.bench.search import searched
from rag.bench.server import held, started
from rag.bench.stock import Bench
from rag.errors import ConfigurationError, NotReadyError
from rag.ingest.discover import discover
from rag.models.embed import open_embedder
from rag.report.tables import counted
from rag.store.reader import Reader
from rag.store.schema import body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from rag.bench.measure import Measure
    from rag.bench.stock import Sizes
    from rag.config.settings import EmbedderSettings, IngestSettings, Settings
    from rag.corpus import Chunk
    from rag.store.reader import CollectionReader

QUESTIONS = 32
TITLE_EVERY = 4  # questions
QUESTION_CHARS = 100
ANY_QUESTION = "What is this about?"  # of documents without a word
EVERYTHING = "(true)"  # the owner's view
TIMEOUT_SECONDS = 60
LONG_BYTES = 20_000_000  # of documents: their ingestion may take minutes
FEW_CHUNKS = 100

Passages = list[tuple[str, "Chunk"]]
"""Chunks, each with the title of its source."""


async def run_real(
    folder: Path,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    sizes: Sizes,
    say: Callable[[str], None],
) -> list[Measure]:
    """Ingest the documents of a folder, ask questions taken from them, and measure both.

    Nothing is written into the folder. All data lies in a temporary folder, which is removed at the end.

    Raises:
        ConfigurationError: there is no place for the data.
        NotReadyError: the folder has no text.
        RefdeskError: something that is measured failed.
    """
    await to_thread.run_sync(_look, folder, settings.ingest, say)
    async with _workbench(settings, environment, sizes, say) as bench:
        return await _measured(bench, folder)


async def _measured(bench: Bench, folder: Path) -> list[Measure]:
    data = bench.folder / "data"
    bench.say("ingesting the documents")
    run = await ingested(folder, data, own=False)
    table = await _opened(data)
    found = await table.statistics() if table else None
    if not table or not found or not found.chunks:
        raise NotReadyError(f"There is nothing to measure: {folder} has no text that refdesk can read.")
    if found.chunks < FEW_CHUNKS:
        bench.say(f"only {counted(found.chunks, 'chunk')}: too few to show what chunks cost a search")
    passages = await _passages(table)
    alone, _ = await embedded(bench, [body(" > ".join(one.section), one.text) for _, one in passages])
    asking = replace(bench, questions=questions(passages))
    disk = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    return [
        measured("real/documents", [found.sources], "documents"),
        measured("real/chunks", [found.chunks], "chunks"),
        measured("real/ingest/whole run", [found.chunks / run.seconds], "chunks/s", [alone]),
        measured("real/ingest/peak memory", [run.peak_memory], "MB"),
        measured("real/disk/per chunk", [disk / found.chunks], "bytes"),
        *await started(asking, data, "real/start"),
        *await searched(asking, data, "real/search"),
        *await held(asking, data, "real/memory"),
    ]


def _look(folder: Path, settings: IngestSettings, say: Callable[[str], None]) -> None:
    """Say how much there is, and check that there is a place for it.

    Raises:
        ConfigurationError: there is none.
    """
    place = Path(tempfile.gettempdir()).resolve()
    if place.is_relative_to(folder.resolve()):
        raise ConfigurationError(
            f"The temporary folder {place} lies in {folder}, where the benchmark must not write. "
            "Set TMPDIR to a folder elsewhere."
        )
    files = [one.file for one in discover([folder], settings).found.values()]
    size = sum(file.lstat().st_size for file in files if file.exists())
    say(f"{counted(len(files), 'file')} in {folder}, {size / 1e6:,.1f} MB")
    if size > LONG_BYTES:
        say("this can take long: Ctrl-C ends it and leaves nothing behind; a part of the folder takes less")
    if size > (free := shutil.disk_usage(place).free):
        raise ConfigurationError(
            f"The files in {folder} have {size / 1e6:,.0f} MB, but {place} has only {free / 1e6:,.0f} MB "
            "left. Set TMPDIR to a folder on a larger disk, or measure a part of the folder."
        )


@asynccontextmanager
async def _workbench(
    settings: Settings, environment: Mapping[str, str], sizes: Sizes, say: Callable[[str], None]
) -> AsyncIterator[Bench]:
    """A workbench without sentences. What it starts has these settings for reading and embedding alone."""
    model = _model(settings.embedder)
    used = settings.model_copy(update={"embedder": model})
    with tempfile.TemporaryDirectory(prefix="refdesk-bench-") as folder:
        say(f"working in {folder}")
        await anyio.Path(folder, SETTINGS).write_text(as_toml(used), encoding="utf-8")
        async with open_embedder(model, environment) as embedder:
            nothing = np.empty((0, 0), np.float32)
            yield Bench(Path(folder), embedder, (), nothing, sizes, say, model)


def _model(embedder: EmbedderSettings) -> EmbedderSettings:
    """The embedder by its path, if it has one: its name counts only in the operator's data folder."""
    return embedder.model_copy(update={"model": ""}) if embedder.path else embedder


def as_toml(settings: Settings) -> str:
    """The settings for reading and embedding that differ from their defaults, as a settings file.

    Example: 'embedder.provider = "onnx"'.
    """
    values = settings.model_dump(
        mode="json", include={"embedder", "ingest", "chunking"}, exclude_defaults=True, exclude_none=True
    )
    return "".join(
        f"{section}.{key} = {_toml(value)}\n"
        for section, table in values.items()
        for key, value in table.items()
    )


def _toml(value: object) -> str:
    """A value in TOML: JSON, but for tables and DEL."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


async def _opened(data: Path) -> CollectionReader | None:
    """The collection, if there is one."""
    reader = Reader(data, timeout_seconds=TIMEOUT_SECONDS)
    for collection in await reader.collections(TENANT):
        return await reader.open(collection)
    return None


async def _passages(table: CollectionReader) -> Passages:
    """Passages from all over the collection, the same each time, each once."""
    stored = [one for one in await table.stored() if one.source.chunk_count]
    stored.sort(key=lambda one: one.source.uri)
    chance = random.Random(SEED)  # noqa: S311 repeatable, not secret
    found = {}
    for at in range(EMBEDDED):
        one = stored[at * len(stored) // EMBEDDED]
        seq = chance.randrange(one.source.chunk_count)
        for chunk in await table.between(one, seq, seq, EVERYTHING):
            found[chunk.id] = (one.source.title, chunk)
    return list(found.values())


def questions(passages: Sequence[tuple[str, Chunk]]) -> tuple[str, ...]:
    """Questions from all over these passages: three sentences, then a title, each once."""
    count = min(QUESTIONS, len(passages))
    chosen = [passages[at * len(passages) // count] for at in range(count)]
    asked = [
        title if at % TITLE_EVERY == TITLE_EVERY - 1 else sentence(chunk.text)
        for at, (title, chunk) in enumerate(chosen)
    ]
    words = [one for one in asked if any(map(str.isalnum, one))]
    return tuple(dict.fromkeys(words)) or (ANY_QUESTION,)


def sentence(text: str) -> str:
    """The first long sentence of a text, or else all of it, cut behind a word.

    Example: "Oh! The clock of the tower was slow by a minute. So?" -> "The clock of the tower was slow by
    a minute."
    """
    whole = " ".join(text.split())
    sentences = re.split(r"(?<=[.!?])\s+|(?<=[。！？])", whole)
    found = next((one for one in sentences if len(one) >= SHORTEST), whole)
    return textwrap.shorten(found, QUESTION_CHARS, placeholder="") or found[:QUESTION_CHARS]

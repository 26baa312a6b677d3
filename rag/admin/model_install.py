"""Installs a model into the models' folder, completely or not at all.

The files are gathered and checked in a staging folder, where the model is opened once. Then an atomic rename
gives the folder the model's name. If a run is killed, the next one continues from its files.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from rag.admin.terminal import interruptible
from rag.config.model_settings import EmbedderSettings, RerankerSettings
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.models.embed import open_embedder
from rag.models.embed.calibration import measured_calibration
from rag.models.hub import HubCommit, RemoteFile, checked_copy, download
from rag.models.model_folder import FACTS_FILE, ModelFacts, ModelFile, facts_as_json, read_facts
from rag.models.rerank import open_reranker
from rag.store.write.desk_folder import unwritable, writable
from rag.store.write.locks import locked

PARTIAL = ".partial"
SPARE_BYTES = 1 << 20
PROBE = "A clock tells the time."


@dataclass(frozen=True, slots=True)
class PendingModel:
    """A model to install, and the source of its files: a hub or a folder."""

    facts: ModelFacts
    files: Sequence[RemoteFile]
    source: HubCommit | Path


async def install(models: Path, coming: PendingModel, came: Callable[[int], None]) -> ModelFacts:
    """Install a model, and return its facts. `came` is called with each number of bytes that arrived.

    Raises:
        BusyError: another process installs the same model.
        ConfigurationError, ProviderError, StoreError: files can't be fetched or written, have another
            checksum, or don't make a model. A former model of this name stays then.
    """
    name = coming.facts.name
    staging = models / PARTIAL / f"{name}@{coming.facts.revision[:12] or 'own'}"
    _make(models / "locks")
    with locked(models, f"model {name}", seconds=0):
        _make(staging)
        _check_room(staging, coming.files)
        try:
            files = [await _bring(file, coming.source, staging, models / name, came) for file in coming.files]
        finally:
            _drop_empty(staging)
        facts = replace(coming.facts, files=tuple(files))
        _note(staging, facts)
        try:
            facts = await _complete_facts(staging, facts)
        except RefdeskError:
            if isinstance(coming.source, Path):  # a download stays: another option may make it a model
                await to_thread.run_sync(shutil.rmtree, staging)
            raise
        _note(staging, facts)
        _swap(staging, models / name)
    return facts


def installed_models(models: Path) -> dict[str, ModelFacts]:
    """The facts of the models that are installed in a folder, by name.

    Raises:
        ConfigurationError: the folder or a model's facts can't be read.
    """
    try:
        names = sorted(folder.name for folder in models.iterdir() if (folder / FACTS_FILE).is_file())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise unwritable(f"The models' folder {models} can't be read", error) from error
    return {name: facts for name in names if (facts := read_facts(models / name))}


def unfinished_pulls(models: Path) -> dict[str, int]:
    """The models whose pull was interrupted or failed, with the bytes that it left."""
    sizes = Counter[str]()
    for folder in sorted((models / PARTIAL).glob("*@*")):
        sizes[folder.name.partition("@")[0]] += _bytes_in(folder)
    return sizes


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def wrong_files(folder: Path, facts: ModelFacts) -> list[str]:
    """What is wrong with the files of an installed model: a sentence for each."""
    return [problem for file in facts.files if (problem := _wrong(folder / file.path, file))]


def remove_model(models: Path, name: str) -> None:
    """Delete a model, and the files of an unfinished pull of it.

    Raises:
        BusyError: another process installs it.
        ConfigurationError: it can't be deleted.
    """
    with locked(models, f"model {name}", seconds=0), _folder_errors(models / name):
        old = models / PARTIAL / f"{name}.old"
        shutil.rmtree(old, ignore_errors=True)
        old.parent.mkdir(parents=True, exist_ok=True)
        if (models / name).exists():
            (models / name).rename(old)  # atomic: a server never finds half of a model
            shutil.rmtree(old)
        for leftover in old.parent.glob(f"{name}@*"):
            shutil.rmtree(leftover)
        with suppress(OSError):
            old.parent.rmdir()


async def _bring(
    file: RemoteFile, source: HubCommit | Path, staging: Path, former: Path, came: Callable[[int], None]
) -> ModelFile:
    """Bring a file into the staging folder, unless it is there, from the `former` model or the source."""
    target = staging / file.path
    _make(target.parent)
    if sha256 := await to_thread.run_sync(_present_digest, target, file):
        came(target.stat().st_size)
    elif await to_thread.run_sync(_present_digest, former / file.path, file):
        sha256 = await to_thread.run_sync(checked_copy, former / file.path, file, target)
        came(target.stat().st_size)
    elif isinstance(source, Path):
        if not (origin := _origin(source, file.path)):
            raise ConfigurationError(f"{source} has no file {file.path}, which the model needs.")
        sha256 = await to_thread.run_sync(checked_copy, origin, file, target)
        came(target.stat().st_size)
    else:
        with interruptible():
            sha256 = download(source, file, target, came)
    return ModelFile(file.path, target.stat().st_size, sha256)


def _origin(source: Path, path: str) -> Path | None:
    """The path of a file in a source folder: as in the repository, or without its folder onnx/."""
    usual, flat = source / path, source / path.removeprefix("onnx/")
    return next((path for path in (usual, flat) if path.is_file()), None)


def _present_digest(target: Path, file: RemoteFile) -> str:
    """The SHA-256 of a file that is complete already; empty if it is missing, incomplete or unverifiable."""
    is_complete = file.sha256 and target.is_file() and _sha256(target) == file.sha256
    return file.sha256 if is_complete else ""


async def _complete_facts(folder: Path, facts: ModelFacts) -> ModelFacts:
    """Open a model, run it on a text, and complete its facts from the result."""
    if facts.kind == "reranker":
        async with open_reranker(RerankerSettings(provider="onnx", model=str(folder)), {}) as reranker:
            if reranker and None in await reranker.scores("clock", [PROBE]):
                raise ConfigurationError(f"The reranker {facts.name} gave a text no score.")
        return facts
    async with open_embedder(EmbedderSettings(provider="onnx", model=str(folder)), {}) as embedder:
        dimension = (await embedder.embed([PROBE], "query")).shape[1]
        scale = await measured_calibration(embedder)
    return replace(facts, dimension=dimension, baseline=scale.unrelated)


def _swap(staging: Path, folder: Path) -> None:
    old = staging.with_name(f"{folder.name}.old")
    with _folder_errors(folder):
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        staging.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        with suppress(OSError):
            staging.parent.rmdir()


def _check_room(staging: Path, files: Sequence[RemoteFile]) -> None:
    missing = sum(file.size for file in files) - _bytes_in(staging)
    free = shutil.disk_usage(staging).free
    if missing + SPARE_BYTES > free:
        raise StoreError(
            f"The disk of {staging.parent.parent} has {free / 1e6:,.0f} MB free, and the model needs "
            f"{missing / 1e6:,.0f} MB more. Make room, or set models in the settings to another folder."
        )


def _wrong(path: Path, file: ModelFile) -> str:
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{path} has {size:,} bytes instead of {file.size:,}."
        if _sha256(path) != file.sha256:
            return f"{path} has changed: its SHA-256 is another one than when it came."
    except FileNotFoundError:
        return f"{path} is missing."
    except OSError as error:
        return f"{path} can't be read: {error.strerror}."
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _drop_empty(staging: Path) -> None:
    folders = sorted((folder for folder in staging.rglob("*") if folder.is_dir()), reverse=True)
    for folder in (*folders, staging, staging.parent):
        with suppress(OSError):  # not empty
            folder.rmdir()


def _note(folder: Path, facts: ModelFacts) -> None:
    with _folder_errors(folder):
        (folder / FACTS_FILE).write_bytes(facts_as_json(facts))


def _make(folder: Path) -> None:
    with _folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _folder_errors(folder: Path) -> AbstractContextManager[None]:
    return writable(f"The folder {folder} can't be written")

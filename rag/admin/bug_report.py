"""The report of `refdesk-admin doctor --bundle`: what a bug report needs, and nothing confidential.

It holds no document text, no query and no secret. For settings that are texts it says only whether they are
set. Names of tenants, collections and folders are replaced by words like TENANT-1 and DATA.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

from rag.access.tenants import home_of, storages_of, tenants
from rag.admin.sources_command import folder_bytes
from rag.config.load import named_values, setting_values
from rag.config.settings import Settings
from rag.corpus import Collection
from rag.errors import ConfigurationError, RefdeskError, if_system_refuses
from rag.run_history import IngestionRun, runs_of
from rag.runtime import cores, memory_bytes
from rag.store.read.desk_reader import DeskReader

LAST_RUNS = 20
PATH = re.compile(
    r"(?<![\w.])(?:[A-Za-z]:|HOME|DATA|CONFIG)?[/\\](?! )(?:[^:,;)\"'<>\n]*[/\\])?[^\s:,;)\"'<>]+"
)
"""A path in a sentence, perhaps behind one of the replacements above. Its folders may contain spaces."""
TABLE = re.compile(
    r"\b(?:chunks|sources|access)__tenant_(?!(?:TENANT-\d+|default)"
    r"(?:__src_(?:COLLECTION-\d+|documents))?(?:__build_\d+)?(?![\w-]))[\w-]+"
)
"""A table name that contains a removed tenant or collection, whose name nothing has replaced."""


def check_free(file: Path) -> None:
    """Raise ConfigurationError if the file exists."""
    if file.exists():
        raise ConfigurationError(f"{file} exists already. Name another file, or remove it.")


async def write_report(
    file: Path, settings: Settings, config: Path, findings: Sequence[Mapping[str, str]]
) -> None:
    """Write the report, readable for its owner only; raises ConfigurationError if that fails."""
    lines = ["# refdesk doctor", ""]
    lines += ["## Machine", "", *_machine(settings), ""]
    lines += ["## Settings that differ from their defaults", "", *_settings(settings, config), ""]
    lines += ["## Findings", "", *_findings(findings), ""]
    lines += ["## Collections", "", *[line async for line in _collections(settings)], ""]
    lines += ["## The last ingestions", "", *_runs(settings), ""]
    removed_origins = [
        finding["part"]
        for finding in findings
        if finding["check"] == "origins" and finding["state"] == "note"
    ]
    names = dict.fromkeys(removed_origins, "ORIGIN") | await _names(settings, config)
    with if_system_refuses(ConfigurationError, f"{file} can't be written"):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write("\n".join(without_names(line, names) for line in lines))


def _machine(settings: Settings) -> Iterator[str]:
    yield f"- made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"- {platform.platform()}, {platform.machine()}, Python {platform.python_version()}"
    yield f"- {cores()} cores, {memory_bytes() / 1e9:.1f} GB of memory"
    with suppress(OSError):
        disk = shutil.disk_usage(settings.data)
        yield f"- data folder {folder_bytes(settings.data) / 1e6:.1f} MB, {disk.free / 1e9:.1f} GB free"
    for name in ("refdesk", *(needed.name for needed in requirements())):
        with suppress(metadata.PackageNotFoundError):
            yield f"- {name} {metadata.version(name)}"


def requirements() -> list[Requirement]:
    """What refdesk requires on this machine, without extras."""
    needed = map(Requirement, metadata.requires("refdesk") or ())
    return [item for item in needed if not item.marker or item.marker.evaluate({"extra": ""})]


def _settings(settings: Settings, config: Path) -> Iterator[str]:
    yield f"- the settings file {'exists' if config.exists() else 'does not exist'}"
    for keys, value in setting_values(settings, changed_only=True):
        text = json.dumps(value) if isinstance(value, bool | int | float) else "(set)"
        yield f"- {'.'.join(keys)} = {text}"
    for name in sorted(name for name in os.environ if name.startswith("REFDESK_")):
        yield f"- {name} is set in the environment"


def _findings(findings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for finding in findings:
        text = f": {finding['text']}" if finding["text"] else ""
        yield f"- {finding['state']}, {finding['check']}, {finding['part']}{text}"


async def _collections(settings: Settings) -> AsyncIterator[str]:
    reader = DeskReader.of(settings)
    for tenant in _tenants(settings):
        for collection in await _readable_collections(reader, tenant):
            embedder = f"{collection.embedder.provider}, {collection.embedder.dimension} dimensions"
            build = f"language {collection.language}, {embedder}, build {collection.build}"
            try:
                size = await (await reader.open(collection)).statistics()
                counts = f"{size.sources} sources, {size.chunks} chunks, {size.unindexed} not indexed, "
                counts += f"{len(size.indexes)} indexes, {size.without_vector} without a vector"
            except (RefdeskError, OSError) as error:
                counts = f"can't be read ({type(error).__name__})"
            yield f"- {tenant}.{collection.name}: {counts}, {build}"


async def _readable_collections(reader: DeskReader, tenant: str) -> Sequence[Collection]:
    with suppress(RefdeskError, OSError):
        return await reader.collections(tenant)
    return ()


def _runs(settings: Settings) -> Iterator[str]:
    """The last runs of each tenant, without names of files."""
    for tenant in _tenants(settings):
        runs: dict[int, IngestionRun] = {}
        with suppress(RefdeskError):  # of its own storage, which a finding reports
            runs = runs_of(home_of(settings, tenant), tenant)
        for _, run in sorted(runs.items())[-LAST_RUNS:]:
            lasted = f"{(run.ended - run.began).total_seconds():.1f} s" if run.ended else "not ended"
            counts = Counter(run.counts) | Counter(run.causes)
            yield f"- {run.began:%Y-%m-%d %H:%M}, {lasted}, {run.result}, {json.dumps(counts)}"


def _tenants(settings: Settings) -> Sequence[str]:
    with suppress(RefdeskError):
        return tenants(settings.data)
    return ()


async def _names(settings: Settings, config: Path) -> dict[str, str]:
    names = {str(settings.data): "DATA", str(config): "CONFIG", str(Path.home()): "HOME"}
    reader = DeskReader.of(settings)
    with suppress(RefdeskError):
        addresses = storages_of(settings.data).values()
        names |= {address: f"STORAGE-{number}" for number, address in enumerate(addresses, 1)}
    collection_names: list[str] = []
    for number, tenant in enumerate(_tenants(settings), 1):
        if tenant != "default":
            names[tenant] = f"TENANT-{number}"
        collection_names += [
            collection.name
            for collection in await _readable_collections(reader, tenant)
            if collection.name != "documents"
        ]
    names |= {name: f"COLLECTION-{number}" for number, name in enumerate(dict.fromkeys(collection_names), 1)}
    values = chain(setting_values(settings, changed_only=True), named_values(settings))
    models = dict.fromkeys(value for keys, value in values if keys[-1] == "model" and value)
    return names | {model: f"MODEL-{number}" for number, model in enumerate(models, 1)}


def without_names(line: str, names: Mapping[str, str]) -> str:
    """The line with each name replaced, the longest first, and each other path cut out."""
    for name in sorted(names, key=len, reverse=True):
        line = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", names[name], line)
    return PATH.sub("PATH", TABLE.sub("TABLE", line))

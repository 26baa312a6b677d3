"""`refdesk-admin doctor`: diagnose a desk and repair it.

First come the checks around the data folder, from the installed packages to the hosts; then the command, with
the checks of the tables and the repairs.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from anyio import to_thread

from rag.access.keys import keys_in
from rag.access.tenants import home_of, storages_of, tenant_of, tenants
from rag.admin import config_command
from rag.admin.audit_command import cut_lines, log_file, read_log
from rag.admin.bug_report import check_free, requirements, write_report
from rag.admin.command_line import NamedPath, command, flag, settings_file
from rag.admin.connect.connect_check import address_in, check_server
from rag.admin.connect.connect_command import connected_entries
from rag.admin.connect.host_config import HostFile
from rag.admin.connect.known_hosts import HOSTS, Folders, Host, launch
from rag.admin.orphaned_documents import orphaned_documents
from rag.admin.runs_command import troubled_runs
from rag.admin.sharing import unchosen_exposures
from rag.admin.terminal import FAILED, echo, print_json
from rag.config.mistakes import loose_permissions
from rag.config.settings import Settings
from rag.corpus import NO_VECTORS, EmbedderIdentity
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.home import Bucket, data_folder_problem
from rag.models.embed import open_embedder
from rag.report import names_briefly
from rag.run_history import last_runs
from rag.runtime import grouped, install_command
from rag.store.care import folder_checks
from rag.store.care.folder_checks import Check, Finding, OpenFolder
from rag.store.read.catalog import check_embedder
from rag.store.read.connection import database_folder
from rag.store.write.bucket_objects import check_bucket

CLOCK_BEHIND = timedelta(minutes=5)  # file systems of other machines may differ by some seconds
EXPIRING = timedelta(days=14)


async def check_machine(settings: Settings, config: Path) -> AsyncIterator[Finding]:
    """Check the installation, file permissions, the clock, the temporary folder and the API keys."""
    yield _check_installation()
    for warning in loose_permissions(config, settings.data) or ("",):
        yield Finding("permissions", "files and folders", warning)
    yield _check_clock(settings.data)
    yield check_temporary_folder()
    yield await to_thread.run_sync(_check_keys, settings)


async def check_settings(settings: Settings) -> AsyncIterator[Finding]:
    """Check that all parts that the settings name work. Remote models get one or two small requests each."""
    async for check in config_command.setting_findings(settings, os.environ):
        if check.state == "wrong":
            yield Finding("settings", check.part, check.text)
        else:
            yield Finding("settings", check.part, note=check.text if check.state == "note" else "")


async def check_clients(settings: Settings, config: Path) -> AsyncIterator[Finding]:
    """Check that a client of this desk can search, and so can the hosts on this machine by their entries."""
    try:
        asker = ("--tenant", tenant_of(settings))
    except ConfigurationError as error:
        yield Finding("client", "refdesk", note=f"Not tried. {error}")
    else:
        entry = launch(settings, config, asker).entry
        yield await _client_finding("client", "refdesk", entry, "Run refdesk, and read what it logs.")
    for host in HOSTS.values():
        path = host.file(Folders.of_this_machine(os.environ))
        try:
            entries = {
                name: HostFile.read(path).at((host.section, name)) for name in connected_entries(host, path)
            }
        except ConfigurationError as error:
            yield Finding("hosts", host.name, str(error))
            continue
        for name, entry in entries.items():
            yield await _client_finding("hosts", f"{host.name}: {name}", entry, _remedy(host, name, entry))


def _remedy(host: Host, name: str, entry: dict[str, Any]) -> str:
    """How to repair an entry: by starting the server at its address, or by writing the entry again."""
    if address_in(entry) or entry.get("command") == "npx":
        return "Start the server at its address, and check the network and the key."
    connect = shlex.join(
        ["refdesk-admin", "connect", host.name, "--name", name, *map(str, entry.get("args", []))]
    )
    return f"Run {connect}, which writes the entry again."


async def _client_finding(check: str, part: str, entry: dict[str, Any], remedy: str) -> Finding:
    if "${input:" in str(entry):
        return Finding(check, part, note="Not tried: the host keeps the key.")
    try:
        with Path(os.devnull).open("w", encoding="utf-8") as log:  # noqa: ASYNC230 never blocks
            session = await check_server(entry, str, log)
    except RefdeskError as error:
        return Finding(check, part, str(error), remedy)
    return Finding(
        check, f"{part}, {len(session.tools)} tools, first search after {session.search_seconds} s"
    )


def _check_installation() -> Finding:
    wrong = []
    for needed in requirements():
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{needed.name} is missing")
        else:
            if not needed.specifier.contains(version, prereleases=True):
                wrong.append(f"{needed.name} is {version}, not {needed.specifier}")
    if wrong:
        return Finding("installation", "packages", f"{', '.join(wrong)}.", f"Run {install_command()}")
    return Finding(
        "installation", f"refdesk {metadata.version('refdesk')}, Python {platform.python_version()}"
    )


def _check_clock(data: Path) -> Finding:
    """Check that no change lies in the future: with a clock that is slow, keys and documents expire late."""
    manifests = database_folder(data).glob("*.lance/_versions/*.manifest")
    newest = max((file.stat().st_mtime for file in manifests), default=0.0)
    now, changed = datetime.now(UTC), datetime.fromtimestamp(newest, UTC)
    part = f"{now:%Y-%m-%d %H:%M} UTC"
    if changed - now <= CLOCK_BEHIND:
        return Finding("clock", part)
    problem = (
        f"It says {part}, but documents were changed at {changed:%Y-%m-%d %H:%M} UTC. Until then, API keys "
        "and documents expire too late."
    )
    return Finding("clock", part, problem, "Set the clock of this machine.")


def check_temporary_folder() -> Finding:
    """Check that the storage engine can write temporary files. Unlike Python, it tries one folder only."""
    folder = os.environ.get("TMPDIR") or "TMPDIR is not set"
    try:
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"refdesk")
    except OSError as error:
        problem = f"The storage engine can't write there, so changes fail: {error.strerror}."
        return Finding("temporary files", folder, problem, "Set TMPDIR to a folder that you can write.")
    return Finding("temporary files", folder)


def _check_keys(settings: Settings) -> Finding:
    try:
        keys = keys_in(settings.common_home).keys
    except (ConfigurationError, StoreError) as error:
        return Finding("api keys", "keys.json", "Nobody can use an API key.", str(error))
    now = datetime.now(UTC)
    expired = [key.id for key in keys if key.expires_at <= now]
    soon = [key.id for key in keys if now < key.expires_at <= now + EXPIRING]
    notes = []
    if expired:
        notes.append(f"{names_briefly(expired, KEYS_NAMED)} expired.")
    if soon:
        notes.append(f"{names_briefly(soon, KEYS_NAMED)} will expire within {EXPIRING.days} days.")
    if notes:
        # Not `key revoke`: without any key, new documents are open to all who can ask.
        notes.append("Renew those that are still used with refdesk-admin key rotate.")
    is_closed = "keys" in settings.http.authentication and keys and len(expired) == len(keys)
    problem = "No key is valid any more, so nobody can ask over HTTP with one." if is_closed else ""
    return Finding("api keys", f"{len(keys)} in keys.json", problem, " ".join(notes), note=" ".join(notes))


@dataclass(frozen=True, slots=True)
class HealthLine:
    """The result of a check of one part. `state` is fine, note, wrong or mended."""

    check: str
    part: str
    state: str
    text: str


LINES_NAMED = 5  # of the audit log
MOST_ALIKE = 12  # lines of a check that are each printed
KEYS_NAMED = 10
PARTS_NAMED = 3  # per line
WORD = r"[^\W_]+"
CHECKS: Sequence[Check] = (
    folder_checks.check_tenants,
    folder_checks.check_access,
    folder_checks.check_tables,
    folder_checks.check_indexes,
    folder_checks.check_leftovers,
    folder_checks.check_rights,
    folder_checks.check_stray,
)
"""In the order of repair: a finding may be the result of an earlier one."""


@command("doctor", of_tenant=False)
@click.argument("part", type=click.Choice(["storage"]), required=False)
@flag("--fix", help="Mend what can be mended. Rights never become wider.")
@flag("--yes", help="With --fix: also where that may lose documents.")
@click.option(
    "--bundle",
    type=NamedPath(),
    metavar="FILE",
    help="Also write a report for a bug report, without texts, queries, secrets and names.",
)
async def doctor_command(
    settings: Settings, *, part: str | None, fix: bool, yes: bool, bundle: Path | None
) -> int:
    """Diagnose a desk and repair it.

    Checks the installation, file permissions, the clock, the temporary folder and the API keys. Then the
    data folder: its files, the catalog, access records, tables, indexes, leftovers of killed commands, old
    versions and the embedder of each collection. If all of that is right, it tries what the settings name,
    and then starts the server as the hosts of this machine do, and searches.

    With storage, it tries what servers and writers need of the bucket that storage.uri names, and nothing
    else. If these credentials can write, it writes a few small objects, and deletes them again.

    Prints a line for each part: fine, wrong, or a note of what could be wrong. Many collections with the same
    result share a line; --json lists each. Remote models get one or two small requests each. Without --fix
    nothing is changed. Servers can keep running. Exits with 1 if something is wrong and was not mended.
    """
    _check_options(settings, part, fix=fix, yes=yes, bundles=bundle is not None)
    if part:
        return _storage(settings)
    if bundle:
        check_free(bundle)
    config = settings_file()
    lines: list[HealthLine] = []

    async def tell(findings: AsyncIterator[Finding]) -> bool:
        """Print the findings, check by check. Returns whether nothing is wrong so far."""
        of_check: list[HealthLine] = []
        async for finding in findings:
            if of_check and of_check[-1].check != finding.check:
                show(of_check)
                of_check = []
            of_check.append(await _repair_if_asked(finding, fix=fix, yes=yes))
        show(of_check)
        return all(line.state != "wrong" for line in lines)

    def show(of_check: Sequence[HealthLine]) -> None:
        lines.extend(of_check)
        for line in _for_people(of_check):
            echo(line)

    well = await tell(check_machine(settings, config)) & await tell(data_findings(settings))
    # What needs the data folder would only say the same again.
    well = well and await tell(check_settings(settings)) and await tell(check_clients(settings, config))
    if bundle:
        await write_report(bundle, settings, config, [asdict(line) for line in lines])
        echo(f"Wrote {bundle}. Read it before you send it: it should name nothing that is yours.", err=True)
    print_json({"findings": [asdict(line) for line in lines]})
    return 0 if well else FAILED


def _for_people(lines: Sequence[HealthLine]) -> Iterator[str]:
    """The lines of one check. Beyond `MOST_ALIKE`, lines that differ only in their part are joined."""
    joins = len(lines) > MOST_ALIKE
    kinds = grouped(((line.state, _shape(line)) if joins else at, line) for at, line in enumerate(lines))
    for alike in kinds.values():
        first = alike[0]
        parts = names_briefly([line.part for line in alike], PARTS_NAMED)
        described = parts if len(alike) == 1 else f"{len(alike):,} ({parts})"
        text = f": {first.text}" if first.text else ""
        yield f"{first.state:6} {first.check:15} {described}{text}"


def _shape(line: HealthLine) -> str:
    """The text of a finding without numbers and the words of its part's name, for comparing findings."""
    words = {*re.findall(WORD, line.part)}
    return " ".join("" if word in words or word.isdigit() else word for word in re.findall(WORD, line.text))


def _check_options(settings: Settings, part: str | None, *, fix: bool, yes: bool, bundles: bool) -> None:
    if yes and not fix:
        raise click.UsageError("--yes needs --fix.")
    if part and (fix or bundles):
        raise click.UsageError(f"{part} takes neither --fix nor --bundle.")
    if settings.storage.uri and not part:
        raise ConfigurationError(
            f"storage.uri names {settings.storage.uri}, and refdesk-admin doctor mends a data folder. For "
            "the bucket, run refdesk-admin doctor storage. For the folder, leave out storage.uri "
            "(REFDESK_STORAGE_URI=)."
        )


def _storage(settings: Settings) -> int:
    homes = [settings.home]
    with suppress(StoreError):  # which the check of the common bucket says
        homes += map(settings.home_at, storages_of(settings.home).values())
    buckets = [home for home in homes if isinstance(home, Bucket)]
    if not buckets:
        raise ConfigurationError(
            "storage.uri is not set, so the desk is in its data folder. Set it to the bucket to try, or "
            "REFDESK_STORAGE_URI."
        )
    results: list[dict[str, object]] = []
    is_wrong = False
    for bucket in buckets:
        if len(buckets) > 1:
            echo(bucket)
        findings = []
        for finding in check_bucket(bucket):
            findings.append(asdict(finding))
            is_wrong |= finding.state == "wrong"
            echo(f"{finding.state:6} {finding.check:18} {finding.text}")
        results.append({"storage": bucket.uri, "findings": findings})
    print_json(results[0] if len(results) == 1 else {"storages": results})
    return FAILED if is_wrong else 0


async def data_findings(settings: Settings) -> AsyncIterator[Finding]:
    """The findings on the data in the desk's folders, in the order of repair. Buckets aren't checked."""
    desk = settings.common_home
    if data_folder_problem(desk):
        return  # the settings' findings report it
    folders = []
    if isinstance(desk, Bucket):
        yield Finding("storage", desk.uri, note="See refdesk-admin doctor storage.")
    else:
        folders.append(desk)
    for tenant, address in storages_of(desk).items():
        try:
            home = home_of(settings, tenant)
        except RefdeskError as error:
            yield Finding("storage", tenant, str(error))
            continue
        in_bucket = f"{address}: see refdesk-admin doctor storage." if isinstance(home, Bucket) else ""
        yield Finding("storage", tenant, note=in_bucket)
        folders += [] if isinstance(home, Bucket) else [home]
    for data in folders:
        async for finding in _folder_findings(settings, data):
            yield finding
    async for finding in _document_findings(settings):
        yield finding
    yield _audit_log_finding(settings.data)


async def _document_findings(settings: Settings) -> AsyncIterator[Finding]:
    """What orphaned documents, the last runs and open collections need."""
    with suppress(RefdeskError):  # other findings report it
        orphans = await orphaned_documents(settings)
        for orphan in orphans:
            yield Finding("origins", orphan.name, note=str(orphan))
        if not orphans:
            yield Finding("origins", f"{len(settings.origins)} in the settings")
    for tenant in tenants(settings.common_home):
        with suppress(RefdeskError):  # likewise
            last = last_runs(home_of(settings, tenant), tenant, settings.origins)
            for run in troubled_runs(last, tenant):
                problem, note = (run.text, "") if run.is_wrong else ("", run.text)
                yield Finding("runs", f"{tenant}.{run.collection}", problem, note=note)
    with suppress(RefdeskError):  # likewise
        async for tenant, exposure in unchosen_exposures(settings):
            yield Finding("visibility", f"{tenant}.{exposure.collection.name}", note=str(exposure))


async def _folder_findings(settings: Settings, data: Path) -> AsyncIterator[Finding]:
    if finding := await to_thread.run_sync(folder_checks.check_closed, data):
        yield finding
        return
    for finding in await folder_checks.check_files(data):
        yield finding
    desk, finding = await folder_checks.open_folder(data)
    yield finding
    if desk is None and finding.mend:
        desk, _ = await folder_checks.open_folder(data)  # the caller may have repaired it
    if desk is not None:
        for check in CHECKS:
            for finding in await check(desk):
                yield finding
        async for finding in _embedder_findings(settings, desk):
            yield finding


def health_line(finding: Finding) -> HealthLine:
    """The line of a finding."""
    state, text = ("note", finding.note) if finding.note else ("fine", "")
    if finding.problem:
        state, text = "wrong", f"{finding.problem} {finding.remedy}"
    return HealthLine(finding.check, finding.part, state, text)


async def _repair_if_asked(finding: Finding, *, fix: bool, yes: bool) -> HealthLine:
    """The line of a finding, which is repaired first with `fix`."""
    line = health_line(finding)
    if not (finding.problem and fix and finding.mend):
        return line
    if finding.loses and not yes:
        return replace(line, text=f"{finding.problem} Mending it may lose {finding.loses}. {finding.remedy}")
    try:
        await finding.mend()
    except (RefdeskError, OSError) as error:
        return replace(line, text=f"{finding.problem} It could not be mended. {error}")
    return replace(line, state="mended", text=finding.problem)


async def _embedder_findings(settings: Settings, desk: OpenFolder) -> AsyncIterator[Finding]:
    with_vectors = [collection for collection in desk.own if collection.embedder != NO_VECTORS]
    identities = {
        name: await _identity(settings, name)
        for name in {collection.embedder_name for collection in with_vectors}
    }
    for collection in with_vectors:
        problem = ""
        try:
            check_embedder(collection, identities[collection.embedder_name])
        except ConfigurationError as error:
            problem = str(error)
        yield Finding("embedder", f"{collection.tenant}.{collection.name}", problem)


async def _identity(settings: Settings, name: str) -> EmbedderIdentity | None:
    """The identity of an embedder of the settings, without a request to its endpoint."""
    if not settings.has_embedder(name):
        return None
    async with open_embedder(settings.embedder_named(name), os.environ, probe=False) as embedder:
        return embedder.identity


def _audit_log_finding(data: Path) -> Finding:
    finding = partial(Finding, "audit log", log_file(data).name)
    try:
        cut = cut_lines(data)
        unreadable = [number for number, line in read_log(data) if line is None and number not in cut]
    except ConfigurationError as error:
        return finding(str(error), "Run doctor as the folder's owner.")
    if unreadable:
        problem = f"{len(unreadable)} lines can't be read, the first is line {unreadable[0]}."
        return finding(problem, "The other lines count.")
    lines = names_briefly([*map(str, cut)], LINES_NAMED)
    note = (
        f"A power failure or a full disk cut short line {lines}. The act that it began to tell may have been "
        "done. The other lines count, and the next act begins a new one."
    )
    return finding(note=note if cut else "")

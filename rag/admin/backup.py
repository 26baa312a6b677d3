"""`refdesk-admin backup` and `restore`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from anyio import to_thread

from rag.access.keys import Keys, keys_file, read_keys
from rag.access.names import valid_name
from rag.access.tenants import tenant_of
from rag.admin.acts import Act, read_log, recorded
from rag.admin.console import command, echo, print_json
from rag.admin.key import LOCK_SECONDS
from rag.errors import ConfigurationError
from rag.home import check_data_folder
from rag.report.tables import counted
from rag.store.care.tenant_backup import back_up, checked_archive
from rag.store.care.tenant_restore import Restored, restore
from rag.store.write.desk_folder import prepare, write_whole
from rag.store.write.locks import locked

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.store.care.tenant_backup import Archive

SHOWN = 20  # sources in a list for people; --json has all

_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@command("backup")
@_FILE
@click.option("--yes", is_flag=True, help="Replace the file if it exists.")
async def backup_command(settings: Settings, *, file: Path, yes: bool, as_json: bool) -> None:
    """Back up a tenant to a file.

    It gets the documents with their vectors, the access rights and the API keys. Servers keep serving
    and ingestions keep running. The backup is the state of one moment, with checksums. The file can be read
    by its owner only. It contains all texts; keys are in it as hashes. Evaluation runs, the audit log and the
    settings are not in it.
    """
    _check_target(settings.data, file, replace=yes)
    tenant = tenant_of(settings)
    saved = await back_up(settings.data, tenant, file)
    size = await to_thread.run_sync(_size, file)
    if as_json:
        print_json({"file": str(file), "bytes": size} | asdict(saved))
        return
    held = [f"{one.name} ({counted(one.sources, 'source')})" for one in saved.collections]
    rights = f"{counted(saved.records, 'access record')} and {counted(saved.keys, 'key')}"
    echo(f"Backed up the tenant {tenant} to {file} ({size / 1e6:.1f} MB): {', '.join(held)}, {rights}.")


@command("restore", of_tenant=False)
@_FILE
@click.option(
    "--as", "other", metavar="NAME", help="Restore as this tenant. Default: the tenant of the backup."
)
@click.option("--yes", is_flag=True, help="Replace collections that exist.")
@click.option(
    "--exact",
    is_flag=True,
    help="Take access rights as in the backup, even if they were narrowed since, and what was purged since.",
)
@click.option("--check", is_flag=True, help="Only check the file.")
async def restore_command(  # noqa: PLR0913 the options
    settings: Settings, *, file: Path, other: str | None, yes: bool, exact: bool, check: bool, as_json: bool
) -> None:
    """Restore a tenant from a backup.

    Its documents come back with their access rights and keys. Rights that were narrowed since the backup stay
    narrow, revoked keys stay revoked, and what was purged stays away. Documents that were removed since come
    back, and the report names them. Servers can keep running.
    """
    backup = checked_archive(file)
    tenant = valid_name(other) if other else backup.about.tenant
    if check:
        _show_checked(backup, as_json=as_json)
        return
    names = [one.name for one in backup.about.collections]
    changes: dict[str, tuple[None, dict[str, object]]] = {
        name: (None, {"backup": backup.about.at, "exact": exact}) for name in names
    }
    prepare(settings.data)
    forgotten = _purged_without_record(settings.data, tenant)
    with recorded(settings.data, Act("restore", tenant, changes)):
        result = await restore(settings.data, backup, tenant, exact=exact, overwrite=yes, forgotten=forgotten)
        keys = _restore_keys(settings.data, result, backup, exact=exact)
    if as_json:
        lists = asdict(result)
        del lists["keys"]
        print_json(lists | keys)
    else:
        _show(result, keys, file)


def _check_target(data: Path, file: Path, *, replace: bool) -> None:
    check_data_folder(data)
    if data.resolve() in file.resolve().parents:
        raise ConfigurationError(f"{file} is in the data folder. Write the backup to another folder.")
    if file.exists() and not replace:
        raise ConfigurationError(f"{file} already exists. Name another file, or add --yes to replace it.")


def _size(file: Path) -> int:
    return file.stat().st_size


def _purged_without_record(data: Path, tenant: str) -> set[str]:
    """The ids of sources that a purge deleted with their access records, by the audit log."""
    lines = (line for _, line in read_log(data) if line and line.act == "purge" and line.tenant == tenant)
    return {one.id for line in lines for one in line.changes if one.after is None}


def _restore_keys(data: Path, result: Restored, backup: Archive, *, exact: bool) -> dict[str, Any]:
    """Bring back keys of the backup that nobody has revoked. Returns the ids of those, and of the others.

    Where the data folder knows keys, one that is missing was revoked. With `exact` only the log counts.
    """
    theirs = Keys.model_validate_json(result.keys).keys if result.keys else ()
    with locked(data, "keys", seconds=LOCK_SECONDS):
        present = read_keys(keys_file(data)).keys
        known, ended = _keys_in_log(data)
        known = known or keys_file(data).exists()
        missing = [one for one in theirs if one.id not in {key.id for key in present}]
        allowed = result.tenant == backup.about.tenant and (exact or not known)
        back = [one for one in missing if allowed and one.id not in ended]
        if back:
            write_whole(
                keys_file(data),
                Keys(keys=(*present, *back)).model_dump_json(indent=1, exclude_none=True).encode(),
            )
    left = [one.id for one in missing if one not in back]
    return {"keys": [one.id for one in back], "keys_left_out": left}


def _keys_in_log(data: Path) -> tuple[bool, set[str]]:
    """Whether the audit log knows of keys, and the ids of those that were revoked."""
    lines = [line for _, line in read_log(data) if line and line.act.startswith("key ")]
    return bool(lines), {one.id for line in lines for one in line.changes if one.after is None}


def _show_checked(backup: Archive, *, as_json: bool) -> None:
    about = backup.about
    names = [one.name for one in about.collections]
    if as_json:
        print_json({"tenant": about.tenant, "at": about.at, "collections": names, "refdesk": about.refdesk})
        return
    echo(f"{backup.file} is complete: the tenant {about.tenant} as of {about.at}, {', '.join(names)}.")


def _show(result: Restored, keys: dict[str, Any], file: Path) -> None:
    held = [f"{name} ({counted(sources, 'source')})" for name, sources in result.collections.items()]
    echo(f"Restored the tenant {result.tenant} as of {result.at} from {file}: {', '.join(held)}.")
    _list(
        result.narrowed, "has narrower rights than in the backup", "have narrower rights than in the backup"
    )
    _list(
        result.returned,
        "was removed since the backup and is back",
        "were removed since the backup and are back",
    )
    _list(
        result.purged,
        "was purged since the backup and stays away",
        "were purged since the backup and stay away",
    )
    _list(
        result.dropped, "was added since the backup and is gone", "were added since the backup and are gone"
    )
    if result.others:
        echo(f"Not in the backup, and as before: {', '.join(result.others)}.")
    if keys["keys"]:
        echo(f"Keys that are valid again: {', '.join(keys['keys'])}.")
    if keys["keys_left_out"]:
        echo(f"Keys of the backup that stay invalid: {', '.join(keys['keys_left_out'])}.")


def _list(names: tuple[str, ...], one: str, several: str) -> None:
    if not names:
        return
    echo(f"{counted(len(names), 'source')} {one if len(names) == 1 else several}:")
    for name in names[:SHOWN]:
        echo(f"  {name}")
    if len(names) > SHOWN:
        echo(f"  and {len(names) - SHOWN} more. --json names all.")

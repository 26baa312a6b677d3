"""Copies of a desk: `refdesk-admin backup` and `restore` by an archive; `storage` to a bucket and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import click
from pydantic import ValidationError

from rag.access.keys import KEYS, Keys
from rag.access.rule import valid_name
from rag.access.tenants import home_of, storages_of, tenant_of
from rag.admin.audit_command import Act, AuditLine, log_act, logged_access, read_log
from rag.admin.command_line import NamedPath, command, flag
from rag.admin.key_command import changing_keys
from rag.admin.terminal import Group, print_result
from rag.config.settings import Settings, StorageSettings
from rag.corpus import Access
from rag.errors import ConfigurationError
from rag.home import Bucket, Home, check_data_folder, local_folder, look_once, read
from rag.report import counted, names_briefly
from rag.store.care.bucket_moves import Move, copy_to_bucket, fetch_from_bucket
from rag.store.care.tenant_backup import Archive, back_up, checked_archive
from rag.store.care.tenant_restore import RestoreResult, restore
from rag.store.write.desk_folder import PURGED, prepare

SHOWN = 20  # sources in a list; --json has all

_FILE = click.argument("file", type=NamedPath(dir_okay=False))


@command("backup", changes=True)  # it must see at once what others change
@_FILE
@flag("--yes", help="Replace the file if it exists.")
async def backup_command(settings: Settings, *, file: Path, yes: bool) -> None:
    """Back up a tenant to a file.

    The file holds the documents with their texts and vectors, the access rights, and hashes of the API keys,
    as of one moment, with checksums. Only its owner can read it. Evaluation runs, the audit log and the
    settings are not in it. Servers keep serving and ingestions keep running.
    """
    tenant, home = tenant_of(settings), settings.home
    for place in (settings.common_home, home):
        check_data_folder(place)
        _check_target(local_folder(place), file, replace=yes)
    saved = await back_up(home, tenant, file, desk=settings.common_home)
    size = (await anyio.Path(file).stat()).st_size
    rights = f"{counted(saved.records, 'access record')} and {counted(saved.keys, 'key')}"
    collections = _with_sizes({collection.name: collection.sources for collection in saved.collections})
    print_result(
        {"file": str(file), "bytes": size} | asdict(saved),
        f"Backed up the tenant {tenant} to {file} ({size / 1e6:.1f} MB): {collections}, {rights}.",
    )


@command("restore", of_tenant=False, changes=True)
@_FILE
@click.option(
    "--as", "new_name", metavar="NAME", help="Restore as this tenant. Default: the tenant of the backup."
)
@flag("--yes", help="Replace collections that exist.")
@flag(
    "--exact",
    help="Also bring back rights that were narrowed and documents that were purged since the backup.",
)
@flag("--check", help="Only check the file.")
async def restore_command(
    settings: Settings, *, file: Path, new_name: str | None, yes: bool, exact: bool, check: bool
) -> None:
    """Restore a tenant from a backup.

    Its documents come back with their access rights and keys. Rights that were narrowed since the backup stay
    narrow, revoked keys stay revoked, and what was purged stays away. Documents that were removed since come
    back, and the report names them. Servers can keep running. Only the audit log of the machine that ran
    --forget knows what it deleted, so restore the desk of a bucket there.
    """
    backup = checked_archive(file)
    tenant = valid_name(new_name) if new_name else backup.about.tenant
    about, names = backup.about, [collection.name for collection in backup.about.collections]
    if check:
        print_result(
            {"tenant": about.tenant, "at": about.at, "collections": names, "refdesk": about.refdesk},
            f"{file} is complete: the tenant {about.tenant} as of {about.at}, {', '.join(names)}.",
        )
        return
    changes: dict[str, tuple[None, dict[str, object]]] = {
        name: (None, {"backup": about.at, "exact": exact}) for name in names
    }
    home = home_of(settings, tenant)
    look_once(home)
    prepare(home)
    forgotten = _purged_without_record(settings.data, tenant)
    last_known = _last_accesses(settings.data, tenant)
    with log_act(settings.data, Act("restore", tenant, changes)):
        result = await restore(
            home, backup, tenant, exact=exact, overwrite=yes, forgotten=forgotten, last_known=last_known
        )
        keys = _restore_keys(settings.common_home, result, backup, exact=exact)
    lists = asdict(result)
    lists["others"] = lists.pop("untouched")
    del lists["replaced"]
    print_result(lists | keys, *_lines(result, keys, file, home))


def _check_target(data: Path, file: Path, *, replace: bool) -> None:
    if data.resolve() in file.resolve().parents:
        raise ConfigurationError(f"{file} is in the data folder. Write the backup to another folder.")
    if file.exists() and not replace:
        raise ConfigurationError(f"{file} already exists. Name another file, or add --yes to replace it.")


def _acts_of(data: Path, tenant: str) -> Iterator[AuditLine]:
    return (line for _, line in read_log(data) if line and line.tenant == tenant)


def _purged_without_record(data: Path, tenant: str) -> set[str]:
    """The ids of sources that were purged, by the audit log, whichever command deleted their access records.

    A purge names the records that it deletes itself. Others were deleted by `remove`: before the purge of the
    collection, or after it, which their URI tells. An act that failed counts: it may have been done in part.
    """
    purged, removed = set[str](), defaultdict[str | None, set[str]](set)
    for line in _acts_of(data, tenant):
        gone = {change.id: change.before or {} for change in line.changes if change.after is None}
        if line.act == "purge":
            purged |= gone.keys() | removed.pop(line.collection, set())
        elif line.act == "remove":
            removed[line.collection] |= gone.keys()
            purged |= {id_ for id_, before in gone.items() if str(before.get("uri")).startswith(PURGED)}
    return purged


def _last_accesses(data: Path, tenant: str) -> dict[str, Access]:
    accesses: dict[str, Access] = {}
    for line in _acts_of(data, tenant):
        for change in line.changes if not line.failed else ():
            if access := logged_access(change.after) or logged_access(change.before):
                accesses[change.id] = access
    return accesses


def _restore_keys(desk: Home, result: RestoreResult, backup: Archive, *, exact: bool) -> dict[str, Any]:
    """Restore the keys of the backup that nobody has revoked. Returns the ids of valid and of invalid keys.

    Where the desk has had keys of the tenant, a missing one counts as revoked. With `exact`, only the log
    decides.
    """
    saved_keys = Keys.model_validate_json(result.keys).keys if result.keys else ()
    with changing_keys(desk) as (present, write):
        is_logged, ended = _keys_in_log(local_folder(desk), result.tenant)
        has_keys = is_logged or any(key.tenant == result.tenant for key in present)
        has_keys = has_keys or (result.replaced and _has_key_file(desk))
        present_ids = {key.id for key in present}
        missing = [key for key in saved_keys if key.id not in present_ids]
        # A key names its tenant, so none is restored under another name.
        allowed = result.tenant == backup.about.tenant and (exact or not has_keys)
        restored = [key for key in missing if allowed and key.id not in ended]
        if restored:
            write((*present, *restored))
    left_out = [key.id for key in missing if key not in restored]
    return {"keys": [key.id for key in restored], "keys_left_out": left_out}


def _has_key_file(desk: Home) -> bool:
    if isinstance(desk, Bucket):
        desk.forget(KEYS)
    return read(desk, KEYS) is not None


def _keys_in_log(data: Path, tenant: str) -> tuple[bool, set[str]]:
    """Whether the audit log mentions keys of the tenant, and the ids of the revoked ones."""
    lines = [line for line in _acts_of(data, tenant) if line.act.startswith("key ")]
    return bool(lines), {change.id for line in lines for change in line.changes if change.after is None}


def _with_sizes(collections: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({counted(sources, 'source')})" for name, sources in collections.items())


def _lines(result: RestoreResult, keys: dict[str, Any], file: Path, home: Home) -> Iterator[str]:
    collections = _with_sizes(result.collections)
    yield f"Restored the tenant {result.tenant} as of {result.at} from {file} into {home}: {collections}."
    sources = {
        "With narrower rights than in the backup": result.narrowed,
        "Removed since the backup, and back": result.returned,
        "Purged since the backup, and still away": result.purged,
        "Added since the backup, and gone": result.dropped,
    }
    for title, names in sources.items():
        if names:
            yield f"{title}: {counted(len(names), 'source')}"
        yield from (f"  {name}" for name in names[:SHOWN])
        if len(names) > SHOWN:
            yield f"  and {len(names) - SHOWN} more. --json names all."
    by_name = {
        "Not in the backup, and as before": result.untouched,
        "Keys that are valid again": keys["keys"],
        "Keys of the backup that stay invalid": keys["keys_left_out"],
    }
    yield from (f"{title}: {', '.join(names)}." for title, names in by_name.items() if names)
    if keys["keys_left_out"]:
        yield "They were revoked since, or belong to another tenant. For new ones: refdesk-admin key create"


@click.group("storage", cls=Group)
def storage_command() -> None:
    """Move a desk to a bucket of an object store, or back.

    With storage.uri, commands write a desk in its bucket, and any number of servers read it there. Options of
    the store are in [storage.options]. Credentials come from the environment: AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY, AZURE_STORAGE_ACCOUNT_KEY, or GOOGLE_SERVICE_ACCOUNT.
    """


verify_option = flag("--verify", help="Read everything back afterwards, and compare it.")


@command("copy", storage_command, of_tenant=False)
@click.option("--to", "uri", required=True, metavar="URI", help="Bucket and prefix, like s3://bucket/desk.")
@verify_option
async def copy_command(settings: Settings, *, uri: str, verify: bool) -> None:
    """Copy the desk in the data folder to an empty bucket.

    From then on, set storage.uri to it: commands change the desk there, and servers read it there. The data
    folder stays as it is. Change nothing in it meanwhile; if somebody did, the command says so at its end.
    If it was interrupted, run it again: it sends only what is missing.
    """
    check_data_folder(settings.data)
    storages = storages_of(settings.data)
    if in_folders := [tenant for tenant, address in storages.items() if "://" not in address]:
        folders = names_briefly([f"{tenant} in {storages[tenant]}" for tenant in in_folders], 3)
        raise ConfigurationError(
            f"Servers of a bucket can't read a tenant's own database in a folder: {folders}. Nothing was "
            f"copied. Bring each into this desk: refdesk-admin backup FILE --tenant {in_folders[0]}, "
            f"refdesk-admin tenant remove {in_folders[0]} --yes, and refdesk-admin restore FILE."
        )
    moved = await copy_to_bucket(settings.data, _bucket(settings, uri), verify=verify)
    print_result(
        {"to": uri, "storages": storages} | asdict(moved),
        f"Copied {settings.data} to {uri}: {_in_words(moved, verify=verify)}.",
        *(
            f"The documents of the tenant {tenant} stay where they are, in {address}."
            for tenant, address in storages.items()
        ),
        f'Go on there: set uri = "{uri}" under [storage]. What you change in the folder now is not there.',
    )


@command("fetch", storage_command, of_tenant=False)
@click.option("--from", "uri", required=True, metavar="URI", help="Bucket and prefix, like s3://bucket/desk.")
@verify_option
async def fetch_command(settings: Settings, *, uri: str, verify: bool) -> None:
    """Fetch the desk in a bucket into a new data folder.

    The bucket stays as it is. Change nothing in it meanwhile; if somebody did, the command says so at its
    end. If it was interrupted, run it again: it fetches only what is missing.
    """
    moved = await fetch_from_bucket(_bucket(settings, uri), settings.data, verify=verify)
    print_result(
        {"from": uri} | asdict(moved),
        f"Fetched {uri} into {settings.data}: {_in_words(moved, verify=verify)}.",
        "Settings, models, the audit log and the cache of embeddings are in no bucket, so they are not here. "
        "Leave storage.uri out to go on in the folder. What you change in the bucket now is not here.",
    )


def _in_words(move: Move, *, verify: bool) -> str:
    documents = sum(move.documents.values())
    same = ", all the same" if verify else ""
    return (
        f"{counted(documents, 'document')} in {counted(len(move.documents), 'collection')}, "
        f"{counted(move.files, 'file')}, {move.bytes / 1e6:.1f} MB, {move.moved} of them moved now{same}"
    )


def _bucket(settings: Settings, uri: str) -> Bucket:
    try:
        options = settings.storage.options.model_dump()
        bucket = StorageSettings.model_validate({"uri": uri, "options": options}).bucket(settings.data)
    except ValidationError as error:
        raise click.UsageError(f"{uri} is not a bucket and a prefix like s3://bucket/desk.") from error
    if bucket is None:
        raise ConfigurationError("The address is empty. Name a bucket and a prefix like s3://bucket/desk.")
    return bucket

"""The storage that a tenant has of its own: a folder or a bucket with a desk of this tenant alone.

`owner` is the first thing that is written there, and the last that is deleted. It tells the desk and the
tenant (`rag.access.tenants.owner_of`), or nobody once the tenant is being removed. So creating and removing
can be repeated after a kill, and no other tenant or desk gets the same storage under any address.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rag.access.tenants import OWNER, owner_in, owner_of
from rag.errors import ConfigurationError, StoreError
from rag.home import Bucket, Home, desk_around, local_folder
from rag.store.write.bucket_objects import creates_once, delete, object_facts, put, put_new
from rag.store.write.desk_folder import (
    flush_folder,
    make_private,
    note_tenant,
    prepare,
    unwritable,
    write_whole,
)
from rag.store.write.locks import unfit_store


def claim_storage(data: Home, tenant: str, storage: Home) -> None:
    """Make a desk for a tenant of the desk `data` in an empty folder or bucket, or complete it.

    Raises:
        ConfigurationError: it holds something else, or it is in another desk or around it, or it is a folder
            of this machine and the desk is in a bucket.
        StoreError: it can't be read or written.
    """
    _check_apart(data, storage)
    owner, present = owner_of(data, tenant), owner_in(storage)
    if present == b"":  # of a removal that was killed
        _delete_desk(storage)
    elif present is not None and present != owner:
        raise ConfigurationError(
            f"{storage} belongs to another tenant, or to another desk. Name another storage."
        )
    elif present is None:
        if _has_something(storage):
            raise ConfigurationError(f"{storage} is not empty. Name an empty or new one.")
        if isinstance(storage, Bucket) and not creates_once(storage):
            raise unfit_store(storage)
    if present != owner:
        _write_owner(storage, owner, is_new=present is None)
    prepare(storage)
    note_tenant(storage, tenant)


def is_given_up(storage: Home) -> bool:
    """Whether a removal emptied the storage, and was killed before its end."""
    return owner_in(storage) == b""


def give_up(storage: Home) -> None:
    """Delete the desk of a tenant whose collections were dropped, but for a note that nobody owns it."""
    _write_owner(storage, b"", is_new=False)
    _delete_desk(storage)


def forget_owner(storage: Home) -> None:
    """Delete that note, and the folder if nothing else is in it."""
    if isinstance(storage, Bucket):
        delete(storage, [OWNER])
        return
    (storage / OWNER).unlink(missing_ok=True)
    if not _has_something(storage):
        storage.rmdir()


def _check_apart(data: Home, storage: Home) -> None:
    if isinstance(data, Bucket) and not isinstance(storage, Bucket):
        raise ConfigurationError(
            f"The desk is in {data}, whose servers may run on other machines, and {storage} is a folder of "
            "this machine. Name a bucket: --storage s3://bucket/tenant."
        )
    outer = _outer_bucket(storage, data) if isinstance(storage, Bucket) else _outer_folder(storage, data)
    if outer:
        raise ConfigurationError(
            f"{outer} is a desk, and {storage} is inside it or contains it. Name another storage."
        )


def _outer_folder(storage: Path, data: Home) -> str:
    """The desk that a folder is in; also `data` if that is in the folder."""
    folder, common = storage.resolve(), local_folder(data).resolve()
    if common.is_relative_to(folder) or folder.is_relative_to(common):
        return str(common)
    return str(desk_around(folder) or "")


def _outer_bucket(storage: Bucket, data: Home) -> str:
    """The same for a bucket, as far as the credentials can look."""
    if isinstance(data, Bucket):
        common, inner = f"{data}/", f"{storage}/"
        if common.startswith(inner) or inner.startswith(common):
            return data.uri
    scheme, _, path = storage.uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        outer = Bucket(f"{scheme}://{path}", storage.options)
        try:
            if outer.names("tenants") and (outer.read("key") or outer.read(OWNER)):
                return outer.uri
        except StoreError:  # credentials for the inner prefix alone
            continue
    return ""


def _has_something(storage: Home) -> bool:
    if isinstance(storage, Bucket):
        return bool(object_facts(storage))
    try:
        return any(storage.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unwritable(f"The storage {storage} can't be read", error) from error


def _write_owner(storage: Home, owner: bytes, *, is_new: bool) -> None:
    conflict = ConfigurationError(f"Somebody else has just taken {storage}. Name another storage.")
    if isinstance(storage, Bucket):
        if not is_new:
            put(storage, OWNER, owner)
        elif not put_new(storage, OWNER, owner):
            raise conflict
        return
    try:
        make_private(storage)
        if is_new:
            os.close(os.open(storage / OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        raise conflict from error
    except OSError as error:
        raise unwritable(f"The storage {storage} can't be created", error) from error
    write_whole(storage / OWNER, owner)


def _delete_desk(storage: Home) -> None:
    if isinstance(storage, Bucket):
        delete(storage, [name for name in object_facts(storage) if name != OWNER])
        return
    for entry in storage.iterdir():
        if entry.name != OWNER:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    flush_folder(storage)

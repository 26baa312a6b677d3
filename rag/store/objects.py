"""Writing the objects of a bucket, and listing all of them. Servers only read (`rag.home`)."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rag.home import Bucket

PART_BYTES = 5 << 20  # S3 takes no smaller ones
PARTS = 2  # of one object at once


def put(bucket: Bucket, name: str, content: bytes | IO[bytes]) -> str | None:
    """Write an object, whatever was there. Returns the tag that the store gives it.

    Raises:
        StoreError: the store doesn't answer, or refuses.
    """
    store = bucket.store if isinstance(content, bytes) else bucket.carrier
    try:
        answer = store.put(name, content, chunk_size=PART_BYTES, max_concurrency=PARTS)
    except Exception as error:
        raise bucket.failure("written", error) from error
    return _bare(answer["e_tag"])


def put_over(bucket: Bucket, name: str, content: bytes, tag: str | None) -> str | None:
    """Write an object if it still has this tag; with None, if it still doesn't exist.

    Returns its new tag, or None if nothing was written: it is another one by now, or the store can't compare.

    Raises:
        StoreError: as `put`.
    """
    store = bucket.store
    from obstore import exceptions  # noqa: PLC0415 few desks are in a bucket

    try:
        answer = store.put(name, content, mode={"e_tag": f'"{tag}"'} if tag else "create")
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotSupportedError):
        return None
    except Exception as error:
        raise bucket.failure("written", error) from error
    return _bare(answer["e_tag"])


def put_new(bucket: Bucket, name: str, content: bytes) -> bool:
    """Write an object that doesn't exist; False if it does, and then nothing is written.

    Raises:
        StoreError: as `put`.
    """
    store = bucket.store
    from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 few desks are in a bucket

    try:
        store.put(name, content, mode="create")
    except AlreadyExistsError:
        return False
    except Exception as error:
        raise bucket.failure("written", error) from error
    return True


def delete(bucket: Bucket, names: Iterable[str]) -> None:
    """Delete objects; those that don't exist are fine.

    Raises:
        StoreError: as `put`.
    """
    try:
        if listed := list(names):
            bucket.store.delete(listed)
    except FileNotFoundError:
        pass
    except Exception as error:
        raise bucket.failure("written", error) from error


def listed(bucket: Bucket, prefix: str | None = None) -> dict[str, tuple[int, str | None]]:
    """The sizes and tags of all objects, by name.

    Raises:
        StoreError: as `put`.
    """
    try:
        found = [one for some in bucket.store.list(prefix) for one in some]
    except Exception as error:
        raise bucket.failure("read", error) from error
    return {one["path"]: (one["size"], _bare(one["e_tag"])) for one in found}


def _bare(tag: str | None) -> str | None:
    """A tag without quotation marks, which Azure leaves out of some answers."""
    return tag and tag.strip('"')


def fetch(bucket: Bucket, name: str) -> Iterator[bytes]:
    """The content of an object, in parts.

    Raises:
        StoreError: as `put`; also if there is none.
    """
    store = bucket.carrier
    try:
        whole = store.get(name)
        size = whole.meta["size"]
        if size <= PART_BYTES:
            yield bytes(whole.bytes())
            return
        for start in range(0, size, PART_BYTES):
            yield bytes(store.get_range(name, start=start, end=min(start + PART_BYTES, size)))
    except Exception as error:
        raise bucket.failure("read", error) from error


def digest_of(bucket: Bucket, name: str) -> str:
    """The SHA-256 of an object's content.

    Raises:
        StoreError: as `fetch`.
    """
    digest = hashlib.sha256()
    for part in fetch(bucket, name):
        digest.update(part)
    return digest.hexdigest()

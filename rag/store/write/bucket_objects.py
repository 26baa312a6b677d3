"""Writes and lists the objects of a bucket, and checks whether an object store is fit for a desk.

Servers only read a bucket (`rag.home`). `check_bucket` is what `doctor storage` runs. If the store doesn't
answer, or refuses, the other functions raise a `StoreError`.
"""

from __future__ import annotations

import hashlib
import statistics
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any, Literal

from rag.errors import ConfigurationError, StoreError
from rag.home import Bucket, data_folder_problem

PART_BYTES = 5 << 20  # S3 takes no smaller ones
PARTS = 2  # of one object at once


def put(bucket: Bucket, name: str, content: bytes | IO[bytes]) -> None:
    """Write an object, over any earlier one."""
    bucket.forget(name)
    store = bucket.store if isinstance(content, bytes) else bucket.carrier
    with bucket.store_errors("written"):
        store.put(name, content, chunk_size=PART_BYTES, max_concurrency=PARTS)


def put_over(bucket: Bucket, name: str, content: bytes, tag: str) -> bool:
    """Write an object if it still has this tag.

    False, and nothing is written, if somebody has changed it, or the store can't compare.
    """
    refusals = "AlreadyExistsError", "PreconditionError", "NotSupportedError"
    return _put_if(bucket, name, content, {"e_tag": f'"{tag}"'}, *refusals)


def put_new(bucket: Bucket, name: str, content: bytes) -> bool:
    """Create an object; False, and nothing is written, if it exists."""
    return _put_if(bucket, name, content, "create", "AlreadyExistsError")


def _put_if(bucket: Bucket, name: str, content: bytes, mode: object, *refusals: str) -> bool:
    """Write an object in a mode of the library. False if it raises one of its errors named in `refusals`."""
    store = bucket.store
    from obstore import exceptions  # noqa: PLC0415 few desks are in a bucket

    bucket.forget(name)
    with bucket.store_errors("written"):
        try:
            store.put(name, content, mode=mode)
        except tuple(getattr(exceptions, refusal) for refusal in refusals):
            return False
    return True


def delete(bucket: Bucket, names: Iterable[str]) -> None:
    """Delete these objects if they exist."""
    listed = list(names)
    for name in listed:
        bucket.forget(name)
    if listed:
        with bucket.store_errors("written"), suppress(FileNotFoundError):
            bucket.store.delete(listed)


def object_facts(bucket: Bucket, prefix: str | None = None) -> dict[str, tuple[int, str | None]]:
    """The sizes and tags of all objects, by name."""
    return {entry["path"]: (entry["size"], entry["e_tag"]) for entry in entries_of(bucket, prefix)}


def entries_of(bucket: Bucket, prefix: str | None) -> list[Any]:
    """The objects below a prefix, as the library lists them."""
    with bucket.store_errors("read"):
        return [entry for page in bucket.store.list(prefix) for entry in page]


def fetch(bucket: Bucket, name: str) -> Iterator[bytes]:
    """The content of an object, in parts.

    Raises:
        StoreError: as `put`; also if the object doesn't exist.
    """
    store = bucket.carrier
    with bucket.store_errors("read"):
        whole = store.get(name)
        size = whole.meta["size"]
        if size <= PART_BYTES:
            yield bytes(whole.bytes())
            return
        for start in range(0, size, PART_BYTES):
            yield bytes(store.get_range(name, start=start, end=min(start + PART_BYTES, size)))


def digest_of(bucket: Bucket, name: str) -> str:
    """The SHA-256 of an object's content."""
    digest = hashlib.sha256()
    for part in fetch(bucket, name):
        digest.update(part)
    return digest.hexdigest()


PROBES = "_refdesk_probe"
ROUNDS, WRITERS = 10, 8
ASKED = 10  # requests that measure the response time
SKEW_SECONDS = 60  # S3 refuses requests by clocks that are 15 minutes off


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """The result of a check. A note needn't be a problem."""

    check: str
    state: Literal["fine", "note", "wrong"]
    text: str


def check_bucket(bucket: Bucket) -> Iterator[BucketCheck]:
    """Try what servers and writers need of a bucket. Every probe is deleted again.

    Raises:
        ConfigurationError: the address or an option is not valid, or the package isn't installed.
    """
    try:
        yield BucketCheck("answers", "fine", _answers(bucket))
    except StoreError as error:
        yield BucketCheck("answers", "wrong", str(error).removesuffix(" Run refdesk-admin doctor storage."))
        return
    probe = f"{PROBES}/{uuid.uuid4().hex}"
    try:
        put(bucket, probe, probe.encode())
    except StoreError:
        text = "These credentials can only read: right for servers. The checks that write were left out."
        yield BucketCheck("rights", "fine", text)
    else:
        checks = [*_writing(bucket, probe)]
        yield from checks
        if any(check.state == "wrong" for check in checks):
            return  # unfit for a desk
    problem = data_folder_problem(bucket)
    yield BucketCheck("desk", "note" if problem else "fine", problem or f"There is a desk in {bucket}.")


def _answers(bucket: Bucket) -> str:
    """Measure the response time with requests for objects that don't exist."""
    seconds = []
    bucket.names("tenants")
    for _ in range(ASKED):
        began = time.perf_counter()
        bucket.read(f"{PROBES}/{uuid.uuid4().hex}")
        seconds.append(time.perf_counter() - began)
    usual, longest = statistics.median(seconds), max(seconds)
    return f"A small request takes {1000 * usual:.0f} ms, and took {1000 * longest:.0f} ms at most."


def _writing(bucket: Bucket, probe: str) -> Iterator[BucketCheck]:
    try:
        yield BucketCheck(
            "rights",
            "note",
            "These credentials can write. Give servers others, which can only list and read.",
        )
        yield _clock(bucket, probe)
        is_visible = bucket.read(probe) == probe.encode() and probe in object_facts(bucket, PROBES)
        text = "What is written is read and listed at once."
        if not is_visible:
            text = "What was just written can't be read or isn't listed yet: servers could miss revocations."
        yield BucketCheck("read after write", "fine" if is_visible else "wrong", text)
        once = creates_once(bucket)
        text = "Of several writers that create an object, one succeeds."
        if not once:
            text = (
                "It ignores If-None-Match: what one writer has committed, another can replace. Use another "
                "object store; nothing is written to this one."
            )
        yield BucketCheck("conditional writes", "fine" if once else "wrong", text)
    except StoreError as error:
        yield BucketCheck("writing", "wrong", str(error).removesuffix(" Run refdesk-admin doctor storage."))
    finally:
        delete(bucket, [probe])


def _clock(bucket: Bucket, probe: str) -> BucketCheck:
    """Compare the store's time of writing with our clock."""
    with bucket.store_errors("read"):
        written_at: datetime = bucket.store.head(probe)["last_modified"]
    skew = abs((datetime.now(UTC) - written_at).total_seconds())
    text = f"The clocks of this machine and of the store differ by {skew:.0f} s."
    return BucketCheck("clock", "fine" if skew < SKEW_SECONDS else "wrong", text)


def creates_once(bucket: Bucket) -> bool:
    """Whether only one of several writers succeeds in creating an object, as the engine's commits need.

    A clone of S3 that ignores `If-None-Match` lost 25 of 59 commits that it had acknowledged.
    """
    folder = f"{PROBES}/{uuid.uuid4().hex}"
    names = [f"{folder}/{number}" for number in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(WRITERS) as threads:
            for name in names:
                created = threads.map(partial(put_new, bucket, name), [b"1"] * WRITERS)
                if sum(created) > 1:  # none, if an answer was lost and the library tried again
                    return False
            return not put_new(bucket, names[0], b"2")
    finally:
        delete(bucket, names)


def check_fit(bucket: Bucket) -> None:
    """Check that a store keeps concurrent writers apart.

    Raises:
        ConfigurationError: it doesn't.
        StoreError: as `creates_once`.
    """
    if not creates_once(bucket):
        raise unfit_store(bucket)


def unfit_store(bucket: Bucket) -> ConfigurationError:
    """The error to raise if a store can't keep concurrent writers apart."""
    return ConfigurationError(
        f"The object store of {bucket} ignores If-None-Match: what one writer has committed, another could "
        "replace. Nothing was written. Use one with conditional writes."
    )

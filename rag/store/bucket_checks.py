"""What an object store must be able to do before a desk is in it, and what `doctor storage` finds out."""

from __future__ import annotations

import statistics
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from rag.config.data_folder import data_folder_problem
from rag.errors import StoreError
from rag.store.objects import delete, listed, put, put_new

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.home import Bucket

PROBES = "_refdesk_probe"
ROUNDS, WRITERS = 10, 8
ASKED = 10  # times, for the time of an answer
SKEW_SECONDS = 60  # S3 refuses requests by clocks that are 15 minutes off


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found out. A note is no mistake, but could be one."""

    check: str
    state: Literal["fine", "note", "wrong"]
    text: str


def check_bucket(bucket: Bucket) -> Iterator[Checked]:
    """Try what servers and writers need of a bucket. What is written is deleted again.

    Raises:
        ConfigurationError: the address or an option is not valid, or the package is not installed.
    """
    try:
        yield Checked("answers", "fine", _answers(bucket))
    except StoreError as error:
        yield Checked("answers", "wrong", str(error).removesuffix(" Run refdesk-admin doctor storage."))
        return
    probe = f"{PROBES}/{uuid.uuid4().hex}"
    try:
        put(bucket, probe, probe.encode())
    except StoreError:
        text = "These credentials can only read: right for servers. The checks that write were left out."
        yield Checked("rights", "fine", text)
    else:
        found = [*_writing(bucket, probe)]
        yield from found
        if any(one.state == "wrong" for one in found):
            return  # nobody should copy a desk to it
    problem = data_folder_problem(bucket)
    yield Checked("desk", "note" if problem else "fine", problem or f"There is a desk in {bucket}.")


def _answers(bucket: Bucket) -> str:
    """Ask for something that doesn't exist, again and again."""
    seconds = []
    bucket.names("tenants")
    for _ in range(ASKED):
        began = time.perf_counter()
        bucket.read(f"{PROBES}/{uuid.uuid4().hex}")
        seconds.append(time.perf_counter() - began)
    usual, most = (1000 * one for one in (statistics.median(seconds), max(seconds)))
    return f"A small request takes {usual:.0f} ms, and took {most:.0f} ms at most."


def _writing(bucket: Bucket, probe: str) -> Iterator[Checked]:
    try:
        yield Checked(
            "rights",
            "note",
            "These credentials can write. Give servers others, which can only list and read.",
        )
        yield _clock(bucket, probe)
        found = bucket.read(probe) == probe.encode() and probe in listed(bucket, PROBES)
        text = "What is written is read and listed at once."
        if not found:
            text = "What was just written can't be read or isn't listed yet: servers could miss revocations."
        yield Checked("read after write", "fine" if found else "wrong", text)
        once = creates_once(bucket)
        text = "Of several writers that create an object, one succeeds."
        if not once:
            text = (
                "It ignores If-None-Match: what one writer has committed, another can replace. Use another "
                "object store; nothing is copied to this one."
            )
        yield Checked("conditional writes", "fine" if once else "wrong", text)
    except StoreError as error:
        yield Checked("writing", "wrong", str(error).removesuffix(" Run refdesk-admin doctor storage."))
    finally:
        delete(bucket, [probe])


def _clock(bucket: Bucket, probe: str) -> Checked:
    """Compare the time at which the store says that an object was written with ours."""
    try:
        written: datetime = bucket.store.head(probe)["last_modified"]
    except Exception as error:
        raise bucket.failure("read", error) from error
    skew = abs((datetime.now(UTC) - written).total_seconds())
    text = f"The clocks of this machine and of the store differ by {skew:.0f} s."
    return Checked("clock", "fine" if skew < SKEW_SECONDS else "wrong", text)


def creates_once(bucket: Bucket) -> bool:
    """Whether of several writers that create an object only one succeeds, as the engine's commits need.

    An imitation of S3 that ignores `If-None-Match` lost 25 of 59 commits that it had acknowledged.

    Raises:
        StoreError: the store doesn't answer, or refuses.
    """
    folder = f"{PROBES}/{uuid.uuid4().hex}"
    names = [f"{folder}/{number}" for number in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(WRITERS) as threads:
            for name in names:
                made = threads.map(partial(put_new, bucket, name), [b"1"] * WRITERS)
                if sum(made) > 1:  # none, if an answer was lost and the library tried again
                    return False
            return not put_new(bucket, names[0], b"2")
    finally:
        delete(bucket, names)

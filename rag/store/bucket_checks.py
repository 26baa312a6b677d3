"""What an object store must be able to do before a desk is written to it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from rag.store.objects import delete, put_new

if TYPE_CHECKING:
    from rag.home import Bucket

PROBES = "_refdesk_probe"
ROUNDS, WRITERS = 10, 8


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

"""A store that fails while a desk is copied to it or read: nothing is torn, and it is said in plain words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.errors import StoreError
from rag.store.bucket.bucket_copy import copy_to_bucket
from rag.store.read.desk_reader import DeskReader

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.home import Bucket
    from tests.bucket import ObjectStore
    from tests.conftest import Scripts

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

FAULTS: dict[str, tuple[object, str]] = {
    "gone": (True, "the object store doesn't answer as it should"),
    "cuts": (True, "the object store doesn't answer as it should"),
    "down": (True, "the object store doesn't answer as it should"),
    "expired": (True, "the credentials in the environment have expired"),
    "ahead": (20 * 60, "the clock of this machine is too far off"),
    "slow": (10, "the object store takes too long to answer"),
}
NOT_SAID = ("very-secret-words", "AKIATESTER", "Generic S3", "SlowDown", "ExpiredToken", "127.0.0.1", "error")
USUAL_REQUESTS = 100  # of a copy, roughly


async def told(bucket: Bucket) -> str:
    """What somebody who opens the desk now reads in it."""
    reader = DeskReader(bucket, timeout_seconds=30)
    (collection,) = await reader.collections("default")
    (body,) = await (await reader.open(collection)).bodies()
    return body


async def test_a_copy_that_fails_anywhere_leaves_the_former_desk_or_the_new_one(
    data: Path, bucket: Bucket, object_store: ObjectStore, small_desk: ModuleType, tmp_path: Path
) -> None:
    note = tmp_path / "note.md"
    now = "The pendulum swings."
    await copy_to_bucket(data, bucket)
    kept, failed = [], 0
    for share in (0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1):
        former, now = now, f"The pendulum swings for {share} s."
        note.write_text(f"# Note\n\n{now}\n")
        await small_desk.ingested(data, note)
        object_store.left = int(share * USUAL_REQUESTS)
        try:
            await copy_to_bucket(data, bucket)
        except StoreError:
            failed += 1
        object_store.left = None
        body = await told(bucket)
        assert (former in body) or (now in body)
        kept.append(former in body)
        await copy_to_bucket(data, bucket)
        assert now in await told(bucket)
    assert failed > 3
    assert set(kept) == {True, False}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_command_says_in_plain_words_which_bucket_fails(
    scripts: Scripts, data: Path, object_store: ObjectStore, fault: str
) -> None:
    to = ("storage", "copy", "--to", object_store.uri, "--data", data)
    assert scripts.admin(*to, env=object_store.environment).returncode == 0
    (value, why), former = FAULTS[fault], getattr(object_store, fault)
    setattr(object_store, fault, value)
    for command in (to, ("search", "pendulum"), ("sources",)):
        env = object_store.environment if command is to else object_store.serving
        done = scripts.admin(*command, env=env)
        assert done.returncode == 1, done.stderr
        assert object_store.uri in done.stderr, done.stderr
        assert why in done.stderr
        assert not [word for word in NOT_SAID if word in done.stderr.removeprefix("Error")]
    doctor = scripts.admin("doctor", "storage", "--json", env=object_store.serving)
    assert doctor.returncode == 1
    (found,) = json.loads(doctor.stdout)["findings"]
    assert found["state"] == "wrong"
    assert why in found["text"]
    setattr(object_store, fault, former)
    assert "Note" in scripts.admin("search", "pendulum", env=object_store.serving).stdout
    assert scripts.admin(*to, env=object_store.environment).returncode == 0

"""Stores that fail, or are no S3: nothing is torn, and it is said in plain words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rag.errors import StoreError
from rag.home import Bucket
from rag.store.write import locks
from tests import npm
from tests.bucket import ObjectStore
from tests.conftest import Scripts
from tests.store.test_processes import whole

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow]

MISBEHAVES = "the object store doesn't answer as it should"
FAULTS: dict[str, tuple[object, str]] = {
    "gone": (True, MISBEHAVES),
    "cuts": (True, MISBEHAVES),
    "down": (True, MISBEHAVES),
    "expired": (True, "the credentials in the environment have expired"),
    "ahead": (20 * 60, "the clock of this machine is too far off"),
    "slow": (10, "the object store takes too long to answer"),
}
NOT_SAID = ("very-secret-words", "AKIATESTER", "Generic S3", "SlowDown", "ExpiredToken", "127.0.0.1", "error")


async def body_in(bucket: Bucket) -> str:
    """What somebody who opens the desk now reads in it."""
    ((text,),) = (await whole(bucket)).values()
    return text


async def test_an_ingestion_that_fails_anywhere_leaves_the_former_desk_or_the_new_one(
    bucket: Bucket,
    object_store: ObjectStore,
    small_desk: ModuleType,
    note: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 1.0)
    now = "The pendulum swings."
    note.write_text(f"# Note\n\n{now}\n")  # noqa: ASYNC240 nothing else runs
    await small_desk.ingested(bucket, note)
    object_store.requests.clear()
    now = "The pendulum stands."
    note.write_text(f"# Note\n\n{now}\n")  # noqa: ASYNC240 nothing else runs
    await small_desk.ingested(bucket, note)
    usual = object_store.requests.total()
    stayed, failed = [], 0
    for share in (0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1):
        former, now = now, f"The pendulum swings for {share} s."
        note.write_text(f"# Note\n\n{now}\n")  # noqa: ASYNC240 nothing else runs
        object_store.left = int(share * usual)
        try:
            await small_desk.ingested(bucket, note)
        except StoreError:
            failed += 1
        object_store.left = None
        body = await body_in(bucket)
        assert (former in body) or (now in body)
        stayed.append(former in body)
        await small_desk.ingested(bucket, note)
        assert now in await body_in(bucket)
    assert failed > 3
    assert set(stayed) == {True, False}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_command_says_in_plain_words_which_bucket_fails(
    scripts: Scripts, data: Path, object_store: ObjectStore, fault: str
) -> None:
    to = ("storage", "copy", "--to", object_store.uri, "--data", data)
    assert scripts.admin(*to, env=object_store.environment).returncode == 0
    copy = (*to[:3], f"{object_store.uri}/other", *to[4:])
    (value, why), former = FAULTS[fault], getattr(object_store, fault)
    setattr(object_store, fault, value)
    writing = ("key", "create", "--user", "ann", "--tenant", "default")
    for command in (copy, ("search", "pendulum"), ("sources",), writing):
        env = object_store.environment if command is copy else object_store.serving
        process = scripts.admin(*command, env=env)
        assert process.returncode == 1, process.stderr
        assert object_store.uri in process.stderr, process.stderr
        assert why in process.stderr
        assert not [word for word in NOT_SAID if word in process.stderr.removeprefix("Error")]
    doctor = scripts.admin("doctor", "storage", "--json", env=object_store.serving)
    assert doctor.returncode == 1
    (finding,) = json.loads(doctor.stdout)["findings"]
    assert finding["state"] == "wrong"
    assert why in finding["text"]
    setattr(object_store, fault, former)
    assert "Note" in scripts.admin("search", "pendulum", env=object_store.serving).stdout
    assert scripts.admin(*writing, env=object_store.serving).returncode == 0


START_SECONDS = 60
URI = "s3://desks/one"


@pytest.fixture
def imitation(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a process needs to reach s3rver, which keeps its objects in the folder `objects`."""
    folder = tmp_path / "s3rver"
    folder.mkdir()
    npm.install(folder, "s3rver@3.7.1")
    node = shutil.which("node") or pytest.skip("there is no node to run s3rver; install Node.js with npm")
    program, objects = folder / "node_modules/s3rver/bin/s3rver.js", tmp_path / "objects"
    objects.mkdir()
    bucket = ("-d", str(objects), "-a", "127.0.0.1", "-p", "0", "--configure-bucket", "desks")
    command = [node, str(program), *bucket]
    noise = tmp_path / "noise"
    with noise.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        ends = time.monotonic() + START_SECONDS
        while not (listens := re.search(r"listening on (127\.0\.0\.1:\d+)", noise.read_text())):
            assert time.monotonic() < ends, noise.read_text()
            assert process.poll() is None, noise.read_text()
            time.sleep(0.1)
        yield {
            "AWS_ACCESS_KEY_ID": "S3RVER",
            "AWS_SECRET_ACCESS_KEY": "S3RVER",
            "REFDESK_STORAGE_OPTIONS_ENDPOINT": f"http://{listens[1]}",
            "REFDESK_STORAGE_OPTIONS_REGION": "us-east-1",
            "REFDESK_STORAGE_OPTIONS_ALLOW_HTTP": "true",
        }
        process.kill()


def test_doctor_names_what_it_lacks_and_nothing_is_copied_to_it(
    scripts: Scripts, imitation: dict[str, str], object_store: ObjectStore, clock_room: Path, tmp_path: Path
) -> None:
    """moto, which keeps the condition, is the control."""
    for fit, uri, env in ((False, URI, imitation), (True, object_store.uri, object_store.environment)):
        doctor = scripts.admin("doctor", "storage", env=env | {"REFDESK_STORAGE_URI": uri})
        assert doctor.returncode == (0 if fit else 1), doctor.stdout
        assert ("It ignores If-None-Match" in doctor.stdout) is not fit
        assert ("storage copy --to" in doctor.stdout) is fit  # the advice
        copied = scripts.admin("storage", "copy", "--to", uri, "--data", clock_room, env=env)
        assert copied.returncode == (0 if fit else 2), copied.stderr
        assert ("ignores If-None-Match" in copied.stderr) is not fit
        assert ("Nothing was written" in copied.stderr) is not fit
    assert any("/tables/" in name for name in object_store.held())
    assert not [
        path for path in (tmp_path / "objects").rglob("*") if "one/" in path.as_posix() and path.is_file()
    ]

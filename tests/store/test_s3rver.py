"""An imitation of S3 in which commits are lost is refused before anything is written to it."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests import npm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bucket import ObjectStore
    from tests.conftest import Scripts

pytestmark = pytest.mark.nightly

START_SECONDS = 60
URI = "s3://desks/one"


@pytest.fixture
def imitation(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a process needs to reach s3rver, which keeps its objects in the folder `kept`."""
    folder = tmp_path / "s3rver"
    folder.mkdir()
    npm.install(folder, "s3rver@3.7.1")
    node = shutil.which("node") or pytest.skip("there is no node to run s3rver; install Node.js with npm")
    program, kept = folder / "node_modules/s3rver/bin/s3rver.js", tmp_path / "kept"
    kept.mkdir()
    bucket = ("-d", str(kept), "-a", "127.0.0.1", "-p", "0", "--configure-bucket", "desks")
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
        assert ("Nothing was copied" in copied.stderr) is not fit
    assert len(object_store.held()) > 50
    assert not [one for one in (tmp_path / "kept").rglob("*") if "one/" in one.as_posix() and one.is_file()]

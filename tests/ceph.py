"""A real object store on loopback: Ceph and its gateway for S3, by Debian's packages.

They are unpacked into a folder, not installed. A monitor, a daemon that keeps all objects in memory, and the
gateway run as this user; nobody else reaches them. One user may write to the bucket, the other list and read.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.server.conftest import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGES = ("ceph-common", "ceph-mon", "ceph-osd", "radosgw")
BUCKET = "desks"
SECRETS = {"owner": "very-secret-words", "server": "only-for-reading"}
FETCH_SECONDS, START_SECONDS = 300, 120  # 68 MB; it starts in 12 seconds on two cores
SETTINGS = """[global]
fsid = {fsid}
monmap = {folder}/monmap
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
admin socket =
run dir = {folder}
log file = {folder}/$name.log
mon cluster log to file = false
mon data = {folder}/mon
mon allow pool size one = true
mon max pg per osd = 1000
osd data = {folder}/osd
osd objectstore = memstore
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd class dir = {libraries}/rados-classes
erasure code dir = {libraries}/ceph/erasure-code
plugin dir = {libraries}/ceph
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""


@dataclass(frozen=True, slots=True)
class Ceph:
    """The gateway, with an empty bucket."""

    endpoint: str
    uri: str = f"s3://{BUCKET}/desks/one"

    def environment(self, user: str = "owner") -> dict[str, str]:
        """What a process of a user needs to reach the store."""
        return {
            "AWS_ACCESS_KEY_ID": user.upper(),
            "AWS_SECRET_ACCESS_KEY": SECRETS[user],
            "REFDESK_STORAGE_OPTIONS_ENDPOINT": self.endpoint,
            "REFDESK_STORAGE_OPTIONS_REGION": "us-east-1",
            "REFDESK_STORAGE_OPTIONS_ALLOW_HTTP": "true",
        }

    @property
    def serving(self) -> dict[str, str]:
        """What a server needs that can only read."""
        return self.environment("server") | {"REFDESK_STORAGE_URI": self.uri}

    def make_bucket(self) -> None:
        """The owner's bucket, which the other user can list and read."""
        boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
        client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="OWNER",
            aws_secret_access_key=SECRETS["owner"],
            config=config.Config(request_checksum_calculation="when_required"),
        )
        client.create_bucket(Bucket=BUCKET)
        resources = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": ["arn:aws:iam:::user/server"]},
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": resources,
        }
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))


@contextmanager
def running(folder: Path) -> Iterator[Ceph]:
    """Ceph, with all that it writes in a folder."""
    root = _programs(folder)
    (libraries,) = root.glob("usr/lib/*-linux-gnu")
    lib = root / "lib" / libraries.name
    port, fsid = free_port(), str(uuid.uuid4())
    names = {"fsid": fsid, "folder": folder, "libraries": libraries, "port": port}
    (folder / "ceph.conf").write_text(SETTINGS.format(**names))
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    environment = dict(os.environ) | {
        "CEPH_CONF": str(folder / "ceph.conf"),
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/ceph:{lib}",
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
    }
    run = partial(_run, root / "usr/bin", environment)
    monitor = f"[v1:127.0.0.1:{free_port()}]"
    run("monmaptool", "--create", "--addv", "a", monitor, "--fsid", fsid, str(folder / "monmap"))
    run("ceph-mon", "-i", "a", "--mkfs", "--monmap", str(folder / "monmap"))
    with ExitStack() as stack:
        start = partial(_start, root / "usr/bin", environment, folder, stack)
        start("ceph-mon", "-i", "a")
        run("ceph", "osd", "new", fsid)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", fsid)
        start("ceph-osd", "-i", "0")
        gateway = start("radosgw", "-n", "client.admin")
        for name, secret in SECRETS.items():
            arguments = ("user", "create", "--uid", name, "--display-name", name)
            run("radosgw-admin", *arguments, "--access-key", name.upper(), "--secret-key", secret)
        ceph = Ceph(f"http://127.0.0.1:{port}")
        _wait(ceph, gateway)
        ceph.make_bucket()
        yield ceph


def _programs(folder: Path) -> Path:
    """The folder that has Ceph's programs in usr/bin: the root if they are installed."""
    if all(map(shutil.which, ("ceph-mon", "ceph-osd", "radosgw"))):
        return Path("/")
    if not (apt := shutil.which("apt-get")):
        pytest.skip("Ceph comes from Debian's packages, and there is no apt-get")
    archives, root = folder / "archives", folder / "root"
    (archives / "partial").mkdir(parents=True)
    options = (
        "-o",
        f"Dir::Cache::archives={archives}",
        "-o",
        "Debug::NoLocking=1",
        "--no-install-recommends",
    )
    command = [apt, "install", "--yes", "--download-only", *options, *PACKAGES]
    run = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if run.returncode:
        why = next(iter(run.stderr.splitlines()), "it fails")
        pytest.skip(f"Debian's packages of Ceph can't be fetched ({why}): apt-get update")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(partial(_unpack, root), archives.glob("*.deb")))
    return root


def _unpack(root: Path, package: Path) -> None:
    subprocess.run(["dpkg", "-x", package, root], check=True, timeout=FETCH_SECONDS)


def _run(programs: Path, environment: Mapping[str, str], name: str, *arguments: str) -> None:
    command = [str(programs / name), *arguments]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    assert run.returncode == 0, (name, run.stderr[-2000:])


def _start(
    programs: Path, environment: Mapping[str, str], folder: Path, stack: ExitStack, *command: str
) -> subprocess.Popen[bytes]:
    noise = stack.enter_context((folder / f"{command[0]}.noise").open("wb"))
    process = subprocess.Popen(
        [programs / command[0], *command[1:], "-f"], env=environment, stdout=noise, stderr=noise
    )
    stack.callback(process.wait)
    stack.callback(process.kill)  # nothing is to be kept
    return process


def _wait(ceph: Ceph, gateway: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        assert gateway.poll() is None, "the gateway has ended"
        with suppress(httpx2.TransportError):
            httpx2.get(ceph.endpoint).raise_for_status()
            return
        time.sleep(0.2)
    raise TimeoutError

"""The nginx of this machine with a configuration that our documentation shows, on ports of the test's own."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server.conftest import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.bucket import ObjectStore

PAGE = Path(__file__).parents[1] / "server/running.md"

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
START_SECONDS = 60
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{shown}
}}
"""


def shown(page: Path, *, word: str) -> str:
    """The configuration on a page of documentation in which a word stands."""
    blocks = re.findall(r"```nginx\n(.*?)```", page.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return str(block)


def replaced(configuration: str, changes: Mapping[str, str]) -> str:
    """The configuration with other addresses and paths, each of which must stand in it."""
    for former, new in changes.items():
        assert former in configuration, former
        configuration = configuration.replace(former, new)
    return configuration


@contextmanager
def in_front_of(store: ObjectStore, folder: Path) -> Iterator[str]:
    """The cache in front of a bucket, from now on one that everybody may read: its address."""
    store.open_to_all()
    port, bucket = free_port(), store.endpoint.removeprefix("http://")
    changes = {
        "/var/cache/nginx/desk": str(folder / "kept"),
        "127.0.0.1:9100": f"127.0.0.1:{port}",
        "https://s3.eu-central-1.amazonaws.com": f"http://{bucket}",
        "s3.eu-central-1.amazonaws.com": bucket,
        "max_size=200g": "max_size=1g",
    }
    with running(replaced(shown(PAGE, word="proxy_cache_path"), changes), folder, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(configuration: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An nginx that listens on the port, until the context ends."""
    if not PROGRAM:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    file = folder / "nginx.conf"
    file.write_text(AROUND.format(folder=folder, shown=configuration))
    with subprocess.Popen([PROGRAM, "-p", folder, "-c", file], stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + START_SECONDS
            while not _listens(port):
                assert process.poll() is None, (folder / "error.log").read_text()
                assert time.monotonic() < ends
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False

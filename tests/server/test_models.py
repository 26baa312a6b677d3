"""A server works with a model that was pulled, says which is missing, and opens no connection for either."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rag.models.tokenizer import BUILTIN_MODEL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start

pytestmark = pytest.mark.slow

SETTINGS = "[embedder]\nprovider = 'onnx'\nmodel = 'acme/Stand-In'\n"
WATCH = """
import os, sys

def note(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}:
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{event} {arguments[1:]}\\n")

sys.addaudithook(note)
"""


@pytest.fixture(scope="module")
def data(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document whose vectors a model of its own has made; the settings are in the folder above."""
    above = tmp_path_factory.mktemp("models")
    folder, own, document = above / "data", above / "stand-in", above / "doc.md"
    own.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(BUILTIN_MODEL / name, own)
    (above / "config.toml").write_text(SETTINGS)
    document.write_text("# Clocks\n\nA pendulum keeps time.\n")
    for command in (("model", "add", own), ("ingest", document, "--visibility", "tenant")):
        run = scripts.admin(*command, "--data", folder, "--config", above / "config.toml")
        assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that notes every connection that it tries to make."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    return {"PYTHONPATH": str(tmp_path / "watch"), "CONNECTIONS": str(tmp_path / "connections")}


def test_a_search_with_a_pulled_model_opens_no_connection(
    cold_start: Start, data: Path, watched: dict[str, str], tmp_path: Path
) -> None:
    wire = cold_start(data, env=watched, flags=["--config", str(data.parent / "config.toml")])
    wire.begin()
    found = wire.tool("search", {"query": "How do I know how late it is?", "mode": "dense"})
    assert [one["title"] for one in found["structuredContent"]["results"]] == ["Clocks"]
    assert not (tmp_path / "connections").exists()


def test_a_missing_model_is_named_with_its_command_and_nothing_is_fetched(
    cold_start: Start, data: Path, watched: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = {"REFDESK_MODELS": str(tmp_path / "none"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    wire = cold_start(data, env=watched | elsewhere, flags=["--config", str(data.parent / "config.toml")])
    wire.begin()
    told = wire.tool_error("search", {"query": "pendulum"})
    assert "acme/Stand-In" in told
    assert "refdesk-admin model pull acme/Stand-In" in told
    assert not (tmp_path / "connections").exists()


def test_the_watch_sees_a_connection(watched: dict[str, str], tmp_path: Path) -> None:
    program = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", program], env=os.environ | watched, check=True)
    assert "socket.connect" in (tmp_path / "connections").read_text()

"""The command that adds an extra works where this refdesk is installed, and asks no index that lacks it."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rag import runtime
from rag.runtime import install_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment that something else may have made."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/desk/bin/python")
    monkeypatch.setattr(runtime, "find_spec", lambda _name: object())
    return tmp_path


@pytest.mark.parametrize(
    ("noted", "wanted"),
    [
        (None, "'refdesk[ocr]'"),
        ({"url": "file:///home/my%20ann/desk", "dir_info": {}}, "'/home/my ann/desk[ocr]'"),
        ({"url": "file:///d", "dir_info": {"editable": True}}, "--editable '/d[ocr]'"),
        (
            {"url": "file:///d/refdesk-1-py3-none-any.whl", "archive_info": {}},
            "'refdesk[ocr] @ file:///d/refdesk-1-py3-none-any.whl'",
        ),
        (
            {"url": "https://git.example/r", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "'refdesk[ocr] @ git+https://git.example/r@ab12'",
        ),
    ],
    ids=["index", "folder", "editable", "wheel", "repository"],
)
def test_an_extra_comes_from_where_refdesk_came(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, noted: object, wanted: str
) -> None:
    assert prefix
    text = json.dumps(noted) if noted else None
    monkeypatch.setattr(metadata, "distribution", lambda _name: SimpleNamespace(read_text=lambda _file: text))
    assert install_command("ocr") == f"/desk/bin/python -m pip install {wanted}"


@pytest.mark.parametrize(
    ("receipt", "wanted"),
    [("uv-receipt.toml", "uv tool install --force "), ("pipx_metadata.json", "pipx install --force ")],
)
def test_what_made_the_environment_adds_to_it(prefix: Path, receipt: str, wanted: str) -> None:
    (prefix / receipt).touch()
    assert install_command("formats").startswith(wanted)


def test_an_environment_without_pip_is_uv_s(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prefix
    monkeypatch.setattr(runtime, "find_spec", lambda _name: None)
    assert install_command("formats").startswith("uv pip install --python /desk/bin/python ")

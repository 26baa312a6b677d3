"""The bundle as the official packer and the library of hosts see it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import release

if TYPE_CHECKING:
    import subprocess

    from tests.clients.conftest import Node

pytestmark = pytest.mark.slow

PACKER = "node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a bundle holds, with a wheel that is none."""
    temporary = tmp_path_factory.mktemp("bundle")
    wheel = temporary / "refdesk-0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    release.write_bundle(temporary / "refdesk", wheel)
    return temporary / "refdesk"


def packer(node: Node, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return node.run(PACKER, *arguments)


def test_the_packer_takes_it_and_finds_all_that_it_needs_in_it(
    node: Node, bundle: Path, tmp_path: Path
) -> None:
    valid = packer(node, "validate", bundle / "manifest.json")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    packed = packer(node, "pack", bundle, tmp_path / "refdesk.mcpb")
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with zipfile.ZipFile(tmp_path / "refdesk.mcpb") as archive:
        assert sorted(archive.namelist()) == [
            "LICENSE",
            "manifest.json",
            "pyproject.toml",
            "refdesk-0-py3-none-any.whl",
            "start.py",
        ]
    assert packer(node, "info", tmp_path / "refdesk.mcpb").returncode == 0


def test_the_packer_refuses_what_is_wrong(node: Node, bundle: Path, tmp_path: Path) -> None:
    written = json.loads((bundle / "manifest.json").read_text())
    written["server"]["type"] = "snake"
    (tmp_path / "manifest.json").write_text(json.dumps(written))
    assert packer(node, "validate", tmp_path / "manifest.json").returncode != 0


@pytest.mark.parametrize(
    "folder", ["/home/ann/Meine Dokumente", "C:\\Users\\Ann\\$HOME & Co", "/srv/${HOME}"]
)
def test_hosts_start_it_with_the_folder_and_the_name_that_the_user_gave(
    node: Node, bundle: Path, folder: str
) -> None:
    given = {"folder": folder, "name": "Ann's handbook"}
    config = node.said("launch.mjs", bundle, json.dumps(given))
    assert config["args"][-2:] == ["--documents", folder]
    assert config["env"] == {"REFDESK_SERVER_TITLE": "Ann's handbook"}
    ours = release.launched(release.manifest(), bundle, given, Path("/home/ann"))
    assert (config["command"], config["args"]) == (ours.command, ours.args)


def test_hosts_don_t_start_it_before_a_folder_is_chosen_and_give_it_a_name_of_their_own(
    node: Node, bundle: Path
) -> None:
    assert node.said("launch.mjs", bundle, json.dumps({})) is None
    config = node.said("launch.mjs", bundle, json.dumps({"folder": "/srv/docs", "name": "x"}))
    assert config["env"] == {"REFDESK_SERVER_TITLE": "x"}

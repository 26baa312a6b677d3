"""refdesk-admin config check, and where settings come from: flag, then environment, then file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.config.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts

pytestmark = pytest.mark.slow


def test_without_any_file_the_defaults_are_right(scripts: Scripts) -> None:
    run = scripts.admin("config", "check", "--all")
    assert run.returncode == 0
    first, *settings, last = run.stdout.splitlines()
    assert first == f"Settings file: {scripts.home}/refdesk/config.toml (does not exist)"
    assert f'data = "{scripts.home}/refdesk"' in settings
    assert "search.limit = 8" in settings
    assert 'ingest.exclude = [".git", ".hg", ".svn", "CVS", "node_modules", "__pycache__"]' in settings
    assert "embedder.path = (not set)" in settings
    assert last == "The settings are valid."

    printed = json.loads(scripts.admin("config", "check", "--json").stdout)
    usual = Settings().model_dump(mode="json")
    assert printed["settings"] == usual | {"data": f"{scripts.home}/refdesk"}
    assert printed["settings_file"] == f"{scripts.home}/refdesk/config.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[search]\nlimt = 5\n", "line 2: there is no setting search.limt; did you mean search.limit?"),
        ("[serach]\nlimit = 5\n", "line 1: there is no setting serach; did you mean search?"),
        ('[embedder]\n\nbatch_size = "64"\n', "line 3: embedder.batch_size must be a whole number, not '64'"),
        ("[search]\nlimit = 101\n", "line 2: search.limit must be at most 100, not 101"),
        (
            '[search]\nmode = "fast"\n',
            "line 2: search.mode must be 'dense', 'sparse', 'hybrid' or 'exact', not 'fast'",
        ),
        ("search = [\n", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(
    scripts: Scripts, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "desk.toml"
    file.write_text(text)
    run = scripts.admin("config", "check", "--config", file)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith(f"refdesk-admin: {file}")
    assert words in run.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "REFDESK_SERCH_LIMIT",
            "5",
            "REFDESK_SERCH_LIMIT is not a setting; did you mean REFDESK_SEARCH_LIMIT?",
        ),
        ("REFDESK_SEARCH_LIMIT", "many", "REFDESK_SEARCH_LIMIT must be a whole number, not 'many'"),
        ("REFDESK_SEARCH_LIMIT", "199", "REFDESK_SEARCH_LIMIT must be at most 100, not '199'"),
        ("REFDESK_CONFIG", "nowhere.toml", "There is no settings file nowhere.toml."),
    ],
)
def test_a_mistake_in_the_environment_is_named(scripts: Scripts, name: str, value: str, words: str) -> None:
    run = scripts.admin("config", "check", env={name: value})
    assert run.returncode == 2
    assert words in run.stderr


@pytest.mark.parametrize("given", range(4))
def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    scripts: Scripts, tmp_path: Path, given: int
) -> None:
    """The data folder, named in so many of three places, the weakest first."""
    folders = [tmp_path / name for name in ("file", "environment", "flag")]
    config = tmp_path / "refdesk" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'data = "{folders[0]}"\n' if given else "")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)} | (
        {"REFDESK_DATA": str(folders[1])} if given > 1 else {}
    )
    run = scripts.admin(
        "config", "check", "--all", *(["--data", str(folders[2])] if given > 2 else []), env=environment
    )
    lines = run.stdout.splitlines()
    folder = folders[given - 1] if given else scripts.home / "refdesk"
    origin = ["", "", "  (from REFDESK_DATA)", "  (from --data)"][given]
    assert lines[0] == f"Settings file: {config}"
    assert lines[1] == f'data = "{folder}"{origin}'


@pytest.mark.parametrize("given", range(1, 4))
def test_the_flag_names_the_file_before_the_environment_does_before_the_default_place(
    scripts: Scripts, tmp_path: Path, given: int
) -> None:
    files = [tmp_path / "refdesk" / "config.toml", tmp_path / "environment.toml", tmp_path / "flag.toml"]
    files[0].parent.mkdir()
    for limit, file in enumerate(files, 1):
        file.write_text(f"[search]\nlimit = {limit}\n")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)} | (
        {"REFDESK_CONFIG": str(files[1])} if given > 1 else {}
    )
    run = scripts.admin(
        "config", "check", *(["--config", str(files[2])] if given > 2 else []), env=environment
    )
    assert run.stdout.splitlines()[0] == f"Settings file: {files[given - 1]}"
    assert f"search.limit = {given}" in run.stdout.splitlines()

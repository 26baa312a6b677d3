"""refdesk-admin alone shows the state of this desk, and what to do next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from rag.admin.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(scripts: Scripts, tmp_path: Path) -> dict[str, str]:
    """Somebody with no hosts, no settings and no documents yet."""
    assert scripts
    home = str(tmp_path)
    return {"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": f"{home}/share"}


def told(scripts: Scripts, environment: dict[str, str]) -> list[str]:
    run = scripts.admin(env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("\n\nAll commands: refdesk-admin --help\n")
    return run.stdout.splitlines()


def test_the_next_step_follows_from_how_the_desk_stands(
    scripts: Scripts, environment: dict[str, str], clock_room: Path, tmp_path: Path
) -> None:
    lines = told(scripts, environment)
    assert lines[0] == f"Data folder  {tmp_path}/share/refdesk"
    assert "Documents    none yet" in lines
    assert "Next: refdesk-admin ingest PATH" in lines
    served = environment | {"REFDESK_DATA": str(clock_room)}
    lines = told(scripts, served)
    assert "Documents    17 in 1 collection" in lines
    assert lines[-4:-2] == ["", "Next: refdesk-admin connect HOST"]
    (tmp_path / ".gemini").mkdir()
    assert "Next: refdesk-admin connect gemini-cli" in told(scripts, served)
    assert scripts.admin("connect", "gemini-cli", "--yes", env=served).returncode == 0
    lines = told(scripts, served)
    assert "Hosts        gemini-cli" in lines
    assert "To see what a host sees: refdesk-admin connect gemini-cli --check" in lines


def test_what_is_wrong_is_said_instead(inside: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert inside
    (tmp_path / "data").write_text("")
    monkeypatch.setenv("REFDESK_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "argv", ["refdesk-admin"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2

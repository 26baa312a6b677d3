"""refdesk-admin init asks five questions and writes a settings file with comments."""

from __future__ import annotations

import io
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from rag.config.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow


@pytest.fixture
def answer(inside: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for the file, for somebody without a folder of documents."""
    assert inside
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "new" / "mine.toml"


def piped(monkeypatch: pytest.MonkeyPatch, *lines: object) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_the_answers_become_a_file_that_is_valid_and_has_comments(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documents = tmp_path / 'Zoë "B"'
    documents.mkdir()
    piped(monkeypatch, documents, tmp_path / "store", "handbook", "nobody", "https://desk.example/")
    run = inside.run("init", "--config", answer)
    text = answer.read_text()
    for part in text.split("\n\n"):
        assert part.startswith("#") or "\n# " in part
    values = tomllib.loads(text)
    assert values["data"] == str(tmp_path / "store")
    origin = {"type": "folder", "path": str(documents), "collection": "handbook", "visibility": "restricted"}
    assert values["origins"] == {"handbook": origin}
    assert values["http"]["public_url"] == "https://desk.example"
    assert Settings.load(answer).principal.user == ""
    steps = [f"refdesk-admin {step} --config {answer}" for step in ("sync", "key create")]
    assert (
        run.stdout
        == f"Wrote {answer}.\nNext: {', then '.join(steps)}, then refdesk --http --config {answer}\n"
    )


def test_the_defaults_are_for_one_person_and_one_machine(inside: Desk, answer: Path, tmp_path: Path) -> None:
    run = inside.run("init", "--yes", "--config", answer)
    assert tomllib.loads(answer.read_text()) == {"data": str(inside.data), "principal": {"user": ""}}
    assert run.stdout.endswith(
        f"Next: refdesk-admin ingest PATH --config {answer}, then refdesk-admin connect --config {answer}\n"
    )
    (tmp_path / "Documents").mkdir()
    other = answer.with_name("other.toml")
    assert inside.json("init", "--yes", "--config", other)["settings_file"] == str(other)
    origin = tomllib.loads(other.read_text())["origins"]["documents"]
    assert (origin["path"], origin["visibility"]) == (str(tmp_path / "Documents"), "tenant")


def test_without_a_folder_the_answers_go_to_the_next_command(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, "", "", "notes", "nobody")
    run = inside.run("init", "--config", answer)
    assert f"ingest PATH --collection notes --visibility restricted --config {answer}" in run.stdout


def test_a_file_that_is_there_is_never_overwritten(inside: Desk, answer: Path) -> None:
    answer.parent.mkdir()
    answer.write_text("# mine\n")
    run = inside.run("init", "--yes", "--config", answer, code=2)
    assert f"There is {answer} already. Edit it, or name another file with --config." in run.stderr
    assert answer.read_text() == "# mine\n"
    answer.unlink()
    answer.symlink_to(answer.with_name("nowhere"))
    assert "already" in inside.run("init", "--yes", "--config", answer, code=2).stderr


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["/nowhere/at/all"], "There is no folder /nowhere/at/all."),
        (["", "", "My Notes"], "'My Notes' is not a valid name"),
        (["", "", "", "some"], "Answer everybody or nobody, not 'some'."),
        (["", "", "", "", "desk.example"], "is not a URL without a path"),
    ],
)
def test_a_wrong_answer_from_a_pipe_writes_nothing(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], words: str
) -> None:
    piped(monkeypatch, *lines)
    assert words in inside.run("init", "--config", answer, code=2).stderr
    assert not answer.exists()


def test_documents_don_t_lie_in_the_data_folder(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    piped(monkeypatch, tmp_path, tmp_path)
    assert "Keep them apart." in inside.run("init", "--config", answer, code=2).stderr


def test_a_person_is_asked_again(screen: Screen, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    code, shown = screen(
        *("init", "--config", config, "--data", tmp_path / "data"),
        typed={
            "Folder with your documents:": "/nowhere",
            "There is no folder /nowhere.": str(tmp_path),
            "refdesk stores [": "",
            "Name of the collection [documents]:": "",
            "until you grant it [everybody]:": "",
            "if any (https://…):": "",
        },
        env={"HOME": str(tmp_path / "home")},
    )
    assert code == 0, shown
    assert tomllib.loads(config.read_text())["origins"]["documents"]["path"] == str(tmp_path)

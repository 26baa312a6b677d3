"""Repositories: what hostile ones can't do, and what is left out."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from rag.config.origin_settings import GitOrigin
from rag.config.settings import IngestSettings
from rag.ingest.containers import Spool
from rag.ingest.origins.git_repository import look_through_repository
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings


@pytest.fixture
def desk(tmp_path: Path) -> OriginContext:
    return OriginContext(
        "code", Spool(tmp_path / "spool"), IngestSettings(), {}, frozenset(), lambda _uri: True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in {
        "docs/a.md": "# A\n",
        "docs/b.md": "# B\n",
        "docs/b.md.meta.toml": "title = 'Beta'\n",
        "docs/big.md": "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        ".hidden/c.md": "# C\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit(folder, "2026-01-01T00:00:00Z")
    return folder


def git(folder: Path, *arguments: str, **environment: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    env = dict(os.environ) | environment
    command = ["git", *who, *arguments]
    process = subprocess.run(command, cwd=folder, check=True, capture_output=True, env=env, text=True)
    return process.stdout.strip()


def commit(folder: Path, day: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "x", GIT_COMMITTER_DATE=day, GIT_AUTHOR_DATE=day)


async def looked(repository: Path, desk: OriginContext, **more: object) -> OriginFindings:
    origin = GitOrigin.model_validate({"type": "git", "repository": str(repository)} | more)
    return await look_through_repository(origin, desk, repository.parent / "clone", os.environ)


@pytest.mark.anyio
async def test_a_folder_is_read_at_a_ref_with_its_dates_and_only_new_blobs(
    repository: Path, desk: OriginContext
) -> None:
    look = await looked(repository, desk, folder="docs", dates=True)
    files = {file.name: file for file in look.discovery.files.values()}
    assert files.keys() == {"a.md", "b.md"}
    assert files["a.md"].stated["date"].startswith("2026-01-01T00:00:00")
    beside = files["b.md"].read_from.with_name(f"{files['b.md'].read_from.name}.meta.toml")
    assert beside.read_text() == "title = 'Beta'\n"
    assert [outcome.reason for outcome in look.discovery.outcomes] == [
        "its content is in Git LFS, which is not read"
    ]

    (repository / "docs" / "a.md").write_text("# A2\n")
    commit(repository, "2026-02-02T00:00:00Z")
    later = await looked(repository, replace(desk, before=look.state), folder="docs", dates=True)
    assert [file.name for file in later.discovery.files.values()] == ["a.md"]
    assert later.discovery.unchanged == {"origin:code/b.md"}
    assert "2026-02-02" in later.state["a.md"]["token"]


@pytest.mark.anyio
async def test_a_file_whose_name_tells_nothing_is_taken_by_its_content(
    repository: Path, desk: OriginContext
) -> None:
    (repository / "docs" / "letter").write_bytes(b"{\\rtf1 A letter.\\par}")
    (repository / "docs" / "old.doc").write_bytes(b"{\\rtf1 A letter.\\par}")
    (repository / "docs" / "blob").write_bytes(bytes(range(256)))
    commit(repository, "2026-02-02T00:00:00Z")
    look = await looked(repository, desk, folder="docs")
    assert {file.name for file in look.discovery.files.values()} == {"a.md", "b.md", "letter", "old.doc"}
    assert ("blob", "ignored") in {(outcome.path, outcome.outcome) for outcome in look.discovery.outcomes}


@pytest.mark.anyio
async def test_the_configuration_of_a_repository_runs_nothing(repository: Path, desk: OriginContext) -> None:
    """The commands of a hostile configuration would leave a file; the control is that plain git leaves it."""
    mark = repository.parent / "ran"
    script = repository.parent / "script"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "gpg.program",
        "core.askPass",
        "diff.external",
    ):
        git(repository, "config", key, str(script))
    git(repository, "config", "log.showSignature", "true")
    git(repository, "status")
    assert mark.exists()  # the control: core.fsmonitor
    mark.unlink()
    assert len((await looked(repository, desk, folder="docs", dates=True)).discovery.files) == 2
    assert not mark.exists()


@pytest.mark.anyio
async def test_missing_blobs_are_not_fetched_from_where_the_repository_says(
    repository: Path, desk: OriginContext, tmp_path: Path
) -> None:
    """A promisor remote would be asked, by a command of its choice."""
    mark = tmp_path / "fetched"
    upload = tmp_path / "upload"
    upload.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    upload.chmod(0o755)
    for key, value in {
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "remote.origin.url": str(repository),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(upload),
    }.items():
        git(repository, "config", key, value)
    blob = git(repository, "rev-parse", "HEAD:docs/a.md")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "cat-file", "blob", blob)
    assert mark.exists()  # the control: plain git runs it
    mark.unlink()
    look = await looked(repository, desk, folder="docs")
    assert not mark.exists()
    assert "origin:code/a.md" in look.discovery.retained
    assert [file.name for file in look.discovery.files.values()] == ["b.md"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"ref": "none"}, "no such branch"),
        ({"ref": "blob"}, "no such branch"),
        ({"folder": "none"}, "no such folder"),
    ],
)
async def test_a_missing_repository_ref_or_folder_is_named(
    repository: Path, desk: OriginContext, more: dict[str, str], why: str
) -> None:
    git(repository, "tag", "blob", "HEAD:docs/a.md")
    with pytest.raises(FetchError, match=why):
        await looked(repository, desk, **more)
    with pytest.raises(FetchError, match="it is not a git repository"):
        await looked(repository / "docs", desk)  # the repository above it doesn't count
    for elsewhere in ("missing", "docs/a.md"):
        with pytest.raises(FetchError, match="its folder is not on this machine"):
            await looked(repository / elsewhere, desk)
    (repository / ".git" / "config").write_text("[core\n")
    with pytest.raises(FetchError, match="git can't read the repository"):
        await looked(repository, desk)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ref": "--upload-pack=/bin/sh"},
        {"ref": "a..b"},
        {"ref": "a b"},
        {"repository": "file:///srv/x"},
        {"repository": "ext::sh -c id"},
        {"repository": "-oProxyCommand=id"},
        {"repository": "https://user:secret@example.org/x.git"},
        {"repository": "ssh://-oProxyCommand=id/x"},
        {"repository": "relative/path"},
        {"repository": "git@-oProxyCommand=id:x"},
        {"repository": "git@example.org::x"},
        {"repository": "-git@example.org:x"},
        {"folder": "/etc"},
        {"folder": "../x"},
    ],
)
def test_settings_that_git_could_take_for_something_else_are_refused(wrong: dict[str, str]) -> None:
    right = {"type": "git", "repository": "https://example.org/x.git", "ref": "v1.0/main", "folder": "docs"}
    GitOrigin.model_validate(right)
    with pytest.raises(ValidationError):
        GitOrigin.model_validate(right | wrong)

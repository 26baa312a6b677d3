"""What `.gitignore` and `.refdeskignore` leave out, and what becomes of it if it was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.config.settings import IngestSettings
from rag.ingest.discover import discover

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from rag.ingest.discover import Discovery

ON = IngestSettings()


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _names(discovery: Discovery) -> set[str]:
    return {one.name for one in discovery.files.values()}


@pytest.mark.parametrize(
    ("ignoring", "left"),
    [
        ({".gitignore": "b.md\n"}, {"a.md", "sub/c.md", "sub/deep/a.md"}),
        ({".gitignore": "/a.md\n# sub\n\n"}, {"b.md", "sub/b.md", "sub/c.md", "sub/deep/a.md"}),
        ({".gitignore": "sub/\n!sub/c.md\n"}, {"a.md", "b.md"}),
        ({".gitignore": "sub/*\n!sub/c.md\n"}, {"a.md", "b.md", "sub/c.md"}),
        ({".gitignore": "*.md\n", "sub/.gitignore": "!b.md\n"}, {"sub/b.md"}),
        ({"sub/.gitignore": "/b.md\ndeep\n"}, {"a.md", "b.md", "sub/c.md"}),
        ({".gitignore": "*.md\n", ".refdeskignore": "!a.md\n"}, {"a.md", "sub/deep/a.md"}),
        ({".refdeskignore": "sub/**/a.md"}, {"a.md", "b.md", "sub/b.md", "sub/c.md"}),
        ({".gitignore": "\ufeffa.md\r\n[\nx\\\n"}, {"b.md", "sub/b.md", "sub/c.md"}),
    ],
)
def test_it_has_the_meaning_of_git(tmp_path: Path, ignoring: Mapping[str, str], left: set[str]) -> None:
    _write(tmp_path, dict.fromkeys(["a.md", "b.md", "sub/b.md", "sub/c.md", "sub/deep/a.md"], "text"))
    everything = _names(discover([tmp_path], ON))
    _write(tmp_path, ignoring)
    found = discover([tmp_path], ON)
    assert (_names(found), len(found.notes)) == (left, 1)
    off = discover([tmp_path], IngestSettings(ignore_files=False))
    assert (_names(off), off.notes) == (everything, [])


def test_the_report_counts_what_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, {".gitignore": "a.md\nbuild/\n", "a.md": "a", "sub/a.md": "a", "build/b.md": "b"})
    (note,) = discover([tmp_path], ON).notes
    assert note.startswith("2 files and 1 folder left out by .gitignore and .refdeskignore files")


def test_a_folder_whose_ignore_file_can_not_be_read_is_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, {"a.md": "a", "sub/b.md": "b", "other/.gitignore": "*a" * 20, "other/c.md": "c"})
    (tmp_path / "sub" / ".refdeskignore").symlink_to(tmp_path / "a.md")
    found = discover([tmp_path], ON)
    assert _names(found) == {"a.md"}
    failed = {one.path.rpartition("/")[2]: one.cause for one in found.outcomes}
    assert failed == {"sub": "unreadable", "other": "too large"}


@pytest.mark.parametrize(
    "patterns",
    [
        [f"{number}.md" for number in range(2_000)],
        ["# a comment", ""] * 3_000,
        [f"**/*{number}*" for number in range(200)],
        [f"!{number}*{number}*{number}*" for number in range(20)],
        ["src/**/in/**/*.md"],
    ],
)
def test_an_ignore_file_may_have_many_patterns(tmp_path: Path, patterns: Sequence[str]) -> None:
    _write(tmp_path, {".gitignore": "\n".join(patterns), "a.md": "a"})
    assert _names(discover([tmp_path], ON)) == {"a.md"}


@pytest.mark.parametrize(
    "patterns",
    [
        [f"{number}.md" for number in range(2_001)],
        [f"**/*{number}*" for number in range(201)],
        [f"!{number}*{number}*{number}*" for number in range(21)],
        ["**/a/**/a/**/c"],
        ["*a*a*a*a"],
    ],
)
def test_a_folder_is_left_alone_if_its_patterns_take_too_long(
    tmp_path: Path, patterns: Sequence[str]
) -> None:
    _write(tmp_path, {".gitignore": "\n".join(patterns), "a.md": "a", "sub/b.md": "b"})
    found = discover([tmp_path], ON)
    assert not found.files
    assert [one.cause for one in found.outcomes] == ["too large"]
    assert "nothing of the folder was read, because of its .gitignore has" in found.outcomes[0].reason


@pytest.mark.anyio
async def test_what_was_stored_before_is_removed_with_the_reason_and_under_the_guard(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    docs = tmp_path / "docs"
    _write(docs, {"a.md": "a", "b.md": "b", **{f"many/{number}.md": f"m {number}" for number in range(12)}})
    await small_desk.ingested(tmp_path / "data", docs)
    _write(docs, {".gitignore": "b.md\n"})
    report = await small_desk.ingested(tmp_path / "data", docs)
    (gone,) = [one for one in report.outcomes if one.outcome == "removed"]
    assert gone.path.endswith("/b.md")
    assert gone.reason == "a .gitignore or .refdeskignore file leaves it out now"
    _write(docs, {".gitignore": "b.md\nmany/\n"})
    report = await small_desk.ingested(tmp_path / "data", docs)
    assert (report.counts["removed"], report.counts["missing"]) == (0, 12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_an_ignore_file_is_read_as_editors_of_windows_save_it(tmp_path: Path, encoding: str) -> None:
    _write(tmp_path, {"a.md": "x", "geheim.md": "x"})
    (tmp_path / ".refdeskignore").write_bytes("geheim.md\r\n".encode(encoding))
    assert _names(discover([tmp_path], ON)) == {"a.md"}

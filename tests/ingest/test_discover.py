"""What a run finds below its paths, and what ignore files leave out."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.config.settings import IngestSettings
from rag.errors import ParseError
from rag.ingest import source_files
from rag.ingest.discover import Discovery, discover
from rag.ingest.prepare import read_sidecar
from rag.ingest.report import NOT_THERE
from rag.ingest.source_files import LocalFile, printable, read
from rag.text.plain_text import JOINERS
from tests.conftest import Scripts

Seen = TypeVar("Seen")

# Which files the given paths mean, and what is refused before it is read.

REPLACED = "was replaced by a link"
TREE = ["a.md", "b.txt", "sub/c.md", "sub/deep/d.rst", "drafts/e.md", "notes.draft.md"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text of {name}", encoding="utf-8")
    return folder


def _discovered(*paths: Path, **settings: object) -> Discovery:
    return discover(paths, IngestSettings.model_validate(settings))


def _names(discovery: Discovery) -> list[str]:
    return [file.name for file in discovery.files.values()]


def _outcomes(discovery: Discovery, folder: Path) -> dict[str, tuple[str, str]]:
    return {
        os.path.relpath(outcome.path, folder): (outcome.outcome, outcome.reason)
        for outcome in discovery.outcomes
    }


def test_a_folder_means_every_document_in_it_by_its_path_below_the_folder(tree: Path) -> None:
    discovery = _discovered(tree)
    assert sorted(_names(discovery)) == sorted(TREE)
    assert discovery.folders == [tree]
    assert not discovery.outcomes
    assert {file.uri for file in discovery.files.values()} == {(tree / name).as_uri() for name in TREE}


def test_files_come_in_the_order_of_names_and_a_folder_where_its_name_stands(tree: Path) -> None:
    assert _names(_discovered(tree)) == [
        "a.md",
        "b.txt",
        "drafts/e.md",
        "notes.draft.md",
        "sub/c.md",
        "sub/deep/d.rst",
    ]


def test_a_file_that_is_given_in_several_ways_is_met_once(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    (tree.parent / "link.md").symlink_to(tree / "a.md")
    discovery = _discovered(
        Path("a.md"), tree / "a.md", tree / "sub" / ".." / "a.md", tree.parent / "link.md", tree
    )
    assert sorted(_names(discovery)) == sorted(TREE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"include": ["*.md"]}, ["a.md", "drafts/e.md", "notes.draft.md", "sub/c.md"]),
        ({"include": ["sub/*"]}, ["sub/c.md", "sub/deep/d.rst"]),
        ({"include": ["*.rst", "b.txt"]}, ["b.txt", "sub/deep/d.rst"]),
        ({"exclude": ["*.md"]}, ["b.txt", "sub/deep/d.rst"]),
        ({"exclude": ["drafts", "deep"]}, ["a.md", "b.txt", "notes.draft.md", "sub/c.md"]),
        ({"exclude": ["sub/deep/*"]}, ["a.md", "b.txt", "drafts/e.md", "notes.draft.md", "sub/c.md"]),
        ({"exclude": ["*draft*"]}, ["a.md", "b.txt", "sub/c.md", "sub/deep/d.rst"]),
        ({"include": ["*.md"], "exclude": ["sub"]}, ["a.md", "drafts/e.md", "notes.draft.md"]),
        ({"include": ["*.MD"]}, []),
    ],
)
def test_patterns_are_held_against_the_path_and_the_name(
    tree: Path, settings: dict[str, list[str]], expected: list[str]
) -> None:
    discovery = _discovered(tree, **settings)
    assert _names(discovery) == expected
    assert not discovery.outcomes


def test_hidden_and_version_control_folders_are_passed_over_unless_asked_for(tree: Path) -> None:
    for name in (".git/config.ini", ".hidden.md", ".cache/x.md", "CVS/y.md", "node_modules/p/z.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x", encoding="utf-8")
    assert sorted(_names(_discovered(tree))) == sorted(TREE)
    hidden = set(_names(_discovered(tree, hidden=True))) - set(TREE)
    assert {".hidden.md", ".cache/x.md"} <= hidden
    assert not {"CVS/y.md", "node_modules/p/z.md"} & hidden


def test_what_is_given_by_name_is_taken_though_a_folder_would_not_bring_it(tree: Path) -> None:
    (tree / ".secret").mkdir()
    (tree / ".secret" / "x.md").write_text("x", encoding="utf-8")
    settings = {"include": ["*.txt"], "exclude": ["a.md"]}
    assert _names(_discovered(tree / "a.md", tree / ".secret" / "x.md", **settings)) == ["a.md", "x.md"]


def test_what_is_no_document_is_ignored_in_a_folder_and_skipped_where_it_was_named(tree: Path) -> None:
    for name in ("photo.jpg", "Makefile.bak", "noend"):
        (tree / name).write_bytes(b"\xff\xd8")
    reason = "unsupported file type"
    assert _outcomes(_discovered(tree), tree) == {
        "photo.jpg": ("ignored", f"{reason} (.jpg)"),
        "Makefile.bak": ("ignored", f"{reason} (.bak)"),
        "noend": ("ignored", f"{reason} (no suffix)"),
    }
    assert _outcomes(_discovered(tree / "photo.jpg"), tree) == {"photo.jpg": ("skipped", f"{reason} (.jpg)")}


@pytest.mark.slow
def test_a_missing_path_is_reported_and_stops_nothing(tree: Path) -> None:
    (tree / "broken.md").symlink_to(tree / "nowhere.md")
    discovery = _discovered(tree / "missing", tree / "broken.md", tree / "a.md")
    assert _names(discovery) == ["a.md"]
    assert _outcomes(discovery, tree) == {
        "missing": ("skipped", "no such file or folder"),
        "broken.md": ("skipped", NOT_THERE),
    }


def test_links_in_a_folder_are_not_followed_wherever_they_lead(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("secret", encoding="utf-8")
    (tmp_path / "documents-2").mkdir()
    for name, target in {
        "out.md": tmp_path / "outside.md",
        "beside.md": tmp_path / "documents-2",  # its path begins like the folder's
        "up": tmp_path,
        "in.md": tree / "a.md",
        "loop": tree,
        "self.md": tree / "self.md",
    }.items():
        (tree / name).symlink_to(target)
    discovery = _discovered(tree)
    assert sorted(_names(discovery)) == sorted(TREE)
    within, out = (
        ("ignored", "a link to another path in the folder"),
        ("ignored", "a link that points outside the folder"),
    )
    assert _outcomes(discovery, tree) == {
        "out.md": out,
        "beside.md": out,
        "up": out,
        "in.md": within,
        "loop": within,
        "self.md": within,
    }


@pytest.mark.slow
def test_a_folder_that_is_itself_given_through_a_link_is_walked(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree)
    assert _discovered(tmp_path / "link").files.keys() == _discovered(tree).files.keys()


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds a document 1,100 folders down."""
    at = os.open(tmp_path, os.O_RDONLY)
    for name in ["deep", *["d"] * 1100]:
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("x.md", os.O_CREAT, dir_fd=at))
    os.close(at)
    yield tmp_path / "deep"
    while (tmp_path / "deep" / "d").exists():  # too deep for shutil.rmtree
        (tmp_path / "deep" / "d").rename(tmp_path / "inner")
        (tmp_path / "deep").rmdir()
        (tmp_path / "inner").rename(tmp_path / "deep")


@pytest.mark.slow
def test_a_folder_however_deep_is_walked(deep: Path) -> None:
    discovery = _discovered(deep)
    assert _names(discovery) == ["d/" * 1100 + "x.md"]
    assert not discovery.outcomes


@pytest.mark.slow
def test_names_of_any_bytes_are_found_and_shown_on_one_printable_line(tmp_path: Path) -> None:
    names = [
        b'it\'s "quoted".md',
        b"new\nline.md",
        "emoji 😀.md".encode(),
        b"latin-\xe9.md",
        b"tab\t%41#?.md",
    ]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:  # noqa: PTH118, PTH123 bytes
            file.write(b"text of " + name)
    discovery = _discovered(tmp_path)
    assert {os.fsencode(file.path.name) for file in discovery.files.values()} == set(names)
    for uri, found_file in discovery.files.items():
        assert uri.isascii()
        assert read(found_file, 1000) == b"text of " + os.fsencode(found_file.path.name)
        assert printable(found_file.path).isprintable()
        printable(found_file.path).encode()


@given(st.binary(min_size=1))
def test_a_path_is_shown_as_valid_text_on_one_line_whatever_its_bytes(name: bytes) -> None:
    printed = printable(f"{os.fsdecode(name)}a")
    # A selector of variants stays behind Han, and is invisible behind a letter.
    assert printable(f"{os.fsdecode(name)}a\ufe01\u3164") == printed
    printed.encode()
    assert printed.translate(dict.fromkeys(map(ord, JOINERS))).isprintable()


@pytest.mark.parametrize("name", ["نامه\u200cها.md", "क्\u200dष.txt", "guests 👨\u200d👩\u200d👧.csv"])
def test_a_path_keeps_the_joiners_that_its_letters_need(name: str) -> None:
    assert printable(name) == name
    assert printable("a\u200db.md") == "ab.md"


def _local_file(path: Path) -> LocalFile:
    return LocalFile.local(path, path.name)


def test_a_file_is_read_up_to_the_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"x" * 1_500_000)
    assert read(_local_file(path), 1_500_000) == b"x" * 1_500_000
    with pytest.raises(
        ParseError, match=r"^1\.5 MB is over the limit of 1\.0 MB \(ingest\.max_file_bytes\)$"
    ):
        read(_local_file(path), 1_000_000)


def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"x" * 1_500_000)
    status = os.stat_result([stat.S_IFREG, 0, 0, 0, 0, 0, 1_000, 0, 0, 0])
    monkeypatch.setattr(os, "fstat", lambda _: status)  # as it was before
    assert read(_local_file(path), 1_500_000) == b"x" * 1_500_000
    with pytest.raises(ParseError, match=r"^1\.2 MB is over the limit of 1\.2 MB"):
        read(_local_file(path), 1_200_000)


@pytest.mark.slow
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "link.md").symlink_to(tmp_path / "secret")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.md"))
        for name in ("pipe.md", "folder.md", "socket.md", "link.md"):
            with pytest.raises(ParseError, match=r"not a regular file|can't be read"):
                read(_local_file(tmp_path / name), 1000)
    with pytest.raises(ParseError, match="No such file"):
        read(_local_file(tmp_path / "gone.md"), 1000)


def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "link.md").symlink_to(tmp_path / "a.md")
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        assert read(_local_file(tmp_path / "a.md"), 10) == b"x"
        for name in ("folder.md", "link.md", "gone.md", "a.md/b.md", "folder.md/gone/b.md"):
            with pytest.raises(ParseError):
                read(_local_file(tmp_path / name), 10)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_folder_that_may_be_entered_but_not_listed_is_passed_through(plain_folder: Path) -> None:
    inner = plain_folder / "closed" / "open"
    inner.mkdir(parents=True)
    (inner / "a.md").write_text("x")
    (plain_folder / "closed").chmod(0o111)
    try:
        assert read(_local_file(inner / "a.md"), 10) == b"x"
        (plain_folder / "closed").chmod(0o000)
        with pytest.raises(ParseError, match="Permission denied"):
            read(_local_file(inner / "a.md"), 10)
    finally:
        (plain_folder / "closed").chmod(0o700)


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("swapped", ["documents", "documents/sub", "documents/sub/deep"])
def test_a_folder_that_became_a_link_after_it_was_found_is_not_read_through(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, *, stepwise: bool
) -> None:
    monkeypatch.setattr(source_files, "_STEPWISE", stepwise and source_files._STEPWISE)  # noqa: SLF001 no such platform here
    file = _discovered(tree).files[(tree / "sub/deep/d.rst").as_uri()]
    assert read(file, 1000) == b"text of sub/deep/d.rst"
    assert read_sidecar(file) == b""
    outside = tmp_path / "outside"
    for above in ("", "deep", "sub/deep"):
        (outside / above).mkdir(parents=True, exist_ok=True)
        for name in ("d.rst", "d.rst.meta.toml"):
            (outside / above / name).write_text("secret")
    (tmp_path / swapped).rename(tmp_path / "kept")
    (tmp_path / swapped).symlink_to(outside)
    with pytest.raises(ParseError, match=REPLACED):
        read(file, 1000)
    with pytest.raises(ParseError, match=REPLACED):
        read_sidecar(file)
    (tmp_path / swapped).unlink()
    (tmp_path / "kept").rename(tmp_path / swapped)
    assert read(file, 1000) == b"text of sub/deep/d.rst"


SWAPPING = """
import os, sys
folder, outside = sys.argv[1:]
os.symlink(outside, folder + ".link")
print("ready", flush=True)
while True:
    os.rename(folder, folder + ".kept")
    os.rename(folder + ".link", folder)
    os.rename(folder, folder + ".link")
    os.rename(folder + ".kept", folder)
"""


@contextmanager
def _swapped(folder: Path, outside: Path) -> Iterator[None]:
    """A process of its own makes the folder a link to the outside and back, as fast as it can."""
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPING, folder, outside], stdout=subprocess.PIPE
    ) as swapper:
        assert swapper.stdout
        swapper.stdout.readline()
        try:
            yield
        finally:
            swapper.kill()


def _swapping(folder: Path, outside: Path, look: Callable[[], Seen]) -> Iterator[Seen]:
    """What a look brings if the folder is a link to the outside from one of its system calls to a later one.

    That is for each two of the calls, and for each from which on the folder stays a link.
    """
    away, link = outside.with_name("away"), outside.with_name("link")
    link.symlink_to(outside)

    def answer(first: int = 0, second: int = 0) -> tuple[int, Seen]:
        calls = 0

        def swap_before(call: Callable[..., Any], *arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == first:
                folder.rename(away)
                link.rename(folder)
            if calls == second:
                folder.rename(link)
                away.rename(folder)
            return call(*arguments, **named)

        with pytest.MonkeyPatch.context() as patch:
            for name in FOLLOWING:
                patch.setattr(os, name, partial(swap_before, getattr(os, name)))
            brought = look()
        if first <= calls < second:
            folder.rename(link)
            away.rename(folder)
        return calls, brought

    most, brought = answer()
    yield brought
    for moments in combinations(range(1, most + 2), 2):
        yield answer(*moments)[1]


FOLLOWING = ("open", "scandir", "stat", "lstat", "readlink")
"""The system calls that follow a path."""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["document", "sidecar"])
def test_nothing_outside_is_read_while_a_folder_becomes_a_link_and_back(tmp_path: Path, what: str) -> None:
    folder, outside = tmp_path / "papers" / "hr", tmp_path / "outside"
    for place, word in ((folder, b"inside"), (outside, b"secret")):
        place.mkdir(parents=True)
        for name in ("a.md", "a.md.meta.toml"):
            (place / name).write_bytes(word)
    file = LocalFile.local(folder / "a.md", "hr/a.md")

    def reading() -> bytes | str | None:
        try:
            return read(file, 100) if what == "document" else read_sidecar(file)
        except ParseError:
            return "refused"

    assert set(_swapping(folder, outside, reading)) == {b"inside", "refused"}


@pytest.mark.slow
def test_nothing_outside_is_listed_while_a_folder_becomes_a_link_and_back(tmp_path: Path) -> None:
    folder, outside = tmp_path / "papers" / "hr", tmp_path / "outside"
    for place, name in ((folder, "inside.md"), (outside, "secret.md")):
        (place / "deep").mkdir(parents=True)
        (place / name).touch()
        (place / "deep" / name).touch()

    def listing() -> frozenset[str]:
        return frozenset(_names(_discovered(tmp_path / "papers")))

    listed = set(_swapping(folder, outside, listing))
    assert {name for names in listed for name in names} == {"hr/inside.md", "hr/deep/inside.md"}
    assert frozenset() in listed


@pytest.mark.slow
def test_a_whole_run_brings_in_nothing_of_the_outside(scripts: Scripts, tmp_path: Path) -> None:
    folder, outside = tmp_path / "papers" / "hr", tmp_path / "outside"
    for place, word in ((folder, "pendulum"), (outside, "zanzibar")):
        place.mkdir(parents=True)
        for number in range(100):
            (place / f"{number}.md").write_text(f"# {word} {number}\n\nThe {word} of number {number}.")
    data = ("--data", tmp_path / "data")
    with _swapped(folder, outside):
        run = scripts.admin("ingest", tmp_path / "papers", *data)
    assert run.returncode in {0, 1, 3}, run.stderr
    assert "zanzibar" not in scripts.admin("search", "zanzibar", "--limit", "100", *data).stdout
    if folder.is_symlink():
        folder.unlink()
    if folder.with_name("hr.kept").exists():
        folder.with_name("hr.kept").rename(folder)
    assert scripts.admin("ingest", folder, *data).returncode == 0
    assert "pendulum" in scripts.admin("search", "pendulum", *data).stdout


def test_a_file_without_a_suffix_is_read_if_its_content_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("<!DOCTYPE html><p>text")
    (tmp_path / "notes").write_text("plain words")
    (tmp_path / "program").write_bytes(b"\x7fELF")
    (tmp_path / "page.dat").write_text("<!DOCTYPE html><p>text")
    discovery = discover([tmp_path], IngestSettings())
    assert _names(discovery) == ["page"]
    assert {outcome.kind for outcome in discovery.outcomes} == {"unsupported"}


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="it needs a file whose reading fails midway")
def test_a_file_that_fails_while_it_is_read_is_one_skipped_file() -> None:
    file = Path(f"/proc/{os.getpid()}/mem")  # it can be opened, and reading it gives EIO
    with pytest.raises(ParseError, match=r"^it can't be read: Input/output error$"):
        read(LocalFile.local(file, "mem"), 1 << 20)


def test_a_folder_without_a_file_to_read_says_so(tree: Path, tmp_path: Path) -> None:
    empty, hidden = tmp_path / "empty", tmp_path / "hidden"
    empty.mkdir()
    hidden.mkdir()
    (hidden / ".secret").write_text("x")
    assert _discovered(tree).notes == []
    for folder, why in ((empty, "is empty"), (hidden, "no file to read")):
        (note,) = _discovered(tree, folder).notes
        assert str(folder) in note
        assert why in note
    assert _discovered(tree, include=["*.xyz"]).notes


# What `.gitignore` and `.refdeskignore` leave out, and what becomes of it if it was stored.

ON = IngestSettings()


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _set_of_names(discovery: Discovery) -> set[str]:
    return {file.name for file in discovery.files.values()}


@pytest.mark.parametrize(
    ("ignoring", "expected"),
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
def test_an_ignore_file_means_what_it_means_to_git(
    tmp_path: Path, ignoring: Mapping[str, str], expected: set[str]
) -> None:
    _write(tmp_path, dict.fromkeys(["a.md", "b.md", "sub/b.md", "sub/c.md", "sub/deep/a.md"], "text"))
    everything = _set_of_names(discover([tmp_path], ON))
    _write(tmp_path, ignoring)
    discovery = discover([tmp_path], ON)
    assert (_set_of_names(discovery), len(discovery.notes)) == (expected, 1)
    off = discover([tmp_path], IngestSettings(ignore_files=False))
    assert (_set_of_names(off), off.notes) == (everything, [])


def test_the_report_counts_what_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, {".gitignore": "a.md\nbuild/\n", "a.md": "a", "sub/a.md": "a", "build/b.md": "b"})
    (note,) = discover([tmp_path], ON).notes
    assert note.startswith("2 files and 1 folder left out by .gitignore and .refdeskignore files")


def test_a_folder_whose_ignore_file_can_not_be_read_is_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, {"a.md": "a", "sub/b.md": "b", "other/.gitignore": "*a" * 20, "other/c.md": "c"})
    (tmp_path / "sub" / ".refdeskignore").symlink_to(tmp_path / "a.md")
    discovery = discover([tmp_path], ON)
    assert _set_of_names(discovery) == {"a.md"}
    failed = {outcome.path.rpartition("/")[2]: outcome.cause for outcome in discovery.outcomes}
    assert failed == {"sub": "unreadable", "other": "too large"}


@pytest.mark.slow
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
    assert _set_of_names(discover([tmp_path], ON)) == {"a.md"}


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
    discovery = discover([tmp_path], ON)
    assert not discovery.files
    assert [outcome.cause for outcome in discovery.outcomes] == ["too large"]
    assert "nothing of the folder was read, because of its .gitignore has" in discovery.outcomes[0].reason


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_was_stored_before_is_removed_with_the_reason_and_under_the_guard(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    docs = tmp_path / "docs"
    _write(docs, {"a.md": "a", "b.md": "b", **{f"many/{number}.md": f"m {number}" for number in range(12)}})
    await small_desk.ingested(tmp_path / "data", docs)
    _write(docs, {".gitignore": "b.md\n"})
    report = await small_desk.ingested(tmp_path / "data", docs)
    (gone,) = [outcome for outcome in report.outcomes if outcome.outcome == "removed"]
    assert gone.path.endswith("/b.md")
    assert gone.reason == "a .gitignore or .refdeskignore file leaves it out now"
    _write(docs, {".gitignore": "b.md\nmany/\n"})
    report = await small_desk.ingested(tmp_path / "data", docs)
    assert (report.counts["removed"], report.counts["missing"]) == (0, 12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_an_ignore_file_is_read_as_editors_of_windows_save_it(tmp_path: Path, encoding: str) -> None:
    _write(tmp_path, {"a.md": "x", "geheim.md": "x"})
    (tmp_path / ".refdeskignore").write_bytes("geheim.md\r\n".encode(encoding))
    assert _set_of_names(discover([tmp_path], ON)) == {"a.md"}

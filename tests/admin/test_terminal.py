"""Whatever documents, their names and those beside them say, a terminal shows it and obeys nothing of it."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import rag.admin
from rag.corpus import Access
from rag.text.plain_text import for_people

if TYPE_CHECKING:
    from types import ModuleType

    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

TITLE = "\x1b]0;owned\x07Clocks\u202e\x9b2J\U000e0041\u200b"
NASTY = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u200b\u202e\U000e0041"} - {"\n", "\t"}
SPOKEN = {"echo", "secho", "style", "confirm", "prompt", "echo_via_pager", "progressbar"}
NOT_OURS = {"terminal.py", "clock-conversions.py"}


def _modules() -> list[Path]:
    modules = [path for path in Path(rag.admin.__file__).parent.rglob("*.py") if path.name not in NOT_OURS]
    assert len(modules) > 20
    return modules


def _speaks(node: ast.AST) -> bool:
    """Whether it prints without `rag.admin.terminal`."""
    match node:
        case ast.Attribute(ast.Name("click"), name):
            return name in SPOKEN
        case ast.Call(ast.Name("print")) | ast.Attribute(ast.Name("tqdm"), "write"):
            return True
        case ast.Attribute(ast.Attribute(ast.Name("sys"), "stdout" | "stderr"), "write"):
            return True
    return False


@pytest.mark.parametrize("module", _modules(), ids=lambda path: path.name)
def test_every_command_prints_through_one_function(module: Path) -> None:
    nodes = [*ast.walk(ast.parse(module.read_text(encoding="utf-8")))]
    assert not [ast.unparse(node) for node in nodes if _speaks(node)]


@pytest.mark.parametrize("code", ["click.echo(1)", "print(1)", "tqdm.write('')", "sys.stderr.write('')"])
def test_a_print_past_that_function_is_noticed(code: str) -> None:
    assert any(map(_speaks, ast.walk(ast.parse(code))))
    assert not any(map(_speaks, ast.walk(ast.parse("echo(1); file.write('')"))))


@pytest.fixture
def old_desk(small_desk: ModuleType, tmp_path: Path) -> Path:
    """A data folder from before parsers left out what is hidden."""

    async def put() -> None:
        async with await small_desk.writing(tmp_path / "data") as writer:
            metadata = {"path": f"{TITLE}\n{TITLE}.md", f"k{TITLE}": f"v\nfake {TITLE}"}
            access = Access("restricted", frozenset({f"user:{TITLE}"}))
            paragraphs = (f"# {TITLE}", f"A pendulum {TITLE} swings.")
            hostile = small_desk.new_source(
                writer, "a.md", *paragraphs, title=f"{TITLE}\n{TITLE}", metadata=metadata, access=access
            )
            await writer.replace([hostile])

    anyio.run(put)
    return tmp_path / "data"


def _told(scripts: Scripts, *arguments: str | Path, code: int = 0) -> str:
    run = scripts.admin(*arguments)
    assert run.returncode == code, run.stderr
    output = run.stdout + run.stderr
    assert not NASTY & set(output), output
    return output


def test_a_hostile_title_is_only_read(scripts: Scripts, old_desk: Path) -> None:
    data = ("--data", old_desk)
    (source,) = json.loads(_told(scripts, "sources", "--json", *data))["sources"]
    assert source["title"] == f"{TITLE}\n{TITLE}"
    listed = _told(scripts, "sources", *data)
    assert len(listed.splitlines()) == 2
    assert "\ufffd]0;owned\ufffdClocks" in listed
    assert "Clocks" in _told(scripts, "source", source["id"], "--text", *data)
    lines = _told(scripts, "source", source["id"], *data).splitlines()
    assert not [line for line in lines if line.startswith("fake")]
    assert "Clocks" in _told(scripts, "access", "show", source["id"], *data)


def test_a_hostile_sidecar_and_a_hostile_name_are_only_read(scripts: Scripts, tmp_path: Path) -> None:
    folder, data = tmp_path / "texts", ("--data", tmp_path / "data")
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nA pendulum \u202eswings.\n\n<iframe src=http://x></iframe>\n")
    (folder / "a.md.meta.toml").write_text(
        'title = "\\u001b]0;owned\\u0007Clocks\\u202e\\u200b"\n"k\\u001b[2J" = "v\\u009b\\U000e0041"\n'
    )
    (folder / "b.md").write_text("# B\n\nWater.\n")
    (folder / "b.md.meta.toml").write_text('"k\\u001b]0;owned\\u0007\\nfake" = [["x"]]\n')
    (folder / "c\x1b]0;owned\x07\u202e\U000e0041\u200b.md").write_text("# C\n\nSand.\n")
    ingested = _told(scripts, "ingest", folder, *data, code=3)
    assert "2 added" in ingested
    assert "skipped" in ingested
    assert "\nfake" not in ingested
    sources = json.loads(_told(scripts, "sources", "--json", *data))["sources"]
    assert {source["title"] for source in sources} == {"]0;ownedClocks", "C"}
    assert {"k": "v"}.items() <= sources[0]["metadata"].items()
    for options in ((), ("--explain",), ("--context",), ("--json",), ("--explain", "--json")):
        output = _told(scripts, "search", "pendulum \x1b[2J\u202e", *options, *data)
        assert "Clocks" in output
        assert "< iframe" in output
    report = tmp_path / "report.html"
    assert "Wrote" in _told(scripts, "search", "pendulum", "--report", report, *data)
    assert not NASTY & set(report.read_text(encoding="utf-8"))


def test_errors_obey_nothing_either(scripts: Scripts, tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    name = "\x1b]0;owned\x07\u202e\u200b"
    assert "owned" in _told(scripts, "ingest", tmp_path / name, *data, code=1)
    assert "owned" in _told(scripts, name, code=2)
    assert "owned" in _told(scripts, "search", "x", "--mode", name, *data, code=2)
    assert "owned" in _told(scripts, "config", "check", "--config", tmp_path / name, code=2)
    (tmp_path / "refdesk.toml").write_text('"\\u001b]0;owned\\u0007" = 1\n')
    assert "owned" in _told(scripts, "config", "check", "--config", tmp_path / "refdesk.toml", code=2)


def test_a_server_that_does_not_start_says_why_in_plain_words(scripts: Scripts, tmp_path: Path) -> None:
    config = tmp_path / "refdesk.toml"
    config.write_text('"\\u001b]0;owned\\u0007\\u202e" = 1\n')
    run = scripts.serve("--config", config)
    errors = run.stderr
    assert run.returncode == 2
    assert "owned" in errors
    assert not NASTY & set(errors.replace(os.linesep, "\n"))
    assert for_people(errors) == errors

"""YAML, TOML and INI files."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse

WORKFLOW = """# c
name: CI  # and more
on:
  push:
    branches: [a]
env: x
"a b": |
  run: it
"""


@pytest.mark.parametrize(
    ("name", "content", "title", "headings"),
    [
        ("ci.yml", WORKFLOW, "CI", [(1, "on"), (1, ""), (1, "a b")]),
        ("a.yaml", "info:\n  title: no\n- a: b\n", "a.yaml", [(1, "info")]),
        ("a.toml", 'title = "T: x"\n[a]\nx = 1\n[[a.b]]\ny = 2\n', "T: x", [(1, "a"), (2, "a.b")]),
        ("a.ini", "; c\n[Main part]\nx=1\n", "a.ini", [(1, "Main part")]),
        ("nginx.conf", "server {\n listen 80;\n}\n", "nginx.conf", []),
    ],
)
def test_top_level_keys_and_tables_are_sections(
    name: str, content: str, title: str, headings: list[tuple[int, str]]
) -> None:
    document = parse(content.encode(), name)
    assert (document.title, document.text) == (title, content)
    assert [(one.level, one.title) for one in document.blocks if one.kind == "heading"] == headings

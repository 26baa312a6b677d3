"""server/README.md, which follows a request through the server, names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from rag.config.settings import Settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "server" / "README.md").read_text().partition("```")[0]
HOSTS = re.compile(r"^## Hosts$.*?(?=^## )", re.DOTALL | re.MULTILINE)
"""The table of the hosts' own files, which are not ours."""
TEXT = HOSTS.sub("", PAGE)
NAMES = set(re.findall(r"`([^`\n]+)`", TEXT))
SOURCE = "\n".join(
    path.read_text() for top in ("server", "rag") for path in sorted((ROOT / top).rglob("*.py"))
)


def test_every_file_that_is_named_exists() -> None:
    files = {name for name in NAMES if name.endswith((".py", ".toml", "/"))}
    assert len(files) > 15
    assert not [name for name in files if not any((top / name).exists() for top in (ROOT, ROOT / "server"))]


def test_every_setting_that_is_named_exists() -> None:
    settings = {name for name in NAMES if name.startswith(("limits.", "server.max"))}
    assert len(settings) > 8
    for name in settings:
        section, _, field = name.partition(".")
        annotation = Settings.model_fields[section].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        assert field in annotation.model_fields


def test_every_limit_that_can_be_set_is_named() -> None:
    annotation = Settings.model_fields["limits"].annotation
    assert isinstance(annotation, type)
    assert issubclass(annotation, BaseModel)
    assert {f"limits.{field}" for field in annotation.model_fields} <= NAMES


def test_every_class_function_and_constant_that_is_named_exists() -> None:
    named = {part for name in NAMES if re.fullmatch(r"\w+(\.\w+)?", name) for part in name.split(".")}
    code = {part for part in named if re.search(r"[A-Z_]", part)}
    assert len(code) > 30
    assert not [part for part in sorted(code) if not re.search(rf"\b{part}\b", SOURCE)]

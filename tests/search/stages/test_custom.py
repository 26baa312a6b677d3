from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from rag.config.profiles import CustomStage
from rag.errors import ConfigurationError
from rag.search.stages.custom import load_function

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of an operator's own."""
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "own_package" / "good.py").write_text(
        "async def ask(query, options): return []\ndef plain(query, options): return []\nN = 3\n"
    )
    (tmp_path / "own_package" / "needy.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "own_package" / "broken.py").write_text("raise ValueError('confidential')\n")
    (tmp_path / "own_package" / "wrong.py").write_text("def ask(:\n")
    monkeypatch.syspath_prepend(tmp_path)


def stage(call: str) -> CustomStage:
    return CustomStage(stage="custom", call=call, takes="query")


def test_a_dotted_path_leads_to_its_function() -> None:
    assert load_function(stage("own_package.good:ask")) is importlib.import_module("own_package.good").ask


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("nowhere_at_all:ask", "there is no module nowhere_at_all in refdesk's environment"),
        ("own_package.bad:ask", "there is no module own_package.bad in refdesk's environment"),
        ("own_package.needy:ask", "importing its module raised ModuleNotFoundError"),
        ("own_package.broken:ask", "importing its module raised ValueError"),
        ("own_package.wrong:ask", "importing its module raised SyntaxError"),
        ("own_package.good:other", "that module has no other"),
        ("own_package.good:plain", "which isn't an async def function"),
        ("own_package.good:N", "which isn't an async def function"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_wrong_setting(call: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_function(stage(call))
    assert str(error.value).startswith(f"The stage custom calls {call}, ")
    assert why in str(error.value)
    assert "confidential" not in str(error.value)

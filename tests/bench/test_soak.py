"""Short runs, on servers of which more is claimed than is true."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

from rag.bench import changes
from rag.bench.run import run_bench
from rag.bench.stock import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from rag.store.schema import NewSource
    from rag.store.writer import CollectionWriter

SHORT = Sizes(collection=20, requests=20)


async def nothing(_writer: CollectionWriter, _note: NewSource) -> None:
    """A change that is only said to have been made."""


async def bring(writer: CollectionWriter, note: NewSource) -> None:
    await writer.replace([note])


def soaked(corpus: Path, sizes: Sizes, say: Callable[[str], None] = lambda _line: None) -> dict[str, float]:
    made = anyio.run(partial(run_bench, ["soak"], corpus=corpus, sizes=sizes, say=say))
    return {one.name.removeprefix("soak/"): one.value for one in made}


def test_it_lasts_as_long_as_was_asked(few_sentences: Path) -> None:
    figures = soaked(few_sentences, Sizes(collection=20, requests=1, soak_seconds=2))
    assert figures["requests"] > 20
    assert (figures["errors"], figures["leaks"]) == (0, 0)


def test_a_document_that_is_still_found_is_a_leak(
    few_sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHANGES", ((True, bring), (False, nothing)))
    figures = soaked(few_sentences, SHORT)
    assert figures["leaks"] >= 8  # searched and opened in both eras, twice
    assert figures["errors"] == 0


def test_a_document_that_is_not_found_is_an_error_that_is_told(
    few_sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(changes, "CHANGES", ((True, nothing),))
    figures = soaked(few_sentences, SHORT, said.append)
    assert figures["errors"] >= 8
    assert figures["leaks"] == 0
    assert sum(line.startswith("not as it should be: ") for line in said) == 5

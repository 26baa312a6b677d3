"""Short runs, also on changes that are claimed and not made, and what a load asks for."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, get_args

import anyio
import pytest

from rag.answers import Mode
from tests.bench.remote import Answer, Remote
from tests.bench.run import workbench
from tests.bench.stock import Sizes
from tests.soak import load
from tests.soak.load import WEIGHTS, Ask, Readers, kind_of
from tests.soak.soak import measure_growth, measure_soak

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import NewSource
    from tests.bench.measure import Measure

pytestmark = pytest.mark.slow


SMALL = Sizes(searches=2, collection=20)


@pytest.fixture(scope="module")
def few_sentences(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one document of the demo's."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "gps-time.md").write_bytes((corpus / "gps-time.md").read_bytes())
    return folder


async def nothing(_writer: CollectionWriter, _document: NewSource) -> None:
    """A change that is claimed and not made."""


async def add(writer: CollectionWriter, document: NewSource) -> None:
    await writer.replace([document])


def soaked(
    corpus: Path, say: Callable[[str], None] = lambda _line: None, *, requests: int = 20, seconds: float = 0
) -> dict[str, Measure]:
    async def run() -> list[Measure]:
        async with workbench(corpus, SMALL, say) as bench:
            return await measure_soak(bench, requests=requests, seconds=seconds)

    return {figure.name.removeprefix("soak/"): figure for figure in anyio.run(run)}


def test_a_run_lasts_as_long_as_was_asked_finds_no_fault_and_every_figure_has_its_unit(
    few_sentences: Path,
) -> None:
    figures = soaked(few_sentences, requests=1, seconds=2)
    assert figures["requests"].value >= 2 * figures["rate"].value
    assert figures["changes"].value >= 4  # of each kind
    assert (figures["errors"].value, figures["leaks"].value) == (0, 0)
    assert {name: figure.unit for name, figure in figures.items()} == {
        "memory": "MB",
        "memory per 1,000 requests": "kB",
        "descriptors": "descriptors",
        "threads": "threads",
        "requests": "requests",
        "rate": "requests/s",
        "changes": "changes",
        "errors": "requests",
        "leaks": "requests",
    }


def test_a_run_is_over_when_all_requests_are_made_and_a_document_that_is_still_found_is_a_leak(
    few_sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "CHANGES", ((True, add), (False, nothing)))
    figures = soaked(few_sentences)
    assert figures["requests"].value >= 20
    assert figures["changes"].value == 2
    assert figures["leaks"].value >= 8  # searched and opened in both eras, twice
    assert figures["errors"].value == 0


def test_a_document_that_is_not_found_is_an_error_and_the_first_ones_are_printed(
    few_sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(load, "CHANGES", ((True, nothing),))
    figures = soaked(few_sentences, lines.append)
    assert figures["errors"].value >= 8
    assert figures["leaks"].value == 0
    assert sum(line.startswith("wrong answer: ") for line in lines) == 5


def test_searches_of_larger_collections_are_measured_against_the_smallest(few_sentences: Path) -> None:
    async def run() -> list[Measure]:
        async with workbench(few_sentences, SMALL, lambda _line: None) as bench:
            return await measure_growth(bench, (20, 40))

    figures = {figure.name: figure for figure in anyio.run(run)}
    assert set(figures) == {f"growth/{mode}/{size} chunks" for mode in get_args(Mode) for size in (20, 40)}
    for mode in get_args(Mode):
        smallest = figures[f"growth/{mode}/20 chunks"]
        assert figures[f"growth/{mode}/40 chunks"].limit == smallest.value
        assert smallest.ratio == 1


RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def requests(readers: Readers) -> list[Ask]:
    chance = random.Random(1)  # noqa: S311 repeatable, not secret
    return [readers.draw(Remote(0, 8300), chance) for _ in range(1_000)]


@pytest.mark.parametrize(
    ("status", "reply", "kind"),
    [
        (200, RESULT, "answered"),
        (200, RESULT | {"result": {"isError": False}}, "answered"),
        (200, RESULT | {"result": {"isError": True}}, "tool error"),
        (200, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602}}, "protocol error"),
        (400, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602}}, "protocol error"),
        (404, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601}}, "protocol error"),
        (401, {"error": "invalid_token"}, "refused"),
        (429, {"error": "busy"}, None),
        (500, RESULT, None),
    ],
)
def test_answers_are_sorted_into_kinds(status: int, reply: object, kind: str | None) -> None:
    assert kind_of(Answer(status, json.dumps(reply).encode())) == kind


def test_everything_is_asked_in_both_eras_and_by_everybody() -> None:
    drawn = requests(Readers(("key-a", "key-b"), ["s1", "s2"], 100))
    assert {ask.name for ask in drawn} == set(WEIGHTS)
    for part in (b"2025-11-25", b"Mcp-Method", b"Bearer key-a", b"Bearer key-b", b"/s1", b"/s2/", b"$lt"):
        assert any(part in ask.request for ask in drawn)


def test_only_what_is_meant_to_fail_is_expected_to() -> None:
    drawn = requests(Readers(("key",), ["s1"], 100))
    failing = {ask.name for ask in drawn if ask.expected != "answered"}
    assert failing == {"empty query", "unknown source", "unknown tool", "unknown resource", "wrong key"}
    assert all((ask.expected == "refused") == (b"Bearer key" not in ask.request) for ask in drawn)

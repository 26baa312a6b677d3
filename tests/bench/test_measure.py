"""What the benchmark measures with: texts, indices, times, and the figures in their file."""

from __future__ import annotations

import compileall
import json
import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest

from rag.errors import InvalidRequestError, RefdeskError
from rag.filters.grammar import matches, parse_filter
from rag.store.read.desk_reader import DeskReader
from tests.bench.corpus import (
    HEAPS_B,
    HEAPS_K,
    QUESTIONS,
    GrowingVocabulary,
    made_up_word,
    sentences,
    write_documents,
)
from tests.bench.engine import TENANT
from tests.bench.index import GUEST, SHARES, keeping, recall, worst
from tests.bench.measure import Measure, as_json, in_both, measured, p95, read_run
from tests.bench.stock import DENIED_GROUP, FIELDS, SOURCE_CHUNKS, stocked
from tests.bench.timing import BLOCK, cpu_seconds, in_blocks, interleaved, rate, rotated

if TYPE_CHECKING:
    from pathlib import Path

    from rag.store.read.schema import Statistics
    from tests.bench.stock import Bench

pytestmark = pytest.mark.slow

FAST = measured("search", [1.0, 2.0, 4.0], "ms", [1.0])
DISK = measured("disk", [5.0], "MB")


def test_a_measure_is_the_median_its_limit_the_limit_s_and_its_ratio_what_the_two_make() -> None:
    measure = measured("x", [3, 1, 2], "ms", [5, 4, 1])
    assert (measure.value, measure.min, measure.p95) == (2, 1, 3)
    assert (measure.limit, measure.ratio) == (4, 0.5)


@pytest.mark.parametrize("limits", [[], [0.0]])
def test_without_a_limit_there_is_no_ratio(limits: list[float]) -> None:
    assert measured("x", [3], "ms", limits).ratio is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [(range(1, 101), 95), (range(100, 0, -1), 95), (range(1, 21), 19), (range(1, 20), 19), ([7], 7)],
)
def test_ninety_five_in_a_hundred_values_do_not_exceed_p95(values: range | list[int], expected: int) -> None:
    assert p95(values) == expected


def test_what_was_printed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(as_json([FAST, DISK])))
    assert read_run(tmp_path / "run.json") == [FAST, DISK]


def test_what_both_runs_measured_is_compared_in_the_order_of_this_one() -> None:
    earlier = [DISK, Measure("gone", 1, "ms", None, 1, 1), Measure("search", 8, "ms", 1, 1, 1)]
    new = Measure("new", 1, "ms", None, 1, 1)
    assert in_both([new, FAST, DISK], earlier) == [(FAST, earlier[2]), (DISK, DISK)]


def test_figures_in_other_units_are_not_compared() -> None:
    assert in_both([FAST], [Measure("search", 8, "s", 1, 1, 1)]) == []


@pytest.mark.parametrize(("by", "expected"), [(0, "abc"), (1, "bca"), (4, "bca"), (-1, "cab")])
def test_rotating_begins_with_another_one_each_time(by: int, expected: str) -> None:
    assert list(rotated("abc", by)) == list(expected)


@pytest.mark.anyio
async def test_calls_take_turns_after_a_first_round_that_is_not_counted() -> None:
    calls: list[tuple[str, str]] = []

    async def first(query: str) -> None:
        calls.append(("one", query))

    async def second(query: str) -> None:
        calls.append(("other", query))

    took = await interleaved({"one": first, "other": second}, ["a", "b", "c"], 4)
    assert {name: len(times) for name, times in took.items()} == {"one": 4, "other": 4}
    assert [query for _, query in calls[::2]] == [*"abc", *"abca"]
    assert [query for _, query in calls[1::2]] == [*"abc", *"abca"]
    assert [name for name, _ in calls[::2]] == ["other", "one", "other", "one", "other", "one", "other"]
    assert {name for name, _ in calls[:2]} == {"one", "other"}


@pytest.mark.anyio
@pytest.mark.parametrize(("times", "block", "blocks"), [(2, 2, 1), (BLOCK, BLOCK, 1), (3 * BLOCK, BLOCK, 3)])
async def test_blocks_take_turns_after_a_first_one_that_is_not_counted(
    times: int, block: int, blocks: int
) -> None:
    calls: list[str] = []

    async def first(query: str) -> None:
        calls.append(f"one {query}")

    async def second(query: str) -> None:
        calls.append(f"other {query}")

    spent = await in_blocks({"one": (first, os.getpid()), "other": (second, os.getpid())}, times, ["a", "b"])
    assert {name: (len(of.wall), len(of.cpu)) for name, of in spent.items()} == {
        "one": (times, blocks),
        "other": (times, blocks),
    }
    names = [line.partition(" ")[0] for line in calls]
    starts = [names[at] for at in range(0, len(names), block)]
    assert all(names[at] == starts[at // block] for at in range(len(names)))
    assert starts == (["one", "other", "other", "one"] * (blocks + 1))[: 2 * (blocks + 1)]
    assert calls[0].endswith(" a")


@pytest.mark.anyio
async def test_the_cpu_is_that_of_the_process_that_answers() -> None:
    async def busy(_query: str) -> None:
        until = cpu_seconds(os.getpid()) + 0.02
        while cpu_seconds(os.getpid()) < until:
            pass

    async def idle(_query: str) -> None:
        await anyio.sleep(0.02)

    spent = await in_blocks({"busy": (busy, os.getpid()), "idle": (idle, os.getpid())}, 4)
    assert min(spent["busy"].cpu) >= 20
    assert min(spent["idle"].wall) >= 19
    assert max(spent["idle"].cpu) < min(spent["busy"].cpu)


@pytest.mark.anyio
async def test_the_rate_is_taken_of_all_searches_and_a_failed_one_ends_it_with_its_own_error() -> None:
    calls: list[str] = []

    async def search(query: str) -> None:
        calls.append(query)

    assert await rate(search, 3, 10) > 0
    assert len(calls) == 10

    async def fail(_query: str) -> None:
        raise RefdeskError("on purpose")

    with pytest.raises(RefdeskError, match="on purpose"):
        await rate(fail, 3, 10)


def test_the_demo_s_documents_give_hundreds_of_sentences_each_once(corpus: Path) -> None:
    split = sentences(corpus)
    assert len(split) > 500
    assert len(set(split)) == len(split)
    assert all(len(sentence) >= 40 and "\n" not in sentence for sentence in split)


def test_a_sentence_ends_where_the_next_begins_and_headings_and_scraps_are_none(tmp_path: Path) -> None:
    text = (
        "# A heading that is long enough to be taken for a sentence\n\n"
        "Short. The first sentence of this document\nruns over two lines. "
        "The second one stands alone on its line!"
    )
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "b.md").write_text(text)
    assert sentences(tmp_path) == (
        "The first sentence of this document runs over two lines.",
        "The second one stands alone on its line!",
    )


def test_compiled_files_beside_an_installed_corpus_are_skipped(tmp_path: Path, corpus: Path) -> None:
    installed = tmp_path / "demo_corpus"
    installed.mkdir()
    for name in ("clock-conversions.py", "gps-time.md"):
        shutil.copy2(corpus / name, installed)
    before = sentences(installed)
    assert compileall.compile_dir(installed, quiet=1)
    assert (installed / "__pycache__").is_dir()
    assert sentences(installed) == before


def test_documents_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_documents(tmp_path / name, ["A sentence.", "Another.", "A third."], 3)
    texts = [[path.read_text() for path in sorted((tmp_path / name).iterdir())] for name in ("one", "other")]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    assert texts[0][2].startswith("# Document 2\n\n## Part 0\n\n")


def test_no_question_is_asked_twice() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 30


@pytest.mark.parametrize(
    ("ids", "exact", "share"),
    [
        (["a", "b"], ["b", "a"], 1),
        (["a", "x"], ["a", "b"], 0.5),
        (["a"], ["a", "b", "c", "d"], 0.25),
        ([], ["a"], 0),
        (["x"], [], 1),
    ],
)
def test_recall_is_the_share_of_the_exact_answer_that_was_found(
    ids: list[str], exact: list[str], share: float
) -> None:
    assert recall(ids, exact) == share


def test_filters_keep_the_shares_that_they_are_named_for() -> None:
    sources = 10_000
    for share, remaining in zip(SHARES.values(), (5_000, 100, 1), strict=True):
        tree = parse_filter(keeping(share, sources * SOURCE_CHUNKS), FIELDS)
        assert (
            sum(matches(tree, {"number": number, "tags": ("old",)}) for number in range(sources)) == remaining
        )
    assert DENIED_GROUP in GUEST.groups


def test_the_worst_filter_is_allowed_and_one_more_condition_is_not() -> None:
    assert len(json.dumps(worst())) > 60_000
    parse_filter(worst(), FIELDS)
    with pytest.raises(InvalidRequestError):
        parse_filter({"$and": [worst(), {"number": 1}]}, FIELDS)


def test_the_words_of_a_large_collection_grow_as_heaps_law_says() -> None:
    chance = np.random.default_rng(1)
    common = [f"word{number}" for number in range(300)]
    vocabulary = GrowingVocabulary([" ".join(common)], chance)
    uses: Counter[str] = Counter()
    sizes = {}
    for chunk in range(1, 3_201):
        text = " ".join([*chance.choice(["the", "clock", "runs"], 74), *chance.choice(common, 5), "slow."])
        grown = vocabulary.grown(text)
        assert len(grown.split(" ")) == 80
        assert grown.endswith("slow.")
        uses.update(grown.split(" "))
        if chunk in {800, 3_200}:
            sizes[chunk * 80] = len(uses)
    for words, distinct in sizes.items():
        assert distinct == pytest.approx(HEAPS_K * words**HEAPS_B, rel=0.05)
    added = [count for word, count in uses.items() if word not in {*common, "the", "clock", "runs", "slow."}]
    assert 0.3 < added.count(1) / len(added) < 0.7
    assert max(added) > 20


def test_no_two_numbers_have_the_same_made_up_word() -> None:
    words = [made_up_word(number) for number in range(0, 3_000_000, 101)]
    assert len({*words}) == len(words)
    assert all(word.isalpha() and len(word) >= 6 for word in words)


def test_no_chunk_of_a_stocked_collection_counts_as_one_without_a_vector(bench: Bench) -> None:
    async def statistics() -> Statistics:
        reader = DeskReader(await stocked(bench, 2 * SOURCE_CHUNKS), timeout_seconds=60)
        (collection,) = await reader.collections(TENANT)
        return await (await reader.open(collection)).statistics()

    stored = anyio.run(statistics)
    assert (stored.chunks, stored.without_vector) == (2 * SOURCE_CHUNKS, 0)

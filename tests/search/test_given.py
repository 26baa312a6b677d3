"""Search by a vector that the request brings: no model is called, and every wall stays."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, EmbedderIdentity, Principal
from rag.errors import InvalidRequestError
from rag.search.desk import Desk
from rag.search.query_vectors import unit_vector
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path
    from types import ModuleType

    from rag.answers import Answer
    from rag.corpus import Vectors
    from rag.models.embed import TextKind

pytestmark = pytest.mark.anyio

Search: TypeAlias = "Callable[..., Awaitable[Answer]]"

ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
DIMENSION = 32


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=9).filter(any))
def test_a_vector_of_any_length_becomes_one_of_unit_length_in_its_direction(numbers: list[float]) -> None:
    unit = unit_vector(numbers)
    assert unit.dtype == np.float32
    assert np.linalg.norm(unit.astype(float)) == pytest.approx(1, abs=1e-6)
    largest = max(abs(number) for number in numbers)
    smaller = np.array(numbers) / largest
    assert unit == pytest.approx(smaller / np.linalg.norm(smaller), abs=1e-6)


@pytest.mark.parametrize(
    ("numbers", "saying"),
    [
        ([], "from 1 to 8192 numbers, not 0"),
        ([0.1] * 8193, "not 8193"),
        ([0.0, -0.0], "all zeros"),
        ([1.0, nan], "finite"),
        ([1.0, inf], "finite"),
        (["1", "2"], "list of numbers"),
        ([[1.0], [2.0]], "list of numbers"),
        ([[1.0], [2.0, 3.0]], "list of numbers"),
        ([True, False], "list of numbers"),
        ([None, 1.0], "list of numbers"),
        ("123", "list of numbers"),
        ([10**400, 1], "list of numbers"),
    ],
)
def test_what_is_no_direction_is_refused(numbers: Any, saying: str) -> None:  # noqa: ANN401 anything
    with pytest.raises(InvalidRequestError, match=saying):
        unit_vector(numbers)


class Uncalled:
    """An embedder that nobody may ask for vectors."""

    def __init__(self, small: ModuleType) -> None:
        self.identity = small.BagOfWords().identity
        self.window = 256

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [(0, len(text))]

    def vocabulary_share(self, text: str) -> float:
        raise AssertionError(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        raise AssertionError((texts, kind))


@pytest.fixture(scope="module")
def shelves(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collections clocks (one source for ann alone) and snow of one model, other of another, and short."""
    data: Path = tmp_path_factory.mktemp("given") / "data"
    anyio.run(_fill, data, small_desk)
    return data


async def _fill(data: Path, small: ModuleType) -> None:
    bag = small.BagOfWords().identity
    for name, identity in {
        "clocks": bag,
        "snow": bag,
        "other": replace(bag, model="another"),
        "short": EmbedderIdentity("tests", "short", 3),
    }.items():
        made = await ensure_collection(data, "default", name, identity)
        async with open_writer(data, made) as writer:
            sources = [
                small.new_source(writer, f"{title} {name}", text, access=access)
                for title, text, access in (
                    ("open", f"A pendulum of {name}. It ticks.", Access("tenant")),
                    (
                        "ann's",
                        f"A pendulum and {name}. It rests.",
                        Access("restricted", frozenset({"user:ann"})),
                    ),
                )
            ]
            if identity.dimension != DIMENSION:
                three = np.eye(3, dtype=np.float32)
                sources = [replace(one, vectors=three[at : at + 1]) for at, one in enumerate(sources)]
            await writer.replace(sources)


@pytest.fixture
def search(shelves: Path, small_desk: ModuleType) -> Search:
    async def searched(
        query: str = "",
        *collections: str,
        principal: Principal = ANN,
        settings: object = None,
        **request: Any,  # noqa: ANN401 of a request
    ) -> Answer:
        reader = DeskReader(shelves, timeout_seconds=15)
        desk = Desk(reader, Uncalled(small_desk), SearchSettings.model_validate(settings or {}))
        if "vector" not in request:
            request["vector"] = (3 * small_desk.vectors(["A pendulum of clocks. It ticks."])[0]).tolist()
        return await desk.search(principal, SearchRequest(query, collections=collections or None, **request))

    return searched


def titles(answer: Answer) -> list[str]:
    return [hit.source.title for hit in answer.hits]


async def test_a_vector_alone_finds_what_is_nearest_without_a_model(search: Search) -> None:
    answer = await search("", "clocks", "snow")
    assert titles(answer)[0] == "open clocks"
    assert answer.hits[0].similarity == pytest.approx(1, abs=1e-6)
    assert len(answer.hits) == 4
    assert (answer.notes, answer.degraded) == ((), ())


async def test_beside_a_query_the_words_count_as_well(search: Search) -> None:
    answer = await search("rests", "clocks", "snow", mode="hybrid")
    assert titles(answer)[0] == "ann's clocks"
    assert all(hit.similarity is not None for hit in answer.hits)
    words = await search("rests", "clocks", mode="sparse")
    assert titles(words) == ["ann's clocks"]
    assert words.hits[0].similarity is not None


async def test_a_vector_finds_only_what_its_principal_may_read(search: Search) -> None:
    assert set(titles(await search("", "clocks"))) == {"open clocks", "ann's clocks"}
    assert titles(await search("", "clocks", principal=BOB)) == ["open clocks"]
    assert titles(await search("", "clocks", filter=None, limit=1, principal=BOB)) == ["open clocks"]


async def test_thresholds_apply_to_it(search: Search) -> None:
    near = await search("", "clocks", "snow", settings={"thresholds": {"min_similarity": 0.99}})
    assert titles(near) == ["open clocks"]
    weak = await search("", "snow", settings={"thresholds": {"min_evidence": 0.999}})
    assert weak.notes == (UNGROUNDED,)


async def test_it_is_compared_with_vectors_of_its_own_length_only(search: Search) -> None:
    three = await search(vector=[0, 0, 2])
    assert titles(three)[0] in {"open short", "ann's short"}
    assert {hit.source.collection for hit in three.hits} == {"short"}
    (note,) = three.notes
    assert note.startswith("Not searched, because they have no vectors as long as the one given: ")
    hybrid = await search("pendulum", vector=[0, 1, 0], mode="hybrid")
    assert {hit.source.collection for hit in hybrid.hits if hit.similarity is None} == {
        "clocks",
        "other",
        "snow",
    }
    with pytest.raises(InvalidRequestError, match=r"has 3 dimensions; .* have others: clocks: 32"):
        await search("", "short", "clocks", vector=[0, 1, 0])
    with pytest.raises(InvalidRequestError, match="has 2 dimensions"):
        await search(vector=[1, 1])


async def test_it_can_be_of_one_model_only(search: Search) -> None:
    with pytest.raises(InvalidRequestError, match="Several models made the vectors with 32 dimensions"):
        await search("", "clocks", "other")
    assert len((await search("", "other")).hits) == 2


async def test_a_mode_that_cannot_be_is_refused(search: Search) -> None:
    for mode in ("hybrid", "sparse"):
        with pytest.raises(InvalidRequestError, match=f"mode {mode} needs a query as well as the vector"):
            await search("  ", mode=mode)
    with pytest.raises(InvalidRequestError, match="Give a query"):
        await search("", vector=None)


async def test_what_would_call_the_model_is_skipped_and_the_reply_says_so(search: Search) -> None:
    stages = [{"stage": "compress"}, {"stage": "diversify"}, {"stage": "neighbors"}]
    answer = await search("pendulum", "clocks", settings={"stages": stages})
    assert answer.notes == ("These stages were skipped, because the request brings a vector: compress.",)
    assert len(answer.hits) == 2
    snippets = await search("", "clocks", detail="snippet")
    assert {hit.text for hit in snippets.hits} == {"A pendulum of clocks.", "A pendulum and clocks."}
    assert "first sentences" in snippets.notes[0]

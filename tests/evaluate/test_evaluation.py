"""Whole evaluations with the built-in embedder: documents, contenders and results."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.config.profiles import CustomStage
from rag.config.settings import Settings
from rag.corpus import Access, Principal
from rag.errors import ConfigurationError, InvalidRequestError, NotReadyError
from rag.evaluate.ask_questions import FAITHFUL, SIZES, TOKENS, Contender
from rag.evaluate.evaluation import (
    PreparedSet,
    contenders,
    evaluate,
    evaluation_settings,
    prepare_existing,
    prepare_fresh,
)
from rag.evaluate.judged_sets import Asking, Excerpt, JudgedDocument, JudgedSet, Question, read_set
from rag.models.embed.local_embedder import LocalEmbedder
from rag.search.desk import Desk
from rag.store.write.change_collection import open_writer
from tests.small_desk import set_access

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rag.evaluate.compare_runs import EvaluationRun
    from tests.evaluate.conftest import Watching

    OnFresh = Callable[..., AbstractAsyncContextManager[PreparedSet]]
    from collections.abc import Sequence

    from rag.answers import Hit
    from rag.corpus import Language, Vectors
    from rag.models.embed import TextKind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DENSE, SPARSE, HYBRID = (Contender("default", mode) for mode in ("dense", "sparse", "hybrid"))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders come and go."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def fresh(tmp_path: Path, watching: Watching, scratch: Path) -> OnFresh:  # noqa: ARG001 temporary folders are made there
    """A set's own documents in a temporary data folder."""
    settings = Settings(data=tmp_path / "data")

    def prepared(judged: JudgedSet) -> AbstractAsyncContextManager[PreparedSet]:
        return prepare_fresh(judged, settings, {}, language=None, progress=watching.ingesting)

    return prepared


async def ran(
    judged: JudgedSet, prepared: PreparedSet, watching: Watching, *chosen: Contender
) -> list[EvaluationRun]:
    candidates = prepared.settings.search.candidates
    return await evaluate(judged, prepared, {}, dict.fromkeys(chosen or (HYBRID,), candidates), watching)


async def test_an_easy_set_is_answered_without_fault_in_every_mode(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    async with fresh(clocks) as prepared:
        runs = await ran(clocks, prepared, watching, DENSE, SPARSE, HYBRID)
    assert watching.events == ["dense 6", *"......", "sparse 6", *"......", "hybrid 6", *"......"]
    assert [(run.summary.set, run.summary.profile, run.summary.mode) for run in runs] == [
        ("clocks", "default", mode) for mode in ("dense", "sparse", "hybrid")
    ]
    meaning, words, _ = ({len(question.hits) for question in run.questions} for run in runs)
    assert meaning == {6}
    assert max(words) < 6
    for run in runs:
        assert (run.id, run.summary.queries, run.summary.leaks) == (0, 6, 0)
        at_k = {"precision@5": 1 / 5, "precision@10": 1 / 10}
        scores = {name: value for name, value in run.summary.metrics.items() if name not in SIZES}
        assert scores == pytest.approx({name: at_k.get(name, 1) for name in scores})
        assert len(scores) == 13
        assert run.summary.metrics.keys() - scores.keys() == SIZES
        assert 0 < run.summary.latency_ms.p50 <= run.summary.latency_ms.p95
        assert [question.hits[0].finds for question in run.questions] == [
            (question.id,) for question in clocks.questions
        ]
        assert [(question.id, question.text, question.expected) for question in run.questions] == [
            (question.id, question.text, {question.id: 1}) for question in clocks.questions
        ]


async def broken(_query: str, _hits: Sequence[Hit], _options: object) -> list[Hit]:
    """A stage that fails at every call."""
    raise OSError


async def test_a_stage_that_fails_ends_the_evaluation(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    stage = CustomStage(stage="custom", call=broken, takes="hits")
    async with fresh(clocks) as prepared:
        search = prepared.settings.search.model_copy(update={"stages": (stage,)})
        settings = prepared.settings.model_copy(update={"search": search})
        with pytest.raises(NotReadyError, match=r"^Question sundial: .*\(custom\).*it raised OSError"):
            await ran(clocks, replace(prepared, settings=settings), watching)


async def test_a_run_says_what_it_was_made_with(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    some = replace(clocks, questions=clocks.questions[:1], left_out=3)
    async with fresh(some) as prepared:
        (run,) = await ran(some, prepared, watching)
    assert run.summary.left_out == 3
    assert set(run.summary.settings) == {"embedder", "embedders", "search"}
    assert set(run.summary.versions) == {"refdesk", "lancedb", "onnxruntime"}


async def test_a_document_that_can_t_be_ingested_is_named_and_its_question_scores_0(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    judged = replace(
        clocks,
        documents=(*clocks.documents, JudgedDocument("empty", "empty.txt", "")),
        questions=(Question("empty", "what stands in it?", {"empty": 1}), clocks.questions[0]),
    )
    async with fresh(judged) as prepared:
        (run,) = await ran(judged, prepared, watching)
    assert prepared.absent == {"empty"}
    nothing, all_ = run.questions
    assert {value for name, value in nothing.metrics.items() if name not in SIZES} == {0}
    assert run.summary.metrics["nDCG@10"] == 0.5 == all_.metrics["nDCG@10"] / 2


async def test_each_tenant_s_questions_are_answered_from_its_own_documents(
    fresh: OnFresh, watching: Watching
) -> None:
    askers = {"acme": Principal("acme"), "globex": Principal("globex"), "default": None}
    judged = JudgedSet(
        "tenants",
        tuple(
            Question(name, "leap second", {name: 1}, asking=Asking(asker)) for name, asker in askers.items()
        ),
        tuple(
            JudgedDocument(
                name, f"{name}.txt", f"The leap second of {name}.", asker.tenant if asker else None
            )
            for name, asker in askers.items()
        ),
    )
    async with fresh(judged) as prepared:
        (run,) = await ran(judged, prepared, watching)
    assert [question.principal.tenant for question in prepared.questions] == ["acme", "globex", "default"]
    assert [[hit.finds for hit in question.hits] for question in run.questions] == [
        [("acme",)],
        [("globex",)],
        [("default",)],
    ]
    assert run.summary.leaks == 0


async def test_a_restriction_names_documents_as_the_set_does_and_holds(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    restrictions = {
        "any": Asking(),
        "here": Asking(collections=("documents",)),
        "only": Asking(sources=("quartz",)),
        "not": Asking(exclude_sources=("quartz",)),
    }
    questions = (
        Question(id_, "which clock is there?", {"quartz": 1}, asking=asking)
        for id_, asking in restrictions.items()
    )
    judged = replace(clocks, questions=tuple(questions))
    async with fresh(judged) as prepared:
        (run,) = await ran(judged, prepared, watching)
    finds = {question.id: [hit.finds for hit in question.hits] for question in run.questions}
    assert len(finds["any"]) == len(finds["here"]) == 6
    assert ("quartz",) in finds["any"]
    assert finds["only"] == [("quartz",)]
    assert finds["not"] == [()] * 5
    assert run.summary.leaks == 0


async def test_hits_that_the_asker_may_not_see_are_counted_as_leaks(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    async with fresh(clocks) as prepared:
        seeing, blind = prepared.questions[:2]
        blind = replace(blind, readable=blind.readable - blind.targets[0].sources)
        (run,) = await ran(clocks, replace(prepared, questions=(seeing, blind)), watching)
    readable, leaked = run.questions
    assert readable.leaks == ()
    assert leaked.leaks == (leaked.hits[0].id,)
    assert run.summary.leaks == 1


async def test_metrics_look_as_deep_as_their_name_says_even_if_lists_are_shorter(
    fresh: OnFresh, watching: Watching
) -> None:
    names = [f"lamp {number}" for number in range(120)]
    judged = JudgedSet(
        "lamps",
        (Question("q", "lamp", dict.fromkeys(names, 1)),),
        tuple(JudgedDocument(name, f"{name}.txt", f"This is {name}.") for name in names),
    )
    async with fresh(judged) as prepared:
        for candidates in (10, 50, 150):
            search = prepared.settings.search.model_copy(update={"candidates": candidates})
            settings = prepared.settings.model_copy(update={"search": search})
            (run,) = await ran(judged, replace(prepared, settings=settings), watching, SPARSE)
            assert run.summary.metrics["recall@100"] == pytest.approx(100 / 120)
            assert run.summary.metrics["MAP@100"] == pytest.approx(100 / 120)
            assert run.summary.metrics["recall@20"] == pytest.approx(20 / 120)
            assert run.summary.metrics["nDCG@10"] == 1
            assert len(run.questions[0].hits) == 10


async def test_passages_that_are_expected_are_measured_in_characters_too(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    quartz = next(document for document in clocks.documents if document.name == "quartz")
    judged = replace(
        clocks,
        questions=(
            Question("quoted", "how fast do quartz crystals swing?", excerpts=(Excerpt(quartz.content),)),
            Question("named", "how fast do quartz crystals swing?", {"quartz": 1}),
        ),
    )
    async with fresh(judged) as prepared:
        (run,) = await ran(judged, prepared, watching, DENSE)
    quoted, named = run.questions
    assert quoted.expected == {"passage 1": 1}
    assert quoted.hits[0].finds == ("passage 1",)
    assert quoted.metrics["nDCG@10"] == quoted.metrics["token_recall@5"] == 1
    assert len(quoted.hits) == 6
    share = len(quartz.content) / sum(len(_content(clocks, hit.title)) for hit in quoted.hits[:5])
    assert quoted.metrics["token_precision@5"] == quoted.metrics["token_IoU@5"] == pytest.approx(share)
    assert not named.metrics.keys() & set(TOKENS)
    assert run.summary.metrics["token_recall@5"] == 1


async def test_of_passages_that_are_cut_to_what_answers_only_what_is_shown_counts(
    clocks: JudgedSet, watching: Watching, tmp_path: Path
) -> None:
    answer, question = "Quartz crystals swing 32768 times a second.", "how fast do quartz crystals swing?"
    around = " ".join(document.content for document in clocks.documents if document.name != "quartz")
    judged = replace(
        clocks,
        documents=(JudgedDocument("clocks", "clocks.txt", f"{around} {answer} {around}"),),
        questions=(Question("quoted", question, excerpts=(Excerpt(answer),)),),
    )
    stages = {"short": {"stages": [{"stage": "compress"}]}}
    settings = Settings.model_validate({"data": tmp_path / "data", "search": {"profiles": stages}})
    async with prepare_fresh(judged, settings, {}, language=None, progress=watching.ingesting) as prepared:
        whole, short = await ran(judged, prepared, watching, HYBRID, Contender("short", "hybrid"))
    assert (whole.summary.profile, short.summary.profile) == ("default", "short")
    of_whole, of_short = (run.questions[0].metrics for run in (whole, short))
    assert of_whole["token_recall@5"] == of_short["token_recall@5"] == 1
    length = 2 * len(around) + len(answer) + 2
    assert of_whole["token_precision@5"] == pytest.approx(len(answer) / length, rel=0.01)
    assert of_short["token_precision@5"] > 0.9
    assert of_short["token_IoU@5"] == of_short["token_precision@5"]


def _content(judged: JudgedSet, title: str) -> str:
    return next(
        document.content for document in judged.documents if document.filename.removesuffix(".txt") == title
    )


async def test_a_question_that_is_no_query_is_named(
    clocks: JudgedSet, fresh: OnFresh, watching: Watching
) -> None:
    judged = replace(clocks, questions=(Question("long", "why? " * 1_000, {"sundial": 1}),))
    async with fresh(judged) as prepared:
        with pytest.raises(InvalidRequestError, match="Question long: query must have at most 4096"):
            await ran(judged, prepared, watching)


def listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_fresh_data_folder_is_gone_afterwards_and_after_an_error(
    clocks: JudgedSet, fresh: OnFresh, scratch: Path, tmp_path: Path
) -> None:
    async with fresh(clocks) as prepared:
        (folder,) = listed(scratch)
        assert prepared.settings.data.is_relative_to(folder)
        assert prepared.settings.data.is_dir()
    assert not listed(scratch)
    with suppress(ZeroDivisionError):
        async with fresh(clocks):
            assert listed(scratch)
            raise ZeroDivisionError
    assert not listed(scratch)
    unknown = replace(clocks, questions=(Question("q", "?", {"moondial": 1}),))
    with pytest.raises(ConfigurationError, match="names the source 'moondial'"):
        async with fresh(unknown):
            pass
    assert not listed(scratch)
    assert not (tmp_path / "data").exists()


async def test_questions_alone_have_no_room_of_their_own(clocks: JudgedSet, fresh: OnFresh) -> None:
    with pytest.raises(ConfigurationError, match=r"clocks has no documents\. Leave out --fresh"):
        async with fresh(replace(clocks, documents=())):
            pass


async def test_questions_are_asked_of_the_collections_that_exist(
    clock_room: Path, watching: Watching
) -> None:
    judged = JudgedSet(
        "mine", (Question("1", "who sold the time in London?", {"letter-on-selling-the-time.txt": 1}),)
    )
    for collection in (None, "documents"):
        async with prepare_existing(judged, Settings(data=clock_room), collection) as prepared:
            (run,) = await ran(judged, prepared, watching)
        assert run.summary.metrics["hit_rate@5"] == 1
        assert not prepared.absent
        (asked,) = prepared.questions
        assert asked.question.asking.collections == (collection and (collection,))


async def test_answers_that_are_stored_are_held_against_the_documents_for_who_asks(
    clock_room: Path, watching: Watching, tmp_path: Path
) -> None:
    ann, bob = Principal("default", "ann"), Principal("default", "bob")
    settings = Settings(data=shutil.copytree(clock_room, tmp_path / "data"))
    async with Desk.open(settings, {}) as desk:
        sources = await desk.sources(ann, after=("", ""), limit=99)
        (collection,) = await desk.collections(ann)
    (source,) = (candidate for candidate in sources if candidate.title == "The pendulum and the escapement")
    async with open_writer(settings.data, collection) as writer:
        await set_access(writer, {source.id: Access("restricted", frozenset({"user:ann"}))})
    title = f'"{source.title}" [{source.id}/0]'
    answers = {
        "both hold": (ann, title, (1, 1, 1)),
        "half": (ann, f'{title}, "ж" [{source.id}/0], [{source.id}/9999] "loose"', (1 / 2, 1 / 2, 0)),
        "neither": (bob, title, (0, 0, 0)),
        "no quotes": (ann, f"It swings [{source.id}/0].", (1, None, 1)),
        "a paragraph without": (ann, f"It swings [{source.id}/0].\n\nIt stops.", (1, None, 0)),
        "a quote without": (ann, f'It swings [{source.id}/0], they "say".', (1, None, 0)),
        "no citations": (ann, "Indeed.", (None, None, 0)),
        "no answer": (ann, "", (None, None, None)),
    }
    questions = [
        Question(name, "time?", {source.id: 1}, asking=Asking(who), answer=text)
        for name, (who, text, _) in answers.items()
    ]
    async with prepare_existing(JudgedSet("mine", tuple(questions)), settings, None) as prepared:
        (run,) = await ran(JudgedSet("mine", tuple(questions)), prepared, watching)
    shares = {question.id: tuple(map(question.metrics.get, FAITHFUL)) for question in run.questions}
    assert shares == {name: expected for name, (_, _, expected) in answers.items()}
    assert [run.summary.metrics[name] for name in FAITHFUL] == [4.5 / 6, 1.5 / 3, 2 / 7]


async def test_a_room_without_documents_is_an_error(
    clocks: JudgedSet, clock_room: Path, tmp_path: Path
) -> None:
    for data, collection, place in (
        (tmp_path / "data", None, f"{tmp_path / 'data'}"),
        (clock_room, "handbook", f"the collection 'handbook' of {clock_room}"),
    ):
        with pytest.raises(ConfigurationError) as error:
            async with prepare_existing(clocks, Settings(data=data), collection):
                pass
        assert str(error.value).startswith(f"There are no documents in {place}. Add some")
    assert not (tmp_path / "data").exists()


def test_contenders_are_every_profile_in_every_mode_once() -> None:
    profiles = {"words": {"mode": "sparse", "candidates": 200}}
    settings = Settings.model_validate({"search": {"profiles": profiles}})
    assert contenders(settings, ["default", "words", "default"], [None, "hybrid", "dense"]) == {
        HYBRID: 50,
        DENSE: 50,
        Contender("words", "sparse"): 200,
        Contender("words", "hybrid"): 200,
        Contender("words", "dense"): 200,
    }
    with pytest.raises(InvalidRequestError, match=r"'letters'\. Profiles: default, fast, fresh, precise"):
        contenders(settings, ["letters"], [None])


def test_no_profile_of_an_evaluation_makes_do_with_words() -> None:
    profiles = {"lenient": {"degrade": True}}
    settings = Settings.model_validate({"search": {"profiles": profiles, "of_tenants": profiles}})
    search = evaluation_settings(settings).search
    overlays = (*search.profiles.values(), *search.of_tenants.values())
    assert {search.degrade, *(overlay.degrade for overlay in overlays)} == {False}


EVERY = 10  # 119 of 1,190 questions, which take a tenth of the time


@pytest.fixture
def cheap_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same vector for every text: a search by words asks for none. Chunks are those of the model."""

    async def embed(self: LocalEmbedder, texts: Sequence[str], _kind: TextKind) -> Vectors:
        vectors = np.zeros((len(texts), self.identity.dimension), np.float32)
        vectors[:, 0] = 1
        return vectors

    monkeypatch.setattr(LocalEmbedder, "embed", embed)


@pytest.mark.usefixtures("cheap_vectors")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "language", "floor"),
    [
        ("xquad_zh", "none", 0.90),
        pytest.param("xquad_en", "English", 0.95, marks=pytest.mark.nightly),
        pytest.param("xquad_de", "German", 0.94, marks=pytest.mark.nightly),
    ],
)
async def test_words_alone_find_the_paragraph_that_answers(
    judged: Path, watching: Watching, name: str, language: Language, floor: float
) -> None:
    whole, settings = read_set(judged / name), Settings()
    some = replace(whole, questions=whole.questions[::EVERY])
    chosen = contenders(settings, ["default"], ["sparse"])
    async with prepare_fresh(some, settings, {}, language=language, progress=watching.ingesting) as room:
        (run,) = await evaluate(some, room, {}, chosen, watching)
    assert run.summary.queries == 119
    assert run.summary.leaks == 0
    assert run.summary.metrics["nDCG@10"] >= floor

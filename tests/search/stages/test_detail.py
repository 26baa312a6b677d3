"""How much is shown of a hit: the sentences that answer, the passage, or the section, each verbatim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rag.answers import MAX_LIMIT, Answer, Detail, Excerpt, Hit, Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import DEFAULT_EMBEDDER, Vectors
from rag.errors import InvalidRequestError, ProviderError
from rag.models.embed import Embedders, TextKind
from rag.search.desk import Desk
from rag.search.pipeline import NO_HITS_WANTED
from rag.search.recall import Meaning, Query
from rag.search.stages.detail import MAX_SNIPPET_CHARS, compress_hits, with_neighbors, with_snippets
from rag.search.view import View
from rag.store.read.desk_reader import DeskReader
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import ME, Shelf
from tests.tables import table_of

pytestmark = pytest.mark.anyio

LEAVE = "The house has rules. Everybody has thirty days of leave. Dogs may come in."
PARK = "## Where do I park?\n\nBehind the house, on the numbered places."
TABLE = (
    "a = [\n" + "".join(f"  'filler {n:03}',\n" for n in range(60)) + "  'the needle',\n" + "  'more',\n" * 60
)


async def _shown(shelf: Shelf, query: str, detail: Detail | None, mode: Mode | None = None) -> Answer:
    answer = await shelf.search(query, detail=detail, mode=mode)
    reader = DeskReader(shelf.data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    for hit in answer.hits:
        opened = await (await reader.open(collection)).text(hit.source.id)
        assert opened
        assert opened[2][hit.span.start : hit.span.end] == hit.text
    return answer


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
async def test_a_snippet_is_the_sentence_that_answers(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("a", LEAVE)
    (hit,) = (await _shown(shelf, "How many days of leave?", "snippet", mode=mode)).hits
    assert hit.text == "Everybody has thirty days of leave."
    assert (hit.cited, hit.shown_tokens) == (hit.chunk.id, 7)
    (whole,) = (await _shown(shelf, "How many days of leave?", None, mode=mode)).hits
    assert (whole.text, whole.excerpts, whole.score) == (LEAVE, (), hit.score)


@pytest.mark.parametrize("query", ["PD1", "pd-1", "json file", "parse_json_file"])
async def test_a_snippet_has_the_name_that_was_asked_for_however_it_is_written(
    shelf: Shelf, query: str
) -> None:
    await shelf.put("a", "The house has rules. It blocks PD-1 by parseJsonFile. Dogs may come in.")
    (hit,) = (await _shown(shelf, query, "snippet", mode="sparse")).hits
    assert hit.text == "It blocks PD-1 by parseJsonFile."


async def test_a_heading_and_a_question_have_their_answer_with_them(shelf: Shelf) -> None:
    await shelf.put("a", PARK)
    (hit,) = (await _shown(shelf, "where to park", "snippet")).hits
    assert hit.text == PARK


@pytest.mark.parametrize(
    ("query", "row"),
    [("hotel limit Spain", "| Spain | 110 |"), ("hotel limit", "| Peru | 90 |"), ("Chile", "| Chile | 80 |")],
)
async def test_a_row_of_a_table_has_its_header_with_it(shelf: Shelf, query: str, row: str) -> None:
    header = "| Country | Hotel limit |"
    await shelf.put(
        "a", f"{header}\n| --- | --- |\n| Peru | 90 |\n| Spain | 110 |\n| Chile | 80 |\n\nThat is all."
    )
    (hit,) = (await _shown(shelf, query, "snippet")).hits
    assert (hit.header, hit.text) == (header, row)


@pytest.mark.parametrize("year", ["2022", "2023"])
async def test_a_row_is_chosen_and_shown_with_the_caption_of_its_table(shelf: Shelf, year: str) -> None:
    names = "| Country | Hotel limit |"
    tables = [f"From {when}\n\n{names}\n|---|---|\n| Peru | 1{when} |" for when in ("2022", "2023")]
    await shelf.put("a", "\n\n".join(tables))
    (hit,) = (await _shown(shelf, f"hotel limit Peru {year}", "snippet")).hits
    assert (hit.header, hit.text) == (f"From {year} {names}", f"| Peru | 1{year} |")


@pytest.mark.slow
async def test_of_rows_with_the_same_words_one_has_them_itself_and_not_by_its_header(shelf: Shelf) -> None:
    rows = "| Profit before tax | 650 |\n| Income tax | (195) |\n| Profit for the year | 455 |"
    await shelf.put("a", f"Income statement of the year\n\n|  | 2021 |\n| --- | --- |\n{rows}")
    for query, row in (
        ("income tax 2021", "| Income tax | (195) |"),
        ("profit for the year", "| Profit for the year | 455 |"),
        ("profit before tax", "| Profit before tax | 650 |"),
    ):
        (hit,) = (await _shown(shelf, query, "snippet")).hits
        assert hit.text == row


@pytest.mark.parametrize("row", ["| Peru | 90 |", "| Spain | 110 |"])
async def test_a_row_has_the_header_of_the_table_that_began_in_the_passage_before(
    shelf: Shelf, row: str
) -> None:
    await shelf.put("a", "| Peru | 90 |\n| Spain | 110 |\n\nThat is all.")
    (hit,) = (await shelf.search(row)).hits
    hit = replace(hit, chunk=replace(hit.chunk, header="| Country | Hotel limit |"))
    query = Query(f"hotel {row}", {}, (View(await table_of(shelf.data), ME),))
    ((snippet,), _) = await with_snippets(
        [hit], query, Embedders({DEFAULT_EMBEDDER: shelf.small.BagOfWords()})
    )
    assert (snippet.header, snippet.text) == ("| Country | Hotel limit |", row)


async def test_the_first_line_with_strokes_is_a_row_where_no_rule_follows(shelf: Shelf) -> None:
    await shelf.put("a", "| Peru | 90 |\n| Spain | 110 |\n| Chile | 80 |")
    (peru,) = (await _shown(shelf, "Peru", "snippet")).hits
    (spain,) = (await _shown(shelf, "Spain", "snippet")).hits
    assert [(hit.header, hit.text) for hit in (peru, spain)] == [
        ("", "| Peru | 90 |"),
        ("", "| Spain | 110 |"),
    ]


async def test_a_snippet_of_code_is_a_window_around_the_line(shelf: Shelf) -> None:
    await shelf.put("a", TABLE)
    (hit,) = (await _shown(shelf, "needle", "snippet")).hits
    assert "'the needle'" in hit.text
    assert len(hit.text) <= MAX_SNIPPET_CHARS


async def test_without_a_shared_word_the_most_similar_sentence_stands(shelf: Shelf) -> None:
    await shelf.put("a", "Cats sleep. The moon is down. Dogs bark.")
    await shelf.put("b", "One sentence.")
    hits = (await shelf.search("cats moon")).hits
    (vector,) = shelf.small.vectors(["the moon is down"])
    views = (View(await table_of(shelf.data), ME),)
    counting = shelf.small.Counting(shelf.small.BagOfWords())
    embedders, lunar = Embedders({DEFAULT_EMBEDDER: counting}), {DEFAULT_EMBEDDER: Meaning(vector)}
    snippet_hits, warnings = await with_snippets(hits, Query("lunar", lunar, views), embedders)
    assert {hit.text for hit in snippet_hits} == {"The moon is down.", "One sentence."}
    assert (len(counting.texts), warnings) == (3, [])  # the one sentence has no rival
    snippet_hits, warnings = await with_snippets(hits, Query("lunar", {}, views), embedders)
    assert {hit.text for hit in snippet_hits} == {"Cats sleep.", "One sentence."}
    await with_snippets(hits, Query("dogs sentence", lunar, views), embedders)
    assert len(counting.texts) == 3


class _Failing:
    """An embedder that embeds queries only."""

    def __init__(self, shelf: Shelf) -> None:
        bag = shelf.small.BagOfWords()
        self.identity, self.window, self.vocabulary_share, self.token_spans = (
            bag.identity,
            bag.window,
            bag.vocabulary_share,
            bag.token_spans,
        )
        self._bag = bag

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        if kind == "document":
            raise ProviderError("The endpoint at http://10.0.0.7 is down.")
        vectors: Vectors = await self._bag.embed(texts, kind)
        return vectors


async def test_a_failing_embedder_leaves_the_first_sentences_and_that_is_said(shelf: Shelf) -> None:
    await shelf.put("a", "Cats sleep. Dogs bark.")
    desk = Desk(DeskReader(shelf.data, timeout_seconds=15), _Failing(shelf), SearchSettings())
    answer = await desk.search(ME, SearchRequest("moon", detail="snippet", mode="dense"))
    assert answer.hits[0].text == "Cats sleep."
    assert "snippet" in answer.degraded
    (note,) = [note for note in answer.notes if "snippets" in note]
    assert "10.0.0.7" not in note
    shared = await desk.search(ME, SearchRequest("dogs", detail="snippet", mode="dense"))
    assert (shared.hits[0].text, shared.degraded) == ("Dogs bark.", ())


async def test_a_section_is_what_stands_under_a_heading(shelf: Shelf) -> None:
    await shelf.put("a", "House", "Before.", "Thirty days of leave.")
    (hit,) = (await _shown(shelf, "thirty days", "section")).hits
    assert hit.text == "House\n\nBefore.\n\nThirty days of leave."
    assert hit.cited == f"{hit.source.id}/0-2"


STAGES = [{"stage": "neighbors", "count": 1}, {"stage": "dedupe"}]


async def test_a_request_that_says_how_much_to_show_replaces_what_the_profile_shows(shelf: Shelf) -> None:
    await shelf.put("a", "Cats sleep.", "Thirty days of leave. It is so.", "Dogs bark.")
    desk = shelf.desk(stages=STAGES, limit=1)

    async def text(detail: Detail | None) -> str:
        answer = await desk.search(ME, SearchRequest("thirty days of leave", detail=detail))
        assert "dedupe" in {step.name for step in answer.steps}
        return answer.hits[0].text

    assert await text(None) == "Cats sleep.\n\nThirty days of leave. It is so.\n\nDogs bark."
    assert await text("passage") == "Thirty days of leave. It is so."
    assert await text("snippet") == "Thirty days of leave."


async def test_an_operators_default_holds_for_all_that_say_nothing(shelf: Shelf) -> None:
    await shelf.put("a", LEAVE)
    desk = shelf.desk(detail="snippet", profiles={"whole": {"detail": "passage"}})
    query = "How many days of leave?"
    assert (await desk.search(ME, query)).hits[0].text == "Everybody has thirty days of leave."
    assert (await desk.search(ME, SearchRequest(query, profile="whole"))).hits[0].text == LEAVE
    context = (await desk.search(ME, SearchRequest(query, context=True))).context
    assert context
    assert context.text.endswith("]\nEverybody has thirty days of leave.")


@pytest.mark.slow
async def test_nothing_to_show_and_words_that_are_none_are_no_trouble(shelf: Shelf) -> None:
    await shelf.put("a", "?!", "…")
    await shelf.put("b", LEAVE)
    for query in ("?!", "the", "x" * 4000, "leave " * 600):
        assert (await shelf.search(query, detail="snippet", limit=MAX_LIMIT)).hits
    assert (await shelf.search("leave", detail="snippet", limit=0)).notes == (NO_HITS_WANTED,)
    with pytest.raises(InvalidRequestError, match="snippet, passage, section"):
        await shelf.search("leave", detail="page")


CLOCKS = "Clocks err. Cats sleep. A clock ticks."
DOGS = "Dogs bark. The sun sets late."


async def _views(shelf: Shelf) -> dict[str, View]:
    reader = DeskReader(shelf.data, timeout_seconds=15)
    return {
        collection.name: View(await reader.open(collection), ME)
        for collection in await reader.collections("default")
    }


async def _all_hits(views: Mapping[str, View]) -> list[Hit]:
    """Every chunk of every source as a hit."""
    hits: list[Hit] = []
    for view in views.values():
        for stored in await view.table.all_sources():
            chunks = await view.table.chunks_between(stored, 0, stored.source.chunk_count, view.where)
            hits += [Hit(chunk, stored.source, 1 - len(hits) / 100, 0.5) for chunk in chunks]
    return hits


async def _compressed(
    shelf: Shelf,
    hits: Sequence[Hit],
    views: Mapping[str, View],
    query: str,
    *,
    like: str = "nothing of this kind",
) -> list[Hit]:
    """What is left of the hits; all excerpts are word for word what stands there."""
    (vector,) = shelf.small.vectors([like])
    query_ = Query(query, {DEFAULT_EMBEDDER: Meaning(vector)}, tuple(views.values()))
    embedders = Embedders({DEFAULT_EMBEDDER: shelf.small.BagOfWords()})
    compressed, failures = await compress_hits(hits, query_, embedders)
    assert not failures
    for hit in compressed:
        stored_text = await views[hit.source.collection].table.text(hit.source.id)
        assert stored_text
        assert hit.excerpts
        assert all(stored_text[2][excerpt.start : excerpt.end] == excerpt.text for excerpt in hit.excerpts)
    return compressed


def _texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


async def test_the_sentences_with_words_of_the_query_stay_and_hits_without_any_go(shelf: Shelf) -> None:
    await shelf.put("a", DOGS, CLOCKS, "Cats again.", "The clock stopped.")
    views = await _views(shelf)
    hits = await _all_hits(views)
    compressed = await _compressed(shelf, hits, views, "Which clocks?")
    assert _texts(compressed) == ["Clocks err. … A clock ticks.", "The clock stopped."]
    assert [replace(hit, excerpts=()) for hit in compressed] == [hits[1], hits[3]]
    start = len(DOGS) + 2
    assert compressed[0].excerpts == (
        Excerpt(start, start + 11, "Clocks err."),
        Excerpt(start + 24, start + 38, "A clock ticks."),
    )
    assert await _compressed(shelf, hits, views, "moon") == []
    assert await _compressed(shelf, [], views, "moon") == []


async def test_a_sentence_without_a_word_of_the_query_stays_for_its_meaning(shelf: Shelf) -> None:
    await shelf.put("a", CLOCKS, DOGS)
    views = await _views(shelf)
    hits = await _all_hits(views)
    assert _texts(await _compressed(shelf, hits, views, "moon", like="dogs bark.")) == ["Dogs bark."]
    compressed = await _compressed(shelf, hits, views, "clock", like="dogs bark.")
    assert _texts(compressed) == ["Clocks err. … A clock ticks.", "Dogs bark."]
    assert await _compressed(shelf, hits, views, "moon", like="dogs jump over many high walls") == []


async def test_of_what_a_stage_before_shows_the_sentences_that_answer_stay(shelf: Shelf) -> None:
    await shelf.put("a", "Before it.", CLOCKS, DOGS, "A clock stops.", "Clocks far away.")
    views = await _views(shelf)
    near = await with_neighbors((await _all_hits(views))[2:3], 1, views)
    (hit,) = await _compressed(shelf, near, views, "clock")
    assert hit.text == "Clocks err. … A clock ticks. … A clock stops."
    assert hit.chunk.text == DOGS
    assert await _compressed(shelf, [hit], views, "clock") == [hit]
    (fewer,) = await _compressed(shelf, [hit], views, "ticks")
    assert fewer.excerpts == hit.excerpts[1:2]


async def test_stop_words_are_those_of_the_collections_language(shelf: Shelf) -> None:
    identity = shelf.small.BagOfWords().identity
    await ensure_collection(shelf.data, "default", "deutsch", identity, language="German")
    await ensure_collection(shelf.data, "default", "english", identity, language="English")
    for name in ("deutsch", "english"):
        await shelf.put("a", "Die Sonne scheint. Der Mond.", collection=name)
    views = await _views(shelf)
    compressed = await _compressed(shelf, await _all_hits(views), views, "die mond")
    assert [(hit.source.collection, hit.text) for hit in compressed] == [
        ("deutsch", "Der Mond."),
        ("english", "Die Sonne scheint. Der Mond."),
    ]


async def test_all_sentences_are_embedded_as_documents_in_one_batch_and_each_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("a", CLOCKS, f"{CLOCKS} {DOGS}")
    views = await _views(shelf)
    hits = await _all_hits(views)
    batches: list[tuple[list[str], str]] = []

    async def recorded(_embedder: object, texts: Sequence[str], kind: str) -> Vectors:
        batches.append((list(texts), kind))
        vectors: Vectors = shelf.small.vectors(texts)
        return vectors

    monkeypatch.setattr(shelf.small.BagOfWords, "embed", recorded)
    assert len(await _compressed(shelf, hits, views, "clock")) == 2
    assert batches == [
        (["Clocks err.", "Cats sleep.", "A clock ticks.", "Dogs bark.", "The sun sets late."], "document")
    ]
    assert await _compressed(shelf, [], views, "clock") == []
    assert len(batches) == 1

"""Mode exact finds what is written, and says on which line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag.answers import Answer, Hit, Match, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Binding, Chunking, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.rank.fusion import MAX_JOINED_CHARS
from rag.search.desk import Desk
from rag.search.exact import CHANGED, _pass_gate
from rag.search.reply.search_reply import search_reply
from rag.search.why import CALLED
from rag.store.read import text_scan
from rag.store.read.desk_reader import DeskReader
from rag.store.read.text_scan import OVERLAP, WINDOW, matched_sources
from tests.search.conftest import ME, Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ANN = Principal("default", user="ann")


async def exact(shelf: Shelf, written: str, match: Match | None = None, **request: object) -> Answer:
    return await shelf.search(written, mode="exact", match=match, **request)


def numbered_texts(answer: Answer) -> list[str]:
    return [hit.text for hit in answer.hits]


async def test_a_hit_says_line_position_and_count_and_shows_the_lines_around(shelf: Shelf) -> None:
    lines = "\n".join(f"line {number}" for number in range(3, 12)).replace(
        "line 7", "--dry-run, then --Dry-Run"
    )
    source = await shelf.put("manual", "heading", lines, "another --dry-run", metadata={"path": "manual.md"})
    answer = await exact(shelf, "--dry-run")
    first, second = answer.hits
    assert first.text == "line 5\nline 6\n--dry-run, then --Dry-Run\nline 8\nline 9"
    assert [occurrence.line for occurrence in first.occurrences] == [7, 7]
    assert (first.occurrence_count, second.occurrence_count) == (2, 1)
    whole = f"heading\n\n{lines}\n\nanother --dry-run"
    spans = [(occurrence.start, occurrence.end) for hit in answer.hits for occurrence in hit.occurrences]
    assert [whole[start:end].lower() for start, end in spans] == ["--dry-run"] * 3
    assert [(hit.cited, hit.similarity) for hit in answer.hits] == [
        (f"{source.id}/1", None),
        (f"{source.id}/1-2", None),  # shows lines of the passage before
    ]
    record = search_reply(answer, 12_000).results[0]
    shown_matches = [{"line": 7, "start": start, "end": end} for start, end in spans[:2]]
    assert (record.matches, record.match_count) == (shown_matches, 2)


async def test_code_is_shown_from_the_beginning_of_its_first_line(shelf: Shelf) -> None:
    await shelf.put("code", "    def one(self):\n        if the_needle:\n            return 1")
    in_lines = await exact(shelf, "the_needle")
    in_a_sentence = await shelf.search("the_needle", detail="snippet")
    for answer in (in_lines, in_a_sentence):
        assert [text.startswith("    def one") for text in numbered_texts(answer)] == [True]


async def test_the_sentence_of_a_match_is_shown_to_its_end_in_a_line_of_any_length(shelf: Shelf) -> None:
    losses = ", ".join(f"the losses of kind {number}" for number in range(20))
    clause = f"The Supplier shall indemnify the Customer against {losses}, except to its own negligence."
    row = "| Amoxicillin | 50 mg. " + "With water. " * 40 + "| at most 1 g |"
    code = "indemnify(" + "loss, " * 200 + ")"
    await shelf.put("contract", f"{'We agree on this. ' * 20}{clause}{' It ends in May.' * 20}")
    await shelf.put("table", row)
    await shelf.put("code", code)
    (hit,) = (await exact(shelf, "shall indemnify")).hits
    assert clause in hit.text
    assert len(hit.text) < 2 * len(clause)
    (hit,) = (await exact(shelf, "amoxicillin")).hits
    assert hit.text == row
    (hit,) = (await exact(shelf, "indemnify(loss")).hits
    assert code.startswith(hit.text)
    assert len(hit.text) < 300


async def test_a_match_that_spans_passages_is_found_and_cited_with_both(shelf: Shelf) -> None:
    source = await shelf.put("policy", "title", "an employee on leave of", "absence keeps the badge")
    for written, match in [
        ("leave of absence", "words"),
        ("LEAVE OF ABS", "text"),
        (r"of\s+absence", "regex"),
    ]:
        (hit,) = (await exact(shelf, written, match)).hits  # type: ignore[arg-type]
        assert hit.chunk.id == f"{source.id}/1"
        assert hit.cited.endswith(("/1-2", "/0-2"))
        assert "leave of\n\nabsence" in hit.text


async def test_the_line_of_context_above_a_passage_is_not_its_text(shelf: Shelf) -> None:
    await shelf.put("handbook", "first", "second")  # the context is the name
    assert not (await exact(shelf, "handbook")).hits
    assert not (await shelf.search('"handbook"', mode="sparse")).hits


async def test_match_and_case_say_what_counts(shelf: Shelf) -> None:
    await shelf.put_all({"a": "Leave", "b": "leaves", "c": "cleave", "d": "on (leave)"})
    assert len((await exact(shelf, "leave")).hits) == 4
    assert sorted(numbered_texts(await exact(shelf, "leave", "words"))) == ["Leave", "on (leave)"]
    assert numbered_texts(await exact(shelf, "leave", "words", case=True)) == ["on (leave)"]
    assert sorted(numbered_texts(await exact(shelf, "^(c|on .)?leave[^s]*$", "regex"))) == [
        "Leave",
        "cleave",
        "on (leave)",
    ]
    assert numbered_texts(await exact(shelf, "^L", "regex", case=True)) == ["Leave"]


async def test_passages_whose_lines_overlap_are_one_result_with_all_matches(shelf: Shelf) -> None:
    row = [f"the needle of line {number}" for number in range(3)]
    source = await shelf.put("row", *row, *(["hay"] * 4), "one needle more")
    await shelf.put("other", "a Needle elsewhere")
    first, *more = (await exact(shelf, "needle", joined=True)).hits
    assert first.cited == f"{source.id}/0-3"  # with two lines of context
    assert [(occurrence.line, occurrence.start) for occurrence in first.occurrences] == [
        (1, 4),
        (3, 26),
        (5, 48),
    ]
    assert first.occurrence_count == 3
    assert first.text == "\n\n".join([*row, "hay"])
    assert {hit.source.title for hit in more} == {"row", "other"}
    places = [
        occurrence.start
        for hit in (first, *more)
        for occurrence in hit.occurrences
        if hit.source.id == source.id
    ]
    assert len(places) == len(set(places)) == 4
    apart = (await exact(shelf, "needle")).hits  # what programs get
    assert [hit.occurrence_count for hit in apart] == [1] * 5
    assert first.score == max(hit.score for hit in apart)


async def test_a_limit_counts_results_and_no_passages(shelf: Shelf) -> None:
    lines = tuple(f"the needle of line {number}" for number in range(4))
    await shelf.put_all(dict.fromkeys("abc", lines))
    for stages in ([], [{"stage": "recency"}]):
        desk = shelf.desk(stages=stages)
        for limit in (1, 2, 3, 9):
            hits = (await desk.search(ME, "needle", mode="exact", joined=True, limit=limit)).hits
            assert [hit.occurrence_count for hit in hits] == [4] * min(limit, 3)
            assert len({hit.source.id for hit in hits}) == len(hits)


async def test_a_long_row_is_several_results_and_no_text_is_in_two(shelf: Shelf) -> None:
    lines = [f"  the needle of line {number} " + "and hay " * 12 for number in range(90)]
    source = await shelf.put("long", *lines)
    hits = (await exact(shelf, "needle", joined=True, limit=50)).hits
    assert len(hits) == 4
    in_order = sorted(hits, key=lambda hit: hit.span)
    assert all(before.span.end < after.span.start for before, after in pairwise(in_order))
    assert max(len(hit.text) for hit in hits) <= MAX_JOINED_CHARS
    assert sum(hit.occurrence_count for hit in hits) == 90
    assert all(hit.text.count("needle") == hit.occurrence_count for hit in hits)
    assert all(hit.text.startswith("  the") for hit in in_order)
    text = "\n\n".join(lines)
    assert all(excerpt.text == text[excerpt.start : excerpt.end] for hit in hits for excerpt in hit.excerpts)
    assert {hit.source.id for hit in hits} == {source.id}


async def test_a_match_where_chunks_overlap_is_in_one_result(small_desk: ModuleType, tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(400)]
    (tmp_path / "long.txt").write_text(" ".join(words))
    chunking = Chunking("tokens", max_tokens=60, overlap=20)
    await small_desk.ingested(tmp_path / "data", tmp_path / "long.txt", chunking=chunking)
    desk = Desk(DeskReader(tmp_path / "data", timeout_seconds=15), small_desk.BagOfWords(), SearchSettings())
    chunks = (await desk.search(ME, "w1", mode="dense", limit=100)).hits
    assert sum(len(hit.chunk.text.split()) for hit in chunks) > 450
    for word in words[::13]:
        for joined in (True, False):
            (hit,) = (await desk.search(ME, word, mode="exact", match="words", joined=joined)).hits
            assert hit.occurrence_count == 1
    (source,) = {hit.source.id for hit in chunks}
    hits = (await desk.search(ME, r"w\d*5\b", mode="exact", match="regex", joined=True, limit=100)).hits
    assert sum(hit.occurrence_count for hit in hits) == 40
    spans = sorted(hit.span for hit in hits)
    assert all(before.end <= after.start for before, after in pairwise(spans))
    overlapping = [
        (hit.chunk, after.chunk) for hit, after in pairwise(sorted(chunks, key=lambda hit_: hit_.chunk.seq))
    ]
    former, latter = next(pair for pair in overlapping if pair[1].start < pair[0].end)
    shared = former.text[latter.start - former.start :].split()[-1]
    only_former = former.text.split()[0]
    (hit,) = (await desk.search(ME, shared, mode="exact", match="words", must_contain=(only_former,))).hits
    assert hit.chunk.id == former.id
    assert hit.source.id == source


async def test_a_passage_without_what_each_must_contain_is_in_no_result(shelf: Shelf) -> None:
    source = await shelf.put("row", "gold needle", "lead needle", "gold needle again", "lead needle again")
    hits = (await exact(shelf, "needle", joined=True, must_contain=("gold",))).hits
    assert [(hit.chunk.id, hit.occurrence_count) for hit in hits] == [(f"{source.id}/0", 2)]


async def test_stages_that_show_more_count_the_matches_in_what_they_show(shelf: Shelf) -> None:
    await shelf.put("row", "title", *[f"the needle of line {number}" for number in range(9)])
    desk = shelf.desk(stages=[{"stage": "neighbors", "count": 1}])
    for detail in ("section", None):
        answer = await desk.search(ME, "needle", mode="exact", joined=True, detail=detail, limit=9)
        (hit,) = answer.hits
        assert (hit.occurrence_count, [occurrence.line for occurrence in hit.occurrences]) == (
            9,
            [3, 5, 7, 9, 11],
        )


async def test_better_matches_come_first_then_newer_ones(shelf: Shelf) -> None:
    old, new = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2025))
    texts = {
        "part": ("heading", "the timeouts of a part"),
        "old": ("heading", "the timeout of old"),
        "new": ("heading", "the timeout of new"),
        "often": ("heading", "timeout, " * 9),
        "timeout": ("heading", "the timeout itself"),
        "section": ("timeout", "the timeout again"),
    }
    await shelf.put_all(texts, details_of={"old": {"date": old}, "new": {"date": new}})
    answer = await exact(shelf, "timeout")
    titles = [hit.source.title for hit in answer.hits]
    assert titles == ["timeout", "section", "section", "often", "new", "old", "part"]
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert max(hit.score for hit in answer.hits) <= 1


async def test_filters_sources_and_limit_hold(shelf: Shelf) -> None:
    await shelf.declare("documents", year="integer")
    years = {str(year): {"fields": {"year": year}} for year in (2020, 2021, 2022)}
    sources = await shelf.put_all(dict.fromkeys(years, "needle"), details_of=years)
    ids = tuple(source.id for source in sources)
    for request, expected in [
        ({"filter": {"year": {"$gte": 2021}}}, {ids[1], ids[2]}),
        ({"sources": ids[:1]}, {ids[0]}),
        ({"exclude_sources": ids[:1]}, {ids[1], ids[2]}),
    ]:
        assert {hit.source.id for hit in (await exact(shelf, "needle", **request)).hits} == expected  # type: ignore[arg-type]
    assert len((await exact(shelf, "needle", limit=2)).hits) == 2
    with pytest.raises(NotFoundError):
        await exact(shelf, "needle", collections=("other",))
    answer = await exact(shelf, "needle", filter={"year": 1999})
    assert answer.notes == ("The filter excludes all results; without year $eq there are results.",)


async def test_only_readable_documents_are_searched_and_counted(shelf: Shelf) -> None:
    hidden = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("open", "the needle is here")
    await shelf.put_all({f"needle {number}": "a hidden needle" for number in range(3)}, access=hidden)
    desk = shelf.desk(candidates=10)
    request = SearchRequest("needle", mode="exact")
    assert len((await desk.search(ANN, request)).hits) == 4
    answer = await desk.search(ME, request)
    assert numbered_texts(answer) == ["the needle is here"]
    assert answer.notes == ()
    absent, denied = [
        await desk.search(ME, replace(request, query=query)) for query in ("nowhere", "a hidden")
    ]
    assert (absent.hits, absent.notes) == (denied.hits, denied.notes)


async def test_a_text_that_is_not_readable_is_not_even_scanned(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the time of a search tells nothing about it."""
    texts_read: list[str] = []
    matched = text_scan._matched  # noqa: SLF001 all texts pass it

    def watched(texts: Any, needle: Any) -> Any:  # noqa: ANN401 passed on
        texts_read.extend(texts.to_pylist())
        return matched(texts, needle)

    monkeypatch.setattr(text_scan, "_matched", watched)
    await shelf.put("open", "an open needle")
    await shelf.put("hidden", "a hidden needle", access=Access("restricted", frozenset({"user:ann"})))
    for match in ("text", "words", "regex"):
        request = SearchRequest("needle", mode="exact", match=match)
        await shelf.desk().search(ME, request)
        assert "an open needle" in texts_read
        assert not [text for text in texts_read if "hidden" in text]
    await shelf.desk().search(ANN, request)
    assert "a hidden needle" in texts_read


async def test_bindings_are_walls_of_exact_search_too(shelf: Shelf) -> None:
    await shelf.declare("documents", status="string")
    await shelf.put("final", "the needle", fields={"status": "final"})
    await shelf.put("draft", "a needle draft", fields={"status": "draft"})
    strict = {"strict": {"thresholds": {"min_similarity": 0.5}}}
    desk = shelf.desk(profiles=strict)
    bound = replace(ME, bindings=(Binding(filter={"status": "final"}),))
    assert len((await desk.search(ME, SearchRequest("needle", mode="exact"))).hits) == 2
    answer = await desk.search(bound, SearchRequest("needle", mode="exact"))
    assert (numbered_texts(answer), answer.notes) == (["the needle"], ())
    assert not (await desk.search(bound, SearchRequest("draft", mode="exact"))).hits
    held = replace(ME, bindings=(Binding(profile="strict"),))
    with pytest.raises(InvalidRequestError, match="mode exact has no similarities"):
        await desk.search(held, SearchRequest("needle", mode="exact"))


async def test_the_gate_withholds_what_the_engine_lets_through(shelf: Shelf, blind: object) -> None:
    await shelf.put("open", "the needle is here")
    await shelf.put("needle", "a hidden needle", access=Access("restricted"))
    desk = shelf.desk()
    blind()  # type: ignore[operator]
    answer = await desk.search(ME, SearchRequest("needle", mode="exact"), trace=True)
    assert numbered_texts(answer) == ["the needle is here"]
    assert desk.alarms == 1
    assert "hidden" not in repr(answer)


async def test_many_documents_are_named_by_a_note(shelf: Shelf) -> None:
    await shelf.put_all({f"d{number:02}": f"needle {number}" for number in range(12)})
    desk = shelf.desk(candidates=10)
    answer = await desk.search(ME, SearchRequest("needle", mode="exact", limit=3))
    assert [hit.source.title for hit in answer.hits] == sorted(
        hit.source.title for hit in answer.hits
    ) or answer.hits
    assert answer.notes[0].startswith("More than 10 documents match.")


async def test_what_is_not_found_says_what_else_to_search_for(shelf: Shelf) -> None:
    await shelf.put("a", "something else")
    for written, request, advice in [
        ('"some thing"', {}, "quotation marks are part"),
        ("some", {"match": "words"}, "Match text finds parts"),
        ("Some", {"case": True}, "Without case"),
    ]:
        (note,) = (await exact(shelf, written, **request)).notes  # type: ignore[arg-type]
        assert note.startswith("No document contains this. Mode hybrid")
        assert advice in note


async def test_what_only_a_title_or_path_has_is_told_with_the_document(shelf: Shelf) -> None:
    file = {"path": "charters/gamma-2.md"}
    gamma = await shelf.put("g", "This text is about cherries.", title="Gamma charter", metadata=file)
    await shelf.put("h", "melons", title="Gamma charter II", access=Access("restricted"))
    called = CALLED.format(f"{gamma.id} (documents/charters/gamma-2.md)")
    asked: dict[str, dict[str, Any]] = {
        "gamma  Charter": {},
        "gamma-2": {},
        "charters/": {},
        "Gamma": {"match": "words", "case": True},
        "^Gamma ch[a-z]+$": {"match": "regex"},
        '"Gamma charter"': {"mode": "hybrid"},
    }
    for written, request in asked.items():
        answer = await shelf.search(written, **{"mode": "exact"} | request)
        assert (answer.hits, answer.notes[1:]) == ((), (called,)), written
    for written in ("Gamma charters", "melons and Gamma"):
        assert called not in (await exact(shelf, written)).notes
    for prefix, notes in {"charters/": (called,), "other/": ()}.items():
        within = {"path": {"$prefix": prefix}}
        assert (await exact(shelf, "Gamma charter", filter=within)).notes[1:] == notes
        assert (await shelf.search('"Gamma charter"', filter=within)).notes[1:] == notes
    required = SearchRequest("Gamma charter", mode="exact", must_contain=("melons",))
    assert called not in (await shelf.desk().search(ME, required)).notes


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("(", "not valid"),
        (r"(a)\1", "not valid"),
        ("(?=a)", "not valid"),
        ("(?<!a)b", "not valid"),
        ("a)(b", "not valid"),
        ("x*", "matches an empty text"),
        ("", "Give a query"),
    ],
)
async def test_an_expression_that_is_not_one_is_refused_in_our_words(
    shelf: Shelf, written: str, says: str
) -> None:
    await shelf.put("a", "ab")
    with pytest.raises(InvalidRequestError, match=says) as error:
        await exact(shelf, written, "regex")
    assert "Invalid regular expression" not in str(error.value)


async def test_match_and_case_are_for_mode_exact_alone(shelf: Shelf) -> None:
    await shelf.put("a", "ab")
    for request in ({"match": "words"}, {"case": True}):
        with pytest.raises(InvalidRequestError, match="match and case are for mode exact"):
            await shelf.search("ab", **request)
    assert (await shelf.search("ab", match="text", case=False)).hits  # what a search does anyway


async def test_a_document_of_any_length_is_searched_to_its_end(shelf: Shelf) -> None:
    """Windows overlap, so that a match across their border is found, once, and at its position."""
    filler = "x" * 39 + "\n"
    for at in (WINDOW - 3, WINDOW + OVERLAP - 3, 5 * WINDOW - 1):
        text = (filler * (at // 40 + 1))[:at] + "Ünïque\nneedle\n" + filler * 2000
        await shelf.put("long", text)
        for written, match in [("ünïque needle", "text"), (r"ünïque\sne+dle$", "regex")]:
            (hit,) = (await exact(shelf, written, match)).hits  # type: ignore[arg-type]
            (occurrence,) = hit.occurrences
            assert (occurrence.start, occurrence.line) == (at, text[:at].count("\n") + 1)
            assert text[occurrence.start : occurrence.end] == "Ünïque\nneedle"
            assert len(hit.text) < 600


async def test_positions_are_characters_whatever_their_bytes(shelf: Shelf) -> None:
    text = "👩‍🔬 naïve ﷺ שלום 機械\nneedle 1, needle 22"
    await shelf.put("mixed", text)
    (hit,) = (await exact(shelf, r"needle \d+", "regex")).hits
    assert [text[occurrence.start : occurrence.end] for occurrence in hit.occurrences] == [
        "needle 1",
        "needle 22",
    ]
    for written in ("שלום", "機械", "👩‍🔬", "naïve"):
        (hit,) = (await exact(shelf, written)).hits
        assert [text[occurrence.start : occurrence.end] for occurrence in hit.occurrences] == [written]


async def test_exact_search_needs_neither_a_model_nor_an_index(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        pytest.fail("mode exact embeds nothing")

    await shelf.put("a", "a needle")
    monkeypatch.setattr("rag.search.pipeline.embed", fail)
    monkeypatch.setattr("rag.store.read.collection_reader.CollectionReader.words_column", fail)
    stages = [{"stage": "rerank", "by": "chat"}, {"stage": "compress"}, {"stage": "multi_query"}]
    desk = shelf.desk(stages=[*stages, {"stage": "recency"}, {"stage": "neighbors"}])
    answer = await desk.search(ME, SearchRequest("needle", mode="exact", context=True), trace=True)
    assert numbered_texts(answer) == ["a needle"]
    assert [step.name for step in answer.steps] == [
        "plan", "scan", "locate", "gate", "recency", "neighbors", "context",
    ]  # fmt: skip
    assert answer.trace
    assert [listing.list for listing in answer.trace.listings[answer.hits[0].chunk.id]] == ["exact"]


async def test_time_that_is_up_leaves_what_was_found_and_a_note(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put_all({f"d{number}": f"a needle {number}" for number in range(9)})
    monkeypatch.setattr("rag.store.read.text_scan.ROWS", 2)
    monkeypatch.setattr("rag.search.exact._seconds", lambda _query: 1e-9)
    answer = await exact(shelf, "needle")
    assert 0 < len(answer.hits) < 9
    assert answer.notes[0].startswith("The search was stopped after 1e-09 seconds")
    (note,) = (await exact(shelf, "nowhere")).notes
    assert note.startswith("The search was stopped")


async def test_a_source_that_is_replaced_meanwhile_is_searched_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("a", "former", "the needle")
    times: list[int] = []

    async def replaced(*arguments: Any, **options: Any) -> object:  # noqa: ANN401 passed on
        matches = await matched_sources(*arguments, **options)
        if not times:
            await shelf.put("a", "first", "second", "now the needle is here")
        times.append(1)
        return matches

    monkeypatch.setattr("rag.search.exact.matched_sources", replaced)
    (hit,) = (await exact(shelf, "needle")).hits
    assert hit.text.endswith("now the needle is here")
    assert hit.chunk.seq == 2


async def test_a_source_that_is_replaced_again_and_again_is_left_out_with_a_note(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("b", "the needle stays")
    await shelf.put("a", "a needle")
    versions = count()

    async def replaced_first(*arguments: Any) -> list[Hit]:  # noqa: ANN401 passed on
        await shelf.put("a", f"version {next(versions)} of the needle")
        return await _pass_gate(*arguments)

    monkeypatch.setattr("rag.search.exact._pass_gate", replaced_first)
    answer = await exact(shelf, "needle")
    assert numbered_texts(answer) == ["the needle stays"]
    assert CHANGED in answer.notes


@pytest.mark.parametrize("match", ["text", "words", "regex"])
async def test_rows_below_the_header_of_a_table_are_found(shelf: Shelf, match: Match) -> None:
    source = await shelf.put("parts", "| 1 | rope |", "| 2 | helmet |", header="| id | item |\n| --- | --- |")
    (hit,) = (await exact(shelf, "helmet", match)).hits
    assert hit.chunk.id == f"{source.id}/1"
    assert hit.chunk.header == "| id | item |\n| --- | --- |"


async def test_why_not_says_why(shelf: Shelf) -> None:
    await shelf.put("a", "a needle")
    second = await shelf.put("b", "hay")
    _, fate = await shelf.desk().why_not(ME, SearchRequest("needle", mode="exact"), second.id)
    assert fate.reason == "It doesn't contain what is searched for."
    _, fate = await shelf.desk().why_not(ME, SearchRequest('"needle"'), second.id)
    assert fate.reason.startswith("None of its passages contains the phrases")


MARKED = (
    "Filler.\n\nThe mayor called it *a disgrace* for [the city](https://x.example/city)[^1] — and `left`."
)


@pytest.mark.parametrize("match", ["text", "words"])
async def test_what_a_reader_sees_is_found_and_its_place_is_that_in_the_stored_text(
    shelf: Shelf, match: Match
) -> None:
    await shelf.put("paper", MARKED)
    await shelf.put("code", "int disgrace(char *for, char *city)")
    answer = await exact(shelf, "called it a disgrace for the city - and left", match)
    ((occurrence,),) = [hit.occurrences for hit in answer.hits]
    assert (occurrence.line, MARKED[occurrence.start : occurrence.end]) == (3, MARKED[19:-2])
    assert not (await exact(shelf, "char for, char", match)).hits
    assert not (await exact(shelf, "it a disgrace for", "regex")).hits

"""Replies are complete, compact, and within their budget."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import MIN_REPLY_CHARS, Answer, Excerpt, Extract, Hit, Part
from rag.corpus import Chunk, Heading, Source
from rag.report import counted
from rag.search.reply.reply_parts import MISSING, ORDERS, assemble_context
from rag.search.reply.search_reply import FULL_ONLY, LEFT_OUT, search_reply
from rag.search.reply.source_reply import MAX_OUTLINE, fetch_reply, source_reply
from rag.search.reply.untrusted import alteration_notes, disarm
from rag.text.plain_text import line_count

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SOURCE = Source(
    id="mfzq",
    collection="documents",
    uri="file:///home/me/secret/place.md",
    title="The title",
    mime_type="text/markdown",
    digest="d",
    chunk_count=3,
    length=100,
    ingested_at=MOMENT,
)
HOSTILE = ['"', "\n", "\\", "😀", "\x01", "\u2028", "a", " ", "![a](b)", "```\n", "<img src=x>", "é"]
TEXTS = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=400).map("".join)


def _characters(text: str) -> list[tuple[int, int]]:
    return [(at, at + 1) for at in range(len(text))]


def _hit(text: str = "the text", seq: int = 3, **details: Any) -> Hit:  # noqa: ANN401 a source's fields
    section = "The title", "Part", "Sub"
    chunk = Chunk(f"mfzq/{seq}", "mfzq", seq, 40, 40 + len(text), text, section, 7, len(text.split()))
    return Hit(chunk, replace(SOURCE, **details), 0.98765432, 0.4321987)


def _extract(text: str, *, start: int = 0, behind: int = 0, headings: int = 0) -> Extract:
    length = start + len(text) + behind
    outline = tuple(Heading(f"Heading {n}", 1 + n % 3, n) for n in range(headings))
    step = 50
    chunks = tuple(
        Chunk(f"mfzq/{at // step}", "mfzq", at // step, at, at + step, "x", page=1)
        for at in range(start - start % step, start + len(text), step)
    )
    return Extract(
        replace(SOURCE, length=length), outline, start, start + len(text), text, chunks, length, length
    )


MOST_AT_ONE_PLACE = 5  # headings that surely fit into a reply


def _altered(texts: list[str]) -> list[str]:
    return alteration_notes((text, disarm(text)) for text in texts)


def test_a_hit_says_all_that_one_needs_to_cite_it() -> None:
    hit = _hit(
        date=datetime(2024, 5, 1, tzinfo=UTC), url="https://example.org/a", metadata={"author": "O'Neill"}
    )
    reply = search_reply(Answer((hit,), ("a note",)), None)
    assert json.loads(reply.compact()) == {
        "results": [
            {
                "id": "mfzq/3",
                "uri": "refdesk://documents/mfzq/3",
                "collection": "documents",
                "title": "The title",
                "cite_as": "The title › Part › Sub, p. 7",
                "url": "https://example.org/a",
                "page": 7,
                "date": "2024-05-01T00:00:00+00:00",
                "text": "the text",
                "start": 40,
                "end": 48,
                "tokens": 2,
                "score": 0.99,
                "similarity": 0.4322,
                "metadata": {"author": "O'Neill"},
            }
        ],
        "notes": ["a note"],
        "trust": "untrusted",
    }


def test_what_a_hit_does_not_have_is_left_out_and_where_its_file_lies_is_not_told() -> None:
    (record,) = json.loads(search_reply(Answer((_hit(),)), None).compact())["results"]
    assert not {"url", "date"} & record.keys()
    assert "secret" not in json.dumps(record)


def test_a_model_reads_of_a_hit_what_get_source_does_not_tell() -> None:
    hit = _hit(
        title="Rules of procedure of the board",
        metadata={"path": "a/b.eml", "language": "en", "message-id": "<1@a>", "year": "2024"},
    )
    hit = replace(hit, fields={"year": 2024})
    reply = search_reply(Answer((hit,)), None, brief=True)
    (record,) = json.loads(reply.compact())["results"]
    assert reply.model_dump(exclude_none=True)["results"] == [record]
    assert record == {
        "id": "mfzq/3",
        "collection": "documents",
        "cite_as": "Rules of procedure of the board › … › Part › Sub, p. 7",
        "page": 7,
        "text": "the text",
        "score": 0.99,
        "similarity": 0.4322,
        "metadata": {"year": 2024},
    }
    id_of_real_length = "mfzq2k7d3xhft4qb/3"
    plain = record | {"id": id_of_real_length, "text": ""}
    del plain["metadata"]
    assert len(json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()) <= 200
    (whole,) = json.loads(search_reply(Answer((hit,)), None).compact())["results"]
    assert whole.keys() - record.keys() == {*FULL_ONLY, "title"} - {"lists"}  # without a trace
    (connected,) = search_reply(Answer((hit,)), None, urls=True, brief=True).results
    assert (connected.title, connected.url) == (
        "Rules of procedure of the board",
        "refdesk://documents/mfzq/3",
    )
    assert whole["metadata"] == {**hit.source.metadata, "year": 2024}


def test_a_model_reads_where_a_file_is_that_is_titled_by_its_name() -> None:
    def metadata(title: str, path: str) -> object:
        (record,) = search_reply(
            Answer((_hit(title=title, metadata={"path": path}),)), None, brief=True
        ).results
        return record.metadata

    assert metadata("server.go", "cmd/server.go") == {"path": "cmd/server.go"}
    assert metadata("server.go", "server.go") is None
    assert metadata("The server", "cmd/server.go") is None


@pytest.mark.parametrize("text", ["x" * 5000, "![a](b)" * 900])
def test_a_brief_reply_keeps_within_its_room(text: str) -> None:
    reply = search_reply(Answer((_hit(text), _hit("y", 4))), MIN_REPLY_CHARS, brief=True)
    assert MIN_REPLY_CHARS - 10 <= len(reply.compact()) <= MIN_REPLY_CHARS


def test_a_hits_words_are_made_safe() -> None:
    hit = _hit("![a](http://x)", title="![t](u)\n", metadata={"k\n": "<img src=x>"})
    hit = replace(hit, chunk=replace(hit.chunk, section=("A\nB", "![c](d)")))
    (record,) = search_reply(Answer((hit,)), None).results
    assert record.text == "! [a](http://x)"
    assert (record.title, record.metadata, record.cite_as) == (
        "! [t](u)",
        {"k": "< img src=x>"},
        "! (t)(u) › A B › ! (c)(d), p. 7",
    )


def test_each_hit_names_its_collection_and_its_path_only_where_there_is_no_url() -> None:
    path = {"path": "a.md", "author": "O'Neill"}
    first, second = _hit(metadata=path), _hit(seq=4, metadata=path, url="https://example.org/a")
    reply = search_reply(Answer((first, second)), None)
    assert [record.metadata for record in reply.results] == [path, {"author": "O'Neill"}]
    reply = search_reply(
        Answer((first, replace(second, source=replace(second.source, collection="b")))), None
    )
    assert [record.collection for record in reply.results] == ["documents", "b"]
    (bare,) = search_reply(Answer((_hit(),)), None).results
    assert "metadata" not in bare.model_dump(exclude_none=True)


def test_what_a_hit_contains_and_what_became_of_its_file_is_said_of_it_alone() -> None:
    hits = _hit(), _hit("two", 4)
    second = replace(hits[1], source=replace(SOURCE, id="other"))
    answer = Answer((hits[0], second), stale={"other": "gone"}, flags={"mfzq/3": ("instructions", "email")})
    reply = search_reply(answer, None)
    assert [record.stale for record in reply.results] == [None, "gone"]
    assert [record.flags for record in reply.results] == [["instructions", "email"], None]
    assert reply.notes == [ORDERS]
    assert search_reply(replace(answer, flags={"mfzq/3": ("email",)}), None).notes == []
    context = assemble_context(answer.hits, budget=1000, token_spans=_characters)
    assert search_reply(replace(answer, context=context), None).notes == [ORDERS]
    extract = replace(_extract("the text"), stale="changed", flags=("instructions", "iban"))
    opened = source_reply(extract, 9000)
    assert (opened.stale, opened.flags, opened.notes) == ("changed", ["instructions", "iban"], [ORDERS])
    fetched = fetch_reply(extract, "mfzq", 9000)
    assert (fetched.metadata["stale"], fetched.metadata["flags"]) == ("changed", "instructions, iban")
    assert not {"stale", "flags"} & fetch_reply(_extract("the text"), "mfzq", 9000).metadata.keys()


def test_offsets_are_those_of_what_is_shown() -> None:
    """Also if a passage is truncated; of several excerpts, each has its own."""
    hit = _hit("the whole text")
    parts = Excerpt(44, 49, "whole"), Excerpt(50, 54, "text")
    (single,) = search_reply(Answer((replace(hit, excerpts=parts[:1], tokens=1),)), None).results
    assert (single.start, single.end, single.excerpts, single.tokens) == (44, 49, None, 1)
    (two,) = search_reply(Answer((replace(hit, excerpts=parts, tokens=3),)), None).results
    assert (two.start, two.end, two.excerpts, two.tokens) == (44, 54, [[44, 49], [50, 54]], 3)
    (cut,) = search_reply(Answer((_hit("x" * 5000),)), MIN_REPLY_CHARS).results
    assert (cut.start, cut.end, cut.tokens) == (40, 40 + len(cut.text or ""), None)


def test_a_text_that_is_not_shown_to_the_letter_is_said_to_be_not() -> None:
    hits = _hit("the text"), _hit("see ![a](http://x)", 4), _hit("two\ufe01", 5)
    for hits_shown, notes in (
        (hits, _altered([hit.text for hit in hits])),
        (hits[:1], []),
        (hits[2:], _altered([hits[2].text])),
    ):
        assert len(notes) == (hits_shown != hits[:1])
        assert search_reply(Answer(hits_shown), None).notes == notes
        context = assemble_context(hits_shown, budget=1000, token_spans=_characters)
        assert search_reply(Answer(hits_shown, context=context), None).notes == notes
    for text, notes in (
        ("the text", []),
        ("see <b>it</b>", []),
        ("see <img src=x>", alteration_notes([("<img src=x>", "< img src=x>")])),
    ):
        assert source_reply(_extract(text), 9000).notes == notes
        assert fetch_reply(_extract(text), "mfzq", 9000).metadata.get("altered") == next(iter(notes), None)


@pytest.mark.parametrize("piece", ["![", "<a", "[a]:\n", '"', "\x01"])
def test_a_fetch_keeps_its_budget_whatever_it_is_made_longer_by(piece: str) -> None:
    reply = fetch_reply(_extract(piece * 3000), "mfzq", 5000)
    assert 0 < len(reply.compact()) <= 5000


@pytest.mark.parametrize(
    ("url", "reply_url"),
    [
        ("https://a.example/b-c_d/?e=f&g=(1)#h:i,j;k~l!", None),
        ("http://[::1]:80/100%25/@a+b*'", None),
        ("https://a.example/![b](c)<img>", "https://a.example/%21[b](c)%3Cimg%3E"),
        ("https://a.example/\u200b\u3164\U000e0041", "https://a.example/%E2%80%8B%E3%85%A4%F3%A0%81%81"),
        ("https://a.example/b\n\x1b c", "https://a.example/b%0A%1B%20c"),
    ],
)
def test_a_url_is_shown_with_all_that_it_holds_and_is_no_markup(url: str, reply_url: str | None) -> None:
    (record,) = search_reply(Answer((_hit(url=url),)), None).results
    assert record.url == (reply_url or url)


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(MIN_REPLY_CHARS, 6000))
def test_a_search_reply_keeps_its_budget_with_whole_hits_and_says_how_many_it_left_out(
    texts: list[str], max_chars: int
) -> None:
    hits = tuple(_hit(text, seq) for seq, text in enumerate(texts))
    reply = search_reply(Answer(hits, ("kept",)), max_chars)
    whole = search_reply(Answer(hits, ("kept",)), None)
    assert len(reply.compact()) <= max_chars
    notes = ["kept", *_altered(texts[: len(reply.results)])]
    if omitted := len(texts) - len(reply.results):
        notes.append(LEFT_OUT.format(counted(omitted, "more hit")))
    if reply.results != whole.results[: len(reply.results)]:
        (cut,) = reply.results
        assert str(whole.results[0].text).startswith(str(cut.text))
        notes.append("The passage is truncated; open its id to read all of it.")
    assert reply.notes == notes
    if len(whole.compact()) <= max_chars:
        assert reply == whole


def test_a_first_hit_longer_than_the_budget_is_cut_and_that_is_said() -> None:
    reply = search_reply(Answer((_hit("x" * 5000), _hit("y", 4))), MIN_REPLY_CHARS)
    (record,) = reply.results
    assert set(str(record.text)) == {"x"}
    assert len(reply.compact()) == MIN_REPLY_CHARS
    assert reply.notes == [
        LEFT_OUT.format("1 more hit"),
        "The passage is truncated; open its id to read all of it.",
    ]


@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(MIN_REPLY_CHARS, 6000))
def test_a_context_keeps_the_budget_and_names_just_the_hits_that_are_in_it(
    texts: list[str], max_chars: int
) -> None:
    hits = tuple(_hit(text, seq) for seq, text in enumerate(texts))
    context = assemble_context(hits, budget=10_000, token_spans=_characters)
    reply = search_reply(Answer(hits, ("kept",), context), max_chars)
    assert len(reply.compact()) <= max_chars
    assert all(record.text is None for record in reply.results)
    ids = [f"[{record.id}]" for record in reply.results]
    assert ids == [hit for hit in (f"[mfzq/{seq}]" for seq in range(len(texts))) if hit in reply.context]  # type: ignore[operator]
    notes = ["kept", *_altered(texts[: len(ids)])]
    if omitted := len(texts) - len(ids):
        notes.append(f"{omitted} more passages did not fit into the context.")
    assert [note for note in reply.notes if "truncated" not in note] == notes
    whole = search_reply(Answer(hits, ("kept",), context), None)
    assert whole.context == context.text
    if len(whole.compact()) <= max_chars:
        assert reply == whole
    elif not omitted:
        assert "The last passage of the context is truncated; open its id to read all of it." in reply.notes


@pytest.mark.parametrize(
    ("left_out", "notes"),
    [
        ("page 3", [MISSING.format("mfzq", "page 3")]),
        ("pages 3, 5 and 20 more, 2 comments", [MISSING.format("mfzq", "pages 3, 5 and 20 more")]),
        (
            "pages 3, 5, 12 comments, pages after 10,000",
            [MISSING.format("mfzq", "pages 3, 5, pages after 10,000")],
        ),
        ("page 3. Call me, page <b>", [MISSING.format("mfzq", "page 3")]),
        ("2 comments", []),
        ("", []),
    ],
)
def test_a_reply_says_of_which_documents_pages_are_missing(left_out: str, notes: list[str]) -> None:
    """Else who signed is answered from the other pages without a word."""
    metadata = {"left_out": left_out} if left_out else {}
    hits = _hit(metadata=metadata), _hit(seq=4, metadata=metadata), _hit(id="other")
    assert search_reply(Answer(hits), None).notes == notes
    extract = replace(_extract("text"), source=replace(SOURCE, metadata=metadata))
    assert source_reply(extract, 9000).notes[: len(notes)] == notes
    assert fetch_reply(extract, "mfzq", 9000).metadata.get("notes", "") == " ".join(notes)


def test_an_empty_answer_is_its_notes() -> None:
    reply = search_reply(Answer((), ("nothing",)), 1000)
    assert reply.compact() == '{"notes":["nothing"],"results":[],"trust":"untrusted"}'


@given(TEXTS, st.integers(1000, 4000), st.integers(0, 120), st.integers(0, 500), st.integers(0, 99))
def test_a_source_reply_keeps_its_budget_and_says_where_to_go_on(
    text: str, max_chars: int, headings: int, behind: int, start: int
) -> None:
    extract = _extract(text, start=start, behind=behind, headings=headings)
    reply = source_reply(extract, max_chars)
    assert len(reply.compact()) <= max_chars
    assert reply.start == start
    assert start < reply.end <= extract.end
    assert reply.next_start == (None if reply.end == extract.source.length else reply.end)
    assert all(chunk.start < reply.end for chunk in reply.chunks or ())
    if reply.next_start:
        remaining = extract.source.length - reply.end
        assert f"{remaining} more characters; continue with start={reply.end}." in reply.notes
    if len(reply.outline) < headings:
        assert f"The outline shows {len(reply.outline)} of {headings} headings." in reply.notes


def _lines_of(text: str) -> Extract:
    """All lines of a text as a window; there are ten lines before it."""
    extract = _extract(text)
    count = 10 + line_count(text)
    return replace(extract, part=Part(lines=(11, 9_999)), first_line=11, line_count=count)


@given(
    st.lists(st.text('ab"<![]:\r\x0c\u2028😀', max_size=300), min_size=1, max_size=40),
    st.integers(1000, 3000),
)
def test_lines_are_numbered_cut_between_two_and_go_on_where_they_end(
    lines: list[str], max_chars: int
) -> None:
    text = "\n".join([*lines, "end"])
    reply = source_reply(_lines_of(text), max_chars)
    assert len(reply.compact()) <= max_chars
    assert reply.text is not None
    numbers = [int(line.partition("\t")[0]) for line in reply.text.split("\n")]
    assert numbers == list(range(11, 11 + len(numbers)))
    assert reply.lines == f"11-{numbers[-1]}"
    remaining = line_count(text) - len(numbers)
    more = (
        f"{counted(remaining, 'more line')}; continue with lines={numbers[-1] + 1}-{10 + line_count(text)}."
    )
    assert (more in reply.notes) == (remaining > 0)
    whole = reply.end == len("\n".join(text.split("\n")[: len(numbers)]))
    assert whole == (reply.next_start is None)


def test_markup_is_judged_with_the_numbers_of_its_lines() -> None:
    reply = source_reply(_lines_of("~~~html\n<img src=x>\n~~~"), 2000)
    assert reply.text == "11\t~~~html\n12\t< img src=x>\n13\t~~~"
    assert reply.notes == _altered(["<img src=x>"])


def test_a_line_that_is_too_long_is_cut_and_goes_on_by_characters() -> None:
    reply = source_reply(_lines_of("x" * 5000 + "\nend"), 2000)
    assert reply.next_start == reply.end
    assert reply.notes == [
        f"Line 11 is longer; continue with start={reply.end}.",
        "1 more line; continue with lines=12-12.",
    ]


def test_a_chunk_says_which_of_the_lines_that_are_shown_are_its_own() -> None:
    reply = source_reply(_lines_of("a line\n" * 20), 4000)
    assert [chunk.lines for chunk in reply.chunks or ()] == ["11-18", "18-25", "25-30"]


def test_a_section_ends_where_it_ends_whatever_the_source_goes_on_with() -> None:
    extract = replace(
        _extract("the text " * 20, behind=500), part=Part(section="The"), until=180, more_until=180
    )
    whole = source_reply(extract, 3000)
    assert (whole.end, whole.next_start, whole.notes) == (180, None, [])
    cut = source_reply(replace(extract, until=300, more_until=300), 3000)
    assert cut.next_start == 180
    assert cut.notes == ["120 more characters in the section; continue with this section and start=180."]


@given(st.lists(st.integers(0, 3), max_size=300), st.integers(1000, 5000))
def test_an_outline_is_paged_without_loss_by_the_positions_of_its_headings(
    steps: list[int], max_chars: int
) -> None:
    starts = list(accumulate(steps))
    outline = tuple(Heading(f"Heading {n}", 1, start) for n, start in enumerate(starts))
    headings, start = [], 0
    while True:
        later = tuple(heading for heading in outline if heading.start >= start)
        extract = replace(_extract("x" * 2000), text="", start=start, outline=later, part=Part(outline=True))
        reply = source_reply(extract, max_chars)
        assert len(reply.compact()) <= max_chars
        assert reply.text is None
        assert reply.chunks is None
        headings += [heading.title for heading in reply.outline]
        if reply.next_start is None:
            break
        assert reply.next_start > start
        start = reply.next_start
    crowded = max(Counter(starts).values(), default=0) > MOST_AT_ONE_PLACE
    assert crowded or headings == [heading.title for heading in outline]


def test_headings_at_one_position_that_do_not_fit_are_counted() -> None:
    outline = tuple(Heading(f"Heading {n}", 1, 0) for n in range(99))
    extract = replace(_extract("x" * 200), text="", outline=outline, part=Part(outline=True))
    reply = source_reply(extract, 2000)
    assert reply.next_start is None
    assert reply.notes == [f"{99 - len(reply.outline)} more headings."]


@pytest.mark.parametrize("character", ["a", '"', "\n", "\x01", "😀"])
def test_a_budget_is_not_wasted_on_a_text_that_must_be_cut(character: str) -> None:
    reply = source_reply(_extract(character * 9000), 8000)
    assert 0.8 * 8000 < len(reply.compact()) <= 8000


def test_a_source_that_fits_is_replied_whole() -> None:
    reply = source_reply(_extract("the text " * 20, headings=3), 3000)
    assert json.loads(reply.compact()) == {
        "id": "mfzq",
        "uri": "refdesk://documents/mfzq",
        "title": "The title",
        "collection": "documents",
        "mime_type": "text/markdown",
        "indexed_at": "2026-01-02T03:04:05+00:00",
        "metadata": {},
        "length": 180,
        "start": 0,
        "end": 180,
        "text": "the text " * 20,
        "outline": [{"title": f"Heading {n}", "level": n + 1, "start": n} for n in range(3)],
        "chunks": [
            {"uri": f"refdesk://documents/mfzq/{n}", "start": 50 * n, "end": 50 * n + 50, "page": 1}
            for n in range(4)
        ],
        "notes": [],
        "lines": "1-1",
        "line_count": 1,
        "trust": "untrusted",
    }


def test_the_outline_gives_way_before_the_text() -> None:
    reply = source_reply(_extract("word " * 300, headings=MAX_OUTLINE + 20), 4000)
    assert len(reply.text or "") == 1500
    assert 0 < len(reply.outline) < MAX_OUTLINE
    assert reply.notes == [f"The outline shows {len(reply.outline)} of {MAX_OUTLINE + 20} headings."]


def test_endless_metadata_does_not_break_the_budget() -> None:
    metadata = {"author": "O'Neill"} | {f"key {n}": "value " * 99 for n in range(200)}
    hits = tuple(_hit("the text", seq, metadata=metadata, url="https://x/" + "y" * 9000) for seq in range(2))
    reply = search_reply(Answer(hits), 5000)
    assert len(reply.results) == 2
    assert len(reply.compact()) <= 5000
    assert (reply.results[0].metadata or {})["author"] == "O'Neill"
    extract = replace(_extract("the text"), source=replace(SOURCE, metadata=metadata, length=8))
    assert len(source_reply(extract, 2000).compact()) <= 2000

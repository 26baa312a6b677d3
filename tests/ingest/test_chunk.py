"""Where documents are cut into chunks, and by which strategy."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.corpus import Block, Chunking, Document, Passage
from rag.errors import ParseError
from rag.ingest import chunk
from rag.ingest.chunk import MIN_TOKENS, passages
from rag.ingest.parse.parsers import parse
from rag.ingest.prepare import chunking_of, cut_key
from rag.ingest.split_text import CHARACTERS_PER_TOKEN, WINDOW, TokenSpans
from rag.models.text_encoder import BUILTIN_MODEL, Tokens
from rag.text.plain_text import with_indent
from tests.ingest.parse.document_shape import word_spans

# Passages: what always holds, and where documents are cut.

MODEL_SPANS = Tokens(BUILTIN_MODEL / "tokenizer.json").spans

LINES = st.sampled_from(
    """
    |# Outer|## Inner|### Innermost|##|Under|===|---|- item|  - deeper|1. first|> quoted|    indented|```|~~~
    |a. b.|"Yes." She went. And so on, e.g. here|<div>|</div>|[a]: http://b|word|don't|naïve|ﬁ|Straße|*
    |Q: which?|A: that one|**Why so?**|1. **Why?**|<details><summary>More</summary>|</details>|What is it?::
    |汉字很多。|한국어|ไทยไทย|👩‍👩‍👧|e\u0301\u0301|\u00a0|\x0c|a\x0bb\x0cc|\u200b|\u2028|[SEP]|[MASK]|\ufffd
    """.strip().split("|")
)
LONG = st.sampled_from(
    [
        *("x" * 250, "ab1" * 120, "=-" * 80, "e\u0301" * 99, "un\x0cable" * 60, "汉字" * 90, "漢字。" * 50),
        *(
            "| a " * 40,
            "go " * 100,
            "well then. " * 40,
            "# Six words are in this",
            "## Inner " + "long " * 20,
        ),
    ]
)
MARKDOWN = st.lists(st.one_of(LINES, LINES, LINES, LONG), max_size=25).map("\n".join)
ANY_TEXT = st.one_of(MARKDOWN, st.text(max_size=300))
NAMES = st.sampled_from(["a.md", "a.txt", "a.rst", "a.py", "a.log"])


def cut(markdown: str, limit: int, title: str = "T") -> list[Passage]:
    return passages(document(markdown, title), token_spans=word_spans, limit=limit)


def document(markdown: str, title: str = "T") -> Document:
    parsed = parse(markdown.encode(), "a.md")
    return Document(parsed.text, title, parsed.mime_type, parsed.blocks)


def texts(markdown: str, limit: int) -> list[str]:
    return [markdown[passage.start : passage.end] for passage in cut(markdown, limit)]


def sentences(count: int) -> str:
    return " ".join(f"This is sentence number {number}." for number in range(count))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, NAMES, st.sampled_from([MODEL_SPANS, word_spans]), st.sampled_from([8, 24, 32, 40, 254]))
def test_passages_lose_nothing_and_never_exceed_the_limit(
    text: str, name: str, spans: TokenSpans, limit: int
) -> None:
    try:
        parsed = parse(text.encode(), name)
    except ParseError:
        return
    end = 0
    for seq, passage in enumerate(passages(parsed, token_spans=spans, limit=limit)):
        body = parsed.text[passage.start : passage.end]
        embedded = f"{passage.context}\n\n{body}" if passage.context else body
        assert passage.seq == seq
        assert not parsed.text[end : passage.start].strip()
        assert body
        assert body == body.rstrip()
        words_at = passage.end - len(body.lstrip())
        assert passage.start == with_indent(parsed.text, words_at)
        assert passage.tokens == len(spans(body))
        assert len(spans(embedded)) <= limit
        assert passage.end - words_at <= CHARACTERS_PER_TOKEN * limit
        end = passage.end
    assert not parsed.text[end:].strip()


def test_a_section_that_fits_is_one_passage() -> None:
    text = "# T\n\nOne.\n\n- two\n- three\n\n## U\n\nFour."
    assert texts(text, 100) == [text]


def test_blocks_under_one_heading_share_a_passage_up_to_the_limit() -> None:
    blocks = [sentences(8)] * 5
    assert texts("\n\n".join(blocks), 101) == ["\n\n".join(blocks[:2]), "\n\n".join(blocks[2:4]), blocks[4]]


def test_sections_that_say_enough_are_not_joined() -> None:
    first, two = f"# One\n\n{sentences(8)}", f"# Two\n\n{sentences(8)}"
    assert texts(f"{first}\n\n{two}", 254) == [first, two]


def test_small_sections_stay_apart_so_that_each_is_cited_as_itself() -> None:
    small = [f"## {name}\n\nSmall." for name in "ABC"]
    assert texts("\n\n".join(small), 254) == small
    assert texts("\n\n".join(["# FAQ", *small]), 254) == [f"# FAQ\n\n{small[0]}", *small[1:]]
    cuts = cut("\n\n".join(["# FAQ", *small]), 254)
    assert [passage.section for passage in cuts] == [("FAQ", "A"), ("FAQ", "B"), ("FAQ", "C")]
    assert [passage.context for passage in cuts] == ["T", "T > FAQ", "T > FAQ"]


def test_a_small_introduction_joins_the_first_subsection_and_no_other() -> None:
    small = [f"## {name}\n\nSmall." for name in "ABC"]
    cuts = cut("\n\n".join(["# FAQ\n\nAsked by many.", *small, "# Other\n\nSmall."]), 254)
    assert [passage.section for passage in cuts] == [("FAQ",), ("FAQ", "B"), ("FAQ", "C"), ("Other",)]
    assert [passage.inner for passage in cuts] == [("A",), (), (), ()]  # its own heading is above it


def test_a_small_section_does_not_join_one_outside_its_parent_heading() -> None:
    outer = f"# Outer\n\n{sentences(8)}\n\n## Inner\n\n{sentences(49)}"
    last, outside = f"## Last\n\n{sentences(1)}", f"# Other\n\n{sentences(8)}"
    assert texts(f"{outer}\n\n{last}\n\n{outside}", 254)[-2:] == [last, outside]


def test_a_heading_goes_with_what_follows_it() -> None:
    pieces = texts(f"{sentences(15)}\n\n# A\n\n## B\n\n{sentences(15)}", 100)
    assert pieces == [sentences(15), f"# A\n\n## B\n\n{sentences(15)}"]


def test_a_heading_takes_the_beginning_of_what_does_not_fit_beside_it() -> None:
    heading = "# A heading of six words"
    pieces = texts(f"{heading}\n\n{sentences(16)}", 85)
    assert pieces == [f"{heading}\n\n{sentences(15)}", "This is sentence number 15."]


def test_a_heading_of_few_tokens_and_many_characters_leaves_less_room() -> None:
    pieces = texts(f"# {'x' * 200}\n\n{'y' * 500}", 50)
    assert pieces[0].startswith("# xx")
    assert max(map(len, pieces)) <= CHARACTERS_PER_TOKEN * 50


def test_a_paragraph_is_cut_between_sentences() -> None:
    pieces = texts(sentences(60), 101)
    assert len(pieces) == 3
    assert all(text.endswith(".") and text.startswith("This") for text in pieces)


def test_a_paragraph_is_not_cut_after_an_abbreviation() -> None:
    pieces = texts("The watch of Dr. Harrison was a little slow at sea. " * 30, 51)
    assert len(pieces) > 5
    assert all(text.startswith("The watch") and text.endswith("sea.") for text in pieces)


def test_a_sentence_without_end_is_cut_between_words() -> None:
    assert texts("so it goes " * 60, 51)[0] == ("so it goes " * 16 + "so it").strip()


def test_a_list_is_cut_between_its_items() -> None:
    items = [f"- item {number}:\n  - inner one\n  - inner two" for number in range(30)]
    pieces = texts("\n".join(items), 60)
    assert all(text.startswith("- item") for text in pieces)


def test_an_item_that_is_too_large_is_cut_between_its_own_items() -> None:
    pieces = texts("- outer\n" + "\n".join(f"  - inner number {number}" for number in range(30)), 50)
    assert all(text.startswith(("- outer", "  - inner")) for text in pieces)


def test_a_passage_begins_with_the_indentation_of_its_first_line() -> None:
    body = "\n\n".join(f"    def number_{number}(self):\n        return {number}" for number in range(30))
    parsed = parse(f"class Numbers:\n{body}\n".encode(), "a.py")
    cuts = passages(parsed, token_spans=word_spans, limit=40)
    pieces = [parsed.text[passage.start : passage.end] for passage in cuts]
    assert len(pieces) > 3
    assert all(text.startswith(("class", "    def")) for text in pieces)
    assert [text.count("    def") for text in pieces] == [text.count("return") for text in pieces]


def test_a_table_is_cut_between_its_rows() -> None:
    rows = [f"| {number} | some words |" for number in range(40)]
    pieces = texts("\n".join(["| a | b |", "|---|---|", *rows]), 60)
    assert all(text.startswith("|") and text.endswith("|") for text in pieces)


def test_code_stays_whole_where_it_fits() -> None:
    code = "```python\n" + "x = 1\n\n" * 15 + "```"
    assert texts(f"{sentences(10)}\n\n{code}\n\n{sentences(10)}", 60) == [sentences(10), code, sentences(10)]


@pytest.mark.parametrize("colon", [":", "\uff1a", ":**"])
def test_what_ends_with_a_colon_goes_with_the_beginning_of_what_it_introduces(colon: str) -> None:
    introduction, code = f"**This prints{colon}", "```python\n" + "x = 1\n" * 15 + "```"
    items = "\n".join(f"- item number {number}" for number in range(30))
    assert texts(f"{sentences(11)}\n\n{introduction}\n\n{code}", 60) == [
        sentences(11),
        f"{introduction}\n\n{code}",
    ]
    first, *_ = texts(f"{introduction}\n\n{items}", 60)
    assert first.startswith(f"{introduction}\n\n- item number 0\n- item number 1\n")
    long = f"{sentences(3)} {introduction}"
    assert texts(f"{long}\n\n{sentences(10)}", 60) == [long, sentences(10)]


def test_code_that_is_too_large_is_cut_before_the_outermost_lines() -> None:
    function = "def f():\n    a = 1\n\n    b = 2\n\n    return a + b"
    pieces = texts("```\n" + "\n\n\n".join([function] * 8) + "\n```", 50)
    assert all(text.removeprefix("```\n").startswith("def f():") for text in pieces)


def test_a_word_without_end_is_cut_by_characters() -> None:
    pieces = texts("x" * 10_000, 50)
    assert "".join(pieces) == "x" * 10_000
    assert max(map(len, pieces)) == CHARACTERS_PER_TOKEN * (50 - len(word_spans("T")))


def test_a_text_larger_than_what_is_tokenized_at_once_is_cut_like_any_other() -> None:
    text = sentences(WINDOW // 20)
    pieces = texts(text, 101)
    assert {len(word_spans(passage)) for passage in pieces[:-1]} == {100}
    assert " ".join(pieces) == text


@pytest.mark.parametrize("blank", [" " * 100_000, "\n" * 100_000, "\n \t" * 30_000])
def test_much_white_space_is_in_no_passage(blank: str) -> None:
    assert [text.strip() for text in texts(f"one{blank}two", 32)] == ["one", "two"]
    assert max(map(len, texts(f"one{blank}two", 32))) < 10


def test_the_section_is_the_heading_path_over_the_first_block() -> None:
    cuts = cut(f"# A\n\n{sentences(10)}\n\n## B\n\n### C\n\n{sentences(10)}\n\n## D\n\n{sentences(10)}", 254)
    assert [passage.section for passage in cuts] == [("A",), ("A", "B", "C"), ("A", "D")]


def test_the_context_is_the_title_and_the_headings_that_the_text_does_not_show() -> None:
    cuts = cut(f"# A\n\n{sentences(10)}\n\n## B\n\n{sentences(60)}", 254)
    assert [passage.context for passage in cuts] == ["T", "T > A", "T > A > B"]


def test_a_first_heading_that_repeats_the_title_is_not_in_the_context() -> None:
    assert {passage.context for passage in cut(f"# t\n\n{sentences(60)}", 254)} == {"T"}


def test_a_context_that_takes_over_a_quarter_keeps_the_title_and_the_nearest_headings() -> None:
    outer, inner = "outer " * 7, "inner " * 7
    cuts = cut(f"# {outer}\n\n## {inner}\n\n{sentences(20)}", 40)
    assert cuts[-1].context == "T > " + inner.strip()


def test_headings_below_hundreds_of_others_cost_no_more_than_the_nearest_ones() -> None:
    text = "".join(f"{'*' * level} a\n\nb\n\n" for level in range(1, 301))
    calls = 0

    def counted(text: str) -> list[tuple[int, int]]:
        nonlocal calls
        calls += 1
        return word_spans(text)

    passages(parse(text.encode(), "a.org"), token_spans=counted, limit=40)
    assert calls < 300 * 2 * 40


def test_the_context_of_the_first_passage_can_be_the_longest() -> None:
    outer, inner = "outer " * 7, "inner " * 9
    cuts = cut(f"# {outer}\n\n{sentences(4)}\n\n## {inner}\n\n{'go ' * 100}", 40)
    assert [len(word_spans(passage.context)) for passage in cuts[1:3]] == [9, 1]
    assert all(len(word_spans(passage.context)) + passage.tokens <= 40 for passage in cuts)


def test_a_title_that_takes_over_a_quarter_is_no_context() -> None:
    title = "word " * 30
    [passage] = passages(document("Text.", title), token_spans=word_spans, limit=100)
    assert passage.context == ""


def test_a_passage_is_on_the_page_where_it_begins() -> None:
    text = "\n\n".join([sentences(10)] * 3)
    blocks = parse(text.encode(), "a.txt").blocks
    paged = Document(text, "T", "application/pdf", blocks, pages=tuple(block.start for block in blocks))
    cuts = passages(paged, token_spans=word_spans, limit=80)
    assert [passage.page for passage in cuts] == [1, 2, 3]
    assert [passage.page for passage in cut(text, 80)] == [None] * 3


def test_every_section_has_passages_of_its_own() -> None:
    sections = [f"## Section {number}\n\n{sentences(number % 12 + 1)}" for number in range(60)]
    cuts = cut("# T\n\n" + "\n\n".join(sections), 254)
    assert [passage.section[-1] for passage in cuts] == [f"Section {number}" for number in range(60)]
    assert min(passage.tokens for passage in cuts) < MIN_TOKENS


def test_other_names_of_a_note_are_context_beside_its_title() -> None:
    entries = "---\naliases: [k8s, /old/address/, Steuermann]\n---\n"
    document = parse(f"{entries}# Kubernetes\n\nA scheduler.\n".encode(), "a.md")
    contexts = [passage.context for passage in passages(document, token_spans=MODEL_SPANS, limit=64)]
    assert contexts[0] == "Kubernetes (k8s, Steuermann)"
    assert "old" not in "".join(contexts)


@pytest.mark.parametrize("body", ["# Ann\n\nSings.", "## Morning\n\nSings.", f"{sentences(50)}"])
def test_properties_are_the_beginning_of_the_first_passage(body: str) -> None:
    names = ("phone", "birthday", "company", "owner", "due", "status")
    entries = "\n".join(f"{name}: some words of it" for name in names)
    document = parse(f"---\n{entries}\n---\n{body}".encode(), "a.md")
    first, *_ = passages(document, token_spans=word_spans, limit=120)
    text = document.text[first.start : first.end]
    assert text.startswith("phone: some words of it")
    assert text.split("status: some words of it")[1].strip().startswith(body[:15])
    assert first.section == tuple(heading.title for heading in document.outline)


# Each strategy of cutting, its sizes, and which one applies.

PROSE = """# Handbook

Introduction of the handbook here.

## Leave

One two three. Four five six. Seven eight nine.

## Travel

Ten eleven twelve. Thirteen fourteen fifteen.
"""
TABLE = "# Prices\n\n| item | price |\n|---|---|\n| pen | 1 |\n| ink | 2 |\n| pad | 3 |\n"


@pytest.fixture
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short chunks are, they stay apart."""
    monkeypatch.setattr(chunk, "MIN_TOKENS", 0)


def cut_texts(text: str, chunking: Chunking, limit: int = 100, name: str = "a.md") -> list[str]:
    document = parse(text.encode(), name)
    cuts = passages(document, token_spans=word_spans, limit=limit, chunking=chunking)
    assert [passage.seq for passage in cuts] == list(range(len(cuts)))
    for passage in cuts:
        text_of = document.text[passage.start : passage.end]
        assert len(word_spans(passage.context)) + len(word_spans(text_of)) <= limit
        assert passage.tokens == len(word_spans(text_of))
    return [document.text[passage.start : passage.end] for passage in cuts]


@pytest.mark.usefixtures("any_length")
def test_structure_keeps_sections_apart_that_are_large_enough() -> None:
    pieces = cut_texts(PROSE, Chunking())
    assert [piece.splitlines()[0] for piece in pieces] == ["# Handbook", "## Leave", "## Travel"]


def test_a_passage_under_the_minimum_is_joined_to_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "MIN_TOKENS", 9)
    assert len(cut_texts(PROSE, Chunking())) == 2  # the introduction belongs to the first subsection


def test_sentences_stay_whole_and_headings_do_not_matter() -> None:
    pieces = cut_texts(PROSE, Chunking("sentence"), limit=16)
    assert " ".join(" ".join(pieces).split()) == " ".join(PROSE.split())
    assert any("## Travel" in piece and "Seven eight nine." in piece for piece in pieces)
    assert all(piece.endswith((".", "Handbook", "Leave", "Travel")) for piece in pieces)


def test_passages_by_tokens_have_one_size() -> None:
    pieces = cut_texts("word " * 95, Chunking("tokens"), limit=21, name="a.txt")
    assert len({len(word_spans(piece)) for piece in pieces[:-1]}) == 1
    assert sum(len(word_spans(piece)) for piece in pieces) == 95


def test_overlap_repeats_the_end_of_the_passage_before() -> None:
    numbers = " ".join(map(str, range(60)))
    pieces = [words_of.split() for words_of in cut_texts(numbers, Chunking("tokens", overlap=5), 25, "a.txt")]
    assert len(pieces) > 2
    for before, after in pairwise(pieces):
        assert after[:5] == before[-5:]


def test_overlap_begins_with_a_whole_sentence_where_there_is_one() -> None:
    text = " ".join(f"Sentence {number} ends." for number in range(20))
    pieces = cut_texts(text, Chunking("sentence", overlap=4), 20, "a.txt")
    assert len(pieces) > 2
    assert all(piece.startswith("Sentence") for piece in pieces)
    assert pieces[1].split(".")[0] == pieces[0].split(".")[-2].strip()


@pytest.mark.usefixtures("any_length")
def test_passages_by_structure_do_not_overlap() -> None:
    assert cut_texts(PROSE, Chunking(overlap=20)) == cut_texts(PROSE, Chunking())


def test_each_page_is_a_passage_and_a_large_one_several() -> None:
    text = "First page.\fSecond page here.\f" + "word " * 50
    starts = (0, text.index("Second"), text.index("word"))
    blocks = (Block("paragraph", 0, 11), Block("paragraph", 12, len(text.rstrip())))
    document = Document(text, "T", "application/pdf", blocks, pages=starts)
    cuts = passages(document, token_spans=word_spans, limit=30, chunking=Chunking("page"))
    assert [passage.page for passage in cuts] == [1, 2, 3, 3]
    assert text[cuts[1].start : cuts[1].end] == "Second page here."


def test_a_document_without_pages_is_cut_as_few_times_as_possible() -> None:
    assert cut_texts(PROSE, Chunking("page")) == cut_texts(PROSE, Chunking("document")) == [PROSE.strip()]


def test_each_row_is_a_passage_with_its_header() -> None:
    document = parse(TABLE.encode(), "a.md")
    cuts = passages(document, token_spans=word_spans, limit=100, chunking=Chunking("row"))
    rows = [passage for passage in cuts if "| item | price |" in passage.context]
    assert [document.text[passage.start : passage.end] for passage in rows] == [
        "| pen | 1 |",
        "| ink | 2 |",
        "| pad | 3 |",
    ]
    assert len(passages(document, token_spans=word_spans, limit=100)) == 1


def test_code_in_a_document_is_cut_at_its_lines() -> None:
    text = "\n".join(f"step {number}. then more. and more" for number in range(12))
    pieces = cut_texts(text, Chunking("code", headers=False), 30, "a.txt")
    assert all(piece.startswith("step") and piece.endswith("more") for piece in pieces)


@pytest.mark.usefixtures("any_length")
def test_without_headers_only_the_text_is_embedded() -> None:
    document = parse(PROSE.encode(), "a.md")
    for strategy in ("structure", "sentence"):
        chunking = Chunking(strategy, headers=False)
        cuts = passages(document, token_spans=word_spans, limit=20, chunking=chunking)
        assert {passage.context for passage in cuts} == {""}
        assert any(passage.section for passage in cuts)  # citations name it all the same


def test_the_first_pattern_that_matches_applies() -> None:
    chunkings = (Chunking("row", match="*.csv"), Chunking("page", match="slides/*"), Chunking("sentence"))
    chosen = [chunking_of(name, chunkings, 254).strategy for name in ("slides/a.csv", "slides/a.pdf", "a.md")]
    assert chosen == ["row", "page", "sentence"]
    assert chunking_of("a.md", (), 99) == Chunking(max_tokens=99)


@pytest.mark.parametrize(
    "variant",
    [
        Chunking("sentence"),
        Chunking(max_tokens=99),
        Chunking(overlap=9),
        Chunking(headers=False),
    ],
)
def test_every_part_of_a_chunking_is_part_of_the_digest(variant: Chunking) -> None:
    assert cut_key(Chunking(max_tokens=254), 512) == "254"
    assert cut_key(variant, 254) not in {"254", cut_key(Chunking("code"), 254)}


def test_a_match_is_no_part_of_the_digest() -> None:
    assert cut_key(Chunking("row", match="*.csv"), 254) == cut_key(Chunking("row"), 254)


# Where a rich document is cut. Run this file to write the expectation anew, and read the
# difference.

DATA = Path(__file__).with_name("data")
EXPECTED = DATA / "rich.json"


def rich_passages() -> list[dict[str, object]]:
    document = parse((DATA / "rich.md").read_bytes(), "rich.md")
    spans = Tokens(BUILTIN_MODEL / "tokenizer.json").spans
    return [
        {
            "section": " > ".join(passage.section),
            "context": passage.context,
            "tokens": passage.tokens,
            "text": document.text[passage.start : passage.end].split("\n"),
        }
        for passage in passages(document, token_spans=spans, limit=254)
    ]


def test_a_rich_document_is_cut_where_it_always_was() -> None:
    assert rich_passages() == json.loads(EXPECTED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    EXPECTED.write_text(json.dumps(rich_passages(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

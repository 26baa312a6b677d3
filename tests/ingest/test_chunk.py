"""Passages: what always holds, and where documents are cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.corpus import Document, Passage
from rag.errors import ParseError
from rag.ingest.chunk import USUAL, passages
from rag.ingest.parse.parsers import parse
from rag.ingest.split_text import CHARACTERS_PER_TOKEN, WINDOW
from rag.models.tokenizer import BUILTIN_MODEL, Tokens
from rag.text.segments import with_indent

if TYPE_CHECKING:
    from rag.ingest.split_text import TokenSpans

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


def words(text: str) -> list[tuple[int, int]]:
    """A tokenizer that a reader can count with: a token is a word."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def cut(markdown: str, limit: int, title: str = "T") -> list[Passage]:
    return passages(document(markdown, title), token_spans=words, limit=limit)


def document(markdown: str, title: str = "T") -> Document:
    parsed = parse(markdown.encode(), "a.md")
    return Document(parsed.text, title, parsed.mime_type, parsed.blocks)


def texts(markdown: str, limit: int) -> list[str]:
    return [markdown[passage.start : passage.end] for passage in cut(markdown, limit)]


def sentences(count: int) -> str:
    return " ".join(f"This is sentence number {number}." for number in range(count))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, NAMES, st.sampled_from([MODEL_SPANS, words]), st.sampled_from([8, 24, 32, 40, 254]))
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
    one, two = f"# One\n\n{sentences(8)}", f"# Two\n\n{sentences(8)}"
    assert texts(f"{one}\n\n{two}", 254) == [one, two]


def test_small_sections_stay_apart_so_that_each_is_cited_as_itself() -> None:
    small = [f"## {name}\n\nSmall." for name in "ABC"]
    assert texts("\n\n".join(small), 254) == small
    assert texts("\n\n".join(["# FAQ", *small]), 254) == [f"# FAQ\n\n{small[0]}", *small[1:]]
    found = cut("\n\n".join(["# FAQ", *small]), 254)
    assert [passage.section for passage in found] == [("FAQ", "A"), ("FAQ", "B"), ("FAQ", "C")]
    assert [passage.context for passage in found] == ["T", "T > FAQ", "T > FAQ"]


def test_a_small_introduction_joins_the_first_subsection_and_no_other() -> None:
    small = [f"## {name}\n\nSmall." for name in "ABC"]
    found = cut("\n\n".join(["# FAQ\n\nAsked by many.", *small, "# Other\n\nSmall."]), 254)
    assert [passage.section for passage in found] == [("FAQ",), ("FAQ", "B"), ("FAQ", "C"), ("Other",)]


def test_a_small_section_does_not_join_one_outside_its_parent_heading() -> None:
    outer = f"# Outer\n\n{sentences(8)}\n\n## Inner\n\n{sentences(49)}"
    last, other = f"## Last\n\n{sentences(1)}", f"# Other\n\n{sentences(8)}"
    assert texts(f"{outer}\n\n{last}\n\n{other}", 254)[-2:] == [last, other]


def test_a_heading_goes_with_what_follows_it() -> None:
    found = texts(f"{sentences(15)}\n\n# A\n\n## B\n\n{sentences(15)}", 100)
    assert found == [sentences(15), f"# A\n\n## B\n\n{sentences(15)}"]


def test_a_heading_takes_the_beginning_of_what_does_not_fit_beside_it() -> None:
    heading = "# A heading of six words"
    found = texts(f"{heading}\n\n{sentences(16)}", 85)
    assert found == [f"{heading}\n\n{sentences(15)}", "This is sentence number 15."]


def test_a_heading_of_few_tokens_and_many_characters_leaves_less_room() -> None:
    found = texts(f"# {'x' * 200}\n\n{'y' * 500}", 50)
    assert found[0].startswith("# xx")
    assert max(map(len, found)) <= CHARACTERS_PER_TOKEN * 50


def test_a_paragraph_is_cut_between_sentences() -> None:
    found = texts(sentences(60), 101)
    assert len(found) == 3
    assert all(text.endswith(".") and text.startswith("This") for text in found)


def test_a_paragraph_is_not_cut_after_an_abbreviation() -> None:
    found = texts("The watch of Dr. Harrison was a little slow at sea. " * 30, 51)
    assert len(found) > 5
    assert all(text.startswith("The watch") and text.endswith("sea.") for text in found)


def test_a_sentence_without_end_is_cut_between_words() -> None:
    assert texts("so it goes " * 60, 51)[0] == ("so it goes " * 16 + "so it").strip()


def test_a_list_is_cut_between_its_items() -> None:
    items = [f"- item {number}:\n  - inner one\n  - inner two" for number in range(30)]
    found = texts("\n".join(items), 60)
    assert all(text.startswith("- item") for text in found)


def test_an_item_that_is_too_large_is_cut_between_its_own_items() -> None:
    found = texts("- outer\n" + "\n".join(f"  - inner number {number}" for number in range(30)), 50)
    assert all(text.startswith(("- outer", "  - inner")) for text in found)


def test_a_passage_begins_with_the_indentation_of_its_first_line() -> None:
    body = "\n\n".join(f"    def number_{number}(self):\n        return {number}" for number in range(30))
    parsed = parse(f"class Numbers:\n{body}\n".encode(), "a.py")
    cuts = passages(parsed, token_spans=words, limit=40)
    found = [parsed.text[passage.start : passage.end] for passage in cuts]
    assert len(found) > 3
    assert all(text.startswith(("class", "    def")) for text in found)
    assert [text.count("    def") for text in found] == [text.count("return") for text in found]


def test_a_table_is_cut_between_its_rows() -> None:
    rows = [f"| {number} | some words |" for number in range(40)]
    found = texts("\n".join(["| a | b |", "|---|---|", *rows]), 60)
    assert all(text.startswith("|") and text.endswith("|") for text in found)


def test_code_stays_whole_where_it_fits() -> None:
    code = "```python\n" + "x = 1\n\n" * 15 + "```"
    assert texts(f"{sentences(10)}\n\n{code}\n\n{sentences(10)}", 60) == [sentences(10), code, sentences(10)]


def test_code_that_is_too_large_is_cut_before_the_outermost_lines() -> None:
    function = "def f():\n    a = 1\n\n    b = 2\n\n    return a + b"
    found = texts("```\n" + "\n\n\n".join([function] * 8) + "\n```", 50)
    assert all(text.removeprefix("```\n").startswith("def f():") for text in found)


def test_a_word_without_end_is_cut_by_characters() -> None:
    found = texts("x" * 10_000, 50)
    assert "".join(found) == "x" * 10_000
    assert max(map(len, found)) == CHARACTERS_PER_TOKEN * (50 - len(words("T")))


def test_a_text_larger_than_what_is_tokenized_at_once_is_cut_like_any_other() -> None:
    text = sentences(WINDOW // 20)
    found = texts(text, 101)
    assert {len(words(passage)) for passage in found[:-1]} == {100}
    assert " ".join(found) == text


@pytest.mark.parametrize("blank", [" " * 100_000, "\n" * 100_000, "\n \t" * 30_000])
def test_much_white_space_is_in_no_passage(blank: str) -> None:
    assert [text.strip() for text in texts(f"one{blank}two", 32)] == ["one", "two"]
    assert max(map(len, texts(f"one{blank}two", 32))) < 10


def test_the_section_is_the_heading_path_over_the_first_block() -> None:
    found = cut(f"# A\n\n{sentences(10)}\n\n## B\n\n### C\n\n{sentences(10)}\n\n## D\n\n{sentences(10)}", 254)
    assert [passage.section for passage in found] == [("A",), ("A", "B", "C"), ("A", "D")]


def test_the_context_is_the_title_and_the_headings_that_the_text_does_not_show() -> None:
    found = cut(f"# A\n\n{sentences(10)}\n\n## B\n\n{sentences(60)}", 254)
    assert [passage.context for passage in found] == ["T", "T > A", "T > A > B"]


def test_a_first_heading_that_repeats_the_title_is_not_in_the_context() -> None:
    assert {passage.context for passage in cut(f"# t\n\n{sentences(60)}", 254)} == {"T"}


def test_a_context_that_takes_over_a_quarter_keeps_the_title_and_the_nearest_headings() -> None:
    outer, inner = "outer " * 7, "inner " * 7
    found = cut(f"# {outer}\n\n## {inner}\n\n{sentences(20)}", 40)
    assert found[-1].context == "T > " + inner.strip()


def test_headings_below_hundreds_of_others_cost_no_more_than_the_nearest_ones() -> None:
    text = "".join(f"{'*' * level} a\n\nb\n\n" for level in range(1, 301))
    calls = 0

    def counted(text: str) -> list[tuple[int, int]]:
        nonlocal calls
        calls += 1
        return words(text)

    passages(parse(text.encode(), "a.org"), token_spans=counted, limit=40)
    assert calls < 300 * 2 * 40


def test_the_context_of_the_first_passage_can_be_the_longest() -> None:
    outer, inner = "outer " * 7, "inner " * 9
    found = cut(f"# {outer}\n\n{sentences(4)}\n\n## {inner}\n\n{'go ' * 100}", 40)
    assert [len(words(passage.context)) for passage in found[1:3]] == [9, 1]
    assert all(len(words(passage.context)) + passage.tokens <= 40 for passage in found)


def test_a_title_that_takes_over_a_quarter_is_no_context() -> None:
    title = "word " * 30
    [found] = passages(document("Text.", title), token_spans=words, limit=100)
    assert found.context == ""


def test_a_passage_is_on_the_page_where_it_begins() -> None:
    text = "\n\n".join([sentences(10)] * 3)
    blocks = parse(text.encode(), "a.txt").blocks
    paged = Document(text, "T", "application/pdf", blocks, pages=tuple(block.start for block in blocks))
    found = passages(paged, token_spans=words, limit=80)
    assert [passage.page for passage in found] == [1, 2, 3]
    assert [passage.page for passage in cut(text, 80)] == [None] * 3


def test_every_section_has_passages_of_its_own() -> None:
    sections = [f"## Section {number}\n\n{sentences(number % 12 + 1)}" for number in range(60)]
    found = cut("# T\n\n" + "\n\n".join(sections), 254)
    assert [passage.section[-1] for passage in found] == [f"Section {number}" for number in range(60)]
    assert min(passage.tokens for passage in found) < USUAL.min_tokens


def test_other_names_of_a_note_are_context_beside_its_title() -> None:
    entries = "---\naliases: [k8s, /old/address/, Steuermann]\n---\n"
    document = parse(f"{entries}# Kubernetes\n\nA scheduler.\n".encode(), "a.md")
    contexts = [one.context for one in passages(document, token_spans=MODEL_SPANS, limit=64)]
    assert contexts[0] == "Kubernetes (k8s, Steuermann)"
    assert "old" not in "".join(contexts)

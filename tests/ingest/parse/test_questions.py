"""Questions with answers: each passage of an answer is cited by its question."""

from __future__ import annotations

import pytest

from rag.corpus import Block, Chunking, Document
from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import parse
from rag.models.text_encoder import BUILTIN_MODEL, Tokens
from tests.ingest.parse.packages import heading, p, word

SPANS = Tokens(BUILTIN_MODEL / "tokenizer.json").spans
FIRST, SECOND = "How long may I keep a key?", "What if I lose it?"
BOLD = "<w:b/>"


def answer(sign: str) -> str:
    """Six paragraphs, each with the sign of its answer."""
    return "\n\n".join(
        f"{sign}-{number} says: the porter writes the number of the key into the book by the door. " * 4
        for number in range(6)
    )


def sections(data: bytes | str, name: str, *, limit: int = 128) -> list[tuple[str, str]]:
    """Of each passage, its innermost section and its text."""
    document = parse(data.encode() if isinstance(data, str) else data, name)
    cut = passages(document, token_spans=SPANS, limit=limit)
    return [
        (passage.section[-1] if passage.section else "", document.text[passage.start : passage.end])
        for passage in cut
    ]


FORMS = {
    "heading.md": "# FAQ\n\n## {0}\n\n{2}\n\n## {1}\n\n{3}\n",
    "bold.md": "# FAQ\n\n**{0}**\n\n{2}\n\n__{1}__\n\n{3}\n",
    "above.md": "# FAQ\n\n**{0}**\n{2}\n\n**{1}**  \n{3}\n",
    "numbers.md": "# FAQ\n\n**1. {0}**\n\n{2}\n\n2. **{1}**\n\n   {3}\n",
    "marks.md": "# FAQ\n\n**Q:** {0}\n\n**A:** {2}\n\n**Q: {1}**\n\nA: {3}\n",
    "numbered.md": "# FAQ\n\n**Q1. {0}**\n{2}\n\n**Q2 - {1}**\n\n{3}\n",
    "marks.txt": "Q1: {0}\nA1: {2}\n\nQ2. {1}\n\nA2. {3}\n",
    "german.txt": "Frage: {0}\nAntwort: {2}\n\nF: {1}\nA: {3}\n",
    "details.md": "# FAQ\n\n<details>\n<summary>{0}</summary>\n\n{2}\n\n</details>\n"
    "<details><summary><b>{1}</b></summary>\n\n{3}\n</details>\n",
    "terms.html": "<h1>FAQ</h1><dl><dt>{0}</dt><dd>{2}</dd><dt><b>{1}</b></dt><dd><p>{3}</p></dd></dl>",
    "details.html": "<h1>FAQ</h1><details><summary>{0}</summary>{2}</details>"
    "<details><summary><h3>{1}</h3></summary><p>{3}</p></details>",
    "bold.html": "<h1>FAQ</h1><p><strong>{0}</strong></p><p>{2}</p><b>{1}</b><p>{3}</p>",
    "button.html": "<h1>FAQ</h1><button class=acc>{0}</button><div>{2}</div><button>{1}</button><p>{3}</p>",
    "a.adoc": "= FAQ\n\n*{0}*\n\n{2}\n\n[qanda]\n{1}::\n  {3}\n",
    "a.org": "* FAQ\n\n*{0}*\n\n{2}\n\n*{1}*\n\n{3}\n",
    "a.rst": "FAQ\n===\n\n**{0}**\n\n{2}\n\n{1}\n  {3}\n",
    "a.csv": 'id,question,answer\n1,"{0}","{2}"\n2,"{1}","{3}"\n',
}


@pytest.mark.parametrize("name", FORMS)
def test_each_passage_of_an_answer_is_cited_by_its_question(name: str) -> None:
    written = FORMS[name].format(FIRST, SECOND, answer("ALPHA"), answer("OMEGA"))
    cut = sections(written, name)
    for sign, question in (("ALPHA-", FIRST), ("OMEGA-", SECOND)):
        cited = [section for section, text in cut if sign in text]
        assert len(cited) > 3
        assert {*cited} == {question}


def test_bold_questions_of_a_word_file_head_their_answers_beside_headings() -> None:
    body = heading("FAQ") + p(FIRST, run=BOLD) + p(answer("ALPHA")) + p(SECOND, run=BOLD) + p(answer("OMEGA"))
    cut = sections(word(body), "a.docx")
    assert {section for section, text in cut if "ALPHA-" in text} == {FIRST}
    assert {section for section, text in cut if "OMEGA-" in text} == {SECOND}


@pytest.mark.parametrize(
    "written",
    [
        "# T\n\n**Is it on?** Then go.\n\nText.",
        "# T\n\nHe asked:\n**is it on?**\nand went.\n\nText.",
        "# T\n\n**Note**\n\nText.",
        "# T\n\n- **Is it on?**\n- **Is it off?**\n\nText.",
        "# T\n\n**Is it on?**\n\n## U\n\nText.",
        "# T\n\n```\nQ: Is it on?\nA: Yes\n```",
        "# T\n\nP: some letter\n\nText.",
        "# T\n\n| Q: Is it on? | A: Yes |\n|---|---|\n| a | b |",
    ],
)
def test_what_only_looks_like_a_question_heads_nothing(written: str) -> None:
    titles = [heading.title for heading in parse(written.encode(), "a.md").outline]
    assert titles == ([*"TU"] if "## U" in written else ["T"])


def test_a_question_is_one_level_below_the_heading_above_it() -> None:
    text = "# FAQ\n\n## Keys\n\n**Where?**\n\nThere.\n\n**When?**\n\nNow.\n\n## Doors\n\nText."
    outline = [(heading.level, heading.title) for heading in parse(text.encode(), "a.md").outline]
    assert outline == [(1, "FAQ"), (2, "Keys"), (3, "Where?"), (3, "When?"), (2, "Doors")]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a.md", "# FAQ\n\n<details>\n<summary>Opening</summary>\n\nAt ten.\n\n</details>\n\nCall us.\n"),
        ("a.html", "<h1>FAQ</h1><details><summary>Opening</summary>At ten.</details><p>Call us.</p>"),
        (
            "c.html",
            "<h1>FAQ</h1><ul><li><details><summary>Opening?</summary>At ten.</details></ul><p>Call us.</p>",
        ),
        ("b.html", "<h1>FAQ</h1><dl><dt>Opening?</dt><dd>At ten.</dd></dl><p>Call us.</p>"),
    ],
)
@pytest.mark.parametrize("strategy", ["structure", "code", "row"])
def test_what_follows_a_piece_that_a_reader_opens_is_not_under_its_label(
    name: str, written: str, strategy: str
) -> None:
    document = parse(written.encode(), name)
    cut = passages(document, token_spans=SPANS, limit=128, chunking=Chunking(strategy=strategy))  # type: ignore[arg-type]
    by_text = {document.text[passage.start : passage.end]: passage.section for passage in cut}
    label = "Opening?" if "?" in written else "Opening"
    assert next(section for text, section in by_text.items() if "At ten" in text)[-1] == label
    assert by_text["Call us."] == ("FAQ",)


def test_terms_with_short_texts_share_passages() -> None:
    glossary = "<h1>G</h1><dl><dt>Key</dt><dd>Opens.</dd><dt>Door</dt><dd>Is opened.</dd></dl>"
    assert len(sections(glossary, "a.html")) == 1


@pytest.mark.parametrize("limit", [8, 64])
def test_an_empty_heading_ends_a_section_and_is_no_part_of_a_passage(limit: int) -> None:
    text = "one two three four five six seven\n\nText."
    blocks = (Block("heading", 0, 33, 1, "one"), Block("heading", 35, 35, 1), Block("paragraph", 35, 40))
    cut = passages(Document(text, "T", "", blocks), token_spans=SPANS, limit=limit)
    assert all(
        text[passage.start : passage.end].strip() == text[passage.start : passage.end] for passage in cut
    )
    assert cut[-1].end == len(text)
    assert cut[-1].section == () or len(cut) == 1


def test_what_introduces_questions_is_no_part_of_the_first_answer() -> None:
    text = "# FAQ\n\nAsk us.\n\n**Where?**\n\nThere."
    assert sections(text, "a.md") == [("FAQ", "# FAQ\n\nAsk us."), ("Where?", "**Where?**\n\nThere.")]
    assert len(sections(text.replace("**Where?**", "## Place"), "a.md")) == 1

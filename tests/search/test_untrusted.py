"""Document text for a model: nothing that a renderer would fetch."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rag.search.untrusted import MAX_LABEL_CHARS, label, without_images

RENDERERS = (MarkdownIt("commonmark"), MarkdownIt("commonmark", {"html": False}), MarkdownIt("js-default"))
URL = "http://evil.example/?q=1"
PIECES = [
    *("!", "[", "]", "(", ")", "<", ">", "\\", "`", "*", "a", " ", "\n", "\n\n", "\r", "\t", '"'),
    *("```", "~~~", "````", "\n```\n", "\n~~~\n", "\n``` x\n", "- ", "> ", "1. ", "   ", "    "),
    *(URL, f"]({URL})", f"![a]({URL})", "![r]", "![r][]", f"\n[r]: {URL}\n", f"<{URL}>"),
    *(f'<img src="{URL}">', f"<img alt='!' src={URL}", "<IMG", "<image ", "<div>", "</div>", "<!--", "-->"),
]


def _fetched(text: str) -> list[str]:
    """The images that a renderer would fetch for a text."""
    pages = [renderer.render(text) for renderer in RENDERERS]
    return [page for page in pages if re.search(r"<(img|image)[\s/>]", page, re.IGNORECASE)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![a map](http://x/y.png)", r"!\[a map](http://x/y.png)"),
        ("![a [nested] map](x(1).png)", r"!\[a [nested] map](x(1).png)"),
        ("![a map][ref] and ![b][]", r"!\[a map][ref] and !\[b][]"),
        (f"![ref]\n\n[ref]: {URL}", f"!\\[ref]\n\n[ref]: {URL}"),
        ('<img src="x.png" alt="a map">', '&lt;img src="x.png" alt="a map">'),
        ("<IMG\nSRC=x.png />", "&lt;IMG\nSRC=x.png />"),
        ("[![logo](x.png)](http://x)", r"[!\[logo](x.png)](http://x)"),
        ("```\n![a](b)\n```", "```\n!\\[a](b)\n```"),
    ],
)
def test_an_image_is_shown_as_its_source(text: str, expected: str) -> None:
    assert without_images(text) == expected
    assert not _fetched(without_images(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no images",
        "a < b and b > c",
        "[a link](http://x)",
        "#![feature(test)]\nfn main() { let v = vec![1, 2]; }\n",
        "if (![1, 2].includes(x)) {}",
        "vec![1]\n\nsee [a link](http://x)",
        "Wow! [a](b)",
        "<imagination>",
    ],
)
def test_what_is_no_image_stays_byte_for_byte(text: str) -> None:
    assert without_images(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"![a [b [c]] d]({URL})",
        rf"![a\[b]({URL})",
        f"![a]({URL} 'un)bal(anced')",
        f"![a](<{URL}>)",
        f"![`]`]({URL})",
        f"![a\nb]({URL})",
        f"!![a](b)({URL})",
        f"!<img alt='x'>({URL})",
        f"!!!![a](b)(c)({URL})",
        f"![a [b [c]] d][r]\n\n[r]: {URL}",
        f"> ![r]\n\n> [r]: {URL}",
        f"<img alt='>' src={URL}>",
        f"<img src={URL} ",
    ],
)
def test_an_image_in_disguise_is_none_any_more(text: str) -> None:
    assert not _fetched(without_images(text))


@pytest.mark.parametrize(
    "text",
    [
        "```x```\n{}\n```b```",
        "~~~\ncode\n```\n~~~\n{}\n~~~\n",
        "````\n```\n````\n{}\n```\n",
        "```\n``` x\nmore\n```\n{}\n```",
        "<!--\n```\n-->\n{}\n```\n",
        "<div>\n```\n\n```\n{}\n```",
        "1. item\n\n   ```\n{}\n   ```\n",
        "> ```\n{}\n```\n\n",
        "<img src=x\n```\n{}\n```\n",
        "<!--\n![a](\n-->\n)\n```\n{}\n```\n",
        "a\rb\rc\r\n```\n```\n{}\n\n```\n```\n",
    ],
)
@pytest.mark.parametrize("image", [f"![a]({URL})", f"<img src='{URL}'>"])
def test_what_only_looks_like_a_fence_protects_no_image(text: str, image: str) -> None:
    assert not _fetched(without_images(text.format(image)))


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_no_text_makes_a_renderer_fetch_anything(text: str) -> None:
    assert not _fetched(without_images(text))


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_clean_stays_clean(text: str) -> None:
    once = without_images(text)
    assert not _fetched(without_images(once))
    assert not _fetched(label(text))


@pytest.mark.parametrize(
    "piece", ["!", "![", "<img ", "![a](", "![[a]", "![a](x", "!<img", "```a\n![x](y)\n", "]:!["]
)
def test_hostile_repetition_costs_no_more_than_its_length(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    assert len(without_images(text)) > 0
    assert len(label(text)) <= MAX_LABEL_CHARS


@given(st.text(max_size=400))
def test_a_label_is_one_printable_line_of_bounded_length(text: str) -> None:
    line = label(text)
    assert len(line) <= MAX_LABEL_CHARS
    assert line.isprintable()
    assert line == " ".join(line.split())


def test_a_label_keeps_its_words_and_shows_that_it_was_cut() -> None:
    assert label("  Häder \n\t 'one'\x1b[31m 😀 ") == "Häder 'one' [31m 😀"
    assert label("x" * 500) == "x" * (MAX_LABEL_CHARS - 1) + "…"
    assert label("![logo](http://x) Title") == r"!\[logo](http://x) Title"

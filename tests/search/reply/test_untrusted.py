"""Document text for a model: nothing hidden, and nothing that a renderer would fetch."""

from __future__ import annotations

import re
import tracemalloc
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rag.search.reply.untrusted import (
    MAX_LABEL_CHARS,
    alteration_notes,
    disarm,
    display_name,
    label,
    with_line_numbers,
)

RENDERERS = (MarkdownIt("commonmark"), MarkdownIt("commonmark", {"html": False}), MarkdownIt("js-default"))
URL = "http://evil.example/?q=1"
FETCHING = [  # what a browser asks for, and what leads it elsewhere
    f'<img src="{URL}">',
    f"<IMG\nSRCSET='{URL} 2x' />",
    f"<image href={URL}>",
    f'<picture><source srcset="{URL}"></picture>',
    f"<video poster={URL}></video>",
    f"<audio autoplay src={URL}></audio>",
    f'<input type="image" src="{URL}">',
    f'<svg><use href="{URL}#a"/><image xlink:href="{URL}"/></svg>',
    f'<p style="background: url({URL})">a</p>',
    f'<https://a style="background:url({URL})">',
    f"<style>@import url({URL}); p {{background: url({URL})}}</style>",
    f"<iframe src={URL}></iframe>",
    f"<object data={URL}></object>",
    f"<embed src={URL}>",
    f"<link rel=stylesheet href={URL}>",
    f"<script src={URL}></script>",
    f'<meta http-equiv="refresh" content="0;url={URL}">',
    f"<base href={URL}>",
    f"<form action={URL}><button autofocus>a</button></form>",
    f"<body background={URL}>",
    f"<table background='{URL}'>",
    f"<x-a onfocus=fetch('{URL}') autofocus tabindex=1>",
    f"<!-- --><img src={URL}>",
    f"<b title='>' onclick=fetch('{URL}')>",
    "<a href='java\nscript:fetch(1)'>",
    "<a href=javascript:fetch(1)>",
    f"<link\nrel=stylesheet\nhref={URL}>",
]
PIECES = [
    *("!", "[", "]", "(", ")", "<", ">", "\\", "`", "*", "a", " ", "\n", "\n\n", "\r", "\t", '"'),
    *("```", "~~~", "````", "\n```\n", "\n~~~\n", "\n``` x\n", "- ", "> ", "1. ", "   ", "    "),
    *(URL, f"]({URL})", f"![a]({URL})", "![r]", "![r][]", f"\n[r]: {URL}\n", f"<{URL}>", "]:", "\n["),
    *("\n[^r]: a a", "\n[^r]: ", "![^r]", "![[a]]", "![["),
    *(f"<img alt='!' src={URL}", "<IMG", "<image ", "<div>", "</div>", "<!--", "-->", "img ", "/", "?"),
    *("\n<pre>", "<PRE", "</pre>", "\n<textarea rows=2>", "</textarea>"),
    *("\u200b", "\u200d", "\ufe0f", "\u2028", "\x0b", "\x85", "\U000e0041", "☺", "می", "&lt;"),
    *FETCHING,
]
PIECE_TEXTS = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


LOADING = {
    "applet",
    "audio",
    "base",
    "body",
    "embed",
    "form",
    "frame",
    "html",
    "iframe",
    "image",
    "input",
} | {
    *("link", "meta", "object", "picture", "source", "track", "video"),
}
ATTRIBUTES = {"style", "src", "srcset", "background", "poster", "xlink:href", "action", "formaction"}


class Tags(HTMLParser):
    """The tags of a page that make a browser load or run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = any(value and (name in ATTRIBUTES or name.startswith("on")) for name, value in attrs)
        runs = any(
            name == "href" and re.match("javascript:", re.sub(r"\s", "", value or ""))
            for name, value in attrs
        )
        valued = any(value for _, value in attrs)
        if named or runs or tag in {"script", "style", "svg", "img"} or (tag in LOADING and valued):
            self.seen.append(tag)


def _rendered(text: str) -> list[str]:
    """What a browser loads or runs of a text as renderers of Markdown show it."""
    return [tag for renderer in RENDERERS for tag in Tags(renderer.render(text)).seen]


def _fetched(text: str) -> list[str]:
    """The same, and without code also as HTML."""
    return _rendered(text) + ([] if "`" in text or "~~~" in text else Tags(text).seen)


def _references(text: str) -> list[str]:
    """The addresses on other hosts that a Markdown text gives names to."""
    env: dict[str, dict[str, dict[str, str]]] = {}
    RENDERERS[0].parse(text, env)
    addresses = (target["href"] for target in env.get("references", {}).values())
    return [address for address in addresses if ":" in address or "//" in address]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![a map](http://x/y.png)", "! [a map](http://x/y.png)"),
        ("![a [nested] map](x(1).png)", "! [a [nested] map](x(1).png)"),
        ("![a map][ref] and ![b][]", "! [a map][ref] and ! [b][]"),
        (f"![ref]\n\n[ref]: {URL}", f"! [ref]\n\n[ref] : {URL}"),
        ('<img src="x.png" alt="a map">', '< img src="x.png" alt="a map">'),
        ("<IMG\nSRC=x.png />", "< IMG\nSRC=x.png />"),
        ("[![logo](x.png)](http://x)", "[! [logo](x.png)](http://x)"),
        ("```\n![a](b)\n```", "```\n! [a](b)\n```"),  # it may continue a fence
        ("a <!-- b --> c <![CDATA[d]]>", "a < !-- b --> c < ! [CDATA[d]]>"),
        ("<\u200biframe\ufe01 src=x>a\u202e</iframe>", "< iframe src=x>a< /iframe>"),
        ("![a [b]](x) vec![1]", "! [a [b]](x) vec![1]"),
        (f"[a]: b.html\n[r]: {URL}", f"[a]: b.html\n[r] : {URL}"),
        (f"[^1]: See [r]: {URL}", f"[^1]: See [r] : {URL}"),
        (f"[^1]: {URL}\n[^2]:\n  {URL}", f"[^1] : {URL}\n[^2] :\n  {URL}"),
        ("<pre>a</pre> <PRE>\nb", "<pre>a</pre> < PRE>\nb"),
        ("</textarea> <textarea </textarea x>", "</textarea> < textarea < /textarea x>"),
        (f"![[{URL}]] ![[//x/y]] ![[a]](x)", f"! [[{URL}]] ! [[//x/y]] ! [[a]](x)"),
        ("a\u2028b\u2029c\x85d\re", "a\nb\nc\nd\ne"),
    ],
)
def test_markup_that_fetches_is_shown_as_its_source(text: str, expected: str) -> None:
    assert disarm(text) == expected
    assert not _fetched(disarm(text))


@pytest.mark.parametrize("text", FETCHING)
def test_nothing_that_fetches_is_left_and_a_person_can_still_read_it(text: str) -> None:
    assert _fetched(text)
    for around in ("{}", "a {} b", "```html\n{}\n```", "> - {}", "    {}", "<div>\n{}"):
        whole = around.format(text)
        assert not _fetched(disarm(whole))
        assert disarm(whole).replace("< ", "<").replace("! [", "![") == whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no images",
        "a < b and b > c, a <= b << 1 <- 2 <3",
        "[a link](http://x) and [another][r]",
        "Wow! [a](b)",
        "if x[0]: y = z[1:2][i]: pass\nlet v: Vec[int]: a",
        "see [1], [2]: both",
        "deep.[^1] ![[Plan#Risks|risks]]\n\n[^1]: Measured in 2022.\n> [^note-2]: § 5, see https://x.example",
        "👩‍⚕️ می‌خواهم",
    ],
)
def test_what_fetches_nothing_stays_byte_for_byte(text: str) -> None:
    assert disarm(text) == text


@pytest.mark.parametrize(
    "code",
    [
        "fn f(x: Option<char>) -> Vec<Box<dyn Error>> { HashMap::<K, V>::new() }",
        '#![feature(test)]\nlet v = vec![1, 2];\nlet w = vec!["a\\n"]; // [docs](https://docs.rs)',
        "if (![1, 2].includes(x)) {}",
        "std::vector<std::pair<int,int>> v; std::set<Object> s;",
        "List<? extends T> a; Class<?> b; Map<String, List<Object>> c;",
        "impl<T: Fn() -> U, Item = X> A<Item = X> for B<T> {}",
        "cat <<EOF",
        "if a<b:\n    once = 1",
        "a <b> bold</b> word, <p id='x'>, <br/> and <a href=\"https://a.example\">a link</a>",
        "In prose, `<img src=x>` and ``![a](b)`` are code.",
        "```html\n<img src=x>\n<script>a()</script>\n<!-- b -->\n![a](b)\n```\n\nAfter.",
        "- An item:\n  ```html\n  <img src=x>\n  ```",
        "Say <pre>a</pre>, <textarea>b</textarea> and `<pre>`.",
    ],
)
def test_code_stays_byte_for_byte(code: str) -> None:
    assert disarm(code) == code
    assert not _fetched(code)


def test_a_plain_fence_stays_where_the_text_is_known_to_begin_outside_of_code() -> None:
    text = "Before.\n\n```\n<img src=x>\n```\n"
    assert disarm(text, from_prose=True) == text
    assert disarm(text) == text.replace("<", "< ")  # the first fence may end another one


def test_a_note_says_what_was_altered_and_only_if_something_was() -> None:
    assert alteration_notes([("a", "a"), ("Option<char>", disarm("Option<char>"))]) == []
    texts = ["<img src=x> ![a](b)", "pass\u200bword\u2028"]
    (note,) = alteration_notes((text, disarm(text)) for text in texts)
    for part in ("2 spaces", "1 hidden character removed", "1 other line end"):
        assert part in note


def test_a_fence_whose_lines_are_numbered_is_no_code_and_a_code_span_is() -> None:
    fence = with_line_numbers("~~~html\n<img src=x>\n~~~", 9)
    assert _fetched(fence)
    assert disarm(fence, from_prose=True) == fence.replace("<", "< ")
    span = with_line_numbers("Say `<img src=x>`.", 9)
    assert disarm(span, from_prose=True) == span


@given(PIECE_TEXTS, st.integers(1, 12))
def test_no_text_whose_lines_are_numbered_makes_a_renderer_fetch_anything(text: str, first: int) -> None:
    assert not _fetched(disarm(with_line_numbers(text, first), from_prose=True))


@pytest.mark.parametrize(
    "definition",
    [
        f"[r]: {URL}",
        f"  [r]: <{URL}> 'title'",
        f"> [r]:\n> {URL}",
        f"1. - [r]: {URL}",
        f"[a\nr]: {URL}",
        rf"[a\]r]: {URL}",
        f"\t> [r]: {URL}",
        f"+ * [r]: {URL}\n[s]: {URL}",
        f"[a[r]: {URL}",
    ],
)
def test_what_a_name_means_is_not_said_in_one_passage_for_another(definition: str) -> None:
    assert not _references(disarm(definition))
    assert "] :" in disarm(definition)
    assert not _fetched(f"![r]\n\n{disarm(definition)}".replace("![", "! ["))


@pytest.mark.parametrize("first", ["<pre>", "a\n<PRE\nb", "<pre></pre>\n<pre>", "<textarea rows=2>"])
@pytest.mark.parametrize("second", ["```html\n{}\n```", "`{}`"])
def test_an_element_that_a_text_leaves_open_makes_no_code_of_another_markup(first: str, second: str) -> None:
    code = second.format(f"<img src={URL}>")
    assert _fetched(f"{first}\n\n{code}")
    assert not _fetched(f"{disarm(first)}\n\n{disarm(code)}")
    assert disarm(code) == code  # it is the first text that is altered


@given(PIECE_TEXTS, PIECE_TEXTS)
def test_two_texts_beside_each_other_fetch_nothing_either(first: str, second: str) -> None:
    joined = f"{disarm(first)}\n\n{disarm(second)}"
    assert not _rendered(joined)
    assert not _references(joined)


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
        "<IMG<style>@import url(x)",  # an element of another name
        "<image ",
        "<video\n\n",
    ],
)
def test_an_image_in_disguise_is_none_any_more(text: str) -> None:
    assert not _fetched(disarm(text))


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
        "    ```\n{}\n    ```\n",
        "```\n{}",
        "code\n```\n\n{}\n\n```\ncode",
        "```\na … b\n```\n{}\n```",
        "`a\n\n{}`",
        "a \\`{}` b",
        "<b title='`'>{}<i title='`'>",
        "| a | b |\n|---|---|\n| `{} | b` |",
        "> ```\n{}\n```\n\n",
        "<img src=x\n```\n{}\n```\n",
        "<!--\n![a](\n-->\n)\n```\n{}\n```\n",
        "a\rb\rc\r\n```\n```\n{}\n\n```\n```\n",
    ],
)
@pytest.mark.parametrize("image", [f"![a]({URL})", f"<img src='{URL}'>"])
def test_what_only_looks_like_a_fence_protects_no_image(text: str, image: str) -> None:
    assert not _fetched(disarm(text.format(image)))


@given(PIECE_TEXTS)
def test_no_text_makes_a_renderer_fetch_anything(text: str) -> None:
    assert not _fetched(disarm(text))


@given(st.one_of(PIECE_TEXTS, st.text()))
def test_what_is_clean_stays_clean(text: str) -> None:
    once = disarm(text)
    assert disarm(once) == once
    assert not _fetched(label(text))


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "!",
            "![",
            "<img ",
            "![a](",
            "![[a]",
            "![[a]]",
            "[^a]: ",
            "![a](x",
            "!<img",
            "```a\n![x](y)\n",
            "]:![",
            "<a",
            "<",
        ),
        *("[a]:\n", "[\n", "[", "> ", "1.", "\\[", "\ufe01", "می\u200c"),
    ],
)
@pytest.mark.usefixtures("in_linear_time")
def test_hostile_repetition_costs_no_more_than_its_length(piece: str) -> None:
    for text in (piece * (40_000 // len(piece)), piece * (40_000 // len(piece)) + "]:"):
        disarm(text)  # it takes some 10 ms; were it quadratic, minutes
    assert len(label(text)) <= MAX_LABEL_CHARS


@given(st.text(max_size=400))
def test_a_label_is_one_printable_line_of_bounded_length(text: str) -> None:
    line = label(text)
    assert len(line) <= MAX_LABEL_CHARS
    assert line.replace("\u200c", "").replace("\u200d", "").isprintable()
    assert line == " ".join(line.split())


@given(st.text(st.one_of(st.sampled_from("<![]:a \u034e\u034f\ufe0f\u0301é"), st.characters()), max_size=200))
def test_a_label_that_needs_no_look_at_hidden_characters_is_as_with_one(text: str) -> None:
    assert label(text) == label(f"{text[:MAX_LABEL_CHARS]}\u200b")  # which is hidden


def test_a_label_keeps_its_words_and_shows_that_it_was_cut() -> None:
    assert label("  Häder \n\t 'one'\x1b[31m 😀 ") == "Häder 'one'[31m 😀"
    assert label("x" * 500) == "x" * (MAX_LABEL_CHARS - 1) + "…"
    assert label("![logo](http://x) Title") == "! [logo](http://x) Title"
    assert label("👩‍⚕️ می‌خواهم\ufe01\U000e0041") == "👩‍⚕️ می‌خواهم"


def test_long_names_that_callers_write_are_not_kept() -> None:
    """Thousands of names are cached, and one may be as long as a request."""
    tracemalloc.start()
    for number in range(10):
        name = f"{number}é" + "x" * 1_000_000
        assert display_name(name) == label(name)
    del name
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000

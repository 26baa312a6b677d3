"""What of a page is content, what its site's; tables that lay out, and those that number code."""

from __future__ import annotations

import pytest

from rag.ingest.parse.html_layout import main_part, with_code_and_layout, without_site_boxes
from rag.ingest.parse.parsers import parse


@pytest.mark.parametrize(
    ("html", "seen"),
    [
        (
            "<main><article><header><h1><a href='/a'>Moon</a></h1><p>Lede.</p></header>x</article></main>",
            "# [Moon](/a)\n\nLede.\n\nx",
        ),
        ("<section><header><h2>Part</h2></header>x<footer>Without VAT.</footer></section>", "## Part\n\nx"),
        ("<article>x<footer><a href=1>Tag</a>, <a href=2>next</a> <button>Share</button></footer>", "x"),
        ("<article>x<aside class=note>Be careful.</aside></article>", "x\n\nBe careful."),
        ("<article>x<aside><h2>Related</h2><a href=1>A long headline</a></aside></article>", "x"),
        (
            "<header><h1>Foo</h1>A database.</header><p>x</p><footer>Imprint</footer>",
            "# Foo\n\nA database.\n\nx",
        ),
        ("<header>Logo</header><h1>Foo</h1><aside>Related</aside><footer>Imprint</footer>", "# Foo"),
        ("<p>x</p><aside id=footnotes role='doc-endnotes'><p>One.</p></aside>", "x\n\nOne."),
        ("<p>x</p><header>without an end", "x\n\nwithout an end"),
    ],
)
def test_boxes_of_the_content_stay_and_those_of_the_site_go(html: str, seen: str) -> None:
    text = parse(html.encode(), "a.html").text
    assert text.startswith(seen)
    assert not {"Logo", "Imprint", "Related", "Tag"} & set(text.replace("[", " ").split())


def test_a_mail_has_no_boxes_of_a_site() -> None:
    page = "<header><h1>Invoice</h1></header><p>x</p><footer><p>IBAN DE123</p></footer>"
    mail = f"From: a@b.c\nMIME-Version: 1.0\nContent-Type: text/html\n\n{page}"
    assert "# Invoice\n\nx\n\nIBAN DE123" in parse(mail.encode(), "a.eml").text


@pytest.mark.parametrize(
    ("html", "seen"),
    [
        ("<h1>Widget</h1><p>Price 9 EUR.</p><article>Nice.</article><h2>Specs</h2><p>Weight 2 kg</p>", "all"),
        (
            "<h1>How?</h1><article>Question.</article><article>Long answer.</article><p>Imprint",
            "# How?\n\nQu",
        ),
        (
            "<p>Teaser of a page.</p><article><h1>Moon</h1><p>A landing.</p></article><p>Teaser",
            "# Moon\n\nA l",
        ),
        ("<p>Teaser</p><article>A long text, but without a heading.</article><p>Teaser", "A long"),
        ("<script>a long script, which nobody sees</script><p>Teaser<article>Text of it.</article>", "Text"),
    ],
)
def test_articles_are_the_page_if_they_are_not_a_small_part_of_it(html: str, seen: str) -> None:
    text = parse(html.encode(), "a.html").text
    assert ("Specs" in text and "Price" in text) if seen == "all" else text.startswith(seen)
    assert seen == "all" or not {"Teaser", "Imprint"} & set(text.split())


@pytest.mark.parametrize(
    "heading",
    [
        '<h2 class="anchor sticky">Yarn<a href="#yarn" class="hash-link">#</a></h2>',
        '<h2>Yarn<a class="anchor" href="#yarn"><svg><path d="M1"></path></svg></a></h2>',
        '<h2>Yarn <a class="header-anchor" href="#yarn" aria-hidden="true">#</a></h2>',
        '<h2><a href="#yarn" class="anchor">Yarn</a></h2>',
        '<h2 class="anchor-link">Yarn<a class="headerlink" href="#yarn">¶</a></h2>',
    ],
)
def test_a_heading_stays_and_the_link_to_it_goes(heading: str) -> None:
    [block] = parse(heading.encode(), "a.html").blocks
    assert (block.kind, block.title) == ("heading", "Yarn")


@pytest.mark.usefixtures("within_a_minute")
@pytest.mark.parametrize(
    "part",
    [
        *("<header>", "</header>", "<header></header>", "<header ", "<main></footer>", "<nav><a></nav>"),
        *("<article><aside><a>x</a>", "<a><a></a", "<a class='anchor", "<a class='anchor'>¶"),
        *("<script>", "<script", "<svg></svg", "<!--", "<!-- -", "</article>"),
    ],
)
def test_hostile_boxes_cost_no_more_than_their_length(part: str) -> None:
    without_site_boxes("<article><aside>" + part * 100_000 + "</aside></article>")
    main_part("<article>" + part * 100_000 + "</article>")
    without_site_boxes("<header>" * 50_000 + part * 1_000 + "</header>" * 50_000)


_CODE = "if x:\n    y = 1"


@pytest.mark.parametrize(
    "page",
    [
        (
            '<table class="highlighttable"><tr><td class="linenos"><div><pre>1\n2</pre></div></td>'
            f'<td class="code"><div><pre><span></span>{_CODE}</pre></div></td></tr></table>'
        ),
        (
            '<pre class="highlight"><code><table class="rouge-table"><tbody><tr><td class="rouge-gutter gl">'
            f'<pre class="lineno">1\n2\n</pre></td><td class="rouge-code"><pre>{_CODE}\n</pre></td></tr>'
            "</tbody></table></code></pre>"
        ),
        (
            '<table class="lntable"><tr><td class="lntd"><pre><span class="lnt">1\n</span></pre></td>'
            f'<td class="lntd"><pre><code>{_CODE}\n</code></pre></td></tr></table>'
        ),
        (
            '<table><tr><td class="blob-num" data-line="1"></td><td class="x blob-code">if x:</td></tr>'
            '<tr><td class="blob-num"></td><td class="blob-code">    y = 1</td></tr></table>'
        ),
        '<pre><span class="linenos">1</span>if x:\n<span class="linenos">2</span>    y = 1</pre>',
        '<pre>if <a href="x.html" title="X">x</a>:\n    <a id="l2"></a>y = 1</pre>',
    ],
)
def test_code_has_its_lines_and_no_numbers_or_links(page: str) -> None:
    assert parse(page.encode(), "a.html").text == f"```\n{_CODE}\n```"


@pytest.mark.parametrize(
    ("page", "seen"),
    [
        ("<table><tr><td><ul><li>M</ul><td><h1>A</h1><p>One.<p>Two.</table>", "- M\n\n# A\n\nOne.\n\nTwo."),
        ("<table><tr><td><p>One.</p><p>Two.</p><tr><td>x</table>", "One.\n\nTwo.\n\nx"),
        ("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>", "a\n\nb\n\nc\n\nd"),
        ("<table><tr><td>a<table><tr><td>b<td>c<tr><td>d<td>e</table></table>", "| d | e |"),
        ("<table><tr><th>a<th>b<tr><td><p>1<p>2<td>3</table>", "| a | b |\n| --- | --- |\n| 1 2 | 3 |"),
        ("<table><tr><td>a<td>b<tr><td>1<td><p>2</table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    ],
)
def test_a_table_of_data_stays_a_table_and_one_of_layout_becomes_blocks(page: str, seen: str) -> None:
    assert parse(page.encode(), "a.html").text.endswith(seen)


@pytest.mark.usefixtures("within_a_minute")
@pytest.mark.parametrize(
    "part",
    [
        *("<table>", "</table>", "<table><td>1</td>", "<tr>", "<pre>", "<pre><code>", "<p> </p> ", "<td><p>"),
        *("<a ", "<span class=", "<td class='blob-code", "<table role", "<table><tr><td class='blob-code'>"),
    ],
)
def test_hostile_tables_cost_no_more_than_their_length(part: str) -> None:
    with_code_and_layout(part * 100_000)
    with_code_and_layout(f"<table><td><pre>{part * 100_000}</pre></table>")

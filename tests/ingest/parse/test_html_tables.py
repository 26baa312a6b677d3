"""Tables of pages that lay out or number code, and code without what is no part of it."""

from __future__ import annotations

import pytest

from rag.ingest.parse.html_tables import with_code_and_layout
from rag.ingest.parse.parsers import parse

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

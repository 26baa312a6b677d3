from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.errors import ParseError
from rag.ingest.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[str, str], list[tuple[str, str]]]

PAGE = """<!doctype html>
<html lang="de"><head><title>Uhren &amp; Zeit</title>
<link rel="canonical" href="https://example.org/clocks">
<meta property="article:published_time" content="2024-05-01T10:00:00+02:00">
<style>body { color: red }</style><script>var secret = 1;</script></head>
<body><header>Logo</header><nav><ul><li>Home</li></ul></nav><div role="navigation">Crumbs</div>
<div><h1>Clocks<a class="headerlink" href="#clocks">¶</a></h1>
<p>A clock is a <b>machine</b><br>that counts.</p><noscript>Enable it</noscript><template>Slot</template>
<div class="highlight"><pre><code class="language-python"><span>def</span> tick():

    return "tock"  # <- said
</code></pre></div>
<table><tr><th>Kind</th><th>Error</th></tr><tr><td>quartz</td><td>15 s</td></tr></table>
<ul><li>one</li><li>two<ul><li>three</li></ul></li></ul></div>
<aside>Related</aside><footer>Imprint</footer></body></html>"""


def test_the_content_of_a_page_becomes_blocks_and_the_rest_is_left_out(shape: Shape) -> None:
    assert shape(PAGE, "a.html") == [
        ("heading", "# Clocks"),
        ("paragraph", "A clock is a **machine**  \nthat counts."),
        ("code", '```python\ndef tick():\n\n    return "tock"  # <- said\n```'),
        ("table", "| Kind | Error |\n| --- | --- |\n| quartz | 15 s |"),
        ("list", "- one\n- two\n  * three"),
    ]


def test_a_page_states_its_title_address_language_and_date() -> None:
    document = parse(PAGE.encode(), "a.html")
    assert document.title == "Uhren & Zeit"
    assert document.url == "https://example.org/clocks"
    assert document.metadata == {"language": "de"}
    assert document.date == datetime(2024, 5, 1, 8, tzinfo=UTC)


def test_without_a_stated_date_the_first_time_element_counts() -> None:
    page = '<p>From <time class="d" datetime="2023-02-01">February</time></p>'
    assert parse(page.encode(), "a.html").date == datetime(2023, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize("tag", ["main", "article", "MAIN"])
def test_the_marked_main_part_is_all_of_the_content(tag: str, shape: Shape) -> None:
    page = f"<body><p>before</p><{tag} id='x'><p>content</p></{tag}><p>after</p></body>"
    assert shape(page, "a.html") == [("paragraph", "content")]


@pytest.mark.parametrize("address", ["/clocks", "javascript:alert(1)", "https://me@example.org/"])
def test_an_address_that_nobody_can_open_is_none(address: str) -> None:
    page = f'<head><link rel="canonical" href="{address}"></head><p>content</p>'
    assert parse(page.encode(), "a.html").url is None


def test_an_empty_main_part_does_not_hide_the_page(shape: Shape) -> None:
    assert shape("<main></main><p>content</p>", "a.htm") == [("paragraph", "content")]


def test_a_page_without_content_is_empty() -> None:
    with pytest.raises(ParseError, match=r"^the file has no content$"):
        parse(b"<html><head><title>T</title></head><body><nav>Home</nav></body></html>", "a.html")

"""Markup: text is text unless it is markup already."""

from __future__ import annotations

from rag.report.text_and_html import Html, joined, tag


def test_text_and_attributes_are_escaped() -> None:
    assert tag("p", "a < b & \"c'", title='"<') == ('<p title="&quot;&lt;">a &lt; b &amp; &quot;c&#x27;</p>')


def test_markup_within_markup_stays_as_it_is() -> None:
    assert tag("p", tag("b", "x & y"), " & ", Html("&amp;")) == "<p><b>x &amp; y</b> &amp; &amp;</p>"


def test_markup_that_was_put_into_other_text_is_text_again() -> None:
    assert joined([f"{tag('b', 'x')}"]) == "&lt;b&gt;x&lt;/b&gt;"


def test_the_names_of_attributes_are_html_s_own() -> None:
    assert tag("p", class_="note", aria_label="x", id=None, tabindex=0) == (
        '<p class="note" aria-label="x" tabindex="0"></p>'
    )

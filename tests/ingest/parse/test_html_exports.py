"""Pages that word processors export, and ticks and values as programs for notes and tasks write them."""

from __future__ import annotations

import re

import pytest

from rag.ingest.parse.html_exports import in_plain_html
from rag.ingest.parse.html_page import parse as parse_page
from rag.ingest.parse.html_widgets import with_widgets_as_text
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import headings_of, titles_of


def text_of(html: str) -> str:
    return parse(f"<html><body>{html}</body></html>".encode(), "a.html").text


@pytest.mark.parametrize(
    "title",
    [
        '<p class="c4 title" id="h.x1"><span class="c1">Trip &amp; <b>visit</b></span></p>',
        "<p class=MsoTitle>Trip &amp; visit</p>",
    ],
)
def test_a_paragraph_in_the_style_of_a_title_is_the_title_and_a_heading(title: str) -> None:
    style, sections = (
        "<style>.c1{font-weight:700}</style>",
        "<h1>Flights</h1><p>Two.</p><h1>Hotel</h1><p>One.</p>",
    )
    html = f"{style}<p>Ann</p>{title}{sections}"
    document = parse(html.encode(), "letter.html")
    assert document.title == "Trip & visit"
    assert [block.title for block in document.blocks if block.kind == "heading"] == [
        "Trip & visit",
        "Flights",
        "Hotel",
    ]


GOOGLE_SHEET = """<div class="ritz grid-container" dir="ltr"><table class="waffle"><thead><tr>
<th class="row-header freezebar-origin-ltr"></th><th id="0C0" class="column-headers-background">A</th>
<th id="0C1" style="width:100px;" class="column-headers-background">B</th></tr></thead><tbody>
<tr style="height: 20px"><th id="0R0" style="height: 20px;" class="row-headers-background">
<div class="row-header-wrapper" style="line-height: 20px">1</div></th><td class="s0" dir="ltr">Driver</td>
<td class="s0">Tour</td></tr><tr><th class="freezebar-cell freezebar-horizontal-handle"></th>
<td class="freezebar-cell"></td><td class="freezebar-cell"></td></tr>
<tr><th class="row-headers-background"><div>2</div></th><td class="s1">Ines</td><td>7</td></tr></tbody>
</table></div>"""


def test_a_google_sheet_is_read_without_the_names_of_its_columns_and_rows() -> None:
    assert text_of(GOOGLE_SHEET) == "| Driver | Tour |\n| --- | --- |\n| Ines | 7 |"


ACT = """<p class="oj-doc-ti" id="d1">REGULATION (EU) 2016/679</p><p class="oj-doc-ti">of 27 April 2016</p>
<p class="oj-doc-ti">on data</p><p class="oj-ti-section-1"><span class="oj-italic">CHAPTER II</span></p>
<div class="eli-title"><p class="oj-ti-section-2"><span>Principles</span></p></div>
<div class="eli-subdivision"><p class="oj-ti-art">Article 6</p><div class="eli-title">
<p class="oj-sti-art">Lawfulness</p></div><p class="oj-normal">1.&nbsp;&nbsp;&nbsp;It is lawful if:</p></div>
<p class="ti-art">Article 7</p><p class="normal">Consent.</p><p class="oj-doc-ti">ANNEX</p><p>One.</p>"""
CONSOLIDATED = """<p class="title-doc-first">REGULATION (EU) 2016/679</p>
<p class="title-doc-last">of 27 April 2016</p><p class="norm">on data</p>
<p class="title-division-1">CHAPTER II</p>
<p class="title-division-2">Principles</p><p class="title-article-norm">Article 6</p>
<div class="eli-title"><p class="stitle-article-norm">Lawfulness</p></div><div class="norm">
<span class="no-parag">1.  </span><div class="norm inline-element">
<p class="norm">It is lawful if:</p></div></div>
<p class="title-article-norm">Article 7</p><div class="norm"><div class="grid-list">
<div class="list grid-list-column-1"><span>(a) </span></div><div class="grid-list-column-2">
<p class="norm">Consent.</p></div></div></div><p class="title-annex-1">ANNEX</p><p>One.</p>"""


@pytest.mark.parametrize(("page", "consent"), [(ACT, "Consent."), (CONSOLIDATED, "(a) Consent.")])
def test_articles_of_european_law_are_sections(page: str, consent: str) -> None:
    document = parse(f"<title>L_2016119.xml</title>{page}".encode(), "gdpr.html")
    assert document.title == "REGULATION (EU) 2016/679 of 27 April 2016"
    assert document.text == (
        "# REGULATION (EU) 2016/679 of 27 April 2016\n\non data\n\n## CHAPTER II Principles\n\n"
        "### Article 6 Lawfulness\n\n1. It is lawful if:\n\n"
        f"### Article 7\n\n{consent}\n\n# ANNEX\n\nOne."
    )


def test_cards_of_a_site_are_no_titles() -> None:
    document = parse(b'<h1>Shop</h1><p class="title">Clock</p><p>New.</p>', "shop.html")
    assert (document.title, document.text) == ("Shop", "# Shop\n\nClock\n\nNew.")


@pytest.mark.parametrize(
    "html",
    [
        (
            '<p>To the zoo<sup><a href="#cmnt1" id="cmnt_ref1">[a]</a></sup>.</p>'
            '<div class="c1"><p><a href="#cmnt_ref1" id="cmnt1">[a]</a><span>On Monday?</span></p></div>'
        ),
        (
            '<p>To the zoo<a href="#_msocom_1" name="_msoanchor_1">[A1]</a>.</p>'
            "<div style='mso-element:comment'><p class=MsoCommentText>"
            '<a href="#_msoanchor_1">[A1]</a>On Monday?</p></div>'
        ),
    ],
)
def test_comments_are_left_out_and_counted(html: str) -> None:
    document = parse_page(html, "a")
    assert (document.text, document.remarks) == ("To the zoo.", ("1 comment was left out",))


@pytest.mark.parametrize(
    ("mark", "note"),
    [
        ('<sup><a href="#ftnt1" id="ftnt_ref1">[1]</a></sup>', '<a href="#ftnt_ref1" id="ftnt1">[1]</a>'),
        ('<a href="#_ftn1" name="_ftnref1"><span>[1]</span></a>', '<a href="#_ftnref1" name="_ftn1">[1]</a>'),
        (
            '<a href="#sdfootnote1sym" name="sdfootnote1anc"><sup>1</sup></a>',
            '<a href="#sdfootnote1anc">1</a>',
        ),
    ],
)
def test_a_footnote_stands_below_the_block_that_refers_to_it(mark: str, note: str) -> None:
    html = f'<p>It costs 12{mark}.</p><p>Bye.</p><hr><div><p>{note}<span>&nbsp;See <a href="https://x.org/a">x</a></span></p></div>'
    assert text_of(html).startswith("It costs 12[^1].\n\n[^1]: See [x](https://x.org/a)\n\nBye.")


@pytest.mark.parametrize(
    "address",
    [
        "https://www.google.com/url?q=https://zoo.example/a%3Fx%3D1%26y&amp;sa=D&amp;ust=17&amp;usg=AO",
        "https://www.youtube.com/redirect?event=video&amp;q=https%3A%2F%2Fzoo.example%2Fa%3Fx%3D1%26y",
        "https://l.facebook.com/l.php?u=https%3A%2F%2Fzoo.example%2Fa%3Fx%3D1%26y&amp;h=AT0",
        "https://slack-redir.net/link?url=https%3A%2F%2Fzoo.example%2Fa%3Fx%3D1%26y",
        "https://eur01.safelinks.protection.outlook.com/?url=https%3A%2F%2Fzoo.example%2Fa%3Fx%3D1%26y&amp;data=05",
    ],
)
def test_a_link_over_a_service_leads_where_it_says(address: str) -> None:
    assert (
        text_of(f'<p>See <a href="{address}">the zoo</a>.</p>')
        == "See [the zoo](https://zoo.example/a?x=1&y)."
    )


@pytest.mark.parametrize(
    "address", ["https://zoo.example/url?q=https://x.org/", "https://www.google.com/url?q=javascript:x"]
)
def test_other_links_stay(address: str) -> None:
    assert text_of(f'<p>See <a href="{address}">the zoo</a>.</p>') == f"See [the zoo]({address})."


def test_lists_stand_on_the_levels_that_their_classes_name() -> None:
    levels = [(0, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "e")]
    lists = "".join(f'<ul class="c1 lst-kix_x2-{level} start"><li>{item}</li></ul>' for level, item in levels)
    assert text_of(f"{lists}<p>x</p>") == "- a\n  * b\n    + c\n- d\n  * e\n\nx"


REPORT = """
<div>BOLD(Exhibit 99.1)</div><div>BOLD(Results of operations)</div><div>BOLD((in millions))</div>
<p>Sales grew by 3 %.</p><p>BOLD(Note 12. Equity)</p><p>BOLD(Shares) were bought back.</p>
<table><tr><td>BOLD(Year)</td></tr><tr><td>2022</td></tr></table>
<p>BOLD(This is all bold, and a sentence.)</p><p>End.</p>
"""


@pytest.mark.parametrize(
    "bold", [r"<b>\1</b>", r"<strong>\1</strong>", r'<span style="font-size:9pt;font-weight:700">\1</span>']
)
def test_bold_paragraphs_are_headings_of_a_page_that_has_none(bold: str) -> None:
    html = re.sub(r"BOLD\((\(.*?\)|.*?)\)", bold, REPORT)
    assert titles_of(parse(html.encode(), "a.html")) == ["Results of operations", "Note 12. Equity"]
    assert titles_of(parse(f"<h2>Report</h2>{html}".encode(), "a.html")) == ["Report"]


def test_articles_of_older_acts_are_sections() -> None:
    html = """<h1>32002R0006</h1><p>TITLE I</p><p>{} 1</p><p>Design</p><p>Article 2 applies.</p>
        <p style="font-style: italic">{}&nbsp;12a</p><p>1. A design is new.</p>
        <p>{} 13<br>Novelty</p><p>End.</p>"""
    for word in ("Article", "Artikel", "Articolo"):
        titles = titles_of(parse(html.replace("{}", word).encode(), "a.html"))
        assert titles == ["32002R0006", f"{word} 1", f"{word} 12a", f"{word} 13 Novelty"]
    marked = "<h1>Act</h1><h2>Article 1 Design</h2><p>The act amends:</p><p>Article 2</p><p>End.</p>"
    assert titles_of(parse(marked.encode(), "a.html")) == ["Act", "Article 1 Design"]


def test_words_that_a_class_makes_bold_are_bold() -> None:
    words = '<p>On <span class="c1 c3">Friday</span> <span class="c1">at 9</span></p>'
    assert text_of(f"<style>.c3{{color:red;font-weight:700}}</style>{words}") == "On **Friday** at 9"
    assert text_of(f"<code>.c3{{font-weight:700}}</code>{words}").endswith("On Friday at 9")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<ul class="to-do-list"><li><div class="checkbox checkbox-on"></div> Rope</li></ul>', "- [x] Rope"),
        ('<ul class="to-do-list"><li><div class="checkbox checkbox-off"></div> Rope</li></ul>', "- [ ] Rope"),
        (
            '<ul><li class="checked" data-inline-task-id="2">Rope<li data-inline-task-id="3">Tar</ul>',
            "- [x] Rope\n- [ ] Tar",
        ),
        ('<div><span role="checkbox" aria-checked="true"></span>Rope</div>', "[x] Rope"),
        ('<ul><li role="checkbox" aria-checked="false">Rope</li></ul>', "- [ ] Rope"),
        ('<p><button role="switch" aria-checked="true"></button>Rope</p>', "[x] Rope"),
        ('<ol><li data-list="checked">Rope</li></ol>', "1. [x] Rope"),
        ('<p data-tag="to-do:completed">Rope</p>', "[x] Rope"),
        ('<div data-task-local-id="1" data-task-state="TODO">Rope</div>', "[ ] Rope"),
        (
            '<ul><li data-checked="true"><label><input type="checkbox" checked></label>Rope</ul>',
            "- [x] Rope",
        ),
        ('<ul><li data-checked="true">Rope</li></ul>', "- [x] Rope"),
        ('<ul><li data-list="bullet" class="checked">Rope</li></ul>', "- Rope"),
    ],
)
def test_ticks_are_read_as_programs_write_them(html: str, expected: str) -> None:
    assert text_of(html) == expected


@pytest.mark.parametrize("chip", ["selected-value", "badge", "MuiChip-label", "aui-lozenge", "tag"])
def test_values_beside_each_other_stay_apart(chip: str) -> None:
    values = "".join(
        f'<span class="{chip} blue{at}">{value}</span>' for at, value in enumerate(("sync", "harbor"))
    )
    assert text_of(f"<p>Tags: {values}</p><p>x</p>") == "Tags: sync, harbor\n\nx"


def test_words_in_spans_of_any_class_stay_together() -> None:
    assert text_of('<p><span class="c1">har</span><span class="c1">bor</span></p>') == "harbor"


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part",
    [
        "<div><p>",
        "<div><a href='#cmnt_ref1",
        "<div><p><a href='#ftnt_ref1'>",
        "<sup><a href='#ftnt1'>",
        "<p id='h.' class='title'>",
        "<ul class='lst-kix_a-1'><li></li></ul>",
        "<ul class='lst-kix_a-1'",
        "<a href='https://www.google.com/url?",
        "<style>.c{font-weight:700}",
        "<li aria-checked ",
        "<a-",
        "<th class='row-header'><b>",
        "<span class='badge'>x</span>",
        "<p><span style='font-weight:700'>x</span>",
        "<p ><span ",
    ],
)
def test_hostile_exports_cost_no_more_than_their_length(part: str) -> None:
    with_widgets_as_text(in_plain_html(part * 20_000)[0])


def telegram_message(number: int, day: str, time: str, body: str, sender: str = "") -> str:
    name = f'<div class="from_name">\n{sender}\n</div>' if sender else ""
    return (
        f'<div class="message default clearfix{"" if sender else " joined"}" id="message{number}">'
        '<div class="pull_left userpic_wrap"><div class="initials">A</div></div><div class="body">'
        f'<div class="pull_right date details" title="{day} {time}:22 UTC+01:00">{time}</div>'
        f"{name}{body}</div></div>"
    )


def test_a_page_that_telegram_exported_is_its_messages_by_day() -> None:
    reply = '<div class="reply_to details">In reply to <a href="#go_to_message1">this message</a></div>'
    forwarded = (
        '<div class="forwarded body"><div class="from_name">Eve <span class="date details" '
        'title="01.01.2024 08:00:00"> 01.01.2024</span></div><div class="text">\nHi\n</div></div>'
    )
    photo = (
        '<div class="media_wrap clearfix"><a class="photo_wrap clearfix pull_left" href="p.jpg"></a></div>'
    )
    messages = (
        telegram_message(
            1, "14.02.2024", "10:15", '<div class="text">\nWhen do we <b>meet</b>?\n</div>', "Ann"
        )
        + telegram_message(2, "14.02.2024", "10:18", f'{reply}<div class="text">\nAt five\n</div>', "Bo")
        + telegram_message(3, "14.02.2024", "10:19", photo)
        + '<div class="message service" id="message-2"><div class="body details">16 February</div></div>'
        + telegram_message(4, "16.02.2024", "13:40", forwarded)
    )
    page = (
        '<html><head><title>Exported Data</title></head><body><div class="page_header"><div class="content">'
        '<div class="text bold">\nBoat club\n</div></div></div><div class="page_body chat_page">'
        f'<div class="history">{messages}</div></div></body></html>'
    )
    document = parse(page.encode(), "messages.html")
    assert (document.title, str(document.date)) == ("Boat club", "2024-02-16 13:40:00+00:00")
    assert document.text.split("\n\n") == [
        "# 2024-02-14",
        "Ann (10:15): When do we **meet**?",
        "Bo, to Ann (10:18): At five",
        "Bo (10:19): (photo)",
        "# 2024-02-16",
        "Bo, forwarded from Eve (13:40): Hi",
    ]


SPHINX = """<h1>API</h1><dl class="py class"><dt class="sig sig-object py" id="a.Bus">
<em class="property">class </em><code class="descclassname">a.</code><code class="descname">Bus</code>(port)
<a class="reference internal" href="_modules/a.html#Bus"><span class="viewcode-link">[source]</span></a>
<a class="headerlink" href="#a.Bus" title="Permalink">¶</a></dt><dd><p>A bus.</p>
<dl><dt id="a.Bus.read"><span class="sig-name descname">read</span>(<em>n</em>,
<em><abbr title="Keyword-only separator">*</abbr></em>, <em>raw=False</em>)</dt>
<dd><dl class="field-list"><dt>Parameters:</dt><dd><p>n &#8211; bytes</p></dd></dl></dd></dl></dd></dl>
<dl><dt id="c.open"><span class="sig-name">open</span>(char *path)</dt><dd>Opens.</dd></dl>
<dl><dt id="term-x">host</dt><dd>A machine.</dd></dl>"""


def test_what_sphinx_documents_is_a_section_with_its_signature() -> None:
    document = parse(SPHINX.encode(), "api.html")
    assert headings_of(document) == [
        (1, "API"),
        (2, "class a.Bus(port)"),
        (3, "read(n, *, raw=False)"),
        (2, "open(char *path)"),
    ]
    assert "### `read(n, *, raw=False)`" in document.text
    assert "Parameters:\n\nn – bytes" in document.text
    assert "host\n\nA machine." in document.text

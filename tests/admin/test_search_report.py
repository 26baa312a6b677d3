"""The page that shows a search: whole, safe wherever it is opened, and readable."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from rag.admin.search_report import STYLE, search_report
from rag.admin.search_report.ranks import COLOURS, DRAWN, FLAT, NEARLY, depth
from rag.answers import Answer, Context, Step, SubQuery, Trace
from rag.corpus import Chunk
from rag.report.html import STYLE as COMMON

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.answers import Hit
    from tests.admin.conftest import Search

    MakeSearch = Callable[..., Search]

OWN_STYLE = STYLE.read_text(encoding="utf-8")
COMMON_STYLE = COMMON.read_text(encoding="utf-8")


def _body(page: str) -> ET.Element:
    """The page's body, which must be well-formed even as XML."""
    return ET.fromstring(page[page.index("<body>") : page.index("</html>")])  # noqa: S314 our own page


def _text(element: ET.Element) -> str:
    return "".join(element.itertext())


def _of(body: ET.Element, class_: str) -> list[ET.Element]:
    return [one for one in body.iter() if class_ in one.get("class", "").split()]


def _section(body: ET.Element, title: str) -> ET.Element:
    return next(one for one in body.findall("section") if one.findtext("h2") == title)


def _titles(body: ET.Element) -> list[str | None]:
    return [one.findtext("h2") for one in body.findall("section")]


@pytest.fixture
def body(make_search: MakeSearch) -> ET.Element:
    search = make_search()
    return _body(search_report("who built it?", search.answer, [search.fate]))


def _many(answer: Answer, count: int, over: int) -> Answer:
    """An answer of so many hits, and over as many more passages that the limit left out."""
    first = answer.hits[0]

    def hit(at: int) -> Hit:
        chunk = Chunk(f"mfzq/{at}", "mfzq", at, 0, 1, "x")
        return replace(first, chunk=chunk)

    hits = tuple(map(hit, range(count + over)))
    ids = tuple(one.chunk.id for one in hits)
    stages = (
        Step("fuse", 0.1, after=len(ids), left=ids),
        Step("limit", 0.1, before=len(ids), after=count, left=ids[:count]),
    )
    return Answer(hits[:count], (), None, stages, Trace((), {}))


def test_the_page_tells_the_search_from_what_to_know_to_each_step(body: ET.Element) -> None:
    assert _titles(body) == [
        "What to know",
        "Expected",
        "Queries",
        "Steps",
        "How the ranks moved",
        "Hits",
        "The first passages after each step",
    ]
    header = body.find("header")
    assert header is not None
    assert header.findtext("h1") == "who built it?"
    assert _text(_of(body, "lede")[0]) == (
        "2 hits in 527.9 ms. 2 requests to models; tokens: 1412 in, 100 out; cost: 0.0012."
    )


def test_headings_go_down_one_level_at_a_time(body: ET.Element) -> None:
    levels = [int(one.tag[1]) for one in body.iter() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels


@pytest.mark.parametrize(
    ("queries", "shown"),
    [
        ((SubQuery("who?"),), None),
        ((SubQuery("who?", collections=("clocks",)),), ["who?in clocks"]),
        ((SubQuery("who?"), SubQuery("when?", reason="as well")), ["who?", "when?as well"]),
    ],
)
def test_queries_are_told_where_there_is_more_to_them_than_the_question(
    queries: tuple[SubQuery, ...], shown: list[str] | None
) -> None:
    body = _body(search_report("who?", Answer((), trace=Trace(queries, {}))))
    lists = _of(body, "queries")
    assert [[_text(item) for item in one] for one in lists] == ([shown] if shown else [])


def test_every_step_has_its_time_counts_and_cost_with_warnings_beneath(body: ET.Element) -> None:
    rows = [[_text(cell) for cell in row] for row in _section(body, "Steps").iter("tr")]
    assert rows[0] == ["Step", "When", "ms", "In → out", "Tokens", "Cost"]
    assert rows[2] == ["multi_query", "", "500.0", "1 → 2", "412 in, 96 out", "0.0012"]
    at = next(at for at, row in enumerate(rows) if row[0] == "recency failed")
    assert rows[at + 1] == ["⚠ recency failed: Clocks"]
    assert rows[-1] == ["all", "", "527.9", "", "1412 in, 100 out", "0.0012"]


def test_columns_of_what_was_not_used_are_left_out() -> None:
    stages = (Step("plan", 0.001, warnings=("Careful.",)),)
    steps = _section(_body(search_report("who?", Answer((), steps=stages))), "Steps")
    assert [[_text(cell) for cell in row] for row in steps.iter("tr")] == [
        ["Step", "When", "ms", "In → out"],
        ["plan", "", "1.0", ""],
        ["⚠ Careful."],
        ["all", "", "1.0", ""],
    ]
    assert _of(steps, "warned")[0][0].get("colspan") == "4"


def test_the_bars_of_the_steps_follow_each_other_over_the_whole_time(body: ET.Element) -> None:
    bars = [next(one.iter("rect")) for one in _of(body, "span")]
    places = [[float(bar.get(key, "").rstrip("%")) for key in ("x", "width")] for bar in bars]
    assert places[0][0] == 0
    for (x, width), (following, _) in pairwise(places):
        assert x + width == pytest.approx(following, abs=0.02)
    assert sum(places[-1]) == pytest.approx(100, abs=0.02)


def test_steps_that_took_no_time_have_bars_of_none(make_search: MakeSearch) -> None:
    answer = replace(make_search().answer, steps=(Step("plan", 0.0), Step("embed", 0.0)))
    (bar, _) = _of(_body(search_report("who?", answer)), "span")
    assert next(bar.iter("rect")).get("width") == "0.00%"


def test_each_hit_has_a_line_through_the_steps_that_changed_something(body: ET.Element) -> None:
    assert [_text(one) for one in _of(body, "step")] == [
        "dense list",
        "sparse list",
        "fuse",
        "thresholds",
        "rerank",
        "limit",
    ]
    titles = {one.findtext("title"): one for one in _of(body, "way")}
    line = "1. Clocks b, Part > Clocks, p. 7: sparse list 1 → fuse 3 → thresholds 2 → rerank 1 → limit 1"
    assert line in titles
    circles = list(titles[line].iter("circle"))
    assert [one.get("cx") for one in circles] == ["20.00%", "40.00%", "60.00%", "80.00%", "100.00%"]
    heights = [float(one.get("cy", "")) for one in circles]
    assert heights[0] == heights[3] == heights[4] == 0 < heights[2] < heights[1]
    assert [_text(one) for one in _of(titles[line], "name")] == ["Clocks, p. 7"]


def test_the_first_hit_is_drawn_over_the_others(body: ET.Element) -> None:
    titles = [one.findtext("title", "") for one in _of(body, "way")]
    assert [title[:8] for title in titles] == ["Clocks c", "2. Clock", "1. Clock"]


def test_what_fell_out_ends_with_a_cross_before_the_step_where_it_did(body: ET.Element) -> None:
    (asked,) = _of(_section(body, "How the ranks moved").find("svg") or body, "asked")
    assert asked.findtext("title") == "Clocks c: dense list 2 → fuse 2"
    (out,) = _of(asked, "out")
    assert out.get("x") == "50.00%"
    assert not _of(asked, "name")
    (item,) = _of(body, "nearly")[0]
    assert _text(item) == "?Clocks c[mfzqc/3] fuse 2 → thresholds out"


def test_what_came_nearest_is_drawn_even_if_nobody_asked_for_it(make_search: MakeSearch) -> None:
    body = _body(search_report("who?", make_search().answer))
    assert [_text(item) for item in _of(body, "nearly")[0]] == ["aClocks c[mfzqc/3] fuse 2 → thresholds out"]
    assert "Expected" not in _titles(body)


def test_of_many_hits_only_the_first_are_drawn_and_that_is_said(make_search: MakeSearch) -> None:
    answer = _many(make_search().answer, 30, 30)
    body = _body(search_report("who?", answer))
    assert len(_of(body, "way")) == DRAWN + NEARLY
    assert f"the first {DRAWN} of 30 hits" in _text(_section(body, "How the ranks moved"))
    assert len(_of(body, "hit")) == 30
    nearly = [_text(next(item.iter("code"))) for item in _of(body, "nearly")[0]]
    assert nearly == ["[mfzq/30]", "[mfzq/31]", "[mfzq/32]", "[mfzq/33]"]


def test_a_step_that_changed_only_what_is_not_drawn_is_not_drawn(make_search: MakeSearch) -> None:
    answer = _many(make_search().answer, 30, 30)
    fused, limit = answer.steps
    swapped = (*fused.left[:-2], fused.left[-1], fused.left[-2])
    answer = replace(answer, steps=(fused, replace(fused, name="recency", left=swapped), limit))
    body = _body(search_report("who?", answer))
    assert [_text(one) for one in _of(body, "step")] == ["fuse", "limit"]


def test_the_first_ranks_stand_equally_far_apart_and_deeper_ones_closer_and_closer() -> None:
    depths = [depth(rank) for rank in range(1, 200)]
    gaps = [below - above for above, below in pairwise(depths)]
    assert gaps[: FLAT - 1] == [1] * (FLAT - 1)
    assert all(closer < gap for gap, closer in pairwise(gaps[FLAT - 1 :]))
    assert depths[0] == 0


def test_a_source_asked_for_is_told_about_with_its_way(body: ET.Element) -> None:
    (article,) = _section(body, "Expected").findall("article")
    assert _text(article) == ("?Clocks c[mfzqc] Out at thresholds.Too far: Clocksfuse 2thresholds out")


def test_a_source_that_is_there_is_not_drawn_twice(make_search: MakeSearch) -> None:
    search = make_search()
    there = replace(search.fate, step=None, chunk_id=search.answer.hits[0].chunk.id)
    body = _body(search_report("who?", search.answer, [there]))
    assert not _of(_section(body, "How the ranks moved"), "asked")


def test_a_hit_says_where_it_stands_who_found_it_and_how_it_moved(body: ET.Element) -> None:
    first, _ = _section(body, "Hits").findall("article")
    heading, scored, found, moved, text = map(_text, first)
    assert heading == "1Clocks b, Part > Clocks, p. 7"
    assert scored == "[mfzqb/3] in documents, score 0.99, similarity 0.432"
    assert found == "Found by query 1: sparse 1 (1.00)"
    assert moved == "fuse 3thresholds 2rerank 1"
    assert text == "What Clocks says of b."


def test_only_the_beginning_of_a_long_text_is_shown(make_search: MakeSearch) -> None:
    answer = make_search().answer
    long = replace(answer.hits[0].chunk, text="word " * 1000)
    answer = replace(answer, hits=(replace(answer.hits[0], chunk=long),))
    (text,) = _body(search_report("who?", answer)).iter("blockquote")
    assert _text(text).endswith("word …")
    assert len(_text(text)) < 700


def test_the_first_passages_after_each_step_are_there_on_demand(body: ET.Element) -> None:
    section = _section(body, "The first passages after each step")
    summaries = [one.findtext("summary") for one in section.findall("details")]
    assert summaries == [
        "fuse 3",
        "gate 3 → 3",
        "thresholds 3 → 2",
        "rerank 2 → 2",
        "recency 2 → 2",
        "limit 2 → 2",
    ]
    rows = [[_text(cell) for cell in row] for row in section.findall("details")[2].iter("tr")]
    assert rows == [
        ["#", "Passage", "Score"],
        ["1", "[mfzqa/3] Clocks a", "0.50"],
        ["2", "[mfzqb/3] Clocks b", "0.50"],
    ]


def test_the_context_is_counted(make_search: MakeSearch) -> None:
    answer = replace(make_search().answer, context=Context("text", ("mfzqb/3",), 42, cut=False, left_out=1))
    page = search_report("who?", answer)
    assert "The context holds 1 passage in 42 tokens." in _text(_of(_body(page), "lede")[0])


def test_a_search_without_a_trace_or_anything_else_has_a_page_too(make_search: MakeSearch) -> None:
    assert _titles(_body(search_report("who?", Answer(())))) == []
    stages = (Step("plan", 0.1), Step("embed", 0.1))
    answer = replace(make_search().answer, trace=None, steps=stages)
    assert _titles(_body(search_report("who?", answer))) == ["What to know", "Steps", "Hits"]


def test_a_search_that_left_nothing_shows_what_came_nearest(make_search: MakeSearch) -> None:
    answer = _many(make_search().answer, 0, 3)
    body = _body(search_report("who?", answer))
    assert len(_of(body, "out")) == 3
    assert "Hits" not in _titles(body)


def test_whatever_anybody_says_is_text(make_search: MakeSearch, hostile: str) -> None:
    plain, search = make_search("Clocks"), make_search(hostile)
    expected = _body(search_report("Clocks", plain.answer, [plain.fate]))
    page = search_report(hostile, search.answer, [search.fate])
    body = _body(page)
    assert [one.tag for one in body.iter()] == [one.tag for one in expected.iter()]
    assert [sorted(one.keys()) for one in body.iter()] == [sorted(one.keys()) for one in expected.iter()]
    assert """<script>x</script>"'&amp;$title""" in _text(body)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e]", page)


def test_the_page_refers_to_nothing_and_runs_nothing(make_search: MakeSearch, hostile: str) -> None:
    search = make_search(hostile)
    page = search_report(hostile, search.answer, [search.fate])
    for element in _body(page).iter():
        assert element.tag not in {"script", "link", "img", "image", "use", "iframe", "object", "form", "a"}
        names = element.keys()
        assert not {name for name in names if name in {"src", "href", "style"} or name.startswith("on")}
    assert '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src' in page
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"url\(|@import", page)


def test_every_class_of_the_page_is_styled_and_every_own_style_is_used(body: ET.Element) -> None:
    used = {one for element in body.iter() for one in element.get("class", "").split()}
    own = set(re.findall(r"\.([a-z][a-z0-9-]*)", re.sub(r"\{[^{}]*\}", "", OWN_STYLE)))
    styled = own | set(re.findall(r"\.([a-z][a-z-]*)", COMMON_STYLE))
    assert used <= styled
    ways = {f"way-{at}" for at in range(1, COLOURS + 1)}
    assert ways | {"fallen"} <= own
    assert own - used <= ways | {"fallen"}


@pytest.mark.parametrize("scheme", [0, 1])
def test_lines_stand_out_in_light_and_in_dark_and_what_is_written_in_dots_can_be_read(scheme: int) -> None:
    paper = re.findall(r"--paper: (#\w+);", COMMON_STYLE)[scheme]
    colours = re.findall(r"--(?:way-\d|asked|fallen): (#\w+);", OWN_STYLE)
    assert len(colours) == COLOURS + 2
    for colour in colours:
        assert _contrast(paper, colour) >= 3
        assert _contrast("#ffffff", colour) >= 4.5


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

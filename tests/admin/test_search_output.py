"""How a search is shown: its trace in text, and its page, whole, safe wherever it is opened, and readable."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from rag.admin.search_output import STYLE, WIDTH, changes, explanation, rank_steps, search_report
from rag.answers import Answer, Context, Excerpt, Step, SubQuery, Trace
from rag.report import STYLE as COMMON
from rag.search.why import AMONG_HITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.conftest import Search

    MakeSearch = Callable[..., Search]


PASSAGES = "The first passages after each step"
EXPLAINED = """\
Query 1: who built it?
Query 2: Clocks
   weight 0.70, in documents, where {"year": {"$gte": 1650}}
   as Clocks

STAGE        STATUS     MS  BEFORE → AFTER  TOKENS           COST
plan         ok        0.4
multi_query  ok      500.0  1 → 2           412 in, 96 out   0.0012
embed        ok        9.1
recall       ok       12.4  3
fuse         ok        1.0  3
gate         ok        1.0  3 → 3
thresholds   ok        1.0  3 → 2
rerank       ok        1.0  2 → 2           1000 in, 4 out
recency      failed    1.0  2 → 2
 ! recency failed: Clocks
limit        ok        1.0  2 → 2
total                527.9                  1412 in, 100 out  0.0012

1. Clocks b, Part > Clocks, p. 7
   [mfzqb/3]  score 0.99  similarity 0.432
   query 1: sparse 1 (1.00)
   fuse 3 → thresholds 2 → rerank 1

2. Clocks a, Part > Clocks, p. 7
   [mfzqa/3]  score 0.99  similarity 0.432
   query 1: dense 1 (0.61), sparse 2 (0.50); query 2: dense 3 (0.40)
   fuse 1 → rerank 2

Expected Clocks c [mfzqc]:
   Out at thresholds. Too far: Clocks
   fuse 2 → thresholds out"""


def _aligned(text: str) -> list[str]:
    """Lines whose columns may stand elsewhere."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_trace_is_told_from_its_queries_to_its_hits_and_what_became_of_others(
    make_search: MakeSearch,
) -> None:
    search = make_search()
    assert _aligned("\n".join(explanation(search.answer, search.fate))) == _aligned(EXPLAINED)


def test_the_columns_of_the_table_of_stages_stand_under_each_other(make_search: MakeSearch) -> None:
    lines = explanation(make_search().answer)
    head = next(line for line in lines if line.startswith("STAGE"))
    rows = {line.split()[0]: line for line in lines if line.split() and "." in line}
    assert rows["multi_query"].index("1 → 2") == rows["rerank"].index("2 → 2") == head.index("BEFORE")
    ends = {rows[name].index(ms) + len(ms) for name, ms in (("plan", "0.4"), ("multi_query", "500.0"))}
    assert ends == {head.index("MS") + 2}


def test_columns_of_what_was_not_used_are_left_out_of_the_text() -> None:
    lines = explanation(Answer((), steps=(Step("plan", 0.001), Step("embed", 0.002))))
    assert lines == ["STAGE  STATUS   MS", "plan   ok      1.0", "embed  ok      2.0", "total          3.0"]


def test_the_only_query_is_not_numbered(make_search: MakeSearch) -> None:
    answer = make_search().answer
    assert answer.trace
    trace = replace(answer.trace, queries=answer.trace.queries[:1])
    lines = explanation(replace(answer, trace=trace))
    assert lines[0] == "Query: who built it?"
    assert "   sparse 1 (1.00)" in lines


def test_an_answer_without_a_trace_has_its_stages_and_hits(make_search: MakeSearch) -> None:
    stages = (Step("plan", 0.001),)
    lines = explanation(replace(make_search().answer, trace=None, steps=stages))
    assert lines[0].startswith("STAGE")
    assert "1. Clocks b, Part > Clocks, p. 7" in lines
    assert not [line for line in lines if "fuse" in line or "Query" in line]


def test_an_empty_answer_without_stages_says_nothing() -> None:
    assert explanation(Answer(())) == []


def test_a_source_that_is_among_the_hits_is_said_to_be(make_search: MakeSearch) -> None:
    search = make_search()
    fate = replace(search.fate, step=None, reason=AMONG_HITS, ranks=(("fuse", 2), ("rerank", 1)))
    lines = explanation(search.answer, fate)
    assert lines[-3:] == ["Expected Clocks c [mfzqc]:", f"   {AMONG_HITS}", "   fuse 2 → rerank 1"]


def test_long_lines_are_broken(make_search: MakeSearch) -> None:
    search = make_search("a long story " * 30)
    lines = explanation(search.answer, search.fate)
    assert WIDTH - 10 < max(map(len, lines)) <= WIDTH


def test_warnings_and_reasons_are_whole(make_search: MakeSearch) -> None:
    search = make_search("a long story " * 30)
    printed = " ".join(" ".join(explanation(search.answer, search.fate)).split())
    for whole in ("! recency failed:", "Too far:"):
        assert f"{whole} {'a long story ' * 30}" in printed


def test_a_terminal_takes_nothing_for_a_command(make_search: MakeSearch, hostile: str) -> None:
    search = make_search(hostile)
    lines = explanation(search.answer, search.fate)
    assert all(line.isprintable() for line in lines)
    assert any("[31m" in line for line in lines)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([("fuse", 3), ("gate", 3), ("rerank", 1), ("limit", 1)], [("fuse", 3), ("rerank", 1)]),
        ([("fuse", 3), ("dedupe", None), ("limit", None)], [("fuse", 3), ("dedupe", None)]),
        ([("fuse", None), ("gate", 2)], [("gate", 2)]),
        ([], []),
    ],
)
def test_of_a_passage_s_ranks_only_the_changes_are_shown(
    ranks: list[tuple[str, int | None]], expected: list[tuple[str, int | None]]
) -> None:
    assert changes(ranks) == expected


def test_lists_have_the_best_rank_of_all_queries(make_search: MakeSearch) -> None:
    steps = {step.name: step for step in rank_steps(make_search().answer)}
    assert list(steps)[:3] == ["dense list", "sparse list", "fuse"]
    assert steps["dense list"].ranks == {"mfzqa/3": 1, "mfzqc/3": 2}


def test_stages_that_make_queries_or_count_nothing_rank_nothing(make_search: MakeSearch) -> None:
    stages = (*make_search().answer.steps, Step("custom", 0.1, before=1, after=2), Step("context", 0.1))
    names = [step.name for step in rank_steps(Answer((), steps=stages))]
    assert names == ["fuse", "gate", "thresholds", "rerank", "recency", "limit"]


def test_a_stage_that_left_nothing_is_a_step() -> None:
    stages = (Step("fuse", 0.1, after=1, hit_ids=("a",)), Step("thresholds", 0.1, before=1, after=0))
    assert [step.ranks for step in rank_steps(Answer((), steps=stages))] == [{"a": 1}, {}]


OWN_STYLE = STYLE.read_text(encoding="utf-8")
COMMON_STYLE = COMMON.read_text(encoding="utf-8")


def _body(page: str) -> ET.Element:
    """The page's body, which must be well-formed even as XML."""
    return ET.fromstring(page[page.index("<body>") : page.index("</html>")])  # noqa: S314 our own page


def _text(element: ET.Element) -> str:
    return "".join(element.itertext())


def _of(body: ET.Element, class_: str) -> list[ET.Element]:
    return [element for element in body.iter() if class_ in element.get("class", "").split()]


def _section(body: ET.Element, title: str) -> ET.Element:
    return next(element for element in body.findall("section") if element.findtext("h2") == title)


def _titles(body: ET.Element) -> list[str | None]:
    return [element.findtext("h2") for element in body.findall("section")]


@pytest.fixture
def body(make_search: MakeSearch) -> ET.Element:
    search = make_search()
    return _body(search_report("who built it?", search.answer, search.fate))


def test_the_page_tells_the_search_from_what_to_know_to_each_step(body: ET.Element) -> None:
    assert _titles(body) == ["What to know", "Expected", "Queries", "Steps", "Hits", PASSAGES]
    header = body.find("header")
    assert header is not None
    assert header.findtext("h1") == "who built it?"
    assert _text(_of(body, "lede")[0]) == (
        "2 hits in 527.9 ms. 2 requests to models; tokens: 1412 in, 100 out; cost: 0.0012."
    )


def test_headings_go_down_one_level_at_a_time(body: ET.Element) -> None:
    levels = [int(element.tag[1]) for element in body.iter() if re.fullmatch("h[1-6]", element.tag)]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ((SubQuery("who?"),), None),
        ((SubQuery("who?", collections=("clocks",)),), ["who?in clocks"]),
        ((SubQuery("who?"), SubQuery("when?", reason="as well")), ["who?", "when?as well"]),
    ],
)
def test_queries_are_told_where_there_is_more_to_them_than_the_question(
    queries: tuple[SubQuery, ...], expected: list[str] | None
) -> None:
    body = _body(search_report("who?", Answer((), trace=Trace(queries, {}))))
    lists = _of(body, "queries")
    assert [[_text(item) for item in list_] for list_ in lists] == ([expected] if expected else [])


def test_every_step_has_its_time_counts_and_cost_with_warnings_beneath(body: ET.Element) -> None:
    rows = [[_text(cell) for cell in row] for row in _section(body, "Steps").iter("tr")]
    assert rows[0] == ["Step", "When", "ms", "In → out", "Tokens", "Cost"]
    assert rows[2] == ["multi_query", "", "500.0", "1 → 2", "412 in, 96 out", "0.0012"]
    at = next(at for at, row in enumerate(rows) if row[0] == "recency failed")
    assert rows[at + 1] == ["⚠ recency failed: Clocks"]
    assert rows[-1] == ["all", "", "527.9", "", "1412 in, 100 out", "0.0012"]


def test_columns_of_what_was_not_used_are_left_out_of_the_page() -> None:
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
    bars = [next(span.iter("rect")) for span in _of(body, "span")]
    places = [[float(bar.get(key, "").rstrip("%")) for key in ("x", "width")] for bar in bars]
    assert places[0][0] == 0
    for (x, width), (following, _) in pairwise(places):
        assert x + width == pytest.approx(following, abs=0.02)
    assert sum(places[-1]) == pytest.approx(100, abs=0.02)


def test_steps_that_took_no_time_have_bars_of_none(make_search: MakeSearch) -> None:
    answer = replace(make_search().answer, steps=(Step("plan", 0.0), Step("embed", 0.0)))
    (bar, _) = _of(_body(search_report("who?", answer)), "span")
    assert next(bar.iter("rect")).get("width") == "0.00%"


def test_a_source_asked_for_is_told_about_with_its_way(body: ET.Element) -> None:
    (article,) = _section(body, "Expected").findall("article")
    assert _text(article) == ("?Clocks c[mfzqc] Out at thresholds.Too far: Clocksfuse 2thresholds out")


def test_a_hit_says_where_it_stands_who_found_it_and_how_it_moved(body: ET.Element) -> None:
    first, _ = _section(body, "Hits").findall("article")
    heading, scored, found_by, moved, text = map(_text, first)
    assert heading == "1Clocks b, Part > Clocks, p. 7"
    assert scored == "[mfzqb/3] in documents, score 0.99, similarity 0.432"
    assert found_by == "Found by query 1: sparse 1 (1.00)"
    assert moved == "fuse 3thresholds 2rerank 1"
    assert text == "What Clocks says of b."


def test_only_the_beginning_of_a_long_text_is_shown(make_search: MakeSearch) -> None:
    answer = make_search().answer
    long = replace(answer.hits[0].chunk, text="word " * 1000)
    answer = replace(answer, hits=(replace(answer.hits[0], chunk=long),))
    (text,) = _body(search_report("who?", answer)).iter("blockquote")
    assert _text(text).endswith("word …")
    assert len(_text(text)) < 700


def test_of_joined_passages_the_best_is_shown(make_search: MakeSearch) -> None:
    answer = make_search().answer
    hit = answer.hits[0]
    assert hit.text == hit.chunk.text
    for before, beginning in ("word " * 10, "word"), ("word " * 1000, f"…\n{hit.text}"):
        joined = replace(hit, excerpts=(Excerpt(0, 0, f"{before}{hit.text}"),))
        (text,) = _body(search_report("who?", replace(answer, hits=(joined,)))).iter("blockquote")
        assert _text(text).startswith(beginning)
        assert hit.text in _text(text)


def test_the_first_passages_after_each_step_are_there_on_demand(body: ET.Element) -> None:
    section = _section(body, PASSAGES)
    summaries = [element.findtext("summary") for element in section.findall("details")]
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


def test_whatever_anybody_says_is_text(make_search: MakeSearch, hostile: str) -> None:
    plain, search = make_search("Clocks"), make_search(hostile)
    expected = _body(search_report("Clocks", plain.answer, plain.fate))
    page = search_report(hostile, search.answer, search.fate)
    body = _body(page)
    assert [node.tag for node in body.iter()] == [node.tag for node in expected.iter()]
    assert [sorted(node.keys()) for node in body.iter()] == [sorted(node.keys()) for node in expected.iter()]
    assert """<script>x</script>"'&amp;$title""" in _text(body)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e]", page)


def test_the_page_refers_to_nothing_and_runs_nothing(make_search: MakeSearch, hostile: str) -> None:
    search = make_search(hostile)
    page = search_report(hostile, search.answer, search.fate)
    for element in _body(page).iter():
        assert element.tag not in {"script", "link", "img", "image", "use", "iframe", "object", "form", "a"}
        names = element.keys()
        assert not {name for name in names if name in {"src", "href", "style"} or name.startswith("on")}
    assert '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src' in page
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"url\(|@import", page)


def test_every_class_of_the_page_is_styled_and_every_own_style_is_used(body: ET.Element) -> None:
    used = {class_ for element in body.iter() for class_ in element.get("class", "").split()}
    own_classes = set(re.findall(r"\.([a-z][a-z0-9-]*)", re.sub(r"\{[^{}]*\}", "", OWN_STYLE)))
    styled = own_classes | set(re.findall(r"\.([a-z][a-z-]*)", COMMON_STYLE))
    assert used <= styled
    assert own_classes <= used

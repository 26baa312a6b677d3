"""The page that shows runs side by side."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from rag import report
from rag.evaluate.compare_runs import Latency, StoredHit, compare
from rag.evaluate.report_page import report_page
from tests.evaluate.made_up import question, run
from tests.evaluate.report.pages import parse_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.evaluate.compare_runs import EvaluationRun, QuestionResult
    from tests.evaluate.report.pages import Element


STYLE = report.STYLE.read_text(encoding="utf-8")
TOKENS = "token_recall@5"
SAYING = {
    "hit",
    "finds",
    "id",
    "text",
    "expected",
    "metric",
    "set",
    "profile",
    "setting",
    "to",
    "version",
    "of",
}


@pytest.fixture(params=["one", "one without hits", "several", "strangers", "leaking", "partly measured"])
def runs(request: pytest.FixtureRequest) -> list[EvaluationRun]:
    """Runs of every kind that a page is made of."""
    first = run(1, {"a": 0.5, "b": 1.0, "c": 0.0})
    match request.param:
        case "one":
            return [first]
        case "one without hits":
            return [run(1, [question("a", 0, hits=())])]
        case "several":
            return [first, run(2, {"a": 1.0, "b": 0.5, "c": 0.0}), run(3, {"a": 1.0, "b": 1.0, "c": 1.0})]
        case "strangers":
            return [first, run(2, {"x": 1.0, "y": 0.5})]
        case "leaking":
            return [first, run(2, [question("a", 1.0, leaks=("chunk",))])]
        case _:
            metrics = {"nDCG@10": 1.0, TOKENS: 0.5}
            return [run(id_, [question("a", metrics), question("b", 1.0)]) for id_ in (1, 2)]


@pytest.mark.parametrize("metric", ["nDCG@10", TOKENS])
def test_the_page_is_well_formed(runs: list[EvaluationRun], metric: str) -> None:
    page = parse_page(report_page(runs, metric))
    assert len(page.all("html", lang="en")) == 1
    assert all(chart.attributes["role"] == "img" for chart in page.all("svg"))
    assert all(chart.attributes["aria-label"] for chart in page.all("svg"))


@pytest.mark.parametrize("metric", ["nDCG@10", TOKENS])
def test_headings_go_down_one_level_at_a_time(runs: list[EvaluationRun], metric: str) -> None:
    page = parse_page(report_page(runs, metric))
    levels = [int(heading.name[1]) for heading in page.walk() if re.fullmatch("h[1-6]", heading.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), levels


def test_the_page_refers_to_nothing_and_runs_nothing(runs: list[EvaluationRun]) -> None:
    text = report_page(runs, "nDCG@10")
    for element in parse_page(text).walk():
        assert element.name not in {"script", "link", "img", "image", "use", "iframe", "object", "form", "a"}
        names = element.attributes.keys()
        assert not {name for name in names if name in {"src", "href", "style"} or name.startswith("on")}
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"url\(|@import", text)


def test_browsers_are_told_to_load_and_run_nothing_before_anything_else_is_said() -> None:
    page = parse_page(report_page([run(1, {"a": 1.0})], "nDCG@10"))
    charset, policy = page.all("meta")[:2]
    assert charset.attributes == {"charset": "utf-8"}
    assert policy.attributes == {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'",
    }


def _nasty(where: str) -> str:
    return f"""{where}"'><script>x</script><x-{where}>&amp;$title"""


def test_whatever_documents_and_questions_say_is_text() -> None:
    hit = StoredHit(id="1", title=_nasty("hit"), score=1, similarity=1, finds=(_nasty("finds"),))
    texts = {"text": _nasty("text"), "hits": [hit], "expected": {_nasty("expected"): 2}, "leaks": ["1"]}
    summary = {
        "set": _nasty("set"),
        "profile": _nasty("profile"),
        "settings": {_nasty("setting"): _nasty("to")},
        "versions": {_nasty("version"): _nasty("of")},
    }
    metric = _nasty("metric")
    runs = [run(at, [question(_nasty("id"), {metric: at / 2}, **texts)], **summary) for at in (0, 1)]
    for chosen in (runs, runs[:1]):
        page = parse_page(report_page(chosen, metric))
        assert not [
            element.name
            for element in page.walk()
            if element.name == "script" or element.name.startswith("x-")
        ]
        assert [name for name in SAYING if _nasty(name) not in page.text] == []


def test_the_header_says_what_was_asked_and_when() -> None:
    page = parse_page(report_page([run(1, {"a": 1.0, "b": 0.0}, left_out=3)], "nDCG@10"))
    (header,) = page.all("header")
    assert header.all("h1")[0].text == "clocks"
    (lede,) = header.all("p", class_="lede")
    assert lede.text == ("2 questions asked on 2 January 2026. 3 left out: no text or no judgement.")


def test_runs_that_were_asked_different_things_are_told_apart() -> None:
    runs = [run(1, {"a": 1.0}), run(2, {"a": 1.0, "b": 0.0}, set="dials"), run(3, {"a": 1.0})]
    page = parse_page(report_page(runs, "nDCG@10"))
    assert page.all("h1")[0].text == "clocks, dials"
    assert [lede.text for lede in page.all("p", class_="lede")] == [
        "Run 1, Run 3: 1 question of clocks asked on 2 January 2026.",
        "Run 2: 2 questions of dials asked on 2 January 2026.",
    ]
    assert "The runs did not ask the same questions." in page.text


def test_leaks_are_said_aloud_with_their_questions() -> None:
    leaking = run(2, [question("a", 1.0), question("b", 1.0, leaks=("chunk", "other"))])
    page = parse_page(report_page([run(1, {"a": 1.0, "b": 1.0}), leaking], "nDCG@10"))
    (loud,) = page.all("p", class_="leaks")
    assert loud.text == "⚠ Run 2 leaks: 2 hits that the asker may not see: b."


def test_without_leaks_nothing_is_said_of_them() -> None:
    assert not parse_page(report_page([run(1, {"a": 1.0})], "nDCG@10")).all("p", class_="leaks")


def test_a_hit_that_leaked_is_marked_where_it_is_shown() -> None:
    leaking = run(2, [question("a", 1.0, leaks=("chunk",))])
    page = parse_page(report_page([run(1, {"a": 0.0}), leaking], "nDCG@10"))
    before, after = page.all("table", class_="hits")
    assert not before.all("strong", class_="leak")
    assert len(after.all("strong", class_="leak")) == 1


def _metrics(page: Element) -> Element:
    return page.all("div", class_="scroll metrics")[0]


def _marked(row: Sequence[str]) -> list[bool]:
    return [cell.startswith("★") for cell in row]


def test_the_best_of_each_metric_is_marked_and_so_is_the_quickest() -> None:
    quick, slow = Latency(p50=1.0, p95=30.0), Latency(p50=2.0, p95=20.0)
    runs = [run(1, {"a": 0.5}, latency_ms=quick), run(2, {"a": 0.75}, latency_ms=slow)]
    rows = _metrics(parse_page(report_page(runs, "nDCG@10"))).rows()
    assert rows["nDCG@10"] == ["0.5000", "★0.7500"]
    assert rows["p50"] == ["★1.0", "2.0"]
    assert rows["p95"] == ["30.0", "★20.0"]


def test_values_that_look_alike_are_marked_alike() -> None:
    runs = [run(1, {"a": 0.5}), run(2, {"a": 0.70001}), run(3, {"a": 0.70002})]
    page = parse_page(report_page(runs, "nDCG@10"))
    assert _marked(_metrics(page).rows()["nDCG@10"]) == [False, True, True]
    assert _marked(_metrics(page).rows()["p50"]) == [False, False, False]


def test_a_metric_that_a_run_lacks_is_left_open() -> None:
    runs = [run(1, {"a": 1.0}), run(2, [question("a", {"nDCG@10": 1.0, TOKENS: 0.5})])]
    page = parse_page(report_page(runs, "nDCG@10"))
    assert _metrics(page).rows()[TOKENS] == ["–", "0.5000"]


def test_later_runs_are_held_against_the_first() -> None:
    first, second = run(1, {"a": 0.5, "b": 1.0, "c": 0.0}), run(2, {"a": 0.25, "b": 1.0, "c": 0.1})
    page = parse_page(report_page([first, second, run(3, {"z": 1.0})], "nDCG@10"))
    rows = _metrics(page).rows()
    assert rows["difference"] == ["–", "−0.0500", "–"]
    assert rows["p-value"] == ["–", f"{compare(first, second, 'nDCG@10').p_value:.4f}", "–"]
    assert [rows[name][1] for name in ("questions won", "lost", "alike")] == ["1", "1", "1"]
    assert "Run 3 and Run 1 share no question with the metric nDCG@10." in page.text
    assert len(page.all("svg", class_="scatter")) == 1


def test_a_single_run_shows_its_scores_and_its_weakest_questions() -> None:
    page = parse_page(report_page([run(1, {"good": 0.9, "perfect": 1.0, "bad": 0.1})], "nDCG@10"))
    assert [span.text for span in page.all("span", class_="scores")] == ["0.100", "0.900"]
    assert "difference" not in _metrics(page).rows()
    assert not page.all("svg", class_="scatter")


def test_a_metric_that_was_not_measured_is_missing_with_a_word() -> None:
    page = parse_page(report_page([run(1, {"a": 1.0})], TOKENS))
    assert f"No question has the metric {TOKENS}." in page.text


def test_questions_without_the_metric_are_neither_compared_nor_weak() -> None:
    def results(score: float) -> list[QuestionResult]:
        return [question("a", {"nDCG@10": 1.0, TOKENS: score}), question("b", 0.0)]

    alone = parse_page(report_page([run(1, results(0.5))], TOKENS))
    assert [code.text for code in alone.all("code")] == ["a"]
    compared = parse_page(report_page([run(1, results(0.5)), run(2, results(0.75))], TOKENS))
    assert [code.text for code in compared.all("code")] == ["a"]


def test_ten_of_the_questions_won_and_lost_are_listed_the_greatest_change_first() -> None:
    before = {f"up{at}": 0.0 for at in range(12)} | {"down": 1.0}
    after = {f"up{at}": (at + 1) / 12 for at in range(12)} | {"down": 0.25}
    page = parse_page(report_page([run(1, before), run(2, after)], "nDCG@10"))
    assert [heading.text for heading in page.all("h4")] == ["Most won 10 of 12", "Most lost 1"]
    won, lost = page.all("ol", class_="questions")
    assert [code.text for code in won.all("code")] == [f"up{at}" for at in range(11, 1, -1)]
    assert lost.all("summary")[0].text == "1.000 → 0.250What of down?down"


def test_beneath_a_question_stands_what_each_run_found_and_what_was_expected() -> None:
    stray = StoredHit(id="1", title="Water clocks", score=0.5, similarity=0.25, finds=())
    hit = StoredHit(id="2", title="Sundials", score=0.75, similarity=0.125, finds=("dial", "shadow"))
    expected = {"dial": 2, "shadow": 1}
    runs = [
        run(1, [question("a", 0.0, hits=[], expected=expected)]),
        run(2, [question("a", 1.0, hits=[stray, hit], expected=expected)]),
    ]
    (details,) = parse_page(report_page(runs, "nDCG@10")).all("ol", class_="questions")
    assert [item.text for item in details.all("li")[1:]] == ["dial (grade 2)", "shadow"]
    before, after = details.all("table")
    assert before.all("caption")[0].text == "Run 1, 10.0 ms: no hits"
    assert after.all("caption")[0].text == "Run 2, 10.0 ms"
    assert after.rows() == {
        "#": ["Document", "Score", "Similarity"],
        "1": ["Water clocks", "0.500", "0.250"],
        "2": ["Sundials✓ finds dial, shadow", "0.750", "0.125"],
    }


def test_settings_that_all_runs_share_are_said_once() -> None:
    versions = {"refdesk": "1.0"}
    runs = [
        run(
            at,
            {"a": 1.0},
            settings={"search": {"mode": "dense", "profiles": {"near": {"candidates": at}}}},
            versions=versions,
        )
        for at in (1, 2)
    ]
    (settings,) = parse_page(report_page(runs, "nDCG@10")).all("div", class_="scroll settings")
    rows = settings.rows()
    assert rows["search.mode"] == ["dense"]
    assert rows["search.profiles.near.candidates"] == ["1", "2"]
    assert rows["refdesk"] == ["1.0"]


def test_settings_without_a_value_are_left_open() -> None:
    settings: dict[str, Any] = {"path": None, "model": "", "collections": [], "limit": 0}
    (table,) = parse_page(report_page([run(1, {"a": 1.0}, settings=settings)], "nDCG@10")).all(
        "div", class_="scroll settings"
    )
    rows = table.rows()
    assert [rows[name] for name in settings] == [["–"], ["–"], ["[]"], ["0"]]


def _colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(colour: str, other_colour: str) -> float:
    light, dark = sorted((_luminance(colour), _luminance(other_colour)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_and_shapes_stand_out_in_light_and_in_dark_as_wcag_asks(scheme: int) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, flags=re.DOTALL)
    colours = _colours((light, dark)[scheme])
    assert _colours(light).keys() == _colours(dark).keys()
    texts = [("paper", ink) for ink in ("ink", "faint-ink", "won", "lost", "alike")]
    texts += [
        ("best", "ink"),
        ("best", "won"),
        ("found", "ink"),
        ("found", "found-ink"),
        ("found", "loud-ink"),
    ]
    texts += [("loud", "loud-ink"), ("paper", "loud-ink")]
    shapes = [("paper", "bar"), ("paper", "strong-line"), ("bar", "ink")]
    for pairs, enough in ((texts, 4.5), (shapes, 3.0)):
        for paper, ink in pairs:
            assert _contrast(colours[paper], colours[ink]) >= enough, (paper, ink)

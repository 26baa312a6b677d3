"""The page of passages in a real browser: as a host shows it, and under documents that try to script it.

The host is the bridge of the extension's own SDK (`apps_host.mjs`), in Chromium without a window. The control
is the page as a careless author would have written it, in a host that lets a stranger in.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.clients.conftest import Node
    from tests.conftest import Scripts
    from tests.server.conftest import Message, Remote

pytestmark = [pytest.mark.nightly, pytest.mark.slow]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ATTACKS = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror='window.pwned=1;alert(1)'>",
    "<img src='http://STRANGER/pixel'>",
    "<svg onload='window.pwned=1'><script>window.pwned=1</script></svg>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<iframe src='javascript:parent.pwned=1'></iframe>",
    "<a href='javascript:window.pwned=1' id=list name=said>open</a>",
    "<style>@import 'http://STRANGER/style';</style>",
    "<link rel=stylesheet href='http://STRANGER/sheet'>",
    "<meta http-equiv=refresh content='0;url=http://STRANGER/refresh'>",
    "<base href='http://STRANGER/'><form action='http://STRANGER/form'><button>Read on</button></form>",
    "<object data='javascript:window.pwned=1'></object><embed src='http://STRANGER/embed'>",
    "<details open ontoggle='window.pwned=1'><video><source onerror='window.pwned=1'></video></details>",
    "<template shadowrootmode=open><slot onslotchange='window.pwned=1'></slot></template>",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1} <%= window.pwned=1 %>",
    "javascript:window.pwned=1//'-(window.pwned=1)-'\";window.pwned=1;//",
    "\u202etxet desrever\u202c \u2066isolated\u2069 \u200b\ufeff",
    "--><![CDATA[<script>window.pwned=1</script>]]>",
)
WORDS = "ol ul li article div span bdi mark button figure canvas i kbd header main footer h1 h2 p"
OURS = {"html", "head", "meta", "title", "style", "script", "body", *WORDS.split(" ")}
NAMES = (
    "aria-label aria-labelledby class data-key dir disabled height hidden id role style tabindex type width"
)
ATTRIBUTES = {"width", *NAMES.split(" ")}
FORGED = {"jsonrpc": "2.0", "method": "ui/notifications/tool-result"}
QUIET = ("dialogs", "requests", "errors", "evil")


def hostile(words: str) -> Message:
    """A result whose every field is an attack."""
    return {
        "id": words,
        "title": words,
        "cite_as": words,
        "uri": words,
        "collection": words,
        "date": words,
        "url": "javascript:window.pwned=1",
        "stale": words,
        "flags": [words, "__proto__", "constructor"],
        "header": words,
        "text": words,
        "page": 1,
        "start": words,
        "end": {"toString": words},
        "match_count": words,
        "similarity": 0.5,
        "metadata": {words: words},
    }


ODD: list[Any] = [
    {},
    {"structuredContent": {"results": {"length": 1e9}}},
    {
        "structuredContent": {
            "results": [None, 7, "x", [], {"id": None, "text": {"a": 1}, "similarity": "NaN"}]
        }
    },
    {"content": [{"type": "text", "text": "{"}]},
    {"content": [], "isError": True},
    {"isError": True, "content": [{"type": "text", "text": ATTACKS[2]}]},
]


def forged(result: object, **more: object) -> Message:
    content = [{"type": "text", "text": ATTACKS[0]}]
    return {"content": content, "structuredContent": result, **more}


def attacked(attacks: Sequence[str]) -> Message:
    results = [hostile(words) for words in attacks]
    meta = {"refdesk/app": {"opener": "get_source", "pages": [*range(len(attacks)), "x", -1, {}]}}
    return forged({"collection": attacks[0], "results": results, "notes": list(attacks)}, _meta=meta)


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {
    "content": [{"type": "image", "mimeType": "image/png", "data": DOT}],
    "structuredContent": {
        "page": 1,
        "pages": 3,
        "width": 10,
        "height": 10,
        "marks": [["0;background:url(http://STRANGER/mark)", 0, 1, 1], ATTACKS[2], None, [0, 0, 1e9, -5]],
    },
}
READ = {"content": [], "structuredContent": {"text": ATTACKS[2], "end": 9, "length": 99, "title": ATTACKS[2]}}
HUGE = {"title": "y" * 1_000_000, "text": "z " * 500_000}
NO_PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' onload='window.pwned=1'/>"
WRONG_PICTURES: dict[str, Message] = {
    "svg": {"content": [{"type": "image", "mimeType": "image/svg+xml", "data": NO_PICTURE}]},
    "quotes": {"content": [{"type": "image", "mimeType": "image/png", "data": "x' onerror='window.pwned=1"}]},
    "address": {"content": [{"type": "image", "mimeType": "image/png", "data": "http://STRANGER/png"}]},
    "noise": {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
    "nothing": {"content": []},
}
READ_ON: list[list[object]] = [["wait", "article"], ["press", "Read on"], ["wait", ".text span"]]
SHOW: list[list[object]] = [
    ["wait", "article"],
    ["press", "Show page"],
    ["wait", "figure, #said:not(:empty)"],
]
SETTLE = ["rest", 300]  # for what must not happen


def attack(attacks: Sequence[str] = ATTACKS, **run: object) -> Message:
    """A result of attacks, and its buttons."""
    answers = {"get_source": READ, "page_picture": PICTURE}
    return {
        "answers": answers,
        "steps": [["give", attacks[2], attacked(attacks)], *READ_ON, *SHOW, SETTLE],
    } | run


@pytest.fixture(scope="module")
def corpus_of_attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that try it, in all places in which a document can say something."""
    folder = tmp_path_factory.mktemp("attacks") / "papers"
    folder.mkdir()
    for at, words in enumerate(ATTACKS):
        quoted = json.dumps(words)
        front = f"---\ntitle: {quoted}\ndescription: {quoted}\nurl: https://example.com/{at}\n---\n"
        (folder / f"{at}.md").write_text(
            f"{front}# {words}\n\nA swinging pendulum.\n\n## {words}\n\n{words}\n"
        )
    (folder / "<img src=x onerror=alert(1)>.txt").write_text(f"A pendulum. {' '.join(ATTACKS)}\n")
    (folder / "page.html").write_text(f"<title>Pendulum</title><p>A pendulum.</p>{''.join(ATTACKS)}")
    (folder / "long.txt").write_text("pendulum " + "x" * 300_000)
    return folder


@pytest.fixture(scope="module")
def reports(
    node: Node,
    scripts: Scripts,
    clock_room: Path,
    corpus_of_attacks: Path,
    lasting_listen: Callable[..., Remote],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Message]:
    """What the browser saw, by the name of the run."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    folder = tmp_path_factory.mktemp("apps")
    shutil.copytree(clock_room, folder / "data")
    options = ("--collection", "attacks", "--visibility", "tenant", "--data", folder / "data")
    run = scripts.admin("ingest", corpus_of_attacks, *options)
    assert run.returncode == 0, run.stderr
    remote = lasting_listen(folder / "data", server_apps="true", http_authentication="[]")
    harrison = {"query": "Harrison's marine chronometer H2", "limit": 3, "collections": ["documents"]}
    pendulum = {"query": "pendulum", "limit": 50, "collections": ["attacks"], "max_chars": 100_000}
    tour: list[list[object]] = [
        ["search", harrison],
        ["wait", "article"],
        ["press", "Read on"],
        ["wait", ".text span"],
        ["focus", "article"],
        ["key", "p"],
        ["wait", "canvas"],
        ["ask", "document.querySelector('canvas').width", "width"],
        ["ask", "document.querySelectorAll('.sheet i').length", "marks"],
        ["ask", "document.querySelectorAll('mark').length", "words"],
        ["ask", "getComputedStyle(document.documentElement).backgroundColor", "first"],
        ["theme", "light"],
        ["wait", "[data-theme=light]"],
        ["ask", "getComputedStyle(document.documentElement).backgroundColor", "second"],
        ["press", "Next page"],
        ["wait", "canvas[aria-label^='Page 4 of The Longitude Problem']"],
        ["focus", "article"],
        ["key", "j"],
        ["ask", "[...document.querySelectorAll('article')].indexOf(document.activeElement)", "focused"],
        ["teardown", None],
    ]
    runs: dict[str, Message] = {
        "legacy": {"theme": "dark", "steps": tour},
        "modern": {"theme": "dark", "mode": "2026-07-28", "steps": tour},
        "documents": {"steps": [["search", pendulum], *READ_ON, SETTLE]},
        "fields": attack(),
        "odd": {"steps": [["give", {"a": 1}, step] for step in ODD] + [SETTLE]},
        "huge": {
            "steps": [
                ["give", "x" * 1_000_000, forged({"results": [HUGE] * 5})],
                ["wait", "article"],
                ["ask", "document.body.getBoundingClientRect().height", "height"],
            ]
        },
        "forged": {
            "steps": [
                ["give", "a", forged({"results": [{"title": "from the host"}]})],
                ["wait", "article"],
                ["forge", FORGED | {"params": forged({"results": [{"title": "from elsewhere"}]})}, 1],
                ["forge", {"jsonrpc": "2.0", "id": 1, "result": {"hostContext": {"theme": "dark"}}}, 1],
                SETTLE,
                ["ask", "document.querySelector('h2').innerText", "kept"],
                ["forge", FORGED | {"params": forged({"results": [{"title": "through the host"}]})}, 0],
                SETTLE,
                ["ask", "document.querySelector('h2').innerText", "passed"],
            ]
        },
        "control": attack([name for name in ATTACKS if "refresh" not in name], weaken="http://STRANGER"),
        "refreshed": {"weaken": "http://STRANGER", "steps": [["give", "a", attacked(ATTACKS)], SETTLE]},
    }
    for name, answer in WRONG_PICTURES.items():
        steps = [["give", "a", attacked(ATTACKS)], *SHOW, SETTLE]
        runs[name] = {"answers": {"page_picture": answer}, "steps": steps}
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"runs": list(runs.values())}))
    report = node.printed("apps.mjs", browser, remote.url, plan)
    return dict(zip(runs, report["steps"], strict=True))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_host_shows_cards_reads_on_and_shows_pages(reports: dict[str, Message], era: str) -> None:
    report = reports[era]
    assert report["tools"] == ["search", "get_source", "page_picture"]
    assert [name for name, _ in report["said"]["calls"]] == ["get_source", "page_picture", "page_picture"]
    assert "The Longitude Problem" in report["text"]
    assert "Why found: it has “harrison”" in report["text"]
    assert "H3, 1740 to 1759" in report["text"]  # read on: the passage ends before it
    assert (report["width"], report["focused"], report["teardown"]) == (902, 1, {})
    assert report["marks"] >= 3
    assert report["words"] >= 1
    assert report["first"] != report["second"]
    assert report["said"]["sizes"] >= 2
    assert {name: report[name] for name in QUIET} == {name: [] for name in QUIET}


ATTACKED_RUNS = ("documents", "fields", "odd", "huge", "forged", *WRONG_PICTURES)


@pytest.mark.parametrize("run", ATTACKED_RUNS)
def test_no_document_scripts_the_page_or_makes_it_fetch(reports: dict[str, Message], run: str) -> None:
    report = reports[run]
    assert not report["pwned"]
    assert {name: report[name] for name in QUIET} == {name: [] for name in QUIET}
    assert set(report["tags"]) <= OURS
    assert set(report["attributes"]) <= ATTRIBUTES
    assert report["said"]["links"] == []


def test_what_attacks_is_shown_as_it_is_written(reports: dict[str, Message]) -> None:
    text = reports["fields"]["text"]
    assert all(words in text for words in ATTACKS if "STRANGER" not in words and "\u202e" not in words)
    assert "Open at" not in text  # no button for an address that is a script
    assert "Open at example.com" in reports["documents"]["text"]
    assert len(reports["documents"]["result"]["structuredContent"]["results"]) > 10
    assert "window.pwned=1" in reports["documents"]["text"]


@pytest.mark.parametrize("run", WRONG_PICTURES)
def test_what_is_no_png_is_not_shown(reports: dict[str, Message], run: str) -> None:
    assert "canvas" not in reports[run]["tags"]
    assert "The server sent no picture." in reports[run]["text"]


def test_a_picture_is_shown_with_no_more_than_its_marks(reports: dict[str, Message]) -> None:
    assert "canvas" in reports["fields"]["tags"]
    assert "i" in reports["fields"]["tags"]


def test_a_huge_text_stays_small_until_it_is_asked_for(reports: dict[str, Message]) -> None:
    assert reports["huge"]["height"] < 5_000


def test_only_the_host_is_listened_to(reports: dict[str, Message]) -> None:
    assert reports["forged"]["kept"] == "from the host"
    assert reports["forged"]["passed"] == "through the host"


def test_a_careless_page_would_have_been_scripted(reports: dict[str, Message]) -> None:
    """The control: the same attacks, and all that looks for them finds them."""
    report = reports["control"]
    assert report["pwned"]
    assert report["requests"]
    assert report["evil"]
    assert not set(report["tags"]) <= OURS
    assert not set(report["attributes"]) <= ATTRIBUTES
    assert "/refresh" in reports["refreshed"]["evil"]

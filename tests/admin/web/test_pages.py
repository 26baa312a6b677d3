"""The pages of the console: they show what the commands print, for anybody whom the administrator names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import pytest

from rag import report
from rag.access.rule import check_access, in_words, valid_entries
from rag.admin.web import console
from rag.admin.web.desk_pages import server_at
from rag.config.settings import Settings
from rag.corpus import Access
from rag.search.view import UNREADABLE
from rag.store.write.make_collection import create_tenant
from rag.uris import NOT_FOUND
from tests.refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.web.conftest import Browser, Page, Running
    from tests.conftest import Scripts
    from tests.endpoint import Site

pytestmark = pytest.mark.slow

CONTRADICTION = refusal(check_access, "tenant", ["group:hr"], [])
LIMITS, NO_CHANGE = "The number of hits is from 0 to 100.", "Choose what to change."
PLACES = [place for place, _ in console.PLACES]


def json_of(scripts: Scripts, data: Path, *arguments: str) -> Any:  # noqa: ANN401 any JSON
    run = scripts.admin(*arguments, "--data", data, "--json")
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def id_of(browser: Browser, text: str) -> str:
    """The id of the only document with this text in its title or path."""
    ids = re.findall(r'href="/documents/(\w+)"', browser.get("/documents", text=text).html)
    assert len(ids) == 1, ids
    return str(ids[0])


def confirm(browser: Browser, preview: Page) -> Page:
    """Press the button below what would change."""
    form = preview.html.partition('class="confirm"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    assert fields
    return browser.post("/access", **{key: value for key, value in fields.items() if key != "form"})


@pytest.mark.parametrize("place", PLACES)
def test_each_page_of_the_menu_is_there_and_marked_in_it(browser: Browser, place: str) -> None:
    page = browser.get(place)
    assert page.status == 200
    marked = [element["href"] for element in page.elements("a") if element.get("aria-current") == "page"]
    assert marked == [place]


def test_the_overview_has_the_collections_the_last_runs_and_the_health(browser: Browser) -> None:
    browser.post("/health")  # the first look may not have ended
    text = browser.get("/").text
    assert "documents 17 195" in text
    assert "17 added" in text
    assert "Nothing wrong" in text
    assert "access records default" in text


def test_a_search_shows_what_the_command_finds_with_its_trace(
    browser: Browser, scripts: Scripts, web_data: Path
) -> None:
    question = "who invented the pendulum clock"
    (reply,) = json_of(scripts, web_data, "search", question)
    page = browser.get("/search", q=question)
    assert page.status == 200
    cited = re.findall(r'class="facts"><code>\[([^\]]+)\]', page.html)
    assert cited[: len(reply["results"])] == [hit["id"] for hit in reply["results"]]
    assert "Steps" in page.text


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"limit": "1000"}, LIMITS),
        ({"limit": "x"}, LIMITS),
        ({"user": "user:ann"}, "Give the user's name without a prefix"),
        ({"collection": "nothing"}, UNREADABLE.partition(" Readable")[0]),
        ({"mode": "fast"}, "mode"),
        ({"expect": "../x"}, NOT_FOUND),
    ],
)
def test_a_search_that_is_not_possible_says_why(
    browser: Browser, parameters: dict[str, str], words: str
) -> None:
    page = browser.get("/search", q="clocks", **parameters)
    assert page.status == 400
    assert words in page.text
    assert browser.get("/search", q="clocks").status == 200


def test_the_documents_are_filtered_by_text_kind_and_page(browser: Browser) -> None:
    assert "17 documents" in browser.get("/documents").text
    assert "2 documents" in browser.get("/documents", text="LEAP").text
    assert "1 document " in browser.get("/documents", text="leap", kind="text/csv").text
    assert "No document fits." in browser.get("/documents", text="leap", kind="text/html").text
    assert browser.get("/documents", collection="nothing").status == 404
    assert browser.get("/documents", page="-1").status == 400
    assert "17 documents" in browser.get("/documents", page="99").text


def test_a_document_shows_its_passages_page_by_page(browser: Browser) -> None:
    id_ = id_of(browser, "longitude-problem")
    first = browser.get(f"/documents/{id_}")
    assert "Page 1 of 2" in first.text
    assert f"{id_}/19" in first.text
    assert f"{id_}/20" not in first.text
    assert f"{id_}/20" in browser.get(f"/documents/{id_}", page="2").text
    assert f"{id_}/20" in browser.get(f"/documents/{id_}", passage="20").text
    assert browser.get("/documents/aaaaaaaaaaaaaaaa").status == 404
    assert browser.get("/documents/..%2fx").status == 404


def test_a_change_of_rights_is_shown_before_it_is_made_and_then_explained(
    browser: Browser, scripts: Scripts, web_data: Path
) -> None:
    id_ = id_of(browser, "gps-time")
    change = {"name": id_, "act": "set", "visibility": "restricted", "entries": "group:hr", "user": "eve"}
    preview = browser.get("/access", **change)
    assert "everybody in the tenant but group:hr would no longer see 1 document" in preview.text
    assert "restricted to group:hr" in preview.text
    assert "wouldn’t see it" in preview.text
    before = json_of(scripts, web_data, "access", "show", id_)
    assert before[0]["access"]["visibility"] == "tenant"  # nothing is changed by looking

    assert "Changed who may see 1 document." in confirm(browser, preview).text
    after = json_of(scripts, web_data, "access", "show", id_)
    assert after[0]["access"]["allow"] == ["group:hr"]
    assert "doesn’t see it it is restricted" in browser.get("/access", name=id_, user="eve").text
    assert "sees it group:hr is allowed." in browser.get("/access", name=id_, user="eve", groups="hr").text
    assert "access set" in browser.get("/activity").text

    assert "16 documents" in browser.get("/documents", who="one", user="eve").text
    assert "17 documents" in browser.get("/documents", who="one", groups="hr").text
    html = browser.get("/search", q="GPS time leap seconds", groups="hr").html
    assert id_ in html
    assert id_ not in browser.get("/search", q="GPS time leap seconds", user="eve").html


def test_a_change_that_was_overtaken_by_another_is_not_made(
    browser: Browser, scripts: Scripts, web_data: Path
) -> None:
    id_ = id_of(browser, "shadows-and-water")
    preview = browser.get("/access", name=id_, act="revoke", entries="user:late")
    assert scripts.admin("access", "revoke", id_, "--from", "user:early", "--data", web_data).returncode == 0
    reply = confirm(browser, preview)
    assert reply.status == 409
    assert "have changed since you looked" in reply.text
    (source,) = json_of(scripts, web_data, "access", "show", id_)
    assert source["access"]["deny"] == ["user:early"]
    preview = browser.get("/access", name=id_, act="revoke", entries="user:late")
    assert confirm(browser, preview).status == 200


def test_a_change_that_changes_nothing_offers_no_button(browser: Browser) -> None:
    id_ = id_of(browser, "unix-time")
    same = browser.get("/access", name=id_, act="set", visibility="tenant")
    assert "already in force" in same.text
    assert "confirm" not in same.html
    assert "confirm" in browser.get("/access", name=id_, act="revoke", entries="user:bob").html


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"act": "grant"}, "Name whom"),
        ({"act": "grant", "entries": "hr"}, refusal(valid_entries, ["hr"])),
        ({"act": "set", "visibility": "all"}, NO_CHANGE),
        ({"act": "remove"}, NO_CHANGE),
        ({"act": "set", "visibility": "tenant", "entries": "group:hr"}, CONTRADICTION),
    ],
)
def test_a_change_that_is_not_possible_says_why_and_changes_nothing(
    browser: Browser, change: dict[str, str], words: str
) -> None:
    id_ = id_of(browser, "railway-time")
    page = browser.get("/access", name=id_, **change)
    assert page.status == 400
    assert words in page.text
    assert browser.post("/access", name=id_, **change).status in {400, 422}
    assert in_words(Access("tenant")) in browser.get("/access", name=id_).text


def test_a_key_is_shown_once_and_revoked(browser: Browser, scripts: Scripts, web_data: Path) -> None:
    reply = browser.post("/keys", user="ann", groups="hr, it", days="30")
    token = re.search(r'class="key">([^<]+)<', reply.html)
    assert token
    assert reply.replied_with == 303  # so the page can be loaded again: that makes no other key
    (listed,) = [key for key in json_of(scripts, web_data, "key", "list")[0]["keys"] if key["user"] == "ann"]
    assert listed["groups"] == ["hr", "it"]
    assert token[1] not in browser.get("/keys").html
    assert listed["id"] in browser.get("/keys").text
    assert browser.post("/keys/revoke", id="ffffffff").status == 404
    assert f"the key {listed['id']}" in browser.post("/keys/revoke", id=listed["id"]).text
    assert all(key["user"] != "ann" for key in json_of(scripts, web_data, "key", "list")[0]["keys"])


def test_new_documents_are_told_to_be_restricted_once_others_can_ask(
    scripts: Scripts,
    start_console: Any,  # noqa: ANN401 a function
    tmp_path: Path,
    corpus: Path,
) -> None:
    data = tmp_path / "desk"
    assert scripts.admin("ingest", corpus / "glossary.txt", "--data", data).returncode == 0
    with start_console(scripts, data) as running:
        browser = running.signed_in()
        assert f"documents 1 5 {in_words(Access('tenant'))}" in browser.get("/collections").text
        browser.post("/keys", user="ann")
        assert "documents 1 5 restricted" in browser.get("/collections").text


def wrong_field(page: Page) -> dict[str, str | None]:
    """The one field that a page marks as wrong."""
    (field,) = [field for field in page.elements("input") if field.get("aria-invalid")]
    (alert,) = [
        element for element in page.elements("span") if element.get("id") == field["aria-describedby"]
    ]
    assert alert["role"] == "alert"
    return field


@pytest.mark.parametrize(
    ("field", "value"), [("days", "0"), ("days", "x"), ("user", "user:ann"), ("groups", "hr, group:it")]
)
def test_a_wrong_entry_in_the_key_form_is_told_beside_its_field_and_nothing_is_lost(
    browser: Browser, field: str, value: str
) -> None:
    entries = {"user": "ann", "groups": "hr", "days": "30"} | {field: value}
    page = browser.post("/keys", **entries)
    assert page.status == 400
    assert 'class="key"' not in page.html
    assert wrong_field(page)["name"] == field
    filled_in = {
        element["name"]: element.get("value")
        for element in page.elements("input")
        if element["name"] in entries
    }
    assert filled_in == entries


@pytest.mark.parametrize("name", ["../x", "documents", "Upper"])
def test_a_wrong_name_of_a_collection_is_told_beside_its_field_and_nothing_is_lost(
    browser: Browser, name: str
) -> None:
    entries = {"name": name, "language": "German", "visibility": "restricted", "description": "Rules"}
    page = browser.post("/collections", **entries)
    assert page.status == 400
    assert wrong_field(page)["value"] == name
    assert [
        element["value"] for element in page.elements("input") if element.get("name") == "description"
    ] == ["Rules"]
    chosen = [element for element in page.elements("option") if "selected" in element]
    assert [option.get("value") for option in chosen] == [None, "restricted"]


def test_tables_of_a_passage_are_drawn_and_what_they_hold_is_text() -> None:
    drawn = report.with_tables("Before\n| a | b |\n|---|:--|\n| <b> | x \\| y |\n\nafter | it\n")
    head, body = "<thead><tr><th>a</th><th>b</th></tr></thead>", "<td>&lt;b&gt;</td><td>x | y</td>"
    table = f"<table>{head}<tbody><tr>{body}</tr></tbody></table>"
    region = f'<div class="drawn" role="region" tabindex="0" aria-label="Table">{table}</div>'
    assert drawn == f"Before\n{region}\nafter | it\n"
    assert report.with_tables("| only one |\nline") == "| only one |\nline"
    assert "<thead>" not in report.with_tables("| a | 1 |\n| b | 2 |")


def test_a_collection_is_made_once(browser: Browser, scripts: Scripts, web_data: Path) -> None:
    fields = {"name": "handbook", "language": "German", "visibility": "restricted", "description": "Rules"}
    assert "Created the collection handbook." in browser.post("/collections", **fields).text
    (collection,) = json_of(scripts, web_data, "collection", "show", "handbook")
    assert (collection["language"], collection["visibility"], collection["description"]) == (
        "German",
        "restricted",
        "Rules",
    )
    assert browser.post("/collections", **fields).status == 400
    assert browser.post("/collections", **(fields | {"name": "other", "language": "Elvish"})).status == 400


def test_judged_questions_are_kept_measured_and_seen_to_move(browser: Browser, web_data: Path) -> None:
    question = "who invented the pendulum clock"
    questions = browser.get("/judged/clocks", q=question)
    ids = [str(element["value"]) for element in questions.elements("input") if element.get("name") == "right"]
    assert len(ids) > 2
    assert browser.post("/judged/clocks", q=question).status == 400  # nothing is marked
    assert "Kept the question" in browser.post("/judged/clocks", q=question, right=[ids[-1]]).text
    assert "nDCG@10 is 0." in browser.post("/judged/clocks/measure", profile="default", mode="").text
    browser.post("/judged/clocks", q=question, right=[ids[0]])  # in place of the former judgement
    page = browser.post("/judged/clocks/measure", profile="default", mode="")
    assert "nDCG@10 is 1.0000." in page.text
    assert "1 question" in page.text
    assert re.search(r"\+0\.\d{4}", page.text)
    assert "Questions that moved in the last run" in page.text
    (line,) = (web_data / "judged" / "default" / "clocks.jsonl").read_text().splitlines()
    assert json.loads(line) == {"text": question, "expect": [ids[0]]}
    assert "0 questions" in browser.post("/judged/clocks/forget", q=question).text


@pytest.mark.parametrize("name", ["..%2fkeys", "UPPER", "a" * 49, "a.b"])
def test_a_set_is_never_a_file_elsewhere(browser: Browser, name: str) -> None:
    assert browser.get(f"/judged/{name}").status in {404, 422}
    assert browser.get("/judged/fine").status == 200


METRICS = """\
# TYPE refdesk_call_seconds histogram
refdesk_call_seconds_bucket{call="search",le="+Inf",outcome="answered"} 4.0
refdesk_call_seconds_count{call="search",outcome="answered"} 4.0
refdesk_call_seconds_sum{call="search",outcome="answered"} 0.5
# TYPE refdesk_gate_alarms_total counter
refdesk_gate_alarms_total 2.0
# TYPE others gauge
others 1.0
"""


def test_the_calls_of_a_server_are_those_of_its_metrics(site: Site) -> None:
    site.pages |= {"/readyz": b"", "/metrics": METRICS.encode()}
    server = anyio.run(server_at, site.server_port)
    assert server.problem == ""
    assert server.ready
    assert server.calls == [("search", "answered", 4, 125.0)]
    assert [value for _, _, value in server.counts] == [2.0]


@pytest.mark.parametrize("text", ["{" * 100, "<script>", 'refdesk_call_seconds_count{call="x} 1'])
def test_what_are_no_metrics_is_no_server(site: Site, text: str) -> None:
    site.pages |= {"/readyz": b"", "/metrics": text.encode()}
    assert "No server answers" in anyio.run(server_at, site.server_port).problem


def test_without_a_server_the_activity_says_so(browser: Browser) -> None:
    assert "No server answers on port 9" in anyio.run(server_at, 9).problem
    assert "What administrators did" in browser.get("/activity").text


def test_another_tenant_is_looked_at_on_request(
    scripts: Scripts,
    tmp_path: Path,
    corpus: Path,
    start_console: Any,  # noqa: ANN401 a function
) -> None:
    data = tmp_path / "desk"
    for tenant in ("acorn", "birch"):
        assert scripts.admin("tenant", "create", tenant, "--data", data).returncode == 0
    run = scripts.admin("ingest", corpus / "glossary.txt", "--data", data, "--tenant", "birch")
    assert run.returncode == 0
    with start_console(scripts, data) as running:
        browser = running.signed_in()
        assert "no collections yet" in browser.get("/").text
        assert "documents 1 " in browser.post("/tenant", tenant="birch").text
        assert browser.post("/tenant", tenant="other").status == 404
        assert "documents 1 " in browser.get("/").text
        browser.get("/judged/mine")
        browser.post("/judged/mine", q="what is a gnomon", right=["aaaaaaaaaaaaaaaa"])
        assert (data / "judged" / "birch" / "mine.jsonl").exists()
        first_tab = browser.form()
        browser.post("/tenant", tenant="acorn")
        late = browser.post("/keys", user="ann", **first_tab)
        assert late.status == 409
        assert "the console looks at acorn now. Nothing was done." in late.text
        assert browser.post("/keys", user="bob").status == 200
        listed = scripts.admin("key", "list", "--data", data).stdout
        assert ("bob" in listed, "ann" in listed) == (True, False)
        browser.post("/tenant", tenant="birch")
        of_birch = browser.form()
        assert scripts.admin("tenant", "remove", "birch", "--yes", "--data", data).returncode == 0
        assert browser.post("/collections", name="new", **of_birch).status == 409
    assert not (data / "judged" / "birch").exists()
    with start_console(scripts, data, "--tenant", "acorn") as running:
        assert running.signed_in().post("/tenant", tenant="birch").status == 404


def test_links_of_the_list_lead_to_pages(browser: Browser, running: Running) -> None:
    page = browser.get("/documents", text="leap")
    links = [str(link["href"]) for link in page.elements("a") if str(link.get("href", "")).startswith("/")]
    assert len(links) > 10
    for link in dict.fromkeys(links):
        parts = urlsplit(link)
        assert browser.get(parts.path, **dict(parse_qsl(parts.query))).status == 200, link
    assert running.process.poll() is None


def test_a_tenant_with_a_database_of_its_own_is_looked_at_there_and_its_loss_shuts_out_no_other(
    scripts: Scripts,
    tmp_path: Path,
    corpus: Path,
    start_console: Any,  # noqa: ANN401 a function
) -> None:
    data, storage = tmp_path / "desk", tmp_path / "storage"
    for tenant, where in (("acorn", ()), ("birch", ("--storage", storage))):
        assert scripts.admin("tenant", "create", tenant, *where, "--data", data).returncode == 0
        filled = scripts.admin("ingest", corpus / "glossary.txt", "--data", data, "--tenant", tenant)
        assert filled.returncode == 0, filled.stderr
    with start_console(scripts, data) as running:
        browser = running.signed_in()
        assert "documents 1 " in browser.post("/tenant", tenant="birch").text
        for path in ("/documents", "/search", "/access", "/ingestion", "/collections", "/keys", "/judged"):
            assert browser.get(path).status == 200, path
        assert "complete" in browser.get("/ingestion").text
        assert "ANALEMMA" in browser.get("/search", q="pendulum").text
        storage.rename(tmp_path / "away")
        assert "it is not there" in browser.get("/").text
        assert "documents 1 " in browser.post("/tenant", tenant="acorn").text
        (tmp_path / "away").rename(storage)
        assert "documents 1 " in browser.post("/tenant", tenant="birch").text


def test_a_request_looks_at_one_tenant_whatever_another_tab_chooses_meanwhile(tmp_path: Path) -> None:
    for tenant in ("acorn", "birch"):
        create_tenant(tmp_path, tenant)
    nothing: Any = None
    desk_console = console.Console(
        Settings(data=tmp_path), tmp_path / "none.toml", nothing, nothing, nothing, nothing
    )
    request = desk_console.for_one_request()
    desk_console.choose("birch")
    assert (request.tenant, desk_console.tenant) == ("acorn", "birch")
    assert request.settings.principal.tenant == "acorn"
    assert "--tenant=acorn" in request.same_desk
    (tmp_path / "tenants" / "acorn").unlink()
    assert request.tenant == "acorn"  # and not the next one, which nobody meant
    request.say("Done.")
    assert desk_console.messages == ["Done."]  # it is said on the next page, whichever request that is

"""Files that a browser sends, whatever they are called and whatever is in them."""

from __future__ import annotations

import io
import json
import os
import stat
import time
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import psutil
import pytest

from rag.access.rule import in_words
from rag.admin.web.ingestion_pages import NAME_BYTES, file_name, save_uploads
from rag.corpus import Access
from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.web.conftest import Browser, Page
    from tests.bucket import ObjectStore
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

OPEN = in_words(Access("tenant"))
PATIENCE_SECONDS = 120  # a bound for a test that hangs
SCRIPT = "<script>alert(1)</script>"
HANDLER = '"><img src=x onerror=alert(1)>'
BIDI = "\u202egpj.exe\u2066"
HOSTILE = f"""---
title: "{SCRIPT} <svg onload=alert(1)> {BIDI}"
---
# {SCRIPT}

{HANDLER} <svg><script>alert(2)</script></svg> [click](javascript:alert(3)) {BIDI} zanzibar

<iframe srcdoc="x"></iframe> <style>* {{ display: none }}</style> {{{{ 7 * 7 }}}} {{% raw %}}
"""


def sent(browser: Browser, *files: tuple[str, bytes], **fields: str) -> Page:
    """Send files, and wait until the run has ended. Returns the page then."""
    parts = [("files", (name, content, "application/octet-stream")) for name, content in files]
    page = browser.post("/ingestion", files=parts, **({"collection": "documents"} | fields))
    return ended(browser) if page.status == 200 else page


def ended(browser: Browser) -> Page:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        page = browser.get("/ingestion")
        if "Running:" not in page.text:
            return page
        assert 'http-equiv="refresh"' in page.html  # without scripts the page loads itself again
        time.sleep(0.3)
    pytest.fail("the ingestion does not end")


def harmless(page: Page) -> None:
    """Nothing in a page is markup, a script or a hidden character but what is ours."""
    assert [element.get("src") for element in page.elements("script")] == ["/console.js"]
    for tag in ("iframe", "style", "img", "object", "embed", "base"):
        assert page.elements(tag) == [], tag
    names = (
        "a",
        "p",
        "b",
        "svg",
        "rect",
        "circle",
        "text",
        "form",
        "input",
        "button",
        "div",
        "li",
        "details",
    )
    for attributes in (element for tag in names for element in page.elements(tag)):
        assert not [name for name in attributes if name.startswith("on") or name == "style"], attributes
        assert (
            not str(attributes.get("href") or attributes.get("action") or "/")
            .lower()
            .startswith("javascript")
        ), attributes
    assert "\u202e" not in page.html
    assert "\u2066" not in page.html


def test_files_are_ingested_as_by_the_command(browser: Browser, scripts: Scripts, web_data: Path) -> None:
    page = sent(
        browser, ("notes.md", b"# A quokka\n\nA quokka smiles.\n"), ("b.txt", b"Wombats dig.\n"), new="zoo"
    )
    assert "2 of 2 files" not in page.text
    assert "Ended: zoo complete" in page.text
    assert "added notes.md" in page.text
    run = scripts.admin("sources", "--collection", "zoo", "--data", web_data, "--json")
    titles = {source["metadata"]["path"]: source["title"] for source in json.loads(run.stdout)["sources"]}
    assert titles == {"b.txt": "b", "notes.md": "A quokka"}
    folder = web_data / "uploads" / "default" / "zoo"
    assert sorted(path.name for path in folder.iterdir()) == ["b.txt", "notes.md"]
    assert folder.stat().st_mode & 0o077 == 0
    assert (
        "replaced notes.md" in sent(browser, ("notes.md", b"# A numbat\n\nIt eats ants.\n"), new="zoo").text
    )
    history = browser.get("/ingestion").text
    assert "1 replaced" in history
    assert "zoo" in browser.get("/documents", collection="zoo").text


def test_new_documents_are_for_those_who_are_named(browser: Browser) -> None:
    sent(browser, ("secret-zebra.md", b"# Zebra plans\n"), who="restricted", allow="group:hr, user:ann")
    text = browser.get("/documents", text="secret-zebra").text
    assert "restricted to group:hr, user:ann" in text
    assert "No document fits." in browser.get("/documents", text="secret-zebra", who="one", user="eve").text


def test_names_without_only_are_refused_and_only_holds_for_what_is_replaced(browser: Browser) -> None:
    for who in ("", "tenant"):
        page = sent(browser, ("bonus.md", b"# Pay\n\nOpen.\n"), who=who, allow="group:board")
        assert page.status == 400
        assert "Choose “only” for group:board, or leave that out. Nothing was ingested." in page.text
    sent(browser, ("bonus.md", b"# Pay\n\nOpen yardstick.\n"), who="tenant", new="wages")
    assert OPEN in browser.get("/documents", text="bonus.md").text
    sent(
        browser,
        ("bonus.md", b"# Pay\n\nSecret yardstick.\n"),
        who="restricted",
        allow="group:board",
        new="wages",
    )
    assert OPEN not in browser.get("/documents", text="bonus.md").text


def test_hostile_names_titles_and_texts_are_text_on_every_page(browser: Browser, web_data: Path) -> None:
    names = (
        f"{SCRIPT}.md",
        f"{HANDLER}.md",
        f"{BIDI}.md",
        "../../../escaped.md",
        "..\\..\\windows.md",
        "/etc/absolute.md",
        "long-" + "n" * 300 + ".md",
        "con.md",
        ".hidden.md",
    )
    page = sent(browser, *((name, HOSTILE.encode()) for name in names), new="evil")
    harmless(page)
    assert "Ended: evil complete" in page.text
    folder = web_data / "uploads" / "default" / "evil"
    assert len(list(folder.iterdir())) == len(names)
    assert not [path for path in web_data.parent.rglob("*escaped*") if path.parent != folder]
    documents = browser.get("/documents", collection="evil")
    harmless(documents)
    assert f"{len(names)} documents" in documents.text
    assert SCRIPT in documents.text  # as text
    ids = [
        str(element["href"])
        for element in documents.elements("a")
        if str(element["href"]).startswith("/documents/")
    ]
    pages = (f"/access?name={ids[0].rpartition('/')[2]}", "/ingestion", "/activity", "/judged/x?q=zanzibar")
    for path in (*ids, *pages):
        page = browser.get(path)
        assert page.status == 200
        harmless(page)
    search = browser.get("/search", q="zanzibar", collection="evil", expect=ids[0].rpartition("/")[2])
    assert "zanzibar" in search.text
    assert "{{ 7 * 7 }}" in search.text  # no template is filled in
    harmless(search)


def test_what_a_person_types_is_text_too(browser: Browser) -> None:
    for path, field in (
        ("/search", "q"),
        ("/search", "user"),
        ("/search", "collection"),
        ("/documents", "text"),
        ("/documents", "kind"),
        ("/access", "name"),
        ("/access", "entries"),
        ("/judged/x", "q"),
    ):
        for hostile in (SCRIPT, HANDLER, "' onfocus=alert(1) autofocus='", BIDI):
            harmless(browser.get(path, **({"q": "x", "name": "x", "act": "grant"} | {field: hostile})))


def test_an_archive_that_climbs_out_stays_in(browser: Browser, web_data: Path) -> None:
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("../../climbed.md", "# Climber\n")
        archive.writestr("inside.md", "# Insider\n\nA walrus.\n")
    page = sent(browser, ("pack.zip", packed.getvalue()), new="packed")
    assert "inside.md" in page.text
    assert not list(web_data.parent.rglob("climbed.md"))
    assert "Insider" in browser.get("/documents", collection="packed").text


def test_a_form_without_files_or_with_bad_fields_ingests_nothing(browser: Browser) -> None:
    assert sent(browser).status == 400
    assert sent(browser, ("a.md", b"# A\n"), new="../x").status == 400
    assert sent(browser, ("a.md", b"# A\n"), who="restricted", allow="--yes").status == 400
    again = sent(browser, ("a.md", b"# A\n"), new="fine", who="restricted", allow="--yes")
    filled_in = [
        element.get("value") for element in again.elements("input") if element.get("name") in {"new", "allow"}
    ]
    assert filled_in == ["fine", "--yes"]
    assert [
        element["value"]
        for element in again.elements("input")
        if element.get("name") == "who" and "checked" in element
    ] == ["restricted"]
    assert sent(browser, ("a.md", b"# A\n"), ("a.md", b"# B\n")).status == 400
    assert sent(browser, ("..", b"# A\n")).status == 400
    assert sent(browser, ("a.md", b"# A\n"), new="fine").status == 200


def test_too_many_files_at_once_are_refused_in_words(browser: Browser) -> None:
    page = sent(browser, *((f"{number}.md", b"# A\n") for number in range(1001)))
    assert page.status == 400
    assert "Maximum number of files is 1000. For whole folders, run refdesk-admin ingest" in page.text


def test_files_that_can_t_be_read_are_listed_with_their_reasons(browser: Browser) -> None:
    page = sent(browser, ("broken.pdf", b"%PDF-1.4 broken"), ("good.md", b"# Good\n"), new="mixed")
    assert "some files failed" in page.text
    assert "failed broken.pdf" in page.text
    run = next(str(element["href"]) for element in page.elements("a") if "/runs/" in str(element["href"]))
    assert "broken.pdf" in browser.get(run).text
    assert browser.get("/ingestion/runs/999999").status == 404


def test_events_end_when_nothing_runs(browser: Browser) -> None:
    assert "event: end" in browser.get("/ingestion/events").html
    assert "Interrupting" in browser.post("/ingestion/stop").text  # harmless


def test_another_tenant_s_run_is_neither_shown_nor_stopped(
    scripts: Scripts,
    tmp_path: Path,
    start_console: Any,  # noqa: ANN401 a function
) -> None:
    for tenant in ("acorn", "birch"):
        assert scripts.admin("tenant", "create", tenant, "--data", tmp_path / "desk").returncode == 0
    with start_console(scripts, tmp_path / "desk") as running:
        browser = running.signed_in()
        parts = [("files", (f"plan-{number}.md", b"# Plan\n\nText.\n", "")) for number in range(300)]
        assert browser.post("/ingestion", files=parts, collection="documents").status == 200
        browser.post("/tenant", tenant="birch")
        page = browser.get("/ingestion")
        assert "An ingestion of another tenant is running." in page.text
        assert "plan-" not in page.text
        assert browser.post("/ingestion/stop").status == 409
        browser.post("/tenant", tenant="acorn")
        assert "plan-" in ended(browser).text  # the control
        browser.post("/tenant", tenant="birch")
        assert "plan-" not in browser.get("/ingestion").text


def test_an_ingestion_ends_with_the_console(scripts: Scripts, tmp_path: Path, start_console: Any) -> None:  # noqa: ANN401 a function
    with start_console(scripts, tmp_path / "desk") as running:
        browser = running.signed_in()
        parts = [("files", (f"{number}.md", f"# Note {number}\n".encode(), "")) for number in range(300)]
        browser.post("/ingestion", files=parts, collection="documents")
        assert browser.post("/ingestion", files=parts, collection="documents").status == 409
        commands = [
            process
            for process in psutil.process_iter(["cmdline"])
            if "ingest" in (process.info["cmdline"] or ())
        ]
        children = [command for command in commands if str(tmp_path) in " ".join(command.info["cmdline"])]
        assert children
        running.process.terminate()
        assert running.process.wait(PATIENCE_SECONDS) == 0
        _, alive = psutil.wait_procs(children, timeout=30)
        assert alive == []


def test_a_desk_in_a_bucket_is_administered_there(
    scripts: Scripts,
    tmp_path: Path,
    corpus: Path,
    object_store: ObjectStore,
    start_console: Any,  # noqa: ANN401 a function
) -> None:
    env = object_store.serving | {"REFDESK_DATA": str(tmp_path / "machine")}
    with start_console(scripts, tmp_path / "machine", env=env) as running:
        browser = running.signed_in()
        assert browser.get("/").status == 200  # nothing was ever ingested
        assert "added notes.md" in sent(browser, ("notes.md", b"# A quokka\n\nA quokka smiles.\n")).text
        filled = scripts.admin("ingest", corpus / "glossary.txt", env=env)
        assert filled.returncode == 0, filled.stderr
        for path in ("/documents", "/search", "/access", "/ingestion", "/collections", "/judged"):
            assert browser.get(path).status == 200, path
        assert "ANALEMMA" in browser.get("/search", q="pendulum").text
        browser.post("/keys", user="ann", days="30")
        (key,) = json.loads(scripts.admin("key", "list", "--json", env=env).stdout)["keys"]
        browser.post("/keys/revoke", id=key["id"])
        assert json.loads(scripts.admin("key", "list", "--json", env=env).stdout)["keys"] == []
        browser.post("/health")
        assert "doctor storage" in browser.get("/").text


@pytest.mark.parametrize(
    ("sent_name", "stored_name"),
    [
        ("a.md", "a.md"),
        ("../../etc/passwd", "passwd"),
        ("C:\\docs\\a?.md", "a_.md"),
        (".env", "env"),
        ("a\x00b\nc.md", "a_b_c.md"),
        ("na\u0308me.md", "n\u00e4me.md"),
        ("con.txt", "_con.txt"),
        ("CON", "_CON"),
        ("aux.min.js", "_aux.min.js"),  # a device whatever follows the first point
        ("\u202eevil.md", "evil.md"),
    ],
)
def test_a_file_s_name_is_the_last_part_of_what_the_browser_says(sent_name: str, stored_name: str) -> None:
    assert file_name(sent_name) == stored_name


@pytest.mark.parametrize("sent_name", ["", ".", "..", "/", "a/", "...", "\u202e"])
def test_a_file_without_a_name_is_refused(sent_name: str) -> None:
    with pytest.raises(InvalidRequestError):
        file_name(sent_name)


def test_a_long_name_keeps_its_suffix() -> None:
    assert file_name("\u00e4" * 300 + ".md").endswith(".md")
    for name in ("\u00e4" * 300 + ".md", "x" * 300, "x." + "y" * 300):
        assert len(file_name(name).encode()) <= NAME_BYTES


def test_of_several_files_none_is_kept_if_one_is_too_large_or_two_are_one_where_case_is_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_bytes(b"former")
    with pytest.raises(InvalidRequestError, match=r"b\.md has more than 5 bytes"):
        save_uploads(tmp_path, [("a.md", io.BytesIO(b"new")), ("b.md", io.BytesIO(b"longer"))], 5)
    with pytest.raises(InvalidRequestError, match="the same name"):
        save_uploads(tmp_path, [("a.md", io.BytesIO(b"new")), ("A.md", io.BytesIO(b"other"))], 5)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.md": b"former"}
    save_uploads(tmp_path, [("a.md", io.BytesIO(b"new"))], 5)
    assert (tmp_path / "a.md").read_bytes() == b"new"


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="more than 3 bytes"):
        save_uploads(tmp_path, [("a.md", io.BytesIO(b"four"))], 3)
    assert list(tmp_path.iterdir()) == []
    assert [file.read_bytes() for file in save_uploads(tmp_path, [("a.md", io.BytesIO(b"abc"))], 3)] == [
        b"abc"
    ]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_no_folder_of_uploads_is_open_to_other_accounts(tmp_path: Path) -> None:
    folder = tmp_path / "uploads" / "acorn" / "zoo"
    save_uploads(folder, [("a.md", io.BytesIO(b"sent"))], 100)
    for private in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700, private


def test_a_file_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "uploads"
    folder.mkdir()
    (folder / "a.md").symlink_to(tmp_path / "precious")
    save_uploads(folder, [("a.md", io.BytesIO(b"sent"))], 100)
    assert (tmp_path / "precious").read_text() == "mine"
    assert (folder / "a.md").read_text() == "sent"

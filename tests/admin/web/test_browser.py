"""The console in a real browser: every page, with and without scripts, by keyboard, and for everybody."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rag.admin.web import console

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

AXE = "axe-core@4.11.0"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
INSTALL_SECONDS = 120
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SERIOUS = {"serious", "critical"}
CHECKS = """async (only) => (await axe.run(document, {resultTypes: ["violations"], ...only})).violations
  .map((one) => [one.impact, one.id, one.nodes.map((node) => node.html).slice(0, 3)])"""

HIDDEN = """() => {
  const right = (part) => part.getBoundingClientRect().right;
  return [...document.querySelectorAll("nav a, .scroll td, .scroll tbody th")]
    .filter((part) => right(part) > right(part.closest("nav, .scroll")) + 1).map((part) => part.outerHTML);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium of this machine."""
    try:
        api = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("Playwright is missing: pip install playwright")
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which finds what keeps people with disabilities out."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("npm, which brings axe-core, is missing: apt-get install npm")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", AXE]
    run = subprocess.run(command, cwd=folder, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    if run.returncode:
        pytest.skip(f"npm can't bring {AXE}: is there a registry?")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def signed_in(chromium: Any, address: str, **options: Any) -> Iterator[Any]:  # noqa: ANN401 Playwright's
    """A page that is signed in. No page may complain, as where our policy forbids what it does."""
    context = chromium.new_context(viewport=DESKTOP, **options)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.wait_for_url("**/")
    yield page
    context.close()
    assert complaints == []


def accessible(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    """Check a page in both colour schemes, and that phones and desktops show it without scrolling aside."""
    page.evaluate(axe)
    for scheme, only in (("light", {}), ("dark", {"runOnly": "color-contrast"})):
        page.emulate_media(color_scheme=scheme)
        violations = [violation for violation in page.evaluate(CHECKS, only) if violation[0] in SERIOUS]
        assert violations == [], (page.url, scheme, json.dumps(violations, indent=1))
    for size in (PHONE, DESKTOP):
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], page.url
        assert page.evaluate(HIDDEN) == [], (page.url, size)


def test_a_walk_through_all_pages(
    chromium: Any,  # noqa: ANN401 Playwright's
    axe: str,
    scripts: Scripts,
    web_data: Path,
    start_console: Any,  # noqa: ANN401 a function
    tmp_path: Path,
) -> None:
    """It begins with a data folder of its own, so that no other test changes it meanwhile."""
    data = tmp_path / "desk"
    shutil.copytree(web_data, data)
    with start_console(scripts, data) as running, signed_in(chromium, running.address) as page:
        for place, name in console.PLACES:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            page.wait_for_url(f"**{place}")
            accessible(page, axe)
        _by_keyboard(page)
        _searched(page, axe)
        _granted(page, axe)
        _dropped(page, axe)
        _judged(page, axe)
        _key(page, axe)


def _by_keyboard(page: Any) -> None:  # noqa: ANN401 Playwright's
    """The first key jumps over the menu."""
    page.get_by_role("link", name="Documents").first.click()
    page.goto(page.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("gps")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=gps**")
    assert page.get_by_role("heading", name="1 document").is_visible()


def _searched(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Question").fill("who invented the pendulum clock")
    page.get_by_role("button", name="Search").click()
    assert page.get_by_role("heading", name="Steps").is_visible()
    accessible(page, axe)
    page.locator(".hit h3 a").first.click()
    page.locator(".passage:target").wait_for()
    accessible(page, axe)


def _granted(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    page.get_by_role("link", name="why, and change it").click()
    page.get_by_label("Keep them out").check()
    page.get_by_label("Whom").fill("user:bob")
    page.get_by_role("button", name="Show what would change").click()
    assert "user:bob would no longer see 1 document" in page.locator("#main").inner_text()
    accessible(page, axe)
    page.get_by_role("button", name="Change 1 document").click()
    assert "Changed who may see 1 document." in page.get_by_role("status").inner_text()


def _dropped(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    """A file is dropped; the page shows how the run ends without being loaded anew."""
    page.get_by_role("link", name="Ingestion").click()
    page.wait_for_load_state()
    page.evaluate(
        """() => {
          const dropped = new DataTransfer();
          dropped.items.add(new File(["# Dropped\\n\\nAn okapi.\\n"], "dropped.md"));
          document.querySelector(".drop").dispatchEvent(
            new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
        }"""
    )
    assert page.evaluate("document.getElementById('files').files.length") == 1
    page.get_by_role("button", name="Ingest").click()
    page.wait_for_url("**/ingestion")
    page.get_by_text("Ended: documents").wait_for()
    assert "dropped.md" in page.locator("#live").inner_text()
    accessible(page, axe)
    page.locator("#live tbody a").first.click()
    accessible(page, axe)


def _judged(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    page.get_by_role("link", name="Judged questions").click()
    page.get_by_label("Name").fill("walk")
    page.get_by_role("button", name="Begin").click()
    page.get_by_label("Question").fill("who invented the pendulum clock")
    page.get_by_role("button", name="Ask").click()
    accessible(page, axe)
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Keep what is marked").click()
    page.get_by_role("button", name="Measure").click()
    assert "nDCG@10 is 1.0000." in page.get_by_role("status").inner_text()
    accessible(page, axe)


def _key(page: Any, axe: str) -> None:  # noqa: ANN401 Playwright's
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("User").fill("ann")
    page.get_by_role("button", name="Create the key").click()
    assert page.locator("code.key").is_visible()
    accessible(page, axe)


def test_without_scripts_the_page_shows_the_end_of_a_run_by_itself(
    chromium: Any,  # noqa: ANN401 Playwright's
    scripts: Scripts,
    start_console: Any,  # noqa: ANN401 a function
    tmp_path: Path,
) -> None:
    with (
        start_console(scripts, tmp_path / "desk") as running,
        signed_in(chromium, running.address, java_script_enabled=False) as page,
    ):
        page.get_by_role("link", name="Ingestion").click()
        page.set_input_files("#files", [{"name": "a.md", "mimeType": "", "buffer": b"# A tapir\n"}])
        page.get_by_role("button", name="Ingest").click()
        page.get_by_text("Ended: documents").wait_for()
        page.get_by_role("link", name="Documents").click()
        page.get_by_role("link", name="A tapir").click()
        assert page.get_by_role("heading", name="A tapir", exact=True).is_visible()


def test_a_page_of_another_site_can_neither_see_nor_change_the_desk(
    chromium: Any,  # noqa: ANN401 Playwright's
    running: Any,  # noqa: ANN401 the fixture's
    browser: Any,  # noqa: ANN401 the same
) -> None:
    """In the browser that is signed in: by frames, forms and scripts of another origin on this machine."""
    context = chromium.new_context()
    for cookie in browser.client.cookies.jar:
        context.add_cookies(
            [
                {
                    "name": cookie.name,
                    "value": cookie.value,
                    "url": running.origin,
                    "httpOnly": True,
                    "sameSite": "Strict",
                }
            ]
        )
    page = context.new_page()
    page.goto(f"{running.origin}/keys")
    assert page.get_by_role("heading", name="Keys", exact=True).is_visible()
    elsewhere = running.origin.replace("127.0.0.1", "localhost")
    page.route(
        f"{elsewhere}/evil",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"""<form method="post" action="{running.origin}/keys"><input name="user" value="evil">
              <input name="form" value="{browser.form()["form"]}"><button>Win</button></form>
              <iframe src="{running.origin}/keys"></iframe>""",
        ),
    )
    page.goto(f"{elsewhere}/evil")
    outcome = page.evaluate(
        f"fetch('{running.origin}/keys', {{credentials: 'include'}}).then(() => 'seen', () => 'refused')"
    )
    assert outcome == "refused"
    assert "Make a key" not in page.frames[1].content()
    page.get_by_role("button", name="Win").click()
    page.wait_for_url(f"{running.origin}/keys")
    assert "evil" not in browser.get("/keys").text
    context.close()

"""Who gets into the console: the browser that opened the printed address first, and only by our own pages."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from starlette.datastructures import Headers

from rag.access.keys import COOKIE, holds_pass
from rag.admin.web.browser_guard import Door
from rag.admin.web.console_command import CHANGES, PAGES
from rag.uris import PASSAGE_PAGES

if TYPE_CHECKING:
    from tests.admin.web.conftest import Browser, Running
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

OUTSIDE = "http://evil.example"


def test_the_console_listens_on_this_machine_only(running: Running) -> None:
    assert running.origin.startswith("http://127.0.0.1:")


def test_the_address_works_once_and_in_one_browser(browser: Browser, running: Running) -> None:
    assert "Overview" in browser.get("/").text
    with httpx2.Client(base_url=running.origin) as second:
        assert second.get(running.address).status_code == 403
        assert second.get("/").status_code == 401
    assert browser.get(running.address).status == 200  # the first may load it again: it is signed in


def test_who_lost_the_cookie_signs_in_again_and_the_one_before_is_out() -> None:
    door = Door("127.0.0.1:1")
    preview, browser = door.let_in(door.token), door.let_in(door.token)
    assert not door.has_session(Headers({"cookie": f"{door.cookie}={preview}"}))
    assert door.has_session(Headers({"cookie": f"{door.cookie}={browser}"}))
    assert door.let_in(door.token) is None


@pytest.mark.parametrize(
    "cookie",
    [
        'prefs={"theme":"dark"}',
        "flag",
        "a=b=c",
        "=",
        "b\u00e4r=1",
        "x=[1, 2]",
        "refdesk-console-1=of another app",
    ],
)
def test_what_another_local_application_has_set_locks_nobody_out(cookie: str) -> None:
    door = Door("127.0.0.1:1")
    session = door.let_in(door.token)
    for cookies in (f"{cookie}; {door.cookie}={session}", f"{door.cookie}={session};{cookie}"):
        assert door.has_session(Headers(raw=[(b"cookie", cookies.encode())]))
    assert not door.has_session(Headers(raw=[(b"cookie", cookie.encode())]))


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "\u00e4", "%00"])
def test_a_guessed_token_opens_nothing_and_uses_nothing_up(token: str) -> None:
    door = Door("127.0.0.1:1")
    assert door.let_in(token) is None
    assert door.let_in(door.token)


def test_after_the_token_is_used_an_empty_one_opens_nothing() -> None:
    door = Door("127.0.0.1:1")
    session = door.let_in(door.token)
    assert door.has_session(Headers({"cookie": f"{door.cookie}={session}"}))
    assert door.let_in("") is None


def test_a_look_ahead_uses_nothing_up(scripts: Scripts, tmp_path: Path, start_console: Any) -> None:  # noqa: ANN401 a function
    with start_console(scripts, tmp_path / "none") as console:
        assert httpx2.head(console.address).status_code == 200
        assert httpx2.get(console.address.replace("token=", "token=x")).status_code == 403
        assert "no collections yet" in console.signed_in().get("/").text
        console.process.send_signal(signal.SIGINT)
        assert console.process.wait(60) == 0


def test_the_cookie_is_for_our_pages_alone(scripts: Scripts, tmp_path: Path, start_console: Any) -> None:  # noqa: ANN401 a function
    with start_console(scripts, tmp_path / "none") as console:
        cookie = httpx2.get(console.address).headers["set-cookie"]
        port = console.origin.rpartition(":")[2]
        assert cookie.startswith(f"refdesk-console-{port}=")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie


def test_the_sign_in_lets_the_browser_see_the_pages_of_citations_too(
    scripts: Scripts,
    web_data: Path,
    start_console: Any,  # noqa: ANN401 a function
) -> None:
    with start_console(scripts, web_data) as console:
        cookies = httpx2.get(console.address).headers.get_list("set-cookie")
    (page_pass,) = [cookie for cookie in cookies if cookie.startswith(COOKIE)]
    assert {"HttpOnly", "SameSite=lax", f"Path={PASSAGE_PAGES}"} <= set(page_pass.split("; "))
    assert holds_pass(web_data, [page_pass.partition(";")[0]], datetime.now(UTC))


@pytest.mark.parametrize("cookie", ["", "x", "A" * 43, '"', "a=b; a=b;" * 50])
def test_a_cookie_of_another_run_opens_nothing(browser: Browser, running: Running, cookie: str) -> None:
    name = f"refdesk-console-{running.origin.rpartition(':')[2]}"
    assert httpx2.get(running.origin, headers={"Cookie": f"{name}={cookie}"}).status_code == 401
    assert browser.get("/").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost", "127.0.0.1", "127.0.0.1.evil"]
)
def test_a_name_that_points_here_is_refused(browser: Browser, host: str) -> None:
    """As after DNS rebinding: the page is another site's, the connection is to us, and so is the cookie."""
    reply = browser.client.get("/", headers={"Host": host})
    assert reply.status_code == 421
    assert "documents" not in reply.text
    assert browser.get("/").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": OUTSIDE},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "{ours}", "Sec-Fetch-Site": "same-site"},
        {"Origin": "{ours}", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_form_that_another_page_sends_changes_nothing(browser: Browser, headers: dict[str, str]) -> None:
    ours, port = browser.origin, browser.origin.rpartition(":")[2]
    sent = {name: value.format(ours=ours, port=port) for name, value in headers.items()}
    form = browser.form()
    assert browser.client.post("/health", data=form, headers=sent).status_code == 403
    assert browser.client.post("/health", data=form, headers={"Origin": ours}).status_code == 303


@pytest.mark.parametrize("secret", [None, "", "x", "\u00e4"])
def test_a_form_without_the_secret_of_our_pages_changes_nothing(browser: Browser, secret: str | None) -> None:
    ours = {"Origin": browser.origin}
    form = {**browser.form(), "form": secret} if secret is not None else {}
    assert browser.client.post("/health", data=form, headers=ours).status_code == 403
    assert browser.client.post("/health", data=browser.form(), headers=ours).status_code == 303


def test_a_page_of_another_server_on_this_machine_sees_nothing(browser: Browser) -> None:
    assert browser.client.get("/", headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert browser.client.get("/", headers={"Sec-Fetch-Site": "none"}).status_code == 200


@pytest.mark.parametrize("path", [*PAGES, *CHANGES])
def test_no_page_and_no_change_is_for_strangers(browser: Browser, running: Running, path: str) -> None:
    path = path.replace("{id:int}", "1").replace("{id}", "a").replace("{name}", "a")
    ours, form = {"Origin": browser.origin}, browser.form()
    with httpx2.Client(base_url=running.origin) as stranger:
        assert stranger.get(path).status_code == 401
        assert stranger.post(path, data=form, headers=ours).status_code == 401
        assert stranger.request("DELETE", path, headers=ours).status_code == 401


@pytest.mark.parametrize("path", CHANGES)
def test_each_change_needs_the_secret_and_our_own_page(browser: Browser, path: str) -> None:
    path = path.replace("{name}", "a")
    post, form = browser.client.post, browser.form()
    assert post(path, data=form | {"form": "x"}, headers={"Origin": browser.origin}).status_code == 403
    assert post(path, data=form, headers={"Origin": OUTSIDE}).status_code == 403
    assert post(path, data=form, headers={"Origin": browser.origin}).status_code != 403


def test_a_change_is_never_a_get(browser: Browser) -> None:
    assert browser.client.get("/health").status_code == 405


def test_every_response_forbids_foreign_scripts_and_frames(browser: Browser, running: Running) -> None:
    for reply in (
        browser.client.get("/"),
        browser.client.get("/console.js"),
        browser.client.get("/nothing"),
        httpx2.get(running.origin),
        httpx2.get(running.origin, headers={"Host": "evil.example"}),
    ):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_browser_is_opened_without_telling_others_the_address(
    scripts: Scripts,
    tmp_path: Path,
    start_console: Any,  # noqa: ANN401 a function
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a process is started with can be seen by all users of the machine; the file only by us."""
    opened, program = tmp_path / "opened", tmp_path / "browser"
    program.write_text(
        f"""#!/bin/sh
echo "$1" > {opened}.new
cat "${{1#file://}}" >> {opened}.new
mv {opened}.new {opened}
for second in $(seq 90); do [ -e {opened}.enough ] && exit; sleep 1; done
"""
    )
    program.chmod(0o700)
    monkeypatch.setenv("BROWSER", str(program))
    with start_console(scripts, tmp_path / "none", "--open") as console:
        until = time.monotonic() + 60
        while not opened.exists() and time.monotonic() < until:
            time.sleep(0.1)
        argument, page = opened.read_text().splitlines()
        token = console.address.partition("token=")[2]
        assert token not in argument
        assert console.address in page
        assert console.signed_in().get("/").status == 200  # while the browser stays
        opened.with_suffix(".enough").touch()
        folder = Path(argument.removeprefix("file://")).parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


def test_a_port_in_use_is_said(scripts: Scripts, running: Running, tmp_path: Path) -> None:
    port = running.origin.rpartition(":")[2]
    run = scripts.admin("console", "--port", port, "--data", tmp_path / "none")
    assert run.returncode == 2
    assert f"Can't listen on 127.0.0.1:{port}" in run.stderr


def test_neither_the_server_nor_a_search_imports_templates() -> None:
    code = "import sys, server.start, server.http.application, rag.search.desk, rag.admin.search_command\n"
    checked = (
        f"{code}assert 'jinja2' not in sys.modules\n"
        "import rag.admin.web.console_command\nassert 'jinja2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", checked], check=True, timeout=120)

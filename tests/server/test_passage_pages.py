"""The page that a citation opens on this machine: for whom, of what, and that no document does harm there."""

from __future__ import annotations

import html
import re
import shutil
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from rag.access.keys import VALID_DAYS, cookie_values, holds_pass, new_pass
from rag.uris import NOT_FOUND, passage_page
from server.http.passage_pages import CHANGED_FILE, MOST_CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Start, Wire, World

pytestmark = pytest.mark.slow

ANN = ("--tenant", "acorn", "--user", "ann", "--group", "hr")
BOB = ("--tenant", "acorn", "--user", "bob")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SECONDS = 60  # a bound for what never takes as long
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def hits(wire: Wire, query: str = "pendulum", **arguments: object) -> dict[str, dict[str, Any]]:
    """The hits of a search, by what they are cited as."""
    reply = wire.tool("search", {"query": query, "limit": 50, **arguments})
    return {hit["cite_as"]: hit for hit in reply["structuredContent"]["results"]}


def begun(wire: Wire) -> Wire:
    wire.begin()
    return wire


def signed_in(data: Path) -> dict[str, str]:
    """The header of a browser that has signed in to the console of a desk."""
    return {"Cookie": f"prefs={{}}; {pass_of(data)}"}


def pass_of(data: Path, now: datetime | None = None) -> str:
    return "=".join(new_pass(data, now or datetime.now(UTC)) or ())


def opened(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(url, headers=headers, timeout=30)


def marked(page: httpx2.Response) -> str:
    """The text of the passage that a page marks; empty without a mark."""
    assert page.status_code == 200, page.text
    mark = re.search(r'<mark id="cited">(.*?)</mark>', page.text, re.DOTALL)
    return html.unescape(mark[1]) if mark else ""


@pytest.fixture
def paper(tmp_path: Path, admin: Admin) -> Callable[[str], Path]:
    """Write a document of a desk, and ingest it."""

    def ingest(text: str) -> Path:
        file = tmp_path / "papers" / "rules.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        admin("ingest", file, "--data", tmp_path / "data")
        return tmp_path / "data"

    return ingest


def test_a_citation_opens_the_passage_for_the_browser_that_is_signed_in_and_for_no_other(
    bridged: Start, world: World, clock_room: Path
) -> None:
    hit = hits(begun(bridged(world.data, *ANN)))["secret"]
    page = opened(hit["url"], **signed_in(world.data))
    assert marked(page) == hit["text"]
    assert "<title>secret</title>" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    name, _, value = pass_of(world.data).partition("=")
    cookies = (
        pass_of(clock_room),
        f"{name}=",
        f"{name}={pass_of(clock_room).partition('=')[2]}",
        f"x={value}",
    )
    for headers in ({}, *({"Cookie": cookie} for cookie in cookies)):
        refused = opened(hit["url"], **headers)
        assert refused.status_code == 401
        assert "pendulum" not in refused.text
    rebound = opened(hit["url"], **signed_in(world.data), Host="evil.example")
    assert rebound.status_code == 421


def test_the_page_shows_what_any_host_of_the_person_may_read_and_nothing_else(
    bridged: Start, world: World, admin: Admin, tmp_path: Path
) -> None:
    data = shutil.copytree(world.data, tmp_path / "data")
    cookie = signed_in(data)
    bob = begun(bridged(data, *BOB))
    base = "http://{}".format(urlsplit(hits(bob)["open"]["url"]).netloc)
    birch = hits(begun(bridged(data, "--tenant", "birch", "--alone")))["theirs"]["id"]
    secret = hits(begun(bridged(data, *ANN, "--alone")))["secret"]
    address = passage_page(base, secret["id"], secret["revision"])
    for id_ in (secret["id"], birch, "a" * 16 + "/0", "no-id", "..%2F..%2Fkeys.json"):
        refused = opened(passage_page(base, id_, None), **cookie)
        assert refused.status_code == 404
        assert html.escape(NOT_FOUND) in refused.text
    assert marked(opened(hits(bob)["open"]["url"], **cookie))  # the control
    ann = begun(bridged(data, *ANN))
    assert hits(ann)["secret"]["url"] == address
    assert "secret" in marked(opened(address, **cookie))
    admin(
        "access",
        "revoke",
        secret["id"].partition("/")[0],
        "--from",
        "group:hr",
        "--tenant",
        "acorn",
        "--data",
        data,
    )
    assert opened(address, **cookie).status_code == 404


def test_a_document_does_nothing_on_its_page_and_an_edited_or_deleted_one_says_so(
    bridged: Start, paper: Callable[[str], Path], admin: Admin, tmp_path: Path
) -> None:
    text = f"# Rules {HOSTILE}\n\nA pendulum {HOSTILE} swings.\n\n| a | b |\n|---|---|\n| {HOSTILE} | 2 |\n"
    data = paper(text)
    wire, cookie = begun(bridged(data)), signed_in(data)
    (hit,) = hits(wire).values()
    page = opened(hit["url"], **cookie)
    assert "<table" in page.text
    assert "<script" not in page.text
    assert "<img" not in page.text
    assert HOSTILE in marked(page)
    paper(text.replace("swings", "stands still"))
    changed = opened(hit["url"], **cookie)
    assert "stands still" in marked(changed)
    assert re.search(r'class="note">[^<]*changed', changed.text)
    assert not any(sentence in changed.text for sentence in CHANGED_FILE.values())
    file = tmp_path / "papers" / "rules.md"
    file.write_text("# Rules\n")
    assert CHANGED_FILE["changed"] in opened(hit["url"], **cookie).text
    file.rename(file.with_name("elsewhere.md"))
    assert CHANGED_FILE["gone"] in opened(hit["url"], **cookie).text
    admin("remove", hit["id"].partition("/")[0], "--data", data)
    assert opened(hit["url"], **cookie).status_code == 404


def test_a_long_document_is_shown_around_the_passage_and_more_of_it_on_demand(
    bridged: Start, paper: Callable[[str], Path]
) -> None:
    words = " ".join(["word"] * 150)
    sections = "\n\n".join(
        f"## Part {number}\n\n{'The escapement. ' if number == 30 else ''}{words}." for number in range(60)
    )
    data = paper(f"# Rules\n\n{sections}\n")
    cookie = signed_in(data)
    hit = max(hits(begun(bridged(data)), "escapement").values(), key=lambda hit: hit["score"])
    page = opened(hit["url"], **cookie)
    assert "escapement" in marked(page)
    assert "Part 0" not in page.text
    for _ in range(5):
        if not (more := re.search(r'href="(\?around=\d+)#cited"', page.text)):
            break
        page = opened(hit["url"].partition("#")[0] + more[1], **cookie)
        assert "escapement" in marked(page)
    assert "Part 0" in page.text
    assert "Part 59" in page.text


def test_a_document_with_an_address_of_its_own_keeps_it_and_a_host_served_alone_has_no_pages(
    bridged: Start, clock_room: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[search.urls]\ndocuments = "https://wiki.example.com/{path}"\n')
    wire = begun(bridged(clock_room, "--config", str(config)))
    assert all(hit["url"].startswith("https://wiki.example.com/") for hit in hits(wire).values())
    alone = hits(begun(bridged(clock_room, "--alone")))
    assert alone
    assert not any("url" in hit for hit in alone.values())


def test_what_is_opened_has_the_address_of_its_hit_and_a_document_that_of_its_page(
    bridged: Start, clock_room: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[server]\nopenai_compat = true\n")
    wire, cookie = begun(bridged(clock_room, "--config", str(config))), signed_in(clock_room)
    assert hits(wire)
    for hit in hits(wire).values():
        source_id, _, seqs = hit["id"].partition("/")
        cited = f"{source_id}@{hit['revision']}/{seqs}"
        for tool, name in (("fetch", hit["id"]), ("get_source", hit["id"]), ("get_source", f"[{cited}].")):
            assert wire.tool(tool, {"id": name})["structuredContent"]["url"] == hit["url"]
        page = wire.tool("get_source", {"id": source_id})["structuredContent"]["url"]
        assert page == passage_page(hit["url"].partition("/passages")[0], source_id, hit["revision"])
        assert opened(page, **cookie).status_code == 200


def test_addresses_stay_when_the_desk_starts_again(
    bridged: Start, desks: Callable[[], list[psutil.Process]], world: World
) -> None:
    wire = begun(bridged(world.data, *ANN))
    before = hits(wire)["secret"]["url"]
    for desk in desks():
        desk.kill()
    assert hits(wire)["secret"]["url"] == before
    assert marked(opened(before, **signed_in(world.data)))


def test_a_flood_of_silent_or_bad_connections_costs_the_hosts_nothing_and_the_pages_a_moment(
    bridged: Start, world: World
) -> None:
    wire = begun(bridged(world.data, *ANN))
    url, cookie = hits(wire)["secret"]["url"], signed_in(world.data)
    address = urlsplit(url)
    peer = (address.hostname or "", address.port or 0)
    silent = [socket.create_connection(peer) for _ in range(3 * MOST_CONNECTIONS)]
    for connection in silent[::3]:
        with suppress(OSError):
            connection.sendall(b"no request at all\r\n\r\n")
    assert set(hits(wire)) == {"open", "secret"}
    ends = time.monotonic() + SECONDS
    while (page := opened(url, **cookie)).status_code != 200:  # once the silent ones were shown out
        assert page.status_code == 503
        assert time.monotonic() < ends
        time.sleep(0.2)
    for connection in silent:
        connection.close()
    assert wire.leave(within=20) == 0
    assert wire.stderr() == ""


def test_without_file_descriptors_the_desk_keeps_its_hosts_and_takes_others_later(
    bridged: Start, desks: Callable[[], list[psutil.Process]], socket_folder: Path, world: World
) -> None:
    wire = begun(bridged(world.data, *ANN))
    assert hits(wire)
    (desk,), (address,) = desks(), [*(socket_folder / "refdesk").glob("*.sock")]
    if not hasattr(desk, "rlimit"):
        pytest.skip("this system sets no limits of other processes")
    limits = desk.rlimit(psutil.RLIMIT_NOFILE)
    desk.rlimit(psutil.RLIMIT_NOFILE, (desk.num_fds(), limits[1]))
    with socket.socket(socket.AF_UNIX) as refused:
        refused.connect(str(address))
        time.sleep(0.5)  # in which the desk fails to accept it
        assert desk.is_running()
    desk.rlimit(psutil.RLIMIT_NOFILE, limits)
    assert set(hits(wire)) == {"open", "secret"}
    assert set(hits(begun(bridged(world.data, *BOB)))) == {"open"}
    assert desks() == [desk]


def test_a_desk_with_other_settings_shows_the_pages_at_the_same_address(
    bridged: Start, world: World, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[search]\nlimit = 50\n")
    flags = (*ANN, "--config", str(config))
    before, cookie = hits(begun(bridged(world.data, *flags)))["secret"]["url"], signed_in(world.data)
    assert marked(opened(before, **cookie))
    config.write_text("[search]\nlimit = 49\n")
    assert hits(begun(bridged(world.data, *flags)))["secret"]["url"] == before
    assert marked(opened(before, **cookie))


def test_a_pass_holds_for_its_days_at_its_own_desk_alone(tmp_path: Path) -> None:
    home, second = tmp_path / "one", tmp_path / "other"
    for folder, key in ((home, b"1" * 32), (second, b"2" * 32)):
        folder.mkdir()
        (folder / "key").write_bytes(key)
    cookie = [pass_of(home, NOW)]
    assert holds_pass(home, cookie, NOW)
    assert holds_pass(home, cookie, NOW + timedelta(days=VALID_DAYS))
    assert not holds_pass(home, cookie, NOW + timedelta(days=VALID_DAYS + 1))
    assert not holds_pass(home, cookie, NOW - timedelta(days=1))
    assert not holds_pass(second, cookie, NOW)
    cookies = [f"{pass_of(second, NOW)}; {cookie[0]}"]  # a browser may be signed in to both
    assert holds_pass(home, cookies, NOW)
    assert holds_pass(second, cookies, NOW)
    assert new_pass(tmp_path / "none", NOW) is None
    assert not holds_pass(tmp_path / "none", cookie, NOW)


def test_a_cookie_is_found_among_those_of_other_servers() -> None:
    headers = ['prefs={"theme":"dark"}; a=1', "wanted=x=y;wanted = z; nowanted=2"]
    assert [*cookie_values(headers, "wanted")] == ["x=y"]

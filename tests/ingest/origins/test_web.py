"""Web sites: what is visited, what is refused, and what becomes of pages that don't answer."""

from __future__ import annotations

import gzip
import ssl
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from rag.config.origin_settings import WebOrigin
from rag.config.settings import IngestSettings
from rag.ingest.containers import Spool
from rag.ingest.origins.guarded_http import Client, is_public
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings, RefusedError
from rag.ingest.origins.page_links import canonical_url, listing, page_facts, path_below, visible_text
from rag.ingest.origins.web_site import (
    FORBIDDEN,
    LOG_IN_WORDS,
    LONGER,
    NOT_INDEXED,
    ONE_PAGE,
    look_through_site,
)
from rag.ingest.parse.parsers import parse
from tests.endpoint import Reply, Site, certificate

pytestmark = pytest.mark.anyio


# Web sites: what is visited, what is refused, and what becomes of pages that don't answer.

LOOPBACK = ("127.0.0.0/8",)
UNTRUSTED = "its certificate is not valid for this host"
PAGE = b"<html><head><title>Clocks</title></head><body><p>The pendulum swings.</p>%s</body></html>"


def page(*links: str, head: str = "") -> bytes:
    linked = " ".join(f'<a href="{link}">more</a>' for link in links)
    return (PAGE % linked.encode()).replace(b"<head>", b"<head>" + head.encode())


@pytest.fixture
def desk(tmp_path: Path) -> OriginContext:
    return OriginContext("site", Spool(tmp_path), IngestSettings(), {}, frozenset(), lambda _uri: True)


def origin(*urls: str, **more: Any) -> WebOrigin:  # noqa: ANN401 any setting
    settings = {"private_networks": LOOPBACK, "delay_seconds": 0, "urls": urls} | more
    return WebOrigin.model_validate({"type": "web"} | settings)


def names_of(look: OriginFindings) -> list[str]:
    return sorted(file.name.partition("/")[2] for file in look.discovery.files.values())


def failures(look: OriginFindings) -> list[str]:
    return [outcome.reason for outcome in look.discovery.outcomes if outcome.outcome == "skipped"]


def again(desk: OriginContext, look: OriginFindings) -> OriginContext:
    """The desk in the next run, after everything was stored."""
    stored = frozenset(look.discovery.files) | look.discovery.unchanged | look.discovery.retained
    return replace(desk, before=look.state, stored=stored)


async def test_links_are_followed_on_the_same_host_as_far_as_depth_says(
    site: Site, desk: OriginContext
) -> None:
    site.pages |= {
        "/": page("/a", "b/../b?x=1#part", "https://elsewhere.example.org/", "/logo.png", "mailto:a@b.c"),
        "/a": page("/deep"),
        "/b?x=1": page("/"),
        "/deep": page("/deeper"),
    }
    look = await look_through_site(origin(f"{site.url}/", depth=1), desk)
    assert names_of(look) == ["a", "b?x=1", "index"]
    assert look.discovery.notes == ["URLs of site that lead to other hosts: 1."]
    assert "/logo.png" not in site.paths
    (file,) = (file for file in look.discovery.files.values() if file.name.endswith("/a"))
    assert (file.uri, file.stated["url"]) == (
        f"origin:site/127.0.0.1%3A{site.server_port}/a",
        f"{site.url}/a",
    )
    assert file.path.name == "a.html"


async def test_sitemaps_and_feeds_list_pages_and_unchanged_ones_are_not_sent_again(
    site: Site, desk: OriginContext
) -> None:
    index = f"<sitemapindex><sitemap><loc>{site.url}/pages.xml.gz</loc></sitemap></sitemapindex>"
    urls = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in "abc")
    feed = (
        '<rss version="2.0"><channel><title>News</title><item><title>Opened</title>'
        f"<link>{site.url}/news</link><pubDate>Tue, 03 Mar 2026 10:00:00 GMT</pubDate></item></channel></rss>"
    )
    site.pages |= {
        "/map.xml": index.encode(),
        "/pages.xml.gz": gzip.compress(f'<?xml version="1.0"?><urlset>{urls}</urlset>'.encode()),
        "/feed.xml": feed.encode(),
        **{f"/{name}": page() for name in ("a", "b", "c", "news")},
    }
    settings = origin(f"{site.url}/map.xml", f"{site.url}/feed.xml")
    look = await look_through_site(settings, desk)
    assert names_of(look) == ["a", "b", "c", "news"]
    (news,) = (file for file in look.discovery.files.values() if file.name.endswith("news"))
    assert (news.stated["title"], news.stated["date"]) == ("Opened", "2026-03-03T10:00:00+00:00")

    site.pages["/b"] = page(head="<meta>")
    site.pages["/c"] = (410, {}, b"")
    site.pages["/feed.xml"] = feed.replace("news", "b").encode()  # the article fell out of the feed
    desk = again(desk, look)
    later = await look_through_site(settings, desk)
    assert names_of(later) == ["b"]
    gone = {uri.rpartition("/")[2] for uri in desk.stored if later.discovery.is_gone(uri)}
    assert gone == {"c"}
    assert {uri.rpartition("/")[2] for uri in later.discovery.unchanged} == {"a", "news"}


@pytest.mark.parametrize(
    "broken",
    [
        (500, {}, b""),
        (404, {}, b""),
        (302, {"Location": "/login"}, b""),
        (200, {"Content-Type": "text/html"}, b"<h1>Error</h1>"),
    ],
)
@pytest.mark.parametrize("name", ["/feed.xml", "/map.xml", "/moved.xml", "/index.xml"])
async def test_what_a_list_listed_stays_while_an_error_is_in_its_place(
    site: Site, desk: OriginContext, name: str, broken: Reply
) -> None:
    item = f"<item><title>A</title><link>{site.url}/a</link></item>"
    index = f"<sitemapindex><sitemap><loc>{site.url}/map.xml</loc></sitemap></sitemapindex>"
    site.pages |= {
        "/feed.xml": f'<rss version="2.0"><channel><title>N</title>{item}</channel></rss>'.encode(),
        "/index.xml": index.encode(),
        "/map.xml": f"<urlset><url><loc>{site.url}/b</loc></url></urlset>".encode(),
        "/moved.xml": (301, {"Location": "/new.xml"}, b""),
        "/new.xml": f"<urlset><url><loc>{site.url}/c</loc></url></urlset>".encode(),
        "/login": page(),
        **{f"/{page_name}": page() for page_name in "abc"},
    }
    settings = origin(*(f"{site.url}/{start}.xml" for start in ("index", "feed", "moved")))
    look = await look_through_site(settings, desk)
    assert names_of(look) == ["a", "b", "c"]
    site.pages[name] = broken
    for _ in range(2):  # it is still known as a list in the run after
        desk = again(desk, look)
        look = await look_through_site(settings, desk)
        assert not [uri for uri in desk.stored if look.discovery.is_gone(uri)]
        assert len(failures(look)) == 1
        assert "login" not in names_of(look)


@pytest.mark.parametrize("query", ["", "?next=/{}", "?to=http%3A%2F%2Fhost%2F{}"])
async def test_a_page_that_redirects_to_a_log_in_stays_and_the_log_in_is_no_document(
    site: Site, desk: OriginContext, query: str
) -> None:
    urls = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in "abcd")
    site.pages |= {"/map.xml": f"<urlset>{urls}</urlset>".encode(), "/d": (404, {}, b"")}
    site.pages |= {f"/{name}": page() for name in "abc"}
    settings = origin(f"{site.url}/map.xml")
    look = await look_through_site(settings, desk)
    login = b"<h1>Log in</h1>User <input> Password <input type='password' name='p'>"
    host = site.url.removeprefix("http://")
    for name in "abd":
        target = "/login" + query.format(name).replace("host", host)
        site.pages |= {f"/{name}": (302, {"Location": target}, b""), target: login}
    for _ in range(2):
        desk = again(desk, look)
        look = await look_through_site(settings, desk)
        assert not look.discovery.files
        assert not [uri for uri in desk.stored if look.discovery.is_gone(uri)]
        assert len(failures(look)) == 2
    site.pages["/a"] = (302, {"Location": "/new?from=b"}, b"")  # an ordinary page
    site.pages["/new?from=b"] = page() + b"<input type=password>" + b" word" * LOG_IN_WORDS
    look = await look_through_site(settings, again(desk, look))
    assert names_of(look) == ["new?from=b"]
    assert len(failures(look)) == 1


async def test_a_listed_page_with_a_password_field_is_a_page(site: Site, desk: OriginContext) -> None:
    site.pages["/map.xml"] = f"<urlset><url><loc>{site.url}/a</loc></url></urlset>".encode()
    site.pages["/a"] = page()
    settings = origin(f"{site.url}/map.xml")
    look = await look_through_site(settings, desk)
    site.pages["/a"] = b"<h1>Reset</h1>New password <input type='password' name='p'>"
    desk = again(desk, look)
    look = await look_through_site(settings, desk)
    assert names_of(look) == ["a"]
    assert not failures(look)


@pytest.mark.slow
async def test_one_page_for_every_address_replaces_and_removes_nothing(
    site: Site, desk: OriginContext
) -> None:
    """A log-in with a token, a time and the path in each answer, at old and new addresses, also of files."""
    names = [*"abcdef", "notes.txt"]
    urls = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in [*names, "new"])
    site.pages |= {"/map.xml": f"<urlset>{urls}</urlset>".encode(), "/new": (404, {}, b"")}
    site.pages |= {f"/{name}": page(f"/of-{name}", head=f"<title>{name}</title>") for name in names}
    site.pages |= {f"/of-{name}": page(head=f"<title>of {name}</title>") for name in "ab"}
    site.pages["/notes.txt"] = (200, {"Content-Type": "text/plain"}, b"Oil the pendulum.")
    settings = origin(f"{site.url}/map.xml", depth=1)
    look = await look_through_site(settings, desk)
    usual, desk = {**site.pages}, again(desk, look)
    assert len(desk.stored) == len(names) + 2
    login = b"<h1>Log in</h1>to see /%s, 02:14:%d <script>id = '%s'</script><input type=hidden value='%s'>"
    site.pages |= {
        f"/{name}": login % (name.encode(), len(name), name.encode(), name.encode())
        for name in [*names, "new"]
    }
    for _ in range(2):  # it is no page of the site in the run after, either
        look = await look_through_site(settings, desk)
        assert not look.discovery.files
        assert not [uri for uri in desk.stored if look.discovery.is_gone(uri)]
        assert failures(look) == [ONE_PAGE.format(len(names) + 1)] * (len(names) + 1)
        desk = again(desk, look)
    site.pages |= usual
    look = await look_through_site(settings, desk)
    assert not failures(look)
    assert not [uri for uri in desk.stored if look.discovery.is_gone(uri)]


async def test_both_pages_of_a_small_site_stay_too(site: Site, desk: OriginContext) -> None:
    site.pages |= {"/": page("/a"), "/a": page(head="<title>A</title>")}
    settings = origin(f"{site.url}/", f"{site.url}/a")
    look = await look_through_site(settings, desk)
    site.pages |= {"/": b"<h1>Under maintenance</h1>", "/a": b"<h1>Under maintenance</h1>"}
    later = await look_through_site(settings, again(desk, look))
    assert failures(later) == [ONE_PAGE.format(2)] * 2
    site.pages |= {"/": b"<h1>A new page</h1>", "/a": page(head="<title>A</title>")}
    assert not failures(await look_through_site(settings, again(desk, look)))


async def test_pages_that_get_the_same_text_one_by_one_are_taken(site: Site, desk: OriginContext) -> None:
    """Three of nine; and pages that always had the same text."""
    names = "abcdefghi"
    urls = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in names)
    site.pages["/map.xml"] = f"<urlset>{urls}</urlset>".encode()
    site.pages |= {f"/{name}": page(head="<title>{name}</title>") for name in names}
    settings = origin(f"{site.url}/map.xml")
    look = await look_through_site(settings, desk)
    site.pages |= {f"/{name}": page(head="<title>Gone</title>") for name in "abc"}
    site.pages |= {f"/{name}": page(head="<title>{name}</title><meta>") for name in "defghi"}
    later = await look_through_site(settings, again(desk, look))
    assert names_of(later) == [*names]
    assert not failures(later)


async def test_pages_that_always_differed_in_numbers_only_are_taken(site: Site, desk: OriginContext) -> None:
    urls = "".join(f"<url><loc>{site.url}/{number}</loc></url>" for number in range(6))
    site.pages["/map.xml"] = f"<urlset>{urls}</urlset>".encode()
    settings = origin(f"{site.url}/map.xml")
    for layout in ("Sensor", "The sensor of room"):
        site.pages |= {f"/{number}": f"<h1>{layout} {number}</h1>".encode() for number in range(6)}
        look = await look_through_site(settings, desk)
        assert len(names_of(look)) == 6
        assert not failures(look)
        desk = again(desk, look)


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_page_that_fails_stays_and_its_links_too(
    site: Site, desk: OriginContext, status: int
) -> None:
    site.pages |= {"/": page("/a"), "/a": page("/b"), "/b": page()}
    settings = origin(f"{site.url}/", depth=3)
    look = await look_through_site(settings, desk)
    site.pages["/a"] = (status, {"Retry-After": "0"}, b"")
    desk = again(desk, look)
    later = await look_through_site(settings, desk)
    assert failures(later) == [f"the server answers with status {status}"]
    assert not [uri for uri in desk.stored if later.discovery.is_gone(uri)]
    assert later.state.keys() == look.state.keys()


async def test_an_overloaded_server_is_asked_again_as_late_as_it_says(
    site: Site, desk: OriginContext
) -> None:
    def answer(_headers: Message) -> Reply:
        return (429, {"Retry-After": "0"}, b"") if site.paths.count("/") == 1 else (200, HTML, page())

    site.pages["/"] = answer
    assert names_of(await look_through_site(origin(f"{site.url}/"), desk)) == ["index"]
    site.pages["/"] = (429, {"Retry-After": "86400"}, b"")
    assert failures(await look_through_site(origin(f"{site.url}/"), desk))
    assert site.paths.count("/") == 3  # not waited for


HTML = {"Content-Type": "text/html"}


async def test_an_address_with_a_dot_is_not_hidden(site: Site, desk: OriginContext) -> None:
    site.pages |= {"/": page("/.well-known/security.txt"), "/.well-known/security.txt": b"Contact us."}
    assert names_of(await look_through_site(origin(f"{site.url}/", depth=1), desk)) == [
        ".well-known/security.txt",
        "index",
    ]


async def test_robots_are_obeyed(site: Site, desk: OriginContext) -> None:
    ours = b"User-agent: refdesk\nDisallow: /private*.html$\nAllow: /\n"
    site.pages |= {
        "/robots.txt": b"User-agent: *\nDisallow: /\n" + ours,
        "/": page("/private-1.html", "/private-1.html5", "/hidden", "/quiet"),
        "/private-1.html": page(),
        "/private-1.html5": page(),
        "/hidden": page(head='<meta name="robots" content="noindex">'),
        "/quiet": (200, HTML | {"X-Robots-Tag": "nofollow"}, page("/further")),
        "/further": page(),
    }
    look = await look_through_site(origin(f"{site.url}/", depth=3), desk)
    assert names_of(look) == ["index", "private-1.html5", "quiet"]
    assert "/private-1.html" not in site.paths
    forbidden = {uri.rpartition("/")[2]: why for uri, why in look.discovery.forbidden.items()}
    assert forbidden == {"private-1.html": FORBIDDEN, "hidden": NOT_INDEXED}
    site.pages["/robots.txt"] = (500, {}, b"")
    site.paths.clear()
    look = await look_through_site(origin(f"{site.url}/"), desk)
    assert "robots.txt can't be read (status 500)" in failures(look)[0]
    assert "/" not in site.paths


async def test_a_limit_ends_the_run_and_removes_nothing(
    site: Site, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages |= {"/": page(*(f"/{n}" for n in range(9)))} | {f"/{n}": page() for n in range(9)}
    look = await look_through_site(origin(f"{site.url}/", depth=1), desk)
    assert len(names_of(look)) == 10
    desk = again(desk, look)
    later = await look_through_site(origin(f"{site.url}/", depth=1, max_pages=4), desk)
    assert failures(later) == ["the limit of 4 pages is reached (max_pages); 7 known URLs were left"]
    assert not [uri for uri in desk.stored if later.discovery.is_gone(uri)]
    site.pages["/"] = lambda _headers: (site.test_is_over.wait(5), (200, HTML, page()))[1]
    monkeypatch.setattr(WebOrigin, "max_seconds", 0.2)
    late = await look_through_site(origin(f"{site.url}/"), desk)
    assert failures(late) == [f"the limit of 0.2 seconds is reached ({LONGER})"]
    assert not [uri for uri in desk.stored if late.discovery.is_gone(uri)]


async def test_a_redirect_leads_to_no_other_host(site: Site, desk: OriginContext) -> None:
    site.pages |= {
        "/": page("/moved", "/away", "/loop", "/ring-1", "/ring-2"),
        "/moved": (301, {"Location": "/new"}, b""),
        "/new": page(),
        "/away": (302, {"Location": "http://169.254.169.254/latest/meta-data/"}, b""),
        "/loop": (302, {"Location": "/loop?"}, b""),
        "/ring-1": (302, {"Location": "/ring-2"}, b""),
        "/ring-2": (302, {"Location": "/ring-1"}, b""),
    }
    look = await look_through_site(origin(f"{site.url}/", depth=1), desk)
    assert names_of(look) == ["index", "new"]
    assert [reason.partition(":")[0].partition(",")[0] for reason in failures(look)] == [
        "it redirects to another host",
        *["it redirects in a circle"] * 2,
    ]


async def test_a_page_that_redirects_in_a_circle_or_to_one_that_fails_stays_as_it_was(
    site: Site, desk: OriginContext
) -> None:
    names = ["/a", "/b", "/maintained", "/later", "/self", "/sound"]
    site.pages |= {"/": page(*names)} | {name: page() for name in names}
    desk = again(desk, look := await look_through_site(origin(f"{site.url}/", depth=1), desk))
    assert len(names_of(look)) == 7
    site.pages |= {
        "/a": (302, {"Location": "/b"}, b""),
        "/b": (302, {"Location": "/a"}, b""),
        "/self": (301, {"Location": "/self"}, b""),
        "/maintained": (302, {"Location": "/later"}, b""),
        "/later": (503, {"Retry-After": "86400"}, b""),
        "/sound": (301, {"Location": "/new"}, b""),
        "/new": page(),
    }
    later = await look_through_site(origin(f"{site.url}/", depth=1), desk)
    assert sum("in a circle" in reason for reason in failures(later)) == 2
    gone = [uri.rpartition("/")[2] for uri in desk.stored if later.discovery.is_gone(uri)]
    assert gone == ["sound"]  # which has moved


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_what_is_too_large_is_not_read_to_its_end(
    site: Site, desk: OriginContext, encoding: str
) -> None:
    def body(size: int) -> Reply:
        plain = b"x" * size
        packed = gzip.compress(plain) if encoding == "gzip" else plain
        return 200, {"Content-Type": "text/plain", "Content-Encoding": encoding}, packed

    desk = replace(desk, settings=IngestSettings(max_file_bytes=1000))
    site.pages["/"] = body(1000)
    assert names_of(await look_through_site(origin(f"{site.url}/"), desk)) == ["index"]
    for size in (1001, 10_000_000):
        site.pages["/"] = body(size)
        (reason,) = failures(await look_through_site(origin(f"{site.url}/"), desk))
        assert reason == "it is over the limit of 0.0 MB (ingest.max_file_bytes)"


async def test_an_address_that_is_not_public_is_refused(site: Site, desk: OriginContext) -> None:
    site.pages["/"] = page()
    refused = await look_through_site(origin(f"{site.url}/", private_networks=("10.0.0.0/8",)), desk)
    assert "has the address 127.0.0.1, which is not public" in failures(refused)[0]
    assert not site.paths
    assert names_of(await look_through_site(origin(f"{site.url}/"), desk)) == ["index"]  # the control


async def test_a_name_that_changes_its_address_meanwhile_gains_nothing(site: Site) -> None:
    """DNS rebinding: what is judged is what is connected to, each time."""
    addresses = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "10.0.0.1"]]
    hosts: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        hosts.append(host)
        return addresses.pop(0)

    site.pages["/"] = (200, HTML | {"Connection": "close"}, b"")
    client = Client(agent="t", timeout_seconds=5, networks=("127.0.0.1/32",), resolve=resolve)
    url = f"http://docs.example.org:{site.server_port}/"
    assert (await client.get(url, {}, max_bytes=9)).status == 200
    for _ in range(2):
        with pytest.raises(RefusedError):
            await client.get(url, {}, max_bytes=9)
    await client.aclose()
    assert (hosts, len(site.paths)) == (["docs.example.org"] * 3, 1)


async def test_a_certificate_that_nobody_trusts_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate_file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    site.pages["/"] = b"x"

    async def status(host: str = "localhost") -> int:
        async def resolve(_host: str, _port: int) -> list[str]:
            return ["127.0.0.1"]

        client = Client(agent="t", timeout_seconds=5, networks=LOOPBACK, resolve=resolve)
        try:
            return (await client.get(f"https://{host}:{site.server_port}/", {}, max_bytes=9)).status
        finally:
            await client.aclose()

    with pytest.raises(FetchError, match=UNTRUSTED):
        await status()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_file))
    assert await status() == 200  # the control
    with pytest.raises(FetchError, match=UNTRUSTED):
        await status("other.example.org")


RUSSIAN = "Шапочка обязательна для всех посетителей бассейна."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "meta", "encoding"),
    [
        ("text/html; charset=windows-1251", "", "cp1251"),
        ('Text/HTML; Charset="KOI8-R"; x=y', "", "koi8-r"),
        ("text/html; charset=windows-1251", "koi8-r", "cp1251"),  # what the server says goes first
        ("text/html; charset=windows-1251", "", "utf-8-sig"),  # but for a mark
        ("text/html; charset=windows-1251", "", "utf-16"),
        ("text/html; charset=iso-8859-1", "utf-8", "utf-8"),  # what the bytes contradict doesn't count
        ("text/html; charset=utf-8", "koi8-r", "koi8-r"),
        ("text/html; charset=x-unheard-of", "koi8-r", "koi8-r"),  # nor what is unknown
        ("text/html; charset=", "koi8-r", "koi8-r"),
        ("text/html", "windows-1251", "cp1251"),
        ("text/plain; charset=koi8-r", "", "koi8-r"),
        ("text/markdown; charset=windows-1251", "", "cp1251"),
        ("text/plain", "", "utf-8"),
    ],
)
async def test_the_encoding_that_the_server_states_goes_before_that_of_the_page(
    site: Site, desk: OriginContext, stated: str, meta: str, encoding: str
) -> None:
    is_page = "html" in stated.lower()
    written = f'<meta charset="{meta}"><p>{RUSSIAN}</p><a href="/о-нас">о нас</a>' if is_page else RUSSIAN
    site.pages = {"/": (200, {"Content-Type": stated}, written.encode(encoding))}
    look = await look_through_site(origin(f"{site.url}/", depth=1), desk)
    (document,) = look.discovery.files.values()
    assert RUSSIAN in parse(document.read_from.read_bytes(), document.path.name).text
    if is_page:
        assert any("%D0%BE-%D0%BD%D0%B0%D1%81" in path for path in site.paths)


async def test_what_is_no_text_stays_as_the_server_sent_it(site: Site, desk: OriginContext) -> None:
    data = b'{"name": "caf\xc3\xa9"}'
    site.pages = {"/a.json": (200, {"Content-Type": "application/json; charset=windows-1251"}, data)}
    look = await look_through_site(origin(f"{site.url}/a.json"), desk)
    (document,) = look.discovery.files.values()
    assert document.read_from.read_bytes() == data


# Addresses in one form, what pages say of themselves, and which addresses anybody may reach.


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("HTTPS://Example.org:443/a/../b/%7ejoe#x", "https://example.org/b/~joe"),
        ("https://example.org", "https://example.org/"),
        ("/c?q=%c3%bc ü", "https://example.org/c?q=%C3%BC%20%C3%BC"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("https://example.org:8443/", "https://example.org:8443/"),
        ("https://user:pw@example.org/", None),
        ("mailto:a@example.org", None),
        ("javascript:alert(1)", None),
        ("https://example.org:99999/", None),
        ("https://[broken/", None),
    ],
)
def test_an_address_has_one_form(written: str, expected: str | None) -> None:
    assert canonical_url(written, "https://example.org/a") == expected
    if expected:
        assert canonical_url(expected) == expected


def test_an_address_becomes_a_path() -> None:
    assert path_below("https://example.org/a/?b=c") == "example.org/a/index?b=c"
    assert path_below("https://example.org/%2e%2e/%2F/x") == "example.org/x"


@pytest.mark.slow
@pytest.mark.usefixtures("in_linear_time")
def test_a_page_of_open_tags_takes_no_longer_than_its_size() -> None:
    for part in (b"<a ", b'<a href="', b"<meta ", b"<!--", b"<a href=x>"):
        page_facts(part * 40_000, "https://example.org/", {})
        visible_text(part * 40_000)
    visible_text(b"<" + b"a" * 200_000)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.1"),
        *("224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::5db8:d822",
            "2002:7f00:1::",
            "ff02::1",
        ),
    ],
)
def test_an_address_that_is_not_public_is_recognised(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111"])
def test_a_public_address_is_recognised(address: str) -> None:
    assert is_public(address)


FEED = "https://example.org/news/feed.xml"


def test_a_listing_with_a_document_type_is_none_and_a_damaged_one_is_an_error() -> None:
    bomb = b'<!DOCTYPE urlset [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert listing(bomb, FEED) is None
    assert listing(b"<html><body>x</body></html>", FEED) is None
    assert listing(b"no xml", FEED) is None
    with pytest.raises(FetchError, match="damaged"):
        listing(b"<urlset><url><loc>https://example.org/</loc></url>", FEED)


def test_a_feed_is_read_without_what_is_nested_in_its_entries() -> None:
    atom = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>All</title><link href="https://x.org/"/>
      <entry><title>One</title><link rel="edit" href="/no"/><link href="/one"/><updated>2026-01-01</updated>
      <source><title>Other</title><link href="/other"/></source></entry></feed>"""
    feed = listing(atom, FEED)
    assert feed
    assert [(entry.url, entry.title, entry.date) for entry in feed.entries] == [
        ("https://example.org/one", "One", "2026-01-01T00:00:00+00:00")
    ]


@pytest.mark.parametrize(
    ("feed_base", "entry_base", "expected"),
    [
        ("", "", "https://example.org/news/1"),
        ('xml:base="/a/"', "", "https://example.org/a/1"),
        ('xml:base="https://x.org/a/"', 'xml:base="b/"', "https://x.org/a/b/1"),
        ('xml:base="http://[/"', "", "https://example.org/news/1"),
    ],
)
def test_a_relative_link_of_a_feed_starts_from_its_base(
    feed_base: str, entry_base: str, expected: str
) -> None:
    entry = f'<entry {entry_base}><link href="1"/></entry><entry><link href="https://y.org/2"/></entry>'
    atom = f'<feed xmlns="http://www.w3.org/2005/Atom" {feed_base}>{entry}</feed>'
    feed = listing(atom.encode(), FEED)
    assert feed
    assert [entry.url for entry in feed.entries] == [expected, "https://y.org/2"]

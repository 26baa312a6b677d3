"""Crawls a web site: the listed pages, the pages in sitemaps and feeds, and the pages that these link to.

It is polite: one request at a time, with a delay, as robots.txt allows. An unchanged page (304) is not
fetched, and keeps its links from the last run. A page that is gone (404, 410) or no longer served (401, 403,
451) is removed; one that can't be fetched now stays as it is.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import anyio

from rag.config.origin_settings import WebOrigin
from rag.ingest.origins.guarded_http import MAX_REDIRECTS, RETRIED, Client, Reply
from rag.ingest.origins.origin_look import (
    FetchError,
    GoneError,
    OriginContext,
    OriginFindings,
    RefusedError,
    matches,
)
from rag.ingest.origins.page_links import (
    Listing,
    PageFacts,
    canonical_url,
    gunzipped,
    host_of,
    listing,
    page_facts,
    path_below,
    visible_text,
    without_ids,
)
from rag.ingest.parse.decode import in_utf8
from rag.ingest.parse.document_parts import SUFFIXES_OF_TYPES
from rag.ingest.report import Outcome
from rag.ingest.source_files import printable
from rag.uris import seconds_asked

if TYPE_CHECKING:
    from protego import Protego


WITHDRAWN = frozenset({401, 403, 404, 410, 451})
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_NO_TEXT = frozenset(
    {"image", "audio", "video", "font", "text/css", "text/javascript", "application/javascript"}
)


@dataclass(frozen=True, slots=True)
class _Visit:
    """An address to fetch. `depth` counts links from the start, `hops` redirects; `stated` is from a feed."""

    url: str
    depth: int = 0
    may_list: bool = False
    hops: int = 0
    stated: dict[str, str] = field(default_factory=dict)


async def look_through_site(origin: WebOrigin, context: OriginContext) -> OriginFindings:
    """Discover the pages of a web origin."""
    # A dot in an address, as in /.well-known/, hides nothing.
    context = replace(context, settings=context.settings.model_copy(update={"hidden": True}))
    client = Client(agent=context.agent, networks=origin.private_networks)
    crawl = _Crawl(origin, context, client)
    try:
        with anyio.move_on_after(origin.max_seconds) as limited:
            await crawl.run()
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()
    if limited.cancelled_caught:
        crawl.stop(f"the limit of {origin.max_seconds:g} seconds is reached ({LONGER})")
    return crawl.finished()


LONGER = "a larger max_pages raises it"
FORBIDDEN, NOT_INDEXED = "robots.txt forbids it", "the page asks not to be indexed"
FEW_ALIKE, SHARE_ALIKE = 4, 1 / 3  # of the stored pages; fewer of them can be alike by chance
ONE_PAGE = (
    "the server answers {} addresses with this same page, perhaps a log-in. It replaces nothing. If it is "
    "right, remove the stored pages, and run the command again"
)
LOG_IN = "it redirects to a log-in, {}, which isn't stored. A stored version of it stays"
LOG_IN_WORDS = 60  # a page with more has content, and a form for a password beside it
NO_LISTING = (
    "it listed pages before, and doesn't answer with a list now, so nothing that it listed is removed. If it "
    "lists none any more, take it out of urls"
)


class _Crawl:
    def __init__(self, origin: WebOrigin, context: OriginContext, client: Client) -> None:
        self._origin = origin
        self._context = context
        self._findings = OriginFindings()
        self._starts = [url for start in origin.urls if (url := canonical_url(start))]
        self._hosts = {host_of(url) for url in self._starts}
        self._excluded, self._max_bytes = context.settings.exclude, context.settings.max_file_bytes
        self._visitor = Visitor(client, self._hosts, origin.delay_seconds)
        self._queue: deque[_Visit] = deque()
        self._seen: set[str] = set()
        self._withdrawn: set[str] = set()
        self._redirects: dict[str, str] = {}
        self._failed: set[str] = set()
        self._logins: set[str] = set()
        self._complete = True
        self._feeds = False
        self._elsewhere = self._forbidden = self._missing = 0

    async def run(self) -> None:
        """Visit everything, breadth first; then check the stored pages that a feed no longer lists."""
        for url in self._starts:
            self._add(_Visit(url, may_list=True))
        await self._visit_all()
        if self._feeds and self._complete:  # a feed lists new entries only: older pages may still be there
            for url, entry in self._context.before.items():
                if entry.get("uri") in self._context.stored:
                    self._add(_Visit(url, self._origin.depth, stated=dict(entry.get("stated", {}))))
            await self._visit_all()

    async def _visit_all(self) -> None:
        while self._queue:
            if self._visitor.fetched >= self._origin.max_pages:
                self.stop(f"the limit of {self._origin.max_pages} pages is reached (max_pages)")
            elif self._visitor.received >= self._origin.max_bytes:
                self.stop(f"the limit of {self._origin.max_bytes / 1e6:,.0f} MB is reached ({LONGER})")
            else:
                await self._visit(self._queue.popleft())

    def stop(self, why: str) -> None:
        """End the crawl early. Stored pages that were not visited stay."""
        note_on_queue = f"; {len(self._queue)} known URLs were left" if self._queue else ""
        self._findings.failed(f"origin:{self._context.name}", why + note_on_queue)
        self._queue.clear()
        self._complete = False

    def finished(self) -> OriginFindings:
        """The result. A page that wasn't seen is gone only if the crawl was complete."""
        discovery, state = self._findings.discovery, self._findings.state
        discovery.whole.add(self._context.prefix)
        self._keep_what_one_page_would_replace()
        self._keep_what_redirected_lists_listed()
        for url in self._redirects:
            if self._failed.intersection(self._chain(url)):  # the target of the redirect is unknown
                discovery.retained.add(self._uri(url))
            if self._chain(url)[-1] in self._logins and self._uri(url) in self._context.stored:
                self._findings.failed(url, LOG_IN.format(self._chain(url)[-1]))
                discovery.retained.add(self._uri(url))
                # The links of the stored version weren't followed.
                self._complete = self._complete and not self._context.before[url].get("links")
        if not self._complete:
            discovery.retained |= self._context.unseen(discovery) - self._withdrawn
        entries = {
            url: dict(entry)
            for url, entry in self._context.before.items()
            if entry.get("uri") in discovery.retained or ("listing" in entry and not self._complete)
        }
        self._findings.state = entries | state
        for number, reason in (
            (self._elsewhere, "lead to other hosts"),
            (self._forbidden, "robots.txt forbids"),
            (self._missing, "lead to pages that don't exist, or that the server doesn't give out"),
        ):
            if number:
                discovery.notes.append(f"URLs of {self._context.name} that {reason}: {number}.")
        return self._findings

    def _keep_what_one_page_would_replace(self) -> None:
        """Keep the stored pages if the server now sends the same page, like a log-in, for many of them."""
        discovery, state = self._findings.discovery, self._findings.state
        former = {url: entry["gist"] for url, entry in self._context.before.items() if "gist" in entry}
        # Pages that differed in numbers only before, too, count once: a new layout changes them alike.
        changes = {(former[url], entry.get("gist")) for url, entry in state.items() if url in former}
        changed = Counter(gist for earlier, gist in changes if gist and gist != earlier)
        stored = len(set(former.values()))
        fewest = max(2, min(stored, max(FEW_ALIKE, stored * SHARE_ALIKE)))
        for gist in [gist for gist, number in changed.items() if number >= fewest]:
            alike = [url for url, entry in state.items() if entry.get("gist") == gist]
            for url in alike:
                discovery.files.pop(state.pop(url)["uri"], None)
                discovery.retained |= {self._uri(url)} & self._context.stored
                self._findings.unreachable(url, ONE_PAGE.format(len(alike)))
            self._complete = False  # the links of the stored pages weren't followed

    def _keep_what_redirected_lists_listed(self) -> None:
        """Keep the stored pages if a sitemap or feed now redirects to a page, like a log-in."""
        discovery, state = self._findings.discovery, self._findings.state
        for url in self._redirects:
            chain = self._chain(url)
            target = state.get(chain[-1], {})
            if "listing" in target:
                state[url] = target | {"uri": self._uri(url)}
            elif "listing" in (before := self._context.before.get(url, {})):
                if target and target["uri"] not in self._context.stored:
                    discovery.files.pop(state.pop(chain[-1])["uri"], None)
                self._findings.unreachable(url, NO_LISTING)
                state[url] = dict(before)
                self._complete = False

    def _add(self, visit: _Visit) -> None:
        """Queue an address once, if it belongs to this origin."""
        url = visit.url
        if url in self._seen:
            return
        self._seen.add(url)
        if host_of(url) not in self._hosts:
            self._elsewhere += 1
        elif visit.may_list or not (_is_no_text(url) or matches(path_below(url), self._excluded)):
            self._queue.append(visit)

    async def _visit(self, visit: _Visit) -> None:
        before = self._context.before.get(visit.url, {})
        uri = self._uri(visit.url)
        try:
            robots = await self._visitor.robots_of(visit.url)
            if not robots.can_fetch(visit.url, AGENT):
                self._forbidden += 1
                self._findings.discovery.forbidden[uri] = FORBIDDEN
                if visit.may_list:
                    raise RefusedError(FORBIDDEN)
                return
            max_bytes = self._context.most_bytes(path_below(visit.url))
            reply = await self._visitor.reply(visit.url, self._conditions(before), max_bytes)
            await self._take(visit, reply, before, uri)
        except GoneError as error:
            self._missing += 1
            self._withdrawn.add(uri)
            if visit.may_list and not visit.hops:
                self._findings.unreachable(visit.url, str(error))
        except FetchError as error:
            fail = self._findings.unreachable if visit.may_list else self._findings.failed
            fail(visit.url, str(error))
            self._failed.add(visit.url)
            self._findings.discovery.retained.add(uri)
            self._follow(visit, before.get("links", ()))
            # The crawl stays complete if the links of this page are known from an earlier run.
            self._complete = self._complete and bool(before) and "listing" not in before
            if "listing" in before:
                self._findings.state[visit.url] = dict(before)

    def _uri(self, url: str) -> str:
        """The URI for storing an address."""
        return self._context.before.get(url, {}).get("uri") or self._context.uri(path_below(url))

    def _chain(self, url: str) -> list[str]:
        """An address and its known redirects, each once."""
        chain = [url]
        while (url := self._redirects.get(url, "")) and url not in chain:
            chain.append(url)
        return chain

    def _conditions(self, before: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a conditional request; empty if the page must be fetched in any case."""
        if not before or not self._context.is_current(before["uri"]):
            return {}
        validators = (("If-None-Match", before.get("etag")), ("If-Modified-Since", before.get("modified")))
        return {name: value for name, value in validators if value}

    async def _take(self, visit: _Visit, reply: Reply, before: Mapping[str, Any], uri: str) -> None:
        discovery = self._findings.discovery
        if reply.status == HTTPStatus.NOT_MODIFIED and before:
            discovery.files.pop(uri, None)  # perhaps from a page that calls this one its canonical address
            discovery.unchanged.add(uri)
            self._findings.state[visit.url] = dict(before)
            self._follow(visit, before.get("links", ()))
        elif reply.status in REDIRECTS:
            self._redirect(visit, reply)
        elif reply.status in WITHDRAWN and "listing" not in before:
            raise GoneError(f"the server answers with status {reply.status}")
        elif not 200 <= reply.status < 300:  # noqa: PLR2004 HTTP's
            status = f"the server answers with status {reply.status}"
            raise FetchError(f"{status}: {NO_LISTING}" if "listing" in before else status)
        elif visit.may_list and (listed := listing(gunzipped(reply.body, self._max_bytes), visit.url)):
            self._findings.state[visit.url] = {"uri": uri, "other": True, "listing": listed.kind}
            self._list(listed)
        elif visit.may_list and "listing" in before:
            raise FetchError(NO_LISTING)  # perhaps an error page
        else:
            self._take_page(visit, reply)

    def _take_page(self, visit: _Visit, reply: Reply) -> None:
        kind = reply.kind
        if kind in _PAGES or (kind.startswith("text/") and kind != "text/xml"):  # XML declares its own
            reply = replace(reply, body=in_utf8(reply.body, reply.charset))
        facts = page_facts(reply.body, visit.url, reply.headers) if kind in _PAGES else PageFacts()
        is_log_in = facts.password and len(visible_text(reply.body).split()) < LOG_IN_WORDS
        if is_log_in and visit.url in self._redirects.values():
            if visit.may_list:
                raise FetchError(LOG_IN.format(visit.url))
            self._logins.add(visit.url)
            return
        links = () if facts.nofollow else facts.links
        self._follow(visit, links)
        self._take_content(visit, reply, facts, links)

    def _take_content(self, visit: _Visit, reply: Reply, facts: PageFacts, links: Sequence[str]) -> None:
        kind = reply.kind
        # Only an address of this site: a page must not be stored as one of another host.
        url = facts.canonical if host_of(facts.canonical) in self._hosts else visit.url
        path, suffix = path_below(url), SUFFIXES_OF_TYPES.get(kind) or mimetypes.guess_extension(kind) or ""
        if (self._context.knows(path) and kind not in _PAGES) or not self._context.knows(f"page{suffix}"):
            suffix = ""  # its path says what it is, or only its content can
        is_picture = bool({kind, kind.partition("/")[0]} & _NO_TEXT)
        if facts.noindex:
            self._findings.discovery.forbidden[self._uri(visit.url)] = NOT_INDEXED
            self._findings.discovery.outcomes.append(Outcome(printable(url), "ignored", NOT_INDEXED))
        elif is_picture or not self._context.reads(f"page{suffix or PurePosixPath(path).suffix}", reply.body):
            self._findings.ignored(url, self._context.uri(path), kind)
        elif self._context.is_wanted(path):
            self._store(visit, url, reply, links, "" if suffix and path.endswith(suffix) else suffix)

    def _store(self, visit: _Visit, url: str, reply: Reply, links: Sequence[str], suffix: str) -> None:
        discovery = self._findings.discovery
        stated = visit.stated | {"url": url}
        file = self._context.local_file(path_below(url), reply.body, stated=stated, suffix=suffix)
        is_own_address = url == visit.url
        if not is_own_address and (file.uri in discovery.files or file.uri in discovery.unchanged):
            return  # the canonical page itself is already stored
        discovery.unchanged.discard(file.uri)
        discovery.files[file.uri] = file
        self._findings.state[visit.url] = {
            "uri": file.uri,
            "etag": reply.headers.get("etag", ""),
            "modified": reply.headers.get("last-modified", ""),
            "links": list(links) if visit.depth < self._origin.depth else [],
            "stated": visit.stated,
            "gist": _digest(reply),
        }

    def _follow(self, visit: _Visit, links: Iterable[str]) -> None:
        if visit.depth < self._origin.depth:
            for url in links:
                self._add(_Visit(url, visit.depth + 1))

    def _redirect(self, visit: _Visit, reply: Reply) -> None:
        target = canonical_url(reply.headers.get("location", ""), visit.url)
        if target is None or visit.hops >= MAX_REDIRECTS:
            raise FetchError("it redirects too often, or to no address")
        if host_of(target) not in self._hosts:
            raise RefusedError(f"it redirects to another host: {target}. If that is right, add it to urls")
        self._redirects[visit.url] = target
        if _names(target, visit.url):  # a log-in that leads back afterwards
            if visit.may_list:
                raise RefusedError(LOG_IN.format(target))
            self._logins.add(target)
            return
        if visit.url in self._chain(target):
            raise FetchError(f"it redirects in a circle, to itself by way of {target}")
        self._add(replace(visit, url=target, hops=visit.hops + 1))

    def _list(self, listed: Listing) -> None:
        """Visit what a sitemap or a feed lists."""
        self._feeds = self._feeds or listed.kind == "feed"
        for entry in listed.entries:
            stated = {"title": entry.title, "date": entry.date}
            stated = {key: value for key, value in stated.items() if value}
            self._add(_Visit(entry.url, may_list=listed.kind == "index", hops=1, stated=stated))


def _names(target: str, url: str) -> bool:
    """Whether a parameter of another page's address is an address of the site, as in /login?next=/a."""
    path = urlsplit(url).path
    if path in {"/", urlsplit(target).path}:
        return False
    return any(value and canonical_url(value, url) == url for _, value in parse_qsl(urlsplit(target).query))


def _digest(reply: Reply) -> str:
    """The digest of a page's visible text, without what differs if one page answers for many addresses."""
    content = without_ids(visible_text(reply.body)).encode() if reply.kind in _PAGES else reply.body
    return hashlib.sha256(content).hexdigest()


def _is_no_text(url: str) -> bool:
    """Whether an address names a picture, a recording, a font, a style or a script."""
    kind, _ = mimetypes.guess_type(urlsplit(url).path)
    return bool(kind) and (str(kind).partition("/")[0] in _NO_TEXT or kind in _NO_TEXT)


ATTEMPTS = 3
LONGEST_WAIT = 120.0  # seconds; if a server asks for more, the next run tries again
REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(slots=True)
class Visitor:
    """Requests to the servers `hosts`, at least `delay` seconds apart.

    `fetched` and `received` count answers and their bytes.
    """

    client: Client
    hosts: AbstractSet[tuple[str, str]]
    delay: float
    fetched: int = 0
    received: int = 0
    _last: float = -1e9
    _robots: dict[tuple[str, str], Protego | FetchError] = field(default_factory=dict)

    async def robots_of(self, url: str) -> Protego:
        """The rules of an address's server, fetched once. Later requests keep the server's delay.

        Raises:
            FetchError: they can't be read.
        """
        host = host_of(url)
        if host not in self._robots:
            try:
                self._robots[host] = await self._read_robots(canonical_url("/robots.txt", url) or url)
            except FetchError as error:
                self._robots[host] = FetchError(str(error))
        rules = self._robots[host]
        if isinstance(rules, FetchError):
            raise FetchError(str(rules))
        self.delay = max(self.delay, min(float(rules.crawl_delay(AGENT) or 0), LONGEST_DELAY))
        return rules

    async def _read_robots(self, url: str) -> Protego:
        for _ in range(MAX_REDIRECTS):
            reply = await self.reply(url, {}, max_bytes=ROBOTS_BYTES)
            if reply.status not in REDIRECTS:
                return robots_of(reply)
            target = canonical_url(reply.headers.get("location", ""), url)
            if target is None or host_of(target) not in self.hosts:
                break
            url = target
        raise FetchError("it redirects to another host, or too often")

    async def reply(self, url: str, headers: Mapping[str, str], max_bytes: int) -> Reply:
        """The server's answer. If the server is overloaded, retries after the time that it asks for.

        Raises:
            FetchError: the server doesn't answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            await anyio.sleep(max(0.0, self._last + self.delay - anyio.current_time()))
            self._last = anyio.current_time()
            reply = await self.client.get(url, headers, max_bytes=max_bytes)
            self.fetched += 1
            self.received += len(reply.body)
            server_wait = seconds_asked(reply.headers.get("retry-after", "")) or 0.0
            wait = max(server_wait, self.delay * 2**attempt)
            if reply.status not in RETRIED or attempt == ATTEMPTS or wait > LONGEST_WAIT:
                break
            await anyio.sleep(wait)
        return reply


# The rules of a server's robots.txt (RFC 9309), and the delay that it asks for.

AGENT = "refdesk"
ROBOTS_BYTES = 1_000_000  # RFC 9309 requires at least 500 KiB
LONGEST_DELAY = 60.0  # seconds; more would make a site unreadable


def robots_of(reply: Reply) -> Protego:
    """The rules in a server's answer. Without a robots.txt, everything is allowed.

    Raises:
        FetchError: the server fails to give its rules, so nothing is allowed (fail closed).
    """
    from protego import Protego  # noqa: PLC0415 only for the web

    if 200 <= reply.status < 300:  # noqa: PLR2004 HTTP's
        return Protego.parse(reply.body.decode("utf-8", "replace"))
    if 400 <= reply.status < 500:  # noqa: PLR2004 the same
        return Protego.parse("")
    raise FetchError(
        f"its robots.txt can't be read (status {reply.status}), so nothing is fetched from there"
    )

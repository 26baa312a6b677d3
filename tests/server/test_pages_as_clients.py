"""Pages in a browser as clients: those of listed origins, with their own keys. Others notice nothing."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.server.conftest import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

pytestmark = pytest.mark.slow

APP, OTHER_APP = "https://app.example.com", "http://localhost:6274"
ALLOWED = f"{APP},{OTHER_APP}"
METADATA = "/.well-known/oauth-protected-resource/mcp"
SENT_BY_ALL = {"accept", "accept-language", "content-language"}
OF_THE_BROWSER = {
    "host",
    "connection",
    "accept-encoding",
    "user-agent",
    "content-length",
    "transfer-encoding",
}
READ_BY_ALL = {"cache-control", "content-language", "content-length", "content-type", "expires", "pragma"}
ASK = message("tools/list")
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
}


class BlockedError(Exception):
    """A browser doesn't send this request, or doesn't show its answer to the page."""


class Browser(httpx2.AsyncBaseTransport):
    """Sends what a page fetches, and shows it the answers, as the Fetch standard says (without cookies)."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        unsafe = sorted({name.lower() for name in request.headers} - SENT_BY_ALL - OF_THE_BROWSER)
        if unsafe or request.method not in {"GET", "HEAD", "POST"}:
            await self._ask(request, unsafe)
        request.headers["Origin"] = self._origin
        answer = await self._network.handle_async_request(request)
        self._check(answer)
        exposed = READ_BY_ALL | _listed(answer, "Access-Control-Expose-Headers")
        answer.headers = httpx2.Headers(
            [(name, value) for name, value in answer.headers.multi_items() if name.lower() in exposed]
        )
        return answer

    async def aclose(self) -> None:
        await self._network.aclose()

    async def _ask(self, request: httpx2.Request, unsafe: list[str]) -> None:
        """The preflight. A POST needs no permission for its method, but what it sends does."""
        headers = {"Host": request.headers["Host"], "Origin": self._origin}
        headers |= {"Access-Control-Request-Method": request.method}
        headers |= {"Access-Control-Request-Headers": ",".join(unsafe)} if unsafe else {}
        preflight = httpx2.Request("OPTIONS", request.url, headers=headers)
        answer = await self._network.handle_async_request(preflight)
        await answer.aread()
        self._check(answer)
        allowed = _listed(answer, "Access-Control-Allow-Methods") | {"get", "head", "post"}
        missing = {*unsafe} - _listed(answer, "Access-Control-Allow-Headers")
        if not answer.is_success or request.method.lower() not in allowed or missing:
            raise BlockedError(answer.status_code, missing)

    def _check(self, answer: httpx2.Response) -> None:
        if answer.headers.get_list("Access-Control-Allow-Origin") not in [[self._origin], ["*"]]:
            raise BlockedError(answer.status_code)


def _listed(answer: httpx2.Response, header: str) -> set[str]:
    return {name.strip().lower() for name in answer.headers.get(header, "").split(",")}


def page(origin: str = APP, **headers: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=Browser(origin), headers=headers, timeout=30)


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    return lasting_listen(world.data, http_sse="true", http_allowed_origins=ALLOWED)


@pytest.mark.anyio
@pytest.mark.parametrize("origin", [APP, OTHER_APP])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_page_of_a_listed_origin_is_a_client_like_others(
    remote: Remote, world: World, mode: str, origin: str
) -> None:
    async with (
        page(origin, Authorization=f"Bearer {world.bob}") as http,
        Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
    ):
        reply = await client.call_tool("search", {"query": "pendulum"})
        assert [hit["cite_as"] for hit in (reply.structured_content or {})["results"]] == ["open"]
    async with page(APP + ".evil.example", Authorization=f"Bearer {world.bob}") as http:
        with pytest.raises(BlockedError):
            await http.post(remote.url, json=ASK)


@pytest.mark.anyio
async def test_a_page_is_a_client_over_sse(remote: Remote, world: World) -> None:
    def browser(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,  # noqa: ARG001 as the SDK calls it
        auth: httpx2.Auth | None = None,  # noqa: ARG001
    ) -> httpx2.AsyncClient:
        return page(**(headers or {}))

    connection = sse_client(
        f"{remote.base}/sse", headers={"X-API-Key": world.bob}, httpx_client_factory=browser
    )
    async with Client(connection) as client:
        assert (await client.call_tool("search", {"query": "pendulum"})).structured_content


@pytest.mark.anyio
async def test_a_page_reads_why_it_is_refused_and_what_it_may_do(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data, http_allowed_origins=ALLOWED, limits_requests_per_minute="1")
    async with page() as http:
        refused = await http.post(remote.url, json=ASK, headers={"Authorization": "Bearer x"})
        assert refused.status_code == 401
        assert "not valid here" in refused.json()["error_description"]
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        assert "Date" not in refused.headers  # which is not for pages
        headers = {"X-API-Key": world.ann, "Accept": "application/json"}
        assert (await http.post(remote.url, json=ASK, headers=headers)).status_code == 200
        busy = await http.post(remote.url, json=ASK, headers=headers)
        assert (busy.status_code, busy.headers["Retry-After"]) == (429, "60")
        assert (await http.delete(remote.url, headers=headers)).status_code == 405
        assert (await http.post(f"{remote.base}/nowhere", json=ASK, headers=headers)).status_code == 404
        for method, more in [("PUT", {}), ("POST", {"X-Other": "x"})]:
            with pytest.raises(BlockedError):
                await http.request(method, remote.url, json=ASK, headers=headers | more)


def test_a_page_that_failed_too_often_reads_it_and_may_still_ask_beforehand(
    listen: Callable[..., Remote], world: World
) -> None:
    """A preflight has no credentials. Refused for the failures of others, it would lock a valid key out."""
    limits = {"http_trusted_proxies": "127.0.0.1", "limits_failures_per_minute": "2"}
    remote = listen(world.data, http_allowed_origins=ALLOWED, **limits)
    headers = {"Origin": APP, "X-Forwarded-For": "192.0.2.7"}
    refused = [remote.post("rdk_00000000_x", **headers) for _ in range(3)]
    assert [reply.status_code for reply in refused] == [401, 401, 429]
    assert [reply.headers["Access-Control-Allow-Origin"] for reply in refused] == [APP] * 3
    for _ in range(3):
        assert httpx2.options(remote.url, headers=headers | PREFLIGHT).status_code == 200
    assert remote.post(world.ann, **headers).status_code == 200


def test_a_page_gets_no_more_than_it_needs(remote: Remote, world: World) -> None:
    preflight = partial(httpx2.options, remote.url)
    replies = [
        preflight(headers={"Origin": APP} | PREFLIGHT),
        preflight(headers={"Origin": APP} | PREFLIGHT | {"Access-Control-Request-Private-Network": "true"}),
        remote.post(world.ann, Origin=APP),
        remote.post(None, Origin=APP),
    ]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 401]
    for reply in replies:
        assert reply.headers.get_list("Access-Control-Allow-Origin") == [APP]
        assert "Origin" in reply.headers["Vary"]
        assert reply.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Credentials" not in reply.headers  # so that no cookie opens anything
    for host in ("evil.example", f"evil.example:{remote.port}"):
        assert preflight(headers={"Origin": APP, "Host": host} | PREFLIGHT).status_code == 421
        assert remote.post(world.ann, Origin=APP, Host=host).status_code == 421


def test_all_others_notice_nothing(
    lasting_listen: Callable[..., Remote], remote: Remote, world: World
) -> None:
    """A server that lists nothing answers them the same, to the byte."""
    plain = lasting_listen(world.data, http_sse="true")
    origins = [None, "", "null", "*", "http://evil.example", APP.upper(), f"{APP}/", f"{APP}:443"]
    origins += [
        f"{APP}, {APP}",
        APP.replace("https", "http"),
        f"{APP}.evil.example",
        "http://localhost:{port}",
    ]
    requests = [("GET", "/nowhere"), ("GET", "/messages/"), ("GET", "/healthz")]
    requests += [(method, path) for method in ("OPTIONS", "POST") for path in ("/mcp", "/sse", METADATA)]
    with httpx2.Client() as client:
        for origin in origins:
            for method, path in requests:
                for key in ({}, {"X-API-Key": world.ann}):
                    ask = partial(answer_to, client, method, path, origin, key | PREFLIGHT)
                    assert ask(remote) == ask(plain), (origin, method, path)
                    assert "access-control" not in str(ask(remote))
        assert answer_to(client, "OPTIONS", "/mcp", APP, PREFLIGHT, remote)[0] == 200
        assert answer_to(client, "OPTIONS", "/mcp", APP, PREFLIGHT, plain)[0] == 403


def answer_to(
    client: httpx2.Client, method: str, path: str, origin: str | None, headers: dict[str, str], remote: Remote
) -> tuple[int, dict[str, str], str]:
    """What is answered, without what differs each time."""
    browser_headers = {} if origin is None else {"Origin": origin.format(port=remote.port)}
    browser_headers |= {"Accept": "application/json", "Content-Type": "application/json"}
    content = json.dumps(ASK) if method == "POST" else None
    answer = client.request(method, remote.base + path, headers=headers | browser_headers, content=content)
    compared = {name: value for name, value in answer.headers.items() if name not in {"date", "x-request-id"}}
    return answer.status_code, compared, answer.text.replace(remote.base, "")


@pytest.mark.anyio
async def test_a_page_learns_who_issues_tokens(listen: Callable[..., Remote], world: World) -> None:
    issuer, desk = "https://issuer.example.com", "https://desk.example.com"
    config = world.data.parent / "oauth.toml"
    config.write_text(f'[oauth]\nissuer = "{issuer}"\njwks_url = "{issuer}/jwks"\ntenants.A = "acorn"\n')
    settings = {"http_authentication": "oauth", "http_allowed_origins": ALLOWED, "http_public_url": desk}
    remote = listen(world.data, more={"REFDESK_CONFIG": str(config)}, **settings)
    headers = {"Host": "desk.example.com", "MCP-Protocol-Version": "2026-07-28"}
    async with page(**headers) as http:
        refused = await http.post(remote.url, json=ASK)
        assert f'resource_metadata="{desk}{METADATA}"' in refused.headers["WWW-Authenticate"]
        metadata = await http.get(remote.base + METADATA)
        assert metadata.json()["authorization_servers"] == [issuer]
    raw = httpx2.get(remote.base + METADATA, headers=headers | {"Origin": APP})
    assert raw.headers.get_list("Access-Control-Allow-Origin") == [APP]
    assert raw.headers.get_list("Vary") == ["Origin"]
    async with page("https://evil.example", **headers) as http:
        with pytest.raises(BlockedError):
            await http.get(remote.base + METADATA)


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "app.example.com",
        f"{APP}/",
        f"{APP}/x",
        f"{APP}:443",
        "http://a:80",
        "https://*.a",
        "https://A",
    ],
)
def test_an_origin_that_no_browser_sends_or_every_page_has_is_refused_at_the_start(
    scripts: Scripts, world: World, origin: str
) -> None:
    run = scripts.serve("--http", "--data", world.data, env={"REFDESK_HTTP_ALLOWED_ORIGINS": origin})
    assert (run.returncode, run.stdout) == (2, "")
    assert "REFDESK_HTTP_ALLOWED_ORIGINS: write an origin as browsers send it" in run.stderr

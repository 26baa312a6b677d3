"""refdesk --http: remote clients in both eras and over HTTP+SSE, each request by its own credentials."""

from __future__ import annotations

import json
import signal
import socket
import time
from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from rag.config.server_settings import OWN_PATHS, SSE_PATH
from rag.uris import PASSAGE_PAGES
from server.http.application import MESSAGES_PATH
from server.http.middleware import PROBES
from tests.server.conftest import ENVELOPE, HANDSHAKE, call, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Remote, World

pytestmark = pytest.mark.slow

ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    """A server that many tests share."""
    return lasting_listen(world.data, http_sse="true")


def test_each_request_is_answered_for_whoever_its_key_belongs_to(remote: Remote, world: World) -> None:
    for _ in range(3):
        assert remote.titles(world.ann) == {"open", "secret"}
        assert remote.titles(world.bob) == {"open"}
        assert remote.titles(world.eve) == {"theirs"}


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_are_served(remote: Remote, world: World, mode: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {world.ann}"}) as http,
        Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
    ):
        assert client.protocol_version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
        result = await client.call_tool("search", {"query": "pendulum"})
        assert result.structured_content
        uri = f"refdesk://documents/{result.structured_content['results'][0]['id']}"
        assert "pendulum" in (await client.read_resource(uri)).model_dump_json()


@pytest.mark.anyio
async def test_clients_of_http_and_sse_are_served_with_the_same_rights(remote: Remote, world: World) -> None:
    address = remote.url.replace("/mcp", "/sse")
    for key, titles in [(world.ann, {"open", "secret"}), (world.bob, {"open"})]:
        async with Client(sse_client(address, headers={"X-API-Key": key})) as client:
            result = await client.call_tool("search", {"query": "pendulum"})
            assert result.structured_content
            assert {hit["cite_as"] for hit in result.structured_content["results"]} == titles


def test_without_a_valid_key_there_is_nothing(remote: Remote, world: World) -> None:
    id_, _, secret = world.ann.removeprefix("rdk_").partition("_")
    of_ann, of_nobody = f"rdk_{id_}_", "rdk_00000000_"
    wrong = [
        "x",
        "rdk_",
        "rdk__",
        of_ann,
        f"{of_ann}{secret}x",
        of_ann + secret[:-1],
        of_ann.upper() + secret,
    ]
    for key in [None, *wrong, of_nobody + secret, world.bob.replace(world.bob[4:12], id_)]:
        refused = remote.post(key)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        assert "tools" not in refused.text
    basic = {"Authorization": f"Basic {world.ann}"}
    assert remote.post(None, **basic).status_code == 401
    assert httpx2.post(f"{remote.url}?access_token={world.ann}", json={}, headers=ACCEPT).status_code == 401
    assert (
        remote.post(world.ann).status_code == remote.post(None, **{"X-API-Key": world.ann}).status_code == 200
    )
    for path in ("/sse", "/messages/?session_id=" + "0" * 32):
        assert httpx2.get(remote.url.replace("/mcp", path)).status_code == 401


def test_a_key_counts_beside_the_login_of_a_proxy_and_twice_but_not_beside_another(
    remote: Remote, world: World
) -> None:
    ann, bob = (f"Bearer {key}" for key in (world.ann, world.bob))
    served: list[list[tuple[str, str]]] = [
        [("X-API-Key", world.ann), ("Authorization", "Basic YTpi")],
        [("X-API-Key", world.ann), ("Authorization", world.bob)],  # without a scheme it is no key
        [("X-API-Key", world.ann), ("Authorization", "Bearer")],
        [("X-API-Key", world.ann), ("Authorization", ann)],
        [("X-API-Key", world.ann), ("X-API-Key", world.ann)],
        [("Authorization", ann), ("Authorization", ann.replace("Bearer", "bearer"))],
        [("Authorization", ann), ("X-API-Key", "")],
    ]
    body = call("search", query="pendulum")
    for headers in served:
        reply = httpx2.post(remote.url, json=body, headers=[*ACCEPT.items(), *headers])
        assert "secret" in reply.text, headers  # which only ann may see
    refused: list[list[tuple[str, str]]] = [
        [("X-API-Key", world.ann), ("Authorization", bob)],
        [("X-API-Key", world.ann), ("Authorization", f"Bearer\t{world.bob}")],
        [("X-API-Key", world.ann), ("X-API-Key", world.bob)],
        [("Authorization", ann), ("Authorization", bob)],
        [("Authorization", ann), ("Authorization", ann), ("X-API-Key", "x")],
    ]
    for headers in refused:
        reply = httpx2.post(remote.url, json=body, headers=[*ACCEPT.items(), *headers])
        assert reply.status_code == 401, headers
        assert "several keys or tokens" in reply.json()["error_description"]
    alone = httpx2.post(remote.url, json=body, headers=ACCEPT | {"X-API-Key": "rdk_00000000_x"})
    assert "the key or token of the request is not valid" in alone.json()["error_description"]


def test_a_key_that_is_revoked_rotated_or_new_counts_at_once(
    remote: Remote, world: World, admin: Admin
) -> None:
    created = admin("key", "create", "--tenant", "acorn", "--user", "cat", "--data", world.data)
    assert remote.titles(created["key"]) == {"open"}
    turned = admin("key", "rotate", created["id"], "--data", world.data)
    assert remote.titles(created["key"]) == remote.titles(turned["key"]) == {"open"}
    for key in (created, turned):
        assert remote.post(key["key"]).status_code == 200
        admin("key", "revoke", key["id"], "--data", world.data)
        assert remote.post(key["key"]).status_code == 401
    assert remote.post(world.ann).status_code == 200


def test_a_file_of_keys_that_others_can_read_opens_nothing(remote: Remote, world: World) -> None:
    file = world.data / "keys.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    try:
        assert remote.post(world.ann).status_code == 401
        assert "chmod 600" in remote.noise.read_text()
    finally:
        file.chmod(0o600)
    assert remote.post(world.ann).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:{port}", None, 200),
        ("localhost:{port}", "http://localhost:{port}", 200),
        ("127.0.0.1", None, 421),
        ("127.0.0.1:1", None, 421),
        ("127.0.0.1:{port}.evil.example", None, 421),
        ("evil.example", None, 421),
        ("evil.example:{port}", None, 421),
        ("localhost:{port}", "http://evil.example", 403),
        ("localhost:{port}", "null", 403),
        ("localhost:{port}", "http://localhost", 403),
        ("localhost:{port}", "https://localhost:{port}", 403),
        ("localhost:{port}", "http://localhost:{port}.evil.example", 403),
    ],
)
def test_only_its_own_hosts_and_origins_are_served(
    remote: Remote, world: World, host: str, origin: str | None, status: int
) -> None:
    headers = {"Host": host.format(port=remote.port)}
    headers |= {"Origin": origin.format(port=remote.port)} if origin else {}
    answer = remote.post(world.ann, **headers)
    named = {421: "http.allowed_hosts", 403: "http.allowed_origins"}.get(status, "")
    assert (answer.status_code, named in answer.text) == (status, True)
    sse = httpx2.stream("GET", remote.url.replace("/mcp", "/sse"), headers=headers | {"X-API-Key": world.ann})
    with sse as stream:
        assert stream.status_code == status
    assert httpx2.get(remote.url.replace("/mcp", "/healthz"), headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS", "HEAD"])
def test_mcp_is_served_by_post_alone_and_without_sessions(remote: Remote, world: World, method: str) -> None:
    answer = httpx2.request(method, remote.url, headers={"X-API-Key": world.ann} | ACCEPT)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "Mcp-Session-Id" not in remote.post(world.ann).headers


@pytest.mark.parametrize("path", ["/mcp/", "//mcp", "/sse/", "/messages", "/healthz/"])
def test_no_other_way_of_writing_an_address_leads_anywhere(remote: Remote, world: World, path: str) -> None:
    """A redirect would lead to http:// behind a proxy with TLS, and take the key along."""
    for method in ("GET", "POST"):
        headers = {"X-API-Key": world.ann} | ACCEPT
        answer = httpx2.request(method, f"{remote.base}{path}", headers=headers, follow_redirects=False)
        assert answer.status_code == 404, path
        assert remote.url in answer.text
        assert "Location" not in answer.headers
    assert remote.post(world.ann).status_code == 200


def test_half_a_character_in_a_query_is_only_an_unknown_one(remote: Remote, world: World) -> None:
    reply = remote.post(world.ann, body=call("search", query="pendulum \ud83d", limit=1))
    assert reply.status_code == 200
    assert "result" in reply.json()


def test_no_answer_may_be_kept_on_its_way(listen: Callable[..., Remote], world: World) -> None:
    oauth = {"issuer": "https://issuer.example.com", "jwks_url": "https://issuer.example.com/jwks"}
    more = {f"REFDESK_OAUTH_{name.upper()}": value for name, value in oauth.items()}
    config = world.data.parent / "oauth.toml"
    config.write_text('[oauth.tenants]\n"Acorn" = "acorn"\n')
    remote = listen(
        world.data,
        more=more | {"REFDESK_CONFIG": str(config)},
        http_sse="true",
        http_authentication="keys,oauth",
        http_public_url="https://desk.example.com",
    )
    metrics = f"http://127.0.0.1:{remote.metrics_port}"
    metadata = "/.well-known/oauth-protected-resource/mcp"
    answers = [
        (200, httpx2.get(f"{remote.base}/healthz")),
        (200, httpx2.get(f"{remote.base}/readyz")),
        (200, httpx2.get(f"{remote.base}{metadata}")),
        (404, httpx2.get(f"{remote.base}/nowhere")),
        (405, httpx2.get(remote.url, headers={"X-API-Key": world.ann})),
        (200, remote.post(world.ann)),
        (400, remote.post(world.ann, b"{")),
        (413, remote.post(world.ann, b" " * (1 << 21))),
        (401, remote.post("nobody")),
        (421, remote.post(world.ann, Host="evil.example")),
        (403, remote.post(world.ann, Origin="http://evil.example")),
        *((200, httpx2.get(f"{metrics}{path}")) for path in ("/metrics", "/healthz", "/readyz")),
        (404, httpx2.get(f"{metrics}/nowhere")),
    ]
    with httpx2.stream("GET", f"{remote.base}/sse", headers={"X-API-Key": world.ann}) as stream:
        answers.append((200, stream))
    for status, answer in answers:
        assert answer.status_code == status, answer.url
        assert answer.headers.get_list("Cache-Control") == ["no-store"], answer.url
    with socket.create_connection(("127.0.0.1", remote.port), timeout=10) as connection:
        connection.sendall(b"no HTTP\r\n\r\n")
        assert b"\r\nCache-Control: no-store\r\n" in connection.recv(4096)


def test_health_and_metrics_are_answered_on_a_port_of_their_own_to_who_names_it(remote: Remote) -> None:
    address = f"http://127.0.0.1:{remote.metrics_port}"
    expected = {"/healthz": "ok", "/readyz": "ready", "/metrics": "refdesk_ready 1.0"}
    for path, text in expected.items():
        assert text in httpx2.get(address + path).text
        assert text in httpx2.get(address + path, headers={"Host": f"localhost:{remote.metrics_port}"}).text
        for host in ("evil.example", f"evil.example:{remote.metrics_port}", "127.0.0.1", ""):
            refused = httpx2.get(address + path, headers={"Host": host})
            assert refused.status_code == 421
            assert text not in refused.text
    before = remote.noise.read_text()
    with socket.create_connection(("127.0.0.1", remote.metrics_port), timeout=10) as connection:
        connection.sendall(b"\x00\r\n\r\n")
    assert httpx2.get(f"{address}/healthz").text == "ok"
    assert remote.noise.read_text() == before


def test_a_body_over_the_limit_is_refused_whatever_its_length_says(remote: Remote, world: World) -> None:
    large = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "' + b"x" * (1 << 20) + b'"}}'
    assert remote.post(world.ann, large).status_code == 413
    chunks = (large[at : at + 65_536] for at in range(0, len(large), 65_536))
    headers = {"Content-Type": "application/json", "X-API-Key": world.ann} | ACCEPT
    assert httpx2.post(remote.url, content=chunks, headers=headers).status_code == 413
    assert remote.post(world.ann).status_code == 200


def test_clients_that_dribble_are_let_go(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, limits_receive_seconds="0.5")
    start = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{remote.port}\r\n"
    headers = f"X-API-Key: {world.ann}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
    for sent, answer in [("", b""), (start, b""), (start + headers, b"HTTP/1.1 408 ")]:
        with socket.create_connection(("127.0.0.1", remote.port), timeout=10) as connection:
            connection.sendall(sent.encode())
            assert connection.recv(4096)[: len(answer) or 1] == answer
    assert remote.post(world.ann).status_code == 200


def test_what_is_too_much_is_told_to_come_again(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, limits_requests_per_minute="8")
    statuses = [remote.post(key).status_code for key in (world.ann, world.ann, world.ann, world.bob)]
    assert statuses == [200, 200, 429, 200]
    refused = remote.post(world.ann)  # who has asked for a quarter of what the tenant may
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 30
    assert remote.post(world.eve).status_code == 200


def test_a_call_of_the_modern_era_counts_as_one(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, limits_requests_per_minute="12")
    params = {"name": "search", "arguments": {"query": "pendulum"}, "_meta": ENVELOPE}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "search"}
    for _ in range(3):
        assert remote.post(world.ann, message("tools/call", **params), **headers).status_code == 200
    assert remote.post(world.ann, message("tools/call", **params), **headers).status_code == 429
    assert [line["call"] for line in remote.log() if "call" in line] == ["search"] * 3


@pytest.mark.anyio
async def test_one_tenant_s_flood_is_not_the_others(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, limits_concurrent_per_tenant="1")
    mine: list[int] = []
    statuses_of_eve: list[int] = []
    body = call("search", query="pendulum " * 200)

    async def ask(client: httpx2.AsyncClient, key: str, statuses: list[int]) -> None:
        answer = await client.post(remote.url, json=body, headers={"X-API-Key": key} | ACCEPT)
        statuses.append(429 if "busy" in answer.text and "error" in answer.json() else answer.status_code)

    async with httpx2.AsyncClient(timeout=30) as client:
        for _ in range(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(ask, client, world.ann, mine)
                tasks.start_soon(ask, client, world.eve, statuses_of_eve)
    assert set(mine) == {200, 429}
    assert set(statuses_of_eve) == {200}


def test_a_server_is_alive_at_once_and_ready_when_it_can_answer(remote: Remote) -> None:
    base = remote.url.removesuffix("/mcp")
    assert httpx2.get(f"{base}/healthz").text == "ok"
    assert httpx2.get(f"{base}/readyz").text == "ready"
    assert httpx2.get(f"{base}/").status_code == 404


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signalled_server_ends_its_streams_and_exits_with_0(
    listen: Callable[..., Remote], world: World, number: signal.Signals
) -> None:
    remote = listen(world.data, http_sse="true")
    headers = {"X-API-Key": world.ann}
    with httpx2.stream("GET", remote.url.replace("/mcp", "/sse"), headers=headers) as stream:
        assert stream.status_code == 200
        assert remote.leave(number) == 0
    with pytest.raises(httpx2.TransportError):
        remote.post(world.ann)
    assert remote.log() == []


def test_a_request_that_has_begun_is_answered_before_the_server_exits(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data)
    body = json.dumps(call("search", query="pendulum")).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{remote.port}\r\nX-API-Key: {world.ann}\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", remote.port), timeout=10) as connection:
        connection.sendall(head.encode() + body[:9])
        time.sleep(0.3)  # until it waits for the rest
        remote.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        connection.sendall(body[9:])
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"structuredContent" in answer
    assert remote.process.wait(timeout=15) == 0


@pytest.mark.anyio
async def test_calls_over_sse_are_answered_before_the_server_exits(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data, http_sse="true", limits_concurrent_per_tenant="64")
    calls, headers = 30, {"X-API-Key": world.ann}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as client,
        client.stream("GET", f"{remote.base}/sse") as stream,
    ):
        data = (line.removeprefix("data: ") async for line in stream.aiter_lines() if line[:5] == "data:")
        address = remote.base + await anext(data)
        await client.post(address, json=message("initialize", **HANDSHAKE) | {"id": 0})
        assert json.loads(await anext(data))["id"] == 0
        search = call("search", query="pendulum " * 200)
        for number in range(1, calls + 1):
            assert (await client.post(address, json=search | {"id": number})).status_code == 202
        remote.process.send_signal(signal.SIGTERM)
        answers = [json.loads(line) async for line in data]
    assert {answer["id"] for answer in answers} == set(range(1, calls + 1))
    assert all("structuredContent" in answer["result"] for answer in answers)
    assert remote.process.wait(timeout=15) == 0


def test_a_second_signal_ends_the_server_at_once(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data)
    with socket.create_connection(("127.0.0.1", remote.port)) as connection:
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{remote.port}\r\nX-API-Key: {world.ann}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode())
        time.sleep(0.3)  # until it waits for the rest
        remote.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert remote.process.poll() is None
        assert remote.leave() == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"HTTP_HOST": "0.0.0.0", "HTTP_AUTHENTICATION": "[]"}, "anybody could search"),  # noqa: S104 it is refused
        (
            {"HTTP_AUTHENTICATION": "[]", "HTTP_PUBLIC_URL": "https://desk.example.com"},
            "anybody could search",
        ),
        ({"HTTP_AUTHENTICATION": "[]", "HTTP_ALLOWED_HOSTS": "desk.example.com"}, "remove allowed_hosts"),
        ({"HTTP_AUTHENTICATION": "[]", "HTTP_TRUSTED_PROXIES": "127.0.0.1"}, "remove trusted_proxies"),
        ({"HTTP_TRUSTED_PROXIES": "proxy.example.com"}, "write an address (192.0.2.1)"),
        ({"HTTP_TRUSTED_PROXIES": "::/0"}, "::/0 is every address"),
        ({"HTTP_ALLOWED_HOSTS": "https://desk.example.com"}, "no scheme, path or wildcard"),
        ({"HTTP_PATH": "mcp"}, "REFDESK_HTTP_PATH: write a path"),
        ({"HTTP_PUBLIC_URL": "desk.example.com"}, "REFDESK_HTTP_PUBLIC_URL: write a URL"),
        ({"HTTP_PUBLIC_URL": "https://desk.example.com:port"}, "REFDESK_HTTP_PUBLIC_URL: https://desk"),
    ],
)
def test_what_would_let_anybody_in_is_refused_at_the_start(
    scripts: Scripts, tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    env = {f"REFDESK_{name}": value for name, value in settings.items()}
    run = scripts.serve("--http", "--data", tmp_path, env=env)
    assert (run.returncode, run.stdout) == (2, "")
    assert words in run.stderr
    assert run.stderr.count("\n") == 1


def test_on_loopback_the_owner_can_do_without_keys(listen: Callable[..., Remote], world: World) -> None:
    remote = listen(world.data, http_authentication="[]", principal_tenant="acorn", principal_user="bob")
    assert remote.post().status_code == 200
    assert remote.titles("") == {"open"}


def test_the_server_s_own_addresses_are_no_place_for_mcp() -> None:
    addresses = (*PROBES, SSE_PATH, MESSAGES_PATH, PASSAGE_PAGES)
    assert {address.split("/")[1] for address in addresses} == OWN_PATHS

"""refdesk --http: what it says at the start, and which address a request comes from."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from rag.config.server_settings import HttpSettings
from rag.config.settings import Settings
from server.http.application import announce, transport_security
from server.http.clients import AddressResolver, ClientAddress
from server.http.middleware import host_check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Remote, World

pytestmark = pytest.mark.slow


REFUSING = "WARNING Every request will be refused with status 421"


def log_of_start(caplog: pytest.LogCaptureFixture, **sections: Any) -> str:  # noqa: ANN401 any settings
    caplog.set_level(logging.INFO, "refdesk.start")
    announce(Settings.model_validate(sections))
    return "\n".join(f"{record.levelname} {record.getMessage()}" for record in caplog.records)


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({}, "INFO refdesk listens on http://127.0.0.1:8300/mcp, reachable from this machine only"),
        ({"host": "0.0.0.0"}, "on http://0.0.0.0:8300/mcp, reachable from every network of this machine"),  # noqa: S104 it is told
        ({"host": "192.0.2.1", "port": 80}, "on http://192.0.2.1:80/mcp, reachable from other machines"),
        ({}, "INFO Clients must send an API key"),
        (
            {"authentication": ("keys", "oauth")},
            "an API key (refdesk-admin key create) or a token issued by https://i.example",
        ),
        ({"authentication": ()}, "everybody who reaches the server searches as the user 'ann'"),
        ({}, "Allowed Host headers: 127.0.0.1:8300, localhost:8300, [::1]:8300."),
        ({"host": "0.0.0.0"}, REFUSING),  # noqa: S104 it is told
        ({"host": "192.0.2.1"}, REFUSING),
        ({"public_url": "https://desk.example.com"}, "WARNING http.public_url implies a proxy"),
        ({"trusted_proxies": ("10.0.0.7",)}, "trusted from these proxies: 10.0.0.7."),
    ],
)
def test_the_start_says_where_the_server_listens_and_who_may_ask(
    caplog: pytest.LogCaptureFixture, http: dict[str, Any], words: str
) -> None:
    assert words in log_of_start(
        caplog, http=http, principal={"user": "ann"}, oauth={"issuer": "https://i.example"}
    )


def test_the_start_warns_of_no_setting_that_is_right(
    caplog: pytest.LogCaptureFixture, admin: Admin, tmp_path: Path
) -> None:
    admin("key", "create", "--data", tmp_path)
    right = {"public_url": "https://desk.example.com", "trusted_proxies": ("127.0.0.1",)}
    assert "WARNING" not in log_of_start(caplog, http=right, data=tmp_path)
    assert "WARNING" not in log_of_start(caplog, http={"host": "0.0.0.0"} | right, data=tmp_path)  # noqa: S104 it is told


def test_the_start_says_which_tenants_are_served_and_how_many_keys_are_valid(
    caplog: pytest.LogCaptureFixture, admin: Admin, tmp_path: Path
) -> None:
    log = log_of_start(caplog, data=tmp_path)
    assert "WARNING No API key is valid, so every request will be refused with status 401." in log
    assert "It serves" not in log
    caplog.clear()
    assert "No API key" not in log_of_start(caplog, http={"authentication": ()}, data=tmp_path)
    for name in ("acme", "beta"):
        admin("tenant", "create", name, "--data", tmp_path)
        admin("key", "create", "--tenant", name, "--data", tmp_path)
    stored = tmp_path / "keys.json"
    keys = json.loads(stored.read_text())
    keys["keys"][0] |= {"created_at": "2020-01-01T00:00:00Z", "expires_at": "2020-01-02T00:00:00Z"}
    stored.write_text(json.dumps(keys))
    log = log_of_start(caplog, data=tmp_path)
    assert f"INFO It serves the documents of 2 tenants in {tmp_path}." in log
    assert "INFO Valid API keys: 1." in log


def test_the_start_is_logged_on_standard_error_at_every_level(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data, server_log_level="error", http_public_url="https://desk.example.com")
    lines = [json.loads(line) for line in remote.noise.read_text().splitlines()]
    assert {line["logger"] for line in lines} == {"refdesk.start"}
    assert lines[0]["message"].startswith(f"refdesk listens on {remote.url}, ")
    assert "warning" in {line["level"] for line in lines}


@pytest.mark.parametrize(
    ("public_url", "host", "status"),
    [
        ("https://Desk.example.com", "desk.example.com", 200),
        ("https://desk.example.com", "Desk.Example.com:443", 200),
        ("http://desk.example.com", "desk.example.com:80", 200),
        ("https://desk.example.com:8443", "desk.example.com:8443", 200),
        ("https://desk.example.com", "desk.example.com:80", 421),
        ("https://desk.example.com:8443", "desk.example.com:443", 421),
    ],
)
@pytest.mark.anyio
async def test_a_host_name_counts_in_any_case_and_with_the_port_of_its_scheme(
    public_url: str, host: str, status: int
) -> None:
    app = host_check(PlainTextResponse(), transport_security(HttpSettings(public_url=public_url)))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as client:
        assert (await client.get("http://x/mcp", headers={"Host": host})).status_code == status


PROXY = "10.0.0.7"


def client(
    peer: str, *forwarded: str, proxies: tuple[str, ...] = (PROXY,), host: str = "10.0.0.1"
) -> ClientAddress:
    headers = [(b"x-forwarded-for", address.encode()) for address in forwarded]
    return AddressResolver(proxies).of_request(
        {"client": (peer, 1), "server": (host, 8300), "headers": headers}
    )


def test_the_forwarded_address_of_a_trusted_proxy_is_believed() -> None:
    assert client(PROXY, "192.0.2.1") == ClientAddress("192.0.2.1", "192.0.2.1", shared=False)
    assert client(PROXY, "192.0.2.1", proxies=("10.0.0.0/24",)).address == "192.0.2.1"


def test_no_forwarded_address_is_believed_of_anybody_but_a_trusted_proxy() -> None:
    assert client("192.0.2.9", "192.0.2.1") == ClientAddress("192.0.2.9", "192.0.2.9", shared=False)
    assert client(PROXY, "192.0.2.1", proxies=()).address == PROXY


@pytest.mark.parametrize(
    "forwarded",
    [
        ("203.0.113.5, 192.0.2.1",),
        ("203.0.113.5", "192.0.2.1"),
        (f"203.0.113.5, 192.0.2.1, {PROXY}",),
        ("garbage, 192.0.2.1:4711 ",),
        ("10.0.0.7, ::ffff:192.0.2.1",),
    ],
)
def test_what_a_client_writes_before_its_own_address_is_not_believed(forwarded: tuple[str, ...]) -> None:
    assert client(PROXY, *forwarded).address == "192.0.2.1"


@pytest.mark.parametrize(
    "forwarded", [(), ("",), ("unknown",), ("192.0.2.1, unknown",), (PROXY,), ("_x, -",)]
)
def test_a_proxy_that_does_not_tell_is_an_address_that_many_share(forwarded: tuple[str, ...]) -> None:
    assert client(PROXY, *forwarded) == ClientAddress(PROXY, PROXY, shared=True)


def test_this_machine_s_own_address_is_shared_and_no_other_is() -> None:
    assert client("127.0.0.1", host="127.0.0.1", proxies=()).shared
    assert client("10.0.0.1", host="10.0.0.1", proxies=()).shared
    assert not client("10.0.0.2", host="10.0.0.1", proxies=()).shared


def test_addresses_of_ipv6_count_by_the_network_that_a_client_has() -> None:
    first, second = client("2001:db8:0:1::a", proxies=()), client("2001:db8:0:1:ffff::b", proxies=())
    assert first.address != second.address
    assert first.block == second.block != client("2001:db8:0:2::a", proxies=()).block
    assert client("fe80::1%eth0", proxies=()).address == "fe80::1"
    assert client(PROXY, "[2001:db8::1]:80").address == "2001:db8::1"
    assert client("::ffff:192.0.2.1", proxies=()).block == "192.0.2.1"


def test_a_connection_without_an_address_is_shared() -> None:
    assert AddressResolver(()).of_request({"client": None, "server": None, "headers": []}).shared

"""Which address a request comes from."""

from __future__ import annotations

import pytest

from server.http.callers import AddressResolver, ClientAddress

pytestmark = pytest.mark.slow

PROXY = "10.0.0.7"


def client(
    peer: str, *forwarded: str, proxies: tuple[str, ...] = (PROXY,), own: str = "10.0.0.1"
) -> ClientAddress:
    headers = [(b"x-forwarded-for", one.encode()) for one in forwarded]
    return AddressResolver(proxies).of_request(
        {"client": (peer, 1), "server": (own, 8300), "headers": headers}
    )


def test_of_a_proxy_that_is_trusted_the_client_is_believed() -> None:
    assert client(PROXY, "192.0.2.1") == ClientAddress("192.0.2.1", "192.0.2.1", shared=False)
    assert client(PROXY, "192.0.2.1", proxies=("10.0.0.0/24",)).address == "192.0.2.1"


def test_of_anybody_else_nothing_is_believed() -> None:
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
    assert client("127.0.0.1", own="127.0.0.1", proxies=()).shared
    assert client("10.0.0.1", own="10.0.0.1", proxies=()).shared
    assert not client("10.0.0.2", own="10.0.0.1", proxies=()).shared


def test_addresses_of_ipv6_count_by_the_network_that_a_client_has() -> None:
    one, other = client("2001:db8:0:1::a", proxies=()), client("2001:db8:0:1:ffff::b", proxies=())
    assert one.address != other.address
    assert one.block == other.block != client("2001:db8:0:2::a", proxies=()).block
    assert client("fe80::1%eth0", proxies=()).address == "fe80::1"
    assert client(PROXY, "[2001:db8::1]:80").address == "2001:db8::1"
    assert client("::ffff:192.0.2.1", proxies=()).block == "192.0.2.1"


def test_a_connection_without_an_address_is_shared() -> None:
    assert AddressResolver(()).of_request({"client": None, "server": None, "headers": []}).shared

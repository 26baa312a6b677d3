"""H: who has no key, however many connections or attempts they make, keeps nobody out and fills no log."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import httpx2
import psutil
import pytest

from tests.attacks.crowd import search
from tests.attacks.raw_http import USUAL, Connection, Request, bearer, message, posted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.attacks.crowd import Crowd, Person
    from tests.attacks.raw_http import Answer, Headers
    from tests.server.conftest import Message, Remote

OTHER = "127.0.0.2"  # an address of this machine that is not the server's own
FAILURES = 5
REFUSED = 200  # many more than the log may have lines of them
PROXIED = {"http_trusted_proxies": "127.0.0.1", "limits_failures_per_minute": str(FAILURES)}
WRONG = "rdk_00000000_x"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="others have one loopback address"),
    pytest.mark.slow,
]


def listing_answer(port: int, key: str, *, of: str = "127.0.0.1", more: Headers = ()) -> Answer:
    """What a search is told that comes from an address."""
    request = Request(USUAL + bearer(key) + more, posted("legacy", "", message("tools/list")).body)
    with Connection(port, of=of) as connection:
        return connection.ask(request)


def forwarded(*addresses: str) -> Headers:
    return (("X-Forwarded-For", ", ".join(addresses)),)


def refusals(remote: Remote, status: int) -> list[Message]:
    return [line for line in remote.log() if line.get("status") == status]


def connections(remote: Remote) -> int:
    ends = psutil.Process(remote.process.pid).net_connections()
    return len([end for end in ends if end.laddr.port == remote.port and end.status == "ESTABLISHED"])


@contextmanager
def half_open(port: int, number: int, *, of: str, sent: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        opened = []
        for _ in range(number):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, (of, 0)))
            connection.sendall(sent)
            opened.append(connection)
        yield opened


@pytest.mark.parametrize(
    "sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: x\r\nX: "], ids=["nothing", "half a head"]
)
def test_an_address_that_only_holds_connections_open_is_refused_more_and_keeps_no_other_out(
    listen: Callable[..., Remote], crowd: Crowd, sent: bytes
) -> None:
    remote, key = listen(crowd.data), crowd.people[0].key
    with half_open(remote.port, 100, of=OTHER, sent=sent):
        _until(lambda: connections(remote) == 100)
        with socket.create_connection(("127.0.0.1", remote.port), 10, (OTHER, 0)) as one_more:
            assert one_more.recv(100).startswith(b"HTTP/1.1 429 ")
        assert listing_answer(remote.port, key).status == 200
        assert listing_answer(remote.port, key, of="127.0.0.3").status == 200
        for port in (remote.port, remote.metrics_port):
            assert httpx2.get(f"http://127.0.0.1:{port}/readyz").text == "ready"
    (line,) = refusals(remote, 429)
    assert line["client"] == OTHER


def test_beyond_a_thousand_connections_all_are_refused_until_those_that_ask_nothing_have_ended(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote, key = listen(crowd.data, limits_receive_seconds="5"), crowd.people[0].key
    with half_open(remote.port, 1_100, of="127.0.0.1", sent=b""):
        with socket.create_connection(("127.0.0.1", remote.port), 10, (OTHER, 0)) as one_more:
            assert one_more.recv(100).startswith(b"HTTP/1.1 503 ")
        _until(lambda: connections(remote) <= 1_000)  # those that were refused take a moment to end
        _until(lambda: connections(remote) == 0)
        assert listing_answer(remote.port, key, of=OTHER).status == 200
    assert 0 < len(refusals(remote, 408)) < 15  # the log counts them together


def test_an_address_whose_connections_are_all_at_work_gets_no_more(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote = listen(crowd.data, limits_connections_per_address="3")
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{remote.port}\r\nX-API-Key: {crowd.people[0].key}\r\n"
    begun = f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode()
    with half_open(remote.port, 3, of=OTHER, sent=begun):
        _until(lambda: connections(remote) == 3)
        with socket.create_connection(("127.0.0.1", remote.port), 10, (OTHER, 0)) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 429 ")
        assert listing_answer(remote.port, crowd.people[0].key, of="127.0.0.3").status == 200
    (line,) = refusals(remote, 429)
    assert line["client"] == OTHER


def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends
        threading.Event().wait(0.02)


def test_an_address_that_fails_too_often_is_no_longer_looked_at_but_who_was_known_is(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote = listen(crowd.data, limits_failures_per_minute=str(FAILURES))
    ann, colleague = crowd.people[0].key, crowd.people[1].key
    assert listing_answer(remote.port, ann, of=OTHER).status == 200
    for _ in range(FAILURES):
        assert listing_answer(remote.port, WRONG, of=OTHER).status == 401
    refused = listing_answer(remote.port, WRONG, of=OTHER)
    assert refused.status == 429
    assert b"\r\nretry-after: " in refused.head.lower()
    assert listing_answer(remote.port, ann, of=OTHER).status == 200
    assert listing_answer(remote.port, colleague, of=OTHER).status == 200  # behind the same address
    guesses = [listing_answer(remote.port, f"{WRONG}{number}", of=OTHER).status for number in range(60)]
    assert guesses.count(401) <= 31  # one more may have come while these were asked
    assert guesses[-1] == 429
    assert listing_answer(remote.port, crowd.people[2].key, of=OTHER).status == 429
    assert listing_answer(remote.port, crowd.people[2].key, of="127.0.0.3").status == 200
    assert listing_answer(remote.port, crowd.people[2].key, of=OTHER).status == 200  # by now it is known
    for _ in range(2 * FAILURES):
        assert listing_answer(remote.port, WRONG).status == 401  # this machine's own address may be a proxy's


def test_behind_a_trusted_proxy_each_client_counts_for_itself(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote = listen(crowd.data, **PROXIED)
    key = crowd.people[0].key
    for number in range(FAILURES + 1):
        forged = forwarded(f"198.51.100.{number}", "192.0.2.1")
        answer = listing_answer(remote.port, WRONG, more=forged)
        assert answer.status == (401 if number < FAILURES else 429)
    assert listing_answer(remote.port, WRONG, more=forwarded("192.0.2.1")).status == 429
    assert listing_answer(remote.port, key, more=forwarded("192.0.2.2")).status == 200
    for _ in range(FAILURES + 1):
        assert listing_answer(remote.port, WRONG).status == 401  # the proxy doesn't tell who it was
    assert {line["client"] for line in refusals(remote, 401)} == {"192.0.2.1", "127.0.0.1"}


def test_who_is_no_trusted_proxy_is_not_believed(listen: Callable[..., Remote], crowd: Crowd) -> None:
    remote = listen(crowd.data, **PROXIED)
    for number in range(FAILURES + 1):
        header = forwarded(f"198.51.100.{number}")
        answer = listing_answer(remote.port, WRONG, of=OTHER, more=header)
        assert answer.status == (401 if number < FAILURES else 429)
    assert listing_answer(remote.port, crowd.people[0].key, more=forwarded("198.51.100.1")).status == 200
    assert {line["client"] for line in refusals(remote, 401)} == {OTHER}


@pytest.mark.parametrize("of", ["127.0.0.1", OTHER])
def test_a_flood_of_refusals_is_summed_up_in_the_audit_and_others_are_served(
    listen: Callable[..., Remote], crowd: Crowd, of: str
) -> None:
    remote = listen(crowd.data, limits_requests_per_minute="1000000")
    wrong = Request(USUAL + bearer(WRONG), posted("legacy", "", message("ping")).body)
    began, statuses = time.monotonic(), {401: 0, 429: 0}
    while sum(statuses.values()) < REFUSED:
        assert time.monotonic() < began + 60
        with Connection(remote.port, of=of) as connection:
            for _ in range(50):
                connection.send(wrong)
                answer = connection.answer()
                if answer is None or b"connection: close" in answer.head.lower():
                    break
                statuses[answer.status] += 1
            if answer is not None and answer.status == 429:
                statuses[429] += 1
        assert listing_answer(remote.port, crowd.people[0].key, of="127.0.0.3").status == 200
    assert bool(statuses[429]) is (of == OTHER)
    for status, number in statuses.items():
        _until(lambda status=status, number=number: _counted(remote, status) == number)  # type: ignore[misc]
        assert len(refusals(remote, status)) <= 3 + (time.monotonic() - began)
    assert remote.leave() == 0


def _counted(remote: Remote, status: int) -> int:
    return sum(line["count"] for line in refusals(remote, status))


def test_counted_refusals_are_logged_before_the_server_exits(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote = listen(crowd.data)
    for _ in range(10):
        assert listing_answer(remote.port, WRONG).status == 401
    assert remote.leave() == 0
    assert _counted(remote, 401) == 10


def test_garbage_is_refused_summed_up_and_says_nothing_else(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    remote = listen(crowd.data)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", remote.port), 10) as connection:
            connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
        host = (("Host", "evil.example"),)
        with Connection(remote.port) as connection:
            assert connection.ask(Request(host, method="GET")).status == 421
    assert remote.leave() == 0
    assert _counted(remote, 400) == _counted(remote, 421) == 20
    assert {line["message"] for line in remote.log()} == {"refused"}


def test_a_user_s_loop_costs_a_colleague_no_answer(listen: Callable[..., Remote], crowd: Crowd) -> None:
    looping, colleague = crowd.people[0], crowd.people[4]
    assert looping.tenant == colleague.tenant
    remote = listen(crowd.data)
    over = threading.Event()

    def loop() -> None:
        with Connection(remote.port) as connection:
            while not over.is_set():
                connection.ask(_search(looping))

    threads = [threading.Thread(target=loop) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        with Connection(remote.port) as connection:
            for _ in range(8):
                answer = connection.ask(_search(colleague))
                assert answer.status == 200
                assert colleague.canary.encode() in answer.body, answer.body
                over.wait(0.1)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _search(person: Person) -> Request:
    return posted("legacy", person.key, search(person))

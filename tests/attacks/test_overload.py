"""H: one client's flood, dawdling or vanishing costs the others little, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import random
import re
import select
import shutil
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import psutil
import pytest

from rag.config.server_settings import HttpSettings
from server.http.application import listen as open_listener
from tests.attacks.crowd import search
from tests.attacks.neighbours import embedding, neighbour
from tests.attacks.raw_http import (
    USUAL,
    Channel,
    Connection,
    Request,
    answer_to,
    bearer,
    message,
    posted,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.attacks.crowd import Crowd, Person
    from tests.attacks.neighbours import Handler, Neighbour
    from tests.attacks.raw_http import Answer
    from tests.conftest import Scripts
    from tests.server.conftest import Era, Remote, Wire, free_port
else:
    from tests.attacks.conftest import Wire, free_port

pytestmark = pytest.mark.slow

ERAS: tuple[Era, ...] = ("legacy", "modern")
BUSY = -32000
MIB = 1 << 20
RECEIVE_SECONDS = 1
CLOSED_SECONDS = 60  # by when a server has let go whoever dawdles; else it never does
LINES = 150
LINE_MIB = 64  # four times what a server may grow by
VISITS = 20  # of each of ten who ask and go
STUCK = "slowly"  # a query that the embedding endpoint never answers
PATIENT = {"limits_request_seconds": "600"}  # far more than a busy machine takes
UNLIMITED = PATIENT | {"limits_requests_per_minute": "1000000"}


def expect_served(port: int, person: Person, era: Era = "modern") -> None:
    """Ask an honest question, which must find what is theirs; it fails where no answer comes in time."""
    answer = answer_to(port, posted(era, person.key, search(person)))
    assert answer.status == 200, answer
    assert person.canary.encode() in answer.body, answer


def forked(scripts: Scripts, crowd: Crowd, person: Person, era: Era) -> Wire:
    """A server of somebody's own on standard input."""
    of_person = {"REFDESK_PRINCIPAL_TENANT": person.tenant, "REFDESK_PRINCIPAL_USER": person.name}
    of_person["REFDESK_LIMITS_REQUEST_SECONDS"] = PATIENT["limits_request_seconds"]
    command: list[str | Path] = [scripts.server, "--data", crowd.data]
    return Wire(command, scripts.environment | of_person, era=era, forks=scripts.server_forks)


def is_busy(answer: Answer) -> bool:
    """Whether it says that there is no room, and when to come again."""
    if answer.status == 429:
        return re.search(rb"\r\nretry-after: [1-9]", answer.head.lower()) is not None
    error = answer.json.get("error", {})
    return bool(error.get("code") == BUSY and error["data"]["retryAfterMs"] >= 1000)


@contextmanager
def flooding(port: int, person: Person, *, connections: int, rate: float) -> Iterator[Counter[str]]:
    """Somebody who asks all the time, at so many requests a second, and what they are told."""
    outcomes: Counter[str] = Counter()
    over = threading.Event()

    def flood(number: int) -> None:
        with Channel(port) as channel:
            while not over.is_set():
                began = time.perf_counter()
                answer = channel.ask(posted(ERAS[number % 2], person.key, search(person)))
                is_found = answer is not None and person.canary.encode() in answer.body
                outcomes["found" if is_found else "busy" if answer and is_busy(answer) else "else"] += 1
                over.wait(max(0, connections / rate - (time.perf_counter() - began)))

    with ThreadPoolExecutor(connections) as pool:
        futures = [pool.submit(flood, number) for number in range(connections)]
        try:
            yield outcomes
        finally:
            over.set()
    for future in futures:
        future.result()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes soon or never."""
    ends = time.monotonic() + CLOSED_SECONDS
    while not is_so():
        assert time.monotonic() < ends
        threading.Event().wait(0.05)


def test_h1_h2_who_asks_far_too_often_is_told_so_while_the_others_are_served(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    flooder, bystander = crowd.people[0], crowd.people[1]
    limits = {"limits_requests_per_minute": "96"}
    remote = listen(crowd.data, **limits, **PATIENT)
    with flooding(remote.port, flooder, connections=40, rate=100) as outcomes:
        until(lambda: outcomes["busy"] > 0)
        for _ in range(12):
            expect_served(remote.port, bystander)
        until(lambda: outcomes["busy"] > 100)
    assert 0 < outcomes["found"] < outcomes["busy"]
    assert not outcomes["else"]
    question = posted("modern", flooder.key, search(flooder))
    until(lambda: not is_busy(answer_to(remote.port, question)))
    until(lambda: flooder.canary.encode() in answer_to(remote.port, question).body)


@pytest.mark.anyio
async def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    """Of a head and a body that are sent one after the other, the second would wait 40 ms."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = writer.get_extra_info("socket")
        accepted.set_result(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with open_listener(HttpSettings(port=free_port())) as listener:
        async with await asyncio.start_server(note, sock=listener) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await accepted
            writer.close()
            await writer.wait_closed()


@pytest.fixture(scope="module")
def impatient(lasting_listen: Callable[..., Remote], crowd: Crowd) -> Remote:
    """A server that waits a second for what it reads."""
    return lasting_listen(
        crowd.data, http_sse="true", limits_receive_seconds=str(RECEIVE_SECONDS), **UNLIMITED
    )


HEAD = "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
LONG = "Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: 9999\r\n\r\n"
CHUNKED = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
DAWDLERS: dict[str, tuple[str, str, bytes]] = {
    "says nothing": ("", "", b""),
    "says half a line": ("POST /m", "", b""),
    "drips headers": (HEAD, "", b"X"),
    "drips lines of headers": (HEAD, "", b"X: y\r\n"),
    "drips a body": (HEAD, LONG, b" "),
    "drips a chunked body": (HEAD, CHUNKED, b"1\r\n \r\n"),
    "drips a body for a stream": (HEAD.replace("{path}", "/messages/?session_id=" + "0" * 32), LONG, b" "),
    "drips a body that nobody wants": (HEAD.replace("{method}", "GET"), LONG, b" "),
    "drips a body to nowhere": (HEAD.replace("{path}", "/nowhere"), LONG, b" "),
    "drips a body in the modern era": (HEAD + "MCP-Protocol-Version: 2026-07-28\r\n", LONG, b" "),
}


def test_h3_two_hundred_who_dawdle_are_let_go_in_their_time_and_the_others_served(
    impatient: Remote, crowd: Crowd
) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    with ExitStack() as stack:
        dawdlers: dict[socket.socket, str] = {}
        drips: dict[socket.socket, bytes] = {}
        for number in range(200):
            name = list(DAWDLERS)[number % len(DAWDLERS)]
            head, after_key, drip = DAWDLERS[name]
            key = f"X-API-Key: {person.key}\r\n" if after_key and number % 3 else ""
            opened = stack.enter_context(socket.create_connection(("127.0.0.1", impatient.port)))
            opened.sendall(
                (head.format(method="POST", path="/mcp", port=impatient.port) + key + after_key).encode()
            )
            opened.setblocking(False)  # noqa: FBT003 socket's signature
            dawdlers[opened], drips[opened] = name, drip
        ends = time.monotonic() + CLOSED_SECONDS
        while dawdlers:
            assert time.monotonic() < ends, Counter(dawdlers.values())
            expect_served(impatient.port, bystander)
            for dawdler in list(dawdlers):
                if _is_closed(dawdler, drips[dawdler]):
                    del dawdlers[dawdler]
            threading.Event().wait(0.05)
    expect_served(impatient.port, person)


def _is_closed(connection: socket.socket, drip: bytes) -> bool:
    """Whether the other end has let go; if not, it is given one drop more."""
    try:
        if not connection.recv(1 << 16):
            return True
    except BlockingIOError:
        pass
    except ConnectionError:
        return True
    with suppress(OSError):
        connection.send(drip)
    return False


def test_h3_who_asks_and_never_reads_is_let_go(impatient: Remote, crowd: Crowd) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    large = posted("legacy", person.key, message("ping", id_="x" * 500_000)).raw(impatient.port)
    with ExitStack() as stack:
        deaf = []
        for _ in range(20):
            opened = stack.enter_context(socket.socket())
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened.connect(("127.0.0.1", impatient.port))
            stack.enter_context(_sending(opened, large * 20))
            deaf.append(opened)
        ends = time.monotonic() + CLOSED_SECONDS
        while clients := _connected(impatient, deaf):
            expect_served(impatient.port, bystander)
            assert time.monotonic() < ends, f"{clients} are still connected"
            threading.Event().wait(0.2)


@contextmanager
def _sending(opened: socket.socket, data: bytes) -> Iterator[None]:
    """Send for as long as the other end takes it."""

    def send() -> None:
        with suppress(OSError):
            opened.sendall(data)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)
        thread.join()


def _connected(remote: Remote, opened: Sequence[socket.socket]) -> int:
    """To how many of these a server is connected."""
    ports = {connection.getsockname()[1] for connection in opened}
    ends = psutil.Process(remote.process.pid).net_connections()
    return len([end for end in ends if end.raddr and end.raddr.port in ports and end.status == "ESTABLISHED"])


ENDLESS: dict[str, tuple[str, str]] = {
    "legacy": ("/mcp", ""),
    "modern": ("/mcp", "MCP-Protocol-Version: 2026-07-28\r\n"),
    "a stream": ("/messages/?session_id=" + "0" * 32, ""),
    "nowhere": ("/nowhere", ""),
    "healthz": ("/healthz", ""),
    "without a key": ("/mcp", "Authorization: Bearer x\r\n"),
}


def test_h4_a_body_without_an_end_is_cut_off_and_costs_no_memory(impatient: Remote, crowd: Crowd) -> None:
    person, process = crowd.people[0], psutil.Process(impatient.process.pid)
    before, over = process.memory_info().rss, threading.Event()

    def send(path: str, more: str) -> None:
        key = "" if "Bearer" in more else f"X-API-Key: {person.key}\r\n"
        head = HEAD.format(method="POST", path=path, port=impatient.port) + more + key + CHUNKED
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=CLOSED_SECONDS) as opened:
            opened.sendall(head.encode())
            with suppress(ConnectionError):
                while not over.is_set():
                    opened.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    with ThreadPoolExecutor(len(ENDLESS)) as pool:
        senders = {name: pool.submit(send, *call) for name, call in ENDLESS.items()}
        ends, peak = time.monotonic() + CLOSED_SECONDS, before
        while not all(sender.done() for sender in senders.values()) and time.monotonic() < ends:
            peak = max(peak, process.memory_info().rss)
            expect_served(impatient.port, crowd.people[1])
            threading.Event().wait(0.02)
        busy = [name for name, sender in senders.items() if not sender.done()]
        over.set()
    assert not busy
    assert peak - before < 16 * MIB


@pytest.mark.parametrize("path", ["/mcp", "/messages/?session_id=" + "0" * 32])
@pytest.mark.parametrize("era", ERAS)
def test_h4_a_body_that_is_announced_too_large_is_refused_before_it_comes(
    impatient: Remote, crowd: Crowd, path: str, era: Era
) -> None:
    person = crowd.people[0]
    honest = posted(era, person.key, search(person), path=path)
    for length in (MIB + 1, 300 * MIB, 2**62):
        headers = (*honest.headers, ("Content-Length", str(length)))
        with Connection(impatient.port) as connection:
            assert connection.ask(Request(headers, b"{", path=path, framed=False)).status == 413
    body = honest.body + b" " * (MIB - len(honest.body))
    assert answer_to(impatient.port, Request(honest.headers, body, path=path)).status in {200, 404}
    expect_served(impatient.port, person)


LONG = "x" * 60_000
HEADS: dict[str, tuple[bytes, bytes]] = {  # what is sent, and how the answer begins
    "one long header": (f"X-Long: {LONG}\r\n\r\n".encode(), b"HTTP/1.1 200 "),
    "a longer one": (f"X-Long: {LONG * 10}\r\n\r\n".encode(), b"HTTP/1.1 400 "),
    "many headers": (b"X-Many: y\r\n" * 100_000 + b"\r\n", b"HTTP/1.1 400 "),
    "a header without an end": (f"X-Long: {LONG * 200}".encode(), b"HTTP/1.1 400 "),
    "a name without an end": (LONG.encode() * 200, b"HTTP/1.1 400 "),
}


@pytest.mark.parametrize("name", HEADS)
def test_h4_a_head_that_is_too_long_is_refused_and_costs_no_memory(impatient: Remote, name: str) -> None:
    head, expected = HEADS[name]
    process = psutil.Process(impatient.process.pid)
    before = process.memory_info().rss
    with Connection(impatient.port) as connection:
        with suppress(ConnectionError):  # refused before it was whole
            connection.socket.sendall(HEAD.format(method="GET", path="/readyz", port=impatient.port).encode())
            connection.socket.sendall(head)
        assert connection.socket.recv(13) == expected
    assert process.memory_info().rss - before < 4 * MIB


@pytest.mark.parametrize("era", ERAS)
def test_h4_a_line_without_an_end_costs_no_memory(scripts: Scripts, crowd: Crowd, era: Era) -> None:
    person = crowd.people[0]
    with forked(scripts, crowd, person, era) as wire:
        wire.begin()
        ask = partial(wire.tool, "search", {"query": person.canary, "mode": "sparse"})
        assert person.canary in ask()["structuredContent"]["results"][0]["text"]
        process, peak = psutil.Process(wire.process.pid), 0
        before = process.memory_info().rss
        assert wire.process.stdin
        wire.process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "')
        for _ in range(LINE_MIB):
            wire.process.stdin.write(b"x" * MIB)
            peak = max(peak, process.memory_info().rss)
        wire.write('"}}')
        answer = wire.read()
        assert answer["id"] is None
        assert "error" in answer
        assert peak - before < 16 * MIB
        assert person.canary in ask()["structuredContent"]["results"][0]["text"]
        assert wire.leave() == 0


def test_h5_a_thousand_calls_on_one_connection_are_answered_in_turn_beside_the_others(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    remote = listen(crowd.data, **UNLIMITED)
    expect_served(remote.port, bystander)
    process = psutil.Process(remote.process.pid)
    before = process.memory_info().rss
    raw = b"".join(
        posted("legacy", person.key, message("ping", id_=number)).raw(remote.port) for number in range(1000)
    )
    with Connection(remote.port) as connection, _sending(connection.socket, raw):
        for number in range(1000):
            answer = connection.answer()
            assert answer
            assert answer.json["id"] == number
            if number % 200 == 0:
                expect_served(remote.port, bystander)
    assert process.memory_info().rss - before < 32 * MIB


@pytest.mark.parametrize("era", ERAS)
def test_h5_hundreds_of_lines_at_once_are_all_answered_within_bounds(
    scripts: Scripts, crowd: Crowd, era: Era
) -> None:
    person = crowd.people[0]
    with forked(scripts, crowd, person, era) as wire:
        wire.begin()
        reply = wire.tool("search", {"query": person.canary, "mode": "sparse"})["structuredContent"]
        (hit,) = reply["results"]
        process = psutil.Process(wire.process.pid)
        before = process.memory_info().rss
        for number in range(LINES):
            uri = f"refdesk://{hit['collection']}/{hit['id']}"
            wire.send(number, "resources/read", {"uri": uri if number % 10 == 0 else f"{uri}9"})
        answers = [wire.read() for _ in range(LINES)]
        assert {answer["id"] for answer in answers} == set(range(LINES))
        for answer in answers:
            assert (person.canary in json.dumps(answer.get("result"))) is (answer["id"] % 10 == 0)
        assert process.memory_info().rss - before < 48 * MIB
        assert wire.leave() == 0


def test_h5_a_stream_that_nobody_reads_is_ended_in_its_time(impatient: Remote, crowd: Crowd) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    body = json.dumps(message("ping", id_="x" * 500_000)).encode()
    with stream(impatient.port, person.key) as (events, path), Channel(impatient.port) as channel:
        assert channel.ask(posted("legacy", person.key, message("ping", id_=1), path=path))
        assert json.loads(events.event())["id"] == 1
        ends = time.monotonic() + CLOSED_SECONDS
        while (answer := channel.ask(Request(USUAL + bearer(person.key), body, path=path))) is not None:
            if answer.status == 404:  # there is no such stream any more
                break
            assert time.monotonic() < ends
        expect_served(impatient.port, bystander)


def test_h5_whoever_opens_nine_hundred_streams_leaves_room_for_others(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    remote = listen(crowd.data, http_sse="true", **PATIENT)
    with ExitStack() as stack:
        for _ in range(900):
            connection = stack.enter_context(Connection(remote.port))
            connection.send(Request(bearer(person.key), method="GET", path="/sse"))
            assert connection.socket.recv(9) == b"HTTP/1.1 "
        expect_served(remote.port, bystander)
        with stream(remote.port, bystander.key):
            pass
    expect_served(remote.port, person)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a process holds."""

    descriptors: int
    threads: int
    slots: float


def held(remote: Remote) -> Resources:
    """What it holds once nobody is connected any more."""
    process, ends = psutil.Process(remote.process.pid), time.monotonic() + CLOSED_SECONDS
    while [
        connection
        for connection in process.net_connections()
        if connection.laddr.port == remote.port and connection.raddr
    ]:
        assert time.monotonic() < ends
    metrics = httpx2.get(f"http://127.0.0.1:{remote.metrics_port}/metrics").text
    (active,) = re.findall(r"^refdesk_active (\S+)$", metrics, re.MULTILINE)
    return Resources(process.num_fds(), process.num_threads(), float(active))


@pytest.mark.parametrize("era", ERAS)
def test_h6_hundreds_who_ask_and_go_leave_nothing_behind(
    listen: Callable[..., Remote], crowd: Crowd, era: Era
) -> None:
    remote = listen(crowd.data, limits_concurrent_per_tenant="8", **UNLIMITED)

    def go(number: int) -> None:
        drawn, person = random.Random(number), crowd.people[number * 4]  # noqa: S311 repeatable, not secret
        for _ in range(VISITS):
            with Connection(remote.port) as connection:
                raw = posted(era, person.key, search(person, mode="hybrid")).raw(remote.port)
                connection.socket.sendall(
                    raw[: drawn.choice([len(raw), len(raw), drawn.randrange(len(raw))])]
                )
                select.select([connection.socket], [], [], drawn.uniform(0, 0.03))

    def has_left_nothing() -> bool:
        question = posted(era, crowd.people[0].key, search(crowd.people[0]))
        # Asked in vain or not: idle threads end when others begin.
        if is_busy(answer_to(remote.port, question)):
            return False
        now = held(remote)
        more = now.descriptors - before.descriptors, now.threads - before.threads
        return now.slots == 0 and more[0] <= 8 and more[1] <= 16

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(go, range(10)))  # what it needs once is no leak
        before = held(remote)
        list(pool.map(go, range(10)))
    until(has_left_nothing)
    assert remote.leave() == 0


def stuck(handler: Handler) -> None:
    """Embeds everything but one query."""
    if STUCK in json.loads(handler.server.asked[-1].body)["input"]:
        handler.server.over.wait()
    embedding(handler)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Neighbour]:
    with neighbour(stuck) as listening:
        yield listening


@pytest.fixture(scope="module")
def single(
    endpoint: Neighbour,
    lasting_listen: Callable[..., Remote],
    crowd: Crowd,
    scripts: Scripts,
    tmp_path_factory: pytest.TempPathFactory,
) -> Remote:
    """A server with one slot, and an embedding endpoint that may never answer."""
    tmp_path = tmp_path_factory.mktemp("single")
    settings = {"PROVIDER": "openai", "MODEL": "eight", "BASE_URL": f"{endpoint.url}/v1"}
    settings["API_KEY_ENV"] = "MODEL_KEY"  # by its name, commands can be forked all the same
    env = {f"REFDESK_EMBEDDER_{name}": value for name, value in settings.items()} | {"MODEL_KEY": "sk-x"}
    (tmp_path / "note.md").write_text("# A note\n\nThe pendulum.\n")
    tenant: list[str | Path] = ["--tenant", crowd.people[0].tenant, "--data", tmp_path / "data"]
    for arguments in (["tenant", "create", *tenant[1:]], ["ingest", tmp_path / "note.md", *tenant]):
        run = scripts.admin(*arguments, env=env)
        assert run.returncode == 0, run.stderr
    shutil.copy2(crowd.data / "keys.json", tmp_path / "data")
    return lasting_listen(
        tmp_path / "data", more=env, http_sse="true", limits_concurrent_per_tenant="1", **PATIENT
    )


def _is_free(remote: Remote, person: Person) -> bool:
    """Whether the slot is free."""
    answer = answer_to(remote.port, posted("modern", person.key, search(person, "pendulum")))
    assert b"pendulum" in answer.body or is_busy(answer)
    return b"pendulum" in answer.body


def _taken_back(remote: Remote) -> int:
    """How many calls ended because nobody waits for their answers, says the audit; others end as late."""
    return sum(line.get("outcome") == "cancelled" for line in remote.log())


@pytest.mark.parametrize("era", ERAS)
def test_h6_a_call_whose_client_is_gone_has_no_slot_any_more(
    single: Remote, endpoint: Neighbour, crowd: Crowd, era: Era
) -> None:
    person = crowd.people[0]
    until(lambda: _is_free(single, person))
    for _ in range(3):
        before, taken_back = len(endpoint.asked), _taken_back(single)
        with Connection(single.port) as connection:
            connection.send(posted(era, person.key, search(person, STUCK, "dense")))
            until(lambda before=before: len(endpoint.asked) > before)  # type: ignore[misc]
            assert not _is_free(single, person)
        until(lambda taken_back=taken_back: _taken_back(single) == taken_back + 1)  # type: ignore[misc]
        until(lambda: _is_free(single, person))


@pytest.mark.parametrize("way", ["cancels", "goes"])
def test_h6_a_call_over_a_stream_that_is_taken_back_has_no_slot_any_more(
    single: Remote, endpoint: Neighbour, crowd: Crowd, way: str
) -> None:
    person = crowd.people[0]
    until(lambda: _is_free(single, person))
    for _ in range(3):
        before, taken_back = len(endpoint.asked), _taken_back(single)
        with stream(single.port, person.key) as (events, path):
            call = posted("legacy", person.key, search(person, STUCK, "dense") | {"id": 7}, path=path)
            assert answer_to(single.port, call).status == 202
            until(lambda before=before: len(endpoint.asked) > before)  # type: ignore[misc]
            assert not _is_free(single, person)
            if way == "cancels":
                params = {"requestId": 7}
                cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                assert (
                    answer_to(single.port, posted("legacy", person.key, cancellation, path=path)).status
                    == 202
                )
                until(lambda taken_back=taken_back: _taken_back(single) == taken_back + 1)  # type: ignore[misc]
                until(lambda: _is_free(single, person))
            else:
                events.socket.shutdown(socket.SHUT_RDWR)
        until(lambda taken_back=taken_back: _taken_back(single) == taken_back + 1)  # type: ignore[misc]
        until(lambda: _is_free(single, person))


@pytest.mark.parametrize("era", ["modern"])
def test_h10_standard_output_is_the_protocols_whatever_libraries_are_told_to_say(
    scripts: Scripts, crowd: Crowd, era: Era
) -> None:
    person = crowd.people[0]
    env = {
        "REFDESK_PRINCIPAL_TENANT": person.tenant,
        "REFDESK_PRINCIPAL_USER": person.name,
        "REFDESK_SERVER_LOG_LEVEL": "debug",
        "PYTHONWARNINGS": "always",
        "PYTHONDEVMODE": "1",
        "PYTHONVERBOSE": "1",
        "RUST_LOG": "trace",
        "LANCE_LOG": "trace",
        "RUST_BACKTRACE": "full",
    }
    with Wire([scripts.server, "--data", crowd.data], scripts.environment | env, era=era) as wire:
        wire.begin()
        for mode in ("sparse", "dense", "hybrid"):
            result = wire.tool("search", {"query": person.canary, "mode": mode})
            assert person.canary in result["structuredContent"]["results"][0]["text"]
        wire.tool_error("search", {"query": ""})
        wire.write("{")
        assert wire.read()["error"]
        assert wire.leave() == 0
        assert wire.gone()
        assert wire.stderr()

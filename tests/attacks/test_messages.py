"""D12, D13: whatever is sent in place of a message, the server says what is wrong with it and goes on.

Hundreds of mutated messages over each transport: 250, and 20,000 with --hypothesis-profile=nightly. With
MESSAGES=100000 in the environment there are as many, with MESSAGE=1234 that one is sent alone.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

from tests.attacks.crowd import search
from tests.attacks.mutants import SECRET, id_in, is_request, may_succeed, mutant, understood
from tests.attacks.raw_http import ENVELOPE, Channel, Connection, posted, stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.attacks.crowd import Crowd, Person
    from tests.attacks.mutants import Mutant, Transport
    from tests.attacks.raw_http import Answer
    from tests.conftest import Scripts
    from tests.server.conftest import Era, Remote, Wire
else:
    from tests.attacks.conftest import Wire

pytestmark = pytest.mark.slow

USUAL = 250 if settings.default.max_examples < 100 else 20_000  # type: ignore[union-attr]  # there always is one
NUMBERS: Sequence[int] = range(int(os.environ.get("MESSAGES", USUAL)))
if "MESSAGE" in os.environ:
    NUMBERS = [int(os.environ["MESSAGE"])]
SERVERS_AT_ONCE = 2
WORKERS = 4  # for each server that listens
BETWEEN_HONEST = 250  # after so many messages an honest request has to be answered
POSTS_AT_ONCE = 20
LINES_AT_ONCE = 250
WARM_SHARE = 10  # a server may grow with the first tenth of the messages,
MAX_GROWTH = 48 << 20  # and no more with the others
PATIENCE_SECONDS = 0.1  # for the answer to a request that may want more bytes
INTERNAL_ERROR = -32603
MAX_NOISE = 2_000  # characters of a line on standard error
ENOUGH_FAULTS = 10
INTERNAL = (b"Traceback", b"site-packages", b'File \\"', b"pydantic_core", b"lancedb", b"/tables/")
"""What nobody is ever told."""
ROOM = {
    "limits_requests_per_minute": "1000000",
    "limits_concurrent": "256",
    "limits_concurrent_per_tenant": "256",
    "limits_request_seconds": "600",  # far more than a busy machine takes
    "limits_receive_seconds": "5",
}


@dataclass(slots=True)
class Record:
    """What went wrong over a transport, and what came of the messages."""

    crowd: Crowd
    faults: list[str] = field(default_factory=list)
    outcomes: Counter[object] = field(default_factory=Counter)
    growth: int = 0

    def fault(self, sent: Mutant, why: str, answer: object = None) -> None:
        self.faults.append(
            f"MESSAGE={sent.number} {sent.marks}: {why}\n  {sent.body[:200]!r}\n  {answer!r:.600}"
        )

    def foreign(self, answer: bytes, person: Person) -> list[bytes]:
        """What is said though nobody, or not this person, is ever told."""
        words = [word for word in (*INTERNAL, str(self.crowd.data).encode()) if word in answer]
        return [*words, *self.crowd.foreign(answer, person)]

    def send(self, process: psutil.Process, send: Callable[[Sequence[int]], None]) -> None:
        """Send all messages, and note how much the process grew with all but the first."""
        warm = len(NUMBERS) // WARM_SHARE
        send(NUMBERS[:warm])
        before = process.memory_info().rss
        send(NUMBERS[warm:])
        self.growth = process.memory_info().rss - before


def test_d12_d13_whatever_is_sent_is_answered_as_what_it_is_over_every_transport(
    lasting_listen: Callable[..., Remote], scripts: Scripts, crowd: Crowd
) -> None:
    transports: dict[str, Callable[[], Record]] = {
        "legacy": partial(_over_http, lasting_listen, crowd, "legacy"),
        "modern": partial(_over_http, lasting_listen, crowd, "modern"),
        "sse": partial(_over_sse, lasting_listen, crowd),
        "stdio-legacy": partial(_over_stdio, scripts, crowd, "legacy"),
        "stdio-modern": partial(_over_stdio, scripts, crowd, "modern"),
    }
    with ThreadPoolExecutor(SERVERS_AT_ONCE) as pool:
        records = {name: pool.submit(send) for name, send in transports.items()}
    for name, future in records.items():
        record = future.result()
        print(f"{name} (grew by {record.growth >> 20} MB): {record.outcomes.most_common()}")  # noqa: T201 with -s
        assert not record.faults, "\n".join([name, *record.faults[:ENOUGH_FAULTS]])
        # A message that is sent alone is what the server grows with: none has warmed it up.
        assert "MESSAGE" in os.environ or record.growth < MAX_GROWTH


def _wrong(answer: Any, message: Any) -> str:  # noqa: ANN401 any JSON
    """What is wrong with a JSON-RPC answer to something; empty if nothing is."""
    if (
        not isinstance(answer, dict)
        or answer.get("jsonrpc") != "2.0"
        or len({"result", "error"} & set(answer)) != 1
    ):
        return "no JSON-RPC answer"
    if answer.get("id") is not None and json.dumps(answer["id"]) != id_in(message):
        return "the id of something else"
    if "result" in answer and not answer["result"].get("isError") and not may_succeed(message):
        return "a result"
    if "error" in answer and answer["error"]["code"] == INTERNAL_ERROR:
        return "an internal error"
    return ""


def _expect_quiet(noise: bytes) -> None:
    """Standard error holds no traces, nothing endless, and nothing of a query."""
    assert b"Traceback" not in noise, noise[-3000:].decode()
    assert [line for line in noise.splitlines() if b" crashed" in line] == []
    assert SECRET.encode() not in noise
    assert max(map(len, noise.splitlines()), default=0) < MAX_NOISE


def _honest(person: Person) -> dict[str, Any]:
    return search(person, id_="honest")


def _shared(work: Callable[[int, Sequence[int]], None], numbers: Sequence[int]) -> None:
    """Share messages out among the workers."""
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS), [numbers[at::WORKERS] for at in range(WORKERS)]))


def _over_http(listen: Callable[..., Remote], crowd: Crowd, era: Era) -> Record:
    remote, record = listen(crowd.data, **ROOM), Record(crowd)

    def work(worker: int, numbers: Sequence[int]) -> None:
        person = crowd.people[worker]
        with Channel(remote.port) as channel:
            for count, number in enumerate(numbers):
                if count % BETWEEN_HONEST == 0:
                    _expect_served(channel, person, era)
                sent = mutant(number, era, person.key)
                if sent.broken:
                    _send_broken(record, remote.port, sent, person)
                else:
                    _judge(record, sent, channel.ask(sent.request), person)
            _expect_served(channel, person, era)

    record.send(psutil.Process(remote.process.pid), partial(_shared, work))
    _expect_quiet(remote.noise.read_bytes())
    assert remote.leave() == 0
    return record


def _expect_served(channel: Channel, person: Person, era: Era) -> None:
    """An honest request finds what is the person's."""
    answer = channel.ask(posted(era, person.key, _honest(person)))
    assert answer
    assert person.canary in answer.json["result"]["structuredContent"]["results"][0]["text"]


def _judge(record: Record, sent: Mutant, answer: Answer | None, person: Person) -> None:
    """Note what is wrong with the answer to a message that was posted."""
    if answer is None:
        record.fault(sent, "no answer")
        return
    record.outcomes[answer.status] += 1
    if words := record.foreign(answer.head + answer.body, person):
        record.fault(sent, f"{words} are told", answer)
    message, json_rpc = understood(sent.body), answer.body.startswith(b'{"jsonrpc"')
    if json_rpc and (why := _wrong(answer.json, message)):
        record.fault(sent, why, answer)
    if not (json_rpc if answer.status == 200 else 202 <= answer.status < 500):
        record.fault(sent, "status", answer)
    if answer.status == 202 and is_request(message) and "/messages/" not in sent.request.path:
        record.fault(sent, "a request is taken for none", answer)


def _send_broken(record: Record, port: int, sent: Mutant, person: Person) -> None:
    """A request that may want more bytes than there are is refused, or comes to nothing when they end."""
    with Connection(port) as connection:
        try:
            connection.send(sent.request)
            if not select.select([connection.socket], [], [], PATIENCE_SECONDS)[0]:
                connection.socket.shutdown(socket.SHUT_WR)
            answer = connection.answer()
        except ConnectionError:  # it was refused before it was whole
            answer = None
    record.outcomes["broken", answer.status if answer else None] += 1
    if answer and (answer.status >= 500 or record.foreign(answer.head + answer.body, person)):
        record.fault(sent, "broken", answer)


def _over_sse(listen: Callable[..., Remote], crowd: Crowd) -> Record:
    remote, record = listen(crowd.data, http_sse="true", **ROOM), Record(crowd)

    def work(worker: int, numbers: Sequence[int]) -> None:
        person = crowd.people[worker]
        with ExitStack() as stack:
            events, path = stack.enter_context(stream(remote.port, person.key))
            channel = stack.enter_context(Channel(remote.port))
            for at in range(0, len(numbers), POSTS_AT_ONCE):
                drawn = [
                    mutant(number, "sse", person.key, path) for number in numbers[at : at + POSTS_AT_ONCE]
                ]
                mutants = [sent for sent in drawn if not sent.broken]
                _read_owed(record, events, _post_all(record, channel, mutants, person), person)
            body = json.dumps(_honest(person)).encode()
            assert channel.ask(posted("legacy", person.key, _honest(person), path=path))
            assert person.canary in events.event(), body

    record.send(psutil.Process(remote.process.pid), partial(_shared, work))
    _expect_quiet(remote.noise.read_bytes())
    assert remote.leave() == 0
    return record


def _post_all(
    record: Record, channel: Channel, mutants: Sequence[Mutant], person: Person
) -> dict[str, list[Any]]:
    """What was accepted, by the id under which the stream must answer it."""
    accepted: dict[str, list[Any]] = defaultdict(list)
    for sent in mutants:
        answer = channel.ask(sent.request)
        _judge(record, sent, answer, person)
        if answer and answer.status == 202 and is_request(message := understood(sent.body)):
            accepted[id_in(message)].append(message)
    return accepted


def _read_owed(record: Record, events: Connection, accepted: dict[str, list[Any]], person: Person) -> None:
    """Read as many answers as are owed, each of which must be to something that was asked."""
    owed = Counter({id_: len(messages) for id_, messages in accepted.items()})
    while owed:
        event = events.event()
        assert event, f"the stream ended, and owes {owed}"
        _judge_said(record, event.encode(), accepted, person)
        owed -= Counter([json.dumps(json.loads(event)["id"])])


def _judge_said(record: Record, event: bytes, accepted: dict[str, list[Any]], person: Person) -> None:
    """Note what is wrong with an answer on a stream or on standard output."""
    reply = json.loads(event)
    wrong = [_wrong(reply, message) for message in accepted.get(json.dumps(reply["id"]), [None])]
    if all(wrong) or record.foreign(event, person):
        record.faults.append(f"{wrong}: {event[:600]!r}")
    record.outcomes["result" if "result" in reply else reply["error"]["code"]] += 1


def _over_stdio(scripts: Scripts, crowd: Crowd, era: Era) -> Record:
    person, record = crowd.people[0], Record(crowd)
    asks = {"REFDESK_PRINCIPAL_TENANT": person.tenant, "REFDESK_PRINCIPAL_USER": person.name}
    asks["REFDESK_LIMITS_REQUEST_SECONDS"] = ROOM["limits_request_seconds"]
    transport: Transport = "stdio-legacy" if era == "legacy" else "stdio-modern"
    command: list[str | Path] = [scripts.server, "--data", crowd.data]
    with Wire(command, scripts.environment | asks, era=era, forks=scripts.server_forks) as wire:
        wire.begin()

        def send(numbers: Sequence[int]) -> None:
            half = numbers[:: 2 if len(NUMBERS) > 1 else 1]  # the other era has the other half
            for at in range(0, len(half), LINES_AT_ONCE):
                lines = [mutant(number, transport).body for number in half[at : at + LINES_AT_ONCE]]
                _exchange(record, wire, lines, person)

        record.send(psutil.Process(wire.process.pid), send)
        assert wire.leave() == 0
        _expect_quiet(wire.stderr().encode())
    return record


def _exchange(record: Record, wire: Wire, lines: Sequence[bytes], person: Person) -> None:
    """Write many lines at once, and read until each request, of which the last is honest, is answered."""
    honest = _honest(person)
    if wire.era == "modern":
        honest["params"]["_meta"] = ENVELOPE
    messages: dict[str, list[Any]] = defaultdict(list)
    for sent in [*(understood(line.decode("utf-8", "replace")) for line in lines), honest]:
        messages[id_in(sent)].append(sent)
    owed = Counter({id_: count for id_, sent in messages.items() if (count := sum(map(_owed, sent)))})
    wire.write(b"\n".join([*lines, json.dumps(honest).encode()]))
    while owed:
        try:
            line = wire.line()
        except queue.Empty:
            record.faults.append(f"no answer to {[messages[id_] for id_ in owed]!r:.1000}")
            return
        _judge_said(record, line, messages, person)
        id_ = json.loads(line)["id"]
        assert id_ != "honest" or person.canary.encode() in line
        owed -= Counter([json.dumps(id_)])


def _owed(message: Any) -> bool:  # noqa: ANN401 any JSON
    """Whether an answer must come that bears its id; of what is no message, only plain ids are told again."""
    return is_request(message) and str(message["id"]).isascii()

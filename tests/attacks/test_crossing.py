"""D9, H7: two hundred people ask at once, under the same ids, and leave when they like. Each gets their own.

Hundreds of calls over HTTP in both eras, some of them over streams: 200, and 10,000 with
--hypothesis-profile=nightly. With CALLS=100000 in the environment there are as many.
"""

from __future__ import annotations

import json
import os
import random
import select
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from rag.uris import NOT_FOUND
from tests.attacks.crowd import PEOPLE
from tests.attacks.raw_http import USUAL, Channel, Connection, Request, bearer, message, posted, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.attacks.crowd import Crowd, Person
    from tests.server.conftest import Era, Message, Remote

pytestmark = pytest.mark.slow

USUAL_CALLS = 200 if settings.default.max_examples < 100 else 10_000  # type: ignore[union-attr]  # there always is one
CALLS = int(os.environ.get("CALLS", USUAL_CALLS))
ON_STREAMS = 16  # people who ask over streams
PER_STREAM = max(5, CALLS // 20 // ON_STREAMS)
LEAVING_SHARE = 0.12  # of the calls that nobody waits for
LONGEST_STAY = 0.02  # seconds that somebody stays who then leaves; answers take about as long
POSTS_AT_ONCE = 5
BUSY = -32000
ROOM = {
    "http_sse": "true",
    "limits_requests_per_minute": "1000000",
    "limits_concurrent": "64",
    "limits_concurrent_per_tenant": "64",
    "limits_queue_seconds": "10",
    "limits_request_seconds": "600",  # far more than a busy machine takes
}


@dataclass(slots=True)
class Record:
    """What went wrong, and what came of the calls."""

    faults: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Question:
    """A call, what its answer must hold, and whether it fails."""

    kind: str
    asked: Message
    expected: bytes
    refused: bool = False


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], crowd: Crowd) -> Remote:
    return lasting_listen(crowd.data, **ROOM)


@pytest.fixture(scope="module")
def uris(remote: Remote, crowd: Crowd) -> dict[str, str]:
    """The address of everybody's document, by canary, as they see it themselves."""
    found = {}
    with Channel(remote.port) as channel:
        for person in crowd.people:
            answer = channel.ask(posted("legacy", person.key, message("resources/list")))
            assert answer
            listed = answer.json["result"]["resources"]
            (found[person.canary],) = [one["uri"] for one in listed if person.canary in one["title"]]
    return found


def search(person: Person) -> Message:
    return message("tools/call", {"name": "search", "arguments": {"query": person.canary, "mode": "sparse"}})


def question(drawn: random.Random, crowd: Crowd, uris: dict[str, str], person: Person) -> Question:
    """Something that somebody asks: for what is theirs, mostly, or for what is another's."""
    own, other = uris[person.canary], uris[drawn.choice(crowd.people).canary]
    canary, id_ = person.canary.encode(), own.rpartition("/")[2]
    open_source = message("tools/call", {"name": "get_source", "arguments": {"id": id_}})
    if other == own:
        other += "x"
    said_again = {"name": "answer", "arguments": {"question": f"Where is {person.canary}?"}}
    return drawn.choices(
        [
            Question("search", search(person), canary),
            Question("get_source", open_source, canary),
            Question("read", message("resources/read", {"uri": own}), canary),
            Question("list", message("resources/list"), canary),
            Question("foreign", message("resources/read", {"uri": other}), NOT_FOUND.encode(), refused=True),
            Question("prompt", message("prompts/get", said_again), canary),
        ],
        [1, 1, 2, 4, 4, 10],
    )[0]


def judge(record: Record, crowd: Crowd, person: Person, asked: Question, said: bytes) -> None:
    """Note what is wrong with an answer: it is another's, of another call, or none."""
    told = json.loads(said)
    result = told.get("result", {})
    failed = "error" in told or result.get("isError", False)
    if foreign := crowd.foreign(said, person):
        record.faults.append(f"{person.name} is told {foreign}: {said[:500]!r}")
    elif is_busy(told) and told.get("id") in {
        None,
        asked.asked["id"],
    }:  # which is no answer, but nobody else's either
        record.outcomes["busy"] += 1
        return
    elif told.get("id") != asked.asked["id"] or asked.expected not in said or failed is not asked.refused:
        record.faults.append(f"{person.name} asked {asked} and is told {said[:500]!r}")
    elif asked.kind == "list" and len(result["resources"]) != 2:
        record.faults.append(f"{person.name} is told of {result}")
    record.outcomes[asked.kind] += 1


def is_busy(told: Message) -> bool:
    """Whether a busy machine's server, or its bucket, asks to try again later."""
    error = told.get("error")
    return error == "temporarily_unavailable" or (isinstance(error, dict) and error.get("code") == BUSY)


@dataclass(frozen=True, slots=True)
class Visitors:
    """Two hundred people at one door, and what came of it."""

    remote: Remote
    crowd: Crowd
    uris: dict[str, str]
    record: Record

    def ask(self, number: int) -> None:
        person, drawn = self.crowd.people[number], random.Random(number)  # noqa: S311 repeatable, not secret
        if number < ON_STREAMS:
            self.ask_over_stream(person, drawn)
        with Channel(self.remote.port) as channel:
            for _ in range(CALLS // PEOPLE):
                self.ask_once(channel, person, drawn)

    def ask_once(self, channel: Channel, person: Person, drawn: random.Random) -> None:
        era: Era = drawn.choice(["legacy", "modern"])
        asked = question(drawn, self.crowd, self.uris, person)
        request = posted(era, person.key, asked.asked)
        if drawn.random() < LEAVING_SHARE:
            left = leave(self.remote.port, request, drawn.uniform(0, LONGEST_STAY))
            self.record.outcomes["left"] += 1
            if left and self.crowd.foreign(left, person):
                self.record.faults.append(f"{person.name} left, and was told {left!r}")
        elif (answer := channel.ask(request)) is None:
            self.record.faults.append(f"{person.name} got no answer to {asked}")
        else:
            judge(self.record, self.crowd, person, asked, answer.body)

    def ask_over_stream(self, person: Person, drawn: random.Random) -> None:
        with stream(self.remote.port, person.key) as (events, path), Channel(self.remote.port) as channel:
            for first in range(0, PER_STREAM, POSTS_AT_ONCE):
                asked = {
                    id_: question(drawn, self.crowd, self.uris, person)
                    for id_ in range(first, first + POSTS_AT_ONCE)
                }
                cancelled = {id_ for id_ in asked if drawn.random() < LEAVING_SHARE}
                for id_, one in asked.items():
                    one.asked["id"] = id_
                    expect_accepted(channel, person, path, one.asked)
                    if id_ in cancelled:
                        params = {"requestId": id_}
                        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                        expect_accepted(channel, person, path, told)
                read_all(self.record, self.crowd, person, events, asked, cancelled)


def test_d9_h7_every_answer_goes_to_who_asked_and_holds_what_is_theirs(
    remote: Remote, crowd: Crowd, uris: dict[str, str]
) -> None:
    record = Record()
    visitors = Visitors(remote, crowd, uris, record)
    with ThreadPoolExecutor(PEOPLE) as pool:
        list(pool.map(visitors.ask, range(PEOPLE)))
    print(record.outcomes)  # noqa: T201 shown with -s and on failure
    assert record.faults[:10] == []
    assert record.outcomes["busy"] < record.outcomes.total() / 2
    assert remote.process.poll() is None


def leave(port: int, request: Request, stay: float) -> bytes:
    """Ask, and go after a moment; what was said until then."""
    with Connection(port) as connection:
        connection.send(request)
        ready = select.select([connection.socket], [], [], stay)[0]
        return connection.socket.recv(1 << 16) if ready else b""


def expect_accepted(channel: Channel, person: Person, path: str, given: Message) -> None:
    answer = channel.ask(Request(USUAL + bearer(person.key), json.dumps(given).encode(), path=path))
    assert answer
    assert answer.status == 202


def read_all(
    record: Record,
    crowd: Crowd,
    person: Person,
    events: Connection,
    asked: dict[int, Question],
    cancelled: set[int],
) -> None:
    """Read the answers to everything that was not taken back, each once."""
    owed = set(asked) - cancelled
    while owed:
        said = events.event().encode()
        id_ = json.loads(said)["id"]
        if id_ in asked:
            judge(record, crowd, person, asked.pop(id_), said)
        elif not (isinstance(id_, int) and id_ < min(owed)):  # one that was taken back before, too late
            record.faults.append(f"{person.name} is told {said[:300]!r}, which nobody asked")
        owed.discard(id_)

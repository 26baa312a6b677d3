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
from tests.attacks.crowd import PEOPLE, search
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
    "limits_concurrent": "256",  # so that no call waits
    "limits_concurrent_per_tenant": "256",
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
    call: Message
    expected: bytes
    refused: bool = False


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], crowd: Crowd) -> Remote:
    return lasting_listen(crowd.data, **ROOM)


@pytest.fixture(scope="module")
def uris(remote: Remote, crowd: Crowd) -> dict[str, str]:
    """The address of everybody's document, by canary, as they see it themselves."""
    uris = {}
    with Channel(remote.port) as channel:
        for person in crowd.people:
            answer = channel.ask(posted("legacy", person.key, message("resources/list")))
            assert answer
            listed = answer.json["result"]["resources"]
            (uris[person.canary],) = [
                resource["uri"] for resource in listed if person.canary in resource["title"]
            ]
    return uris


def drawn_question(drawn: random.Random, crowd: Crowd, uris: dict[str, str], person: Person) -> Question:
    """Something that somebody asks: for what is theirs, mostly, or for what is another's."""
    uri, foreign_uri = uris[person.canary], uris[drawn.choice(crowd.people).canary]
    canary, id_ = person.canary.encode(), uri.rpartition("/")[2]
    open_source = message("tools/call", {"name": "get_source", "arguments": {"id": id_}})
    if foreign_uri == uri:
        foreign_uri += "x"
    said_again = {"name": "answer", "arguments": {"question": f"Where is {person.canary}?"}}
    return drawn.choices(
        [
            Question("search", search(person), canary),
            Question("get_source", open_source, canary),
            Question("read", message("resources/read", {"uri": uri}), canary),
            Question("list", message("resources/list"), canary),
            Question(
                "foreign", message("resources/read", {"uri": foreign_uri}), NOT_FOUND.encode(), refused=True
            ),
            Question("prompt", message("prompts/get", said_again), canary),
        ],
        [1, 1, 2, 4, 4, 10],
    )[0]


def judge(record: Record, crowd: Crowd, person: Person, question: Question, body: bytes) -> None:
    """Note what is wrong with an answer: it is another's, of another call, or none."""
    reply, id_ = json.loads(body), question.call["id"]
    result = reply.get("result", {})
    failed = "error" in reply or result.get("isError", False)
    if foreign := crowd.foreign(body, person):
        record.faults.append(f"{person.name} is told {foreign}: {body[:500]!r}")
    elif is_busy(reply) and reply.get("id") in {None, id_}:  # which is no answer, but nobody else's either
        record.outcomes["busy"] += 1
        return
    elif reply.get("id") != id_ or question.expected not in body or failed is not question.refused:
        record.faults.append(f"{person.name} asked {question} and is told {body[:500]!r}")
    elif question.kind == "list" and len(result["resources"]) != 2:
        record.faults.append(f"{person.name} is told of {result}")
    record.outcomes[question.kind] += 1


def is_busy(reply: Message) -> bool:
    """Whether a busy machine's server, or its bucket, asks to try again later."""
    error = reply.get("error")
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
        question = drawn_question(drawn, self.crowd, self.uris, person)
        request = posted(era, person.key, question.call)
        if drawn.random() < LEAVING_SHARE:
            partial = leave(self.remote.port, request, drawn.uniform(0, LONGEST_STAY))
            self.record.outcomes["left"] += 1
            if partial and self.crowd.foreign(partial, person):
                self.record.faults.append(f"{person.name} left, and was told {partial!r}")
        elif (answer := channel.ask(request)) is None:
            self.record.faults.append(f"{person.name} got no answer to {question}")
        else:
            judge(self.record, self.crowd, person, question, answer.body)

    def ask_over_stream(self, person: Person, drawn: random.Random) -> None:
        with stream(self.remote.port, person.key) as (events, path), Channel(self.remote.port) as channel:
            for first in range(0, PER_STREAM, POSTS_AT_ONCE):
                questions = {
                    id_: drawn_question(drawn, self.crowd, self.uris, person)
                    for id_ in range(first, first + POSTS_AT_ONCE)
                }
                cancelled = {id_ for id_ in questions if drawn.random() < LEAVING_SHARE}
                for id_, question in questions.items():
                    question.call["id"] = id_
                    expect_accepted(channel, person, path, question.call)
                    if id_ in cancelled:
                        params = {"requestId": id_}
                        notification = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                        expect_accepted(channel, person, path, notification | {"params": params})
                read_all(self.record, self.crowd, person, events, questions, cancelled)


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


def expect_accepted(channel: Channel, person: Person, path: str, message: Message) -> None:
    answer = channel.ask(Request(USUAL + bearer(person.key), json.dumps(message).encode(), path=path))
    assert answer
    assert answer.status == 202


def read_all(
    record: Record,
    crowd: Crowd,
    person: Person,
    events: Connection,
    questions: dict[int, Question],
    cancelled: set[int],
) -> None:
    """Read the answers to everything that was not taken back, each once."""
    owed = set(questions) - cancelled
    while owed:
        event = events.event().encode()
        id_ = json.loads(event)["id"]
        if id_ in questions:
            judge(record, crowd, person, questions.pop(id_), event)
        elif not (isinstance(id_, int) and id_ < min(owed)):  # one that was taken back before, too late
            record.faults.append(f"{person.name} is told {event[:300]!r}, which nobody asked")
        owed.discard(id_)

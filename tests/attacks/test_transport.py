"""D: who asks, from where, and for whom a token was made. What is refused is refused at every door."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from rag.access.keys import SEARCH_SCOPE
from tests.attacks.crowd import search
from tests.attacks.neighbours import FOREIGN, ISSUER, embedding, honest_keys, keys_of, neighbour, token
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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.attacks.crowd import Crowd, Person
    from tests.attacks.neighbours import Handler, Neighbour
    from tests.attacks.raw_http import Answer, Headers
    from tests.conftest import Scripts
    from tests.server.conftest import Era, Message, Remote

pytestmark = pytest.mark.slow

ERAS: tuple[Era, ...] = ("legacy", "modern")
INVALID_REQUEST, METHOD_NOT_FOUND = -32600, -32601
REFUSED = {-32601, -32602, -32020}  # no such method or parameters, or not what the headers say
FETCHED_SECONDS = 7  # by when keys are there, or there will be none
VISITOR = "cookie-of-a-visitor"
PUBLIC = ("Host", "desk.example.com")


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], crowd: Crowd) -> Remote:
    return lasting_listen(crowd.data, http_sse="true", limits_requests_per_minute="1000000")


def finds(answer: Answer, person: Person) -> bool:
    return answer.status == 200 and person.canary.encode() in answer.body


def doors(remote: Remote, person: Person) -> Iterator[tuple[str, Request]]:
    """A request without credentials or host to every address that has something to hide."""
    for era in ERAS:
        request = posted(era, "", message("ping" if era == "legacy" else "server/discover"))
        yield era, replace(request, headers=request.headers[:2] + request.headers[3:])
    yield "sse", Request((), method="GET", path="/sse")
    with stream(remote.port, person.key) as (_, path):
        yield "messages", Request(USUAL, json.dumps(message("ping")).encode(), path=path)


def credentials(person: Person, bystander: Person) -> dict[str, Headers]:
    """What is not one person's credentials."""
    return {
        "none": (),
        "empty": (("Authorization", ""),),
        "Bearer alone": (("Authorization", "Bearer "),),
        "the key alone": (("Authorization", person.key),),
        "Basic": (("Authorization", f"Basic {person.key}"),),
        "Digest": (("Authorization", f'Digest username="{person.key}"'),),
        "a cookie": (("Cookie", f"Authorization=Bearer {person.key}"),),
        "two keys in one": bearer(f"{person.key}, {bystander.key}"),
        "a key and more": bearer(f"{person.key} x"),
        "upper case": bearer(person.key.upper()),
        "quoted": bearer(f'"{person.key}"'),
        "an empty X-API-Key": (("X-API-Key", ""),),
        "Bearer in X-API-Key": (("X-API-Key", f"Bearer {person.key}"),),
        "forwarded": (("X-Forwarded-Authorization", f"Bearer {person.key}"), ("X-Forwarded-User", "user0")),
        "garbage before a key": (*bearer("x"), ("X-API-Key", person.key)),
        "garbage and a key": (*bearer("x"), *bearer(person.key)),
    }


def test_d1_what_is_nobodys_credentials_opens_no_door(remote: Remote, crowd: Crowd) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    for door, request in doors(remote, person):
        for name, headers in credentials(person, bystander).items():
            answer = answer_to(remote.port, replace(request, headers=request.headers + headers))
            assert answer.status == 401, (door, name)
            assert b"\nwww-authenticate: bearer " in answer.head.lower(), (door, name)
            assert b"tools" not in answer.body
            query = "&" if "?" in request.path else "?"
            for parameter in ("access_token", "api_key", "key", "token"):
                path = f"{request.path}{query}{parameter}={person.key}"
                assert answer_to(remote.port, replace(request, path=path)).status == 401
        with Connection(remote.port) as connection:
            connection.send(replace(request, headers=request.headers + bearer(person.key)))
            line = connection.socket.recv(13)
            assert line in {b"HTTP/1.1 200 ", b"HTTP/1.1 202 "}, door


def test_d1_credentials_of_two_people_open_no_door(remote: Remote, crowd: Crowd) -> None:
    person, bystander = crowd.people[0], crowd.people[1]
    for door, request in doors(remote, person):
        for headers in [
            bearer(person.key) + bearer(bystander.key),
            bearer(person.key) + bearer("x"),
            (*bearer(person.key), ("X-API-Key", bystander.key)),
            (("X-API-Key", person.key), ("X-API-Key", bystander.key)),
        ]:
            with Connection(remote.port) as connection:
                connection.send(replace(request, headers=request.headers + headers))
                assert connection.socket.recv(13) == b"HTTP/1.1 401 ", (door, headers)


@pytest.mark.parametrize("era", ERAS)
def test_d1_what_follows_a_body_is_nobodys_credentials(remote: Remote, crowd: Crowd, era: Era) -> None:
    person = crowd.people[0]
    request = posted(era, "", search(person))
    key, chunked = bearer(person.key), ("Transfer-Encoding", "chunked")
    headers = (*request.headers[:2], *request.headers[3:], chunked)
    line = "".join(f"{name}: {value}\r\n" for name, value in key).encode()
    chunk = f"{len(request.body):x}\r\n".encode() + request.body + b"\r\n0\r\n"
    behind = replace(request, headers=headers, body=chunk + line + b"\r\n", framed=False)
    before = replace(request, headers=headers + key, body=chunk + b"X-More: x\r\n\r\n", framed=False)
    assert finds(answer_to(remote.port, before), person)
    assert answer_to(remote.port, behind).status == 401


UNCLEAR: dict[str, list[tuple[str, str]]] = {
    "both": [("Content-Length", "{size}"), ("Transfer-Encoding", "chunked")],
    "both-the-other-way": [("Transfer-Encoding", "chunked"), ("Content-Length", "{size}")],
    "twice": [("Content-Length", "{size}"), ("Content-Length", "{size}")],
    "twice-in-one": [("Content-Length", "{size}, {size}")],
    "two-lengths": [("Content-Length", "5"), ("content-length", "{size}")],
    "signed": [("Content-Length", "+{size}")],
    "xchunked": [("Transfer-Encoding", "xchunked")],
    "gzip-chunked": [("Transfer-Encoding", "gzip, chunked")],
    "chunked-twice": [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
    "space-before-colon": [("Content-Length ", "{size}"), ("Transfer-Encoding", "chunked")],
}


@pytest.mark.parametrize("framing", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_d1_a_request_of_which_it_is_unclear_where_it_ends_is_refused_and_nothing_behind_it_is_read(
    remote: Remote, crowd: Crowd, framing: list[tuple[str, str]]
) -> None:
    """What a proxy takes for a body must not be another's request for us."""
    person = crowd.people[0]
    honest = posted("modern", person.key, search(person))
    assert finds(answer_to(remote.port, honest), person)
    bodies = honest.body, f"{len(honest.body):x}\r\n".encode() + honest.body + b"\r\n0\r\n\r\n"
    for body in bodies:
        headers = tuple((name, value.format(size=len(body))) for name, value in framing)
        unclear = replace(honest, headers=honest.headers + headers, body=body, framed=False)
        with Connection(remote.port) as connection:
            connection.socket.sendall(
                honest.raw(remote.port) + unclear.raw(remote.port) + honest.raw(remote.port)
            )
            answers = b"".join(iter(lambda: connection.socket.recv(1 << 16), b""))
        assert answers.count(b"HTTP/1.1 ") == 2
        assert answers.count(b"HTTP/1.1 200 ") == 1
        assert b"HTTP/1.1 400 " in answers


NO_IDS: tuple[object, ...] = (None, 1.5, 1.0, {}, [], True, False)
LONG = "quokka" * 10_000


@pytest.mark.parametrize("era", ERAS)
def test_a_request_that_cant_be_answered_under_its_id_is_refused_and_not_passed_over_in_silence(
    remote: Remote, crowd: Crowd, era: Era
) -> None:
    person = crowd.people[0]
    with stream(remote.port, person.key) as (events, path), Channel(remote.port) as channel:
        doors = [
            posted(era, person.key, search(person)),
            posted("legacy", person.key, search(person, id_=7), path=path),
        ]
        for door, id_ in zip(doors, ("1", "7"), strict=True):
            for no_id in map(json.dumps, NO_IDS):
                body = door.body.replace(f'"id": {id_},'.encode(), f'"id": {no_id},'.encode())
                assert body != door.body
                answer = channel.ask(replace(door, body=body))
                assert answer
                assert (answer.status, answer.json["id"]) == (400, None), no_id
                assert answer.json["error"]["code"] == INVALID_REQUEST
                assert person.canary.encode() not in answer.body
        answer = channel.ask(doors[0])
        assert answer
        assert finds(answer, person)
        assert channel.ask(doors[1])
        assert json.loads(events.event())["id"] == 7  # and nothing before it


@pytest.mark.parametrize("era", ERAS)
def test_a_method_without_an_end_is_not_told_again(remote: Remote, crowd: Crowd, era: Era) -> None:
    person = crowd.people[0]
    request = posted(era, person.key, message("tools/call"))
    long = replace(request, body=request.body.replace(b"tools/call", LONG.encode()))
    answer = answer_to(remote.port, long)
    assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (400, 1, METHOD_NOT_FOUND)
    assert b"quokka" not in answer.body
    assert "quokka" not in remote.noise.read_text()
    assert finds(answer_to(remote.port, posted(era, person.key, search(person))), person)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_would_rather_speak_otherwise_is_answered(
    remote: Remote, crowd: Crowd, era: Era
) -> None:
    person = crowd.people[0]
    request = posted(era, person.key, search(person))
    for wish in ("h2c", "websocket"):
        headers = (*request.headers, ("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", wish))
        assert finds(answer_to(remote.port, replace(request, headers=headers)), person), wish


ELSEWHERE: dict[str, tuple[int, Headers]] = {
    "another host": (421, (("Host", "evil.example"),)),
    "another host at the port": (421, (("Host", "evil.example:{port}"),)),
    "no port": (421, (("Host", "127.0.0.1"),)),
    "another port": (421, (("Host", "127.0.0.1:1{port}"),)),
    "a port with a zero": (421, (("Host", "127.0.0.1:0{port}"),)),
    "a name behind": (421, (("Host", "127.0.0.1:{port}.evil.example"),)),
    "a name before": (421, (("Host", "evil.example@127.0.0.1:{port}"),)),
    "a dot behind": (421, (("Host", "localhost.:{port}"),)),
    "upper case": (421, (("Host", "EVIL.EXAMPLE:{port}"),)),
    "another loopback address": (421, (("Host", "127.1:{port}"),)),
    "any address": (421, (("Host", "0.0.0.0:{port}"),)),
    "a mapped address": (421, (("Host", "[::ffff:127.0.0.1]:{port}"),)),
    "an empty host": (421, (("Host", ""),)),
    "a host, told by a proxy": (421, (("Host", "evil.example"), ("X-Forwarded-Host", "127.0.0.1:{port}"))),
    "another origin": (403, (("Origin", "http://evil.example"),)),
    "an origin at the port": (403, (("Origin", "http://evil.example:{port}"),)),
    "an origin behind": (403, (("Origin", "http://localhost:{port}.evil.example"),)),
    "an origin before": (403, (("Origin", "http://localhost:{port}@evil.example"),)),
    "an origin in upper case": (403, (("Origin", "HTTP://EVIL.EXAMPLE"),)),
    "an opaque origin": (403, (("Origin", "null"),)),
    "an origin without a port": (403, (("Origin", "http://127.0.0.1"),)),
    "an origin of another scheme": (403, (("Origin", "https://127.0.0.1:{port}"),)),
    "an origin of a file": (403, (("Origin", "file://"),)),
    "two origins": (403, (("Origin", "http://evil.example"), ("Origin", "http://127.0.0.1:{port}"))),
    "two origins in one": (403, (("Origin", "http://127.0.0.1:{port} http://evil.example"),)),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_d5_d7_who_comes_from_elsewhere_is_turned_away_at_every_door(
    remote: Remote, crowd: Crowd, name: str
) -> None:
    person = crowd.people[0]
    status, headers = ELSEWHERE[name]
    headers = tuple((key, value.format(port=remote.port)) for key, value in headers)
    methods = [Request((), method=method) for method in ("GET", "DELETE", "OPTIONS", "PUT")]
    methods += [Request((), method="OPTIONS", path="/sse"), Request((), method="GET", path="/nowhere")]
    requests = [*(request for _, request in doors(remote, person)), *methods]
    for request in requests:
        whole = replace(request, headers=request.headers + headers + bearer(person.key))
        answer = answer_to(remote.port, whole)
        assert answer.status == status, (request, answer)
        assert b"access-control-" not in answer.head.lower()
        assert b"tools" not in answer.body


@pytest.mark.parametrize(
    "origin", [None, "http://127.0.0.1:{port}", "http://localhost:{port}", "http://[::1]:{port}"]
)
def test_d5_who_comes_from_here_is_served(remote: Remote, crowd: Crowd, origin: str | None) -> None:
    person = crowd.people[0]
    headers = (("Origin", origin.format(port=remote.port)),) if origin else ()
    for era in ERAS:
        request = posted(era, person.key, search(person))
        answer = answer_to(remote.port, replace(request, headers=request.headers + headers))
        assert finds(answer, person)
        assert b"access-control-" not in answer.head.lower()


def test_d6_d7_a_server_that_others_reach_is_known_by_its_public_name_alone(
    listen: Callable[..., Remote], crowd: Crowd
) -> None:
    any_address = "0.0.0.0"  # noqa: S104 this is what the test is about
    remote = listen(
        crowd.data, http_host=any_address, http_public_url="https://desk.example.com", http_sse="true"
    )
    person, port = crowd.people[0], remote.port
    elsewhere = [f"127.0.0.1:{port}", f"localhost:{port}", f"0.0.0.0:{port}", "desk.example.com.evil.example"]
    elsewhere += ["desk.example.com:80", "evil.example", "desk.example.com."]
    for path, method in [("/mcp", "POST"), ("/sse", "GET"), ("/messages/", "POST"), ("/mcp", "OPTIONS")]:
        request = Request(USUAL + bearer(person.key), json.dumps(search(person)).encode(), method, path)
        for host in elsewhere:
            refused = replace(request, headers=(*request.headers, ("Host", host)))
            assert answer_to(port, refused).status == 421, (path, host)
        for origin in ["http://desk.example.com", "https://evil.example", f"http://127.0.0.1:{port}", "null"]:
            refused = replace(request, headers=(*request.headers, PUBLIC, ("Origin", origin)))
            assert answer_to(port, refused).status == 403, (path, origin)
    by_proxy = ("Host", "Desk.Example.com:443")  # the same host (RFC 9110, 4.2.3)
    for headers in [(PUBLIC,), (by_proxy,), (PUBLIC, ("Origin", "https://desk.example.com"))]:
        request = posted("modern", person.key, search(person))
        assert finds(answer_to(port, replace(request, headers=request.headers + headers)), person)


def test_d9_the_stream_of_another_can_neither_be_written_to_nor_ended(remote: Remote, crowd: Crowd) -> None:
    ann, eve = crowd.people[0], crowd.people[4]
    assert ann.tenant == eve.tenant
    with stream(remote.port, ann.key) as (events, path), stream(remote.port, eve.key) as (theirs, _):
        body = json.dumps(search(ann, id_=7)).encode()
        guesses = [f"{path[:-1]}{digit:x}" for digit in range(16) if not path.endswith(f"{digit:x}")]
        keys = [crowd.people[1].key, eve.key]
        for key, at in [(key, path) for key in keys] + [(ann.key, guess) for guess in guesses]:
            answer = answer_to(remote.port, Request(USUAL + bearer(key), body, path=at))
            assert (answer.status, answer.body) == (404, b"Could not find session")
        cancel = json.dumps(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
        ).encode()
        for method in ("DELETE", "GET", "PUT"):
            answer = answer_to(remote.port, Request(USUAL + bearer(eve.key), method=method, path=path))
            assert answer.status in {404, 405}
        assert answer_to(remote.port, Request(USUAL + bearer(eve.key), cancel, path=path)).status == 404
        assert (
            answer_to(
                remote.port, Request(USUAL + bearer(ann.key), body.replace(b" 7,", b" 8,"), path=path)
            ).status
            == 202
        )
        event = events.event()
        assert json.loads(event)["id"] == 8  # and nothing of what the others posted
        assert ann.canary in event
        theirs.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            theirs.event()


def test_d9_a_session_that_is_named_where_there_are_none_changes_nothing(
    remote: Remote, crowd: Crowd
) -> None:
    ann, eve = crowd.people[0], crowd.people[1]
    with stream(remote.port, ann.key) as (_, path):
        session = path.rpartition("=")[2]
        for person in (ann, eve):
            request = posted("legacy", person.key, search(person))
            named = (("Mcp-Session-Id", session), ("Last-Event-ID", "1"))
            answer = answer_to(remote.port, replace(request, headers=request.headers + named))
            assert finds(answer, person)
            assert not crowd.foreign(answer.body, person)
            assert b"mcp-session-id" not in answer.head.lower()


def signing(issuer: Neighbour, listen: Callable[..., Remote], data: Path, folder: Path) -> Remote:
    """A server that takes keys and the issuer's tokens."""
    config = folder / "config.toml"
    config.write_text(
        '[http]\npublic_url = "https://desk.example.com"\nauthentication = ["keys", "oauth"]\nsse = true\n'
        f'[oauth]\nissuer = "{ISSUER}"\njwks_url = "{issuer.url}/jwks"\n'
        'tenants = { "Acorn Ltd" = "acorn", "Birch Ltd" = "birch" }\n'
    )
    return listen(data, config=str(config))


@pytest.fixture(scope="module")
def signed_in(
    lasting_listen: Callable[..., Remote], crowd: Crowd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Remote]:
    with neighbour(honest_keys) as issuer:
        yield signing(issuer, lasting_listen, crowd.data, tmp_path_factory.mktemp("signed-in"))


def with_token(remote: Remote, bearing: str, person: Person, path: str = "/mcp") -> Answer:
    return answer_to(
        remote.port, Request(USUAL + bearer(bearing), json.dumps(search(person)).encode(), path=path)
    )


TOKENS: dict[str, tuple[int, dict[str, Any]]] = {
    "D10-for-another-server": (401, {"aud": "https://other.example.com/mcp"}),
    "D10-of-another-issuer": (401, {"iss": "https://evil.example.com/"}),
    "D10-of-another-issuers-key": (401, {"key": FOREIGN}),
    "D4-without-a-scope": (403, {"scope": ""}),
    "D4-with-the-scope-of-another-tool": (403, {"scope": f"{SEARCH_SCOPE}x openid refdesk:admin"}),
    "D4-of-no-tenant-of-ours": (403, {"tenant": "Cedar Ltd"}),
    "D4-of-a-tenant-by-our-own-name": (403, {"tenant": "acorn"}),
    "D4-with-nonsense-for-claims-elsewhere": (403, {"_claim_names": 5}),
    "D4-with-nonsense-for-groups": (403, {"groups": "hr"}),
    "D4-for-news-of-a-logout": (401, {"events": {}}),
}


@pytest.mark.parametrize("name", TOKENS)
def test_d4_d10_a_token_for_something_else_opens_no_door(signed_in: Remote, crowd: Crowd, name: str) -> None:
    person = crowd.people[0]
    status, claims = TOKENS[name]
    with stream(signed_in.port, token()) as (events, path):
        for request in [
            posted("legacy", token(**claims), search(person)),
            posted("modern", token(**claims), search(person)),
            posted("legacy", token(**claims), search(person), path=path),
            Request(bearer(token(**claims)), method="GET", path="/sse"),
        ]:
            answer = answer_to(signed_in.port, request)
            assert answer.status == status
            challenge = answer.head.lower().partition(b"www-authenticate: ")[2]
            assert challenge.startswith(b'bearer error="')
            assert (b"insufficient_scope" in challenge) is ("scope" in claims)
            assert (b"access_denied" in challenge) is (status == 403 and "scope" not in claims)
            assert b"resource_metadata=" in challenge
            assert person.canary.encode() not in answer.body
        assert finds(with_token(signed_in, token(), person), person)
        assert with_token(signed_in, token(), person, path).status == 202
        assert person.canary in events.event()


def test_d9_who_asks_over_a_stream_is_found_out_from_each_request_anew(
    signed_in: Remote, crowd: Crowd
) -> None:
    """One sign-in may stand for other groups, another user or another tenant from one token to the next."""
    ann, bob = crowd.people[0], crowd.people[1]
    with stream(signed_in.port, token(tenant="Acorn Ltd")) as (events, path):
        for _ in range(3):
            assert with_token(signed_in, token(sub="user0"), ann, path).status == 202
            assert ann.canary in events.event()
            lowered = token(sub="user0", tenant="Birch Ltd")
            assert with_token(signed_in, lowered, ann, path).status == 202
            assert ann.canary not in events.event()
        assert with_token(signed_in, token(sub="user1", tenant="Birch Ltd"), bob, path).status == 404


def drips(handler: Handler) -> None:
    """A byte a second, and never the last."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    while not handler.server.over.wait(1):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def redirects(handler: Handler) -> None:
    if handler.path == "/elsewhere":
        handler.say(keys_of(FOREIGN))
    else:
        handler.say(b"", 302, Location="/elsewhere")


ISSUERS: dict[str, Callable[[Handler], None]] = {
    "D3-page": lambda handler: handler.say(b"<html>", Content_Type="text/html"),
    "D3-redirecting": redirects,
    "D3-huge": lambda handler: handler.say(b" " * (32 << 20)),
    "D3-dripping": drips,
}


@pytest.mark.parametrize("name", ISSUERS)
def test_d3_an_issuer_that_misbehaves_lets_nobody_in_and_keeps_nobody_else_waiting(
    listen: Callable[..., Remote], crowd: Crowd, tmp_path: Path, name: str
) -> None:
    ann, bob = crowd.people[0], crowd.people[1]
    with neighbour(ISSUERS[name]) as issuer:
        remote = signing(issuer, listen, crowd.data, tmp_path)
        request = posted("legacy", token(FOREIGN), search(ann))
        with Connection(remote.port) as waiting:
            waiting.socket.settimeout(FETCHED_SECONDS)
            waiting.send(request)
            for _ in range(5):
                assert finds(answer_to(remote.port, posted("legacy", bob.key, search(bob))), bob)
            answer = waiting.answer()
            assert answer
            assert answer.status in {401, 503}
        assert answer_to(remote.port, request).status in {401, 503}
        assert [request.path for request in issuer.asked] == ["/jwks"]


def test_d11_what_a_client_bears_goes_to_nobody_else(
    listen: Callable[..., Remote], crowd: Crowd, scripts: Scripts, tmp_path: Path
) -> None:
    ours, provider_key = crowd.people[0], "sk-of-the-operator"
    with neighbour(embedding) as provider:
        settings = {
            "EMBEDDER_PROVIDER": "openai",
            "EMBEDDER_MODEL": "eight",
            "EMBEDDER_BASE_URL": f"{provider.url}/v1",
            "EMBEDDER_API_KEY_ENV": "PROVIDER_KEY",
        }
        env = {f"REFDESK_{name}": value for name, value in settings.items()} | {"PROVIDER_KEY": provider_key}
        (tmp_path / "note.md").write_text("# A note\n\nThe pendulum.\n")
        for arguments in (
            ["tenant", "create", ours.tenant],
            ["ingest", tmp_path / "note.md", "--tenant", ours.tenant],
        ):
            run = scripts.admin(*arguments, "--data", tmp_path / "data", env=env)
            assert run.returncode == 0, run.stderr
        (tmp_path / "data" / "keys.json").write_bytes((crowd.data / "keys.json").read_bytes())
        (tmp_path / "data" / "keys.json").chmod(0o600)
        remote, before = listen(tmp_path / "data", more=env), len(provider.asked)
        search = message(
            "tools/call", {"name": "search", "arguments": {"query": "swinging", "mode": "dense"}}
        )
        more = (
            ("Cookie", VISITOR),
            ("X-Forwarded-For", VISITOR),
            ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"),
        )
        for era in ERAS:
            request = posted(era, ours.key, search)
            answer = answer_to(remote.port, replace(request, headers=request.headers + more))
            assert b"The pendulum." in answer.body
        calls = provider.asked[before:]
        assert len([call for call in calls if b"swinging" in call.body]) == len(ERAS)
        for call in calls:
            assert call.headers["authorization"] == f"Bearer {provider_key}"
            assert not [value for value in call.headers.values() if ours.key in value or VISITOR in value]
            assert ours.key.encode() not in call.body
            assert ours.name.encode() not in call.body
        connections = psutil.Process(remote.process.pid).net_connections()
        ends = {
            connection.raddr.port
            for connection in connections
            if connection.raddr and connection.laddr.port != remote.port
        }
        assert ends <= {provider.server_port}


CASES: list[Callable[[str], str]] = [
    str.upper,
    str.title,
    str.swapcase,
    lambda name: f"{name} ",
    lambda name: f"\ufeff{name}",
]


@pytest.mark.parametrize("era", ERAS)
def test_d13_a_member_under_another_name_is_not_that_member(remote: Remote, crowd: Crowd, era: Era) -> None:
    person = crowd.people[0]
    honest = posted(era, person.key, search(person))
    assert finds(answer_to(remote.port, honest), person)
    for member in ("jsonrpc", "id", "method", "params", "name", "arguments", "query", "mode"):
        for change in CASES:
            if (name := change(member)) == member:
                continue
            body = honest.body.replace(f'"{member}":'.encode(), f"{json.dumps(name)}:".encode())
            assert body != honest.body
            assert not finds(answer_to(remote.port, replace(honest, body=body)), person), name


TOOLS = [
    *("ingest", "delete", "remove", "sql", "query", "exec", "eval", "set_level", "read_file", "list_tables"),
    *("refdesk.search", "Search", "search ", "search\0", "__init__", "../search", "", "get_source2", "purge"),
    *("add_document", "grant", "access", "key", "tenant", "shutdown", "fetch_url", "file://", "_search"),
]
METHODS = [
    *(
        "tools/delete",
        "tools/create",
        "tools/execute",
        "resources/write",
        "resources/delete",
        "resources/update",
    ),
    *("resources/subscribe", "resources/unsubscribe", "logging/setLevel", "sampling/createMessage"),
    *("roots/list", "elicitation/create", "subscriptions/listen", "tasks/list", "tasks/cancel", "tasks/get"),
    *(
        "admin",
        "rpc.discover",
        "system.listMethods",
        "shutdown",
        "exit",
        "$/cancelRequest",
        "eval",
        "__class__",
    ),
]
URIS = [
    *(
        "file:///etc/passwd",
        "file://",
        "http://127.0.0.1/",
        "refdesk://../../etc/passwd",
        "refdesk:///",
        "data:,x",
    ),
    *(
        "refdesk://documents/../keys.json",
        "refdesk://keys.json",
        "/etc/passwd",
        "..",
        "\\\\host\\share",
        "lance://",
    ),
]


def digest(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_d14_there_are_two_tools_and_whatever_else_is_guessed_changes_nothing(
    remote: Remote, crowd: Crowd
) -> None:
    person = crowd.people[0]
    before = digest(crowd.data)
    guesses: list[Message] = [
        *(message("tools/call", {"name": name, "arguments": {"query": "x"}}) for name in TOOLS),
        *(message(method, {"uri": "x", "level": "debug", "name": "x"}) for method in METHODS),
        *(message("resources/read", {"uri": uri}) for uri in URIS),
    ]
    with ExitStack() as stack:
        channel = stack.enter_context(Channel(remote.port))
        events, path = stack.enter_context(stream(remote.port, person.key))
        for era in ERAS:
            listed = channel.ask(posted(era, person.key, message("tools/list")))
            assert listed
            assert {tool["name"] for tool in listed.json["result"]["tools"]} == {"search", "get_source"}
            for guess in guesses:
                answer = channel.ask(posted(era, person.key, guess))
                assert answer
                assert 200 <= answer.status < 500
                expect_refused(answer.json)
        for guess in guesses:
            answer = channel.ask(posted("legacy", person.key, guess, path=path))
            assert answer
            assert answer.status == 202
            expect_refused(json.loads(events.event()))
    assert finds(answer_to(remote.port, posted("modern", person.key, search(person))), person)
    assert digest(crowd.data) == before


def expect_refused(answer: Message) -> None:
    assert answer["error"]["code"] in REFUSED
    assert len(json.dumps(answer)) < 300

"""Messages that went wrong, drawn by number: the same number gives the same message, and what it may bring.

A message is honest at first. Then something happens to its members, to its bytes, or to the head of the
request that carries it; often to several of them.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tests.attacks.raw_http import ENVELOPE, GREETING, USUAL, Request, bearer, message, routing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tests.server.conftest import Era, Message

Transport: TypeAlias = Literal["stdio-legacy", "stdio-modern", "legacy", "modern", "sse"]
METHODS = frozenset(
    {
        *("initialize", "ping", "server/discover", "tools/list", "tools/call", "completion/complete"),
        *("resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get"),
    }
)
ARGUMENTS = {
    "search": {"query", "limit", "mode", "collections", "sources", "exclude_sources", "filter", "max_chars"},
    "get_source": {"id", "start", "around", "max_chars"},
}
SECRET = "quokkamarrow"  # noqa: S105 it stands in queries, and so never in a log
FIRST_ID = 1000  # smaller ones are drawn as wrong ids


@dataclass(frozen=True, slots=True)
class Mutant:
    """A message as it is sent, and how it came about. `request` is what carries it over HTTP.

    Where the head of the request went wrong, so that one can't tell where it ends, it is `broken`.
    """

    number: int
    body: bytes
    request: Request
    marks: tuple[str, ...]
    broken: bool = False


_Drawn: TypeAlias = random.Random


def mutant(number: int, transport: Transport, key: str = "", path: str = "/mcp") -> Mutant:
    """The message of this number."""
    drawn = random.Random(f"{transport} {number}")  # noqa: S311 repeatable, not secret
    era: Era = "modern" if "modern" in transport else "legacy"
    method, params = _honest(drawn, transport)
    tree = message(method, params, FIRST_ID + number)
    if era == "modern":
        tree["params"] = {"_meta": ENVELOPE, **params}
    if method.startswith("notifications/"):
        del tree["id"]
    marks = []
    tree = json.loads(json.dumps(tree))
    if drawn.random() < 0.75:
        for change in drawn.choices(_CHANGES, k=drawn.choice((1, 1, 1, 2, 3))):
            marks.append(change.__name__)
            tree = change(drawn, tree)
    body = _written(drawn, tree)
    if not marks or drawn.random() < 0.35:
        damage = drawn.choice(_DAMAGES)
        marks.append(damage.__name__)
        body = damage(drawn, body)
    if transport.startswith("stdio"):  # there, a line is a message
        return Mutant(number, body.translate(_ONE_LINE), Request(), tuple(marks))
    headers = USUAL + bearer(key) + (routing(method, params) if era == "modern" else ())
    request, broken = Request(headers, body, path=path), False
    if drawn.random() < 0.15:
        bend = drawn.choice(_BENDS)
        marks.append(bend.__name__)
        request = bend(drawn, request)
    elif drawn.random() < 0.03:
        break_ = drawn.choice(_BREAKS)
        marks.append(break_.__name__)
        request, broken = break_(drawn, request), True
    return Mutant(number, request.body, request, tuple(marks), broken)


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def _honest(drawn: _Drawn, transport: Transport) -> tuple[str, Message]:
    weights = [weight for *_, weight in _MESSAGES]
    method, params, _ = drawn.choices(_MESSAGES, weights)[0]
    if transport == "modern" and method == "ping":
        method = "server/discover"
    return method, params


_MESSAGES: list[tuple[str, Message, int]] = [
    ("ping", {}, 20),
    ("tools/list", {}, 1),
    ("tools/call", {"name": "search", "arguments": {"query": SECRET, "mode": "sparse", "limit": 2}}, 2),
    ("tools/call", {"name": "search", "arguments": {"query": "", "filter": {"year": {"$gte": 1}}}}, 2),
    ("tools/call", {"name": "get_source", "arguments": {"id": "a" * 16, "start": 0, "around": 1}}, 5),
    ("resources/list", {"cursor": "ZG9jdW1lbnRzL2E="}, 3),
    ("resources/templates/list", {}, 4),
    ("resources/read", {"uri": f"refdesk://documents/{'a' * 16}"}, 10),
    ("prompts/list", {}, 4),
    ("prompts/get", {"name": "answer", "arguments": {"question": SECRET}}, 8),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"},
            "argument": {"name": "collection", "value": "d"},
        },
        4,
    ),
    ("initialize", GREETING, 3),
    ("notifications/initialized", {}, 2),
    ("notifications/cancelled", {"requestId": 10**12}, 2),
]


# What happens to members.

_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, -0.0, 2**31, 2**53 + 1, 2**64, -(10**30), 1e308, "", " ", "0", "null"),
    *([], {}, [[]], [None], {"": ""}, "\0", "\r\n", "\ud800", "\u202e", "é", "x" * 300, ["x"] * 300),
    *(float("nan"), float("inf"), "../../etc/passwd", "file:///etc/passwd", "' OR 1=1 --", "%s%n{0}"),
    *({"$where": "1"}, "${jndi:ldap://127.0.0.1/x}", "a" * 10_000),
]
_IDS: list[Any] = [None, True, False, 0, 1, 1.0, 1.5, -1, 2**53, 2**64, 10**400, "", "1", "null", [], {}, [1]]
_WRONG_METHODS = [
    *("Tools/Call", "TOOLS/LIST", "tools/call ", " ping", "tools//call", "tools/call\0", "ping\n", "", "*"),
    *("ingest", "delete", "tools/delete", "resources/write", "resources/subscribe", "logging/setLevel"),
    *("sampling/createMessage", "roots/list", "subscriptions/listen", "rpc.discover", "__init__", "pÿng"),
    *("../tools/list", "notifications/nonsense", "notifications/cancelled", "tasks/list", "x" * 5_000),
]
_PLACEHOLDER = "\ue000placeholder\ue000"


def _places(tree: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 any JSON
    """Every place in a tree, as what holds it and its key or index there."""
    here = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
    below = [place for _, value in here if isinstance(value, dict | list) for place in _places(value)]
    return [(tree, key) for key, _ in here] + below


def _put(drawn: _Drawn, tree: Any, value: Any) -> Any:  # noqa: ANN401 any JSON
    if not isinstance(tree, dict | list) or not tree:
        return value
    holder, key = drawn.choice(_places(tree))
    holder[key] = value
    return tree


def _odd(drawn: _Drawn) -> Any:  # noqa: ANN401 any JSON
    return deepcopy(drawn.choice(_ODD))  # it may be changed in its turn


def swapped(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    return _put(drawn, tree, _odd(drawn))


def dropped(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    if isinstance(tree, dict) and tree:
        holder, key = drawn.choice(_places(tree))
        del holder[key]
    return tree


def added(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    name = drawn.choice(["tenant", "__proto__", "result", "error", "user", "", "x" * 200, "_meta", "id"])
    if isinstance(tree, dict):
        holders = [tree] + [holder[key] for holder, key in _places(tree) if isinstance(holder[key], dict)]
        drawn.choice(holders)[name] = _odd(drawn)
    return tree


def other_case(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    places = [(at, key) for at, key in _places(tree) if key and isinstance(key, str)] if tree else []
    if places:
        holder, key = drawn.choice(places)
        holder[drawn.choice([str.upper, str.title, str.swapcase])(key)] = holder.pop(key)
    return tree


def other_id(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    return tree | {"id": deepcopy(drawn.choice(_IDS))} if isinstance(tree, dict) else tree


def other_method(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    return tree | {"method": drawn.choice(_WRONG_METHODS)} if isinstance(tree, dict) else tree


def other_version(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    versions = ["1.0", "2", 2.0, "2.0 ", "", None, "3.0"]
    return tree | {"jsonrpc": drawn.choice(versions)} if isinstance(tree, dict) else tree


def in_batch(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    return drawn.choice([[tree], [tree, deepcopy(tree)], [[tree]], {"batch": [tree]}])


def with_text(drawn: _Drawn, tree: Any) -> Any:  # noqa: ANN401 any JSON
    return _put(drawn, tree, _PLACEHOLDER)


_CHANGES: list[Callable[[_Drawn, Any], Any]] = [
    *(swapped, swapped, swapped, dropped, added, other_case, other_case),
    *(other_id, other_id, other_method, other_version, in_batch, with_text, with_text),
]


def _written(drawn: _Drawn, tree: Any) -> bytes:  # noqa: ANN401 any JSON
    """The bytes of a tree, in which a placeholder gives way to what no library writes."""
    separators = drawn.choice([(",", ":"), (", ", ": "), (" ,\t", " :\t")])
    text = json.dumps(tree, separators=separators, ensure_ascii=drawn.random() < 0.8)
    placeholder = json.dumps(_PLACEHOLDER, ensure_ascii="\\ue000" in text)
    if placeholder in text:
        text = text.replace(placeholder, drawn.choice(_TEXTS)(drawn), 1)
    return text.encode("utf-8", "surrogatepass")


def _deep(drawn: _Drawn) -> str:
    depth = drawn.choice([50, 100, 150, 5_000, 100_000])
    opening, closing = drawn.choice([("[", "]"), ('{"a":', "}")])
    return opening * depth + "1" + closing * (depth if drawn.random() < 0.8 else 0)


def _number(drawn: _Drawn) -> str:
    digits = "9" * drawn.choice([20, 400, 4_299, 4_301, 100_000])
    return drawn.choice(
        [digits, f"-{digits}", f"1.{digits}", "1e400", "-1E400", "01", "+1", "0x1", ".5", "1."]
    )


def _literal(drawn: _Drawn) -> str:
    return drawn.choice(
        ["NaN", "Infinity", "-Infinity", "undefined", "'x'", "TRUE", "nul", "/**/1", "\\u0041"]
    )


def _string(drawn: _Drawn) -> str:
    odd = ["\\ud800", "\\udc00\\ud800", "\\u0000", "\\x41", "\\", "\t", "\x00", "x" * 100_000, "\\u12"]
    return f'"{drawn.choice(odd)}"'


_TEXTS: list[Callable[[_Drawn], str]] = [_deep, _number, _literal, _string]


# What happens to bytes.


def cut(drawn: _Drawn, body: bytes) -> bytes:
    return body[: drawn.randrange(len(body))] if body else body


def flipped(drawn: _Drawn, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(drawn.choice([1, 1, 2, 8]) if body else 0):
        changed[drawn.randrange(len(changed))] ^= 1 << drawn.randrange(8)
    return bytes(changed)


def stuffed(drawn: _Drawn, body: bytes) -> bytes:
    odd = [
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\0",
        b"\x1b[2J",
        b",",
        b"}",
        b'"',
    ]
    at = drawn.randrange(len(body) + 1)
    return body[:at] + drawn.choice([*odd, drawn.randbytes(9)]) + body[at:]


def repeated(drawn: _Drawn, body: bytes) -> bytes:
    start, end = sorted(drawn.choices(range(len(body) + 1), k=2))
    return body[:end] + body[start:]


def doubled_member(drawn: _Drawn, body: bytes) -> bytes:
    members = [
        b'"id":7',
        b'"method":"ping"',
        b'"jsonrpc":"1.0"',
        b'"params":{}',
        b'"id":null',
        b'"params":[]',
    ]
    return body.replace(b"{", b"{" + drawn.choice(members) + b",", 1)


def encoded(drawn: _Drawn, body: bytes) -> bytes:
    return body.decode("utf-8", "replace").encode(drawn.choice(["utf-16", "utf-32", "utf-16-be"]))


def compressed(_drawn: _Drawn, body: bytes) -> bytes:
    return gzip.compress(body, 1)


def surrounded(drawn: _Drawn, body: bytes) -> bytes:
    ends = [b" ", b"\0", b"\n", b"}", b"{}", b",", b"\x1e", b"Content-Length: 2 ", b")]}',"]
    return drawn.choice(ends) + body + drawn.choice(ends)


def of_nothing(drawn: _Drawn, _body: bytes) -> bytes:
    return drawn.choice([b"", b" ", b"null", b"[]", b"{}", b"0", b'""', drawn.randbytes(40)])


_DAMAGES: list[Callable[[_Drawn, bytes], bytes]] = [
    *(cut, flipped, flipped, stuffed, repeated, doubled_member),
    *(doubled_member, encoded, compressed, surrounded, of_nothing),
]


# What happens to the head of a request.


def _with(request: Request, *headers: tuple[str, str]) -> Request:
    """With these headers in place of others of the same names."""
    names = {name.lower() for name, _ in headers}
    unchanged = tuple(header for header in request.headers if header[0].lower() not in names)
    return replace(request, headers=unchanged + headers)


def other_accept(drawn: _Drawn, request: Request) -> Request:
    odd = ["", "*/*", "text/html", "application/json", "text/event-stream", "application/json;q=0", "," * 99]
    return _with(request, ("Accept", drawn.choice(odd)))


def other_content_type(drawn: _Drawn, request: Request) -> Request:
    odd = ["", "text/plain", "application/jsonp", "APPLICATION/JSON", "application/json; charset=utf-16"]
    odd += ["multipart/form-data", "application/x-www-form-urlencoded", "application/json, text/html", "é"]
    return _with(request, ("Content-Type", drawn.choice(odd)))


def other_encoding(drawn: _Drawn, request: Request) -> Request:
    coding = drawn.choice(["gzip", "deflate", "br", "identity", "gzip, gzip", "x" * 99])
    body = gzip.compress(request.body, 1) if "gzip" in coding else request.body
    return replace(_with(request, ("Content-Encoding", coding)), body=body)


def other_protocol_version(drawn: _Drawn, request: Request) -> Request:
    odd = [
        "",
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
        "2026-07-28 ",
        "2099-01-01",
    ]
    return _with(request, ("MCP-Protocol-Version", drawn.choice([*odd, "1", "x" * 5_000, "../2025-11-25"])))


def other_routing(drawn: _Drawn, request: Request) -> Request:
    name = drawn.choice(["Mcp-Method", "Mcp-Name", "Mcp-Param-Query", "Mcp-Param-tenant", "Mcp-Session-Id"])
    value = drawn.choice(
        ["", "ping", "tools/call", "search", "=?base64?!!?=", "=?base64?w7w=?=", "x" * 5_000]
    )
    return _with(request, (name, value))


def doubled_header(drawn: _Drawn, request: Request) -> Request:
    name, value = drawn.choice([header for header in request.headers if header[0] != "Authorization"])
    return replace(request, headers=(*request.headers, (name, drawn.choice([value, "x"]))))


def long_uri(drawn: _Drawn, request: Request) -> Request:
    more = drawn.choice(["x=" + "a" * 100_000, "x&" * 5_000, "%00%ff%2e%2e" * 400])
    return replace(request, path=f"{request.path}{'&' if '?' in request.path else '?'}{more}")


def other_path(drawn: _Drawn, request: Request) -> Request:
    odd = ["/", "/MCP", "/mcp/", "//mcp", "/mcp/x", "/mcp%00", "/./mcp", "/mcp/../mcp", "/sse/", "/messages"]
    odd += ["/messages/?session_id=" + value for value in ("", "x", "0" * 32, "%0a", "x" * 5_000)]
    return replace(request, path=drawn.choice([*odd, "/healthz", "/.well-known/x", "*", "http://x/mcp"]))


def other_verb(drawn: _Drawn, request: Request) -> Request:
    return replace(
        request, method=drawn.choice(["GET", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "POSTS"])
    )


def many_headers(drawn: _Drawn, request: Request) -> Request:
    more = tuple((f"X-{number}", "y" * 30) for number in range(drawn.choice([50, 150, 2_000])))
    return replace(request, headers=request.headers + more)


def other_credentials(drawn: _Drawn, request: Request) -> Request:
    odd = [
        "",
        "Bearer",
        "Bearer ",
        "Basic eDp4",
        "Bearer rdk_00000000_",
        "Bearer " + "x" * 9_000,
        "rdk_",
        "é",
    ]
    return _with(request, ("Authorization", drawn.choice(odd)))


def other_host(drawn: _Drawn, request: Request) -> Request:
    name, values = drawn.choice(
        [
            ("Host", ["", "evil.example", "x" * 2_000]),
            ("Origin", ["null", "http://evil.example", "x" * 2_000]),
        ]
    )
    return _with(request, (name, drawn.choice(values)))


def expecting(drawn: _Drawn, request: Request) -> Request:
    odd = [("Expect", "100-continue"), ("Upgrade", "websocket"), ("TE", "trailers"), ("Connection", "close")]
    return _with(request, drawn.choice([*odd, ("Connection", "Upgrade"), ("X-HTTP-Method-Override", "GET")]))


_BENDS: list[Callable[[_Drawn, Request], Request]] = [
    *(other_accept, other_content_type, other_encoding, other_protocol_version, other_routing, other_routing),
    *(
        doubled_header,
        long_uri,
        other_path,
        other_verb,
        many_headers,
        other_credentials,
        other_host,
        expecting,
    ),
]


def other_length(drawn: _Drawn, request: Request) -> Request:
    size = len(request.body)
    odd = [size // 2, size + 9, -1, "", "x", "1e3", f"+{size}", 10**30, f"{size}, {size}", 2**21]
    length = ("Content-Length", str(drawn.choice(odd)))
    again = (length, ("Content-Length", str(size)))
    return replace(request, headers=request.headers + drawn.choice([(length,), again]), framed=False)


def chunked(drawn: _Drawn, request: Request) -> Request:
    size, body = f"{len(request.body):x}".encode(), request.body
    bodies = [
        size + b"\r\n" + body + b"\r\n0\r\n\r\n",
        b"zz\r\n",
        b"-5\r\n",
        b"f" * 40 + b"\r\n",
        b"0\r\n\r\n",
    ]
    bodies += [size + b"\r\n" + body, b"1\r\n{\r\n" * 400, size + b";" + b"x" * 9_000 + b"\r\n" + body]
    headers = (
        *request.headers,
        ("Transfer-Encoding", drawn.choice(["chunked", "chunked", "gzip", "xchunked"])),
    )
    return replace(request, headers=headers, body=drawn.choice(bodies), framed=drawn.random() < 0.2)


def broken_head(drawn: _Drawn, request: Request) -> Request:
    odd = [("X-Odd", "a\r\nX-More: b"), ("X Odd", "a"), ("X-Odd", "a\0b"), ("", "a"), ("X-Odd", "\r\n\r\n")]
    return replace(request, headers=(*request.headers, drawn.choice([*odd, ("X-Odd", "z" * 100_000)])))


def broken_line(drawn: _Drawn, request: Request) -> Request:
    methods = [
        "",
        "POST /mcp HTTP/1.1\r\nX:",
        "\0",
        "POST" * 9_000,
        "\x16\x03\x01",
        "PRI * HTTP/2.0\r\n\r\nSM",
    ]
    return replace(request, method=drawn.choice(methods))


_BREAKS: list[Callable[[_Drawn, Request], Request]] = [other_length, chunked, broken_head, broken_line]


# What it may bring.


def understood(body: bytes | str) -> Any:  # noqa: ANN401 any JSON
    """What a lenient reader understands; None where it is no JSON, or too deep or too long a number."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def is_request(message: Any) -> bool:  # noqa: ANN401 any JSON
    """Whether it is owed an answer that bears its id."""
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and type(message.get("id")) in {int, str}
        and isinstance(message.get("method"), str)
        and ("params" not in message or isinstance(message["params"], dict | None))
    )


def id_in(message: Any) -> str:  # noqa: ANN401 any JSON
    """The id, as JSON, that an answer may bear beside null; empty where there is none to bear.

    Half a character counts as U+FFFD.
    """
    id_ = message.get("id") if isinstance(message, dict) else None
    whole = re.sub("[\ud800-\udfff]", "\ufffd", id_) if isinstance(id_, str) else id_
    return json.dumps(whole) if type(id_) in {int, str} else ""


def may_succeed(message: Any) -> bool:  # noqa: ANN401 any JSON
    """Whether a request is one that can be answered with a result: its names are right, to the letter."""
    if not is_request(message) or message["method"] not in METHODS:
        return False
    if message["method"] != "tools/call":
        return True
    params = message.get("params") or {}
    allowed, arguments = ARGUMENTS.get(str(params.get("name"))), _arguments(params.get("arguments"))
    return allowed is not None and isinstance(arguments, dict) and {*arguments} <= allowed


def _arguments(sent: Any) -> Any:  # noqa: ANN401 any JSON
    """What a tool is called with: some hosts send it as JSON in a string, and some encode that twice."""
    while isinstance(sent, str) and sent.strip() not in {"", "null"}:
        decoded = understood(sent)
        if decoded is None:
            return sent
        sent = decoded
    return {} if sent is None or isinstance(sent, str) else sent

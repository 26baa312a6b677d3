"""B: no answer tells by its words, its shape or its numbers that there is something hidden."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rag.corpus import Access, Principal
from rag.errors import NotFoundError
from rag.search.pipeline import BY_FILES, COMPARE_DATES, DIFFERING
from rag.search.tool_arguments import SourceArguments
from rag.store.read import sources_reader
from rag.store.read.collection_reader import CollectionReader
from server.tool_listing import FILTER_DESCRIPTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from rag.answers import Mode
    from tests.attacks.conftest import Asker, Paper, Shelf, World
    from tests.server.conftest import Message

    Askers: TypeAlias = dict[str, Asker]

pytestmark = pytest.mark.slow

MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
PRINCIPALS = ("a0-modern", "a1-legacy", "a2-modern", "b0-legacy", "b1-modern")
PAGE = 50  # sources in a page of resources/list
INVALID_CURSOR = {"code": -32602, "message": "Invalid cursor"}

CALLS: dict[str, Callable[[Paper], tuple[str, Message]]] = {
    "B1-get-source": lambda paper: ("get_source", {"id": paper.id}),
    "B1-get-chunk": lambda paper: ("get_source", {"id": f"{paper.id}/0"}),
    "B1-get-around": lambda paper: ("get_source", {"id": f"{paper.id}/0", "around": 1}),
    "B1-get-around-source": lambda paper: ("get_source", {"id": paper.id, "around": 1}),
    "B1-get-start": lambda paper: ("get_source", {"id": paper.id, "start": 5}),
    "B1-get-start-beyond": lambda paper: ("get_source", {"id": paper.id, "start": 10**9}),
    "B1-get-uri": lambda paper: ("get_source", {"id": paper.uri}),
    "B1-get-chunk-uri": lambda paper: ("get_source", {"id": f"{paper.uri}/0", "max_chars": 2_000}),
    "B1-get-path": lambda paper: ("get_source", {"id": f"{paper.collection}/{paper.path}"}),
    "B1-get-path-alone": lambda paper: ("get_source", {"id": paper.path, "outline": True}),
    "B1-get-path-uri": lambda paper: ("get_source", {"id": f"refdesk://{paper.collection}/{paper.path}"}),
    "B1-get-lines": lambda paper: ("get_source", {"id": paper.id, "lines": "1-9"}),
    "B1-get-lines-beyond": lambda paper: ("get_source", {"id": paper.id, "lines": "99999"}),
    "B1-get-section": lambda paper: ("get_source", {"id": paper.id, "section": "no such heading"}),
    "B1-read": lambda paper: ("", {"uri": paper.uri}),
    "B1-read-chunk": lambda paper: ("", {"uri": f"{paper.uri}/0"}),
    "B1-get-cited": lambda paper: ("get_source", {"id": f"{paper.id}@aaaaaaaa/0"}),
    "B1-read-cited": lambda paper: ("", {"uri": f"{paper.uri}@aaaaaaaa/0"}),
    "B1-search-cited": lambda paper: ("search", {"query": "page", "sources": [f"{paper.id}@aaaaaaaa/0"]}),
    "B1-related-cited": lambda paper: ("search", {"related": f"{paper.id}@aaaaaaaa/0"}),
    "B1-search-dense": lambda paper: ("search", {"query": "x", "sources": [paper.id], "mode": "dense"}),
    "B1-search-sparse": lambda paper: ("search", {"query": "page", "sources": [paper.id], "mode": "sparse"}),
    "B1-search-hybrid": lambda paper: ("search", {"query": "page", "sources": [paper.id]}),
    "B1-search-without": lambda paper: ("search", {"query": "page one", "exclude_sources": [paper.id]}),
    "B1-search-filter": lambda paper: (
        "search",
        {"query": "page", "sources": [paper.id], "filter": {"year": {"$gt": 0}}},
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", ["a0-legacy", "a2-modern"])
def test_b1_what_is_foreign_denied_removed_or_not_there_is_answered_in_the_same_bytes(
    world: World, askers: Askers, name: str, call: Callable[[Paper], tuple[str, Message]]
) -> None:
    (readable,) = [paper for paper in world.readable(name) if paper.path == "one.md"]
    hidden = world.kinds(name)
    absent = [
        replace(paper, id=letter * 16, path=f"{letter}{paper.path}")
        for paper, letter in zip(hidden, "abc", strict=False)
    ]
    answers = {masked(askers[name], call, paper) for paper in [*hidden, *absent]}
    assert len(answers) == 1
    assert masked(askers[name], call, readable) not in answers


def masked(asker: Asker, call: Callable[[Paper], tuple[str, Message]], paper: Paper) -> bytes:
    """The bytes of an answer, without the name that was asked for."""
    tool, arguments = call(paper)
    answer = asker.call(tool, **arguments) if tool else asker.raw("resources/read", arguments)
    return answer.replace(paper.uri.encode(), b"").replace(paper.id.encode(), b"")


@pytest.mark.anyio
@pytest.mark.parametrize("rows_kept", [0, sources_reader.ROWS_KEPT])
async def test_b2_what_is_denied_costs_as_many_reads_as_what_is_not_there(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, rows_kept: int
) -> None:
    monkeypatch.setattr(sources_reader, "ROWS_KEPT", rows_kept)
    monkeypatch.setattr(sources_reader, "MOST_ROWS_KEPT", rows_kept)
    nobody, me = Access("restricted"), Principal("acorn", "anselma")
    await shelf.put("acorn", {"denied": (nobody, ["pendulum"]), "open": (Access("tenant"), ["pendulum"])})
    ids = {source.title: source.id for source in await shelf.sources("acorn")}
    desk, table = shelf.desk(), CollectionReader._table  # noqa: SLF001 every read passes it
    reads: list[object] = []

    async def counted(*arguments: Any) -> object:  # noqa: ANN401 whatever the method takes
        reads.append(arguments)
        return await table(*arguments)

    await desk.extract(me, ids["open"], max_chars=99)  # reads all rows, if they are kept
    monkeypatch.setattr(CollectionReader, "_table", counted)
    cost: dict[str, int] = {}
    for id_ in (ids["denied"], "a" * 16):
        for name in (id_, f"{id_}/0", id_):
            with pytest.raises(NotFoundError):
                await desk.extract(me, name, max_chars=99)
        cost[id_], reads = len(reads), []
    assert cost[ids["denied"]] == cost["a" * 16]
    assert (cost["a" * 16] > 0) == (rows_kept == 0)


def a_search(**arguments: object) -> tuple[str, Message]:
    return "tools/call", {"name": "search", "arguments": {"query": "x", **arguments}}


def a_completion(typed: str) -> tuple[str, Message]:
    ref = {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"}
    return "completion/complete", {"ref": ref, "argument": {"name": "collection", "value": typed}}


NAMES: dict[str, tuple[str, str, Callable[[str], tuple[str, Message]]]] = {
    "B1-collection": ("vault", "vaunt", lambda name: a_search(collections=[name])),
    "B1-collection-beside": ("vault", "vaunt", lambda name: a_search(collections=["handbook", name])),
    "B1-field": ("clearance", "clearanse", lambda name: a_search(filter={name: "cosmic"})),
    "B1-field-of-another-tenant": ("codename", "codenane", lambda name: a_search(filter={name: "umbra"})),
    "B1-completion": ("vault", "vaunt", a_completion),
}


@pytest.mark.parametrize(("hidden", "absent", "request_of"), NAMES.values(), ids=NAMES)
def test_b1_a_name_that_is_hidden_is_answered_like_one_that_nothing_has(
    askers: Askers, hidden: str, absent: str, request_of: Callable[[str], tuple[str, Message]]
) -> None:
    for name in ("a0-legacy", "a0-modern", "a2-modern"):
        answers = [
            askers[name].raw(*request_of(word)).replace(word.encode(), b"") for word in (hidden, absent)
        ]
        assert answers[0] == answers[1]
    reader = askers["b1-modern" if hidden == "codename" else "a1-legacy"]
    answers = [reader.raw(*request_of(word)).replace(word.encode(), b"") for word in (hidden, absent)]
    assert answers[0] != answers[1]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"B3-{mode}")
@pytest.mark.parametrize("name", ["a0-legacy", "b0-legacy"])
def test_b3_a_word_that_only_others_hold_is_like_one_that_nobody_holds(
    world: World, askers: Askers, name: str, mode: Mode
) -> None:
    asker = askers[name]
    for paper in world.kinds(name):
        replies = [
            asker.tool("search", {"query": word, "mode": mode, "limit": 100, "max_chars": 100_000})
            for word in (paper.canary, paper.canary[::-1])
        ]
        assert shape(replies[0]) == shape(replies[1])
        if mode == "sparse":
            assert replies[0] == replies[1]


def shape(reply: Message) -> tuple[object, ...]:
    """What a reply consists of but for order and numbers, which follow the words of the question."""
    content = reply["structuredContent"]
    hits = sorted((hit["id"], hit["text"], sorted(hit)) for hit in content["results"])
    return hits, content["notes"], sorted(content), sorted(reply)


FILTERS: dict[str, tuple[Message, Message]] = {
    "B3-filter-value": ({"status": "embargoed"}, {"status": "embargoet"}),
    "B3-filter-beside": (
        {"status": "embargoed", "year": 1888, "tags": "red"},
        {"status": "embargoet", "year": 1888, "tags": "red"},
    ),
    "B3-filter-order": ({"year": {"$gt": 2030, "$lt": 2040}}, {"year": {"$gt": 3030, "$lt": 3040}}),
    "B3-filter-in": ({"year": {"$in": [2031, 2032]}}, {"year": {"$in": [3031, 3032]}}),
    "B3-filter-or": ({"$or": [{"year": 2031}, {"year": 0}]}, {"$or": [{"year": 3031}, {"year": 0}]}),
    "B3-filter-not": (
        {"$not": {"$or": [{"status": {"$ne": "embargoed"}}, {"year": {"$ne": 2031}}]}},
        {"$not": {"$or": [{"status": {"$ne": "embargoet"}}, {"year": {"$ne": 3031}}]}},
    ),
    "B3-filter-exists": (
        {"status": "embargoed", "price": {"$exists": False}},
        {"status": "embargoet", "price": {"$exists": False}},
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("hidden", "absent"), FILTERS.values(), ids=FILTERS)
def test_b3_a_filter_that_only_hidden_documents_satisfy_is_like_one_that_none_satisfies(
    world: World, askers: Askers, hidden: Message, absent: Message, mode: Mode
) -> None:
    replies = []
    for filter_ in (hidden, absent):
        reply = askers["a0-modern"].call(
            "search", query="pendulum", mode=mode, filter=filter_, collections=["ledger"]
        )
        content = json.loads(reply)["result"]["structuredContent"]
        assert content["results"] == []
        assert content["notes"]
        replies.append(reply)
    assert replies[0] == replies[1]
    hits = askers["a1-legacy"].hits(mode=mode, filter=hidden, collections=["ledger"])
    assert ([hit["id"].partition("/")[0] for hit in hits] == [world.paper("oxbowmint").id]) is (
        "1888" not in str(hidden)
    )


@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_b4_nothing_is_told_beside_the_answer(world: World, askers: Askers, name: str) -> None:
    for paper in (world.paper("quornlight"), world.paper("brimwattle"), world.paper("copperlark")):
        for tool, arguments in (("search", {"query": paper.canary}), ("get_source", {"id": paper.id})):
            params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 7}}
            askers[name].send(7, "tools/call", params)
            assert askers[name].read()["id"] == 7
    assert askers[name].result("tools/list")["tools"]
    assert all(b"refdesk.audit" in line for line in askers[name].noise.splitlines())


REPLY_KEYS = {
    "search": {"results", "notes", "searched", "trust"},
    "hit": {
        *("id", "title", "cite_as", "uri", "collection", "date", "text", "start", "end", "tokens"),
        *("revision", "lists", "score", "similarity", "metadata", "date_from"),
    },
    "get_source": {
        *(
            "id",
            "uri",
            "revision",
            "title",
            "collection",
            "mime_type",
            "indexed_at",
            "metadata",
            "length",
            "start",
        ),
        *("end", "text", "outline", "chunks", "notes", "trust", "date", "date_from", "lines"),
        "line_count",
    },
    "outline": {"title", "level", "start"},
    "chunks": {"uri", "start", "end"},
    "resources": {"name", "title", "uri", "mimeType", "description", "size", "annotations"},
    "contents": {"uri", "mimeType", "text"},
}
METADATA = {"path", "status", "year", "price", "final", "due", "tags", "clearance", "codename", "language"}


@pytest.mark.parametrize("name", PRINCIPALS)
def test_b5_b8_a_reply_has_the_fields_that_it_must_have_and_no_others(
    world: World, askers: Askers, name: str
) -> None:
    asker = askers[name]
    reply = asker.tool("search", {"query": "pendulum bell", "limit": 100, "max_chars": 100_000})
    (block,) = reply["content"]
    content = reply["structuredContent"]
    assert json.loads(block["text"]) == content
    assert content.keys() - {"collection"} == REPLY_KEYS["search"]
    differing = DIFFERING.format(COMPARE_DATES)  # of papers that are shown
    assert {*content["notes"]} <= {f"{differing} {BY_FILES}"}
    assert {*content["searched"]} == {paper.collection for paper in world.readable(name)}
    for hit in content["results"]:
        assert hit.keys() <= REPLY_KEYS["hit"]
        assert hit["metadata"].keys() <= METADATA
        assert not hit["metadata"]["path"].startswith(("/", ".", "~"))
        assert 0 < hit["score"] <= 1
    for paper in [paper for paper in world.readable(name) if paper.canary]:
        opened = asker.tool("get_source", {"id": paper.id})["structuredContent"]
        assert opened.keys() <= REPLY_KEYS["get_source"]
        assert all(
            entry.keys() <= REPLY_KEYS[kind] for kind in ("outline", "chunks") for entry in opened[kind]
        )
        (contents,) = asker.result("resources/read", {"uri": paper.uri})["contents"]
        assert contents.keys() == REPLY_KEYS["contents"]
    listed = asker.result("resources/list")
    assert all(resource.keys() == REPLY_KEYS["resources"] for resource in listed["resources"])
    assert listed.keys() - {"nextCursor", "ttlMs", "cacheScope", "resultType", "_meta"} == {"resources"}


@pytest.mark.parametrize("name", PRINCIPALS)
def test_b5_a_listing_shows_and_counts_what_is_readable_and_no_more(
    world: World, askers: Askers, name: str
) -> None:
    asker, mine = askers[name], world.readable(name)
    top = asker.tool("get_source", {})["structuredContent"]
    counts = Counter(paper.collection for paper in mine)
    assert {entry["name"].rstrip("/"): entry["documents"] for entry in top["entries"]} == counts
    folders, ids = list(counts), set()
    while folders:
        folder = folders.pop()
        held = [paper for paper in mine if f"{paper.collection}/{paper.path}".startswith(f"{folder}/")]
        reply = asker.tool("get_source", {"id": folder, "max_chars": 100_000})["structuredContent"]
        assert reply["documents"] == len(held)
        folders += [
            f"{folder}/{entry['name'].rstrip('/')}" for entry in reply["entries"] if "id" not in entry
        ]
        ids |= {entry["id"] for entry in reply["entries"] if "id" in entry}
    assert ids == {paper.id for paper in mine}
    for paper in world.kinds(name):
        words = asker.tool_error("get_source", {"id": f"{paper.collection}/{paper.path}"})
        assert words.startswith("Nothing readable")


@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_b5_pages_are_full_whatever_is_hidden_between_their_entries(
    world: World, askers: Askers, name: str
) -> None:
    order = sorted((paper.collection, paper.id) for paper in world.papers if paper.tenant == "acorn")
    mine = sorted((paper.collection, paper.id) for paper in world.readable(name))
    page = askers[name].result("resources/list")
    named = [tuple(resource["uri"].removeprefix("refdesk://").split("/")) for resource in page["resources"]]
    assert named == mine[:PAGE] != order[:PAGE]
    assert decoded(page["nextCursor"]) == "/".join(mine[PAGE - 1])
    second = askers[name].result("resources/list", {"cursor": page["nextCursor"]})
    assert len(second["resources"]) == len(mine) - PAGE
    assert "nextCursor" not in second


def test_b5_an_id_is_no_hash_that_others_can_compute(world: World) -> None:
    assert len({paper.id for paper in world.papers}) == len(world.papers)
    for paper in world.papers:
        assert re.fullmatch("[a-z2-7]{16}", paper.id)
        file = world.folder / paper.file
        names = [paper.path, str(file), file.as_uri(), paper.text, paper.text.strip()]
        names += [json.dumps([paper.tenant, paper.collection, name]) for name in names[:3]]
        assert not {digest for name in names for digest in digests(name)} & {paper.id}


def digests(text: str) -> Iterator[str]:
    for kind in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s"):
        digest = hashlib.new(kind, text.encode()).digest()
        yield base64.b32encode(digest)[:16].decode().lower()
        yield digest.hex()[:16]
    yield base64.b32encode(hashlib.blake2b(text.encode(), digest_size=10).digest()).decode().lower()


def encoded(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


def decoded(cursor: str) -> str:
    return base64.urlsafe_b64decode(cursor).decode()


CURSORS = {
    "B6-denied": "vault/{glimmerfen}",
    "B6-before-denied": "vault/",
    "B6-denied-beside": "handbook/{brimwattle}",
    "B6-other-tenant": "handbook/{wyverncote}",
    "B6-removed": "handbook/{ashbarrow}",
    "B6-unknown-collection": "index/{brimwattle}",
    "B6-other-table": "chunks__tenant_birch__src_vault/{nettlespire}",
    "B6-quotes": "handbook/' OR 1=1 --",
    "B6-parentheses": "handbook/') OR ('1'='1",
    "B6-quoted-collection": "' OR 1=1 --/a",
    "B6-nul": "handbook/\0",
    "B6-megabyte": f"handbook/{'a' * 780_000}",  # as long in base 64
}


@pytest.mark.parametrize("named", CURSORS.values(), ids=CURSORS)
@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern", "a1-legacy"])
def test_b6_a_forged_cursor_is_a_place_in_the_list_of_what_is_readable(
    world: World, askers: Askers, name: str, named: str
) -> None:
    place = named.format_map({paper.canary: paper.id for paper in world.papers})
    collection, id_ = place.split("/")
    mine = sorted((paper.collection, paper.id, paper.uri) for paper in world.readable(name))
    expected = [uri for *of_paper, uri in mine if of_paper > [collection, id_]]
    page = askers[name].result("resources/list", {"cursor": encoded(place)})
    assert [resource["uri"] for resource in page["resources"]] == expected[:PAGE]


def test_b6_the_cursor_of_another_leads_to_nothing_of_theirs(world: World, askers: Askers) -> None:
    cursor = {"cursor": askers["a1-legacy"].result("resources/list")["nextCursor"]}
    mine = {paper.uri for paper in world.readable("a0")}
    for name in ("a0-legacy", "a0-modern"):
        listed = {resource["uri"] for resource in askers[name].result("resources/list", cursor)["resources"]}
        assert listed <= mine
    theirs = {
        resource["uri"] for resource in askers["a1-legacy"].result("resources/list", cursor)["resources"]
    }
    assert not theirs <= mine
    theirs_too = askers["b0-legacy"].result("resources/list", cursor)["resources"]
    assert {resource["uri"] for resource in theirs_too} <= {paper.uri for paper in world.readable("b0")}


@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_b6_a_cursor_with_a_flipped_bit_is_refused_or_another_place_in_the_same_list(
    world: World, askers: Askers, name: str
) -> None:
    asker, mine = askers[name], {paper.uri for paper in world.readable(name)}
    cursor = asker.result("resources/list")["nextCursor"].encode()
    refused = 0
    for at, byte in enumerate(cursor):
        flipped = bytearray(cursor)
        flipped[at] = byte ^ (1 << at % 7)
        answer = asker.request("resources/list", {"cursor": flipped.decode()})
        if "error" in answer:
            assert answer["error"] == INVALID_CURSOR
            refused += 1
        else:
            assert {resource["uri"] for resource in answer["result"]["resources"]} <= mine
    assert 0 < refused < len(cursor)


@pytest.mark.parametrize(
    "cursor",
    ["x" * 1_000_000, "=" * 1_000, "handbook/aaaa", "\N{SNOWMAN}", "AAAA\n", "../../vault"],
    ids=lambda cursor: f"B6-no-cursor-{cursor[:10]}",
)
def test_b6_what_is_no_cursor_is_refused(askers: Askers, cursor: str) -> None:
    for name in ("a0-legacy", "a0-modern"):
        assert askers[name].error("resources/list", {"cursor": cursor}) == INVALID_CURSOR


def test_b6_an_old_cursor_shows_what_is_readable_now(changing: World, bystanders: Askers) -> None:
    a0, a1 = bystanders["a0"], bystanders["a1"]
    page = a0.result("resources/list")
    cursor = {"cursor": page["nextCursor"]}
    second = a0.result("resources/list", cursor)["resources"]
    last, gone = (resource["uri"].rpartition("/")[2] for resource in (page["resources"][-1], second[0]))
    changing.admin("access", "revoke", last, gone, "--from", "user:anselma", tenant="acorn")
    assert a0.result("resources/list", cursor)["resources"] == second[1:]
    assert {last, gone} <= {resource["uri"].rpartition("/")[2] for resource in a1.listed()}


CACHEABLE = {
    "B7-discover": ("server/discover", ""),
    "B7-tools": ("tools/list", ""),
    "B7-prompts": ("prompts/list", ""),
    "B7-resources": ("resources/list", ""),
    "B7-templates": ("resources/templates/list", ""),
    "B7-read": ("resources/read", "{}"),
    "B7-read-chunk": ("resources/read", "{}/0"),
}


@pytest.mark.parametrize(("method", "uri"), CACHEABLE.values(), ids=CACHEABLE)
def test_b7_nothing_may_be_kept_by_a_client_or_shared(
    world: World, askers: Askers, method: str, uri: str
) -> None:
    for name in ("a0-modern", "a2-modern"):
        params = {"uri": uri.format(world.paper("quornlight").uri)} if uri else {}
        result = askers[name].result(method, params)
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "a0-legacy": ({"status", "year", "tags", "due"}, {"clearance"}),
    "a0-modern": ({"price", "final"}, {"clearance", "codename", "language"}),
    "a1-legacy": ({"status", "clearance"}, {"codename"}),
    "a2-modern": ({"status"}, {"clearance", "codename", "language"}),
    "b1-modern": ({"codename"}, {"clearance", "status", "tags", "due"}),
    "b0-legacy": (set(), {"codename", "clearance", "status", "year", "tags", "due"}),
}


@pytest.mark.parametrize("name", FIELDS, ids=lambda name: f"B8-fields-{name}")
def test_b8_the_filter_names_the_fields_of_readable_collections_alone(askers: Askers, name: str) -> None:
    visible, hidden = FIELDS[name]
    search, get_source = askers[name].result("tools/list")["tools"]
    properties: dict[str, Any] = search["inputSchema"]["properties"]
    listing = get_source["inputSchema"]["properties"]["filter"]
    words = SourceArguments.model_fields["filter"].description
    assert listing == {"type": "object", "additionalProperties": {}, "description": words}
    described, fields = properties["filter"]["description"], properties["filter"].get("properties", {})
    assert described.startswith(FILTER_DESCRIPTION)  # what every document has, whoever asks
    in_words = described.removeprefix(FILTER_DESCRIPTION)
    assert not (in_words and fields)
    _, _, held = search["description"].partition("You can search")
    assert held
    if not visible:
        assert properties["filter"] == listing | {"description": FILTER_DESCRIPTION}
        assert "Fields:" not in held
    for named in (in_words or str(fields), held):
        assert all(field in named for field in visible)
        assert not any(field in named for field in hidden)

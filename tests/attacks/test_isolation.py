"""A: what a principal must not see, it gets by no call.

The watch of the folder holds every answer to that. The tests make the calls, and see to it that whoever may
see the same thing gets it by the same call.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import settings

from rag.answers import SearchRequest
from rag.corpus import Access, Principal
from rag.errors import ConfigurationError, NotFoundError
from rag.search.source_window import TOO_FEW
from rag.store.write import table_maintenance
from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from rag.answers import Mode
    from rag.search.desk import Desk
    from tests.attacks.conftest import Asker, Paper, Shelf, Start, World
    from tests.server.conftest import Message

    Askers: TypeAlias = dict[str, Asker]

pytestmark = pytest.mark.slow

MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
PRINCIPALS = ("a0-modern", "a1-legacy", "a2-modern", "b0-legacy", "b1-modern")
AT_NIGHT = settings.default.max_examples >= 100  # type: ignore[union-attr]  # there always is one
INVALID_PARAMS, METHOD_NOT_FOUND = -32602, -32601


def places(papers: Sequence[Paper]) -> set[tuple[str, str]]:
    return {paper.place for paper in papers}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"A1-{mode}")
@pytest.mark.parametrize("name", PRINCIPALS)
def test_a1_a_search_for_a_canary_finds_it_for_those_alone_who_may_see_it(
    world: World, askers: Askers, name: str, mode: Mode
) -> None:
    readable = places(world.readable(name))
    for paper in (paper for paper in world.papers if paper.canary and paper.canary in paper.text):
        question = paper.question or paper.canary
        if AT_NIGHT and mode != "sparse":
            queries = {paper.canary, question}
        else:
            queries = {question if mode == "dense" else paper.canary}
        for query in queries:
            best = askers[name].places(query, mode=mode, limit=5)
            assert best <= readable
            assert (paper.place in best) is (paper.place in readable)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"A1-everything-{mode}")
@pytest.mark.parametrize("name", PRINCIPALS)
def test_a1_a_search_that_shows_all_there_is_shows_all_that_is_readable(
    world: World, askers: Askers, name: str, mode: Mode
) -> None:
    readable = [paper for paper in world.readable(name) if mode != "sparse" or "pendulum" in paper.text]
    assert askers[name].places("pendulum", mode=mode) == places(readable)


def test_a1_who_is_of_a_tenant_that_is_not_there_is_not_served(world: World) -> None:
    run = world.scripts.serve("--data", world.data, env={"REFDESK_PRINCIPAL_TENANT": "cedar"})
    assert (run.returncode, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1


def quoted(text: str) -> str:
    """Every character percent-encoded."""
    return "".join(f"%{ord(character):02x}" for character in text)


VARIANTS: dict[str, Callable[[Paper], str]] = {
    "A2-id": lambda paper: paper.id,
    "A2-chunk": lambda paper: f"{paper.id}/0",
    "A2-uri": lambda paper: paper.uri,
    "A2-chunk-uri": lambda paper: f"{paper.uri}/0",
    "A2-readable-collection": lambda paper: f"refdesk://handbook/{paper.id}",
    "A2-other-collection": lambda paper: f"refdesk://ledger/{paper.id}/0",
    "A2-chunk-beyond": lambda paper: f"{paper.uri}/99",
    "A2-upper-case": lambda paper: paper.uri.upper(),
    "A2-upper-case-id": lambda paper: paper.id.upper(),
    "A2-percent-encoded": lambda paper: paper.uri.replace(paper.id, quoted(paper.id)),
    "A2-percent-slash": lambda paper: f"{paper.id}%2F0",
    "A2-percent-nul": lambda paper: f"{paper.uri}%00",
    "A2-nul": lambda paper: f"{paper.uri}\0",
    "A2-trailing-slash": lambda paper: f"{paper.uri}/",
    "A2-double-slash": lambda paper: f"refdesk://{paper.collection}//{paper.id}",
    "A2-traversal": lambda paper: f"refdesk://handbook/../{paper.collection}/{paper.id}",
    "A2-dot-segment": lambda paper: f"refdesk://{paper.collection}/./{paper.id}",
    "A2-query-string": lambda paper: f"{paper.uri}?tenant={paper.tenant}",
    "A2-fragment": lambda paper: f"{paper.uri}#0",
    "A2-userinfo": lambda paper: f"refdesk://{paper.tenant}@{paper.collection}/{paper.id}",
    "A2-tenant-in-path": lambda paper: f"refdesk://{paper.tenant}/{paper.collection}/{paper.id}",
    "A2-table-name": lambda paper: f"refdesk://chunks__tenant_{paper.tenant}__src_{paper.collection}/{paper.id}/0",
    "A2-blank": lambda paper: f" {paper.id} ",
    "A2-full-width": lambda paper: f"{paper.id}\N{FULLWIDTH SOLIDUS}0",
    "A2-citation": lambda paper: f"[{paper.id}/0]",
    "A2-quoted": lambda paper: f"'{paper.id}' OR 'x'='x",
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("name", ["a0-legacy", "b1-modern"])
def test_a2_a_foreign_document_is_opened_under_no_name(
    world: World, askers: Askers, name: str, variant: Callable[[Paper], str]
) -> None:
    """By day each name is tried for three documents in turn, and what is hidden of each kind under most."""
    asker, papers = askers[name], world.kinds(name)
    first = [*VARIANTS.values()].index(variant)
    for paper in papers if AT_NIGHT else {papers[(first + step) % len(papers)] for step in (0, 1, 3)}:
        id_ = variant(paper)
        assert asker.tool_error("get_source", {"id": id_}) == NOT_FOUND
        refused = asker.error("resources/read", {"uri": id_})
        assert refused == {"code": INVALID_PARAMS, "message": NOT_FOUND, "data": {"uri": id_}}


PROPERTIES = re.compile(r"\A(?:\w+: .*  \n)+\n")  # of the front matter, as lines


@pytest.mark.parametrize("name", PRINCIPALS)
def test_a2_a_document_is_opened_by_those_who_may_see_it(world: World, askers: Askers, name: str) -> None:
    asker = askers[name]
    for paper in (paper for paper in world.readable(name) if paper.canary):
        for id_ in (paper.id, f"{paper.id}/0", paper.uri, f"{paper.uri}/0"):
            reply = asker.tool("get_source", {"id": id_})["structuredContent"]
            assert PROPERTIES.sub("", reply["text"]) in paper.text
            assert reply["metadata"]["path"] == paper.path
        for uri in (paper.uri, f"{paper.uri}/0"):
            (contents,) = asker.result("resources/read", {"uri": uri})["contents"]
            assert PROPERTIES.sub("", contents["text"]) in paper.text


BERTRADA = {"tenant": "birch", "user": "bertrada", "groups": ["wardens"]}
SPOOFED_ARGUMENTS = ("tenant", "user", "groups", "principal", "acl", "as_user", "visibility", "_meta")


@pytest.mark.parametrize("argument", SPOOFED_ARGUMENTS, ids=lambda argument: f"A3-argument-{argument}")
@pytest.mark.parametrize("tool", ["search", "get_source"])
def test_a3_nobody_says_in_an_argument_who_asks(askers: Askers, tool: str, argument: str) -> None:
    arguments = {"query" if tool == "search" else "id": "x", argument: BERTRADA.get(argument, BERTRADA)}
    words = askers["a0-legacy"].tool_error(tool, arguments)
    assert words.startswith(f"Unknown argument {argument!r}. Valid arguments: ")


SPOOFED_META: dict[str, Message] = {
    "A3-meta-plain": BERTRADA,
    "A3-meta-nested": {"principal": BERTRADA, "refdesk": BERTRADA, "auth": BERTRADA},
    "A3-meta-named": {f"io.modelcontextprotocol/{key}": value for key, value in BERTRADA.items()},
    "A3-meta-header": {"X-Tenant": "birch", "Mcp-Param-tenant": "birch", "Authorization": "Bearer bertrada"},
    "A3-meta-client": {
        "io.modelcontextprotocol/clientInfo": {"name": "bertrada", "version": "0", "title": "birch"},
        "io.modelcontextprotocol/clientCapabilities": {"experimental": {"principal": BERTRADA}},
    },
}


@pytest.mark.parametrize("meta", SPOOFED_META.values(), ids=SPOOFED_META)
@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_a3_nobody_says_beside_the_arguments_who_asks(
    world: World, askers: Askers, name: str, meta: Message
) -> None:
    asker = askers[name]
    search = {"name": "search", "arguments": {"query": "copperlark brimwattle", "limit": 100}}
    opening = {"name": "get_source", "arguments": {"id": world.paper("brimwattle").id}}
    for method, params in (("tools/call", search), ("tools/call", opening), ("resources/list", {})):
        usual = asker.raw(method, params)
        assert asked_again(asker, meta) == usual
        assert asker.raw(method, params | BERTRADA) == usual


def asked_again(asker: Asker, meta: Message) -> bytes:
    """The answer to the last request with more in its `_meta` and beside its parameters."""
    message = json.loads(asker.last_asked())
    message["params"]["_meta"] = message["params"].get("_meta", {}) | meta
    asker.write(json.dumps(message | BERTRADA))
    return asker.line()


def test_a3_nobody_says_in_the_handshake_who_asks(world: World, askers: Askers, start: Start) -> None:
    asker = start(world, "a0", "legacy")
    asker.result(
        "initialize",
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {"experimental": {"principal": BERTRADA}},
            "clientInfo": {"name": "bertrada", "version": "0", "title": "birch", "tenant": "birch"},
            "_meta": BERTRADA,
            **BERTRADA,
        },
    )
    asker.send(None, "notifications/initialized", BERTRADA)
    call: Message = {"query": "copperlark brimwattle", "limit": 100, "max_chars": 100_000}
    assert asker.call("search", **call) == askers["a0-legacy"].call("search", **call)


LEGS: dict[str, tuple[str, str, Mode, Mode]] = {
    "A5-dense-leg": ("brimwattle", "how much more money will employees earn next year", "dense", "sparse"),
    "A5-sparse-leg": ("brimwattle", "fruit harvest season in a garden, brimwattle", "sparse", "dense"),
    "A5-other-table": ("glimmerfen", "precious metal stored in a safe", "dense", "sparse"),
}


@pytest.mark.parametrize(("canary", "query", "leg", "other_leg"), LEGS.values(), ids=LEGS)
def test_a5_the_best_hit_of_one_leg_alone_is_in_the_fused_list_of_none_but_its_readers(
    world: World, askers: Askers, canary: str, query: str, leg: Mode, other_leg: Mode
) -> None:
    paper, a1 = world.paper(canary), askers["a1-legacy"]
    (best,) = a1.hits(query, mode=leg, limit=1)
    assert best["id"].partition("/")[0] == paper.id
    assert paper.place not in a1.places(query, mode=other_leg, limit=1)
    assert paper.place in a1.places(query, mode="hybrid", limit=5)
    for name in PRINCIPALS:
        assert askers[name].places(query, mode="hybrid") == places(world.readable(name))


@pytest.mark.parametrize("around", [None, 0, 1, 50], ids=lambda around: f"A6-around-{around}")
@pytest.mark.parametrize("path", ["series-1.md", "north/series-2.md", "series-3.md"])
def test_a6_what_stands_around_a_passage_is_of_its_own_document(
    world: World, askers: Askers, path: str, around: int | None
) -> None:
    (paper,) = [paper for paper in world.papers if paper.path == path]
    asker = askers["a0-modern" if "a0" in paper.readers else "a1-legacy"]
    for seq in range(3):
        arguments = {"id": f"{paper.id}/{seq}", "around": around, "max_chars": 100_000}
        reply = asker.tool("get_source", arguments)["structuredContent"]
        assert reply["text"] in paper.text
        assert {chunk["uri"].rpartition("/")[0] for chunk in reply["chunks"]} == {paper.uri}
        assert len(reply["outline"]) == 4


def test_a6_behind_the_last_passage_of_a_document_comes_none(world: World, askers: Askers) -> None:
    asker = askers["a0-modern"]
    for paper in (paper for paper in world.readable("a0") if paper.path.startswith("series")):
        reply = asker.tool("get_source", {"id": paper.id, "max_chars": 100_000})["structuredContent"]
        assert reply["text"].strip() == paper.text.strip()
        assert "next_start" not in reply
        count = len(reply["chunks"])
        words = asker.tool_error("get_source", {"id": f"{paper.id}/{count}"})
        assert words == TOO_FEW.format(paper.id, count - 1)


ONLY_WARDENS = Access("restricted", frozenset({"group:wardens"}))
NOT_BEN = Access("tenant", deny=frozenset({"user:ben"}))
WARDEN = Principal("acorn", "ada", frozenset({"wardens"}))
SCRIBE = Principal("acorn", "ann", frozenset({"scribes"}))
BEN = Principal("acorn", "ben")
STRANGER = Principal("birch", "ada", frozenset({"wardens"}))


@pytest.mark.anyio
@pytest.mark.parametrize("index", [False, True], ids=["A7-exact", "A7-vector-index"])
async def test_a7_three_readable_ones_among_thousands_of_better_hits_are_all_that_is_found(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, *, index: bool
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 10)
    hidden = {
        f"hidden {at}": (ONLY_WARDENS, [f"pendulum {at * 100 + n}" for n in range(100)]) for at in range(30)
    }
    visible = {f"own {at}": (NOT_BEN, [f"a pendulum in a lot of other words, {at}"]) for at in range(3)}
    await shelf.put("acorn", hidden | visible, index=index)
    desk = shelf.desk()
    for mode in MODES:
        request = SearchRequest("pendulum", mode=mode, limit=10)
        of_warden, of_scribe, of_ben = [
            [hit.source.title for hit in (await desk.search(who, request)).hits]
            for who in (WARDEN, SCRIBE, BEN)
        ]
        assert len(of_warden) == 10
        assert {title[:6] for title in of_warden} == {"hidden"}
        assert sorted(of_scribe) == sorted(visible)
        assert of_ben == []
    assert desk.alarms == 0


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"A7-relaxed-{mode}")
def test_a7_what_a_filter_is_relaxed_to_is_readable(changing: World, bystanders: Askers, mode: Mode) -> None:
    hidden, readable = changing.paper("oxbowmint"), places(changing.readable("a0"))
    for filter_ in ({"status": "embargoed"}, {"year": 2031, "status": "embargoed"}):
        arguments: Message = {"filter": filter_, "mode": mode, "collections": ["ledger"]}
        relaxed = bystanders["a0"].places(**arguments)
        assert relaxed == {place for place in readable if place[0] == "ledger"}
        assert bystanders["a1"].places(**arguments) == {hidden.place}


def test_a8_copies_of_a_document_are_found_each_by_its_own_readers_under_its_own_name(
    world: World, askers: Askers
) -> None:
    twins = [paper for paper in world.papers if "sundial" in paper.text]
    assert len({paper.text for paper in twins}) == 1
    for name in PRINCIPALS:
        ids = {paper.id for paper in twins if name[:2] in paper.readers}
        for arguments in ({}, {"sources": [paper.id for paper in twins]}):
            for mode in MODES:
                hits = askers[name].hits("twin halves of a sundial", mode=mode, **arguments)
                halves = [hit for hit in hits if "sundial" in hit["text"]]
                assert {hit["id"].partition("/")[0] for hit in halves} == ids
                assert len(halves) == len(ids)
                assert {(hit["collection"], hit["metadata"]["path"]) for hit in halves} <= places(
                    world.readable(name)
                )
    assert {len([paper for paper in twins if name[:2] in paper.readers]) for name in PRINCIPALS} == {0, 1}


def test_a8_one_file_of_two_tenants_is_two_documents(world: World, askers: Askers) -> None:
    ours, theirs = [paper for paper in world.papers if paper.path == "almanac.md"]
    assert ours.file == theirs.file
    for name, paper in [("a0-modern", ours), ("b0-legacy", theirs)]:
        hits = [hit for hit in askers[name].hits("full moon") if "full moon" in hit["text"]]
        assert [hit["id"].partition("/")[0] for hit in hits] == [paper.id]


def snapshot(asker: Asker, papers: Sequence[Paper]) -> list[bytes]:
    """All sorts of answers, as they come."""
    answers = [
        asker.raw(f"{kind}/list", {}) for kind in ("tools", "prompts", "resources", "resources/templates")
    ]
    answers.append(asker.raw("completion/complete", completion("")))
    for query in ("pendulum", "quornlight", "The ferry at dawn", "ferry bell noon clock", "xyzzy"):
        answers += [asker.call("search", query=query, mode=mode, limit=50) for mode in MODES]
    answers += [asker.call("get_source", id=paper.id) for paper in papers]
    return answers + [asker.raw("resources/read", {"uri": paper.uri}) for paper in papers]


def completion(typed: str) -> Message:
    ref = {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"}
    return {"ref": ref, "argument": {"name": "collection", "value": typed}}


def test_a9_what_another_tenant_holds_changes_no_byte_of_any_answer(
    changing: World, bystanders: Askers
) -> None:
    asker, papers = bystanders["a0"], changing.readable("a0")[:5]
    before = snapshot(asker, papers)
    folder = changing.folder / "flood"
    folder.mkdir()
    for at in range(30):
        words = "quornlight pendulum ferry bell noon clock xyzzy"
        (folder / f"{at}.md").write_text(f"# Flood {at}\n\nThe {words} at dawn, {at}.\n")
    changing.ingested("birch", "handbook", Path("flood"))
    assert snapshot(asker, papers) == before
    answer = changing.admin("search", "xyzzy", "--mode", "sparse", "--json", tenant="birch")
    assert len(json.loads(answer)["results"]) > 1


@pytest.mark.parametrize("name", ["a0-legacy", *PRINCIPALS])
def test_a11_lists_name_what_is_readable_and_nothing_else(world: World, askers: Askers, name: str) -> None:
    asker, readable = askers[name], world.readable(name)
    listed = asker.listed()
    assert {(resource["uri"], resource["name"]) for resource in listed} == {
        (paper.uri, paper.path) for paper in readable
    }
    assert len(listed) == len(readable)
    names = sorted({paper.collection for paper in readable})
    for typed in ("", "v", "vault", "handbook", "zzz"):
        values = [name for name in names if name.startswith(typed)]
        complete = asker.result("completion/complete", completion(typed))["completion"]
        assert complete == {"values": values, "total": len(values), "hasMore": False}


def test_a11_templates_and_prompts_are_the_same_for_everybody(askers: Askers) -> None:
    for method, key in [("resources/templates/list", "resourceTemplates"), ("prompts/list", "prompts")]:
        listings = [asker.result(method)[key] for asker in askers.values()]
        assert listings[0]
        assert all(entries == listings[0] for entries in listings)


SUBSCRIPTIONS: dict[str, Callable[[str], tuple[str, Message]]] = {
    "A11-subscribe": lambda uri: ("resources/subscribe", {"uri": uri}),
    "A11-unsubscribe": lambda uri: ("resources/unsubscribe", {"uri": uri}),
    "A11-listen": lambda uri: ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}}),
}


@pytest.mark.parametrize("request_of", SUBSCRIPTIONS.values(), ids=SUBSCRIPTIONS)
@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_a11_nothing_can_be_subscribed_to(
    world: World, askers: Askers, name: str, request_of: Callable[[str], tuple[str, Message]]
) -> None:
    papers = [world.paper("quornlight"), world.paper("brimwattle"), world.paper("copperlark")]
    for paper in papers:
        assert askers[name].error(*request_of(paper.uri))["code"] == METHOD_NOT_FOUND


def test_a12_a_word_that_stands_only_in_what_is_hidden_suggests_nothing(world: World, askers: Askers) -> None:
    asker = askers["a0-modern"]
    nothing = asker.call("search", query="xyzzyplugh", mode="sparse")
    assert json.loads(nothing)["result"]["structuredContent"]["results"] == []
    for paper in (paper for paper in world.foreign("a0") if paper.canary):
        for word in (paper.canary, paper.canary[:-1], paper.canary[:-1] + "e", f"{paper.canary}s"):
            assert asker.call("search", query=word, mode="sparse") == nothing
    assert asker.hits("quornlights", mode="sparse")  # stems are searched for, of what is readable


@pytest.mark.anyio
async def test_a13_a_desk_that_many_ask_at_once_gives_nobody_the_answer_of_another(shelf: Shelf) -> None:
    stock = {
        "open": Access("tenant"),
        "wardens": ONLY_WARDENS,
        "scribes": Access("restricted", frozenset({"group:scribes"})),
        "not ben": NOT_BEN,
        "nobody": Access("restricted"),
    }
    for tenant in ("acorn", "birch"):
        await shelf.put(
            tenant, {f"{tenant} {name}": (access, [f"pendulum {name}"]) for name, access in stock.items()}
        )
    await shelf.put("cedar", {"cedar nobody": (Access("restricted"), ["pendulum nobody"])})
    titles = {
        WARDEN: {"acorn open", "acorn wardens", "acorn not ben"},
        SCRIBE: {"acorn open", "acorn scribes", "acorn not ben"},
        BEN: {"acorn open"},
        STRANGER: {"birch open", "birch wardens", "birch not ben"},
        Principal("birch"): {"birch open", "birch not ben"},
        Principal("cedar"): set(),
    }
    absent = Principal("dogwood")  # of a tenant that is not there
    desk = shelf.desk()
    ids = [source.id for who in titles for source in await desk.sources(who, after=("", ""), limit=50)]
    gate = anyio.Semaphore(16)
    chance = random.Random(13)  # noqa: S311 the same in every run
    answered = []

    async def ask(who: Principal) -> None:
        async with gate:
            if who == absent:
                await _expect_refused(desk, who, chance.choice(ids), chance.choice(MODES))
                answered.append(who)
                return
            answer = await desk.search(who, SearchRequest("pendulum", mode=chance.choice(MODES)))
            assert {hit.source.title for hit in answer.hits} == titles[who]
            listed = await desk.sources(who, after=("", ""), limit=50)
            assert {source.title for source in listed} == titles[who]
            await _open(desk, who, chance.choice(ids), titles[who])
            answered.append(who)

    async with anyio.create_task_group() as tasks:
        for who in chance.choices([*titles, absent], k=120):
            tasks.start_soon(ask, who)
    assert len(answered) == 120
    assert set(answered) == {*titles, absent}
    assert desk.alarms == 0


async def _expect_refused(desk: Desk, who: Principal, id_: str, mode: Mode) -> None:
    for request in (
        desk.search(who, SearchRequest("pendulum", mode=mode)),
        desk.sources(who, after=("", ""), limit=50),
        desk.extract(who, id_, max_chars=99),
    ):
        with pytest.raises(ConfigurationError, match=f"There is no tenant '{who.tenant}'"):
            await request


async def _open(desk: Desk, who: Principal, id_: str, titles: set[str]) -> None:
    try:
        title = (await desk.extract(who, id_, max_chars=99)).source.title
    except NotFoundError:
        return
    assert title in titles


LIVE = {
    "tidewrack": "",
    "kelpstrand": "",
    "brackwater": "visibility: restricted",
    "saltmarsh": "",
    "coldharbour": "visibility: restricted\nallow: group:wardens",
}
"""Words that stand in documents which tests change, and what the documents say of their readers."""


@pytest.fixture(scope="session")
def live(changing: World) -> dict[str, str]:
    """The ids of these documents by their words."""
    folder = changing.folder / "live"
    folder.mkdir()
    for word, matter in LIVE.items():
        text = f"# {word}\n\nThe {word} pendulum, as it was.\n"
        (folder / f"{word}.md").write_text(f"---\n{matter}\n---\n{text}" if matter else text)
    ids = changing.ingested("acorn", "handbook", Path("live"))
    return {Path(file).stem: id_ for (_, file), id_ in ids.items()}


def sees(asker: Asker, id_: str, word: str) -> bool:
    """Whether a document is found, opened, read and listed; all of it or nothing."""
    uri = f"refdesk://handbook/{id_}"
    visible = {
        any(hit["id"].startswith(id_) for hit in asker.hits(word, mode=mode, limit=5)) for mode in MODES
    } | {
        bool(asker.hits(word, sources=[id_])),
        not asker.tool("get_source", {"id": id_})["isError"],
        not asker.tool("get_source", {"id": f"{id_}/0", "around": 1})["isError"],
        "result" in asker.request("resources/read", {"uri": uri}),
        uri in {resource["uri"] for resource in asker.listed()},
    }
    assert len(visible) == 1
    return visible == {True}


def run_beside(world: World, asker: Asker, word: str, *arguments: str) -> None:
    """Run a command to its end while a server is asked without a pause."""
    process = world.scripts.begin(*arguments, "--tenant", "acorn", "--data", world.data)
    while process.poll() is None:
        asker.hits(word, limit=5)
    assert process.returncode == 0


CHANGES: dict[str, tuple[str, list[str], tuple[bool, bool], tuple[bool, bool]]] = {
    "A14-revoke": ("tidewrack", ["revoke", "--from", "user:anselma"], (True, True), (False, True)),
    "A14-set": (
        "kelpstrand",
        ["set", "--allow", "group:wardens", "--deny", "user:adalind"],
        (True, True),
        (False, False),
    ),
    "A14-grant": ("brackwater", ["grant", "--to", "user:anselma"], (False, False), (True, False)),
}
"""A command, and whether a0 and a1 see its document before and after."""


@pytest.mark.parametrize("case", CHANGES)
def test_a14_a_change_of_access_counts_from_the_next_question_on(
    changing: World, bystanders: Askers, live: dict[str, str], case: str
) -> None:
    word, (verb, *options), before, after = CHANGES[case]
    id_ = live[word]
    assert tuple(sees(asker, id_, word) for asker in bystanders.values()) == before
    run_beside(changing, bystanders["a0"], word, "access", verb, id_, *options)
    assert tuple(sees(asker, id_, word) for asker in bystanders.values()) == after


def test_a16_what_was_removed_is_gone_for_every_server_and_after_a_start(
    changing: World, bystanders: Askers, live: dict[str, str], start: Start
) -> None:
    id_, a0 = live["saltmarsh"], bystanders["a0"]
    assert sees(a0, id_, "saltmarsh")
    cursor = {"cursor": a0.result("resources/list")["nextCursor"]}
    run_beside(changing, a0, "saltmarsh", "remove", id_, "--collection", "handbook")
    fresh = start(changing, "a0")
    fresh.begin()
    for asker in (a0, bystanders["a1"], fresh):
        assert not sees(asker, id_, "saltmarsh")
    assert id_ not in str(a0.result("resources/list", cursor))
    assert fresh.leave() == 0


def test_a18_a_document_that_is_brought_in_again_changed_is_for_the_same_readers(
    changing: World, bystanders: Askers, live: dict[str, str]
) -> None:
    id_, file = live["coldharbour"], changing.folder / "live" / "coldharbour.md"
    assert [sees(bystanders[name], id_, "coldharbour") for name in ("a0", "a1")] == [False, True]
    file.write_text("---\nvisibility: tenant\n---\n# coldharbour\n\nThe coldharbour pendulum, anew.\n")
    assert changing.ingested("acorn", "handbook", Path("live/coldharbour.md")) == {
        ("acorn", "live/coldharbour.md"): id_
    }
    assert [sees(bystanders[name], id_, "coldharbour") for name in ("a0", "a1")] == [False, True]
    (hit,) = bystanders["a1"].hits("coldharbour", mode="sparse")
    assert "anew" in hit["text"]


def test_a18_where_nothing_says_who_may_see_a_document_nobody_does(
    changing: World, bystanders: Askers
) -> None:
    file = changing.folder / "undertow.md"
    file.write_text("# undertow\n\nThe undertow pendulum.\n")
    lost = changing.folder / "no-such-rules.toml"
    whose = ("--tenant", "acorn", "--data", changing.data)
    run = changing.scripts.admin("ingest", file, "--collection", "vault", "--config", lost, *whose)
    assert run.returncode == 2
    ids = changing.ingested("acorn", "vault", Path("undertow.md"))
    for asker in bystanders.values():
        assert not asker.hits("undertow", mode="sparse")
    changing.admin("access", "grant", ids["acorn", "undertow.md"], "--to", "group:wardens", tenant="acorn")
    assert [bool(bystanders[name].hits("undertow", mode="sparse")) for name in ("a0", "a1")] == [False, True]

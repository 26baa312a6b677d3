"""Two tenants on one data folder, a server for each principal, and a watch on every word that these say.

Each document that somebody must not see holds a canary, a word that stands nowhere else: in its text, its
title, or its path. A server that says a canary, or the id of a document, that its principal must not see
fails the test in which it does. Names of tests and cases begin with the attack that they stand for: A for
isolation, B for oracles, C for filters and parameters.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from rag.config.settings import SearchSettings
from rag.search.desk import Desk
from rag.store.read import rows_in_memory
from rag.store.read.desk_reader import DeskReader
from tests.attacks.crowd import Crowd, gather, gathered
from tests.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from rag.corpus import Access, Source
    from tests.conftest import FilledOnce, Scripts
    from tests.forks import Forks
    from tests.server.conftest import Era, Message, Wire


@pytest.fixture(scope="session", autouse=True)
def _rows_in_memory_at_once() -> None:
    """Let searches find rows in memory at once, so that attacks meet them. Servers are forked from here."""
    rows_in_memory.PAUSE_SECONDS, rows_in_memory.BUSY_SHARE = 0.0, 1e9


def _loaded(path: str) -> ModuleType:
    """Another folder's conftest as a module: tests are no packages."""
    name = path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    _server = _loaded("server/conftest.py")
    Wire, listen, lasting_listen = _server.Wire, _server.listen, _server.lasting_listen
    free_port = _server.free_port

AUDIT = '"logger": "refdesk.audit"'  # for the operator, whom these servers tell of each call
PRINCIPALS = {
    "a0": {"TENANT": "acorn", "USER": "anselma"},
    "a1": {"TENANT": "acorn", "USER": "adalind", "GROUPS": "wardens"},
    "a2": {"TENANT": "acorn", "USER": "aberforth", "GROUPS": "scribes"},
    "b0": {"TENANT": "birch", "USER": "bonifaz"},
    "b1": {"TENANT": "birch", "USER": "bertrada", "GROUPS": "wardens"},
}
SERVERS: list[tuple[str, Era]] = [
    ("a0", "legacy"),
    ("a0", "modern"),
    ("a1", "legacy"),
    ("a2", "modern"),
    ("b0", "legacy"),
    ("b1", "modern"),
]
ACORN, BIRCH = frozenset({"a0", "a1", "a2"}), frozenset({"b0", "b1"})
NOBODY: frozenset[str] = frozenset()
NAMES = {value for principal in PRINCIPALS.values() for value in principal.values()}
"""Of tenants, users and groups: no answer holds one."""
ENGINE = [
    *(b"lance", b"datafusion", b"cargo", b"__tenant_", b"__src_", b"_rowid", b"_distance", b"traceback"),
    *(b'"%s":' % key for key in (b"allow", b"deny", b"visibility", b"tenant", b"access")),
    *(b'"revision":%d' % digit for digit in range(10)),  # of an access record; that of a text is a string
    *(b'"vector":', b'"digest":', b'"generation":', b"file:///"),
]
"""What no answer holds but as the echo of a question."""

RULES = """
[access]
of_documents = true

[[access.rules]]
path = "north/*"
allow = ["group:wardens"]

[[access.rules]]
path = "south/*"
allow = ["group:scribes"]

[[access.rules]]
path = "sealed/*"
"""
LEDGER_FIELDS = [
    "status=string",
    "year=integer",
    "price=number",
    "final=boolean",
    "due=datetime",
    "tags=string list",
]
ALARM = "The access check withheld "
"""What a server may log where access is taken away while it searches, and else never."""
ALMANAC = "almanac.md"
NOTES = 44  # with the others more than a page of resources/list, and fewer chunks than a search can show


@dataclass(frozen=True, slots=True)
class Paper:
    """A document. `readers` are the principals who may see it; `question` asks for it in other words."""

    tenant: str
    collection: str
    path: str
    readers: frozenset[str]
    text: str
    canary: str = ""
    question: str = ""
    id: str = ""

    @property
    def file(self) -> str:
        """Where it lies before it is brought in; the almanac is one file for both tenants."""
        return self.path if self.path == ALMANAC else f"{self.tenant}/{self.collection}/{self.path}"

    @property
    def uri(self) -> str:
        return f"refdesk://{self.collection}/{self.id}"

    @property
    def place(self) -> tuple[str, str]:
        """What a hit tells of where it comes from."""
        return self.collection, self.path


def _secret(place: str, readers: frozenset[str], fact: str, question: str, matter: str = "") -> Paper:
    """A document whose canary, the stem of its file's name, stands in its title and its text, too."""
    tenant, collection, path = place.split("/", 2)
    canary = Path(path).stem
    front = f"---\n{matter}\n---\n" if matter else ""
    text = f"{front}# The {canary} file\n\nAbout the {canary} pendulum in the tower. {fact}\n"
    return Paper(tenant, collection, path, readers, text, canary, question)


def _part(path: str, readers: frozenset[str], word: str, canary: str = "") -> Paper:
    """One of a series of documents of several chunks, in each of which stands its word."""
    sections = [f"## Section {at}\n\n{' '.join([f'The {word} bell rings at noon.'] * 30)}" for at in range(3)]
    return Paper("acorn", "handbook", path, readers, "\n\n".join(["# A series", *sections]) + "\n", canary)


def _page(number: str, matter: str = "") -> Paper:
    """A page of the ledger, with its fields as front matter."""
    front = f"---\n{matter}\n---\n" if matter else ""
    return Paper(
        "acorn", "ledger", f"{number}.md", ACORN, f"{front}# Page {number}\n\nThe pendulum, {number}.\n"
    )


TWIN = "# Sundial\n\nBoth halves of the sundial agree at noon, as every twin does.\n"
PAPERS = (
    _secret(
        "acorn/handbook/quornlight.md",
        ACORN,
        "The ferry crosses the bay at dawn and dusk.",
        "boat timetable over the water",
    ),
    _secret(
        "acorn/handbook/north/brimwattle.md",
        frozenset({"a1"}),
        "Salaries rise by four percent each spring.",
        "how much more money will employees earn next year",
    ),
    _secret(
        "acorn/handbook/sedgehollow.md",
        frozenset({"a2"}),
        "The brewery merges with its rival.",
        "two beer makers become one company",
        matter="visibility: restricted\nallow: group:scribes",
    ),
    _secret(
        "acorn/handbook/thistlemark.md",
        frozenset({"a1"}),
        "A physician prescribed rest after the surgery.",
        "doctor ordered recovery following an operation",
    ),
    _secret(
        "acorn/handbook/ferncask.md",
        frozenset({"a0", "a1"}),
        "The orchard yields pears in late summer.",
        "fruit harvest season in a garden",
    ),
    _secret(
        "acorn/handbook/sealed/mossgrail.md",
        NOBODY,
        "The burglar alarm code lies beneath the stairs.",
        "where is the secret number for the intruder siren",
    ),
    _secret(
        "acorn/handbook/ashbarrow.md", NOBODY, "The bakery burned down.", "fire destroyed the bread shop"
    ),
    _secret(
        "acorn/vault/glimmerfen.md",
        frozenset({"a1"}),
        "Gold bullion rests behind the steel door.",
        "precious metal stored in a safe",
        matter="clearance: cosmic",
    ),
    _secret(
        "acorn/ledger/harrowpike.md",
        frozenset({"a1"}),
        "The auditor found missing invoices.",
        "accounting check discovered lost bills",
        matter="status: final\nyear: 2001\ntags: [red]\nvisibility: restricted\nallow: [group:wardens]",
    ),
    _secret(
        "acorn/ledger/oxbowmint.md",
        frozenset({"a1"}),
        "The factory will close for good.",
        "plant shutdown planned",
        matter="status: embargoed\nyear: 2031\nvisibility: restricted\nallow: user:adalind",
    ),
    _secret(
        "birch/handbook/copperlark.md",
        BIRCH,
        "The choir sings carols in the snow.",
        "vocal group performs Christmas music",
    ),
    _secret(
        "birch/handbook/north/wyverncote.md",
        frozenset({"b1"}),
        "The lawsuit was settled for a secret sum.",
        "court case ended with confidential payment",
    ),
    _secret(
        "birch/handbook/sealed/ravelmoor.md",
        frozenset({"b0"}),
        "The teacher retires after thirty years.",
        "school educator leaves the job",
    ),
    _secret(
        "birch/vault/nettlespire.md",
        frozenset({"b1"}),
        "The reactor cools with heavy water.",
        "nuclear plant temperature control",
        matter="codename: umbra",
    ),
    Paper("acorn", "handbook", "north/larkspur.md", frozenset({"a1"}), TWIN, "larkspur"),
    Paper("acorn", "handbook", "south/foxmantle.md", frozenset({"a2"}), TWIN, "foxmantle"),
    Paper("birch", "handbook", "emberglass.md", BIRCH, TWIN, "emberglass"),
    Paper("acorn", "handbook", ALMANAC, ACORN, "# Almanac\n\nThe pendulum at full moon.\n"),
    Paper("birch", "handbook", ALMANAC, BIRCH, "# Almanac\n\nThe pendulum at full moon.\n"),
    _part("series-1.md", ACORN, "first"),
    _part("north/series-2.md", frozenset({"a1"}), "velvetrook", "velvetrook"),
    _part("series-3.md", ACORN, "third"),
    _page("one", "status: final\nyear: 2001\nprice: 1.5\nfinal: true\ndue: 2024-05-01\ntags: [red, blue]"),
    _page("two", "status: draft\nyear: 1999\nprice: 0\nfinal: false\ndue: 2020-01-01T12:00:00Z\ntags: [red]"),
    _page("three", 'status: "\' OR 1=1 --"\nyear: 2001'),
    _page("four"),
    _page("five", "status: 100%_sure\nyear: 9007199254740992\ntags: [blue]"),
    _page("six", "status: re\u0301sume\u0301\nprice: -2.5"),
    _page("seven", "status: Final"),
    *(
        Paper("acorn", "handbook", f"note-{at:02}.md", ACORN, f"# Note {at}\n\nThe pendulum of clock {at}.\n")
        for at in range(NOTES)
    ),
)


KINDS = {
    "brimwattle": "by a rule for its folder",
    "thistlemark": "by a new record",
    "ferncask": "by a revocation",
    "mossgrail": "for nobody",
    "ashbarrow": "removed",
    "glimmerfen": "in a collection of which nothing is readable",
    "oxbowmint": "as it says itself",
    "copperlark": "of another tenant",
    "wyverncote": "of another tenant, for a group of the same name",
}


@dataclass(frozen=True, slots=True)
class World:
    """A data folder with the papers in it; `folder` holds their files."""

    scripts: Scripts
    folder: Path
    data: Path
    papers: tuple[Paper, ...] = ()

    def admin(self, *arguments: str | Path, tenant: str | None) -> str:
        """What a command prints, which must succeed."""
        whose = ["--tenant", tenant] if tenant else []
        run = self.scripts.admin(*arguments, *whose, "--data", self.data)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def ingested(self, tenant: str, collection: str, *arguments: str | Path) -> dict[tuple[str, str], str]:
        """The ids of what is brought in from files below the folder, by tenant and file."""
        paths = [self.folder / argument if isinstance(argument, Path) else argument for argument in arguments]
        rules = self.folder / "rules.toml"
        run = self.admin(
            "ingest", *paths, "--collection", collection, "--config", rules, "--json", tenant=tenant
        )
        report = json.loads(run)
        files = {Path(file["path"]).relative_to(self.folder): file["source_id"] for file in report["files"]}
        return {(tenant, str(file)): id_ for file, id_ in files.items()}

    def paper(self, canary: str) -> Paper:
        """The paper that holds it."""
        (paper,) = [candidate for candidate in self.papers if candidate.canary == canary]
        return paper

    def readable(self, name: str) -> list[Paper]:
        """What the principal of a server may see."""
        return [paper for paper in self.papers if name[:2] in paper.readers]

    def foreign(self, name: str) -> list[Paper]:
        """What it must not see."""
        return [paper for paper in self.papers if name[:2] not in paper.readers]

    def kinds(self, name: str) -> list[Paper]:
        """Of what it must not see, one for each way in which that came about."""
        return [paper for paper in self.foreign(name) if paper.canary in KINDS]


def _fill_acorn(world: World) -> dict[tuple[str, str], str]:
    admin = partial(world.admin, tenant="acorn")
    fields = [part for field in LEDGER_FIELDS for part in ("--field", field)]
    admin("collection", "create", "ledger", *fields)
    admin("collection", "create", "vault", "--field", "clearance=string", "--visibility", "restricted")
    ids = world.ingested("acorn", "handbook", Path("acorn/handbook"), Path(ALMANAC))
    ids |= world.ingested("acorn", "ledger", Path("acorn/ledger"))
    ids |= world.ingested("acorn", "vault", Path("acorn/vault"), "--allow", "group:wardens")
    named = {Path(file).stem: id_ for (_, file), id_ in ids.items()}
    admin("access", "set", named["thistlemark"], "--allow", "user:adalind")
    admin("access", "revoke", named["ferncask"], "--from", "group:scribes")
    admin("remove", named["ashbarrow"], "--collection", "handbook")
    return ids


def _fill_birch(world: World) -> dict[tuple[str, str], str]:
    admin = partial(world.admin, tenant="birch")
    admin("collection", "create", "vault", "--field", "codename=string")
    ids = world.ingested("birch", "handbook", Path("birch/handbook"), Path(ALMANAC))
    ids |= world.ingested("birch", "vault", Path("birch/vault"), "--allow", "group:wardens")
    granted = ids["birch", "birch/handbook/sealed/ravelmoor.md"]
    admin("access", "grant", granted, "--to", "user:bonifaz", "--to", "user:adalind")
    return ids


@pytest.fixture(scope="session")
def world(scripts: Scripts, filled_once: FilledOnce, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The papers, brought in by the installed commands. Only for reading."""
    folder, ids = filled_once("world", partial(_fill, scripts))
    data = shutil.copytree(folder / "data", tmp_path_factory.mktemp("world") / "data")
    papers = tuple(replace(paper, id=ids[f"{paper.tenant} {paper.file}"]) for paper in PAPERS)
    return World(scripts, folder, data, papers)


def _fill(scripts: Scripts, folder: Path) -> dict[str, str]:
    """The ids of the papers by tenant and file."""
    folder.mkdir()
    (folder / "rules.toml").write_text(RULES)
    for paper in PAPERS:
        file = folder / paper.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(paper.text)
    empty = World(scripts, folder, folder / "data")
    for tenant in ("acorn", "birch"):
        empty.admin("tenant", "create", tenant, tenant=None)
    with ThreadPoolExecutor() as pool:
        acorn, birch = pool.submit(_fill_acorn, empty), pool.submit(_fill_birch, empty)
        ids = acorn.result() | birch.result()
    return {f"{tenant} {file}": id_ for (tenant, file), id_ in ids.items()}


class Asker(Wire):
    """A principal at a server of its own, which remembers what both say until the watch has read it."""

    def __init__(
        self,
        command: list[str | Path],
        env: Mapping[str, str],
        *,
        era: Era,
        forks: Forks,
        secrets: list[bytes],
        overtaken: bool,
    ) -> None:
        self._asked: list[bytes] = []
        self._said: list[bytes] = []
        self._secrets = secrets
        self._overtaken = overtaken
        super().__init__(command, env, era=era, forks=forks)

    def write(self, line: str | bytes) -> None:
        self._asked.append(line.encode() if isinstance(line, str) else line)
        super().write(line)

    def line(self) -> bytes:
        self._said.append(super().line())
        return self._said[-1]

    def last_asked(self) -> bytes:
        """The last line that was written to the server."""
        return self._asked[-1]

    def raw(self, method: str, params: Message) -> bytes:
        """The answer as it comes."""
        self.send(1, method, params)
        return self.line()

    def call(self, tool: str, **arguments: Any) -> bytes:  # noqa: ANN401 any JSON
        """A tool's answer as it comes."""
        return self.raw("tools/call", {"name": tool, "arguments": arguments})

    def hits(self, query: str = "pendulum", **arguments: Any) -> list[Message]:  # noqa: ANN401 any JSON
        """The hits of a search, by default all that there are: there are fewer than a search can show."""
        reply = self.tool("search", {"query": query, "limit": 100, "max_chars": 100_000, **arguments})
        assert reply["isError"] is False, reply
        return list(reply["structuredContent"]["results"])

    def places(self, query: str = "pendulum", **arguments: Any) -> set[tuple[str, str]]:  # noqa: ANN401 any JSON
        """Where they come from, by collection and path."""
        hits = self.hits(query, **arguments)
        return {(hit["collection"], hit["metadata"]["path"]) for hit in hits}

    def listed(self) -> list[Message]:
        """The whole of resources/list."""
        page = self.result("resources/list")
        resources = page["resources"]
        while "nextCursor" in page:
            page = self.result("resources/list", {"cursor": page["nextCursor"]})
            resources += page["resources"]
        return list(resources)

    def expect_silence(self) -> None:
        """End the server, which must leave well and have written nothing but its audit on standard error."""
        if self.process.poll() is None:
            assert self.leave() == 0
        expected = (AUDIT, ALARM) if self._overtaken else (AUDIT,)
        noise = [line for line in self.stderr().splitlines() if not any(word in line for word in expected)]
        assert noise == []

    def expect_nothing_foreign(self) -> None:
        """Hold all that was said since to the secrets, and to what only questions may have brought up."""
        questions = _plain(b"\n".join(self._asked))
        answers = [_plain(_without_echo(line)) for line in self._said]
        self._asked, self._said = [], []
        suspicious = [*self._secrets, *(word for word in ENGINE if word not in questions)]
        assert [(word, line) for line in answers for word in suspicious if word in line] == []


def _plain(line: bytes) -> bytes:
    """A line in small letters, and its strings without the marks of JSON within JSON."""
    return line.lower().replace(b"\\", b"")


_NAMED = re.compile(
    rb"(?<=because you can't read them: ).*?(?=\. Readable collections: )"
    rb"|(?<=nothing readable has this id, path or title: ).*?(?=\. Use an id or a path)"
)
ALL_EVIDENCE = {"REFDESK_SEARCH_THRESHOLDS_MIN_EVIDENCE": "0"}
"""Words made up for a test are no evidence for anything, so replies would stop after two passages."""


def _without_echo(line: bytes) -> bytes:
    """An answer without the names that its error or its notes repeat."""
    line = _NAMED.sub(b"", line)
    if b'"error"' not in line:
        return line
    message = json.loads(line)
    message.get("error", {}).pop("data", None)
    return json.dumps(message).encode()


def _secrets(world: World, name: str) -> list[bytes]:
    """What the principal must not see: canaries and ids of others, and how the owner has set it all up."""
    words = {word for paper in world.foreign(name) for word in (paper.canary, paper.id) if word}
    return [word.lower().encode() for word in words | NAMES | {str(world.folder), str(world.data)}]


Start: TypeAlias = "Callable[..., Asker]"


@pytest.fixture(scope="session")
def started() -> list[Asker]:
    """Every server that was started, for the watch."""
    return []


@pytest.fixture(scope="session")
def start(scripts: Scripts, started: list[Asker]) -> Iterator[Start]:
    """Start a server for a principal. In the end it leaves without a word, at log level info."""

    def begin(
        world: World,
        name: str,
        era: Era = "modern",
        env: Mapping[str, str] | None = None,
        *,
        overtaken: bool = False,
    ) -> Asker:
        principal = {f"REFDESK_PRINCIPAL_{key}": value for key, value in PRINCIPALS[name].items()}
        more = {"REFDESK_SERVER_LOG_LEVEL": "info", "REFDESK_SERVER_FULL_RESULTS": "true"}
        settings = scripts.environment | more | principal | dict(env or {})
        settings |= scripts.serving(world.data) | ALL_EVIDENCE
        command: list[str | Path] = [scripts.server, "--data", world.data]
        secrets, forks = _secrets(world, name), scripts.server_forks
        asker = Asker(command, settings, era=era, forks=forks, secrets=secrets, overtaken=overtaken)
        started.append(stack.enter_context(asker))
        return asker

    with ExitStack() as stack:
        yield begin
        for asker in started:
            asker.expect_silence()


@pytest.fixture(autouse=True)
def watch(started: list[Asker]) -> Iterator[None]:
    """Hold everything that servers say during a test to what their principals may see."""
    yield
    for asker in started:
        asker.expect_nothing_foreign()


@pytest.fixture(scope="session")
def askers(world: World, start: Start) -> dict[str, Asker]:
    """The servers by principal and era, after their first exchange."""
    askers = {f"{name}-{era}": start(world, name, era) for name, era in SERVERS}
    for asker in askers.values():
        asker.begin()
    return askers


@pytest.fixture(scope="session")
def changing(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy of the data folder for tests that write, each to documents of its own."""
    data = tmp_path_factory.mktemp("changing") / "data"
    return replace(world, data=shutil.copytree(world.data, data))


@pytest.fixture(scope="session")
def bystanders(changing: World, start: Start) -> dict[str, Asker]:
    """Servers that run while the commands write. That of a0 may drop conditions of filters."""
    relaxing = {"REFDESK_SEARCH_RELAX": "true"}
    askers = {
        "a0": start(changing, "a0", "modern", relaxing, overtaken=True),
        "a1": start(changing, "a1", "legacy", overtaken=True),
    }
    for asker in askers.values():
        asker.begin()
    return askers


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder of a test's own, filled without a model."""

    small: ModuleType
    data: Path

    async def put(
        self, tenant: str, items: dict[str, tuple[Access, list[str]]], *, index: bool = False
    ) -> None:
        """Store sources with these access records and paragraphs, by name."""
        async with await self.small.writing(self.data, tenant) as writer:
            make = partial(self.small.new_source, writer)
            await writer.replace(
                [make(name, *paragraphs, access=access) for name, (access, paragraphs) in items.items()]
            )
            if index:
                await writer.finish()

    async def sources(self, tenant: str) -> list[Source]:
        """What there is, whoever may see it."""
        return await (await table_of(self.data, tenant=tenant)).listing()

    def desk(self) -> Desk:
        """A desk of its own over this shelf."""
        return Desk(DeskReader(self.data, timeout_seconds=15), self.small.BagOfWords(), SearchSettings())


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
    return Shelf(small_desk, tmp_path / "data")


@pytest.fixture(scope="session")
def crowd(scripts: Scripts, filled_once: FilledOnce, tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    """Two hundred people, each with a key and a document of their own. Only for reading."""
    filled, people = filled_once("crowd", partial(gather, scripts))
    data = shutil.copytree(filled / "data", tmp_path_factory.mktemp("crowd") / "data")
    return gathered(data, people)

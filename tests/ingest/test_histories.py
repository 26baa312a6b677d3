"""Random histories of files and their rights: after each step nobody sees more than the plain rules allow.

The rules are those of `tests/ingest/history_oracle.py`, told in English at its top. The steps drive the
library itself: real files, real tables, real runs, and one desk that is open over the whole history.
5,000 steps: `pytest tests/ingest/test_histories.py --hypothesis-profile=nightly`; even more with `thorough`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rag.ingest.ingest_run
from rag.answers import SearchRequest
from rag.config.settings import AccessRule, IngestSettings, SearchSettings
from rag.corpus import Access, Collection, Principal
from rag.errors import NotFoundError
from rag.ingest import known_sources
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Report
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.search.desk import Desk
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import StoredSource
from rag.store.write import table_maintenance
from rag.store.write.access_writer import AccessTable, change_access
from rag.store.write.change_collection import copy_labels, open_writer
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.make_collection import ensure_collection
from tests.ingest.history_oracle import Act, Bound, Document, File, Oracle, Run, Said, Word, names, seen_by

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

pytestmark = pytest.mark.slow

PROFILE = settings.default.max_examples  # type: ignore[union-attr]  # there always is one
FEWEST, USUAL = 16, 185
"""Histories by the profile `quick`, and by the usual one.

With 16, those broken builds of `test_rights_teeth.py` are found that are found with 25; with 12, two are not.
"""
HISTORIES = max(USUAL, PROFILE) if PROFILE >= 100 else FEWEST
STEPS = 30  # in each history at least
EVERYBODY = (
    Principal("default"),
    Principal("default", "ann"),
    Principal("default", "ann", frozenset({"hr"})),
    Principal("default", "bob", frozenset({"HR"})),
    Principal("default", "jose\u0301", frozenset({"it"})),
)
ENTRIES = ("user:ann", "group:hr", "group:HR", "user:bob", "user:Jos\u00e9")
SAID = (
    Said("restricted", ("group:hr",)),
    Said("tenant"),
    Said("restricted"),
    Said(None, ("user:ann",)),
    Said(None, (), ("group:hr",)),
    Said("tenant", (), ("user:Jos\u00e9",)),
    Said("restricted", ("user:bob", "group:hr"), ("user:ann",)),
)
ASKS = (None, None, *SAID)
RULES = (
    (),
    (("hr", Said("restricted", ("group:hr",))),),
    (("PAY", Said("restricted", ("user:bob",))), ("it", Said("tenant", (), ("user:ann",)))),
)
PLACES = tuple(f"{folder}{name}.md" for folder in ("", "hr/", "hr/pay/", "it/") for name in "abc")
FOLDERS = ("", "", "", "hr", "it", "hr/pay")
MOST_FILES = 6

Seen: TypeAlias = "dict[Document, tuple[str, set[Principal]]]"


class Killed(Exception):  # noqa: N818 it is no error
    """A run ended here."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, and to what of what there is: numbers that are taken modulo how much there is."""

    what: str
    one: int = 0
    two: int = 0
    three: int = 0


@dataclass(slots=True)
class History:
    """Files and documents as they are, beside what they should be."""

    small: ModuleType
    data: Path
    root: Path
    collection: Collection
    oracle: Oracle
    desk: Desk
    table: CollectionReader
    away: list[tuple[str, File]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    of_documents: bool = False
    rules: tuple[tuple[str, Said], ...] = ()
    bodies: int = 0
    rows: dict[str, StoredSource] = field(default_factory=dict)
    turn: int = 0

    async def take(self, step: Step) -> bool:
        """Take a step, and hold what is to be seen then against the rules; whether anything was done."""
        said = await getattr(self, f"_{step.what}")(step)
        if said:
            self.log.append(said)
        return bool(said)

    # What people do to files.

    def _pick(self, number: int) -> str | None:
        paths = sorted(self.oracle.files)
        return paths[number % len(paths)] if paths else None

    def _free(self, number: int, folder: str | None = None) -> str | None:
        """A place without a file, in a folder if one is named."""
        free = [one for one in PLACES if one not in self.oracle.files]
        free = [one for one in free if folder is None or one.rpartition("/")[0] == folder]
        return free[number % len(free)] if free else None

    def _body(self) -> str:
        self.bodies += 1
        return f"text{self.bodies}"

    def _put(self, path: str, file: File) -> None:
        self.oracle.files[path] = file
        (self.root / path).write_bytes(file.content)
        beside = self.root / f"{path}.meta.toml"
        beside.unlink(missing_ok=True)
        if file.beside is not None:
            beside.write_bytes(file.beside)

    def _take(self, path: str) -> File:
        (self.root / path).unlink()
        (self.root / f"{path}.meta.toml").unlink(missing_ok=True)
        return self.oracle.files.pop(path)

    def _copied(self, file: File) -> File:
        return File(file.body, file.titled, file.front, file.sidecar)

    async def _wait(self, step: Step) -> str:
        await self._look(EVERYBODY[step.one % len(EVERYBODY)])
        return ""

    async def _write(self, step: Step) -> str:
        path = self._free(step.one)
        if not path or len(self.oracle.files) >= MOST_FILES:
            return ""
        self._put(path, File(self._body(), bool(step.two % 2), ASKS[step.three % len(ASKS)]))
        return f"write a new {path}, which asks for {self.oracle.files[path].front}"

    async def _edit(self, step: Step) -> str:
        if not (path := self._pick(step.one)):
            return ""
        file = self._take(path)
        file.body = self._body()
        self._put(path, file)
        return f"edit {path}"

    async def _rename(self, step: Step) -> str:
        """Within its folder; sometimes it is edited as well."""
        return self._moved(self._pick(step.one), step, same_folder=True)

    async def _move(self, step: Step) -> str:
        return self._moved(self._pick(step.one), step, same_folder=False)

    def _moved(self, path: str | None, step: Step, *, same_folder: bool) -> str:
        to = path and self._free(step.two, path.rpartition("/")[0] if same_folder else None)
        if not path or not to:
            return ""
        file = self._take(path)
        edited = step.three % 3 == 0
        file.body = self._body() if edited else file.body
        self._put(to, file)
        return f"mv {path} {to}{', and edit it' if edited else ''}"

    async def _copy(self, step: Step) -> str:
        """To a free place, or over another file."""
        path, over = self._pick(step.one), step.three % 3 == 0
        to = self._pick(step.two) if over else self._free(step.two)
        if not path or not to or to == path or (not over and len(self.oracle.files) >= MOST_FILES):
            return ""
        self._put(to, self._copied(self.oracle.files[path]))
        return f"cp {path} {to}"

    async def _swap(self, step: Step) -> str:
        one, two = self._pick(step.one), self._pick(step.two)
        if not one or not two or one == two:
            return ""
        first, second = self._take(one), self._take(two)
        self._put(one, second)
        self._put(two, first)
        return f"swap {one} and {two}"

    async def _vanish(self, step: Step) -> str:
        """A file, or all of a folder."""
        folder = FOLDERS[step.two % len(FOLDERS)]
        all_ = [path for path in self.oracle.files if path.startswith(f"{folder}/")]
        path = self._pick(step.one)
        paths = all_ if step.three % 3 == 0 else [path] if path else []
        self.away += [(path, self._take(path)) for path in paths]
        return f"take away {', '.join(paths)}" if paths else ""

    async def _return(self, step: Step) -> str:
        """To the same place or another, sometimes edited."""
        if not self.away or len(self.oracle.files) >= MOST_FILES:
            return ""
        path, file = self.away.pop(step.one % len(self.away))
        to = path if step.two % 2 and path not in self.oracle.files else self._free(step.two)
        if not to:
            return ""
        edited = step.three % 4 == 0
        file.body = self._body() if edited else file.body
        self._put(to, file)
        return f"bring back what was {path} as {to}{', edited' if edited else ''}"

    async def _recreate(self, step: Step) -> str:
        """Delete a file, and write another of its name."""
        if not (path := self._pick(step.one)):
            return ""
        self._take(path)
        self._put(path, File(self._body(), bool(step.two % 2)))
        return f"rm {path}, and write a new one"

    async def _front(self, step: Step) -> str:
        if not (path := self._pick(step.one)):
            return ""
        file = self._take(path)
        file.front = ASKS[step.two % len(ASKS)]
        self._put(path, file)
        return f"let {path} ask for {file.front} in its front matter"

    async def _sidecar(self, step: Step) -> str:
        if not (path := self._pick(step.one)):
            return ""
        file = self._take(path)
        file.sidecar = ASKS[step.two % len(ASKS)]
        self._put(path, file)
        return f"let the sidecar of {path} ask for {file.sidecar}"

    async def _clock(self, step: Step) -> str:
        """The clock was wrong when everything that is stored was written."""
        ahead = (step.one % 3 - 1) * 7200
        for path in self.data.rglob("*"):
            time = path.stat().st_mtime + ahead
            os.utime(path, (time, time))
        return f"the clock was {ahead} s ahead"

    async def _settings(self, step: Step) -> str:
        self.rules = RULES[step.one % len(RULES)]
        self.of_documents = bool(step.two % 3)
        return f"set of_documents to {self.of_documents} and rules to {self.rules}"

    # What administrators do.

    async def _ingest(self, step: Step) -> str:
        run = self._run(step)
        await self._ingested(run, step)
        return f"ingest {_told(run)}"

    async def _crash(self, step: Step) -> str:
        """A run that ends at some point, if it gets there."""
        point, when, number = _moment(step)

        async def killed() -> None:
            raise Killed

        run = self._run(step)
        await self._ingested(run, step, point, when, number, killed)
        return f"ingest {_told(run)}, killed {when} the {number + 1}. {point}"

    async def _meanwhile(self, step: Step) -> str:
        """A run in the middle of which another administrator changes who may see a source."""
        point, when, number = _moment(step)
        if not self.rows:
            return ""
        path = sorted(self.rows)[step.three % len(self.rows)]
        words, act, changed, entry = _act(step.one // 3, step.two // 5)
        document = self.oracle.at(path)
        acted: list[bool] = []

        async def changes() -> None:
            acted.append(True)
            await self._changed([path], changed)
            if words == "revoke":
                await self._hidden_from(path, entry)

        run = self._run(step)
        id_ = self.rows[path].source.id

        def known(rows: dict[str, StoredSource]) -> list[Document]:
            """The same source may hold another document since; then it is open which of the two was meant."""
            meant = []
            for one in self.oracle.documents if acted and document else ():
                here = rows.get(one.path) if one.stored else None
                mine = bool(here and here.source.id == id_)
                if one is document and (mine or not one.stored):
                    self.oracle.act(one, act)
                elif one is document or mine:
                    one.bound = one.bound.or_else(act(one.bound))
                meant += [one] if one is document or mine else []
            return meant

        await self._ingested(run, step, point, when, number, changes, known)
        return f"ingest {_told(run)}, and {when} the {number + 1}. {point} {words} {path} {entry}"

    async def _access(self, step: Step) -> str:
        """`access set`, `grant` or `revoke` of a source or two."""
        if not self.rows:
            return ""
        paths = {sorted(self.rows)[number % len(self.rows)] for number in (step.one, step.three)}
        words, act, changed, entry = _act(step.two, step.three)
        before = self._seen()
        await self._changed(sorted(paths), changed)
        if step.three % 2:
            await copy_labels(self.data, self.collection)
        documents = [one for path in sorted(paths) if (one := self.oracle.at(path))]
        for one in documents:
            self.oracle.act(one, act)
        await self._hold(before, named=documents)
        for path in sorted(paths):
            for who in EVERYBODY:
                if words == "revoke" and names(entry, who, case=False):
                    assert path not in await self._look(who)
                if words == "grant" and names(entry, who, case=True):
                    word = _word(self.rows[path].access)
                    denied = word and any(names(one, who, case=False) for one in word.deny)
                    assert denied or path in await self._look(who)
        return f"access {words} {', '.join(sorted(paths))} {entry}"

    async def _remove(self, step: Step) -> str:
        """Remove a source; sometimes forget who might see it, too."""
        if not self.rows:
            return ""
        path, forget = sorted(self.rows)[step.one % len(self.rows)], step.two % 2
        document, before = self.oracle.at(path), self._seen()
        async with open_writer(self.data, self.collection) as writer:
            await writer.remove([self.rows[path].source.id])
            if forget:
                await writer.forget([self.rows[path].source.id])
        assert document
        document.stored = False
        if forget:
            self.oracle.forget([document])
        await self._hold(before, named=[document])
        return f"remove {path}{' --forget' if forget else ''}"

    async def _purge(self, step: Step) -> str:
        """Purge; sometimes forget who might see what is gone, too."""
        before, forget = self._seen(), step.one % 2
        async with open_writer(self.data, self.collection) as writer:
            if forget:
                await writer.forget(
                    [id_ for id_, one in (await writer.records()).items() if not one.is_folder]
                )
            await writer.purge()
        if forget:
            self.oracle.forget([one for one in self.oracle.documents if not one.stored])
        await self._hold(before)
        return f"purge{' --forget' if forget else ''}"

    # How.

    def _run(self, step: Step) -> Run:
        folder = FOLDERS[step.one % len(FOLDERS)]
        file = self._pick(step.two)
        alone = file is not None and step.one % 7 == 0
        command = SAID[step.two % len(SAID)] if step.three % 3 == 0 else None
        paths = (file,) if alone and file is not None else (folder,)
        return Run(paths, command, step.three % 5 == 0, self.of_documents, self.rules)

    async def _ingested(  # noqa: PLR0913, PLR0917 what can happen in the middle of a run
        self,
        run: Run,
        step: Step,
        point: str = "",
        when: str = "",
        number: int = 0,
        happens: Callable[[], Awaitable[None]] | None = None,
        known: Callable[[dict[str, StoredSource]], list[Document]] | None = None,
    ) -> None:
        before = self._seen()
        paths = [self.root / path for path in run.paths]
        instructions = Instructions(IngestSettings(), 254, self._rights(run), removes=bool(step.one % 2))
        report: Report | None = None
        async with open_writer(self.data, self.collection) as writer:
            if happens:
                _hook(writer, point, when, number, happens)
            with suppress(Killed):
                embedder, silent = self.small.BagOfWords(), self.small.Progress()
                report = await ingest(writer, embedder, paths, instructions, silent)
        rows = await self._stored()
        bodies = {} if report else {path: await self._text(one) for path, one in rows.items()}
        self.oracle.remember(
            run, [path for path, real in zip(run.paths, paths, strict=True) if real.is_dir()]
        )
        planned = self.oracle.planned(run)
        done = [one for one in planned if report or one.file.body in bodies.get(one.path, "")]
        for one in planned:
            if one not in done:
                self.oracle.leave(one)
        self.oracle.finish(run, done, rows, whole=report is not None)
        acted = known(rows) if known else []
        await self._hold(before, report=report, named=acted if report else self.oracle.documents)

    def _rights(self, run: Run) -> Rights:
        command = run.command
        asked = None
        if command:
            asked = RequestedAccess(command.visibility, command.allow, command.deny)  # type: ignore[arg-type]
        rules = tuple(
            AccessRule(path=f"{name}/*", visibility=said.visibility, allow=said.allow, deny=said.deny)  # type: ignore[arg-type]
            for name, said in run.rules
        )
        return Rights(
            self.oracle.usual,  # type: ignore[arg-type]
            asked,
            rules,
            of_documents=run.of_documents,
            set_access=run.set_access,
        )

    async def _changed(self, paths: Sequence[str], changed: Callable[[Access | None], Access]) -> None:
        await change_access(self.data, "default", [self.rows[path].source.id for path in paths], changed)

    # What is to be seen.

    async def _stored(self) -> dict[str, StoredSource]:
        return {self._path(one.source.uri): one for one in await self.table.all_sources()}

    def _path(self, uri: str) -> str:
        return Path(unquote(urlsplit(uri).path)).relative_to(self.root).as_posix()

    async def _text(self, stored: StoredSource) -> str:
        found = await self.table.text(stored.source.id)
        assert found
        return found[2]

    def _seen(self) -> Seen:
        """Where the documents are, and who sees them by the records that were read last."""
        words = {path: _word(one.access) for path, one in self.rows.items()}
        pairs = [(one, words.get(one.path)) for one in self.oracle.documents if one.stored]
        return {one: (one.path, {who for who in EVERYBODY if word and word.lets(who)}) for one, word in pairs}

    async def _hold(
        self,
        before: Seen,
        *,
        report: Report | None = None,
        named: Sequence[Document | None] = (),
    ) -> None:
        """Hold all records against the rules, and what some people see against the records."""
        self.rows = await self._stored()
        assert set(self.rows) == {one.path for one in self.oracle.documents if one.stored}
        after = self._seen()
        for document, (path, people) in after.items():
            for who in people:
                assert document.bound.lets(who), (
                    f"{who} sees {path} ({self.rows[path].access}), at most {document.bound}"
                )
        told = self._told(report)
        for document, (path, people) in before.items():
            here = [one for one in (document, self.oracle.at(path)) if one and one.bodies & document.bodies]
            lost = people - {who for one in here for who in after.get(one, (path, ()))[1]}
            replaced = not document.stored and path in self._replaced(report)
            word = replaced or document in named or not told.isdisjoint({path, document.path})
            assert not lost or word, f"{lost} see {path} no more, without a word: {report}"
        self.turn += 1
        await self._look(
            EVERYBODY[self.turn * 2 % len(EVERYBODY)]
        )  # whoever sees too much does so later, too

    def _told(self, report: Report | None) -> set[str]:
        """The places of which a report says something that changes who sees what."""
        if report is None:
            return set()
        said = [one for one in report.outcomes if one.reason or one.outcome == "removed"]
        texts = [f" {text};" for one in said for text in (one.path, one.reason)]  # "it was a.md; now open"
        return {
            path
            for path in PLACES
            if any(f" {self.root / path}{end}" in text for text in texts for end in ";,")
        }

    def _replaced(self, report: Report | None) -> set[str]:
        """The places at which another document stands now, as a report says."""
        outcomes = report.outcomes if report else ()
        return {self._path(Path(one.path).as_uri()) for one in outcomes if one.outcome == "replaced"}

    async def _look(self, who: Principal) -> set[str]:
        """What somebody sees: just what the records say, by search, in the list, and in full."""
        expected = seen_by({path: _word(one.access) for path, one in self.rows.items()}, who)
        self.turn += 1
        mode = ("sparse", "dense")[self.turn % 2]
        answer = await self.desk.search(who, SearchRequest("pendulum", limit=50, mode=mode))  # type: ignore[arg-type]
        assert {self._path(hit.source.uri) for hit in answer.hits} == expected
        for hit in answer.hits:
            document = self.oracle.at(self._path(hit.source.uri))
            assert document
            assert hit.chunk.text.split()[-1] in document.bodies
        listed = await self.desk.sources(who, after=("", ""), limit=99)
        assert {self._path(one.uri) for one in listed} == expected
        for path in sorted(self.rows)[self.turn % 6 : self.turn % 6 + 1]:
            assert await self._reads(who, self.rows[path].source.id) == (path in expected)
        assert self.desk.alarms == 0
        return expected

    async def _reads(self, who: Principal, id_: str) -> bool:
        try:
            await self.desk.extract(who, id_, max_chars=99)
        except NotFoundError:
            return False
        return True

    async def _hidden_from(self, path: str, entry: str) -> None:
        for who in EVERYBODY:
            if names(entry, who, case=False):
                assert not await self._reads(who, self.rows[path].source.id)


def _word(access: Access | None) -> Word | None:
    return Word(access.visibility == "tenant", access.allow, access.deny) if access else None


def _told(run: Run) -> str:
    flags = " --set-access" if run.set_access else ""
    return f"{', '.join(run.paths) or 'all'} {run.command or ''}{flags}"


POINTS = (
    ("settle", "before"),
    ("settle", "after"),
    ("note_copied", "before"),
    ("copy_labels", "before"),
    ("remove", "before"),
    ("note_removed", "before"),
    ("finish", "before"),
)


def _moment(step: Step) -> tuple[str, str, int]:
    return *POINTS[step.two % len(POINTS)], step.three % 2


def _hook(
    writer: CollectionWriter, point: str, when: str, number: int, happens: Callable[[], Awaitable[None]]
) -> None:
    """Let something happen at the time that a writer's method is called for the number-th time."""
    owner = writer if hasattr(writer, point) else writer._access  # noqa: SLF001 its inner steps
    real = getattr(owner, point)
    calls: list[str] = []

    async def hooked(*given: Any) -> object:  # noqa: ANN401 whatever the method takes
        calls.append(point)
        if when == "before" and len(calls) == number + 1:
            await happens()
        done = await real(*given)
        if when == "after" and len(calls) == number + 1:
            await happens()
        return done

    setattr(owner, point, hooked)


def _act(number: int, other: int) -> tuple[str, Act, Callable[[Access | None], Access], str]:
    """What an administrator does: its name, what the rules say of it, what it does to a record, to whom."""
    entry = ENTRIES[other % len(ENTRIES)]
    match number % 4:
        case 0:
            said = SAID[other % len(SAID)]
            word = said.word("restricted")
            access = Access("tenant" if word.everybody else "restricted", word.allow, word.deny)
            return "set", lambda _bound: Bound.of([word]), lambda _before: access, str(said)
        case 1:
            return "grant", lambda bound: bound.each(lambda one: one.granted(entry)), _granted(entry), entry
    return "revoke", lambda bound: bound.each(lambda one: one.revoked(entry)), _revoked(entry), entry


def _granted(entry: str) -> Callable[[Access | None], Access]:
    def granted(before: Access | None) -> Access:
        assert before
        word = Word(before.visibility == "tenant", before.allow, before.deny).granted(entry)
        return Access(before.visibility, word.allow, word.deny)

    return granted


def _revoked(entry: str) -> Callable[[Access | None], Access]:
    def revoked(before: Access | None) -> Access:
        assert before
        allow = {one for one in before.allow if one.casefold() != entry.casefold()}
        return Access(before.visibility, frozenset(allow), before.deny | {entry})

    return revoked


KINDS = {
    "wait": 1,
    "write": 8,
    "edit": 4,
    "rename": 6,
    "move": 5,
    "copy": 4,
    "swap": 3,
    "vanish": 4,
    "return": 5,
    "recreate": 3,
    "front": 2,
    "sidecar": 3,
    "settings": 2,
    "clock": 1,
    "ingest": 14,
    "access": 8,
    "crash": 4,
    "meanwhile": 4,
    "remove": 2,
    "purge": 1,
}
NUMBERS = st.integers(0, 104)
STEP = st.builds(
    Step,
    st.sampled_from(list(chain.from_iterable([kind] * times for kind, times in KINDS.items()))),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where histories are played: an empty desk to copy, and a loop to run them in."""

    small: ModuleType
    empty: Path
    portal: BlockingPortal
    folder: Path

    async def play(self, usual: str, steps: Sequence[Step]) -> int:
        """A history from its beginning; how many of the steps had anything to do."""
        shutil.rmtree(self.folder, ignore_errors=True)
        data = shutil.copytree(self.empty, self.folder / "data")
        root = self.folder / "files"
        for name in ("hr/pay", "it"):
            (root / name).mkdir(parents=True)
        reader = DeskReader(data, timeout_seconds=15)
        desk = Desk(reader, self.small.BagOfWords(), SearchSettings())
        (collection,) = await reader.collections("default")
        table = await reader.open(collection)
        oracle = Oracle(usual, EVERYBODY)
        history = History(self.small, data, root, collection, oracle, desk, table)
        try:
            taken = [await history.take(step) for step in [Step("write"), Step("ingest", 0, 1, 1), *steps]]
            for who in EVERYBODY:
                await history._look(who)  # noqa: SLF001 the last look
        except BaseException as error:
            for line in history.log:
                error.add_note(line)
            raise
        return sum(taken)


async def _nothing(*_: object, **_named: object) -> None:
    pass


@pytest.fixture(scope="module")
def stage(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    embedder = small_desk.BagOfWords()
    with pytest.MonkeyPatch.context() as patch, start_blocking_portal("asyncio") as portal:
        # What makes commits last longer than the power and tables fast is most of the time of small runs.
        patch.setattr(table_maintenance, "sync_to_disk", lambda *_: None)
        patch.setattr(table_maintenance, "compact", _nothing)
        patch.setattr(AccessTable, "compact", _nothing)
        patch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 2)
        patch.setattr(known_sources, "FEW_GONE", 2)
        make = partial(ensure_collection, folder / "empty", "default", "documents", embedder.identity)
        portal.call(make)
        yield Stage(small_desk, folder / "empty", portal, folder / "history")


def test_nobody_ever_sees_more_than_the_narrowest_reading_allows(stage: Stage) -> None:
    taken: list[int] = []

    @settings(
        max_examples=HISTORIES,
        phases=[Phase.generate],  # to shrink a history takes longer than all tests
        derandomize=HISTORIES <= USUAL,  # the same in each run of the tests; the long profiles draw others
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )
    @given(usual=st.sampled_from(["tenant", "restricted"]), steps=st.lists(STEP, min_size=STEPS, max_size=40))
    def play(usual: str, steps: Sequence[Step]) -> None:
        taken.append(stage.portal.call(stage.play, usual, steps))

    play()
    print(f"{len(taken)} histories, {sum(taken)} steps")  # noqa: T201 pytest shows it where it is asked to
    assert sum(taken) >= 0.9 * STEPS * HISTORIES

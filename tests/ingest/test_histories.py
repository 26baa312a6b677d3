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
from rag.ingest import known_sources, prepare
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
from tests.ingest.conftest import parse_here
from tests.ingest.history_oracle import (
    Act,
    Bound,
    Document,
    File,
    Oracle,
    Run,
    Statement,
    Word,
    names,
    seen_by,
)

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
STATEMENTS = (
    Statement("restricted", ("group:hr",)),
    Statement("tenant"),
    Statement("restricted"),
    Statement(None, ("user:ann",)),
    Statement(None, (), ("group:hr",)),
    Statement("tenant", (), ("user:Jos\u00e9",)),
    Statement("restricted", ("user:bob", "group:hr"), ("user:ann",)),
)
ASKS = (None, None, *STATEMENTS)
RULES = (
    (),
    (("hr", Statement("restricted", ("group:hr",))),),
    (("PAY", Statement("restricted", ("user:bob",))), ("it", Statement("tenant", (), ("user:ann",)))),
)
PLACES = tuple(f"{folder}{name}.md" for folder in ("", "hr/", "hr/pay/", "it/") for name in "abc")
FOLDERS = ("", "", "", "hr", "it", "hr/pay")
MOST_FILES = 6

Viewers: TypeAlias = "dict[Document, tuple[str, set[Principal]]]"


class Killed(Exception):  # noqa: N818 it is no error
    """A run ended here."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, and to what of what there is: numbers that are taken modulo how much there is."""

    what: str
    first: int = 0
    second: int = 0
    third: int = 0


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
    rules: tuple[tuple[str, Statement], ...] = ()
    bodies: int = 0
    rows: dict[str, StoredSource] = field(default_factory=dict)
    turn: int = 0

    async def take(self, step: Step) -> bool:
        """Take a step, and hold what is to be seen then against the rules; whether anything was done."""
        description = await getattr(self, f"_{step.what}")(step)
        if description:
            self.log.append(description)
        return bool(description)

    # What people do to files.

    def _pick(self, number: int) -> str | None:
        paths = sorted(self.oracle.files)
        return paths[number % len(paths)] if paths else None

    def _free(self, number: int, folder: str | None = None) -> str | None:
        """A place without a file, in a folder if one is named."""
        free = [place for place in PLACES if place not in self.oracle.files]
        free = [place for place in free if folder is None or place.rpartition("/")[0] == folder]
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
        await self._look(EVERYBODY[step.first % len(EVERYBODY)])
        return ""

    async def _write(self, step: Step) -> str:
        path = self._free(step.first)
        if not path or len(self.oracle.files) >= MOST_FILES:
            return ""
        self._put(path, File(self._body(), bool(step.second % 2), ASKS[step.third % len(ASKS)]))
        return f"write a new {path}, which asks for {self.oracle.files[path].front}"

    async def _edit(self, step: Step) -> str:
        if not (path := self._pick(step.first)):
            return ""
        file = self._take(path)
        file.body = self._body()
        self._put(path, file)
        return f"edit {path}"

    async def _rename(self, step: Step) -> str:
        """Within its folder; sometimes it is edited as well."""
        return self._moved(self._pick(step.first), step, same_folder=True)

    async def _move(self, step: Step) -> str:
        return self._moved(self._pick(step.first), step, same_folder=False)

    def _moved(self, path: str | None, step: Step, *, same_folder: bool) -> str:
        to = path and self._free(step.second, path.rpartition("/")[0] if same_folder else None)
        if not path or not to:
            return ""
        file = self._take(path)
        edited = step.third % 3 == 0
        file.body = self._body() if edited else file.body
        self._put(to, file)
        return f"mv {path} {to}{', and edit it' if edited else ''}"

    async def _copy(self, step: Step) -> str:
        """To a free place, or over another file."""
        path, over = self._pick(step.first), step.third % 3 == 0
        to = self._pick(step.second) if over else self._free(step.second)
        if not path or not to or to == path or (not over and len(self.oracle.files) >= MOST_FILES):
            return ""
        self._put(to, self._copied(self.oracle.files[path]))
        return f"cp {path} {to}"

    async def _swap(self, step: Step) -> str:
        first_path, second_path = self._pick(step.first), self._pick(step.second)
        if not first_path or not second_path or first_path == second_path:
            return ""
        first, second = self._take(first_path), self._take(second_path)
        self._put(first_path, second)
        self._put(second_path, first)
        return f"swap {first_path} and {second_path}"

    async def _vanish(self, step: Step) -> str:
        """A file, or all of a folder."""
        folder = FOLDERS[step.second % len(FOLDERS)]
        all_ = [path for path in self.oracle.files if path.startswith(f"{folder}/")]
        path = self._pick(step.first)
        paths = all_ if step.third % 3 == 0 else [path] if path else []
        self.away += [(path, self._take(path)) for path in paths]
        return f"take away {', '.join(paths)}" if paths else ""

    async def _return(self, step: Step) -> str:
        """To the same place or another, sometimes edited."""
        if not self.away or len(self.oracle.files) >= MOST_FILES:
            return ""
        path, file = self.away.pop(step.first % len(self.away))
        to = path if step.second % 2 and path not in self.oracle.files else self._free(step.second)
        if not to:
            return ""
        edited = step.third % 4 == 0
        file.body = self._body() if edited else file.body
        self._put(to, file)
        return f"bring back what was {path} as {to}{', edited' if edited else ''}"

    async def _recreate(self, step: Step) -> str:
        """Delete a file, and write another of its name."""
        if not (path := self._pick(step.first)):
            return ""
        self._take(path)
        self._put(path, File(self._body(), bool(step.second % 2)))
        return f"rm {path}, and write a new one"

    async def _front(self, step: Step) -> str:
        if not (path := self._pick(step.first)):
            return ""
        file = self._take(path)
        file.front = ASKS[step.second % len(ASKS)]
        self._put(path, file)
        return f"let {path} ask for {file.front} in its front matter"

    async def _sidecar(self, step: Step) -> str:
        if not (path := self._pick(step.first)):
            return ""
        file = self._take(path)
        file.sidecar = ASKS[step.second % len(ASKS)]
        self._put(path, file)
        return f"let the sidecar of {path} ask for {file.sidecar}"

    async def _clock(self, step: Step) -> str:
        """The clock was wrong when everything that is stored was written."""
        ahead = (step.first % 3 - 1) * 7200
        for path in self.data.rglob("*"):
            time = path.stat().st_mtime + ahead
            os.utime(path, (time, time))
        return f"the clock was {ahead} s ahead"

    async def _settings(self, step: Step) -> str:
        self.rules = RULES[step.first % len(RULES)]
        self.of_documents = bool(step.second % 3)
        return f"set of_documents to {self.of_documents} and rules to {self.rules}"

    # What administrators do.

    async def _ingest(self, step: Step) -> str:
        run = self._run(step)
        await self._ingested(run, step)
        return f"ingest {_described(run)}"

    async def _crash(self, step: Step) -> str:
        """A run that ends at some point, if it gets there."""
        point, when, number = _moment(step)

        async def killed() -> None:
            raise Killed

        run = self._run(step)
        await self._ingested(run, step, point, when, number, killed)
        return f"ingest {_described(run)}, killed {when} the {number + 1}. {point}"

    async def _meanwhile(self, step: Step) -> str:
        """A run in the middle of which another administrator changes who may see a source."""
        point, when, number = _moment(step)
        if not self.rows:
            return ""
        path = sorted(self.rows)[step.third % len(self.rows)]
        words, act, changed, entry = _act(step.first // 3, step.second // 5)
        document = self.oracle.at(path)
        acted: list[bool] = []

        async def changes() -> None:
            acted.append(True)
            await self._changed([path], changed)
            if words == "revoke":
                await self._hidden_from(path, entry)

        run = self._run(step)
        id_ = self.rows[path].source.id

        def note_act(rows: dict[str, StoredSource]) -> list[Document]:
            """The same source may hold another document since; then it is open which of the two was meant."""
            meant = []
            for candidate in self.oracle.documents if acted and document else ():
                here = rows.get(candidate.path) if candidate.stored else None
                mine = bool(here and here.source.id == id_)
                if candidate is document and (mine or not candidate.stored):
                    self.oracle.act(candidate, act)
                elif candidate is document or mine:
                    candidate.bound = candidate.bound.or_else(act(candidate.bound))
                meant += [candidate] if candidate is document or mine else []
            return meant

        await self._ingested(run, step, point, when, number, changes, note_act)
        return f"ingest {_described(run)}, and {when} the {number + 1}. {point} {words} {path} {entry}"

    async def _access(self, step: Step) -> str:
        """`access set`, `grant` or `revoke` of a source or two."""
        if not self.rows:
            return ""
        paths = {sorted(self.rows)[number % len(self.rows)] for number in (step.first, step.third)}
        words, act, changed, entry = _act(step.second, step.third)
        before = self._viewers()
        await self._changed(sorted(paths), changed)
        if step.third % 2:
            await copy_labels(self.data, self.collection)
        documents = [document for path in sorted(paths) if (document := self.oracle.at(path))]
        for document in documents:
            self.oracle.act(document, act)
        await self._hold(before, named=documents)
        for path in sorted(paths):
            for who in EVERYBODY:
                if words == "revoke" and names(entry, who, case=False):
                    assert path not in await self._look(who)
                if words == "grant" and names(entry, who, case=True):
                    word = _word(self.rows[path].access)
                    denied = word and any(names(denied_entry, who, case=False) for denied_entry in word.deny)
                    assert denied or path in await self._look(who)
        return f"access {words} {', '.join(sorted(paths))} {entry}"

    async def _remove(self, step: Step) -> str:
        """Remove a source; sometimes forget who might see it, too."""
        if not self.rows:
            return ""
        path, forget = sorted(self.rows)[step.first % len(self.rows)], step.second % 2
        document, before = self.oracle.at(path), self._viewers()
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
        before, forget = self._viewers(), step.first % 2
        async with open_writer(self.data, self.collection) as writer:
            if forget:
                await writer.forget(
                    [id_ for id_, record in (await writer.records()).items() if not record.is_folder]
                )
            await writer.purge()
        if forget:
            self.oracle.forget([document for document in self.oracle.documents if not document.stored])
        await self._hold(before)
        return f"purge{' --forget' if forget else ''}"

    # How.

    def _run(self, step: Step) -> Run:
        folder = FOLDERS[step.first % len(FOLDERS)]
        file = self._pick(step.second)
        alone = file is not None and step.first % 7 == 0
        command = STATEMENTS[step.second % len(STATEMENTS)] if step.third % 3 == 0 else None
        paths = (file,) if alone and file is not None else (folder,)
        return Run(paths, command, step.third % 5 == 0, self.of_documents, self.rules)

    async def _ingested(  # noqa: PLR0913, PLR0917 what can happen in the middle of a run
        self,
        run: Run,
        step: Step,
        point: str = "",
        when: str = "",
        number: int = 0,
        happens: Callable[[], Awaitable[None]] | None = None,
        note_act: Callable[[dict[str, StoredSource]], list[Document]] | None = None,
    ) -> None:
        before = self._viewers()
        paths = [self.root / path for path in run.paths]
        instructions = Instructions(IngestSettings(), self._rights(run), removes=bool(step.first % 2))
        report: Report | None = None
        async with open_writer(self.data, self.collection) as writer:
            if happens:
                _hook(writer, point, when, number, happens)
            with suppress(Killed):
                embedder, silent = self.small.BagOfWords(), self.small.Progress()
                report = await ingest(writer, embedder, paths, instructions, silent)
        rows = await self._stored()
        bodies = {} if report else {path: await self._text(stored) for path, stored in rows.items()}
        self.oracle.remember(
            run, [path for path, real in zip(run.paths, paths, strict=True) if real.is_dir()]
        )
        planned = self.oracle.planned(run)
        completed = [plan for plan in planned if report or plan.file.body in bodies.get(plan.path, "")]
        for plan in planned:
            if plan not in completed:
                self.oracle.leave(plan)
        self.oracle.finish(run, completed, rows, whole=report is not None)
        acted = note_act(rows) if note_act else []
        await self._hold(before, report=report, named=acted if report else self.oracle.documents)

    def _rights(self, run: Run) -> Rights:
        command = run.command
        requested = None
        if command:
            requested = RequestedAccess(command.visibility, command.allow, command.deny)  # type: ignore[arg-type]
        rules = tuple(
            AccessRule(
                path=f"{name}/*",
                visibility=statement.visibility,  # type: ignore[arg-type]
                allow=statement.allow,
                deny=statement.deny,
            )
            for name, statement in run.rules
        )
        return Rights(
            self.oracle.usual,  # type: ignore[arg-type]
            requested,
            rules,
            of_documents=run.of_documents,
            set_access=run.set_access,
        )

    async def _changed(self, paths: Sequence[str], changed: Callable[[Access | None], Access]) -> None:
        await change_access(self.data, "default", [self.rows[path].source.id for path in paths], changed)

    # What is to be seen.

    async def _stored(self) -> dict[str, StoredSource]:
        return {self._path(stored.source.uri): stored for stored in await self.table.all_sources()}

    def _path(self, uri: str) -> str:
        return Path(unquote(urlsplit(uri).path)).relative_to(self.root).as_posix()

    async def _text(self, stored: StoredSource) -> str:
        stored_text = await self.table.text(stored.source.id)
        assert stored_text
        return stored_text[2]

    def _viewers(self) -> Viewers:
        """Where the documents are, and who sees them by the records that were read last."""
        words = {path: _word(stored.access) for path, stored in self.rows.items()}
        pairs = [
            (document, words.get(document.path)) for document in self.oracle.documents if document.stored
        ]
        return {
            document: (document.path, {who for who in EVERYBODY if word and word.lets(who)})
            for document, word in pairs
        }

    async def _hold(
        self,
        before: Viewers,
        *,
        report: Report | None = None,
        named: Sequence[Document | None] = (),
    ) -> None:
        """Hold all records against the rules, and what some people see against the records."""
        self.rows = await self._stored()
        assert set(self.rows) == {document.path for document in self.oracle.documents if document.stored}
        after = self._viewers()
        for document, (path, people) in after.items():
            for who in people:
                assert document.bound.lets(who), (
                    f"{who} sees {path} ({self.rows[path].access}), at most {document.bound}"
                )
        named_places = self._named_places(report)
        for document, (path, people) in before.items():
            here = [
                document_here
                for document_here in (document, self.oracle.at(path))
                if document_here and document_here.bodies & document.bodies
            ]
            lost = people - {who for document_here in here for who in after.get(document_here, (path, ()))[1]}
            replaced = not document.stored and path in self._replaced(report)
            word = replaced or document in named or not named_places.isdisjoint({path, document.path})
            assert not lost or word, f"{lost} see {path} no more, without a word: {report}"
        self.turn += 1
        await self._look(
            EVERYBODY[self.turn * 2 % len(EVERYBODY)]
        )  # whoever sees too much does so later, too

    def _named_places(self, report: Report | None) -> set[str]:
        """The places of which a report says something that changes who sees what."""
        if report is None:
            return set()
        outcomes = [outcome for outcome in report.outcomes if outcome.reason or outcome.outcome == "removed"]
        texts = [
            f" {text};" for outcome in outcomes for text in (outcome.path, outcome.reason)
        ]  # "it was a.md; now open"
        return {
            path
            for path in PLACES
            if any(f" {self.root / path}{end}" in text for text in texts for end in ";,")
        }

    def _replaced(self, report: Report | None) -> set[str]:
        """The places at which another document stands now, as a report says."""
        outcomes = report.outcomes if report else ()
        return {
            self._path(Path(outcome.path).as_uri()) for outcome in outcomes if outcome.outcome == "replaced"
        }

    async def _look(self, who: Principal) -> set[str]:
        """What somebody sees: just what the records say, by search, in the list, and in full."""
        expected = seen_by({path: _word(stored.access) for path, stored in self.rows.items()}, who)
        self.turn += 1
        mode = ("sparse", "dense")[self.turn % 2]
        answer = await self.desk.search(who, SearchRequest("pendulum", limit=50, mode=mode))  # type: ignore[arg-type]
        assert {self._path(hit.source.uri) for hit in answer.hits} == expected
        for hit in answer.hits:
            document = self.oracle.at(self._path(hit.source.uri))
            assert document
            assert hit.chunk.text.split()[-1] in document.bodies
        listed = await self.desk.sources(who, after=("", ""), limit=99)
        assert {self._path(source.uri) for source in listed} == expected
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


def _described(run: Run) -> str:
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
    return *POINTS[step.second % len(POINTS)], step.third % 2


def _hook(
    writer: CollectionWriter, point: str, when: str, number: int, happens: Callable[[], Awaitable[None]]
) -> None:
    """Let something happen at the time that a writer's method is called for the number-th time."""
    owner = writer if hasattr(writer, point) else writer._access  # noqa: SLF001 its inner steps
    real = getattr(owner, point)
    calls: list[str] = []

    async def hooked(*arguments: Any) -> object:  # noqa: ANN401 whatever the method takes
        calls.append(point)
        if when == "before" and len(calls) == number + 1:
            await happens()
        result = await real(*arguments)
        if when == "after" and len(calls) == number + 1:
            await happens()
        return result

    setattr(owner, point, hooked)


def _act(number: int, choice: int) -> tuple[str, Act, Callable[[Access | None], Access], str]:
    """What an administrator does: its name, what the rules say of it, what it does to a record, to whom."""
    entry = ENTRIES[choice % len(ENTRIES)]
    match number % 4:
        case 0:
            statement = STATEMENTS[choice % len(STATEMENTS)]
            word = statement.word("restricted")
            access = Access("tenant" if word.everybody else "restricted", word.allow, word.deny)
            return "set", lambda _bound: Bound.of([word]), lambda _before: access, str(statement)
        case 1:
            return (
                "grant",
                lambda bound: bound.mapped(lambda word: word.granted(entry)),
                _granted(entry),
                entry,
            )
    return "revoke", lambda bound: bound.mapped(lambda word: word.revoked(entry)), _revoked(entry), entry


def _granted(entry: str) -> Callable[[Access | None], Access]:
    def granted(before: Access | None) -> Access:
        assert before
        word = Word(before.visibility == "tenant", before.allow, before.deny).granted(entry)
        return Access(before.visibility, word.allow, word.deny)

    return granted


def _revoked(entry: str) -> Callable[[Access | None], Access]:
    def revoked(before: Access | None) -> Access:
        assert before
        allow = {allowed for allowed in before.allow if allowed.casefold() != entry.casefold()}
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
            effects = [await history.take(step) for step in [Step("write"), Step("ingest", 0, 1, 1), *steps]]
            for who in EVERYBODY:
                await history._look(who)  # noqa: SLF001 the last look
        except BaseException as error:
            for line in history.log:
                error.add_note(line)
            raise
        return sum(effects)


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
        patch.setattr(prepare, "parse_safely", parse_here)
        patch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 2)
        patch.setattr(known_sources, "FEW_GONE", 2)
        make = partial(ensure_collection, folder / "empty", "default", "documents", embedder.identity)
        portal.call(make)
        yield Stage(small_desk, folder / "empty", portal, folder / "history")


def test_nobody_ever_sees_more_than_the_narrowest_reading_allows(stage: Stage) -> None:
    effects: list[int] = []

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
        effects.append(stage.portal.call(stage.play, usual, steps))

    play()
    print(f"{len(effects)} histories, {sum(effects)} steps")  # noqa: T201 pytest shows it where it is asked to
    assert sum(effects) >= 0.9 * STEPS * HISTORIES

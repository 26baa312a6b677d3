"""Who may see what at most, after whatever happened to the files and their rights: plain rules, told twice.

Nothing here is read off the code that it judges. The rules, in the words in which they were asked for:

1. Rights belong to a document, not to its file's name. A file that looks like what is stored from its place
   is that document. Else it is the document that it was, if it stands at that one's place, if its content is
   one that the document had, or if it was changed and renamed within its folder, and no other file looks like
   it; but not to a place from which something is stored, since that can't be told from an edit of it. A file
   that none of these is true of is a new document; one that stands in the place of another takes over what
   that one's rights were.
2. Whoever copies a document gets no wider rights for the copy than the document has then; from then on the
   two are two. The same holds for a file whose content is that of any document that is recorded.
3. A new document may be seen by whom everything lets see that was said of its place: the command (else the
   first rule that fits), what its deepest folder was ingested with before, and what it asks for itself, where
   documents may; if nothing was said, by whom the collection lets. Where several speak, all must agree.
4. A document that is there, or comes back, has no wider rights than before. A move to a place of which
   something else is said, and whatever it newly asks for itself, can only narrow them.
5. Only these widen: `access set` and `access grant`, a run with --set-access, and to be forgotten. Each says
   what holds from then on. Of a revocation in the middle of a run nothing is undone by that run.
6. A run that was cut short may have done its part or not; no more than one of the two holds.
7. Who saw a document and doesn't any more, can read why in the report of that step, or the step's own command
   named the document.
8. Who may see by the record, does see: by search, in lists, and in full. And nobody else.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rag.corpus import Principal


def _alike(entry: str, other_entry: str, *, case: bool) -> bool:
    forms = [unicodedata.normalize("NFC", entry) for entry in (entry, other_entry)]
    return forms[0] == forms[1] or (not case and forms[0].casefold() == forms[1].casefold())


def names(entry: str, who: Principal, *, case: bool) -> bool:
    """Whether an entry of a list means somebody."""
    theirs = [f"group:{group}" for group in who.groups] + ([f"user:{who.user}"] if who.user else [])
    return any(_alike(entry, own_entry, case=case) for own_entry in theirs)


@dataclass(frozen=True, slots=True)
class Word:
    """What was once said of who may see a document: everybody, or those allowed; never those denied."""

    everybody: bool
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()

    def lets(self, who: Principal) -> bool:
        if any(names(entry, who, case=False) for entry in self.deny):
            return False
        return self.everybody or any(names(entry, who, case=True) for entry in self.allow)

    def granted(self, entry: str) -> Word:
        denied = frozenset(denied for denied in self.deny if not _alike(denied, entry, case=False))
        return replace(self, allow=self.allow | {entry}, deny=denied)

    def revoked(self, entry: str) -> Word:
        return replace(self, deny=self.deny | {entry})


Words: TypeAlias = "frozenset[Word]"
"""All of them must let somebody see."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Who sees a document at most: whom all words of one of these sets let; several after a crash."""

    either: frozenset[Words]

    @classmethod
    def of(cls, words: Iterable[Word]) -> Bound:
        return cls(frozenset({frozenset(words)}))

    def lets(self, who: Principal) -> bool:
        return any(all(word.lets(who) for word in words) for words in self.either)

    def narrowed(self, words: Iterable[Word]) -> Bound:
        added = frozenset(words)
        return Bound(frozenset(words | added for words in self.either))

    def intersected(self, second: Bound) -> Bound:
        return Bound(frozenset(words | other_words for words in self.either for other_words in second.either))

    def or_else(self, second: Bound) -> Bound:
        return Bound(self.either | second.either)

    def mapped(self, changed: Callable[[Word], Word]) -> Bound:
        return Bound(frozenset(frozenset(map(changed, words)) for words in self.either))


Act: TypeAlias = "Callable[[Bound], Bound]"
"""What an administrator does to a document's rights."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a command, a rule or a document says; `visibility` None if only the lists were named."""

    visibility: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def word(self, usual: str) -> Word:
        visibility = self.visibility or ("restricted" if self.allow else usual)
        return Word(visibility == "tenant", frozenset(self.allow), frozenset(self.deny))


@dataclass(eq=False, slots=True)
class Document:
    """A document, whatever it is called: what is recorded of it, and who sees it at most.

    `contents` are those that it was recorded with, `last` is the last of them, and its sidecar. `request` is
    what it last asked for itself, None also where it was never `heard`; `unsure` is whether a crash left that
    open. `shares` is the document that stands at its old place and has its record, until it gets one of its
    own.
    """

    path: str
    bound: Bound
    contents: set[bytes]
    bodies: set[str]
    request: Statement | None = None
    heard: bool = False
    unsure: bool = False
    stored: bool = True
    last: tuple[bytes, bytes | None] = (b"", None)
    shares: Document | None = None


@dataclass(slots=True)
class File:
    """A file on the disk; `document` is the one that it truly is, None if it was never ingested.

    `leftover` is what a run that was killed before it stored the file may have recorded.
    """

    body: str
    titled: bool
    front: Statement | None = None
    sidecar: Statement | None = None
    document: Document | None = None
    leftover: Bound | None = None

    @property
    def content(self) -> bytes:
        front = f"---\n{_lines(self.front, ': ')}---\n" if self.front else ""
        title = f"# {self.body}\n\n" if self.titled else ""
        return f"{front}{title}pendulum {self.body}\n".encode()

    @property
    def beside(self) -> bytes | None:
        """What the file beside it says."""
        return _lines(self.sidecar, ' = "', '"').encode() if self.sidecar else None

    @property
    def asks(self) -> Statement | None:
        return self.sidecar or self.front


def _lines(statement: Statement | None, between: str, after: str = "") -> str:
    if statement is None:
        return ""
    values = {
        "visibility": statement.visibility,
        "allow": ", ".join(statement.allow),
        "deny": ", ".join(statement.deny),
    }
    return "".join(f"{key}{between}{value}{after}\n" for key, value in values.items() if value)


@dataclass(frozen=True, slots=True)
class Run:
    """An ingestion: what it was told, and by which settings. Rules are folders' names and what is said."""

    paths: tuple[str, ...]
    command: Statement | None = None
    set_access: bool = False
    of_documents: bool = False
    rules: tuple[tuple[str, Statement], ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What a run does to a file: the document that it is from then on, and who sees that at most."""

    file: File
    path: str
    document: Document | None
    bound: Bound
    split: bool


@dataclass(slots=True)
class Oracle:
    """All files and documents of a history. Paths are relative; "" is the root folder."""

    usual: str
    everybody: tuple[Principal, ...]
    files: dict[str, File] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    folders: dict[str, Word] = field(default_factory=dict)

    # What a run does.

    def files_met(self, run: Run) -> dict[str, File]:
        """The files that a run meets."""
        return {
            path: file
            for path, file in self.files.items()
            if any(run_path in {path, ""} or path.startswith(f"{run_path}/") for run_path in run.paths)
        }

    def remember(self, run: Run, folders: Iterable[str]) -> None:
        """A folder that was ingested before has no wider word than then; one inside of it none that is wider
        than its own or the new one. With --set-access all of them have the new word.
        """
        if not run.command:
            return
        stated = run.command.word(self.usual)
        for folder in folders:
            before = self._remembered(f"{folder}/x" if folder else "x")
            inside = f"{folder}/" if folder else ""
            below = {path: word for path, word in self.folders.items() if path.startswith(inside)}
            for path, word in (below | {folder: before or stated}).items():
                self.folders[path] = stated if run.set_access else _narrower(word, stated)

    def planned(self, run: Run) -> list[Planned]:
        """What is to become of the files of a run; what they truly are goes before what they look like."""
        planned: list[Planned] = []
        for path, file in sorted(self.files_met(run).items(), key=self._doubt):
            matched = {plan.document for plan in planned if not plan.split}
            planned.append(self._planned(path, file, run, matched))
        return planned

    def _doubt(self, place_and_file: tuple[str, File]) -> tuple[bool, bool]:
        document = self._same(*place_and_file)[0]
        return not self._stands(document, *place_and_file), document is not place_and_file[1].document

    def _stands(self, document: Document | None, path: str, file: File) -> bool:
        """Whether a file is what is stored from its place."""
        return document is not None and document is self.at(path) and document.last[0] == file.content

    def _planned(self, path: str, file: File, run: Run, matched: set[Document | None]) -> Planned:
        document, split = self._same(path, file)
        if document in matched and not split:
            document, split = self._in_place(path)
        gone: list[Document] = []
        if document is None or (split and not document.stored):  # who copies and deletes, moves
            gone = [
                document
                for document in self.documents
                if document.stored and document.last[0] == file.content
            ]
            gone = [document for document in gone if document.path not in self.files]
            free = [document for document in gone if document not in matched]
            document, split = (free[0] if free else None, False) if gone else (document, split)
        if run.set_access:
            return Planned(file, path, document, Bound.of(self._fresh(path, file, run)), split)
        if document is None and not gone:
            bound = Bound.of(self._fresh(path, file, run))
        else:
            bound = self._bound_of_stored(path, file, run, document or gone[0])
        if not self._stands(document, path, file) and (document is None or document is not file.document):
            for document_alike in self.documents:
                if file.content in document_alike.contents:
                    bound = bound.intersected(document_alike.bound)
        return Planned(file, path, document, bound.or_else(file.leftover) if file.leftover else bound, split)

    def _bound_of_stored(self, path: str, file: File, run: Run, document: Document) -> Bound:
        """Who sees a document at most that was there before."""
        bound = document.bound
        before, here = (
            self._words_of_place(document.path, replace(run, command=None)),
            self._words_of_place(path, run),
        )
        if (path != document.path and self._differ(before, here)) or (
            not document.stored and file.content not in document.contents
        ):
            bound = bound.narrowed(here)
        request = file.asks if run.of_documents else None
        changed = (file.content, file.beside) != document.last or not document.heard
        if changed and request and request != document.request:
            narrowed = bound.narrowed([request.word("tenant")])
            bound = bound.or_else(narrowed) if document.unsure else narrowed
        return bound

    def _same(self, path: str, file: File) -> tuple[Document | None, bool]:
        """The document that a file is or takes the place of; whether it is another in that one's place."""
        original = file.document if file.document in self.documents else None
        if (stands := self.at(path)) and stands.last[0] == file.content:
            return stands, False
        if original and (
            original.path == path
            or file.content in original.contents
            or (_folder(original.path) == _folder(path) and not stands and self._vanished(original))
        ):
            return original, False
        return self._in_place(path)

    def _in_place(self, path: str) -> tuple[Document | None, bool]:
        """The document that another one stands in the place of."""
        here = sorted(
            (document for document in self.documents if document.path == path),
            key=lambda document: not document.stored,
        )
        return (here[0], True) if here else (None, False)

    def _vanished(self, document: Document) -> bool:
        """Whether neither a file at its place nor any other looks like it."""
        here = [
            document.path in self.files,
            *(file.content == document.last[0] for file in self.files.values()),
        ]
        return not any(here)

    def finish(self, run: Run, planned: Iterable[Planned], rows: Iterable[str], *, whole: bool) -> None:
        """These files of a run are stored, and all that is stored then is at these places.

        Where it isn't a whole run, their rights may be those of before.
        """
        stored_paths = set(rows)
        before = [(document, document.path, document.bound) for document in self.documents if document.stored]
        for plan in planned:
            maybe = plan.bound.or_else(plan.document.bound) if plan.document else plan.bound
            self._store(plan if whole else replace(plan, bound=maybe), run)
        for document in self.documents:
            document.stored = document.stored and document.path in stored_paths
        for document, path, bound in before:  # what went elsewhere can stand at its old place as well, still
            if path in stored_paths and path != document.path and not self.at(path):
                copy = replace(document, path=path, bound=bound, stored=True, shares=None)
                copy.contents, copy.bodies = {*document.contents}, {*document.bodies}
                self.documents.append(copy)

    def _store(self, plan: Planned, run: Run) -> None:
        document = plan.document
        if document is None or plan.split:
            new_document = Document(plan.path, plan.bound, set(), set())
            if document and document.path == plan.path:
                document.shares, document.stored = new_document, False
            self.documents.append(new_document)
            document = new_document
        for overwritten in self.documents:
            if overwritten is not document and overwritten.path == plan.path:
                overwritten.stored = False
        now = plan.file.content, plan.file.beside
        if document.last != now or run.set_access or (run.of_documents and not document.heard):
            document.request, document.unsure = plan.file.asks if run.of_documents else None, False
            document.heard = run.of_documents
        document.path, document.bound, document.stored, document.shares = plan.path, plan.bound, True, None
        document.last = now
        document.contents.add(plan.file.content)
        document.bodies.add(plan.file.body)
        plan.file.document, plan.file.leftover = document, None

    def leave(self, plan: Planned) -> None:
        """A run was cut short before a file was stored; its rights may be recorded."""
        if plan.document and not plan.split:
            plan.document.bound = plan.document.bound.or_else(plan.bound)
            plan.document.unsure = True
        else:
            plan.file.leftover = plan.file.leftover.or_else(plan.bound) if plan.file.leftover else plan.bound

    # What an administrator does.

    def act(self, document: Document, act: Act) -> None:
        document.bound = act(document.bound)
        for sharer in self.documents:
            if sharer.shares is document and not sharer.stored:
                sharer.bound = sharer.bound.or_else(act(sharer.bound))

    def forget(self, documents: Iterable[Document]) -> None:
        gone = set(documents)
        self.documents = [
            document for document in self.documents if document not in gone and document.shares not in gone
        ]

    def at(self, path: str) -> Document | None:
        """The document that is stored with this path."""
        return next(
            (document for document in self.documents if document.stored and document.path == path), None
        )

    # What was said.

    def _fresh(self, path: str, file: File, run: Run) -> list[Word]:
        if run.set_access and run.command:
            return [run.command.word(self.usual)]
        request = file.asks if run.of_documents else None
        words = self._words_of_place(path, run)
        if request:
            return [*words, request.word("tenant" if words else self.usual)]
        return words or [Statement().word(self.usual)]

    def _words_of_place(self, path: str, run: Run) -> list[Word]:
        rule = next(
            (statement for name, statement in run.rules if name.casefold() in _folded_folders(path)), None
        )
        spoken = run.command.word(self.usual) if run.command else rule and rule.word(self.usual)
        return [word for word in (spoken, self._remembered(path)) if word]

    def _remembered(self, path: str) -> Word | None:
        above = [_folder(path)]
        while above[-1]:
            above.append(_folder(above[-1]))
        return next((self.folders[folder] for folder in above if folder in self.folders), None)

    def _differ(self, before: list[Word], here: list[Word]) -> bool:
        sights = [
            [all(word.lets(who) for word in words) for who in self.everybody] for words in (before, here)
        ]
        return bool(here) and (not before or sights[0] != sights[1])


def _narrower(first: Word, second: Word) -> Word:
    """A word by which nobody sees what either keeps from them."""
    lists = [word.allow for word in (first, second) if not word.everybody]
    allow = frozenset.intersection(*lists) if lists else frozenset[str]()
    return Word(not lists, allow, first.deny | second.deny)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _folded_folders(path: str) -> set[str]:
    return {part.casefold() for part in PurePosixPath(path).parts[:-1]}


def seen_by(words: Mapping[str, Word | None], who: Principal) -> set[str]:
    """The places of those documents that somebody sees by their records."""
    return {path for path, word in words.items() if word and word.lets(who)}

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


def _alike(one: str, other: str, *, case: bool) -> bool:
    forms = [unicodedata.normalize("NFC", entry) for entry in (one, other)]
    return forms[0] == forms[1] or (not case and forms[0].casefold() == forms[1].casefold())


def names(entry: str, who: Principal, *, case: bool) -> bool:
    """Whether an entry of a list means somebody."""
    theirs = [f"group:{group}" for group in who.groups] + ([f"user:{who.user}"] if who.user else [])
    return any(_alike(entry, one, case=case) for one in theirs)


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
        denied = frozenset(one for one in self.deny if not _alike(one, entry, case=False))
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
        return Bound(frozenset(one | added for one in self.either))

    def both(self, other: Bound) -> Bound:
        return Bound(frozenset(one | two for one in self.either for two in other.either))

    def or_else(self, other: Bound) -> Bound:
        return Bound(self.either | other.either)

    def each(self, changed: Callable[[Word], Word]) -> Bound:
        return Bound(frozenset(frozenset(map(changed, words)) for words in self.either))


Act: TypeAlias = "Callable[[Bound], Bound]"
"""What an administrator does to a document's rights."""


@dataclass(frozen=True, slots=True)
class Said:
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

    `contents` are those that it was recorded with, `last` is the last of them, and its sidecar. `asked` is
    what it last asked for itself, None also where it was never `heard`; `unsure` is whether a crash left that
    open. `shares` is the document that stands at its old place and has its record, until it gets one of its
    own.
    """

    path: str
    bound: Bound
    contents: set[bytes]
    bodies: set[str]
    asked: Said | None = None
    heard: bool = False
    unsure: bool = False
    stored: bool = True
    last: tuple[bytes, bytes | None] = (b"", None)
    shares: Document | None = None


@dataclass(slots=True)
class File:
    """A file on the disk; `document` is the one that it truly is, None if it was never ingested.

    `left` is what a run that was killed before it stored the file may have recorded.
    """

    body: str
    titled: bool
    front: Said | None = None
    sidecar: Said | None = None
    document: Document | None = None
    left: Bound | None = None

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
    def asks(self) -> Said | None:
        return self.sidecar or self.front


def _lines(said: Said | None, between: str, after: str = "") -> str:
    if said is None:
        return ""
    values = {
        "visibility": said.visibility,
        "allow": ", ".join(said.allow),
        "deny": ", ".join(said.deny),
    }
    return "".join(f"{key}{between}{value}{after}\n" for key, value in values.items() if value)


@dataclass(frozen=True, slots=True)
class Run:
    """An ingestion: what it was told, and by which settings. Rules are folders' names and what is said."""

    paths: tuple[str, ...]
    command: Said | None = None
    set_access: bool = False
    of_documents: bool = False
    rules: tuple[tuple[str, Said], ...] = ()


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

    def found(self, run: Run) -> dict[str, File]:
        """The files that a run meets."""
        return {
            path: file
            for path, file in self.files.items()
            if any(one in {path, ""} or path.startswith(f"{one}/") for one in run.paths)
        }

    def remember(self, run: Run, folders: Iterable[str]) -> None:
        """A folder that was ingested before has no wider word than then; one inside of it none that is wider
        than its own or the new one. With --set-access all of them have the new word.
        """
        if not run.command:
            return
        said = run.command.word(self.usual)
        for folder in folders:
            before = self._remembered(f"{folder}/x" if folder else "x")
            inside = f"{folder}/" if folder else ""
            below = {one: word for one, word in self.folders.items() if one.startswith(inside)}
            for one, word in (below | {folder: before or said}).items():
                self.folders[one] = said if run.set_access else _met(word, said)

    def planned(self, run: Run) -> list[Planned]:
        """What is to become of the files of a run; what they truly are goes before what they look like."""
        planned: list[Planned] = []
        for path, file in sorted(self.found(run).items(), key=self._doubt):
            taken = {one.document for one in planned if not one.split}
            planned.append(self._planned(path, file, run, taken))
        return planned

    def _doubt(self, found: tuple[str, File]) -> tuple[bool, bool]:
        document = self._same(*found)[0]
        return not self._stands(document, *found), document is not found[1].document

    def _stands(self, document: Document | None, path: str, file: File) -> bool:
        """Whether a file is what is stored from its place."""
        return document is not None and document is self.at(path) and document.last[0] == file.content

    def _planned(self, path: str, file: File, run: Run, taken: set[Document | None]) -> Planned:
        document, split = self._same(path, file)
        if document in taken and not split:
            document, split = self._in_place(path)
        gone: list[Document] = []
        if document is None or (split and not document.stored):  # who copies and deletes, moves
            gone = [one for one in self.documents if one.stored and one.last[0] == file.content]
            gone = [one for one in gone if one.path not in self.files]
            free = [one for one in gone if one not in taken]
            document, split = (free[0] if free else None, False) if gone else (document, split)
        if run.set_access:
            return Planned(file, path, document, Bound.of(self._fresh(path, file, run)), split)
        if document is None and not gone:
            bound = Bound.of(self._fresh(path, file, run))
        else:
            bound = self._kept(path, file, run, document or gone[0])
        if not self._stands(document, path, file) and (document is None or document is not file.document):
            for other in self.documents:
                if file.content in other.contents:
                    bound = bound.both(other.bound)
        return Planned(file, path, document, bound.or_else(file.left) if file.left else bound, split)

    def _kept(self, path: str, file: File, run: Run, document: Document) -> Bound:
        """Who sees a document at most that was there before."""
        bound = document.bound
        before, here = self._said(document.path, replace(run, command=None)), self._said(path, run)
        if (path != document.path and self._differ(before, here)) or (
            not document.stored and file.content not in document.contents
        ):
            bound = bound.narrowed(here)
        asked = file.asks if run.of_documents else None
        changed = (file.content, file.beside) != document.last or not document.heard
        if changed and asked and asked != document.asked:
            narrowed = bound.narrowed([asked.word("tenant")])
            bound = bound.or_else(narrowed) if document.unsure else narrowed
        return bound

    def _same(self, path: str, file: File) -> tuple[Document | None, bool]:
        """The document that a file is or takes the place of; whether it is another in that one's place."""
        own = file.document if file.document in self.documents else None
        if (stands := self.at(path)) and stands.last[0] == file.content:
            return stands, False
        if own and (
            own.path == path
            or file.content in own.contents
            or (_folder(own.path) == _folder(path) and not stands and self._vanished(own))
        ):
            return own, False
        return self._in_place(path)

    def _in_place(self, path: str) -> tuple[Document | None, bool]:
        """The document that another one stands in the place of."""
        here = sorted((one for one in self.documents if one.path == path), key=lambda one: not one.stored)
        return (here[0], True) if here else (None, False)

    def _vanished(self, document: Document) -> bool:
        """Whether neither a file at its place nor any other looks like it."""
        here = [
            document.path in self.files,
            *(one.content == document.last[0] for one in self.files.values()),
        ]
        return not any(here)

    def finish(self, run: Run, planned: Iterable[Planned], rows: Iterable[str], *, whole: bool) -> None:
        """These files of a run are stored, and all that is stored then is at these places.

        Where it isn't a whole run, their rights may be those of before.
        """
        there = set(rows)
        before = [(one, one.path, one.bound) for one in self.documents if one.stored]
        for one in planned:
            maybe = one.bound.or_else(one.document.bound) if one.document else one.bound
            self._store(one if whole else replace(one, bound=maybe), run)
        for document in self.documents:
            document.stored = document.stored and document.path in there
        for document, path, bound in before:  # what went elsewhere can stand at its old place as well, still
            if path in there and path != document.path and not self.at(path):
                left = replace(document, path=path, bound=bound, stored=True, shares=None)
                left.contents, left.bodies = {*document.contents}, {*document.bodies}
                self.documents.append(left)

    def _store(self, one: Planned, run: Run) -> None:
        document = one.document
        if document is None or one.split:
            made = Document(one.path, one.bound, set(), set())
            if document and document.path == one.path:
                document.shares, document.stored = made, False
            self.documents.append(made)
            document = made
        for other in self.documents:
            if other is not document and other.path == one.path:
                other.stored = False
        now = one.file.content, one.file.beside
        if document.last != now or run.set_access or (run.of_documents and not document.heard):
            document.asked, document.unsure = one.file.asks if run.of_documents else None, False
            document.heard = run.of_documents
        document.path, document.bound, document.stored, document.shares = one.path, one.bound, True, None
        document.last = now
        document.contents.add(one.file.content)
        document.bodies.add(one.file.body)
        one.file.document, one.file.left = document, None

    def leave(self, one: Planned) -> None:
        """A run was cut short before a file was stored; its rights may be recorded."""
        if one.document and not one.split:
            one.document.bound = one.document.bound.or_else(one.bound)
            one.document.unsure = True
        else:
            one.file.left = one.file.left.or_else(one.bound) if one.file.left else one.bound

    # What an administrator does.

    def act(self, document: Document, act: Act) -> None:
        document.bound = act(document.bound)
        for other in self.documents:
            if other.shares is document and not other.stored:
                other.bound = other.bound.or_else(act(other.bound))

    def forget(self, documents: Iterable[Document]) -> None:
        gone = set(documents)
        self.documents = [one for one in self.documents if one not in gone and one.shares not in gone]

    def at(self, path: str) -> Document | None:
        """The document that is stored with this path."""
        return next((one for one in self.documents if one.stored and one.path == path), None)

    # What was said.

    def _fresh(self, path: str, file: File, run: Run) -> list[Word]:
        if run.set_access and run.command:
            return [run.command.word(self.usual)]
        asked = file.asks if run.of_documents else None
        said = self._said(path, run)
        if asked:
            return [*said, asked.word("tenant" if said else self.usual)]
        return said or [Said().word(self.usual)]

    def _said(self, path: str, run: Run) -> list[Word]:
        rule = next((said for name, said in run.rules if name.casefold() in _folded_folders(path)), None)
        spoken = run.command.word(self.usual) if run.command else rule and rule.word(self.usual)
        return [word for word in (spoken, self._remembered(path)) if word]

    def _remembered(self, path: str) -> Word | None:
        above = [_folder(path)]
        while above[-1]:
            above.append(_folder(above[-1]))
        return next((self.folders[one] for one in above if one in self.folders), None)

    def _differ(self, before: list[Word], here: list[Word]) -> bool:
        seen = [[all(word.lets(who) for word in words) for who in self.everybody] for words in (before, here)]
        return bool(here) and (not before or seen[0] != seen[1])


def _met(one: Word, other: Word) -> Word:
    """A word by which nobody sees what either keeps from them."""
    lists = [word.allow for word in (one, other) if not word.everybody]
    allow = frozenset.intersection(*lists) if lists else frozenset[str]()
    return Word(not lists, allow, one.deny | other.deny)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _folded_folders(path: str) -> set[str]:
    return {part.casefold() for part in PurePosixPath(path).parts[:-1]}


def seen_by(words: Mapping[str, Word | None], who: Principal) -> set[str]:
    """The places of those documents that somebody sees by their records."""
    return {path for path, word in words.items() if word and word.lets(who)}

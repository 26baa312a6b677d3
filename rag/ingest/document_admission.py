"""Admission: whether a document is stored, with which values masked, and until when.

A document is kept out if it has expired, if the collection's policy or the moderator says so, or if its
container is kept out. Nothing is checked or changed unless the collection or the settings ask for it.

Personal data and secrets that are found in the text are also masked in the title, headings and metadata,
which may lack the words around a number that identify it.
"""

from __future__ import annotations

import inspect
import json
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Collection as Kinds
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import anyio

from rag.config.model_settings import ChatSettings
from rag.config.settings import ModerationSettings
from rag.corpus import Document, FileState, Policy
from rag.errors import ConfigurationError, ProviderError, WithheldError
from rag.ingest.parse.document_parts import date
from rag.ingest.report import Outcome, in_numbers
from rag.ingest.source_files import Budget, LocalFile, path_of, prefixes, printable
from rag.originals import EXPIRES, expiry
from rag.report import shortened
from rag.runtime import FOREIGN_ERRORS, named_object, raise_own_cancellation
from rag.store.write.change_collection import redefine
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import KnownSource, NewSource
from rag.text.flags import MASKS, Flag, FlaggedSpan, spans_in
from rag.text.plain_text import with_replacements

if TYPE_CHECKING:
    from rag.ingest.discover import Discovery
    from rag.models.endpoint import Endpoint

MODERATION = "moderation"
"""The metadata key of documents that the moderation flagged; its value is "flagged"."""


class NotAdmittedError(Exception):
    """A document is kept out by a policy, or has expired. The message contains none of its text."""

    def __init__(self, message: str, kind: Literal["policy", "expired"] = "policy") -> None:
        super().__init__(message)
        self.kind: Literal["policy", "expired"] = kind


@dataclass(frozen=True, slots=True)
class Admitted:
    """A document as it will be stored, and the number of masked values by kind.

    If it is `unmoderated`, the moderator gave no verdict, and the next run asks again.
    """

    document: Document
    masked: Mapping[Flag, int] = field(default_factory=dict)
    unmoderated: bool = False


@dataclass(frozen=True, slots=True)
class DocumentAdmission:
    """A collection's policies for personal data (except `allow`), its retention, and the moderator."""

    personal_data: Mapping[Flag, Policy]
    keep_days: int = 0
    moderator: Moderator | None = None

    @property
    def recipe(self) -> str:
        """The policies that the stored text depends on, for its digest; empty if there are no policies."""
        policies = json.dumps(dict(self.personal_data), sort_keys=True) if self.personal_data else ""
        return policies + (self.moderator.recipe if self.moderator else "")

    async def admit(
        self, document: Document, file: LocalFile, state: FileState | None, budget: Budget
    ) -> Admitted:
        """The document as it will be stored. `state` is the state of its file.

        Searching it for personal data is charged to the file's budget.

        Raises:
            NotAdmittedError: a policy keeps it out, or it has expired.
            WithheldError: its expiry is not a date, or its moderation failed.
        """
        document, name = with_expiry(document, file.requests), file.name
        now = datetime.now(UTC)
        at = expiry(document.metadata, self.keep_days, date=document.date, file=state, ingested_at=now)
        if at and at <= now:
            raise NotAdmittedError(expired_words(at), "expired")
        admitted = Admitted(document)
        if self.personal_data:
            admitted = await budget.run(self._without_personal_data, document, name)
        # After masking: the moderator, perhaps a service of others, sees only what is stored.
        return await self._moderate(admitted, name, self.moderator) if self.moderator else admitted

    async def _moderate(self, admitted: Admitted, name: str, moderator: Moderator) -> Admitted:
        document = admitted.document
        try:
            verdict = await moderator.verdict(document, name)
        except ModerationError as error:
            if moderator.settings.on_failure == "skip":
                raise WithheldError(f"its moderation failed: {error}", "moderation") from error
            remarks = (*document.remarks, f"stored without moderation, which failed: {error}")
            return replace(admitted, document=replace(document, remarks=remarks), unmoderated=True)
        if verdict == "skip":
            raise NotAdmittedError("the moderation keeps it out")
        if verdict == "flag":
            metadata = {**document.metadata, MODERATION: "flagged"}
            remarks = (*document.remarks, "flagged by the moderation")
            document = replace(document, metadata=metadata, remarks=remarks)
        return replace(admitted, document=document)

    def _without_personal_data(self, document: Document, name: str) -> Admitted:
        counts = count_values(document, name, self.personal_data.keys())
        kept_out = {flag: number for flag, number in counts.items() if self.personal_data[flag] == "skip"}
        if kept_out:
            raise NotAdmittedError(f"it contains {in_numbers(kept_out)}; the collection skips such documents")
        to_mask = [flag for flag in counts if self.personal_data[flag] == "redact"]
        masked_document = with_masks(document, to_mask)
        if spans_in(name, to_mask):
            remark = "its file name contains what the collection masks; file names stay as they are"
            masked_document = replace(masked_document, remarks=(*masked_document.remarks, remark))
        return Admitted(masked_document, {flag: counts[flag] for flag in to_mask})


# The documents that a run keeps out with their parts; their stored versions are removed.
#
# A container decides for its parts: if a mail is kept out, has expired or is withheld, its attachments aren't
# stored either.


def check_expiry(source: KnownSource) -> None:
    """Check that a stored source with unchanged text may stay.

    Raises:
        NotAdmittedError: the source has expired.
    """
    if source.expires and has_expired(source):
        raise NotAdmittedError(expired_words(source.expires), "expired")


UNKNOWN_ACCESS = "who may see it now can't be told"
NOT_OF_ACCESS = frozenset({"moderation", "unclear expiry"})  # causes that leave a document's access clear


@dataclass(slots=True)
class KeptOut:
    """The outcomes of stored sources to remove, by id, and why documents are kept out, by URI.

    `withheld` are the URIs of containers whose parts' access can't be told.
    """

    removed: dict[str, Outcome] = field(default_factory=dict)
    withheld: AbstractSet[str] = frozenset()
    _why: dict[str, NotAdmittedError | WithheldError] = field(default_factory=dict)

    def check(self, file: LocalFile, discovery: Discovery) -> None:
        """Check that the containers of a part were not kept out.

        Raises:
            NotAdmittedError: a container was kept out, or has expired.
            WithheldError: a container was withheld.
        """
        why = next(
            (self._why[container] for container in discovery.around(file) if container in self._why), None
        )
        if isinstance(why, NotAdmittedError):
            raise NotAdmittedError(f"what contains it is kept out: {why}", why.kind)
        if why:
            raise WithheldError(f"what contains it is not stored: {why}", why.cause)

    def note(self, file: LocalFile, why: NotAdmittedError | WithheldError) -> None:
        """Note why a document isn't stored."""
        self._why[file.uri] = why

    def withhold(
        self, file: LocalFile, why: WithheldError, earlier: KnownSource | None
    ) -> KnownSource | None:
        """Mark the stored version of a withheld document for removal. Returns it if it stays.

        It goes if nobody can tell who may see the document now: perhaps fewer people than before. Its access
        record stays, and counts again when the document can be stored.
        """
        if earlier is None or why.cause in NOT_OF_ACCESS:
            return earlier
        self.removed[earlier.id] = Outcome(printable(file.path), "removed", UNKNOWN_ACCESS, earlier.id)
        return None

    def outcome(
        self, file: LocalFile, why: NotAdmittedError, earlier: KnownSource | None
    ) -> Iterable[Outcome]:
        """The outcome of a document that is kept out; if a version is stored, its removal is the outcome."""
        self.note(file, why)
        path = printable(file.path)
        if earlier is None:
            return [Outcome(path, "ignored", str(why), kind=why.kind)]
        self.removed[earlier.id] = Outcome(path, "removed", str(why), earlier.id, kind=why.kind)
        return []

    def with_others(
        self,
        sources: Mapping[str, KnownSource],
        may_expire: Iterable[KnownSource],
        stored: Container[str | None],
    ) -> None:
        """Also mark expired sources (unless just re-`stored`), and the parts of all, for removal.

        This includes parts whose container could not be opened, or was not searched. `may_expire` are the
        sources that can have expired.
        """
        expired = expired_outcomes(source for source in may_expire if source.id not in stored)
        for id_, outcome in expired.items():
            self.removed.setdefault(id_, outcome)
        if not (self.removed or self.withheld):
            return
        outer = {uri: Outcome(path_of(uri), "removed", UNKNOWN_ACCESS) for uri in self.withheld}
        outer |= {
            uri: self.removed[source.id] for uri, source in sources.items() if source.id in self.removed
        }
        for uri, source in sources.items():
            if "#" in uri and source.id not in self.removed:
                around = next((outer[at[:-1]] for at in prefixes(uri) if at[:-1] in outer), None)
                if around:
                    reason = f"what contains it is kept out: {around.reason}"
                    part_outcome = replace(around, path=path_of(uri), reason=reason, source_id=source.id)
                    self.removed[source.id] = part_outcome


SHOWN = 40  # characters of an invalid date


def with_expiry(document: Document, around: Iterable[Mapping[str, str]] = ()) -> Document:
    """The document with its stated expiry in UTC under `EXPIRES`, if it states one.

    `around` is the metadata of its containers: a part expires with the first of them.

    Raises:
        WithheldError: a stated expiry is not a date, so it is unknown how long the document may be kept.
    """
    stated = [
        value
        for entries in (document.metadata, *around)
        for key, value in entries.items()
        if key.casefold() == EXPIRES
    ]
    if not stated:
        return document
    moments = [moment for moment in map(date, stated) if moment]
    if len(moments) < len(stated):
        wrong = next(value for value in stated if not date(value))
        raise WithheldError(
            f"its metadata has expires: {shortened(wrong, SHOWN)!r}, which isn't a date like 2027-03-31 or "
            "2027-03-31T18:00:00+02:00. As nobody knows how long it may be kept, it isn't stored",
            "unclear expiry",
        )
    metadata = {key: value for key, value in document.metadata.items() if key.casefold() != EXPIRES}
    return replace(document, metadata=metadata | {EXPIRES: min(moments).isoformat()})


def expired_words(at: datetime) -> str:
    """The reason for keeping out a document that expired."""
    return f"it expired on {at:%Y-%m-%d at %H:%M} UTC"


def has_expired(source: KnownSource) -> bool:
    """Whether a stored source has expired by now."""
    return source.expires is not None and source.expires <= datetime.now(UTC)


def expired_outcomes(sources: Iterable[KnownSource]) -> dict[str, Outcome]:
    """The outcomes, by id, of the sources that have expired and will be removed."""
    return {
        source.id: Outcome(
            path_of(source.uri), "removed", expired_words(source.expires), source.id, kind="expired"
        )
        for source in sources
        if source.expires and has_expired(source)
    }


async def note_expiring(writer: CollectionWriter, wave: Iterable[NewSource]) -> None:
    """Note in the collection that some sources expire, before the first one is stored."""
    collection = writer.collection
    if writer.writes and not collection.expiring and any(EXPIRES in new.source.metadata for new in wave):
        await redefine(writer, expiring=True)


MOST_VALUES = 1000  # values that are also looked for outside of the text, each in every heading


def count_values(document: Document, name: str, kinds: Kinds[Flag]) -> dict[Flag, int]:
    """The number of different values of each kind in a document's text, title, metadata and name."""
    texts = (document.text, document.title, *document.metadata.values(), document.url or "", name)
    values = {(span.flag, text[span.start : span.end]) for text in texts for span in spans_in(text, kinds)}
    return dict(Counter(flag for flag, _ in sorted(values)))


def with_masks(document: Document, kinds: Kinds[Flag]) -> Document:
    """The document with a mask for each value of these kinds. Blocks and pages move with the text.

    A block or page that begins inside of a value begins at its mask.
    Example: "Ask ann@acorn.org." -> "Ask [e-mail address].".
    """
    spans = spans_in(document.text, kinds)
    shift = _Shift.of(spans)
    values = {document.text[span.start : span.end]: MASKS[span.flag] for span in spans[:MOST_VALUES]}

    def short(text: str) -> str:
        for value, mask in values.items():
            text = text.replace(value, mask)
        return _with_masks(text, spans_in(text, kinds))

    url, remarks = document.url, document.remarks
    if url and short(url) != url:
        url, remarks = None, (*remarks, "its url contains what the collection masks, so it was left out")
    masked = _with_masks(document.text, spans)
    return replace(
        document,
        text=masked,
        title=short(document.title),
        blocks=tuple(
            replace(
                block, start=shift.moved(block.start), end=shift.moved(block.end), title=short(block.title)
            )
            for block in document.blocks
        ),
        pages=tuple(map(shift.moved, document.pages)),
        metadata={key: short(value) for key, value in document.metadata.items()},
        url=url,
        remarks=remarks,
        has_lines=document.has_lines and masked.count("\n") == document.text.count("\n"),
    )


def _with_masks(text: str, spans: Sequence[FlaggedSpan]) -> str:
    return with_replacements(text, ((span.start, span.end, MASKS[span.flag]) for span in spans))


@dataclass(frozen=True, slots=True)
class _Shift:
    """Maps positions in a text to positions after spans were replaced by masks."""

    starts: Sequence[int]
    spans: Sequence[FlaggedSpan]
    before: Sequence[int]
    """The shift of each span by the masks before it."""

    @classmethod
    def of(cls, spans: Sequence[FlaggedSpan]) -> _Shift:
        longer = [len(MASKS[span.flag]) - (span.end - span.start) for span in spans]
        return cls([span.start for span in spans], spans, [0, *accumulate(longer)])

    def moved(self, position: int) -> int:
        """The position in the masked text."""
        index = bisect_right(self.starts, position) - 1
        if index < 0:
            return position
        span = self.spans[index]
        if position < span.end:
            return span.start + self.before[index]
        return position + self.before[index + 1]


# Moderation: an operator's function, command or endpoint decides for each document whether it is stored.
#
# It gets only new or changed documents, with the text that would be stored, and has limited time. After some
# failures in a row, this run doesn't ask again.

Verdict = Literal["allow", "flag", "skip"]
Ask: TypeAlias = "Callable[[Mapping[str, object]], Awaitable[str]]"

PIECE_CHARS = 8000  # of a text per input of an endpoint; some take at most 8,192 tokens
PIECES = 32  # inputs per request, OpenAI's limit
VERDICT_SECONDS = 30.0  # for one document
FAILURES = 3  # in a row, after which a run doesn't ask again


class ModerationError(Exception):
    """The moderator gave no verdict. The message says why, without text of the operator's program."""


@dataclass(slots=True)
class Moderator:
    """The moderator of the settings. `ask` gets path, title, text and metadata of a document."""

    settings: ModerationSettings
    ask: Ask
    failures: int = 0

    @property
    def recipe(self) -> str:
        """The settings that verdicts depend on, for digests."""
        return self.settings.model_dump_json(include={"call", "command", "base_url", "model", "flagged"})

    async def verdict(self, document: Document, path: str) -> Verdict:
        """The verdict on a document.

        Raises:
            ModerationError: the moderator failed, was too late, or gave an invalid answer.
        """
        if self.failures >= FAILURES:
            raise ModerationError(f"it failed {FAILURES} times in a row and was not asked any more")
        request = {
            "path": path,
            "title": document.title,
            "text": document.text,
            "metadata": dict(document.metadata),
        }
        try:
            with anyio.fail_after(VERDICT_SECONDS):
                reply = await self.ask(request)
        except TimeoutError:
            error = ModerationError(f"no answer within {VERDICT_SECONDS:g} seconds")
        except ModerationError as failed:
            error = failed
        else:
            if reply in get_args(Verdict):
                self.failures = 0
                return cast("Verdict", reply)
            error = ModerationError("it answered none of allow, flag and skip")
        self.failures += 1
        raise error


@asynccontextmanager
async def open_moderation(
    settings: ModerationSettings, environment: Mapping[str, str]
) -> AsyncIterator[Moderator | None]:
    """The moderator of the settings, for as long as the context lasts; None without moderation.

    Raises:
        ConfigurationError: the function or program doesn't exist, or a key is missing.
    """
    if settings.call:
        yield Moderator(settings, _calling(settings.call))
    elif settings.command:
        if not shutil.which(settings.command[0]):
            raise ConfigurationError(
                f"moderation.command is {settings.command[0]!r}, but this machine has no such program. "
                "Install it, or give its whole path."
            )
        yield Moderator(settings, partial(_run, settings.command))
    elif settings.base_url:
        from rag.models.endpoint import open_endpoint  # noqa: PLC0415 takes 0.5 s and more

        # Endpoints are opened by settings of this form, whatever API they have.
        model = ChatSettings(**settings.model_dump(include={"base_url", "model", "api_key_env"}))
        async with open_endpoint("moderation", model, environment, VERDICT_SECONDS) as endpoint:
            yield Moderator(settings, partial(_ask_endpoint, endpoint, settings))
    else:
        yield None


def unasked(settings: ModerationSettings) -> Moderator | None:
    """A moderator that allows everything, for a run that stores and sends nothing."""

    async def allow(_document: Mapping[str, object]) -> str:
        return "allow"

    return Moderator(settings, allow) if settings.call or settings.command or settings.base_url else None


def _calling(path: str) -> Ask:
    function = named_object(path, "moderation.call is")
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"moderation.call is {path}, which isn't an async def function of that module."
        )

    async def ask(document: Mapping[str, object]) -> str:
        try:
            return str(await function(document))
        except FOREIGN_ERRORS as error:
            raise_own_cancellation(error)
            raise ModerationError(f"it raised {type(error).__name__}") from error

    return ask


async def _run(command: Sequence[str], document: Mapping[str, object]) -> str:
    """The output of a command that gets the document as JSON. Cancellation ends the command."""
    try:
        done = await anyio.run_process(
            list(command), input=json.dumps(document).encode(), stderr=DEVNULL, check=False
        )
    except OSError as error:
        raise ModerationError(f"the command can't be run: {error.strerror}") from error
    if done.returncode:
        raise ModerationError(f"the command ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace").strip()


async def _ask_endpoint(
    endpoint: Endpoint, settings: ModerationSettings, document: Mapping[str, object]
) -> str:
    """The verdict of an endpoint with OpenAI's moderation API on the title and all pieces of the text."""
    text = f"{document['title']}\n{document['text']}"
    pieces = [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
    for start in range(0, len(pieces), PIECES):
        if await _flags(endpoint, settings.model, pieces[start : start + PIECES]):
            return settings.flagged
    return "allow"


async def _flags(endpoint: Endpoint, model: str, pieces: Sequence[str]) -> bool:
    async def request() -> bytes:
        body = {"input": list(pieces)} | ({"model": model} if model else {})
        reply = await endpoint.client.moderations.with_raw_response.create(**body)  # type: ignore[arg-type]
        return reply.content

    try:
        results = json.loads(await endpoint.answer(request))["results"]
        flagged = [result["flagged"] for result in results]
    except ProviderError as error:
        raise ModerationError(str(error).rstrip(".")) from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ModerationError("the endpoint's answer is not valid") from error
    if len(flagged) != len(pieces) or not all(isinstance(verdict, bool) for verdict in flagged):
        raise ModerationError("the endpoint's answer is not valid")
    return any(flagged)

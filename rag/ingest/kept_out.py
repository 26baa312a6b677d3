"""The documents that a run keeps out, what they contain, and the earlier versions that it removes for that.

What contains a part decides for it: a mail that the collection doesn't take, that has expired, or of which
nobody can tell who may see it brings in none of its attachments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rag.errors import WithheldError
from rag.ingest.door import NotAdmittedError
from rag.ingest.paths import path_of, prefixes, printable
from rag.ingest.report import Outcome
from rag.ingest.retention import expired, expired_words, has_expired

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rag.ingest.discover import Discovery, Found
    from rag.store.writer import KnownSource


def check_expiry(source: KnownSource) -> None:
    """Whether a stored source whose text stays may stay.

    Raises:
        NotAdmittedError: it has expired.
    """
    if source.expires and has_expired(source):
        raise NotAdmittedError(expired_words(source.expires), "expired")


@dataclass(slots=True)
class KeptOut:
    """The outcomes, by id, of stored sources that are to be removed, and why others don't come in, by URI."""

    removed: dict[str, Outcome] = field(default_factory=dict)
    _why: dict[str, NotAdmittedError | WithheldError] = field(default_factory=dict)

    def check(self, found: Found, discovery: Discovery) -> None:
        """Whether what contains a part lets it in.

        Raises:
            NotAdmittedError: what contains it was kept out, or has expired.
            WithheldError: what contains it is withheld.
        """
        why = next((self._why[one] for one in discovery.around(found) if one in self._why), None)
        if isinstance(why, NotAdmittedError):
            raise NotAdmittedError(f"what contains it is kept out: {why}", why.kind)
        if why:
            raise WithheldError(f"what contains it is not stored: {why}", why.cause)

    def note(self, found: Found, why: NotAdmittedError | WithheldError) -> None:
        """Note why a document isn't stored."""
        self._why[found.uri] = why

    def outcome(self, found: Found, why: NotAdmittedError, earlier: KnownSource | None) -> Iterable[Outcome]:
        """The outcome of a document that is kept out; that of an earlier version comes with its removal."""
        self.note(found, why)
        path = printable(found.path)
        if earlier is None:
            return [Outcome(path, "ignored", str(why), kind=why.kind)]
        self.removed[earlier.id] = Outcome(path, "removed", str(why), earlier.id, kind=why.kind)
        return []

    def with_others(self, known: Mapping[str, KnownSource], stored: Collection[str | None]) -> None:
        """Add the stored sources that have expired, except those `stored` anew, and what is in any of these.

        Parts whose container could not be opened, or was not looked at, are gone with it as well.
        """
        for id_, outcome in expired(one for one in known.values() if one.id not in stored).items():
            self.removed.setdefault(id_, outcome)
        outer = {uri: self.removed[one.id] for uri, one in known.items() if one.id in self.removed}
        for uri, one in known.items():
            if "#" in uri and one.id not in self.removed:
                around = next((outer[at[:-1]] for at in prefixes(uri) if at[:-1] in outer), None)
                if around:
                    reason = f"what contains it is kept out: {around.reason}"
                    own = replace(around, path=path_of(uri), reason=reason, source_id=one.id)
                    self.removed[one.id] = own

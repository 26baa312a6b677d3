"""The table of who may see a document: in each situation exactly the records that its row names count.

Each record and each place denies somebody of its own, so the settled record tells which of them counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.config.settings import AccessRule
from rag.corpus import Access, AccessRecord
from rag.ingest.discover import Discovery
from rag.ingest.local_files import LocalFile
from rag.ingest.rights.access_decision import TABLE, Claims, Floor, Place, Situation
from rag.ingest.rights.access_history import Recorded
from rag.ingest.rights.requested_rights import RequestedAccess, Rights
from rag.ingest.source_paths import place_of
from rag.store.write.access_claim import Policy, limits, settle
from rag.store.write.table_rows import KnownSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.ingest.rights.access_decision import Row
    from rag.store.write.access_claim import Claim

NOW, BEFORE = "the content now", "another content"
MAILS = "file:///docs/mails.zip"
OF_ORIGINS = {Situation.ORIGIN, Situation.ORIGIN_SET}
CHANGED = {Situation.EDITED, Situation.DISPLACED, Situation.BACK_CHANGED}
GONE = {Situation.BACK, Situation.BACK_CHANGED}
SAID = {
    "nothing is said of its place": (None, ()),
    "a rule says the same of all places": (None, (AccessRule(path="*", deny=("user:place",)),)),
    "the command says something new": (RequestedAccess("tenant", deny=("user:place",)), ()),
}
COUNTS = {
    "nothing is said of its place": set[Place](),
    "a rule says the same of all places": {Place.ALWAYS, Place.SAYS},
    "the command says something new": {*Place} - {Place.NEVER},
}


def access(name: str) -> Access:
    return Access("tenant", deny=frozenset({f"user:{name}"}), revision=1)


@dataclass(frozen=True, slots=True)
class Scene:
    """A document in a situation, beside others that it could be."""

    here: Situation
    is_part: bool
    is_recognized: bool
    said: str

    @property
    def uri(self) -> str:
        inside = "#a.md" if self.is_part else "/a.md"
        return (
            f"origin:wiki{inside}"
            if self.here in OF_ORIGINS
            else f"{MAILS if self.is_part else 'file:///docs'}{inside}"
        )

    @property
    def own(self) -> AccessRecord | None:
        if self.here is Situation.NEW:
            return None
        uri = "file:///old/a.md" if self.here is Situation.MOVED else self.uri
        content = BEFORE if self.here in CHANGED else NOW
        return AccessRecord("own", "docs", uri, access("own"), content, present=self.here not in GONE)

    @property
    def records(self) -> Mapping[str, AccessRecord]:
        folder = self.uri.rpartition("#" if self.is_part else "/")[0] + ("#" if self.is_part else "/")
        own = self.own
        records = [
            *([own] if own else []),
            *(
                [AccessRecord("content", "docs", "file:///x/y.md", access("content"), NOW)]
                if self.is_recognized
                else []
            ),
            AccessRecord("uri", "copies", self.uri, access("uri"), "a third content"),
            AccessRecord(
                "gone", "docs", f"{folder}gone.md", access("gone"), "a fourth content", present=False
            ),
            AccessRecord("container", "docs", MAILS, access("container"), "mails"),
        ]
        return {record.id: record for record in records}

    def claims(self) -> Claims:
        command, rules = SAID[self.said]
        set_access = self.here in {Situation.SET, Situation.ORIGIN_SET}
        recorded = Recorded(self.records)
        recorded.note_new([NOW, *([BEFORE] if self.here is Situation.DISPLACED else [])])
        claims = Claims(
            Rights("tenant", command, rules, set_access=set_access), recorded, lambda _uri: "container"
        )
        origin = {self.uri.partition("#")[0]: access("origin")} if self.here in OF_ORIGINS else {}
        mails = LocalFile.local(Path("/docs/mails.zip"), "mails.zip")
        claims.learn(Discovery(containers={MAILS: mails}, rights=origin))
        return claims

    @property
    def file(self) -> LocalFile:
        return LocalFile(
            self.uri, place_of(self.uri), "a.md", Path("/docs/a.md"), container=MAILS if self.is_part else ""
        )

    @property
    def stored(self) -> KnownSource | None:
        own = self.own
        if own is None or self.here in GONE:
            return None
        return KnownSource("own", own.uri, "digest", 1, "A", {}, own, 0)

    def settled(self, claim: Claim) -> set[str]:
        """Who is denied in the end."""
        fresh = AccessRecord("own", "docs", self.uri, claim.access, claim.content, claim.requested)
        others = limits(claim, self.records, lambda _record: False)
        record = settle(self.own, claim, others, fresh)
        assert record.access
        return {entry.removeprefix("user:") for entry in record.access.deny}

    def counted(self, row: Row) -> set[str]:
        """What counts by a row of the table."""
        counts = COUNTS[self.said]
        by_place = row.place_counts in counts and (
            row.place_counts is not Place.OTHER_PLACES or self.is_recognized
        )
        floor = {Floor.CONTENT: self.is_recognized, Floor.URI: True, Floor.GONE: not self.is_recognized}
        names = {
            "own": self.own is not None and row.policy in {Policy.KEEP, Policy.SYNC},  # set by hand, for SYNC
            "place": by_place,
            "origin": row.policy in {Policy.SYNC, Policy.SYNC_ALL},
            "container": self.is_part and row.policy is not Policy.REPLACE,
            **{kind.name.lower(): kind in row.floor and applies for kind, applies in floor.items()},
        }
        return {name for name, applies in names.items() if applies}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("content", ["new", "known"])
@pytest.mark.parametrize("kind", ["file", "part"])
@pytest.mark.parametrize("here", TABLE, ids=lambda here: here.name)
def test_what_a_row_of_the_table_names_counts_and_nothing_else(
    here: Situation, kind: str, content: str, said: str
) -> None:
    scene = Scene(here, kind == "part", content == "known", said)
    claims, row = scene.claims(), TABLE[here]
    claim = claims.of_document(scene.file, {}, NOW, "own", scene.stored)
    assert scene.settled(claim) == scene.counted(row)
    if here is Situation.MOVED and scene.stored:  # its text may stay, too
        assert scene.settled(claims.of_moved(scene.stored, scene.file)) == scene.counted(row)
    if here is Situation.SAME and scene.stored:
        unchanged = claims.of_unchanged(scene.stored, scene.file, NOW, None)
        assert (unchanged and scene.settled(unchanged)) == (scene.counted(row) if scene.is_part else None)


def test_the_table_has_a_row_for_each_situation() -> None:
    assert set(TABLE) == set(Situation)

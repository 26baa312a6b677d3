"""The access records of one collection, as its writer changes them.

Every change reads, decides and writes under the tenant's access lock. `refdesk-admin access` holds the same
lock, so neither can overwrite what the other has just written. The lock is held for milliseconds, never while
texts are parsed, embedded or stored: taking a right away must not wait for an ingestion.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from rag.access.rule import narrower
from rag.corpus import AccessRecord
from rag.filters.predicate import literal
from rag.store import schema
from rag.store.access_writer import access_table
from rag.store.settle import revised, settle
from rag.store.source_ids import PURGED, is_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import pyarrow as pa

    from rag.corpus import Access, Collection
    from rag.store.access_writer import AccessTable, Around
    from rag.store.settle import Claim
    from rag.store.source_ids import SourceIds


class CollectionAccess:
    """The access records of a collection's sources and folders. `around` encloses every change of rights."""

    def __init__(self, data: Path, collection: Collection, ids: SourceIds, around: Around) -> None:
        self._data = data
        self._collection = collection
        self._ids = ids
        self._around = around
        self._began: dict[str, AccessRecord] = {}

    async def read(self) -> dict[str, AccessRecord]:
        """All records of the tenant by id, those of removed sources included.

        No claim of this writer undoes what somebody else changes after this call.
        """
        async with self._locked() as table:
            self._began = await table.records()
        return dict(self._began)

    async def of(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """Who may see these sources; those that don't exist are left out."""
        async with self._locked() as table:
            return {id_: one.access for id_, one in (await table.of(ids)).items() if one.present}

    async def settle(
        self, claims: Mapping[str, tuple[str, Claim]]
    ) -> tuple[dict[str, AccessRecord], list[AccessRecord]]:
        """Settle claims, with URIs, by source id: all records, and those whose labels the chunks lack.

        A source that was removed since `read` stays so: its record is returned as it is, not present.
        """
        async with self._locked() as table:
            needed = {*claims, *chain.from_iterable(claim.floor for _, claim in claims.values())}
            stored = await table.of(needed)
            settled: dict[str, AccessRecord] = {}
            overtaken, removed = set[str](), set[str]()
            for id_, (uri, claim) in claims.items():
                present = stored | settled  # a part may come with what contains it, and after it
                others = [present[one].access for one in sorted(claim.floor) if one in present]
                own = stored.get(id_)
                if own and self._was_removed(own):
                    settled[id_] = own
                    removed.add(id_)
                    continue
                # The run computed its claims from the records as they were when it began. A record that
                # changed since was changed by somebody else, who knew what they took away.
                if own and own.access != self._began.get(id_, own).access:
                    overtaken.add(id_)
                fresh = self._record(id_, uri, claim)
                settled[id_] = settle(own, claim, others, fresh, overtaken=id_ in overtaken)
            changed = {id_: one for id_, one in settled.items() if one != stored.get(id_)}
            with self._around({id_: (stored.get(id_), one) for id_, one in changed.items()}):
                await table.put(list(changed.values()))
        # What this run settled is its own change. An overtaken record stays overtaken for later claims.
        self._began |= {
            id_: record for id_, record in settled.items() if id_ not in overtaken and id_ not in removed
        }
        behind = [one for one in settled.values() if one.present and not one.copied and one.id in stored]
        return settled, behind

    def _was_removed(self, record: AccessRecord) -> bool:
        """Whether somebody removed the source since this writer read the records, or stored it."""
        before = self._began.get(record.id)
        return not record.present and before is not None and before.present

    def _record(self, id_: str, uri: str, claim: Claim) -> AccessRecord:
        return AccessRecord(id_, self._collection.name, uri, claim.access, claim.content, claim.requested)

    async def change(self, records: Mapping[str, Access]) -> None:
        """Give sources these records; one commit, in force for every reader from then on."""
        async with self._locked() as table:
            stored = await table.of(records)
            await table.put([revised(one, records[id_]) for id_, one in stored.items()])

    async def mend(self, copies: Mapping[str, Access | None]) -> None:
        """Let in only whom both the record and its copy let in, where the copy is of a later record.

        Where the record is the later one, it stays. Both are copied to the chunks again.
        """
        async with self._locked() as table:
            stored = await table.of(copies)
            await table.put([_mended(one, copies[id_]) for id_, one in stored.items()])

    async def remember_folders(self, folders: Mapping[str, Access]) -> None:
        """Record the access that folders, by URI, were ingested with; it applies to later files in them."""
        records = [
            AccessRecord(self._ids.of_folder(uri), "", uri, replace(access, revision=1))
            for uri, access in folders.items()
        ]
        async with self._locked() as table:
            stored = await table.of(one.id for one in records)
            with self._around({one.id: (stored.get(one.id), one) for one in records}):
                await table.put(records)

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete the records of removed sources and of folders, so that nothing applies if they come back."""
        async with self._locked() as table:
            gone = [id_ for id_, one in (await table.of(ids)).items() if not one.present or one.is_folder]
            await table.forget(gone)

    async def note_removed(self, ids: Iterable[str]) -> None:
        """Mark sources as removed. Their records stay, and apply again if the documents come back."""
        async with self._locked() as table:
            stored = (await table.of(ids)).values()
            await table.put([replace(one, present=False, copied=True) for one in stored])

    async def removed(self) -> list[str]:
        """The ids of the sources whose removal is in force, and whose rows may still be stored."""
        async with self._locked() as table:
            return [*await table.records(f"{schema.TOMBSTONE} AND {self._ours}")]

    async def stale(self) -> list[list[AccessRecord]]:
        """The records whose labels the chunks don't hold yet, grouped by equal labels."""
        async with self._locked() as table:
            behind = await table.records(f"(NOT copied) AND {schema.PRESENT} AND {self._ours}")
        alike: dict[str, list[AccessRecord]] = defaultdict(list)
        for record in behind.values():
            alike[json.dumps(schema.label_values(record.access))].append(record)
        return list(alike.values())

    async def note_copied(self, copied: Sequence[AccessRecord]) -> None:
        """Mark records whose labels the chunks hold, except those that changed again meanwhile."""
        if not copied:
            return
        async with self._locked() as table:
            stored = await table.of(one.id for one in copied)
            await table.put([replace(one, copied=True) for one in copied if stored.get(one.id) == one])

    async def repair(self, sources: pa.Table) -> None:
        """Make the records agree with the stored sources, given by their columns `id` and `uri`.

        A source without a record gets one that nobody can see it by: its access was lost.
        """
        async with self._locked() as table:
            if agree(await table.columns(["id", "present"], self._ours), sources):
                return
            ours = await table.records(self._ours)
            uris = {row["id"]: row["uri"] for row in sources.to_pylist()}
            # A tombstone is right: who removed the source waits for its rows to be deleted, not to come back.
            wrong = [
                one for id_, one in ours.items() if one.present != (id_ in uris) and not one.is_tombstone
            ]
            name = self._collection.name
            missing = [(id_, uri) for id_, uri in uris.items() if id_ not in ours]
            lost = [AccessRecord(id_, name, uri, None, copied=False) for id_, uri in missing]
            flipped = [replace(one, present=not one.present) for one in wrong]
            await table.put([*(one if one.present else replace(one, copied=True) for one in flipped), *lost])

    async def purge(self) -> None:
        """Hide the names of removed sources and rewrite the table, so that no file holds them."""
        async with self._locked() as table:
            gone = await table.records(f"(NOT present) AND {self._ours}")
            named = [one for one in gone.values() if not one.uri.startswith(PURGED)]
            await table.put([self._nameless(one) for one in named])
            await table.purge()

    def _nameless(self, record: AccessRecord) -> AccessRecord:
        former = (self._ids.purged(one) if is_uri(one) else one for one in record.former)
        return replace(record, uri=self._ids.purged(record.uri), former=tuple(former))

    def _locked(self) -> AbstractAsyncContextManager[AccessTable]:
        return access_table(self._data, self._collection.tenant)

    @property
    def _ours(self) -> str:
        return f"(collection = {literal(self._collection.name)})"


def _mended(record: AccessRecord, copy: Access | None) -> AccessRecord:
    if copy is None or record.access is None or copy.revision <= record.access.revision:
        return replace(record, copied=False)
    return revised(replace(record, access=copy), narrower(record.access, copy))


def agree(records: pa.Table, sources: pa.Table) -> bool:
    """Whether exactly the sources have records that say that they are present.

    Without an object per record: a run on one document must not cost what all of them do.
    """
    present = pc.equal(pc.is_in(records["id"], sources["id"]), records["present"])
    known = pc.is_in(sources["id"], records["id"])
    return all(pc.all(column, min_count=0).as_py() for column in (present, known))

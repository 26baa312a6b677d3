"""Which access records a restored tenant gets: those of the backup, narrowed by the present ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.access.rule import narrower, same
from rag.store.settle import KEPT_FORMER, revised
from rag.store.source_ids import SourceIds

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from rag.corpus import AccessRecord, Collection


@dataclass(frozen=True, slots=True)
class Merged:
    """The records to write.

    Among them those that are narrower than in the backup (`narrowed`), those of sources that were removed
    since (`returned`), and those of sources that the backup doesn't have (`dropped`).
    """

    records: Sequence[AccessRecord]
    narrowed: Sequence[AccessRecord]
    returned: Sequence[AccessRecord]
    dropped: Sequence[AccessRecord]


def merged(
    present: Mapping[str, AccessRecord],
    backup: Mapping[str, AccessRecord],
    restored: Container[str],
    collections: Container[str],
    *,
    exact: bool,
) -> Merged:
    """The records of a tenant whose `collections` get the state of a backup, with the sources `restored`.

    A record that both have becomes the narrower of both, unless `exact`. Records of sources that are not
    restored stay: they apply if the document comes back.
    """
    put, narrowed, returned = [], [], []
    for id_, one in backup.items():
        own = present.get(id_)
        if one.is_folder:
            put.append(one if exact or own is None else replace(one, access=narrower(one.access, own.access)))
        elif id_ in restored:
            kept = _merged_source(one, own, exact=exact)
            put.append(kept)
            narrowed += [] if same(kept.access, one.access) else [kept]
            returned += [kept] if own and not own.present else []
        elif own is None:
            put.append(replace(one, present=False, copied=True))
    dropped = [
        one
        for id_, one in present.items()
        if one.present and one.collection in collections and id_ not in restored
    ]
    put += [replace(one, present=False, copied=True) for one in dropped]
    return Merged(put, narrowed, returned, dropped)


def _merged_source(one: AccessRecord, own: AccessRecord | None, *, exact: bool) -> AccessRecord:
    if own is None:
        return replace(one, present=True)
    known = dict.fromkeys((*one.former, own.content, own.uri, *own.former))
    former = tuple(part for part in known if part and part not in {one.content, one.uri})[:KEPT_FORMER]
    restored = replace(one, present=True, former=former)
    access = one.access if exact else narrower(one.access, own.access)
    return restored if same(access, one.access) else revised(restored, access)


def with_ids_of(
    key: bytes,
    records: Mapping[str, AccessRecord],
    collections: Sequence[Collection],
    tenant: str,
    old: bytes,
) -> dict[str, AccessRecord]:
    """The records by id, with folders under the ids that they have in a data folder with this key.

    The records were made with the key `old`, for `tenant`; `collections` are of the tenant that gets them.
    """
    ids = [(SourceIds(replace(one, tenant=tenant), old), SourceIds(one, key)) for one in collections]
    changed = {}
    for id_, record in records.items():
        new = (now.of_folder(record.uri) for before, now in ids if before.of_folder(record.uri) == id_)
        here = next(new, id_) if record.is_folder else id_
        changed[here] = replace(record, id=here)
    return changed

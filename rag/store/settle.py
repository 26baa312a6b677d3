"""Which access record a source gets when it is ingested.

A source that has a record keeps it. Whatever else may apply to the document, such as the record of another
document with the same content, can only narrow that record. Only a run with `--set-access` replaces it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.access.rule import narrower, same
from rag.corpus import Access

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.corpus import AccessRecord

_NOBODY = Access("restricted")
KEPT_FORMER = 32  # earlier contents and URIs of a document, some 2 kB at most


@dataclass(frozen=True, slots=True)
class Claim:
    """The access that an ingestion run wants for a document, computed before the tenant's records are locked.

    `access` applies to a document that has no record yet. A document that has one keeps it, unless
    `set_access` is true. `content` is a digest of the document's bytes. `requested` is the access that the
    document's own metadata requests, as JSON, and `requested_access` the same as a record. The settled record
    is never wider than the records of the source ids in `narrowed_by`, nor than `access` if
    `narrow_to_access`. `by_origin` is whether the document's origin decides who may see it: then `access`
    applies in every run, also if it is wider, unless somebody changed the record by hand.
    """

    access: Access | None
    set_access: bool = False
    content: str = ""
    requested: str = ""
    requested_access: Access | None = None
    narrowed_by: frozenset[str] = frozenset()
    narrow_to_access: bool = False
    by_origin: bool = False


def settle(
    own: AccessRecord | None,
    claim: Claim,
    others: Iterable[Access | None],
    fresh: AccessRecord,
    *,
    overtaken: bool = False,
) -> AccessRecord:
    """The record that the source gets.

    `own` is the record under its id, kept even if the source was removed meanwhile; None for a new source.
    `fresh` is the record that a new source would get. `others` are the records of `claim.narrowed_by`.
    `overtaken` is whether somebody else changed the record after the run began. That change must survive, so
    even `set_access` can only narrow it.
    """
    if claim.by_origin:
        return _by_origin(own, claim, fresh, overtaken=overtaken)
    if own is None:
        return replace(fresh, access=_first_revision(narrower(fresh.access, *others)))
    access = _replaced(own, claim, overtaken=overtaken) if claim.set_access else _kept(own, claim, others)
    updated = replace(fresh, access=own.access, copied=own.copied, former=_former(own, fresh))
    return updated if same(own.access, access) else revised(updated, access)


def _by_origin(
    own: AccessRecord | None, claim: Claim, fresh: AccessRecord, *, overtaken: bool
) -> AccessRecord:
    """The record of a document whose origin decides who may see it.

    The record notes in `requested` which revision the origin made. If it has another one now, somebody
    changed it by hand: from then on it is never wider than they made it. `set_access` lifts that limit.
    """
    if own is None:
        return replace(fresh, access=_first_revision(fresh.access), requested=_note(1, None))
    revision = own.access.revision if own.access else 0
    noted, limit = _noted(own.requested)
    if noted != revision:
        limit = own.access or _NOBODY
    if claim.set_access and not overtaken:
        limit = None
    wanted = narrower(limit, claim.access) if limit else claim.access
    access = narrower(own.access, wanted) if claim.narrow_to_access else wanted
    updated = replace(fresh, access=own.access, copied=own.copied, former=_former(own, fresh))
    if not same(own.access, access):
        updated = revised(updated, access)
        revision = updated.access.revision if updated.access else 0
    return replace(updated, requested=_note(revision, limit))


def _note(revision: int, limit: Access | None) -> str:
    lists = limit and [limit.visibility, sorted(limit.allow), sorted(limit.deny)]
    return json.dumps({"origin": revision, "by_hand": lists})


def _noted(requested: str) -> tuple[int | None, Access | None]:
    """The revision that the origin made, None if it made none, and the access that was set by hand."""
    read = json.loads(requested) if requested else {}
    lists = read.get("by_hand")
    return read.get("origin"), lists and Access(lists[0], frozenset(lists[1]), frozenset(lists[2]))


def decided_by_origin(record: AccessRecord) -> bool:
    """Whether the origin of a document decides who may see it: each sync brings it anew."""
    return _noted(record.requested)[0] is not None


def _replaced(own: AccessRecord, claim: Claim, *, overtaken: bool) -> Access | None:
    return narrower(own.access, claim.access) if overtaken else claim.access


def _kept(own: AccessRecord, claim: Claim, others: Iterable[Access | None]) -> Access | None:
    access = narrower(own.access, *others)
    if claim.requested_access and claim.requested != own.requested:
        # A request narrows once, when it changes. If an unchanged request applied in every run, it would
        # undo what an operator granted since.
        access = narrower(access, claim.requested_access)
    another_document = not own.present and own.content != claim.content  # under the URI of a removed one
    if claim.narrow_to_access or another_document:
        access = narrower(access, claim.access)
    return access


def until_stored(claim: Claim) -> Claim:
    """The claim that applies while the earlier text is still stored.

    With `set_access`, or if the origin decides, a run may widen the access to a new version. If that took
    effect before the new version is stored, a crash in between would expose the earlier text, which was never
    meant for these readers.
    """
    is_set = claim.set_access or claim.by_origin
    return replace(claim, set_access=False, narrow_to_access=True) if is_set else claim


def revised(record: AccessRecord, access: Access | None) -> AccessRecord:
    """The record with its next revision, whose labels the chunks don't hold yet."""
    before = record.access.revision if record.access else 0
    return replace(record, access=access and replace(access, revision=before + 1), copied=False)


def _first_revision(access: Access | None) -> Access | None:
    return access and replace(access, revision=1)


def _former(own: AccessRecord, fresh: AccessRecord) -> tuple[str, ...]:
    """The document's earlier contents and URIs: an older copy of it can come back from a backup."""
    known = dict.fromkeys((own.content, own.uri, *own.former))
    return tuple(one for one in known if one and one not in {fresh.content, fresh.uri})[:KEPT_FORMER]

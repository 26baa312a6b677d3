"""Decides which access record a source gets when it is ingested.

A source that has a record keeps it. Anything else that applies to the document, such as the record of a
document with the same content, can only narrow it. Only a run with `--set-access`, or the document's origin,
replaces the record (`Policy`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from rag.access.rule import narrower, same_access
from rag.corpus import Access, AccessRecord

_NOBODY = Access("restricted")
KEPT_FORMER = 32  # earlier contents and URIs of a document, some 2 kB at most


class Policy(Enum):
    """How a claim changes the present access record. A document without a record gets the claim's access.

    `SYNC` is for a document whose origin decides who may see it: then a run can also widen the record, unless
    somebody changed it by hand.
    """

    KEEP = "the record stays"
    NARROW = "the record stays, but is never wider than the claim's access"
    REPLACE = "the claim's access replaces the record (--set-access)"
    SYNC = "the claim's access replaces the record, within what was set by hand"
    SYNC_ALL = "the claim's access replaces the record and what was set by hand (--set-access)"
    SYNC_NARROW = "as SYNC, but never wider than the record"

    @property
    def is_sync(self) -> bool:
        """Whether the document's origin decides who may see it."""
        return self in {Policy.SYNC, Policy.SYNC_ALL, Policy.SYNC_NARROW}

    @property
    def widens(self) -> bool:
        """Whether the record can become wider, so that it must wait for the new text (`until_stored`)."""
        return self in _UNTIL_STORED


_UNTIL_STORED = {
    Policy.REPLACE: Policy.NARROW,
    Policy.SYNC: Policy.SYNC_NARROW,
    Policy.SYNC_ALL: Policy.SYNC_NARROW,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The access that an ingestion run wants for a document, computed before the tenant's records are locked.

    `access` applies to a document without a record; `policy` says how it changes a record. `floor` are the
    ids of sources whose records limit it: the document is never more widely visible than any of them.

    The record notes `content`, a digest of the document's bytes, and `requested`, the access that the
    document's own metadata requests, as JSON; `requested_access` is the same as a record.

    For the report, `reason` says why the document may get less than a new one, and `gone` is the record of
    the removed document that it may be a new version of.
    """

    access: Access | None
    policy: Policy = Policy.KEEP
    floor: frozenset[str] = frozenset()
    content: str = ""
    requested: str = ""
    requested_access: Access | None = None
    reason: str = ""
    gone: AccessRecord | None = None


def limits(
    claim: Claim, records: Mapping[str, AccessRecord], is_overtaken: Callable[[AccessRecord], bool]
) -> list[Access | None]:
    """The upper limits of a claim's access: the records of its floor.

    `is_overtaken` says whether somebody else changed a record after the run began.
    """
    floor = [records[id_] for id_ in sorted(claim.floor) if id_ in records]
    if claim.policy is Policy.REPLACE:
        # The container of a part gets the same access in this run, perhaps later than the part. So its record
        # counts only if somebody else narrowed it meanwhile.
        floor = [record for record in floor if is_overtaken(record)]
    return [record.access for record in floor]


def settle(
    record: AccessRecord | None,
    claim: Claim,
    floor: Iterable[Access | None],
    fresh: AccessRecord,
    *,
    overtaken: bool = False,
) -> AccessRecord:
    """The record that the source gets.

    `record` is its present one, also if the source was removed meanwhile; None for a new source. `fresh` is
    the record that a new source would get. `floor` are the `limits` of the claim. If somebody else changed
    the record after the run began, it is `overtaken`: that change must survive, so even `Policy.REPLACE` can
    only narrow it.
    """
    if record is None:
        # Noted as set by the origin, so that its next change isn't taken for one by hand.
        fresh = replace(fresh, requested=_note(1, None)) if claim.policy.is_sync else fresh
        access = narrower(fresh.access, *floor)
        return replace(fresh, access=access and replace(access, revision=1))
    current = replace(fresh, access=record.access, copied=record.copied, former=_former(record, fresh))
    if claim.policy.is_sync:
        return _by_origin(record, claim, floor, current, overtaken=overtaken)
    if claim.policy is Policy.REPLACE:
        # Somebody has just changed it by hand, perhaps to revoke: the run must not undo that unseen.
        access = narrower(record.access, claim.access) if overtaken else claim.access
        return with_access(current, narrower(access, *floor))
    return with_access(current, _kept_access(record, claim, floor))


def _by_origin(
    record: AccessRecord,
    claim: Claim,
    floor: Iterable[Access | None],
    current: AccessRecord,
    *,
    overtaken: bool,
) -> AccessRecord:
    """The record of a document whose origin decides who may see it.

    The record notes in `requested` the revision that the origin set. Another revision now means that somebody
    changed it by hand: from then on that change is an upper limit, which `SYNC_ALL` lifts.
    """
    noted, limit = _origin_note(record.requested)
    if noted != _revision(record):  # a change by hand raises it, even to equal access
        limit = record.access or _NOBODY
    if claim.policy is Policy.SYNC_ALL and not overtaken:
        limit = None
    # The origin doesn't know if a container was narrowed by hand.
    access = narrower(claim.access, *([limit] if limit else []), *floor)
    access = narrower(record.access, access) if claim.policy is Policy.SYNC_NARROW else access
    settled = with_access(current, access)
    return replace(settled, requested=_note(_revision(settled), limit))


def with_access(record: AccessRecord, access: Access | None) -> AccessRecord:
    """The record with this access, `revised` unless it has it already."""
    return record if same_access(record.access, access) else revised(record, access)


def _revision(record: AccessRecord) -> int:
    return record.access.revision if record.access else 0


def _note(revision: int, limit: Access | None) -> str:
    lists = limit and [limit.visibility, sorted(limit.allow), sorted(limit.deny)]
    return json.dumps({"origin": revision, "by_hand": lists})


def _origin_note(requested: str) -> tuple[int | None, Access | None]:
    """The revision that the origin set, None without one, and the access that was set by hand."""
    read = json.loads(requested) if requested else {}
    lists = read.get("by_hand")
    return read.get("origin"), lists and Access(lists[0], frozenset(lists[1]), frozenset(lists[2]))


def decided_by_origin(record: AccessRecord) -> bool:
    """Whether the origin of a document decides who may see it, with each sync."""
    return _origin_note(record.requested)[0] is not None


def _kept_access(record: AccessRecord, claim: Claim, floor: Iterable[Access | None]) -> Access | None:
    access = narrower(record.access, *floor)
    if claim.requested_access and claim.requested != record.requested:
        # A request narrows once, when it changes. If an unchanged request applied in every run, it would
        # undo what an operator granted since.
        access = narrower(access, claim.requested_access)
    if claim.policy is Policy.NARROW:
        access = narrower(access, claim.access)
    return access


def until_stored(claim: Claim) -> Claim:
    """The claim that applies while the earlier text is still stored.

    With `Policy.REPLACE`, or if the origin decides, a run may widen the access to a new version. If that took
    effect before the new version is stored, a crash in between would expose the earlier text to readers for
    whom it was never meant.
    """
    return replace(claim, policy=_UNTIL_STORED.get(claim.policy, claim.policy))


def revised(record: AccessRecord, access: Access | None) -> AccessRecord:
    """The record with its next revision, whose labels the chunks don't hold yet."""
    revision = _revision(record) + 1
    return replace(record, access=access and replace(access, revision=revision), copied=False)


def _former(record: AccessRecord, fresh: AccessRecord) -> tuple[str, ...]:
    """The document's earlier contents and URIs: an older copy of it can come back from a backup."""
    keys = dict.fromkeys((record.content, record.uri, *record.former))
    return tuple(key for key in keys if key and key not in {fresh.content, fresh.uri})[:KEPT_FORMER]

"""Which access record a source gets when it is ingested.

A source that has a record keeps it. Whatever else may apply to the document, such as the record of another
document with the same content, can only narrow that record. Only a run with `--set-access` replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.access.rule import narrower, same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.corpus import Access, AccessRecord

KEPT_FORMER = 32  # earlier contents and URIs of a document, some 2 kB at most


@dataclass(frozen=True, slots=True)
class Claim:
    """The access that an ingestion run wants for a document, computed before the tenant's records are locked.

    `access` applies to a document that has no record yet. A document that has one keeps it, unless
    `set_access` is true. `content` is a digest of the document's bytes. `requested` is the access that the
    document's own metadata requests, as JSON, and `requested_access` the same as a record. The settled record
    is never wider than the records of the source ids in `narrowed_by`, nor than `access` if
    `narrow_to_access`.
    """

    access: Access | None
    set_access: bool = False
    content: str = ""
    requested: str = ""
    requested_access: Access | None = None
    narrowed_by: frozenset[str] = frozenset()
    narrow_to_access: bool = False


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
    if own is None:
        return replace(fresh, access=_first_revision(narrower(fresh.access, *others)))
    access = _replaced(own, claim, overtaken=overtaken) if claim.set_access else _kept(own, claim, others)
    updated = replace(fresh, access=own.access, copied=own.copied, former=_former(own, fresh))
    return updated if same(own.access, access) else revised(updated, access)


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

    With `set_access` a run may widen the access to a new version. If that took effect before the new version
    is stored, a crash in between would expose the earlier text, which was never meant for these readers.
    """
    return replace(claim, set_access=False, narrow_to_access=True) if claim.set_access else claim


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

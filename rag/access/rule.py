"""The access rule (who may see a source), as an SQL predicate and as a function; and bindings, its limits.

A principal sees a source of its tenant if the source has an access record, the deny list doesn't name the
principal's user or groups, and either the visibility is `tenant` or the allow list names one of them. Deny
always wins. An empty list names nobody, and without a record nobody sees the source.

Names are compared in Unicode normal form NFC. By default letter case matters in allow lists and not in deny
lists, to fail closed: `deny group:HR` also stops `hr`, but `allow group:HR` doesn't admit `hr`.

The engine can't fold letter case, so tables store a record as a list of labels that holds both forms:
`+user:Ann` and `~+user:ann` for an allowed entry, `-user:Ann` and `~-user:ann` for a denied one, `*` for
everybody. The predicate then picks the form by `LetterCase`, which can change without rewriting a table. One
index serves all labels. A record without any of these has the label `-`.

The module begins with valid names of tenants, collections, users and groups. The store joins the names of
tenants and collections into table names, and access lists name users and groups as `user:ann` and `group:hr`.
Settings, commands and document metadata all check their input here.

A binding, of a tool, an API key or an OAuth scope, only narrows the rule, and all bindings must admit a
source. They fail closed: a mistake in one is an error or shows nothing. A request's own filter applies in
addition.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rag.answers import MAX_LIMIT
from rag.corpus import Access, Binding, Collection, LetterCase, Principal, Visibility
from rag.errors import ConfigurationError, InvalidRequestError, as_value_error
from rag.filters.grammar import AllOf, AnyOf, Filter, check_form, literal, parse_filter

DEFAULT_TENANT = "default"
NAME_PATTERN = r"^[a-z0-9]+(?:[-_][a-z0-9]+)*$"
"""For tenants and collections. It excludes `__`, which separates the two in table names."""
NAME_LENGTH = 48
MAX_ENTRIES = 256  # of an access list, and groups of a principal; more is an error, never truncated
MAX_ENTRY_CHARS = 256
ENTRY_KINDS = ("user", "group")


def valid_name(name: str) -> str:
    """`name`, unchanged, if it may name a tenant or a collection.

    Raises:
        ConfigurationError: the name is not valid. The message describes valid names.
    """
    if len(name) <= NAME_LENGTH and re.fullmatch(NAME_PATTERN, name):
        return name
    raise ConfigurationError(
        f"{name[:64]!r} is not a valid name: use up to {NAME_LENGTH} lower-case letters and digits, "
        "separated by single - or _."
    )


def bare_name(kind: Literal["user", "group"], name: str) -> str:
    """`name`, unchanged, if it may name a user or a group without the prefix of an access list entry.

    "group:hr" instead of "hr" would match nobody, and a denial of "hr " would stop nobody in hr. So both are
    errors, not names of other groups.

    Raises:
        ConfigurationError: no access list can hold the name, it has such a prefix, or spaces around it.
    """
    try:
        valid_entries([f"{kind}:{name}"])
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{name[:64]!r} is not a valid name of a {kind}: use up to {MAX_ENTRY_CHARS - len(kind) - 1} "
            "printable characters."
        ) from error
    if name != name.strip():
        raise ConfigurationError(f"{name[:64]!r} begins or ends with a space. Give the name without it.")
    prefix, _, bare = (part.strip() for part in name.partition(":"))
    if prefix.casefold() == kind:
        raise ConfigurationError(f"Give the {kind}'s name without a prefix: {bare or 'NAME'}, not {name}.")
    if prefix.casefold() in ENTRY_KINDS and bare:
        raise ConfigurationError(f"{name} names a {prefix.casefold()}; give the name of a {kind}.")
    return name


def one_group_notes(groups: Iterable[str]) -> list[str]:
    """Notes on names that look like several groups. They may be one: "CN=hr,OU=staff"."""
    return [
        f"{name} is one group. Name several one by one." for name in groups if not {",", ";"}.isdisjoint(name)
    ]


def valid_entries(entries: Iterable[str]) -> frozenset[str]:
    """The entries of an access list, in Unicode normal form NFC.

    Raises:
        ConfigurationError: one is neither user:NAME nor group:NAME, or there are more than `MAX_ENTRIES`.
    """
    checked = frozenset(unicodedata.normalize("NFC", entry) for entry in entries)
    if len(checked) > MAX_ENTRIES:
        raise ConfigurationError(
            f"The access list has {len(checked)} entries; the maximum is {MAX_ENTRIES}. Use a group instead."
        )
    for entry in checked:
        kind, _, name = entry.partition(":")
        if (
            kind not in ENTRY_KINDS
            or not name.strip()
            or len(entry) > MAX_ENTRY_CHARS
            or not name.isprintable()
        ):
            raise ConfigurationError(
                f"{entry[:64]!r} is not a valid access list entry; write user:NAME or group:NAME."
            )
    return checked


def check_access(visibility: Visibility | None, allow: Iterable[str], deny: Iterable[str]) -> None:
    """Raise ConfigurationError if an entry is invalid, or `visibility` opens what `allow` restricts."""
    if visibility == "tenant" and any(allow):
        raise ConfigurationError(
            "visibility tenant already lets everybody in the tenant see it; remove allow, or set visibility "
            "to restricted."
        )
    valid_entries(allow)
    valid_entries(deny)


EVERYBODY, NOBODY = "*", "-"
FOR_EVERYBODY = f"(array_length(labels) = 1 AND array_has(labels, '{EVERYBODY}'))"
"""An SQL predicate for passages that everybody in the tenant may read, and that are denied to nobody."""


def normal(entry: str) -> str:
    """An entry in the form in which entries are stored and compared (NFC)."""
    return unicodedata.normalize("NFC", entry)


def folded(entry: str) -> str:
    """An entry with its letter case folded: "group:HR" and "group:hr" -> "group:hr"."""
    return normal(normal(entry).casefold())


def entries_of(principal: Principal) -> frozenset[str]:
    """The entries that name a principal: Principal("t", "ann", {"hr"}) -> {"user:ann", "group:hr"}."""
    groups = {normal(f"group:{group}") for group in principal.groups}
    return frozenset(groups | {normal(f"user:{principal.user}")} if principal.user else groups)


def visible(principal: Principal, access: Access | None, case: LetterCase) -> bool:
    """Whether the principal may see a source of its own tenant with this record."""
    if access is None:
        return False
    mine = entries_of(principal)
    # Where letter case is in doubt, an allowed entry must match exactly, and a denied one needn't.
    allowed = access.visibility == "tenant" or bool(
        matching_entries(mine, access.allow, exact=case != "never")
    )
    return allowed and not matching_entries(mine, access.deny, exact=case == "always")


def matching_entries(mine: frozenset[str], entries: frozenset[str], *, exact: bool) -> set[str]:
    """The entries of a list that are among `mine`, the entries of a principal; `exact` with letter case."""
    if not entries:
        return set()
    if exact:
        return {entry for entry in entries if normal(entry) in mine}
    mine_folded = {*map(folded, mine)}
    return {entry for entry in entries if folded(entry) in mine_folded}


def narrower(*records: Access | None) -> Access | None:
    """A record at least as narrow as each of these, with the revision of the first.

    Its allow list has the common entries of all. That may be narrower than necessary: groups in different
    lists may have members in common.
    Example: everybody but user:bob, and only group:hr -> only group:hr, but not user:bob.
    """
    return reduce(_narrower, records)


def _narrower(first: Access | None, second: Access | None) -> Access | None:
    if first is None or second is None:
        return None
    # An open record sets no limit, so it must not empty the common entries.
    restricted = [record.allow for record in (first, second) if record.visibility == "restricted"]
    allow = frozenset.intersection(*restricted) if restricted else frozenset[str]()
    visibility: Visibility = "restricted" if restricted else "tenant"
    return Access(visibility, allow, first.deny | second.deny, first.revision)


def same_access(first: Access | None, second: Access | None) -> bool:
    """Whether two records are equal, apart from their revisions."""
    if first is None or second is None:
        return first is second
    return (first.visibility, first.allow, first.deny) == (second.visibility, second.allow, second.deny)


def is_narrowed(access: Access | None, wider: Access | None) -> bool:
    """Whether a record keeps out somebody whom `wider` lets in."""
    return not visible_to_nobody(wider) and not same_access(wider, narrower(wider, access))


def visible_to_nobody(access: Access | None) -> bool:
    """Whether no principal can see a source with this record."""
    return access is None or (access.visibility == "restricted" and not access.allow)


def in_words(access: Access | None) -> str:
    """A record in words: "restricted to group:hr", "open to the tenant but never to user:bob"."""
    if access is None:
        return "visible to nobody: it has no access record"
    denied = f" but never to {', '.join(sorted(access.deny))}" if access.deny else ""
    if access.visibility == "tenant":
        return f"open to the tenant{denied}"
    return f"restricted to {', '.join(sorted(access.allow)) or 'nobody'}{denied}"


def labels_of(access: Access | None) -> list[str]:
    """The labels that tables store for the predicate: allow group:hr -> ["+group:hr", "~+group:hr"]."""
    if access is None:
        return [NOBODY]
    allowed = [EVERYBODY] if access.visibility == "tenant" else _both("+", access.allow)
    return allowed + _both("-", access.deny) or [NOBODY]


def access_of(labels: Iterable[str], revision: int) -> Access | None:
    """The record of these labels; None if they stand for a missing record (revision 0)."""
    distinct = {*labels}
    if NOBODY in distinct and not revision:  # with a revision, `-` is a record that allows nobody
        return None
    # Labels with folded case begin with ~ and repeat the others.
    allow, deny = (
        frozenset(label[1:] for label in distinct if label[0] == sign and label[1:]) for sign in "+-"
    )
    return Access("tenant" if EVERYBODY in distinct else "restricted", allow, deny, revision)


def predicate(principal: Principal, case: LetterCase) -> str:
    """The access rule as a SQL condition on the labels column, in parentheses."""
    mine = entries_of(principal)
    # A source without a record has only the label `-`, which neither condition mentions: it stays hidden.
    allowed = _hold([EVERYBODY, *_labels("+", mine, exact=case != "never")])
    denied = _labels("-", mine, exact=case == "always")
    return f"({allowed} AND (NOT {_hold(denied)}))" if mine else allowed


def _both(sign: str, entries: Iterable[str]) -> list[str]:
    entries = list(entries)
    return [*_labels(sign, entries, exact=True), *_labels(sign, entries, exact=False)]


def _labels(sign: str, entries: Iterable[str], *, exact: bool) -> list[str]:
    if exact:
        return [f"{sign}{entry}" for entry in sorted({*map(normal, entries)})]
    return [f"~{sign}{entry}" for entry in sorted({*map(folded, entries)})]


def _hold(labels: Iterable[str]) -> str:
    return f"(array_has_any(labels, [{', '.join(map(literal, labels))}]))"


EVERYBODY_IN_TENANT = "everybody in the tenant"


@dataclass(frozen=True, slots=True)
class AccessChange:
    """The documents that somebody gains and loses."""

    gains: list[str] = field(default_factory=list)
    loses: list[str] = field(default_factory=list)


def access_changes(documents: Iterable[tuple[str, Access | None, Access | None]]) -> dict[str, AccessChange]:
    """The gains and losses by user, group or tenant; `documents` are names with access before and after.

    Each entry of an access list counts by itself, regardless of the members of groups. If everybody in the
    tenant gains or loses a document, only the exceptions are named in addition.
    Example: ("a", everybody, only group:hr) -> everybody in the tenant but group:hr loses a.
    """
    changes: dict[str, AccessChange] = defaultdict(AccessChange)
    for name, before, after in documents:
        all_before, all_after = (
            record is not None and record.visibility == "tenant" for record in (before, after)
        )
        entries = sorted(
            {entry for record in (before, after) if record for entry in record.allow | record.deny}
        )
        if all_before != all_after:
            exceptions = [entry for entry in entries if _lets_in(after, entry) != all_after]
            group = (
                f"{EVERYBODY_IN_TENANT} but {', '.join(exceptions)}" if exceptions else EVERYBODY_IN_TENANT
            )
            _note_change(changes[group], name, gains=all_after)
        for entry in entries:
            could, can = _lets_in(before, entry), _lets_in(after, entry)
            if could != can and (could, can) != (all_before, all_after):
                _note_change(changes[entry], name, gains=can)
    return dict(changes)


def _note_change(change: AccessChange, name: str, *, gains: bool) -> None:
    (change.gains if gains else change.loses).append(name)


def _lets_in(access: Access | None, entry: str) -> bool:
    if access is None or entry in access.deny:
        return False
    return access.visibility == "tenant" or entry in access.allow


MAX_COLLECTIONS = 50  # as many as a request may name
MAX_TOOLS = 20


@as_value_error()
def _filter(value: dict[str, Any]) -> dict[str, Any]:
    check_form(value)
    return value


Name = Annotated[str, AfterValidator(as_value_error()(valid_name))]
"""The name of a tenant, a collection or a profile."""
BoundFilter = Annotated[dict[str, Any], AfterValidator(_filter)]


class BoundTo(BaseModel):
    """The binding of a tool, in the settings. None sets no limit; an empty list is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collections: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_COLLECTIONS)] | None = None
    filter: BoundFilter | None = None
    profile: Name | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] | None = None

    @property
    def binding(self) -> Binding:
        """The binding that a principal carries."""
        return Binding(self.collections, self.filter, self.profile, self.limit)


class CredentialBoundTo(BoundTo):
    """The binding of an API key or an OAuth scope, in the settings; it may also name tools of the server."""

    tools: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TOOLS)] | None = None

    @property
    def binding(self) -> Binding:
        """The binding that a principal carries."""
        return Binding(self.collections, self.filter, self.profile, self.limit, self.tools)


def walls(bindings: Sequence[Binding], collection: Collection) -> tuple[Filter, ...] | None:
    """The conditions that the bindings set on the sources of a collection; None if they admit no source.

    They admit none if a binding doesn't name the collection, or has a filter that doesn't fit its declared
    fields (fail closed).
    """
    conditions: list[Filter] = []
    for binding in bindings:
        of_binding = _walls(binding, collection)
        if of_binding is None:
            return None
        conditions += of_binding
    return tuple(conditions)


def _walls(binding: Binding, collection: Collection) -> tuple[Filter, ...] | None:
    if binding.collections is not None and collection.name not in binding.collections:
        return None
    conditions: tuple[Filter, ...] = ()
    if binding.filter is not None:
        try:
            conditions = (parse_filter(binding.filter, collection.fields),)
        except InvalidRequestError:  # the filter doesn't fit the fields of this collection
            return None
    if binding.any_of is None:
        return conditions
    alternatives = [_walls(alternative, collection) for alternative in binding.any_of]
    admitting = [conditions for conditions in alternatives if conditions is not None]
    if not admitting:
        return None
    # If one alternative has no conditions, it admits everything, and so does their disjunction.
    return conditions if () in admitting else (*conditions, AnyOf(tuple(map(AllOf, admitting))))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a request: its collections, if bindings name any, its highest limit, and its profile.

    More than one of `profiles` means that the bindings contradict each other.
    """

    collections: tuple[str, ...] | None = None
    profiles: tuple[str, ...] = ()
    limit: int = MAX_LIMIT


UNBOUND = Bounds()


def bounds(bindings: Sequence[Binding]) -> Bounds:
    """The bounds of all bindings together: the collections that all of them name, and the lowest limit."""
    collection_sets = [
        frozenset(binding.collections) for binding in bindings if binding.collections is not None
    ]
    return Bounds(
        tuple(sorted(frozenset.intersection(*collection_sets))) if collection_sets else None,
        tuple(sorted({binding.profile for binding in bindings if binding.profile is not None})),
        min([MAX_LIMIT, *(binding.limit for binding in bindings if binding.limit is not None)]),
    )

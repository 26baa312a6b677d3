"""Metadata filters: a closed JSON grammar over declared fields, parsed into a tree with two evaluators.

    {"status": "final", "year": {"$gte": 2020}, "$not": {"tags": {"$in": ["draft", "old"]}}}

`parse_filter` checks the JSON and builds a typed tree; anything outside the grammar is an error. `predicate`
compiles the tree to SQL, so the engine can use its indexes. `matches` evaluates it in Python; it is the
definition that tests hold the SQL to, since SQL's null values are easy to get wrong. Both have two-valued
logic: a field that a source lacks satisfies only `$ne`, `$nin`, `$exists: false` and `$not`.

Relaxing a filter drops its top-level conditions one by one, so they can be listed, left out and named.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from rag.corpus import FieldType, Value
from rag.errors import InvalidRequestError
from rag.filters.needles import fragment, is_in
from rag.text.plain_text import is_encodable

Scalar: TypeAlias = str | int | float | bool | datetime

Operator = Literal[
    "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$prefix", "$suffix", "$contains"
]
_EQUAL: tuple[Operator, ...] = ("$eq", "$ne", "$in", "$nin", "$exists")
_ORDERED: tuple[Operator, ...] = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists")
_TEXT: tuple[Operator, ...] = (*_EQUAL, "$prefix", "$suffix", "$contains")
OPERATORS: dict[FieldType, tuple[Operator, ...]] = {
    "string": _TEXT,
    "integer": _ORDERED,
    "number": _ORDERED,
    "boolean": ("$eq", "$ne", "$exists"),
    "datetime": _ORDERED,
    "string list": _TEXT,
}
"""The operators of each field type.

On lists, $eq means that the list contains the value, $in any of them, $prefix, $suffix and $contains that one
of its values begins or ends with the text or contains it. $suffix and $contains find it in any form, as mode
exact does.
"""

ATTRIBUTES: dict[str, FieldType] = {
    "date": "datetime",
    "path": "string",
    "title": "string",
    "section": "string list",
}
"""The attributes to filter by in every collection. A declared field of the same name has precedence.

`section` is an attribute of the chunk: the headings above it and in it. The others are of the source.
"""
OF_CHUNKS = "section"


def filterable(declared: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The attributes and fields to filter by in a collection that declares these fields, with their types."""
    return ATTRIBUTES | dict(declared)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is one of the values, or a list that contains one of them."""

    field: str
    type: FieldType
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The field compares to the value as the operator says."""

    field: str
    type: FieldType
    operator: Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class Like:
    """The field, or one of its values if it is a list, begins or ends with a text or contains it."""

    field: str
    type: FieldType
    operator: Literal["$prefix", "$suffix", "$contains"]
    text: str


@dataclass(frozen=True, slots=True)
class Present:
    """The source has the field."""

    field: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Filter, ...]


Leaf: TypeAlias = OneOf | Ordered | Like | Present
Filter: TypeAlias = Leaf | Not | AllOf | AnyOf


def conditions(filter_: Filter) -> tuple[Filter, ...]:
    """The top-level conditions, all of which must hold."""
    return filter_.parts if isinstance(filter_, AllOf) else (filter_,)


def without_conditions(filter_: Filter, dropped: Collection[int]) -> Filter | None:
    """The filter without the top-level conditions at these indexes; None if none remains."""
    remaining = tuple(condition for at, condition in enumerate(conditions(filter_)) if at not in dropped)
    return _all(remaining) if remaining else None


def is_on_date(filter_: Filter) -> bool:
    """Whether a condition involves a date."""
    return any(leaf.type == "datetime" for leaf in leaves(filter_))


def condition_in_words(filter_: Filter) -> str:
    """A condition in words, without its values: Ordered("year", "$gte", 2020) -> "year $gte"."""
    match filter_:
        case Not(OneOf() | Present() as leaf):
            return f"{leaf.field} {_NEGATED[_operator(leaf)]}"
        case Not(part):
            return f"$not ({condition_in_words(part)})"
        case AllOf(parts) | AnyOf(parts):
            word = "$and" if isinstance(filter_, AllOf) else "$or"
            return f"{word} ({', '.join(map(condition_in_words, parts))})"
        case leaf:
            return f"{leaf.field} {_operator(leaf)}"


def _operator(leaf: Leaf) -> Operator:
    match leaf:
        case OneOf(_, _, values):
            return "$eq" if len(values) == 1 else "$in"
        case Ordered() | Like():
            return leaf.operator
        case Present():
            return "$exists"


_NEGATED: dict[Operator, Operator] = {"$eq": "$ne", "$in": "$nin", "$exists": "$exists"}


def leaves(filter_: Filter) -> Iterator[Leaf]:
    """The conditions on single fields, wherever they stand."""
    match filter_:
        case Not(part):
            yield from leaves(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from leaves(part)
        case leaf:
            yield leaf


MAX_LEAVES = 32
MAX_DEPTH = 5
MAX_VALUES = 100
MAX_CHARS = 512
MAX_ALL_CHARS = 65_536  # of all texts of a filter: each collection's predicate has them
MAX_PATTERN_CHARS = 40_000  # of all texts to find in any form: 50,000 values take half a second of CPU
MAX_INTEGER = 2**53  # many JSON parsers read larger integers inexactly


def parse_filter(value: object, fields: Mapping[str, FieldType]) -> Filter:
    """The filter in a JSON value, given what can be filtered by and its types.

    Example: {"year": {"$gte": 2020}, "status": "final"} -> All((Ordered("year", …), OneOf("status", …))).

    Raises:
        InvalidRequestError: the value is not in the grammar or exceeds a limit. The message names the field,
            the operator and what is allowed, and quotes no value.
    """
    return _Parser(fields).tree(value, 1)


def check_form(value: object) -> None:
    """Check that a value is in the grammar, for fields that may be of any type.

    Raises:
        InvalidRequestError: as `parse_filter`; no declaration of fields would make it a filter.
    """
    _Untyped({}).tree(value, 1)


class _Parser:
    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = fields
        self._leaves = self._chars = self._pattern_chars = 0

    def tree(self, value: object, depth: int) -> Filter:
        """The filter in an object, all of whose conditions must hold."""
        if depth > MAX_DEPTH:
            raise InvalidRequestError(f"filter is nested deeper than {MAX_DEPTH} levels.")
        if not isinstance(value, dict) or not value:
            raise InvalidRequestError("filter must be an object with at least one condition in it.")
        return _all([part for key, inner in value.items() for part in self._entry(key, inner, depth)])

    def _entry(self, key: str, inner: object, depth: int) -> Iterator[Filter]:
        match key:
            case "$and":
                yield AllOf(self._trees(key, inner, depth))
            case "$or":
                yield AnyOf(self._trees(key, inner, depth))
            case "$not":
                yield Not(self.tree(inner, depth + 1))
            case _:
                yield from self._field(key, inner)

    def _trees(self, key: str, inner: object, depth: int) -> tuple[Filter, ...]:
        if not isinstance(inner, list) or not inner:
            raise InvalidRequestError(f"{key} takes a list of at least one filter.")
        if len(inner) > MAX_LEAVES:
            raise InvalidRequestError(f"{key} takes at most {MAX_LEAVES} filters.")
        return tuple(self.tree(part, depth + 1) for part in inner)

    def _field(self, name: str, inner: object) -> Iterator[Filter]:
        if name not in self._fields:
            names = ", ".join(sorted(self._fields)) or "none"
            sign = f"${name.strip('$').lower()}"
            hint = f" Did you mean {sign}?" if sign in {"$and", "$or", "$not"} else ""
            raise InvalidRequestError(
                f"There is no field {_quoted_value(name)} to filter by; there are: {names}.{hint}"
            )
        conditions = inner if isinstance(inner, dict) else {"$eq": inner}
        if not conditions:
            raise InvalidRequestError(f"{name}: give an operator and a value.")
        for operator, value in conditions.items():
            self._leaves += 1
            if self._leaves > MAX_LEAVES:
                raise InvalidRequestError(f"filter has more than {MAX_LEAVES} conditions.")
            leaf = _leaf(name, self._fields[name], operator, value)
            values = value if isinstance(value, list) else [value]
            self._chars += sum(len(text) for text in values if isinstance(text, str))
            if self._chars > MAX_ALL_CHARS:
                raise InvalidRequestError(
                    f"filter has texts of more than {MAX_ALL_CHARS:,} characters in all."
                )
            # A text in any form becomes a pattern many times as long, and patterns cost time by their length.
            if isinstance(leaf, Like) and leaf.operator != "$prefix":
                self._pattern_chars += len(fragment(leaf.text).pattern)
                if self._pattern_chars > MAX_PATTERN_CHARS:
                    raise InvalidRequestError("filter has too long texts for $contains and $suffix.")
            yield leaf


class _Untyped(_Parser):
    """Takes each condition that suits a field of some type: settings don't know the collections' fields."""

    def _field(self, name: str, inner: object) -> Iterator[Filter]:
        if name.startswith("$"):
            raise InvalidRequestError(f"There is no operator {_quoted_value(name)} that combines filters.")
        for type_ in OPERATORS:
            of_type = _Parser({name: type_})
            try:
                parts = [*of_type._field(name, inner)]  # noqa: SLF001 of the same class
            except InvalidRequestError as error:
                problem = error
                continue
            self._leaves += len(parts)
            if self._leaves > MAX_LEAVES:
                raise InvalidRequestError(f"filter has more than {MAX_LEAVES} conditions.")
            yield from parts
            return
        raise problem


def _all(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _leaf(name: str, type_: FieldType, operator: str, value: object) -> Filter:  # noqa: PLR0911 one for each kind of node
    # From the table, so that it has the type of an operator, and none of another type of field gets through.
    match next((sign for sign in OPERATORS[type_] if sign == operator), None):
        case "$eq":
            return OneOf(name, type_, (_scalar(name, type_, value),))
        case "$ne":
            return Not(OneOf(name, type_, (_scalar(name, type_, value),)))
        case "$in":
            return OneOf(name, type_, _scalars(name, type_, "$in", value))
        case "$nin":
            return Not(OneOf(name, type_, _scalars(name, type_, "$nin", value)))
        case "$exists":
            if not isinstance(value, bool):
                raise InvalidRequestError(f"{name}: $exists takes true or false.")
            return Present(name, type_) if value else Not(Present(name, type_))
        case "$prefix" | "$suffix" | "$contains" as how:
            text = str(_scalar(name, type_, value))
            if not text:
                raise InvalidRequestError(f"{name}: {how} takes a text that is not empty.")
            return Like(name, type_, how, text)
        case None:
            article = "an" if type_ == "integer" else "a"
            raise InvalidRequestError(
                f"{name} does not support {_quoted_value(operator)}; "
                f"it is {article} {type_}, which supports: {', '.join(OPERATORS[type_])}."
            )
        case ordering:
            return Ordered(name, type_, ordering, _scalar(name, type_, value))


def _scalars(name: str, type_: FieldType, operator: str, value: object) -> tuple[Scalar, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_VALUES:
        raise InvalidRequestError(f"{name}: {operator} takes a list of 1 to {MAX_VALUES} values.")
    return tuple(_scalar(name, type_, entry) for entry in value)


def _scalar(name: str, type_: FieldType, value: object) -> Scalar:
    read, expected = _VALUES[type_]
    if (checked := read(value)) is None:
        several = isinstance(value, list) and "$in" in OPERATORS[type_]
        hint = " For one of several values, use $in." if several else ""
        raise InvalidRequestError(f"{name}: a value must be {expected}.{hint}")
    return checked


def _string(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > MAX_CHARS or "\x00" in value or not is_encodable(value):
        return None
    return unicodedata.normalize("NFC", value)


def _integer(value: object) -> int | None:
    """The value as an integer. 2024.0 is one, too: JSON has only one kind of number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_INTEGER:
        return int(value)
    exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER
    return value if exact and isinstance(value, int) else None


def _number(value: object) -> float | None:
    if isinstance(value, float) and math.isfinite(value):
        return value + 0.0  # -0.0 is 0.0
    whole = _integer(value)
    return None if whole is None else float(whole)


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _datetime(value: object) -> datetime | None:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")
_VALUES: dict[FieldType, tuple[Callable[[object], Scalar | None], str]] = {
    "string": (_string, f"a string of at most {MAX_CHARS} characters"),
    "integer": (_integer, "a whole number within ±2^53"),
    "number": (_number, "a finite number"),
    "boolean": (_boolean, "true or false"),
    "datetime": (_datetime, "a date like 2024-05-01 or 2024-05-01T12:00:00Z"),
    "string list": (_string, f"a string of at most {MAX_CHARS} characters"),
}
"""How a value of each type is read, and what it must be."""


def _quoted_value(name: str) -> str:
    return repr(name[:64])


def matches(filter_: Filter, values: Mapping[str, Value]) -> bool:  # noqa: PLR0911 one for each kind of node
    """Whether values of fields satisfy the filter."""
    match filter_:
        case OneOf(field, _, wanted):
            value = values.get(field)  # None is in no list, so a source without the field doesn't match
            return any(entry in wanted for entry in value) if isinstance(value, tuple) else value in wanted
        case Ordered(field, _, comparison, bound):
            value = values.get(field)
            return value is not None and _ORDER[comparison](value, bound)
        case Like(field, _, how, text):
            value = values.get(field, ())
            entries = value if isinstance(value, tuple) else (value,)
            return any(_LIKE[how](entry, text) for entry in entries)
        case Present(field, _):
            return field in values
        case Not(part):
            return not matches(part, values)
        case AllOf(parts):
            return all(matches(part, values) for part in parts)
        case AnyOf(parts):
            return any(matches(part, values) for part in parts)


_ORDER: dict[Operator, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_LIKE: dict[Operator, Callable[[Any, str], bool]] = {
    "$prefix": lambda value, text: value.startswith(text),
    "$suffix": lambda value, text: is_in(text, value, at_end=True),
    "$contains": lambda value, text: is_in(text, value),
}


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS: dict[Operator, str] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


BETWEEN = "\x00"
"""The separator of a list's joined values. No text of a filter has it, so none matches across two values."""
NONE_RESOLVED: Mapping[Leaf, str | None] = MappingProxyType({})


def predicate(
    filter_: Filter,
    declared: Container[str],
    column: Callable[[str], str],
    *,
    resolved: Mapping[Leaf, str | None] = NONE_RESOLVED,
    negated: bool = False,
) -> str:
    """The filter as SQL, in parentheses: true for the rows that satisfy it, false or null for all others.

    `declared` are the fields with a column in the table, named by `column`. For leaves on other fields,
    `resolved` has SQL that is never null, or None if only the gate can decide; no source has any further
    field. `negated` compiles the opposite.

    A NOT around a whole expression would be wrong, because NOT null is null: it would lose the rows that lack
    a field. So negation is pushed down to single conditions (De Morgan), where null is tested explicitly.
    That form can also use the indexes.
    """
    match filter_:
        case Not(part):
            return predicate(part, declared, column, resolved=resolved, negated=not negated)
        case AllOf(parts) | AnyOf(parts):
            word = " OR " if isinstance(filter_, AnyOf) != negated else " AND "
            compiled = [
                predicate(part, declared, column, resolved=resolved, negated=negated) for part in parts
            ]
            return f"({word.join(compiled)})"
        case leaf if leaf.field in declared:
            condition = leaf_predicate(leaf, column(leaf.field))
            return f"({column(leaf.field)} IS NULL OR (NOT {condition}))" if negated else condition
        case leaf if leaf in resolved:
            resolution = resolved[leaf]
            return "(true)" if resolution is None else f"(NOT {resolution})" if negated else resolution
        case leaf if leaf.field in ATTRIBUTES:
            raise LookupError(leaf.field)  # an attribute of every document, so it must be resolved
        case _:
            return "(true)" if negated else "(false)"


def leaf_predicate(leaf: Leaf, column: str) -> str:
    """A condition on a column as SQL, in parentheses; null where the column is."""
    match leaf:
        case Present():
            return f"({column} IS NOT NULL)"
        case OneOf(_, "string list", values):
            return f"(array_has_any({column}, [{_literals(values)}]))"
        case OneOf(_, _, values):
            return f"({column} IN ({_literals(values)}))"
        case Like():
            return _like(leaf, column)
        case Ordered(_, _, comparison, value):
            return f"({column} {_SIGNS[comparison]} {literal(value)})"


def _like(leaf: Like, column: str) -> str:
    if leaf.type == "string list":
        between = literal(BETWEEN)
        # The values as one text, in which nothing matches across two of them.
        column = f"concat({between}, array_to_string({column}, {between}), {between})"
    if leaf.operator != "$prefix":
        searched = fragment(leaf.text)
        end = BETWEEN if leaf.type == "string list" else "$"
        pattern = searched.core + end if leaf.operator == "$suffix" else searched.pattern
        return f"(regexp_like({column}, {literal(pattern)}))"
    if leaf.type == "string list":
        return f"(contains({column}, {literal(BETWEEN + leaf.text)}))"
    return f"(starts_with({column}, {literal(leaf.text)}))"


def _literals(values: tuple[Scalar, ...]) -> str:
    return ", ".join(map(literal, values))


def literal(value: Scalar) -> str:
    """A value as an SQL literal. In the engine's strings only the quote is special; it is doubled."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case int():
            return f"{value:d}"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case datetime():
            return str(microseconds(value))


def microseconds(moment: datetime) -> int:
    """A moment as tables store it: microseconds since 1970 in UTC. The engine's own literals end in 2262."""
    return (moment - EPOCH) // timedelta(microseconds=1)

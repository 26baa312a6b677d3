"""Parses JSON into a filter's tree; anything outside the grammar is an error."""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeGuard

from rag.errors import InvalidRequestError
from rag.filters.tree import OPERATORS, All, Any, Filter, Like, Not, OneOf, Ordered, Present, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rag.corpus import FieldType

MAX_LEAVES = 32
MAX_DEPTH = 5
MAX_VALUES = 100
MAX_CHARS = 512
MAX_ALL_CHARS = 65_536  # of all texts of a filter: each collection's predicate has them
MAX_INTEGER = 2**53  # many JSON parsers read larger integers inexactly


def parse(value: object, fields: Mapping[str, FieldType]) -> Filter:
    """The filter in a JSON value, given what can be filtered by and its types.

    Example: {"year": {"$gte": 2020}, "status": "final"} -> All((Ordered("year", …), OneOf("status", …))).

    Raises:
        InvalidRequestError: the value is not in the grammar or exceeds a limit. The message names the field,
        the
            operator and what is allowed, and quotes no value.
    """
    return _Parser(fields).tree(value, 1)


def check_form(value: object) -> None:
    """Check that a value is in the grammar, for fields that may be of any type.

    Raises:
        InvalidRequestError: as `parse`; no declaration of fields would make it a filter.
    """
    _Untyped({}).tree(value, 1)


class _Parser:
    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = fields
        self._leaves = self._chars = 0

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
                yield All(self._trees(key, inner, depth))
            case "$or":
                yield Any(self._trees(key, inner, depth))
            case "$not":
                yield Not(self.tree(inner, depth + 1))
            case _:
                yield from self._field(key, inner)

    def _trees(self, key: str, inner: object, depth: int) -> tuple[Filter, ...]:
        if not isinstance(inner, list) or not inner:
            raise InvalidRequestError(f"{key} takes a list of at least one filter.")
        if len(inner) > MAX_LEAVES:
            raise InvalidRequestError(f"{key} takes at most {MAX_LEAVES} filters.")
        return tuple(self.tree(one, depth + 1) for one in inner)

    def _field(self, name: str, inner: object) -> Iterator[Filter]:
        if name not in self._fields:
            names = ", ".join(sorted(self._fields)) or "none"
            raise InvalidRequestError(f"There is no field {_shown(name)} to filter by; there are: {names}.")
        conditions = inner if isinstance(inner, dict) else {"$eq": inner}
        if not conditions:
            raise InvalidRequestError(f"{name}: give an operator and a value.")
        for operator, value in conditions.items():
            self._leaves += 1
            if self._leaves > MAX_LEAVES:
                raise InvalidRequestError(f"filter has more than {MAX_LEAVES} conditions.")
            leaf = _leaf(name, self._fields[name], operator, value)
            self._chars += sum(map(len, filter(_is_text, value if isinstance(value, list) else [value])))
            if self._chars > MAX_ALL_CHARS:
                raise InvalidRequestError(
                    f"filter has texts of more than {MAX_ALL_CHARS:,} characters in all."
                )
            yield leaf


class _Untyped(_Parser):
    """Takes each condition that suits a field of some type."""

    def _field(self, name: str, inner: object) -> Iterator[Filter]:
        if name.startswith("$"):
            raise InvalidRequestError(f"There is no operator {_shown(name)} that combines filters.")
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


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _all(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _leaf(name: str, type_: FieldType, operator: str, value: object) -> Filter:  # noqa: PLR0911 one for each kind of node
    match next((one for one in OPERATORS[type_] if one == operator), None):
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
        case "$prefix" | "$contains" as how:
            text = str(_scalar(name, type_, value))
            if not text:
                raise InvalidRequestError(f"{name}: {how} takes a text that is not empty.")
            return Like(name, type_, how, text)
        case None:
            article = "an" if type_ == "integer" else "a"
            raise InvalidRequestError(
                f"{name} does not support {_shown(operator)}; "
                f"it is {article} {type_}, which supports: {', '.join(OPERATORS[type_])}."
            )
        case ordering:
            return Ordered(name, type_, ordering, _scalar(name, type_, value))


def _scalars(name: str, type_: FieldType, operator: str, value: object) -> tuple[Scalar, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_VALUES:
        raise InvalidRequestError(f"{name}: {operator} takes a list of 1 to {MAX_VALUES} values.")
    return tuple(_scalar(name, type_, one) for one in value)


def _scalar(name: str, type_: FieldType, value: object) -> Scalar:
    checked = _CHECKS[type_](value)
    if checked is None:
        raise InvalidRequestError(f"{name}: a value must be {_EXPECTED[type_]}.")
    return checked


def _string(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > MAX_CHARS or "\x00" in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return unicodedata.normalize("NFC", value)


def _integer(value: object) -> int | None:
    """The whole number that a value is. 2024.0 is one, too: JSON has only one kind of number."""
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
_CHECKS: dict[FieldType, Callable[[object], Scalar | None]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": _datetime,
    "string list": _string,
}
_EXPECTED: dict[FieldType, str] = {
    "string": f"a string of at most {MAX_CHARS} characters",
    "integer": "a whole number within ±2^53",
    "number": "a finite number",
    "boolean": "true or false",
    "datetime": "a date like 2024-05-01 or 2024-05-01T12:00:00Z",
    "string list": f"a string of at most {MAX_CHARS} characters",
}


def _shown(name: str) -> str:
    return repr(name[:64])

"""Writes our SQL in terms of an attached table's columns.

The compilers of rights and filters (`rag.access.rule`, `rag.filters.predicate`) and `rag.store` make our SQL,
so its grammar is small. A name that is not known here is an error: it could be a column of the other table by
chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.access.rule import EVERYBODY
from rag.errors import StoreError
from rag.filters.predicate import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rag.store.attached.columns import Columns

_STRING = r"'(?:[^']|'')*'"
_STRINGS = re.compile(_STRING)
_PARTS = re.compile(
    r'(?P<text>right\(body, "end" - start\))'
    rf"|array_has_any\(labels, \[(?P<labels>(?:{_STRING}(?:, )?)*)\]\)"
    rf"|\b(?P<id>source_id|id) (?:IN \((?P<ids>{_STRING}(?:, {_STRING})*)\)|= (?P<one>{_STRING}))"
    r"|\bfield_(?P<list>\w+) IS (?P<present>NOT )?NULL"
    rf"|(?P<string>{_STRING})"
    r"|(?<![\w.])(?P<name>[A-Za-z_]\w*)"
)
_SQL = "and or not in is null true false as cast double bigint like array_has_any"
_FUNCTIONS = "array_to_string concat contains lower octet_length regexp_like starts_with"
_WORDS = frozenset([*_SQL.split(), *_FUNCTIONS.split()])
NOTHING, EVERYTHING = "(false)", "(true)"


@dataclass(frozen=True, slots=True)
class Translation:
    """How our SQL reads over the columns of an attached table.

    `known` is the other table's id for one of ours, if a row with it was read before. A search for that takes
    a fifth of the time of computing our id for each row, and can use an index.
    """

    columns: Columns
    known: Callable[[str], str | None]
    of_chunks: bool

    def __call__(self, sql: str) -> str:
        """The predicate over the other table's columns.

        Raises:
            StoreError: it names a column that an attached table doesn't have.
        """
        return _PARTS.sub(self._translated, sql)

    def name(self, column: str) -> str:
        """One of our columns over the other table's.

        Raises:
            StoreError: an attached table has no such column.
        """
        columns, source_id = self.columns, self.columns.source_id
        length = f"character_length({columns.text})"
        ours = {
            "source_id": source_id,
            "id": f"concat({source_id}, '/0')" if self.of_chunks else source_id,
            "body": columns.text,
            "text": columns.text,
            "seq": "0",
            "start": "0",
            "end": length,
            "length": length,
            "generation": columns.generation,
            "digest": columns.generation,
        }
        if column in ours:
            return ours[column]
        field = column.removeprefix("field_")
        if field == column or field not in columns.fields:
            raise StoreError(f"An attached table can't be searched by {column!r}.")
        return columns.fields[field]

    def _translated(self, part: re.Match[str]) -> str:
        found = part.groupdict()
        if found["text"]:  # there is no line of context above it
            return self.columns.text
        if found["labels"] is not None:
            return self._labels(_values(found["labels"]))
        if found["id"]:
            return self._ids(
                _values(found["ids"] or found["one"]), is_chunk=self.of_chunks and found["id"] == "id"
            )
        if found["list"]:
            return self._presence(found["list"], present=bool(found["present"]))
        if found["string"] or found["name"].lower() in _WORDS:
            return part[0]
        return f"({self.name(found['name'])})"

    def _labels(self, labels: Iterable[str]) -> str:
        """The rule of `rag.access.rule` on the column of entries; it has no denials.

        The engine can't fold letter case. Where case doesn't matter, only entries in lower case are found.
        """
        if self.columns.allow is None:
            return EVERYTHING if EVERYBODY in labels else NOTHING
        entries = sorted({one.removeprefix("~")[1:] for one in labels if one.startswith(("+", "~+"))})
        if self.columns.ours and EVERYBODY in labels:
            entries.append(EVERYBODY)
        if not entries:
            return NOTHING
        return f"array_has_any({self.columns.allow}, [{', '.join(map(literal, entries))}])"

    def _ids(self, ids: Iterable[str], *, is_chunk: bool) -> str:
        if is_chunk:  # each source has one chunk
            ids = [id_.removesuffix("/0") for id_ in ids if id_.endswith("/0")]
        theirs = {id_: self.known(id_) for id_ in ids}
        conditions = [
            f"({column} IN ({', '.join(map(literal, values))}))"
            for column, values in (
                (self.columns.id, [one for one in theirs.values() if one is not None]),
                (self.columns.source_id, [id_ for id_, one in theirs.items() if one is None]),
            )
            if values
        ]
        return f"({' OR '.join(conditions)})" if conditions else NOTHING

    def _presence(self, field: str, *, present: bool) -> str:
        """Whether a field has a value. An empty list is none, as in `rag.corpus.Value`."""
        column = self.name(f"field_{field}")
        if field in self.columns.lists:
            return f"coalesce(array_length({column}), 0) {'>' if present else '='} 0"
        return f"({column}) IS {'NOT ' if present else ''}NULL"


def _values(literals: str) -> list[str]:
    return [one[1:-1].replace("''", "'") for one in _STRINGS.findall(literals)]

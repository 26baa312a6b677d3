"""Maps our columns to SQL expressions over an attached table, and translates our SQL to them.

The expressions have values of our types. Only the compilers of rights and filters (`rag.access.rule`,
`rag.filters.grammar`) and `rag.store` make our SQL, so its grammar is small. A name that `Translation`
doesn't know is an error: the other table could have a column of that name by chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as kinds

from rag.access.rule import EVERYBODY
from rag.errors import ConfigurationError, StoreError
from rag.filters.grammar import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rag.corpus import Attachment, Collection, FieldType

    Kind = Callable[[pa.DataType], bool]

BETWEEN = "chr(31)"  # a control character between the values that a digest is made of
UNITS = {
    "s": (10**6, 1),
    "ms": (1000, 1),
    "us": (1, 1),
    "ns": (1, 1000),
}  # (microseconds, units): "ns" has 1 microsecond in 1000
DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Columns:
    """SQL for each of our columns, over the columns of the other table. None where it has no such column.

    `id` is the other table's own id, as text; `source_id` is ours. Fields of type datetime are in
    microseconds since 1970. `date` is in the column's own unit, None if it is text: `unit` is (microseconds,
    units). `generation` is a digest of all columns that are read. If the rows are `ours`, the entry "*" in
    `allow` means everybody in the tenant; in others' rows it is malformed.
    """

    id: str
    source_id: str
    text: str
    vector: str | None
    dimension: int
    title: str | None
    url: str | None
    date: str | None
    unit: tuple[int, int] | None
    allow: str | None
    fields: Mapping[str, str]
    lists: frozenset[str]
    generation: str
    usable: str
    ours: bool = False


def columns_of(collection: Collection, attachment: Attachment, schema: pa.Schema) -> Columns:
    """Find the columns of an attachment in a table's schema.

    Raises:
        ConfigurationError: a column is missing, or has the wrong type.
    """

    def column_of(
        option: str, name: str | None, needed: str, *fitting: Kind
    ) -> tuple[str, pa.DataType] | None:
        if name is None:
            return None
        column, kind = _column(schema, name, option, attachment.table)
        if not any(fits(kind) for fits in fitting):
            raise ConfigurationError(
                f"The column {name!r} of the attached table {attachment.table} has the type {kind}; "
                f"--{option} needs {needed}."
            )
        return column, kind

    id_ = column_of("id", attachment.id, "text or whole numbers", _is_text, kinds.is_integer)
    text = column_of("text", attachment.text, "text", _is_text)
    vector = column_of(
        "vector", attachment.vector, "vectors of a fixed size (fixed_size_list of floats)", _is_vector
    )
    title = column_of("title", attachment.title, "text or whole numbers", _is_text, kinds.is_integer)
    url = column_of("url", attachment.url, "text", _is_text)
    date = column_of("date", attachment.date, "timestamps, dates, or text", _is_moment, _is_text)
    allow = column_of("allow", attachment.allow, "lists of text, such as ['user:ann', 'group:hr']", _is_texts)
    assert id_ is not None  # noqa: S101 both are always named
    assert text is not None  # noqa: S101
    fields = {}
    for name, kind in collection.fields.items():
        needed, fitting, convert = _FIELDS[kind]
        column = column_of(f"field {name}={kind}", attachment.fields[name], needed, fitting)
        fields[name] = convert(*column) if column else ""
    plain_id = _text(*id_)
    rights = [f"array_to_string({allow[0]}, {BETWEEN}, '-')"] if allow else []
    displayed = [_text(*column) for column in (title, url) if column]
    day, unit = _date(*date) if date else (None, None)
    if day:
        displayed.append(f"CAST({day} AS STRING)" if unit else day)
    lists = frozenset(name for name, kind in collection.fields.items() if kind == "string list")
    valued = [
        f"array_to_string({column}, {BETWEEN}, '-')" if name in lists else f"CAST({column} AS STRING)"
        for name, column in fields.items()
    ]
    parts = [f"coalesce({part}, '')" for part in (text[0], *displayed, *rights, *valued)]
    return Columns(
        id=plain_id,
        source_id=source_id_sql(collection, plain_id),
        text=_text(*text),
        vector=vector[0] if vector else None,
        dimension=vector[1].list_size if vector else 1,  # type: ignore[attr-defined]
        title=_text(*title) if title else None,
        url=_text(*url) if url else None,
        date=day,
        unit=unit,
        allow=allow[0] if allow else None,
        fields=fields,
        lists=lists,
        generation=f"md5(concat_ws({BETWEEN}, {', '.join(parts)}))",
        usable=f"({id_[0]} IS NOT NULL) AND ({text[0]} IS NOT NULL)",
    )


def source_id_sql(collection: Collection, id_: str) -> str:
    """SQL for our id of a row: 80 bits, like the id of an ingested source (`rag.store.write.desk_folder`).

    A digest, because other ids can be long, and contain what a citation can't. It depends on the collection,
    so that a table can be attached twice. Hexadecimal digits that our ids lack become other letters.
    """
    salted = f"concat({literal(f'{collection.tenant}/{collection.name}/')}, {id_})"
    return f"translate(left(encode(sha256({salted}), 'hex'), 20), '0189', 'ghij')"


def _column(schema: pa.Schema, name: str, option: str, table: str) -> tuple[str, pa.DataType]:
    """The SQL and the type of a column, or of a part of one, by its name."""
    for parts in ([name], name.split(".")):  # a column may have a dot in its own name
        fields: Any = schema
        kind: pa.DataType | None = None
        for part in parts:
            at = fields.get_field_index(part) if fields is not None else -1
            if at < 0 or "`" in part:
                break
            kind = fields.field(at).type
            fields = kind if kinds.is_struct(kind) else None
        else:
            if kind is not None:
                return ".".join(f"`{part}`" for part in parts), kind
    names = ", ".join(_paths(schema))
    raise ConfigurationError(
        f"The attached table {table} has no column {name!r} for --{option}. Its columns: {names}."
    )


def _paths(fields: Any, above: str = "") -> list[str]:  # noqa: ANN401 a schema or a struct, which share no type
    """The names of all columns and their parts, as options can name them."""
    names: list[str] = []
    for at in range(len(fields.names) if hasattr(fields, "names") else fields.num_fields):
        field = fields.field(at)
        name = above + field.name
        names += _paths(field.type, f"{name}.") if kinds.is_struct(field.type) else [name]
    return names


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return kinds.is_string(plain) or kinds.is_large_string(plain)


def _is_vector(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedSizeListType) and kinds.is_floating(kind.value_type)


def _is_texts(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType) and _is_text(kind.value_type)


def _is_moment(kind: pa.DataType) -> bool:
    return kinds.is_timestamp(kind) or kinds.is_date(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return kinds.is_integer(kind) and not kinds.is_uint64(kind)


def _is_number(kind: pa.DataType) -> bool:
    return kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_integer(kind)


def _text(column: str, kind: pa.DataType) -> str:
    return column if kinds.is_string(kind) else f"CAST({column} AS STRING)"


def _moment(column: str, kind: pa.DataType) -> str:
    """Microseconds since 1970."""
    factor, units = _unit(kind)
    return f"({_units(column, kind)} * {factor} / {units})"


def _date(column: str, kind: pa.DataType) -> tuple[str, tuple[int, int] | None]:
    """A date as SQL: text, or else a number and its unit."""
    return (_text(column, kind), None) if _is_text(kind) else (_units(column, kind), _unit(kind))


def _units(column: str, kind: pa.DataType) -> str:
    """A moment as a number. A timestamp without a time zone counts as UTC."""
    return f"CAST(CAST({column} AS INT) AS BIGINT)" if kinds.is_date32(kind) else f"CAST({column} AS BIGINT)"


def _unit(kind: pa.DataType) -> tuple[int, int]:
    if isinstance(kind, pa.TimestampType):
        return UNITS[kind.unit]
    return (1000, 1) if kinds.is_date64(kind) else (DAY, 1)


def _number(column: str, _kind: pa.DataType) -> str:
    return f"nullif(CAST({column} AS DOUBLE), CAST('NaN' AS DOUBLE))"


def _plain(column: str, _kind: pa.DataType) -> str:
    return column


def _integer(column: str, kind: pa.DataType) -> str:
    return column if kinds.is_int64(kind) else f"CAST({column} AS BIGINT)"


_FIELDS: Mapping[FieldType, tuple[str, Kind, Callable[[str, pa.DataType], str]]] = {
    "string": ("text", _is_text, _text),
    "integer": ("whole numbers of at most 64 bits with a sign", _is_whole, _integer),
    "number": ("numbers", _is_number, _number),
    "boolean": ("booleans", kinds.is_boolean, _plain),
    "datetime": ("timestamps or dates; of dates as text, only --date can be made", _is_moment, _moment),
    "string list": ("lists of text", _is_texts, _plain),
}


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
    """Translates our SQL to the columns of an attached table.

    `their_id` maps one of our ids to the other table's, if such a row was read before. Comparing those takes
    a fifth of the time of computing our id for each row, and can use an index.
    """

    columns: Columns
    their_id: Callable[[str], str | None]
    of_chunks: bool

    def __call__(self, sql: str) -> str:
        """The predicate over the other table's columns.

        Raises:
            StoreError: it names a column that an attached table doesn't have.
        """
        return _PARTS.sub(self._translate_part, sql)

    def name(self, column: str) -> str:
        """The expression for one of our columns.

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

    def _translate_part(self, part: re.Match[str]) -> str:
        groups = part.groupdict()
        if groups["text"]:  # a row has no context line above its text
            return self.columns.text
        if groups["labels"] is not None:
            return self._labels(_values(groups["labels"]))
        if groups["id"]:
            return self._ids(
                _values(groups["ids"] or groups["one"]), is_chunk=self.of_chunks and groups["id"] == "id"
            )
        if groups["list"]:
            return self._presence(groups["list"], present=bool(groups["present"]))
        if groups["string"] or groups["name"].lower() in _WORDS:
            return part[0]
        return f"({self.name(groups['name'])})"

    def _labels(self, labels: Iterable[str]) -> str:
        """The rule of `rag.access.rule` on the column of entries; it has no denials.

        The engine can't fold letter case. Where case doesn't matter, only entries in lower case are found.
        """
        if self.columns.allow is None:
            return EVERYTHING if EVERYBODY in labels else NOTHING
        # Their lists hold plain entries: "+user:Ann" and "~+user:ann" ask for user:Ann and user:ann.
        entries = sorted({label.removeprefix("~")[1:] for label in labels if label.startswith(("+", "~+"))})
        if self.columns.ours and EVERYBODY in labels:
            entries.append(EVERYBODY)
        if not entries:
            return NOTHING
        return f"array_has_any({self.columns.allow}, [{', '.join(map(literal, entries))}])"

    def _ids(self, ids: Iterable[str], *, is_chunk: bool) -> str:
        if is_chunk:  # each source has one chunk
            ids = [id_.removesuffix("/0") for id_ in ids if id_.endswith("/0")]
        theirs = {id_: self.their_id(id_) for id_ in ids}  # None where the engine must compute ours
        conditions = [
            f"({column} IN ({', '.join(map(literal, values))}))"
            for column, values in (
                (self.columns.id, [their_id for their_id in theirs.values() if their_id is not None]),
                (self.columns.source_id, [id_ for id_, their_id in theirs.items() if their_id is None]),
            )
            if values
        ]
        return f"({' OR '.join(conditions)})" if conditions else NOTHING

    def _presence(self, field: str, *, present: bool) -> str:
        """SQL for whether a field has a value, which an empty list isn't (`rag.corpus.Value`)."""
        column = self.name(f"field_{field}")
        if field in self.columns.lists:
            return f"coalesce(array_length({column}), 0) {'>' if present else '='} 0"
        return f"({column}) IS {'NOT ' if present else ''}NULL"


def _values(literals: str) -> list[str]:
    return [quoted[1:-1].replace("''", "'") for quoted in _STRINGS.findall(literals)]

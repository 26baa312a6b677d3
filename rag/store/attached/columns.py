"""Which columns of an attached table hold what, as SQL expressions whose values have our types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as kinds

from rag.errors import ConfigurationError
from rag.filters.predicate import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.corpus import Attachment, Collection, FieldType

    Kind = Callable[[pa.DataType], bool]

BETWEEN = "chr(31)"  # a control character between the values that a digest is made of
UNITS = {"s": (10**6, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}  # microseconds in so many units
DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Columns:
    """SQL for each of our columns, over the columns of the other table. None where it has no such column.

    `id` is the other table's own id, as text; `source_id` is ours. Fields of type datetime are in
    microseconds since 1970, `date` is in the column's own unit: `unit` says how many microseconds are how
    many of them; None if it is text. `generation` is a digest of all that is read of a row. If the rows are
    `ours`, the entry "*" in `allow` means everybody in the tenant; in others' rows it is malformed.
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
        ConfigurationError: a column is missing, or its type can't be read as what it is for.
    """

    def found(option: str, name: str | None, needed: str, *fitting: Kind) -> tuple[str, pa.DataType] | None:
        if name is None:
            return None
        column, kind = _found(schema, name, option, attachment.table)
        if not any(fits(kind) for fits in fitting):
            raise ConfigurationError(
                f"The column {name!r} of the attached table {attachment.table} has the type {kind}; "
                f"--{option} needs {needed}."
            )
        return column, kind

    id_ = found("id", attachment.id, "text or whole numbers", _is_text, kinds.is_integer)
    text = found("text", attachment.text, "text", _is_text)
    vector = found(
        "vector", attachment.vector, "vectors of a fixed size (fixed_size_list of floats)", _is_vector
    )
    title = found("title", attachment.title, "text or whole numbers", _is_text, kinds.is_integer)
    url = found("url", attachment.url, "text", _is_text)
    date = found("date", attachment.date, "timestamps, dates, or text", _is_moment, _is_text)
    allow = found("allow", attachment.allow, "lists of text, such as ['user:ann', 'group:hr']", _is_texts)
    assert id_ is not None  # noqa: S101 both are always named
    assert text is not None  # noqa: S101
    fields = {}
    for name, kind in collection.fields.items():
        needed, fitting, made = _FIELDS[kind]
        column = found(f"field {name}={kind}", attachment.fields[name], needed, fitting)
        fields[name] = made(*column) if column else ""
    plain_id = _text(*id_)
    rights = [f"array_to_string({allow[0]}, {BETWEEN}, '-')"] if allow else []
    shown = [_text(*one) for one in (title, url) if one]
    if date:
        shown.append(_text(*date) if _is_text(date[1]) else f"CAST({_units(*date)} AS STRING)")
    valued = [
        f"array_to_string({attachment_column}, {BETWEEN}, '-')"
        if collection.fields[name] == "string list"
        else f"CAST({attachment_column} AS STRING)"
        for name, attachment_column in fields.items()
    ]
    parts = [f"coalesce({one}, '')" for one in (text[0], *shown, *rights, *valued)]
    return Columns(
        id=plain_id,
        source_id=source_id_sql(collection, plain_id),
        text=_text(*text),
        vector=vector[0] if vector else None,
        dimension=vector[1].list_size if vector else 1,  # type: ignore[attr-defined]
        title=_text(*title) if title else None,
        url=_text(*url) if url else None,
        date=None if not date else _text(*date) if _is_text(date[1]) else _units(*date),
        unit=_unit(date[1]) if date and not _is_text(date[1]) else None,
        allow=allow[0] if allow else None,
        fields=fields,
        lists=frozenset(name for name, kind in collection.fields.items() if kind == "string list"),
        generation=f"md5(concat_ws({BETWEEN}, {', '.join(parts)}))",
        usable=f"({id_[0]} IS NOT NULL) AND ({text[0]} IS NOT NULL)",
    )


def source_id_sql(collection: Collection, id_: str) -> str:
    """Our id of a row, of 80 bits: as many as that of an ingested source (`rag.store.source_ids`).

    A digest, because other ids can be long, and contain what a citation can't. It depends on the collection,
    so that a table can be attached twice. The digits of the hexadecimal digest become those of our ids.
    """
    salted = f"concat({literal(f'{collection.tenant}/{collection.name}/')}, {id_})"
    return f"translate(left(encode(sha256({salted}), 'hex'), 20), '0189', 'ghij')"


def _found(schema: pa.Schema, name: str, option: str, table: str) -> tuple[str, pa.DataType]:
    """The SQL and the type of a column, or of a part of one, by its name."""
    for parts in ([name], name.split(".")):
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
        one = fields.field(at)
        names += _paths(one.type, f"{above}{one.name}.") if kinds.is_struct(one.type) else [above + one.name]
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
    many, units = _unit(kind)
    return f"({_units(column, kind)} * {many} / {units})"


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

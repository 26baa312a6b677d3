"""Data folders as the program wrote them on 21 November 2026, with access records among the sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from rag.filters.predicate import literal
from rag.store import schema
from rag.store.connection import connect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rag.corpus import Access


async def to_format_2(data: Path, rights: Mapping[str, Access | None], number: int = 2) -> None:
    """Give a data folder with one collection the former format. `rights` are those of sources, by id."""
    database = await connect(data)
    catalog = await database.open_table(schema.COLLECTIONS)
    (row,) = (await catalog.query().to_arrow()).to_pylist()
    name = schema.sources_table(row["tenant"], row["name"])
    sources = (await (await database.open_table(name)).query().to_arrow()).to_pylist()
    sources = [one | schema.access_values(rights[one["id"]]) for one in sources]
    fields = [pa.field(one, kind, nullable=False) for one, kind in schema.LABEL_COLUMNS.items()]
    fields += [pa.field(one, kind) for one, kind in schema.ACCESS_COLUMNS.items()]
    await database.drop_table(name)
    columns = pa.schema([*schema.SOURCES_SCHEMA, *fields])
    await database.create_table(name, pa.Table.from_pylist(sources, columns))
    await database.drop_table(schema.access_table(row["tenant"]))
    definition = json.loads(row["definition"]) | {"format": number}
    where = f"name = {literal(row['name'])}"
    await catalog.update({"definition": json.dumps(definition)}, where=where)

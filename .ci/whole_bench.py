# ruff: noqa: INP001 a script
"""Every part of the benchmark, from the installed wheel, on so little that the figures mean nothing."""

from functools import partial

import anyio

from rag.admin.bench import CORPUS, markdown_table, measures_table
from rag.bench.rows import rows
from rag.bench.run import PARTS, run_bench
from rag.bench.stock import Sizes

LITTLE = Sizes(
    searches=2,
    starts=1,
    rounds=1,
    small=10,
    collection=20,
    index=(40,),
    tenants=(1, 3),
    tenant=20,
    files=1,
    book=20,
)

run = partial(run_bench, list(PARTS), corpus=CORPUS, sizes=LITTLE, say=lambda _line: None)
measures = anyio.run(run)
print(measures_table(measures))  # noqa: T201 a script
print(markdown_table(rows(LITTLE), measures))  # noqa: T201 the same

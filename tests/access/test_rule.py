"""Who may see a source: examples of the rule, and the SQL predicate compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lancedb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.access.rule import access_of, entries_of, labels_of, predicate, visible
from rag.corpus import Access, Principal
from rag.store.read.schema import ACCESS_COLUMNS, LABEL_COLUMNS, access_record
from rag.store.write.table_rows import access_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.corpus import Visibility

NOBODY = Principal("t")
ANN = Principal("t", "ann", frozenset({"hr", "staff"}))
QUOTED = Principal("t", "O'Neill", frozenset({"' OR 1=1 --"}))


def _access(visibility: Visibility, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Access:
    return Access(visibility, frozenset(allow), frozenset(deny))


TABLE: list[tuple[Principal, Access | None, bool]] = [
    (NOBODY, None, False),
    (ANN, None, False),
    (NOBODY, _access("tenant"), True),
    (ANN, _access("tenant"), True),
    (NOBODY, _access("restricted"), False),
    (ANN, _access("restricted"), False),
    (ANN, _access("restricted", ["user:ann"]), True),
    (ANN, _access("restricted", ["group:hr"]), True),
    (ANN, _access("restricted", ["user:bob", "group:hr"]), True),
    (ANN, _access("restricted", ["user:bob", "group:it"]), False),
    (NOBODY, _access("restricted", ["user:ann", "group:hr"]), False),
    (ANN, _access("restricted", ["user:ann"], ["user:ann"]), False),
    (ANN, _access("restricted", ["user:ann"], ["group:staff"]), False),
    (ANN, _access("restricted", ["group:hr"], ["user:bob"]), True),
    (ANN, _access("tenant", [], ["user:ann"]), False),
    (ANN, _access("tenant", ["user:ann"], ["group:hr"]), False),
    (ANN, _access("tenant", [], ["user:bob"]), True),
    (ANN, _access("tenant", ["user:bob"]), True),
    (NOBODY, _access("tenant", [], ["user:ann", "user:", "user:None"]), True),
    (ANN, _access("restricted", ["group:ann", "user:hr"]), False),
    (ANN, _access("tenant", [], ["group:ann", "user:hr"]), True),
    (ANN, _access("restricted", ["user:Ann", "group:HR", "ann", "hr", "user:ann "]), False),
    (ANN, _access("restricted", ["user:*", "group:*", "*"]), False),
    (QUOTED, _access("restricted", ["user:O'Neill"]), True),
    (QUOTED, _access("restricted", ["group:' OR 1=1 --"]), True),
    (QUOTED, _access("restricted", ["user:O''Neill"]), False),
    (QUOTED, _access("tenant", [], ["user:O'Neill"]), False),
    (QUOTED, _access("restricted"), False),
    (Principal("t", "", frozenset()), _access("restricted", ["user:"]), False),
]


def _table(records: Iterable[Access | None]) -> lancedb.Table:
    """A table with the columns of the access record alone, and where each record stood in `number`."""
    rows = [access_values(record) | {"number": number} for number, record in enumerate(records)]
    schema = pa.schema([*ACCESS_COLUMNS.items(), *LABEL_COLUMNS.items(), ("number", pa.int64())])
    database = lancedb.connect("memory://")
    return database.create_table("records", pa.Table.from_pylist(rows, schema=schema))


def _found(table: lancedb.Table, principal: Principal) -> set[int]:
    rows = table.search().where(predicate(principal)).select(["number"]).limit(10_000).to_list()
    return {row["number"] for row in rows}


@pytest.mark.parametrize(("principal", "access", "sees"), TABLE)
def test_who_sees_what(principal: Principal, access: Access | None, *, sees: bool) -> None:
    assert visible(principal, access) is sees


def test_the_engine_keeps_the_same_rule_by_the_same_table() -> None:
    table = _table([access for _, access, _ in TABLE])
    for number, (principal, _, sees) in enumerate(TABLE):
        assert (number in _found(table, principal)) is sees


def test_what_the_tenant_is_called_is_no_part_of_the_rule() -> None:
    assert entries_of(Principal("user:ann")) == frozenset()


def test_users_and_groups_of_one_name_are_two_entries() -> None:
    assert entries_of(Principal("t", "hr", frozenset({"hr", "it"}))) == {"user:hr", "group:hr", "group:it"}


_NAMES = st.sampled_from(
    ["ann", "hr", "O'Neill", "' OR 1=1 --", "x') OR (true", '"', "\\", "\\'", ";", "é", "%"]
)
_ENTRIES = st.builds(lambda kind, name: f"{kind}:{name}", st.sampled_from(["user", "group"]), _NAMES)
_RECORDS = st.none() | st.builds(
    Access,
    st.sampled_from(["tenant", "restricted"]),
    st.frozensets(_ENTRIES, max_size=3),
    st.frozensets(_ENTRIES, max_size=2),
)
_PRINCIPALS = st.builds(Principal, st.just("t"), st.none() | _NAMES, st.frozensets(_NAMES, max_size=3))


@settings(deadline=None)
@given(
    records=st.lists(_RECORDS, min_size=1, max_size=20),
    principals=st.lists(_PRINCIPALS, min_size=1, max_size=5),
)
def test_the_engine_keeps_the_same_rule_whatever_the_records(
    records: list[Access | None], principals: list[Principal]
) -> None:
    table = _table(records)
    for principal in principals:
        seen = {number for number, record in enumerate(records) if visible(principal, record)}
        assert _found(table, principal) == seen


@given(record=_RECORDS)
def test_labels_give_a_record_that_lets_in_the_same(record: Access | None) -> None:
    assert labels_of(access_of(labels_of(record), 1)) == labels_of(record)
    assert access_of(labels_of(None), 0) is None


@given(record=_RECORDS)
def test_a_record_comes_back_from_its_columns(record: Access | None) -> None:
    assert access_record(access_values(record) | {"revision": 0}) == record

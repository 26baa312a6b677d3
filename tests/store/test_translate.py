"""Our SQL over the columns of an attached table: each name is replaced or refused, and no text is touched."""

from __future__ import annotations

import pytest

from rag.access.rule import predicate
from rag.corpus import LetterCase, Principal
from rag.errors import StoreError
from rag.store.read.attached.column_mapping import Columns, Translation

COLUMNS = Columns(
    id="`Id`",
    source_id="digest(`Id`)",
    text="`body`.`text`",
    vector=None,
    dimension=1,
    title=None,
    url=None,
    date=None,
    unit=None,
    allow="`acl`",
    fields={"year": "`y`", "tags": "`labels`"},
    lists=frozenset({"tags"}),
    generation="md5(`body`.`text`)",
    usable="(true)",
)
KNOWN = {"aaa": "their 'a'"}
OF_CHUNKS = Translation(COLUMNS, KNOWN.get, of_chunks=True)
OF_SOURCES = Translation(COLUMNS, KNOWN.get, of_chunks=False)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("(seq = 0)", "((0) = 0)"),
        ("(source_id IN ('aaa'))", "(((`Id` IN ('their ''a'''))))"),
        ("(source_id IN ('bbb'))", "(((digest(`Id`) IN ('bbb'))))"),
        ("(id IN ('aaa/0', 'aaa/1'))", "(((`Id` IN ('their ''a'''))))"),
        ("(id IN ('aaa/1'))", "((false))"),
        ("(field_year IN (1, 2))", "((`y`) IN (1, 2))"),
        ("(field_year IS NULL OR (NOT (field_year > 3)))", "((`y`) IS NULL OR (NOT ((`y`) > 3)))"),
        ("(field_tags IS NOT NULL)", "(coalesce(array_length(`labels`), 0) > 0)"),
        ("(array_has_any(field_tags, ['seq', 'o''id']))", "(array_has_any((`labels`), ['seq', 'o''id']))"),
        ("(field_year = 'source_id IN (''x'') OR labels')", "((`y`) = 'source_id IN (''x'') OR labels')"),
    ],
)
def test_a_condition_is_written_over_their_columns(ours: str, theirs: str) -> None:
    assert OF_CHUNKS(ours) == theirs


def test_the_id_of_a_source_is_that_of_its_row() -> None:
    assert OF_SOURCES("(id = 'bbb')") == "(((digest(`Id`) IN ('bbb'))))"
    assert OF_SOURCES("(id > 'b')") == "((digest(`Id`)) > 'b')"


@pytest.mark.parametrize("name", ["Id", "acl", "field_other", "labels", "password", "version"])
def test_a_name_that_is_not_ours_is_refused_even_if_they_have_such_a_column(name: str) -> None:
    with pytest.raises(StoreError, match="can't be searched by"):
        OF_CHUNKS(f"({name} = 'x')")


@pytest.mark.parametrize(
    ("case", "entries"),
    [
        ("allow", "'group:HR', 'user:Ann'"),
        ("always", "'group:HR', 'user:Ann'"),
        ("never", "'group:hr', 'user:ann'"),
    ],
)
def test_the_rule_asks_for_the_entries_of_the_principal(case: LetterCase, entries: str) -> None:
    rule = OF_CHUNKS(predicate(Principal("default", "Ann", frozenset({"HR"})), case))
    assert rule == f"((array_has_any(`acl`, [{entries}])) AND (NOT ((false))))"
    assert OF_CHUNKS(predicate(Principal("default"), case)) == "((false))"

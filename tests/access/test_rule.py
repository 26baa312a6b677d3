"""Who may see a source: the rule and its SQL predicate, what bindings leave, and who gains by a change.

Also which names tenants, collections, users and groups may have.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import lancedb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rag.access.rule import (
    EVERYBODY_IN_TENANT,
    MAX_ENTRIES,
    MAX_ENTRY_CHARS,
    NAME_LENGTH,
    UNBOUND,
    Bounds,
    access_changes,
    access_of,
    bare_name,
    bounds,
    check_access,
    entries_of,
    labels_of,
    predicate,
    valid_entries,
    valid_name,
    visible,
    walls,
)
from rag.config.server_settings import PrincipalSettings
from rag.config.settings import SearchSettings
from rag.corpus import Access, Binding, Collection, EmbedderIdentity, Principal
from rag.errors import ConfigurationError
from rag.filters.grammar import matches
from rag.store.read.schema import ACCESS_COLUMNS, LABEL_COLUMNS, access_record
from rag.store.write.table_rows import access_values
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rag.corpus import Value, Visibility


@pytest.mark.parametrize("name", ["a", "documents", "my-notes_2024", "0", "a-b_c", "x" * NAME_LENGTH])
def test_names_of_lower_case_letters_digits_and_single_marks_are_valid(name: str) -> None:
    assert valid_name(name) == name
    assert PrincipalSettings(tenant=name).tenant == name
    assert SearchSettings(of_collections={name: name}).of_collections == {name: name}


NAMES = "{} names a {}; give the name of a {}."
INVALID = "is not a valid name of a {}"
BAD_NAMES = [
    "",
    "A",
    "a__b",
    "a--b",
    "a-_b",
    "-a",
    "a-",
    "_a",
    "a_",
    "a.b",
    "a/b",
    "../a",
    "a b",
    "ä",
    "a\n",
    "a\x00",
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "٣", "x" * (NAME_LENGTH + 1)])
def test_other_names_are_refused_everywhere_and_the_message_says_what_is_valid(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters and digits, separated by single - or _"):
        valid_name(name)
    with pytest.raises(ValidationError):
        PrincipalSettings(tenant=name)
    with pytest.raises(ValidationError):
        SearchSettings(of_collections={name: "default"})


@given(st.text())
def test_the_function_and_the_settings_agree_on_names(name: str) -> None:
    try:
        PrincipalSettings(tenant=name)
    except ValidationError:
        with pytest.raises(ConfigurationError):
            valid_name(name)
    else:
        assert valid_name(name) == name


@pytest.mark.parametrize("name", ["hr", "hr-europe", "hr: all", "Jos\u00e9", "a b", "team:hr"])
def test_a_bare_name_is_taken_as_it_is(name: str) -> None:
    assert bare_name("group", name) == name
    assert bare_name("user", name) == name


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("group", "group:hr", "prefix: hr, not group:hr"),
        ("group", "Group:hr", "prefix: hr, not Group:hr"),
        ("group", "group: hr", "prefix: hr, not group: hr"),
        ("user", "user:ann", "prefix: ann, not user:ann"),
        ("group", "user:ann", NAMES.format("user:ann", "user", "group")),
        ("user", "group:hr", NAMES.format("group:hr", "group", "user")),
        ("group", "group:", "prefix: NAME, not group:"),
        ("group", "", INVALID.format("group")),
        ("user", " ", INVALID.format("user")),
        ("group", "h\nr", INVALID.format("group")),
        ("group", "x" * 251, "up to 250 printable characters"),
    ],
)
def test_an_access_list_entry_in_place_of_a_bare_name_is_refused_with_the_bare_name(
    kind: Literal["user", "group"], name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        bare_name(kind, name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_takes_users_and_groups_and_each_once() -> None:
    entries = ["user:ann", "group:hr", "user:ann", "user:O'Neill", "group:a:b", "user:Łukasz K"]
    assert valid_entries(entries) == set(entries)
    assert valid_entries([]) == frozenset()


def test_a_list_takes_so_many_entries_and_no_more() -> None:
    many = [f"user:{number}" for number in range(MAX_ENTRIES)]
    assert len(valid_entries([*many, *many])) == MAX_ENTRIES
    with pytest.raises(ConfigurationError) as error:
        valid_entries([*many, "user:more"])
    assert str(error.value) == "The access list has 257 entries; the maximum is 256. Use a group instead."


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "ann",
        ":ann",
        "user",
        "user:",
        "user: ",
        "group:\u00a0",
        "User:ann",
        "USER:ann",
        " user:ann",
        "users:ann",
        "role:hr",
        "*",
        "user:a\nb",
        "user:a\x00b",
        "user:a\u202eb",
        "user:a\ud800b",
        "user:" + "x" * (MAX_ENTRY_CHARS - 4),
    ],
    ids=ascii,
)
def test_what_names_no_user_or_group_stands_in_no_list(entry: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        valid_entries(["user:ann", entry])
    quoted = repr(entry[:64])
    assert str(error.value) == f"{quoted} is not a valid access list entry; write user:NAME or group:NAME."


def test_a_long_name_is_allowed_up_to_its_limit() -> None:
    entry = "user:" + "x" * (MAX_ENTRY_CHARS - 5)
    assert valid_entries([entry]) == {entry}


def test_a_record_for_everybody_allows_nobody_in_particular() -> None:
    check_access("tenant", [], ["user:bob"])
    check_access("restricted", ["group:hr"], [])
    check_access(None, ["group:hr"], ["user:bob"])
    with pytest.raises(ConfigurationError, match="remove allow, or set visibility to restricted"):
        check_access("tenant", ["group:hr"], [])
    for allow, deny in ((["hr"], []), ([], ["hr"])):
        assert refusal(check_access, None, allow, deny) == refusal(valid_entries, ["hr"])


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
    rows = table.search().where(predicate(principal, "allow")).select(["number"]).limit(10_000).to_list()
    return {row["number"] for row in rows}


@pytest.mark.parametrize(("principal", "access", "sees"), TABLE)
def test_who_sees_what(principal: Principal, access: Access | None, *, sees: bool) -> None:
    assert visible(principal, access, "allow") is sees


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
        visible_rows = {
            number for number, record in enumerate(records) if visible(principal, record, "allow")
        }
        assert _found(table, principal) == visible_rows


@given(record=_RECORDS)
def test_labels_give_a_record_that_lets_in_the_same(record: Access | None) -> None:
    assert labels_of(access_of(labels_of(record), 1)) == labels_of(record)
    assert access_of(labels_of(None), 0) is None


@given(record=_RECORDS)
def test_a_record_comes_back_from_its_columns(record: Access | None) -> None:
    assert access_record(access_values(record) | {"revision": 0}) == record


FINAL, HR = Binding(filter={"status": "final"}), Binding(filter={"team": {"$in": ["hr"]}})
HANDBOOK = Collection(
    "default",
    "handbook",
    EmbedderIdentity("tests", "model", 2),
    "English",
    "cosine",
    datetime(2026, 1, 1, tzinfo=UTC),
    {"status": "string", "team": "string list", "year": "integer"},
)


def _admits(values: Mapping[str, Value], *bindings: Binding) -> bool:
    conditions = walls(bindings, HANDBOOK)
    return conditions is not None and all(matches(condition, values) for condition in conditions)


def test_without_bindings_everything_is_left() -> None:
    assert walls((), HANDBOOK) == ()
    assert walls((Binding(profile="precise", limit=3, tools=("search",)),), HANDBOOK) == ()


def test_each_binding_must_admit_a_source() -> None:
    assert _admits({"status": "final", "team": ("hr", "it")}, FINAL, HR)
    assert not _admits({"status": "final"}, FINAL, HR)
    assert not _admits({"team": ("hr",)}, FINAL, HR)


@pytest.mark.parametrize("part", ["collections", "tools"])
def test_one_string_is_no_list_of_names(part: str) -> None:
    with pytest.raises(ConfigurationError, match="tuples of names"):
        Binding(**{part: "handbook"})  # type: ignore[arg-type]
    assert getattr(Binding(**{part: ("handbook",)}), part) == ("handbook",)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [(), ("notes",), ("Handbook",), ("handbook ",), ("*",)])
def test_a_collection_that_a_binding_does_not_name_shows_nothing(names: tuple[str, ...]) -> None:
    assert walls((Binding(collections=("notes", "handbook")),), HANDBOOK) == ()
    assert walls((Binding(collections=names),), HANDBOOK) is None
    assert walls((Binding(collections=("handbook",)), Binding(collections=names)), HANDBOOK) is None


@pytest.mark.parametrize(
    "filter_",
    [
        {"owner": "ann"},  # isn't declared
        {"owner": {"$ne": "ann"}},  # every source would match it
        {"$not": {"owner": "ann"}},
        {"$or": [{"status": "final"}, {"owner": "ann"}]},
        {"year": "2020"},  # of another type
        {"status": {"$gt": "a"}},
        {"$nor": [{"status": "final"}]},
        {},
        {"$and": []},
    ],
)
def test_a_filter_that_does_not_suit_the_declared_fields_admits_nothing(filter_: dict[str, object]) -> None:
    assert walls((Binding(filter=filter_),), HANDBOOK) is None


def test_one_of_several_bindings_is_enough_where_the_operator_offers_several() -> None:
    either = Binding(any_of=(FINAL, HR, Binding(filter={"owner": "ann"}), Binding(collections=("notes",))))
    assert _admits({"status": "final"}, either)
    assert _admits({"team": ("hr",)}, either)
    assert not _admits({"status": "draft", "team": ("it",)}, either)
    assert not _admits({"team": ("hr",)}, either, FINAL)
    assert walls((Binding(any_of=(FINAL, Binding())),), HANDBOOK) == ()


@pytest.mark.parametrize("bindings", [(), (Binding(collections=("notes",)),), (Binding(filter={}),)])
def test_several_bindings_of_which_none_admits_anything_leave_nothing(bindings: tuple[Binding, ...]) -> None:
    assert walls((Binding(any_of=bindings),), HANDBOOK) is None


def test_limits_and_collections_are_those_that_all_bindings_allow() -> None:
    bindings = (Binding(limit=5, collections=("b", "a")), Binding(limit=3), Binding(collections=("c", "b")))
    assert bounds(bindings) == Bounds(("b",), (), 3)
    assert bounds(()) == UNBOUND


def test_a_profile_that_several_bindings_name_is_one() -> None:
    strict, fast = Binding(profile="strict"), Binding(profile="fast")
    assert bounds((strict, Binding(), strict)).profiles == ("strict",)
    assert bounds((strict, fast)).profiles == ("fast", "strict")


def test_bindings_that_python_takes_for_equal_are_not() -> None:
    assert Binding(filter={"year": 1}) == Binding(filter={"year": 1})
    assert len({Binding(filter={"year": value}) for value in (1, 1.0, True, "1")}) == 4


TENANT = Access("tenant")

FOR_HR = Access("restricted", frozenset({"group:hr"}))

NOT_BOB = Access("tenant", deny=frozenset({"user:bob"}))


@pytest.mark.parametrize(
    ("before", "after", "gains", "loses"),
    [
        (None, TENANT, {EVERYBODY_IN_TENANT}, set()),
        (TENANT, None, set(), {EVERYBODY_IN_TENANT}),
        (TENANT, TENANT, set(), set()),
        (None, FOR_HR, {"group:hr"}, set()),
        (TENANT, FOR_HR, set(), {f"{EVERYBODY_IN_TENANT} but group:hr"}),
        (NOT_BOB, FOR_HR, set(), {f"{EVERYBODY_IN_TENANT} but group:hr"}),
        (
            NOT_BOB,
            Access("restricted", frozenset({"user:bob"})),
            {"user:bob"},
            {f"{EVERYBODY_IN_TENANT} but user:bob"},
        ),
        (FOR_HR, TENANT, {EVERYBODY_IN_TENANT}, set()),
        (TENANT, NOT_BOB, set(), {"user:bob"}),
        (NOT_BOB, TENANT, {"user:bob"}, set()),
        (FOR_HR, NOT_BOB, {f"{EVERYBODY_IN_TENANT} but user:bob"}, set()),
        (FOR_HR, Access("restricted", frozenset({"group:it"})), {"group:it"}, {"group:hr"}),
        (FOR_HR, Access("restricted", FOR_HR.allow, FOR_HR.allow), set(), {"group:hr"}),
    ],
)
def test_each_is_named_once(
    before: Access | None, after: Access | None, gains: set[str], loses: set[str]
) -> None:
    changes = access_changes([("a", before, after)])
    assert {who for who, change in changes.items() if change.gains} == gains
    assert {who for who, change in changes.items() if change.loses} == loses

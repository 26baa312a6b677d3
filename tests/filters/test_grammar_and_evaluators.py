"""The grammar of filters: what it accepts, what it refuses, and what each filter matches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.corpus import FieldType, Value
from rag.errors import InvalidRequestError
from rag.filters.grammar import (
    MAX_ALL_CHARS,
    MAX_CHARS,
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_LEAVES,
    MAX_VALUES,
    OPERATORS,
    AllOf,
    AnyOf,
    Filter,
    Not,
    OneOf,
    Ordered,
    Present,
    Scalar,
    matches,
    parse_filter,
)

# The grammar of filters: what it accepts, and the messages for everything else.

FIELDS: dict[str, FieldType] = {
    "status": "string",
    "year": "integer",
    "price": "number",
    "final": "boolean",
    "due": "datetime",
    "tags": "string list",
}
NAMES = "due, final, price, status, tags, year"
CANARY = "canary"
YEAR = OneOf("year", "integer", (2001,))
DATE = "a date like 2024-05-01 or 2024-05-01T12:00:00Z"
STRING = "a string of at most 512 characters"
WHOLE = "a whole number within ±2^53"


def _refusal(value: object, fields: Mapping[str, FieldType] = FIELDS) -> str:
    with pytest.raises(InvalidRequestError) as error:
        parse_filter(value, fields)
    return str(error.value)


def _nested(depth: int) -> object:
    value: object = {"year": 2001}
    for _ in range(depth - 1):
        value = {"$not": value}
    return value


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"year": 2001}, YEAR),
        ({"year": {"$eq": 2001}}, YEAR),
        ({"year": {"$ne": 2001}}, Not(YEAR)),
        ({"year": {"$gt": 2001}}, Ordered("year", "integer", "$gt", 2001)),
        ({"year": 2001.0}, OneOf("year", "integer", (2001,))),
        ({"year": {"$gte": 2001}}, Ordered("year", "integer", "$gte", 2001)),
        ({"year": {"$lt": 2001}}, Ordered("year", "integer", "$lt", 2001)),
        ({"year": {"$lte": 2001}}, Ordered("year", "integer", "$lte", 2001)),
        ({"year": {"$in": [2001, 1999]}}, OneOf("year", "integer", (2001, 1999))),
        ({"year": {"$nin": [2001, 1999]}}, Not(OneOf("year", "integer", (2001, 1999)))),
        ({"year": {"$exists": True}}, Present("year", "integer")),
        ({"year": {"$exists": False}}, Not(Present("year", "integer"))),
        ({"tags": "draft"}, OneOf("tags", "string list", ("draft",))),
        ({"tags": {"$in": ["draft", "old"]}}, OneOf("tags", "string list", ("draft", "old"))),
    ],
    ids=str,
)
def test_each_operator_means_its_condition(value: object, meant: Filter) -> None:
    assert parse_filter(value, FIELDS) == meant


def test_several_conditions_of_an_object_must_all_hold() -> None:
    between = (Ordered("year", "integer", "$gte", 2000), Ordered("year", "integer", "$lt", 2010))
    assert parse_filter({"year": {"$gte": 2000, "$lt": 2010}}, FIELDS) == AllOf(between)
    final = OneOf("status", "string", ("final",))
    assert parse_filter({"status": "final", "year": {"$gte": 2000, "$lt": 2010}}, FIELDS) == AllOf(
        (final, *between)
    )


def test_groups_nest() -> None:
    value = {"$or": [{"year": 2001}, {"$and": [{"final": True}, {"$not": {"tags": "draft"}}]}]}
    draft = OneOf("tags", "string list", ("draft",))
    assert parse_filter(value, FIELDS) == AnyOf(
        (YEAR, AllOf((OneOf("final", "boolean", (True,)), Not(draft))))
    )


def test_not_negates_the_whole_object() -> None:
    value = {"$not": {"year": 2001, "final": False}}
    assert parse_filter(value, FIELDS) == Not(AllOf((YEAR, OneOf("final", "boolean", (False,)))))


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("status", "", ""),
        ("status", "e\u0301", "é"),
        ("status", "' OR 1=1 --", "' OR 1=1 --"),
        ("status", "x" * MAX_CHARS, "x" * MAX_CHARS),
        ("year", MAX_INTEGER, MAX_INTEGER),
        ("year", -MAX_INTEGER, -MAX_INTEGER),
        ("price", 2001, 2001.0),
        ("price", 1e308, 1e308),
        ("due", "2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        ("due", "2024-05-01T12:30", datetime(2024, 5, 1, 12, 30, tzinfo=UTC)),
        ("due", "2024-05-01T12:30:00Z", datetime(2024, 5, 1, 12, 30, tzinfo=UTC)),
        ("due", "2024-05-01 12:30:00.25+02:00", datetime(2024, 5, 1, 10, 30, 0, 250_000, tzinfo=UTC)),
        ("due", "0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
        ("due", "9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_values_are_of_the_type_of_their_field(field: str, value: object, meant: Scalar) -> None:
    parsed = parse_filter({field: value}, FIELDS)
    assert parsed == OneOf(field, FIELDS[field], (meant,))
    assert isinstance(parsed, OneOf)
    assert [type(value) for value in parsed.values] == [type(meant)]


def test_zero_has_no_sign() -> None:
    parsed = parse_filter({"price": -0.0}, FIELDS)
    assert isinstance(parsed, OneOf)
    assert [math.copysign(1, float(str(value))) for value in parsed.values] == [1]


@pytest.mark.parametrize(
    "name",
    [
        "tenant",
        "TENANT",
        "`tenant`",
        "tenant) OR (1",
        "Year",
        "year ",
        "_rowid",
        "_distance",
        "__proto__",
        "source.x",
        "visibility",
        "allow",
        "field_year",
        "text",
        "",
        "$where",
        "$nor",
        "$eq",
    ],
)
def test_an_unknown_field_is_refused_with_the_names_that_there_are(name: str) -> None:
    assert _refusal({name: CANARY}) == f"There is no field {name!r} to filter by; there are: {NAMES}."


@pytest.mark.parametrize("name", ["and", "OR", "$Not", "$AND"])
def test_a_combining_operator_is_suggested_for_its_plain_word(name: str) -> None:
    assert _refusal({name: [{"year": 1}]}).endswith(f"Did you mean ${name.strip('$').lower()}?")


def test_where_no_field_is_declared_the_refusal_says_so() -> None:
    assert _refusal({"year": 1}, {}) == "There is no field 'year' to filter by; there are: none."


def test_a_name_is_shown_only_in_part_and_escaped() -> None:
    assert len(_refusal({"x" * 10_000: 1})) < 200
    assert len(_refusal({"year": {"x" * 10_000: 1}})) < 200
    refusal = _refusal({"a\nb\x1b\ud800\u202e": 1})
    assert refusal.isprintable()
    assert refusal.encode()


@pytest.mark.parametrize(
    "operator", ["$EQ", "eq", "$gt;", "$where", "$regex", "$expr", "$and", "$not", "", "$like"]
)
@pytest.mark.parametrize("field", FIELDS)
def test_an_unknown_operator_is_refused_with_those_of_the_field(field: str, operator: str) -> None:
    type_ = FIELDS[field]
    refusal = (
        f"{field} does not support {operator!r}; it is {'an' if type_ == 'integer' else 'a'} {type_}, "
        f"which supports: {', '.join(OPERATORS[type_])}."
    )
    assert _refusal({field: {operator: CANARY}}) == refusal


@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
@pytest.mark.parametrize("field", ["status", "final", "tags"])
def test_what_has_no_order_is_not_asked_for_more_or_less(field: str, operator: str) -> None:
    assert _refusal({field: {operator: True}}).startswith(f"{field} does not support {operator!r}; it is a ")


@pytest.mark.parametrize("operator", ["$in", "$nin"])
def test_booleans_take_no_lists(operator: str) -> None:
    assert _refusal({"final": {operator: [True]}}).endswith(
        "it is a boolean, which supports: $eq, $ne, $exists."
    )


STRANGERS: dict[str, list[object]] = {
    "status": [5, 1.5, True, None, [CANARY], "x" * (MAX_CHARS + 1), "a\x00b", "a\ud800"],
    "tags": [5, 1.5, True, None, [CANARY], "x" * (MAX_CHARS + 1), "a\x00b", "a\ud800"],
    "year": [
        "2001",
        math.inf,
        math.nan,
        2.0**60,
        2001.5,
        True,
        False,
        None,
        [2001],
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        10**400,
    ],
    "price": ["1.5", True, None, math.nan, math.inf, -math.inf, [1.5], MAX_INTEGER + 1, 10**400],
    "final": [1, 0, "true", "", None, 1.0, [True]],
    "due": [
        20240501,
        1714564800.0,
        True,
        None,
        "",
        CANARY,
        "2024",
        "20240501",
        "2024-W18-3",
        "2024-02-30",
        "2024-13-01",
        "2024-05-01T25:00:00Z",
        "2024-05-01T12:00:00+25:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٤-٠٥-٠١",
        " 2024-05-01",
        "2024-05-01\n",
        ["2024-05-01"],
    ],
}
WANTED = {
    "status": STRING,
    "tags": STRING,
    "year": WHOLE,
    "price": "a finite number",
    "final": "true or false",
    "due": DATE,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{place}")
        for field, values in STRANGERS.items()
        for place, value in enumerate(values)
    ],
)
def test_a_value_of_another_type_is_refused_with_what_is_wanted(field: str, value: object) -> None:
    refusals = {_refusal({field: value})}
    for operator in OPERATORS[FIELDS[field]]:
        if operator in {"$in", "$nin"}:
            refusals.add(_refusal({field: {operator: [value]}}))
        elif operator != "$exists":
            refusals.add(_refusal({field: {operator: value}}))
    hint = " For one of several values, use $in." if isinstance(value, list) and field != "final" else ""
    assert refusals == {f"{field}: a value must be {WANTED[field]}.{hint}"}


def test_one_value_of_another_type_refuses_a_whole_list() -> None:
    assert _refusal({"year": {"$in": [2001, "2002"]}}) == f"year: a value must be {WHOLE}."


@pytest.mark.parametrize("value", [None, 0, 1, "true", [], {}])
def test_exists_takes_true_or_false(value: object) -> None:
    assert _refusal({"year": {"$exists": value}}) == "year: $exists takes true or false."


@pytest.mark.parametrize("operator", ["$in", "$nin"])
@pytest.mark.parametrize("count", [1, MAX_VALUES])
def test_a_list_of_values_has_one_to_a_hundred(operator: str, count: int) -> None:
    parse_filter({"year": {operator: list(range(count))}}, FIELDS)


@pytest.mark.parametrize("operator", ["$in", "$nin"])
@pytest.mark.parametrize("value", [[], list(range(MAX_VALUES + 1)), [0] * 100_000, 5, CANARY, {"a": 1}, None])
def test_any_other_number_of_values_is_refused(operator: str, value: object) -> None:
    assert _refusal({"year": {operator: value}}) == f"year: {operator} takes a list of 1 to 100 values."


def test_a_filter_nests_as_deep_as_allowed() -> None:
    parse_filter(_nested(MAX_DEPTH), FIELDS)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 40, 100_000])
def test_a_deeper_filter_is_refused(depth: int) -> None:
    assert _refusal(_nested(depth)) == "filter is nested deeper than 5 levels."


def test_a_filter_holds_as_many_conditions_as_allowed() -> None:
    parse_filter({"$or": [{"year": number} for number in range(MAX_LEAVES)]}, FIELDS)


@pytest.mark.parametrize("width", [2, 16])
def test_more_conditions_are_refused_wherever_they_stand(width: int) -> None:
    part = {"$or": [{"year": number} for number in range(width)]}
    many = [part] * (MAX_LEAVES // width)
    parse_filter({"$and": many}, FIELDS)
    assert _refusal({"$and": many, "year": 1}) == "filter has more than 32 conditions."


@pytest.mark.parametrize("key", ["$and", "$or"])
def test_a_longer_list_of_filters_is_refused(key: str) -> None:
    many = [{"year": number} for number in range(MAX_LEAVES + 1)]
    assert _refusal({key: many}) == f"{key} takes at most 32 filters."


@pytest.mark.parametrize("value", [{}, [], None, "", CANARY, 5, True, [{"year": 1}]])
def test_what_is_no_object_with_a_condition_is_refused_at_every_place(value: object) -> None:
    refusal = "filter must be an object with at least one condition in it."
    assert _refusal(value) == refusal
    assert _refusal({"$not": value}) == refusal
    assert _refusal({"$or": [{"year": 1}, value]}) == refusal


@pytest.mark.parametrize("key", ["$and", "$or"])
@pytest.mark.parametrize("value", [[], {}, {"year": 1}, None, CANARY, 5])
def test_a_group_takes_a_list_with_something_in_it(key: str, value: object) -> None:
    assert _refusal({key: value}) == f"{key} takes a list of at least one filter."


def test_a_field_without_a_condition_is_refused() -> None:
    assert _refusal({"year": {}}) == "year: give an operator and a value."


UNWANTED: list[object] = [CANARY * 200, [CANARY], {"$eq": CANARY * 200}, {"$in": CANARY}, {"$in": [[CANARY]]}]


@pytest.mark.parametrize("value", UNWANTED, ids=str)
@pytest.mark.parametrize("field", [*FIELDS, "unknown", "$and", "$or"])
def test_no_value_is_quoted(field: str, value: object) -> None:
    assert CANARY not in _refusal({field: value})
    assert CANARY not in _refusal({"$not": {field: value}})


_ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
_KEYS = st.sampled_from([*FIELDS, *OPERATORS["integer"], "$and", "$or", "$not", "tenant"]) | _ANY_TEXT
_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | _ANY_TEXT | st.sampled_from(["2024-05-01"])
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=40,
)
_NEARLY = st.dictionaries(
    st.sampled_from([*FIELDS, "$and", "$or", "$not"]),
    _JSON | st.dictionaries(st.sampled_from(OPERATORS["integer"]), _JSON, max_size=3),
    min_size=1,
    max_size=3,
)


@given(value=_JSON | _NEARLY | st.dictionaries(_KEYS, _NEARLY | st.lists(_NEARLY, max_size=3), max_size=3))
@settings(deadline=None)
def test_any_json_is_a_filter_or_refused(value: object) -> None:
    outcome = _outcome(value)
    assert outcome.encode() if isinstance(outcome, str) else isinstance(outcome, get_args(Filter))


def _outcome(value: object) -> Filter | str:
    try:
        return parse_filter(value, FIELDS)
    except InvalidRequestError as error:
        return str(error)


def test_a_filter_has_texts_of_so_many_characters_in_all() -> None:
    def named(count: int) -> dict[str, object]:
        return {"$or": [{"status": {"$in": ["x" * MAX_CHARS] * 64}}] * count}

    assert parse_filter(named(2), FIELDS)
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_ALL_CHARS:,} characters"):
        parse_filter(named(3), FIELDS)


@pytest.mark.parametrize("operator", ["$contains", "$suffix"])
def test_texts_to_find_in_any_form_are_fewer_because_each_becomes_a_pattern(operator: str) -> None:
    def wanted(count: int) -> dict[str, object]:
        return {"$or": [{"status": {operator: "ß" * 400 + str(number)}} for number in range(count)]}

    assert parse_filter(wanted(1), FIELDS)
    with pytest.raises(InvalidRequestError, match="too long texts"):
        parse_filter(wanted(32), FIELDS)


# The meaning of filters: two-valued logic, in which a missing field has no value.

DAY = datetime(2024, 5, 1, tzinfo=UTC)
SAME: dict[str, tuple[object, Value]] = {
    "status": ("final", "final"),
    "year": (2001, 2001),
    "price": (1.5, 1.5),
    "final": (False, False),
    "due": ("2024-05-01", DAY),
    "tags": ("final", ("draft", "final")),
}


def _holds(condition: object, values: dict[str, Value], field: str = "status") -> bool:
    return matches(parse_filter({field: condition}, FIELDS), values)


@pytest.mark.parametrize(
    ("condition", "missing", "same", "differing", "empty"),
    [
        ({"$eq": "final"}, False, True, False, False),
        ({"$ne": "final"}, True, False, True, True),
        ({"$in": ["final", "old"]}, False, True, False, False),
        ({"$nin": ["final", "old"]}, True, False, True, True),
        ({"$exists": True}, False, True, True, True),
        ({"$exists": False}, True, False, False, False),
        ({"$eq": ""}, False, False, False, True),
        ({"$ne": ""}, True, True, True, False),
        ({"$in": ["", "old"]}, False, False, False, True),
        ({"$nin": ["", "old"]}, True, True, True, False),
    ],
    ids=str,
)
def test_strings_and_lists_of_strings(
    condition: object, *, missing: bool, same: bool, differing: bool, empty: bool
) -> None:
    values: list[dict[str, Value]] = [{}, {"status": "final"}, {"status": "Final"}, {"status": ""}]
    assert [_holds(condition, source) for source in values] == [missing, same, differing, empty]
    lists: list[dict[str, Value]] = [{}, {"tags": ("x", "final")}, {"tags": ("Final", "y")}, {"tags": ("",)}]
    assert [_holds(condition, source, "tags") for source in lists] == [missing, same, differing, empty]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("toplantı", "TOPLANTI TUTANAĞI"),
        ("izin yönetmeliği", "İZİN YÖNETMELİĞİ"),
        ("第2章", "第２章　休暇"),
        ("パワー", "ﾊﾟﾜｰｸﾘｰﾝ"),
        ("(改訂)", "規程（改訂）"),
        ('בע"מ', "אור בע״מ"),
        ("תל-אביב", "תל־אביב"),
        ("strasse", "Hauptstraße"),
        ("été", "L'E\u0301TE\u0301"),
    ],
)
def test_a_text_is_contained_in_any_form(text: str, value: str) -> None:
    assert _holds({"$contains": text}, {"status": value})
    assert _holds({"$contains": text}, {"tags": ("x", value)}, "tags")
    assert _holds({"$suffix": value.casefold()}, {"status": f"x {value}"})
    assert not _holds({"$contains": text}, {"status": text[:-1]})


@pytest.mark.parametrize(("suffix", "holds"), [(".ts", True), (".TS", True), ("ts ", False), (".tsx", False)])
def test_a_text_at_the_end(suffix: str, *, holds: bool) -> None:
    for end in ("ts", "TS"):
        assert _holds({"$suffix": suffix}, {"status": f"web/cart.{end}"}) == holds
        assert _holds({"$suffix": suffix}, {"tags": (f"cart.{end}", "x")}, "tags") == holds
    assert not _holds({"$suffix": suffix}, {"status": "web/cart.ts.map"})


@pytest.mark.parametrize(
    ("operator", "missing", "less", "same", "more"),
    [
        ("$eq", False, False, True, False),
        ("$ne", True, True, False, True),
        ("$gt", False, False, False, True),
        ("$gte", False, False, True, True),
        ("$lt", False, True, False, False),
        ("$lte", False, True, True, False),
    ],
)
@pytest.mark.parametrize(
    ("field", "bound", "values"),
    [
        ("year", 0, (-1, 0, 1)),
        ("price", 0, (-0.5, 0.0, 0.5)),
        ("due", "2024-05-01", (DAY.replace(year=1969), DAY, DAY.replace(microsecond=1))),
    ],
)
def test_numbers_and_dates(  # noqa: PLR0913 the columns of the table
    field: str,
    bound: object,
    values: tuple[Value, Value, Value],
    operator: str,
    *,
    missing: bool,
    less: bool,
    same: bool,
    more: bool,
) -> None:
    held = [
        _holds({operator: bound}, source, field) for source in ({}, *({field: value} for value in values))
    ]
    assert held == [missing, less, same, more]


@pytest.mark.parametrize("final", [True, False])
def test_false_is_a_value_and_not_a_missing_one(*, final: bool) -> None:
    values: list[dict[str, Value]] = [{}, {"final": final}, {"final": not final}]
    assert [_holds(final, source, "final") for source in values] == [False, True, False]
    assert [_holds({"$ne": final}, source, "final") for source in values] == [True, False, True]
    assert [_holds({"$exists": True}, source, "final") for source in values] == [False, True, True]


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_satisfies_only_what_denies_something(field: str) -> None:
    same, _ = SAME[field]
    conditions = dict[str, object](dict.fromkeys(OPERATORS[FIELDS[field]], same))
    conditions |= {operator: [same] for operator in ("$in", "$nin") if operator in conditions}
    held = {
        operator
        for operator, value in conditions.items()
        if operator != "$exists" and _holds({operator: value}, {}, field)
    }
    assert held == {"$ne", "$nin"} & conditions.keys()
    assert matches(parse_filter({"$not": {field: same}}, FIELDS), {})


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_there_is_found(field: str) -> None:
    value, stored = SAME[field]
    assert _holds(value, {field: stored}, field)
    assert not _holds({"$ne": value}, {field: stored}, field)


def test_a_group_of_all_and_a_group_of_any() -> None:
    conditions = [{"year": 2001}, {"final": True}]
    sources: list[dict[str, Value]] = [{}, {"year": 2001}, {"final": True}, {"year": 2001, "final": True}]
    matching = {
        key: [matches(parse_filter({key: conditions}, FIELDS), source) for source in sources]
        for key in ("$and", "$or")
    }
    assert matching == {"$and": [False, False, False, True], "$or": [False, True, True, True]}


_TEXTS = st.sampled_from(["", "a", "A", "b", "é"])
_SOURCES: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {}, optional={"status": _TEXTS, "tags": st.lists(_TEXTS, min_size=1, max_size=3).map(tuple)}
)


@given(
    source=_SOURCES, texts=st.lists(_TEXTS, min_size=1, max_size=3), field=st.sampled_from(["status", "tags"])
)
def test_negations_are_complements(source: dict[str, Value], texts: list[str], field: str) -> None:
    among = _holds({"$in": texts}, source, field)
    assert _holds({"$nin": texts}, source, field) is not among
    assert _holds({"$ne": texts[0]}, source, field) is not _holds(texts[0], source, field)
    assert _holds({"$exists": False}, source, field) is not _holds({"$exists": True}, source, field)
    inner = {field: {"$in": texts}}
    assert matches(parse_filter({"$not": inner}, FIELDS), source) is not among
    assert matches(parse_filter({"$not": {"$not": inner}}, FIELDS), source) is among

"""C: no filter and no other parameter is more than data, however odd, wrong or large."""

from __future__ import annotations

import base64
import json
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from rag.answers import Mode
    from tests.attacks.conftest import Asker, World
    from tests.server.conftest import Message

    Askers: TypeAlias = dict[str, Asker]

pytestmark = pytest.mark.slow

MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
FIELDS = "date, due, final, path, price, section, status, tags, title, year"
CONDITIONS = 32
AT_NIGHT = settings.default.max_examples >= 100  # type: ignore[union-attr]  # there always is one

STATUSES = {
    "one.md": "final",
    "two.md": "draft",
    "three.md": "' OR 1=1 --",
    "five.md": "100%_sure",
    "six.md": "r\xe9sum\xe9",
    "seven.md": "Final",
}
"""Of the pages of the ledger that everybody reads; page four has no fields."""
PAGES = {*STATUSES, "four.md"}
DATED = {"one.md", "two.md", "three.md"}

STRINGS = {
    "or": "' OR 1=1 --",
    "closed-or": "') OR ('1'='1",
    "semicolon": "1=1);",
    "comment": "1=1) -- ",
    "block-comment": "1=1)/*",
    "backslash": "\\' OR 1=1 --",
    "backslashes": "\\\\",
    "quote": "'",
    "quotes": "''",
    "odd-quotes": "'''",
    "double-quote": '"',
    "backtick": "`",
    "lone-semicolon": ";",
    "escape-string": "E'x'",
    "unicode-string": "U&'\\0027 OR 1=1 --'",
    "dollars": "$$x$$",
    "list-end": "x'], ['final",
    "list": "final', 'draft",
    "right-quote": "\u2019 OR 1=1 --",
    "modifier": "\u02bc OR 1=1 --",
    "full-width": "\uff07 OR 1=1 --",
    "line-ends": "final\r\n",
    "right-to-left": "\u202efinal",
    "likes-percent": "%",
    "likes-underscore": "fina_",
    "likes": "100%_sure",
    "upper-case": "FINAL",
    "title-case": "Final",
    "exact": "final",
    "blank-after": "final ",
    "composed": "r\xe9sum\xe9",
    "decomposed": "re\u0301sume\u0301",
    "without-accents": "resume",
    "empty": "",
    "braces": "{}",
    "format": "%s {0} ${x} {{7*7}}",
    "null": "null",
    "true": "true",
    "longest": "x" * 512,
    "regular-expression": "(a?){50}" * 60,
    "sum": "1+" * 255 + "1",
    "nots": "NOT (" * 100,
}
WORST = ("final", "' OR 1=1 --", "') OR ('1'='1", "1=1) -- ", "final', 'draft", "fina_", "FINAL")
TOO_LONG = {"over": "x" * 513, "nul": "fin\0al", "very long": "x" * 300_000}

POSITIONS: dict[str, Callable[[str], Message]] = {
    "value": lambda text: {"status": text},
    "in": lambda text: {"status": {"$in": [text, text]}},
    "and": lambda text: {"$and": [{"status": text}, {"status": {"$eq": text}}]},
    "or": lambda text: {"$or": [{"status": text}, {"status": {"$in": [text]}}]},
    "not-not": lambda text: {"$not": {"$not": {"status": text}}},
    "not-ne": lambda text: {"$not": {"status": {"$ne": text}}},
}


def search_arguments(filter_: object, **more: object) -> Message:
    """A search for a word of every page of the ledger."""
    return {"query": "pendulum", "collections": ["ledger"], "filter": filter_, "limit": 100, **more}


def pages(asker: Asker, filter_: object, **more: object) -> set[str]:
    """The pages that a search finds."""
    return {path for _, path in asker.places(**search_arguments(filter_, **more))}


def refusal(asker: Asker, filter_: object, **more: object) -> str:
    """The words with which a search is refused."""
    return asker.tool_error("search", search_arguments(filter_, **more))


def meant(text: str) -> set[str]:
    """The pages that have this status."""
    return {path for path, status in STATUSES.items() if status == unicodedata.normalize("NFC", text)}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"C1-{mode}")
@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_c1_a_value_means_itself_at_every_place(
    askers: Askers, position: Callable[[str], Message], mode: Mode
) -> None:
    for text in WORST:
        assert pages(askers["a0-modern"], position(text), mode=mode) == meant(text), text
    assert pages(askers["a1-legacy"], position("final"), mode=mode) == {*meant("final"), "harrowpike.md"}


def test_c1_every_string_means_itself(askers: Askers) -> None:
    for text in STRINGS.values():
        for filter_ in ({"status": text}, {"status": {"$in": [text]}}):
            assert pages(askers["a0-legacy"], filter_, mode="dense") == meant(text), text


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"C1-ne-{mode}")
def test_c1_what_a_value_leaves_out_is_only_what_it_means(askers: Askers, mode: Mode) -> None:
    for text in STRINGS.values():
        for filter_ in ({"status": {"$ne": text}}, {"status": {"$nin": [text]}}, {"$not": {"status": text}}):
            assert pages(askers["a0-legacy"], filter_, mode=mode) == PAGES - meant(text), text
            if mode != "dense":
                break


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_c1_many_values_are_many_conditions(askers: Askers, position: Callable[[str], Message]) -> None:
    texts = list(STRINGS.values())
    for some in (texts[:15], texts[15:30], texts[-15:]):
        filter_ = {"$or": [position(text) for text in some]}
        assert pages(askers["a0-modern"], filter_) == {page for text in some for page in meant(text)}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"C1-all-{mode}")
def test_c1_a_list_of_all_of_them_finds_those_that_are_meant(askers: Askers, mode: Mode) -> None:
    texts = list(STRINGS.values())
    expected = {page for text in texts for page in meant(text)}
    assert pages(askers["a0-modern"], {"status": {"$in": texts}}, mode=mode) == expected
    assert pages(askers["a0-modern"], {"status": {"$nin": texts}}, mode=mode) == PAGES - expected


@pytest.mark.parametrize("text", TOO_LONG.values(), ids=[f"C1-{name}" for name in TOO_LONG])
@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_c1_a_value_that_no_field_can_hold_is_refused(
    askers: Askers, position: Callable[[str], Message], text: str
) -> None:
    words = "status: a value must be a string of at most 512 characters."
    assert refusal(askers["a0-modern"], position(text)) == words


FIELD_NAMES = [
    *(text for text in STRINGS.values() if text != "final"),
    *("tenant", "TENANT", "`tenant`", "tenant) OR (1", "Status", "STATUS", "status ", "\ufeffstatus"),
    *("_rowid", "_distance", "_score", "__proto__", "constructor", "source.x", "status.x", "$.status"),
    *(
        "visibility",
        "allow",
        "deny",
        "id",
        "source_id",
        "text",
        "body",
        "vector",
        "collection",
        "field_status",
    ),
    *("clearance", "codename", "$where", "$regex", "$expr", "$AND", "$nor", "$or;", "x" * 10_000),
]
OPERATORS = ["$where", "$regex", "$expr", "$gt;", "$EQ", "eq", "$like", "$or", "$not", "=", *STRINGS.values()]
NESTINGS: dict[str, Callable[[object], Message]] = {
    "C2-plain": lambda part: {"$and": [part]},
    "C2-beside": lambda part: {"$and": [{"status": "final"}, part]},
    "C2-or": lambda part: {"$or": [{"status": "final"}, part]},
    "C2-not": lambda part: {"$not": part},
    "C2-deep": lambda part: {"$or": [{"$not": {"$and": [part]}}, {"year": 2001}]},
}


@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS)
def test_c2_only_declared_names_are_fields(askers: Askers, nested: Callable[[object], Message]) -> None:
    inner = [{"$eq": "final"}, "final", {"$in": ["final"]}]
    for at, name in enumerate(FIELD_NAMES):
        words = refusal(askers["a0-modern"], nested({name: inner[at % 3]}))
        assert words.startswith(f"There is no field {name[:64]!r} to filter by; there are: {FIELDS}."), name
    assert pages(askers["a0-modern"], nested({"status": "final"}))


@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS)
def test_c2_only_operators_are_operators(askers: Askers, nested: Callable[[object], Message]) -> None:
    for name in OPERATORS:
        words = refusal(askers["a0-modern"], nested({"status": {name: "final"}}))
        allowed = "$eq, $ne, $in, $nin, $exists, $prefix, $suffix, $contains"
        assert (
            words == f"status does not support {name[:64]!r}; it is a string, which supports: {allowed}."
        ), name
    assert pages(askers["a0-modern"], nested({"status": {"$eq": "final"}}))


AROUND = " '\"`;{}[]()"
"""Signs that models put around an id or a name. They say nothing."""
INJECTED = [
    *STRINGS.values(),
    "vault/../ledger",
    "ledger' OR name='vault",
    "* OR tenant:birch",
    "../../etc/passwd",
]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"C3-query-{mode}")
def test_c3_a_query_changes_nothing_about_what_is_searched(askers: Askers, mode: Mode) -> None:
    for text in (text for text in (INJECTED if mode == "sparse" else WORST) if text.strip()):
        places = askers["a0-legacy"].places(f"pendulum {text}", mode=mode, collections=["ledger"])
        assert {path for _, path in places} == PAGES, text


def test_c3_a_source_id_is_only_compared(world: World, askers: Askers) -> None:
    ledger: Message = {"collections": ["ledger"], "mode": "sparse"}
    asker, (page,) = askers["a0-legacy"], [paper for paper in world.papers if paper.path == "one.md"]
    for number, text in enumerate(INJECTED):
        if AT_NIGHT or number % 2 == 0:
            beside = [text, page.id, f"{page.id}{text or '/0'}"]
            assert asker.places(sources=beside, **ledger) == {page.place}
        if AT_NIGHT or number % 2:
            assert {path for _, path in asker.places(exclude_sources=[text], **ledger)} == PAGES
    for text in WORST:
        assert asker.places(sources=[text], **ledger) == set()


def test_c3_a_collections_name_is_only_compared(askers: Askers) -> None:
    readable = "Readable collections: handbook, ledger."
    for text in filter(None, INJECTED):  # an empty one means that none is given
        for names in ([text], [f"ledger{text}"] if text.strip(AROUND) else ["/"]):
            words = askers["a0-modern"].tool_error("search", {"query": "pendulum", "collections": names})
            assert words.endswith(readable), text
            assert len(words) < 100
        for names in (["ledger", text], [text, "ledger"]):
            reply = askers["a0-modern"].tool("search", {"query": "pendulum", "collections": names})
            content = reply["structuredContent"]
            assert content["notes"][0].endswith(readable), text
            assert len(content["notes"][0]) < 500
            assert {hit.get("collection", content.get("collection")) for hit in content["results"]} == {
                "ledger"
            }


def test_c3_an_id_and_a_uri_are_only_compared(world: World, askers: Askers) -> None:
    paper, asker = world.paper("quornlight"), askers["a0-modern"]
    for number, text in enumerate(text for text in INJECTED if text.strip(AROUND) and len(text) < 100):
        names = (
            text,
            f"{paper.id}{text}",
            f"{paper.id}/{text}",
            f"{paper.uri}/{text}",
            f"refdesk://{text}/{paper.id}",
        )
        for id_ in names if AT_NIGHT else {names[number % 5], names[(number + 2) % 5]}:
            assert asker.tool_error("get_source", {"id": id_}) == NOT_FOUND
            assert asker.error("resources/read", {"uri": id_})["message"] == NOT_FOUND
    assert asker.tool("get_source", {"id": paper.id})["structuredContent"]["id"] == paper.id


@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_c3_what_stands_beside_the_arguments_is_not_looked_at(askers: Askers, name: str) -> None:
    usual = askers[name].call("search", query="pendulum", limit=3)
    for text in (*WORST, "../../etc/passwd"):
        more = {"name": "search", "arguments": {"query": "pendulum", "limit": 3}, "filter": text, text: text}
        assert askers[name].raw("tools/call", more) == usual


def test_c3_a_completion_is_only_compared(askers: Askers) -> None:
    for text in (text for text in INJECTED if text):
        for ref in ("refdesk://{collection}/{source_id}", text):
            argument = {"name": "collection", "value": text}
            asked_ = {"ref": {"type": "ref/resource", "uri": ref}, "argument": argument}
            completion = askers["a0-legacy"].result("completion/complete", asked_)["completion"]
            assert completion["values"] == []


def test_c3_a_cursor_is_only_compared(world: World, askers: Askers) -> None:
    mine = {paper.uri for paper in world.readable("a0")}
    for text in (text for text in INJECTED if "/" not in text and text.isascii()):
        for place in (f"handbook/{text}", f"{text}/a"):
            cursor = base64.urlsafe_b64encode(place.encode()).decode()
            page = askers["a0-legacy"].result("resources/list", {"cursor": cursor})
            assert {resource["uri"] for resource in page["resources"]} <= mine


MEANINGS: dict[str, tuple[Message, set[str]]] = {
    "C5-eq": ({"year": 2001}, {"one.md", "three.md"}),
    "C5-ne": ({"year": {"$ne": 2001}}, PAGES - {"one.md", "three.md"}),
    "C5-gt": ({"price": {"$gt": 0}}, {"one.md"}),
    "C5-gte": ({"price": {"$gte": 0}}, {"one.md", "two.md"}),
    "C5-lt": ({"price": {"$lt": 0}}, {"six.md"}),
    "C5-lte": ({"price": {"$lte": -2.5}}, {"six.md"}),
    "C5-in": ({"year": {"$in": [1999, 2001]}}, DATED),
    "C5-nin": ({"year": {"$nin": [1999, 2001]}}, PAGES - DATED),
    "C5-exists": ({"year": {"$exists": True}}, {"one.md", "two.md", "three.md", "five.md"}),
    "C5-missing": ({"year": {"$exists": False}}, {"four.md", "six.md", "seven.md"}),
    "C5-not-gt": ({"$not": {"price": {"$gt": 0}}}, PAGES - {"one.md"}),
    "C5-not-or": ({"$not": {"$or": [{"year": 2001}, {"final": False}]}}, PAGES - DATED),
    "C5-list": ({"tags": "red"}, {"one.md", "two.md"}),
    "C5-list-in": ({"tags": {"$in": ["blue", "red"]}}, {"one.md", "two.md", "five.md"}),
    "C5-list-nin": ({"tags": {"$nin": ["red"]}}, PAGES - {"one.md", "two.md"}),
    "C5-list-empty-string": ({"tags": ""}, set()),
    "C5-empty-string": ({"status": ""}, set()),
    "C5-boolean": ({"final": {"$ne": True}}, PAGES - {"one.md"}),
    "C5-date": ({"due": {"$gte": "2020-01-01T13:00:00+01:00"}}, {"one.md", "two.md"}),
    "C5-date-other-zone": ({"due": "2020-01-01T07:00:00-05:00"}, {"two.md"}),
    "C5-exact-number": ({"year": 2**53}, {"five.md"}),
    "C5-next-number": ({"year": 2**53 - 1}, set()),
    "C5-no-sign": ({"price": -0.0}, {"two.md"}),
    "C5-both": ({"year": 2001, "status": "final"}, {"one.md"}),
    "C5-contradiction": ({"$and": [{"year": 2001}, {"$not": {"year": 2001}}]}, set()),
    "C5-tautology": ({"$or": [{"year": 2001}, {"$not": {"year": 2001}}]}, PAGES),
}  # fmt: skip


@pytest.mark.parametrize(("filter_", "expected"), MEANINGS.values(), ids=MEANINGS)
def test_c5_a_field_that_is_missing_satisfies_only_what_asks_for_its_absence(
    askers: Askers, filter_: Message, expected: set[str]
) -> None:
    for name, mode in (("a0-legacy", "dense"), ("a0-modern", "hybrid"), ("a2-modern", "sparse")):
        assert pages(askers[name], filter_, mode=mode) == expected


WRONG_TYPES: dict[str, tuple[str, str]] = {
    "C6-number-on-string": ("status", "5"),
    "C6-boolean-on-string": ("status", "true"),
    "C6-null-on-string": ("status", "null"),
    "C6-list-on-string": ("status", '["final"]'),
    "C6-string-on-integer": ("year", '"2001"'),
    "C6-float-on-integer": ("year", "2001.5"),
    "C6-exponent-on-integer": ("year", "2.0015e3"),
    "C6-boolean-on-integer": ("year", "true"),
    "C6-list-on-integer": ("year", "[2001]"),
    "C6-nan-on-integer": ("year", "NaN"),
    "C6-over-on-integer": ("year", str(2**53 + 1)),
    "C6-inexact-on-integer": ("year", "9007199254740993.0"),
    "C6-googol-on-integer": ("year", "1" + "0" * 400),
    "C6-string-on-number": ("price", '"1.5"'),
    "C6-boolean-on-number": ("price", "false"),
    "C6-nan": ("price", "NaN"),
    "C6-infinity": ("price", "Infinity"),
    "C6-minus-infinity": ("price", "-Infinity"),
    "C6-too-large": ("price", "1e400"),
    "C6-googol": ("price", "1" + "0" * 400),
    "C6-integer-on-boolean": ("final", "1"),
    "C6-string-on-boolean": ("final", '"true"'),
    "C6-number-on-list": ("tags", "5"),
    "C6-list-on-list": ("tags", '["red"]'),
    "C6-number-on-date": ("due", "1714521600"),
    "C6-text-on-date": ("due", '"soon"'),
    "C6-week-on-date": ("due", '"2024-W18-3"'),
    "C6-no-such-date": ("due", '"2024-02-30"'),
}  # fmt: skip
ORDERED = {"year", "price", "due"}


@pytest.mark.parametrize(("field", "value"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_c6_a_value_of_another_type_is_refused_before_the_engine_sees_it(
    askers: Askers, field: str, value: str
) -> None:
    conditions = [value, f'{{"$eq":{value}}}', f'{{"$ne":{value}}}']
    conditions += [f'{{"$in":[{value}]}}', f'{{"$nin":[{value}]}}'] if field != "final" else []
    conditions += [f'{{"$gt":{value}}}', f'{{"$lte":{value}}}'] if field in ORDERED else []
    for condition in conditions:
        answer = nearly(askers["a0-legacy"], filter=f'{{"{field}":{condition}}}')
        assert answer["isError"] is True
        assert answer["content"][0]["text"].startswith(f"{field}: a value must be ")


def nearly(asker: Asker, **arguments: str) -> Message:
    """The answer to a search with arguments in JSON, or in what is nearly JSON, beside the usual ones."""
    members = ",".join(f'"{name}":{value}' for name, value in arguments.items())
    call = f'{{"name":"search","arguments":{{"query":"pendulum","collections":["ledger"],{members}}}}}'
    asker.write(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{call}}}')
    return dict(asker.read()["result"])


@pytest.mark.parametrize("twice", ['{"year":1,"year":2001}', '{"year":1},"filter":{"year":2001}'])
def test_c6_of_a_name_that_stands_twice_the_last_counts(askers: Askers, twice: str) -> None:
    hits = nearly(askers["a0-legacy"], filter=twice)["structuredContent"]["results"]
    assert {hit["metadata"]["path"] for hit in hits} == {"one.md", "three.md"}


def nested(depth: int, key: str = "$not") -> Message:
    filter_: Message = {"status": "final"}
    for _ in range(depth - 1):
        filter_ = {key: filter_ if key == "$not" else [filter_]}
    return filter_


LEAVES = [{"year": at} for at in range(CONDITIONS)]
AT_LIMIT: dict[str, tuple[Message, set[str]]] = {
    "C7-depth-5": (nested(5), {"one.md"}),
    "C7-depth-5-and": (nested(5, "$and"), {"one.md"}),
    "C7-32-conditions": ({"$or": [*LEAVES[1:], {"year": 2001}]}, {"one.md", "three.md"}),
    "C7-32-conditions-not": ({"$not": {"$or": LEAVES}}, PAGES),
    "C7-32-conditions-nothing": ({"$and": LEAVES}, set()),
    "C7-32-of-a-field": ({"$and": [{"year": {"$ne": n, "$gt": -n}} for n in range(16)]}, {*DATED, "five.md"}),
    "C7-in-100": ({"year": {"$in": [*range(99), 2001]}}, {"one.md", "three.md"}),
    "C7-32-in-100": ({"$or": [{"year": {"$in": [*range(99), 2001]}}] * CONDITIONS}, {"one.md", "three.md"}),
    "C7-512-characters": ({"status": {"$nin": ["\U0001f552" * 512] * 100}}, PAGES),
    "C7-32-nots": ({"$and": [{"$not": {"$not": {"$not": {"year": at}}}} for at in range(CONDITIONS)]}, PAGES),
    "C8-nots-in-values": ({"status": {"$nin": ["NOT (" * 102] * 100}}, PAGES),
    "C8-sums-in-values": ({"status": {"$nin": ["1+" * 255] * 100}}, PAGES),
    "C8-expressions-in-values": ({"status": {"$nin": ["(a?){50}" * 64] * 100}}, PAGES),
}  # fmt: skip


@pytest.mark.parametrize(("filter_", "expected"), AT_LIMIT.values(), ids=AT_LIMIT)
def test_c7_c8_what_is_within_the_limits_is_answered(
    askers: Askers, filter_: Message, expected: set[str]
) -> None:
    for mode in MODES:
        assert pages(askers["a0-modern"], filter_, mode=mode) == expected


DEEP = "filter is nested deeper than 5 levels."
MANY = "filter has more than 32 conditions."
OVER: dict[str, tuple[object, str]] = {
    "C7-depth-6": (nested(6), DEEP),
    "C7-depth-40": (nested(40), DEEP),
    "C7-depth-150": (nested(150), DEEP),
    "C7-depth-75-and": (nested(75, "$and"), DEEP),
    "C7-64-nots-beside": ({"status": "final", **nested(64)}, DEEP),
    "C7-33-in-a-group": ({"$or": [*LEAVES, {"year": 2001}]}, "$or takes at most 32 filters."),
    "C7-33-conditions": ({"$or": LEAVES, "year": 2001}, MANY),
    "C7-33-of-groups": ({"$and": [{"$or": LEAVES[:11]}] * 3}, MANY),
    "C7-330-conditions": ({"$and": [{"$or": LEAVES[:11]}] * 30}, MANY),
    "C7-32-of-32": ({"$and": [{"$or": LEAVES}] * 32}, MANY),
    "C7-in-0": ({"year": {"$in": []}}, "year: $in takes a list of 1 to 100 values."),
    "C7-in-101": ({"year": {"$in": [*range(101)]}}, "year: $in takes a list of 1 to 100 values."),
    "C7-in-100000": ({"year": {"$nin": [0] * 100_000}}, "year: $nin takes a list of 1 to 100 values."),
    "C7-in-mixed": ({"year": {"$in": [2001, "2001"]}}, "year: a value must be a whole number within ±2^53."),
    "C8-or-1000": ({"$or": [{"year": 1}] * 1_000}, "$or takes at most 32 filters."),
    "C8-or-50000": ({"$or": [{"year": 1}] * 50_000}, "$or takes at most 32 filters."),
    "C8-and-50000": ({"$and": [{}] * 50_000}, "$and takes at most 32 filters."),
    "C8-nots-as-text": ("NOT (" * 40 + "1=1" + ")" * 40, "filter must be an object."),
    "C8-sum-as-text": ("1" + "+1" * 900 + "=901", "filter must be an object."),
    "C8-expression": ({"status": {"$regex": "(a?){50}" * 1_000}}, "status does not support '$regex'; "),
    "C8-function": ({"regexp_like(status, '(a?){50}')": True}, "There is no field "),
    "C8-arithmetic": ({"year": {"$add": [1, 1]}}, "year does not support '$add'; "),
    "C8-50000-fields": ({f"field{at}": 1 for at in range(50_000)}, "There is no field 'field0' "),
    "C8-50000-operators": ({"year": {f"$gt{at}": 1 for at in range(50_000)}}, "year does not support "),
}  # fmt: skip


@pytest.mark.parametrize(("filter_", "words"), OVER.values(), ids=OVER)
@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_c7_c8_what_is_over_a_limit_is_refused_and_the_next_question_answered(
    askers: Askers, name: str, filter_: object, words: str
) -> None:
    assert refusal(askers[name], filter_).startswith(words)
    assert pages(askers[name], {"status": "final"}) == {"one.md"}


@pytest.mark.parametrize(
    "opened", ['{"$not":', '{"$and":[', "["], ids=["C7-nots-80000", "C7-ands-80000", "C7-lists-80000"]
)
def test_c7_what_is_too_deep_to_be_read_is_answered_as_such(askers: Askers, opened: str) -> None:
    asker = askers["a0-legacy"]
    closed = "".join({"{": "}", "[": "]"}.get(bracket, "") for bracket in reversed(opened))
    deep = opened * 80_000 + "1" + closed * 80_000  # still a line that is read
    asker.write(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"x":{deep}}}}}')
    assert asker.read()["error"]["code"] == -32700
    assert pages(asker, {"status": "final"}) == {"one.md"}


PROVOCATIONS: dict[str, Message] = {
    "C9-cast": {"filter": {"status": {"$gt": 5}}},
    "C9-now": {"filter": {"status": {"$lt": "now()"}}},
    "C9-array": {"filter": {"tags": {"$gt": "red"}}},
    "C9-overflow": {"filter": {"year": {"$gt": 2**63}}},
    "C9-division": {"filter": {"year": {"$div": 0}}},
    "C9-unknown-column": {"filter": {"no_such_column": 1}},
    "C9-boolean-order": {"filter": {"final": {"$gte": False}}},
    "C9-first-moment": {"filter": {"due": {"$lt": "0001-01-01T00:00:00+14:00"}}},
    "C9-vector": {"filter": {"vector": [0.1, 0.2]}},
    "C9-wrong-dimension": {"vector": [0.1, 0.2]},
    "C9-columns": {"columns": ["vector"]},
    "C9-where": {"where": "1=1"},
    "C9-limit": {"limit": 2**64},
    "C9-offset": {"offset": -1},
    "C9-mode": {"mode": "sql"},
}


@pytest.mark.parametrize("arguments", PROVOCATIONS.values(), ids=PROVOCATIONS)
@pytest.mark.parametrize("name", ["a0-legacy", "a0-modern"])
def test_c9_the_engine_is_provoked_to_no_error(askers: Askers, name: str, arguments: Message) -> None:
    words = askers[name].tool_error("search", {"query": "pendulum", "collections": ["ledger"], **arguments})
    assert len(words) < 300
    assert "failed" not in words


LIMITS = ["NaN", "Infinity", "-Infinity", "1e400", "-0.5", "1.5e0", "[8]", "false"]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"C10-{limit}")
def test_c10_a_limit_that_is_none_is_refused(askers: Askers, limit: str) -> None:
    (block,) = nearly(askers["a0-legacy"], limit=limit)["content"]
    assert block["text"] == "limit must be an integer from 0 to 100."


def test_c10_the_highest_limit_is_one(askers: Askers) -> None:
    assert askers["a1-legacy"].tool_error("search", {"query": "x", "limit": 101})
    assert 0 < len(askers["a1-legacy"].hits(limit=100)) <= 100
    assert len(askers["a1-legacy"].hits(limit=1)) == 1


QUERIES = {
    "C11-longest": "pendulum " + "x" * 4_087,
    "C11-many-words": "pendulum " + "a b c d " * 500,
    "C11-stop-words": "the of and to in",
    "C11-stop-words-and-one": "the of and to in pendulum",
    "C11-operators": '"( * ~ AND',
    "C11-fields": "body:pendulum OR tenant:birch OR visibility:restricted",
    "C11-wildcards": "pend* ?endulum pendulum~2 /pen.*/",
    "C11-not": "NOT pendulum -pendulum +xyzzy",
    "C11-boost": "pendulum^99 [a TO z] {a TO z}",
    "C11-nul": "pendulum\0 OR\0 1=1",
    "C11-right-to-left": "\u202ependulum \u05e9\u05dc\u05d5\u05dd",
    "C11-emoji": "\U0001f552\u200d\U0001f9d1 pendulum",
    "C11-marks": "pendulum" + "\u0301" * 4_000,
    "C11-line-ends": "pendulum\r\n\t\x1b[2J",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_c11_an_odd_query_is_answered_from_what_is_readable(world: World, askers: Askers, query: str) -> None:
    for name in ("a0-legacy", "b1-modern"):
        readable = {paper.place for paper in world.readable(name)}
        for mode in MODES:
            places = askers[name].places(query, mode=mode)
            assert places <= readable
            assert places == readable or mode == "sparse"


@pytest.mark.parametrize(
    "query",
    ["", " \r\n\t", "x" * 4_097, "word " * 20_000, "x" * 1_000_000],
    ids=lambda query: f"C11-{len(query)}",
)
def test_c11_a_query_that_is_empty_or_too_long_is_refused(askers: Askers, query: str) -> None:
    for name in ("a0-legacy", "a0-modern"):
        assert "query" in askers[name].tool_error("search", {"query": query})
        assert askers[name].hits(limit=1)


EMPTY: dict[str, object] = {
    "C12-in": {"status": {"$in": []}},
    "C12-nin": {"status": {"$nin": []}},
    "C12-and": {"$and": []},
    "C12-or": {"$or": []},
    "C12-not": {"$not": {}},
    "C12-and-object": {"$and": [{}]},
    "C12-or-object": {"$or": [{"status": "final"}, {}]},
    "C12-field": {"status": {}},
    "C12-null-field": {"status": None},
    "C12-null-and": {"$and": None},
    "C12-false": False,
    "C12-zero": 0,
}


@pytest.mark.parametrize("filter_", EMPTY.values(), ids=EMPTY)
def test_c12_an_empty_filter_is_refused_and_never_everything(askers: Askers, filter_: object) -> None:
    for name in ("a0-modern", "a1-legacy"):
        assert refusal(askers[name], filter_)
        assert refusal(askers[name], filter_, mode="sparse")


NEUTRAL = [
    *(("filter", value) for value in ("null", "{}", "[]", '""', '"{}"', '"null"')),
    *((name, value) for name in ("sources", "collections") for value in ("null", "[]", '""', '"[]"')),
]


@pytest.mark.parametrize(("argument", "value"), NEUTRAL, ids=lambda part: f"C12-{part}")
def test_c12_what_says_nothing_is_no_condition_and_widens_nothing(
    world: World, askers: Askers, argument: str, value: str
) -> None:
    arguments: dict[str, Any] = {argument: json.loads(value)}
    for name in ("a0-modern", "a1-legacy"):
        readable = {paper.place for paper in world.readable(name)}
        assert askers[name].places(**arguments) == askers[name].places() == readable


def test_c12_a_filter_that_all_satisfy_widens_nothing(world: World, askers: Askers) -> None:
    for name in ("a0-modern", "a1-legacy"):
        readable = {paper.place for paper in world.readable(name)}
        assert askers[name].places(filter={"status": {"$ne": "zzz"}}) == readable

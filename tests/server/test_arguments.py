"""What hosts and models get wrong: each mistake is told with what would be right, and never quoted."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from rag.search.agents import A_LIST
from rag.search.browse import BY_SECTION
from rag.search.source_window import TOO_FEW
from rag.search.tool_arguments import SearchArguments, decode_json
from rag.uris import NOT_FOUND
from server.stdio import with_whole_characters

if TYPE_CHECKING:
    from tests.server.conftest import Wire

pytestmark = pytest.mark.slow

MARK = "zebrafish"
QUERY = "query must be a string of 1 to 4096 characters."
COLLECTIONS = "collections must be a list of 1 to 50 strings of at most 4096 characters."
SOURCES = "sources must be a list of 1 to 100 strings of at most 4096 characters."
FILTER = "filter must be an object."
LIMIT = "limit must be an integer from 0 to 100."
BUDGET = "max_chars must be an integer from 2000 to 100000."
LINES = "lines must be a line or a range of lines, counted from 1, such as 120-180."
NOTHING = "Give a query (a question, or some words), or related (the id of a passage to start from)."
ID = "id must be a string of 1 to 4096 characters."
AFTER = "after must be the next_after of an earlier reply."


@pytest.mark.parametrize("pair", ["status=final", 'status = "final"', "status='final'"])
def test_a_pair_for_a_filter_may_have_quotes(pair: str) -> None:
    assert SearchArguments(filter=pair).filter == {"status": "final"}  # type: ignore[arg-type]
    assert SearchArguments(filter='title="final').filter == {"title": '"final'}  # type: ignore[arg-type]


@pytest.mark.usefixtures("in_linear_time")
def test_a_pair_for_a_filter_is_read_in_linear_time() -> None:
    spaces = " " * 200_000
    arguments = SearchArguments(filter=f" status = final{spaces}draft{spaces}")  # type: ignore[arg-type]
    assert arguments.filter == {"status": f"final{spaces}draft"}


@pytest.fixture
def hit(wire: Wire) -> dict[str, Any]:
    first = wire.tool("search", {"query": "pendulum", "limit": 1})["structuredContent"]["results"][0]
    return dict(first)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, NOTHING),
        ({"limit": 3, "related": ""}, NOTHING),
        ({"query": 5}, QUERY),
        ({"query": None}, NOTHING),
        ({"query": [MARK, MARK]}, QUERY),
        ({"query": ""}, NOTHING),
        ({"query": " \n\t"}, NOTHING),
        ({"query": MARK * 11_112}, QUERY),
        ({"query": MARK, "limit": -1}, LIMIT),
        ({"query": MARK, "limit": 101}, LIMIT),
        ({"query": MARK, "limit": 10**9}, LIMIT),
        ({"query": MARK, "limit": 10**300}, LIMIT),
        ({"query": MARK, "limit": "five"}, LIMIT),
        ({"query": MARK, "limit": "5.5"}, LIMIT),
        ({"query": MARK, "limit": "101"}, LIMIT),
        ({"query": MARK, "limit": "[5]"}, LIMIT),
        ({"query": MARK, "limit": "Infinity"}, LIMIT),
        ({"query": MARK, "limit": "9" * 5_000}, LIMIT),
        ({"query": MARK, "limit": 5.5}, LIMIT),
        ({"query": MARK, "limit": True}, LIMIT),
        ({"query": MARK, "mode": "fuzzy"}, "mode must be one of dense, sparse, hybrid, exact."),
        ({"query": MARK, "detail": "page"}, "detail must be one of snippet, passage, section."),
        ({"query": MARK, "collections": {"a": 1}}, COLLECTIONS),
        ({"query": MARK, "collections": [["a"]]}, COLLECTIONS),
        ({"query": MARK, "sources": True}, SOURCES),
        ({"query": MARK, "sources": '{"id": "a"}'}, SOURCES),
        ({"query": MARK, "filter": "path is hr"}, FILTER),
        ({"query": MARK, "filter": "path=hr and id=5"}, FILTER),
        ({"query": MARK, "filter": "path == hr"}, FILTER),
        ({"query": MARK, "filter": '["path"]'}, FILTER),
        ({"query": MARK, "sources": [MARK] * 101}, SOURCES),
        (
            {"query": MARK, "exclude_sources": [None]},
            "exclude_sources must be a list of at most 100 strings of at most 4096 characters.",
        ),
        ({"query": MARK, "max_chars": 999}, BUDGET),
        ({"query": MARK, "max_chars": 100_001}, BUDGET),
        ({"query": MARK, "max_chars": "many"}, BUDGET),
        (
            {"query": MARK, "top_k": MARK},
            (
                "Unknown argument 'top_k'. Valid arguments: query, limit, mode, match, case, collections, "
                "exclude_collections, sources, exclude_sources, filter, detail, related, context, max_chars."
            ),
        ),
        ({"query": MARK, "match": "glob"}, "match must be one of text, words, regex."),
        ({"query": MARK, "case": "yes"}, "case must be true or false."),
        ({"query": MARK, "case": 1}, "case must be true or false."),
        (
            {"query": MARK, "exclude_source": MARK},
            (
                "Unknown argument 'exclude_source'. Did you mean exclude_sources? Valid arguments: query, "
                "limit, mode, match, case, collections, exclude_collections, sources, exclude_sources, "
                "filter, detail, related, context, max_chars."
            ),
        ),
        ({"query": 5, "limit": -1}, f"{QUERY} {LIMIT}"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_argument_of_search_is_told_what_is_allowed_of_what_is_offered(
    wire: Wire, arguments: dict[str, Any], words: str
) -> None:
    assert wire.tool_error("search", arguments) == words
    assert MARK not in words


def test_whole_numbers_may_have_a_point(wire: Wire) -> None:
    arguments = {"query": "pendulum", "limit": 2.0, "max_chars": 20_000.0}
    (first, _) = wire.tool("search", arguments)["structuredContent"]["results"]
    near = wire.tool("get_source", {"id": first["id"], "around": 0.0})["structuredContent"]
    assert near == wire.tool("get_source", {"id": first["id"], "around": 0})["structuredContent"]
    (by_number, same) = (wire.tool("get_source", {"id": first["id"], "lines": line}) for line in (3, "3"))
    assert by_number == same
    source = {"id": first["id"].partition("/")[0], "start": 10.0}
    assert wire.tool("get_source", source)["structuredContent"]["start"] == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"id": 5}, ID),
        ({"id": MARK * 456}, ID),
        ({"id": MARK}, NOT_FOUND),
        ({"id": MARK, "start": -1}, "start must be an integer of at least 0."),
        ({"id": MARK, "start": 0.5}, "start must be an integer of at least 0."),
        ({"id": MARK, "around": 51}, "around must be an integer from 0 to 50."),
        ({"id": MARK, "around": -1}, "around must be an integer from 0 to 50."),
        ({"id": MARK, "max_chars": 0}, BUDGET),
        ({"id": MARK, "section": 5}, "section must be a string of 1 to 500 characters."),
        ({"id": MARK, "section": MARK, "start": 1}, NOT_FOUND),
        ({"id": MARK, "lines": 5.5}, "lines must be a string of 1 to 30 characters."),
        ({"id": MARK, "lines": MARK}, LINES),
        ({"id": MARK, "lines": "-5"}, LINES),
        ({"id": MARK, "lines": "1-2-3"}, LINES),
        ({"id": MARK, "lines": "9999999999"}, LINES),
        ({"id": MARK, "outline": "yes"}, "outline must be true or false."),
        ({"id": MARK, "picture": "yes"}, "picture must be true or false."),
        ({"id": MARK, "picture": True}, NOT_FOUND),
        ({"after": 5}, "after must be a string of 1 to 4096 characters."),
        ({"after": MARK}, AFTER),
        ({"id": "documents", "after": MARK}, AFTER),
        ({"id": MARK, "after": f"{MARK}/"}, NOT_FOUND),
        ({"outline": True}, A_LIST),
        ({"id": "documents", "start": 1}, A_LIST),
        ({"sort": "title", "lines": "1-2"}, A_LIST),
        ({"sort": "size"}, "sort must be one of path, title, date."),
        ({"sort": "date", "after": MARK}, AFTER),
        ({"filter": {"section": MARK}}, BY_SECTION),
        ({"id": MARK, "sort": "path"}, NOT_FOUND),
        (
            {"id": MARK, "end": 5},
            (
                "Unknown argument 'end'. Valid arguments: id, start, around, section, lines, outline, "
                "filter, sort, after, picture, max_chars."
            ),
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_argument_of_get_source_is_told_what_is_allowed(
    wire: Wire, arguments: dict[str, Any], words: str
) -> None:
    assert wire.tool_error("get_source", arguments) == words


NATIVE = {
    "query": "pendulum clock",
    "limit": 2,
    "mode": "exact",
    "match": "words",
    "case": False,
    "collections": ["documents"],
    "filter": {"path": {"$contains": "e"}},
    "max_chars": 20_000,
}
ENCODED: dict[str, list[Any]] = {
    "limit": ["2", " 2 ", "2.0", 2.0, '"2"'],
    "mode": ["Exact", " exact "],
    "match": ["WORDS"],
    "case": ["false", "False", "null", ""],
    "query": [["pendulum clock"]],
    "collections": [
        *('["documents"]', "documents", '"documents"', json.dumps('["documents"]')),
        *("['documents']", "Documents/", ["documents, documents"], "refdesk://documents"),
    ],
    "filter": [
        '{"path": {"$contains": "e"}}',
        json.dumps('{"path": {"$contains": "e"}}'),
        "{'path': {'$contains': 'e'}}",
    ],
    "max_chars": ["20000"],
}
"""What hosts send for each: JSON in a string, once or twice, and a string where a list is wanted."""


@pytest.mark.parametrize("text", ["\ud800", "[\udfff", '"\ud800"', "[" * 5_000, "9" * 5_000])
def test_a_text_that_no_parser_takes_is_a_text(text: str) -> None:
    assert decode_json(text) == text


def test_an_apostrophe_in_what_python_writes_is_no_quotation_mark() -> None:
    assert decode_json(r"['O\'Brien', 'it\'s']") == r"['O\'Brien', 'it\'s']"
    assert decode_json("""["O'Brien"]""") == ["O'Brien"]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, all_ in ENCODED.items() for value in all_]
)
def test_an_argument_that_is_encoded_once_more_means_the_same(wire: Wire, name: str, value: object) -> None:
    plain = wire.tool("search", NATIVE)["structuredContent"]
    assert plain["results"]
    assert wire.tool("search", NATIVE | {name: value})["structuredContent"] == plain


def test_all_arguments_may_come_as_one_json_text(wire: Wire) -> None:
    plain = wire.result("tools/call", {"name": "search", "arguments": NATIVE})
    text = json.dumps(NATIVE)
    for encoded in (text, json.dumps(text)):
        assert wire.result("tools/call", {"name": "search", "arguments": encoded}) == plain
    everything = wire.result("tools/call", {"name": "get_source"})
    for nothing in ("", "{}", "null"):
        assert wire.result("tools/call", {"name": "get_source", "arguments": nothing}) == everything


def test_values_that_say_nothing_are_as_good_as_left_out(wire: Wire) -> None:
    fillers: list[Any] = [None, "", " ", [], {}, "[]", "{}"]
    plain = wire.tool("search", {"query": "pendulum"})["structuredContent"]
    optional = ["limit", "mode", "case", "collections", "sources", "exclude_sources", "filter", "max_chars"]
    for filler in fillers:
        named = dict.fromkeys([*optional, "related"], filler)
        if isinstance(filler, str) and filler not in {"", " "}:
            del named["related"]  # which may be any text
            del named["mode"]
        assert wire.tool("search", {"query": "pendulum", **named})["structuredContent"] == plain, filler
    usual = {"match": "text", "case": False, "context": False, "collections": [""], "sources": ["", " "]}
    assert wire.tool("search", {"query": "pendulum", **usual})["structuredContent"] == plain
    for filler in (None, "", " ", [], {}):
        named = dict.fromkeys(
            ("id", "start", "around", "section", "lines", "outline", "after", "picture"), filler
        )
        assert wire.tool("get_source", named) == wire.tool("get_source", {})


def test_what_is_related_to_a_result_is_found_without_a_query(wire: Wire, hit: dict[str, Any]) -> None:
    related = wire.tool("search", {"related": hit["id"]})["structuredContent"]["results"]
    assert related
    assert hit["id"].partition("/")[0] not in {result["id"].partition("/")[0] for result in related}
    for filler in (None, "", " "):
        reply = wire.tool("search", {"query": filler, "related": hit["id"]})
        assert reply["structuredContent"]["results"] == related
    (search, _) = wire.result("tools/list")["tools"]
    assert "required" not in search["inputSchema"]


def test_several_ids_in_one_text_are_several_ids(wire: Wire, hit: dict[str, Any]) -> None:
    source_id = hit["id"].partition("/")[0]
    listed = wire.tool("get_source", {"sort": "title"})["structuredContent"]["entries"]
    other = next(entry["id"] for entry in listed if entry["id"] != source_id)
    found = [
        wire.tool("search", {"query": "clock", "limit": 50, "sources": sources})["structuredContent"]
        for sources in ([source_id, other], f"{source_id}, {other}", f"[{source_id}]\n[{other}]")
    ]
    assert {result["id"].partition("/")[0] for result in found[0]["results"]} == {source_id, other}
    assert found[0] == found[1] == found[2]


def test_an_exclusion_of_nothing_but_signs_is_refused(wire: Wire) -> None:
    assert "collection" in wire.tool_error("search", {"query": "clock", "exclude_collections": ["/"]})


def test_a_query_that_looks_like_json_stays_a_query(wire: Wire) -> None:
    for query in ('["pendulum"]', '{"query": "pendulum"}', '"pendulum"', "null", "12"):
        reply = wire.tool("search", {"query": query, "mode": "exact"})["structuredContent"]
        texts = [hit["text"] for hit in reply["results"]]
        assert all(query in text for text in texts), query


def test_a_number_where_names_are_wanted_is_a_name(wire: Wire) -> None:
    for collections in (7, [7], "7", "[7]"):
        words = wire.tool_error("search", {"query": "pendulum", "collections": collections})
        assert "collection" in words
        assert words == wire.tool_error("search", {"query": "pendulum", "collections": ["7"]})


def test_where_to_begin_is_told_the_end_of_that_source(wire: Wire, hit: dict[str, Any]) -> None:
    source = wire.tool("get_source", {"id": hit["id"].partition("/")[0]})["structuredContent"]
    for start in (source["length"], 10**9, 10**300):
        words = wire.tool_error("get_source", {"id": hit["id"].partition("/")[0], "start": start})
        assert words == f"start must be from 0 to {source['length'] - 1} in this source."
    last = wire.tool("get_source", {"id": hit["id"].partition("/")[0], "start": source["length"] - 1})
    assert len(last["structuredContent"]["text"]) == 1


def test_around_without_a_passage_is_told_what_it_goes_with(wire: Wire, hit: dict[str, Any]) -> None:
    words = "around needs the id of a chunk (source_id/seq) and can't be combined with start."
    assert wire.tool_error("get_source", {"id": hit["id"].partition("/")[0], "around": 1}) == words
    assert wire.tool_error("get_source", {"id": hit["id"], "around": 1, "start": 5}) == words


def test_a_zero_for_start_or_around_contradicts_no_other_argument(wire: Wire, hit: dict[str, Any]) -> None:
    zeros, source_id = {"start": 0, "around": 0}, hit["id"].partition("/")[0]
    for id_, part in (
        (source_id, {}),
        (hit["id"], {"lines": "2-3"}),
        (hit["id"], {"outline": True}),
        ("documents", {}),
    ):
        assert wire.tool("get_source", {"id": id_, **part, **zeros}) == wire.tool(
            "get_source", {"id": id_, **part}
        )
    alone = wire.tool("get_source", {"id": hit["id"], "around": 0})
    assert wire.tool("get_source", {"id": hit["id"], **zeros}) == alone


def test_a_part_that_a_document_lacks_is_refused_with_those_that_it_has(
    wire: Wire, hit: dict[str, Any]
) -> None:
    id_ = hit["id"]
    count = wire.tool("get_source", {"id": id_})["structuredContent"]["line_count"]
    for lines in (f"{count + 1}", "999999999-999999999"):
        words = f"lines must be from 1 to {count} in this source."
        assert wire.tool_error("get_source", {"id": id_, "lines": lines}) == words
    for lines in ("0", "0-5", "5-4"):
        assert wire.tool_error("get_source", {"id": id_, "lines": lines}) == LINES
    words = wire.tool_error("get_source", {"id": id_, "section": MARK})
    assert words.startswith("No heading matches section.")
    assert MARK not in words
    words = wire.tool_error("get_source", {"id": id_, "section": MARK, "outline": True})
    assert words == "section and outline can't be combined; give one of them."


def wrong_names(hit: dict[str, Any]) -> list[str]:
    """Names of nothing, most of them near the name of something."""
    id_, uri, source_id = hit["id"], f"refdesk://documents/{hit['id']}", hit["id"].partition("/")[0]
    return [
        MARK,
        "a" * 16,
        "a" * 32 + "/0",
        f"{source_id}/99999999999999999999",
        f"{source_id}/-1",
        f"{source_id}/00",
        f"{source_id}/²",
        f"{source_id}/x",
        f"{id_}/0",
        f"{id_}\0",
        f"{id_}' OR '1'='1",
        id_.replace("/", "%2F"),
        uri.replace("refdesk:", "file:"),
        uri.replace("documents", "other"),
        uri.replace("documents", ".."),
        uri.replace("documents", ""),
        uri.replace("documents/", "documents/../documents/"),
        f"{uri}?x=1",
        "../../etc/passwd",
        "refdesk://documents/../../etc/passwd",
        "file:///etc/passwd",
        "refdesk://documents/..",
        "refdesk://documents//..",
        "\N{SNOWMAN}",
    ]


FOLDERS = ["refdesk://", "refdesk://documents", "refdesk://documents/"]
"""What only the tool opens."""


def test_every_wrong_name_has_one_and_the_same_answer_from_get_source(
    wire: Wire, hit: dict[str, Any]
) -> None:
    for name in wrong_names(hit):
        assert wire.tool_error("get_source", {"id": name}) == NOT_FOUND


def test_every_wrong_uri_has_one_and_the_same_answer_from_resources_read(
    wire: Wire, hit: dict[str, Any]
) -> None:
    for uri in ["", "x" * 10_000, *FOLDERS, *wrong_names(hit)]:
        error = wire.error("resources/read", {"uri": uri})
        assert error == {"code": -32602, "message": NOT_FOUND, "data": {"uri": uri}}


@pytest.mark.parametrize("seq", [9_999, 999_999_999])
def test_a_passage_behind_the_last_one_is_told_that(wire: Wire, hit: dict[str, Any], seq: int) -> None:
    source_id = hit["id"].partition("/")[0]
    count = len(
        wire.tool("get_source", {"id": source_id, "max_chars": 100_000})["structuredContent"]["chunks"]
    )
    words = TOO_FEW.format(source_id, count - 1)
    assert wire.tool_error("get_source", {"id": f"{source_id}/{seq}"}) == words
    uri = f"refdesk://documents/{source_id}/{seq}"
    assert wire.error("resources/read", {"uri": uri})["message"] == words


def test_a_read_without_a_uri_is_refused(wire: Wire) -> None:
    assert wire.error("resources/read")["code"] == -32602
    assert wire.error("resources/read", {"uri": 5})["code"] == -32602


def test_a_nul_in_a_query_is_no_more_than_a_blank(wire: Wire) -> None:
    result = wire.tool("search", {"query": "pendulum\0clock", "mode": "sparse"})
    assert result["structuredContent"]["results"]
    result = wire.tool("search", {"query": "pendulum", "sources": ["\0", "' OR 1=1 --"]})
    assert result["structuredContent"]["results"] == []


@pytest.mark.parametrize("mode", ["hybrid", "sparse"])
def test_a_query_is_words_and_never_syntax(wire: Wire, mode: str) -> None:
    odd = [
        "\0",
        "' OR 1=1 --",
        '"clock',
        "clock AND",
        "+-*?~^",
        "(",
        "body:clock",
        "\\",
        "\x1b[31m",
        "\u202e",
    ]
    for query in [*odd, "\U0001f552" * 2_000, "a " * 2_048, "\u0301" * 4_096, "時計"]:
        result = wire.tool("search", {"query": query, "mode": mode, "limit": 1})
        assert not result.get("isError"), query


def test_half_a_character_in_a_query_is_only_an_unknown_one(wire: Wire) -> None:
    for half in ("\ud83d", "\ude00", "clock \ude00\ud83d", "\ud83d\n", "\\\ud83d", '"\ud83d'):
        result = wire.tool("search", {"query": f"pendulum {half}", "limit": 1})
        assert "pendulum" in result["structuredContent"]["results"][0]["text"].casefold()


def test_whole_characters_and_escaped_backslashes_stay_as_they_are() -> None:
    for json_ in (r'"\ud83d\ude00"', r'"\\ud83d"', r'"\\\\ud83d \uD7FF \ue000"', "😀"):
        assert with_whole_characters(json_) == json_
    assert with_whole_characters(r'"\ud83d\ud83d\ude00\ude00"') == r'"\ufffd\ud83d\ude00\ufffd"'


def test_there_is_no_other_tool(wire: Wire) -> None:
    for name in ("Search", "fetch", "", "search\n", MARK * 20):
        error = wire.error("tools/call", {"name": name, "arguments": {}})
        assert error["code"] == -32602
        assert len(error["message"]) < 150
    assert wire.error("tools/call")["code"] == -32602
    assert wire.error("tools/call", {"name": 5})["code"] == -32602


def test_arguments_that_are_no_object_are_refused(wire: Wire) -> None:
    for wrong in ("[]", '"query"', "5"):
        params = {"name": "search", "arguments": json.loads(wrong)}
        assert wire.error("tools/call", params)["code"] == -32602


def test_no_arguments_at_all_are_missing_arguments(wire: Wire) -> None:
    for params in ({"name": "search"}, {"name": "search", "arguments": None}):
        (block,) = wire.result("tools/call", params)["content"]
        assert block["text"] == NOTHING


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "é", "=", "AAAA", base64.b64encode(b"[]").decode(), base64.b64encode(b"a/b/c").decode()],
)
def test_a_cursor_that_is_none_of_ours_is_refused(wire: Wire, cursor: str) -> None:
    assert wire.error("resources/list", {"cursor": cursor}) == {"code": -32602, "message": "Invalid cursor"}


def test_a_forged_cursor_reaches_no_further_than_the_list(wire: Wire) -> None:
    forged = base64.b64encode(b"documents/' OR 1=1 --").decode()
    everything = wire.result("resources/list")["resources"]
    assert all(
        resource in everything for resource in wire.result("resources/list", {"cursor": forged})["resources"]
    )


@pytest.mark.parametrize(
    ("ref", "argument"),
    [
        ({"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"}, "seq_"),
        ({"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}/{seq}"}, "seq"),
        ({"type": "ref/resource", "uri": "file:///{collection}"}, "collection"),
        ({"type": "ref/prompt", "name": "answer"}, "question"),
        ({"type": "ref/prompt", "name": "answer"}, "filter"),
        ({"type": "ref/prompt", "name": "nope"}, "collection"),
    ],
    ids=str,
)
def test_nothing_completes_an_argument_without_candidates(
    wire: Wire, ref: dict[str, str], argument: str
) -> None:
    params = {"ref": ref, "argument": {"name": argument, "value": ""}}
    assert wire.result("completion/complete", params)["completion"]["values"] == []


def test_the_server_still_answers_after_wrong_arguments(wire: Wire) -> None:
    assert wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]

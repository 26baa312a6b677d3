"""Records of any format as readers see them: tickets and articles are sections, other rows are lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

import pytest

from rag.ingest.parse import records
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.conftest import Shape
from tests.ingest.parse.document_shape import headings_of, texts_of, titles_of

LONG = "Since Monday the second call returns 409 even ten minutes after the first one has failed for good."
TICKETS = [
    {
        "id": 88123,
        "subject": "API returns 409",
        "via": {"channel": "email", "from": {"address": "ops@globex.test", "name": "Globex"}},
        "tags": ["api", "retry"],
        "custom_fields": [{"id": 36001, "value": "scale plan"}, {"id": 36002, "value": None}],
        "description": f"Hi,\n\n{LONG}\n# curl -v\n\nDana",
        "comments": [
            {"author": {"login": "maint", "id": 7}, "body": "Fixed by #515.", "public": True},
            {"author": {"login": "dana", "id": 8}, "body": "Thanks!\nIt works."},
        ],
    },
    {"id": 88124, "subject": "Rotate the secret", "description": "How?", "comments": []},
]
SECTIONS = [
    ("heading", "## 88123 API returns 409"),
    (
        "table",
        """via channel: email
via from address: ops@globex.test
via from: Globex
tags: api, retry
custom_fields 36001: scale plan""",
    ),
    ("paragraph", f"description:\n\nHi,\n\n{LONG}\n# curl -v\n\nDana"),
    ("table", "comments 1:\nauthor: maint\nbody: Fixed by #515.\npublic: true"),
    ("table", "comments 2:\nauthor: dana\nbody: Thanks!\nIt works."),
    ("heading", "## 88124 Rotate the secret"),
    ("table", "description: How?"),
]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (json.dumps(TICKETS), "a.json"),
        (json.dumps(TICKETS, indent=1), "a.json"),
        ("\n".join(map(json.dumps, TICKETS)), "a.jsonl"),
    ],
)
def test_a_ticket_is_a_section_of_facts_texts_and_comments(content: str, name: str, shape: Shape) -> None:
    assert shape(content, name) == SECTIONS


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("around", [["tickets"], ["data", "repository", "issues"]])
def test_a_list_inside_the_reply_of_an_api_is_that_list(
    indent: int | None, around: list[str], shape: Shape
) -> None:
    reply: object = TICKETS
    for key in reversed(around):
        reply = {"count": 2, key: reply, "next_page": None}
    paths = ["".join(f"{key} " for key in around[:depth]) for depth in range(len(around))]
    counts = "\n".join(f"{path}count: 2" for path in paths)
    assert shape(json.dumps(reply, indent=indent), "a.json") == [("paragraph", counts), *SECTIONS]


def test_a_list_of_records_may_state_its_title_and_address() -> None:
    reply = {"title": "Open tickets", "url": "https://a.test/open", "tickets": TICKETS}
    document = parse(json.dumps(reply, indent=1).encode(), "a.json")
    assert (document.title, document.metadata) == ("Open tickets", {"url": "https://a.test/open"})


@pytest.mark.parametrize(
    "value",
    [
        {"version": "2.0.0", "tasks": [{"name": "build", "command": "make"}, {"name": "test"}]},
        {"name": "shop", "dependencies": {"react": "18"}, "files": [{"name": "a", "note": LONG + LONG}]}
        | {"scripts": {str(number): LONG for number in range(9)}},
        {"groups": [{"name": "a", "description": LONG + LONG}], "hints": []},
        {"panels": [{"title": "CPU", "targets": [{"expr": LONG + " " + LONG}]}, {"title": "RAM"}]},
    ],
)
def test_settings_with_a_list_in_them_stay_code(value: object, shape: Shape) -> None:
    content = json.dumps(value, indent=2)
    assert shape(content, "a.json") == [("code", content)]


def test_an_endless_line_with_a_list_in_it_is_that_list(shape: Shape) -> None:
    rows = [{"sku": f"B{number}", "price": 1.10} for number in range(20)]
    content = json.dumps({"items": rows, "page": 1})
    blocks = shape(content.replace("1.1}", "1.10}"), "a.json")
    assert blocks[:2] == [("paragraph", "page: 1"), ("table", "sku: B0\nprice: 1.10")]


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        (("Issue key", "Summary"), "A-7 Webhook stops"),
        (("#", "Subject"), "A-7 Webhook stops"),
        (("number", "short_description"), "A-7 Webhook stops"),
        (("Nr", "Titel"), "Webhook stops"),
        (("caseNumber", "Betreff"), "A-7 Webhook stops"),
    ],
)
def test_a_section_is_called_by_key_and_title_whatever_their_names(keys: tuple[str, str], title: str) -> None:
    row = dict(zip(keys, ("A-7", "Webhook stops"), strict=True)) | {"Text": f"{LONG} Twice."}
    other = {key: f"B-{number}" for number, key in enumerate(row)}
    assert titles_of(parse(_csv([row, other]).encode(), "a.csv"))[0] == title


@pytest.mark.parametrize(
    "rows",
    [
        [{"name": "Bolt", "price": "1.10"}, {"name": "Nut", "price": "0.80"}],
        [{"name": "app", "msg": LONG + LONG}, {"name": "app", "msg": LONG}, {"name": "app", "msg": LONG}],
        [{"name": "a", "sha": "0a" * 90}, {"name": "b", "sha": "1b" * 90}],
        [{"host": "a", "note": LONG + LONG}, {"host": "b", "note": LONG}],
        [{"host": at, "note": LONG * 2, "by": {"name": f"x{at}"}, "n": 1, "m": 2} for at in "ab"],
        [{"name": f"n{number}", "note": LONG * 2 if number == 3 else "x"} for number in range(9)],
    ],
)
def test_rows_without_titles_of_their_own_or_texts_stay_a_table(rows: list[dict[str, object]]) -> None:
    for content, name in ((_csv(rows), "a.csv"), (json.dumps(rows), "a.json")):
        assert {block.kind for block in parse(content.encode(), name).blocks} == {"table"}


def test_a_long_title_is_no_text_besides() -> None:
    rows = [{"Date": f"0{day}/03/2024", "Title": f"{day} {LONG} {LONG[:60]}", "Amount": 5} for day in (1, 2)]
    assert titles_of(parse(json.dumps(rows).encode(), "a.json")) == []


def test_the_title_may_be_one_level_deeper_and_begin_with_the_key() -> None:
    fields = {"summary": "[A-1] Disk full", "status": {"name": "Done", "id": "3"}, "description": "a\nb\nc"}
    fields |= {"assignee": {"self": "https://a.test/rest/api/2/user", "displayName": "Ann", "active": True}}
    issues = [{"key": "A-1", "fields": fields}, {"key": "A-2", "fields": {"summary": "Noise"}}]
    assert texts_of(parse(json.dumps(issues).encode(), "a.json")) == [
        "## [A-1] Disk full",
        "status: Done\nassignee: Ann\nassignee active: true",
        "description:\n\na\nb\nc",
        "## A-2 Noise",
    ]


@pytest.mark.parametrize(
    ("number", "title", "heading"),
    [
        (1, "Fix 10 bugs", "1 Fix 10 bugs"),
        (5, "Python 3.5 fails", "5 Python 3.5 fails"),
        (404, "Uploads return 404", "404 Uploads return 404"),
        (1, "1.10 Scope", "1 1.10 Scope"),
        (12, "#12: Login fails", "#12: Login fails"),
        (12, "12. Login fails", "12. Login fails"),
    ],
)
def test_a_key_is_in_the_heading_also_if_its_figures_are_in_the_title(
    number: int, title: str, heading: str
) -> None:
    rows = [{"id": number, "title": title, "text": 2 * LONG}, {"id": 7, "title": "Other"}]
    assert titles_of(parse(json.dumps(rows).encode(), "a.json"))[0] == heading


def test_decimals_that_number_records_are_as_they_are_spelled() -> None:
    fields = [{"id": 2.5, "value": "red"}]
    row = {"title": "Scope", "text": 2 * LONG, "fields": fields}
    content = json.dumps({"title": 1.25, "rows": [row | {"number": 1.5}, row | {"number": 1.25}]})
    document = parse(content.replace("1.5", "1.50").encode(), "a.json")
    assert titles_of(document) == ["1.50 Scope", "1.25 Scope"]
    assert records.DECIMAL not in document.text + document.title
    assert "fields 2.5: red" in document.text


def test_a_value_one_level_deeper_stays_beside_one_of_its_name() -> None:
    inner = {"title": "A", "body": 2 * LONG, "type": "news", "id": "7", "state": "open"}
    rows = [{"id": "7", "type": "articles", "state": None, "attributes": inner}, {"id": "8", "title": "B"}]
    first = parse(json.dumps(rows).encode(), "a.json").text.partition("\n\nbody")[0]
    assert first == "## 7 A\n\ntype: articles\nstate: open\nattributes type: news"


def test_a_title_that_is_rendered_is_html() -> None:
    rows = [
        {"title": {"rendered": "Tom &#038; Ann&#8217;s <em>shop</em>"}, "content": 2 * LONG},
        {"title": "B"},
    ]
    assert titles_of(parse(json.dumps(rows).encode(), "a.json")) == ["Tom & Ann’s *shop*", "B"]


def test_a_text_that_jira_stores_as_a_tree_is_read_as_its_words() -> None:
    words = [{"type": "text", "text": "Raise "}, {"type": "text", "text": "TTL", "marks": [{"type": "code"}]}]
    inner = [{"type": "mention", "attrs": {"id": "7", "text": "@Ann"}}, {"type": "hardBreak"}, *words]
    item = {"type": "listItem", "content": [{"type": "paragraph", "content": words}]}
    tree = [{"type": "paragraph", "content": inner}, {"type": "bulletList", "content": [item, item]}]
    issue = {"key": "A-1", "fields": {"summary": "Lock", "description": {"type": "doc", "content": tree}}}
    assert texts_of(parse(json.dumps([issue, issue | {"key": "A-2"}]).encode(), "a.json"))[:2] == [
        "## A-1 Lock",
        "description:\n\n@Ann\nRaise TTL\nRaise TTL\nRaise TTL",
    ]


def test_a_link_in_such_a_tree_keeps_its_address_and_an_odd_tree_is_read_as_well() -> None:
    link = {"type": "link", "attrs": {"href": "https://a.test/login"}}
    words = [{"text": "See "}, {"text": "the guide", "marks": [{"type": "strong"}, link]}]
    words += [{"text": "."}, {"type": ["odd"], "content": [{"text": "unread"}]}]
    tree = {"type": "doc", "content": [{"type": "paragraph", "content": words}]}
    text = parse(json.dumps({"note": tree}).encode(), "a.jsonl").text
    assert text == "note: See the guide (https://a.test/login)."


def test_headings_of_a_page_are_sections_below_their_article_and_signs_in_a_text_are_none() -> None:
    page = "<h2>Limits</h2><p>60</p><h2>Above</h2><p>You get 429.</p>"
    articles = [
        {"title": "Rates", "body": page},
        {"title": "Skew", "body": "# no\n\n```sh\n# heading\n```\n"},
    ]
    document = parse(json.dumps(articles).encode(), "a.json")
    assert headings_of(document) == [(2, "Rates"), (4, "Limits"), (4, "Above"), (2, "Skew")]
    assert texts_of(document)[-3:] == ["body:", "# no", "```sh\n# heading\n```"]


@pytest.mark.parametrize(
    "text",
    [
        "H<sub>2</sub>O:\n\n| a<br>b |\n\n```python\ndef f():\n    return '<b>'\n```",
        f"The template closes `</div>` twice.\n\n{LONG}",
    ],
)
def test_code_in_a_text_with_a_few_tags_stays_as_it_is(text: str) -> None:
    rows = [{"number": 1, "title": "Tags", "body": text}, {"number": 2, "title": "B"}]
    assert text in parse(json.dumps(rows).encode(), "a.json").text


def test_short_items_share_a_line_and_longer_ones_are_numbered(shape: Shape) -> None:
    record = {
        "labels": [{"id": 1, "url": "https://api.a.test/1", "name": "bug", "color": "red"}, {"name": "cli"}],
        "steps": [LONG, "b"],
        "links": [{"rel": "self", "href": "https://a.test"}, "c"],
        "last": 1,
    }
    facts = f"labels: bug (color: red), cli\nsteps 1: {LONG}\nsteps 2: b\nlinks 2: c\nlast: 1"
    item = "links 1:\nrel: self\nhref: https://a.test"
    assert shape(json.dumps(record), "a.jsonl") == [("table", f"{facts}\n{item}")]


def test_of_a_thing_with_a_name_only_what_programs_know_it_by_is_left_out(shape: Shape) -> None:
    user = {
        "login": "ann",
        "id": 7,
        "node_id": "MDQ6",
        "avatar_url": "https://a.test/avatar/7",
        "active": True,
    }
    paper = {"title": "Tides", "pubmed_id": "28424663", "url": "https://a.test/p", "icons": "sun"}
    paper |= {"self": "https://a.test/rest/api/2/p", "icon": "https://a.test/images/icons/bug.png"}
    paper |= {"see": "https://a.test/lexicon", "note": "https://api.a.test/v2 returns 500"}
    assert shape(json.dumps({"user": user, "paper": paper}), "a.jsonl") == [
        (
            "table",
            """user: ann
user active: true
paper: Tides
paper pubmed_id: 28424663
paper url: https://a.test/p
paper icons: sun
paper see: https://a.test/lexicon
paper note: https://api.a.test/v2 returns 500""",
        )
    ]


@pytest.mark.parametrize("key", ["html_body", "body_html", "body html"])
def test_a_text_that_a_record_has_in_two_forms_is_read_once(key: str) -> None:
    ticket = {"id": 7, "subject": "Login", "comments": [{"body": "Try *again*.", key: "<p>Try again.</p>"}]}
    other = ticket | {"id": 8, "comments": [{"body": "Yes", key: "<p>No, <b>not</b> yet.</p>"}]}
    text = parse(json.dumps([ticket, other]).encode(), "a.json").text
    assert text.count("again") == 1
    assert "Yes" in text
    assert "No, **not** yet." in text


def test_records_with_too_many_parts_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_PARTS", 6)
    assert {block.kind for block in parse(json.dumps(TICKETS).encode(), "a.json").blocks} == {"table"}


@pytest.mark.usefixtures("in_linear_time")
def test_deep_and_wide_values_cost_no_more_than_their_length() -> None:
    value: object = {f"key {number}": "x" for number in range(3_000)}
    for _ in range(60):
        value = {"a key of some length": value}
    text = parse(json.dumps(value).encode(), "a.jsonl").text
    assert len(text) < 10 * len(json.dumps(value))
    many = [
        {"id": number, "title": f"T{number}", "body": "a\n" * 9, "c": [{"b": "c"}]} for number in range(9_000)
    ]
    assert parse(json.dumps({"items": many}).encode(), "a.json").blocks


LINKED = [
    {
        "@context": "https://x/context",
        "@type": "o:Item",
        "o:id": number,
        "o:title": title,
        "dcterms:title": [{"type": "literal", "property_id": 1, "@value": title, "@language": "en"}],
        "dcterms:description": [{"type": "literal", "property_id": 4, "@value": f"{title} of silver. " * 6}],
    }
    for number, title in ((12, "Salt cellar"), (13, "Spoon"))
]


def test_objects_of_a_catalogue_in_linked_data_are_sections() -> None:
    document = parse(json.dumps(LINKED).encode(), "api.json")
    assert headings_of(document) == [(2, "12 Salt cellar"), (2, "13 Spoon")]
    assert "property_id" not in document.text


@pytest.mark.parametrize(
    ("record", "title"),
    [
        ({"@context": "http://iiif.io/api/presentation/3", "label": {"en": ["Salt cellar"]}}, "Salt cellar"),
        ({"@context": "https://schema.org", "name": {"@value": "La Mère", "@language": "fr"}}, "La Mère"),
        ({"uri": "http://x/1", "headline": "Bridge closed", "body_text": "The city."}, "Bridge closed"),
        ({"title": {"de": "Salzfass", "en": "Salt cellar"}, "stop": "101"}, "Salzfass"),
        ({"title": ["On clocks"], "DOI": "10.1/x"}, "On clocks"),
        ({"name": "express", "label": "x", "version": "1.0"}, "package.json"),
    ],
)
def test_the_title_of_one_record_is_what_its_vocabulary_calls_so(
    record: dict[str, object], title: str
) -> None:
    assert parse(json.dumps(record, indent=1).encode(), "package.json").title == title


def test_the_text_of_a_news_item_stands_once() -> None:
    words = "Closed on Monday. " * 30  # too long to read as JSON
    item = {"headline": "Bridge", "body_text": words, "body_html": f"<p>{words}</p>"}
    assert parse(json.dumps(item).encode(), "a.json").text.count("Monday") == 30

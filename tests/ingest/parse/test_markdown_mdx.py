"""Markdown, and MDX: Markdown with JSX."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rag.errors import EmptyFileError
from rag.ingest.parse.document_draft import unread_files
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.conftest import Shape
from tests.ingest.parse.document_shape import headings_of


def test_blocks_are_what_commonmark_sees(shape: Shape) -> None:
    parts = [
        ("heading", "# Title"),
        ("paragraph", "Two\nlines."),
        ("list", "- one\n- two\n  - three"),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("code", "```python\n# no heading\n\n- no list\n```"),
        ("paragraph", "> quoted\n> twice"),
        ("heading", "Under\n-----"),
        ("code", "indented = True"),
        ("paragraph", "<div>\n# no heading\n</div>"),
        ("paragraph", "[reference]: http://example.org"),
        ("paragraph", "***"),
        ("list", "1. first\n\n   more of it\n2. second"),
    ]
    text = "\n\n".join("    " + body if body.startswith("indented") else body for _, body in parts)
    assert shape(text, "a.md") == parts


@pytest.mark.parametrize(
    ("lines", "levels"),
    [
        (
            "# A|## [3.2.0](http://x) (2024-06-12)|### Added|### [3.1.1](x)|### Fixes|### v3.1 - May 2, 2024",
            [1, 2, 3, 2, 3, 2],
        ),
        ("# Changelog|### 1.2.1|### Bug Fixes|## 1.2.0|### Features", [1, 2, 3, 2, 3]),
        ("# 1.2.0|### Features|## 1.1.1 / 2024-05-30|### Bug Fixes|# 1.1.0", [1, 3, 1, 3, 1]),
        ("# News|## 3.2|### 3.2.1|### 3.1.9|## 3.1|### 3.1.8", [1, 2, 3, 2, 2, 3]),
        ("# Manual|## 4.2 Limits|### 4.1.1 Size|### 4.2.1|## 4.1|### 3.9 Old", [1, 2, 3, 3, 2, 3]),
        ("# App|## Server|### 2.0.0|## Client|### Plugin|#### 1.0.0|##### Fixed", [1, 2, 3, 2, 3, 4, 5]),
        ("# App|## 2.0.0|# Client|## Plugin|### 1.0.0", [1, 2, 1, 2, 3]),
    ],
)
def test_versions_beside_their_own_sections_are_on_the_level_of_other_versions(
    lines: str, levels: list[int]
) -> None:
    headings = lines.split("|")
    document = parse("\n\nText.\n\n".join([*headings, ""]).encode(), "CHANGELOG.md")
    assert [level for level, _ in headings_of(document)] == levels
    written = [block.end - block.start for block in document.blocks if block.kind == "heading"]
    assert written == [len(heading) for heading in headings]  # the text stays as it is


def test_code_inside_a_list_is_a_block_of_its_own(shape: Shape) -> None:
    assert shape("- one\n\n  ```\n  - code\n  ```\n\n  more\n- two\n\nend", "a.md") == [
        ("list", "- one"),
        ("code", "```\n  - code\n  ```"),
        ("list", "more\n- two"),
        ("paragraph", "end"),
    ]


@pytest.mark.slow
def test_a_large_text_has_the_blocks_of_its_parts(shape: Shape) -> None:
    code = "```sh\n" + "b " * 99 + "c\n\n# no heading\n```"
    part = [("heading", "# A"), ("code", code), ("list", "- d\n\n  e")]
    text = "\n\n".join(body for _, body in part)
    assert shape("\n\n".join([text] * 3000), "a.md") == part * 3000


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("## Plain", "Plain"),
        ("## Closed ##", "Closed"),
        ("## With `code` and **weight**", "With code and weight"),
        ("## *Slanted* and ***both***, 2 * 3 * 4", "Slanted and both, 2 * 3 * 4"),
        ("## A [link](http://example.org/a_b) here", "A link here"),
        ("## Anchored { #anchored }", "Anchored"),
        ("## Anchored {#anchored .wide}", "Anchored"),
        ('## <a name="x"></a>Named', "Named"),
        ("## GET /users/{id}", "GET /users/{id}"),
        ("## Vec<T> and snake_case", "Vec<T> and snake_case"),
        ("Under\n-----", "Under"),
    ],
)
def test_a_heading_s_title_is_its_words(heading: str, title: str) -> None:
    [block] = parse(heading.encode(), "a.md").blocks
    assert (block.kind, block.level, block.title) == ("heading", 2, title)


def test_the_title_is_that_of_the_front_matter_or_the_first_outermost_heading_or_the_first() -> None:
    assert parse(b"---\ntitle: Front\n---\n# Heading", "a.md").title == "Front"
    assert parse(b"## Inner\n\n# Heading\n\n# Later", "a.md").title == "Heading"
    assert parse(b"### Inner\n\n## Outer", "a.md").title == "Inner"
    assert parse(b"Text", "a.md").title == "a"


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("<h1 align='center'>\n  <img src='x' alt='Foo &amp; Bar'>\n</h1>\n\n## Install", "Foo & Bar"),
        ("<div>\n<h1>The <b>first</b></h1>\n</div>\n\n# Later", "The first"),
        ("# Heading\n\n<h1>Later</h1>", "Heading"),
        ("```\n<h1>Code</h1>\n```\n\n## Inner", "Inner"),
        ("[![Build](b.svg)](x)\n\n# [![Build](b.svg)](x) Tool\n\nText", "Build Tool"),
        ("# ![Logo](l.png)\n\nText", "Logo"),
        ("Under\n=====\n\nText", "Under"),
        ("**Bold title**\n\nText here.", "Bold title"),
        ("**Note**: read this.\n\nText here.", "a"),
        ("#Title\n\nText.", "Title"),
        ("<!-- written by a tool -->\n\nISC License\n\nAnybody may.", "ISC License"),
        ("See below.\n\nText.", "a"),
        ("ISC License", "a"),
        ("---\nsidebar_label: Menu\n---\n## Inner\n\nText", "Menu"),
        ("---\nsidebar_label: Menu\n---\n# Outer\n\nText", "Outer"),
        ("---\nTitle: Front\n---\n# Outer\n\nText", "Front"),
        ("---\nTitle: A law\n---\n# A law (AL)\n\n## A law of others\n\nText", "A law (AL)"),
        ("---\nTitle: A law\n---\n# A lawsuit\n\nText", "A law"),
        ("---\nTitle: A law\n---\n## A law (AL)\n\nText", "A law"),
        ('\ufeff---\r\ntitle: "Quoted: x"\r\n---\r\nText', "Quoted: x"),
        ("+++\ntitle = 'Toml'\n+++\n# Outer", "Toml"),
        ('{\n "title": "Json"\n}\n\n# Outer', "Json"),
    ],
)
def test_a_title_is_found_as_people_write_it(content: str, title: str) -> None:
    assert parse(content.encode(), "a.md").title == title


def test_front_matter_states_facts_under_shared_names() -> None:
    metadata = parse(b"---\nauthors: [{name: Ann}, {name: Bo}]\nLang: en_GB\n---\nText", "a.md").metadata
    assert metadata == {"authors.name": "Ann, Bo", "author": "Ann, Bo", "Lang": "en_GB", "language": "en-GB"}


def test_front_matter_is_metadata_and_what_people_read_of_it_is_text(shape: Shape) -> None:
    text = "---\ntitle: T\ndate: 2024-05-01\nowner: '[[Ann]]'\ndraft: true\n---\n\n# Plan\n\nText."
    document = parse(text.encode(), "a.md")
    assert document.text == "owner: Ann  \n\n# Plan\n\nText."
    assert document.date == datetime(2024, 5, 1, tzinfo=UTC)
    assert document.metadata == {"owner": "[[Ann]]", "draft": "true"}
    assert shape(text, "a.md") == [("heading", "owner: Ann"), ("heading", "# Plan"), ("paragraph", "Text.")]
    assert [heading.title for heading in document.outline] == ["Plan"]


def test_front_matter_that_only_programs_read_is_no_text() -> None:
    document = parse(b"---\nlayout: post\nweight: 10\nallow: group:law\n---\nText.", "a.md")
    assert document.text == "Text."
    assert document.metadata == {"layout": "post", "weight": "10", "allow": "group:law"}


def test_comments_in_properties_are_left_out() -> None:
    text = "---\nowner: Ann %%really Bo%%\nsize: 3 <!-- or 4 -->\n---\nText."
    assert parse(text.encode(), "a.md").text == "owner: Ann  \nsize: 3  \n\nText."


def test_a_note_of_properties_alone_has_them_as_text() -> None:
    document = parse(b"---\nphone: +49 171 5550192\ntags: [people]\n---\n", "Ann Lee.md")
    assert (document.title, document.text.strip()) == ("Ann Lee", "phone: +49 171 5550192")


def test_a_first_line_below_properties_is_still_the_title() -> None:
    assert parse(b"---\nmood: 4\n---\n**Bold title**\n\nText here.", "a.md").title == "Bold title"


def test_a_home_page_whose_text_is_in_its_front_matter_is_read() -> None:
    hero = "hero:\n  name: Foo\n  tagline: Markdown to beautiful docs."
    features = "features:\n  - title: Focus\n    details: Create documentation sites."
    page = f"---\nlayout: home\nallow:\n  - group:law\n{hero}\n{features}\ndate: 2024-05-01\n---\n"
    document = parse(page.encode(), "index.md")
    assert (document.title, document.text) == (
        "Foo",
        f"layout: home\n{hero}\n{features}\ndate: 2024-05-01",
    )
    assert document.date == datetime(2024, 5, 1, tzinfo=UTC)
    assert document.metadata["allow"] == "group:law"
    assert document.metadata["hero.tagline"] == "Markdown to beautiful docs."
    assert [block.title for block in document.blocks if block.title] == ["hero", "features"]


def test_a_page_with_nothing_but_a_title_is_empty() -> None:
    with pytest.raises(EmptyFileError):
        parse(b"---\ntitle: Part one of it\nauthor:\n  name: Ann Lee\n---\n", "a.md")


@pytest.mark.parametrize(
    ("lines", "day"),
    [
        ("created: 2024-03-12T08:15\nupdated: 2024-03-14 09:00:00Z", datetime(2024, 3, 14, 9, tzinfo=UTC)),
        ("created: 2024-03-12", datetime(2024, 3, 12, tzinfo=UTC)),
        ("created: 2024-03-12\nmodified: '{{date}}'", datetime(2024, 3, 12, tzinfo=UTC)),
        ("updated: 2024-03-14\ndate: 2024-03-01", datetime(2024, 3, 1, tzinfo=UTC)),
    ],
)
def test_a_note_without_a_date_has_that_of_its_last_change(lines: str, day: datetime) -> None:
    assert parse(f"---\n{lines}\n---\nText.".encode(), "a.md").date == day


def test_a_date_that_is_none_stays_metadata() -> None:
    document = parse(b"---\ndate: spring\n---\nText.", "a.md")
    assert (document.date, document.metadata) == (None, {"date": "spring"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Seen. ^intro", "Seen."),
        ("- item ^a1b2c3\n    - deep ^note-2", "- item\n    - deep"),
        ("Seen %%never show%% too.", "Seen  too."),
        ("We meet on Friday. %% never: [[Ann|she]] goes %%", "We meet on Friday. "),
        ("%% never %% Seen.", " Seen."),
        ("Seen.%%never%%%%never%%", "Seen."),
        ("Room 5 %% never %%", "Room 5 "),
        ("- [ ] seen %% never %%\n- seen\n\t%% never %%", "- [ ] seen \n- seen\n"),
        ("> %%\n> never\n> %%\n> seen", "> \n> seen"),
        ("## Plan %% never %%\nSeen.", "## Plan \nSeen."),
        ("| 1 | 2 %% [[a\\|never]] %% |", "| 1 | 2  |"),
        ("Seen %%never\nnever%% too.", "Seen  too."),
        ("%% never\n\nnever %%\n\nSeen.", "\n\nSeen."),
        ("%% kanban:settings\n```\nnever\n```\n%%\nSeen.", "\nSeen."),
        ("Seen.\n%% never\n\n# Never", "Seen.\n"),
        ("%%TODO%%\nSeen.", "\nSeen."),
        ("Seen %% too.\n\nSeen %% too.", "Seen %% too.\n\nSeen %% too."),
        ("- %% is a sign\n- %% is one, too", "- %% is a sign\n- %% is one, too"),
        ("It was 5 %% and later 7 %% in May.", "It was 5 %% and later 7 %% in May."),
        ("https://a.b/%%20c?d=%%E%% and %%20", "https://a.b/%%20c?d=%%E%% and %%20"),
        ("It prints %d%% of %s%% of all.", "It prints %d%% of %s%% of all."),
        ("%%{init}%% and %%{wrap}%%", "%%{init}%% and %%{wrap}%%"),
        ("%%%%%%%% Part %%%%%%%%", "%%%%%%%% Part %%%%%%%%"),
        ("It is \\%% so, %% not so.", "It is \\%% so, %% not so."),
        ("| %% | a sign |\n| %5.2f%% | x |\n| %% | y |", "| %% | a sign |\n| %5.2f%% | x |\n| %% | y |"),
        ("for %%i in (*) do echo %%i %%PREFIX%%", "for %%i in (*) do echo %%i %%PREFIX%%"),
        ("%% never show %%\nSeen.", "\nSeen."),
        ("{{#if a}}A{{/if}} and {{#each b}}", "{{#if a}}A{{/if}} and {{#each b}}"),
        (
            "1. Do:\n\n    ```yaml\n    - a <!-- b -->\n    ```",
            "1. Do:\n\n    ```yaml\n    - a <!-- b -->\n    ```",
        ),
        ("> ```html\n> <!-- b -->\n> ```\n", "> ```html\n> <!-- b -->\n> ```\n"),
        ("- ```\n  <!-- b -->\n  ```\n", "- ```\n  <!-- b -->\n  ```\n"),
        (
            "{% highlight html %}\n<!-- b -->\n{% endhighlight %}",
            "{% highlight html %}\n<!-- b -->\n{% endhighlight %}",
        ),
        ("<pre>\n<!-- b -->\n</pre>", "<pre>\n<!-- b -->\n</pre>"),
        ('# A\n\n<!-- Old headings. Do not remove. -->\n\n<a id="old"></a>\n\nSeen.', "# A\n\n\n\n\n\nSeen."),
        ("Seen <!-- never\n```\nnever\n``` --> too <a name='b'>and this</a>.", "Seen  too and this."),
        ("```rust\n{{#rustdoc_include ../a.rs:b}}\n```", "```rust\n{{#rustdoc_include ../a.rs:b}}\n```"),
        ("{{#title A}}{{#include ../LICENSE}}\n\nSeen.", "{{#include ../LICENSE}}\n\nSeen."),
        ("## Props {/*props-ça*/}\n\nSeen.{/* never\n{a} */}", "## Props \n\nSeen."),
        ("```jsx\n{/* a */}\n```\n\n`{/*a*/}` glob/*.md}", "```jsx\n{/* a */}\n```\n\n`{/*a*/}` glob/*.md}"),
        ("<script setup>\nlet a = '<b>'\n</script>\n\n`<script>` <b>seen</b>", "\n\n`<script>` <b>seen</b>"),
        ("<style>\na {}\n</style>\n```\n<style>\n</style>\n```", "\n```\n<style>\n</style>\n```"),
        ('{% tabs %}\n{% tab title="A b" %}\nSeen.\n{% endtab %}\n{% endtabs %}', "\n**A b**\nSeen.\n\n"),
        ('{% hint style="info" %}\nSeen.\n{% endhint %}\n{% @a/form id="4" %}\n', "\nSeen.\n\n\n"),
        ('{% column width="50%" %}\nSeen.\n{% step width="9%" title="A" %}', "\nSeen.\n**A**"),
        ("{% tab log php %} {% hint %}\n`{% hint %}`", "{% tab log php %} {% hint %}\n`{% hint %}`"),
        ("```html\n<!-- b --><a id='c'></a>\n```", "```html\n<!-- b --><a id='c'></a>\n```"),
        (
            "`<!-- a -->` and <a href='b'>c</a> \\{{#include d}}",
            "`<!-- a -->` and <a href='b'>c</a> \\{{#include d}}",
        ),
        ("Seen.\n\n%%\nnever\n\nshow\n%%\n\nToo.", "Seen.\n\n\n\nToo."),
        ("See ![[Pasted image 1.png|300]] and ![[Plan]].", "See (picture) and ![[Plan]]."),
        (
            "- block\n  id:: 64f0c1de-0000-4000-8000-0123456789ab\n  collapsed:: true\n\t- x",
            "- block\n\t- x",
        ),
        ("- TODO x\n  :LOGBOOK:\n  CLOCK: [2024]\n  :END:\n- y", "- TODO x\n- y"),
        (f"Text.\n\nid: {'0a' * 16}\nparent_id: \ntype_: 1", "Text."),
        ("status:: open", "status:: open"),
        ("100%% of 5%% is x ^2\ny^n", "100%% of 5%% is x ^2\ny^n"),
        ("```\n%% Cell %%\nx ^intro\n```", "```\n%% Cell %%\nx ^intro\n```"),
        ("`%% a %%`", "`%% a %%`"),
        ("T\n\n    %% indented %%\n", "T\n\n    %% indented %%\n"),
    ],
)
def test_what_programs_for_notes_do_not_show_is_no_text(written: str, expected: str) -> None:
    assert parse(written.encode(), "a.md").text == expected


def test_what_a_book_includes_is_named() -> None:
    text = "```rust\n{{#rustdoc_include ../a.rs:here}}\n```\n\n{{#include b.md}}\n\nSeen."
    assert parse(text.encode(), "a.md").remarks == (*unread_files(["../a.rs", "b.md"]),)


def test_the_remark_on_included_files_is_short() -> None:
    many = "".join(f"{{{{#include {number}.md}}}}\n" for number in range(50))
    assert [len(remark) < 100 for remark in parse(many.encode(), "a.md").remarks] == [True]


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part",
    [
        "%%",
        "%%a",
        "%%\n",
        "<!--",
        "<pre>",
        "{% highlight %}",
        "{{#include a",
        *("{/*", "{/* a ", "<script", "<style>\n", "{% @a", '{% tab title="a" ', 'title="a" '),
        "```\n",
        "> ",
        "- ",
        "|%% ",
        "%%a|",
        "%" + "0" * 50,
        "- %% ",
        "%% a\n",
        "\n\n    a",
        " ^a-",
    ],
)
def test_hostile_notes_cost_no_more_than_their_length(part: str) -> None:
    parse((part * 20_000 + "\n\nx").encode(), "a.md")


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("tag", ["{% hint a=", "{% @a", "{% tab", "{% @", "{% hint"])
def test_a_tag_with_many_spaces_costs_no_more_than_its_length(tag: str) -> None:
    parse(f"{tag}{' ' * 200_000}\n\nx".encode(), "a.md")


def test_a_proposal_is_called_by_its_number() -> None:
    text = "---\neip: 1559\ntitle: Fee market\n---\n# Abstract"
    assert parse(text.encode(), "a.md").title == "EIP 1559 \u2013 Fee market"
    assert parse(b"---\nzip: 12345\ntitle: Town\n---\nText.", "a.md").title == "Town"


# MDX: Markdown with JSX.

PAGE = """---
title: T
---
import Tabs from '@theme/Tabs';
import {
  A,
  B,
} from "x"

export const meta = {
  a: 1 }

# Hello <Badge text="x" />

{/* nothing
to see */}
<Tabs groupId={{a: {b: 1}}} onClick={() => { f() }}>
  <TabItem value="py" label="Python">

    Text with `code <Foo>` here.

    ```python
    import os
    x = <A/>
    ```

  </TabItem>
</Tabs>

A List<String> and x < y.
- a
  - b
"""


def test_components_imports_and_comments_are_left_out_and_labels_stay() -> None:
    document = parse(PAGE.encode(), "a.mdx")
    assert (document.title, document.mime_type) == ("T", "text/mdx")
    assert document.text.strip() == (
        "# Hello x\n\n**Python**\n\nText with `code <Foo>` here.\n\n```python\nimport os\nx = <A/>\n```\n\n"
        "A List<String> and x < y.\n- a\n  - b"
    )
    assert [block.kind for block in document.blocks] == [
        "heading",
        "paragraph",
        "paragraph",
        "code",
        "paragraph",
        "list",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            '<ParamField query="limit" type="integer" default="10" required>\n  Max.\n</ParamField>',
            "**limit** (type: integer, default: 10, required)\n\nMax.",
        ),
        ("<ResponseField name='total'>Items.</ResponseField>", "**total**\n\nItems."),
        ('<Diagram name="x" alt="Client sends a token" />', "(picture: Client sends a token)"),
        (
            '<Tabs items={["npm", "pnpm"]}>\n<Tab>\nnpm ci\n</Tab>\n<Tab>\npnpm i\n</Tab>\n</Tabs>',
            "**npm**\n\nnpm ci\n\n**pnpm**\n\npnpm i",
        ),
        ("The option <Badge text='deprecated' /> goes.", "The option deprecated goes."),
        ('An <Tooltip tip="Long name">API</Tooltip> is.', "An API (Long name) is."),
        ('<Frame caption="Fig 1: all"><img src="a.png" /></Frame>', 'Fig 1: all\n\n<img src="a.png" />'),
        ("<Deprecated>\n\nIt will go.\n\n</Deprecated>", "**Deprecated**\n\nIt will go."),
        ('<Warning title="Data">Lost.</Warning>', "**Warning: Data**\n\nLost."),
        (
            "You pass <Badge>code</Badge> and <CodeStep step={1}>this</CodeStep> too.",
            "You pass code and this too.",
        ),
        ("A<Badge>new</Badge> List<String> x<B/>y.", "Anew List<String> xy."),
        ('<Card icon="rocket" className="a b" href="/a b" onClick={() => { go("a b") }}>x</Card>', "x"),
    ],
)
def test_what_components_show_is_text(written: str, expected: str) -> None:
    assert parse(written.encode(), "a.mdx").text.strip() == expected


def test_a_title_may_be_exported() -> None:
    assert parse(b"export const metadata = {\n  title: 'Clocks',\n}\n\nText.\n", "a.mdx").title == "Clocks"


def test_sentences_that_begin_with_import_stay() -> None:
    assert parse(b"import duties rise\n\nexport too", "a.mdx").text == "import duties rise\n\nexport too"


@pytest.mark.parametrize(
    "part",
    [
        *("<A {", "<A x={{{{", "{/* ", "<A '", "import {\n", "export const a = {\n", "</A>", "<A>\n"),
        *("<A b='c' ", "x<A/>", "<A b={[", "a<A>"),
    ],
)
def test_broken_jsx_takes_no_time(part: str) -> None:
    assert parse((part * 3_000 + "\n\nx").encode(), "a.mdx").blocks


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("Meeting mit [[René Éluard]]", "Meeting mit René Éluard"),
        ("With [[People/Ann Lee|Ann]] on [[Clocks#Oil]], [[#Rust]]", "With Ann on Clocks > Oil, Rust"),
        ("The `[[bin]]` of `__init__` and __init__.py", "The [[bin]] of __init__ and __init__.py"),
        ("See [[1]](https://x.org)[^2] of rows[[3]]", "See 1 of rows[[3]]"),
        ("_Draft_ of __all clocks__ in snake_case_names", "Draft of all clocks in snake_case_names"),
        ("~~Old~~ ==New== 1 == 1 ~~ 2", "Old New 1 == 1 ~~ 2"),
        (r"Q&amp;A on snake\_case \[x\] &lt;div&gt;", "Q&A on snake_case [x] &lt;div&gt;"),
        (r"`watch()` \*\* and \*.py, *not* `\*` {#watch}", r"watch() ** and *.py, not \*"),
        ("Props change {/*props-change*/}", "Props change"),
    ],
)
def test_a_heading_is_what_people_see(heading: str, title: str) -> None:
    document = parse(f"# {heading}\n\nText.".encode(), "a.md")
    assert document.title == document.blocks[0].title == title


@pytest.mark.parametrize(
    "written", ['---\ntitle: "On [[Oil|oils]]"\n---\nText.', "**On [[Oil|oils]]**\n\nText.\n\nMore."]
)
def test_a_title_without_a_heading_has_no_links_either(written: str) -> None:
    assert parse(written.encode(), "a.md").title == "On oils"


@pytest.mark.parametrize(
    ("name", "text", "files"),
    [
        ("a.md", 'See:\n\n--8<-- "snippets/a.md"\n```\n--8<-- "b.py"\n```\n', ["snippets/a.md", "b.py"]),
        ("a.md", "{% include-markdown '../README.md' %}\n{% include nav.html %}\n", ["../README.md"]),
        ("a.md", '{{< readfile file="/x.yaml" code="true" >}}\n{{% include "y" %}}\n', ["/x.yaml", "y"]),
        ("a.md", "<!--@include: ./a.md-->\n\n<<< @/b.js{2}\n\nText.\n", ["./a.md", "@/b.js"]),
        ("a.md", "{* ../docs/a.py hl[1:2] *}\n\n{!b.md!}\n\n`--8<-- 'c'`\n", ["../docs/a.py", "b.md"]),
        (
            "a.mdx",
            "import A from './a.mdx'\nimport b from '!!raw-loader!b.js'\n\n```\nimport D from 'd.md'\n```",
            ["./a.mdx", "b.js"],
        ),
    ],
)
def test_a_file_that_a_generator_would_include_is_named(name: str, text: str, files: list[str]) -> None:
    remarks = parse(text.encode(), name).remarks
    assert [remark for remark in remarks if "comment" not in remark] == unread_files(files)

"""MDX: Markdown with JSX."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse

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
        "# Hello \n\n**Python**\n\nText with `code <Foo>` here.\n\n```python\nimport os\nx = <A/>\n```\n\n"
        "A List<String> and x < y.\n- a\n  - b"
    )
    assert [one.kind for one in document.blocks] == [
        "heading",
        "paragraph",
        "paragraph",
        "code",
        "paragraph",
        "list",
    ]


def test_a_title_may_be_exported() -> None:
    assert parse(b"export const metadata = {\n  title: 'Clocks',\n}\n\nText.\n", "a.mdx").title == "Clocks"


def test_sentences_that_begin_with_import_stay() -> None:
    assert parse(b"import duties rise\n\nexport too", "a.mdx").text == "import duties rise\n\nexport too"


@pytest.mark.parametrize(
    "part", ["<A {", "<A x={{{{", "{/* ", "<A '", "import {\n", "export const a = {\n", "</A>", "<A>\n"]
)
def test_broken_jsx_takes_no_time(part: str) -> None:
    assert parse((part * 3_000 + "\n\nx").encode(), "a.mdx").blocks

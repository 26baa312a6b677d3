"""Jupyter notebooks: texts, code and outputs that are text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

    from rag.corpus import Document


def book(*cells: dict[str, object], **metadata: object) -> Document:
    return parse(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}).encode(), "a.ipynb")


def code(source: object, *outputs: dict[str, object]) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "outputs": outputs}


def test_cells_are_read_in_order() -> None:
    document = book(
        {"cell_type": "markdown", "source": ["# Clocks\n", "They tick. ![x](data:image/png;base64,AAAA)"]},
        code(
            ["a = 1\n", "a"],
            {"output_type": "execute_result", "data": {"text/plain": ["1"], "image/png": "AAAA"}},
        ),
        kernelspec={"language": "python"},
        authors=[{"name": "Ann"}],
    )
    assert document.title == "Clocks"
    assert document.mime_type == "application/x-ipynb+json"
    assert document.metadata == {"author": "Ann"}
    assert document.text == "# Clocks\nThey tick. x\n\n```python\na = 1\na\n```\n\n```\n1\n```"
    assert [one.kind for one in document.blocks] == ["heading", "paragraph", "code", "code"]


def test_an_output_is_what_a_reader_sees_of_it() -> None:
    table = {"text/html": "<table><tr><th>a<th>b<tr><td>1<td>2</table>", "text/plain": "a b\n1 2"}
    outputs: list[dict[str, object]] = [
        {"output_type": "display_data", "data": table},
        {"output_type": "error", "ename": "KeyError", "evalue": "x", "traceback": ["\x1b[31m" * 99]},
        {"output_type": "stream", "text": ["\x1b[1mbold\x1b[0m ```\n"]},
        {"output_type": "stream", "text": "y" * 9000},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
    ]
    text = book(code("x", *outputs)).text
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in text
    assert "```\nKeyError: x\n```" in text
    assert "\nbold ```\n" in text
    assert "(5,000 more characters)" in text
    assert "AAAA" not in text


def test_a_notebook_of_format_3_is_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Clocks"},
        {"cell_type": "code", "input": "a = 1"},
    ]
    document = parse(json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}).encode(), "a.ipynb")
    assert document.text == "## Clocks\n\n```\na = 1\n```"


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"cells": 1}', b"{}", b'{"cells": ' + b"[" * 100_000])
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="notebook"):
        parse(data, "a.ipynb")


def test_a_notebook_without_text_is_empty() -> None:
    with pytest.raises(EmptyFileError):
        book(code(""), {"cell_type": "markdown", "source": []}, {})


def test_a_real_notebook(judged: Path) -> None:
    document = parse((judged / "office/markitdown/test_notebook.ipynb").read_bytes(), "test_notebook.ipynb")
    assert document.title == "Test Notebook Title"
    assert [one.title for one in document.blocks if one.title] == ["Test Notebook", "Code Cell Below"]

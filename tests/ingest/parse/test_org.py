"""Org files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

NOTES = """#+TITLE: Clocks
#+AUTHOR: Ann
#+DATE: <2024-05-01 Wed>
#+FILETAGS: :time:oil:
#+OPTIONS: toc:nil
#+INCLUDE: "b.org" :lines 1-2
# a comment
Intro with a [[https://x.org][link]].

* TODO [#A] Wind them :daily:
SCHEDULED: <2024-05-02 Thu>
:PROPERTIES:
:ID: 1
:END:
- one
  more
- two
| a | b |
|---+---|
| 1 | 2 |
** Code
#+BEGIN_SRC python
* no heading
#+END_SRC
#+begin_quote
Quoted.
#+end_quote
#+begin_comment
gone
#+end_comment
:alone:
Last.
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_org_is_read_without_settings_and_drawers(end: str) -> None:
    document = parse(NOTES.replace("\n", end).encode(), "a.org")
    assert [(one.kind, document.text[one.start : one.end]) for one in document.blocks] == [
        ("paragraph", "Intro with a [link](https://x.org)."),
        ("heading", "* TODO [#A] Wind them :daily:"),
        ("list", "- one\n  more\n- two"),
        ("table", "| a | b |\n|---+---|\n| 1 | 2 |"),
        ("heading", "** Code"),
        ("code", "```python\n* no heading\n```"),
        ("paragraph", "Quoted."),
        ("paragraph", "Last."),
    ]
    assert [(one.level, one.title) for one in document.blocks if one.level] == [(1, "Wind them"), (2, "Code")]
    assert (document.title, document.metadata) == ("Clocks", {"author": "Ann", "keywords": "time, oil"})
    assert document.date
    assert document.date.date().isoformat() == "2024-05-01"
    assert document.remarks == ('it includes "b.org", which was not read with it',)


def test_real_org_files_have_the_headings_that_a_person_sees(judged: Path) -> None:
    for name in ("README", "README-w-include"):
        data = (judged / "office" / "unstructured" / f"{name}.org").read_bytes()
        document = parse(data, f"{name}.org")
        headings = [one.title for one in document.blocks if one.kind == "heading"]
        assert (document.title, headings) == ("Example Docs", ["Example Docs", "XBRL 10-K"])

"""What documents state of themselves, under the names that all formats share.

The names are `author`, `keywords`, `language` (BCP 47), `subject` and `description`; for mails also `from`,
`to` and `cc`. A fact that a document doesn't state has no entry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import clean
from rag.text.segments import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FACT_LENGTH = 1000  # characters: a fact is shown with each hit

_ALIASES = {
    "author": ("author", "authors", "authors.name", "author.name", "creator", "by"),
    "keywords": ("keywords", "keyword"),
    "language": ("language", "lang", "locale"),
    "subject": ("subject",),
    "description": ("description", "summary", "abstract", "excerpt"),
}
SHARED = frozenset(_ALIASES)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def facts(**stated: str | Iterable[str | None] | None) -> dict[str, str]:
    """The facts that are stated, each on one line. Several values are joined by commas, each of them once.

    A language that isn't a BCP 47 tag is left out.
    Example: author=["A", "B", "A"], language="en_GB", subject=" " -> {"author": "A, B", "language": "en-GB"}.
    """
    lines = {name: _line(value) for name, value in stated.items()}
    language = lines.get("language", "")
    lines["language"] = language.replace("_", "-") if _LANGUAGE.fullmatch(language) else ""
    return {name: line for name, line in lines.items() if line}


def with_facts(entries: Mapping[str, str]) -> dict[str, str]:
    """Entries as their author named them, and below the shared names those that mean the same.

    Example: {"Authors": "A, B", "lang": "de"} -> the same, and "author": "A, B", "language": "de".
    """
    found = {key.casefold(): value for key, value in entries.items()}
    shared = {
        name: next((found[alias] for alias in aliases if found.get(alias)), "")
        for name, aliases in _ALIASES.items()
    }
    return {**facts(**shared), **entries}


def _line(value: str | Iterable[str | None] | None) -> str:
    values = [value] if value is None or isinstance(value, str) else value
    words = dict.fromkeys(one_line(clean(str(one)[: 2 * FACT_LENGTH])) for one in values if one)
    return ", ".join(filter(None, words))[:FACT_LENGTH].rstrip()

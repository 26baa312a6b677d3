"""The documents that a text refers to: those that it names by their title, or links to by their path.

No model and no index of names: a title that stands in a text, word for word, is a reference to its document.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from rag.text.plain_text import one_line, words

LEAST_BYTES = 4  # of a name; shorter titles stand in texts by chance. Two Chinese characters are six bytes.
_QUALIFIER = re.compile(r"\s+\([^()]*\)$")
_FIRST_WORD = re.compile(r"[A-Za-z0-9]+")
_NOTE_ID = re.compile(r" [0-9a-f]{32}(?=[./]|\Z)")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")


def name_of(title: str) -> str:
    """How texts call a document of this title: without what distinguishes it from others of the same name.

    Example: "Steve Johnson (footballer, born 1956)" -> "Steve Johnson".
    """
    return one_line(_QUALIFIER.sub("", title) if title.endswith(")") else title)


def names_in(text: str, names: Iterable[str]) -> set[str]:
    """Those of the names that stand in the text as whole words, in any letter case.

    A name of one word must be written as in the text: "Charmed" is a title, "charmed" a word. A name of less
    than `LEAST_BYTES` is never found. Blank names are not, either.
    Example: "See Parental leave, and charmed." names "parental Leave", but not "Charmed" or "Rental Leave".
    """
    text = unicodedata.normalize("NFC", text)
    of_text = words(text)
    vocabulary, folded, spaced = set(of_text), one_line(text.casefold()), f" {' '.join(of_text)} "
    matches = set()
    for name in names:
        first = _FIRST_WORD.search(name) if name.isascii() else None
        if (first and first[0].casefold() not in vocabulary) or name.casefold() not in folded:
            continue  # nearly all of them, so this is what takes the time: 0.7 us each
        of_name = words(name)
        if f" {' '.join(of_name)} " in spaced and _is_name(name, of_name, text):
            matches.add(name)
    return matches


def _is_name(name: str, of_name: Sequence[str], text: str) -> bool:
    return len(name.encode()) >= LEAST_BYTES and bool(of_name) and (len(of_name) > 1 or name in text)


def linked_ids(text: str, path: str, paths: Mapping[str, str]) -> set[str]:
    """The ids of `paths` that the Markdown links of a text lead to; `path` is the text's own path.

    Links are relative to the folder of the text, or to the top if they begin with a slash. What follows `#`
    or `?` is left out, and so are the ids that Notion appends to names.
    Example: "[Leave](../leave.md#sick)" in "handbook/rules/hours.md" leads to "handbook/leave.md".
    """
    if not (targets := {_target(link, path) for link in _LINK.findall(text)}):
        return set()
    return {id_ for id_, target in paths.items() if _NOTE_ID.sub("", target) in targets}


def _target(link: str, path: str) -> str:
    target = unquote(re.split(r"[#?]", link, maxsplit=1)[0])
    if not target or ":" in target.partition("/")[0]:
        return ""  # a place in the same text, or a URL
    folder = "" if target.startswith("/") else posixpath.dirname(path)
    return _NOTE_ID.sub("", posixpath.normpath(posixpath.join(folder, target.lstrip("/"))))

"""The YAML before a Markdown text: its plain entries."""

from __future__ import annotations

import re

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"^([A-Za-z_][\w.-]*):(?:[ \t]+(.*))?$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
ACCESS_KEYS = frozenset({"visibility", "allow", "deny"})
"""In any case of letters. What can't be read of these is kept, empty: it must not go unnoticed."""
_NESTED = tuple("|>{&*!")  # what YAML values begin with that are no plain words


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    r"""The plain entries of the front matter, and the text after it.

    A list on one line becomes words with commas between; nested values are left out. A text
    that only begins with a rule has no front matter.

    Example: "---\ntitle: 'A b'\ntags: [x, y]\n---\n# A" -> {"title": "A b", "tags": "x, y"}, "# A".
    """
    fenced = _FENCED.match(text)
    if not fenced or not _ENTRY.match(fenced[1].lstrip("\n")):
        return {}, text
    entries = {key: _plain(value.strip()) for key, value in _ENTRY.findall(fenced[1])}
    kept = {key: value for key, value in entries.items() if value or key.casefold() in ACCESS_KEYS}
    return kept, text[fenced.end() :]


def _plain(value: str) -> str:
    if value.startswith("[") and value.endswith("]"):
        return ", ".join(_plain(item.strip()) for item in value[1:-1].split(","))
    if value[:1] in {"'", '"'} and (closing := value.find(value[0], 1)) > 0:
        return value[1:closing]
    return "" if value.startswith(_NESTED) else _COMMENT.sub("", value).strip()

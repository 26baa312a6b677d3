"""The front matter of a Markdown text: the plain entries of its YAML."""

from __future__ import annotations

import re

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"^([A-Za-z_][\w.-]*):(?:[ \t]+(.*))?$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
ACCESS_KEYS = frozenset({"visibility", "allow", "deny"})
"""In any letter case. Unreadable values of these keys are kept as empty ones, so that they are noticed."""
_NESTED = tuple("|>{&*!")  # the first characters of YAML values that are not plain text


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    r"""The plain entries of the front matter, and the text after it.

    A list on one line becomes its items separated by commas; nested values are left out. A text that just
    begins with a thematic break has no front matter.

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

"""Says in a few lines what a principal may read, for the descriptions of tools and for instructions.

Hosts read these texts as the operator's own words, and some put them before the user's. But what documents
state is untrusted. So no title and no text of a document stands here, and of its fields only values that can
hardly be an order: numbers, dates, and labels of at most two words.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from rag.languages import is_known, name_of
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.search.overview import FieldValues, Holding, Single

FEW = 12  # values of a field that are worth listing
MAX_VALUE_CHARS = 24
_LABEL = re.compile(r"[\w.+#/&-]+( [\w.+#/&-]+)?")
FULL, NO_VALUES, NO_FIELDS, NAMES = range(4)
"""How much is said of each collection: less where it would not fit."""


def overview_text(
    overview: Sequence[Holding], max_chars: int, *, fields: bool = True, values: bool = True
) -> str:
    """The collections with what they hold, largest first, in at most `max_chars`; empty if there are none.

    If not all fits, the values of fields are left out first, then the fields, then the descriptions; at last
    the smallest collections, and the text says how many. Without `values`, no value of a field is
    shown; without `fields`, no field.
    """
    if not overview:
        return ""
    ranked = sorted(overview, key=lambda one: (-one.sources, one.collection.name))
    total = sum(one.sources for one in ranked)
    head = f"You can search {_documents(total, more=any(one.more for one in ranked))} here:"
    most = NO_FIELDS if not fields else NO_VALUES if not values else FULL
    for detail in range(most, NAMES + 1):
        lines = [head, *(_line(one, detail) for one in ranked)]
        if len(text := "\n".join(lines)) <= max_chars:
            return text
    while len(lines) > 1:
        lines.pop()
        more = f"- and {len(ranked) + 1 - len(lines)} more collections"
        if len(text := "\n".join([*lines, more])) <= max_chars:
            return text
    return ""


def _line(holding: Holding, detail: int) -> str:
    """A collection on a line: "- wiki: How we work (https://…). 12 documents, 2019-05-01 to 2024-01-31."."""
    collection = holding.collection
    link = f" ({collection.link})" if collection.link else ""
    described = (
        f"{label(collection.description).rstrip('.')}{link}. " if collection.description or link else ""
    )
    facts = [_documents(holding.sources, more=holding.more)]
    if holding.first and holding.last:
        facts.append(_range(holding.first, holding.last))
    if languages := _languages(holding):
        facts.append(languages)
    line = f"- {collection.name}: {described.lstrip() if detail < NAMES else ''}{', '.join(facts)}."
    fields = [_field(name, one, detail) for name, one in holding.fields.items()] if detail < NO_FIELDS else []
    return f"{line} Fields: {'; '.join(fields)}." if fields else line


def _languages(holding: Holding) -> str:
    """The languages of the documents; where none is known, the one that the collection is said to have."""
    if told := [name_of(tag) for tag in holding.languages if is_known(tag)]:
        *others, last = told
        return f"{', '.join(others)} and {last}" if others else last
    chosen = holding.collection.language
    return "" if chosen in {"auto", "none"} else chosen


def _field(name: str, values: FieldValues, detail: int) -> str:
    if detail == NO_VALUES:
        return name
    if shown := shown_values(values):
        return f"{name}: {', '.join(f'{_shown(value)} ({count})' for value, count in shown)}"
    if values.least is not None and values.greatest is not None:
        return f"{name}: {_range(values.least, values.greatest)}"
    return name


def shown_values(values: FieldValues) -> list[tuple[Single, int]]:
    """The values with their counts, most frequent first, if they are few; only those that are plain."""
    if values.distinct > FEW:
        return []
    return [(value, count) for value, count in values.frequent if is_plain(value)]


def is_plain(value: Single) -> bool:
    """Whether a value can stand where orders are read: a number, a date, or a label of one or two words."""
    if isinstance(value, str):
        return len(value) <= MAX_VALUE_CHARS and bool(_LABEL.fullmatch(value)) and label(value) == value
    return len(str(value)) <= 2 * MAX_VALUE_CHARS


def _shown(value: Single) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.date().isoformat()
    return str(value)


def _range(least: Single, greatest: Single) -> str:
    first, last = _shown(least), _shown(greatest)
    return first if first == last else f"{first} to {last}"


def _documents(count: int, *, more: bool) -> str:
    return f"{'over ' if more else ''}{count:,} document{'s' if count != 1 else ''}"

"""What a document in XML states of itself: title, authors, date, keywords, language."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rag.ingest.parse.blocks import date
from rag.ingest.parse.facts import facts
from rag.ingest.parse.xml.body import HEADS
from rag.ingest.parse.xml.words import attribute, name_of, words
from rag.web_addresses import web_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from xml.etree.ElementTree import Element

_TITLES = ("article-title", "book-title", "title")
_GIVEN = frozenset({"given-names", "firstname", "forename", "first-name", "givenname"})
_FAMILY = frozenset({"surname", "last-name", "familyname"})
_FULL = frozenset({"string-name", "collab", "personname", "persname", "name", "corpauthor", "orgname"})
_DATES = frozenset({"pub-date", "pubdate", "date", "created", "revised", "publicationdate"})
_KEYWORDS = frozenset({"kwd", "keyword", "subjectterm"})


class Stated(NamedTuple):
    """The facts of a document. Those that it doesn't state are empty."""

    title: str
    date: datetime | None
    url: str | None
    metadata: Mapping[str, str]


def stated_by(root: Element) -> Stated:
    """What the head of a document states, or what stands right below its root if it has no head."""
    head = next((one for one in root.iter() if name_of(one) in HEADS), None)
    near = list(head.iter()) if head is not None else list(root)
    named = [(name_of(one), one) for one in (*near, *root)]
    titles = (words(one) for wanted in _TITLES for name, one in named if name == wanted)
    metadata = facts(
        author=list(_authors(near)),
        keywords=[words(one) for one in near if name_of(one) in _KEYWORDS],
        language=attribute(root, "lang"),
        description=next((words(one) for one in [*near, *root] if name_of(one) == "shortdesc"), ""),
    )
    days = (day for one in near if name_of(one) in _DATES for day in _days(one))
    return Stated(
        title=next(filter(None, titles), ""),
        date=next(filter(None, map(date, days)), None),
        url=_address(near),
        metadata=metadata,
    )


def _authors(near: list[Element]) -> Iterator[str]:
    for one in near:
        if name_of(one) == "author" or (
            name_of(one) == "contrib" and attribute(one, "contrib-type") in {"", "author"}
        ):
            parts = {name_of(part): words(part) for part in reversed([*one.iter()])}
            given, family = (
                next((parts[name] for name in names if parts.get(name)), "") for names in (_GIVEN, _FAMILY)
            )
            full = next((parts[name] for name in _FULL if parts.get(name)), words(one))
            yield f"{given} {family}".strip() if family else full


def _days(element: Element) -> Iterator[str]:
    """A date as an attribute, as year, month and day, or as text."""
    parts = {name_of(one): words(one) for one in element}
    year, month, day = (parts.get(name, "1").zfill(2) for name in ("year", "month", "day"))
    yield from (attribute(element, name) for name in ("when", "iso-8601-date", "date", "golive"))
    yield f"{year}-{month}-{day}"
    written = words(element)
    yield f"{written}-01-01" if written.isdecimal() else written


def _address(near: list[Element]) -> str | None:
    dois = (
        words(one) for one in near if attribute(one, "pub-id-type") == "doi" and name_of(one) == "article-id"
    )
    doi = next(dois, "")
    return web_address(f"https://doi.org/{doi}") if doi else None

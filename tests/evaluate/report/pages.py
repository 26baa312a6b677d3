"""A page taken apart again, into its elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VOID = {"meta"}


@dataclass(slots=True)
class Element:
    """An element of a page; `content` holds texts and elements in order."""

    name: str
    attributes: dict[str, str]
    content: list[str | Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.content)

    def all(self, name: str, **attributes: str) -> list[Element]:
        """The elements of this name within, in order, with these attributes; `class_` for class."""
        required = {key.rstrip("_"): value for key, value in attributes.items()}
        return [
            element
            for element in self.walk()
            if element.name == name and required.items() <= element.attributes.items()
        ]

    def walk(self) -> Iterator[Element]:
        yield self
        for part in self.content:
            if isinstance(part, Element):
                yield from part.walk()

    def rows(self) -> dict[str, list[str]]:
        """The rows of a table by their headings."""
        rows = [[cell.text for cell in row.content if isinstance(cell, Element)] for row in self.all("tr")]
        return {row[0]: row[1:] for row in rows}


class _Reader(HTMLParser):
    """Takes a page apart, and insists that whatever was opened last is closed first."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


def parse_page(page: str) -> Element:
    """The elements of a page, below one without a name."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    (top,) = reader.open
    return top

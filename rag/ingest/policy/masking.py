"""Counts personal data and secrets in a document, and masks them.

Values found in the text are also masked in the title, headings and metadata, which may lack the words around
a number that identify it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rag.corpus import Document
from rag.text.flags import MASKS, Flag, Span, spans_in

MOST_VALUES = 1000  # that are looked for outside of the text, each in every heading
ADDRESS_LEFT_OUT = "its url contains what the collection masks, so it was left out"
NAME_STAYS = "its file name contains what the collection masks; file names stay as they are"


def count_values(document: Document, name: str, kinds: Collection[Flag]) -> dict[Flag, int]:
    """The number of different values of each kind in a document's text, title, metadata and name."""
    texts = (document.text, document.title, *document.metadata.values(), document.url or "", name)
    values = {(span.flag, text[span.start : span.end]) for text in texts for span in spans_in(text, kinds)}
    return dict(Counter(flag for flag, _ in sorted(values)))


def with_masks(document: Document, kinds: Collection[Flag]) -> Document:
    """The document with a mask for each value of these kinds. Blocks and pages move with the text.

    A block or page that begins inside of a value begins at its mask.
    Example: "Ask ann@acorn.org." -> "Ask [e-mail address].".
    """
    spans = spans_in(document.text, kinds)
    shift = _Shift.of(spans)
    values = {document.text[span.start : span.end]: MASKS[span.flag] for span in spans[:MOST_VALUES]}

    def short(text: str) -> str:
        for value, mask in values.items():
            text = text.replace(value, mask)
        return _with_masks(text, spans_in(text, kinds))

    url_stays = document.url is None or short(document.url) == document.url
    return replace(
        document,
        text=_with_masks(document.text, spans),
        title=short(document.title),
        blocks=tuple(
            replace(
                block, start=shift.moved(block.start), end=shift.moved(block.end), title=short(block.title)
            )
            for block in document.blocks
        ),
        pages=tuple(map(shift.moved, document.pages)),
        metadata={key: short(value) for key, value in document.metadata.items()},
        url=document.url if url_stays else None,
        remarks=document.remarks if url_stays else (*document.remarks, ADDRESS_LEFT_OUT),
    )


def _with_masks(text: str, spans: Sequence[Span]) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], MASKS[span.flag]]
        at = span.end
    return "".join([*parts, text[at:]])


@dataclass(frozen=True, slots=True)
class _Shift:
    """How positions move when spans are replaced by masks of another length."""

    starts: Sequence[int]
    spans: Sequence[Span]
    before: Sequence[int]
    """By how much the masks before each span move it."""

    @classmethod
    def of(cls, spans: Sequence[Span]) -> _Shift:
        longer = [len(MASKS[span.flag]) - (span.end - span.start) for span in spans]
        return cls([span.start for span in spans], spans, [0, *accumulate(longer)])

    def moved(self, position: int) -> int:
        """Where a position is in the masked text."""
        index = bisect_right(self.starts, position) - 1
        if index < 0:
            return position
        span = self.spans[index]
        if position < span.end:
            return span.start + self.before[index]
        return position + self.before[index + 1]


def in_numbers(numbers: Mapping[Flag, int]) -> str:
    """Numbers of values for people: {"email": 2, "iban": 1} -> "2 e-mail addresses, 1 IBAN"."""
    return ", ".join(f"{number} {_NOUNS[flag][number > 1]}" for flag, number in numbers.items())


_NOUNS: Mapping[Flag, tuple[str, str]] = {
    "secret": ("secret", "secrets"),
    "card": ("payment card number", "payment card numbers"),
    "iban": ("IBAN", "IBANs"),
    "national_id": ("national identity number", "national identity numbers"),
    "phone": ("phone number", "phone numbers"),
    "email": ("e-mail address", "e-mail addresses"),
}

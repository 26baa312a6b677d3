"""Renders hits as one text for a model's prompt, each passage under its citation."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from rag.answers import Context
from rag.search.reply.untrusted import disarmed
from rag.text import Span, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rag.answers import Hit

    TokenSpans = Callable[[str], Sequence[tuple[int, int]]]

# A passage could contain "[<another source's id>/3]". A model would take it for that source's citation.
# Backslashes before the bracket are replaced as well, because an even number of them escapes nothing.
_CITATION = re.compile(r"(?<!\\)\\*+\[(?=[^\[\]]*(?<![a-z2-7])[a-z2-7]{16}/\d)", re.IGNORECASE)
BETWEEN = "\n\n"


def assemble(hits: Sequence[Hit], *, budget: int, token_spans: TokenSpans) -> Context:
    r"""As many `hits` as fit in `budget` tokens, best first, one below the other.

    A passage that doesn't fit is truncated after its last sentence that fits, and no passage follows it: a
    worse hit never takes the room of a better one, and a larger budget only appends. If not even the first
    sentence of the first passage fits, it is truncated after a token. Citations count.
    Example: "[mfzq/3]\nThe text.\n\n[mfzq/7]\nAnother one."
    """
    text, passages = _joined(hits, budget, token_spans)
    spans = token_spans(text)
    # Token counts don't add up: a tokenizer may split the end of a text differently once the rest is gone. So
    # `reach` only limits where to cut, and each cut is counted again, from the longest to the shortest.
    reach = spans[budget][0] if len(spans) > budget else len(text)
    ends = chain(_sentence_ends(text, passages, reach), _token_ends(text, passages, spans, reach))
    text = text[: next((end for end in ends if len(token_spans(text[:end])) <= budget), 0)]
    shown = [passage for passage in passages if passage.start < len(text)]
    return Context(
        text=text,
        chunk_ids=tuple(hit.chunk.id for hit, _ in zip(hits, shown, strict=False)),
        tokens=len(token_spans(text)),
        cut=bool(shown) and shown[-1].end > len(text),
        left_out=len(hits) - len(shown),
    )


def _joined(hits: Sequence[Hit], room: int, token_spans: TokenSpans) -> tuple[str, list[Span]]:
    """Passages under their citations, and their spans; stops after the first one that exceeds `room`."""
    text, passages = "", []
    for hit in hits:
        header = f"{_harmless(hit.header)}\n" if hit.header else ""
        head = f"{BETWEEN if text else ''}[{hit.cited}]\n{header}"
        passage = _harmless(hit.text)
        text += head + passage
        passages.append(Span(len(text) - len(passage), len(text)))
        room -= len(token_spans(head + passage))
        if room < 0:
            break
    return text, passages


def _harmless(text: str) -> str:
    """A passage as it is shown, with what reads as a citation in it escaped."""
    return _CITATION.sub(r"\\[", disarmed(text).rstrip().lstrip("\n"))


def _sentence_ends(text: str, passages: Sequence[Span], reach: int) -> Iterator[int]:
    """The ends of sentences up to `reach`, last first."""
    for passage in reversed(passages):
        if passage.start < reach:
            for sentence in reversed(sentences(text[slice(*passage)])):
                if (end := passage.start + sentence.end) <= reach:
                    yield end


def _token_ends(
    text: str, passages: Sequence[Span], spans: Sequence[tuple[int, int]], reach: int
) -> Iterator[int]:
    """The ends of the tokens of the very first sentence up to `reach`, last first."""
    for passage in passages[:1]:
        for sentence in sentences(text[slice(*passage)])[:1]:
            last = min(reach, passage.start + sentence.end)
            yield from (end for _, end in reversed(spans) if passage.start < end <= last)

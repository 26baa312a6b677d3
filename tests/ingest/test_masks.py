"""Masks in a document: every value goes, and every block, page and heading stays where it stood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.corpus import Block, Document
from rag.ingest.policy.masking import count_values, in_numbers, with_masks
from rag.text.flags import MASKS, PERSONAL, Flag, flags_in, spans_in
from tests.test_flags import FOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUES = [(kind, text) for kind in PERSONAL for text in FOUND[kind]]


def document(text: str, *cuts: int, **more: object) -> Document:
    """A document whose blocks and pages begin at these positions."""
    starts = sorted({0, *(cut for cut in cuts if cut < len(text))})
    ends = [*starts[1:], len(text)]
    blocks = tuple(Block("paragraph", start, end) for start, end in zip(starts, ends, strict=True))
    return Document(text, "A title", "text/plain", blocks, pages=tuple(starts), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "text"), VALUES)
def test_each_kind_is_masked_and_leaves_no_flag(kind: Flag, text: str) -> None:
    made = with_masks(document(f"Before {text} after."), [kind])
    assert MASKS[kind] in made.text
    assert kind not in flags_in(made.text)
    assert made.text.startswith("Before ")
    assert made.text.endswith(" after.")


def test_only_the_value_goes_and_not_the_word_before_it() -> None:
    text = "Tel.: 030 901820-12, SSN: 078-05-1120, mailto:ann.lee@acorn.org!"
    shown = with_masks(document(text), PERSONAL).text
    assert shown == "Tel.: [phone number], SSN: [identity number], mailto:[e-mail address]!"


@pytest.mark.parametrize("ending", ["-----END RSA PRIVATE KEY-----\n", ""])
def test_a_private_key_goes_with_its_lines(ending: str) -> None:
    lines = "".join(f"MIIEowIBAAKCAQEA{n}Zk3Jq8s7Yx0pQ1vT2uR5wX6zB9cD4eF7gH8\n" for n in range(5))
    text = f"The key:\n-----BEGIN RSA PRIVATE KEY-----\n{lines}{ending}\nIt is secret."
    shown = with_masks(document(text), ["secret"]).text
    assert "MII" not in shown
    assert shown.startswith("The key:\n[secret]")
    assert shown.endswith("\nIt is secret.")


def test_a_value_of_the_text_also_goes_where_nothing_says_what_it_is() -> None:
    one = document("Phone: 0171 2345678", metadata={"author": "0171 2345678", "year": "2024"})
    made = with_masks(one, ["phone"])
    assert made.metadata == {"author": "[phone number]", "year": "2024"}


def test_title_headings_and_address_are_masked_too() -> None:
    text = "Ann: ann.lee@acorn.org\n\nHello."
    heading = Block("heading", 0, 22, 1, "Ann: ann.lee@acorn.org")
    one = Document(
        text,
        "ann.lee@acorn.org",
        "text/plain",
        (heading, Block("paragraph", 24, 30)),
        url="https://x/?a=ann.lee@acorn.org",
    )
    made = with_masks(one, ["email"])
    assert "acorn" not in repr(made)
    assert made.title == "[e-mail address]"
    assert made.blocks[0].title == "Ann: [e-mail address]"
    assert made.text[made.blocks[1].start : made.blocks[1].end] == "Hello."
    assert (made.url, len(made.remarks)) == (None, 1)


def test_what_is_not_asked_for_stays() -> None:
    one = document("ann.lee@acorn.org and 4539578763621486")
    assert with_masks(one, ["card"]).text == "ann.lee@acorn.org and [card number]"
    assert with_masks(one, []) == one


def test_values_are_counted_once_however_often_and_wherever_they_stand() -> None:
    one = document("a.b@acorn.org, a.b@acorn.org, c.d@acorn.org", metadata={"author": "a.b@acorn.org"})
    found = count_values(one, "e.f@acorn.org.txt", PERSONAL)
    assert (found, in_numbers(found)) == ({"email": 3}, "3 e-mail addresses")


_PARTS = st.lists(
    st.sampled_from([text for _, text in VALUES] + ["some words", "x", "\n\n", "Ärger 12"]), max_size=12
)


@given(parts=_PARTS, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_blocks_and_pages_stay_in_order_and_lose_nothing(parts: Sequence[str], cuts: list[int]) -> None:
    one = document(" ".join(parts), *cuts)
    made = with_masks(one, PERSONAL)
    starts, ends = [block.start for block in made.blocks], [block.end for block in made.blocks]
    assert starts == sorted(starts) == list(made.pages)
    assert (starts[0], ends[-1], starts[1:]) == (0, len(made.text), ends[:-1])
    spans = spans_in(one.text, PERSONAL)
    for before, after in zip(one.blocks, made.blocks, strict=True):
        if not any(span.start < edge < span.end for span in spans for edge in (before.start, before.end)):
            within = [span for span in spans if before.start <= span.start < before.end]
            longer = sum(len(MASKS[span.flag]) - (span.end - span.start) for span in within)
            assert after.end - after.start == before.end - before.start + longer

"""Data that is encoded as text is no text, however it is wrapped."""

from __future__ import annotations

import base64
import hashlib
import string

import pytest

from rag.ingest.parse.parsers import DATA_LEFT_OUT, parse, without_encoded_data

DATA = base64.b64encode(hashlib.shake_128(b"picture").digest(30_000)).decode()
WRAPPED = "\n".join(DATA[start : start + 76] for start in range(0, len(DATA), 76))


@pytest.mark.parametrize("data", [DATA, WRAPPED, base64.urlsafe_b64encode(DATA.encode()).decode()])
def test_it_is_replaced_by_a_mark_and_a_remark(data: str) -> None:
    text, remark = without_encoded_data(f"Before.\n\n{data}\n\nAfter.\n")
    assert text == f"Before.\n\n{DATA_LEFT_OUT}\n\nAfter.\n"
    assert remark == f"{len(data) - len(DATA_LEFT_OUT)} characters of encoded data left out"


def test_a_picture_in_a_markdown_file_takes_no_room() -> None:
    document = parse(f"# Plan\n\n![clock](data:image/png;base64,{DATA})\n\nText.\n".encode(), "a.md")
    assert len(document.text) < 100
    assert "Text." in document.text
    assert len(document.remarks) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "ACGT" * 10_000,
        "x" * 1999,
        (string.ascii_lowercase * 400),
        "\n".join(["https://example.org/" + "Ab1" * 19] * 30),
        "\n".join(["0123456789abcdef" * 4] * 19),
        "/usr/share/doc " * 1000,
        "時計" * 5000,
    ],
)
def test_other_long_words_stay(text: str) -> None:
    assert without_encoded_data(text) == (text, "")


def test_it_takes_time_in_proportion_to_the_text() -> None:
    hostile = ("A1" * 40 + "\n") * 19 + ".\n"
    text = hostile * 500 + ("A1b" * 600 + " ") * 500
    assert without_encoded_data(text)[0] == text

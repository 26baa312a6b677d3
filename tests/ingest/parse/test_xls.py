"""Workbooks before 2007, written record by record: what lies on their sheets is counted."""

from __future__ import annotations

import struct

from rag.ingest.parse.parsers import parse


def record(type_: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", type_, len(content)) + content


def begin(kind: int) -> bytes:
    """The beginning of the workbook (5) or of a sheet (16)."""
    return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0xDBB, 0x7CC, 0, 6))


def label(row: int, column: int, text: str) -> bytes:
    return record(0x204, struct.pack("<HHHHB", row, column, 0, len(text), 0) + text.encode())


def lying(kind: int, flags: int = 0x11) -> bytes:
    """An object on a sheet: 5 is a chart, 11 a box, 20 a list."""
    return record(0x5D, struct.pack("<HHHHH", 0x15, 18, kind, 1, flags) + bytes(16))


def workbook(*lying_on: bytes) -> bytes:
    cells = label(0, 0, "Item") + label(0, 1, "State") + label(1, 0, "Doors") + label(1, 1, "shut")
    sheet = begin(16) + cells + b"".join(lying_on) + record(0x0A)
    size = len(begin(5)) + len(record(0x85, bytes(8 + 5))) + len(record(0x0A))
    listed = record(0x85, struct.pack("<IHBB", size, 0, 5, 0) + b"Audit")
    return begin(5) + listed + record(0x0A) + sheet


def test_controls_and_charts_are_counted_because_their_state_is_not_read() -> None:
    document = parse(workbook(lying(11), lying(20), lying(20, 0x100), lying(5), lying(8)), "a.xls")
    assert document.text == "Audit\n\n| Item | State |\n| --- | --- |\n| Doors | shut |"
    assert document.metadata["left_out"] == "1 chart, 2 controls of forms"


def test_comments_are_counted() -> None:
    note = record(0x1C, struct.pack("<HHHHHB", 1, 1, 0, 1, 3, 0) + b"Ann\0")
    text = record(0x1B6, struct.pack("<HH6sHHH", 0, 0, bytes(6), 0, 0, 0))
    assert parse(workbook(lying(25), text, note), "a.xls").metadata["left_out"] == "1 comment"


def test_a_sheet_without_them_says_nothing_of_them() -> None:
    assert parse(workbook(), "a.xls").remarks == ()

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


def sheet_object(kind: int, flags: int = 0x11) -> bytes:
    """An object on a sheet: 5 is a chart, 11 a box, 20 a list."""
    return record(0x5D, struct.pack("<HHHHH", 0x15, 18, kind, 1, flags) + bytes(16))


def workbook(*sheet_objects: bytes) -> bytes:
    cells = label(0, 0, "Item") + label(0, 1, "State") + label(1, 0, "Doors") + label(1, 1, "shut")
    sheet = begin(16) + cells + b"".join(sheet_objects) + record(0x0A)
    size = len(begin(5)) + len(record(0x85, bytes(8 + 5))) + len(record(0x0A))
    listed = record(0x85, struct.pack("<IHBB", size, 0, 5, 0) + b"Audit")
    return begin(5) + listed + record(0x0A) + sheet


def in_container(records: bytes) -> bytearray:
    """The records as the stream of an OLE container of version 3: header, FAT, directory, stream."""
    free, end, fat_sector, sectors = (
        0xFFFFFFFF,
        0xFFFFFFFE,
        0xFFFFFFFD,
        8,
    )  # a shorter stream isn't in the FAT
    chain = [fat_sector, end, *range(3, sectors + 2), end]

    def entry(name: str, kind: int, child: int, start: int, size: int) -> bytes:
        written = name.encode("utf-16-le") + b"\0\0"
        tree = struct.pack("<HBBIII", len(written), kind, 1, free, free, child)
        return written.ljust(64, b"\0") + tree + bytes(36) + struct.pack("<IQ", start, size)

    size = 512 * sectors
    header = struct.pack(
        "<8s16x5H6x9I",
        *(bytes.fromhex("d0cf11e0a1b11ae1"), 0x3E, 3, 0xFFFE, 9, 6),
        *(0, 1, 1, 0, 4096, end, 0, end, 0),
    )
    fat = struct.pack("<128I", *chain, *[free] * (128 - len(chain)))
    directory = entry("Root Entry", 5, 1, end, 0) + entry("Workbook", 2, free, 2, size) + bytes(256)
    return bytearray(
        header + struct.pack("<109I", 0, *[free] * 108) + fat + directory + records.ljust(size, b"\0")
    )


def test_a_damaged_container_costs_the_counts_and_not_the_sheets() -> None:
    container = in_container(workbook(sheet_object(5)))
    assert parse(bytes(container), "a.xls").metadata["left_out"] == "1 chart"
    container[75] = 0xE2  # the number of sectors of the DIFAT
    document = parse(bytes(container), "a.xls")
    assert document.text == parse(workbook(), "a.xls").text
    assert "left_out" not in document.metadata


def test_controls_and_charts_are_counted_because_their_state_is_not_read() -> None:
    document = parse(
        workbook(
            sheet_object(11), sheet_object(20), sheet_object(20, 0x100), sheet_object(5), sheet_object(8)
        ),
        "a.xls",
    )
    assert document.text == "Audit\n\n| Item | State |\n| --- | --- |\n| Doors | shut |"
    assert document.metadata["left_out"] == "1 chart, 2 controls of forms"


def test_comments_are_counted() -> None:
    note = record(0x1C, struct.pack("<HHHHHB", 1, 1, 0, 1, 3, 0) + b"Ann\0")
    text = record(0x1B6, struct.pack("<HH6sHHH", 0, 0, bytes(6), 0, 0, 0))
    assert parse(workbook(sheet_object(25), text, note), "a.xls").metadata["left_out"] == "1 comment"


def test_a_sheet_without_them_says_nothing_of_them() -> None:
    assert parse(workbook(), "a.xls").remarks == ()

"""When documents expire: dates, zones, leap days, and clocks that somebody sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rag.corpus import Document, FileState
from rag.errors import ParseError
from rag.ingest.policy.document_admission import with_expiry
from rag.originals import NEVER, Clock, expiry

DAY = timedelta(days=1)
INGESTED = datetime(2026, 6, 1, tzinfo=UTC)


def stated(written: str, key: str = "expires") -> str:
    document = Document("text", "title", "text/plain", (), metadata={key: written, "author": "Ann"})
    return with_expiry(document).metadata["expires"]


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2027-03-31", "2027-03-31T00:00:00+00:00"),
        ("2027-03-31T18:00:00+02:00", "2027-03-31T16:00:00+00:00"),
        ("2027-03-31T18:00:00", "2027-03-31T18:00:00+00:00"),
        ("2028-02-29", "2028-02-29T00:00:00+00:00"),
        ("Wed, 31 Mar 2027 18:00:00 -0500", "2027-03-31T23:00:00+00:00"),
    ],
)
def test_a_date_is_its_first_moment_and_a_zone_counts(written: str, moment: str) -> None:
    assert stated(written) == moment
    assert stated(written, key="Expires") == moment


@pytest.mark.parametrize("written", ["soon", "2027-02-29", "2027-13-01", "31.03.2027", "", "never"])
def test_a_document_whose_expiry_nobody_understands_is_not_stored(written: str) -> None:
    with pytest.raises(ParseError, match="nobody knows how long it may be kept, it isn't stored"):
        stated(written)


def test_of_two_statements_the_earlier_counts() -> None:
    one = Document("", "", "", (), metadata={"expires": "2028-01-01", "EXPIRES": "2027-01-01"})
    assert with_expiry(one).metadata == {"expires": "2027-01-01T00:00:00+00:00"}


def of(
    days: int, *, says: str = "", date: datetime | None = None, file: datetime | None = None
) -> datetime | None:
    state = FileState(int(file.timestamp() * 1e9), 1) if file else None
    metadata = {"expires": says} if says else {}
    return expiry(metadata, days, date=date, file=state, ingested_at=INGESTED)


def test_days_count_from_the_date_else_from_the_file_else_from_the_ingestion() -> None:
    date, file = datetime(2024, 2, 29, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    assert of(366, date=date, file=file) == datetime(2025, 3, 1, tzinfo=UTC)
    assert of(30, file=file) == datetime(2025, 1, 31, tzinfo=UTC)
    assert of(30) == INGESTED + 30 * DAY


def test_a_date_in_the_future_prolongs_nothing() -> None:
    assert of(30, date=datetime(2099, 1, 1, tzinfo=UTC)) == INGESTED + 30 * DAY
    assert of(30, file=datetime(2099, 1, 1, tzinfo=UTC)) == INGESTED + 30 * DAY


def test_the_earlier_of_statement_and_days_counts_and_without_both_nothing_expires() -> None:
    assert of(30, says="2026-06-10") == datetime(2026, 6, 10, tzinfo=UTC)
    assert of(30, says="2036-06-10") == INGESTED + 30 * DAY
    assert of(0, says="2036-06-10") == datetime(2036, 6, 10, tzinfo=UTC)
    assert of(0) is None
    assert of(36500 * 100) == NEVER
    assert of(0, says="as an earlier version stored it") is None


def test_a_clock_that_is_set_back_goes_on_from_where_it_was() -> None:
    times = {"wall": 1000.0, "steady": 50.0}
    clock = Clock(lambda: times["wall"], lambda: times["steady"])
    assert clock.now().timestamp() == 1000
    times |= {"wall": 400.0, "steady": 60.0}
    assert clock.now().timestamp() == 1010
    times |= {"wall": 5000.0, "steady": 61.0}
    assert clock.now().timestamp() == 5000

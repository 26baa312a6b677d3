# SPDX-License-Identifier: Apache-2.0
"""Convert Unix time to Julian Date, to TAI and to GPS week and seconds.

Three ways of counting are involved:

* Unix time counts seconds from 1970-01-01 00:00:00 UTC and leaves out leap
  seconds, so that every UTC day has 86,400 of them.
* The Julian Date counts days, with decimals, from noon on 1 January 4713 BC in
  the Julian calendar. The Unix epoch is JD 2440587.5.
* GPS time counts weeks and seconds of the week from 1980-01-06 00:00:00 UTC
  and includes every second that has passed, leap seconds too.

Only the third needs a table. The table below is complete up to the leap second
of 31 December 2016, the 27th. A later leap second must be added by hand.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

SECONDS_PER_DAY = 86_400
SECONDS_PER_WEEK = 604_800

UNIX_EPOCH_JD = 2_440_587.5
MJD_OFFSET = 2_400_000.5
GPS_EPOCH_UNIX = 315_964_800  # 1980-01-06 00:00:00 UTC
TAI_MINUS_GPS = 19

#: Unix times from which a new value of TAI - UTC applies. The first entry,
#: 1972-01-01, starts the present system at 10 seconds; each later one adds 1.
LEAP_TABLE = (
    63072000, 78796800, 94694400, 126230400, 157766400, 189302400, 220924800,
    252460800, 283996800, 315532800, 362793600, 394329600, 425865600, 489024000,
    567993600, 631152000, 662688000, 709948800, 741484800, 773020800, 820454400,
    867715200, 915148800, 1136073600, 1230768000, 1341100800, 1435708800,
    1483228800,
)


class GpsTime(NamedTuple):
    """A moment in GPS time."""

    week: int
    seconds: float

    @property
    def legacy_week(self) -> int:
        """The week as broadcast in the original ten-bit field, 0 to 1023."""
        return self.week % 1024


def julian_date(unix_time: float) -> float:
    """Return the Julian Date, on the UTC scale, of a Unix time.

    >>> julian_date(0)
    2440587.5
    >>> julian_date(946728000)  # noon UTC on 1 January 2000
    2451545.0
    """
    return unix_time / SECONDS_PER_DAY + UNIX_EPOCH_JD


def modified_julian_date(unix_time: float) -> float:
    """Return the Modified Julian Date, which starts at midnight in 1858.

    >>> modified_julian_date(0)
    40587.0
    """
    return julian_date(unix_time) - MJD_OFFSET


def tai_minus_utc(unix_time: float) -> int:
    """Return TAI - UTC in seconds at a Unix time.

    Raises ValueError before 1972, when UTC did not differ from TAI by a whole
    number of seconds.

    >>> tai_minus_utc(63072000)
    10
    >>> tai_minus_utc(1483228799), tai_minus_utc(1483228800)
    (36, 37)
    """
    if unix_time < LEAP_TABLE[0]:
        raise ValueError("TAI - UTC is not a whole number of seconds before 1972")
    return 9 + bisect_right(LEAP_TABLE, unix_time)


def unix_to_gps(unix_time: float) -> GpsTime:
    """Return the GPS week and second of the week for a Unix time.

    >>> unix_to_gps(315964800)
    GpsTime(week=0, seconds=0)
    >>> unix_to_gps(1483228800)  # 1 January 2017: GPS is 18 seconds ahead
    GpsTime(week=1930, seconds=18)
    """
    if unix_time < GPS_EPOCH_UNIX:
        raise ValueError("GPS time starts on 6 January 1980")
    leap = tai_minus_utc(unix_time) - TAI_MINUS_GPS
    elapsed = unix_time - GPS_EPOCH_UNIX + leap
    week, seconds = divmod(elapsed, SECONDS_PER_WEEK)
    return GpsTime(int(week), seconds)


def gps_to_unix(gps: GpsTime) -> float:
    """Return the Unix time of a GPS time; the inverse of `unix_to_gps`.

    The two values for a leap second itself coincide, as they do in Unix time.

    >>> gps_to_unix(GpsTime(1930, 18))
    1483228800
    """
    elapsed = gps.week * SECONDS_PER_WEEK + gps.seconds
    without_leap = elapsed + GPS_EPOCH_UNIX
    leap = 0
    for start in LEAP_TABLE:
        offset = tai_minus_utc(start) - TAI_MINUS_GPS
        if without_leap - offset >= start:
            leap = offset
    return without_leap - leap


def describe(unix_time: float) -> str:
    """Return one line that shows a moment in every scale known here."""
    gps = unix_to_gps(unix_time)
    return (
        f"Unix {unix_time:.0f} = JD {julian_date(unix_time):.5f}"
        f" = GPS week {gps.week}, second {gps.seconds:.0f}"
        f" (TAI - UTC = {tai_minus_utc(unix_time)} s)"
    )


if __name__ == "__main__":
    import time

    print(describe(time.time()))

"""What can go wrong with a single document of an origin; each ends as a line of the report."""

from __future__ import annotations


class FetchError(Exception):
    """The document can't be fetched now. What is stored of it stays."""


class RefusedError(FetchError):
    """refdesk won't fetch it: its address, size or type is not allowed."""


class GoneError(FetchError):
    """The document doesn't exist any more."""

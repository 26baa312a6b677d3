"""Exceptions, one class per reaction that a caller can have.

Every message names the thing, what is wrong and the remedy, and may be shown to the caller. Text from the
storage engine, a model's reply or a library never goes into a message: it can quote other people's documents,
and it is not written for the reader.
"""

from __future__ import annotations


class RefdeskError(Exception):
    """Base class of all errors that refdesk raises on purpose."""


class ConfigurationError(RefdeskError):
    """Fix the settings, the installation or the command line."""


class NotReadyError(RefdeskError):
    """Ingest first: the collection or one of its indexes doesn't exist yet."""


class InvalidRequestError(RefdeskError):
    """Change the request; the message names the allowed values."""


class NotFoundError(RefdeskError):
    """Nothing readable has this name. Unknown, removed and forbidden names get the same answer."""


class BusyError(RefdeskError):
    """Try again after `retry_seconds`: another request or process holds what this one needs."""

    def __init__(self, message: str, *, retry_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class AccessError(RefdeskError):
    """The caller is not authenticated, or lacks the scope."""


class ProviderError(RefdeskError):
    """A remote model failed after the stated number of attempts, or gave an invalid reply."""


class StoreError(RefdeskError):
    """The storage engine failed; its own text is withheld."""


class ParseError(RefdeskError):
    """This file cannot be parsed as a document; skip it and continue."""


class EmptyFileError(ParseError):
    """There is nothing in this file to parse; that is no failure."""

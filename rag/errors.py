"""What can go wrong, one class per reaction that a caller can have.

Every message names the thing and the remedy, and may be shown to whoever asked. Text from
the storage engine or a provider's reply body never goes into a message: it can quote other
people's documents.
"""

from __future__ import annotations


class RefdeskError(Exception):
    """Any error that refdesk raises on purpose."""


class ConfigurationError(RefdeskError):
    """Fix the settings, the installation or the command line."""


class NotReadyError(RefdeskError):
    """Ingest first: the collection or one of its indexes is not there yet."""


class InvalidRequestError(RefdeskError):
    """Ask differently; the message names the allowed values."""


class NotFoundError(RefdeskError):
    """Nothing readable under this name: unknown, removed and forbidden are one answer."""


class BusyError(RefdeskError):
    """Try again later, after `retry_seconds`: somebody else holds what this needs."""

    def __init__(self, message: str, *, retry_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class AccessError(RefdeskError):
    """Who asks is not known, or lacks the scope."""


class ProviderError(RefdeskError):
    """A remote model failed after the stated number of attempts, or answered with nonsense."""


class StoreError(RefdeskError):
    """The storage engine failed; its own text is withheld."""


class ParseError(RefdeskError):
    """This file cannot be read as a document; skip it and go on."""

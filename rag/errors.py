"""Exceptions, one class per reaction that a caller can have.

Every message names the thing, what is wrong and the remedy, for the operator. `for_caller` says the same to a
caller on another machine: what it can do, without addresses, models, paths and commands of this installation.
Text from the storage engine, a model's reply or a library never goes into either: it can quote other people's
documents, and it is not written for the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

Cause = Literal[
    "access",
    "crashed",
    "damaged",
    "encrypted",
    "moderation",
    "no text",
    "not fetched",
    "timeout",
    "too large",
    "unclear expiry",
    "unreachable",
    "unreadable",
    "unsupported",
]
"""Why a file was skipped. `access`: it requests invalid access. `crashed`: its parser crashed or ran out of
memory. `moderation`: the moderator failed, and the settings store nothing unmoderated. `unreadable`: the file
system refuses it. `no text`: it has only images or noise. `unclear expiry`: its expiry is not a date. `not
fetched`: its origin doesn't give it out now. `unreachable`: it is an origin, or a part of the settings or the
command names it, and it isn't there or can't be read."""


class RefdeskError(Exception):
    """Base class of all errors that refdesk raises on purpose."""

    usual: ClassVar[str] = "The server can't answer this request. Only its operator can change that."
    """The default of `for_caller`; empty if callers may read the message itself."""

    def __init__(self, message: str, *, for_caller: str = "") -> None:
        super().__init__(message)
        self.for_caller = for_caller or self.usual or message


class ConfigurationError(RefdeskError):
    """Fix the settings, the installation or the command line."""

    usual = "The server's settings don't allow it to answer this request. Only its operator can change that."


class NotReadyError(RefdeskError):
    """Ingest first: the collection or one of its indexes doesn't exist yet."""

    usual = "A collection can't be searched yet. Ask the operator to finish its ingestion."


class InvalidRequestError(RefdeskError):
    """Change the request; the message names the allowed values."""

    usual = ""


class NotFoundError(RefdeskError):
    """Nothing readable has this name. Unknown, removed and forbidden names get the same answer."""

    usual = ""


class BusyError(RefdeskError):
    """Try again after `retry_seconds`: another request or process holds what this one needs."""

    usual = ""

    def __init__(self, message: str, *, retry_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class AccessError(RefdeskError):
    """The caller is not authenticated, or lacks the scope."""

    usual = ""


class ProviderError(RefdeskError):
    """A remote model failed after the stated number of attempts, or gave an invalid reply."""

    usual = "A model that the server needs is not available just now. Try again in a minute."


class StoreError(RefdeskError):
    """The storage engine failed; its own text is withheld."""

    usual = "The server can't read its documents just now. Try again in a minute."


class ParseError(RefdeskError):
    """This file cannot be parsed as a document; skip it and continue. `cause` is for statistics."""

    def __init__(self, message: str, cause: Cause = "damaged") -> None:
        super().__init__(message)
        self.cause: Cause = cause


class WithheldError(ParseError):
    """This document and its parts are not stored: who may see it, or how long, can't be determined."""


class EmptyFileError(ParseError):
    """The file is empty, which is not a failure."""


@contextmanager
def as_value_error() -> Iterator[None]:
    """Turn errors of ours into ValueErrors, for a validator of pydantic, which ends the sentence itself."""
    try:
        yield
    except RefdeskError as error:
        raise ValueError(str(error).rstrip(".")) from error


@contextmanager
def if_system_refuses(kind: type[RefdeskError], problem: str, remedy: str = "") -> Iterator[None]:
    """If an OSError ends the block, raise an error of this kind: the problem, the reason, the remedy."""
    try:
        yield
    except OSError as error:
        raise kind(f"{problem}: {error.strerror}. {remedy}".rstrip()) from error

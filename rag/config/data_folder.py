"""Finds out why a data folder can hold no documents: it is missing, empty, a file or another program's.

A wrong path must not look like a desk without documents. Servers ask at their start and whenever a search
finds no collections; a folder that appears later, with its drive or the first ingestion, is then searched.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError, StoreError
from rag.home import Bucket, names

if TYPE_CHECKING:
    from pathlib import Path

    from rag.home import Home

SET_PATH = "--data, REFDESK_DATA, or data in the settings"
INGEST = "refdesk-admin ingest PATH"


def data_folder_problem(data: Home) -> str | None:
    """What is wrong with a data folder and what to do, in sentences; None if refdesk has prepared it.

    Of a bucket: None if there is a desk in it.
    """
    if isinstance(data, Bucket):
        return _problem_of(data)
    try:
        os.listdir(data / "tenants")  # noqa: PTH208 only whether it can be read
    except (FileNotFoundError, NotADirectoryError):
        return _without_tenants(data)
    except OSError as error:
        return _unreadable(data, error)
    return None


def _problem_of(bucket: Bucket) -> str | None:
    try:
        found = names(bucket, "tenants")
    except StoreError as error:
        return str(error)
    if found:
        return None
    return (
        f"There is no desk in {bucket}. If the address is wrong, name the right one with storage.uri. "
        f"Otherwise copy a desk to it: refdesk-admin storage copy --to {bucket}."
    )


def check_data_folder(data: Home) -> None:
    """Reject a data folder that refdesk hasn't prepared.

    Raises:
        ConfigurationError: there is no such folder, or it is not one of refdesk's.
    """
    if problem := data_folder_problem(data):
        raise ConfigurationError(problem)


def _without_tenants(data: Path) -> str:
    try:
        names = os.listdir(data)  # noqa: PTH208 the same
    except FileNotFoundError:
        return f"There is no data folder {data}. {_remedy('to create it')}"
    except NotADirectoryError:
        return f"The data folder {data} is a file, or below one. Name a folder with {SET_PATH}."
    except OSError as error:
        return _unreadable(data, error)
    if names:
        return f"{data} is not a data folder of refdesk. Name another folder with {SET_PATH}."
    return f"The data folder {data} is empty. {_remedy('to fill it')}"


def _unreadable(data: Path, error: OSError) -> str:
    return (
        f"The data folder {data} can't be read: {error.strerror}. Make it readable for this user, or name "
        f"another folder with {SET_PATH}."
    )


def _remedy(purpose: str) -> str:
    return (
        f"If its drive is not mounted, mount it. If the path is wrong, name the right one with {SET_PATH}. "
        f"Otherwise run {INGEST} {purpose}."
    )

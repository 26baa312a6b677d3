"""Turns: which data folder may write to a bucket. Only one that has what the bucket holds gets a turn.

Each copy takes the next number by creating an object in `copying` that holds a token, which its data folder
has noted before. So a folder knows whether the last copy was its own, or one that it was fetched from.
Otherwise another folder was copied there since, and its changes aren't in this one: documents could get lost,
and worse, revoked keys and rights could come back. Such a copy is refused, unless an administrator decides
that this folder counts.

A new number ends all copies with lower ones. There is no lease to expire, so a killed copy blocks nobody.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from rag.errors import BusyError, ConfigurationError
from rag.home import Bucket
from rag.store.write.bucket_objects import delete, object_facts, put_new
from rag.store.write.desk_folder import spending_reserve, write_whole

TURNS = "copying"
NOTES = "copies.json"
"""In a data folder: the token of its last copy to each bucket; two while a copy may or may not have begun."""


def take_turn(bucket: Bucket, data: Path, *, replace: bool) -> int:
    """Stop every earlier copy to this bucket. Returns the number of this one.

    Raises:
        ConfigurationError: another folder was copied there since, and `replace` is false. Or the store lets
            several writers have the same turn.
        BusyError: another copy began in the same moment.
    """
    numbers = _numbers(bucket)
    last = max(numbers, default=0)
    tokens, current = _read_notes(data).get(str(bucket), []), token_of(bucket, last)
    if last and current not in tokens and not replace:
        raise ConfigurationError(
            f"Another data folder was copied to {bucket} since {data} was. Documents, access rights and "
            "keys that were changed in that one aren't here. Nothing was copied. To go on from what the "
            f"bucket holds, run refdesk-admin storage fetch --from {bucket} --data NEW_FOLDER. To replace it "
            f"with what {data} has, repeat the copy with --replace."
        )
    token = secrets.token_hex(16)
    _note(data, bucket, [token, *([current] if current in tokens else [])])
    if not put_new(bucket, _name(last + 1), token.encode()):
        raise BusyError(f"Another copy to {bucket} has just begun. Try again later.")
    if put_new(bucket, _name(last + 1), token.encode()):  # must fail; the copy may come from another store
        raise unfit_store(bucket)
    _note(data, bucket, [token])
    delete(bucket, map(_name, numbers))
    return last + 1


def check_turn(bucket: Bucket, number: int) -> None:
    """Make sure that this turn is still the last one.

    Raises:
        BusyError: another copy has begun since.
    """
    if last_turn(bucket) != number:
        raise BusyError(f"Another copy to {bucket} has begun since, so this one stopped.")


def last_turn(bucket: Bucket) -> int:
    """The number of the last copy that began, 0 before the first."""
    return max(_numbers(bucket), default=0)


def token_of(bucket: Bucket, number: int) -> str:
    """The token of a turn, empty if the turn doesn't exist."""
    return (bucket.read(_name(number)) or b"").decode(errors="replace")


def note_fetched(data: Path, bucket: Bucket, token: str) -> None:
    """Note that a folder has the state of the copy with this token."""
    _note(data, bucket, [token])


def unfit_store(bucket: Bucket) -> ConfigurationError:
    """The error to raise if a store can't keep concurrent writers apart."""
    return ConfigurationError(
        f"The object store of {bucket} ignores If-None-Match: what one writer has committed, another could "
        "replace. Nothing was copied. Use one with conditional writes."
    )


def _name(number: int) -> str:
    return f"{TURNS}/{number:08d}"


def _numbers(bucket: Bucket) -> list[int]:
    return [int(name.rpartition("/")[2]) for name in object_facts(bucket, TURNS)]


def _read_notes(data: Path) -> dict[str, list[str]]:
    """The notes by bucket; none if they can't be read. That fails closed: the next copy is refused."""
    try:
        noted = json.loads((data / NOTES).read_bytes())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _note(data: Path, bucket: Bucket, tokens: Sequence[str]) -> None:
    content = json.dumps(_read_notes(data) | {str(bucket): list(tokens)}).encode()
    for attempt in spending_reserve(data):  # a full disk must not keep a revocation from the bucket
        with attempt:
            write_whole(data / NOTES, content)

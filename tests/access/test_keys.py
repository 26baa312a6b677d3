"""API keys: who holds a token, and which key files are trusted."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from rag.access.keys import ApiKey, Keys, holder_of, keys_file, new_secret, read_keys, token_of
from rag.corpus import Principal
from rag.errors import ConfigurationError
from rag.filters.grammar import check_form
from rag.store.write.desk_folder import write_whole
from tests.refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def _key(id_: str = "0a1b2c3d", *, days: int = 1) -> tuple[ApiKey, str]:
    secret, digest = new_secret()
    key = ApiKey(
        id=id_,
        digest=digest,
        tenant="acorn",
        user="ann",
        groups=("hr",),
        scopes=("refdesk:search",),
        created_at=NOW,
        expires_at=NOW + timedelta(days=days),
    )
    return key, token_of(key, secret)


def test_a_token_is_its_holders_and_nobody_elses() -> None:
    (ann, token), (bob, bobs) = _key(), _key("ffffffff")
    assert token.startswith("rdk_0a1b2c3d_")
    assert len(token) == len("rdk_0a1b2c3d_") + 43
    assert holder_of(token, [bob, ann], NOW) is ann
    assert holder_of(bobs, [bob, ann], NOW) is bob
    assert holder_of(token, [bob], NOW) is None
    assert ann.principal == Principal("acorn", "ann", frozenset({"hr"}))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:0],
        lambda token: token[:3],
        lambda token: token[:-1],
        lambda token: token + "x",
        lambda token: token.swapcase(),
        lambda token: token.replace("rdk_", ""),
        lambda token: token.replace("rdk_", "sk_"),
        lambda token: token.replace("0a1b2c3d", "0a1b2c3e"),
        lambda token: token.replace("0a1b2c3d", "ffffffff"),
        lambda token: f" {token}",
        lambda token: token + "\udcff",
    ],
)
def test_what_is_no_whole_token_is_nobodys(spoil: object) -> None:
    (ann, token), (bob, _) = _key(), _key("ffffffff")
    assert callable(spoil)
    assert holder_of(spoil(token), [ann, bob], NOW) is None
    assert holder_of(token, [ann, bob], NOW) is ann


def test_a_key_ends_at_its_time() -> None:
    key, token = _key(days=2)
    assert holder_of(token, [key], NOW + timedelta(days=2) - timedelta(seconds=1)) is key
    assert holder_of(token, [key], NOW + timedelta(days=2)) is None


def test_the_file_keeps_no_secret_and_is_its_owners_alone(tmp_path: Path) -> None:
    key, token = _key()
    file = keys_file(tmp_path)
    assert read_keys(file) == Keys()
    write_whole(file, Keys(keys=(key,)).model_dump_json().encode())
    assert read_keys(file).keys == (key,)
    assert token.split("_", 2)[2] not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_have_a_hand_on_is_refused(tmp_path: Path, mode: int) -> None:
    file = keys_file(tmp_path)
    write_whole(file, Keys().model_dump_json().encode())
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_keys(file)
    file.chmod(0o600)
    assert read_keys(file) == Keys()


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"keys": [{"id": "x"}]}', b'{"keys": [], "more": 1}', b"\xff"]
)
def test_a_file_that_is_none_of_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    write_whole(keys_file(tmp_path), content)
    with pytest.raises(ConfigurationError, match="can't be read"):
        read_keys(keys_file(tmp_path))


def test_files_from_before_there_were_bindings_are_read(tmp_path: Path) -> None:
    key, _ = _key()
    file = keys_file(tmp_path)
    write_whole(file, Keys(keys=(key,)).model_dump_json(exclude={"keys": {"__all__": {"bound_to"}}}).encode())
    assert read_keys(file).keys == (key,)


@pytest.mark.parametrize(
    ("bound_to", "words"),
    [
        ({"collections": []}, "keys.0.bound_to.collections: Tuple should have at least 1 item"),
        ({"collections": "handbook"}, "keys.0.bound_to.collections: "),
        ({"filter": {"$where": 1}}, f"keys.0.bound_to.filter: {refusal(check_form, {'$where': 1})}"),
        ({"filter": {}}, f"keys.0.bound_to.filter: {refusal(check_form, {})}"),
        ({"filter": "status = 'final'"}, "keys.0.bound_to.filter: "),
        ({"limit": 0}, "keys.0.bound_to.limit: "),
        ({"tool": ["search"]}, "keys.0.bound_to.tool: Extra inputs are not permitted"),
        ([], "keys.0.bound_to: "),
    ],
)
def test_a_binding_that_somebody_wrote_wrongly_lets_nobody_in_and_says_where(
    tmp_path: Path, bound_to: object, words: str
) -> None:
    """A key whose binding is lost would open everything, so the whole file counts for nothing."""
    key, _ = _key()
    stored = json.loads(Keys(keys=(key,)).model_dump_json())
    stored["keys"][0]["bound_to"] = bound_to
    file = keys_file(tmp_path)
    write_whole(file, json.dumps(stored).encode())
    with pytest.raises(ConfigurationError) as error:
        read_keys(file)
    assert f"It is wrong at {words}" in str(error.value)
    assert key.digest not in str(error.value)

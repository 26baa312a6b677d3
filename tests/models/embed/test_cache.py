"""The cache of embeddings: it answers only for its own model and tenant, stays small, and survives damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rag.models.embed.embedding_cache import (
    CachedEmbedder,
    EmbeddingCache,
    cache_file,
    forget,
    owners,
    rounded,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    import numpy.typing as npt

    from rag.corpus import Vectors

    Caches = Callable[..., EmbeddingCache]

KEY = b"k" * 32

pytestmark = pytest.mark.anyio


def vector(seed: int, dimension: int = 8) -> Vectors:
    """A vector as an embedder with a cache returns it."""
    drawn: Vectors = np.random.default_rng(seed).random(dimension, np.float32)
    once: Vectors = rounded((drawn / np.linalg.norm(drawn))[None])[0]
    return once


def in_file(vector: Vectors) -> bytes:
    """The numbers of a vector as the file holds them."""
    numbers: npt.NDArray[np.int16] = np.rint(vector / np.abs(vector).max() * 32_767).astype("<i2")
    return numbers.tobytes()


@pytest.fixture
def cached(tmp_path: Path) -> Caches:
    usual: dict[str, Any] = {
        "key": KEY,
        "tenant": "acme",
        "collection": "letters",
        "model": "m",
        "max_bytes": 1 << 30,
    }
    return lambda **changes: EmbeddingCache(tmp_path, **(usual | changes))


def test_a_text_is_known_with_its_very_vector_in_another_process_and_collection(cached: Caches) -> None:
    cache = cached()
    cache.keep([("a", vector(1)), ("b", vector(2))])
    vectors = cached(collection="others").vectors(["b", "c", "a"])
    assert {text: list(vectors[text]) for text in vectors} == {"a": list(vector(1)), "b": list(vector(2))}


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_rounding_loses_no_more_than_noise_and_a_second_time_nothing(scale: float) -> None:
    chance = np.random.default_rng(1)
    vectors = (chance.standard_normal((50, 384)) * scale).astype(np.float32)
    once = rounded(vectors)
    assert np.array_equal(rounded(once), once)
    assert np.abs(once - vectors).max() < np.abs(vectors).max() / 50_000
    blank = np.zeros((2, 384), np.float32)
    assert not rounded(blank).any()
    assert rounded(blank[:0]).shape == (0, 384)


async def test_what_is_stored_does_not_depend_on_what_was_in_the_cache(
    cached: Caches, small_desk: ModuleType
) -> None:
    embedder = CachedEmbedder(small_desk.BagOfWords(), cached())
    first = await embedder.embed(["a leap second", "a sundial"], "document")
    again = await embedder.embed(["a sundial", "a leap second"], "document")
    assert embedder.cached == 2
    assert np.array_equal(first, again[::-1])


def test_an_entry_takes_one_kilobyte(cached: Caches, tmp_path: Path) -> None:
    letters = cached()
    letters.keep((f"text {number}", vector(number, 384)) for number in range(2_000))
    letters.close()
    assert cache_file(tmp_path).stat().st_size < 2_000 * 1_150


@pytest.mark.parametrize("change", [{"tenant": "other"}, {"model": "n"}, {"key": b"x" * 32}])
def test_another_tenant_model_or_data_folder_knows_nothing(cached: Caches, change: dict[str, object]) -> None:
    cached().keep([("a", vector(1))])
    assert cached().vectors(["a"])
    assert not cached(**change).vectors(["a"])


def test_the_file_holds_no_text_and_only_its_owner_may_read_it(cached: Caches, tmp_path: Path) -> None:
    cache = cached()
    cache.keep([("a secret sentence", vector(1))])
    cache.close()
    assert b"secret" not in cache_file(tmp_path).read_bytes()
    assert cache_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_another_model_behind_the_same_name_is_noticed_and_rounding_is_not(cached: Caches) -> None:
    first = cached()
    first.check_model(vector(1))
    first.keep([("a", vector(3))])
    again = cached()
    again.check_model(vector(1) + np.float32(0.0005))
    assert (bool(again.vectors(["a"])), again.notes) == (True, [])
    swapped = cached()
    swapped.check_model(vector(2))
    assert not swapped.vectors(["a"])
    assert "another model behind its name" in swapped.notes[0]


@pytest.mark.parametrize("content", [b"not a database" * 100, b"", None], ids=["text", "empty", "torn"])
def test_a_damaged_cache_is_an_empty_one(cached: Caches, tmp_path: Path, content: bytes | None) -> None:
    cache = cached()
    cache.keep([(str(n), vector(n)) for n in range(200)])
    cache.close()
    file = cache_file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * 4096 + whole[8192:] if content is None else content)
    damaged = cached()
    damaged.vectors(["1"])
    damaged.keep([("new", vector(9))])
    damaged.keep([("new", vector(9))])
    assert list(damaged.vectors(["new"])) == ["new"]
    assert damaged.notes == ([] if content == b"" else [damaged.notes[0]])
    assert all("was damaged" in note for note in damaged.notes)


def test_a_cache_that_somebody_else_keeps_locked_is_left_alone(
    cached: Caches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.models.embed.embedding_cache.WAIT_SECONDS", 0.05)
    cache = cached()
    cache.keep([("a", vector(1))])
    locker = sqlite3.connect(cache_file(tmp_path), isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    try:
        assert list(cache.vectors(["a"])) == ["a"]  # reading goes on
        cache.keep([("b", vector(2))])
        assert cache.vectors(["a"]) == {}
        assert "another process was using it" in cache.notes[0]
    finally:
        locker.close()
    assert list(cached().vectors(["a", "b"])) == ["a"]


def test_two_writers_at_once_lose_nothing(cached: Caches) -> None:
    first, second = cached(), cached()
    for n in range(20):
        first.keep([(f"one {n}", vector(n))])
        second.keep([(f"other {n}", vector(n))])
    assert len(cached().vectors([f"{who} {n}" for who in ("one", "other") for n in range(20)])) == 40


def test_beyond_the_limit_what_was_not_used_for_longest_goes(
    cached: Caches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.models.embed.embedding_cache.time.time", lambda: 1e9)
    old = cached(max_bytes=120_000)
    old.keep([(f"old {n}", vector(n, 256)) for n in range(150)])
    monkeypatch.setattr("rag.models.embed.embedding_cache.time.time", lambda: 1.1e9)
    old.keep([(f"new {n}", vector(n, 256)) for n in range(50)], used=[f"old {n}" for n in range(50)])
    old.close()
    assert cache_file(tmp_path).stat().st_size <= 120_000
    remaining = cached().vectors([f"{age} {n}" for age in ("old", "new") for n in range(150)])
    assert {f"new {n}" for n in range(50)} | {f"old {n}" for n in range(50)} <= remaining.keys()
    assert len(remaining) < 200


def test_forgetting_a_collection_keeps_its_texts_of_now_and_what_others_own(
    cached: Caches, tmp_path: Path
) -> None:
    letters, neighbours, strangers = cached(), cached(collection="others"), cached(tenant="acme-two")
    for cache in (letters, neighbours, strangers):
        cache.check_model(vector(0))
    letters.keep([("stays", vector(1)), ("goes", vector(2)), ("shared", vector(3))])
    neighbours.keep([("theirs", vector(4))], used=["shared"])
    strangers.keep([("goes", vector(5))])
    assert owners(tmp_path, "acme") == {"letters", "others"}
    assert forget(tmp_path, KEY, "acme", texts=["stays"], collections=["letters"]) == 1
    assert set(letters.vectors(["stays", "goes", "shared", "theirs"])) == {"stays", "shared", "theirs"}
    assert in_file(vector(2)) not in cache_file(tmp_path).read_bytes()
    assert in_file(vector(1)) in cache_file(tmp_path).read_bytes()
    forget(tmp_path, KEY, "acme")
    assert not letters.vectors(["stays", "shared", "theirs"])
    assert strangers.vectors(["goes"])


def test_without_a_cache_there_is_nothing_to_forget(tmp_path: Path) -> None:
    assert (forget(tmp_path, KEY, "acme"), owners(tmp_path, "acme")) == (0, set())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_a_cache_that_opens_with_what_it_had_committed(
    cached: Caches, tmp_path: Path
) -> None:
    code = f"""
import numpy as np, sys
from pathlib import Path
from rag.models.embed.embedding_cache import EmbeddingCache
one = EmbeddingCache(Path({str(tmp_path)!r}), {KEY!r}, "acme", "letters", "m", 1 << 30)
for n in range(10_000_000):
    one.keep([(f"text {{n}}", np.ones(512, np.float32))])
    if n == 50:
        print("ready", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "ready\n"
        writer.kill()
    cache = cached()
    assert len(cache.vectors([f"text {n}" for n in range(51)])) == 51
    cache.keep([("after", vector(1, 512))])
    assert (list(cache.vectors(["after"])), cache.notes) == (["after"], [])

"""A remote model without a vector for one chunk of many, from outside: installed commands, real HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Endpoint, Reply

pytestmark = pytest.mark.slow

FILES = 60
BAD = "cursed"


def answering(request: dict[str, Any], *, bad: str = BAD) -> Reply:
    """Vectors of counted letters, NaN for texts with the bad word."""
    rows = [
        [float("nan")] * 26 if bad in text else [text.count(chr(97 + n)) + 0.01 for n in range(26)]
        for text in request["input"]
    ]
    data = [{"index": index, "embedding": row} for index, row in enumerate(rows)]
    return 200, {}, json.dumps({"data": data}).encode()


@pytest.fixture
def remote(tmp_path: Path, provider: Endpoint) -> tuple[str, Path]:
    """The options for an embedder behind an endpoint that answers like this."""
    provider.script = [answering]
    config = tmp_path / "config.toml"
    config.write_text(f'[embedder]\nprovider = "openai"\nmodel = "tiny"\nbase_url = "{provider.url}"\n')
    config.chmod(0o600)
    return "--config", config


def test_one_bad_vector_of_many_stops_nothing_is_told_with_its_file_and_asked_for_again(
    desk: Desk, provider: Endpoint, remote: tuple[str, Path], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(FILES):
        (notes / f"{number:02}.md").write_text(f"Note {number} about clocks.")
    (notes / "40.md").write_text(f"A {BAD} pendulum.")

    run = desk.run("ingest", notes, *remote)
    assert run.stdout.startswith(f"{FILES} added")
    assert f"Note: The embedding model has no valid vector for 1 chunk: {notes}/40.md (1)." in run.stderr
    (found,) = desk.json("search", "pendulum", "--mode", "sparse", *remote)["results"]
    assert BAD in found["text"]
    hybrid = desk.json("search", "pendulum", *remote)["results"]
    assert BAD in hybrid[0]["text"]
    dense = desk.json("search", "pendulum", "--mode", "dense", "--limit", "50", *remote)["results"]
    assert len(dense) == 50
    assert not any(BAD in one["text"] for one in dense)
    assert desk.json("status", *remote)["collections"][0]["without_vector"] == 1
    assert "1 chunk of documents found by words only" in desk.run("status", *remote).stdout

    provider.script = [lambda request: answering(request, bad="nothing has this")]
    provider.requests.clear()
    again = desk.run("ingest", notes, *remote)
    assert "Note: 1 chunk got the vector that an earlier run asked for in vain." in again.stderr
    assert f"{FILES} unchanged" in again.stdout
    assert [len(request["input"]) for request in provider.requests] == [1, 1]  # the first opens it
    dense = desk.json("search", f"A {BAD} pendulum.", "--mode", "dense", *remote)["results"]
    assert BAD in dense[0]["text"]
    assert desk.json("status", *remote)["collections"][0]["without_vector"] == 0


def test_vectors_of_another_length_fail_the_whole_run(
    desk: Desk, provider: Endpoint, remote: tuple[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("A clock.")
    short = json.dumps({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}).encode()
    provider.script = [answering, provider.sending(short)]
    run = desk.run("ingest", tmp_path / "a.md", *remote, code=1)
    assert "did not return a valid vector with 26 dimensions for 1 text" in run.stderr

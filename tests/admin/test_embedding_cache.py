"""Nothing is paid for twice: the cache of embeddings, the bill, and providers that fail, from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rag.models.embed.embedding_cache import cache_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Behaviour, Endpoint, Reply

pytestmark = pytest.mark.slow

TOKENS = 10  # that the provider reports for each text


@dataclass(frozen=True, slots=True)
class Shop:
    """A data folder, documents, and a provider with a price."""

    desk: Desk
    folder: Path
    provider: Endpoint

    def write(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.md").write_text(f"# {name}\n\nThe story of {name}.\n")

    def config(self, *more: str, **changes: str) -> Path:
        table = {"provider": "openai", "model": "beta", "base_url": self.provider.url} | changes
        lines = ["[embedder]", "price = 50.0", *(f'{key} = "{value}"' for key, value in table.items()), *more]
        file = self.folder.parent / "config.toml"
        file.write_text("\n".join(lines))
        return file

    def ingest(self, *options: str, config: Path | None = None, code: int = 0) -> Any:  # noqa: ANN401 any JSON
        """What a run prints, and in `sent` what was sent after the probe."""
        self.provider.requests.clear()
        printed = self.desk.json(
            "ingest", self.folder, "--config", config or self.config(), *options, code=code
        )
        sent = [text for request in self.provider.requests for text in request["input"]][1:]
        return printed | {"sent": sent}


def reporting(request: dict[str, Any], endpoint: Endpoint) -> Reply:
    status, headers, body = endpoint.embedding(request)
    usage = {"usage": {"prompt_tokens": TOKENS * len(request["input"])}}
    return status, headers, json.dumps(json.loads(body) | usage).encode()


@pytest.fixture
def shop(inside: Desk, provider: Endpoint, tmp_path: Path) -> Shop:
    folder = tmp_path / "documents"
    folder.mkdir()
    provider.script = [lambda request: reporting(request, provider)]
    made = Shop(inside, folder, provider)
    made.write("ann", "bob", "cid")
    return made


def test_after_a_collection_was_removed_it_is_made_again_without_sending_a_text(shop: Shop) -> None:
    first = shop.ingest()
    bill = {"texts": 3, "tokens": 30, "cached": 0, "unreported": 0, "price": 50.0, "cost": 0.0015}
    assert (len(first["sent"]), first["embedding"]) == (3, bill)
    found = shop.desk.json("search", "story of bob", "--config", shop.config())["results"]
    shop.desk.run("collection", "remove", "documents", "--yes")
    again = shop.ingest()
    assert (again["sent"], again["embedding"]["cached"], again["embedding"]["cost"]) == ([], 3, 0.0)
    same = shop.desk.json("search", "story of bob", "--config", shop.config())["results"]
    assert [one["similarity"] for one in same] == [one["similarity"] for one in found]


def test_without_a_cache_everything_is_sent_again_and_the_file_is_gone(shop: Shop) -> None:
    shop.ingest()
    assert cache_file(shop.desk.data).exists()
    shop.desk.run("collection", "remove", "documents", "--yes")
    off = shop.config("[ingest]", "embedding_cache_bytes = 0")
    assert len(shop.ingest(config=off)["sent"]) == 3
    assert not cache_file(shop.desk.data).exists()


def test_a_purge_removes_the_embeddings_of_removed_documents_and_of_removed_collections(shop: Shop) -> None:
    shop.ingest()
    shop.ingest("--collection", "others")
    (shop.folder / "ann.md").unlink()
    for name in ("documents", "others"):
        shop.ingest("--collection", name)
        shop.desk.run("purge", "--collection", name)
    shop.write("ann")
    assert [text.split("\n")[0] for text in shop.ingest()["sent"]] == ["ann"]
    for name in ("documents", "others"):
        shop.desk.run("collection", "remove", name, "--yes")
    assert not shop.ingest()["sent"]
    shop.desk.run("collection", "remove", "documents", "--yes")
    shop.desk.run("purge")
    assert len(shop.ingest()["sent"]) == 3


def test_a_model_that_was_replaced_behind_its_name_gets_nothing_from_the_cache(shop: Shop) -> None:
    def other(request: dict[str, Any]) -> Reply:
        return reporting({"input": [text[::-1] + " qq ww ee" for text in request["input"]]}, shop.provider)

    shop.ingest()
    shop.desk.run("collection", "remove", "documents", "--yes")
    shop.provider.script = [other]
    again = shop.ingest()
    assert len(again["sent"]) == 3
    assert any("another model behind its name" in note for note in again["notes"])


def test_a_provider_that_dies_leaves_what_it_embedded_and_the_next_run_goes_on_there(
    shop: Shop,
) -> None:
    """Batches of one text: the first two are answered, then the key is refused."""
    config = shop.config("batch_size = 1")
    honest: Behaviour = lambda request: reporting(request, shop.provider)  # noqa: E731 two of them
    shop.provider.script = [honest, honest, honest, shop.provider.failing(403)]
    run = shop.desk.run("ingest", shop.folder, "--config", config, code=1)
    assert "HTTP 403; check the API key" in run.stderr
    assert "Run the same command again: it goes on there." in run.stderr
    assert "Embedding: 2 texts sent (20 tokens, cost 0.001)" in run.stdout
    shop.provider.script = [honest]
    again = shop.ingest(config=config)
    assert len(again["sent"]) == 1
    assert {one["outcome"] for one in again["files"]} <= {"added", "unchanged"}
    assert len(shop.desk.paths()) == 3


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    found = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in found}


def test_an_estimate_tells_before_the_first_run_what_it_costs_and_stores_and_sends_nothing(
    shop: Shop,
) -> None:
    shop.write("dan")
    (shop.folder / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    (shop.folder / "same.md").write_text((shop.folder / "dan.md").read_text())
    found = shop.desk.json("ingest", shop.folder, "--estimate", "--config", shop.config(), code=3)
    assert not shop.provider.requests
    assert not shop.desk.data.exists()
    assert (found["documents"], found["failed"], found["chunks"], found["cached"]) == (5, 1, 5, 1)
    assert found["seconds"] is None
    run = shop.ingest(code=3)
    assert len(run["sent"]) == found["chunks"] - found["cached"]
    assert 0 < found["cost"] == found["tokens"] * 50 / 1e6


def test_an_estimate_knows_what_is_stored_moved_or_in_the_cache(shop: Shop) -> None:
    shop.ingest()
    shop.write("dan")
    (shop.folder / "sub").mkdir()
    (shop.folder / "ann.md").rename(shop.folder / "sub" / "ann.md")
    before = _files(shop.desk.data)
    found = shop.desk.json("ingest", shop.folder, "--estimate", "--config", shop.config())
    assert (found["documents"], found["unchanged"], found["chunks"], found["cached"]) == (1, 3, 1, 0)
    assert found["seconds"] is not None
    assert _files(shop.desk.data) == before
    shop.desk.run("collection", "remove", "documents", "--yes")
    printed = shop.desk.run("ingest", shop.folder, "--estimate", "--config", shop.config()).stdout
    assert "4 documents to store, 0 unchanged.\n4 chunks, 3 of them in the cache or twice. At most" in printed
    assert printed.endswith("Nothing was stored or sent.\n")


def test_an_estimate_with_the_built_in_model_has_a_time_and_no_cost(shop: Shop) -> None:
    found = shop.desk.json("ingest", shop.folder, "--estimate")
    assert (found["documents"], found["cost"], found["seconds"] > 0) == (3, None, True)


def test_an_estimate_refuses_options_that_it_can_not_follow(shop: Shop, tmp_path: Path) -> None:
    run = shop.desk.run("ingest", shop.folder, "--estimate", "--report", tmp_path / "a.html", code=2)
    assert "--estimate goes with none of" in run.stderr

"""Embedders by name, remote ones that fail or give no vector, and the cache: nothing is paid for twice."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rag.ingest.report import Outcome, vector_notes
from rag.models.embed.embedding_cache import cache_file
from rag.models.endpoint import NO_KEY_SENT
from tests.endpoint import embedded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Behaviour, Endpoint, Reply

pytestmark = pytest.mark.slow


HOUSE = {"a.md": "# Clocks\n\nThe pendulum clock needs oil.\n"}


@dataclass(frozen=True, slots=True)
class House:
    """A data folder, a folder of documents, and settings with a remote embedder called german."""

    desk: Desk
    folder: Path
    provider: Endpoint

    def settings(self, name: str = "german", **changes: str) -> Path:
        table = {"provider": "openai", "model": "beta", "base_url": self.provider.url} | changes
        lines = [f"[embedders.{name}]", *(f'{key} = "{value}"' for key, value in table.items())]
        file = self.folder.parent / f"{name}.toml"
        file.write_text("\n".join(lines))
        return file

    def results(self, file: Path) -> list[dict[str, Any]]:
        return self.desk.hits("pendulum", "--config", file)


@pytest.fixture
def house(inside: Desk, provider: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr("rag.search.query_vectors.HURRIED_SECONDS", 10)  # the machine may be busy
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.md").write_text(HOUSE["a.md"])
    provider.script = [provider.embedding]
    return House(inside, folder, provider)


def test_a_collection_is_made_ingested_and_searched_with_the_embedder_that_it_names(house: House) -> None:
    config = house.settings()
    letters = house.desk.json("collection", "create", "letters", "--embedder", "german", "--config", config)
    assert (letters["embedder_name"], letters["embedder"]["model"]) == ("german", "beta")
    house.provider.requests.clear()
    house.desk.run("ingest", house.folder, "--collection", "letters", "--config", config)
    assert {request["model"] for request in house.provider.requests} == {"beta"}
    letter = house.folder / "a.md"
    letter.write_text(f"{letter.read_text()}\nMore.\n")  # equal passages would be one result
    house.desk.run("ingest", house.folder, "--config", config)
    hits = house.results(config)
    assert {hit["collection"] for hit in hits} == {"letters", "documents"}
    assert all("similarity" in hit for hit in hits)
    table = house.desk.run("collection", "list", "--config", config).stdout
    assert [line.split()[3] for line in table.splitlines()] == ["EMBEDDER", "default", "german"]
    assert "german: openai beta" in house.desk.run("status", "--config", config).stdout
    assert house.desk.json("status", "--config", config)["collections"][1]["embedder_name"] == "german"


def test_keys_come_from_an_environment_file_unless_the_environment_has_them(
    house: House, tmp_path: Path
) -> None:
    config, secrets, data = (
        house.settings(api_key_env="GERMAN_KEY"),
        tmp_path / "secrets.env",
        house.desk.data,
    )
    secrets.write_text("\ufeff# keys\nexport GERMAN_KEY='${in-the-file}'\n\nREFDESK_SEARCH_LIMIT=1\n")
    options = ("--config", config, "--env-file", secrets, "--data", data)

    def run(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        house.provider.headers.clear()
        process = house.desk.scripts.admin(*arguments, *options, env={"HOME": str(tmp_path)} | env)
        assert process.returncode == 0, process.stderr
        return process

    (house.folder / "b.md").write_text("# Watches\n\nThe pendulum watch needs oil.\n")
    warnings = run("ingest", house.folder, "--embedder", "german").stderr
    assert f"Other users can access the environment file {secrets}. Fix it: chmod 600" in warnings
    assert {*house.provider.keys} == {"Bearer ${in-the-file}"}
    secrets.chmod(0o600)
    assert "must also set" not in run("connect", "cursor", "--yes").stderr
    checked = json.loads(run("connect", "cursor", "--check", "--json").stdout)  # as the host starts it
    assert (checked["passages"], {*house.provider.keys}) == (1, {"Bearer ${in-the-file}"})
    run("search", "oil", GERMAN_KEY="in-the-environment")
    assert {*house.provider.keys} == {"Bearer in-the-environment"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "There is no environment file"), ("A=1\nsecret words\n", "Line 2 of the environment file")],
)
def test_a_wrong_environment_file_ends_the_command_and_shows_nothing_of_it(
    desk: Desk, tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "secrets.env"
    if content is not None:
        file.write_text(content)
    refusal = desk.misuse("status", "--env-file", file)
    assert reason in refusal
    assert "secret words" not in refusal


def test_every_command_says_that_a_table_is_gone_and_how_the_collection_follows_its_new_name(
    house: House,
) -> None:
    config = house.settings()
    house.desk.run("collection", "create", "letters", "--embedder", "german", "--config", config)
    house.desk.run("ingest", house.folder, "--collection", "letters", "--config", config)
    renamed = house.settings("deutsch")
    assert [hit.get("similarity") for hit in house.results(renamed)] == [None]
    assert "german (not in the settings)" in house.desk.run("collection", "list", "--config", renamed).stdout
    assert "no table [embedders.german]" in house.desk.run("status", "--config", renamed).stdout
    checked = house.desk.run("config", "check", "--config", renamed, code=1).stdout
    assert "ok     embedder deutsch: openai beta, 16 dimensions" in checked
    assert "wrong  collection letters: " in checked
    advice = "refdesk-admin collection set letters --embedder NAME"
    assert advice in checked
    refused = house.desk.run("ingest", house.folder, "--collection", "letters", "--config", renamed, code=2)
    assert advice in refused.stderr
    before = len(house.provider.requests)
    followed = house.desk.run(
        "collection", "set", "letters", "--embedder", "deutsch", "--config", renamed
    ).stdout
    assert followed == "Set the embedder of the collection letters.\n"
    assert len(house.provider.requests) == before + 1  # to learn the dimension
    assert [hit["similarity"] > 0 for hit in house.results(renamed)] == [True]
    assert house.desk.json("audit", "show")["acts"][-1]["act"] == "collection set"


def test_another_model_is_no_new_name_of_an_embedder(house: House) -> None:
    config = house.settings()
    house.desk.run("collection", "create", "letters", "--embedder", "german", "--config", config)
    gamma = house.settings("other", model="gamma")
    refused = house.desk.run("collection", "set", "letters", "--embedder", "other", "--config", gamma, code=2)
    assert "was made with the embedder openai beta (16 dimensions)" in refused.stderr
    refused = house.desk.run("collection", "set", "letters", "--embedder", "default", code=2)
    assert "[embedder] in the settings is builtin all-MiniLM-L6-v2" in refused.stderr
    assert house.desk.json("collection", "show", "letters")["embedder_name"] == "german"


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["create", "letters", "--embedder", "swiss"], "there is no table [embedders.swiss]"),
        (["set", "letters", "--embedder", "swiss"], "Embedders: default, german,"),
        (["set", "letters"], "--embedder, --chunking, --language"),
    ],
)
def test_an_embedder_that_is_not_in_the_settings_is_refused(
    house: House, arguments: list[str], saying: str
) -> None:
    config = house.settings()
    if arguments[0] == "set":
        house.desk.run("collection", "create", "letters", "--config", config)
    refused = house.desk.run("collection", *arguments, "--config", config, code=2)
    assert saying in refused.stderr


def test_the_default_embedder_has_no_second_table(house: House) -> None:
    refused = house.desk.run("status", "--config", house.settings("default"), code=2)
    assert "'default' is the name of the embedder in [embedder]; give this one another name" in refused.stderr


def test_a_mistake_in_a_table_is_named_with_its_line(house: House) -> None:
    refused = house.desk.run("status", "--config", house.settings(modell="beta"), code=2)
    assert "line 5: there is no setting embedders.german.modell; did you mean embedders.german.model?" in (
        refused.stderr
    )


def test_a_vector_in_a_file_or_on_a_pipe_is_searched_for(house: House, tmp_path: Path) -> None:
    config = house.settings()
    house.desk.run("collection", "create", "letters", "--embedder", "german", "--config", config)
    house.desk.run("ingest", house.folder, "--collection", "letters", "--config", config)
    (hit,) = house.desk.hits("oil", "--vectors", "--config", config)
    file = tmp_path / "vector.json"
    file.write_text(json.dumps([5 * part for part in hit["vector"]]))
    requests = len(house.provider.requests)
    answer = house.desk.json("search", "--vector", file, "--config", config)
    assert [hit["similarity"] for hit in answer["results"]] == [pytest.approx(1, abs=1e-4)]
    assert len(house.provider.requests) == requests
    file.write_text("[1, 2]")
    refused = house.desk.misuse("search", "--vector", file)
    assert (
        "The vector has 2 dimensions; the vectors of these collections have others: letters: 16." in refused
    )
    for wrong in ("[1, true]", "{}", "[1, [2]]", "1", "", "[1,"):
        file.write_text(wrong)
        assert "is not a JSON array of numbers" in house.desk.misuse("search", "--vector", file)
    assert "can't be read: No such file" in house.desk.misuse("search", "--vector", "gone")
    assert "Missing argument 'QUERY'" in house.desk.misuse("search")
    file.write_text("[NaN, 1]")
    assert "finite numbers only" in house.desk.misuse("search", "--vector", file)


def test_config_check_measures_what_the_baseline_should_be(house: House) -> None:
    honest = house.provider.embedding

    def lifted(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = honest(request)
        data = json.loads(body)["data"]
        vectors = [{**item, "embedding": [*item["embedding"], 6.0]} for item in data]
        return status, headers, json.dumps({"data": vectors}).encode()

    house.desk.run("tenant", "create", "default")
    house.provider.script = [lifted]
    checks = house.desk.run("config", "check", "--config", house.settings(), code=0).stdout
    advice = re.search(r"unrelated texts have a cosine of 0\.\d\d, so set (baseline = 0\.\d\d)", checks)
    assert advice
    config = house.settings()
    config.write_text(f"{config.read_text()}\n{advice[1]}\n")
    assert "unrelated" not in house.desk.run("config", "check", "--config", config, code=0).stdout


FILES = 60
BAD = "cursed"


def answering(request: dict[str, Any], *, bad: str = BAD) -> Reply:
    """Vectors of counted letters, NaN for texts with the bad word."""
    return embedded(
        [
            [float("nan")] * 26 if bad in text else [text.count(chr(97 + n)) + 0.01 for n in range(26)]
            for text in request["input"]
        ]
    )


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
    bad = Outcome(f"{notes}/40.md", "added", without_vector=1)
    assert f"Note: {next(vector_notes([bad]))}" in run.stderr
    (hit,) = desk.hits("pendulum", "--mode", "sparse", *remote)
    assert BAD in hit["text"]
    hybrid = desk.hits("pendulum", *remote)
    assert BAD in hybrid[0]["text"]
    dense = desk.hits("pendulum", "--mode", "dense", "--limit", "50", *remote)
    assert len(dense) == 50
    assert not any(BAD in hit["text"] for hit in dense)
    assert desk.json("status", *remote)["collections"][0]["without_vector"] == 1
    assert "1 chunk of documents found by words only" in desk.run("status", *remote).stdout

    provider.script = [lambda request: answering(request, bad="nothing has this")]
    provider.requests.clear()
    again = desk.run("ingest", notes, *remote)
    assert f"1 replaced, {FILES - 1} unchanged" in again.stdout
    assert [len(request["input"]) for request in provider.requests] == [1, 1]  # the first opens it
    dense = desk.hits(f"A {BAD} pendulum.", "--mode", "dense", *remote)
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
    new_shop = Shop(inside, folder, provider)
    new_shop.write("ann", "bob", "cid")
    return new_shop


def test_after_a_collection_was_removed_it_is_made_again_without_sending_a_text(shop: Shop) -> None:
    first = shop.ingest()
    bill = {"texts": 3, "tokens": 30, "cached": 0, "unreported": 0, "price": 50.0, "cost": 0.0015}
    assert (len(first["sent"]), first["embedding"]) == (3, bill)
    first_hits = shop.desk.hits("story of bob", "--config", shop.config())
    shop.desk.run("collection", "remove", "documents", "--yes")
    again = shop.ingest()
    assert (again["sent"], again["embedding"]["cached"], again["embedding"]["cost"]) == ([], 3, 0.0)
    same = shop.desk.hits("story of bob", "--config", shop.config())
    assert [hit["similarity"] for hit in same] == [hit["similarity"] for hit in first_hits]


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
    def impostor(request: dict[str, Any]) -> Reply:
        return reporting({"input": [text[::-1] + " qq ww ee" for text in request["input"]]}, shop.provider)

    shop.ingest()
    shop.desk.run("collection", "remove", "documents", "--yes")
    shop.provider.script = [impostor]
    again = shop.ingest()
    assert len(again["sent"]) == 3
    assert any("another model behind its name" in note for note in again["notes"])


def test_a_provider_that_dies_leaves_what_it_embedded_and_the_next_run_goes_on_there(shop: Shop) -> None:
    """The provider takes one text at a time. It answers the probe and two texts, then it refuses the key."""
    config = shop.config()
    answers = iter(range(3))

    def dying(request: dict[str, Any]) -> Reply:
        if len(request["input"]) > 1:
            return 413, {}, b""
        if next(answers, None) is None:
            return shop.provider.failing(403)(request)
        return reporting(request, shop.provider)

    honest: Behaviour = lambda request: reporting(request, shop.provider)  # noqa: E731 two of them
    shop.provider.script = [dying]
    run = shop.desk.run("ingest", shop.folder, "--config", config, code=1)
    assert f"HTTP 403{NO_KEY_SENT}" in run.stderr
    assert "Run the same command again: it goes on there." in run.stderr
    assert "Embedding: 2 texts sent (20 tokens, cost 0.001)" in run.stdout
    shop.provider.script = [honest]
    again = shop.ingest(config=config)
    assert len(again["sent"]) == 1
    assert {file["outcome"] for file in again["files"]} <= {"added", "unchanged"}
    assert len(shop.desk.paths()) == 3


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def test_an_estimate_tells_before_the_first_run_what_it_costs_and_stores_and_sends_nothing(
    shop: Shop,
) -> None:
    shop.write("dan")
    (shop.folder / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    (shop.folder / "same.md").write_text((shop.folder / "dan.md").read_text())
    estimate = shop.desk.json("ingest", shop.folder, "--estimate", "--config", shop.config(), code=3)
    assert not shop.provider.requests
    assert not shop.desk.data.exists()
    assert (estimate["documents"], estimate["failed"], estimate["chunks"], estimate["cached"]) == (5, 1, 5, 1)
    assert estimate["seconds"] is None
    run = shop.ingest(code=3)
    assert len(run["sent"]) == estimate["chunks"] - estimate["cached"]
    assert 0 < estimate["cost"] == estimate["tokens"] * 50 / 1e6


def test_an_estimate_knows_what_is_stored_moved_or_in_the_cache(shop: Shop) -> None:
    shop.ingest()
    shop.write("dan")
    (shop.folder / "sub").mkdir()
    (shop.folder / "ann.md").rename(shop.folder / "sub" / "ann.md")
    before = _files(shop.desk.data)
    estimate = shop.desk.json("ingest", shop.folder, "--estimate", "--config", shop.config())
    assert (estimate["documents"], estimate["unchanged"], estimate["chunks"], estimate["cached"]) == (
        1,
        3,
        1,
        0,
    )
    assert estimate["seconds"] is not None
    assert _files(shop.desk.data) == before
    shop.desk.run("collection", "remove", "documents", "--yes")
    printed = shop.desk.run("ingest", shop.folder, "--estimate", "--config", shop.config()).stdout
    assert "4 documents to store, 0 unchanged.\n4 chunks, 3 of them in the cache or twice. At most" in printed
    assert printed.endswith("Nothing was stored or sent.\n")


def test_an_estimate_with_the_built_in_model_has_a_time_and_no_cost(shop: Shop) -> None:
    estimate = shop.desk.json("ingest", shop.folder, "--estimate")
    assert (estimate["documents"], estimate["cost"], estimate["seconds"] > 0) == (3, None, True)


def test_an_estimate_refuses_options_that_it_can_not_follow(shop: Shop, tmp_path: Path) -> None:
    run = shop.desk.run("ingest", shop.folder, "--estimate", "--report", tmp_path / "a.html", code=2)
    assert "--estimate can't be combined with" in run.stderr

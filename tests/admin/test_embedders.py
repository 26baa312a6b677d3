"""Embedders by name, from outside: a collection names one, is made and searched with it, and follows it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Endpoint

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
        found: list[dict[str, Any]] = self.desk.json("search", "pendulum", "--config", file)["results"]
        return found


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
    made = house.desk.json("collection", "create", "letters", "--embedder", "german", "--config", config)
    assert (made["embedder_name"], made["embedder"]["model"]) == ("german", "beta")
    house.provider.requests.clear()
    house.desk.run("ingest", house.folder, "--collection", "letters", "--config", config)
    assert {one["model"] for one in house.provider.requests} == {"beta"}
    house.desk.run("ingest", house.folder, "--config", config)
    found = house.results(config)
    assert {one["collection"] for one in found} == {"letters", "documents"}
    assert all("similarity" in one for one in found)
    shown = house.desk.run("collection", "list", "--config", config).stdout
    assert [line.split()[3] for line in shown.splitlines()] == ["EMBEDDER", "default", "german"]
    assert "german: openai beta" in house.desk.run("status", "--config", config).stdout
    assert house.desk.json("status", "--config", config)["collections"][1]["embedder_name"] == "german"


def test_every_command_says_that_a_table_is_gone_and_how_the_collection_follows_its_new_name(
    house: House,
) -> None:
    config = house.settings()
    house.desk.run("collection", "create", "letters", "--embedder", "german", "--config", config)
    house.desk.run("ingest", house.folder, "--collection", "letters", "--config", config)
    renamed = house.settings("deutsch")
    assert [one.get("similarity") for one in house.results(renamed)] == [None]
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
    assert [one["similarity"] > 0 for one in house.results(renamed)] == [True]
    assert house.desk.json("audit", "show")["acts"][-1]["act"] == "collection set"


def test_another_model_is_no_new_name_of_an_embedder(house: House) -> None:
    config = house.settings()
    house.desk.run("collection", "create", "letters", "--embedder", "german", "--config", config)
    other = house.settings("other", model="gamma")
    refused = house.desk.run("collection", "set", "letters", "--embedder", "other", "--config", other, code=2)
    assert "was made with the embedder openai beta (16 dimensions)" in refused.stderr
    refused = house.desk.run("collection", "set", "letters", "--embedder", "default", code=2)
    assert "[embedder] in the settings is builtin all-MiniLM-L6-v2" in refused.stderr
    assert house.desk.json("collection", "show", "letters")["embedder_name"] == "german"


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["create", "letters", "--embedder", "swiss"], "there is no table [embedders.swiss]"),
        (["set", "letters", "--embedder", "swiss"], "Embedders: default, german."),
        (
            ["set", "letters"],
            "Give --description, --link, --embedder, --chunking, --language, --field, --no-field,",
        ),
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
    (found,) = house.desk.json("search", "oil", "--vectors", "--config", config)["results"]
    file = tmp_path / "vector.json"
    file.write_text(json.dumps([5 * part for part in found["vector"]]))
    asked = len(house.provider.requests)
    answer = house.desk.json("search", "--vector", file, "--config", config)
    assert [one["similarity"] for one in answer["results"]] == [pytest.approx(1, abs=1e-4)]
    assert len(house.provider.requests) == asked
    file.write_text("[1, 2]")
    refused = house.desk.run("search", "--vector", file, code=2).stderr
    assert (
        "The vector has 2 dimensions; the vectors of these collections have others: letters: 16." in refused
    )
    for wrong in ("[1, true]", "{}", "[1, [2]]", "1", "", "[1,"):
        file.write_text(wrong)
        assert "is not a JSON array of numbers" in house.desk.run("search", "--vector", file, code=2).stderr
    assert "can't be read: No such file" in house.desk.run("search", "--vector", "gone", code=2).stderr
    assert "Missing argument 'QUERY'" in house.desk.run("search", code=2).stderr
    file.write_text("[NaN, 1]")
    assert "finite numbers only" in house.desk.run("search", "--vector", file, code=2).stderr


def test_config_check_measures_what_the_baseline_should_be(house: House) -> None:
    honest = house.provider.embedding

    def lifted(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = honest(request)
        data = json.loads(body)["data"]
        vectors = [{**one, "embedding": [*one["embedding"], 6.0]} for one in data]
        return status, headers, json.dumps({"data": vectors}).encode()

    house.desk.run("tenant", "create", "default")
    house.provider.script = [lifted]
    said = house.desk.run("config", "check", "--config", house.settings(), code=0).stdout
    advice = re.search(r"unrelated texts have a cosine of 0\.\d\d, so set (baseline = 0\.\d\d)", said)
    assert advice
    config = house.settings()
    config.write_text(f"{config.read_text()}\n{advice[1]}\n")
    assert "unrelated" not in house.desk.run("config", "check", "--config", config, code=0).stdout

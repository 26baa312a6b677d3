"""`refdesk-admin collection rebuild --model`: another model's vectors beside the present ones, and back.

The other models are the built-in one with another pooling: real graphs, with their publisher's files.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import onnx
import pytest
from anyio import to_thread
from onnx import TensorProto, helper

from rag.config.settings import Settings
from rag.corpus import Principal
from rag.models.tokenizer import BUILTIN_MODEL
from rag.search.desk import Desk as SearchDesk

if TYPE_CHECKING:
    from pathlib import Path

    from rag.answers import Answer
    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow
REBUILD = ("collection", "rebuild", "documents")
QUESTIONS = """
[[questions]]
text = "mending the ninth gadget"
expect = ["9.md"]

[[questions]]
text = "What does widget 3 weigh?"
expect = ["3.md"]
"""


@pytest.fixture(scope="module")
def first_token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model as a graph without pooling, whose publisher says that the first token counts."""
    folder = tmp_path_factory.mktemp("models") / "first"
    (folder / "1_Pooling").mkdir(parents=True)
    model = onnx.load(BUILTIN_MODEL / "model.onnx")
    tokens = next(node.input[0] for node in model.graph.node if node.op_type == "ReduceMean")
    del model.graph.node[-2:], model.graph.output[:]
    model.graph.node.append(helper.make_node("Identity", [tokens], ["last_hidden_state"]))
    shape: list[str | int | None] = ["texts", "tokens", 384]
    model.graph.output.append(helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape))
    onnx.save(model, folder / "model.onnx")
    shutil.copy(BUILTIN_MODEL / "tokenizer.json", folder)
    (folder / "config.json").write_text('{"max_position_embeddings": 512}')
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


@pytest.fixture
def house(inside: Desk, first_token: Path, tmp_path: Path) -> Desk:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(1, 10):
        text = f"It weighs {number * 3} grams. To repair it, replace the spring S{number}."
        (docs / f"{number}.md").write_text(f"# Widget {number}\n\n{text}\n")
    inside.run("ingest", docs)
    inside.run("model", "add", first_token)
    return inside


def collection(desk: Desk) -> dict[str, Any]:
    shown: dict[str, Any] = desk.json("collection", "show", "documents")
    return shown


def test_another_model_is_tried_beside_judged_used_and_taken_back(house: Desk, tmp_path: Path) -> None:
    questions = tmp_path / "questions.toml"
    questions.write_text(QUESTIONS)
    before = collection(house)
    tried = house.run(*REBUILD, "--model", "first", "--questions", questions, "--if-better", code=1)
    assert "Run 2 (default, hybrid) against Run 1 (default, hybrid): nDCG@10" in tried.stdout
    assert "Searches use the present tables of documents still." in tried.stdout
    kept = collection(house)
    assert kept.pop("coming")["embedder"].startswith("first-")
    assert kept == before
    done = house.json(*REBUILD, "--model", "first", "--questions", questions)
    assert (done["switched"], done["copied"], len(done["runs"])) == (True, 9, 2)
    assert done["comparison"]["one"] == 3
    after = collection(house)
    assert (after["embedder_name"], after["embedder"]["provider"]) == ("first", "onnx")
    assert 0.3 < after["calibration"]["unrelated"] < after["calibration"]["related"] < 0.95
    assert "in use: collection documents" in house.run("model", "remove", "first", code=2).stderr
    assert house.json("ingest", tmp_path / "docs")["counts"]["unchanged"] == 9
    assert "first" not in house.run("config", "check").stdout
    house.run("doctor")
    line = house.run(*REBUILD, "--undo").stdout
    assert line.startswith("Went back to the former tables of the collection documents: 9 documents, 0 cut")
    back = collection(house)
    assert back.pop("former")["embedder"].startswith("first-")
    assert back == before
    house.run(*REBUILD, "--undo")
    assert collection(house)["calibration"] == after["calibration"]


def test_a_server_that_runs_meanwhile_uses_the_model_and_goes_by_words_without_it(
    house: Desk, tmp_path: Path
) -> None:
    async def asked(desk: SearchDesk) -> Answer:
        return await desk.search(Principal("default"), "mending the ninth gadget")

    async def work() -> tuple[Answer, Answer, Answer]:
        settings = Settings(data=house.data)  # which has no table of the model
        async with SearchDesk.open(settings) as desk:
            before = await asked(desk)
            await to_thread.run_sync(partial(house.run, *REBUILD, "--model", "first"))
            after = await asked(desk)
        installed.rename(tmp_path / "away")
        async with SearchDesk.open(settings) as desk:
            return before, after, await asked(desk)

    installed = house.data / "models" / "first"
    builtin, switched, without = anyio.run(work)
    assert all(hit.similarity is not None for hit in (*builtin.hits, *switched.hits))
    assert [hit.similarity for hit in builtin.hits] != [hit.similarity for hit in switched.hits]
    assert not any(hit.similarity for hit in without.hits)
    assert "because their embedding model is not set up: documents." in without.notes[0]
    status = house.run("status").stdout
    assert "searched by words only: the settings have no table [embedders.first], and no model" in status
    assert "no installed model of that name" in house.run(*REBUILD, "--restart", code=2).stderr


def test_a_mistake_is_named(inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nA text.\n")
    inside.run("ingest", tmp_path / "a.md")
    for options, saying in (
        (("--model", "nobody"), "no installed model of that name (refdesk-admin model list)"),
        (("--model", "../../first"), "no installed model of that name"),
        (("--if-better",), "--if-better needs --questions FILE"),
        (("--undo", "--questions", "/dev/null"), "--undo takes neither --model nor --chunking nor"),
    ):
        assert saying in inside.run(*REBUILD, *options, code=2).stderr
    assert "coming" not in json.dumps(collection(inside))

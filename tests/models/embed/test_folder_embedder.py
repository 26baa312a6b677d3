"""Tiny ONNX models as people export them: a token's vector is a row of a readable table."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rag.config.settings import EmbedderSettings
from rag.errors import ConfigurationError
from rag.models.embed import open_embedder
from rag.models.tokens import BUILTIN_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    from onnx import NodeProto

    Row = npt.NDArray[np.float32]

pytestmark = pytest.mark.anyio

BERT = ("input_ids", "attention_mask", "token_type_ids")
POSITIONS = 64
CLOCK, CLS, SEP = 5119, 101, 102  # what the built-in tokenizer calls them
TABLE = np.array([[id_ % 7, id_ % 5, id_ % 3, 1] for id_ in range(30522)], np.float32)


def write_model(
    folder: Path, inputs: Sequence[str] = BERT, outputs: Sequence[str] = ("last_hidden_state",)
) -> Path:
    """An export without pooling, or with it if an output is called sentence_embedding.

    Like the real thing it fails on more than POSITIONS tokens.
    """
    folder.mkdir()
    nodes: list[NodeProto] = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1),
        helper.make_node("Slice", ["positions", "from", "length"], ["places"]),
        helper.make_node("Add", ["words", "places"], ["last_hidden_state"]),
        helper.make_node("ReduceMax", ["last_hidden_state"], ["sentence_embedding"], axes=[1], keepdims=0),
    ]
    shapes: dict[str, list[str | int | None]] = {
        "last_hidden_state": ["texts", "tokens", 4],
        "sentence_embedding": ["texts", 4],
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.zeros((POSITIONS, 4), np.float32), "positions"),
            numpy_helper.from_array(np.array([0], np.int64), "from"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    shutil.copy(BUILTIN_MODEL / "tokenizer.json", folder)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": POSITIONS}))
    return folder


def settings(folder: Path, **others: int) -> EmbedderSettings:
    return EmbedderSettings.model_validate({"provider": "onnx", "path": folder} | others)


async def embedded(folder: Path, text: str) -> Row:
    async with open_embedder(settings(folder), {}) as embedder:
        row: Row = (await embedder.embed([text], "query"))[0]
        return row


def unit(row: Row) -> Row:
    scaled: Row = row / np.linalg.norm(row)
    return scaled


@pytest.mark.parametrize("inputs", [BERT, BERT[:2], BERT[:1]])
async def test_tokens_are_averaged_where_the_model_does_not_pool(
    tmp_path: Path, inputs: Sequence[str]
) -> None:
    vector = await embedded(write_model(tmp_path / "tiny", inputs), "clock")
    assert vector == pytest.approx(unit(TABLE[[CLS, CLOCK, SEP]].mean(axis=0)))


async def test_the_first_token_stands_for_the_text_where_the_folder_says_so(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert await embedded(folder, "clock") == pytest.approx(unit(TABLE[CLS]))


async def test_a_models_own_sentence_embedding_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", outputs=["last_hidden_state", "sentence_embedding"])
    assert await embedded(folder, "clock") == pytest.approx(unit(TABLE[[CLS, CLOCK, SEP]].max(axis=0)))


async def test_the_built_in_models_folder_gives_the_built_in_vectors() -> None:
    async with open_embedder(EmbedderSettings(), {}) as builtin:
        expected = (await builtin.embed(["a clock"], "query"))[0]
    assert np.array_equal(await embedded(BUILTIN_MODEL, "a clock"), expected)


async def test_the_identity_changes_with_the_content_not_with_the_place(tmp_path: Path) -> None:
    one = write_model(tmp_path / "tiny")
    other = write_model(tmp_path / "elsewhere", outputs=["sentence_embedding"])
    copy = tmp_path / "again" / "tiny"
    shutil.copytree(one, copy)
    identities = []
    for folder in (one, copy, other):
        async with open_embedder(settings(folder), {}) as embedder:
            identities.append(embedder.identity)
    assert identities[0] == identities[1]
    assert (identities[0].provider, identities[0].dimension) == ("onnx", 4)
    assert identities[0].model.startswith("tiny-")
    assert identities[0].model.removeprefix("tiny") != identities[2].model.removeprefix("elsewhere")


async def test_the_narrowest_of_settings_and_files_is_the_window(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    async with open_embedder(settings(folder, max_tokens=512), {}) as embedder:
        assert embedder.window == POSITIONS - 2
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    async with open_embedder(settings(folder), {}) as embedder:
        assert embedder.window == 30


async def test_a_window_that_the_model_cannot_take_is_found_out_at_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "config.json").unlink()
    with pytest.raises(ConfigurationError) as error:
        await embedded(folder, "clock")
    assert str(error.value) == (
        f"The model in {folder} fails on a text of 512 tokens. If its context window is smaller, lower "
        "embedder.max_tokens. Otherwise it is not a text encoder that returns one vector per text."
    )
    async with open_embedder(settings(folder, max_tokens=POSITIONS), {}) as embedder:
        assert embedder.window == POSITIONS - 2


async def test_a_model_that_needs_other_inputs_than_text_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", [*BERT, "pixel_values"])
    with pytest.raises(
        ConfigurationError,
        match=r"needs the inputs pixel_values, which refdesk lacks\..* with the inputs input_ids",
    ):
        await embedded(folder, "clock")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=name):
        await embedded(folder, "clock")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
async def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / name).write_text("no such thing")
    with pytest.raises(ConfigurationError, match=name):
        await embedded(folder, "clock")

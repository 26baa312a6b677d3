"""Tiny ONNX models as people export them: they count the word clock, so scores can be checked by hand."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from rag.config.model_settings import RerankerSettings
from rag.config.settings import Settings
from rag.errors import ConfigurationError
from rag.models.model_folder import FACTS_FILE, ModelFacts, facts_as_json, facts_of_folder
from rag.models.rerank import open_reranker
from rag.models.text_encoder import BUILTIN_MODEL, Head, Norm, layer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    from onnx import NodeProto

pytestmark = pytest.mark.anyio

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BERT = ("input_ids", "attention_mask", "token_type_ids")
POSITIONS = 512
VALUES: dict[str | None, float] = {"clock": 0.01, "sep": 0.01, "broken": math.nan, "infinite": math.inf}
WEIGHTS = [1.0, 10.0]  # of the query's and the text's tokens
TOKENIZER = Tokenizer.from_file(str(BUILTIN_MODEL / "tokenizer.json"))
TABLE = np.array([VALUES.get(TOKENIZER.id_to_token(id_), 0.0) for id_ in range(30522)], np.float32)


def nodes(inputs: Sequence[str], outputs: int) -> list[NodeProto]:
    typed = "token_type_ids" in inputs
    return [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Gather", ["weights", "token_type_ids" if typed else "from"], ["types"]),
        helper.make_node("Mul", ["words", "types"], ["weighed"]),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1),
        helper.make_node("Slice", ["positions", "from", "length"], ["places"]),
        helper.make_node("Add", ["weighed", "places"], ["placed"]),
        helper.make_node("ReduceSum", ["placed", "axis"], ["yes"], keepdims=1),
        helper.make_node("Neg", ["yes"], ["no"]),
        helper.make_node("Concat", ["no", "no", "yes"][-outputs:], ["logits"], axis=1),
    ]


def write_model(
    folder: Path,
    inputs: Sequence[str] = BERT,
    *,
    outputs: int = 1,
    name: str = "model.onnx",
    positions: int = POSITIONS,
) -> Path:
    """An export whose logit is a hundredth of the query's clocks and a tenth of the text's.

    Without token types all count a hundredth. Like the real thing it fails on more tokens than `positions`.
    """
    (folder / name).parent.mkdir(parents=True)
    graph = helper.make_graph(
        nodes(inputs, outputs),
        "tiny",
        [
            helper.make_tensor_value_info(input_name, TensorProto.INT64, ["texts", "tokens"])
            for input_name in inputs
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", outputs])],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.array(WEIGHTS, np.float32), "weights"),
            numpy_helper.from_array(np.zeros(positions, np.float32), "positions"),
            numpy_helper.from_array(np.array([0], np.int64), "from"),
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / name)
    shutil.copy(BUILTIN_MODEL / "tokenizer.json", folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny")


async def scored(folder: Path, query: str, texts: Sequence[str]) -> list[float | None]:
    settings = RerankerSettings(provider="onnx", model=str(folder))
    async with open_reranker(settings, {}) as reranker:
        assert reranker
        return await reranker.scores(query, texts)


def score(of_query: int, of_text: int) -> float:
    """The score of a pair with so many clocks."""
    return 1 / (1 + math.exp(-(of_query + 10 * of_text) / 100))


async def test_every_text_gets_the_score_of_its_own_pair(folder: Path) -> None:
    counts = [7, 0, 30, 1, 12, 3, 0, 25, 2, 9, 40, 5]
    scores = await scored(folder, "clock", ["a " + "clock " * count for count in counts])
    assert scores == pytest.approx([score(1, count) for count in counts], abs=1e-6)


async def test_no_texts_have_no_scores(folder: Path) -> None:
    assert await scored(folder, "clock", []) == []


@pytest.mark.parametrize("inputs", [BERT[:2], BERT[:1]])
async def test_a_model_is_given_no_more_than_it_wants(tmp_path: Path, inputs: Sequence[str]) -> None:
    scores = await scored(write_model(tmp_path / "tiny", inputs), "clock", ["clock clock"])
    assert scores == pytest.approx([1 / (1 + math.exp(-0.03))])


async def test_of_two_outputs_the_last_means_yes(tmp_path: Path) -> None:
    scores = await scored(write_model(tmp_path / "tiny", outputs=2), "clock", ["clock clock"])
    yes = 0.21
    assert scores == pytest.approx([math.exp(yes) / (math.exp(yes) + math.exp(-yes))])


@pytest.mark.parametrize("word", ["broken", "infinite"])
async def test_a_pair_that_the_model_says_nothing_finite_to_has_no_score(folder: Path, word: str) -> None:
    assert await scored(folder, "clock", [word, "clock"]) == [None, pytest.approx(score(1, 1))]


@pytest.mark.parametrize(
    ("of_query", "of_text", "counts"),
    [
        (1, 59, (1, 59)),
        (1, 61, (1, 60)),
        (20, 500, (20, 41)),
        (50, 11, (50, 11)),
        (50, 500, (30, 31)),
        (500, 500, (30, 31)),
        (500, 3, (58, 3)),
    ],
)
async def test_the_text_is_cut_to_the_window_and_the_query_only_where_it_takes_more_than_half(
    folder: Path, of_query: int, of_text: int, counts: tuple[int, int]
) -> None:
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    scores = await scored(folder, "clock " * of_query, ["clock " * of_text])
    assert scores == pytest.approx([score(*counts)], abs=1e-6)


async def test_special_tokens_in_a_text_are_plain_text(folder: Path) -> None:
    scores = await scored(folder, "clock", ["clock [SEP] clock"])
    assert scores == pytest.approx([score(1, 3)])


async def test_the_graph_may_lie_in_the_folder_onnx(tmp_path: Path) -> None:
    scores = await scored(write_model(tmp_path / "tiny", name="onnx/model.onnx"), "clock", ["clock"])
    assert scores == pytest.approx([score(1, 1)])


async def test_a_window_that_no_file_states_must_be_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "small", positions=300)
    with pytest.raises(ConfigurationError, match=r"fails on a pair of 512 tokens\. .*--window TOKENS"):
        await scored(folder, "clock", ["clock"])
    facts = ModelFacts(name="small", kind="reranker", window=300)
    (folder / FACTS_FILE).write_bytes(facts_as_json(facts))
    assert await scored(folder, "clock", ["clock"]) == pytest.approx([score(1, 1)])


async def test_a_model_with_other_outputs_is_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"output of shape \(1, 3\) .*, not \(1, 1\) or \(1, 2\)"):
        await scored(write_model(tmp_path / "tiny", outputs=3), "clock", ["clock"])


async def test_a_reranker_whose_head_is_not_in_the_graph_is_refused(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    del model.graph.output[:]
    shape: list[str | int | None] = ["texts", "tokens", 1]
    model.graph.output.append(helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape))
    model.graph.node.append(helper.make_node("Unsqueeze", ["placed", "axis2"], ["last_hidden_state"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "axis2"))
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(
        ConfigurationError,
        match=r"a vector per token: the head .* is not in it\. Download the folders beside",
    ):
        await scored(folder, "clock", ["clock"])


async def test_a_folder_without_a_graph_is_a_wrong_setting(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    with pytest.raises(ConfigurationError, match=r"tiny/model\.onnx does not exist\. Download or export"):
        await scored(folder, "clock", ["clock"])


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_broken_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("no")
    with pytest.raises(ConfigurationError, match=rf"{name} is not a valid .*Download or export") as error:
        await scored(folder, "clock", ["clock"])
    assert "[ONNXRuntimeError]" not in str(error.value)
    assert "expected" not in str(error.value)


async def test_a_model_that_was_not_pulled_is_named_with_the_command(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, reranker=RerankerSettings(provider="onnx", model="clocks/tiny"))
    with pytest.raises(ConfigurationError, match="Run refdesk-admin model pull clocks/tiny"):
        async with open_reranker(settings.reranker, {}):
            pass


async def test_settings_without_a_reranker_open_none() -> None:
    async with open_reranker(RerankerSettings(), {}) as reranker:
        assert reranker is None


LAYERS = ("2_Dense", "3_LayerNorm", "4_Dense")
WIDTH = 4
SQUARE = np.array([[1, 0, 2, 0], [0, 1, 0, 0], [0, 0, -1, 0], [1, 1, 0, 1]], np.float32)


def safetensors(**tensors: npt.NDArray[np.float32]) -> bytes:
    header, data = {}, b""
    for name, values in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name.replace("_", ".")] = {"dtype": "F32", "shape": values.shape, "data_offsets": offsets}
        data += values.tobytes()
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + data


def write_head(folder: Path) -> Path:
    """The form of the Ettin rerankers: dense with GELU and without bias, layer norm, dense to one score."""
    weights = {
        "2_Dense": safetensors(linear_weight=SQUARE),
        "3_LayerNorm": safetensors(
            norm_weight=np.array([1, 2, 1, 1], np.float32), norm_bias=np.array([0, 0, 0, 1], np.float32)
        ),
        "4_Dense": safetensors(
            linear_weight=np.array([[1, -1, 2, 1]], np.float32), linear_bias=np.array([0.5], np.float32)
        ),
    }
    configs = {
        "2_Dense": {
            "in_features": 4,
            "out_features": 4,
            "activation_function": "torch.nn.modules.activation.GELU",
        },
        "4_Dense": {
            "in_features": 4,
            "out_features": 1,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    }
    for name, content in weights.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_bytes(content)
        (folder / name / "config.json").write_text(json.dumps(configs.get(name, {"dimension": WIDTH})))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    kinds = ("Transformer", "Pooling", "Dense", "LayerNorm", "Dense")
    paths = ("", "1_Pooling", *LAYERS)
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def gelu(value: float) -> float:
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


def by_hand(first: list[float]) -> float:
    """The score of a pair whose first token has this vector, without numpy."""
    dense = [
        gelu(sum(weight * value for weight, value in zip(row, first, strict=True))) for row in SQUARE.tolist()
    ]
    mean = sum(dense) / WIDTH
    spread = math.sqrt(sum((value - mean) ** 2 for value in dense) / WIDTH + 1e-5)
    normed = [(value - mean) / spread for value in dense]
    normed = [normed[0], 2 * normed[1], normed[2], normed[3] + 1]
    return normed[0] - normed[1] + 2 * normed[2] + normed[3] + 0.5


@pytest.mark.parametrize("is_listed", [True, False])
def test_the_layers_are_applied_to_the_first_token(tmp_path: Path, *, is_listed: bool) -> None:
    write_head(tmp_path)
    if not is_listed:
        (tmp_path / "modules.json").unlink()
        facts = ModelFacts(name="x", kind="reranker", dense=LAYERS, pooling="cls")
        (tmp_path / FACTS_FILE).write_bytes(facts_as_json(facts))
    facts = facts_of_folder(tmp_path)
    assert (facts.dense, facts.pooling) == (LAYERS, "cls")
    head = Head("cls", tuple(layer(tmp_path / path) for path in facts.dense))
    first = [0.3, -1.2, 0.7, 2.0]
    tokens = np.array([[first, [9, 9, 9, 9], [5, 5, 5, 5]]], np.float32)
    assert head(tokens) == pytest.approx(np.array([[by_hand(first)]]), abs=1e-5)


def test_the_normal_distribution_of_gelu_is_exact(tmp_path: Path) -> None:
    dense = layer(write_head(tmp_path) / "2_Dense")
    values = np.array([[0.0, -3.0, 0.0, 0.0], [0.0, 8.0, 0.0, 0.0]], np.float32)
    assert dense(values)[:, 1] == pytest.approx([gelu(-3.0), gelu(8.0)], abs=1e-6)


def test_a_norm_of_equal_components_is_its_shift() -> None:
    norm = Norm(np.ones(3, np.float32), np.array([1, 2, 3], np.float32))
    assert norm(np.full((1, 3), 7, np.float32)) == pytest.approx(np.array([[1, 2, 3]]))


@pytest.mark.parametrize("damage", ["2_Dense", "3_LayerNorm"])
def test_a_damaged_layer_is_an_error(tmp_path: Path, damage: str) -> None:
    (write_head(tmp_path) / damage / "model.safetensors").write_bytes(b"{")
    with pytest.raises(ConfigurationError, match="Download the model again"):
        layer(tmp_path / damage)


async def test_a_graph_without_its_head_gives_no_scores(tmp_path: Path) -> None:
    for file in BUILTIN_MODEL.iterdir():
        shutil.copy(file, tmp_path)
    facts = ModelFacts(name="x", kind="reranker", revision="a" * 40)
    (tmp_path / FACTS_FILE).write_bytes(facts_as_json(facts))
    with pytest.raises(ConfigurationError, match=r"output of shape \(1, 384\)"):
        async with open_reranker(RerankerSettings(provider="onnx", model=str(tmp_path)), {}):
            pass

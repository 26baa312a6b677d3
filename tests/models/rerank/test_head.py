"""A reranker whose head is beside its graph scores as the publisher's own program does."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.config.model_settings import RerankerSettings
from rag.errors import ConfigurationError
from rag.models.embed.pooling import dense_layers
from rag.models.model_folder import FACTS_FILE, ModelFacts, facts_as_json
from rag.models.rerank import open_reranker
from rag.models.rerank.cross_encoder import Norm, head_beside
from rag.models.tokenizer import BUILTIN_MODEL

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

pytestmark = pytest.mark.anyio

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
        gelu(sum(weight * one for weight, one in zip(row, first, strict=True))) for row in SQUARE.tolist()
    ]
    mean = sum(dense) / WIDTH
    spread = math.sqrt(sum((one - mean) ** 2 for one in dense) / WIDTH + 1e-5)
    normed = [(one - mean) / spread for one in dense]
    normed = [normed[0], 2 * normed[1], normed[2], normed[3] + 1]
    return normed[0] - normed[1] + 2 * normed[2] + normed[3] + 0.5


@pytest.mark.parametrize("facts", [None, ModelFacts(name="x", kind="reranker", dense=LAYERS, pooling="cls")])
def test_the_layers_are_applied_to_the_first_token(tmp_path: Path, facts: ModelFacts | None) -> None:
    if facts:
        write_head(tmp_path)
        (tmp_path / "modules.json").unlink()
    head = head_beside(write_head(tmp_path) if facts is None else tmp_path, facts)
    assert head
    first = [0.3, -1.2, 0.7, 2.0]
    tokens = np.array([[first, [9, 9, 9, 9], [5, 5, 5, 5]]], np.float32)
    assert head(tokens) == pytest.approx(np.array([[by_hand(first)]]), abs=1e-5)


def test_a_folder_without_layers_has_no_head(tmp_path: Path) -> None:
    assert head_beside(tmp_path, None) is None
    (tmp_path / "modules.json").write_text('[{"path": "", "type": "x.Transformer"}]')
    assert head_beside(tmp_path, None) is None


def test_the_normal_distribution_of_gelu_is_exact(tmp_path: Path) -> None:
    (layer,) = dense_layers(write_head(tmp_path), ["2_Dense"])
    values = np.array([[0.0, -3.0, 0.0, 0.0], [0.0, 8.0, 0.0, 0.0]], np.float32)
    assert layer(values)[:, 1] == pytest.approx([gelu(-3.0), gelu(8.0)], abs=1e-6)


def test_a_norm_of_equal_components_is_its_shift() -> None:
    norm = Norm(np.ones(3, np.float32), np.array([1, 2, 3], np.float32))
    assert norm(np.full((1, 3), 7, np.float32)) == pytest.approx(np.array([[1, 2, 3]]))


@pytest.mark.parametrize(
    "damage", ["2_Dense/model.safetensors", "3_LayerNorm/model.safetensors", "modules.json"]
)
def test_a_damaged_head_is_an_error(tmp_path: Path, damage: str) -> None:
    (write_head(tmp_path) / damage).write_bytes(b"{")
    with pytest.raises(ConfigurationError, match="Download the model again"):
        head_beside(tmp_path, None)


async def test_a_graph_without_its_head_gives_no_scores(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(BUILTIN_MODEL / name, tmp_path)
    facts = ModelFacts(name="x", kind="reranker", revision="a" * 40)
    (tmp_path / FACTS_FILE).write_bytes(facts_as_json(facts))
    with pytest.raises(ConfigurationError, match=r"output of shape \(1, 384\)"):
        async with open_reranker(RerankerSettings(provider="onnx", path=tmp_path), {}):
            pass

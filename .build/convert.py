"""From a BERT encoder's safetensors to one int8 ONNX graph. Needed at build time only.

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
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    from onnx import ModelProto, NodeProto

Tensors: TypeAlias = "dict[str, npt.NDArray[np.float32]]"
"""Weights by name, the linear ones as (inputs, outputs)."""

FUSED = "com.microsoft"  # the domain of ONNX Runtime's transformer operators
_fused = partial(helper.make_node, domain=FUSED)
OPSET, IR_VERSION = 17, 8  # ReduceMean still has its axes as an attribute; every supported runtime reads it


def converted(safetensors: bytes, config: Mapping[str, Any]) -> bytes:
    """The int8 ONNX model of a BERT encoder with mean pooling, whose config.json is `config`.

    Its input is `input_ids`, int32 of shape (texts, tokens) without padding; its output
    `sentence_embedding`, float32 unit rows of shape (texts, hidden size).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        quantize_dynamic(
            _model(_tensors(safetensors), config),
            path,
            op_types_to_quantize=["MatMul", "Attention", "EmbedLayerNormalization"],
            per_channel=True,
            reduce_range=True,  # 8 bits overflow on x86 without VNNI: vectors would depend on the CPU
            weight_type=QuantType.QInt8,
            # Shape inference doesn't know the fused operators, so it has to be told their type.
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )
        return path.read_bytes()


def _tensors(safetensors: bytes) -> Tensors:
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


def _model(tensors: Tensors, config: Mapping[str, Any]) -> ModelProto:
    nodes = list(_nodes(config))
    used = {name for node in nodes for name in node.input}
    weights = _weights(tensors, config["num_hidden_layers"])
    graph = helper.make_graph(
        nodes,
        "sentence_encoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["texts", "tokens"])],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["texts", None])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})  # there's nothing to do
    return model


def _weights(tensors: Tensors, layers: int) -> Tensors:
    """The tensors as the graph takes them: query, key and value side by side, type 0 in the positions."""
    weights = {name: array.T if name.endswith("dense.weight") else array for name, array in tensors.items()}
    weights["positions"] = (
        tensors["embeddings.position_embeddings.weight"]
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    for layer in range(layers):
        block = f"encoder.layer.{layer}.attention.self"
        for kind in ("weight", "bias"):
            parts = [tensors[f"{block}.{part}.{kind}"].T for part in ("query", "key", "value")]
            weights[f"{block}.qkv.{kind}"] = np.concatenate(parts, axis=-1)
    return weights


def _nodes(config: Mapping[str, Any]) -> Iterable[NodeProto]:
    words, norm = "embeddings.word_embeddings.weight", "embeddings.LayerNorm"
    layers, epsilon = config["num_hidden_layers"], config["layer_norm_eps"]
    inputs = ["input_ids", "", words, "positions", "", f"{norm}.weight", f"{norm}.bias"]
    yield _fused("EmbedLayerNormalization", inputs, ["hidden.0", "unused"], epsilon=epsilon)
    for layer in range(layers):
        yield from _layer(layer, config["num_attention_heads"], epsilon)
    yield helper.make_node("ReduceMean", [f"hidden.{layers}"], ["mean"], axes=[1], keepdims=0)
    yield helper.make_node("LpNormalization", ["mean"], ["sentence_embedding"], axis=-1, p=2)


def _layer(layer: int, heads: int, epsilon: float) -> Iterable[NodeProto]:
    """One encoder layer, from `hidden.{layer}` to `hidden.{layer + 1}`."""
    block, hidden = f"encoder.layer.{layer}", f"hidden.{layer}"
    attention, inner = f"{block}.attention", f"{block}.intermediate.dense"
    qkv = [hidden, f"{attention}.self.qkv.weight", f"{attention}.self.qkv.bias"]
    yield _fused("Attention", qkv, [f"{attention}.mixed"], num_heads=heads)
    yield _linear(f"{attention}.mixed", f"{attention}.output.dense")
    yield from _residual(f"{attention}.output", hidden, f"{attention}.hidden", epsilon)
    yield _linear(f"{attention}.hidden", inner)
    yield _fused("BiasGelu", [f"{inner}.product", f"{inner}.bias"], [f"{inner}.gelu"])
    yield _linear(f"{inner}.gelu", f"{block}.output.dense")
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

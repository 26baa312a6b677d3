"""Runs text encoders in ONNX Runtime, and makes one vector of a vector per token.

One text or pair per run, one thread per run. Runs without batches need no padding. So an output never depends
on the other texts of a batch, and the throughput per core is the highest. Where the graph returns a vector
per token, pooling and the dense layers that some models have behind it follow here.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import; otherwise it writes to the home folder

import onnxruntime

from rag.corpus import Pooling
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.float32]

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
TYPES = {
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
}
"""The types of an input that refdesk can give; masks are the ones that are not always integers."""


def opened_model(path: Path) -> onnxruntime.InferenceSession:
    """The graph in `path`, ready to run from any number of threads.

    Raises:
        ConfigurationError: the file is missing or invalid, or the model needs other inputs than `INPUTS` or
            inputs of other types than `TYPES`.
    """
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # it would cache a memory plan for every text length
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        problem = "is not a valid ONNX model" if path.is_file() else "does not exist"
        raise ConfigurationError(f"The model {path} {problem}. Download or export it again.") from error
    unknown = {node.name for node in session.get_inputs() if node.type not in TYPES} | {
        node.name for node in session.get_inputs()
    } - set(INPUTS)
    if unknown:
        raise ConfigurationError(
            f"The model {path} needs the inputs {', '.join(sorted(unknown))}, which refdesk lacks. "
            f"Use a text encoder whose inputs are some of {', '.join(INPUTS)}."
        )
    return session


def run(
    session: onnxruntime.InferenceSession, output: str, ids: Sequence[int], type_ids: Sequence[int]
) -> npt.NDArray[np.float32]:
    """The named output of the graph for one text or pair, given as token ids; the first axis has length 1."""
    values = dict(zip(INPUTS, (ids, [1] * len(ids), type_ids, range(len(ids))), strict=True))
    feed: dict[str, npt.NDArray[Any]] = {
        node.name: np.array([values[node.name]], TYPES[node.type]) for node in session.get_inputs()
    }
    result: npt.NDArray[np.float32] = np.asarray(session.run([output], feed)[0], np.float32)
    return result


WEIGHTS = "model.safetensors"
MAX_WEIGHTS = 1 << 26  # bytes of one layer: 4,096 x 4,096 in float32; larger ones belong into the graph
_PARTS = {"linear.weight", "linear.bias"}


def _unchanged(values: Rows) -> Rows:
    return values


def _gelu(values: Rows) -> Rows:
    """The exact form; source: Hendrycks & Gimpel, 2016, arXiv:1606.08415."""
    tail = np.vectorize(math.erf, otypes=[np.float32])(values / math.sqrt(2))
    gelu: Rows = values * (1 + tail) / np.float32(2)
    return gelu


_ACTIVATIONS: dict[str, Callable[[Rows], Rows]] = {
    "GELU": _gelu,
    "Identity": _unchanged,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, np.float32(0)),
}


class Dense(NamedTuple):
    """A linear layer: `weight` has the shape (out, in)."""

    weight: Rows
    bias: Rows | None
    activation: Callable[[Rows], Rows]

    def __call__(self, vectors: Rows) -> Rows:
        """Shape (texts, in) -> (texts, out)."""
        values = vectors @ self.weight.T
        return self.activation(values if self.bias is None else values + self.bias)


@dataclass(frozen=True, slots=True)
class Head:
    """What follows the graph. `cut` is the number of components that are kept; 0: all."""

    pooling: Pooling
    dense: tuple[Dense, ...] = ()
    cut: int = 0

    def __call__(self, output: Rows) -> Rows:
        """From shape (1, tokens, width), or (1, width) if the graph pools, to (1, dimension)."""
        vectors = _pool(output, self.pooling)
        for layer in self.dense:
            vectors = layer(vectors)
        return vectors[:, : self.cut] if self.cut else vectors


def _pool(tokens: Rows, pooling: Pooling) -> Rows:
    match pooling:
        case "graph":
            return tokens
        case "cls":
            return tokens[:, 0]
        case "last":
            return tokens[:, -1]
        case "max":
            largest: Rows = tokens.max(axis=1)
            return largest
        case "mean":
            mean: Rows = tokens.mean(axis=1)
            return mean
        case "weighted":  # by position: the later a token, the more it has read
            weights = np.arange(1, tokens.shape[1] + 1, dtype=np.float32)
            weighted: Rows = np.average(tokens, axis=1, weights=weights).astype(np.float32)
            return weighted


def dense_layers(folder: Path, paths: Sequence[str]) -> tuple[Dense, ...]:
    """The layers in these folders below the model's.

    Raises:
        ConfigurationError: one lacks its weights, or has an activation that refdesk doesn't know.
    """
    return tuple(_dense(folder / path) for path in paths)


def _dense(folder: Path) -> Dense:
    try:
        config: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        activation = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            raise ConfigurationError(
                f"The dense layer in {folder} has the activation {activation}; refdesk knows "
                f"{', '.join(_ACTIVATIONS)}. Use an export whose graph returns sentence_embedding."
            )
        if (folder / WEIGHTS).stat().st_size > MAX_WEIGHTS:
            raise ConfigurationError(
                f"The dense layer in {folder} has over {MAX_WEIGHTS >> 20} MiB of weights, which refdesk "
                "doesn't apply. Use an export whose graph returns sentence_embedding."
            )
        tensors = read_tensors((folder / WEIGHTS).read_bytes())
        weight = tensors["linear.weight"]
        shape = (config.get("out_features"), config.get("in_features"))
        bias = tensors.get("linear.bias")
        is_layer = set(tensors) <= _PARTS and weight.shape == shape
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"The dense layer in {folder} needs its files config.json and {WEIGHTS}. Download them, too. If "
            "the publisher has other weights only, use an export whose graph returns sentence_embedding."
        ) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(_damage_message(folder)) from error
    if not is_layer:
        raise ConfigurationError(_damage_message(folder))
    return Dense(weight, bias, _ACTIVATIONS[activation])


def _damage_message(folder: Path) -> str:
    return f"The dense layer in {folder} is damaged, or none that refdesk knows. Download the model again."


def read_tensors(content: bytes) -> dict[str, Rows]:
    """The tensors of a safetensors file, in float32.

    Raises:
        ValueError, LookupError, TypeError: it isn't a safetensors file.

    Source: https://github.com/huggingface/safetensors#format: the header's size in 8 bytes, the header as
    JSON, then the data, little-endian.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {name: _tensor(content[start:], **entry) for name, entry in header.items()}


def _tensor(content: bytes, *, dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Rows:
    begin, end = data_offsets
    part = content[begin:end]
    match dtype:
        case "F32":
            values = np.frombuffer(part, "<f4")
        case "F16":
            values = np.frombuffer(part, "<f2").astype(np.float32)
        case "BF16":  # the upper half of a float32
            values = (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32)
        case _:
            raise ValueError(f"tensors of the type {dtype}")
    return values.reshape(*shape).astype(np.float32)

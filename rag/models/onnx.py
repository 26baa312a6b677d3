"""Runs text encoders in ONNX Runtime: one text or pair per run, one thread per run.

Runs without batches need no padding. So an output never depends on the other texts of a batch, and the
throughput per core is the highest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import; otherwise it writes to the home folder

from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy.typing as npt

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

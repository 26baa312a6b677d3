"""Models of the BERT family in ONNX Runtime: one text or pair per run, one thread per run.

Without padding an output doesn't depend on its company, and it is the fastest per core.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import; else it keeps a database in the user's home

import onnxruntime

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
INTEGERS = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}


def opened_model(path: Path) -> onnxruntime.InferenceSession:
    """The graph in `path`, ready to run from any number of threads.

    Raises:
        ConfigurationError: it can't be loaded, or wants what such models don't.
    """
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # it keeps a plan for every length of text
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no class in common
        raise ConfigurationError(f"The model {path} can't be loaded: {error}.") from error
    unknown = {node.name for node in session.get_inputs()} - set(INPUTS)
    if unknown:
        raise ConfigurationError(
            f"The model {path} wants {', '.join(sorted(unknown))}; refdesk can give {', '.join(INPUTS)}."
        )
    return session


def run(
    session: onnxruntime.InferenceSession, output: str, ids: Sequence[int], type_ids: Sequence[int]
) -> npt.NDArray[np.float32]:
    """What the graph says to one text or pair, given as tokens; the first axis has length 1."""
    given = dict(zip(INPUTS, (ids, [1] * len(ids), type_ids), strict=True))
    feed = {node.name: np.array([given[node.name]], INTEGERS[node.type]) for node in session.get_inputs()}
    result: npt.NDArray[np.float32] = session.run([output], feed)[0]
    return result

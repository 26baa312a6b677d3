"""Which files of a repository or folder belong to a model: the graph, its weights, and what describes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

GRAPHS = ("model.onnx", "onnx/model.onnx")
TOKENIZER = "tokenizer.json"
DESCRIBING = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "README.md",
)
STEP = re.compile(r"[1-9]_[A-Za-z]+/(config\.json|model\.safetensors)")
"""The files of the steps after the graph: 1_Pooling/config.json, 2_Dense/model.safetensors."""
SAFE = re.compile(r"(?!.*(^|/)\.)[\w.+-]+(/[\w.+-]+)*", re.ASCII)
LISTED = 12  # graphs in a message


def graph_among(paths: Collection[str], asked: str | None) -> str:
    """The path of the graph: the one that is asked for, or the usual one, or the only one.

    Raises:
        ConfigurationError: there is none, or there are several and none is asked for.
    """
    graphs = sorted(path for path in paths if path.endswith(".onnx") and SAFE.fullmatch(path))
    if asked is None:
        usual = [path for path in GRAPHS if path in graphs]
        if usual or len(graphs) == 1:
            return (usual or graphs)[0]
    elif asked in graphs:
        return asked
    if not graphs:
        raise ConfigurationError(
            "There is no ONNX graph (a file .onnx). Use a model that is published in ONNX format, or export "
            "it yourself and add the folder with refdesk-admin model add."
        )
    shown = ", ".join(graphs[:LISTED]) + (" …" if len(graphs) > LISTED else "")
    raise ConfigurationError(f"Choose the graph with --graph. There are: {shown}.")


def files_of(paths: Collection[str], graph: str) -> Sequence[str]:
    """The paths of the files that go with a graph; those of its weights begin with its name.

    Raises:
        ConfigurationError: there is no tokenizer.
    """
    if TOKENIZER not in paths:
        raise ConfigurationError(
            f"There is no {TOKENIZER}, which refdesk needs. Export the model's tokenizer to that file."
        )
    return sorted(
        path
        for path in paths
        if SAFE.fullmatch(path)
        and (
            path in {graph, TOKENIZER, *DESCRIBING}
            or re.fullmatch(re.escape(graph) + r"[._][\w.-]+", path, re.ASCII)
            or STEP.fullmatch(path)
        )
    )

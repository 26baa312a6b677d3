"""Tiny ONNX models as people export them: they count the word clock, so scores can be checked by hand."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from rag.config.settings import RerankerSettings
from rag.errors import ConfigurationError
from rag.models.rerank import open_reranker
from rag.models.tokens import BUILTIN_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onnx import NodeProto

pytestmark = pytest.mark.anyio

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
    folder: Path, inputs: Sequence[str] = BERT, *, outputs: int = 1, name: str = "model.onnx"
) -> Path:
    """An export whose logit is a hundredth of the query's clocks and a tenth of the text's.

    Without token types all count a hundredth. Like the real thing it fails on more than POSITIONS tokens.
    """
    (folder / name).parent.mkdir(parents=True)
    graph = helper.make_graph(
        nodes(inputs, outputs),
        "tiny",
        [helper.make_tensor_value_info(each, TensorProto.INT64, ["texts", "tokens"]) for each in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", outputs])],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.array(WEIGHTS, np.float32), "weights"),
            numpy_helper.from_array(np.zeros(POSITIONS, np.float32), "positions"),
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


async def scored(
    folder: Path, query: str, texts: Sequence[str], *, max_tokens: int = 512
) -> list[float | None]:
    settings = RerankerSettings(provider="onnx", path=folder, max_tokens=max_tokens)
    async with open_reranker(settings, {}) as reranker:
        assert reranker
        return await reranker.scores(query, texts)


def score(of_query: int, of_text: int) -> float:
    """That of a pair with so many clocks."""
    return 1 / (1 + math.exp(-(of_query + 10 * of_text) / 100))


async def test_every_text_gets_the_score_of_its_own_pair(folder: Path) -> None:
    counts = [7, 0, 30, 1, 12, 3, 0, 25, 2, 9, 40, 5]
    given = await scored(folder, "clock", ["a " + "clock " * count for count in counts])
    assert given == pytest.approx([score(1, count) for count in counts], abs=1e-6)


async def test_no_texts_have_no_scores(folder: Path) -> None:
    assert await scored(folder, "clock", []) == []


@pytest.mark.parametrize("inputs", [BERT[:2], BERT[:1]])
async def test_a_model_is_given_no_more_than_it_wants(tmp_path: Path, inputs: Sequence[str]) -> None:
    given = await scored(write_model(tmp_path / "tiny", inputs), "clock", ["clock clock"])
    assert given == pytest.approx([1 / (1 + math.exp(-0.03))])


async def test_of_two_outputs_the_last_means_yes(tmp_path: Path) -> None:
    given = await scored(write_model(tmp_path / "tiny", outputs=2), "clock", ["clock clock"])
    yes = 0.21
    assert given == pytest.approx([math.exp(yes) / (math.exp(yes) + math.exp(-yes))])


@pytest.mark.parametrize("word", ["broken", "infinite"])
async def test_a_pair_that_the_model_says_nothing_finite_to_has_no_score(folder: Path, word: str) -> None:
    assert await scored(folder, "clock", [word, "clock"]) == [None, pytest.approx(score(1, 1))]


@pytest.mark.parametrize(
    ("of_query", "of_text", "kept"),
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
    folder: Path, of_query: int, of_text: int, kept: tuple[int, int]
) -> None:
    given = await scored(folder, "clock " * of_query, ["clock " * of_text], max_tokens=64)
    assert given == pytest.approx([score(*kept)], abs=1e-6)


async def test_special_tokens_in_a_text_are_plain_text(folder: Path) -> None:
    given = await scored(folder, "clock", ["clock [SEP] clock"])
    assert given == pytest.approx([score(1, 3)])


async def test_the_graph_may_lie_in_the_folder_onnx(tmp_path: Path) -> None:
    given = await scored(write_model(tmp_path / "tiny", name="onnx/model.onnx"), "clock", ["clock"])
    assert given == pytest.approx([score(1, 1)])


async def test_a_window_that_the_model_does_not_have_is_a_wrong_setting(folder: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"fails on a pair of 513 tokens\. .*lower reranker\.max_tokens\.$"
    ):
        await scored(folder, "clock", ["clock"], max_tokens=513)


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
    with pytest.raises(ConfigurationError, match=r"a vector per token: the head .* is not in it\. Export it"):
        await scored(folder, "clock", ["clock"])


async def test_a_folder_without_a_graph_is_a_wrong_setting(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    with pytest.raises(ConfigurationError, match=r"neither model\.onnx nor onnx/model\.onnx in .*tiny"):
        await scored(folder, "clock", ["clock"])


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_broken_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("no")
    with pytest.raises(ConfigurationError, match=rf"{name} is not a valid .*Download or export") as error:
        await scored(folder, "clock", ["clock"])
    assert "[ONNXRuntimeError]" not in str(error.value)
    assert "expected" not in str(error.value)


class Hub(ThreadingHTTPServer):
    """As much of a model hub as a download needs."""

    def __init__(self, model: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.folder = folder
        self.sent: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        body, kind = self._found()
        self.send_response(200 if body else 404)
        headers = {"Content-Length": len(body), "Content-Type": kind, "X-Repo-Commit": COMMIT}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.send_header("ETag", f'"{self.path.rpartition("/")[2]}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 the library's name

    def _found(self) -> tuple[bytes, str]:
        path, files = self.path.partition("?")[0], self.server.folder
        model = f"/api/models/{self.server.model}"
        if path == f"{model}/revision/{COMMIT}":
            return json.dumps({"id": self.server.model, "sha": COMMIT, "siblings": []}).encode(), JSON
        if path == f"{model}/tree/{COMMIT}":
            listed = [
                {
                    "type": "file",
                    "path": str(file.relative_to(files)),
                    "size": file.stat().st_size,
                    "oid": "0",
                }
                for file in files.rglob("*.*")
            ]
            return json.dumps(listed).encode(), JSON
        prefix = f"/{self.server.model}/resolve/{COMMIT}/"
        if path.startswith(prefix):
            if self.command == "GET":
                self.server.sent.append(path.removeprefix(prefix))
            return (files / path.removeprefix(prefix)).read_bytes(), "application/octet-stream"
        return b"", JSON

    def log_message(self, *_args: object) -> None:
        pass


COMMIT = "0123456789abcdef0123456789abcdef01234567"
JSON = "application/json"
PROGRAM = """
import anyio, json, sys
from rag.errors import ConfigurationError
from rag.models.rerank import open_reranker
from rag.config.settings import RerankerSettings

async def main():
    async with open_reranker(RerankerSettings(provider="onnx", **json.loads(sys.argv[1])), {}) as reranker:
        print(await reranker.scores("clock", ["clock", "clock clock"]))

try:
    anyio.run(main)
except ConfigurationError as error:
    print(error)
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    files = write_model(tmp_path / "hub", name="onnx/model.onnx")
    (files / "pytorch_model.bin").write_text("large")
    with Hub("clocks/tiny", files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asking(hub: Hub, home: Path, model: str, sha256: str = "", revision: str = "") -> str:
    """What a fresh process prints, as the library reads where the hub is at its import."""
    graph = hub.folder / "onnx" / "model.onnx"
    pins = {
        "revision": revision or COMMIT,
        "sha256": sha256 or hashlib.sha256(graph.read_bytes()).hexdigest(),
    }
    there = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(home)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps({"model": model, **pins})],
        env=os.environ | there,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_model_of_the_hub_is_downloaded_once_and_no_more_of_it_than_is_needed(
    hub: Hub, tmp_path: Path
) -> None:
    expected = pytest.approx([score(1, 1), score(1, 2)])
    assert json.loads(asking(hub, tmp_path / "home", "clocks/tiny")) == expected
    assert sorted(hub.sent) == ["onnx/model.onnx", "tokenizer.json"]
    hub.server_close()
    assert json.loads(asking(hub, tmp_path / "home", "clocks/tiny")) == expected


def test_a_model_of_the_hub_that_is_not_the_one_meant_is_not_loaded(hub: Hub, tmp_path: Path) -> None:
    assert json.loads(asking(hub, tmp_path / "home", "clocks/tiny"))
    told = asking(hub, tmp_path / "home", "clocks/tiny", sha256="0" * 64)
    graph = hub.folder / "onnx" / "model.onnx"
    actual = hashlib.sha256(graph.read_bytes()).hexdigest()
    assert f"was not loaded, because its SHA-256 checksum is {actual}, but reranker.sha256 is" in told
    told = asking(hub, tmp_path / "home", "clocks/tiny", revision="f" * 40)
    assert f"The reranker clocks/tiny, revision {'f' * 40}, can't be downloaded" in told


async def test_weights_beside_a_graph_and_a_folder_count_for_the_checksum(folder: Path) -> None:
    async def opened(sha256: str) -> None:
        async with open_reranker(RerankerSettings(provider="onnx", path=folder, sha256=sha256), {}):
            pass

    graph, beside = (folder / "model.onnx"), folder / "model.onnx_data"
    await opened(hashlib.sha256(graph.read_bytes()).hexdigest())
    beside.write_bytes(b"weights")
    await opened(hashlib.sha256(graph.read_bytes() + b"weights").hexdigest())
    beside.write_bytes(b"others!")
    with pytest.raises(ConfigurationError, match=r"model\.onnx was not loaded, because its SHA-256"):
        await opened(hashlib.sha256(graph.read_bytes() + b"weights").hexdigest())


@pytest.mark.slow
def test_a_model_that_cannot_be_downloaded_is_named_with_the_remedy(hub: Hub, tmp_path: Path) -> None:
    told = asking(hub, tmp_path / "home", "clocks/other")
    assert f"The reranker clocks/other, revision {COMMIT}, can't be downloaded" in told
    assert "Or download it yourself, and set reranker.path" in told


def test_only_opening_a_reranker_imports_what_it_needs() -> None:
    program = "import json, sys, rag.models.rerank; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert not {"openai", "onnxruntime", "tokenizers", "huggingface_hub"} & set(json.loads(run.stdout))


async def test_settings_without_a_reranker_open_none() -> None:
    async with open_reranker(RerankerSettings(), {}) as reranker:
        assert reranker is None

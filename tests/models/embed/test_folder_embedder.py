"""Tiny ONNX models as people export them: a token's vector is a row of a readable table."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rag.config.model_settings import EmbedderSettings
from rag.errors import ConfigurationError
from rag.models.embed import open_embedder
from rag.models.embed.local_embedder import ADD_AGAIN
from rag.models.model_folder import FACTS_FILE, ModelFacts, facts_as_json, published_facts
from rag.models.text_encoder import BUILTIN_MODEL, read_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from onnx import NodeProto

    Row = npt.NDArray[np.float32]

pytestmark = pytest.mark.anyio

BERT = ("input_ids", "attention_mask", "token_type_ids")
POSITIONS = 64
CLOCK, CLS, SEP = 5119, 101, 102  # what the built-in tokenizer calls them
MEAN = {"1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}}
TABLE = np.array([[id_ % 7, id_ % 5, id_ % 3, 1] for id_ in range(30522)], np.float32)

TOKENS = TABLE[[CLS, CLOCK, SEP]]


def module(kind: str, path: str) -> dict[str, str]:
    return {"name": path, "path": path, "type": f"sentence_transformers.models.{kind}"}


def write_model(
    folder: Path,
    inputs: Sequence[str] = BERT,
    outputs: Sequence[str] = ("last_hidden_state",),
    files: Mapping[str, object] = MEAN,
    kind: int = TensorProto.INT64,
) -> Path:
    """An export without pooling, or with it if an output is called sentence_embedding.

    Like the real thing it fails on more than POSITIONS tokens. `files` are those of the publisher.
    """
    folder.mkdir()
    nodes: list[NodeProto] = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1),
        helper.make_node("Slice", ["positions", "from", "length"], ["places"]),
        helper.make_node("Add", ["words", "places"], ["last_hidden_state"]),
        helper.make_node("ReduceMax", ["last_hidden_state"], ["sentence_embedding"], axes=[1], keepdims=0),
    ]
    shapes: dict[str, list[str | int | None]] = {
        "last_hidden_state": ["texts", "tokens", 4],
        "sentence_embedding": ["texts", 4],
        "words": ["texts", "tokens", 4],
        "places": ["tokens", 4],
    }
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kind, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(np.zeros((POSITIONS, 4), np.float32), "positions"),
            numpy_helper.from_array(np.array([0], np.int64), "from"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    shutil.copy(BUILTIN_MODEL / "tokenizer.json", folder)
    write_files(folder, {"config.json": {"max_position_embeddings": POSITIONS}, **files})
    return folder


def write_files(folder: Path, files: Mapping[str, object]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def settings(folder: Path, **changes: object) -> EmbedderSettings:
    return EmbedderSettings.model_validate({"provider": "onnx", "model": str(folder)} | changes)


async def embedded(folder: Path, text: str, **changes: object) -> Row:
    async with open_embedder(settings(folder, **changes), {}) as embedder:
        row: Row = (await embedder.embed([text], "query"))[0]
        return row


def unit(row: Row) -> Row:
    scaled: Row = row / np.linalg.norm(row)
    return scaled


@pytest.mark.parametrize("inputs", [BERT, BERT[:2], BERT[:1]])
async def test_tokens_are_averaged_where_the_model_does_not_pool(
    tmp_path: Path, inputs: Sequence[str]
) -> None:
    vector = await embedded(write_model(tmp_path / "tiny", inputs), "clock")
    assert vector == pytest.approx(unit(TOKENS.mean(axis=0)))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode_cls_token": True}, TABLE[CLS]),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, TOKENS.max(axis=0)),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, TOKENS.mean(axis=0)),
        ({"pooling_mode_lasttoken": True}, TABLE[SEP]),
        ({"pooling_mode_weightedmean_tokens": True}, np.array([1, 2, 3]) @ TOKENS),
        ({"pooling_mode": "cls", "embedding_dimension": 4}, TABLE[CLS]),
        ({"pooling_mode": "weightedmean"}, np.array([1, 2, 3]) @ TOKENS),
        ({"pooling_mode": ["lasttoken"]}, TABLE[SEP]),
    ],
)
async def test_tokens_are_pooled_as_the_folder_says(
    tmp_path: Path, config: Mapping[str, object], expected: Row
) -> None:
    folder = write_model(tmp_path / "tiny", files={"1_Pooling/config.json": config})
    assert await embedded(folder, "clock") == pytest.approx(unit(expected))


async def test_the_list_of_modules_says_where_the_steps_are(tmp_path: Path) -> None:
    modules = [module("Transformer", ""), module("Pooling", "pool"), module("Normalize", "3_Normalize")]
    files = {"modules.json": modules, "pool/config.json": {"pooling_mode_cls_token": True}, **MEAN}
    assert await embedded(write_model(tmp_path / "tiny", files=files), "clock") == pytest.approx(
        unit(TABLE[CLS])
    )


async def test_nobody_guesses_how_a_model_pools(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", files={})
    with pytest.raises(ConfigurationError, match="don't say") as error:
        await embedded(folder, "clock")
    assert ADD_AGAIN in str(error.value)
    (folder / FACTS_FILE).write_bytes(facts_as_json(ModelFacts(name="tiny", pooling="last")))
    assert await embedded(folder, "clock") == pytest.approx(unit(TABLE[SEP]))
    (folder / FACTS_FILE).write_bytes(facts_as_json(ModelFacts(name="tiny", pooling="graph")))
    with pytest.raises(ConfigurationError, match="is said to pool in its graph"):
        await embedded(folder, "clock")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"1_Pooling/config.json": {"pooling_mode": ["cls", "mean"]}}, "asks for the pooling cls and mean"),
        ({"1_Pooling/config.json": {}}, "asks for the pooling of no kind"),
        ({"1_Pooling/config.json": {"pooling_mode": "attention"}}, "asks for the pooling attention"),
        ({"modules.json": [module("Transformer", ""), module("LSTM", "1_LSTM")]}, "needs the step LSTM"),
        ({"modules.json": [module("Normalize", ""), module("Dense", "2")]}, "in an unusual order"),
        ({**MEAN, "1_Pooling/config.json": {"pooling_mode": "cls", "embedding_dimension": 5}}, "they have 5"),
        (
            {
                "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False},
                "config_sentence_transformers.json": {"prompts": {"query": "q: "}},
            },
            "leaves the tokens of a prompt out",
        ),
    ],
)
async def test_what_refdesk_cannot_do_for_a_model_is_said(
    tmp_path: Path, files: Mapping[str, object], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await embedded(write_model(tmp_path / "tiny", files=files), "clock")


WEIGHT = np.array([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, -3]], np.float32)
BIAS = np.array([0.5, 0, 0], np.float32)


def safetensors(dtype: str, tensors: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        offsets = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": dtype, "shape": [*tensor.shape], "data_offsets": offsets}  # type: ignore[dict-item]
        data += tensor.tobytes()
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + data


def write_dense(folder: Path, activation: str = "torch.nn.modules.linear.Identity") -> None:
    config = {"in_features": 4, "out_features": 3, "bias": True, "activation_function": activation}
    write_files(folder, {"2_Dense/config.json": config})
    tensors = {"linear.weight": WEIGHT, "linear.bias": BIAS}
    (folder / "2_Dense" / "model.safetensors").write_bytes(safetensors("F32", tensors))


@pytest.mark.parametrize("activation", ["Identity", "Tanh"])
async def test_a_dense_layer_follows_the_pooling(tmp_path: Path, activation: str) -> None:
    plain = write_model(tmp_path / "tiny")
    dense = shutil.copytree(plain, tmp_path / "again" / "tiny")
    write_dense(dense, f"torch.nn.modules.activation.{activation}")
    projected = WEIGHT @ TOKENS.mean(axis=0) + BIAS
    expected = projected if activation == "Identity" else np.tanh(projected)
    assert await embedded(dense, "clock") == pytest.approx(unit(expected))
    async with open_embedder(settings(plain), {}) as first, open_embedder(settings(dense), {}) as second:
        assert first.identity.model != second.identity.model  # the graph and the tokenizer are the same


async def test_a_dense_layer_that_the_graph_has_already_is_not_applied_twice(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", outputs=["sentence_embedding"])
    write_dense(folder)
    assert (await embedded(folder, "clock")).shape == (3,)  # the graph returns 4, so it lacks the layer
    write_files(folder, {"2_Dense/config.json": {"in_features": 3, "out_features": 4}})
    tensors = {"linear.weight": np.ones((4, 3), np.float32)}
    (folder / "2_Dense" / "model.safetensors").write_bytes(safetensors("F32", tensors))
    assert await embedded(folder, "clock") == pytest.approx(unit(TOKENS.max(axis=0)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "needs its files config.json and model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "is damaged, or none that"),
        (lambda folder: write_dense(folder.parent, "x.Mish"), "has the activation Mish; refdesk knows"),
    ],
)
async def test_a_dense_layer_that_cannot_be_applied_is_refused(
    tmp_path: Path, change: Callable[[Path], object], problem: str
) -> None:
    folder = write_model(tmp_path / "tiny")
    write_dense(folder)
    change(folder / "2_Dense")
    with pytest.raises(ConfigurationError, match=problem):
        await embedded(folder, "clock")


def test_tensors_are_read_in_the_types_that_publishers_use() -> None:
    values = np.array([1.5, -2, 0.25], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    for dtype, stored in (("F32", values), ("F16", values.astype(np.float16)), ("BF16", halves)):
        assert read_tensors(safetensors(dtype, {"x": stored}))["x"] == pytest.approx(values)


async def test_vectors_are_cut_only_where_the_files_allow_it(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    with pytest.raises(ConfigurationError, match=r"dimensions is 2, but .* allow 4 dimensions"):
        await embedded(folder, "clock", dimensions=2)
    write_files(folder, {"config.json": {"matryoshka_dimensions": [2], "max_position_embeddings": 64}})
    assert await embedded(folder, "clock", dimensions=2) == pytest.approx(unit(TOKENS.mean(axis=0)[:2]))
    assert (await embedded(folder, "clock", dimensions=4)).shape == (4,)
    with pytest.raises(ConfigurationError, match=r"dimensions is 3, but .* allow 2, 4 dimensions"):
        await embedded(folder, "clock", dimensions=3)


async def test_prefixes_are_those_of_the_files_unless_the_settings_name_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"query": "search: ", "passage": "text: ", "STS": "x"}
    files = {**MEAN, "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": None}}
    folder = write_model(tmp_path / "tiny", files=files)
    async with open_embedder(settings(folder), {}) as embedder:
        assert (embedder.identity.query_prefix, embedder.identity.document_prefix) == ("search: ", "text: ")
    assert not caplog.messages
    async with open_embedder(settings(folder, query_prefix="ask: ", document_prefix=""), {}) as changed:
        assert (changed.identity.query_prefix, changed.identity.document_prefix) == ("ask: ", "")
    assert (
        "embedder.query_prefix is 'ask: ', but the files of the model tiny say 'search: '." in caplog.messages
    )


async def test_what_refdesk_keeps_of_a_model_completes_its_files_and_must_agree(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", files={})
    facts = ModelFacts(name="tiny", pooling="last", truncations=(2,), query_prefix="q: ", window=16)
    (folder / FACTS_FILE).write_bytes(facts_as_json(facts))
    async with open_embedder(settings(folder, dimensions=2), {}) as embedder:
        assert (embedder.window, embedder.identity.dimension, embedder.identity.query_prefix) == (
            14,
            2,
            "q: ",
        )
    write_files(folder, MEAN)
    with pytest.raises(
        ConfigurationError, match=r"the pooling 'mean' by its publisher's files, and 'last' by"
    ):
        await embedded(folder, "clock")


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlanguage:\n- en\n- multilingual\n---\n", True),
        ("---\nlanguage: en\n---\n", False),
        ("---\nlanguage: [en, de, fr, es, it, pt, nl, pl, ru, zh, ja]\nlicense: mit\n---\n", True),
        ("# A model\nlanguage: multilingual\n", None),
    ],
)
def test_the_model_card_says_whether_it_knows_many_languages(
    tmp_path: Path, card: str, expected: object
) -> None:
    write_files(tmp_path, {"README.md": card})
    assert published_facts(tmp_path).multilingual is expected


@pytest.mark.parametrize(("multilingual", "share"), [(False, 0), (True, 1), (None, 1)])
async def test_only_a_model_for_few_languages_is_asked_what_it_knows_of_a_text(
    tmp_path: Path, *, multilingual: bool | None, share: float
) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / FACTS_FILE).write_bytes(facts_as_json(ModelFacts(name="tiny", multilingual=multilingual)))
    async with open_embedder(settings(folder), {}) as embedder:
        assert embedder.vocabulary_share("погода") == share


def test_the_first_positions_of_some_models_are_no_positions_of_tokens(tmp_path: Path) -> None:
    for kind, expected in (("xlm-roberta", 512), ("bert", 514)):
        config = {"model_type": kind, "max_position_embeddings": 514, "pad_token_id": 1}
        write_files(tmp_path, {"config.json": config, "tokenizer_config.json": {"model_max_length": 1e30}})
        assert published_facts(tmp_path).window == expected


async def test_a_graph_may_take_positions_and_other_integers_and_lie_in_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    folder = write_model(tmp_path / "tiny", [*BERT, "position_ids"], kind=TensorProto.INT32)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    assert await embedded(folder, "clock") == pytest.approx(unit(TOKENS.mean(axis=0)))


async def test_an_output_whose_name_says_nothing_is_not_guessed_at(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", outputs=["words", "places"])
    with pytest.raises(
        ConfigurationError, match=r"has the outputs words, places, and none is called sentence_"
    ):
        await embedded(folder, "clock")


async def test_a_models_own_sentence_embedding_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", outputs=["last_hidden_state", "sentence_embedding"])
    assert await embedded(folder, "clock") == pytest.approx(unit(TOKENS.max(axis=0)))


async def test_the_built_in_models_folder_gives_the_built_in_vectors() -> None:
    async with open_embedder(EmbedderSettings(), {}) as builtin:
        expected = (await builtin.embed(["a clock"], "query"))[0]
    assert np.array_equal(await embedded(BUILTIN_MODEL, "a clock"), expected)


async def test_the_identity_changes_with_the_content_not_with_the_place(tmp_path: Path) -> None:
    first = write_model(tmp_path / "tiny")
    changed = write_model(tmp_path / "elsewhere", outputs=["sentence_embedding"])
    copy = tmp_path / "again" / "tiny"
    shutil.copytree(first, copy)
    identities = []
    for folder in (first, copy, changed):
        async with open_embedder(settings(folder), {}) as embedder:
            identities.append(embedder.identity)
    assert identities[0] == identities[1]
    assert (identities[0].provider, identities[0].dimension) == ("onnx", 4)
    assert identities[0].model.startswith("tiny-")
    assert identities[0].model.removeprefix("tiny") != identities[2].model.removeprefix("elsewhere")


async def test_the_narrowest_of_settings_and_files_is_the_window(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    async with open_embedder(settings(folder, max_tokens=512), {}) as embedder:
        assert embedder.window == POSITIONS - 2
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    async with open_embedder(settings(folder), {}) as embedder:
        assert embedder.window == 30


async def test_a_window_that_the_model_cannot_take_is_found_out_at_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "config.json").unlink()
    with pytest.raises(ConfigurationError) as error:
        await embedded(folder, "clock")
    assert str(error.value) == (
        f"The model in {folder} fails on a text of 512 tokens. If its context window is smaller, lower "
        "embedder.max_tokens. Otherwise it is not a text encoder that returns one vector per text."
    )
    async with open_embedder(settings(folder, max_tokens=POSITIONS), {}) as embedder:
        assert embedder.window == POSITIONS - 2


async def test_a_model_that_needs_other_inputs_than_text_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", [*BERT, "pixel_values"])
    with pytest.raises(
        ConfigurationError,
        match=r"needs the inputs pixel_values, which refdesk lacks\..* inputs are some of input_ids",
    ):
        await embedded(folder, "clock")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=name):
        await embedded(folder, "clock")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
async def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / name).write_text("no such thing")
    with pytest.raises(ConfigurationError, match=name):
        await embedded(folder, "clock")

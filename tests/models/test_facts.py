"""The file with a model's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ConfigurationError
from rag.models.model_folder import FACTS_FILE, ModelFacts, ModelFile, facts_as_json, read_facts

if TYPE_CHECKING:
    from pathlib import Path

FACTS = ModelFacts(
    name="small",
    repository="acme/small",
    revision="0" * 40,
    files=(ModelFile("onnx/model.onnx", 3, "a" * 64),),
    graph="onnx/model.onnx",
    pooling="cls",
    dimension=768,
    truncations=(384, 256),
    query_prefix="query: ",
    multilingual=True,
)


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / FACTS_FILE).write_bytes(facts_as_json(FACTS))
    assert read_facts(tmp_path) == FACTS


def test_a_folder_without_the_file_has_no_facts(tmp_path: Path) -> None:
    assert read_facts(tmp_path) is None
    assert read_facts(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"name": "x", "pooling": "avg"}', b'{"name": "x", "colour": 1}', b"{}"]
)
def test_facts_that_are_damaged_are_an_error_and_never_guessed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FACTS_FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match="can't be read"):
        read_facts(tmp_path)

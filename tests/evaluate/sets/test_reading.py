"""Which kind of set a path names, and the published sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ConfigurationError
from rag.evaluate.sets import read_set

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_no_judged_set_is_told_what_would_be_one(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    for path in (tmp_path, tmp_path / "notes.md", tmp_path / "missing.toml"):
        with pytest.raises(ConfigurationError) as error:
            read_set(path)
        assert str(error.value).startswith(f"{path} is not a judged set. Give a folder with corpus.jsonl, ")
        assert "refdesk-admin eval new)" in str(error.value)


@pytest.mark.parametrize(
    ("name", "questions", "documents"),
    [
        ("anthropic_docs", 100, 232),
        ("cosqa_dev", 500, 6267),
        ("hotpotqa100", 100, 994),
        ("scifact_train", 809, 5183),
        ("xquad_de", 1190, 240),
        ("xquad_en", 1190, 240),
        ("xquad_zh", 1190, 240),
        ("chunking_eval", 276, 3),
    ],
)
def test_the_published_sets_are_read_whole(judged: Path, name: str, questions: int, documents: int) -> None:
    found = read_set(judged / name)
    assert (len(found.questions), len(found.documents), found.left_out) == (questions, documents, 0)
    assert all(one.documents or one.excerpts for one in found.questions)

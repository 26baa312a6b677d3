"""Sets that judge passages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rag.errors import ConfigurationError
from rag.evaluate.sets import read_set
from rag.evaluate.sets.judged_sets import Excerpt, JudgedDocument, Question

if TYPE_CHECKING:
    from pathlib import Path

    from rag.evaluate.sets.judged_sets import Asking

TEXT = "First words. Then the answer stands here. And the end."


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    (folder / "corpora").mkdir()
    (folder / "corpora" / "book.md").write_text(TEXT)
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def line(content: str, start: int, end: int, **more: object) -> dict[str, Any]:
    reference = {"content": content, "start_index": start, "end_index": end}
    return {"_id": "q", "text": "where?", "corpus_id": "book", "references": [reference]} | more


def test_questions_expect_the_stretches_that_they_reference(
    tmp_path: Path, restricted: tuple[dict[str, Any], Asking]
) -> None:
    written, asking = restricted
    found = line("the answer stands here", 18, 40, **written)
    judged = read_set(write(tmp_path, found, found | {"_id": "none", "references": []}))
    excerpts = (Excerpt("the answer stands here", ("book",), 18),)
    assert judged.questions == (Question("q", "where?", excerpts=excerpts, asking=asking),)
    assert judged.documents == (JudgedDocument("book", "book.md", TEXT),)
    assert judged.left_out == 1


@pytest.mark.parametrize(("content", "start", "end"), [("the answer", 17, 27), ("", 5, 5)])
def test_a_reference_that_is_not_what_stands_there_is_an_error(
    tmp_path: Path, content: str, start: int, end: int
) -> None:
    folder = write(tmp_path, line(content, start, end))
    with pytest.raises(ConfigurationError) as error:
        read_set(folder)
    assert str(error.value) == f"A reference of question q is not the text of book from {start} to {end}."


def test_a_question_about_a_corpus_that_isn_t_there_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, line("First", 0, 5, corpus_id="film"))
    with pytest.raises(ConfigurationError, match="Question q: there is no corpus 'film'"):
        read_set(folder)

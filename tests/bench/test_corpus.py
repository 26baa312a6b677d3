from __future__ import annotations

import compileall
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.bench.corpus import QUESTIONS, sentences, write_documents

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_the_demo_s_documents_give_hundreds_of_sentences_each_once(corpus: Path) -> None:
    found = sentences(corpus)
    assert len(found) > 500
    assert len(set(found)) == len(found)
    assert all(len(one) >= 40 and "\n" not in one for one in found)


def test_a_sentence_ends_where_the_next_begins_and_headings_and_scraps_are_none(tmp_path: Path) -> None:
    text = (
        "# A heading that is long enough to be taken for a sentence\n\n"
        "Short. The first sentence of this document\nruns over two lines. "
        "The second one stands alone on its line!"
    )
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "b.md").write_text(text)
    assert sentences(tmp_path) == (
        "The first sentence of this document runs over two lines.",
        "The second one stands alone on its line!",
    )


def test_compiled_files_beside_an_installed_corpus_are_skipped(tmp_path: Path, corpus: Path) -> None:
    installed = tmp_path / "demo_corpus"
    shutil.copytree(corpus, installed)
    assert compileall.compile_dir(installed, quiet=1)
    assert (installed / "__pycache__").is_dir()
    assert sentences(installed) == sentences(corpus)


def test_documents_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_documents(tmp_path / name, ["A sentence.", "Another.", "A third."], 3)
    texts = [[path.read_text() for path in sorted((tmp_path / name).iterdir())] for name in ("one", "other")]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    assert texts[0][2].startswith("# Document 2\n\n## Part 0\n\n")


def test_no_question_is_asked_twice() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 30

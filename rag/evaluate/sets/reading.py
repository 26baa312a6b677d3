"""Which kind of judged set a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.errors import ConfigurationError
from rag.evaluate.sets.beir import read_beir
from rag.evaluate.sets.excerpts import CORPORA, read_excerpts
from rag.evaluate.sets.handwritten import read_questions

if TYPE_CHECKING:
    from pathlib import Path

    from rag.evaluate.sets.judged import JudgedSet


def read_set(path: Path) -> JudgedSet:
    """The judged set at `path`: a folder in BEIR's form or with excerpts, or a file of questions.

    Raises:
        ConfigurationError: there is none, it is damaged, or it holds no question with a judgement.
    """
    if (path / "qrels.tsv").is_file():
        found = read_beir(path)
    elif (path / CORPORA).is_dir():
        found = read_excerpts(path)
    elif path.is_file() and path.suffix.lower() in {".toml", ".jsonl"}:
        found = read_questions(path)
    else:
        raise ConfigurationError(
            f"{path} is no judged set: name a folder with corpus.jsonl, queries.jsonl and qrels.tsv, "
            "a folder with corpora/ and queries.jsonl, or a file of questions (.toml or .jsonl; "
            "refdesk-admin eval new starts one)."
        )
    if not found.questions:
        raise ConfigurationError(
            f"{path} holds no question with a judgement; {found.left_out} were left out."
        )
    return found

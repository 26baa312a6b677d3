"""Judged sets: questions with relevance judgements, in three forms."""

from __future__ import annotations

from pathlib import Path

from rag.errors import ConfigurationError
from rag.evaluate.sets.judged_sets import CORPORA, JudgedSet, read_beir, read_excerpts
from rag.evaluate.sets.question_files import read_questions


def read_set(path: Path) -> JudgedSet:
    """The judged set at `path`: a BEIR folder, a folder with excerpts, or a file of questions.

    Raises:
        ConfigurationError: the path has another form, is damaged, or has no question with a judgement.
    """
    if (path / "qrels.tsv").is_file():
        judged_set = read_beir(path)
    elif (path / CORPORA).is_dir():
        judged_set = read_excerpts(path)
    elif path.is_file() and path.suffix.lower() in {".toml", ".jsonl"}:
        judged_set = read_questions(path)
    else:
        raise ConfigurationError(
            f"{path} is not a judged set. Give a folder with corpus.jsonl, queries.jsonl and qrels.tsv, "
            "a folder with corpora/ and queries.jsonl, or a file of questions (.toml or .jsonl; create one "
            "with refdesk-admin eval new)."
        )
    if not judged_set.questions:
        raise ConfigurationError(f"{path} has no question with a judgement ({judged_set.left_out} left out).")
    return judged_set

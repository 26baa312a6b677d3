"""Sets that judge passages: whole documents, and for each question the exact stretches that answer it.

Source: Smith & Troynikov, Evaluating Chunking Strategies for Retrieval, Chroma, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from rag.errors import ConfigurationError
from rag.evaluate.sets.judged import Excerpt, JudgedDocument, JudgedSet, Question
from rag.evaluate.sets.lines import AskingLine, check_unique, json_lines, text_of

if TYPE_CHECKING:
    from pathlib import Path

CORPORA = "corpora"


class _Reference(BaseModel):
    content: str
    start_index: int
    end_index: int


class _QueryLine(AskingLine):
    id: str = Field(alias="_id")
    text: str
    corpus_id: str
    references: tuple[_Reference, ...]


def read_excerpts(folder: Path) -> JudgedSet:
    """The set in `folder`: corpora/NAME.md, and queries.jsonl with references into them.

    Raises:
        ConfigurationError: a file is missing or damaged, or a reference is not what stands there.
    """
    texts = {path.stem: text_of(path) for path in sorted((folder / CORPORA).glob("*.md"))}
    documents = tuple(JudgedDocument(name, f"{name}.md", text) for name, text in texts.items())
    lines = list(json_lines(folder / "queries.jsonl", _QueryLine))
    check_unique([line.id for line in lines], folder / "queries.jsonl")
    questions = tuple(
        Question(
            line.id,
            line.text,
            excerpts=tuple(_excerpt(line, reference, texts) for reference in line.references),
            asking=line.asking(),
        )
        for line in lines
        if line.references and line.text.strip()
    )
    return JudgedSet(folder.name, questions, documents, left_out=len(lines) - len(questions))


def _excerpt(line: _QueryLine, reference: _Reference, texts: dict[str, str]) -> Excerpt:
    if line.corpus_id not in texts:
        raise ConfigurationError(f"Question {line.id} is about {line.corpus_id!r}; there is no such corpus.")
    start, end = reference.start_index, reference.end_index
    if not reference.content or texts[line.corpus_id][start:end] != reference.content:
        raise ConfigurationError(
            f"A reference of question {line.id} is not what {line.corpus_id} says from {start} to {end}."
        )
    return Excerpt(reference.content, (line.corpus_id,), start)

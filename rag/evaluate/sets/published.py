"""Judged sets in published forms: BEIR folders, and folders that judge excerpts.

Sources: Thakur et al., BEIR, NeurIPS 2021 Datasets and Benchmarks, arXiv:2104.08663; Smith & Troynikov,
Evaluating Chunking Strategies for Retrieval, Chroma, 2024.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from rag.access.bindings import Name
from rag.errors import ConfigurationError
from rag.evaluate.sets.judged import (
    AskingLine,
    Excerpt,
    JudgedDocument,
    JudgedSet,
    Question,
    check_unique,
    json_lines,
    text_of,
)

if TYPE_CHECKING:
    from pathlib import Path

CORPORA = "corpora"


class _DocumentLine(BaseModel):
    id: str = Field(alias="_id")
    text: str
    title: str = ""
    tenant: Name | None = None


class _QueryLine(AskingLine):
    id: str = Field(alias="_id")
    text: str


def read_beir(folder: Path) -> JudgedSet:
    """The BEIR set in `folder`: corpus.jsonl, queries.jsonl and qrels.tsv. Grades below 1 don't count.

    A query can have `principal`, `collections`, `sources`, `exclude_sources` and `filter`, a document
    `tenant`; other keys are ignored.

    Raises:
        ConfigurationError: a file is missing or damaged, or names an unknown document.
    """
    documents = _documents(folder / "corpus.jsonl")
    judgements = _judgements(folder)
    unknown = {name for graded in judgements.values() for name in graded} - {one.name for one in documents}
    if unknown:
        raise ConfigurationError(
            f"{folder}: qrels.tsv judges {len(unknown)} documents that corpus.jsonl does not contain, "
            f"such as {min(unknown)!r}."
        )
    lines = list(json_lines(folder / "queries.jsonl", _QueryLine))
    check_unique([line.id for line in lines], folder / "queries.jsonl")
    questions = tuple(
        Question(
            line.id,
            line.text,
            documents=judgements[line.id],
            asking=line.asking(),
        )
        for line in lines
        if line.id in judgements and line.text.strip()
    )
    return JudgedSet(folder.name, questions, documents, left_out=len(lines) - len(questions))


def _documents(path: Path) -> tuple[JudgedDocument, ...]:
    lines = list(json_lines(path, _DocumentLine))
    check_unique([line.id for line in lines], path)
    return tuple(_document(number, line) for number, line in enumerate(lines))


def _document(number: int, line: _DocumentLine) -> JudgedDocument:
    """The document as a file, with a neutral name: without a title, ingestion makes one of the name."""
    if line.title:
        return JudgedDocument(line.id, f"{number}/document.md", f"# {line.title}\n\n{line.text}", line.tenant)
    return JudgedDocument(line.id, f"{number}/document.txt", line.text, line.tenant)


def _judgements(folder: Path) -> dict[str, dict[str, int]]:
    """The grades of the relevant documents by query."""
    path = folder / "qrels.tsv"
    graded: dict[str, dict[str, int]] = defaultdict(dict)
    for number, line in enumerate(text_of(path).splitlines(), 1):
        match line.split("\t"):
            case [blank] if not blank.strip():
                continue
            case [_, _, grade] if number == 1 and not _is_number(grade):
                continue  # the header
            case [query, document, grade] if _is_number(grade):
                if int(grade) > 0:
                    graded[query][document] = int(grade)
            case _:
                raise ConfigurationError(
                    f"{path}, line {number}: expected query, document and grade, separated by tabs."
                )
    return graded


def _is_number(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()


class _Reference(BaseModel):
    content: str
    start_index: int
    end_index: int


class _ExcerptQueryLine(AskingLine):
    id: str = Field(alias="_id")
    text: str
    corpus_id: str
    references: tuple[_Reference, ...]


def read_excerpts(folder: Path) -> JudgedSet:
    """The set in `folder`: corpora/NAME.md, and queries.jsonl with references into them.

    Raises:
        ConfigurationError: a file is missing or damaged, or a reference doesn't match the text.
    """
    texts = {path.stem: text_of(path) for path in sorted((folder / CORPORA).glob("*.md"))}
    documents = tuple(JudgedDocument(name, f"{name}.md", text) for name, text in texts.items())
    lines = list(json_lines(folder / "queries.jsonl", _ExcerptQueryLine))
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


def _excerpt(line: _ExcerptQueryLine, reference: _Reference, texts: dict[str, str]) -> Excerpt:
    if line.corpus_id not in texts:
        raise ConfigurationError(f"Question {line.id}: there is no corpus {line.corpus_id!r}.")
    start, end = reference.start_index, reference.end_index
    if not reference.content or texts[line.corpus_id][start:end] != reference.content:
        raise ConfigurationError(
            f"A reference of question {line.id} is not the text of {line.corpus_id} from {start} to {end}."
        )
    return Excerpt(reference.content, (line.corpus_id,), start)

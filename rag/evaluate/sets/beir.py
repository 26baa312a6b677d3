"""Sets in the form of BEIR: corpus.jsonl, queries.jsonl and qrels.tsv.

Source: Thakur et al., BEIR, NeurIPS 2021 Datasets and Benchmarks, arXiv:2104.08663.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from rag.config.settings import Name
from rag.errors import ConfigurationError
from rag.evaluate.sets.judged import JudgedDocument, JudgedSet, Question
from rag.evaluate.sets.lines import AskingLine, check_unique, json_lines, text_of

if TYPE_CHECKING:
    from pathlib import Path


class _DocumentLine(BaseModel):
    id: str = Field(alias="_id")
    text: str
    title: str = ""
    tenant: Name | None = None


class _QueryLine(AskingLine):
    id: str = Field(alias="_id")
    text: str


def read_beir(folder: Path) -> JudgedSet:
    """The set in `folder`; a grade of 0 or less means not relevant.

    A query can carry `principal`, `collections`, `sources` and `exclude_sources`, a document its
    `tenant`; other keys don't matter.

    Raises:
        ConfigurationError: a file is missing or damaged, or names what isn't there.
    """
    documents = _documents(folder / "corpus.jsonl")
    judgements = _judgements(folder)
    unknown = {name for graded in judgements.values() for name in graded} - {one.name for one in documents}
    if unknown:
        raise ConfigurationError(
            f"{folder}: {len(unknown)} documents are judged that corpus.jsonl doesn't hold, "
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
    """A file with the document's text; one without a title gets no name that would say something."""
    if line.title:
        return JudgedDocument(line.id, f"{number}/document.md", f"# {line.title}\n\n{line.text}", line.tenant)
    return JudgedDocument(line.id, f"{number}/document.txt", line.text, line.tenant)


def _judgements(folder: Path) -> dict[str, dict[str, int]]:
    """The relevant documents of each query that has any, with their grades."""
    path = folder / "qrels.tsv"
    graded: dict[str, dict[str, int]] = defaultdict(dict)
    for number, line in enumerate(text_of(path).splitlines(), 1):
        match line.split("\t"):
            case [blank] if not blank.strip():
                continue
            case [_, _, grade] if number == 1 and not _is_number(grade):
                continue  # the headings
            case [query, document, grade] if _is_number(grade):
                if int(grade) > 0:
                    graded[query][document] = int(grade)
            case _:
                raise ConfigurationError(
                    f"{path}, line {number}: expected query, document and grade, with tabs."
                )
    return graded


def _is_number(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()

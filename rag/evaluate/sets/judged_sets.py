"""Judged sets: questions with relevance judgements, sometimes with documents; and their published forms.

The forms are BEIR folders, and folders that judge excerpts. Sources: Thakur et al., BEIR, NeurIPS 2021
Datasets and Benchmarks, arXiv:2104.08663; Smith & Troynikov, Evaluating Chunking Strategies for Retrieval,
Chroma, 2024.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.access.rule import Name
from rag.config.mistakes import describe_mistake
from rag.config.server_settings import GroupName, UserName
from rag.corpus import Principal
from rag.errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)
Names = Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text to find: `quote`, in one of these documents, or in any document if none are named.

    `start` is its offset in the document's text, if known.
    """

    quote: str
    documents: tuple[str, ...] = ()
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks (None: the principal of the settings), and how the search is restricted.

    Sources are named like documents. A hit outside of these restrictions is a leak.
    """

    principal: Principal | None = None
    collections: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its judgements.

    `documents` holds the grade, 1 or more, of each relevant document, named as in the set, or by a
    source's id, URI, URL or path. If there are `excerpts`, they must be found instead. `answer` is an
    assistant's answer with citations.
    """

    id: str
    text: str
    documents: Mapping[str, int] = field(default_factory=dict)
    excerpts: tuple[Excerpt, ...] = ()
    asking: Asking = Asking()
    answer: str = ""


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    """A document of a set, to ingest as a file of this name; `tenant` None is the default tenant."""

    name: str
    filename: str
    content: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Questions with judgements. A set about an existing collection has no `documents`.

    `left_out` counts the questions without judgements or without text.
    """

    name: str
    questions: tuple[Question, ...]
    documents: tuple[JudgedDocument, ...] = ()
    left_out: int = 0


class PrincipalLine(BaseModel):
    """Who asks, as in a judged set's JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name
    user: UserName | None = None
    groups: frozenset[GroupName] = frozenset()

    def principal(self) -> Principal:
        """The principal."""
        return Principal(self.tenant, self.user, self.groups)


class AskingLine(BaseModel):
    """Who asks, and how the search is restricted, as in a judged set's JSON."""

    principal: PrincipalLine | None = None
    collections: Names | None = None
    sources: Names | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: dict[str, Any] | None = None

    def asking(self) -> Asking:
        """The asker and the restrictions."""
        principal = self.principal.principal() if self.principal else None
        return Asking(principal, self.collections, self.sources, self.exclude_sources, self.filter)


def json_lines(path: Path, model: type[M]) -> Iterator[M]:
    """The lines of a JSON Lines file as `model`; blank lines are skipped.

    Raises:
        ConfigurationError: the file can't be read, or a line doesn't fit the model.
    """
    for number, line in enumerate(text_of(path).split("\n"), 1):  # not splitlines: texts contain U+2028
        if line.strip():
            try:
                yield model.model_validate_json(line)
            except ValidationError as error:
                raise ConfigurationError(f"{path}, line {number}: {mistake_sentence(error)}") from error


def text_of(path: Path) -> str:
    """The file's text.

    Raises:
        ConfigurationError: the file can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"Cannot read {path}: {reason}.") from error


def mistake_sentence(error: ValidationError) -> str:
    """The first mistake in a sentence."""
    details = error.errors()[0]
    if details["type"] == "json_invalid":
        return "this is not valid JSON."
    return describe_mistake(".".join(map(str, details["loc"])) or "this", details)


def check_unique(ids: Sequence[str], path: Path) -> None:
    """Check that the ids of a file are unique.

    Raises:
        ConfigurationError: an id occurs twice.
    """
    repeated = [id_ for id_, count in Counter(ids).items() if count > 1]
    if repeated:
        raise ConfigurationError(f"{path}: the id {repeated[0]!r} occurs twice.")


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
    unknown = {name for graded in judgements.values() for name in graded} - {
        document.name for document in documents
    }
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
    """The document as a file with a neutral name: without a title, ingestion takes one from the name."""
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

"""Judged sets: questions with relevance judgements, sometimes with documents, in three forms.

Two are published: BEIR folders, and folders that judge excerpts. Sources: Thakur et al., BEIR, NeurIPS 2021
Datasets and Benchmarks, arXiv:2104.08663; Smith & Troynikov, Evaluating Chunking Strategies for Retrieval,
Chroma, 2024.

The third form are files of questions that operators write about their own documents. `eval new` makes one to
fill in.
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.access.rule import Name
from rag.config.mistakes import describe_mistake
from rag.config.server_settings import GroupName, UserName
from rag.corpus import Principal, Source
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.store.read.collection_reader import CollectionReader

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
    """Raise ConfigurationError if an id of a file occurs twice."""
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


L = TypeVar("L", _DocumentLine, _QueryLine, "_ExcerptQueryLine")


def read_beir(folder: Path) -> JudgedSet:
    """The BEIR set in `folder`: corpus.jsonl, queries.jsonl and qrels.tsv or qrels/test.tsv.

    Grades below 1 don't count. A query can have `principal`, `collections`, `sources`, `exclude_sources` and
    `filter`, a document `tenant`; other keys are ignored.

    Raises:
        ConfigurationError: a file is missing or damaged, or names an unknown document.
    """
    document_lines = _lines(folder / "corpus.jsonl", _DocumentLine)
    documents = tuple(_document(number, line) for number, line in enumerate(document_lines))
    judgements = _judgements(folder)
    unknown = {name for graded in judgements.values() for name in graded} - {
        document.name for document in documents
    }
    if unknown:
        raise ConfigurationError(
            f"{_path_of_judgements(folder)} judges {len(unknown)} documents that corpus.jsonl does not "
            f"contain, such as {min(unknown)!r}."
        )
    lines = _lines(folder / "queries.jsonl", _QueryLine)
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


def _lines(path: Path, model: type[L]) -> list[L]:
    """The lines of a file, each with an id of its own."""
    lines = list(json_lines(path, model))
    check_unique([line.id for line in lines], path)
    return lines


def _document(number: int, line: _DocumentLine) -> JudgedDocument:
    """The document as a file with a neutral name: without a title, ingestion takes one from the name."""
    if line.title:
        return JudgedDocument(line.id, f"{number}/document.md", f"# {line.title}\n\n{line.text}", line.tenant)
    return JudgedDocument(line.id, f"{number}/document.txt", line.text, line.tenant)


def _judgements(folder: Path) -> dict[str, dict[str, int]]:
    """The grades of the relevant documents by query."""
    path = _path_of_judgements(folder)
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


def _path_of_judgements(folder: Path) -> Path:
    """The file of the grades. Published sets have a folder of them, one for each part of the questions.

    If there are both, qrels.tsv counts, which somebody put there.
    """
    own, published = folder / "qrels.tsv", folder / "qrels" / "test.tsv"
    return published if published.is_file() and not own.is_file() else own


def _is_number(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()


class _Reference(BaseModel):
    content: str
    start_index: int
    end_index: int


class _ExcerptQueryLine(_QueryLine):
    corpus_id: str
    references: tuple[_Reference, ...]


def read_excerpts(folder: Path) -> JudgedSet:
    """The set in `folder`: corpora/NAME.md, and queries.jsonl with references into them.

    Raises:
        ConfigurationError: a file is missing or damaged, or a reference doesn't match the text.
    """
    texts = {path.stem: text_of(path) for path in sorted((folder / CORPORA).glob("*.md"))}
    documents = tuple(JudgedDocument(name, f"{name}.md", text) for name, text in texts.items())
    lines = _lines(folder / "queries.jsonl", _ExcerptQueryLine)
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


PASSAGE_CHARS = 300
EVERYTHING = "(true)"  # an operator's view
WIDTH = 106  # of comment lines
Grade = Annotated[int, Field(ge=1, le=100)]


class JudgedLine(AskingLine):
    """A question as it stands in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    text: str
    expect: tuple[str, ...] | dict[str, Grade] = ()
    quotes: tuple[str, ...] = ()
    answer: str = ""


class _QuestionFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: tuple[JudgedLine, ...]


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A question to be written: the source and section of its answer, and the beginning of the passage."""

    source: str
    section: str
    passage: str


def read_questions(path: Path) -> JudgedSet:
    """The questions of a TOML file ([[questions]] tables) or a JSON Lines file (one a line).

    Each has `text`, and `expect` (the sources that answer it, by id, URI, URL or path; or a table of
    them with grades), `quotes` (words of the passage that answers it), or both. It can have
    `principal`, `collections`, `sources`, `exclude_sources` and `filter`, and an assistant's `answer`,
    whose citations and quotes are checked. Questions with empty `text`, or that expect nothing, are
    left out and counted.

    Raises:
        ConfigurationError: the file can't be read, or has another form.
    """
    lines = _toml(path) if path.suffix.lower() == ".toml" else tuple(json_lines(path, JudgedLine))
    numbered = [
        line.model_copy(update={"id": line.id or str(number)}) for number, line in enumerate(lines, 1)
    ]
    check_unique([line.id for line in numbered], path)
    with_text = [_question(line) for line in numbered if line.text.strip()]
    questions = tuple(question for question in with_text if question.documents or question.excerpts)
    return JudgedSet(path.stem, questions, left_out=len(numbered) - len(questions))


def judged_lines(path: Path) -> list[JudgedLine]:
    """The questions of a JSON Lines file, also those without text; none if the file doesn't exist.

    Raises:
        ConfigurationError: the file can't be read, or has another form.
    """
    return list(json_lines(path, JudgedLine)) if path.exists() else []


def file_content(lines: Iterable[JudgedLine]) -> bytes:
    """The content of a JSON Lines file with these questions."""
    return "".join(f"{line.model_dump_json(exclude_defaults=True)}\n" for line in lines).encode()


def _toml(path: Path) -> tuple[JudgedLine, ...]:
    try:
        return _QuestionFile.model_validate(tomllib.loads(text_of(path))).questions
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {mistake_sentence(error)}") from error


def _question(line: JudgedLine) -> Question:
    expected = line.expect if isinstance(line.expect, dict) else dict.fromkeys(line.expect, 1)
    return Question(
        line.id,
        line.text.strip(),
        documents=expected,
        excerpts=tuple(Excerpt(quote, tuple(expected)) for quote in line.quotes if quote.strip()),
        asking=line.asking(),
        answer=line.answer,
    )


_HEAD = """\
# Questions about your documents. Run them with: refdesk-admin eval {name}
#
# Write a question for each passage below, as a reader would ask who does not know it. Empty questions are
# skipped. Twenty questions show a large difference between two runs; fifty show a small one.
#
#   text    the question
#   expect  the sources that answer it: ids, URIs or paths; with grades: {{"a.md" = 2, "b.md" = 1}}
#   quotes  words of the passage that must be found; without them, any passage of the source counts
#   answer  an assistant's answer, if you have one: its citations and quotes are checked
#
# A question can also restrict the search with sources = […], exclude_sources = […], collections = […] and
# filter = {{…}}, and say who asks with principal = {{tenant = "…"}}. Hits outside of these restrictions are
# leaks, and fail the run.
"""


def new_file(name: str, skeletons: Iterable[Skeleton]) -> str:
    """A TOML file for questions to be filled in, which `read_questions` can read."""
    return _HEAD.format(name=" ".join(name.split())) + "".join(_skeleton(skeleton) for skeleton in skeletons)


def _skeleton(skeleton: Skeleton) -> str:
    comments = _comment(skeleton.section) + _comment(skeleton.passage)
    return f'\n[[questions]]\n{comments}text = ""\nexpect = [{_toml_string(skeleton.source)}]\n'


def _comment(text: str) -> str:
    words = " ".join(word for word in text.split() if word.isprintable())
    return textwrap.indent(textwrap.fill(words, WIDTH), "# ") + "\n"


def _toml_string(text: str) -> str:
    """A TOML basic string: JSON's escapes, and DEL escaped, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


async def skeletons(tables: Sequence[CollectionReader], count: int) -> list[Skeleton]:
    """At most `count` questions to be filled in, on passages spread over the collections."""
    sources = [(table, source) for table in tables for source in await table.listing()]
    skeletons = []
    for number in range(min(count, len(sources))):
        table, source = sources[number * len(sources) // min(count, len(sources))]
        skeletons.append(await _from_source(table, source))
    return skeletons


async def _from_source(table: CollectionReader, source: Source) -> Skeleton:
    """A passage from the middle of the source: beginnings are often boilerplate."""
    stored = (await table.sources([source.id]))[source.id]
    middle = source.chunk_count // 2
    (chunk,) = await table.chunks_between(stored, middle, middle, EVERYTHING)
    path = source.metadata.get("path", source.id)
    below = chunk.section[1:] if chunk.section[:1] == (source.title,) else chunk.section
    passage = textwrap.shorten(chunk.text, PASSAGE_CHARS, placeholder=" …")
    return Skeleton(path, " > ".join((source.title, *below)), passage)


def read_set(path: Path) -> JudgedSet:
    """The judged set at `path`: a BEIR folder, a folder with excerpts, or a file of questions.

    Raises:
        ConfigurationError: the path has another form, is damaged, or has no question with a judgement.
    """
    if _path_of_judgements(path).is_file():
        judged_set = read_beir(path)
    elif (path / CORPORA).is_dir():
        judged_set = read_excerpts(path)
    elif path.is_file() and path.suffix.lower() in {".toml", ".jsonl"}:
        judged_set = read_questions(path)
    else:
        raise ConfigurationError(
            f"{path} is not a judged set. Give a folder with corpus.jsonl, queries.jsonl and qrels.tsv (or "
            "qrels/test.tsv), a folder with corpora/ and queries.jsonl, or a file of questions (.toml or "
            ".jsonl; create one with refdesk-admin eval new)."
        )
    if not judged_set.questions:
        raise ConfigurationError(
            f"{path} has no question with a text and a judgement ({judged_set.left_out} left out)."
        )
    return judged_set

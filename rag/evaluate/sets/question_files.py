"""Questions that operators write about their own documents, and the file that they start from."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.corpus import Source
from rag.errors import ConfigurationError
from rag.evaluate.sets.judged_sets import (
    AskingLine,
    Excerpt,
    JudgedSet,
    Question,
    check_unique,
    json_lines,
    mistake_sentence,
    text_of,
)

if TYPE_CHECKING:
    from rag.store.read.collection_reader import CollectionReader

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

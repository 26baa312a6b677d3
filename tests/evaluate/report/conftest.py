"""Runs written down as their scores, and a page taken apart again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from rag.evaluate.compare_runs import EvaluationRun, QuestionResult, StoredHit, Summary, latency, means

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

VOID = {"meta"}


@dataclass(slots=True)
class Element:
    """An element of a page; `content` holds texts and elements in order."""

    name: str
    attributes: dict[str, str]
    content: list[str | Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.content)

    def all(self, name: str, **attributes: str) -> list[Element]:
        """The elements of this name within, in order, with these attributes; `class_` for class."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return [one for one in self.walk() if one.name == name and wanted.items() <= one.attributes.items()]

    def walk(self) -> Iterator[Element]:
        yield self
        for one in self.content:
            if isinstance(one, Element):
                yield from one.walk()

    def rows(self) -> dict[str, list[str]]:
        """The rows of a table by their headings."""
        rows = [[cell.text for cell in row.content if isinstance(cell, Element)] for row in self.all("tr")]
        return {row[0]: row[1:] for row in rows}


class _Reader(HTMLParser):
    """Takes a page apart, and insists that whatever was opened last is closed first."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


@pytest.fixture
def read() -> Callable[[str], Element]:
    def read_page(page: str) -> Element:
        reader = _Reader()
        reader.feed(page)
        reader.close()
        (top,) = reader.open
        return top

    return read_page


@pytest.fixture
def question() -> Callable[..., QuestionResult]:
    """A question with one score, or several by the names of their metrics."""

    def make(id_: str, score: float | Mapping[str, float], **more: Any) -> QuestionResult:  # noqa: ANN401 of a record
        usual = {"text": f"What of {id_}?", "latency_ms": 10.0, "expected": {"a": 1}, "leaks": ()}
        hit = StoredHit(id="chunk", title="Sundials", score=0.9, similarity=0.8, finds=("a",))
        metrics = {"nDCG@10": score} if isinstance(score, float | int) else dict(score)
        return QuestionResult.model_validate(usual | {"id": id_, "metrics": metrics, "hits": (hit,)} | more)

    return make


@pytest.fixture
def run(question: Callable[..., QuestionResult]) -> Callable[..., EvaluationRun]:
    """A run of questions, or of scores by the questions' ids, with means that are true."""

    def make(id_: int, asked: Sequence[QuestionResult] | Mapping[str, float], **more: Any) -> EvaluationRun:  # noqa: ANN401 of a record
        if isinstance(asked, Mapping):
            asked = [question(name, score) for name, score in asked.items()]
        usual = {
            "set": "clocks",
            "profile": "default",
            "mode": "hybrid",
            "started_at": "2026-01-02T03:04:05+00:00",
            "queries": len(asked),
            "left_out": 0,
            "leaks": sum(len(one.leaks) for one in asked),
            "metrics": means(asked),
            "latency_ms": latency(asked),
            "settings": {},
            "versions": {},
        }
        return EvaluationRun(id=id_, summary=Summary.model_validate(usual | more), questions=tuple(asked))

    return make

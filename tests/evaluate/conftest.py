"""Judged sets small enough to read, and runs made up by hand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rag.corpus import Principal
from rag.evaluate.judged_sets import Asking, JudgedDocument, JudgedSet, Question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from rag.evaluate.ask_questions import Contender
    from rag.ingest.report import Progress as Ingesting

TEXTS = {
    "sundial": "A sundial shows the hour by the shadow of its gnomon.",
    "pendulum": "Huygens built the first pendulum clock in 1656.",
    "quartz": "Quartz crystals swing 32768 times a second in a wristwatch.",
    "atomic": "A caesium fountain is an atomic clock that loses a second in 300 million years.",
    "water": "The clepsydra measured time by water that ran out of a vessel.",
    "leap": "Leap seconds keep civil time near the rotation of the Earth.",
}
QUESTIONS = {
    "sundial": "what shows the hour by a shadow?",
    "pendulum": "who built the first pendulum clock?",
    "quartz": "how fast do quartz crystals swing?",
    "atomic": "how precise is a caesium fountain?",
    "water": "what is a clepsydra?",
    "leap": "why are there leap seconds?",
}


@dataclass(slots=True)
class Watching:
    """Notes how far each run has come."""

    ingesting: Ingesting
    events: list[str] = field(default_factory=list)

    def run_started(self, contender: Contender, questions: int) -> None:
        self.events.append(f"{contender.mode} {questions}")

    def question_done(self) -> None:
        self.events.append(".")


@pytest.fixture
def watching(small_desk: ModuleType) -> Watching:
    return Watching(small_desk.Progress())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to disk is most of the time of small runs, and no test lasts longer than the power."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def beir(tmp_path: Path) -> Callable[..., Path]:
    """Write a set in BEIR's form; documents and queries as their lines have them."""

    def write(corpus: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, Any]], qrels: str) -> Path:
        folder = tmp_path / "small-set"
        folder.mkdir(exist_ok=True)
        for name, lines in (("corpus", corpus), ("queries", queries)):
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        (folder / "qrels.tsv").write_text(qrels, encoding="utf-8")
        return folder

    return write


@pytest.fixture
def restricted() -> tuple[dict[str, Any], Asking]:
    """Who asks and for what, as every form writes it, and as it is read."""
    written = {
        "principal": {"tenant": "acme", "user": "eva", "groups": ["staff"]},
        "collections": ["handbook"],
        "sources": ["sun"],
        "exclude_sources": ["bob"],
    }
    who = Principal("acme", "eva", frozenset({"staff"}))
    return written, Asking(who, ("handbook",), ("sun",), ("bob",))


@pytest.fixture
def clocks() -> JudgedSet:
    """Six documents of a sentence, and for each a question that any mode answers from it."""
    return JudgedSet(
        "clocks",
        tuple(Question(name, text, {name: 1}) for name, text in QUESTIONS.items()),
        tuple(JudgedDocument(name, f"{name}.txt", text) for name, text in TEXTS.items()),
    )

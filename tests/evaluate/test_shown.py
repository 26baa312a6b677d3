"""How much of what is wanted the default reply shows. Texts and judgements are made up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rag.answers import Answer, Excerpt, Hit
from rag.config.server_settings import ServerSettings
from rag.corpus import Chunk, Principal, Source
from rag.evaluate.ask_questions import default_reply, shown_metrics
from rag.evaluate.judgements import ResolvedQuestion, Target
from rag.evaluate.ranking_metrics import Stretch
from rag.evaluate.sets.judged_sets import Question

ID, OTHER = "a" * 16, "b" * 16
ROOMY = ServerSettings()
NARROW = ServerSettings(max_chars=2_000)


def _hit(source_id: str, seq: int, chars: int = 1_000, excerpts: tuple[Excerpt, ...] = ()) -> Hit:
    start = seq * 1_000
    chunk = Chunk(f"{source_id}/{seq}", source_id, seq, start, start + chars, "x" * chars)
    file = f"file:///{source_id}.txt"
    source = Source(source_id, "notes", file, source_id[0], "text/plain", "", 9, 9_000, datetime.now(UTC))
    return Hit(chunk, source, 0.5, 0.5, excerpts=excerpts)


def _expected(*targets: Target) -> ResolvedQuestion:
    return ResolvedQuestion(
        Question("1", "?"), Principal("default"), targets, None, (), frozenset({ID, OTHER})
    )


WHOLE = Target("first", 1, frozenset({ID}))
SECOND = Target("second", 1, frozenset({OTHER}))
PASSAGE = Target("passage 1", 1, frozenset(), (Stretch(ID, 1_000, 2_000),))


def test_all_documents_of_a_reply_count_and_no_other() -> None:
    answer = Answer((_hit(ID, 0), _hit(OTHER, 4)))
    both = shown_metrics(_expected(WHOLE, SECOND), default_reply(answer, ROOMY))
    assert (both["shown_nDCG@10"], both["shown_recall"]) == (1, 1)
    assert "shown_token_recall" not in both  # no passage is wanted


def test_what_does_not_fit_into_the_reply_is_not_shown() -> None:
    answer = Answer((_hit(ID, 0), _hit(OTHER, 4)))
    narrow = shown_metrics(_expected(WHOLE, SECOND), default_reply(answer, NARROW))
    assert narrow["shown_recall"] == 0.5
    assert 1_000 < narrow["shown_chars"] <= 2_000 < both_chars(answer)


def both_chars(answer: Answer) -> float:
    """How long the reply is if there is room."""
    return shown_metrics(_expected(WHOLE), default_reply(answer, ROOMY))["shown_chars"]


@pytest.mark.parametrize(
    ("hit", "recall"),
    [
        (_hit(ID, 1), 1),
        (_hit(OTHER, 1), 0),  # the same positions, of another document
        (_hit(ID, 1, excerpts=(Excerpt(1_200, 1_300, "x" * 100), Excerpt(1_500, 1_650, "x" * 150))), 0.25),
        (_hit(ID, 1, excerpts=(Excerpt(0, 2_000, "x" * 2_000),)), 1),  # with the passage before it
    ],
)
def test_a_passage_counts_by_the_characters_that_are_shown_of_it(hit: Hit, recall: float) -> None:
    scores = shown_metrics(_expected(PASSAGE), default_reply(Answer((hit,)), ROOMY))
    assert scores["shown_token_recall"] == recall


def test_of_a_truncated_passage_only_the_beginning_is_shown() -> None:
    answer = Answer((_hit(ID, 1, chars=8_000),))
    scores = shown_metrics(
        _expected(Target("end", 1, frozenset(), (Stretch(ID, 8_000, 9_000),))), default_reply(answer, NARROW)
    )
    assert scores["shown_token_recall"] == scores["shown_recall"] == 0

"""Questions written by hand, and the file to begin with."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import ConfigurationError
from rag.evaluate.judged_sets import (
    Excerpt,
    JudgedSet,
    Question,
    Skeleton,
    new_file,
    read_questions,
    read_set,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.evaluate.judged_sets import Asking

    Write = Callable[..., Path]


@pytest.fixture
def question_file(tmp_path: Path) -> Write:
    """Write a file of questions."""

    def write(text: str, name: str = "questions.toml") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_sources_are_expected_as_a_list_or_as_a_table_of_grades(question_file: Write) -> None:
    judged = read_set(
        question_file("""
            [[questions]]
            text = "  why?  "
            expect = ["a.md", "b.md"]
            [[questions]]
            id = "graded"
            text = "how?"
            expect = {"a.md" = 2, "b.md" = 1}
        """)
    )
    assert judged == JudgedSet(
        "questions",
        (
            Question("1", "why?", {"a.md": 1, "b.md": 1}),
            Question("graded", "how?", {"a.md": 2, "b.md": 1}),
        ),
    )


def test_quotes_are_expected_in_the_sources_that_are_named_or_in_any(question_file: Write) -> None:
    judged = read_set(
        question_file("""
            [[questions]]
            text = "why?"
            quotes = ["for a reason", "  ", "or two"]
            [[questions]]
            text = "how?"
            expect = ["a.md"]
            quotes = ["thus"]
        """)
    )
    assert [question.excerpts for question in judged.questions] == [
        (Excerpt("for a reason"), Excerpt("or two")),
        (Excerpt("thus", ("a.md",)),),
    ]


def test_lines_of_json_say_the_same_as_toml(
    question_file: Write, restricted: tuple[dict[str, Any], Asking]
) -> None:
    written, asking = restricted
    line = {"id": "x", "text": "why?", "expect": {"a.md": 3}, "quotes": ["thus"], **written}
    judged = read_set(question_file(f"{json.dumps(line)}\n\n", "Mine.JSONL"))
    assert judged.questions == (Question("x", "why?", {"a.md": 3}, (Excerpt("thus", ("a.md",)),), asking),)
    toml = """
        [[questions]]
        id = "x"
        text = "why?"
        expect = {"a.md" = 3}
        quotes = ["thus"]
        principal = {tenant = "acme", user = "eva", groups = ["staff"]}
        collections = ["handbook"]
        sources = ["sun"]
        exclude_sources = ["bob"]
    """
    assert read_set(question_file(toml)).questions == judged.questions


def test_a_question_can_carry_an_answer_that_was_given(question_file: Write) -> None:
    file = question_file("""
        [[questions]]
        text = "why?"
        expect = ["a.md"]
        answer = '''It is "so" [a/1].'''
    """)
    assert read_set(file).questions == (Question("1", "why?", {"a.md": 1}, answer='It is "so" [a/1].'),)
    line = json.dumps({"text": "why?", "expect": ["a.md"], "answer": 'It is "so" [a/1].'})
    assert read_set(question_file(line, "q.jsonl")).questions == read_set(file).questions


def test_what_is_not_finished_is_left_out_counted_and_keeps_its_number(question_file: Write) -> None:
    judged = read_set(
        question_file("""
            [[questions]]
            text = " "
            expect = ["a.md"]
            [[questions]]
            text = "expects nothing"
            [[questions]]
            text = "why?"
            expect = ["a.md"]
        """)
    )
    assert [question.id for question in judged.questions] == ["3"]
    assert judged.left_out == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[questions]]\ntext = 'x'\nexpects = ['a']", r": questions\.0\.expects is not a known key\."),
        ("[[question]]\ntext = 'x'", r": questions is missing\."),
        ("[[questions]]\nexpect = ['a']", r": questions\.0\.text is missing\."),
        ("[[questions]]\ntext = 'x'\nexpect = {a = 0}", r": questions\.0\.expect"),
        ("[[questions]\n", r" is not valid TOML: .* \(at line 1, column \d+\)"),
        (
            "[[questions]]\nid = 'a'\ntext = 'x'\n[[questions]]\nid = 'a'\ntext = 'y'",
            r": the id 'a' occurs twice\.",
        ),
        ("[[questions]]\nid = '2'\ntext = 'x'\n[[questions]]\ntext = 'y'", ": the id '2' occurs twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(question_file: Write, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"questions\.toml{complaint}"):
        read_set(question_file(text))


def test_a_line_of_json_with_an_unknown_key_is_named(question_file: Write) -> None:
    file = question_file('{"text": "x", "expect": ["a"]}\n{"text": "y", "expected": ["a"]}\n', "q.jsonl")
    with pytest.raises(ConfigurationError, match=r"q\.jsonl, line 2: expected is not a known key"):
        read_set(file)


NASTY = ['say "so".md', "new\nline.md", "C:\\notes\\a.md", "del\x7f.md", "tab\t\x01.md", "Öl/ärger 🕰.md"]


@pytest.mark.parametrize("name", NASTY)
def test_a_new_file_is_read_back_whatever_a_source_is_called(tmp_path: Path, name: str) -> None:
    read_back(tmp_path, [Skeleton(name, name, name)])


@given(
    skeletons=st.lists(
        st.builds(Skeleton, *[st.text(st.characters(exclude_categories=["Cs"]))] * 3), max_size=3
    )
)
def test_a_new_file_is_read_back_whatever_a_source_holds(
    tmp_path_factory: pytest.TempPathFactory, skeletons: list[Skeleton]
) -> None:
    read_back(tmp_path_factory.getbasetemp(), skeletons)


def read_back(folder: Path, skeletons: list[Skeleton]) -> None:
    text = new_file("new.toml", skeletons)
    expected = [{"text": "", "expect": [skeleton.source]} for skeleton in skeletons]
    assert tomllib.loads(text).get("questions", []) == expected
    if skeletons:
        (folder / "new.toml").write_text(text, encoding="utf-8")
        assert read_questions(folder / "new.toml") == JudgedSet("new", (), left_out=len(skeletons))


def test_a_new_file_shows_the_passage_and_becomes_a_set_when_a_question_is_written(tmp_path: Path) -> None:
    passage = "It swings\nfreely. " * 20
    text = new_file("new.toml", [Skeleton("bob.md", "Clocks > The bob", passage)])
    assert "# Clocks > The bob\n# It swings freely. It swings" in text
    assert max(map(len, text.splitlines())) <= 110
    assert "refdesk-admin eval new.toml" in text
    (tmp_path / "new.toml").write_text(text.replace('text = ""', 'text = "what swings?"'))
    assert read_set(tmp_path / "new.toml").questions == (Question("1", "what swings?", {"bob.md": 1}),)

"""Which kind of set a path names, sets that judge passages, and sets in the form of BEIR."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rag.errors import ConfigurationError
from rag.evaluate.judged_sets import Asking, Excerpt, JudgedDocument, JudgedSet, Question, read_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Beir = Callable[..., Path]


def test_what_is_no_judged_set_is_told_what_would_be_one(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    for path in (tmp_path, tmp_path / "notes.md", tmp_path / "missing.toml"):
        with pytest.raises(ConfigurationError) as error:
            read_set(path)
        assert str(error.value).startswith(f"{path} is not a judged set. Give a folder with corpus.jsonl, ")
        assert "refdesk-admin eval new)" in str(error.value)


@pytest.mark.parametrize(
    ("name", "questions", "documents"),
    [
        ("anthropic_docs", 100, 232),
        ("cosqa_dev", 500, 6267),
        ("hotpotqa100", 100, 994),
        ("scifact_train", 809, 5183),
        ("xquad_de", 1190, 240),
        ("xquad_en", 1190, 240),
        ("xquad_zh", 1190, 240),
        ("chunking_eval", 276, 3),
    ],
)
def test_the_published_sets_are_read_whole(judged: Path, name: str, questions: int, documents: int) -> None:
    judged_set = read_set(judged / name)
    assert (len(judged_set.questions), len(judged_set.documents), judged_set.left_out) == (
        questions,
        documents,
        0,
    )
    assert all(question.documents or question.excerpts for question in judged_set.questions)


TEXT = "First words. Then the answer stands here. And the end."


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    (folder / "corpora").mkdir()
    (folder / "corpora" / "book.md").write_text(TEXT)
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def line(content: str, start: int, end: int, **more: object) -> dict[str, Any]:
    reference = {"content": content, "start_index": start, "end_index": end}
    return {"_id": "q", "text": "where?", "corpus_id": "book", "references": [reference]} | more


def test_questions_expect_the_stretches_that_they_reference(
    tmp_path: Path, restricted: tuple[dict[str, Any], Asking]
) -> None:
    written, asking = restricted
    reference = line("the answer stands here", 18, 40, **written)
    judged = read_set(write(tmp_path, reference, reference | {"_id": "none", "references": []}))
    excerpts = (Excerpt("the answer stands here", ("book",), 18),)
    assert judged.questions == (Question("q", "where?", excerpts=excerpts, asking=asking),)
    assert judged.documents == (JudgedDocument("book", "book.md", TEXT),)
    assert judged.left_out == 1


@pytest.mark.parametrize(("content", "start", "end"), [("the answer", 17, 27), ("", 5, 5)])
def test_a_reference_that_is_not_what_stands_there_is_an_error(
    tmp_path: Path, content: str, start: int, end: int
) -> None:
    folder = write(tmp_path, line(content, start, end))
    with pytest.raises(ConfigurationError) as error:
        read_set(folder)
    assert str(error.value) == f"A reference of question q is not the text of book from {start} to {end}."


def test_a_question_about_a_corpus_that_isn_t_there_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, line("First", 0, 5, corpus_id="film"))
    with pytest.raises(ConfigurationError, match="Question q: there is no corpus 'film'"):
        read_set(folder)


CORPUS = [
    {"_id": "sun", "title": "Sundials", "text": "A shadow shows the hour."},
    {"_id": "bob", "text": "It swings.", "url": "https://example.org/bob"},
]
QUERIES = [{"_id": "q1", "text": "shadow?"}, {"_id": "q2", "text": "swing?", "answer": "the bob"}]


def test_documents_become_files_and_queries_questions(beir: Beir) -> None:
    judged = read_set(beir(CORPUS, QUERIES, "query-id\tcorpus-id\tscore\nq1\tsun\t1\nq2\tbob\t2\n"))
    assert judged == JudgedSet(
        "small-set",
        (Question("q1", "shadow?", {"sun": 1}), Question("q2", "swing?", {"bob": 2})),
        (
            JudgedDocument("sun", "0/document.md", "# Sundials\n\nA shadow shows the hour."),
            JudgedDocument("bob", "1/document.txt", "It swings."),
        ),
    )


def test_judgements_need_no_headings(beir: Beir) -> None:
    judged = read_set(beir(CORPUS, QUERIES, "q1\tsun\t1\nq2\tbob\t2\n"))
    assert [question.documents for question in judged.questions] == [{"sun": 1}, {"bob": 2}]


def test_grades_beside_the_folder_of_a_downloaded_set_come_before_those_in_it(beir: Beir) -> None:
    folder = beir(CORPUS, QUERIES, "q1\tsun\t1\n")
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("q2\tbob\t1\n", encoding="utf-8")
    assert [question.documents for question in read_set(folder).questions] == [{"sun": 1}]


def test_the_grades_of_a_downloaded_set_are_in_a_folder(beir: Beir) -> None:
    folder = beir(CORPUS, QUERIES, "q1\tsun\t1\nq2\tbob\t1\n")
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels" / "test.tsv")
    assert [question.documents for question in read_set(folder).questions] == [{"sun": 1}, {"bob": 1}]


def test_a_grade_of_0_or_less_is_no_relevance(beir: Beir) -> None:
    judged = read_set(beir(CORPUS, QUERIES, "q1\tsun\t0\nq1\tbob\t3\nq2\tbob\t-1\nq2\tsun\t1\n"))
    assert [question.documents for question in judged.questions] == [{"bob": 3}, {"sun": 1}]


def test_queries_without_a_relevant_document_are_left_out_and_counted(beir: Beir) -> None:
    queries = [*QUERIES, {"_id": "q3", "text": "never judged?"}]
    judged = read_set(beir(CORPUS, queries, "q1\tsun\t1\nq2\tbob\t0\n"))
    assert [question.id for question in judged.questions] == ["q1"]
    assert judged.left_out == 2


def test_a_set_without_a_relevant_document_says_how_many_were_left_out(beir: Beir) -> None:
    with pytest.raises(ConfigurationError, match=r"\(2 left out\)\."):
        read_set(beir(CORPUS, QUERIES, "q1\tsun\t0\n"))


def test_who_asks_and_restrictions_and_tenants_are_taken_over(
    beir: Beir, restricted: tuple[dict[str, Any], Asking]
) -> None:
    written, asking = restricted
    corpus = [CORPUS[0] | {"tenant": "acme"}, CORPUS[1]]
    judged = read_set(beir(corpus, [QUERIES[0] | written, QUERIES[1]], "q1\tsun\t1\nq2\tbob\t1\n"))
    assert [question.asking for question in judged.questions] == [asking, Asking()]
    assert [document.tenant for document in judged.documents] == ["acme", None]


def test_judged_documents_that_aren_t_there_are_counted_and_one_is_named(beir: Beir) -> None:
    folder = beir(CORPUS, QUERIES, "q1\tzinc\t1\nq1\tsun\t1\nq2\tlead\t1\n")
    with pytest.raises(ConfigurationError) as error:
        read_set(folder)
    assert str(error.value) == (
        f"{folder / 'qrels.tsv'} judges 2 documents that corpus.jsonl does not contain, such as 'lead'."
    )


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("corpus.jsonl", '{"_id": "a"}', "text is missing."),
        ("corpus.jsonl", '{"_id": "a", "text": "', "this is not valid JSON."),
        ("corpus.jsonl", '{"_id": "a", "text": "b", "tenant": "A B"}', "tenant: 'A B' is not a valid name"),
        ("queries.jsonl", '{"_id": 7, "text": "b"}', "_id must be a string, not 7."),
        (
            "queries.jsonl",
            '{"_id": "a", "text": "b", "sources": []}',
            "sources has 0 items; give at least 1.",
        ),
        (
            "queries.jsonl",
            '{"_id": "a", "text": "b", "principal": {"user": "x"}}',
            "principal.tenant is missing.",
        ),
        ("qrels.tsv", "q1 sun 1", "expected query, document and grade, separated by tabs."),
        ("qrels.tsv", "q1\tsun\thigh", "expected query, document and grade, separated by tabs."),
        ("qrels.tsv", "q1\t0\tsun\t1", "expected query, document and grade, separated by tabs."),
    ],
)
def test_a_damaged_line_is_named_with_its_file_and_number(
    beir: Beir, file: str, line: str, complaint: str
) -> None:
    folder = beir(CORPUS, QUERIES, "q1\tsun\t1\nq2\tbob\t1\n")
    with (folder / file).open("a") as damaged:
        damaged.write(f"{line}\n")
    with pytest.raises(ConfigurationError) as error:
        read_set(folder)
    assert str(error.value).startswith(f"{folder / file}, line 3: {complaint}")


def test_blank_lines_and_separators_within_texts_make_no_line(beir: Beir) -> None:
    text = "one\u2028two\u0085three"
    folder = beir([{"_id": "a", "text": "x"}], QUERIES, "q1\ta\t1\n")
    line = json.dumps({"_id": "a", "text": text}, ensure_ascii=False)
    (folder / "corpus.jsonl").write_text(f"\n{line}\n\n", encoding="utf-8")
    assert [document.content for document in read_set(folder).documents] == [text]


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl"])
def test_a_file_that_is_missing_or_not_in_utf_8_is_named(beir: Beir, file: str) -> None:
    folder = beir(CORPUS, QUERIES, "q1\tsun\t1\n")
    (folder / file).write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=rf"Cannot read .*{file}: it is not UTF-8\."):
        read_set(folder)
    (folder / file).unlink()
    with pytest.raises(ConfigurationError, match=rf"Cannot read .*{file}: No such file or directory\."):
        read_set(folder)

"""What a text refers to: names of documents, and links."""

from __future__ import annotations

import pytest

from rag.search.stages.related import linked_ids, name_of, names_in


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Parental leave", "Parental leave"),
        ("  Parental \n leave ", "Parental leave"),
        ("Steve Johnson (footballer, born 1956)", "Steve Johnson"),
        ("f(x)", "f(x)"),
        ("(untitled)", "(untitled)"),
        ("", ""),
    ],
)
def test_a_document_is_called_by_its_title_without_a_qualifier(title: str, name: str) -> None:
    assert name_of(title) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("See the rules on parental LEAVE, too.", "Parental leave"),
        ("See **Parental\nleave**.", "Parental leave"),
        ("It was the film Charmed that he saw.", "Charmed"),
        ("Ça vaut pour le Congé parental.", "congé parental"),
        ("Das steht in der Straßenordnung der Stadt", "Straßenordnung der Stadt"),
        ("请参见育婴假规定。", "育婴假"),
        ("Об этом говорит Трудовой кодекс.", "Трудовой кодекс"),
        ("Who wrote Yahoo! Answers?", "Yahoo! Answers"),
    ],
)
def test_a_title_in_a_text_names_its_document(text: str, name: str) -> None:
    assert names_in(text, [name, "Something else"]) == {name}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("He was charmed by it.", "Charmed"),  # one word, written differently
        ("See grandparental leave.", "Parental leave"),  # a part of a word
        ("The IT department", "IT"),  # too short
        ("Anything at all", ""),
        ("Anything - at all", "-----"),
        ("parental and other leave", "Parental leave"),
    ],
)
def test_what_only_resembles_a_title_names_nothing(text: str, name: str) -> None:
    assert names_in(text, [name]) == set()


PATHS = {"a": "handbook/leave.md", "b": "handbook/rules/hours.md", "c": "top.md"}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("[Leave](../leave.md#sick) and [top](/top.md)", {"a", "c"}),
        ('[Hours](hours.md "when") [again](./hours.md?x)', {"b"}),
        ("[Leave](<../leave.md>)", {"a"}),
        ("[a place](#here) [web](https://example.com/top.md) [mail](mailto:top.md)", set()),
        ("[outside](../../../top.md)", set()),
        ("no link (top.md)", set()),
        ("see [[Leave]], ![[rules/hours#Sunday|hours]]", {"a", "b"}),
        ("[[top.md]]", {"c"}),
        ("[[other/leave]] [[eave]] [[top.txt]] [[]] [[#here]] [[ ]]", set()),
    ],
)
def test_markdown_links_lead_to_paths(text: str, paths: set[str]) -> None:
    assert linked_ids(text, "handbook/rules/week.md", PATHS) == paths


def test_links_of_notion_lead_to_notes_with_and_without_the_ids_in_their_names() -> None:
    id_ = "1a2b3c4d5e6f708192a3b4c5d6e7f809"
    paths = {"a": f"Rules {id_}/Visa {id_}.md", "b": "Rules/Other.md"}
    for link in (f"Rules%20{id_}/Visa%20{id_}.md", "Rules/Visa.md"):
        assert linked_ids(f"[Visa]({link})", f"Rules {id_}.md", paths) == {"a"}

"""Which access record a source is born with, and who has the say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from rag.errors import ParseError
from rag.ingest.rights import Rights, Said
from rag.records import Access
from rag.settings import AccessRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.records import Visibility

ASKED = Said(allow=("user:ann",))
SAYS = {"visibility": "restricted", "allow": "group:writers", "title": "Plans"}
WRITTEN = Access("restricted", frozenset({"group:writers"}), revision=1)
RULES = (
    AccessRule(path="hr/pay/*", allow=("group:pay",)),
    AccessRule(path="hr/*", allow=("group:hr",), deny=("user:bob",)),
    AccessRule(path="*.txt", visibility="tenant", deny=("group:guests",)),
)


def written(usual: Visibility = "tenant", **metadata: str) -> Access:
    return Rights(usual, of_documents=True).access("a.md", metadata)


def test_what_is_asked_for_goes_before_everything() -> None:
    rights = Rights("tenant", ASKED, RULES, of_documents=True)
    expected = Access("restricted", frozenset({"user:ann"}), revision=1)
    assert rights.access("hr/a.txt", SAYS) == expected
    assert rights.access("hr/a.txt", {"visibility": "nonsense"}) == expected


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_a_denial_alone_leaves_the_visibility_as_it_is_usual(usual: Visibility) -> None:
    expected = Access(usual, deny=frozenset({"user:bob"}), revision=1)
    assert Rights(usual, Said(deny=("user:bob",))).access("a.md", {}) == expected
    assert written(usual, deny="user:bob") == expected


@pytest.mark.parametrize("key", ["visibility", "Visibility", "allow", "deny", "ALLOW"])
def test_a_document_whose_words_can_t_be_read_is_refused(key: str) -> None:
    with pytest.raises(ParseError, match=f"its {key.casefold()} can't be read"):
        Rights("tenant", of_documents=True).access("a.md", {key: ""})


def test_a_document_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ParseError, match="visibility tenant lets everybody see it"):
        written(visibility="tenant", allow="group:hr")


def test_a_document_that_may_say_goes_before_the_rules() -> None:
    rights = Rights("tenant", rules=RULES, of_documents=True)
    assert rights.access("hr/a.txt", SAYS) == WRITTEN
    assert rights.access("hr/a.txt", {"title": "Plans"}).allow == {"group:hr"}


def test_a_document_that_may_not_say_is_not_heard() -> None:
    rights = Rights("tenant", rules=RULES)
    for metadata in (SAYS, {"visibility": "nonsense"}, {"allow": "everybody"}):
        assert rights.access("hr/a.md", metadata) == Access(
            "restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1
        )
        assert rights.access("a.md", metadata) == Access("tenant", revision=1)


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ("hr/pay/may.txt", Access("restricted", frozenset({"group:pay"}), revision=1)),
        ("hr/pay/2024/may.md", Access("restricted", frozenset({"group:pay"}), revision=1)),
        ("hr/a.txt", Access("restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1)),
        ("trips/rail.txt", Access("tenant", deny=frozenset({"group:guests"}), revision=1)),
        ("trips/hr/a.md", Access("tenant", revision=1)),
        ("HR/a.md", Access("tenant", revision=1)),
    ],
)
def test_the_first_rule_that_matches_the_whole_path_counts(path: str, record: Access) -> None:
    assert Rights("tenant", rules=RULES).access(path, {}) == record


def test_a_rule_that_names_nobody_lets_nobody_see() -> None:
    rights = Rights("tenant", rules=(AccessRule(path="*"),))
    assert rights.access("a.md", {}) == Access("restricted", revision=1)


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_where_nothing_is_said_it_is_as_in_the_collection(usual: Visibility) -> None:
    assert Rights(usual).access("a.md", {}) == Access(usual, revision=1)
    assert Rights(usual, rules=RULES, of_documents=True).access("a.md", {}) == Access(usual, revision=1)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"allow": ("hr",)}, "'hr' can't stand in an access list"),
        ({"visibility": "tenant", "allow": ("group:hr",)}, "visibility tenant lets everybody see it"),
    ],
)
def test_a_rule_that_means_nothing_is_a_mistake_of_the_settings(rule: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AccessRule.model_validate({"path": "hr/*"} | rule)


def test_a_document_writes_its_lists_with_commas() -> None:
    assert written(allow=" group:hr ,, user:ann b,", deny="user:bob") == Access(
        "restricted", frozenset({"group:hr", "user:ann b"}), frozenset({"user:bob"}), revision=1
    )


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_a_document_that_only_names_who_may_see_it_is_restricted(usual: Visibility) -> None:
    assert written(usual, allow="group:hr") == Access("restricted", frozenset({"group:hr"}), revision=1)


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_a_document_that_only_denies_is_otherwise_as_its_collection(usual: Visibility) -> None:
    assert written(usual, deny="user:bob") == Access(usual, deny=frozenset({"user:bob"}), revision=1)


def test_a_document_may_open_itself_in_a_restricted_collection() -> None:
    assert written("restricted", visibility="tenant") == Access("tenant", revision=1)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"visibility": "secret"}, "its visibility is neither tenant nor restricted"),
        ({"visibility": "Restricted"}, "its visibility is neither tenant nor restricted"),
        ({"visibility": ""}, "its visibility can't be read"),
        ({"allow": "hr"}, "'hr' can't stand in an access list; write user:NAME or group:NAME."),
        ({"allow": "group:"}, "'group:' can't stand in an access list"),
        ({"deny": "team:hr"}, "'team:hr' can't stand in an access list"),
        ({"visibility": "tenant", "deny": "user:ann, bob"}, "'bob' can't stand in an access list"),
        ({"allow": ",".join(f"user:{n}" for n in range(257))}, "holds 257 entries; at most 256"),
    ],
)
def test_words_that_are_no_access_record_refuse_the_file(metadata: Mapping[str, str], told: str) -> None:
    with pytest.raises(ParseError, match=told):
        Rights("tenant", of_documents=True).access("a.md", metadata)


def test_what_a_document_says_of_access_is_shown_only_where_it_says_nothing() -> None:
    said = {"visibility": "restricted", "allow": "group:hr", "deny": "user:bob", "author": "Ann"}
    assert Rights("tenant", of_documents=True).shown(said) == {"author": "Ann"}
    assert Rights("tenant", ASKED, of_documents=True).shown(said) == {"author": "Ann"}
    assert Rights("tenant").shown(said) == said

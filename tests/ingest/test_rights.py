"""Which access record a source is born with, and who has the say."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from rag.config.settings import AccessRule
from rag.corpus import Access
from rag.errors import ParseError
from rag.ingest.rights.requested_rights import RequestedAccess, Rights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Visibility

ASKED = RequestedAccess(allow=("user:ann",))
SAYS = {"visibility": "restricted", "allow": "group:writers", "title": "Plans"}
ONLY_ANN = Access("restricted", frozenset({"user:ann"}), revision=1)
ONLY_HR = Access("restricted", frozenset({"group:hr"}), revision=1)
HERE = "file:///data/notes"
WRITTEN = Access("restricted", frozenset({"group:writers"}), revision=1)
RULES = (
    AccessRule(path="hr/pay/*", allow=("group:pay",)),
    AccessRule(path="hr/*", allow=("group:hr",), deny=("user:bob",)),
    AccessRule(path="*.txt", visibility="tenant", deny=("group:guests",)),
)


def born(rights: Rights, path: str, metadata: Mapping[str, str]) -> Access | None:
    """The record of a new document at this path below a folder."""
    return rights.claim(Path(os.path.normpath(f"/data/notes/{path}")), metadata).access


def written(usual: Visibility = "tenant", **metadata: str) -> Access | None:
    return born(Rights(usual, of_documents=True), "a.md", metadata)


def test_what_is_asked_for_goes_before_the_rules() -> None:
    assert born(Rights("tenant", ASKED, RULES), "hr/a.txt", {}) == ONLY_ANN


def test_a_document_may_narrow_what_is_asked_for_and_not_widen_it() -> None:
    rights = Rights("tenant", ASKED, of_documents=True)
    for said, expected in [
        ({"deny": "user:eve"}, Access("restricted", frozenset({"user:ann"}), frozenset({"user:eve"}), 1)),
        ({"visibility": "tenant"}, ONLY_ANN),
        ({"allow": "user:ann, user:eve"}, ONLY_ANN),
        (SAYS, Access("restricted", revision=1)),
    ]:
        assert born(rights, "a.md", said) == expected


def test_what_is_asked_for_with_set_access_goes_before_everything() -> None:
    rights = Rights("tenant", ASKED, RULES, of_documents=True, set_access=True, folders={HERE: ONLY_HR})
    for metadata in (SAYS, {}, {"visibility": "nonsense"}):
        assert born(rights, "hr/a.txt", metadata) == ONLY_ANN


def test_what_a_folder_was_ingested_with_holds_for_what_appears_in_it() -> None:
    rights = Rights("tenant", folders={HERE: ONLY_HR, f"{HERE}/open": Access("tenant", revision=1)})
    assert born(rights, "a.md", {}) == ONLY_HR
    assert born(rights, "deep/down/a.md", {}) == ONLY_HR
    assert born(rights, "open/a.md", {}) == Access("tenant", revision=1)
    assert born(rights, "../elsewhere/a.md", {}) == Access("tenant", revision=1)


def test_the_narrower_of_a_folder_s_earlier_access_and_the_command_counts() -> None:
    folders = {HERE: ONLY_HR}
    assert born(Rights("tenant", RequestedAccess("tenant"), folders=folders), "a.md", {}) == ONLY_HR
    rights = Rights("tenant", RequestedAccess(allow=("group:hr", "user:ann")), folders=folders)
    assert born(rights, "a.md", {}) == ONLY_HR
    by_rule = Rights("tenant", rules=(AccessRule(path="*.md", allow=("user:ann",)),), folders=folders)
    assert born(by_rule, "a.md", {}) == Access("restricted", revision=1)


def test_rules_that_match_no_file_are_named() -> None:
    rights = Rights("tenant", rules=RULES)
    files = [Path("/data/hr/a.md"), Path("/data/b.txt")]
    assert rights.unmatched(files) == ["hr/pay/*"]
    assert rights.unmatched([Path("/data/HR/pay/x")]) == ["hr/*", "*.txt"]


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_a_denial_alone_leaves_the_visibility_as_it_is_usual(usual: Visibility) -> None:
    expected = Access(usual, deny=frozenset({"user:bob"}), revision=1)
    assert born(Rights(usual, RequestedAccess(deny=("user:bob",))), "a.md", {}) == expected
    assert written(usual, deny="user:bob") == expected


@pytest.mark.parametrize("key", ["visibility", "Visibility", "allow", "deny", "ALLOW"])
def test_an_unreadable_access_request_rejects_the_file(key: str) -> None:
    with pytest.raises(ParseError, match=f"its {key.casefold()} can't be read"):
        born(Rights("tenant", of_documents=True), "a.md", {key: ""})


def test_a_document_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ParseError, match="visibility tenant already lets everybody"):
        written(visibility="tenant", allow="group:hr")


def test_the_narrower_of_a_document_s_request_and_a_rule_counts() -> None:
    rights = Rights("tenant", rules=RULES, of_documents=True)
    bob = frozenset({"user:bob"})
    assert born(rights, "a.md", SAYS) == WRITTEN
    assert born(rights, "hr/a.txt", SAYS) == Access("restricted", frozenset(), bob, 1)
    hr = Access("restricted", frozenset({"group:hr"}), bob, 1)
    assert born(rights, "hr/a.txt", {"visibility": "tenant"}) == hr
    assert born(rights, "hr/a.txt", {"title": "Plans"}) == hr


def test_a_document_that_may_not_say_is_not_heard() -> None:
    rights = Rights("tenant", rules=RULES)
    for metadata in (SAYS, {"visibility": "nonsense"}, {"allow": "everybody"}):
        assert born(rights, "hr/a.md", metadata) == Access(
            "restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1
        )
        assert born(rights, "a.md", metadata) == Access("tenant", revision=1)


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ("hr/pay/may.txt", Access("restricted", frozenset({"group:pay"}), revision=1)),
        ("hr/pay/2024/may.md", Access("restricted", frozenset({"group:pay"}), revision=1)),
        ("hr/a.txt", Access("restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1)),
        ("trips/rail.txt", Access("tenant", deny=frozenset({"group:guests"}), revision=1)),
        ("trips/hr/a.md", Access("restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1)),
        ("HR/a.md", Access("restricted", frozenset({"group:hr"}), frozenset({"user:bob"}), revision=1)),
        ("hre/a.md", Access("tenant", revision=1)),
        ("chr/a.md", Access("tenant", revision=1)),
        ("hr", Access("tenant", revision=1)),
    ],
)
def test_the_first_rule_that_matches_the_path_or_its_end_counts(path: str, record: Access) -> None:
    assert born(Rights("tenant", rules=RULES), path, {}) == record


@pytest.mark.parametrize("folder", ["/srv/docs", "/srv/docs/hr", "/srv/docs/hr/2026"])
def test_a_rule_counts_whichever_folder_is_ingested(folder: str) -> None:
    rights = Rights("tenant", rules=(AccessRule(path="hr/*", allow=("group:hr",)),))
    for name in ("hr/a.md", "hr/2026/a.md"):
        path = Path("/srv/docs", name)
        if path.is_relative_to(folder):
            assert rights.claim(path, {}).access == ONLY_HR
    assert rights.claim(Path("/srv/docs/it/a.md"), {}).access == Access("tenant", revision=1)


def test_a_pattern_from_the_root_on_is_held_against_the_whole_path() -> None:
    rights = Rights("tenant", rules=(AccessRule(path="/data/notes/hr/*", allow=("group:hr",)),))
    assert born(rights, "hr/a.md", {}) == ONLY_HR
    assert born(rights, "old/data/notes/hr/a.md", {}) == Access("tenant", revision=1)


def test_letter_case_and_unicode_forms_of_paths() -> None:
    rule = AccessRule(path="hr/Löhne/*", allow=("group:hr",))
    alike = ["HR/LÖHNE/a.md", unicodedata.normalize("NFD", "hr/Löhne/a.md")]
    for path in ["hr/Löhne/a.md", *alike]:
        assert born(Rights("tenant", rules=(rule,)), path, {}) == ONLY_HR
    assert born(Rights("tenant", rules=(rule,)), "it/Löhne/a.md", {}) == Access("tenant", revision=1)


def test_a_rule_that_names_nobody_lets_nobody_see() -> None:
    rights = Rights("tenant", rules=(AccessRule(path="*"),))
    assert born(rights, "a.md", {}) == Access("restricted", revision=1)


@pytest.mark.parametrize("usual", ["tenant", "restricted"])
def test_without_a_request_the_visibility_of_the_collection_applies(usual: Visibility) -> None:
    assert born(Rights(usual), "a.md", {}) == Access(usual, revision=1)
    assert born(Rights(usual, rules=RULES, of_documents=True), "a.md", {}) == Access(usual, revision=1)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"allow": ("hr",)}, "'hr' is not a valid access list entry"),
        ({"visibility": "tenant", "allow": ("group:hr",)}, "visibility tenant already lets everybody"),
    ],
)
def test_a_rule_without_effect_is_a_configuration_error(rule: dict[str, object], words: str) -> None:
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
        ({"visibility": "secret"}, "its visibility must be tenant or restricted"),
        ({"visibility": "Restricted"}, "its visibility must be tenant or restricted"),
        ({"visibility": ""}, "its visibility can't be read"),
        ({"allow": "hr"}, "'hr' is not a valid access list entry; write user:NAME or group:NAME."),
        ({"allow": "group:"}, "'group:' is not a valid access list entry"),
        ({"deny": "team:hr"}, "'team:hr' is not a valid access list entry"),
        ({"visibility": "tenant", "deny": "user:ann, bob"}, "'bob' is not a valid access list entry"),
        ({"allow": ",".join(f"user:{n}" for n in range(257))}, "has 257 entries; the maximum is 256"),
    ],
)
def test_an_invalid_access_request_rejects_the_file(metadata: Mapping[str, str], told: str) -> None:
    with pytest.raises(ParseError, match=told):
        born(Rights("tenant", of_documents=True), "a.md", metadata)


def test_what_a_document_says_of_access_is_shown_only_where_it_says_nothing() -> None:
    said = {"visibility": "restricted", "allow": "group:hr", "deny": "user:bob", "author": "Ann"}
    assert Rights("tenant", of_documents=True).shown(said) == {"author": "Ann"}
    assert Rights("tenant", ASKED, of_documents=True).shown(said) == {"author": "Ann"}
    assert Rights("tenant").shown(said) == said

"""Which access record a source is born with, which records count for it, and how many are kept."""

from __future__ import annotations

import itertools
import os
import random
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from rag.access.rule import check_access, narrower, same_access, valid_entries
from rag.config.settings import AccessRule
from rag.corpus import Access, AccessRecord, Visibility
from rag.errors import ParseError
from rag.ingest import access_decision
from rag.ingest.access_decision import TABLE, Claims, Floor, Narrowing, Place, Recorded, Row, Situation
from rag.ingest.discover import Discovery
from rag.ingest.report import unmatched_notes
from rag.ingest.requested_access import UNKNOWN_VISIBILITY, RequestedAccess, Rights, covered_rules
from rag.ingest.source_files import LocalFile, folder_of, place_of
from rag.store.write.access_claim import Claim, Policy, limits, settle
from rag.store.write.table_rows import KnownSource
from tests.refusals import refusal

# Which access record a source is born with, and who has the say.

CONTRADICTION = refusal(check_access, "tenant", ["group:hr"], [])
CROWD = [f"user:{number}" for number in range(257)]
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
    for metadata, expected in [
        ({"deny": "user:eve"}, Access("restricted", frozenset({"user:ann"}), frozenset({"user:eve"}), 1)),
        ({"visibility": "tenant"}, ONLY_ANN),
        ({"allow": "user:ann, user:eve"}, ONLY_ANN),
        (SAYS, Access("restricted", revision=1)),
    ]:
        assert born(rights, "a.md", metadata) == expected


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


@pytest.mark.parametrize(
    ("first", "second", "covered"),
    [
        ("*", "hr/*", True),
        ("hr/*", "*", False),
        ("*/*", "hr/*", True),
        ("hr/*", "HR/pay/*", True),
        ("hr/*", "hr/pay.md", True),
        ("hr/pay.md", "hr/*", False),
        ("*.md", "hr/*", False),
        ("*.md", "hr/*.md", True),
        ("/srv/hr/*", "hr/*", False),
        ("hr/*", "/srv/hr/*", True),
        ("hr/?", "hr/*", False),
        ("hr/*", "hr/*", True),
    ],
)
def test_a_rule_that_stands_too_late_is_told_by_the_one_before_it(
    first: str,
    second: str,
    covered: bool,  # noqa: FBT001 a parameter of a test
) -> None:
    rules = [AccessRule(path=path) for path in (first, second)]
    assert list(covered_rules(rules)) == ([second] if covered else [])
    (note,) = unmatched_notes([second], rules)
    assert (f"the rule for {first} stands before it" in note) is covered


@pytest.mark.parametrize("path", ["", "hr/", "./hr/*", "../hr/*", "hr/./*", "hr//*", "hr\\*", "hr/../*"])
def test_a_pattern_that_no_path_matches_is_refused(path: str) -> None:
    for right in ("hr/*", "*", "/srv/hr/*", "hr", "hr/.hidden/*", "*/..x/[!a]?.md", "büro/*"):
        AccessRule(path=right)
    with pytest.raises(ValidationError, match=r"like hr/\* for the files of a folder"):
        AccessRule(path=path)


def test_rules_that_the_command_overrules_are_named() -> None:
    files = [Path("/data/hr/a.md"), Path("/data/HR/b.md"), Path("/data/c.txt"), Path("/data/d.md")]
    assert Rights("tenant", RequestedAccess("tenant"), RULES).overruled(files) == {"hr/*": 2, "*.txt": 1}
    narrower_command = RequestedAccess(allow=("group:hr",), deny=("user:bob", "group:guests"))
    assert not Rights("tenant", narrower_command, RULES).overruled(files)
    assert not Rights("tenant", RequestedAccess("tenant"), RULES, set_access=True).overruled(files)
    assert not Rights("tenant", rules=RULES).overruled(files)


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
    with pytest.raises(ParseError, match=CONTRADICTION):
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


def test_a_rule_ignores_letter_case_and_unicode_forms_of_paths() -> None:
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
        ({"allow": ("hr",)}, refusal(valid_entries, ["hr"])),
        ({"visibility": "tenant", "allow": ("group:hr",)}, CONTRADICTION),
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
    ("metadata", "reason"),
    [
        ({"visibility": "secret"}, "its visibility must be tenant or restricted"),
        ({"visibility": "Restricted"}, UNKNOWN_VISIBILITY),
        ({"visibility": ""}, "its visibility can't be read"),
        ({"allow": "hr"}, refusal(valid_entries, ["hr"])),
        ({"allow": "group:"}, refusal(valid_entries, ["group:"])),
        ({"deny": "team:hr"}, refusal(valid_entries, ["team:hr"])),
        ({"visibility": "tenant", "deny": "user:ann, bob"}, refusal(valid_entries, ["bob"])),
        ({"allow": ",".join(CROWD)}, refusal(valid_entries, CROWD)),
    ],
)
def test_an_invalid_access_request_rejects_the_file(metadata: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        born(Rights("tenant", of_documents=True), "a.md", metadata)


def test_what_a_document_says_of_access_is_shown_only_where_it_says_nothing() -> None:
    metadata = {"visibility": "restricted", "allow": "group:hr", "deny": "user:bob", "author": "Ann"}
    assert Rights("tenant", of_documents=True).shown(metadata) == {"author": "Ann"}
    assert Rights("tenant", ASKED, of_documents=True).shown(metadata) == {"author": "Ann"}
    assert Rights("tenant").shown(metadata) == metadata


# The table of who may see a document: in each situation exactly the records that its row names
# count. Each record and each place denies somebody of its own, so the settled record tells which of
# them counted.

NOW, BEFORE = "the content now", "another content"
MAILS = "file:///docs/mails.zip"
OF_ORIGINS = {Situation.ORIGIN, Situation.ORIGIN_SET}
CHANGED = {Situation.EDITED, Situation.DISPLACED, Situation.BACK_CHANGED}
GONE = {Situation.BACK, Situation.BACK_CHANGED}
SAID = {
    "nothing is said of its place": (None, ()),
    "a rule says the same of all places": (None, (AccessRule(path="*", deny=("user:place",)),)),
    "the command says something new": (RequestedAccess("tenant", deny=("user:place",)), ()),
}
COUNTS = {
    "nothing is said of its place": set[Place](),
    "a rule says the same of all places": {Place.ALWAYS, Place.SAYS},
    "the command says something new": {*Place} - {Place.NEVER},
}


def access(name: str) -> Access:
    return Access("tenant", deny=frozenset({f"user:{name}"}), revision=1)


@dataclass(frozen=True, slots=True)
class Scene:
    """A document in a situation, beside others that it could be."""

    here: Situation
    is_part: bool
    is_recognized: bool
    stated: str

    @property
    def uri(self) -> str:
        inside = "#a.md" if self.is_part else "/a.md"
        return (
            f"origin:wiki{inside}"
            if self.here in OF_ORIGINS
            else f"{MAILS if self.is_part else 'file:///docs'}{inside}"
        )

    @property
    def own_record(self) -> AccessRecord | None:
        if self.here is Situation.NEW:
            return None
        uri = "file:///old/a.md" if self.here is Situation.MOVED else self.uri
        content = BEFORE if self.here in CHANGED else NOW
        return AccessRecord("own", "docs", uri, access("own"), content, present=self.here not in GONE)

    @property
    def records(self) -> Mapping[str, AccessRecord]:
        folder = self.uri.rpartition("#" if self.is_part else "/")[0] + ("#" if self.is_part else "/")
        own_record = self.own_record
        records = [
            *([own_record] if own_record else []),
            *(
                [AccessRecord("content", "docs", "file:///x/y.md", access("content"), NOW)]
                if self.is_recognized
                else []
            ),
            AccessRecord("uri", "copies", self.uri, access("uri"), "a third content"),
            AccessRecord(
                "gone", "docs", f"{folder}gone.md", access("gone"), "a fourth content", present=False
            ),
            AccessRecord("container", "docs", MAILS, access("container"), "mails"),
        ]
        return {record.id: record for record in records}

    def claims(self) -> Claims:
        command, rules = SAID[self.stated]
        set_access = self.here in {Situation.SET, Situation.ORIGIN_SET}
        recorded = Recorded(self.records)
        recorded.note_new([NOW, *([BEFORE] if self.here is Situation.DISPLACED else [])])
        claims = Claims(
            Rights("tenant", command, rules, set_access=set_access), recorded, lambda _uri: "container"
        )
        origin = {self.uri.partition("#")[0]: access("origin")} if self.here in OF_ORIGINS else {}
        mails = LocalFile.local(Path("/docs/mails.zip"), "mails.zip")
        claims.learn(Discovery(containers={MAILS: mails}, rights=origin))
        return claims

    @property
    def file(self) -> LocalFile:
        return LocalFile(
            self.uri, place_of(self.uri), "a.md", Path("/docs/a.md"), container=MAILS if self.is_part else ""
        )

    @property
    def stored(self) -> KnownSource | None:
        own_record = self.own_record
        if own_record is None or self.here in GONE:
            return None
        return KnownSource("own", own_record.uri, "digest", 1, "A", {}, own_record, 0)

    def settled(self, claim: Claim) -> set[str]:
        """Who is denied in the end."""
        fresh = AccessRecord("own", "docs", self.uri, claim.access, claim.content, claim.requested)
        other_records = limits(claim, self.records, lambda _record: False)
        record = settle(self.own_record, claim, other_records, fresh)
        assert record.access
        return {entry.removeprefix("user:") for entry in record.access.deny}

    def counted(self, row: Row) -> set[str]:
        """What counts by a row of the table."""
        counts = COUNTS[self.stated]
        by_place = row.place_counts in counts and (
            row.place_counts is not Place.OTHER_PLACES or self.is_recognized
        )
        floor = {Floor.CONTENT: self.is_recognized, Floor.URI: True, Floor.GONE: not self.is_recognized}
        names = {
            "own": self.own_record is not None
            and row.policy in {Policy.KEEP, Policy.SYNC},  # set by hand, for SYNC
            "place": by_place,
            "origin": row.policy in {Policy.SYNC, Policy.SYNC_ALL},
            "container": self.is_part and row.policy is not Policy.REPLACE,
            **{kind.name.lower(): kind in row.floor and applies for kind, applies in floor.items()},
        }
        return {name for name, applies in names.items() if applies}


@pytest.mark.parametrize("stated", SAID)
@pytest.mark.parametrize("content", ["new", "known"])
@pytest.mark.parametrize("kind", ["file", "part"])
@pytest.mark.parametrize("here", TABLE, ids=lambda here: here.name)
def test_what_a_row_of_the_table_names_counts_and_nothing_else(
    here: Situation, kind: str, content: str, stated: str
) -> None:
    scene = Scene(here, kind == "part", content == "known", stated)
    claims, row = scene.claims(), TABLE[here]
    claim = claims.of_document(scene.file, {}, NOW, "own", scene.stored)
    assert scene.settled(claim) == scene.counted(row)
    if here is Situation.MOVED and scene.stored:  # its text may stay, too
        assert scene.settled(claims.of_moved(scene.stored, scene.file)) == scene.counted(row)
    if here is Situation.SAME and scene.stored:
        unchanged = claims.of_unchanged(scene.stored, scene.file, NOW, None)
        assert (unchanged and scene.settled(unchanged)) == (scene.counted(row) if scene.is_part else None)


def test_the_table_has_a_row_for_each_situation() -> None:
    assert set(TABLE) == set(Situation)


# Thousands of records that could be a document's own: a few of them say what all of them say.

OPEN = Access("tenant")
ACCESSES = (
    OPEN,
    Access("tenant", deny=frozenset({"user:bob"})),
    Access("restricted", frozenset({"group:hr"})),
    Access("restricted", frozenset({"group:hr", "group:it"})),
    Access("restricted"),
    None,
)


def records(number: int, accesses: Sequence[Access | None], seed: int = 1) -> dict[str, AccessRecord]:
    """So many records of one content in three folders, half of them gone."""
    chance = random.Random(seed)  # noqa: S311 no secret
    recorded = [
        AccessRecord(
            f"id{number_of_id}",
            chance.choice(("documents", "copies")),
            f"file:///d{chance.randrange(3)}/{number_of_id // 2}.md",
            chance.choice(accesses),
            "same",
            present=chance.random() < 0.5,
        )
        for number_of_id in range(number)
    ]
    return {record.id: record for record in recorded}


def effect(recorded: Recorded, narrowing: Narrowing, access: Access | None) -> Access | None:
    return narrower(access, *(recorded.by_id[id_].access for id_ in sorted(narrowing.ids)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_what_stands_for_many_records_narrows_as_all_of_them_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses = random.Random(seed).sample(ACCESSES, 3)  # noqa: S311 no secret
    held = records(200, accesses, seed)
    few, every = Recorded(held), Recorded(held)
    for recorded in (few, every):
        recorded.note_missing([id_ for id_ in held if int(id_[2:]) % 7 == 0])
    for id_, access in itertools.product([*held][:20], ACCESSES):
        uri = held[id_].uri
        answers: list[tuple[Narrowing, ...]] = []
        for recorded, most in ((few, access_decision.FEW), (every, 10**6)):
            monkeypatch.setattr(access_decision, "FEW", most)
            answers.append(
                (
                    recorded.same_content(id_, "same", access, folder_of),
                    recorded.could_be(uri, access),
                    recorded.could_be(f"{folder_of(uri)}/new.md", access),
                )
            )
        for of_few, of_all in zip(*answers, strict=True):
            assert bool(of_few.ids) == bool(of_all.ids)
            assert same_access(effect(few, of_few, access), effect(every, of_all, access))
            assert bool(of_few.gone) == bool(of_all.gone)
        places = [{folder_of(held[id_].uri) for id_ in some[0].ids} for some in answers]
        assert places[0] == places[1]
        assert len(answers[0][0].ids) <= 2 * 3 * 3 < len(answers[1][0].ids)


@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_of_many_equal_records_the_others_recognize_the_document_of_each(place: int) -> None:
    """One record of a kind wouldn't do: it may be the document's own, which says nothing about others."""
    equal = [
        AccessRecord(f"id{number}", "documents", f"{HERE}/{number}.md", ONLY_HR, "same")
        for number in range(access_decision.FEW + 1)
    ]
    recorded, document = Recorded({record.id: record for record in equal}), equal[place]
    for narrowing in (
        recorded.same_content(document.id, "same", OPEN, folder_of),
        recorded.could_be(document.uri, OPEN),
    ):
        assert narrowing.ids
        assert document.id not in narrowing.ids


def test_the_reason_says_whether_the_other_files_of_a_folder_are_alike() -> None:
    not_fred = replace(OPEN, deny=frozenset({"user:fred"}))
    for last, are_alike in ((not_fred, True), (ONLY_HR, False)):
        accesses = enumerate((not_fred, not_fred, last))
        held = [
            AccessRecord(f"id{number}", "documents", f"{HERE}/{number}.md", access, "same")
            for number, access in accesses
        ]
        narrowing = Recorded({record.id: record for record in held}).could_be(f"{HERE}/new.md", OPEN)
        assert len(narrowing.ids) == 3
        assert narrowing.reason.startswith("as all other files") is are_alike


@pytest.mark.slow
def test_of_many_records_few_are_kept_for_each_new_document() -> None:
    recorded = Recorded(records(10_000, [ACCESSES[2]]))
    narrowings = [
        narrowing
        for number in range(2_000)
        for narrowing in (
            recorded.same_content(f"new{number}", "same", OPEN, folder_of),
            recorded.could_be(f"file:///d1/new{number}.md", OPEN),
        )
    ]
    assert all(narrowing.ids for narrowing in narrowings)
    assert sum(len(narrowing.ids) for narrowing in narrowings) <= 2_000 * (6 + 2)

"""Who may see which sources: as ingestion says, as refdesk-admin access changes it, and as searches obey."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rag.access.rule import bare_name, check_access, valid_entries
from rag.admin.access_command import SourceAccess, named_folders
from rag.admin.sources_command import NameIndex
from rag.config.settings import Settings
from rag.ingest.requested_access import UNKNOWN_VISIBILITY
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

EVERYBODY, DENIED = "Visible: everybody in the tenant may see it.", "is denied, and deny always wins."
NOT_FOUND = (
    "refdesk-admin: No source has the id or path 'aaaaaaaaaaaaaaaa'. List them with refdesk-admin sources.\n"
)
NOBODY = ""
ANN = 'user = "ann"\ngroups = ["hr"]'
BOB = 'user = "bob"\ngroups = ["it"]'


@dataclass(frozen=True, slots=True)
class Office:
    """A desk, a folder of notes, and a settings file. Commands of `desk` have processes of their own."""

    desk: Desk
    inside: Desk
    notes: Path
    config: Path

    def settings(self, text: str) -> None:
        self.config.write_text(text)

    def write(self, name: str, text: str) -> None:
        (self.notes / name).parent.mkdir(parents=True, exist_ok=True)
        (self.notes / name).write_text(text)

    def ingest(self, *options: str, code: int = 0) -> Any:  # noqa: ANN401 any JSON
        return self.inside.json("ingest", self.notes, *options, "--config", self.config, code=code)

    def ids(self) -> dict[str, str]:
        """The sources' ids by their paths."""
        return {source["metadata"]["path"]: source["id"] for source in self.inside.sources()}

    def access(self, action: str, *arguments: str) -> Any:  # noqa: ANN401 any JSON
        return self.inside.json("access", action, *arguments)

    def records(self) -> dict[str, Any]:
        """The access records by the sources' paths."""
        return {path: self.access_of(id_)["access"] for path, id_ in self.ids().items()}

    def access_of(self, id_: str) -> Any:  # noqa: ANN401 any JSON
        return self.inside.json("access", "show", id_)

    def visible_to(self, who: str, desk: Desk | None = None) -> set[str]:
        """The paths of what this principal finds."""
        self.settings(f"[principal]\n{who}\n")
        reply = (desk or self.inside).json("search", "days of leave", "--config", self.config)
        return {hit["metadata"]["path"] for hit in reply["results"]}


@pytest.fixture
def office(desk: Desk, inside: Desk, tmp_path: Path) -> Office:
    new_office = Office(desk, inside, tmp_path / "notes", tmp_path / "config.toml")
    new_office.settings("")
    new_office.write("leave.md", "# Leave\n\nEverybody has thirty days of leave.\n")
    return new_office


def record(
    visibility: str, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), revision: int = 1
) -> dict[str, object]:
    return {"visibility": visibility, "allow": list(allow), "deny": list(deny), "revision": revision}


def test_what_nobody_restricts_everybody_finds(office: Office) -> None:
    office.ingest()
    assert office.records() == {"leave.md": record("tenant")}
    for who in (NOBODY, ANN, BOB):
        assert office.visible_to(who) == {"leave.md"}


def test_only_those_that_are_allowed_find_what_is_restricted(office: Office) -> None:
    office.ingest("--visibility", "restricted", "--allow", "group:hr", "--allow", "user:eve")
    assert office.records() == {"leave.md": record("restricted", ("group:hr", "user:eve"))}
    assert office.visible_to(ANN) == {"leave.md"}
    assert office.visible_to('user = "eve"') == {"leave.md"}
    assert office.visible_to('groups = ["it", "hr"]') == {"leave.md"}
    for who in (NOBODY, BOB, 'user = "hr"', 'groups = ["eve"]', 'user = "Eve"', 'groups = ["HR", "h"]'):
        assert office.visible_to(who) == set()


def test_what_is_restricted_and_allows_nobody_is_found_by_nobody(office: Office) -> None:
    office.ingest("--visibility", "restricted")
    assert office.records() == {"leave.md": record("restricted")}
    assert office.visible_to(NOBODY) == office.visible_to(ANN) == set()


def test_to_allow_somebody_is_to_restrict(office: Office) -> None:
    office.ingest("--allow", "group:hr")
    assert office.records() == {"leave.md": record("restricted", ("group:hr",))}


def test_deny_wins_over_whatever_allows(office: Office) -> None:
    office.ingest("--allow", "group:hr", "--allow", "user:ann", "--deny", "user:ann")
    assert office.visible_to('groups = ["hr"]') == {"leave.md"}
    assert office.visible_to(ANN) == set()
    id_ = office.ids()["leave.md"]
    office.inside.run("access", "set", id_, "--visibility", "tenant", "--deny", "group:hr")
    assert office.visible_to(BOB) == {"leave.md"}
    assert office.visible_to(ANN) == set()


def test_sources_of_one_folder_are_found_one_by_one(office: Office) -> None:
    office.write("pay.md", "# Pay\n\nDays of leave are paid.\n")
    office.ingest()
    office.access("set", office.ids()["pay.md"], "--allow", "group:hr")
    assert office.visible_to(BOB) == office.visible_to(BOB, office.desk) == {"leave.md"}
    assert office.visible_to(ANN) == {"leave.md", "pay.md"}


def test_a_grant_lets_see_and_a_revocation_ends_it(office: Office) -> None:
    office.ingest("--visibility", "restricted")
    id_ = office.ids()["leave.md"]
    assert office.access("grant", id_, "--to", "group:hr", "--to", "user:bob") == {
        "id": id_,
        "access": record("restricted", ("group:hr", "user:bob"), revision=2),
    }
    assert office.visible_to(ANN) == office.visible_to(BOB) == {"leave.md"}

    revoked = office.access("revoke", id_, "--from", "user:bob")
    assert revoked["access"] == record("restricted", ("group:hr",), ("user:bob",), revision=3)
    assert office.visible_to(ANN) == {"leave.md"}
    assert office.visible_to(BOB) == set()

    again = office.access("grant", id_, "--to", "user:bob")
    assert again["access"] == record("restricted", ("group:hr", "user:bob"), revision=4)
    assert office.visible_to(BOB) == {"leave.md"}


def test_a_revocation_holds_where_everybody_may_see(office: Office) -> None:
    office.ingest()
    revoked = office.access("revoke", office.ids()["leave.md"], "--from", "group:hr")
    assert revoked["access"] == record("tenant", deny=("group:hr",), revision=2)
    assert office.visible_to(ANN) == set()
    assert office.visible_to(BOB) == {"leave.md"}


def test_a_new_record_takes_the_place_of_the_old_one(office: Office) -> None:
    office.ingest("--allow", "group:hr", "--deny", "user:bob")
    id_ = office.ids()["leave.md"]
    changed = office.access("set", id_, "--visibility", "restricted", "--allow", "group:it")
    assert changed == {"id": id_, "access": record("restricted", ("group:it",), revision=2)}
    assert office.access_of(id_) == changed
    assert office.visible_to(BOB) == {"leave.md"}
    assert office.visible_to(ANN) == set()


def test_several_sources_of_several_collections_change_together(office: Office) -> None:
    office.ingest()
    office.ingest("--collection", "handbook")
    ids = [source["id"] for source in office.inside.sources()]
    assert len(set(ids)) == 2
    run = office.desk.run("access", "set", *ids, "--allow", "group:hr", "--json")
    assert len(run.stdout.splitlines()) == 2
    for id_ in ids:
        assert office.access_of(id_)["access"] == record("restricted", ("group:hr",), revision=2)


def test_all_of_a_collection_are_taken_without_matching_names(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids as names took quadratic time."""
    office.ingest()
    office.write("more.md", "# More\n")
    office.ingest()
    ids = office.ids()
    office.inside.json("remove", ids["more.md"])
    monkeypatch.delattr(NameIndex, "of")
    run = office.inside.run("access", "show", "--collection", "documents", "--json")
    assert {json.loads(line)["id"] for line in run.stdout.splitlines()} == {*ids.values()}


def test_folders_among_many_names_are_found_in_linear_time(
    tmp_path: Path, lines_run: Callable[[Callable[[], object]], int]
) -> None:
    table: Any = SimpleNamespace(collection=SimpleNamespace(name="documents"))

    def lines_of(count: int) -> int:
        names = [f"/d/{number}.md" for number in range(count)]
        sources = [SourceAccess(name, f"file://{name}", "", None, table, None) for name in names]
        return lines_run(lambda: named_folders(Settings(data=tmp_path), names, sources))

    assert lines_of(80) < 3 * lines_of(40)


def test_people_read_who_may_see_a_source_by_its_id_or_uri(office: Office) -> None:
    office.ingest("--allow", "user:ann", "--allow", "group:hr")
    id_ = office.ids()["leave.md"]
    description = office.desk.run("access", "show", id_).stdout
    assert description.splitlines() == [
        f"{id_}  Leave",
        "  visibility restricted",
        "  allow      group:hr, user:ann",
        "  deny       -",
    ]
    for name in (f"refdesk://documents/{id_}", f"{id_}/0"):
        assert office.inside.run("access", "show", name).stdout == description


EXPLAINED = """
[[access.rules]]
path = "denied.md"
visibility = "tenant"
deny = ["user:ann"]

[[access.rules]]
path = "both.md"
allow = ["user:ann", "group:hr"]
deny = ["group:it"]

[[access.rules]]
path = "nobody.md"
"""
RESTRICTED = "Not visible: it is restricted, and neither the user nor one of their groups is allowed."


def test_an_explanation_says_whether_somebody_sees_a_source_and_why(office: Office) -> None:
    for name in ("denied.md", "both.md", "nobody.md"):
        office.write(name, f"Days of leave, {name}\n")
    office.settings(EXPLAINED)
    office.ingest()
    ids = office.ids()
    for path, who, explanation in [
        ("leave.md", "", EVERYBODY),
        ("denied.md", "--user bob", EVERYBODY),
        ("denied.md", "--user ann", f"Not visible: user:ann {DENIED}"),
        ("both.md", "--user ann --group it", f"Not visible: group:it {DENIED}"),
        ("both.md", "--user ann", "Visible: user:ann is allowed."),
        ("both.md", "--user bob --group x --group hr", "Visible: group:hr is allowed."),
        ("both.md", "--user hr --group ann", RESTRICTED),
        ("nobody.md", "", RESTRICTED),
    ]:
        run = office.inside.run("access", "explain", ids[path], *who.split())
        assert run.stdout == f"{explanation}\n", (path, who)
    assert office.access("explain", ids["both.md"], "--user", "ann") == {
        "visible": True,
        "why": "user:ann is allowed.",
    }
    assert office.inside.json("access", "explain", ids["nobody.md"])["visible"] is False
    refused = office.inside.misuse("access", "explain", ids["both.md"], "--group", "group:hr")
    assert refused == f"refdesk-admin: {refusal(bare_name, 'group', 'group:hr')}\n"


def test_an_id_that_nothing_has_is_said(office: Office) -> None:
    office.ingest()
    for action, *options in (
        ["show"],
        ["set", "--visibility", "tenant"],
        ["grant", "--to", "user:ann"],
        ["revoke", "--from", "user:ann"],
        ["explain", "--user", "ann"],
    ):
        run = office.inside.run("access", action, "aaaaaaaaaaaaaaaa", *options, "--json", code=1)
        assert (run.stdout, run.stderr) == ("", NOT_FOUND)


def test_one_unknown_id_among_others_changes_none(office: Office) -> None:
    office.ingest()
    id_ = office.ids()["leave.md"]
    run = office.desk.run("access", "set", id_, "aaaaaaaaaaaaaaaa", "--visibility", "restricted", code=1)
    assert (run.stdout, run.stderr) == ("", NOT_FOUND)
    assert office.records() == {"leave.md": record("tenant")}


def test_wrong_entries_are_refused_and_change_nothing(office: Office) -> None:
    office.ingest()
    id_ = office.ids()["leave.md"]
    for *arguments, entry in (
        ["grant", id_, "--to", "group:hr", "--to", "ann"],
        ["revoke", id_, "--from", "User:ann"],
        ["set", id_, "--allow", "group: "],
        ["set", id_, "--deny", "user:a\nb"],
        ["set", id_, "--deny", f"user:{'a' * 256}"],
    ):
        run = office.inside.run("access", *arguments, entry, code=2)
        assert refusal(valid_entries, [entry]) in run.stderr
    conflict = office.desk.run("access", "set", id_, "--visibility", "tenant", "--allow", "user:ann", code=2)
    assert refusal(check_access, "tenant", ["user:ann"], []) in conflict.stderr
    for arguments in ([], ["--deny", "user:ann"]):  # a denial alone must not open what was restricted
        nothing = office.inside.run("access", "set", id_, *arguments, code=2)
        assert "Give --visibility or --allow" in nothing.stderr
    assert office.records() == {"leave.md": record("tenant")}


def test_wrong_entries_of_an_ingestion_are_refused_before_it_begins(office: Office) -> None:
    for options in (["--deny", "hr"], ["--visibility", "tenant", "--allow", "group:hr"]):
        assert office.inside.run("ingest", office.notes, *options, code=2).stdout == ""
    assert office.desk.run("ingest", office.notes, "--allow", "hr", code=2).stdout == ""
    assert not office.desk.data.exists()


def test_a_changed_file_keeps_its_record_whatever_the_run_asks_for(office: Office) -> None:
    office.ingest("--allow", "group:hr")
    office.write("leave.md", "# Leave\n\nEverybody has thirty-one days of leave.\n")
    office.write("new.md", "# New\n\nNew days of leave.\n")
    assert office.ingest("--visibility", "tenant")["counts"]["replaced"] == 1
    hr = record("restricted", ("group:hr",))
    assert office.records() == {"leave.md": hr, "new.md": hr}
    assert office.visible_to(BOB) == set()
    assert office.visible_to(ANN) == {"leave.md", "new.md"}


def test_a_record_is_changed_by_a_run_that_is_told_to_also_of_unchanged_files(office: Office) -> None:
    office.write("pay.md", "# Pay\n\nDays of leave are paid.\n")
    office.ingest("--allow", "group:hr")
    office.write("pay.md", "# Pay\n\nDays of leave are paid in full.\n")
    office.ingest("--allow", "group:it", "--set-access")
    groups = ("group:it",)
    assert office.records() == {
        "leave.md": record("restricted", groups, revision=2),
        "pay.md": record("restricted", groups, revision=3),  # for nobody until its new text was there
    }
    assert office.visible_to(ANN) == set()
    assert office.visible_to(BOB) == {"leave.md", "pay.md"}


def test_new_sources_are_as_visible_as_their_collection_says(office: Office) -> None:
    office.desk.run("collection", "create", "documents", "--visibility", "restricted")
    office.ingest()
    assert office.records() == {"leave.md": record("restricted")}
    assert office.visible_to(ANN) == set()
    office.ingest("--visibility", "tenant", "--set-access")
    assert office.visible_to(ANN) == {"leave.md"}


RULES = """
[[access.rules]]
path = "hr/pay/*"
allow = ["group:pay"]

[[access.rules]]
path = "hr/*"
visibility = "restricted"
allow = ["group:hr"]
deny = ["user:bob"]
"""


def test_rules_of_the_settings_say_who_sees_what_by_its_path(office: Office) -> None:
    office.write("hr/rules.md", "# Rules\n\nDays of leave end in March.\n")
    office.write("hr/pay/may.md", "# May\n\nDays of leave in May.\n")
    office.settings(RULES)
    office.ingest()
    assert office.records() == {
        "leave.md": record("tenant"),
        "hr/rules.md": record("restricted", ("group:hr",), ("user:bob",)),
        "hr/pay/may.md": record("restricted", ("group:pay",)),
    }
    assert office.visible_to(NOBODY) == {"leave.md"}
    assert office.visible_to(ANN) == {"leave.md", "hr/rules.md"}
    assert office.visible_to('groups = ["hr", "pay"]') == {"leave.md", "hr/rules.md", "hr/pay/may.md"}
    assert office.visible_to('user = "bob"\ngroups = ["hr", "pay"]') == {"leave.md", "hr/pay/may.md"}


def test_a_run_that_asks_for_a_record_goes_before_the_rules(office: Office) -> None:
    office.write("hr/rules.md", "# Rules\n\nDays of leave end in March.\n")
    office.settings(RULES)
    office.ingest("--allow", "user:eve")
    assert office.records()["hr/rules.md"] == record("restricted", ("user:eve",))


def test_new_rules_hold_for_sources_that_are_there_when_the_run_is_told_to(office: Office) -> None:
    office.write("hr/rules.md", "# Rules\n\nDays of leave end in March.\n")
    office.ingest()
    office.settings(RULES)
    office.ingest()
    assert office.records()["hr/rules.md"] == record("tenant")
    office.ingest("--set-access")
    assert office.records() == {
        "leave.md": record("tenant"),
        "hr/rules.md": record("restricted", ("group:hr",), ("user:bob",), revision=2),
    }


SAYS = "---\nvisibility: restricted\nallow: [group:hr, user:eve]\ndeny: user:bob\nauthor: Eve\n---\n"


def test_documents_say_who_sees_them_where_the_settings_let_them(office: Office) -> None:
    office.write("plans.md", f"{SAYS}# Plans\n\nMore days of leave.\n")
    office.write("wrong.md", "---\nvisibility: secret\n---\nSecret days of leave.\n")
    office.settings("[access]\nof_documents = true\n")
    report = office.ingest(code=3)
    assert [
        (entry["path"], entry["reason"]) for entry in report["files"] if entry["outcome"] == "skipped"
    ] == [(str(office.notes / "wrong.md"), UNKNOWN_VISIBILITY)]
    assert office.records() == {
        "leave.md": record("tenant"),
        "plans.md": record("restricted", ("group:hr", "user:eve"), ("user:bob",)),
    }
    metadata = office.inside.json("source", office.ids()["plans.md"])["metadata"]
    assert metadata == {"author": "Eve", "path": "plans.md"}
    assert office.visible_to(ANN) == {"leave.md", "plans.md"}
    assert office.visible_to('user = "bob"\ngroups = ["hr"]') == {"leave.md"}


def test_documents_have_no_say_by_default(office: Office) -> None:
    office.write("plans.md", f"{SAYS}# Plans\n\nMore days of leave.\n")
    office.write("wrong.md", "---\nvisibility: secret\n---\nSecret days of leave.\n")
    office.ingest("--allow", "group:it")
    assert set(office.records()) == {"leave.md", "plans.md", "wrong.md"}
    assert office.visible_to(ANN) == set()
    assert office.visible_to(BOB) == {"leave.md", "plans.md", "wrong.md"}


def test_a_grant_of_what_everybody_sees_changes_nothing_and_says_so(office: Office) -> None:
    office.ingest()
    id_ = office.ids()["leave.md"]
    run = office.desk.run("access", "grant", id_, "--to", "group:hr")
    assert "Everybody in the tenant can see" in run.stderr
    assert f"refdesk-admin access set {id_} --visibility restricted --allow group:hr" in run.stderr
    assert office.records() == {"leave.md": record("tenant", revision=2)}
    office.inside.run("access", "revoke", id_, "--from", "user:bob")
    assert "already" not in office.inside.run("access", "grant", id_, "--to", "user:bob").stderr  # lifts it
    assert office.visible_to(BOB) == {"leave.md"}


def test_names_that_nothing_has_had_are_told(office: Office) -> None:
    office.ingest()
    office.inside.run("key", "create", "--user", "ann", "--group", "hr")
    id_ = office.ids()["leave.md"]
    wrong = office.inside.run("access", "set", id_, "--allow", "user:anne", "--allow", "group:hr").stderr
    assert "has named user:anne yet. Did you mean user:ann?" in wrong
    assert "group:hr" not in wrong
    assert "yet" not in office.inside.run("access", "grant", id_, "--to", "user:anne").stderr
    assert "yet" not in office.inside.run("access", "revoke", id_, "--from", "group:HR").stderr
    # Letter case matters where somebody is let in.
    assert "mean group:hr?" in office.inside.run("access", "grant", id_, "--to", "group:Hr").stderr
    assert "group:it yet" in office.inside.run("access", "revoke", id_, "--from", "group:it").stderr

"""refdesk-admin key: keys that are shown once and end; the first makes a desk a shared one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from rag.access.keys import Keys, holder_of, keys_file, read_keys
from rag.access.rule import one_group_notes, valid_name
from rag.admin.sharing import UNLESS
from rag.corpus import Binding, Principal
from rag.errors import StoreError
from rag.filters.grammar import check_form
from tests.refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk, Inside


pytestmark = pytest.mark.slow


def test_a_key_is_shown_once_and_is_its_holders(desk: Desk) -> None:
    run = desk.run("key", "create", "--user", "ann", "--group", "hr", "--group", "it")
    (token,) = run.stdout.splitlines()
    assert "not be shown again" in run.stderr
    (listed,) = desk.json("key", "list")["keys"]
    assert (listed["tenant"], listed["user"], listed["groups"]) == ("default", "ann", ["hr", "it"])
    assert "digest" not in listed
    held = holder_of(token, read_keys(keys_file(desk.data)).keys)
    assert held is not None
    assert held.id == listed["id"]
    secret = token.split("_", 2)[2]
    assert not desk.files_with(secret.encode())


def test_a_rotation_says_how_to_end_a_key_that_is_still_valid(inside: Inside) -> None:
    old = inside.json("key", "create")
    turned = inside.run("key", "rotate", old["id"])
    assert f"key revoke {old['id']} --data {inside.data}" in turned.stderr
    (new,) = [key["id"] for key in inside.json("key", "list")["keys"] if key["id"] != old["id"]]
    assert "key revoke" not in inside.run("key", "rotate", new, "--keep-days", "0").stderr


def test_keys_are_listed_revoked_and_turned_into_new_ones(inside: Inside) -> None:
    assert "no keys yet" in inside.run("key", "list").stdout
    inside.run("tenant", "create", "acme")
    inside.run("tenant", "create", "beta")
    assert "Name one" in inside.misuse("key", "create")
    first = inside.json("key", "create", "--tenant", "acme", "--user", "ann", "--days", "10")
    second = inside.json("key", "create", "--tenant", "beta", "--days", "1")
    assert inside.run("key", "list").stdout.splitlines()[1].split()[:4] == [first["id"], "acme", "ann", "-"]

    turned = inside.json("key", "rotate", first["id"])
    keys = {key["id"]: key for key in inside.json("key", "list")["keys"]}
    assert keys.keys() == {first["id"], second["id"], turned["id"]}
    assert _days(keys[turned["id"]]) == timedelta(days=10)
    assert timedelta(hours=23) < _days(keys[first["id"]]) < timedelta(hours=25)

    assert turned["id"] in inside.misuse("key", "rotate", first["id"])
    again = inside.json("key", "rotate", turned["id"], "--keep-days", "0")
    assert inside.json("key", "revoke", second["id"]) == {"revoked": second["id"]}
    assert {key["id"] for key in inside.json("key", "list")["keys"]} == {first["id"], again["id"]}
    assert f"no key {second['id']!r}" in inside.failure("key", "revoke", second["id"])
    assert "no key" in inside.failure("key", "rotate", "x")

    theirs = inside.json("key", "create", "--tenant", "beta")
    inside.run("tenant", "remove", "acme", "--yes")
    assert [key["id"] for key in inside.json("key", "list")["keys"]] == [theirs["id"]]


def test_a_leaked_key_is_revoked_as_a_whole_and_never_repeated(inside: Inside) -> None:
    key = inside.json("key", "create")
    assert inside.json("key", "revoke", key["key"]) == {"revoked": key["id"]}
    assert inside.json("key", "list") == {"keys": []}
    secret = key["key"].split("_", 2)[2]
    assert secret not in inside.failure("key", "revoke", key["key"])


def test_several_groups_in_one_name_are_told(inside: Inside) -> None:
    (note,) = one_group_notes(["hr,staff"])
    assert note in inside.run("key", "create", "--group", "hr,staff").stderr
    assert note in inside.run("search", "x", "--group", "hr,staff").stderr
    assert "Note" not in inside.run("search", "x", "--group", "hr", "--group", "staff").stderr


def test_a_key_that_was_created_is_a_success_whatever_cannot_be_told_of_it(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket of the tenant is away: who takes that for a failure would create another one."""

    async def away(*_arguments: object, **_options: object) -> list[object]:
        raise StoreError("s3://acme can't be read.")

    monkeypatch.setattr("rag.admin.key_command.exposures", away)
    created = inside.run("key", "create", "--json")
    assert "s3://acme can't be read." in created.stderr
    assert [key["id"] for key in inside.json("key", "list")["keys"]] == [json.loads(created.stdout)["id"]]


def test_what_no_key_can_have_is_refused(inside: Inside) -> None:
    spaced = (["--user", " ann"], ["--group", "hr "])
    for wrong in (["--days", "0"], ["--days", "4000"], ["--group", ""], ["--group", "x" * 257], *spaced):
        inside.run("key", "create", *wrong, code=2)
    assert inside.json("key", "list") == {"keys": []}


def test_an_expired_key_is_marked(inside: Inside) -> None:
    inside.run("key", "create", "--days", "9")
    expired = inside.json("key", "create")
    file = keys_file(inside.data)
    file.write_text(file.read_text().replace(expired["expires_at"], "2026-01-01T00:00:00Z"))
    valid, ended = inside.run("key", "list").stdout.splitlines()[1:]
    assert "(expired)" not in valid
    assert "(expired)" in ended
    assert [key.get("expired") for key in inside.json("key", "list")["keys"]] == [None, True]


def _days(key: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])


def test_a_key_is_bound_to_what_the_options_say(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    free = inside.json("key", "create", "--user", "ann")
    options = ("--collection", "handbook", "--filter", '{"status": "final"}', "--profile", "precise")
    bound = inside.json("key", "create", "--user", "ann", *options, "--limit", "3", "--tool", "search")
    expected = {
        "collections": ["handbook"],
        "filter": {"status": "final"},
        "profile": "precise",
        "limit": 3,
        "tools": ["search"],
    }
    assert ("bound_to" in free, bound["bound_to"]) == (False, expected)
    lines = {line.split()[0]: line for line in inside.run("key", "list").stdout.splitlines()}
    assert lines["ID"].endswith("BOUND TO")
    assert lines[free["id"]].endswith(" -")
    assert lines[bound["id"]].endswith(
        'handbook; {"status": "final"}; profile precise; limit 3; tools search'
    )
    rotated = inside.json("key", "rotate", bound["id"])
    stored = {key.id: key for key in read_keys(keys_file(inside.data)).keys}
    binding = Binding(("handbook",), {"status": "final"}, "precise", 3, ("search",))
    assert stored[rotated["id"]].principal == Principal("default", "ann", bindings=(binding,))
    assert stored[free["id"]].principal == Principal("default", "ann")
    logged = inside.run("audit", "show", "--act", "key").stdout
    assert logged.count('"final"') >= 2 or logged.count("final") >= 2


USAGE, MISSING = 2, 1  # exit codes
REFUSED: list[tuple[int, list[str], str]] = [
    (MISSING, ["--collection", "handbok"], "no collection 'handbok'; there are: handbook, notes."),
    (USAGE, ["--collection", "No"], f"--collection: {refusal(valid_name, 'No')}"),
    (USAGE, ["--filter", "{"], "not valid JSON"),
    (USAGE, ["--filter", "{}"], f"--filter: {refusal(check_form, {})}"),
    (USAGE, ["--filter", '{"$nor": []}'], f"--filter: {refusal(check_form, {'$nor': []})}"),
    (USAGE, ["--filter", '{"status": 5}'], "fields of any collection (handbook, notes)"),
    (USAGE, ["--collection", "notes", "--filter", '{"status": "x"}'], "of any collection (notes)"),
    (USAGE, ["--profile", "best"], "there is no profile 'best'; use one of: default, fast, precise, fresh."),
    (USAGE, ["--limit", "0"], "0 is not in the range 1<=x<=100"),
    (USAGE, ["--tool", "find"], "--tool: there is no search tool 'find'; use some of: search."),
]


def test_a_binding_that_could_show_nothing_is_refused(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    for code, options, words in REFUSED:
        assert words in inside.run("key", "create", *options, code=code).stderr
    assert inside.json("key", "list") == {"keys": []}


def test_a_filter_that_suits_only_some_collections_says_which_it_hides(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    run = inside.run("key", "create", "--filter", '{"status": "final"}')
    assert "shows nothing of notes: the filter doesn't fit its fields" in run.stderr


OAUTH = """
[http]
authentication = ["oauth"]
public_url = "https://desk.example"
[oauth]
issuer = "https://id.example"
jwks_url = "https://id.example/keys"
tenants = {acme = "default"}
"""
SAYING = ("status", "doctor", "config check")


@dataclass(frozen=True, slots=True)
class Shelf:
    """A desk with one document, from when nobody else could ask, and a folder for more."""

    desk: Desk
    folder: Path
    config: Path

    def write(self, name: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n\nThirty days of leave.\n")
        return file

    def ingest(self, name: str, *options: str) -> None:
        """Ingest one more file."""
        self.desk.run("ingest", self.write(name).parent, *options, "--config", self.config)

    def open_paths(self) -> set[str]:
        """What everybody in the tenant can see."""
        paths = set()
        for source in self.desk.sources():
            access = self.desk.json("access", "show", source["id"])["access"]
            if access["visibility"] == "tenant":
                paths.add(source["title"])
        return paths

    def says(self, command: str) -> list[str]:
        """The lines of a command that name what is open, on both streams."""
        run = self.desk.run(*command.split(), "--config", self.config)
        return [line for line in (run.stdout + run.stderr).splitlines() if "open to the whole tenant" in line]


@pytest.fixture
def shelf(inside: Desk, tmp_path: Path) -> Shelf:
    new_shelf = Shelf(inside, tmp_path / "docs", tmp_path / "config.toml")
    new_shelf.config.write_text("")
    new_shelf.ingest("handbook/leave.md")
    return new_shelf


def test_what_comes_in_after_the_first_key_is_hidden_and_what_was_open_is_named(
    desk: Desk, shelf: Shelf
) -> None:
    key = desk.run("key", "create", "--user", "ann").stderr
    assert "documents: 1 document is open to the whole tenant" in key
    assert "refdesk-admin access set --collection documents --if-open --allow group:NAME" in key

    salaries = shelf.write("hr/salaries.md")
    run = desk.run("ingest", salaries.parent)
    assert "1 added: 1 restricted to nobody" in run.stdout
    assert "documents: 1 document is open" in run.stderr
    shelf.ingest("handbook/travel.md")  # beside the one that is open
    assert shelf.open_paths() == {"handbook/leave.md"}
    assert [bool(shelf.says(command)) for command in SAYING] == [True, True, True]


def test_one_persons_desk_stays_open_and_hears_nothing(shelf: Shelf) -> None:
    key = shelf.desk.json("key", "create")
    shelf.desk.run("key", "revoke", key["id"])
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md", "hr/salaries.md"}
    assert [shelf.says(command) for command in SAYING] == [[], [], []]


@pytest.mark.parametrize("settings", ['[principal]\ngroups = ["hr"]\n', OAUTH], ids=["groups", "oauth"])
def test_groups_and_oauth_make_a_desk_a_shared_one(shelf: Shelf, settings: str) -> None:
    shelf.config.write_text(settings)
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md"}
    assert len(shelf.says("status")) == 1


def test_an_expired_key_counts_until_it_is_revoked_because_it_can_be_renewed(shelf: Shelf) -> None:
    shelf.desk.run("key", "create")
    file = keys_file(shelf.desk.data)
    expired = [key.model_copy(update={"expires_at": key.created_at}) for key in read_keys(file).keys]
    file.write_text(Keys(keys=tuple(expired)).model_dump_json(exclude_none=True))
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md"}
    (line,) = shelf.says("status")
    assert "1 expired" in line


def test_a_key_of_another_tenant_changes_nothing(shelf: Shelf) -> None:
    shelf.desk.run("tenant", "create", "acme")
    shelf.desk.run("key", "create", "--tenant", "acme")
    shelf.ingest("hr/salaries.md", "--tenant", "default")
    (collection,) = shelf.desk.json("collection", "list", "--tenant", "default")["collections"]
    assert collection["visibility"] == "tenant"
    assert shelf.says("status --tenant default") == []
    shelf.desk.run("key", "create", "--tenant", "default")
    (line,) = shelf.says("doctor")
    assert "--tenant default" in line


def test_what_somebody_said_of_an_origin_a_folder_a_rule_a_document_or_a_collection_counts_and_is_named(
    shelf: Shelf,
) -> None:
    shelf.ingest("news/monday.md", "--visibility", "tenant")
    shelf.desk.run("key", "create")
    shelf.ingest("news/tuesday.md")
    folder = shelf.write("notices/fire.md").parent
    shelf.config.write_text(
        '[[access.rules]]\npath = "menu/*"\nvisibility = "tenant"\n'
        f'[origins.notices]\ntype = "folder"\npath = "{folder}"\nvisibility = "tenant"\n'
    )
    shelf.ingest("menu/lunch.md")
    shelf.desk.run("sync", "notices", "--config", shelf.config)
    shelf.ingest("hr/salaries.md")  # nobody said anything of it
    said_open = {"news/monday.md", "news/tuesday.md", "menu/lunch.md", "notices/fire.md"}
    assert shelf.open_paths() == {"handbook/leave.md"} | said_open
    for command in (*SAYING, "key create"):
        (line,) = shelf.says(command)
        assert f"New documents of it are restricted, {UNLESS}" in line
    shelf.desk.run("collection", "create", "wiki", "--visibility", "tenant")
    shelf.ingest("wiki/start.md", "--collection", "wiki")
    assert "wiki/start.md" in shelf.open_paths()
    shelf.config.write_text("[access]\nof_documents = true\n")
    stated = shelf.write("own/welcome.md")
    stated.write_text(f"---\nvisibility: tenant\n---\n{stated.read_text()}")
    shelf.desk.run("ingest", stated, "--config", shelf.config)
    assert "own/welcome.md" in shelf.open_paths()


def test_a_collection_that_is_set_open_is_open_for_new_documents_and_not_noted_any_more(shelf: Shelf) -> None:
    shelf.desk.run("key", "create")
    shelf.desk.run("collection", "set", "documents", "--visibility", "tenant")
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md", "hr/salaries.md"}
    assert shelf.says("doctor") == shelf.says("config check") == []
    assert len(shelf.says("status")) == len(shelf.says("key create")) == 1


def test_a_collection_that_is_set_restricted_keeps_its_documents_as_they_are_and_says_so(
    shelf: Shelf,
) -> None:
    printed = shelf.desk.run("collection", "set", "documents", "--visibility", "restricted").stdout
    assert "1 of them open to everybody" in printed
    assert "access set --collection documents --if-open" in printed
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md"}
    again = shelf.desk.run("collection", "set", "documents", "--visibility", "tenant").stdout
    assert "1 of them restricted" in again


def test_what_is_open_is_restricted_and_nothing_else_becomes_wider(shelf: Shelf) -> None:
    shelf.ingest("hr/salaries.md", "--allow", "user:ann")
    shelf.ingest("it/servers.md", "--visibility", "tenant", "--deny", "user:bob")
    shelf.desk.run("access", "set", "--collection", "documents", "--if-open", "--allow", "group:staff")
    access = {
        source["title"]: shelf.desk.json("access", "show", source["id"])["access"]
        for source in shelf.desk.sources()
    }
    assert {title: (record["allow"], record["deny"]) for title, record in access.items()} == {
        "handbook/leave.md": (["group:staff"], []),
        "hr/salaries.md": (["user:ann"], []),
        "it/servers.md": (["group:staff"], ["user:bob"]),
    }
    nothing = ("access", "set", "--collection", "documents", "--if-open", "--allow", "group:staff")
    assert "Nothing was changed" in shelf.desk.failure(*nothing)


def test_a_rehearsal_shows_what_the_run_would_do(shelf: Shelf) -> None:
    shelf.desk.run("key", "create")
    folder = shelf.write("hr/salaries.md").parent
    would = shelf.desk.json("ingest", folder, "--dry-run")["files"]
    assert [change["access"]["visibility"] for change in would] == ["restricted"]

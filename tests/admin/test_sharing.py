"""A desk that becomes a shared one: what is open is named, and what comes in later is restricted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rag.access.keys import Keys, keys_file, read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

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
        for source in self.desk.json("sources")["sources"]:
            shown = self.desk.json("access", "show", source["id"])["access"]
            if shown["visibility"] == "tenant":
                paths.add(source["title"])
        return paths

    def says(self, command: str) -> list[str]:
        """The lines of a command that name what is open, on both streams."""
        run = self.desk.run(*command.split(), "--config", self.config)
        return [line for line in (run.stdout + run.stderr).splitlines() if "open to the whole tenant" in line]


@pytest.fixture
def shelf(inside: Desk, tmp_path: Path) -> Shelf:
    made = Shelf(inside, tmp_path / "docs", tmp_path / "config.toml")
    made.config.write_text("")
    made.ingest("handbook/leave.md")
    return made


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


@pytest.mark.parametrize(
    "settings",
    [
        '[principal]\ngroups = ["hr"]\n',
        OAUTH,
    ],
    ids=["groups", "oauth"],
)
def test_groups_and_oauth_make_a_desk_a_shared_one(shelf: Shelf, settings: str) -> None:
    shelf.config.write_text(settings)
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md"}
    assert len(shelf.says("status")) == 1


def test_an_expired_key_counts_until_it_is_revoked_because_it_can_be_renewed(shelf: Shelf) -> None:
    shelf.desk.run("key", "create")
    file = keys_file(shelf.desk.data)
    expired = [one.model_copy(update={"expires_at": one.created_at}) for one in read_keys(file).keys]
    file.write_text(Keys(keys=tuple(expired)).model_dump_json(exclude_none=True))
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md"}
    (said,) = shelf.says("status")
    assert "1 expired" in said


def test_a_key_of_another_tenant_changes_nothing(shelf: Shelf) -> None:
    shelf.desk.run("tenant", "create", "acme")
    shelf.desk.run("key", "create", "--tenant", "acme")
    shelf.ingest("hr/salaries.md", "--tenant", "default")
    (shown,) = shelf.desk.json("collection", "list", "--tenant", "default")["collections"]
    assert shown["visibility"] == "tenant"
    assert shelf.says("status --tenant default") == []
    shelf.desk.run("key", "create", "--tenant", "default")
    (said,) = shelf.says("doctor")
    assert "--tenant default" in said


def test_what_somebody_said_of_a_folder_a_rule_or_a_collection_counts(shelf: Shelf) -> None:
    shelf.ingest("news/monday.md", "--visibility", "tenant")
    shelf.desk.run("key", "create")
    shelf.ingest("news/tuesday.md")
    shelf.config.write_text('[[access.rules]]\npath = "menu/*"\nvisibility = "tenant"\n')
    shelf.ingest("menu/lunch.md")
    assert shelf.open_paths() == {"handbook/leave.md", "news/monday.md", "news/tuesday.md", "menu/lunch.md"}
    shelf.desk.run("collection", "create", "wiki", "--visibility", "tenant")
    shelf.ingest("wiki/start.md", "--collection", "wiki")
    assert "wiki/start.md" in shelf.open_paths()


def test_a_collection_that_is_set_open_is_open_for_new_documents_and_not_noted_any_more(
    shelf: Shelf,
) -> None:
    shelf.desk.run("key", "create")
    shelf.desk.run("collection", "set", "documents", "--visibility", "tenant")
    shelf.ingest("hr/salaries.md")
    assert shelf.open_paths() == {"handbook/leave.md", "hr/salaries.md"}
    assert shelf.says("doctor") == shelf.says("config check") == []
    assert len(shelf.says("status")) == len(shelf.says("key create")) == 1


def test_a_collection_that_is_set_restricted_keeps_its_documents_as_they_are_and_says_so(
    shelf: Shelf,
) -> None:
    said = shelf.desk.run("collection", "set", "documents", "--visibility", "restricted").stdout
    assert "1 of them open to everybody" in said
    assert "access set --collection documents --if-open" in said
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
        for source in shelf.desk.json("sources")["sources"]
    }
    assert {title: (one["allow"], one["deny"]) for title, one in access.items()} == {
        "handbook/leave.md": (["group:staff"], []),
        "hr/salaries.md": (["user:ann"], []),
        "it/servers.md": (["group:staff"], ["user:bob"]),
    }
    nothing = ("access", "set", "--collection", "documents", "--if-open", "--allow", "group:staff")
    assert "Nothing was changed" in shelf.desk.run(*nothing, code=1).stderr


def test_a_rehearsal_shows_what_the_run_would_do(shelf: Shelf) -> None:
    shelf.desk.run("key", "create")
    folder = shelf.write("hr/salaries.md").parent
    would = shelf.desk.json("ingest", folder, "--dry-run")["files"]
    assert [one["access"]["visibility"] for one in would] == ["restricted"]

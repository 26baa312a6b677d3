"""refdesk-admin sync: origins of the settings, brought in from outside, and what their exit codes say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from rag.admin import runs_command
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import NotFoundError
from rag.ingest.report import unmatched_notes
from rag.search.sync import SyncDesk
from rag.store.write.locks import locked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.admin.conftest import Desk
    from tests.endpoint import Site

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Origins:
    """A desk with a settings file and a folder for what its origins have."""

    desk: Desk
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def set(self, **origins: Mapping[str, object]) -> None:
        tables = (
            f"[origins.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
            for name, table in origins.items()
        )
        self.config.write_text("\n".join(tables))

    def sync(self, *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 any JSON
        return self.desk.json("sync", *arguments, "--config", self.config, code=code)["origins"]

    def records(self, *lines: object, end: bool = True, sync: str = "full") -> None:
        """Write a stream of records into the file that the origin "tickets" reads."""
        count = {"end": True, "count": len(lines)}
        head = {"refdesk": "records", "version": 1, "sync": sync}
        written = [line if isinstance(line, str) else json.dumps(line) for line in (head, *lines)]
        file = self.folder / "records.jsonl"
        file.write_text("\n".join([*written, *([json.dumps(count)] if end else [])]) + "\n")
        if not self.config.exists():
            self.set(tickets={"type": "records", "file": str(file)})

    def titles(self, query: str, *groups: str) -> list[str]:
        """The titles that a member of these groups finds."""
        asker = [part for group in groups for part in ("--group", group)] or ["--user", "nobody"]
        return self.desk.titles(query, *asker)


@pytest.fixture
def origins(unconnected: Desk, tmp_path: Path) -> Origins:
    return Origins(unconnected, tmp_path)


def record(id_: str, text: str, *allow: str, **more: object) -> dict[str, object]:
    access = {"visibility": "restricted", "allow": list(allow)} if allow else {"visibility": "tenant"}
    return {"id": id_, "title": id_, "text": text, "access": access, **more}


def test_a_record_whose_access_gets_narrower_is_out_of_reach_though_its_text_stays(origins: Origins) -> None:

    of_two = record("b", "the pendulum of hr", "group:hr", "group:it")
    origins.records(record("a", "the pendulum clock"), of_two)
    assert origins.sync()["tickets"]["counts"]["added"] == 2
    assert origins.titles("pendulum") == ["a"]
    assert origins.titles("pendulum", "it") == ["a", "b"]

    origins.records(
        record("a", "the pendulum clock", "group:hr"), record("b", "the pendulum of hr", "group:hr")
    )
    counts = origins.sync()["tickets"]["counts"]
    assert (counts["unchanged"], counts["replaced"]) == (2, 0)
    assert origins.titles("pendulum") == origins.titles("pendulum", "it") == []
    assert origins.titles("pendulum", "hr") == ["a", "b"]

    origins.records(record("a", "the pendulum clock"), record("b", "the pendulum of hr", "group:it"))
    origins.sync()
    assert origins.titles("pendulum") == ["a"]  # wider again, because the connector says so
    assert origins.titles("pendulum", "it") == ["a", "b"]
    assert origins.titles("pendulum", "hr") == ["a"]


def test_a_desk_that_is_open_sees_a_narrowed_record_no_more(origins: Origins) -> None:
    """Also if nothing but its access changed, and the desk was opened before."""
    origins.records(record("a", "the pendulum clock"))
    origins.sync()
    somebody = Principal("default", "ann")
    with SyncDesk.open(Settings(data=origins.desk.data)) as desk:
        (hit,) = desk.search(somebody, "pendulum").hits
        origins.records(record("a", "the pendulum clock", "group:hr"))
        origins.sync()
        assert desk.search(somebody, "pendulum").hits == ()
        with pytest.raises(NotFoundError):
            desk.extract(somebody, hit.source.id, max_chars=100)
        reader = Principal("default", "bob", frozenset({"hr"}))
        assert desk.search(reader, "pendulum").hits  # the control


def test_settings_of_origins_that_do_not_go_together_are_refused(origins: Origins) -> None:
    folder = {"type": "folder", "path": str(origins.desk.data / "x")}
    origins.set(mine=folder)
    refusal = origins.desk.misuse("sync", "--config", origins.config)
    assert "origins.mine.path: it lies in the data folder" in refusal
    folder = {"type": "folder", "path": str(origins.folder)}
    origins.set(one=folder, two=folder)
    refusal = origins.desk.misuse("sync", "--config", origins.config)
    assert "origins.two.path: the origin 'one' has the same folder and collection" in refusal


def test_what_an_operator_took_away_by_hand_no_connector_gives_back(origins: Origins) -> None:
    origins.records(record("a", "the pendulum clock"))
    origins.sync()
    origins.desk.run("access", "set", "origin:tickets/a", "--visibility", "restricted", "--allow", "group:hr")
    (entry,) = origins.sync()["tickets"]["files"]
    assert entry["reason"] == "its origin says open to the tenant, but somebody narrowed it by hand"
    assert (origins.titles("pendulum"), origins.titles("pendulum", "hr")) == ([], ["a"])
    granted = origins.desk.run("access", "grant", "origin:tickets/a", "--to", "group:it")
    assert "The origin of origin:tickets/a decides who may see it: its next sync takes back" in granted.stderr
    origins.records(record("a", "the pendulum clock of 1656"))  # not with a new text either
    origins.sync()
    assert (origins.titles("pendulum"), origins.titles("pendulum", "hr")) == ([], ["a"])
    origins.sync("--set-access")
    assert origins.titles("pendulum") == ["a"]


def test_unreadable_access_and_missing_access_are_for_nobody(origins: Origins) -> None:
    origins.records(*(record(name, f"the pendulum {name}") for name in "abc"))
    origins.sync()
    assert origins.titles("pendulum") == ["a", "b", "c"]
    wrong = record("a", "the pendulum a") | {"access": {"visibility": "everybody"}}
    missing = {"id": "b", "title": "b", "text": "the pendulum b"}
    origins.records(wrong, missing, record("c", "the pendulum c"))
    report = origins.sync(code=3)["tickets"]
    assert (
        "line 2: 'a': nobody may see it: visibility must be tenant or restricted"
        in report["files"][0]["reason"]
    )
    assert origins.titles("pendulum") == ["c"]


def test_a_stream_that_is_cut_off_takes_rights_away_but_removes_nothing(origins: Origins) -> None:
    origins.records(*(record(name, f"the pendulum {name}") for name in "abc"))
    origins.sync()
    origins.records(record("a", "the pendulum a", "group:hr"), '{"id": "b", "tex', end=False)
    report = origins.sync(code=3)["tickets"]
    assert report["counts"]["removed"] == 0
    assert any("the stream was not complete, so nothing was removed" in note for note in report["notes"])
    assert origins.titles("pendulum") == ["b", "c"]
    origins.records(record("b", "the pendulum b"))
    assert origins.sync()["tickets"]["counts"]["removed"] == 2  # the control: a complete one does
    assert origins.titles("pendulum", "hr") == ["b"]


def test_an_empty_stream_removes_nothing_without_yes(origins: Origins) -> None:
    origins.records(*(record(name, f"the pendulum {name}") for name in "abc"))
    origins.sync()
    for stream in ((), (record("z", "another pendulum"),)):
        origins.records(*stream)
        report = origins.sync(code=3)["tickets"]
        assert (report["counts"]["removed"], report["counts"]["missing"]) == (0, 3)
        assert "the origin may be incomplete" in report["notes"][0]
        assert origins.titles("pendulum") == [*"abc", *(["z"] if stream else [])]
    origins.records(*({"id": name, "deleted": True} for name in "abcz"), sync="changes")
    assert origins.sync()["tickets"]["counts"]["removed"] == 4  # what is named is deleted
    origins.records(record("a", "the pendulum a"))
    origins.sync()
    origins.records()
    assert origins.sync("--yes")["tickets"]["counts"]["removed"] == 1
    assert origins.titles("pendulum") == []


def test_changes_leave_the_rest_alone_and_deletions_count(origins: Origins) -> None:
    origins.records(*(record(name, f"the pendulum {name}") for name in "abc"))
    origins.sync()
    origins.records(record("a", "the escapement a"), {"id": "b", "deleted": True}, sync="changes")
    counts = origins.sync()["tickets"]["counts"]
    assert (counts["replaced"], counts["removed"], counts["unchanged"]) == (1, 1, 0)
    assert origins.titles("pendulum escapement") == ["a", "c"]


def test_one_origin_that_fails_does_not_stop_the_others(origins: Origins) -> None:
    (origins.folder / "docs").mkdir()
    (origins.folder / "docs" / "leave.md").write_text("# Leave\n\nThirty days of leave.\n")
    broken = {"type": "records", "command": ["/nonexistent/connector"]}
    origins.set(broken=broken, handbook={"type": "folder", "path": str(origins.folder / "docs")})
    report = origins.sync(code=3)
    assert (
        report["broken"]["error"]
        == "The command '/nonexistent/connector' can't be run: No such file or directory."
    )
    assert report["handbook"]["counts"]["added"] == 1
    assert "error" in origins.sync("broken", code=1)["broken"]
    quiet = origins.desk.run("sync", "handbook", "--quiet", "--config", origins.config)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    run = origins.desk.run("sync", "wiki", "--config", origins.config, code=2)
    assert run.stderr == "refdesk-admin: There is no origin 'wiki'. Origins: broken, handbook.\n"


def test_an_origin_whose_collection_is_busy_has_not_failed(origins: Origins) -> None:
    (origins.folder / "docs").mkdir()
    (origins.folder / "docs" / "leave.md").write_text("# Leave\n\nThirty days of leave.\n")
    docs = {"type": "folder", "path": str(origins.folder / "docs")}
    origins.set(docs=docs, pay={**docs, "collection": "pay"})
    origins.sync()
    with locked(origins.desk.data, "default.documents", seconds=0):
        assert "error" in origins.sync("docs", code=4)["docs"]
        assert "error" not in origins.sync(code=4)["pay"]
        origins.set(docs=docs, pay={**docs, "path": str(origins.folder / "gone"), "collection": "pay"})
        origins.sync("--quiet", "--known-ok", code=3)


def test_each_origin_of_a_collection_has_a_last_run_of_its_own(
    origins: Origins, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("docs", "pay"):
        (origins.folder / name).mkdir()
        (origins.folder / name / f"{name}.md").write_text(f"# {name}\n\nThe {name}.\n")
    tables = {name: {"type": "folder", "path": str(origins.folder / name)} for name in ("pay", "docs")}
    origins.set(**tables)
    origins.sync()

    def reached() -> dict[str, str]:
        states = origins.desk.json("status", "--config", origins.config)["origins"]
        return {name: state["reached"] for name, state in states.items()}

    before, later = reached(), datetime(2100, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(runs_command, "now", lambda: later)
    (origins.folder / "pay").rename(origins.folder / "away")
    for _ in range(2):
        origins.sync(code=3)
    now = reached()
    assert (now["pay"], now["docs"][:4]) == (before["pay"], "2100")
    assert (
        before["pay"][:16].replace("T", " ") in origins.desk.run("status", "--config", origins.config).stdout
    )

    def told(command: str, code: int = 0) -> list[str]:
        printed = origins.desk.run(command, "--config", origins.config, code=code).stdout
        return re.findall(r"the last sync of (\w+) failed", printed)

    assert told("status") == told("doctor", code=1) == ["pay"]
    of_runs = origins.desk.run("runs").stdout
    assert re.findall(r"sync of (\w+) +(\w+)", of_runs)[-2:] == [("pay", "failed"), ("docs", "complete")]
    origins.desk.run("purge")
    assert told("status") == ["pay"]
    del tables["pay"]
    origins.set(**tables)
    assert told("status") == told("doctor") == []


def test_quiet_lines_begin_with_the_name_of_their_origin(origins: Origins) -> None:
    for name in ("leave", "pay"):
        (origins.folder / name).mkdir()
        (origins.folder / name / f"{name}.md").write_text(f"# {name}\n\nThe {name}.\n")
    (origins.folder / "pay" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    folders = {name: {"type": "folder", "path": str(origins.folder / name)} for name in ("leave", "pay")}
    origins.set(**folders)
    run = origins.desk.run("sync", "--quiet", "--config", origins.config, code=3)
    lines = (run.stdout + run.stderr).splitlines()
    assert {line.partition(" ")[0] for line in lines} == {"leave:", "pay:"}
    assert [line for line in lines if "broken.pdf" in line]
    again = ("sync", "--quiet", "--config", origins.config)
    assert "broken.pdf" in origins.desk.run(*again, code=3).stderr
    repeated = origins.desk.run(*again, "--known-ok")  # as a scheduler runs it, which mails what is printed
    assert (repeated.stdout, repeated.stderr) == ("", "")
    (origins.folder / "pay" / "second.pdf").write_bytes(b"%PDF-1.4 broken, too")
    assert "second.pdf" in origins.desk.run(*again, "--known-ok", code=3).stderr
    (origins.folder / "pay" / "second.pdf").unlink()
    (origins.folder / "pay" / "broken.pdf").unlink()
    (origins.folder / "pay" / "more.md").write_text("# More\n\nMore pay.\n")
    rehearsed = origins.desk.run("sync", "--quiet", "--dry-run", "--config", origins.config).stdout
    assert [line for line in rehearsed.splitlines() if line.endswith(":")] == ["leave:", "pay:"]
    run = origins.desk.run("sync", "--json", "--config", origins.config)
    assert [line for line in run.stderr.splitlines() if line.endswith(":")] == ["leave:", "pay:"]


HR = {"visibility": "restricted", "allow": ["group:hr"]}


@pytest.fixture
def nested(origins: Origins) -> Origins:
    """A folder of which an origin inside another one says that only hr may see it."""
    (origins.folder / "d" / "hr").mkdir(parents=True)
    (origins.folder / "d" / "hr" / "wages.md").write_text("# Wages\n\nOf leave, only hr reads.\n")
    (origins.folder / "d" / "open.md").write_text("# Open\n\nOf leave, everybody reads.\n")
    return origins


def folder(path: Path, **more: object) -> dict[str, object]:
    return {"type": "folder", "path": str(path), **more}


@pytest.mark.parametrize(
    ("wide", "inner"),
    [({}, {}), ({"visibility": "tenant"}, {}), ({}, {"collection": "others"}), ({}, {"tenant": "default"})],
    ids=["silent", "open", "another collection", "by tenant"],
)
def test_what_an_origin_states_counts_from_the_first_run_of_the_one_around_it(
    nested: Origins, wide: dict[str, object], inner: dict[str, object]
) -> None:
    path = nested.folder / "d"
    nested.set(all=folder(path, **wide), hr=folder(path / "hr", **HR, **inner))
    assert nested.sync("all")["all"]["counts"]["added"] == 2
    assert nested.titles("leave") == ["Open"]
    assert nested.titles("leave", "hr") == ["Open", "Wages"]
    synced = nested.sync("--set-access")
    assert not any("earlier rights" in note for note in synced["hr"]["notes"])
    assert nested.titles("leave") == ["Open"]


def test_what_an_origin_states_counts_for_ingest_too_unless_its_access_is_set(nested: Origins) -> None:
    path = nested.folder / "d"
    link = nested.folder / "of-hr"
    link.symlink_to(path / "hr")
    nested.set(hr=folder(link, **HR))
    nested.desk.run("ingest", path, "--config", nested.config)
    assert nested.titles("leave") == ["Open"]
    assert nested.titles("leave", "hr") == ["Open", "Wages"]
    for_all = ("--visibility", "tenant", "--set-access", "--config", nested.config)
    nested.desk.run("ingest", path, *for_all)
    assert nested.titles("leave") == ["Open", "Wages"]


def test_an_origin_of_another_tenant_states_nothing_here(nested: Origins) -> None:
    path = nested.folder / "d"
    for name in ("acme", "beta"):
        nested.desk.run("tenant", "create", name)
    nested.set(
        all=folder(path, tenant="acme"), hr=folder(path / "hr", **HR, tenant="beta"), again=folder(path)
    )
    nested.sync("all")
    assert nested.desk.titles("leave", "--tenant", "acme", "--user", "nobody") == ["Open", "Wages"]


def test_access_set_for_a_link_counts_wherever_it_leads_later(origins: Origins) -> None:
    for release in "12":
        (origins.folder / release).mkdir()
        (origins.folder / release / f"{release}.md").write_text(f"# Release {release}\n\nOf leave.\n")
    link = origins.folder / "current"
    link.symlink_to("1")
    origins.desk.run("ingest", link)
    assert origins.titles("leave") == ["Release 1"]
    origins.desk.run("access", "set", link, "--allow", "group:hr")
    link.unlink()
    link.symlink_to("2")
    origins.desk.run("ingest", link)
    assert origins.titles("leave") == []
    assert origins.titles("leave", "hr") == ["Release 1", "Release 2"]


def test_documents_of_an_origin_that_is_gone_from_the_settings_are_told_and_stay(origins: Origins) -> None:
    records = {"type": "records", "file": str(origins.folder / "records.jsonl")}
    origins.set(tickets=records)
    origins.records(record("a", "the pendulum clock"), record("b", "the pendulum of hr"))
    origins.sync()
    desk, config = origins.desk, ("--config", origins.config)
    assert "Note:" not in desk.run("sync", *config).stderr
    assert "from the origin" not in desk.run("doctor", *config).stdout

    origins.set(issues=records | {"collection": "others"})  # renamed, and another collection
    warnings = desk.run("sync", *config).stderr
    assert (
        "Note: 2 documents in documents come from the origin tickets, which isn't in the settings any more, "
        "so no sync changes or removes them. To remove them, run refdesk-admin remove origin:tickets "
        "--collection documents.\n" in warnings
    )
    assert "Note:" not in desk.run("sync", "--quiet", *config).stderr
    (finding,) = desk.findings("origins", *config)
    assert (finding["state"], finding["part"]) == ("note", "tickets")
    report = origins.folder / "report.md"
    desk.run("doctor", "--bundle", report, *config)
    assert "come from the origin ORIGIN, which" in report.read_text()
    assert "tickets" not in report.read_text()
    origins.set(issues=records)
    assert "2 documents in others come from the origin issues, which brings nothing into it any more" in (
        desk.run("doctor", *config).stdout
    )
    assert origins.titles("pendulum") == ["a", "b"]  # each once, though two collections have it
    desk.run("remove", "origin:tickets", "--collection", "documents")
    assert "origin tickets" not in desk.run("doctor", *config).stdout


BOARD = '[access]\nrules = [{ path = "board/*", allow = ["group:board"] }]\n\n'


def notes_of_rules(run: CompletedProcess[str]) -> list[str]:
    """The notes on rules, by what `ingest` says of one that matches nothing."""
    (told,) = unmatched_notes(["board/*"], ())
    return [line for line in (run.stdout + run.stderr).splitlines() if line.endswith(told)]


def test_a_rule_that_matches_nothing_is_told_once_and_only_by_a_run_of_all_origins(origins: Origins) -> None:
    for name in ("hr", "eng"):
        (origins.folder / name).mkdir()
        (origins.folder / name / "plan.md").write_text(f"# {name}\n\nThe plan.\n")
    origins.set(hr=folder(origins.folder / "hr"), eng=folder(origins.folder / "eng"))
    origins.config.write_text(BOARD + origins.config.read_text())
    sync = partial(origins.desk.run, "sync", "--config", origins.config)
    assert len(notes_of_rules(sync("--dry-run"))) == 1
    assert len(notes_of_rules(sync())) == 1
    assert len(notes_of_rules(sync("--json"))) == 1
    assert notes_of_rules(sync("eng")) == []
    assert notes_of_rules(sync("--quiet")) == []
    assert (
        len(
            notes_of_rules(
                origins.desk.run("ingest", origins.folder / "hr", "--dry-run", "--config", origins.config)
            )
        )
        == 1
    )
    (origins.folder / "eng" / "board").mkdir()
    (origins.folder / "eng" / "board" / "pay.md").write_text("# Pay\n\nOf the board.\n")
    assert notes_of_rules(sync()) == []
    assert notes_of_rules(sync()) == []  # nothing has changed
    origins.set(hr=folder(origins.folder / "hr"), broken={"type": "records", "command": ["/nonexistent"]})
    origins.config.write_text(BOARD + origins.config.read_text())
    assert notes_of_rules(sync(code=3)) == []  # the one that failed may have what the rule is about


def test_records_that_are_piped_in_for_no_origin_are_refused(origins: Origins) -> None:
    """The records used to vanish: with exit code 0, and with --quiet without a word."""
    (origins.folder / "docs").mkdir()
    (origins.folder / "docs" / "leave.md").write_text("# Leave\n\nThirty days of leave.\n")
    handbook = {"type": "folder", "path": str(origins.folder / "docs")}
    origins.records(record("a", "the pendulum clock"))
    stream = (origins.folder / "records.jsonl").read_text()
    origins.set(tickets={"type": "records"}, handbook=handbook)
    refused = piped(origins, stream, "--quiet")
    assert refused.returncode == 2
    assert refused.stderr == (
        "refdesk-admin: Nothing was synced: tickets must be named to take records from standard input. Run "
        "refdesk-admin sync tickets < FILE.\n"
    )
    empty = piped(origins, "", "--quiet")  # as cron leaves it
    assert empty.returncode == 0
    assert "1 added" in empty.stderr
    assert piped(origins, stream, "tickets").returncode == 0
    origins.set(handbook=handbook)
    assert piped(origins, stream).returncode == 0  # as in a shell's loop: no origin takes it
    origins.set(tickets={"type": "records"})
    assert piped(origins, "").returncode == 2  # there is nothing else to sync
    assert origins.titles("pendulum") == ["Leave", "a"]


def piped(origins: Origins, stream: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return piped_into(origins, stream, "sync", *arguments, "--config", str(origins.config))


def piped_into(origins: Origins, stream: str, *command: str) -> subprocess.CompletedProcess[str]:
    scripts = origins.desk.scripts
    return subprocess.run(
        [scripts.forked_admin, *command, "--data", str(origins.desk.data)],
        env=scripts.environment,
        input=stream,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_connectors_writer_can_check_a_stream_from_a_pipe_or_a_file(origins: Origins) -> None:
    refused = {"id": "b", "text": "t", "access": {"visibility": "everybody"}}
    for record, code in (({"id": "a", "text": "t", "access": {"visibility": "tenant"}}, 0), (refused, 1)):
        origins.records(record)
        file = origins.folder / "records.jsonl"
        from_pipe = piped_into(origins, file.read_text(), "records", "check", "-")
        from_file = piped_into(origins, "", "records", "check", str(file))
        assert from_pipe.returncode == from_file.returncode == code
        assert from_pipe.stdout == from_file.stdout
    assert "line 2: " in from_pipe.stdout
    for place in (origins.folder, origins.folder / "none.jsonl"):
        assert piped_into(origins, "", "records", "check", str(place)).returncode == 2


def test_a_repository_is_read_at_its_ref_and_not_from_the_work_tree(origins: Origins) -> None:
    repository = origins.folder / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "manual.md").write_text("# Manual\n\nThe pendulum swings.\n")
    (repository / "link.md").symlink_to("/etc/passwd")
    (repository / "photo.png").write_bytes(b"no text")
    commit(repository, "one")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {origins.folder}/hook-ran\n")
    hook.chmod(0o755)
    (repository / "manual.md").write_text("# Manual\n\nNot committed.\n")
    origins.set(manual={"type": "git", "repository": str(repository), "ref": "main"})
    report = origins.sync()["manual"]
    assert report["counts"]["added"] == 1
    reasons = {entry["path"].rpartition("/")[2]: entry["reason"] for entry in report["files"]}
    assert reasons["link.md"] == "a link"
    assert origins.titles("pendulum") == ["Manual"]
    assert not (origins.folder / "hook-ran").exists()

    commit(repository, "two")
    assert origins.sync()["manual"]["counts"]["replaced"] == 1
    git(repository, "mv", "manual.md", "guide.md")
    commit(repository, "three")
    assert origins.sync()["manual"]["counts"]["moved"] == 1
    origins.set(manual={"type": "git", "repository": str(repository), "ref": "no-such"})
    (failed,) = origins.sync(code=1)["manual"]["files"]
    assert failed["reason"] == "the repository has no such branch, tag or commit (ref)"


def test_an_origin_that_cannot_be_read_is_reported_in_every_run(origins: Origins, site: Site) -> None:
    repository = origins.folder / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "manual.md").write_text("# Manual\n\nThe pendulum swings.\n")
    (repository / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    commit(repository, "one")
    page = f"<urlset><url><loc>{site.url}/a</loc></url></urlset>".encode()
    site.pages |= {"/map.xml": page, "/a": b"<title>A</title><p>Leave is thirty days.</p>"}
    web = {"urls": [f"{site.url}/map.xml"], "private_networks": ["127.0.0.1/32"], "delay_seconds": 0}
    manual = {"type": "git", "repository": str(repository), "ref": "main"}
    origins.set(manual=manual, web={"type": "web", **web})
    scheduled = ("sync", "--quiet", "--known-ok", "--config", origins.config)

    def of_run(code: int) -> set[str]:
        run = origins.desk.run(*scheduled, code=code)
        return {line.partition(":")[0] for line in (run.stdout + run.stderr).splitlines()}

    assert of_run(3) == {"manual", "web"}
    assert of_run(0) == set()
    for _ in range(2):  # the second outage is news as well
        repository.rename(origins.folder / "away")
        site.pages["/map.xml"] = (500, {}, b"")
        assert of_run(1) == of_run(1) == {"manual", "web"}
        (origins.folder / "away").rename(repository)
        site.pages["/map.xml"] = page
        assert of_run(3) == {"manual"}  # its broken file is read again after an outage
        assert of_run(0) == set()


def test_a_state_that_cannot_be_written_stops_no_other_origin(origins: Origins) -> None:
    repository = origins.folder / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "manual.md").write_text("# Manual\n\nThe pendulum swings.\n")
    commit(repository, "one")
    of_git = {"type": "git", "repository": str(repository), "ref": "main"}
    origins.set(first=of_git, second=of_git)
    origins.sync()
    (state,) = origins.desk.data.rglob("first.json")
    state.unlink()
    state.mkdir()
    report = origins.sync(code=3)
    assert "can't be written" in report["first"]["error"]
    assert report["second"]["counts"]["unchanged"] == 1


def test_a_rule_about_a_repository_without_news_matches_as_before(origins: Origins) -> None:
    repository = origins.folder / "repository"
    (repository / "board").mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "board" / "pay.md").write_text("# Pay\n\nOf the board.\n")
    commit(repository, "one")
    origins.set(manual={"type": "git", "repository": str(repository), "ref": "main"})
    origins.config.write_text(BOARD + origins.config.read_text())
    for _ in range(2):
        assert notes_of_rules(origins.desk.run("sync", "--config", origins.config)) == []


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    subprocess.run(["git", *who, *arguments], cwd=repository, check=True, capture_output=True, env=os.environ)


def commit(repository: Path, message: str) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", message)


# Folders that nobody names any more.


@pytest.fixture
def gannets(origins: Origins) -> Path:
    """A folder of six documents."""
    path = origins.folder / "a"
    path.mkdir()
    for number in range(1, 7):
        (path / f"g{number}.md").write_text(f"# G{number}\n\nGannets of cliff {number}, the old wording.\n")
    return path


def orphans(origins: Origins) -> list[str]:
    """What doctor says of origins and folders that nobody names."""
    findings = origins.desk.findings("origins", "--config", origins.config)
    return [finding["text"] for finding in findings if finding["state"] == "note"]


def edit_and_move(path: Path, new: Path) -> None:
    """Move a folder, of which three documents are changed and one is deleted."""
    path.rename(new)
    for number in (1, 2, 3):
        (new / f"g{number}.md").write_text(f"# G{number}\n\nThe wording of cliff {number} is new, gannets.\n")
    (new / "g6.md").unlink()


def test_documents_of_a_folder_that_no_origin_names_any_more_are_told(
    origins: Origins, gannets: Path
) -> None:
    desk, config, new = origins.desk, ("--config", origins.config), origins.folder / "b"
    origins.set(h=folder(gannets))
    assert "Note: " not in desk.run("sync", *config).stderr
    assert orphans(origins) == []
    assert str(gannets) not in desk.run("status", *config).stdout
    edit_and_move(gannets, new)
    origins.set(h=folder(new))
    remark = f"4 documents in documents come from the folder {gannets}, which isn't there any more"
    assert f"Note: {remark}" in desk.run("sync", *config).stderr
    assert f"Note: {remark}" in desk.run("sync", *config).stderr
    assert remark in desk.run("status", *config).stdout
    (text,) = orphans(origins)
    assert f"refdesk-admin remove {gannets} --collection documents." in text
    report = origins.folder / "report.md"
    desk.run("doctor", "--bundle", report, *config)
    assert str(gannets) not in report.read_text()
    desk.run("remove", gannets, "--collection", "documents")
    assert orphans(origins) == []
    assert len(origins.titles("gannets")) == 5


@pytest.mark.parametrize("storage", ["", "storage"])
def test_documents_of_a_former_folder_that_is_still_there_are_told(
    origins: Origins, gannets: Path, storage: str
) -> None:
    if storage:  # of the tenant's own, with the notes on its folders
        origins.desk.run("tenant", "create", "acme", "--storage", origins.folder / storage)
    origins.set(h=folder(gannets))
    origins.sync()
    (origins.folder / "b").mkdir()
    origins.set(h=folder(origins.folder / "b"))
    origins.sync()
    (text,) = orphans(origins)
    assert f"the folder {gannets}, which no origin of the settings names any more" in text
    origins.set(h=folder(origins.folder / "b"), again=folder(gannets))  # the control
    assert orphans(origins) == []


def test_documents_of_the_former_target_of_a_link_are_told(origins: Origins, gannets: Path) -> None:
    link = origins.folder / "current"
    link.symlink_to(gannets)
    desk, config = origins.desk, ("--config", origins.config)
    origins.set()
    assert "Note: " not in desk.run("ingest", link, *config).stderr
    (origins.folder / "b").mkdir()
    (origins.folder / "b" / "g7.md").write_text("# G7\n\nGannets of cliff 7.\n")
    link.unlink()
    link.symlink_to(origins.folder / "b")
    remark = f"6 documents in documents come from the folder {gannets}, which {link} doesn't lead to any more"
    assert remark in desk.run("ingest", link, *config).stderr
    assert orphans(origins)[0].startswith(remark)
    desk.run("ingest", gannets, *config)  # the control: it is read by its own name
    assert orphans(origins) == []


def test_documents_of_an_ingested_folder_that_was_moved_are_told(origins: Origins, gannets: Path) -> None:
    desk = origins.desk
    desk.run("ingest", gannets)
    edit_and_move(gannets, origins.folder / "b")
    remark = f"4 documents in documents come from the folder {gannets}, which isn't there any more"
    assert remark in desk.run("ingest", origins.folder / "b").stderr

"""Rights survive ordinary life: renames, moves, backups, sidecars, clocks, and runs side by side.

Each test does what people do to files and folders, and then asks as somebody who may not see the document
(nobody in particular) and as somebody who may (of group hr). Nothing may have changed for either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import to_thread
from filelock import FileLock
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from rag.access.rule import in_words
from rag.corpus import Access
from rag.ingest.report import BACK_AS_BEFORE, unmatched_notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.conftest import Scripts
    from tests.endpoint import Endpoint, Reply

pytestmark = pytest.mark.slow

HR = ("--visibility", "restricted", "--allow", "group:hr")
NOBODY, OF_HR, BOB = "", 'groups = ["hr"]', 'user = "bob"'
OPEN = "# Open\n\nEverybody reads of days of leave here.\n"


@dataclass(frozen=True, slots=True)
class Life:
    """A desk and a folder. Commands of `desk` have processes of their own."""

    desk: Desk
    inside: Desk
    folder: Path
    config: Path

    def settings(self, text: str) -> None:
        self.config.write_text(text)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def ingest(self, *arguments: str | Path, paths: tuple[Path, ...] = (), code: int = 0) -> Any:  # noqa: ANN401
        """Ingest the folder, or these paths, as people do."""
        named = paths or (self.folder,)
        return self.inside.json("ingest", *named, *arguments, "--config", self.config, code=code)

    def visible_to(self, who: str, word: str = "leave") -> set[str]:
        """The paths of what somebody finds."""
        settings = self.config.read_text()
        self.config.write_text(f"{settings}\n[principal]\n{who}\n")
        exactly = ("--mode", "exact", "--limit", "100")  # in other modes, equal passages are one result
        reply = self.inside.json("search", word, *exactly, "--config", self.config)
        self.config.write_text(settings)
        return {hit["metadata"]["path"] for hit in reply["results"]}

    def records(self) -> dict[str, Any]:
        """The access records by the sources' paths."""
        sources = self.inside.sources()
        lines = self.inside.run("access", "show", *(source["id"] for source in sources), "--json").stdout
        access = {line["id"]: line["access"] for line in map(json.loads, lines.splitlines())}
        return {source["metadata"]["path"]: access[source["id"]] for source in sources}


@pytest.fixture
def life(desk: Desk, inside: Desk, tmp_path: Path) -> Life:
    new_life = Life(desk, inside, tmp_path / "ren", tmp_path / "config.toml")
    new_life.settings("")
    new_life.write("open.md", OPEN)
    return new_life


def secret(name: str, words: str = "") -> str:
    return f"# Salaries\n\nOf {name}: what is paid on days of leave. {words}\n"


def rename(folder: Path) -> None:
    (folder / "hr/pay.md").rename(folder / "hr/pay-2026.md")


def move(folder: Path) -> None:
    (folder / "public").mkdir()
    (folder / "hr/pay.md").rename(folder / "public/other.md")


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\nAnd more of it.\n")


def rename_and_edit(folder: Path) -> None:
    rename(folder)
    edit(folder / "hr/pay-2026.md")


def move_and_edit(folder: Path) -> None:
    (folder / "archive").mkdir()
    (folder / "hr/pay.md").rename(folder / "archive/pay.md")
    edit(folder / "archive/pay.md")


def rename_the_folder_and_edit(folder: Path) -> None:
    (folder / "hr").rename(folder / "people")
    edit(folder / "people/pay.md")


def write_it_in_other_letters(folder: Path) -> None:
    (folder / "hr").rename(folder / "HR")
    (folder / "HR/pay.md").rename(folder / "HR/PAY.MD")
    edit(folder / "HR/PAY.MD")


def write_it_decomposed(folder: Path) -> None:
    (folder / "hr/Gehälter").rename(folder / "hr" / unicodedata.normalize("NFD", "Gehälter"))
    edit(folder / "hr" / unicodedata.normalize("NFD", "Gehälter") / "pay.md")


def save_it_as_windows_does(folder: Path) -> None:
    text = (folder / "hr/pay.md").read_bytes()
    shutil.rmtree(folder / "hr")
    (folder / "sent.md").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))


def copy_it(folder: Path) -> None:
    shutil.copy(folder / "hr/pay.md", folder / "copy.md")


def copy_it_over_an_open_one(folder: Path) -> None:
    shutil.copy(folder / "hr/pay.md", folder / "open.md")


def swap_it_with_an_open_one(folder: Path) -> None:
    (folder / "open.md").rename(folder / "aside")
    (folder / "hr/pay.md").rename(folder / "open.md")
    (folder / "aside").rename(folder / "hr/pay.md")


def save_it_by_way_of_a_new_file(folder: Path) -> None:
    (folder / "hr/new.md").write_text(secret("x", "Changed."))
    (folder / "hr/new.md").replace(folder / "hr/pay.md")


ACTS: tuple[Callable[[Path], None], ...] = (
    rename,
    move,
    rename_and_edit,
    move_and_edit,
    rename_the_folder_and_edit,
    write_it_in_other_letters,
    write_it_decomposed,
    save_it_as_windows_does,
    copy_it,
    copy_it_over_an_open_one,
    swap_it_with_an_open_one,
    save_it_by_way_of_a_new_file,
)


def test_a_restricted_file_stays_hidden_whatever_is_done_to_its_name_its_folder_and_its_text(
    life: Life,
) -> None:
    for act in ACTS:
        place = "hr/Gehälter" if act is write_it_decomposed else "hr"
        life.write(f"{act.__name__}/{place}/pay.md", secret(act.__name__))
        life.write(f"{act.__name__}/open.md", f"{OPEN}It is for {act.__name__}.\n")
    life.ingest()
    life.inside.run("access", "set", "*/pay.md", *HR)
    for act in ACTS:
        act(life.folder / act.__name__)
    report = life.ingest("--yes")
    assert sum(report["counts"][kind] for kind in ("added", "moved", "replaced")) > len(ACTS)
    visible = life.visible_to(NOBODY)
    assert "open.md" in visible
    assert "move/open.md" in visible
    assert all(path.endswith("/open.md") for path in visible - {"open.md"})
    assert not {f"{act.__name__}/open.md" for act in ACTS[-3:-1]} & visible
    for act in ACTS:
        folder = life.folder / act.__name__
        paths = {str(path.relative_to(life.folder)) for path in folder.rglob("*.[mM][dD]")}
        assert paths & life.visible_to(OF_HR, act.__name__)


def test_a_restricted_file_that_was_away_for_a_run_has_its_rights_when_it_is_back(life: Life) -> None:
    life.write("hr/pay.md", secret("pay"))
    life.ingest()
    life.inside.run("access", "set", life.folder / "hr", *HR)
    (life.folder / "hr").rename(life.folder.parent / "away")
    life.ingest()
    assert life.visible_to(OF_HR) == {"open.md"}
    (life.folder.parent / "away").rename(life.folder / "hr")
    (file,) = [entry for entry in life.ingest()["files"] if entry["outcome"] == "added"]
    assert file["reason"] == BACK_AS_BEFORE
    assert life.visible_to(NOBODY) == {"open.md"}
    assert life.visible_to(OF_HR) == {"open.md", "hr/pay.md"}


def test_an_older_copy_of_a_restricted_document_is_hidden_wherever_a_backup_puts_it(life: Life) -> None:
    first = life.write("hr/pay.md", secret("pay"))
    life.ingest()
    life.inside.run("access", "set", first, *HR)
    backup = shutil.copytree(life.folder, life.folder.parent / "backup")
    moved = first.rename(life.folder / "hr/pay-2025.md")
    life.ingest()
    moved.write_text(secret("pay", "Two per cent more."))
    life.ingest()
    shutil.copytree(backup, life.folder, dirs_exist_ok=True)
    shutil.copy(backup / "hr/pay.md", life.folder / "from-the-backup.md")
    assert life.ingest()["counts"]["added"] == 2
    assert life.visible_to(NOBODY) == {"open.md"}
    assert life.visible_to(OF_HR) == {"open.md", "hr/pay.md", "hr/pay-2025.md", "from-the-backup.md"}
    life.inside.run("remove", life.folder / "hr/pay.md")  # nor when names are purged
    life.inside.run("purge")
    first.write_text(secret("pay", "Quite another text."))
    life.ingest()
    assert life.visible_to(NOBODY) == {"open.md"}


def test_what_a_folder_was_ingested_with_holds_under_its_new_name_for_what_is_new_there(life: Life) -> None:
    life.write("hr/pay.md", secret("pay"))
    life.write("hr/deep/more.md", secret("more"))
    life.write("hr/canteen.md", "# Canteen\n\nClosed on days of leave.\n")
    life.inside.run("ingest", life.folder / "hr", *HR)
    life.inside.run("access", "set", life.folder / "hr/canteen.md", "--visibility", "tenant")
    (life.folder / "hr").rename(life.folder / "people")
    life.write("people/new.md", secret("new"))
    life.write("people/newer/still.md", secret("still"))
    report = life.ingest()
    assert report["counts"]["moved"] == 3
    assert life.visible_to(NOBODY) == {"open.md", "people/canteen.md"}
    assert {"people/new.md", "people/newer/still.md"} < life.visible_to(OF_HR)
    life.write("people/later.md", secret("later"))
    life.ingest(paths=(life.folder / "people/later.md",))
    assert "people/later.md" in life.visible_to(OF_HR) - life.visible_to(NOBODY)


def test_what_is_gone_is_narrowed_by_what_is_said_when_it_comes_back(life: Life) -> None:
    life.ingest()
    life.inside.run("remove", "*")
    (file,) = life.ingest(*HR)["files"]
    assert file["reason"] == "it is back; now restricted to group:hr"
    assert life.visible_to(NOBODY) == set()
    assert life.visible_to(OF_HR) == {"open.md"}
    life.inside.run("access", "grant", life.folder / "open.md", "--to", "user:bob")
    life.inside.run("remove", life.folder / "open.md")
    (file,) = life.ingest(*HR)["files"]  # the nightly job says what it always says
    assert file["reason"] == BACK_AS_BEFORE
    assert life.visible_to(BOB) == {"open.md"}


RULES = '[access]\nrules = [{path = "hr/*", allow = ["group:hr"]}, {path = "law/*", allow = ["group:law"]}]\n'


@pytest.mark.parametrize("part", [".", "hr", "hr/pay.md"])
def test_a_rule_holds_whatever_part_of_the_folder_is_ingested(life: Life, part: str) -> None:
    life.settings(RULES)
    life.write("hr/pay.md", secret("pay"))
    life.write("HR/more.md", secret("more"))
    report = life.ingest(paths=(life.folder / part, life.folder / "HR", life.folder / "open.md"))
    assert report["unmatched_rules"] == ["law/*"]
    assert report["notes"] == [*unmatched_notes(["law/*"], ())]
    assert life.visible_to(NOBODY) == {"open.md"}
    assert len(life.visible_to(OF_HR)) == 3


def test_a_document_may_tighten_its_rights_at_any_time_and_never_widen_them(life: Life) -> None:
    life.settings("[access]\nof_documents = true\n")
    tighter = '---\nvisibility: restricted\nallow: ["group:hr"]\n---\n'
    life.write("front.md", secret("front"))
    life.write("beside.md", secret("beside"))
    life.ingest()
    assert life.visible_to(NOBODY) == {"open.md", "front.md", "beside.md"}
    life.write("front.md", tighter + secret("front"))
    life.write("beside.md.meta.toml", 'visibility = "restricted"\nallow = ["group:hr"]\n')
    reasons = {entry["path"]: entry["reason"] for entry in life.ingest()["files"]}
    for name in ("front.md", "beside.md"):
        assert reasons[str(life.folder / name)] == "now restricted to group:hr"
    assert life.visible_to(NOBODY) == {"open.md"}
    assert life.visible_to(OF_HR) == {"open.md", "front.md", "beside.md"}
    life.write("front.md", "---\nvisibility: tenant\n---\n" + secret("front"))
    (life.folder / "beside.md.meta.toml").unlink()
    reasons = {entry["path"]: entry["reason"] for entry in life.ingest()["files"]}
    reason = reasons[str(life.folder / "front.md")]
    assert reason == ("it requests to be open to the tenant, which is wider; it is restricted to group:hr")
    assert life.visible_to(NOBODY) == {"open.md"}


def test_a_visibility_that_changes_nothing_is_told_with_the_flag_that_would(life: Life) -> None:
    life.write("pay.md", secret("pay"))
    run = life.desk.run("ingest", life.folder)
    assert f"2 added: 2 {in_words(Access('tenant'))}" in run.stdout.splitlines()
    run = life.desk.run("ingest", life.folder, *HR)
    assert (
        "Note: 2 sources keep their earlier rights, although the command or the rules give others. "
        "2 sources would be less widely visible. Add --set-access to change them.\n"
    ) in run.stderr
    assert life.visible_to(NOBODY) == {"open.md", "pay.md"}
    life.ingest(*HR, "--set-access")
    assert life.visible_to(NOBODY) == set()
    assert life.visible_to(OF_HR) == {"open.md", "pay.md"}


def test_a_note_counts_only_what_keeps_its_rights(life: Life) -> None:
    life.settings(RULES.replace("law/*", "*/law.md"))
    life.write("old/law.md", secret("law"))
    life.write("old/pay.md", secret("pay"))
    life.ingest()
    (life.folder / "old").rename(life.folder / "hr")
    report = life.ingest()
    assert [entry["reason"] for entry in report["files"] if "pay.md" in entry["path"]] == [
        f"it was {life.folder / 'old/pay.md'}; now restricted to group:hr"
    ]
    assert not [note for note in report["notes"] if "keep" in note]


@pytest.mark.parametrize("state", ["empty", "nearly empty"])
def test_an_emptied_folder_removes_nothing_until_that_is_said(life: Life, state: str) -> None:
    for number in range(14):
        life.write(f"{number}.md", secret(str(number)))
    life.ingest()
    life.folder.rename(life.folder.parent / "unmounted")
    life.folder.mkdir()
    if state == "nearly empty":
        life.write("lost+found.md", secret("lost and found"))
    report = life.ingest(code=3)
    assert report["counts"]["removed"] == 0
    assert any("--yes" in note for note in report["notes"])
    assert len(life.visible_to(NOBODY)) == 15 + (state == "nearly empty")
    assert life.ingest("--yes")["counts"]["removed"] == 15


def test_where_there_are_keys_what_is_new_is_for_nobody_until_somebody_says_for_whom(life: Life) -> None:
    life.inside.run("key", "create", "--user", "ann", "--group", "hr")
    run = life.desk.run("ingest", life.folder)
    assert "1 added: 1 restricted to nobody" in run.stdout
    assert "Nobody may see 1 of them yet: new sources of documents are restricted unless" in run.stdout
    assert life.visible_to(OF_HR) == set()
    life.inside.run(
        "ingest", life.folder, "--collection", "handbook", "--visibility", "tenant", "--set-access"
    )
    assert life.visible_to(NOBODY) == {"open.md"}


def test_nobody_s_change_is_undone_by_another_at_the_same_time(life: Life, scripts: Scripts) -> None:
    for number in range(80):
        life.write(f"{number:02}.md", secret(str(number)))
    (life.folder / "open.md").unlink()
    life.ingest("--visibility", "restricted")
    ids = {source["metadata"]["path"]: source["id"] for source in life.inside.sources()}
    ordered = [ids[f"{number:02}.md"] for number in range(80)]
    commands = [
        ["revoke", *ordered[:60], "--from", "user:ann"],
        ["revoke", *ordered[20:], "--from", "user:bob"],
        ["grant", *ordered[10:70], "--to", "user:eve"],
    ]
    running = [
        subprocess.Popen(
            [scripts.forked_admin, "access", *command, "--data", life.desk.data],
            env=scripts.environment,
            stdout=subprocess.DEVNULL,
        )
        for command in commands
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    records = life.records()
    for number, record in enumerate(records[f"{row:02}.md"] for row in range(80)):
        denied = {"user:ann"} if number < 60 else set()
        denied |= {"user:bob"} if number >= 20 else set()
        assert set(record["deny"]) == denied
        assert set(record["allow"]) == ({"user:eve"} if 10 <= number < 70 else set())


@pytest.mark.anyio
async def test_a_revocation_holds_while_an_ingestion_runs_and_after_it(
    desk: Desk, scripts: Scripts, provider: Endpoint, tmp_path: Path
) -> None:
    folder, config = tmp_path / "ren", tmp_path / "config.toml"
    folder.mkdir()
    embedder = f'[embedder]\nprovider = "openai"\nmodel = "tiny"\nbase_url = "{provider.url}"\n'
    config.write_text(f"[principal]\n{BOB}\n{embedder}")
    provider.script = [provider.embedding]
    early, late = folder / "0.md", folder / "zz.md"
    for path in (early, late):
        path.write_text(secret(path.stem, "Wombats."))
    desk.run("ingest", folder, "--config", config)
    desk.run("collection", "set", "documents", "--chunking", "structure,max=32", "--config", config)
    paragraphs = (
        f"Paragraph {number} tells what happened to the keeper of the lighthouse." for number in range(2_000)
    )
    (folder / "book.txt").write_text("\n\n".join(paragraphs))  # more than is written at once
    for path in (early, late):
        path.write_text(secret(path.stem, "Wombats, changed."))
    reached, goes_on = threading.Event(), threading.Event()

    def waiting(request: dict[str, Any]) -> Reply:
        if any("Of zz" in text for text in request["input"]):
            reached.set()
            goes_on.wait(60)
        return provider.embedding(request)

    provider.script = [waiting]
    command = [scripts.forked_admin, "ingest", str(folder), "--config", str(config), "--data", str(desk.data)]
    server = StdioServerParameters(
        command=scripts.forked_server,
        args=["--data", str(desk.data), "--config", str(config)],
        env=scripts.environment,
    )
    async with Client(stdio_client(server)) as client:

        def written() -> set[Path]:
            return {*(desk.data / "tables").glob("chunks__*/data/*")}

        async def hit_count() -> int:
            reply = await client.call_tool("search", {"query": "wombats", "mode": "sparse"})
            assert reply.structured_content
            return len(reply.structured_content["results"])

        assert await hit_count() == 2
        before = written()
        with subprocess.Popen(command, env=scripts.environment, stdout=subprocess.PIPE) as ingestion:  # noqa: ASYNC220 it runs beside
            try:
                assert await to_thread.run_sync(reached.wait, 60)
                with anyio.fail_after(60):
                    while written() == before:  # noqa: ASYNC110 another process writes
                        await anyio.sleep(0.1)
                assert await hit_count() == 2
                desk.run("access", "revoke", early, late, "--from", "user:bob")
                assert await hit_count() == 0
                assert ingestion.poll() is None
            finally:
                goes_on.set()
            await to_thread.run_sync(ingestion.communicate)
            assert ingestion.returncode == 0
        assert await hit_count() == 0
        desk.run("access", "grant", late, "--to", "user:bob")
        assert await hit_count() == 1


def test_an_ingestion_waits_for_a_change_of_rights_that_ends_soon(life: Life, scripts: Scripts) -> None:
    life.ingest()
    command: list[str | Path] = [scripts.forked_admin, "ingest", life.folder]
    command += ["--data", life.desk.data]
    with FileLock(life.desk.data / "locks/default.documents.lock"):  # as a change has it
        running = subprocess.Popen(command, env=scripts.environment, stdout=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(4)
    assert running.wait(60) == 0


CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += atol(getenv("CLOCK_AHEAD"));
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture
def clock(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """The environment in which a process's clock is so many seconds ahead."""
    if sys.platform != "linux" or not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("there is no compiler, or no LD_PRELOAD")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return lambda seconds: {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(seconds)}


@pytest.mark.parametrize(("ingested", "purged"), [(3600, 0), (0, -3600)])
def test_purge_leaves_nothing_whatever_the_clock_said(
    life: Life, clock: Callable[[int], dict[str, str]], ingested: int, purged: int
) -> None:
    life.write("pay.md", secret("pay", "Zyzzogeton."))

    def at(seconds: int, *arguments: str | Path) -> None:
        if not seconds:
            life.inside.run(*arguments)  # the clock that everything else has
            return
        run = life.desk.scripts.admin(*arguments, "--data", life.desk.data, env=clock(seconds))
        assert run.returncode == 0, run.stderr

    at(ingested, "ingest", life.folder)
    life.inside.run("remove", life.folder / "pay.md")
    assert life.desk.files_with(b"Zyzzogeton")
    at(purged, "purge")
    assert not life.desk.files_with(b"Zyzzogeton")
    assert life.visible_to(NOBODY) == {"open.md"}


def test_access_takes_ids_files_folders_and_patterns(life: Life) -> None:
    for name in ("hr/a.md", "hr/b.md", "law/a.md"):
        life.write(name, secret(name))
    life.ingest()
    everything = {"open.md", "hr/a.md", "hr/b.md", "law/a.md"}
    (life.folder.parent / "link").symlink_to(life.folder)
    cases: list[tuple[list[str | Path], set[str]]] = [
        ([life.folder / "hr"], {"hr/a.md", "hr/b.md"}),
        (["hr/*.md"], {"hr/a.md", "hr/b.md"}),
        (["*/a.md", life.folder / "open.md"], {"hr/a.md", "law/a.md", "open.md"}),
        ([life.folder.parent / "link/law"], {"law/a.md"}),
    ]
    for names, meant in cases:
        life.desk.run("access", "revoke", *names, "--from", "user:bob")
        assert life.visible_to(BOB) == everything - meant
        life.inside.run("access", "grant", *names, "--to", "user:bob")
        assert life.visible_to(BOB) == everything
    missing = life.desk.run("access", "revoke", life.folder / "hr", "nothing/*", "--from", "user:bob", code=1)
    assert "id or path 'nothing/*'" in missing.stderr
    assert life.visible_to(BOB) == everything


def test_a_document_that_is_gone_narrows_new_files_until_it_is_forgotten(life: Life) -> None:
    pay = life.write("hr/pay.md", secret("ann"))
    life.ingest()
    life.inside.run("access", "set", pay, "--visibility", "restricted", "--allow", "group:hr")
    pay.unlink()
    life.ingest()
    life.write("hr/news.md", "# News\n\nThere are more days of leave.\n")
    report = life.ingest()
    (note,) = [line for line in report["notes"] if "new version" in line]
    assert note.startswith(f"1 new document restricted like {pay}, which is gone")
    assert life.visible_to(NOBODY) == {"open.md"}
    command = note.partition("run refdesk-admin ")[2].partition(",")[0]
    assert command == f"remove --forget --collection documents {pay}"
    life.desk.run(*command.split())
    life.write("hr/more.md", "# More news\n\nOf days of leave.\n")
    assert not [line for line in life.ingest()["notes"] if "new version" in line]
    assert life.visible_to(NOBODY) == {"open.md"}, "as all other files of its folder"
    life.desk.run("access", "set", life.folder / "hr/news.md", "--visibility", "tenant")
    life.write("hr/last.md", "# Last news\n\nOf days of leave.\n")
    life.ingest()
    assert life.visible_to(NOBODY) == {"open.md", "hr/news.md", "hr/last.md"}


def test_a_change_of_a_folder_counts_for_what_comes_into_it_later(life: Life) -> None:
    life.write("hr/pay.md", secret("pay"))
    menu = life.write("menu.md", OPEN)
    life.ingest()
    hr = life.folder / "hr"
    notes = life.desk.run("access", "set", hr, "--visibility", "restricted", "--allow", "group:hr").stderr
    of_new_files = f"New files in {hr} will be restricted to group:hr."
    assert of_new_files in notes
    assert of_new_files in life.inside.run("access", "show", hr).stderr
    menu.rename(hr / "menu.md")
    life.write("hr/news.md", secret("news"))
    life.write("hr/2025/raise.md", secret("raise"))
    life.write("new/lunch.md", secret("lunch"))
    life.ingest()
    inside = {"hr/pay.md", "hr/menu.md", "hr/news.md", "hr/2025/raise.md"}
    outside = {"open.md", "new/lunch.md"}
    assert life.visible_to(NOBODY) == outside
    assert life.visible_to('user = "bob"\ngroups = ["hr"]') == outside | inside
    life.inside.run("access", "revoke", hr, "--from", "user:bob")
    life.write("hr/later.md", secret("later"))
    life.ingest()
    assert life.visible_to('user = "bob"\ngroups = ["hr"]') == outside
    assert life.visible_to('groups = ["hr"]') == outside | inside | {"hr/later.md"}
    life.inside.run("access", "grant", life.folder / "new", "--to", "user:eve")  # narrows nothing
    life.inside.run("access", "set", hr, "--visibility", "tenant")
    life.write("hr/last.md", secret("last"))
    life.write("new/last.md", secret("new"))
    life.ingest()
    assert life.visible_to(NOBODY) == outside | inside | {"hr/later.md", "hr/last.md", "new/last.md"}


def test_a_change_of_a_folder_counts_however_its_accents_are_stored(life: Life) -> None:
    stored, typed = (unicodedata.normalize(form, "Gehälter") for form in ("NFD", "NFC"))
    life.write(f"{stored}/pay.md", secret("pay"))
    menu, plan = life.write("menu.md", OPEN), life.write("plan.md", f"{OPEN}\nA plan.\n")
    life.ingest()
    life.inside.run("access", "set", life.folder / typed, "--visibility", "restricted", "--allow", "group:hr")
    menu.rename(life.folder / stored / "menu.md")
    (life.folder / typed).mkdir()
    plan.rename(life.folder / typed / "plan.md")
    life.ingest()
    assert life.visible_to(NOBODY) == {"open.md"}
    assert len(life.visible_to(OF_HR)) == 4


def test_a_folder_that_is_new_is_as_confidential_as_all_that_is_around_it(life: Life) -> None:
    pay, sick = life.write("hr/pay.md", secret("pay")), life.write("hr/ill/sick.md", secret("sick"))
    life.ingest()
    life.inside.run("access", "set", pay, sick, "--visibility", "restricted", "--allow", "group:hr")
    life.write("hr/2025/raise.md", secret("raise"))
    life.write("menus/2025/lunch.md", secret("lunch"))
    reasons = {file["path"].rpartition("/")[2]: file.get("reason") for file in life.ingest()["files"]}
    assert "restricted to group:hr" in reasons["raise.md"]
    assert life.visible_to(NOBODY) == {"open.md", "menus/2025/lunch.md"}
    life.inside.run("access", "set", sick, "--visibility", "tenant")
    life.write("hr/2026/party.md", secret("party"))
    life.ingest()
    assert "hr/2026/party.md" in life.visible_to(NOBODY)


def test_a_source_that_is_gone_can_be_kept_from_somebody_before_it_is_back(life: Life) -> None:
    path = life.write("hr/a.md", secret("a"))
    life.ingest()
    path.rename(life.folder.parent / "away.md")
    life.ingest("--yes")
    life.desk.run("access", "revoke", life.folder / "hr", "--from", "user:bob")
    description = life.inside.run("access", "show", path).stdout
    assert f"{path} (removed)" in description
    assert "user:bob" in description
    assert json.loads(life.inside.run("access", "show", "hr/*", "--json").stdout)["gone"] is True
    explained = life.inside.run("access", "explain", path, "--user", "bob").stdout
    assert explained.startswith(
        "Not visible: it was removed. If it came back, it would not be visible: user:bob is denied"
    )
    (life.folder.parent / "away.md").rename(path)
    life.ingest()
    assert life.visible_to(BOB) == {"open.md"}
    assert life.visible_to(NOBODY) == {"open.md", "hr/a.md"}


@pytest.mark.skipif(os.name == "nt", reason="no such names")
def test_a_file_whose_name_looks_like_a_pattern_means_itself(life: Life) -> None:
    for name in ("a[1].md", "a1.md", "b*.md", "bb.md"):
        life.write(name, secret(name))
    life.ingest()
    life.desk.run("access", "set", life.folder / "a[1].md", *HR)
    assert life.visible_to(OF_HR) - life.visible_to(NOBODY) == {"a[1].md"}
    life.desk.run("remove", life.folder / "b*.md")
    assert life.visible_to(OF_HR) == {"open.md", "a[1].md", "a1.md", "bb.md"}
    life.inside.run("access", "revoke", life.folder / "b[a-c].md", "--from", "user:bob")
    assert "bb.md" in life.visible_to(NOBODY) - life.visible_to(BOB)

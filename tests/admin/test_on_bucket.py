"""refdesk-admin on a desk in a bucket: what reads works there, what would write says where to do it."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
import pytest

from rag.admin.doctor_command import check_machine
from rag.admin.main import commands
from rag.config.load import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bucket import ObjectStore
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

FILE = str(Path(__file__))
MOST_REQUESTS = {"ingest": 46, "access set": 54, "key create": 21}
"""The most requests for one changed document, one source and one key; each takes two fewer."""
WRITING = {
    "access grant",
    "access revoke",
    "access set",
    "backup",
    "collection attach",
    "collection create",
    "collection rebuild",
    "collection remove",
    "collection set",
    "collection tag",
    "eval run",
    "ingest",
    "key create",
    "key revoke",
    "key rotate",
    "purge",
    "remove",
    "restore",
    "sync",
    "tenant create",
    "tenant remove",
}
READING = {
    "access explain": ("n.md",),
    "access show": ("n.md",),
    "collection list": (),
    "collection show": ("documents",),
    "config check": (),
    "eval runs": (),
    "key list": (),
    "model list": (),
    "runs": (),
    "search": ("pendulum",),
    "source": (),  # an id, which the test finds out
    "sources": (),
    "status": (),
    "tenant list": (),
}
OTHERS = {
    "console",  # tests/admin/web/test_ingestion.py
    "audit show",
    "bench",
    "cite check",
    "cite schema",
    "connect",
    "demo",
    "doctor",
    "eval compare",
    "eval new",
    "eval show",
    "init",
    "model add",
    "model pull",
    "model remove",
    "model verify",
    "plan",
    "records check",
}
"""The commands that have nothing to do with where a desk is, or are tried in a bucket elsewhere."""


def leaves(command: click.Command, above: tuple[str, ...] = ()) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(above)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if subcommand := command.get_command(context, name):
            yield from leaves(subcommand, (*above, name))


def test_each_command_is_known_to_work_there() -> None:
    here = {"storage copy", "storage fetch"}
    assert {*leaves(commands)} == READING.keys() | WRITING | OTHERS | here


def test_demo_and_bench_give_the_server_what_it_needs_to_reach_the_bucket(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    """A host passes no variable on, so the servers that they start get the credentials from them."""
    env = object_store.serving | {"REFDESK_DATA": str(tmp_path / "data"), "OPENAI_API_KEY": "of others"}
    (tmp_path / "leave.md").write_text("# Leave\n\nEverybody has thirty-one days of leave in a year.\n")
    run = scripts.admin("demo", tmp_path / "leave.md", "--ask", "How many days off?", env=env)
    assert run.returncode == 0, run.stderr
    assert f"Ingesting into {object_store.uri}" in run.stderr
    assert "thirty-one" in run.stdout
    (named,) = re.findall(r"must also set (.+) for the server", run.stdout)
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= {*named.split(", ")}
    assert "OPENAI_API_KEY" not in named  # no endpoint is used
    measured = scripts.admin("bench", "days of leave", "--json", env=env)
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["questions"] == 1


def test_the_demo_of_clocks_is_in_a_folder_and_leaves_the_bucket_alone(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    env = object_store.serving | {"REFDESK_DATA": str(tmp_path / "data"), "HOME": str(tmp_path)}
    env["XDG_DATA_HOME"] = str(tmp_path / "share")
    run = scripts.admin("demo", "--ask", "Who sold the time?", "--json", env=env)
    assert run.returncode == 0, run.stderr
    printed = json.loads(run.stdout)
    assert printed["answers"][0]["results"]
    assert (
        printed["configuration"][".vscode/mcp.json"]["servers"]["refdesk"]["env"]["REFDESK_STORAGE_URI"] == ""
    )
    assert (tmp_path / "share" / "refdesk-demo").is_dir()
    assert not object_store.requests


@contextmanager
def few_requests(object_store: ObjectStore, command: str) -> Iterator[None]:
    """Count what the enclosed command asks for, and each object that it writes once.

    How often a lease is written depends on how long it is held.
    """
    object_store.requests.clear()
    object_store.puts.clear()
    yield
    requests = object_store.requests.total() - object_store.requests["PUT"] + len({*object_store.puts})
    assert requests <= MOST_REQUESTS[command], (command, object_store.requests)


def tables(object_store: ObjectStore) -> set[str]:
    names = [name.partition("/tables/")[2].partition("/")[0] for name in object_store.objects()]
    return {*filter(None, names)}


def test_a_desk_is_written_and_searched_in_the_bucket_by_every_command(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    """From machines that share nothing but the bucket."""
    documents, env = tmp_path / "documents", object_store.serving
    documents.mkdir()
    for name in ("one", "two", "three"):
        (documents / f"{name}.md").write_text(f"# Note {name}\n\nThe pendulum number {name} swings.\n")

    def run(machine: str, *arguments: str | Path, code: int = 0) -> str:
        process = scripts.admin(*arguments, env=env | {"REFDESK_DATA": str(tmp_path / machine)})
        assert process.returncode == code, (arguments, process.stderr)
        return process.stdout

    def search(query: str, *flags: str) -> set[str]:
        hits = json.loads(run("d", "search", query, "--json", *flags))["results"]
        return {hit["title"] for hit in hits}

    assert "3 added" in run("a", "ingest", documents)
    assert search("pendulum") == {"Note one", "Note two", "Note three"}
    (documents / "two.md").write_text("# Note two\n\nThe hourglass.\n")
    with few_requests(object_store, "ingest"):
        assert "1 replaced, 2 unchanged" in run("b", "ingest", documents)
    with few_requests(object_store, "access set"):
        run("c", "access", "set", documents / "one.md", "--visibility", "restricted", "--allow", "user:ann")
    assert search("pendulum") == {"Note two", "Note three"}
    assert "Note one" in search("pendulum", "--user", "ann")
    run("b", "access", "revoke", documents / "one.md", "--from", "user:ann")
    assert "Note one" not in search("pendulum", "--user", "ann")
    run("a", "remove", documents / "three.md")
    run("c", "purge")
    assert search("pendulum") == {"Note two"}
    assert not any(b"number three" in content for content in object_store.objects().values())
    run("a", "collection", "tag", "documents", "then")
    run("b", "collection", "set", "documents", "--description", "Notes.", "--field", "year=integer")
    run("a", "collection", "rebuild", "documents", "--chunking", "sentence,max=200")
    run("c", "collection", "create", "others")
    run("b", "collection", "remove", "others", "--yes")
    names = {entry["name"] for entry in json.loads(run("d", "collection", "list", "--json"))["collections"]}
    assert names == {"documents", "then"}
    assert search("hourglass") == {"Note two"}
    with few_requests(object_store, "key create"):
        key = json.loads(run("a", "key", "create", "--user", "ann", "--json"))
    _comes_home(scripts, run("c", "backup", tmp_path / "desk.backup", "--json"), key["id"], tmp_path / "home")
    (rotated,) = [json.loads(run("b", "key", "rotate", key["id"], "--keep-days", "0", "--json"))]
    assert [key["id"] for key in json.loads(run("c", "key", "list", "--json"))["keys"]] == [rotated["id"]]
    run("c", "key", "revoke", rotated["id"])
    assert json.loads(run("a", "key", "list", "--json"))["keys"] == []
    run("a", "tenant", "create", "birch")
    run("b", "tenant", "remove", "birch", "--yes")
    assert len(json.loads(run("d", "runs", "--json"))["runs"]) == 2
    assert run("c", "audit", "show").count("access set") == 1  # each machine has its own log
    assert not (tmp_path / "d").exists()


def _comes_home(scripts: Scripts, saved: str, key: str, home: Path) -> None:
    """Restore a backup of the desk into a folder, and find in it what it held."""
    written = json.loads(saved)
    restored = scripts.admin("restore", written["file"], "--data", home)
    assert restored.returncode == 0, restored.stderr
    run = scripts.admin("search", "hourglass", "--json", "--data", home)
    assert [hit["title"] for hit in json.loads(run.stdout)["results"]] == ["Note two"]
    assert key in scripts.admin("key", "list", "--data", home).stdout
    assert written["keys"] == 1


def test_a_backup_is_restored_in_the_bucket_and_widens_nothing(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    documents, backup = tmp_path / "documents", tmp_path / "desk.backup"
    documents.mkdir()
    for name in ("one", "two"):
        (documents / f"{name}.md").write_text(f"# Note {name}\n\nThe pendulum number {name} swings.\n")

    def run(machine: str, *arguments: str | Path, code: int = 0) -> Any:  # noqa: ANN401 JSON
        env = object_store.serving | {"REFDESK_DATA": str(tmp_path / machine)}
        process = scripts.admin(*arguments, "--json", env=env)
        assert process.returncode == code, (arguments, process.stderr)
        return json.loads(process.stdout) if code == 0 else None

    def search(*flags: str) -> set[str]:
        return {hit["title"] for hit in run("d", "search", "pendulum", *flags)["results"]}

    run("a", "ingest", documents)
    key = run("a", "key", "create", "--user", "ann")
    run("c", "backup", backup)
    run("a", "access", "set", documents / "two.md", "--visibility", "restricted", "--allow", "group:hr")
    run("a", "key", "revoke", key["id"])
    run("b", "remove", documents / "one.md")
    before = tables(object_store)
    run("b", "restore", backup, code=2)
    restored = run("b", "restore", backup, "--yes")
    assert [Path(name).name for name in restored["narrowed"]] == ["two.md"]
    assert [Path(name).name for name in restored["returned"]] == ["one.md"]
    assert restored["keys_left_out"] == [key["id"]]
    assert search() == {"Note one"}
    assert search("--group", "hr") == {"Note one", "Note two"}
    remaining = {name for name in tables(object_store) & before if "__src_" in name}
    assert (len(tables(object_store) - before), remaining) == (2, set())  # the tables of one build
    assert run("c", "restore", backup, "--as", "elm")["collections"] == restored["collections"]
    run("b", "ingest", documents, "--tenant", "default")
    assert search("--tenant", "default") == {"Note one"}


def test_a_desk_moves_to_a_bucket_and_home(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    def run(*arguments: str | Path, code: int = 0, env: dict[str, str] = object_store.environment) -> str:
        process = scripts.admin(*arguments, env=env)
        assert process.returncode == code, process.stderr
        return process.stdout if code == 0 else process.stderr

    (tmp_path / "n.md").write_text("# Note\n\nThe pendulum swings.\n")
    (former, new), at = ((tmp_path / name for name in ("former", "new")), ("--to", object_store.uri))
    run("ingest", tmp_path / "n.md", "--data", former)
    copied = run("storage", "copy", *at, "--data", former, "--verify")
    assert f"Copied {former} to {object_store.uri}: 1 document in 1 collection, " in copied
    assert f'set uri = "{object_store.uri}" under [storage]' in copied
    assert "is not empty" in run("storage", "copy", *at, "--data", former, code=2)
    run("access", "set", tmp_path / "n.md", "--allow", "user:ann", env=object_store.serving)
    fetched = run("storage", "fetch", "--from", object_store.uri, "--data", new)
    assert f"Fetched {object_store.uri} into {new}: 1 document in 1 collection, " in fetched
    assert "restricted" in run("access", "show", tmp_path / "n.md", "--data", new)
    assert "Note" in run("search", "pendulum", "--user", "ann", "--data", new)
    assert f"{new} already" in run("storage", "fetch", "--from", object_store.uri, "--data", new, code=2)


def test_what_only_reads_says_the_same_of_the_bucket_as_of_the_folder(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "n.md").write_text("# Note\n\nThe pendulum swings.\n")
    data = tmp_path / "data"
    assert scripts.admin("ingest", tmp_path / "n.md", "--data", data).returncode == 0
    assert scripts.admin("key", "create", "--user", "ann", "--data", data).returncode == 0
    to = ("storage", "copy", "--to", object_store.uri, "--data", data)
    copied = scripts.admin(*to, env=object_store.environment)
    assert copied.returncode == 0, copied.stderr
    assert f"Copied {data} to {object_store.uri}" in copied.stdout
    object_store.read_only = True
    nowhere = {"REFDESK_DATA": str(tmp_path / "nowhere")}

    def output_of(name: str, *arguments: str, env: dict[str, str]) -> Any:  # noqa: ANN401 JSON
        run = scripts.admin(*name.split(), *arguments, "--json", env=env)
        assert "very-secret-words" not in run.stdout + run.stderr
        assert "AKIATESTER" not in run.stdout + run.stderr
        assert run.returncode == 0, (name, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    (listed,) = output_of("sources", env={"REFDESK_DATA": str(data)})
    id_ = listed["sources"][0]["id"]
    for name, arguments in READING.items():
        filled_in = [
            id_ if argument == "n.md" else argument
            for argument in (arguments or ((id_,) if name == "source" else ()))
        ]
        in_folder = output_of(name, *filled_in, env={"REFDESK_DATA": str(data)})
        in_bucket = output_of(name, *filled_in, env=object_store.serving | nowhere)
        if name == "status":  # which also says where, and the reserve and the log are only in the folder
            assert in_bucket[0]["data"] == object_store.uri
            in_folder[0]["data"] = in_bucket[0]["data"]
            in_folder[0]["bytes"] = in_bucket[0]["bytes"]
        if name == "config check":
            checks = {check["part"]: check["state"] for check in in_bucket[0]["checks"]}
            assert checks["storage"] == "ok"
        elif name != "model list":
            assert in_bucket == in_folder, name
    assert not (tmp_path / "nowhere").exists()


def test_a_bucket_without_a_desk_is_said_to_be_one(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    env = object_store.serving | {"REFDESK_DATA": str(tmp_path / "data")}
    run = scripts.admin("search", "pendulum", env=env)
    assert run.returncode == 2
    assert f"There is no desk in {object_store.uri}." in run.stderr
    assert f"refdesk-admin storage copy --to {object_store.uri}" in run.stderr


def findings(scripts: Scripts, object_store: ObjectStore, *, code: int) -> dict[str, str]:
    run = scripts.admin("doctor", "storage", "--json", env=object_store.serving)
    assert run.returncode == code, run.stderr
    assert "very-secret-words" not in run.stdout + run.stderr
    return {finding["check"]: finding["state"] for finding in json.loads(run.stdout)["findings"]}


def test_doctor_storage_tries_what_servers_and_writers_need(
    scripts: Scripts, object_store: ObjectStore
) -> None:
    healthy = {
        "answers": "fine",
        "rights": "note",
        "clock": "fine",
        "read after write": "fine",
        "conditional writes": "fine",
        "desk": "note",
    }
    assert findings(scripts, object_store, code=0) == healthy
    assert object_store.held() == []
    object_store.forgets_conditions = True
    unfit = {check: state for check, state in healthy.items() if check != "desk"}  # none should go there
    assert findings(scripts, object_store, code=1) == unfit | {"conditional writes": "wrong"}
    object_store.forgets_conditions = False
    object_store.read_only = True
    only_reading = {"answers": "fine", "rights": "fine", "desk": "note"}
    assert findings(scripts, object_store, code=0) == only_reading
    for fault in ("down", "expired"):
        setattr(object_store, fault, True)
        assert findings(scripts, object_store, code=1) == {"answers": "wrong"}


def test_doctor_says_which_of_the_two_places_it_looks_at(scripts: Scripts, object_store: ObjectStore) -> None:
    of_folder = scripts.admin("doctor", "--fix", env=object_store.serving)
    assert of_folder.returncode == 2
    assert "run refdesk-admin doctor storage" in of_folder.stderr
    assert not object_store.requests
    without = scripts.admin("doctor", "storage")
    assert without.returncode == 2
    assert "storage.uri is not set" in without.stderr


def test_a_sync_tells_of_documents_in_the_bucket_that_no_origin_brings_any_more(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path
) -> None:
    config, env = tmp_path / "config.toml", object_store.serving | {"REFDESK_DATA": str(tmp_path / "machine")}
    for name in ("former", "present"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note.md").write_text(f"# A {name} note\n\nThe pendulum swings.\n")
        config.write_text(f'[origins.notes]\ntype = "folder"\npath = "{tmp_path / name}"\n')
        run = scripts.admin("sync", "--config", config, env=env)
        assert run.returncode == 0, run.stderr
    (note,) = [line for line in run.stderr.splitlines() if line.startswith("Note: 1 document in documents")]
    assert f"comes from the folder {tmp_path}/former, which no origin of the settings names any more" in note


def test_the_console_looks_at_the_keys_in_the_bucket(
    scripts: Scripts, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = object_store.serving | {"REFDESK_DATA": str(tmp_path / "machine")}
    assert scripts.admin("key", "create", "--user", "ann", env=env).returncode == 0
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    async def about_keys() -> list[str]:
        findings = check_machine(load_settings(None, env, {}), tmp_path / "config.toml")
        return [finding.part async for finding in findings if finding.check == "api keys"]

    assert anyio.run(about_keys) == ["1 in keys.json"]

"""Tenants don't see each other; --tenant, --user and --group say who asks."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

from rag.access.rule import valid_name
from rag.store.write.make_collection import ensure_collection
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


def _paper(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.md"
    file.write_text(f"# {name}\n\n{text}\n")
    return file


def test_tenants_are_made_filled_listed_and_removed_each_by_itself(desk: Desk, tmp_path: Path) -> None:
    assert "no tenants yet" in desk.run("tenant", "list").stdout
    ours, theirs = _paper(tmp_path, "ours", "pendulum"), _paper(tmp_path, "theirs", "pendulum")
    desk.run("ingest", ours)
    assert desk.json("tenant", "list") == {"tenants": [{"name": "default", "collections": ["documents"]}]}

    assert "no tenant 'acme'" in desk.misuse("ingest", theirs, "--tenant", "acme")
    desk.run("tenant", "create", "acme")
    assert "The tenant 'acme' already exists" in desk.misuse("tenant", "create", "acme")
    assert refusal(valid_name, "a__b") in desk.misuse("tenant", "create", "a__b")
    desk.run("ingest", theirs, "--tenant", "acme")

    assert "Name one" in desk.misuse("search", "pendulum")
    for tenant, title in [("default", "ours"), ("acme", "theirs")]:
        assert desk.titles("pendulum", "--tenant", tenant) == [title]
        assert [source["title"] for source in desk.sources("--tenant", tenant)] == [title]
    assert desk.run("tenant", "list").stdout.splitlines() == [
        "TENANT   COLLECTIONS",
        "acme     documents",
        "default  documents",
    ]

    assert "--yes" in desk.misuse("tenant", "remove", "acme")
    desk.run("key", "create", "--tenant", "acme")
    removed = desk.json("tenant", "remove", "acme", "--yes")
    assert removed == {"removed": "acme", "collections": ["documents"], "keys": 1}
    assert "no tenant 'acme'" in desk.failure("tenant", "remove", "acme", "--yes")
    assert not [path for path in desk.data.rglob("*") if "acme" in path.name and path.suffix != ".lock"]
    assert desk.titles("pendulum") == ["ours"]


STEPS = (
    "rag.admin.tenant_command.revoke_keys",
    "rag.store.write.change_collection.collection_tables.drop_tables",
    "rag.store.write.change_collection.drop_runs",
    "rag.store.write.table_maintenance.purge_rows",
    "rag.admin.tenant_command.forget",
    "rag.admin.tenant_command.forget_runs",
    "rag.admin.tenant_command.forget_console",
    "rag.admin.tenant_command.end_tenant",
)
SECRET = b"zanzibar"


class KilledError(Exception):
    """Nothing of the command runs after it."""


@pytest.fixture(scope="module")
def two_tenants(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of two, each with a document and a key."""
    folder = tmp_path_factory.mktemp("two")
    ours = _paper(folder, "ours", "pendulum")
    theirs = _paper(folder, SECRET.decode(), f"{SECRET.decode()} pendulum")
    desk = desk_at(folder / "data")
    for tenant, paper in (("default", ours), ("acme", theirs)):
        desk.run("tenant", "create", tenant)
        desk.run("ingest", paper, "--tenant", tenant)
        desk.run("key", "create", "--tenant", tenant, "--user", "ann")
    about = f"About {SECRET.decode()}"
    desk.run("collection", "set", "documents", "--tenant", "acme", "--description", about)
    return desk.data


@pytest.mark.parametrize("tenant", ["default", "acme"])
def test_an_ingestion_that_has_begun_brings_no_removed_tenant_back(
    desk: Desk, inside: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tenant: str
) -> None:
    """Neither the only one of a desk nor one of several."""
    first, second = (_paper(tmp_path, name, "pendulum") for name in ("first", "second"))
    for name in {"default", tenant}:
        inside.run("tenant", "create", name)
        inside.run("ingest", first, "--tenant", name)
    removed: list[str] = []

    async def late(*arguments: Any, **more: Any) -> object:  # noqa: ANN401 as the original's
        remove = partial(desk.json, "tenant", "remove", tenant, "--yes")
        removed.append((await to_thread.run_sync(remove))["removed"])
        return await ensure_collection(*arguments, **more)

    ingest = ("ingest", second, "--collection", "fresh", "--tenant", tenant)
    with monkeypatch.context() as patch:
        patch.setattr("rag.admin.ingestion.ensure_collection", late)
        assert f"The tenant {tenant!r} was removed" in inside.misuse(*ingest)
    assert removed == [tenant]
    assert tenant not in {found["name"] for found in inside.json("tenant", "list")["tenants"]}
    inside.run("tenant", "create", tenant)
    inside.run(*ingest)
    assert [hit["title"] for hit in inside.hits("pendulum", "--tenant", tenant)] == ["second"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.rpartition(".")[2])
def test_a_tenant_is_removed_with_all_its_traces_in_one_step_also_after_a_kill_and_no_other_is_touched(
    inside: Desk, two_tenants: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    shutil.copytree(two_tenants, inside.data)
    assert inside.files_with(SECRET)
    before = inside.hits("pendulum", "--tenant", "default")
    assert [key["tenant"] for key in inside.json("key", "list")["keys"]] == ["default", "acme"]

    def killed(*_arguments: object, **_more: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(step, killed)
        with pytest.raises(KilledError):
            inside.run("tenant", "remove", "acme", "--yes")
    inside.run("tenant", "remove", "acme", "--yes")
    assert [tenant["name"] for tenant in inside.json("tenant", "list")["tenants"]] == ["default"]
    assert not [path for path in inside.files_with(SECRET) if path.name != "audit.jsonl"]
    assert not [path for path in inside.data.rglob("*acme*") if path.suffix != ".lock"]
    assert [key["tenant"] for key in inside.json("key", "list")["keys"]] == ["default"]
    assert inside.hits("pendulum", "--tenant", "default") == before != []


def test_without_a_name_the_status_is_that_of_all_tenants_with_what_failed(
    inside: Desk, tmp_path: Path
) -> None:
    paper = _paper(tmp_path, "ours", "pendulum")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "a.docx").write_bytes(b"no document")
    for tenant in ("default", "acme", "empty"):
        inside.run("tenant", "create", tenant)
    inside.run("ingest", paper, "--tenant", "default")
    inside.run("ingest", paper, broken, "--tenant", "acme", code=3)
    printed = inside.run("status").stdout
    assert "Tenants      3, with 2 documents in 2 collections" in printed
    assert "acme.documents: the last ingest failed for some files" in printed
    assert "default.documents" not in printed
    by_name = {tenant["name"]: tenant for tenant in inside.json("status")["tenants"]}
    assert [by_name[name]["documents"] for name in ("acme", "default", "empty")] == [1, 1, 0]
    assert by_name["empty"]["bytes"] == 0 < by_name["acme"]["bytes"]
    assert [len(by_name[name]["failed"]) for name in ("acme", "default")] == [1, 0]
    assert "Tenant       acme" in inside.run("status", "--tenant", "acme").stdout


def test_the_first_tenant_can_be_named_in_the_settings(desk: Desk, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[principal]\ntenant = "acme"\n')
    desk.run("ingest", _paper(tmp_path, "ours", "pendulum"), "--config", config)
    assert [tenant["name"] for tenant in desk.json("tenant", "list")["tenants"]] == ["acme"]
    assert desk.hits("pendulum")


QUESTION = '[[questions]]\ntext = "how many days of leave?"\nexpect = ["leave.md"]\n'
NOBODY_IN = 'principal = {tenant = "default"}\n'


@pytest.fixture
def office(inside: Desk, tmp_path: Path) -> Desk:
    """A note that the group hr alone may see."""
    (tmp_path / "leave.md").write_text("# Leave\n\nThere are thirty days of leave.\n")
    inside.run("ingest", tmp_path / "leave.md", "--visibility", "restricted", "--allow", "group:hr")
    return inside


def test_a_search_finds_what_the_flags_principal_may_see(office: Desk, desk: Desk, tmp_path: Path) -> None:
    assert desk.hits("days of leave", "--user", "ann", "--group", "it", "--group", "hr")
    assert not office.hits("days of leave", "--user", "ann", "--group", "it")

    config = tmp_path / "config.toml"
    config.write_text('[principal]\nuser = "ann"\ngroups = ["hr"]\n')
    assert office.hits("days of leave", "--config", config)
    for flags in (["--user", "bob"], ["--user", ""], ["--group", "it"]):
        assert not office.hits("days of leave", "--config", config, *flags)


def test_an_evaluation_asks_as_the_flags_principal_where_questions_do_not_say(
    office: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "questions.toml"
    file.write_text(QUESTION)

    def recall(*flags: str) -> float:
        (run,) = office.json("eval", file, *flags)["runs"]
        return float(run["metrics"]["recall@10"])

    assert recall() == 0
    assert recall("--group", "hr") == 1
    assert recall("--user", "hr") == 0
    file.write_text(QUESTION + NOBODY_IN + QUESTION)
    assert recall("--group", "hr") == 0.5
    file.write_text(QUESTION + NOBODY_IN)
    assert "Leave out --user and --group" in office.misuse("eval", file, "--group", "hr")
    file.write_text(QUESTION + 'principal = {tenant = "default", groups = ["group:hr"]}\n')
    assert "without a prefix: hr, not group:hr" in office.misuse("eval", file)


@pytest.mark.parametrize(
    "arguments",
    [["search", "leave"], ["eval", "questions.toml"], ["cite", "check", "-"], ["key", "create"]],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--group", "hr", "--group", "group:hr"], "without a prefix: hr, not group:hr"),
        (["--user", "user:ann"], "without a prefix: ann, not user:ann"),
        (["--group", "user:ann"], "names a user"),
    ],
)
def test_an_entry_where_a_name_is_wanted_is_refused_in_one_line(
    inside: Desk, arguments: list[str], flags: list[str], words: str
) -> None:
    refusal = inside.misuse(*arguments, *flags)
    assert words in refusal
    assert refusal.count("\n") == 1
    assert not inside.data.exists()

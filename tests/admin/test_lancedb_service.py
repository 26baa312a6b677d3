"""LanceDB Enterprise and Cloud: no desk can be there, and a table there can be attached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import lancedb
import numpy as np
import pytest

from tests.admin.test_attach import COLUMNS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.admin.conftest import Desk
    from tests.lancedb_service import Service

pytestmark = pytest.mark.slow

OPTIONS = ("--id", "key", "--text", "text", "--allow", "acl", "--field", "year=integer:meta.year")
KEY = "sk_very-secret-words"


@pytest.fixture
def service(
    services: ModuleType, foreign: ModuleType, tmp_path: Path, inside: Desk, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A service with a table of three notes, which commands can reach."""
    assert inside
    vectors = {"v": foreign.column_of(np.eye(3, 384, dtype=np.float32))}
    anyio.run(foreign.written, tmp_path / "tables", "notes", COLUMNS | vectors)
    with services.lancedb_service(tmp_path / "tables") as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        yield served


@pytest.mark.parametrize(
    ("address", "vector"), [("db://corp/notes", ()), ("db://corp/team/folder/notes", ("--vector", "v"))]
)
def test_a_table_there_is_searched_by_its_rows_own_rights_and_each_read_asks_for_the_newest(
    inside: Desk, desk: Desk, service: Service, address: str, vector: tuple[str, ...]
) -> None:
    attached = inside.json("collection", "attach", "notes", "--table", address, *OPTIONS, *vector)
    assert (attached["table"], attached["rows"]) == (address, 3)
    hits = inside.hits("clock", "--user", "ann")
    assert [hit["text"] for hit in hits][:1] == TEXTS[:1]
    assert TEXTS[1] not in {hit["text"] for hit in hits}
    assert inside.hits("payroll clock", "--group", "hr")[0]["text"] == TEXTS[1]
    assert inside.hits("clock", "--user", "bob") == []
    filtered = ("search", "clock", "--user", "ann", "--filter")
    assert inside.json(*filtered, '{"year": 1656}')["results"]
    assert not inside.json(*filtered, '{"year": 2020}')["results"]
    assert desk.hits("clock", "--user", "ann") == hits  # in a process of its own
    (status,) = inside.json("status")["collections"]
    assert (status["sources"], status["indexes"]) == (3, ["text (FTS)"])
    inside.run("collection", "remove", "notes", "--yes")
    paths = {path.split("/", 2)[2] for path, _, _ in service.calls}
    name = "team$folder$notes" if "team" in address else "notes"
    assert paths <= {
        f"{name}/{call}" for call in ("describe", "index/list", "count_rows", "query", "index/text_idx/stats")
    }
    reads = [headers for path, headers, _ in service.calls if path.endswith(("/query", "/count_rows"))]
    assert reads
    assert all(headers.get("x-lancedb-min-timestamp") for headers in reads)


def test_a_row_whose_rights_change_counts_with_the_next_request(inside: Desk, service: Service) -> None:
    inside.run("collection", "attach", "notes", "--table", "db://corp/notes", *OPTIONS)
    assert inside.hits("clock", "--user", "ann")

    async def take_away() -> None:
        table = await (await lancedb.connect_async(str(service.folder))).open_table("notes")
        await table.update(updates_sql={"acl": "array['user:bob']"}, where="key = 1")

    anyio.run(take_away)
    assert not inside.hits("clock", "--user", "ann")
    assert inside.hits("clock", "--user", "bob")


@pytest.mark.parametrize(
    ("variable", "value", "status", "why"),
    [
        ("LANCEDB_API_KEY", "", 0, "needs an API key of LanceDB. Set LANCEDB_API_KEY."),
        ("LANCEDB_API_KEY", "sk_another", 0, "refuses the API key in LANCEDB_API_KEY"),
        ("LANCEDB_HOST_OVERRIDE", "http://lancedb.example", 0, "LANCEDB_HOST_OVERRIDE is not encrypted"),
        ("LANCEDB_HOST_OVERRIDE", "http://127.0.0.1:9", 0, "can't be reached"),
        ("LANCEDB_REGION", "eu", 400, "answers with status 400"),
        ("LANCEDB_REGION", "eu", 404, "There is no LanceDB table db://corp/notes."),
    ],
)
def test_a_service_that_fails_fails_its_collection_alone_and_says_why_without_the_key(  # noqa: PLR0913 fixtures
    inside: Desk,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    variable: str,
    value: str,
    status: int,
    why: str,
) -> None:
    (tmp_path / "new.md").write_text("A new clock\n")
    inside.run("ingest", tmp_path / "new.md")
    attach = ("collection", "attach", "notes", "--table", "db://corp/notes", *OPTIONS)
    inside.run(*attach)
    monkeypatch.setenv(variable, value)
    service.status = status
    answer: Any = inside.json("search", "clock", "--user", "ann")
    assert (len(answer["results"]), answer["degraded"]) == (1, ["collections"])
    run = inside.run("collection", "show", "notes")
    assert why in run.stdout
    printed = run.stdout + run.stderr + inside.run("config", "check", code=1).stdout
    assert KEY not in printed
    assert "sk_another" not in printed
    monkeypatch.undo()


def test_a_desk_or_a_tenant_there_is_refused_before_anything_is_opened(
    inside: Desk, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is the path of a folder" in inside.misuse(
        "tenant", "create", "acme", "--storage", "db://corp/acme"
    )
    monkeypatch.setenv("REFDESK_STORAGE_URI", "db://corp")
    for command in (("doctor", "storage"), ("config", "check"), ("search", "clock"), ("tenant", "list")):
        refusal = inside.misuse(*command)
        assert "where no desk can be" in refusal
        assert "collection attach NAME --table db://database/table" in refusal
    assert service.calls == []
    assert not inside.data.exists()


@pytest.mark.anyio
async def test_the_installed_client_lacks_what_the_refusal_names(
    services: ModuleType, foreign: ModuleType, tmp_path: Path
) -> None:
    """When it no longer does, look again whether a desk can be there."""
    await foreign.written(tmp_path, "notes", COLUMNS)
    with services.lancedb_service(tmp_path) as service:
        database = await lancedb.connect_async("db://corp", api_key=KEY, host_override=service.address)
        table = await database.open_table("notes")
        with pytest.raises(NotImplementedError, match="optimize is not supported"):
            await table.optimize()
        with pytest.raises(NotImplementedError, match="set_unenforced_primary_key"):
            await table.set_unenforced_primary_key("key")
        assert not [name for name in dir(database) if "object" in name or "put" in name]

"""refdesk-admin collection tag: what a collection held once, for those who could see it then and can now."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import rag
from rag.access.rule import valid_name
from rag.admin.remove_command import IN_TAG
from rag.corpus import Binding, Principal
from rag.errors import StoreError
from rag.search.view import UNREADABLE
from rag.store.write import make_collection
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.make_collection import ensure_collection
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rag.answers import Mode
    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


OF_HANDBOOK = "handbook as it was on "
FULL = "The disk is full."


@dataclass(frozen=True, slots=True)
class Handbook:
    """A collection, and the folder that it is ingested from."""

    desk: Desk
    folder: Path

    def write(self, name: str, text: str) -> Path:
        file = self.folder / f"{name}.md"
        file.write_text(f"# {name}\n\nThe pendulum {text}.\n")
        return file

    def ingest(self) -> None:
        self.desk.run("ingest", self.folder, "--collection", "handbook")

    def tag(self, name: str = "then") -> None:
        self.desk.run("collection", "tag", "handbook", name)

    def hits(self, *options: str) -> dict[str, dict[str, Any]]:
        hits = self.desk.hits("pendulum", *options)
        return {hit["title"]: hit for hit in hits}

    def id_of(self, title: str, collection: str) -> str:
        listed = self.desk.sources("--collection", collection)
        return next(str(source["id"]) for source in listed if source["title"] == title)


@pytest.fixture(scope="module")
def first(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Handbook:
    """What each test begins with."""
    folder = tmp_path_factory.mktemp("handbook")
    (folder / "texts").mkdir()
    handbook = Handbook(desk_at(folder / "data"), folder / "texts")
    handbook.write("leave", "is twenty days")
    handbook.write("canteen", "opens at noon")
    handbook.ingest()
    shutil.copytree(handbook.folder, folder / "first texts")
    return handbook


@pytest.fixture
def handbook(first: Handbook, unconnected: Desk) -> Handbook:
    """Texts where they were ingested from, and a copy of the desk that has them."""
    shutil.rmtree(first.folder)
    shutil.copytree(first.folder.with_name("first texts"), first.folder)
    shutil.copytree(first.desk.data, unconnected.data)
    return Handbook(unconnected, first.folder)


def test_a_tag_holds_what_there_was_under_ids_of_its_own(handbook: Handbook) -> None:
    handbook.tag()
    present = handbook.hits()
    handbook.write("leave", "is thirty days")
    (handbook.folder / "canteen.md").unlink()
    handbook.ingest()
    now, then = handbook.hits(), handbook.hits("--collection", "then")
    assert now.keys() == {"leave"}
    assert "thirty days" in now["leave"]["text"]
    assert then.keys() == {"leave", "canteen"}
    assert "twenty days" in then["leave"]["text"]
    assert then["leave"]["id"] != now["leave"]["id"] == present["leave"]["id"]
    printed = handbook.desk.run("source", then["leave"]["id"], "--text").stdout
    assert "twenty" in printed
    assert "thirty" not in printed
    handbook.desk.run("doctor")


def test_a_tag_is_searched_only_where_it_is_named(handbook: Handbook) -> None:
    handbook.tag()
    original, tagged = handbook.id_of("leave", "handbook"), handbook.id_of("leave", "then")
    assert handbook.hits()["leave"]["id"] == f"{original}/0"
    assert handbook.hits("--collection", "then")["leave"]["id"] == f"{tagged}/0"
    bound = Principal("default", "ann", bindings=(Binding(("then",)),))  # its key names the tag
    assert anyio.run(_first, handbook.desk.data, bound) == f"{tagged}/0"
    assert anyio.run(_first, handbook.desk.data, Principal("default", "ann")) == f"{original}/0"
    tag = handbook.desk.json("collection", "show", "then")
    assert tag["tag_of"] == "handbook"
    assert tag["description"].startswith(f"{OF_HANDBOOK}20")
    assert "tag_of" not in handbook.desk.json("collection", "show", "handbook")


async def _first(data: Path, principal: Principal) -> str:
    async with rag.Desk.open(rag.Settings(data=data)) as desk:
        answer = await desk.search(principal, "leave days", mode="sparse")
    return answer.hits[0].chunk.id


RIGHTS = [
    # then, now, who sees the tag's document: only those whom both let in
    (("--visibility", "tenant"), ("--visibility", "tenant"), {"ann", "bob"}),
    (("--visibility", "tenant"), ("--allow", "user:ann"), {"ann"}),
    (("--allow", "user:ann"), ("--visibility", "tenant"), {"ann"}),
    (("--allow", "user:ann"), ("--allow", "user:bob"), set()),
    (("--visibility", "tenant"), ("--visibility", "tenant", "--deny", "user:bob"), {"ann"}),
]


@pytest.mark.parametrize(("then", "now", "seeing"), RIGHTS)
def test_a_tag_is_shown_to_those_who_could_see_it_then_and_can_see_it_now(
    handbook: Handbook, then: tuple[str, ...], now: tuple[str, ...], seeing: set[str]
) -> None:
    file = str(handbook.folder / "leave.md")
    handbook.desk.run("access", "set", file, *_restricted(then))
    handbook.tag()
    handbook.desk.run("access", "set", file, *_restricted(now))
    for user, mode, titles in anyio.run(_titles_in_tag, handbook.desk.data):
        assert ("leave" in titles) == (user in seeing), (user, mode)
        assert "canteen" in titles  # a positive control
    for user in ("ann", "bob"):
        assert ("leave" in handbook.hits("--collection", "then", "--user", user)) == (user in seeing)


async def _titles_in_tag(data: Path) -> list[tuple[str, Mode, set[str]]]:
    """What each user finds in the tag in each mode."""
    modes: tuple[Mode, ...] = ("hybrid", "dense", "sparse", "exact")
    titles = []
    async with rag.Desk.open(rag.Settings(data=data)) as desk:
        for user, mode in product(("ann", "bob"), modes):
            principal = Principal("default", user)
            answer = await desk.search(principal, "pendulum", mode=mode, collections=["then"])
            titles.append((user, mode, {hit.source.title for hit in answer.hits}))
    return titles


def _restricted(options: tuple[str, ...]) -> tuple[str, ...]:
    return options if "--visibility" in options else ("--visibility", "restricted", *options)


def test_whoever_sees_nothing_of_a_tag_is_not_told_of_it(handbook: Handbook) -> None:
    handbook.tag()
    for name in ("leave", "canteen"):
        file = handbook.folder / f"{name}.md"
        handbook.desk.run("access", "set", file, "--visibility", "restricted", "--allow", "user:ann")
    assert handbook.hits("--collection", "then", "--user", "ann").keys() == {"leave", "canteen"}
    refused = handbook.desk.run("search", "pendulum", "--collection", "then", "--user", "bob", code=1)
    assert UNREADABLE.partition(" Readable")[0] in refused.stderr


def test_nothing_changes_a_tag_by_mistake(handbook: Handbook) -> None:
    handbook.tag()
    run = handbook.desk.run
    for refused in (
        ("ingest", handbook.folder, "--collection", "then"),
        ("collection", "tag", "then", "again"),
        ("collection", "set", "then", "--chunking", "page"),
    ):
        assert f"'then' is a tag: {OF_HANDBOOK}" in run(*refused, code=2).stderr
    for name in ("then", "handbook"):
        assert "already exists" in run("collection", "tag", "handbook", name, code=2).stderr
    assert refusal(valid_name, "Then!") in run("collection", "tag", "handbook", "Then!", code=2).stderr
    original, tagged = handbook.id_of("leave", "handbook"), handbook.id_of("leave", "then")
    reason = run("access", "grant", tagged, "--to", "user:ann", code=2).stderr
    assert f"Change who may see {original}." in reason
    granted = run("access", "revoke", handbook.folder / "leave.md", "--from", "user:bob").stdout
    assert granted.startswith(f"{original}  ")
    assert tagged not in granted
    assert IN_TAG.format("then") in run("remove", tagged, "--collection", "then").stderr
    assert "next ingest" in run("remove", original, "--collection", "handbook").stderr


def test_a_purge_takes_what_was_removed_out_of_tags(handbook: Handbook) -> None:
    handbook.write("kept", "stays")
    handbook.write("gone", "is zanzibarite")
    handbook.ingest()
    handbook.tag()
    (handbook.folder / "gone.md").unlink()
    handbook.ingest()
    assert "gone" in handbook.hits("--collection", "then")
    handbook.desk.run("purge", "--collection", "handbook")
    assert handbook.hits("--collection", "then").keys() == {"leave", "canteen", "kept"}
    assert not handbook.desk.files_with(b"zanzibarite")
    assert handbook.desk.files_with(b"twenty days")
    printed = handbook.desk.run("collection", "remove", "handbook", "--yes").stdout
    assert "What it held is still in then." in printed
    assert handbook.hits("--collection", "then").keys() == {"leave", "canteen", "kept"}
    handbook.desk.run("purge")
    assert handbook.desk.sources() == []


def test_documents_of_a_tag_expire_with_those_of_the_collection(handbook: Handbook) -> None:
    (handbook.folder / "leave.md").write_text("---\ndate: 2020-01-01\n---\n# leave\n\nThe pendulum.\n")
    handbook.ingest()
    handbook.tag()
    assert "leave" in handbook.hits("--collection", "then")
    id_ = handbook.id_of("leave", "then")
    printed = handbook.desk.run("collection", "set", "handbook", "--keep-days", "365").stdout
    assert "Its tag then keeps documents 365 days, too" in printed
    assert "collection set then --keep-days 0" in printed
    (line,) = handbook.desk.json("audit", "show", "--act", "collection set")["acts"]
    assert [(change["id"], change["after"]["keep_days"]) for change in line["changes"]] == [
        ("handbook", 365),
        ("then", 365),
    ]
    assert "the next purge removes it" in handbook.desk.run("access", "explain", id_).stdout
    assert handbook.hits("--collection", "then").keys() == {"canteen"}
    again = handbook.desk.json("collection", "set", "handbook", "--keep-days", "400")
    assert again["shortened_tags"] == []  # the control: nothing is kept for fewer days
    handbook.desk.run("collection", "set", "handbook", "--keep-days", "0")
    assert handbook.hits("--collection", "then").keys() == {"canteen"}  # what is shorter stays
    handbook.desk.run("collection", "set", "then", "--keep-days", "0")
    assert handbook.hits("--collection", "then").keys() == {"canteen", "leave"}


def test_a_tag_goes_as_a_whole_and_another_of_its_name_has_other_ids(handbook: Handbook) -> None:
    handbook.tag()
    first = handbook.id_of("leave", "then")
    handbook.desk.run("collection", "remove", "then", "--yes")
    handbook.tag()
    assert handbook.id_of("leave", "then") != first
    handbook.desk.run("source", first, code=1)
    handbook.desk.run("doctor")


def test_of_a_tag_that_failed_nothing_remains(handbook: Handbook, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in (handbook.desk.data / "tables").iterdir())

    @contextmanager
    def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        async def copied(*_rows: object) -> None:
            raise StoreError(FULL)

        with monkeypatch.context() as patched:
            patched.setattr(make_collection, "copy_rows", copied)
            yield

    with full(monkeypatch):
        assert FULL in handbook.desk.failure("collection", "tag", "handbook", "then")
    assert sorted(path.name for path in (handbook.desk.data / "tables").iterdir()) == before
    handbook.tag()
    assert handbook.hits("--collection", "then").keys() == {"leave", "canteen"}


def test_a_tag_is_backed_up_and_restored_with_its_rights(handbook: Handbook, tmp_path: Path) -> None:
    file = handbook.folder / "leave.md"
    handbook.tag()
    handbook.desk.run("access", "set", file, "--visibility", "restricted", "--allow", "user:ann")
    backup = tmp_path / "backup.tar"
    handbook.desk.run("backup", backup)
    for name in ("handbook", "then"):
        handbook.desk.run("collection", "remove", name, "--yes")
    handbook.desk.run("restore", backup)
    assert "leave" in handbook.hits("--collection", "then", "--user", "ann")
    assert handbook.hits("--collection", "then", "--user", "bob").keys() == {"canteen"}
    assert handbook.desk.json("collection", "show", "then")["tag_of"] == "handbook"


@pytest.mark.parametrize("forget", [[], ["--forget"]])
def test_a_restore_brings_no_purged_document_back_in_a_tag(
    handbook: Handbook, tmp_path: Path, forget: list[str]
) -> None:
    handbook.tag()
    desk, backup = handbook.desk, tmp_path / "desk.backup"
    desk.run("backup", backup)
    (handbook.folder / "leave.md").unlink()
    handbook.ingest()
    desk.run("collection", "remove", "then", "--yes")
    desk.run("purge", *forget)
    report = desk.json("restore", backup, "--yes")
    assert report["purged"] == [str(handbook.folder / "leave.md")]
    assert handbook.hits().keys() == handbook.hits("--collection", "then").keys() == {"canteen"}
    assert not desk.files_with(b"is twenty days")
    assert desk.files_with(b"opens at noon")


def test_a_collection_that_is_made_while_a_tag_takes_its_name_is_whole(
    handbook: Handbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CollectionWriter.records

    async def records(writer: CollectionWriter) -> Any:  # noqa: ANN401 as it comes
        embedder = writer.collection.embedder
        await ensure_collection(handbook.desk.data, "default", "then", embedder, language=None)
        return await real(writer)

    with monkeypatch.context() as patch:
        patch.setattr(CollectionWriter, "records", records)
        handbook.desk.run("collection", "tag", "handbook", "then", code=1)
    assert handbook.hits().keys() == {"leave", "canteen"}
    handbook.desk.run("ingest", handbook.folder, "--collection", "then")
    assert handbook.hits("--collection", "then").keys() == {"leave", "canteen"}
    assert "fine" in handbook.desk.run("doctor").stdout


def test_all_documents_are_listed_though_the_making_of_a_tag_was_killed(
    handbook: Handbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(make_collection, "_enter", interrupted)
        patch.setattr(make_collection, "finish_drop", interrupted)
        handbook.desk.run("collection", "tag", "handbook", "then", code=130)
    handbook.tag()
    data = handbook.desk.data

    async def listed() -> list[str]:
        async with rag.Desk.open(rag.Settings(data=data)) as desk:
            page = await desk.sources(Principal("default"), after=("then", ""), limit=2)
            return [source.title for source in page]

    assert sorted(anyio.run(listed)) == ["canteen", "leave"]


async def interrupted(*_arguments: object) -> None:
    raise KeyboardInterrupt

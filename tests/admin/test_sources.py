"""The sources of a desk: listed, shown, named in commands with all that they contain, and removed."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

import pytest

from rag.admin import sources_command
from rag.admin.remove_command import STILL_IN
from rag.admin.sources_command import NameIndex
from rag.ingest.source_files import place_of

if TYPE_CHECKING:
    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


ARTICLE = "unix-time-and-2038.md"
DETAILS = {
    "id",
    "collection",
    "uri",
    "url",
    "title",
    "mime_type",
    "date",
    "ingested_at",
    "chunks",
    "without_vector",
    "length",
    "digest",
    "metadata",
}


def test_sources_lists_every_document_by_its_path(clock_desk: Desk, corpus: Path) -> None:
    sources = clock_desk.sources()
    names = [source["metadata"]["path"] for source in sources]
    assert names == sorted(path.name for path in corpus.iterdir() if path.is_file())
    assert all(set(source) == DETAILS for source in sources)
    assert sources[names.index(ARTICLE)]["uri"] == (corpus / ARTICLE).as_uri()

    head, *rows = clock_desk.run("sources", "--collection", "documents").stdout.splitlines()
    assert head.split() == ["ID", "COLLECTION", "CHUNKS", "PATH", "TITLE"]
    assert [row.split()[0] for row in rows] == [source["id"] for source in sources]
    (row,) = (row for row in rows if ARTICLE in row)
    assert row.index(ARTICLE) == head.index("PATH")
    assert row.endswith("  Unix time and the year 2038")


def test_a_source_is_shown_by_its_id_by_a_chunk_s_and_by_uri(clock_desk: Desk) -> None:
    reply = clock_desk.json("search", "What does _TIME_BITS=64 do?", "--limit", "1")
    (hit,) = reply["results"]
    source_id = hit["id"].partition("/")[0]
    details = clock_desk.json("source", source_id)
    assert set(details) == DETAILS | {"outline", "text"}
    assert details["title"] == "Unix time and the year 2038"
    assert details["length"] == len(details["text"])
    assert hit["text"] in details["text"]
    for heading in details["outline"]:
        assert details["text"][heading["start"] :].startswith(
            f"{'#' * heading['level']} {heading['title']}\n"
        )
    assert clock_desk.json("source", hit["uri"]) == details

    beginning = clock_desk.run("source", hit["id"]).stdout
    assert f"id           {source_id}\n" in beginning
    assert "metadata     path: unix-time-and-2038.md\n" in beginning
    assert "\n    The year 2038 problem\n      What happens\n" in beginning
    assert beginning.endswith(f"\n[{details['length'] - 500} more characters; use --text to print all]\n")
    whole = clock_desk.run("source", hit["id"], "--text").stdout
    assert whole.endswith(f"\n{details['text']}\n")


def test_status_says_where_and_how_much(clock_desk: Desk) -> None:
    status = clock_desk.json("status")
    (collection,) = status["collections"]
    assert status["data"] == str(clock_desk.data)
    assert status["bytes"] > 100_000
    assert (collection["name"], collection["sources"], collection["unindexed"]) == ("documents", 17, 0)
    assert collection["chunks"] > 100
    assert collection["embedder"]["model"] == "all-MiniLM-L6-v2"

    lines = clock_desk.run("status").stdout.splitlines()
    assert lines[0].startswith(f"Data folder  {clock_desk.data} (")
    assert lines[-2].split() == [
        "COLLECTION",
        "SOURCES",
        "CHUNKS",
        "UNINDEXED",
        "LANGUAGE",
        "EMBEDDER",
        "INDEXES",
    ]
    assert lines[-1].split()[:6] == [
        "documents",
        "17",
        str(collection["chunks"]),
        "0",
        "auto",
        "all-MiniLM-L6-v2",
    ]


def test_an_empty_desk_says_how_to_begin_and_is_left_as_it_is(desk: Desk) -> None:
    assert "refdesk-admin ingest PATH" in desk.misuse("sources")
    assert "refdesk-admin ingest PATH" in desk.misuse("status")
    assert not desk.data.exists()
    desk.run("tenant", "create", "default")
    assert "refdesk-admin ingest PATH" in desk.run("sources").stdout
    assert "refdesk-admin ingest PATH" in desk.run("status").stdout


def test_sources_are_removed_by_id_by_file_by_folder_and_all_together(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    for name in ("a.md", "b.md", "c/d.md", "c/e/f.md", "cc/g.md", "h.md"):
        (shelf / name).parent.mkdir(parents=True, exist_ok=True)
        (shelf / name).write_text(f"# {name}\n\nA document.\n")
    (tmp_path / "link").symlink_to(shelf)
    monkeypatch.chdir(shelf / "c")
    ingested = {entry["path"]: entry["source_id"] for entry in desk.json("ingest", shelf)["files"]}
    (shelf / "b.md").unlink()

    by_known_id, by_id = ingested[f"{shelf}/h.md"], ingested[f"{shelf}/a.md"]
    run = desk.run("remove", by_known_id, "nothing.md", code=1)
    assert run.stderr == (
        "refdesk-admin: No source in documents has the id or path 'nothing.md'. "
        "List them with refdesk-admin sources.\n"
    )
    removed = desk.json("remove", by_id, "../b.md", f"{tmp_path}/link/c", by_id)["removed"]
    assert {*removed} == {by_id, *(ingested[f"{shelf}/{name}"] for name in ("b.md", "c/d.md", "c/e/f.md"))}
    assert desk.paths() == ["cc/g.md", "h.md"]

    for empty in (("remove", ""), ("access", "set", "", "--visibility", "tenant"), ("ingest", "")):
        assert "empty" in desk.misuse(*empty)  # it would be the current folder
    assert desk.paths() == ["cc/g.md", "h.md"]

    desk.run("collection", "create", "handbook")
    assert "--collection documents" in desk.failure("remove", by_known_id, "--collection", "handbook")
    desk.run("ingest", shelf / "h.md", "--collection", "handbook")
    removal = desk.run("remove", by_known_id)
    assert removal.stdout == "Removed 1 source from documents.\n"
    assert STILL_IN.format("handbook") in removal.stderr
    desk.run("collection", "remove", "handbook", "--yes")
    assert desk.json("remove", "*")["removed"] == [ingested[f"{shelf}/cc/g.md"]]
    desk.run("collection", "remove", "documents", "--yes")
    assert desk.json("status")["collections"] == []


@pytest.fixture
def plans(inside: Desk, tmp_path: Path) -> dict[str, str]:
    """The ids of three documents by path; two of them have one title."""
    for path, title in (
        ("a/plan.md", "The plan"),
        ("b/plan.md", "The plan"),
        ("c/note.md", "A [draft] *note*?"),
    ):
        file = tmp_path / "files" / path
        file.parent.mkdir(parents=True)
        file.write_text(f"# {title}\n\npendulum\n")
    inside.run("ingest", tmp_path / "files")
    return {source["metadata"]["path"]: source["id"] for source in inside.sources()}


def test_commands_take_a_title_or_a_path_that_one_document_has(inside: Desk, plans: dict[str, str]) -> None:
    note = plans["c/note.md"]
    (title,) = [source["title"] for source in inside.sources() if source["id"] == note]
    names = ["c/note.md", "documents/c/note.md", title, f" [{note}/0] ", f"refdesk://documents/{note}/0-1"]
    for name in names:
        assert inside.json("access", "show", name)["id"] == note
        assert inside.json("source", name)["id"] == note
    assert inside.json("remove", title)["removed"] == [note]


def test_commands_refuse_a_name_that_several_have_and_list_them(inside: Desk, plans: dict[str, str]) -> None:
    for command in (["remove"], ["access", "grant", "--to", "user:ann"], ["access", "show"], ["source"]):
        refusal = inside.misuse(*command, "The plan")
        assert all(plans[path] in refusal for path in ("a/plan.md", "b/plan.md"))
        assert plans["c/note.md"] not in refusal
    for near in ("the plan", "plan.md", "The pla", "The plan/", "documents"):
        assert "No source" in inside.failure("remove", near)
    assert len(inside.sources()) == 3


def test_a_source_to_remove_is_looked_for_where_no_collection_has_the_usual_name(
    inside: Desk, tmp_path: Path
) -> None:
    (tmp_path / "plan.md").write_text("# The plan\n\nA pendulum.\n")
    inside.run("ingest", tmp_path / "plan.md", "--collection", "notes")
    assert "--collection notes" in inside.failure("remove", "The plan")
    assert "no collection 'other'" in inside.failure("remove", "The plan", "--collection", "other")
    assert "No source in documents" in inside.failure("remove", "another plan")
    assert len(inside.json("remove", "The plan", "--collection", "notes")["removed"]) == 1


MAIL, NOTE, OTHER, IN_ZIP, ITS_NOTE = ("m" * 16, "n" * 16, "o" * 16, "z" * 16, "y" * 16)
URIS = {
    MAIL: "file:///d/m.eml",
    NOTE: "file:///d/m.eml#note.txt",
    OTHER: "file:///d/m.eml2",
    IN_ZIP: "file:///d/x.zip#m.eml",
    ITS_NOTE: "file:///d/x.zip#m.eml/note.txt",
}


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        (MAIL, [MAIL, NOTE]),
        ("/d/m.eml", [MAIL, NOTE]),
        ("*.eml", [MAIL, IN_ZIP, NOTE, ITS_NOTE]),
        (IN_ZIP, [IN_ZIP, ITS_NOTE]),
        (NOTE, [NOTE]),
        (OTHER, [OTHER]),
    ],
)
def test_a_name_means_what_its_source_contains_too(name: str, ids: list[str]) -> None:
    assert NameIndex.of(URIS, {}).matching(name) == ids


def test_many_names_parse_the_uris_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def place(uri: str) -> Path:
        parsed.append(uri)
        return place_of(uri)

    monkeypatch.setattr(sources_command, "place_of", place)
    index = NameIndex.of(URIS, {})
    for name in (*URIS, *URIS.values(), "nothing", "*.eml"):
        index.matching(name)
    assert parsed == [*URIS.values()]


MUELLER, OTHER_FORM = "b" * 16, "c" * 16


@pytest.mark.parametrize("name", ["/d/Verträge/Müller.md", "/d/Verträge", "*Müller*"])
def test_a_name_matches_however_its_accents_are_stored(name: str) -> None:
    stored = {MUELLER: Path(normalize("NFD", "/d/Verträge/Müller.md")).as_uri()}
    index = NameIndex.of(stored, {})
    assert index.matching(name) == index.matching(normalize("NFD", name)) == [MUELLER]
    assert index.matching(name.replace("ä", "a").replace("ü", "u")) == []


def test_a_file_with_just_this_name_comes_before_one_with_another_form_of_it() -> None:
    forms = {MUELLER: normalize("NFC", "/d/é.md"), OTHER_FORM: normalize("NFD", "/d/é.md")}
    index = NameIndex.of({id_: Path(path).as_uri() for id_, path in forms.items()}, {})
    assert {id_: index.matching(path) for id_, path in forms.items()} == {id_: [id_] for id_ in forms}


@pytest.fixture
def wages(inside: Desk, tmp_path: Path) -> Path:
    """A mail with an attachment, ingested."""
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Wages", "ann@example.org"
    mail.set_content("The pendulum of wages.\n")
    mail.add_attachment("A pendulum, too.\n", filename="list.txt")
    file = tmp_path / "mails" / "wages.eml"
    file.parent.mkdir()
    file.write_bytes(bytes(mail))
    inside.run("ingest", file.parent)
    return file


def test_an_attachment_is_never_wider_than_its_mail_by_hand_either(inside: Desk, wages: Path) -> None:
    note = f"{wages}/list.txt"
    inside.run("access", "set", wages, "--visibility", "restricted", "--allow", "group:hr")
    for act in (("set", "--visibility", "tenant"), ("grant", "--to", "user:bob")):
        run = inside.run("access", act[0], note, *act[1:])
        assert f"{note} stays narrower" in run.stderr
        assert inside.hits("pendulum", "--user", "bob") == []
    inside.run("access", "grant", wages, "--to", "user:bob")  # which takes it along
    assert len(inside.hits("pendulum", "--user", "bob")) == 2
    run = inside.run("access", "revoke", note, "--from", "user:bob")
    assert run.stderr == ""
    assert len(inside.hits("pendulum", "--user", "bob")) == 1
    inside.run("ingest", wages.parent)
    assert len(inside.hits("pendulum", "--user", "bob")) == 1


@pytest.mark.parametrize("by", ["id", "path"])
def test_a_mail_that_is_restricted_takes_its_attachments_along_at_once(
    inside: Desk, wages: Path, by: str
) -> None:
    ids = {hit["title"]: hit["id"].partition("/")[0] for hit in inside.hits("pendulum")}
    assert set(ids) == {"Wages", "list"}
    name = ids["Wages"] if by == "id" else wages
    inside.run("access", "set", name, "--visibility", "restricted", "--allow", "group:hr")
    assert inside.hits("pendulum", "--user", "bob") == []
    assert len(inside.hits("pendulum", "--group", "hr")) == 2

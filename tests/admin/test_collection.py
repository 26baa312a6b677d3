"""refdesk-admin collection: made, shown, changed, rebuilt, also with another model, and removed."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import onnx
import pytest
from anyio import to_thread
from click.testing import CliRunner
from onnx import TensorProto, helper

from rag.access.rule import valid_name
from rag.admin import collection_changes
from rag.admin.collection_changes import NO_NAME, TAKES
from rag.admin.main import commands
from rag.admin.sharing import UNLESS
from rag.config.model_settings import unknown_embedder
from rag.config.settings import Settings
from rag.corpus import EmbedderIdentity, Principal
from rag.errors import ConfigurationError
from rag.home import check_data_folder
from rag.models.embed import open_embedder
from rag.models.text_encoder import BUILTIN_MODEL
from rag.search.desk import Desk as SearchDesk
from rag.store.read.desk_reader import DeskReader
from rag.store.write.make_collection import ensure_collection
from tests.refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from rag.answers import Answer
    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


NO_FIELD = "is not like year=integer. Types: string, integer"
WENT_BACK = "Went back to the former tables of the collection documents: {} documents, 0 cut"
KEYS = {
    "chunking",
    "tenant",
    "name",
    "embedder",
    "language",
    "distance",
    "created_at",
    "fields",
    "visibility",
    "description",
    "link",
    "embedder_name",
}
FIELDS = {
    "year": "integer",
    "weight": "number",
    "final": "boolean",
    "reviewed": "datetime",
    "status": "string",
    "tags": "string list",
}
OPTIONS = [part for name, kind in FIELDS.items() for part in ("--field", f"{name}={kind}")]


def stored_fields(desk: Desk, collection: str) -> dict[str, dict[str, Any]]:
    """What filters would see of each source, by its path."""
    return anyio.run(_stored_fields, desk, collection)


async def _stored_fields(desk: Desk, collection: str) -> dict[str, dict[str, Any]]:
    reader = DeskReader(desk.data, timeout_seconds=15)
    (stored,) = [listed for listed in await reader.collections("default") if listed.name == collection]
    table = await reader.open(stored)
    sources = await table.sources([source.id for source in await table.listing()])
    return {row.source.metadata["path"]: dict(row.fields) for row in sources.values()}


def test_a_collection_is_made_with_fields_a_language_and_a_visibility(desk: Desk, inside: Desk) -> None:
    options = [*OPTIONS, "--language", "german", "--visibility", "restricted", "--distance", "euclidean"]
    created = desk.json("collection", "create", "handbook", *options)
    assert set(created) == KEYS | {"visibility_is_set"}
    assert (created["tenant"], created["name"]) == ("default", "handbook")
    assert (created["fields"], created["language"], created["visibility"]) == (FIELDS, "German", "restricted")
    assert list(created["fields"]) == list(FIELDS)
    assert created["distance"] == "euclidean"
    assert datetime.fromisoformat(created["created_at"]).utcoffset() is not None
    assert desk.json("collection", "show", "handbook") == created
    assert inside.json("collection", "list") == {"collections": [created]}


def test_people_read_a_collection_s_fields_and_visibility(desk: Desk, inside: Desk) -> None:
    assert refusal(check_data_folder, inside.data) in inside.misuse("collection", "list")
    inside.run("tenant", "create", "default")
    nothing = inside.run("collection", "list").stdout
    assert nothing.startswith(
        "There are no collections yet. Add documents with refdesk-admin ingest PATH --data"
    )
    assert inside.json("collection", "list") == {"collections": []}

    message = desk.run("collection", "create", "handbook", "--field", "year=integer").stdout
    assert message == (
        "Created the collection handbook with 1 field. New sources in it are visible to the whole tenant, "
        f"{UNLESS}.\n"
    )
    inside.run("collection", "create", "closed", "--visibility", "restricted")
    assert [line.split() for line in desk.run("collection", "list").stdout.splitlines()] == [
        ["COLLECTION", "LANGUAGE", "VISIBILITY", "EMBEDDER", "FIELDS"],
        ["closed", "auto", "restricted", "default", "-"],
        ["handbook", "auto", "tenant", "default", "year"],
    ]
    rows = [line.split() for line in inside.run("collection", "show", "handbook").stdout.splitlines()]
    assert ["name", "handbook"] in rows
    assert ["fields", "year", "integer"] in rows
    assert ["embedder", "dimension", "384"] in rows
    assert ["visibility", "tenant"] in rows


def test_a_collection_is_described_when_it_is_made_or_later(desk: Desk, inside: Desk, tmp_path: Path) -> None:
    inside.run("collection", "create", "handbook", "--description", "Rules for\n employees")
    (tmp_path / "a.txt").write_text("thirty days of leave\n")
    inside.run("ingest", tmp_path / "a.txt", "--collection", "handbook")
    before = inside.json("collection", "show", "handbook")
    assert before["description"] == "Rules for employees"
    message = desk.run("collection", "set", "handbook", "--description", "Leave and travel").stdout
    assert message == "Set the description of the collection handbook.\n"
    assert inside.json("collection", "show", "handbook") == before | {"description": "Leave and travel"}
    assert inside.hits("leave")[0]["collection"] == "handbook"
    assert inside.json("collection", "set", "handbook", "--description", "")["description"] == ""
    assert "at most 500" in inside.misuse("collection", "set", "handbook", "--description", "x" * 501)
    unknown = inside.run("collection", "set", "handbok", "--description", "x", code=1)
    assert "handbok" in unknown.stderr


def test_a_collection_has_a_link_which_can_change_without_its_description(inside: Desk) -> None:
    inside.run("collection", "create", "wiki", "--description", "Notes", "--link", "https://wiki.example/a b")
    created = inside.json("collection", "show", "wiki")
    assert (created["description"], created["link"]) == ("Notes", "https://wiki.example/a%20b")
    message = inside.run("collection", "set", "wiki", "--link", "https://example.org").stdout
    assert message == "Set the link of the collection wiki.\n"
    assert inside.json("collection", "show", "wiki") == created | {"link": "https://example.org"}
    message = inside.run("collection", "set", "wiki", "--link", "", "--description", "Pages").stdout
    assert (
        message == "Set the description of the collection wiki.\nRemoved the link of the collection wiki.\n"
    )
    assert inside.json("collection", "show", "wiki") == created | {"link": "", "description": "Pages"}
    for wrong in ("javascript:alert(1)", "wiki.example", f"https://example.org/{'x' * 200}"):
        assert "--link" in inside.misuse("collection", "set", "wiki", "--link", wrong)
    assert (
        "--chunking, --language, --field, --no-field, --personal-data, --keep-days or --visibility"
        in inside.misuse("collection", "set", "wiki")
    )


def test_a_collection_is_removed_with_all_that_is_in_it_after_a_yes(
    desk: Desk, inside: Desk, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("thirty days of leave\n")
    for collection in ("handbook", "kept"):
        inside.run("ingest", tmp_path / "a.txt", "--collection", collection)
    assert "--yes" in inside.misuse("collection", "remove", "handbook")
    assert len(inside.sources()) == 2

    assert desk.json("collection", "remove", "handbook", "--yes") == {"removed": "handbook"}
    assert [listed["name"] for listed in inside.json("collection", "list")["collections"]] == ["kept"]
    assert [source["collection"] for source in inside.sources()] == ["kept"]
    assert inside.hits("leave")[0]["collection"] == "kept"

    assert desk.run("collection", "remove", "kept", "--yes").stdout == "Removed the collection kept.\n"
    assert inside.json("sources") == {"sources": []}


def test_a_removed_collection_can_be_made_anew_and_is_empty(desk: Desk, inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("thirty days of leave\n")
    inside.run("ingest", tmp_path / "a.txt", "--collection", "handbook")
    inside.run("collection", "remove", "handbook", "--yes")
    desk.run("collection", "create", "handbook", "--field", "year=integer")
    assert inside.json("sources", "--collection", "handbook") == {"sources": []}
    report = inside.json("ingest", tmp_path / "a.txt", "--collection", "handbook")
    assert report["counts"]["added"] == 1


def test_a_collection_that_is_not_there_is_named_with_those_that_are(desk: Desk, inside: Desk) -> None:
    inside.run("collection", "create", "handbook")
    for door, *arguments in ((desk, "show", "nope"), (inside, "remove", "nope", "--yes")):
        run = door.run("collection", *arguments, "--json", code=1)
        assert run.stdout == ""
        assert "There is no collection 'nope' in" in run.stderr
        assert run.stderr.endswith("Collections: handbook.\n")


def test_a_name_that_is_taken_is_refused_and_nothing_changes(desk: Desk, inside: Desk) -> None:
    created = inside.json("collection", "create", "handbook", "--field", "year=integer")
    again = desk.run("collection", "create", "handbook", "--field", "other=string", code=2)
    assert again.stderr == "refdesk-admin: The collection 'handbook' already exists.\n"
    assert inside.json("collection", "show", "handbook") == created


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["Bad Name"], refusal(valid_name, "Bad Name")),
        (["a__b"], refusal(valid_name, "a__b")),
        (["x", "--field", "year=int"], f"'year=int' {NO_FIELD}"),
        (["x", "--field", "year"], f"'year' {NO_FIELD}"),
        (["x", "--field", "year="], f"'year=' {NO_FIELD}"),
        (["x", "--field", "Year=integer"], NO_NAME.format("Year") + TAKES.format("year")),
        (["x", "--field", "1year=integer"], NO_NAME.format("1year")),
        (["x", "--field", "a.b=integer"], NO_NAME.format("a.b") + TAKES.format("a_b")),
        (["x", "--field", f"{'y' * 49}=integer"], NO_NAME.format("y" * 49)),
        (["x", "--visibility", "secret"], "'secret' is not one of 'tenant', 'restricted'"),
        (["x", *(f"--field=f{n}=string" for n in range(33))], "a collection has at most 32 fields"),
    ],
)
def test_what_can_t_be_a_collection_is_refused_and_leaves_nothing(
    inside: Desk, arguments: list[str], reason: str
) -> None:
    run = inside.run("collection", "create", *arguments, code=2)
    assert reason in run.stderr
    assert run.stdout == ""
    assert not inside.data.exists()


def test_a_collection_that_another_command_makes_meanwhile_is_not_called_created(
    inside: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its visibility and policies would be those of the other command."""

    async def meanwhile(settings: Settings, name: str) -> EmbedderIdentity:
        async with open_embedder(settings.embedder_named(name), os.environ) as embedder:
            await ensure_collection(settings.home, "default", "handbook", embedder.identity)
            return embedder.identity

    monkeypatch.setattr(collection_changes, "identity_of", meanwhile)
    command = ["collection", "create", "handbook", "--keep-days", "30", "--data", str(inside.data)]
    with pytest.raises(ConfigurationError, match="'handbook' already exists"):
        CliRunner().invoke(commands, command, catch_exceptions=False)
    (made,) = inside.json("collection", "list")["collections"]
    assert "keep_days" not in made


def test_a_collection_may_have_32_fields(inside: Desk) -> None:
    created = inside.json("collection", "create", "wide", *(f"--field=f{n}=string" for n in range(32)))
    assert len(created["fields"]) == 32


def test_front_matter_fills_the_fields_and_what_is_wrong_is_said(
    desk: Desk, inside: Desk, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "right.md").write_text(
        "---\nyear: 2024\nweight: 2.5\nfinal: yes\nreviewed: 2024-05-01\nstatus: >-\n  final\n"
        "tags:\n  - leave\n  - rules\nother: thing\n---\n# Right\n\nthirty days\n"
    )
    (folder / "wrong.md").write_text(
        "---\nyear: last\nfinal: perhaps\nstatus: draft\n---\n# Wrong\n\nforty days\n"
    )
    (folder / "broken.md").write_text("---\ntitle: 'Leave\ntags: [leave]\n---\nsixty days\n")
    (folder / "without.txt").write_text("fifty days\n")
    inside.run("collection", "create", "handbook", *OPTIONS)
    report = desk.json("ingest", folder, "--collection", "handbook")
    assert report["counts"]["added"] == 4
    assert {entry["path"].removeprefix(f"{folder}/"): entry["reason"] for entry in report["files"]} == {
        "right.md": "",
        "wrong.md": "year is not an integer; final is not a boolean",
        "broken.md": "its front matter is not valid YAML (line 4: found unexpected end of stream)",
        "without.txt": "",
    }
    assert stored_fields(desk, "handbook") == {
        "right.md": {
            "year": 2024,
            "weight": 2.5,
            "final": True,
            "reviewed": datetime(2024, 5, 1, tzinfo=UTC),
            "status": "final",
            "tags": ("leave", "rules"),
        },
        "wrong.md": {"status": "draft"},
        "broken.md": {"tags": ("leave",)},
        "without.txt": {},
    }
    texts = [hit["text"] for hit in inside.hits("forty days")]
    assert any("forty days" in text for text in texts)
    of_leave = inside.hits("days", "--filter", '{"tags": "leave", "status": "final"}')
    assert [hit["metadata"]["path"] for hit in of_leave] == ["right.md"]
    metadata = {source["metadata"]["path"]: source["metadata"] for source in inside.sources()}
    assert metadata["wrong.md"] == {"year": "last", "final": "perhaps", "status": "draft", "path": "wrong.md"}
    assert metadata["right.md"]["other"] == "thing"


def test_a_changed_file_has_the_fields_of_its_new_version(desk: Desk, inside: Desk, tmp_path: Path) -> None:
    note = tmp_path / "a.md"
    note.write_text("---\nyear: 2023\nstatus: draft\n---\nthirty days\n")
    inside.run("collection", "create", "handbook", *OPTIONS)
    inside.run("ingest", note, "--collection", "handbook")
    assert stored_fields(desk, "handbook") == {"a.md": {"year": 2023, "status": "draft"}}
    note.write_text("---\nyear: 2024\n---\nthirty days\n")
    desk.run("ingest", note, "--collection", "handbook")
    assert stored_fields(desk, "handbook") == {"a.md": {"year": 2024}}


def test_a_field_can_be_declared_later_and_taken_back(inside: Desk, tmp_path: Path) -> None:
    for name, year in [("a", "2024"), ("b", "last year"), ("c", "")]:
        (tmp_path / f"{name}.md").write_text(f"---\nyear: {year}\n---\n# {name}\n\npendulum\n")
    inside.run("ingest", *(tmp_path / f"{name}.md" for name in "abc"))
    lines = inside.run("collection", "set", "documents", "--field", "year=integer").stdout.splitlines()
    assert lines == [
        "Declared the field year of the collection documents: 1 of its documents have a value.",
        "b.md: year is not an integer",
    ]

    def titles(year: object) -> list[str]:
        hits = inside.hits("pendulum", "--filter", json.dumps({"year": year}))
        return sorted(hit["title"] for hit in hits)

    assert titles({"$gte": 2000}) == ["a"]
    refused = inside.misuse("collection", "set", "documents", "--field", "year=string")
    assert "declares year already, as integer. To change its type, add --no-field year." in refused
    changed = inside.json("collection", "set", "documents", "--no-field", "year", "--field", "year=string")
    assert (changed["fields"], changed["filled"], changed["complaints"]) == (
        {"year": "string"},
        {"year": 2},
        [],
    )
    assert titles({"$contains": "YEAR"}) == ["b"]
    taken_back = inside.run("collection", "set", "documents", "--no-field", "year").stdout
    assert taken_back == "The collection documents no longer declares the field year.\n"
    refused = inside.misuse("collection", "set", "documents", "--no-field", "year")
    assert "declares no field 'year'; it declares: none." in refused
    (act, *_) = inside.json("audit", "show")["acts"][-1:]
    assert act["act"] == "collection set"


def test_another_chunking_applies_from_the_next_ingest_on(inside: Desk, tmp_path: Path) -> None:
    file = tmp_path / "docs" / "a.txt"
    file.parent.mkdir()
    file.write_text("One two three four. " * 60)
    inside.run(
        "collection", "create", "notes", "--chunking", "*.log:row", "--chunking", "sentence,max=64,overlap=8"
    )
    assert inside.json("collection", "show", "notes")["chunking"] == "*.log:row; sentence,max=64,overlap=8"
    inside.run("ingest", str(file.parent), "--collection", "notes")
    before = inside.json("status")["collections"][0]["chunks"]
    message = inside.run("collection", "set", "notes", "--chunking", "default").stdout
    assert message == "New chunking of the collection notes, from the next ingest on: default.\n"
    assert inside.json("ingest", str(file.parent), "--collection", "notes")["counts"]["replaced"] == 1
    assert inside.json("status")["collections"][0]["chunks"] < before
    assert inside.json("ingest", str(file.parent), "--collection", "notes")["counts"]["unchanged"] == 1
    for wrong in ("words", "sentence,max=9", ":page", "page,max=64,overlap=40", "tokens,size=3"):
        assert "--chunking" in inside.misuse("collection", "set", "notes", "--chunking", wrong)


def test_a_rebuilt_collection_keeps_its_ids_and_rights_and_can_go_back(
    unconnected: Desk, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("open", "hidden"):
        (docs / f"{name}.md").write_text(f"# {name}\n\n" + f"The pendulum of {name} swings. " * 30)
    unconnected.run("ingest", str(docs))
    unconnected.run(
        "access", "set", str(docs / "hidden.md"), "--visibility", "restricted", "--allow", "user:ann"
    )

    def ids(*user: str) -> set[str]:
        results = unconnected.hits("pendulum", "--limit", "20", *user)
        return {hit["id"].partition("/")[0] for hit in results}

    every, theirs = ids("--user", "ann"), ids("--user", "bob")
    assert (len(every), len(theirs)) == (2, 1)
    rebuild = ["collection", "rebuild", "documents"]
    assert "no earlier tables to go back to" in unconnected.misuse(*rebuild, "--undo")
    rebuilt = unconnected.json(*rebuild, "--chunking", "sentence,max=64")
    assert (rebuilt["sources"], rebuilt["recut"], rebuilt["kept"]) == (2, 2, [])
    assert unconnected.json("ingest", str(docs))["counts"]["unchanged"] == 2
    assert (ids("--user", "ann"), ids("--user", "bob")) == (every, theirs)
    unconnected.run("backup", tmp_path / "desk.tar")
    unconnected.run("restore", tmp_path / "desk.tar", "--yes")  # the tables that are searched, and no others
    assert (ids("--user", "ann"), ids("--user", "bob")) == (every, theirs)
    assert unconnected.json("collection", "show", "documents")["chunking"] == "sentence,max=64"
    unconnected.run("doctor")
    unconnected.run(*rebuild, "--chunking", "default")
    unconnected.run(*rebuild, "--undo")
    line = unconnected.run(*rebuild, "--undo").stdout
    assert line.startswith(WENT_BACK.format(2))
    assert unconnected.json("collection", "show", "documents")["chunking"] == "default"
    unconnected.run("purge")
    assert len(list((unconnected.data / "tables").glob("*documents*"))) == 2
    assert (ids("--user", "ann"), ids("--user", "bob")) == (every, theirs)
    assert "takes neither" in unconnected.misuse(*rebuild, "--undo", "--embedder", "x")


REBUILD = ("collection", "rebuild", "documents")
QUESTIONS = """
[[questions]]
text = "mending the ninth gadget"
expect = ["9.md"]

[[questions]]
text = "What does widget 3 weigh?"
expect = ["3.md"]
"""


@pytest.fixture(scope="module")
def first_token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model as a graph without pooling, whose publisher says that the first token counts."""
    folder = tmp_path_factory.mktemp("models") / "first"
    (folder / "1_Pooling").mkdir(parents=True)
    model = onnx.load(BUILTIN_MODEL / "model.onnx")
    tokens = next(node.input[0] for node in model.graph.node if node.op_type == "ReduceMean")
    del model.graph.node[-2:], model.graph.output[:]
    model.graph.node.append(helper.make_node("Identity", [tokens], ["last_hidden_state"]))
    shape: list[str | int | None] = ["texts", "tokens", 384]
    model.graph.output.append(helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape))
    onnx.save(model, folder / "model.onnx")
    shutil.copy(BUILTIN_MODEL / "tokenizer.json", folder)
    (folder / "config.json").write_text('{"max_position_embeddings": 512}')
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return folder


@pytest.fixture
def house(unconnected: Desk, first_token: Path, tmp_path: Path) -> Desk:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(1, 10):
        text = f"It weighs {number * 3} grams. To repair it, replace the spring S{number}."
        (docs / f"{number}.md").write_text(f"# Widget {number}\n\n{text}\n")
    unconnected.run("ingest", docs)
    unconnected.run("model", "add", first_token)
    return unconnected


def collection(desk: Desk) -> dict[str, Any]:
    description: dict[str, Any] = desk.json("collection", "show", "documents")
    return description


def test_another_model_is_tried_beside_judged_used_and_taken_back(house: Desk, tmp_path: Path) -> None:
    questions = tmp_path / "questions.toml"
    questions.write_text(QUESTIONS)
    before = collection(house)
    tried = house.run(*REBUILD, "--model", "first", "--questions", questions, "--if-better", code=1)
    assert "Run 2 (default, hybrid) against Run 1 (default, hybrid): nDCG@10" in tried.stdout
    assert "Searches still use the present tables of documents." in tried.stdout
    unchanged = collection(house)
    assert unchanged.pop("coming")["embedder"].startswith("first-")
    assert unchanged == before
    rebuilt = house.json(*REBUILD, "--model", "first", "--questions", questions)
    assert (rebuilt["switched"], rebuilt["copied"], len(rebuilt["runs"])) == (True, 9, 2)
    assert rebuilt["comparison"]["one"] == 3
    after = collection(house)
    assert (after["embedder_name"], after["embedder"]["provider"]) == ("first", "onnx")
    assert 0.3 < after["calibration"]["unrelated"] < after["calibration"]["related"] < 0.95
    assert "in use: collection documents" in house.misuse("model", "remove", "first")
    assert house.json("ingest", tmp_path / "docs")["counts"]["unchanged"] == 9
    assert "first" not in house.run("config", "check").stdout
    house.run("doctor")
    line = house.run(*REBUILD, "--undo").stdout
    assert line.startswith(WENT_BACK.format(9))
    back = collection(house)
    assert back.pop("former")["embedder"].startswith("first-")
    assert back == before
    house.run(*REBUILD, "--undo")
    assert collection(house)["calibration"] == after["calibration"]


def test_a_server_that_runs_meanwhile_uses_the_model_and_goes_by_words_without_it(
    house: Desk, tmp_path: Path
) -> None:
    async def answer_of(desk: SearchDesk) -> Answer:
        return await desk.search(Principal("default"), "mending the ninth gadget")

    async def work() -> tuple[Answer, Answer, Answer]:
        settings = Settings(data=house.data)  # which has no table of the model
        async with SearchDesk.open(settings) as desk:
            before = await answer_of(desk)
            await to_thread.run_sync(partial(house.run, *REBUILD, "--model", "first"))
            after = await answer_of(desk)
        installed.rename(tmp_path / "away")
        async with SearchDesk.open(settings) as desk:
            return before, after, await answer_of(desk)

    installed = house.data / "models" / "first"
    builtin, switched, without = anyio.run(work)
    assert all(hit.similarity is not None for hit in (*builtin.hits, *switched.hits))
    assert [hit.similarity for hit in builtin.hits] != [hit.similarity for hit in switched.hits]
    assert not any(hit.similarity for hit in without.hits)
    assert "because their embedding model is not set up: documents." in without.notes[0]
    status = house.run("status").stdout
    assert "searched by words only: the settings have no table [embedders.first], and no model" in status
    assert _unknown("first") in house.misuse(*REBUILD)


def _unknown(name: str) -> str:
    """The refusal of an embedder, as far as its list of those that there are."""
    return unknown_embedder(name, ()).rpartition("Embedders:")[0]


def test_a_mistake_is_named(inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nA text.\n")
    inside.run("ingest", tmp_path / "a.md")
    for options, saying in (
        (("--model", "nobody"), _unknown("nobody")),
        (("--model", "../../first"), _unknown("../../first")),
        (("--if-better",), "--if-better needs --questions FILE"),
        (("--undo", "--questions", "/dev/null"), "--undo takes neither --model nor --chunking nor"),
    ):
        assert saying in inside.misuse(*REBUILD, *options)
    assert "coming" not in json.dumps(collection(inside))

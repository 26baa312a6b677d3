"""Documents as protocol resources: the list in pages, templates, and what a host completes for a person."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import Admin, Message, Start, Wire

pytestmark = pytest.mark.slow


ALPHA, BETA = 57, 3


@pytest.fixture(scope="module")
def shelf(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with sixty small documents in two collections."""
    folder = tmp_path_factory.mktemp("shelf")
    for collection, count in (("alpha", ALPHA), ("beta", BETA)):
        texts = folder / collection
        texts.mkdir()
        for number in range(count):
            (texts / f"note-{number:02}.txt").write_text(
                f"{collection.title()} note {number}\n\nIt says so.\n"
            )
        admin("ingest", texts, "--collection", collection, "--data", folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def crowded(lasting_start: Start, shelf: Path) -> Wire:
    return lasting_start(shelf).begun()


def pages(wire: Wire) -> list[list[dict[str, Any]]]:
    """The resources on each page of the list."""
    resources: list[list[dict[str, Any]]] = []
    cursor: dict[str, str] = {}
    while True:
        result = wire.result("resources/list", cursor)
        resources.append(result["resources"])
        if "nextCursor" not in result:
            return resources
        cursor = {"cursor": result["nextCursor"]}


def test_the_list_has_every_source_once_in_pages_of_fifty(crowded: Wire) -> None:
    first, second = pages(crowded)
    assert (len(first), len(second)) == (50, ALPHA + BETA - 50)
    uris = [resource["uri"] for resource in first + second]
    assert len(set(uris)) == ALPHA + BETA
    assert uris == sorted(uris)
    names = {
        (uri.split("/")[2], resource["name"]) for uri, resource in zip(uris, first + second, strict=True)
    }
    expected = {("alpha", ALPHA), ("beta", BETA)}
    assert names == {(folder, f"note-{at:02}.txt") for folder, count in expected for at in range(count)}


def test_a_page_can_be_asked_for_again(crowded: Wire) -> None:
    cursor = {"cursor": crowded.result("resources/list")["nextCursor"]}
    assert crowded.result("resources/list", cursor) == crowded.result("resources/list", cursor)


def test_what_is_listed_can_be_read(crowded: Wire) -> None:
    last = pages(crowded)[-1][-1]
    (contents,) = crowded.result("resources/read", {"uri": last["uri"]})["contents"]
    number = int(last["name"].removeprefix("note-").removesuffix(".txt"))
    assert contents == {
        "uri": last["uri"],
        "mimeType": "text/plain",
        "text": f"Beta note {number}\n\nIt says so.\n",
    }
    assert last["mimeType"] == "text/plain"


def test_the_templates_are_those_of_a_source_and_of_a_chunk(crowded: Wire) -> None:
    templates = crowded.result("resources/templates/list")["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == [
        "refdesk://{collection}/{source_id}",
        "refdesk://{collection}/{source_id}/{seq}",
    ]
    assert all(template["description"] for template in templates)


@pytest.mark.parametrize(
    ("typed", "names"),
    [("", ["alpha", "beta"]), ("b", ["beta"]), ("beta", ["beta"]), ("B", ["beta"]), ("%", [])],
)
def test_names_of_collections_are_completed(crowded: Wire, typed: str, names: list[str]) -> None:
    for template in ("refdesk://{collection}/{source_id}", "refdesk://{collection}/{source_id}/{seq}"):
        params = {
            "ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": "collection", "value": typed},
        }
        completion = crowded.result("completion/complete", params)["completion"]
        assert completion == {"values": names, "total": len(names), "hasMore": False}


def test_a_search_looks_into_the_collections_that_it_names(crowded: Wire) -> None:
    for names in (["alpha"], ["beta"], ["alpha", "beta"], None):
        arguments = {"query": "note", "collections": names, "limit": 50, "max_chars": 100_000}
        hits = crowded.tool("search", arguments)["structuredContent"]["results"]
        assert {hit["collection"] for hit in hits} == set(names or ["alpha", "beta"])
        assert len({hit["id"] for hit in hits}) == len(hits)


def test_an_unreadable_collection_is_told_which_are_readable(crowded: Wire) -> None:
    words = crowded.tool_error("search", {"query": "note", "collections": ["gamma"]})
    assert "Readable collections: alpha, beta." in words
    reply = crowded.tool("search", {"query": "note", "collections": ["alpha", "gamma"]})["structuredContent"]
    assert reply["results"]
    assert "gamma" in reply["notes"][0]


SOURCE = "refdesk://{collection}/{source_id}"
CHUNK = SOURCE + "/{seq}"
STATUSES = 120


@pytest.fixture(scope="module", params=["legacy", "modern"])
def anybody(request: pytest.FixtureRequest, lasting_start: Start, office: Path) -> Wire:
    return lasting_start(office, era=request.param).begun()


@pytest.fixture(scope="module")
def ann(lasting_start: Start, office: Path) -> Wire:
    return lasting_start(office, flags=["--user", "ann"], era="modern").begun()


def completed(wire: Wire, argument: str, typed: str, template: str | None = SOURCE, **chosen: str) -> Message:
    """A completion for a template, or for the prompt."""
    ref: dict[str, Any] = {"type": "ref/prompt", "name": "answer"}
    if template is not None:
        ref = {"type": "ref/resource", "uri": template}
    params: Message = {"ref": ref, "argument": {"name": argument, "value": typed}}
    if chosen:
        params["context"] = {"arguments": chosen}
    completion: Message = wire.result("completion/complete", params)["completion"]
    return completion


def listed(wire: Wire) -> dict[str, Message]:
    resources: list[Message] = []
    cursor: dict[str, str] = {}
    while cursor or not resources:
        page = wire.result("resources/list", cursor)
        resources += page["resources"]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    return {resource["name"]: resource for resource in resources}


def id_of(resource: Message) -> str:
    return str(resource["uri"].rpartition("/")[2])


def test_a_listed_document_has_a_title_a_description_a_date_and_its_size(anybody: Wire) -> None:
    resources = listed(anybody)
    leave = resources["leave.md"]
    assert (leave["title"], leave["description"], leave["mimeType"]) == ("Leave", "About leave", "text/plain")
    assert datetime.fromisoformat(leave["annotations"]["lastModified"]).date().isoformat() == "2024-05-01"
    for resource in (leave, resources["travel.md"]):
        (contents,) = anybody.result("resources/read", {"uri": resource["uri"]})["contents"]
        assert resource["size"] == len(contents["text"].encode())
    undated = resources["m007.md"]
    assert undated["description"] == "In the collection many."
    assert datetime.fromisoformat(undated["annotations"]["lastModified"]).year >= 2026


def test_sources_are_completed_by_title_path_and_id(anybody: Wire) -> None:
    resources = listed(anybody)
    leave, travel = id_of(resources["leave.md"]), id_of(resources["travel.md"])
    for template in (SOURCE, CHUNK):
        assert completed(anybody, "source_id", "lea", template)["values"] == [leave]
    assert completed(anybody, "source_id", "ÜBER") == {"values": [travel], "total": 1, "hasMore": False}
    assert travel in completed(anybody, "source_id", travel[:12])["values"]
    assert completed(anybody, "source_id", "leave.md", collection="many")["values"] == []
    assert completed(anybody, "source_id", "leave.md", collection="handbook")["values"] == [leave]
    assert completed(anybody, "source_id", "leave.md", collection="none")["values"] == []
    assert completed(anybody, "source_id", "%")["values"] == []
    assert completed(anybody, "source_id", "x" * 1_000)["values"] == []


def test_passages_of_the_chosen_source_are_completed(anybody: Wire) -> None:
    leave = id_of(listed(anybody)["leave.md"])
    numbers = completed(anybody, "seq", "", CHUNK, collection="handbook", source_id=leave)["values"]
    assert len(numbers) > 1
    assert numbers == [str(number) for number in range(len(numbers))]
    assert completed(anybody, "seq", "1", CHUNK, source_id=leave)["values"][0] == "1"
    assert completed(anybody, "seq", "", CHUNK, collection="many", source_id=leave)["values"] == []
    assert completed(anybody, "seq", "", CHUNK, source_id=leave[:-1])["values"] == []
    assert completed(anybody, "seq", "", CHUNK)["values"] == []


def test_fields_and_then_their_values_are_completed_for_the_prompt(anybody: Wire) -> None:
    assert completed(anybody, "collection", "h", None)["values"] == ["handbook"]
    assert completed(anybody, "filter", "", None)["values"] == ["status=", "year="]
    assert completed(anybody, "filter", "", None, collection="many")["values"] == ["status="]
    assert completed(anybody, "filter", "status=F", None)["values"] == ["status=final"]
    assert completed(anybody, "filter", "year=20", None)["values"] == ["year=2024"]
    assert completed(anybody, "filter", "nope=", None)["values"] == []
    many = completed(anybody, "filter", "status=s", None, collection="many")
    assert (len(many["values"]), many["total"], many["hasMore"]) == (100, STATUSES, True)
    few = completed(anybody, "filter", "status=s00", None)
    assert (len(few["values"]), few["total"], few["hasMore"]) == (10, 10, False)


def test_nothing_that_somebody_cant_read_is_completed_counted_or_listed(anybody: Wire, ann: Wire) -> None:
    resources = listed(ann)
    pay, plan = id_of(resources["pay.md"]), id_of(resources["plan.md"])
    assert not {"pay.md", "plan.md"} & listed(anybody).keys()
    cases: list[tuple[tuple[Any, ...], dict[str, str], list[str]]] = [
        (("collection", "s"), {}, ["secret"]),
        (("collection", "s", None), {}, ["secret"]),
        (("source_id", "pay.md"), {}, [pay]),  # no id can begin so
        (("source_id", pay), {}, [pay]),
        (("source_id", "plan.md"), {"collection": "secret"}, [plan]),
        (("seq", "0", CHUNK), {"source_id": plan}, ["0"]),
        (("filter", "status=d", None), {}, ["status=draft"]),
    ]
    for arguments, chosen, values in cases:
        assert completed(ann, *arguments, **chosen) == {
            "values": values,
            "total": len(values),
            "hasMore": False,
        }
        assert completed(anybody, *arguments, **chosen) == {"values": [], "total": 0, "hasMore": False}

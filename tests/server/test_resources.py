"""Documents as protocol resources: the list in pages, templates, completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

ALPHA, BETA = 57, 3


@pytest.fixture(scope="module")
def shelf(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with sixty small documents in two collections."""
    folder = tmp_path_factory.mktemp("shelf")
    for collection, count in (("alpha", ALPHA), ("beta", BETA)):
        texts = folder / collection
        texts.mkdir()
        for number in range(count):
            (texts / f"note-{number:02}.txt").write_text(
                f"{collection.title()} note {number}\n\nIt says so.\n"
            )
        run = scripts.admin("ingest", texts, "--collection", collection, "--data", folder / "data")
        assert run.returncode == 0, run.stderr
    return folder / "data"


@pytest.fixture(scope="module", params=["legacy", "modern"])
def crowded(request: pytest.FixtureRequest, lasting_start: Start, shelf: Path) -> Wire:
    opened = lasting_start(shelf, era=request.param)
    opened.begin()
    return opened


def pages(wire: Wire) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    cursor: dict[str, str] = {}
    while True:
        result = wire.result("resources/list", cursor)
        found.append(result["resources"])
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}


def test_the_list_has_every_source_once_in_pages_of_fifty(crowded: Wire) -> None:
    first, second = pages(crowded)
    assert (len(first), len(second)) == (50, ALPHA + BETA - 50)
    uris = [resource["uri"] for resource in first + second]
    assert len(set(uris)) == ALPHA + BETA
    assert uris == sorted(uris)
    names = {(uri.split("/")[2], one["name"]) for uri, one in zip(uris, first + second, strict=True)}
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
    ("typed", "names"), [("", ["alpha", "beta"]), ("b", ["beta"]), ("beta", ["beta"]), ("B", []), ("%", [])]
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
        found = crowded.tool("search", arguments)["structuredContent"]["results"]
        assert {hit["collection"] for hit in found} == set(names or ["alpha", "beta"])
        assert len({hit["id"] for hit in found}) == len(found)


def test_an_unreadable_collection_is_told_which_are_readable(crowded: Wire) -> None:
    words = crowded.tool_error("search", {"query": "note", "collections": ["gamma"]})
    assert "Readable collections: alpha, beta." in words
    told = crowded.tool("search", {"query": "note", "collections": ["alpha", "gamma"]})["structuredContent"]
    assert told["results"]
    assert "gamma" in told["notes"][0]

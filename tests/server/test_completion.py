"""What a host completes for a person, and what a list of resources says: only what that person may read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import Message, Start, Wire

pytestmark = pytest.mark.slow

SOURCE = "refdesk://{collection}/{source_id}"
CHUNK = SOURCE + "/{seq}"
STATUSES = 120


@pytest.fixture(scope="module", params=["legacy", "modern"])
def anybody(request: pytest.FixtureRequest, lasting_start: Start, office: Path) -> Wire:
    opened = lasting_start(office, era=request.param)
    opened.begin()
    return opened


@pytest.fixture(scope="module")
def ann(lasting_start: Start, office: Path) -> Wire:
    opened = lasting_start(office, flags=["--user", "ann"], era="modern")
    opened.begin()
    return opened


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
    return {one["name"]: one for one in resources}


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
    asked: list[tuple[tuple[Any, ...], dict[str, str], list[str]]] = [
        (("collection", "s"), {}, ["secret"]),
        (("collection", "s", None), {}, ["secret"]),
        (("source_id", "pay.md"), {}, [pay]),  # no id can begin so
        (("source_id", pay), {}, [pay]),
        (("source_id", "plan.md"), {"collection": "secret"}, [plan]),
        (("seq", "0", CHUNK), {"source_id": plan}, ["0"]),
        (("filter", "status=d", None), {}, ["status=draft"]),
    ]
    for arguments, chosen, values in asked:
        assert completed(ann, *arguments, **chosen) == {
            "values": values,
            "total": len(values),
            "hasMore": False,
        }
        assert completed(anybody, *arguments, **chosen) == {"values": [], "total": 0, "hasMore": False}

"""The page beside the text of `get_source`: for whom, of what, how large, and in words why there is none."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from rag.originals import GONE, OTHER
from rag.search.page_picture import NO_PAGES
from server.handlers import NO_PICTURE_OF_LIST, NO_PICTURES
from tests.pdfs import noise, pdf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n"
MOST_BYTES = 150_000
MOST_REPLY = 256 * 1024


def long_page(subject: str) -> str:
    return "\n".join(f"Line {at} of what is known about {subject} and its keepers" for at in range(45))


class Room:
    """A data folder with a PDF of three pages for everybody, one for ann, a note, and a PDF hard to pack."""

    def __init__(self, admin: Admin, folder: Path) -> None:
        self.data, self.papers = folder / "data", folder / "papers"
        self.papers.mkdir()
        clocks = pdf(*(long_page(subject) for subject in ("sundials", "pendulums", "astrolabes")))
        dots = noise(700, 500, hashlib.shake_128(b"dots").digest(350_000))
        self.files = {
            "open.pdf": clocks,
            "secret.pdf": pdf("The secret clock of ann"),
            "note.md": b"# Note\n\nA clock without pages.\n",
            "dots.pdf": pdf(*(long_page("turrets") for _ in range(40)), drawing=dots),
        }
        for name, content in self.files.items():
            (self.papers / name).write_bytes(content)
            allow = ("--allow", "user:ann") if name == "secret.pdf" else ()
            self.ingest(admin, name, *allow)
        self.ann, self.bob = (
            str(admin("key", "create", "--user", user, "--data", self.data)["key"]) for user in ("ann", "bob")
        )

    def ingest(self, admin: Admin, name: str, *options: str) -> None:
        collection = name.partition(".")[0]
        admin("ingest", self.papers / name, "--collection", collection, "--data", self.data, *options)


@pytest.fixture(scope="module")
def room(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(admin, tmp_path_factory.mktemp("room"))


@pytest.fixture(scope="module")
def host(lasting_start: Start, room: Room) -> Callable[..., Wire]:
    def opened(user: str = "ann", pictures: str = "auto") -> Wire:
        env = {"REFDESK_SERVER_PICTURES": pictures}
        return lasting_start(room.data, era="modern", env=env, flags=("--user", user)).begun()

    return opened


@pytest.fixture(scope="module")
def ann(host: Callable[..., Wire]) -> Wire:
    return host()


def hit_of(wire: Wire, query: str, **arguments: object) -> str:
    reply = wire.tool("search", {"query": query, "limit": 1, **arguments})
    return str(reply["structuredContent"]["results"][0]["id"])


def opened(wire: Wire, **arguments: object) -> Message:
    return wire.tool("get_source", arguments)


def png_of(result: Message) -> bytes:
    """The image of a result that has one behind its text."""
    text, image = result["content"]
    assert (text["type"], image["type"], image["mimeType"]) == ("text", "image", "image/png")
    png = base64.b64decode(image["data"], validate=True)
    assert png.startswith(PNG)
    assert len(png) <= MOST_BYTES
    return png


def last_note(result: Message) -> str:
    """The last note of a reply, which stands in the text as well."""
    reply = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == reply
    return str(reply["notes"][-1])


def why_not(result: Message) -> str:
    """Why a reply with a text has no image."""
    assert len(result["content"]) == 1
    assert not result.get("isError")
    return last_note(result).partition(": ")[2]


def test_the_page_stands_behind_the_text_and_a_note_says_which_it_is(ann: Wire) -> None:
    id_ = hit_of(ann, "pendulums", collections=["open"])
    plain = opened(ann, id=id_)
    pictured = opened(ann, id=id_, picture=True)
    assert png_of(pictured)
    assert last_note(pictured) == "The image is page 2 of 3."
    expected = plain["structuredContent"]
    expected["notes"].append("The image is page 2 of 3.")
    assert pictured["structuredContent"] == expected


def test_the_page_is_that_on_which_the_passage_or_the_part_begins(ann: Wire) -> None:
    id_ = hit_of(ann, "astrolabes", collections=["open"])
    source = id_.partition("/")[0]
    length = opened(ann, id=source)["structuredContent"]["length"]
    arguments: list[tuple[Message, int]] = [
        ({"id": id_}, 3),
        ({"id": id_, "around": 50}, 3),
        ({"id": source}, 1),
        ({"id": source, "start": length - 200}, 3),
        ({"id": source, "lines": "50-60"}, 2),
        ({"id": "open/open.pdf"}, 1),
    ]
    images: dict[int, set[bytes]] = {}
    for place, page in arguments:
        result = opened(ann, **place, picture=True)
        images.setdefault(page, set()).add(png_of(result))
        assert last_note(result) == f"The image is page {page} of 3.", place
    assert [len(images[page]) for page in (1, 2, 3)] == [1, 1, 1]
    assert len({image for (image,) in images.values()}) == 3


@pytest.mark.parametrize("unasked", [{}, {"picture": False}, {"picture": None}, {"picture": "false"}])
def test_a_reply_without_a_picture_is_the_same_wherever_pictures_are_on_or_off(
    host: Callable[..., Wire], ann: Wire, unasked: Message
) -> None:
    id_ = hit_of(ann, "pendulums", collections=["open"])
    off = host(pictures="never")
    assert json.dumps(opened(ann, id=id_, **unasked)) == json.dumps(opened(off, id=id_))


def test_where_pictures_are_off_the_argument_is_not_offered_and_a_note_says_so(
    host: Callable[..., Wire], ann: Wire
) -> None:
    id_ = hit_of(ann, "pendulums", collections=["open"])
    off = host(pictures="never")
    for wire, offered in ((ann, True), (off, False)):
        opener = wire.result("tools/list")["tools"][1]
        assert ("picture" in opener["inputSchema"]["properties"]) is offered
    refused = opened(off, id=id_, picture=True)
    assert last_note(refused) == NO_PICTURES
    assert "picture" not in off.tool_error("get_source", {"id": id_, "end": 5})
    assert "picture" in ann.tool_error("get_source", {"id": id_, "end": 5})
    assert refused["structuredContent"]["text"] == opened(ann, id=id_)["structuredContent"]["text"]


def test_what_has_no_picture_is_read_all_the_same_and_a_note_says_why(ann: Wire, room: Room) -> None:
    assert why_not(opened(ann, id="note/note.md", picture=True)) == NO_PAGES
    for listing in ({}, {"id": "open"}, {"sort": "title"}):
        assert last_note(opened(ann, **listing, picture=True)) == NO_PICTURE_OF_LIST
    paper = room.papers / "open.pdf"
    moved = paper.rename(room.papers / "kept")
    try:
        assert why_not(opened(ann, id="open/open.pdf", picture=True)) == GONE
        paper.symlink_to(moved)
        assert why_not(opened(ann, id="open/open.pdf", picture=True)) == GONE
        paper.unlink()
        paper.write_bytes(room.files["secret.pdf"])
        swapped = opened(ann, id="open/open.pdf", picture=True)
        assert why_not(swapped) == OTHER
        assert str(room.papers) not in json.dumps(swapped)
    finally:
        paper.unlink(missing_ok=True)
        moved.rename(paper)
    assert png_of(opened(ann, id="open/open.pdf", picture=True))


def test_text_and_image_together_are_no_longer_than_clients_take(ann: Wire) -> None:
    arguments = {"id": "dots/dots.pdf", "max_chars": 100_000}
    alone = ann.request("tools/call", {"name": "get_source", "arguments": arguments})
    answer_with_picture = ann.request(
        "tools/call", {"name": "get_source", "arguments": arguments | {"picture": True}}
    )
    assert len(png_of(answer_with_picture["result"])) > 100_000
    assert MOST_REPLY * 0.8 < len(json.dumps(answer_with_picture)) <= MOST_REPLY
    texts = [answer["result"]["structuredContent"] for answer in (alone, answer_with_picture)]
    assert len(texts[1]["text"]) < len(texts[0]["text"])
    assert texts[0]["text"].startswith(texts[1]["text"])
    end = texts[1]["end"]
    assert texts[1]["next_start"] == end
    assert any(f"continue with start={end}" in note for note in texts[1]["notes"])


def test_who_may_not_read_a_document_learns_nothing_by_asking_for_its_picture(
    host: Callable[..., Wire], ann: Wire
) -> None:
    bob = host(user="bob")
    secret = hit_of(ann, "secret clock", collections=["secret"])
    assert png_of(opened(ann, id=secret, picture=True))
    assert png_of(opened(bob, id="open/open.pdf", picture=True))
    for name in (secret, secret.partition("/")[0], "secret/secret.pdf"):
        hidden = opened(bob, id=name, picture=True)
        assert hidden["isError"]
        assert hidden == opened(bob, id=name)
        assert hidden == opened(bob, id="aaaaaaaaaaaaaaaa/0", picture=True)


def test_over_http_there_are_pictures_only_where_the_operator_says_so(
    lasting_listen: Callable[..., Remote], room: Room
) -> None:
    plain, pictured = lasting_listen(room.data), lasting_listen(room.data, server_pictures="always")
    for remote, offered in ((plain, False), (pictured, True)):
        opener = remote.post(room.ann).json()["result"]["tools"][1]
        assert ("picture" in opener["inputSchema"]["properties"]) is offered
    assert last_note(plain.tool(room.ann, "get_source", id="open/open.pdf", picture=True)) == NO_PICTURES
    assert png_of(pictured.tool(room.ann, "get_source", id="open/open.pdf", picture=True))
    assert png_of(pictured.tool(room.ann, "get_source", id="secret/secret.pdf", picture=True))
    assert png_of(pictured.tool(room.bob, "get_source", id="open/open.pdf", picture=True))
    hidden = pictured.tool(room.bob, "get_source", id="secret/secret.pdf", picture=True)
    assert hidden == pictured.tool(room.bob, "get_source", id="secret/no.pdf", picture=True)
    assert hidden["isError"]


def test_a_revocation_takes_the_picture_away_at_once(
    admin: Admin, host: Callable[..., Wire], room: Room
) -> None:
    (room.papers / "leaving.pdf").write_bytes(pdf("The clock of whoever leaves"))
    room.ingest(admin, "leaving.pdf", "--allow", "user:bob")
    bob = host(user="bob")
    (entry,) = opened(bob, id="leaving")["structuredContent"]["entries"]
    assert png_of(opened(bob, id=entry["id"], picture=True))
    admin("access", "revoke", entry["id"], "--from", "user:bob", "--data", room.data)
    assert opened(bob, id=entry["id"], picture=True)["isError"]
    admin("access", "grant", entry["id"], "--to", "user:bob", "--data", room.data)
    assert png_of(opened(bob, id=entry["id"], picture=True))
    admin("remove", entry["id"], "--collection", "leaving", "--data", room.data)
    admin("purge", "--data", room.data)
    assert (room.papers / "leaving.pdf").exists()
    assert opened(bob, id=entry["id"], picture=True)["isError"]


def test_drawing_says_nothing_on_standard_error(start: Start, room: Room) -> None:
    wire = start(room.data, flags=("--user", "bob")).begun()
    for _ in range(8):
        assert png_of(opened(wire, id="open/open.pdf", picture=True))
    assert wire.leave() == 0
    assert wire.stderr() == ""

"""What a file contains goes along when an administrator names the file, by whatever name."""

from __future__ import annotations

from email.message import EmailMessage
from typing import TYPE_CHECKING

import pytest

from rag.admin.sources_command import matching_ids

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

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
    assert matching_ids(name, URIS) == ids


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
        assert f"{note} is no more widely visible than what contains it." in run.stderr
        assert inside.json("search", "pendulum", "--user", "bob")["results"] == []
    inside.run("access", "grant", wages, "--to", "user:bob")  # which takes it along
    assert len(inside.json("search", "pendulum", "--user", "bob")["results"]) == 2
    run = inside.run("access", "revoke", note, "--from", "user:bob")
    assert run.stderr == ""
    assert len(inside.json("search", "pendulum", "--user", "bob")["results"]) == 1
    inside.run("ingest", wages.parent)
    assert len(inside.json("search", "pendulum", "--user", "bob")["results"]) == 1


@pytest.mark.parametrize("by", ["id", "path"])
def test_a_mail_that_is_restricted_takes_its_attachments_along_at_once(
    inside: Desk, wages: Path, by: str
) -> None:
    found = {
        one["title"]: one["id"].partition("/")[0] for one in inside.json("search", "pendulum")["results"]
    }
    assert set(found) == {"Wages", "list"}
    name = found["Wages"] if by == "id" else wages
    inside.run("access", "set", name, "--visibility", "restricted", "--allow", "group:hr")
    assert inside.json("search", "pendulum", "--user", "bob")["results"] == []
    assert len(inside.json("search", "pendulum", "--group", "hr")["results"]) == 2

"""What happens to personal data at the door of a collection, from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

MAIL, IBAN = "ann.lee@acorn.org", "DE89 3704 0044 0532 0130 00"
TEXT = f"""---
author: {MAIL}
---
# Clocks of {MAIL}

The pendulum clock of {MAIL} needs oil.

## Payment

Pay to {IBAN} after the repair.
"""


@dataclass(frozen=True, slots=True)
class Door:
    """A data folder and a folder of documents, one of them with personal data."""

    desk: Desk
    folder: Path

    def ingest(self, *options: str) -> Any:  # noqa: ANN401 any JSON
        return self.desk.json("ingest", self.folder, *options)

    def policy(self, *policies: str) -> None:
        options = [part for one in policies for part in ("--personal-data", one)]
        self.desk.run("collection", "set", "documents", *options)

    def outcomes(self, printed: Any) -> dict[str, str]:  # noqa: ANN401 any JSON
        return {one["path"].rpartition("/")[2]: one["outcome"] for one in printed["files"]}

    def hits(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.desk.json("search", query)["results"]
        return found

    def stored(self) -> str:
        """All that the tables' files hold."""
        return "".join(
            file.read_bytes().decode("latin-1") for file in self.desk.data.rglob("*.lance") if file.is_file()
        )


@pytest.fixture
def door(inside: Desk, tmp_path: Path) -> Door:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.md").write_text(TEXT)
    (folder / "b.md").write_text("# Sundials\n\nThe sundial needs no oil.\n")
    return Door(inside, folder)


def test_redaction_reaches_text_title_metadata_and_index_also_of_unchanged_files(door: Door) -> None:
    door.ingest()
    door.policy("redact")
    printed = door.ingest()
    assert door.outcomes(printed) == {"a.md": "replaced", "b.md": "replaced"}
    assert printed["files"][0]["masked"] == {"email": 1, "iban": 1}
    assert any(note == "Masked in 1 document: 1 e-mail address, 1 IBAN." for note in printed["notes"])
    assert MAIL not in json.dumps(printed)
    hit = door.hits("pendulum")[0]
    assert hit["title"] == "Clocks of [e-mail address]"
    shown = json.dumps([hit, door.hits("payment repair"), door.desk.json("sources")])
    assert (MAIL in shown, IBAN in shown, "[IBAN]" in shown) == (False, False, True)
    assert door.desk.json("search", MAIL, "--mode", "sparse")["results"] == []
    door.desk.run("purge")
    assert MAIL not in door.stored()
    assert door.outcomes(door.ingest()) == {"a.md": "unchanged", "b.md": "unchanged"}


def test_skipping_keeps_a_document_out_and_removes_its_earlier_version(door: Door) -> None:
    door.ingest()
    door.policy("iban=skip", "email=redact")
    printed = door.ingest()
    assert door.outcomes(printed) == {"a.md": "removed", "b.md": "replaced"}
    assert "it contains 1 IBAN; the collection skips such documents" in "".join(printed["notes"])
    assert door.desk.paths() == ["b.md"]
    again = door.ingest()
    assert (again["counts"]["ignored"], again["counts"]["skipped"]) == (1, 0)
    (door.folder / "a.md").write_text(TEXT.replace(IBAN, "Ann"))
    assert door.outcomes(door.ingest())["a.md"] == "added"
    door.policy("allow")
    door.ingest()
    assert MAIL in door.hits("pendulum")[0]["text"]


def test_a_document_that_moved_and_got_personal_data_goes_out_with_its_earlier_version(door: Door) -> None:
    door.ingest()
    (door.folder / "a.md").rename(door.folder / "c.md")
    door.policy("skip")
    assert door.outcomes(door.ingest()) == {"c.md": "removed", "b.md": "replaced"}
    assert door.desk.paths() == ["b.md"]


def test_rights_are_those_that_the_document_asks_for_although_the_names_in_it_are_masked(
    door: Door, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[access]\nof_documents = true\n")
    (door.folder / "a.md").write_text(f"---\nvisibility: restricted\nallow: user:{MAIL}\n---\nA clock.\n")
    door.desk.run("collection", "create", "documents", "--personal-data", "redact", "--config", config)
    (one,) = [one for one in door.ingest("--config", str(config))["files"] if one["path"].endswith("a.md")]
    assert one["access"]["allow"] == [f"user:{MAIL}"]


def test_a_file_name_stays_and_the_report_says_so(door: Door) -> None:
    (door.folder / f"{MAIL}.md").write_text("A clock.\n")
    door.desk.run("collection", "create", "documents", "--personal-data", "redact")
    reasons = {one["path"].rpartition("/")[2]: one["reason"] for one in door.ingest()["files"]}
    assert "file names stay as they are" in reasons[f"{MAIL}.md"]


@pytest.mark.parametrize("wrong", ["mask", "instructions=skip"])
def test_a_policy_that_does_not_exist_is_refused(door: Door, wrong: str) -> None:
    run = door.desk.run("collection", "create", "documents", "--personal-data", wrong, code=2)
    assert "is not like redact or email=redact" in run.stderr

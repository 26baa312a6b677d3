"""Personal data is masked or kept out, and somebody else may decide whether a document is stored."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from rag.admin import collection_changes
from rag.admin.main import commands
from rag.store.write.change_collection import change_collection

if TYPE_CHECKING:
    from pathlib import Path

    from rag.config.settings import Settings
    from rag.corpus import Collection
    from tests.admin.conftest import Desk
    from tests.endpoint import Endpoint, Reply

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
        options = [part for policy in policies for part in ("--personal-data", policy)]
        self.desk.run("collection", "set", "documents", *options)

    def outcomes(self, printed: Any) -> dict[str, str]:  # noqa: ANN401 any JSON
        return {entry["path"].rpartition("/")[2]: entry["outcome"] for entry in printed["files"]}

    def hits(self, query: str) -> list[dict[str, Any]]:
        return self.desk.hits(query)

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
    stored = json.dumps([hit, door.hits("payment repair"), door.desk.json("sources")])
    assert (MAIL in stored, IBAN in stored, "[IBAN]" in stored) == (False, False, True)
    assert door.desk.hits(MAIL, "--mode", "sparse") == []
    door.desk.run("purge")
    assert MAIL not in door.stored()
    assert door.outcomes(door.ingest()) == {"a.md": "unchanged", "b.md": "unchanged"}


def test_a_masked_alias_is_no_word_of_its_document(door: Door) -> None:
    (door.folder / "a.md").write_text(
        f"---\naliases: [{MAIL}, horologe]\ntags: [{MAIL}]\n---\n# Clocks\n\nOil.\n"
    )

    def titles(query: str) -> list[str]:
        results = door.desk.hits(query, "--mode", "sparse")
        return [result["title"] for result in results]

    door.ingest()
    assert (titles(MAIL), titles("horologe")) == (["Clocks"], ["Clocks"])
    door.policy("redact")
    door.ingest()
    assert (titles(MAIL), titles("horologe")) == ([], ["Clocks"])
    door.desk.run("purge")
    assert MAIL not in door.stored()


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
    (file,) = [
        file for file in door.ingest("--config", str(config))["files"] if file["path"].endswith("a.md")
    ]
    assert file["access"]["allow"] == [f"user:{MAIL}"]


def test_a_file_name_stays_and_the_report_says_so(door: Door) -> None:
    (door.folder / f"{MAIL}.md").write_text("A clock.\n")
    door.desk.run("collection", "create", "documents", "--personal-data", "redact")
    reasons = {entry["path"].rpartition("/")[2]: entry["reason"] for entry in door.ingest()["files"]}
    assert "file names stay as they are" in reasons[f"{MAIL}.md"]


@pytest.mark.parametrize("wrong", ["mask", "instructions=skip"])
def test_a_policy_that_does_not_exist_is_refused(door: Door, wrong: str) -> None:
    run = door.desk.run("collection", "create", "documents", "--personal-data", wrong, code=2)
    assert "is not like redact or email=redact" in run.stderr


PROGRAM = """
import json, sys
document = json.load(sys.stdin)
assert set(document) == {"path", "title", "text", "metadata"}
if "crash" in document["text"]: sys.exit(7)
print("skip" if "rude" in document["text"] else "flag" if "odd" in document["text"] else "allow")
"""
MODULE = """
async def check(document):
    if "crash" in document["text"]:
        raise ValueError(document["text"])
    return "skip" if "rude" in document["text"] else "flag" if "odd" in document["text"] else "allow"

def plain(document):
    return "allow"
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """A data folder, documents, and settings with a moderator."""

    desk: Desk
    folder: Path

    def write(self, **documents: str) -> None:
        for name, text in documents.items():
            (self.folder / f"{name}.md").write_text(f"# {name}\n\n{text}\n")

    def config(self, *lines: str) -> Path:
        file = self.folder.parent / "config.toml"
        file.write_text("\n".join(["[moderation]", *lines]))
        return file

    def ingest(self, config: Path, code: int = 0) -> dict[str, tuple[str, str]]:
        printed = self.desk.json("ingest", self.folder, "--config", config, code=code)
        return {
            entry["path"].rpartition("/")[2]: (entry["outcome"], entry["reason"])
            for entry in printed["files"]
        }

    def metadata(self) -> dict[str, str]:
        sources: list[dict[str, Any]] = self.desk.sources()
        return {source["title"]: source["metadata"].get("moderation", "") for source in sources}


@pytest.fixture
def gate(inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    folder = tmp_path / "documents"
    folder.mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "my_moderation.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    new_gate = Gate(inside, folder)
    new_gate.write(fine="A clock.", odd="An odd clock.", rude="A rude clock.")
    return new_gate


def command(gate: Gate) -> str:
    return f"command = {json.dumps([sys.executable, str(gate.folder.parent / 'program.py')])}"


@pytest.mark.parametrize("how", ["call", "command"])
def test_a_function_or_a_program_allows_flags_and_keeps_out(gate: Gate, how: str) -> None:
    line = 'call = "my_moderation:check"' if how == "call" else command(gate)
    outcomes = gate.ingest(gate.config(line))
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == {
        "fine.md": "added",
        "odd.md": "added",
        "rude.md": "ignored",
    }
    assert gate.metadata() == {"fine": "", "odd": "flagged"}
    gate.write(fine="A rude clock, now.")
    assert gate.ingest(gate.config(line))["fine.md"] == ("removed", "the moderation keeps it out")


def test_a_new_moderator_is_asked_about_unchanged_documents_and_an_old_one_is_not(gate: Gate) -> None:
    gate.ingest(gate.config())
    outcomes = gate.ingest(gate.config('call = "my_moderation:check"'))
    assert outcomes["rude.md"][0] == "removed"
    again = gate.ingest(gate.config('call = "my_moderation:check"'))
    assert {outcome for outcome, _ in again.values()} == {"unchanged", "ignored"}
    rehearsed = gate.desk.json(
        "ingest", gate.folder, "--config", gate.config('call = "my_moderation:check"'), "--dry-run"
    )
    assert (rehearsed["counts"]["unchanged"], rehearsed["counts"]["replaced"]) == (2, 0)
    assert any("The moderation was not asked" in note for note in rehearsed["notes"])


def test_a_program_that_fails_stores_the_document_and_is_asked_again(gate: Gate) -> None:
    gate.write(odd="fine", rude="fine", fine="This will crash.")
    config = gate.config(command(gate))
    outcome, reason = gate.ingest(config)["fine.md"]
    assert outcome == "added"
    assert reason.startswith("stored without moderation, which failed: ")
    assert "ended with 7" in reason
    assert gate.ingest(config)["fine.md"][0] == "replaced"


def test_where_the_operator_wants_it_nothing_is_stored_without_a_verdict(gate: Gate) -> None:
    config = gate.config('call = "my_moderation:check"', 'on_failure = "skip"')
    gate.ingest(config)
    gate.write(fine="This will crash.")
    outcome, reason = gate.ingest(config, code=3)["fine.md"]
    assert outcome == "skipped"
    assert "ValueError" in reason


def test_after_three_failures_in_a_row_nobody_is_asked_any_more(gate: Gate) -> None:
    gate.write(**{f"a{n}": "This will crash." for n in range(4)})
    outcomes = gate.ingest(gate.config('call = "my_moderation:check"'))
    assert "was not asked any more" in outcomes["a3.md"][1]
    assert outcomes["rude.md"][0] == "added"
    gate.write(**{f"a{n}": "Fine." for n in range(4)})
    assert gate.ingest(gate.config('call = "my_moderation:check"'))["rude.md"][0] == "removed"


@pytest.mark.parametrize("flagged", ["skip"])
def test_an_endpoint_flags_documents_in_pieces(gate: Gate, provider: Endpoint, flagged: str) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        results = [{"flagged": "rude" in piece} for piece in request["input"]]
        return 200, {}, json.dumps({"results": results}).encode()

    provider.script = [answer]
    gate.write(fine="long " * 4000, rude="long " * 4000 + "rude")
    outcomes = gate.ingest(gate.config(f'base_url = "{provider.url}"', f'flagged = "{flagged}"'))
    assert set(provider.paths) == {"/v1/moderations"}
    assert outcomes["rude.md"][0] == ("added" if flagged == "flag" else "ignored")
    assert outcomes["fine.md"][0] == "added"
    assert max(len(piece) for request in provider.requests for piece in request["input"]) <= 8000


def test_an_endpoint_that_answers_nonsense_is_a_failure(gate: Gate, provider: Endpoint) -> None:
    provider.script = [provider.sending(b'{"results": []}')]
    outcomes = gate.ingest(gate.config(f'base_url = "{provider.url}"', 'on_failure = "skip"'), code=1)
    assert "the endpoint's answer is not valid" in outcomes["fine.md"][1]


@pytest.mark.parametrize("call", ["my_moderation:plain", "no_such_module:check"])
def test_a_function_that_does_not_exist_stops_the_run_before_it_begins(gate: Gate, call: str) -> None:
    run = gate.desk.run("ingest", gate.folder, "--config", gate.config(f'call = "{call}"'), code=2)
    assert call in run.stderr
    assert gate.desk.json("collection", "list")["collections"] == []


def test_an_estimate_asks_nobody(gate: Gate) -> None:
    estimate = gate.desk.json(
        "ingest", gate.folder, "--estimate", "--config", gate.config('command = ["/nowhere"]')
    )
    assert estimate["documents"] == 3


def test_a_program_that_is_missing_is_told_before_anything_is_ingested(gate: Gate, desk: Desk) -> None:
    config = gate.config('command = ["nowhere-to-be-found"]')
    for arguments in (("config", "check"), ("ingest", gate.folder)):
        run = desk.run(*arguments, "--config", config, code=1 if arguments[0] == "config" else 2)
        output = run.stdout + run.stderr
        assert "moderation.command is 'nowhere-to-be-found', but this machine has no such program." in output
    outcomes = gate.config(command(gate))
    assert "moderation" in desk.run("config", "check", "--config", outcomes).stdout


def test_two_commands_that_set_policies_at_once_both_count(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what one of them masks would be stored as it is, without a word."""

    async def meanwhile(settings: Settings, collection: Collection, _days: int) -> dict[str, Collection]:
        def mask(present: Collection) -> Collection:
            return replace(present, personal_data={"iban": "redact"})

        await change_collection(settings.home, collection.tenant, collection.name, mask)
        return {}

    door.ingest()
    monkeypatch.setattr(collection_changes, "_longer_tags", meanwhile)
    options = ["collection", "set", "documents", "--personal-data", "email=redact"]
    ended = CliRunner().invoke(commands, [*options, "--data", str(door.desk.data), "--json"])
    assert json.loads(ended.stdout)["personal_data"] == {"iban": "redact", "email": "redact"}

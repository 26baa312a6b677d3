"""refdesk-admin cite check: an answer is held against the documents, for who asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow

HILLS = "They spend it in the hills. " * 100
TEXT = (
    f"# Leave\n\nThere are thirty days of leave.\n\n# Where\n\n{HILLS}\n\n# When\n\nNobody works in August."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A desk with a document, the document's id and its last passage, and a file for answers."""

    desk: Desk
    inside: Desk
    id: str
    last: int
    file: Path

    def check(self, answer: str, *options: str, code: int = 0) -> list[str]:
        """What is printed about an answer, line by line."""
        self.file.write_text(answer, encoding="utf-8")
        return self.inside.run("cite", "check", self.file, *options, code=code).stdout.splitlines()


@pytest.fixture(scope="module")
def ingested(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the document. Only for copies."""
    folder = tmp_path_factory.mktemp("cited")
    (folder / "leave.md").write_text(TEXT)
    desk_at(folder / "data").run("ingest", folder / "leave.md")
    return folder / "data"


@pytest.fixture
def case(desk: Desk, inside: Desk, ingested: Path, tmp_path: Path) -> Case:
    shutil.copytree(ingested, desk.data)
    (source,) = inside.sources()
    return Case(desk, inside, source["id"], source["chunks"] - 1, tmp_path / "answer.md")


def test_an_answer_that_holds_exits_with_0(case: Case) -> None:
    case.file.write_text(f'All have "thirty days\nof leave" [{case.id}/0], they "say".')
    assert case.desk.run("cite", "check", case.file).stdout.splitlines() == [
        f"readable    [{case.id}/0]  Leave",
        f"verbatim    “thirty days of leave”  in [{case.id}/0]",
        "unchecked   “say”  no citation follows it",
        "1 citation, 1 readable; 2 quotes, 1 verbatim.",
    ]


def test_a_citation_or_a_quote_that_does_not_hold_exits_with_1(case: Case) -> None:
    assert case.check(f"[{case.id}/0] [{case.id}/99] [notes.md/1]", code=1) == [
        f"readable    [{case.id}/0]  Leave",
        f"missing     [{case.id}/99]  no such passage",
        "missing     [notes.md/1]  no such passage",
        "3 citations, 1 readable; 0 quotes, 0 verbatim.",
    ]
    assert (
        case.check(f'"forty days" [{case.id}/0]', code=1)[1]
        == f"not found   “forty days”  not in [{case.id}/0]"
    )
    assert case.check("It cites nothing.") == ["0 citations, 0 readable; 0 quotes, 0 verbatim."]


def test_a_quote_that_stands_elsewhere_is_found_there(case: Case) -> None:
    answer = '"Nobody works in August" [{}/{}]'
    assert case.check(answer.format(case.id, case.last))[1] == (
        f"verbatim    “Nobody works in August”  in [{case.id}/{case.last}]"
    )
    assert case.check(answer.format(case.id, 0), code=1)[1] == (
        f"elsewhere   “Nobody works in August”  not in [{case.id}/0] but in [{case.id}/{case.last}]"
    )


def test_what_exists_is_told_from_what_does_not_for_operators_alone(case: Case) -> None:
    case.inside.run("access", "set", case.id, "--allow", "group:hr", "--deny", "user:bob")
    answer = f'"thirty days" [{case.id}/0] [aaaaaaaaaaaaaaaa/0]'
    strangers: tuple[list[str], ...] = (
        [],
        ["--user", "ann"],
        ["--user", "bob", "--group", "hr"],
        ["--group", "it"],
    )
    for options in strangers:
        lines = case.check(answer, *options, code=1)
        assert lines[0] == f"hidden      [{case.id}/0]  it exists, but the asker may not read it"
        assert lines[1].startswith("missing     [aaaaaaaaaaaaaaaa/0]")
        assert lines[2].startswith("not found   “thirty days”")
    for options in (["--group", "hr"], ["--user", "ann", "--group", "it", "--group", "hr"]):
        assert case.check(answer, *options, code=1)[0] == f"readable    [{case.id}/0]  Leave"
    assert case.check(f"[{case.id}/0]", "--group", "hr")


def test_who_asks_is_as_in_the_settings_unless_it_is_said(case: Case, tmp_path: Path) -> None:
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    config = tmp_path / "config.toml"
    config.write_text('[principal]\nuser = "ann"\n')
    assert case.check(f"[{case.id}/0]", "--config", str(config))
    assert case.check(f"[{case.id}/0]", "--config", str(config), "--user", "bob", code=1)


def test_another_tenant_s_documents_are_missing(case: Case) -> None:
    case.inside.run("tenant", "create", "acme")
    assert case.check(f"[{case.id}/0]", "--tenant", "acme", code=1)[0].startswith("missing")
    assert case.check(f"[{case.id}/0]", "--tenant", "default")[0].startswith("readable")


def test_json_has_it_all(case: Case) -> None:
    case.file.write_text(f'"thirty days" [{case.id}/0] and "x" [{case.id}/99]')
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    for options, readable in ((["--user", "ann"], True), ([], False)):
        report = case.desk.json("cite", "check", case.file, *options, code=1)
        assert report == {
            "holds": False,
            "citations": [
                {
                    "id": f"{case.id}/0",
                    "exists": True,
                    "readable": readable,
                    "title": "Leave" if readable else None,
                },
                {"id": f"{case.id}/99", "exists": False, "readable": False, "title": None},
            ],
            "quotes": [
                {
                    "text": "thirty days",
                    "cited": [f"{case.id}/0"],
                    "verdict": "verbatim" if readable else "not found",
                    "found": [],
                },
                {"text": "x", "cited": [f"{case.id}/99"], "verdict": "not found", "found": []},
            ],
            "grounded": False,
            "uncited": [],
        }


def test_what_lacks_a_citation_fails_only_where_citations_are_required(case: Case) -> None:
    cited = f'There are "thirty days" [{case.id}/0].'
    assert case.check(cited, "--require")[-1] == (
        "1 citation, 1 readable; 1 quote, 1 verbatim; 0 paragraphs without a citation."
    )
    for answer, count in (
        ("It cites nothing.", 1),
        (f"{cited}\n\nNobody works in August.\n\n- Really.", 2),
        (f'{cited} They "say".', 0),
        ("", 0),
    ):
        assert case.check(answer)
        lines = case.check(answer, "--require", code=1)
        assert lines[-1].endswith(f"; {count} paragraph{'' if count == 1 else 's'} without a citation.")
        assert sum(line.startswith("uncited     ") for line in lines) == count
    assert f"uncited     {'word ' * 15}word…" in case.check("word " * 99, "--require", code=1)
    assert case.desk.json("cite", "check", case.file, "--require", code=1)["grounded"] is False


def _revision(case: Case) -> str:
    """The revision of the document, as a search shows it."""
    return str(case.inside.hits("leave")[0]["revision"])


def _edit(case: Case, ingested: Path, text: str) -> None:
    """Ingest another text of the document, and leave its file as other tests need it."""
    file = ingested.parent / "leave.md"
    file.write_text(text)
    case.inside.run("ingest", file)
    file.write_text(TEXT)


def test_a_citation_with_a_revision_is_checked_where_its_passage_stands_now(
    case: Case, ingested: Path
) -> None:
    cited = f"{case.id}@{_revision(case)}"
    last = f"{cited}/{case.last}"
    assert case.check(f'"August" [{last}]') == [
        f"stands      [{last}]  Leave; now [{case.id}/{case.last}]",
        f"verbatim    “August”  in [{last}]",
        "1 citation, 1 readable; 1 quote, 1 verbatim.",
    ]
    case.inside.run("collection", "tag", "documents", "then")
    _edit(
        case, ingested, TEXT.replace("# Leave", f"# Why\n\n{HILLS}\n\n# Leave").replace("in August", "in May")
    )
    lines = case.check(f'"thirty" [{cited}/0], "in August" [{last}], [{case.id}@aaaaaaaa/0]', code=1)
    (stands,) = [line for line in lines if line.startswith(f"stands      [{cited}/0]")]
    assert not stands.endswith(f"[{case.id}/0]")
    (changed,) = [line for line in lines if line.startswith(f"changed     [{last}]")]
    assert "; in its place stands [" in changed
    (as_cited,) = [line for line in lines if line.startswith("as cited") and "August" in line]
    assert "Nobody works in August." in as_cited
    assert f"unknown     [{case.id}@aaaaaaaa/0]  leave; what was cited can't be found again" in lines
    assert any(line.startswith("not found   “in August”") for line in lines)
    _edit(case, ingested, TEXT.partition("\n\n# When")[0])
    assert case.check(f"[{last}]", code=1)[0].startswith(f"gone        [{last}]  Leave; it stood near [")
    _edit(case, ingested, TEXT)
    assert case.check(f"[{last}]")[0].startswith("stands")


def test_json_says_what_became_of_a_citation_with_a_revision(case: Case, ingested: Path) -> None:
    cited = f"{case.id}@{_revision(case)}/{case.last}"
    for text, standing, code in ((TEXT, "stands", 0), (TEXT.replace("August", "May"), "changed", 1)):
        _edit(case, ingested, text)
        case.file.write_text(f"[{cited}]")
        report = case.inside.json("cite", "check", case.file, code=code)
        assert report["holds"] == (code == 0)
        assert report["citations"] == [
            {
                "id": cited,
                "exists": True,
                "readable": True,
                "title": "Leave",
                "standing": standing,
                "now": f"{case.id}/{case.last}",
                "cited_text_id": None,
                "cited_text": None,
            }
        ]


def test_a_citation_with_a_revision_of_what_is_hidden_or_was_never_there_is_told_to_operators(
    case: Case, ingested: Path
) -> None:
    cited = f"{case.id}@{_revision(case)}"
    _edit(case, ingested, TEXT.replace("August", "May"))
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    ids = (f"{cited}/{case.last}", f"{cited}/{case.last + 1}", f"{case.id}@aaaaaaaa/0")
    lines = case.check(" ".join(f"[{id_}]" for id_ in ids), code=1)
    assert [line.partition(" ")[0] for line in lines] == ["hidden", "missing", "missing", "3"]
    lines = case.check(" ".join(f"[{id_}]" for id_ in ids), "--user", "ann", code=1)
    assert [line.partition(" ")[0] for line in lines] == ["changed", "missing", "unknown", "3"]


def test_a_backup_shows_the_text_as_it_was_cited_to_whom_it_was_readable_then_and_is_now(
    case: Case, ingested: Path, tmp_path: Path
) -> None:
    cited = f"{case.id}@{_revision(case)}"
    last, backups = f"{cited}/{case.last}", {name: tmp_path / f"{name}.tar" for name in ("open", "hers")}
    case.inside.run("backup", backups["open"])
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    case.inside.run("backup", backups["hers"])
    case.inside.run("access", "set", case.id, "--visibility", "tenant")
    assert case.check(f"[{last}]", "--backup", str(backups["open"]))[1].startswith("1 citation")  # it stands
    _edit(case, ingested, TEXT.replace("in August", "in May"))
    ids = f"[{last}], [{cited}/0-{case.last}]"
    for asker, name, count in (("bob", "open", 2), ("ann", "hers", 2), ("bob", "hers", 0)):
        lines = case.check(ids, "--user", asker, "--backup", str(backups[name]), code=1)
        quoted = [line for line in lines if line.startswith("as cited")]
        assert len(quoted) == count
        assert all("Nobody works in August." in line for line in quoted[:1])
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    lines = case.check(f"[{last}]", "--user", "bob", "--backup", str(backups["open"]), code=1)
    assert not any(line.startswith("as cited") for line in lines)
    case.file.write_text(f"[{last}]")
    checked = case.inside.json(
        "cite", "check", case.file, "--user", "ann", "--backup", backups["open"], code=1
    )
    assert "Nobody works in August." in checked["citations"][0]["cited_text"]
    run = case.inside.run("cite", "check", case.file, "--backup", case.file, code=2)
    assert "is not a backup" in run.stderr


def _as_cited(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("as cited")]


def test_a_tag_shows_what_was_cited_of_a_removed_document_to_whom_it_was_readable(case: Case) -> None:
    last = f"{case.id}@{_revision(case)}/{case.last}"
    case.inside.run("collection", "tag", "documents", "v1")
    case.inside.run("remove", case.id)
    lines = case.check(f"[{last}]", "--user", "bob", code=1)
    assert lines[0].startswith(f"gone        [{last}]")
    assert "Nobody works in August." in _as_cited(lines)[0]
    case.file.write_text(f"[{last}]")
    (citation,) = case.inside.json("cite", "check", case.file, code=1)["citations"]
    assert (citation["readable"], citation["standing"], citation["now"]) == (False, "gone", None)
    unknown = f"{case.id}@{'0' * 8}/0"
    assert _as_cited(case.check(f"[{unknown}] [{case.id}/0]", code=1)) == []
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    assert _as_cited(case.check(f"[{last}]", "--user", "bob", code=1)) == []
    assert len(_as_cited(case.check(f"[{last}]", "--user", "ann", code=1))) == 1


def test_a_backup_shows_what_was_cited_of_a_removed_document_to_whom_it_was_readable(
    case: Case, tmp_path: Path
) -> None:
    last, backup = f"{case.id}@{_revision(case)}/{case.last}", tmp_path / "b.tar"
    case.inside.run("backup", backup)
    case.inside.run("remove", case.id)

    def cited_text(user: str) -> list[str]:
        return _as_cited(case.check(f"[{last}]", "--user", user, "--backup", str(backup), code=1))

    assert "Nobody works in August." in cited_text("bob")[0]
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    assert (len(cited_text("bob")), len(cited_text("ann"))) == (0, 1)
    case.inside.run("purge")
    assert cited_text("ann") == []


def test_a_backup_shows_nothing_of_a_forgotten_or_a_hidden_document(case: Case, tmp_path: Path) -> None:
    last, backup = f"{case.id}@{_revision(case)}/{case.last}", tmp_path / "b.tar"
    case.inside.run("backup", backup)
    case.inside.run("access", "set", case.id, "--allow", "user:ann")
    options = ("--user", "bob", "--backup", str(backup))
    assert _as_cited(case.check(f"[{last}]", *options, code=1)) == []
    assert case.check(f"[{last}]", "--user", "ann")[0].startswith("stands")  # the control
    case.inside.run("remove", "--forget", case.id)
    assert _as_cited(case.check(f"[{last}]", *options, code=1)) == []


def test_an_answer_by_the_schema_is_checked_like_text(case: Case) -> None:
    schema = json.loads(case.inside.run("cite", "schema").stdout)
    assert schema == case.inside.json("cite", "schema")
    assert schema["required"] == ["statements"]
    statement = {"text": "All have leave.", "citations": [f"{case.id}/0"], "quotes": ["thirty days"]}
    assert case.check(json.dumps({"statements": [statement]}), "--require") == [
        f"readable    [{case.id}/0]  Leave",
        f"verbatim    “thirty days”  in [{case.id}/0]",
        "1 citation, 1 readable; 1 quote, 1 verbatim; 0 paragraphs without a citation.",
    ]
    uncited = statement | {"citations": [], "quotes": []}
    assert "uncited     All have leave." in case.check(
        json.dumps({"statements": [uncited]}), "--require", code=1
    )
    assert case.check(json.dumps({"statements": [statement | {"quotes": ["forty"]}]}), code=1)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({}, "statements"),
        ({"statements": [{"text": "", "citations": [], "quotes": []}]}, "statements.0.text"),
        ({"statements": [{"text": "a", "quotes": []}]}, "statements.0.citations"),
        ({"statements": [], "more": 1}, "more"),
    ],
)
def test_json_of_another_form_is_misuse_that_names_the_place(
    case: Case, answer: dict[str, object], place: str
) -> None:
    case.file.write_text(json.dumps(answer))
    run = case.inside.run("cite", "check", case.file, code=2)
    assert f"The answer is JSON, but {place} is wrong" in run.stderr
    assert "cite schema" in run.stderr
    assert case.check(f"{{It is no JSON}} [{case.id}/0]")


@pytest.mark.parametrize("file", [[], ["-"]])
def test_an_answer_can_come_on_standard_input(case: Case, file: list[str]) -> None:
    for answer, code in ((f"\ufeff> thirty days [{case.id}/0]", 0), (f"\ufeff> forty [{case.id}/0]", 1)):
        run = subprocess.run(
            [case.desk.scripts.forked_admin, "cite", "check", *file, "--data", case.desk.data],
            env=case.desk.scripts.environment,
            input=answer.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (run.returncode, run.stderr) == (code, b"")


def test_an_answer_that_can_t_be_read_is_misuse(case: Case, tmp_path: Path) -> None:
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    for name, words in (("latin.md", "not UTF-8"), ("none.md", "No such file"), (".", "Is a directory")):
        run = case.inside.run("cite", "check", tmp_path / name, code=2)
        assert words in run.stderr
        assert run.stdout == ""


def test_an_answer_can_t_move_the_cursor_of_a_terminal(case: Case, screen: Screen) -> None:
    case.file.write_text(f'"a \x1b]0;trap\x07 quote" [{case.id}/0] and [a\x1b[31mred/0]')
    code, output = screen("cite", "check", case.file, "--data", case.desk.data)
    assert code == 1
    assert "trap" in output
    assert not {"\x07", "\x1b"} & set(output)

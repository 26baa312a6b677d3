"""refdesk-admin audit: each administrative act leaves a line; what can't be logged grants nothing."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rag.access.keys import keys_file, read_keys
from rag.admin import audit_command
from rag.admin.audit_command import (
    MAX_CHANGES,
    Act,
    access_state,
    log_act,
    log_file,
    log_now,
    read_log,
    widens,
)
from rag.corpus import Access
from rag.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

UNLOGGED = "Cannot write the audit log {}: Is a directory.\n"
WORD = "zanzibarite"
APPENDER = """
import sys
from pathlib import Path
from rag.admin.audit_command import Act, log_now
print("ready", flush=True)
sys.stdin.readline()
for number in range(50):
    changes = {f"{sys.argv[2]}-{number}": (None, {"a": "x" * 999})}
    log_now(Path(sys.argv[1]), Act("access set", "default", changes))
"""


def logged_acts(desk: Desk, *filters: str) -> list[dict[str, Any]]:
    acts: list[dict[str, Any]] = desk.json("audit", "show", *filters)["acts"]
    return acts


def changes(desk: Desk, *filters: str) -> list[tuple[str, str, Any, Any]]:
    """Each change: the act, the id, the state before and after."""
    return [
        (act["act"], change["id"], change["before"], change["after"])
        for act in logged_acts(desk, *filters)
        for change in act["changes"]
    ]


def test_each_act_on_keys_and_tenants_leaves_a_line_with_the_state_before_and_after(inside: Desk) -> None:
    assert "The log is empty" in inside.run("audit", "show").stdout
    inside.run("tenant", "create", "acme")
    created = inside.json("key", "create", "--user", "ann", "--group", "hr")
    turned = inside.json("key", "rotate", created["id"])
    inside.run("key", "revoke", created["id"])
    inside.run("tenant", "remove", "acme", "--yes")

    state = {name: created[name] for name in ("user", "groups", "scopes", "expires_at")}
    ending, new = (state | {"expires_at": key["expires_at"]} for key in (changes(inside)[2][3], turned))
    assert changes(inside) == [
        ("tenant create", "acme", None, {"collections": []}),
        ("key create", created["id"], None, state),
        ("key rotate", created["id"], state, ending),
        ("key rotate", turned["id"], None, new),
        ("key revoke", created["id"], ending, None),
        ("key revoke", turned["id"], new, None),
        ("tenant remove", "acme", {"collections": []}, None),
    ]
    assert {act["tenant"] for act in logged_acts(inside)} == {"acme"}
    assert {(act["user"], act["uid"]) for act in logged_acts(inside)} == {
        (pwd.getpwuid(os.getuid()).pw_name, os.getuid())
    }
    times = [act["at"] for act in logged_acts(inside)]
    assert times == sorted(times)
    assert all(at.endswith("Z") for at in times)


def test_each_act_on_collections_and_documents_leaves_a_line(inside: Desk, tmp_path: Path) -> None:
    file = tmp_path / "leave.md"
    file.write_text(f"# Leave\n\n{WORD}\n")
    inside.run("collection", "create", "handbook", "--field", "year=integer")
    inside.run("ingest", file, "--collection", "handbook", "--allow", "group:hr", "--deny", "user:bob")
    (source,) = inside.sources()
    inside.run("remove", file, "--collection", "handbook")
    inside.run("purge")
    inside.run("ingest", file, "--collection", "handbook")
    inside.run("collection", "remove", "handbook", "--yes")
    inside.run("collection", "create", "empty")
    inside.run("collection", "remove", "empty", "--yes")

    collection = {"visibility": "tenant", "fields": {"year": "integer"}}
    access = {"visibility": "restricted", "allow": ["group:hr"], "deny": ["user:bob"]}
    empty = {"visibility": "tenant", "fields": {}}
    assert [change for change in changes(inside) if change[0] not in {"ingest", "access set"}] == [
        ("collection create", "handbook", None, collection),
        ("remove", source["id"], {"uri": file.as_uri()} | access, None),
        ("purge", "handbook", {"visibility": "tenant"}, {"visibility": "tenant"}),
        ("collection remove", "handbook", collection | {"sources": 1}, None),
        ("collection create", "empty", None, empty),
        ("collection remove", "empty", empty | {"sources": 0}, None),
    ]
    assert {act["collection"] for act in logged_acts(inside, "--act", "remove")} == {"handbook"}


def test_the_log_is_its_owner_s_is_only_appended_to_and_holds_no_text_query_or_secret(
    inside: Desk, tmp_path: Path
) -> None:
    (tmp_path / "leave.md").write_text(f"# Leave\n\n{WORD}\n")
    token = inside.json("key", "create", "--user", "ann")["key"]
    (key,) = read_keys(keys_file(inside.data)).keys
    before = b""
    for command in (
        ["ingest", tmp_path / "leave.md"],
        ["search", WORD],
        ["key", "rotate", key.id],
        ["remove", tmp_path / "leave.md"],
        ["key", "revoke", key.id],
        ["audit", "show"],
    ):
        inside.run(*command)
        after = log_file(inside.data).read_bytes()
        assert after.startswith(before)
        before = after
    assert log_file(inside.data).stat().st_mode & 0o777 == 0o600
    for secret in (WORD, token.split("_", 2)[2], key.digest):
        assert secret.encode() not in before
    for line in before.splitlines():
        json.loads(line)


def test_people_read_a_table_of_what_differs_and_who_did_it_for_whom(
    inside: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.run("tenant", "create", "acme")
    monkeypatch.setenv("SUDO_USER", "eve\x1b[31m\u202e")
    log_now(
        inside.data,
        Act(
            "access grant",
            "acme",
            {
                "mfzq2k7d": (
                    access_state(Access("restricted", frozenset({"group:hr"}))),
                    access_state(Access("restricted", frozenset({"group:hr", "user:ann"}))),
                )
            },
            "documents",
        ),
    )
    head, _, row = inside.run("audit", "show").stdout.splitlines()
    assert re.split("  +", head) == ["WHEN", "WHO", "ACT", "TENANT", "ID", "BEFORE → AFTER"]
    who = f"{pwd.getpwuid(os.getuid()).pw_name} ({os.getuid()}) for eve\N{REPLACEMENT CHARACTER}[31m"
    change = "allow group:hr → allow group:hr user:ann"
    assert re.split("  +", row)[1:] == [who, "access grant", "acme", "mfzq2k7d", change]
    assert row.isprintable()


def test_filters_leave_what_fits_all_of_them(inside: Desk) -> None:
    inside.run("tenant", "create", "acme")
    inside.run("tenant", "create", "beta")
    ann = inside.json("key", "create", "--tenant", "acme")["id"]
    bob = inside.json("key", "create", "--tenant", "beta")["id"]
    inside.run("key", "revoke", ann)
    line = json.loads(log_file(inside.data).read_text().splitlines()[0]) | {"at": "2020-01-02T03:04:05Z"}
    with log_file(inside.data).open("a") as log:
        log.write(json.dumps(line) + "\n")

    def names(*filters: str) -> list[str]:
        return [f"{act} {id_}" for act, id_, _, _ in changes(inside, *filters)]

    assert names("--act", "key revoke") == [f"key revoke {ann}"]
    assert names("--act", "key", "--tenant", "acme") == [f"key create {ann}", f"key revoke {ann}"]
    assert names("--id", bob) == [f"key create {bob}"]
    assert names("--tenant", "beta") == ["tenant create beta", f"key create {bob}"]
    assert names("--act", "purge") == []
    assert len(names()) == 6
    assert len(names("--since", "2020-01-02T03:04:05")) == 6
    assert len(names("--since", "2020-01-02T03:04:06")) == 5
    assert len(names("--since", "2020-01-02T04:04:05+01:00")) == 6
    assert names("--since", "2100-01-01") == []
    assert "No act in the log matches" in inside.run("audit", "show", "--since", "2100-01-01").stdout
    assert "is not a date like 2026-11-22" in inside.misuse("audit", "show", "--since", "monday")
    assert "'keys' is not one of" in inside.misuse("audit", "show", "--act", "keys")


def test_lines_that_are_torn_or_foreign_are_shown_as_unreadable_and_spoil_no_other(inside: Desk) -> None:
    inside.run("tenant", "create", "acme")
    good = log_file(inside.data).read_bytes()
    foreign = [b"garbage", b"{}", b"[" * 100_000, b"\xff\xfe\x00", json.dumps({"at": "yesterday"}).encode()]
    with log_file(inside.data).open("ab") as log:
        log.write(b"\n".join([*foreign, b"", good[:30]]))
    torn = log_file(inside.data).read_bytes()
    inside.run("tenant", "create", "beta")
    assert log_file(inside.data).read_bytes().startswith(torn)

    reply = inside.json("audit", "show")
    assert [act["tenant"] for act in reply["acts"]] == ["acme", "beta"]
    assert reply["unreadable_lines"] == [2, 3, 4, 5, 6, 8]
    run = inside.run("audit", "show", "--tenant", "beta")
    assert run.stderr.count("is unreadable.\n") == 5
    assert "Line 8 of" in run.stderr
    assert run.stderr.count("was cut short by a power failure or a full disk.\n") == 1
    assert "garbage" not in run.stdout + run.stderr


@pytest.mark.parametrize("cut", ["{", '{"at":"2026-11-26T0', "half a letter", "all but the end", "\0" * 512])
def test_what_a_power_failure_leaves_of_the_last_line_is_told_and_no_fault_for_ever(
    unconnected: Desk, cut: str
) -> None:
    unconnected.run("key", "create", "--user", "zoë")
    good = log_file(unconnected.data).read_bytes()
    halves = {"half a letter": good[: good.index("ë".encode()) + 1], "all but the end": good[:-2]}
    torn = halves.get(cut, cut.encode())
    for line in (torn, b""):
        with log_file(unconnected.data).open("ab") as log:
            log.write(line)
        (note,) = unconnected.findings("audit log")
        assert note["state"] == "note"
        assert "cut short line 2. The act that it began to tell may have been done" in note["text"]
        unconnected.run("key", "create", "--user", "ann")  # begins a new line
    assert unconnected.json("audit", "show")["unreadable_lines"] == [2]


def test_a_line_of_a_later_version_is_read(inside: Desk) -> None:
    inside.run("tenant", "create", "acme")
    line = json.loads(log_file(inside.data).read_text()) | {"host": "desk", "act": "tenant freeze"}
    with log_file(inside.data).open("a") as log:
        log.write(json.dumps(line) + "\n")
    assert [act["act"] for act in logged_acts(inside)] == ["tenant create", "tenant freeze"]


def test_what_gives_rights_is_not_done_where_it_can_t_be_written_down(inside: Desk) -> None:
    inside.run("tenant", "create", "acme")
    log_file(inside.data).unlink()
    log_file(inside.data).mkdir()
    for command in (["key", "create"], ["tenant", "create", "beta"], ["collection", "create", "handbook"]):
        refusal = inside.misuse(*command)
        assert refusal == f"refdesk-admin: {UNLOGGED.format(log_file(inside.data))}"
    assert inside.json("key", "list") == {"keys": []}
    assert inside.json("tenant", "list") == {"tenants": [{"name": "acme", "collections": []}]}
    log_file(inside.data).rmdir()
    inside.run("key", "create")


def test_what_only_takes_is_done_all_the_same_and_says_that_the_log_lacks_it(inside: Desk) -> None:
    inside.run("tenant", "create", "acme")
    live, ended, turned = (inside.json("key", "create", "--user", name)["id"] for name in ("a", "b", "c"))
    log_file(inside.data).unlink()
    log_file(inside.data).mkdir()
    run = inside.run("key", "revoke", ended)
    assert run.stdout == f"Revoked the key {ended}.\n"
    assert run.stderr == f"Not logged: key revoke {ended}. {UNLOGGED.format(log_file(inside.data))}"
    inside.run("key", "rotate", turned, code=2)
    assert {key["id"] for key in inside.json("key", "list")["keys"]} == {live, turned}
    assert "Not logged" in inside.run("tenant", "remove", "acme", "--yes").stderr
    assert inside.json("key", "list") == {"keys": []}


def test_an_act_that_fails_is_written_down_as_failed(tmp_path: Path) -> None:
    gives = Act("tenant create", "acme", {"acme": (None, {})})
    takes = Act("remove", "acme", {"a": ({}, None)}, "documents", gives=False)
    log: list[list[tuple[str, str | None]]] = []

    def lines() -> list[tuple[str, str | None]]:
        return [(line.act, line.failed) for _, line in read_log(tmp_path) if line]

    for act in (gives, takes):
        with pytest.raises(StoreError), log_act(tmp_path, act):  # noqa: PT012 what stands there meanwhile counts
            log.append(lines())
            raise StoreError(WORD)
    assert log == [[("tenant create", None)], [("tenant create", None), ("tenant create", "StoreError")]]
    assert lines() == [("tenant create", None), ("tenant create", "StoreError"), ("remove", "StoreError")]
    assert WORD not in log_file(tmp_path).read_text()
    with log_act(tmp_path, takes):
        assert len(lines()) == 3
    assert lines()[3:] == [("remove", None)]


def test_an_act_on_many_things_takes_several_lines(tmp_path: Path) -> None:
    log_now(
        tmp_path, Act("remove", "acme", {f"{n}": ({}, None) for n in range(2 * MAX_CHANGES + 1)}, gives=False)
    )
    held = [line.changes for _, line in read_log(tmp_path) if line]
    assert [len(part) for part in held] == [MAX_CHANGES, MAX_CHANGES, 1]
    assert [change.id for part in held for change in part] == [f"{n}" for n in range(2 * MAX_CHANGES + 1)]


def test_administrators_who_write_at_once_lose_no_line(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", APPENDER, tmp_path, "a"], stdin=pipe, stdout=pipe) as writer:
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        writer.stdin.close()
        for number in range(50):
            log_now(tmp_path, Act("access set", "default", {f"b-{number}": (None, {"a": "x" * 999})}))
    assert writer.returncode == 0
    ids = [line.changes[0].id for _, line in read_log(tmp_path) if line]
    assert len(ids) == 100
    assert set(ids) == {f"{name}-{number}" for name in "ab" for number in range(50)}


def test_a_line_that_another_writes_in_between_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (Act("tenant create", name, {}) for name in ("a", "b", "c"))
    log_now(tmp_path, first)
    look = audit_command._last_byte  # noqa: SLF001 where a writer has looked for the end and has not written yet

    def looked(opened: FileIO) -> bytes:
        monkeypatch.setattr(audit_command, "_last_byte", look)
        last = look(opened)
        log_now(tmp_path, second)
        return last

    monkeypatch.setattr(audit_command, "_last_byte", looked)
    log_now(tmp_path, third)
    assert [line and line.tenant for _, line in read_log(tmp_path)] == ["a", "b", "c"]


def test_a_log_that_can_t_be_read_is_said(tmp_path: Path) -> None:
    log_file(tmp_path).mkdir()
    with pytest.raises(ConfigurationError, match=r"Cannot read the audit log .*: Is a directory"):
        list(read_log(tmp_path))


ANN, HR = frozenset({"user:ann"}), frozenset({"group:hr"})


@pytest.mark.parametrize(
    ("before", "after", "gives"),
    [
        (None, None, False),
        (Access("tenant"), None, False),
        (None, Access("restricted"), True),
        (Access("restricted"), Access("tenant"), True),
        (Access("tenant"), Access("restricted", ANN), False),
        (Access("tenant"), Access("tenant", ANN), False),
        (Access("tenant", deny=HR), Access("restricted", ANN, HR), False),
        (Access("tenant", deny=HR), Access("restricted", ANN), True),
        (Access("restricted", ANN), Access("restricted", ANN | HR), True),
        (Access("restricted", ANN | HR), Access("restricted", ANN), False),
        (Access("restricted", ANN), Access("restricted", HR), True),
        (Access("restricted", ANN), Access("restricted", ANN, HR), False),
        (Access("restricted", ANN, HR), Access("restricted", ANN), True),
        (Access("restricted", ANN), Access("restricted", ANN, revision=2), False),
    ],
)
def test_a_change_gives_if_somebody_may_see_more(
    before: Access | None, after: Access | None, *, gives: bool
) -> None:
    assert widens(before, after) is gives

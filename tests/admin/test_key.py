"""refdesk-admin key: keys are shown once, listed without their secrets, and end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from rag.access.keys import holder_of, keys_file, read_keys
from rag.corpus import Binding, Principal

if TYPE_CHECKING:
    from tests.admin.conftest import Desk, Inside

pytestmark = pytest.mark.slow


def test_a_key_is_shown_once_and_is_its_holders(desk: Desk) -> None:
    run = desk.run("key", "create", "--user", "ann", "--group", "hr", "--group", "it")
    (token,) = run.stdout.splitlines()
    assert "not be shown again" in run.stderr
    (listed,) = desk.json("key", "list")["keys"]
    assert (listed["tenant"], listed["user"], listed["groups"]) == ("default", "ann", ["hr", "it"])
    assert "digest" not in listed
    held = holder_of(token, read_keys(keys_file(desk.data)).keys)
    assert held is not None
    assert held.id == listed["id"]
    secret = token.split("_", 2)[2]
    assert not [
        file for file in desk.data.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()
    ]


def test_keys_are_listed_revoked_and_turned_into_new_ones(inside: Inside) -> None:
    assert "no keys yet" in inside.run("key", "list").stdout
    inside.run("tenant", "create", "acme")
    inside.run("tenant", "create", "beta")
    assert "Name one" in inside.run("key", "create", code=2).stderr
    first = inside.json("key", "create", "--tenant", "acme", "--user", "ann", "--days", "10")
    other = inside.json("key", "create", "--tenant", "beta", "--days", "1")
    assert inside.run("key", "list").stdout.splitlines()[1].split()[:4] == [first["id"], "acme", "ann", "-"]

    turned = inside.json("key", "rotate", first["id"])
    kept = {key["id"]: key for key in inside.json("key", "list")["keys"]}
    assert kept.keys() == {first["id"], other["id"], turned["id"]}
    assert _days(kept[turned["id"]]) == timedelta(days=10)
    assert timedelta(hours=23) < _days(kept[first["id"]]) < timedelta(hours=25)

    again = inside.json("key", "rotate", turned["id"], "--keep-days", "0")
    assert inside.json("key", "revoke", other["id"]) == {"revoked": other["id"]}
    assert {key["id"] for key in inside.json("key", "list")["keys"]} == {first["id"], again["id"]}
    assert f"no key {other['id']!r}" in inside.run("key", "revoke", other["id"], code=1).stderr
    assert "no key" in inside.run("key", "rotate", "x", code=1).stderr

    theirs = inside.json("key", "create", "--tenant", "beta")
    inside.run("tenant", "remove", "acme", "--yes")
    assert [key["id"] for key in inside.json("key", "list")["keys"]] == [theirs["id"]]


def test_what_no_key_can_have_is_refused(inside: Inside) -> None:
    for wrong in (["--days", "0"], ["--days", "4000"], ["--group", ""], ["--group", "x" * 257]):
        inside.run("key", "create", *wrong, code=2)
    assert inside.json("key", "list") == {"keys": []}


def test_an_expired_key_is_marked(inside: Inside) -> None:
    inside.run("key", "create", "--days", "9")
    expired = inside.json("key", "create")
    file = keys_file(inside.data)
    file.write_text(file.read_text().replace(expired["expires_at"], "2026-01-01T00:00:00Z"))
    valid, ended = inside.run("key", "list").stdout.splitlines()[1:]
    assert "(expired)" not in valid
    assert "(expired)" in ended
    assert [key.get("expired") for key in inside.json("key", "list")["keys"]] == [None, True]


def _days(key: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])


def test_a_key_is_bound_to_what_the_options_say(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    free = inside.json("key", "create", "--user", "ann")
    options = ("--collection", "handbook", "--filter", '{"status": "final"}', "--profile", "precise")
    made = inside.json("key", "create", "--user", "ann", *options, "--limit", "3", "--tool", "search")
    wanted = {
        "collections": ["handbook"],
        "filter": {"status": "final"},
        "profile": "precise",
        "limit": 3,
        "tools": ["search"],
    }
    assert ("bound_to" in free, made["bound_to"]) == (False, wanted)
    lines = {line.split()[0]: line for line in inside.run("key", "list").stdout.splitlines()}
    assert lines["ID"].endswith("BOUND TO")
    assert lines[free["id"]].endswith(" -")
    assert lines[made["id"]].endswith('handbook; {"status": "final"}; profile precise; limit 3; tools search')
    rotated = inside.json("key", "rotate", made["id"])
    stored = {key.id: key for key in read_keys(keys_file(inside.data)).keys}
    binding = Binding(("handbook",), {"status": "final"}, "precise", 3, ("search",))
    assert stored[rotated["id"]].principal == Principal("default", "ann", bindings=(binding,))
    assert stored[free["id"]].principal == Principal("default", "ann")
    logged = inside.run("audit", "show", "--act", "key").stdout
    assert logged.count('"final"') >= 2 or logged.count("final") >= 2


USAGE, MISSING = 2, 1  # exit codes
REFUSED: list[tuple[int, list[str], str]] = [
    (MISSING, ["--collection", "handbok"], "no collection 'handbok'; there are: handbook, notes."),
    (USAGE, ["--collection", "No"], "--collection: 'No' is not a valid name"),
    (USAGE, ["--filter", "{"], "not valid JSON"),
    (USAGE, ["--filter", "{}"], "--filter: filter must be an object with at least one condition in it."),
    (USAGE, ["--filter", '{"$nor": []}'], "--filter: There is no operator '$nor' that combines filters."),
    (USAGE, ["--filter", '{"status": 5}'], "it suits the declared fields of no collection (handbook, notes)"),
    (USAGE, ["--collection", "notes", "--filter", '{"status": "x"}'], "of no collection (notes)"),
    (USAGE, ["--profile", "best"], "there is no profile 'best'; use one of: default, fast, precise, fresh."),
    (USAGE, ["--limit", "0"], "0 is not in the range 1<=x<=100"),
    (USAGE, ["--tool", "find"], "--tool: there is no search tool 'find'; use some of: search."),
]


def test_a_binding_that_could_show_nothing_is_refused(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    for code, options, words in REFUSED:
        assert words in inside.run("key", "create", *options, code=code).stderr
    assert inside.json("key", "list") == {"keys": []}


def test_a_filter_that_suits_only_some_collections_says_which_it_hides(inside: Inside) -> None:
    inside.run("collection", "create", "handbook", "--field", "status=string")
    inside.run("collection", "create", "notes")
    run = inside.run("key", "create", "--filter", '{"status": "final"}')
    assert "shows nothing of notes: the filter doesn't suit its fields" in run.stderr

"""Which names tenants, collections, users and groups may have, and which tenant the settings select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rag.access.names import (
    MAX_ENTRIES,
    MAX_ENTRY_CHARS,
    NAME_LENGTH,
    bare_name,
    check_access,
    valid_entries,
    valid_name,
)
from rag.access.tenants import tenant_of, tenants
from rag.config.server_settings import PrincipalSettings
from rag.config.settings import SearchSettings, Settings
from rag.errors import ConfigurationError
from rag.store.write.desk_folder import forget_tenant, note_tenant, prepare
from tests.refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["a", "documents", "my-notes_2024", "0", "a-b_c", "x" * NAME_LENGTH])
def test_names_of_lower_case_letters_digits_and_single_marks_are_valid(name: str) -> None:
    assert valid_name(name) == name
    assert PrincipalSettings(tenant=name).tenant == name
    assert SearchSettings(collections=(name,)).collections == (name,)


NAMES = "{} names a {}; give the name of a {}."
INVALID = "is not a valid name of a {}"
BAD_NAMES = [
    "",
    "A",
    "a__b",
    "a--b",
    "a-_b",
    "-a",
    "a-",
    "_a",
    "a_",
    "a.b",
    "a/b",
    "../a",
    "a b",
    "ä",
    "a\n",
    "a\x00",
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "٣", "x" * (NAME_LENGTH + 1)])
def test_other_names_are_refused_everywhere_and_the_message_says_what_is_valid(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters and digits, separated by single - or _"):
        valid_name(name)
    with pytest.raises(ValidationError):
        PrincipalSettings(tenant=name)
    with pytest.raises(ValidationError):
        SearchSettings(collections=(name,))


@given(st.text())
def test_the_function_and_the_settings_agree_on_names(name: str) -> None:
    try:
        PrincipalSettings(tenant=name)
    except ValidationError:
        with pytest.raises(ConfigurationError):
            valid_name(name)
    else:
        assert valid_name(name) == name


@pytest.mark.parametrize("name", ["hr", "hr-europe", "hr: all", "Jos\u00e9", "a b", "team:hr"])
def test_a_bare_name_is_taken_as_it_is(name: str) -> None:
    assert bare_name("group", name) == name
    assert bare_name("user", name) == name


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("group", "group:hr", "prefix: hr, not group:hr"),
        ("group", "Group:hr", "prefix: hr, not Group:hr"),
        ("group", "group: hr", "prefix: hr, not group: hr"),
        ("user", "user:ann", "prefix: ann, not user:ann"),
        ("group", "user:ann", NAMES.format("user:ann", "user", "group")),
        ("user", "group:hr", NAMES.format("group:hr", "group", "user")),
        ("group", "group:", "prefix: NAME, not group:"),
        ("group", "", INVALID.format("group")),
        ("user", " ", INVALID.format("user")),
        ("group", "h\nr", INVALID.format("group")),
        ("group", "x" * 251, "up to 250 printable characters"),
    ],
)
def test_an_access_list_entry_in_place_of_a_bare_name_is_refused_with_the_bare_name(
    kind: Literal["user", "group"], name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        bare_name(kind, name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_takes_users_and_groups_and_each_once() -> None:
    entries = ["user:ann", "group:hr", "user:ann", "user:O'Neill", "group:a:b", "user:Łukasz K"]
    assert valid_entries(entries) == set(entries)
    assert valid_entries([]) == frozenset()


def test_a_list_takes_so_many_entries_and_no_more() -> None:
    many = [f"user:{number}" for number in range(MAX_ENTRIES)]
    assert len(valid_entries([*many, *many])) == MAX_ENTRIES
    with pytest.raises(ConfigurationError) as error:
        valid_entries([*many, "user:more"])
    assert str(error.value) == "The access list has 257 entries; the maximum is 256. Use a group instead."


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "ann",
        ":ann",
        "user",
        "user:",
        "user: ",
        "group:\u00a0",
        "User:ann",
        "USER:ann",
        " user:ann",
        "users:ann",
        "role:hr",
        "*",
        "user:a\nb",
        "user:a\x00b",
        "user:a\u202eb",
        "user:a\ud800b",
        "user:" + "x" * (MAX_ENTRY_CHARS - 4),
    ],
    ids=ascii,
)
def test_what_names_no_user_or_group_stands_in_no_list(entry: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        valid_entries(["user:ann", entry])
    shown = repr(entry[:64])
    assert str(error.value) == f"{shown} is not a valid access list entry; write user:NAME or group:NAME."


def test_a_long_name_is_allowed_up_to_its_limit() -> None:
    entry = "user:" + "x" * (MAX_ENTRY_CHARS - 5)
    assert valid_entries([entry]) == {entry}


def test_a_record_for_everybody_allows_nobody_in_particular() -> None:
    check_access("tenant", [], ["user:bob"])
    check_access("restricted", ["group:hr"], [])
    check_access(None, ["group:hr"], ["user:bob"])
    with pytest.raises(ConfigurationError, match="remove allow, or set visibility to restricted"):
        check_access("tenant", ["group:hr"], [])
    for allow, deny in ((["hr"], []), ([], ["hr"])):
        assert refusal(check_access, None, allow, deny) == refusal(valid_entries, ["hr"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    prepare(tmp_path)
    return tmp_path


def _of(data: Path, named: str | None = None) -> str:
    return tenant_of(Settings(data=data, principal=PrincipalSettings(tenant=named)))


def test_without_any_tenant_it_is_the_one_named_or_the_usual_one(tmp_path: Path) -> None:
    assert (_of(tmp_path / "none"), _of(tmp_path / "none", "acme")) == ("default", "acme")


def test_the_only_tenant_needs_no_naming(data: Path) -> None:
    note_tenant(data, "acme")
    assert (tenants(data), _of(data), _of(data, "acme")) == (("acme",), "acme", "acme")


def test_of_several_one_must_be_named(data: Path) -> None:
    note_tenant(data, "beta")
    note_tenant(data, "acme")
    assert (tenants(data), _of(data, "beta")) == (("acme", "beta"), "beta")
    with pytest.raises(ConfigurationError, match=r"2 tenants \(acme, beta\)\. Name one"):
        _of(data)
    forget_tenant(data, "beta")
    assert _of(data) == "acme"


def test_a_name_that_there_is_not_is_refused(data: Path) -> None:
    note_tenant(data, "acme")
    with pytest.raises(ConfigurationError, match=r"no tenant 'acmee' in .*; there are: acme\."):
        _of(data, "acmee")


def test_a_file_that_was_not_finished_is_no_tenant(data: Path) -> None:
    (data / "tenants" / ".acme.new").touch()
    assert tenants(data) == ()

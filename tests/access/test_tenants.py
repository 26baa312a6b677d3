"""Which tenant the settings select."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.access.tenants import tenant_of, tenants
from rag.config.server_settings import PrincipalSettings
from rag.config.settings import Settings
from rag.errors import ConfigurationError
from rag.store.write.desk_folder import forget_tenant, note_tenant, prepare

if TYPE_CHECKING:
    from pathlib import Path


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

"""A wrong data folder is told from an empty desk, and from one that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ConfigurationError
from rag.home import check_data_folder, data_folder_problem
from rag.store.write.desk_folder import prepare

if TYPE_CHECKING:
    from pathlib import Path


def problem(data: Path) -> str:
    with pytest.raises(ConfigurationError) as error:
        check_data_folder(data)
    return str(error.value)


def test_a_folder_that_was_prepared_is_right_though_it_holds_nothing(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert data_folder_problem(tmp_path) is None
    check_data_folder(tmp_path)


def test_a_folder_that_is_not_there_may_be_on_a_drive_be_misnamed_or_still_to_come(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    words = problem(data)
    assert words.startswith(f"There is no data folder {data}. If its drive is not mounted, mount it.")
    assert "--data, REFDESK_DATA, or data in the settings" in words
    assert "run refdesk-admin ingest PATH to create it" in words
    assert not data.parent.exists()


def test_a_link_to_nowhere_leads_to_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert problem(tmp_path / "link").startswith("There is no data folder")


def test_an_empty_folder_may_be_where_a_drive_belongs(tmp_path: Path) -> None:
    words = problem(tmp_path)
    nowhere = problem(tmp_path / "not").partition(". ")[2]
    assert words == f"The data folder {tmp_path} is empty. {nowhere.replace('to create it', 'to fill it')}"


def test_a_file_is_no_folder_and_neither_is_what_is_below_it(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n")
    for data in (file, file / "data"):
        assert problem(data).startswith(f"The data folder {data} is a file, or below one.")


def test_somebody_elses_folder_is_not_offered_for_filling(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    words = problem(tmp_path)
    assert words.startswith(f"{tmp_path} is not a data folder of refdesk.")
    assert "ingest" not in words


@pytest.mark.parametrize("part", ["", "tenants"])
def test_a_folder_without_permission_says_so(plain_folder: Path, part: str) -> None:
    data = plain_folder / "data"
    prepare(data)
    assert data_folder_problem(data) is None
    (data / part).chmod(0)
    try:
        assert problem(data).startswith(f"The data folder {data} can't be read: Permission denied.")
    finally:
        (data / part).chmod(0o700)

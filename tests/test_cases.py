"""Small inputs that failed once (../shared/cases): what each `expected.txt` says, by the commands."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Scripts

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
EXPECTED = "expected.txt"


@dataclass(frozen=True, slots=True)
class Case:
    """A folder, and what a search for each of some words must find in it: the ends of URIs.

    `never` is what no document may have in its metadata.
    """

    folder: str
    finds: Mapping[str, tuple[str, ...]]
    never: Mapping[str, str] = field(default_factory=dict)


TABLE = (
    Case(
        "html-declared-charset",
        {
            "Шапочка обязательна": ("h-windows-1251.html", "h-koi8-r.html"),
            "食堂早餐": ("h-gb2312.html",),
            "温泉旅館": ("h-Shift_JIS.html",),
            "열람실은": ("h-euc-kr.html",),
        },
        never={"encoding": "cp1252"},
    ),
    Case(
        "text-legacy-encodings",
        {
            "食堂早餐时间": ("gbk.txt",),
            "温泉旅館": ("sjis.txt",),
            "열람실은": ("euckr.txt",),
            "βιβλιοθήκη": ("cp1253.txt",),
            "הבריכה": ("cp1255.txt",),
        },
        never={"language": "qu"},
    ),
    Case(
        "mail-unknown-charset",
        {
            "beetroot": ("nested.eml",),
            "הבריכה סגורה": ("m-iso-8859-8-i.eml", "three.mbox#e54537c80fd4f417.eml"),
            "温泉旅館": ("m-windows-31j.eml",),
            "Шапочка обязательна": ("m-unknown-8bit.eml", "m-utf8mb4.eml"),
            "turnips": ("three.mbox#c2e99c95df010916.eml",),
            "parsnips": ("three.mbox#56884b963d06e1d1.eml",),
        },
    ),
)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.folder)
def test_a_small_input_that_failed_is_read_and_found(case: Case, scripts: Scripts, tmp_path: Path) -> None:
    if not (CASES / case.folder).is_dir():
        pytest.skip("the small inputs are not on this machine (../shared/cases)")
    folder, data = tmp_path / case.folder, tmp_path / "desk"
    shutil.copytree(CASES / case.folder, folder, ignore=shutil.ignore_patterns(EXPECTED))
    run = scripts.admin("ingest", folder, "--data", data)
    assert run.returncode == 0, run.stderr
    assert "crashed" not in run.stdout + run.stderr
    listed = json.loads(scripts.admin("sources", "--json", "--data", data).stdout)["sources"]
    assert {Path(source["uri"].partition("#")[0]).name for source in listed} == {
        file.name for file in folder.iterdir()
    }
    by_id = {source["id"]: source["uri"] for source in listed}
    for name, value in case.never.items():
        assert value not in {source["metadata"].get(name) for source in listed}
    for words, ends in case.finds.items():
        answer = json.loads(scripts.admin("search", words, "--json", "--data", data).stdout)
        uris = [by_id[result["id"].partition("/")[0]] for result in answer["results"]]
        assert all(any(end in uri for uri in uris) for end in ends), (words, uris)

"""Small inputs that failed once (../shared/cases): what each `expected.txt` says, by the commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pypdfium2
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
EXPECTED = "expected.txt"
PROSE = 25  # letters of a line of prose: shorter ones are labels, headings and the ends of paragraphs


@dataclass(frozen=True, slots=True)
class Case:
    """A folder, and what a search for each of some words must find in it: the ends of URIs.

    `first` is the title of the first result for some words, and what it is cited as in part. `shown` and
    `unshown` are parts of the texts of files, and `titles` their titles. `never` is what no document may have
    in its metadata.
    """

    folder: str
    finds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unshown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
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
            "הבריכה סגורה": ("m-iso-8859-8-i.eml", "three.mbox#"),
            "温泉旅館": ("m-windows-31j.eml",),
            "Шапочка обязательна": ("m-unknown-8bit.eml", "m-utf8mb4.eml"),
        },
        first={"turnips": ("First", ""), "parsnips": ("Third", "")},
    ),
    Case(
        "csv-sep-line",
        shown={"sep.csv": ("Artikel: Schraube M6\nPreis: 0,12\nLager: 4000",)},
        unshown={"sep.csv": ("sep=",)},
    ),
    Case(
        "docx-legacy-fields",
        shown={
            "inspection.docx": (
                "Fire extinguishers present: [x] yes [ ] no",
                "Asbestos found: [ ] yes [x] no",
                "Overall rating of the boiler room: Unacceptable",
                "Inspector licence: KX-7741",
            )
        },
    ),
    Case(
        "obsidian-notes",
        first=dict.fromkeys(("k8s", "Steuermann", "Kubernetes"), ("Kubernetes", "Kubernetes")),
        shown={"Kubernetes.md": ("Draining nodes",)},
        unshown={"Kubernetes.md": ("%%", "zebra", "^intro")},
        titles={"Kubernetes.md": "Kubernetes"},
    ),
    Case(
        "pdf-form-checkbox",
        shown={
            "pump.pdf": (
                "| Pump type: | Peristaltic |",
                "| Earthed: | [x] |",
                "| Leaking: | [ ] |",
                "| Serial: | ZQ-33190 |",
            )
        },
    ),
    Case(
        "pdf-page-labels",
        first={
            "paraffin lamp burn": ("Foreword", "p. 1 (3 of 5)"),
            "foreword thanks the keepers of the northern coast": ("Foreword", "p. i"),
        },
    ),
    Case(
        "pdf-table-next-page",
        first={"hotel limit for Zagreb": ("Daily allowances abroad", "pp. 1-2")},
        titles={"allowances.pdf": "Daily allowances abroad"},
    ),
    Case("pdf-two-columns", shown={"amt_handbook_sample.pdf": ("Figure 7-26. Self-locking nuts",)}),
    Case("korean-particles", finds=dict.fromkeys(("점심", "식권 경비실", "식당 점심"), ("ko.md",))),
    Case("stringified-arguments", finds={"arsenic": ("who.md",)}),
)


class Desk:
    """A data folder with the inputs of all cases, and what the commands say of it."""

    def __init__(self, scripts: Scripts, folder: Path) -> None:
        self.data, self.inputs, self._scripts = folder / "desk", folder / "misc", scripts
        for case in TABLE:
            shutil.copytree(
                CASES / case.folder, self.inputs / case.folder, ignore=shutil.ignore_patterns(EXPECTED)
            )
        self.run = scripts.admin("ingest", folder, "--embedder", "all-minilm-l6-v2", "--data", self.data)
        self.sources = self.answer("sources")["sources"]

    def answer(self, *arguments: str | Path) -> Any:  # noqa: ANN401 any JSON
        """What a command prints as JSON."""
        return json.loads(self._scripts.admin(*arguments, "--json", "--data", self.data).stdout)

    def of(self, case: Case) -> dict[str, Any]:
        """The documents of a case by their URIs."""
        return {source["uri"]: source for source in self.sources if f"/{case.folder}/" in source["uri"]}

    def text(self, case: Case, name: str) -> str:
        """The whole text of a file, as `source` prints it."""
        path = self.inputs / case.folder / name
        return self._scripts.admin("source", path, "--text", "--data", self.data).stdout

    def hits(self, words: str) -> list[dict[str, Any]]:
        """The results of a search, with the URIs of the files that have them."""
        by_id = {source["id"]: source["uri"] for source in self.sources}
        results = self.answer("search", words)["results"]
        ids = [" ".join((result["id"], *result.get("also_in", ()))) for result in results]
        return [
            result | {"files": [uri for id_, uri in by_id.items() if id_ in named]}
            for result, named in zip(results, ids, strict=True)
        ]

    def replies(self, *lines: str) -> dict[int, Any]:
        """What a server answers to a whole conversation, by the ids of the requests."""
        run = subprocess.run(
            [self._scripts.server, "--data", self.data],
            input="".join(f"{line}\n" for line in lines).encode(),
            env=self._scripts.environment | {"REFDESK_LIMITS_REQUEST_SECONDS": "600"},  # a busy machine's
            capture_output=True,
            check=True,
        )
        answers = map(json.loads, run.stdout.splitlines())
        return {answer["id"]: answer["result"] for answer in answers}


@pytest.fixture(scope="module")
def desk(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    if not CASES.is_dir():
        pytest.skip("the small inputs are not on this machine (../shared/cases)")
    return Desk(scripts, tmp_path_factory.mktemp("cases"))


def test_every_small_input_is_stored_and_nothing_crashes(desk: Desk) -> None:
    assert desk.run.returncode == 0, desk.run.stderr
    assert "crashed" not in desk.run.stdout + desk.run.stderr
    stored = {unquote(source["uri"].partition("#")[0]).rpartition("/")[2] for source in desk.sources}
    assert stored >= {file.name for file in desk.inputs.rglob("*.*")}


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.folder)
def test_a_small_input_that_failed_is_read_and_found(case: Case, desk: Desk) -> None:
    stored = desk.of(case)
    for name, value in case.never.items():
        assert value not in {source["metadata"].get(name) for source in stored.values()}
    for file, title in case.titles.items():
        assert [source["title"] for uri, source in stored.items() if uri.endswith(file)] == [title]
    for words, ends in case.finds.items():
        uris = [uri for result in desk.hits(words) for uri in result["files"]]
        assert all(any(end in uri for uri in uris) for end in ends), (words, uris)
    for words, (title, cited) in case.first.items():
        result = desk.hits(words)[0]
        assert (result["title"], cited in result["cite_as"]) == (title, True), (words, result["cite_as"])
    for file in {**case.shown, **case.unshown}:
        text = desk.text(case, file)
        assert [part for part in case.shown.get(file, ()) if part not in text] == []
        assert [part for part in case.unshown.get(file, ()) if part in text] == []


def test_a_row_of_a_table_that_goes_on_is_shown_under_its_header(desk: Desk) -> None:
    hit = desk.hits("hotel limit for Zagreb")[0]
    header, row = (hit.get("header") or hit["text"]), "| Zagreb | 90 | 11.00 | 170 |"
    assert "| City | Allowance EUR | Breakfast deduction EUR | Hotel limit EUR |" in header
    assert row in hit["text"]


def _letters(text: str) -> str:
    return re.sub(r"[\W\d_]", "", text)


@pytest.mark.parametrize("name", ["amt_handbook_sample.pdf", "multi-column.pdf"])
def test_two_columns_are_read_one_after_the_other(desk: Desk, name: str) -> None:
    """Nearly all lines of prose are followed by the line that follows them in pdfium's own text."""
    case = next(case for case in TABLE if case.folder == "pdf-two-columns")
    text = desk.text(case, name)
    letters, followed, pairs = _letters(text), 0, 0
    with closing(pypdfium2.PdfDocument(desk.inputs / case.folder / name)) as pdf:
        for page in pdf:
            lines = map(_letters, page.get_textpage().get_text_range().splitlines())
            for line, following in pairwise(lines):
                if min(len(line), len(following)) >= PROSE:
                    pairs += 1
                    followed += line[-8:] + following[:8] in letters
    assert followed >= 0.97 * pairs > 0


GREETING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
NATIVE = {
    "query": "arsenic",
    "limit": 2,
    "collections": ["documents"],
    "filter": {"path": {"$prefix": "misc/"}},
}


def _line(id_: int | None, method: str, params: Mapping[str, object]) -> str:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id_ is None else message | {"id": id_})


def test_a_server_takes_a_byte_order_mark_and_arguments_as_strings(desk: Desk) -> None:
    strings = {key: value if isinstance(value, str) else json.dumps(value) for key, value in NATIVE.items()}
    answers = desk.replies(
        "\ufeff" + _line(1, "initialize", GREETING),
        _line(None, "notifications/initialized", {}),
        _line(2, "tools/call", {"name": "search", "arguments": NATIVE}),
        _line(3, "tools/call", {"name": "search", "arguments": strings}),
    )
    assert answers[1]["protocolVersion"] == "2025-06-18"
    native, as_strings = (answers[id_]["structuredContent"]["results"] for id_ in (2, 3))
    assert native == as_strings
    assert native[0]["cite_as"].startswith("WHO guideline on drinking water")

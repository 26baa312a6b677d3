"""The benchmark on somebody's own documents, few of them, and on a folder for each ordinary mishap."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import rag.models.embed
from rag.bench.real import QUESTION_CHARS, as_toml, questions, run_real, sentence
from rag.bench.stock import Sizes
from rag.config.load import load_settings
from rag.config.settings import ChunkingSettings, EmbedderSettings, IngestSettings, SearchSettings, Settings
from rag.corpus import Chunk
from rag.errors import ConfigurationError, NotReadyError, RefdeskError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.bench.measure import Measure

SMALL = Sizes(searches=2, starts=1, rounds=1)
MODEL = Path(rag.models.embed.__file__).parent / "model"


def run(folder: Path, say: Callable[[str], None], settings: Settings | None = None) -> list[Measure]:
    return anyio.run(partial(run_real, folder, settings or Settings(), os.environ, sizes=SMALL, say=say))


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that can change in a folder, itself included."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, b"" if path.is_dir() else path.read_bytes())
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What the run said."""
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Two documents, one that the settings exclude, and a damaged one."""
    made = tmp_path_factory.mktemp("own") / "documents"
    made.mkdir()
    for name in ("gps-time.md", "railway-time.html", "leap-seconds.csv"):
        shutil.copy(corpus / name, made)
    (made / "damaged.pdf").write_bytes(b"%PDF-1.4 rubbish")
    return made


@pytest.fixture(scope="module")
def before(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return state(folder)


@pytest.fixture(scope="module")
def measures(folder: Path, lines: list[str], before: dict[str, object]) -> dict[str, Measure]:
    """A run with an embedder in a folder, and with settings that leave a document out."""
    assert before
    settings = Settings(
        embedder=EmbedderSettings(provider="onnx", path=MODEL), ingest=IngestSettings(exclude=("*.csv",))
    )
    return {one.name: one for one in run(folder, lines.append, settings)}


def test_it_measures_start_search_memory_and_ingestion(measures: dict[str, Measure]) -> None:
    modes, callers = ("dense", "sparse", "hybrid"), ("library", "stdio")
    assert {name.removeprefix("real/"): one.unit for name, one in measures.items()} == {
        "documents": "documents",
        "chunks": "chunks",
        "ingest/whole run": "chunks/s",
        "ingest/peak memory": "MB",
        "disk/per chunk": "bytes",
        "start/first answer": "ms",
        "start/first search": "ms",
        **{f"search/{mode}/{caller}": "ms" for mode in modes for caller in callers},
        **{f"search/{mode}/cpu/{caller}": "ms" for mode in modes for caller in callers},
        "search/reply of ten": "bytes",
        "search/hits of ten": "hits",
        "memory/idle": "MB",
        "memory/working": "MB",
    }


def test_what_can_be_read_is_measured_and_what_the_settings_exclude_is_not(
    measures: dict[str, Measure],
) -> None:
    assert measures["real/documents"].value == 2
    assert measures["real/chunks"].value > 10


def test_its_questions_find_something(measures: dict[str, Measure]) -> None:
    assert measures["real/search/hits of ten"].min >= 1


def test_it_says_how_much_there_is_and_that_it_is_little(
    measures: dict[str, Measure], lines: list[str], folder: Path
) -> None:
    assert measures
    assert lines[0] == f"3 files in {folder}, 0.0 MB"
    assert any(line.startswith("only ") and "too few" in line for line in lines)


def test_the_folder_stays_as_it_was_and_nothing_else_is_left(
    measures: dict[str, Measure], before: dict[str, object], folder: Path, lines: list[str]
) -> None:
    assert measures
    assert state(folder) == before
    (scratch,) = [line.removeprefix("working in ") for line in lines if line.startswith("working in ")]
    assert Path(scratch).parent == Path(tempfile.gettempdir())
    assert not Path(scratch).exists()


@pytest.mark.parametrize("name", ["nothing", "blank.md", "picture.xyz"])
def test_a_folder_without_text_is_named_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    progress: list[str] = []
    own = tmp_path / "own"
    own.mkdir()
    if name != "nothing":
        (own / name).write_bytes(b"\n" if name == "blank.md" else b"\x00\x01")
    with pytest.raises(NotReadyError) as error:
        run(own, progress.append)
    assert str(error.value) == f"There is nothing to measure: {own} has no text that refdesk can read."
    assert not Path(progress[1].removeprefix("working in ")).exists()


def test_if_no_file_can_be_read_the_reasons_are_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.pdf").write_bytes(b"%PDF-1.4 rubbish")
    with pytest.raises(RefdeskError, match=r"failed with exit code 1\. The reasons stand above\."):
        run(tmp_path, lambda _line: None)
    out, err = capfd.readouterr()
    assert "damaged.pdf: the PDF is damaged" in err
    assert out == ""


def test_a_folder_that_has_the_temporary_folder_in_it_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "a.md").write_text("A document.")
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    before = state(tmp_path)
    with pytest.raises(ConfigurationError, match=r"inside lies in .*Set TMPDIR to a folder elsewhere\."):
        run(tmp_path, lambda _line: None)
    assert state(tmp_path) == before


def test_more_than_the_disk_holds_is_refused_and_much_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[str] = []
    with (tmp_path / "huge.md").open("wb") as sparse:
        sparse.truncate(3_000_000_000)
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: used._replace(free=1_000_000))
    with pytest.raises(ConfigurationError, match=r"have 3,000 MB, but .* has only 1 MB left"):
        run(tmp_path, progress.append)
    assert progress[0] == f"1 file in {tmp_path}, 3,000.0 MB"
    assert progress[1].startswith("this can take long: Ctrl-C ends it")


def test_the_settings_for_reading_and_embedding_come_back_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    body = {"deep": {"a b": [1, 2.5, True, 'quoted "text"\x7f\n']}}
    settings = Settings(
        embedder=EmbedderSettings(
            provider="openai",
            model="ünïcode 😀",
            query_prefix="query: ",
            options={"headers_env": {"X-Team": "TEAM"}, "body": body},  # type: ignore[arg-type]
        ),
        ingest=IngestSettings(exclude=("*.tmp", 'odd"name'), archives=True),
        chunking=ChunkingSettings(max_tokens=99),
        search=SearchSettings(limit=3),
    )
    file.write_text(as_toml(settings), encoding="utf-8")
    read = load_settings(file, {})
    assert (read.embedder, read.ingest, read.chunking) == (
        settings.embedder,
        settings.ingest,
        settings.chunking,
    )
    assert read.search == SearchSettings()
    assert as_toml(Settings()) == ""


def passage(text: str, number: int = 0) -> Chunk:
    return Chunk(f"s/{number}", "s", number, 0, len(text), text)


def test_every_fourth_question_is_a_title_and_none_is_asked_twice() -> None:
    passages = [(f"Title {at}", passage(f"Sentence {at} " + "goes on " * 9 + ".", at)) for at in range(500)]
    asked = questions(passages)
    assert len(asked) == len(set(asked)) == 32
    assert [one for one in asked if one.startswith("Title")] == list(asked[3::4])
    assert asked == questions(passages)
    assert questions(passages[:1] * 9) == (sentence(passages[0][1].text), "Title 0")


def test_documents_without_a_word_are_asked_about_all_the_same() -> None:
    assert questions([("---", passage("*** ---"))]) == ("What is this about?",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Oh! The clock of the tower was slow by a minute. So?",
            "The clock of the tower was slow by a minute.",
        ),
        ("short\ntext", "short text"),
        ("word " * 100, ("word " * 20).strip()),
        ("字" * 300, "字" * QUESTION_CHARS),
        ("x" * 300, "x" * QUESTION_CHARS),
        (
            "Version 3.14 of the clock was the first to be right.",
            "Version 3.14 of the clock was the first to be right.",
        ),
    ],
)
def test_a_question_is_the_first_long_sentence_or_the_beginning(text: str, expected: str) -> None:
    assert sentence(text) == expected

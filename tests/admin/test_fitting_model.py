"""Which built-in model a new collection gets: by the languages of its documents, or as somebody asks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rag.admin import ingestion
from rag.admin.ingestion import ChosenEmbedder, chosen_embedder
from rag.config.model_settings import EmbedderSettings
from rag.config.settings import IngestSettings, Settings
from rag.corpus import EmbedderIdentity
from rag.ingest.document_languages import SAMPLED, LanguageSample, fitting_embedder, sample_languages
from rag.ingest.prepare import CHUNK_TOKENS, MULTILINGUAL_CHUNK_TOKENS, usual_tokens
from rag.models.embed.local_embedder import builtin_embedder
from rag.store.write.desk_folder import judged_folder
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

ENGLISH = "Every employee has thirty days of leave in a year, and may take them at any time of the year.\n"
GERMAN = "Jede Angestellte hat dreißig Tage Urlaub im Jahr und kann sie zu jeder Zeit des Jahres nehmen.\n"
RUSSIAN = "Каждый сотрудник имеет право на тридцать дней отпуска в году и может взять их в любое время.\n"
SMALL, MULTILINGUAL = "all-MiniLM-L6-v2", "multilingual-e5-small"


@pytest.mark.parametrize(
    ("counts", "model"),
    [
        ({}, SMALL),
        ({"": 9}, SMALL),
        ({"en": 5, "en-GB": 1, "": 3}, SMALL),
        ({"en": 19, "de": 2}, SMALL),
        ({"en": 18, "de": 2}, MULTILINGUAL),
        ({"en": 9, "de": 1, "": 90}, MULTILINGUAL),
        ({"hi": 1}, MULTILINGUAL),
    ],
)
def test_a_tenth_of_the_documents_in_other_languages_makes_the_difference(
    counts: dict[str, int], model: str
) -> None:
    assert LanguageSample(counts).model == model


@pytest.mark.slow
@pytest.mark.anyio
async def test_files_are_sampled_from_everywhere_and_those_that_cant_be_read_dont_count(
    tmp_path: Path,
) -> None:
    documents = tmp_path / "documents"
    for number in range(4 * SAMPLED):
        folder = documents / f"{number // SAMPLED}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.md").write_text(GERMAN if number // SAMPLED == 2 else ENGLISH)
    sample = await sample_languages([documents], IngestSettings(), tmp_path / "data")
    assert sample.counts == {"en": SAMPLED * 3 // 4, "de": SAMPLED // 4}
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "a.pdf").write_bytes(b"%PDF-1.7 no more")
    (broken / "b.md").write_text(RUSSIAN)
    (broken / "c.py").write_text("def f(x):\n    return x + 1\n")
    (broken / "empty.md").write_text("")
    assert (await sample_languages([broken], IngestSettings(), tmp_path / "data")).counts == {"ru": 1, "": 1}


@pytest.mark.slow
@pytest.mark.anyio
async def test_settings_that_choose_a_model_are_kept_to(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(RUSSIAN)
    name, sample = await fitting_embedder(Settings(data=tmp_path / "data"), [tmp_path])
    assert (name, sample and sample.foreign) == (MULTILINGUAL, 1)
    for embedder in (
        {"model": SMALL},
        {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9"},
    ):
        settings = Settings.model_validate({"data": tmp_path / "data", "embedder": embedder})
        assert await fitting_embedder(settings, [tmp_path]) == ("default", None)
    assert await fitting_embedder(Settings(data=tmp_path / "data"), []) == ("default", None)


@pytest.fixture
def german(tmp_path: Path) -> Path:
    folder = tmp_path / "german"
    folder.mkdir()
    (folder / "urlaub.md").write_text(f"# Urlaub\n\n{GERMAN}")
    (folder / "kantine.md").write_text("# Kantine\n\nDie Kantine gibt von halb zwölf bis zwei Essen aus.\n")
    return folder


@pytest.fixture
def english(tmp_path: Path) -> Path:
    folder = tmp_path / "english"
    folder.mkdir()
    (folder / "leave.md").write_text(f"# Leave\n\n{ENGLISH}")
    return folder


def model_of(desk: Desk, collection: str) -> str:
    model: str = desk.json("collection", "show", collection)["embedder"]["model"]
    return model


@pytest.mark.slow
def test_a_new_collection_gets_the_model_that_fits_and_keeps_it(
    inside: Desk, german: Path, english: Path
) -> None:
    for command in (["--dry-run"], []):
        run = inside.run("ingest", german, "--collection", "handbuch", *command)
        assert f"Embedding model: {MULTILINGUAL}, because 2 of 2 files" in run.stdout
    assert "--embedder all-minilm-l6-v2" in run.stdout
    assert model_of(inside, "handbuch") == MULTILINGUAL
    again = inside.run("ingest", german, english, "--collection", "handbuch")
    assert "Embedding model" not in again.stdout
    assert "collection rebuild" not in again.stderr
    first, *_ = inside.json("search", "When does the canteen serve lunch?", "--collection", "handbuch")[
        "results"
    ]
    assert first["title"] == "Kantine"
    assert f"Embedding model: {SMALL}, because" in inside.run("ingest", english).stdout
    assert inside.json("status")["collections"][0]["embedder_name"] == "default"


@pytest.mark.slow
def test_a_first_run_that_finds_nothing_leaves_the_choice_to_the_next_one(
    inside: Desk, german: Path, tmp_path: Path
) -> None:
    synced = tmp_path / "synced"
    synced.mkdir()
    inside.run("ingest", synced)
    assert inside.json("collection", "list")["collections"] == []
    german.rename(synced / "german")
    assert f"Embedding model: {MULTILINGUAL}" in inside.run("ingest", synced).stdout
    assert model_of(inside, "documents") == MULTILINGUAL


@pytest.mark.slow
def test_a_chunk_is_as_long_as_is_usual_for_its_model(inside: Desk, tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.mkdir()
    (long / "regeln.md").write_text(" ".join(GERMAN.strip() for _ in range(60)))
    size = ("--embedder", MULTILINGUAL, "--chunking", f"structure,max={CHUNK_TOKENS}")
    inside.run("collection", "create", "short", *size)
    for name in ("usual", "short"):
        inside.run("ingest", long, "--collection", name)
        assert model_of(inside, name) == MULTILINGUAL
    usual, short = (inside.sources("--collection", name)[0]["chunks"] for name in ("usual", "short"))
    assert usual < short
    assert usual_tokens(EmbedderIdentity("builtin", MULTILINGUAL, 384)) == MULTILINGUAL_CHUNK_TOKENS
    assert usual_tokens(EmbedderIdentity("openai", MULTILINGUAL, 384)) == CHUNK_TOKENS


@pytest.mark.slow
def test_somebody_may_choose_another_one_for_a_new_collection_alone(inside: Desk, german: Path) -> None:
    chosen = inside.json("ingest", german, "--embedder", "all-minilm-l6-v2")
    assert chosen["embedder"] == ""
    assert model_of(inside, "documents") == SMALL
    inside.run("ingest", german, "--embedder", "all-minilm-l6-v2")
    refused = inside.misuse("ingest", german, "--embedder", MULTILINGUAL)
    assert "refdesk-admin collection rebuild documents --model multilingual-e5-small" in refused
    unknown = inside.misuse("ingest", german, "--embedder", "swiss", "--collection", "new")
    assert "no embedder 'swiss'" in unknown
    assert [row["name"] for row in inside.json("collection", "list")["collections"]] == ["documents"]


@pytest.mark.slow
def test_a_run_tells_once_that_the_english_model_doesnt_fit_any_more(
    inside: Desk, german: Path, english: Path
) -> None:
    rebuild = f"refdesk-admin collection rebuild documents --model {MULTILINGUAL}"
    assert rebuild not in inside.run("ingest", english).stderr
    assert rebuild in inside.run("ingest", german).stderr
    assert rebuild not in inside.run("ingest", german).stderr
    inside.run(*rebuild.split()[1:])
    assert model_of(inside, "documents") == MULTILINGUAL
    hits = inside.hits("Сколько дней отпуска?")
    assert hits[0]["title"] in {"Urlaub", "Leave"}
    inside.run(*rebuild.split()[1:3], "documents", "--undo")
    assert model_of(inside, "documents") == SMALL


@pytest.mark.slow
def test_who_has_judged_questions_is_told_how_to_measure_both_models_on_them(
    inside: Desk, german: Path, english: Path
) -> None:
    questions = judged_folder(inside.data, "default") / "own.jsonl"
    inside.run("ingest", english)
    questions.parent.mkdir(parents=True)
    questions.write_text(json.dumps({"text": "Сколько дней отпуска?", "expect": ["urlaub.md"]}) + "\n")
    warnings = inside.run("ingest", german).stderr
    assert f"--questions {questions}" in warnings
    rebuild = ("collection", "rebuild", "documents", "--model", MULTILINGUAL, "--questions", questions)
    figures = inside.json(*rebuild)
    assert len(figures["runs"]) == 2
    assert "difference" in json.dumps(figures["comparison"])


@pytest.mark.slow
def test_a_collection_that_another_run_makes_meanwhile_keeps_its_model(
    inside: Desk, german: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []

    async def choose(settings: Settings, tenant: str, name: str, *arguments: Any) -> ChosenEmbedder:  # noqa: ANN401 any
        choice = await chosen_embedder(settings, tenant, name, *arguments)
        chosen.append(choice.name)
        if not choice.collection:  # now somebody else's run makes it
            english = builtin_embedder(EmbedderSettings()).identity
            await ensure_collection(settings.data, tenant, name, english)
        return choice

    monkeypatch.setattr(ingestion, "chosen_embedder", choose)
    run = inside.run("ingest", german)
    assert run.stdout.startswith("2 added")
    assert "Embedding model" not in run.stdout
    assert chosen == [MULTILINGUAL, "default"]
    assert model_of(inside, "documents") == SMALL

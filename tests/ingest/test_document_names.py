"""The names under which people know a document find it: title, file name, aliases and tags."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.config.settings import IngestSettings, SearchSettings
from rag.corpus import Access, Build, Chunking, Collection, Principal, Source
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Progress
from rag.ingest.requested_access import Rights
from rag.ingest.rework_stored import change_language, rebuild
from rag.search.desk import Desk
from rag.search.reply.search_reply import search_reply
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import terms_of
from rag.store.write.access_writer import change_access
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.small_desk import BagOfWords, Counting

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("without_compaction", "parsing_here")]

KUBERNETES = """---
aliases: [k8s, Steuermann]
tags: [infra, area/cellar]
---
Cordon a node before you drain it.
"""
PLAN = "# Backup plan\n\nSnapshots run at two.\n"
ANYBODY, ANN = Principal("default"), Principal("default", "ann")


@dataclass(frozen=True, slots=True)
class Notes:
    """A folder of notes, and the data folder that they are ingested into."""

    folder: Path
    data: Path
    embedder: Counting = field(default_factory=lambda: Counting(BagOfWords()))

    def write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, encoding="utf-8")

    async def ingest(self, texts: Mapping[str, str] | None = None, *, archives: bool = False) -> None:
        """Write these notes, and ingest all."""
        self.write(texts or {})
        collection = await ensure_collection(self.data, "default", "documents", self.embedder.identity)
        instructions = Instructions(IngestSettings(archives=archives), Rights("tenant"))
        async with open_writer(self.data, collection) as writer:
            await ingest(writer, self.embedder, [self.folder], instructions, Progress())

    async def collection(self) -> Collection:
        (collection,) = await DeskReader(self.data, timeout_seconds=15).collections("default")
        return collection

    async def answer(self, query: str, *, mode: Mode = "sparse", principal: Principal = ANYBODY) -> Answer:
        desk = Desk(DeskReader(self.data, timeout_seconds=15), BagOfWords(), SearchSettings())
        return await desk.search(principal, SearchRequest(query, mode=mode))

    async def named(self, query: str, *, mode: Mode = "sparse", principal: Principal = ANYBODY) -> list[str]:
        """The paths of what a query finds, best first, each once."""
        answer = await self.answer(query, mode=mode, principal=principal)
        return list(dict.fromkeys(hit.source.name for hit in answer.hits))

    async def terms(self) -> dict[str, set[str]]:
        """The words in the index of each document's passages, by path."""
        reader = DeskReader(self.data, timeout_seconds=15)
        table = await reader.open(*await reader.collections("default"))
        paths = {source.id: source.name for source in await table.listing()}
        rows = await table.chunk_rows(lambda query: query.select(["source_id", "terms"]))
        return {paths[row["source_id"]]: {*row["terms"].split()} for row in rows.to_pylist()}


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    (tmp_path / "notes").mkdir()
    return Notes(tmp_path / "notes", tmp_path / "data")


def source(title: str = "T", **metadata: str) -> Source:
    """A source of which only the names matter."""
    return Source("s", "documents", "file:///s", title, "", "", 1, 1, datetime.now(UTC), metadata=metadata)


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({}, []),
        ({"path": "it/kube-notes.md"}, ["kube-notes"]),
        ({"path": "2024-03-01_minutes.pdf"}, ["2024-03-01_minutes"]),
        ({"path": "Москва.md"}, ["Москва"]),
        ({"path": "v1.2"}, ["v1.2"]),
        ({"path": ".profile"}, [".profile"]),
        ({"path": "mails.zip/june/Dr. Smith.eml"}, ["Dr. Smith"]),
        ({"path": "example.org/a/setup?b=c/d"}, ["setup"]),
        ({"path": "example.org/index?b=c"}, []),
        ({"path": "Why? Notes.md"}, ["Why? Notes"]),
        ({"path": "?=" * 100_000 + " .md"}, [("?=" * 100)]),
        ({"path": "a/README.md"}, []),
        ({"path": "index.html"}, []),
        ({"path": "7/document (2).md"}, []),
        ({"path": "readme-first.md"}, ["readme-first"]),
        ({"aliases": "k8s, Steuermann"}, ["k8s, Steuermann"]),
        ({"Alias": "k8s", "TAGS": "infra"}, ["k8s", "infra"]),
        ({"tags": "x" * 500}, ["x" * 200]),
        ({"author": "Ann", "keywords": "spam", "language": "en"}, []),
    ],
)
def test_names_are_the_title_a_telling_file_name_the_aliases_and_the_tags(
    metadata: dict[str, str], names: list[str]
) -> None:
    assert source("Title", **metadata).names.split("\n") == ["Title", *names]


def test_words_of_names_are_added_where_the_text_lacks_them_and_those_of_aliases_count_three_times() -> None:
    stored_source = source("Nodes", path="kube.md", aliases="k8s", tags="node, infra")
    assert (
        terms_of("Nodes drain", "English", stored_source)
        == "node drain kube k 8 s infra k8s" + 2 * " k 8 s k8s"
    )
    assert terms_of("Nodes drain", "English") == "node drain"
    assert terms_of("k8s", "English", source("k8s", aliases="k8s")).split().count("k8s") == 3


@pytest.mark.slow
async def test_a_note_is_found_by_each_of_its_names_and_that_counts_as_an_answer(notes: Notes) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES, "Backup plan.md": PLAN})
    modes: tuple[Mode, ...] = ("sparse", "hybrid")
    for query in ("k8s", "Steuermann", "Kubernetes", "infra", "cellar", "#area/cellar"):
        for mode in modes:
            answer = await notes.answer(query, mode=mode)
            assert answer.hits[0].source.name == "Kubernetes.md", query
            assert not answer.notes, query
        assert (await notes.named(query))[1:] == [], f"another note has {query}"


async def test_a_name_is_evidence_that_a_note_answers(notes: Notes) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES, "Backup plan.md": PLAN})
    thresholds = SearchSettings.model_validate({"thresholds": {"min_evidence": 0.25}})
    desk = Desk(DeskReader(notes.data, timeout_seconds=15), BagOfWords(), thresholds)
    by_query = {
        query: (await desk.search(ANYBODY, SearchRequest(query, mode="hybrid"))).notes
        for query in ("infra", "zebra")
    }
    assert by_query == {"infra": (), "zebra": (UNGROUNDED,)}


@pytest.mark.slow
async def test_a_note_comes_before_those_that_mention_its_alias(notes: Notes) -> None:
    logs = {f"log {day}.md": f"# Monday {day}\n\nThe k8s is slow, k8s!\n" for day in range(5)}
    await notes.ingest({"Kubernetes.md": KUBERNETES, **logs})
    first, *later_names = await notes.named("k8s")
    assert first == "Kubernetes.md"
    assert {*later_names} == {*logs}


async def test_a_file_name_that_says_nothing_is_no_word_of_the_document(notes: Notes) -> None:
    await notes.ingest({"a/README.md": "# Pumps\n\nA pump.\n", "b/orca.md": "# Portal\n\nA door.\n"})
    assert await notes.named("readme") == []
    assert await notes.named("orca") == ["b/orca.md"]


async def test_names_are_neither_embedded_nor_shown(notes: Notes) -> None:
    await notes.ingest({"it/orca.md": "---\ntags: [infra]\n---\n# Portal\n\nA door.\n"})
    assert not any("orca" in text or "infra" in text for text in notes.embedder.texts)
    (hit,) = (await notes.answer("orca")).hits
    assert hit.text == "# Portal\n\nA door."


@pytest.mark.slow
async def test_a_renamed_file_is_found_by_its_new_name_alone_and_nothing_is_embedded(notes: Notes) -> None:
    await notes.ingest({"it/orca.md": "# Portal\n\nA door.\n", "plan.md": PLAN})
    notes.embedder.texts.clear()
    (notes.folder / "it/orca.md").rename(notes.folder / "it/beluga.md")
    await notes.ingest()
    assert (await notes.named("orca"), await notes.named("beluga")) == ([], ["it/beluga.md"])
    assert notes.embedder.texts == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sparse", "exact"])
async def test_what_people_read_above_a_note_is_found_by_its_words_and_a_change_of_it_counts(
    notes: Notes, mode: Mode
) -> None:
    text = "---\nphone: '5550192'\n---\n# Ann\n\nSings.\n"
    await notes.ingest({"Ann.md": text, "Bo.md": "# Bo\n\nSings.\n"})
    assert await notes.named("5550192", mode=mode) == ["Ann.md"]
    await notes.ingest({"Ann.md": text.replace("5550192", "5550377")})
    assert await notes.named("5550192", mode=mode) == []
    assert await notes.named("5550377", mode=mode) == ["Ann.md"]


@pytest.mark.slow
async def test_names_stay_when_the_words_are_analysed_in_another_language(notes: Notes) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES, "Uhren.md": "# Zeit\n\nEs ist spät.\n"})
    async with open_writer(notes.data, await notes.collection()) as writer:
        await change_language(writer, "German")
    assert await notes.named("infra") == ["Kubernetes.md"]
    assert await notes.named("Uhr") == ["Uhren.md"], "names are analysed in this language, too"


@pytest.mark.slow
@pytest.mark.parametrize("chunking", [(), (Chunking("sentence", max_tokens=32),)])
async def test_a_rebuild_writes_the_words_of_names_and_keeps_aliases_in_what_is_embedded(
    notes: Notes, chunking: tuple[Chunking, ...]
) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES})
    async with open_writer(notes.data, await notes.collection()) as writer:
        await writer._chunks.update({"terms": "node"})  # noqa: SLF001 as an earlier version left it
    assert await notes.named("infra") == []
    notes.embedder.texts.clear()
    async with open_writer(notes.data, await notes.collection()) as writer:
        coming = Build(2, notes.embedder.identity, "default", chunking)
        await rebuild(writer, coming, notes.embedder)
    assert await notes.named("infra") == ["Kubernetes.md"]
    assert any("Kubernetes (k8s, Steuermann)" in text for text in notes.embedder.texts)


async def _not_yet() -> bool:
    return False


@pytest.mark.slow
async def test_a_rebuild_that_goes_on_has_the_names_of_files_that_were_renamed_meanwhile(
    notes: Notes,
) -> None:
    await notes.ingest({"it/orca.md": "# Portal\n\nA door.\n"})
    coming = Build(2, notes.embedder.identity, "default")
    async with open_writer(notes.data, await notes.collection()) as writer:
        await rebuild(writer, coming, notes.embedder, approved=_not_yet)
    (notes.folder / "it/orca.md").rename(notes.folder / "it/beluga.md")
    await notes.ingest()
    async with open_writer(notes.data, await notes.collection()) as writer:
        assert (await rebuild(writer, coming, notes.embedder)).switched
    assert (await notes.named("orca"), await notes.named("beluga")) == ([], ["it/beluga.md"])


@pytest.mark.slow
async def test_words_of_an_earlier_version_get_names_by_setting_the_language_that_they_have(
    notes: Notes,
) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES})
    async with open_writer(notes.data, await notes.collection()) as writer:
        await writer._chunks.update({"terms": "node"})  # noqa: SLF001 as an earlier version left it
    assert await notes.named("infra") == []
    async with open_writer(notes.data, await notes.collection()) as writer:
        await change_language(writer, "auto")
    assert await notes.named("infra") == ["Kubernetes.md"]


@pytest.mark.slow
async def test_a_name_finds_a_document_for_those_who_may_read_it_only(notes: Notes) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES, "plan.md": PLAN})
    (hit,) = (await notes.answer("infra")).hits
    for_ann = Access("restricted", frozenset({"user:ann"}))
    await change_access(notes.data, "default", [hit.source.id], lambda _before: for_ann)
    for query in ("infra", "k8s", "Steuermann"):
        assert await notes.named(query) == []
        assert await notes.named(query, principal=ANN) == ["Kubernetes.md"]


async def test_no_other_document_has_the_words_of_a_name(notes: Notes) -> None:
    await notes.ingest({"Kubernetes.md": KUBERNETES, "plan.md": PLAN})
    terms = await notes.terms()
    assert {"infra", "steuermann"} <= terms["Kubernetes.md"]
    assert not {"infra", "steuermann", "kubernet"} & terms["plan.md"]


@pytest.mark.slow
async def test_a_file_beside_a_document_names_it(notes: Notes) -> None:
    sidecar = 'tags = ["infra"]\naliases = ["the, beast"]\n'
    await notes.ingest({"pump.txt": "It turns.", "pump.txt.meta.toml": sidecar, "plan.txt": "It rests."})
    assert await notes.named("infra") == ["pump.txt"]
    assert await notes.named("beast") == ["pump.txt"]


@pytest.mark.slow
async def test_a_file_in_an_archive_is_found_by_its_own_name(notes: Notes) -> None:
    with zipfile.ZipFile(notes.folder / "june.zip", "w") as archive:
        archive.writestr("deep/orca.md", "# Portal\n\nA door.\n")
    await notes.ingest(archives=True)
    (path,) = await notes.named("orca")
    assert path.endswith("deep/orca.md")
    assert await notes.named("june") == []


@pytest.mark.slow
async def test_two_notes_with_one_title_are_cited_with_their_folders_where_a_reply_has_both(
    notes: Notes,
) -> None:
    plans = {"hr/plan.md": "# Plan\n\nHolidays in May.\n", "it/plan.md": "# Plan\n\nServers in May.\n"}
    await notes.ingest({**plans, "menu.md": "# Menu\n\nSoup in May.\n"})
    cited = {result.cite_as for result in search_reply(await notes.answer("May"), None).results}
    assert cited == {"Plan (hr)", "Plan (it)", "Menu"}
    (alone,) = search_reply(await notes.answer("servers"), None).results
    assert alone.cite_as == "Plan"

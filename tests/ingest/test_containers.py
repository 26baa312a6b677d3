"""Files that contain others, and how they are not opened again while they stay the same."""

from __future__ import annotations

import io
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from rag.config.settings import AccessRule, IngestSettings
from rag.corpus import Access
from rag.errors import ParseError
from rag.ingest import containers
from rag.ingest.containers import CACHE_FILE, ContainerCache, Spool, inner_path, open_containers
from rag.ingest.discover import discover
from rag.ingest.parse.archive_files import members
from rag.ingest.parse.decode import BINARY
from rag.ingest.parse.document_parts import UniqueNames
from rag.ingest.report import Report
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.ingest.sandbox import parser_pool
from tests.ingest.shelf import Shelf, keep, mail, restore, zipped

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("without_compaction")]


# Files that contain documents: what comes out of them, who may see it, and what becomes of it
# later.


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path) -> Shelf:
    (tmp_path / "docs").mkdir()
    return Shelf(small_desk, tmp_path / "docs", tmp_path / "data")


PARTS_STAY = "its stored parts stay"
OPEN, HR = "open to the tenant", "restricted to group:hr"
ONLY_HR = Access("restricted", frozenset({"group:hr"}), revision=1)


def _failed(report: Report, shelf: Shelf) -> dict[str, tuple[str, str | None]]:
    start = f"{shelf.folder}/"
    return {
        outcome.path.removeprefix(start): (outcome.reason, outcome.cause)
        for outcome in report.outcomes
        if outcome.outcome == "skipped"
    }


@pytest.mark.slow
async def test_parts_are_sources_of_their_own_and_follow_their_container(shelf: Shelf) -> None:
    plan = b"# The plan\n\nThe pendulum.\n"
    shelf.write("x.zip", zipped({"june/a.eml": mail(plan_md=plan, logo_png=b"\x89PNG"), "b.md": b"# B\n\nb"}))
    report = await shelf.ingest()
    paths = {"x.zip/june/a.eml", "x.zip/june/a.eml/plan.md", "x.zip/b.md"}
    assert (set(shelf.records), report.complete) == (paths, True)
    assert not (shelf.data / "spool").exists()
    assert (await shelf.ingest()).counts["unchanged"] == 3
    before = {name.removeprefix("x.zip"): id_ for name, id_ in shelf.ids.items()}
    (shelf.folder / "x.zip").rename(shelf.folder / "y.zip")
    report = await shelf.ingest()
    assert {name.removeprefix("y.zip"): id_ for name, id_ in shelf.ids.items()} == before
    assert report.counts["moved"] == 3
    shelf.write("y.zip", zipped({"b.md": b"# B\n\nb"}))
    report = await shelf.ingest()
    assert (set(shelf.records), report.counts["removed"]) == ({"y.zip/b.md"}, 2)
    (shelf.folder / "y.zip").unlink()
    shelf.write("logo.xyz", b"not read, but the folder isn't empty")
    await shelf.ingest()
    assert not shelf.records


@pytest.mark.slow
async def test_what_is_stored_of_a_container_stays_while_it_can_not_be_opened(shelf: Shelf) -> None:
    shelf.write("x.zip", zipped({"a.md": b"# A\n\na"}))
    await shelf.ingest()
    whole = (shelf.folder / "x.zip").read_bytes()
    shelf.write("x.zip", whole[:60])
    report = await shelf.ingest()
    assert _failed(report, shelf) == {"x.zip": (f"the archive is damaged; {PARTS_STAY}", "damaged")}
    assert shelf.records.keys() == {"x.zip/a.md"}
    shelf.write("x.zip", whole)
    report = await shelf.ingest(archives=False)
    assert (set(shelf.records), len(report.notes)) == ({"x.zip/a.md"}, 1)
    assert "Add --archives" in report.notes[0]


async def test_a_part_is_no_more_widely_visible_than_its_container(shelf: Shelf) -> None:
    shelf.write("a.eml", mail(plan_md=b"---\nvisibility: tenant\n---\n# The plan\n\nThe pendulum.\n"))
    shelf.write("a.eml.meta.toml", b'allow = ["group:hr"]\n')
    shelf.write("x.zip", zipped({"in/b.md": b"# B\n\nb", "in/b.md.meta.toml": b'deny = ["user:bob"]\n'}))
    shelf.write("x.zip.meta.toml", b'visibility = "restricted"\nallow = ["group:hr"]\n')
    shelf.write("open.md", b"# Open\n\nopen")
    await shelf.ingest(Rights("tenant", of_documents=True))
    assert shelf.records == {
        "a.eml": HR,
        "a.eml/plan.md": HR,
        "x.zip/in/b.md": "restricted to group:hr but never to user:bob",
        "open.md": OPEN,
    }


async def test_rules_for_a_container_count_for_its_parts(shelf: Shelf) -> None:
    shelf.write("pay.zip", zipped({"a.md": b"# A\n\na"}))
    shelf.write("other.zip", zipped({"pay/b.md": b"# B\n\nb", "c.md": b"# C\n\nc"}))
    hr, all_ = {"visibility": "restricted", "allow": ["group:hr"]}, {"visibility": "tenant"}
    rules = [{"path": "pay.zip"} | hr, {"path": "*/a.md"} | all_, {"path": "other.zip/pay/*"} | hr]
    rights = Rights("tenant", rules=tuple(AccessRule.model_validate(rule) for rule in rules))
    await shelf.ingest(rights)
    assert shelf.records == {"pay.zip/a.md": HR, "other.zip/pay/b.md": HR, "other.zip/c.md": OPEN}


@pytest.mark.slow
async def test_what_is_taken_from_a_container_is_taken_from_its_parts_in_the_next_run(shelf: Shelf) -> None:
    shelf.write("a.eml", mail(plan_md=b"# Plan\n\nplan"))
    await shelf.ingest()
    assert set(shelf.records.values()) == {OPEN}
    await shelf.set_access("a.eml", ONLY_HR)
    report = await shelf.ingest()
    assert shelf.records == {"a.eml": HR, "a.eml/plan.md": HR}
    assert [outcome.reason for outcome in report.outcomes if outcome.path.endswith("plan.md")] == [
        f"now {HR}: as what contains it"
    ]
    shelf.write("a.eml", mail(plan_md=b"# Plan\n\nplan", more_md=b"# More\n\nmore"))
    await shelf.ingest()
    assert shelf.records["a.eml/more.md"] == HR


@pytest.mark.slow
async def test_it_is_told_once_why_an_attachment_has_narrower_rights(shelf: Shelf) -> None:
    shelf.write("hr/plan.md", b"# Plan\n\nplan")
    shelf.write("open.md", b"# Open\n\nopen")
    await shelf.ingest()
    await shelf.set_access("hr/plan.md", ONLY_HR)
    shelf.write("a.eml", mail(copy_md=b"# Plan\n\nplan"))
    reasons = [[outcome.reason for outcome in (await shelf.ingest()).outcomes] for _ in range(2)]
    assert (shelf.records["a.eml"], shelf.records["a.eml/copy.md"]) == (OPEN, HR)
    assert [any(HR in reason for reason in run) for run in reasons] == [True, False]


@pytest.mark.slow
async def test_the_attachments_of_a_copy_are_as_narrow_as_the_copy_from_the_first_moment(
    shelf: Shelf,
) -> None:
    shelf.write("a.eml", mail(plan_md=b"# Plan\n\nplan"))
    await shelf.ingest()
    await shelf.set_access("a.eml", ONLY_HR)  # its attachment follows only in the next run
    shelf.write("b.eml", (shelf.folder / "a.eml").read_bytes())
    await shelf.ingest()
    assert set(shelf.records.values()) == {HR}


@pytest.mark.slow
async def test_a_command_that_restricts_a_folder_restricts_what_is_in_its_containers(shelf: Shelf) -> None:
    shelf.write("x.zip", zipped({"a.md": b"# A\n\na"}))
    await shelf.ingest(Rights("tenant", RequestedAccess(allow=("group:hr",))))
    shelf.write("x.zip", zipped({"a.md": b"# A\n\na", "b.md": b"# B\n\nb"}))
    await shelf.ingest()
    assert shelf.records == {"x.zip/a.md": HR, "x.zip/b.md": HR}


async def test_hostile_members_are_a_line_each_and_the_others_come_in(shelf: Shelf) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, kind in (
            ("link.md", tarfile.SYMTYPE),
            ("pipe.md", tarfile.FIFOTYPE),
            ("dev", tarfile.CHRTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        for name in ("/abs.md", "../up.md", "a/../../up.md", "good.md", "good.md", "c:\\x.md", "fake.md"):
            data = b"\x7fELF\x02\x01\x01" + bytes(200) if name == "fake.md" else b"# Good\n\ngood"
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    shelf.write("x.tar.gz", out.getvalue())
    report = await shelf.ingest()
    assert shelf.records.keys() == {"x.tar.gz/good.md", "x.tar.gz/good (2).md"}
    outside = ("its name leads out of the file that contains it", "unsupported")
    special = ("a link, a device or a file with holes", "unsupported")
    assert _failed(report, shelf) == {
        "x.tar.gz/link.md": special,
        "x.tar.gz/pipe.md": special,
        "x.tar.gz/dev": special,
        "x.tar.gz//abs.md": outside,
        "x.tar.gz/../up.md": outside,
        "x.tar.gz/a/../../up.md": outside,
        "x.tar.gz/c:\\x.md": outside,
        "x.tar.gz/fake.md": (BINARY, "unsupported"),
    }


@pytest.mark.slow
async def test_hostile_archives_are_a_line_each_in_the_report(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "SMALL_BYTES", 1 << 20)
    monkeypatch.setattr(containers, "MAX_MEMBERS", 50)
    nest = zipped({"deep.md": b"# Deep\n\ndeep"})
    for _ in range(3):
        nest = zipped({"in.zip": nest, "a.md": b"# A\n\na"})
    shelf.write("nest.zip", nest)
    shelf.write("many.zip", zipped({f"{number}.md": b"# M\n\nm" for number in range(60)}))
    shelf.write("bomb.zip", zipped({f"{number}.txt": b"a" * 700_000 for number in range(3)}))
    shelf.write("huge.zip", zipped({"huge.txt": bytes(65 << 20)}))
    report = await shelf.ingest()
    assert _failed(report, shelf) == {
        "nest.zip/in.zip/in.zip/in.zip": ("files in files are opened 3 deep at most", "too large"),
        "many.zip": ("it holds more than 50 files", "too large"),
        "bomb.zip": ("it unpacks to more than 1 MB", "too large"),
        "huge.zip/huge.txt": ("unpacked it takes over 64 MB", "too large"),
    }
    assert sum(1 for name in shelf.records if name.startswith("many.zip/")) == 50
    assert "nest.zip/in.zip/in.zip/a.md" in shelf.records


@pytest.mark.slow
async def test_a_member_that_is_too_large_is_refused_before_it_takes_room(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.write("x.zip", zipped({"a.md": b"# A\n\na"}))
    await shelf.ingest()
    inner = zipped({f"{number}.md": b"# B\n\nb" for number in range(40)})
    files = {
        "a.md": b"a" * 4_000,
        "b.md": b"b" * 4_000,
        "c.md": b"# C\n\nc",
        "c.md.meta.toml": b"#" * 900_000,
    }
    shelf.write("x.zip", zipped({**files, "in.zip": inner}))
    report = await shelf.ingest(max_file_bytes=2_000)
    failed = _failed(report, shelf)
    named = {
        "x.zip/a.md": "ingest.max_file_bytes",
        "x.zip/b.md": "ingest.max_file_bytes",
        "x.zip/c.md": "64 kB",
    }
    assert {path: cause for path, (_, cause) in failed.items()} == dict.fromkeys(named, "too large")
    assert [path for path, (reason, _) in failed.items() if named[path] not in reason] == []
    assert [path for path, (reason, _) in failed.items() if "earlier version" in reason] == ["x.zip/a.md"]
    assert shelf.records.keys() == {"x.zip/a.md", *(f"x.zip/in.zip/{number}.md" for number in range(40))}
    settings = IngestSettings(archives=True, max_file_bytes=2_000)
    discovery, opened = discover([shelf.folder], settings), ContainerCache("", {}, {}, Rights("tenant"))
    await open_containers(discovery, Spool(tmp_path / "spool"), settings, (), opened)
    sizes = sorted(file.stat().st_size for file in (tmp_path / "spool").iterdir())
    assert sizes[-2:] == [len(inner), 64_001]


class Counted(list[str]):
    """A list that notes how often somebody goes through it."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()

    def __contains__(self, member: object) -> bool:
        self.times += 1
        return super().__contains__(member)


async def test_members_that_can_not_be_opened_are_not_looked_for_each_in_all_that_is_stored(
    tmp_path: Path,
) -> None:
    (folder := tmp_path / "docs").mkdir()
    broken = {f"{number}.tar": b"no tar" for number in range(60)}
    (folder / "x.zip").write_bytes(zipped(broken))
    settings, uri = IngestSettings(archives=True), (folder / "x.zip").as_uri()
    discovery, opened = discover([folder], settings), ContainerCache("", {}, {}, Rights("tenant"))
    stored = [f"{uri}#{number}.tar/a.md" for number in range(0, 60, 2)]
    known_uris = Counted([*stored, "file:///d/y.zip#0.md"])
    await open_containers(discovery, Spool(tmp_path / "spool"), settings, known_uris, opened)
    assert known_uris.times < 10, "each member is looked for in all that is stored"
    skipped = [outcome.path for outcome in discovery.outcomes if PARTS_STAY in outcome.reason]
    assert len(skipped) == len(stored)


async def test_hundreds_of_members_may_have_one_name(tmp_path: Path) -> None:
    (folder := tmp_path / "docs").mkdir()
    with zipfile.ZipFile(folder / "x.zip", "w") as archive, warnings.catch_warnings(action="ignore"):
        for _ in range(500):
            archive.writestr("a.md", "a")
    settings = IngestSettings(archives=True)
    discovery, opened = discover([folder], settings), ContainerCache("", {}, {}, Rights("tenant"))
    await open_containers(discovery, Spool(tmp_path / "spool"), settings, (), opened)
    names = [file.path.name for file in discovery.files.values()]
    assert (names[:3], len(names)) == (["a.md", "a (2).md", "a (3).md"], 500)


def test_a_number_tells_names_apart_that_are_taken() -> None:
    names = UniqueNames()
    names.add(["a (3).md"])
    names_taken = [
        names.take(name)
        for name in ("d/a.md", "a.md", "d/a.md", "a.md", "a.md", "a (2).md", "b.tar.gz", "b.tar.gz")
    ]
    assert names_taken == [
        "d/a.md",
        "a.md",
        "d/a (2).md",
        "a (2).md",
        "a (4).md",
        "a (2) (2).md",
        "b.tar.gz",
        "b.tar (2).gz",
    ]


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_every_kind_of_archive_gives_its_files(compression: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        entry = tarfile.TarInfo("a/b.md")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    (member,) = members(out.getvalue(), "x.tar")
    assert (member.name, member.data) == ("a/b.md", b"text")


def test_an_archive_of_nothing_known_is_damaged() -> None:
    for data in (b"PK\x03\x04", b"\x1f\x8b\x08", b"no archive", b""):
        with pytest.raises(ParseError):
            list(members(data, "x.zip"))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b.md", "a/b.md"),
        ("./a//b.md", "a/b.md"),
        ("a\\b.md", "a/b.md"),
        ("%2e%2e/a.md", "%2e%2e/a.md"),
        ("-rf.md", "-rf.md"),
        ("", None),
        ("..", None),
        ("a/..", None),
        ("..\\a.md", None),
        ("\\\\server\\a.md", None),
        ("a\0.md", None),
    ],
)
def test_no_name_leads_out_of_its_container(name: str, path: str | None) -> None:
    assert inner_path(name) == path


# Containers that did not change aren't opened again, and yet all that changed around them counts.


def fill(shelf: Shelf) -> None:
    """Put an archive and two mails on it."""
    plan = mail(plan_md=b"# The plan\n\nThe pendulum.\n")
    shelf.write("x.zip", zipped({"june/a.eml": plan, "b.md": b"# B\n\nb", "c.bin": b"\0", "d.txt": b""}))
    shelf.write("e.eml", mail("Another.", more_md=b"# More\n\nmore"))
    shelf.write("f.eml", mail("Alone."))


@pytest.fixture(scope="module")
def stock(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """A filled shelf after its first run."""
    place = tmp_path_factory.mktemp("stock") / "place"
    shelf = Shelf(small_desk, place / "docs", place / "data")
    fill(shelf)
    anyio.run(shelf.ingest)
    keep(place)
    return shelf


@pytest.fixture
def stocked(stock: Shelf) -> Shelf:
    """A filled shelf after its first run, which the test may change."""
    restore(stock.folder.parent)
    return replace(stock, records={**stock.records}, ids={**stock.ids})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the containers that were opened."""
    names: list[str] = []
    real = parser_pool.members_safely

    async def noted(data: bytes, name: str, *arguments: object, **more: object) -> None:
        names.append(name)
        await real(data, name, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(containers, "members_safely", noted)
    return names


def lines(report: Report, *kinds: str) -> list[tuple[str, str, str, str]]:
    return sorted(
        (outcome.path, outcome.outcome, outcome.reason, outcome.kind)
        for outcome in report.outcomes
        if outcome.outcome in kinds
    )


@pytest.mark.slow
async def test_an_unchanged_container_is_read_and_not_opened(shelf: Shelf, opened: list[str]) -> None:
    fill(shelf)
    first = await shelf.ingest()
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]
    opened.clear()
    records = dict(shelf.records)
    second = await shelf.ingest()
    assert not opened
    assert (second.counts["unchanged"], shelf.records) == (6, records)
    ignored = lines(first, "ignored")
    assert lines(second, "ignored") == ignored
    assert {path.rpartition("/")[2] for path, *_ in ignored} == {"x.zip", "c.bin", "d.txt"}
    (shelf.folder / "f.eml").touch()
    shelf.write("e.eml", mail("Another.", more_md=b"# More\n\nmuch more"))
    third = await shelf.ingest()
    assert opened == ["e.eml"]
    assert (third.counts["replaced"], third.counts["unchanged"]) == (2, 4)
    shelf.write("x.zip", zipped({"b.md": b"# B\n\nb"}))
    assert (await shelf.ingest()).counts["removed"] == 2
    opened.clear()
    assert (await shelf.ingest()).counts["unchanged"] == 4
    assert not opened
    (shelf.folder / "x.zip").unlink()
    assert (await shelf.ingest()).counts["removed"] == 1


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({"exclude": ("b.md",)}, {"x.zip/b.md"}),
        ({"exclude": ("*.eml",)}, {"x.zip/june/a.eml", "x.zip/june/a.eml/plan.md"}),
        ({"hidden": True}, set()),
        ({"max_file_bytes": 10_000}, set()),
    ],
)
async def test_other_settings_open_an_unchanged_container_anew(
    stocked: Shelf, opened: list[str], settings: dict[str, object], gone: set[str]
) -> None:
    before = {*stocked.records}
    await stocked.ingest(None, None, **settings)
    assert "x.zip" in opened
    assert before - stocked.records.keys() == gone


@pytest.mark.slow
async def test_archives_that_are_not_opened_any_more_keep_what_is_stored(stocked: Shelf) -> None:
    before = dict(stocked.records)
    report = await stocked.ingest(archives=False)
    assert stocked.records == before
    assert any("1 archive with stored documents not opened" in note for note in report.notes)
    assert not (await stocked.ingest()).notes  # the control
    left_out = await stocked.ingest(exclude=("*.zip",), archives=False)
    assert stocked.records == before
    assert not left_out.notes


@pytest.mark.slow
async def test_rights_reach_the_parts_of_what_is_not_opened(stocked: Shelf, opened: list[str]) -> None:
    await stocked.set_access("e.eml", ONLY_HR)
    await stocked.ingest()
    assert not opened
    assert (stocked.records["e.eml/more.md"], stocked.records["x.zip/b.md"]) == (HR, OPEN)
    await stocked.set_access("x.zip/june/a.eml", ONLY_HR)
    await stocked.ingest()
    assert not opened
    assert (stocked.records["x.zip/june/a.eml/plan.md"], stocked.records["x.zip/b.md"]) == (HR, OPEN)
    await stocked.ingest(
        Rights("tenant", RequestedAccess("restricted", allow=("group:it",)), set_access=True)
    )
    assert set(stocked.records.values()) == {"restricted to group:it"}


@pytest.mark.slow
async def test_documents_that_may_request_access_now_are_asked(stocked: Shelf) -> None:
    asking = b"---\nallow: [group:hr]\n---\n# Wages\n\nwages"
    stocked.write("w.zip", zipped({"w.md": asking, "o.md": b"# Open\n\nopen"}))
    await stocked.ingest()
    assert stocked.records["w.zip/w.md"] == OPEN
    await stocked.ingest(Rights("tenant", of_documents=True))
    assert (stocked.records["w.zip/w.md"], stocked.records["w.zip/o.md"]) == (HR, OPEN)


@pytest.mark.slow
async def test_a_sidecar_beside_a_container_counts_at_once(stocked: Shelf) -> None:
    rights = Rights("tenant", of_documents=True)
    await stocked.ingest(rights)
    stocked.write("x.zip.meta.toml", b'allow = ["group:hr"]\n')
    await stocked.ingest(rights)
    assert {stocked.records["x.zip/b.md"], stocked.records["x.zip/june/a.eml/plan.md"]} == {HR}
    assert stocked.records["e.eml"] == OPEN


@pytest.mark.slow
async def test_what_is_not_stored_any_more_is_taken_out_again(stocked: Shelf, opened: list[str]) -> None:
    async with await stocked.desk.writing(stocked.data) as writer:
        await writer.remove([stocked.ids["x.zip/b.md"]])
    await stocked.ingest()
    assert ("x.zip" in opened, "e.eml" in opened) == (True, False)
    assert "x.zip/b.md" in stocked.records


@pytest.mark.slow
async def test_a_part_that_fails_is_tried_again(stocked: Shelf, opened: list[str]) -> None:
    stocked.write("g.zip", zipped({"a.md": b"# A\n\na", "b.docx": b"PK no document"}))
    for _ in range(2):
        opened.clear()
        assert not (await stocked.ingest()).complete
        assert opened.count("g.zip") == 1


@pytest.mark.slow
@pytest.mark.parametrize("noted", [b"", b"[]", b'{"x": 3}', b'{"x": {}}'])
async def test_without_readable_notes_everything_is_opened(
    stocked: Shelf, opened: list[str], noted: bytes
) -> None:
    (file,) = stocked.data.rglob(CACHE_FILE)
    file.write_bytes(noted)
    assert (await stocked.ingest()).counts["unchanged"] == 6
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]

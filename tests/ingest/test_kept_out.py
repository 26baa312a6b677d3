"""What a collection keeps out brings in nothing that it contains, and a part follows what contains it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.config.settings import ModerationSettings
from rag.corpus import Access
from rag.ingest.policy.moderation import ModerationError, Moderator
from rag.store.write.change_collection import change_collection
from tests.ingest.shelf import Shelf, mail, zipped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    from rag.ingest.report import Report

pytestmark = pytest.mark.anyio

HR = "restricted to group:hr"
IBAN = "Pay to DE89 3704 0044 0532 0130 00."
PLAN = b"# Plan\n\nThe pendulum.\n"
BOTH = {"a.eml", "a.eml/plan.md"}


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path) -> Shelf:
    (tmp_path / "docs").mkdir()
    return Shelf(small_desk, tmp_path / "docs", tmp_path / "data")


async def skip_ibans(shelf: Shelf) -> None:
    await change_collection(
        shelf.data, "default", "documents", lambda one: replace(one, personal_data={"iban": "skip"})
    )


def kinds(report: Report) -> dict[str, tuple[str, str]]:
    return {one.path.rpartition("/docs/")[2]: (one.outcome, one.kind) for one in report.outcomes}


def moderator(skipped: str, failing: str = "\0") -> Moderator:
    async def ask(document: Mapping[str, object]) -> str:
        if failing in str(document["text"]):
            raise ModerationError("it is down")
        return "skip" if skipped in str(document["text"]) else "allow"

    return Moderator(ModerationSettings(call="any:function", on_failure="skip"), ask)


@pytest.mark.slow
async def test_a_policy_that_keeps_a_mail_out_keeps_its_attachments_out_new_and_stored(shelf: Shelf) -> None:
    shelf.write("a.eml", mail(IBAN, plan_md=PLAN))
    shelf.write("b.eml", mail("Fine.", plan_md=PLAN + b"b"))
    await shelf.ingest()
    assert shelf.records.keys() == BOTH | {"b.eml", "b.eml/plan.md"}
    await skip_ibans(shelf)
    shelf.write("new.eml", mail(IBAN + "!", in_zip=zipped({"plan.md": PLAN + b"new"})))
    report = await shelf.ingest()
    assert shelf.records.keys() == {"b.eml", "b.eml/plan.md"}
    assert kinds(report) == {
        "a.eml": ("removed", "policy"),
        "a.eml/plan.md": ("removed", "policy"),
        "b.eml": ("replaced", ""),
        "b.eml/plan.md": ("replaced", ""),
        "new.eml": ("ignored", "policy"),
        "new.eml/in.zip": ("ignored", ""),
        "new.eml/in.zip/plan.md": ("ignored", "policy"),
    }
    assert "IBAN" in next(
        one.reason for one in report.outcomes if one.path.endswith("new.eml/in.zip/plan.md")
    )


async def test_parts_that_moved_with_a_mail_go_when_it_is_kept_out(shelf: Shelf) -> None:
    shelf.write("a.eml", mail(IBAN, plan_md=PLAN))
    await shelf.ingest()
    await skip_ibans(shelf)
    (shelf.folder / "a.eml").rename(shelf.folder / "b.eml")
    await shelf.ingest()
    assert not shelf.records


async def test_moderation_that_keeps_out_or_knows_nothing_of_a_mail_counts_for_its_attachments(
    shelf: Shelf,
) -> None:
    for name in ("a", "b", "c"):
        shelf.write(f"{name}.eml", mail(f"Word {name}.", plan_md=PLAN + name.encode()))
    report = await shelf.ingest(moderator=moderator("Word a.", failing="Word b."))
    assert shelf.records.keys() == {"c.eml", "c.eml/plan.md"}
    assert {name: kind for name, (kind, _) in kinds(report).items() if name < "c"} == {
        "a.eml": "ignored",
        "a.eml/plan.md": "ignored",
        "b.eml": "skipped",
        "b.eml/plan.md": "skipped",
    }
    shelf.write("c.eml", mail("Word c. Word b.", plan_md=PLAN + b"new"))
    report = await shelf.ingest(moderator=moderator("Word a.", failing="Word b."))
    assert shelf.records.keys() == {"c.eml", "c.eml/plan.md"}  # of both the earlier version stays
    assert kinds(report)["c.eml/plan.md"] == ("skipped", "")


@pytest.mark.slow
async def test_what_is_stored_of_an_expired_mail_goes_with_it_although_nobody_looks_there(
    shelf: Shelf,
) -> None:
    day = f"{datetime.now(UTC):%a, %d %b %Y} 12:00:00 +0000"
    old = mail(plan_md=PLAN).replace(b"From:", b"Date: Wed, 01 Jan 2020 12:00:00 +0000\nFrom:", 1)
    shelf.write("old/a.eml", old)
    shelf.write("old/b.eml", old.replace(b"Wed, 01 Jan 2020 12:00:00 +0000", day.encode()))
    await shelf.ingest()
    await change_collection(shelf.data, "default", "documents", lambda one: replace(one, keep_days=365))
    elsewhere = Shelf(shelf.desk, shelf.folder.parent / "other", shelf.data)
    elsewhere.write("c.md", b"# C\n\nc")
    await elsewhere.ingest()
    assert elsewhere.records.keys() == {"old/b.eml", "old/b.eml/plan.md", "c.md"}


async def test_a_part_that_moved_is_as_narrow_as_what_contains_it_now_in_the_same_run(shelf: Shelf) -> None:
    shelf.write("z.eml", mail("Old.", plan_md=PLAN))
    shelf.write("hr.eml", mail("Wages."))
    await shelf.ingest()
    await shelf.set_access("hr.eml", Access("restricted", frozenset({"group:hr"}), revision=1))
    (shelf.folder / "z.eml").unlink()
    shelf.write("hr.eml", mail("Wages.", plan_md=PLAN))
    report = await shelf.ingest()
    assert shelf.records == {"hr.eml": HR, "hr.eml/plan.md": HR}
    assert kinds(report)["hr.eml/plan.md"] == ("moved", "")


@pytest.mark.slow
async def test_a_part_that_moved_into_a_new_mail_gets_the_rights_of_that_mail(shelf: Shelf) -> None:
    """The mail has the content of one that was restricted by hand, and its attachment that of another."""
    shelf.write("a.eml", mail("Wages."))
    shelf.write("b.eml", mail("Old.", plan_md=PLAN))
    await shelf.ingest()
    await shelf.set_access("a.eml", Access("restricted", frozenset({"group:hr"}), revision=1))
    (shelf.folder / "a.eml").unlink()
    (shelf.folder / "b.eml").unlink()
    shelf.write("c.eml", mail("Wages, anew.", plan_md=PLAN))  # it could be the one that is gone
    await shelf.ingest()
    assert shelf.records == {"c.eml": HR, "c.eml/plan.md": HR}

"""Asked for a section, a version or a definition by its name, it comes before what only mentions the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.search.desk import Desk
from rag.search.named_sections import Named
from rag.search.pipeline import LACKING
from rag.store.read.desk_reader import DeskReader
from tests.search.conftest import ME, Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from rag.answers import Answer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
FILES = {
    "statute.md": """
# Housing Act (HA)

## Section 11 Notice

The notice under section 12 and section 12a is due. Section 12 applies to all notices.

## Section 12 Access

The landlord may enter on a day's warning.

## Article 6 Lawfulness

Processing is lawful under these conditions, and no others.

## Article 7 Consent

Article 6 applies. Article 6(1)(a) needs consent; Article 6 is met by it.

## Appendix B: Forms

Tenants fill in what they know.

## 4.2 Termination

Either party may end it, see 4.1 and 4.3.

## 4.3 Effects

Rights that arose before 4.2 stay; 4.2 and 4.1 apply, and clause 4.2 binds.
""",
    "gesetz.md": """
# Mietgesetz (MG)

## § 6 Verweis

Es gelten § 7 und § 626, ferner § 626 Absatz 2.

## § 626 Kündigung

Fristlos darf kündigen, wer einen Grund dafür hat.
""",
    "statuto.md": """
# Statuto del Circolo

## Art. 3 - Soci

I soci di cui all'art. 3 versano la quota dell'art. 3 bis; l'art. 3 vale per tutti i soci del circolo.

## Art. 3-bis - Quota

Ammonta a dieci euro.

## Artigo 5.º-A Isenções

Ver o artigo 5, e o artigo 5 outra vez: artigo 5.

## Artigo 5.º Quotas

Cada um paga quatro euros.
""",
    "CHANGELOG.md": """
# Changelog

## [Unreleased]

What changed since 0.61.0 is in the migration guide.

## [0.61.1] - 2025-02-03

### Fixed

- A crash in the parser of dates.

## [0.61.0] - 2025-01-02

### Added

- A long list of things, one of which is a new way to quote names in statements.
""",
    "migration.md": """
# Migrating from 0.61.0 to 1.0.0

## Imports

They changed from 0.61.0 on. In 0.61.0 all were one.

## Names

They changed after 0.61.0.
""",
    "gizmo.md": """
# Gizmo models

## Gizmo 3.5 colours

Gizmo 3.5 is red, and Gizmo 3 is blue.

## Dates

Gizmo 3.5 and its parts became available on the same date, June 20.
""",
    "whales.md": """
# Whales of the North

## Tables

Table 1. Boats and their crews . . . . . . . . 3

Table 2. Whales by year . . . . . . . . . . . 4

## Boats

Table 2 shows whales, Table 2 and Fig. 1 show all whales, and

Table 2 counts whales of the north.

## Numbers

| Year | Seen |
| --- | --- |
| 2023 | 14 |

**Table 2:** Seen by year.

## Places

Most were seen in fjords.

*Abb. 1 – Orte*
""",
    "seals.md": """
# Seals of the South

## Pups

Table 2. Pups by beach

| Beach | Pups |
| --- | --- |
| West | 9 |
""",
    "joinery.md": """
# Making tables

## 2. Table legs

A table stands on its legs: table 1 on four, table 2 on three. Paper shows how a table shows its age.

## Table 4 - Tool care

"""
    + "\n\n".join(f"Tool {n} wants care: oil its {n} parts, each on a table of its own." for n in range(90)),
    "OrderItem.cs": """
namespace Shop;

public class OrderItem : Entity
{
    public int Units { get; set; }
}
""",
    "CreateOrderHandler.cs": """
namespace Shop;

public class CreateOrderHandler
{
    public void Handle(Order order)
    {
        foreach (var item in order.items) { order.Add(item); }
    }
}
""",
    "command.go": """
package tool

// AddCommand adds one or more commands to this parent command, each of which becomes a child of it.
func (c *Command) AddCommand(commands ...*Command) {
	c.commands = append(c.commands, commands...)
}

func use(root *Command) {
	root.AddCommand(first)
	root.AddCommand(second)
	root.AddCommand(third)
}
""",
    "vendor.py": """
def addCommand():
    return None


def deploy(target):
    start(target)


def main():
    deploy("a")
    deploy("b")
    deploy(InvoiceService().parse_amount("3"))
""",
    "billing.py": """
class InvoiceService(Service):
    def parse_amount(self, raw):
        return raw.strip()


def use():
    service = InvoiceService()
    return service.parse_amount("1") + service.parse_amount("2")
""",
    "tale.md": """
# A Tale

## CHAPTER II. The Mail

It goes uphill. Chapter 3 and Kapitel 3 are near, and so is act 3.

## CHAPTER III. The Night Shadows

A wonderful fact to reflect upon.

## Drittes Kapitel

Es war einmal.

## ACT III

### SCENE IV

The closet.
""",
}
FIRST = {
    "section 12": "## Section 12 Access",
    "What does section 12 say?": "## Section 12 Access",
    "HA 12": "## Section 12 Access",
    "Article 6": "## Article 6 Lawfulness",
    "Art. 6(1)(a)": "## Article 6 Lawfulness",
    "appendix B": "## Appendix B: Forms",
    "clause 4.2": "## 4.2 Termination",
    "4.2": "## 4.2 Termination",
    "§ 626 MG": "## § 626 Kündigung",
    "MG 626": "## § 626 Kündigung",
    "what does section 626 of the MG say": "## § 626 Kündigung",
    "art. 3 bis dello statuto": "## Art. 3-bis",
    "art. 3-bis": "## Art. 3-bis",
    "artigo 5": "## Artigo 5.º Quotas",
    "artigo 5-A": "## Artigo 5.º-A",
    "what changed in 0.61.0?": "## [0.61.0] - 2025-01-02",
    "changelog 0.61.0": "## [0.61.0] - 2025-01-02",
    "v0.61.0": "## [0.61.0] - 2025-01-02",
    "where is AddCommand defined": "// AddCommand adds",
    "AddCommand": "// AddCommand adds",
    "definition of AddCommand": "// AddCommand adds",
    "addCommand": "def addCommand",
    "where is deploy implemented?": "def deploy",
    "order item": "public class OrderItem",
    "order item class": "public class OrderItem",
    "What does Table 2 of the whales paper show?": "## Numbers",
    "whales tab. 2": "## Numbers",
    "Tabelle 2 Whales": "## Numbers",
    "Figure 1 whales": "## Places",
    "Table 4 tool care": "## Table 4 - Tool care",
    "Table 2 of the seals paper": "# Seals of the South",
    "What happens in chapter 3 of the tale?": "## CHAPTER III. The Night",
    "the third chapter": "## CHAPTER III. The Night",
    "3. Kapitel": "## Drittes Kapitel",
    "act 3": "## ACT III",
    "InvoiceService": "class InvoiceService",
    "InvoiceService.parse_amount": "class InvoiceService",
}


@pytest.fixture
async def stocked(shelf: Shelf, tmp_path: Path) -> Shelf:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text.lstrip())
    await shelf.small.ingested(shelf.data, folder)
    return shelf


async def ask(shelf: Shelf, query: str) -> Answer:
    return await shelf.search(query, limit=5)


async def test_the_section_that_is_named_comes_before_passages_that_mention_it(stocked: Shelf) -> None:
    firsts = {query: (await ask(stocked, query)).hits[0].text for query in FIRST}
    assert {query: text for query, text in firsts.items() if not text.startswith(FIRST[query])} == {}


async def test_a_version_named_without_its_last_part_means_all_that_begin_with_it(stocked: Shelf) -> None:
    texts = [hit.text for hit in (await ask(stocked, "what changed in 0.61?")).hits[:3]]
    assert {text[:11] for text in texts} > {"## [0.61.1]", "## [0.61.0]"}


RELEASES = {
    "portal-ngx 7.{}.0": "what changed in 7.4.0?",
    "VS Code 8.{}.0": "changes in version 8.4",
    "Kubernetes v9.{}.3": "release notes 9.4.3",
    "What's new in 10.{}.0": "what's new in 10.4",
    "Spring Boot 11.{}.0-rc.1": "11.4.0-rc.1",
    "Node.js 12.{}.0 (LTS)": "what changed in v12.4.0?",
    "Release notes for Acme Portal 13.{}.0": "Acme Portal 13.4.0",
    "2024-06-20, Version 14.{}.1 'Iron' (LTS)": "what changed in 14.4.1?",
}


def _releases(heading: str) -> str:
    """Three releases, each of several passages with a short one at its end."""
    items = "".join(f"- Handling of the {word} number {word}s was made better\n" for word in WORDS)
    below = f"### Features\n\n{items}\n### All changes\n\n{items}\n- Chore: a bump\n\n"
    return "# Changelog\n\n" + "".join(f"## {heading.format(minor)}\n\n{below}" for minor in (5, 4, 3))


WORDS = [
    f"{first}{last}"
    for first in ("in", "re", "un", "de")
    for last in ("voice", "port", "lock", "sign", "task")
]


async def test_a_release_named_with_its_product_is_found_at_its_beginning(
    shelf: Shelf, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number, heading in enumerate(RELEASES):
        (folder / f"{number}.md").write_text(_releases(heading))
    (folder / "guide.md").write_text(
        "# Guide\n\n## Migrating from 7.4.0 to 8.4.0\n\n7.4.0 and 8.4.0 differ.\n"
    )
    await shelf.small.ingested(shelf.data, folder)
    for heading, query in RELEASES.items():
        hits = (await shelf.search(query, limit=4, mode="sparse")).hits
        assert len(hits) == 4
        assert hits[0].text.startswith(f"## {heading.format(4)}\n"), query
        in_order = [hit.chunk.seq for hit in hits if hit.chunk.section[0] == heading.format(4)]
        assert in_order == sorted(in_order), query


async def test_a_version_in_a_longer_question_weighs_as_much_as_a_word(stocked: Shelf) -> None:
    answer = await ask(stocked, "On what date did Gizmo 3.5 and all of its parts become available?")
    assert answer.hits[0].text.startswith("## Dates")


@pytest.mark.parametrize(
    "query",
    ["Tell me about RFC 12", "Who wrote RFC 12?", "Summarize RFC 12", "What does RFC-12 propose?"],
)
async def test_a_document_whose_title_has_the_number_that_is_named_comes_first(
    shelf: Shelf, tmp_path: Path, query: str
) -> None:
    for number in range(10, 16):
        parts = "".join(f"## {word.title()}\n\nThe {word} is small.\n\n" for word in WORDS)
        (tmp_path / f"{number}.md").write_text(
            f"---\ntitle: RFC {number} – Colours\n---\nAbstract.\n\n{parts}"
        )
    asked = "Tell us who wrote it about what to summarize. They propose RFC 12 here, as RFC 12 had it."
    (tmp_path / "about.md").write_text(f"# About\n\n{asked}\n")
    await shelf.small.ingested(shelf.data, tmp_path)
    first = (await ask(shelf, query)).hits[0]
    assert (first.source.title, first.chunk.seq) == ("RFC 12 – Colours", 0)


async def test_a_chapter_is_found_whose_heading_is_a_roman_numeral_alone(
    shelf: Shelf, tmp_path: Path
) -> None:
    chapters = (
        f"## {numeral}\n\nOf the {word}.\n" for numeral, word in zip(("I", "II", "III"), WORDS, strict=False)
    )
    (tmp_path / "novel.md").write_text("# A novel\n\n" + "\n".join(chapters))
    notes = "In 3 days she read a chapter of it to her aunt, and in 3 more a chapter of something else."
    (tmp_path / "notes.md").write_text(f"# Notes\n\n{notes}\n")
    await shelf.small.ingested(shelf.data, tmp_path)
    for query in ("What is chapter 3 of the novel about?", "the third chapter", "chapter III"):
        assert (await ask(shelf, query)).hits[0].text.startswith("## III\n"), query


@pytest.mark.parametrize(
    "query",
    ["the notice is due in 12 days", "In 2019 we had 6 rooms", "What is 4.2 % of 12 €?", "I and A"],
)
def test_numbers_of_other_things_name_no_section(query: str) -> None:
    named = Named.of(query, ("English",))
    assert not any(address.is_sure for address in named.addresses)


async def test_a_number_that_no_document_has_is_told(stocked: Shelf) -> None:
    reader = DeskReader(stocked.data, timeout_seconds=15, memory_bytes=10**9)
    desk = Desk(reader, stocked.small.BagOfWords(), SearchSettings())
    await desk.search(ME, SearchRequest("leave"))
    await stocked.small.rows_in_memory(desk)
    for query, is_told in {"§ 9999 MG": True, "§ 626 MG": False, "section 12": False}.items():
        notes = (await desk.search(ME, SearchRequest(query))).notes
        assert (LACKING.format("9999") in notes) is is_told

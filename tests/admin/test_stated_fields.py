"""What documents state of themselves can be filtered by under the same names, whatever their format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.ingest.parse.packages import core, p, word
from tests.ingest.parse.test_pdf import pdf

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

HTML = """<html lang="de"><head><title>Web</title><meta name="author" content="Eve"><meta name="keywords"
content="clock, oil"></head><body><p>Das Pendel einer Uhr im Netz
heißt auf Englisch pendulum, und es schwingt immer hin und her.</p></body></html>"""
CZECH = "Kyvadlo hodin v tomto dopise se anglicky jmenuje pendulum a pořád se kývá sem a tam."
FRONT = "---\nauthors: [Ann, Eve]\ntags: [clock]\nlang: de\n---\n# Note\n\nA pendulum in a note.\n"
FIELDS = ("author=string list", "keywords=string list", "language=string")
FOUND = {
    '{"author": "Ann"}': {"Note", "Letter"},
    '{"author": "Eve"}': {"Note", "Web"},
    '{"author": "Bob"}': {"Paper"},
    '{"keywords": "oil"}': {"Web", "Letter", "Paper"},
    '{"language": "de"}': {"Note", "Web"},
    '{"language": "cs"}': {"Letter"},
    '{"author": "Nobody"}': set(),
}


def test_author_keywords_and_language_are_fields_of_all_formats(inside: Desk, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "note.md").write_text(FRONT)
    (docs / "page.html").write_text(HTML)
    about = core(title="Letter", creator="Ann", keywords="oil; gears", language="cs")
    (docs / "letter.docx").write_bytes(word(p(CZECH), core=about))
    (docs / "paper.pdf").write_bytes(
        pdf("A pendulum in a paper.", Title="Paper", Author="Bob", Keywords="oil, brass")
    )
    options = [part for one in FIELDS for part in ("--field", one)]
    inside.run("collection", "create", "documents", *options)
    inside.run("ingest", docs)
    found = {
        wanted: {one["title"] for one in inside.json("search", "pendulum", "--filter", wanted)["results"]}
        for wanted in FOUND
    }
    assert found == FOUND, json.dumps(inside.json("sources"), indent=1)

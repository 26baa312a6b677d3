"""Titles and headings of real office documents, against a table that was made by reading them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rag.ingest.parse.parsers import parse
from tests.ingest.office import SAMPLES

TABLE = tomllib.loads((Path(__file__).parents[1] / "data/office.toml").read_text(encoding="utf-8"))


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the office samples are not at {SAMPLES}")
@pytest.mark.parametrize("name", TABLE)
def test_title_and_headings_are_those_that_people_see(name: str) -> None:
    path = SAMPLES / name
    document = parse(path.read_bytes(), path.name)
    assert document.title == TABLE[name]["title"]
    if "headings" not in TABLE[name]:
        return  # too many to list
    headings = [one.title for one in document.blocks if one.kind == "heading" and one.title]
    assert headings == TABLE[name]["headings"]

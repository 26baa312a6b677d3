"""The documents for those who keep and who examine refdesk name only what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rag.admin.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
SECURITY = (GITHUB / "SECURITY.md").read_text()
CONTRIBUTING = (GITHUB / "CONTRIBUTING.md").read_text()


def test_every_test_that_is_named_in_a_document_is_there() -> None:
    named = set(re.findall(r"\btests/[\w/.]+", SECURITY + CONTRIBUTING))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


def test_each_promise_of_security_names_the_tests_that_hold_it() -> None:
    section = SECURITY.partition("## What is promised")[2].partition("\n## ")[0]
    _, *promises = re.split(r"^\d+\. ", section, flags=re.MULTILINE)
    assert len(promises) > 8
    assert not [promise for promise in promises if not re.search(r"\n +`tests/[\w/]+\.py`", promise)]


@pytest.mark.parametrize("text", [SECURITY, CONTRIBUTING], ids=["SECURITY.md", "CONTRIBUTING.md"])
def test_the_links_of_a_document_lead_somewhere(text: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {"#" + heading.lower().replace(" ", "-") for heading in headings}
    assert not [link for link in links if link not in anchors and not (GITHUB / link).exists()]


def test_the_commands_and_files_that_are_named_are_there() -> None:
    both = SECURITY + CONTRIBUTING
    assert set(re.findall(r"refdesk-admin ([a-z]+)\b(?=`)", both)) <= set(COMMANDS)
    files = re.findall(r"(?<![\w./])((?:\.build|\.ci|\.github|rag)/[\w./]*\w)", both)
    assert files
    assert not [name for name in files if not (ROOT / name).exists()]

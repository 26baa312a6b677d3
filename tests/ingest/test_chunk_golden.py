"""Where a rich document is cut. Run this file to write the expectation anew, and read the difference."""

from __future__ import annotations

import json
from pathlib import Path

from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import parse
from rag.models.tokenizer import BUILTIN_MODEL, Tokens

DATA = Path(__file__).with_name("data")
EXPECTED = DATA / "rich.json"


def rich_passages() -> list[dict[str, object]]:
    document = parse((DATA / "rich.md").read_bytes(), "rich.md")
    spans = Tokens(BUILTIN_MODEL / "tokenizer.json").spans
    return [
        {
            "section": " > ".join(passage.section),
            "context": passage.context,
            "tokens": passage.tokens,
            "text": document.text[passage.start : passage.end].split("\n"),
        }
        for passage in passages(document, token_spans=spans, limit=254)
    ]


def test_a_rich_document_is_cut_where_it_always_was() -> None:
    assert rich_passages() == json.loads(EXPECTED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    EXPECTED.write_text(json.dumps(rich_passages(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

"""The limit on cutting."""

from __future__ import annotations

import time

import pytest

from rag.errors import ParseError
from rag.ingest.split_text import within


def test_only_time_in_which_a_text_is_cut_counts() -> None:
    spans = within(0.05, lambda text: [(0, len(text))])
    time.sleep(0.2)
    assert spans("word") == [(0, 4)]
    began = time.thread_time()
    while time.thread_time() - began < 0.06:
        pass
    with pytest.raises(ParseError, match="takes too long to be cut"):
        spans("word")

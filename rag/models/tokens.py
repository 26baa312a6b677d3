"""A model's own tokenizer, as it lies beside the model.

A model's tokenizer: ids for the model, spans for the chunker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    Spans = list[tuple[int, int]]


def opened_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path`: it neither pads nor cuts, and special tokens spelled out are plain text to it.

    Raises:
        ConfigurationError: the file is missing or broken.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more exact
        raise ConfigurationError(f"The tokenizer {path} can't be loaded: {error}.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


BUILTIN_MODEL = Path(__file__).parent / "embed" / "model"

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_WORDS = re.compile(rf"[{_ASCII_PUNCTUATION}]|[^ \t\r\n{_ASCII_PUNCTUATION}]+")
"""Pieces of text that BERT tokenizes one by one: it always cuts at white space and around punctuation."""
_KEPT_WORDS = 1 << 15
_KEPT_LENGTH = 64  # characters; longer words are seldom met again


class Tokens:
    """The tokenizer of one model. Special tokens that are spelled out in a text are plain text to it."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = opened_tokenizer(path)
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._word = lru_cache(_KEPT_WORDS)(self._encoded)
        bert = isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
        self.spans: Callable[[str], Spans] = self._by_word if bert else self._encoded

    def ids(self, text: str, limit: int) -> list[int]:
        """`text` between the model's special tokens, cut so that there are `limit` in all at most."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids if len(ids) <= limit else ids[: limit - 1] + ids[-1:]

    def window(self, limit: int, prefix: str) -> int:
        """How many tokens of text fit beside the special tokens and `prefix`, if `limit` fit in all."""
        return limit - self._special - len(self.spans(prefix))

    def whole(self, text: str) -> float:
        """The share of the tokens that begin a word; what a model has no word for, it spells in pieces.

        Example: "leap seconds" as leap, second, s -> 2/3; "Schaltsekunde" as sc, hal, ts, ek, und, e -> 1/6.
        """
        spans = self.spans(text)
        pieces = sum(end == start and text[start].isalnum() for (_, end), (start, _) in pairwise(spans))
        return 1 - pieces / len(spans) if spans else 1.0

    def _encoded(self, text: str) -> Spans:
        offsets: Spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets

    def _by_word(self, text: str) -> Spans:
        """The same as `_encoded`, several times faster on long texts: words come back, so they are kept."""
        return [
            (at + start, at + end)
            for match in _WORDS.finditer(text)
            for at in (match.start(),)
            for start, end in (self._word if match.end() - at <= _KEPT_LENGTH else self._encoded)(match[0])
        ]

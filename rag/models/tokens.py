"""A model's own tokenizer (tokenizer.json): token ids for the model, token spans for the chunker."""

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

    from tokenizers import Encoding

    Spans = list[tuple[int, int]]


def opened_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path`, without padding and truncation.

    It reads special tokens in a text ("[SEP]") as plain text, so a document can't inject them.

    Raises:
        ConfigurationError: the file is missing or invalid.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        problem = "is not a valid tokenizer" if path.is_file() else "does not exist"
        raise ConfigurationError(f"The file {path} {problem}. Download or export the model again.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that no text may contain: all special tokens but the unknown one."""
    added = tokenizer.get_added_tokens_decoder().items()
    return frozenset(id_ for id_, token in added if token.special and "unk" not in token.content.lower())


def plain_encoding(tokenizer: Tokenizer, text: str, special: frozenset[int]) -> Encoding:
    """The tokens of `text` alone; special tokens that it spells out are plain text.

    The pieces of some vocabularies (Unigram: XLM-R and its kin) include the special tokens, so they would be
    found even where the tokenizer doesn't look for them. They are spelled with spaces then.
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if special.isdisjoint(encoding.ids):
        return encoding
    for id_, (start, end) in reversed([*zip(encoding.ids, encoding.offsets, strict=True)]):
        if id_ in special:
            text = f"{text[:start]} {' '.join(text[start:end])} {text[end:]}"
    return tokenizer.encode(text, add_special_tokens=False)


BUILTIN_MODEL = Path(__file__).parent / "embed" / "model"

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_WORDS = re.compile(rf"[{_ASCII_PUNCTUATION}]|[^ \t\r\n{_ASCII_PUNCTUATION}]+")
"""Pieces of text that BERT tokenizes separately: it always splits at white space and around punctuation."""
_KEPT_WORDS = 1 << 15
_KEPT_LENGTH = 64  # characters; longer words seldom occur again


class Tokens:
    """The tokenizer of one model, which reads special tokens in a text as plain text."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = opened_tokenizer(path)
        self._special_ids = special_ids(self._tokenizer)
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._word = lru_cache(_KEPT_WORDS)(self._encoded)
        bert = isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
        self.spans: Callable[[str], Spans] = self._by_word if bert else self._without_space

    def ids(self, text: str, limit: int) -> list[int]:
        """The ids of `text` between the model's special tokens, truncated to `limit` ids in all."""
        encoding = plain_encoding(self._tokenizer, text, self._special_ids)
        encoding.truncate(limit - self._special)
        return list(self._tokenizer.post_process(encoding).ids)

    def window(self, limit: int, prefix: str) -> int:
        """How many tokens of text fit into `limit` tokens beside the special tokens and `prefix`."""
        return limit - self._special - len(self.spans(prefix))

    def whole(self, text: str) -> float:
        """The share of tokens that begin a word. Words outside the model's vocabulary are split into pieces.

        Example: "leap seconds" as leap, second, s -> 2/3; "Schaltsekunde" as sc, hal, ts, ek, und, e -> 1/6.
        """
        spans = self.spans(text)
        pieces = sum(end == start and text[start].isalnum() for (_, end), (start, _) in pairwise(spans))
        return 1 - pieces / len(spans) if spans else 1.0

    def _encoded(self, text: str) -> Spans:
        offsets: Spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets

    def _without_space(self, text: str) -> Spans:
        """The same as `_encoded`, for tokenizers whose tokens begin with the space before a word.

        White space that is a token of its own stays, so that it counts.
        """
        return [
            (end - len(text[start:end].lstrip()) if not text[start:end].isspace() else start, end)
            for start, end in self._encoded(text)
        ]

    def _by_word(self, text: str) -> Spans:
        """The same as `_encoded`, but several times faster on long texts: frequent words are cached."""
        return [
            (at + start, at + end)
            for match in _WORDS.finditer(text)
            for at in (match.start(),)
            for start, end in (self._word if match.end() - at <= _KEPT_LENGTH else self._encoded)(match[0])
        ]

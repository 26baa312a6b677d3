"""A model's own tokenizer: token ids for the model, token spans for the chunker.

Models in folders have a tokenizer.json. The multilingual built-in one has a model of SentencePiece: read by
the other library, its 250,000 pieces would take 295 MB of memory instead of 57.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Encoding

Spans: TypeAlias = list[tuple[int, int]]


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


BUILTIN_FOLDER = Path(__file__).parent / "embed" / "model"
BUILTIN_MODEL = BUILTIN_FOLDER / "minilm"
MULTILINGUAL_FOLDER = BUILTIN_FOLDER / "e5"

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_WORDS = re.compile(rf"[{_ASCII_PUNCTUATION}]|[^ \t\r\n{_ASCII_PUNCTUATION}]+")
"""Pieces of text that BERT tokenizes separately: it always splits at white space and around punctuation."""
_KEPT_WORDS = 1 << 15
_KEPT_LENGTH = 64  # characters; longer words seldom occur again

WORD_LETTERS = 5  # of an English word, rounded up from 4.7
IDEOGRAPHS = 3000  # that everyday Chinese is written with; the built-in model has 997 single signs
_SAMPLE = 250  # characters in a stretch, about 40 words
_STRETCHES = 16  # so that a table or a foreign quotation at one place doesn't speak for the whole


class Tokens:
    """The tokenizer of one model, which reads special tokens in a text as plain text."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = opened_tokenizer(path)
        self._special_ids = special_ids(self._tokenizer)
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._unknown = self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
        self._word = lru_cache(_KEPT_WORDS)(self._encoded_spans)
        bert = isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
        self.spans: Callable[[str], Spans] = self._by_word if bert else self._without_space
        self._kept_counts = lru_cache(_KEPT_WORDS)(self._counts)
        self._split: Callable[[str], list[str]] = _WORDS.findall if bert else lambda text: [text]

    def ids(self, text: str, limit: int) -> list[int]:
        """The ids of `text` between the model's special tokens, truncated to `limit` ids in all."""
        encoding = plain_encoding(self._tokenizer, text, self._special_ids)
        encoding.truncate(limit - self._special)
        return list(self._tokenizer.post_process(encoding).ids)

    def window(self, limit: int, prefix: str) -> int:
        """The tokens that are left for text, of `limit`, after the special tokens and `prefix`."""
        return limit - self._special - len(self.spans(prefix))

    def vocabulary_share(self, text: str) -> float:
        """The share of letters that stand in words of the vocabulary; 1 for a text without letters.

        A word that is one token of two letters or more is known. A word that is split counts the more the
        longer its pieces are: not at all if it is spelled letter by letter, and in whole if a piece has as
        many letters as an English word. So technical terms, which are split into long pieces, are mostly
        known, and scripts of which the vocabulary has little more than the letters are not. A word that has
        no tokens at all is unknown. Of a long text, stretches of `_SAMPLE` characters are read.

        Example: "leap seconds" -> 1; "myocardial" (my, oca, rdial) -> 0.58; "Москва" (м, о, с, к, в, а) -> 0.
        """
        letters, in_vocabulary = 0, 0.0
        for part in (part for stretch in _sample(text) for part in self._split(stretch)):
            counted = self._kept_counts if len(part) <= _KEPT_LENGTH else self._counts
            of_part = counted(part)
            letters, in_vocabulary = letters + of_part[0], in_vocabulary + of_part[1]
        return in_vocabulary / letters if letters else 1.0

    def _counts(self, text: str) -> tuple[int, float]:
        """The letters in `text`, and how many of them are known."""
        words = [(sum(map(str.isalpha, word)), ids) for word, ids in self._pieces(text)]
        in_vocabulary = (letters * self._known_share(letters, ids) for letters, ids in words)
        return sum(letters for letters, _ in words), sum(in_vocabulary)

    def _pieces(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """The words of `text` as the model's tokenizer delimits them, each with the ids of its tokens."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = zip(encoding.word_ids, encoding.ids, encoding.offsets, strict=True)
        for _, of_word in groupby(tokens, key=itemgetter(0)):
            _, ids, offsets = zip(*of_word, strict=True)
            yield text[offsets[0][0] : offsets[-1][1]], list(ids)

    def _known_share(self, letters: int, ids: list[int]) -> float:
        """The known share, from 0 to 1, of a word with this number of `letters` and these tokens."""
        if self._unknown in ids:
            return 0.0
        if len(ids) == 1 and letters:
            # The letter of "है" (h) stands alone without its marks, as the vocabulary has it.
            return float(len(self._tokenizer.decode(ids).strip()) > 1 or self._has_ideographs)
        return min(max((letters / len(ids) - 1) / (WORD_LETTERS - 1), 0.0), 1.0)

    def _encoded_spans(self, text: str) -> Spans:
        offsets: Spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets

    @cached_property
    def _has_ideographs(self) -> bool:
        """Whether the vocabulary has as many single signs as one needs to read Chinese or Japanese."""
        return sum(len(token) == 1 for token in self._tokenizer.get_vocab()) >= IDEOGRAPHS

    def _without_space(self, text: str) -> Spans:
        """The same as `_encoded_spans`, for tokenizers whose tokens begin with the space before a word.

        White space that is a token of its own stays, so that it counts.
        """
        return [
            (end - len(text[start:end].lstrip()) if not text[start:end].isspace() else start, end)
            for start, end in self._encoded_spans(text)
        ]

    def _by_word(self, text: str) -> Spans:
        """The same as `_encoded_spans`, but several times faster on long texts: frequent words are cached."""
        return [
            (at + start, at + end)
            for match in _WORDS.finditer(text)
            for at in (match.start(),)
            for start, end in (self._word if match.end() - at <= _KEPT_LENGTH else self._encoded_spans)(
                match[0]
            )
        ]


class SentencePieces:
    """The tokenizer in a model of SentencePiece. No text spells one of its control pieces.

    Raises:
        ConfigurationError: the file is missing or invalid.
    """

    def __init__(self, path: Path) -> None:
        from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 takes 5 MB, for one model alone

        try:
            self._processor = SentencePieceProcessor(model_file=str(path))
        except RuntimeError as error:  # the library has no more specific one
            problem = "is not a valid tokenizer" if path.is_file() else "does not exist"
            raise ConfigurationError(f"The file {path} {problem}. Reinstall refdesk with pip.") from error

    def ids(self, text: str, limit: int) -> list[int]:
        """As `Tokens.ids`."""
        ids = self._processor.encode(_encodable(text), return_type=int)[: limit - 2]
        return [self._processor.bos_id(), *ids, self._processor.eos_id()]

    def window(self, limit: int, prefix: str) -> int:
        """As `Tokens.window`."""
        return limit - 2 - len(self.spans(prefix))

    def spans(self, text: str) -> Spans:
        """The tokens, without the space that begins them. Other white space has none."""
        offsets = self._processor.encode(_encodable(text), return_type="offset_mapping")["offsets"]
        return [(end - len(text[start:end].lstrip()), end) for start, end in offsets]

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 as of `Tokens`
        """1: the pieces have words of a hundred languages, and the model was trained with them."""
        return 1.0


def _encodable(text: str) -> str:
    """The text with a question mark for each lone surrogate, which no encoding has."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _sample(text: str) -> list[str]:
    """The text, or if it is long, stretches at equal distances from its beginning to its end."""
    if len(text) <= _SAMPLE * _STRETCHES:
        return [text]
    step = (len(text) - _SAMPLE) / (_STRETCHES - 1)
    return [text[start : start + _SAMPLE] for start in (round(at * step) for at in range(_STRETCHES))]

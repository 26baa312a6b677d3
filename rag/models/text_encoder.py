"""Text encoders: the tokens of a text, the graph that maps them to vectors, and the head behind the graph.

A model in a folder has a tokenizer.json. The multilingual built-in one has a SentencePiece model: with the
`tokenizers` library, its 250,000 pieces would take 295 MB of memory instead of 57.

ONNX Runtime runs the graph: one text or pair per run, one thread per run. Runs without batches need no
padding. So an output never depends on other texts, and the throughput per core is the highest. If the graph
returns a vector per token, the head pools them and applies the dense layers of some models.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rag.corpus import Pooling
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnxruntime
    from tokenizers import Encoding

    Rows = npt.NDArray[np.float32]

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


BUILTIN_FOLDER = Path(__file__).parent / "embed" / "model"
BUILTIN_MODEL = BUILTIN_FOLDER / "minilm"
MULTILINGUAL_FOLDER = BUILTIN_FOLDER / "e5"

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_WORDS = re.compile(rf"[{_ASCII_PUNCTUATION}]|[^ \t\r\n{_ASCII_PUNCTUATION}]+")
"""Pieces of text that BERT tokenizes separately: it always splits at white space and around punctuation."""
_KEPT_WORDS = 1 << 15
_KEPT_LENGTH = 64  # characters; longer words seldom occur again

WORD_LETTERS = 5  # of an English word, rounded up from 4.7
IDEOGRAPHS = 3000  # characters of everyday Chinese; the built-in model has 997
_SAMPLE = 250  # characters in a stretch, about 40 words
_STRETCHES = 16  # samples, so that a single table or foreign quotation doesn't decide


class Tokens:
    """The tokenizer of one model, which reads special tokens in a text as plain text."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = opened_tokenizer(path)
        added = self._tokenizer.get_added_tokens_decoder().items()
        self._not_of_text = {
            id_ for id_, token in added if token.special and "unk" not in token.content.lower()
        }
        self._special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._unknown = self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
        self._word = lru_cache(_KEPT_WORDS)(self._encoded_spans)
        bert = isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
        self.spans: Callable[[str], Spans] = self._by_word if bert else self._without_space
        self._kept_counts = lru_cache(_KEPT_WORDS)(self._counts)
        self._split: Callable[[str], list[str]] = _WORDS.findall if bert else lambda text: [text]

    def ids(self, text: str, limit: int) -> list[int]:
        """The ids of `text` between the model's special tokens, truncated to `limit` ids in all."""
        encoding = self._encoded_as_text(text)
        encoding.truncate(limit - self._special)
        return list(self._tokenizer.post_process(encoding).ids)

    def pair(self, query: str, text: str, limit: int) -> Encoding:
        """Query and text with special tokens, truncated to `limit`: a long query to half, then the text."""
        first, second = self._encoded_as_text(query), self._encoded_as_text(text)
        room = limit - self._tokenizer.num_special_tokens_to_add(is_pair=True)
        first.truncate(max(room // 2, room - len(second)))
        second.truncate(room - len(first))
        return self._tokenizer.post_process(first, second)

    def _encoded_as_text(self, text: str) -> Encoding:
        """The tokens of `text` alone; special tokens that it spells out are plain text.

        Some vocabularies (Unigram: XLM-R and its kin) include the special tokens as pieces, so they would be
        found anyway. There they are spelled with spaces.
        """
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if self._not_of_text.isdisjoint(encoding.ids):
            return encoding
        for id_, (start, end) in reversed([*zip(encoding.ids, encoding.offsets, strict=True)]):
            if id_ in self._not_of_text:
                text = f"{text[:start]} {' '.join(text[start:end])} {text[end:]}"
        return self._tokenizer.encode(text, add_special_tokens=False)

    def window(self, limit: int, prefix: str) -> int:
        """The tokens of `limit` that are left for text after the special tokens and `prefix`."""
        return limit - self._special - len(self.spans(prefix))

    def vocabulary_share(self, text: str) -> float:
        """The share of letters in words of the vocabulary; 1 for a text without letters.

        A word that is one token of two letters or more is known. A split word counts by the length of its
        pieces: 0 if it is spelled letter by letter, 1 if a piece has as many letters as an English word. So
        technical terms, which are split into long pieces, are mostly known, and scripts of which the
        vocabulary has little more than letters are not. A word without tokens is unknown. Of a long text,
        samples of `_SAMPLE` characters are read.

        Example: "leap seconds" -> 1; "myocardial" (my, oca, rdial) -> 0.58; "Москва" (м, о, с, к, в, а) -> 0.
        """
        letters, in_vocabulary = 0, 0.0
        for part in (part for stretch in _sample(text) for part in self._split(stretch)):
            counted = self._kept_counts if len(part) <= _KEPT_LENGTH else self._counts
            of_part = counted(part)
            letters, in_vocabulary = letters + of_part[0], in_vocabulary + of_part[1]
        return in_vocabulary / letters if letters else 1.0

    def _counts(self, text: str) -> tuple[int, float]:
        """The number of letters in `text`, and of known ones."""
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
        """Whether the vocabulary has enough single characters for Chinese or Japanese."""
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
    """The tokenizer of a SentencePiece model. No text can contain its control pieces.

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
    """The text; of a long one, samples at equal distances."""
    if len(text) <= _SAMPLE * _STRETCHES:
        return [text]
    step = (len(text) - _SAMPLE) / (_STRETCHES - 1)
    return [text[start : start + _SAMPLE] for start in (round(at * step) for at in range(_STRETCHES))]


# The graph, run by ONNX Runtime.

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when it is imported; otherwise it writes to the home folder

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
TYPES = {
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
}
"""The supported types of inputs; only masks are not always integers."""


def opened_model(path: Path) -> onnxruntime.InferenceSession:
    """The graph in `path`, ready to run from any number of threads.

    Raises:
        ConfigurationError: the file is missing or invalid, or the model needs other inputs than `INPUTS` or
            inputs of other types than `TYPES`.
    """
    import onnxruntime  # noqa: PLC0415 takes 0.05 s, which an embedder behind an endpoint needn't wait for

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False  # it would cache a memory plan for every text length
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        problem = "is not a valid ONNX model" if path.is_file() else "does not exist"
        raise ConfigurationError(f"The model {path} {problem}. Download or export it again.") from error
    unknown = {node.name for node in session.get_inputs() if node.type not in TYPES} | {
        node.name for node in session.get_inputs()
    } - set(INPUTS)
    if unknown:
        raise ConfigurationError(
            f"The model {path} needs the inputs {', '.join(sorted(unknown))}, which refdesk lacks. "
            f"Use a text encoder whose inputs are some of {', '.join(INPUTS)}."
        )
    return session


TOKEN_RANK = 3  # of an output with a vector per token: (texts, tokens, width)


def run(
    session: onnxruntime.InferenceSession, output: str, ids: Sequence[int], type_ids: Sequence[int] = ()
) -> Rows:
    """The named output of the graph for one text or pair, given as token ids; the first axis has length 1."""
    type_ids = type_ids or [0] * len(ids)
    values = dict(zip(INPUTS, (ids, [1] * len(ids), type_ids, range(len(ids))), strict=True))
    feed: dict[str, npt.NDArray[Any]] = {
        node.name: np.array([values[node.name]], TYPES[node.type]) for node in session.get_inputs()
    }
    result: Rows = np.asarray(session.run([output], feed)[0], np.float32)
    return result


WEIGHTS = "model.safetensors"
MAX_WEIGHTS = 1 << 26  # bytes of one layer: 4,096 x 4,096 in float32; larger ones belong into the graph


def _gelu(values: Rows) -> Rows:
    """The exact form; source: Hendrycks & Gimpel, 2016, arXiv:1606.08415."""
    tail = np.vectorize(math.erf, otypes=[np.float32])(values / math.sqrt(2))
    gelu: Rows = values * (1 + tail) / np.float32(2)
    return gelu


_ACTIVATIONS: dict[str, Callable[[Rows], Rows]] = {
    "GELU": _gelu,
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, np.float32(0)),
}


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer: `weight` has the shape (out, in)."""

    weight: Rows
    bias: Rows | None
    activation: Callable[[Rows], Rows]

    def __call__(self, vectors: Rows) -> Rows:
        """Shape (texts, in) -> (texts, out)."""
        values = vectors @ self.weight.T
        return self.activation(values if self.bias is None else values + self.bias)


EPSILON = 1e-5  # of torch's LayerNorm


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalization of vectors, with a scale and a shift for each component.

    Source: Ba, Kiros & Hinton, 2016, arXiv:1607.06450.
    """

    weight: Rows
    bias: Rows

    def __call__(self, vectors: Rows) -> Rows:
        """The same shape: (texts, width)."""
        centred = vectors - vectors.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        normed: Rows = scaled * self.weight + self.bias
        return normed


@dataclass(frozen=True, slots=True)
class Head:
    """The steps after the graph. `cut` is the number of components to keep; 0: all."""

    pooling: Pooling
    layers: tuple[Dense | Norm, ...] = ()
    cut: int = 0

    def __call__(self, output: Rows) -> Rows:
        """From shape (1, tokens, width), or (1, width) if the graph pools, to (1, dimension)."""
        vectors = _pool(output, self.pooling)
        for step in self.layers:
            vectors = step(vectors)
        return vectors[:, : self.cut] if self.cut else vectors


def _pool(tokens: Rows, pooling: Pooling) -> Rows:
    match pooling:
        case "graph":
            return tokens
        case "cls":
            return tokens[:, 0]
        case "last":
            return tokens[:, -1]
        case "max":
            largest: Rows = tokens.max(axis=1)
            return largest
        case "mean":
            mean: Rows = tokens.mean(axis=1)
            return mean
        case "weighted":  # by position: the later a token, the more it has read
            weights = np.arange(1, tokens.shape[1] + 1, dtype=np.float32)
            weighted: Rows = np.average(tokens, axis=1, weights=weights).astype(np.float32)
            return weighted


def layer(folder: Path) -> Dense | Norm:
    """The layer in a folder below the model's.

    Raises:
        ConfigurationError: it lacks its weights, or has an activation that refdesk doesn't know.
    """
    try:
        if (folder / WEIGHTS).stat().st_size > MAX_WEIGHTS:
            raise ConfigurationError(
                f"The dense layer in {folder} has over {MAX_WEIGHTS >> 20} MiB of weights, which refdesk "
                "doesn't apply. Use an export whose graph returns sentence_embedding."
            )
        tensors = read_tensors((folder / WEIGHTS).read_bytes())
        if "norm.weight" in tensors:
            return Norm(tensors["norm.weight"], tensors["norm.bias"])
        config: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        activation = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            raise ConfigurationError(
                f"The dense layer in {folder} has the activation {activation}; refdesk knows "
                f"{', '.join(_ACTIVATIONS)}. Use an export whose graph returns sentence_embedding."
            )
        weight, bias = _linear(tensors, (config.get("out_features"), config.get("in_features")))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"The dense layer in {folder} needs its files config.json and {WEIGHTS}. Download them, too. If "
            "the publisher has other weights only, use an export whose graph returns sentence_embedding."
        ) from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"The dense layer in {folder} is damaged, or none that refdesk knows. Download the model again."
        ) from error
    return Dense(weight, bias, _ACTIVATIONS[activation])


def _linear(tensors: dict[str, Rows], shape: tuple[int | None, int | None]) -> tuple[Rows, Rows | None]:
    """The weight, of this shape, and the bias.

    Raises:
        ValueError, LookupError: these are other tensors.
    """
    weight, bias = tensors.pop("linear.weight"), tensors.pop("linear.bias", None)
    if tensors or weight.shape != shape:
        raise ValueError("these are not the tensors of a linear layer")
    return weight, bias


def read_tensors(content: bytes) -> dict[str, Rows]:
    """The tensors of a safetensors file, in float32.

    Raises:
        ValueError, LookupError, TypeError: it isn't a safetensors file.

    Source: https://github.com/huggingface/safetensors#format: the header's size in 8 bytes, the header as
    JSON, then the data, little-endian.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {name: _tensor(content[start:], **entry) for name, entry in header.items()}


def _tensor(content: bytes, *, dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Rows:
    begin, end = data_offsets
    part = content[begin:end]
    match dtype:
        case "F32":
            values = np.frombuffer(part, "<f4")
        case "F16":
            values = np.frombuffer(part, "<f2").astype(np.float32)
        case "BF16":  # the upper half of a float32
            values = (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32)
        case _:
            raise ValueError(f"tensors of the type {dtype}")
    return values.reshape(*shape).astype(np.float32)

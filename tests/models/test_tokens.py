"""Tokens as the model counts them, and the file with a model's facts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from rag.errors import ConfigurationError
from rag.models.model_folder import FACTS_FILE, ModelFacts, ModelFile, facts_as_json, read_facts
from rag.models.text_encoder import BUILTIN_MODEL, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TYPICAL = st.sampled_from(
    [*" \n\t.,-_[]#`'", "the", "Naïve", "e\u0301", "Straße", "漢字", "👩‍👧", "\x00", "\u00a0"]
)
TEXTS = st.one_of(st.text(), st.lists(TYPICAL).map("".join))


@cache
def tokens() -> Tokens:
    return Tokens(BUILTIN_MODEL / "tokenizer.json")


@cache
def reference() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(BUILTIN_MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in tokens().spans(text)]


def test_spans_are_the_stretches_of_the_text_that_became_tokens() -> None:
    assert pieces("Clocks, re-timed: don't stop") == [
        *("Clocks", ",", "re", "-", "timed", ":"),
        *("don", "'", "t", "stop"),
    ]


def test_a_word_is_split_where_the_vocabulary_ends() -> None:
    assert pieces("horology") == ["ho", "rol", "ogy"]


@settings(deadline=None)
@given(TEXTS)
@example("a\x00b")  # removed within a word, which goes on
@example("cafe\u0301 café")  # an accent of its own, and one in the letter
@example("漢字かな")  # ideographs are words each
@example("👩‍👧 flag 🇩🇪")
@example("[CLS] [MASK]x [SEP]")  # spelled out, not meant
@example("x" * 101)  # too long for a word
@example("\u2028\x1c\x85\u3000.")
def test_spans_are_the_tokenizers_own_whatever_the_text(text: str) -> None:
    expected = reference().encode(text, add_special_tokens=False).offsets
    assert tokens().spans(text) == expected


@settings(deadline=None)
@given(TEXTS)
def test_spans_are_in_order_and_within_the_text(text: str) -> None:
    spans = tokens().spans(text)
    assert spans == sorted(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)


def test_blank_text_has_no_tokens() -> None:
    assert tokens().spans(" \n\t ") == []


def test_ids_end_with_the_special_token_also_where_text_is_cut() -> None:
    whole = tokens().ids("one two three four", 256)
    assert len(whole) == 6
    assert tokens().ids("one two three four", 5) == [*whole[:4], whole[-1]]


def test_ids_of_spelled_out_special_tokens_are_those_of_plain_text() -> None:
    ids = tokens().ids("[SEP]", 256)
    assert ids.count(ids[-1]) == 1


def test_special_tokens_and_the_prefix_take_room_in_the_window() -> None:
    assert tokens().window(256, "") == 254
    assert tokens().window(256, "passage: ") == 252


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("How do leap seconds come about?", 1, 1),
        ("myocardial infarction", 0.5, 0.8),  # English, though not in the vocabulary
        ("How do I configure an ingress controller in Kubernetes?", 0.6, 0.9),
        ("cafe\u0301 na\u00efve M\u00fcller", 1, 1),  # either form of an accent
        ("PCR", 0.05, 0.3),  # pc, r: not much, but something
        ("Wie heißt der höchste Berg in Österreich?", 0.4, 0.7),
        ("Tổng thống đầu tiên của Việt Nam là ai?", 0.3, 0.8),  # syllables like English words
        ("मौसम कैसा है", 0, 0),  # an unknown token, and letters with combining marks
        ("iPhone की कीमत क्या है", 0.3, 0.6),
        ("เมืองหลวงของประเทศไทยคืออะไร", 0, 0),  # a word without spaces
        ("ก" * 200, 0, 0),  # too long for a word: one unknown token
        ("東京の天気", 0, 0),  # in the vocabulary letter by letter
        ("서울 날씨", 0, 0),
        ("Какая сегодня погода в Москве?", 0, 0.1),
        ("Ποιος είναι ο πρωθυπουργός;", 0, 0.1),
        ("ما هي عاصمة مصر؟", 0, 0.1),
        ("4711", 1, 1),  # numbers are of no language
        ("", 1, 1),
        ("?! 😀", 1, 1),
    ],
)
def test_what_the_model_knows_of_a_text_is_seen_in_its_tokens(text: str, least: float, most: float) -> None:
    assert least <= tokens().vocabulary_share(text) <= most


@settings(deadline=None)
@given(TEXTS)
def test_what_is_known_of_a_text_is_a_share_and_depends_on_its_words_alone(text: str) -> None:
    share = tokens().vocabulary_share(text)
    assert 0 <= share <= 1
    assert tokens().vocabulary_share(f" {text} ") == pytest.approx(share)
    assert tokens().vocabulary_share(f"{text} 123 . {text}") == pytest.approx(share)


def test_of_a_long_text_every_part_counts() -> None:
    english, russian = "The clock strikes at noon. " * 2000, "Часы бьют в полдень. " * 2500
    assert tokens().vocabulary_share(english) > 0.95
    assert tokens().vocabulary_share(russian) < 0.1
    assert 0.3 < tokens().vocabulary_share(english + russian) < 0.7
    assert 0.3 < tokens().vocabulary_share(russian + english) < 0.7


@pytest.mark.parametrize("kind", ["bytes", "metaspace"])
def test_other_vocabularies_are_judged_by_their_own_words(kind: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))  # noqa: S106 no password
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel() if kind == "bytes" else pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.ByteLevel() if kind == "bytes" else decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(["часы бьют в полдень"] * 50, trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    its = Tokens(tmp_path / "tokenizer.json")
    assert its.vocabulary_share("полдень бьют часы") == 1
    assert its.vocabulary_share("midnight strikes twice") < 0.1


def test_a_vocabulary_of_ideographs_knows_what_is_written_in_them(tmp_path: Path) -> None:
    signs = [chr(0x4E00 + at) for at in range(3000)]
    vocabulary = {sign: at for at, sign in enumerate(["[UNK]", "й", *signs])}
    chinese = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 no password
    chinese.normalizer = normalizers.BertNormalizer()
    chinese.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    chinese.save(str(tmp_path / "tokenizer.json"))
    its = Tokens(tmp_path / "tokenizer.json")
    assert its.vocabulary_share("".join(signs[:20])) == 1
    assert its.vocabulary_share("Москва") == 0


def test_a_broken_tokenizer_is_named() -> None:
    path = BUILTIN_MODEL / "model.onnx"
    with pytest.raises(
        ConfigurationError, match=r"model\.onnx is not a valid tokenizer\. Download or export"
    ):
        Tokens(path)


WORDS = ["The clock shows the hour.", "Die Uhr zeigt die Stunde.", "鸡蛋要煮多久 часы 👩‍👧"]


def byte_level(path: Path) -> Path:
    """As GPT's descendants have it: tokens of bytes, the space before a word in its token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("$A <|end|>", special_tokens=[("<|end|>", 0)])
    tokenizer.save(str(path))
    return path


def sentence_pieces(path: Path) -> Path:
    """As XLM-R has it: pieces of normalized text, with a mark for the space before a word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=special, unk_token="<unk>")  # noqa: S106 a token
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(("write", "special"), [(byte_level, "<|end|>"), (sentence_pieces, "</s>")])
def test_tokenizers_of_other_families_have_spans_without_the_space_before_a_word(
    write: Callable[[Path], Path], special: str, tmp_path: Path
) -> None:
    tokenizer = Tokens(write(tmp_path / "tokenizer.json"))
    text = f"The clock\n\n  shows 👩‍👧 часы {special} 鸡蛋."
    spans = tokenizer.spans(text)
    assert spans == sorted(spans)
    assert all(text[start:end].isspace() or not text[start:end][:1].isspace() for start, end in spans)
    covered = {at for start, end in spans for at in range(start, end)}
    assert all(at in covered for at, letter in enumerate(text) if not letter.isspace())
    ids = tokenizer.ids(text, 256)
    assert ids.count(ids[-1]) == 1  # spelled out, not meant
    assert tokenizer.ids(text, 6) == [*ids[:5], ids[-1]]
    text = text.replace(special, "")
    assert len(tokenizer.ids(text, 256)) == len(tokenizer.spans(text)) + 256 - tokenizer.window(256, "")


def test_a_tokenizer_without_special_tokens_is_cut_at_the_end_of_the_window(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(byte_level(tmp_path / "tokenizer.json")))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokens = Tokens(tmp_path / "tokenizer.json")
    assert tokens.ids("The clock shows", 3) == tokens.ids("The clock shows", 256)[:3]


FACTS = ModelFacts(
    name="small",
    repository="acme/small",
    revision="0" * 40,
    files=(ModelFile("onnx/model.onnx", 3, "a" * 64),),
    graph="onnx/model.onnx",
    pooling="cls",
    dimension=768,
    truncations=(384, 256),
    query_prefix="query: ",
    multilingual=True,
)


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / FACTS_FILE).write_bytes(facts_as_json(FACTS))
    assert read_facts(tmp_path) == FACTS


def test_a_folder_without_the_file_has_no_facts(tmp_path: Path) -> None:
    assert read_facts(tmp_path) is None
    assert read_facts(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"name": "x", "pooling": "avg"}', b'{"name": "x", "colour": 1}', b"{}"]
)
def test_facts_that_are_damaged_are_an_error_and_never_guessed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FACTS_FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match="can't be read"):
        read_facts(tmp_path)

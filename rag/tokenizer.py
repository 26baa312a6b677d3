"""A model's own tokenizer, as it lies beside the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


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

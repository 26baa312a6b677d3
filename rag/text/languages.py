"""Languages of documents: from BCP 47 tags to names for readers, and to rules for words."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from rag.corpus import Collection, Language

LANGUAGE = "language"
"""The metadata of a source that holds its language, as `primary` writes it, so that one filter finds all."""

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_STEMMED: dict[str, Language] = _LISTS["stemmed"]
_NAMES: dict[str, str] = _LISTS["stemmed"] | _LISTS["others"]
_SAME: dict[str, str] = dict(pair.split("=") for pair in _LISTS["same"].split())


def primary(tag: str) -> str:
    """The language of a tag, without country and script: "de-AT", "DE", "ger" -> "de"; "nb" -> "no"."""
    code = tag.replace("_", "-").partition("-")[0].lower()
    return _SAME.get(code, code)


def name_of(tag: str) -> str:
    """The name of a tag's language for readers: "de-AT" -> "German", "xx" -> "xx"."""
    return _NAMES.get(primary(tag), primary(tag))


def is_known(tag: str) -> bool:
    """Whether a tag's language has a name here. Others can be anything that a document states."""
    return primary(tag) in _NAMES


def rules_of(tag: str) -> Language:
    """The language by whose rules words of this tag are analysed: "de-AT" -> "German", "uk" -> "none"."""
    return _STEMMED.get(primary(tag), "none")


def analysed_in(collection: Collection, metadata: Mapping[str, str]) -> Language:
    """The language by whose rules the words of a source with this metadata are analysed."""
    tag = metadata.get(LANGUAGE, "")
    if collection.language == "auto" and tag:
        return rules_of(tag)
    return collection.usual_language

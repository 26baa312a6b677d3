"""One form of the words of scripts in which a word is usually written in several, for comparing."""

from __future__ import annotations

import re

_OTHER = re.compile("[\u0590-\u1dff\u2e80-\ud7ff\uf900-\ufdff\ufe70-\uffef]")
_KOREAN = re.compile("[가-힣]{3,}")
_PARTICLE = re.compile(
    "(?<=[가-힣][가-힣])(?:은|는|이|가|을|를|의|에|로|으로|와|과|도|만|에서|에게|에게서|께|께서|한테|한테서|까지|부터"
    "|처럼|보다|마다|조차|마저|밖에|이나|이라|라는|이라는|이란|하고|으로서|로서|으로써|로써|대로|만큼|뿐|이며|이고|들"
    "|입니다|이다|입니까|합니다|합니까|하다|하는|하여|해서|했다|했습니다|됩니다|되다|되는|되어|된|할|한)$"
)


def has_other_letters(text: str) -> bool:
    """Whether a text has letters beyond Latin, Greek and Cyrillic, so that the rest of this page matters."""
    return not text.isascii() and bool(_OTHER.search(text))


def without_all_particles(text: str) -> str:
    """A text whose Korean words are `without_particles`."""
    return _KOREAN.sub(lambda word: without_particles(word[0]), text)


def without_particles(word: str) -> str:
    """A Korean word without the particles and endings behind it, as long as two syllables are left.

    They are written together with a noun, which without this would be another word with each of them. Words
    that only look as if they had one lose it in texts and queries alike.
    Example: "경비실에서는" -> "경비실"; "회의" -> "회의".
    """
    while (stem := _PARTICLE.sub("", word)) != word:
        word = stem
    return word

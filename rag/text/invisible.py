"""Removes invisible characters: people don't see them, but models and terminals read them.

Prompt injections can hide in them, because 256 variation selectors can spell any bytes. Invisible are control
characters, all of Unicode's default ignorable code points, and annotation marks. Characters that change what
a reader sees are kept: joiners within emoji and within scripts that join letters, and one variation selector
after a character that has variants.
"""

from __future__ import annotations

import re
from json import dumps

JOINERS = "\u200c\u200d"
FIRST_PRINTED_HIDDEN = "\u034f"
"""The first of the invisible characters that `str.isprintable` takes for visible."""

_CONTROL = r"\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_IGNORABLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_JOINED = (  # scripts whose letters join: Arabic and related, South and Southeast Asian, Mongolian
    r"\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\u1900-\u1cff"
    r"\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    r"\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_STANDARD = (
    r"\u1000-\u109f\u2200-\u22ff\u2a00-\u2aff\u3001\u3002\ua840-\ua877\uff01-\uff1f\U00013000-\U0001342f"
)
"""Characters with variants in Unicode's own list, which uses only the first selectors."""

_HIDDEN = re.compile(
    rf"[{_CONTROL}{_IGNORABLE}]"
    rf"(?<![{_JOINED}][{JOINERS}])"
    rf"(?<![{_EMOJI}][\ufe0e\ufe0f])"
    rf"(?!(?<=[{_EMOJI}]\u200d)[{_EMOJI}])(?!(?<=[{_EMOJI}]\ufe0f\u200d)[{_EMOJI}])"
    r"(?!(?<=[#*0-9]\ufe0f)\u20e3)"  # keycap emoji
    rf"(?<![{_HAN}][\ufe00-\ufe02\U000e0100-\U000e01ef])"
    rf"(?<![{_STANDARD}][\ufe00-\ufe06])"
    r"(?<![\u1820-\u18aa][\u180b-\u180d\u180f])"  # Mongolian letters
)
_CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1f\x7f]")
_BARE = re.compile(rf"[{_CONTROL}{_IGNORABLE}]")
_ASCII_LINE_ENDS = ("\r\n", "\r")
_LINE_ENDS = (*_ASCII_LINE_ENDS, "\x85", "\u2028", "\u2029")
_UNSAFE = re.compile(rf"{_HIDDEN.pattern}|[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_COMMANDS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def without_hidden(text: str) -> str:
    r"""`text` without invisible characters; white space stays, and so do joiners and selectors with effect.

    Example: "pass\u200bword" -> "password"; a family emoji, which joiners hold together, stays one.
    """
    if not text.isascii():
        return _HIDDEN.sub("", text)
    # What can be printed between line ends and tabs has none: that is seen ten times as fast as by a pattern.
    return text if text.replace("\n", "").replace("\t", "").isprintable() else _CONTROLS.sub("", text)


def hidden_count(text: str) -> int:
    """How many characters `without_hidden` removes, but for soft hyphens, which any typesetter uses."""
    return len(text) - len(without_hidden(text)) - text.count("\u00ad")


def bare(text: str) -> str:
    """`text` without any joiners and selectors, for comparing texts that differ in these only."""
    return _BARE.sub("", text)


def with_line_ends(text: str) -> str:
    """`text` with every line and paragraph separator replaced by LF."""
    for end in _ASCII_LINE_ENDS if text.isascii() else _LINE_ENDS:
        text = text.replace(end, "\n")
    return text


def for_people(text: str) -> str:
    """`text` that is safe to print on a terminal: no escape sequences, no invisible characters.

    Control characters except tabs and line ends, and lone surrogates, become U+FFFD.
    """
    lines = with_line_ends(text).replace("\x0b", "\n").replace("\x0c", "\n")
    return without_hidden(_COMMANDS.sub("\ufffd", lines))


def in_one_line(text: str) -> str:
    """The same on one line, so a document can't add lines to a list."""
    return for_people(text).replace("\n", " ").replace("\t", " ")


def escape_hidden(json: str) -> str:
    """JSON with invisible characters escaped, and lone surrogates, which UTF-8 can't encode."""
    return _UNSAFE.sub(lambda match: dumps(match[0])[1:-1], json)

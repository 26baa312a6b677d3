"""What letters say by how they are set: scripts, readings above them, struck-out text, and fonts of symbols.

Glued to their base they say something else: 10 to the 15th is not 1015. Parsers mark where scripts begin and
end, and the marks are resolved where a paragraph is whole, since what stands before and behind decides.
"""

from __future__ import annotations

import re
import unicodedata

SUP, SUP_END, SUB, SUB_END = "\ufdd2", "\ufdd3", "\ufdd4", "\ufdd5"
"""Noncharacters that mark where superscripts and subscripts begin and end."""
STRUCK, STRUCK_END = "\ufdd6", "\ufdd7"
"""Noncharacters that mark where struck-out text begins and ends, which is between tildes in the end."""
READ, READING, READING_END = "\ufdd8", "\ufdd9", "\ufdda"
"""Noncharacters where a text with a reading above it begins, where its reading does, and behind that."""
HEIGHTS = {"superscript": 1, "super": 1, "subscript": -1, "sub": -1}
"""What formats call the scripts: higher than the line, or lower."""

_NESTED = 3  # exponents of exponents of exponents: people stop earlier
_BASE = 40  # characters before a script that may belong to its base
_MARK = re.compile(f"[{SUP}-{READING_END}]")
_READ = re.compile(f"{READ}([^{READ}-{READING_END}]*){READING}([^{READ}-{READING_END}]*){READING_END}")
_ALL_READ = re.compile(f"(?:{_READ.pattern})+")
_STRUCK_CUT = re.compile(f"{STRUCK_END}{STRUCK}")
_STRUCK = re.compile(f"{STRUCK}([^{STRUCK}{STRUCK_END}]*){STRUCK_END}")
_CUT = re.compile(f"{SUP_END}{SUP}|{SUB_END}{SUB}")  # one script in two pieces
_RAISED_SIGN = re.compile(  # behind a note, and no part of it: <11,> <1)>
    rf"(?:(?<![,;.])([,;.]+)|(?<={SUP}\d)(\))|(?<={SUP}\d\d)(\))){SUP_END}"
)
_FRACTION = re.compile(rf"(?:(\d) ?)?{SUP}(\d{{1,6}}){SUP_END} ?[/\u2044\u2215] ?{SUB}(\d{{1,6}}){SUB_END}")
_SCRIPT = re.compile(rf"[{SUP}{SUB}]([^{SUP}-{SUB_END}]*)[{SUP_END}{SUB_END}]")
_SIMPLE = re.compile(r"[+\-−–]?\w+(?:[.,]\w+)*[+\-−–]?|\([^()]*\)")
_WITH_SCRIPTS = re.compile(rf"[\w)\]}}'\"”’.,;:!?%{SUP_END}{SUB_END}]")
_ONE_WORD = re.compile(
    rf"""(?:\w{SUP}(?:st|nd|rd|th|TM|SM)                            # 2nd, nth
    |(?:\d|\b[IVXLCDM]{{1,9}}){SUP}(?:ers?|es?|res?|ère|èmes?)      # 1er, XIXe
    |\b(?:M{SUP}(?:mes?|lles?|gr|rs?)|[DP]{SUP}rs?|[Nn]{SUP}os?)    # Mme, Dr, no
    |[A-Za-z]{SUP}\d?[+\-−–]                                        # Ca2+
    |(?:[^\W\d_]|[)\]]){SUB}\d+)\Z                                  # H2O, Ca(OH)2
    """,
    re.VERBOSE,
)
_AS_TYPED = re.compile(rf"(?:(?<!\w)I{SUP}2[CS]|(?<!\w)[A-Z][A-Za-z]+{SUP}\+\d)\Z")  # I2C, [BCI+10]


def as_script(text: str, height: float) -> str:
    """A text with marks, if it is set higher (above 0) or lower (below) than the line."""
    if not height or not text.strip():
        return text
    return f"{SUP}{text}{SUP_END}" if height > 0 else f"{SUB}{text}{SUB_END}"


def as_read(text: str, reading: str) -> str:
    """A text with the reading that stands above it (furigana), in marks."""
    return f"{READ}{text}{READING}{reading}{READING_END}" if text and reading else text


def _with_reading(match: re.Match[str]) -> str:
    """A word whose characters have readings, with all of them behind it."""
    words, readings = zip(*_READ.findall(match[0]), strict=True)
    return f"{''.join(words)}({''.join(readings)})"


def as_struck(text: str, *, is_struck: bool) -> str:
    """A text with marks, if it is struck out, as a whole or in parts."""
    if not is_struck or not text.strip():
        return text
    return f"{STRUCK}{text.replace(STRUCK, '').replace(STRUCK_END, '')}{STRUCK_END}"


def _between_tildes(match: re.Match[str]) -> str:
    text = match[1].strip()
    return match[1].replace(text, f"~~{text}~~", 1) if text else match[1]


def with_scripts(text: str) -> str:
    """A text with its marked scripts as people type them; ordinals and chemical formulas stay one word.

    Example, with <> for marks: "10<15> m, 2<nd>, x<n+1>" -> "10^15 m, 2nd, x^(n+1)".
    """
    if not _MARK.search(text):
        return text
    text = _ALL_READ.sub(_with_reading, text)
    text = _STRUCK.sub(_between_tildes, _STRUCK_CUT.sub("", text))
    text = _RAISED_SIGN.sub(rf"{SUP_END}\1\2\3", _CUT.sub("", text))
    text = _FRACTION.sub(_fraction, text)
    for _ in range(_NESTED):
        text = _SCRIPT.sub(_written, text)
    return _MARK.sub("", text)


def _fraction(match: re.Match[str]) -> str:
    whole, numerator, denominator = match.groups()
    return f"{whole} {numerator}/{denominator}" if whole else f"{numerator}/{denominator}"


def _written(match: re.Match[str]) -> str:
    """A script with the sign of its kind, in parentheses where it would go on; or only its text."""
    mark, script = match[0][0], match[1]
    body = script.strip()
    words = body.strip("*_`")
    before = match.string[max(0, match.start() - _BASE) : match.start()].rstrip("*_`")
    before += " " if script[:1].isspace() else ""
    behind = match.string[match.end() : match.end() + 1] if body == script.rstrip() else " "
    if _is_apart(mark, before, behind) or _is_reference(mark, words, behind):
        return script
    goes_on = behind.isdigit() or (behind.isascii() and behind.isalpha())
    word = f"{before.rstrip()[-10:]}{mark}{words}"
    if _AS_TYPED.search(f"{word}{behind}"):
        return script
    if _ONE_WORD.search(word) and not (behind.isdigit() if mark == SUB else goes_on):
        return script
    sign = "^" if mark == SUP else "_"
    typed = body if _SIMPLE.fullmatch(words) and not goes_on else f"({body})"
    return script.replace(body, f"{sign}{typed}", 1)


def _is_apart(mark: str, before: str, behind: str) -> bool:
    """Whether a script belongs to nothing before it, as in "by 14 C" for the isotope, or below a table."""
    base = before.rstrip(" \xa0\u2009\u202f")
    if base != before:
        return mark == SUB or not base[-1:].isdigit() or behind.isalpha()
    return not _WITH_SCRIPTS.match(base[-1:])


def _is_reference(mark: str, words: str, behind: str) -> bool:
    """Whether a script can't be taken for a part of its base: a link, [3], *, ®, a minus alone, a line."""
    if "](" in words or words.startswith("[") or "\n" in words:
        return True
    has_letters = any(map(str.isalnum, words.strip("ªº"))) or "∞" in words
    return not has_letters and mark == SUP and not (behind.isalnum() and words in "+-−–")


# Fonts of symbols: their code points say nothing in any other font. Office files write them as codes, as
# private characters, or as the letters that these codes are elsewhere: "ü" in Wingdings is ✓. In PDFs, names
# say more.
TICKED, UNTICKED = "[x]", "[ ]"  # as in Markdown, which models and people read alike


def ticked(is_ticked: bool) -> str:  # noqa: FBT001 its only argument
    """A checkbox as text: [x] or [ ]."""
    return TICKED if is_ticked else UNTICKED


_LOW = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
_HIGH = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…│─↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\ufffd⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
_SYMBOL = {**dict(enumerate(_LOW, 0x20)), **dict(enumerate(_HIGH, 0xA0))}
_WINGDINGS = {
    **dict(zip(map(ord, "CDEFJKLlnuv\x9f§«Øûü"), "👍👎☜☞☺😐☹●■◆❖•▪★➢✗✓", strict=True)),
    **dict(zip(map(ord, "ßàáâçèéêïðñò"), "←→↑↓←→↑↓⇦⇨⇧⇩", strict=True)),
    **dict.fromkeys(map(ord, "ýþ"), TICKED),
    **dict.fromkeys(map(ord, "opqr¨"), UNTICKED),
}
_WINGDINGS_2 = dict(zip(map(ord, "OPQRSTU£"), ("✗", "✓", *[TICKED] * 5, UNTICKED), strict=True))
_WEBDINGS = dict(zip(map(ord, "acrg"), ("✓", UNTICKED, "✗", "■"), strict=True))
_FONTS = {"symbol": _SYMBOL, "wingdings": _WINGDINGS, "wingdings2": _WINGDINGS_2, "webdings": _WEBDINGS}
SYMBOL_FONTS = r"(?:symbol|wingdings(?:[ -]?2)?|webdings)"
_FONT = re.compile(rf"(?:[A-Z]{{6}}\+)?({SYMBOL_FONTS})(?:mt|ps)?(?:[-,_].*)?", re.IGNORECASE | re.DOTALL)
_EITHER = {**_SYMBOL, **{code: text for code, text in _WINGDINGS.items() if code > 0x7F}}  # noqa: PLR2004 ASCII
_STAND_IN = re.compile(r"(?:[A-Z]{6}\+)?OpenSymbol|CIDFont\+F\d+")  # LibreOffice; Windows prints so
_PIECES = "⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪⎮⎞⎟⎠⎤⎥⎦⎫⎬⎭"  # the pieces of brackets over several lines
_ADOBE = {
    **dict.fromkeys(range(0xF8E5, 0xF8FF), ""),
    0xF8E8: "®",
    0xF8E9: "©",
    0xF8EA: "™",
}  # most are pieces
_PRIVATE = 0xF000  # start of the code points of symbol fonts
_TABLES = {
    font: {
        at: sign for code, sign in codes.items() for at in (code, _PRIVATE + code) if not chr(at).isspace()
    }
    for font, codes in _FONTS.items()
}


def symbol_font(font: str) -> str:
    """The name of a symbol font in `_FONTS`, "" for other fonts."""
    match = _FONT.fullmatch(font)
    return re.sub("[ -]", "", match[1].casefold()) if match else ""


_WORD = re.compile(r"[A-Za-z]{4,}")


def with_symbols(text: str, font: str) -> str:
    """A text in a font, with what people see of its characters if that is a font of symbols.

    Words stay: many programs and browsers show them in another font. "llll" is no word, but four ●.
    """
    name = symbol_font(font)
    if not name or any(len({*word.casefold()}) > 2 for word in _WORD.findall(text)):  # noqa: PLR2004 kinds of signs
        return text
    return text.translate(_TABLES[name])


def shown_by(character: str, font: str) -> str:
    """What people see of a character of a PDF in a font: one that the font doesn't have is a code.

    Where a font stands in for Symbol and Wingdings, letters are those of Symbol, and other codes mostly signs
    of Wingdings. Pieces of brackets are nothing: each of them stands in another line.
    """
    code = ord(character)
    symbols = _EITHER if code > _PRIVATE and _STAND_IN.fullmatch(font) else {}
    symbols = _FONTS.get(symbol_font(font), symbols)
    if unicodedata.normalize("NFKC", character) not in symbols.values():
        character = symbols.get(code % _PRIVATE if code > _PRIVATE else code) or _ADOBE.get(code, character)
    return character.strip(_PIECES)

"""The characters of the fonts Symbol and Wingdings, whose code points say nothing in any other font.

Word writes them as codes, alone or as private characters in a run of the font: 0x6D in Symbol is μ.
"""

from __future__ import annotations

TICKED, UNTICKED = "[x]", "[ ]"  # as in Markdown, which models and people read alike

_LOW = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
_HIGH = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…│─↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\ufffd⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
_SYMBOL = {**dict(enumerate(_LOW, 0x20)), **dict(enumerate(_HIGH, 0xA0))}
_WINGDINGS = {
    **dict.fromkeys((0x52, 0x53, 0xFD, 0xFE), TICKED),
    **dict.fromkeys((0x6F, 0x70, 0x71, 0x72, 0xA8), UNTICKED),
    0xDF: "←",
    0xFB: "✗",
    0xFC: "✓",
    **dict.fromkeys((0xE0, 0xE8), "→"),
}
_FONTS = {"symbol": _SYMBOL, "wingdings": _WINGDINGS}
PRIVATE = 0xF000  # start of the code points of symbol fonts
_TABLES = {font: {PRIVATE + code: text for code, text in codes.items()} for font, codes in _FONTS.items()}


def symbol_of(code: int, font: str) -> str:
    """The character of a code in a symbol font, or ""."""
    return _FONTS.get(font.casefold(), {}).get(code % PRIVATE, "")


def with_symbols(text: str, font: str) -> str:
    """A text whose private characters are those of a symbol font."""
    return text if text.isascii() else text.translate(_TABLES.get(font.casefold(), {}))

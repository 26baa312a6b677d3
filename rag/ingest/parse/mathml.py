"""Formulas in MathML as one would type them: (a+b)/c, x^2, sqrt(x). TeX that comes with them goes first."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

from rag.text.flags import flags_in
from rag.text.plain_text import one_line

_GAP = "\x1f"  # a space, if letters or digits are on both sides
_DISPLAY_STYLE = re.compile(r"\{\\(?:displaystyle|textstyle) (.*)\}", re.DOTALL)
_INVISIBLE = str.maketrans({"\u2061": " ", "\u2062": _GAP, "\u2063": ",", "\u2064": "+"})
_APART = re.compile(rf"(?<=[\w)\]]){_GAP}+(?=[\w(\[])")
_ACCENTS = {
    **dict.fromkeys("¯‾―ˉ_", "overline"),
    **dict.fromkeys("^ˆ", "hat"),
    **dict.fromkeys("~˜", "tilde"),
    **dict.fromkeys("→⃗", "vec"),
    **dict.fromkeys("˙.", "dot"),
    "¨": "ddot",
}
_RAISED = frozenset("′″‴'°*†")  # signs that are high by themselves
_LEFT_OUT = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts", "maligngroup"})


def formula(math: Element) -> str:
    """The text of a formula: its TeX between dollars if it has that, else as one would type it.

    A page doesn't show the TeX, so one that gives orders to a model is ignored.

    Example: <msup><mn>10</mn><mn>3</mn></msup><mo>+</mo><msqrt><mi>a</mi></msqrt> -> "10^3+sqrt(a)".
    """
    for annotation in math.iter("annotation"):
        tex = tex_of(annotation.text or "") if "tex" in annotation.get("encoding", "").casefold() else ""
        if tex and "instructions" not in flags_in(tex):
            return tex
    return one_line(_APART.sub(" ", _inside(math)).replace(_GAP, ""))


def tex_of(text: str) -> str:
    r"""TeX between dollars, without the style around it: "{\displaystyle x^{2}}" -> "$x^{2}$"."""
    text = one_line(text)
    styled = _DISPLAY_STYLE.fullmatch(text)
    tex = styled[1].strip() if styled else text
    return f"${tex}$" if tex else ""


def _inside(element: Element) -> str:
    return "".join(map(_linear, element))


def _linear(element: Element) -> str:
    """The text of an element by its name; that of an unknown one is the text inside."""
    tag = element.tag
    if tag in _LEFT_OUT:
        return ""
    if tag in {"mi", "mn", "mo", "ms"}:
        return one_line("".join(element.itertext())).translate(_INVISIBLE)
    if tag in {"mtext", "mspace"}:
        return f" {one_line(''.join(element.itertext()))} "
    parts = [_linear(child) for child in element]
    if tag in _WRITTEN and len(parts) == _PARTS.get(tag, len(parts)):
        return _WRITTEN[tag](element, parts)
    return parts[0] if tag in {"semantics", "maction"} and parts else "".join(parts)


def _fraction(element: Element, parts: list[str]) -> str:
    over, under = parts
    if element.get("linethickness", "1").rstrip("ptxem%").strip("0.") == "":
        return f"binom({over}, {under})"
    return f"{_GAP}{_factor(over)}/{_factor(under)}{_GAP}"


def _over(_: Element, parts: list[str]) -> str:
    base, high = parts
    accent = _ACCENTS.get(high.strip())
    return f"{accent}({base})" if accent else _with_scripts(base, "", high)


def _fenced(element: Element, parts: list[str]) -> str:
    separator = (element.get("separators", ",").strip() or " ")[0]
    return f"{element.get('open', '(')}{separator.join(parts)}{element.get('close', ')')}"


def _multiscripts(element: Element, parts: list[str]) -> str:
    """A base with scripts in pairs, low and high, perhaps before it, too: _6^14 C."""
    base, *texts = parts or [""]
    tags = [child.tag for child in element][1:]
    at = tags.index("mprescripts") if "mprescripts" in tags else len(tags)
    before = "".join(_with_scripts("", *texts[pair : pair + 2]) for pair in range(at + 1, len(texts), 2))
    behind = "".join(_with_scripts("", *texts[pair : min(pair + 2, at)]) for pair in range(0, at, 2))
    return f"{before}{base}{behind}"


def _with_scripts(base: str, low: str = "", high: str = "") -> str:
    is_simple = len(base.strip(f" {_GAP}")) <= 1 or base.strip().isalnum() or base.strip()[-1:] in ")]}|"
    text = base.rstrip() if is_simple else f"({base})"
    text += f"_{_atom(low)}" if low.strip() else ""
    if high.strip() and set(high.strip()) <= _RAISED:
        return text + high.strip() + _GAP
    return text + (f"^{_atom(high)}" if high.strip() else "") + _GAP


def _atom(text: str) -> str:
    """A script, in parentheses unless it is one number, or letters alone."""
    bare = text.strip(f" {_GAP}")
    return bare if bare.isalpha() or bare.isdecimal() else f"({bare})"


def _factor(text: str) -> str:
    """One side of a fraction, in parentheses unless it is one number or one letter."""
    bare = text.strip(f" {_GAP}")
    return bare if len(bare) == 1 or bare.isdecimal() else f"({bare})"


_WRITTEN: dict[str, Callable[[Element, list[str]], str]] = {
    "mfrac": _fraction,
    "mover": _over,
    "mfenced": _fenced,
    "mmultiscripts": _multiscripts,
    "msqrt": lambda _, parts: f"sqrt({''.join(parts)})",
    "mroot": lambda _, parts: f"root({parts[1]}, {parts[0]})",
    "msup": lambda _, parts: _with_scripts(parts[0], "", parts[1]),
    **dict.fromkeys(("msub", "munder"), lambda _, parts: _with_scripts(*parts)),
    **dict.fromkeys(("msubsup", "munderover"), lambda _, parts: _with_scripts(*parts)),
    "mtr": lambda _, parts: ", ".join(parts) + "; ",
    "mlabeledtr": lambda _, parts: ", ".join(parts[1:]) + "; ",
    "mtable": lambda _, parts: f"[{''.join(parts).removesuffix('; ')}]",
}
_PARTS = {
    **dict.fromkeys(("mfrac", "mover", "mroot", "msup", "msub", "munder"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
"""How many elements are in those that need a certain number."""

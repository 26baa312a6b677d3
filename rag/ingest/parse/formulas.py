"""Formulas in MathML and OMML as text on one line, as one would type them: (a+b)/c, x^2, sqrt(x)."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

from rag.ingest.parse.zip_package import child, value
from rag.text.flags import flags_in
from rag.text.plain_text import one_line

_GAP = "\x1f"  # a space, if letters or digits are on both sides
_DISPLAY_STYLE = re.compile(r"\{\\(?:displaystyle|textstyle) (.*)\}", re.DOTALL)
_INVISIBLE = str.maketrans({"\u2061": " ", "\u2062": _GAP, "\u2063": ",", "\u2064": "+"})
_APART = re.compile(rf"(?<=[\w)\]]){_GAP}+(?=[\w(\[])")
_ACCENTS = {
    **dict.fromkeys("¯‾―ˉ_\u0304\u0305", "overline"),
    **dict.fromkeys("^ˆ\u0302", "hat"),
    **dict.fromkeys("~˜\u0303", "tilde"),
    **dict.fromkeys("→\u20d7", "vec"),
    **dict.fromkeys("˙.\u0307", "dot"),
    **dict.fromkeys("¨\u0308", "ddot"),
}
_SIMPLE = re.compile(r"[^\W_]*|\d+[.,]\d+|.*[)\]}|]", re.DOTALL)
_RAISED = frozenset("′″‴'°∘*†")  # signs that are high by themselves
_UNWRITTEN = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts", "maligngroup"})


def mathml_text(math: Element) -> str:
    """A formula in MathML: its TeX between dollars if it has that, else as one would type it.

    A page doesn't show the TeX, so one that gives orders to a model is ignored.

    Example: <msup><mn>10</mn><mn>3</mn></msup><mo>+</mo><msqrt><mi>a</mi></msqrt> -> "10^3+sqrt(a)".
    """
    for annotation in math.iter("annotation"):
        tex = tex_of(annotation.text or "") if "tex" in annotation.get("encoding", "").casefold() else ""
        if tex and "instructions" not in flags_in(tex):
            return tex
    return _line("".join(map(_linear, math)))


def _line(linear: str) -> str:
    return one_line(_APART.sub(" ", linear).replace(_GAP, ""))


def tex_of(text: str) -> str:
    r"""TeX between dollars, without the style around it: "{\displaystyle x^{2}}" -> "$x^{2}$"."""
    text = one_line(text)
    styled = _DISPLAY_STYLE.fullmatch(text)
    tex = styled[1].strip() if styled else text
    return f"${tex}$" if tex else ""


def _linear(element: Element) -> str:
    """The text of an element, by its name; of an unknown one, the text inside."""
    tag = element.tag
    if tag in _UNWRITTEN:
        return ""
    if tag in {"mi", "mn", "mo", "ms"}:
        return one_line("".join(element.itertext())).translate(_INVISIBLE)
    if tag in {"mtext", "mspace"}:
        return f" {one_line(''.join(element.itertext()))} "
    parts = [_linear(child) for child in element]
    if tag in _WRITTEN and _WRITTEN[tag][0] in {0, len(parts)}:
        return _WRITTEN[tag][1](element, parts)
    return parts[0] if tag in {"semantics", "maction"} and parts else "".join(parts)


def _fraction(element: Element, parts: list[str]) -> str:
    has_line = element.get("linethickness", "1").rstrip("ptxem%").strip("0.") != ""
    return _divided(*parts, has_line=has_line)


def _divided(over: str, under: str, *, has_line: bool) -> str:
    return f"{_GAP}{_factor(over)}/{_factor(under)}{_GAP}" if has_line else f"binom({over}, {under})"


def _over(base: str, high: str) -> str:
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
    is_simple = len(base.strip(f" {_GAP}")) <= 1 or _SIMPLE.fullmatch(base.strip())
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


_WRITTEN: dict[str, tuple[int, Callable[[Element, list[str]], str]]] = {
    "mfrac": (2, _fraction),
    "mover": (2, lambda _, parts: _over(*parts)),
    "mfenced": (0, _fenced),
    "mmultiscripts": (0, _multiscripts),
    "msqrt": (0, lambda _, parts: f"sqrt({''.join(parts)})"),
    "mroot": (2, lambda _, parts: f"root({parts[1]}, {parts[0]})"),
    "msup": (2, lambda _, parts: _with_scripts(parts[0], "", parts[1])),
    **dict.fromkeys(("msub", "munder"), (2, lambda _, parts: _with_scripts(*parts))),
    **dict.fromkeys(("msubsup", "munderover"), (3, lambda _, parts: _with_scripts(*parts))),
    "mtr": (0, lambda _, parts: ", ".join(parts) + "; "),
    "mlabeledtr": (0, lambda _, parts: ", ".join(parts[1:]) + "; "),
    "mtable": (0, lambda _, parts: f"[{''.join(parts).removesuffix('; ')}]"),
}
"""How an element is written, by its name, with the number of elements that must be in it; 0 is any number."""


_APPLIED = "\u2061"  # the invisible "function application"


def omml_text(math: Element) -> str:
    """A formula in OMML, in which Word and PowerPoint write them, as `mathml_text` writes it: "1/(2a) b"."""
    return _line(_omml_inside(math))


def _omml_inside(part: Element) -> str:
    return "".join(map(_omml, part))


def _omml(part: Element) -> str:
    names, as_text = _WRITTEN_OMML.get(part.tag, ((), _omml_inside))
    inside = (child(part, name) for name in names)
    return as_text(part, *(_omml_inside(inner) if inner is not None else "" for inner in inside))


def _listed(part: Element, separator: str) -> str:
    return separator.join(_omml_inside(element) for element in part if element.tag == "e")


def _omml_fenced(part: Element) -> str:
    ends = zip(("begChr", "endChr"), "()", strict=True)
    opening, closing = (
        value(part, "dPr", name) if child(part, "dPr", name) is not None else usual for name, usual in ends
    )
    return f"{opening}{_listed(part, ', ')}{closing}"


def _omml_fraction(part: Element, over: str, under: str) -> str:
    return _divided(over, under, has_line=value(part, "fPr", "type") != "noBar")


def _omml_sum(part: Element, low: str, high: str, base: str) -> str:
    return f"{_with_scripts(value(part, 'naryPr', 'chr') or '∫', low, high)} {base}"


_WRITTEN_OMML: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "t": ((), lambda part: (part.text or "").replace(_APPLIED, " ")),
    "d": ((), _omml_fenced),
    "m": ((), lambda part: f"[{_omml_inside(part).removesuffix('; ')}]"),
    "mr": ((), lambda part: f"{_listed(part, ', ')}; "),
    "eqArr": ((), lambda part: _listed(part, "; ")),
    "f": (("num", "den"), _omml_fraction),
    **dict.fromkeys(
        ("sSup", "sSub", "sSubSup"), (("e", "sub", "sup"), lambda _, *texts: _with_scripts(*texts))
    ),
    "sPre": (("sub", "sup", "e"), lambda _, low, high, base: f"{_with_scripts('', low, high)}{base}"),
    "limLow": (("e", "lim"), lambda _, base, low: _with_scripts(base, low)),
    "limUpp": (("e", "lim"), lambda _, base, high: _over(base, high)),
    "acc": (("e",), lambda part, base: _over(base, value(part, "accPr", "chr") or "^")),
    "bar": (
        ("e",),
        lambda part, base: f"{'over' if value(part, 'barPr', 'pos') == 'top' else 'under'}line({base})",
    ),
    "rad": (("deg", "e"), lambda _, degree, base: f"root({degree}, {base})" if degree else f"sqrt({base})"),
    "nary": (("sub", "sup", "e"), _omml_sum),
    "func": (("fName", "e"), lambda _, name, base: f"{name} {base}"),
}
"""How an element is written, by its name, with the names of the elements in it that are written."""

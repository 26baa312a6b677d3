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
    **dict.fromkeys("¯‾―ˉ_", "overline"),
    **dict.fromkeys("^ˆ", "hat"),
    **dict.fromkeys("~˜", "tilde"),
    **dict.fromkeys("→⃗", "vec"),
    **dict.fromkeys("˙.", "dot"),
    "¨": "ddot",
}
_RAISED = frozenset("′″‴'°*†")  # signs that are high by themselves
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
    linear = "".join(map(_linear, math))
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


_WRITTEN: dict[str, tuple[int, Callable[[Element, list[str]], str]]] = {
    "mfrac": (2, _fraction),
    "mover": (2, _over),
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
    """A formula in OMML, in which Word and PowerPoint write them: "(a+b)/(2)"."""
    return " ".join("".join(map(_omml, math)).split())


def _omml(part: Element) -> str:  # noqa: PLR0911 a table
    match part.tag:
        case "t":
            return (part.text or "").replace(_APPLIED, " ")
        case "f":
            return f"{_in_parentheses(part, 'num')}/{_in_parentheses(part, 'den')}"
        case "sSup" | "sSub" | "sSubSup" | "sPre":
            return _child_text(part, "e") + _script(part, "_", "sub") + _script(part, "^", "sup")
        case "rad":
            degree, base = _child_text(part, "deg"), _child_text(part, "e")
            return f"root({degree}, {base})" if degree else f"sqrt({base})"
        case "nary":
            sign = value(part, "naryPr", "chr") or "∫"
            return f"{sign}{_script(part, '_', 'sub')}{_script(part, '^', 'sup')} {_child_text(part, 'e')}"
        case "d":
            opening = value(part, "dPr", "begChr") if child(part, "dPr", "begChr") is not None else "("
            closing = value(part, "dPr", "endChr") if child(part, "dPr", "endChr") is not None else ")"
            return opening + ", ".join(omml_text(element) for element in part if element.tag == "e") + closing
        case "func":
            return f"{_child_text(part, 'fName')} {_child_text(part, 'e')}"
        case "mr":
            return ", ".join(omml_text(element) for element in part if element.tag == "e") + "; "
        case _:
            return "".join(map(_omml, part))


def _child_text(part: Element, name: str) -> str:
    inner = child(part, name)
    return omml_text(inner) if inner is not None else ""


def _in_parentheses(part: Element, name: str) -> str:
    text = _child_text(part, name)
    return text if text.isalnum() else f"({text})"


def _script(part: Element, sign: str, name: str) -> str:
    return f"{sign}{_in_parentheses(part, name)}" if _child_text(part, name) else ""

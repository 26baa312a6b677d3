"""Equations of Word and PowerPoint on one line, as one would type them: (a+b)/(2), x^2, sqrt(x)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse.zipped import child, value

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


_APPLIED = "\u2061"  # between a function and what it is of: nobody sees it


def linear(math: Element) -> str:
    """The equation in an element (OMML) as text."""
    return " ".join("".join(map(_linear, math)).split())


def _linear(part: Element) -> str:  # noqa: PLR0911 a table
    match part.tag:
        case "t":
            return (part.text or "").replace(_APPLIED, " ")
        case "f":
            return f"{_grouped(part, 'num')}/{_grouped(part, 'den')}"
        case "sSup" | "sSub" | "sSubSup" | "sPre":
            return _of(part, "e") + _script(part, "_", "sub") + _script(part, "^", "sup")
        case "rad":
            return (
                f"sqrt({_of(part, 'e')})"
                if not _of(part, "deg")
                else f"root({_of(part, 'deg')}, {_of(part, 'e')})"
            )
        case "nary":
            sign = value(part, "naryPr", "chr") or "∫"
            return f"{sign}{_script(part, '_', 'sub')}{_script(part, '^', 'sup')} {_of(part, 'e')}"
        case "d":
            opening = value(part, "dPr", "begChr") if child(part, "dPr", "begChr") is not None else "("
            closing = value(part, "dPr", "endChr") if child(part, "dPr", "endChr") is not None else ")"
            return opening + ", ".join(linear(one) for one in part if one.tag == "e") + closing
        case "func":
            return f"{_of(part, 'fName')} {_of(part, 'e')}"
        case "mr":
            return ", ".join(linear(one) for one in part if one.tag == "e") + "; "
        case _:
            return "".join(map(_linear, part))


def _of(part: Element, name: str) -> str:
    inner = child(part, name)
    return linear(inner) if inner is not None else ""


def _grouped(part: Element, name: str) -> str:
    text = _of(part, name)
    return text if text.isalnum() else f"({text})"


def _script(part: Element, sign: str, name: str) -> str:
    return f"{sign}{_grouped(part, name)}" if _of(part, name) else ""

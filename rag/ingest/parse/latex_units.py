r"""Quantities of siunitx as people see them: \SI{5}{\micro\metre} -> 5 µm."""

from __future__ import annotations

import re

_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUANTITY = re.compile(
    rf"\\(?:(?P<range>SIrange|qtyrange)|(?P<one>SI|qty)|(?P<unit>si|unit)|(?P<angle>ang))(?![a-zA-Z@])\*?"
    rf"(?:\[[^\[\]]*\])?\s*{_BRACED}(?:\s*{_BRACED})?(?:\s*{_BRACED})?"
)
_NAME = re.compile(r"\\([a-zA-Z]+)\s*(?:\{([^{}]*)\})?|([^\\]+)")
_PREFIXES = {
    "femto": "f",
    "pico": "p",
    "nano": "n",
    "micro": "µ",
    "milli": "m",
    "centi": "c",
    "deci": "d",
    "deca": "da",
    "hecto": "h",
    "kilo": "k",
    "mega": "M",
    "giga": "G",
    "tera": "T",
    "peta": "P",
    "kibi": "Ki",
    "mebi": "Mi",
    "gibi": "Gi",
}
_UNITS = {
    "metre": "m",
    "meter": "m",
    "gram": "g",
    "kilogram": "kg",
    "second": "s",
    "ampere": "A",
    "kelvin": "K",
    "mole": "mol",
    "candela": "cd",
    "hertz": "Hz",
    "newton": "N",
    "pascal": "Pa",
    "joule": "J",
    "watt": "W",
    "coulomb": "C",
    "volt": "V",
    "farad": "F",
    "ohm": "Ω",
    "siemens": "S",
    "weber": "Wb",
    "tesla": "T",
    "henry": "H",
    "celsius": "°C",
    "degreeCelsius": "°C",
    "lumen": "lm",
    "lux": "lx",
    "becquerel": "Bq",
    "gray": "Gy",
    "sievert": "Sv",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "hectare": "ha",
    "litre": "L",
    "liter": "L",
    "tonne": "t",
    "electronvolt": "eV",
    "dalton": "Da",
    "percent": "%",
    "degree": "°",
    "arcminute": "′",
    "arcsecond": "″",
    "radian": "rad",
    "steradian": "sr",
    "angstrom": "Å",
    "decibel": "dB",
    "byte": "B",
    "neper": "Np",
    "bel": "B",
    "astronomicalunit": "au",
}
"""Signs by name; other units are called as they are written: bar, bit."""
_POWERS = {"squared": "^2", "cubed": "^3", "square": "^2", "cubic": "^3"}


def with_quantities(text: str) -> str:
    """The text with its quantities as people see them; an unknown unit stays by its name."""
    return _QUANTITY.sub(_quantity, text) if "\\" in text else text


def _quantity(match: re.Match[str]) -> str:
    first, second, third = (group or "" for group in match.groups()[4:])
    if match["range"]:
        return f"{first} to {second} {unit_of(third)}".strip()
    if match["one"]:
        return f"{first} {unit_of(second)}".strip() + (f"{{{third}}}" if third else "")
    rest = "".join(f"{{{group}}}" for group in (second, third) if group)
    if match["angle"]:
        marks = zip(first.split(";"), "°′″", strict=False)
        return "".join(f"{number}{mark}" for number, mark in marks if number.strip()) + rest
    return unit_of(first) + rest


def unit_of(text: str) -> str:
    r"""The signs of a unit: \kilo\gram\per\metre\squared -> kg/m^2."""
    signs: list[str] = []
    before = power = ""
    for name, argument, literal in _NAME.findall(text):
        if literal:
            signs.append(literal.strip())
        elif name in _PREFIXES:
            before += _PREFIXES[name]
        elif name in {"square", "cubic"}:
            power = _POWERS[name]
        elif name in _POWERS or name in {"tothe", "raiseto"}:
            signs.append(_POWERS.get(name) or f"^{argument}")
        elif name == "per":
            signs.append("/")
        else:
            gap = "·" if signs and signs[-1] != "/" else ""
            signs.append(f"{gap}{before}{_UNITS.get(name, name)}{power}")
            before = power = ""
    return "".join(signs)

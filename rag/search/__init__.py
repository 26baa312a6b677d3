"""The read path: one search from the question to the answer. `Desk` and `tool_functions` are for programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.search.agents import tool_functions
    from rag.search.desk import Desk

__all__ = ["Desk", "tool_functions"]

_HOMES = {"Desk": "rag.search.desk", "tool_functions": "rag.search.agents"}
"""Imported when asked for: the server must not import the engine before its first answer."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

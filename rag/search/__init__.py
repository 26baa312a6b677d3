"""The read path, from a question to its answer. Programs use `Desk` or `tool_functions`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.search.agents import tool_functions
    from rag.search.desk import Desk

__all__ = ["Desk", "tool_functions"]

_HOMES = {"Desk": "rag.search.desk", "tool_functions": "rag.search.agents"}
"""Imported on first use, because the server must answer its first message before the engine is imported."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

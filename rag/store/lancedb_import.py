"""A faster import of LanceDB.

lancedb imports the client of its cloud service, with four hundred pydantic models that nothing here uses.
That takes longer than everything else (measured: 1.1 of 1.5 s of CPU, and 20 MB). During the import, each of
these names gets a lazy class that loads the real one when it is called.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

CLIENT = "lance_namespace_urllib3_client"


class _Later(MetaPathFinder, Loader):
    """A lazy stand-in for every module of the client."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == CLIENT else None

    def exec_module(self, module: ModuleType) -> None:
        def stand_in(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)

            def real(_: type, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 whatever the class takes
                return getattr(import_module(module.__name__), name)(*args, **kwargs)

            return type(name, (), {"__new__": real})

        module.__getattr__ = stand_in  # type: ignore[method-assign]


def import_lancedb() -> None:
    """Import lancedb, without its cloud client unless that is imported already."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read at import; otherwise every query warns on stderr
    if CLIENT in sys.modules:
        return
    later = _Later()
    sys.meta_path.insert(0, later)
    try:
        import_module("lancedb")
    finally:
        sys.meta_path.remove(later)
        for name in [name for name in sys.modules if name.partition(".")[0] == CLIENT]:
            del sys.modules[name]  # a later import of the client gets the real one

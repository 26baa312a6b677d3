"""The only code that touches LanceDB and Arrow. It imports LanceDB without its unused parts.

Unused are the client of LanceDB's cloud service with four hundred pydantic models, connections to it,
functions that embed, and checks of overridden methods. They take most of the time of an import (measured, in
s of CPU: 1.1 of 1.5 for the client's models, then .1 of .33, and 20 MB). During the import, each unused name
gets a lazy class, which loads the real one when it is called or asked for an attribute.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

CLIENT = "lance_namespace_urllib3_client"
UNUSED = (
    CLIENT,
    "lancedb.remote",
    "lancedb.embeddings",
    "lancedb.functions",
    "pyarrow.dataset",
    "pyarrow.fs",
)
"""Packages that lancedb imports and nothing here uses."""
F = TypeVar("F", bound=Callable[..., object])


class _StandIn(type):
    """The class of lazy classes; `home` is the name of the module of the real one."""

    home: str

    def __call__(cls, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 whatever the class takes
        return cls.real(*args, **kwargs)

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(cls.real, name)

    @property
    def real(cls) -> Any:  # noqa: ANN401 any class
        return getattr(import_module(cls.home), cls.__name__)


class _Later(MetaPathFinder, Loader):
    """A lazy stand-in for every module of the unused packages."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if _is_unused(name) else None

    def exec_module(self, module: ModuleType) -> None:
        def stand_in(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return _StandIn(name, (), {"home": module.__name__})

        module.__getattr__ = stand_in  # type: ignore[method-assign]


def _is_unused(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in UNUSED)


def _without_checks() -> ModuleType:
    """A stand-in for the package `overrides`, which checks nothing."""
    overrides = ModuleType("overrides")

    def override(method: F) -> F:
        return method

    vars(overrides).update(EnforceOverrides=type("EnforceOverrides", (), {}), override=override)
    return overrides


def import_lancedb() -> None:
    """Import lancedb without its unused packages, unless they are imported already."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read at import; otherwise every query warns on stderr
    if "lancedb" in sys.modules:
        return
    later, overrides = _Later(), _without_checks()
    sys.meta_path.insert(0, later)
    sys.modules.setdefault("overrides", overrides)
    try:
        import_module("lancedb")
    finally:
        sys.meta_path.remove(later)
        if sys.modules["overrides"] is overrides:
            del sys.modules["overrides"]
        for name in filter(_is_unused, list(sys.modules)):
            del sys.modules[name]  # a later import gets the real one


import_lancedb()

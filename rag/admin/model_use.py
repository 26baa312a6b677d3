"""What uses an installed model: the embedders and the reranker of the settings, and collections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.access.tenants import tenants
from rag.config.data_folder import data_folder_problem
from rag.corpus import DEFAULT_EMBEDDER
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.config.settings import Settings

DIGEST = "-[0-9a-f]{12}"  # behind the name of the folder, in what a collection remembers of its model


async def uses(settings: Settings) -> dict[str, list[str]]:
    """What uses each model of the models' folder, in words, by the model's name.

    Raises:
        StoreError: the catalog can't be read.
    """
    found: dict[str, list[str]] = {}
    for name, what in _in_settings(settings):
        found.setdefault(name, []).append(what)
    if data_folder_problem(settings.home):  # then there are no collections
        return found
    reader = Reader(settings.home, timeout_seconds=settings.search.timeout_seconds)
    for tenant in tenants(settings.home):
        for one in await reader.collections(tenant):
            name = re.sub(f"{DIGEST}$", "", one.embedder.model)
            if one.embedder.provider == "onnx" and name != one.embedder.model:
                found.setdefault(name, []).append(f"collection {one.name}")
    return found


def _in_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """The models that the settings name, each with the setting."""
    folder = settings.models_folder
    for name, one in settings.embedders_by_name.items():
        if one.provider == "onnx" and one.path and one.path.parent == folder:
            yield one.path.name, "embedder" if name == DEFAULT_EMBEDDER else f"embedders.{name}"
    reranker = settings.reranker
    if reranker.provider == "onnx" and reranker.path and reranker.path.parent == folder:
        yield reranker.path.name, "reranker"

"""refdesk as a library: documents in, cited passages out. Knows nothing of MCP.

`Desk` searches (`SyncDesk` without `await`), `Settings` configure it, a `Principal` asks, and a
`SearchRequest` says more than a query.

The words of this code, each with one meaning:

- **source**: one document of a collection. **chunk**: a stored piece of a source, numbered within it.
  **passage**: a chunk before it is stored, or its text as a reader sees it. **hit**: a chunk in an answer.
  **excerpt**: the part of a source that is shown of a hit.
- **collection**: sources with one embedder and one set of metadata fields. **tenant**: the owner of
  collections; nothing crosses from one tenant to another.
- **principal**: the tenant, user and groups that a request runs for. **access**: who may see a source.
  **access record**: the stored access of a source, which outlives it. **binding**: a limit on a principal
  beyond access, set for a tool, an API key or an OAuth scope. **view**: a collection as a principal sees it.
- **profile**: named retrieval settings. **plan**: a request completed from its profile. **stage**: a
  configured part of a profile, for queries or for hits. **step**: one timed line of a search's **trace**.
- **ranking**: chunks with scores, best first, of one table. **candidate**: a chunk of a ranking before the
  access check. **gate**: that check, against the source's own access record.
- **detail**: how much is shown of a hit. **flag**: a warning about a text. **stale**: of a source whose file
  has changed or gone since it was ingested; of a copy, older than its original.

The packages. Each imports only from packages in lines below it (`pyproject.toml` has the contracts):

- `admin`: the commands of `refdesk-admin`.
- `evaluate`: measures how good the search is.
- `ingest`: from files to chunks. `search`: from a question to an answer.
- `store`: tables, the only package that imports LanceDB. `rank`: pure functions on scores and texts.
  `confined`: processes that can do one thing only.
- `models`: embedding, reranking and chat models, built in or behind an endpoint.
- `config`: the settings.
- `access`: who may see what.
- `filters`: conditions on metadata, and exact texts to search for (`needles`).
- `report`: HTML.
- `run_history`: the record of ingestion runs.
- `answers`: the values of a search.
- `originals`: the files of sources. `home`: the data folder or bucket.
- `corpus`: the stored values.
- `uris`: ids and addresses, also of pages and cells.
- `runtime`: the machine, threads and the commands of this installation.
- `errors`, `text`: import nothing else of refdesk.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.answers import SearchRequest
    from rag.config.settings import Settings
    from rag.corpus import Principal
    from rag.search.desk import Desk
    from rag.search.sync import SyncDesk

__all__ = ["Desk", "Principal", "SearchRequest", "Settings", "SyncDesk"]

_HOMES = {
    "Desk": "rag.search.desk",
    "Principal": "rag.corpus",
    "SearchRequest": "rag.answers",
    "Settings": "rag.config.settings",
    "SyncDesk": "rag.search.sync",
}
"""Imported on first use: the server must not import the engine before its first answer."""

if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)

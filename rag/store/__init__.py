"""The only code that touches LanceDB and Arrow."""

from __future__ import annotations

from rag.store.lancedb_import import import_lancedb

import_lancedb()

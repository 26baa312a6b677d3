"""How fast the program is on this machine, against what this machine can do at best."""

from __future__ import annotations

import rag.store  # noqa: F401 before anything here imports lancedb, which this makes quick

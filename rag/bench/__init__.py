"""The benchmark: how fast refdesk is on this machine, against the best this machine can do."""

from __future__ import annotations

import rag.store  # noqa: F401 must be imported before lancedb: it makes that import fast

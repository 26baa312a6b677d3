"""The MCP face of refdesk. Reads only; README.md in this folder follows a request through it."""

import os

PARENT = os.getppid()
"""The process that started this one. Read before the slow imports, during which it may die."""

EXIT_FORCED = 1
"""The exit code after a second signal, which leaves running requests unanswered."""

"""The MCP face of refdesk. Reads only."""

import os

PARENT = os.getppid()
"""Who started this process: asked for before the imports of most of a second, in which it may die."""

FORCED = 1
"""The exit code after a second signal: what ran was not answered."""

"""The MCP face of refdesk. Reads only; README.md in this folder follows a request through it."""

import os
import signal
import sys

PARENT = os.getppid()
"""The process that started this one. Read before the slow imports, during which it may die."""

EXIT_FORCED = 1
"""The exit code after a second signal, which leaves running requests unanswered."""

ENDING: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
    ENDING += (signal.SIGHUP,)
"""The signals at which a process answers what it has read, and ends."""

"""How commands print and ask, and suggest a command for a misspelt one.

Every command needs this, and so does the help of all of them: nothing here imports the settings.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import click

from rag.report import table
from rag.text.plain_text import escape_hidden, for_people

FAILED, MISUSE, PARTLY_FAILED, INTERRUPTED = 1, 2, 3, 130  # exit codes
BUSY = 4  # likewise: another process holds what the command needs
NEAR = 0.6  # as similar as a typo makes two commands: serach and search are .83, shwo and show .75
DELETING = {"remove", "purge"}


class Group(click.Group):
    """A group of commands that suggests a similar command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's method, with a suggestion in the error message."""
        if args and not args[0].startswith("-") and args[0] not in (names := self.list_commands(ctx)):
            harmless = [name for name in names if name not in DELETING]  # rename isn't meant as remove
            near = get_close_matches(args[0], harmless, n=1, cutoff=NEAR)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


def arguments(*words: str) -> str:
    """Words quoted for the shell: ("--data", "my desk") -> " --data 'my desk'"."""
    quoted = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
    return f" {quoted}" if words else ""


def echo(text: object = "", *, err: bool = False, **style: Any) -> None:  # noqa: ANN401 click's
    """Print text for people, on standard error if `err`. Commands print text with this function only.

    With --json, standard output is for JSON alone. Control characters, which could come from documents, are
    escaped: they could drive the terminal.
    """
    if wants_json() and not err:
        return
    safe_text = for_people(str(text))
    click.echo(click.style(safe_text, **style) if style else safe_text, err=err)


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on standard error. Enter alone means yes."""
    with interruptible():
        return click.confirm(for_people(question), default=True, err=True)


def ask(question: str, usual: str) -> str:
    """A person's answer to a question on standard error, or a pipe's next line; `usual` if that is empty."""
    if sys.stdin.isatty():
        safe_question = for_people(question)
        with interruptible():
            return str(click.prompt(safe_question, default=usual, show_default=bool(usual), err=True)).strip()
    return sys.stdin.readline().strip() or usual


def ask_secretly(question: str) -> str:
    """A person's hidden answer to a question on standard error."""
    with interruptible():
        return str(click.prompt(for_people(question), hide_input=True, err=True))


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking call in the event loop at once: a question, a download.

    The event loop only notes an interruption and acts on it at its next turn: a question would stay on the
    screen, and Enter would answer it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wants_json() -> bool:
    """Whether the running command got --json."""
    context = click.get_current_context(silent=True)  # a program has none
    return bool(context and context.params.get("as_json"))


def print_json(value: object) -> None:
    """With --json, print an object on standard output: in UTF-8 everywhere, hidden characters escaped."""
    if wants_json():
        click.echo(escape_hidden(json.dumps(value, ensure_ascii=False, default=str)).encode())


def log_line(event: str, *, level: str = "info", **fields: object) -> None:
    """Write a line of the log to standard error: time, level, the event and its fields."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": time, "level": level, "event": event, **fields}
    echo(json.dumps({key: value for key, value in line.items() if value is not None}), err=True)


def print_note(text: str, *, as_log: bool, before: str = "") -> None:
    """Print a note to standard error, `before` it a text; or write it as a line of the log."""
    if as_log:
        log_line("note", level="warning", text=text)
    else:
        echo(f"{before}Note: {text}", err=True)


def print_result(result: object, *lines: object) -> None:
    """Print what a command did: as JSON, or as lines for people."""
    print_json(result)
    for line in lines:
        echo(line)


def print_table(rows: Sequence[tuple[object, ...]], *, empty: str = "") -> None:
    """Print rows in columns, the headings first. If there are only these, `empty` is printed instead."""
    for line in [empty] if empty and len(rows) == 1 else table(rows):
        echo(line)

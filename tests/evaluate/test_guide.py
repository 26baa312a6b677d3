"""rag/evaluate/README.md names only commands, metrics and functions that exist."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

import rag.evaluate
from rag.admin.main import commands
from rag.evaluate.ask_questions import METRICS

GUIDE = (Path(rag.evaluate.__file__).parent / "README.md").read_text(encoding="utf-8")
CALLS = re.findall(r"refdesk-admin ((?:eval|bench)[^`\n]*)", GUIDE)


@pytest.mark.parametrize("call", CALLS)
def test_every_command_has_its_options(call: str) -> None:
    words = shlex.split(call.partition(">")[0])
    command: click.Command = commands
    for word in words:
        if isinstance(command, click.Group):
            context = click.Context(command)
            command = command.get_command(context, word) or command.get_command(context, "run") or command
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_metric_exists() -> None:
    assert len(CALLS) > 6
    named = set(
        re.findall(
            r"\b(?:nDCG|MRR|recall|token_\w+)@\d+|\b(?:citations_readable|quotes_verbatim|grounded)\b", GUIDE
        )
    )
    assert len(named) > 6
    assert named <= set(METRICS)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("rag.evaluate.sets", "read_set"),
        ("rag.evaluate.evaluation", "evaluate"),
        ("rag.evaluate.judgements", "resolve_question"),
        ("rag.evaluate.ask_questions", "ask_all"),
        ("rag.evaluate.ranking_metrics", "ndcg"),
        ("rag.evaluate.compare_runs", "randomisation_p"),
        ("tests.bench.run", "PARTS"),
    ],
)
def test_what_it_names_in_the_code_exists(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)

"""Judged questions asked of a collection before and after a rebuild, and whether to use the new tables."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rag.access.tenants import tenant_of
from rag.admin.console import confirmed, echo
from rag.admin.eval_output import comparison_json, print_comparison, print_runs, run_json
from rag.admin.progress import evaluation_progress
from rag.config.profiles import DEFAULT_PROFILE
from rag.errors import RefdeskError
from rag.evaluate.compare import compare
from rag.evaluate.evaluation import contenders, evaluate, on_existing, with_overrides
from rag.evaluate.runs import keep
from rag.evaluate.sets import read_set
from rag.store import builds

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from rag.config.settings import Settings
    from rag.corpus import Build, Collection
    from rag.evaluate.compare import Comparison
    from rag.evaluate.runs import Run
    from rag.evaluate.sets.judged import JudgedSet

METRIC = "nDCG@10"


class Trial:
    """The questions of a file, asked of the present tables and then of the new ones.

    `as_json` is what came of it, for `--json`. `if_better` leaves the present tables in use unless the new
    ones have the higher `METRIC`.
    """

    def __init__(self, settings: Settings, name: str, file: Path, *, if_better: bool, quiet: bool) -> None:
        self._settings = with_overrides(settings)
        self._name = name
        self._judged: JudgedSet = read_set(file)
        self._if_better = if_better
        self._quiet = quiet
        self._before: Run | None = None
        self.as_json: dict[str, Any] = {}

    async def ask_before(self) -> None:
        """Ask the present tables. Where that is not possible any more, there is nothing to compare with."""
        try:
            self._before = await self._asked(None)
        except RefdeskError as error:
            echo(f"The present tables can't be compared: {error}", err=True)

    async def ask_after(self, coming: Build) -> bool:
        """Ask the tables of the build that is coming, print the comparison, and say whether to switch.

        Raises:
            RefdeskError: the questions can't be asked.
        """
        after = await self._asked(coming)
        runs = [run for run in (self._before, after) if run]
        runs = await keep(self._settings.data, tenant_of(self._settings), runs)
        comparison = compare(runs[0], runs[1], METRIC) if self._before else None
        self._show(runs, comparison)
        if self._if_better:
            return comparison is not None and comparison.difference > 0
        if self._quiet or not sys.stdin.isatty():
            return True
        return confirmed("Use the new tables for searches from now on?")

    async def _asked(self, coming: Build | None) -> Run:
        def seen_as(collection: Collection) -> Collection:
            is_it = collection.name == self._name and collection.coming == coming
            return builds.with_build(collection, coming) if coming and is_it else collection

        chosen = contenders(self._settings, (DEFAULT_PROFILE,), (None,))
        with evaluation_progress() as progress:
            async with on_existing(self._judged, self._settings, self._name) as prepared:
                changed = seen_as if coming else None
                (run,) = await evaluate(self._judged, prepared, os.environ, chosen, progress, seen_as=changed)
        return run

    def _show(self, runs: list[Run], comparison: Comparison | None) -> None:
        self.as_json = {"runs": [run_json(run.id, run.summary) for run in runs]}
        if comparison:
            self.as_json["comparison"] = comparison_json(runs[0], runs[1], comparison)
        if not self._quiet:
            print_runs([(run.id, run.summary) for run in runs])
            if comparison:
                print_comparison(runs[0], runs[1], comparison, listed=True)

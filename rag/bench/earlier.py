"""Runs as JSON, and what became of each figure since an earlier run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rag.bench.measure import Measure
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    value: float
    unit: str
    limit: float | None
    ratio: float | None
    min: float
    p95: float


class _Run(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    measures: list[_Record]


def as_json(measures: Sequence[Measure]) -> dict[str, Any]:
    """A run as it is printed and read again."""
    return {"measures": [asdict(one) | {"ratio": one.ratio} for one in measures]}


def read_run(path: Path) -> list[Measure]:
    """The measures that `refdesk-admin bench --json` printed.

    Raises:
        ConfigurationError: the file can't be read, or holds something else.
    """
    try:
        run = _Run.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"The earlier run {path} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise ConfigurationError(
            f"{path} is no earlier run; --compare takes what refdesk-admin bench --json printed."
        ) from error
    return [Measure(one.name, one.value, one.unit, one.limit, one.min, one.p95) for one in run.measures]


def changes(now: Sequence[Measure], earlier: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    """What both runs measured, in the order of this one: each figure now, and then."""
    then = {(one.name, one.unit): one for one in earlier}
    return [(one, then[one.name, one.unit]) for one in now if (one.name, one.unit) in then]

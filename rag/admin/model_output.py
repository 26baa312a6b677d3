"""How models are listed and described."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rag.admin.console import echo, print_table
from rag.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rag.models.facts import ModelFacts
    from rag.models.hub.known import KnownModel

PERMISSIVE = {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "isc", "cc0-1.0", "unlicense"}
"""Licences that allow any use if their text is passed on; by the hub's names, in lower case."""


def licence_lines(licence: str, page: str, note: str = "") -> Iterator[str]:
    """What is to be known of a licence before a download; nothing of a permissive one."""
    if licence.lower() not in PERMISSIVE:
        said = f"Its licence is {licence}, which is not permissive" if licence else "It states no licence"
        yield f"{said}. Read {page} before you use it."
    if note:
        yield note


def print_models(
    folder: Path,
    here: Mapping[str, ModelFacts],
    known: Mapping[str, KnownModel],
    used: Mapping[str, Sequence[str]],
) -> None:
    """Print the installed models with what uses them, then those that can be pulled by name."""
    if here:
        echo(f"Installed in {folder}:")
        heads = ("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "USED BY")
        print_table([heads, *(_installed_row(one, used.get(name, ())) for name, one in here.items())])
    else:
        echo(f"No model is installed in {folder}.")
    rest = [one for name, one in known.items() if name not in here]
    if rest:
        echo("\nKnown (refdesk-admin model pull NAME):")
        rows = [("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "LANGUAGES"), *map(_known_row, rest)]
        for line, model in zip(table(rows), [None, *rest], strict=True):
            echo(line)
            if model:
                echo(f"    {'; '.join([model.good_for, *_figures(model)])}")


def as_json_object(
    name: str, facts: ModelFacts | None, known: KnownModel | None, used: Sequence[str]
) -> dict[str, Any]:
    """All that is known of a model, for programs."""
    of_list = known.model_dump(exclude={"files"}) if known else {}
    given = {key: value for key, value in (asdict(facts) if facts else {}).items() if value is not None}
    size = sum(one.size for one in facts.files) if facts else (known.megabytes * 1_000_000 if known else 0)
    return {
        **of_list,
        **given,
        "name": name,
        "installed": facts is not None,
        "pinned": known.pinned if known else False,
        "bytes": size,
        "used_by": list(used),
    }


def installed_line(facts: ModelFacts) -> str:
    """One line on a model that was installed."""
    size = sum(one.size for one in facts.files) / 1e6
    parts = [f"{size:,.0f} MB"]
    if facts.kind == "embedder":
        parts += [f"{facts.dimension} dimensions", f"pooling {facts.pooling or 'by its files'}"]
        parts += [f"query prefix {facts.query_prefix!r}"] if facts.query_prefix else []
        parts += [] if facts.baseline is None else [f"cosine of unrelated texts {facts.baseline:.2f}"]
    return f"{facts.name}: {', '.join(parts)}, licence {facts.licence or 'not stated'}."


def _installed_row(facts: ModelFacts, used: Sequence[str]) -> tuple[object, ...]:
    size = f"{sum(one.size for one in facts.files) / 1e6:,.0f}"
    dimensions = _dimensions(facts.dimension, facts.truncations)
    return facts.name, facts.kind, size, dimensions, facts.licence or "not stated", ", ".join(used) or "-"


def _known_row(model: KnownModel) -> tuple[object, ...]:
    trust = "" if model.pinned else " (--trust)"
    return (
        model.name + trust,
        model.kind,
        model.megabytes,
        _dimensions(model.dimension, model.truncations),
        model.licence + (" *" if model.licence_note else ""),
        model.languages,
    )


def _dimensions(whole: int | None, truncations: Sequence[int]) -> str:
    """The dimensions of a model, with those that its vectors may be cut to."""
    cut = f" ({', '.join(map(str, truncations))})" if truncations else ""
    return f"{whole or '-'}{cut}"


def _figures(model: KnownModel) -> list[str]:
    return [f"{one.benchmark} {one.score:g} (published: {one.source})" for one in model.figures]

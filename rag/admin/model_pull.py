"""`refdesk-admin model pull` and `model add`: the files of a model, and where they come from.

First comes how models are listed and described.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import click

from rag.admin.command_line import NamedPath, command, options
from rag.admin.model_install import PendingModel, install
from rag.admin.progress_bar import download_progress
from rag.admin.terminal import echo, interruptible, print_json, print_table
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, model_name
from rag.config.settings import Settings
from rag.corpus import Pooling
from rag.errors import ConfigurationError, ProviderError
from rag.models.hub import Hub, HubCommit, RemoteFile, open_hub
from rag.models.known_models import KnownModel, files_of, graph_among, known_models
from rag.models.model_folder import ModelFacts
from rag.report.text_and_html import table
from rag.store.write.desk_folder import prepare

PERMISSIVE = {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "isc", "cc0-1.0", "unlicense"}
"""Licences that allow any use if their text is passed on; by the hub's names, in lower case."""


def print_models(
    folder: Path,
    here: Mapping[str, ModelFacts],
    catalogue: Mapping[str, KnownModel],
    used: Mapping[str, Sequence[str]],
) -> None:
    """Print the models that are built in, installed (with what uses them), and can be pulled by name."""
    echo(f"Built in: {ENGLISH_MODEL} for English, {MULTILINGUAL_MODEL} for a hundred languages.")
    if here:
        echo(f"Installed in {folder}:")
        heads = ("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "USED BY")
        print_table([heads, *(_installed_row(facts, used.get(name, ())) for name, facts in here.items())])
    else:
        echo(f"No model is installed in {folder}.")
    available = [model for name, model in catalogue.items() if name not in here]
    if available:
        echo("\nKnown (refdesk-admin model pull NAME):")
        rows = [("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "LANGUAGES"), *map(_known_row, available)]
        for line, model in zip(table(rows), [None, *available], strict=True):
            echo(line)
            if model:
                figures = (
                    f"{figure.benchmark} {figure.score:g} (published: {figure.source})"
                    for figure in model.figures
                )
                echo(f"    {'; '.join([model.good_for, *figures])}")


def model_json(
    name: str, facts: ModelFacts | None, model: KnownModel | None, used: Sequence[str]
) -> dict[str, Any]:
    """A model as `--json` prints it: from its facts and from the list of known models."""
    of_list = model.model_dump(exclude={"files"}) if model else {}
    from_facts = {key: value for key, value in (asdict(facts) if facts else {}).items() if value is not None}
    size = sum(file.size for file in facts.files) if facts else (model.megabytes * 1_000_000 if model else 0)
    return {
        **of_list,
        **from_facts,
        "name": name,
        "installed": facts is not None,
        "pinned": model.pinned if model else False,
        "bytes": size,
        "used_by": list(used),
    }


def installed_line(facts: ModelFacts) -> str:
    """One line on a model that was installed."""
    size = sum(file.size for file in facts.files) / 1e6
    parts = [f"{size:,.0f} MB"]
    if facts.kind == "embedder":
        parts += [f"{facts.dimension} dimensions", f"pooling {facts.pooling or 'by its files'}"]
        parts += [f"query prefix {facts.query_prefix!r}"] if facts.query_prefix else []
        parts += [] if facts.baseline is None else [f"cosine of unrelated texts {facts.baseline:.2f}"]
    return f"{facts.name}: {', '.join(parts)}, licence {facts.licence or 'not stated'}."


def _installed_row(facts: ModelFacts, used: Sequence[str]) -> tuple[object, ...]:
    size = f"{sum(file.size for file in facts.files) / 1e6:,.0f}"
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
    """A model's dimensions, with the shorter lengths that its vectors may be cut to."""
    cut = f" ({', '.join(map(str, truncations))})" if truncations else ""
    return f"{whole or '-'}{cut}"


COMMIT = re.compile(r"[0-9a-f]{40}")
OWN = ("graph", "reranker", "pooling", "query_prefix", "document_prefix", "window")
"""The options for what a model's files may not state. Known models need none of them."""


fact_options = options(
    click.option("--graph", metavar="PATH", help="The ONNX file, if there are several."),
    click.option("--reranker", is_flag=True, help="It is a reranker (cross-encoder), not an embedder."),
    click.option(
        "--pooling",
        type=click.Choice(get_args(Pooling)),
        help="How the vectors of the tokens become one, if the model's files don't say it.",
    ),
    click.option("--query-prefix", metavar="TEXT", help="The prefix of queries, likewise."),
    click.option("--document-prefix", metavar="TEXT", help="The prefix of passages, likewise."),
    click.option("--window", type=click.IntRange(16, 1 << 17), help="The context window, in tokens."),
    click.option("--as", "name", metavar="NAME", help="The name to install it under."),
)


@command("pull", of_tenant=False, on_bucket=True)
@click.argument("model")
@click.option(
    "--from",
    "folder",
    type=NamedPath(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Take the files from this folder, copied from elsewhere. They are checked as downloads are.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Install a model that nobody has verified for refdesk. model verify holds it to what came first.",
)
@click.option("--revision", metavar="COMMIT", help="The revision of a model that refdesk doesn't know.")
@fact_options
async def pull_command(
    settings: Settings,
    *,
    model: str,
    folder: Path | None,
    trust: bool,
    revision: str | None,
    as_json: bool,
    **choices: Any,  # noqa: ANN401 click's
) -> None:
    """Fetch a model from the hub.

    MODEL is a name that refdesk knows (see model list), or with --trust any OWNER/NAME of the hub. An
    interrupted pull goes on when you run it again. A model is there whole or not at all. A mirror is taken
    from HF_ENDPOINT, a token from HF_TOKEN, a proxy from HTTPS_PROXY.
    """
    listed = _find_known(model, revision)
    if listed and (named_options := [name for name in (*OWN, "name") if choices[name]]):
        raise click.UsageError(
            f"--{named_options[0].replace('_', '-')} is for models that refdesk doesn't know."
        )
    if listed and folder and (listed.pinned or trust):
        facts = await _install(settings, _pending(listed, folder))
    elif listed and listed.pinned:
        _say_licence(listed.licence, f"https://huggingface.co/{listed.repository}", listed.licence_note)
        with open_hub(os.environ) as hub:
            origin = HubCommit(hub, listed.repository, listed.revision)
            facts = await _install(settings, _pending(listed, origin), listed.megabytes)
    elif folder:
        raise ConfigurationError(_untrusted_message(model, folder, listed))
    else:
        with open_hub(os.environ) as hub:
            with interruptible():
                coming = _unverified_model(hub, model, listed, revision, choices)
            if not trust:
                raise ConfigurationError(
                    f"Nobody has verified {'all files of ' if listed else ''}{model} for refdesk. If you "
                    "trust its publisher, run the command again with --trust."
                )
            facts = await _install(settings, coming)
    _print(facts, as_json=as_json)


@command("add", of_tenant=False, on_bucket=True)
@click.argument("folder", type=NamedPath(exists=True, file_okay=False))
@click.option("--licence", default="", metavar="TEXT", help="The model's licence, for your own list.")
@fact_options
async def add_command(
    settings: Settings,
    *,
    folder: Path,
    licence: str,
    as_json: bool,
    **choices: Any,  # noqa: ANN401 click's
) -> None:
    """Install a model of your own from a folder.

    It needs an ONNX graph and tokenizer.json. The files are copied. What must be known of the model is read
    from its other files, as sentence-transformers writes them (modules.json, 1_Pooling/config.json, …). What
    they don't say is asked for.
    """
    coming = _from_own_folder(folder, choices)
    coming = replace(coming, facts=replace(coming.facts, licence=licence))
    _print(await _install(settings, coming), as_json=as_json)


def _find_known(model: str, revision: str | None) -> KnownModel | None:
    """The known model of this name, or of this repository."""
    models = known_models()
    listed = models.get(model) or next(
        (candidate for candidate in models.values() if candidate.repository == model), None
    )
    if listed and revision not in {None, listed.revision}:
        return None
    if not listed and not re.fullmatch(r"[\w.-]+/[\w.-]+", model, re.ASCII):
        raise ConfigurationError(
            f"refdesk knows no model {model!r}. Known: {', '.join(models)}. Another model of the hub is "
            "named OWNER/NAME."
        )
    return listed


def _from_own_folder(folder: Path, choices: dict[str, Any]) -> PendingModel:
    """The model in a folder."""
    folder = folder.absolute()
    paths = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    graph = graph_among(paths, choices["graph"])
    files = [RemoteFile(path, (folder / path).stat().st_size) for path in files_of(paths, graph)]
    return PendingModel(_facts(choices, folder.name, graph), files, folder)


def _pending(listed: KnownModel, source: HubCommit | Path) -> PendingModel:
    files = [RemoteFile(file.path, file.size, file.sha256) for file in listed.files]
    return PendingModel(listed.facts(()), files, source.absolute() if isinstance(source, Path) else source)


def _unverified_model(
    hub: Hub, model: str, listed: KnownModel | None, revision: str | None, choices: dict[str, Any]
) -> PendingModel:
    """A model that nobody has verified, as the hub describes it; prints what the hub states."""
    name = listed.repository if listed else model
    repository = hub.repository(name, listed.revision if listed else revision or "main")
    if not COMMIT.fullmatch(repository.commit):
        raise ProviderError(f"{hub.endpoint} names no commit of {name}. Check HF_ENDPOINT.")
    shown_licence = repository.licence or "not stated"
    echo(f"{repository.name}, revision {repository.commit}, licence {shown_licence}", err=True)
    _say_licence(repository.licence, hub.page(repository.name))
    sizes = {file.path: file for file in repository.files}
    if listed:
        files = [_checked_file(file.path, file.sha256, sizes.get(file.path)) for file in listed.files]
        facts = listed.facts(())
    else:
        graph = graph_among(sizes, choices["graph"])
        files = [sizes[path] for path in files_of(sizes, graph)]
        facts = replace(
            _facts(choices, name, graph),
            repository=name,
            revision=repository.commit,
            licence=repository.licence,
        )
    for file in files:
        stated = f"SHA-256 {file.sha256}" if file.sha256 else f"git {file.blob or 'nothing'}"
        echo(f"  {file.path}  {file.size:,} bytes, {stated}", err=True)
    return PendingModel(facts, files, HubCommit(hub, name, repository.commit))


def _checked_file(path: str, sha256: str, stated: RemoteFile | None) -> RemoteFile:
    """A file as the hub states it, after comparing it with what refdesk knows."""
    if stated is None or (sha256 and stated.sha256 not in {"", sha256}):
        problem = "lacks it" if stated is None else f"states the SHA-256 {stated.sha256}"
        raise ConfigurationError(
            f"The file {path} of this revision must have the SHA-256 {sha256 or 'of a file'}, and the hub "
            f"{problem}. Nothing was fetched. If HF_ENDPOINT names a mirror, it may be another model."
        )
    return replace(stated, sha256=sha256 or stated.sha256)


def _facts(choices: dict[str, Any], default_name: str, graph: str) -> ModelFacts:
    """The facts in the options for a model that refdesk doesn't know."""
    name = model_name(choices["name"] or default_name)
    if choices["name"] and name != choices["name"]:
        raise click.UsageError(
            f"--as: use lower-case letters, digits and single -, like {name or 'my-model'}."
        )
    if name in known_models():
        raise ConfigurationError(f"{name} is the name of another model. Choose one with --as NAME.")
    return ModelFacts(
        name=name,
        kind="reranker" if choices["reranker"] else "embedder",
        graph=graph,
        **{key: choices[key] for key in ("pooling", "query_prefix", "document_prefix", "window")},
    )


async def _install(settings: Settings, coming: PendingModel, megabytes: int = 0) -> ModelFacts:
    models = settings.models_folder
    if models.is_relative_to(settings.data):
        prepare(settings.data)
    size = megabytes * 1_000_000 or sum(file.size for file in coming.files)
    with download_progress(coming.facts.name, size) as came:
        return await install(models, coming, came)


def _say_licence(licence: str, page: str, note: str = "") -> None:
    """Warn of a licence before a download, unless it is a permissive one without a note."""
    if licence.lower() not in PERMISSIVE:
        warning = f"Its licence is {licence}, which is not permissive" if licence else "It states no licence"
        echo(f"{warning}. Read {page} before you use it.", err=True)
    if note:
        echo(note, err=True)


def _untrusted_message(model: str, folder: Path, listed: KnownModel | None) -> str:
    if listed is None:
        return (
            f"refdesk doesn't know {model}, so there is nothing to hold the files in {folder} to. Add them "
            f"as a model of your own: refdesk-admin model add {folder}."
        )
    return (
        f"Nobody has verified all files of {model} for refdesk. If you trust those in {folder}, run the "
        "command again with --trust."
    )


def _print(facts: ModelFacts, *, as_json: bool) -> None:
    if as_json:
        print_json(model_json(facts.name, facts, known_models().get(facts.name), ()))
        return
    echo(f"Installed {installed_line(facts)}")
    table = "[reranker]" if facts.kind == "reranker" else "[embedder]"
    echo(f'To use it, write provider = "onnx" and model = "{facts.name}" into {table} of the settings.')

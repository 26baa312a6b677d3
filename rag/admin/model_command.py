"""`refdesk-admin model`: bring models to this machine. Servers never fetch a model.

First come `list`, `verify` and `remove`, and how models are described; then `pull` and `add`: the files of a
model, and where they come from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import click
from anyio import to_thread

from rag.admin import model_install
from rag.admin.command_line import NamedPath, command, flag, options
from rag.admin.progress_bar import download_progress
from rag.admin.sources_command import collections_by_tenant
from rag.admin.terminal import FAILED, Group, echo, interruptible, print_json, print_result, print_table
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, model_name
from rag.config.settings import Settings
from rag.corpus import DEFAULT_EMBEDDER, Pooling
from rag.errors import ConfigurationError, NotFoundError, ProviderError
from rag.home import data_folder_problem
from rag.models.hub import Hub, HubCommit, RemoteFile, open_hub
from rag.models.known_models import KnownModel, files_of, graph_among, known_models
from rag.models.model_folder import ModelFacts
from rag.report import counted, table
from rag.runtime import grouped
from rag.store.write.desk_folder import prepare


@click.group("model", cls=Group)
def model_command() -> None:
    """Bring embedding models and rerankers to this machine.

    Servers, searches and ingestions never fetch a model: they use what these commands have put into the
    models' folder. It is models in the data folder, unless models in the settings names another.
    """


@command("list", model_command, of_tenant=False)
async def list_command(settings: Settings) -> None:
    """List the installed models and those that can be pulled."""
    here, catalogue = model_install.installed_models(settings.models_folder), known_models()
    used = await uses(settings)
    names = dict.fromkeys([*here, *catalogue])
    models = [model_json(name, here.get(name), catalogue.get(name), used.get(name, ())) for name in names]
    print_json({"folder": str(settings.models_folder), "models": models})
    echo(f"Built in: {ENGLISH_MODEL} for English, {MULTILINGUAL_MODEL} for a hundred languages.")
    if here:
        echo(f"Installed in {settings.models_folder}:")
        heads = ("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "USED BY")
        print_table([heads, *(_installed_row(facts, used.get(name, ())) for name, facts in here.items())])
    else:
        echo(f"No model is installed in {settings.models_folder}.")
    _print_known([model for name, model in catalogue.items() if name not in here])
    for name, size in model_install.unfinished_pulls(settings.models_folder).items():
        echo(f"\nUnfinished: {name}, {size / 1e6:,.0f} MB. Pull it again to go on, or remove it.")
    for name in sorted(used.keys() - here.keys()):
        echo(f"\nMissing: {name}, used by {', '.join(used[name])}. Run refdesk-admin model pull {name}.")
    if with_notes := [model for model in catalogue.values() if model.licence_note and model.name not in here]:
        echo()
        for model in with_notes:
            echo(f"* {model.name}: {model.licence_note}")


@command("verify", model_command, of_tenant=False)
@click.argument("names", nargs=-1, metavar="[NAME]...")
async def verify_command(settings: Settings, *, names: tuple[str, ...]) -> int:
    """Compare the files of models with their checksums.

    The checksums were noted when the models were installed. Without names, all installed models are read.
    Exits with 1 if a file is missing or has changed.
    """
    here = model_install.installed_models(settings.models_folder)
    chosen = {name: _installed_model(settings, here, name) for name in names or here}
    wrong = {
        name: await to_thread.run_sync(model_install.wrong_files, settings.models_folder / name, facts)
        for name, facts in chosen.items()
    }
    lines = []
    for name, problems in wrong.items():
        lines.append(f"{'wrong' if problems else 'ok':<7}{name}: {counted(len(chosen[name].files), 'file')}")
        lines += [f"       {problem}" for problem in problems]
    is_wrong = any(wrong.values())
    lines += ["Pull or add what is wrong again."] if is_wrong else []
    models = [{"name": name, "wrong": problems} for name, problems in wrong.items()]
    print_result({"models": models}, *lines)
    return FAILED if is_wrong else 0


@command("remove", model_command, of_tenant=False)
@click.argument("name")
async def remove_command(settings: Settings, *, name: str) -> None:
    """Delete a model that nothing uses.

    What the settings name and what collections of this data folder were made with is kept. Other desks that
    share the models' folder are not looked at.
    """
    if name not in model_install.unfinished_pulls(settings.models_folder):
        _installed_model(settings, model_install.installed_models(settings.models_folder), name)
    if users := (await uses(settings)).get(name):
        raise ConfigurationError(
            f"The model {name} is in use: {', '.join(users)}. Give these another model first; for a "
            "collection, refdesk-admin collection rebuild does it."
        )
    await to_thread.run_sync(model_install.remove_model, settings.models_folder, name)
    print_result({"removed": name}, f"Removed the model {name}.")


def _installed_model(settings: Settings, here: Mapping[str, ModelFacts], name: str) -> ModelFacts:
    if name not in here:
        names = ", ".join(here) or "none"
        raise NotFoundError(f"There is no model {name!r} in {settings.models_folder}. Installed: {names}.")
    return here[name]


# The users of installed models: the embedders and the reranker of the settings, and collections.

DIGEST = "-[0-9a-f]{12}"  # follows the folder's name in the model's identity that a collection stores


async def uses(settings: Settings) -> dict[str, list[str]]:
    """The users of each model in the models' folder, in words, by the model's name.

    Raises:
        StoreError: the catalog can't be read.
    """
    users = [*_in_settings(settings)]
    if not data_folder_problem(settings.home):  # otherwise there are no collections
        for collection in chain.from_iterable((await collections_by_tenant(settings)).values()):
            name = re.sub(f"{DIGEST}$", "", collection.embedder.model)
            if collection.embedder.provider == "onnx" and name != collection.embedder.model:
                users.append((name, f"collection {collection.name}"))
    return grouped(users)


def _in_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    folder = settings.models_folder
    for name, embedder in settings.embedders_by_name.items():
        if embedder.provider == "onnx" and embedder.folder.parent == folder:
            yield embedder.folder.name, "embedder" if name == DEFAULT_EMBEDDER else f"embedders.{name}"
    reranker = settings.reranker
    if reranker.provider == "onnx" and reranker.folder.parent == folder:
        yield reranker.folder.name, "reranker"


PERMISSIVE = {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "isc", "cc0-1.0", "unlicense"}
"""Licences that allow any use if their text is passed on; by the hub's names, in lower case."""


def _print_known(models: Sequence[KnownModel]) -> None:
    """Print models that can be pulled by name, each with what it is good for."""
    if not models:
        return
    echo("\nKnown (refdesk-admin model pull NAME):")
    head, *lines = table(
        [("NAME", "KIND", "MB", "DIMENSIONS", "LICENCE", "LANGUAGES"), *map(_known_row, models)]
    )
    echo(head)
    for line, model in zip(lines, models, strict=True):
        figures = (
            f"{figure.benchmark} {figure.score:g} (published: {figure.source})" for figure in model.figures
        )
        echo(f"{line}\n    {'; '.join([model.good_for, *figures])}")


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
"""The options for properties that a model's files may not state. Known models need none of them."""


fact_options = options(
    click.option("--graph", metavar="PATH", help="The ONNX file, if there are several."),
    flag("--reranker", help="It is a reranker (cross-encoder), not an embedder."),
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


@command("pull", model_command, of_tenant=False)
@click.argument("model")
@click.option(
    "--from",
    "folder",
    type=NamedPath(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Take the files from this folder, copied from elsewhere. They are checked as downloads are.",
)
@flag(
    "--trust",
    help="Install a model that nobody has verified for refdesk. model verify compares it with this download.",
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
    _print(facts)


@command("add", model_command, of_tenant=False)
@click.argument("folder", type=NamedPath(exists=True, file_okay=False))
@click.option("--licence", default="", metavar="TEXT", help="The model's licence, for your own list.")
@fact_options
async def add_command(
    settings: Settings,
    *,
    folder: Path,
    licence: str,
    **choices: Any,  # noqa: ANN401 click's
) -> None:
    """Install a model of your own from a folder.

    It needs an ONNX graph and tokenizer.json. The files are copied. What must be known of the model is read
    from its other files, as sentence-transformers writes them (modules.json, 1_Pooling/config.json, …). What
    they don't say is asked for.
    """
    coming = _from_own_folder(folder, licence, choices)
    _print(await _install(settings, coming))


def _find_known(model: str, revision: str | None) -> KnownModel | None:
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


def _from_own_folder(folder: Path, licence: str, choices: dict[str, Any]) -> model_install.PendingModel:
    folder = folder.absolute()
    paths = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    graph = graph_among(paths, choices["graph"])
    files = [RemoteFile(path, (folder / path).stat().st_size) for path in files_of(paths, graph)]
    facts = replace(_facts(choices, folder.name, graph), licence=licence)
    return model_install.PendingModel(facts, files, folder)


def _pending(listed: KnownModel, source: HubCommit | Path) -> model_install.PendingModel:
    files = [RemoteFile(file.path, file.size, file.sha256) for file in listed.files]
    return model_install.PendingModel(
        listed.facts(()), files, source.absolute() if isinstance(source, Path) else source
    )


def _unverified_model(
    hub: Hub, model: str, listed: KnownModel | None, revision: str | None, choices: dict[str, Any]
) -> model_install.PendingModel:
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
    return model_install.PendingModel(facts, files, HubCommit(hub, name, repository.commit))


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


async def _install(settings: Settings, coming: model_install.PendingModel, megabytes: int = 0) -> ModelFacts:
    models = settings.models_folder
    if models.is_relative_to(settings.data):
        prepare(settings.data)
    size = megabytes * 1_000_000 or sum(file.size for file in coming.files)
    with download_progress(coming.facts.name, size) as came:
        return await model_install.install(models, coming, came)


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


def _print(facts: ModelFacts) -> None:
    table = "[reranker]" if facts.kind == "reranker" else "[embedder]"
    print_result(
        model_json(facts.name, facts, known_models().get(facts.name), ()),
        f"Installed {installed_line(facts)}",
        f'To use it, write provider = "onnx" and model = "{facts.name}" into {table} of the settings.',
    )

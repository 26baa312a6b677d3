"""`refdesk-admin model`: bring models to this machine. Servers never fetch a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click
from anyio import to_thread

from rag.access.tenants import tenants
from rag.admin.command_line import command
from rag.admin.model_install import installed_models, remove_model, unfinished_pulls, wrong_files
from rag.admin.model_pull import add_command, model_json, print_models, pull_command
from rag.admin.sources_command import open_reader
from rag.admin.terminal import Group, echo, print_json
from rag.config.settings import Settings
from rag.corpus import DEFAULT_EMBEDDER
from rag.errors import ConfigurationError, NotFoundError
from rag.home import data_folder_problem
from rag.models.known_models import known_models
from rag.models.model_folder import ModelFacts
from rag.report.text_and_html import counted

WRONG = 1  # exit code


@click.group("model", cls=Group)
def model_command() -> None:
    """Bring embedding models and rerankers to this machine.

    Servers, searches and ingestions never fetch a model: they use what these commands have put into the
    models' folder. It is models in the data folder, unless models in the settings names another.
    """


@command("list", of_tenant=False, on_bucket=True)
async def list_command(settings: Settings, *, as_json: bool) -> None:
    """List the installed models and those that can be pulled."""
    here, catalogue = installed_models(settings.models_folder), known_models()
    used = await uses(settings)
    if as_json:
        names = dict.fromkeys([*here, *catalogue])
        models = [model_json(name, here.get(name), catalogue.get(name), used.get(name, ())) for name in names]
        print_json({"folder": str(settings.models_folder), "models": models})
        return
    print_models(settings.models_folder, here, catalogue, used)
    for name, size in unfinished_pulls(settings.models_folder).items():
        echo(f"\nUnfinished: {name}, {size / 1e6:,.0f} MB. Pull it again to go on, or remove it.")
    for name in sorted(used.keys() - here.keys()):
        echo(f"\nMissing: {name}, used by {', '.join(used[name])}. Run refdesk-admin model pull {name}.")
    if with_notes := [model for model in catalogue.values() if model.licence_note and model.name not in here]:
        echo()
        for model in with_notes:
            echo(f"* {model.name}: {model.licence_note}")


@command("verify", of_tenant=False, on_bucket=True)
@click.argument("names", nargs=-1, metavar="[NAME]...")
async def verify_command(settings: Settings, *, names: tuple[str, ...], as_json: bool) -> int:
    """Compare the files of models with their checksums.

    The checksums were noted when the models were installed. Without names, all installed models are read.
    Exits with 1 if a file is missing or has changed.
    """
    here = installed_models(settings.models_folder)
    chosen = {name: _installed_model(settings, here, name) for name in names or here}
    wrong = {
        name: await to_thread.run_sync(wrong_files, settings.models_folder / name, facts)
        for name, facts in chosen.items()
    }
    if as_json:
        print_json({"models": [{"name": name, "wrong": problems} for name, problems in wrong.items()]})
    for name, problems in wrong.items() if not as_json else ():
        echo(f"{'wrong' if problems else 'ok':<7}{name}: {counted(len(chosen[name].files), 'file')}")
        for problem in problems:
            echo(f"       {problem}")
    if any(wrong.values()) and not as_json:
        echo("Pull or add what is wrong again.")
    return WRONG if any(wrong.values()) else 0


@command("remove", of_tenant=False, on_bucket=True)
@click.argument("name")
async def remove_command(settings: Settings, *, name: str, as_json: bool) -> None:
    """Delete a model that nothing uses.

    What the settings name and what collections of this data folder were made with is kept. Other desks that
    share the models' folder are not looked at.
    """
    if name not in unfinished_pulls(settings.models_folder):
        _installed_model(settings, installed_models(settings.models_folder), name)
    if users := (await uses(settings)).get(name):
        raise ConfigurationError(
            f"The model {name} is in use: {', '.join(users)}. Give these another model first; for a "
            "collection, refdesk-admin collection rebuild does it."
        )
    await to_thread.run_sync(remove_model, settings.models_folder, name)
    if as_json:
        print_json({"removed": name})
    else:
        echo(f"Removed the model {name}.")


def _installed_model(settings: Settings, here: Mapping[str, ModelFacts], name: str) -> ModelFacts:
    if name not in here:
        names = ", ".join(here) or "none"
        raise NotFoundError(f"There is no model {name!r} in {settings.models_folder}. Installed: {names}.")
    return here[name]


for subcommand in (list_command, pull_command, add_command, verify_command, remove_command):
    model_command.add_command(subcommand)


# The users of installed models: the embedders and the reranker of the settings, and collections.

DIGEST = "-[0-9a-f]{12}"  # behind the name of the folder, in what a collection remembers of its model


async def uses(settings: Settings) -> dict[str, list[str]]:
    """The users of each model in the models' folder, in words, by the model's name.

    Raises:
        StoreError: the catalog can't be read.
    """
    users: dict[str, list[str]] = {}
    for name, setting in _in_settings(settings):
        users.setdefault(name, []).append(setting)
    if data_folder_problem(settings.home):  # then there are no collections
        return users
    reader = open_reader(settings)
    for tenant in tenants(settings.home):
        for collection in await reader.collections(tenant):
            name = re.sub(f"{DIGEST}$", "", collection.embedder.model)
            if collection.embedder.provider == "onnx" and name != collection.embedder.model:
                users.setdefault(name, []).append(f"collection {collection.name}")
    return users


def _in_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """The models that the settings name, each with its setting."""
    folder = settings.models_folder
    for name, embedder in settings.embedders_by_name.items():
        if embedder.provider == "onnx" and embedder.path and embedder.path.parent == folder:
            yield embedder.path.name, "embedder" if name == DEFAULT_EMBEDDER else f"embedders.{name}"
    reranker = settings.reranker
    if reranker.provider == "onnx" and reranker.path and reranker.path.parent == folder:
        yield reranker.path.name, "reranker"

"""`refdesk-admin config`: check the settings and show their origin."""

from __future__ import annotations

import functools
import json
import operator
import os
from typing import TYPE_CHECKING

import click

from rag.admin.console import command, echo, print_json, settings_file
from rag.config.load import environment_name, setting_keys

if TYPE_CHECKING:
    from rag.config.settings import Settings


@click.group("config")
def config_command() -> None:
    """Check the settings."""


@command("check", of_tenant=False)
async def check_command(settings: Settings, *, as_json: bool) -> None:
    """Check the settings and print their effective values.

    Environment variables override the settings file, and options override both. Exits with 2 if a key is
    unknown or a value is invalid.
    """
    values = settings.model_dump(mode="json")
    if as_json:
        print_json(values)
        return
    path = settings_file()
    echo(f"Settings file: {path}{'' if path.exists() else ' (does not exist)'}")
    for keys in setting_keys():
        value = functools.reduce(operator.getitem, keys, values)
        shown = "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
        echo(f"{'.'.join(keys)} = {shown}{_origin(keys)}")
    echo("The settings are valid.")


def _origin(keys: tuple[str, ...]) -> str:
    """The origin of a setting, if it is not the file."""
    if keys == ("data",) and click.get_current_context().params["data"]:
        return "  (from --data)"
    name = environment_name(keys)
    return f"  (from {name})" if name in os.environ else ""


config_command.add_command(check_command)

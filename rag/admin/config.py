"""`refdesk-admin config`: check the settings, try what they name, and show their origin."""

from __future__ import annotations

import functools
import json
import operator
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rag.admin.config_checks import exposed, findings
from rag.admin.console import Group, command, echo, print_json, settings_file
from rag.config.load import environment_name, setting_keys
from rag.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1
STATE_WIDTH = 7  # of "wrong" and a gap


@click.group("config", cls=Group)
def config_command() -> None:
    """Check the settings."""


@command("check", on_bucket=True)
@click.option("--all", "everything", is_flag=True, help="Print all settings, also those with their defaults.")
async def check_command(settings: Settings, *, everything: bool, as_json: bool) -> int:
    """Check the settings, and try what they name.

    It tries the data folder, the tenant, the models, the addresses and the issuer. Remote models get one
    or two small requests each. Prints the settings that differ from their defaults and a line for each
    part: ok, wrong, or a note. Exits with 2 if a key is unknown or a value is invalid, with 1 if a part is
    wrong.
    """
    values, path = settings.model_dump(mode="json"), settings_file()
    if not as_json:
        echo(f"Settings file: {path}{'' if path.exists() else ' (does not exist)'}")
        for line in _settings(values, everything=everything):
            echo(line)
        echo(f"{'ok':<{STATE_WIDTH}}settings: every key and value is valid")
    found = []
    for checks in (findings(settings, os.environ), exposed(settings)):
        async for finding in checks:
            found.append(finding)
            if not as_json:
                echo(f"{finding.state:<{STATE_WIDTH}}{finding.part}: {finding.text}")
    wrong = sum(finding.state == "wrong" for finding in found)
    if as_json:
        listed = [asdict(finding) for finding in found]
        print_json({"settings_file": str(path), "settings": values, "checks": listed})
    else:
        echo(f"Wrong: {wrong} of {len(found) + 1}." if wrong else "The settings are valid.")
    return FAILED if wrong else 0


def _settings(values: dict[str, Any], *, everything: bool) -> Iterator[str]:
    """A line for each setting, or only for those that differ from their defaults."""
    usual = Settings().model_dump(mode="json")
    for keys in setting_keys():
        value = functools.reduce(operator.getitem, keys, values)
        if everything or value != functools.reduce(operator.getitem, keys, usual):
            shown = "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
            yield f"{'.'.join(keys)} = {shown}{_origin(keys)}"


def _origin(keys: tuple[str, ...]) -> str:
    """The origin of a setting, if it is not the file."""
    if keys == ("data",) and click.get_current_context().params["data"]:
        return "  (from --data)"
    name = environment_name(keys)
    return f"  (from {name})" if name in os.environ else ""


config_command.add_command(check_command)

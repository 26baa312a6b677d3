"""How hosts reach this desk: the command that starts its server, or the address of one that runs."""

from __future__ import annotations

import os
import shutil
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.config.model_settings import ChatSettings, EmbedderSettings, RerankerSettings
    from rag.config.settings import Settings

AS_ARGUMENTS = {"REFDESK_CONFIG", "REFDESK_DATA"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that a host starts, from whatever folder. The environment holds no secrets."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remote:
    """A server at an address, and the header that opens it; empty if it needs none.

    `variable` is the environment variable that the header names instead of the key itself; empty if it
    holds the key.
    """

    url: str
    header: str
    variable: str = ""


def launch(settings: Settings, config: Path, asker: Sequence[str] = ()) -> Launch:
    """How a host starts this installation's server on this data folder, as this asker.

    Raises:
        ConfigurationError: the server is not installed.
    """
    scripts = sysconfig.get_path("scripts")
    command = shutil.which("refdesk", path=scripts)
    if command is None:
        raise ConfigurationError(f"There is no refdesk in {scripts}; install it as a whole.")
    named = ["--config", str(config.absolute())] if config.exists() else []
    args = [*named, "--data", str(settings.data.absolute()), *asker]
    return Launch(str(Path(command).absolute()), args, environment())


def environment() -> dict[str, str]:
    """The settings in the environment, except for the two that are arguments. None of them is a secret."""
    given = {name: value for name, value in os.environ.items() if name.startswith("REFDESK_")}
    return {name: value for name, value in given.items() if name not in AS_ARGUMENTS}


def secret_names(settings: Settings) -> list[str]:
    """The environment variables with the keys and headers of the models."""
    models: list[EmbedderSettings | ChatSettings | RerankerSettings]
    models = [*settings.embedders_by_name.values(), settings.chat, settings.reranker]
    names = [name for one in models for name in (one.api_key_env, *one.options.headers_env.values())]
    return list(dict.fromkeys(names))

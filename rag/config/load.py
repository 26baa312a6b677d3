"""The settings from the file, then the environment, then flags; the later wins.

Only the doors import this module: `server.main` and `rag.admin`.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import platformdirs
from pydantic import BaseModel, TypeAdapter, ValidationError

from rag.config.check import contradictions
from rag.config.profiles import ProfileSettings, Stages
from rag.config.settings import AccessRule, Settings
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "REFDESK_"
TABLES = (tuple[AccessRule, ...], Stages)
"""Lists of tables, which are for the file."""
DEFAULT_CONFIG = Path(platformdirs.user_config_dir("refdesk", appauthor=False)) / "config.toml"


def load_settings(
    config: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> Settings:
    """Settings from the file, then the environment, then flags.

    `config` None means `REFDESK_CONFIG`, then the default place, where a missing file is
    no error. `flags` are keys like "data" or "principal.tenant"; None among them means not given.

    Raises:
        ConfigurationError: the file is missing or no TOML, a key is unknown, a value has the
            wrong type or range. The message names the key, the place and what is allowed.
    """
    path, required = config_path(config, environment)
    text = _read(path, required=required)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    _validated(values, str(path), text)
    for keys, value in _environment_values(environment):
        _put(values, keys, value)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(values, tuple(key.split(".")), value if isinstance(value, int | list) else str(value))
    settings = _validated(values, "the environment or flags", "")
    _check_consistent(settings, str(path), text)
    return settings


def asker_flags(user: str | None, groups: Sequence[str]) -> dict[str, object]:
    """What --user and --group say of who asks; nothing where neither is given.

    Who asks is one thing: where either is given, neither comes from the settings. Else --user bob would ask
    with the groups of whom the settings name.
    """
    if user is None and not groups:
        return {}
    return {"principal.user": user or "", "principal.groups": [*groups]}


def config_path(config: Path | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """The settings file, and whether somebody named it, so that it must be there."""
    named = config or environment.get("REFDESK_CONFIG")
    return (Path(named), True) if named else (DEFAULT_CONFIG, False)


def _read(path: Path, *, required: bool) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not required:
            return ""
        raise ConfigurationError(f"There is no settings file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The settings file {path} can't be read: {error}.") from error


def setting_keys() -> dict[tuple[str, ...], Any]:
    """Every leaf setting's key path and its annotation, in the order of the file."""

    def leaves(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, info in model.model_fields.items():
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                yield from leaves(info.annotation, (*above, name))
            elif get_origin(info.annotation) is not dict:  # its keys are the operator's
                yield (*above, name), info.annotation

    return dict(leaves(Settings, ()))


def environment_name(keys: tuple[str, ...]) -> str:
    """The variable of a setting: ("search", "limit") -> "REFDESK_SEARCH_LIMIT"."""
    return ENVIRONMENT_PREFIX + "_".join(keys).upper()


def _environment_values(environment: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], object]]:
    known = {
        environment_name(keys): (keys, annotation)
        for keys, annotation in setting_keys().items()
        if annotation not in TABLES
    }
    for name, raw in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name == "REFDESK_CONFIG":
            continue
        if name not in known:
            raise ConfigurationError(f"The environment variable {name} is no setting{_nearest(name, known)}")
        keys, annotation = known[name]
        yield keys, _typed(name, raw, annotation)


def _typed(name: str, raw: str, annotation: Any) -> object:  # noqa: ANN401 an annotation is anything
    """`raw` as the field's type; a list is written with commas."""
    parts = [part.strip() for part in raw.split(",")]
    value = [part for part in parts if part] if get_origin(annotation) is tuple else raw
    try:
        adapter = TypeAdapter[object](annotation)
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"The environment variable {name}: {problem}.") from error


def _put(values: dict[str, Any], keys: tuple[str, ...], value: object) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
    values[keys[-1]] = value


def _validated(values: dict[str, Any], place: str, text: str) -> Settings:
    try:
        # By way of JSON: strict there still takes arrays for tuples and strings for paths.
        return Settings.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        lines = [_explained(details, place, text) for details in error.errors()]
        raise ConfigurationError("\n".join(lines)) from error


def _check_consistent(settings: Settings, place: str, text: str) -> None:
    for keys, problem in contradictions(settings):
        line = _line_of(keys, text)
        where = f"{place}, line {line}" if line else "the environment or flags"
        name = ".".join(key for key in keys if not key.isdecimal())
        raise ConfigurationError(f"{where}: {name}: {problem}")


def _explained(details: ErrorDetails, place: str, text: str) -> str:
    path = _path(details["loc"])
    line = _line_of(path, text)
    where = f"{place}, line {line}" if line else place
    keys = tuple(part for part in path if not part.isdecimal())
    name = ".".join(keys)
    if details["type"] == "extra_forbidden":
        known = {".".join(key): None for key in setting_keys()} | dict.fromkeys(Settings.model_fields)
        if keys[:-2] in {("search", "profiles"), ("search", "of_tenants")}:
            known = {".".join((*keys[:-1], field)): None for field in ProfileSettings.model_fields}
        return f"{where}: there is no setting {name}{_nearest(name, known)}"
    return f"{where}: {name}: {details['msg'].removeprefix('Value error, ')}."


def _path(location: Sequence[int | str]) -> tuple[str, ...]:
    """Where a mistake is: names of keys and the places of tables in their list, but not a stage's kind."""
    parts = [part for part in location if part != "[key]"]
    two_before = [None, None, *parts]
    return tuple(str(part) for part, list_ in zip(parts, two_before, strict=False) if list_ != "stages")


def _line_of(path: tuple[str, ...], text: str) -> int | None:
    """The 1-based line of a TOML text, written in the usual form, nearest to where a key begins."""
    section: tuple[str, ...] = ()
    tables = Counter[tuple[str, ...]]()
    nearest, depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)([^\[\]]+)\]", line):
            section = tuple(part.strip() for part in header[2].split("."))
            if header[1] == "[[":
                tables[section] += 1
                section = (*section, str(tables[section] - 1))
        name = re.match(r"\s*([\w-]+)\s*=", line)
        here = (*section, name[1]) if name else section
        common = min(len(here), len(path))
        if common > depth and here[:common] == path[:common]:
            nearest, depth = number, common
    return nearest


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """The end of a sentence that says that there is no `name`."""
    cutoff = 0.7 if name.startswith(ENVIRONMENT_PREFIX) else 0.5  # the prefix alone makes them alike
    close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else "."

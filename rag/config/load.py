"""Loads the settings: from the file, then the environment, then flags. The later source wins.

Only the entry points import this module: `server.start` and `rag.admin`. Programs call `Settings.load`.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import platformdirs
from pydantic import BaseModel, TypeAdapter, ValidationError

from rag.config import model_settings
from rag.config.mistakes import contradictions, describe_mistake, line_of, name_of, path_of, suggestion
from rag.config.origin_settings import ORIGINS
from rag.config.profiles import WINDOWS_PATH, ProfileSettings, Stages
from rag.config.server_settings import ToolSettings
from rag.config.settings import AccessRule, RetrieverSettings, Settings
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "REFDESK_"
SIMILAR = 0.85  # of environment variables, which the prefix alone makes rather similar
OVERRIDES = "the environment or flags"
OPTIONS: Mapping[str, type[model_settings.EndpointOptions]] = {
    "embedder": model_settings.EmbedderOptions,
    "embedders": model_settings.EmbedderOptions,
    "chat": model_settings.ChatOptions,
    "reranker": model_settings.RerankerOptions,
}
NAMED_TABLES: Mapping[tuple[str, ...], type[BaseModel]] = {
    ("search", "profiles"): ProfileSettings,
    ("search", "of_tenants"): ProfileSettings,
    ("embedders",): model_settings.EmbedderSettings,
    ("retrievers",): RetrieverSettings,
    ("access", "rules"): AccessRule,
    ("server", "tools"): ToolSettings,
}
"""The tables whose names the operator chooses, or that are in a list, by the path of what holds them."""
TABLES = (tuple[AccessRule, ...], tuple[ToolSettings, ...], Stages)
"""Lists of tables, which an environment variable holds as JSON."""
CLEARED = {("storage", "uri")}
"""The settings that an empty environment variable clears: leaving the bucket is a choice of its own."""


def load_settings(
    config: Path | None, environment: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> Settings:
    """The settings, validated and free of contradictions.

    Without `config` the file is `REFDESK_CONFIG`, or else the default one, which may be missing.
    `flags` map keys like "data" or "principal.tenant" to values; None means that a flag is not set.

    Raises:
        ConfigurationError: the file is missing or not TOML, or settings are unknown, invalid or
            contradictory. The message names the file and line, the setting, and what to write instead.
    """
    path, required = config_path(config, environment)
    text = _read(path, required=required)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        has_backslash = line and "\\" in text.split("\n")[int(line[1]) - 1]
        advice = f"; {WINDOWS_PATH}" if has_backslash else ""
        raise ConfigurationError(f"{path} is not valid TOML: {error}{advice}") from error
    _validate(values, str(path), text)  # the file by itself, so that its mistakes have their lines
    for keys, value in _environment_values(environment):
        _put(values, keys, value)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(values, tuple(key.split(".")), value if isinstance(value, int | list) else str(value))
    settings = _validate(values, OVERRIDES, "")
    for keys, problem in contradictions(settings):
        where = _where(keys, str(path), text) if line_of(keys, text) else OVERRIDES
        raise ConfigurationError(f"{where}: {name_of(keys)}: {problem}")
    return settings


def load_env_file(path: Path) -> None:
    """Set the environment variables of a file of lines NAME=value, except those that are set already.

    It is for keys of models, for example, which hosts and schedulers don't pass on. A ${NAME} in a
    value isn't replaced.

    Raises:
        ConfigurationError: the file can't be read, or has another line.
    """
    from dotenv.parser import parse_stream  # noqa: PLC0415 few processes have such a file

    for binding in parse_stream(StringIO(_read(path, required=True, kind="environment file"))):
        if binding.error or (binding.key and binding.value is None):  # the line itself could be a secret
            raise ConfigurationError(
                f"Line {binding.original.line} of the environment file {path} is not NAME=value."
            )
        if binding.key and binding.value is not None:
            os.environ.setdefault(binding.key, binding.value)


def asker_flags(user: str | None, groups: Sequence[str]) -> dict[str, object]:
    """The settings that --user and --group override; none if neither flag is given.

    Either flag overrides both settings. Otherwise --user bob would search with the groups of the user in the
    settings.
    """
    if user is None and not groups:
        return {}
    return {"principal.user": user or "", "principal.groups": [*groups]}


def config_path(config: Path | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """The settings file, and whether it must exist because it was named."""
    chosen = config or environment.get("REFDESK_CONFIG")
    if chosen:
        return Path(chosen), True
    return Path(platformdirs.user_config_dir("refdesk", appauthor=False)) / "config.toml", False


def _read(path: Path, *, required: bool, kind: str = "settings file") -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # Notepad puts a mark first
    except FileNotFoundError as error:
        if not required:
            return ""
        raise ConfigurationError(f"There is no {kind} {path}.") from error
    except OSError as error:
        raise ConfigurationError(f"The {kind} {path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"The {kind} {path} is not text in UTF-8. Save it in that encoding."
        ) from error


def setting_keys() -> dict[tuple[str, ...], Any]:
    """The path of every setting and its type, in the order of the file, but for tables of chosen keys."""
    fields = _fields(Settings, ())
    return {keys: _annotation(info) for keys, info in fields if get_origin(info.annotation) is not dict}


def _fields(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """The path of every setting, and of every table whose keys the operator chooses."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _fields(info.annotation, (*above, name))
        else:
            yield (*above, name), info


def setting_values(settings: Settings, *, changed_only: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path and the value of every setting as JSON has it, or of those that differ from their defaults."""
    values, usual = settings.model_dump(mode="json"), Settings().model_dump(mode="json")
    for keys in setting_keys():
        value = functools.reduce(operator.getitem, keys, values)
        if not changed_only or value != functools.reduce(operator.getitem, keys, usual):
            yield keys, value


def named_values(settings: Settings) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path and the value, as JSON has it, of what was set in tables whose keys the operator chooses."""
    usual, values = (dict(_leaves((), whole.model_dump(mode="json"))) for whole in (Settings(), settings))
    of_one_line = setting_keys()
    set_values = settings.model_dump(mode="json", exclude_unset=True)
    for keys, value in _leaves((), set_values) if set_values else ():
        is_built_in = keys in values and usual.get(keys) == values[keys]  # a profile's
        if keys not in of_one_line and not is_built_in:
            yield keys, value


def _leaves(keys: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    if not (isinstance(value, dict) and value):
        yield keys, value
        return
    for key, part in value.items():
        yield from _leaves((*keys, key), part)


def _annotation(info: FieldInfo) -> Any:  # noqa: ANN401 an annotation is anything
    """The type of a field with its constraints, which pydantic keeps apart."""
    return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation


def environment_name(keys: tuple[str, ...]) -> str:
    """The environment variable of a setting: ("search", "limit") -> "REFDESK_SEARCH_LIMIT"."""
    return ENVIRONMENT_PREFIX + "_".join(keys).upper()


def _environment_values(environment: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], object]]:
    variables = {environment_name(keys): (keys, _annotation(info)) for keys, info in _fields(Settings, ())}
    for name, raw in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name == "REFDESK_CONFIG":
            continue
        if name not in variables:
            hint = suggestion(name, variables, cutoff=SIMILAR)
            raise ConfigurationError(f"The environment variable {name} is not a setting{hint}")
        keys, annotation = variables[name]
        if not raw and _is_path(annotation):  # as containers and unit files unset a variable
            continue
        if keys not in CLEARED:
            _refuse_empty(name, raw, annotation)
        is_table = annotation in TABLES or get_origin(annotation) is dict
        yield keys, _table(name, raw, annotation) if is_table else _typed_value(name, raw, annotation)


def _table(name: str, raw: str, annotation: Any) -> object:  # noqa: ANN401 an annotation is anything
    """`raw` as JSON of the shape of the table or list of tables; the settings check its values."""
    shape, example = (dict, '{"NAME": …}') if get_origin(annotation) is dict else (list, '[{"KEY": …}]')
    if (value := _json(raw, shape)) is None:
        raise ConfigurationError(f"{name} must be written as JSON, like {example}.")
    return value


def _typed_value(name: str, raw: str, annotation: Any) -> object:  # noqa: ANN401 an annotation is anything
    """`raw` as a value of the setting's type. A list is one of JSON, or its items separated by commas."""
    value: object = raw
    if _is_list(annotation):
        value = _json(raw, list)
        if value is None:
            value = [item for part in raw.split(",") if (item := part.strip())]
    try:
        adapter = TypeAdapter[object](annotation)
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError as error:
        raise ConfigurationError(describe_mistake(name, error.errors()[0])) from error


def _refuse_empty(name: str, raw: str, annotation: Any) -> None:  # noqa: ANN401 an annotation is anything
    """Refuse a variable that has only spaces, or for a list commas: it may lift a protection."""
    if not raw.strip(" \t\n," if _is_list(annotation) else None):
        instead = "[] if the list shall be empty" if _is_list(annotation) else "a value"
        raise ConfigurationError(f"{name} is empty. Remove the variable, or write {instead}.")


def _json(raw: str, shape: type) -> object:
    """The JSON in a variable; None if it has none of this shape."""
    with suppress(ValueError):
        if isinstance(value := json.loads(raw), shape):
            return value
    return None


def _is_path(annotation: Any) -> bool:  # noqa: ANN401 an annotation is anything
    return annotation is Path or any(map(_is_path, get_args(annotation)))


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 the same
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    return get_origin(annotation) is tuple


def _put(values: dict[str, Any], keys: tuple[str, ...], value: object) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
    values[keys[-1]] = value


def _validate(values: dict[str, Any], origin: str, text: str) -> Settings:
    try:
        # Validated as JSON: even in strict mode it takes arrays for tuples and strings for paths.
        return Settings.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        lines = [_explanation(details, origin, text) for details in error.errors()]
        raise ConfigurationError("\n".join(dict.fromkeys(lines))) from error


def _explanation(details: ErrorDetails, origin: str, text: str) -> str:
    path = path_of(details["loc"])
    where, name = _where(path, origin, text), name_of(path)
    if not path:  # the only error that JSON itself can have here
        return f"{where}: a value is not text in UTF-8."
    if details["type"] != "extra_forbidden":
        return f"{where}: {describe_mistake(name, details)}"
    names = {".".join(keys): None for keys in setting_keys()} | dict.fromkeys(Settings.model_fields)
    table = NAMED_TABLES.get(path[:-2])
    if path[:-2] == ("origins",):
        table = ORIGINS[str(details["loc"][2])]
    if path[-2:-1] == ("options",):
        table = OPTIONS.get(path[0])
    if table:
        names = {name_of((*path[:-1], field)): None for field in table.model_fields}
    candidates = [key for key in names if not name.startswith(f"{key}.")]
    beside = [key for key in candidates if len(path) > 1 and key.rpartition(".")[0] == name_of(path[:-1])]
    hint = suggestion(name, beside)
    if hint == ".":  # nothing in this table is similar
        hint = suggestion(name, candidates)
        if beside:
            hint += f" [{name_of(path[:-1])}] has {', '.join(key.rpartition('.')[2] for key in beside)}."
    return f"{where}: there is no setting {name}{hint}"


def _where(path: tuple[str, ...], origin: str, text: str) -> str:
    line = line_of(path, text)
    return f"{origin}, line {line}" if line else origin

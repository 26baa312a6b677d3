"""Finds mistakes in settings: wrong values, contradictions, and files that others could read or change.

Each message names the place and what to write instead. Pydantic finds the wrong values, but its messages are
written for programmers, so they are replaced.
"""

from __future__ import annotations

import difflib
import os
import shlex
import stat
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from rag.access.rule import CredentialBoundTo
from rag.config.origin_settings import FolderOrigin
from rag.config.profiles import (
    DEFAULT_PROFILE,
    LOOSENING,
    NO_OTHER_MODEL,
    ONE_MODEL,
    HitStage,
    MultiQueryStage,
    Overridable,
    PlannerStage,
    QueryStage,
    RerankStage,
    Stages,
    makes_queries,
)
from rag.config.server_settings import FETCH, PAGE_PICTURE, SEARCH, ToolSettings
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from rag.config.settings import SearchSettings, Settings

SHOWN_CHARS = 40  # of a wrong value
_SENTENCES = {
    "value_error": "{name}: {error}.",
    "literal_error": "{name} must be {expected}, not {value}.",
    "greater_than": "{name} must be more than {gt}, not {value}.",
    "greater_than_equal": "{name} must be at least {ge}, not {value}.",
    "less_than": "{name} must be less than {lt}, not {value}.",
    "less_than_equal": "{name} must be at most {le}, not {value}.",
    "too_long": "{name} has {actual_length} items; give at most {max_length}.",
    "too_short": "{name} has {actual_length} items; give at least {min_length}.",
    "missing": "{name} is missing.",
    "extra_forbidden": "{name} is not a known key.",
    "union_tag_invalid": "{name}: there is no {kind} '{tag}'; use one of {expected_tags}.",
    "string_unicode": "{name} must be text in UTF-8.",
    "union_tag_not_found": "{name}: {kind} is missing; write {example}, for example.",
}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a string",
    "path": "a path",
    "tuple": "a list",
    "list": "a list",
    "dict": "a table",
    "model": "a table",
}
"""By the first word of an error type: int_type, int_parsing, int_from_float and so on."""
_EXAMPLES = {"stage": "stage = 'dedupe'", "type": "type = 'folder'"}
"""By the key that tells the kind of a table."""


def describe_mistake(name: str, details: ErrorDetails) -> str:
    """One of pydantic's errors about the setting `name`, as a sentence that says what to write instead.

    Example: the value 101 of "search.limit" -> "search.limit must be at most 100, not 101."
    """
    kind, location = details["type"], details["loc"]
    is_item = bool(location) and isinstance(location[-1], int)
    if kind == "missing" and is_item:
        return f"{name} has too few items."
    expected = _EXPECTED.get(kind.partition("_")[0], "a valid value")
    sentence = _SENTENCES.get(kind, f"{{name}} must be {expected}, not {{value}}.")
    subject = f"each item of {name}" if is_item and sentence.startswith("{name} must") else name
    context = {key: _whole(value) for key, value in details.get("ctx", {}).items()}
    if (key := str(context.get("discriminator", "")).strip("'")) in _EXAMPLES:
        context |= {"kind": key, "example": _EXAMPLES[key]}
    return sentence.format_map(context | {"name": subject, "value": _value_text(details["input"])})


def _whole(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _value_text(value: object) -> str:
    """A wrong value as TOML has it: quotes tell a string from a number. Tables and lists are only named."""
    match value:
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:SHOWN_CHARS])
    return str(value)[:SHOWN_CHARS]


def path_of(location: Sequence[int | str]) -> tuple[str, ...]:
    """The path of an error: keys, and the indexes of tables in their list, but not the kind of a table.

    Pydantic puts the kind of a stage after its index: ("search", "stages", 0, "dedupe", "threshold"), and the
    type of an origin after its name.
    """
    parts = [part for part in location if part != "[key]"]
    two_before = [None, None, *parts]
    kinds = {"stages", "origins"}
    return tuple(str(part) for part, table in zip(parts, two_before, strict=False) if table not in kinds)


def name_of(path: Sequence[str]) -> str:
    """A path as people write it: ("search", "stages", "0", "threshold") -> "search.stages.threshold"."""
    return ".".join(part for part in path if not part.isdecimal())


def line_of(path: tuple[str, ...], text: str) -> int | None:
    r"""The 1-based line of a valid TOML text, however it is formatted, nearest to where a path begins.

    Example: ("server", "tools", "1", "name") in "server.tools = [\n{name = 'a'},\n{name = 'b'}]" -> 3.
    """
    nearest, depth = None, 0
    for here, line in _lines_of_keys(text):
        common = min(len(here), len(path))
        if common > depth and here[:common] == path[:common]:
            nearest, depth = line, common
    return nearest


def _lines_of_keys(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The path of every table, value and item of a list, and the line that it begins in."""
    section: tuple[str, ...] = ()
    tables = Counter[tuple[str, ...]]()
    for line, statement, lines_of_items in _statements(text):
        # The parser knows all ways to write a key: "quoted", dotted.like.this, in an = {inline = "table"}.
        paths = list(_paths_in(tomllib.loads(statement)))
        if not statement.lstrip().startswith("["):
            for path in paths:
                index = next((part for part in path if isinstance(part, int)), len(lines_of_items))
                yield (*section, *map(str, path)), (*lines_of_items[index:], line)[0]
            continue
        section, is_item = (), statement.lstrip().startswith("[[")
        header = [part for part in paths[-1] if isinstance(part, str)]
        for depth, key in enumerate(header, 1):
            section = (*section, key)
            tables[section] += is_item and depth == len(header)
            section = (*section, str(tables[section] - 1)) if tables[section] else section
        yield section, line


def _paths_in(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of a parsed value's tables, lists and values, each before what is inside it."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _paths_in(part, (*path, key))


def _statements(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Each header and assignment of a TOML text: its first line, its text, and the lines of its items."""
    first, statement, items = 1, "", list[int]()
    for line, part in enumerate(text.split("\n"), 1):
        statement += f"{part}\n"
        whole = _parsed(statement)
        value: Any = _parsed(f"{statement}]") if whole is None else whole  # a list that isn't closed yet
        while isinstance(value, dict) and value:
            value = next(iter(value.values()))
        if isinstance(value, list):
            items += [line] * (len(value) - len(items))
        if whole is not None:
            yield first, statement, items
            first, statement, items = line + 1, "", []


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def suggestion(name: str, candidates: Iterable[str], *, cutoff: float = 0.75) -> str:
    """The end of a sentence about an unknown `name`: "; did you mean …?" if a known one is similar.

    Only the last parts are compared: whole names have the letters of their table in common.
    """
    near = [candidate for candidate in candidates if _alike(_last(candidate), _last(name)) >= cutoff]
    best = max(
        near,
        key=lambda candidate: (_alike(_last(candidate), _last(name)), _alike(candidate, name)),
        default="",
    )
    return f"; did you mean {best}?" if best else "."


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alike(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


# Contradictions between settings that are valid alone.

Contradiction: TypeAlias = tuple[tuple[str, ...], str]
"""The keys of the setting that is wrong, and a sentence about it."""


def check_consistent(settings: Settings) -> None:
    """Raise the first contradiction as a ConfigurationError, if there is one."""
    for keys, problem in contradictions(settings):
        raise ConfigurationError(f"{name_of(keys)}: {problem}")


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """All contradictions, in the order of the file."""
    search = settings.search
    for keys, stages in stages_of(search).items():
        yield from _stage_contradictions(keys, stages, settings)
    for name, profile_name in search.of_collections.items():
        yield from _profile_contradictions(("search", "of_collections", name), profile_name, settings)
    for profile_name in settings.server.profiles:
        yield from _profile_contradictions(("server", "profiles"), profile_name, settings)
    yield from _tool_contradictions(settings)
    yield from _version_contradictions(settings)
    yield from _origin_contradictions(settings)
    for name, scope in settings.oauth.scopes.items():
        yield from binding_contradictions(("oauth", "scopes", name), scope, settings)


def stages_of(search: SearchSettings) -> dict[tuple[str, ...], Stages]:
    """All lists of stages, by the keys of the table that holds them."""
    lists: dict[tuple[str, ...], Stages] = {("search",): search.stages}
    for table, profiles in (("profiles", search.profiles), ("of_tenants", search.of_tenants)):
        lists |= {("search", table, name): profile.stages or () for name, profile in profiles.items()}
    return lists


def _profile_contradictions(keys: tuple[str, ...], name: str, settings: Settings) -> Iterator[Contradiction]:
    names = (DEFAULT_PROFILE, *settings.search.profiles)
    if name not in names:
        yield keys, f"there is no profile {name!r}; use one of: {', '.join(names)}."


def _version_contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Table versions must be kept for as long as a search may take."""
    lag = settings.storage.consistency_seconds if settings.storage.uri else 0
    if settings.ingest.keep_versions_minutes * 60 < settings.search.timeout_seconds + lag:
        problem = "it is less than a search may take (search.timeout_seconds, storage.consistency_seconds)."
        yield ("ingest", "keep_versions_minutes"), problem


def _origin_contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Origins whose folder lies in the data folder, and folders that two origins claim."""
    claimed: dict[tuple[object, ...], str] = {}
    for name, origin in settings.origins.items():
        if not isinstance(origin, FolderOrigin):
            continue
        if origin.path.is_relative_to(settings.data):
            yield ("origins", name, "path"), "it lies in the data folder; name a folder of documents."
        first = claimed.setdefault((origin.tenant, origin.collection, origin.path), name)
        if first != name:
            problem = f"the origin {first!r} has the same folder and collection; remove one of the two."
            yield ("origins", name, "path"), problem


def _tool_contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Tool names that occur twice, and bindings and arguments that other settings make void."""
    server, used_names = settings.server, set[str]()
    used_names |= {FETCH} if server.openai_compat else set()
    used_names |= {PAGE_PICTURE} if server.apps else set()
    for index, tool in enumerate(server.tools):
        keys = ("server", "tools", str(index))
        names = [(keys, tool.name)] + ([((*keys, "opener"), tool.opener.name)] if tool.opener else [])
        for above, name in names:
            if name.casefold() in used_names:
                yield (*above, "name"), f"there is already a tool {name!r}; give each one a name of its own."
            used_names.add(name.casefold())
        if tool.profile is not None:
            yield from _profile_contradictions((*keys, "profile"), tool.profile, settings)
        for argument in tool.arguments or ():
            if reason := _void_reason(argument, tool, settings):
                yield (*keys, "arguments"), f"{argument} can't be offered: {reason}."
    if server.openai_compat and all(tool.name != SEARCH for tool in server.tools):
        yield (
            ("server", "openai_compat"),
            f"ChatGPT calls tools named {SEARCH} and {FETCH}; name one {SEARCH}.",
        )


def _void_reason(argument: str, tool: ToolSettings, settings: Settings) -> str | None:
    match argument:
        case _ if tool.profile is not None and argument in {"profile", *LOOSENING}:
            return "the tool is bound to a profile"
        case "profile" if not settings.server.profiles:
            return "server.profiles is empty"
        case "explain" if not settings.server.explain:
            return "server.explain is false"
        case _ if argument in get_args(Overridable) and argument not in settings.search.overrides:
            return "search.overrides doesn't name it"
    return None


def binding_contradictions(
    keys: tuple[str, ...], bound: CredentialBoundTo, settings: Settings
) -> Iterator[Contradiction]:
    """The profile and the tools of a scope or a key that the settings don't have."""
    if bound.profile is not None:
        yield from _profile_contradictions((*keys, "profile"), bound.profile, settings)
    names = [tool.name for tool in settings.server.tools]
    for name in bound.tools or ():
        if name not in names:
            yield (*keys, "tools"), f"there is no search tool {name!r}; use some of: {', '.join(names)}."


def _stage_contradictions(
    above: tuple[str, ...], stages: Stages, settings: Settings
) -> Iterator[Contradiction]:
    after_hits, has_one_model = False, settings.reranker.provider in ONE_MODEL
    for index, stage in enumerate(stages):
        keys = (*above, "stages", str(index))
        if makes_queries(stage) and after_hits:
            yield keys, f"the stage {stage.stage} makes queries; move it before the stages that take hits."
        after_hits = after_hits or not makes_queries(stage)
        if missing := _missing_model(stage, settings):
            yield keys, f"the stage {stage.stage} needs {missing}, which is not set."
        elif isinstance(stage, RerankStage) and stage.by == "reranker" and stage.model and has_one_model:
            yield keys, NO_OTHER_MODEL.format(stage.model)


def _missing_model(stage: QueryStage | HitStage, settings: Settings) -> str | None:
    match stage:
        case MultiQueryStage() | PlannerStage() | RerankStage(by="chat") if not settings.chat.model:
            return "chat.model"
        case RerankStage(by="reranker") if settings.reranker.provider == "none":
            return "reranker.provider"
    return None


# Permissions of files and folders.

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ANY = stat.S_IRWXG | stat.S_IRWXO
OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
GROUP_ANY = stat.S_IRWXG
ROOT_USER = 0


def loose_permissions(config: Path, data: Path, env_file: Path | None = None) -> Sequence[str]:
    """One warning for each file or folder whose permissions are too loose, with the command that fixes it.

    Missing files are fine. So is access for root, and for a group whose only member is the owner. Windows
    has no such permissions, so nothing is checked there.
    """
    if os.name == "nt":
        return ()
    secrets = [_readable_by_others(env_file)] if env_file else []
    return (*_writable_by_others(config), *_accessible_to_others(data), *filter(None, secrets))


def _writable_by_others(config: Path) -> Iterator[str]:
    """Checks the file and all folders above it: who can write a folder can replace the file in it."""
    file, real = config.absolute(), config.resolve()
    for path in dict.fromkeys((file, *file.parents, real, *real.parents)):
        status = _status(path)
        if status is None:
            continue
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        if status.st_uid not in {os.geteuid(), ROOT_USER}:
            yield (
                f"The {kind} {path} belongs to another user, who can change the settings. "
                f"Take it over: chown {os.geteuid()} {_quoted(path)}"
            )
        elif _others_may(status, OTHERS_WRITE) and not (kind == "folder" and status.st_mode & stat.S_ISVTX):
            yield (
                f"Other users can write the {kind} {path}, and so change the settings. "
                f"Fix it: chmod go-w {_quoted(path)}"
            )


def _readable_by_others(env_file: Path) -> str:
    status = _status(env_file)
    if status is None or not _others_may(status, OTHERS_ANY):
        return ""
    return f"Other users can access the environment file {env_file}. Fix it: chmod 600 {_quoted(env_file)}"


def _accessible_to_others(data: Path) -> Iterator[str]:
    """Checks the data folder. Its mode is harmless if others can't enter one of the folders above it.

    The group is ignored if this user doesn't own the folder: it may be how this user gets in. A path that
    isn't a data folder is ignored, too: other programs may need it open.
    """
    status = _status(data)
    if status is None or not _may_be_ours(data):
        return
    checked = OTHERS_ANY if status.st_uid == os.geteuid() else OTHERS_ANY & ~GROUP_ANY
    if _others_may(status, checked) and all(_enterable(folder) for folder in data.resolve().parents):
        yield f"Other users can access the data folder {data}. Fix it: chmod 700 {_quoted(data)}"


def _may_be_ours(data: Path) -> bool:
    """Whether this is a data folder of refdesk, or an empty folder that can become one."""
    try:
        names = os.listdir(data)  # noqa: PTH208 only the names
    except OSError:
        return False
    return not names or "tenants" in names


def _enterable(folder: Path) -> bool:
    status = _status(folder)
    return status is None or _others_may(status, OTHERS_ENTER)


def _others_may(status: os.stat_result, mode: int) -> bool:
    if _is_own_group(status):
        mode &= ~GROUP_ANY
    return bool(status.st_mode & mode)


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group has no member but the owner. Many systems create such a group for each user."""
    import grp  # noqa: PLC0415 not on Windows
    import pwd  # noqa: PLC0415 the same

    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
    except KeyError:
        return False
    return owner.pw_gid == status.st_gid and owner.pw_name == group.gr_name and not group.gr_mem


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))

"""`refdesk-admin key`: API keys for remote assistants, and what each key is bound to."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import click
from pydantic import ValidationError

from rag.access.keys import (
    KEYS,
    SEARCH_SCOPE,
    ApiKey,
    Keys,
    id_in,
    keys_file,
    keys_in,
    new_secret,
    parsed_keys,
    read_keys,
    token_of,
)
from rag.access.rule import MAX_ENTRIES, CredentialBoundTo, bare_name, one_group_notes, walls
from rag.access.tenants import tenant_of
from rag.admin.audit_command import Act, log_act
from rag.admin.command_line import command, json_object, options, repeatable, same_desk
from rag.admin.sharing import exposures
from rag.admin.terminal import Group, echo, print_json, print_result, print_table, wants_json
from rag.answers import MAX_LIMIT
from rag.config.mistakes import binding_contradictions
from rag.config.server_settings import HttpSettings, resource_url
from rag.config.settings import Settings
from rag.corpus import Collection
from rag.errors import ConfigurationError, NotFoundError, StoreError, if_system_refuses
from rag.home import Home, local_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.desk_folder import prepare, spending_reserve, write_whole
from rag.store.write.locks import locked

binding_options = options(
    repeatable(
        "--collection",
        "collections",
        metavar="NAME",
        help="A collection that it may read. Repeatable. Default: all.",
    ),
    click.option(
        "--filter", type=json_object, metavar="JSON", help="Only sources whose declared fields match."
    ),
    click.option("--profile", metavar="NAME", help="The only retrieval profile of its searches."),
    click.option(
        "--limit", type=click.IntRange(1, MAX_LIMIT), metavar="N", help="Highest limit of its searches."
    ),
    repeatable("--tool", "tools", metavar="NAME", help="A search tool that it may call. Repeatable."),
)
"""What `credential_binding` takes."""


async def credential_binding(
    settings: Settings, tenant: str, choices: Mapping[str, object]
) -> CredentialBoundTo | None:
    """The binding that the options describe; None without any.

    Raises:
        ConfigurationError: a value is out of range, a profile or tool is not in the settings, or the filter
            fits the fields of no collection, so that the key would show nothing.
        NotFoundError: a collection doesn't exist.
    """
    bounds = {name: value for name, value in choices.items() if value is not None and value != ()}
    if not bounds:
        return None
    try:
        bound = CredentialBoundTo.model_validate(bounds)
    except ValidationError as error:
        details = error.errors()[0]
        option = str(details["loc"][0]).removesuffix("s")
        mistake = details["msg"].removeprefix("Value error, ").rstrip(".")
        raise ConfigurationError(f"--{option}: {mistake}.") from error
    _check_settings(bound, settings)
    if bound.collections is not None or bound.filter is not None:
        _check_collections(bound, await DeskReader.of(settings).collections(tenant))
    return bound


def _check_settings(bound: CredentialBoundTo, settings: Settings) -> None:
    """Check that the profile and the tools exist, and that no tool is bound to another profile."""
    for (name,), problem in binding_contradictions((), bound, settings):
        raise ConfigurationError(f"--{name.removesuffix('s')}: {problem}")
    by_name = {tool.name: tool for tool in settings.server.tools}
    for name in bound.tools or by_name:
        fixed = by_name[name].profile
        if bound.profile is not None and fixed not in {None, bound.profile}:
            raise ConfigurationError(
                f"--profile: the tool {name} is bound to the profile {fixed}, so with this key it could not "
                "search. Leave out --profile, or name other tools with --tool."
            )


def _check_collections(bound: CredentialBoundTo, existing: tuple[Collection, ...]) -> None:
    names = [collection.name for collection in existing]
    for name in bound.collections or ():
        if name not in names:
            raise NotFoundError(
                f"--collection: there is no collection {name!r}; there are: {', '.join(names) or 'none'}."
            )
    readable = [
        collection
        for collection in existing
        if bound.collections is None or collection.name in bound.collections
    ]
    hidden = [collection.name for collection in readable if walls([bound.binding], collection) is None]
    if len(hidden) == len(readable):
        raise ConfigurationError(
            f"--filter doesn't fit the declared fields of any collection ({', '.join(hidden) or 'none'}), so "
            "the key would show nothing. refdesk-admin collection list shows the fields."
        )
    if hidden:
        echo(f"The key shows nothing of {', '.join(hidden)}: the filter doesn't fit its fields.", err=True)


def binding_in_words(bound: CredentialBoundTo | None) -> str:
    """A binding on one line: "handbook; {"status": "final"}; profile strict; limit 5"; "-" without one."""
    if bound is None:
        return "-"
    parts = [
        ", ".join(bound.collections or ()),
        json.dumps(bound.filter, ensure_ascii=False) if bound.filter is not None else "",
        f"profile {bound.profile}" if bound.profile is not None else "",
        f"limit {bound.limit}" if bound.limit is not None else "",
        f"tools {', '.join(bound.tools)}" if bound.tools is not None else "",
    ]
    return "; ".join(filter(None, parts)) or "-"


LOCK_SECONDS = 15
LOGGED = {"user", "groups", "scopes", "expires_at", "bound_to"}
DAYS = click.IntRange(1, 3650)


@click.group("key", cls=Group)
def key_command() -> None:
    """Create and revoke API keys for remote assistants.

    A server started with refdesk --http accepts these keys.
    """


@command("create", key_command, of_desk=True, changes=True)
@click.option("--user", default="", metavar="NAME", help="User that the key belongs to.")
@repeatable("--group", "groups", metavar="NAME", help="A group of the user. Repeatable.")
@click.option("--days", type=DAYS, default=365, help="Days until it expires. Default: 365.")
@binding_options
async def create_command(
    settings: Settings,
    *,
    user: str,
    groups: tuple[str, ...],
    days: int,
    **binding: Any,  # noqa: ANN401 click's
) -> None:
    """Create a key. It is shown only once; only a digest is stored.

    A key may be bound: to collections, to sources whose fields match a filter, to a profile, to a highest
    limit, and to tools of the server. Each binding narrows what its user and groups may see.
    """
    if len(groups) > MAX_ENTRIES:
        raise click.UsageError(f"Give at most {MAX_ENTRIES} groups.")
    bound = await credential_binding(settings, tenant_of(settings), binding)
    key, secret = create_key(settings, user=user, groups=groups, days=days, bound=bound)
    _show(key, secret)
    for note in one_group_notes(groups):
        echo(f"Note: {note}", err=True)
    try:
        for exposure in await exposures(settings, key.tenant, intended=True):
            if bound is None or bound.collections is None or exposure.collection.name in bound.collections:
                echo(f"Note: {exposure}", err=True)
    except StoreError as error:  # the key is valid anyway
        echo(f"Note: the key is valid, but what is open to its tenant can't be told. {error}", err=True)
    if not wants_json():
        _tell_hosts(settings.http)


def create_key(
    settings: Settings, *, user: str, groups: Sequence[str], days: int, bound: CredentialBoundTo | None = None
) -> tuple[ApiKey, str]:
    """Create a key of the tenant. Returns it with its secret, of which only a digest is stored.

    Raises:
        ConfigurationError: a name is not valid.
    """
    now, tenant = datetime.now(UTC), tenant_of(settings)
    secret, digest = new_secret()
    key = ApiKey(
        id=secrets.token_hex(4),
        digest=digest,
        tenant=tenant,
        user=user and bare_name("user", user),
        groups=tuple(bare_name("group", group) for group in groups),
        scopes=(SEARCH_SCOPE,),
        created_at=now,
        expires_at=now + timedelta(days=days),
        bound_to=bound,
    )
    prepare(settings.home)
    act = Act("key create", key.tenant, {key.id: (None, _state(key))})
    with changing_keys(settings.home) as (keys, write), log_act(settings.data, act):
        write((*keys, key))
    return key, secret


@command("list", key_command, of_tenant=False)
async def list_command(settings: Settings) -> None:
    """List the keys, without their secrets."""
    keys = keys_in(settings.home).keys
    titles = ("ID", "TENANT", "USER", "GROUPS", "VALID UNTIL", "BOUND TO")
    none = "There are no keys yet. Create one with refdesk-admin key create."
    print_json({"keys": [*map(_json, keys)]})
    print_table([titles, *map(_row, keys)], empty=none)


def _row(key: ApiKey) -> tuple[object, ...]:
    groups = ", ".join(key.groups) or "-"
    return key.id, key.tenant, key.user or "-", groups, _until(key), binding_in_words(key.bound_to)


@command("revoke", key_command, of_tenant=False, changes=True)
@click.argument("id_", metavar="ID")
async def revoke_command(settings: Settings, *, id_: str) -> None:
    """Revoke a key, by its id or the whole key. Running servers reject it from the next request on."""
    id_ = id_in(id_)
    revoke_key(settings.home, id_)
    print_result({"revoked": id_}, f"Revoked the key {id_}.")


@command("rotate", key_command, of_tenant=False, changes=True)
@click.argument("id_", metavar="ID")
@click.option(
    "--keep-days", type=click.IntRange(0, 90), default=1, help="Days until the old key expires. Default: 1."
)
async def rotate_command(settings: Settings, *, id_: str, keep_days: int) -> None:
    """Replace a key by a new one for the same holder.

    The new key lasts as long as the old one was made for. The old key expires after --keep-days.
    """
    id_, now = id_in(id_), datetime.now(UTC)
    secret, digest = new_secret()
    _find(keys_in(settings.home).keys, id_)  # an unknown id makes no data folder
    prepare(settings.home)
    with changing_keys(settings.home) as (keys, write):
        old = _find(keys, id_)
        if old.replaced_by:
            # The first rotation has shortened it, and the new key would last no longer.
            raise ConfigurationError(
                f"The key {id_} was already replaced by the key {old.replaced_by}. Rotate that one, or "
                "create another with refdesk-admin key create."
            )
        lasts = {"created_at": now, "expires_at": now + (old.expires_at - old.created_at)}
        new = old.model_copy(update={"id": secrets.token_hex(4), "digest": digest, **lasts})
        ends = min(old.expires_at, now + timedelta(days=keep_days))
        other_keys = [key for key in keys if key.id != id_]
        replaced = old.model_copy(update={"expires_at": ends, "replaced_by": new.id})
        expiring = [replaced] if keep_days else []
        ending = _state(old), _state(expiring[0]) if expiring else None
        changes = {old.id: ending, new.id: (None, _state(new))}
        with log_act(settings.data, Act("key rotate", old.tenant, changes)):
            write((*other_keys, *expiring, new))
    _show(new, secret)
    for key in () if wants_json() else expiring:
        end_now = f"refdesk-admin key revoke {key.id}{same_desk('config', 'data')}"
        echo(f"The old key {key.id} is valid until {_until(key)}. To end it now: {end_now}", err=True)


def revoke_key(data: Home, id_: str) -> None:
    """Revoke a key; raises NotFoundError if no key has this id."""
    _find(keys_in(data).keys, id_)  # an unknown id fails at once, without the lock
    with changing_keys(data) as (keys, write):
        # Looked up again: another process may have changed it before the lock was ours.
        _revoke(data, keys, [_find(keys, id_)], write)


def revoke_keys(data: Home, tenant: str) -> int:
    """Revoke all keys of a tenant, which would open a later one with the same name. Returns their number."""
    with changing_keys(data) as (keys, write):
        if of_tenant := [key for key in keys if key.tenant == tenant]:
            _revoke(data, keys, of_tenant, write)
    return len(of_tenant)


def _revoke(data: Home, keys: Sequence[ApiKey], ended: Sequence[ApiKey], write: _Write) -> None:
    """Revoke these keys of one tenant, even on a full disk."""
    gone = {key.id for key in ended}
    remaining = tuple(key for key in keys if key.id not in gone)
    changes = {key.id: (_state(key), None) for key in ended}
    with log_act(local_folder(data), Act("key revoke", ended[0].tenant, changes, gives=False)):
        for attempt in spending_reserve(data):
            with attempt:
                write(remaining)


_Write: TypeAlias = "Callable[[tuple[ApiKey, ...]], None]"


@contextmanager
def changing_keys(data: Home) -> Iterator[tuple[tuple[ApiKey, ...], _Write]]:
    """The stored keys, and what replaces them, under their lock."""
    with locked(data, "keys", seconds=LOCK_SECONDS) as lease:
        if lease:
            content, tag = lease.bucket.read_now(KEYS)
            stored = parsed_keys(content, f"{data}/{KEYS}")
            yield stored.keys, lambda keys: lease.replace(KEYS, tag, _keys_content(keys))
        else:
            file = keys_file(local_folder(data))
            yield read_keys(file).keys, lambda keys: write_whole(file, _keys_content(keys))


def _keys_content(keys: tuple[ApiKey, ...]) -> bytes:
    return Keys(keys=keys).model_dump_json(indent=1, exclude_none=True).encode()


def _find(keys: Iterable[ApiKey], id_: str) -> ApiKey:
    for key in keys:
        if key.id == id_:
            return key
    raise NotFoundError(f"There is no key {id_!r}. List them with refdesk-admin key list.")


def _show(key: ApiKey, secret: str) -> None:
    token = token_of(key, secret)
    problem = f"The key {key.id} was created but could not be shown"
    with if_system_refuses(StoreError, problem, f"Revoke it with refdesk-admin key revoke {key.id}."):
        print_result(_json(key) | {"key": token}, token)
    if not wants_json():
        echo(f"Key {key.id}, valid until {_until(key)}. It will not be shown again.", err=True)


def _tell_hosts(http: HttpSettings) -> None:
    url = resource_url(http)
    if "keys" not in http.authentication:
        echo('The server takes no keys: set http.authentication = ["keys"].', err=True)
    echo(f"Where the assistant runs: refdesk-admin connect HOST --remote {url}", err=True)
    echo(f"Or give its host the address {url} and the header Authorization: Bearer, with the key.", err=True)
    if not http.public_url:
        echo("That address is for this machine only. For others, set http.public_url.", err=True)


def _until(key: ApiKey) -> str:
    return key.expires_at.isoformat(timespec="minutes") + (" (expired)" if _is_expired(key) else "")


def _is_expired(key: ApiKey) -> bool:
    return key.expires_at <= datetime.now(UTC)


def _state(key: ApiKey) -> dict[str, Any]:
    return key.model_dump(mode="json", include=LOGGED, exclude_none=True)


def _json(key: ApiKey) -> dict[str, Any]:
    fields = key.model_dump(mode="json", exclude={"digest"}, exclude_none=True)
    return fields | ({"expired": True} if _is_expired(key) else {})

"""`refdesk-admin key`: API keys for remote assistants."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from rag.access.keys import SEARCH_SCOPE, ApiKey, Keys, keys_file, keys_in, new_secret, read_keys, token_of
from rag.access.names import MAX_ENTRIES, bare_name
from rag.access.tenants import tenant_of
from rag.admin.acts import Act, recorded
from rag.admin.console import Group, command, echo, print_json, print_table
from rag.admin.key_binding import binding_options, bound_to, in_words
from rag.admin.sharing import exposures, reached_by
from rag.config.server_settings import resource_url
from rag.errors import NotFoundError, StoreError
from rag.store.write.desk_folder import prepare, spending_reserve, write_whole
from rag.store.write.locks import locked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.access.bindings import CredentialBoundTo
    from rag.config.server_settings import HttpSettings
    from rag.config.settings import Settings

LOCK_SECONDS = 15
LOGGED = {"user", "groups", "scopes", "expires_at", "bound_to"}
DAYS = click.IntRange(1, 3650)


@click.group("key", cls=Group)
def key_command() -> None:
    """Create and revoke API keys for remote assistants.

    A server started with refdesk --http accepts these keys.
    """


@command("create")
@click.option("--user", default="", metavar="NAME", help="User that the key belongs to.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of the user. Repeatable.")
@click.option("--days", type=DAYS, default=365, help="Days until it expires. Default: 365.")
@binding_options
async def create_command(
    settings: Settings,
    *,
    user: str,
    groups: tuple[str, ...],
    days: int,
    as_json: bool,
    **binding: Any,  # noqa: ANN401 click's
) -> None:
    """Create a key. It is shown only once; only a digest is stored.

    A key may be bound: to collections, to sources whose fields match a filter, to a profile, to a highest
    limit, and to tools of the server. Each binding narrows what its user and groups may see.
    """
    if len(groups) > MAX_ENTRIES:
        raise click.UsageError(f"Give at most {MAX_ENTRIES} groups.")
    bound = await bound_to(settings, tenant_of(settings), binding)
    key, secret = created(settings, user=user, groups=groups, days=days, bound=bound)
    _show(key, secret, as_json=as_json)
    exposed = await exposures(settings, key.tenant, intended=True)
    for exposure in reached_by(exposed, bound.collections if bound else None):
        echo(f"Note: {exposure}", err=True)
    if not as_json:
        _tell_hosts(settings.http)


def created(
    settings: Settings, *, user: str, groups: Sequence[str], days: int, bound: CredentialBoundTo | None = None
) -> tuple[ApiKey, str]:
    """A new key of the tenant, and its secret, which is kept nowhere.

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
    prepare(settings.data)
    with _locked(settings.data):
        keys = _keys(settings.data)
        with recorded(settings.data, Act("key create", key.tenant, {key.id: (None, _state(key))})):
            _write(settings.data, (*keys, key))
    return key, secret


@command("list", of_tenant=False, on_bucket=True)
async def list_command(settings: Settings, *, as_json: bool) -> None:
    """List the keys, without their secrets."""
    keys = keys_in(settings.home).keys
    if as_json:
        print_json({"keys": [_json(key) for key in keys]})
    elif keys:
        rows = [
            (
                key.id,
                key.tenant,
                key.user or "-",
                ", ".join(key.groups) or "-",
                _until(key),
                in_words(key.bound_to),
            )
            for key in keys
        ]
        print_table([("ID", "TENANT", "USER", "GROUPS", "VALID UNTIL", "BOUND TO"), *rows])
    else:
        echo("There are no keys yet. Create one with refdesk-admin key create.")


@command("revoke", of_tenant=False)
@click.argument("id_", metavar="ID")
async def revoke_command(settings: Settings, *, id_: str, as_json: bool) -> None:
    """Revoke a key. Running servers reject it from the next request on."""
    revoke_key(settings.data, id_)
    if as_json:
        print_json({"revoked": id_})
    else:
        echo(f"Revoked the key {id_}.")


@command("rotate", of_tenant=False)
@click.argument("id_", metavar="ID")
@click.option(
    "--keep-days", type=click.IntRange(0, 90), default=1, help="Days until the old key expires. Default: 1."
)
async def rotate_command(settings: Settings, *, id_: str, keep_days: int, as_json: bool) -> None:
    """Replace a key by a new one for the same holder.

    The new key has the old key's original lifetime. The old key expires after --keep-days.
    """
    now = datetime.now(UTC)
    secret, digest = new_secret()
    _find(settings.data, id_)
    prepare(settings.data)
    with _locked(settings.data):
        old = _find(settings.data, id_)
        lasts = {"created_at": now, "expires_at": now + (old.expires_at - old.created_at)}
        new = old.model_copy(update={"id": secrets.token_hex(4), "digest": digest, **lasts})
        ends = min(old.expires_at, now + timedelta(days=keep_days))
        others = [key for key in _keys(settings.data) if key.id != id_]
        kept = [old.model_copy(update={"expires_at": ends})] if keep_days else []
        ending = _state(old), _state(kept[0]) if kept else None
        with recorded(
            settings.data, Act("key rotate", old.tenant, {old.id: ending, new.id: (None, _state(new))})
        ):
            _write(settings.data, (*others, *kept, new))
    _show(new, secret, as_json=as_json)


def revoke_key(data: Path, id_: str) -> None:
    """Revoke a key.

    Raises:
        NotFoundError: there is none of this id.
    """
    _find(data, id_)
    with _locked(data):
        _revoke(data, [_find(data, id_)])


def revoke_keys(data: Path, tenant: str) -> None:
    """Revoke all keys of a tenant: they would open a later tenant of the same name."""
    with _locked(data):
        if theirs := [key for key in _keys(data) if key.tenant == tenant]:
            _revoke(data, theirs)


def _revoke(data: Path, ended: Sequence[ApiKey]) -> None:
    """Revoke these keys of one tenant, even on a full disk. Call it under the lock."""
    gone = {key.id for key in ended}
    kept = tuple(key for key in _keys(data) if key.id not in gone)
    changes = {key.id: (_state(key), None) for key in ended}
    with recorded(data, Act("key revoke", ended[0].tenant, changes, gives=False)):
        for attempt in spending_reserve(data):
            with attempt:
                _write(data, kept)


def _locked(data: Path) -> Any:  # noqa: ANN401 a context manager
    return locked(data, "keys", seconds=LOCK_SECONDS)


def _keys(data: Path) -> tuple[ApiKey, ...]:
    return read_keys(keys_file(data)).keys


def _write(data: Path, keys: tuple[ApiKey, ...]) -> None:
    write_whole(keys_file(data), Keys(keys=keys).model_dump_json(indent=1, exclude_none=True).encode())


def _find(data: Path, id_: str) -> ApiKey:
    for key in _keys(data):
        if key.id == id_:
            return key
    raise NotFoundError(f"There is no key {id_!r}. List them with refdesk-admin key list.")


def _show(key: ApiKey, secret: str, *, as_json: bool) -> None:
    try:
        if as_json:
            print_json(_json(key) | {"key": token_of(key, secret)})
            return
        echo(token_of(key, secret))
    except OSError as error:
        raise StoreError(
            f"The key {key.id} was created but could not be shown: {error.strerror}. Revoke it with "
            f"refdesk-admin key revoke {key.id}."
        ) from error
    echo(f"Key {key.id}, valid until {_until(key)}. It will not be shown again.", err=True)


def _tell_hosts(http: HttpSettings) -> None:
    """Print what a host needs to use a key, on standard error."""
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
    """The logged state of a key."""
    return key.model_dump(mode="json", include=LOGGED, exclude_none=True)


def _json(key: ApiKey) -> dict[str, Any]:
    shown = key.model_dump(mode="json", exclude={"digest"}, exclude_none=True)
    return shown | ({"expired": True} if _is_expired(key) else {})


for one in (create_command, list_command, revoke_command, rotate_command):
    key_command.add_command(one)

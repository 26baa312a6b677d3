"""What `refdesk-admin config check` says of bindings: those of tools, of OAuth scopes and of API keys.

A binding that fits nothing shows nothing, without an error for anybody. So it must be told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rag.access.bindings import walls
from rag.access.keys import keys_in
from rag.access.tenants import tenants
from rag.config.profiles import DEFAULT_PROFILE
from rag.errors import RefdeskError
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.access.bound_to import BoundTo
    from rag.access.keys import ApiKey
    from rag.config.settings import Settings
    from rag.corpus import Collection

Held: TypeAlias = "Mapping[str, Sequence[Collection]]"
"""The collections of each tenant."""


async def binding_problems(settings: Settings) -> list[tuple[str, str]]:
    """The bindings that leave nothing, or name what isn't there: which binding, and what is wrong with it."""
    reader = Reader(settings.home, timeout_seconds=settings.search.timeout_seconds)
    try:
        keys = keys_in(settings.home).keys
        held = {tenant: await reader.collections(tenant) for tenant in tenants(settings.home)}
    except RefdeskError as error:
        return [("keys", str(error))]
    of_settings: list[tuple[str, BoundTo]] = [(f"tool {tool.name}", tool) for tool in settings.server.tools]
    of_settings += [(f"scope {name}", scope) for name, scope in settings.oauth.scopes.items()]
    found = [(part, problem) for part, bound in of_settings if (problem := _of_collections(bound, held))]
    of_keys = [(key, _of_key(key, settings, {key.tenant: held.get(key.tenant, ())})) for key in keys]
    return found + [(f"key {key.id}", problem) for key, problem in of_keys if problem]


def _of_collections(bound: BoundTo, held: Held) -> str | None:
    """What is wrong with a binding's collections and filter; nothing while there are no collections."""
    every = [collection for collections in held.values() for collection in collections]
    named = [one for one in every if bound.collections is None or one.name in bound.collections]
    names = {one.name for one in named}
    if every and (missing := [name for name in bound.collections or () if name not in names]):
        return f"There is no collection {', '.join(missing)}."
    if named and all(walls([bound.binding], one) is None for one in named):
        return f"The filter suits the declared fields of no collection ({', '.join(sorted(names))})."
    return None


def _of_key(key: ApiKey, settings: Settings, held: Held) -> str | None:
    """What a key names that isn't there, or no longer."""
    bound = key.bound_to
    if bound is None:
        return None
    if bound.profile is not None and bound.profile not in {DEFAULT_PROFILE, *settings.search.profiles}:
        return f"There is no profile {bound.profile!r}, so it can't search."
    known = {tool.name for tool in settings.server.tools}
    if missing := [name for name in bound.tools or () if name not in known]:
        return f"There is no search tool {', '.join(missing)}."
    return _of_collections(bound, held)

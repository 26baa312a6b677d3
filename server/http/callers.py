"""Who calls: the client's address, also behind trusted proxies, and the principal of its credentials.

The audit names both, and limits count by both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

from rag.corpus import Principal
from rag.errors import AccessError

if TYPE_CHECKING:
    from starlette.types import Scope

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
NETWORK_BITS = 64  # of an IPv6 address; a client can choose the rest itself
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """Where a request comes from. Behind a `shared` address there may be many unrelated clients.

    Limits count by `block`, the addresses that one client controls: an IPv4 address, or an IPv6 /64 network.
    """

    address: str
    block: str
    shared: bool


class AddressResolver:
    """Finds a client's address. X-Forwarded-For is believed only from the trusted proxies.

    Shared are: a trusted proxy that does not name its client, and this machine's own addresses, since a proxy
    that the settings don't mention may run here.
    """

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]

    def of_connection(self, peer: str, server_host: str) -> ClientAddress:
        """The address at the other end of a connection to `server_host`, one of our addresses."""
        address = _parse(peer)
        return _client_address(
            address, shared=peer == server_host or address is None or self._trusts(address)
        )

    def of_request(self, scope: Scope) -> ClientAddress:
        """The peer, or if that is a trusted proxy, the last address in X-Forwarded-For that is not one.

        Only the last: everything before it was written by the client and can be forged.
        """
        peer, server_host = (scope.get("client") or [""])[0], (scope.get("server") or [""])[0]
        address = _parse(peer)
        if address is None or not self._trusts(address):
            return self.of_connection(peer, server_host)
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for entry in reversed(",".join(values).split(",")):
            forwarded = _parse(entry)
            if forwarded is None:
                break
            if not self._trusts(forwarded):
                return _client_address(forwarded, shared=False)
        return _client_address(address, shared=True)

    def _trusts(self, address: IPAddress) -> bool:
        return any(address in network for network in self._proxies)


def _client_address(address: IPAddress | None, *, shared: bool) -> ClientAddress:
    if address is None:
        return ClientAddress(UNKNOWN, UNKNOWN, shared)
    host_bits = 128 - NETWORK_BITS if address.version == 6 else 0  # noqa: PLR2004 the version's name
    block = type(address)(int(address) >> host_bits << host_bits)
    return ClientAddress(str(address), str(block), shared)


def _parse(text: str) -> IPAddress | None:
    """The address in "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80"; otherwise None."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


MAX_NAME_CHARS = 200  # of a name that an issuer made up
NOBODY = Principal("-")
"""Who is not authenticated, or whose token says too little. No tenant can have this name."""


class Caller(AccessToken):
    """The SDK's access token, with the principal it stands for. It never holds the token itself.

    `refusal` says what is wrong with a token that identifies nobody.
    """

    principal: Principal
    kind: Literal["local", "key", "token"]
    refusal: str = ""

    @property
    def audit_fields(self) -> dict[str, object]:
        """The caller in the audit: a key by its id, a token by its subject and the OAuth client."""
        fields: dict[str, object] = {
            "tenant": None if self.principal == NOBODY else self.principal.tenant,
            "user": self.principal.user,
            "groups": sorted(self.principal.groups),
        }
        match self.kind:
            case "key":
                return fields | {"key": self.client_id}
            case "token":
                issued_to = None if self.client_id == self.subject else self.client_id[:MAX_NAME_CHARS]
                return fields | {"oauth_client": issued_to, "subject": (self.subject or "")[:MAX_NAME_CHARS]}
            case _:
                return fields


def bearer_principal(_context: object) -> Principal:
    """Who sent this very request, whatever connection or stream it belongs to.

    Raises:
        AccessError: the request is not authenticated.
    """
    caller = get_access_token()
    if not isinstance(caller, Caller):
        raise AccessError("This request carries no credentials.")
    return caller.principal


def scope_principal(scope: Scope) -> Principal:
    """Who sent a request, for its limits; `NOBODY` if it is not authenticated."""
    token = getattr(scope.get("user"), "access_token", None)
    return token.principal if isinstance(token, Caller) else NOBODY

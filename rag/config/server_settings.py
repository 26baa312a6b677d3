"""The settings of `refdesk`: its name, texts, tools and bindings, where it listens, and who may connect.

`check_exposure` rejects settings of the HTTP server that would let anybody in.
"""

from __future__ import annotations

from dataclasses import fields
from ipaddress import ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from rag.access.rule import MAX_ENTRIES, MAX_TOOLS, BoundTo, CredentialBoundTo, Name, bare_name
from rag.answers import MAX_REPLY_CHARS, MIN_REPLY_CHARS, SearchRequest
from rag.config.profiles import Network, Seconds, Section, matching
from rag.corpus import Principal
from rag.errors import ConfigurationError, as_value_error
from rag.uris import web_address

SEARCH, FETCH = "search", "fetch"  # as ChatGPT calls them; `fetch` opens what the tool `search` finds
PAGE_PICTURE = "page_picture"  # the tool of the page of passages
MAX_NAME_CHARS, MAX_TITLE_CHARS = 64, 100  # every reply names the server
MAX_INSTRUCTIONS_CHARS = 1_000  # hosts cut at 2,048 without a word, and refdesk adds its own
MAX_DESCRIPTION_CHARS = 2_000  # the same
_OF_PROGRAMS, _OF_REPLIES = {"query", "vector", "must_contain", "joined"}, {"explain", "max_chars", "vectors"}
ARGUMENTS = {field.name for field in fields(SearchRequest)} - _OF_PROGRAMS | _OF_REPLIES
"""The arguments that a search tool can do without."""

ToolName = Annotated[
    str, matching(r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, _ and -, which every host accepts")
]
Title = Annotated[str, Field(max_length=MAX_TITLE_CHARS)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]
WebAddress = Annotated[
    str,
    Field(max_length=300),  # every reply repeats it
    matching(r"(https?://[^\s/]\S*)?", "a URL that begins with https:// or http://"),
]


class OpenerSettings(Section):
    """The tool that opens what a search tool finds. Empty texts stand for the built-in ones."""

    name: ToolName = "get_source"
    title: Title = ""
    description: Description = ""


def _none_if_false(value: object) -> object:
    return None if value is False else value


class ToolSettings(BoundTo):
    """A search tool, its opener, and what both are bound to. Empty texts stand for the built-in ones.

    `opener = false`, here None, is none. None for `arguments` takes all that the other settings allow.
    Without `sources`, a reply is the passages as one text, each under its citation.
    """

    name: ToolName = SEARCH
    title: Title = ""
    description: Description = ""
    opener: Annotated[OpenerSettings | None, BeforeValidator(_none_if_false)] = OpenerSettings()
    sources: bool = True
    arguments: tuple[str, ...] | None = None

    @field_validator("arguments")
    @classmethod
    def _check_known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in ARGUMENTS:
                raise ValueError(
                    f"there is no argument {name!r}; use some of: {', '.join(sorted(ARGUMENTS))}"
                )
        return names


class ServerSettings(Section):
    """What `refdesk` offers to its clients. Empty `instructions` stand for the built-in first sentence."""

    name: Annotated[
        str, matching(r"\S.{0,62}\S|\S", f"up to {MAX_NAME_CHARS} characters, without spaces around them")
    ] = "refdesk"
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] = "Reference desk"
    instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS_CHARS)] = ""
    website: WebAddress = ""
    icon: WebAddress = ""
    max_chars: Annotated[int, Field(ge=MIN_REPLY_CHARS, le=MAX_REPLY_CHARS)] = 16_000
    include_vectors: bool = False
    full_results: bool = False
    profiles: tuple[Name, ...] = ()
    explain: bool = False
    field_values: bool = True
    openai_compat: bool = False
    apps: bool = False
    pictures: Literal["auto", "always", "never"] = "auto"
    traces: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    tools: Annotated[tuple[ToolSettings, ...], Field(min_length=1, max_length=MAX_TOOLS)] = (ToolSettings(),)


def _valid_address(address: str) -> str:
    if address and web_address(address) is None:
        raise ValueError(f"{address} has no valid host and port; write a URL like https://desk.example.com")
    return address


def _not_everybody(address: str) -> str:
    if not ip_network(address).prefixlen:
        raise ValueError(
            f"{address} is every address, so each client could name another as its own; list only the "
            "addresses of your proxies"
        )
    return address


@as_value_error()
def _user(name: str) -> str:
    return bare_name("user", name) if name else name


@as_value_error()
def _group(name: str) -> str:
    return bare_name("group", name)


HostName = Annotated[
    str,
    matching(
        r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?",
        "a host as clients name it, with its port, like desk.example.com:8300: no scheme, path or wildcard",
    ),
]
Origin = Annotated[
    str,
    matching(
        r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+",
        "an origin as browsers send it, like https://app.example.com: no capitals, path or wildcard, and a "
        "port only if it isn't the scheme's own",
    ),
]
"""The origin of a page. What browsers write otherwise would never match, and "null" is any page's."""
UserName = Annotated[str, AfterValidator(_user)]
"""A user's bare name; empty for nobody."""
GroupName = Annotated[str, AfterValidator(_group)]


class PrincipalSettings(Section):
    """On whose behalf a local server searches: the tenant, the user and their groups."""

    tenant: Name | None = None
    user: UserName = ""
    groups: Annotated[tuple[GroupName, ...], Field(max_length=MAX_ENTRIES)] = ()

    def of_tenant(self, tenant: str) -> Principal:
        """The user and the groups as a principal of a tenant."""
        return Principal(tenant, self.user or None, frozenset(self.groups))


OWN_PATHS = frozenset({"healthz", "readyz", "sse", "messages", "passages"})
"""What addresses of the server's own begin with."""


def _free_path(path: str) -> str:
    if path.split("/")[1] in OWN_PATHS:
        raise ValueError(f"{path} is an address of the server's own; choose another one")
    return path


class HttpSettings(Section):
    """Where `refdesk --http` listens, and how its clients authenticate."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8300
    path: Annotated[
        str,
        matching(r"/[a-z0-9/_-]*[a-z0-9_-]", "a path like /mcp: lower-case letters, digits, /, - and _"),
        AfterValidator(_free_path),
    ] = "/mcp"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 8301
    public_url: Annotated[
        str,
        matching(r"(https?://[^/\s]+)?", "a URL without a path, like https://desk.example.com"),
        AfterValidator(_valid_address),
    ] = ""
    allowed_hosts: tuple[HostName, ...] = ()
    allowed_origins: tuple[Origin, ...] = ()
    trusted_proxies: tuple[Annotated[Network, AfterValidator(_not_everybody)], ...] = ()
    authentication: tuple[Literal["keys", "oauth"], ...] = ("keys",)
    sse: bool = False

    @model_validator(mode="after")
    def _two_ports(self) -> HttpSettings:
        if self.port == self.metrics_port:
            raise ValueError(f"port and metrics_port are both {self.port}; give them two ports")
        return self


class ClientSettings(Section):
    """Who an OAuth client is that signs in by itself, without a user."""

    tenant: Name
    user: Annotated[UserName, Field(min_length=1)]
    groups: Annotated[tuple[GroupName, ...], Field(max_length=MAX_ENTRIES)] = ()


ScopeName = Annotated[
    str, matching(r"[!#-\[\]-~]+", "a scope as tokens have it: ASCII without spaces, quotes and backslashes")
]


class OAuthSettings(Section):
    """Which issuer's tokens are accepted, and how their claims map to tenants, users and groups."""

    issuer: str = ""
    jwks_url: Annotated[str, matching(r"(https?://\S+)?", "a URL that begins with https:// or http://")] = ""
    audience: str = ""
    tenant_claim: str = "tenant"
    tenants: dict[str, Name] = Field(default={})
    user_claim: str = "sub"
    groups_claim: str = "groups"
    groups_required: Literal["auto", "always", "never"] = "auto"
    scope_prefix: Annotated[str, matching(r'[^\s"\\]*', "a text without spaces, quotes and backslashes")] = ""
    clients: dict[str, ClientSettings] = Field(default={})
    scopes: dict[ScopeName, CredentialBoundTo] = Field(default={})
    page_client: str = ""


class LimitSettings(Section):
    """Concurrency limits, rate limits and timeouts of a server."""

    concurrent: Annotated[int, Field(ge=1, le=1024)] = 32
    concurrent_per_tenant: Annotated[int, Field(ge=0, le=1024)] = 0
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 1200
    connections_per_address: Annotated[int, Field(ge=1, le=1000)] = 100
    failures_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    request_seconds: Seconds = 30.0
    receive_seconds: Seconds = 15.0


def base_url(settings: HttpSettings) -> str:
    """The URL at which clients reach the server: the public one, or its own."""
    return settings.public_url or own_url(settings)


def own_url(settings: HttpSettings) -> str:
    """The URL at which the server listens."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def resource_url(settings: HttpSettings) -> str:
    """The OAuth resource that tokens must be issued for."""
    return base_url(settings) + settings.path


def sse_url(settings: HttpSettings) -> str:
    """The resource of clients of HTTP+SSE, which sign in only for the address that they connect to; or ""."""
    return base_url(settings) + SSE_PATH if settings.sse else ""


SSE_PATH = "/sse"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_exposure(settings: HttpSettings, oauth: OAuthSettings) -> None:
    """Raise ConfigurationError if the settings would let anybody in. The message says what to set."""
    if settings.host not in LOOPBACK and not settings.authentication:
        raise ConfigurationError(
            f"http.host = {settings.host!r} is reachable from other machines, but http.authentication is "
            'empty: anybody could search. Set authentication = ["keys"], or host = "127.0.0.1".'
        )
    remote = [name for name in ("public_url", "allowed_hosts", "trusted_proxies") if getattr(settings, name)]
    if remote and not settings.authentication:
        raise ConfigurationError(
            f"http.{remote[0]} is for remote clients, but http.authentication is empty: anybody could "
            f'search. Set authentication = ["keys"], or remove {" and ".join(remote)}.'
        )
    if "oauth" not in settings.authentication:
        if oauth.page_client:
            raise ConfigurationError(
                'oauth.page_client has no effect without "oauth" in http.authentication. Add it, or remove '
                "page_client."
            )
        return
    if not settings.public_url.startswith("https://"):
        raise ConfigurationError(
            "OAuth needs http.public_url, the https:// address at which clients reach this server: tokens "
            "are issued for it."
        )
    if not (oauth.issuer and oauth.jwks_url and (oauth.tenants or oauth.clients)):
        raise ConfigurationError(
            "OAuth needs oauth.issuer, oauth.jwks_url (the URL of its signing keys) and oauth.tenants (the "
            "tenant for each value of the tenant claim) or oauth.clients (clients without a user)."
        )
    for name, address in (("issuer", oauth.issuer), ("jwks_url", oauth.jwks_url)):
        if not is_tamper_proof(address):
            raise ConfigurationError(
                f"oauth.{name} = {address!r} must be an https:// URL: otherwise anybody on the network path "
                "could sign tokens. Only an issuer on this machine may use http://127.0.0.1."
            )


def is_tamper_proof(address: str) -> bool:
    """Whether a response from this URL can't be tampered with: HTTPS or loopback."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    return bool(parts.hostname) and (local or parts.scheme == "https")


def fetches(server: ServerSettings, tool: ToolSettings) -> bool:
    """Whether the hits of a search tool can also be opened by `fetch`."""
    return server.openai_compat and tool.name == SEARCH


def search_names(server: ServerSettings) -> frozenset[str]:
    """The names of all search tools."""
    return frozenset(tool.name for tool in server.tools)


def opener_names(server: ServerSettings) -> frozenset[str]:
    """The names of all tools that open a document."""
    names = frozenset(tool.opener.name for tool in server.tools if tool.opener)
    names |= {FETCH} if server.openai_compat else set()
    return names | {PAGE_PICTURE} if server.apps else names

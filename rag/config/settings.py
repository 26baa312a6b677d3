"""What an operator can set, as frozen models; `config.example.toml` mirrors this module.

The doors read it (`rag.config.load`); everything else is handed the part it needs.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import platformdirs
from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from rag.answers import MAX_REPLY_CHARS, MIN_REPLY_CHARS, Mode
from rag.config.profiles import (
    DEFAULT_PROFILE,
    SHIPPED,
    ContextTokens,
    FusionSettings,
    Limit,
    Overridable,
    ProfileSettings,
    Section,
    Stages,
    ThresholdSettings,
)
from rag.corpus import LetterCase, Visibility
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_DATA = Path(platformdirs.user_data_dir("refdesk", appauthor=False))
NAME_PATTERN = r"^[a-z0-9]+(?:[-_][a-z0-9]+)*$"
"""Tenants and collections. Their names are joined by `__` into table names, so none holds one."""
NAME_LENGTH = 48
MAX_ENTRIES = 256  # of an access list, and groups of a principal; more is an error, never cut
MAX_ENTRY_CHARS = 256
ENTRY_KINDS = ("user", "group")
RulesCase = Literal["ignore", "exact", "file system"]
DEFAULT_TENANT = "default"
DEFAULT_COLLECTION = "documents"
SEARCH_SCOPE = "refdesk:search"
"""What a key or token must be for."""


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{path} begins with a user that this machine doesn't know") from error


def _exact(address: str) -> str:
    if "*" in address:
        raise ValueError(f"{address} matches more than one address: name each in full, with its port")
    return address


Exact = Annotated[str, AfterValidator(_exact)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_LENGTH)]


def _bare(kind: Literal["user", "group"], name: str) -> str:
    try:
        return bare_name(kind, name)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from error


UserName = Annotated[str, AfterValidator(lambda name: _bare("user", name) if name else name)]
"""A user's bare name; empty for nobody."""
GroupName = Annotated[str, AfterValidator(lambda name: _bare("group", name))]


def _network(written: str) -> str:
    try:
        ip_network(written)
    except ValueError as error:
        raise ValueError(f"{error}; write an address (192.0.2.1) or a network (192.0.2.0/24)") from error
    return written


Network = Annotated[str, AfterValidator(_network)]


class PrincipalSettings(Section):
    """Whose documents a local server answers from, and who asks."""

    tenant: Name | None = None
    user: UserName = ""
    groups: Annotated[tuple[GroupName, ...], Field(max_length=MAX_ENTRIES)] = ()


class AccessRule(Section):
    """Who may see the sources whose path below the ingested folder matches a pattern."""

    path: str
    visibility: Visibility = "restricted"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _valid(self) -> AccessRule:
        try:
            check_access(self.visibility, self.allow, self.deny)
        except ConfigurationError as error:
            raise ValueError(str(error).rstrip(".")) from error
        return self


class AccessSettings(Section):
    """Who may see a source that is ingested for the first time, and how names are compared."""

    of_documents: bool = False
    letter_case: LetterCase = "allow"
    rules_case: RulesCase = "ignore"
    rules: tuple[AccessRule, ...] = ()


class EmbedderSettings(Section):
    """Which model turns text into vectors."""

    provider: Literal["builtin", "onnx", "openai"] = "builtin"
    path: AbsolutePath | None = None
    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    dimensions: Annotated[int, Field(ge=1, le=8192)] | None = None
    max_tokens: Annotated[int, Field(ge=64, le=8192)] = 512
    query_prefix: str = ""
    document_prefix: str = ""
    batch_size: Annotated[int, Field(ge=1, le=2048)] = 64
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0

    @model_validator(mode="after")
    def _complete(self) -> EmbedderSettings:
        if self.provider == "onnx" and self.path is None:
            raise ValueError('provider = "onnx" needs path, the folder with model.onnx and tokenizer.json')
        if self.provider == "openai" and not self.model:
            raise ValueError('provider = "openai" needs model, the name that the endpoint knows it by')
        return self


class ChatSettings(Section):
    """Which chat model the stages that need one ask, and what a million of its tokens cost."""

    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str = "OPENAI_API_KEY"
    input_price: Annotated[float, Field(ge=0)] = 0.0
    output_price: Annotated[float, Field(ge=0)] = 0.0


class RerankerSettings(Section):
    """Which model the stage rerank asks."""

    provider: Literal["none", "cohere", "voyage", "tei", "onnx"] = "none"
    base_url: str = ""
    model: str = ""
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40})?$")] = ""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    api_key_env: str = "RERANKER_API_KEY"
    path: AbsolutePath | None = None
    max_tokens: Annotated[int, Field(ge=64, le=8192)] = 512

    @model_validator(mode="after")
    def _complete(self) -> RerankerSettings:
        if self.provider in {"cohere", "voyage", "tei"} and not self.base_url:
            raise ValueError(f'provider = "{self.provider}" needs base_url, below which /rerank lies')
        if self.provider in {"cohere", "voyage"} and not self.model:
            raise ValueError(f'provider = "{self.provider}" needs model, as the endpoint names it')
        if self.provider == "onnx" and (self.path is None) == (not self.model):
            raise ValueError('provider = "onnx" needs either path, a folder, or model, an id on the hub')
        if self.provider == "onnx" and self.model and not (self.revision and self.sha256):
            raise ValueError(
                "a model of the hub needs revision, a commit of it, and sha256, the checksum of its graph: "
                "else it could be exchanged. For the first: git ls-remote https://huggingface.co/"
                f"{self.model} HEAD. For the second, see SHA256 on the hub's page of the file "
                "(model.onnx or onnx/model.onnx)"
            )
        return self


class ChunkingSettings(Section):
    """How sources are cut into chunks."""

    max_tokens: Annotated[int, Field(ge=32, le=8192)] = 254


class IngestSettings(Section):
    """Which files of a folder become sources."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = (".git", ".hg", ".svn", "CVS", "node_modules", "__pycache__")
    hidden: bool = False
    max_removed: Annotated[int, Field(ge=0)] = 10
    max_removed_share: Annotated[float, Field(ge=0, le=1)] = 0.33
    max_file_bytes: Annotated[int, Field(ge=1)] = 20_000_000
    parse_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0


class SearchSettings(Section):
    """How a search runs when it doesn't say otherwise."""

    collections: tuple[Name, ...] = ()
    mode: Mode = "hybrid"
    limit: Limit = 8
    candidates: Annotated[int, Field(ge=10, le=1000)] = 50
    statistics: Literal["collection", "strict"] = "collection"
    relax: bool = False
    context_tokens: ContextTokens = 2000
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 15.0
    overrides: tuple[Overridable, ...] = ("mode", "limit")
    fusion: FusionSettings = FusionSettings()
    thresholds: ThresholdSettings = ThresholdSettings()
    stages: Stages = ()
    profiles: dict[Name, ProfileSettings] = SHIPPED
    of_collections: dict[Name, Name] = Field(default={})
    of_tenants: dict[Name, ProfileSettings] = Field(default={})

    @field_validator("profiles")
    @classmethod
    def _with_shipped(cls, profiles: dict[str, ProfileSettings]) -> dict[str, ProfileSettings]:
        if DEFAULT_PROFILE in profiles:
            raise ValueError(f"{DEFAULT_PROFILE} is what [search] itself says; give the profile another name")
        return SHIPPED | profiles


class ServerSettings(Section):
    """How `refdesk` answers its hosts."""

    max_chars: Annotated[int, Field(ge=MIN_REPLY_CHARS, le=MAX_REPLY_CHARS)] = 8000
    include_vectors: bool = False
    profiles: tuple[Name, ...] = ()
    explain: bool = False
    openai_compat: bool = False
    traces: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"


class HttpSettings(Section):
    """How `refdesk --http` is reached."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8300
    path: Annotated[str, Field(pattern=r"^/[a-z0-9/_-]*[a-z0-9_-]$")] = "/mcp"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 8301
    public_url: Annotated[str, Field(pattern=r"^(https?://[^/\s]+)?$")] = ""
    allowed_hosts: tuple[Exact, ...] = ()
    allowed_origins: tuple[Exact, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    authentication: tuple[Literal["keys", "oauth"], ...] = ("keys",)
    sse: bool = False


class OAuthSettings(Section):
    """Whose tokens are accepted, and what their claims mean."""

    issuer: str = ""
    jwks_url: Annotated[str, Field(pattern=r"^(https?://\S+)?$")] = ""
    audience: str = ""
    tenant_claim: str = "tenant"
    tenants: dict[str, Name] = Field(default={})
    user_claim: str = "sub"
    groups_claim: str = "groups"
    groups_required: Literal["auto", "always", "never"] = "auto"


class LimitSettings(Section):
    """How much a server takes on at once."""

    concurrent: Annotated[int, Field(ge=1, le=1024)] = 32
    concurrent_per_tenant: Annotated[int, Field(ge=0, le=1024)] = 0
    concurrent_per_user: Annotated[int, Field(ge=0, le=1024)] = 0
    queue_seconds: Annotated[float, Field(ge=0, le=10)] = 1.0
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 1200
    requests_per_minute_per_user: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    connections_per_address: Annotated[int, Field(ge=1, le=1000)] = 100
    failures_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    request_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    receive_seconds: Annotated[float, Field(gt=0, le=600)] = 15.0


class Settings(Section):
    """Everything that an operator can set."""

    data: AbsolutePath = DEFAULT_DATA
    principal: PrincipalSettings = PrincipalSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    chat: ChatSettings = ChatSettings()
    reranker: RerankerSettings = RerankerSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    ingest: IngestSettings = IngestSettings()
    access: AccessSettings = AccessSettings()
    search: SearchSettings = SearchSettings()
    server: ServerSettings = ServerSettings()
    http: HttpSettings = HttpSettings()
    oauth: OAuthSettings = OAuthSettings()
    limits: LimitSettings = LimitSettings()


def valid_entries(entries: Iterable[str]) -> frozenset[str]:
    """The entries of a list, if they can be one, in Unicode's normal form NFC.

    Raises:
        ConfigurationError: one is neither user:NAME nor group:NAME, or there are too many.
    """
    checked = frozenset(unicodedata.normalize("NFC", entry) for entry in entries)
    if len(checked) > MAX_ENTRIES:
        raise ConfigurationError(
            f"An access list holds {len(checked)} entries; at most {MAX_ENTRIES} are allowed. Use a group."
        )
    for entry in checked:
        kind, _, name = entry.partition(":")
        if (
            kind not in ENTRY_KINDS
            or not name.strip()
            or len(entry) > MAX_ENTRY_CHARS
            or not name.isprintable()
        ):
            raise ConfigurationError(
                f"{entry[:64]!r} can't stand in an access list; write user:NAME or group:NAME."
            )
    return checked


def bare_name(kind: Literal["user", "group"], name: str) -> str:
    """`name` as it is, if it can be that of a user or a group, which access lists name as kind:name.

    Raises:
        ConfigurationError: no access list can name it; or it is written as access lists write it, and would
            match nobody.
    """
    try:
        valid_entries([f"{kind}:{name}"])
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{name[:64]!r} can't be the name of a {kind}: use up to {MAX_ENTRY_CHARS - len(kind) - 1} "
            "printable characters."
        ) from error
    written, _, bare = (part.strip() for part in name.partition(":"))
    if written.casefold() == kind:
        raise ConfigurationError(f"A {kind}'s bare name is wanted: write {bare or 'NAME'}, not {name}.")
    if written.casefold() in ENTRY_KINDS and bare:
        raise ConfigurationError(f"The name of a {kind} is wanted, and {name} names a {written.casefold()}.")
    return name


def check_access(visibility: Visibility | None, allow: Iterable[str], deny: Iterable[str]) -> None:
    """Hold an access record to meaning what it says.

    Raises:
        ConfigurationError: everybody may see it and only some may, or an entry can't stand in a list.
    """
    if visibility == "tenant" and any(allow):
        raise ConfigurationError(
            "visibility tenant lets everybody see it; leave allow out, or say restricted."
        )
    valid_entries(allow)
    valid_entries(deny)


def valid_name(name: str) -> str:
    """`name` as it is, if it may name a collection or a tenant.

    Raises:
        ConfigurationError: it may not; the message says what a name looks like.
    """
    if len(name) <= NAME_LENGTH and re.fullmatch(NAME_PATTERN, name):
        return name
    raise ConfigurationError(
        f"{name!r} can't be a name: use up to {NAME_LENGTH} lower-case letters and digits, "
        "with single - or _ between them."
    )

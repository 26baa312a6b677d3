"""Everything that an operator can configure, as frozen models; `config.example.toml` mirrors this module.

The two entry points read the settings (`rag.config.load`) and hand every other module the section it needs.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from rag.access.bound_to import CredentialBoundTo, Name
from rag.access.names import DEFAULT_TENANT, MAX_ENTRIES, NAME_LENGTH, bare_name, check_access
from rag.answers import Detail, Mode
from rag.concurrency import memory
from rag.config.options import ChatOptions, EmbedderOptions, RerankerOptions, VariableName
from rag.config.origins import OriginSettings
from rag.config.profiles import (
    DEFAULT_PROFILE,
    SHIPPED,
    Candidates,
    ContextTokens,
    EngineSettings,
    FusionSettings,
    Limit,
    Overridable,
    ProfileSettings,
    Section,
    Stages,
    Texts,
    ThresholdSettings,
    matching,
)
from rag.config.published import ServerSettings
from rag.config.storage import StorageSettings
from rag.corpus import DEFAULT_EMBEDDER, Chunking, FieldType, LetterCase, Pooling, Strategy, Visibility
from rag.errors import ConfigurationError
from rag.web_addresses import is_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rag.home import Home

DEFAULT_DATA = Path(platformdirs.user_data_dir("refdesk", appauthor=False))
RulesCase = Literal["ignore", "exact", "file system"]
DEFAULT_COLLECTION = "documents"
MODELS = "models"  # the folder in the data folder
CACHE_SHARE = 1 / 8  # of the machine's memory, for the engine's cache of indexes
MEMORY_SHARE, MOST_IN_MEMORY = 1 / 16, 200_000_000  # of rows: of the machine's memory, and in bytes
OPENAI_HOST = "api.openai.com"


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{path} begins with the home folder of a user who doesn't exist") from error


def _without_wildcard(address: str) -> str:
    if "*" in address:
        raise ValueError(f"{address} has a wildcard; list every address in full, with its port")
    return address


def _network(address: str) -> str:
    try:
        ip_network(address)
    except ValueError as error:
        raise ValueError(
            f"{address!r} is not an IP address or network; write an address (192.0.2.1) or a network "
            "(192.0.2.0/24, with no bits set after the prefix)"
        ) from error
    return address


def _checked(check: Callable[[str], str]) -> AfterValidator:
    """A validator that applies an access rule; pydantic wants its error as a ValueError."""

    def validator(value: str) -> str:
        try:
            return check(value)
        except ConfigurationError as error:
            raise ValueError(str(error).rstrip(".")) from error

    return AfterValidator(validator)


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Address = Annotated[str, AfterValidator(_without_wildcard)]
Network = Annotated[str, AfterValidator(_network)]
UserName = Annotated[str, _checked(lambda name: bare_name("user", name) if name else name)]
"""A user's bare name; empty for nobody."""
GroupName = Annotated[str, _checked(lambda name: bare_name("group", name))]


def _url_template(written: str) -> str:
    if not is_template(written):
        raise ValueError("write an http or https URL with {path} or {stem} after the host")
    return written


UrlTemplate = Annotated[str, AfterValidator(_url_template)]


class PrincipalSettings(Section):
    """On whose behalf a local server searches: the tenant, the user and their groups."""

    tenant: Name | None = None
    user: UserName = ""
    groups: Annotated[tuple[GroupName, ...], Field(max_length=MAX_ENTRIES)] = ()


class AccessRule(Section):
    """Who may see the sources whose path, relative to the ingested folder, matches a glob pattern."""

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
    """Access of sources that are ingested for the first time, and how names are compared."""

    of_documents: bool = False
    letter_case: LetterCase = "allow"
    rules_case: RulesCase = "ignore"
    rules: tuple[AccessRule, ...] = ()


class EmbedderSettings(Section):
    """An embedding model. `baseline` is the cosine that it gives to unrelated texts; None: as measured.

    Prefixes that are None are those of the model's own files, if it has any. `Settings` sets `path` of an
    ONNX model that is named by `model` to its folder.
    """

    provider: Literal["builtin", "onnx", "openai"] = "builtin"
    path: AbsolutePath | None = None
    pooling: Pooling | None = None
    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: VariableName = "OPENAI_API_KEY"
    dimensions: Annotated[int, Field(ge=1, le=8192)] | None = None
    max_tokens: Annotated[int, Field(ge=64, le=8192)] = 512
    query_prefix: str | None = None
    document_prefix: str | None = None
    baseline: Annotated[float, Field(ge=0, le=0.95)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=2048)] = 256
    batch_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    price: Annotated[float, Field(ge=0)] = 0.0
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    options: EmbedderOptions = EmbedderOptions()

    @model_validator(mode="after")
    def _complete(self) -> EmbedderSettings:
        if self.provider == "onnx" and (self.path is None) == (not self.model):
            raise ValueError(
                'provider = "onnx" needs either model, the name of a model that refdesk-admin model has '
                "pulled or added, or path, a folder with model.onnx and tokenizer.json, not both"
            )
        if self.provider == "openai" and not self.model:
            raise ValueError('provider = "openai" needs model; set it to the name that the endpoint uses')
        if self.provider != "onnx" and self.pooling is not None:
            raise ValueError('pooling is for provider = "onnx"; remove it')
        if self.provider != "openai" and self.options.given:
            raise ValueError('options are for provider = "openai"; remove them')
        return self


class ChatSettings(Section):
    """The chat model of the stages that need one, and its prices per million tokens."""

    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: VariableName = "OPENAI_API_KEY"
    input_price: Annotated[float, Field(ge=0)] = 0.0
    output_price: Annotated[float, Field(ge=0)] = 0.0
    options: ChatOptions = ChatOptions()

    @model_validator(mode="after")
    def _complete(self) -> ChatSettings:
        if not self.model and self.options.given:
            raise ValueError("options need model; set it to the name that the endpoint uses")
        return self


class RerankerSettings(Section):
    """The model of the stage rerank. `revision` and `sha256` hold a local model to what was reviewed.

    `Settings` sets `path` of an ONNX model that is named by `model` to its folder.
    """

    provider: Literal["none", "cohere", "voyage", "tei", "onnx"] = "none"
    base_url: str = ""
    model: str = ""
    revision: Annotated[
        str, matching(r"([0-9a-f]{40})?", "a full commit hash: 40 lower-case hexadecimal digits")
    ] = ""
    sha256: Annotated[
        str, matching(r"([0-9a-f]{64})?", "a SHA-256 checksum: 64 lower-case hexadecimal digits")
    ] = ""
    api_key_env: VariableName = "RERANKER_API_KEY"
    path: AbsolutePath | None = None
    max_tokens: Annotated[int, Field(ge=64, le=8192)] = 512
    options: RerankerOptions = RerankerOptions()

    @model_validator(mode="after")
    def _complete(self) -> RerankerSettings:
        if self.provider in {"none", "onnx"} and self.options.given:
            raise ValueError("options are for the provider of an endpoint (cohere, voyage, tei); remove them")
        if self.provider in {"cohere", "voyage", "tei"} and not self.base_url:
            raise ValueError(
                f'provider = "{self.provider}" needs base_url; requests go to /rerank below that URL'
            )
        if self.provider in {"cohere", "voyage"} and not self.model:
            raise ValueError(
                f'provider = "{self.provider}" needs model; set it to the name that the endpoint uses'
            )
        if self.provider == "onnx" and (self.path is None) == (not self.model):
            raise ValueError(
                'provider = "onnx" needs either model, the name of a model that refdesk-admin model has '
                "pulled or added, or path, a folder with model.onnx and tokenizer.json, not both"
            )
        return self


Located = TypeVar("Located", EmbedderSettings, RerankerSettings)


class ChunkingRule(Section):
    """How the documents that a glob pattern matches are split; what is None is as for all others."""

    match: str
    strategy: Strategy | None = None
    max_tokens: Annotated[int, Field(ge=32, le=8192)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=8192)] | None = None
    overlap: Annotated[int, Field(ge=0, le=4096)] | None = None
    headers: bool | None = None

    def chunking(self, usual: Chunking) -> Chunking:
        """The rule, completed from what is usual."""
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        return replace(usual, **given)


class ChunkingSettings(Section):
    """How sources are split into chunks."""

    strategy: Strategy = "structure"
    max_tokens: Annotated[int, Field(ge=32, le=8192)] = 254
    min_tokens: Annotated[int, Field(ge=0, le=8192)] = 32
    overlap: Annotated[int, Field(ge=0, le=4096)] = 0
    headers: bool = True
    rules: tuple[ChunkingRule, ...] = ()

    def chunkings(self) -> tuple[Chunking, ...]:
        """The rules, and last what applies to all other documents."""
        usual = Chunking(self.strategy, self.max_tokens, self.min_tokens, self.overlap, self.headers)
        return (*(rule.chunking(usual) for rule in self.rules), usual)


class IngestSettings(Section):
    """Which files of a folder are ingested."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = (".git", ".hg", ".svn", "CVS", "node_modules", "__pycache__")
    hidden: bool = False
    archives: bool = False
    ignore_files: bool = True
    max_removed: Annotated[int, Field(ge=0)] = 10
    max_removed_share: Annotated[float, Field(ge=0, le=1)] = 0.33
    max_file_bytes: Annotated[int, Field(ge=1)] = 20_000_000
    parse_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    ocr: Literal["off", "auto"] = "off"
    ocr_timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    embedding_cache_bytes: Annotated[int, Field(ge=0)] = 1_000_000_000
    keep_versions_minutes: Annotated[float, Field(ge=1, le=10_080)] = 15.0


class ModerationSettings(Section):
    """Who decides for each new or changed document whether it is stored: nobody, or one of three.

    `call` is an async function of a module, `command` a program with its arguments, `base_url` an endpoint
    with OpenAI's moderation API. `flagged` is what becomes of documents that the endpoint flags, and
    `on_failure` of those for which there was no verdict.
    """

    call: Annotated[str, matching(r"([\w.]+:\w+)?", "a function like package.module:name")] = ""
    command: tuple[str, ...] = ()
    base_url: Annotated[str, matching(r"(https?://\S+)?", "a URL that begins with https:// or http://")] = ""
    model: str = ""
    api_key_env: VariableName = "OPENAI_API_KEY"
    flagged: Literal["flag", "skip"] = "flag"
    on_failure: Literal["store", "skip"] = "store"
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0

    @model_validator(mode="after")
    def _one(self) -> ModerationSettings:
        if sum(map(bool, (self.call, self.command, self.base_url))) > 1:
            raise ValueError("set only one of call, command and base_url")
        return self


class SearchSettings(Section):
    """How a search runs unless the request or its profile overrides it."""

    collections: tuple[Name, ...] = ()
    mode: Mode = "hybrid"
    limit: Limit = 8
    candidates: Candidates = 50
    detail: Detail = "passage"
    statistics: Literal["collection", "strict"] = "collection"
    must_contain: Texts = ()
    relax: bool = False
    degrade: bool = True
    context_tokens: ContextTokens = 2000
    check_files: bool = True
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 15.0
    index_cache_bytes: Annotated[int, Field(ge=1_000_000)] | Literal["auto"] = "auto"
    memory_bytes: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    overrides: tuple[Overridable, ...] = ("mode", "limit")
    fusion: FusionSettings = FusionSettings()
    thresholds: ThresholdSettings = ThresholdSettings()
    engine: EngineSettings = EngineSettings()
    stages: Stages = ()
    profiles: dict[Name, ProfileSettings] = SHIPPED
    of_collections: dict[Name, Name] = Field(default={})
    of_tenants: dict[Name, ProfileSettings] = Field(default={})
    urls: dict[Name, UrlTemplate] = Field(default={})

    @field_validator("profiles")
    @classmethod
    def _with_shipped(cls, profiles: dict[str, ProfileSettings]) -> dict[str, ProfileSettings]:
        if DEFAULT_PROFILE in profiles:
            raise ValueError(
                f"'{DEFAULT_PROFILE}' is the name of the settings in [search]; give the profile another name"
            )
        return SHIPPED | profiles

    @property
    def most_cached(self) -> int:
        """How many bytes the engine's cache of indexes may grow to."""
        return int(memory() * CACHE_SHARE) if self.index_cache_bytes == "auto" else self.index_cache_bytes

    @property
    def bytes_in_memory(self) -> int:
        """How many bytes of rows the store keeps in memory."""
        if self.memory_bytes == "auto":
            return min(MOST_IN_MEMORY, int(memory() * MEMORY_SHARE))
        return self.memory_bytes


class HttpSettings(Section):
    """Where `refdesk --http` listens, and how its clients authenticate."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8300
    path: Annotated[
        str, matching(r"/[a-z0-9/_-]*[a-z0-9_-]", "a path like /mcp: lower-case letters, digits, /, - and _")
    ] = "/mcp"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 8301
    public_url: Annotated[
        str, matching(r"(https?://[^/\s]+)?", "a URL without a path, like https://desk.example.com")
    ] = ""
    allowed_hosts: tuple[Address, ...] = ()
    allowed_origins: tuple[Address, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
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
    scopes: dict[str, CredentialBoundTo] = Field(default={})


class LimitSettings(Section):
    """Concurrency limits, rate limits and timeouts of a server."""

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


class RetrieverSettings(Section):
    """A retriever of the operator's own, which is searched as a collection of a tenant."""

    call: Annotated[str, matching(r"[\w.]+:\w+", "a class or function like package.module:Name")]
    tenant: Name = DEFAULT_TENANT
    description: str = ""
    fields: dict[str, FieldType] = Field(default={})
    options: dict[str, Any] = Field(default={})
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0


class Settings(Section):
    """All settings. Programs that shall obey the operator's settings file call `Settings.load`."""

    data: AbsolutePath = DEFAULT_DATA
    models: AbsolutePath | None = None
    storage: StorageSettings = StorageSettings()
    principal: PrincipalSettings = PrincipalSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    embedders: dict[Name, EmbedderSettings] = Field(default={})
    chat: ChatSettings = ChatSettings()
    reranker: RerankerSettings = RerankerSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    ingest: IngestSettings = IngestSettings()
    moderation: ModerationSettings = ModerationSettings()
    origins: dict[Name, OriginSettings] = Field(default={})
    access: AccessSettings = AccessSettings()
    search: SearchSettings = SearchSettings()
    retrievers: dict[Name, RetrieverSettings] = Field(default={})
    server: ServerSettings = ServerSettings()
    http: HttpSettings = HttpSettings()
    oauth: OAuthSettings = OAuthSettings()
    limits: LimitSettings = LimitSettings()

    @field_validator("embedders")
    @classmethod
    def _without_default(cls, embedders: dict[str, EmbedderSettings]) -> dict[str, EmbedderSettings]:
        if DEFAULT_EMBEDDER in embedders:
            raise ValueError(
                f"'{DEFAULT_EMBEDDER}' is the name of the embedder in [embedder]; give this one another name"
            )
        return {name: _without_strange_key(one) for name, one in embedders.items()}

    @field_validator("embedder", "reranker")
    @classmethod
    def _located(cls, model: Located, info: ValidationInfo) -> Located:
        return _in_folder(model, info.data)

    @field_validator("embedders")
    @classmethod
    def _all_located(
        cls, embedders: dict[str, EmbedderSettings], info: ValidationInfo
    ) -> dict[str, EmbedderSettings]:
        return {name: _in_folder(one, info.data) for name, one in embedders.items()}

    @property
    def home(self) -> Home:
        """Where the desk keeps documents, keys and rights: the data folder, or the bucket of [storage]."""
        return self.storage.bucket or self.data

    @property
    def models_folder(self) -> Path:
        """Where pulled and added models lie, each in a folder of its name."""
        return self.models or self.data / MODELS

    @property
    def embedders_by_name(self) -> dict[str, EmbedderSettings]:
        """All embedders, the default first."""
        return {DEFAULT_EMBEDDER: self.embedder, **self.embedders}

    def embedder_named(self, name: str) -> EmbedderSettings:
        """The embedder of this name: of a table, or else the installed model of this name.

        Raises:
            ConfigurationError: there is none.
        """
        found = self.embedders_by_name.get(name) or self.installed_model(name)
        if found is None:
            raise ConfigurationError(unknown_embedder(name, self.embedders_by_name))
        return found

    def has_embedder(self, name: str) -> bool:
        """Whether there is an embedder of this name."""
        return name in self.embedders_by_name or self.installed_model(name) is not None

    def installed_model(self, name: str) -> EmbedderSettings | None:
        """How to run the model of this name in the models' folder; None if there is none."""
        folder = self.models_folder / name
        if name != model_name(name) or not (folder / "tokenizer.json").is_file():
            return None
        return EmbedderSettings(provider="onnx", model=name).model_copy(update={"path": folder})

    @classmethod
    def load(cls, config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings that the commands go by: from the file, overridden by the environment.

        The file is `config`, or else that of `REFDESK_CONFIG`, or else the default one, which may be missing.

        Raises:
            ConfigurationError: the file is missing or not TOML, or settings are unknown, invalid or
                contradictory.
        """
        from rag.config.load import load_settings  # noqa: PLC0415 it imports this module

        return load_settings(config, environment)


def model_name(model: str) -> str:
    """The name of a model's folder: of a repository on a hub, the part after the owner.

    Example: "BAAI/bge-small-en-v1.5" -> "bge-small-en-v1-5", "mdbr-leaf-ir" -> the same.
    """
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:NAME_LENGTH].strip("-")


def _in_folder(model: Located, known: Mapping[str, Any]) -> Located:
    """An ONNX model with the path to its folder, if only its name is given."""
    if model.provider != "onnx" or model.path is not None or "data" not in known:
        return model
    folder: Path = known.get("models") or known["data"] / MODELS
    return model.model_copy(update={"path": folder / model_name(model.model)})


def _without_strange_key(embedder: EmbedderSettings) -> EmbedderSettings:
    """OpenAI's key in the environment is perhaps for [embedder]. It goes to no other server unasked."""
    is_asked = "api_key_env" in embedder.model_fields_set
    if is_asked or urlsplit(embedder.base_url).hostname == OPENAI_HOST:
        return embedder
    return embedder.model_copy(update={"api_key_env": ""})


def unknown_embedder(name: str, known: Iterable[str]) -> str:
    """The message about an embedder that the settings lack."""
    return (
        f"The settings have no embedder {name!r}: there is no table [embedders.{name}], and no installed "
        f"model of that name (refdesk-admin model list). Embedders: {', '.join(known)}."
    )

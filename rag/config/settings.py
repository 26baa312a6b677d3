"""Everything that an operator can configure, as frozen models; `config.example.toml` mirrors `Settings`.

The two entry points read the settings (`rag.config.load`) and hand every other module the section it needs.
This module has the sections of storage, access, ingestion and search. The sections of models
(`model_settings`), of the server (`server_settings`), of profiles and of origins have modules of their own.
No section holds a bucket's credentials: they come from the environment, or from the machine's role.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rag.access.rule import DEFAULT_TENANT, BoundFilter, Name, check_access
from rag.answers import Detail, Mode
from rag.config.model_settings import (
    BUILTIN_MODELS,
    MODELS,
    ChatSettings,
    EmbedderSettings,
    KeyVariable,
    Located,
    RerankerSettings,
    in_folder,
    model_name,
    unknown_embedder,
    without_strange_key,
)
from rag.config.origin_settings import OriginSettings
from rag.config.profiles import (
    DEFAULT_PROFILE,
    SHIPPED,
    AbsolutePath,
    Candidates,
    ContextTokens,
    Counting,
    EngineSettings,
    FusionSettings,
    Limit,
    Overridable,
    ProfileSettings,
    Seconds,
    Section,
    Stages,
    Texts,
    ThresholdSettings,
    matching,
)
from rag.config.server_settings import (
    HttpSettings,
    LimitSettings,
    OAuthSettings,
    PrincipalSettings,
    ServerSettings,
)
from rag.corpus import DEFAULT_EMBEDDER, FieldType, LetterCase, Visibility
from rag.errors import ConfigurationError, as_value_error
from rag.home import Bucket, Home
from rag.runtime import memory_bytes
from rag.uris import is_template


class StorageOptions(Section):
    """How an object store is reached, beside what its libraries read from the environment."""

    endpoint: Annotated[
        str, matching(r"(https?://[^\s/@?#]+(/[^\s@?#]*)?)?", "a URL like https://s3.example.com:9000")
    ] = ""
    region: str = ""
    skip_signature: bool = False
    allow_http: bool = False

    @model_validator(mode="after")
    def _encrypted(self) -> StorageOptions:
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise ValueError("endpoint is not encrypted; begin it with https://, or set allow_http = true")
        return self


def _not_a_service(uri: object) -> object:
    """Refuse LanceDB Enterprise and Cloud, which have tables and nothing else (`rag/store/README.md`)."""
    if isinstance(uri, str) and uri.strip().lower().startswith("db://"):
        raise ValueError(
            "db:// is LanceDB Enterprise or Cloud, where no desk can be: it has no objects for keys, tenants "
            "and the leases of writers, and can't erase what was removed (optimize); write a bucket, like "
            "s3://bucket/desk. To search a table there: refdesk-admin collection attach NAME --table "
            "db://database/table"
        )
    return uri


class StorageSettings(Section):
    """The bucket of a desk, and the maximum staleness of what servers read from it."""

    uri: Annotated[
        str,
        BeforeValidator(_not_a_service),
        matching(
            r"((s3|az|gs)://[A-Za-z0-9][A-Za-z0-9._-]+(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?)?",
            "a bucket and a prefix like s3://bucket/desk",
        ),
    ] = ""
    consistency_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    options: StorageOptions = StorageOptions()

    def bucket(self, data: Path) -> Bucket | None:
        """The bucket; None without a `uri`. Equal settings and data folders give the same object."""
        return bucket_at(self.uri, self.options, self.consistency_seconds, data) if self.uri else None


@lru_cache(maxsize=256)  # tenants may have a bucket each
def bucket_at(uri: str, options: StorageOptions, consistency_seconds: float, data: Path) -> Bucket:
    """The bucket at an address, with the data folder of this machine."""
    changed = options.model_dump(exclude_defaults=True)
    texts = {name: str(value).lower() if value is True else str(value) for name, value in changed.items()}
    return Bucket(uri, texts, consistency_seconds=consistency_seconds, local=data)


def default_data() -> Path:
    """Where a user's programs keep their data, by the environment as it is now."""
    return Path(platformdirs.user_data_dir("refdesk", appauthor=False))


DEFAULT_COLLECTION = "documents"


CACHE_SHARE = 1 / 8  # of the machine's memory, for the engine's cache of indexes
MEMORY_SHARE, MOST_IN_MEMORY = 1 / 16, 200_000_000  # of rows: of the machine's memory, and in bytes


def _url_template(url: str) -> str:
    if not is_template(url):
        raise ValueError("write an http or https URL with {path} or {stem} after the host")
    return url


UrlTemplate = Annotated[str, AfterValidator(_url_template)]


PathPattern = Annotated[
    str,
    matching(
        r"(?!\.{1,2}/)(?!.*/\.{0,2}/)[^\\]*[^/\\]",
        "a pattern that a path can match, like hr/* for the files of a folder: with / between folders and "
        "none at its end, and without . and .. as folders",
    ),
]
"""A glob pattern of paths with at least one that matches it."""


class AccessRule(Section):
    """Access to the sources whose path, relative to the ingested folder, matches a glob pattern."""

    path: PathPattern
    visibility: Visibility = "restricted"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _valid(self) -> AccessRule:
        with as_value_error():
            check_access(self.visibility, self.allow, self.deny)
        return self


class AccessSettings(Section):
    """Access of sources that are ingested for the first time, and how names are compared."""

    of_documents: bool = False
    letter_case: LetterCase = "allow"
    rules: tuple[AccessRule, ...] = ()


class IngestSettings(Section):
    """Which files of a folder are ingested."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = (
        *(".git", ".hg", ".svn", "CVS"),
        *("node_modules", "site-packages", "__pycache__", "*.min.js"),
        *("_sources", "searchindex.js", "search_index.json", "navtree*.js"),  # beside generated pages
        "~$*",
    )
    hidden: bool = False
    archives: bool = False
    ignore_files: bool = True
    max_file_bytes: Annotated[int, Field(ge=1)] = 20_000_000
    parse_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    ocr: Literal["off", "auto"] = "off"
    embedding_cache_bytes: Annotated[int, Field(ge=0)] = 1_000_000_000
    keep_versions_minutes: Annotated[float, Field(ge=1, le=10_080)] = 15.0


class ModerationSettings(Section):
    """The moderator, which decides whether a new or changed document is stored; by default there is none.

    `call` is an async function of a module, `command` a program with its arguments, `base_url` an endpoint
    with OpenAI's moderation API. `flagged` says what happens to documents that the endpoint flags,
    `on_failure` what happens without a verdict.
    """

    call: Annotated[str, matching(r"([\w.]+:\w+)?", "a function like package.module:name")] = ""
    command: tuple[str, ...] = ()
    base_url: Annotated[str, matching(r"(https?://\S+)?", "a URL that begins with https:// or http://")] = ""
    model: str = ""
    api_key_env: KeyVariable = "OPENAI_API_KEY"
    flagged: Literal["flag", "skip"] = "flag"
    on_failure: Literal["store", "skip"] = "store"

    @model_validator(mode="after")
    def _check_one(self) -> ModerationSettings:
        if sum(map(bool, (self.call, self.command, self.base_url))) > 1:
            raise ValueError("set only one of call, command and base_url")
        return self


class SearchSettings(Section):
    """How a search runs unless the request or its profile overrides it."""

    mode: Mode = "hybrid"
    limit: Limit = 8
    candidates: Candidates = 50
    detail: Detail = "passage"
    statistics: Counting = "auto"
    must_contain: Texts = ()
    filter: BoundFilter = Field(default={})
    relax: bool = False
    degrade: bool = True
    context_tokens: ContextTokens = 2000
    timeout_seconds: Seconds = 15.0
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
        return (
            int(memory_bytes() * CACHE_SHARE) if self.index_cache_bytes == "auto" else self.index_cache_bytes
        )

    @property
    def bytes_in_memory(self) -> int:
        """How many bytes of rows the store keeps in memory."""
        if self.memory_bytes == "auto":
            return min(MOST_IN_MEMORY, int(memory_bytes() * MEMORY_SHARE))
        return self.memory_bytes


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

    # These two come first: the validators of models look up in them where a named model lies.
    data: AbsolutePath = Field(default_factory=default_data)
    models: AbsolutePath | None = None
    storage: StorageSettings = StorageSettings()
    principal: PrincipalSettings = PrincipalSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    embedders: dict[Name, EmbedderSettings] = Field(default={})
    chat: ChatSettings = ChatSettings()
    reranker: RerankerSettings = RerankerSettings()
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
    _tenant_home: Home | None = PrivateAttr(None)

    @field_validator("embedders")
    @classmethod
    def _named(
        cls, embedders: dict[str, EmbedderSettings], info: ValidationInfo
    ) -> dict[str, EmbedderSettings]:
        if DEFAULT_EMBEDDER in embedders:
            raise ValueError(
                f"'{DEFAULT_EMBEDDER}' is the name of the embedder in [embedder]; give this one another name"
            )
        return {
            name: in_folder(without_strange_key(embedder), info.data) for name, embedder in embedders.items()
        }

    @field_validator("embedder", "reranker")
    @classmethod
    def _located(cls, model: Located, info: ValidationInfo) -> Located:
        return in_folder(model, info.data)

    @property
    def common_home(self) -> Home:
        """Where the desk keeps keys, tenants and documents: the data folder, or the bucket of [storage]."""
        return self.storage.bucket(self.data) or self.data

    @property
    def home(self) -> Home:
        """The home of the documents: the one that `at` has set, or the common one."""
        return self._tenant_home or self.common_home

    def home_at(self, address: str) -> Home:
        """The folder or bucket at an address; a bucket by the options in [storage].

        Raises:
            ConfigurationError: it is neither an absolute path nor the address of a bucket.
        """
        if "://" not in address and Path(address).is_absolute():
            return Path(address)
        try:
            storage = StorageSettings.model_validate(self.storage.model_dump() | {"uri": address})
        except ValidationError:
            storage = StorageSettings()
        if bucket := storage.bucket(self.data):
            return bucket
        # Without the address: somebody may have put credentials into it.
        raise ConfigurationError(
            "A storage is the path of a folder, or a bucket and a prefix like s3://bucket/desk."
        )

    def at(self, home: Home | None) -> Settings:
        """A copy of these settings whose `home` is this one; None: the common home."""
        settings = self.model_copy()
        settings._tenant_home = home  # noqa: SLF001 its own class
        return settings

    @property
    def models_folder(self) -> Path:
        """Where pulled and added models lie, each in a folder of its name."""
        return self.models or self.data / MODELS

    @property
    def embedders_by_name(self) -> dict[str, EmbedderSettings]:
        """All embedders, the default first."""
        return {DEFAULT_EMBEDDER: self.embedder, **self.embedders}

    @property
    def remote_models(self) -> list[EmbedderSettings | ChatSettings | RerankerSettings]:
        """The models behind an endpoint."""
        embedders = [model for model in self.embedders_by_name.values() if model.provider == "openai"]
        chat = [self.chat] if self.chat.model else []
        reranker = [self.reranker] if self.reranker.provider not in {"none", "onnx"} else []
        return [*embedders, *chat, *reranker]

    def embedder_named(self, name: str) -> EmbedderSettings:
        """The embedder with this name: of a table [embedders.NAME], or else a built-in or installed model.

        Raises:
            ConfigurationError: neither has this name.
        """
        embedder = self.embedders_by_name.get(name) or self.installed_model(name)
        if embedder is None:
            names = [*self.embedders_by_name, *map(model_name, BUILTIN_MODELS)]
            raise ConfigurationError(unknown_embedder(name, names))
        return embedder

    def has_embedder(self, name: str) -> bool:
        """Whether an embedder has this name."""
        return name in self.embedders_by_name or self.installed_model(name) is not None

    def installed_model(self, name: str) -> EmbedderSettings | None:
        """The settings of a built-in or installed model, by the name of its folder; None if it is unknown."""
        for model in BUILTIN_MODELS:
            if model_name(name) == model_name(model):
                return EmbedderSettings(model=model)
        folder = self.models_folder / name
        if name != model_name(name) or not (folder / "tokenizer.json").is_file():
            return None
        return EmbedderSettings(provider="onnx", model=str(folder))

    @classmethod
    def load(cls, config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings that the commands go by: from the file, overridden by the environment.

        The file is `config`, or else `REFDESK_CONFIG`, or else the default one, which may be missing.

        Raises:
            ConfigurationError: the file is missing or not TOML, or settings are unknown, invalid or
                contradictory.
        """
        from rag.config.load import load_settings  # noqa: PLC0415 it imports this module

        return load_settings(config, environment)


OF_SERVICE = ("LANCEDB_API_KEY", "LANCEDB_HOST_OVERRIDE", "LANCEDB_REGION")
OF_STORES, OF_SPANS, OF_CERTIFICATES = ("AWS_", "AZURE_", "GOOGLE_"), ("OTEL_",), ("SSL_", "REQUESTS_CA_")


def variables_in_use(settings: Settings, names: Iterable[str], *, in_bucket: bool) -> set[str]:
    """The environment variables, of these names, that a server with these settings reads besides `REFDESK_…`.

    They hold keys and headers for remote models, credentials of a store, and how to reach either.
    """
    names, models = {*names}, settings.remote_models
    keys = {name for model in models for name in (model.api_key_env, *model.options.headers_env.values())}
    prefixes: tuple[str, ...] = OF_STORES if in_bucket else ()
    # Any collection may be a table of LanceDB's service.
    prefixes += OF_SERVICE if any(name.startswith(OF_SERVICE) for name in names) else ()
    prefixes += OF_SPANS if settings.server.traces else ()
    reaches_out = bool(models or prefixes)
    prefixes += OF_CERTIFICATES if reaches_out else ()
    proxies = {name for name in names if reaches_out and name.upper().endswith("_PROXY")}
    return keys & names | proxies | {name for name in names if name.startswith(prefixes)}

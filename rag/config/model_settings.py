"""The settings of embedders, rerankers and chat models, with headers and body fields for their endpoints.

An operator adds headers and fields of the body to requests. A key never stands in the settings file: a header
can take its value from an environment variable. What refdesk sends itself can't be replaced.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from rag.access.rule import NAME_LENGTH
from rag.config.profiles import Seconds, Section, matching

RESERVED_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
CONFIDENTIAL = r"auth|cookie|credential|key|passw|secret|session|token"
"""In the name of a header whose value is probably a secret."""

VariableName = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "the name of an environment variable, not the key itself")
]


KeyVariable = Annotated[
    str,
    matching(
        r"([A-Za-z_][A-Za-z0-9_]{0,63})?",
        'the name of an environment variable, not the key itself, or "" to send no key',
    ),
]


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", name):
        raise ValueError("this is not the name of a header")
    if name.lower() in RESERVED_HEADERS:
        advice = "; api_key_env names the variable with the key" if name.lower() == "authorization" else ""
        raise ValueError(f"refdesk sets this header itself{advice}")
    return name


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, matching(r"[!-~]([ -~]{0,1022}[!-~])?", "printable ASCII characters")]


def sendable(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, which must be JSON."""
    try:
        json.dumps(fields, allow_nan=False)
    except ValueError as error:
        raise ValueError("nan and inf can't be sent; JSON has no such numbers") from error
    return fields


class EndpointOptions(Section):
    """Headers and body fields for every request. `headers_env` maps headers to environment variables."""

    reserved: ClassVar[frozenset[str]] = frozenset()
    bodies: ClassVar[tuple[str, ...]] = ("body",)

    headers: dict[HeaderName, HeaderValue] = Field(default={})
    headers_env: dict[HeaderName, VariableName] = Field(default={})
    body: dict[str, Any] = Field(default={})

    @field_validator("headers")
    @classmethod
    def _without_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if re.search(CONFIDENTIAL, name, re.IGNORECASE):
                raise ValueError(
                    f"{name} looks like a secret; put its value into an environment variable, and write "
                    f'headers_env = {{ "{name}" = "MY_VARIABLE" }}'
                )
        return headers

    @model_validator(mode="after")
    def _each_once(self) -> EndpointOptions:
        names = [name.lower() for name in (*self.headers, *self.headers_env)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the header {twice[0]} is set twice")
        for table in self.bodies:
            fields = sendable(getattr(self, table))
            if clashes := sorted(fields.keys() & self.reserved):
                raise ValueError(f"the field {clashes[0]} is refdesk's own; remove it from {table}")
            if table != "body" and (twice := sorted(fields.keys() & self.body.keys())):
                raise ValueError(f"the field {twice[0]} is in body and in {table}; keep one of them")
        return self

    @property
    def are_set(self) -> bool:
        """Whether there are any options."""
        return any(getattr(self, name) for name in type(self).model_fields)


class ChatOptions(EndpointOptions):
    """Options of the chat model."""

    reserved: ClassVar[frozenset[str]] = frozenset(
        {"model", "messages", "response_format", "temperature", "stream", "n"}
    )


class RerankerOptions(EndpointOptions):
    """Options of a reranker behind an endpoint."""

    reserved: ClassVar[frozenset[str]] = frozenset(
        {"model", "query", "documents", "texts", "top_k", "top_n", "truncate"}
    )


class EmbedderOptions(EndpointOptions):
    """Options of an embedder behind an endpoint. Some body fields are for queries or for documents only."""

    reserved: ClassVar[frozenset[str]] = frozenset({"model", "input", "encoding_format", "dimensions"})
    bodies: ClassVar[tuple[str, ...]] = ("body", "query_body", "document_body")

    query_body: dict[str, Any] = Field(default={})
    document_body: dict[str, Any] = Field(default={})

    @property
    def of_queries(self) -> dict[str, Any]:
        """The body fields that go with queries."""
        return {**self.body, **self.query_body}

    @property
    def of_documents(self) -> dict[str, Any]:
        """The body fields that go with documents."""
        return {**self.body, **self.document_body}


MODELS = "models"  # the folder in the data folder

ENGLISH_MODEL, MULTILINGUAL_MODEL = "all-MiniLM-L6-v2", "multilingual-e5-small"
BUILTIN_MODELS = (ENGLISH_MODEL, MULTILINGUAL_MODEL)
"""The models that come with refdesk, the default first."""


OPENAI_HOST = "api.openai.com"
NEEDS_MODEL = (
    'provider = "onnx" needs model: the name of a model that refdesk-admin model has pulled or added, or the '
    "path of a folder with model.onnx and tokenizer.json"
)


def expanded(model: str) -> Path:
    """A model as a path; ~ is the home folder."""
    return Path(os.path.expanduser(model))  # noqa: PTH111 that of nobody stays as it is


class EmbedderSettings(Section):
    """An embedding model. `baseline` is the cosine that it gives to unrelated texts; None: as measured.

    Prefixes that are None are those of the model's own files, if it has any.
    """

    provider: Literal["builtin", "onnx", "openai"] = "builtin"
    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: KeyVariable = "OPENAI_API_KEY"
    dimensions: Annotated[int, Field(ge=1, le=8192)] | None = None
    max_tokens: Annotated[int, Field(ge=64, le=8192)] = 512
    query_prefix: str | None = None
    document_prefix: str | None = None
    baseline: Annotated[float, Field(ge=0, le=0.95)] | None = None
    price: Annotated[float, Field(ge=0)] = 0.0
    timeout_seconds: Seconds = 30.0
    options: EmbedderOptions = EmbedderOptions()
    _folder: Path | None = PrivateAttr(None)

    @property
    def folder(self) -> Path:
        """The folder of an ONNX model: `model` if that is a path, or else where `Settings` found the name."""
        return self._folder or expanded(self.model)

    @field_validator("model")
    @classmethod
    def _builtin(cls, model: str, info: ValidationInfo) -> str:
        if info.data.get("provider") == "builtin" and model not in {"", *BUILTIN_MODELS}:
            raise ValueError(
                f'provider = "builtin" has the models {" and ".join(BUILTIN_MODELS)}; '
                'for a model that refdesk-admin model has pulled or added, set provider = "onnx"'
            )
        return model

    @model_validator(mode="after")
    def _complete(self) -> EmbedderSettings:
        if self.provider == "onnx" and not self.model:
            raise ValueError(NEEDS_MODEL)
        if self.provider == "openai" and not self.model:
            raise ValueError('provider = "openai" needs model; set it to the name that the endpoint uses')
        if self.provider != "openai" and self.options.are_set:
            raise ValueError('options are for provider = "openai"; remove them')
        return self


class ChatSettings(Section):
    """The chat model of the stages that need one, and its prices per million tokens.

    `timeout_seconds` is for all that one stage asks it.
    """

    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    api_key_env: KeyVariable = "OPENAI_API_KEY"
    input_price: Annotated[float, Field(ge=0)] = 0.0
    output_price: Annotated[float, Field(ge=0)] = 0.0
    timeout_seconds: Seconds = 10.0
    options: ChatOptions = ChatOptions()

    @model_validator(mode="after")
    def _complete(self) -> ChatSettings:
        if not self.model and self.options.are_set:
            raise ValueError("options need model; set it to the name that the endpoint uses")
        return self


class RerankerSettings(Section):
    """The model of the stage rerank. `timeout_seconds` is for all that one search asks it."""

    provider: Literal["none", "cohere", "voyage", "tei", "onnx"] = "none"
    base_url: str = ""
    model: str = ""
    api_key_env: KeyVariable = "RERANKER_API_KEY"
    timeout_seconds: Seconds = 10.0
    options: RerankerOptions = RerankerOptions()
    _folder: Path | None = PrivateAttr(None)

    @property
    def folder(self) -> Path:
        """As `EmbedderSettings.folder`."""
        return self._folder or expanded(self.model)

    @model_validator(mode="after")
    def _complete(self) -> RerankerSettings:
        if self.provider in {"none", "onnx"} and self.options.are_set:
            raise ValueError("options are for the provider of an endpoint (cohere, voyage, tei); remove them")
        if self.provider in {"cohere", "voyage", "tei"} and not self.base_url:
            raise ValueError(
                f'provider = "{self.provider}" needs base_url; requests go to /rerank below that URL'
            )
        if self.provider in {"cohere", "voyage"} and not self.model:
            raise ValueError(
                f'provider = "{self.provider}" needs model; set it to the name that the endpoint uses'
            )
        if self.provider == "onnx" and not self.model:
            raise ValueError(NEEDS_MODEL)
        return self


Located = TypeVar("Located", EmbedderSettings, RerankerSettings)


def model_name(model: str) -> str:
    """The name of a model's folder: of a repository on a hub, the part after the owner.

    Example: "BAAI/bge-small-en-v1.5" -> "bge-small-en-v1-5", "mdbr-leaf-ir" -> the same.
    """
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:NAME_LENGTH].strip("-")


def in_folder(model: Located, validated: Mapping[str, Any]) -> Located:
    """An ONNX model with its folder, if the settings give only its name."""
    if model.provider != "onnx" or expanded(model.model).is_absolute() or "data" not in validated:
        return model
    folder: Path = validated.get("models") or validated["data"] / MODELS
    located = model.model_copy()
    located._folder = folder / model_name(model.model)  # noqa: SLF001 this module's own
    return located


def without_strange_key(embedder: EmbedderSettings) -> EmbedderSettings:
    """The embedder without the default key variable, unless it is OpenAI's: no other server gets that key."""
    is_asked = "api_key_env" in embedder.model_fields_set
    if is_asked or urlsplit(embedder.base_url).hostname == OPENAI_HOST:
        return embedder
    return embedder.model_copy(update={"api_key_env": ""})


def unknown_embedder(name: str, names: Iterable[str]) -> str:
    """The message about an embedder that is missing in the settings."""
    return (
        f"The settings have no embedder {name!r}: there is no table [embedders.{name}], and no installed "
        f"model of that name (refdesk-admin model list). Embedders: {', '.join(names)}."
    )

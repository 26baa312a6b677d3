"""What an operator adds to the requests to a model's endpoint: headers, and fields of the body.

A key never stands in the settings file: a header can take its value from an environment variable. What
refdesk sends itself can't be replaced.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from rag.config.profiles import Section, matching

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
            if own := sorted(fields.keys() & self.reserved):
                raise ValueError(f"the field {own[0]} is refdesk's own; remove it from {table}")
            if table != "body" and (twice := sorted(fields.keys() & self.body.keys())):
                raise ValueError(f"the field {twice[0]} is in body and in {table}; keep one of them")
        return self

    @property
    def given(self) -> bool:
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

"""A chat model behind an endpoint that speaks OpenAI's protocol, which answers in the form asked for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.answers import Usage
from rag.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import ModuleType

    from rag.config.settings import ChatSettings
    from rag.models.endpoint import Endpoint

ATTEMPT_SECONDS = 600.0  # as long as a stage may take; its own limit, which is for all attempts, ends it
PER = 1_000_000  # tokens that a price is for

TokenCount = Annotated[int, Field(ge=0, le=10**9)]


class Form(BaseModel):
    """What a chat model fills in. Its fields have neither defaults nor limits: strict schemas know none."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=Form)


class _Read(BaseModel):
    """A part of a reply, of which only this is read."""

    model_config = ConfigDict(frozen=True)


class _Tokens(_Read):
    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0


class _Counted(_Read):
    usage: _Tokens


class _Message(_Read):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Read):
    message: _Message
    finish_reason: str | None = None


class _Reply(_Read):
    choices: Annotated[list[_Choice], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat model behind one endpoint."""

    endpoint: Endpoint
    settings: ChatSettings

    async def reply(self, instructions: str, content: str, form: type[T], used: Callable[[Usage], None]) -> T:
        """What the model makes of `content` by the `instructions`.

        `used` is told of each request when it is sent, and of its tokens when they are known, whatever
        becomes of the reply.

        Raises:
            ProviderError: the endpoint gave no answer, or one that is not in the form.
        """
        request = {
            "model": self.settings.model,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": content},
            ],
            "response_format": _response_format(form),
        }
        body = await self._answer(request, used)
        used(self._usage(body))
        try:
            return form.model_validate_json(self._content(body))
        except ValidationError:  # which quotes the reply
            raise ProviderError(f"{self.endpoint.name} answered in another form than asked for.") from None

    async def _answer(self, request: Mapping[str, object], used: Callable[[Usage], None]) -> bytes:
        from rag.models.endpoint import RefusedError  # noqa: PLC0415 it imports openai, as open_chat has by now

        try:
            return await self.endpoint.answer(lambda: self._sent({**request, "temperature": 0}, used))
        except RefusedError:  # as reasoning models do, who know only their own temperature
            return await self.endpoint.answer(lambda: self._sent(request, used))

    async def _sent(self, request: Mapping[str, object], used: Callable[[Usage], None]) -> bytes:
        used(Usage(requests=1))
        completions = self.endpoint.client.chat.completions.with_raw_response
        reply = await completions.create(**request)  # type: ignore[call-overload] # has a type per literal
        body: bytes = reply.content
        return body

    def _usage(self, body: bytes) -> Usage:
        try:
            tokens = _Counted.model_validate_json(body).usage
        except ValidationError:
            return Usage()
        sent, got = tokens.prompt_tokens, tokens.completion_tokens
        cost = (sent * self.settings.input_price + got * self.settings.output_price) / PER
        return Usage(input_tokens=sent, output_tokens=got, cost=cost)

    def _content(self, body: bytes) -> str:
        """The text of a reply.

        Raises:
            ProviderError: it was refused, cut or empty.
            ValidationError: this is no reply.
        """
        choice = _Reply.model_validate_json(body).choices[0]
        message, reason = choice.message, choice.finish_reason
        if message.refusal or reason == "content_filter":
            raise ProviderError(f"{self.endpoint.name} refused to answer.")
        if reason == "length":
            raise ProviderError(f"{self.endpoint.name} gave only the beginning of an answer.")
        if not message.content or message.content.isspace():
            raise ProviderError(f"{self.endpoint.name} gave an empty answer.")
        return message.content


def _response_format(form: type[Form]) -> dict[str, object]:
    schema = {"name": form.__name__, "strict": True, "schema": form.model_json_schema()}
    return {"type": "json_schema", "json_schema": schema}


@asynccontextmanager
async def open_chat(
    settings: ChatSettings, environment: Mapping[str, str], *, first_delay: float = 0.5
) -> AsyncIterator[Chat | None]:
    """The chat model that the settings name, if they name one, connected as long as the context lasts.

    `environment` is where its key is; nothing is sent yet.

    Raises:
        ConfigurationError: OpenAI itself is meant, and there is no key.
    """
    if not settings.model:
        yield None
        return
    endpoints = await to_thread.run_sync(_endpoints)
    async with endpoints.open_endpoint(
        "chat", settings, environment, timeout_seconds=ATTEMPT_SECONDS, first_delay=first_delay
    ) as endpoint:
        yield Chat(endpoint, settings)


def _endpoints() -> ModuleType:
    from rag.models import endpoint  # noqa: PLC0415 takes 0.5 s

    return endpoint

"""Requests to models: the chat client against a real endpoint, and what an operator adds to requests."""

from __future__ import annotations

import json
import logging
import traceback
from typing import TYPE_CHECKING, Any, Literal

import anyio
import pytest

from rag.answers import Usage
from rag.config.model_settings import ChatSettings, EmbedderSettings, RerankerSettings
from rag.errors import ConfigurationError, ProviderError
from rag.models.chat import Chat, Form, TextScores, open_chat
from rag.models.embed import open_embedder
from rag.models.embed.remote_embedder import remote_embedder
from rag.models.rerank import remote_reranker
from rag.search.stages.query_stages import QueryPlan, Rephrasings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import ModuleType

    from tests.endpoint import Endpoint

pytestmark = pytest.mark.anyio

QUOTED = "a stranger's document"
GOOD = {"colour": "red", "sizes": [{"size": 1.5}]}


class Size(Form):
    """How large it is."""

    size: float


class Shirt(Form):
    colour: Literal["red", "blue"]
    sizes: list[Size]


@pytest.fixture
async def chat(chat_server: Endpoint, chats: ModuleType) -> AsyncIterator[Chat]:
    settings = chats.settings(chat_server, input_price=2.0, output_price=10.0)
    async with open_chat(settings, {}) as opened:
        assert opened
        yield opened


async def describe_shirt(chat: Chat, used: list[Usage]) -> Shirt:
    return await chat.reply("Describe the shirt.", "a shirt", Shirt, used.append)


def total(used: list[Usage]) -> Usage:
    return sum(used, Usage())


async def test_a_reply_comes_in_the_form_that_was_asked_for(
    chat_server: Endpoint, chats: ModuleType, chat: Chat
) -> None:
    chat_server.script = [chats.saying(GOOD)]
    assert await describe_shirt(chat, []) == Shirt(colour="red", sizes=[Size(size=1.5)])
    (request,) = chat_server.requests
    assert request["model"] == "tiny"
    assert request["temperature"] == 0
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert [message["content"] for message in request["messages"]] == ["Describe the shirt.", "a shirt"]
    assert request["response_format"]["type"] == "json_schema"
    assert request["response_format"]["json_schema"]["strict"] is True
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["colour", "sizes"]


KNOWN = {"type", "title", "description", "enum", "const", "items", "$ref"}
OF_OBJECTS = {"properties", "required", "additionalProperties", "$defs"}


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for part in inner + [schema[key] for key in ("items",) if key in schema]:
        yield from parts(part)


@pytest.mark.parametrize("form", [Shirt, Rephrasings, QueryPlan, TextScores])
async def test_the_schema_sent_is_strict_to_its_leaves(
    chat_server: Endpoint, chats: ModuleType, chat: Chat, form: type[Form]
) -> None:
    chat_server.script = [chats.saying(None)]
    with pytest.raises(ProviderError):
        await chat.reply("", "", form, lambda _used: None)
    schema = chat_server.requests[0]["response_format"]["json_schema"]["schema"]
    for part in parts(schema):
        assert part.keys() <= KNOWN | OF_OBJECTS
        assert "type" in part or part.keys() == {"$ref"}
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert set(part["required"]) == set(part["properties"])
    assert schema["type"] == "object"


async def test_requests_tokens_and_cost_are_counted(
    chat_server: Endpoint, chats: ModuleType, chat: Chat
) -> None:
    chat_server.script = [chats.saying(GOOD, tokens=(1000, 50))]
    used: list[Usage] = []
    await describe_shirt(chat, used)
    assert total(used) == Usage(1, 1000, 50, 0.0025)


async def test_every_attempt_is_a_request(chat_server: Endpoint, chats: ModuleType, chat: Chat) -> None:
    chat_server.script = [chat_server.failing(503), chat_server.failing(429), chats.saying(GOOD)]
    used: list[Usage] = []
    await describe_shirt(chat, used)
    assert total(used).requests == len(chat_server.requests) == 3


@pytest.mark.parametrize("count", [-1, 1.5, "many", 10**400, None])
async def test_a_server_that_miscounts_tokens_is_read_all_the_same(
    chat_server: Endpoint, chat: Chat, count: object
) -> None:
    choice = {"message": {"content": json.dumps(GOOD)}}
    body = {"choices": [choice], "usage": {"prompt_tokens": count, "completion_tokens": 1}}
    chat_server.script = [chat_server.sending(json.dumps(body).encode())]
    used: list[Usage] = []
    await describe_shirt(chat, used)
    assert total(used) == Usage(requests=1)


OFF_SCHEMA, EMPTY = "gave an answer that does not match the requested JSON schema", "gave an empty answer"
WRONG = {
    "refused": ({"message": {"refusal": QUOTED, "content": None}}, "refused to answer"),
    "filtered": ({"message": {"content": ""}, "finish_reason": "content_filter"}, "refused to answer"),
    "cut": ({"message": {"content": json.dumps(GOOD)}, "finish_reason": "length"}, "gave a truncated answer"),
    "empty": ({"message": {"content": ""}}, EMPTY),
    "blank": ({"message": {"content": " \n"}}, EMPTY),
    "null": ({"message": {"content": None}}, EMPTY),
    "words": ({"message": {"content": QUOTED}}, OFF_SCHEMA),
    "fenced": ({"message": {"content": f"```json\n{json.dumps(GOOD)}\n```"}}, OFF_SCHEMA),
    "a field more": ({"message": {"content": json.dumps({**GOOD, QUOTED: QUOTED})}}, OFF_SCHEMA),
    "a field less": ({"message": {"content": json.dumps({"colour": "red"})}}, OFF_SCHEMA),
    "another value": ({"message": {"content": json.dumps({**GOOD, "colour": QUOTED})}}, OFF_SCHEMA),
    "another type": ({"message": {"content": json.dumps({**GOOD, "sizes": QUOTED})}}, OFF_SCHEMA),
    "a number in words": (
        {"message": {"content": json.dumps({**GOOD, "sizes": [{"size": "1.5"}]})}},
        OFF_SCHEMA,
    ),
    "half a character": ({"message": {"content": '{"colour": "\\ud800", "sizes": []}'}}, OFF_SCHEMA),
    "deep": ({"message": {"content": "[" * 100_000}}, OFF_SCHEMA),
    "no message": ({"text": QUOTED}, OFF_SCHEMA),
    "no choice": (None, OFF_SCHEMA),
}


@pytest.mark.parametrize(("choice", "words"), WRONG.values(), ids=WRONG.keys())
async def test_an_invalid_reply_is_an_error_that_quotes_nothing_and_counts(
    chat_server: Endpoint, chats: ModuleType, chat: Chat, choice: object, words: str
) -> None:
    chat_server.script = [chats.replying(choice, tokens=(7, 3))]
    used: list[Usage] = []
    with pytest.raises(ProviderError, match=words) as error:
        await describe_shirt(chat, used)
    assert str(error.value).startswith(f"The chat endpoint {chat_server.url} (model tiny) ")
    assert QUOTED not in "".join(traceback.format_exception(error.value))
    assert total(used) == Usage(1, 7, 3, 0.000044)
    assert len(chat_server.requests) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b"[" * 100_000, QUOTED.encode()])
async def test_a_body_that_is_no_reply_is_an_error(chat_server: Endpoint, chat: Chat, body: bytes) -> None:
    chat_server.script = [chat_server.sending(body)]
    used: list[Usage] = []
    with pytest.raises(ProviderError, match=OFF_SCHEMA):
        await describe_shirt(chat, used)
    assert total(used) == Usage(requests=1)


async def test_a_model_that_takes_no_temperature_is_asked_without_one(
    chat_server: Endpoint, chats: ModuleType, chat: Chat
) -> None:
    chat_server.script = [chat_server.failing(400), chats.saying(GOOD)]
    assert (await describe_shirt(chat, [])).colour == "red"
    assert ["temperature" in request for request in chat_server.requests] == [True, False]


async def test_what_is_refused_either_way_is_an_error_without_the_words_of_the_reply(
    chat_server: Endpoint, chat: Chat
) -> None:
    chat_server.script = [chat_server.failing(400)]
    used: list[Usage] = []
    with pytest.raises(ProviderError) as error:
        await describe_shirt(chat, used)
    assert str(error.value) == (
        f"The chat endpoint {chat_server.url} (model tiny) failed after 1 of 5 attempts: HTTP 400."
    )
    assert total(used) == Usage(requests=2)


async def test_the_key_is_sent_in_a_header_alone(chat_server: Endpoint, chats: ModuleType) -> None:
    environment = {"OPENAI_API_KEY": "another", "CHAT_KEY": "hush"}
    chat_server.script = [chats.saying(GOOD)]
    async with open_chat(chats.settings(chat_server, api_key_env="CHAT_KEY"), environment) as chat:
        assert chat
        await describe_shirt(chat, [])
    assert chat_server.keys == ["Bearer hush"]
    assert "hush" not in json.dumps(chat_server.requests)


async def test_nothing_is_sent_before_something_is_asked(chat_server: Endpoint, chats: ModuleType) -> None:
    async with open_chat(chats.settings(chat_server), {}) as chat:
        assert chat
    assert chat_server.requests == []


async def test_without_a_model_there_is_no_chat() -> None:
    async with open_chat(ChatSettings(), {}) as chat:
        assert chat is None


async def test_a_caller_who_gives_up_ends_the_request(chat_server: Endpoint, chat: Chat) -> None:
    chat_server.script = [chat_server.silent]
    used: list[Usage] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(describe_shirt, chat, used)
            await anyio.to_thread.run_sync(chat_server.asked.wait)
            tasks.cancel_scope.cancel()
    assert total(used) == Usage(requests=1)


KEYS = {"MY_KEY": "zebrafish-7"}
HEADERS = {"headers": {"X-Region": "eu"}, "headers_env": {"api-key": "MY_KEY"}}
COHERE = {
    "body": {"truncate": "END"},
    "query_body": {"input_type": "search_query"},
    "document_body": {"input_type": "search_document"},
}


class Ready(Form):
    """Any reply."""

    ready: bool


def embedder(provider: Endpoint, **options: object) -> EmbedderSettings:
    table = {"provider": "openai", "model": "m", "base_url": provider.url, "options": options}
    return EmbedderSettings.model_validate(table)


async def test_queries_and_documents_are_sent_with_fields_of_their_own(provider: Endpoint) -> None:
    provider.script = [provider.embedding]
    async with open_embedder(embedder(provider, **COHERE), {}) as opened:
        await opened.embed(["a clock"], "document")
        await opened.embed(["a clock"], "query")
        identity = opened.identity
    sent = [(request["input_type"], request["truncate"]) for request in provider.requests]
    assert sent == [("search_document", "END")] * 2 + [("search_query", "END")]
    assert identity.document_body == '{"input_type": "search_document", "truncate": "END"}'


async def test_what_goes_with_documents_is_a_part_of_the_identity_and_nothing_else(
    provider: Endpoint,
) -> None:
    async def identity(**options: object) -> Any:  # noqa: ANN401 an identity
        async with open_embedder(embedder(provider, **options), KEYS, probe=False) as opened:
            return opened.identity

    plain, of_cohere = await identity(), await identity(**COHERE)
    assert not plain.may_compare(of_cohere)
    assert plain.may_compare(await identity(**HEADERS))
    assert plain.may_compare(await identity(query_body=COHERE["query_body"]))
    fields = {**COHERE["body"], **COHERE["document_body"]}
    assert of_cohere.may_compare(await identity(document_body=dict(reversed(fields.items()))))
    assert provider.requests == []


async def test_headers_arrive_and_one_from_the_environment_replaces_the_bearer_key(
    provider: Endpoint,
) -> None:
    provider.script = [provider.embedding]
    for key in ({}, {"OPENAI_API_KEY": "sk-1"}):
        async with open_embedder(embedder(provider, **HEADERS), KEYS | key) as opened:
            await opened.embed(["a clock"], "query")
    assert {(headers["api-key"], headers["X-Region"]) for headers in provider.headers} == {
        ("zebrafish-7", "eu")
    }
    assert provider.keys == [None, None, "Bearer sk-1", "Bearer sk-1"]


async def test_chat_and_reranker_have_options_too(
    chat_server: Endpoint, rerank_server: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply = {"choices": [{"message": {"content": '{"ready": true}'}}]}
    chat_server.script = [chat_server.sending(json.dumps(reply).encode())]
    options = HEADERS | {"body": {"reasoning_effort": "low"}}
    chat = ChatSettings.model_validate({"model": "m", "base_url": chat_server.url, "options": options})
    async with open_chat(chat, KEYS) as opened:
        assert opened
        used: list[Usage] = []
        assert (await opened.reply("Say.", "Ready?", Ready, used.append)).ready
    assert (chat_server.requests[0]["reasoning_effort"], chat_server.requests[0]["model"]) == ("low", "m")
    rerank_server.script = [
        rerank_server.sending(json.dumps({"results": [{"index": 0, "relevance_score": 0.5}]}).encode())
    ]
    table = {"provider": "cohere", "model": "m", "base_url": rerank_server.url}
    settings = RerankerSettings.model_validate(table | {"options": HEADERS | {"body": {"priority": 1}}})
    async with remote_reranker(settings, KEYS) as reranker:
        assert await reranker.scores("clock", ["a clock"]) == [0.5]
    assert rerank_server.requests[0]["priority"] == 1
    for server in (chat_server, rerank_server):
        assert (server.headers[0]["api-key"], server.headers[0]["X-Region"]) == ("zebrafish-7", "eu")
    assert "zebrafish" not in caplog.text


async def test_no_error_and_no_log_has_the_value_of_a_header(
    provider: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = embedder(provider, **HEADERS)
    provider.script = [provider.failing(401)]
    async with remote_embedder(settings, KEYS, probe=False) as opened:
        with pytest.raises(ProviderError) as raised:
            await opened.embed(["a clock"], "query")
    assert provider.headers[0]["api-key"] == "zebrafish-7"
    assert "zebrafish" not in f"{raised.value}{raised.value.for_caller}{caplog.text}{settings!r}"
    assert caplog.text  # the SDK's own lines are among them


@pytest.mark.parametrize(
    ("value", "saying"),
    [
        ("", "has no value. Set the environment variable MY_KEY."),
        ("zebrafish\n", "a line break"),
        ("zebrafish\r\nX-Evil: 1", "a line break"),
        ("zébrafish", "printable ASCII"),
    ],
)
async def test_a_value_that_is_missing_or_cannot_be_sent_is_refused_without_showing_it(
    provider: Endpoint, value: str, saying: str
) -> None:
    with pytest.raises(ConfigurationError, match=saying) as raised:
        async with open_embedder(embedder(provider, **HEADERS), {"MY_KEY": value}):
            pass
    assert "brafish" not in str(raised.value)
    assert provider.requests == []

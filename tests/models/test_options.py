"""What an operator adds to requests, against a real endpoint: it arrives, and no secret shows anywhere."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from rag.config.model_settings import ChatSettings, EmbedderSettings, RerankerSettings
from rag.errors import ConfigurationError, ProviderError
from rag.models.chat import Form, open_chat
from rag.models.embed import open_embedder
from rag.models.embed.remote_embedder import remote_embedder
from rag.models.rerank.remote_reranker import remote_reranker

if TYPE_CHECKING:
    from rag.answers import Usage
    from tests.endpoint import Endpoint

pytestmark = pytest.mark.anyio

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
    given = {"provider": "openai", "model": "m", "base_url": provider.url, "options": options}
    return EmbedderSettings.model_validate(given)


async def test_queries_and_documents_are_sent_with_fields_of_their_own(provider: Endpoint) -> None:
    provider.script = [provider.embedding]
    async with open_embedder(embedder(provider, **COHERE), {}) as opened:
        await opened.embed(["a clock"], "document")
        await opened.embed(["a clock"], "query")
        identity = opened.identity
    sent = [(one["input_type"], one["truncate"]) for one in provider.requests]
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
    both = {**COHERE["body"], **COHERE["document_body"]}
    assert of_cohere.may_compare(await identity(document_body=dict(reversed(both.items()))))
    assert provider.requests == []


async def test_headers_arrive_and_one_from_the_environment_replaces_the_bearer_key(
    provider: Endpoint,
) -> None:
    provider.script = [provider.embedding]
    for key in ({}, {"OPENAI_API_KEY": "sk-1"}):
        async with open_embedder(embedder(provider, **HEADERS), KEYS | key) as opened:
            await opened.embed(["a clock"], "query")
    assert {(one["api-key"], one["X-Region"]) for one in provider.headers} == {("zebrafish-7", "eu")}
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
    given = {"provider": "cohere", "model": "m", "base_url": rerank_server.url}
    settings = RerankerSettings.model_validate(given | {"options": HEADERS | {"body": {"priority": 1}}})
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
    async with remote_embedder(settings, KEYS, probe=False, first_delay=0.001) as opened:
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

"""No client of ours follows a redirect to another origin, whatever it was about to send there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pytest
from anyio import to_thread
from mcp import MCPError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from rag.admin.config_command import issuer_findings
from rag.admin.connect.connect_check import check_server
from rag.config.model_settings import ChatSettings, EmbedderSettings, RerankerSettings
from rag.config.server_settings import OAuthSettings
from rag.config.settings import ModerationSettings
from rag.corpus import Document
from rag.errors import RefdeskError
from rag.ingest.document_admission import ModerationError, open_moderation
from rag.models.chat import Form, open_chat
from rag.models.embed.remote_embedder import remote_embedder
from rag.models.hub import HubCommit, RemoteFile, download, open_hub
from rag.models.rerank import remote_reranker
from server.http.oauth import SigningKeys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.endpoint import Endpoint, Reply

pytestmark = pytest.mark.anyio

SECRET = "zebrafish-7"  # noqa: S105 of nobody
TEXT = "the merger with Acorn"
Use: TypeAlias = Callable[[str], Awaitable[object]]


async def embed(url: str) -> None:
    table = {"provider": "openai", "model": "m", "base_url": url, "api_key_env": "KEY"}
    async with remote_embedder(EmbedderSettings.model_validate(table), {"KEY": SECRET}, probe=False) as model:
        await model.embed([TEXT], "document")


async def embed_with_a_header(url: str) -> None:
    options = {"headers_env": {"api-key": "KEY"}}
    table = {"provider": "openai", "model": "m", "base_url": url, "options": options}
    async with remote_embedder(EmbedderSettings.model_validate(table), {"KEY": SECRET}, probe=False) as model:
        await model.embed([TEXT], "document")


async def rerank(url: str) -> None:
    table = {"provider": "cohere", "model": "m", "base_url": url, "api_key_env": "KEY"}
    async with remote_reranker(RerankerSettings.model_validate(table), {"KEY": SECRET}) as model:
        await model.scores(TEXT, [TEXT])


async def chat(url: str) -> None:
    table = {"model": "m", "base_url": url, "api_key_env": "KEY"}
    async with open_chat(ChatSettings.model_validate(table), {"KEY": SECRET}) as model:
        assert model
        await model.reply(TEXT, TEXT, Form, lambda _used: None)


async def moderate(url: str) -> None:
    table = {"base_url": url, "model": "m", "api_key_env": "KEY"}
    async with open_moderation(ModerationSettings.model_validate(table), {"KEY": SECRET}) as moderator:
        assert moderator
        await moderator.verdict(Document(TEXT, TEXT, "text/plain", ()), "a.txt")


MODELS = [embed, embed_with_a_header, rerank, chat, moderate]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("use", MODELS, ids=lambda use: use.__name__)
async def test_no_model_endpoint_can_send_texts_and_keys_on(
    provider: Endpoint, stranger: Endpoint, use: Use, status: int
) -> None:
    provider.script = [lambda _request: (status, {"Location": f"{stranger.url}/x?key={SECRET}"}, b"")]
    stranger.script = [stranger.embedding]
    with pytest.raises((RefdeskError, ModerationError)) as raised:
        await use(provider.url)
    assert TEXT in str(provider.requests)
    assert stranger.requests == []
    if use is not moderate:  # its reason goes into a report that names no endpoint
        assert f"{stranger.url}/x" in str(raised.value)
        assert "base_url" in str(raised.value)
        assert SECRET not in str(raised.value)


def answer_with(reply: Reply, _request: object) -> Reply:
    return reply


async def test_what_a_hostile_redirect_says_is_no_part_of_the_message(provider: Endpoint) -> None:
    for location in ("http://[", "http://a.example\x1b[2J/", "javascript:x", "http://user:pass@b.example/"):
        reply = 307, {"Location": location}, b""
        provider.script = [partial(answer_with, reply)]
        with pytest.raises(RefdeskError) as raised:
            await embed(provider.url)
        assert "an address that is not valid" in str(raised.value)


def test_a_hub_redirects_to_where_files_are_but_the_token_stays(
    provider: Endpoint, stranger: Endpoint, tmp_path: Path
) -> None:
    provider.script = [lambda _request: (302, {"Location": f"{stranger.url}/file"}, b"")]
    stranger.script = [stranger.sending(b"weights")]
    home = provider.url.removesuffix("/v1")
    with open_hub({"HF_ENDPOINT": home, "HF_TOKEN": SECRET}) as hub:
        download(HubCommit(hub, "a/b", "c"), RemoteFile("d", 7), tmp_path / "d", lambda _size: None)
    assert (tmp_path / "d").read_bytes() == b"weights"
    assert provider.keys == [f"Bearer {SECRET}"]
    assert stranger.keys == [None]


async def test_an_issuers_keys_come_from_no_other_host(
    provider: Endpoint, stranger: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    provider.script = [lambda _request: (302, {"Location": f"{stranger.url}/jwks"}, b"")]
    stranger.script = [stranger.sending(b'{"keys": []}')]
    with pytest.raises(RefdeskError):
        await SigningKeys(f"{provider.url}/jwks").key("1")
    assert f"{stranger.url}/jwks; set oauth.jwks_url" in caplog.text
    oauth = OAuthSettings(issuer=provider.url, jwks_url=f"{provider.url}/jwks")
    (finding,) = await to_thread.run_sync(lambda: list(issuer_findings(oauth)))
    assert (finding.state, f"{stranger.url}/jwks" in finding.text) == ("wrong", True)
    assert stranger.requests == []


async def test_a_host_is_checked_with_its_key_at_its_own_address_only(
    provider: Endpoint, stranger: Endpoint
) -> None:
    provider.script = [lambda _request: (307, {"Location": f"{stranger.url}/mcp"}, b"")]
    stranger.script = [stranger.sending(b"{}")]
    entry = {"url": f"{provider.url}/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}
    with pytest.raises((RefdeskError, MCPError)):
        await check_server(entry, lambda: "", sys.stderr)
    assert provider.keys[0] == f"Bearer {SECRET}"
    assert stranger.requests == []


def test_spans_go_to_the_collector_alone(
    provider: Endpoint, stranger: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    provider.script = [lambda _request: (307, {"Location": stranger.url}, b"")]
    stranger.script = [stranger.sending(b"")]
    spans = TracerProvider()
    exporter = OTLPSpanExporter(f"{provider.url}/traces", headers={"api-key": SECRET}, timeout=1)
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    with spans.get_tracer("test").start_as_current_span("search"):
        pass
    spans.shutdown()
    assert provider.headers[0]["api-key"] == SECRET
    assert stranger.requests == []

"""The remote embedder, against a real HTTP server on loopback."""

from __future__ import annotations

import base64
import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

from rag.config.model_settings import EmbedderSettings
from rag.errors import ConfigurationError, ProviderError
from rag.models import endpoint
from rag.models.embed.remote_embedder import BATCH_TEXTS, RemoteEmbedder, remote_embedder
from rag.models.endpoint import NO_KEY_SENT, delay_after
from tests.endpoint import certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rag.corpus import Vectors
    from tests.endpoint import Behaviour, Endpoint, Reply

pytestmark = pytest.mark.anyio

QUOTED = "a stranger's document"


def vector(text: str) -> list[float]:
    return [float(len(text)), 3.0, 0.0]


def listed(vectors: list[Any]) -> bytes:
    return json.dumps({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]}).encode()


def honest(request: dict[str, Any]) -> Reply:
    """In base64 if it was asked for that, like OpenAI."""
    vectors: list[Any] = [vector(text) for text in request["input"]]
    if request["encoding_format"] == "base64":
        vectors = [base64.b64encode(np.array(v, "<f4").tobytes()).decode() for v in vectors]
    return 200, {}, listed(vectors)


def only_floats(request: dict[str, Any]) -> Reply:
    return (422, {}, b"") if request["encoding_format"] == "base64" else honest(request)


def no_more_than(limit: int, status: int) -> Behaviour:
    return lambda request: (status, {}, b"") if len(request["input"]) > limit else honest(request)


def sizes(provider: Endpoint) -> list[int]:
    """How many texts were in each request after the probe."""
    return [len(request["input"]) for request in provider.requests[1:]]


@asynccontextmanager
async def opened(
    provider: Endpoint,
    *,
    probe: Behaviour = honest,
    key: str = "",
    batch_texts: int = BATCH_TEXTS,
    **settings: object,
) -> AsyncIterator[RemoteEmbedder]:
    """The provider answers the first request with `probe`, then by its script, or else honestly."""
    provider.script = [probe, *(provider.script or [honest])]
    table = {"provider": "openai", "model": "tiny", "base_url": provider.url} | settings
    embedder = EmbedderSettings.model_validate(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag.models.embed.remote_embedder.BATCH_TEXTS", batch_texts)
        async with remote_embedder(embedder, {"OPENAI_API_KEY": key}) as open_:
            yield open_


def expected(*texts: str) -> Vectors:
    rows = np.array([vector(text) for text in texts], np.float32)
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


async def test_vectors_are_of_unit_length_and_in_the_order_of_the_texts(provider: Endpoint) -> None:
    async with opened(provider) as embedder:
        vectors = await embedder.embed(["one", "three", "a"], "document")
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(expected("one", "three", "a"), abs=1e-6)
    assert {request["encoding_format"] for request in provider.requests} == {"base64"}


async def test_the_index_decides_over_the_order_not_the_place(provider: Endpoint) -> None:
    def backwards(request: dict[str, Any]) -> Reply:
        status, headers, body = honest(request)
        return status, headers, json.dumps({"data": json.loads(body)["data"][::-1]}).encode()

    provider.script = [backwards]
    async with opened(provider) as embedder:
        vectors = await embedder.embed(["one", "three", "a"], "document")
    assert vectors == pytest.approx(expected("one", "three", "a"), abs=1e-6)


async def test_the_identity_is_known_once_it_is_open(provider: Endpoint) -> None:
    async with opened(provider, query_prefix="q: ", document_prefix="d: ") as embedder:
        identity = embedder.identity
    assert (identity.provider, identity.model, identity.dimension) == ("openai", "tiny", 3)
    assert (identity.query_prefix, identity.document_prefix) == ("q: ", "d: ")


async def test_a_server_that_refuses_base64_is_asked_for_floats(provider: Endpoint) -> None:
    provider.script = [only_floats]
    async with opened(provider, probe=only_floats) as embedder:
        vectors = await embedder.embed(["one", "three"], "document")
    assert vectors == pytest.approx(expected("one", "three"), abs=1e-6)
    assert [request["encoding_format"] for request in provider.requests] == ["base64", "float", "float"]


async def test_a_server_that_ignores_base64_and_sends_floats_is_understood(provider: Endpoint) -> None:
    provider.script = [lambda request: (200, {}, listed([vector(text) for text in request["input"]]))]
    async with opened(provider) as embedder:
        assert await embedder.embed(["one"], "document") == pytest.approx(expected("one"), abs=1e-6)


async def test_texts_go_in_batches(provider: Endpoint) -> None:
    texts = ["x" * n for n in range(1, 8)]
    async with opened(provider, batch_texts=3) as embedder:
        assert await embedder.embed(texts, "document") == pytest.approx(expected(*texts), abs=1e-6)
    assert sizes(provider) == [3, 3, 1]


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_batch_that_is_too_large_is_halved_and_the_next_ones_too(
    provider: Endpoint, status: int
) -> None:
    texts = ["x" * n for n in range(1, 8)]
    provider.script = [no_more_than(2, status)]
    async with opened(provider, batch_texts=6) as embedder:
        assert await embedder.embed(texts, "document") == pytest.approx(expected(*texts), abs=1e-6)
    assert sizes(provider) == [6, 3, 1, 1, 1, 1, 1, 1, 1]


def refusing(*texts: str) -> Behaviour:
    return lambda request: (400, {}, b"") if set(request["input"]) & {*texts} else honest(request)


async def test_the_size_learnt_lasts_as_long_as_the_embedder(provider: Endpoint) -> None:
    provider.script = [no_more_than(2, 413)]
    async with opened(provider, batch_texts=8) as embedder:
        for _ in range(2):
            await embedder.embed(["a", "bb", "ccc", "dddd"], "document")
    assert sizes(provider) == [4, 2, 2, 2, 2]


async def test_one_query_that_is_refused_is_an_error_at_once(provider: Endpoint) -> None:
    provider.script = [refusing("too long")]
    async with opened(provider) as embedder:
        with pytest.raises(ProviderError, match="after 1 of 5 attempts: HTTP 400"):
            await embedder.embed(["too long"], "query")
    assert sizes(provider) == [1]


async def test_a_document_that_is_refused_alone_gets_zeros_and_does_not_shrink_later_batches(
    provider: Endpoint,
) -> None:
    texts = ["x" * n for n in range(1, 9)]
    provider.script = [refusing("xxx")]
    async with opened(provider, batch_texts=8) as embedder:
        vectors = await embedder.embed(texts, "document")
        by_hand = expected(*texts)
        by_hand[2] = 0
        assert vectors == pytest.approx(by_hand, abs=1e-6)
        await embedder.embed(["y" * n for n in range(1, 9)], "document")
    assert sizes(provider) == [8, 4, 2, 2, 1, 1, 5, 8]  # the sixth is the control


async def test_an_endpoint_that_refuses_everything_is_an_error_and_no_bad_document(
    provider: Endpoint,
) -> None:
    provider.script = [provider.failing(400)]
    async with opened(provider) as embedder:
        with pytest.raises(ProviderError, match="after 1 of 5 attempts: HTTP 400"):
            await embedder.embed(["a"], "document")
    assert provider.requests[-1]["input"] == ["refdesk"]


async def test_a_batch_that_comes_too_fast_is_halved_and_grows_again(
    provider: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "FIRST_DELAY", 3600)
    texts = ["x" * n for n in range(1, 38)]
    provider.script = [provider.failing(429, **{"Retry-After": "0"}), honest]
    async with opened(provider, batch_texts=4) as embedder:
        with anyio.fail_after(20):
            assert await embedder.embed(texts, "document") == pytest.approx(expected(*texts), abs=1e-6)
    assert sizes(provider) == [4, *[2] * 8, *[4] * 5, 1]


async def test_one_text_that_comes_too_fast_is_tried_five_times(provider: Endpoint) -> None:
    provider.script = [provider.failing(429)]
    async with opened(provider) as embedder:
        with pytest.raises(ProviderError, match="after 5 of 5 attempts: HTTP 429"):
            await embedder.embed(["a", "b"], "document")
    assert sizes(provider) == [2, 1, 1, 1, 1, 1]


INVALID = {
    "not a number": [float("nan"), 1.0, 1.0],
    "infinite": [float("inf"), 1.0, 1.0],
    "zero": [0.0, 0.0, 0.0],
    "too large to measure": [1e200, 1.0, 1.0],
}


@pytest.mark.parametrize("encoding", ["base64", "float"])
@pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID.keys())
async def test_a_vector_without_a_direction_is_zeros_for_a_document_and_an_error_for_a_query(
    provider: Endpoint, invalid: list[float], encoding: str
) -> None:
    vectors: list[Any] = [vector("one"), invalid]
    if encoding == "base64":
        with np.errstate(over="ignore"):
            vectors = [base64.b64encode(np.array(v, "<f4").tobytes()).decode() for v in vectors]
    provider.script = [provider.sending(listed(vectors))]
    async with opened(provider) as embedder:
        rows = await embedder.embed(["one", "two"], "document")
        assert rows == pytest.approx(np.stack([expected("one")[0], np.zeros(3)]), abs=1e-6)
        with pytest.raises(ProviderError, match="did not return a valid vector with 3 dimensions for each"):
            await embedder.embed(["one", "two"], "query")


async def test_a_model_without_a_vector_for_a_plain_word_is_not_opened(provider: Endpoint) -> None:
    zeros = provider.sending(listed([[0.0, 0.0, 0.0]]))
    with pytest.raises(
        ProviderError, match=r"did not return a valid vector for 1 text: .*, or not finite\.$"
    ):
        async with opened(provider, probe=zeros):
            pass


async def test_no_texts_make_no_request(provider: Endpoint) -> None:
    async with opened(provider) as embedder:
        assert (await embedder.embed([], "document")).shape == (0, 3)
    assert sizes(provider) == []


async def test_what_passes_is_tried_again(provider: Endpoint) -> None:
    provider.script = [provider.failing(status) for status in (408, 409, 429, 503)] + [honest]
    async with opened(provider) as embedder:
        assert await embedder.embed(["one"], "query") == pytest.approx(expected("one"), abs=1e-6)
    assert len(sizes(provider)) == 5


async def test_retry_after_replaces_the_backoff(provider: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_DELAY", 3600)
    provider.script = [provider.failing(429, **{"Retry-After": "0"}), honest]
    async with opened(provider) as embedder:
        with anyio.fail_after(5):
            await embedder.embed(["one"], "query")


async def test_five_failures_are_an_error_without_the_words_of_the_reply(provider: Endpoint) -> None:
    provider.script = [provider.failing(500)]
    async with opened(provider) as embedder:
        with pytest.raises(ProviderError) as error:
            await embedder.embed(["one"], "query")
    assert str(error.value) == (
        f"The embedding endpoint {provider.url} (model tiny) failed after 5 of 5 attempts: HTTP 500."
    )
    assert len(sizes(provider)) == 5


async def test_a_wrong_key_is_not_tried_again_and_its_variable_is_named(provider: Endpoint) -> None:
    with pytest.raises(
        ProviderError, match=r"1 of 5 attempts: HTTP 401; check the API key in OPENAI_API_KEY"
    ):
        async with opened(provider, probe=provider.failing(401), key="wrong"):
            pass
    assert provider.keys == ["Bearer wrong"]


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (429, {"code": "insufficient_quota"}, r"1 of 5 attempts: HTTP 429; the credit there is used up"),
        (402, {}, r"1 of 5 attempts: HTTP 402; the credit there is used up"),
        (404, {"code": "model_not_found"}, "HTTP 404; it has no such model"),
        (404, {"message": 'model "tiny" not found, try pulling it first'}, "HTTP 404; it has no such model"),
        (404, {"message": "Not Found"}, "HTTP 404; check model and base_url"),
        (404, {"code": ["no", "text"], "type": {}}, "HTTP 404; check model and base_url"),
        (200, {"message": QUOTED, "code": 502}, "returned an error instead of an answer"),
    ],
)
async def test_what_an_endpoint_says_is_told_in_our_words(
    provider: Endpoint, status: int, error: dict[str, object], told: str
) -> None:
    body = json.dumps({"error": {"type": "api_error"} | error}).encode()
    async with opened(provider) as embedder:
        provider.script = [lambda _request: (status, {}, body)]
        with anyio.fail_after(10), pytest.raises(ProviderError, match=told) as raised:
            await embedder.embed(["one", "two"], "document")
    assert QUOTED not in str(raised.value)
    assert len(sizes(provider)) == 1


async def test_a_server_that_keeps_silent_is_given_up_and_each_further_attempt_is_told(
    provider: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    provider.script = [provider.silent]
    with pytest.raises(ProviderError, match=r"5 of 5 attempts: no answer within 0\.05 seconds"):
        async with opened(provider, probe=provider.silent, timeout_seconds=0.05):
            pass
    assert len(caplog.messages) == 4
    assert all(provider.url in message for message in caplog.messages)
    assert "Attempt 5 of 5" in caplog.messages[-1]


async def test_a_closed_port_is_no_connection_and_credentials_in_the_url_stay_secret(
    provider: Endpoint,
) -> None:
    provider.server_close()
    url = provider.url.replace("http://", "http://me:hush@")
    with pytest.raises(ProviderError, match="5 of 5 attempts: no connection") as error:
        async with opened(provider, base_url=url + "?key=hush"):
            pass
    assert "hush" not in str(error.value)
    assert provider.url in str(error.value)


async def test_a_proxy_that_the_variables_put_before_the_endpoint_is_named(
    provider: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", provider.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ProviderError, match=r"HTTP 407, through the proxy of HTTP_PROXY \(http://127"):
        async with opened(provider, base_url="http://127.0.0.1:1/v1", probe=provider.failing(407)):
            pass
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(ProviderError, match=r"5 of 5 .* to the proxy of HTTP_PROXY .* NO_PROXY"):
        async with opened(provider):
            pass
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with opened(provider) as embedder:
        assert embedder.identity.dimension == 3


async def test_a_certificate_of_an_own_authority_is_named_and_not_tried_again(
    provider: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed)
    provider.socket = context.wrap_socket(provider.socket, server_side=True)
    base_url = f"https://localhost:{provider.server_port}/v1"
    with pytest.raises(ProviderError, match=r"1 of 5 attempts: its certificate is not .* SSL_CERT_FILE"):
        async with opened(provider, base_url=base_url):
            pass
    monkeypatch.setenv("SSL_CERT_FILE", str(signed))
    async with opened(provider, base_url=base_url) as embedder:
        assert embedder.identity.dimension == 3
    with pytest.raises(ProviderError, match=r"not valid for '127\.0\.0\.1'\.$"):
        async with opened(provider, base_url=base_url.replace("localhost", "127.0.0.1")):
            pass


async def test_a_host_name_that_leads_nowhere_is_no_silent_server(provider: Endpoint) -> None:
    with pytest.raises(ProviderError, match="5 of 5 attempts: its host name can't be resolved"):
        async with opened(provider, base_url="http://nowhere.invalid/v1"):
            pass


GOOD = vector("one")
LIES = {
    "too large for a double": listed([GOOD, [10**400, 1.0, 1.0]]),
    "shorter": listed([GOOD, [1.0, 1.0]]),
    "all of another length": listed([[1.0, 1.0], [1.0, 1.0]]),
    "too few": listed([GOOD]),
    "too many": listed([GOOD, GOOD, GOOD]),
    "none": listed([]),
    "one index twice": listed([GOOD, GOOD]).replace(b'"index": 1', b'"index": 0'),
    "no index": listed([GOOD, GOOD]).replace(b"index", b"id"),
    "nested": listed([[GOOD], [GOOD]]),
    "words": listed(["?", QUOTED]),
    "odd bytes": listed(["AAAA", "AAAA"]),
    "null": listed([None, None]),
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "no JSON": QUOTED.encode(),
    "nothing": b"",
}


FAULTS = {
    "all of another length": "they have 2",
    "too few": "it returned 1",
    "too many": "it returned 3",
    "none": "it returned 0",
    "no index": "they have no index",
}
"""What is said of a lie; of the others, nothing."""


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_is_not_the_vectors_is_an_error_and_not_asked_for_again(
    provider: Endpoint, lie: str
) -> None:
    provider.script = [provider.sending(LIES[lie])]
    async with opened(provider) as embedder:
        with pytest.raises(ProviderError) as error:
            await embedder.embed(["one", "two"], "document")
    fault = f": {FAULTS[lie]}" if lie in FAULTS else ""
    problem = f"did not return a valid vector with 3 dimensions for each of 2 texts{fault}."
    if lie in {"deep", "no JSON", "nothing"}:
        problem = "answers with something else than JSON. Check base_url."
    assert str(error.value) == f"The embedding endpoint {provider.url} (model tiny) {problem}"
    assert sizes(provider) == [2]


async def test_a_prefix_is_put_before_each_kind_of_text(provider: Endpoint) -> None:
    async with opened(provider, query_prefix="query: ", document_prefix="passage: ") as embedder:
        await embedder.embed(["a"], "query")
        await embedder.embed(["b", "c"], "document")
    assert [request["input"] for request in provider.requests[1:]] == [
        ["query: a"],
        ["passage: b", "passage: c"],
    ]


async def test_dimensions_are_asked_for_only_if_they_are_set(provider: Endpoint) -> None:
    async with opened(provider), opened(provider, dimensions=3):
        pass
    assert [request.get("dimensions") for request in provider.requests] == [None, 3]


async def test_a_model_that_does_not_heed_dimensions_is_a_wrong_setting(provider: Endpoint) -> None:
    with pytest.raises(ConfigurationError, match=r"3 dimensions, but embedder\.dimensions is 2"):
        async with opened(provider, dimensions=2):
            pass


async def test_openai_itself_needs_a_key_before_anything_is_sent() -> None:
    settings = EmbedderSettings(provider="openai", model="text-embedding-3-small", api_key_env="MY_KEY")
    with pytest.raises(ConfigurationError, match="environment variable MY_KEY"):
        async with remote_embedder(settings, {"OPENAI_API_KEY": "other"}):
            pass


@pytest.mark.parametrize("variable", ["", "OPENAI_API_KEY"])
async def test_openai_itself_needs_the_name_of_a_variable_too(variable: str) -> None:
    settings = EmbedderSettings(provider="openai", model="text-embedding-3-small", api_key_env=variable)
    with pytest.raises(ConfigurationError, match=variable or "Name its environment variable"):
        async with remote_embedder(settings, {"": "other"} if variable else {}):
            pass


async def test_another_server_needs_no_key(provider: Endpoint) -> None:
    async with opened(provider):
        assert provider.keys == ["Bearer none"]


@pytest.mark.parametrize(
    ("variable", "advice"),
    [("", "Name its environment variable"), ("MY_KEY", "Set the environment variable MY_KEY")],
)
async def test_a_server_that_wants_a_key_is_not_said_to_refuse_one(
    provider: Endpoint, variable: str, advice: str
) -> None:
    provider.script = [provider.failing(401)]
    settings = EmbedderSettings(provider="openai", model="tiny", base_url=provider.url, api_key_env=variable)
    with pytest.raises(ProviderError, match=NO_KEY_SENT + advice):
        async with remote_embedder(settings, {"OPENAI_API_KEY": "other"}):
            pass
    assert provider.keys == ["Bearer none"]


async def test_the_tokens_are_estimated_and_what_wordpiece_does_not_know_counts_by_character(
    provider: Endpoint,
) -> None:
    text = "plain words ไทย " + "x" * 150
    async with opened(provider) as embedder:
        spans = embedder.token_spans(text)
    assert [text[start:end] for start, end in spans] == ["plain", "words", *"ไทย", *"x" * 150]


async def test_the_window_is_max_tokens_less_the_prefix(provider: Endpoint) -> None:
    async with opened(provider, max_tokens=100, document_prefix="passage: ") as embedder:
        assert embedder.window == 98


async def test_what_is_beyond_the_window_is_not_sent(provider: Endpoint) -> None:
    async with opened(provider, max_tokens=64, query_prefix="Q ") as embedder:
        await embedder.embed(["word " * 64, "word " * 65], "query")
    assert provider.requests[1]["input"] == ["Q " + "word " * 64, "Q " + ("word " * 64).rstrip()]


async def test_a_batch_has_no_more_tokens_than_allowed_and_at_least_one_text(
    provider: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.models.embed.remote_embedder.BATCH_TOKENS", 4)
    async with opened(provider) as embedder:
        await embedder.embed(["a b", "a b", "a", "a b c d e f", "a"], "document")
    assert sizes(provider) == [2, 1, 1, 1]


async def test_batches_that_grew_into_the_rate_limit_again_grow_half_as_fast(provider: Endpoint) -> None:
    limit = provider.failing(429, **{"Retry-After": "0"})
    provider.script = [limit, *[honest] * 8, limit, honest]
    async with opened(provider, batch_texts=2) as embedder:
        await embedder.embed(["x"] * 40, "document")
    assert sizes(provider) == [2, *[1] * 8, 2, *[1] * 16, *[2] * 8]


async def test_the_tokens_that_the_provider_reports_are_counted(provider: Endpoint) -> None:
    def reporting(request: dict[str, Any]) -> Reply:
        status, headers, body = provider.embedding(request)
        usage = {"usage": {"prompt_tokens": 7, "total_tokens": 7}}
        return status, headers, json.dumps(json.loads(body) | usage).encode()

    provider.script = [reporting, reporting, provider.embedding]
    async with opened(provider, probe=reporting, batch_texts=2) as embedder:
        await embedder.embed(["a", "b", "c", "d", "e"], "document")
    sent = embedder.model.sent
    assert (sent.texts, sent.tokens, sent.unreported) == (5, 14, 1)


@pytest.mark.parametrize(("seconds", "most"), [(20, 20), (-60, 0), (3600, 30)])
def test_a_server_can_name_the_moment_of_the_next_attempt(seconds: int, most: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    assert most - 2 <= delay_after(1, date) <= most


@pytest.mark.parametrize(
    ("retry_after", "delay"), [("7", 7), ("3600", 30), ("", 0.5), ("soon", 0.5), ("-1", 0.5), ("1e9", 0.5)]
)
def test_a_server_can_ask_for_thirty_seconds_at_most(retry_after: str, delay: float) -> None:
    assert delay <= delay_after(1, retry_after) <= delay + 0.25


def test_the_delay_doubles_with_every_attempt() -> None:
    delays = [delay_after(attempt, "") for attempt in (1, 2, 3, 4)]
    assert all(base <= delay <= base + 0.25 for base, delay in zip((0.5, 1, 2, 4), delays, strict=True))

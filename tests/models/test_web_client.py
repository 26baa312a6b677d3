"""Which proxy a request goes through, and what becomes of variables that can't be used."""

from __future__ import annotations

import gzip
import sys

import httpx2
import pytest

from rag.errors import ConfigurationError
from rag.models.web_client import UnreachableError, blocking_client, client, proxy_for
from tests.endpoint import running

pytestmark = pytest.mark.anyio

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("variables", "url", "shown"),
    [
        ({}, "http://localhost/v1", None),
        ({"HTTP_PROXY": "proxy.corp:3128"}, "http://10.0.0.1/", "HTTP_PROXY (http://proxy.corp:3128)"),
        ({"HTTP_PROXY": "proxy.corp:3128"}, "https://10.0.0.1/", None),
        ({"https_proxy": "http://a", "ALL_PROXY": "http://b"}, "https://c.d/", "https_proxy (http://a)"),
        ({"https_proxy": "http://a", "ALL_PROXY": "http://b"}, "http://c.d/", "ALL_PROXY (http://b)"),
        ({"all_proxy": "socks5://ann:p@ss@b:1"}, "http://c.d/", "all_proxy (socks5://b:1)"),
        ({"all_proxy": "ann:p://ss@b:1"}, "http://c.d/", "all_proxy (http://b:1)"),
        ({"all_proxy": "http://ann:pass\n@b:1"}, "http://c.d/", "all_proxy (http://b:1)"),
    ],
)
def test_the_proxy_is_that_of_the_scheme_or_else_of_all_and_its_password_stays_secret(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, shown: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(url)
    assert (proxy and str(proxy)) == shown


@pytest.mark.parametrize(
    ("exceptions", "url", "goes_direct"),
    [
        ("*", "http://a.corp/", True),
        ("corp", "http://a.corp/", True),
        (" x, .Corp ", "http://a.corp/", True),
        ("*.corp", "http://a.corp/", True),
        ("http://a.corp", "http://a.corp/", True),
        ("a.corp:8080", "http://a.corp:8080/", True),
        ("a.corp:8080", "http://a.corp/", False),
        ("orp", "http://a.corp/", False),
        ("localhost", "http://127.0.0.1/", False),
        ("127.0.0.0/8", "http://127.0.0.1:11434/", True),
        ("127.0.0.1", "http://127.0.0.1:11434/", True),
        ("::1", "http://[::1]:11434/", True),
        ("[::1]", "http://[::1]:11434/", True),
        (",", "http://a.corp/", False),
    ],
)
def test_no_proxy_excepts_names_domains_addresses_and_networks(
    monkeypatch: pytest.MonkeyPatch, exceptions: str, url: str, *, goes_direct: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert (proxy_for(url) is None) == goes_direct


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:1"),
        ("ALL_PROXY", "socks5h://127.0.0.1:1"),
        ("all_proxy", "socks://127.0.0.1:1080/"),
        ("HTTPS_PROXY", "http://proxy.corp:port"),
        ("SSL_CERT_FILE", "/nonexistent.pem"),
        ("SSL_CERT_FILE", __file__),
    ],
)
async def test_an_unusable_variable_fails_the_request_that_needs_it_and_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)  # as where it isn't installed
    monkeypatch.setenv(name, value)
    with pytest.raises(UnreachableError) as error:
        async with client() as web:
            await web.get("https://a.invalid/")
    assert f"{name} ({value})" in str(error.value)
    assert error.value.lasting
    with pytest.raises(ConfigurationError):
        blocking_client()


async def test_an_unusable_variable_that_the_address_does_not_need_harms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks4://a")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    async with client() as web:
        with pytest.raises(httpx2.ConnectError, match="attempts failed"):
            await web.get("http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("body", "encoding", "fits"),
    [  # on the wire, the last ones have 4,000 and 29 bytes
        (b"x" * 4_000, "identity", True),
        (b"x" * 4_000, "", True),
        (b"x" * 4_001, "identity", False),
        (gzip.compress(b"x" * 90, mtime=0), "gzip", True),
        (gzip.compress(b"x" * 90, mtime=0), "Identity, gzip", True),
        (gzip.compress(b"x" * 4_000_000, mtime=0), "gzip", False),
        (gzip.compress(gzip.compress(b"", mtime=0), mtime=0), "gzip, gzip", False),
    ],
)
async def test_an_answer_takes_no_more_memory_than_it_may(body: bytes, encoding: str, *, fits: bool) -> None:
    with running() as provider:
        provider.script = [lambda _request: (200, {"Content-Encoding": encoding}, body)]
        async with client(max_bytes=40_000 if "gzip" in encoding else 4_000) as web:
            if fits:
                assert (await web.post(provider.url, json={})).status_code == 200
            else:
                with pytest.raises(UnreachableError, match="too large"):
                    await web.post(provider.url, json={})
    assert provider.headers[0]["Accept-Encoding"] == "identity"

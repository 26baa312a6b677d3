"""Sign-in by the official client with a certified OpenID provider (oidc-provider) as the desk's issuer.

It goes all the way: from the first 401 over discovery, registration and the provider's login form to what the
user's groups may see. A `twist` makes the provider sign what no provider should.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import subprocess
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio
import httpx2
import jwt
import pytest
from anyio import to_thread
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from rag.access.keys import SEARCH_SCOPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    from tests.clients.conftest import Node
    from tests.conftest import Scripts
    from tests.server.conftest import Remote

pytestmark = pytest.mark.slow

ISSUER_SECONDS = 60  # the provider listens within one
HEAL_SECONDS = 90  # the keys are fetched at most every thirty seconds
PUBLIC = "https://desk.example.com"
RESOURCE = f"{PUBLIC}/mcp"
HOST = {"Host": "desk.example.com"}
REDIRECT = "http://127.0.0.1:1/callback"
SECRET = "a-secret-of-thirty-two-characters"  # noqa: S105 of a provider that lives for a test
BY_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ANN, BOB = {"tenant": "Acorn Ltd", "groups": ["hr"]}, {"tenant": "Acorn Ltd", "groups": []}
EVERYTHING, OPEN = {"open", "secret"}, {"open"}
SCOPES = ["papers:read", "nothing:read"]


def _key(name: str) -> tuple[rsa.RSAPrivateKey, dict[str, Any]]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key, {**json.loads(RSAAlgorithm.to_jwk(key)), "kid": name, "use": "sig", "alg": "RS256"}


def _public(jwk: dict[str, Any]) -> dict[str, Any]:
    return {name: jwk[name] for name in ("kty", "n", "e", "kid", "use", "alg")}


(_, ONE), (_, TWO) = _key("one"), _key("two")
IDP, IDP_JWK = _key("idp")
ROBOT, ROBOT_JWK = _key("robot")


def _client(id_: str, *grants: str, **more: object) -> dict[str, Any]:
    secret = {} if "jwks" in more else {"client_secret": SECRET}
    return (
        {"client_id": id_, "grant_types": grants, "redirect_uris": [], "response_types": []} | secret | more
    )


BACK = f"{PUBLIC}/passages/sign-in"
CLIENTS = [
    {
        "client_id": "pages",
        "grant_types": ["authorization_code"],
        "redirect_uris": [BACK],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    },
    _client("report", "client_credentials"),
    _client("unlisted", "client_credentials"),
    _client("agent", BY_ASSERTION, token_endpoint_auth_method="client_secret_post"),  # noqa: S106 no secret
    _client(
        "robot",
        "client_credentials",
        token_endpoint_auth_method="private_key_jwt",  # noqa: S106 the same
        jwks={"keys": [_public(ROBOT_JWK)]},
    ),
]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Issuer:
    """The provider, what it is told by its file, and the process while it runs."""

    node: Node
    file: Path
    port: int = field(default_factory=_free_port)
    keys: list[dict[str, Any]] = field(default_factory=lambda: [ONE])
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tell(self, *, ttl: int = 600, twists: dict[str, Any] | None = None, **people: dict[str, Any]) -> None:
        """What holds for the tokens from now on. Tokens of clients claim what ann's do."""
        directory = {
            "port": self.port,
            "keys": self.keys,
            "idp": [_public(IDP_JWK)],
            "clients": CLIENTS,
            "scopes": [SEARCH_SCOPE, *SCOPES],
            "ttl": ttl,
        }
        directory["people"] = {"ann": ANN, "bob": BOB, "": ANN} | people
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(directory | {"twists": twists or {}}))
        new.replace(self.file)

    def start(self) -> None:
        self.tell()
        program, script = self.node.program, self.node.folder / "issuer.mjs"
        self.process = subprocess.Popen(
            [program, script, self.file],
            cwd=self.node.folder,
            env=self.node.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout
        if "listening" not in self.process.stdout.readline():
            self.stop()
            pytest.skip("this Node can't run the OpenID provider; install Node.js 22")

    def stop(self) -> None:
        if self.process:
            assert self.process.stdout
            self.process.kill()
            self.process.wait(ISSUER_SECONDS)
            self.process.stdout.close()
            self.process = None

    def token(self, client: str = "report", resource: str = RESOURCE, scope: str = SEARCH_SCOPE) -> str:
        """An access token of a client for itself."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        answer = httpx2.post(f"{self.url}/token", data=form, auth=(client, SECRET))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def twisted(self, header: dict[str, Any] | None = None, **payload: object) -> str:
        """As `token`, with another header and other claims: the provider itself signs them."""
        self.tell(twists={"header": header or {}, "payload": payload})
        try:
            return self.token()
        finally:
            self.tell()


@pytest.fixture(scope="module")
def paper_folder(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a document for everybody and one for the group hr."""
    folder = tmp_path_factory.mktemp("signin")
    for title, allow in (("open", ()), ("secret", ("--allow", "group:hr"))):
        file = folder / f"{title}.md"
        file.write_text(f"# {title}\n\nA pendulum, {title}.\n")
        run = scripts.admin("ingest", file, *allow, "--data", folder / "data")
        assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture(scope="module")
def stopped(provider: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    issuer = Issuer(provider, tmp_path_factory.mktemp("issuer") / "told.json")
    yield issuer
    issuer.stop()


@pytest.fixture(scope="module")
def config(stopped: Issuer, paper_folder: Path) -> Path:
    file = paper_folder / "config.toml"
    listed = "\n".join(
        f'[oauth.clients.{name}]\ntenant = "default"\nuser = "{name}"\ngroups = {json.dumps(groups)}'
        for name, groups in {"report": ["hr"], "robot": []}.items()
    )
    file.write_text(
        f'[http]\npublic_url = "{PUBLIC}"\nauthentication = ["oauth"]\n'
        f'[oauth]\nissuer = "{stopped.url}"\njwks_url = "{stopped.url}/jwks"\npage_client = "pages"\n'
        f'tenants = {{ "Acorn Ltd" = "default" }}\n{listed}\n'
    )
    return file


@pytest.fixture(scope="module")
def early(stopped: Issuer, config: Path, lasting_listen: Callable[..., Remote]) -> Remote:
    """A server that was asked before its issuer was there."""
    assert stopped.process is None
    remote = lasting_listen(config.parent / "data", config=str(config))
    unsure = remote.post(jwt.encode({}, IDP, algorithm="RS256", headers={"kid": "one"}), **HOST)
    assert (unsure.status_code, unsure.headers["Retry-After"]) == (503, "30")
    return remote


@pytest.fixture(scope="module")
def issuer(early: Remote, stopped: Issuer) -> Issuer:
    assert early
    stopped.start()
    return stopped


@pytest.fixture(scope="module")
def desk(issuer: Issuer, config: Path, lasting_listen: Callable[..., Remote]) -> Remote:
    assert issuer.process
    return lasting_listen(config.parent / "data", config=str(config))


@pytest.fixture(scope="module")
def bound(issuer: Issuer, config: Path, lasting_listen: Callable[..., Remote]) -> Remote:
    """A server that needs one of two scopes; a token with both reaches nothing."""
    assert issuer.process
    papers, nothing = SCOPES
    tables = f'[oauth.scopes."{papers}"]\n[oauth.scopes."{nothing}"]\ncollections = ["nothing"]\n'
    file = config.with_name("bound.toml")
    file.write_text(config.read_text() + tables)
    return lasting_listen(config.parent / "data", config=str(file))


class Proxy(httpx2.AsyncBaseTransport):
    """Stands for TLS and the proxy: what goes to the public address arrives at the server."""

    def __init__(self, remote: Remote) -> None:
        self._port = remote.port
        self._network = httpx2.AsyncHTTPTransport()
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if request.url.host == urlsplit(PUBLIC).hostname:
            request = httpx2.Request(
                request.method,
                request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port),
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        return await self._network.handle_async_request(request)

    async def aclose(self) -> None:
        await self._network.aclose()


@dataclass
class Memory:
    """What a client remembers between its starts."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    @property
    def token(self) -> str:
        assert self.tokens
        return self.tokens.access_token


class Person:
    """Somebody with a browser, who signs in where the client sends them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._url = ""
        self.signed_in = 0

    def auth(self, memory: Memory) -> OAuthClientProvider:
        metadata = OAuthClientMetadata.model_validate(
            {"redirect_uris": [REDIRECT], "client_name": "Test", "token_endpoint_auth_method": "none"}
        )
        return OAuthClientProvider(RESOURCE, metadata, memory, self._open, self._sign_in)

    async def _open(self, url: str) -> None:
        self._url = url

    async def _sign_in(self) -> AuthorizationCodeResult:
        self.signed_in += 1
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(self._url)
            while not (address := page.headers.get("location", "")).startswith(REDIRECT):
                if address:
                    page = await browser.get(urljoin(str(page.url), address))
                else:
                    page = await self._filled_in(browser, page)
        answer = {name: value for name, (value,) in parse_qs(urlsplit(address).query).items()}
        return AuthorizationCodeResult.model_validate(answer)

    async def open(self, browser: httpx2.AsyncClient, url: str, *, until: str = "") -> httpx2.Response:
        """The page at an address, after a sign-in if it needs one; or the redirect to an address `until`."""
        page = await browser.get(url)
        while True:
            address = urljoin(str(page.url), page.headers.get("location", ""))
            if page.is_redirect and until and address.startswith(until):
                return page
            if page.is_redirect:
                page = await browser.get(address)
            elif 'name="prompt"' in page.text:
                page = await self._filled_in(browser, page)
            else:
                return page

    async def _filled_in(self, browser: httpx2.AsyncClient, page: httpx2.Response) -> httpx2.Response:
        assert page.status_code == 200, page.text
        form = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
        assert form
        assert prompt
        fields = {"prompt": prompt[1], "login": self._name, "password": "any"}
        return await browser.post(urljoin(str(page.url), form[1]), data=fields)


@asynccontextmanager
async def connected(proxy: Proxy, auth: httpx2.Auth) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(transport=proxy, auth=auth, timeout=ISSUER_SECONDS) as http,
        Client(streamable_http_client(RESOURCE, http_client=http)) as client,
    ):
        yield client


async def _titles(client: Client) -> set[str]:
    reply = await client.call_tool("search", {"query": "pendulum"})
    assert reply.structured_content
    return {hit["cite_as"] for hit in reply.structured_content["results"]}


def _claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


@pytest.mark.anyio
async def test_people_sign_in_from_nothing_and_see_what_their_groups_may(
    issuer: Issuer, desk: Remote
) -> None:
    for person, titles in (("ann", EVERYTHING), ("bob", OPEN)):
        proxy, memory = Proxy(desk), Memory()
        async with connected(proxy, Person(person).auth(memory)) as client:
            assert await _titles(client) == titles
        steps = [
            "POST /mcp",
            "GET /.well-known/oauth-protected-resource/mcp",
            "GET /.well-known/oauth-authorization-server",
            "POST /reg",
            "POST /token",
            "POST /mcp",
        ]
        assert [step for step in dict.fromkeys(proxy.asked) if step in steps] == steps[:-1]
        token = _claims(memory.token)
        assert (token["iss"], token["aud"], token["sub"]) == (issuer.url, RESOURCE, person)
        assert jwt.get_unverified_header(memory.token)["typ"] == "at+jwt"
        line = next(line for line in reversed(desk.log()) if line.get("call") == "search")
        assert (line["user"], line["oauth_client"]) == (person, token["client_id"])


@pytest.mark.anyio
async def test_people_sign_in_where_scopes_are_bound_and_a_client_asks_for_no_more_than_it_needs(
    bound: Remote,
) -> None:
    ann, memory = Person("ann"), Memory()
    async with connected(Proxy(bound), ann.auth(memory)) as client:
        assert await _titles(client) == EVERYTHING
    assert ann.signed_in == 1
    assert _claims(memory.token)["scope"].split() == [SEARCH_SCOPE, "papers:read"]


@pytest.mark.anyio
async def test_a_client_whose_token_lacks_a_scope_that_is_bound_by_now_asks_for_it(
    desk: Remote, bound: Remote
) -> None:
    bob, memory = Person("bob"), Memory()
    async with connected(Proxy(desk), bob.auth(memory)) as client:
        assert await _titles(client) == OPEN
    memory.client = None  # the provider gives a registered client no other scopes than it registered for
    async with connected(Proxy(bound), bob.auth(memory)) as client:
        assert await _titles(client) == OPEN
    assert bob.signed_in == 2


@pytest.mark.anyio
async def test_who_may_not_enter_reads_why_and_signs_in_once(issuer: Issuer, bound: Remote) -> None:
    ann = Person("ann")
    issuer.tell(ann=ANN | {"tenant": "Unknown Ltd"})
    try:
        with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="names no tenant"), flatten_subgroups=True):
            async with connected(Proxy(bound), ann.auth(Memory())):
                pass
    finally:
        issuer.tell()
    assert ann.signed_in == 1


async def _citations(desk: Remote, token: str) -> dict[str, str]:
    """The addresses of the pages of all that a token's holder finds."""
    arguments = {"query": "pendulum", "limit": 50}
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": arguments},
    }
    reply = await to_thread.run_sync(partial(desk.post, token, body, **HOST))
    return {hit["cite_as"]: hit["url"] for hit in reply.json()["result"]["structuredContent"]["results"]}


@pytest.mark.anyio
async def test_a_citation_opens_in_a_browser_for_whom_the_issuer_vouches_and_for_nobody_else(
    issuer: Issuer, desk: Remote
) -> None:
    urls = await _citations(desk, issuer.token())
    assert set(urls) == EVERYTHING
    async with (
        httpx2.AsyncClient(transport=Proxy(desk)) as of_ann,
        httpx2.AsyncClient(transport=Proxy(desk)) as of_bob,
    ):
        ann, bob = Person("ann"), Person("bob")
        page = await ann.open(of_ann, urls["secret"])
        assert page.status_code == 200
        assert page.url == urls["secret"]
        assert re.search(r"<mark[^>]*>[^<]*A pendulum, secret", page.text)
        again = await of_ann.get(urls["open"].partition("#")[0])  # without another sign-in
        assert again.status_code == 200
        assert (await bob.open(of_bob, urls["secret"])).status_code == 404
        assert (await bob.open(of_bob, urls["open"])).status_code == 200
        line = next(line for line in reversed(desk.log()) if line.get("call") == "page")
        assert (line["user"], line["outcome"]) == ("bob", "answered")


@pytest.mark.anyio
async def test_a_citation_opens_for_whom_it_was_found_where_scopes_are_bound(
    issuer: Issuer, bound: Remote
) -> None:
    urls = await _citations(bound, issuer.token(scope=f"{SEARCH_SCOPE} papers:read"))
    async with httpx2.AsyncClient(transport=Proxy(bound)) as browser:
        assert (await Person("ann").open(browser, urls["open"])).status_code == 200


@pytest.mark.anyio
async def test_no_sign_in_to_the_pages_is_taken_over_or_repeated(issuer: Issuer, desk: Remote) -> None:
    url = (await _citations(desk, issuer.token()))["open"]
    async with (
        httpx2.AsyncClient(transport=Proxy(desk)) as browser,
        httpx2.AsyncClient(transport=Proxy(desk)) as victim,
    ):
        back = await Person("ann").open(browser, url, until=BACK)
        address = back.headers["location"]
        assert (await victim.get(address)).status_code == 403  # who didn't begin this sign-in
        assert (await browser.get(address.replace("state=", "state=x"))).status_code == 403
        begun = await browser.get(address)
        assert begun.headers["location"].startswith("/passages/")
        assert "access_token" not in str(begun.headers.get("location"))
        (cookie,) = [value for value in begun.headers.get_list("set-cookie") if "refdesk-token" in value]
        assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/passages"} <= set(cookie.split("; "))
        assert (await browser.get(address)).status_code == 403  # a second time
        browser.cookies.clear()
        browser.cookies.set("__Secure-refdesk-token", "forged", domain="desk.example.com", path="/passages")
        refused = await browser.get(url)
        assert refused.headers["location"].startswith(issuer.url)


@pytest.mark.anyio
async def test_a_token_that_is_not_accepted_ends_the_sign_in_with_the_reason(
    issuer: Issuer, desk: Remote
) -> None:
    url = (await _citations(desk, issuer.token()))["open"]
    for claims, why in (({"tenant": "Unknown Ltd"}, "names no tenant"), ({"scope": ""}, "Required scope")):
        issuer.tell(twists={"payload": claims})
        try:
            async with httpx2.AsyncClient(transport=Proxy(desk)) as browser:
                refused = await Person("ann").open(browser, url)
        finally:
            issuer.tell()
        assert refused.status_code == 403
        assert why in refused.text


@pytest.mark.anyio
async def test_a_group_that_ann_loses_counts_with_her_next_token_and_a_revoked_sign_in_with_none(
    issuer: Issuer, desk: Remote
) -> None:
    issuer.tell(ttl=1)
    memory, ann = Memory(), Person("ann")
    async with connected(Proxy(desk), ann.auth(memory)) as client:
        assert await _titles(client) == EVERYTHING
        issuer.tell(ttl=1, ann=ANN | {"groups": ["it"]})
        await anyio.sleep(1.1)  # the client refreshes what has expired
        assert await _titles(client) == OPEN
        assert ann.signed_in == 1
        assert memory.tokens
        assert memory.client
        revoked = {"token": memory.tokens.refresh_token, "client_id": memory.client.client_id}
        assert httpx2.post(f"{issuer.url}/token/revocation", data=revoked).status_code == 200
        issuer.tell()
        await anyio.sleep(1.1)
        assert await _titles(client) == EVERYTHING
        assert ann.signed_in == 2  # for a revoked sign-in can't be refreshed


@pytest.mark.anyio
async def test_clients_sign_in_by_themselves_if_the_settings_say_who_they_are(
    issuer: Issuer, desk: Remote
) -> None:
    report = ClientCredentialsOAuthProvider(RESOURCE, Memory(), "report", SECRET, issuer=issuer.url)
    async with connected(Proxy(desk), report) as client:
        assert await _titles(client) == EVERYTHING
        assert client.server_capabilities.extensions
        assert "io.modelcontextprotocol/oauth-client-credentials" in client.server_capabilities.extensions
    pem = ROBOT.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    signed = SignedJWTParameters(
        issuer="robot", subject="robot", signing_key=pem, signing_algorithm="RS256"
    ).create_assertion_provider()
    robot = PrivateKeyJWTOAuthProvider(RESOURCE, Memory(), "robot", signed, issuer=issuer.url)
    async with connected(Proxy(desk), robot) as client:
        assert await _titles(client) == OPEN
    unlisted = issuer.token("unlisted")
    assert _claims(unlisted)["groups"] == ["hr"]  # and yet
    refused = desk.post(unlisted, **HOST)
    assert refused.status_code == 403
    assert "oauth.clients" in refused.json()["error"]["message"]


@pytest.mark.anyio
async def test_an_identity_provider_vouches_for_people_without_a_sign_in(
    issuer: Issuer, desk: Remote
) -> None:
    assertions: list[str] = []

    async def vouch(audience: str, resource: str) -> str:
        now = int(time.time())
        claims = {
            "iss": "https://idp.example.com",
            "aud": audience,
            "sub": "ann",
            "client_id": "agent",
            "resource": resource,
            "iat": now,
            "exp": now + 300,
            "jti": str(len(assertions)),
        }
        headers = {"kid": "idp", "typ": "oauth-id-jag+jwt"}
        assertions.append(jwt.encode(claims, IDP, algorithm="RS256", headers=headers))
        return assertions[-1]

    memory = Memory()
    auth = IdentityAssertionOAuthProvider(RESOURCE, memory, "agent", SECRET, issuer.url, vouch)
    async with connected(Proxy(desk), auth) as client:
        assert await _titles(client) == EVERYTHING
    assert (_claims(memory.token)["sub"], _claims(memory.token)["client_id"]) == ("ann", "agent")
    assert desk.post(memory.token, **HOST).status_code == 200
    assert desk.post(assertions[0], **HOST).status_code == 401  # only the issuer takes an assertion


def test_the_settings_are_checked_against_what_the_issuer_says_of_itself(
    issuer: Issuer, config: Path, scripts: Scripts
) -> None:
    run = scripts.admin("config", "check", "--config", config, "--data", config.parent / "data")
    assert run.returncode == 0, run.stdout
    assert f"issuer: 1 signing keys at {issuer.url}/jwks" in run.stdout
    assert "clients can register by themselves; sign-in that an identity provider vouches for" in run.stdout
    assert "(ID-JAG): yes" in run.stdout


def _in(seconds: int) -> int:
    return int(time.time()) + seconds


def _part(data: object) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _signed_with_the_public_key(issuer: Issuer) -> str:
    (jwk,) = httpx2.get(f"{issuer.url}/jwks").json()["keys"]
    pem = jwt.PyJWK(jwk).key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    unsigned = f"{_part({'alg': 'HS256', 'typ': 'at+jwt', 'kid': 'one'})}.{_part(_claims(issuer.token()))}"
    return f"{unsigned}.{_part(hmac.new(pem, unsigned.encode(), hashlib.sha256).digest())}"


def _of_another_issuer(issuer: Issuer) -> str:
    with ExitStack() as stack:
        stranger = Issuer(issuer.node, issuer.file.with_name("other.json"), keys=[TWO | {"kid": "one"}])
        stack.callback(stranger.stop)
        stranger.start()
        return stranger.twisted(iss=issuer.url)


WRONG: dict[str, tuple[int, str, Callable[[Issuer], str]]] = {
    "for another server": (
        401,
        "Audience",
        lambda issuer: issuer.token(resource="https://other.example/mcp"),
    ),
    "expired": (401, "Expired", lambda issuer: issuer.twisted(exp=_in(-40), iat=_in(-600))),
    "from a clock that is ahead": (401, "ImmatureSignature", lambda issuer: issuer.twisted(iat=_in(60))),
    "by another name": (401, "Issuer", lambda issuer: issuer.twisted(iss=f"{issuer.url}/")),
    "by another provider": (401, "Signature", _of_another_issuer),
    "signed with the public key": (401, "not signed with a key of the issuer", _signed_with_the_public_key),
    "without the scope": (403, "Required scope", lambda issuer: issuer.token(scope="")),
    "bound to a key": (401, "(cnf)", lambda issuer: issuer.twisted(cnf={"jkt": "x"})),
    "for two days": (401, "valid for too long", lambda issuer: issuer.twisted(exp=_in(48 * 3600))),
    "of another type": (401, "type (typ)", lambda issuer: issuer.twisted({"typ": "logout+jwt"})),
    "with some of the groups": (
        403,
        "all groups of its user",
        lambda issuer: issuer.twisted(sub="ann", _claim_names={"groups": "src1"}),
    ),
}
RIGHT: dict[str, Callable[[Issuer], str]] = {
    "as it is": lambda issuer: issuer.token(),
    "by a clock that is a little behind": lambda issuer: issuer.twisted(exp=_in(-10), iat=_in(-600)),
    "by a clock that is a little ahead": lambda issuer: issuer.twisted(iat=_in(15)),
    "for two servers": lambda issuer: issuer.twisted(aud=[RESOURCE, "https://other.example/mcp"]),
    "of a user": lambda issuer: issuer.twisted(sub="ann"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_token_that_is_not_for_this_desk_is_refused(issuer: Issuer, desk: Remote, name: str) -> None:
    status, why, make = WRONG[name]
    refused = desk.post(make(issuer), **HOST)
    assert refused.status_code == status
    lines = [line for line in desk.log() if line["message"] == "refused" and why in line.get("why", "")]
    assert lines or why in refused.text, desk.log()[-2:]
    assert desk.post(issuer.token(), **HOST).status_code == 200


@pytest.mark.parametrize("name", RIGHT)
def test_a_token_that_is_for_this_desk_is_accepted(issuer: Issuer, desk: Remote, name: str) -> None:
    assert desk.post(RIGHT[name](issuer), **HOST).status_code == 200


def test_the_issuer_may_go_come_back_and_sign_with_a_new_key(
    issuer: Issuer, early: Remote, desk: Remote
) -> None:
    """A server that knows no key yet serves as soon as the issuer is there."""
    old = issuer.token()
    assert desk.post(old, **HOST).status_code == 200
    assert _heals(early, old)
    issuer.stop()
    try:
        assert desk.post(old, **HOST).status_code == 200
    finally:
        issuer.keys = [TWO, ONE]
        issuer.start()
    new = issuer.token()
    assert jwt.get_unverified_header(new)["kid"] == "two"
    assert _heals(desk, new)
    assert desk.post(old, **HOST).status_code == 200


def _heals(remote: Remote, token: str) -> bool:
    ends = time.monotonic() + HEAL_SECONDS
    while time.monotonic() < ends:
        if remote.post(token, **HOST).status_code == 200:
            return True
        time.sleep(1)
    return False

"""Tokens of an issuer: only one that is whole, in time, and for this resource, says who asks."""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

import server.oauth
from rag.errors import ProviderError
from rag.records import Principal
from rag.settings import SEARCH_SCOPE, OAuthSettings
from server.identity import Caller
from server.oauth import JwtVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import Remote

ISSUER = "https://issuer.example.com/"
RESOURCE = "https://desk.example.com/mcp"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}
ANN = Principal("acorn", "ann", frozenset({"hr", "it"}))


def _jwk(algorithm: Any, key: Any, id_: str) -> dict[str, Any]:  # noqa: ANN401 any of three
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": id_, "use": "sig"}


JWKS = [_jwk(RSAAlgorithm, RSA, "RS256"), _jwk(ECAlgorithm, EC, "ES256"), _jwk(OKPAlgorithm, ED, "EdDSA")]


@dataclass
class Issuer:
    """An issuer's address for its keys: what it answers, and how often it was asked."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: list(JWKS))
    status: int = 200
    asked: int = 0


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked += 1
            body = json.dumps({"keys": made.keys}).encode()
            self.send_response(made.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{listening.server_port}/jwks"
        yield made
        listening.shutdown()


@pytest.fixture
def verifier(issuer: Issuer) -> JwtVerifier:
    settings = OAuthSettings(issuer=ISSUER, jwks_url=issuer.url, tenants={"Acorn Ltd": "acorn"})
    return JwtVerifier(settings, RESOURCE)


def _claims(**others: object) -> dict[str, Any]:
    now = _now()
    usual: dict[str, Any] = {
        "iss": ISSUER,
        "aud": RESOURCE,
        "sub": "ann",
        "iat": now,
        "exp": now + 600,
        "scope": f"openid {SEARCH_SCOPE}",
        "tenant": "Acorn Ltd",
        "groups": ["hr", "it"],
    }
    return {name: value for name, value in (usual | others).items() if value is not None}


def _token(
    algorithm: str = "RS256",
    key: rsa.RSAPrivateKey | None = None,
    headers: dict[str, Any] | None = None,
    **claims: object,
) -> str:
    given = {"kid": algorithm} | (headers or {})
    return jwt.encode(_claims(**claims), key or PRIVATE[algorithm], algorithm=algorithm, headers=given)


def _now() -> int:
    return int(time.time())


def _unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(_claims()).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


PUBLIC_PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def _signed_with_the_public_key() -> str:
    import hashlib  # noqa: PLC0415 for this one
    import hmac  # noqa: PLC0415 the same

    unsigned = _unsigned({"alg": "HS256", "kid": "RS256", "typ": "JWT"}).rstrip(".")
    signature = hmac.new(PUBLIC_PEM, unsigned.encode(), hashlib.sha256).digest()
    return f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.anyio
async def test_a_valid_token_says_who_asks(verifier: JwtVerifier, algorithm: str) -> None:
    caller = await verifier.verify_token(_token(algorithm))
    assert isinstance(caller, Caller)
    assert caller.principal == ANN
    assert SEARCH_SCOPE in caller.scopes
    assert (caller.resource, caller.token, caller.subject) == (RESOURCE, "", "ann")
    assert caller.expires_at
    assert caller.expires_at > time.time()


OTHER_JWK = _jwk(RSAAlgorithm, OTHER_RSA, "RS256")
WRONG: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "no JWT": lambda: "a.b.c",
    "alg none": lambda: _unsigned({"alg": "none", "kid": "RS256"}),
    "alg None in capitals": lambda: _unsigned({"alg": "NONE", "kid": "RS256"}),
    "HS256 with the public key": _signed_with_the_public_key,
    "no kid": lambda: jwt.encode(_claims(), RSA, algorithm="RS256"),
    "unknown kid": lambda: _token(headers={"kid": "other"}),
    "kid that is a path": lambda: _token(headers={"kid": "../../etc/passwd"}),
    "kid of another key": lambda: _token(headers={"kid": "ES256"}),
    "kid that is no string": lambda: _unsigned({"alg": "RS256", "kid": 5}),
    "another's signature": lambda: _token(key=OTHER_RSA),
    "its own key in the header": lambda: _token(key=OTHER_RSA, headers={"jwk": OTHER_JWK}),
    "its own keys' address": lambda: _token(key=OTHER_RSA, headers={"jku": "http://127.0.0.1:1/jwks"}),
    "RS512": lambda: jwt.encode(_claims(), RSA, algorithm="RS512", headers={"kid": "RS256"}),
    "critical extension": lambda: _token(headers={"crit": ["x"], "x": 1}),
    "expired": lambda: _token(exp=_now() - 60, iat=_now() - 600),
    "no exp": lambda: _token(exp=None),
    "exp 0": lambda: _token(exp=0),
    "exp as a string": lambda: _token(exp=str(_now() + 600)),
    "exp in another age": lambda: _token(exp=10**18),
    "longer than a day": lambda: _token(exp=_now() + 25 * 3600),
    "not yet": lambda: _token(nbf=_now() + 600),
    "from the future": lambda: _token(iat=_now() + 600, exp=_now() + 900),
    "no iat": lambda: _token(iat=None),
    "for another": lambda: _token(aud="https://other.example.com/mcp"),
    "for a longer name": lambda: _token(aud=RESOURCE + "x"),
    "for the beginning of the name": lambda: _token(aud="https://desk.example.com"),
    "for nobody": lambda: _token(aud=None),
    "by another issuer": lambda: _token(iss="https://evil.example.com/"),
    "by an issuer with another end": lambda: _token(iss=ISSUER.rstrip("/")),
    "by nobody": lambda: _token(iss=None),
    "without a subject": lambda: _token(sub=None),
    "with a number for a subject": lambda: _token(sub=5),
    "too long": lambda: _token(more="x" * 9000),
    "cut": lambda: _token()[:-2],
    "changed": lambda: _token().replace(".", ".e", 1),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.anyio
async def test_any_other_token_is_nobodys(verifier: JwtVerifier, name: str) -> None:
    assert await verifier.verify_token(WRONG[name]()) is None
    assert await verifier.verify_token(_token()) is not None


@pytest.mark.parametrize(
    "claims",
    [
        {"tenant": None},
        {"tenant": "Birch Ltd"},
        {"tenant": "acorn"},
        {"tenant": ["Acorn Ltd"]},
        {"groups": "hr"},
        {"groups": [5]},
        {"groups": [f"g{number}" for number in range(257)]},
        {"groups": None, "_claim_names": {"groups": "src1"}},
        {"scope": "openid"},
        {"scope": None},
        {"scope": 5},
    ],
    ids=str,
)
@pytest.mark.anyio
async def test_who_is_not_known_for_certain_may_nothing(
    verifier: JwtVerifier, claims: dict[str, Any]
) -> None:
    caller = await verifier.verify_token(_token(**claims))
    assert caller is not None
    assert SEARCH_SCOPE not in caller.scopes


@pytest.mark.anyio
async def test_groups_and_scopes_are_taken_as_they_are(verifier: JwtVerifier) -> None:
    caller = await verifier.verify_token(_token(groups=None, scope=None, scp=[SEARCH_SCOPE]))
    assert isinstance(caller, Caller)
    assert (caller.principal, caller.scopes) == (Principal("acorn", "ann"), [SEARCH_SCOPE])


@pytest.mark.anyio
async def test_unknown_keys_cost_one_fetch_and_nobody_else_anything(
    verifier: JwtVerifier, issuer: Issuer
) -> None:
    for number in range(50):
        assert await verifier.verify_token(_token(headers={"kid": f"unknown {number}"})) is None
    assert await verifier.verify_token(_token()) is not None
    assert issuer.asked == 1


@pytest.mark.anyio
async def test_a_new_key_of_the_issuer_is_found_and_an_old_one_ends(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await verifier.verify_token(_token()) is not None
    issuer.keys = [_jwk(RSAAlgorithm, OTHER_RSA, "new")]
    new = _token(key=OTHER_RSA, headers={"kid": "new"})
    assert await verifier.verify_token(new) is None  # not within the cooldown
    monkeypatch.setattr(server.oauth, "COOLDOWN_SECONDS", 0)
    assert await verifier.verify_token(new) is not None
    assert await verifier.verify_token(_token()) is None


@pytest.mark.anyio
async def test_an_outage_of_the_issuer_is_bridged_for_a_time(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await verifier.verify_token(_token()) is not None
    issuer.status = 500
    monkeypatch.setattr(server.oauth, "COOLDOWN_SECONDS", 0)
    monkeypatch.setattr(server.oauth, "FRESH_SECONDS", 0)
    assert await verifier.verify_token(_token()) is not None
    assert issuer.asked == 2
    monkeypatch.setattr(server.oauth, "OUTAGE_SECONDS", 0)
    with pytest.raises(ProviderError):
        await verifier.verify_token(_token())


@pytest.fixture
def signed_in(issuer: Issuer, listen: Callable[..., Remote], clock_room: Path, tmp_path: Path) -> Remote:
    """A server that knows the issuer, on the demo corpus."""
    config = tmp_path / "config.toml"
    config.write_text(
        '[http]\npublic_url = "https://desk.example.com"\nauthentication = ["oauth"]\n'
        f'[oauth]\nissuer = "{ISSUER}"\njwks_url = "{issuer.url}"\ntenants = {{ "Acorn Ltd" = "default" }}\n'
    )
    return listen(clock_room, config=str(config))


def test_a_server_answers_tokens_and_tells_who_has_none_where_to_get_one(
    signed_in: Remote, issuer: Issuer
) -> None:
    host = {"Host": "desk.example.com"}
    assert signed_in.post(_token(), **host).status_code == 200
    refused = signed_in.post(None, **host)
    assert refused.status_code == 401
    challenge = refused.headers["WWW-Authenticate"]
    assert f'scope="{SEARCH_SCOPE}"' in challenge
    metadata = "https://desk.example.com/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in challenge
    told = httpx2.get(metadata.replace("https://desk.example.com", signed_in.base), headers=host).json()
    assert (told["resource"], told["authorization_servers"]) == (RESOURCE, [ISSUER])
    assert signed_in.post(_token(tenant="Birch Ltd"), **host).status_code == 403
    assert signed_in.post("rdk_00000000_x", **host).status_code == 401
    issuer.status = 500
    assert signed_in.post(_token(), **host).status_code == 200
    assert signed_in.post(_token(), Host="127.0.0.1:1").status_code == 421


def test_a_server_whose_issuer_is_away_says_so(issuer: Issuer, signed_in: Remote) -> None:
    issuer.status = 500
    unsure = signed_in.post(_token(), Host="desk.example.com")
    assert (unsure.status_code, unsure.headers["Retry-After"]) == (503, "30")


@pytest.mark.anyio
async def test_an_issuer_that_was_never_reached_is_no_reason_to_refuse(issuer: Issuer) -> None:
    issuer.status = 302
    settings = OAuthSettings(issuer=ISSUER, jwks_url=issuer.url, tenants={"Acorn Ltd": "acorn"})
    unreached = JwtVerifier(settings, RESOURCE)
    for _ in range(5):
        with pytest.raises(ProviderError):
            await unreached.verify_token(_token())
    assert issuer.asked == 1

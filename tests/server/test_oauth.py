"""Tokens of an issuer: only one that is whole, in time, and for this resource, says who asks."""

from __future__ import annotations

import base64
import json
import shutil
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

import server.http.oauth
from rag.access.keys import SEARCH_SCOPE
from rag.access.rule import CredentialBoundTo
from rag.config.server_settings import HttpSettings, OAuthSettings, check_exposure
from rag.corpus import Binding, Principal
from rag.errors import ConfigurationError, ProviderError, StoreError
from server.http.auth import PageSignIn
from server.http.clients import NOBODY, Caller
from server.http.oauth import JwtVerifier, requested_scopes
from tests.server.conftest import ENVELOPE, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from server.http.oauth import GroupsMatter
    from tests.server.conftest import Admin, Remote, World

pytestmark = pytest.mark.slow

ISSUER = "https://issuer.example.com/"
RESOURCE = "https://desk.example.com/mcp"
RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
WEAK_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2047)  # noqa: S505 which is the point
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
    fetches: int = 0


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            body = json.dumps({"keys": issuer.keys}).encode()
            self.send_response(issuer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        issuer.url = f"http://127.0.0.1:{listening.server_port}/jwks"
        yield issuer
        listening.shutdown()


async def _groups_dont_matter(_tenant: str) -> bool:
    await anyio.lowlevel.checkpoint()
    return False


async def _groups_matter_to_acorn(tenant: str) -> bool:
    await anyio.lowlevel.checkpoint()
    return tenant == "acorn"


def _verifier(
    issuer: Issuer, groups_matter: GroupsMatter = _groups_dont_matter, **settings: object
) -> JwtVerifier:
    tenants = {"Acorn Ltd": "acorn", "Birch Ltd": "birch"}
    parsed = OAuthSettings.model_validate(
        {"issuer": ISSUER, "jwks_url": issuer.url, "tenants": tenants, **settings}
    )
    return JwtVerifier(parsed, RESOURCE, groups_matter)


@pytest.fixture
def verifier(issuer: Issuer) -> JwtVerifier:
    return _verifier(issuer)


def _claims(**claims: object) -> dict[str, Any]:
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
    return {name: value for name, value in (usual | claims).items() if value is not None}


def _token(
    algorithm: str = "RS256",
    key: rsa.RSAPrivateKey | None = None,
    headers: dict[str, Any] | None = None,
    **claims: object,
) -> str:
    all_headers = {"kid": algorithm} | (headers or {})
    return jwt.encode(_claims(**claims), key or PRIVATE[algorithm], algorithm=algorithm, headers=all_headers)


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


OTHER_TYPES: tuple[object, ...] = (
    *("logout+jwt", "secevent+jwt", "dpop+jwt", "id+jwt", "application/logout+jwt", "at+jwt ", "JW"),
    *("jwt/at+jwt", "application/application/jwt", 5, True, ["JWT"], {"JWT": 1}),
)
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
    "valid from no time on": lambda: _token(iat=float("nan")),
    **{f"of type {typ!r}": partial(_token, headers={"typ": typ}) for typ in OTHER_TYPES},
    "an ID token": lambda: _token(at_hash="x"),
    "an ID token of a hybrid flow": lambda: _token(c_hash="x"),
    "an ID-JAG, which only the issuer takes": partial(_token, headers={"typ": "oauth-id-jag+jwt"}),
    "bound to a key of its client": lambda: _token(
        cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}
    ),
    "a logout token": lambda: _token(events={"http://schemas.openid.net/event/backchannel-logout": {}}),
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
        {"tenant": "Cedar Ltd"},
        {"tenant": {}},
        {"sub": ""},
        {"sub": " "},
        {"tenant": "acorn"},
        {"tenant": ["Acorn Ltd"]},
        {"groups": "hr"},
        {"groups": [5]},
        {"groups": [f"g{number}" for number in range(257)]},
        {"groups": {}},
        {"groups": ""},
        {"groups": False},
        {"_claim_names": 5},
        {"_claim_names": ["groups"]},
        {"_claim_names": "groups"},
        {"groups": None, "_claim_names": [["groups"]]},
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


@pytest.mark.parametrize(
    "typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "application/jwt", None]
)
@pytest.mark.anyio
async def test_a_token_may_name_its_type_or_leave_it_to_be_understood(
    verifier: JwtVerifier, typ: str | None
) -> None:
    token = _token(headers={"typ": typ})
    assert ("typ" in jwt.get_unverified_header(token)) is (typ is not None)
    assert await verifier.verify_token(token) is not None


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.anyio
async def test_a_key_that_can_be_broken_signs_nothing(
    issuer: Issuer, verifier: JwtVerifier, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.keys.append(_jwk(RSAAlgorithm, WEAK_RSA, "weak"))
    assert await verifier.verify_token(_token()) is not None
    assert await verifier.verify_token(_token(key=WEAK_RSA, headers={"kid": "weak"})) is None
    (message,) = caplog.messages
    assert message == ("The issuer's RSA key 'weak' has 2047 bits and is ignored: keys need at least 2048.")


IN_THEIR_PLACES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "Keycloak's roles": (
        {"groups_claim": "realm_access.roles"},
        {"realm_access": {"roles": ["hr", "it"]}, "resource_access": {"account": {"roles": ["admin"]}}},
    ),
    "Entra": (
        {"tenant_claim": "tid", "user_claim": "oid", "groups_claim": "roles"},
        {"tid": "Acorn Ltd", "oid": "ann", "sub": "pairwise", "azp": "vscode", "roles": ["hr", "it"]},
    ),
    "Entra, with too many groups but all roles": (
        {"groups_claim": "roles"},
        {"roles": ["hr", "it"], "_claim_names": {"groups": "src1"}},
    ),
    "Okta": ({}, {"cid": "0oa1", "uid": "00u1", "scope": None, "scp": [SEARCH_SCOPE]}),
    "Auth0": (
        {
            "groups_claim": "https://desk.example.com/groups",
            "tenant_claim": "https://desk.example.com/tenant",
        },
        {"https://desk.example.com/groups": ["hr", "it"], "https://desk.example.com/tenant": "Acorn Ltd"},
    ),
    "one tenant": ({"tenant_claim": "iss"}, {}),
    "an agent that acts for her": ({}, {"act": {"sub": "agent"}, "azp": "agent", "may_act": {"sub": "x"}}),
}


@pytest.mark.parametrize(("settings", "claims"), IN_THEIR_PLACES.values(), ids=IN_THEIR_PLACES)
@pytest.mark.anyio
async def test_claims_are_found_where_issuers_put_them(
    issuer: Issuer, settings: dict[str, str], claims: dict[str, Any]
) -> None:
    tenants = {"Acorn Ltd": "acorn", ISSUER: "acorn"}
    verifier = _verifier(issuer, _groups_matter_to_acorn, tenants=tenants, **settings)
    defaults = {"tenant": None, "groups": None} if settings else {}
    required: dict[str, Any] = {} if "tenant_claim" in settings else {"tenant": "Acorn Ltd"}
    required |= {} if "groups_claim" in settings else {"groups": ["hr", "it"]}
    caller = await verifier.verify_token(_token(**defaults | required | claims))
    assert isinstance(caller, Caller)
    assert (caller.principal, caller.refusal) == (ANN, "")
    assert SEARCH_SCOPE in caller.scopes
    without = await verifier.verify_token(_token(tenant=None, groups=None, iss=ISSUER))
    assert isinstance(without, Caller)
    assert without.principal == NOBODY


OF_CLIENTS: dict[str, dict[str, Any]] = {
    "RFC 9068": {"sub": "report", "client_id": "report"},
    "Okta": {"sub": "report", "cid": "report", "scope": None, "scp": [SEARCH_SCOPE]},
    "Auth0": {"sub": "report@clients", "azp": "report", "gty": "client-credentials"},
    "Auth0, which says no grant": {"sub": "report@clients", "azp": "report"},
    "Entra": {
        "sub": "9f1",
        "oid": "9f1",
        "azp": "report",
        "idtyp": "app",
        "scope": None,
        "roles": [SEARCH_SCOPE],
    },
    "Entra, which says no kind": {
        "sub": "9f1",
        "oid": "9f1",
        "azp": "report",
        "scope": None,
        "roles": [SEARCH_SCOPE],
    },
    "Keycloak": {"sub": "5e2", "azp": "Report", "preferred_username": "service-account-report"},
    "Keycloak, which says no name": {"sub": "5e2", "azp": "report", "clientAddress": "10.0.0.7"},
}
REPORT = Principal("birch", "nightly-report", frozenset({"it"}))


@pytest.mark.parametrize("claims", OF_CLIENTS.values(), ids=OF_CLIENTS)
@pytest.mark.anyio
async def test_a_client_without_a_user_is_who_the_settings_say_or_nobody(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    """Whatever tenant and groups its token claims, which an issuer may give to every client."""
    named = {"tenant": "birch", "user": "nightly-report", "groups": ["it"]}
    listed = _verifier(issuer, clients={"report": named, "Report": named})
    token = _token(**claims)
    caller = await listed.verify_token(token)
    assert isinstance(caller, Caller)
    assert (caller.principal, caller.refusal) == (REPORT, "")
    assert SEARCH_SCOPE in caller.scopes
    for clients in ({}, {"other": named}):
        nobody = await _verifier(issuer, clients=clients).verify_token(token)
        assert isinstance(nobody, Caller)
        assert (nobody.principal, nobody.scopes) == (NOBODY, [])
        assert "oauth.clients doesn't list this client" in nobody.refusal
    person = {"sub": "ann", "oid": "7c3", "scope": SEARCH_SCOPE, "scp": None, "roles": ["hr"]}
    hers = {"gty": None, "idtyp": "user", "preferred_username": "ann", "clientAddress": None}
    caller = await listed.verify_token(_token(**claims | person | hers))
    assert isinstance(caller, Caller)
    assert caller.principal == ANN


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": None},
        {"scope": "openid", "roles": [SEARCH_SCOPE]},
        {"scope": None, "roles": ["other"]},
        {"scope": None, "roles": SEARCH_SCOPE.removesuffix("h")},
    ],
    ids=str,
)
@pytest.mark.anyio
async def test_a_client_without_a_user_needs_the_scope_too(issuer: Issuer, claims: dict[str, Any]) -> None:
    verifier = _verifier(issuer, clients={"report": {"tenant": "birch", "user": "nightly-report"}})
    for claims_of_app, may in [(claims, False), ({"scope": SEARCH_SCOPE}, True)]:
        caller = await verifier.verify_token(_token(sub="report", client_id="report", **claims_of_app))
        assert isinstance(caller, Caller)
        assert (SEARCH_SCOPE in caller.scopes) is may


@pytest.mark.anyio
async def test_roles_of_a_user_are_no_scopes(issuer: Issuer) -> None:
    caller = await _verifier(issuer).verify_token(_token(scope=None, roles=[SEARCH_SCOPE], azp="vscode"))
    assert isinstance(caller, Caller)
    assert caller.scopes == []


@pytest.mark.anyio
async def test_scopes_narrow_a_client_without_a_user(issuer: Issuer) -> None:
    clients = {"report": {"tenant": "birch", "user": "nightly-report"}}
    verifier = _verifier(issuer, clients=clients, scopes=SCOPES)
    bound = Principal("birch", "nightly-report", bindings=(HANDBOOK,))
    for scope, principal in [("handbook", bound), ("", NOBODY)]:
        token = _token(sub="report", client_id="report", scope=f"{SEARCH_SCOPE} {scope}")
        caller = await verifier.verify_token(token)
        assert isinstance(caller, Caller)
        assert caller.principal == principal


UNTOLD: list[dict[str, Any]] = [
    {"groups": None},
    {"groups": None, "hasgroups": True},
    {"groups": None, "_claim_names": {"groups": "src1"}},
    {"_claim_names": {"groups": "src1"}},
    {"hasgroups": True},
    {"hasgroups": 5},
    {"hasgroups": "false"},
]
TOLD: list[dict[str, Any]] = [
    {},
    {"groups": []},
    {"hasgroups": False},
    {"_claim_names": {}},
    {"_claim_names": {"manager": "src1"}},
]


@pytest.mark.parametrize("required", ["auto", "always", "never"])
@pytest.mark.parametrize("claims", [*UNTOLD, *TOLD], ids=str)
@pytest.mark.anyio
async def test_a_token_that_doesnt_tell_all_groups_is_nobodys_where_groups_matter(
    issuer: Issuer, claims: dict[str, Any], required: str
) -> None:
    verifier = _verifier(issuer, _groups_matter_to_acorn, groups_required=required)
    for tenant, matter in [("Acorn Ltd", True), ("Birch Ltd", False)]:
        caller = await verifier.verify_token(_token(tenant=tenant, **claims))
        assert isinstance(caller, Caller)
        needed = {"auto": matter, "always": True, "never": False}[required]
        if needed and claims in UNTOLD:
            assert (caller.principal, caller.scopes) == (NOBODY, [])
            assert "The issuer must send them in the claim groups" in caller.refusal
            assert ("too many" in caller.refusal) is (claims != {"groups": None})
        else:
            groups = claims.get("groups", ["hr", "it"]) or ()
            assert caller.principal == Principal(tenant.split()[0].lower(), "ann", frozenset(groups))
            assert (SEARCH_SCOPE in caller.scopes, caller.refusal) == (True, "")


@pytest.mark.anyio
async def test_whether_groups_matter_is_asked_for_valid_tokens_alone_that_dont_tell_them(
    issuer: Issuer,
) -> None:
    async def unasked(_tenant: str) -> bool:
        await anyio.lowlevel.checkpoint()
        pytest.fail("was asked")

    verifier = _verifier(issuer, unasked)
    for claims in TOLD:
        assert await verifier.verify_token(_token(**claims)) is not None
    assert await verifier.verify_token(_token(groups=None, key=OTHER_RSA)) is None
    assert await verifier.verify_token(_token(groups=None, tenant="Cedar Ltd")) is not None
    with pytest.raises(pytest.fail.Exception):
        await verifier.verify_token(_token(groups=None))


@pytest.mark.anyio
async def test_where_it_cant_be_told_whether_groups_matter_they_do(issuer: Issuer) -> None:
    async def broken(_tenant: str) -> bool:
        await anyio.lowlevel.checkpoint()
        raise StoreError("The storage failed.")

    verifier = _verifier(issuer, broken)
    with pytest.raises(ProviderError, match="Try again later"):
        await verifier.verify_token(_token(groups=None))
    assert await verifier.verify_token(_token(groups=[])) is not None


@pytest.mark.anyio
async def test_a_claim_by_any_name_can_be_asked_for_in_a_header(issuer: Issuer) -> None:
    verifier = _verifier(issuer, groups_claim='https://acorn.example/"gruppen\\ä', groups_required="always")
    caller = await verifier.verify_token(_token())
    assert isinstance(caller, Caller)
    assert "in the claim https://acorn.example/?gruppen??: a list" in caller.refusal


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
    assert issuer.fetches == 1


@pytest.mark.anyio
async def test_a_new_key_of_the_issuer_is_found_and_an_old_one_ends(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await verifier.verify_token(_token()) is not None
    issuer.keys = [_jwk(RSAAlgorithm, OTHER_RSA, "new")]
    new = _token(key=OTHER_RSA, headers={"kid": "new"})
    assert await verifier.verify_token(new) is None  # not within the cooldown
    monkeypatch.setattr(server.http.oauth, "COOLDOWN_SECONDS", 0)
    assert await verifier.verify_token(new) is not None
    assert await verifier.verify_token(_token()) is None


@pytest.mark.anyio
async def test_an_outage_of_the_issuer_is_bridged_for_a_time(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await verifier.verify_token(_token()) is not None
    issuer.status = 500
    monkeypatch.setattr(server.http.oauth, "COOLDOWN_SECONDS", 0)
    monkeypatch.setattr(server.http.oauth, "FRESH_SECONDS", 0)
    assert await verifier.verify_token(_token()) is not None
    assert issuer.fetches == 2
    monkeypatch.setattr(server.http.oauth, "OUTAGE_SECONDS", 0)
    with pytest.raises(ProviderError):
        await verifier.verify_token(_token())


@pytest.mark.anyio
@pytest.mark.parametrize("change", [{"use": "enc"}, {"kid": ""}, {"kid": ["rsa"]}, {"alg": ["RS256"]}])
async def test_an_answer_without_a_usable_key_is_an_outage(
    verifier: JwtVerifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    assert await verifier.verify_token(_token()) is not None
    issuer.keys = [issuer.keys[0] | change]
    monkeypatch.setattr(server.http.oauth, "COOLDOWN_SECONDS", 0)
    monkeypatch.setattr(server.http.oauth, "FRESH_SECONDS", 0)
    assert await verifier.verify_token(_token()) is not None
    assert issuer.fetches == 2


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
    document = httpx2.get(metadata.replace("https://desk.example.com", signed_in.base), headers=host).json()
    assert (document["resource"], document["authorization_servers"]) == (RESOURCE, [ISSUER])
    assert signed_in.post(_token(aud=RESOURCE.replace("/mcp", "/sse")), **host).status_code == 401
    assert signed_in.post(_token(tenant="Birch Ltd"), **host).status_code == 403
    assert signed_in.post("rdk_00000000_x", **host).status_code == 401
    issuer.status = 500
    assert signed_in.post(_token(), **host).status_code == 200
    assert signed_in.post(_token(), Host="127.0.0.1:1").status_code == 421


def test_a_token_counts_on_a_server_whose_clock_is_a_little_ahead(signed_in: Remote) -> None:
    for ago, status in ((10, 200), (40, 401)):
        token = _token(exp=_now() - ago, iat=_now() - 600)
        assert signed_in.post(token, Host="desk.example.com").status_code == status


def test_a_server_whose_issuer_is_away_says_so(issuer: Issuer, signed_in: Remote) -> None:
    issuer.status = 500
    unsure = signed_in.post(_token(), Host="desk.example.com")
    assert (unsure.status_code, unsure.headers["Retry-After"]) == (503, "30")


@pytest.mark.anyio
async def test_an_issuer_that_was_never_reached_is_no_reason_to_refuse(issuer: Issuer) -> None:
    issuer.status = 302
    unreached = _verifier(issuer)
    for _ in range(5):
        with pytest.raises(ProviderError):
            await unreached.verify_token(_token())
    assert issuer.fetches == 1


def _signing(issuer: Issuer, folder: Path, *more: str, name: str = ISSUER) -> str:
    """The path of a settings file by which a server accepts the issuer's tokens."""
    lines = [
        '[http]\npublic_url = "https://desk.example.com"\nauthentication = ["keys", "oauth"]\nsse = true',
        f'[oauth]\nissuer = "{name}"\njwks_url = "{issuer.url}"',
        'tenants = { "Acorn Ltd" = "acorn", "Birch Ltd" = "birch" }',
        *more,
    ]
    config = folder / "signing.toml"
    config.write_text("\n".join(lines))
    return str(config)


HOST = {"Host": "desk.example.com"}
WITHOUT: list[dict[str, Any]] = [
    {"groups": None},
    {"groups": None, "hasgroups": True},
    {"_claim_names": {"groups": "src1"}},
]


def test_a_server_refuses_tokens_that_dont_tell_groups_from_the_moment_that_a_record_names_one(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path, admin: Admin
) -> None:
    data = tmp_path / "data"
    shutil.copytree(world.data, data)
    remote = listen(data, config=_signing(issuer, tmp_path))

    def refused_because(reason: str) -> bool:
        lines = remote.log()[-2:]  # after it can come, once a second, what was counted of earlier ones
        return any(line["why"].endswith(reason) for line in lines if "why" in line)

    for claims in WITHOUT:
        assert remote.post(_token(tenant="Birch Ltd", **claims), **HOST).status_code == 200
        refused = remote.post(_token(azp="claude", **claims), **HOST)
        assert refused.status_code == 403
        reason = refused.json()["error"]["message"]
        line = next(entry for entry in reversed(remote.log()) if entry.get("why") == reason)
        assert (line["oauth_client"], line["subject"]) == ("claude", "ann")
        assert "user" not in line
        assert reason.endswith(
            "in the claim groups: a list of at most 256 names, empty for a user without groups."
        )
        assert f'error_description="{reason}"' in refused.headers["WWW-Authenticate"]
    assert remote.post(_token(groups=[]), **HOST).status_code == 200
    assert remote.post(_token(azp="claude"), **HOST).status_code == 200
    line = next(entry for entry in reversed(remote.log()) if "user" in entry and "oauth_client" in entry)
    assert [line[name] for name in ("oauth_client", "subject", "user", "groups")] == [
        *("claude", "ann", "ann", ["hr", "it"])
    ]
    assert remote.post(_token(headers={"typ": "logout+jwt"}), **HOST).status_code == 401
    assert refused_because("its type (typ) doesn't say access token")
    assert remote.post(_token(exp=_now() - 60, iat=_now() - 600), **HOST).status_code == 401
    assert refused_because(": ExpiredSignatureError")
    (theirs,) = admin("sources", "--tenant", "birch", "--data", data)["sources"]
    admin("access", "revoke", theirs["id"], "--from", "group:interns", "--tenant", "birch", "--data", data)
    for claims in WITHOUT:
        assert remote.post(_token(tenant="Birch Ltd", **claims), **HOST).status_code == 403
    assert remote.post(_token(tenant="Birch Ltd"), **HOST).status_code == 200


def test_a_rule_that_names_a_group_makes_groups_matter_everywhere(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    rule = '[[access.rules]]\npath = "hr/*"\nvisibility = "tenant"\ndeny = ["group:interns"]'
    remote = listen(world.data, config=_signing(issuer, tmp_path, rule))
    assert remote.post(_token(tenant="Birch Ltd", groups=None), **HOST).status_code == 403
    assert remote.post(_token(tenant="Birch Ltd"), **HOST).status_code == 200


def test_where_the_records_cant_be_read_a_token_that_doesnt_tell_groups_is_refused(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    shutil.copytree(world.data, tmp_path / "data")
    remote = listen(tmp_path / "data", config=_signing(issuer, tmp_path))
    for file in (tmp_path / "data").rglob("access__tenant_birch*/data/*.lance"):
        file.write_bytes(b"")
    unsure = remote.post(_token(tenant="Birch Ltd", groups=None), **HOST)
    assert (unsure.status_code, unsure.headers["Retry-After"]) == (503, "30")
    assert "lance" not in unsure.text
    assert [line for line in remote.log() if "cannot determine whether groups matter" in line["message"]]
    assert remote.post(_token(tenant="Birch Ltd"), **HOST).status_code == 200


def test_claims_that_are_nonsense_are_refused_and_no_error_of_ours(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    remote = listen(world.data, config=_signing(issuer, tmp_path))
    hostile: list[dict[str, Any]] = [
        {"_claim_names": 5},
        {"_claim_names": [[]]},
        {"groups": {}},
        {"sub": ""},
        {"tenant": {}},
    ]
    for claims in hostile:
        assert remote.post(_token(**claims), **HOST).status_code == 403
    assert remote.post(_token(), **HOST).status_code == 200
    assert "Traceback" not in remote.noise.read_text()


@pytest.mark.parametrize("name", ["https://issuer.example.com", "https://issuer.example.com/"])
def test_clients_are_told_the_issuers_name_to_the_letter(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path, name: str
) -> None:
    remote = listen(world.data, config=_signing(issuer, tmp_path, name=name))
    document = httpx2.get(f"{remote.base}/.well-known/oauth-protected-resource/mcp", headers=HOST)
    assert document.json()["authorization_servers"] == [name]
    assert remote.post(_token(iss=name), **HOST).status_code == 200


def test_clients_of_http_sse_sign_in_for_the_address_that_they_connect_to(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    remote = listen(world.data, config=_signing(issuer, tmp_path))
    path, resource = "/.well-known/oauth-protected-resource/sse", "https://desk.example.com/sse"
    refusals = [
        httpx2.get(f"{remote.base}/sse", headers=HOST),
        httpx2.post(f"{remote.base}/messages/?session_id={'0' * 32}", headers=HOST),
    ]
    for refused in refusals:
        assert f'resource_metadata="https://desk.example.com{path}"' in refused.headers["WWW-Authenticate"]
    document = httpx2.get(remote.base + path, headers=HOST).json()
    assert (document["resource"], document["authorization_servers"]) == (resource, [ISSUER])
    for audience, status in ((resource, 200), (RESOURCE, 200), (f"{resource}/", 401)):
        headers = {**HOST, "Authorization": f"Bearer {_token(aud=audience)}"}
        with httpx2.stream("GET", f"{remote.base}/sse", headers=headers) as stream:
            assert stream.status_code == status


FAR = ["http://issuer.example.com", "http://127.0.0.1.evil.example/", "http://localhost@evil.example/"]


@pytest.mark.parametrize("name", ["issuer", "jwks_url"])
@pytest.mark.parametrize("address", [*FAR, "HTTP://issuer.example.com", "https://", "issuer.example.com"])
def test_an_issuer_whom_others_can_speak_for_is_refused_at_start(address: str, name: str) -> None:
    http = HttpSettings(public_url="https://desk.example.com", authentication=("oauth",))
    good: dict[str, Any] = {
        "issuer": ISSUER,
        "jwks_url": "https://issuer.example.com/jwks",
        "tenants": {"a": "acorn"},
    }
    for near in ("http://127.0.0.1:9000/x", "http://localhost/x", "http://[::1]:9000/x", "https://[::1]/x"):
        check_exposure(http, OAuthSettings.model_construct(**good | {name: near}))
    with pytest.raises(ConfigurationError, match=f"oauth.{name} = .* must be an https:// URL"):
        check_exposure(http, OAuthSettings.model_construct(**good | {name: address}))


SCOPES: dict[str, dict[str, object]] = {
    "handbook": {"collections": ["handbook"], "limit": 5},
    "final": {"filter": {"status": "final"}},
    "all": {},
}
HANDBOOK, FINAL = Binding(("handbook",), limit=5), Binding(filter={"status": "final"})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("scopes", "bindings"),
    [
        ("handbook", [HANDBOOK]),
        ("final handbook final", [FINAL, HANDBOOK]),
        ("unknown all", [Binding()]),
        ("all handbook", [Binding(), HANDBOOK]),
    ],
)
async def test_each_bound_scope_of_a_token_narrows_it(
    issuer: Issuer, scopes: str, bindings: list[Binding]
) -> None:
    caller = await _verifier(issuer, scopes=SCOPES).verify_token(_token(scope=f"{SEARCH_SCOPE} {scopes}"))
    assert isinstance(caller, Caller)
    assert caller.principal == replace(ANN, bindings=tuple(bindings))
    assert SEARCH_SCOPE in caller.scopes


@pytest.mark.anyio
@pytest.mark.parametrize("scopes", ["", "unknown", "HANDBOOK", "handbook,final"])
async def test_a_token_without_a_bound_scope_is_nobodys_where_scopes_are_bound(
    issuer: Issuer, scopes: str
) -> None:
    """Otherwise a client would reach more by asking its issuer for less."""
    token = _token(scope=f"{SEARCH_SCOPE} {scopes}")
    caller = await _verifier(issuer, scopes=SCOPES).verify_token(token)
    assert isinstance(caller, Caller)
    assert (caller.principal, caller.scopes) == (NOBODY, [])
    assert caller.refusal == ""  # another token may do
    free = await _verifier(issuer).verify_token(token)
    assert isinstance(free, Caller)
    assert free.principal == ANN


@pytest.mark.parametrize(
    ("bound", "requested"),
    [
        ([], [SEARCH_SCOPE]),
        (["hb:read", "all:read"], [SEARCH_SCOPE, "hb:read"]),
        (["hb:read", SEARCH_SCOPE], [SEARCH_SCOPE]),
    ],
)
@pytest.mark.parametrize("prefix", ["", "api://1f0c/"])
@pytest.mark.anyio
async def test_a_client_is_told_to_ask_for_scopes_that_are_enough_and_for_no_more(
    issuer: Issuer, bound: list[str], requested: list[str], prefix: str
) -> None:
    """With more bound scopes than one, a token reaches only what all of them admit."""
    scopes = dict.fromkeys(bound, CredentialBoundTo())
    settings = OAuthSettings(scopes=scopes, scope_prefix=prefix)
    assert requested_scopes(settings).split() == [prefix + scope for scope in requested]
    for scope in [requested, *([requested[:1], requested[1:]] if requested[1:] else [[]])]:
        caller = await _verifier(issuer, scopes={name: {} for name in bound}).verify_token(
            _token(scope=" ".join(scope))
        )
        assert isinstance(caller, Caller)
        assert (SEARCH_SCOPE in caller.scopes) is (scope == requested)


EXTENSIONS = "io.modelcontextprotocol"
MODERN_HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
CLIENTS = '[oauth.clients.report]\ntenant = "birch"\nuser = "nightly-report"'


@pytest.mark.parametrize(("clients", "offered"), [((CLIENTS,), True), ((), False)])
def test_a_server_offers_clients_of_their_own_where_it_knows_some(
    issuer: Issuer,
    listen: Callable[..., Remote],
    world: World,
    tmp_path: Path,
    clients: tuple[str, ...],
    offered: bool,  # noqa: FBT001 a parameter of a test
) -> None:
    remote = listen(world.data, config=_signing(issuer, tmp_path, *clients))
    token_of_app = _token(sub="report", client_id="report")
    for token in (token_of_app, _token()) if offered else (_token(),):
        assert _said_of_itself(remote, token).keys() == {
            f"{EXTENSIONS}/enterprise-managed-authorization",
            f"{EXTENSIONS}/skills",  # whoever may connect
            *([f"{EXTENSIONS}/oauth-client-credentials"] if offered else []),
        }
    refused = remote.post(token_of_app, **HOST)
    assert refused.status_code == (200 if offered else 403)
    if not offered:
        assert "oauth.clients" in refused.headers["WWW-Authenticate"]
    line = next(entry for entry in reversed(remote.log()) if entry.get("subject") == "report")
    assert (line.get("tenant"), line.get("user")) == (
        ("birch", "nightly-report") if offered else (None, None)
    )


def _said_of_itself(remote: Remote, token: str) -> dict[str, Any]:
    """The extensions that a server offers; versions before 2026-07-28 have no place to say them."""
    answer = remote.post(token, message("server/discover", _meta=ENVELOPE), **HOST, **MODERN_HEADERS)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["result"]["capabilities"]["extensions"])


def test_clients_are_told_scopes_as_the_issuer_knows_them(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    prefix, scopes = "api://1f0c/", '[oauth.scopes."handbook:read"]'
    remote = listen(world.data, config=_signing(issuer, tmp_path, f'scope_prefix = "{prefix}"', scopes))
    document = httpx2.get(f"{remote.base}/.well-known/oauth-protected-resource/mcp", headers=HOST).json()
    assert document["scopes_supported"] == [f"{prefix}{SEARCH_SCOPE}", f"{prefix}handbook:read"]
    requested = f'scope="{prefix}{SEARCH_SCOPE} {prefix}handbook:read"'
    assert requested in remote.post(None, **HOST).headers["WWW-Authenticate"]
    assert remote.post(_token(scope=f"{SEARCH_SCOPE} handbook:read"), **HOST).status_code == 200
    needed = f"Required scope: {SEARCH_SCOPE}, and one of these: handbook:read"
    for scope in (f"{prefix}{SEARCH_SCOPE} handbook:read", SEARCH_SCOPE, "handbook:read", ""):
        refused = remote.post(_token(scope=scope), **HOST)
        assert (refused.status_code, refused.json()["error"]["message"]) == (403, needed)
        assert 'error="insufficient_scope"' in refused.headers["WWW-Authenticate"]
        assert requested in refused.headers["WWW-Authenticate"]


def test_a_client_whom_no_scope_would_help_is_told_why_and_not_to_sign_in_again(
    issuer: Issuer, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    remote = listen(world.data, config=_signing(issuer, tmp_path, '[oauth.scopes."handbook:read"]'))
    nobodys: list[dict[str, Any]] = [
        *({"tenant": "Cedar Ltd"}, {"sub": ""}, {"groups": "hr"}),
        {"sub": "robot", "client_id": "robot"},
    ]
    for scope in (SEARCH_SCOPE, "handbook:read", ""):
        for claims in nobodys:
            refused = remote.post(_token(**claims, scope=scope), **HOST)
            assert refused.status_code == 403
            reason = refused.json()["error"]["message"]
            assert reason.startswith("The token")
            challenge = refused.headers["WWW-Authenticate"]
            assert f'error="access_denied", error_description="{reason}"' in challenge
            assert "scope=" not in challenge
        assert "scope=" in remote.post(_token(scope=scope), **HOST).headers["WWW-Authenticate"]


def test_a_client_for_pages_without_tokens_is_refused() -> None:
    oauth = OAuthSettings(page_client="pages")
    with pytest.raises(ConfigurationError, match=r"oauth\.page_client"):
        check_exposure(HttpSettings(), oauth)
    check_exposure(HttpSettings(), OAuthSettings())


@pytest.mark.anyio
async def test_the_log_says_which_variable_keeps_people_from_signing_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "ftp://ann:secret@proxy.corp")
    settings = MagicMock()
    settings.oauth.issuer, settings.http.public_url = "https://issuer.example", "https://desk.example"
    (*_, page) = PageSignIn(MagicMock(), settings, MagicMock()).routes
    request = MagicMock(path_params={"id": f"{16 * 'a'}/3"})
    request.auth.scopes = ()
    reply = await page.endpoint(request)
    assert reply.status_code == 503
    assert "HTTPS_PROXY (ftp://proxy.corp) is not the address of" in caplog.text
    assert "HTTPS_PROXY" not in reply.body.decode()

"""The page on sign-in: by its settings a provider's tokens are accepted, and what it quotes is said."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

import server.http.oauth
from rag.access.keys import SEARCH_SCOPE
from rag.config.load import load_settings
from rag.config.server_settings import check_exposure, resource_url
from rag.corpus import Principal
from server.http.clients import NOBODY, Caller
from server.http.oauth import JwtVerifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rag.config.settings import Settings

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "server" / "signin.md"
DIRECTORY = "00000000-0000-0000-0000-000000000000"

PEOPLE: dict[str, dict[str, Any]] = {
    "Keycloak": {
        "azp": "claude",
        "sub": "f2b8",
        "preferred_username": "ann",
        "groups": ["hr", "staff"],
        "realm_access": {"roles": ["offline_access"]},
        "scope": f"openid {SEARCH_SCOPE}",
        "typ": "Bearer",
    },
    "Entra ID": {
        "aud": "11111111-1111-1111-1111-111111111111",
        "azp": "claude",
        "oid": "ann",
        "sub": "pairwise",
        "tid": DIRECTORY,
        "roles": ["hr", "staff"],
        "scp": SEARCH_SCOPE,
        "ver": "2.0",
    },
    "Okta": {
        "cid": "0oa9",
        "uid": "ann",
        "sub": "ann@acorn.example",
        "scp": [SEARCH_SCOPE],
        "groups": ["hr", "staff"],
    },
    "Auth0": {
        "azp": "claude",
        "sub": "ann",
        "scope": f"openid {SEARCH_SCOPE}",
        "https://desk.example.com/groups": ["hr", "staff"],
    },
}
PROGRAMS: dict[str, dict[str, Any]] = {
    "Keycloak": {
        "azp": "nightly-report",
        "sub": "0c3d",
        "preferred_username": "service-account-nightly-report",
        "clientAddress": "10.0.0.7",
        "client_id": "nightly-report",
        "groups": ["staff"],
        "scope": SEARCH_SCOPE,
    },
    "Entra ID": {
        "aud": "11111111-1111-1111-1111-111111111111",
        "azp": "22222222-2222-2222-2222-222222222222",
        "oid": "9f1",
        "sub": "9f1",
        "tid": DIRECTORY,
        "roles": [SEARCH_SCOPE],
    },
    "Okta": {"cid": "0oa1a2b3c4d5e6f7g8h9", "sub": "0oa1a2b3c4d5e6f7g8h9", "scp": [SEARCH_SCOPE]},
    "Auth0": {
        "azp": "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW",
        "sub": "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW@clients",
        "gty": "client-credentials",
        "scope": SEARCH_SCOPE,
    },
}


def _section(heading: str) -> str:
    return PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _settings(provider: str, folder: Path) -> Settings:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", _section(provider), re.MULTILINE | re.DOTALL)
    file = folder / "config.toml"
    file.write_text(block)
    return load_settings(file, {})


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _OneKey:
    """An issuer with one key, wherever it is."""

    def __init__(self, _url: str) -> None:
        self._key = jwt.PyJWK(json.loads(RSAAlgorithm.to_jwk(KEY.public_key())) | {"alg": "RS256"})

    async def key(self, _id: str) -> jwt.PyJWK:
        await anyio.lowlevel.checkpoint()
        return self._key


async def _groups_matter(_tenant: str) -> bool:
    await anyio.lowlevel.checkpoint()
    return True


@pytest.fixture
def caller_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Awaitable[Caller]]:
    """Whom a token with these claims is taken for, by the settings that the page shows for a provider."""
    monkeypatch.setattr(server.http.oauth, "SigningKeys", _OneKey)

    async def caller(provider: str, claims: dict[str, Any]) -> Caller:
        settings = _settings(provider, tmp_path)
        check_exposure(settings.http, settings.oauth)
        resource, now = resource_url(settings.http), int(time.time())
        usual = {"iss": settings.oauth.issuer, "aud": resource, "iat": now, "exp": now + 600}
        token = jwt.encode(usual | claims, KEY, algorithm="RS256", headers={"kid": "one"})
        caller = await JwtVerifier(settings.oauth, resource, _groups_matter).verify_token(token)
        assert isinstance(caller, Caller)
        return caller

    return caller


@pytest.mark.parametrize("provider", PEOPLE)
@pytest.mark.anyio
async def test_by_the_settings_of_the_page_people_are_who_their_tokens_say(
    caller_of: Callable[..., Awaitable[Caller]], provider: str
) -> None:
    claims = PEOPLE[provider]
    caller = await caller_of(provider, claims)
    assert caller.principal == Principal("default", "ann", frozenset({"hr", "staff"}))
    assert SEARCH_SCOPE in caller.scopes
    groups = next(name for name in claims if claims[name] == ["hr", "staff"])
    cut = {name: value for name, value in claims.items() if name != groups}
    for incomplete in (cut, cut | {"_claim_names": {groups: "src1"}}):
        assert (await caller_of(provider, incomplete)).principal == NOBODY


@pytest.mark.parametrize("provider", PROGRAMS)
@pytest.mark.anyio
async def test_by_the_settings_of_the_page_programs_are_who_the_settings_say(
    caller_of: Callable[..., Awaitable[Caller]], provider: str
) -> None:
    claims = PROGRAMS[provider]
    caller = await caller_of(provider, claims)
    assert caller.principal == Principal("default", "nightly-report", frozenset({"hr"}))
    assert SEARCH_SCOPE in caller.scopes
    (client,) = re.findall(r'^\[oauth\.clients\."?([^"\]]+)"?\]$', _section(provider), re.MULTILINE)
    text = json.dumps(claims).replace(client, "another")
    assert (await caller_of(provider, json.loads(text))).principal == NOBODY


def test_the_page_quotes_why_tokens_are_refused() -> None:
    """What the server says, or PyJWT's name for it."""
    rows = re.findall(r"^\| (401|403|503) \| (.+?) \| .+ \|$", _section("Try it"), re.MULTILINE)
    assert len(rows) > 8
    source = "".join(file.read_text() for file in (PAGE.parent / "http").glob("*.py"))
    for _, why in rows:
        assert hasattr(jwt, why.strip("`")) or why.replace("`", "") in source, why

"""The public signing keys of a token issuer (its JWKS), fetched when needed and cached."""

from __future__ import annotations

import logging
import time

import anyio
import jwt
from anyio import to_thread
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from rag.errors import ProviderError
from rag.web_addresses import refused_redirect

log = logging.getLogger(__name__)

MIN_RSA_BITS = 2048
FRESH_SECONDS = 300  # keys older than this are fetched again,
OUTAGE_SECONDS = 3600  # and still used up to this age if that fails
COOLDOWN_SECONDS = 30  # between two attempts to fetch
FETCH_SECONDS = 5


class SigningKeys:
    """The issuer's public keys by id. Unknown ids, however many, cost at most one fetch in thirty seconds."""

    def __init__(self, url: str) -> None:
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_SECONDS)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._lock, self._thread = anyio.Lock(), anyio.CapacityLimiter(1)

    async def key(self, id_: str) -> jwt.PyJWK | None:
        """The key with this id; None if the issuer has no such key.

        Raises:
            ProviderError: the keys can't be fetched, and the cached ones are too old.
        """
        if id_ not in self._keys or self._age() > FRESH_SECONDS:
            async with self._lock:  # many requests with a new key id cause one fetch
                if id_ not in self._keys or self._age() > FRESH_SECONDS:
                    await self._fetch()
        if self._age() > OUTAGE_SECONDS:
            raise ProviderError("The issuer's keys can't be fetched. Try again later.")
        return self._keys.get(id_)

    async def _fetch(self) -> None:
        if time.monotonic() - self._tried_at < COOLDOWN_SECONDS:
            return
        self._tried_at = time.monotonic()
        try:
            # The client's own timeout restarts with every byte; a slow issuer could hold the lock forever.
            with anyio.fail_after(FETCH_SECONDS):
                keys = await to_thread.run_sync(
                    self._client.get_signing_keys, abandon_on_cancel=True, limiter=self._thread
                )
        except (jwt.PyJWTError, OSError, ValueError) as error:
            target = refused_redirect(self._client.uri, error)
            why = f"it redirects to {target}; set oauth.jwks_url" if target else type(error).__name__
            log.warning("The issuer's keys can't be fetched: %s", why)
            return
        self._keys = {key.key_id: key for key in keys if key.key_id and _is_strong(key)}
        self._fetched_at = time.monotonic()

    def _age(self) -> float:
        return time.monotonic() - self._fetched_at


def _is_strong(key: jwt.PyJWK) -> bool:
    bits = key.key.key_size if isinstance(key.key, RSAPublicKey) else MIN_RSA_BITS
    if bits < MIN_RSA_BITS:
        log.warning(
            "The issuer's RSA key %.64r has %d bits and is ignored: keys need at least %d.",
            key.key_id,
            bits,
            MIN_RSA_BITS,
        )
    return bits >= MIN_RSA_BITS

"""A cache of embeddings in the data folder, so that no text is paid for twice; the embedder that asks it.

The key of a vector is a digest of everything that it depends on: the model and what is sent to it. The digest
is keyed by the data folder's key, so the file doesn't tell whether a text was ever embedded. Each entry has
an owner, the collection that used it last: a purge of that collection deletes the entries of texts that it
doesn't hold any more.

A provider can put another model behind the same name. The vector of a control text shows that: if it has
changed, the earlier entries of that model are deleted.

A vector takes 16 bits a number: as much as searches make of it, for half of the disk space. An embedder with
a cache rounds all vectors so, also those that it didn't find: what is stored doesn't depend on the cache.

The file is only a cache: one that is damaged is deleted, and the run goes on. SQLite, because it survives
kills and two writers at once, deletes single rows for good, and is in the standard library; a LanceDB table
would leave a version of itself with each request.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeVar

import numpy as np
from anyio import to_thread

from rag.corpus import EmbedderIdentity, Vectors
from rag.models.embed import Embedder, TextKind, WrappedEmbedder

T = TypeVar("T")

FILE = "embeddings.sqlite"
WAIT_SECONDS = 10.0  # for another process that is writing
SAME_MODEL = 0.99  # the least cosine of two vectors of the control text; rounding leaves more than 0.999
FILLED = 0.9  # the share of the limit that remains after dropping entries, so that this is rare
AT_ONCE = 500  # keys in a query
_DAY = 86_400  # seconds
OTHER_MODEL = (
    "The embedding model gives another vector for the same text than before: there is another model behind "
    "its name. Nothing of the cache of embeddings was used. If the collection has vectors of the earlier "
    "model, ingest into a new collection."
)
_TABLES = """
CREATE TABLE IF NOT EXISTS vectors16 (
    key BLOB PRIMARY KEY, model BLOB NOT NULL, owner TEXT NOT NULL, used INTEGER NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS owners ON vectors16 (owner);
CREATE INDEX IF NOT EXISTS uses ON vectors16 (used);
CREATE TABLE IF NOT EXISTS models (model BLOB PRIMARY KEY, control BLOB NOT NULL, tokens REAL, seconds REAL);
"""


def fingerprint(identity: EmbedderIdentity, window: int, dimensions: int) -> str:
    """A key for everything but the text that vectors of documents depend on.

    `window` is the number of tokens after which texts are cut, `dimensions` the setting, or 0.
    """
    parts = [identity.provider, identity.model, identity.document_prefix, identity.document_body]
    return json.dumps([*parts, window, dimensions])


def cache_file(data: Path) -> Path:
    """The file of the cache in a data folder."""
    return data / FILE


@dataclass(slots=True)
class EmbeddingCache:
    """The entries of one model and tenant. Safe to use from several threads and processes.

    `max_bytes` is the limit of the whole cache. `notes` are for the report. It never raises: entries that
    can't be read are missing, and entries that can't be written are left out.
    """

    data: Path
    key: bytes
    tenant: str
    collection: str
    model: str
    max_bytes: int
    notes: list[str] = field(default_factory=list)
    _connection: sqlite3.Connection | None = None
    _off: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def _owner(self) -> str:
        return owner(self.tenant, self.collection)

    @property
    def _model(self) -> bytes:
        return hashlib.blake2b(f"{self.tenant}\0{self.model}".encode(), key=self.key, digest_size=16).digest()

    def vectors(self, texts: Iterable[str]) -> dict[str, Vectors]:
        """The cached vectors of these texts."""
        keys = {text_key(self.key, self._model, text): text for text in texts}

        def look_up(connection: sqlite3.Connection) -> dict[str, Vectors]:
            vectors: dict[str, Vectors] = {}
            digests = list(keys)
            for start in range(0, len(digests), AT_ONCE):
                part = digests[start : start + AT_ONCE]
                marks = ", ".join("?" * len(part))
                query = f"SELECT key, vector FROM vectors16 WHERE key IN ({marks})"  # noqa: S608 only marks
                rows = connection.execute(query, part)
                vectors |= {keys[key]: _unpacked(vector) for key, vector in rows}
            return vectors

        return self._with(look_up, {})

    def keep(self, vectors: Iterable[tuple[str, Vectors]], used: Iterable[str] = ()) -> None:
        """Store the vectors of texts, and note that other texts were `used`."""
        model, day = self._model, int(time.time()) // _DAY
        rows = [
            (text_key(self.key, model, text), model, self._owner, day, _packed(vector))
            for text, vector in vectors
        ]
        again = [(self._owner, day, text_key(self.key, model, text)) for text in used]

        def store(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO vectors16 VALUES (?, ?, ?, ?, ?)", rows)
            connection.executemany(
                "UPDATE vectors16 SET owner = ?1, used = ?2 WHERE key = ?3 AND (owner <> ?1 OR used < ?2)",
                again,
            )

        if rows or again:
            self._with(store, None)

    def check_model(self, control: Vectors) -> None:
        """Delete the entries of this model if its vector of the control text has changed."""
        model, vector = self._model, control.reshape(-1).astype("<f4")

        def check(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT control FROM models WHERE model = ?", [model]).fetchone()
            before = np.frombuffer(row[0], "<f4") if row else vector
            is_same = before.shape == vector.shape and float(before @ vector) >= SAME_MODEL
            if not is_same:
                connection.execute("DELETE FROM vectors16 WHERE model = ?", [model])
            if row is None or not is_same:
                values = [model, vector.tobytes()]
                connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?, NULL, NULL)", values)
            return is_same

        if not self._with(check, otherwise=True):
            self._note(OTHER_MODEL)

    def note_rate(self, tokens: float, seconds: float) -> None:
        """Note the seconds that the last run took to embed these tokens, as estimated here."""
        update = "UPDATE models SET tokens = ?, seconds = ? WHERE model = ?"
        values = [tokens, seconds, self._model]
        self._with(lambda connection: connection.execute(update, values), None)

    def rate(self) -> float | None:
        """Tokens per second in the last run that embedded something, if there was one."""
        query, values = "SELECT tokens, seconds FROM models WHERE model = ?", [self._model]
        row = self._with(lambda connection: connection.execute(query, values).fetchone(), None)
        tokens, seconds = row or (0.0, 0.0)
        return tokens / seconds if tokens and seconds else None

    def close(self) -> None:
        """Drop the least recently used entries if there are too many bytes, and close the file."""
        if self._connection:
            self._with(self._trim, None)
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _trim(self, connection: sqlite3.Connection) -> None:
        size = _size(connection)
        if size <= self.max_bytes:
            return
        (rows,) = connection.execute("SELECT count(*) FROM vectors16").fetchone()
        surplus = ceil(rows * (1 - self.max_bytes * FILLED / size))
        connection.execute(
            "DELETE FROM vectors16 WHERE rowid IN (SELECT rowid FROM vectors16 ORDER BY used, rowid LIMIT ?)",
            [surplus],
        )
        connection.commit()
        connection.execute("VACUUM")

    def _with(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The result of `work`, in one transaction; `otherwise` if the file can't be used."""
        with self._lock:
            if self._off:
                return otherwise
            try:
                self._connection = self._connection or _connect(self.data)
                with self._connection:
                    return work(self._connection)
            except (sqlite3.OperationalError, OSError) as error:  # locked, or a full or read-only disk
                self._off = True
                self._note(f"The cache of embeddings was not used from then on: {_reason(error)}.")
            except sqlite3.DatabaseError:
                if self._connection:
                    self._connection.close()
                self._connection = None
                with suppress(OSError):
                    delete(self.data)
                self._note("The cache of embeddings was damaged, so it was deleted. It fills again.")
        return otherwise

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


LARGEST = 32_767  # of the 16-bit numbers that a vector is quantized to


def rounded(vectors: Vectors) -> Vectors:
    """Vectors as the cache returns them: quantized in steps of their largest number / `LARGEST`."""
    return np.stack([_unpacked(_packed(vector)) for vector in vectors]) if len(vectors) else vectors


def _packed(vector: Vectors) -> bytes:
    """A finite vector in 2 bytes a number and 4 for the size of a step."""
    step = np.abs(vector).max(initial=0) / LARGEST
    numbers = np.rint(vector / step) if step else vector
    return b"".join((np.array(step, "<f4").tobytes(), numbers.astype("<i2").tobytes()))


def _unpacked(packed: bytes) -> Vectors:
    step = np.frombuffer(packed, "<f4", 1)
    vector: Vectors = np.frombuffer(packed, "<i2", offset=step.nbytes) * step
    return vector


def text_key(key: bytes, model: bytes, text: str) -> bytes:
    """The key of a text's entry; `key` is that of the data folder."""
    return hashlib.blake2b(model + text.encode("utf-8", "surrogatepass"), key=key, digest_size=20).digest()


def owner(tenant: str, collection: str) -> str:
    """The owner of the entries of a collection; names have no dot."""
    return f"{tenant}.{collection}"


def delete(data: Path) -> None:
    """Delete the cache.

    Raises:
        OSError: it can't be deleted.
    """
    for suffix in ("", "-wal", "-shm"):
        (data / f"{FILE}{suffix}").unlink(missing_ok=True)


def forget(
    data: Path,
    key: bytes,
    tenant: str,
    *,
    texts: Iterable[str] = (),
    collections: Iterable[str] | None = None,
) -> int:
    """Delete the entries of these collections (None: of all) for good, except entries of `texts`.

    Returns their number. A cache that can't be cleaned is deleted as a whole.

    Raises:
        OSError: it can't be written.
    """
    if not cache_file(data).exists():
        return 0
    try:
        with closing(_connect(data)) as connection:
            where, values = "owner >= ? AND owner < ?", [f"{tenant}.", f"{tenant}/"]  # "/" follows "."
            if collections is not None:
                values = [owner(tenant, collection) for collection in collections]
                where = f"owner IN ({', '.join('?' * len(values))})"
            with connection:
                connection.execute("CREATE TEMP TABLE kept (key BLOB PRIMARY KEY)")
                models = [row[0] for row in connection.execute("SELECT model FROM models")]
                rows = ([text_key(key, model, text)] for text in texts for model in models)
                connection.executemany("INSERT OR IGNORE INTO kept VALUES (?)", rows)
                number = connection.execute(
                    f"DELETE FROM vectors16 WHERE {where} AND key NOT IN (SELECT key FROM kept)",  # noqa: S608 only marks
                    values,
                ).rowcount
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has the deleted entries, too
            return number
    except sqlite3.Error:
        delete(data)  # the entries must go, whatever that costs
        return 0


def owners(data: Path, tenant: str) -> set[str]:
    """The collections of a tenant that have entries."""
    if not cache_file(data).exists():
        return set()
    try:
        with closing(_connect(data)) as connection:
            rows = connection.execute("SELECT DISTINCT owner FROM vectors16").fetchall()
    except sqlite3.Error:
        return set()
    return {name.partition(".")[2] for (name,) in rows if name.partition(".")[0] == tenant}


def _connect(data: Path) -> sqlite3.Connection:
    file = cache_file(data)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # only its owner may read it
    connection = sqlite3.connect(file, timeout=WAIT_SECONDS, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    # A power failure can lose the last entries, nothing else.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")  # a purged text's vector must not stay in the file
    connection.executescript(_TABLES)
    return connection


def _size(connection: sqlite3.Connection) -> int:
    """The bytes of the file that are in use."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _reason(error: sqlite3.OperationalError | OSError) -> str:
    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    return "another process was using it" if busy else "the disk is full, or the file can't be written"


@dataclass(slots=True)
class CachedEmbedder(WrappedEmbedder):
    """An embedder with a cache of the vectors of documents.

    With `parts`, which yields vectors as soon as an endpoint answers, these are cached at once. `cached`
    counts texts from the cache, `tokens` and `seconds` are those of the others; without `parts`, tokens are
    not counted.
    """

    inner: Embedder
    cache: EmbeddingCache
    parts: Callable[[Sequence[str], TextKind], AsyncGenerator[Vectors]] | None = None
    cached: int = 0
    seconds: float = 0.0
    tokens: int = 0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """As the embedder itself; equal texts are embedded once.

        Raises:
            ProviderError: the endpoint failed; vectors embedded before that are in the cache.
        """
        if kind == "query":
            return await self.inner.embed(texts, kind)
        dimension = self.identity.dimension
        vectors = await to_thread.run_sync(self.cache.vectors, texts)
        vectors = {text: vector for text, vector in vectors.items() if vector.shape == (dimension,)}
        used, missing = list(vectors), [text for text in dict.fromkeys(texts) if text not in vectors]
        self.cached += len(texts) - len(missing)
        await to_thread.run_sync(self.cache.keep, (), used)
        vectors |= await self._embed_missing(missing)
        return np.stack([vectors[text] for text in texts]) if texts else np.empty((0, dimension), np.float32)

    async def _embed_missing(self, texts: Sequence[str]) -> dict[str, Vectors]:
        vectors: dict[str, Vectors] = {}
        if not texts:
            return vectors
        began, done = time.monotonic(), 0
        async with aclosing((self.parts or self._at_once)(texts, "document")) as parts:
            async for part in parts:
                # Rounded as the cache will return them, so that a later run stores the same vectors.
                new = dict(zip(texts[done : done + len(part)], rounded(part), strict=True))
                done += len(part)
                vectors |= new
                valid = [(text, vector) for text, vector in new.items() if vector.any()]
                await to_thread.run_sync(partial(self.cache.keep, valid))
                if self.parts:  # the rate of a local model is measured on demand
                    self.tokens += sum(len(self.token_spans(text)) for text in new)
        self.seconds += time.monotonic() - began
        return vectors

    async def _at_once(self, texts: Sequence[str], kind: TextKind) -> AsyncGenerator[Vectors]:
        yield await self.inner.embed(texts, kind)

"""Ids of sources, and the names that purged sources keep. Both are keyed hashes of a URI.

The key is the data folder's. Without it nobody can compute the id of a document from a guessed path.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from itertools import count

from rag.corpus import AccessRecord, Collection
from rag.uris import TAG_CHARS

PURGED = "purged:"


class SourceIds:
    """The ids of one collection's sources.

    An id stays with its document. When the document moves, the id moves with it, and the next document at the
    old URI gets another one.
    """

    def __init__(self, collection: Collection, key: bytes) -> None:
        self._collection = collection
        self._key = key
        self._by_uri: dict[str, str] = {}
        self._taken: set[str] = set()
        self._to_learn: Mapping[str, AccessRecord] = {}

    def learn(self, records: Mapping[str, AccessRecord]) -> None:
        """Note the ids in use, of present and removed sources, by the tenant's access records.

        They are read when somebody asks for an id: a run on documents that are stored asks for none.
        """
        self._to_learn = records

    def _learn(self) -> None:
        name = self._collection.name
        ours = [record for record in self._to_learn.values() if record.collection == name]
        ours.sort(key=lambda record: record.present)  # of one URI, a present source wins
        self._by_uri |= {record.uri: record.id for record in ours}
        self._taken |= {record.id for record in ours}
        self._to_learn = {}

    def of(self, uri: str) -> str:
        """The id of the source at `uri`."""
        if self._to_learn:
            self._learn()
        purged = self.purged(uri)
        if purged in self._by_uri:
            return self._by_uri[purged]
        if uri not in self._by_uri:
            derived = (self._derived_id(uri, number) for number in count())
            self._by_uri[uri] = next(id_ for id_ in derived if id_ not in self._taken)
            self._taken.add(self._by_uri[uri])
        return self._by_uri[uri]

    def of_folder(self, uri: str) -> str:
        """The id of the record of a folder."""
        return self._derived_id(uri, -1)

    def purged(self, uri: str) -> str:
        """The pseudonym of a URI after a purge. With the key, the URI and its folder can be recognized."""
        folder, _, name = uri.rpartition("/")
        parts = [
            hashlib.blake2b(part.encode(), key=self._key, digest_size=16).hexdigest()
            for part in (folder, name)
        ]
        return PURGED + "/".join(parts)

    def _derived_id(self, uri: str, number: int) -> str:
        parts = [self._collection.tenant, self._collection.name, uri, *([number] if number else [])]
        digest = hashlib.blake2b(json.dumps(parts).encode(), key=self._key, digest_size=10).digest()
        return base64.b32encode(digest).decode().lower()


def tag_letters(tag: Collection, key: bytes) -> str:
    """The suffix of the ids in a tag. A later tag of this name gets another, because its texts differ."""
    parts = [tag.tenant, tag.name, tag.created_at.isoformat()]
    digest = hashlib.blake2b(json.dumps(parts).encode(), key=key, digest_size=TAG_CHARS * 5 // 8).digest()
    return base64.b32encode(digest).decode().lower()


def is_uri(former: str) -> bool:
    """Whether an entry of `AccessRecord.former` is a readable URI, not a digest or a purged URI."""
    return ":" in former and not former.startswith(PURGED)

"""Two hundred people of four tenants. Each has an API key, and a document that nobody else may see."""

from __future__ import annotations

import random
import re
import string
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rag.access.keys import SEARCH_SCOPE, ApiKey, Keys, keys_file, new_secret, token_of
from tests.attacks.raw_http import message

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Message

TENANTS = ("acorn", "birch", "cedar", "dogwood")
PEOPLE = 200
_CANARY = re.compile(rb"zq[a-z]{10}")
CONFIG = "[access]\nof_documents = true\n"
COMMON = "# The tower\n\nA pendulum hangs in the tower, and everybody may look at it.\n"
"""What everybody of a tenant may see."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a key. `canary` is a word that stands only in the document that is theirs."""

    tenant: str
    name: str
    canary: str
    key: str

    @property
    def text(self) -> str:
        """Their document."""
        front = f"---\nvisibility: restricted\nallow: user:{self.name}\n---\n"
        return f"{front}# About the {self.canary}\n\nThe {self.canary} pendulum is kept by one alone.\n"


@dataclass(frozen=True, slots=True)
class Crowd:
    """A data folder with the people's documents and keys in it. Only for reading."""

    data: Path
    people: tuple[Person, ...]
    canaries: frozenset[bytes]

    def foreign(self, answer: bytes, person: Person) -> set[bytes]:
        """The canaries of others in what is said to somebody."""
        return (set(_CANARY.findall(answer)) & self.canaries) - {person.canary.encode()}


def search(person: Person, query: str = "", mode: str = "sparse", *, id_: object = 1) -> Message:
    """A search, which without a query is for the person's own document."""
    arguments = {"query": query or person.canary, "mode": mode}
    return message("tools/call", {"name": "search", "arguments": arguments}, id_)


def gather(scripts: Scripts, folder: Path) -> list[dict[str, str]]:
    """Fill a folder with the people's documents, brought in by the installed commands, and their keys."""
    folder.mkdir()
    data, config = folder / "data", folder / "config.toml"
    config.write_text(CONFIG)

    def bring_in(tenant: str) -> None:
        of_tenant = ["--tenant", tenant]
        for arguments in (
            ["tenant", "create", tenant],
            ["collection", "create", "documents", "--visibility", "tenant", *of_tenant],
            ["ingest", folder / tenant, *of_tenant],
        ):
            run = scripts.admin(*arguments, "--data", data, "--config", config)
            assert run.returncode == 0, run.stderr

    people = _people(data)
    for tenant in TENANTS:
        (folder / tenant).mkdir()
        (folder / tenant / "tower.md").write_text(COMMON)
    for person in people:
        (folder / person.tenant / f"{person.name}.md").write_text(person.text)
    with ThreadPoolExecutor() as pool:
        list(pool.map(bring_in, TENANTS))
    return [asdict(person) for person in people]


def gathered(data: Path, people: list[dict[str, str]]) -> Crowd:
    """The crowd whose documents and keys are in a data folder."""
    persons = tuple(Person(**person) for person in people)
    return Crowd(data, persons, frozenset(person.canary.encode() for person in persons))


def _people(data: Path) -> tuple[Person, ...]:
    """The people, whose keys are written into the data folder: a command for each would take minutes."""
    drawn, now = random.Random(2026), datetime.now(UTC)  # noqa: S311 repeatable, not secret
    people, keys = [], []
    for number in range(PEOPLE):
        secret, digest = new_secret()
        tenant, user = TENANTS[number % len(TENANTS)], f"user{number}"
        key = ApiKey(
            id=f"{number:08x}",
            digest=digest,
            tenant=tenant,
            user=user,
            groups=(),
            scopes=(SEARCH_SCOPE,),
            created_at=now,
            expires_at=now + timedelta(days=1),
        )
        canary = "zq" + "".join(drawn.choices(string.ascii_lowercase, k=10))
        people.append(Person(tenant, user, canary, token_of(key, secret)))
        keys.append(key)
    data.mkdir(mode=0o700)
    keys_file(data).touch(mode=0o600)
    keys_file(data).write_text(Keys(keys=tuple(keys)).model_dump_json())
    return tuple(people)

"""The pages on the desk as a whole: overview and health, activity, collections, and API keys.

Activity shows the server's metrics and the audit log.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast, get_args

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from rag.access.keys import ApiKey, keys_in, token_of
from rag.admin import collection_changes as admin_collection
from rag.admin import key_command
from rag.admin.audit_command import actor_name, change_in_words, read_log
from rag.admin.collection_changes import MAX_DESCRIPTION
from rag.admin.key_command import binding_in_words
from rag.admin.sharing import exposures, usual_visibility
from rag.admin.sources_command import size_of
from rag.admin.web.console import Asker, Console, EntryError, entry, number_in, see_other
from rag.config.server_settings import resource_url
from rag.corpus import LanguageChoice, Visibility
from rag.errors import InvalidRequestError, NotFoundError
from rag.report import one_line
from rag.run_history import last_runs

if TYPE_CHECKING:
    from prometheus_client.samples import Sample
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response


async def overview(console: Console, _request: Request) -> Response:
    """The page."""
    sizes = [await size_of(table) for table in await console.tables()]
    last = [*last_runs(console.settings.home, console.tenant)]
    runs = {run.collection: run for run in reversed(last)}  # the newest of each
    return console.page("overview.html", sizes=sizes, runs=runs, health=console.health)


async def look_again(console: Console, _request: Request, _form: FormData) -> Response:
    """Run the health checks again."""
    await console.health.look()
    return see_other("/#health")


async def choose_tenant(console: Console, _request: Request, form: FormData) -> Response:
    """Switch to another tenant."""
    console.choose(str(form.get("tenant", "")))
    return see_other("/")


ACTS = 100  # that are shown
PATIENCE_SECONDS = 2.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading the usual certificates takes 50 ms, for nothing
MAX_BYTES = 4_000_000  # of metrics
CALLS = "refdesk_call_seconds"
COUNTED: Mapping[str, str] = {
    "refdesk_searches_total": "Searches",
    "refdesk_degraded_searches_total": "Searches that lacked something",
    "refdesk_refused_requests_total": "Requests refused before they became calls",
    "refdesk_rejected_total": "Requests rejected because there were too many",
    "refdesk_failed_steps_total": "Steps that failed",
    "refdesk_gate_alarms_total": "Alarms of the gate (should stay at 0)",
    "refdesk_endpoint_failing": "Endpoints that fail now",
    "refdesk_active": "Requests that run now",
}


@dataclass(frozen=True, slots=True)
class Server:
    """The metrics of a running server, or the `problem` that kept them from being read.

    `calls` have a tool or method, an outcome, their number, and the mean of their milliseconds.
    """

    problem: str = ""
    ready: bool = False
    calls: Sequence[tuple[str, str, int, float]] = ()
    counts: Sequence[tuple[str, str, float]] = ()


async def activity(console: Console, _request: Request) -> Response:
    """The page."""
    acts = deque(((number, line) for number, line in read_log(console.settings.data)), maxlen=ACTS)
    port = console.settings.http.metrics_port
    off = "The settings turn its metrics off (http.metrics_port = 0)."
    return console.page(
        "activity.html",
        port=port,
        server=await server_at(port) if port else Server(off),
        acts=[line for _, line in reversed(acts) if line and line.tenant == console.tenant],
        unreadable=sum(line is None for _, line in acts),
        who=actor_name,
        change_in_words=change_in_words,
    )


async def server_at(port: int) -> Server:
    """The metrics of the server at this port."""
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False, verify=NO_TLS
        ) as client:
            ready = (await client.get("/readyz")).is_success
            async with client.stream("GET", "/metrics") as reply:
                text = b""
                async for part in reply.aiter_bytes():
                    text += part
                    if len(text) > MAX_BYTES:
                        break
        families = list(text_string_to_metric_families(text.decode("utf-8", "replace")))
    except (httpx2.HTTPError, ValueError):
        return Server(f"No server answers on port {port} of this machine. refdesk --http starts one.")
    samples = [sample for family in families for sample in family.samples]
    return Server("", ready, _calls(samples), list(_counts(samples)))


def _calls(samples: list[Sample]) -> list[tuple[str, str, int, float]]:
    counts, seconds = (
        {
            (sample.labels.get("call", ""), sample.labels.get("outcome", "")): sample.value
            for sample in samples
            if sample.name == f"{CALLS}_{figure}"
        }
        for figure in ("count", "sum")
    )
    rows = [
        (*key, int(count), 1000 * seconds.get(key, 0.0) / count if count else 0.0)
        for key, count in counts.items()
    ]
    return sorted(rows, key=lambda row: -row[2])


def _counts(samples: list[Sample]) -> Iterator[tuple[str, str, float]]:
    for sample in samples:
        if title := COUNTED.get(sample.name):
            yield title, ", ".join(f"{key} {value}" for key, value in sample.labels.items()), sample.value


LANGUAGES = sorted(
    {language for part in get_args(LanguageChoice) for language in (get_args(part) or (part,))}
)
MAX_DAYS, USUAL_DAYS = 3650, 365


async def collections(console: Console, _request: Request) -> Response:
    """The page of the collections."""
    tables = await console.tables()
    return console.page(
        "collections.html",
        rows=[
            (table.collection, await size_of(table), usual_visibility(console.settings, table.collection))
            for table in tables
        ],
        languages=LANGUAGES,
        visibilities=get_args(Visibility),
        language_of=admin_collection.language_in_words,
    )


async def create_collection(console: Console, _request: Request, form: FormData) -> Response:
    """Make a collection."""
    language, visibility = str(form.get("language", "auto")), str(form.get("visibility", ""))
    if language not in LANGUAGES or visibility not in {"", *get_args(Visibility)}:
        raise InvalidRequestError("Choose a language and a visibility of the list.")
    description = one_line(str(form.get("description", "")))
    if len(description) > MAX_DESCRIPTION:
        raise EntryError("description", f"A description has at most {MAX_DESCRIPTION} characters.")
    name = str(form.get("name", "")).strip()
    with entry("name"):
        await admin_collection.check_is_new(console.settings, name)
    collection = await admin_collection.create_collection(
        console.settings,
        name,
        language=cast("LanguageChoice", language),
        visibility=cast("Visibility", visibility) if visibility else None,
        description=description,
    )
    console.say(f"Created the collection {collection.name}.")
    return see_other("/collections")


async def keys(console: Console, _request: Request) -> Response:
    """The page of the keys; once, also the one that was just made."""
    token = token_of(*console.made_keys.pop()) if console.made_keys else None
    return console.page(
        "keys.html",
        keys=_keys_of(console),
        now=datetime.now(UTC),
        bound=binding_in_words,
        url=resource_url(console.settings.http),
        takes_keys="keys" in console.settings.http.authentication,
        days=USUAL_DAYS,
        token=token,
    )


async def create_key(console: Console, _request: Request, form: FormData) -> Response:
    """Make a key. The page that follows shows it; to load that again makes no other."""
    days = number_in(str(form.get("days", USUAL_DAYS)), 1, MAX_DAYS)
    if days is None:
        raise EntryError("days", f"A key lasts from 1 to {MAX_DAYS} days.")
    asker = Asker.of({"user": form.get("user", ""), "groups": form.get("groups", "")}, console.settings)
    holder = asker.principal(console.tenant)
    key_and_secret = key_command.create_key(
        console.settings, user=holder.user or "", groups=sorted(holder.groups), days=days
    )
    console.made_keys.append(key_and_secret)
    for exposure in await exposures(console.settings, console.tenant, intended=True):
        console.say(str(exposure))
    return see_other("/keys")


async def revoke_key(console: Console, _request: Request, form: FormData) -> Response:
    """Revoke a key of the tenant."""
    id_ = str(form.get("id", ""))
    if id_ not in {key.id for key in _keys_of(console)}:
        raise NotFoundError("There is no such key. It may have been revoked.")
    key_command.revoke_key(console.base_settings.home, id_)
    console.say(f"Revoked the key {id_}. Running servers reject it from the next request on.")
    return see_other("/keys")


def _keys_of(console: Console) -> list[ApiKey]:
    return [key for key in keys_in(console.base_settings.home).keys if key.tenant == console.tenant]

"""`refdesk-admin config`: check the settings, try each part that they name, and show where they come from.

No server needs to run.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import click
from anyio import to_thread

from rag.access.keys import ApiKey, keys_in
from rag.access.rule import BoundTo, walls
from rag.access.tenants import check_tenant, tenant_of
from rag.admin.command_line import command, flag, settings_file
from rag.admin.sharing import unchosen_exposures
from rag.admin.sources_command import collections_by_tenant
from rag.admin.terminal import FAILED, Group, echo, print_result
from rag.config.load import environment_name, named_values, setting_values
from rag.config.mistakes import binding_contradictions, stages_of
from rag.config.origin_settings import FolderOrigin, GitOrigin, RecordsOrigin, S3Origin
from rag.config.profiles import CustomStage, MultiQueryStage, PlannerStage, RerankStage
from rag.config.server_settings import OAuthSettings, check_exposure
from rag.config.settings import ModerationSettings, Settings, default_data
from rag.corpus import DEFAULT_EMBEDDER, NO_VECTORS, Collection, EmbedderIdentity
from rag.errors import ProviderError, RefdeskError
from rag.home import data_folder_problem
from rag.ingest.requested_access import covered_rules
from rag.models.chat import Form, open_chat
from rag.models.embed import open_embedder
from rag.models.embed.calibration import MAX_UNRELATED, cosines_in
from rag.models.rerank import open_reranker
from rag.runtime import extra_needed, has_extra
from rag.search.retrievers import load_retrievers
from rag.search.stages.custom import load_function
from rag.store.read.catalog import check_embedder
from rag.store.read.desk_reader import DeskReader
from rag.uris import redirect_target

State = Literal["ok", "note", "wrong"]
Attempt: TypeAlias = "Callable[[], Awaitable[str]]"
"""Tries a part of the configuration. Returns what works; raises a `RefdeskError` otherwise."""

TELLING = 0.15  # a mean cosine this far from the baseline isn't chance, even with so few texts
REMOTE_SECONDS = 30  # for each model, all its attempts together
ISSUER_SECONDS = 5  # for each of its addresses
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """The result of checking a part of the configuration. A note may or may not be a mistake."""

    part: str
    state: State
    text: str


class _Ready(Form):
    """The form of the chat model's reply: any valid one shows that it works."""

    ready: bool


async def setting_findings(
    settings: Settings, environment: Mapping[str, str]
) -> AsyncIterator[SettingFinding]:
    """The findings on all parts that the settings use. Remote models get one or two small requests each."""
    yield _data_folder_finding(settings)
    yield _tenant_finding(settings)
    for part, attempt in _models(settings, environment):
        yield await _attempt_finding(part, attempt)
    if settings.moderation != ModerationSettings():
        yield await _attempt_finding("moderation", partial(_moderation, settings.moderation, environment))
    async for finding in _embedder_findings(settings):
        yield finding
    for stage in chain.from_iterable(stages_of(settings.search).values()):
        if isinstance(stage, CustomStage):
            load = partial(load_function, stage)
            yield _check_finding(f"stage {stage.called}", load, "the function can be imported")
    async for finding in _external_findings(settings):
        yield finding
    covered = covered_rules(settings.access.rules).items()
    rules = ((f"access rule {pattern}", problem) for pattern, problem in covered)
    for part, problem in chain(await binding_problems(settings), rules):
        yield SettingFinding(part, "wrong", problem)
    for finding in chain(_extra_findings(settings), _origin_findings(settings), _http_findings(settings)):
        yield finding
    async for finding in _oauth_findings(settings):
        yield finding


def _models(settings: Settings, environment: Mapping[str, str]) -> Iterator[tuple[str, Attempt]]:

    async def embedder(name: str) -> str:
        async with open_embedder(settings.embedder_named(name), environment) as opened:
            identity, (usual, _) = opened.identity, await cosines_in("en", opened)
            await _check_collections(settings, name, identity)
            description = f"{identity.provider} {identity.model}, {identity.dimension} dimensions"
            model = settings.embedder_named(name)
            is_measured = model.provider == "onnx" and model.baseline is None
            if is_measured or abs(usual - (model.baseline or 0)) <= TELLING or usual > MAX_UNRELATED:
                return description
            advice = f"so set baseline = {max(usual, 0):.2f}"
            return f"{description}; unrelated texts have a cosine of {usual:.2f}, {advice}"

    async def chat(model: str) -> str:
        async with open_chat(settings.chat, environment) as opened:
            if opened:
                ready = opened.with_model(model).reply
                await ready("Say that you are ready.", "Are you ready?", _Ready, lambda _usage: None)
        return f"{model or settings.chat.model} answers"

    async def reranker(model: str) -> str:
        async with open_reranker(settings.reranker, environment) as opened:
            if opened:
                await opened.with_model(model).scores("clock", ["A clock tells the time."])
        return f"{model or settings.reranker.provider} answers"

    yield "embedder", partial(embedder, DEFAULT_EMBEDDER)
    for name in settings.embedders:
        yield f"embedder {name}", partial(embedder, name)
    of_chat, of_reranker = _other_models(settings)
    for model in ("", *of_chat) if settings.chat.model else ():
        yield f"chat {model}".strip(), partial(chat, model)
    for model in ("", *of_reranker) if settings.reranker.provider != "none" else ():
        yield f"reranker {model}".strip(), partial(reranker, model)


def _other_models(settings: Settings) -> tuple[list[str], list[str]]:
    """The models of their own that stages name, behind the endpoints of [chat] and of [reranker]."""
    by_chat, by_reranker = dict[str, None](), dict[str, None]()
    for stage in chain.from_iterable(stages_of(settings.search).values()):
        if isinstance(stage, MultiQueryStage | PlannerStage | RerankStage) and stage.model:
            is_reranker = isinstance(stage, RerankStage) and stage.by == "reranker"
            (by_reranker if is_reranker else by_chat)[stage.model] = None
    return list(by_chat), list(by_reranker)


async def _moderation(settings: ModerationSettings, environment: Mapping[str, str]) -> str:
    from rag.ingest.document_admission import (  # noqa: PLC0415 takes 0.2 s, and few have a moderator
        ModerationError,
        open_moderation,
    )

    async with open_moderation(settings, environment) as moderator:
        if settings.base_url and moderator:  # what a function or a program does isn't known here
            try:
                await moderator.ask({"title": "A clock", "text": "A clock tells the time."})
            except ModerationError as error:
                raise ProviderError(f"{settings.base_url} gives no verdict: {error}.") from error
            return f"{settings.base_url} answers"
        return f"{settings.call or ' '.join(settings.command)} is set up"


def _data_folder_finding(settings: Settings) -> SettingFinding:
    part = "storage" if settings.storage.uri else "data folder"
    problem = data_folder_problem(settings.home)
    if problem is None:
        return SettingFinding(part, "ok", str(settings.home))
    begins = settings.data == default_data() and not settings.data.exists()
    return SettingFinding(part, "note" if begins and not settings.storage.uri else "wrong", problem)


def _extra_findings(settings: Settings) -> Iterator[SettingFinding]:
    buckets = [name for name, origin in settings.origins.items() if isinstance(origin, S3Origin)]
    needed = [(f"origins.{name}", "cloud") for name in buckets]
    needed += [("ingest.ocr", "ocr")] if settings.ingest.ocr != "off" else []
    needed += [("server.traces", "otel")] if settings.server.traces else []
    for part, extra in needed:
        if has_extra(extra):
            yield SettingFinding(part, "ok", f"the extra {extra} is installed")
        else:
            yield SettingFinding(part, "wrong", extra_needed(extra, "It"))


def _origin_findings(settings: Settings) -> Iterator[SettingFinding]:
    """Findings on the files and folders of origins on this machine. Other machines are not asked."""
    for name, origin in settings.origins.items():
        local: list[Path | None] = []
        match origin:
            case FolderOrigin(path=path):
                local = [path]
            case GitOrigin(repository=repository) if repository.startswith("/"):
                path = Path(repository)
                if path.is_dir() and not any((path / part).exists() for part in (".git", "HEAD")):
                    yield SettingFinding(f"origin {name}", "wrong", f"{path} is not a git repository")
                else:
                    local = [path]
            case RecordsOrigin(file=file, folder=folder, command=command):
                local = [file, folder]
                if command and not shutil.which(command[0]):
                    yield SettingFinding(f"origin {name}", "wrong", f"there is no program {command[0]}")
        for path in filter(None, local):
            missing = not path.exists()
            text = f"there is no {path}" if missing else str(path)
            yield SettingFinding(f"origin {name}", "wrong" if missing else "ok", text)


def _tenant_finding(settings: Settings) -> SettingFinding:
    try:
        return SettingFinding("tenant", "ok", tenant_of(settings))
    except RefdeskError as error:
        # Several tenants and no name are right for a server whose keys or tokens name the tenant.
        unnamed = settings.principal.tenant is None and data_folder_problem(settings.home) is None
        return SettingFinding("tenant", "note" if unnamed else "wrong", str(error))


async def _oauth_findings(settings: Settings) -> AsyncIterator[SettingFinding]:
    """A note for each tenant that the settings name but that doesn't exist, and findings about the issuer."""
    tenant_names = {
        *((tenant, "oauth") for tenant in settings.oauth.tenants.values()),
        *((client.tenant, "oauth") for client in settings.oauth.clients.values()),
        *((tenant, "search.of_tenants") for tenant in settings.search.of_tenants),
    }
    for tenant, part in sorted(tenant_names):
        try:
            check_tenant(settings.home, tenant)
        except RefdeskError as error:
            yield SettingFinding(part, "note", str(error))
    if "oauth" in settings.http.authentication and settings.oauth.jwks_url:
        for finding in await to_thread.run_sync(lambda: list(issuer_findings(settings.oauth))):
            yield finding


def issuer_findings(oauth: OAuthSettings) -> Iterator[SettingFinding]:
    """Whether the issuer's keys can be fetched, and its metadata, which clients go by, are right."""
    import jwt  # noqa: PLC0415 only needed with OAuth

    try:
        answer = _fetch(oauth.jwks_url)
        keys = jwt.PyJWKSet.from_dict(answer if isinstance(answer, dict) else {}).keys
        usable = {key.key_id for key in keys if key.key_id and key.public_key_use in {"sig", None}}
    except (jwt.PyJWTError, TypeError):  # a list in place of a name
        redirects = f": it redirects to {answer}. If that is right, set oauth.jwks_url to it."
        why = redirects if isinstance(answer, str) else "."
        text = f"Its keys can't be fetched from {oauth.jwks_url} (oauth.jwks_url){why}"
        yield SettingFinding("issuer", "wrong", text)
        return
    except RefdeskError as error:  # the proxy's or the certificates' variable
        yield SettingFinding("issuer", "wrong", str(error))
        return
    if not usable:
        text = f"No key at {oauth.jwks_url} (oauth.jwks_url) is for signing and has an id."
        yield SettingFinding("issuer", "wrong", text)
        return
    yield SettingFinding("issuer", "ok", f"{len(usable)} signing keys at {oauth.jwks_url}")
    metadata = _metadata(oauth.issuer)
    if not isinstance(metadata, dict):
        redirects = f"redirects to {metadata}, where many clients don't follow"
        problem = redirects if metadata else "has none: clients don't find where to sign in"
        text = f"{oauth.issuer} {problem}. Is oauth.issuer right?"
        yield SettingFinding("issuer's metadata", "note", text)
        return
    yield SettingFinding("issuer's metadata", *_judgement(metadata, oauth))


def _judgement(metadata: dict[str, Any], oauth: OAuthSettings) -> tuple[State, str]:
    name, keys = metadata.get("issuer"), metadata.get("jwks_uri")
    if name != oauth.issuer:
        text = f"It calls itself {name!r}, not {oauth.issuer!r} (oauth.issuer): no token is accepted."
        return "wrong", text
    if keys != oauth.jwks_url:
        return "note", f"It has its keys at {keys!r}, not at {oauth.jwks_url!r} (oauth.jwks_url)."
    if "S256" not in _list_of(metadata, "code_challenge_methods_supported"):
        return "note", "It doesn't declare PKCE with S256. Many clients refuse to sign in without it."
    registers = metadata.get("registration_endpoint") or metadata.get("client_id_metadata_document_supported")
    vouched = ID_JAG in _list_of(metadata, "authorization_grant_profiles_supported")
    return "ok", (
        f"clients {'can register by themselves' if registers else 'need an id from you'}; "
        f"sign-in that an identity provider vouches for (ID-JAG): {'yes' if vouched else 'no'}"
    )


def _list_of(metadata: dict[str, Any], name: str) -> list[Any]:
    value = metadata.get(name)
    return value if isinstance(value, list) else []


def _metadata_addresses(issuer: str) -> Iterator[str]:
    """Where clients look for an issuer's metadata (RFC 8414, OpenID Connect Discovery).

    Example: "https://a.example/b" -> "https://a.example/.well-known/oauth-authorization-server/b" and others.
    """
    parts = urlsplit(issuer)
    host, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{host}/.well-known/oauth-authorization-server{path}"
    yield f"{host}/.well-known/openid-configuration{path}"
    yield f"{host}{path}/.well-known/openid-configuration"


def _metadata(issuer: str) -> dict[str, Any] | str | None:
    """The metadata at the first address that has some; else where an address redirects to, if one does."""
    target = None
    for address in _metadata_addresses(issuer):
        answer = _fetch(address)
        if isinstance(answer, dict):
            return answer
        target = target or answer
    return target


def _fetch(address: str) -> dict[str, Any] | str | None:
    """The JSON object at an address, or where that redirects to; None if there is neither."""
    import httpx2  # noqa: PLC0415 only needed with OAuth

    from rag.models.web_client import blocking_client  # noqa: PLC0415 likewise

    try:
        with blocking_client(timeout=ISSUER_SECONDS) as client:
            reply = client.get(address)
        if reply.has_redirect_location:
            return redirect_target(address, reply.headers["Location"])
        document = reply.raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


async def _check_collections(settings: Settings, name: str, identity: EmbedderIdentity) -> None:
    """Raise ConfigurationError if a collection that names this embedder was made with another model."""
    for collection in await _collections(settings):
        if collection.embedder_name == name and collection.embedder != NO_VECTORS:
            check_embedder(collection, identity)


async def _embedder_findings(settings: Settings) -> AsyncIterator[SettingFinding]:
    """A finding for each collection whose embedder the settings lack."""
    try:
        collections = await _collections(settings)
    except RefdeskError:  # the embedders' findings report it
        return
    for collection in collections:
        if collection.embedder != NO_VECTORS and not settings.has_embedder(collection.embedder_name):
            check = partial(check_embedder, collection, None)  # which says what to do
            yield _check_finding(f"collection {collection.name}", check, "")


async def _external_findings(settings: Settings) -> AsyncIterator[SettingFinding]:
    collections = set[tuple[str, str]]()
    with suppress(RefdeskError):  # which the embedders' findings say
        reader = DeskReader.of(settings)
        for collection in await _collections(settings):
            collections.add((collection.tenant, collection.name))
            if collection.attached:
                failed = (await reader.open(collection)).failed
                lost = f"it can't be read; see refdesk-admin collection show {collection.name}"
                text = lost if failed else collection.attached.table
                yield SettingFinding(f"collection {collection.name}", "wrong" if failed else "ok", text)
    for name, retriever in settings.retrievers.items():
        if (retriever.tenant, name) in collections:
            text = "it is not searched: a collection has its name. Give it another one in the settings"
            yield SettingFinding(f"retriever {name}", "wrong", text)
            continue
        load = partial(load_retrievers, {name: retriever})
        yield await to_thread.run_sync(_check_finding, f"retriever {name}", load, retriever.call)


async def visibility_findings(settings: Settings) -> AsyncIterator[SettingFinding]:
    """A note for each collection that is open to others although nobody chose that."""
    with suppress(RefdeskError):  # the embedders' findings report it
        async for _, exposure in unchosen_exposures(settings):
            yield SettingFinding("visibility", "note", str(exposure))


async def _collections(settings: Settings) -> list[Collection]:
    return [*chain.from_iterable((await collections_by_tenant(settings)).values())]


async def _attempt_finding(part: str, attempt: Attempt) -> SettingFinding:
    try:
        with anyio.fail_after(REMOTE_SECONDS):
            return SettingFinding(part, "ok", await attempt())
    except RefdeskError as error:
        return SettingFinding(part, "wrong", str(error))
    except TimeoutError:
        return SettingFinding(part, "wrong", f"There was no answer within {REMOTE_SECONDS} seconds.")


def _check_finding(part: str, check: Callable[[], object], text: str) -> SettingFinding:
    try:
        check()
    except RefdeskError as error:
        return SettingFinding(part, "wrong", str(error))
    return SettingFinding(part, "ok", text)


def _http_findings(settings: Settings) -> Iterator[SettingFinding]:
    http = settings.http
    methods = " and ".join(http.authentication) or "none: for this machine only"
    yield _check_finding("http", partial(check_exposure, http, settings.oauth), f"authentication: {methods}")
    yield _address_finding("http address", http.host, http.port)
    if http.metrics_port:
        yield _address_finding("metrics address", "127.0.0.1", http.metrics_port)


def _address_finding(part: str, host: str, port: int) -> SettingFinding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            if os.name == "posix":  # as the server does
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return SettingFinding(part, "note", f"{host}:{port} is taken, perhaps by refdesk itself.")
            return SettingFinding(part, "wrong", f"{host}:{port} can't be bound: {error.strerror}.")
    return SettingFinding(part, "ok", f"{host}:{port} is free")


# Bindings of tools, OAuth scopes and API keys. One that matches nothing shows nothing, without an error for
# anybody who searches, so it is reported here.

CollectionsByTenant: TypeAlias = "Mapping[str, Sequence[Collection]]"
"""The collections of each tenant."""


async def binding_problems(settings: Settings) -> list[tuple[str, str]]:
    """The parts that match nothing or name what doesn't exist: each with what is wrong."""
    try:
        keys, collections = keys_in(settings.home).keys, await collections_by_tenant(settings)
    except RefdeskError as error:
        return [("keys", str(error))]
    of_settings: list[tuple[str, BoundTo]] = [(f"tool {tool.name}", tool) for tool in settings.server.tools]
    of_settings += [(f"scope {name}", scope) for name, scope in settings.oauth.scopes.items()]
    problems = [(part, _collections_problem(bound, collections)) for part, bound in of_settings]
    problems += _search_problems(settings, collections)
    for key in keys:
        of_tenant = {key.tenant: collections.get(key.tenant, ())}
        problems.append((f"key {key.id}", _key_problem(key, settings, of_tenant)))
    return [(part, problem) for part, problem in problems if problem]


def _search_problems(
    settings: Settings, collections: CollectionsByTenant
) -> Iterator[tuple[str, str | None]]:
    """What is wrong with the collections that [search] names, and with the filters in it."""
    search, every = settings.search, [*chain.from_iterable(collections.values())]
    for table in ("of_collections", "urls"):
        names = getattr(search, table).keys() - settings.retrievers.keys()
        yield f"search.{table}", _missing_problem(sorted(names), every)
    filters = {f"profile {name}": profile.filter for name, profile in search.profiles.items()}
    for part, filter_ in ({"search.filter": search.filter or None} | filters).items():
        yield part, _collections_problem(BoundTo(filter=filter_), collections)
    for tenant, profile in search.of_tenants.items():
        of_tenant = {tenant: collections.get(tenant, ())}
        yield f"search.of_tenants.{tenant}", _collections_problem(BoundTo(filter=profile.filter), of_tenant)


def _missing_problem(names: Iterable[str], every: Sequence[Collection]) -> str | None:
    """Which collections there are not; None while there are no collections."""
    existing = {collection.name for collection in every}
    missing = [name for name in names if name not in existing]
    return f"There is no collection {', '.join(missing)}." if every and missing else None


def _collections_problem(bound: BoundTo, collections: CollectionsByTenant) -> str | None:
    """What is wrong with a binding's collections and filter; None while there are no collections."""
    every = [*chain.from_iterable(collections.values())]
    bound_collections = [
        collection
        for collection in every
        if bound.collections is None or collection.name in bound.collections
    ]
    if missing := _missing_problem(bound.collections or (), every):
        return missing
    if bound_collections and all(
        walls([bound.binding], collection) is None for collection in bound_collections
    ):
        names = {collection.name for collection in bound_collections}
        return f"The filter doesn't fit the declared fields of any collection ({', '.join(sorted(names))})."
    return None


def _key_problem(key: ApiKey, settings: Settings, collections: CollectionsByTenant) -> str | None:
    """What is wrong with a key's binding; None if all that it names exists."""
    bound = key.bound_to
    if bound is None:
        return None
    for _, contradiction in binding_contradictions((), bound, settings):
        return f"It can't search: {contradiction}"
    return _collections_problem(bound, collections)


BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML takes without quotes
STATE_WIDTH = 7  # of "wrong" and a gap


@click.group("config", cls=Group)
def config_command() -> None:
    """Check the settings."""


@command("check", config_command, of_desk=True)
@flag("--all", "everything", help="Print all settings, also those with their defaults.")
async def check_command(settings: Settings, *, everything: bool) -> int:
    """Check the settings, and try what they name.

    It tries the data folder, the tenant, the models, the addresses and the issuer. Remote models get one
    or two small requests each. Prints the settings that differ from their defaults and a line for each
    part: ok, wrong, or a note. Exits with 2 if a key is unknown or a value is invalid, with 1 if a part is
    wrong.
    """
    path = settings_file()
    echo(f"Settings file: {path}{'' if path.exists() else ' (does not exist)'}")
    for line in _settings(settings, everything=everything):
        echo(line)
    echo(f"{'ok':<{STATE_WIDTH}}settings: every key and value is valid")
    results = []
    for checks in (setting_findings(settings, os.environ), visibility_findings(settings)):
        async for finding in checks:
            results.append(finding)
            echo(f"{finding.state:<{STATE_WIDTH}}{finding.part}: {finding.text}")
    wrong = sum(finding.state == "wrong" for finding in results)
    listed, values = [asdict(finding) for finding in results], settings.model_dump(mode="json")
    print_result(
        {"settings_file": str(path), "settings": values, "checks": listed},
        f"Wrong: {wrong} of {len(results) + 1}." if wrong else "The settings are valid.",
    )
    return FAILED if wrong else 0


def _settings(settings: Settings, *, everything: bool) -> Iterator[str]:
    values = setting_values(settings, changed_only=not everything)
    for keys, value in chain(values, named_values(settings)):
        text = "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
        path = ".".join(key if BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in keys)
        yield f"{path} = {text}{_origin(keys)}"


def _origin(keys: tuple[str, ...]) -> str:
    """Where a setting comes from, if not from the file."""
    if keys == ("data",) and click.get_current_context().params["data"]:
        return "  (from --data)"
    name = environment_name(keys)
    return f"  (from {name})" if name in os.environ else ""

"""Contradictions between settings, and what may not be added to a request to an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.config.load import load_settings
from rag.config.mistakes import check_consistent, contradictions
from rag.config.profiles import NO_OTHER_MODEL
from rag.config.settings import Settings
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEDUPE, PLANNER, RERANK = {"stage": "dedupe"}, {"stage": "planner"}, {"stage": "rerank"}
OWN = {"stage": "custom", "call": "own:ask"}
CHAT, RERANKER = {"model": "tiny"}, {"provider": "tei", "base_url": "http://localhost:1"}
TOLD_PROFILES = "there is no profile 'best'; use one of: default, fast, precise, fresh."
TAKEN = "there is already a tool '{}'; give each one a name of its own."
WANTING = "the stage {} needs {}, which is not set."
LATE = "the stage {} makes queries; move it before the stages that take hits."
RESERVED = "refdesk sets this header itself"
OWN_FIELD = "the field {} is refdesk's own; remove it from {}"
NOT_THE_KEY = "not the key itself"


def _settings(search: dict[str, object], **sections: object) -> Settings:
    return Settings.model_validate({"search": search} | sections)


GOOD: dict[str, Settings] = {
    "nothing": Settings(),
    "query stages before hit stages": _settings(
        {"stages": [PLANNER, OWN | {"takes": "query"}, DEDUPE, OWN | {"takes": "hits"}]}, chat=CHAT
    ),
    "a reranker that is there": _settings({"stages": [RERANK]}, reranker=RERANKER),
    "a chat model that reranks": _settings({"stages": [RERANK | {"by": "chat"}]}, chat=CHAT),
    "profiles that are there": _settings(
        {"profiles": {"own": {}}, "of_collections": {"a": "own", "b": "default", "c": "fresh"}},
        server={"profiles": ["own", "default", "fast"]},
    ),
    "models that need no key": Settings.model_validate(
        {part: {"api_key_env": ""} for part in ("embedder", "chat", "reranker", "moderation")}
    ),
    "stages that need no model": _settings({"stages": [DEDUPE, OWN | {"takes": "hits"}]}),
}


def _tools(*tools: Mapping[str, object], **server: object) -> Settings:
    return Settings.model_validate({"server": server | {"tools": tools}})


OTHER: dict[str, object] = {"name": "search_b", "opener": {"name": "open_b"}}
GOOD |= {
    "tools with names of their own": _tools({}, OTHER, openai_compat=True),
    "arguments that are enabled": _tools(
        {"arguments": ["profile", "explain"]}, profiles=["fast"], explain=True
    ),
}
BAD: dict[str, tuple[Settings, str]] = {
    "another model of a reranker that has one": (
        _settings({"stages": [RERANK | {"model": "big"}]}, reranker=RERANKER),
        f"search.stages: {NO_OTHER_MODEL.format('big')}",
    ),
    "two tools of one name": (
        _tools({}, {"opener": {"name": "open_b"}}),
        f"server.tools.name: {TAKEN.format('search')}",
    ),
    "two openers of one name": (
        _tools({}, {"name": "search_b"}),
        f"server.tools.opener.name: {TAKEN.format('get_source')}",
    ),
    "an opener that is called like its search": (
        _tools({"name": "find", "opener": {"name": "FIND"}}),
        f"server.tools.opener.name: {TAKEN.format('FIND')}",
    ),
    "the name of ChatGPT's tool": (
        _tools({}, {"name": "fetch", "opener": {"name": "open_b"}}, openai_compat=True),
        f"server.tools.name: {TAKEN.format('fetch')}",
    ),
    "ChatGPT without search": (
        _tools(OTHER, openai_compat=True),
        "server.openai_compat: ChatGPT calls tools named search and fetch; name one search.",
    ),
    "an unknown profile of a tool": (_tools({"profile": "best"}), f"server.tools.profile: {TOLD_PROFILES}"),
    "a profile to choose where one is bound": (
        _tools({"profile": "fast", "arguments": ["profile"]}, profiles=["fast"]),
        "server.tools.arguments: profile can't be offered: the tool is bound to a profile.",
    ),
    "profiles to choose where none is offered": (
        _tools({"arguments": ["profile"]}),
        "server.tools.arguments: profile can't be offered: server.profiles is empty.",
    ),
    "a trace that isn't enabled": (
        _tools({"arguments": ["explain"]}),
        "server.tools.arguments: explain can't be offered: server.explain is false.",
    ),
    "an argument that is fixed": (
        _tools({"arguments": ["fusion"]}),
        "server.tools.arguments: fusion can't be offered: search.overrides doesn't name it.",
    ),
    "a scope with an unknown profile": (
        Settings.model_validate({"oauth": {"scopes": {"a": {"profile": "best"}}}}),
        f"oauth.scopes.a.profile: {TOLD_PROFILES}",
    ),
    "a scope with an unknown tool": (
        Settings.model_validate({"oauth": {"scopes": {"a": {"tools": ["get_source"]}}}}),
        "oauth.scopes.a.tools: there is no search tool 'get_source'; use some of: search.",
    ),
    "no chat model": (
        _settings({"stages": [PLANNER]}),
        f"search.stages: {WANTING.format('planner', 'chat.model')}",
    ),
    "no chat model for other words": (
        _settings({"profiles": {"own": {"stages": [{"stage": "multi_query"}]}}}),
        f"search.profiles.own.stages: {WANTING.format('multi_query', 'chat.model')}",
    ),
    "a reranker is no chat model": (
        _settings({"of_tenants": {"t": {"stages": [RERANK | {"by": "chat"}]}}}, reranker=RERANKER),
        f"search.of_tenants.t.stages: {WANTING.format('rerank', 'chat.model')}",
    ),
    "a chat model is no reranker": (
        _settings({"stages": [RERANK]}, chat=CHAT),
        f"search.stages: {WANTING.format('rerank', 'reranker.provider')}",
    ),
    "a query stage after one that takes hits": (
        _settings({"stages": [DEDUPE, PLANNER]}, chat=CHAT),
        f"search.stages: {LATE.format('planner')}",
    ),
    "an own query stage after one that takes hits": (
        _settings({"stages": [OWN | {"takes": "hits"}, OWN | {"takes": "query"}]}),
        f"search.stages: {LATE.format('custom')}",
    ),
    "an unknown profile of a collection": (
        _settings({"of_collections": {"a": "best"}}),
        f"search.of_collections.a: {TOLD_PROFILES}",
    ),
    "versions that are dropped under a search": (
        Settings.model_validate({"ingest": {"keep_versions_minutes": 1}, "search": {"timeout_seconds": 61}}),
        (
            "ingest.keep_versions_minutes: it is less than a search may take "
            "(search.timeout_seconds, storage.consistency_seconds)."
        ),
    ),
    "an unknown profile of the server": (
        _settings({}, server={"profiles": ["fast", "best"]}),
        f"server.profiles: {TOLD_PROFILES}",
    ),
}


@pytest.mark.parametrize("settings", GOOD.values(), ids=GOOD.keys())
def test_settings_that_go_together_are_taken(settings: Settings) -> None:
    check_consistent(settings)


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_settings_that_do_not_go_together_are_refused_with_the_key(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        check_consistent(settings)
    assert str(error.value) == message


def test_every_contradiction_is_found_in_the_order_of_the_file() -> None:
    settings = _settings(
        {
            "stages": [DEDUPE, PLANNER, RERANK],
            "profiles": {"own": {"stages": [PLANNER]}},
            "of_tenants": {"t": {"stages": [RERANK]}},
            "of_collections": {"a": "best"},
        },
        server={"profiles": ["best"]},
    )
    assert [keys for keys, _ in contradictions(settings)] == [
        ("search", "stages", "1"),
        ("search", "stages", "1"),
        ("search", "stages", "2"),
        ("search", "profiles", "own", "stages", "0"),
        ("search", "of_tenants", "t", "stages", "0"),
        ("search", "of_collections", "a"),
        ("server", "profiles"),
    ]


REMOTE = 'provider = "openai"\nmodel = "m"\n'

RERANK_LINES = 'provider = "cohere"\nmodel = "m"\nbase_url = "http://localhost"\n'


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_settings(file, {})
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ('headers = { Authorization = "Bearer x" }', "api_key_env names the variable with the key"),
        ('headers_env = { authorization = "MY_KEY" }', RESERVED),
        ('headers = { Content-Type = "text/plain" }', f"headers.Content-Type: {RESERVED}"),
        ('headers = { "X-Api-Key" = "sk-123" }', 'write headers_env = { "X-Api-Key" = "MY_VARIABLE" }'),
        ('headers = { Cookie = "a=b" }', "looks like a secret"),
        ('headers = { "X Y" = "1" }', "this is not the name of a header"),
        ('headers = { "X-Y" = "a\\nX-Evil: 1" }', "write printable ASCII characters"),
        ('headers_env = { "api-key" = "sk-123" }', NOT_THE_KEY),
        ('headers_env = { "api-key" = "" }', NOT_THE_KEY),
        ('headers = { X-A = "1" }, headers_env = { x-a = "MY_KEY" }', "the header x-a is set twice"),
        ('body = { model = "other" }', OWN_FIELD.format("model", "body")),
        ('query_body = { input = "x" }', OWN_FIELD.format("input", "query_body")),
        ("document_body = { dimensions = 3 }", OWN_FIELD.format("dimensions", "document_body")),
        ("body = { a = 1 }, query_body = { a = 2 }", "the field a is in body and in query_body; keep one"),
        ("body = { a = nan }", "nan and inf can't be sent"),
        ("header = {}", "there is no setting embedder.options.header; did you mean embedder.options.headers"),
    ],
)
def test_what_would_replace_something_of_refdesk_or_show_a_secret_is_refused(
    tmp_path: Path, options: str, saying: str
) -> None:
    message = refusal(tmp_path, f"[embedder]\n{REMOTE}options = {{ {options} }}\n")
    assert saying in message
    assert "line 4" in message
    assert "sk-123" not in message or NOT_THE_KEY in message


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("[embedder]\noptions = { body = { a = 1 } }", 'embedder: options are for provider = "openai"'),
        ("[chat]\noptions = { body = { a = 1 } }", "chat: options need model"),
        (
            '[chat]\nmodel = "m"\noptions = { body = { messages = [] } }',
            "the field messages is refdesk's own",
        ),
        ("[reranker]\noptions = { body = { a = 1 } }", "options are for the provider of an endpoint"),
        (
            f"[reranker]\n{RERANK_LINES}options = {{ body = {{ top_n = 1 }} }}",
            "the field top_n is refdesk's own",
        ),
        (
            f"[reranker]\n{RERANK_LINES}options = {{ query_body = {{}} }}",
            "no setting reranker.options.query_body",
        ),
        (
            f'[embedders.a]\n{REMOTE}options = {{ body = {{ model = "x" }} }}',
            "the field model is refdesk's own",
        ),
    ],
)
def test_options_are_refused_where_they_would_do_nothing_or_harm(
    tmp_path: Path, text: str, saying: str
) -> None:
    assert saying in refusal(tmp_path, text)


def test_options_are_read_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f"[embedder]\n{REMOTE}[embedder.options]\nheaders_env = {{ api-key = 'AZURE' }}\n"
        "body = { a = [1, { b = true }] }\ndocument_body = { c = 'd' }\n"
    )
    options = load_settings(file, {}).embedder.options
    assert options.headers_env == {"api-key": "AZURE"}
    assert options.of_queries == {"a": [1, {"b": True}]}
    assert options.of_documents == {"a": [1, {"b": True}], "c": "d"}

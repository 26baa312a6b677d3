"""Contradictions between settings. tests/config/test_settings.py covers how they are reported from a file."""

from __future__ import annotations

import pytest

from rag.config.check import check_consistent, contradictions
from rag.config.settings import Settings
from rag.errors import ConfigurationError

DEDUPE, PLANNER, RERANK = {"stage": "dedupe"}, {"stage": "planner"}, {"stage": "rerank"}
OWN = {"stage": "custom", "call": "own:ask"}
CHAT, RERANKER = {"model": "tiny"}, {"provider": "tei", "base_url": "http://localhost:1"}
TOLD_PROFILES = "there is no profile 'best'; use one of: default, fast, precise, fresh."


def _settings(search: dict[str, object], **others: object) -> Settings:
    return Settings.model_validate({"search": search} | others)


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
    "stages that need no model": _settings({"stages": [DEDUPE, OWN | {"takes": "hits"}]}),
}
BAD: dict[str, tuple[Settings, str]] = {
    "two baselines of one embedder": (
        _settings({"profiles": {"own": {"fusion": {"baseline": 0.7}}}}, embedder={"baseline": 0.6}),
        "search.profiles.own.fusion.baseline: embedder.baseline replaces it; remove one of both.",
    ),
    "no chat model": (
        _settings({"stages": [PLANNER]}),
        "search.stages: the stage planner needs chat.model, which is not set.",
    ),
    "no chat model for other words": (
        _settings({"profiles": {"own": {"stages": [{"stage": "multi_query"}]}}}),
        "search.profiles.own.stages: the stage multi_query needs chat.model, which is not set.",
    ),
    "a reranker is no chat model": (
        _settings({"of_tenants": {"t": {"stages": [RERANK | {"by": "chat"}]}}}, reranker=RERANKER),
        "search.of_tenants.t.stages: the stage rerank needs chat.model, which is not set.",
    ),
    "a chat model is no reranker": (
        _settings({"stages": [RERANK]}, chat=CHAT),
        "search.stages: the stage rerank needs reranker.provider, which is not set.",
    ),
    "a query stage after one that takes hits": (
        _settings({"stages": [DEDUPE, PLANNER]}, chat=CHAT),
        "search.stages: the stage planner makes queries; move it before the stages that take hits.",
    ),
    "an own query stage after one that takes hits": (
        _settings({"stages": [OWN | {"takes": "hits"}, OWN | {"takes": "query"}]}),
        "search.stages: the stage custom makes queries; move it before the stages that take hits.",
    ),
    "an unknown profile of a collection": (
        _settings({"of_collections": {"a": "best"}}),
        f"search.of_collections.a: {TOLD_PROFILES}",
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

"""Who says how a search runs: the request, then what holds for its tenant, its profile, and [search]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import SearchRequest
from rag.config.profiles import ProfileSettings
from rag.config.settings import SearchSettings
from rag.corpus import Binding, Principal
from rag.errors import ConfigurationError, InvalidRequestError
from rag.search.planning import MAX_PHRASES, make_plan

if TYPE_CHECKING:
    from rag.search.search_plan import SearchPlan

DEDUPE, RECENCY = {"stage": "dedupe"}, {"stage": "recency"}
OWN = {"stage": "custom", "call": "own:ask"}


def _plan(
    request: dict[str, Any] | None = None,
    *,
    tenant: str = "acorn",
    bindings: tuple[Binding, ...] = (),
    **settings: Any,  # noqa: ANN401 a settings file's
) -> SearchPlan:
    wanted = SearchRequest(**{"query": "pendulum"} | (request or {}))
    return make_plan(wanted, SearchSettings.model_validate(settings), Principal(tenant, bindings=bindings))


LAYERS: dict[str, Any] = {
    "mode": "dense",
    "limit": 1,
    "candidates": 11,
    "profiles": {
        "wide": {"mode": "sparse", "limit": 2, "candidates": 12, "stages": [DEDUPE]},
        "bare": {},
    },
    "of_tenants": {"acorn": {"limit": 3, "candidates": 13}},
    "stages": [RECENCY],
}


@pytest.mark.parametrize(
    ("tenant", "request_", "expected"),
    [
        ("other", {}, ("dense", 1, 11, "recency")),
        ("other", {"profile": "default"}, ("dense", 1, 11, "recency")),
        ("other", {"profile": "bare"}, ("dense", 1, 11, "recency")),
        ("other", {"profile": "wide"}, ("sparse", 2, 12, "dedupe")),
        ("acorn", {}, ("dense", 3, 13, "recency")),
        ("acorn", {"profile": "wide"}, ("sparse", 3, 13, "dedupe")),
        ("acorn", {"profile": "wide", "mode": "hybrid", "limit": 4}, ("hybrid", 4, 13, "dedupe")),
        ("acorn", {"limit": 0}, ("dense", 0, 13, "recency")),
        ("other", {"limit": 0}, ("dense", 0, 11, "recency")),
    ],
)
def test_the_request_wins_over_its_tenant_that_over_the_profile_that_over_the_rest(
    tenant: str, request_: dict[str, Any], expected: tuple[object, ...]
) -> None:
    plan = _plan(request_, tenant=tenant, **LAYERS)
    assert (plan.mode, plan.limit, plan.candidates, plan.hit_stages[0].stage) == expected


def test_a_profile_changes_whole_tables_and_all_stages_and_only_those_it_names() -> None:
    settings: dict[str, Any] = {
        "fusion": {"method": "rrf"},
        "thresholds": {"min_similarity": 0.5, "min_evidence": 0.5},
        "stages": [DEDUPE],
        "profiles": {"own": {"thresholds": {"max_distance": 1.0}}, "none": {"stages": []}},
    }
    plan = _plan({"profile": "own"}, **settings)
    assert (plan.fusion.method, len(plan.hit_stages)) == ("rrf", 1)
    assert (plan.thresholds.min_similarity, plan.thresholds.min_evidence) == (None, None)
    assert plan.thresholds.max_distance == 1
    assert _plan({"profile": "none"}, **settings).hit_stages == ()


def test_stages_are_those_that_make_queries_and_those_that_take_hits_each_in_their_order() -> None:
    stages = [{"stage": "multi_query"}, OWN | {"takes": "query"}, DEDUPE, OWN | {"takes": "hits"}, RECENCY]
    plan = _plan(stages=stages)
    assert [stage.stage for stage in plan.query_stages] == ["multi_query", "custom"]
    assert [stage.stage for stage in plan.hit_stages] == ["dedupe", "custom", "recency"]


@pytest.mark.parametrize(
    ("named", "usual", "candidates"),
    [
        (None, (), 50),
        (("tickets",), (), 60),
        (("tickets", "faults"), (), 60),
        (("tickets", "tickets"), (), 60),
        (("tickets", "letters"), (), 50),
        (("tickets", "papers"), (), 50),
        (("tickets", "another"), (), 50),
        (("papers",), (), 70),
        (("unknown",), (), 50),
        (None, ("tickets", "faults"), 60),
        (None, ("tickets", "papers"), 50),
        (("papers",), ("tickets",), 70),
    ],
)
def test_a_collection_s_profile_counts_if_all_that_are_searched_by_name_share_it(
    named: tuple[str, ...] | None, usual: tuple[str, ...], candidates: int
) -> None:
    settings: dict[str, Any] = {
        "collections": usual,
        "profiles": {"short": {"candidates": 60}, "long": {"candidates": 70}},
        "of_collections": {"tickets": "short", "faults": "short", "papers": "long", "letters": "default"},
    }
    assert _plan({"collections": named}, **settings).candidates == candidates
    assert _plan({"collections": named, "profile": "default"}, **settings).candidates == 50
    assert _plan({"collections": named, "profile": "long"}, **settings).candidates == 70


@pytest.mark.parametrize("profile", ["best", "", "Default", "short "])
def test_an_unknown_profile_is_told_those_that_there_are(profile: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        _plan({"profile": profile}, profiles={"short": ProfileSettings()})
    assert str(error.value) == (
        f"There is no profile {profile!r}. Profiles: default, fast, fresh, precise, short."
    )


def test_shipped_profiles_are_there_and_an_operator_s_of_their_name_takes_their_place() -> None:
    assert _plan({"profile": "fast"}).candidates == 20
    assert [stage.stage for stage in _plan({"profile": "fresh"}).hit_stages] == ["recency"]
    assert _plan({"profile": "fast"}, profiles={"fast": {"candidates": 30}}).candidates == 30


FIXED: dict[str, Any] = {
    "mode": "dense",
    "limit": 5,
    "overrides": [],
    "profiles": {"words": {"mode": "sparse"}},
    "of_tenants": {"small": {"limit": 2}},
}


@pytest.mark.parametrize(
    ("tenant", "request_"),
    [
        ("acorn", {}),
        ("acorn", {"mode": "dense", "limit": 5}),
        ("acorn", {"profile": "words"}),
        ("acorn", {"profile": "words", "mode": "sparse"}),
        ("small", {"limit": 2}),
    ],
)
def test_where_nothing_can_be_overridden_what_says_the_same_is_taken(
    tenant: str, request_: dict[str, Any]
) -> None:
    plan = _plan(request_, tenant=tenant, **FIXED)
    assert plan.mode == ("sparse" if "profile" in request_ else "dense")
    assert plan.limit == (2 if tenant == "small" else 5)


@pytest.mark.parametrize(
    ("tenant", "request_", "told"),
    [
        ("acorn", {"mode": "hybrid"}, "mode is fixed to dense by the operator; leave it out."),
        ("acorn", {"limit": 6}, "limit is fixed to 5 by the operator; leave it out."),
        ("acorn", {"limit": 0}, "limit is fixed to 5 by the operator; leave it out."),
        ("acorn", {"profile": "words", "mode": "dense"}, "mode is fixed to sparse"),
        ("small", {"limit": 5}, "limit is fixed to 2"),
    ],
)
def test_where_nothing_can_be_overridden_anything_else_is_refused(
    tenant: str, request_: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        _plan(request_, tenant=tenant, **FIXED)
    assert str(error.value).startswith(told)


def test_one_thing_can_be_left_to_the_request_and_another_not() -> None:
    settings = FIXED | {"overrides": ["limit"]}
    assert _plan({"limit": 9}, **settings).limit == 9
    with pytest.raises(InvalidRequestError, match="mode is fixed to dense"):
        _plan({"limit": 9, "mode": "sparse"}, **settings)


def test_lists_bring_as_many_as_are_asked_for_at_least() -> None:
    assert _plan({"limit": 100}, candidates=10).candidates == 100
    assert _plan({"limit": 5}, candidates=10).candidates == 10


def test_a_context_has_a_budget_only_where_it_is_asked_for() -> None:
    assert _plan({"context": True}, context_tokens=500).context_tokens == 500
    assert _plan({}, context_tokens=500).context_tokens == 0


def test_a_bound_profile_is_the_only_one() -> None:
    bound = (Binding(profile="wide"),)
    assert _plan(bindings=bound, **LAYERS).mode == "sparse"
    assert _plan({"profile": "wide"}, bindings=bound, **LAYERS).mode == "sparse"
    with pytest.raises(InvalidRequestError, match=r"^profile is fixed by the operator; leave it out\.$"):
        _plan({"profile": "bare"}, bindings=bound, **LAYERS)
    with pytest.raises(ConfigurationError, match=r"bound to the profile 'gone', which is not defined"):
        _plan(bindings=(Binding(profile="gone"),), **LAYERS)
    with pytest.raises(ConfigurationError, match=r"bound to several profiles \(bare, wide\)"):
        _plan(bindings=(*bound, Binding(profile="bare")), **LAYERS)


def test_a_binding_lowers_even_a_limit_that_is_fixed() -> None:
    bound = (Binding(limit=2),)
    assert _plan(bindings=bound, overrides=[], limit=5).limit == 2
    assert _plan({"limit": 1}, bindings=bound, limit=5).limit == 1
    with pytest.raises(InvalidRequestError, match=r"limit must be from 0 to 2, not 3\."):
        _plan({"limit": 3}, bindings=bound, limit=5)


def test_bound_collections_replace_the_usual_ones_and_choose_the_profile() -> None:
    settings: dict[str, Any] = LAYERS | {"collections": ["notes"], "of_collections": {"handbook": "wide"}}
    bound = (Binding(collections=("handbook",)),)
    assert (_plan(bindings=bound, **settings).collections, _plan(**settings).collections) == ((), ("notes",))
    assert (_plan(bindings=bound, **settings).mode, _plan(**settings).mode) == ("sparse", "dense")


def test_a_query_has_so_many_phrases_and_says_so_if_it_has_more() -> None:
    def asked(count: int) -> SearchPlan:
        query = " ".join(f'"part {number}"' for number in range(count))
        return make_plan(SearchRequest(query), SearchSettings(), Principal("acorn"))

    assert len(asked(MAX_PHRASES).phrases) == MAX_PHRASES
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_PHRASES} phrases"):
        asked(MAX_PHRASES + 1)

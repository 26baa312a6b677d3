"""Who says how a search runs: the request, then what holds for its tenant, its profile, and [search]."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rag.answers import SearchRequest
from rag.config.profiles import Overridable, ProfileSettings
from rag.config.settings import SearchSettings
from rag.corpus import Access, Binding, Principal
from rag.errors import ConfigurationError, InvalidRequestError, NotFoundError
from rag.search.search_plan import MAX_PHRASES, SearchPlan, make_plan, with_every_override
from tests.search.conftest import ME, Shelf

DEDUPE, RECENCY = {"stage": "dedupe"}, {"stage": "recency"}
OWN = {"stage": "custom", "call": "own:ask"}


def _plan(
    request: dict[str, Any] | None = None,
    *,
    tenant: str = "acorn",
    bindings: tuple[Binding, ...] = (),
    **settings: Any,  # noqa: ANN401 a settings file's
) -> SearchPlan:
    request_ = SearchRequest(**{"query": "pendulum"} | (request or {}))
    return make_plan(request_, SearchSettings.model_validate(settings), Principal(tenant, bindings=bindings))


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
    ("named", "candidates"),
    [
        (None, 50),
        (("tickets",), 60),
        (("tickets", "faults"), 60),
        (("tickets", "tickets"), 60),
        (("tickets", "letters"), 50),
        (("tickets", "papers"), 50),
        (("tickets", "another"), 50),
        (("papers",), 70),
        (("unknown",), 50),
    ],
)
def test_a_collection_s_profile_counts_if_all_that_are_searched_by_name_share_it(
    named: tuple[str, ...] | None, candidates: int
) -> None:
    settings: dict[str, Any] = {
        "profiles": {"short": {"candidates": 60}, "long": {"candidates": 70}},
        "of_collections": {"tickets": "short", "faults": "short", "papers": "long", "letters": "default"},
    }
    assert _plan({"collections": named}, **settings).candidates == candidates
    assert _plan({"collections": named, "profile": "default"}, **settings).candidates == 50
    assert _plan({"collections": named, "profile": "long"}, **settings).candidates == 70


@pytest.mark.parametrize("profile", ["best", "Default"])
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
    ("tenant", "request_", "message"),
    [
        ("acorn", {"mode": "hybrid"}, "mode is fixed to dense by the operator; leave it out."),
        ("acorn", {"limit": 6}, "limit is fixed to 5 by the operator; leave it out."),
        ("acorn", {"limit": 0}, "limit is fixed to 5 by the operator; leave it out."),
        ("acorn", {"profile": "words", "mode": "dense"}, "mode is fixed to sparse"),
        ("small", {"limit": 5}, "limit is fixed to 2"),
    ],
)
def test_where_nothing_can_be_overridden_anything_else_is_refused(
    tenant: str, request_: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        _plan(request_, tenant=tenant, **FIXED)
    assert str(error.value).startswith(message)


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


def test_bound_collections_choose_the_profile() -> None:
    settings: dict[str, Any] = LAYERS | {"of_collections": {"handbook": "wide"}}
    bound = (Binding(collections=("handbook",)),)
    assert (_plan(bindings=bound, **settings).mode, _plan(**settings).mode) == ("sparse", "dense")


def test_a_query_has_so_many_phrases_and_says_so_if_it_has_more() -> None:
    def plan_of(count: int) -> SearchPlan:
        query = " ".join(f'"part {number}"' for number in range(count))
        return make_plan(SearchRequest(query), SearchSettings(), Principal("acorn"))

    assert len(plan_of(MAX_PHRASES).phrases) == MAX_PHRASES
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_PHRASES} phrases"):
        plan_of(MAX_PHRASES + 1)


def test_a_text_with_many_quotation_marks_is_never_refused_for_the_question_behind_it() -> None:
    rows = ",\n".join(f'  "key {number}": "value {number}"' for number in range(MAX_PHRASES))
    names = " ".join(f'"part {number}"' for number in range(MAX_PHRASES + 1))
    for text in (f"{{\n{rows}\n}}", names):
        query = f"{text}\nWhich setting limits the entries?"
        plan = make_plan(SearchRequest(query), SearchSettings(), Principal("acorn"))
        assert (plan.phrases, plan.unquoted) == ((), None)
        assert plan.query.split() == query.replace('"', " ").split()


SETTINGS: dict[str, Any] = {
    "stages": [{"stage": "dedupe"}, {"stage": "recency"}],
    "thresholds": {"min_similarity": 0.2, "weak_evidence": "no hits"},
}
LIMITS = "it has: min_similarity, max_distance, percentage_distance, min_evidence."
REQUESTS: dict[str, dict[str, Any]] = {
    "fusion": {"fusion": "rrf"},
    "alpha": {"fusion": "convex", "alpha": 0.3},
    "candidates": {"candidates": 100},
    "thresholds": {"thresholds": {"min_similarity": 0.1}},
    "stages": {"stages": {"without": ["recency"]}},
    "distance": {"distance": "dot", "thresholds": {"max_distance": 0.5}},
}


def _overridden(request: dict[str, Any], asker: Principal = ME, **settings: Any) -> SearchPlan:  # noqa: ANN401 a file's
    search = SearchSettings.model_validate({"overrides": get_args(Overridable)} | SETTINGS | settings)
    return make_plan(SearchRequest("pendulum", **request), search, asker)


def _refusal(request: dict[str, Any], **settings: Any) -> str:  # noqa: ANN401 a file's
    with pytest.raises(InvalidRequestError) as error:
        _overridden(request, **settings)
    return str(error.value)


def _stages(plan: SearchPlan) -> list[str]:
    return [stage.stage for stage in plan.hit_stages]


def test_what_a_request_sets_goes_before_its_profile_and_leaves_the_rest() -> None:
    assert _overridden(REQUESTS["fusion"]).fusion.method == "rrf"
    convex = _overridden(REQUESTS["alpha"]).fusion
    assert (convex.method, convex.alpha) == ("convex", 0.3)
    assert _overridden(REQUESTS["candidates"]).candidates == 100
    thresholds = _overridden({"thresholds": {"max_distance": 1}}).thresholds
    assert (thresholds.min_similarity, thresholds.max_distance) == (0.2, 1)
    assert thresholds.weak_evidence == "no hits"
    assert _overridden(REQUESTS["distance"]).distance == "dot"
    assert _stages(_overridden({})) == ["dedupe", "recency"]
    assert _stages(_overridden(REQUESTS["stages"])) == ["dedupe"]
    assert _stages(_overridden({"stages": {"of": "precise"}})) == ["dedupe"]
    assert _stages(_overridden({"stages": {"of": "precise", "without": ("dedupe",)}})) == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"fusion": "magic"}, "fusion must be 'calibrated', 'rrf', 'dbsf' or 'convex'."),
        ({"fusion": "rrf", "mode": "dense"}, "fusion has no effect in mode dense; leave it out."),
        (
            {"thresholds": {"min_similarity": 0.5}, "mode": "exact"},
            "thresholds has no effect in mode exact; leave it out.",
        ),
        ({"alpha": 0.5, "mode": "sparse"}, "alpha has no effect in mode sparse; leave it out."),
        ({"alpha": 0.3}, "alpha has no effect with the fusion calibrated; it is for convex."),
        ({"fusion": "convex", "alpha": 7}, "alpha must be at most 1."),
        ({"fusion": "convex", "alpha": float("nan")}, "alpha must be at most 1."),
        ({"candidates": 9}, "candidates must be at least 10."),
        ({"candidates": 1001}, "candidates must be at most 1000."),
        ({"candidates": True}, "candidates must be a whole number."),
        ({"thresholds": {}}, f"thresholds is empty; {LIMITS}"),
        ({"thresholds": {"zebra": 1}}, f"thresholds has no 'zebra'; {LIMITS}"),
        ({"thresholds": {"weak_evidence": "note"}}, f"thresholds has no 'weak_evidence'; {LIMITS}"),
        ({"thresholds": {"min_similarity": 2}}, "thresholds.min_similarity must be at most 1."),
        ({"thresholds": {"min_evidence": "zebra"}}, "thresholds.min_evidence must be a number."),
        ({"thresholds": {"max_distance": float("nan")}}, "thresholds.max_distance must be at most 2."),
        ({"stages": {}}, "stages is empty; it has: of, without, neighbors."),
        ({"stages": {"only": ["dedupe"]}}, "stages has no 'only'; it has: of, without, neighbors."),
        ({"stages": {"without": "dedupe"}}, "stages.without must be a list."),
        (
            {"stages": {"without": ["rerank"]}},
            "stages.without: there is no stage 'rerank'; there are: dedupe, recency.",
        ),
        (
            {"stages": {"of": "fast", "without": ["rerank"]}},
            "stages.without: there is no stage 'rerank'; there are: dedupe, recency.",
        ),
        ({"stages": {"of": "zebra"}}, "There is no profile 'zebra'."),
        (
            {"distance": "dot"},
            "distance has no effect without the threshold max_distance or percentage_distance.",
        ),
        ({"distance": "l2"}, "distance must be one of cosine, dot, euclidean."),
    ],
    ids=str,
)
def test_what_is_out_of_range_or_without_effect_is_refused_with_what_is_right(
    request_: dict[str, Any], words: str
) -> None:
    assert _refusal(request_).startswith(words)


@pytest.mark.parametrize("name", REQUESTS)
def test_each_is_refused_unless_the_operator_allows_it(name: str) -> None:
    options = [option for option in get_args(Overridable) if option != name]
    for fixed in (
        {"overrides": options},
        {"of_tenants": {"default": {"overrides": options}}},
        {"profiles": {"own": {"overrides": options}}},
    ):
        request = REQUESTS[name] | ({"profile": "own"} if "profiles" in fixed else {})
        assert _refusal(request, **fixed).startswith(f"{name} is fixed")
    _overridden(REQUESTS[name])


def test_a_profile_and_a_tenant_only_take_away_from_what_may_be_overridden() -> None:
    open_: dict[str, Any] = {"profiles": {"own": {"overrides": ["fusion", "limit"]}}}
    words = "fusion is fixed to calibrated by the operator; leave it out."
    assert _refusal({"fusion": "rrf", "profile": "own"}, overrides=["limit"], **open_) == words
    tenants = {"default": {"overrides": ["fusion"]}}
    assert _overridden({"fusion": "rrf", "profile": "own"}, **open_, of_tenants=tenants).overrides == (
        "fusion",
    )
    assert _refusal({"limit": 3, "profile": "own"}, **open_, of_tenants=tenants).startswith("limit is fixed")


def test_what_is_fixed_is_taken_if_the_request_says_the_same() -> None:
    same = {"fusion": "calibrated", "candidates": 50, "thresholds": {"min_similarity": 0.2}}
    assert _overridden(same, overrides=[]) == _overridden({}, overrides=[])


def test_the_stages_of_a_tenant_stay_whatever_profile_they_are_taken_from() -> None:
    tenants = {"default": {"stages": [{"stage": "recency"}]}}
    assert _stages(_overridden({"stages": {"of": "precise"}}, of_tenants=tenants)) == ["recency"]
    assert _stages(_overridden({"stages": {"of": "precise"}}, Principal("other"), of_tenants=tenants)) == [
        "dedupe"
    ]


@pytest.mark.parametrize("name", ["thresholds", "stages", "distance"])
def test_no_request_loosens_a_profile_that_a_binding_fixes(name: str) -> None:
    bound = Principal("default", bindings=(Binding(profile="own", limit=5),))
    open_ = {"profiles": {"own": {"limit": 4, "thresholds": {"max_distance": 1}}}}
    with pytest.raises(InvalidRequestError, match=f"{name} is fixed"):
        _overridden({name: REQUESTS[name][name]}, bound, **open_)
    with pytest.raises(InvalidRequestError, match="limit must be from 0 to 5"):
        _overridden({"limit": 6}, bound, **open_)
    plan = _overridden({"fusion": "rrf", "candidates": 20}, bound, **open_)
    assert (plan.fusion.method, plan.candidates, plan.limit) == ("rrf", 20, 4)
    assert plan.overrides == ("mode", "limit", "fusion", "alpha", "candidates", "vectors")


def test_whoever_has_the_operator_s_rights_may_override_everything() -> None:
    fixed = {
        "overrides": [],
        "of_tenants": {"default": {"overrides": []}},
        "profiles": {"own": {"overrides": []}},
    }
    search = with_every_override(SearchSettings.model_validate(fixed))
    plan = make_plan(SearchRequest("pendulum", profile="own", fusion="rrf", limit=3), search, ME)
    assert (plan.fusion.method, plan.limit) == ("rrf", 3)


@pytest.mark.anyio
async def test_thresholds_candidates_and_stages_of_a_request_count_in_the_search(shelf: Shelf) -> None:
    await shelf.put_all(
        {"one": "pendulum clock", "two": "pendulum clock", "three": "pendulum of an iron tower"}
    )
    desk = shelf.desk(overrides=get_args(Overridable))

    async def titles(**request: Any) -> set[str]:  # noqa: ANN401 a request's
        request_ = SearchRequest("pendulum clock", mode="dense", **request)
        return {hit.source.title for hit in (await desk.search(ME, request_)).hits}

    assert await titles() == {"one", "two", "three"}
    assert await titles(thresholds={"min_similarity": 0.9}) == {"one", "two"}
    far = {"max_distance": 1.0}  # with euclidean, that is a similarity of at least .5
    assert await titles(thresholds={"max_distance": 0.99}) == {"one", "two", "three"}
    assert len(await titles(thresholds=far, distance="euclidean")) <= 3
    assert await titles(thresholds={"max_distance": 0.4}, distance="euclidean") == {"one", "two"}
    assert len(await titles(stages={"of": "precise"})) == 2


@pytest.mark.slow
@pytest.mark.anyio
async def test_excluded_collections_are_not_searched(shelf: Shelf) -> None:
    for name in ("notes", "letters", "drafts"):
        await shelf.put(name, "pendulum", collection=name)
    desk = shelf.desk()

    async def titles(**request: Any) -> list[str]:  # noqa: ANN401 a request's
        answer = await desk.search(ME, SearchRequest("pendulum", **request))
        return sorted(hit.source.title for hit in answer.hits)

    assert await titles(exclude_collections=("drafts",)) == ["letters", "notes"]
    assert await titles(exclude_collections=()) == ["drafts", "letters", "notes"]
    assert await titles(collections=("notes", "drafts"), exclude_collections=("drafts",)) == ["notes"]
    with pytest.raises(InvalidRequestError, match="leaves no collection to search"):
        await titles(collections=("notes",), exclude_collections=("notes",))


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_excluded_collection_that_nobody_may_read_is_one_that_does_not_exist(shelf: Shelf) -> None:
    await shelf.put("open", "pendulum", collection="notes")
    await shelf.put(
        "closed", "pendulum", collection="secret", access=Access("restricted", frozenset({"user:ann"}))
    )
    desk, ann = shelf.desk(), Principal("default", "ann")
    refusals = set()
    for name in ("secret", "missing"):
        with pytest.raises(NotFoundError) as error:
            await desk.search(ME, SearchRequest("pendulum", exclude_collections=(name,)))
        refusals.add(str(error.value))
    (refusal,) = refusals
    assert refusal.endswith("Readable collections: notes.")
    request = SearchRequest("pendulum", exclude_collections=("secret",))
    assert [hit.source.title for hit in (await desk.search(ann, request)).hits] == ["open"]

"""What a request may set of its search: what the operator allows, within the limits of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from rag.answers import SearchRequest
from rag.config.profiles import Overridable
from rag.config.settings import SearchSettings
from rag.corpus import Access, Binding, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.planning import make_plan, with_every_override

if TYPE_CHECKING:
    from rag.search.search_plan import SearchPlan
    from tests.search.conftest import Shelf

ME = Principal("default")
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


def _plan(request: dict[str, Any], asker: Principal = ME, **settings: Any) -> SearchPlan:  # noqa: ANN401 a file's
    search = SearchSettings.model_validate({"overrides": get_args(Overridable)} | SETTINGS | settings)
    return make_plan(SearchRequest("pendulum", **request), search, asker)


def _refusal(request: dict[str, Any], **settings: Any) -> str:  # noqa: ANN401 a file's
    with pytest.raises(InvalidRequestError) as error:
        _plan(request, **settings)
    return str(error.value)


def _stages(plan: SearchPlan) -> list[str]:
    return [stage.stage for stage in plan.hit_stages]


def test_what_a_request_sets_goes_before_its_profile_and_leaves_the_rest() -> None:
    assert _plan(REQUESTS["fusion"]).fusion.method == "rrf"
    convex = _plan(REQUESTS["alpha"]).fusion
    assert (convex.method, convex.alpha) == ("convex", 0.3)
    assert _plan(REQUESTS["candidates"]).candidates == 100
    thresholds = _plan({"thresholds": {"max_distance": 1}}).thresholds
    assert (thresholds.min_similarity, thresholds.max_distance) == (0.2, 1)
    assert thresholds.weak_evidence == "no hits"
    assert _plan(REQUESTS["distance"]).distance == "dot"
    assert _stages(_plan({})) == ["dedupe", "recency"]
    assert _stages(_plan(REQUESTS["stages"])) == ["dedupe"]
    assert _stages(_plan({"stages": {"of": "precise"}})) == ["dedupe"]
    assert _stages(_plan({"stages": {"of": "precise", "without": ("dedupe",)}})) == []


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
        ({"stages": {}}, "stages is empty; it has: of, without."),
        ({"stages": {"only": ["dedupe"]}}, "stages has no 'only'; it has: of, without."),
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
    others = [one for one in get_args(Overridable) if one != name]
    for fixed in (
        {"overrides": others},
        {"of_tenants": {"default": {"overrides": others}}},
        {"profiles": {"own": {"overrides": others}}},
    ):
        request = REQUESTS[name] | ({"profile": "own"} if "profiles" in fixed else {})
        assert _refusal(request, **fixed).startswith(f"{name} is fixed")
    _plan(REQUESTS[name])


def test_a_profile_and_a_tenant_only_take_away_from_what_may_be_overridden() -> None:
    open_: dict[str, Any] = {"profiles": {"own": {"overrides": ["fusion", "limit"]}}}
    words = "fusion is fixed to calibrated by the operator; leave it out."
    assert _refusal({"fusion": "rrf", "profile": "own"}, overrides=["limit"], **open_) == words
    tenants = {"default": {"overrides": ["fusion"]}}
    assert _plan({"fusion": "rrf", "profile": "own"}, **open_, of_tenants=tenants).overrides == ("fusion",)
    assert _refusal({"limit": 3, "profile": "own"}, **open_, of_tenants=tenants).startswith("limit is fixed")


def test_what_is_fixed_is_taken_if_the_request_says_the_same() -> None:
    same = {"fusion": "calibrated", "candidates": 50, "thresholds": {"min_similarity": 0.2}}
    assert _plan(same, overrides=[]) == _plan({}, overrides=[])


def test_the_stages_of_a_tenant_stay_whatever_profile_they_are_taken_from() -> None:
    tenants = {"default": {"stages": [{"stage": "recency"}]}}
    assert _stages(_plan({"stages": {"of": "precise"}}, of_tenants=tenants)) == ["recency"]
    assert _stages(_plan({"stages": {"of": "precise"}}, Principal("other"), of_tenants=tenants)) == ["dedupe"]


@pytest.mark.parametrize("name", ["thresholds", "stages", "distance"])
def test_no_request_loosens_a_profile_that_a_binding_fixes(name: str) -> None:
    bound = Principal("default", bindings=(Binding(profile="own", limit=5),))
    open_ = {"profiles": {"own": {"limit": 4, "thresholds": {"max_distance": 1}}}}
    with pytest.raises(InvalidRequestError, match=f"{name} is fixed"):
        _plan({name: REQUESTS[name][name]}, bound, **open_)
    with pytest.raises(InvalidRequestError, match="limit must be from 0 to 5"):
        _plan({"limit": 6}, bound, **open_)
    plan = _plan({"fusion": "rrf", "candidates": 20}, bound, **open_)
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

    async def found(**request: Any) -> set[str]:  # noqa: ANN401 a request's
        wanted = SearchRequest("pendulum clock", mode="dense", **request)
        return {hit.source.title for hit in (await desk.search(ME, wanted)).hits}

    assert await found() == {"one", "two", "three"}
    assert await found(thresholds={"min_similarity": 0.9}) == {"one", "two"}
    far = {"max_distance": 1.0}  # with euclidean, that is a similarity of at least .5
    assert await found(thresholds={"max_distance": 0.99}) == {"one", "two", "three"}
    assert len(await found(thresholds=far, distance="euclidean")) <= 3
    assert await found(thresholds={"max_distance": 0.4}, distance="euclidean") == {"one", "two"}
    assert len(await found(stages={"of": "precise"})) == 2


@pytest.mark.anyio
async def test_excluded_collections_are_not_searched(shelf: Shelf) -> None:
    for name in ("notes", "letters", "drafts"):
        await shelf.put(name, "pendulum", collection=name)
    desk = shelf.desk()

    async def found(**request: Any) -> list[str]:  # noqa: ANN401 a request's
        answer = await desk.search(ME, SearchRequest("pendulum", **request))
        return sorted(hit.source.title for hit in answer.hits)

    assert await found(exclude_collections=("drafts",)) == ["letters", "notes"]
    assert await found(exclude_collections=()) == ["drafts", "letters", "notes"]
    assert await found(collections=("notes", "drafts"), exclude_collections=("drafts",)) == ["notes"]
    with pytest.raises(InvalidRequestError, match="leaves no collection to search"):
        await found(collections=("notes",), exclude_collections=("notes",))


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

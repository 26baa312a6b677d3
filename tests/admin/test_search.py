"""refdesk-admin search: for scripts the same records as the tool's, for people a page to read."""

from __future__ import annotations

import re
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from rag.home import check_data_folder
from rag.search.pipeline import NO_DOCUMENTS
from rag.search.search_plan import ONLY_EXACT
from rag.search.why import AMONG_HITS
from rag.uris import NOT_FOUND
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

KEYS = {
    "id",
    "title",
    "cite_as",
    "uri",
    "revision",
    "collection",
    "text",
    "start",
    "end",
    "tokens",
    "score",
    "similarity",
}
QUESTION = "How long was the year in which the calendar was reformed?"
UNKNOWN = "refdesk-admin: Nothing readable has this id or path. Use one from a search result or a listing.\n"


def passages(result: dict[str, Any]) -> list[str]:
    """The ids of the passages of a result: its own, or all of its range."""
    source, _, seqs = result["id"].partition("/")
    first, _, last = seqs.partition("-")
    return [f"{source}/{seq}" for seq in range(int(first), int(last or first) + 1)]


@pytest.mark.anyio
async def test_scripts_get_the_same_records_as_assistants_in_every_mode(clock_desk: Desk) -> None:
    server = StdioServerParameters(
        command=clock_desk.scripts.forked_server,
        args=["--data", str(clock_desk.data)],
        env=clock_desk.scripts.environment | {"REFDESK_SERVER_FULL_RESULTS": "true"},
    )
    async with Client(server) as client:
        for mode in ("hybrid", "dense", "sparse"):
            arguments = {"query": QUESTION, "mode": mode, "limit": 3, "max_chars": 100_000}
            result = await client.call_tool("search", arguments)
            reply = clock_desk.json("search", QUESTION, "--mode", mode, "--limit", "3")
            assert reply == result.structured_content
            assert len(reply["results"]) == 3
            assert reply["notes"] == []


def test_people_read_on_which_lines_an_exact_search_matches(clock_desk: Desk) -> None:
    search = ("search", r"\d\.\d seconds slow", "--mode", "exact", "--match", "regex", "--case")
    lines = clock_desk.run(*search).stdout.splitlines()
    about = next(line for line in lines if "  score " in line)
    assert re.fullmatch(
        r"   \[[a-z2-7]{16}/[\d-]+\]  score [01]\.\d{2}  \d+ match(es)? on line(s \d+,)? [\d, ]+", about
    )
    (result,) = clock_desk.json(*search, "--limit", "1")["results"]
    assert result["matches"][0].keys() == {"line", "start", "end"}
    assert "5.1 seconds slow" in result["text"]
    assert clock_desk.hits("slow", "--must-contain", "Jamaica")
    assert not clock_desk.hits("slow", "--must-contain", "Jamaican quokka")
    assert ONLY_EXACT in clock_desk.misuse("search", "slow", "--case")


def test_a_record_says_what_was_found_and_where(clock_desk: Desk) -> None:
    (result,) = clock_desk.hits("5.1 seconds slow at Jamaica", "--limit", "1")
    assert set(result) > KEYS
    assert result["title"] == "The Longitude Problem: a short history of the marine chronometer"
    assert result["page"] == 4
    assert "5.1 seconds slow" in result["text"]
    assert re.fullmatch(r"[a-z2-7]{16}/\d+", result["id"])
    assert result["uri"] == f"refdesk://documents/{result['id']}"
    assert 0 < result["similarity"] <= 1
    assert 0 < result["score"] <= 1


def test_people_read_each_passage_under_its_place_and_citation(clock_desk: Desk) -> None:
    lines = clock_desk.run("search", "5.1 seconds slow at Jamaica", "--limit", "2").stdout.splitlines()
    place = r"1\. The Longitude Problem: .* chronometer › .* › Jamaica, 1761 to 1762(?: … .*)?, p\. 4"
    assert re.fullmatch(place, f"{lines[0]} {lines[1].strip()}")
    assert re.fullmatch(r"   \[[a-z2-7]{16}/\d+(?:-\d+)?\]  score [01]\.\d{2}  similarity 0\.\d{3}", lines[2])
    assert any("5.1 seconds slow" in line for line in lines)
    assert sum(bool(re.match(r"\d\. ", line)) for line in lines) == 2
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in "".join(lines)


def test_a_context_is_one_text_for_a_prompt_with_its_citations(clock_desk: Desk) -> None:
    reply = clock_desk.json("search", QUESTION, "--limit", "3", "--context")
    assert all("text" not in result for result in reply["results"])
    cited = re.findall(r"^\[[a-z2-7]{16}/[\d-]+\]$", reply["context"], re.MULTILINE)
    assert cited == [f"[{result['id']}]" for result in reply["results"]]
    assert len(cited) == 3
    printed = clock_desk.run("search", QUESTION, "--limit", "3", "--context").stdout
    assert printed.startswith(f"{reply['context']}\n")


def test_an_empty_desk_says_what_to_do(desk: Desk) -> None:
    desk.run("tenant", "create", "acorn")
    reply = desk.json("search", "anything")
    assert reply["results"] == []
    assert "There are no documents that you may search." in reply["notes"][0]
    printed = desk.run("search", "anything").stdout
    assert f"The data folder is {desk.data}. Add documents with refdesk-admin ingest PATH" in printed


def test_the_operator_is_told_of_documents_that_the_asker_may_not_see(inside: Desk, tmp_path: Path) -> None:
    """The command used to say that there were no documents yet, and to ingest some."""
    (tmp_path / "wages.md").write_text("# Wages\n\nThe wages of a pendulum.\n")
    inside.run("ingest", tmp_path / "wages.md", "--visibility", "restricted", "--allow", "group:hr")
    printed = inside.run("search", "pendulum", "--user", "ann", "--group", "it", "--group", "ops").stdout
    assert (
        f"The data folder is {inside.data}. It has 1 document, all of them hidden from the user ann of the "
        "groups it, ops by their access records, or expired." in printed
    )
    assert "ingest PATH" not in printed
    assert "hidden from somebody without a name by" in inside.run("search", "pendulum").stdout
    assert inside.hits("pendulum", "--group", "hr")
    # What an assistant gets tells no more than on a desk without documents.
    assert "document" not in str(inside.json("search", "pendulum")).replace(NO_DOCUMENTS, "")


@pytest.mark.parametrize("command", [("search", "anything"), ("sources",), ("status",)])
def test_a_wrong_data_path_is_no_empty_desk(desk: Desk, command: tuple[str, ...]) -> None:
    missing = desk.misuse(*command)
    assert missing == f"refdesk-admin: {refusal(check_data_folder, desk.data)}\n"
    assert "refdesk-admin ingest PATH" in missing
    assert not desk.data.exists()


def test_nothing_found_is_said_and_no_failure_and_the_settings_say_how_to_search(clock_desk: Desk) -> None:
    environment = {"REFDESK_DATA": str(clock_desk.data), "REFDESK_SEARCH_MODE": "sparse"}
    run = clock_desk.scripts.admin("search", "xyzzyplugh", env=environment)
    assert run.returncode == 0
    assert run.stdout.startswith("Note: No passage contains a word of the query")
    assert run.stderr == ""


def test_what_is_related_to_a_passage_needs_no_query(clock_desk: Desk) -> None:
    (hit,) = clock_desk.hits("pendulum clock", "--limit", "1")
    related = clock_desk.hits("--related", hit["id"])
    assert related
    assert hit["id"].split("/")[0] not in {related_hit["id"].split("/")[0] for related_hit in related}
    assert "Only with --vector or --related" in clock_desk.misuse("search")
    assert NOT_FOUND in clock_desk.failure("search", "--related", "nothing")


def test_several_collections_can_be_named_and_an_unknown_one_is_told(library: Desk) -> None:
    def collections_and_notes(*options: str) -> tuple[set[str], list[str]]:
        reply = library.json("search", "pendulum clock in the tower", "--mode", "dense", *options)
        return {hit["collection"] for hit in reply["results"]}, reply["notes"]

    near_and_far = ("--collection", "near", "--collection", "far")
    assert collections_and_notes(*near_and_far) == ({"near", "far"}, [])
    assert collections_and_notes("--collection", "near") == ({"near"}, [])
    assert collections_and_notes(*near_and_far, "--exclude-collection", "far") == ({"near"}, [])
    collections, (note,) = collections_and_notes("--collection", "near", "--collection", "nowhere")
    assert collections == {"near"}
    assert "nowhere" in note
    for wrong in (
        ("--collection", "nowhere", "--collection", "nothing"),
        ("--collection", ""),
        ("--collection", "near", "--exclude-collection", "nowhere"),
    ):
        run = library.run("search", "pendulum", *wrong, code=1)
        assert "Readable collections: far, near." in run.stderr


def test_a_percentage_counts_from_the_nearest_passage_of_all_collections_each_in_its_metric(
    library: Desk,
) -> None:
    """`far` is measured in another metric, in which the same percentage reaches further."""
    search = ("search", "pendulum clock in the tower", "--mode", "dense", "--threshold")
    similar = {hit["id"]: hit for hit in library.json(*search, "min_similarity=0")["results"]}
    nearest = max(hit["similarity"] for hit in similar.values())
    assert {hit["collection"] for hit in similar.values() if hit["similarity"] == nearest} == {"near"}

    def expected(factor: float, metrics: dict[str, Callable[[float], float]]) -> set[str]:
        return {
            id_
            for id_, hit in similar.items()
            if (away := metrics[hit["collection"]])(hit["similarity"]) <= away(nearest) * factor + 1e-9
        }

    cosine, euclidean = (lambda like: 1 - like), (lambda like: sqrt(2 - 2 * like))
    sizes = set()
    for percentage in (0, 20, 60, 90, 200):
        threshold = f"percentage_distance={percentage}"
        within = {hit["id"] for hit in library.json(*search, threshold)["results"]}
        factor = 1 + percentage / 100
        assert within == expected(factor, {"near": cosine, "far": euclidean})
        in_one = {hit["id"] for hit in library.json(*search, threshold, "--distance", "cosine")["results"]}
        assert in_one == expected(factor, {"near": cosine, "far": cosine})
        sizes.add((len(within), len(in_one)))
    assert any(each_own > alone for each_own, alone in sizes)


@pytest.fixture(scope="module")
def library(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Two collections with different metrics. Only for reading."""
    folder = tmp_path_factory.mktemp("library")
    desk = desk_at(folder / "data")
    texts = {
        "near": ["A pendulum clock swings in the tower.", "Clocks tick.", "Roses grow in the garden."],
        "far": ["Clocks in the tower are repaired in spring.", "A pendulum is a weight.", "Soup is served."],
    }
    for name, metric in (("near", "cosine"), ("far", "euclidean")):
        (folder / name).mkdir()
        for number, text in enumerate(texts[name]):
            (folder / name / f"{number}.txt").write_text(text)
        desk.run("collection", "create", name, "--distance", metric)
        desk.run("ingest", folder / name, "--collection", name)
    return desk


@pytest.fixture
def beside(inside: Desk, clock_desk: Desk) -> Desk:
    """The demo corpus, looked at without a process for each look. Only for reading."""
    return replace(inside, data=clock_desk.data)


def test_how_the_search_went_is_told_below_the_passages(clock_desk: Desk) -> None:
    plain = clock_desk.run("search", QUESTION, "--limit", "3").stdout
    explained = clock_desk.run("search", QUESTION, "--limit", "3", "--explain").stdout
    assert explained.startswith(plain)
    query, stages, *hits = explained.removeprefix(plain).strip().split("\n\n")
    assert query == f"Query: {QUESTION}"
    head, *rows = stages.splitlines()
    assert head.split() == ["STAGE", "STATUS", "MS", "BEFORE", "→", "AFTER"]
    named = ["plan", "embed", "recall", "fuse", "gate", "join", "limit", "total"]
    assert [row.split()[0] for row in rows] == named
    assert re.fullmatch(r"limit +ok +\d+\.\d +\d+ → 3", rows[-2])
    assert len(hits) == 3
    for rank, hit in enumerate(hits, 1):
        assert hit.startswith(f"{rank}. ")
        assert re.search(r"^   (dense|sparse) \d+ \([01]\.\d\d\)", hit, re.MULTILINE)
        assert re.search(rf"^   fuse (?:{rank}|\d+ → join {rank})$", hit, re.MULTILINE)


def test_scripts_get_the_trace_if_they_ask_for_it(clock_desk: Desk) -> None:
    plain = clock_desk.json("search", QUESTION, "--limit", "3")
    explained = clock_desk.json("search", QUESTION, "--limit", "3", "--explain")
    assert "trace" not in plain
    trace = explained.pop("trace")
    assert explained == plain
    assert trace["queries"] == [{"text": QUESTION, "weight": 1.0}]
    assert [stage["name"] for stage in trace["steps"]] == [
        "plan",
        "embed",
        "recall",
        "fuse",
        "gate",
        "join",
        "limit",
    ]
    assert list(trace["listings"]) == [id_ for hit in plain["results"] for id_ in passages(hit)]
    assert len(trace["steps"][-1]["preview"]) == 3


def test_a_source_that_one_expected_is_told_where_it_fell_out_by_any_of_its_names(
    clock_desk: Desk, beside: Desk
) -> None:
    (best,) = beside.hits(QUESTION, "--limit", "1")
    apart = beside.hits(QUESTION, "--limit", "20", "--detail", "snippet")
    second = next(hit for hit in apart if hit["id"].partition("/")[0] != best["id"].partition("/")[0])
    rank = 1 + apart.index(second)
    joined = rank - len({*passages(best)} & {hit["id"] for hit in apart[: rank - 1]}) + 1
    source = second["id"].partition("/")[0]
    names = [source, second["id"], f"refdesk://documents/{second['id']}", f"refdesk://documents/{source}"]
    replies = [beside.json("search", QUESTION, "--limit", "1", "--expect", name) for name in names]
    assert [reply["expected"] for reply in replies] == [replies[0]["expected"]] * 4
    expected = replies[0]["expected"]
    assert expected["id"] == second["id"].partition("/")[0]
    assert expected["title"] == second["title"]
    assert expected["chunk_id"] == second["id"]
    assert expected["step"] == "limit"
    assert expected["reason"] == f"Its best passage has rank {joined}, and the limit is 1."
    ranks = {rank["stage"]: rank["rank"] for rank in expected["ranks"]}
    assert (ranks["fuse"], ranks["gate"], ranks["limit"]) == (rank, rank, None)
    assert ranks.get("join", rank) == joined
    assert [stage["name"] for stage in replies[0]["trace"]["steps"]][-1] == "limit"
    printed = clock_desk.run("search", QUESTION, "--limit", "1", "--expect", second["id"]).stdout
    who, *lines = printed.strip().rpartition("\n\n")[2].splitlines()
    assert f"{second['title']} [{second['id'].partition('/')[0]}]" in who
    assert " ".join(" ".join(lines).split()).startswith(f"Out at limit. {expected['reason']}")


def test_a_source_that_is_among_the_hits_is_said_to_be_there(beside: Desk) -> None:
    (hit,) = beside.hits(QUESTION, "--limit", "1")
    reply = beside.json("search", QUESTION, "--limit", "1", "--expect", hit["id"].partition("/")[0])
    assert reply["expected"] | {"ranks": []} == {
        "id": hit["id"].partition("/")[0],
        "title": hit["title"],
        "step": None,
        "reason": "It is among the hits.",
        "chunk_id": hit["id"],
        "ranks": [],
    }
    assert {rank["rank"] for rank in reply["expected"]["ranks"]} == {1}


def test_what_nobody_can_read_is_expected_in_vain_and_told_like_any_unknown_id(
    inside: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "secret.md"
    file.write_text("# Canary\n\nA pendulum.\n")
    inside.run("ingest", file, "--allow", "user:ann")
    (secret,) = inside.sources()
    for name in (secret["id"], f"{secret['id']}/0", "a" * 16, "no id", "../x", ""):
        refused = inside.run("search", "pendulum", "--expect", name, code=1)
        assert (refused.stdout, refused.stderr) == ("", UNKNOWN), name
    ann = tmp_path / "ann.toml"
    ann.write_text("principal.user = 'ann'\n")
    reply = inside.json("search", "pendulum", "--expect", secret["id"], "--config", ann)
    assert reply["expected"]["title"] == "Canary"
    assert inside.failure("source", "a" * 16) == UNKNOWN


def test_a_report_is_a_page_with_the_question_and_the_hits_escaped(
    desk: Desk, inside: Desk, tmp_path: Path
) -> None:
    file, page = tmp_path / "a.md", tmp_path / "page.html"
    file.write_text("# A & B <script>alert(1)</script>\n\nA pendulum <img src=x onerror=alert(2)> swings.\n")
    inside.run("ingest", file)
    question = "pendulum & <script>alert(3)</script>"
    run = desk.run("search", question, "--report", page)
    assert run.stdout.startswith("1. A & B < script>alert(1)")
    assert "STAGE" not in run.stdout
    assert run.stderr == f"Wrote {page}.\n"
    html = page.read_text(encoding="utf-8")
    assert "pendulum &amp; &lt; script&gt;alert(3)&lt; /script&gt;" in html
    assert "A &amp; B &lt; script&gt;alert(1)" in html
    assert "onerror=alert(2)&gt; swings." in html
    assert "<script" not in html
    assert "<img" not in html
    (hit,) = inside.hits(question)
    assert hit["id"] in html


def test_a_report_tells_of_the_source_that_was_expected_and_takes_the_place_of_an_older_one(
    inside: Desk, tmp_path: Path
) -> None:
    file, page = tmp_path / "a.md", tmp_path / "page.html"
    file.write_text("# Huygens\n\nA pendulum.\n")
    page.write_text("older " * 99_999)
    inside.run("ingest", file)
    (source,) = inside.sources()
    reply = inside.json("search", "pendulum", "--expect", source["id"], "--report", page)
    assert reply["expected"]["step"] is None
    html = page.read_text(encoding="utf-8")
    assert AMONG_HITS in html
    assert "older" not in html


def test_a_report_that_cant_be_written_is_refused_in_a_line(inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    inside.run("tenant", "create", "acorn")
    for place in (
        tmp_path / "missing" / "page.html",
        tmp_path / "file" / "page.html",
        tmp_path / ("x" * 300),
    ):
        refused = inside.run("search", "pendulum", "--report", place, code=2)
        assert refused.stdout == ""
        assert re.fullmatch(
            rf"refdesk-admin: Cannot write the report {re.escape(str(place))}: [A-Z][a-z ]+\.\n",
            refused.stderr,
        )
    refused = inside.run("search", "pendulum", "--report", tmp_path, code=2)
    assert f"'{tmp_path}' is a directory." in refused.stderr


def test_the_help_says_what_can_be_told_of_a_search(desk: Desk) -> None:
    text = " ".join(desk.scripts.admin("search", "--help").stdout.split())
    assert "--explain Also print the trace of the search, step by step." in text
    assert "--expect ID Also explain at which step this source dropped out." in text
    assert "--report FILE Write the trace of the search as an HTML page." in text


PROFILES = """
[[search.profiles.wide.stages]]
stage = "neighbors"
count = 2
[[search.profiles.section.stages]]
stage = "parent"
[[search.profiles.short.stages]]
stage = "compress"
[[search.profiles.all.stages]]
stage = "parent"
[[search.profiles.all.stages]]
stage = "neighbors"
[[search.profiles.all.stages]]
stage = "compress"
"""


@pytest.mark.parametrize("profile", ["wide", "section", "short", "all"])
def test_what_a_profile_shows_of_passages_stands_word_for_word_in_their_sources(
    clock_desk: Desk, beside: Desk, tmp_path: Path, profile: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(PROFILES)
    asked = ("Who built the first marine chronometer?", "--limit", "4")
    search = ("search", *asked, "--profile", profile, "--config", config)
    reply = beside.json(*search)
    assert reply["results"]
    plain = beside.hits(*asked)
    for hit in reply["results"]:
        text = beside.json("source", hit["id"].partition("/")[0])["text"]
        spans = hit.get("excerpts", [[hit["start"], hit["end"]]])
        pieces = [text[start:end] for start, end in spans]
        assert hit["text"] == " … ".join(pieces)
        assert all(piece in text for piece in pieces)
    _expect_more_or_less(reply, plain, more=profile in {"wide", "section"}, less=profile == "short")
    printed = clock_desk.run(*search).stdout
    for hit in reply["results"]:
        assert " ".join(hit["text"].split()) in " ".join(printed.split())


def _expect_more_or_less(
    reply: dict[str, Any], plain: list[dict[str, Any]], *, more: bool, less: bool
) -> None:
    """Longer results than those of the same passages without a profile, or shorter ones of the same."""
    sizes = [
        (len(hit["text"]), max(len(whole["text"]) for whole in alike))
        for hit in reply["results"]
        if (alike := [whole for whole in plain if {*passages(hit)} & {*passages(whole)}])
    ]
    assert sizes
    assert not more or any(size > whole for size, whole in sizes)
    assert not less or len(sizes) == len(reply["results"])
    assert not less or all(size <= whole for size, whole in sizes)
    assert not less or any(size < whole for size, whole in sizes)


FAQ = {
    "How do I reset my password?": "Open the portal, choose Forgotten, and follow the letter.",
    "Where do I park?": "Behind the house, on the numbered places.",
    "What is the wifi name?": "It is tidewater-guest, and it needs no key.",
    "When does the canteen open?": "At eleven, and it closes at two.",
    "Who waters the plants?": "Whoever comes first.",
    "How do I book a room?": "In the calendar, as a guest of the meeting.",
    "Where are the keys?": "At the porter's, who wants to see your card.",
    "May I bring my dog?": "Yes, if nobody on your floor minds.",
}


def test_every_answer_of_a_short_faq_is_cited_with_its_own_question(inside: Desk, tmp_path: Path) -> None:
    questions = "\n\n".join(f"## {question}\n\n{answer}" for question, answer in FAQ.items())
    (tmp_path / "faq.md").write_text(f"# FAQ\n\n{questions}\n")
    inside.run("ingest", tmp_path / "faq.md")
    for question, answer in FAQ.items():
        (hit,) = inside.hits(question, "--limit", "1")
        assert (hit["cite_as"], answer in hit["text"]) == (f"FAQ › {question}", True)


def test_people_read_where_else_a_passage_stands(inside: Desk, tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        path = tmp_path / "copies" / folder / "guide.md"
        path.parent.mkdir(parents=True)
        path.write_text("# Guide\n\nYour laptop is in room 14.\n")
    inside.run("ingest", str(tmp_path / "copies"))
    lines = inside.run("search", "laptop in room 14").stdout
    places = re.findall(r"Guide \(([abc])\)", lines)
    assert sorted(places) == ["a", "b", "c"]
    assert len(re.findall(r"score", lines)) == lines.count("The same in Guide") == 1


def test_every_override_is_an_option_whatever_the_settings_leave_to_assistants(clock_desk: Desk) -> None:
    search = ("search", "pendulum clock", "--limit", "4")
    fusion = ("--fusion", "convex", "--alpha", "0.9", "--candidates", "20", "--vectors")
    near = ("--threshold", "max_distance=0.7", "--threshold", "min_similarity=0.1", "--distance", "cosine")
    stages = ("--stages-of", "precise", "--without-stage", "dedupe")
    plain = clock_desk.json(*search)["results"]
    hits = clock_desk.json(*search, *fusion, *near, *stages)["results"]
    assert {hit["title"] for hit in hits} & {hit["title"] for hit in plain}
    assert [hit["score"] for hit in hits] != [hit["score"] for hit in plain]
    assert all(hit["similarity"] >= 0.3 and len(hit["vector"]) == 384 for hit in hits)


def test_an_override_without_effect_is_told(inside: Desk, clock_desk: Desk) -> None:
    wrong = [
        (("--threshold", "near=1"), "thresholds has no 'near'"),
        (("--threshold", "min_similarity"), "is not like min_similarity=0.3."),
        (("--without-stage", "rerank"), "stages.without: there is no stage 'rerank'; there are: none."),
        (("--neighbors", "9"), "stages.neighbors must be"),
        (("--alpha", "0.5"), "alpha has no effect with the fusion calibrated"),
        (("--vectors",), "--vectors needs --json."),
    ]
    clocks = replace(inside, data=clock_desk.data)
    for options, words in wrong:
        assert words in clocks.misuse("search", "pendulum", *options)
    missing = clocks.run("search", "pendulum", "--exclude-collection", "nothing", code=1)
    assert "Readable collections: documents." in missing.stderr

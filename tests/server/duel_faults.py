"""What is wrong with a reply: what a person can't know, what is missing, what is too much."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.text.revisions import mark, revision_of
from tests.server.duel_draw import TOOLS, behind
from tests.server.duel_rules import COLLECTIONS, occurrences

MOST_COMPLETED = 100

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.server.duel_rules import Duel, Json, Library, Paper

DEFAULT_LIMIT = 8
SHOWN = 5  # matches of a passage
OF_EXACT = {"matches", "match_count", "text", "cite_as", "uri"}
CANARY = re.compile(r"zq0\w+")  # ids hold no 0
NEVER_SAID = (*COLLECTIONS, "nowhere", "user:", "group:")
NAMES = {
    name
    for collections in COLLECTIONS.values()
    for collection, fields in collections.items()
    for name in (collection, *fields)
}
PAGES = {"url"} if "BRIDGED" in os.environ else set[str]()
"""The addresses of pages, which only a shared desk has."""
VARYING = {
    "search": {"score", "similarity", "start", "end", "tokens", "lists", "also_in"} | PAGES,
    "get_source": {
        "mime_type",
        "indexed_at",
        "length",
        "start",
        "end",
        "next_start",
        "lines",
        "line_count",
        "chunks",
        "notes",
        "trust",
    },
    "resources/read": {"uri", "mime_type"},
}
"""What records may show beside what is known of it beforehand."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: its text, and its content unless it is a refusal."""

    text: str
    content: Json | None = None


def faults(library: Library, duel: Duel, reply: Reply, *, relaxed: bool) -> Iterator[str]:
    """What is wrong with a reply."""
    yield from _leaks(library, duel, reply)
    if duel.person.tenant not in COLLECTIONS:
        if reply.content:
            yield "answers somebody of no tenant"
        return
    match duel.call:
        case "search":
            yield from _search_faults(library, duel, reply, relaxed=relaxed)
        case "get_source" | "resources/read":
            yield from _opening_faults(library, duel, reply)
        case "listing":
            yield from _listing_faults(library, duel, reply)
        case "resources/list":
            visible = library.visible[duel.person].values()
            if not reply.content or sorted(reply.content["uris"]) != sorted(paper.uri for paper in visible):
                yield "lists other sources"
        case "tools/list":
            yield from _counting_faults(library, duel, reply)
        case "completion/complete":
            yield from _completion_faults(library, duel, reply)


def _completion_faults(library: Library, duel: Duel, reply: Reply) -> Iterator[str]:
    expected = library.beginning(duel)
    if reply.content != {"values": expected[:MOST_COMPLETED], "total": len(expected)}:
        yield f"completes {reply.text[:200]} where there are {len(expected)}"


def _counting_faults(library: Library, duel: Duel, reply: Reply) -> Iterator[str]:
    for tool, held in (reply.content or {}).items():
        bound = TOOLS.get(tool.removeprefix("search_"))
        visible = library.visible[behind(duel.asker, (bound,)) if bound else duel.asker].values()
        if held != (counts := dict(Counter(paper.collection for paper in visible))):
            yield f"counts {held} in {tool} where there are {counts}"


def _leaks(library: Library, duel: Duel, reply: Reply) -> Iterator[str]:
    """Words that the person can't know but from what it asked."""
    arguments = json.dumps(duel.arguments)
    visible = library.visible[duel.person].values()
    canaries = {paper.canary for paper in visible} | set(CANARY.findall(arguments))
    if strange := set(CANARY.findall(reply.text)) - canaries:
        yield f"says {strange}"
    yield from (f"says {word}" for word in NEVER_SAID if word in reply.text)
    readable = library.readable(duel.person)
    collections = COLLECTIONS[duel.person.tenant] if readable else {}
    names = {*readable} | {field for name in readable for field in collections[name]}
    words = " ".join(reply.content["notes"]) if reply.content and duel.call == "search" else reply.text
    if hidden := NAMES & set(re.findall(r"\w+", words)) - names - set(re.findall(r"\w+", arguments)):
        yield f"names {hidden}"


def _search_faults(library: Library, duel: Duel, reply: Reply, *, relaxed: bool) -> Iterator[str]:
    expected = library.passages(duel.person, duel.arguments)
    if expected is None or reply.content is None:
        if reply.content or expected is not None:
            yield f"refused wrongly, or not: {reply.text[:200]}"
        return
    hits = reply.content["results"]
    if json.loads(reply.text) != reply.content:
        yield "the text and the structured content differ"
    for hit in hits:
        yield from _hit_faults(library, duel, hit)
    passages = [id_ for hit in hits for id_ in _found_in(library, duel, hit)]
    copies = [id_ for hit in hits for id_ in _copies_of(hit)]
    distinct = {*passages}
    if relaxed and not expected:
        unfiltered = {name: value for name, value in duel.arguments.items() if name != "filter"}
        if not distinct <= (library.passages(duel.person, unfiltered) or set()):
            yield f"relaxed more than the filter: {distinct}"
        return
    yield from _number_faults(library, duel, expected, passages, copies)


def _number_faults(
    library: Library, duel: Duel, expected: set[str], passages: Sequence[str], copies: Sequence[str]
) -> Iterator[str]:
    """Hits that are missing, too many or of something else. Papers with one text are one hit with `copies`.

    A paper has at most two short passages, so those that are found of it are one hit. Of two papers with one
    text but other file names, each may be the better one for one of the passages. Its second one may be
    missing where its place is another paper's: among so many papers that the limit drops some, and in a
    search without a limit. A hit of mode exact tells only its first matches, so both may not be named.
    """
    expected_ids, reply_ids = ({id_.partition("/")[0] for id_ in ids} for ids in (expected, passages))
    is_exact = duel.arguments.get("mode") == "exact"  # which lists every copy
    papers = library.visible[duel.person]
    visible_ids = expected_ids & papers.keys()
    texts = Counter(id_ if is_exact else tuple(papers[id_].paragraphs) for id_ in visible_ids)
    distinct = texts.keys()
    split = sum(count > 1 and isinstance(text, tuple) and len(text) > 1 for text, count in texts.items())
    right = min(len(distinct), duel.arguments.get("limit", min(DEFAULT_LIMIT, duel.person.limit)))
    is_whole = not is_exact and "limit" in duel.arguments and len(distinct) == right
    is_twice = len({*passages, *copies}) < len(passages) + len(copies)
    if not right <= len(reply_ids) <= right + split or is_twice:
        yield f"{len(reply_ids)} hits, not {right}: {passages}, {copies}"
    if strange := {*passages, *copies} - expected:
        yield f"{strange} is too much"
    if is_whole and (missing := expected - {*passages, *copies}):
        yield f"{missing} is not found"


def _copies_of(hit: Json) -> list[str]:
    """The ids of the passages of other papers that a hit has the text of."""
    ranges = (_range({"id": cited.rpartition("[")[2].rstrip("]")}) for cited in hit.get("also_in", ()))
    return [f"{id_}/{seq}" for id_, first, last in ranges for seq in range(first, last + 1)]


def _found_in(library: Library, duel: Duel, hit: Json) -> list[str]:
    """The ids of the passages that a hit is of: all of its range; in mode exact, where its matches begin."""
    id_, first, last = _range(hit)
    paper = library.visible[duel.person].get(id_)
    passages: Iterable[int] = range(first, last + 1)
    if paper and duel.arguments.get("mode") == "exact":
        passages = {_passage_at(paper, match["start"]) for match in hit["matches"]}
    return [f"{id_}/{seq}" for seq in passages]


def _passage_at(paper: Paper, start: int) -> int:
    """The number of the passage that has this character, or the white space in front of it."""
    ends = [len("\n\n".join(paper.paragraphs[: seq + 1])) for seq in range(len(paper.paragraphs))]
    return next(seq for seq, end in enumerate(ends) if start < end)


def _range(hit: Json) -> tuple[str, int, int]:
    """The paper's id, and the numbers of a hit's first and last passage."""
    match = re.fullmatch(r"([a-z2-7]{16})/(\d+)(?:-(\d+))?", hit["id"])
    assert match, hit["id"]
    first, last = int(match[2]), int(match[3] or match[2])
    assert match[3] is None or first < last, hit["id"]
    return match[1], first, last


def _hit_faults(library: Library, duel: Duel, hit: Json) -> Iterator[str]:
    id_, first, last = _range(hit)
    paper = library.visible[duel.person].get(id_)
    if paper is None:
        yield f"shows {hit['id']}"
        return
    pages = f"p. {first + 1}" if first == last else f"pp. {first + 1}-{last + 1}"
    text = "\n\n".join(paper.paragraphs)
    expected: Json = {
        "id": hit["id"],
        "uri": f"refdesk://{paper.collection}/{hit['id']}",
        "revision": _revision(paper),
        "title": paper.title,
        "cite_as": f"{paper.title} › {paper.paragraphs[0]}, {pages}",
        "collection": paper.collection,
        "page": first + 1,
        "text": "\n\n".join(paper.paragraphs[first : last + 1]),
        "metadata": paper.metadata,
    }
    if is_exact := duel.arguments.get("mode") == "exact":
        yield from _match_faults(paper, duel, hit)
        of_exact = ("id", "revision", "title", "collection", "page", "metadata")
        expected = {name: expected[name] for name in of_exact}
    if text[hit["start"] : hit["end"]] != hit["text"]:
        yield f"shows other text {hit['text']}"
    if is_exact:
        hit = {name: value for name, value in hit.items() if name not in OF_EXACT}
    yield from _differences(_without_place(paper, hit), expected, VARYING["search"])


def _revision(paper: Paper) -> str:
    return revision_of([mark(paragraph) for paragraph in paper.paragraphs])


def _without_place(paper: Paper, hit: Json) -> Json:
    """A hit without the place of its own document behind the title, which tells it apart in some replies."""
    cited = re.fullmatch(rf"({re.escape(paper.title)}) \((.*)\)( › .*)", hit.get("cite_as", ""))
    place = re.sub(r"\W", "", f"{paper.collection}{paper.path}")
    if cited is None or re.sub(r"\W", "", cited[2]) not in place:
        return hit
    return hit | {"cite_as": cited[1] + cited[3]}


def _match_faults(paper: Paper, duel: Duel, hit: Json) -> Iterator[str]:
    """What is wrong with a hit of mode exact."""
    _, first, last = _range(hit)
    by_passage = occurrences(paper, duel.arguments)
    expected = [match for seq in sorted(by_passage) if first <= seq <= last for match in by_passage[seq]]
    matches = [(match_["line"], match_["start"], match_["end"]) for match_ in hit["matches"]]
    if matches != expected[:SHOWN] or hit["match_count"] != len(expected):
        yield f"matches {matches} of {hit['match_count']}, not {expected}"


def _differences(actual: Json, expected: Json, varying: set[str]) -> Iterator[str]:
    """What a record shows otherwise than is known, or beside it."""
    if wrong := {name for name, value in expected.items() if actual.get(name) != value}:
        yield f"other {wrong} in {actual}"
    if more := actual.keys() - expected.keys() - varying:
        yield f"{more} in {actual}"


def _opening_faults(library: Library, duel: Duel, reply: Reply) -> Iterator[str]:
    opened = library.opened(duel)
    if opened and library.refuses(duel, opened[0]):
        opened = None
    if opened is None or reply.content is None:
        if opened or reply.content:
            yield f"refused wrongly, or not: {reply.text[:200]}"
        return
    paper, seq = opened
    whole = seq is None or (duel.call == "get_source" and "around" not in duel.arguments)
    paragraphs = list(paper.paragraphs) if seq is None or whole else [paper.paragraphs[seq]]
    expected: Json = {"text": "\n\n".join(paragraphs)}
    if "outline" in duel.arguments:
        expected = {"text": None}
    if "lines" in duel.arguments:
        first, _, last = duel.arguments["lines"].partition("-")
        numbered = [f"{number}\t{line}" for number, line in enumerate(paper.lines, 1)]
        expected = {"text": "\n".join(numbered[int(first) - 1 : int(last or first)])}
    if duel.call == "get_source":
        expected |= {
            "id": paper.id,
            "uri": paper.uri,
            "revision": _revision(paper),
            "title": paper.title,
            "collection": paper.collection,
            "metadata": paper.metadata,
            "outline": []
            if int(duel.arguments.get("lines", "1").partition("-")[0]) > 1
            else [{"title": paper.paragraphs[0], "level": 1, "start": 0}],
        }
    yield from _differences(reply.content, expected, VARYING[duel.call])


def _listing_faults(library: Library, duel: Duel, reply: Reply) -> Iterator[str]:
    listed = library.listed(duel)
    if listed is None or reply.content is None:
        if listed is not None or reply.content:
            yield f"refused wrongly, or not: {reply.text[:200]}"
        return
    entries = [
        (entry["name"], entry["documents"])
        if "documents" in entry
        else (entry["name"], entry["id"], entry["length"], entry.get("title"))
        for entry in reply.content["entries"]
    ]
    if {*entries} != listed or len(entries) != len(listed):
        yield f"lists {entries}, not {listed}"
    if reply.content["documents"] != sum(entry[1] if len(entry) == 2 else 1 for entry in listed):
        yield f"counts {reply.content['documents']} documents"
    if [len(entry) for entry in entries] != sorted(len(entry) for entry in entries):
        yield "lists papers before folders"

"""What everybody must get of the duel's papers, in plain Python that shares no line with the product.

Who sees a paper, which filters it fits, and what a filter may ask for: written here anew, from what the
documentation says.
"""

from __future__ import annotations

import json
import operator
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Json: TypeAlias = "dict[str, Any]"
"""An object as a client sends it, or as it comes back."""

MAX_LIMIT = 100
AURORA, BOREAL = "aurora", "boreal"
VAULT = "vault"  # for a few of its tenant
COLLECTIONS: dict[str, dict[str, dict[str, str]]] = {
    AURORA: {
        "handbook": {"phase": "string", "anno": "integer", "labels": "string list", "grade": "integer"},
        "tickets": {
            "phase": "string",
            "severity": "integer",
            "cost": "number",
            "settled": "boolean",
            "deadline": "datetime",
        },
        VAULT: {"clearance": "string", "grade": "string", "labels": "string list"},
    },
    BOREAL: {
        "handbook": {"phase": "string", "cost": "number", "deadline": "datetime"},
        "ledgers": {"account": "string", "anno": "integer", "labels": "string list", "settled": "boolean"},
    },
}
"""The declared fields of each tenant's collections. Two share a name; two give a field different types."""
DATES = {
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "1969-12-31T23:59:59.999999Z": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "2024-05-01": datetime(2024, 5, 1, tzinfo=UTC),
    "2024-05-01T02:00:00+02:00": datetime(2024, 5, 1, tzinfo=UTC),
    "2024-05-01T00:00:00.000001Z": datetime(2024, 5, 1, 0, 0, 0, 1, tzinfo=UTC),
    "2262-04-12T00:00:00Z": datetime(2262, 4, 12, tzinfo=UTC),
    "9999-12-31T23:59:59.999999+00:00": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """What somebody is bound to: some collections, a filter as JSON, a highest limit."""

    collections: tuple[str, ...] | None = None
    filter: str = ""
    limit: int = MAX_LIMIT


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. Of each of the walls one alternative, mostly the only one, must let a paper through."""

    tenant: str
    user: str | None = None
    groups: frozenset[str] = frozenset()
    walls: tuple[tuple[Bound, ...], ...] = ()

    @property
    def limit(self) -> int:
        """The highest limit of the person's searches."""
        return min([MAX_LIMIT, *(wall[0].limit for wall in self.walls if len(wall) == 1)])


@dataclass(frozen=True, slots=True)
class Paper:
    """A source with its declared fields and its access record; every paragraph holds the canary.

    `passages` are the words by which each passage is found, by the passage's id. `path` is empty if it has
    none.
    """

    id: str
    tenant: str
    collection: str
    title: str
    paragraphs: Sequence[str]
    canary: str
    passages: Mapping[str, set[str]]
    fields: Mapping[str, Any]
    access: Mapping[str, Any] | None
    path: str = ""

    @property
    def metadata(self) -> Json:
        """What is shown beside its text."""
        return {"mark": self.canary} | ({"path": self.path} if self.path else {})

    @property
    def lines(self) -> list[str]:
        """The lines of its text."""
        return "\n\n".join(self.paragraphs).split("\n")

    @property
    def uri(self) -> str:
        """How the outside names it."""
        return f"refdesk://{self.collection}/{self.id}"


@dataclass(frozen=True, slots=True)
class Duel:
    """One question. `call` is a tool or a method; `arguments` are just what is sent.

    `tool` is the tool's name on the server that is asked, and `asker` who sends it: the person without what
    the server's tools are bound to.
    """

    number: int
    person: Person
    call: str
    arguments: Json
    tool: str
    asker: Person


@dataclass(frozen=True, slots=True)
class Library:
    """All papers by tenant and id, and which of them each person sees.

    `knows` says whether the model of the server knows a word of a query.
    """

    papers: Mapping[str, Mapping[str, Paper]]
    visible: Mapping[Person, Mapping[str, Paper]]
    knows: Callable[[str], bool] = lambda _query: True

    def readable(self, person: Person) -> set[str]:
        """The collections in which the person sees anything."""
        return {paper.collection for paper in self.visible[person].values()}

    def matches(self, person: Person, arguments: Json) -> list[Paper] | None:
        """The papers that a search may show, or None if it must be refused."""
        readable = self.readable(person)
        chosen = set(arguments.get("collections", readable)) & readable  # a note names the others
        declared = [COLLECTIONS[person.tenant][name] for name in chosen]
        if arguments.get("limit", 0) > person.limit:
            return None
        if not chosen and "collections" in arguments:
            return None
        if chosen and "filter" in arguments and not valid(arguments["filter"], declared):
            return None
        return [
            paper
            for paper in self.visible[person].values()
            if paper.collection in chosen
            and paper.id in arguments.get("sources", [paper.id])
            and paper.id not in arguments.get("exclude_sources", [])
            and ("filter" not in arguments or fits(arguments["filter"], paper.fields))
        ]

    def beginning(self, duel: Duel) -> list[str]:
        """The ids of the papers whose id, title or path begins with what was typed, by title."""
        typed, collection = duel.arguments["value"].lower(), duel.arguments.get("collection")
        matches = [
            (paper.title, paper.id)
            for paper in self.visible[duel.person].values()
            if collection in {None, paper.collection}
            and any(name.lower().startswith(typed) for name in (paper.id, paper.title, paper.path))
        ]
        return [id_ for _, id_ in sorted(matches)]

    def passages(self, person: Person, arguments: Json) -> set[str] | None:
        """The passages that a search without a limit must show; in mode sparse, those with a word of it.

        Mode hybrid searches by words alone where the model knows no word of the query. Parts of names are
        words, too. In mode exact, those in which it begins.
        """
        papers = self.matches(person, arguments)
        mode = arguments.get("mode", "hybrid")
        is_exact = mode == "exact"
        by_words = mode == "sparse" or (mode == "hybrid" and not self.knows(arguments["query"]))
        if papers is None or (is_exact and arguments["query"] == INVISIBLE):
            return None
        if is_exact:
            return {f"{paper.id}/{seq}" for paper in papers for seq in occurrences(paper, arguments)}
        words_asked = named(arguments["query"]) - STOP_WORDS
        return {
            id_
            for paper in papers
            for id_, words in paper.passages.items()
            if not by_words or words_asked & named(" ".join(words))
        }

    def opened(self, duel: Duel) -> tuple[Paper, int | None] | None:
        """What a name opens: a paper, or one of its passages."""
        if self.kind(duel) != "own":
            return None
        collection, id_, seq = self._name_parts(duel)
        paper = self.visible[duel.person][id_]
        if collection not in {None, paper.collection} or (seq and int(seq) >= len(paper.paragraphs)):
            return None
        return paper, int(seq) if seq else None

    def kind(self, duel: Duel) -> str:
        """Whose is what a name names: one's own to read, denied, foreign, or nobody's."""
        _, id_, _ = self._name_parts(duel)
        if not id_:
            return "misspelt"
        if id_ in self.visible[duel.person]:
            return "own"
        if id_ in self.papers.get(duel.person.tenant, {}):
            return "denied"
        return "foreign" if any(id_ in papers for papers in self.papers.values()) else "unknown"

    def _name_parts(self, duel: Duel) -> tuple[str | None, str, str | None]:
        """The collection, id and number in a name, which may be a URI or an id."""
        name = duel.arguments["uri" if duel.call == "resources/read" else "id"]
        match = re.fullmatch(r"(?:refdesk://([a-z]+)/)?([a-z2-7]{16})(?:/(\d))?", name)
        if match:
            return match[1], match[2], match[3]
        of_tenant = self.papers.get(duel.person.tenant, {})
        of_others = [paper for papers in self.papers.values() for paper in papers.values()]
        for paper in [*of_tenant.values(), *of_others]:
            if paper.path and name == f"{paper.collection}/{paper.path}":
                return paper.collection, paper.id, None
        return None, "", None

    def refuses(self, duel: Duel, paper: Paper) -> bool:
        """Whether a paper has no such part as is asked for."""
        first = int(duel.arguments.get("lines", "1").partition("-")[0])
        heading = paper.paragraphs[0]
        return first > len(paper.lines) or not heading.startswith(duel.arguments.get("section", "").lower())

    def listed(self, duel: Duel) -> set[tuple[Any, ...]] | None:
        """What stands at a path: folders with their numbers of papers, papers with their ids."""
        visible = self.visible[duel.person].values()
        folder = duel.arguments.get("id", "").rstrip("/")
        placed = [
            (f"{paper.collection}/{paper.path or paper.title}".split("/"), paper)
            for paper in visible
            if not folder or f"{paper.collection}/{paper.path}/".startswith(f"{folder}/")
        ]
        depth = len(folder.split("/")) if folder else 0
        inside = [(parts[depth:], paper) for parts, paper in placed if len(parts) > depth]
        folders = Counter(parts[0] for parts, _ in inside if len(parts) > 1)
        papers = {
            (parts[0], paper.id, len("\n".join(paper.lines)), paper.title if paper.path else None)
            for parts, paper in inside
            if len(parts) == 1
        }
        counted = {(f"{name}/", count) for name, count in folders.items()}
        return counted | papers if inside or not folder else None


INVISIBLE = "\u202e"


STOP_WORDS = {"a", "both", "or"}
"""Those among the words of queries, and in the names that the canaries are."""


def named(text: str) -> set[str]:
    """The words of a text, and the parts of its names: letters and digits are parts of their own."""
    return {*text.lower().split(), *re.findall(r"[^\W\d]+|\d+", text.lower())}


def occurrences(paper: Paper, arguments: Json) -> dict[int, list[tuple[int, int, int]]]:
    """Where a paper has what mode exact asks for: the line, start and end of each match, by passage."""
    query = arguments["query"]
    pattern = query if arguments.get("match") == "regex" else r"\s+".join(map(re.escape, query.split()))
    if arguments.get("match") == "words":
        pattern = rf"(?<!\w){pattern}(?!\w)"
    text = "\n\n".join(paper.paragraphs)
    ends = [len("\n\n".join(paper.paragraphs[: seq + 1])) for seq in range(len(paper.paragraphs))]
    places: dict[int, list[tuple[int, int, int]]] = {}
    flags = re.MULTILINE if arguments.get("case") else re.MULTILINE | re.IGNORECASE
    for match in re.finditer(pattern, text, flags):
        seq = next(seq for seq, end in enumerate(ends) if match.start() < end)
        line = text.count("\n", 0, match.start()) + 1
        places.setdefault(seq, []).append((line, *match.span()))
    return places


def sees(person: Person, paper: Paper) -> bool:
    """The same tenant, a record, nothing denied; and everybody may, or something of the person may."""
    if person.tenant != paper.tenant or paper.access is None:
        return False
    mine = [f"group:{group}" for group in person.groups]
    if person.user is not None:
        mine.append(f"user:{person.user}")
    if any(name in paper.access["deny"] for name in mine):
        return False
    if not all(any(_lets_through(bound, paper) for bound in wall) for wall in person.walls):
        return False
    return paper.access["visibility"] == "tenant" or any(name in paper.access["allow"] for name in mine)


def _lets_through(bound: Bound, paper: Paper) -> bool:
    """Whether a paper is in one of the collections, and fits the filter, which must suit its fields."""
    if bound.collections is not None and paper.collection not in bound.collections:
        return False
    filter_ = json.loads(bound.filter or "null")
    declared = COLLECTIONS[paper.tenant][paper.collection]
    return filter_ is None or (valid(filter_, [declared]) and fits(filter_, paper.fields))


def fits(filter_: Json, fields: Mapping[str, Any]) -> bool:
    """Whether all conditions of a filter hold: each does or doesn't, and there is no third."""
    return all(_holds(key, value, fields) for key, value in filter_.items())


def _holds(key: str, value: Any, fields: Mapping[str, Any]) -> bool:  # noqa: ANN401 any JSON
    match key:
        case "$and":
            return all(fits(part, fields) for part in value)
        case "$or":
            return any(fits(part, fields) for part in value)
        case "$not":
            return not fits(value, fields)
    return all(_is_so(fields.get(key), operator, operand) for operator, operand in _conditions(value).items())


def _conditions(value: Any) -> Json:  # noqa: ANN401 any JSON
    return value if isinstance(value, dict) else {"$eq": value}


def _is_so(held: Any, operator: str, operand: Any) -> bool:  # noqa: ANN401 any value
    """One condition on what a paper holds, which is None where it lacks the field."""
    match operator:
        case "$exists":
            return (held is not None) is operand
        case "$ne":
            return not _is_so(held, "$eq", operand)
        case "$nin":
            return not _is_so(held, "$in", operand)
        case "$in":
            return any(_is_so(held, "$eq", value) for value in operand)
        case "$eq" if isinstance(held, tuple):
            return any(_is_so(value, "$eq", operand) for value in held)
    if isinstance(held, datetime):
        operand = DATES[operand]
    elif isinstance(held, str):
        operand = unicodedata.normalize("NFC", operand)
    return held is not None and bool(COMPARISONS[operator](held, operand))


COMPARISONS = {
    "$eq": operator.eq,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
EQUALITIES = {"$eq", "$ne", "$in", "$nin", "$exists"}
OPERATORS: dict[str, set[str]] = {
    "string": EQUALITIES,
    "string list": EQUALITIES,
    "integer": EQUALITIES | COMPARISONS.keys(),
    "number": EQUALITIES | COMPARISONS.keys(),
    "boolean": {"$eq", "$ne", "$exists"},
    "datetime": EQUALITIES | COMPARISONS.keys(),
}


def valid(filter_: Any, declared: Sequence[Mapping[str, str]]) -> bool:  # noqa: ANN401 any JSON
    """Whether it is a filter over these fields; where collections differ on a type, it must suit them all."""
    return (
        isinstance(filter_, dict)
        and bool(filter_)
        and all(_is_valid(key, value, declared) for key, value in filter_.items())
    )


def _is_valid(key: str, value: Any, declared: Sequence[Mapping[str, str]]) -> bool:  # noqa: ANN401 any JSON
    match key:
        case "$and" | "$or":
            return isinstance(value, list) and bool(value) and all(valid(part, declared) for part in value)
        case "$not":
            return valid(value, declared)
    kinds = {fields[key] for fields in declared if key in fields}
    pairs = [(kind, *pair) for kind in kinds for pair in _conditions(value).items()]
    return bool(pairs) and all(_is_condition(*pair) for pair in pairs)


def _is_condition(kind: str, operator: str, operand: Any) -> bool:  # noqa: ANN401 any JSON
    if operator == "$exists":
        return isinstance(operand, bool)
    if operator in {"$in", "$nin"}:
        operands = operand if isinstance(operand, list) else []
        return (
            operator in OPERATORS[kind] and bool(operands) and all(_is_value(kind, part) for part in operands)
        )
    return operator in OPERATORS[kind] and _is_value(kind, operand)


def _is_value(kind: str, value: Any) -> bool:  # noqa: ANN401 any JSON
    match kind, value:
        case ("boolean", bool()) | ("number", float()):
            return True
        case ("integer" | "number", int()) if not isinstance(value, bool):
            return abs(value) <= 2**53
        case ("string" | "string list", str()):
            return len(value) <= 512 and "\x00" not in value
        case ("datetime", str()):
            return value in DATES
    return False

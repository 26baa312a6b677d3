"""The duel's papers and questions: drawn at random, but the same papers and questions in every run."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.server.duel_rules import (
    AURORA,
    BOREAL,
    COLLECTIONS,
    DATES,
    MAX_LIMIT,
    OPERATORS,
    VAULT,
    Bound,
    Duel,
    Library,
    Paper,
    Person,
    sees,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from tests.server.duel_rules import Json

PAPERS = 140  # of each tenant
IN_BOTH = 10  # of them stand word for word in both tenants
TWICE = 10  # others stand twice in a tenant, each with an access record of its own
TWINS = 3  # papers of different tenants with the same id

WORDS = ["pendulum", "sundial", "lantern", "anchor", "harbour", "granite", "velvet", "copper", "walnut"]
WORDS += ["meadow", "thunder", "blossom", "magnet", "lattice", "ember", "falcon", "lagoon", "marble"]
ABSENT = "zeppelin"
NASTY = [
    "",
    "' OR 1=1 --",
    "') OR ('1'='1",
    "1=1);",
    "1=1)/*",
    "\\' OR 1=1 --",
    "'",
    "''",
    '"',
    "`",
    ";",
    "\\",
    "E'x'",
    "$$x$$",
    "\u2019",
    "\uff07",
    "\r\n",
    "\u202e",
    "%",
    "_",
    "null",
    "true",
    "1",
    "2024-05-01",
    "é",
    "É",
    "e",
    "a b",
    "a b ",
    "😀",
    "x" * 512,
]
VALUES: dict[str, list[Any]] = {
    "string": [*NASTY, "e\u0301"],
    "string list": [*NASTY, "e\u0301"],
    "integer": [-(2**53), -1, 0, 1, 2, 2001, 2**53],
    "number": [-1.7e308, -1.5, -0.0, 0, 0.1 + 0.2, 0.3, 1, 2001.0, 5e-324, 1e22],
    "boolean": [True, False],
    "datetime": list(DATES),
}
"""What filters ask for, by type. Most of it some papers hold."""
ODD_VALUES: list[Any] = [None, [], [], 2**53 + 1, "a\x00b", "x" * 513, {}, 1.5, "yes", True, ["1"], 7]


EVERY_GROUP = frozenset({"hr", "it", "it's", "all", "*"})
PEOPLE = (
    Person(AURORA, "ann", frozenset({"hr"})),
    Person(AURORA, "bob", frozenset({"it", "all"})),
    Person(AURORA, "hr"),
    Person(AURORA, "O'Neill", frozenset({"it's"})),
    Person(AURORA, "' OR 1=1 --", frozenset({"*"})),
    Person(AURORA, "eve", frozenset({"interns"})),
    Person(AURORA, "cay", EVERY_GROUP),
    Person(AURORA, None, frozenset({"ann"})),
    Person(AURORA),
    Person(BOREAL, "ann", frozenset({"hr"})),
    Person(BOREAL, "x') OR (true", frozenset({"it", "all"})),
    Person(BOREAL),
    Person(AURORA, "cay", EVERY_GROUP, ((Bound(filter='{"phase": {"$nin": ["", "1", "e"]}}'),),)),
    Person(
        AURORA, "bob", frozenset({"it", "all"}), ((Bound(("handbook", VAULT), '{"grade": {"$gte": 0}}'),),)
    ),
    Person(AURORA, "cay", EVERY_GROUP, ((Bound((VAULT, "tickets"), limit=20),), (Bound(limit=90),))),
    Person(BOREAL, "ann", frozenset({"hr"}), ((Bound(filter='{"$not": {"settled": true}}'),),)),
    Person("nowhere", "ann", frozenset({"hr"})),
)
STRANGER = PEOPLE[-1]
ENTRIES = sorted(
    {f"user:{person.user}" for person in PEOPLE if person.user}
    | {f"group:{group}" for person in PEOPLE for group in person.groups}
)
TOOLS = {
    "old": Bound(filter='{"$or": [{"anno": {"$lte": 1}}, {"anno": {"$exists": false}}]}'),
    "new": Bound(("tickets", "handbook", "ledgers"), '{"labels": {"$exists": true}}', 30),
}
"""What the pairs of tools are bound to of a server that has no others: search_old, open_old and so on."""
KEYS_OF_VAULT = ["user:ann", "user:O'Neill", "group:it", "group:ann"]


def all_papers() -> Library:
    """The same papers in every run."""
    chance = random.Random("library")  # noqa: S311 the same in every run
    in_both = [_content(chance, f"zq0both{number}") for number in range(IN_BOTH)]
    twins = [random_id(chance) for _ in range(TWINS)]
    papers: dict[str, dict[str, Paper]] = defaultdict(dict)
    for tenant in COLLECTIONS:
        contents = [_content(chance, f"zq0{tenant[0]}{number}") for number in range(PAPERS - IN_BOTH)]
        for number, content in enumerate([*in_both, *contents, *contents[:TWICE]]):
            id_ = twins[number - IN_BOTH] if 0 <= number - IN_BOTH < TWINS else random_id(chance)
            papers[tenant][id_] = _paper(chance, id_, tenant, content)
    everything = [paper for of_tenant in papers.values() for paper in of_tenant.values()]
    walls: list[tuple[Bound, ...]] = [*((wall,) for wall in TOOLS.values()), tuple(TOOLS.values())]
    all_people = [*PEOPLE, *(behind(person, wall) for person in PEOPLE for wall in walls)]
    return Library(
        papers, {who: {paper.id: paper for paper in everything if sees(who, paper)} for who in all_people}
    )


def behind(person: Person, wall: tuple[Bound, ...]) -> Person:
    """The person behind one more wall."""
    return replace(person, walls=(*person.walls, wall))


def _content(chance: Random, canary: str) -> Json:
    paragraphs = [" ".join([canary, *chance.sample(WORDS, 3)]) for _ in range(chance.choice([1, 1, 1, 2]))]
    return {"canary": canary, "title": " ".join(chance.sample(WORDS, 2)), "paragraphs": paragraphs}


def _paper(chance: Random, id_: str, tenant: str, content: Json) -> Paper:
    collection = chance.choice(list(COLLECTIONS[tenant]))
    title, paragraphs, path = content["title"], content["paragraphs"], _some_path(id_, content["canary"])
    names = f"{title} {path.rpartition('/')[2].removesuffix('.md')}"  # found by each passage
    return Paper(
        id=id_,
        tenant=tenant,
        collection=collection,
        passages={f"{id_}/{seq}": {*f"{names} {text}".split()} for seq, text in enumerate(paragraphs)},
        fields=some_fields(chance, COLLECTIONS[tenant][collection]),
        path=path,
        access=_some_access(chance, few=collection == VAULT),
        **content,
    )


def random_id(chance: Random) -> str:
    """An id as sources have them."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz234567", k=16))


def some_fields(chance: Random, declared: Mapping[str, str]) -> Json:
    """Values for most of the declared fields."""
    return {name: _some_value(chance, kind) for name, kind in declared.items() if chance.random() < 0.7}


def _some_value(chance: Random, kind: str) -> Any:  # noqa: ANN401 any value
    match kind:
        case "string":
            return chance.choice([*NASTY, "a\x00b"])
        case "string list":
            return tuple(chance.sample(NASTY, chance.randint(1, 3)))
        case "datetime":
            return chance.choice(list(DATES.values()))
        case "number":
            return float(chance.choice(VALUES[kind])) + 0.0
    return chance.choice(VALUES[kind])


def _some_access(chance: Random, *, few: bool) -> Json | None:
    if chance.random() < 0.08:
        return None
    allow = chance.sample(KEYS_OF_VAULT if few else ENTRIES, chance.choice([0, 1, 1, 2, 4]))
    deny = chance.sample(ENTRIES, chance.choice([0, 0, 0, 1, 2]))
    visibility = "restricted" if few else chance.choice(["tenant", "restricted"])
    return {"visibility": visibility, "allow": allow, "deny": deny}


FOLDERS = ["", "reise", "reise/berlin", "a b/..", "mfzq/3", "100% [x]", "Ä"]


def _some_path(id_: str, canary: str) -> str:
    """A path, or none; of two papers with the same text each has another one."""
    chance = random.Random(f"path of {id_}")  # noqa: S311 the same in every run
    if chance.random() < 0.25:
        return ""
    return f"{chance.choice(FOLDERS)}/{canary} {id_[:4]}.md".lstrip("/")


CALLS = {
    "search": 82,
    "get_source": 7,
    "listing": 4,
    "resources/read": 4,
    "resources/list": 0.5,
    "tools/list": 0.5,
    "completion/complete": 2,
}
"""What is asked how often; a listing is a call of `get_source`, too."""
CALLS_OF_TOOLS = {
    "search": 60,
    "get_source": 15,
    "listing": 8,
    "resources/read": 15,
    "resources/list": 9,
    "tools/list": 1,
    "completion/complete": 4,
}
TOOL = {"search": "search", "get_source": "get_source", "listing": "get_source"}
PAIR = {"search": "search", "get_source": "open", "listing": "open"}


def duel(
    number: int,
    library: Library,
    person: Person | None = None,
    *,
    picky: bool = True,
    through_tools: bool = False,
) -> Duel:
    """The duel of this number, always the same one; of this person, if one is given.

    With `picky`, most searches that find nothing are drawn again: to explain one takes several searches. If
    it goes `through_tools`, they are those of `TOOLS`.
    """
    chance = random.Random(f"duel {number}")  # noqa: S311 the same in every run
    someone = chance.choice(PEOPLE)
    shares = CALLS_OF_TOOLS if through_tools else CALLS
    (call,) = chance.choices(list(shares), list(shares.values()))
    asker, tool = person or someone, TOOL.get(call, call)
    asks = asker
    if through_tools and call in PAIR:
        name = chance.choice(list(TOOLS))
        asks, tool = behind(asker, (TOOLS[name],)), f"{PAIR[call]}_{name}"
    elif through_tools:
        asks = behind(asker, tuple(TOOLS.values()))
    asking = (_search if picky else _any_search) if call == "search" else _ASKING[call]
    return Duel(number, asks, call, asking(chance, library, asks), tool, asker)


def _search(chance: Random, library: Library, person: Person) -> Json:
    while True:
        arguments = _any_search(chance, library, person)
        is_empty = library.passages(person, arguments) == set()
        if not is_empty or not library.visible[person] or chance.random() < 0.1:
            return arguments


def _any_search(chance: Random, library: Library, person: Person) -> Json:
    tenant = person.tenant if person.tenant in COLLECTIONS else AURORA
    ids = list(library.papers[tenant])
    readable = sorted(library.readable(person)) or [VAULT]
    arguments: Json = {"query": _query(chance, library), "max_chars": 100_000}
    if chance.random() < 0.9:
        arguments["mode"] = chance.choice([*["dense"] * 3, *["sparse"] * 3, "hybrid", "exact", "exact"])
    if chance.random() < 0.9:
        arguments["limit"] = chance.choice([MAX_LIMIT, MAX_LIMIT, MAX_LIMIT, 1, 5, 20])
        if chance.random() < 0.95:
            arguments["limit"] = min(arguments["limit"], person.limit)
    if chance.random() < 0.75:
        arguments["collections"] = [chance.choice(readable)]
    if chance.random() < 0.03:
        collection = chance.choice([VAULT, "ledgers", "none"])
        arguments["collections"] = [*arguments.get("collections", []), collection]
    if chance.random() < 0.15:
        some_ids = chance.sample(ids, chance.choice([10, 40]))
        arguments["sources"] = [*some_ids, _any_id(chance, library, person)]
    if chance.random() < 0.15:
        arguments["exclude_sources"] = chance.sample(ids, chance.choice([0, 1, 30]))
    if chance.random() < 0.6:
        fields = _fields_to_ask(chance, tenant, arguments.get("collections", readable))
        arguments["filter"] = _filter(chance, fields)
    if arguments.get("mode") == "exact":
        arguments |= _exactly(chance, library, arguments["query"])
    return arguments


PATTERNS = [
    r"fal\w+",
    r"^zq0\w+ [a-m]\w*",
    r"(anchor|ember)$",
    r"m[ae]\w{2,5}t\b",
    r"\w+\s+zq0\w+ ",
    r"[^\W_]{9,}",
    r"(?-i:[A-Z])\w+",
    r"(?s)zq0both\d .+",
]


def _exactly(chance: Random, library: Library, query: str) -> Json:
    """What mode exact is asked for: a pattern, a part of a text, or what is asked for in other modes."""
    arguments: Json = {"match": chance.choice(["text", "words", "regex"])} if chance.random() < 0.8 else {}
    if chance.random() < 0.3:
        arguments["case"] = chance.random() < 0.5
    if arguments.get("match") == "regex":
        return arguments | {"query": chance.choice(PATTERNS)}
    paper = chance.choice([*library.papers[chance.choice(list(COLLECTIONS))].values()])
    words = " ".join(paper.paragraphs).split()
    first = chance.randrange(len(words))
    part = " ".join(words[first : first + chance.randint(1, 3)])
    part = chance.choice([part, part[1:-1], part.upper(), chance.choice(WORDS), query])
    return arguments | {"query": part}


def _query(chance: Random, library: Library) -> str:
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            return chance.choice(WORDS)
        case 4 | 5 | 6:
            return " ".join(chance.sample(WORDS, chance.randint(2, 4)))
        case 7 | 8:
            papers = library.papers[chance.choice(list(COLLECTIONS))]
            return chance.choice(list(papers.values())).canary
    return chance.choice([ABSENT, *(text for text in NASTY if text.strip())])


def _fields_to_ask(chance: Random, tenant: str, collections: Iterable[str]) -> dict[str, str]:
    """The fields of the collections, and now and then another one."""
    if chance.random() < 0.02:
        return {"clearance": "string", "account": "string", "none": "integer"}
    declared = [COLLECTIONS[tenant].get(name, {}) for name in collections]
    return {name: kind for fields in declared for name, kind in fields.items()} or {"phase": "string"}


def _filter(chance: Random, fields: Mapping[str, str], depth: int = 3) -> Json:
    kinds = ["one", "one", "two", "$and", "$or", "$not"]
    match chance.choice(kinds if depth > 1 else kinds[:3]):
        case "one":
            return _condition(chance, fields)
        case "two":
            return _condition(chance, fields) | _condition(chance, fields)
        case "$not":
            return {"$not": _filter(chance, fields, depth - 1)}
        case key:
            return {key: [_filter(chance, fields, depth - 1) for _ in range(chance.choice([1, 2, 2]))]}


def _condition(chance: Random, fields: Mapping[str, str]) -> Json:
    """A condition on one of the fields; now and then with a value that can't be asked for."""
    name, kind = chance.choice(list(fields.items()))
    operator = chance.choice(sorted(OPERATORS[kind]))
    values = VALUES[kind]
    if chance.random() < 0.03:
        odd = chance.choice(ODD_VALUES)
        return {name: {operator: [odd] if operator in {"$in", "$nin"} and chance.random() < 0.5 else odd}}
    if operator == "$exists":
        return {name: {operator: chance.random() < 0.5}}
    if operator in {"$in", "$nin"}:
        return {name: {operator: chance.sample(values, chance.randint(1, min(8, len(values))))}}
    if operator == "$eq" and chance.random() < 0.5:
        return {name: chance.choice(values)}
    return {name: {operator: chance.choice(values)}}


def _get_source(chance: Random, library: Library, person: Person) -> Json:
    name, uri = _names(chance, library, person)
    if chance.random() < 0.3:
        paper = _any_paper(chance, library, person)
        return {"id": f"{paper.collection}/{paper.path}" if paper else "handbook/none.md"} | _part(
            chance, paper
        )
    if chance.random() < 0.3:
        id_ = name.partition("/")[0]
        return {"id": name} | _part(chance, library.papers.get(person.tenant, {}).get(id_))
    window = {"around": 0} if chance.random() < 0.5 and "/" in name else {}
    return {"id": chance.choice([name, uri])} | window


def _any_paper(chance: Random, library: Library, person: Person) -> Paper | None:
    """A paper with a path that the person sees or doesn't, or one of another tenant; or none."""
    id_ = _any_id(chance, library, person)
    papers = [*library.papers.get(person.tenant, {}).values()]
    papers += [paper for of in library.papers.values() for paper in of.values()]
    return next((paper for paper in papers if paper.id == id_ and paper.path), None)


def _part(chance: Random, paper: Paper | None) -> Json:
    """A part of a paper, or now and then one that it hasn't."""
    heading = paper.paragraphs[0] if paper else ABSENT
    parts: list[Json] = [{"outline": True}, {}, {"lines": chance.choice(["1", "3", "1-99", "2-2", "9-10"])}]
    return chance.choice(
        [*parts, {"section": chance.choice([heading, heading.upper(), heading[:12], ABSENT])}]
    )


def _listing(chance: Random, _library: Library, person: Person) -> Json:
    names = [*COLLECTIONS.get(person.tenant, {}), VAULT, "ledgers", "none"]
    folder = f"{chance.choice(names)}/{chance.choice([*FOLDERS, 'none'])}"
    path = chance.choice([folder.rstrip("/"), f"{folder.rstrip('/')}/", chance.choice(names), None])
    return ({"id": path} if path else {}) | {"max_chars": chance.choice([2_000, 100_000])}


def _read(chance: Random, library: Library, person: Person) -> Json:
    name, uri = _names(chance, library, person)
    return {"uri": name if chance.random() < 0.1 else uri}


def _names(chance: Random, library: Library, person: Person) -> tuple[str, str]:
    """An id and a URI of a paper or a passage; now and then misspelt, or with another collection."""
    id_ = _any_id(chance, library, person)
    paper = library.papers.get(person.tenant, {}).get(id_)
    name = id_ if chance.random() < 0.6 else f"{id_}/{chance.choice([0, 0, 0, 1, 2])}"
    if chance.random() < 0.2:
        name = chance.choice([f"{name}/-", f"{name}/x", f"../{name}", f"{name}%00", f"{name}/00"])
    collection = paper.collection if paper and chance.random() < 0.8 else chance.choice(["handbook", VAULT])
    return name, f"refdesk://{collection}/{name}"


def _any_id(chance: Random, library: Library, person: Person) -> str:
    """The id of a paper that the person sees or doesn't, of one of another tenant, or of none."""
    of_another = library.papers[chance.choice(list(COLLECTIONS))]
    kinds = [*[library.visible[person]] * 5, library.papers.get(person.tenant), of_another, None]
    return chance.choice(list(chance.choice(kinds) or [random_id(chance)]))


def _complete(chance: Random, library: Library, person: Person) -> Json:
    """The beginning of the id, the title or the path of a paper of the tenant, in some case."""
    papers = [*library.papers.get(person.tenant, {}).values()]
    if not papers:
        return {"value": "x"}
    paper = chance.choice(papers)
    name = chance.choice([paper.id, paper.title, paper.path, "%", ""])
    typed = name[: chance.randint(1, len(name) + 1)]
    return {"value": chance.choice([typed, typed.upper()])} | (
        {"collection": paper.collection} if chance.random() < 0.3 else {}
    )


def _nothing(_chance: Random, _library: Library, _person: Person) -> Json:
    return {}


_ASKING = {
    "get_source": _get_source,
    "listing": _listing,
    "resources/read": _read,
    "resources/list": _nothing,
    "tools/list": _nothing,
    "completion/complete": _complete,
}

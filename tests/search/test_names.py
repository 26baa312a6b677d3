"""What a document and its sections may be called, as the asker sees them; nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from rag.answers import SearchRequest
from rag.corpus import Access, Heading, Principal, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.agents import tool_functions
from rag.search.desk import Desk
from rag.search.names import NEAR, QUOTED_CHARS, resolve_names, unknown_names_note
from rag.search.source_window import headings_named, section_span
from rag.search.view import IS_PATH
from rag.text.plain_text import Span
from rag.uris import NOT_FOUND, names_file
from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
FOR_ANN = Access("restricted", frozenset({"user:ann"}))


async def _put(shelf: Shelf, path: str, title: str, **details: Any) -> Source:  # noqa: ANN401
    metadata = {"path": path} | details.pop("metadata", {})
    uri = f"file:///srv/My%20files/{path}"
    return await shelf.put(uri, "pendulum", "clock", title=title, uri=uri, metadata=metadata, **details)


@pytest.fixture
async def rules(shelf: Shelf) -> Source:
    await _put(shelf, "leave/sick.md", "Sick leave")
    await _put(shelf, "leave.md", "Leave")
    url = "https://wiki.example/r%C3%A8gles"
    names = {"aliases": "House rules, Huisregels"}
    return await _put(
        shelf, "hr/Rules.md", "The rules [2024]", collection="handbook", url=url, metadata=names
    )


NAMES = [
    "{id}",
    " {id}\n",
    "[{id}]",
    " [ {id} ] ",
    "refdesk://handbook/{id}",
    "[refdesk://handbook/{id}]",
    "[{id}].",  # and as models copy it
    "`{id}`,",
    "**[{id}]**",
    "\u3010{id}\u3011",
    "[The rules]({id})",
    "id: {id}",
    "handbook/{id}",
    "handbook/hr/Rules.md",
    "refdesk://handbook/hr/Rules.md",
    "refdesk://handbook/hr%2F%52ules.md",
    "The rules [2024] › Leave [{id}]",
    "http://127.0.0.1:8300/passages/{id}#cited",
    "Handbook/HR/rules.md",
    "hr/Rules.md",
    " hr//rules.md ",
    "The rules [2024]",
    "the RULES  [2024] ",
    "file:///srv/My%20files/hr/Rules.md",
    "/srv/My files/hr/Rules.md",
    "https://wiki.example/r%C3%A8gles",
    "https://wiki.example/règles",
    "https://wiki.example/r%C3%A8gles#sick-leave",
    "rules.md",
    "Rules",
    "hr/Rules",
    "handbook/hr/Rules",
    "[[Rules]]",
    "![[hr/rules#Sick leave|the rules]]",
    "House rules",
    "[[huisregels]]",
    "./hr/Rules.md",
    "../../hr/Rules.md#sick-leave",
    "hr/../hr/./R%75les.md#sick-leave",
    "handbook/hr/Rules.md#2",
    "hr\\Rules.md",
    "ｈｒ/Ｒｕｌｅｓ.md",
    "The rules ［２０２４］",
    "hr/Rules.md:39",
    "handbook/hr/Rules.md:39:5",
    "Rules.md#L39-L53",
    "hr/Rules.md, lines 39-53",
    "/srv/My files/hr/Rules.md:39",
    "https://wiki.example/règles#L3",
    "The rules (2024) › Leave, p. 4",
    "The rules (2024), pp. 4-5",
    "the rules (2024) (hr) › … › Leave",
    "The rules (2024) (handbook/hr/Rules.md) › Leave",
    "{id}#sick-leave",
]


async def test_what_has_the_words_of_an_unknown_name_in_a_name_of_its_own_is_listed(shelf: Shelf) -> None:
    pep = await _put(shelf, "peps/pep-0612.rst", "PEP 612 \u2013 Parameter Specification Variables")
    await _put(shelf, "peps/pep-6120.rst", "PEP 6120 \u2013 Other things")
    hidden = await _put(shelf, "draft.md", "PEP 612 draft", access=FOR_ANN)
    desk = shelf.desk()
    for_bob = f"{pep.id} (documents/peps/pep-0612.rst)"
    for name, principal, listed in [
        ("PEP 612", BOB, for_bob),
        ("pep-612", BOB, for_bob),
        ("specification variables", BOB, for_bob),
        ("PEP 612", ANN, f"{hidden.id} (documents/draft.md), {for_bob}"),
        ("PEP 613", BOB, ""),
        ("draft of 612", BOB, ""),
        ("\u2013", BOB, ""),
    ]:
        with pytest.raises(NotFoundError) as error:
            await desk.resolve_name(principal, name)
        assert str(error.value) == NOT_FOUND + (NEAR.format(listed) if listed else ""), name


@pytest.mark.slow
async def test_each_name_of_a_document_means_it(shelf: Shelf, rules: Source) -> None:
    desk = shelf.desk()
    for name in NAMES:
        for id_ in (rules.id, f"{rules.id}/1", f"{rules.id}/0-1") if "{id}" in name else (rules.id,):
            assert await desk.resolve_name(ANN, name.format(id=id_)) == id_, name
            assert await desk.resolve_name(ANN, name.format(id=id_.upper())) == id_, name
        called = name.format(id=rules.id)
        narrowed = await desk.search(ANN, SearchRequest("pendulum", sources=(called,)))
        assert ({hit.source.id for hit in narrowed.hits}, narrowed.notes) == ({rules.id}, ()), name
    for name in NAMES[::5]:  # wherever else an id is taken, the same function takes it
        called = name.format(id=rules.id)
        without = await desk.search(ANN, SearchRequest("pendulum", exclude_sources=(called,)))
        assert {hit.source.title for hit in without.hits} == {"Sick leave", "Leave"}, name
        related = await desk.search(ANN, SearchRequest(related=called))
        assert rules.id not in {hit.source.id for hit in related.hits} != set(), name


NO_NAMES = [
    "refdesk://documents/{id}",  # the id is right, the collection is not
    "{id}/-1",
    "Rules {id}",
    "({id}/)x",
    "The rules",
    "ules.md",
    "old/rules.md",
    "old/rules",
    "[Rules]",
    "House",
    "The rules [2024] #1",
    "The rules › Leave",
    "The rules (2024) (it) › Leave",
    "The rules (2024) › Leave [aaaaaaaaaaaaaaaaaaaaaaaa/1]",
    "hr",
    "/srv/My%20files/hr/Rules.md",
    "/srv/My files/hr",
    "hr:39",
    "https://wiki.example:39",
    "file:///srv/My%20files/",
    "https://wiki.example/r%C3%A8gles?x",
    "",
    " ",
    "*",
    "%",
]


PAGE = f"https://desk.example/passages/{'a' * 16}"


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("piece", ["#", " › ", ", p. ", "[[", "[[a", "../", "a", ":1", f":{'a' * 16}", PAGE])
async def test_a_long_name_is_looked_up_in_linear_time(piece: str) -> None:
    """A request can bring a hundred, each as long as the request may be."""
    names = [f"{piece * 30_000}{end}" for end in ("", "]", "›", " x")]
    assert await resolve_names([], names) == {}


@pytest.mark.slow
async def test_what_is_only_near_a_name_means_nothing(shelf: Shelf, rules: Source) -> None:
    desk = shelf.desk()
    meant = []
    for name in NO_NAMES:
        with suppress(NotFoundError):
            meant.append((name, await desk.resolve_name(ANN, name.format(id=rules.id))))
    assert meant == []


@pytest.mark.slow
async def test_a_search_for_a_path_says_which_document_has_it(shelf: Shelf, rules: Source) -> None:
    async def notes(principal: Principal, query: str) -> tuple[str, ...]:
        return (await shelf.desk().search(principal, SearchRequest(query))).notes

    hidden = await _put(shelf, "hr/pay.md", "Pay", access=FOR_ANN)
    await _put(shelf, "old/pay.md", "Old pay", access=FOR_ANN)
    for folder in ("a", "b"):
        await _put(shelf, f"{folder}/plan.md", "Plan")
    await _put(shelf, "c/list.md", "List", access=FOR_ANN)
    listed = await _put(shelf, "d/list.md", "List")
    for query, id_ in (
        ("hr/Rules.md", rules.id),
        ("handbook/hr/rules.md", rules.id),
        ("hr/pay.md", hidden.id),
        ("rules.md", rules.id),
    ):
        assert IS_PATH.format(query, id_) in await notes(ANN, query)
    for query in ("hr/pay.md", "pay.md"):
        assert not [note for note in await notes(BOB, query) if hidden.id in note]
    assert IS_PATH.format("list.md", listed.id) in await notes(BOB, "list.md")
    names_a_document = IS_PATH.split("{}")[1]
    for query in ("plan.md", "list.md", "ules.md", "is hr/Rules.md there?", "Leave"):
        assert not [note for note in await notes(ANN, query) if names_a_document in note], query


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("what is in parts.csv?", True),
        ('"PARTS.csv"', True),
        ("see My Sheets/parts.csv, please", True),
        ("./my sheets/parts.csv", True),
        ("desk/my sheets/parts.csv#top", True),
        ("sheets/parts.csv", False),
        ("old/parts.csv", False),
        ("spare-parts.csv", False),
        ("parts.csv.bak", False),
        ("parts.csvs", False),
        ("parts", False),
    ],
)
def test_a_text_names_a_file_by_its_path_or_the_end_of_it(text: str, names: bool) -> None:  # noqa: FBT001 cases
    assert names_file(text, "desk", "My Sheets/parts.csv") is names


def test_what_does_not_end_like_a_file_is_no_name_of_one() -> None:
    assert not names_file("the release 3.5", "desk", "releases/3.5")
    assert not names_file("the desk", "desk", "")


@pytest.mark.slow
async def test_a_path_goes_before_a_title_and_a_folder_too(shelf: Shelf, rules: Source) -> None:
    await _put(shelf, "other.md", "leave/sick.md")
    desk = shelf.desk()
    sick = await desk.resolve_name(ANN, "leave/sick.md")
    assert (await desk.extract(ANN, sick, max_chars=9)).source.title == "Sick leave"
    _, get_source = tool_functions(desk, ANN)
    assert '"path":"documents/leave/"' in await get_source("leave")  # not the document "Leave"
    assert f'"id":"{rules.id}"' in await get_source("the rules [2024]")


@pytest.mark.slow
async def test_lines_behind_a_name_are_opened(shelf: Shelf) -> None:
    server = await _put(shelf, "go/server.go", "server.go")
    await _put(shelf, "12.md", "Meeting 12:30")
    for folder in ("a", "b"):
        await _put(shelf, f"{folder}/12.md", "Meeting 12")
    _, get_source = tool_functions(shelf.desk(), ANN)

    async def opened(**arguments: Any) -> str:  # noqa: ANN401 a tool's
        return str(json.loads(await get_source(**arguments))["lines"])

    for lines in ("2-3", "L2-L3", "2,3", [2, 3], "[2, 3]"):
        assert await opened(id="go/server.go", lines=lines) == "2-3", lines
    for name in ("go/server.go:2-3", "server.go#L2-L3", "documents/go/server.go, lines 2-3"):
        assert await opened(id=name) == "2-3", name
        assert await opened(id=name, lines=1) == "1-1", name
    assert await opened(id="go/server.go:2:7") == "2-2"
    assert await opened(id=f"{server.id}:2") == "2-2"  # its passage 2 would be "#2" or "/2"
    assert await opened(id="Meeting 12:30") == "1-3"
    with pytest.raises(InvalidRequestError, match="lines must be from 1 to 3"):
        await opened(id="go/server.go:39")


@pytest.mark.slow
async def test_a_name_of_several_documents_lists_those_that_the_asker_can_read(shelf: Shelf) -> None:
    mine = await _put(shelf, "a/plan.md", "The plan", access=FOR_ANN)
    first, second = [await _put(shelf, f"{folder}/plan.md", "The plan") for folder in ("b", "c")]
    desk = shelf.desk()
    for name in ("The plan", "the plan", "plan.md", "./plan.md#top", "The plan › Goals, p. 2"):
        with pytest.raises(InvalidRequestError) as error:
            await desk.resolve_name(BOB, name)
        assert all(f"{source.id} (documents/{source.name})" in str(error.value) for source in (first, second))
        assert mine.id not in str(error.value)
        with pytest.raises(InvalidRequestError, match=mine.id):
            await desk.resolve_name(ANN, name)
        with pytest.raises(InvalidRequestError, match=first.id):
            await desk.search(BOB, SearchRequest("pendulum", sources=(name,)))
    assert await desk.resolve_name(BOB, "The plan (c) › Goals") == second.id


@pytest.mark.slow
async def test_a_path_or_title_goes_before_the_end_of_a_path(shelf: Shelf) -> None:
    top = await _put(shelf, "plan.md", "Plan")
    below = await _put(shelf, "a/plan.md", "The plan")
    titled = await _put(shelf, "b/notes.md", "notes.txt")
    await _put(shelf, "c/notes.txt", "Notes")
    without_path = await shelf.put("x", "pendulum", title="TCP/IP")
    desk = shelf.desk()
    ids = [top.id, below.id, titled.id, without_path.id]
    assert [
        await desk.resolve_name(ANN, name) for name in ("plan.md", "a/plan.md", "notes.txt", "TCP/IP")
    ] == ids
    with pytest.raises(NotFoundError):
        await desk.resolve_name(ANN, "IP")


async def test_a_title_that_only_hidden_documents_share_is_unique(shelf: Shelf) -> None:
    visible = await _put(shelf, "a.md", "The plan")
    await _put(shelf, "b.md", "The plan", access=FOR_ANN)
    assert await shelf.desk().resolve_name(BOB, "The plan") == visible.id


async def _told(desk: Desk, name: str) -> list[str]:
    """All that bob is told of a name, wherever it may stand."""
    messages = []
    for request in (
        SearchRequest("pendulum", sources=(name,)),
        SearchRequest("clock", exclude_sources=(name,)),
    ):
        answer = await desk.search(BOB, request)
        messages += [*answer.notes, *(hit.source.title for hit in answer.hits)]
    search, get_source = tool_functions(desk, BOB)
    for call in (search("", related=name), get_source(name), get_source(f"{name} ")):
        with pytest.raises(NotFoundError) as error:
            await call
        messages.append(str(error.value))
    return messages


@pytest.mark.slow
async def test_what_is_hidden_deleted_or_never_was_is_told_in_the_same_words(shelf: Shelf) -> None:
    await _put(shelf, "open.md", "Open")
    names = ["pay/ann.md", "documents/pay/ann.md", "Salaries", "/srv/My files/pay/ann.md", "ann.md"]
    names += ["./pay/ann.md#top", "Salaries › Pay", "Salaries (pay), p. 1"]
    desk = shelf.desk()
    never = [await _told(desk, name) for name in names]
    hidden = await _put(shelf, "pay/ann.md", "Salaries", access=FOR_ANN)
    assert [await shelf.desk().resolve_name(ANN, name) for name in names] == [hidden.id] * len(names)
    desk = shelf.desk()
    assert [await _told(desk, name) for name in names] == never
    for name in (" [{}/0]", "[{}/99]", "{}#top"):
        strangers = [name.format(id_) for id_ in (hidden.id, "a" * 16)]
        of_it, of_none = [await _told(desk, stranger) for stranger in strangers]
        assert of_it == [message.replace("a" * 16, hidden.id) for message in of_none]


def test_a_name_in_a_note_is_short_and_on_one_line() -> None:
    note = unknown_names_note("sources", ["a\nb" + "x" * 500, *map(str, range(9))])
    assert "\n" not in note
    assert "x" * QUOTED_CHARS not in note
    assert "and 5 more" in note


OUTLINE = [
    Heading("Handbook", 1, 0),
    Heading("Leave", 2, 100),
    Heading("Parental leave", 3, 150),
    Heading("Example", 4, 180),
    Heading("Sick leave", 3, 200),
    Heading("Example", 4, 250),
    Heading("Travel", 2, 300),
    Heading("Cafe\u0301 & C# ![x](y)", 2, 350),
    Heading("Examples of C#", 2, 400),
]
LENGTH = 500


def _found(heading: str) -> list[int]:
    return [heading.start for heading in headings_named("The handbook", OUTLINE, heading)]


@pytest.mark.parametrize(
    ("heading", "starts"),
    [
        ("Leave", [100]),  # exactly, although others contain it
        ("leave", [100]),
        ("  TRAVEL ", [300]),
        ("## Travel", [300]),
        ("Parental", [150]),
        ("sick", [200]),
        ("Example", [180, 250]),
        ("Leave > Parental leave", [150]),
        ("Handbook › Leave › Sick leave › Example", [250]),
        ("The handbook › Sick leave › Example", [250]),
        ("parental leave > example", [180]),
        ("Caf\u00e9 & C# ! [x](y)", [350]),  # as the outline shows it
        ("Caf\u00e9", [350]),
        ("of c#", [400]),
        ("Ｔｒａｖｅｌ", [300]),
    ],
)
def test_a_heading_is_found_by_its_words_its_beginning_or_its_path(heading: str, starts: list[int]) -> None:
    assert _found(heading) == starts


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("exam", "Several headings match section: Example; Examples of C#."),
        ("Parentl leav", "No heading matches section. Near ones: Parental leave; Leave; Sick leave."),
        ("sick pay", "No heading matches section. Near ones: Sick leave."),
        ("maternity", "No heading matches section. The first ones: Handbook; Leave; "),
        ("the a of", "No heading matches section. The first ones: Handbook; "),
        ("zzz", "No heading matches section. The first ones: Handbook; Leave; Parental leave; "),
        ("Travel > Parental leave", "No heading matches section. Near ones: Parental leave"),
        ("\u202e", "No heading matches section. The first ones: Handbook"),
        ("#", "Several headings match section: Café & C# "),
    ],
)
def test_what_is_no_heading_or_several_is_told_which_there_are(heading: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        _found(heading)


def _named(titles: str, asked: str) -> list[str]:
    """The headings that a name means, of some with a tab for each level."""
    outline = [
        Heading(title.strip("\t"), 1 + title.count("\t"), at) for at, title in enumerate(titles.split("\n"))
    ]
    return [f"{heading.title}@{heading.start}" for heading in headings_named("Title", outline, asked)]


STATUTE = "§ 1 Beginn\n§ 1a Frist\n§ 10 Ende\n§ 62 Form\n§ 622 Notice"
CONTRACT = (
    "1. Scope\n4. Term\n\t4.1 Start\n\t4.2 Termination\n\t4.20 Costs\n10. Law\nArticle 6 Data\nSchedule 3"
)


@pytest.mark.parametrize(
    ("titles", "asked", "heading"),
    [
        (STATUTE, "§ 1", "§ 1 Beginn@0"),
        (STATUTE, "§1", "§ 1 Beginn@0"),
        (STATUTE, "§ 1a", "§ 1a Frist@1"),
        (STATUTE, "§ 62 BGB", "§ 62 Form@3"),
        (STATUTE, "Section 622 BGB", "§ 622 Notice@4"),
        (STATUTE, "§ 622 Abs. 2", "§ 622 Notice@4"),
        (CONTRACT, "Clause 4.2", "4.2 Termination@3"),
        (CONTRACT, "clause 4.2(b)(ii)", "4.2 Termination@3"),
        (CONTRACT, "4.2", "4.2 Termination@3"),
        (CONTRACT, "1", "1. Scope@0"),
        (CONTRACT, "Section 10", "10. Law@5"),
        (CONTRACT, "Art. 6(1)", "Article 6 Data@6"),
        ("第１章　総則\n第２章　休暇", "第2章", "第２章 休暇@1"),
    ],
)
def test_a_section_is_found_by_its_number(titles: str, asked: str, heading: str) -> None:
    assert [name.replace("　", " ") for name in _named(titles, asked)] == [heading]


NOVEL = "CHAPTER I. The Period\nCHAPTER II. The Mail\nCHAPTER III. The Night Shadows\nCHAPTER THE FOURTH"
ROMAN = "Erstes Kapitel\nZweites Kapitel\nDrittes Kapitel. Von der Reise\nDreizehntes Kapitel"
PLAY = "ACT I\n\tSCENE I\n\tSCENE IV\nACT III\n\tSCENE I\n\tSCENE IV. The closet"


@pytest.mark.parametrize(
    ("titles", "asked", "heading"),
    [
        (NOVEL, "Chapter 3", "CHAPTER III. The Night Shadows@2"),
        (NOVEL, "third chapter", "CHAPTER III. The Night Shadows@2"),
        (NOVEL, "chapter two", "CHAPTER II. The Mail@1"),
        (NOVEL, "Chapter IV", "CHAPTER THE FOURTH@3"),
        (ROMAN, "Kapitel 3", "Drittes Kapitel. Von der Reise@2"),
        (ROMAN, "3. Kapitel", "Drittes Kapitel. Von der Reise@2"),
        ("Chapitre premier\nChapitre II", "chapitre 1", "Chapitre premier@0"),
        ("I\nII\nIII\nIV", "Chapter 3", "III@2"),
        ("Annex I Forms\nAnnex II Services\nAnnex III", "annex 2", "Annex II Services@1"),
        ("Anhang 1\nAnhang 2 Preise", "Anhang II", "Anhang 2 Preise@1"),
        (PLAY, "act 3", "ACT III@3"),
        (PLAY, "Act III, Scene 4", "SCENE IV. The closet@5"),
        (PLAY, "act 3 > scene 4", "SCENE IV. The closet@5"),
    ],
)
def test_a_part_of_a_book_is_found_by_its_number_in_any_writing(
    titles: str, asked: str, heading: str
) -> None:
    assert _named(titles, asked) == [heading]


ITALIAN = "Art. 3 - Soci\nArt. 3-bis - Quota\nArt. 7\nArt. 7-bis\nArt. 7-ter\nArticolo 8 (Iscrizioni)"
PORTUGUESE = (
    "Artigo 4.º Órgãos\nArtigo 5.º Quotas\nArtigo 5.º-A Isenções\nArtículo 12\nArtículo 12 bis. Bajas"
)
SWEDISH = "3 kap. Torg\n\t5 §\n\t5 a §\n4 kap. Hundar\n\t5 § Koppel\n\t6 §"
GERMAN = "§ 5 Ruhezeit\n§ 5a Urnen\n§ 6 a Bäume\n§ 15 Kosten\n§ 7 bis § 9 (weggefallen)"


@pytest.mark.parametrize(
    ("titles", "asked", "heading"),
    [
        (GERMAN, "§ 5 a", "§ 5a Urnen@1"),
        (GERMAN, "§5a", "§ 5a Urnen@1"),
        (GERMAN, "§ 5", "§ 5 Ruhezeit@0"),
        (GERMAN, "§ 6a BestattG", "§ 6 a Bäume@2"),
        (GERMAN, "§ 7", "§ 7 bis § 9 (weggefallen)@4"),
        (ITALIAN, "Art. 3", "Art. 3 - Soci@0"),
        (ITALIAN, "art. 3 bis", "Art. 3-bis - Quota@1"),
        (ITALIAN, "articolo 3bis, comma 2", "Art. 3-bis - Quota@1"),
        (ITALIAN, "Art. 7", "Art. 7@2"),
        (ITALIAN, "articolo 7-bis", "Art. 7-bis@3"),
        (ITALIAN, "Art. 7 ter", "Art. 7-ter@4"),
        (ITALIAN, "Art. 8", "Articolo 8 (Iscrizioni)@5"),
        (PORTUGUESE, "artigo 5", "Artigo 5.º Quotas@1"),
        (PORTUGUESE, "art. 5.º", "Artigo 5.º Quotas@1"),
        (PORTUGUESE, "artigo 5.º-A", "Artigo 5.º-A Isenções@2"),
        (PORTUGUESE, "Artigo 5-A", "Artigo 5.º-A Isenções@2"),
        (PORTUGUESE, "Artículo 12", "Artículo 12@3"),
        (PORTUGUESE, "art. 12 bis", "Artículo 12 bis. Bajas@4"),
        (SWEDISH, "5a §", "5 a §@2"),
        (SWEDISH, "3 kap. 5 a §", "5 a §@2"),
        (SWEDISH, "4 kap. 5 §", "5 § Koppel@4"),
        (SWEDISH, "4 kap. > 5 §", "5 § Koppel@4"),
        ("Article 1er Objet\nArticle 2\nArticle 2 ter", "article 1", "Article 1er Objet@0"),
        ("Article 1er Objet\nArticle 2\nArticle 2 ter", "Article 2ter", "Article 2 ter@2"),
    ],
)
def test_a_section_that_was_put_in_between_is_another_one(titles: str, asked: str, heading: str) -> None:
    assert _named(titles, asked) == [heading]


@pytest.mark.parametrize("asked", ["§ 2", "§ 6", "Clause 4.3", "Schedule 1", "Article 4", "Table 10", "5"])
def test_a_number_is_no_part_of_another_one(asked: str) -> None:
    with pytest.raises(InvalidRequestError, match="No heading matches section"):
        _named(f"{STATUTE}\n{CONTRACT}".replace("4. Term", "Rest"), asked)


CODE = """\
class InvoiceService(Base)
\tfetch_invoice
\tclass Inner
\t\tclose
\tclose
type Handler struct
(h *Handler) ServeHTTP
(c *Cart[T]) Close
Cart::add"""


@pytest.mark.parametrize(
    ("asked", "heading"),
    [
        ("InvoiceService.fetch_invoice", "fetch_invoice@1"),
        ("def fetch_invoice", "fetch_invoice@1"),
        ("async def fetch_invoice(self, id: int) -> Invoice:", "fetch_invoice@1"),
        ("fetch_invoice()", "fetch_invoice@1"),
        ("class InvoiceService", "class InvoiceService(Base)@0"),
        ("InvoiceService.close", "close@4"),
        ("class InvoiceService(Base) > close", "close@4"),
        ("InvoiceService.Inner.close", "close@3"),
        ("Inner#close", "close@3"),
        ("Handler.ServeHTTP", "(h *Handler) ServeHTTP@6"),
        ("(*Handler).ServeHTTP", "(h *Handler) ServeHTTP@6"),
        ("func (h *Handler) ServeHTTP(w http.ResponseWriter)", "(h *Handler) ServeHTTP@6"),
        ("Cart.Close", "(c *Cart[T]) Close@7"),
        ("Cart.add", "Cart::add@8"),
    ],
)
def test_a_definition_is_found_as_code_names_it(asked: str, heading: str) -> None:
    assert _named(CODE, asked) == [heading]


def test_a_path_that_skips_headings_comes_after_an_exact_chain() -> None:
    assert _named("A\n\tB\n\t\tC\n\tC", "A > C") == ["C@3"]
    assert _named("A\n\tB\n\t\tC\n\tD", "A > C") == ["C@2"]


def test_what_only_begins_like_a_definition_is_none() -> None:
    with pytest.raises(InvalidRequestError, match="No heading matches section"):
        _named("Leave policy\nType of leave", "leave days")
    with pytest.raises(InvalidRequestError, match="No heading matches section"):
        _named("Leave policy\nType of leave", "class of leave")


def test_a_source_without_headings_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="has no headings"):
        headings_named("title", [], "Leave")


def test_an_error_names_a_few_headings_without_what_could_load_something() -> None:
    outline = [Heading(f"![{n}](x) <img src={n}>", 1, n) for n in range(3000)]
    with pytest.raises(InvalidRequestError) as caught:
        headings_named("title", outline, "zzz")
    assert str(caught.value).endswith("and 2992 more.")
    assert "![" not in str(caught.value)
    assert "<img" not in str(caught.value)


def test_a_section_includes_its_subsections_and_ends_at_its_own_level() -> None:
    assert section_span("", OUTLINE, LENGTH, "Leave") == (Span(100, 300), ())
    assert section_span("", OUTLINE, LENGTH, "Handbook") == (Span(0, LENGTH), ())
    assert section_span("", OUTLINE, LENGTH, "Parental leave") == (Span(150, 200), ())


def test_of_several_sections_the_first_is_meant_or_the_one_with_the_start() -> None:
    span, (note,) = section_span("", OUTLINE, LENGTH, "Example")
    assert span == Span(180, 200)
    assert note == "Other sections have this heading, at 250: add start to open one of them."
    assert section_span("", OUTLINE, LENGTH, "Example", 250)[0] == Span(250, 300)
    assert section_span("", OUTLINE, LENGTH, "Example", 299)[0] == Span(250, 300)
    with pytest.raises(InvalidRequestError, match="start must be from 180 to 199 in this section"):
        section_span("", OUTLINE, LENGTH, "Example", 240)


def test_the_sections_of_one_name_are_found_in_linear_time(
    lines_run: Callable[[Callable[[], object]], int],
) -> None:
    def lines_of(releases: int) -> int:
        pairs = [(Heading("Release", 1, at), Heading("Fixed", 2, at + 1)) for at in range(0, releases * 2, 2)]
        return lines_run(lambda: section_span("", [*chain(*pairs)], releases * 2, "Fixed"))

    assert lines_of(400) < 3 * lines_of(200)


def test_a_heading_without_a_title_ends_a_section_and_has_no_name() -> None:
    outline = [Heading("deploy", 1, 0), Heading("", 1, 50), Heading("undo", 1, 70)]
    assert section_span("", outline, 99, "deploy")[0] == Span(0, 50)
    with pytest.raises(InvalidRequestError, match="deploy; undo"):
        section_span("", outline, 99, "zzz")


def test_headings_at_one_position_share_a_section() -> None:
    outline = [Heading("One", 1, 0), Heading("Two", 1, 50), Heading("Three", 1, 50), Heading("Four", 1, 90)]
    assert (
        section_span("", outline, 99, "Two")[0] == section_span("", outline, 99, "Three")[0] == Span(50, 90)
    )

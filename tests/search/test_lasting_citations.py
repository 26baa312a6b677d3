"""A citation with a revision: what became of its passage, for those alone who may read the document today."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from rag.answers import Extract, Part, SearchRequest
from rag.corpus import Access, Binding, Principal, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.search import source_window
from rag.search.agents import tool_functions
from rag.search.answer_citations import CitedAnswer, check_answer
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.write.change_collection import change_collection
from rag.store.write.make_collection import tag_collection
from rag.text import revisions
from rag.text.revisions import MOST_CITED
from rag.uris import NO_REVISION
from tests.search.conftest import Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANN, BOB = (Principal("default", user) for user in ("ann", "bob"))
FOR_ANN = Access("restricted", frozenset({"user:ann"}))
FOR_BOTH = Access("restricted", frozenset({"user:ann", "user:bob"}))
PARAGRAPHS = [f"Rule {number} is that everybody waits {number} days." for number in range(5)]
UNKNOWN = "aaaaaaaa"


async def _cited(shelf: Shelf, id_: str, asker: Principal = ANN) -> str:
    """The revision of a source, as a hit has it."""
    hits = (await shelf.desk().search(asker, "rule waits days", sources=(id_,), mode="sparse")).hits
    revision = hits[0].source.revision
    assert revision
    return revision


async def _opened(shelf: Shelf, id_: str, asker: Principal = ANN) -> Extract:
    return await shelf.desk().extract(asker, id_, max_chars=10_000, part=Part(around=0))


@pytest.fixture
async def rules(shelf: Shelf) -> Source:
    return await shelf.put("rules", *PARAGRAPHS)


async def test_a_passage_is_opened_where_it_stands_now_and_the_note_says_so(
    shelf: Shelf, rules: Source
) -> None:
    revision = await _cited(shelf, rules.id)
    for number, after, note in (
        (1, PARAGRAPHS, source_window.STANDS),
        (1, ["New.", "Newer.", *PARAGRAPHS], source_window.STANDS_ELSEWHERE.format(f"{rules.id}/3")),
        (1, [*PARAGRAPHS[:1], *PARAGRAPHS[2:]], source_window.GONE.format(f"{rules.id}/0")),
        (4, [*PARAGRAPHS[:4], "Rule 4 is void."], source_window.CHANGED.format(f"{rules.id}/4")),
        (1, PARAGRAPHS, source_window.STANDS),  # as it was
    ):
        await shelf.put("rules", *after)
        extract = await _opened(shelf, f"{rules.id}@{revision}/{number}")
        assert extract.notes == (note,)
        assert extract.standing
        if extract.standing.verdict == "stands":
            assert extract.text == PARAGRAPHS[number]


async def test_each_revision_is_found_again_until_a_document_was_edited_more_often_than_is_kept(
    shelf: Shelf, rules: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "MAX_FORMER", 4)
    cited = []
    for edit in range(6):
        texts = (*(f"Edit {number}." for number in range(edit)), *PARAGRAPHS)
        await shelf.small.put(shelf.data, "rules", *texts)  # of a patched writer, so in no snapshot
        cited.append(await _cited(shelf, rules.id))
    assert len({*cited}) == 6
    for edit, revision in enumerate(cited[1:], 1):
        extract = await _opened(shelf, f"{rules.id}@{revision}/{edit + 2}")
        assert (extract.text, extract.chunks[0].seq) == (PARAGRAPHS[2], 7)
    with pytest.raises(InvalidRequestError) as error:
        await _opened(shelf, f"{rules.id}@{cited[0]}/2")
    assert str(error.value) == source_window.UNKNOWN_REVISION.format(cited[0], rules.id)


async def test_what_no_revision_has_is_not_guessed(shelf: Shelf, rules: Source) -> None:
    revision = await _cited(shelf, rules.id)
    for seqs in ("5", "4-5", "99"):
        with pytest.raises(NotFoundError, match=source_window.TOO_FEW.format(f"{rules.id}@{revision}", 4)):
            await _opened(shelf, f"{rules.id}@{revision}/{seqs}")
    assert (await _opened(shelf, f"{rules.id}@{revision}/3-4")).text == "\n\n".join(PARAGRAPHS[3:])
    with pytest.raises(InvalidRequestError, match="not known"):
        await _opened(shelf, f"{rules.id}@{UNKNOWN}/3")


async def test_a_long_range_of_a_former_revision_is_refused_because_each_passage_takes_a_search(
    shelf: Shelf,
) -> None:
    many = [f"Rule {number}." for number in range(MOST_CITED + 2)]
    source = await shelf.put("rules", *many)
    revision = await _cited(shelf, source.id)
    assert len((await _opened(shelf, f"{source.id}@{revision}/0-{MOST_CITED}")).chunks) == MOST_CITED + 1
    await shelf.put("rules", "New.")
    with pytest.raises(InvalidRequestError) as error:
        await _opened(shelf, f"{source.id}@{revision}/0-{MOST_CITED}")
    assert str(error.value) == source_window.TOO_MANY.format(MOST_CITED)
    assert (await _opened(shelf, f"{source.id}@{revision}/1-{MOST_CITED}")).standing


async def test_a_document_as_it_was_cited_opens_as_it_is_with_a_word_on_that(
    shelf: Shelf, rules: Source
) -> None:
    id_ = f"{rules.id}@{await _cited(shelf, rules.id)}"
    whole = await shelf.desk().extract(ANN, id_, max_chars=9_999)
    await shelf.put("rules", "New.", *PARAGRAPHS)
    edited = await shelf.desk().extract(ANN, id_, max_chars=9_999)
    assert (whole.notes, edited.notes) == ((), (source_window.DOCUMENT_CHANGED,))
    with pytest.raises(InvalidRequestError, match="not known"):
        await shelf.desk().extract(ANN, f"{rules.id}@{UNKNOWN}", max_chars=9)


async def test_a_revision_is_refused_where_documents_are_searched(shelf: Shelf, rules: Source) -> None:
    id_ = f"{rules.id}@{await _cited(shelf, rules.id)}"
    desk = shelf.desk()
    for name in (id_, f"{id_}/1", f"[{id_}/1]", f"refdesk://documents/{id_}/1"):
        requests: list[dict[str, Any]] = [{"sources": [name]}, {"exclude_sources": [name]}, {"related": name}]
        for request in requests:
            with pytest.raises(InvalidRequestError) as error:
                await desk.search(ANN, "rule", **request)
            bare = rules.id if name == id_ else f"{rules.id}/1"
            assert str(error.value) == NO_REVISION.format(bare)
        with pytest.raises(InvalidRequestError) as error:
            await desk.page(ANN, name)
        assert str(error.value) == NO_REVISION.format(bare)
    _, get_source = tool_functions(desk, ANN)
    assert source_window.STANDS in await get_source(f" [{id_}/1] ")
    assert source_window.STANDS in await get_source(f"refdesk://documents/{id_}/1")


async def _told(desk: Desk, asker: Principal, id_: str) -> set[str]:
    """All that somebody is told of a citation, without the id, wherever an id may stand."""
    messages = set()
    search, get_source = tool_functions(desk, asker)
    requests: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: get_source(id_),
        lambda: get_source(id_, around=1),
        lambda: search("rule", sources=[id_]),
        lambda: search("rule", exclude_sources=[id_]),
        lambda: search("rule", related=id_),
        lambda: desk.why_not(asker, SearchRequest("rule"), id_),
    )
    for number, request in enumerate(requests):
        try:
            message = str(await request())
        except (NotFoundError, InvalidRequestError) as error:
            message = f"{type(error)}: {error}"
        messages.add(f"{number} {message.replace(id_.partition('@')[0], '')}")
    checked = await check_answer(desk, asker, f"[{id_}]")
    return messages | {repr(checked).replace(id_.partition("@")[0], "")}


@pytest.mark.parametrize("kind", ["denied", "removed", "bound out", "expired"])
async def test_a_citation_of_what_may_not_be_read_is_answered_as_one_of_nothing(
    shelf: Shelf, rules: Source, kind: str
) -> None:
    revision = await _cited(shelf, rules.id)
    await shelf.put("rules", "New.", *PARAGRAPHS)
    now = await _cited(shelf, rules.id)
    asker = ANN
    if kind == "denied":
        await shelf.put("rules", "New.", *PARAGRAPHS, access=FOR_ANN, set_access=True)
        asker = BOB
    elif kind == "removed":
        async with await shelf.small.writing(shelf.data) as writer:
            await writer.remove([rules.id])
    elif kind == "bound out":
        asker = Principal("default", "ann", bindings=(Binding(collections=("others",)),))
    else:
        metadata = {"expires": "2020-01-01T00:00:00+00:00"}
        await shelf.put("rules", "New.", *PARAGRAPHS, metadata=metadata)
        await _expiring(shelf)
    await shelf.put("other", "Rule 7 of others.", collection="others")
    desk = shelf.desk()
    for of in (revision, now, UNKNOWN):
        for seq in (0, 2, 99):
            hidden = await _told(desk, asker, f"{rules.id}@{of}/{seq}")
            absent = await _told(desk, asker, f"{'a' * 16}@{of}/{seq}")
            assert hidden == absent
    if kind == "denied":
        assert await _told(desk, ANN, f"{rules.id}@{revision}/2") != hidden  # she may read it


async def _expiring(shelf: Shelf) -> None:
    await change_collection(shelf.data, "default", "documents", lambda now: replace(now, expiring=True))


async def test_the_text_as_it_was_cited_is_named_in_a_tag_for_those_who_may_read_both(shelf: Shelf) -> None:
    rules = await shelf.put("rules", *PARAGRAPHS, access=FOR_BOTH)
    revision = await _cited(shelf, rules.id)
    id_ = f"{rules.id}@{revision}/1"
    await shelf.put("others", "Rule 9 is for all.", access=FOR_BOTH)
    await _tag(shelf, "then")
    assert (await _opened(shelf, id_, BOB)).cited_text is None  # it stands
    await shelf.put("rules", "Rule 0 is new.", "Rule 1 is new.")
    for asker in (ANN, BOB):
        extract = await _opened(shelf, id_, asker)
        assert extract.cited_text
        assert extract.notes[-1].endswith(f"[{extract.cited_text}].")
        assert (await _opened(shelf, extract.cited_text, asker)).text == PARAGRAPHS[1]
    await shelf.put("rules", "Rule 0 is new.", "Rule 1 is new.", access=FOR_ANN, set_access=True)
    assert (await _opened(shelf, id_)).cited_text == extract.cited_text
    with pytest.raises(NotFoundError):
        await _opened(shelf, id_, BOB)
    bound = Principal("default", "ann", bindings=(Binding(collections=("documents",)),))
    assert (await _opened(shelf, id_, bound)).cited_text is None


async def test_a_former_text_that_somebody_may_never_have_read_stays_away(shelf: Shelf) -> None:
    await shelf.put("others", "Rule 9 is for all.")
    rules = await shelf.put("rules", *PARAGRAPHS, access=FOR_ANN)
    id_ = f"{rules.id}@{await _cited(shelf, rules.id)}/1"
    await _tag(shelf, "then")
    await shelf.put("rules", "Rule 0 is new.", "Rule 1 is new.", access=FOR_BOTH, set_access=True)
    assert (await _opened(shelf, id_, ANN)).cited_text
    extract = await _opened(shelf, id_, BOB)
    assert extract.standing
    assert (extract.standing.verdict, extract.cited_text, len(extract.notes)) == ("gone", None, 1)


async def test_a_tag_of_another_revision_is_not_named(shelf: Shelf, rules: Source) -> None:
    id_ = f"{rules.id}@{await _cited(shelf, rules.id)}/1"
    await shelf.put("rules", "New.", *PARAGRAPHS)
    await _tag(shelf, "later")
    await shelf.put("rules", "New.")
    extract = await _opened(shelf, id_)
    assert (extract.cited_text, len(extract.notes)) == (None, 1)


async def _tag(shelf: Shelf, name: str) -> None:
    async with await shelf.small.writing(shelf.data) as writer:
        collection = writer.collection
    await tag_collection(shelf.data, collection, name, "")


async def test_a_document_of_an_earlier_version_has_no_revision_until_it_is_ingested_again(
    shelf: Shelf, rules: Source
) -> None:
    async with await shelf.small.writing(shelf.data) as writer:
        rows = await writer.source_rows()
        for row in rows:
            fields = json.loads(row["fields"])
            row["fields"] = json.dumps({name: fields[name] for name in fields.keys() - {schema.REVISION}})
        await writer._update(rows, ("id", "fields"))  # noqa: SLF001 as it was stored then
    search, get_source = tool_functions(shelf.desk(), ANN)
    assert '"revision"' not in await search("rule")
    assert '"revision"' not in await get_source(rules.id)
    with pytest.raises(InvalidRequestError) as error:
        await get_source(f"{rules.id}@{UNKNOWN}/1")
    assert str(error.value) == source_window.NO_REVISION.format(rules.id)
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.examine_again()
    revision = await _cited(shelf, rules.id)
    await shelf.put("rules", "New.", *PARAGRAPHS)
    assert (await _opened(shelf, f"{rules.id}@{revision}/1")).text == PARAGRAPHS[1]


async def test_a_check_says_what_became_of_each_citation(shelf: Shelf, rules: Source) -> None:
    cited = f"{rules.id}@{await _cited(shelf, rules.id)}"
    await _tag(shelf, "then")
    await shelf.put("rules", "New.", PARAGRAPHS[0], "Rule 1 is void.", PARAGRAPHS[2], PARAGRAPHS[4])
    ids = [f"{cited}/{seq}" for seq in (0, 1, 3, 9)] + [f"{rules.id}@{UNKNOWN}/1", cited]
    answer = f'"{PARAGRAPHS[0]}" [{ids[0]}] "{PARAGRAPHS[1]}" [{ids[1]}]' + "".join(
        f" [{id_}]" for id_ in ids[2:]
    )
    checked = await check_answer(shelf.desk(), ANN, answer)
    assert [(citation.id, citation.standing, citation.now) for citation in checked.citations] == [
        (ids[0], "stands", f"{rules.id}/1"),
        (ids[1], "changed", f"{rules.id}/2"),
        (ids[2], "gone", f"{rules.id}/3"),
        (ids[3], None, None),
        (ids[4], "unknown", None),
    ]
    assert [citation.cited_text for citation in checked.citations] == [
        None,
        PARAGRAPHS[1],
        PARAGRAPHS[3],
        None,
        None,
    ]
    assert [quote.verdict for quote in checked.quotes] == ["verbatim", "not found"]
    assert not checked.holds
    for id_ in ids:
        holds = (await check_answer(shelf.desk(), ANN, f"So it is [{id_}].")).holds
        assert holds == (id_ in {ids[0], cited})  # without a number it is no citation


@pytest.mark.parametrize("brackets", ["{}", "[{}]", "refdesk://documents/{}"])
async def test_an_answer_in_json_is_checked_as_one_in_text(
    shelf: Shelf, rules: Source, brackets: str
) -> None:
    def statement(text: str, citations: Iterable[str], *quotes: str) -> dict[str, Any]:
        written = [brackets.format(id_) for id_ in citations]
        return {"text": text, "citations": written, "quotes": [*quotes]}

    async def checked(*statements: dict[str, Any]) -> Any:  # noqa: ANN401 as below
        answer = CitedAnswer.model_validate_json(json.dumps({"statements": statements}))
        return await check_answer(shelf.desk(), ANN, answer)

    lasting = f"{rules.id}@{await _cited(shelf, rules.id)}/2"
    first, good = f"{rules.id}/1", statement("They wait.", [lasting, f"{rules.id}/0-1"], "waits 1 days")
    assert (await checked(good)).grounded
    result = await checked(good, statement(f'They "wait 9 days", see [{first}].', [], "waits 2 days"))
    assert [citation.id for citation in result.citations] == [lasting, f"{rules.id}/0-1", first]
    assert [(quote.text, quote.verdict) for quote in result.quotes] == [
        ("waits 1 days", "verbatim"),
        ("waits 2 days", "elsewhere"),
        ("wait 9 days", "not found"),
    ]
    assert not result.holds
    for wrong in (["nothing"], [f"{rules.id}/99"], [rules.id]):
        assert not (await checked(statement("They wait.", wrong))).holds
    uncited = await checked(good, statement("They hope.", [], "waits"))
    assert (uncited.uncited, uncited.holds, uncited.grounded) == (("They hope.",), True, False)
    assert [quote.verdict for quote in uncited.quotes] == ["verbatim", "unchecked"]


async def test_a_citation_with_a_revision_in_a_document_can_t_pass_for_one_of_the_desk(shelf: Shelf) -> None:
    fake = f"[{'b' * 16}@{UNKNOWN}/1]"
    await shelf.put("liar", f"Rule of waiting, as {fake} says.")
    search, _ = tool_functions(shelf.desk(), ANN)
    context = json.loads(await search("rule", context=True))["context"]
    assert fake not in context.replace(f"\\{fake}", "")
    assert f"\\{fake}" in context

"""Passages that were cited before an edit are found again by their marks, never in other text."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.text import revisions
from rag.text.plain_text import Span
from rag.text.revisions import Edited, Standing, mark, packed, revision_of, unpacked

NAMES = st.integers(0, 40)
CUT = "\n\n"


def _passage(number: int) -> str:
    return f"Rule {number} says that whoever comes waits {number} days."


def _edited(before: list[str], after: list[str], *, joined: set[int] = frozenset()) -> Edited:  # type: ignore[assignment]
    """A text of paragraphs, in which those after the `joined` numbers are in one passage with them."""
    text, spans = CUT.join(after), []
    ends = accumulate(len(paragraph) + len(CUT) for paragraph in after)
    start = 0
    for number, end in enumerate(ends):
        if number not in joined or number == len(after) - 1:
            spans.append(Span(start, end - len(CUT)))
            start = end
    return Edited(text, spans, [mark(passage) for passage in before])


def _shown(edited: Edited, standing: Standing) -> str:
    return edited.text[slice(*standing.span)]


@given(
    st.lists(NAMES, min_size=2, max_size=12, unique=True),
    st.lists(
        st.tuples(st.sampled_from(["insert", "delete", "change", "wrap"]), st.integers(0, 11)), max_size=3
    ),
    st.sets(st.integers(0, 14)),
    st.data(),
)
def test_a_passage_stands_where_its_words_are_and_is_never_taken_for_other_text(
    names: list[int], edits: list[tuple[str, int]], joined: set[int], data: st.DataObject
) -> None:
    before = [_passage(name) for name in names]
    after: list[tuple[int | None, str]] = list(enumerate(before))
    for number, (edit, at) in enumerate(edits):
        place = at % len(after)
        seq, paragraph = after[place]
        match edit:
            case "insert":
                after.insert(place, (None, f"New paragraph {number} of somebody."))
            case "delete" if len(after) > 1:
                del after[place]
            case "change":
                after[place] = None, paragraph.replace("waits", "sleeps")
            case "wrap":
                after[place] = seq, paragraph.replace(" ", "\n", 3)
    edited = _edited(before, [paragraph for _, paragraph in after], joined=joined)
    seq = data.draw(st.integers(0, len(before) - 1))
    standing = edited.standing(range(seq, seq + 1))
    places = [place for place, (of, _) in enumerate(after) if of == seq]
    assert (standing.verdict == "stands") == bool(places)
    if places:
        assert " ".join(_shown(edited, standing).split()) == before[seq]
    touched = [edited.spans[number] for number in standing.seqs]
    if standing.verdict != "gone":
        assert touched[0].start <= standing.span.start
        assert standing.span.end <= touched[-1].end


@pytest.mark.parametrize(
    ("after", "seqs", "verdict", "now"),
    [
        ([0, 1, 2, 3], (1, 1), "stands", (1, 1)),
        ([9, 8, 0, 1, 2, 3], (1, 1), "stands", (3, 3)),
        ([9, 8, 0, 1, 2, 3], (1, 2), "stands", (3, 4)),
        ([0, 2, 3], (1, 1), "gone", (0, 0)),
        ([2, 3], (0, 1), "gone", (0, 0)),
        ([0, 1, 2], (3, 3), "gone", (2, 2)),
        ([0, 9, 2, 3], (1, 1), "changed", (1, 1)),
        ([0, 9, 8, 2, 3], (1, 1), "changed", (1, 2)),
        ([0, 1, 9, 2, 3], (1, 2), "changed", (1, 3)),
        ([0, 1, 3], (1, 2), "changed", (1, 1)),
        ([3, 1, 0, 2], (1, 1), "stands", (1, 1)),
        ([7, 8, 9], (1, 1), "gone", (0, 0)),
    ],
)
def test_an_edit_is_told_from_a_removal_by_what_stands_around(
    after: list[int], seqs: tuple[int, int], verdict: str, now: tuple[int, int]
) -> None:
    edited = _edited([_passage(name) for name in range(4)], [_passage(name) for name in after])
    standing = edited.standing(range(seqs[0], seqs[1] + 1))
    assert (standing.verdict, standing.seqs) == (verdict, range(now[0], now[1] + 1))


def test_what_has_changed_is_shown_alone_where_passages_are_cut_differently() -> None:
    before = [_passage(name) for name in range(4)]
    edited = _edited(before, [before[0], "Rule 1 is void.", *before[2:]], joined={0, 1, 2})
    standing = edited.standing(range(1, 2))
    assert (standing.verdict, _shown(edited, standing)) == ("changed", "Rule 1 is void.")


def test_a_text_that_has_the_rolling_digest_of_a_passage_alone_is_not_that_passage() -> None:
    text = "Rule 1 is void."
    forged = mark(text)[:8] + mark(_passage(1))[8:]
    edited = Edited(f"New.\n{text}", [Span(0, 20)], [forged])
    assert edited.standing(range(1)).verdict == "changed"
    assert Edited(f"New.\n{text}", [Span(0, 20)], [mark(text)]).standing(range(1)).verdict == "stands"


def test_the_only_passage_of_a_text_has_changed_and_is_not_gone() -> None:
    assert _edited([_passage(1)], [_passage(2)]).standing(range(1)).verdict == "changed"


@pytest.mark.parametrize("more", ["3", ".5", " or 13", "-13", ", or less", "%"])
@pytest.mark.parametrize("end", ["", "."])
def test_a_word_that_is_added_to_a_passage_changes_it(more: str, end: str) -> None:
    passage = f"The code is 12{end}"
    after = f"The code is 12{more}{end}"
    for text in (after, f"{after}{CUT}Another."):
        assert _edited([passage], [text]).standing(range(1)).verdict == "changed"
    for text in (passage, f"It is new.{CUT}{passage}{CUT}Another.", f"It is new.\n{passage}\nAnother."):
        assert _edited([passage, "b"], [text]).standing(range(1)).verdict == "stands"


def test_what_is_put_before_a_sentence_changes_it_and_another_sentence_does_not() -> None:
    passage = "Nobody waits."
    assert _edited([passage], [f"Never say: {passage}"]).standing(range(1)).verdict == "stands"
    assert _edited([passage], [f"At night {passage}"]).standing(range(1)).verdict == "changed"
    assert _edited([passage], [f"It is late. {passage} They go."]).standing(range(1)).verdict == "stands"


def test_texts_without_spaces_are_found_between_their_sentences() -> None:
    passage = "時計は遅れる。"
    assert _edited([passage], [f"夜は長い。{passage}朝は来る。"]).standing(range(1)).verdict == "stands"
    assert _edited([passage], [f"夜は長い。この{passage}朝は来る。"]).standing(range(1)).verdict == "changed"


def test_of_two_passages_with_one_text_each_stands_at_its_own_place() -> None:
    same = "See the rules above."
    before = ["a is one.", same, "b is two.", same, "c is three."]
    edited = _edited(before, ["new is first.", *before])
    assert [edited.standing(range(seq, seq + 1)).seqs[0] for seq in range(5)] == [1, 2, 3, 4, 5]
    without = _edited(before, [same, "b is two.", "c is three."])
    assert [without.standing(range(seq, seq + 1)).verdict for seq in (1, 3)] == ["stands", "stands"]


def test_a_passage_is_found_wherever_a_long_text_is_cut_for_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [_passage(name) for name in range(9)]
    for block in range(1, 150, 13):
        monkeypatch.setattr(revisions, "BLOCK", block)
        edited = _edited(before, ["New.", *before], joined={*range(20)})
        for seq in range(9):
            standing = edited.standing(range(seq, seq + 1))
            assert (standing.verdict, _shown(edited, standing)) == ("stands", before[seq])


def test_a_text_that_repeats_itself_is_compared_at_a_few_places_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisions, "MOST_PLACES", 5)
    compared: list[int] = []
    digest = revisions._digest  # noqa: SLF001 what the comparison takes

    def counting(codes: revisions.Codes) -> bytes:
        compared.append(len(codes))
        return digest(codes)

    monkeypatch.setattr(revisions, "_digest", counting)
    edited = _edited(["aaaa\n", "b"], ["aaaaaaaa " * 100])
    compared.clear()
    edited.standing(range(1))
    assert len([length for length in compared if length == 4]) <= 5 * 2


MARKS = st.lists(st.binary(min_size=16, max_size=16), max_size=20).map(tuple)
REVISIONS = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=8, max_size=8)


@given(st.dictionaries(REVISIONS, MARKS, max_size=25))
def test_former_revisions_are_read_back_as_they_were_stored_without_the_oldest(
    former: dict[str, tuple[bytes, ...]],
) -> None:
    latest = dict([*former.items()][: revisions.MAX_FORMER])
    assert unpacked(packed(former)) == latest
    assert [*unpacked(packed(former))] == [*latest]


@pytest.mark.slow
def test_former_revisions_take_a_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(of: str, count: int) -> list[bytes]:
        return [mark(f"{of} {number}") for number in range(count)]

    former = {f"aaaaaaa{letter}": many(letter, 1_000) for letter in "abcdefgh"}
    text = packed(former)
    assert len(text) <= revisions.MAX_FORMER_CHARS
    assert [*unpacked(text)] == [*former][: len(unpacked(text))]
    assert 0 < len(unpacked(text)) < 8
    monkeypatch.setattr(revisions, "MAX_PASSAGES", 10)
    assert [*unpacked(packed({"aaaaaaaa": many("a", 11), "bbbbbbbb": many("b", 10)}))] == ["bbbbbbbb"]


def test_a_revision_says_that_passages_are_the_same_and_cut_alike() -> None:
    def revision(*passages: str) -> str:
        return revision_of([mark(passage) for passage in passages])

    assert revision("a b", "c") == revision("a\n b ", "c")
    assert len({revision("a b", "c"), revision("a", "b c"), revision("c", "a b"), revision("ab", "c")}) == 4
    assert len(revision()) == 8

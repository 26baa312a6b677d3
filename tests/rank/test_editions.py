"""Which time a question asks for, when documents are from, and which of their editions come first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Hit
from rag.corpus import Chunk, FileState, Source
from rag.originals import Dating, dating
from rag.rank.editions import (
    NO_FUTURE,
    OTHER_EDITION,
    AskedTime,
    asked_time,
    differing_editions,
    own_and_newer_first,
    prefer_editions,
    preferred_where_they_differ,
    without_copies,
)
from rag.text.dates import validity_in

INGESTED = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE = Source("s", "documents", "file:///s", "Leave", "text/markdown", "d", 1, 1, INGESTED)
CHANGED = FileState(int(datetime(2022, 5, 6, 12, tzinfo=UTC).timestamp() * 1e9), 10)
PRESENT = AskedTime()
IN_2018 = AskedTime(frozenset({2018}))


@pytest.mark.parametrize(
    "question",
    [
        "What is the current leave policy?",
        "Which version is the LATEST?",
        "How much do we pay now?",
        "today's opening hours",
        "most recent price list",
        "Wie lautet die aktuelle Regelung?",
        "Wie viele Tage habe ich derzeit?",
        "die neueste Fassung",
        "Quelle est la politique actuelle ?",
        "la norma vigente",
        "Qual è la procedura attuale?",
        "Qual é a política atual?",
        "de huidige versie",
        "Какая сейчас политика?",
        "текущая версия",
        "最新的政策是什么",
        "現在の規程",
        "현재 규정",
        "वर्तमान नीति क्या है",
        "chính sách hiện tại",
        "annual leave after 2022",
        "leave from 2023 on",
        "Since 2022, how much leave is there?",
        "Urlaub seit 2022",
        "2018年以降の規程",
    ],
)
def test_the_present_is_asked_for_in_the_usual_words(question: str) -> None:
    assert asked_time(question) == PRESENT


@pytest.mark.parametrize(
    ("question", "years"),
    [
        ("What was the fee in 2018?", {2018}),
        ("the fee in 2018 and 2019", {2018, 2019}),
        ("the fees of 2018-2019", {2018, 2019}),
        ("Is the 2019 policy still current?", {2019}),
        ("2018年的政策", {2018}),
        ("the minutes of 2021-05-03", {2021}),
        ("am 11.03.2024", {2024}),
        ("the budget of 2019/20", {2019, 2020}),
        ("results of Q3/2024 and FY2022", {2022, 2024}),
        ("leave before 2023", {2022}),
        ("Before 2023, what was the fee?", {2022}),
        ("2018年以前的政策", {2017}),
        ("令和６年の規程", {2024}),
        ("民國108年以前的規定", {2018}),
        ("R6年度の日当", {2024}),
        ("the policy from 2023", {2023}),
        ("security-bulletin-2021", {2021}),
        ("In 2018, what was the fee?", {2018}),
        ("How many days did I have in 2018?", {2018}),
    ],
)
def test_years_are_asked_for_by_their_numbers(question: str, years: set[int]) -> None:
    assert asked_time(question) == AskedTime(frozenset(years))


@pytest.mark.parametrize(
    "question",
    [
        *("What is the fee?", "currency", "known nowhere", "ISO 9001", "RFC2018", "2,018 pounds", "2018.5 m"),
        *("Is CVE-2021-44228 fixed?", "QA-2024-017", "Directive 2016/679", "Regulation 2022/2065"),
        *("ISO 9001:2015", "IEEE 802.11-2016", "PyCharm 2023.1", "https://a.example/2020/post"),
        *("I joined in 2022. What is the fee?", "i came in 2022, what is the fee?"),
        *("ICH KAM 2022. WAS KOSTET ES?", "I was born in 1990, how many days do I get?"),
    ],
)
def test_other_questions_ask_for_no_time(question: str) -> None:
    assert asked_time(question) is None


def test_a_year_can_be_excluded() -> None:
    assert asked_time("leave, not the 2022 policy") == AskedTime(excluded=frozenset({2022}))
    assert asked_time("not in 2022 but in 2023") == AskedTime(frozenset({2023}), excluded=frozenset({2022}))


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("piece", ["2018-", "a-", "1/", "./", "not the ", "x 2018 ", "2018, ", "I was. "])
def test_a_long_question_takes_time_in_proportion(piece: str) -> None:
    asked_time(piece * 20_000 + "2018")
    asked_time(piece * 20_000)


@pytest.mark.parametrize(
    ("path", "dated"),
    [
        ("handbook-2018/leave.md", "2018"),
        ("2018/handbook-2019.md", "2019"),
        ("posts/2018/05/12/news.md", "2018-05-12"),
        ("minutes/2018-05.md", "2018-05"),
        ("minutes_20180512.txt", "2018-05-12"),
        ("handbook2018.pdf", "2018"),
        ("FY2018 report.pdf", "2018"),
        ("report 2018-02-31.pdf", "2018-02"),
        ("plan for 2027.md", "2027"),
        ("CR réunion du 3 mars 2018.txt", "2018-03-03"),
        ("CR du 3 fe\u0301vrier 2018.txt", "2018-02-03"),  # as macOS writes it
        ("protokół 3 marca 2018.txt", "2018-03-03"),
        ("議事録_2018年3月3日.txt", "2018-03-03"),
        ("旅費規程_平成30年4月1日.md", "2018-04-01"),
        ("議事録_令和元年９月12日.md", "2019-09-12"),
        ("社内報_二〇一八年十月号.md", "2018-10"),
        ("令和元年十二月二十三日_議事録.md", "2019-12-23"),
        ("报告2018三月.docx", "2018"),
        ("H30.10.10_定例会議.txt", "2018-10-10"),
        ("H30年度決算.xlsx", "2018"),
        ("差旅規定_中華民國108年.txt", "2019"),
        ("108年度預算.xlsx", "2019"),
        ("รายงานประจำปี 2561.txt", "2018"),
        ("रिपोर्ट २०१८.txt", "2018"),
        ("محضر ٢٠١٨-٠٣-٠٣.txt", "2018-03-03"),
        ("محضر اجتماع 3 مارس 2018.txt", "2018-03-03"),
        ("minutes_3_March_2018.md", "2018-03-03"),
        ("Protokoll 13.03.2018.pdf", "2018-03-13"),
        ("Preise März 2018.pdf", "2018-03"),
        ("minutes 03-04-2018.txt", "2018"),  # in March or in April
        ("1798/1798-03-05 Weber an Krause.txt", "1798-03-05"),
        ("letters/1798/03/05.txt", "1798-03-05"),
        ("letters/1798-03-05 of 1801.txt", "1798-03-05"),
    ],
)
def test_a_document_without_a_date_is_of_the_year_in_its_path(path: str, dated: str) -> None:
    basis = dating(replace(SOURCE, metadata={"path": path}, file=CHANGED))
    assert basis
    assert (str(basis), basis.by) == (dated, "path")


@pytest.mark.parametrize(
    "path",
    [
        "leave.md",
        "rfc1951.txt",
        "EN 1838.pdf",
        "1798/letter 1841-13-05.txt",
        "scan 18411205.png",
        "iso-9001.pdf",
        "scan 120180.png",
        "plan 2046.md",
        "v2.0.md",
        "R2.1.3.md",
        "Übersicht_R2.1.3.md",
    ],
)
def test_without_a_year_it_is_of_the_last_change_of_its_file(path: str) -> None:
    day = date(2022, 5, 6)
    assert dating(replace(SOURCE, metadata={"path": path}, file=CHANGED)) == Dating(day, day, "file")
    assert dating(replace(SOURCE, metadata={"path": path})) is None
    assert dating(replace(SOURCE, metadata={"path": path}, file=FileState(0, 10))) is None


def test_a_file_whose_clock_is_ahead_has_changed_at_its_ingestion_at_the_latest() -> None:
    ahead = FileState(int(datetime(2099, 1, 1, tzinfo=UTC).timestamp() * 1e9), 10)
    basis = dating(replace(SOURCE, metadata={"path": "leave.md"}, file=ahead))
    assert basis == Dating(INGESTED.date(), INGESTED.date(), "file")


def test_a_document_s_own_date_goes_before_all_others() -> None:
    source = replace(SOURCE, date=INGESTED, metadata={"path": "2018/leave.md"}, file=CHANGED)
    assert dating(source) == Dating(INGESTED.date(), INGESTED.date(), "document")


VERSIONS_OF_A_POLICY = """
| Version | Author | Date | Next review |
|---|---|---|---|
| 2.0 | B. Kim | 15/06/2023 | 15/06/2025 |
| 1.0 | A. Lee | 01.03.2021 | – |
"""


@pytest.mark.parametrize(
    ("text", "validity"),
    [
        ("Gültig ab 01.01.2019", "2019-01-01/.."),
        ("**Gültig ab:** dem 1. Januar 2019", "2019-01-01/.."),
        ("| Gültig ab | 01.01.2019 |", "2019-01-01/.."),
        ("GÜLTIG AB\n\n01.01.2019", "2019-01-01/.."),
        ("Stand: März 2024", "2024-03/.."),
        ("Stand 2024", "2024/.."),
        (
            "in der Fassung vom 3. Mai 2021 (GVBl. S. 12), zuletzt geändert durch Satzung vom 12.3.2024",
            "2024-03-12/..",
        ),
        ("Stand\n:   Zuletzt geändert durch\n:   Art. 9 V v. 9.12.2019 I 2153", "2019-12-09/.."),
        ("Ausfertigungsdatum\n:   1997-04-16", "1997-04-16/.."),
        ("Stand: Ersetzt V 7100-1-9 vom 15.5.2007", ""),
        ("Inkrafttreten: 01.08.2023", "2023-08-01/.."),
        ("Die Satzung tritt am 1. August 2023 in Kraft.", "2023-08-01/.."),
        ("Valid from: 1 January 2021. Valid until: 31 December 2023", "2021-01-01/2023-12-31"),
        ("Effective date: January 1, 2024", "2024-01-01/.."),
        ("effective_date: 2024-01-01", "2024-01-01/.."),
        ("Last amended 3 May 2024", "2024-05-03/.."),
        ("As of 05/06/2024", "2024/.."),  # in May or in June
        ("En vigueur du 1er septembre 2022 au 31 août 2023", "2022-09-01/2023-08-31"),
        ("Date d’entrée en vigueur : 1er mars 2023", "2023-03-01/.."),
        ("Applicable à partir du 1 janvier 2024", "2024-01-01/.."),
        ("In vigore dall’1.1.2022", "2022-01-01/.."),
        ("Vigente desde el 1 de enero de 2023", "2023-01-01/.."),
        ("Em vigor desde 1 de março de 2023", "2023-03-01/.."),
        ("Geldig vanaf 1 januari 2024", "2024-01-01/.."),
        ("Gäller från och med den 1 juli 2024", "2024-07-01/.."),
        ("Obowiązuje od 1 września 2023 r.", "2023-09-01/.."),
        ("Чинний з 1 січня 2024 року", "2024-01-01/.."),
        ("Действует с 1 января 2024 г.", "2024-01-01/.."),
        ("令和6年4月1日から施行", "2024-04-01/.."),
        ("自2024年1月1日起施行", "2024-01-01/.."),
        ("시행일: 2024. 4. 1.", "2024-04-01/.."),
        ("1 जनवरी 2024 से प्रभावी", "2024-01-01/.."),
        ("Vom 12. März 2018", "2018-03-12/.."),
        ("*vom 12.03.2018*", "2018-03-12/.."),
        ("Bericht vom 12.03.2018", ""),
        ("Vom 12.03.2018 bis heute", ""),
        ("Gültig bis 31.12.2023", "../2023-12-31"),
        ("Expires on 31 December 2025", "../2025-12-31"),
        ("Gültigkeit: bis 31.12.2023", ""),
        ("Der Stand der Technik war Thema der Sitzung vom 3. Mai 2020", ""),
        ("Sitzung vom 3. Mai 2020", ""),
        ("Updated by Ann. We met on 3 May 2020", ""),
        ("Valid for 12 months", ""),
        ("gültig vom 01.10.2026 bis 31.12.2026", "2026-10-01/2026-12-31"),
        ("Valid 01.01.2024 – 31.12.2024", "2024-01-01/2024-12-31"),
        ("有効期間：2024年4月1日～2025年3月31日", "2024-04-01/2025-03-31"),
        ("Stand: 2024\nTermine 1.3.2025 bis 5.3.2025", "2024/.."),
        ("Überarbeitungsdatum 12.03.2024", "2024-03-12/.."),
        ("Ausgestellt am: 03.02.2016 Ersetzt Version vom: 01.02.2021", "2016-02-03/.."),
        ("Date de révision : 15/03/2024 / Remplace la version du : 15/09/2025", "2024-03-15/.."),
        ("Druckdatum 15.03.2026 Ersetzt Version 3.0 vom 01.02.2021", ""),
        ("Current revision: December 19, 2022. Last revision: April 6, 2018", "2022-12-19/.."),
        ("This policy replaces the travel rules. Valid from 01.01.2024", "2024-01-01/.."),
        ("Replaces: HR-12\nEffective date: 2024-05-01", "2024-05-01/.."),
        ("Supersedes: N/A Effective: 1 March 2024", "2024-03-01/.."),
        ("| Ersetzt | – | Gültig ab | 01.03.2024 |", "2024-03-01/.."),
        ("Previous version: none, valid from 1 March 2024", "2024-03-01/.."),
        ("Approval date: 15 June 2023\nNext review date: 15 June 2025", "2023-06-15/.."),
        ("| Version | 2.0 |\n|---|---|\n| Date approved | 15 June 2023 |", "2023-06-15/.."),
        ("Approved by the Board of Directors on 15 June 2023", "2023-06-15/.."),
        ("Approved by: Board of Directors\nNext review: June 2026", ""),
        ("The law was approved by Parliament on 3 May 2019, published on 6 May 2019", ""),
        ("Published works of 1990", ""),
        ('curl --header "api-version: 2023-06-01"', ""),
        ("The Gold Edition, on 28 September 2007 in Europe", ""),
        ("Version 2.0, 15 June 2023", "2023-06-15/.."),
        ("Version 2.0 vom 15.06.2023", "2023-06-15/.."),
        ("Rev. 3 (15.06.2023)", "2023-06-15/.."),
        ("Changes since version 1.0 (3 May 2020)", ""),
        ("Version 2.0, 15 June 2023, with the changes from version 1.0 of 3 May 2020", "2023-06-15/.."),
        ("Änderungen gegenüber der Fassung 1.0 vom 03.05.2020", ""),
        ("Valid from version 2.0, 15 June 2023", "2023-06-15/.."),
        ("Version 2.0 for 12 users", ""),
        ("Freigegeben am: 15.06.2023. Nächste Überprüfung: 15.06.2025", "2023-06-15/.."),
        ("Approuvée par le conseil le 15 juin 2023", "2023-06-15/.."),
        ("Data di approvazione: 15 giugno 2023", "2023-06-15/.."),
        ("Zatwierdzono 15.06.2023", "2023-06-15/.."),
        ("**Datum:** 15.06.2023", "2023-06-15/.."),
        ("Date of birth: 3 May 1980", ""),
        ("Date: 3 May 2020 in Bern, with all members", ""),
        ("02014L0049 — EN — 09.01.2024 — 003.001\n\nDIRECTIVE of 16 April 2014", "2024-01-09/.."),
        ("1998F0699 — DE — 05.07.2001 — 001.001 — 2", "2001-07-05/.."),
        ("| 27.6.2013 | EN | Official Journal of the European Union | L 176/1 |", "2013-06-27/.."),
        ("27.6.2013 DE Amtsblatt der Europäischen Union L 176/1", "2013-06-27/.."),
        ("27.6.2013 in Bern, page L 176/1", ""),
        (VERSIONS_OF_A_POLICY, "2023-06-15/.."),
        (VERSIONS_OF_A_POLICY.replace("Version", "Room"), ""),
        ("x" * 1_000 + " Gültig ab 01.01.2019", ""),
    ],
)
def test_the_first_lines_state_when_a_document_is_valid(text: str, validity: str) -> None:
    assert validity_in(f"# Reisekosten\n\n{text}\n\nDie Pauschale gilt.") == validity
    basis = dating(replace(SOURCE, metadata={"path": "2018/leave.md", "validity": validity}, file=CHANGED))
    stated = validity.partition("/")[0]
    assert basis
    assert (str(basis), basis.by) == (("2018", "path") if stated in {"", ".."} else (stated, "text"))


def test_a_file_that_was_saved_after_its_last_day_is_of_that_day() -> None:
    for ended, day in {"2021-12-31": date(2021, 12, 31), "2031": date(2022, 5, 6)}.items():
        metadata = {"path": "leave.md", "validity": f"../{ended}"}
        assert dating(replace(SOURCE, metadata=metadata, file=CHANGED)) == Dating(day, day, "file")


VERSIONS = [
    ("leave v1.md", "leave v2.md"),
    ("leave v1.9.md", "leave v1.10.md"),
    ("Satzung, 1. Änderung.md", "Satzung, 2. Änderung.md"),
    ("Reisekosten alt.md", "Reisekosten neu.md"),
    ("old/leave.md", "new/leave.md"),
    ("Tarifs (ancienne).md", "Tarifs (nouvelle).md"),
    ("Ordnung Fassung A.md", "Ordnung Fassung B.md"),
    ("plan_rev1.md", "plan_rev2.md"),
]


@pytest.mark.parametrize(("older", "newer"), VERSIONS)
def test_versions_in_names_tell_more_than_the_times_of_files(older: str, newer: str) -> None:
    saved_again = FileState(CHANGED.modified + 10**17, 10)
    first, second = (
        dating(replace(SOURCE, metadata={"path": path}, file=file))
        for path, file in ((older, saved_again), (newer, CHANGED))
    )
    assert PRESENT.prefers(second, first)
    assert not PRESENT.prefers(first, second)


def test_what_is_called_old_is_older_than_what_states_its_date() -> None:
    old = dating(replace(SOURCE, metadata={"path": "Satzung_alt.md"}, file=CHANGED))
    stated = dating(
        replace(SOURCE, metadata={"path": "Satzung.md", "validity": "2019-01-01/.."}, file=CHANGED)
    )
    assert PRESENT.prefers(stated, old)
    assert not PRESENT.prefers(old, stated)


@pytest.mark.parametrize(
    ("first", "second"),
    [("leave v1.md", "leave.md"), ("leave v1.md", "leave neu.md"), ("v1 alt.md", "v1 alt.md")],
)
def test_other_names_leave_it_to_the_times_of_files(first: str, second: str) -> None:
    earlier, later = (
        dating(replace(SOURCE, metadata={"path": path}, file=FileState(CHANGED.modified + more, 10)))
        for path, more in ((second, 0), (first, 10**17))
    )
    assert PRESENT.prefers(later, earlier)


def _hit(path: str, score: float, text: str = "Leave is 20 days.", *, title: str = "Leave") -> Hit:
    source = replace(SOURCE, id=path, title=title, metadata={"path": path})
    return Hit(Chunk(f"{path}/0", path, 0, 0, len(text), text), source, score, 0.5)


OLD, NEW = _hit("2018/leave.md", 0.6, "One."), _hit("2023/leave.md", 0.5, "Another.")
UNRELATED = _hit("2024/canteen.md", 0.55, "Soup.", title="Canteen")


def _paths(hits: list[Hit]) -> list[str]:
    return [hit.source.id for hit in hits]


def test_the_newest_edition_comes_first_and_others_lose_a_part_of_their_scores() -> None:
    hits = prefer_editions([OLD, UNRELATED, NEW], PRESENT)
    assert _paths(hits) == ["2024/canteen.md", "2023/leave.md", "2018/leave.md"]
    assert [hit.score for hit in hits] == pytest.approx([0.55, 0.5, 0.6 * OTHER_EDITION])
    assert [str(hit.dating) for hit in hits] == ["2024", "2023", "2018"]


@pytest.mark.parametrize(("year", "first"), [(2018, OLD), (2023, NEW), (2021, OLD), (2025, NEW)])
def test_of_years_the_edition_comes_first_that_was_valid_then(year: int, first: Hit) -> None:
    then = AskedTime(frozenset({year}))
    equal = [replace(hit, score=0.5) for hit in (OLD, NEW)]
    assert prefer_editions(equal, then)[0].source == first.source
    assert prefer_editions(equal[::-1], then)[0].source == first.source


def test_of_years_before_all_editions_none_is_preferred() -> None:
    for order in ([OLD, NEW], [NEW, OLD]):
        equal = [replace(hit, score=0.5) for hit in order]
        assert _paths(prefer_editions(equal, AskedTime(frozenset({2016})))) == _paths(order)


def test_an_edition_of_an_excluded_year_comes_last() -> None:
    middle = _hit("2020/leave.md", 0.5, "Two.")
    equal = [replace(hit, score=0.5) for hit in (OLD, NEW, middle)]
    excluded = prefer_editions(equal, AskedTime(excluded=frozenset({2023})))
    assert _paths(excluded) == ["2020/leave.md", "2018/leave.md", "2023/leave.md"]


def test_a_passage_that_names_the_year_is_about_it() -> None:
    named = replace(
        NEW, chunk=replace(NEW.chunk, text="Windows Server 2018 is updated on Sundays."), score=0.7
    )
    assert _paths(prefer_editions([named, OLD], IN_2018)) == ["2023/leave.md", "2018/leave.md"]
    assert _paths(prefer_editions([replace(NEW, score=0.7), OLD], IN_2018)) == [
        "2018/leave.md",
        "2023/leave.md",
    ]


@pytest.mark.parametrize(
    ("today", "first"),
    [
        (date(2023, 2, 1), "2023"),
        (date(2022, 12, 31), "2023"),
        (date(2022, 12, 30), "2018"),
        (NO_FUTURE, "2023"),
    ],
)
def test_an_edition_that_begins_after_tomorrow_is_not_the_present_one(today: date, first: str) -> None:
    equal = [replace(hit, score=0.5) for hit in (OLD, NEW)]
    assert _paths(prefer_editions(equal, AskedTime(today=today)))[0] == f"{first}/leave.md"
    of_2027 = _hit("2027/leave.md", 0.5, "Third.")
    of_2027 = replace(of_2027, source=replace(of_2027.source, date=datetime(2027, 1, 1, tzinfo=UTC)))
    of_three = prefer_editions([of_2027, *equal], AskedTime(today=today))
    assert _paths(of_three)[0] == ("2027/leave.md" if today == NO_FUTURE else f"{first}/leave.md")


TWENTY, THIRTY = (
    _hit("2018/leave.md", 0.6, "Leave is 20 days."),
    _hit("2023/leave.md", 0.5, "Leave is 30 days."),
)


def test_without_a_time_a_newer_edition_takes_the_place_of_one_with_other_numbers() -> None:
    hits = preferred_where_they_differ([TWENTY, UNRELATED, THIRTY], date(2026, 1, 1))
    assert _paths(hits) == ["2023/leave.md", "2024/canteen.md", "2018/leave.md"]
    assert [hit.score for hit in hits] == [0.6, 0.55, 0.5]
    same = [TWENTY, replace(THIRTY, chunk=replace(THIRTY.chunk, text="Leave is 20 days."))]
    assert preferred_where_they_differ(same, date(2026, 1, 1)) == same  # there is nothing to choose
    assert preferred_where_they_differ([TWENTY, THIRTY], date(2022, 1, 1)) == [TWENTY, THIRTY]  # not yet
    assert preferred_where_they_differ([THIRTY, TWENTY], date(2026, 1, 1)) == [THIRTY, TWENTY]
    better = [replace(TWENTY, score=0.9), THIRTY]
    assert preferred_where_they_differ(better, date(2026, 1, 1)) == better
    unrelated = [TWENTY, _hit("2023/leave.md", 0.5, "Sick pay ends after 30 weeks.")]
    assert preferred_where_they_differ(unrelated, date(2026, 1, 1)) == unrelated


def test_editions_that_differ_are_told_whatever_their_order_and_no_others() -> None:
    assert differing_editions([TWENTY, UNRELATED, THIRTY]) == [[0, 2]]
    assert differing_editions([THIRTY, TWENTY]) == [[0, 1]]
    same = replace(THIRTY, chunk=replace(THIRTY.chunk, text="Leave is 20 days."))
    assert not differing_editions([TWENTY, same])
    assert not differing_editions([TWENTY, _hit("2023/leave.md", 0.5, "Sick pay ends after 30 weeks.")])


def test_records_with_other_numbers_in_the_same_name_are_no_editions() -> None:
    """A contract with another party, the next invoice, another ticket: a newer one replaces none."""
    for older, newer, title in (
        ("C-2022-101.md", "C-2024-103.md", ""),
        ("invoice-2024-001.md", "invoice-2025-002.md", "Invoice"),
        ("2018/TCK-2041.md", "2023/TCK-2044.md", "Ticket"),
    ):
        hits = [
            _hit(older, 0.5, "The fee is 20 EUR.", title=title or f"Contract {older}"),
            _hit(newer, 0.5, "The fee is 30 EUR.", title=title or f"Contract {newer}"),
        ]
        assert _paths(prefer_editions(hits, PRESENT)) == [older, newer]
        assert not differing_editions(hits)
    same = [_hit(f"{year}/C-101.md", 0.5, f"It is {year} EUR.", title="Contract") for year in (2022, 2024)]
    assert _paths(prefer_editions(same, PRESENT)) == ["2024/C-101.md", "2022/C-101.md"]
    assert differing_editions(same) == [[0, 1]]


def _of(collection: str, hit: Hit) -> Hit:
    return replace(hit, source=replace(hit.source, collection=collection))


def test_of_editions_that_differ_one_of_its_own_stands_before_an_attached_one_whatever_their_dates() -> None:
    foreign = _of("vendor", THIRTY)
    for ranked in ([foreign, replace(TWENTY, score=0.5)], [replace(TWENTY, score=0.6), foreign]):
        ordered = preferred_where_they_differ(ranked, date(2026, 1, 1), {"vendor"})
        assert _paths(ordered) == ["2018/leave.md", "2023/leave.md"]
        assert [hit.score for hit in ordered] == [hit.score for hit in ranked]
    as_own = preferred_where_they_differ([TWENTY, foreign], date(2026, 1, 1))
    assert _paths(as_own) == ["2023/leave.md", "2018/leave.md"]


def test_hits_that_may_be_beside_the_point_stand_own_ones_first_then_by_the_dates_they_state() -> None:
    def stated(path: str, year: int | None, collection: str = "docs") -> Hit:
        hit = _of(collection, _hit(path, 0.5, "A word."))
        return replace(
            hit, source=replace(hit.source, date=datetime(year, 1, 1, tzinfo=UTC) if year else None)
        )

    hits = [stated("a", 2024, "vendor"), stated("b", None), stated("c", 2018), stated("d", 2023)]
    hits = [replace(hit, score=1 - rank / 10) for rank, hit in enumerate(hits)]
    ordered = own_and_newer_first(hits, {"vendor"})
    assert _paths(ordered) == ["d", "c", "b", "a"]
    assert [hit.score for hit in ordered] == [1.0, 0.9, 0.8, 0.7]
    far_behind = [replace(stated("e", 2018), score=0.2), replace(stated("f", 2024), score=0.05)]
    assert own_and_newer_first(far_behind, {"vendor"}) == far_behind
    undated = [stated("x", None), stated("y", None)]
    assert own_and_newer_first(undated, set()) == undated


@given(st.permutations(["2016", "2018", "2023"]))
def test_of_three_that_differ_the_newest_is_first_and_the_oldest_last(years: list[str]) -> None:
    hits = [_hit(f"{year}/leave.md", 0.5, f"Leave is {year[2:]} days.") for year in years]
    ordered = _paths(preferred_where_they_differ(hits, date(2026, 1, 1)))
    assert ordered == ["2023/leave.md", "2018/leave.md", "2016/leave.md"]


def test_an_edition_that_answers_much_better_stays_first() -> None:
    assert _paths(prefer_editions([replace(OLD, score=0.9), NEW], PRESENT))[0] == "2018/leave.md"


@pytest.mark.parametrize(
    ("second", "are_editions"),
    [
        (_hit("2023/leave v2.md", 0.5, "Another."), True),
        (_hit("2023/new.md", 0.5, "Leave is 25 days.", title="New"), True),
        (_hit("2023/new.md", 0.5, "Days of leave: 25", title="Leave 2023"), True),
        (_hit("2023/new.md", 0.5, "Days of leave: 25", title="New"), False),
        (_hit("2023/new.md", 0.5, "Soup.", title="Leave"), False),
        (_hit("2018/other.md", 0.5), False),
    ],
    ids=["path", "text", "title", "no title", "no common words", "one year"],
)
def test_editions_differ_in_dates_of_their_paths_or_hardly_in_their_texts(
    second: Hit, *, are_editions: bool
) -> None:
    first = replace(_hit("2018/leave.md", 0.6), score=0.6)
    assert (_paths(prefer_editions([first, second], PRESENT))[0] == second.source.id) is are_editions


def test_passages_of_one_document_are_no_editions_of_one_another() -> None:
    hits = [replace(OLD, chunk=replace(OLD.chunk, id=f"{seq}", seq=seq)) for seq in range(3)]
    assert [hit.score for hit in prefer_editions(hits, PRESENT)] == [0.6] * 3


@given(st.permutations([2015, 2018, 2023]), st.sampled_from([PRESENT, IN_2018]))
def test_of_three_editions_with_one_score_the_one_asked_for_is_first_in_any_order(
    years: list[int], time: AskedTime
) -> None:
    hits = prefer_editions([_hit(f"{year}/leave.md", 0.5) for year in years], time)
    assert hits[0].source.id == ("2018/leave.md" if time.years else "2023/leave.md")


RULE = "The annual fee of the club is {} pounds and due on the first of May by all who keep a {}"


def _copies(
    first: tuple[str, str],
    second: tuple[str, str],
    *,
    time: AskedTime = PRESENT,
    question: str = "annual fee",
) -> list[str]:
    hits = [_hit(path, score, text) for (path, text), score in ((first, 0.6), (second, 0.5))]
    hits_left = without_copies(hits, frozenset(question.split()), time, threshold=0.5)
    assert [hit.score for hit in hits_left] == sorted((hit.score for hit in hits_left), reverse=True)
    return _paths(hits_left)


def _rule(pounds: int, word: str = "clock") -> str:
    return RULE.format(pounds, word)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("a.md", _rule(40)), ("b.md", _rule(40)), ["a.md"]),
        (("a.md", _rule(40)), ("b.md", _rule(40, "dial")), ["a.md"]),
        (("a.md", _rule(40)), ("b.md", _rule(45)), ["a.md", "b.md"]),
        (("2018.md", _rule(40)), ("2023.md", _rule(45)), ["2023.md"]),
        (("2023.md", _rule(40)), ("2018.md", _rule(45)), ["2023.md"]),
        (("2018.md", _rule(40)), ("2018-05.md", _rule(45)), ["2018.md", "2018-05.md"]),
    ],
    ids=["the same", "other words", "other numbers", "newer", "older", "in one year"],
)
def test_of_near_copies_one_stays_unless_either_may_be_right(
    first: tuple[str, str], second: tuple[str, str], expected: list[str]
) -> None:
    assert _copies(first, second) == expected


def test_a_copy_of_the_year_that_is_asked_for_stays() -> None:
    assert _copies(("2023.md", _rule(40)), ("2018.md", _rule(45)), time=IN_2018) == ["2018.md"]


def test_what_has_a_word_of_the_question_is_no_copy_of_what_lacks_it() -> None:
    first, second = ("2018.md", _rule(40, "clock")), ("2023.md", _rule(45, "dial"))
    assert _copies(first, second, question="fee clock") == ["2018.md", "2023.md"]
    assert _copies(first, second, question="fee dial") == ["2023.md"]
    assert _copies(("a.md", _rule(40)), ("b.md", _rule(40, "dial")), question="fee dial") == ["a.md", "b.md"]


@pytest.mark.parametrize(
    ("question", "version"),
    [
        ("What was the price in version 2?", ("number", (2,))),
        ("prijs versie 2", ("number", (2,))),
        ("versión 1.3 del contrato", ("number", (1, 3))),
        ("the fee in Rev B", ("letter", (98,))),
        ("version 2 or later", None),
        ("What does version 2 of the contract say?", ("number", (2,))),
        ("versie 2 of hoger", None),
        ("version 2 vs 3", None),
        ("version 2, 3 and 4", None),
        ("since version 2", None),
        ("changes from version 1 to version 2", None),
        ("what is new in the price list", None),
    ],
)
def test_a_question_asks_for_the_one_version_that_it_names(
    question: str, version: tuple[str, tuple[int, ...]] | None
) -> None:
    wanted_time = asked_time(question)
    assert (wanted_time.version if wanted_time else None) == version


def test_the_version_that_a_question_names_comes_before_newer_ones() -> None:
    older, newer = _hit("quotation v1.docx", 0.5), _hit("quotation v2.docx", 0.6)
    wanted_time = asked_time("delivery in version 1")
    assert wanted_time
    assert _paths(prefer_editions([newer, older], wanted_time)) == ["quotation v1.docx", "quotation v2.docx"]
    assert _paths(prefer_editions([newer, older], PRESENT)) == ["quotation v2.docx", "quotation v1.docx"]


@pytest.mark.parametrize(
    ("question", "name", "is_asked"),
    [
        ("version 2.0", "v2/api.md", True),
        ("version 2.0", "v2.0.3/api.md", True),
        ("version 2.0", "v2.1/api.md", False),
        ("version 2.1", "v2/api.md", False),
        ("version 2", "v2.1/api.md", True),
        ("version 2", "v20/api.md", False),
    ],
)
def test_a_version_without_its_last_numbers_has_zeros_there(
    question: str, name: str, *, is_asked: bool
) -> None:
    wanted_time = asked_time(question)
    assert wanted_time
    assert wanted_time.asks_version_of(_hit(name, 0.5).source) == is_asked


def test_where_no_edition_is_preferred_hits_keep_their_order() -> None:
    hits = [_hit("2025/new.md", 0.49, title="A"), replace(UNRELATED, score=0.48), replace(OLD, score=0.49)]
    assert _paths(prefer_editions(hits, AskedTime(version=("number", (7,))))) == _paths(hits)

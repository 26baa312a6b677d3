"""Dates and amounts are found however the question and the document write them, and not denied then."""

from __future__ import annotations

import pytest

from rag.answers import SearchRequest
from rag.search.desk import Desk
from rag.search.stages.thresholds import UNGROUNDED
from tests.search.conftest import ME, Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ON_DAY = {
    "en": ("What was decided on 8 March 2025?", "Minutes of March 8th, 2025. The board chose a car park."),
    "de": ("Was wurde am 8. März 2025 beschlossen?", "Protokoll vom 08.03.2025: Parkplatz"),
    "fr": ("compte rendu du 8 mars 2025", "Réunion du 08/03/2025 au sujet du parking"),
    "es": ("acta del 8 de marzo de 2025", "Acta: 8/3/2025, aparcamiento"),
    "it": ("verbale dell'8 marzo 2025", "Riunione dell'8.3.2025 sul parcheggio"),
    "pl": ("co postanowiono 8 marca 2025?", "Zarząd, 8 marca 2025 r., w sprawie parkingu"),
    "cs": ("zápis 8. března 2025", "Schůze 8. 3. 2025 o parkování"),
    "uk": ("протокол 8 березня 2025", "Збори 8 березня 2025 року про стоянку"),
    "tr": ("8 Mart 2025 tutanağı", "8 Mart 2025'te kurul otopark için toplandı"),
    "ro": ("8 martie 2025", "Consiliul din 8 martie 2025 despre parcare"),
    "hu": ("2025. március 8.", "Ülés: 2025. március 8., parkoló"),
    "ar": ("محضر 8 مارس 2025", "اجتمع المجلس في ٨ مارس ٢٠٢٥ بشأن الموقف"),
    "ja": ("2025年3月8日の議事録", "議事録 取締役会2025年3月8日、駐車場について"),
    "ko": ("2025년 3월 8일 회의록", "이사회 2025년 3월 8일 주차장"),
    "vi": ("biên bản 8 tháng 3 năm 2025", "Họp ngày 8 tháng 3 năm 2025 về bãi xe"),
}
IN_NUMBERS = ("2025-03-08", "08.03.2025", "8.3.2025", "08/03/2025")
OTHER_DAYS = (
    "Minutes of 8 April 2025: chairs",
    "Protokoll 09.03.2025",
    "議事録 2024年3月8日",
    "8 in March of 25",
)
JUDGED = {"min_evidence": 0.2}
AMOUNTS = {
    "EUR 1,234.56 for the printer": ("1234.56", "1.234,56 €", "1 234,56"),
    "9.876,54 EUR für den Drucker": ("9876,54", "9876.54", "9,876.54"),
    "5\u202f678,90 € pour l'imprimante": ("5678,90", "5 678,90", "5678.90"),
    "nous avons acheté 450\u202f000 vis": ("450000", "450.000", "450,000", "450\u00a0000"),
    "25 000,00 zł za drukarkę": ("25000", "25.000,00", "25,000.00 zł"),
    "₹12,50,000 for the hall": ("1250000", "1,250,000", "12,50,000", "₹12,50,000"),
    "कुल ₹ ३५,२५,०००.५० देय": ("3525000.50", "3,525,000.50", "35,25,000.50"),
    "INR 3,125,000 was paid": ("31,25,000", "3125000"),
}


async def first_of(desk: Desk, query: str) -> tuple[str, bool]:
    """The first hit by words, and whether the answer says that nothing was found."""
    by_words = (await desk.search(ME, SearchRequest(query, mode="sparse"))).hits
    judged = await desk.search(ME, SearchRequest(query))
    return by_words[0].text if by_words else "", UNGROUNDED in judged.notes


@pytest.mark.parametrize("language", ON_DAY)
async def test_a_day_in_numbers_or_in_words_finds_it_in_words_or_in_numbers(
    shelf: Shelf, language: str
) -> None:
    question, text = ON_DAY[language]
    await shelf.put_all({str(at): passage for at, passage in enumerate((*OTHER_DAYS, text))})
    desk = shelf.desk(thresholds=JUDGED)
    for query in (question, *(IN_NUMBERS if language == "en" else IN_NUMBERS[:1])):
        assert await first_of(desk, query) == (text, False), query


async def test_a_day_that_no_document_has_is_said_not_to_be_there(shelf: Shelf) -> None:
    await shelf.put_all({str(at): passage for at, passage in enumerate(OTHER_DAYS)})
    desk = shelf.desk(thresholds=JUDGED)
    for query in IN_NUMBERS:
        assert (await first_of(desk, query))[1], query


async def test_an_amount_is_found_however_its_thousands_are_separated(shelf: Shelf) -> None:
    await shelf.put_all({str(at): text for at, text in enumerate(AMOUNTS)})
    desk = shelf.desk(thresholds=JUDGED)
    for text, amounts in AMOUNTS.items():
        for query in amounts:
            assert await first_of(desk, query) == (text, False), query
    assert (await first_of(desk, "7777.10"))[1]

"""Editions of a document: which one a question asks for.

A handbook of 2018 and one of 2023 answer the same questions, in nearly the same words, so neither meaning nor
words tell them apart. Their dates do (`rag.originals.dating`): "now" asks for the newest, "in 2018" for the
one of that year. Documents without another edition are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import accumulate, combinations
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rag.answers import Hit
from rag.corpus import Source
from rag.originals import DATE_IN_NAME, VERSION_IN_NAME, Dating, Version, dating, version_in
from rag.rank.diversity import Verdict, distinct, jaccard
from rag.rank.fusion import DAY, aged_score
from rag.text.dates import in_common_years
from rag.text.plain_text import words

OTHER_EDITION = 0.7
"""The factor for the score of an edition that the question doesn't ask for (rag/evaluate/measuring.md)."""
NEAR_COPY = 0.5  # the share of common words from which two passages are editions of the same document
SAME_TITLE = 0.2  # the same for documents with the same title
NO_FUTURE = date.max - timedelta(days=1)
"""As today: no date is after tomorrow then."""
Bound: TypeAlias = Literal["in", "since", "before", "not"]
_PRESENT = re.compile(
    r"""\b(?:
      current(?:ly)? | latest | newest | now(?:adays)? | today | (?:most\ )?recent(?:ly)? | up[- ]to[- ]date
    | aktuell\w* | derzeit\w* | gegenwärtig\w* | heut(?:e|ig\w*) | jetzt | momentan\w* | neu?est\w*
    | actuel\w* | maintenant | aujourd.hui | récent\w* | en\ vigueur
    | actual(?:es|mente)? | ahora | hoy | vigentes? | recientes? | últim[oa]s?
    | attual[ei]\w* | adesso | oggi | atua(?:l|is|lmente) | agora | hoje
    | huidige? | momenteel | nieuwste
    | текущ\w+ | действующ\w+ | актуальн\w+ | нынешн\w+ | последн\w+ | сейчас | сегодня | теперь
    | hiện\ (?:tại|nay|hành) | mới\ nhất | bây\ giờ
    )\b
    | वर्तमान | नवीनतम | अभी | आजकल
    | 目前 | 当前 | 當前 | 现在 | 現在 | 现行 | 現行 | 最新 | 현재 | 최신 | 지금
    """,
    re.VERBOSE | re.IGNORECASE,
)
_RUN = re.compile(r"(?<![0-9A-Za-z_,])[0-9A-Za-z_./:–-]++")
"""A word or a number, and everything joined to it: CVE-2021-44228, 2016/679, 2024-03-11."""
_GOES_ON = re.compile("%|,[0-9]")
"""Behind a number that is not a time."""
_TIME = re.compile(
    r"""(?:(?:[A-Za-z]+[-_])*|FY) (?P<first>(?:19[5-9]|20[0-9])[0-9])
          (?: [-–/](?P<last>[0-9]{2}|(?:19|20)[0-9]{2})
            | [-/](?:0?[1-9]|1[0-2]) [-/](?:0?[1-9]|[12][0-9]|3[01])(?:T.*)?
            | \.(?:0[1-9]|1[0-2]) \.(?:0[1-9]|[12][0-9]|3[01]) )?
      | (?:(?:0?[1-9]|[12][0-9]|3[01])[-/.])? (?:0?[1-9]|1[0-2]) [-/.] (?P<of_day>(?:19[5-9]|20[0-9])[0-9])
      | (?:Q[1-4]|H[12]) [-/] (?P<of_quarter>(?:19[5-9]|20[0-9])[0-9])
    """,
    re.VERBOSE,
)
"""A year, a month or a day, or years from one to another: 2019-2021, 2019/20."""
_NEAR = 40  # characters before and after a year whose words qualify it
_MOST_YEARS = 20  # in a range; a longer one is not a time, as in Regulation 2022/2065
_BEFORE_YEAR: Mapping[Bound, re.Pattern[str]] = {
    "since": re.compile(
        r"\b(?:after|since|later than|newer than|nach|seit|ab|après|depuis|después de|desde|dopo|dal|após"
        r"|na|sinds|vanaf|после|с|sau|từ)\s+(?:the\s+year\s+)?$",
        re.IGNORECASE,
    ),
    "before": re.compile(
        r"\b(?:before|earlier than|older than|vor|avant|antes de|prima del|voor|до|trước)"
        r"\s+(?:the\s+year\s+)?$",
        re.IGNORECASE,
    ),
    "not": re.compile(
        r"\b(?:not|except|excluding|without|other than|instead of|nicht|außer|ohne|statt|sauf|pas|excepto"
        r"|salvo|tranne|non|exceto|niet|behalve|кроме|не)\s+(?:(?:for|in|from|of|aus|von)\s+)?"
        r"(?:(?:the|de[mnrs]|die|das|la|le|el|celle de)\s+)?$",
        re.IGNORECASE,
    ),
}
"""The meaning of words before a year, in the languages of `_PRESENT`."""
_AFTER_YEAR: Mapping[Bound, re.Pattern[str]] = {
    "since": re.compile(r"\s*(?:on\b|onwards?\b|年?(?:以降|以后|以後|之后|之後|以来|以來)|년\s*이후|के\ बाद)"),
    "before": re.compile(r"\s*(?:年?(?:以前|之前)|년\s*이전|से\ पहले)"),
}
_BEYOND = re.compile(
    r"\s*(?:[-–+&]|,\s*[0-9]|(?:vs|versus|or|and|to|oder|und|bis|ou|et|y|e|à|a|o|en|или|и)\b"
    r"|of\s+(?:hoger|later|nieuwer|[0-9]))",
    re.IGNORECASE,
)
"""Behind a version of several, or of all from it on: "version 2 or later", "2 to 3"."""
_OF_ASKER = re.compile(
    r"\W*(?:and\s+|but\s+|und\s+)?(?:I|I['’]\w+|we|my|our|ich|wir|mein\w*|je|nous|mon|я|мы|我|我们)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"(?<=[.?!;,])\s+|(?<=[。？！，；])")
_LONG_NUMBER = re.compile(r"[0-9]{3,}")  # in a name without dates; shorter ones may be those of editions


@dataclass(frozen=True, slots=True)
class AskedTime:
    """The `years` that a question asks for, or the present (`today`) if empty; and the `excluded` ones.

    Or the one `version`, like "version 2": then dates don't matter.
    """

    years: frozenset[int] = frozenset()
    today: date = NO_FUTURE
    excluded: frozenset[int] = frozenset()
    version: Version | None = None

    def prefers(self, first: Dating | None, second: Dating | None) -> bool:
        """Whether the question prefers a document of the `first` date to one of the `second`.

        For the present, the newer one, unless it begins after tomorrow; if only the times of their files are
        known, versions in their names go before these. For years, one of these years, else the last one
        before them, which was still valid. Overlapping dates, like 2023 and May 2023, are equal. Excluded
        years come last.
        """
        if self.version or first is None or second is None:
            return False
        if (is_excluded := self._excludes(second)) != self._excludes(first):
            return is_excluded
        if not self.years:
            return self._is_newer(first, second)
        return self._years_away(first) < self._years_away(second)

    def asks_version_of(self, source: Source) -> bool:
        """Whether a document's name has the version that the question asks for.

        2 asks for 2.1, too, and 2.0 for 2.
        """
        named = self.version and version_in(source.name)
        if not self.version or not named or named[0] != self.version[0]:
            return False
        asked = self.version[1]
        return (*named[1], *[0] * len(asked))[: len(asked)] == asked

    def _is_newer(self, first: Dating, second: Dating) -> bool:
        if first.is_called_old != second.is_called_old:
            return second.is_called_old
        versions = first.version, second.version
        if versions[0] and versions[1] and versions[0] != versions[1] and versions[0][0] == versions[1][0]:
            return versions[0] > versions[1]
        tomorrow = self.today + timedelta(days=1)  # which it is already somewhere
        upcoming = first.first > tomorrow
        if upcoming != (second.first > tomorrow):
            return not upcoming
        return first.last < second.first if upcoming else first.first > second.last

    def _years_away(self, dated: Dating) -> tuple[int, int]:
        """A sort key: smaller for dates nearer to these years; dates after them are the farthest."""
        if any(dated.first.year <= year <= dated.last.year for year in self.years):
            return 0, 0
        return (2, 0) if dated.first.year > max(self.years) else (1, -dated.last.year)

    def _excludes(self, dated: Dating) -> bool:
        return any(dated.first.year <= year <= dated.last.year for year in self.excluded)

    def days_away(self, moment: datetime | Dating, now: datetime) -> float:
        """The days between a moment and these years; for the present, its age at `now`, negative if later."""
        first, last = (moment.first, moment.last) if isinstance(moment, Dating) else 2 * (moment.date(),)
        if self.years:
            gaps = (
                max((date(year, 1, 1) - last).days, (first - date(year, 12, 31)).days) for year in self.years
            )
            return max(0, min(gaps))
        return (now.date() - last).days if isinstance(moment, Dating) else (now - moment) / DAY


def asked_time(question: str, today: date = NO_FUTURE) -> AskedTime | None:
    """The time that a question asks for, by the usual words of a dozen languages; None if it names no time.

    Without `today`, no date counts as future. A year within a name (CVE-2021-44228) is not a time, nor is one
    in a clause about the asker.
    Examples: "the current fee" -> `AskedTime()`; "the fee in 2018" -> {2018}; "before 2018" -> {2017}; "after
    2018" -> `AskedTime()`; "I came in 2018. What is the fee?" and "the fee" -> None.
    """
    years: dict[Bound, set[int]] = {"in": set(), "since": set(), "before": set(), "not": set()}
    for clause in _asking_clauses(in_common_years(question)):
        for run in _RUN.finditer(clause):
            start, end = run.start(), run.end() - bool(_GOES_ON.match(clause, run.end()))
            first, *later = _years(clause[start:end].rstrip(".:/-–_")) or [0]
            if first:
                bound = _bound(clause[max(0, start - _NEAR) : start], clause[end : end + _NEAR])
                years[bound] |= {first - 1} if bound == "before" else {first, *later}
    excluded = frozenset(years["not"])
    # "Since 2018" asks for what holds now; only other years ask for editions of their own.
    if asked_years := years["in"] | years["before"]:
        return AskedTime(frozenset(asked_years), excluded=excluded)
    if version := _asked_version(question):
        return AskedTime(version=version)
    asks = years["since"] or excluded or _PRESENT.search(question)
    return AskedTime(today=today, excluded=excluded) if asks else None


def _asked_version(question: str) -> Version | None:
    """The version that a question asks for; None if it names several, or those before or after one."""
    named = [match for match in VERSION_IN_NAME.finditer(question) if not (match["old"] or match["new"])]
    if len({match[0] for match in named}) != 1:
        return None
    start, end = named[0].span()
    bound = _bound(question[max(0, start - _NEAR) : start], question[end : end + _NEAR])
    return version_in(named[0][0]) if bound == "in" and not _BEYOND.match(question, end) else None


def _asking_clauses(question: str) -> list[str]:
    """The clauses of a question, without those about the asker if there are others."""
    clauses = _CLAUSE_END.split(question)
    return [clause for clause in clauses if not _OF_ASKER.match(clause)] or clauses


def _years(numbers: str) -> list[int]:
    """The years from the first to the last, if the text is a time; otherwise none."""
    match = _TIME.fullmatch(numbers)
    if not match:
        return []
    first = int(next(filter(None, match.group("first", "of_day", "of_quarter"))))
    last = first // 100 * 100 + int(match["last"]) % 100 if match["last"] else first
    is_span = first <= last <= first + _MOST_YEARS and (
        not match["last"] or str(last).endswith(match["last"])
    )
    return [*range(first, last + 1)] if is_span else []


def _bound(before: str, after: str) -> Bound:
    """The meaning of the words around a year."""
    for bound, pattern in _AFTER_YEAR.items():
        if pattern.match(after):
            return bound
    return next((bound for bound, pattern in _BEFORE_YEAR.items() if pattern.search(before)), "in")


def prefer_editions(hits: Sequence[Hit], wanted_time: AskedTime) -> list[Hit]:
    """The hits with their dates, best first; editions that the question doesn't ask for get lower scores.

    If the hits have a preferred edition of a hit's document, the hit's score is multiplied by
    `OTHER_EDITION`, so one that answers much better stays first. A passage that names the year is about it,
    whatever its document's date: the year may be a part of a name, as in Windows Server 2019.
    """
    datings = [dating(hit.source) for hit in hits]
    are_asked = [wanted_time.asks_version_of(hit.source) for hit in hits]
    are_editions = _editions(hits)
    asked_years = {str(year) for year in wanted_time.years}
    are_others = [
        any(
            are_asked[edition] > are_asked[index] or wanted_time.prefers(datings[edition], datings[index])
            for edition in np.flatnonzero(are_editions[index])
        )
        and asked_years.isdisjoint(words(hit.text))
        for index, hit in enumerate(hits)
    ]

    def lowered(scores: Iterable[float]) -> list[float]:
        pairs = zip(scores, are_others, strict=True)
        return [aged_score(score, OTHER_EDITION, weight=1.0) if other else score for score, other in pairs]

    # Newer hits stand before slightly better ones: only other editions lose their ranks.
    ranks = lowered(accumulate((hit.score for hit in hits), min))
    dated = [
        replace(hit, score=score, dating=dated)
        for hit, score, dated in zip(hits, lowered(hit.score for hit in hits), datings, strict=True)
    ]
    return [hit for _, hit in sorted(zip(ranks, dated, strict=True), key=lambda pair: -pair[0])]


def preferred_where_they_differ(hits: Sequence[Hit], today: date, foreign: Container[str] = ()) -> list[Hit]:
    """The hits; among near copies with different numbers, preferred editions come first.

    For a question without a time: "20 days" of 2018 and "25 days" of 2023 can't both be right now. An edition
    that isn't of a `foreign` collection is preferred, then the newer one; it swaps rank and score with the
    other. Near copies are in documents whose titles or paths are equal without dates and versions. One that
    answers much better keeps its rank. Hits whose ranks change get their dates. If no two documents share a
    name, this takes microseconds.
    """
    ranked, present = list(hits), AskedTime(today=today)
    for ranks in _ranks_of_one_name(hits):  # usually none: passages are rarely compared
        group = [hits[rank] for rank in ranks]
        datings, differing = [dating(hit.source) for hit in group], _differing_copies(group)
        are_own = [hit.source.collection not in foreign for hit in group]
        order = list(range(len(group)))
        for first, second in combinations(range(len(group)), 2):
            older, newer = order[first], order[second]
            if (
                frozenset((older, newer)) in differing
                and are_own[newer] >= are_own[older]
                and (are_own[newer] > are_own[older] or present.prefers(datings[newer], datings[older]))
                and group[newer].score >= group[older].score * OTHER_EDITION
            ):
                order[first], order[second] = newer, older
        if order != sorted(order):
            for rank, index in zip(ranks, order, strict=True):
                ranked[rank] = replace(group[index], score=hits[rank].score, dating=datings[index])
    return ranked


def differing_editions(hits: Sequence[Hit]) -> list[list[int]]:
    """The ranks of hits of documents with one name, by name, if two are near copies with other numbers."""
    return [ranks for ranks in _ranks_of_one_name(hits) if _differing_copies([hits[rank] for rank in ranks])]


def _differing_copies(hits: Sequence[Hit]) -> set[frozenset[int]]:
    """The pairs of hits that are near copies with other numbers, by their indexes."""
    bags = [frozenset(words(hit.text)) for hit in hits]
    common = jaccard(bags)
    return {
        frozenset((first, second))
        for first, second in combinations(range(len(hits)), 2)
        if common[first, second] >= NEAR_COPY and _numbers(bags[first] ^ bags[second])
    }


def with_datings(hits: Sequence[Hit], ranks: Container[int]) -> list[Hit]:
    """The same hits, with the dates of their documents at these ranks."""
    return [
        replace(hit, dating=dating(hit.source)) if rank in ranks else hit for rank, hit in enumerate(hits)
    ]


def own_and_newer_first(hits: Sequence[Hit], foreign: Container[str]) -> list[Hit]:
    """The hits in another order, with the scores of their ranks: for hits that may all be irrelevant.

    Hits that aren't of a `foreign` collection come first, then those with at least half of the best score,
    then hits with later dates of their own.
    """
    least = max((hit.score for hit in hits), default=0.0) / 2

    def sort_key(hit: Hit) -> tuple[bool, bool, float]:
        date_ = hit.source.date
        return hit.source.collection in foreign, hit.score < least, -date_.timestamp() if date_ else 0

    ordered = sorted(hits, key=sort_key)
    return [replace(hit, score=ranked.score) for hit, ranked in zip(ordered, hits, strict=True)]


def _ranks_of_one_name(hits: Sequence[Hit]) -> list[list[int]]:
    """The ranks of hits of several documents whose titles or paths are equal without dates and versions."""
    ranks_by_name: dict[str, list[int]] = {}
    for rank, hit in enumerate(hits):
        title, path = _undated_names(hit.source)
        names = (title and " ".join((title, *_LONG_NUMBER.findall(path))), path)
        ranks = next((ranks_by_name[name] for name in names if name in ranks_by_name), [])
        ranks.append(rank)
        ranks_by_name |= {name: ranks for name in names if name}  # one list, found by title and by path
    groups = {id(ranks): ranks for ranks in ranks_by_name.values()}.values()
    return [ranks for ranks in groups if len({hits[rank].source.id for rank in ranks}) > 1]


def _editions(hits: Sequence[Hit]) -> npt.NDArray[np.bool_]:
    """Which hits are of editions of one document, shape (hits, hits).

    These are hits of documents whose paths differ in dates or versions only, and passages of different
    documents that have half of their words in common, or a fifth and the same title. Documents whose names
    differ in other numbers are different things, like contracts C-2023-102 and C-2024-103.
    """
    names = [_undated_names(hit.source) for hit in hits]
    titles, paths = [title for title, _ in names], [path for _, path in names]
    are_records = _differ_in_numbers(titles) | _differ_in_numbers(paths)
    common = jaccard([frozenset(words(hit.text)) for hit in hits])
    are_one_source = _equal([f"{hit.source.collection}/{hit.source.id}" for hit in hits])
    alike: npt.NDArray[np.bool_] = (
        _equal(paths) | (common >= NEAR_COPY) | (_equal(titles) & (common >= SAME_TITLE))
    )
    return alike & ~are_one_source & ~are_records


def _equal(texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which texts are equal, and not empty; shape (texts, texts)."""
    array = np.array(texts)
    are_equal: npt.NDArray[np.bool_] = (array[:, None] == array) & (array != "")
    return are_equal


def _differ_in_numbers(texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which texts differ in long numbers only; shape (texts, texts)."""
    return _equal([_LONG_NUMBER.sub("#", text) for text in texts]) & ~_equal(texts)


def _undated_names(source: Source) -> tuple[str, str]:
    """The title and the path of a document without dates, versions and separators.

    As in `dating`, a year more than one after its ingestion is not a date.
    Example: "handbook-2018/Leave v2.md" -> "handbookleavemd"; "TCK-2044" -> "tck2044".
    """
    latest = source.ingested_at.year + 1

    def undated(name: str) -> str:
        common = in_common_years(name)
        bare = DATE_IN_NAME.sub(lambda date_: date_[0] if int(date_["year"]) > latest else "", common)
        bare = VERSION_IN_NAME.sub(lambda sign: sign[0] if sign["old"] or sign["new"] else "", bare)
        return "".join(filter(str.isalnum, bare)).casefold()

    return undated(source.title), undated(source.name)


def without_copies(
    hits: Sequence[Hit], question_words: frozenset[str], wanted_time: AskedTime, *, threshold: float
) -> list[Hit]:
    """The hits without near-duplicates: the requested edition takes the first one's place.

    A passage with a word of the question that the other one lacks is not a copy. Nor is one with other
    numbers, unless their dates tell which edition is requested: "40 pounds" or "45 pounds" may be right.
    """
    texts = [hit.text for hit in hits]
    bags = [frozenset(words(text)) for text in texts]
    datings = [dating(hit.source) for hit in hits]

    def verdict(earlier: int, later: int) -> Verdict:
        if wanted_time.prefers(datings[later], datings[earlier]):
            return "both" if (bags[earlier] - bags[later]) & question_words else "later"
        if (bags[later] - bags[earlier]) & question_words:
            return "both"
        is_copy = wanted_time.prefers(datings[earlier], datings[later]) or not _numbers(
            bags[earlier] ^ bags[later]
        )
        return "earlier" if is_copy else "both"

    places = distinct(texts, threshold=threshold, verdict=verdict)
    return [replace(hits[index], score=hits[first].score) for first, index in places.items()]


def _numbers(bag: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in bag if any(map(str.isdigit, word)))

"""Finds a cited passage again after its document was edited, using only digests of the former passages.

A document's revision is a short digest of its passages. Beside the present text, the store keeps a `mark` of
each passage of former revisions: its length and two digests. No former text is kept. White space counts as
one space, so rewrapping doesn't change a text.

A mark is first compared with the present passages. If the chunking differs, the whole text is searched: the
rolling digest of Karp and Rabin finds the few candidates, and the other digest decides (Karp & Rabin, IBM
Journal of Research and Development 31(2), 1987, doi:10.1147/rd.312.0249).
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from hashlib import blake2b
from itertools import islice, pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rag.text.plain_text import CJK, CJK_CLOSERS, CJK_END, Span

MAX_FORMER = 20  # revisions of a source that are kept
MAX_PASSAGES = 10_000  # of a kept revision: comparing two of them takes a second or two
MAX_FORMER_CHARS = 65_536  # of all marks in the source's row; some 3,600 different passages
BLOCK = 1 << 20  # characters that are searched at once
MOST_CITED = 50  # passages of a citation: each takes 10 ms per million characters of text
NEAR = 100  # characters around a position that tell whether a line or a sentence ends there
MOST_PLACES = 100  # candidates that are compared with one mark, because a text may repeat itself

Verdict: TypeAlias = Literal["stands", "changed", "gone"]
"""What became of a cited passage: it stands word for word, has changed, or is gone without a replacement."""
Codes: TypeAlias = "npt.NDArray[np.uint32]"
"""The characters of a text as numbers, each run of white space as one space."""
Sums: TypeAlias = "npt.NDArray[np.uint64]"

_MARK = struct.Struct(">II8s")
_REVISION = struct.Struct(">8sI")
_SPACES = np.array([code for code in range(0x3001) if chr(code).isspace()])
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2**64
_ENDS = re.compile(r"[.!?…:;。！？｡][\"'”’»)\]*_」』”’）》】]{0,3}\Z")
_UNSPACED = re.compile(f"[{CJK_END}{CJK_CLOSERS}{CJK}]")


def mark(passage: str) -> bytes:
    """The mark of a passage: its length, and two digests of its text."""
    codes, _ = _codes(passage.strip())
    return _MARK.pack(len(codes), _rolling(codes), _digest(codes))


def revision_of(marks: Sequence[bytes]) -> str:
    """The revision of a document with these passages: eight letters and digits, as ids have them."""
    return base64.b32encode(blake2b(b"".join(marks), digest_size=5).digest()).decode().lower()


def packed(former: Mapping[str, Sequence[bytes]]) -> str:
    """The marks of former revisions, latest first, as text; the oldest are dropped if they don't fit.

    Revisions share most of their passages, so all together take little more than the newest one.
    """
    fitting = ((name, marks) for name, marks in former.items() if len(marks) <= MAX_PASSAGES)
    entries = list(islice(fitting, MAX_FORMER))
    while entries:
        parts = [_REVISION.pack(name.encode(), len(marks)) + b"".join(marks) for name, marks in entries]
        text = base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()
        if len(text) <= MAX_FORMER_CHARS:
            return text
        entries.pop()
    return ""


def unpacked(text: str) -> dict[str, tuple[bytes, ...]]:
    """The marks of former revisions, latest first; the inverse of `packed`."""
    data, at = zlib.decompress(base64.b64decode(text)) if text else b"", 0
    former: dict[str, tuple[bytes, ...]] = {}
    while at < len(data):
        name, count = _REVISION.unpack_from(data, at)
        at += _REVISION.size
        end = at + count * _MARK.size
        former[name.decode()] = tuple(
            data[start : start + _MARK.size] for start in range(at, end, _MARK.size)
        )
        at = end
    return former


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of cited passages, and the present passages in their place: `text[start:end]`, `seqs`.

    For a passage that is gone, these are the passages where it stood.
    """

    verdict: Verdict
    span: Span
    seqs: range


@dataclass(frozen=True)
class Edited:
    """A text with passages at `spans`, and the marks of the passages of a former revision."""

    text: str
    spans: Sequence[Span]
    former: Sequence[bytes]

    def standing(self, cited: range) -> Standing:
        """What became of the passages with these numbers, taken together.

        They stand if all stand and nothing was inserted between them. They are gone if all are.
        """
        parts = [self._outcome(seq) for seq in cited]
        present = [span for verdict, span in parts if verdict != "gone"] or [span for _, span in parts]
        whole = Span(min(span.start for span in present), max(span.end for span in present))
        verdicts = {verdict for verdict, _ in parts}
        in_a_row = all(
            before.start <= after.start and not self.text[before.end : after.start].strip()
            for before, after in pairwise(present)
        )
        verdict = verdicts.pop() if len(verdicts) == 1 else "changed"
        verdict = "changed" if verdict == "stands" and not in_a_row else verdict
        return Standing(verdict, whole, self._seqs(whole))

    def _outcome(self, seq: int) -> tuple[Verdict, Span]:
        edit = next(edit for edit in self._edits if edit.first <= seq < edit.last)
        if edit.stands:
            return "stands", self.spans[edit.now_first + seq - edit.first]
        gap = self._gap(edit)
        if span := self._find(self.former[seq], gap):
            return "stands", span
        if seq > edit.first and (before := self._find(self.former[seq - 1], gap)):
            gap = Span(min(max(gap.start, before.end), gap.end), gap.end)
        if seq + 1 < edit.last and (after := self._find(self.former[seq + 1], gap)):
            gap = Span(gap.start, max(min(gap.end, after.start), gap.start))
        between = self.text[slice(*gap)]
        start = gap.start + len(between) - len(between.lstrip())
        # Without a neighbour that stands, nothing tells what came in its place.
        if not between.strip() or (len(self.former) > 1 and gap == Span(0, len(self.text))):
            return "gone", Span(gap.start, gap.start)
        return "changed", Span(start, start + len(between.strip()))

    def _gap(self, edit: _Edit) -> Span:
        """The present text in the place of an edit, between the passages that stand."""
        start = self.spans[edit.now_first - 1].end if edit.now_first else 0
        end = self.spans[edit.now_last].start if edit.now_last < len(self.spans) else len(self.text)
        return Span(start, max(start, end))

    def _seqs(self, span: Span) -> range:
        """The numbers of the passages that hold a part of the text: if possible one, else the next one."""
        for seq, passage in enumerate(self.spans):
            if passage.start <= span.start and span.end <= passage.end:
                return range(seq, seq + 1)
        overlaps = [passage.start < span.end and span.start < passage.end for passage in self.spans]
        if touched := [seq for seq, overlap in enumerate(overlaps) if overlap]:
            return range(touched[0], touched[-1] + 1)
        following = bisect_left(self.spans, span.start, key=lambda passage: passage.start)
        seq = min(following, len(self.spans) - 1)
        return range(seq, seq + 1)

    @cached_property
    def _edits(self) -> Sequence[_Edit]:
        now = [mark(self.text[slice(*span)]) for span in self.spans]
        codes = SequenceMatcher(None, self.former, now).get_opcodes()
        return [_Edit(tag == "equal", *numbers) for tag, *numbers in codes]

    @cached_property
    def _visible(self) -> tuple[Codes, npt.NDArray[np.intp], Sums]:
        codes, positions = _codes(self.text)
        return codes, positions, _sums(codes)

    @cached_property
    def _spans_by_mark(self) -> dict[bytes, list[Span]]:
        """The spans where searched passages stand as a whole, by mark."""
        return {}

    def _find(self, of_passage: bytes, near: Span) -> Span | None:
        """The span where a passage stands as a whole, the nearest to a part of the text."""
        if of_passage not in self._spans_by_mark:
            self._spans_by_mark[of_passage] = [*filter(self._is_whole, self._equal_spans(of_passage))]
        spans = self._spans_by_mark[of_passage]
        return min(spans, key=lambda span: abs(span.start - near.start), default=None)

    def _equal_spans(self, of_passage: bytes) -> Iterator[Span]:
        codes, positions, sums = self._visible
        length, rolling, digest = _MARK.unpack(of_passage)
        for start in islice(_candidates(sums, length, rolling), MOST_PLACES):
            if _digest(codes[start : start + length]) == digest:
                yield Span(int(positions[start]), int(positions[start + length - 1]) + 1)

    def _is_whole(self, span: Span) -> bool:
        """Whether the span begins and ends with lines or sentences: one more word could change the sense."""
        before = self.text[max(0, span.start - NEAR) : span.start]
        passage, after = self.text[slice(*span)], self.text[span.end : span.end + NEAR]
        return _is_apart(before, passage[0]) and (_is_line_end(after) or _ends_here(passage, after))


@dataclass(frozen=True, slots=True)
class _Edit:
    """Former passages from `first` to before `last`, and the present ones in their place."""

    stands: bool
    first: int
    last: int
    now_first: int
    now_last: int


def _is_apart(before: str, first: str) -> bool:
    """Whether a line or a sentence ends before a passage with this first character."""
    gap = before[len(before.rstrip()) :]
    is_unspaced = bool(_UNSPACED.match(first))
    return not before.strip() or "\n" in gap or bool((gap or is_unspaced) and _ENDS.search(before.rstrip()))


def _is_line_end(after: str) -> bool:
    return not after or "\n" in after[: len(after) - len(after.lstrip())]


def _ends_here(passage: str, after: str) -> bool:
    return bool(_ENDS.search(passage)) and bool(after[:1].isspace() or _UNSPACED.match(passage[-1:]))


def _codes(text: str) -> tuple[Codes, npt.NDArray[np.intp]]:
    """The characters of a text as numbers, with single spaces, and their positions."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32)
    spaces = np.isin(codes, _SPACES)
    codes[spaces] = ord(" ")
    spaces[1:] &= spaces[:-1].copy()
    spaces[:1] = False
    positions = np.flatnonzero(~spaces)
    return codes[positions], positions


def _digest(codes: Codes) -> bytes:
    return blake2b(codes.astype("<u4").tobytes(), digest_size=8).digest()


def _rolling(codes: Codes) -> int:
    return int(_sums(codes)[-1]) >> 32 if len(codes) else 0


def _sums(codes: Codes) -> Sums:
    """The sums of the characters up to each, the nth times the nth power of the base, modulo 2**64."""
    sums = np.zeros(len(codes) + 1, np.uint64)
    for at in range(0, len(codes), BLOCK):
        part = codes[at : at + BLOCK]
        sums[at + 1 : at + 1 + len(part)] = np.cumsum(part * _powers(_BASE, at, len(part))) + sums[at]
    return sums


def _powers(base: int, first: int, count: int) -> Sums:
    """`count` powers of the base, from the power `first` on, modulo 2**64."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = pow(base, first, 1 << 64)
    return np.cumprod(factors)


def _candidates(sums: Sums, length: int, rolling: int) -> Iterator[int]:
    """The positions where `length` characters have this rolling digest, in order, by the sums of a text."""
    inverse = pow(_BASE, -1, 1 << 64)
    for at in range(0, len(sums) - length if length else 0, BLOCK):
        ends = sums[at + length : at + length + BLOCK]
        windows = (ends - sums[at : at + len(ends)]) * _powers(inverse, at, len(ends))
        yield from (at + int(start) for start in np.flatnonzero(windows >> np.uint64(32) == rolling))

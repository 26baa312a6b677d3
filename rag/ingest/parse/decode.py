"""Decodes bytes by their byte order mark, a declaration or detection, and remarks on doubts.

Data that is encoded as text (Base64) is left out of the text.

Every parser decodes here. A declaration counts only if the bytes allow it: many files that declare ISO 8859-1
are UTF-8, and the reverse.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO, StringIO
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar

import webencodings

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import clean, listed_pairs
from rag.report import counted
from rag.text.plain_text import hidden_count

Line = TypeVar("Line", str, bytes)
BINARY = "binary data, not text"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROL = re.compile(r"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # not white space, bell, backspace, escape
_CONTROL_SHARE = 100  # one in 100 characters; more means binary data
_HEAD = 4096  # bytes in which a text declares its encoding
_SAMPLE = 10_000  # characters of the lines beyond ASCII that are judged; more of them change no verdict
_MOST_BYTES = 5 * _SAMPLE  # of these lines, from which an encoding is guessed

_DECLARATIONS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rb"^\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{1,40})[\"']",
        rb"^@charset\s+\"([\w.:-]{1,40})\"\s*;",  # CSS
        # PEP 263, Emacs
        rb"\A(?:[^\n]*\n)?[ \t\f]*(?:#|%|;|//|--|/\*)[^\n]{0,80}?coding[:=][ \t]*([\w.-]{1,40})",
        rb"^%\s*!tex\s+encoding\s*=\s*([\w.-]{1,40}(?: Roman)?)",
        rb"^[^%\n]*\\usepackage\s*\[\s*([\w.-]{1,40})\s*\]\s*\{inputenc\}",
        rb"^[^%\n]*\\inputencoding\s*\{([\w.-]{1,40})\}",
        rb"^[ \t\"']*content-type:[^\n]{0,120}?\bcharset=[\"']?([\w.:-]{1,40})",  # letters, gettext
        rb"^[A-Z][A-Z0-9-]{0,40}(?:;[^:\n]{0,200})?;charset=\"?([\w.-]{1,40})",  # vCard 2.1
        rb"^(?:#\+coding|:encoding):[ \t]*([\w.-]{1,40})",  # Org, AsciiDoc
    )
)
_PAGE_DECLARATION = re.compile(rb"(?i)<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{1,40})")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_NAMES = listed_pairs("""
    latin1 cp1252|latin2 iso8859-2|latin3 iso8859-3|latin4 iso8859-4|latin5 cp1254|latin9 iso8859-15
    latin10 iso8859-16|ansinew cp1252|applemac mac-roman|utf8x utf-8|utf8mb3 utf-8|utf8mb4 utf-8
    cp65001 utf-8|maccyr mac-cyrillic|koi8-ru koi8-u|isolatin cp1252|macosroman mac-roman
    cp10000 mac-roman|cp10007 mac-cyrillic|ks_c_5601 cp949|x-windows-949 cp949
    x-windows-950 big5hkscs|shift-jis cp932
""")
"""Labels of LaTeX, databases and old mail programs that the WHATWG's table doesn't have."""
_CODECS = {"gbk": "gb18030", "euc-kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs"}
"""Python's supersets of encodings, which read all that browsers read under these labels."""
_CODE_PAGES = listed_pairs("""
    iso8859-2 cp1250|iso8859-6 cp1256|iso8859-7 cp1253|iso8859-8 cp1255|iso8859-13 cp1257|iso8859-15 cp1252
""")
"""The code pages of Windows that add quotes and dashes to encodings, where these have control characters."""
_C1 = re.compile(rb"[\x80-\x9f]")
_OTHER = re.compile(
    r"(?:cp|ibm|iso8859|iso-?2022|mac|koi8|utf|hz|euc|big5|gb|johab|ptcp|kz|tis|hp|ascii)[\w-]{0,20}"
)
_ESCAPED = re.compile(r"iso-?2022|hz|utf-?7")  # encodings whose bytes are all ASCII
_SHIFT = re.compile(rb"\x1b(\([BIJ]|\$[@B])")
"""In ISO-2022-JP, to ASCII, half-width kana or Latin letters, and to two bytes a character."""
_TWO_BYTES = re.compile(rb"[\x21-\x7e]{2}")

_WESTERN = "cp1252"
_DETECTED = (
    *("windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1255"),
    *("windows-1256", "windows-1257", "windows-1258", "iso-8859-2", "iso-8859-5", "iso-8859-6", "iso-8859-7"),
    *("iso-8859-8", "iso-8859-13", "koi8-r", "koi8-u", "cp437", "cp737", "cp775", "cp850", "cp852", "cp855"),
    *("cp857", "cp862", "cp866", "cp874", "mac-roman", "mac-cyrillic", "mac-greek", "gb18030", "big5hkscs"),
    *("euc-jp", "cp932", "cp949", "iso-2022-jp", "iso-2022-kr", "hz-gb-2312", "utf-16-le", "utf-16-be"),
    *("utf-32-le", "utf-32-be", "utf-8", "ascii"),
)
_NEAR, _NEAR_OF_FEW = 0.75, 0.3  # of the best candidate's confidence: Windows-1252 with more is taken
_FEW = 2  # letters beyond ASCII, which prove nothing
_FEW_WORDS = 4  # words beyond ASCII that are less than a quarter of their lines are judged without the rest
_LOW, _FEW_BYTES = 0.6, 1_000  # of the confidence; the detector knows little of capitals
_RUSSIAN = ("cp1251", "koi8-r", "cp866")  # which it often leaves out for capitals
_UNSURE = 0.6  # of the best one's confidence; one that reads other characters with more leaves doubt
_SCRIPTS = (
    ("latin", re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u02af\u1e00-\u1eff]")),
    ("greek", re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")),
    ("cyrillic", re.compile(r"[\u0400-\u052f]")),
    ("hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("arabic", re.compile(r"[\u0600-\u06ff\ufb50-\ufdff\ufe70-\ufeff]")),
    ("thai", re.compile(r"[\u0e00-\u0e7f]")),
)
_WORD = re.compile(r"[^\W\d_]+")
_GLUED = re.compile(
    r"(?<=[^\W\d_])[^\w\s\x00-\x7f\u2010-\u2027\u2019\xad\xb7\xa0\u02bc\u0300-\u036f\u0e00-\u0fff\u3000-\u303f\u30fb\uff00-\uff65]+(?=[^\W\d_])"
)
_BETWEEN = re.compile(r"[a-z][\u3040-\ud7a3]{1,2}[a-z]")  # signs of the east in a Latin word
_STRAY = re.compile(
    r"[\x80-\x84\x86-\x9f\ufffd\ue000-\uf8ff\ufff0-\uffff\u2500-\u257f]"
    "|(?<!\\w)œ[lmprw]"  # śr, św in Windows-1250
)
_LINE = re.compile(r"([\u2500-\u257f])\1{2,}")  # ─────, which no wrong encoding makes
_FRAME = re.compile("[\u2500-\u257f]")  # of a table; in code pages of DOS, other letters look so
_SHORTEST = "авиоуксяєіїйηοήόώ"  # words of one letter in Cyrillic and Greek
_ODD = 0.2  # the share of odd words in a text that was decoded by a wrong encoding
_FOREIGN = 0.6  # the share of letters beyond ASCII that no Latin script reaches in long words
_FOREIGN_STATED = 0.8  # "Zażółć" has less, and Russian in a Latin encoding 1
_LONG = 5
_TELLING = 4  # letters of a Greek or Cyrillic word, which no Western word with accents becomes
_LATIN9 = re.compile(r"[^\W\d_][½¼¸][^\W\d_]|½(?:u|il)|(?<!\w)[¦¸][a-zß-ÿ]{2}|\d[ \xa0]?¤|¤[ \xa0]?\d")
_FRACTION = re.compile(r"\d[½¼¾]|[½¼¾](?!\w)")
"""ISO 8859-15 has œ, Œ, ž, Š and € where Windows-1252 has ½, ¼, ¸, ¦ and ¤."""
_KANA = re.compile(rb"(?:[\x00-\x7f]|[\xb3\xb6-\xc4\xca-\xce][\xde\xdf]?|[\xa1-\xdd])*+")
_VOICED = re.compile(rb"[\xde\xdf]")  # marks of voice, which stand only behind kana that have a voiced form
_NOT_RUSSIAN = re.compile(rb"[\xb1-\xbf]")  # kana, and no letters in the encodings of Russian capitals
_KANA_SHARE = 0.25  # of all bytes beyond ASCII: half of all kana are among these
_DAMAGED = 20  # characters beyond ASCII per wrong byte: such a text is damaged UTF-8, not another encoding
_DAMAGED_ONCE = 6  # the same if all wrong bytes are in one place; most mails are short
_EAST_ASIAN = {"gb18030", "big5hkscs", "cp950", "cp932", "cp949", "euc_jp", "johab"}
_NO_CHARACTER = re.compile("[\uf8f0-\uf8f3]")  # a byte without a meaning in Python's code page 932


class Decoded(NamedTuple):
    """A text without hidden characters and with LF line ends, its codec, and a remark on doubts."""

    text: str
    encoding: str
    remark: str = ""
    lost: int = 0
    """Undecodable characters, each replaced by U+FFFD."""
    hidden: int = 0
    """Removed characters that are invisible to people but not to a model."""

    def annotated(self, document: Document, *remarks: str) -> Document:
        """The document with its encoding (unless that is Unicode), losses and further remarks."""
        hidden = f"{counted(self.hidden, 'hidden character')} left out" if self.hidden else ""
        lost = f"{self.encoding}, {counted(self.lost, 'character')} lost" if self.lost else ""
        encoding = lost or ("" if self.encoding.startswith(("utf", "ascii")) else self.encoding)
        return replace(
            document,
            metadata={**document.metadata, **({"encoding": encoding} if encoding else {})},
            remarks=(*document.remarks, *filter(None, (self.remark, *remarks, hidden))),
        )


def prepare() -> None:
    """Load the detector and its tables, which takes 0.4 s and 40 MB."""
    list(_candidates("Käse".encode(_WESTERN)))


def decode(data: bytes, declared: str = "", *, page: bool = False) -> Decoded:
    """The text of a file: by its byte order mark, else by `declared` or its own declaration, else detected.

    `page` is for HTML, where a meta element declares the encoding.

    Raises:
        ParseError: the encoding can't be detected, or the file is binary.
    """
    decoded = _decode(data, declared or declared_in(data, page=page))
    controls = islice(_CONTROL.finditer(decoded.text), len(decoded.text) // _CONTROL_SHARE, None)
    if "\x00" in decoded.text or any(controls):
        raise ParseError(BINARY, "unsupported")
    return decoded._replace(text=clean(decoded.text), hidden=hidden_count(decoded.text))


def in_utf8(data: bytes, label: str) -> bytes:
    """A text with an external label of its encoding, such as HTTP's: as UTF-8 with a mark, else unchanged.

    The label overrides what the text declares, but not its byte order mark. An unknown label, or one that the
    bytes contradict, is ignored.
    """
    codec = codec_of(label)
    if not codec or b"\x00" in data or _mark_of(data):
        return data
    decoded = _decoded_as_stated(data, label, codec)
    if decoded is None or decoded.text.isascii():
        return data
    return codecs.BOM_UTF8 + decoded.text.encode("utf-8", "replace")


def recoded(data: bytes) -> bytes:
    """A text in UTF-8, whatever its encoding; binary data stays as it is."""
    if not _unicode_codec(data) and (b"\x00" in data or _CONTROL.search(data[:_HEAD].decode("latin-1"))):
        return data
    try:
        return _decode(data, declared_in(data)).text.encode("utf-8", "replace")
    except ParseError:
        return data


def rough_text(page: bytes) -> str:
    """A web page decoded by its mark or declaration, for a look at its tags; errors become U+FFFD."""
    codec = codec_of(declared_in(page, page=True))
    codec = "" if codec.startswith("utf") else codec  # it could not be read as ASCII
    return page.decode(_mark_of(page) or codec or "utf-8", "replace")


def unicode_text(data: bytes, errors: str = "strict") -> str:
    """The text of a file that people write for refdesk: by its mark, else UTF-8.

    Raises:
        ParseError: the file is in another encoding.
    """
    try:
        return data.decode(_unicode_codec(data) or "utf-8", errors)
    except UnicodeDecodeError as error:
        raise ParseError("it is not in UTF-8. Save it as UTF-8") from error


def decode_part(data: bytes, declared: str) -> Decoded:
    """The text of a part of a file; it never fails: undecodable bytes become U+FFFD, with a remark."""
    try:
        return _decode(data, declared)
    except ParseError:
        text = data.decode("utf-8" if codec_of(declared) == "utf-8" else "ascii", "replace")
        lost = text.count("\ufffd")
        statement = f"is in {declared!r}, which" if declared else "states no encoding, and"
        return Decoded(
            text, "unknown", f"a text {statement} can't be read: {counted(lost, 'character')} lost", lost
        )


def declared_in(data: bytes, *, page: bool = False) -> str:
    """The label of the encoding that a text declares in its first 4 KB, or ""."""
    head = data[:_HEAD].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    patterns = (_DECLARATIONS[0], _PAGE_DECLARATION) if page else _DECLARATIONS
    head = _COMMENT.sub(b"", head) if page else head
    matches = filter(None, (pattern.search(head) for pattern in patterns))
    return next((match[1].decode("latin-1") for match in matches), "")


def codec_of(label: str) -> str:
    """Python's codec for the label of an encoding, by the WHATWG's table; "" for an unknown label.

    Example: "gb2312" -> "gb18030"; "iso-8859-8-i" -> "iso8859-8"; "unknown-8bit" -> "".
    """
    name = label.strip("\"' \t").lower()
    name = _NAMES.get(name, name)
    encoding = None if _ESCAPED.match(name) else webencodings.lookup(name)
    if encoding:
        codec = _CODECS.get(encoding.name, encoding.codec_info.name)
        return "" if codec in {"x-user-defined", "replacement"} else codec
    name = re.sub(r"^(?:x-)?(cp|ibm|mac)[-_ ]?", r"\1", name)
    name = name.replace("ibm", "cp", 1) if name.startswith("ibm") else name
    if not _OTHER.fullmatch(name):
        return ""
    try:
        return codecs.lookup(name).name
    except (LookupError, OSError):  # where no file can be opened, no codec can be looked for
        return ""


def _mark_of(data: bytes) -> str:
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")


def _unicode_codec(data: bytes) -> str:
    return _mark_of(data) or _unmarked_unicode(data)


def decoded_unicode(data: bytes) -> Decoded | None:
    """The text of bytes with a byte order mark, or of UTF-16 or UTF-32 without one; None for others.

    Raises:
        ParseError: the bytes are damaged.
    """
    codec = _unicode_codec(data)
    try:
        return Decoded(data.decode(codec), codec) if codec else None
    except UnicodeDecodeError as error:
        raise ParseError(f"invalid {codec.removesuffix('-sig').upper()} text") from error


def is_utf8(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    return _strictly_decoded(data, "utf-8") is not None


def _decode(data: bytes, declared: str) -> Decoded:
    if decoded := decoded_unicode(data):
        return decoded
    if b"\x00" in data:
        raise ParseError(BINARY, "unsupported")
    codec = codec_of(declared)
    if decoded := _decoded_as_stated(data, declared, codec):
        return decoded
    # Damage comes before a guess: a text with one wrong byte is in no other encoding.
    names = dict.fromkeys(("utf-8", *_stated_codecs(data, codec)))
    losses = (_decoded_with_losses(data, name, stated=name == codec) for name in names)
    return next((decoded for decoded in losses if decoded), None) or _decoded_by_detection(data, declared)


def _decoded_as_stated(data: bytes, declared: str, codec: str) -> Decoded | None:
    """The text as ASCII, UTF-8 or in the declared `codec`; None if none of these fits."""
    if data.isascii():
        return _decoded_ascii(data, codec)
    if (text := _strictly_decoded(data, "utf-8")) is not None and not _is_rather_eastern(data, text, codec):
        is_narrower = codec in {"", "utf-8"} or declared.lower() in {"ascii", "us-ascii"}
        remark = "" if is_narrower else _encoding_remark(declared, "utf-8")
        return Decoded(text, "utf-8", remark)
    for name in _stated_codecs(data, codec):
        if (text := _strictly_decoded(data, name)) is not None and _is_plausible(text, name, stated=True):
            return Decoded(text, name)
    return None


def _stated_codecs(data: bytes, codec: str) -> tuple[str, ...]:
    """The codecs that a declared one may mean: with signs of Windows, the code page that extends it."""
    if codec == "big5hkscs":
        return codec, "cp950"
    if (page := _CODE_PAGES.get(codec)) and _C1.search(data):
        return (page,)
    return (codec,) if codec not in {"", "ascii"} else ()


def _unmarked_unicode(data: bytes) -> str:
    """The UTF-16 or UTF-32 codec of bytes without a mark, by the positions of their zeros, or ""."""
    head = data[: _HEAD - _HEAD % 4]
    if len(data) % 2 or b"\x00" not in head:
        return ""
    lanes = [head[at::4] for at in range(4)]  # each byte of a UTF-32 unit, or the bytes of two UTF-16 units
    little, big = (b"".join(lanes[at::2]) for at in (1, 0))  # the upper halves in both orders
    shapes = {
        "utf-32-le": not any(lanes[3]) and lanes[2].count(0) * 2 > len(lanes[2]),
        "utf-32-be": not any(lanes[0]) and lanes[1].count(0) * 2 > len(lanes[1]),
        "utf-16-le": _are_upper(little) and 0 not in big,
        "utf-16-be": _are_upper(big) and 0 not in little,
    }
    for codec in (shape for shape, fits in shapes.items() if fits):
        text = _strictly_decoded(data, codec)
        if text is not None and not _CONTROL.search(text[:_HEAD]) and _is_plausible(text, codec, stated=True):
            return codec
    return ""


def _are_upper(halves: bytes) -> bool:
    """Whether bytes are the upper halves of ASCII characters and at most one other script."""
    counts = Counter(halves)
    usual = sum(count for _, count in counts.most_common(2)) if len(halves) >= _LONG else counts[0]
    return bool(counts[0]) and usual >= 0.8 * len(halves)  # a text has some typographic signs


def _decoded_ascii(data: bytes, codec: str) -> Decoded:
    escaped = codec if _ESCAPED.match(codec) else ""
    if not escaped and (b"\x1b$" in data or b"\x1b(I" in data):
        escaped = "iso2022_kr" if b"\x1b$)C" in data else "iso2022_jp_ext"
    if escaped:
        text = _strictly_decoded(data, escaped)
        # Mail programs of Windows add ① and ㈱, which Python's codec for it refuses.
        if text is None and escaped.startswith("iso2022_jp"):
            text = _strictly_decoded(_in_code_page(data), "cp932")
        if text is not None:
            return Decoded(text, "ascii" if text.isascii() else escaped)
    return Decoded(data.decode("ascii"), "utf-8")


def _in_code_page(data: bytes) -> bytes:
    """ISO-2022-JP in the code page 932 of Windows, which has what mail programs add: ①, ㈱, 髙, ｶ."""
    parts = [b"(B", *_SHIFT.split(data)]
    recoded = []
    for shift, part in zip(parts[::2], parts[1::2], strict=True):
        if shift == b"(I":
            recoded.append(bytes(byte | 0x80 if byte > 0x20 else byte for byte in part))  # noqa: PLR2004 space
        else:
            recoded.append(_TWO_BYTES.sub(_pair_in_code_page, part) if shift.startswith(b"$") else part)
    return b"".join(recoded)


def _pair_in_code_page(pair: re.Match[bytes]) -> bytes:
    """A character of two bytes in the code page, where two rows of 94 are one (JIS X 0208, annex 1)."""
    row, cell = pair[0]
    lead = (row + 1) // 2 + (0x70 if row <= 0x5E else 0xB0)  # noqa: PLR2004 half-width kana lie between
    trail = cell + (0x7E if row % 2 == 0 else 0x1F if cell <= 0x5F else 0x20)  # noqa: PLR2004 0x7F is none
    return bytes([lead, trail])


def _is_rather_eastern(data: bytes, text: str, codec: str) -> bool:
    """Whether a short text in an East Asian encoding only happens to be valid UTF-8."""
    beyond = sum(not character.isascii() for character in text[:_HEAD])
    is_eastern = codec in _EAST_ASIAN
    return is_eastern and beyond <= 2 and max(text) < "\u0800" and _strictly_decoded(data, codec) is not None  # noqa: PLR2004


def _strictly_decoded(data: bytes, codec: str) -> str | None:
    try:
        return data.decode(codec)
    except (LookupError, ValueError, OSError):
        return None


def _decoded_with_losses(data: bytes, codec: str, *, stated: bool) -> Decoded | None:
    """A text with a few wrong bytes, or a truncated one; None if it is in another encoding.

    If several bytes are a character in the `stated` encoding, one wrong place says nothing against it.
    """
    text = _NO_CHARACTER.sub("\ufffd", data.decode(codec, "replace"))
    lost = text.count("\ufffd")
    beyond = sum(not character.isascii() for character in text) - lost
    one_place = stated and codec in {*_EAST_ASIAN, "utf-8"} and len(re.findall("\ufffd+", text)) == 1
    if not lost or lost * (_DAMAGED_ONCE if one_place else _DAMAGED) > beyond:
        return None
    if codec != "utf-8" and not _is_plausible(text.replace("\ufffd", " "), codec, stated=True):
        return None
    return Decoded(text, codec, f"{counted(lost, 'character')} of its {codec} text can't be read", lost)


def _decoded_by_detection(data: bytes, declared: str) -> Decoded:
    """The text in the encoding that is detected.

    Raises:
        ParseError: no encoding fits.
    """
    candidates = list(_candidates(data))
    if not candidates:
        contradiction = f", though it states {declared!r}" if declared else ""
        raise ParseError(f"its encoding can't be detected{contradiction}. Save it as UTF-8")
    codec, confidence, sample = candidates[0]
    # Windows-1252 is by far the most frequent of these encodings, so it needs less confidence.
    for name, rival_confidence, reading in candidates[1:]:
        letters = len(_letters(reading))
        near = _NEAR if letters > _FEW else _NEAR_OF_FEW if letters else 0  # signs alone prove nothing
        if name == _WESTERN and rival_confidence >= near * confidence:
            codec, confidence, sample = name, rival_confidence, reading
    # With signs where ISO 8859-15 has letters or euros.
    if codec == _WESTERN and _LATIN9.search(sample) and not (_FRACTION.search(sample) or _C1.search(data)):
        codec = "iso8859-15"
    rivals = [
        name
        for name, rival_confidence, reading in candidates
        if rival_confidence >= _UNSURE * confidence and _letters(reading) != _letters(sample)
    ]
    if declared:
        remark = _encoding_remark(declared, codec)
    elif codec == _WESTERN:
        remark = ""
    else:
        remark = f"it doesn't state its encoding, and was read as {codec}"
        remark += f"; it may be {rivals[0]}" if rivals else ""
    return Decoded(data.decode(codec), codec, remark)


def _is_kana(data: bytes) -> bool:
    """Whether a text beyond ASCII is half-width kana alone, as banks write them."""
    beyond = sum(byte > 0x7F for byte in data)  # noqa: PLR2004 ASCII
    is_russian = len(_NOT_RUSSIAN.findall(data)) <= beyond * _KANA_SHARE
    return not is_russian and bool(_KANA.fullmatch(data) and _VOICED.search(data))


def _letters(sample: str) -> list[str]:
    return [letter for letter in sample if not letter.isascii() and letter.isalpha()]


def _lines_beyond_ascii(text: str) -> str:
    """The lines of a text with characters beyond ASCII, up to the size of the sample."""
    return "".join(_first((line for line in StringIO(text, "\n") if not line.isascii()), _SAMPLE))[:_SAMPLE]


def _first(lines: Iterable[Line], size: int) -> Iterator[Line]:
    for line in lines:
        yield line
        size -= len(line)
        if size < 0:
            return


def _candidates(data: bytes) -> Iterator[tuple[str, float, str]]:
    """Codecs in which the bytes are plausible text, each with confidence and sample; most probable first."""
    lines = (line for line in BytesIO(data) if not line.isascii())
    sample = b"".join(_first(lines, _MOST_BYTES))[:_MOST_BYTES]
    words = b" ".join(word for word in sample.split() if not word.isascii())
    # chardet takes mostly English lines for Western, whatever script the other words are in.
    telling = words if len(words) * _FEW_WORDS < len(sample) else sample
    ranked = _confidences(telling)
    if max(ranked.values(), default=0) < _LOW:
        beginning = telling[:_FEW_BYTES]
        readings = {codec: beginning.decode(codec, "ignore") for codec in (*ranked, *_RUSSIAN)}
        for codec, reading in readings.items():
            if sum(map(str.isupper, reading)) > sum(map(str.islower, reading)):  # it knows little of capitals
                lowered = _confidences(reading.lower().encode(codec, "ignore"))
                ranked[codec] = lowered.get(codec, 0.0)
        if _is_kana(telling):  # the detector takes half-width kana for Cyrillic
            ranked["cp932"] = _LOW
        ranked = dict(sorted(ranked.items(), key=lambda entry: -entry[1]))
    ranked.setdefault(_WESTERN, 0.0)
    for codec, confidence in ranked.items():
        text = sample.decode(codec, "ignore")
        if _is_plausible(text, codec) and _strictly_decoded(data, codec) is not None:
            yield codec, confidence, _lines_beyond_ascii(text)


def _confidences(data: bytes) -> dict[str, float]:
    import chardet  # noqa: PLC0415 takes 0.4 s and 40 MB

    confidences: dict[str, float] = {}
    for offer in chardet.detect_all(data, include_encodings=_DETECTED, max_bytes=_MOST_BYTES):
        if codec := codec_of(str(offer["encoding"] or "")):
            confidences.setdefault(codec, float(offer["confidence"] or 0))
    return confidences


def _is_plausible(text: str, codec: str, *, stated: bool = False) -> bool:
    """Whether the characters that were decoded by a codec make words, rather than mojibake.

    Signs of mojibake are letters of two scripts in one word, symbols between letters, words of only accented
    letters, and single foreign letters among Latin words. Such a letter proves nothing (12 р., И. И., 5 Ω) if
    the encoding is `stated`, or the text has whole words in its script. If it is stated, nor do abbreviations
    with Russian endings, a Latin letter that was typed for the Cyrillic one that looks like it.
    """
    # Only in East Asian encodings are these frames: Cyrillic capitals in a code page of DOS look like them.
    sample = (_FRAME if codec in _EAST_ASIAN else _LINE).sub(" ", _lines_beyond_ascii(text))
    words = [word for word in _WORD.findall(sample) if not word.isascii()]
    words = [word for word in words if not (stated and _MIXED.fullmatch(word))]
    if stated or any(len(word) >= _TELLING and _is_greek_or_cyrillic(word) for word in words):
        words = [word for word in words if len(word) > 1 or not _is_greek_or_cyrillic(word)]
    glued, stray = len(_GLUED.findall(sample)), len(_STRAY.findall(sample))
    odd = sum(_is_odd(word, stated=stated) for word in words) + glued + 2 * stray
    return odd <= _ODD * (len(words) + glued + stray)


_MIXED = re.compile("[A-Z]{2,}[а-яё]+|(?=.*[а-яё]{3})[А-Яа-яЁё]*[aceopxyABCEHKMOPTX][А-Яа-яЁё]*")


def _is_odd(word: str, *, stated: bool) -> bool:
    scripts = {_script(letter) for letter in word}
    if ("latin" in scripts and len(scripts - {""}) > 1) or _BETWEEN.search(word):
        return True
    if "latin" not in scripts:
        return len(word) == 1 and _is_greek_or_cyrillic(word) and word.lower() not in _SHORTEST
    foreign = sum(not letter.isascii() for letter in word)
    is_mixed = any(
        before.islower() and after.isupper() and not (before + after).isascii()
        for before, after in pairwise(word)
    )
    share = _FOREIGN_STATED if stated else _FOREIGN
    return is_mixed or (len(word) >= _LONG and foreign > share * len(word))


def _is_greek_or_cyrillic(word: str) -> bool:
    return {_script(letter) for letter in word} <= {"greek", "cyrillic"}


def _script(letter: str) -> str:
    return next((name for name, letters in _SCRIPTS if letters.match(letter)), "")


def _encoding_remark(declared: str, codec: str) -> str:
    return f"it states {declared!r} as its encoding, and was read as {codec}"


DATA_LEFT_OUT = "[encoded data]"
LEAST = 2000  # letters and digits without a space: no word, address, key or checksum is as long
_SIGNS = "A-Za-z0-9+/_%=-"
_RUN = re.compile(  # from its beginning, so in linear time; or what a playground has behind its address
    rf"(?<![{_SIGNS}])[{_SIGNS}]{{{LEAST},}}+|(?<=#)(?:pako:)?[A-Za-z0-9+/_=-]{{{LEAST // 10},}}+"
)
_LINES = re.compile(
    r"(?:^[ \t]*+[A-Za-z0-9+/]{60,80}+\n){20,}+(?:[ \t]*+[A-Za-z0-9+/]{1,80}={0,2}[ \t]*+$)?", re.MULTILINE
)


def without_encoded_data(text: str) -> tuple[str, str]:
    """The text with a mark in place of encoded data, and a remark on its length, or "".

    Encoded data, such as a picture, is a run of 2,000 Base64 characters, or of 200 behind the "#" of an
    address, or 20 full lines of them. A megabyte makes 2,400 chunks that nobody can read or find, and takes
    minutes to embed.
    """
    shorter = _LINES.sub(_mark, _RUN.sub(_mark, text))
    if left_out := len(text) - len(shorter):
        return shorter, f"{counted(left_out, 'character')} of encoded data left out"
    return text, ""


def _mark(match: re.Match[str]) -> str:
    """The mark; text without digits or without capitals isn't encoded data, and stays."""
    run = match[0]
    return DATA_LEFT_OUT if any(map(str.isdigit, run)) and run.lower() != run else run

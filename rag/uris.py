"""Addresses: URIs of sources and chunks, addresses on the web, and pages and cells within a document.

Our URIs are refdesk://{collection}/{source_id}[@{revision}][/{seq}[-{seq}]]. With its revision, a citation
lasts: it is found again after the document was edited. What is no id, or a range that runs backwards, raises
a `NotFoundError`.

On the web: the addresses of documents, and what replies ask for: redirects, and how long to wait.

In a document: printed page numbers, also of all pages as one text ("i to iv, 1 to 120"), and cells of a
spreadsheet; A2 is the second one of the first column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from rag.errors import InvalidRequestError, NotFoundError

NOT_FOUND = "Nothing readable has this id or path. Use one from a search result or a listing."
"""The same answer for unknown, removed and forbidden sources, so it reveals nothing."""
NO_REVISION = "An id with @revision can be opened and checked. Here, leave @revision out: {}."
SCHEME = "refdesk://"
SOURCE_TEMPLATE = SCHEME + "{collection}/{source_id}"
CHUNK_TEMPLATE = SOURCE_TEMPLATE + "/{seq}"
ID_CHARS = 16
"""The length of the ids that ingestion makes."""
TAG_CHARS = 8
"""The letters that a tag appends to the ids of its originals."""
_SEQ = r"(0|[1-9][0-9]{0,8})"
REVISION_PATTERN = "@([a-z2-7]{8})"
_ID = re.compile(
    rf"([a-z2-7]{{1,32}})(?:(?<=[a-z2-7]{{{ID_CHARS}}}){REVISION_PATTERN})?(?:/{_SEQ}(?:-{_SEQ})?)?"
)
_PREFIX = re.compile(rf"{SCHEME}([a-z0-9_-]+)/|([a-z0-9_-]+)/(?=[a-z2-7]{{{ID_CHARS}}}(?:/|@|$))")


def resource_uri(collection: str, id_: str) -> str:
    """The URI of a source, chunk or range: ("handbook", "mfz…/3") -> "refdesk://handbook/mfz…/3"."""
    return f"{SCHEME}{collection}/{id_}"


PASSAGE_PAGES = "/passages"
"""The path below which a server shows passages to people."""
CITED = "cited"
"""The fragment of the cited passage on its page."""
# A shorter word in brackets belongs to a title. It has no sign that begins another one: fast to search for.
_WHOLE_ID = rf"[a-z2-7]{{{ID_CHARS}}}[a-z0-9@-]*(?:/[0-9-]*)?"
_AROUND = " \t\r\n\"'`*_()<>[]{}\u3010\u3011\u201c\u201d\u2018\u2019.,;:!"
"""What models put around an id when they copy it; the brackets of GPT's citations are U+3010 and U+3011."""
_CITED = re.compile(rf"[\[(<`:\u3010]\s*(?P<id>(?:{SCHEME}[a-z0-9_-]+/)?{_WHOLE_ID})$")
_PAGE = re.compile(rf"https?://\S*{PASSAGE_PAGES}/(?P<id>{_WHOLE_ID})(?:#{CITED})?")
_NUMBERED = re.compile(rf"#(?<=[a-z2-7]{{{ID_CHARS}}}#)([0-9]+)$")  # begins with a sign: fast to search for
_LINE = r"[Ll]?([0-9]{1,9})(?:[:C][0-9]+)?"  # perhaps with a column
_AT_LINES = re.compile(
    rf"(?!\w+://[^/]*$)(.*?\S)(?::|#(?=L)|,? lines? ){_LINE}(?:\s*[-–]\s*{_LINE})?", re.DOTALL
)


def passage_page(base: str, id_: str, revision: str | None) -> str:
    """The address of the page that shows a passage in its document, on the server at `base`.

    Example: ("https://desk.example.com", "mfzq…/5", "k3v2m7qa")
    -> "https://desk.example.com/passages/mfzq…@k3v2m7qa/5#cited".
    """
    source_id, slash, seqs = id_.partition("/")
    cited = f"{source_id}@{revision}" if revision and len(source_id) >= ID_CHARS else source_id
    return f"{base}{PASSAGE_PAGES}/{cited}{slash}{seqs}#{CITED}"


def range_id(source_id: str, first: int, last: int) -> str:
    """The id of consecutive chunks: ("mfzq", 5, 8) -> "mfzq/5-8"; of a single one its own, "mfzq/5"."""
    return f"{source_id}/{first}" if first == last else f"{source_id}/{first}-{last}"


def split_lines(name: str) -> tuple[str, tuple[int, int] | None]:
    """A name without the lines behind it, as tools and people write them, and the first and last of these.

    Example: "server.go:39", "server.go:39:5", "server.go#L39-L53" and "server.go, lines 39-53" name
    server.go; "https://desk.example:8080" has no lines.
    """
    match = _AT_LINES.fullmatch(name.strip())
    return (match[1], (int(match[2]), int(match[3] or match[2]))) if match else (name, None)


def parse_id(name: str) -> str:
    """The id of a source, chunk or range of chunks in `name`, which is such an id or a URI.

    It may have a revision, if the id of the source is a whole one.
    Example: "refdesk://handbook/mfzq/3" -> "mfzq/3"; "mfzq/5-8" and "mfzq" are ids; "mfzq/03" raises.
    """
    prefix = _PREFIX.match(name)
    id_ = name[prefix.end() :] if prefix else name
    split_citation(id_)
    return id_


def named_id(name: str) -> tuple[str | None, str]:
    """The id in `name`, and the collection if it is a URI.

    It may be as replies show it: in the brackets of a citation, behind a title, in the address of its page;
    or as models copy it, in quotes or other brackets, with a full stop. The number of a chunk may be a
    fragment.
    Example: " [mfzq/3]. " -> (None, "mfzq/3"); "refdesk://handbook/mfzq" -> ("handbook", "mfzq");
    "Handbook › Leave [mfzq…/3]" and "https://desk.example.com/passages/mfzq…/3#cited" -> (None, "mfzq…/3"),
    as "mfzq…#3"; "handbook/mfzq…/3" -> ("handbook", "mfzq…/3").
    """
    bare = name.strip(_AROUND).replace("\u2013", "-")
    if fragment := _NUMBERED.search(bare):
        bare = f"{bare[: fragment.start()]}/{fragment[1]}"
    elif shown := _PAGE.fullmatch(bare) or _CITED.search(bare):
        bare = shown["id"]
    prefix = _PREFIX.match(bare)
    return prefix and (prefix[1] or prefix[2]), parse_id(bare)


def is_like_id(name: str) -> bool:
    """Whether it has the form of an id that ingestion makes, or of one of its passages."""
    return len(_source_id(name)) == ID_CHARS


def is_surely_id(name: str) -> bool:
    """Whether it is surely meant as an id, so that an unknown one doesn't cost a look at all paths.

    A word without a digit, such as "responsibilities", may also be a title.
    """
    return is_like_id(name) and not _source_id(name).isalpha()


def _source_id(name: str) -> str:
    try:
        return split_citation(named_id(name)[1])[0]
    except NotFoundError:
        return ""


def split_id(id_: str) -> tuple[str, range]:
    """The source of an id, and the numbers of the chunks that it names; none if it names the source.

    Example: "mfzq/5-8" -> ("mfzq", range(5, 9)); "mfzq/3" -> ("mfzq", range(3, 4)).

    Raises:
        NotFoundError: it is not such an id, or its range runs backwards.
        InvalidRequestError: it has a revision.
    """
    source_id, revision, seqs = split_citation(id_)
    if revision:
        raise InvalidRequestError(NO_REVISION.format(without_revision(id_)))
    return source_id, seqs


def without_revision(id_: str) -> str:
    """The same id for the present text: "mfzq…@k3v2m7qa/5" -> "mfzq…/5"."""
    return re.sub(REVISION_PATTERN, "", id_, count=1)


def split_citation(id_: str) -> tuple[str, str | None, range]:
    """The source of an id, the revision if it has one, and the numbers of the chunks that it names."""
    match = _ID.fullmatch(id_)
    if not match:
        raise NotFoundError(NOT_FOUND)
    source_id, revision, first, last = match.groups()
    seqs = range(int(first), int(last or first) + 1) if first else range(0)
    if first and not seqs:
        raise NotFoundError(NOT_FOUND)
    return source_id, revision, seqs


MAX_ADDRESS_CHARS = 2_000
STANDARD_PORTS = {"https": 443, "http": 80}
_ALLOWED = (
    "/%:@!$&'()*+,;=~?[]"  # what a path or a query may have besides letters and digits; % is encoded already
)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLACEHOLDER = re.compile(r"\{(path|stem)\}")


def web_address(text: str) -> str | None:
    """The http or https address with forbidden characters percent-encoded; None if it is no such address.

    An address with a user name is refused: the part before the @ could pose as the host.
    Example: "https://example.org/a b?ü#c" -> "https://example.org/a%20b?%C3%BC#c"; "javascript:x" -> None.
    """
    text = text.strip()
    if not text.isprintable() or len(text) > MAX_ADDRESS_CHARS or "\\" in text:
        return None
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except ValueError:  # a port out of range, brackets that don't close, a host that is no name
        return None
    if parts.scheme not in {"http", "https"} or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", host):
        return None
    if "@" in parts.netloc:
        return None
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    encoded = (_encode(part) for part in (parts.path, parts.query, parts.fragment))
    return urlunsplit((parts.scheme, netloc, *encoded))


def _encode(part: str) -> str:
    return quote(_BARE_PERCENT.sub("%25", part), safe=_ALLOWED)


def is_template(text: str) -> bool:
    """Whether it is an address with {path} or {stem} behind its host, so that no path can change the host."""
    whole = _PLACEHOLDER.sub("x", text)
    host = urlsplit(text).netloc if web_address(whole) else "{"
    return bool(_PLACEHOLDER.search(text)) and not re.search(r"[{}]", whole + host)


def page_address(template: str, path: str) -> str | None:
    """The address of a document by its path; `{stem}` is the path without its suffix. None if it is too long.

    Example: ("https://wiki.example.com/{stem}", "hr/New hires.md") -> "https://wiki.example.com/hr/New%20hires".
    """
    file = PurePosixPath(path)
    stem = str(file.with_suffix("")) if file.name else path  # "/" has no name, and so no suffix
    address = _PLACEHOLDER.sub(lambda match: quote(path if match[1] == "path" else stem, safe="/"), template)
    return web_address(address) if path else None


_FILE_NAME = re.compile(r".*\.(?=\w*[^\W\d])\w{1,8}")  # which ends like that of a file, and not like 3.5


def names_file(text: str, collection: str, path: str) -> bool:
    """Whether a text names the file at a path of a collection, by the whole path or by the end of it.

    Example: "What is in parts.csv?" names "sheets/parts.csv"; "old/parts.csv" and "spare-parts.csv" don't.
    """
    whole, folded = (unicodedata.normalize("NFC", part).casefold() for part in (f"{collection}/{path}", text))
    parts = [*filter(None, whole.split("/"))]
    if not _FILE_NAME.fullmatch(parts[-1]) or parts[-1] not in folded:
        return False
    ends = (re.escape("/".join(parts[first:])) for first in range(len(parts)))
    pattern = rf"(?<![\w./-])(?:\.{{0,2}}/)*(?:{'|'.join(ends)})(?![\w/-]|\.\w)"
    return re.search(pattern, folded) is not None


def redirect_target(address: str, location: str) -> str:
    """Where a reply to a request for `address` redirects to, for a message to the operator.

    The query and what a server could hide in the header are left out: it may be hostile.
    Example: ("https://a.example/v1", "//b.example/v1?key=x") -> "https://b.example/v1".
    """
    try:
        target = web_address(urljoin(address, location))
    except ValueError:
        target = None
    if target is None:
        return "an address that is not valid"
    return urlsplit(target)._replace(query="", fragment="").geturl()


def seconds_asked(retry_after: str) -> float | None:
    """The seconds to wait that Retry-After asks for, None if it is missing or invalid.

    It is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 it is slow to load

    if re.fullmatch(r"[0-9]+", retry_after := retry_after.strip()):
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


PAGE_LABELS_KEY = "page_labels"
"""The key of the metadata under which a source has them."""
_LABELS_CHARS = 300  # of the whole text: with more changes, a document is cited by the places of its pages
MAX_LABELS = 20_000

_TO, _NEXT = " to ", ", "
_NUMBER = re.compile(r"(?P<prefix>.*?)(?P<number>[1-9]\d{0,5}|[ivxlcdm]+|[IVXLCDM]+)")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


def labels_text(labels: Sequence[str]) -> str:
    """The labels of all pages as a text, "" if they say no more than the places of the pages.

    Example: ["i", "ii", "1", "2", "3"] -> "i to ii, 1 to 3".
    """
    if all(label == str(number) for number, label in enumerate(labels, 1)):
        return ""
    if any(not label or _TO in label or _NEXT in label for label in labels):
        return ""
    runs: list[tuple[str, str]] = []
    for label in labels:
        if runs and label == next(islice(following_labels(runs[-1][1]), 1, None), None):
            runs[-1] = runs[-1][0], label
        else:
            runs.append((label, label))
    text = _NEXT.join(first if first == last else f"{first}{_TO}{last}" for first, last in runs)
    return text if len(text) <= _LABELS_CHARS else ""


def labels_in(text: str) -> list[str]:
    """The labels of all pages, from the output of `labels_text`; none for other texts."""
    labels: list[str] = []
    for run in text.split(_NEXT) if text else ():
        first, _, last = run.partition(_TO)
        labels.append(first)
        if last:
            count = label_value(last) - label_value(first)
            if not 0 < count <= MAX_LABELS - len(labels):
                return []
            labels += islice(following_labels(first), 1, count + 1)
            if labels[-1] != last:
                return []
    return labels


def following_labels(label: str) -> Iterator[str]:
    """A label and those that count on from it: "A-9" -> "A-9", "A-10" …; only itself if it has no number."""
    yield label
    match = _NUMBER.fullmatch(label)
    while match:
        prefix, number = match["prefix"], match["number"]
        value = label_value(label) + 1
        numeral = roman(value)
        counted = str(value) if number.isdigit() else numeral if number.islower() else numeral.upper()
        label = prefix + counted
        yield label
        match = _NUMBER.fullmatch(label)


def label_value(label: str) -> int:
    """The number at the end of a label, 0 if it has none: "xiv" -> 14, "A-3" -> 3."""
    match = _NUMBER.fullmatch(label)
    if not match:
        return 0
    number = match["number"]
    if number.isdigit():
        return int(number)
    value, remainder = 0, number.lower()
    for worth, letters in _ROMAN:
        while remainder.startswith(letters):
            value, remainder = value + worth, remainder.removeprefix(letters)
    return value


def roman(value: int) -> str:
    """A number above 0 in Roman numerals: 14 -> "xiv"."""
    numeral = ""
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        numeral += letters * count
    return numeral


_LETTERS = 26
_RANGE = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})(?::([A-Z]{1,3})([1-9]\d{0,6}))?")


def column_name(number: int) -> str:
    """The letters of a column, counted from 1: 1 -> "A", 27 -> "AA"."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, _LETTERS)
        letters = chr(ord("A") + letter) + letters
    return letters


def column_number(name: str) -> int:
    """The number of a column, counted from 1: "A" -> 1, "AA" -> 27."""
    number = 0
    for letter in name:
        number = number * _LETTERS + ord(letter) - ord("A") + 1
    return number


def cell_range(first: tuple[int, int], last: tuple[int, int]) -> str:
    """The name of the cells between two corners, each a row and a column: (2, 1), (9, 6) -> "A2:F9"."""
    names = [f"{column_name(column)}{row}" for row, column in (first, last)]
    return names[0] if names[0] == names[1] else ":".join(names)


def is_cell_range(name: str) -> bool:
    """Whether a name is one of cells: "A2:F9" and "B7" are, "A2:" and "a2" are not."""
    return bool(_RANGE.fullmatch(name))


def hull(ranges: Iterable[str]) -> str:
    """The smallest range that holds all of these: "A2:F2", "B9:C9" -> "A2:F9". None of them -> ""."""
    rows: list[int] = []
    columns: list[int] = []
    for match in filter(None, map(_RANGE.fullmatch, ranges)):
        rows += [int(match[2]), int(match[4] or match[2])]
        columns += [column_number(match[1]), column_number(match[3] or match[1])]
    return cell_range((min(rows), min(columns)), (max(rows), max(columns))) if rows else ""

"""Records (tickets, articles, rows of a table) as their readers see them, whatever format they come in.

Records with titles and texts are sections: facts as `key: value` lines, then texts, then what was listed in
the record, such as its comments. Other records, as those of a price list, are blocks of such lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

from rag.corpus import Block, Document
from rag.ingest.parse import html_page
from rag.ingest.parse.document_parts import GAP, Part, clean, compose, heading, shifted
from rag.ingest.parse.markdown import markdown_blocks
from rag.text.plain_text import one_line

Piece: TypeAlias = tuple[str, tuple[Block, ...]]
"""A text and its blocks."""

DECIMAL = "\ufdd0"  # a noncharacter before a decimal that stays as it is spelled: 1.10 is not 1.1
MOST_PARTS = 100_000  # blocks of sections: outlines are read whole, and so is the list of a file's blocks
_QUOTED_DECIMAL = re.compile(rf'"{DECIMAL}([-+.\deE]*)"')
_MARKUP = re.compile(r"</(?:p|div|h[1-6]|ul|ol|td|span|b|i|em|strong|sub|sup)>|<br ?/?>", re.IGNORECASE)
"""A sign of HTML in a value, as programs for notes write it."""
_CODE = re.compile(r"`[^`\n]+`")  # of Markdown
_DEEPEST = 6  # levels of headings
_LONGEST_TITLE = 200  # characters
_LONGEST_KEY = 20  # longer ones are for programs
_LONGEST_FACT = 100  # a longer value with words is a text
_LONGEST_LISTED = 60  # of a value that stands with others on one line
_LINES = 2  # line ends of a value that is a text
_LONGEST_LABEL = 60  # what is nested deeper stays JSON, so that labels don't outgrow values

_TITLES = (
    *("title", "subject", "summary", "shortdescription", "headline", "name"),
    *("titel", "betreff", "titre", "objet", "título", "asunto", "titolo", "oggetto", "label"),
)
_TITLES_OF_ONE = ("title", "headline")  # what else has a name may be settings
_KEYS = (
    *("issuekey", "key", "number", "iid", "idreadable", "identifier", "casenumber", "ticketnumber"),
    *("ticketid", "#", "id"),
)
"""What titles and keys of records are called, best first, without signs between words."""
_NAMES = (
    *("", "name", "displayname", "fullname", "login", "username", "title", "label", "value"),
    *("rendered", "term", "@value"),
)
"""What the name of a thing is called to which a record refers, as to its author; "" is the text of XML."""
_OF_PAIRS = ("name", "key", "id", "label", "field")
_WORDS = re.compile(r"\s|[^\x00-\x7f]")  # not in addresses and digests; some scripts have no spaces
_TEXTS = frozenset({"body", "comment", "content", "description", "message", "note", "text"})
"""Keys of texts that a record may have in other forms, too."""
_PREFIX = re.compile(r"[a-z]{1,12}:(?=\w)")  # of a vocabulary, as in "dcterms:title"
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-\w{2,8})?|@?none")  # a key of a text in several languages
_WORD, _PARTS_OF_KEY = re.compile(r"\w+"), re.compile("[_ -]")
_FOR_PROGRAMS = frozenset({"self", "id", "nodeid", "accountid", "gravatarid"})
_OF_API = re.compile(
    r"https?://(?:api\.|[^/\s]+/(?:api|rest)/|\S*(?:avatar|(?<![a-z])(?:fav)?icons?(?![a-z])))"
)
"""Keys and addresses of such a thing that tell a reader nothing."""


class Value(NamedTuple):
    """A value of a record, and what it is called.

    A page is a text that was HTML. An item is a record inside the record, as lines, such as a comment.
    """

    label: str
    text: str
    kind: Literal["fact", "text", "page", "item"] = "fact"

    @property
    def line(self) -> str:
        """The value behind its label. An item without a name begins below its label."""
        gap = "" if self.text.startswith("\n") else " "
        return f"{self.label}:{gap}{self.text}" if self.label else self.text


class _Entry(NamedTuple):
    """A record: its heading, of its key and its title, and its values, with the labels of those two.

    `as_written` has values that were lifted behind the label of what they are in.
    """

    heading: str
    has_title: bool
    has_text: bool
    values: Sequence[Value]
    as_written: Iterable[Value]
    in_heading: Collection[str]


def records_document(
    records: Iterable[Mapping[str, object]], name: str, mime_type: str, *, above: str = "", below: str = ""
) -> Document:
    """The document of a sequence of records, with the texts that stand `above` and `below` them."""
    records = [*records]
    title, metadata = record_facts(records)
    entries = [*map(_entry, records)]
    rows = (compose([_table(entry.as_written)]) for entry in entries)
    text, blocks = joined(_sections(entries) or rows)
    if above or below:
        parts = (compose([Part("paragraph", above)]), (text, blocks), compose([Part("paragraph", below)]))
        text, blocks = joined(part for part in parts if part[1])
    return Document(text, title or name, mime_type, blocks, metadata=metadata)


def record_lines(record: Mapping[str, object]) -> str:
    """The values of a record as `key: value` lines."""
    return _table(values_of(record)).text


def record_facts(values: Sequence[object]) -> tuple[str, dict[str, str]]:
    """The title of a single record, and its `url` as metadata; empty for several records.

    What linked data describes has a title by any name: "name", "label", "dcterms:title".
    """
    record = values[0] if len(values) == 1 and isinstance(values[0], dict) else {}
    title, url = (value if isinstance(value := record.get(key), str) else "" for key in ("title", "url"))
    names = _TITLES if "@context" in record else _TITLES_OF_ONE
    title = title.removeprefix(DECIMAL) or _named(record, names, _title)[1]
    return title, {"url": clean(url)} if url else {}


def reads_as_sections(records: Iterable[Mapping[str, object]]) -> bool:
    """Whether records have titles and texts, as tickets and articles have, and rows of a table have not."""
    return _are_sections([*map(_entry, records)])


def _are_sections(entries: Sequence[_Entry]) -> bool:
    """Whether all have a heading, half of them a title and a heading of their own, and a quarter a text."""
    return (
        all(entry.heading for entry in entries)
        and 2 * len({entry.heading for entry in entries}) >= len(entries)
        and 2 * sum(entry.has_title for entry in entries) >= len(entries)
        and 4 * sum(entry.has_text for entry in entries) >= len(entries)
    )


def _sections(entries: Sequence[_Entry]) -> list[Piece]:
    """A section for each of several records; none if they are rows of a table, or have too many parts."""
    pieces, count = list[Piece](), 0
    for entry in entries if len(entries) > 1 and _are_sections(entries) else ():
        values = [value for value in entry.values if value.label not in entry.in_heading]
        head = compose([heading(entry.heading, 2), facts_part(values)])
        pieces.append(joined([head, *text_pieces(values)]))
        count += len(pieces[-1][1])
        if count > MOST_PARTS:
            return []
    return pieces


def joined(pieces: Iterable[Piece]) -> Piece:
    """The pieces as one, with a blank line between them."""
    texts, blocks, at = list[str](), list[Block](), 0
    for text, parts in pieces:
        if text:
            texts.append(text)
            blocks += shifted(parts, at)
            at += len(text) + len(GAP)
    return GAP.join(texts), tuple(blocks)


def facts_part(values: Iterable[Value]) -> Part:
    """The facts among the values of a record."""
    return _table(value for value in values if value.kind == "fact")


def text_pieces(values: Sequence[Value]) -> Iterator[Piece]:
    """The texts of a record, then its items."""
    for value in values:
        if "\n" in value.text and (value.kind == "page" or (value.kind == "text" and "```" in value.text)):
            yield compose([Part("paragraph", f"{value.label}:")])
            yield text_piece(value.text, is_page=value.kind == "page")
        elif value.kind in {"page", "text"}:
            gap = GAP if "\n" in value.text else " "
            yield compose([Part("paragraph", f"{value.label}:{gap}{value.text}")])
    yield from (compose([_table([value])]) for value in values if value.kind == "item")


def text_piece(text: str, *, is_page: bool) -> Piece:
    """A text inside a section. Only headings of a page are sure to be headings: "# " can begin an item."""
    return text, tuple(
        block
        if not block.level
        else replace(block, level=min(block.level + 2, _DEEPEST))
        if is_page
        else Block("paragraph", block.start, block.end)
        for block in markdown_blocks(text)
    )


def _table(values: Iterable[Value]) -> Part:
    """Values as lines, what is listed in their record last.

    Example: {"name": "Ada", "born": 1815, "tags": ["a", "b"], "died": None} ->
    "name: Ada", "born: 1815" and "tags: a, b".
    """
    return Part(
        "table", "\n".join(value.line for value in sorted(values, key=lambda value: value.kind == "item"))
    )


def _entry(record: Mapping[str, object]) -> _Entry:
    lifted = _lifted(record)
    title_key, title = _named(lifted, _TITLES, _title)
    key, number = _named(lifted, _KEYS, _number)
    values = [*values_of(lifted)]
    in_heading = {name.strip() for name in (title_key, key) if name}
    return _Entry(
        heading=title if _begins_with(title, number) else f"{number} {title}".strip(),
        has_title=bool(title),
        has_text=any(
            value.kind in {"text", "page"} and value.label in lifted and value.label not in in_heading
            for value in values
        ),
        values=values,
        as_written=values if lifted is record else values_of(record),
        in_heading=in_heading,
    )


def _lifted(record: Mapping[str, object]) -> Mapping[str, object]:
    """A record whose title is one level deeper, as in Jira's `fields`, with all values of that level.

    A thing to which a record refers, as a source with a name, has fewer values than the record itself.
    """
    if not _named(record, _TITLES, _title)[1]:
        inner_records = ((key, inner) for key, inner in record.items() if isinstance(inner, dict))
        for key, inner in inner_records:
            if 2 * len(inner) >= len(record) and _named(inner, _TITLES, _title)[1]:
                others = {name: value for name, value in record.items() if name != key}
                return {**others, **dict(_beside(others, inner, key))}
    return record


def _beside(
    others: Mapping[str, object], inner: Mapping[str, object], label: str
) -> Iterator[tuple[str, object]]:
    """The values of an inner record, behind its label where the outer one has another value of that name."""
    for name, value in inner.items():
        is_taken = others.get(name) not in (None, "", value)
        yield f"{label} {name}" if is_taken else name, value


def _named(
    record: Mapping[str, object], names: Sequence[str], read: Callable[[object], str]
) -> tuple[str, str]:
    """The key with the best of these names that has a value, and the value as `read` has it."""
    keys = [(plain, key) for key in record if (plain := _plain(key)) in names]
    values = ((key, read(record[key])) for name in names for plain, key in keys if plain == name)
    return next((pair for pair in values if pair[1]), ("", ""))


def _plain(key: str) -> str:
    """A key without its prefix and signs between its words: "Issue key", "dc:issueKey" -> "issuekey"."""
    return _PREFIX.sub("", key.casefold()).replace(" ", "").replace("_", "").replace("-", "")


def _title(value: object) -> str:
    """A title on one line; of several, or in several languages, the first."""
    if isinstance(value, dict) and value and all(map(_LANGUAGE.fullmatch, value)):
        value = next(iter(value.values()))
    name = value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, dict) and (key := _name_key(value)) is not None:
        name = html_page.content_of(str(value[key])) if _plain(key) == "rendered" else value[key]
    line = one_line(clean(name.removeprefix(DECIMAL))) if isinstance(name, str) else ""
    return line if len(line) <= _LONGEST_TITLE else ""


def _number(value: object) -> str:
    text = str(value).strip().removeprefix(DECIMAL) if isinstance(value, str | int) else ""
    return text if len(text) <= _LONGEST_KEY and any(map(str.isdecimal, text)) else ""


def _begins_with(title: str, number: str) -> bool:
    """Whether a title begins with the key: "[ABC-1] Login fails" does; "Fix 10 bugs" has no key 1 in it."""
    return bool(re.match(rf"\W*{re.escape(number)}(?![.,-]*\w)", title)) if number else True


def values_of(record: Mapping[str, object]) -> Iterator[Value]:
    """The values of a record that aren't empty."""
    return (value for key, inner in _said_once(record) for value in _values(inner, key.strip()))


def _said_once(mapping: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Keys and values without texts that stand there in another form, too: `html_body` beside `body`."""
    for key, value in mapping.items():
        parts = _PARTS_OF_KEY.split(key)
        names = _TEXTS.intersection({parts[0], parts[-1]} - {key})
        others = (mapping.get(other) for name in names for other in {name, f"{name}_text"} - {key})
        texts = (other for other in others if isinstance(value, str) and isinstance(other, str))
        if not any(_WORD.findall(_text(value)[0]) == _WORD.findall(_text(text)[0]) for text in texts):
            yield key, value


def _values(value: object, label: str = "") -> Iterator[Value]:
    match value:
        case {"type": "doc", "content": list()} if words := _rich_text(value):
            yield from _values(words, label)
        case {"@value": text}:  # of linked data, beside its type and language
            yield from _values(text, label)
        case dict() if len(label) <= _LONGEST_LABEL:
            yield from _values_of_mapping(value, label)
        case list() if not any(isinstance(item, list) for item in value):
            yield from _values_of_list(value, label)
        case _:
            text, is_page = _text(value)
            is_long = len(text) > _LONGEST_FACT and bool(_WORDS.search(text))
            if text:
                is_text = is_long or text.count("\n") >= _LINES
                yield Value(label, text, "page" if is_page else "text" if is_text else "fact")


def _rich_text(node: object) -> str:
    """The words of a text as Jira and editors like its own store it, a line for each paragraph."""
    match node:
        case {"text": str(text), "marks": list(marks)}:
            return _with_address(text, marks)
        case {"text": str(text)} | {"attrs": {"text": str(text)}} | {"attrs": {"url": str(text)}}:
            return text
        case {"type": str(kind), "content": list(inner)}:
            gap = "" if kind in {"paragraph", "heading", "codeBlock"} else "\n"
            return gap.join(filter(None, map(_rich_text, inner)))
        case {"type": "hardBreak"}:
            return "\n"
    return ""


def _with_address(text: str, marks: Sequence[object]) -> str:
    """The words of a link with its address behind them; other words as they are."""
    for mark in marks:
        match mark:
            case {"type": "link", "attrs": {"href": str(address)}} if address and address not in text:
                return f"{text} ({address})"
    return text


def _values_of_mapping(mapping: Mapping[str, object], label: str) -> Iterator[Value]:
    """The values of an object inside a record; of one with a name, without what programs know it by."""
    name = _name_key(mapping)
    for key, inner in _said_once(mapping):
        if key == name:
            yield from _values(inner, label)
        elif name is None or not _is_for_programs(key, inner):
            yield from _values(inner, f"{label} {key.strip()}".strip())


def _name_key(mapping: Mapping[str, object]) -> str | None:
    keys = {_plain(key): key for key, value in mapping.items() if isinstance(value, str) and value.strip()}
    return next((keys[name] for name in _NAMES if name in keys), None)


def _is_for_programs(key: str, value: object) -> bool:
    is_address = isinstance(value, str) and bool(_OF_API.match(value)) and not _WORDS.search(value)
    return _plain(key) in _FOR_PROGRAMS or is_address


def _values_of_list(items: Sequence[object], label: str) -> Iterator[Value]:
    """Short items on one line, pairs of a name and a value as such, others numbered."""
    pairs = [item for item in items if _is_pair(item)]
    if pairs and len(pairs) == len(items):
        for name, value in map(dict.values, pairs):
            yield from _values(value, f"{label} {str(name).removeprefix(DECIMAL)}")
        return
    entries = [values for item in items if (values := [*_values(item)])]
    if entries and all(map(_is_short, entries)):
        yield Value(label, ", ".join(map(_listed, entries)))
        return
    for number, values in enumerate(entries, 1):
        numbered = f"{label} {number}" if len(entries) > 1 else label
        if len(values) > 1 or values[0].label:
            yield _item(numbered, values)
        else:
            yield Value(numbered, values[0].text, "page" if values[0].kind == "page" else "text")


def _is_pair(item: object) -> TypeGuard[dict[str, object]]:
    """Whether an item has a name and a value only, as custom fields have: {"id": 7, "value": "red"}."""
    if not isinstance(item, dict) or len(item) != 2:  # noqa: PLR2004 a name and a value
        return False
    (key, name), (key_of_value, _) = item.items()
    is_named = isinstance(name, str | int) and len(str(name)) <= _LONGEST_LABEL
    return is_named and _plain(key).endswith(_OF_PAIRS) and _plain(key_of_value).endswith(("value", "values"))


def _is_short(values: Sequence[Value]) -> bool:
    """Whether the values of an item are a name, perhaps with some facts, that fit on a line with others."""
    are_facts = all(value.kind == "fact" for value in values)
    return are_facts and not values[0].label and len(_listed(values)) <= _LONGEST_LISTED


def _listed(values: Sequence[Value]) -> str:
    """The values of an item inside a line: "bug (color: d73a4a)"."""
    name, *others = (value.line for value in values)
    return f"{name} ({', '.join(others)})" if others else name


def _item(label: str, values: Sequence[Value]) -> Value:
    """A record inside a record: its name behind the label, if it has one, and its other values below."""
    name = next((value.text for value in values if not value.label), "")
    return Value(label, f"{name}\n{_table(value for value in values if value.label).text}", "item")


def _text(value: object) -> tuple[str, bool]:
    match value:
        case None:
            return "", False
        case str() if _is_page(value):
            return html_page.content_of(html_page.as_opened(value)[0]), True
        case str():
            return clean(value.removeprefix(DECIMAL)).strip(), False
        case _:
            return clean(_QUOTED_DECIMAL.sub(r"\1", json.dumps(value, ensure_ascii=False))), False


def _is_page(text: str) -> bool:
    """Whether a text is HTML, not Markdown with a few tags: that has code, which HTML would take apart."""
    has_code = "```" in text and not text.lstrip().startswith("<")
    return not has_code and bool(_MARKUP.search(_CODE.sub("", text)))

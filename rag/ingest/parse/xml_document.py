"""XML as people read it: the text of documents, the entries of feeds, the values of records.

XML that configures programs stays code, because people look for its tags and attributes. News feeds (RSS,
Atom) and Evernote notes have a section for each entry; outlines (OPML) become lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from textwrap import dedent
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse import html_page, source_code
from rag.ingest.parse.document_draft import omission_remarks
from rag.ingest.parse.document_parts import (
    GAP,
    NAMED,
    Part,
    clean,
    compose,
    date,
    facts,
    heading,
)
from rag.ingest.parse.records import Piece, Value, facts_part, joined, text_piece, text_pieces, values_of
from rag.ingest.parse.typefaces import as_script, with_scripts
from rag.ingest.parse.xml_text import (
    ELEMENTS,
    HEADS,
    as_sections,
    attribute,
    fill_references,
    is_mixed,
    keep_one_reading,
    looks_like_text,
    name_of,
    named,
    parts_of,
    plain_name,
    unknown_entities,
    words,
    xml_tree,
)
from rag.report import names_briefly
from rag.text.plain_text import one_line
from rag.uris import web_address

SUFFIXES = (
    *(".xml", ".rss", ".atom", ".opml", ".enex", ".nxml", ".jats", ".docbook", ".dbk", ".dita", ".tei"),
    *(".fb2", ".csproj", ".props", ".targets", ".nuspec", ".resx", ".xaml", ".plist"),
    *(".gpx", ".kml", ".xlf", ".xliff", ".tmx", ".svd", ".rng"),
)

_TEXTS, _SETTINGS = ELEMENTS["documents"], ELEMENTS["settings"]
"""Names of the roots of texts; and of build files, settings, schemas and pictures."""
_RECORDS = frozenset({"resources"})  # of Android, whose texts have markup
_PLANNED = frozenset({"tasks"})  # of a project of Microsoft Project; others are of build tools
_MAPS = frozenset({"gpx", "kml"})
_LINES = frozenset({"trkseg", "linestring", "linearring"})
"""Lines on maps: thousands of points that a watch has written."""
_COLORS = frozenset({"style", "stylemap"})
_OF_OTHERS = "what comes from other files was left as"
_MOST = 40  # values of one record; what has more is divided
_LONG = 200  # characters: longer values are texts, which need no label
_KEYS = ("name", "key", "id", "title", "lang")
_OF_XML = ("{http://www.w3.org/XML/1998/namespace}space", "{http://www.w3.org/2001/XMLSchema-instance}")
"""The beginnings of attributes that tell programs how to read an element."""


def parse(text: str, name: str) -> Document:
    """The document of an XML file. Invalid XML is read as code, with a remark."""
    try:
        root = xml_tree(text)
    except ParseError as error:
        return _code_document(text, name, f"{error}, so it was read as it stands")
    kind = name_of(root)
    if kind in _SETTINGS and not [*named(root, _PLANNED)]:
        return _code_document(text, name)
    if kind in ROOTS:
        return feed_document(root, name)
    if kind == "opml":
        return outline_document(root, name)
    if kind in _PREPARED:
        _PREPARED[kind](root)
    lines = _take_lines(root) if kind in _MAPS else 0
    if kind == "kml":
        _open_balloons(root)
    is_text = kind in _TEXTS or (kind not in _RECORDS and looks_like_text(root))
    # References are filled in before the text is composed, which has their words then.
    elsewhere = fill_references(root) if is_text else []
    body, blocks = compose(parts_of(root) if is_text else _records(root))
    remarks = []
    if is_text and (count := len([*named(root.iter(), {"include", "coderef"})])):
        remarks.append(f"it includes other files, which were not read with it: {count}")
    if elsewhere:
        remarks.append(f"{_OF_OTHERS} [name]: {names_briefly(elsewhere, NAMED)}")
    if names := unknown_entities(text, body):
        remarks.append(f"{_OF_OTHERS} &name;: {names_briefly(names, NAMED)}")
    remarks += omission_remarks(lines, "line on a map", "lines on a map")
    document = Document(body, name, "application/xml", blocks, remarks=tuple(remarks))
    return _with_facts(document, root, has_title=is_text)


def _code_document(text: str, name: str, remark: str = "") -> Document:
    text = clean(text)
    blocks = tuple(source_code.code_blocks(text))
    return Document(text, name, "application/xml", blocks, remarks=(remark,) if remark else ())


_HEIGHTS = {"superscript": 1, "subscript": -1}


def _join_styles(root: Element) -> None:
    """Make texts whole that EndNote cuts into an element for each style."""
    for element in [*root.iter()]:
        if len(element) and all(name_of(part) == "style" for part in element):
            pairs = (("".join(part.itertext()), _HEIGHTS.get(part.get("face", ""), 0)) for part in element)
            element.text = with_scripts("".join(as_script(text, height) for text, height in pairs))
            del element[:]


def _take_lines(root: Element) -> int:
    """Remove the lines and colors of a map; the number of its lines."""
    count = len([*named(root.iter(), _LINES)])
    for element in [*root.iter()]:
        element[:] = [child for child in element if name_of(child) not in _LINES | _COLORS]
    return count


def _open_balloons(root: Element) -> None:
    """Make the HTML that a map shows in a balloon at each place the words that people read there."""
    for element in named(root.iter(), {"description"}):
        if not len(element) and "<" in (element.text or ""):
            element.text = html_page.content_of(element.text or "")


def _records(element: Element) -> Iterator[Part]:
    """The values of an element as one record; an element with many values or repeated children is divided."""
    values = list(islice(_values(element, ""), _MOST + 1))
    groups = Counter(name_of(child) for child in element if len(child))
    # Where a child repeats, as in a list of customers, each is a record of its own.
    if len(element) and (len(values) > _MOST or max(groups.values(), default=0) > 1):
        yield Part("paragraph", " ".join((element.text or "").split()))
        for child in element:
            yield from _records(child)
    elif len(values) == 1 and len(values[0][1]) > _LONG:
        yield Part("paragraph", values[0][1])
    else:
        yield Part("table", "\n".join(f"{label}: {value}" for label, value in values))


def _values(element: Element, label: str) -> Iterator[tuple[str, str]]:
    """The attributes and texts of an element and its descendants, each labelled by its path."""
    attributes = {
        plain_name(key): value
        for key, value in element.attrib.items()
        if value.strip() and not key.startswith(_OF_XML)
    }
    is_whole = not len(element) or is_mixed(element)
    text = _text_of(element) if is_whole else ""
    if text:
        key = next((name for name in _KEYS if name in attributes), "")
        label = " ".join(filter(None, (label or element.tag, attributes.pop(key, ""))))
        yield label, text
    for name, value in attributes.items():
        yield f"{label} {name}".strip(), clean(value)
    for child in () if is_whole else element:
        yield from _values(child, f"{label} {child.tag}".strip())


def _text_of(element: Element) -> str:
    """The text of a value, with its lines if it was written in lines, as code and logs are.

    Text that is only wrapped and indented with the elements around it is one line.
    """
    text = clean("".join(element.itertext())).strip("\n").rstrip()
    first, _, following = text.partition("\n")
    lines = following if first == first.lstrip() else text
    is_written_so = dedent(lines) == lines or any(line[:1].isspace() for line in dedent(lines).split("\n"))
    return text if following and is_written_so else words(element)


_TITLES = ("article-title", "book-title", "title", "refname")
_GIVEN = ("given-names", "firstname", "forename", "first-name", "givenname")
_FAMILY = ("surname", "last-name", "familyname")
_FULL = ("string-name", "collab", "personname", "persname", "name", "corpauthor", "orgname")
_DATES = frozenset({"pub-date", "pubdate", "date", "created", "revised", "publicationdate"})
_KEYWORDS = frozenset({"kwd", "keyword", "subjectterm"})


def _with_facts(document: Document, root: Element, *, has_title: bool) -> Document:
    """The document with the facts in its head, or directly below its root if it has no head."""
    head = next(named(root.iter(), HEADS), None)
    near = list(head.iter()) if head is not None else [*root, *chain(*named(root, {"refnamediv"}))]
    titles = (words(element) for tag in _TITLES for element in named([*near, *root], {tag}))
    days = (day for element in named(near, _DATES) for day in _days(element))
    return replace(
        document,
        title=next(filter(None, titles if has_title else ()), document.title),
        date=next(filter(None, map(date, days)), None),
        url=_address(near),
        metadata=facts(
            author=list(_authors(near)),
            keywords=map(words, named(near, _KEYWORDS)),
            language=attribute(root, "lang"),
            description=next(map(words, named([*near, *root], {"shortdesc"})), ""),
        ),
    )


def _authors(near: list[Element]) -> Iterator[str]:
    for element in named(near, {"author", "contrib"}):
        if name_of(element) == "author" or attribute(element, "contrib-type") in {"", "author"}:
            parts = {name_of(part): words(part) for part in reversed([*element.iter()])}
            given_name, family_name, full_name = (
                next((parts[name] for name in names if parts.get(name)), "")
                for names in (_GIVEN, _FAMILY, _FULL)
            )
            yield f"{given_name} {family_name}".strip() if family_name else full_name or words(element)


def _days(element: Element) -> Iterator[str]:
    """Candidates for a date: attributes, the elements year, month and day, or the text."""
    parts = {name_of(child): words(child) for child in element}
    year, month, day = (parts.get(name, "1").zfill(2) for name in ("year", "month", "day"))
    yield from (attribute(element, name) for name in ("when", "iso-8601-date", "date", "golive"))
    yield f"{year}-{month}-{day}"
    text = words(element)
    yield f"{text}-01-01" if text.isdecimal() else text


def _address(near: list[Element]) -> str | None:
    ids = named(near, {"article-id"})
    doi = next((words(element) for element in ids if attribute(element, "pub-id-type") == "doi"), "")
    return web_address(f"https://doi.org/{doi}") if doi else None


ROOTS = frozenset({"rss", "feed", "rdf", "en-export"})
_ENTRIES = frozenset({"item", "entry", "note"})
_CONTENT = ("encoded", "content", "description", "summary")
_MIME_TYPES = {"feed": "application/atom+xml", "en-export": "application/enex+xml"}
_ENML = re.compile(  # what HTML doesn't have
    r"<en-todo\b(?P<state>[^<>]{0,100})>"
    r"|(?P<item><li\b[^<>]{0,300}--en-checked:(?P<item_state>[^<>]{0,300})>(?:\s{0,9}<div\b[^<>]{0,300}>)?)"
    r"|(?P<encrypted><en-crypt\b[^<>]{0,300}>[^<]*)"
)
_FEED_DATES = ("pubdate", "published", "issued", "updated", "date", "modified", "created")
_OF_HEAD = frozenset({"title", "guid", "link", "creator", "author", "tag", *_CONTENT})
_OF_HEAD |= {"task", "resource", "note-attributes", "commentrss", "thumbnail"}
"""What the head and the text of an entry are made of, and what people don't read."""
_READ = frozenset({"author", "created", "updated", "date", "name", "title"})
_ADDRESS = re.compile(r"[a-z]{2,9}:\S+")  # also tag:example.org,2005:1
_SAME = 40  # letters: an excerpt begins like its text
_INDENT = "  "


def feed_document(root: Element, name: str) -> Document:
    """The document of a feed: for each entry its date, author, address and text."""
    channel = next(named(root, {"channel"}), root)
    entries = [*_outermost_entries(root)]
    text, blocks = joined(piece for entry in entries for piece in _entry(entry))
    about = {name_of(child): words(child) for child in reversed(channel) if name_of(child) not in _ENTRIES}
    attached = sum(len([*named(entry, {"resource"})]) for entry in entries)
    return Document(
        text=text,
        title=about.get("title", "") or name,
        mime_type=_MIME_TYPES.get(name_of(root), "application/rss+xml"),
        blocks=blocks,
        url=web_address(_feed_address(channel)),
        metadata=facts(
            author=about.get("author") or about.get("managingeditor"),
            language=about.get("language") or attribute(root, "lang"),
            description=about.get("description") or about.get("subtitle"),
        ),
        remarks=tuple(omission_remarks(attached, "attachment")),
    )


def _outermost_entries(element: Element) -> Iterator[Element]:
    """The entries of a feed without those inside an entry, which are values of it."""
    for child in element:
        if name_of(child) in _ENTRIES:
            yield child
        else:
            yield from _outermost_entries(child)


def composed_entries(entries: Iterable[tuple[Iterable[Part], str]]) -> Piece:
    """The text and blocks of entries, each a head and a body in Markdown."""
    return joined(
        piece for head, body in entries for piece in (compose(head), text_piece(body, is_page=True))
    )


def _entry(entry: Element) -> Iterator[Piece]:
    """An entry of a feed: its heading, its facts, its text, and other texts, such as comments."""
    texts = {name: next(filter(None, map(_body, named(entry, {name}))), "") for name in _CONTENT}
    key = next((name for name in _CONTENT if texts[name]), "")
    tasks = "\n".join(_task(task) for task in named(entry, {"task"}))
    body = GAP.join(filter(None, (texts.pop(key, ""), tasks)))
    in_body = _letters(" ".join((body, *map(words, named(entry, {"title"})))))
    others = {name: text for name, text in texts.items() if _letters(text)[:_SAME] not in in_body}
    day = _day(entry)
    facts = (element for element in entry if not _is_in_head(element, day))
    values = [*values_of(_values_by_name(facts)), *(Value(*text, "page") for text in others.items())]
    yield compose([*_head(entry), facts_part(values)])
    yield text_piece(body, is_page=True)
    yield from text_pieces(values)


def _head(entry: Element) -> Iterator[Part]:
    values = {name_of(child): words(child) for child in reversed(entry)}
    title = next(filter(None, map(_entry_title, named(entry, {"title"}))), "")
    title = title or values.get("id", "") or values.get("guid", "")
    attributes = [inner for child in named(entry, {"note-attributes"}) for inner in child]
    people = map(words, named([*entry, *attributes], {"creator", "author"}))
    tags = [f"#{words(tag)}" for tag in named(entry, {"tag"})]
    source = next(map(words, named(attributes, {"source-url"})), "")
    day = _day(entry)
    names = dict.fromkeys((*people, *tags))  # podcasts state their author twice
    about = [f"{day:%Y-%m-%d}" if day else "", ", ".join(names), _feed_address(entry) or source]
    yield heading(title, 2)
    yield Part("paragraph", " · ".join(filter(None, about)))


def _entry_title(title: Element) -> str:
    """The title of an entry, which Atom may call HTML: "A &amp; B" in it is "A & B"."""
    text = words(title)
    return one_line(html_page.content_of(text)) if attribute(title, "type") == "html" else text


def _day(entry: Element) -> datetime | None:
    values = {name_of(child): words(child) for child in reversed(entry)}
    return next((day for key in _FEED_DATES if (day := date(values.get(key, "")))), None)


def _is_in_head(element: Element, day: datetime | None) -> bool:
    """Whether the head or the text of an entry says what an element of it says, or people don't read it."""
    name = name_of(element)
    if name in _FEED_DATES:
        moment = date(words(element))
        return bool(moment and day and moment.date() == day.date())
    is_picture = "image" in f"{element.get('type')} {element.get('medium')}"
    is_address = name in {"id", "comments"} and bool(_ADDRESS.fullmatch(words(element)))
    return name in _OF_HEAD or is_picture or is_address


def _letters(text: str) -> str:
    """The letters and digits of a text: a page and its excerpt differ in signs."""
    return "".join(filter(str.isalnum, text))


def _values_by_name(elements: Iterable[Element]) -> dict[str, object]:
    """The values of elements; those of one name are a list."""
    values: dict[str, list[object]] = {}
    for element in elements:
        values.setdefault(element.tag, []).append(_value(element))
    return {name: several if len(several) > 1 else several[0] for name, several in values.items()}


def _value(element: Element) -> object:
    """The value of an element: a text, a list of what it holds if that has one name, or a mapping.

    The attributes of a text tell programs what it is, but for those that people read.
    """
    is_whole = not len(element) or is_mixed(element)
    text = _text_of(element) if is_whole else ""
    values = {} if is_whole else _values_by_name(element)
    facts = {
        plain_name(key): value
        for key, value in element.attrib.items()
        if not key.startswith(_OF_XML) and (plain_name(key) in _READ or not (text or values))
    }
    if facts or len(values) > 1:
        return {**facts, **values, **({"": text} if text else {})}
    listed = next(iter(values.values()), [])
    return text if is_whole else listed if isinstance(listed, list) else [listed]


def _body(content: Element) -> str:
    inner = "".join(ET.tostring(child, encoding="unicode") for child in content)
    page = _ENML.sub(_as_html, f"{content.text or ''}{inner}")
    return html_page.content_of(page) if "<" in page or "&" in page else words(content)


def _as_html(enml: re.Match[str]) -> str:
    """A box of a check list as a control, in older and newer notes; and a word for what is encrypted."""
    if enml["encrypted"]:
        return "(encrypted)"
    is_done = "true" in (enml["state"] or enml["item_state"])
    return f'{enml["item"] or ""}<input type="checkbox" {"checked" if is_done else ""}>'


def _task(task: Element) -> str:
    """A task of Evernote 10: "- [ ] Call Ann (due 2024-11-30)"."""
    values = {name_of(child): words(child) for child in task}
    tick, due = "x" if values.get("taskstatus") == "completed" else " ", date(values.get("duedate", ""))
    return f"- [{tick}] {values.get('title', '')}" + (f" (due {due:%Y-%m-%d})" if due else "")


def _feed_address(element: Element) -> str:
    """The address of the web page: the text of a link, or its target unless it points to the feed."""
    links = (link for link in named(element, {"link"}) if attribute(link, "rel") in {"", "alternate"})
    targets = (words(link) or attribute(link, "href") for link in links)
    return next(filter(None, targets), "")


def outline_document(root: Element, name: str) -> Document:
    """The document of an outline: its entries as a list, with their notes and addresses."""
    title = next(map(words, named(root.iter(), {"title"})), "")
    body = next(named(root, {"body"}), root)
    text, blocks = compose([Part("list", "\n".join(_outlines(body, 0)))])
    return Document(text, title or name, "text/x-opml", blocks)


def _outlines(element: Element, depth: int) -> Iterator[str]:
    for entry in element:
        label = attribute(entry, "text") or attribute(entry, "title")
        address = attribute(entry, "xmlurl") or attribute(entry, "url") or attribute(entry, "htmlurl")
        note = attribute(entry, "_note")
        yield f"{_INDENT * depth}- {': '.join(filter(None, (label, note, address)))}"
        yield from _outlines(entry, depth + 1)


_PREPARED: dict[str, Callable[[Element], None]] = {
    "dokumente": as_sections,
    "xml": _join_styles,
    **dict.fromkeys(("tei", "tei.2", "teicorpus"), keep_one_reading),
}
"""What changes the elements of a document before it is read, by its root."""

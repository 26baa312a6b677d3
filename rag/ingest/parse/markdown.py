"""Markdown: CommonMark with pipe tables and front matter; and MDX, which is Markdown with JSX.

What the components of MDX show stays: the text inside them, and that in attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from rag.corpus import Block, BlockKind, Document
from rag.ingest.parse.document_draft import omission_remarks, unread_files
from rag.ingest.parse.document_parts import (
    Lines,
    alternative_text,
    block,
    line_blocks,
    listed_names,
    shifted,
    title_line,
    with_facts,
)
from rag.ingest.parse.front_matter import ACCESS_KEYS, readable_lines, split_date, split_front_matter
from rag.ingest.parse.text_and_settings import parse_yaml
from rag.ingest.parse.titles_and_questions import heading_words, markdown_title
from rag.text.plain_text import one_line, without_note_ids

if TYPE_CHECKING:
    from markdown_it.token import Token

MIME_TYPE = "text/markdown"
SUFFIXES = (".md", ".markdown", ".mdown", ".mkd", ".qmd", ".rmd")

_PARSER = MarkdownIt("commonmark").enable("table")
_PARSER.disable("reference")  # its lines wouldn't be in any block
_PARSER.core.ruler.enableOnly(["normalize", "block"])  # inline markup is not needed

_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}
_SENTENCE = 3  # words, at least
_BREAK = "  "  # Markdown's line break; by it, a stored text that is parsed again has the same properties
_PROPERTIES = re.compile(rf"(?:[^\W\d_][\w -]{{0,60}}: [^\n]*\S{_BREAK}\n)+(?=\n)")
_ACCESS = re.compile(
    rf"^[\"']?(?:{'|'.join(sorted(ACCESS_KEYS))})[\"']?[ \t]*[:=][^\n]*(?:\n[ \t-][^\n]*)*+\n?",
    re.MULTILINE | re.IGNORECASE,
)
_SLICE = 1 << 18  # characters; parsing takes some twenty bytes of memory per character
_HEADING_OR_FENCE = re.compile(r"^(?:#{1,6} |(?P<fence> {0,3}(?:```|~~~)))", re.MULTILINE)

_HINT = re.compile(
    r"%%|[ \n]\^[\w-]|!\[\[|::|:LOGBOOK:|\ntype_: |<!--|<a[ \t]|\{\{#|\{%|/\*|<s(?:cript|tyle)", re.IGNORECASE
)
_INCLUDES = re.compile(  # of mdBook, MkDocs, Jekyll, Hugo and VitePress
    r"^[ \t>]*(?:\{\{#(?:include|rustdoc_include|playground|playpen|shiftinclude|template)[ \t]+([^{}\s:]+)"
    r"|-+8<-+[ \t]+[\"']([^\"'\n]+)[\"']"
    r"|\{%-?[ \t]*include(?:-markdown|_relative)?[ \t]+[\"']?([^\s\"'%]+)(?<!\.html)[\s\"'%]"
    r"|\{\*[ \t]+([^\s*]+)|\{![ \t]*([^\s!]+)[ \t]*!\}"
    r"|\{\{[<%][ \t]*(?:readfile|include|snippet)[ \t]+(?:file[ \t]*=[ \t]*)?[\"'`]?([^\s\"'`]+)"
    r"|<!--[ \t]*@include:[ \t]*([^\s>]+?)[ \t]*-->"
    r"|<<<[ \t]+([^\s{]+))",
    re.MULTILINE,
)
_IN_LIST_OR_QUOTE = r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
_INDENTED = r"(?: {4}|\t)(?![ \t]*(?:[-*+]|\d{1,9}[.)]|:LOGBOOK:|id::|collapsed::))[^\n]*"
_PERCENT = (  # two signs in an address, around a variable's name, in a format as of printf, behind numbers
    r"https?://(?:[^\s%<>]|%(?!%)|%%[0-9a-f]{2}|%%(?-i:[A-Z_]+)%%)+"
    r"|(?!^%%\w+%%[ \t]*$)%%(?:\{[^%\n]*|(?-i:[A-Z_]+))%%"
    r"|%[-+#0]{0,4}[\d*]{0,3}(?:\.[\d*]{1,3})?[a-z]%%"
    r"|\d%%(?!\w)|\d[ \xa0]%%(?!\w)[^%\n]*\d[ \xa0]?%%(?!\w)"
    r"|%{4,}"
)
_NEXT_BLOCK = r"[ \t]*\n|[ \t>]*(?:[|#]|`{3}|~{3}|(?:[-*+]|\d{1,9}[.)])[ \t])|\Z"
_INSIDE = rf"(?:\[\[[^\[\]\n]*\]\]|[^%%\n%s]|%%(?!%%)|\n(?!{_NEXT_BLOCK}))*+"
_OBSIDIAN_COMMENT = (  # in its notes; %%i is a variable; a row of a table has comments within its cells
    r"^[ \t]*%%(?![%{])(?=(?:[^%\n]|%(?!%))*(?:%%[ \t]*)?$)(?s:.*?)(?:%%|\Z)"
    r"|(?<!\\)%%(?!\{)"
    rf"(?={_INSIDE % '|'}%%|{_INSIDE % ''}%%(?![^|\n]*\|))"
    rf"(?:(?=\s){_INSIDE % ''}%%|(?!\s){_INSIDE % ''}(?:(?<!\s)%%|%%(?!\w)))"
)
_OF_GITBOOK = "hint|tabs?|columns?|stepper|step|code|content-ref"
_IN_TAG = r"(?:[^%\n]|%(?!\}))*"  # width="50%" has a sign of its own
_UNSHOWN = re.compile(
    rf"(?P<code>^{_IN_LIST_OR_QUOTE}(?P<fence>`{{3,}}|~{{3,}})[^\n]*\n(?s:.*?)(?:^[ \t>]*(?P=fence)|\Z)"
    r"|`[^`\n]+`"
    r"|\{%-?[ \t]*highlight\b(?:[^{]|\{(?!%-?[ \t]*(?:end)?highlight\b))*+\{%-?[ \t]*endhighlight"
    r"|<pre\b(?:[^<]|<(?!/?pre\b))*+</pre"
    rf"|(?:(?<=\n\n)|\A){_INDENTED}(?:\n{_INDENTED})*"  # right below a paragraph it would belong to it
    rf"|{_PERCENT})"
    r"|\{/\*[ \t]?[^\s*{}]{1,300}[ \t]?\*/\}"  # the id of a heading in MDX, whatever the file is called
    rf"|(?P<comment>{_OBSIDIAN_COMMENT}|<!--(?:[^<]|<(?!!--)){{0,5000}}?-->"
    r"|\{[ \t]?/\*(?:[^{*]|\{(?![ \t]?/\*)|\*(?!/)){0,5000}+\*/[ \t]?\})"
    r"|^ {0,3}<(?P<tag>script|style)\b(?:[^<]|<(?!/?(?P=tag)\b))*+</(?P=tag)>"
    rf"|^[ \t>]*\{{%[ \t]*(?:@{_IN_TAG}+|(?:end)?(?:{_OF_GITBOOK})\b[ \t]*+(?:(?=[\w-]+=)"
    rf"(?>{_IN_TAG}?\btitle=\"(?P<label>[^\"\n]*)\")?{_IN_TAG}+)?)%\}}[ \t]*+$"
    r"|<a[ \t]+(?:id|name)=(?:\"[^\"<>\n]*\"|'[^'<>\n]*'|[\w.:-]+)[ \t]*/?>(?:(?P<anchored>[^<\n]*)</a>)?"
    r"|(?<!\\)\{\{#(?:title|quiz)[ \t]+[^{}\n]*\}\}"
    r"|(?:^|[ \t])\^(?:[a-z][a-z0-9-]+|[0-9a-f]{6})[ \t]*+$"  # the id of a block
    r"|(?P<picture>!\[\[[^\[\]\n]+\.(?:png|jpe?g|gif|svg|webp|bmp|avif)(?:[|#][^\[\]\n]*)?\]\])"
    r"|^[ \t]*(?:id:: [0-9a-f]{8}-[0-9a-f-]{27}|collapsed:: (?:true|false))[ \t]*+(?:\n|\Z)"
    r"|^[ \t]*:LOGBOOK:(?s:.{0,5000}?):END:[ \t]*+(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_JOPLIN = re.compile(r"\n\nid: [0-9a-f]{32}\n(?:[a-z_]+:[^\n]*\n){1,60}type_: \d+\s*\Z")


def parse(text: str, name: str) -> Document:
    """The document of a Markdown file, without front matter and the internal markup of note programs."""
    (entries, remarks), body = split_front_matter(text)
    # As on the home pages of many sites: sentences in parts of it.
    if not body.strip() and any(
        "." in key and len(words.split()) >= _SENTENCE for key, words in entries.items()
    ):
        page = parse_yaml(_ACCESS.sub("", text.strip("-+ \n")), name)
        stated = (entries[key] for key in ("title", "hero.title", "hero.name") if entries.get(key))
        page = replace(page, title=next(stated, page.title), mime_type=MIME_TYPE, remarks=remarks)
        return _stated(page, entries)
    # Before blocks are looked for: their places must be those in the text that stays.
    body, omissions = _without_internal_markup(without_note_ids(body))
    head = lines[0] if (lines := _PROPERTIES.match(body)) else ""
    body = body[len(head) :]
    blocks = tuple(markdown_blocks(body))
    title = markdown_title(body, name, blocks, entries) or name
    blocks = tuple(_with_versions_on_one_level(blocks))
    remarks = (*remarks, *omissions, *_unread_includes(text, _INCLUDES))
    document = Document(body, title, MIME_TYPE, blocks, remarks=remarks)
    return _stated(_with_properties(document, head, entries), entries)


def _with_versions_on_one_level(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks of a changelog whose patch releases stand a level lower, as semantic-release writes them.

    Such a heading ("### 3.1.1") would be below another release, and beside its own "### Bug Fixes". It gets
    the level of that release, or the first one that of the outermost releases. But 3.2.1 stays below 3.2.
    """
    headings = (part for part in blocks if part.kind == "heading")
    numbers = {part.start: match[1] for part in headings if (match := _VERSION_HEADING.fullmatch(part.title))}
    outermost = min((part.level for part in blocks if part.start in numbers), default=0)
    above: list[Block] = []  # the headings that a block stands below
    for part in blocks:
        if part.kind != "heading":
            yield part
            continue
        above = _shallower(above, part.level)
        level, parent = part.level, above[-1] if above else None
        if number := numbers.get(part.start):
            if parent and parent.start in numbers and not number.startswith(f"{numbers[parent.start]}."):
                level = parent.level
            elif not parent or parent.level < outermost:
                level = outermost
        above = [*_shallower(above, level), replace(part, level=level)]
        yield above[-1]


def _shallower(headings: Sequence[Block], level: int) -> list[Block]:
    return [heading for heading in headings if heading.level < level]


_DAY = r"[0-9][\W\d_]*|[A-Z][a-z]+\.? [0-9]{1,2},? [0-9]{4}\W*|[0-9]{1,2}\.? [A-Z][a-zä]+ [0-9]{4}\W*"
_VERSION_HEADING = re.compile(rf"\[?v?([0-9]+(?:\.[0-9]+)+(?:-[\w.]+)?)\]?[\W_]*(?:{_DAY})?")
"""A version, and at most a date behind it: "3.1.1 (2024-05-30)"."""


def _with_properties(document: Document, head: str, entries: Mapping[str, str]) -> Document:
    """The document with the properties that people read above it, after a `head` of the text that has some.

    They are a heading without title: it stays with the text below and names no section.
    """
    lines = _without_internal_markup("\n".join(readable_lines(entries, document.title)))[0].splitlines()
    head += "".join(f"{line.rstrip()}{_BREAK}\n" for line in lines)
    if not head:
        return document
    text = document.text.lstrip("\n")
    below = shifted(document.blocks, len(head) + 1 + len(text) - len(document.text))
    blocks = (*block(head, "heading", 0, len(head)), *below)
    return replace(document, text=f"{head}\n{text}", blocks=blocks)


def _stated(document: Document, entries: Mapping[str, str]) -> Document:
    day, others = split_date(entries)
    metadata = with_facts({key: value for key, value in others.items() if key != "title"})
    return replace(document, date=day, metadata=metadata)


def _without_internal_markup(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without comments and internal markup of programs for notes, books and sites, and a remark.

    Internal markup is ids, pictures, anchors, scripts and tags without words. Code stays.
    Example: "Seen. ^intro %%unseen%%" -> ("Seen.", ("1 comment was left out",)).
    """
    if not _HINT.search(text):  # as in most texts
        return text, ()
    comments = 0

    def shown(match: re.Match[str]) -> str:
        nonlocal comments
        comments += bool(match["comment"])
        if match["label"]:
            return f"**{match['label']}**"
        return "(picture)" if match["picture"] else match["code"] or match["anchored"] or ""

    body = _UNSHOWN.sub(shown, _JOPLIN.sub("", text))
    return body, tuple(omission_remarks(comments, "comment"))


def _unread_includes(text: str, includes: re.Pattern[str]) -> list[str]:
    """A remark on the files that the generator of a site would put into this one."""
    return unread_files(next(filter(None, match.groups())) for match in includes.finditer(text))


def markdown_blocks(text: str) -> Iterator[Block]:
    """The blocks of a Markdown text. A code block inside a list or a quotation is a block of its own."""
    for start, end in _slices(text):
        part = text[start:end]
        lines = _without_gaps(_parts(_PARSER.parse(part)), part.count("\n") + 1)
        yield from line_blocks(text, lines, start, end)


def _slices(text: str) -> Iterator[tuple[int, int]]:
    """Slices of a large text that end before headings: parsing it at once would take too much memory."""
    start, in_code = 0, False
    for mark in _HEADING_OR_FENCE.finditer(text):
        if mark["fence"]:
            in_code = not in_code
        elif not in_code and mark.start() - start > _SLICE:
            yield start, mark.start()
            start = mark.start()
    yield start, len(text)


def _parts(tokens: Sequence[Token]) -> Iterator[Lines]:
    """Top-level blocks, each followed by the code blocks inside it."""
    for token, following in pairwise([*tokens, *tokens[-1:]]):
        kind = _KINDS.get(token.type, "paragraph")
        if token.map and (token.level == 0 or kind == "code"):
            level = int(token.tag[1]) if kind == "heading" else 0
            title = heading_words(following.content) if kind == "heading" else ""
            yield Lines(kind, token.map[0], token.map[1], level, title)


def _without_gaps(parts: Iterator[Lines], lines: int) -> Iterator[Lines]:
    """The parts without overlap and without gaps. A code block inside a list cuts the list in two."""
    outer, at = Lines("paragraph", 0, 0), 0  # the top-level block, and the first line that is in no part yet
    for part in parts:
        if at < part.first:
            yield outer._replace(first=at, last=part.first)
        if part.last <= outer.last:
            yield part
            at = part.last
        else:
            outer, at = part, part.first
    yield outer._replace(first=at, last=lines)


MDX_SUFFIXES = (".mdx",)

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(
    r"^(?:import\s(?:[^;\n'\"]|\n(?!\n)){0,1000}?['\"][^'\"\n]+['\"];?|export\s(?:default|const|let|var|function|async|\{|\*)"
    r"(?:[^\n]|\n(?!\n))*)[ \t]*$",
    re.MULTILINE,
)
_IMPORTED = re.compile(
    r"^import[ \t][^'\"\n]+[ \t]from[ \t]+['\"](?:!!raw-loader!([^'\"\n]+)|([^'\"\n]+\.mdx?)['\"])",
    re.MULTILINE,
)
_COMMENT = re.compile(r"\{\s{0,9}/\*.{0,3000}?\*/\s{0,9}\}|<!--.{0,3000}?-->", re.DOTALL)
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_TAG = re.compile(
    r"""(?P<code>`[^`\n]+`)|(?<!`)<(?P<closing>/?)(?P<name>[A-Z][\w.]*)(?P<attributes>(?:[^<>{}"']|"[^"]*"|'[^']*'"""
    rf"""|{_BRACES})*?)(?P<alone>/?)>"""
)
_CLOSING = re.compile(r"</([A-Z][\w.]*)\s*>")
_FRAGMENT = re.compile(r"^[ \t]*</?>[ \t]*$", re.MULTILINE)
_EXPORTED = re.compile(
    r"""export const (?:metadata|meta|frontMatter)\b[^\n]*?(?:\n[^\n]+?){0,20}?\btitle:\s*(["'`])(.+?)\1"""
)
_GAPS = re.compile(r"\n(?:[ \t]*\n){2,}")
_INDENT = 2  # spaces before the content of a component
_DEPTH = 10  # components within components: people stop earlier

_ATTRIBUTE = re.compile(rf"""([A-Za-z][\w-]*)(?:\s*=\s*("[^"]*"|'[^']*'|{_BRACES}))?""")
_LITERAL = re.compile(r"""\{?\s*(?:"([^"]*)"|'([^']*)'|`([^`$]*)`|(true|-?\d[\d.]*))\s*\}?""")
_ITEM = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_LIST = re.compile(r"""\{\s*\[\s*(?:["'][^\[\]{}]*["'],?\s*)?\]\s*\}""")
_LABELS = ("title", "label", "heading", "summary", "question", "query", "path", "body", "header", "param")
"""Attributes that are the heading of a component, as a field's name is."""
_NAMED = re.compile(
    r"Field|Param|Prop|Option|Arg|Response|Attribute|Header|Variable|File|Folder|Item|Setting"
)
"""Components whose `name` and `type` a reader sees."""
_FACTS = ("type", "default", "required", "deprecated", "optional", "since", "version", "status", "method")
_TEXTS = listed_names("text caption description subtitle tip tooltip content message note answer tags")
_NO_TEXTS = {*_LABELS, *_FACTS} | listed_names("""
    classname class style d sizes srcset viewbox allow sandbox points src href items
""")
_CALLOUTS = re.compile(
    r"Note|Tip|Info|Warning|Caution|Danger|Important|Pitfall|Deprecated|Check|Hint|Success|Error|Wip|Canary"
    r"|Experimental|Gotcha|DeepDive|YouWillLearn"
)
_SPACE_BEFORE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_TAGS = re.compile(r"<[^<>]*>")
_NEAR = 300  # characters before a tag that tell whether it is within a line


def parse_mdx(text: str, name: str) -> Document:
    """The document of an MDX file, without imports, exports, comments and tags of components."""
    exported = _EXPORTED.search(text)
    document = parse(_plain_markdown(text), name)
    title = title_line(exported[2]) if exported and document.title == name else document.title
    remarks = (*document.remarks, *_unread_includes(_FENCED.sub("", text), _IMPORTED))
    return replace(document, title=title, mime_type="text/mdx", remarks=remarks)


def _plain_markdown(text: str) -> str:
    """The Markdown in an MDX text. Code stays as it is, except for its indentation inside components."""
    pieces: list[str] = []
    at, opened = 0, list[_Component]()
    closed = frozenset(_CLOSING.findall(text))
    for code in _FENCED.finditer(text):
        pieces.append(_without_jsx(text[at : code.start()], opened, closed))
        pieces.append(_without_indent(code[0], len(opened)))
        at = code.end()
    return "".join([*pieces, _without_jsx(text[at:], opened, closed)])


@dataclass(slots=True)
class _Component:
    """An open component: the text that it shows behind its content, and labels for those inside."""

    behind: str = ""
    labels: list[str] = field(default_factory=list)


def _without_jsx(text: str, opened: list[_Component], closed: frozenset[str]) -> str:
    """A text without JSX. Its tags open and close components in `opened`; `closed` are names of end tags."""
    text = _FRAGMENT.sub("", _COMMENT.sub("", _MODULE.sub("", text)))
    pieces: list[str] = []
    at = 0
    for tag in _TAG.finditer(text):
        if tag["code"] or _is_generic(tag, closed):
            continue
        pieces.append(_without_indent(text[at : tag.start()], len(opened)))
        at = tag.end()
        if tag["closing"]:
            pieces.append(opened.pop().behind if opened else "")
        else:
            pieces.append(_opened(tag, opened))
    return _GAPS.sub("\n\n", "".join([*pieces, _without_indent(text[at:], len(opened))]))


def _is_generic(tag: re.Match[str], closed: frozenset[str]) -> bool:
    """Whether what looks like a tag is a type, as in List<String>."""
    before = tag.string[tag.start() - 1 : tag.start()]
    is_glued = before.isalnum() or before == "_"
    return is_glued and not (
        tag["closing"] or tag["alone"] or tag["name"] in closed or "=" in tag["attributes"]
    )


def _opened(tag: re.Match[str], opened: list[_Component]) -> str:
    """What a tag shows before its content; the component is open from now on."""
    attributes = _attributes(tag["attributes"])
    around = opened[-1] if opened else _Component()
    component = _Component(labels=_items(tag["attributes"]))
    if not tag["alone"]:
        opened.append(component)
    label, texts = _label(tag["name"], attributes), [*filter(None, _texts(attributes))]
    if not label and around.labels:
        label = around.labels.pop(0)
    facts = f" ({', '.join(stated)})" if label and (stated := [*_facts(tag["name"], attributes)]) else ""
    if not _is_inline(tag):
        heading = f"**{label}**{facts}" if label else ""
        return "".join(f"\n\n{part}\n\n" for part in (heading, *texts) if part)
    words = ", ".join(filter(None, [label + facts, *texts]))
    if tag["alone"] or not words:
        return words
    component.behind = f" ({words})"
    return ""


def _is_inline(tag: re.Match[str]) -> bool:
    start = max(tag.string.rfind("\n", 0, tag.start()) + 1, tag.start() - _NEAR)
    return bool(_TAGS.sub("", tag.string[start : tag.start()]).strip())


def _attributes(text: str) -> dict[str, str]:
    """The attributes with a literal value by name; one without a value is "true"."""
    attributes = {}
    for name, value in _ATTRIBUTE.findall(text):
        if literal := _LITERAL.fullmatch(value):
            attributes[name] = one_line(next(filter(None, literal.groups()), ""))
        elif _LIST.fullmatch(value):
            attributes[name] = ", ".join(_strings(value))
        elif not value:
            attributes[name] = "true"
    return attributes


def _strings(listed: str) -> list[str]:
    return [one_line(double or single) for double, single in _ITEM.findall(listed)]


def _items(attributes: str) -> list[str]:
    """The labels of the components inside, as in <Tabs items={["npm", "pnpm"]}>."""
    lists = (value for name, value in _ATTRIBUTE.findall(attributes) if name == "items")
    return next((_strings(value) for value in lists if _LIST.fullmatch(value)), [])


def _label(component: str, attributes: dict[str, str]) -> str:
    """The heading of a component: its title, its name, the value of a tab, or the kind of a callout."""
    kind = _SPACE_BEFORE.sub(" ", component) if _CALLOUTS.fullmatch(component) else ""
    names = [*_LABELS]
    names += ["name"] if _NAMED.search(component) else []
    names += ["value"] if "Tab" in component else []
    label = next((attributes[name] for name in names if attributes.get(name, "true") != "true"), "")
    return f"{kind}: {label}" if kind and label else label or kind


def _facts(component: str, attributes: dict[str, str]) -> Iterator[str]:
    """What a component says about a field: "type: string", "required"."""
    for name in _FACTS if _NAMED.search(component) else ():
        if value := attributes.get(name):
            yield name if value == "true" and name not in {"default", "type"} else f"{name}: {value}"


def _texts(attributes: dict[str, str]) -> Iterator[str]:
    """The other texts of a component: known ones, and all with several words."""
    for name, value in attributes.items():
        if name == "alt":
            yield alternative_text(value)
        elif name in _TEXTS or (" " in value and name.casefold() not in _NO_TEXTS):
            yield "" if value == "true" else value


def _without_indent(text: str, depth: int) -> str:
    indent = _INDENT * min(depth, _DEPTH)
    return re.sub(rf"^[ \t]{{1,{indent}}}", "", text, flags=re.MULTILINE) if depth else text

"""MDX: Markdown with JSX. What its components show stays: the text inside them, and that in attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rag.corpus import Document
from rag.ingest.parse.document_parts import title_line
from rag.ingest.parse.markdown import parse
from rag.ingest.parse.office.drawings_and_forms import alternative_text
from rag.text.plain_text import one_line

SUFFIXES = (".mdx",)

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(
    r"^(?:import\s(?:[^;\n'\"]|\n(?!\n)){0,1000}?['\"][^'\"\n]+['\"];?|export\s(?:default|const|let|var|function|async|\{|\*)"
    r"(?:[^\n]|\n(?!\n))*)[ \t]*$",
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
_INDENT = 2  # spaces by which people indent the content of a component
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
_TEXTS = (
    "text",
    "caption",
    "description",
    "subtitle",
    "tip",
    "tooltip",
    "content",
    "message",
    "note",
    "answer",
    "tags",
)
_UNSEEN = frozenset(
    {
        "classname",
        "class",
        "style",
        "d",
        "sizes",
        "srcset",
        "viewbox",
        "allow",
        "sandbox",
        "points",
        "src",
        "href",
    }
)
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
    document = parse(plain_markdown(text), name)
    title = title_line(exported[2]) if exported and document.title == name else document.title
    return replace(document, title=title, mime_type="text/mdx")


def plain_markdown(text: str) -> str:
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
    shown = ", ".join(filter(None, [label + facts, *texts]))
    if tag["alone"] or not shown:
        return shown
    component.behind = f" ({shown})"
    return ""


def _is_inline(tag: re.Match[str]) -> bool:
    """Whether a tag is within a line of text."""
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
    names = (
        *_LABELS,
        *(["name"] if _NAMED.search(component) else []),
        *(["value"] if "Tab" in component else []),
    )
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
        elif name in _TEXTS or (
            " " in value and name.casefold() not in {*_UNSEEN, *_LABELS, *_FACTS, "items"}
        ):
            yield "" if value == "true" else value


def _without_indent(text: str, depth: int) -> str:
    return (
        re.sub(rf"^[ \t]{{1,{_INDENT * min(depth, _DEPTH)}}}", "", text, flags=re.MULTILINE)
        if depth
        else text
    )

"""Source code and configuration files, verbatim: functions and classes are their sections.

tree-sitter finds these. Each grammar is a package of its own; without it, files are cut at blank lines.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Block, Document
from rag.ingest.parse.document_parts import block, listed_names, paragraphs, toml_beside, with_letters
from rag.text.plain_text import one_line, trimmed

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_LISTS = {name: listed_names(names) for name, names in toml_beside(__file__).items()}
SUFFIXES = _LISTS["suffixes"]
_TOP_LEVEL = re.compile(r"\n[^\S\n]*+\n(?=[^\s)\]}])")
_CLOSING = re.compile(r"(?:[\s)\]};,]|end\b|#endif\b.*)*")
_WHITE = re.compile(r"\s")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def parse(text: str, name: str) -> Document:
    """The document of a source file.

    A function or class is a section, titled with the name of the function or the signature of the class. Code
    between them, and all code without a grammar, is cut at top-level blank lines.
    """
    path = PurePath(name.lower())
    text = with_letters(text) if path.suffix == ".properties" else text  # in Latin-1, as Java reads them
    suffix = path.suffix or path.name
    outermost = definitions(
        text, suffix if suffix in SUFFIXES else script_suffix(text[:MAX_FIRST_LINE].encode())
    )
    blocks = _sections(text, outermost, 0, len(text), 1) if outermost else code_blocks(text)
    return Document(text, name, "text/plain", tuple(blocks))


_SCRIPT = re.compile(rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-\S+[ \t]+)*(?:\S*/)?)?([a-z]+)")
_INTERPRETERS = {
    b"python": ".py",
    **dict.fromkeys((b"sh", b"bash", b"dash", b"ksh", b"zsh"), ".sh"),
    b"node": ".js",
    b"perl": ".pl",
    b"ruby": ".rb",
    b"php": ".php",
}


MAX_FIRST_LINE = 200  # characters in which a script names its interpreter


def script_suffix(beginning: bytes) -> str:
    """The suffix of the language whose interpreter a script names, or "": b"#!/bin/sh" -> ".sh"."""
    script = _SCRIPT.match(beginning)
    return _INTERPRETERS.get(script[1], "") if script else ""


def code_blocks(text: str, start: int = 0, end: int | None = None) -> Iterator[Block]:
    """Blocks that begin in the first column after a blank line: mostly whole functions and classes."""
    return paragraphs(text, start, end, kind="code", gap=_TOP_LEVEL)


def _sections(
    text: str, siblings: tuple[Definition, ...], start: int, end: int, level: int
) -> Iterator[Block]:
    """The blocks of `text[start:end]`: definitions as sections, and the code between them.

    Code between definitions begins with a heading without a title: it ends the section before it, and keeps
    imports apart from the first definition, which would otherwise be cited without a name.
    """
    after = level == 1
    ends = [*(definition.start for definition in siblings[1:]), end]
    for definition, following in zip(siblings, ends, strict=True):
        yield from _code_between(text, start, definition.start, level, after=after)
        until = definition.end
        if _CLOSING.fullmatch(text, until, following):  # a brace alone says nothing
            until = following
        yield from _section(text, definition._replace(end=until), level)
        start, after = until, True
    yield from _code_between(text, start, end, level, after=after)


def _section(text: str, definition: Definition, level: int) -> Iterator[Block]:
    body_start = _after_heading(text, definition.start, definition.end)
    if definition.inside:
        # A class and its first member may share a line: the heading must end before the member.
        body_start = min(body_start, definition.inside[0].start)
    yield from block(text, "heading", definition.start, body_start, level=level, title=definition.title)
    if definition.inside:
        yield from _sections(text, definition.inside, body_start, definition.end, level + 1)
    else:
        yield from block(text, "code", body_start, definition.end)


def _code_between(text: str, start: int, end: int, level: int, *, after: bool) -> Iterator[Block]:
    span = trimmed(text, start, end)
    if not span:
        return
    start = span.start
    if after:
        body_start = _after_heading(text, *span)
        yield from block(text, "heading", start, body_start, level=level)
        start = body_start
    yield from code_blocks(text, start, end)


def _after_heading(text: str, start: int, end: int) -> int:
    """The end of the first line, or of the first word if there is only one line: a section needs a body."""
    end = start + len(text[start:end].rstrip())
    line = text.find("\n", start, end)
    if line < 0:
        white = _WHITE.search(text, start, end)
        line = white.start() if white else end
    return line


GRAMMARS = {
    suffix: (module, function)
    for suffixes, module, function in (
        (".py .pyi", "tree_sitter_python", "language"),
        (".js .mjs .cjs .jsx .tsx", "tree_sitter_typescript", "language_tsx"),  # JavaScript is a part of it
        (".ts .mts .cts", "tree_sitter_typescript", "language_typescript"),
        (".java", "tree_sitter_java", "language"),
        (".c .h .cc .cpp .cxx .hpp .hh", "tree_sitter_cpp", "language"),  # C is nearly a part of it
        (".cs", "tree_sitter_c_sharp", "language"),
        (".go", "tree_sitter_go", "language"),
        (".rs", "tree_sitter_rust", "language"),
        (".rb rakefile gemfile vagrantfile", "tree_sitter_ruby", "language"),
        (".php", "tree_sitter_php", "language_php"),
        (".kt .kts", "tree_sitter_kotlin", "language"),
        (".swift", "tree_sitter_swift", "language"),
        (".scala", "tree_sitter_scala", "language"),
        (".sh .bash .zsh", "tree_sitter_bash", "language"),
        (".lua", "tree_sitter_lua", "language"),
    )
    for suffix in suffixes.split()
}
"""The module and the function of a language's grammar, by suffix or file name in lower case."""

INSTALLED = tuple(dict.fromkeys(module for module, _ in GRAMMARS.values() if find_spec(module)))
"""Determined before a parser process is confined: a search for a missing module would kill it."""
LIBRARIES = ("tree_sitter", *INSTALLED)

MAX_CHARACTERS = 4 << 20  # larger files are generated; parsing takes some 0.2 s per million
MAX_LINE = 5_000  # characters, the average of the longest tenth; longer lines are generated
MAX_TITLE = 100  # characters of a class's signature
MAX_NESTING = 12  # definitions in definitions
MAX_BROKEN = 0.2  # share of the code that the grammar can't read


_FUNCTIONS, _CONTAINERS, _TRANSPARENT = (_LISTS[name] for name in ("functions", "containers", "transparent"))
_MODIFIERS, _NAMES = _LISTS["modifiers"], _LISTS["names"]
_GROUP = "type_declaration"  # of Go; of several types if it has a parenthesis
_TYPES = frozenset({"type_spec", "type_alias"})  # in it
_WRAPPERS = frozenset({"decorated_definition", "template_declaration", "export_statement", _GROUP})
_ASSIGNMENTS = frozenset({"lexical_declaration", "variable_declaration", "expression_statement"})
_FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "generator_function"})
_LEADING = frozenset(
    {"comment", "line_comment", "block_comment", "multiline_comment", "attribute_item", "decorator"}
)
_DECLARATORS = frozenset({"function_declarator", "pointer_declarator", "reference_declarator"})


class Definition(NamedTuple):
    """A function or class: `text[start:end]`, with its comments, decorators and signature.

    `title` is the name of a function, and the signature of a class. `inside` are the definitions in a class.
    """

    start: int
    end: int
    title: str
    inside: tuple[Definition, ...] = ()


def definitions(text: str, suffix: str) -> tuple[Definition, ...]:
    """The outermost definitions of a source file, in order.

    Empty if no grammar is installed for the suffix, or the file is generated or largely unparsable.
    """
    module, function = GRAMMARS.get(suffix, ("", ""))
    if module not in INSTALLED or len(text) > MAX_CHARACTERS or _is_generated(text):
        return ()
    finder = _Finder(text)
    # With a byte for each character, positions in bytes, as tree-sitter's, are those of the text.
    ascii_text = _BEYOND_ASCII.sub(lambda match: " " if match[0].isspace() else "x", text).encode()
    outermost = finder.among(_parser(module, function).parse(ascii_text).root_node, 0)
    return outermost if finder.broken <= MAX_BROKEN * len(text) else ()


def _is_generated(text: str) -> bool:
    lines = sorted(map(len, text.split("\n")), reverse=True)
    longest = lines[: max(1, len(lines) // 10)]
    return sum(longest) / len(longest) > MAX_LINE


@cache
def _parser(module: str, function: str) -> Parser:
    from tree_sitter import Language, Parser  # noqa: PLC0415 only what parses code loads it

    grammar = importlib.import_module(module)
    return Parser(Language(getattr(grammar, function)()))


@dataclass(slots=True)
class _Finder:
    """Searches the tree of one file. `broken` counts the characters that the grammar can't parse."""

    text: str
    broken: int = 0

    def among(self, parent: Node, depth: int) -> tuple[Definition, ...]:
        """The definitions directly in a node."""
        return tuple(self._definitions_in(parent, depth)) if depth < MAX_NESTING else ()

    def _definitions_in(self, parent: Node, depth: int) -> Iterator[Definition]:
        leading: list[Node] = []
        for node in parent.named_children:
            if node.type in _LEADING:
                leading.append(node)
                continue
            if node.type == "ERROR":
                self.broken += node.end_byte - node.start_byte
            elif inner := _defining_node(node):
                start = _start_with_comments(node, leading)
                is_container = inner.type in _CONTAINERS | _TYPES
                title = self._signature(inner) if is_container else self._name(inner)
                inside = self.among(inner, depth + 1) if is_container else ()
                yield Definition(start, node.end_byte, title, inside)
            elif node.type in _TRANSPARENT:
                group = [*self._definitions_in(node, depth)]
                if node.type == _GROUP and group:  # its first line belongs to the first type
                    group[0] = group[0]._replace(start=_start_with_comments(node, leading))
                yield from group
            leading = []

    def _name(self, node: Node) -> str:
        names = (child for child in node.named_children if child.type in _NAMES)
        name = node.child_by_field_name("name") or _declared_name(node) or next(names, None)
        receiver = node.child_by_field_name("receiver")
        owner = f"{self._words(receiver)} " if receiver else ""
        return f"{owner}{self._words(name)}" if name else self._signature(node)

    def _signature(self, node: Node) -> str:
        """The beginning of a definition up to its body, without modifiers: "class Cutter(Base)"."""
        first = next((child for child in node.children if child.type not in _MODIFIERS), node)
        bodies = (child for child in node.children if child.type in _TRANSPARENT | _LEADING)
        body = next(bodies, None) or node.child_by_field_name("body") or _body_of_type(node)
        end = min(body.start_byte if body else node.end_byte, first.start_byte + 4 * MAX_TITLE)
        text = self.text[first.start_byte : end]
        if not body:
            text = text.partition("\n")[0]
        keyword = "type " if node.type in _TYPES else ""
        return f"{keyword}{one_line(text)}".rstrip(" :{=;")[:MAX_TITLE].rstrip()

    def _words(self, node: Node) -> str:
        return one_line(self.text[node.start_byte : node.end_byte])


def _body_of_type(node: Node) -> Node | None:
    """What is in the braces of a type of Go."""
    kind = node.child_by_field_name("type") if node.type == "type_spec" else None
    return kind.child(1) if kind and kind.type in {"struct_type", "interface_type"} else None


def _defining_node(node: Node) -> Node | None:
    is_type = node.type in _TYPES and node.parent is not None and node.parent.type == _GROUP
    if is_type or node.type in _FUNCTIONS:
        return node
    if node.type in _CONTAINERS:
        bodiless = node.type.endswith("_specifier") or node.type == "namespace_definition"
        return None if bodiless and not node.child_by_field_name("body") else node
    if node.type in _WRAPPERS and not any(child.type == "(" for child in node.children):
        return next((inner for child in node.named_children if (inner := _defining_node(child))), None)
    if node.type in _ASSIGNMENTS:
        for variable in node.named_children:
            if variable.type in _CONTAINERS:  # a namespace of TypeScript
                return variable
            value = variable.child_by_field_name("value") or variable.child_by_field_name("right")
            if value and value.type in _FUNCTION_VALUES:
                return variable
    return None


def _start_with_comments(node: Node, leading: Iterable[Node]) -> int:
    """The start of a definition, including the comments and attributes right above it."""
    first = node
    for comment in reversed([*leading]):
        if comment.end_point.row + 1 < first.start_point.row:
            break
        first = comment
    return first.start_byte


def _declared_name(node: Node) -> Node | None:
    declarator = node.child_by_field_name("declarator")
    while declarator and declarator.type not in _NAMES:
        inner = declarator.child_by_field_name("declarator")
        likely = (child for child in declarator.named_children if child.type in _NAMES | _DECLARATORS)
        declarator = inner or next(likely, None)
    return declarator

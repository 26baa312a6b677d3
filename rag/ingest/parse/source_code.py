"""Source code and configuration files, as they are: functions and classes are their sections."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from rag.corpus import Block, Document
from rag.ingest.parse.blocks import block
from rag.ingest.parse.syntax import LIBRARIES, definitions
from rag.text.segments import trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.ingest.parse.syntax import Definition

_LANGUAGES = """
    .py .pyi .js .mjs .cjs .jsx .ts .mts .cts .tsx .vue .svelte .java .kt .kts .scala .groovy .gradle
    .clj .cljs .c .h .cc .cpp .cxx .hpp .hh .cs .fs .vb .go .rs .zig .swift .m .mm .dart .rb .php .pl
    .pm .lua .r .jl .nim .hs .ml .mli .ex .exs .erl .elm .lisp .el .scm .sh .bash .zsh .fish .ps1 .bat
    .cmd .sql .proto .graphql .gql .diff .patch .css .scss .sass .less .cmake .mk .tf .hcl .nix
    .properties .xsd .xsl .xslt .wsdl
    dockerfile containerfile makefile rakefile gemfile jenkinsfile vagrantfile procfile
"""
SUFFIXES = tuple(_LANGUAGES.split())
__all__ = ["LIBRARIES", "SUFFIXES", "code_blocks", "parse"]  # the parser process imports the first

_TOP_LEVEL = re.compile(r"\n[^\S\n]*+\n(?=[^\s)\]}])")
_CLOSING = re.compile(r"(?:[\s)\]};,]|end\b|#endif\b.*)*")
_WHITE = re.compile(r"\s")


def parse(text: str, name: str) -> Document:
    """The document of a source file.

    A function or class that a grammar finds is a section, titled with the name of the function or the
    signature of the class. What stands between them, and all code without a grammar, is cut at blank lines on
    the outermost level.
    """
    path = PurePath(name.lower())
    found = definitions(text, path.suffix or path.name)
    blocks = _sections(text, found, 0, len(text), 1) if found else code_blocks(text)
    return Document(text, name, "text/plain", tuple(blocks))


def code_blocks(text: str, start: int = 0, end: int | None = None) -> Iterator[Block]:
    """Blocks that begin in the first column after a blank line: mostly whole functions and classes."""
    end = len(text) if end is None else end
    for gap in _TOP_LEVEL.finditer(text, start, end):
        yield from block(text, "code", start, gap.start())
        start = gap.end()
    yield from block(text, "code", start, end)


def _sections(text: str, found: tuple[Definition, ...], start: int, end: int, level: int) -> Iterator[Block]:
    """The blocks of `text[start:end]`: what is between definitions, and each of these as a section.

    Code that stands alone begins with a heading without a title: it ends the section of the definition before
    it, and keeps imports from being joined to the first definition, which would then be cited without a name.
    """
    after = level == 1
    ends = [*(one.start for one in found[1:]), end]
    for one, following in zip(found, ends, strict=True):
        yield from _between(text, start, one.start, level, after=after)
        until = one.end
        if _CLOSING.fullmatch(text, until, following):  # a brace alone says nothing
            until = following
        yield from _section(text, one._replace(end=until), level)
        start, after = until, True
    yield from _between(text, start, end, level, after=after)


def _section(text: str, one: Definition, level: int) -> Iterator[Block]:
    """The blocks of a definition: its first line is the heading."""
    rest = _after_heading(text, one.start, one.end)
    if one.inside:
        rest = min(rest, one.inside[0].start)
    yield from block(text, "heading", one.start, rest, level=level, title=one.title)
    if one.inside:
        yield from _sections(text, one.inside, rest, one.end, level + 1)
    else:
        yield from block(text, "code", rest, one.end)


def _between(text: str, start: int, end: int, level: int, *, after: bool) -> Iterator[Block]:
    span = trimmed(text, start, end)
    if not span:
        return
    start = span.start
    if after:
        rest = _after_heading(text, *span)
        yield from block(text, "heading", start, rest, level=level)
        start = rest
    yield from code_blocks(text, start, end)


def _after_heading(text: str, start: int, end: int) -> int:
    """Where the first line ends; the first word, if there is no other line: a section has a body."""
    end = start + len(text[start:end].rstrip())
    line = text.find("\n", start, end)
    if line < 0:
        white = _WHITE.search(text, start, end)
        line = white.start() if white else end
    return line

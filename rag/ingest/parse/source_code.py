"""Source code and configuration files, as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Block, Document
from rag.ingest.parse.blocks import block

if TYPE_CHECKING:
    from collections.abc import Iterator

_LANGUAGES = """
    .py .pyi .js .mjs .cjs .jsx .ts .mts .cts .tsx .vue .svelte .java .kt .kts .scala .groovy .gradle
    .clj .cljs .c .h .cc .cpp .cxx .hpp .hh .cs .fs .vb .go .rs .zig .swift .m .mm .dart .rb .php .pl
    .pm .lua .r .jl .nim .hs .ml .mli .ex .exs .erl .elm .lisp .el .scm .sh .bash .zsh .fish .ps1 .bat
    .cmd .sql .proto .graphql .gql .tex .diff .patch .css .scss .sass .less .cmake .mk .tf .hcl .nix
    .yaml .yml .toml .ini .cfg .conf .properties .xml .xsd .xsl
    dockerfile containerfile makefile rakefile gemfile jenkinsfile vagrantfile procfile
"""
SUFFIXES = tuple(_LANGUAGES.split())

_TOP_LEVEL = re.compile(r"\n[^\S\n]*+\n(?=[^\s)\]}])")


def parse(text: str, name: str) -> Document:
    """The document of a source file: its blocks end at blank lines on the outermost level."""
    return Document(text, name, "text/plain", tuple(code_blocks(text)))


def code_blocks(text: str) -> Iterator[Block]:
    """Blocks that begin in the first column after a blank line: mostly whole functions and classes."""
    start = 0
    for gap in _TOP_LEVEL.finditer(text):
        yield from block(text, "code", start, gap.start())
        start = gap.end()
    yield from block(text, "code", start, len(text))

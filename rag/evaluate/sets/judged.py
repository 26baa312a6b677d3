"""Judged sets: questions with what a good answer must find, and sometimes the documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Principal


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Words that must be found: `quote`, in one of these documents, in any where there are none.

    `start` is where it begins in the document's text, if that is known.
    """

    quote: str
    documents: tuple[str, ...] = ()
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks (None for whoever the settings name), and how the search is restricted.

    Sources are named as documents are. A hit that this doesn't allow is a leak.
    """

    principal: Principal | None = None
    collections: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its judgements.

    `documents` gives the relevant ones their grade, 1 or more; they are named as the set names
    them, or by a source's id, URI, URL or path. Where there are `excerpts`, these are what must
    be found instead. `answer` is one that was given to it, with citations.
    """

    id: str
    text: str
    documents: Mapping[str, int] = field(default_factory=dict)
    excerpts: tuple[Excerpt, ...] = ()
    asking: Asking = Asking()
    answer: str = ""


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    """A document of a set, to be ingested as a file of this name; `tenant` None means the usual one."""

    name: str
    filename: str
    content: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Questions with judgements. Sets for a collection that exists have no `documents`.

    `left_out` counts the questions without judgements or without text.
    """

    name: str
    questions: tuple[Question, ...]
    documents: tuple[JudgedDocument, ...] = ()
    left_out: int = 0

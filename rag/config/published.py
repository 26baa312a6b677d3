"""What `refdesk` publishes: the server's name and words, its tools, and what each of them is bound to."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rag.access.bound_to import MAX_TOOLS, BoundTo, Name
from rag.answers import MAX_REPLY_CHARS, MIN_REPLY_CHARS, SearchRequest
from rag.config.profiles import Section, matching

SEARCH, FETCH = "search", "fetch"  # as ChatGPT calls them; `fetch` opens what the tool `search` finds
PAGE_PICTURE = "page_picture"  # the tool of the page of passages
MAX_NAME_CHARS, MAX_TITLE_CHARS = 64, 100  # every reply names the server
MAX_INSTRUCTIONS_CHARS = 1_000  # hosts cut at 2,048 without a word, and refdesk adds its own
MAX_DESCRIPTION_CHARS = 2_000  # the same
_OF_PROGRAMS, _OF_REPLIES = {"query", "vector", "must_contain", "joined"}, {"explain", "max_chars", "vectors"}
ARGUMENTS = {field.name for field in fields(SearchRequest)} - _OF_PROGRAMS | _OF_REPLIES
"""The arguments that a search tool can do without."""

ToolName = Annotated[
    str, matching(r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, _ and -, which every host accepts")
]
Title = Annotated[str, Field(max_length=MAX_TITLE_CHARS)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)]
WebAddress = Annotated[
    str,
    Field(max_length=300),  # every reply repeats it
    matching(r"(https?://[^\s/]\S*)?", "a URL that begins with https:// or http://"),
]


class OpenerSettings(Section):
    """The tool that opens what a search tool finds. Empty texts stand for the built-in ones."""

    name: ToolName = "get_source"
    title: Title = ""
    description: Description = ""


class ToolSettings(BoundTo):
    """A search tool, its opener, and what both are bound to. Empty texts stand for the built-in ones.

    None for `arguments` offers all that the other settings allow.
    """

    name: ToolName = SEARCH
    title: Title = ""
    description: Description = ""
    opener: OpenerSettings = OpenerSettings()
    arguments: tuple[str, ...] | None = None

    @field_validator("arguments")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in ARGUMENTS:
                raise ValueError(
                    f"there is no argument {name!r}; use some of: {', '.join(sorted(ARGUMENTS))}"
                )
        return names


class ServerSettings(Section):
    """What `refdesk` offers to its clients. Empty `instructions` stand for the built-in first sentence."""

    name: Annotated[
        str, matching(r"\S.{0,62}\S|\S", f"up to {MAX_NAME_CHARS} characters, without spaces around them")
    ] = "refdesk"
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] = "Reference desk"
    instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS_CHARS)] = ""
    website: WebAddress = ""
    icon: WebAddress = ""
    max_chars: Annotated[int, Field(ge=MIN_REPLY_CHARS, le=MAX_REPLY_CHARS)] = 16_000
    include_vectors: bool = False
    profiles: tuple[Name, ...] = ()
    explain: bool = False
    field_values: bool = True
    openai_compat: bool = False
    apps: bool = False
    traces: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    tools: tuple[ToolSettings, ...] = (ToolSettings(),)

    @field_validator("tools")
    @classmethod
    def _some(cls, tools: tuple[ToolSettings, ...]) -> tuple[ToolSettings, ...]:
        if not 1 <= len(tools) <= MAX_TOOLS:
            raise ValueError(f"give 1 to {MAX_TOOLS} tools, or leave the table out for search and get_source")
        return tools

"""Searching as anybody, with the trace drawn as `refdesk-admin search --report` draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import urlencode

from rag.admin.search_report import hit_articles, took, trace_sections
from rag.admin.web.asker import Asker
from rag.admin.web.console import number_in
from rag.answers import MAX_LIMIT, Mode, SearchRequest
from rag.errors import InvalidRequestError, RefdeskError
from rag.uris import split_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console
    from rag.answers import Answer, Hit
    from rag.search.why_not import SourceTrace


async def search(console: Console, request: Request) -> Response:
    """The page: a form, and the hits with their trace once something is asked."""
    given = request.query_params
    asker = Asker.of(given, console.settings)
    wanted = given.get("expect", "").strip()
    answer, fate, problem = None, None, ""
    if given.get("q", "").strip():
        try:
            answer, fate = await _answered(console, asker, requested(given), wanted)
        except RefdeskError as error:
            problem = str(error)
    return console.page(
        "search.html",
        status=400 if problem else 200,
        given=given,
        refined=any(value.strip() for name, value in given.items() if name != "q"),
        asker=asker,
        modes=get_args(Mode),
        profiles=sorted(console.settings.search.profiles),
        collections=await console.collections(),
        problem=problem,
        fate=fate,
        answer=answer,
        took=took(answer) if answer else "",
        hits=hit_articles(answer, address_of) if answer else (),
        trace=trace_sections(answer) if answer else (),
    )


def requested(given: Mapping[str, str]) -> SearchRequest:
    """The search that a form asks for; what it leaves open is as the profile says.

    Raises:
        InvalidRequestError: the limit is no number that is allowed.
    """
    limit, collection = given.get("limit", "").strip(), given.get("collection", "")
    number = number_in(limit, 0, MAX_LIMIT)
    if limit and number is None:
        raise InvalidRequestError(f"The number of hits is from 0 to {MAX_LIMIT}.")
    mode = given.get("mode", "")
    return SearchRequest(
        given.get("q", "").strip(),
        profile=given.get("profile") or None,
        limit=number,
        mode=cast("Mode", mode) if mode else None,
        collections=(collection,) if collection else None,
        joined=True,
    )


async def _answered(
    console: Console, asker: Asker, request: SearchRequest, wanted: str
) -> tuple[Answer, SourceTrace | None]:
    """The answer with its trace, and what happened to the document that was wanted, if one is named."""
    principal = asker.principal(console.tenant)
    if not wanted:
        answer = await console.desk.search(principal, request, trace=True)
        return await console.desk.checked(answer), None
    answer, fate = await console.desk.why_not(principal, request, wanted)
    return await console.desk.checked(answer), fate


def address_of(hit: Hit) -> str:
    """The address of a hit's passage."""
    _, seqs = split_id(hit.chunk.id)
    return passage_address(hit.source.id, seqs[0] if seqs else 0)


def passage_address(source_id: str, seq: int) -> str:
    """The address of a document's page with a passage on it."""
    return f"/documents/{source_id}?{urlencode({'passage': seq})}#p{seq}"

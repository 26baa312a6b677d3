"""The protocol's methods, each from its parameters to its result. Nothing here depends on a transport."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from pydantic import BaseModel, ValidationError

from rag.access.tenants import declares_fields
from rag.answers import MAX_REPLY_CHARS, SearchRequest
from rag.errors import InvalidRequestError, NotFoundError, RefdeskError
from rag.search.agents import opened
from rag.search.reply.records import fetch_reply, search_reply, source_reply
from rag.search.reply.trace import NO_ROOM_CHARS, with_trace
from rag.uris import NOT_FOUND, parse_id, resource_uri
from server import resources
from server import tools as surface
from server.guard import Guard, Worded
from server.size import within_bytes
from server.telemetry import audit as calls
from server.telemetry.audit import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.config.settings import Settings
    from rag.corpus import Collection, Principal
    from rag.search.reply.records import Reply
    from server.admission import Admission
    from server.lazy_desk import OpeningDesk
    from server.telemetry.audit import Measure

log = logging.getLogger(__name__)

PAGE = 50  # sources in one page of resources/list
MAX_COMPLETIONS = 100  # the protocol's own limit
MAX_RESOURCE_CHARS = 200_000

Context: TypeAlias = ServerRequestContext[Any, Any]
Arguments = TypeVar("Arguments", bound=BaseModel)


def create_server(
    opening: OpeningDesk,
    settings: Settings,
    admission: Admission,
    principal_of: Callable[[Context], Principal],
    measure: Measure | None = None,
) -> Server[Any]:
    """A protocol server around a desk; `principal_of` tells who asks, for each request anew."""
    app = App(opening, settings, principal_of)
    server: Server[Any] = Server(
        "refdesk",
        title="Reference desk",
        version=version("refdesk"),
        instructions=surface.INSTRUCTIONS,
        get_tool_input_schema=_no_headers,
        on_list_tools=app.list_tools,
        on_call_tool=app.call_tool,
        on_list_resources=app.list_resources,
        on_list_resource_templates=app.list_resource_templates,
        on_read_resource=app.read_resource,
        on_list_prompts=app.list_prompts,
        on_get_prompt=app.get_prompt,
        on_completion=app.complete,
    )
    server.middleware[:] = [  # instead of the SDK's spans, which hold what callers wrote
        Worded(opening, settings.limits),
        Recorder(principal_of, measure),
        Guard(admission, settings.limits, principal_of),
    ]
    return server


class App:
    """The handlers, with what they share."""

    def __init__(
        self, opening: OpeningDesk, settings: Settings, principal_of: Callable[[Context], Principal]
    ) -> None:
        self._opening = opening
        self._principal_of = principal_of
        self._settings = settings

    async def list_tools(self, context: Context, _params: object) -> types.ListToolsResult:
        """tools/list: with the fields that the principal can filter by; at once where there are none."""
        principal = self._principal_of(context)
        readable: tuple[Collection, ...] = ()
        if declares_fields(self._settings.data, principal.tenant):
            readable = await (await self._opening.desk()).collections(principal)
        return types.ListToolsResult(tools=surface.tools(self._settings, principal.tenant, readable))

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """tools/call. What goes wrong in a tool is a tool error, so that the model reads it."""
        tools = {"search": self._search, "get_source": self._get_source}
        if self._settings.server.openai_compat:
            tools["fetch"] = self._fetch
        call = tools.get(params.name)
        if call is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:64]!r}.")
        try:
            return await call(self._principal_of(context), params.arguments or {})
        except RefdeskError as error:
            calls.failed(error)
            if not isinstance(error, InvalidRequestError | NotFoundError):
                log.warning("The tool %s failed: %s", params.name, error)
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)

    async def _search(self, principal: Principal, given: dict[str, Any]) -> types.CallToolResult:
        arguments = _arguments(surface.SearchArguments, given)
        self._check_offered(arguments)
        request = SearchRequest(
            query=arguments.query,
            profile=arguments.profile,
            limit=arguments.limit,
            mode=arguments.mode,
            collections=None if arguments.collections is None else tuple(arguments.collections),
            sources=None if arguments.sources is None else tuple(arguments.sources),
            exclude_sources=tuple(arguments.exclude_sources or ()),
            filter=arguments.filter,
            context=bool(arguments.context),
        )
        desk = await self._opening.desk()
        answer = await desk.search(principal, request, trace=bool(arguments.explain))
        calls.current().stages = answer.stages
        server = self._settings.server

        def result(max_chars: int) -> types.CallToolResult:
            vectors, urls = server.include_vectors, server.openai_compat
            room = max_chars - NO_ROOM_CHARS if answer.trace else max_chars
            reply = search_reply(answer, room, vectors=vectors, urls=urls)
            return _result(with_trace(reply, answer, max_chars) if answer.trace else reply)

        return within_bytes(result, arguments.max_chars or server.max_chars)

    def _check_offered(self, arguments: surface.SearchArguments) -> None:
        if arguments.explain and not self._settings.server.explain:
            raise InvalidRequestError("The operator doesn't offer explain here; leave it out.")
        name, offered = arguments.profile, self._settings.server.profiles
        if name is not None and name not in offered:
            raise InvalidRequestError(
                f"profile must be one of {', '.join(offered)}."
                if offered
                else "There is no profile to choose from."
            )

    async def _get_source(self, principal: Principal, given: dict[str, Any]) -> types.CallToolResult:
        arguments = _arguments(surface.GetSourceArguments, given)
        most = arguments.max_chars or self._settings.server.max_chars
        desk = await self._opening.desk()
        start, around = arguments.start, arguments.around
        extract = await opened(desk, principal, arguments.id, most, start=start, around=around)
        return within_bytes(lambda max_chars: _result(source_reply(extract, max_chars)), most)

    async def _fetch(self, principal: Principal, given: dict[str, Any]) -> types.CallToolResult:
        id_ = _arguments(surface.FetchArguments, given).id
        extract = await opened(await self._opening.desk(), principal, id_, MAX_REPLY_CHARS)
        return within_bytes(lambda max_chars: _result(fetch_reply(extract, id_, max_chars)), MAX_REPLY_CHARS)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """resources/list: the readable sources, in pages ordered by collection and id."""
        after = resources.read_cursor(params.cursor if params else None)
        desk = await self._opening.desk()
        page = await desk.sources(self._principal_of(context), after=after, limit=PAGE)
        full = len(page) == PAGE
        return types.ListResourcesResult(
            resources=[resources.resource(source) for source in page],
            next_cursor=resources.cursor(page[-1]) if full else None,
        )

    async def list_resource_templates(
        self, _context: Context, _params: object
    ) -> types.ListResourceTemplatesResult:
        """resources/templates/list."""
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """resources/read: a source's text, or a chunk's."""
        id_ = parse_id(params.uri)
        is_chunk = "/" in id_
        desk = await self._opening.desk()
        extract = await desk.extract(
            self._principal_of(context), id_, max_chars=MAX_RESOURCE_CHARS, around=0 if is_chunk else None
        )
        if params.uri != resource_uri(extract.source.collection, id_):
            raise NotFoundError(NOT_FOUND)
        return within_bytes(
            lambda max_chars: resources.contents(params.uri, extract, max_chars), MAX_RESOURCE_CHARS
        )

    async def list_prompts(self, _context: Context, _params: object) -> types.ListPromptsResult:
        """prompts/list."""
        return types.ListPromptsResult(prompts=[surface.PROMPT])

    async def get_prompt(
        self, _context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """prompts/get."""
        if params.name != surface.PROMPT.name:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name[:64]!r}.")
        question = (params.arguments or {}).get("question", "").strip()
        if not question:
            raise InvalidRequestError("The prompt answer needs the argument question.")
        content = types.TextContent(text=surface.ANSWER_PROMPT.format(question=question))
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=surface.PROMPT.description, messages=[message])

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """completion/complete: names of readable collections, nothing else."""
        values: list[str] = []
        ref = params.ref
        ours = isinstance(ref, types.ResourceTemplateReference) and ref.uri in resources.URI_TEMPLATES
        if ours and params.argument.name == "collection":
            desk = await self._opening.desk()
            readable = await desk.collections(self._principal_of(context))
            values = [one.name for one in readable if one.name.startswith(params.argument.value)]
        shown = values[:MAX_COMPLETIONS]
        return types.CompleteResult(
            completion=types.Completion(values=shown, total=len(values), has_more=len(values) > len(shown))
        )


def _no_headers(_tool: str) -> None:
    """No argument of ours is repeated in a header; left to itself, the SDK lists the tools at every call."""


def _result(reply: Reply) -> types.CallToolResult:
    """A reply in both forms: some hosts show the model only the one, some only the other."""
    return types.CallToolResult(
        content=[types.TextContent(text=reply.compact())],
        structured_content=reply.model_dump(exclude_none=True),
    )


def _arguments(model: type[Arguments], given: dict[str, Any]) -> Arguments:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise surface.argument_error(error, model) from None

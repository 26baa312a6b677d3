"""The handlers of the protocol's methods, and the middleware around them, independent of the transport.

`create_server` also declares the extensions that the server offers. `error_boundary` translates errors;
nothing else does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from anyio import to_thread
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from pydantic import BaseModel, ValidationError

from rag.answers import MAX_REPLY_CHARS, NOTHING_ASKED, Extract, Part
from rag.config import server_settings
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import AccessError, BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.search.agents import open_document, open_or_list, reply_of_target
from rag.search.browse import Folder
from rag.search.reply.reply_parts import Reply, shown_url
from rag.search.reply.search_reply import (
    NO_ROOM_CHARS,
    SearchReply,
    search_reply,
    with_trace,
    without_results,
)
from rag.search.reply.source_reply import FolderReply, SourceReply, fetch_reply
from rag.search.tool_arguments import argument_error, decode_json
from rag.uris import named_id, passage_page, resource_uri
from server import call_audit, mcp_apps, resources, tool_listing, tools
from server.admission import Admission, request_limits
from server.call_audit import current_request
from server.lazy_desk import LazyDesk
from server.resources import can_complete, complete_argument, completion
from server.tools import callable_tools, principal_through, principal_through_any

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerMiddleware

    from server.intake import Intake

BY_ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"
BY_CLIENT = "io.modelcontextprotocol/oauth-client-credentials"


def extensions(settings: Settings) -> dict[str, dict[str, object]]:
    """The extensions that a server over HTTP offers: ways to get a token that it accepts.

    Both concern only the client and the issuer; the tokens are verified like others. A token without a user
    is accepted only from clients that the settings list.
    """
    if "oauth" not in settings.http.authentication:
        return {}
    offered = (BY_ENTERPRISE, BY_CLIENT) if settings.oauth.clients else (BY_ENTERPRISE,)
    return {name: {} for name in offered}


log = logging.getLogger(__name__)

NO_PICTURES = "There is no picture of this page: the operator has not enabled pictures. Leave picture out."
NO_PICTURE_OF_LIST = "A list has no picture. Open one of its documents with picture."
PICTURED = "The image is page {} of {}."
NO_TOOL = "There is no tool {!r}. Tools: {}."
PAGE_SIZE = 50  # sources in one page of resources/list
MAX_RESOURCE_CHARS = 200_000
MAX_REPLY_BYTES = 255 * 1024  # some clients close the connection at 256 KiB; 1 KiB is for the envelope
MOST_BYTES_OF_ONE = 6  # of a reply per byte of UTF-8: two copies of three each, or a control character of six
ENVELOPE_BYTES = 1024

Context: TypeAlias = ServerRequestContext[Any, Any]
Arguments = TypeVar("Arguments", bound=BaseModel)
Handler: TypeAlias = "Callable[[dict[str, Any]], Awaitable[types.CallToolResult]]"
NotedReply: TypeAlias = "SearchReply | SourceReply | FolderReply"
Result = TypeVar("Result", types.CallToolResult, types.ReadResourceResult)


def create_server(  # noqa: PLR0913 the parts of a server
    lazy_desk: LazyDesk,
    settings: Settings,
    admission: Admission,
    principal_of: Callable[[Context], Principal],
    measure: call_audit.Measure | None = None,
    *,
    remote: bool = False,
    intake: Intake | None = None,
    pages: str = "",
) -> Server[Any]:
    """A protocol server around a desk. `principal_of` is called for each request.

    Replies of tools have the note of `intake`. For an error, `remote` callers learn only what they can do;
    the operator's log has the reason. `pages` is the address of the server that shows passages to people, if
    there is one (`server.http.passage_pages`).
    """
    app = App(lazy_desk, settings, principal_of, remote=remote, intake=intake, pages=pages)
    server: Server[Any] = Server(
        settings.server.name,
        title=settings.server.title,
        version=version("refdesk"),
        instructions=tool_listing.instructions(settings.server, settings.server.tools),
        website_url=settings.server.website or None,
        icons=[types.Icon(src=settings.server.icon)] if settings.server.icon else None,
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
    server.add_request_handler("skills/list", types.PaginatedRequestParams, app.list_skills)
    server.add_request_handler("skills/get", resources.GetSkillParams, app.get_skill)
    server.extensions[resources.SKILLS] = {}
    # From the outside in: what a step refuses is recorded and put into words by those before it. They replace
    # the SDK's own spans, which would quote callers.
    server.middleware[:] = [
        error_boundary(lazy_desk, settings.limits, remote=remote),
        call_audit.CallRecorder(principal_of, measure, settings.server),
        request_limits(admission, settings.limits, principal_of),
        decode_arguments,
    ]
    if settings.server.apps:
        server.middleware.append(mcp_apps.note_declaration)
    if remote:
        server.extensions |= extensions(settings)
        server.middleware.append(introduction(lazy_desk, settings.server, admission, principal_of))
    return server


@dataclass(frozen=True, slots=True)
class App:
    """The handlers, and the arguments of `create_server` that they share."""

    lazy_desk: LazyDesk
    settings: Settings
    principal_of: Callable[[Context], Principal]
    remote: bool
    intake: Intake | None
    pages: str

    @property
    def _pictures(self) -> bool:
        setting = self.settings.server.pictures
        return setting == "always" or (setting == "auto" and not self.remote)

    async def list_tools(self, context: Context, _params: object) -> types.ListToolsResult:
        """tools/list: the tools that the principal may call, each with an overview of what it reaches."""
        principal, callers_tools = self._principal_and_tools(context)
        listed: list[types.Tool] = []
        for tool in callers_tools:
            asker = principal_through(principal, tool)
            overview = await self.lazy_desk.overview(asker)
            began = None if self.remote else await self.lazy_desk.first_ingestion(asker, overview)
            listed += tool_listing.tool_pair(
                self.settings, tool, asker, overview, pictures=self._pictures, first_ingestion=began
            )
        if self._shows_apps(context):
            listed = mcp_apps.with_page(listed, callers_tools)
        self.lazy_desk.listed.set()
        return types.ListToolsResult(tools=listed)

    def _shows_apps(self, context: Context) -> bool:
        return self.settings.server.apps and mcp_apps.shows_apps(context)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """tools/call. Errors of a tool become tool errors, which the model reads."""
        answer = self._handler(context, params.name)
        try:
            return await answer(params.arguments or {})
        except RefdeskError as error:
            call_audit.record_failure(error)
            text = self._failure(params.name, error)
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)

    def _failure(self, tool: str, error: RefdeskError) -> str:
        """The error's text for the model, with a note on running ingestion, which explains most errors."""
        note = (self.intake and self.intake.note) or ""
        if isinstance(error, InvalidRequestError | NotFoundError):
            return f"{message_for(error, remote=self.remote)} {note}".strip()
        if note:
            return note
        log.warning("The tool %s failed: %s", tool, error)
        return message_for(error, remote=self.remote)

    def _handler(self, context: Context, name: str) -> Handler:
        principal, callers_tools = self._principal_and_tools(context)
        with_app = self._shows_apps(context)
        for tool in callers_tools:
            asker = principal_through(principal, tool)
            if name == tool.name:
                return partial(self._search, asker, tool, with_app=with_app)
            if tool.opener and name == tool.opener.name:
                return partial(self._get_source, asker)
            if name == server_settings.FETCH and server_settings.fetches(self.settings.server, tool):
                return partial(self._fetch, asker)
        if name == server_settings.PAGE_PICTURE and with_app and callers_tools:
            return partial(self._page_picture, principal_through_any(principal, callers_tools))
        # A tool that the caller's key or scope doesn't name is answered like one that doesn't exist.
        tool_names = [listed.name for tool in callers_tools for listed in (tool, tool.opener) if listed]
        if any(server_settings.fetches(self.settings.server, tool) for tool in callers_tools):
            tool_names.append(server_settings.FETCH)
        raise MCPError(types.INVALID_PARAMS, NO_TOOL.format(name[:64], ", ".join(tool_names) or "none"))

    async def _search(
        self,
        principal: Principal,
        tool: server_settings.ToolSettings,
        raw_arguments: dict[str, Any],
        *,
        with_app: bool,
    ) -> types.CallToolResult:
        try:
            arguments = tools.SearchArguments.model_validate(raw_arguments)
        except ValidationError as error:
            usual = tools.usual_plan(self.settings, tool, principal)
            hidden = tools.arguments_not_offered(self.settings.server, tool, principal, usual)
            # Its hints must not name arguments that this tool doesn't have.
            raise argument_error(error, tools.SearchArguments, hidden) from None
        self._check_offered(arguments, tool, principal)
        desk = await self.lazy_desk.desk()
        server = self.settings.server
        request = arguments.request() if tool.sources else replace(arguments.request(), context=True)
        answer = await desk.search(principal, request, trace=bool(arguments.explain or server.full_results))
        answer = await desk.with_warnings(answer)
        call_audit.current_call().steps = answer.steps
        call_audit.current_call().degraded = answer.degraded
        vectors = server.include_vectors if arguments.vectors is None else arguments.vectors
        urls, brief = server.openai_compat, not server.full_results

        def render(max_chars: int) -> SearchReply:
            room = max_chars - NO_ROOM_CHARS if arguments.explain else max_chars
            reply = search_reply(answer, room, vectors=vectors, urls=urls, pages=self.pages, brief=brief)
            reply = reply if tool.sources else without_results(reply)
            return with_trace(reply, answer, max_chars) if arguments.explain else reply

        result = await self._with_notes(render, arguments.max_chars or server.max_chars)
        if with_app and tool.sources:
            result.meta = mcp_apps.search_meta(
                tool, answer.hits, (result.structured_content or {})["results"]
            )
        return result

    def _with_page(self, extract: Extract, name: str) -> Extract:
        """The extract with the address that search gives a hit of this name, if it has none of its own."""
        source = extract.source
        if not self.pages or shown_url(source):
            return extract
        id_ = source.id
        with suppress(NotFoundError):
            _, named = named_id(name)
            id_ = named if named.startswith(source.id) else id_  # a path may look like another id
        page = passage_page(self.pages, id_, None if "@" in id_ else source.revision)
        return replace(extract, source=replace(source, url=page))

    async def _page_picture(
        self, principal: Principal, raw_arguments: dict[str, Any]
    ) -> types.CallToolResult:
        arguments = _arguments(tools.PageArguments, raw_arguments)
        desk = await self.lazy_desk.desk()
        return mcp_apps.picture_result(arguments.id, await desk.page(principal, arguments.id, arguments.page))

    def _check_offered(
        self, arguments: tools.SearchArguments, tool: server_settings.ToolSettings, principal: Principal
    ) -> None:
        for withheld in sorted(tools.withheld_arguments(tool)):
            if getattr(arguments, withheld) is not None:
                raise InvalidRequestError(f"{tool.name} has no argument {withheld}; leave it out.")
        if arguments.query is None and "related" in tools.withheld_arguments(tool):
            raise InvalidRequestError(f"{tool.name} needs a query: a question, or some words.")
        if arguments.query is None and arguments.related is None:
            raise InvalidRequestError(NOTHING_ASKED)
        changes_vectors = arguments.vectors not in {None, self.settings.server.include_vectors}
        if changes_vectors and "vectors" in tools.fixed_arguments(
            tools.usual_plan(self.settings, tool, principal)
        ):
            raise InvalidRequestError("vectors is fixed by the operator; leave it out.")
        if arguments.explain and not self.settings.server.explain:
            raise InvalidRequestError("The operator has not enabled explain; leave it out.")
        offered = self.settings.server.profiles
        stages_of = arguments.stages.get("of") if arguments.stages else None
        for argument, name in {"profile": arguments.profile, "stages.of": stages_of}.items():
            if name is not None and name not in offered:
                raise InvalidRequestError(
                    f"{argument} must be one of {', '.join(offered)}."
                    if offered
                    else f"The operator offers no profiles; leave {argument} out."
                )

    async def _get_source(self, principal: Principal, raw_arguments: dict[str, Any]) -> types.CallToolResult:
        withheld = () if self._pictures else ("picture",)
        arguments = _arguments(tools.GetSourceArguments, raw_arguments, withheld)
        max_chars = arguments.max_chars or self.settings.server.max_chars
        desk = await self.lazy_desk.desk()
        part, listing = arguments.part(), arguments.listing()
        target = await open_or_list(desk, principal, arguments.id, max_chars, part=part, listing=listing)
        target = target if isinstance(target, Folder) else self._with_page(target, arguments.id or "")
        render = partial(reply_of_target, target)
        if not arguments.picture:
            return await self._with_notes(render, max_chars)
        image, note = await self._picture(target)
        return await self._with_notes(render, max_chars, note, image=image)

    async def _picture(self, target: Extract | Folder) -> tuple[types.ImageContent | None, str]:
        """The page of an opened document and a note on its number; or the reason why there is no picture."""
        if not self._pictures:
            return None, NO_PICTURES
        if isinstance(target, Folder):
            return None, NO_PICTURE_OF_LIST
        # Imported here, because most servers are never asked for one.
        from rag.search.page_picture import page_of  # noqa: PLC0415

        try:
            page = await page_of(target)
        except InvalidRequestError as error:
            return None, str(error)
        return mcp_apps.image(page), PICTURED.format(page.number, page.picture.pages)

    async def _with_notes(
        self,
        render: Callable[[int], NotedReply],
        max_chars: int,
        *notes: str,
        image: types.ImageContent | None = None,
    ) -> types.CallToolResult:
        """The rendered result with these notes and the intake's, within `max_chars` and `MAX_REPLY_BYTES`.

        An image follows the text, which is shortened if both don't fit.
        """
        if self.intake:
            notes += tuple(filter(None, (self.intake.note, self.intake.remark())))
        room = sum(len(json.dumps(note)) + 1 for note in notes)

        def noted(fitting: int) -> types.CallToolResult:
            reply = render(fitting - room)
            return tool_result(reply.model_copy(update={"notes": [*reply.notes, *notes]}) if notes else reply)

        if image is None:
            return await _within_bytes(noted, max_chars)
        result = await _within_bytes(noted, max_chars, MAX_REPLY_BYTES - len(image.data) - ENVELOPE_BYTES)
        result.content.append(image)
        return result

    async def _fetch(self, principal: Principal, raw_arguments: dict[str, Any]) -> types.CallToolResult:
        name, desk = _arguments(tools.FetchArguments, raw_arguments).id, await self.lazy_desk.desk()
        id_ = await desk.resolve_name(principal, name)
        extract = self._with_page(await open_document(desk, principal, id_, MAX_REPLY_CHARS), id_)

        def render(fitting: int) -> types.CallToolResult:
            reply = fetch_reply(extract, id_, fitting)
            return tool_result(reply.model_copy(update={"id": name}))  # as connectors expect

        return await _within_bytes(render, MAX_REPLY_CHARS)

    def _reader(self, context: Context) -> Principal:
        """The principal for reading resources: it reaches what any of its tools may show."""
        return principal_through_any(*self._principal_and_tools(context))

    def _tools(self, context: Context) -> tuple[server_settings.ToolSettings, ...]:
        return self._principal_and_tools(context)[1]

    def _principal_and_tools(
        self, context: Context
    ) -> tuple[Principal, tuple[server_settings.ToolSettings, ...]]:
        principal = self.principal_of(context)
        return principal, callable_tools(self.settings.server, principal)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """resources/list: the readable sources, ordered by collection and id, in pages."""
        after = resources.read_cursor(params.cursor if params else None)
        desk, principal = await self.lazy_desk.desk(), self._reader(context)
        page = await desk.sources(principal, after=after, limit=PAGE_SIZE)
        sizes = await desk.sizes(principal, page)
        full = len(page) == PAGE_SIZE
        return types.ListResourcesResult(
            resources=[resources.resource(source, sizes.get(source.id)) for source in page],
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
        """resources/read: the text of a source or a chunk, the page of passages, or the skill."""
        if params.uri == mcp_apps.URI and self._shows_apps(context):
            return mcp_apps.contents()
        if params.uri == resources.skill_uri(self.settings.server):
            return resources.read_skill(self.settings.server, self._tools(context))
        desk, reader = await self.lazy_desk.desk(), self._reader(context)
        id_ = await desk.resolve_name(reader, params.uri)
        part = Part(around=0 if "/" in id_ else None)
        extract = await desk.extract(reader, id_, max_chars=MAX_RESOURCE_CHARS, part=part)
        uri = resource_uri(extract.source.collection, id_)
        return await _within_bytes(
            lambda fitting: resources.contents(uri, extract, fitting), MAX_RESOURCE_CHARS
        )

    async def list_prompts(self, _context: Context, _params: object) -> types.ListPromptsResult:
        """prompts/list."""
        return types.ListPromptsResult(prompts=[tool_listing.PROMPT])

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """prompts/get."""
        if params.name != tool_listing.PROMPT.name:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name[:64]!r}.")
        arguments = params.arguments or {}
        question = arguments.get("question", "").strip()
        if not question:
            raise InvalidRequestError("The prompt 'answer' needs the argument question.")
        text = tool_listing.with_names(tool_listing.ANSWER_PROMPT, self._tools(context), question=question)
        content = types.TextContent(text=text + tool_listing.narrowing(arguments))
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=tool_listing.PROMPT.description, messages=[message])

    async def list_skills(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """skills/list: the skill; empty for a caller without tools."""
        if params.cursor is not None:
            raise InvalidRequestError(resources.ONE_PAGE)
        called = self._tools(context)
        skills = [resources.skill_entry(self.settings.server, called)] if called else []
        return resources.with_lifetime(context, {"skills": skills})

    async def get_skill(self, context: Context, params: resources.GetSkillParams) -> dict[str, Any]:
        """skills/get."""
        called = self._tools(context)
        if not called or params.uri != resources.skill_uri(self.settings.server):
            raise NotFoundError(resources.NO_SKILL)
        return resources.with_lifetime(
            context, {"skill": resources.skill_entry(self.settings.server, called)}
        )

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """completion/complete: for the resource templates and the prompt, of what the principal may read."""
        if not can_complete(params):
            return completion()
        return await complete_argument(await self.lazy_desk.desk(), self._reader(context), params)


async def decode_arguments(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Middleware: read all arguments of a call if a host sent them as JSON in one string."""
    params = ctx.params or {}
    sent = params.get("arguments")
    if ctx.method == "tools/call" and isinstance(sent, str):
        ctx = replace(ctx, params={**params, "arguments": decode_json(sent) if sent.strip() else None})
    return await call_next(ctx)


BUSY = -32000  # JSON-RPC reserves -32000 to -32099 for servers


def message_for(error: RefdeskError, *, remote: bool) -> str:
    """The message of an error for the caller.

    A remote caller learns what it can do, and the request id under which the operator's log has the reason. A
    local caller is the operator or a person at the same machine, and gets the full message.
    """
    if not remote or error.for_caller == str(error):
        return str(error)
    request = current_request.get()
    id_ = request.id if request else "unknown"
    return f"{error.for_caller} The operator's log has the reason under request {id_}."


def error_boundary(
    lazy_desk: LazyDesk, limits: server_settings.LimitSettings, *, remote: bool
) -> ServerMiddleware[Any]:
    """Middleware that turns every exception into a protocol error with a safe message."""

    async def translate(ctx: Context, call_next: CallNext) -> HandlerResult:
        # First errors that a caller can act on, then errors for the operator only. The latter are logged,
        # because their reason must not leave the server.
        try:
            return await call_next(ctx)
        except NotFoundError as error:
            uri = (ctx.params or {}).get("uri")
            raise MCPError(types.INVALID_PARAMS, str(error), None if uri is None else {"uri": uri}) from None
        except InvalidRequestError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except AccessError as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from None
        except BusyError as error:
            raise MCPError(BUSY, str(error), {"retryAfterMs": 1000 * error.retry_seconds}) from None
        except RefdeskError as error:
            log.warning("%s failed: %s", ctx.method, error)
            raise MCPError(types.INTERNAL_ERROR, message_for(error, remote=remote)) from None
        except TimeoutError:
            log.warning("%s took over %g s", ctx.method, limits.request_seconds)
            seconds = f"{limits.request_seconds:g} s"
            message = f"The request was cancelled after {seconds}. Ask for less at once, or again later."
            raise MCPError(types.INTERNAL_ERROR, message) from None
        except (MCPError, ValidationError):  # the SDK words these itself, without the caller's values
            raise
        except Exception:
            log.exception("%s crashed", ctx.method)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error") from None
        finally:
            lazy_desk.first_reply.set()  # the desk opens only now: see `lazy_desk`

    return translate


INTRODUCING = frozenset({"initialize", "server/discover"})


def introduction(
    lazy_desk: LazyDesk,
    server: server_settings.ServerSettings,
    admission: Admission,
    principal_of: Callable[[Any], Principal],
) -> ServerMiddleware[Any]:
    """Middleware that adds an overview of readable collections to the instructions, for hosts over HTTP.

    Over stdio, the instructions are the first thing that a host asks for, and it must not wait for the engine
    (`server.lazy_desk`). There the description of the search tool has the overview, which hosts ask for next.
    Over HTTP the engine is open before the first host connects.
    """

    async def introduce(ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method not in INTRODUCING or not isinstance(result, dict):
            return result
        principal = principal_of(ctx)
        called = callable_tools(server, principal)
        try:
            async with admission.slot(principal):  # greetings need no slot, but counting documents does
                overview = await lazy_desk.overview(principal_through_any(principal, called))
        except BusyError:
            log.info("The server is too busy to put an overview of the desk into its instructions.")
            return result
        return result | {"instructions": tool_listing.instructions(server, called, overview)}

    return introduce


def _no_headers(_tool: str) -> None:
    """Tells the SDK that no argument is mirrored in a header; otherwise it lists the tools at each call."""


def tool_result(reply: Reply) -> types.CallToolResult:
    """A reply as text and as structured content: some hosts show the model only one of them."""
    return types.CallToolResult(
        content=[types.TextContent(text=reply.compact())],
        structured_content=reply.model_dump(exclude_none=True),
    )


def _arguments(
    model: type[Arguments], raw_arguments: dict[str, Any], hidden: Sequence[str] = ()
) -> Arguments:
    try:
        return model.model_validate(raw_arguments)
    except ValidationError as error:
        raise argument_error(error, model, hidden) from None


async def _within_bytes(
    render: Callable[[int], Result], max_chars: int, max_bytes: int = MAX_REPLY_BYTES
) -> Result:
    """The result of `render(max_chars)`, or of fewer characters until it fits into `max_bytes`."""

    def fitting(chars: int) -> Result:
        result = render(chars)
        while most_bytes(result) > max_bytes and (size := size_on_the_wire(result)) > max_bytes:
            chars = chars * max_bytes // size
            result = render(chars)
        return result

    return await to_thread.run_sync(fitting, max_chars)  # because replies can be long


def most_bytes(result: Result) -> int:
    """An upper bound of a result's size, without rendering it: most results are far below the limit.

    A byte of UTF-8 takes up to six bytes in text. The results of tools come twice, as text and as structured
    content, but are JSON already and so have no control characters, and take three bytes each.
    """
    blocks = result.content if isinstance(result, types.CallToolResult) else result.contents
    texts = [
        block.text for block in blocks if isinstance(block, types.TextContent | types.TextResourceContents)
    ]
    if len(texts) < len(blocks):
        return MAX_REPLY_BYTES + 1  # other content must be measured
    return ENVELOPE_BYTES + MOST_BYTES_OF_ONE * sum(
        len(text.encode(errors="surrogatepass")) for text in texts
    )


def size_on_the_wire(result: Result) -> int:
    """An upper bound for every transport: JSON with blanks, escaped to ASCII."""
    return len(json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True)))

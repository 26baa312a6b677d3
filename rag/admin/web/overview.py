"""The first page: what the desk holds, its last runs, and its health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.admin.status import size_of
from rag.admin.web.console import seen_other
from rag.run_history import last_runs

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console


async def overview(console: Console, _request: Request) -> Response:
    """The page."""
    sizes = [await size_of(table) for table in await console.tables()]
    runs = {run.collection: run for run in last_runs(console.settings.home, console.tenant)}
    return console.page("overview.html", sizes=sizes, runs=runs, health=console.health)


async def look_again(console: Console, _request: Request, _form: FormData) -> Response:
    """Look at the health of the desk again."""
    await console.health.look()
    return seen_other("/#health")


async def choose_tenant(console: Console, _request: Request, form: FormData) -> Response:
    """Look at another tenant."""
    console.choose(str(form.get("tenant", "")))
    return seen_other("/")

"""`refdesk-admin console`: listens on this machine, and says where."""

from __future__ import annotations

import os
import socket
import tempfile
import webbrowser
from contextlib import contextmanager
from html import escape
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click
import uvicorn
from anyio import to_thread

from rag.admin.console import command, echo, print_json, settings_file
from rag.admin.sources import open_reader
from rag.admin.web.app import console_app
from rag.admin.web.console import Console
from rag.admin.web.guard import Door
from rag.admin.web.health import Health
from rag.errors import ConfigurationError
from rag.search.desk import Desk
from rag.search.planning import with_every_override
from rag.store.write.desk_folder import uploads_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rag.config.settings import Settings

HOST = "127.0.0.1"
END_SECONDS = 2  # for requests that run when the console ends


@command("console")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port. Default: a free one."
)
@click.option("--open", "opens", is_flag=True, help="Open the browser.")
@click.option(
    "--uploads",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the files that the browser sends. Default: uploads in the data folder.",
)
async def console_command(
    settings: Settings, *, port: int, opens: bool, uploads: Path | None, as_json: bool
) -> None:
    """Show and administer this desk in a browser.

    It listens on 127.0.0.1 only, until Ctrl-C. The printed address signs in one browser; after
    that it is used up. From another machine, forward the port by SSH under the same number.
    """
    with _listening(port) as listener:
        door = Door(f"{HOST}:{listener.getsockname()[1]}")
        every = settings.model_copy(update={"search": with_every_override(settings.search)})
        async with Desk.open(every, os.environ) as desk:
            console = Console(
                settings,
                settings_file(),
                door,
                desk,
                open_reader(settings),
                Health(settings, settings_file()),
                (uploads or uploads_folder(settings.data)).absolute(),
            )
            if as_json:
                print_json({"address": door.address})
            else:
                echo(f"The console is at {door.address}")
                echo("The address signs in one browser on this machine. Ctrl-C ends the console.")
            with _opened(door.address if opens else ""):
                await _serve(console, listener)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket that listens on this machine only.

    Raises:
        ConfigurationError: something else uses the port.
    """
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigurationError(f"Can't listen on {HOST}:{port}: {error.strerror}. Try --port 0.") from error
    # Connections inherit it. Without it each page waits 40 ms: asyncio only sets it where `proto` is stated.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listener:
        yield listener


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open the browser at an address, if there is one.

    By way of a file that only we can read: any user of this machine sees the arguments of a process.
    """
    if not address:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="refdesk-console-") as folder:
        page = Path(folder, "console.html")
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">', encoding="utf-8"
        )
        # In a thread: a browser for terminals would stay, and wait for us.
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield


class _Server(uvicorn.Server):
    """Ends at the first signal, which is how a person ends it, and at once at the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 uvicorn's signature
        """Let running requests finish."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def _serve(console: Console, listener: socket.socket) -> None:
    config = uvicorn.Config(
        await to_thread.run_sync(console_app, console),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=END_SECONDS,
    )
    await _Server(config).serve([listener])

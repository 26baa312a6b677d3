"""The pages of ingestions: uploading files, which `refdesk-admin ingest` ingests; progress; earlier runs."""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from anyio import move_on_after, to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response, StreamingResponse

from rag.access.rule import valid_entries, valid_name
from rag.admin.runs_command import duration
from rag.admin.web.console import Console, EntryError, comma_parts, entry, number_in, see_other
from rag.config.settings import DEFAULT_COLLECTION
from rag.errors import BusyError, InvalidRequestError, NotFoundError
from rag.run_history import runs_of
from rag.store.write.desk_folder import make_private, uploads_folder, writable
from rag.text.plain_text import JOINERS, without_hidden

if TYPE_CHECKING:
    from starlette.requests import Request

SHOWN = 30  # runs
TELL_SECONDS, QUIET_SECONDS = 0.4, 15.0
"""The least and the longest time between two events; the latter so that a lost connection is noticed."""
MOST_RUNS = 10**9
PLACE = "/ingestion"


async def ingestion(console: Console, _request: Request) -> Response:
    """The page: the form, the present run, and earlier runs."""
    runs = sorted(runs_of(console.settings.home, console.tenant).items(), reverse=True)
    last = console.jobs.last
    job = last if last and last.tenant == console.tenant else None
    return console.page(
        "ingestion.html",
        collections=[
            collection.name for collection in await console.collections() if not collection.attached
        ],
        usual=DEFAULT_COLLECTION,
        folder=uploads_folder(console.settings.data),
        max_bytes=console.settings.ingest.max_file_bytes,
        job=job,
        other_tenant_runs=bool(last and last.runs and not job),
        runs=runs[:SHOWN],
        took=duration,
    )


async def run(console: Console, request: Request) -> Response:
    """A run with its failures."""
    id_ = number_in(request.path_params["id"], 0, MOST_RUNS)
    runs = runs_of(console.settings.home, console.tenant)
    if id_ is None or id_ not in runs:
        raise NotFoundError("There is no such run.")
    return console.page("run.html", id=id_, run=runs[id_], took=duration)


async def upload(console: Console, _request: Request, form: FormData) -> Response:
    """Save the uploaded files, and start to ingest them."""
    new = str(form.get("new", "")).strip()
    with entry("new" if new else "collection"):
        collection = valid_name(new or str(form.get("collection", "")))
    with entry("allow"):
        arguments = _rights(form)
    files = [file for file in form.getlist("files") if isinstance(file, UploadFile) and file.filename]
    if not files:
        raise EntryError("files", "Choose files first.")
    console.jobs.check_free()
    folder = upload_folder(console.settings.data, console.tenant, collection)
    sent = [(file.filename or "", file.file) for file in files]
    with entry("files"):
        paths = await to_thread.run_sync(
            partial(save_uploads, folder, sent, console.settings.ingest.max_file_bytes), cancellable=False
        )
    console.jobs.start(
        collection,
        folder,
        [
            *(str(path) for path in paths),
            f"--collection={collection}",
            *arguments,
            *("--archives", "--verbose", "--log"),
            *console.same_desk,
        ],
    )
    return see_other(PLACE)


async def stop(console: Console, _request: Request, _form: FormData) -> Response:
    """Interrupt the present run."""
    job = console.jobs.last
    if job and job.tenant != console.tenant:
        raise BusyError(f"That ingestion is one of {job.tenant}. Choose that tenant at the top to stop it.")
    console.jobs.stop()
    console.say("Interrupting the ingestion. What is complete is kept.")
    return see_other(PLACE)


async def events(console: Console, _request: Request) -> Response:
    """Server-sent events: one whenever the run has progressed, and a last one at its end."""
    return StreamingResponse(_events(console), media_type="text/event-stream")


async def _events(console: Console) -> AsyncIterator[str]:
    job = console.jobs.last
    while job and job.runs:
        with move_on_after(QUIET_SECONDS):
            await job.changed.wait()
        yield f"data: {job.done}\n\n"
        with move_on_after(TELL_SECONDS):
            await job.ended.wait()
    yield "event: end\ndata: \n\n"


def _rights(form: FormData) -> list[str]:
    """The options of `ingest` for who may see the documents. “Only” also applies to documents that exist."""
    allow, visibility = comma_parts(str(form.get("allow", ""))), form.get("who")
    if allow and visibility != "restricted":
        raise InvalidRequestError(
            f"Choose “only” for {', '.join(allow)}, or leave that out. Nothing was ingested."
        )
    if visibility == "restricted":
        valid_entries(allow)
        return ["--visibility=restricted", *(f"--allow={entry}" for entry in allow), "--set-access"]
    return ["--visibility=tenant"] if visibility == "tenant" else []


# Uploaded files: where they are saved, and under which names.

NAME_BYTES = 200  # file systems take 255; the name of a draft is longer
UNWANTED = '<>:"|?*'  # in names on Windows
PORTS = (f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10))
DEVICES = frozenset({"con", "prn", "aux", "nul", *PORTS})  # no names on Windows


def upload_folder(data: Path, tenant: str, collection: str) -> Path:
    """The folder for a collection's uploads; raises ConfigurationError if the name is not valid."""
    return uploads_folder(data) / valid_name(tenant) / valid_name(collection)


def file_name(sent_name: str) -> str:
    r"""A safe file name: the last part of the name that the browser sent, without special characters.

    Example: "../../etc/passwd" -> "passwd", "C:\\\\docs\\\\a?.md" -> "a_.md", ".env" -> "env".

    Raises:
        InvalidRequestError: no character is left.
    """
    last = without_hidden(unicodedata.normalize("NFC", sent_name)).replace("\\", "/").rpartition("/")[2]
    characters = (c if (c.isprintable() or c in JOINERS) and c not in UNWANTED else "_" for c in last)
    name = "".join(characters).strip(" .")
    if not name:
        raise InvalidRequestError("A file needs a name.")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > NAME_BYTES // 2:
        stem, suffix = name, ""
    if stem.partition(".")[0].casefold() in DEVICES:
        stem = f"_{stem}"
    room = NAME_BYTES - len(dot.encode()) - len(suffix.encode())
    stem = stem.encode()[:room].decode(errors="ignore")
    return f"{stem}.{suffix}" if suffix else stem


def save_uploads(folder: Path, files: Sequence[tuple[str, BinaryIO]], most_bytes: int) -> list[Path]:
    """Save files into a folder, replacing files of the same names. Returns their paths.

    Raises:
        InvalidRequestError: a file has no name, is too large, or has the name of another one.
        ConfigurationError, StoreError: the folder can't be written.
    """
    names = [file_name(sent_name) for sent_name, _ in files]
    if len({name.casefold() for name in names}) < len(names):  # one file where the case of names is lost
        raise InvalidRequestError("Two of these files have the same name. Send them one after the other.")
    for name, (_, file) in zip(names, files, strict=True):
        if file.seek(0, os.SEEK_END) > most_bytes:
            raise InvalidRequestError(
                f"{name} has more than {most_bytes:,} bytes, which is the limit of ingest.max_file_bytes. "
                "Nothing was ingested."
            )
    with writable(f"The folder {folder} can't be written"):
        make_private(folder)
        return [_save_file(folder, name, file) for name, (_, file) in zip(names, files, strict=True)]


def _save_file(folder: Path, name: str, file: BinaryIO) -> Path:
    """Save a file atomically: to a draft, then renamed. Returns its path."""
    file.seek(0)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            shutil.copyfileobj(file, opened)
        return Path(draft).replace(folder / name)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise

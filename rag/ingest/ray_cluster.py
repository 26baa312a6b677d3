"""Parses, chunks and embeds documents on a Ray cluster; the rest of a run stays on this machine.

This machine reads the files, compares them with the stored sources, decides their rights and commits. A
worker gets the bytes of one document, or texts, and returns passages, or vectors. It writes nothing and opens
only a model, so Ray may repeat the task of a dead worker. Embedders behind endpoints are called from this
machine, so no key leaves it.

This process is only a client of the cluster, also of a `local` one: Ray ends a process that is part of a
cluster if the head dies. Nothing here waits forever for a silent cluster (`Cluster.look`). If the cluster
fails, a call raises a `ProviderError`.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, chdir, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.metadata import version
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import anyio
import numpy as np
from anyio import from_thread, to_thread
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import current_token

from rag.config.model_settings import EmbedderOptions, EmbedderSettings
from rag.corpus import Collection, EmbedderIdentity, Vectors
from rag.errors import ConfigurationError, ParseError, ProviderError, RefdeskError
from rag.ingest.chunk_vectors import EMBED_AT_ONCE
from rag.ingest.document_admission import NotAdmittedError
from rag.ingest.ingest_run import Executor
from rag.models.embed import Embedder, TextKind, WrappedEmbedder, open_embedder
from rag.originals import RECIPE
from rag.runtime import concurrently, cores, install_command
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import Derived

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from rag.ingest.prepare import Chunked, FileContent, Preparation
    from rag.ingest.requested_access import Rights
    from rag.ingest.source_files import Budget

T = TypeVar("T")
LOCAL = "local"
NOWHERE = "http://127.0.0.1:9"  # a placeholder: no key belongs to it, and nothing is sent
TEXTS = 32  # in a task: half a second with the built-in model, where Ray takes a millisecond for it
RETRIES = 3  # of a task whose worker or node died
LOOK_SECONDS = 10.0  # without a result, before checking that the cluster still answers
SILENT_SECONDS = 120.0  # a head on a busy machine takes many seconds to answer
IDLE_SECONDS = 600.0  # a cluster that grows by itself takes minutes to start its first node
END_SECONDS = 20.0
HEAD = """
import os, sys, ray
from ray.util.client.server.server import init_and_serve
port, cores = map(int, sys.argv[1:])
quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
server = init_and_serve("127.0.0.1", port, address="local", num_cpus=cores, **quiet)
print("ready", flush=True)
os.dup2(2, 1)
sys.stdin.buffer.read()
os.killpg(0, 9) if os.name == "posix" else os._exit(0)
"""
"""The head of a local cluster. Its main thread starts Ray, whose processes end with the thread that started
them. It ends when its standard input closes. `server` must be bound: otherwise it stops listening."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """The embedder that a worker opens, and its identity here: a worker's must be the same."""

    settings: EmbedderSettings
    identity: EmbedderIdentity
    window: int
    refdesk: str

    @classmethod
    def of(cls, settings: EmbedderSettings, embedder: Embedder) -> Model:
        """This machine's model, without the address of an endpoint: workers only count its tokens."""
        if settings.provider == "openai":
            settings = settings.model_copy(update={"base_url": NOWHERE, "options": EmbedderOptions()})
        return cls(settings, embedder.identity, embedder.window, f"{version('refdesk')}, recipe {RECIPE}")


@dataclass(frozen=True, slots=True)
class Connection:
    """Ray, connected to a cluster."""

    ray: Any

    async def cluster(
        self, settings: EmbedderSettings, embedder: Embedder, collection: Collection, rights: Rights
    ) -> Cluster:
        """The cluster with this embedder on its workers, for documents of a collection with these rights.

        Raises:
            ConfigurationError: the workers lack the embedder, or have no refdesk or another version.
        """
        cluster = Cluster(self.ray, 1, Model.of(settings, embedder), collection, rights)
        cluster = replace(cluster, workers=max(1, await cluster.look()))
        await cluster.check()
        return cluster


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster. `workers` is the number of its processors."""

    ray: Any
    workers: int
    model: Model
    collection: Collection
    rights: Rights
    _last_look: _LastLook = field(default_factory=lambda: _LastLook(anyio.Lock()))

    def embedder(self, here: Embedder) -> ClusterEmbedder:
        """An embedder that runs this machine's model on the workers."""
        return ClusterEmbedder(here, self)

    @property
    def executor(self) -> Executor:
        """The executor of a run: a worker that finishes finds the next document or texts waiting."""
        texts = max(EMBED_AT_ONCE, 2 * TEXTS * self.workers)
        return Executor(self.workers, 2 * self.workers, texts, self.chunk)

    @property
    def pickled(self) -> bytes:
        """The model, for workers."""
        return pickle.dumps(self.model)

    async def check(self) -> None:
        """Check that a worker can start, with the same refdesk and model as this machine.

        Raises:
            ConfigurationError: no worker can start, or they differ.
        """
        try:
            await self._done(_start_error, self.pickled)
        except (ProviderError, _WorkerDiedError) as error:
            raise ConfigurationError(
                "No worker of the Ray cluster can begin. Install the same refdesk[ray] on every node of it."
            ) from error

    async def chunk(self, preparation: Preparation, content: FileContent, budget: Budget) -> Chunked:
        """As `Preparation.chunk`, on a worker, with the `Derived` values of the rows."""
        elsewhere = replace(preparation, embedder=cast("Embedder", None))  # a model can't be sent
        try:
            stored = pickle.dumps((elsewhere, self.collection, self.rights))
            return await self._done(_chunk, self.pickled, stored, content, budget)
        except _WorkerDiedError as error:
            raise ParseError(f"{RETRIES + 1} workers of the cluster died over it", "crashed") from error

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of documents, from the model on a worker."""
        try:
            return await self._done(_vectors, self.pickled, texts)
        except _WorkerDiedError as error:
            raise _failure(error) from error

    async def look(self) -> int:
        """The number of the cluster's processors, 0 for some minutes at most.

        Raises:
            ProviderError: it doesn't answer, or has had none for long.
        """
        async with (last := self._last_look).lock:
            if time.monotonic() < last.at + LOOK_SECONDS:
                return last.processors
            try:
                with anyio.fail_after(SILENT_SECONDS):
                    resources = await _answer(self.ray.cluster_resources)
            except TimeoutError as error:
                raise _failure(error) from error
            except Exception as error:  # gRPC's errors share no base with Ray's
                raise _failure(ConnectionError()) from error
            last.at, last.processors = time.monotonic(), int(resources.get("CPU", 0))
            if last.processors or not last.worked:
                last.worked = last.at
            if last.at > last.worked + IDLE_SECONDS:
                raise _failure(_NoProcessorError())
            return last.processors

    async def _done(self, work: Callable[..., T | Exception], *arguments: object) -> T:
        task = _task(self.ray, work)
        try:
            future, done = await _begun(lambda: task.remote(*arguments).future())
            while not future.done():
                with anyio.move_on_after(LOOK_SECONDS):
                    await done.wait()
                    break
                await self.look()
            result = future.result()
        except (self.ray.exceptions.WorkerCrashedError, self.ray.exceptions.OutOfMemoryError) as error:
            raise _WorkerDiedError from error
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            raise _failure(error) from error
        if isinstance(result, ConfigurationError):
            raise ConfigurationError(f"On a worker of the cluster: {result}")
        if isinstance(result, Exception):
            raise result
        return cast("T", result)


@lru_cache
def _task(ray: Any, work: Callable[..., object]) -> Any:  # noqa: ANN401 Ray's types are not known here
    """A function as a Ray task, cached: Ray sends it to the cluster once."""
    return ray.remote(num_cpus=1, max_retries=RETRIES)(work)


@dataclass(slots=True)
class _LastLook:
    """When the cluster last answered, how many processors it had, and when it last had any; 0 for never."""

    lock: anyio.Lock
    at: float = -math.inf
    processors: int = 0
    worked: float = 0.0


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """The result of a call in a thread that the end of this process doesn't wait for."""
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 the waiting task gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


async def _begun(begin: Callable[[], Future[T]]) -> tuple[Future[T], anyio.Event]:
    """The future that `begin` returns, and an event that is set when it is done."""
    done, loop = anyio.Event(), current_token()

    def tell(_future: Future[T]) -> None:
        with suppress(anyio.RunFinishedError):
            from_thread.run_sync(done.set, token=loop)

    def run() -> Future[T]:
        future = begin()
        future.add_done_callback(tell)  # in a thread: it calls what is done already at once
        return future

    return await to_thread.run_sync(run), done


async def _answer(call: Callable[[], T]) -> T:
    """The result of a call that may never return."""
    future, done = await _begun(partial(_in_thread, call))
    await done.wait()
    return future.result()


class _WorkerDiedError(Exception):
    """A worker died over a task, and so did each worker that retried it."""


class _NoProcessorError(Exception):
    """The cluster has no processor."""


def _failure(error: Exception) -> ProviderError:
    log.debug("the cluster failed", exc_info=error)
    return ProviderError(
        f"The Ray cluster failed ({type(error).__name__}). What was stored stays; run the command again "
        "to go on."
    )


@dataclass(frozen=True, slots=True)
class ClusterEmbedder(WrappedEmbedder):
    """An embedder whose documents are embedded on a cluster, unless it is behind an endpoint."""

    inner: Embedder
    cluster: Cluster

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """As the embedder itself."""
        if kind == "query" or not texts or self.identity.provider == "openai":
            return await self.inner.embed(texts, kind)
        batches = [texts[at : at + TEXTS] for at in range(0, len(texts), TEXTS)]
        return np.concatenate(await concurrently([partial(self.cluster.vectors, batch) for batch in batches]))


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Connection]:
    """Yields a connection to the cluster at `ray://HOST:PORT`, or to a new one on this machine (`local`).

    Connect before LanceDB starts its threads: Ray forks processes.

    Raises:
        ConfigurationError: Ray is not installed, or no cluster answers at the address.
    """
    ray = _ray(address)
    async with _own_cluster() if address == LOCAL else nullcontext(address) as there:
        await to_thread.run_sync(_connect, ray, address, there, abandon_on_cancel=True)
        try:
            yield Connection(ray)
        finally:
            with anyio.move_on_after(END_SECONDS, shield=True):
                await _answer(ray.shutdown)


def _ray(address: str) -> Any:  # noqa: ANN401 the module, which need not be installed
    """The module `ray`, with usage reports off, and a new token for a cluster of this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read at import, as the others
    if address == LOCAL and "RAY_AUTH_MODE" not in os.environ:  # else it keeps a token in the home folder
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
    try:
        import ray  # noqa: PLC0415 takes a second, and is not installed by default
    except ImportError as error:
        raise ConfigurationError(f"--on needs Ray. Run {install_command('ray')}") from error
    return ray


@asynccontextmanager
async def _own_cluster() -> AsyncIterator[str]:
    """Starts a cluster on this machine, and yields its address. It ends with this process, even if killed.

    Raises:
        ConfigurationError: it doesn't start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Workers import from their working folder first, and others may be able to write to the present one.
    with subprocess.Popen(  # noqa: ASYNC220, S603 takes milliseconds; our own program
        [sys.executable, "-P", "-c", HEAD, str(port), str(cores())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=sys.prefix,
        start_new_session=True,  # Ctrl-C is for this process, which ends it
    ) as head:
        assert head.stdin  # noqa: S101 they are pipes
        assert head.stdout  # noqa: S101 the same
        try:
            if not await to_thread.run_sync(_is_ready, head.stdout, abandon_on_cancel=True):
                raise ConfigurationError(
                    "Ray doesn't start on this machine. Run the same command without --on."
                )
            yield f"ray://127.0.0.1:{port}"
        finally:
            head.stdin.close()
            with anyio.CancelScope(shield=True), suppress(subprocess.TimeoutExpired):
                await to_thread.run_sync(head.wait, END_SECONDS)
            if os.name == "posix":  # what Ray started survives a head that was killed for some time
                with suppress(ProcessLookupError):
                    os.killpg(head.pid, signal.SIGKILL)
            head.kill()


def _is_ready(output: IO[bytes]) -> bool:
    return b"ready\n" in iter(output.readline, b"")


def _connect(ray: Any, address: str, there: str) -> None:  # noqa: ANN401 Ray's types are not known here
    try:
        # LanceDB warns of the processes that Ray forks, but none of its threads runs yet.
        with chdir(sys.prefix), warnings.catch_warnings(action="ignore"):
            ray.init(there, log_to_driver=False, logging_level="ERROR")
        logging.getLogger("ray").setLevel(logging.CRITICAL)  # errors are raised anyway
        warnings.filterwarnings("ignore", module=r"ray\.")  # of a connection that is lost later
    except (ConnectionError, RuntimeError, ValueError) as error:
        log.debug("no cluster", exc_info=error)
        if "ersion mismatch" in str(error):
            here = f"Ray {ray.__version__} and Python {'.'.join(map(str, sys.version_info[:3]))}"
            raise ConfigurationError(
                f"The cluster at {address} has another version of Ray or Python than this machine ({here}). "
                "Install the same ones here or there."
            ) from error
        raise ConfigurationError(
            f"Ray gets no connection to {address}. Name the head's port for clients (10001 by default). If "
            "the cluster wants a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
        ) from error


# What follows runs on workers.


@dataclass(frozen=True, slots=True)
class _Place:
    """A worker's model, and an event loop that outlives a task, so that parser processes do, too."""

    embedder: Embedder
    portal: BlockingPortal
    open: ExitStack


@lru_cache(maxsize=1)
def _place(model: bytes) -> _Place:
    """The state of this worker, made once.

    Raises:
        ConfigurationError: the model can't be opened on this worker, or differs from the driver's.
    """
    expected: Model = pickle.loads(model)  # noqa: S301 made by the driver, as this function is
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        opening = open_embedder(expected.settings, {}, probe=False)
        embedder = stack.enter_context(portal.wrap_async_context_manager(opening))
        here = Model.of(expected.settings, embedder)
        if expected.settings.provider == "openai":
            here = replace(here, identity=expected.identity)  # only its endpoint knows its dimension
        if here != expected:
            raise ConfigurationError(
                f"refdesk {here.refdesk} with {here.identity.model} is installed there, and refdesk "
                f"{expected.refdesk} with {expected.identity.model} here. Install the same ones."
            )
        return _Place(embedder, portal, stack.pop_all())


@lru_cache(maxsize=1)
def _preparation(model: bytes, stored: bytes) -> tuple[Preparation, Collection, Rights]:
    preparation, collection, rights = pickle.loads(stored)  # noqa: S301 made by the driver, too
    return replace(preparation, embedder=_place(model).embedder), collection, rights


def _start_error(model: bytes) -> Exception | bool:
    """True if this worker can start, else the error."""
    try:
        return bool(_place(model))
    except RefdeskError as error:
        return error


def _chunk(model: bytes, stored: bytes, content: FileContent, budget: Budget) -> Chunked | Exception:
    """A document in passages. Errors are returned, because Ray would log raised ones."""
    try:
        preparation, collection, rights = _preparation(model, stored)
        chunked = _place(model).portal.call(preparation.chunk, content, budget)
        # Access, id and vectors are decided on the other machine; nothing here depends on them.
        metadata = rights.shown(chunked.document.metadata)
        new = chunked.new_source(content, "", collection.name, Claim(None), metadata)
        return replace(chunked, derived=Derived.of(new, collection))
    except (RefdeskError, NotAdmittedError) as error:
        return error


def _vectors(model: bytes, texts: Sequence[str]) -> Vectors | Exception:
    """The vectors of documents, one text at a time in one thread: other workers use the other processors."""
    try:
        worker = _place(model)
        return np.concatenate(
            [worker.portal.call(worker.embedder.embed, [text], "document") for text in texts]
        )
    except RefdeskError as error:
        return error

"""Parses, chunks and embeds documents on a Ray cluster; the rest of a run stays on this machine.

This machine reads the files, compares them with what is stored, decides their rights and commits. A worker
gets the bytes of one document, or texts, and returns passages, or vectors. It writes nothing and opens only a
model, so Ray may repeat the task of a dead worker. Embedders behind endpoints are called from this machine,
so no key leaves it.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, chdir
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import numpy as np
from anyio import to_thread
from anyio.from_thread import start_blocking_portal

from rag.config.model_settings import EmbedderOptions, EmbedderSettings
from rag.corpus import EmbedderIdentity, Vectors
from rag.errors import ConfigurationError, ParseError, ProviderError, RefdeskError
from rag.ingest.chunk_vectors import EMBED_AT_ONCE
from rag.ingest.policy.document_admission import NotAdmittedError
from rag.models.embed import Embedder, TextKind, WrappedEmbedder, open_embedder
from rag.originals import RECIPE
from rag.runtime import concurrently, cores, install_command

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from rag.ingest.prepare import Chunked, FileContent, Preparation
    from rag.ingest.work_limits import Budget

T = TypeVar("T")
LOCAL = "local"
NOWHERE = "http://127.0.0.1:9"  # no key belongs to it, and nothing is sent
TEXTS = 32  # in a task: half a second with the built-in model, where Ray takes a millisecond for it
RETRIES = 3  # of a task whose worker or node died

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
        """This machine's model. Without the address of an endpoint: workers only count its tokens."""
        if settings.provider == "openai":
            settings = settings.model_copy(update={"base_url": NOWHERE, "options": EmbedderOptions()})
        return cls(settings, embedder.identity, embedder.window, f"{version('refdesk')}, recipe {RECIPE}")


@dataclass(frozen=True, slots=True)
class Connection:
    """Ray, connected to a cluster."""

    ray: Any

    async def cluster(self, settings: EmbedderSettings, embedder: Embedder) -> Cluster:
        """The cluster with this embedder on its workers.

        Raises:
            ConfigurationError: the workers lack the embedder, or have no refdesk or another version.
        """
        workers = max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        limiter = anyio.CapacityLimiter(4 * workers)
        cluster = Cluster(self.ray, workers, Model.of(settings, embedder), limiter)
        await cluster.check()
        return cluster


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster as the executor of a run. `workers` is the number of its processors."""

    ray: Any
    workers: int
    model: Model
    limiter: anyio.CapacityLimiter

    def embedder(self, here: Embedder) -> ClusterEmbedder:
        """The embedder of this machine, on the workers."""
        return ClusterEmbedder(here, self)

    @property
    def tasks_per_lane(self) -> int:
        """Two for each worker, so that one that finishes finds the next document waiting."""
        return 2 * self.workers

    @property
    def texts_at_once(self) -> int:
        """As many as keep all workers busy."""
        return max(EMBED_AT_ONCE, 2 * TEXTS * self.workers)

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
        """As `Preparation.chunk`, on a worker.

        Raises:
            ProviderError: the cluster failed.
        """
        elsewhere = replace(preparation, embedder=cast("Embedder", None))  # a model stays where it is opened
        try:
            return await self._done(_chunk, self.pickled, pickle.dumps(elsewhere), content, budget)
        except _WorkerDiedError as error:
            raise ParseError(f"{RETRIES + 1} workers of the cluster died over it", "crashed") from error

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of documents, from the model on a worker.

        Raises:
            ProviderError: the model or the cluster failed.
        """
        try:
            return await self._done(_vectors, self.pickled, texts)
        except _WorkerDiedError as error:
            raise _failure(error) from error

    async def _done(self, work: Callable[..., T | Exception], *arguments: object) -> T:
        task = _task(self.ray, work)
        try:
            result = await to_thread.run_sync(
                lambda: self.ray.get(task.remote(*arguments)), abandon_on_cancel=True, limiter=self.limiter
            )
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


class _WorkerDiedError(Exception):
    """A worker died over a task, and so did each worker that retried it."""


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
        """As the embedder itself.

        Raises:
            ProviderError: the cluster failed.
        """
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
    ray = await to_thread.run_sync(_start_ray, address, abandon_on_cancel=True)
    try:
        yield Connection(ray)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(ray.shutdown)


def _start_ray(address: str) -> Any:  # noqa: ANN401 the module, which need not be installed
    """The module `ray`, connected to a cluster, with usage reports off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read at import
    if address == LOCAL and "RAY_AUTH_MODE" not in os.environ:  # else it keeps a token in the home folder
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
    try:
        import ray  # noqa: PLC0415 takes a second, and is not installed by default
    except ImportError as error:
        raise ConfigurationError(f"--on needs Ray. Run {install_command('ray')}") from error
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        # Workers import from this working folder first, and anybody may be able to write to the present one.
        # LanceDB warns of the processes that Ray forks, but none of its threads runs yet.
        with chdir(sys.prefix), warnings.catch_warnings(action="ignore"):
            if address == LOCAL:
                ray.init(address=LOCAL, num_cpus=cores(), include_dashboard=False, **quiet)
            else:
                ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        log.debug("no cluster", exc_info=error)
        if "ersion mismatch" in str(error):
            here = f"Ray {ray.__version__} and Python {'.'.join(map(str, sys.version_info[:3]))}"
            raise ConfigurationError(
                f"The cluster at {address} has another version of Ray or Python than this machine ({here}). "
                "Install the same ones here or there."
            ) from error
        if address == LOCAL:
            raise ConfigurationError(
                "Ray doesn't start on this machine. Run the same command without --on."
            ) from error
        raise ConfigurationError(
            f"Ray gets no connection to {address}. Name the head's port for clients (10001 by default). If "
            "the cluster wants a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
        ) from error
    return ray


# What follows runs on workers.


@dataclass(frozen=True, slots=True)
class _Place:
    """A worker's model, and an event loop that outlives a task, so that parser processes do, too."""

    embedder: Embedder
    portal: BlockingPortal
    open: ExitStack


@lru_cache(maxsize=1)
def _place(model: bytes) -> _Place:
    """The state of this worker, made once in its life.

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
def _preparation(model: bytes, elsewhere: bytes) -> Preparation:
    return replace(cast("Preparation", pickle.loads(elsewhere)), embedder=_place(model).embedder)  # noqa: S301 the same


def _start_error(model: bytes) -> Exception | bool:
    """True if this worker can start, else the error."""
    try:
        return bool(_place(model))
    except RefdeskError as error:
        return error


def _chunk(model: bytes, elsewhere: bytes, content: FileContent, budget: Budget) -> Chunked | Exception:
    """A document in passages. What is wrong with it is returned: Ray would log what is raised."""
    try:
        preparation = _preparation(model, elsewhere)
        return _place(model).portal.call(preparation.chunk, content, budget)
    except (RefdeskError, NotAdmittedError) as error:
        return error


def _vectors(model: bytes, texts: Sequence[str]) -> Vectors | Exception:
    """The vectors of documents. One text at a time is one thread: other workers have the other processors."""
    try:
        worker = _place(model)
        return np.concatenate(
            [worker.portal.call(worker.embedder.embed, [text], "document") for text in texts]
        )
    except RefdeskError as error:
        return error

"""One origin in one run: reads the state that the last run kept, discovers, and keeps the new state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from anyio import to_thread

from rag.config.origin_settings import GitOrigin, OriginSettings, RecordsOrigin, S3Origin, WebOrigin
from rag.config.settings import IngestSettings
from rag.corpus import Access
from rag.ingest.discover import Discovery
from rag.ingest.ingest_run import DiscoveryInput
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings, prefix_of_origin
from rag.ingest.report import Outcome
from rag.ingest.requested_access import Rights
from rag.store.write.desk_folder import writable, write_whole
from rag.store.write.table_rows import KnownSource

VERSION = 1


@dataclass(slots=True)
class OriginRun:
    """Discovers the documents of an origin when called; `keep` stores its state in `folder` after the run.

    `agent` is the User-Agent for servers. Records without a command or file come from `stdin`. A temporary
    clone goes to `scratch`, if set, else to `folder`.
    """

    name: str
    origin: OriginSettings
    files: IngestSettings
    folder: Path
    _: KW_ONLY
    agent: str
    environment: Mapping[str, str]
    stdin: IO[bytes] | None
    scratch: Path | None
    _findings: OriginFindings = field(default_factory=OriginFindings, init=False)
    _recipe: str = field(default="", init=False)

    async def __call__(self, beforehand: DiscoveryInput) -> Discovery:
        """The present documents of the origin. If it can't be reached, all of its stored documents stay.

        Raises:
            ConfigurationError: the origin's settings can't work on this machine.
        """
        self._recipe = beforehand.recipe
        state = await to_thread.run_sync(self._state)
        context = self._context(beforehand, state)
        try:
            self._findings = await self._look(context, beforehand.rights)
        except FetchError as error:
            self._findings = OriginFindings()
            self._findings.unreachable(f"origin:{self.name}", str(error))
            self._findings.discovery.retained |= context.stored
            self._findings.state = {key: dict(entry) for key, entry in context.before.items()}
        return self._findings.discovery

    async def _look(self, context: OriginContext, rights: Rights) -> OriginFindings:
        match self.origin:
            case WebOrigin():
                from rag.ingest.origins.web_site import look_through_site  # noqa: PLC0415 only its own type

                return await look_through_site(self.origin, context)
            case GitOrigin():
                from rag.ingest.origins.git_repository import look_through_repository  # noqa: PLC0415 the same

                clone = (self.scratch or self.folder) / f"{self.name}.git"
                return await look_through_repository(self.origin, context, clone, self.environment)
            case S3Origin():
                from rag.ingest.origins.s3_bucket import look_through_bucket  # noqa: PLC0415 the same

                return await look_through_bucket(self.origin, context, self.environment)
            case RecordsOrigin():
                from rag.ingest.origins.piped_records import look_through_records  # noqa: PLC0415 the same

                usual = rights.command.record(rights.usual) if rights.command else Access(rights.usual)
                look = partial(
                    look_through_records, self.origin, context, usual, self.stdin, self.environment
                )
                return await to_thread.run_sync(look, abandon_on_cancel=True)
        raise TypeError  # a folder is ingested like one of the command line

    def _context(self, beforehand: DiscoveryInput, state: Mapping[str, Any]) -> OriginContext:
        stored, rights, opened = beforehand.stored, beforehand.rights, beforehand.opened
        # With another recipe, the digests of all documents differ: none counts as unchanged.
        before = state["documents"] if state.get("recipe") == beforehand.recipe else {}
        digests = {entry["uri"]: entry["digest"] for entry in before.values()}

        def is_current(uri: str) -> bool:
            source = stored.get(uri)
            if source is None or not opened.may_skip(uri):
                return opened.is_current(uri)
            return not rights.asks(source.record.requested) and source.digest == digests.get(uri)

        prefix = prefix_of_origin(self.name)
        return OriginContext(
            self.name,
            beforehand.spool,
            self.files,
            before,
            frozenset(uri for uri in stored if uri.startswith(prefix)),
            is_current,
            self.agent,
        )

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.name}.json"

    def _state(self) -> Mapping[str, Any]:
        """The state from the last run; empty, so that all is fetched, if missing or of another type."""
        try:
            state = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        kind = [VERSION, self.origin.type]
        return state if isinstance(state, dict) and state.get("kind") == kind else {}

    def keep(self, sources: Mapping[str, KnownSource], outcomes: Iterable[Outcome]) -> None:
        """Write the state of the documents that are stored now, for the next run.

        A document that was fetched but not stored has no state, so that it is fetched again.

        Raises:
            ConfigurationError: the state can't be written. The next run fetches more than it must.
            StoreError: the disk is full.
        """
        stored = {outcome.source_id for outcome in outcomes if outcome.outcome not in {"removed", "missing"}}
        discovery = self._findings.discovery

        def digest(entry: Mapping[str, Any]) -> str | None:
            uri = entry["uri"]
            if source := sources.get(uri):
                return source.digest if source.id in stored or uri in discovery.retained else None
            # An archive, or another file without a text of its own, is never a stored source.
            return "none" if uri in discovery.containers or entry.get("other") else None

        documents = {
            key: entry | {"digest": source_digest}
            for key, entry in self._findings.state.items()
            if (source_digest := digest(entry))
        }
        with writable(f"the state of origins.{self.name} can't be written"):
            if not documents:
                self._file.unlink(missing_ok=True)
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = {"kind": [VERSION, self.origin.type], "recipe": self._recipe, "documents": documents}
        write_whole(self._file, json.dumps(state).encode())

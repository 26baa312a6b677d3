"""A folder that is ingested over and over, with files that contain others."""

from __future__ import annotations

import io
import shutil
import zipfile
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import TYPE_CHECKING

from rag.access.rule import in_words
from rag.config.settings import IngestSettings
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.requested_access import Rights
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.small_desk import set_access

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    from rag.corpus import Access
    from rag.ingest.document_admission import Moderator
    from rag.ingest.report import Report


def mail(text: str = "See the plan.", **attached: bytes) -> bytes:
    message = EmailMessage()
    message["From"], message["Subject"], message["Message-ID"] = "ann@example.org", "Plans", "<1@example.org>"
    message.set_content(text)
    for name, data in attached.items():
        filename = name.replace("_", ".")
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=filename)
    return bytes(message)


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def keep(place: Path) -> None:
    """Remember a folder with files and what is stored of them, for `restore`."""
    shutil.copytree(place, place.with_name(f"{place.name}-kept"))


def restore(place: Path) -> None:
    """Make a folder as it was. It stays at its place, because what is stored names the files' paths."""
    shutil.rmtree(place)
    shutil.copytree(place.with_name(f"{place.name}-kept"), place)


@dataclass(slots=True)
class Shelf:
    """A folder that is ingested over and over, and what is stored of it."""

    desk: ModuleType
    folder: Path
    data: Path
    records: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)

    async def ingest(
        self, rights: Rights | None = None, moderator: Moderator | None = None, **settings: object
    ) -> Report:
        """A run; `records` says afterwards who may see each source, by its path below the folder."""
        embedder = self.desk.BagOfWords()
        collection = await ensure_collection(self.data, "default", "documents", embedder.identity)
        files = IngestSettings.model_validate({"archives": True} | settings)
        instructions = Instructions(files, rights or Rights("tenant"), moderator=moderator)
        async with open_writer(self.data, collection) as writer:
            report = await ingest(writer, embedder, [self.folder], instructions, self.desk.Progress())
            sources = await writer.known_sources()
        self.records = {
            source.metadata["path"]: in_words(source.record.access) for source in sources.values()
        }
        self.ids = {source.metadata["path"]: source.id for source in sources.values()}
        return report

    async def set_access(self, name: str, access: Access) -> None:
        async with await self.desk.writing(self.data) as writer:
            await set_access(writer, {self.ids[name]: access})

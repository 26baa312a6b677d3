"""What needs a package that refdesk's extras install: `refdesk[ocr]`."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError
from rag.ingest.parse import OF_EXTRA, formats
from rag.runtime import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.config.settings import IngestSettings
    from rag.ingest.report import Outcome


def check_extras(settings: IngestSettings) -> None:
    """Make sure that what the settings ask for is installed, before the first file is read.

    Raises:
        ConfigurationError: it isn't.
    """
    if settings.ocr != "off" and not find_spec("rapidocr"):
        raise ConfigurationError(
            f'ingest.ocr is "{settings.ocr}", but OCR is not installed. '
            f'Run {install_command("ocr")}, or set ingest.ocr to "off".'
        )


def extra_notes(outcomes: Iterable[Outcome]) -> list[str]:
    """Say which of the files that were left out an extra would read."""
    if formats.is_installed():
        return []
    left_out = (
        PurePath(one.path).suffix.lower() for one in outcomes if one.outcome in {"ignored", "skipped"}
    )
    counts = Counter(suffix for suffix in left_out if suffix in OF_EXTRA)
    if not counts:
        return []
    number, kinds = counts.total(), ", ".join(sorted(counts))
    files = "file" if number == 1 else "files"
    return [f"{number} {files} ({kinds}) can be read after: {install_command('formats')}"]

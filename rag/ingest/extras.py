"""What needs a package that refdesk's extras install: `pip install 'refdesk[ocr]'`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.config.settings import IngestSettings


def check_extras(settings: IngestSettings) -> None:
    """Make sure that what the settings ask for is installed, before the first file is read.

    Raises:
        ConfigurationError: it isn't.
    """
    if settings.ocr != "off" and not find_spec("rapidocr"):
        raise ConfigurationError(
            f'ingest.ocr is "{settings.ocr}", but OCR is not installed. '
            "Run pip install 'refdesk[ocr]', or set ingest.ocr to \"off\"."
        )

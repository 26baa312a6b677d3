"""What `refdesk-admin doctor` says of the desk, looked for in the background."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio

from rag.admin.doctor import findings, stated
from rag.admin.machine_checks import check_machine
from rag.errors import RefdeskError
from rag.store.care.folder_checks import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from rag.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Line:
    """What a check says of a part: its state is fine, note or wrong."""

    check: str
    part: str
    state: str
    text: str


class Health:
    """The lines of the doctor's last visit, without what asks models or starts servers."""

    def __init__(self, settings: Settings, config: Path) -> None:
        self._settings = settings
        self._config = config
        self._visits = anyio.Lock()
        self.lines: tuple[Line, ...] = ()
        self.at: datetime | None = None

    @property
    def wrong(self) -> int:
        """How many parts are not as they should be."""
        return sum(line.state == "wrong" for line in self.lines)

    async def look(self) -> None:
        """Look at everything again."""
        async with self._visits:
            machine, data = check_machine(self._settings, self._config), findings(self._settings)
            try:
                found = [one for checks in (machine, data) async for one in checks]
            except (RefdeskError, OSError) as error:  # nothing may end the console
                found = [Finding("data folder", str(self._settings.data), str(error))]
            self.lines = tuple(Line(one.check, one.part, *stated(one)) for one in found)
            self.at = datetime.now(UTC)

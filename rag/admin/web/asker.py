"""On whose behalf the console looks at the desk: anybody whom its administrator names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.access.names import bare_name
from rag.admin.web.console import entry
from rag.corpus import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Asker:
    """A user and groups as a person typed them; groups have commas between."""

    user: str = ""
    groups: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, object], settings: Settings) -> Asker:
        """The asker that a form names; that of the settings if it has no fields for one."""
        if "user" not in fields and "groups" not in fields:
            named = settings.principal
            return cls(named.user or "", ", ".join(named.groups))
        return cls(str(fields.get("user", "")).strip(), str(fields.get("groups", "")).strip())

    def principal(self, tenant: str) -> Principal:
        """As a principal of a tenant.

        Raises:
            EntryError: a name is not valid.
        """
        groups = [group.strip() for group in self.groups.split(",") if group.strip()]
        with entry("user"):
            user = bare_name("user", self.user) if self.user else None
        with entry("groups"):
            return Principal(tenant, user, frozenset(bare_name("group", group) for group in groups))

    @property
    def parameters(self) -> dict[str, str]:
        """The fields of a form that name the asker."""
        return {"user": self.user, "groups": self.groups}

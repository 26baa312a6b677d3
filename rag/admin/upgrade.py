"""`refdesk-admin upgrade`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rag.admin.acts import Act, recorded
from rag.admin.console import command, echo, print_json
from rag.config.data_folder import data_folder_problem
from rag.errors import ConfigurationError
from rag.report.tables import counted
from rag.store.schema import FORMAT
from rag.store.upgrade import complete_all_words, upgrade

if TYPE_CHECKING:
    from rag.config.settings import Settings


@command("upgrade", of_tenant=False)
async def upgrade_command(settings: Settings, *, as_json: bool) -> None:
    """Upgrade a data folder that an older version wrote.

    Documents, vectors, ids and access rights stay as they are, and nothing is embedded. Words are indexed as
    this version does. If it is killed, run it again. Back up the folder before: older versions can't read it
    afterwards.
    """
    if problem := data_folder_problem(settings.data):
        raise ConfigurationError(problem)
    with recorded(settings.data, Act("upgrade", "", {})):
        done = await upgrade(settings.data)
        words = await complete_all_words(settings.data)
    if as_json:
        named = [{"tenant": one.tenant, "name": one.name} for one in words]
        print_json({"format": FORMAT, "collections": [asdict(one) for one in done], "words": named})
        return
    for one in done:
        rights = counted(one.records, "access record")
        echo(f"Upgraded {one.name} of the tenant {one.tenant} from format {one.from_format}, with {rights}.")
    for collection in words:
        echo(f"Indexed the words of {collection.name} of the tenant {collection.tenant}.")
    if not done:
        echo(f"The data folder has the present format ({FORMAT}).")

"""`refdesk-admin audit`: the log of administrative acts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from rag.admin.acts import ActName, cut_lines, log_file, read_log
from rag.admin.console import Group, command, echo, print_json, print_table
from rag.report.tables import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.admin.acts import Change, Line
    from rag.config.settings import Settings

ACTS = sorted({part for name in get_args(ActName) for part in (name, name.partition(" ")[0])})
"""All acts, and their first words, which select all acts that begin with them."""


@click.group("audit", cls=Group)
def audit_command() -> None:
    """Read the log of administrative acts."""


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date like 2026-11-22 or 2026-11-22T15:00.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@command("show", of_tenant=False)
@click.option(
    "--since",
    callback=_moment,
    metavar="DATE",
    help="Only acts since then (UTC): 2026-11-22 or 2026-11-22T15:00.",
)
@click.option(
    "--act", type=click.Choice(ACTS), metavar="ACT", help="Only this act or group of acts: key, key revoke, …"
)
@click.option("--tenant", "whose", metavar="NAME", help="Only acts on this tenant.")
@click.option("--id", "id_", metavar="ID", help="Only acts on this source, key, collection or tenant.")
async def show_command(
    settings: Settings,
    *,
    since: datetime | None,
    act: str | None,
    whose: str | None,
    id_: str | None,
    as_json: bool,
) -> None:
    """Show who changed what and when, with the state before and after.

    Lists changes of access, keys, tenants and collections, removals and purges, oldest first, in UTC.
    Grants are logged before they are done; a grant that then failed has a second line, FAILED. Lines that
    are damaged are reported as unreadable or cut short.
    """
    acts, unreadable = [], []
    for number, line in read_log(settings.data):
        if line is None:
            unreadable.append(number)
        elif _fits(line, since, act, whose) and (id_ is None or id_ in {one.id for one in line.changes}):
            acts.append((number, line))
    if as_json:
        lines = [line.model_dump(mode="json") for _, line in acts]
        print_json({"acts": lines, "unreadable_lines": unreadable})
        return
    rows = [row for _, line in acts for row in _rows(line, id_)]
    if rows:
        print_table([("WHEN", "WHO", "ACT", "TENANT", "ID", "BEFORE → AFTER"), *rows])
    else:
        echo("No act in the log matches." if any((since, act, whose, id_)) else "The log is empty.")
    cut = cut_lines(settings.data) if unreadable else []
    for number in unreadable:
        why = "was cut short by a power failure or a full disk" if number in cut else "is unreadable"
        echo(f"Line {number} of {log_file(settings.data)} {why}.", err=True)


def _fits(line: Line, since: datetime | None, act: str | None, tenant: str | None) -> bool:
    return (
        (since is None or line.at >= since)
        and (act is None or line.act == act or line.act.startswith(f"{act} "))
        and tenant in {None, line.tenant}
    )


def _rows(line: Line, id_: str | None) -> Iterator[tuple[str, ...]]:
    """A row per changed object, without control characters."""
    what = f"{line.act} FAILED ({line.failed})" if line.failed else line.act
    head = [line.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"), who(line), what, line.tenant]
    changes = [(one.id, change_in_words(one)) for one in line.changes if id_ in {None, one.id}]
    for changed, how in changes or [(line.collection or "-", "")]:
        yield tuple(one_line(cell) for cell in (*head, changed, how))


def who(line: Line) -> str:
    """Example: root (0) for ann."""
    name = line.user or "-"
    user = name if line.uid is None else f"{name} ({line.uid})"
    return f"{user} for {line.sudo_user}" if line.sudo_user else user


def change_in_words(change: Change) -> str:
    """The difference between before and after."""
    before, after = change.before, change.after
    if before is not None and after is not None:
        same = {key for key in before if key in after and before[key] == after[key]}
        before, after = ({key: one[key] for key in one if key not in same} for one in (before, after))
        if not before and not after:
            return "unchanged"
    return f"{_state(before)} → {_state(after)}"


def _state(state: dict[str, Any] | None) -> str:
    """Example: visibility restricted, allow group:hr user:ann."""
    if state is None:
        return "-"
    return ", ".join(f"{key} {_value(value)}" for key, value in state.items())


def _value(value: object) -> str:
    match value:
        case dict():
            return " ".join(f"{key}={one}" for key, one in value.items()) or "-"
        case list():
            return " ".join(map(str, value)) or "-"
        case _:
            return str(value) or "-"


audit_command.add_command(show_command)

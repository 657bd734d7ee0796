"""``tracker audit``: the audit log."""

import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from typer import BadParameter, Option

from tracker.cli.commands import EVERYTHING, AsJson, LimitOrAll, with_store
from tracker.cli.terminal import Listing, Moment, Row
from tracker.operations.export import csv_lines, json_lines
from tracker.store.access.audit import COLUMNS, Audit, AuditEntry, AuditFilter, Way
from tracker.store.schema.multipliers import parse_past
from tracker.store.store import Store

_PAGE = 500
_WHEN = "yesterday, a span ago such as 2h or 7d, or a date such as 2026-12-31T18:00 (UTC)"


def show_audit(
    actor: Annotated[str, Option(help="Only changes by this token (name or id) or user.")] = "",
    operation: Annotated[
        str, Option(help="Only this operation, such as user.edit, or the first part of its name.")
    ] = "",
    object_id: Annotated[str, Option("--object", metavar="ID", help="Only changes of this info hash, user id, …")] = "",
    way: Annotated[Way | None, Option(help="Only changes by this.")] = None,
    since: Annotated[str | None, Option(metavar="WHEN", help=f"Only later ones: {_WHEN}.")] = None,
    until: Annotated[str | None, Option(metavar="WHEN", help="Only earlier ones.")] = None,
    limit: LimitOrAll = EVERYTHING,
    as_json: AsJson = False,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Show who changed what by the API, the dashboard, the command line or the site, newest first.

    Entries are kept for a year. Changes written directly to Redis are not recorded.
    """
    if as_json and as_csv:
        raise BadParameter("give --json or --csv")
    if as_csv and sys.stdout.isatty():
        raise BadParameter("names are not escaped in CSV, which is unsafe in a terminal: redirect the output")
    now = time.time()
    times = (parse_past(text or "", now) for text in (since, until))
    wanted = AuditFilter(actor, operation, object_id, way or "", *times)
    listing = Listing("at:20 actor:16 way:9 operation:18 objects changes", as_json=False)

    async def work(store: Store) -> None:
        if as_csv:
            sys.stdout.write(csv_lines(COLUMNS, []))
        async for page in entries(store.audit, wanted, limit):
            if as_csv:
                sys.stdout.write(csv_lines(COLUMNS, map(asdict, page), header=False))
            elif as_json:
                sys.stdout.write(json_lines(map(asdict, page)).decode())
            else:
                listing.page(map(_row, page))

    with_store(work)


async def entries(audit: Audit, wanted: AuditFilter, limit: int) -> AsyncIterator[list[AuditEntry]]:
    """The newest ``limit`` entries that match, in pages."""
    cursor, left = "", limit
    while left:
        page, cursor = await audit.page(wanted, cursor, min(left, _PAGE))
        if page:
            yield page
        left -= len(page)
        if not cursor:
            return


def _row(entry: AuditEntry) -> Row:
    changes = [
        f"{name}: {each.before.get(name, '–')} → {each.after.get(name, '–')}"
        for each in entry.objects
        for name in {**each.before, **each.after}
    ]
    counts = [f"{name}: {number}" for name, number in entry.counts.items()]
    details = [f"{name}: {value}" for name, value in entry.details.items()]
    return {
        "at": Moment(entry.at),
        "actor": entry.actor,
        "way": entry.way,
        "operation": entry.operation,
        "objects": ", ".join(f"{each.kind} {each.id}" for each in entry.objects),
        "changes": "; ".join([*changes, *details, *counts]),
    }

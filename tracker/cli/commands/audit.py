"""``tracker audit``: the audit log. ``tracker changes``: the change feed."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from typer import BadParameter, Option

from tracker.cli.commands import EVERYTHING, AsJson, LimitOrAll, load_settings, run_with_store, with_store
from tracker.cli.terminal import Listing, Moment, Row, note
from tracker.errors import ClientError
from tracker.operations.export import csv_lines, json_lines
from tracker.operations.service import FEED_OFF
from tracker.store.access.audit import COLUMNS, Audit, AuditEntry, AuditFilter, Way
from tracker.store.changes.changes import FIRST
from tracker.store.schema.multipliers import parse_past
from tracker.store.sharding.shards import named, noting_unavailable_shards
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


_CHANGE = "at:20 change:20 info_hash:40 user_id:8 uploaded>14? downloaded>14? seeders>7? leechers>8? id:20?"


def show_changes(
    since: Annotated[
        str | None, Option(metavar="ID", help="Only changes after this one.", show_default="all that are kept")
    ] = None,
    follow: Annotated[bool, Option("--follow", help="Wait for more changes, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the change feed: who joined and left swarms, completions, hit-and-runs. Oldest first."""
    settings = load_settings()
    if not settings.changes.max_entries:
        raise ClientError(FEED_OFF)
    listing = Listing(_CHANGE, as_json=as_json)

    async def work(store: Store) -> None:
        position, waits = since or FIRST, False
        while True:
            with noting_unavailable_shards() as unavailable:
                page = await store.changes.after(position, _PAGE)
            if unavailable and not waits:
                note(f"the feed waits for {named(unavailable)} of the store")
            waits = bool(unavailable)
            if page.gap and position != FIRST:
                note("changes are missing here: the feed no longer has them")
            if page.changes:
                listing.page({**change.as_json(), "at": Moment(change.at)} for change in page.changes)
            position = page.next
            if len(page.changes) < _PAGE:
                if not follow:
                    return
                await asyncio.sleep(1)

    run_with_store(settings, work)

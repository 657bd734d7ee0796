"""``tracker changes``: the change feed."""

import asyncio
from typing import Annotated

from typer import Option

from tracker.cli.commands import AsJson, load_settings, run_with_store
from tracker.cli.terminal import Listing, Moment, note
from tracker.errors import ClientError
from tracker.operations.service import FEED_OFF
from tracker.store.changes.changes import FIRST
from tracker.store.sharding.unavailable import named, noting_unavailable_shards
from tracker.store.store import Store

_PAGE = 500
_POLL_SECONDS = 1.0
_COLUMNS = "at:20 change:20 info_hash:40 user_id:8 uploaded>14? downloaded>14? seeders>7? leechers>8? id:20?"


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
    listing = Listing(_COLUMNS, as_json=as_json)

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
                await asyncio.sleep(_POLL_SECONDS)

    run_with_store(settings, work)

"""``tracker deny``, ``tracker allow`` and ``tracker denied``."""

from typing import Annotated

import typer

from tracker.admin.operations import NOT_SERVED
from tracker.bittorrent import parse_info_hash
from tracker.commands import AsJson, Config, InfoHashes, each, with_stores
from tracker.commands.paging import EVERYTHING, in_order
from tracker.errors import ClientError
from tracker.store.torrents import Denial
from tracker.stores import Stores
from tracker.terminal import MOMENT, Column, Listing, Moment, Row


def deny(
    info_hashes: InfoHashes,
    reason: Annotated[str, typer.Option(help="Shown to whoever announces it.")] = NOT_SERVED,
    config: Config = None,
) -> None:
    """Forbid torrents, registered or not, from the very next announce."""

    async def action(stores: Stores, text: str) -> str:
        await stores.torrents.deny(parse_info_hash(text), reason)
        return f"denied {text}"

    each(config, info_hashes, action)


def allow(info_hashes: InfoHashes, config: Config = None) -> None:
    """Take a denial back."""

    async def action(stores: Stores, text: str) -> str:
        if not await stores.torrents.allow(parse_info_hash(text)):
            raise ClientError("was not denied")
        return f"allowed {text}"

    each(config, info_hashes, action)


def denied(
    limit: Annotated[int, typer.Option(min=1, help="How many.", show_default="all")] = EVERYTHING,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List denied torrents, the last denied first: what their peers are told, and since when."""
    columns = [Column("info_hash", 40), Column("reason"), Column("since", MOMENT)]
    listing = Listing(columns, as_json=as_json)

    def row(found: Denial) -> Row:
        return {"info_hash": found.info_hash.hex(), "reason": found.reason, "since": Moment(found.since)}

    async def work(stores: Stores) -> None:
        async for page in in_order(limit, stores.torrents.denials):
            listing.page(map(row, page))

    with_stores(config, work)

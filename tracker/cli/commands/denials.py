"""``tracker deny``, ``tracker allow`` and ``tracker denied``."""

from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import AsJson, Config, InfoHashes, each, with_store
from tracker.cli.commands.paging import EVERYTHING, in_order
from tracker.cli.terminal import MOMENT, Column, Listing, Moment, Row
from tracker.errors import ClientError
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent
from tracker.store.store import Store
from tracker.store.torrents.torrents import Denial


def deny(
    info_hashes: InfoHashes,
    reason: Annotated[str, typer.Option(help="Reason shown to clients.")] = NOT_SERVED,
    config: Config = None,
) -> None:
    """Put torrents on the deny list, registered or not, from the next announce on; both halves of hybrid ones."""

    async def action(store: Store, text: str) -> str:
        await deny_torrent(store, parse_info_hash(text), reason)
        return f"denied {text}"

    each(config, info_hashes, action, "denial.add", "torrent")


def allow(info_hashes: InfoHashes, config: Config = None) -> None:
    """Remove torrents from the deny list, both halves of hybrid ones."""

    async def action(store: Store, text: str) -> str:
        if not await allow_torrent(store, parse_info_hash(text)):
            raise ClientError("is not on the deny list")
        return f"allowed {text}"

    each(config, info_hashes, action, "denial.remove", "torrent")


def denied(
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of lines.", show_default="all")
    ] = EVERYTHING,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List denied torrents with reason and date, newest first."""
    columns = [Column("info_hash", 40), Column("reason"), Column("since", MOMENT)]
    listing = Listing(columns, as_json=as_json)

    def row(found: Denial) -> Row:
        return {"info_hash": found.info_hash.hex(), "reason": found.reason, "since": Moment(found.since)}

    async def work(store: Store) -> None:
        async for page in in_order(limit, store.torrents.denials):
            listing.page(map(row, page))

    with_store(config, work)

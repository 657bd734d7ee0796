"""``tracker deny``, ``tracker allow`` and ``tracker denied``."""

from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.commands import DENIED, PAGE, AsJson, Config, InfoHashes, each, with_stores
from tracker.errors import ClientError
from tracker.stores import Stores
from tracker.terminal import Column, Listing


def deny(
    info_hashes: InfoHashes,
    reason: Annotated[str, typer.Option(help="Shown to whoever announces it.")] = DENIED,
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
    limit: Annotated[int, typer.Option(min=1, help="How many.", show_default="all")] = 2**53,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List denied torrents, and what their peers are told."""
    listing = Listing([Column("info_hash", 40), Column("reason")], as_json=as_json)

    async def work(stores: Stores) -> None:
        for offset in range(0, limit, PAGE):
            found = await stores.torrents.denials(offset, min(PAGE, limit - offset))
            if offset and not found:
                return
            listing.page({"info_hash": each.info_hash.hex(), "reason": each.reason} for each in found)

    with_stores(config, work)

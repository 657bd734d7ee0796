"""``tracker deny``, ``tracker allow`` and ``tracker denied``."""

from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.commands import DENIED, Config, InfoHashes, each
from tracker.errors import ClientError
from tracker.stores import Stores


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

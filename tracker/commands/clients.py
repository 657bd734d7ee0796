"""``tracker client …``."""

from typing import Annotated
from urllib.parse import unquote_to_bytes

import typer

from tracker.commands import PAGE, AsJson, Config, each, group, shown_bytes, with_stores
from tracker.errors import ClientError
from tracker.stores import Stores
from tracker.terminal import Column, Listing

# Peer ids, and so their prefixes, mostly begin with a dash.
_DASHES = {"ignore_unknown_options": True}
Prefixes = Annotated[
    list[str], typer.Argument(metavar="PREFIX…", help="Such as -TR40; odd bytes as in a URL, %00.")
]


clients = group("The allow-list of client programs, by the beginning of their peer ids.")


@clients.command("allow", context_settings=_DASHES)
def allow_client(
    prefixes: Prefixes,
    name: Annotated[str, typer.Option(help="The program's name, for people.")] = "",
    config: Config = None,
) -> None:
    """Let peers in whose peer id begins with a prefix (where TRACKER_CLIENTS__ALLOW_LIST is on)."""

    async def action(stores: Stores, text: str) -> str:
        await stores.clients.allow(unquote_to_bytes(text), name)
        return f"allowed {text}"

    each(config, prefixes, action)


@clients.command("disallow", context_settings=_DASHES)
def disallow_client(prefixes: Prefixes, config: Config = None) -> None:
    """Take prefixes off the list."""

    async def action(stores: Stores, text: str) -> str:
        if not await stores.clients.disallow(unquote_to_bytes(text)):
            raise ClientError("was not on the list")
        return f"disallowed {text}"

    each(config, prefixes, action)


@clients.command("list")
def list_clients(as_json: AsJson = False, config: Config = None) -> None:
    """List the prefixes let in."""
    listing = Listing([Column("prefix", 30), Column("name")], as_json=as_json)

    async def work(stores: Stores) -> None:
        cursor = -1
        while cursor:
            cursor, page = await stores.clients.page(max(cursor, 0), PAGE)
            listing.page({"prefix": shown_bytes(prefix), "name": name} for prefix, name in page)

    with_stores(config, work)

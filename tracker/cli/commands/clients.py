"""``tracker client …``."""

from typing import Annotated

import typer

from tracker.admin.operations import parse_prefix, shown_prefix
from tracker.commands import AsJson, Config, Month, check_month, each, group, with_stores
from tracker.commands.paging import in_no_order, in_order
from tracker.errors import ClientError
from tracker.store.months import ALL_TIME
from tracker.store.software import Outcome, parted
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row

# Peer ids, and so their prefixes, mostly begin with a dash.
_DASHES = {"ignore_unknown_options": True}
Prefixes = Annotated[
    list[str], typer.Argument(metavar="PREFIX…", help="Such as -TR40; odd bytes as in a URL, %00.")
]


clients = group("Client programs: the allow-list, by the beginning of their peer ids, and who came.")


@clients.command("allow", context_settings=_DASHES)
def allow_client(
    prefixes: Prefixes,
    name: Annotated[str, typer.Option(help="The program's name, for people.")] = "",
    config: Config = None,
) -> None:
    """Let peers in whose peer id begins with a prefix (where TRACKER_CLIENTS__ALLOW_LIST is on)."""

    async def action(stores: Stores, text: str) -> str:
        await stores.clients.allow(parse_prefix(text), name)
        return f"allowed {text}"

    each(config, prefixes, action)


@clients.command("disallow", context_settings=_DASHES)
def disallow_client(prefixes: Prefixes, config: Config = None) -> None:
    """Take prefixes off the list."""

    async def action(stores: Stores, text: str) -> str:
        if not await stores.clients.disallow(parse_prefix(text)):
            raise ClientError("was not on the list")
        return f"disallowed {text}"

    each(config, prefixes, action)


@clients.command("list")
def list_clients(as_json: AsJson = False, config: Config = None) -> None:
    """List the prefixes let in."""
    listing = Listing([Column("prefix", 30), Column("name")], as_json=as_json)

    async def work(stores: Stores) -> None:
        async for page in in_no_order(stores.clients.page):
            listing.page({"prefix": shown_prefix(prefix), "name": name} for prefix, name in page)

    with_stores(config, work)


@clients.command("seen")
def seen(
    failures: Annotated[
        bool, typer.Option("--failures", help="Those that were refused, and why, not those that joined.")
    ] = False,
    month: Month = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List client programs by how often they joined a swarm or were refused, most first. Any program can claim any name."""
    check_month(month)
    kind: Outcome = "failures" if failures else "joins"
    times = Column(kind, 12, right=True)
    columns = [times, Column("program", 40), Column("reason")] if failures else [times, Column("program")]

    def row(member: str, number: int) -> Row:
        if not failures:
            return {kind: number, "program": member}
        program, reason = parted(member)
        return {kind: number, "program": program, "reason": reason}

    async def work(stores: Stores) -> None:
        async def read(offset: int, count: int) -> list[tuple[str, int]]:
            return await stores.software.top(kind, month or ALL_TIME, count, offset)

        listing = Listing(columns, as_json=as_json)
        async for page in in_order(limit, read):
            listing.page(row(*ranked) for ranked in page)
            if not page and not as_json:
                when = "yet" if month is None else f"in {month}"
                typer.echo(f"note: nobody was counted {when} (TRACKER_CLIENTS__COUNT_SOFTWARE)", err=True)

    with_stores(config, work)

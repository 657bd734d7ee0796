"""``tracker client …``."""

from typing import Annotated

import typer

from tracker.cli.commands import AsJson, Config, Month, check_month, each, group, with_store
from tracker.cli.commands.paging import in_no_order, in_order
from tracker.cli.terminal import Column, Listing, Row, note
from tracker.errors import ClientError
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.store.stats.client_software import Outcome, parted
from tracker.store.stats.slices import ALL_TIME
from tracker.store.store import Store

# Most peer-id prefixes begin with a dash.
_DASHES = {"ignore_unknown_options": True}
Prefixes = Annotated[
    list[str], typer.Argument(metavar="PREFIX…", help="Such as -TR40; percent-encode other bytes, e.g. %00.")
]


clients = group("Manage allowed and denied clients, by peer-id prefix; show client statistics.")


@clients.command("allow", context_settings=_DASHES)
def allow_client(
    prefixes: Prefixes,
    name: Annotated[str, typer.Option(help="Display name of the program.")] = "",
    config: Config = None,
) -> None:
    """Allow clients by peer-id prefix (used if TRACKER_CLIENTS__ALLOW_LIST is on)."""

    async def action(store: Store, text: str) -> str:
        await store.allow_list.allow(parse_prefix(text), name)
        return f"allowed {text}"

    each(config, prefixes, action, "client.allow", "client")


@clients.command("disallow", context_settings=_DASHES)
def disallow_client(prefixes: Prefixes, config: Config = None) -> None:
    """Remove prefixes from the allow-list."""

    async def action(store: Store, text: str) -> str:
        if not await store.allow_list.disallow(parse_prefix(text)):
            raise ClientError("is not on the allow-list")
        return f"disallowed {text}"

    each(config, prefixes, action, "client.disallow", "client")


@clients.command("list")
def list_clients(as_json: AsJson = False, config: Config = None) -> None:
    """List allowed prefixes."""
    listing = Listing([Column("prefix", 30), Column("name")], as_json=as_json)

    async def work(store: Store) -> None:
        async for page in in_no_order(store.allow_list.page):
            listing.page({"prefix": format_prefix(prefix), "name": name} for prefix, name in page)

    with_store(config, work)


@clients.command("deny", context_settings=_DASHES)
def deny_client(
    prefixes: Prefixes,
    reason: Annotated[
        str,
        typer.Option(help="Reason shown to clients, at most 200 characters.", show_default="a default text"),
    ] = "",
    config: Config = None,
) -> None:
    """Refuse clients by peer-id prefix, even allowed ones; only while TRACKER_CLIENTS__DENY_LIST is on."""

    async def action(store: Store, text: str) -> str:
        await store.deny_list.deny(parse_prefix(text), reason)
        return f"denied {text}"

    each(config, prefixes, action, "client.deny", "client")


@clients.command("undeny", context_settings=_DASHES)
def undeny_client(prefixes: Prefixes, config: Config = None) -> None:
    """Remove prefixes from the deny list."""

    async def action(store: Store, text: str) -> str:
        if not await store.deny_list.undeny(parse_prefix(text)):
            raise ClientError("is not on the deny list")
        return f"no longer denied {text}"

    each(config, prefixes, action, "client.undeny", "client")


@clients.command("denied")
def list_denied(as_json: AsJson = False, config: Config = None) -> None:
    """List denied prefixes."""
    listing = Listing([Column("prefix", 30), Column("reason")], as_json=as_json)

    async def work(store: Store) -> None:
        async for page in in_no_order(store.deny_list.page):
            listing.page({"prefix": format_prefix(prefix), "reason": reason} for prefix, reason in page)

    with_store(config, work)


@clients.command("seen")
def seen(
    failures: Annotated[
        bool,
        typer.Option(
            "--failures", help="List refused clients with the reason, instead of clients that joined."
        ),
    ] = False,
    month: Month = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List client programs by joins or refusals, highest first. Programs report their own names."""
    check_month(month)
    kind: Outcome = "failures" if failures else "joins"
    times = Column(kind, 12, right=True)
    columns = [times, Column("program", 40), Column("reason")] if failures else [times, Column("program")]

    def row(member: str, number: int) -> Row:
        if not failures:
            return {kind: number, "program": member}
        program, reason = parted(member)
        return {kind: number, "program": program, "reason": reason}

    async def work(store: Store) -> None:
        async def read(offset: int, count: int) -> list[tuple[str, int]]:
            return await store.client_software.top(kind, month or ALL_TIME, count, offset)

        listing = Listing(columns, as_json=as_json)
        async for page in in_order(limit, read):
            listing.page(row(*ranked) for ranked in page)
            if not page and not as_json:
                when = "yet" if month is None else f"in {month}"
                note(f"no client was counted {when} (see TRACKER_CLIENTS__COUNT_SOFTWARE)")

    with_store(config, work)

"""``tracker user list``, ``owing`` and ``pending``."""

from functools import partial
from typing import Annotated

import typer

from tracker.cli.commands import AsJson, Config, with_store
from tracker.cli.commands.multipliers import multiplier_columns
from tracker.cli.commands.paging import EVERYTHING, PAGE, in_order
from tracker.cli.commands.user_group import users
from tracker.cli.commands.user_options import Who
from tracker.cli.terminal import MOMENT, Column, Listing, Moment, Row, note
from tracker.operations.users import pending_hit_and_runs
from tracker.store.store import Store
from tracker.store.users.listing import ORDERS, UserFilter
from tracker.store.users.users import User

Passkeys = Annotated[bool, typer.Option("--passkeys", help="Show passkeys (secret).")]


@users.command("list")
def list_users(
    by: Annotated[str, typer.Option(help=f"Sort by {', '.join(ORDERS)}.")] = "id",
    descending: Annotated[bool, typer.Option("--descending", help="Highest first.")] = False,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Only enabled, or only disabled users.")
    ] = None,
    can_leech: Annotated[
        bool | None,
        typer.Option("--can-leech/--no-leech", help="Only users who may download, or only others."),
    ] = None,
    search: Annotated[
        str, typer.Option(help="Only users with this text in their name; sorted by name.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of users.", show_default="all")
    ] = EVERYTHING,
    passkeys: Passkeys = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List users and their totals. The order by uploaded, downloaded or ratio follows announces within minutes."""
    if by not in ORDERS:
        raise typer.BadParameter(f"--by must be {', '.join(ORDERS)}")
    wanted = UserFilter(by, descending, enabled, can_leech, search)
    numbers = (Column(name, 16, right=True) for name in ("uploaded", "downloaded"))
    counts = (Column(name, 11, right=True) for name in ("snatches", "announces"))
    cut = Column("credit_cut", 16, right=True)
    rights = (Column("enabled", 8), Column("can_leech", 10))
    columns = [
        Column("user_id", 15, right=True),
        *rights,
        *numbers,
        *counts,
        cut,
        Column("name", optional=True),
    ]
    listing = Listing([*columns, Column("passkey")] if passkeys else columns, as_json=as_json)

    async def work(store: Store) -> None:
        cursor, left = "", limit
        while left > 0:
            cursor, users, *_ = await store.user_listing.page(wanted, cursor, min(PAGE, left))
            listing.page(user_row(each, passkeys) for each in users)
            left -= len(users)
            if not cursor:
                break

    with_store(config, work)


def user_row(found: User, passkeys: bool) -> Row:
    """JSON output has more fields than the table."""
    row: Row = {
        "user_id": found.user_id,
        "name": found.name,
        "enabled": found.enabled,
        "can_leech": found.can_leech,
        "uploaded": found.uploaded,
        "downloaded": found.downloaded,
        "snatches": found.snatches,
        "announces": found.announces,
        "credit_cut": found.credit_cut,
        "reason": found.reason,
        **multiplier_columns(found.rules.upload_multiplier, found.rules.download_multiplier),
        "max_downloads": found.rules.max_downloads,
        "hnr_exempt": found.rules.hnr_exempt,
    }
    return {**row, "passkey": found.passkey} if passkeys else row


@users.command("owing")
def list_owing(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of users.")] = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List users by their number of hit-and-runs (see TRACKER_USERS__HNR_THRESHOLD_SECONDS), highest first."""

    async def work(store: Store) -> None:
        listing = Listing([Column("hit_and_runs", 12, right=True), Column("user_id")], as_json=as_json)
        async for page in in_order(limit, store.users.hit_and_runs):
            listing.page({"hit_and_runs": owed, "user_id": user_id} for user_id, owed in page)
            if not page and not as_json:
                note("no user has a hit-and-run")

    with_store(config, work)


@users.command("unregistered")
def list_unregistered(who: Who, as_json: AsJson = False, config: Config = None) -> None:
    """List torrents that a user announced in the last 90 days, and that are not registered: the newest 100."""
    listing = Listing([Column("at", MOMENT), Column("info_hash", 40)], as_json=as_json)

    async def work(store: Store) -> None:
        found = await store.users.find(who)
        tried = await store.unregistered.of(found.user_id)
        listing.page({"at": Moment(each.at), "info_hash": each.info_hash.hex()} for each in tried)

    with_store(config, work)


@users.command("pending")
def list_pending(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List torrents that become hit-and-runs unless their users come back (see TRACKER_USERS__HNR_GRACE_SECONDS)."""
    columns = [Column("at", MOMENT), Column("user_id", 15, right=True), Column("downloaded", 16, right=True)]
    columns += [Column("total_seconds", 13, right=True), Column("seed_seconds", 13, right=True)]

    async def work(store: Store) -> None:
        listing = Listing([*columns, Column("info_hash", 40), Column("name")], as_json=as_json)
        async for page in in_order(limit, partial(pending_hit_and_runs, store)):
            listing.page({**pending, "at": Moment(pending["at"])} for pending in page)

    with_store(config, work)

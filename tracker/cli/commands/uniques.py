"""``tracker unique …``."""

import re
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import AsJson, Config, Month, Yes, change_store, check_month, group, with_store
from tracker.cli.commands.paging import in_order
from tracker.cli.progress import progress
from tracker.cli.terminal import Column, Listing, Row, note, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.schema.keys import BOARDS, Board
from tracker.store.stats.metric_names import metric_of
from tracker.store.stats.slices import ALL_TIME
from tracker.store.stats.unique_users import LeaderboardEntry
from tracker.store.store import Store

Limit = Annotated[int, typer.Option(min=1, help="Maximum number of lines.")]


AScope = Annotated[Board, typer.Argument(metavar="|".join(BOARDS))]
_NAME = re.compile(r"[^:.\x00-\x20]{1,200}")

uniques = group("Show unique users by location and torrent.")


@uniques.command("top")
def top(
    scope: AScope,
    month: Month = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List locations or torrents by unique users, highest first."""
    check_month(month)
    users = Column("users", 10, right=True)
    if scope == "torrents":
        listing = Listing([Column("info_hash", 40), users, Column("name")], as_json=as_json)
    else:
        listing = Listing([users, Column("place")], as_json=as_json)

    async def work(store: Store) -> None:
        await _note_memory(store, month)

        async def read(offset: int, count: int) -> list[LeaderboardEntry]:
            return await store.unique_users.top(scope, month or ALL_TIME, count, offset)

        async for page in in_order(limit, read):
            if scope == "torrents":
                listing.page([await _torrent_row(store, entry) for entry in page])
            else:
                listing.page({"users": users, "place": name} for name, users in page)
            if not page and not as_json:
                note(_none_counted(scope, month))

    with_store(config, work)


async def _note_memory(store: Store, month: str | None) -> None:
    """Prints a note if numbers of the period may be too high."""
    if exceed := await store.unique_users.may_exceed(month or ALL_TIME):
        note(
            f"these numbers may be too high, by at most {exceed} in total: markers were deleted to free memory"
        )


def _none_counted(scope: Board, month: str | None) -> str:
    when = "yet" if month is None else f"in {month}"
    if scope == "torrents":
        return f"no unique users counted {when}"
    return f"no unique users counted by place {when}; `tracker doctor` checks the GeoIP database"


async def _torrent_row(store: Store, entry: LeaderboardEntry) -> Row:
    known = await store.torrents.get(parse_info_hash(entry.name))
    return {"info_hash": entry.name, "users": entry.users, "name": known.name if known else ""}


@uniques.command("show")
def show(
    info_hash: Annotated[str, typer.Argument(metavar="INFO_HASH")],
    limit: Limit = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the locations of a torrent's users, by unique users of all time."""
    columns = [Column("users", 10, right=True), Column("scope", 10), Column("place")]

    async def work(store: Store) -> None:
        await _note_memory(store, None)
        wanted = parse_info_hash(info_hash)
        total = await store.unique_users.users_of(f"torrents.{wanted.hex()}.users")
        if not total:
            raise ClientError("no unique users counted on this torrent")
        listing = Listing(columns, as_json=as_json)
        listing.page([{"users": total, "scope": "all", "place": ""}])

        async def read(offset: int, count: int) -> list[tuple[str, LeaderboardEntry]]:
            return await store.unique_users.places(wanted, count, offset)

        async for page in in_order(limit, read):
            listing.page({"users": place.users, "scope": scope, "place": place.name} for scope, place in page)

    with_store(config, work)


@uniques.command("figure")
def show_figures(
    scope: AScope,
    names: Annotated[
        list[str],
        typer.Argument(metavar="LOCATION|INFO_HASH…", help="Names as printed by `tracker unique top`."),
    ],
    month: Month = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Print the number of unique users of locations or torrents."""
    check_month(month)
    if not all(map(_NAME.fullmatch, names)):
        raise typer.BadParameter(
            "write places as `tracker unique top` prints them, such as United_Kingdom/London"
        )
    listing = Listing([Column("users", 10, right=True), Column("name")], as_json=as_json)

    async def work(store: Store) -> None:
        await _note_memory(store, month)
        for name in names:
            counted = parse_info_hash(name).hex() if scope == "torrents" else name
            users = await store.unique_users.users_of(metric_of(scope, counted), month)
            listing.page([{"users": users, "name": name}])

    with_store(config, work)


@uniques.command("flush")
def flush(yes: Yes = False, config: Config = None) -> None:
    """Delete all counts of unique users and their markers. Torrents, scores and counters stay."""

    async def work(store: Store, change: Change) -> None:
        if not yes:
            typer.confirm(
                "Delete all counts of unique users (places, torrents, months, leaderboards) and their markers? "
                "Torrents, scores and counters stay.",
                abort=True,
            )
        with progress("deleted") as shown:
            async for removed in store.unique_users.flush():
                shown.reach(removed)
        change.count(deleted=shown.done)
        say(f"deleted {shown.done} keys")

    change_store(config, "uniques.flush", work)

"""``tracker unique …``."""

import re
from enum import StrEnum
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.commands import AsJson, Config, Month, Yes, check_month, group, with_stores
from tracker.commands.paging import in_order
from tracker.errors import ClientError
from tracker.progress import progress
from tracker.store.months import ALL_TIME
from tracker.store.uniques import Standing
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row, say

Limit = Annotated[int, typer.Option(min=1, help="How many.")]


class Scope(StrEnum):
    countries = "countries"
    cities = "cities"
    postcodes = "postcodes"
    torrents = "torrents"


AScope = Annotated[Scope, typer.Argument(metavar="countries|cities|postcodes|torrents")]
_NAME = re.compile(r"[^:.\x00-\x20]{1,200}")

uniques = group("Unique users, by place and by torrent.")


@uniques.command("top")
def top(
    scope: AScope,
    month: Month = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List places or torrents by unique users, most first."""
    check_month(month)
    users = Column("users", 10, right=True)
    if scope is Scope.torrents:
        listing = Listing([Column("info_hash", 40), users, Column("name")], as_json=as_json)
    else:
        listing = Listing([users, Column("place")], as_json=as_json)

    async def work(stores: Stores) -> None:
        async def read(offset: int, count: int) -> list[Standing]:
            return await stores.uniques.top(scope.value, month or ALL_TIME, count, offset)

        async for page in in_order(limit, read):
            if scope is Scope.torrents:
                listing.page([await _torrent_row(stores, standing) for standing in page])
            else:
                listing.page({"users": users, "place": name} for name, users in page)
            if not page and not as_json:
                typer.echo(_nobody(scope, month), err=True)

    with_stores(config, work)


def _nobody(scope: Scope, month: str | None) -> str:
    when = "yet" if month is None else f"in {month}"
    if scope is Scope.torrents:
        return f"note: nobody was counted {when}"
    return f"note: nobody was counted by place {when}; `tracker doctor` tells of the GeoIP database"


async def _torrent_row(stores: Stores, standing: Standing) -> Row:
    known = await stores.torrents.get(parse_info_hash(standing.name))
    return {"info_hash": standing.name, "users": standing.users, "name": known.name if known else ""}


@uniques.command("show")
def show(
    info_hash: Annotated[str, typer.Argument(metavar="INFO_HASH")],
    limit: Limit = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the places that a torrent was seen in, by unique users of all time."""
    columns = [Column("users", 10, right=True), Column("scope", 10), Column("place")]

    async def work(stores: Stores) -> None:
        wanted = parse_info_hash(info_hash)
        total = await stores.uniques.figure(f"torrents.{wanted.hex()}.users")
        if not total:
            raise ClientError("nobody was counted there")
        listing = Listing(columns, as_json=as_json)
        listing.page([{"users": total, "scope": "all", "place": ""}])

        async def read(offset: int, count: int) -> list[tuple[str, Standing]]:
            return await stores.uniques.places(wanted, count, offset)

        async for page in in_order(limit, read):
            listing.page({"users": place.users, "scope": scope, "place": place.name} for scope, place in page)

    with_stores(config, work)


@uniques.command("figure")
def show_figures(
    scope: AScope,
    names: Annotated[
        list[str], typer.Argument(metavar="PLACE|INFO_HASH…", help="As `tracker unique top` prints them.")
    ],
    month: Month = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Print the unique users of places or torrents; 0 where nobody was counted."""
    check_month(month)
    if not all(map(_NAME.fullmatch, names)):
        raise typer.BadParameter(
            "a place is written as `tracker unique top` prints it, such as GB/ENG/London"
        )
    listing = Listing([Column("users", 10, right=True), Column("name")], as_json=as_json)

    async def work(stores: Stores) -> None:
        for name in names:
            counted = parse_info_hash(name).hex() if scope is Scope.torrents else name
            users = await stores.uniques.figure(f"{scope.value}.{counted}.users", month)
            listing.page([{"users": users, "name": name}])

    with_stores(config, work)


@uniques.command("flush")
def flush(yes: Yes = False, config: Config = None) -> None:
    """Delete all figures of unique users, and what remembers who was counted. Torrents, scores and counters stay."""

    async def work(stores: Stores) -> None:
        if not yes:
            typer.confirm(
                "Delete every count of unique users (places, torrents, months, leaderboards) and the markers "
                "of who was counted? Torrents, scores and counters stay.",
                abort=True,
            )
        with progress("deleted") as shown:
            async for removed in stores.uniques.flush():
                shown.reach(removed)
        say(f"deleted {shown.done} keys")

    with_stores(config, work)

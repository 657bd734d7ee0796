"""``tracker unique …``."""

import re
from typing import Annotated

from typer import Argument, BadParameter

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import InfoHash, Limit, Month, Pages, Yes, confirm, group, in_order
from tracker.cli.terminal import Row, note, progress, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.schema.keys import BOARDS, Board
from tracker.store.stats.metric_names import metric_of
from tracker.store.stats.slices import ALL_TIME
from tracker.store.stats.unique_users import LeaderboardEntry
from tracker.store.store import Store

AScope = Annotated[Board, Argument(metavar="|".join(BOARDS))]
_NAME = re.compile(r"[^:.\x00-\x20]{1,200}")


def _check_names(names: list[str]) -> list[str]:
    if not all(map(_NAME.fullmatch, names)):
        raise BadParameter("write places as `tracker unique top` prints them, such as United_Kingdom/London")
    return names


uniques = group("Show unique users by location and torrent.")


@uniques.command(
    "top", lists=lambda scope, **_: "info_hash:40 users>10 name" if scope == "torrents" else "users>10 place"
)
async def top(store: Store, scope: AScope, month: Month = None, limit: Limit = 20) -> Pages:
    """List locations or torrents by unique users, highest first."""
    await _note_memory(store, month)
    read = store.unique_users.top
    async for page in in_order(limit, lambda first, count: read(scope, month or ALL_TIME, count, first)):
        if scope == "torrents":
            yield [await _torrent_row(store, entry) for entry in page]
        else:
            yield ({"users": users, "place": name} for name, users in page)
        if not page:
            when = "yet" if month is None else f"in {month}"
            places = f"by place {when}; `tracker doctor` checks the GeoIP database"
            yield f"no unique users counted {when if scope == 'torrents' else places}"


async def _note_memory(store: Store, month: str | None) -> None:
    """Prints a note if numbers of the period may be too high."""
    if exceed := await store.unique_users.may_exceed(month or ALL_TIME):
        note(f"these numbers may be too high, by at most {exceed} in total: markers were deleted to free memory")


async def _torrent_row(store: Store, entry: LeaderboardEntry) -> Row:
    known = await store.torrents.get(parse_info_hash(entry.name))
    return {"info_hash": entry.name, "users": entry.users, "name": known.name if known else ""}


@uniques.command("show", lists="users>10 scope:10 place")
async def show(store: Store, info_hash: InfoHash, limit: Limit = 100) -> Pages:
    """Show the locations of a torrent's users, by unique users of all time."""
    await _note_memory(store, None)
    wanted = parse_info_hash(info_hash)
    total = await store.unique_users.users_of(f"torrents.{wanted.hex()}.users")
    if not total:
        raise ClientError("no unique users counted on this torrent")
    yield [{"users": total, "scope": "all", "place": ""}]

    async for page in in_order(limit, lambda first, count: store.unique_users.places(wanted, count, first)):
        yield ({"users": place.users, "scope": scope, "place": place.name} for scope, place in page)


@uniques.command("figure", lists="users>10 name")
async def show_figures(
    store: Store,
    scope: AScope,
    names: Annotated[
        list[str],
        Argument(
            metavar="LOCATION|INFO_HASH…", help="Names as printed by `tracker unique top`.", callback=_check_names
        ),
    ],
    month: Month = None,
) -> Pages:
    """Print the number of unique users of locations or torrents."""
    await _note_memory(store, month)
    for name in names:
        counted = parse_info_hash(name).hex() if scope == "torrents" else name
        users = await store.unique_users.users_of(metric_of(scope, counted), month)
        yield [{"users": users, "name": name}]


@uniques.command("flush", audited="uniques.flush")
async def flush(store: Store, change: Change, yes: Yes = False) -> None:
    """Delete all counts of unique users and their markers. Torrents, scores and counters stay."""
    question = "Delete all counts of unique users (places, torrents, months, leaderboards) and their markers? "
    confirm(f"{question}Torrents, scores and counters stay.", yes=yes)
    with progress("deleted") as shown:
        async for removed in store.unique_users.flush():
            shown.reach(removed)
    change.count(deleted=shown.done)
    say(f"deleted {shown.done} keys")

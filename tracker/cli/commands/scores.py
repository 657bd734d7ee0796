"""``tracker score …``."""

from dataclasses import asdict
from typing import Annotated

from typer import Argument

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import Limit, Pages, group, in_order, lists
from tracker.cli.commands.options import row_of
from tracker.cli.terminal import Moment, Row
from tracker.errors import ClientError
from tracker.store.store import Store

_RANKED = ("score", "seeders", "leechers", "name")
InfoHashes = Annotated[list[str], Argument(metavar="INFO_HASH…", help="40 hexadecimal digits each.")]

scores = group("Show torrent scores and scoring progress.")


@scores.command("top")
@lists("rank>8 score>8 info_hash:40 seeders>8 leechers>8 name")
async def show_ranking(store: Store, limit: Limit = 20) -> Pages:
    """List torrents by score, highest first."""
    rank = 1
    async for page in in_order(limit, lambda offset, count: store.torrents.top("score", count, offset)):
        yield (
            {"rank": rank, "info_hash": found.info_hash.hex(), **row_of(found, _RANKED)}
            for rank, found in enumerate(page, rank)
        )
        rank += len(page)


@scores.command("lag")
async def show_lag(store: Store) -> Row:
    """Show how many torrents are ranked, due and late."""
    lag = await store.scores.lag()
    return {**asdict(lag), "longest_seconds": round(lag.longest_seconds)}


@scores.command("place")
@lists("info_hash:40 rank>8 of>8 score>8 last_processed:20 next_turn:20 being_scored:12")
async def show_place(store: Store, info_hashes: InfoHashes) -> Pages:
    """Show the rank of torrents (1: highest score), and when they are scored next."""
    for text in info_hashes:
        found = await store.torrents.get(parse_info_hash(text))
        place = await store.scores.place(found.torrent_id) if found else None
        if found is None or place is None:
            raise ClientError("is not in the ranking")
        row: Row = {"info_hash": text, "rank": place.rank + 1, "of": place.of, "score": found.score}
        last, next_turn = Moment(place.last_processed), Moment(place.next_turn)
        turns: Row = {"last_processed": last, "next_turn": next_turn, "being_scored": place.being_scored}
        yield [{**row, **turns}]

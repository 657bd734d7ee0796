"""``tracker score …``."""

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import AsJson, Config, InfoHashes, group, with_store
from tracker.cli.commands.paging import in_order
from tracker.cli.terminal import MOMENT, Column, Listing, Moment, Row, describe
from tracker.errors import ClientError
from tracker.store.store import Store
from tracker.store.torrents.torrents import Torrent

scores = group("Show torrent scores and scoring progress.")


@scores.command("top")
def show_ranking(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines.")] = 20,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List torrents by score, highest first."""
    numbers = [Column("rank", 8, right=True), Column("score", 8, right=True), Column("info_hash", 40)]
    counts = [Column(name, 8, right=True) for name in ("seeders", "leechers")]
    listing = Listing([*numbers, *counts, Column("name")], as_json=as_json)

    def row(rank: int, found: Torrent) -> Row:
        counts: Row = {"seeders": found.seeders, "leechers": found.leechers}
        return {
            "rank": rank,
            "score": found.score,
            "info_hash": found.info_hash.hex(),
            **counts,
            "name": found.name,
        }

    async def work(store: Store) -> None:
        rank = 1
        async for page in in_order(limit, partial(_ranked, store)):
            listing.page(row(*ranked) for ranked in enumerate(page, rank))
            rank += len(page)

    with_store(config, work)


async def _ranked(store: Store, offset: int, count: int) -> list[Torrent]:
    return await store.torrents.top("score", count, offset)


@scores.command("lag")
def show_lag(as_json: AsJson = False, config: Config = None) -> None:
    """Show how many torrents are ranked, due and late."""

    async def work(store: Store) -> None:
        lag = await store.scores.lag()
        describe({**asdict(lag), "longest_seconds": round(lag.longest_seconds)}, as_json=as_json)

    with_store(config, work)


@scores.command("place")
def show_place(info_hashes: InfoHashes, as_json: AsJson = False, config: Config = None) -> None:
    """Show the rank of torrents (1: highest score), and when they are scored next."""
    numbers = [Column(name, 8, right=True) for name in ("rank", "of", "score")]
    times = [Column(name, MOMENT) for name in ("last_processed", "next_turn")]
    listing = Listing(
        [Column("info_hash", 40), *numbers, *times, Column("being_scored", 12)], as_json=as_json
    )

    async def work(store: Store) -> None:
        for text in info_hashes:
            found = await store.torrents.get(parse_info_hash(text))
            place = await store.scores.place(found.torrent_id) if found else None
            if found is None or place is None:
                raise ClientError("is not in the ranking")
            row: Row = {"info_hash": text, "rank": place.rank + 1, "of": place.of, "score": found.score}
            last, next_turn = Moment(place.last_processed), Moment(place.next_turn)
            turns: Row = {"last_processed": last, "next_turn": next_turn, "being_scored": place.being_scored}
            listing.page([{**row, **turns}])

    with_store(config, work)

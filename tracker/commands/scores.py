"""``tracker score …``."""

from tracker.bittorrent import parse_info_hash
from tracker.commands import AsJson, Config, InfoHashes, group, with_stores
from tracker.errors import ClientError
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row, describe

scores = group("Scores of torrents, and how far scoring is behind.")


@scores.command("lag")
def show_lag(as_json: AsJson = False, config: Config = None) -> None:
    """Show how many torrents are scored, wait for it, and are late."""

    async def work(stores: Stores) -> None:
        lag = await stores.scores.lag()
        describe(
            {
                "count": lag.count,
                "waiting": lag.waiting,
                "late": lag.late,
                "longest_seconds": round(lag.longest_seconds),
            },
            as_json=as_json,
        )

    with_stores(config, work)


@scores.command("place")
def show_place(info_hashes: InfoHashes, as_json: AsJson = False, config: Config = None) -> None:
    """Show where torrents stand by score, 1 for the highest, and when it is their turn (epoch s)."""
    figures = [
        Column(name, 14, right=True) for name in ("rank", "of", "score", "last_processed", "next_turn")
    ]
    listing = Listing([Column("info_hash", 40), *figures, Column("being_scored", 12)], as_json=as_json)

    async def work(stores: Stores) -> None:
        for text in info_hashes:
            found = await stores.torrents.get(parse_info_hash(text))
            place = await stores.scores.place(found.torrent_id) if found else None
            if found is None or place is None:
                raise ClientError("is not in the ranking by score")
            times: Row = {"last_processed": place.last_processed, "next_turn": place.next_turn}
            row: Row = {"info_hash": text, "rank": place.rank + 1, "of": place.of, "score": found.score}
            listing.page([{**row, **times, "being_scored": place.being_scored}])

    with_stores(config, work)

"""Operations on the whole tracker: statistics, rescoring."""

from dataclasses import dataclass
from typing import Annotated

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import DHT_LOOKUP, REPROCESS, REPROCESS_RETRIES, Enqueued
from tracker.store.schema.record import MAX_EXACT, Field
from tracker.store.store import Store

FEED_OFF = "the change feed is off: set TRACKER_CHANGES__MAX_ENTRIES"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Current numbers, and totals since the last reset."""

    torrents: int
    scored_torrents: Annotated[int, Field("Torrents in the ranking.")]
    denials: Annotated[int, Field("Denied torrents.")]
    users: int
    users_with_hit_and_runs: int
    totals: Annotated[dict[str, int], Field("`seeders` and `leechers` are current; the others are all-time totals.")]
    failures: Annotated[dict[str, int], Field("Refused requests by reason.")]


async def rescore(
    jobs: Jobs,
    *,
    min_score: float | None = None,
    max_score: float | None = None,
    min_seeders: int | None = None,
    max_seeders: int | None = None,
) -> Enqueued:
    """Starts a job that rescores all torrents, or those that match. Raises ClientError for an invalid filter."""
    for low, high in ((min_score, max_score), (min_seeders, max_seeders)):
        if low is not None and high is not None and low > high:
            raise ClientError("a minimum exceeds its maximum")
    if any(number is not None and not 0 <= number <= MAX_EXACT for number in (min_seeders, max_seeders)):
        raise ClientError(f"a number of seeders is 0 to {MAX_EXACT}")
    filters = {"min_score": min_score, "max_score": max_score, "min_seeders": min_seeders, "max_seeders": max_seeders}
    payload = {name: value for name, value in filters.items() if value is not None}
    try:
        return await jobs.enqueue(REPROCESS, payload, max_retries=REPROCESS_RETRIES)
    except ValueError as error:  # a score of nan or inf
        raise ClientError("a score is a number") from error


async def statistics(store: Store) -> Statistics:
    """Without the main store, numbers that only it has are 0."""
    main_or = store.shards.main_or
    return Statistics(
        torrents=await store.torrents.count(),
        scored_torrents=await store.scores.count(),
        denials=await store.torrents.denial_count(),
        users=await store.users.count(),
        users_with_hit_and_runs=await main_or(store.users.hit_and_run_count(), 0),
        totals=await store.counters.totals(),
        failures=await main_or(store.counters.failures(), {}),
    )


async def look_up(store: Store, info_hash: InfoHash, now: float) -> Enqueued:
    """Starts a job that looks up a torrent in the DHT. Raises Conflict."""
    await store.dht_nodes.check_lookup(store.dht_torrents, info_hash, now)
    return await store.jobs.enqueue(DHT_LOOKUP, {"info_hash": info_hash.hex()}, max_retries=0)

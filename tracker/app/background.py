"""Wires the background work of a tracker: scoring, jobs, adoption, and pushes to StatHat or StatsD. Any number of
trackers may share a store: leases and markers in it prevent duplicate work."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tracker.bittorrent import Address, InfoHash
from tracker.core.scoring import Source
from tracker.errors import ClientError
from tracker.runtime.context import RuntimeContext
from tracker.settings.types import queue_numbers
from tracker.store.jobs.records import DHT_LOOKUP, PROCESS_TORRENT, REPROCESS, SWEEP
from tracker.store.store import Store
from tracker.store.work.sizes import EVERY_SECONDS as SIZES_EVERY_SECONDS
from tracker.system.event_loop import running
from tracker.system.torrent_files import TorrentFiles
from tracker.wire.torrent_file import Pieces, parse_torrent_file
from tracker.workers import connectable
from tracker.workers.admission import denied_prefixes
from tracker.workers.connectable import ConnectableWorker
from tracker.workers.geoip_update import GeoIPUpdater
from tracker.workers.jobs import JobWorker, Queue
from tracker.workers.join_counts import MarkerCleaner
from tracker.workers.loop import forever, until_next
from tracker.workers.prober import Prober
from tracker.workers.push import FLUSH_SECONDS, Receiver, Sender, StatHat, StatsD
from tracker.workers.reaper import REMOVE_SECONDS, remove_once
from tracker.workers.samples import CLEAN_SECONDS, clean_counters, sample_sizes
from tracker.workers.scorer import RESCORE_SECONDS, Ask, Scorer, rescore
from tracker.workers.shard_reapers import AnyReaper
from tracker.workers.site.mapping import check_libraries
from tracker.workers.upstreams import Upstream, ask_many, open_upstreams
from tracker.workers.users import AdoptionWorker, UserCopiesWorker
from tracker.workers.webhooks import FeedUpdates, WebhookWorker
from tracker.workers.work import (
    POLICY_EVERY_SECONDS,
    VERIFY_EVERY_SECONDS,
    LeaseWorker,
    WorkPolicy,
    WorkVerification,
    save_sizes,
)

COPY_SECONDS = 60.0
"""How often what a program wrote into the lists of clients, and what a shard has missed, is copied."""
JobHandler = Callable[[Mapping[str, Any]], Awaitable[None]]

PUSH_FIGURES, CLEAN_COUNTERS, CHECK_CONNECTABLE = "push_figures", "clean_counters", "check_connectable"
WORK_POLICY, WORK_VERIFY, WORK_SIZES = "work_policy", "work_verify", "work_sizes"


@asynccontextmanager
async def open_background(
    context: RuntimeContext,
    reaper: AnyReaper,
    on_peer: Callable[[InfoHash, Address], None],
    prober: Prober,
    look_up: JobHandler | None = None,
) -> AsyncIterator[JobWorker]:
    """Runs the background work, and keeps connections to upstream trackers open. ``on_peer`` receives the peers that
    upstream trackers report; ``prober`` is the process's only one. ``look_up`` runs jobs of the queue ``dht_lookup``;
    it is used where the DHT node is enabled. On exit, after the last announce, running jobs end or return to their
    queues."""
    store, settings = context.store, context.live.current
    on_upstream_peer = on_peer if settings.uniques.enabled else None
    async with open_upstreams(settings.scoring, on_peer=on_upstream_peer) as upstreams, _site(context) as site:
        scorer = Scorer(
            store,
            settings.scoring,
            lambda: context.live.current.announce.peers_default,
            _other_sources(context, upstreams),
        )
        live = context.live
        adoption = AdoptionWorker(
            store.shards.main,
            lambda: reaper.interval,
            lambda: live.current.users.private != "off" or live.current.clients.allow_list,
        )
        jobs = _jobs(context, scorer, reaper, adoption, prober, look_up)
        webhooks = WebhookWorker(store, settings.changes.receivers)
        context.telemetry.gauge("webhook_lag_seconds", lambda: webhooks.lag_seconds)
        denied = partial(denied_prefixes, store.deny_list, lambda: live.current.clients.deny_list)

        async def remove() -> None:
            await remove_once(store, denied, reaper.held)

        async with running(
            jobs.run,
            adoption.run,
            MarkerCleaner(store).run,
            LeaseWorker(store).run,
            webhooks.run,
            partial(sample_sizes, store),
            FeedUpdates(store, lambda: live.current.changes.updates_seconds).run,
            GeoIPUpdater(lambda: (live.current.geoip, live.current.geoip_file), store.counters.count, time.time).run,
            partial(forever, remove, REMOVE_SECONDS, "peers are not removed", sleep=until_next),
            *([scorer.run] if settings.scoring.enabled else ()),
            *_of_shards(context, reaper),
            *site,
        ):
            try:
                yield jobs
            finally:
                await jobs.drain()


def _other_sources(context: RuntimeContext, upstreams: Sequence[Upstream]) -> Ask | None:
    """What the scorer counts beside the own swarms: trackers that answered, and what the last lookups in the DHT found.
    New peers are given as 0: the scorer derives them from the growth since its last run. ``None`` where there is
    neither."""
    settings = context.live.current
    uses_dht = settings.dht.enabled and settings.dht.lookups_per_minute > 0

    async def ask(info_hashes: Sequence[InfoHash]) -> Mapping[InfoHash, Sequence[Source]]:
        found: dict[InfoHash, list[Source]] = {info_hash: [] for info_hash in info_hashes}
        for info_hash, peers in (await ask_many(upstreams, info_hashes)).items() if upstreams else ():
            found[info_hash] += [Source(number, 0, settings.scoring.upstream_max_peers) for number in peers]
        if uses_dht:
            counts = await context.store.dht_torrents.peers_found(info_hashes, int(time.time()))
            for info_hash, number in counts.items():
                found[info_hash].append(Source(number, 0, settings.scoring.dht_max_peers))
        return found

    return ask if upstreams or uses_dht else None


def _of_shards(context: RuntimeContext, reaper: AnyReaper) -> list[Callable[[], Coroutine[None, None, None]]]:
    """What keeps several shards alike: their copies of tokens, sessions and lists of clients, and users if there are
    any. None with one shard."""
    store = context.store
    if not store.shards.others:
        return []
    copying = partial(
        forever, lambda: store.copy_access([store.shards[number] for number in reaper.held]), COPY_SECONDS
    )
    if context.live.current.users.private == "off":
        return [copying]
    return [copying, UserCopiesWorker(store, lambda: reaper.held).run]


@asynccontextmanager
async def _site(context: RuntimeContext) -> AsyncIterator[list[Callable[[], Coroutine[None, None, None]]]]:
    """What keeps the tables of a site's own database, if the settings name one. Its libraries are an extra."""
    settings = context.live.current.site
    if settings.database is None or not settings.sync_in_tracker:
        context.telemetry.gauge("site_lag_seconds", lambda: 0)
        yield []
        return
    check_libraries()
    from tracker.workers.site.sync import open_sync  # noqa: PLC0415

    async with open_sync(context.store, settings) as sync:
        context.telemetry.gauge("site_lag_seconds", lambda: sync.lag_seconds)
        yield [sync.run]


def _jobs(
    context: RuntimeContext,
    scorer: Scorer,
    reaper: AnyReaper,
    adoption: AdoptionWorker,
    prober: Prober,
    look_up: JobHandler | None,
) -> JobWorker:
    store, settings = context.store, context.live.current
    counters = store.counters
    policy = WorkPolicy(store.work.projects, store.work.policy)
    checks = ConnectableWorker(store, prober)
    receiver: Receiver = StatsD(settings.statsd) if settings.statsd.address else StatHat(settings.stathat)
    sender = Sender(receiver, store, partial(_gauges, store))

    async def clean_up(_: object) -> None:
        await clean_counters(counters, time.time())
        await store.users.finish_deletions()
        await store.hit_and_runs.decide()
        await store.hit_and_runs.drop()
        if not context.live.current.changes.max_entries:
            await store.changes.delete()
        await store.user_listing.rank()
        await store.torrent_listing.rank()

    async def sweep(_: object) -> None:
        await reaper.sweep_once(hurry=True)
        await adoption.round(0.0)

    queues = {
        PROCESS_TORRENT: Queue(scorer.handle),
        REPROCESS: Queue(partial(rescore, store), timeout_seconds=RESCORE_SECONDS, resumes=True),
        SWEEP: Queue(sweep),
        CLEAN_COUNTERS: Queue(clean_up, every=CLEAN_SECONDS),
        WORK_POLICY: Queue(policy.handle, every=POLICY_EVERY_SECONDS),
        WORK_VERIFY: Queue(_verification(context, prober).handle, every=VERIFY_EVERY_SECONDS),
        WORK_SIZES: Queue(lambda _: save_sizes(store.work.sizes), every=SIZES_EVERY_SECONDS),
        CHECK_CONNECTABLE: Queue(checks.handle, every=settings.probe.connectable * connectable.EVERY_SECONDS),
        PUSH_FIGURES: Queue(sender.flush, every=receiver.enabled * FLUSH_SECONDS),
    }
    if look_up is not None and settings.dht.enabled:
        queues[DHT_LOOKUP] = Queue(look_up)
    for name, number in queue_numbers(settings.jobs.concurrency).items():
        if name in queues:
            queues[name] = replace(queues[name], concurrency=number)
    return JobWorker(store.jobs, store.connection, queues, clock=time.time)


async def _gauges(store: Store) -> dict[str, int]:
    """The current values that StatHat or StatsD get. The time is the mean of the last whole minute."""
    totals, minute = await store.counters.totals(), time.time() - 60
    seeders, leechers = (max(0, totals[name]) for name in ("seeders", "leechers"))
    _, seconds = await store.counters.distribution("announce_seconds", 60, minute, minute)
    return {
        "torrents.count": await store.scores.count(),
        "peers": seeders + leechers,
        "seeders": seeders,
        "leechers": leechers,
        "announces.microseconds": round(seconds.mean * 1e6) if seconds else 0,
    }


def build_prober(context: RuntimeContext) -> Prober:
    """Returns the one prober of the process, which keeps the limits of all connections to peers."""
    return Prober(lambda: context.live.current.probe.enabled, context.store.counters.count)


def _verification(context: RuntimeContext, prober: Prober) -> WorkVerification:
    def read(info_hash: InfoHash) -> Pieces | None:
        settings = context.live.current
        files = TorrentFiles(settings.data.directory, enabled=settings.torrents.keep_files)
        try:
            data = files.read(info_hash)
            return parse_torrent_file(data).pieces if data is not None else None
        except (OSError, ClientError):
            return None

    return WorkVerification(context.store, prober, lambda info_hash: asyncio.to_thread(read, info_hash))

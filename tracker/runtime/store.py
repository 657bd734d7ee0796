"""Opens the store, for a serving tracker or for one command, and derives its options from the settings."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf

from tracker.errors import StartupError, StoreNotReady
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.reference import mask_url
from tracker.settings.types import queue_numbers
from tracker.store.client.cluster import Cluster, SlotRange, check_served, find_nodes
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server import OnRoundTrip
from tracker.store.client.server_info import check_server
from tracker.store.client.url import Address, node_urls, url_at
from tracker.store.schema.keys import main_prefix_of, shard_prefixes
from tracker.store.stats.counters import Tap
from tracker.store.stats.outbox import MAX_WAITING
from tracker.store.stats.unique_users import UniqueRules
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.rules import TIMEOUT_INTERVALS, SwarmRules
from tracker.store.swarms.swarms import MAX_BATCH
from tracker.system.logger import Logger
from tracker.valkey.server import command_server

EARLY_SECONDS = 30.0
"""An announce sooner than this after the peer's last one counts as early; at most a quarter of the interval."""
_COMMAND_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_MAX_GAP_INTERVALS = 4
_CREDIT_SAVED_INTERVALS = 2
_LATE_SECONDS = 60
"""A client that respects its interval may announce this much later."""
_LIST_WAIT_SECONDS = 290
"""Ten less than the interval of an answer that has no peers for want of budget, so the next announce is due."""
_EXPORTED = frozenset({"announces", "torrents.processed"})

log = Logger("tracker.store")


class Patience:
    """How long a start waits for the store: ``seconds`` from now on."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self.waiting = False

    async def wait(self, error: StartupError) -> None:
        """Pauses before the next attempt. Raises ``error`` when the time is up."""
        if time.monotonic() >= self._ends:
            raise error
        if not self.waiting:
            log.warning("waiting for the store", error=str(error))
        self.waiting = True
        await asyncio.sleep(_RETRY_SECONDS)


@asynccontextmanager
async def open_connection(
    url: str,
    redis: RedisSettings,
    timeout: float,
    on_round_trip: OnRoundTrip | None = None,
    patience: Patience | None = None,
    *,
    must_serve: bool = True,
) -> AsyncIterator[tuple[Connection, str]]:
    """Yields the connection, and the server's name and version. ``on_round_trip`` as in Connection. Of several nodes of
    a cluster, the first that answers names the others. Raises StartupError if the server cannot be used; of a cluster,
    if no shard is served and one ``must_serve``. With ``patience`` it waits for one that is not ready."""
    opened = partial(open_unchecked, redis=redis, timeout=timeout, on_round_trip=on_round_trip)
    prefixes = shard_prefixes(redis.prefix, redis.shards)
    async with AsyncExitStack() as stack:
        while True:
            try:
                async with AsyncExitStack() as attempt:
                    found = await _checked(attempt, opened, url, prefixes, patience)
                    if must_serve and found[0].topology.nodes:
                        await check_served(found[0], prefixes)
                    stack.push_async_exit(attempt.pop_all())
                break
            except StoreNotReady as error:
                if patience is None:
                    raise
                await patience.wait(error)
        yield found


async def _checked(
    stack: AsyncExitStack,
    opened: Callable[..., AbstractAsyncContextManager[Connection]],
    url: str,
    prefixes: Sequence[str],
    patience: Patience | None,
) -> tuple[Connection, str]:
    """A connection that ``stack`` closes, and the server's name and version."""
    urls = node_urls(url)
    for number, each in enumerate(urls, 1):
        async with AsyncExitStack() as of_one:
            connection = await of_one.enter_async_context(opened(each))
            ranges, nodes = list[SlotRange](), list[Address]()
            try:
                name, clustered = await check_server(connection.server, mask_url(each))
                if clustered:
                    ranges, nodes = await find_nodes(connection.server, prefixes[0], mask_url(each))
            except StartupError as error:
                if number == len(urls):
                    raise
                if patience is None or not patience.waiting:
                    log.warning("a node of the store is unavailable", error=str(error))
                continue
            if not nodes and len(urls) > 1:
                raise StartupError(f"the store at {mask_url(each)} is no cluster: name one server")
            if not nodes:
                stack.push_async_exit(of_one.pop_all())
                return connection, name
        break
    return await stack.enter_async_context(opened(url, nodes=nodes, ranges=ranges)), name


@asynccontextmanager
async def open_unchecked(
    url: str,
    redis: RedisSettings,
    timeout: float,
    on_round_trip: OnRoundTrip | None = None,
    nodes: Sequence[Address] = (),
    ranges: Sequence[SlotRange] = (),
) -> AsyncIterator[Connection]:
    """A connection to a server that another process has checked. The server may be unavailable at the moment. ``nodes``
    are those of its cluster, if it is part of one; ``ranges`` are the slots that they serve, if known."""
    ca_file = str(redis.tls_ca_file) if redis.tls_ca_file else None
    password = redis.sentinel_password
    login = (redis.sentinel_user or None, password.get_secret_value() if password else None)

    server_at = partial(
        connect,
        connect_timeout=redis.connect_timeout_seconds,
        timeout=timeout,
        tls_ca_file=ca_file,
        sentinel_login=login,
        on_round_trip=on_round_trip,
    )
    if nodes:
        cluster = Cluster(lambda address: server_at(url_at(url, address), address=address), nodes, ranges)
        connection = cluster.of(main_prefix_of(redis.prefix, redis.shards))
    else:
        connection = Connection(server_at(url))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def open_store(settings: Settings, *, checked: bool = True) -> AsyncIterator[Store]:
    """The store for one command. A private server is started for the command unless its tracker runs. If not
    ``checked``, the store may be one that the command cannot use."""
    async with (
        command_server(settings) as url,
        open_connection(url, settings.redis, _COMMAND_TIMEOUT_SECONDS, must_serve=checked) as (connection, _),
    ):
        store = build_store(connection, settings)
        if checked:
            await store.check_layout()
        yield store


def build_store(connection: Connection, settings: Settings, tap: Tap | None = None) -> Store:
    """The store of this process; ``tap`` as in Counters."""
    return Store(connection, settings.redis.prefix, store_options(settings), tap=tap)


def store_options(settings: Settings) -> StoreOptions:
    """The store's options, from the settings at the start."""
    max_outbox = MAX_WAITING if settings.stathat.ezkey or settings.statsd.address else 0
    return StoreOptions(
        rules=swarm_rules(settings),
        scoring_interval_seconds=settings.scoring.interval_seconds,
        score_history=settings.scoring.history,
        unique_rules=UniqueRules(
            mode=settings.uniques.mode,
            max_outbox=max_outbox,
            export_torrents=settings.stathat.per_torrent,
            export_places=settings.stathat.places,
        ),
        max_waiting=max(settings.redis.max_waiting // settings.http.workers, MAX_BATCH),
        max_outbox=max_outbox,
        max_audit=settings.admin.audit_entries,
        exports=exported,
        shards=settings.redis.shards,
        priorities=queue_numbers(settings.jobs.priority),
    )


def exported(name: str) -> bool:
    """Whether a counter is pushed to StatHat or StatsD. The script that counts unique users exports them itself."""
    return name in _EXPORTED or name.startswith("failures.")


def swarm_rules(settings: Settings) -> SwarmRules:
    """The rules for the swarm scripts, from the current settings."""
    announce, torrents, users = settings.announce, settings.torrents, settings.users
    limits, reap_seconds = settings.limits, settings.reaper.interval_seconds
    interval = min(announce.interval_seconds, announce.min_interval_seconds)
    return SwarmRules(
        accounts=users.private,
        open=torrents.mode == "open",
        peer_memory=users.peer_memory_seconds,
        hnr_min_bytes=users.hnr_min_bytes,
        hnr_threshold=users.hnr_threshold_seconds,
        hnr_by_seed_time=users.hnr_time == "seed",
        hnr_grace=users.hnr_grace_seconds,
        hnr_min_share=users.hnr_min_percent / 100,
        hnr_ratio=users.hnr_ratio,
        max_gap=_MAX_GAP_INTERVALS * announce.interval_seconds,
        min_timeout=max(TIMEOUT_INTERVALS * announce.interval_seconds, reap_seconds),
        max_timeout=max(TIMEOUT_INTERVALS * announce.max_interval_seconds, reap_seconds),
        max_credit=users.max_credit_bytes_per_second,
        max_user_credit=users.max_user_credit_bytes_per_second,
        credit_saved=_CREDIT_SAVED_INTERVALS * announce.interval_seconds,
        max_torrents=torrents.max_torrents,
        new_per_address_hour=torrents.new_per_address_hour,
        new_per_network_hour=torrents.new_per_network_hour,
        # After an outage every peer gets enough time for one announce, whatever its interval.
        grace=max(int(reap_seconds), announce.max_interval_seconds + _LATE_SECONDS),
        forget_after=torrents.forget_after_seconds,
        early=min(EARLY_SECONDS, interval / 4) if limits.enabled else 0,
        max_per_network_in_swarm=limits.address_entries_per_torrent if limits.enabled else inf,
        max_per_network=limits.address_entries if limits.enabled else inf,
        bound_local_networks=limits.private_addresses,
        max_changes=settings.changes.max_entries,
        keep_user_agents=settings.http.keep_user_agents,
        note_updates=settings.changes.max_entries > 0 and settings.changes.updates_seconds > 0,
        max_peers=users.max_peers_per_torrent,
        max_downloads=users.max_downloads,
        warn_beyond_downloads=_slots(settings) == "warning",
        own_peers=users.own_peers,
        min_credit_interval=min(users.min_credit_interval_seconds, announce.interval_seconds),
        lists_at_once=users.peer_lists_at_once,
        lists_per_minute=users.peer_lists_per_minute,
        lists_per_day=users.peer_lists_per_day,
        list_wait=min(_LIST_WAIT_SECONDS, interval),
        untold_ports=announce.untold_ports,
        give_below=settings.dht.give_below if settings.dht.give_peers else 0,
        give_all=settings.dht.torrents == "all",
    )


def _slots(settings: Settings) -> str:
    """How downloads beyond a user's slots are answered. A mapping that cannot be read is told by the sync and by the
    doctor."""
    if settings.users.beyond_max_downloads == "mapping" and settings.site.database:
        from tracker.workers.site.mapping import load_mapping  # noqa: PLC0415  # few stores have a site's tables

        with suppress(StartupError):
            return load_mapping(settings.site.mapping).slots
    return settings.users.beyond_max_downloads

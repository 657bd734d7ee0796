"""The store: all parts that send Redis commands, built once per process over one connection.

A part is of the store, and takes its Shards (docs/decisions/0022-shards.md), or it is of one shard. Parts that few
processes need are imported when they are first used.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from tracker.errors import StartupError, StoreUnavailable
from tracker.store.access.audit import Audit
from tracker.store.access.client_lists import AllowList, AllowListCache, DenyList, DenyListCache
from tracker.store.access.copies import copy_access
from tracker.store.access.rate_limits import RateLimitStore, shared_secret
from tracker.store.access.repeats import Repeats
from tracker.store.access.tokens import Tokens
from tracker.store.changes.changes import Changes
from tracker.store.changes.webhooks import Webhooks
from tracker.store.client.connection import Connection
from tracker.store.layout import (
    Layout,
    check_current,
    check_number,
    check_part,
    made_without_main,
    restore_main,
    upgrade,
)
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.stats.client_software import ClientSoftware
from tracker.store.stats.counters import Counters, Tap
from tracker.store.stats.markers import Markers
from tracker.store.stats.outbox import Outbox
from tracker.store.stats.refusal_samples import RefusalSamples
from tracker.store.stats.unique_users import UniqueRules, UniqueUsers
from tracker.store.swarms.all_peers import AllPeers
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.connect_checks import ConnectChecks
from tracker.store.swarms.reaping import Reaping, SocketProcess
from tracker.store.swarms.rules import LiveRules, SwarmRules
from tracker.store.swarms.swarms import AllSwarms
from tracker.store.torrents.hybrids import Hybrids
from tracker.store.torrents.listing import TorrentListing
from tracker.store.torrents.scores import HISTORY_POINTS, Scores
from tracker.store.torrents.torrents import Torrents
from tracker.store.users.parts import UserParts
from tracker.store.users.site_rows import SiteRows

if TYPE_CHECKING:
    from tracker.store.dht.nodes import DhtNodes
    from tracker.store.dht.torrents import DhtTorrents
    from tracker.store.jobs.jobs import Jobs
    from tracker.store.work.work import Work


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings of the store at the start, as plain values, with the same defaults."""

    rules: SwarmRules = field(default_factory=SwarmRules)
    scoring_interval_seconds: int = 3600
    score_history: int = HISTORY_POINTS
    unique_rules: UniqueRules = field(default_factory=UniqueRules)
    max_waiting: int = 2048
    """Max announces that wait for a script call; the same for scrapes."""
    max_outbox: int = 0
    """Max numbers that wait in the outbox; 0 if no receiver is configured."""
    max_audit: int = 100_000
    """Max entries of the audit log."""
    exports: Callable[[str], bool] | None = None
    """Returns whether a counter also goes to the outbox."""
    shards: int = 1
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Priorities of new jobs by queue; others have 0."""


_DEFAULTS = StoreOptions()


class Store(UserParts):
    """Everything under one key ``prefix``. ``clock`` returns epoch seconds, ``timer`` monotonic seconds. ``tap``
    receives what Counters counts every second."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        options: StoreOptions = _DEFAULTS,
        *,
        tap: Tap | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.connection = connection
        self.prefix = prefix
        self._options = options
        self.clock = clock
        self.shards = shards = Shards.under(connection, prefix, options.shards)
        self.scripts, self.keys = shards.main.scripts, shards.main.keys
        self.rules = rules = LiveRules(options.rules.of_shard(len(shards)))
        self.reapings = {shard: Reaping(shard, shards, rules, clock, timer) for shard in shards.all}
        """One of each prefix: each needs heartbeats."""
        self.reaping = self.reapings[shards.main]
        self.socket_process = SocketProcess(shards.main, self.reapings.values())
        super().__init__(shards, rules, self.reapings, clock)
        self.secret = b""  # all trackers on this store share it; empty until load_secret or use_secret
        self.announce_counts = AnnounceCounts(shards)
        self.swarms = AllSwarms(
            shards, self.reapings, rules, self.announce_counts, clock, self.user_copies.bring, options.max_waiting
        )
        self.torrents = Torrents(shards, clock)
        self.hybrids = Hybrids(shards)
        self.torrent_listing = TorrentListing(shards, self.torrents, self.hybrids)
        self.scores = Scores(
            shards, clock, interval_seconds=options.scoring_interval_seconds, history=options.score_history
        )
        self.allow_list = AllowList(shards)
        self.allow_list_cache = AllowListCache(self.allow_list, timer)
        self.deny_list = DenyList(shards)
        self.deny_list_cache = DenyListCache(self.deny_list)
        self.connect_checks = ConnectChecks(shards.main, clock)
        self.all_peers = AllPeers(shards, self.connect_checks)
        self.rate_limits = RateLimitStore(shards.main, clock)
        self.repeats = Repeats(shards.main)
        self.counters = Counters(shards, clock, exports=options.exports, max_outbox=options.max_outbox, tap=tap)
        self.refusal_samples = RefusalSamples(shards.main)
        self.outbox = Outbox(shards)
        self.client_software = ClientSoftware(shards.main)
        self.unique_users = UniqueUsers(shards, options.unique_rules)
        self.markers = Markers(shards, clock)
        self.changes = Changes(shards, lambda: rules.current.max_changes)
        self.webhooks = Webhooks(shards.main, clock, self.changes)
        self.site_rows = SiteRows(shards, self.user_sums, self.groups, self.connect_checks, clock)
        self.tokens = Tokens(shards, clock)
        self.audit = Audit(shards.main, options.max_audit)

    @cached_property
    def jobs(self) -> "Jobs":
        from tracker.store.jobs.jobs import Jobs  # noqa: PLC0415
        from tracker.store.jobs.records import JobLimits  # noqa: PLC0415

        limits, counters = JobLimits(priorities=self._options.priorities), self.counters
        count, observe = counters.count, counters.observe
        return Jobs(self.shards.main, self.clock, limits, count=count, observe=observe)

    @cached_property
    def work(self) -> "Work":
        from tracker.store.work.work import Work  # noqa: PLC0415

        return Work(self.shards, self.rules, self.clock)

    @cached_property
    def dht_nodes(self) -> "DhtNodes":
        from tracker.store.dht.nodes import DhtNodes  # noqa: PLC0415

        return DhtNodes(self.shards.main)

    @cached_property
    def dht_torrents(self) -> "DhtTorrents":
        from tracker.store.dht.torrents import DhtTorrents  # noqa: PLC0415

        return DhtTorrents(self.shards)

    def use_rules(self, rules: SwarmRules) -> None:
        self.rules.current = rules.of_shard(len(self.shards))

    async def check_layout(self) -> None:
        """Raises StartupError if the store was made with another number of shards, or has another layout; else
        StoreUnavailable and RedisError."""
        with suppress(StoreUnavailable, RedisError):  # one that refuses writes may still be read
            await restore_main(self.shards)
        try:
            await check_number(self.connection, self.prefix, len(self.shards))
            await check_current(self.shards)
        except StoreUnavailable as error:
            await self._made_without_main(error)

    async def upgrade(self) -> str:
        """The same, but an older layout is upgraded. Returns what was done; empty where there was nothing to do."""
        try:
            await restore_main(self.shards)
            await check_number(self.connection, self.prefix, len(self.shards))
            return await upgrade(self.shards, self.clock)
        except StoreUnavailable as error:
            await self._made_without_main(error)
            return ""

    async def _made_without_main(self, error: StoreUnavailable) -> Layout:
        """What the store was made with, while its main prefix is unavailable; raises ``error`` if it is not."""
        if not self.shards.main_is_unavailable:
            raise error
        return await made_without_main(self.shards, self.prefix)

    def keep_checking_layout(self) -> None:
        """Checks each part again whenever it returns: it may be empty then, another one, or upgraded by a newer
        tracker."""

        async def check(shard: Shard) -> None:
            try:
                await check_part(self.shards, shard, self.secret)
            except StartupError as error:
                raise StoreUnavailable(str(error)) from error

        for shard in self.shards.all:
            shard.connection.on_reconnect(partial(check, shard))

    async def load_secret(self) -> bytes:
        """Reads the shared secret, or creates it. Raises StoreUnavailable and RedisError."""
        try:
            self.use_secret(await shared_secret(self.connection, self.keys))
        except StoreUnavailable as error:
            self.use_secret((await self._made_without_main(error)).secret)
        return self.secret

    async def copy_access(self, shards: Sequence[Shard]) -> None:
        """Gives shards beside the main prefix the tokens, sessions and lists of clients. They keep what they have while
        the main prefix is unavailable or empty; an empty one gets it back."""
        with suppress(StoreUnavailable, RedisError, StartupError):
            await restore_main(self.shards)
            await copy_access(self.shards, shards)

    async def start_shard(self, shard: Shard) -> None:
        """Compares a part of the store with the others, and writes a first heartbeat. Raises StartupError,
        StoreUnavailable and RedisError."""
        await check_part(self.shards, shard, self.secret)
        await self.reapings[shard].heartbeat()

    def use_secret(self, secret: bytes) -> None:
        """Sets the secret that another process of this tracker has read."""
        self.secret = secret
        self.unique_users.use_secret(secret)

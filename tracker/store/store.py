"""The store: all parts that send Redis commands, built once per process over one connection.

With several shards (docs/decisions/0022-shards.md) each shard has parts of its own. Those of the store then send a
call to the shards that it concerns.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tracker.bittorrent import InfoHash
from tracker.store.access.allow_list import AllowList, AllowListCache
from tracker.store.access.audit import MAX_ENTRIES, Audit
from tracker.store.access.deny_list import DenyList, DenyListCache
from tracker.store.access.rate_limits import RateLimitStore
from tracker.store.access.secret import shared_secret
from tracker.store.access.tokens import Tokens
from tracker.store.changes.changes import Changes
from tracker.store.changes.webhooks import Webhooks
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.dht.nodes import DhtNodes
from tracker.store.dht.torrents import DhtTorrents
from tracker.store.jobs.jobs import Jobs
from tracker.store.maintenance.maintenance import Maintenance
from tracker.store.schema.keys import Keys, home_prefix, shard_prefixes
from tracker.store.sharding.away import named
from tracker.store.sharding.changes import ShardedChanges
from tracker.store.sharding.counters import ShardedCounters
from tracker.store.sharding.dht_torrents import ShardedDhtTorrents
from tracker.store.sharding.hybrids import Hybrids
from tracker.store.sharding.leases import ShardLeases
from tracker.store.sharding.maintenance import ShardedMaintenance
from tracker.store.sharding.number import check_number
from tracker.store.sharding.outbox import ShardedOutbox
from tracker.store.sharding.peer_counts import ShardedPeerCounts
from tracker.store.sharding.removals import Removals
from tracker.store.sharding.scores import ShardedScores
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.sharding.swarms import ShardedAnnounceCounts, ShardedSwarms
from tracker.store.sharding.torrent_listing import TorrentListing
from tracker.store.sharding.torrents import ShardedTorrents
from tracker.store.sharding.unique_users import ShardedMarkers, ShardedUniqueUsers
from tracker.store.sharding.unregistered import Unregistered
from tracker.store.sharding.user_copies import UserCopies
from tracker.store.sharding.user_peers import UserPeers
from tracker.store.sharding.user_sums import UserSums
from tracker.store.sharding.users import (
    ShardedFreeleech,
    ShardedHitAndRuns,
    ShardedMultipliers,
    ShardedUserImport,
    ShardedUsers,
)
from tracker.store.sharding.work import ShardedSizes, ShardedTorrentFacts, ShardedTorrentStates
from tracker.store.stats.client_software import ClientSoftware
from tracker.store.stats.counters import Counters, Tap
from tracker.store.stats.markers import Markers
from tracker.store.stats.outbox import Outbox
from tracker.store.stats.place_names import PlaceNameMigration
from tracker.store.stats.refusal_samples import RefusalSamples
from tracker.store.stats.size_samples import SizeSamples
from tracker.store.stats.unique_users import UniqueRules, UniqueUsers
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.connect_checks import ConnectChecks
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules, SwarmRules
from tracker.store.swarms.swarms import Swarms
from tracker.store.torrents.scores import HISTORY_POINTS, Scores
from tracker.store.torrents.torrents import Torrents
from tracker.store.users.adoption import Adoption
from tracker.store.users.freeleech import Freeleech
from tracker.store.users.hit_and_runs import HitAndRunRules, HitAndRuns
from tracker.store.users.importing import UserImport
from tracker.store.users.listing import UserListing
from tracker.store.users.rules import Multipliers
from tracker.store.users.users import Users
from tracker.store.work.blocks import Blocks
from tracker.store.work.claims import Claims
from tracker.store.work.items import Items
from tracker.store.work.leaderboard import Leaderboard
from tracker.store.work.log import Log
from tracker.store.work.policy import Policy
from tracker.store.work.projects import Projects
from tracker.store.work.sizes import Sizes
from tracker.store.work.statistics import Statistics
from tracker.store.work.verification import Verification
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
    max_audit: int = MAX_ENTRIES
    """Max entries of the audit log."""
    exports: Callable[[str], bool] | None = None
    """Returns whether a counter also goes to the outbox."""
    shards: int = 1


_DEFAULTS = StoreOptions()


class Store:
    """Everything under one key prefix.

    ``clock`` returns epoch seconds, ``timer`` monotonic seconds. ``tap`` receives what Counters counts every second.
    """

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
        self._prefix = prefix
        self.keys = keys = Keys(home_prefix(prefix, options.shards))
        self.scripts = scripts = Scripts(connection, keys.prefix)
        self.rules = LiveRules(options.rules)
        self.secret = b""  # all trackers on this store share it; empty until load_secret or use_secret
        self._use_shards(prefix, options, clock, timer)
        self.torrent_listing = TorrentListing(self.shards, self.torrents)
        self.hybrids = Hybrids(self.shards)
        self.shard_leases = ShardLeases(connection, keys)
        common = (connection, scripts, keys)
        self._use_users(clock)
        self.user_listing = UserListing(*common, self.users)
        self.user_peers = UserPeers(self.shards, self.users)
        self.unregistered = Unregistered(self.shards, clock)
        self.adoption = Adoption(scripts, keys)
        self.webhooks = Webhooks(*common, self.changes if len(self.shards) > 1 else None)
        self.allow_list = AllowList(connection, keys)
        self.allow_list_cache = AllowListCache(self.allow_list, timer)
        self.removals = Removals(self.shards)
        self.deny_list = DenyList(connection, keys, self.removals.begin, self.removals.end)
        self.deny_list_cache = DenyListCache(self.deny_list)
        self.connect_checks = ConnectChecks(connection, scripts, keys, clock)
        self.tokens = Tokens(connection, scripts, keys, clock)
        self.audit = Audit(connection, scripts, keys, options.max_audit)
        self.rate_limits = RateLimitStore(connection, scripts, keys, clock)
        self.counters = counters = self._counters(options, clock, tap)
        self.size_samples = SizeSamples(scripts)
        self.peer_counts = ShardedPeerCounts(self.shards)
        self.refusal_samples = RefusalSamples(connection, keys)
        self.outbox = self._outbox()
        self.place_name_migration = PlaceNameMigration(connection, scripts, keys)
        self.client_software = ClientSoftware(connection, scripts, keys)
        self.jobs = Jobs(connection, scripts, keys, clock, count=counters.count, observe=counters.observe)
        self.work = _work(common, self.rules, clock, self.shards)
        self.dht_nodes = DhtNodes(connection, scripts, keys)
        self._use_unique_users(options.unique_rules, clock)
        self._use_maintenance(clock)

    def _use_users(self, clock: Callable[[], float]) -> None:
        """Builds the parts that know users. With several shards, ``user_copies`` and ``user_sums`` connect them."""
        home, shards = (self.connection, self.scripts, self.keys), self.shards
        self.users: Users
        self.freeleech: Freeleech
        self.hit_and_runs: HitAndRuns
        self.multipliers: Multipliers
        self.user_import: UserImport
        self.user_copies = UserCopies(*home, shards)
        self.user_sums = UserSums(*home, shards)
        if len(shards) == 1:
            self.users = Users(*home, self._max_changes, self.reaping, clock)
            self.freeleech = Freeleech(*home, clock)
            self.hit_and_runs = HitAndRuns(*home, self._hit_and_run_rules, clock)
            self.multipliers = Multipliers(*home)
            self.user_import = UserImport(self.scripts)
            return
        parts = [shard.parts for shard in shards]
        self.users = ShardedUsers(
            *home, self._max_changes, self.reaping, clock, shards, self.user_copies, self.user_sums
        )
        self.freeleech = ShardedFreeleech(shards, [Freeleech(*part, clock) for part in parts])
        self.hit_and_runs = ShardedHitAndRuns(
            shards, [HitAndRuns(*part, self._hit_and_run_rules, clock) for part in parts]
        )
        self.multipliers = ShardedMultipliers(*home, shards)
        self.user_import = ShardedUserImport(self.scripts, self.user_copies, self.user_sums)

    def _counters(self, options: StoreOptions, clock: Callable[[], float], tap: Tap | None) -> Counters:
        common = (self.connection, self.scripts, self.keys, clock)
        if len(self.shards) == 1:
            return Counters(*common, exports=options.exports, max_outbox=options.max_outbox, tap=tap)
        return ShardedCounters(
            self.shards, *common, exports=options.exports, max_outbox=options.max_outbox, tap=tap
        )

    def _outbox(self) -> Outbox:
        home = Outbox(self.connection, self.scripts, self.keys)
        if len(self.shards) == 1:
            return home
        parts = [Outbox(shard.connection, shard.scripts, shard.keys) for shard in self.shards]
        return ShardedOutbox(self.shards, home, parts)

    def _use_unique_users(self, rules: UniqueRules, clock: Callable[[], float]) -> None:
        home = (self.connection, self.scripts, self.keys)
        self.unique_users: UniqueUsers
        self.markers = Markers(*home, clock)
        if len(self.shards) == 1:
            self.unique_users = UniqueUsers(*home, rules)
            return
        self.unique_users = ShardedUniqueUsers(*home, rules, self.shards)
        parts = [Markers(shard.connection, shard.scripts, shard.keys, clock) for shard in self.shards]
        self.markers = ShardedMarkers(self.markers, parts)

    def _use_maintenance(self, clock: Callable[[], float]) -> None:
        def of(owner: Store | Shard, users: Users, adoption: Adoption | None) -> Maintenance:
            return Maintenance(
                owner.connection,
                owner.scripts,
                owner.keys,
                clock,
                adoption=adoption,
                reindex_hit_and_runs=users.reindex_hit_and_runs,
                flush_unique_users=self.unique_users.flush,
            )

        self.maintenance = of(self, self.users, self.adoption)
        if len(self.shards) > 1:
            parts = [
                of(shard, Users(*shard.parts, self._max_changes, shard.reaping), None)
                for shard in self.shards
            ]
            self.maintenance = ShardedMaintenance(self.maintenance, parts)

    def _use_shards(
        self, prefix: str, options: StoreOptions, clock: Callable[[], float], timer: Callable[[], float]
    ) -> None:
        """Builds the shards, and the parts that work on all of them."""
        home = _Home(self.connection, self.scripts, self.keys, clock, timer, options)
        self._shard_rules = _rules_of_shard(self.rules, options.shards)
        self.shards = shards = Shards(
            [
                home.shard(number, Keys(each), self._shard_rules)
                for number, each in enumerate(shard_prefixes(prefix, options.shards))
            ]
        )
        self.swarms: Swarms
        self.torrents: Torrents
        self.scores: Scores
        self.changes: Changes
        self.dht_torrents: DhtTorrents
        self.announce_counts: AnnounceCounts
        if len(shards) == 1:
            only = shards[0]
            self.swarms, self.torrents, self.scores = only.swarms, only.torrents, only.scores
            self.changes, self.dht_torrents, self.reaping = only.changes, only.dht_torrents, only.reaping
            self.announce_counts = only.announce_counts
            return
        self.announce_counts = ShardedAnnounceCounts(shards)
        self.swarms = ShardedSwarms(shards, options.max_waiting)
        self.torrents = ShardedTorrents(shards)
        self.scores = ShardedScores(shards)
        self.changes = ShardedChanges(shards, self.connection, self.keys)
        self.dht_torrents = ShardedDhtTorrents(shards)
        self.reaping = Reaping(self.connection, self.scripts, self.keys, self.rules, clock, timer)

    def use_rules(self, rules: SwarmRules) -> None:
        """Replaces the rules of this process."""
        self.rules.current = rules
        if len(self.shards) > 1:
            self._shard_rules.current = rules.of_shard(len(self.shards))

    @property
    def all_reaping(self) -> list[Reaping]:
        """Of every prefix: each needs heartbeats."""
        shards = [shard.reaping for shard in self.shards]
        return shards if len(shards) == 1 else [self.reaping, *shards]

    @property
    def servers(self) -> list[Connection]:
        """A connection to each server, home's first."""
        found: dict[object, Connection] = {}
        for connection in (self.connection, *(shard.connection for shard in self.shards)):
            found.setdefault(connection.server, connection)
        return list(found.values())

    @property
    def home_is_away(self) -> bool:
        """Of a store with several shards: they may be served without home."""
        return len(self.shards) > 1 and self.connection.unavailable

    def notices(self) -> list[str]:
        """What is away while at least one shard is served, as public texts."""
        away = self.shards.away
        if len(away) == len(self.shards):
            return []
        found = [f"unavailable: {named(away)}"] if away else []
        return [*found, "unavailable: main store"] if self.home_is_away else found

    def shard(self, info_hash: InfoHash) -> Shard:
        """The shard of a torrent."""
        return self.shards.of(info_hash)

    def _max_changes(self) -> int:
        """About how many changes the feed of a shard keeps."""
        return self._shard_rules.current.max_changes

    def _hit_and_run_rules(self) -> HitAndRunRules:
        rules = self._shard_rules.current
        return HitAndRunRules(rules.packed_hit_and_run, rules.grace, rules.max_changes)

    async def check_shards(self) -> None:
        """Raises StartupError if the store was made with another number of shards, else StoreUnavailable and
        RedisError."""
        await check_number(self.connection, self._prefix, len(self.shards))

    async def load_secret(self) -> bytes:
        """Reads the shared secret, or creates it. Raises StoreUnavailable and RedisError."""
        self.use_secret(await shared_secret(self.connection, self.keys))
        return self.secret

    async def copy_secret(self, shard: Shard) -> None:
        """Copies the secret into a shard, whose announces need it. Raises StoreUnavailable and RedisError."""
        await shard.connection.command("SET", shard.keys.secret(), self.secret)

    def use_secret(self, secret: bytes) -> None:
        """Sets the secret that another process of this tracker has read."""
        self.secret = secret
        self.unique_users.use_secret(secret)


@dataclass(frozen=True, slots=True)
class _Home:
    """What shards are built with. Where there is only one shard, its prefix is that of home."""

    connection: Connection
    scripts: Scripts
    keys: Keys
    clock: Callable[[], float]
    timer: Callable[[], float]
    options: StoreOptions

    def shard(self, number: int, keys: Keys, rules: LiveRules) -> Shard:
        connection, clock, options = self.connection.of(keys.prefix), self.clock, self.options
        is_home = keys.prefix == self.keys.prefix
        scripts = self.scripts if is_home else Scripts(connection, keys.prefix, self.scripts)
        common = (connection, scripts, keys)
        counts = AnnounceCounts(connection, scripts)
        interval, history = options.scoring_interval_seconds, options.score_history
        return Shard(
            number,
            *common,
            announce_counts=counts,
            swarms=Swarms(*common, rules, counts, clock, options.max_waiting),
            reaping=Reaping(*common, rules, clock, self.timer),
            torrents=Torrents(*common, clock, self.keys.channel("torrents")),
            scores=Scores(*common, clock, interval_seconds=interval, history=history),
            dht_torrents=DhtTorrents(*common),
            changes=Changes(connection, keys),
        )


def _rules_of_shard(rules: LiveRules, shards: int) -> LiveRules:
    return rules if shards == 1 else LiveRules(rules.current.of_shard(shards))


def _work(
    home: tuple[Connection, Scripts, Keys], rules: LiveRules, clock: Callable[[], float], shards: Shards
) -> Work:
    if len(shards) == 1:
        facts, states, sizes = None, None, Sizes(*home, clock)
    else:
        facts, states = ShardedTorrentFacts(shards), ShardedTorrentStates(*home, shards)
        sizes = ShardedSizes(*home, clock, shards)
    projects = Projects(*home, clock)
    claims = Claims(*home, clock, facts)
    return Work(
        projects,
        Items(*home, projects),
        claims,
        Blocks(*home, clock),
        Log(*home, projects),
        Leaderboard(*home),
        Policy(*home, clock, states=states),
        Statistics(home[0], home[2]),
        sizes,
        Verification(*home, claims, rules, clock, facts),
    )

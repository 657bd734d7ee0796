"""The store: all parts that send Redis commands, built once per process over one connection."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tracker.store.access.allow_list import AllowList, AllowListCache
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
from tracker.store.schema.keys import Keys
from tracker.store.stats.client_software import ClientSoftware
from tracker.store.stats.counters import Counters, Tap
from tracker.store.stats.markers import Markers
from tracker.store.stats.outbox import Outbox
from tracker.store.stats.place_names import PlaceNameMigration
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
    exports: Callable[[str], bool] | None = None
    """Returns whether a counter also goes to the outbox."""


_DEFAULTS = StoreOptions()


class Store:
    """Everything under one key prefix on one server.

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
        self.keys = keys = Keys(prefix)
        self.scripts = scripts = Scripts(connection, prefix)
        self.rules = LiveRules(options.rules)
        self.secret = b""  # all trackers on this store share it; empty until load_secret or use_secret
        self.announce_counts = counts = AnnounceCounts(connection, scripts)
        self.swarms = Swarms(connection, scripts, keys, self.rules, counts, clock, options.max_waiting)
        self.reaping = Reaping(connection, scripts, keys, self.rules, clock, timer)
        self.torrents = Torrents(connection, scripts, keys, clock)
        self.scores = _scores(connection, scripts, keys, clock, options)
        self.users = Users(connection, scripts, keys, lambda: self.rules.current.max_changes)
        self.freeleech = Freeleech(connection, scripts, keys, clock)
        self.multipliers = Multipliers(connection, keys)
        self.user_import = UserImport(scripts)
        self.user_listing = UserListing(connection, scripts, keys, self.users)
        self.adoption = Adoption(scripts, keys)
        self.hit_and_runs = HitAndRuns(connection, scripts, keys, self._hit_and_run_rules, clock)
        self.changes = Changes(connection, keys)
        self.webhooks = Webhooks(connection, scripts, keys)
        self.allow_list = AllowList(connection, keys)
        self.allow_list_cache = AllowListCache(self.allow_list, timer)
        self.deny_list = DenyList(connection, keys)
        self.deny_list_cache = DenyListCache(self.deny_list)
        self.connect_checks = ConnectChecks(connection, scripts, keys, clock)
        self.tokens = Tokens(connection, scripts, keys, clock)
        self.rate_limits = RateLimitStore(connection, scripts, keys, clock)
        self.counters = counters = Counters(
            connection, scripts, keys, clock, exports=options.exports, max_outbox=options.max_outbox, tap=tap
        )
        self.outbox = Outbox(connection, scripts, keys)
        self.unique_users = UniqueUsers(connection, scripts, keys, options.unique_rules)
        self.markers = Markers(connection, scripts, keys, clock)
        self.place_name_migration = PlaceNameMigration(connection, scripts, keys)
        self.client_software = ClientSoftware(connection, scripts, keys)
        self.jobs = Jobs(connection, scripts, keys, clock, count=counters.count, observe=counters.observe)
        self.work = _work(connection, scripts, keys, self.rules, clock)
        self.dht_nodes = DhtNodes(connection, scripts, keys)
        self.dht_torrents = DhtTorrents(connection, scripts, keys)
        self.maintenance = Maintenance(
            connection,
            scripts,
            keys,
            clock,
            adoption=self.adoption,
            reindex_hit_and_runs=self.users.reindex_hit_and_runs,
            flush_unique_users=self.unique_users.flush,
        )

    def _hit_and_run_rules(self) -> HitAndRunRules:
        rules = self.rules.current
        return HitAndRunRules(rules.packed_hit_and_run, rules.grace, rules.max_changes)

    async def load_secret(self) -> bytes:
        """Reads the shared secret, or creates it. Raises StoreUnavailable and RedisError."""
        self.use_secret(await shared_secret(self.connection, self.keys))
        return self.secret

    def use_secret(self, secret: bytes) -> None:
        """Sets the secret that another process of this tracker has read."""
        self.secret = secret
        self.unique_users.use_secret(secret)


def _scores(
    connection: Connection,
    scripts: Scripts,
    keys: Keys,
    clock: Callable[[], float],
    options: StoreOptions,
) -> Scores:
    interval, history = options.scoring_interval_seconds, options.score_history
    return Scores(connection, scripts, keys, clock, interval_seconds=interval, history=history)


def _work(
    connection: Connection, scripts: Scripts, keys: Keys, rules: LiveRules, clock: Callable[[], float]
) -> Work:
    projects = Projects(connection, scripts, keys, clock)
    claims = Claims(connection, scripts, keys, clock)
    return Work(
        projects,
        Items(connection, scripts, keys, projects),
        claims,
        Blocks(connection, scripts, keys, clock),
        Log(connection, scripts, keys, projects),
        Leaderboard(connection, scripts, keys),
        Policy(connection, scripts, keys, clock),
        Statistics(connection, keys),
        Sizes(connection, scripts, keys, clock),
        Verification(connection, scripts, keys, claims, rules, clock),
    )

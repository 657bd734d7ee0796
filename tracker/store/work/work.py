"""Work distribution: projects hand out items to claimants under leases."""

from collections.abc import Callable

from tracker.store.sharding.shards import Shards
from tracker.store.swarms.rules import LiveRules
from tracker.store.work.blocks import Blocks
from tracker.store.work.claims import Claims
from tracker.store.work.items import Items
from tracker.store.work.log import Log
from tracker.store.work.policy import Policy
from tracker.store.work.projects import Projects
from tracker.store.work.sizes import Sizes
from tracker.store.work.statistics import Leaderboard, Statistics
from tracker.store.work.torrent_states import TorrentFacts, TorrentStates
from tracker.store.work.verification import Verification


class Work:
    def __init__(self, shards: Shards, rules: LiveRules, clock: Callable[[], float]) -> None:
        main, facts = shards.main, TorrentFacts(shards)
        self.projects = Projects(main, clock)
        self.items = Items(main, self.projects)
        self.claims = Claims(main, clock, facts)
        self.blocks = Blocks(main, clock)
        self.log = Log(main, self.projects)
        self.leaderboard = Leaderboard(main)
        self.policy = Policy(main, clock, TorrentStates(shards, self.projects, clock))
        self.statistics = Statistics(main)
        self.sizes = Sizes(shards, clock)
        self.verification = Verification(main, self.claims, rules, clock, facts)

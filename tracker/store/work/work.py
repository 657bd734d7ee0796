"""Work distribution: projects hand out items to claimants under leases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tracker.store.sharding.shards import Shards
from tracker.store.swarms.rules import LiveRules
from tracker.store.work.blocks import Blocks
from tracker.store.work.claims import Claims
from tracker.store.work.items import Items
from tracker.store.work.leaderboard import Leaderboard
from tracker.store.work.log import Log
from tracker.store.work.policy import Policy
from tracker.store.work.projects import Projects
from tracker.store.work.sizes import Sizes
from tracker.store.work.statistics import Statistics
from tracker.store.work.torrent_states import TorrentFacts, TorrentStates
from tracker.store.work.verification import Verification


@dataclass(frozen=True, slots=True)
class Work:
    """The parts of work distribution."""

    projects: Projects
    items: Items
    claims: Claims
    blocks: Blocks
    log: Log
    leaderboard: Leaderboard
    policy: Policy
    statistics: Statistics
    sizes: Sizes
    verification: Verification

    @classmethod
    def on(cls, shards: Shards, rules: LiveRules, clock: Callable[[], float]) -> Self:
        main, facts = shards.main, TorrentFacts(shards)
        projects, claims = Projects(main, clock), Claims(main, clock, facts)
        return cls(
            projects,
            Items(main, projects),
            claims,
            Blocks(main, clock),
            Log(main, projects),
            Leaderboard(main),
            Policy(main, clock, TorrentStates(shards)),
            Statistics(main),
            Sizes(shards, clock),
            Verification(main, claims, rules, clock, facts),
        )

"""Work distribution: projects hand out items to claimants under leases."""

from dataclasses import dataclass

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

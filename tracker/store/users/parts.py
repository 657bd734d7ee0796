"""The parts of a store that know users."""

from collections.abc import Callable, Mapping

from tracker.store.sharding.shards import Shard, Shards
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules
from tracker.store.users.copies import UserCopies
from tracker.store.users.freeleech import Freeleech
from tracker.store.users.history import UserHistory
from tracker.store.users.hit_and_runs import HitAndRuns
from tracker.store.users.importing import UserImport
from tracker.store.users.listing import UserListing
from tracker.store.users.peers import UserPeers
from tracker.store.users.rules import Groups, Multipliers
from tracker.store.users.sums import UserSums
from tracker.store.users.unregistered import Unregistered
from tracker.store.users.users import Users


class UserParts:
    """Built once with the store, which has them as attributes."""

    def __init__(
        self, shards: Shards, rules: LiveRules, reapings: Mapping[Shard, Reaping], clock: Callable[[], float]
    ) -> None:
        main = shards.main
        self.user_copies = copies = UserCopies(shards, reapings)
        self.user_sums = sums = UserSums(shards)
        self.users = Users(shards, rules, reapings, copies, sums, clock)
        self.freeleech = Freeleech(shards, copies, clock)
        self.hit_and_runs = HitAndRuns(shards, rules, clock)
        self.multipliers = Multipliers(shards)
        self.groups = Groups(shards)
        self.user_history = UserHistory(shards, copies, rules, clock)
        self.user_import = UserImport(main.scripts, copies, sums)
        self.user_listing = UserListing(main, self.users)
        self.user_peers = UserPeers(shards, self.users)
        self.unregistered = Unregistered(shards, clock)

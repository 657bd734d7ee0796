"""The external address of this node in one family, by what other nodes see (BEP 42).

One node may lie, and so may all of one network. An address counts when answers from five networks name it before any
other address has as many.
"""

from tracker.bittorrent import Address
from tracker.dht.node_id import network_of

VOTES = 5
MAX_CANDIDATES = 16
MIN_CHANGE_SECONDS = 3600


class ExternalAddress:
    def __init__(self, address: Address | None = None, *, fixed: bool = False) -> None:
        """``fixed``: the operator says so, and votes change nothing."""
        self.address = address
        self._fixed = fixed
        self._changed: float | None = None
        self._votes: dict[Address, set[bytes]] = {}

    def vote(self, seen: Address, voter: Address, now: float) -> bool:
        """``voter`` sees this node at ``seen``. Returns whether the external address has changed, which takes a new
        node id. It changes once an hour at most."""
        if self._fixed or len(seen) != len(voter):
            return False
        if seen not in self._votes and len(self._votes) >= MAX_CANDIDATES:
            del self._votes[min(self._votes, key=lambda each: len(self._votes[each]))]
        voters = self._votes.setdefault(seen, set())
        voters.add(network_of(voter, 16, 32))
        if len(voters) < VOTES:
            return False
        self._votes.clear()
        if seen == self.address or (self._changed is not None and now - self._changed < MIN_CHANGE_SECONDS):
            return False
        self.address, self._changed = seen, now
        return True

"""What the settings come to for the scripts that change swarms (rules.py makes it of them)."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """What the scripts need to know of the settings; seconds and bytes."""

    private: bool = False
    open: bool = True
    peer_memory: int = 0
    hnr_min_bytes: int = 0
    hnr_threshold: int = 0
    longest_gap: int = 7200
    shortest_timeout: float = inf
    """Of those that announces may have; no timeout is looked at later than this."""
    longest_timeout: float = inf
    """Of those too, of peers that keep to the rules."""
    max_credit: int = 134_217_728
    max_torrents: int = 1_000_000
    new_per_address_hour: int = 1000
    grace: int = 2700
    forget_after: int = 604_800
    early: float = 0
    """An announce of a peer that comes sooner than this after the one before is answered as ``early``."""

    @property
    def reaping(self) -> tuple[int, int, int]:
        """What every script is told that may remove a peer: how long one is remembered, and what a hit and run is."""
        return self.peer_memory if self.private else 0, self.hnr_min_bytes, self.hnr_threshold

"""The settings that the scripts of swarms need."""

from dataclasses import dataclass
from math import inf

from tracker.bittorrent import Accounts

TIMEOUT_INTERVALS = 1.5
"""A peer times out after so many of its intervals without an announce."""


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """What the scripts need to know of the settings; seconds and bytes."""

    accounts: Accounts = "off"
    open: bool = True
    peer_memory: int = 0
    hnr_min_bytes: int = 0
    hnr_threshold: int = 0
    max_gap: int = 7200
    min_timeout: float = inf
    """The shortest timeout that an announce may set; every timeout is checked within this time."""
    max_timeout: float = inf
    """The longest timeout that an announce may set."""
    max_credit: int = 134_217_728
    max_user_credit: int = 1_250_000_000
    credit_saved: float = 3600
    """How long unused credit of a user adds up."""
    max_torrents: int = 1_000_000
    new_per_address_hour: int = 10_000
    new_per_network_hour: int = 50_000
    grace: int = 2700
    forget_after: int = 604_800
    early: float = 0
    """An announce sooner than this after the peer's last one has the outcome ``early``."""
    max_per_network_in_swarm: float = inf
    """Endpoints of one IPv4 address or /64 in one swarm."""
    max_per_network: float = inf
    """The same in all swarms; ten times as many of one /24 or /48."""
    bound_local_networks: bool = False
    """Whether both hold for private and loopback addresses too."""
    max_changes: int = 0
    """Approximate number of changes that the change feed keeps; 0: none are recorded."""

    max_peers: int = 0
    """Peers of a user in a torrent; 0: any number."""
    max_downloads: int = 0
    """Torrents that a user downloads at once, unless the user has a limit of their own; 0: any number."""

    @property
    def reaping(self) -> tuple[int, int, int]:
        """(seconds that a user's peer is remembered, bytes and seconds that define a hit-and-run)"""
        return 0 if self.accounts == "off" else self.peer_memory, self.hnr_min_bytes, self.hnr_threshold


class LiveRules:
    """The rules of one process. A reload replaces ``current``, so read it for each call of the store."""

    __slots__ = ("current",)

    def __init__(self, rules: SwarmRules) -> None:
        self.current = rules

"""The settings that the scripts of swarms need."""

import struct
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Self

from tracker.bittorrent import Accounts

TIMEOUT_INTERVALS = 1.5
"""A peer times out after so many of its intervals without an announce."""
_LISTS_OF_A_SEEDER = 4
"""Seeders have a quarter of a user's budget of replies with peers: this much leaves them one reply."""

HIT_AND_RUN = ("hnr_min_bytes", "hnr_threshold", "hnr_by_seed_time", "hnr_min_share", "hnr_ratio", "hnr_grace")
"""When a download is a hit-and-run, in the order of hit_and_run_rules.lua."""


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """What the scripts need to know of the settings; seconds and bytes."""

    accounts: Accounts = "off"
    open: bool = True
    peer_memory: int = 0
    hnr_min_bytes: int = 0
    hnr_threshold: int = 0
    hnr_by_seed_time: bool = False
    """Whether only seed time counts towards the threshold."""
    hnr_grace: int = 0
    """Seconds after the user has left until the hit-and-run."""
    hnr_min_share: float = 0
    """A download of no more than this share of the torrent's size is no hit-and-run."""
    hnr_ratio: float = 0
    """A user who uploaded this many times the download on the torrent has no hit-and-run; 0: the ratio does not
    count."""
    max_gap: int = 7200
    min_timeout: float = inf
    """The shortest timeout that an announce may set; every timeout is checked within this time."""
    max_timeout: float = inf
    """The longest timeout that an announce may set."""
    max_credit: int = 1_250_000_000
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
    give_below: int = 0
    """Replies with fewer peers get peers that were found in the DHT; 0: none does."""
    give_all: bool = False
    """Whether torrents of unknown privacy take part in the DHT."""

    max_peers: int = 0
    """Peers of a user in a torrent; 0: any number."""
    max_downloads: int = 0
    """Torrents that a user downloads at once, unless the user has a limit of their own; 0: any number."""
    warn_beyond_downloads: bool = False
    """Whether a download beyond that is answered without peers; else it is refused."""
    own_peers: bool = False
    """Whether replies to a user may contain the user's own other peers."""
    min_credit_interval: int = 0
    """An announce of a user's peer sooner than this after its last one is not credited, and gets no peers."""
    lists_at_once: int = 0
    """Joins and early announces of a user that are answered with peers at once; 0: any number."""
    lists_per_minute: int = 0
    lists_per_day: int = 0
    list_wait: float = 290
    """An announce sooner than this after the peer's last one needs budget, as a join does."""
    keep_user_agents: bool = False
    """Whether a peer's user agent is kept with it."""
    note_updates: bool = False
    """Whether peers that announce are noted for ``updated`` in the change feed."""
    untold_ports: tuple[int, ...] = ()
    """Peers on these ports are not in replies."""

    @property
    def memory(self) -> int:
        """Seconds that a user's peer is remembered."""
        return 0 if self.accounts == "off" else self.peer_memory

    @property
    def packed_hit_and_run(self) -> bytes:
        return struct.pack("<6d", *attrgetter(*HIT_AND_RUN)(self))

    def of_shard(self, shards: int) -> Self:
        """The rules of one shard of so many. Limits over all torrents are divided by the number of shards, but are
        never below those of one swarm or one peer."""

        def share(limit: int, minimum: int = 1) -> int:
            return max(-(-limit // shards), min(limit, minimum))

        return replace(
            self,
            max_torrents=share(self.max_torrents),
            new_per_address_hour=share(self.new_per_address_hour),
            new_per_network_hour=share(self.new_per_network_hour),
            max_per_network=max(
                self.max_per_network / shards, min(self.max_per_network, self.max_per_network_in_swarm)
            ),
            max_user_credit=share(self.max_user_credit, self.max_credit),
            max_changes=share(self.max_changes),
            max_downloads=share(self.max_downloads),
            lists_at_once=share(self.lists_at_once, _LISTS_OF_A_SEEDER),
            lists_per_minute=share(self.lists_per_minute),
            lists_per_day=share(self.lists_per_day, _LISTS_OF_A_SEEDER),
        )


class LiveRules:
    """The rules of each shard, in one process. A reload replaces ``current``, so read it for each call of the store."""

    __slots__ = ("current",)

    def __init__(self, rules: SwarmRules) -> None:
        self.current = rules

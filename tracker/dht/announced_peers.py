"""The peers that nodes announce to us, in one address family, and the tokens of announces.

Peers live in memory only, and are bounded.

Strangers write here, so only hashes and counts go to the store, for two minutes. Of too many hashes those nearest to
our id are kept, because others look for them there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2s
from hmac import compare_digest
from typing import NamedTuple

from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.buckets import Buckets
from tracker.dht.node_id import to_number
from tracker.wire.krpc import NodeId

SLOT_SECONDS = 300
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class AnnounceRules:
    bucket_hashes: int = 80
    max_hashes: int = 2000
    max_peers_of_hash: int = 500
    max_peers: int = 100_000
    """Maximum of all hashes together."""
    lifetime_seconds: int = 2700
    """Clients announce again within half an hour."""


class SwarmSummary(NamedTuple):
    """What is known of one hash."""

    info_hash: InfoHash
    seeders: int
    peers: int
    """With seeders."""
    announced_at: float


class AnnouncedPeer(NamedTuple):
    endpoint: Endpoint
    seed: bool
    announced_at: float


@dataclass(slots=True)
class _Swarm:
    info_hash: InfoHash
    peers: dict[bytes, AnnouncedPeer]
    """By address, the latest announce last."""


class AnnouncedPeers:
    """``added`` - ``dropped`` is the number of hashes, after any sequence of calls."""

    def __init__(self, own: NodeId, rules: AnnounceRules) -> None:
        self.rules = rules
        self._swarms: Buckets[_Swarm] = Buckets(to_number(own), rules.bucket_hashes, max_entries=rules.max_hashes)
        self._peer_count = 0

    def __len__(self) -> int:
        """The number of hashes."""
        return len(self._swarms)

    def __contains__(self, info_hash: InfoHash) -> bool:
        return to_number(info_hash) in self._swarms

    @property
    def added(self) -> int:
        return self._swarms.added

    @property
    def dropped(self) -> int:
        return self._swarms.dropped

    @property
    def peer_count(self) -> int:
        return self._peer_count

    def has_room(self, info_hash: InfoHash, address: bytes, now: float) -> bool:
        """Whether an announce is stored. One that renews an entry always is."""
        swarm = self._fresh(info_hash, now)
        if swarm is not None and address in swarm.peers:
            return True
        if self._peer_count >= self.rules.max_peers:
            return False
        if swarm is None:
            return self._swarms.has_room(to_number(info_hash))
        return len(swarm.peers) < self.rules.max_peers_of_hash

    def announce(self, info_hash: InfoHash, endpoint: Endpoint, now: float, *, seed: bool) -> bool:
        """One entry per address and hash: the latest port and kind count. Returns False where there is no room."""
        address = endpoint[:-2]
        if not self.has_room(info_hash, address, now):
            return False
        number = to_number(info_hash)
        swarm = self._swarms.get(number)
        if swarm is None:
            victim = self._swarms.victim(number)
            if victim is not None:
                self._drop(victim)
            swarm = _Swarm(info_hash, {})
            self._swarms.put(number, swarm)
        if swarm.peers.pop(address, None) is None:
            self._peer_count += 1
        swarm.peers[address] = AnnouncedPeer(endpoint, seed, now)
        return True

    def peers(self, info_hash: InfoHash, now: float) -> list[AnnouncedPeer]:
        swarm = self._fresh(info_hash, now)
        return [] if swarm is None else list(swarm.peers.values())

    def hashes(self) -> Iterator[InfoHash]:
        for swarm in self._swarms:
            yield swarm.info_hash

    def summaries(self) -> Iterator[SwarmSummary]:
        for swarm in self._swarms:
            peers = swarm.peers.values()
            seeders = sum(peer.seed for peer in peers)
            yield SwarmSummary(swarm.info_hash, seeders, len(peers), next(reversed(peers)).announced_at)

    def expire(self, now: float) -> None:
        """Removes all that is too old. For every minute."""
        for info_hash in list(self.hashes()):
            self._fresh(info_hash, now)

    def forget(self, info_hash: InfoHash) -> None:
        """Forgets a torrent that no longer takes part."""
        self._drop(to_number(info_hash))

    def change_id(self, own: NodeId) -> None:
        """Our id changed: the hashes are filed again."""
        self._swarms.rebase(to_number(own))
        self._peer_count = sum(len(swarm.peers) for swarm in self._swarms)

    def _fresh(self, info_hash: InfoHash, now: float) -> _Swarm | None:
        """The swarm without peers that are too old; ``None`` where nothing is left."""
        swarm = self._swarms.get(to_number(info_hash))
        if swarm is None:
            return None
        oldest = now - self.rules.lifetime_seconds
        expired = []
        for address, peer in swarm.peers.items():
            if peer.announced_at > oldest:
                break
            expired.append(address)
        for address in expired:
            del swarm.peers[address]
        self._peer_count -= len(expired)
        if swarm.peers:
            return swarm
        self._drop(to_number(info_hash))
        return None

    def _drop(self, number: int) -> None:
        swarm = self._swarms.drop(number)
        if swarm is not None:
            self._peer_count -= len(swarm.peers)


class AnnounceTokens:
    """Tokens of announces: proof that a node receives at the address from which it announces (BEP 5).

    Nothing is stored for them. A token holds for one address and one torrent, for 5 to 10 minutes. It does not hold the
    port, because address translation changes it.
    """

    def __init__(self, secret: bytes) -> None:
        """``secret``: 32 random bytes, new at each start."""
        self._secret = secret

    def issue(self, address: Address, info_hash: InfoHash, now: float) -> bytes:
        return self._token(address, info_hash, int(now // SLOT_SECONDS))

    def accepts(self, token: bytes, address: Address, info_hash: InfoHash, now: float) -> bool:
        slot = int(now // SLOT_SECONDS)
        return any(compare_digest(token, self._token(address, info_hash, each)) for each in (slot, slot - 1))

    def _token(self, address: Address, info_hash: InfoHash, slot: int) -> bytes:
        message = slot.to_bytes(8, "big", signed=True) + address + info_hash
        return blake2s(message, key=self._secret, digest_size=_LENGTH, person=b"dhttoken").digest()

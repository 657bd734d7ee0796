"""T19: invariants of the store while no announce is being processed.

All keys of a kind are read with one pipeline: tests check after each of their steps, and most of what that took was
waiting for single replies.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracker.bittorrent import InfoHash, PeerId, unmap
from tracker.store.schema.keys import Keys
from tracker.wire.endpoint import SOCKET_LENGTH, endpoints_of, pack_endpoint

ARRAYS = ("s4", "l4", "s6", "l6", "sw", "lw")
SIZES = {"4": 6, "6": 18, "w": 25}
NO_PORT = b"\0\0"
LOCAL = (b"\x7f", b"\xac\x11")
"""Prefixes of local networks used in tests; they never count as crowded."""


@dataclass
class Torrent:
    """What the store has of a torrent."""

    id: str
    row: dict[bytes, bytes]
    arrays: dict[str, tuple[bytes, bytes]]
    """By name, the endpoints and the peer ids."""
    addresses: dict[bytes, bytes]
    peers: dict[PeerId, dict[bytes, bytes]]
    """The members of the swarm."""

    @property
    def counts(self) -> dict[str, int]:
        counts = {name: int(self.row.get(name.encode(), 0)) for name in ("seeders", "leechers", "snatches", "paused")}
        return counts | read_arrays(self.row)


async def check_invariants(redis: Any, keys: Keys) -> int:
    """Asserts all invariants; returns the number of active peers."""
    rankings = {name: await _scores(redis, keys.index(name)) for name in ("seeders", "leechers", "snatches")}
    hashes = await _info_hashes(redis, keys, rankings["seeders"])
    torrents = await _torrents(redis, keys, hashes)
    networks: Counter[bytes] = Counter()
    active = 0
    for torrent in torrents:
        torrent_id, counts = torrent.id.encode(), torrent.counts
        assert all(value >= 0 for value in counts.values()), counts
        assert torrent.row.get(b"tid") == torrent_id
        assert {name: scores.get(torrent_id) for name, scores in rankings.items()} == {
            name: counts[name] for name in rankings
        }
        _check_swarm(torrent)
        networks += _check_addresses(torrent)
        active += len(torrent.peers)
    for kind in ("seeders", "leechers"):
        assert int(await redis.get(keys.stat(kind)) or 0) == sum(torrent.counts[kind] for torrent in torrents)
    await _check_lists(redis, keys, hashes)
    flags = await _fields(redis, f"{keys.prefix}p:*", "active")
    assert active == list(flags.values()).count(b"1")
    assert await _scores(redis, f"{keys.prefix}i:empty") == _empty(torrents)
    counted = await redis.hgetall(keys.addresses())
    assert {net: int(count) for net, count in counted.items()} == dict(networks)
    await _check_hit_and_runs(redis, keys)
    return active


def read_arrays(row: Mapping[Any, Any]) -> dict[str, int]:
    """The lengths of the arrays of a torrent, and its count of crowded networks, from its hash (bytes or text)."""
    numbers = [int(number) for number in row.get(b"arrays", row.get("arrays", b"0 0")).split()]
    assert len(numbers) == 2 or (len(numbers) == 7 and any(numbers[2:]))
    return dict(zip((*ARRAYS, "crowded"), numbers + [0] * 5, strict=False))


async def _scores(redis: Any, key: str) -> dict[bytes, float]:
    return dict(await redis.zrange(key, 0, -1, withscores=True))


async def _fields(redis: Any, pattern: str, field: str) -> dict[bytes, bytes | None]:
    """A field of all hashes whose keys match, by key."""
    found = {key async for key in redis.scan_iter(pattern, 1000, _type="hash")}
    pipeline = redis.pipeline(transaction=False)
    for key in found:
        pipeline.hget(key, field)
    return dict(zip(found, await pipeline.execute(), strict=True))


async def _info_hashes(redis: Any, keys: Keys, torrent_ids: Collection[bytes]) -> dict[bytes, InfoHash]:
    """By torrent id."""
    pipeline = redis.pipeline(transaction=False)
    for torrent_id in torrent_ids:
        pipeline.get(keys.torrent_id(torrent_id.decode()))
    found = dict(zip(torrent_ids, await pipeline.execute(), strict=True))
    assert all(found.values()), f"no info hash for a torrent id: {found}"
    return {torrent_id: InfoHash(bytes.fromhex(hexed.decode())) for torrent_id, hexed in found.items()}


async def _torrents(redis: Any, keys: Keys, hashes: Mapping[bytes, InfoHash]) -> list[Torrent]:
    pipeline = redis.pipeline(transaction=False)
    for info_hash in hashes.values():
        pipeline.hgetall(keys.torrent(info_hash))
        pipeline.hgetall(f"{keys.prefix}addresses:{info_hash.hex()}")
        pipeline.smembers(keys.swarm_peers(info_hash))
        for name in ARRAYS:
            pipeline.get(f"{keys.prefix}swarm:{info_hash.hex()}:{name}")
            pipeline.get(f"{keys.prefix}swarm:{info_hash.hex()}:{name}i")
    replies = iter(await pipeline.execute())
    torrents, members = [], []
    for torrent_id in hashes:
        row, addresses, peers = next(replies), next(replies), next(replies)
        arrays = {name: (next(replies) or b"", next(replies) or b"") for name in ARRAYS}
        torrents.append(Torrent(torrent_id.decode(), row, arrays, addresses, {}))
        members.append([PeerId(bytes.fromhex(peer.decode())) for peer in peers])
    pipeline = redis.pipeline(transaction=False)
    for torrent, peers in zip(torrents, members, strict=True):
        for peer_id in peers:
            pipeline.hgetall(keys.peer(torrent.id, peer_id))
            pipeline.sismember(f"{keys.prefix}p:{peer_id.hex()}:torrents", torrent.id)
    replies = iter(await pipeline.execute())
    for torrent, peers in zip(torrents, members, strict=True):
        for peer_id in peers:
            torrent.peers[peer_id] = next(replies)
            assert next(replies), "a peer does not list a torrent that lists it"
    return torrents


async def _check_hit_and_runs(redis: Any, keys: Keys) -> None:
    """The index of hit-and-runs equals the users' sets."""
    head, tail = (part.encode() for part in keys.user_set("*", "hnr").split("*"))
    expected = {
        key[len(head) : -len(tail)]: await redis.scard(key)
        async for key in redis.scan_iter(head + b"*" + tail, 1000, _type="set")
    }
    assert await _scores(redis, keys.hit_and_runs()) == expected


def _empty(torrents: Iterable[Torrent]) -> dict[bytes, float]:
    """The index of empty torrents: self-registered, without peers, not disabled; by when they became empty."""
    return {
        torrent.id.encode(): float(torrent.row[b"empty_since"])
        for torrent in torrents
        if torrent.row.get(b"auto") == b"1"
        and torrent.row.get(b"enabled") not in (b"0", b"pending")
        and not torrent.counts["seeders"] + torrent.counts["leechers"]
    }


async def _check_lists(redis: Any, keys: Keys, hashes: Mapping[bytes, InfoHash]) -> None:
    """The index by info hash lists all ranked torrents; the index by name all torrents with a folded name."""
    assert await _scores(redis, keys.info_hashes()) == {
        torrent_id: float(int(info_hash.hex()[:13], 16)) for torrent_id, info_hash in hashes.items()
    }
    listed = await _fields(redis, f"{keys.prefix}t:*", "listed")
    names = {name + b"\t" + key[-40:] for key, name in listed.items() if name is not None}
    assert set(await redis.zrange(f"{keys.prefix}i:name", 0, -1)) == names


def _check_swarm(torrent: Torrent) -> None:
    slots: dict[tuple[PeerId, str], tuple[str, int, bytes]] = {}
    for name, (packed, ids) in torrent.arrays.items():
        n, size = torrent.counts[name], SIZES[name[1]]
        assert len(packed) >= n * size and len(ids) >= n * 20, f"array {name} is shorter than its count"
        assert len(packed) % size == 0 and len(ids) % 20 == 0
        if n == 0:
            assert not packed and not ids
        for slot in range(n):
            owner = PeerId(ids[slot * 20 : slot * 20 + 20])
            assert (owner, name[1]) not in slots, "a peer is listed twice in the arrays of one family"
            slots[owner, name[1]] = (name[0], slot, packed[slot * size : (slot + 1) * size])
    counted = {"s": 0, "l": 0, "paused": 0}
    marks: dict[bytes, list[bytes | None]] = {}
    for peer_id, row in torrent.peers.items():
        kind, paused = _check_peer(peer_id, row, slots)
        counted[kind] += 1
        counted["paused"] += paused
        marks.setdefault(row.get(b"user_id", b""), []).append(row.get(b"marks"))
    assert all(user_id == b"" or len(own) == 1 or set(own) == {b"x"} for user_id, own in marks.items()), marks
    assert {owner for owner, _ in slots} == set(torrent.peers)
    counts = torrent.counts
    assert counted == {"s": counts["seeders"], "l": counts["leechers"], "paused": counts["paused"]}


def _check_addresses(torrent: Torrent) -> Counter[bytes]:
    """Compares the hash of addresses with the peers; returns endpoints by network, /24 and /48. WebSockets have port 0
    there."""
    found, crowded = set(), 0
    for network, entries in torrent.addresses.items():
        size = 22 if len(network) == 4 else 30
        assert entries and len(entries) % size == 0
        rows = [entries[at : at + size] for at in range(0, len(entries), size)]
        ends = [(network + entry[:-20], PeerId(entry[-20:])) for entry in rows]
        assert len(set(ends)) == len(ends)
        found |= set(ends)
        of_others = [endpoint for endpoint, _ in ends if not endpoint.endswith(NO_PORT)]
        shared = len(set(of_others)) < len(of_others)
        crowded += shared or (len(ends) > 3 and not network.startswith(LOCAL))
    expected = set()
    for peer_id, peer in torrent.peers.items():
        packed = peer[b"endpoints"]
        expected |= {(endpoint, peer_id) for endpoint in endpoints_of(packed)}
        if len(packed) >= SOCKET_LENGTH:
            expected.add((pack_endpoint(unmap(packed[-SOCKET_LENGTH:][:16]), 0), peer_id))
    assert found == expected
    if expected:
        assert torrent.counts["crowded"] == crowded
    networks: Counter[bytes] = Counter()
    for endpoint, _ in expected:
        networks.update([endpoint[:4], endpoint[:3]] if len(endpoint) == 6 else [endpoint[:8], endpoint[:6]])
    return networks


def _check_peer(peer_id: PeerId, row: Mapping[bytes, bytes], slots: Mapping[Any, Any]) -> tuple[str, bool]:
    assert row.get(b"active") == b"1"
    paused = row.get(b"paused") == b"1"
    kind = "s" if row[b"left"] == b"0" and not paused else "l"
    packed = row[b"endpoints"]
    socket = packed[-SOCKET_LENGTH:] if len(packed) >= SOCKET_LENGTH else None
    expected: dict[str, bytes | None] = {"4": None, "6": None, "w": socket}
    expected |= {"4" if len(each) == 6 else "6": each for each in endpoints_of(packed)}
    assert sum(len(each or b"") for each in expected.values()) == len(packed) > 0
    for family, endpoint in expected.items():
        if endpoint is None:
            assert (peer_id, family) not in slots and f"n{family}".encode() not in row
        else:
            assert slots[peer_id, family] == (kind, int(row[f"n{family}".encode()]), endpoint)
    return kind, paused

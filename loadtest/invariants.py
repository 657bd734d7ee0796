"""T19: invariants of the store while no announce is being processed, read key by key."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tracker.bittorrent import InfoHash, PeerId, unmap
from tracker.store.schema.keys import Keys
from tracker.wire.endpoint import SOCKET_LENGTH, endpoints_of, pack_endpoint

ARRAYS = ("s4", "l4", "s6", "l6", "sw", "lw")
SIZES = {"4": 6, "6": 18, "w": 25}
NO_PORT = b"\0\0"
LOCAL = (b"\x7f", b"\xac\x11")
"""Prefixes of local networks used in tests; they never count as crowded."""


async def check_invariants(redis: Any, keys: Keys) -> int:
    """Asserts all invariants; returns the number of active peers."""
    sums = {"seeders": 0, "leechers": 0}
    active = 0
    networks: Counter[bytes] = Counter()
    await check_lists(redis, keys)
    rankings = {
        f: dict(await redis.zrange(keys.index(f), 0, -1, withscores=True)) for f in ("seeders", "leechers", "snatches")
    }
    for torrent_id, seeders in rankings["seeders"].items():
        hexed = await redis.get(keys.torrent_id(torrent_id.decode()))
        assert hexed, f"no info hash for torrent id {torrent_id!r}"
        info_hash = InfoHash(bytes.fromhex(hexed.decode()))
        row = await redis.hgetall(keys.torrent(info_hash))
        counts = {name: int(row.get(name.encode(), 0)) for name in ("seeders", "leechers", "snatches", "paused")}
        counts |= read_arrays(row)
        assert all(value >= 0 for value in counts.values()), counts
        assert row.get(b"tid") == torrent_id
        assert seeders == counts["seeders"]
        assert rankings["leechers"].get(torrent_id) == counts["leechers"]
        assert rankings["snatches"].get(torrent_id) == counts["snatches"]
        active += await _check_swarm(redis, keys, info_hash, torrent_id.decode(), counts)
        networks += await _check_addresses(redis, keys, info_hash, torrent_id.decode(), row)
        sums["seeders"] += counts["seeders"]
        sums["leechers"] += counts["leechers"]
    for kind, total in sums.items():
        assert int(await redis.get(keys.stat(kind)) or 0) == total
    assert active == await _count_active_hashes(redis, keys)
    await _check_empty(redis, keys, rankings["seeders"])
    counted = await redis.hgetall(keys.addresses())
    assert {net: int(count) for net, count in counted.items()} == dict(networks)
    await _check_hit_and_runs(redis, keys)
    return active


def read_arrays(row: Mapping[Any, Any]) -> dict[str, int]:
    """The lengths of the arrays of a torrent, and its count of crowded networks, from its hash (bytes or text)."""
    numbers = [int(number) for number in row.get(b"arrays", row.get("arrays", b"0 0")).split()]
    assert len(numbers) == 2 or (len(numbers) == 7 and any(numbers[2:]))
    return dict(zip((*ARRAYS, "crowded"), numbers + [0] * 5, strict=False))


async def _check_hit_and_runs(redis: Any, keys: Keys) -> None:
    """The index of hit-and-runs equals the users' sets."""
    head, tail = (part.encode() for part in keys.user_set("*", "hnr").split("*"))
    expected = {
        key[len(head) : -len(tail)]: await redis.scard(key)
        async for key in redis.scan_iter(head + b"*" + tail, 1000, _type="set")
    }
    assert dict(await redis.zrange(keys.hit_and_runs(), 0, -1, withscores=True)) == expected


async def _check_empty(redis: Any, keys: Keys, torrent_ids: Iterable[bytes]) -> None:
    """The index of empty torrents: self-registered, without peers, not disabled; by when they became empty."""
    empty = {}
    for torrent_id in torrent_ids:
        hexed = await redis.get(keys.torrent_id(torrent_id.decode()))
        row = await redis.hgetall(keys.torrent(InfoHash(bytes.fromhex(hexed.decode()))))
        peers = int(row.get(b"seeders", 0)) + int(row.get(b"leechers", 0))
        if row.get(b"auto") == b"1" and row.get(b"enabled") not in (b"0", b"pending") and not peers:
            empty[torrent_id] = float(row[b"empty_since"])
    assert dict(await redis.zrange(f"{keys.prefix}i:empty", 0, -1, withscores=True)) == empty


async def check_lists(redis: Any, keys: Keys) -> None:
    """The index by info hash lists all ranked torrents; the index by name all torrents with a folded name."""
    ranked = [tid for tid, _ in await redis.zrange(keys.index("seeders"), 0, -1, withscores=True)]
    hashes = {}
    for torrent_id in ranked:
        hexed = await redis.get(keys.torrent_id(torrent_id.decode()))
        hashes[torrent_id] = float(int(hexed[:13], 16))
    assert dict(await redis.zrange(keys.info_hashes(), 0, -1, withscores=True)) == hashes
    names = set()
    async for key in redis.scan_iter(f"{keys.prefix}t:*", 1000, _type="hash"):
        listed = await redis.hget(key, "listed")
        if listed is not None:
            names.add(listed + b"\t" + key[-40:])
    assert set(await redis.zrange(f"{keys.prefix}i:name", 0, -1)) == names


async def _check_swarm(redis: Any, keys: Keys, info_hash: InfoHash, torrent_id: str, counts: dict[str, int]) -> int:
    members = {PeerId(bytes.fromhex(m.decode())) for m in await redis.smembers(keys.swarm_peers(info_hash))}
    slots: dict[tuple[PeerId, str], tuple[str, int, bytes]] = {}
    for name in ARRAYS:
        n, size = counts[name], SIZES[name[1]]
        packed = await redis.get(f"{keys.prefix}swarm:{info_hash.hex()}:{name}") or b""
        ids = await redis.get(f"{keys.prefix}swarm:{info_hash.hex()}:{name}i") or b""
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
    for member in members:
        kind, paused = await _check_peer(redis, keys, torrent_id, member, slots)
        counted[kind] += 1
        counted["paused"] += paused
        assert await redis.sismember(f"{keys.prefix}p:{member.hex()}:torrents", torrent_id)
        user_id, mark = await redis.hmget(keys.peer(torrent_id, member), "user_id", "marks")
        marks.setdefault(user_id or b"", []).append(mark)
    assert all(user_id == b"" or len(own) == 1 or set(own) == {b"x"} for user_id, own in marks.items()), marks
    assert {owner for owner, _ in slots} == members
    assert counted == {"s": counts["seeders"], "l": counts["leechers"], "paused": counts["paused"]}
    return len(members)


async def _check_addresses(
    redis: Any, keys: Keys, info_hash: InfoHash, torrent_id: str, row: dict[bytes, bytes]
) -> Counter[bytes]:
    """Compares the hash of addresses with the peers; returns endpoints by network, /24 and /48. WebSockets have port 0
    there."""
    held = await redis.hgetall(f"{keys.prefix}addresses:{info_hash.hex()}")
    found, crowded = set(), 0
    for network, entries in held.items():
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
    for member in await redis.smembers(keys.swarm_peers(info_hash)):
        peer_id = PeerId(bytes.fromhex(member.decode()))
        packed = await redis.hget(keys.peer(torrent_id, peer_id), "endpoints")
        expected |= {(endpoint, peer_id) for endpoint in endpoints_of(packed)}
        if len(packed) >= SOCKET_LENGTH:
            expected.add((pack_endpoint(unmap(packed[-SOCKET_LENGTH:][:16]), 0), peer_id))
    assert found == expected
    if expected:
        assert read_arrays(row)["crowded"] == crowded
    networks: Counter[bytes] = Counter()
    for endpoint, _ in expected:
        networks.update([endpoint[:4], endpoint[:3]] if len(endpoint) == 6 else [endpoint[:8], endpoint[:6]])
    return networks


async def _check_peer(
    redis: Any, keys: Keys, torrent_id: str, peer_id: PeerId, slots: dict[Any, Any]
) -> tuple[str, bool]:
    row = await redis.hgetall(keys.peer(torrent_id, peer_id))
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


async def _count_active_hashes(redis: Any, keys: Keys) -> int:
    count = 0
    async for key in redis.scan_iter(f"{keys.prefix}p:*", 1000, _type="hash"):
        count += await redis.hget(key, "active") == b"1"
    return count

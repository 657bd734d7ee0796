"""The active peers of a user, in all shards."""

from collections import defaultdict
from typing import NamedTuple

from tracker.bittorrent import PeerId
from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.torrents.records import Peer, hash_of, peer_of
from tracker.store.users.users import Users

MAX_TORRENTS, MAX_PEERS = 50, 100
MEMBERS_A_CALL = 1000
"""Members of swarms that one script call looks at. Takes the store about two milliseconds. Announces wait for that
call."""


class LivePeers(NamedTuple):
    """``peers``: with the ids of their torrents. ``complete``: whether these are all of the user's peers."""

    peers: list[tuple[str, Peer]]
    complete: bool


class UserPeers:
    def __init__(self, shards: Shards, users: Users) -> None:
        self._shards = shards
        self._users = users

    async def of(self, user_id: str) -> LivePeers:
        """The active peers of a user, at most MAX_PEERS in MAX_TORRENTS."""
        torrent_ids, complete = await self._users.first_torrents(user_id, "active", MAX_TORRENTS)
        parts = defaultdict[Shard, list[str]](list)
        for torrent_id, shard in zip(torrent_ids, await self._shards.of_torrents(torrent_ids), strict=True):
            if shard is not None:
                parts[shard].append(torrent_id)
        found: list[tuple[str, Peer]] = []
        for shard, some in parts.items():
            try:
                all_found, pairs = await shard.scripts.user_peers([user_id, MEMBERS_A_CALL, *some])
                found += await _read(shard, [each.decode() for each in pairs[: 2 * MAX_PEERS]])
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
                complete = False
            else:
                complete = complete and all_found == 1 and len(pairs) <= 2 * MAX_PEERS
        return LivePeers(found[:MAX_PEERS], complete and len(found) <= MAX_PEERS)


async def _read(shard: Shard, flat: list[str]) -> list[tuple[str, Peer]]:
    pairs = [
        (torrent_id, PeerId(bytes.fromhex(pid)))
        for torrent_id, pid in zip(flat[::2], flat[1::2], strict=True)
    ]
    rows = await shard.connection.pipeline(*(("HGETALL", shard.keys.peer(*pair)) for pair in pairs))
    return [
        (torrent_id, peer_of(peer_id, hash_of(row)))
        for (torrent_id, peer_id), row in zip(pairs, rows, strict=True)
        if row
    ]

"""The active peers of a user, in all shards, and how many lists of peers the user was told."""

from collections.abc import Sequence
from typing import NamedTuple

from tracker.bittorrent import PeerId
from tracker.store.schema.lenient_numbers import hash_of, whole
from tracker.store.sharding.shards import Shards
from tracker.store.torrents.records import Peer, peer_of
from tracker.store.users.users import Users

MAX_TORRENTS, MAX_PEERS = 50, 100
MEMBERS_A_CALL, CALLS_AT_ONCE = 1000, 4
"""Members of swarms that one script call looks at. Takes the store about two milliseconds. Announces wait for that
call. The calls of all shards together look at as many as so many calls."""


class LivePeers(NamedTuple):
    """``peers``: with the ids of their torrents. ``complete``: whether these are all of the user's peers."""

    peers: list[tuple[str, Peer]]
    complete: bool


SEEDER_SHARE = 4
"""A seeder is told this many times fewer lists, as in refuse.lua."""


class Lists(NamedTuple):
    """The budget for lists of peers, as refuse.lua writes it: used up to a time (epoch s); a day and its lists."""

    used_until: float = 0.0
    day: int = 0
    number: int = 0


class UserPeers:
    def __init__(self, shards: Shards, users: Users) -> None:
        self._shards = shards
        self._users = users

    async def of(self, user_id: str) -> LivePeers:
        """The active peers of a user, at most MAX_PEERS in MAX_TORRENTS."""
        torrent_ids, complete = await self._users.first_torrents(user_id, "active", MAX_TORRENTS)
        parts = await self._shards.parts_of_torrents(torrent_ids)
        members = MEMBERS_A_CALL * CALLS_AT_ONCE // max(CALLS_AT_ONCE, len(parts))
        found = await self._shards.run(
            lambda shard: shard.scripts.user_peers, {shard: [user_id, members, *some] for shard, some in parts.items()}
        )
        complete = complete and len(found) == len(parts) and all(all_found for all_found, _ in found.values())
        peers = [
            (shard, torrent_id.decode(), PeerId(bytes.fromhex(peer_id.decode())))
            for shard, (_, flat) in found.items()
            for torrent_id, peer_id in zip(flat[::2], flat[1::2], strict=True)
        ]
        rows = await self._shards.ask(
            [(shard, ("HGETALL", shard.keys.peer(torrent_id, id))) for shard, torrent_id, id in peers[:MAX_PEERS]],
            keep_errors=True,
        )
        pairs = zip(peers, rows, strict=False)
        live = [(torrent_id, peer_of(id, hash_of(row))) for (_, torrent_id, id), row in pairs if row]
        return LivePeers(live, complete and len(peers) <= MAX_PEERS)

    async def lists(self, user_id: str) -> tuple[Lists, Lists]:
        """(as a seeder, as a leecher), the sums over the shards of today."""
        rows = await self._shards.each(lambda shard: ("HMGET", shard.keys.user(user_id), "lists_s", "lists_l"))
        seeding, leeching = zip(*rows.values(), strict=True) if rows else ((), ())
        return _lists_of(seeding), _lists_of(leeching)


def _lists_of(texts: Sequence[bytes | None]) -> Lists:
    """Adds up what the shards have."""
    found = [tuple(map(whole, (text or b"").split())) for text in texts]
    parts = [part for part in found if len(part) == 3]
    day = max((day for _, day, _ in parts), default=0)
    used = max((used for used, _, _ in parts), default=0)
    return Lists(used / 1000, day, sum(number for _, of, number in parts if of == day))

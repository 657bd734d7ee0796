"""All active peers, read in parts. Each command is short, so announces do not wait for it."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tracker.bittorrent import Endpoint, InfoHash, PeerId
from tracker.errors import ClientError
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Shard, Shards, read_in_turns, scan_together
from tracker.store.swarms.connect_checks import ConnectCheck, ConnectChecks, any_connectable
from tracker.wire.endpoint import endpoints_of, format_endpoint
from tracker.wire.peer_id import client_name

TORRENTS_A_PAGE, PEERS_A_CALL = 50, 100
"""The event loop is held for a millisecond, the store for less."""
FIRST = "0-0"
_Member = tuple[str, InfoHash, PeerId]
"""Torrent id, info hash, and peer id of the swarm."""
SAMPLED_TORRENTS, SAMPLED_PEERS = 25, 200
_FIELDS = (
    *("user_id", "endpoints", "uploaded", "downloaded", "left", "active", "paused", "first_announce"),
    *("last_announce", "peer_id", "agent"),
)


@dataclass(frozen=True, slots=True)
class ActivePeer:
    """A peer in a swarm."""

    torrent_id: Annotated[str, Field()]
    info_hash: Annotated[str, Field()]
    user_id: Annotated[str | None, Field("null for an anonymous peer.")]
    peer_id: Annotated[str, Field("As the client announced it, 40 hexadecimal digits.")]
    client: Annotated[str, Field("The program that the peer ID names.")]
    user_agent: Annotated[str | None, Field("null unless TRACKER_HTTP__KEEP_USER_AGENTS is on.")]
    endpoints: Annotated[tuple[str, ...], Field("One or two; none for role `read`.")]
    uploaded: Annotated[int, Field("The client's own counter in bytes.")]
    downloaded: Annotated[int, Field("The same for bytes downloaded.")]
    left: Annotated[int | None, Field("Bytes that it still has to download; null if it did not say.")]
    seeding: Annotated[bool, Field()]
    connectable: Annotated[
        bool | None, Field("Whether it accepted a connection of the tracker in the last day; null: not checked.")
    ]
    first_announce: Annotated[int, Field(unit="epoch s")]
    last_announce: Annotated[int, Field(unit="epoch s")]


@dataclass(eq=False)
class AllPeers:
    """Every method raises StoreUnavailable and redis.exceptions.RedisError."""

    _shards: Shards
    _checks: ConnectChecks

    async def parts(self, cursor: str) -> AsyncIterator[tuple[str, list[ActivePeer]]]:
        """All peers from a cursor on, FIRST for all, in parts, each with the cursor that continues, empty at the end.
        Some peers come again then; a peer that is there all the time comes once or more. Raises ClientError for a
        malformed cursor."""
        place = re.fullmatch(r"([0-9]{1,3})-([0-9]{1,20})", cursor, re.ASCII)
        if place is None or int(place[1]) >= len(self._shards) or int(place[2]) >= 2**64:
            raise ClientError("a malformed cursor")
        number, scan = int(place[1]), int(place[2])
        while number < len(self._shards):
            shard = self._shards[number]
            after, flat = await shard.connection.command(
                "ZSCAN", shard.keys.info_hashes(), scan, "COUNT", TORRENTS_A_PAGE
            )
            async for members in self._members(shard, flat[::2]):
                yield f"{number}-{scan}", await self._peers(shard, members)
            number, scan = (number, int(after)) if after != b"0" else (number + 1, 0)
            yield f"{number}-{scan}" if number < len(self._shards) else "", []

    async def sample(self) -> list[Endpoint]:
        """Endpoints of random peers of random torrents in the first shard, of at most 5,000 peers."""
        shard = self._shards[0]
        ids = await shard.connection.command("ZRANDMEMBER", shard.keys.info_hashes(), SAMPLED_TORRENTS)
        swarms = await _torrents(shard, ids)
        members = await self._shards.send(
            [(shard, ("SRANDMEMBER", shard.keys.swarm_peers(info_hash), SAMPLED_PEERS)) for _, info_hash in swarms]
        )
        peers = [
            (torrent_id, PeerId(bytes.fromhex(peer_id.decode())))
            for (torrent_id, _), found in zip(swarms, members, strict=True)
            for peer_id in found
        ]
        rows = await self._shards.send(
            [(shard, ("HGET", shard.keys.peer(torrent_id, peer_id), "endpoints")) for torrent_id, peer_id in peers]
        )
        return [endpoint for row in rows for endpoint in endpoints_of(row or b"")]

    async def _peers(self, shard: Shard, members: Sequence[_Member]) -> list[ActivePeer]:
        rows = await self._shards.send(
            [(shard, ("HMGET", shard.keys.peer(each[0], each[2]), *_FIELDS)) for each in members], keep_errors=True
        )
        peers = [
            (member, dict(zip(_FIELDS, row, strict=True)))
            for member, row in zip(members, rows, strict=True)
            if isinstance(row, list) and row[5] == b"1"
        ]
        checks = await self._checks.of([each for _, row in peers for each in endpoints_of(row["endpoints"] or b"")])
        return await read_in_turns(peers, lambda peer: _peer(*peer, checks))

    async def _members(self, shard: Shard, ids: Sequence[bytes]) -> AsyncIterator[list[_Member]]:
        """The peers of these torrents, PEERS_A_CALL at a time."""
        torrents = await _torrents(shard, ids)
        heads = [(shard, ("SSCAN", shard.keys.swarm_peers(info_hash))) for _, info_hash in torrents]
        found: list[_Member] = []
        async for pages in scan_together(self._shards.send, heads, "COUNT", PEERS_A_CALL):
            for place, members in pages.items():
                found += ((*torrents[place], PeerId(bytes.fromhex(each.decode()))) for each in members)
                while len(found) >= PEERS_A_CALL:
                    yield found[:PEERS_A_CALL]
                    found = found[PEERS_A_CALL:]
        if found:
            yield found


async def _torrents(shard: Shard, ids: Sequence[bytes]) -> list[tuple[str, InfoHash]]:
    """(torrent id, info hash) of those that are registered."""
    texts = [each.decode() for each in ids]
    hashes = await shard.connection.command("MGET", *map(shard.keys.torrent_id, texts)) if texts else []
    return [
        (torrent_id, InfoHash(bytes.fromhex(info_hash.decode())))
        for torrent_id, info_hash in zip(texts, hashes, strict=True)
        if info_hash and len(info_hash) == 40
    ]


def _peer(member: _Member, row: Mapping[str, Any], checks: Mapping[Endpoint, ConnectCheck]) -> ActivePeer:
    torrent_id, info_hash, peer_id = member
    endpoints = endpoints_of(row["endpoints"] or b"")
    announced = row["peer_id"] or peer_id
    return ActivePeer(
        torrent_id=torrent_id,
        info_hash=info_hash.hex(),
        user_id=(row["user_id"] or b"").decode() or None,
        peer_id=announced.hex(),
        client=client_name(announced),
        user_agent=(row["agent"] or b"").decode("utf-8", "replace") or None,
        endpoints=tuple(map(format_endpoint, endpoints)),
        uploaded=whole(row["uploaded"]),
        downloaded=whole(row["downloaded"]),
        left=whole(row["left"]) if row["left"] else None,
        seeding=row["left"] == b"0" and row["paused"] != b"1",
        connectable=any_connectable(checks, endpoints),
        first_announce=whole(row["first_announce"]),
        last_announce=whole(row["last_announce"]),
    )

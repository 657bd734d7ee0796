"""What a site's tables hold of the store: rows of users, torrents, users on torrents, and peers, read in bulk."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

from tracker.bittorrent import Endpoint, PeerId, unmap
from tracker.store.client.pipe import Argument, flattened
from tracker.store.schema.lenient_numbers import ranked, signed, whole
from tracker.store.schema.record import Field, fields_of
from tracker.store.sharding.shards import Shard, Shards, in_parts, scan
from tracker.store.swarms.connect_checks import ConnectChecks, any_connectable
from tracker.store.users.rules import Groups
from tracker.store.users.sums import UserSums
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH, SOCKET_LENGTH, endpoints_of, pack_endpoint

SiteRow = dict[str, Any]
"""Values by name: numbers, flags, text, bytes; times in epoch s. None: there is no such value."""
ROWS_A_CALL = 500
"""Rows that are read in one round trip. Takes the store about a millisecond."""
USERS_A_CALL = 100
"""Users that one script call reads. Announces wait for that call."""
_PEER = (
    *("user_id", "endpoints", "uploaded", "downloaded", "left", "active", "paused", "first_announce"),
    *("last_announce", "speed_up", "speed_dn", "total_time", "agent"),
)
_ACCOUNT = ("uploaded", "downloaded", "total_time", "seed_time", "completed_at", "until", "peers", "left")
_EXTRA = ("extra_up", "extra_dn", "first_seen", "last_seen")
"""By how much the credit differs from what the user moved; the first announce, and the last one (epoch s)."""
_TORRENT = ("seeders", "leechers", "snatches")
_USER = ("uploaded", "downloaded", "snatches")
_Item = TypeVar("_Item")


class UserOnTorrent(NamedTuple):
    user_id: str
    torrent_id: str


class PeerOnTorrent(NamedTuple):
    torrent_id: str
    peer_id: str  # 40 hex digits


@dataclass(frozen=True, slots=True)
class SyncState:
    """How the sync of the site's tables goes, in the tracker that does it."""

    at: Annotated[int, Field("When this was saved.", unit="epoch s")] = 0
    until: Annotated[int, Field("Up to when the site has all changes.", unit="epoch s")] = 0
    rows: Annotated[int, Field("Rows written since the start of that process.")] = 0
    repaired: Annotated[int, Field("Rows that the last comparison of all repaired.")] = 0
    compared_at: Annotated[int, Field("When that ended.", unit="epoch s")] = 0
    error: Annotated[str, Field("Why the last round failed.")] = ""


@dataclass(eq=False)
class SiteRows:
    """What the store does not have is left out. Every method raises StoreUnavailable, and redis.exceptions.RedisError.
    ``clock`` returns epoch seconds."""

    _shards: Shards
    _sums: UserSums
    _groups: Groups
    _checks: ConnectChecks
    _clock: Callable[[], float]

    async def save_state(self, state: SyncState) -> None:
        main = self._shards.main
        await main.connection.command("HSET", main.keys.site(), *flattened(asdict(state)))

    async def state(self) -> SyncState | None:
        """None if no tracker has ever synced."""
        main = self._shards.main
        known = fields_of(SyncState)
        row = await main.connection.command("HMGET", main.keys.site(), *known)
        if row[0] is None:
            return None
        return SyncState(**{name: each.read(value) for (name, each), value in zip(known.items(), row, strict=True)})

    async def users(self, ids: Sequence[str]) -> list[SiteRow]:
        main, found = self._shards.main, list[SiteRow]()
        for some in in_parts(ids, ROWS_A_CALL):
            rows = await self._shards.send(
                [(main, ("HMGET", main.keys.user(each), *_USER, "passkey")) for each in some], keep_errors=True
            )
            known = {
                user_id: row
                for user_id, row in zip(some, rows, strict=True)
                if isinstance(row, list) and row[-1] is not None
            }
            for part in in_parts(list(known), USERS_A_CALL):
                for user_id, totals in zip(part, await self._sums.totals(part), strict=True):
                    found.append({"user_id": int(user_id), **_numbers(_USER, known[user_id]), **totals})
        return found

    async def torrents(self, ids: Sequence[str]) -> list[SiteRow]:
        now, found = int(self._clock()), list[SiteRow]()
        for some in in_parts(ids, ROWS_A_CALL):
            places = await self._shards.find_torrents(some)
            rows = await self._shards.send(
                [(shard, ("HMGET", shard.keys.torrent(info_hash), *_TORRENT)) for shard, info_hash in places.values()],
                keep_errors=True,
            )
            for (torrent_id, (_, info_hash)), row in zip(places.items(), rows, strict=True):
                if isinstance(row, list):
                    names = {"torrent_id": int(torrent_id), "info_hash": bytes(info_hash), "now": now}
                    counts = _numbers(_TORRENT, row)
                    found.append({**names, **counts, "last_seeded": now if counts["seeders"] else None})
        return found

    async def history(self, pairs: Sequence[UserOnTorrent]) -> list[SiteRow]:
        rows = await self._read(
            pairs, lambda shard, pair: ("HMGET", shard.keys.user_torrent(*pair), *_ACCOUNT, *_EXTRA)
        )
        now = int(self._clock())
        return [_history(pair, row, now) for pair, row in zip(pairs, rows, strict=True) if any(row)]

    async def peers(self, ids: Sequence[PeerOnTorrent]) -> list[SiteRow]:
        """Peers of users, active and remembered ones."""
        rows = await self._read(
            ids,
            lambda shard, peer: (
                "HMGET",
                shard.keys.peer(peer.torrent_id, PeerId(bytes.fromhex(peer.peer_id))),
                *_PEER,
            ),
        )
        return [_peer(peer, row) for peer, row in zip(ids, rows, strict=True) if row and row[0]]

    async def note_connectable(self, peers: Sequence[SiteRow]) -> None:
        """Adds to each peer whether one of its endpoints accepted a connection of the tracker in the last day."""
        for some in in_parts(peers, ROWS_A_CALL):
            found = await self._checks.of([endpoint for row in some for endpoint in row["endpoints"]])
            for row in some:
                row["connectable"] = bool(any_connectable(found, row["endpoints"]))

    async def note_immune(self, history: Sequence[SiteRow]) -> None:
        """Adds to each row whether its user gets no hit-and-runs, by a rule of the user or of the group."""
        ids, immune = list(dict.fromkeys(row["user_id"] for row in history)), set[int]()
        exempt = {each.group_id for each in await self._groups.all() if each.hnr_exempt} if ids else set()
        for some in in_parts(ids, USERS_A_CALL):
            found = await self._shards.main.scripts.read_users([1, "user_id group hnr_exempt", "passkey", *some])
            for _, user_id, group, hnr_exempt, _ in filter(None, found):
                if hnr_exempt == b"1" or whole(group) in exempt:
                    immune.add(whole(user_id))
        for row in history:
            row["immune"] = row["user_id"] in immune

    async def unregistered(self, since: Mapping[str, int]) -> list[SiteRow]:
        """Torrents that users announced and that are not registered, later than at a time (epoch s)."""
        found: list[SiteRow] = []
        for some in in_parts(list(since), ROWS_A_CALL):
            places = [(user_id, shard) for user_id in some for shard in self._shards]
            how = ("+inf", "BYSCORE", "WITHSCORES")
            replies = await self._shards.send(
                [(at, ("ZRANGE", at.keys.user_unregistered(each), f"({since[each]}", *how)) for each, at in places],
                keep_errors=True,
            )
            for (user_id, _), reply in zip(places, replies, strict=True):
                for info_hash, at in ranked(reply) if isinstance(reply, list) else ():
                    row = {"user_id": int(user_id), "info_hash": bytes.fromhex(info_hash), "first_announce": at}
                    found.append(row)
        return found

    async def _read(
        self, items: Sequence[_Item], command: Callable[[Shard, Any], tuple[Argument, ...]]
    ) -> list[list[bytes | None]]:
        """The reply to a command for each item, in the shard of its torrent. Empty: there is none."""
        found: list[list[bytes | None]] = []
        for some in in_parts(items, ROWS_A_CALL):
            ids = list(dict.fromkeys(each.torrent_id for each in some))  # type: ignore[attr-defined]
            shards = dict(zip(ids, await self._shards.of_torrents(ids), strict=True))
            places = [shards[each.torrent_id] or self._shards[0] for each in some]  # type: ignore[attr-defined]
            rows = await self._shards.send(
                [(place, command(place, each)) for place, each in zip(places, some, strict=True)], keep_errors=True
            )
            found += (row if isinstance(row, list) else [] for row in rows)
        return found

    async def all_torrents(self) -> AsyncIterator[tuple[list[str], list[PeerOnTorrent]]]:
        """The ids of all torrents, in parts, and their active peers."""
        for shard in self._shards:
            async for flat in scan(shard.connection, ("ZSCAN", shard.keys.info_hashes()), "COUNT", ROWS_A_CALL):
                ids = [each.decode() for each in flat[::2]]
                places = await self._shards.find_torrents(ids)
                members = await self._shards.send(
                    [(place, ("SMEMBERS", place.keys.swarm_peers(each))) for place, each in places.values()]
                )
                peers = [
                    PeerOnTorrent(torrent_id, peer_id.decode())
                    for torrent_id, peer_ids in zip(places, members, strict=True)
                    for peer_id in peer_ids
                ]
                yield ids, peers


def _numbers(names: Sequence[str], row: Sequence[bytes | None]) -> SiteRow:
    return dict(zip(names, map(whole, row), strict=False))


def _history(pair: UserOnTorrent, row: Sequence[bytes | None], now: int) -> SiteRow:
    found = _numbers(_ACCOUNT, row)
    completed = found["completed_at"] > 0
    left = (0 if completed else None) if row[7] is None else found["left"]
    extra_up, extra_down, first, last = row[8:]
    seen = max(found["until"], whole(last))
    return {
        **found,
        "credited_uploaded": found["uploaded"] + signed(extra_up),
        "credited_downloaded": found["downloaded"] + signed(extra_down),
        "first_announce": whole(first) or seen or now,
        "user_id": int(pair.user_id),
        "torrent_id": int(pair.torrent_id),
        "completed_at": found["completed_at"] or None,
        "last_announce": seen or now,
        "active": found["peers"] > 0,
        "seeding": found["peers"] > 0 and left == 0,
        "complete": completed or left == 0,
        "left": left,
        "leech_time": max(0, found["total_time"] - found["seed_time"]),
        "uncredited_downloaded": max(0, -signed(extra_down)),
    }


def _endpoints(packed: bytes) -> tuple[Endpoint, ...]:
    """Those of a peer. One that has only a WebSocket has its address, and port 0."""
    if len(packed) == SOCKET_LENGTH:
        return (pack_endpoint(unmap(packed[:16]), 0),)
    return endpoints_of(packed)


def _peer(peer: PeerOnTorrent, row: Sequence[bytes | None]) -> SiteRow:
    user_id, packed, uploaded, downloaded, left, active, paused, first, last, *others, agent = row
    endpoints = _endpoints(packed or b"")
    first_one = endpoints[0] if endpoints else b""
    return {
        "user_id": whole(user_id),
        "torrent_id": int(peer.torrent_id),
        "peer_id": bytes.fromhex(peer.peer_id),
        "endpoints": endpoints,
        "ip": first_one[:-2] or None,
        "ipv4": next((each[:-2] for each in endpoints if len(each) == ENDPOINT_LENGTH), None),
        "ipv6": next((each[:-2] for each in endpoints if len(each) == ENDPOINT6_LENGTH), None),
        "port": int.from_bytes(first_one[-2:], "big") if first_one else None,
        "uploaded": whole(uploaded),
        "downloaded": whole(downloaded),
        "left": whole(left),
        "active": active == b"1",
        "connectable": False,
        "seeding": left == b"0" and paused != b"1",
        "first_announce": whole(first) or None,
        "last_announce": whole(last) or None,
        "agent": (agent or b"").decode("utf-8", "replace"),
        **_numbers(("speed_up", "speed_dn", "total_time"), others),
    }

"""What users have on torrents: rows that a site brings along, with what its former tracker counted, and rows as they
are now."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, NamedTuple

import orjson

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import signed, whole
from tracker.store.schema.record import Field, settable
from tracker.store.sharding.shards import Shard, Shards, StorePart, in_parts, scan_together
from tracker.store.swarms.rules import LiveRules
from tracker.store.users.copies import UserCopies
from tracker.store.users.fields import is_user_id

ROWS_A_CALL = 50
"""Takes the store about a millisecond. Announces wait for that call."""
_ROWS_A_PART, _SETS_A_ROUND = 100, 200
"""Rows read, and sets of users looked into, in one round trip of short commands."""
_ACCOUNT = (
    *("uploaded", "downloaded", "extra_up", "extra_dn", "seed_time", "total_time", "completed_at"),
    *("first_seen", "last_seen", "until", "immune"),
)
_PEERS_A_CALL = 100
UNKNOWN_USER = "unknown user: add it first"
UNKNOWN_TORRENT = "unknown torrent: register it first, with this id"
_ERRORS = {
    b"user": UNKNOWN_USER,
    b"torrent": UNKNOWN_TORRENT,
    b"deleting": "this user is being deleted: try again in a few minutes",
    b"error": "a key of this user is of the wrong type",
}


@dataclass(frozen=True, slots=True)
class History:
    """A user on a torrent, over all of the user's clients."""

    uploaded: Annotated[int, Field("Bytes, without multipliers.", "history")] = 0
    downloaded: Annotated[int, Field("The same for bytes downloaded.", "history")] = 0
    credited_uploaded: Annotated[
        int, Field("`uploaded` as it was credited; without it, the same as `uploaded`.", "history")
    ] = 0
    credited_downloaded: Annotated[int, Field("The same for bytes downloaded.", "history")] = 0
    seed_seconds: Annotated[int, Field("Seconds as a seeder.", "history")] = 0
    total_seconds: Annotated[int, Field("Seconds on the torrent.", "history")] = 0
    completed_at: Annotated[int, Field("When the download ended (epoch s); 0: it did not.", "history")] = 0
    first_seen: Annotated[int, Field("The first announce (epoch s).", "history")] = 0
    last_seen: Annotated[int, Field("The last announce (epoch s).", "history")] = 0
    hit_and_run: Annotated[bool, Field("Whether it is a hit-and-run.", "history", off="none")] = False
    immune: Annotated[bool, Field("Whether it makes no hit-and-run, whatever happens.", "history", off="none")] = False


@dataclass(frozen=True, slots=True)
class UserTorrent(History):
    user_id: Annotated[str, Field()] = ""
    torrent_id: Annotated[str, Field()] = ""


class PeerThere(NamedTuple):
    """A peer of a user, as a site's former tracker knew it last."""

    user_id: str
    torrent_id: str
    peer_id: str  # 40 hex digits
    uploaded: int
    downloaded: int
    left: int
    last_announce: int
    active: int  # 1 or 0


class UserHistory(StorePart):
    """``clock`` returns epoch seconds. Raises StoreUnavailable and redis.exceptions.RedisError."""

    def __init__(self, shards: Shards, copies: UserCopies, rules: LiveRules, clock: Callable[[], float]) -> None:
        super().__init__(shards, clock)
        self._copies = copies
        self._rules = rules

    async def save(self, rows: Sequence[Mapping[str, Any]], *, add_to_totals: bool = False) -> list[bool | ClientError]:
        """Writes rows with user_id, torrent_id and fields of History, and returns of each whether it is new, or why it
        changed nothing. A field that is missing stays as it is. The totals of users and torrents stay as they are, or
        get what a row changes with ``add_to_totals``."""
        await self._copies.copy_to_all()
        found: list[bool | ClientError] = []
        for some in in_parts(rows, ROWS_A_CALL):
            found += await self._save(some, add_to_totals=add_to_totals)
        return found

    async def _save(self, rows: Sequence[Mapping[str, Any]], *, add_to_totals: bool) -> list[bool | ClientError]:
        found: dict[int, bool | ClientError] = {}
        checked: dict[int, dict[str, str]] = {}
        for place, row in enumerate(rows):
            try:
                checked[place] = checked_history(row)
            except ClientError as error:
                found[place] = error
        parts = await self._shards.parts_of_torrents(list(checked), lambda place: checked[place]["torrent_id"])
        for shard, places in parts.items():
            await self._copies.bring_users(shard, {checked[place]["user_id"] for place in places})
            packed: list[Argument] = [orjson.dumps(checked[place]) for place in places]
            answers = await shard.scripts.save_history([int(add_to_totals), int(self._clock()), *packed])
            for place, answer in zip(places, answers, strict=True):
                found[place] = ClientError(_ERRORS[answer]) if isinstance(answer, bytes) else answer == 1
        return [found.get(place, ClientError(UNKNOWN_TORRENT)) for place in range(len(rows))]

    async def remember_peers(self, rows: Sequence[PeerThere], *, again: bool) -> None:
        """From these counters the next announces of peers count. ``again``: also those of peers that are known here,
        none of which may announce meanwhile."""
        await self._copies.copy_to_all()
        memory = self._rules.current.memory
        for some in in_parts(rows, _PEERS_A_CALL):
            parts = await self._shards.parts_of_torrents(some, lambda row: row.torrent_id)
            for shard, peers in parts.items():
                await self._copies.bring_users(shard, {peer.user_id for peer in peers})
                await shard.scripts.remember_peers([memory, int(again), *(part for peer in peers for part in peer)])

    async def parts(self, after: str = "0") -> AsyncIterator[tuple[str, list[UserTorrent]]]:
        """All rows of users after the one with id ``after``, in parts, each with the id to continue after, empty at the
        end; rows of some users come again then. Torrents that are not known are left out."""
        async for ids in self.user_ids(max(1, _SETS_A_ROUND // len(self._shards)), after):
            for some in in_parts(await self.pairs(ids), _ROWS_A_PART):
                yield after, await self.rows(some)
            after = ids[-1]
            yield after, []
        yield "", []

    async def user_ids(self, count: int, after: str = "0") -> AsyncIterator[list[str]]:
        """The ids of all users after one, in their order, ``count`` at a time."""
        while True:
            how = (f"({after}", "+inf", "BYSCORE", "LIMIT", 0, count, "WITHSCORES")
            found = await self._connection.command("ZRANGE", self._keys.users(), *how)
            ids = [str(int(float(score))) for score in found[1::2]]
            if not ids:
                return
            yield ids
            after = ids[-1]

    async def pairs(self, user_ids: Sequence[str]) -> list[tuple[str, str]]:
        """(user id, torrent id) of what these users have, and had. A torrent that is completed meanwhile moves from
        the set that is read first to the other."""
        pairs: dict[tuple[str, str], None] = {}
        rounds = in_parts(user_ids, max(1, _SETS_A_ROUND // len(self._shards)))
        for some, name in product(rounds, ("incomplete", "complete")):
            of = [(user_id, shard) for user_id in some for shard in self._shards]
            heads = [(shard, ("SSCAN", shard.keys.user_set(user_id, name))) for user_id, shard in of]
            send = partial(self._shards.send, keep_errors=True)
            async for pages in scan_together(send, heads, "COUNT", _ROWS_A_PART):
                pairs |= {(of[place][0], each.decode()): None for place, page in pages.items() for each in page}
        return list(pairs)

    async def rows(self, pairs: Sequence[tuple[str, str]]) -> list[UserTorrent]:
        """Those of (user id, torrent id) that are there, on torrents that are known."""
        places = await self._shards.find_torrents(list(dict.fromkeys(torrent_id for _, torrent_id in pairs)))
        known = [(*pair, places[pair[1]][0]) for pair in pairs if pair[1] in places]
        commands: list[tuple[Shard, tuple[Argument, ...]]] = []
        for user_id, torrent_id, shard in known:
            keys = shard.keys
            commands.append((shard, ("HMGET", keys.user_torrent(user_id, torrent_id), *_ACCOUNT)))
            commands.append((shard, ("SISMEMBER", keys.user_set(user_id, "hnr"), torrent_id)))
        replies = await self._shards.send(commands, keep_errors=True)
        return [
            _row(user_id, torrent_id, account, owes == 1)
            for (user_id, torrent_id, _), account, owes in zip(known, replies[::2], replies[1::2], strict=True)
            if isinstance(account, list) and any(each is not None for each in account)
        ]


def _row(user_id: str, torrent_id: str, account: Sequence[bytes | None], owes: bool) -> UserTorrent:
    uploaded, downloaded, extra_up, extra_down, *others, last, until, immune = account
    seeded, total, completed, first = map(whole, others)
    return UserTorrent(
        user_id=user_id,
        torrent_id=torrent_id,
        uploaded=whole(uploaded),
        downloaded=whole(downloaded),
        credited_uploaded=max(0, whole(uploaded) + signed(extra_up)),
        credited_downloaded=max(0, whole(downloaded) + signed(extra_down)),
        seed_seconds=seeded,
        total_seconds=total,
        completed_at=completed,
        first_seen=first,
        last_seen=max(whole(last), whole(until)),
        hit_and_run=owes,
        immune=immune == b"1",
    )


def checked_history(fields: Mapping[str, Any]) -> dict[str, str]:
    """The row as the script reads it. Raises ClientError for an unknown field or an invalid value."""
    known, row = settable(History), {}
    for name, value in fields.items():
        if name in ("user_id", "torrent_id"):
            row[name] = str(value)
        elif name not in known:
            raise ClientError("a user on a torrent has no such field")
        else:
            row[name] = known[name].stored(value) or "0"
    for name in ("user_id", "torrent_id"):
        if not is_user_id(row.get(name, "")):
            raise ClientError(f"{name} must be a positive number")
    return row

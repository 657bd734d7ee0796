"""The change feed: streams to which the scripts of swarms write what they change, read as one. Further streams name the
users and torrents that programs edited.

Each shard has a stream, and each stream a place among all of them. The entry `<ms>-<n>` of the stream at place p of m
has the position `<ms>-<n * m + p>`. So positions are unique, and their order is the order of time. An entry is shown
when no other stream can still get an earlier one: when the clocks of their servers are past it. So the feed stands
still while a shard is unavailable: its last entries, which may be unread, are earlier than those of the others.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.schema.record import Field, fields_of
from tracker.store.sharding.shards import Shard, Shards, StorePart
from tracker.wire.endpoint import endpoints_of, format_endpoint
from tracker.wire.peer_id import client_name

FIRST = "0"
"""The position before all changes."""
_Name = TypeVar("_Name")
Position = tuple[int, int]
"""Milliseconds, and the number after them."""
Entry = tuple[Position, Any]
"""With its fields."""
_UPDATES_A_CALL = 100
"""Peers that one script call records. Takes the store about a millisecond."""
_SPARE = 8
"""Entries that a stream is asked for beyond twice its share."""
_LAST = 2**63 - 1
"""No stream has so many entries of one millisecond."""
_ID = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as `t:changes` in docs/keys.md describes it. None where the change has no such value."""

    id: Annotated[str, Field("IDs grow; the first part is the time in epoch milliseconds.")]
    at: Annotated[int, Field("By the store's clock.", unit="epoch s")]
    change: Annotated[
        str,
        Field(
            "`joined`, `completed`, `stopped`, `reaped` (timed out), `removed` (its user, client or torrent was "
            "disabled, denied or deleted), `replaced` (another peer of the client or user took its place), `updated` "
            "(a peer announced, where TRACKER_CHANGES__UPDATES_SECONDS is set), `hit_and_run`, `hit_and_run_pending`, "
            "`hit_and_run_cleared`, `hit_and_run_forgiven` (by an operator), or `recounted` (the counts of the swarm "
            "were repaired). Ignore unknown ones: later versions may add some."
        ),
    ]
    info_hash: Annotated[str | None, Field()]
    torrent_id: Annotated[str | None, Field()]
    user_id: Annotated[str | None, Field("null for an anonymous peer.")]
    peer_id: Annotated[
        str | None,
        Field(
            "40 hexadecimal digits; null if no peer is involved. A peer whose announced ID belongs to another client "
            "has another one here."
        ),
    ]
    uploaded: Annotated[
        int | None,
        Field(
            "Bytes, without multipliers: what the user has uploaded on this torrent so far, from all clients; of an "
            "anonymous peer what its client reported."
        ),
    ]
    downloaded: Annotated[int | None, Field("The same for bytes downloaded.")]
    seed_time: Annotated[int | None, Field("The user's seconds as a seeder on this torrent so far.")]
    left: Annotated[int | None, Field("Bytes that the client still has to download; null if it did not say.")]
    seeders: Annotated[int | None, Field("Seeders of the torrent after this change.")]
    leechers: Annotated[int | None, Field("Leechers of the torrent after this change.")]
    credited_uploaded: Annotated[
        int | None,
        Field("`uploaded` with multipliers and limits: what the user got credited; null for an anonymous peer."),
    ]
    credited_downloaded: Annotated[int | None, Field("The same for bytes downloaded.")]
    endpoints: Annotated[tuple[str, ...], Field("Of the peer, such as `192.0.2.1:6881`; one or two.")]
    announced_id: Annotated[str | None, Field("The peer ID as the client announced it, 40 hexadecimal digits.")]
    client: Annotated[str | None, Field("The program that the peer ID names.")]
    user_agent: Annotated[
        str | None,
        Field("Of the client's request, up to 64 characters; null unless TRACKER_HTTP__KEEP_USER_AGENTS is on."),
    ]
    peer_uploaded: Annotated[int | None, Field("The client's own counter: bytes since it started.")]
    peer_downloaded: Annotated[int | None, Field("The same for bytes downloaded.")]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChangePage:
    changes: list[Change]
    next: str  # the position after these changes
    gap: bool  # whether changes between the position asked for and these ones may be missing


class Stream(NamedTuple):
    connection: Connection
    key: str


class Changes(StorePart):
    """``max_changes`` returns about how many changes a shard keeps. Every method raises StoreUnavailable when the store
    does not reply, else redis.exceptions.RedisError."""

    def __init__(self, shards: Shards, max_changes: Callable[[], int]) -> None:
        super().__init__(shards)
        self._max_changes = max_changes
        self.feed = [Stream(shard.connection, shard.keys.changes()) for shard in shards]
        edits = {each.keys.edits(): each.connection for each in (*shards, *shards.all)}
        self.edits = [Stream(connection, key) for key, connection in edits.items()]
        """Those of torrents, then that of users."""
        self._all = [*self.feed, *self.edits]

    async def after(self, position: str, limit: int) -> ChangePage:
        """The changes that follow ``position``, which is FIRST or the id of a change, oldest first. While a shard is
        unavailable, there are none.

        There is a gap if the feed no longer holds the change at ``position``: it was deleted with those that follow,
        or the store lost its latest changes; or if a shard has deleted changes, and keeps none as old as ``position``.
        Raises ClientError for a malformed position.
        """
        position = check_position(position)
        try:
            start = order_of(position)
            found = await self._read(self.feed, start, limit)
            trimmed = await self._is_trimmed_after(self.feed, start)
            newest = await self._newest_at(start)  # another one: the store has lost its latest changes
            return ChangePage(found, found[-1].id if found else newest, trimmed or newest != position)
        except StoreUnavailable as error:
            if not (unavailable := self._shards.unavailable):
                raise
            self._shards.leave_out(unavailable, error)
            return ChangePage([], position, False)

    async def newest(self, limit: int) -> list[Change]:
        """The newest changes, oldest first. Each shard is asked for some more than its share, and again if all of these
        belong to the newest."""
        some = min(limit, 2 * limit // len(self._shards) + _SPARE)
        parts = await self._newest(list(self._shards), some)
        first = [position for position, _ in self._in_order(parts)][-limit:][:1]
        full = [
            shard
            for shard, rows in parts.items()
            if len(rows) == some < limit and first <= [position_of(rows[-1], shard.number, len(self._shards))]
        ]
        parts |= await self._newest(full, limit)
        return _changes(self._in_order(parts)[-limit:])

    async def _newest(self, shards: Sequence[Shard], count: int) -> dict[Shard, Any]:
        return await self._shards.each(
            lambda shard: ("XREVRANGE", shard.keys.changes(), "+", "-", "COUNT", count), shards
        )

    def _in_order(self, parts: Mapping[Shard, Any]) -> list[Entry]:
        return _merged([parts.get(shard, []) for shard in self._shards])

    async def updated(
        self, named: Callable[[Change], _Name | None], since: str, cursor: str, limit: int
    ) -> tuple[list[_Name], str, str]:
        """What about ``limit`` changes and edits name, each once, from ``since`` on (epoch s, or after the change with
        that id); after the one at ``cursor``, if it is not empty. Also returns the next cursor, empty at the end, and
        the ``since`` of what comes later: each change is named then or was named before.

        Raises Conflict if the feed or the edits do not reach back so far, ClientError for a malformed position.
        """
        is_time = not cursor and "-" not in since
        start = check_position(f"{1000 * int(since)}" if is_time else cursor or since)
        # At a time, the change at the very start belongs to the list.
        first = (order_of(start)[0], -1) if is_time else order_of(start)
        found = await self._read(self._all, first, limit)
        # Read last, so that an entry deleted meanwhile shows. The feed was on since the oldest change of any shard.
        oldest = [first for _, first in await self._states(self.feed) if first]
        if not oldest or min(oldest) > order_of(start) or await self._is_trimmed_after(self._all, first):
            raise Conflict("the change feed does not reach back so far: read the whole list")
        names = list(dict.fromkeys(name for change in found if (name := named(change))))
        later = found[-1].id if found else cursor or since
        return names, later if len(found) == limit else "", later

    async def record_updates(self) -> int:
        """Records ``updated`` for the peers that announced since the last call, where announces note them. Returns how
        many there were. A shard that is unavailable keeps its own."""
        return sum((await self._shards.gather(self._record_updates_in)).values())

    async def _record_updates_in(self, shard: Shard) -> int:
        recorded = 0
        while True:
            some = int(await shard.scripts.record_updates([self._max_changes(), _UPDATES_A_CALL]))
            recorded += some
            if some < _UPDATES_A_CALL:
                return recorded

    async def size(self) -> int:
        return sum((await self._shards.each(lambda shard: ("XLEN", shard.keys.changes()))).values())

    async def delete(self) -> None:
        """Deletes the feed, as its next change would follow an unmarked gap; and the edits. Unavailable shards keep
        theirs."""
        await self._shards.each(
            lambda shard: ("UNLINK", shard.keys.changes(), shard.keys.edits(), shard.keys.updated())
        )
        await self._connection.command("UNLINK", self._keys.edits())

    async def _read(self, streams: Sequence[Stream], start: Position, limit: int) -> list[Change]:
        """At most ``limit`` entries after ``start`` that no earlier one can precede any longer. Each stream is asked as
        by ``newest``."""
        some = min(limit, 2 * limit // len(streams) + _SPARE)
        after = [f"({_own(start, place, len(streams))}" for place in range(len(streams))]
        commands: list[tuple[Stream, tuple[Any, ...]]] = []
        for stream, first in zip(streams, after, strict=True):
            # The clock is read first: what is written later is not earlier than it.
            commands.append((stream, ("TIME",)))
            commands.append((stream, ("XRANGE", stream.key, first, "+", "COUNT", some)))
        replies = await self._shards.send(commands)
        times = [1000 * int(seconds) + int(micros) // 1000 for seconds, micros in replies[::2]]
        parts = replies[1::2]
        merged = _merged(parts)
        last = merged[limit - 1][0] if len(merged) >= limit else None
        full = [
            place
            for place, rows in enumerate(parts)
            if len(rows) == some < limit and (last is None or position_of(rows[-1], place, len(parts)) < last)
        ]
        more = await self._shards.send(
            [(streams[place], ("XRANGE", streams[place].key, after[place], "+", "COUNT", limit)) for place in full]
        )
        for place, rows in zip(full, more, strict=True):
            parts[place] = rows
        return _changes(
            [
                entry
                for entry in _merged(parts)[:limit]
                # The clocks of all streams but its own are past it.
                if all(entry[0][0] < at for place, at in enumerate(times) if place != entry[0][1] % len(times))
            ]
        )

    async def _states(self, streams: Sequence[Stream]) -> list[tuple[bool, Position | None]]:
        """As ``state_of``, of each stream."""
        infos: list[tuple[Stream, tuple[str, ...]]] = [(stream, ("XINFO", "STREAM", stream.key)) for stream in streams]
        return [state_of(reply) for reply in await self._shards.send(infos, keep_errors=True)]

    async def _is_trimmed_after(self, streams: Sequence[Stream], start: Position) -> bool:
        """Whether a stream may have deleted entries after ``start``. Read after the entries, so that one that was
        deleted meanwhile shows."""
        states = await self._states(streams)
        own = (order_of(_own(start, place, len(streams))) for place in range(len(streams)))
        return any(
            trimmed and (oldest is None or oldest > _next(last))
            for (trimmed, oldest), last in zip(states, own, strict=True)
        )

    async def _newest_at(self, start: Position) -> str:
        """The id of the newest change up to a position."""
        own = [_own(start, place, len(self.feed)) for place in range(len(self.feed))]
        merged = _merged(
            await self._shards.send(
                [(each, ("XREVRANGE", each.key, id, "-", "COUNT", 1)) for each, id in zip(self.feed, own, strict=True)]
            )
        )
        return _changes(merged[-1:])[0].id if merged else FIRST


def state_of(reply: Any) -> tuple[bool, Position | None]:
    """Whether a stream has deleted entries, and the id of its oldest one, by the reply to XINFO STREAM. Raises another
    error than that there is no stream."""
    if isinstance(reply, Exception):
        if "no such key" in str(reply):
            return False, None
        raise reply
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    first = fields[b"first-entry"]
    trimmed = int(fields[b"entries-added"]) > int(fields[b"length"])
    return trimmed, order_of(first[0].decode()) if first else None


def check_position(text: str) -> str:
    """The position in its usual form. Raises ClientError."""
    found = _ID.fullmatch(text)
    if found is None:
        raise ClientError("not the id of a change")
    milliseconds, number = int(found[1]), int(found[2] or 0)
    return f"{milliseconds}-{number}" if milliseconds or number else FIRST


def order_of(position: str) -> Position:
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number or 0)


def _merged(parts: Sequence[Sequence[Any]]) -> list[Entry]:
    """The entries of all streams, in order."""
    return sorted(
        ((position_of(row, place, len(parts)), row[1]) for place, rows in enumerate(parts) for row in rows),
        key=lambda entry: entry[0],
    )


def position_of(row: Any, place: int, streams: int) -> Position:
    milliseconds, own = order_of(row[0].decode())
    return milliseconds, own * streams + place


def _changes(entries: Sequence[Entry]) -> list[Change]:
    """With positions as ids."""
    return [_change(f"{position[0]}-{position[1]}", flat) for position, flat in entries]


def _next(id: Position) -> Position:
    """The next possible id in a stream."""
    return (id[0], id[1] + 1) if id[1] < _LAST else (id[0] + 1, 0)


def _own(start: Position, place: int, streams: int) -> str:
    """The last possible id in the stream at ``place`` up to a position."""
    milliseconds, number = start
    own = (number - place) // streams
    if own >= 0:
        return f"{milliseconds}-{min(own, _LAST)}"
    return f"{milliseconds - 1}-{_LAST}" if milliseconds else FIRST


def _change(id: str, flat: Sequence[bytes]) -> Change:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    row: dict[str, Any] = {}
    for name, field in fields_of(Change).items():
        value = fields.get(name.encode(), b"")
        if field.kind == "limit":  # a number or nothing
            row[name] = int(value) if value.isascii() and value.isdigit() else None
        else:
            row[name] = value.decode("utf-8", "replace") or None
    announced = row["announced_id"] or row["peer_id"]
    row |= {
        "id": id,
        "at": int(id.partition("-")[0]) // 1000,
        "change": row["change"] or "",
        "endpoints": tuple(map(format_endpoint, endpoints_of(fields.get(b"endpoints", b"")))),
        "announced_id": announced,
        "client": client_name(bytes.fromhex(announced)) if announced else None,
    }
    return Change(**row)

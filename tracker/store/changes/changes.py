"""The change feed: a stream to which the scripts of swarms write what they change. A second stream names the users and
torrents that programs edited."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from redis.exceptions import ResponseError

from tracker.errors import ClientError, Conflict
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys

FIRST = "0"
"""The position before all changes."""
_ID = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as `t:changes` in docs/keys.md describes it. None where the change has no such value."""

    id: str
    at: int
    """Epoch seconds, by the store's clock."""
    change: str
    info_hash: str | None
    torrent_id: str | None
    user_id: str | None
    peer_id: str | None
    uploaded: int | None
    downloaded: int | None
    seed_time: int | None
    left: int | None
    seeders: int | None
    leechers: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChangePage:
    changes: list[Change]
    next: str
    """The position after these changes."""
    gap: bool
    """Whether changes between the position asked for and these ones may be missing."""


class Changes:
    """Every method raises StoreUnavailable when the store does not reply, else redis.exceptions.RedisError."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._key = keys.changes()
        self._edits = keys.edits()

    async def after(self, position: str, limit: int) -> ChangePage:
        """The changes that follow ``position``, which is FIRST or the id of a change, oldest first.

        There is a gap if the feed no longer holds the change at ``position``: it was deleted with those that follow,
        or the store lost its latest changes. Raises ClientError for a malformed position.
        """
        position = check_position(position)
        if position == FIRST:
            found = changes_of(await self._range("-", limit))
            return ChangePage(found, found[-1].id if found else FIRST, await self.was_trimmed(self._key))
        rows = await self._range(position, limit + 1)
        if rows and rows[0][0].decode() == position:
            found = changes_of(rows[1:])
            return ChangePage(found, found[-1].id if found else position, False)
        found = changes_of(rows[:limit])
        return ChangePage(found, found[-1].id if found else await self._newest_until(position), True)

    async def newest(self, limit: int) -> list[Change]:
        """The newest changes, oldest first."""
        rows = await self._connection.command("XREVRANGE", self._key, "+", "-", "COUNT", limit)
        return changes_of(rows)[::-1]

    async def updated(
        self, named: Literal["info_hash", "user_id"], since: int, cursor: str, limit: int
    ) -> tuple[list[str], str]:
        """The torrents or users that about ``limit`` changes and edits name, each once, from ``since`` on (epoch s);
        after the one at ``cursor``, if it is not empty. Also returns the next cursor, empty at the end.

        Raises Conflict if the feed or the edits do not reach back so far, ClientError for a malformed cursor.
        """
        start = check_position(cursor or str(1000 * since))
        after = f"({start}" if cursor else start
        rows = [*await self._range(after, limit), *await self._range(after, limit, self._edits)]
        if not await self._reaches_back(start):  # read last, so that a change deleted meanwhile shows
            raise Conflict("the change feed does not reach back so far: read the whole list")
        rows.sort(key=lambda row: order_of(row[0].decode()))
        end = limit
        if limit < len(rows) and rows[limit][0] == rows[limit - 1][0]:
            end += 1  # a change and an edit with the same id, which the cursor cannot tell apart
        found = (_fields(flat).get(named) for _, flat in rows[:end])
        names = list(dict.fromkeys(name for name in found if name))
        return names, rows[:end][-1][0].decode() if len(rows) >= limit else ""

    async def _reaches_back(self, start: str) -> bool:
        """Whether the feed and the edits still have all entries from ``start`` on. Edits are recorded while there is a
        feed, so the first one since then may be later."""
        oldest, oldest_edit = await self._range("-", 1), await self._range("-", 1, self._edits)
        if not oldest or order_of(oldest[0][0].decode()) > order_of(start):
            return False
        is_before = oldest_edit and order_of(oldest_edit[0][0].decode()) <= order_of(start)
        return bool(is_before) or not await self.was_trimmed(self._edits)

    async def size(self) -> int:
        return int(await self._connection.command("XLEN", self._key))

    async def delete(self) -> None:
        """Deletes the feed, as its next change would follow an unmarked gap; and the edits."""
        await self._connection.command("UNLINK", self._key, self._edits)

    async def _range(self, start: str, count: int, key: str = "") -> Any:
        return await self._connection.command("XRANGE", key or self._key, start, "+", "COUNT", count)

    async def was_trimmed(self, key: str) -> bool:
        """Read after the entries, so that one deleted meanwhile shows."""
        try:
            return was_trimmed(await self._connection.command("XINFO", "STREAM", key))
        except ResponseError as error:
            return was_trimmed(error)

    async def _newest_until(self, position: str) -> str:
        rows = await self._connection.command("XREVRANGE", self._key, position, "-", "COUNT", 1)
        return rows[0][0].decode() if rows else FIRST


def was_trimmed(reply: Any) -> bool:
    """Whether a stream has deleted entries, by the reply to XINFO STREAM. Raises another error than that there is no
    stream."""
    if isinstance(reply, Exception):
        if "no such key" in str(reply):
            return False
        raise reply
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    return int(fields[b"entries-added"]) > int(fields[b"length"])


def check_position(text: str) -> str:
    """The position in its usual form. Raises ClientError."""
    found = _ID.fullmatch(text)
    if found is None:
        raise ClientError("not the id of a change")
    milliseconds, number = int(found[1]), int(found[2] or 0)
    return f"{milliseconds}-{number}" if milliseconds or number else FIRST


def order_of(position: str) -> tuple[int, int]:
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number or 0)


def changes_of(rows: Sequence[Any]) -> list[Change]:
    return [_change(id.decode(), flat) for id, flat in rows]


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [value.decode("utf-8", "replace") for value in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _change(id: str, flat: Sequence[bytes]) -> Change:
    fields = _fields(flat)

    def text(name: str) -> str | None:
        return fields.get(name) or None

    def number(name: str) -> int | None:
        value = fields.get(name, "")
        return int(value) if value.isascii() and value.isdigit() else None

    return Change(
        id=id,
        at=int(id.partition("-")[0]) // 1000,
        change=fields.get("change", ""),
        info_hash=text("info_hash"),
        torrent_id=text("torrent_id"),
        user_id=text("user_id"),
        peer_id=text("peer_id"),
        uploaded=number("uploaded"),
        downloaded=number("downloaded"),
        seed_time=number("seed_time"),
        left=number("left"),
        seeders=number("seeders"),
        leechers=number("leechers"),
    )

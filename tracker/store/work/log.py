"""The log of finished items: pages for people, and a drain that loses no line.

The drain reads a batch, writes it to disk with fsync, and only then acknowledges it. A batch that was not
acknowledged is read again, so a line may come twice, under the same id, and is never lost.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Annotated, Any

from redis.exceptions import ResponseError

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.schema.lenient_numbers import hash_of, json_object, text_of, whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Part, Shard
from tracker.store.work.projects import Projects

GROUP = CONSUMER = "drain"
Entry = tuple[str, Mapping[str, str]]
"""Its id and its fields, as in `t:w:<p>:log` of docs/keys.md."""
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FinishedClaim:
    """A finished claim. Times are epoch seconds; 0 where unknown. An entry of the log that was deleted before it was
    drained has only an id."""

    id: str
    at: float
    item: str
    claimant: str
    address: str
    user_agent: str
    version: str
    bytes: Annotated[dict[str, int], Field("Bytes by domain, as reported.")] = field(default_factory=dict)
    total_bytes: int = 0
    seconds: Annotated[int, Field("Verified seed time.")] = 0
    claimed_at: float = 0.0
    late: Annotated[bool, Field("Verified after the claim had lapsed.")] = False
    note: Annotated[str, Field("What the claimant sent as `id`.")] = ""


def _finished_claim(id: str, row: Mapping[str, str]) -> FinishedClaim:
    def text(name: str) -> str:
        return row.get(name, "")

    def number(name: str) -> int:
        return whole(text(name).encode())

    reported = json_object(text("bytes")) or {}
    return FinishedClaim(
        id=id,
        at=number("at") / 1000,
        item=text("item"),
        claimant=text("by"),
        address=text("ip"),
        user_agent=text("ua"),
        version=text("version"),
        bytes={name: number for name, number in reported.items() if isinstance(number, int)},
        total_bytes=number("total"),
        seconds=number("seconds"),
        claimed_at=number("claimed") / 1000,
        late=text("late") == "1",
        note=text("id"),
    )


class Log(Part):
    def __init__(self, shard: Shard, projects: Projects) -> None:
        super().__init__(shard)
        self._projects = projects

    async def newest(self, project: str, count: int = 20, before: str = "") -> list[FinishedClaim]:
        """The newest entries first, older than the one with the id ``before``."""
        found = await newest_entries(self._connection, self._keys.work_log(project), count, before)
        return list(starmap(_finished_claim, found))

    async def after(self, project: str, id: str, count: int = 100) -> list[FinishedClaim]:
        """The entries that follow the one with this id, the oldest first."""
        key, start = self._keys.work_log(project), f"({check_id(id)}"
        rows = await self._connection.command("XRANGE", key, start, "+", "COUNT", count)
        return list(starmap(_finished_claim, _entries(rows)))

    async def open_drain(self, project: str) -> None:
        """Keeps the log from here on until it is drained. What is in the log already will be drained too. Raises
        UnknownProject."""
        await self._projects.get(project)
        try:
            await self._connection.command("XGROUP", "CREATE", self._keys.work_log(project), GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def undrained(self, projects: Sequence[str]) -> dict[str, int]:
        """How many entries are not drained, by project; only projects with an open drain."""
        keys = [self._keys.work_log(project) for project in projects]
        groups = await self._connection.pipeline(*(("XINFO", "GROUPS", key) for key in keys))
        lengths = await self._connection.pipeline(*(("XLEN", key) for key in keys))
        counts = zip(projects, map(_undrained, groups, lengths), strict=True)
        return {project: count for project, count in counts if count is not None}

    async def read_drain(self, project: str, count: int = 500) -> list[FinishedClaim]:
        """The next entries to drain: first those that were read before, and not acknowledged. Empty at the end. Raises
        redis.exceptions.ResponseError without ``open_drain``."""
        for start in ("0", ">"):
            answer = await self._connection.command(
                *("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", count),
                *("STREAMS", self._keys.work_log(project), start),
            )
            if entries := _entries(answer[0][1] if answer else []):
                return list(starmap(_finished_claim, entries))
        return []

    async def acknowledge(self, project: str, entries: Sequence[FinishedClaim]) -> None:
        """The entries are safe: they are not read again, and may be deleted."""
        if entries:
            key = self._keys.work_log(project)
            await self._connection.command("XACK", key, GROUP, *(entry.id for entry in entries))


async def newest_entries(connection: Connection, key: str, count: int, before: str = "") -> list[Entry]:
    """The newest entries of a log first, older than the one with the id ``before``. Raises ClientError."""
    end = f"({check_id(before)}" if before else "+"
    return _entries(await connection.command("XREVRANGE", key, end, "-", "COUNT", count))


def check_id(text: str) -> str:
    """Raises ClientError."""
    if not _ID.fullmatch(text):
        raise ClientError("not an id of a log entry")
    return text


def _undrained(groups: Any, length: Any) -> int | None:
    """Entries that were not acknowledged, from the reply of XINFO GROUPS; None without a drain. ``length`` is that of
    the log, which is returned if the server cannot tell: after entries were deleted."""
    for group in groups if isinstance(groups, list) else ():  # an error: there is no log yet
        fields = dict(zip(group[::2], group[1::2], strict=True))
        if fields.get(b"name") == GROUP.encode():
            lag = fields.get(b"lag")
            return int(length) if lag is None else int(fields[b"pending"]) + int(lag)
    return None


def _entries(rows: Any) -> list[Entry]:
    """A pending entry that was deleted has no fields: there is nothing to drain of it but its acknowledgement."""
    return [(id.decode(), text_of(hash_of(flat or ()))) for id, flat in rows]

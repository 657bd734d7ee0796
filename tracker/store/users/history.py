"""What users have on torrents: rows that a site brings along, with what its former tracker counted."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.schema.record import Field, settable
from tracker.store.sharding.shards import Shard, Shards, in_parts
from tracker.store.users.copies import UserCopies
from tracker.store.users.fields import is_user_id

ROWS_A_CALL = 50
"""Takes the store about a millisecond. Announces wait for that call."""
_ERRORS = {
    b"user": "unknown user",
    b"torrent": "unknown torrent",
    b"deleting": "this user is being deleted",
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
    completed_at: Annotated[int, Field("When the download ended (epoch s).", "history")] = 0
    first_seen: Annotated[int, Field("The first announce (epoch s).", "history")] = 0
    last_seen: Annotated[int, Field("The last announce (epoch s).", "history")] = 0
    hit_and_run: Annotated[bool, Field("Whether it is a hit-and-run.", "history", off="none")] = False
    immune: Annotated[
        bool, Field("Whether it makes no hit-and-run, whatever happens.", "history", off="none")
    ] = False


class UserHistory:
    """``clock`` returns epoch seconds. Raises StoreUnavailable and redis.exceptions.RedisError."""

    def __init__(self, shards: Shards, copies: UserCopies, clock: Callable[[], float]) -> None:
        self._shards = shards
        self._copies = copies
        self._clock = clock

    async def save(
        self, rows: Sequence[Mapping[str, Any]], *, add_to_totals: bool = False
    ) -> list[bool | ClientError]:
        """Writes rows with user_id, torrent_id and fields of History, and returns of each whether it is new, or why it
        changed nothing. A field that is missing stays as it is.

        The totals of users and torrents stay as they are, or get what a row changes with ``add_to_totals``.
        """
        await self._copies.copy_to_all()
        found: list[bool | ClientError] = []
        for some in in_parts(rows, ROWS_A_CALL):
            found += await self._save(some, add_to_totals=add_to_totals)
        return found

    async def _save(
        self, rows: Sequence[Mapping[str, Any]], *, add_to_totals: bool
    ) -> list[bool | ClientError]:
        found: dict[int, bool | ClientError] = {}
        checked: dict[int, dict[str, str]] = {}
        for place, row in enumerate(rows):
            try:
                checked[place] = checked_history(row)
            except ClientError as error:
                found[place] = error
        shards = await self._shards.of_torrents([row["torrent_id"] for row in checked.values()])
        parts = defaultdict[Shard, list[int]](list)
        for place, shard in zip(checked, shards, strict=True):
            if shard is None:
                found[place] = ClientError(_ERRORS[b"torrent"])
            else:
                parts[shard].append(place)
        for shard, places in parts.items():
            packed: list[Argument] = [orjson.dumps(checked[place]) for place in places]
            answers = await shard.scripts.save_history([int(add_to_totals), int(self._clock()), *packed])
            for place, answer in zip(places, answers, strict=True):
                found[place] = ClientError(_ERRORS[answer]) if isinstance(answer, bytes) else answer == 1
        return [found[place] for place in range(len(rows))]


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

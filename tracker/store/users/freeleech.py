"""Freeleech tokens: a user's download of one torrent does not count until the token ends."""

from collections.abc import Callable
from typing import NamedTuple

from tracker.errors import ClientError, NotFound
from tracker.store.schema.lenient_numbers import ranked
from tracker.store.schema.multipliers import MAX_END
from tracker.store.sharding.shards import Shards, StorePart
from tracker.store.users.copies import UserCopies

MAX_TOKENS = 10_000
"""Tokens of one user that have not ended."""
_NEVER = MAX_END
"""The stored end of a token without one."""


class Token(NamedTuple):
    """A torrent whose download is free until ``until`` (epoch s; None: without an end)."""

    torrent_id: str
    until: int | None


class Freeleech(StorePart):
    """The freeleech tokens of all users, each in the shard of its torrent. ``clock`` gives epoch seconds. A change
    applies from the next announce."""

    def __init__(self, shards: Shards, copies: UserCopies, clock: Callable[[], float]) -> None:
        super().__init__(shards, clock)
        self._copies = copies

    async def give(self, user_id: str, torrent_id: str, until: int | None = None) -> None:
        """Gives a token, which ends never or at ``until`` (epoch s), or changes the end of the one that the user has
        for the torrent. Raises ClientError for an end in the past, for an unknown user, and when the user has
        MAX_TOKENS."""
        end = _NEVER if until is None else until
        if not self._clock() < end <= _NEVER:
            raise ClientError("a freeleech token must end in the future")
        done = await self._change(user_id, torrent_id, end)
        if done == -1:
            raise ClientError(f"a user has at most {MAX_TOKENS} freeleech tokens")

    async def take_back(self, user_id: str, torrent_id: str) -> bool:
        """False if there was none. Raises ClientError for an unknown user."""
        return await self._change(user_id, torrent_id, "") == 1

    async def _change(self, user_id: str, torrent_id: str, until: int | str) -> int:
        shard = await self._shards.of_torrent(torrent_id)
        if shard is None:
            raise ClientError("unknown torrent")
        await self._copies.bring_users(shard, [user_id])
        now = int(self._clock())
        done = int(await shard.scripts.freeleech([user_id, torrent_id, until, now, MAX_TOKENS]))
        if done == -2:
            raise NotFound("there is no such user")
        await shard.connection.command("PUBLISH", shard.keys.channel("users"), user_id)
        return done

    async def page(self, user_id: str, offset: int = 0, count: int = 100) -> list[Token]:
        """Returns ``count`` tokens that have not ended, from ``offset`` on; the next to end first."""
        how = (f"({int(self._clock())}", "+inf", "BYSCORE", "LIMIT", 0, offset + count, "WITHSCORES")
        parts = await self._shards.each(lambda shard: ("ZRANGE", shard.keys.user_freeleech(user_id), *how))
        pairs = sorted((end, torrent_id) for found in parts.values() for torrent_id, end in ranked(found))
        chosen = pairs[offset : offset + count]
        return [Token(torrent_id, None if end == _NEVER else end) for end, torrent_id in chosen]

    async def count(self, user_id: str) -> int:
        """Returns the number of tokens that have not ended."""
        since = f"({int(self._clock())}"
        found = await self._shards.each(lambda shard: ("ZCOUNT", shard.keys.user_freeleech(user_id), since, "+inf"))
        return sum(found.values())

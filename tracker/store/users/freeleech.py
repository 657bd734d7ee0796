"""Freeleech tokens: a user's download of one torrent does not count until the token ends."""

from collections.abc import Callable
from typing import NamedTuple

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked
from tracker.store.schema.multipliers import MAX_END

MAX_TOKENS = 1000
"""Tokens of one user that have not ended."""


class Token(NamedTuple):
    """A torrent whose download is free until ``until`` (epoch s)."""

    torrent_id: str
    until: int


class Freeleech:
    """The freeleech tokens of all users. ``clock`` gives epoch seconds. A change applies from the next announce."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, clock: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock

    async def give(self, user_id: str, torrent_id: str, until: int) -> None:
        """Gives a token, or changes the end of the one that the user has for the torrent.

        Raises ClientError for an end in the past, for an unknown user, and when the user has MAX_TOKENS.
        """
        if not self._clock() < until <= MAX_END:
            raise ClientError("a freeleech token must end in the future")
        done = await self._change(user_id, torrent_id, until)
        if done == -1:
            raise ClientError(f"a user has at most {MAX_TOKENS} freeleech tokens")

    async def take_back(self, user_id: str, torrent_id: str) -> bool:
        """False if there was none. Raises ClientError for an unknown user."""
        return await self._change(user_id, torrent_id, "") == 1

    async def _change(self, user_id: str, torrent_id: str, until: int | str) -> int:
        now = int(self._clock())
        done = int(await self._scripts.freeleech([user_id, torrent_id, until, now, MAX_TOKENS]))
        if done == -2:
            raise ClientError("there is no such user")
        await self._connection.command("PUBLISH", self._keys.channel("users"), user_id)
        return done

    async def page(self, user_id: str, offset: int = 0, count: int = 100) -> list[Token]:
        """Returns ``count`` tokens that have not ended, from ``offset`` on; the next to end first."""
        return tokens_of(await self._connection.command(*self._page_command(user_id, offset, count)))

    def _page_command(self, user_id: str, offset: int, count: int) -> tuple[Argument, ...]:
        """What ``page`` sends."""
        key, now = self._keys.user_freeleech(user_id), int(self._clock())
        return ("ZRANGE", key, f"({now}", "+inf", "BYSCORE", "LIMIT", offset, count, "WITHSCORES")

    async def count(self, user_id: str) -> int:
        """Returns the number of tokens that have not ended."""
        return int(await self._connection.command(*self._count_command(user_id)))

    def _count_command(self, user_id: str) -> tuple[Argument, ...]:
        """What ``count`` sends."""
        return ("ZCOUNT", self._keys.user_freeleech(user_id), f"({int(self._clock())}", "+inf")


def tokens_of(pairs: list[bytes]) -> list[Token]:
    """The tokens of a reply to ``Freeleech._page_command``."""
    return [Token(torrent_id, until) for torrent_id, until in ranked(pairs)]

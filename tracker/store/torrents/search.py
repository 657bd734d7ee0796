"""Finding torrents by a part of their name, or by the beginning of their info hash.

Names stand in `t:i:name` in their order, info hashes in `t:i:info_hash` in theirs, so nothing walks the key space. A
beginning of an info hash is looked up; for a part of a name all names are looked at, NAMES_A_CALL in each call of the store.
"""

import re
from collections.abc import Awaitable, Callable

from tracker.bittorrent import HASH_LENGTH, InfoHash
from tracker.errors import ClientError
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.listing import fold
from tracker.store.scripts import Scripts

NAMES_A_CALL = 1000
"""More would keep announces waiting for longer than a millisecond."""
NAMES_A_PAGE = 250_000
"""So many names are looked at for one page; the next one goes on where it stopped."""
HASHES_A_CALL = 500
SURE_DIGITS = 4
"""So many hex digits are more likely meant as an info hash than as a part of a name."""
_HEX = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
_CURSOR = re.compile(r"([hn])([0-9]{1,12})", re.ASCII)
SCORE_DIGITS = 13
"""So many hex digits a score holds exactly."""
END = -1

Phase = Callable[[int, int], Awaitable[tuple[int, list[InfoHash]]]]


class Search:
    """One text, looked for in one register."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys, text: str) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._part = fold(text)
        digits = text.strip().lower()
        self._digits = digits if _HEX.fullmatch(digits) else ""

    async def page(self, count: int, cursor: str) -> tuple[str, list[InfoHash]]:
        """(cursor of the next page, '' at the end; at most ``count`` info hashes). Raises ClientError for a bad cursor."""
        phases = self._phases()
        name, position = _read(cursor) if cursor else (next(iter(phases)), 0)
        if name not in phases:
            raise ClientError("this is no cursor of such a search")
        found: list[InfoHash] = []
        for phase in list(phases)[list(phases).index(name) :]:
            position, more = await phases[phase](position, count - len(found))
            found += more
            if position != END:
                return f"{phase}{position}", found
            position = 0
        return "", found

    def _phases(self) -> dict[str, Phase]:
        """Names and info hashes, first what is more likely meant."""
        if not self._digits:
            return {"n": self._names}
        if len(self._digits) < SURE_DIGITS:
            return {"n": self._names, "h": self._hashes}
        return {"h": self._hashes, "n": self._names}

    async def _names(self, position: int, wanted: int) -> tuple[int, list[InfoHash]]:
        found: list[InfoHash] = []
        stop = position + NAMES_A_PAGE
        while len(found) < wanted and position != END and position < stop:
            argv: list[str | bytes | int | float] = [
                self._part,
                position,
                NAMES_A_CALL,
                wanted - len(found),
                self._digits,
            ]
            position, more = await self._scripts.search(argv)
            found += (InfoHash(bytes.fromhex(info_hash.decode())) for info_hash in more)
        return position, found

    async def _hashes(self, position: int, wanted: int) -> tuple[int, list[InfoHash]]:
        if len(self._digits) == 2 * HASH_LENGTH:  # known torrents that are in no list are found too
            return (END, [InfoHash(bytes.fromhex(self._digits))]) if wanted else (position, [])
        first, end = await self._places()
        found: list[InfoHash] = []
        while len(found) < wanted and first + position < end:
            begin = first + position
            last = min(end, begin + wanted - len(found), begin + HASHES_A_CALL) - 1
            ids = await self._connection.command("ZRANGE", self._keys.info_hashes(), begin, last)
            if not ids:
                break
            position += len(ids)
            hexed = await self._connection.command("MGET", *(self._keys.torrent_id(i.decode()) for i in ids))
            digits = [text.decode() for text in hexed if text]
            found += (InfoHash(bytes.fromhex(text)) for text in digits if text.startswith(self._digits))
        return (position if first + position < end else END), found

    async def _places(self) -> tuple[int, int]:
        """Where those that begin with the digits, as far as a score holds them, stand in the index: [first, end)."""
        digits, index = self._digits[:SCORE_DIGITS], self._keys.info_hashes()
        lowest, highest = (int(digits.ljust(SCORE_DIGITS, filling), 16) for filling in "0f")
        answers = await self._connection.pipeline(
            ("ZCOUNT", index, "-inf", f"({lowest}"), ("ZCOUNT", index, "-inf", highest)
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return int(answers[0]), int(answers[1])


def _read(cursor: str) -> tuple[str, int]:
    match = _CURSOR.fullmatch(cursor)
    if not match:
        raise ClientError("this is no cursor")
    return match[1], int(match[2])

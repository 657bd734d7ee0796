"""Which client programs join, and which are refused why: leaderboards of all time and by month.

Any program can claim any name, so nothing is decided from these, and their length is bounded: a board that has grown
beyond MOST_MEMBERS is cut back to the KEPT_MEMBERS seen most. What is cut may come again, and begins anew at nothing:
the figures of the frequent are right, those of the rare may be too low, and none is too high.
"""

import secrets
from collections.abc import Mapping
from typing import Literal

import structlog

from tracker.store.connection import Connection
from tracker.store.figures import ranked
from tracker.store.keys import Keys
from tracker.store.months import ALL_TIME, MONTHS_KEPT, month_of, month_start
from tracker.store.scripts import Scripts

Outcome = Literal["joins", "failures"]
Heard = tuple[str, str]
"""The name of a program, and why it was refused; "" when it joined."""

MAX_BATCH = 100
"""Programs in one call: more would keep announces waiting for longer than a millisecond."""
KEPT_MEMBERS = 1000
MOST_MEMBERS = 1200
LONGEST_NAME = 40
LONGEST_LABEL = 80

log = structlog.get_logger("tracker.store")


class Software:
    """The programs of one prefix. Each object counts as one process: its batches are numbered, and one that is sent
    again because its answer was lost counts once."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._process = secrets.token_hex(8)

    async def add(self, number: int, heard: Mapping[Heard, int], now: float) -> None:
        """Adds batch ``number`` (each one more than the last), at most MAX_BATCH programs; all of it or nothing.

        Raises StoreAway when it cannot be known which: the same batch may be sent again, with the same number.
        """
        if len(heard) > MAX_BATCH:
            raise ValueError(f"at most {MAX_BATCH} programs at a time")
        joins = {name: by for (name, label), by in heard.items() if not label}
        failures = {f"{name}: {label}": by for (name, label), by in heard.items() if label}
        until = int(month_start(now, 1 + MONTHS_KEPT).timestamp())
        argv: list[str | bytes | int | float] = [self._process, number, month_of(now), until]
        argv += [KEPT_MEMBERS, MOST_MEMBERS, len(joins)]
        for member, by in (*joins.items(), *failures.items()):
            argv += [member, by]
        wrong = int(await self._scripts.software(argv))
        if wrong:
            log.error("the store has keys of a wrong type where clients are counted", keys=wrong)

    async def top(
        self, kind: Outcome, period: str = ALL_TIME, count: int = 10, offset: int = 0
    ) -> list[tuple[str, int]]:
        """(program, how often) most frequent first, as in ``qBittorrent 5.0.2``; for failures with the reason behind
        it, as in ``qBittorrent 5.0.2: unknown torrent``. ``period`` is ``all`` or a UTC month (``YYYY-MM``)."""
        board = self._keys.client_software(kind, period)
        return ranked(
            await self._connection.command("ZRANGE", board, offset, offset + count - 1, "REV", "WITHSCORES")
        )

    async def size(self, kind: Outcome, period: str = ALL_TIME) -> int:
        """How many members ``top`` has to show."""
        return int(await self._connection.command("ZCARD", self._keys.client_software(kind, period)))


def parted(member: str) -> tuple[str, str]:
    """(program, reason) of a member of failures."""
    program, _, reason = member.partition(": ")
    return program, reason


def shown(name: str, label: str = "") -> Heard:
    """A name and a label as they are stored: on one line, of bounded length, without what could move a cursor."""
    return _plain(name, LONGEST_NAME) or "unknown", _plain(label, LONGEST_LABEL)


def _plain(text: str, longest: int) -> str:
    cut = " ".join(text[:longest].split())
    return "".join(c if c.isprintable() else "?" for c in cut)

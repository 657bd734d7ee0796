"""Leaderboards of client software that joined or was rejected, of all time and by month.

Any program can claim any name. So a name is listed once it came from MIN_ADDRESSES addresses, and the boards are
bounded: one with more than MAX_MEMBERS is cut to the KEPT_MEMBERS most frequent. A name that was cut starts again at 0.
Counts of frequent clients are right, those of rare ones may be too low.
"""

import re
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal
from zlib import crc32

from tracker.bittorrent import Address
from tracker.store.schema.lenient_numbers import ranked
from tracker.store.sharding.shards import Part, Shard
from tracker.store.stats.slices import ALL_TIME, MONTHS_KEPT, month_of, month_start
from tracker.system.logger import Logger

Outcome = Literal["joins", "failures"]
ClientEvent = tuple[str, str]
"""(client name, failure label); the label is "" for a join."""

MAX_BATCH = 100
"""Clients in one call: more would delay announces by over a millisecond."""
KEPT_MEMBERS = 1000
MAX_MEMBERS = 1200
MIN_ADDRESSES = 3
"""Addresses (IPv6: /64s) that a new member of a board needs."""
MAX_UNLISTED = 5000
"""Members that do not have as many yet, and whose addresses are kept."""
MAX_NAME = 40
MAX_LABEL = 80
_VERSIONED = re.compile(r"(.+?) v?[0-9]\S*", re.ASCII)

log = Logger("tracker.store")


class ClientSoftware(Part):
    """The client software of one prefix. Each object counts as one process: its batches are numbered, and a batch
    sent again after a lost reply counts once."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self._process = secrets.token_hex(8)

    async def add(
        self,
        number: int,
        counts: Mapping[ClientEvent, int],
        now: float,
        addresses: Mapping[ClientEvent, Collection[Address]],
    ) -> None:
        """Adds batch ``number`` (each one more than the last), at most MAX_BATCH clients; all or nothing.

        ``addresses``: some that they came from. The counts of what came from too few so far wait for others.

        Raises StoreUnavailable when the result is unknown: send the same batch again with the same number.
        """
        if len(counts) > MAX_BATCH:
            raise ValueError(f"at most {MAX_BATCH} programs at a time")
        events = sorted(counts, key=lambda event: bool(event[1]))
        joins = sum(not label for _, label in events)
        until = int(month_start(now, 1 + MONTHS_KEPT).timestamp())
        argv: list[str | bytes | int | float] = [self._process, number, month_of(now), until]
        argv += [KEPT_MEMBERS, MAX_MEMBERS, joins, MIN_ADDRESSES, MAX_UNLISTED]
        for name, label in events:
            member = f"{name}: {label}" if label else name
            networks = {address[:8] for address in addresses.get((name, label), ())}
            argv += [member, counts[name, label], name, "".join(f"{crc32(network):08x}" for network in networks)]
        wrong = int(await self._scripts.software(argv))
        if wrong:
            log.error("keys of client software have a wrong type", keys=wrong)

    async def top(
        self, kind: Outcome, period: str = ALL_TIME, count: int = 10, offset: int = 0
    ) -> list[tuple[str, int]]:
        """(client, count), most frequent first, such as ``qBittorrent 5.0.2``; for failures with the reason, such as
        ``qBittorrent 5.0.2: unknown torrent``. ``period`` is ``all`` or a UTC month (``YYYY-MM``)."""
        board = self._keys.client_software(kind, period)
        return ranked(await self._connection.command("ZRANGE", board, offset, offset + count - 1, "REV", "WITHSCORES"))

    async def size(self, kind: Outcome, period: str = ALL_TIME) -> int:
        return int(await self._connection.command("ZCARD", self._keys.client_software(kind, period)))


def parted(member: str) -> tuple[str, str]:
    """(client, reason) of a member of failures."""
    program, _, reason = member.partition(": ")
    return program, reason


def program_of(member: str) -> str:
    """The program of a member of either board, without the version: ``qBittorrent 5.0.2`` -> ``qBittorrent``."""
    client = parted(member)[0]
    match = _VERSIONED.fullmatch(client)
    return match[1] if match else client


def by_program(board: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The counts of a board by program, most frequent first."""
    counts: Counter[str] = Counter()
    for member, count in board:
        counts[program_of(member)] += count
    return sorted(counts.items(), key=lambda row: (-row[1], row[0]))


def shown(name: str, label: str = "") -> ClientEvent:
    """A name and a label as stored: one line of bounded length, printable."""
    return _plain(name, MAX_NAME) or "unknown", _plain(label, MAX_LABEL)


def _plain(text: str, max_characters: int) -> str:
    cut = " ".join(text[:max_characters].split())
    return "".join(c if c.isprintable() else "?" for c in cut)

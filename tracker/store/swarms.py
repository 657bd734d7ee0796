"""The swarms: announces in, peers and counts out; scrapes.

Announces go to the store in batches (batches.py), each one atomic part of one script; and so do scrapes.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash, ScrapeFile
from tracker.store.batches import Batches, Settle
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.listing import page_of_torrents
from tracker.store.scripts import Scripts
from tracker.store.swarm_rules import SwarmRules
from tracker.store.update import (
    DUE_STEP_SECONDS,
    EVENT_CODES,
    Admitted,
    Moved,
    PeerUpdate,
    Refused,
    due_deadline,
    pack,
    pack_rules,
    parse,
    parse_moved,
)

__all__ = [
    "DUE_STEP_SECONDS",
    "EVENT_CODES",
    "Admitted",
    "Moved",
    "PeerUpdate",
    "Refused",
    "SwarmRules",
    "Swarms",
    "due_deadline",
]

MAX_BATCH, MAX_SCRAPES = 64, 8
"""Announces, and scrapes, in one call of the store."""
_Scrape = tuple[Sequence[InfoHash], str]
Figures = dict[InfoHash, ScrapeFile]
_NO_SCRAPE = (Refused("unknown passkey", ""), Refused("user disabled", ""))
"""By scrape.lua's number."""


def _nobody_asks(announces: int, moved: Moved) -> None:
    del announces, moved


class Swarms:
    """The swarms of one prefix on one server. ``clock`` gives epoch seconds.

    ``on_batch`` hears of each batch: how many announces it held, and what their peers have moved.
    """

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        rules: SwarmRules,
        clock: Callable[[], float],
        max_waiting: int = 2048,
        on_batch: Callable[[int, Moved], None] = _nobody_asks,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._on_batch = on_batch
        self._announces = Batches(
            self._apply, lambda: connection.away, most=MAX_BATCH, most_waiting=max_waiting
        )
        self._scrapes = Batches(
            self._read, lambda: connection.away, most=MAX_SCRAPES, most_waiting=max_waiting
        )
        self.go_by(rules)

    def go_by(self, rules: SwarmRules) -> None:
        """From the next call of the store on."""
        self._private = int(rules.private)
        self._announce_rules = pack_rules(
            *rules.reaping,
            rules.longest_gap,
            rules.shortest_timeout,
            rules.max_credit,
            rules.private,
            rules.open,
            rules.max_torrents,
            rules.new_per_address_hour,
            rules.early,
        )

    @property
    def waiting(self) -> int:
        """Announces that wait for their call of the store."""
        return self._announces.waiting

    @property
    def in_flight(self) -> int:
        """Announces that the store works on, or has yet to be asked about."""
        return self._announces.in_flight

    async def run(self) -> None:
        """Runs until cancelled: sends what waits."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announces.run())
            tasks.create_task(self._scrapes.run())

    def submit(self, update: PeerUpdate, settle: Settle, context: Any) -> None:
        """Applies an announce with the next batch; ``settle`` is given Admitted, Refused or StoreAway, as Batches says."""
        self._announces.submit(pack(update), settle, context)

    async def announce(self, update: PeerUpdate) -> Admitted | Refused:
        """Applies one announce; raises StoreAway when it cannot be known to have been applied."""
        outcome: Admitted | Refused = await self._announces.ask(pack(update))
        return outcome

    async def _apply(self, packed: list[bytes]) -> list[Admitted | Refused]:
        argv: list[str | bytes | int | float] = [int(self._clock()), 1, self._announce_rules, *packed]
        try:
            *replies, moved = await self._scripts.announce(argv)
        except OutOfMemoryError:
            # Nothing was run. Stops and updates free or keep memory, so they go on; joins have to wait.
            argv[1] = 0
            *replies, moved = await self._scripts.announce_when_full(argv)
        self._on_batch(len(packed), parse_moved(moved))
        return [parse(reply) for reply in replies]

    def submit_scrape(
        self, info_hashes: Sequence[InfoHash], passkey: str, settle: Settle, context: Any
    ) -> None:
        """Reads figures with the next batch; ``settle`` is given what ``scrape`` answers, or StoreAway."""
        self._scrapes.submit((info_hashes, passkey), settle, context)

    async def scrape(self, info_hashes: Sequence[InfoHash], passkey: str = "") -> Figures | Refused:
        """The figures of each torrent, zeros for those unknown or denied; Refused when ``passkey`` may not know them."""
        files: Figures | Refused = await self._scrapes.ask((info_hashes, passkey))
        return files

    async def _read(self, asked: list[_Scrape]) -> list[Figures | Refused]:
        argv: list[str | bytes | int | float] = [self._private]
        for info_hashes, passkey in asked:
            argv += (
                passkey.encode()[:255],
                len(info_hashes),
                *(info_hash.hex() for info_hash in info_hashes),
            )
        answers = await self._scripts.scrape(argv)
        return [
            _files(info_hashes, figures) for (info_hashes, _), figures in zip(asked, answers, strict=True)
        ]

    async def scrape_all(self, passkey: str = "") -> Figures | Refused:
        """The figures of every registered torrent, read in pages; Refused as ``scrape`` says."""
        files = await self.scrape((), passkey)
        if isinstance(files, Refused):
            return files
        cursor = 0
        while True:
            cursor, ids = await page_of_torrents(self._connection, self._keys, cursor, 500)
            if ids:
                known = await self._connection.command("MGET", *(self._keys.torrent_id(i) for i in ids))
                hashes = [InfoHash(bytes.fromhex(text.decode())) for text in known if text]
                more = await self.scrape(hashes, passkey)
                if isinstance(more, Refused):  # meanwhile
                    return more
                files |= more
            if not cursor:
                return files


def _files(info_hashes: Sequence[InfoHash], figures: list[int] | int) -> Figures | Refused:
    """scrape.lua's answer to one scrape."""
    if isinstance(figures, int):
        return _NO_SCRAPE[figures]
    return {info_hash: ScrapeFile(*figures[4 * n : 4 * n + 4]) for n, info_hash in enumerate(info_hashes)}

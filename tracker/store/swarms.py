"""The swarms: announces in, peers and counts out; scrapes; the calls of the reaper.

Announces go to the store in batches (batches.py), each one atomic part of one script; and so do scrapes.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import structlog
from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash, ScrapeFile
from tracker.store.batches import Batches, Settle
from tracker.store.clock import SetBack, StoreClock
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.listing import list_torrents, unlisted
from tracker.store.scripts import Scripts
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
    "SweepStep",
    "due_deadline",
]

REWOUND = 200
"""Peers, about, whose timeouts are put right in one call."""
MAX_BATCH, MAX_SCRAPES = 64, 8
"""Announces, and scrapes, in one call of the store."""
_Scrape = tuple[Sequence[InfoHash], str]

log = structlog.get_logger("tracker.store")


@dataclass(frozen=True, slots=True)
class SwarmRules:
    """What the scripts need to know of the settings; seconds and bytes."""

    private: bool = False
    open: bool = True
    peer_memory: int = 0
    hnr_min_bytes: int = 0
    hnr_threshold: int = 0
    longest_gap: int = 7200
    shortest_timeout: float = inf
    """Of those that announces may have; no timeout is looked at later than this."""
    longest_timeout: float = inf
    """Of those too, of peers that keep to the rules."""
    max_credit: int = 134_217_728
    max_torrents: int = 1_000_000
    new_per_address_hour: int = 1000
    grace: int = 2700
    forget_after: int = 604_800
    early: float = 0
    """An announce of a peer that comes sooner than this after the one before is answered as ``early``."""


@dataclass(frozen=True, slots=True)
class SweepStep:
    """What one call of the sweep did; ``position`` is where it goes on in the torrent after the ``done`` ones."""

    done: int
    position: str
    reaped: int
    repairs: int
    forgotten: int
    seen: int


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
        max_waiting: int = 4096,
        on_batch: Callable[[int, Moved], None] = _nobody_asks,
        timer: Callable[[], float] = time.monotonic,
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
        self._store_clock = StoreClock(timer)
        self.go_by(rules)

    def go_by(self, rules: SwarmRules) -> None:
        """From the next call of the store on."""
        self._private = int(rules.private)
        self._grace = rules.grace
        self._shortest_timeout, self._longest_timeout = rules.shortest_timeout, rules.longest_timeout
        self._forget_after = rules.forget_after
        memory = rules.peer_memory if rules.private else 0
        self._reap_rules = (memory, rules.hnr_min_bytes, rules.hnr_threshold)
        self._announce_rules = pack_rules(
            *self._reap_rules,
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
    def grace_seconds(self) -> int:
        """How long after an outage nobody is reaped who could not announce."""
        return self._grace

    @property
    def waiting(self) -> int:
        """Announces that wait for their call of the store."""
        return self._announces.waiting

    @property
    def scrapes_waiting(self) -> int:
        """The same of scrapes."""
        return self._scrapes.waiting

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

    async def scrape(
        self, info_hashes: Sequence[InfoHash], passkey: str = ""
    ) -> dict[InfoHash, ScrapeFile] | None:
        """The figures of each torrent, zeros for those unknown or denied; ``None`` when ``passkey`` may not know them."""
        files: dict[InfoHash, ScrapeFile] | None = await self._scrapes.ask((info_hashes, passkey))
        return files

    async def _read(self, asked: list[_Scrape]) -> list[dict[InfoHash, ScrapeFile] | None]:
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

    async def scrape_all(self, passkey: str = "") -> dict[InfoHash, ScrapeFile] | None:
        """The figures of every registered torrent, read in pages; ``None`` as ``scrape`` says."""
        if await self.scrape((), passkey) is None:
            return None
        files: dict[InfoHash, ScrapeFile] = {}
        cursor = 0
        while True:
            cursor, ids = await self.page(cursor, 500)
            if ids:
                known = await self._connection.command("MGET", *(self._keys.torrent_id(i) for i in ids))
                hashes = [InfoHash(bytes.fromhex(text.decode())) for text in known if text]
                files |= await self.scrape(hashes, passkey) or {}
            if not cursor:
                return files

    async def reap(self, peers: Sequence[tuple[str, str]]) -> int:
        """Removes those of (torrent id, peer id in hex) whose timeout is gone; the answer is how many were removed."""
        argv: list[str | bytes | int | float] = [int(self._clock()), *self._reap_rules, self._grace]
        argv.append(self._store_clock.expected)
        for torrent_id, peer_id in peers:
            argv += (torrent_id, peer_id)
        reaped, failed = await self._scripts.reap(argv)
        _report(failed)
        return int(reaped)

    async def reap_due(self, deadline: int, first: int, most: int, most_reaped: int) -> tuple[int, int]:
        """Works through a due list from entry ``first`` on: (entries seen, peers removed). None seen: it is done."""
        seen, reaped, failed = await self._scripts.due(
            [
                int(self._clock()),
                *self._reap_rules,
                self._grace,
                deadline,
                first,
                most,
                most_reaped,
                self._shortest_timeout,
                self._store_clock.expected,
            ]
        )
        _report(failed)
        return int(seen), int(reaped)

    async def sweep(self, torrent_ids: Sequence[str], position: str, budget: int) -> SweepStep:
        """Visits swarms from ``position`` in the first of them on, about ``budget`` members."""
        argv: list[str | bytes | int | float] = [int(self._clock()), *self._reap_rules, self._grace]
        argv += [self._forget_after, budget, position, self._store_clock.expected, *torrent_ids]
        done, after, *figures, found, failed = await self._scripts.sweep(argv)
        _report(failed)
        await list_torrents(self._scripts, int(self._clock()), unlisted(found))
        return SweepStep(int(done), after.decode(), *map(int, figures))

    async def check_totals(self) -> int:
        """Holds the global sums against the rankings; the answer is how many were wrong."""
        return int(await self._scripts.totals([]))

    async def secret(self) -> bytes:
        """The bytes that key the hash of the clients' ``key``: made once, shared by all trackers on the store."""
        key = self._keys.secret()
        known = await self._connection.command("GET", key)
        if known is None:
            await self._connection.command("SET", key, secrets.token_bytes(32), "NX")
            known = await self._connection.command("GET", key)
        return bytes(known)

    async def heartbeat(self) -> int:
        """Says that a tracker is here; the answer is the end of the last outage (epoch seconds, 0 for none)."""
        now = int(self._clock())
        until, says = await self._scripts.heartbeat([now, self._store_clock.expected])
        if jump := self._store_clock.note(now, int(says)):
            log.warning("the store's clock jumped", seconds_ahead=jump)
        return int(until)

    @property
    def was_set_back(self) -> bool:
        """Was the store's clock set back, so that timeouts have to be put right?"""
        return self._store_clock.set_back is not None

    async def rewind(self) -> None:
        """Shortens the timeouts of before the store's clock was set back by as much.

        Not where that is less than a timeout may last: then nobody can tell the old from the new, and it is over as soon.
        """
        back = self._store_clock.set_back
        if back is not None and back.seconds > self._longest_timeout:
            cursor, shortened = 0, 0
            while True:
                cursor, torrent_ids = await self.page(cursor, REWOUND)
                for torrent_id in torrent_ids:
                    shortened += await self._rewind_torrent(back, torrent_id)
                if not cursor:
                    break
            log.info("timeouts of before the store's clock was set back are put right", peers=shortened)
        self._store_clock.set_back = None

    async def _rewind_torrent(self, back: SetBack, torrent_id: str) -> int:
        position, shortened = b"0", 0
        rules = (int(self._clock()), back.seconds, back.since, self._longest_timeout, torrent_id)
        while True:
            position, some = await self._scripts.rewind([*rules, position, REWOUND])
            shortened += int(some)
            if position == b"0":
                return shortened

    async def page(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """A page of all torrent ids, and the cursor of the next (0 at the end)."""
        after, members = await self._connection.command(
            "ZSCAN", self._keys.index("seeders"), cursor, "COUNT", count
        )
        return int(after), [member.decode() for member in _members(members)]

    async def size(self) -> int:
        """About how much a whole sweep visits: torrents and active peers."""
        torrents, *peers = await self._connection.pipeline(
            ("ZCARD", self._keys.index("seeders")),
            ("GET", self._keys.stat("seeders")),
            ("GET", self._keys.stat("leechers")),
        )
        return int(torrents) + sum(int(count or 0) for count in peers)

    async def due_lists(self, deadlines: Sequence[int]) -> list[int]:
        """Those of ``deadlines`` that have a list."""
        keys = [self._keys.due(deadline) for deadline in deadlines]
        # After an outage there are pages and pages of none.
        if not keys or (len(keys) > 1 and not await self._connection.command("EXISTS", *keys)):
            return []
        there = await self._connection.pipeline(*(("EXISTS", key) for key in keys))
        return [deadline for deadline, exists in zip(deadlines, there, strict=True) if exists == 1]

    async def due_cursor(self) -> int | None:
        """The last deadline worked through, epoch seconds."""
        value = await self._connection.command("GET", self._keys.due_cursor())
        return int(value) if value and value.isdigit() else None

    async def set_due_cursor(self, deadline: int) -> None:
        with suppress(OutOfMemoryError):  # it only saves the next start a look at lists that are gone
            await self._connection.command("SET", self._keys.due_cursor(), deadline)


def _report(failed: int) -> None:
    if failed:
        log.error("keys of the wrong type stop the reaper: somebody else wrote them", failed=failed)


def _files(info_hashes: Sequence[InfoHash], figures: list[int] | int) -> dict[InfoHash, ScrapeFile] | None:
    """scrape.lua's answer to one scrape."""
    if isinstance(figures, int):
        return None
    return {info_hash: ScrapeFile(*figures[4 * n : 4 * n + 4]) for n, info_hash in enumerate(info_hashes)}


def _members(scanned: Any) -> list[bytes]:
    """ZSCAN's answer as the client gives it (flat, or pairs) -> the members."""
    if scanned and isinstance(scanned[0], tuple | list):
        return [member for member, _ in scanned]
    return list(scanned[::2])

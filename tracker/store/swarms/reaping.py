"""The swarms as the reaper sees them: silent peers out, counts put right, and the heartbeat by which outages are known."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import PeerId
from tracker.store.clock import SetBack, StoreClock
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.listing import list_torrents, page_of_torrents, unlisted
from tracker.store.scripts import Scripts
from tracker.store.swarm_rules import SwarmRules

REWOUND = 200
"""Peers, about, whose timeouts are put right in one call."""

log = structlog.get_logger("tracker.store")


@dataclass(frozen=True, slots=True)
class SweepStep:
    """What one call of the sweep did; ``position`` is where it goes on in the torrent after the ``done`` ones."""

    done: int
    position: str
    reaped: int
    repairs: int
    forgotten: int
    seen: int


class Reaping:
    """What is asked of the store for it. ``clock`` gives epoch seconds, ``timer`` seconds since whenever, without a jump."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        rules: SwarmRules,
        clock: Callable[[], float],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._store_clock = StoreClock(timer)

    def go_by(self, rules: SwarmRules) -> None:
        """From the next call of the store on."""
        self._rules = rules

    @property
    def grace_seconds(self) -> int:
        """How long after an outage nobody is reaped who could not announce."""
        return self._rules.grace

    async def reap(self, peers: Sequence[tuple[str, str]]) -> int:
        """Removes those of (torrent id, peer id in hex) whose timeout is gone; the answer is how many were removed.

        Nearly always none: who looked at their timeouts, which is what published their ends, has removed them as well. Where
        nothing is remembered of who left, one question about all of them says so.
        """
        if not peers or not (self._rules.reaping[0] or await self._are_there(peers)):
            return 0
        argv: list[str | bytes | int | float] = [int(self._clock()), *self._rules.reaping, self._rules.grace]
        argv.append(self._store_clock.expected)
        for torrent_id, peer_id in peers:
            argv += (torrent_id, peer_id)
        reaped, failed = await self._scripts.reap(argv)
        _report(failed)
        return int(reaped)

    async def _are_there(self, peers: Sequence[tuple[str, str]]) -> bool:
        keys = (self._keys.peer(torrent_id, PeerId(bytes.fromhex(peer_id))) for torrent_id, peer_id in peers)
        return bool(await self._connection.direct("EXISTS", *keys))

    async def reap_due(self, deadline: int, first: int, most: int, most_reaped: int) -> tuple[int, int]:
        """Works through a due list from entry ``first`` on: (entries seen, peers removed). None seen: it is done."""
        seen, reaped, failed = await self._scripts.due(
            [
                int(self._clock()),
                *self._rules.reaping,
                self._rules.grace,
                deadline,
                first,
                most,
                most_reaped,
                self._rules.shortest_timeout,
                self._store_clock.expected,
            ]
        )
        _report(failed)
        return int(seen), int(reaped)

    async def sweep(self, torrent_ids: Sequence[str], position: str, budget: int) -> SweepStep:
        """Visits swarms from ``position`` in the first of them on, about ``budget`` members."""
        argv: list[str | bytes | int | float] = [int(self._clock()), *self._rules.reaping, self._rules.grace]
        argv += [self._rules.forget_after, budget, position, self._store_clock.expected, *torrent_ids]
        done, after, *figures, found, failed = await self._scripts.sweep(argv)
        _report(failed)
        await list_torrents(self._scripts, int(self._clock()), unlisted(found))
        return SweepStep(int(done), after.decode(), *map(int, figures))

    async def check_totals(self) -> int:
        """Holds the global sums against the rankings; the answer is how many were wrong."""
        return int(await self._scripts.totals([]))

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
        if back is not None and back.seconds > self._rules.longest_timeout:
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
        rules = (int(self._clock()), back.seconds, back.since, self._rules.longest_timeout, torrent_id)
        while True:
            position, some = await self._scripts.rewind([*rules, position, REWOUND])
            shortened += int(some)
            if position == b"0":
                return shortened

    async def page(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """A page of all torrent ids, and the cursor of the next (0 at the end)."""
        return await page_of_torrents(self._connection, self._keys, cursor, count)

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

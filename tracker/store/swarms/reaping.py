"""The reaper's view of the swarms: removes timed-out peers, repairs counts, and keeps the heartbeat that reveals
outages."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError

from tracker.bittorrent import InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.client.clock import ClockStepBack, StoreClock, own_step
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Part, Shard, Shards, scan
from tracker.store.swarms.acknowledged import Acknowledged
from tracker.store.swarms.rules import LiveRules
from tracker.store.torrents.name_index import list_torrents, page_of_torrents, pages_of_torrents, unlisted
from tracker.system.logger import Logger

_MAX = 2**53 - 1


class PeerCounts(NamedTuple):
    """Peers of all swarms, as the sweep counts them. A peer on both families counts in each. The protocol of a peer is
    that of its last join."""

    seeders: int = 0
    leechers: int = 0
    seeders_v4: int = 0
    leechers_v4: int = 0
    seeders_v6: int = 0
    leechers_v6: int = 0
    seeders_udp: int = 0
    leechers_udp: int = 0
    seeders_ws: int = 0
    """Those with a WebSocket, which may have an endpoint as well."""
    leechers_ws: int = 0

    @property
    def seeders_http(self) -> int:
        return max(0, self.seeders - self.seeders_udp - self.seeders_ws)

    @property
    def leechers_http(self) -> int:
        return max(0, self.leechers - self.leechers_udp - self.leechers_ws)

    def plus(self, other: "PeerCounts") -> "PeerCounts":
        return PeerCounts(*(a + b for a, b in zip(self, other, strict=True)))

    @classmethod
    def decode(cls, text: bytes) -> "PeerCounts":
        """Raises ValueError for anything else than numbers of peers, separated by spaces."""
        counts = list(map(int, text.split()))
        if len(counts) != len(cls._fields) or not 0 <= min(counts) <= max(counts) <= _MAX:
            raise ValueError("these are no counts of peers")
        return cls(*counts)


NO_PEERS = PeerCounts()


async def read_peer_counts(shards: Shards) -> PeerCounts | None:
    """The sums over the shards, each as of its last round of the sweep; None while a shard has no counts. Raises
    StoreUnavailable and RedisError."""
    # MGET, because GET would fail on a key of another type.
    found = await shards.each(lambda shard: ("MGET", shard.keys.peer_counts()))
    with suppress(ValueError):  # missing, or another program wrote it
        return reduce(PeerCounts.plus, (PeerCounts.decode(value or b"") for (value,) in found.values()))
    return None


HEARTBEAT_SECONDS = 5.0
"""How often each process reports that peers can announce."""
SHORTENED_TOGETHER = 200
"""Approximate number of peers whose timeouts one call shortens."""

TORRENTS_A_ROUND = 100
"""Torrents whose removal one call of pending_removals returns."""
REMOVAL_BUDGET = 50
"""Members and swarms that one call of a removal visits, about. If all are removed, it takes the store four
milliseconds."""
_PAUSES = 1
"""A removal pauses as long as a call took, so it takes at most half of the store's time."""
_PAGE = 500
_HASH = re.compile(rb"[0-9a-f]{40}")
_TORRENT = re.compile(r"torrent:([0-9a-f]{40})", re.ASCII)

log = Logger("tracker.store")


@dataclass(frozen=True, slots=True)
class SweepStep:
    """The result of one call of the sweep. It continues at ``position`` in the torrent after the ``done`` ones."""

    done: int
    position: str
    reaped: int
    repairs: int
    forgotten: int
    seen: int
    peers: PeerCounts = NO_PEERS
    """Counts of the swarms that this call has counted. A large swarm takes several calls and is counted by one of
    them."""


class Reaping(Part):
    """The calls of the reaper for one prefix. ``clock`` gives epoch seconds, ``timer`` seconds that never jump."""

    def __init__(
        self,
        shard: Shard,
        shards: Shards,
        rules: LiveRules,
        clock: Callable[[], float],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(shard, clock)
        self._shard = shard
        self._shards = shards
        self._rules = rules
        self._timer = timer
        self._last_beat: tuple[float, int] | None = None
        """The moment of the timer, and the time."""
        self.acknowledged = Acknowledged()
        self._pipe: object = None
        """The one of the last heartbeat. Another one may lead to another server."""
        self._store_clock = StoreClock(timer)
        self.socket_process = 0
        """The number under which this process has WebSockets; 0 if it has none."""

    @property
    def grace_seconds(self) -> int:
        """How long after an outage or a step of a clock no peer is reaped."""
        return self._rules.current.grace

    def _rules_now(self) -> list[str | bytes | int | float]:
        """The first arguments of the scripts that remove peers (removal.lua)."""
        rules, now = self._rules.current, int(self._clock())
        head = (now, rules.memory, rules.packed_hit_and_run, rules.grace, rules.min_timeout)
        return [*head, self._store_clock.expected, rules.max_changes]

    async def reap(self, peers: Sequence[tuple[str, str]]) -> int:
        """Removes the peers (torrent id, peer id in hex) whose timeout is gone; returns their number. Usually none: the
        caller that triggered the expiry event has already removed the peer. If no peers are remembered, one EXISTS
        checks all of them."""
        keys = (self._keys.peer(torrent_id, PeerId(bytes.fromhex(peer_id))) for torrent_id, peer_id in peers)
        if not peers or not (self._rules.current.memory or await self._connection.direct("EXISTS", *keys)):
            return 0
        argv = [*self._rules_now(), *chain.from_iterable(peers)]
        reaped, failed = await self._scripts.reap(argv)
        _report(failed)
        return int(reaped)

    async def reap_due(self, deadline: int, first: int, max_entries: int, max_reaped: int) -> tuple[int, int]:
        """Processes a due list from entry ``first`` on: (entries seen, peers removed). None seen: the list is done."""
        argv = [*self._rules_now(), deadline, first, max_entries, max_reaped]
        seen, reaped, failed = await self._scripts.due(argv)
        _report(failed)
        return int(seen), int(reaped)

    async def sweep(
        self, torrent_ids: Sequence[str], position: str, budget: int, denied: Sequence[bytes] = ()
    ) -> SweepStep:
        """Visits about ``budget`` members of swarms, from ``position`` in the first one on. ``denied``: prefixes of
        peer ids whose clients are denied."""
        clients = " ".join(prefix.hex() for prefix in denied)
        argv = [*self._rules_now(), self._rules.current.forget_after, budget, position, clients, *torrent_ids]
        done, after, reaped, repairs, forgotten, seen, found, failed, peers = await self._scripts.sweep(argv)
        _report(failed)
        await list_torrents(self._scripts, int(self._clock()), unlisted(found))
        counts = PeerCounts(*map(int, peers))
        return SweepStep(int(done), after.decode(), int(reaped), int(repairs), int(forgotten), int(seen), counts)

    async def remove(
        self,
        entries: Sequence[str],
        denied: Sequence[bytes] = (),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> int:
        """Removes the peers that may not stay of these users, clients and torrents, in bounded steps; returns their
        number. ``entries``: those of ``t:removing``, and ``torrent:<info hash>``. Clients are removed if they are
        ``denied``."""
        removed, everywhere = (0, [entry for entry in entries if entry == "user:*" or entry.startswith("client:")])
        if everywhere:
            removed += await self._remove_in(pages_of_torrents(self._shard), denied, sleep)
        for entry in everywhere:
            await self._scripts.end_removal([entry])
        for entry in entries:
            if entry not in everywhere:
                removed += await self._remove_in(self._torrents_of(entry), denied, sleep)
                await self._scripts.end_removal([entry])
        return removed

    async def _remove_in(
        self, pages: AsyncIterator[Sequence[str]], denied: Sequence[bytes], sleep: Callable[[float], Awaitable[object]]
    ) -> int:
        removed = 0
        async for torrent_ids in pages:
            left, position = list(torrent_ids), ""
            while left:
                began = time.monotonic()
                step = await self.sweep(left[:REMOVAL_BUDGET], position, REMOVAL_BUDGET, denied)
                removed += step.reaped
                # Of a large swarm only the members: its arrays and addresses are checked by the sweep.
                position = step.position if step.position.startswith("m:") else ""
                del left[: step.done + (position != step.position)]
                await sleep(_PAUSES * (time.monotonic() - began))
        return removed

    async def _torrents_of(self, entry: str) -> AsyncIterator[Sequence[str]]:
        """The ids of the torrents where the peers of an entry are."""
        if torrent := _TORRENT.fullmatch(entry):
            key = self._keys.torrent(InfoHash(bytes.fromhex(torrent[1])))
            torrent_id = await self._connection.command("HGET", key, "tid")
            yield [torrent_id.decode()] if torrent_id else []
            return
        if entry.startswith("user:"):
            key = self._keys.user_set(entry.partition(":")[2], "active")
            async for members in scan(self._connection, ("SSCAN", key), "COUNT", _PAGE):
                yield [member.decode() for member in [*members, *await self._other_halves(members)]]

    async def _other_halves(self, torrent_ids: Sequence[bytes]) -> list[bytes]:
        """The ids of the v2 halves under this prefix: a user's peers there are in no set of the user. Halves in other
        shards are listed there, as torrents from which peers are to be removed."""
        if not torrent_ids:
            return []
        of_ids = (self._keys.torrent_id(each.decode()) for each in torrent_ids)
        hashes = [found for found in await self._connection.command("MGET", *of_ids) if found]
        halves = [each for each in await self._fields(hashes, "hybrid") if _HASH.fullmatch(each)]
        by_shard = self._shards.by_shard(halves, lambda each: InfoHash(bytes.fromhex(each.decode())))
        own = by_shard.pop(self._shard, [])
        await self._shards.ask(
            [(shard, ("SADD", shard.keys.removed_torrents(), *of)) for shard, of in by_shard.items()], keep_errors=True
        )
        return await self._fields(own, "tid")

    async def _fields(self, info_hashes: Sequence[bytes], field: str) -> list[bytes]:
        """A field of torrents, where it is there."""
        keys = (self._keys.torrent(InfoHash(bytes.fromhex(each.decode()))) for each in info_hashes)
        asked = [("HGET", key, field) for key in keys]
        found = await self._connection.pipeline(*asked) if asked else []
        return [each for each in found if isinstance(each, bytes)]

    async def save_peer_counts(self, counts: PeerCounts, seconds: int) -> None:
        """Writes what a round of the sweep has counted, to be shown for ``seconds``."""
        with suppress(OutOfMemoryError):
            await self._connection.command("SET", self._keys.peer_counts(), " ".join(map(str, counts)), "EX", seconds)

    async def check_totals(self) -> int:
        """Compares the global sums with the rankings, and corrects them; returns how many were wrong."""
        return int(await self._scripts.totals([]))

    async def heartbeat(self) -> int:
        """Writes the heartbeat; returns the end of the last interruption (epoch seconds, 0 for none): of an outage, or
        a step of the tracker's or the store's clock, or a server that has lost announces."""
        await self._connection.check_writes(self._keys.heartbeat())
        moment, now, pipe = self._timer(), int(self._clock()), self._connection.server.commands.socket
        is_new = pipe is not self._pipe
        if is_new:
            self.acknowledged.doubt(look=False)
        step, passed = own_step(self._last_beat, moment, now)
        doubt, argv = self.acknowledged.doubted, self.acknowledged.arguments(now)
        until, says, lost = await self._scripts.heartbeat(
            [now, self._store_clock.expected, step, passed, self.socket_process or "", int(is_new), *argv]
        )
        self._pipe = pipe
        self.acknowledged.settle(doubt)
        if lost is not None:
            log.warning("the store may have lost announces", seconds=int(lost), prefix=self._keys.prefix)
        self._last_beat = moment, now
        if jump := self._store_clock.note(now, int(says)):
            log.warning("the store's clock jumped", seconds_ahead=jump)
        return int(until)

    @property
    def was_set_back(self) -> bool:
        """Whether the store's clock was set back, so that timeouts must be shortened."""
        return self._store_clock.step_back is not None

    async def shorten_timeouts(self) -> None:
        """Shortens timeouts set before the store's clock was set back, by the same amount. Does nothing for less than
        the maximum timeout: then old and new timeouts look alike, and the old ones end as soon."""
        back = self._store_clock.step_back
        if back is not None and back.seconds > self._rules.current.max_timeout:
            shortened = 0
            async for torrent_ids in pages_of_torrents(self._shard):
                for torrent_id in torrent_ids:
                    shortened += await self._shorten_timeouts_of(back, torrent_id)
            log.info("shortened timeouts after the store's clock was set back", peers=shortened)
        self._store_clock.step_back = None

    async def _shorten_timeouts_of(self, back: ClockStepBack, torrent_id: str) -> int:
        position, shortened = b"0", 0
        rules = (int(self._clock()), back.seconds, back.since, self._rules.current.max_timeout, torrent_id)
        while True:
            position, some = await self._scripts.shorten_timeouts([*rules, position, SHORTENED_TOGETHER])
            shortened += int(some)
            if position == b"0":
                return shortened

    async def page(self, cursor: int, count: int) -> tuple[int, list[str]]:
        """A page of all torrent ids, and the cursor of the next (0 at the end)."""
        after, found = await page_of_torrents(self._shard, cursor, count)
        return after, [torrent_id for torrent_id, _ in found]

    async def size(self) -> int:
        """The approximate size of a whole sweep: torrents and active peers."""
        torrents, *peers = await self._connection.pipeline(
            ("ZCARD", self._keys.index("seeders")),
            ("GET", self._keys.stat("seeders")),
            ("GET", self._keys.stat("leechers")),
        )
        # A count of another type was written by another program.
        counts = (whole(count) for count in peers if isinstance(count, bytes))
        return (torrents if isinstance(torrents, int) else 0) + sum(counts)

    async def due_lists(self, deadlines: Sequence[int]) -> list[int]:
        """The deadlines that have a list."""
        keys = [self._keys.due(deadline) for deadline in deadlines]
        # After an outage there are pages and pages of none.
        if not keys or (len(keys) > 1 and not await self._connection.command("EXISTS", *keys)):
            return []
        there = await self._connection.pipeline(*(("EXISTS", key) for key in keys))
        return [deadline for deadline, exists in zip(deadlines, there, strict=True) if exists == 1]

    async def due_cursor(self) -> int | None:
        """The last processed deadline, epoch seconds."""
        value = await self._connection.command("GET", self._keys.due_cursor())
        return int(value) if value and value.isdigit() else None

    async def set_due_cursor(self, deadline: int) -> None:
        with suppress(OutOfMemoryError):  # without it the next start checks some deleted lists again
            await self._connection.command("SET", self._keys.due_cursor(), deadline)


async def pending_removals(shards: Shards, numbers: Sequence[int]) -> dict[Shard, list[str]]:
    """Whose peers are to be removed in shards with these numbers, as ``Reaping.remove`` takes it: those of users and
    clients that are refused from now on, and of torrents."""
    found: dict[Shard, list[str]] = {}
    asked = [shard for shard in shards if shard.number in numbers]
    lists = [(shard, ("GET", shard.keys.removing())) for shard in asked]
    sets = [(shard, ("SRANDMEMBER", shard.keys.removed_torrents(), TORRENTS_A_ROUND)) for shard in asked]
    replies = await shards.ask([*lists, *sets], keep_errors=True)
    for shard, entries, torrents in zip(asked, replies, replies[len(asked) :], strict=False):
        text = entries.decode("ascii", "replace") if isinstance(entries, bytes) else ""
        hashes = torrents if isinstance(torrents, list) else ()
        if both := [*text.split(), *(f"torrent:{each.decode('ascii', 'replace')}" for each in hashes)]:
            found[shard] = both
    return found


class SocketProcess(Part):
    """This process among those with WebSockets, which pass messages to each other over channels. ``main`` is the shard
    of the main prefix; ``reapings`` are those of all prefixes, whose heartbeats show that the process runs."""

    def __init__(self, main: Shard, reapings: Collection[Reaping]) -> None:
        super().__init__(main)
        self._reapings = reapings
        self.number = random.randrange(1, 2**32)

    @property
    def channel(self) -> str:
        """The channel on which other processes publish for this one."""
        return self._channel(self.number)

    def begin(self) -> None:
        """From the next heartbeat on, the WebSockets of this process count as open."""
        for reaping in self._reapings:
            reaping.socket_process = self.number

    async def publish(self, payloads: Mapping[int, bytes]) -> Sequence[int]:
        """Passes a payload to each of these processes; returns how many receive each: none where the store does not
        answer, or does not allow it."""
        commands = [("PUBLISH", self._channel(process), payload) for process, payload in payloads.items()]
        try:
            replies = await self._connection.pipeline(*commands)
        except StoreUnavailable:
            return [0] * len(commands)
        return [reply if isinstance(reply, int) else 0 for reply in replies]

    def _channel(self, process: int) -> str:
        return self._keys.channel(f"ws:{process}")


def _report(failed: int) -> None:
    if failed:
        log.error("keys of the wrong type stop the reaper", failed=failed)

"""The swarms: applies announces, and reads the counts for scrapes. Both go to the shard of their torrents in batches
(batching.py); each announce is one atomic part of a script. Scrapes of torrents in several shards are put together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import add
from typing import Any, NamedTuple, cast

from redis.exceptions import MovedError, OutOfMemoryError, RedisError

from tracker.bittorrent import Address, InfoHash, PeerId, ScrapeFile
from tracker.errors import StoreOverloaded, StoreUnavailable
from tracker.store.client.batching import Batches, Sender, Settle, resolve
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Script
from tracker.store.sharding.shards import Part, Shard, Shards, grouped
from tracker.store.swarms.announce_counts import Add, AnnounceCounts
from tracker.store.swarms.codec import (
    ASKED,
    EVENT_CODES,
    FULL,
    GROWS,
    NOT_COPIED,
    UNREGISTERED,
    V2_EVENT_CODES,
    Admission,
    Admitted,
    AnnounceCodec,
    PeerUpdate,
    Refused,
    TrafficTotals,
    Update,
    passkey_of,
    refused,
)
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.rules import LiveRules
from tracker.store.swarms.unanswered import OnJoin, Unanswered
from tracker.store.torrents.name_index import pages_of_torrents
from tracker.system.logger import Logger

log = Logger("tracker.store")

MAX_BATCH, MAX_SCRAPES = 64, 8
"""Announces, and scrapes, in one call of the store."""
_Scrape = tuple[Sequence[InfoHash], str]
Figures = dict[InfoHash, ScrapeFile]
Outcome = Admission | Refused | StoreUnavailable
Totals = tuple[int, TrafficTotals] | None


Bring = Callable[[Shard, Collection[str]], Awaitable[bool]]
"""Copies users into a shard, by passkey; False if it copies none. Raises StoreUnavailable and RedisError."""


class _Unknown(NamedTuple):
    incomplete: int
    """Scrapes with a passkey that the shard does not know."""


class Swarms(Part):
    """The swarms of one shard. ``add`` counts announces; ``clock`` gives epoch seconds."""

    def __init__(
        self,
        shard: Shard,
        reaping: Reaping,
        rules: LiveRules,
        add: Add,
        clock: Callable[[], float],
        senders: tuple[Sender, Sender],
        follow: Callable[[Update, InfoHash], None],
        bring: Bring,
    ) -> None:
        super().__init__(shard, clock)
        connection, scripts = shard.connection, shard.scripts
        announcing, scraping = senders
        self._add = add
        self._reaping = reaping
        self._codec = codec = AnnounceCodec(rules, clock, add, reaping.acknowledged.recent, follow)
        self._rules = rules
        self._bring = partial(bring, shard)
        self.announces = Batches(
            connection, scripts.announce, codec.encode, codec.decode, self._call_announce, self._complete, announcing
        )
        run = partial(self._run, scripts.scrape)
        self.scrapes = Batches(
            connection, scripts.scrape, self._encode_scrapes, _decode_scrapes, run, self._complete_scrapes, scraping
        )
        self._unanswered = Unanswered(self._query, connection.until_available)

    async def run(self, on_late_join: OnJoin) -> None:
        """As AllSwarms.run."""

        def count_join(info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
            self._add([info_hash])
            on_late_join(info_hash, peer_id, address)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._unanswered.run(count_join))
            tasks.create_task(self._reaping.acknowledged.run(self._connection.until_available, self._reaping.heartbeat))

    async def _call_announce(self, argv: list[Argument], error: Exception | None) -> Any:
        """A call that cannot go over the pipe of the last one, or that ``error`` ended there."""
        if error is None or isinstance(error, MovedError):
            self._reaping.acknowledged.doubt(look=True)
        try:
            try:
                return await self._run(self._scripts.announce, argv, error)
            except OutOfMemoryError:
                # Nothing was run. Stops and updates do not need more memory, so they go on; joins are refused.
                argv[1] = FULL if argv[1] == GROWS else ASKED[FULL]
                return await self._scripts.announce_when_full(argv)
        except StoreUnavailable:
            moment, _, _, *packed = argv
            self._unanswered.add(cast(list[bytes], packed), int(float(moment)))
            raise

    async def _complete(
        self, updates: Sequence[Update], outcomes: Sequence[Outcome], totals: TrafficTotals
    ) -> tuple[list[Outcome], TrafficTotals]:
        """Gets what announces need and the shard does not know yet, and sends these announces again: copies of users,
        torrents that register themselves, ids and users that a site wrote."""
        merged = list(outcomes)
        unknown = [place for place, outcome in enumerate(merged) if outcome is NOT_COPIED]
        try:
            await self._bring({passkey_of(updates[place]) for place in unknown})
        except (StoreUnavailable, RedisError) as error:
            for place in unknown:
                merged[place] = _without_copy(error)
        places = _incomplete(merged, range(len(merged)))
        failure: StoreUnavailable | Refused | None = None
        for _ in range(2):  # the user of a new copy may announce a new torrent
            if places and failure is None:
                totals, failure = await self._register(updates, merged, places, totals)
                places = _incomplete(merged, places)
        if failure is not None:
            for place in places:
                merged[place] = failure
        return merged, totals

    async def _register(
        self, updates: Sequence[Update], merged: list[Outcome], places: Sequence[int], totals: TrafficTotals
    ) -> tuple[TrafficTotals, StoreUnavailable | Refused | None]:
        """Registers what these announces need, and sends them again. ``merged`` gets their outcomes."""
        unregistered = [place for place in places if merged[place] is UNREGISTERED]
        again = [place for place in places if place not in unregistered]
        try:
            if unregistered:
                forgotten, refusals, *answers = await self._scripts.register(
                    self._codec.encode_new([updates[place] for place in unregistered])
                )
                totals = totals._replace(forgotten=totals.forgotten + forgotten, refused=totals.refused + refusals)
                for place, refusal in zip(unregistered, answers, strict=True):
                    if refusal:
                        merged[place] = refused(*refusal)
                    else:
                        again.append(place)
            if again := sorted(again):
                sent = [updates[place] for place in again]
                argv = self._codec.encode(sent)
                argv[1] = ASKED[GROWS]
                found, more = self._codec.decode(sent, argv, await self.announces.call_script(argv))
                totals = TrafficTotals(*map(add, totals, more))
                for place, outcome in zip(again, found, strict=True):
                    merged[place] = outcome
        except OutOfMemoryError:
            return totals, Refused("store full", "")
        except (StoreUnavailable, RedisError) as error:
            log.error("store script failed", error=str(error))
            return totals, StoreUnavailable("the store failed")
        return totals, None

    async def _run(self, script: Script, argv: list[Argument], error: Exception | None) -> Any:
        """Runs a script over a new pipe, or after ``error`` where that allows it."""
        if error is None:
            return await script(argv)
        error = self._connection.translated(error)
        if script.is_missing(error):
            return await script.load_and_run(argv)
        if isinstance(error, MovedError):  # nothing was run, and the connection leads to another node now
            return await script(argv)
        raise error

    async def _query(self, queries: list[bytes]) -> list[Any]:
        """Sends queries, which change nothing, so that a full store answers them too."""
        argv: list[Argument] = [int(self._clock()), FULL, self._codec.rules, *queries]
        answers: list[Any] = await self._scripts.announce_when_full(argv)
        return answers[:-1]

    def _encode_scrapes(self, scrapes: Sequence[_Scrape]) -> list[Argument]:
        argv: list[Argument] = [int(self._rules.current.accounts == "required")]
        for info_hashes, passkey in scrapes:
            argv += (passkey.encode()[:255], len(info_hashes), *(info_hash.hex() for info_hash in info_hashes))
        return argv

    async def _complete_scrapes(
        self, scrapes: Sequence[_Scrape], outcomes: Sequence[Figures | Refused], unknown: _Unknown
    ) -> tuple[Sequence[Figures | Refused | StoreUnavailable], _Unknown]:
        """Sends scrapes again whose users had no copy in the shard."""
        merged: list[Figures | Refused | StoreUnavailable] = list(outcomes)
        places = [place for place, (_, passkey) in enumerate(scrapes) if passkey and isinstance(merged[place], Refused)]
        again = [scrapes[place] for place in places]
        found: Sequence[Figures | Refused | StoreUnavailable]
        try:
            if not await self._bring({passkey for _, passkey in again}):
                return outcomes, unknown
            argv = self._encode_scrapes(again)
            found, _ = _decode_scrapes(again, argv, await self.scrapes.call_script(argv))
        except (StoreUnavailable, RedisError) as error:
            found = [_without_copy(error)] * len(places)
        for place, outcome in zip(places, found, strict=True):
            merged[place] = outcome
        return merged, unknown


def _incomplete(outcomes: Sequence[Outcome], places: Iterable[int]) -> list[int]:
    return [place for place in places if outcomes[place] is UNREGISTERED or outcomes[place] is NOT_COPIED]


def _without_copy(error: StoreUnavailable | RedisError) -> StoreUnavailable:
    if isinstance(error, RedisError) and not isinstance(error, OutOfMemoryError):
        log.error("users cannot be copied to a shard", error=str(error))
    return StoreUnavailable(f"the shard has no copy of the user: {error}")


def _decode_scrapes(
    scrapes: Sequence[_Scrape], argv: list[Argument], reply: list[Any]
) -> tuple[list[Figures | Refused], _Unknown]:
    del argv
    files = [_files(each, numbers) for (each, _), numbers in zip(scrapes, reply, strict=True)]
    return files, _Unknown(reply.count(0))


def _files(info_hashes: Sequence[InfoHash], numbers: list[int] | int | bytes) -> Figures | Refused:
    """Decodes scrape.lua's reply to one scrape."""
    if isinstance(numbers, int):
        return Refused("unknown passkey", "", True)
    if isinstance(numbers, bytes):
        return Refused("user disabled", numbers.decode("utf-8", "replace"))
    return {info_hash: ScrapeFile(*numbers[4 * n : 4 * n + 4]) for n, info_hash in enumerate(info_hashes)}


class AllSwarms:
    """The swarms of all shards. At most ``max_waiting`` announces wait, in all shards together; one of each shard may
    be more."""

    def __init__(
        self,
        shards: Shards,
        reapings: Mapping[Shard, Reaping],
        rules: LiveRules,
        counts: AnnounceCounts,
        clock: Callable[[], float],
        bring: Bring,
        max_waiting: int = 2048,
    ) -> None:
        self._shards = shards
        self._senders = Sender(MAX_BATCH, max_waiting), Sender(MAX_SCRAPES, max_waiting)
        self._all = [
            Swarms(shard, reapings[shard], rules, counts.of(shard).update, clock, self._senders, self._follow, bring)
            for shard in shards
        ]
        self.submits = [self.of(InfoHash(bytes([first]))).announces.submit for first in range(256)]
        """By the first byte of the info hash: each applies an announce with the next batch. Its outcome is Admitted,
        Refused or StoreUnavailable; the totals of a batch are TrafficTotals."""

    @property
    def waiting(self) -> int:
        """Announces that wait for their call of the store."""
        return sum(len(swarms.announces.requests) for swarms in self._all)

    @property
    def in_flight(self) -> int:
        """Announces without an outcome."""
        return sum(swarms.announces.in_flight for swarms in self._all)

    def of(self, info_hash: InfoHash) -> Swarms:
        """The swarms of the shard that has a torrent."""
        return self._all[self._shards.of(info_hash).number]

    async def run(self, on_late_join: OnJoin = lambda *join: None) -> None:
        """Sends waiting requests, until cancelled. ``on_late_join`` is called for each join whose reply was lost, once
        the store is available again."""
        async with asyncio.TaskGroup() as tasks:
            for sender in self._senders:
                tasks.create_task(sender.run())
            for swarms in self._all:
                tasks.create_task(swarms.run(on_late_join))

    def _follow(self, fields: Update, v1: InfoHash) -> None:
        """Sends to the v1 half of a hybrid torrent what was announced on the v2 half. One that is lost is no loss: the
        next announce of either half counts from the same counters."""
        update = PeerUpdate(*fields)
        event = V2_EVENT_CODES[update.event]
        with suppress(StoreUnavailable):
            self.of(v1).announces.submit(
                update._replace(info_hash=v1, event=event, peers_wanted=0), self._end_refused, update
            )

    def _end_refused(self, settled: Iterable[tuple[PeerUpdate, Outcome]], totals: Totals) -> Totals:
        """Takes users out of the swarm of the v2 half who download as many torrents as allowed: an announce reads no
        other shard, so it was admitted there."""
        for update, outcome in settled:
            if isinstance(outcome, Refused) and outcome.code == "too many downloads":
                stop = update._replace(event=EVENT_CODES["stopped"], peers_wanted=0)
                with suppress(StoreUnavailable):
                    self.submits[update.info_hash[0]](stop, lambda settled, totals: totals, None)
        return totals

    async def announce(self, update: PeerUpdate) -> Admitted | Refused:
        """Applies one announce; raises StoreUnavailable when it cannot be known to have been applied."""
        outcome = await self.of(update.info_hash).announces.execute(update)
        return Admitted(*outcome) if type(outcome) is tuple else cast(Admitted | Refused, outcome)

    def submit_scrape(self, info_hashes: Sequence[InfoHash], passkey: str, settle: Settle, context: Any) -> None:
        """Reads counts with the next batch; the outcome is that of ``scrape``, or StoreUnavailable."""
        parts = grouped(info_hashes, self.of)
        if len(parts) <= 1:
            available = (self._all[each.number] for each in self._shards if not each.connection.unavailable)
            swarms = next(chain(parts, available), self._all[0])
            swarms.scrapes.submit((info_hashes, passkey), settle, context)
            return
        whole = _ScrapeOfShards(info_hashes, len(parts), settle, context)
        for swarms, part in parts.items():
            try:
                swarms.scrapes.submit((part, passkey), _add_parts, whole)
            except StoreUnavailable as error:
                whole.add_part(error)

    async def scrape(self, info_hashes: Sequence[InfoHash], passkey: str = "") -> Figures | Refused:
        """The counts of each torrent, 0 for unknown and denied ones; Refused when ``passkey`` may not read them."""
        future: asyncio.Future[Figures | Refused] = asyncio.get_running_loop().create_future()
        self.submit_scrape(info_hashes, passkey, resolve, future)
        return await future

    async def scrape_all(self, passkey: str = "") -> Figures | Refused:
        """The counts of every registered torrent, read in pages, without the torrents of shards that are unavailable;
        Refused as in ``scrape``."""
        files: Figures = {}
        for shard, swarms in zip(self._shards, self._all, strict=True):
            own: Figures = {}
            try:
                async for hashes in _pages(shard):
                    found = await swarms.scrapes.execute((hashes, passkey))
                    if isinstance(found, Refused):
                        return found
                    own |= found
                files |= own
            except StoreUnavailable as error:
                self._shards.leave_out([shard.number], error)
        return files


async def _pages(shard: Shard) -> AsyncIterator[list[InfoHash]]:
    """The registered torrents. The first page is empty, and only tells whether a passkey may read them."""
    yield []
    async for ids in pages_of_torrents(shard):
        known = await shard.connection.command("MGET", *map(shard.keys.torrent_id, ids)) if ids else []
        yield [InfoHash(bytes.fromhex(text.decode())) for text in known if text]


@dataclass(eq=False)
class _ScrapeOfShards:
    """A scrape of torrents of several shards. Its outcome is complete when all parts have arrived. It leaves out the
    torrents of shards that are unavailable, unless all of them are; any other failure of a part fails all of it."""

    _info_hashes: Sequence[InfoHash]
    _missing: int
    _settle: Settle
    _context: Any

    def __post_init__(self) -> None:
        self._files: Figures = {}
        self._failed: Refused | StoreUnavailable | None = None
        self._unavailable: StoreUnavailable | None = None

    def add_part(self, outcome: Figures | Refused | StoreUnavailable) -> None:
        if isinstance(outcome, dict):
            self._files |= outcome
        elif isinstance(outcome, StoreUnavailable) and not isinstance(outcome, StoreOverloaded):
            self._unavailable = outcome
        else:
            self._failed = outcome
        self._missing -= 1
        if not self._missing:
            unavailable = None if self._files else self._unavailable
            in_order = {each: self._files[each] for each in self._info_hashes if each in self._files}
            self._settle([(self._context, self._failed or unavailable or in_order)], None)


def _add_parts(settled: Iterable[tuple[_ScrapeOfShards, Any]], batch: Any) -> None:
    del batch
    for whole, outcome in settled:
        whole.add_part(outcome)

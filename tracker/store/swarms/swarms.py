"""The swarms: applies announces, and reads the counts for scrapes.

Both go to the store in batches (batching.py); each announce is one atomic part of a script.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from redis.exceptions import MovedError, OutOfMemoryError

from tracker.bittorrent import Address, InfoHash, PeerId, ScrapeFile
from tracker.errors import StoreUnavailable
from tracker.store.client.batching import Batches, Settle
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Script, Scripts
from tracker.store.schema.keys import Keys
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.codec import Admitted, AnnounceCodec, PeerUpdate, Refused
from tracker.store.swarms.rules import LiveRules
from tracker.store.swarms.unanswered import OnJoin, Unanswered
from tracker.store.torrents.name_index import page_of_torrents

MAX_BATCH, MAX_SCRAPES = 64, 8
"""Announces, and scrapes, in one call of the store."""
_Scrape = tuple[Sequence[InfoHash], str]
Figures = dict[InfoHash, ScrapeFile]


def ignore_join(info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
    del info_hash, peer_id, address


class Swarms:
    """The swarms of one prefix on one server. ``clock`` gives epoch seconds."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        rules: LiveRules,
        counts: AnnounceCounts,
        clock: Callable[[], float],
        max_waiting: int = 2048,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._codec = AnnounceCodec(rules, clock, counts.add)
        self._rules = rules
        self.announces = Batches(
            connection,
            scripts.announce,
            self._codec.encode,
            self._codec.decode,
            self._call_announce,
            max_requests=MAX_BATCH,
            max_waiting=max_waiting,
        )
        self._scrapes = Batches(
            connection,
            scripts.scrape,
            self._encode_scrapes,
            _decode_scrapes,
            self._call_scrape,
            max_requests=MAX_SCRAPES,
            max_waiting=max_waiting,
        )
        self._unanswered = Unanswered(self._query, connection.until_available)

    @property
    def waiting(self) -> int:
        """Announces that wait for their call of the store."""
        return self.announces.waiting

    @property
    def in_flight(self) -> int:
        """Announces without an outcome."""
        return self.announces.in_flight

    async def run(self, on_late_join: OnJoin = ignore_join) -> None:
        """Sends waiting requests, until cancelled.

        ``on_late_join`` is called for each join whose reply was lost, once the store is available again.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.announces.run())
            tasks.create_task(self._scrapes.run())
            tasks.create_task(self._unanswered.run(on_late_join))

    def submit(self, update: PeerUpdate, settle: Settle, context: Any) -> None:
        """Applies an announce with the next batch. Its outcome is Admitted, Refused or StoreUnavailable; the totals
        of a batch are TrafficTotals."""
        self.announces.submit(update, settle, context)

    async def announce(self, update: PeerUpdate) -> Admitted | Refused:
        """Applies one announce; raises StoreUnavailable when it cannot be known to have been applied."""
        outcome: Admitted | Refused = await self.announces.execute(update)
        return outcome

    async def _call_announce(self, argv: list[Argument], error: Exception | None) -> Any:
        """A call that cannot go over the open pipe, or that ``error`` ended there."""
        try:
            try:
                return await self._run(self._scripts.announce, argv, error)
            except OutOfMemoryError:
                # Nothing was run. Stops and updates do not need more memory, so they go on; joins are refused.
                argv[1] = 0
                return await self._scripts.announce_when_full(argv)
        except StoreUnavailable:
            moment, _, _, *packed = argv
            self._unanswered.add(cast(list[bytes], packed), int(float(moment)))
            raise

    async def _run(self, script: Script, argv: list[Argument], error: Exception | None) -> Any:
        """Runs a script over a new pipe, or after ``error`` where that allows it."""
        if error is None:
            return await script(argv)
        self._connection.raise_if_unavailable(error)
        if script.is_missing(error):
            return await script.load_and_run(argv)
        if isinstance(error, MovedError):  # nothing was run, and the connection leads to another node now
            return await script(argv)
        raise error

    async def _query(self, queries: list[bytes]) -> list[Any]:
        """Sends queries, which change nothing, so that a full store answers them too."""
        argv: list[Argument] = [int(self._clock()), 0, self._codec.rules, *queries]
        answers: list[Any] = await self._scripts.announce_when_full(argv)
        return answers[:-1]

    def submit_scrape(
        self, info_hashes: Sequence[InfoHash], passkey: str, settle: Settle, context: Any
    ) -> None:
        """Reads counts with the next batch; the outcome is that of ``scrape``, or StoreUnavailable."""
        self._scrapes.submit((info_hashes, passkey), settle, context)

    async def scrape(self, info_hashes: Sequence[InfoHash], passkey: str = "") -> Figures | Refused:
        """The counts of each torrent, 0 for unknown and denied ones; Refused when ``passkey`` may not read them."""
        files: Figures | Refused = await self._scrapes.execute((info_hashes, passkey))
        return files

    def _encode_scrapes(self, scrapes: list[_Scrape]) -> list[Argument]:
        argv: list[Argument] = [int(self._rules.current.accounts == "required")]
        for info_hashes, passkey in scrapes:
            argv += (
                passkey.encode()[:255],
                len(info_hashes),
                *(info_hash.hex() for info_hash in info_hashes),
            )
        return argv

    async def _call_scrape(self, argv: list[Argument], error: Exception | None) -> Any:
        return await self._run(self._scripts.scrape, argv, error)

    async def scrape_all(self, passkey: str = "") -> Figures | Refused:
        """The counts of every registered torrent, read in pages; Refused as in ``scrape``."""
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


def _decode_scrapes(scrapes: list[_Scrape], reply: list[Any]) -> tuple[list[Figures | Refused], None]:
    return [_files(each, numbers) for (each, _), numbers in zip(scrapes, reply, strict=True)], None


def _files(info_hashes: Sequence[InfoHash], numbers: list[int] | int | bytes) -> Figures | Refused:
    """Decodes scrape.lua's reply to one scrape."""
    if isinstance(numbers, int):
        return Refused("unknown passkey", "", True)
    if isinstance(numbers, bytes):
        return Refused("user disabled", numbers.decode("utf-8", "replace"))
    return {info_hash: ScrapeFile(*numbers[4 * n : 4 * n + 4]) for n, info_hash in enumerate(info_hashes)}

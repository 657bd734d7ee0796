"""Announces that got no reply: whether they were joins, which count."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redis.exceptions import RedisError

from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.swarms.codec import Refused, pack_join_query, parse, parse_sender
from tracker.system.logger import Logger

MAX_REMEMBERED = 4096
"""Announces without a reply; beyond this number the oldest are forgotten."""
_BATCH = 64
_SETTLE_SECONDS = 0.5
"""Time to wait first: the store may still process announces that arrived over connections now closed."""

log = Logger("tracker.store")

OnJoin = Callable[[InfoHash, PeerId, Address], None]


@dataclass(eq=False)
class Unanswered:
    """Finds out which announces without a reply were joins. A call that timed out may have been applied. Its joins
    would not count: the client's retry finds the peer in the swarm, and is an update. So when the store is back, it is
    queried about each such announce."""

    _send: Callable[[list[bytes]], Awaitable[list[Any]]]
    """Sends join queries to announce.lua and returns its replies."""
    _until_available: Callable[[], Awaitable[None]]
    max_remembered: int = MAX_REMEMBERED

    def __post_init__(self) -> None:
        self._queries: dict[bytes, None] = {}
        self._added = asyncio.Event()

    def add(self, announces: Iterable[bytes], now: int) -> None:
        """Remembers packed announces that were sent at ``now`` (epoch s) and got no answer."""
        for packed in announces:
            if query := pack_join_query(packed, now):
                self._queries[query] = None
        if excess := max(0, len(self._queries) - self.max_remembered):
            for query in list(islice(self._queries, excess)):
                del self._queries[query]
            log.warning("too many announces without a reply: their joins are not counted", announces=excess)
        self._added.set()

    async def run(self, on_join: OnJoin) -> None:
        """Runs until cancelled; ``on_join`` is called for each join found."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._queries:
                await self._until_available()
                await asyncio.sleep(_SETTLE_SECONDS)
                await self._query_some(on_join)

    async def _query_some(self, on_join: OnJoin) -> None:
        """Queries one batch; keeps it when the store is unavailable."""
        queries = list(islice(self._queries, _BATCH))
        try:
            replies = await self._send(queries)
        except StoreUnavailable:
            return
        except RedisError as error:
            log.error("announces without a reply cannot be queried", error=str(error))
            replies = []
        joins = 0
        for query, reply in zip(queries, replies, strict=False):
            outcome = parse(reply)
            if not isinstance(outcome, Refused) and outcome[-1] == "join":
                joins += 1
                on_join(*parse_sender(query))
        for query in queries:
            self._queries.pop(query, None)
        if joins:
            log.info("counted joins whose reply was lost", joins=joins)

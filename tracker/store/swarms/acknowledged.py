"""The announces that the store acknowledged last.

Another server may not have them: a replica that took over before it had received them, or one that lost the end of its
append-only file. Then their peers are as earlier announces left them. So when a shard's calls go over another pipe, the
peers of the last call before are looked for, and the heartbeat records an outage if they did not announce at its time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.swarms.codec import Admission, Call, Refused, Update

_MAX_AGE_SECONDS = 60.0
"""Peers of older calls may have left by way of other trackers. So long without a heartbeat is an outage anyway."""
_PEERS = 8
"""How many peers of the call are looked for. The server has all that the call changed, or nothing of it."""
_AGAIN_SECONDS = 0.5


class _Doubt(NamedTuple):
    moment: float
    """When the reply arrived, by the timer."""
    peers: tuple[tuple[str, str, int | str], ...]
    """Info hash and peer id in hex, and the time of the call (epoch s); empty for a peer that left."""


class Acknowledged:
    """Those of one shard in this process."""

    def __init__(self) -> None:
        self.recent: deque[Call] = deque(maxlen=_PEERS)
        """The last calls, for which the codec has decoded replies."""
        self.doubted: _Doubt | None = None
        self._news = asyncio.Event()

    def doubt(self, *, look: bool) -> None:
        """The next call may reach another server. What is doubted already stays so until it is looked for, by the next
        heartbeat; with ``look`` at once."""
        recent = list(self.recent)
        self.recent.clear()
        now = time.monotonic()
        for updates, outcomes, moment, at in reversed(recent):
            if self.doubted is None and now - moment <= _MAX_AGE_SECONDS and (peers := _set_by(updates, outcomes, at)):
                self.doubted = _Doubt(moment, peers)
        if look and self.doubted is not None:
            self._news.set()

    def arguments(self, now: int) -> list[Argument]:
        """What heartbeat.lua looks for, at ``now`` (epoch s): when the call was acknowledged, and its peers."""
        if self.doubted is None:
            return [""]
        return [round(now - (time.monotonic() - self.doubted.moment)), *chain.from_iterable(self.doubted.peers)]

    def settle(self, doubt: _Doubt | None) -> None:
        """The heartbeat has looked for ``doubt``."""
        if self.doubted is doubt:
            self.doubted = None

    async def run(self, available: Callable[[], Awaitable[None]], look: Callable[[], Awaitable[object]]) -> None:
        """Calls ``look`` for each doubt until it is settled, when the store is ``available``; until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self.doubted is not None:
                await available()
                with suppress(StoreUnavailable, RedisError):
                    await look()
                    break
                await asyncio.sleep(_AGAIN_SECONDS)


def _set_by(
    updates: Sequence[Update], outcomes: Sequence[Admission | Refused], at: Argument
) -> tuple[tuple[str, str, int | str], ...]:
    """The peers that a call ``at`` this time has changed; of one that announced twice, how it is now. An early announce
    may leave the time of the last one."""
    found: dict[tuple[str, str], int | str] = {}
    for (info_hash, peer_id, *_), outcome in zip(updates, outcomes, strict=True):
        if not isinstance(outcome, Refused) and (done := outcome[-1]) in ("update", "join", "leave"):
            of_peer = info_hash.hex(), peer_id.hex()
            found.pop(of_peer, None)
            found[of_peer] = "" if done == "leave" else int(float(at))
    return tuple((*peer, announced) for peer, announced in list(found.items())[-_PEERS:])

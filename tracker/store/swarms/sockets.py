"""Processes with WebSockets: the number of this one, and the channels over which they pass messages to each other."""

import random
from collections.abc import Collection, Mapping, Sequence

from tracker.errors import StoreUnavailable
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.reaping import Reaping


class SocketProcess:
    """This process, which has a random number. ``main`` is the shard of the main prefix; ``reapings`` are those of all
    prefixes, whose heartbeats show that the process runs."""

    def __init__(self, main: Shard, reapings: Collection[Reaping]) -> None:
        self._main = main
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
            replies = await self._main.connection.pipeline(*commands)
        except StoreUnavailable:
            return [0] * len(commands)
        return [reply if isinstance(reply, int) else 0 for reply in replies]

    def _channel(self, process: int) -> str:
        return self._main.keys.channel(f"ws:{process}")

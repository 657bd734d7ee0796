"""One web process of several: ``python -m tracker.web_process DESCRIPTOR``, started by tracker/workforce.py and nobody else."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tracker import logs
from tracker.errors import StartupError
from tracker.foundation import laid
from tracker.joins import open_joins
from tracker.listeners import Listener
from tracker.loops import new_event_loop, running, spare_the_collector
from tracker.readiness import Readiness
from tracker.reloading import with_values
from tracker.stores import open_connection
from tracker.telemetry import Telemetry
from tracker.web import open_web
from tracker.workforce import NEWS_SECONDS, Orders, encode_snapshot, receive_orders

SILENCE_SECONDS = 30.0
"""A parent that has said nothing for so long hangs: then this process is not ready either."""


class Line:
    """The line to the parent: what it says about the tracker, and when it is gone."""

    def __init__(self, stop: asyncio.Event, change: Callable[[Mapping[str, Any]], None]) -> None:
        self._stop = stop
        self._change = change
        self._problems: tuple[str, ...] = ()
        self._heard_at = asyncio.get_running_loop().time()

    def problems(self) -> Sequence[str]:
        if asyncio.get_running_loop().time() - self._heard_at > SILENCE_SECONDS:
            return ("the background process does not answer",)
        return self._problems

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Until the parent is gone, and then the process has to go too."""
        with suppress(OSError):
            while line := await reader.readline():
                news = json.loads(line)
                if isinstance(news, dict):
                    self._change(news)
                else:
                    self._problems = tuple(news)
                self._heard_at = asyncio.get_running_loop().time()
        self._stop.set()


async def serve(orders: Orders, sockets: Sequence[socket.socket], pair: socket.socket) -> None:
    """Serves until SIGTERM, or until the parent is gone."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    reader, writer = await asyncio.open_connection(sock=pair)
    telemetry, redis, in_force = Telemetry(), orders.settings.redis, orders.settings

    def change(values: Mapping[str, Any]) -> None:
        nonlocal in_force
        before, in_force = in_force, with_values(in_force, values)
        if in_force.log != before.log:
            logs.configure(in_force.log)
        base.changes.tell(in_force)

    line = Line(stop, change)
    listeners = [Listener(s, address) for s, address in zip(sockets, orders.addresses, strict=True)]

    async def tell() -> None:
        while True:
            writer.write(encode_snapshot(telemetry.snapshot()))
            with suppress(OSError):
                await writer.drain()
            await asyncio.sleep(NEWS_SECONDS)

    def problems() -> list[str]:
        here = Readiness(connection, stop.is_set, None).problems()
        return list(dict.fromkeys([*here, *line.problems()]))

    async with (
        open_connection(orders.url, redis, redis.timeout_seconds, telemetry.round_trip) as (connection, _),
        laid(orders.settings, connection, telemetry) as base,
        open_joins(orders.settings, base, orders.secret) as joins,
        open_web(orders.settings, base, joins, orders.secret, listeners, problems),
        running(tell, lambda: line.listen(reader)),
    ):
        spare_the_collector()
        await stop.wait()
    with suppress(OSError):
        writer.write(encode_snapshot(telemetry.snapshot()))
        await writer.drain()
    writer.close()


def main() -> None:
    pair = socket.socket(fileno=int(sys.argv[1]))
    try:
        orders, sockets = receive_orders(pair)
    except EOFError:
        return
    logs.configure(orders.settings.log)
    try:
        with asyncio.Runner(loop_factory=new_event_loop()) as runner:
            runner.run(serve(orders, sockets, pair))
    except StartupError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""One web process of several. Only tracker/app/web_processes.py starts it, as
``python -m tracker.app.web_process DESCRIPTOR``."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tracker.app.web import find_problems, open_joins, open_web
from tracker.app.web_processes import STATUS_SECONDS, WorkerConfig, encode_snapshot, receive_config
from tracker.errors import StartupError
from tracker.runtime.context import open_context
from tracker.runtime.store import open_unchecked
from tracker.runtime.telemetry import Snapshot, Telemetry
from tracker.settings.model import with_values
from tracker.system import logs
from tracker.system.datagrams import DatagramSocket
from tracker.system.event_loop import freeze_gc, new_event_loop, running
from tracker.system.listeners import Listener
from tracker.system.masking import mask
from tracker.workers.reaper import send_heartbeats

PARENT_TIMEOUT_SECONDS = 30.0
"""If no message from the parent arrives for this long, this process is not ready."""


async def serve(config: WorkerConfig, sockets: Sequence[socket.socket], pair: socket.socket) -> None:
    """Serves until SIGTERM or until the parent has ended."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    reader, writer = await asyncio.open_connection(sock=pair)
    telemetry, redis = Telemetry(), config.settings.redis
    received_at, parent_problems = loop.time(), list[str]()
    listeners = list(map(Listener, sockets, config.addresses))
    datagrams = list(map(DatagramSocket, sockets[len(listeners) :], config.udp))

    async def listen() -> None:
        """Receives status messages and changed settings until the parent has ended."""
        nonlocal received_at, parent_problems
        with suppress(OSError):
            while line := await reader.readline():
                message = json.loads(line)
                if isinstance(message, dict):
                    context.apply_settings(with_values(context.live.current, message))
                    joins.places.use(context.live.current.geoip_file)
                else:
                    parent_problems = message
                received_at = loop.time()
        stop.set()

    async def send_snapshots() -> None:
        while True:
            await send(writer, telemetry.snapshot())
            await asyncio.sleep(STATUS_SECONDS)

    def problems() -> list[str]:
        shards, live = context.store.shards, context.live
        needs_all = not live.current.http.ready_when_degraded
        found = find_problems(shards, stopping=stop.is_set(), needs_all=needs_all)
        is_silent = loop.time() - received_at > PARENT_TIMEOUT_SECONDS
        found += ["no message from the background process for 30 s"] if is_silent else parent_problems
        return list(dict.fromkeys(found))

    async with (
        open_unchecked(config.url, redis, redis.timeout_seconds, telemetry.round_trip, config.nodes) as connection,
        open_context(config.settings, connection, telemetry) as context,
    ):
        context.store.use_secret(config.secret)
        context.store.keep_checking_layout()
        heartbeats = partial(send_heartbeats, list(context.store.reapings.values()))
        async with (
            open_joins(context) as joins,
            open_web(context, joins, listeners, problems, datagrams),
            running(send_snapshots, listen, heartbeats),
        ):
            freeze_gc()
            await stop.wait()
    await send(writer, telemetry.snapshot())
    writer.close()


async def send(writer: asyncio.StreamWriter, snapshot: Snapshot) -> None:
    """Sends telemetry to the parent, unless the parent has ended."""
    with suppress(OSError):
        if not writer.is_closing():  # uvloop would raise RuntimeError
            writer.write(encode_snapshot(snapshot))
            await writer.drain()


def main() -> None:
    pair = socket.socket(fileno=int(sys.argv[1]))
    try:
        config, sockets = receive_config(pair)
    except EOFError:
        return
    logs.configure(config.settings.log.level, config.settings.log.format)
    try:
        with asyncio.Runner(loop_factory=new_event_loop()) as runner:
            runner.run(serve(config, sockets, pair))
    except StartupError as error:
        sys.exit(mask(str(error)))


if __name__ == "__main__":
    main()

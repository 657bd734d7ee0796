"""Wires the WebSockets of a process to the announce logic and to the other processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tracker.core.announce import Tracker
from tracker.frontends.websocket.server import WebSockets
from tracker.runtime.context import RuntimeContext
from tracker.system.event_loop import running
from tracker.workers.loop import follow, wait_for

SUBSCRIBED_SECONDS = 2.0
"""A start waits so long for the subscription: what other processes pass on before it would be lost."""


@asynccontextmanager
async def open_websockets(context: RuntimeContext, tracker: Tracker) -> AsyncIterator[WebSockets | None]:
    """None if the settings do not allow WebSockets."""
    if not context.live.current.serves_websockets:
        yield None
        return
    store, process = context.store, context.store.socket_process
    sockets = WebSockets(
        tracker.over_websockets(), context.live, process.number, publish=process.publish, count=store.counters.count
    )
    process.begin()
    context.telemetry.gauge("sockets", sockets.__len__)

    subscribed = asyncio.Event()

    async def receive(payload: bytes | None) -> None:
        if payload is None:
            subscribed.set()
        else:
            sockets.relay.receive(payload)

    async with running(sockets.relay.run, partial(follow, store.connection, process.channel, receive)):
        await wait_for(subscribed, SUBSCRIBED_SECONDS)
        yield sockets

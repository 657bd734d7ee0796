"""What every part of a process uses: the store, the current settings, and telemetry."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tracker.runtime.store import build_store, swarm_rules
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import LiveSettings, Settings
from tracker.store.client.connection import Connection
from tracker.store.store import Store
from tracker.system import logs
from tracker.system.event_loop import running


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """One per process."""

    store: Store
    live: LiveSettings
    telemetry: Telemetry

    def apply_settings(self, changed: Settings) -> None:
        """Replaces the settings of this process after a reload."""
        before, self.live.current = self.live.current, changed
        self.store.use_rules(swarm_rules(changed))
        if changed.log != before.log:
            logs.configure(changed.log.level, changed.log.format)


@asynccontextmanager
async def open_context(
    settings: Settings, connection: Connection, telemetry: Telemetry
) -> AsyncIterator[RuntimeContext]:
    """The context of a serving process. Monitors the store connection and flushes counters: a last time on exit, also
    if the block fails or is cancelled."""
    store = build_store(connection, settings, telemetry.add_second)
    telemetry.gauge("processes", lambda: 1)
    shards = store.shards
    telemetry.gauge("processes_without_store", lambda: len(shards.unavailable) == len(shards))
    telemetry.gauge("asyncio_tasks", lambda: len(asyncio.all_tasks()))
    async with running(connection.watch, connection.topology.follow), AsyncExitStack() as stack:
        stack.push_async_callback(store.announce_counts.flush)
        stack.push_async_callback(store.counters.flush)
        async with running(store.counters.run, store.announce_counts.run):
            yield RuntimeContext(store, LiveSettings(settings), telemetry)

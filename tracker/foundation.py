"""What every part of a tracker stands on, in each of its processes: the line to the store, scripts, keys, and counting."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tracker.loops import running
from tracker.reloading import Changes
from tracker.rules import swarm_rules
from tracker.settings import Settings
from tracker.store.connection import Connection
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.reaping import Reaping
from tracker.store.scripts import Scripts
from tracker.store.swarms import MAX_BATCH, Moved, SwarmRules, Swarms
from tracker.telemetry import Telemetry

_EXPORTED = frozenset({"announces", "torrents.processed"})
_BYTES = tuple((f"bytes.{way}", f"bytes.{way}.{family}") for family in ("v4", "v6") for way in ("up", "down"))
"""What is counted of each figure of Moved."""


@dataclass(frozen=True, slots=True)
class Foundation:
    """What every part that writes to the store stands on."""

    connection: Connection
    scripts: Scripts
    keys: Keys
    counters: Counters
    telemetry: Telemetry
    changes: Changes = field(default_factory=Changes)


@asynccontextmanager
async def laid(settings: Settings, connection: Connection, telemetry: Telemetry) -> AsyncIterator[Foundation]:
    """The foundation, with the line watched and counts written; the last of them when nothing is left that counts."""
    keys = Keys(settings.redis.prefix)
    scripts = Scripts(connection, keys.prefix)
    counters = Counters(
        connection,
        scripts,
        keys,
        time.time,
        exports=exported,
        outbox_most=outbox_most(settings),
        tap=telemetry.take_over,
    )
    telemetry.gauge("processes", lambda: 1)
    telemetry.gauge("processes_without_store", lambda: connection.away)
    telemetry.gauge("asyncio_tasks", lambda: len(asyncio.all_tasks()))
    async with running(connection.watch, connection.follow, counters.run):
        yield Foundation(connection, scripts, keys, counters, telemetry)
        await counters.flush()


def swarms_on(settings: Settings, base: Foundation) -> Swarms:
    """The swarms by the rules of the settings; what their peers move is counted."""

    def on_batch(announces: int, moved: Moved) -> None:
        base.counters.observe("announce_batch", announces)
        for names, number in zip(_BYTES, moved, strict=True):
            if number:
                base.counters.count(*names, by=number)

    most = max(settings.redis.max_waiting // settings.http.workers, MAX_BATCH)
    swarms = Swarms(base.connection, base.scripts, base.keys, _rules(settings), time.time, most, on_batch)
    base.changes.follow(lambda changed: swarms.go_by(_rules(changed)))
    return swarms


def reaping_on(settings: Settings, base: Foundation) -> Reaping:
    """What the reaper asks of the same swarms, by the same rules."""
    reaping = Reaping(base.connection, base.scripts, base.keys, _rules(settings), time.time)
    base.changes.follow(lambda changed: reaping.go_by(_rules(changed)))
    return reaping


def _rules(settings: Settings) -> SwarmRules:
    return swarm_rules(settings.announce, settings.torrents, settings.users, settings.reaper, settings.limits)


def outbox_most(settings: Settings) -> int:
    """How many figures may wait to be sent; 0 when nobody wants any."""
    wanted = settings.stathat.ezkey is not None or settings.statsd.address is not None
    return settings.stathat.max_waiting if wanted else 0


def exported(name: str) -> bool:
    """Does a counter go to StatHat or StatsD? Unique users go there from the script that counts them."""
    return name in _EXPORTED or name.startswith("failures.")

"""What a drill is, and how each is held: all the clients, the fault, healing, and what is looked at afterwards."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from drills import inspection
from drills.fleet import Fleet, Pace
from drills.inspection import Findings
from drills.scene import REAP_SECONDS, DrillError, Scene

WARM_UP_SECONDS = 5.0
HEALED_SECONDS = 15.0
"""Within so long after the fault is over everybody must be answered again, unless a drill says otherwise."""

SETTLED_SECONDS = 2 * REAP_SECONDS

Fault = Callable[[Scene, Fleet], Awaitable[None]]
Setting = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Drill:
    """``prepare`` starts trackers and store; ``fault`` returns when the fault is over and the rest is to happen by itself."""

    name: str
    what: str
    fault: Fault
    prepare: Setting
    heals_seconds: float
    settles_seconds: float
    """How long after that somebody may still be listed who went."""
    may_lose: int | None
    """Announces answered that may be missing afterwards; None for any number."""
    spares_the_living: bool
    """No peer that announces in time may have to join anew."""


DRILLS: dict[str, Drill] = {}
"""By name, in the order in which they are held."""


class Skipped(Exception):
    """This machine cannot hold the drill; the text says why."""


@dataclass(slots=True)
class Held:
    """What came of one; ``skipped`` says why it was not held."""

    drill: Drill
    findings: Findings = field(default_factory=Findings)
    seconds: float = 0.0
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.skipped and not self.findings.complaints


def one_tracker(scene: Scene) -> None:
    """As most run it: one process, with its private store."""
    scene.add_tracker()


def drill(
    name: str,
    *,
    prepare: Setting = one_tracker,
    heals_seconds: float = HEALED_SECONDS,
    settles_seconds: float = SETTLED_SECONDS,
    may_lose: int | None = 0,
    spares_the_living: bool = True,
) -> Callable[[Fault], Fault]:
    """Makes a drill of a fault; its docstring says in one line what is done."""

    def register(fault: Fault) -> Fault:
        what = " ".join((fault.__doc__ or name).split()).removesuffix(".")
        DRILLS[name] = Drill(
            name, what, fault, prepare, heals_seconds, settles_seconds, may_lose, spares_the_living
        )
        return fault

    return register


async def hold(drill: Drill, directory: Path, pace: Pace, **settings: str) -> Held:
    """Holds one in ``directory``, with ports and processes of its own; ``settings`` are of its trackers."""
    held, scene, began = Held(drill), Scene(directory, settings=settings), time.monotonic()
    try:
        drill.prepare(scene)
        fleet = Fleet(pace, [post.port for post in scene.posts])
        async with fleet.sailing():
            await _hold(drill, scene, fleet, held.findings)
    except* Skipped as reasons:
        held.skipped = str(reasons.exceptions[0])
    except* DrillError as errors:
        held.findings.complaints += map(str, errors.exceptions)
    except* (RedisError, OSError) as errors:
        # Whatever became of this one's store, the others are to be held.
        held.findings.complaints += (f"{type(error).__name__}: {error}" for error in errors.exceptions)
    finally:
        with suppress(OSError):
            inspection.read_logs(scene, held.findings)
        scene.strike_down()
        held.seconds = time.monotonic() - began
    return held


async def _hold(drill: Drill, scene: Scene, fleet: Fleet, findings: Findings) -> None:
    await asyncio.sleep(WARM_UP_SECONDS)
    if not await fleet.until(lambda: fleet.all_answered_since(0.0), 10.0):
        raise DrillError("not everybody was answered before the fault")
    fault = time.monotonic()
    await drill.fault(scene, fleet)
    over = time.monotonic()
    fleet.settle()
    if not await fleet.until(
        lambda: fleet.all_answered_since(over), drill.heals_seconds + fleet.pace.interval
    ):
        findings.complaints.append(f"not everybody was answered {drill.heals_seconds:g} s after the fault")
    last_failure = max((heard.at for heard in fleet.heard if heard.how != "answered"), default=over)
    findings.healed_seconds = max(0.0, last_failure - over)
    async with Redis.from_url(scene.store_url, socket_timeout=10.0) as redis:
        await inspection.settled(redis, fleet, findings, drill.settles_seconds)
        await fleet.hold()
        findings.lost = await inspection.missing_announces(redis, fleet.promised)
        if drill.may_lose is not None and findings.lost > drill.may_lose:
            findings.complaints.append(f"{findings.lost} announces that were answered are lost")
        if drill.spares_the_living and (wrong := await inspection.reaped_wrongly(redis, fleet)):
            findings.complaints.append(f"{wrong} peers that announced in time had to join anew")
        await inspection.quiet_store(redis, findings)
    inspection.clients_view(fleet, fault, findings)

"""Runs an experiment: starts clients, injects the fault, waits for recovery, checks the results."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from loadtest.chaos import inspection
from loadtest.chaos.environment import INTERVAL_SECONDS, REAP_SECONDS, Environment, ExperimentError
from loadtest.chaos.inspection import Findings
from loadtest.clients.load import Load, Pace

WARM_UP_SECONDS = 5.0
HEALED_SECONDS = 15.0
"""After the fault all clients must be answered again within this time, unless an experiment says otherwise."""

SETTLED_SECONDS = 2 * REAP_SECONDS
GRACE_SECONDS = 60 + INTERVAL_SECONDS
PAUSED_SECONDS = GRACE_SECONDS + SETTLED_SECONDS
"""The same after an outage, a step of a clock or the loss of announces: all peers get time to announce."""

Fault = Callable[[Environment, Load], Awaitable[None]]
Setting = Callable[[Environment], None]


@dataclass(frozen=True, slots=True)
class Experiment:
    """``prepare`` starts trackers and store; ``fault`` returns when the fault is over."""

    name: str
    description: str
    fault: Fault
    prepare: Setting
    heals_seconds: float
    settles_seconds: float
    """How long after that a departed peer may still be listed."""
    may_lose: int | None
    """Answered announces that may be missing afterwards; None: any number."""
    keeps_active_peers: bool
    """Whether no peer that announces in time may be reaped."""


EXPERIMENTS: dict[str, Experiment] = {}
"""By name, in the order in which they run."""


class Skipped(Exception):
    """This machine cannot run the experiment; the text says why."""


@dataclass(slots=True)
class Outcome:
    """The result of one experiment. ``skipped``: why it did not run, or empty."""

    experiment: Experiment
    findings: Findings = field(default_factory=Findings)
    seconds: float = 0.0
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.skipped and not self.findings.complaints


def one_tracker(environment: Environment) -> None:
    """The default: one process with its private store."""
    environment.add_tracker()


def experiment(
    name: str,
    *,
    prepare: Setting = one_tracker,
    heals_seconds: float = HEALED_SECONDS,
    settles_seconds: float = SETTLED_SECONDS,
    may_lose: int | None = 0,
    keeps_active_peers: bool = True,
) -> Callable[[Fault], Fault]:
    """Registers a fault as an experiment; its docstring is the description, one sentence."""

    def register(fault: Fault) -> Fault:
        description = " ".join((fault.__doc__ or name).split()).removesuffix(".")
        EXPERIMENTS[name] = Experiment(
            name, description, fault, prepare, heals_seconds, settles_seconds, may_lose, keeps_active_peers
        )
        return fault

    return register


async def run(experiment: Experiment, directory: Path, pace: Pace, **settings: str) -> Outcome:
    """Runs one in ``directory``, with its own ports and processes; ``settings`` apply to its trackers."""
    outcome, environment, began = (Outcome(experiment), Environment(directory, settings=settings), time.monotonic())
    try:
        experiment.prepare(environment)
        load = Load(pace, [tracker.port for tracker in environment.trackers])
        async with load.running():
            await _run(experiment, environment, load, outcome.findings)
    except* Skipped as reasons:
        outcome.skipped = str(reasons.exceptions[0])
    except* ExperimentError as errors:
        outcome.findings.complaints += map(str, errors.exceptions)
    except* (RedisError, OSError) as errors:
        # A broken store fails this experiment only; the others must still run.
        outcome.findings.complaints += (f"{type(error).__name__}: {error}" for error in errors.exceptions)
    finally:
        with suppress(OSError):
            inspection.read_logs(environment, outcome.findings)
        environment.kill_all()
        outcome.seconds = time.monotonic() - began
    return outcome


async def _run(experiment: Experiment, environment: Environment, load: Load, findings: Findings) -> None:
    await asyncio.sleep(WARM_UP_SECONDS)
    if not await load.until(lambda: load.all_answered_since(0.0), 10.0):
        raise ExperimentError("not all clients were answered before the fault")
    fault = time.monotonic()
    await experiment.fault(environment, load)
    over = time.monotonic()
    load.settle()
    if not await load.until(lambda: load.all_answered_since(over), experiment.heals_seconds + load.pace.interval):
        findings.complaints.append(f"not all clients were answered {experiment.heals_seconds:g} s after the fault")
    last_failure = max((result.at for result in load.results if result.kind != "answered"), default=over)
    findings.healed_seconds = max(0.0, last_failure - over)
    async with Redis.from_url(environment.store_url, socket_timeout=10.0) as redis:
        await inspection.settled(redis, load, findings, experiment.settles_seconds)
        await load.pause()
        findings.lost = await inspection.missing_announces(redis, load)
        if experiment.may_lose is not None and findings.lost > experiment.may_lose:
            findings.complaints.append(f"{findings.lost} answered announces are lost")
        if experiment.keeps_active_peers and (wrong := await inspection.wrongly_reaped(redis, load)):
            findings.complaints.append(f"{wrong} peers that announced in time were reaped")
        await inspection.quiet_store(redis, findings)
    inspection.clients_view(load, fault, findings)

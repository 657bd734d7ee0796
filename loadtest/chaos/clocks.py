"""Clocks that are wrong or jump. Timeouts run on the store's clock, everything else on the tracker's."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from loadtest.chaos.environment import Environment, ExperimentError, until
from loadtest.chaos.experiment import PAUSED_SECONDS, Fault, Skipped, experiment
from loadtest.chaos.inspection import KEYS
from loadtest.clients.load import Load, Peer
from tracker.bittorrent import InfoHash, PeerId

_FAKETIME = "libfaketime.so.1"
HOUR, TWENTY_MINUTES, AWHILE_SECONDS = 3600, 1200, 20.0


def _store_with_clock(seconds: int) -> Callable[[Environment], None]:
    """An external store whose clock is ``seconds`` ahead; ``_set_clock`` changes it."""

    def prepare(environment: Environment) -> None:
        preload = _clock(environment, seconds)
        os.environ.update(preload)
        try:
            environment.start_server()
        finally:
            for name in preload:
                del os.environ[name]
        environment.add_tracker()

    return prepare


def _tracker_with_clock(environment: Environment) -> None:
    """Two web processes with a fake clock, and a store with the real one."""
    preload = _clock(environment, 0)
    environment.start_server()
    environment.add_tracker(TRACKER_HTTP__WORKERS="2", **preload)


def _both_with_clock(environment: Environment) -> None:
    """A tracker with its private store, as on one machine, with a fake clock."""
    environment.add_tracker(**_clock(environment, 0))


def _clock(environment: Environment, seconds: int) -> dict[str, str]:
    """Environment variables for processes whose clock is ``seconds`` ahead."""
    library = next(Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}"), None)
    if library is None:
        raise Skipped("libfaketime is not installed (apt install faketime)")
    _set_clock(environment, seconds)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(_file(environment)),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _file(environment: Environment) -> Path:
    return environment.directory / "clock"


def _set_clock(environment: Environment, seconds: int) -> None:
    new = _file(environment).with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.rename(_file(environment))


async def _jumped(environment: Environment, seconds: int) -> None:
    """Sets the clock, and waits until the store uses it."""
    _set_clock(environment, seconds)
    with environment.store() as store:
        await until(lambda: abs(store.time()[0] - time.time() - seconds) < 5, 10.0, "the store's clock jumps")


@experiment("clock-ahead", prepare=_store_with_clock(HOUR))
async def clock_ahead(environment: Environment, _: Load) -> None:
    """The store's clock is always an hour ahead of the tracker's."""
    _check_offset(environment, HOUR)


@experiment("clock-behind", prepare=_store_with_clock(-HOUR))
async def clock_behind(environment: Environment, _: Load) -> None:
    """The store's clock is always an hour behind the tracker's."""
    _check_offset(environment, -HOUR)


# All timeouts have ended. As after an outage, all peers get the time to announce before one is reaped.
@experiment("clock-jumps-ahead", prepare=_store_with_clock(0), settles_seconds=PAUSED_SECONDS)
async def clock_jumps_ahead(environment: Environment, _: Load) -> None:
    """The store's clock jumps an hour ahead."""
    await _jumped(environment, HOUR)


@experiment("clock-jumps-back", prepare=_store_with_clock(0))
async def clock_jumps_back(environment: Environment, _: Load) -> None:
    """The store's clock jumps an hour back."""
    await _jumped(environment, -HOUR)


@experiment("tracker-clock-jumps-ahead", prepare=_tracker_with_clock, settles_seconds=PAUSED_SECONDS)
async def tracker_clock_jumps_ahead(environment: Environment, load: Load) -> None:
    """The clock of a tracker with two web processes jumps an hour ahead; its store's does not."""
    await _tracker_jumped(environment, load, HOUR)


@experiment("tracker-clock-jumps-back", prepare=_tracker_with_clock, settles_seconds=PAUSED_SECONDS)
async def tracker_clock_jumps_back(environment: Environment, load: Load) -> None:
    """The clock of a tracker with two web processes jumps an hour back; its store's does not."""
    await _tracker_jumped(environment, load, -HOUR)


@experiment("clock-ahead-and-back", prepare=_store_with_clock(0), settles_seconds=PAUSED_SECONDS)
async def clock_ahead_and_back(environment: Environment, _: Load) -> None:
    """The store's clock jumps 20 minutes ahead, and 20 s later back."""
    await _jumped(environment, TWENTY_MINUTES)
    await asyncio.sleep(AWHILE_SECONDS)
    await _jumped(environment, 0)


@experiment("clock-back-and-ahead", prepare=_store_with_clock(0), settles_seconds=PAUSED_SECONDS)
async def clock_back_and_ahead(environment: Environment, _: Load) -> None:
    """The store's clock jumps 20 minutes back, and 2 s later ahead: a heartbeat may not notice it."""
    await _jumped(environment, -TWENTY_MINUTES)
    await asyncio.sleep(2.0)
    await _jumped(environment, 0)


def _there_and_back(description: str, seconds: int) -> Fault:
    async def fault(environment: Environment, load: Load) -> None:
        await _tracker_jumped(environment, load, seconds)
        await asyncio.sleep(AWHILE_SECONDS)
        await _tracker_jumped(environment, load, 0)

    fault.__doc__ = description
    return fault


_TRACKER = "The clock of a tracker with two web processes jumps"
_MACHINE = "The clock of a machine with a tracker and its private store jumps"
for _name, _prepare, _fault in (
    (
        "tracker-clock-ahead-and-back",
        _tracker_with_clock,
        _there_and_back(f"{_TRACKER} 20 minutes ahead, and 20 s later back.", TWENTY_MINUTES),
    ),
    (
        "both-clocks-ahead-and-back",
        _both_with_clock,
        _there_and_back(f"{_MACHINE} 20 minutes ahead, and 20 s later back.", TWENTY_MINUTES),
    ),
    (
        "both-clocks-back-and-ahead",
        _both_with_clock,
        _there_and_back(f"{_MACHINE} an hour back, and 20 s later ahead.", -HOUR),
    ),
):
    experiment(_name, prepare=_prepare, settles_seconds=PAUSED_SECONDS)(_fault)


async def _tracker_jumped(environment: Environment, load: Load, seconds: int) -> None:
    """Sets the clock, and waits until all processes use it. Meanwhile no peer joins: its time would be ambiguous."""
    load.settle()
    settled = time.monotonic()
    if not await load.until(lambda: load.all_answered_since(settled), 10.0):
        raise ExperimentError("not all clients were answered before the fault")
    _set_clock(environment, seconds)

    def is_jumped() -> bool:
        with environment.store() as store:
            times = [_last_announce(store, peer) for peer in load.active.values()]
        return all(abs(announced - time.time() - seconds) < 60 for announced in times)

    await until(is_jumped, 10.0, "the tracker's clock jumps")


def _last_announce(store: "redis.Redis", peer: Peer) -> int:
    torrent_id: Any = store.get(KEYS.info_hash(InfoHash(peer.info_hash)))
    announced: Any = store.hget(KEYS.peer(torrent_id.decode(), PeerId(peer.peer_id)), "last_announce")
    return int(announced or 0)


def _check_offset(environment: Environment, seconds: int) -> None:
    with environment.store() as store:
        if abs(store.time()[0] - time.time() - seconds) > 5:
            raise ExperimentError("the store's clock is right")

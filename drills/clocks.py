"""A clock is wrong, from the beginning or all of a sudden: timeouts run on the store's, everything else on the tracker's."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from drills.drill import Skipped, drill
from drills.fleet import Fleet, Peer
from drills.inspection import KEYS
from drills.scene import INTERVAL_SECONDS, REAP_SECONDS, DrillError, Scene, until
from tracker.bittorrent import InfoHash, PeerId

_FAKETIME = "libfaketime.so.1"
HOUR = 3600
GRACE_SECONDS = 60 + INTERVAL_SECONDS


def _store_with_clock(seconds: int) -> Callable[[Scene], None]:
    """A store of one's own, its clock so many seconds ahead; ``_turn`` sets it anew."""

    def prepare(scene: Scene) -> None:
        preload = _clock(scene, seconds)
        os.environ.update(preload)
        try:
            scene.start_server()
        finally:
            for name in preload:
                del os.environ[name]
        scene.add_tracker()

    return prepare


def _tracker_with_clock(scene: Scene) -> None:
    """Two web processes, whose store has a clock that is right."""
    preload = _clock(scene, 0)
    scene.start_server()
    scene.add_tracker(TRACKER_HTTP__WORKERS="2", **preload)


def _clock(scene: Scene, seconds: int) -> dict[str, str]:
    """The environment of processes whose clock is so many seconds ahead, until it is turned."""
    library = next(Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}"), None)
    if library is None:
        raise Skipped("it takes libfaketime (apt install faketime)")
    _turn(scene, seconds)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(_file(scene)),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _file(scene: Scene) -> Path:
    return scene.directory / "clock"


def _turn(scene: Scene, seconds: int) -> None:
    new = _file(scene).with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.rename(_file(scene))


async def _turned(scene: Scene, seconds: int) -> None:
    """Turns it and waits until the store has noticed."""
    _turn(scene, seconds)
    with scene.store() as store:
        await until(
            lambda: abs(store.time()[0] - time.time() - seconds) < 5, 10.0, "the store's clock is turned"
        )


@drill("clock-ahead", prepare=_store_with_clock(HOUR))
async def clock_ahead(scene: Scene, _: Fleet) -> None:
    """The store's clock is an hour ahead of the tracker's, all the time."""
    _check_offset(scene, HOUR)


@drill("clock-behind", prepare=_store_with_clock(-HOUR))
async def clock_behind(scene: Scene, _: Fleet) -> None:
    """The store's clock is an hour behind the tracker's, all the time."""
    _check_offset(scene, -HOUR)


# Timeouts have ended whether or not their peers are here: as after an outage, all get the time to announce before anybody is reaped.
@drill("clock-jumps-ahead", prepare=_store_with_clock(0), settles_seconds=GRACE_SECONDS + 2 * REAP_SECONDS)
async def clock_jumps_ahead(scene: Scene, _: Fleet) -> None:
    """The store's clock jumps an hour ahead."""
    await _turned(scene, HOUR)


@drill("clock-jumps-back", prepare=_store_with_clock(0))
async def clock_jumps_back(scene: Scene, _: Fleet) -> None:
    """The store's clock jumps an hour back."""
    await _turned(scene, -HOUR)


# What lies between two of its heartbeats then looks like an outage, after which all get that time too.
@drill(
    "tracker-clock-jumps-ahead",
    prepare=_tracker_with_clock,
    settles_seconds=GRACE_SECONDS + 2 * REAP_SECONDS,
)
async def tracker_clock_jumps_ahead(scene: Scene, fleet: Fleet) -> None:
    """The clock of a tracker with two web processes jumps an hour ahead, its store's does not."""
    await _tracker_turned(scene, fleet, HOUR)


@drill("tracker-clock-jumps-back", prepare=_tracker_with_clock)
async def tracker_clock_jumps_back(scene: Scene, fleet: Fleet) -> None:
    """The clock of such a tracker jumps an hour back."""
    await _tracker_turned(scene, fleet, -HOUR)


async def _tracker_turned(scene: Scene, fleet: Fleet, seconds: int) -> None:
    """Turns it and waits until all processes go by it. Nobody joins meanwhile: whose clock would say when?"""
    fleet.settle()
    settled = time.monotonic()
    if not await fleet.until(lambda: fleet.all_answered_since(settled), 10.0):
        raise DrillError("not everybody was answered before the fault")
    _turn(scene, seconds)

    def is_turned() -> bool:
        with scene.store() as store:
            times = [_last_announce(store, peer) for peer in fleet.aboard.values()]
        return all(abs(announced - time.time() - seconds) < 60 for announced in times)

    await until(is_turned, 10.0, "the tracker's clock is turned")


def _last_announce(store: "redis.Redis", peer: Peer) -> int:
    torrent_id: Any = store.get(KEYS.info_hash(InfoHash(peer.info_hash)))
    announced: Any = store.hget(KEYS.peer(torrent_id.decode(), PeerId(peer.peer_id)), "last_announce")
    return int(announced or 0)


def _check_offset(scene: Scene, seconds: int) -> None:
    with scene.store() as store:
        if abs(store.time()[0] - time.time() - seconds) > 5:
            raise DrillError("the store's clock is right")

"""The store's clock is wrong, from the beginning or all of a sudden: timeouts run on it, everything else on the trackers'."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from drills.drill import Skipped, drill
from drills.fleet import Fleet
from drills.scene import INTERVAL_SECONDS, REAP_SECONDS, DrillError, Scene, until

_FAKETIME = "libfaketime.so.1"
HOUR = 3600
GRACE_SECONDS = 60 + INTERVAL_SECONDS


def _store_with_clock(seconds: int) -> Callable[[Scene], None]:
    """A store of one's own, its clock so many seconds ahead; ``_turn`` sets it anew."""

    def prepare(scene: Scene) -> None:
        library = next(Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}"), None)
        if library is None:
            raise Skipped("it takes libfaketime (apt install faketime)")
        _turn(scene, seconds)
        preload = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(_file(scene)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        os.environ.update(preload)
        try:
            scene.start_server()
        finally:
            for name in preload:
                del os.environ[name]
        scene.add_tracker()

    return prepare


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


def _check_offset(scene: Scene, seconds: int) -> None:
    with scene.store() as store:
        if abs(store.time()[0] - time.time() - seconds) > 5:
            raise DrillError("the store's clock is right")

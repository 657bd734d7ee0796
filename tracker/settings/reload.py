"""Settings that change while the tracker serves: SIGHUP reads them again.

A port, the store's address or a number of processes changes by a restart only. A setting that a reload applies has a
type ``Reloaded``; docs/settings.md has a column for them.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tracker.errors import SettingsError
from tracker.settings.model import RELOADED, Settings, differences, values_of, variable, with_values
from tracker.system.logger import Logger

log = Logger("tracker")


@dataclass(frozen=True, slots=True)
class LastReload:
    """The result of the last SIGHUP at ``at`` (epoch s): names of variables and errors, without secrets."""

    at: float
    waiting: tuple[str, ...] = ()
    """Settings changed since the start that need a restart."""
    problems: tuple[str, ...] = ()
    """Why nothing changed."""


class Reload:
    """``read`` reads the settings as at the start; the signal sets ``requested``; ``clock`` gives epoch seconds."""

    def __init__(self, read: Callable[[], Settings], clock: Callable[[], float] = time.time) -> None:
        self._read = read
        self._clock = clock
        self.requested = asyncio.Event()
        self.last: LastReload | None = None

    async def run(self, settings: Settings, apply: Callable[[Settings], None]) -> None:
        """Runs until cancelled. ``settings`` are those of the start; ``apply`` receives changed settings."""
        while True:
            await self.requested.wait()
            self.requested.clear()
            try:
                wanted = await asyncio.to_thread(self._read)
            except SettingsError as error:
                problems = str(error).splitlines()
                waiting = self.last.waiting if self.last else ()
                self.last = LastReload(self._clock(), waiting, tuple(problems))
                log.error("settings are invalid; nothing changed", problems=problems)
                continue
            changed = [variable(*each) for each in differences(settings, wanted) if each in RELOADED]
            later = [variable(*each) for each in differences(settings, wanted) if each not in RELOADED]
            self.last = LastReload(self._clock(), tuple(later))
            if changed:
                settings = with_values(settings, values_of(wanted))
                apply(settings)
            log.info("settings reloaded", changed=changed)
            if later:
                log.warning("some settings need a restart", settings=later)

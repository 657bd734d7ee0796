"""Settings that change while the tracker serves: SIGHUP has them read again, and who goes by them told.

Not every setting can: a port, a store or a number of processes is taken once. Which can is the table here, and a column of
docs/settings.md.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from tracker.errors import SettingsError
from tracker.settings import FIELDS, Settings, variable
from tracker.settings_limits import LimitSettings

RELOADED: Mapping[str, frozenset[str]] = {
    "announce": frozenset(
        {
            "interval_seconds",
            "interval_jitter",
            "min_interval_seconds",
            "peers_default",
            "peers_max",
            "private_addresses",
        }
    ),
    "torrents": frozenset(
        {
            "mode",
            "max_torrents",
            "new_per_address_hour",
            "forget_after_seconds",
            "full_scrape",
            "max_scrape",
        }
    ),
    "users": frozenset(
        {"peer_memory_seconds", "hnr_min_bytes", "hnr_threshold_seconds", "max_credit_bytes_per_second"}
    ),
    "clients": frozenset({"allow_list"}),
    "reaper": frozenset({"interval_seconds"}),
    "geoip": frozenset({"database"}),
    "limits": frozenset(LimitSettings.model_fields),
    "log": frozenset({"level", "format"}),
}
"""By section: the settings that a running tracker takes over."""

log = structlog.get_logger("tracker")


def is_reloaded(section: str, name: str) -> bool:
    return name in RELOADED.get(section, ())


@dataclass(slots=True)
class Changes:
    """Who has to hear of other settings, in one process."""

    _followers: list[Callable[[Settings], None]] = field(default_factory=list)

    def follow(self, follower: Callable[[Settings], None]) -> None:
        """``follower`` is called with all settings in force whenever some of them have changed."""
        self._followers.append(follower)

    def tell(self, settings: Settings) -> None:
        for follower in self._followers:
            follower(settings)


def values_of(settings: Settings) -> dict[str, Any]:
    """What can change, as JSON takes it; no secret is among it."""
    included: Any = {section: set(names) for section, names in RELOADED.items()}
    return settings.model_dump(mode="json", include=included)


def with_values(settings: Settings, values: Mapping[str, Mapping[str, Any]]) -> Settings:
    """``settings`` with those of ``values_of``."""
    parts = {
        section: type(part).model_validate({**part.model_dump(), **values[section]})
        for section in values
        if (part := getattr(settings, section))
    }
    return settings.model_copy(update=parts)


def differences(old: Settings, new: Settings) -> Iterator[tuple[str, str]]:
    for section, name in FIELDS:
        if getattr(getattr(old, section), name) != getattr(getattr(new, section), name):
            yield section, name


class Reload:
    """``read`` reads the settings anew, as at the start; ``asked`` is set by the signal."""

    def __init__(self, read: Callable[[], Settings]) -> None:
        self._read = read
        self.asked = asyncio.Event()

    async def run(self, settings: Settings, take: Callable[[Settings], None]) -> None:
        """Runs until cancelled. ``settings`` are those of the start; ``take`` is given those in force when they change."""
        while True:
            await self.asked.wait()
            self.asked.clear()
            try:
                wanted = await asyncio.to_thread(self._read)
            except SettingsError as error:
                log.error("the settings are wrong, and stay as they were", problems=str(error).splitlines())
                continue
            settings = self._taken(settings, wanted, take)

    @staticmethod
    def _taken(settings: Settings, wanted: Settings, take: Callable[[Settings], None]) -> Settings:
        changed = [variable(*each) for each in differences(settings, wanted) if is_reloaded(*each)]
        waiting = [variable(*each) for each in differences(settings, wanted) if not is_reloaded(*each)]
        if changed:
            settings = with_values(settings, values_of(wanted))
            take(settings)
        log.info("settings reloaded", changed=changed)
        if waiting:
            log.warning("some settings need a restart", settings=waiting)
        return settings

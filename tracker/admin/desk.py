"""What the admin side works with: the stores, and what the running tracker knows of itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracker.geoip import GeoIP
from tracker.settings import Settings
from tracker.stores import Stores
from tracker.telemetry import Snapshot


@dataclass(slots=True)
class Desk:
    """Handed to every part of the admin side.

    ``telemetry`` gives the figures of all processes of this tracker, ``problems`` why it is not ready (nothing when it
    is), ``clock`` epoch seconds; ``settings`` are those in force, and others when they were reloaded; ``server`` names the store's server and version, ``listening`` what peers may connect
    to, with real ports.
    """

    stores: Stores
    settings: Settings
    places: GeoIP
    telemetry: Callable[[], Snapshot]
    problems: Callable[[], Sequence[str]]
    clock: Callable[[], float]
    server: str
    listening: tuple[str, ...] = ()

"""What a volunteer allows, and how long the program waits."""

from dataclasses import dataclass
from random import Random

ROUNDS_MISSING = 3
"""Rounds without a torrent after which it counts as removed from the client by its user. A client that starts lists
few."""
UNLISTED_SECONDS = 7 * 86_400.0
"""A torrent that the tracker did not list for so long is no longer needed. A tracker may lose its data for a while."""
DROP_CHANCE = 0.25
"""The chance that a torrent is dropped in a round, so that many volunteers with the same list do not all drop it at
once."""
_FIRST_RETRY_SECONDS = 15.0
_MAX_RETRY_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a volunteer allows. ``space`` is in bytes; 0: never more than the client's disk has."""

    space: int
    max_torrents: int
    auto_drop: bool = False
    delete_data: bool = False
    round_seconds: float = 300.0
    extend_seconds: float = 1800.0
    drop_chance: float = DROP_CHANCE


class Backoff:
    """Pauses after failures in a row. They double up to half an hour, and are drawn by chance."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def seconds(self, retry_seconds: float) -> float:
        """The pause after one more failure; at least ``retry_seconds``."""
        pause = min(_FIRST_RETRY_SECONDS * 2.0 ** min(self._failures, 30), _MAX_RETRY_SECONDS)
        self._failures += 1
        return retry_seconds + pause * self._random.uniform(0.5, 1.0)

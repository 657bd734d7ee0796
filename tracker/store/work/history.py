"""How many seeders a torrent had in the last three days, from its history of scorings.

Each point counts until the next one, so a point that is missing or late does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 259_200
MAX_POINTS = 72
_MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class PastSeeders:
    """What the points of a history say."""

    points: int
    first: int
    """The time of the first point (epoch s)."""
    average: float


def past_seeders(entries: Sequence[bytes], now: int) -> PastSeeders | None:
    """``entries`` are those of ``t:history:<tid>``, oldest first. Invalid ones, which a site may have written, are left
    out. None without a valid one."""
    points = [point for entry in entries if (point := _point(entry, now)) is not None]
    if not points:
        return None
    since, total = max(points[0][0], now - WINDOW_SECONDS), 0
    for (at, seeders), (till, _) in zip(points, [*points[1:], (now, 0)], strict=True):
        total += seeders * max(0, till - max(at, since))
    average = total / (now - since) if now > since else float(points[-1][1])
    return PastSeeders(len(points), points[0][0], average)


def _point(entry: bytes, now: int) -> tuple[int, int] | None:
    at, _, rest = entry.partition(b" ")
    seeders = rest.partition(b" ")[0]
    if not (at.isdigit() and seeders.isdigit() and len(at) <= 12 and len(seeders) <= 12):
        return None
    return (int(at), min(int(seeders), _MAX_COUNT)) if int(at) <= now else None

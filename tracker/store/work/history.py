"""How many seeders a torrent had in the last three days, from its history of scorings.

Each point counts until the next one, so a point that is missing or late does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 259_200
MAX_POINTS = 72
RENEWED_SECONDS = 259_200
"""A history is deleted a week after its last point."""
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
    till = now
    for at, seeders in reversed(points):
        begin = at if at > since else since
        if till > begin:
            total += seeders * (till - begin)
        till = at
    average = total / (now - since) if now > since else float(points[-1][1])
    return PastSeeders(len(points), points[0][0], average)


def needs_point(entries: Sequence[bytes], seeders: int, now: int) -> bool:
    """Whether a point is to be added for a torrent that scorings add none for: its seeders have changed, or the last
    point is old."""
    last = _point(entries[-1], now) if entries else None
    return last is None or last[1] != min(seeders, _MAX_COUNT) or last[0] <= now - RENEWED_SECONDS


def _point(entry: bytes, now: int) -> tuple[int, int] | None:
    at, *rest = entry.split(b" ", 2)
    if not (rest and at.isdigit() and rest[0].isdigit() and len(at) <= 12 and len(rest[0]) <= 12):
        return None
    return (int(at), min(int(rest[0]), _MAX_COUNT)) if int(at) <= now else None

"""The arithmetic of scores: how much a torrent's swarm, and what is new in it, moves its score.

A score says how much a torrent is worth looking at. It begins at START, each processing multiplies it by one factor, and a
torrent whose score falls below DROP_BELOW leaves the ranking: on the 8th processing that finds nobody, on the 24th that finds little.
"""

from collections.abc import Iterable
from dataclasses import dataclass

START = 1.0
DROP_BELOW = 0.005
EMPTY, WEAK, STRONG = 0.5, 0.8, 1.2
_NEW_SHARE = 20
"""A swarm is strong when one in so many of ``max_peers`` is new."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one tracker says of a torrent."""

    peers: int
    new: int
    """Peers that were not there at the processing before."""
    max_peers: int
    """A swarm of so many is not weak: what one announce there would be given."""


def factor(sources: Iterable[Source]) -> float:
    """The one factor of a processing: the most favourable of what the sources say; without any nobody is there."""
    return max((_factor(source) for source in sources), default=EMPTY)


def _factor(source: Source) -> float:
    if source.peers <= 0:
        return EMPTY
    if source.peers < source.max_peers or source.new * _NEW_SHARE < source.max_peers:
        return WEAK
    return STRONG


def next_score(score: float, by: float, cap: float) -> float | None:
    """``score`` after the factor ``by``, at most ``cap``; None when the torrent leaves the ranking."""
    after = min(score * by, cap)
    return after if after >= DROP_BELOW else None

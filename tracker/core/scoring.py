"""Arithmetic of torrent scores. A score measures how active a torrent is. It begins at START. Each scoring multiplies
it by one factor, which depends on the size of the swarm and on its new peers. A torrent whose score falls below
DROP_BELOW leaves the ranking: at the 8th scoring with an empty swarm, at the 24th with a weak one."""

from collections.abc import Iterable
from dataclasses import dataclass

START = 1.0
DROP_BELOW = 0.005
EMPTY, WEAK, STRONG = 0.5, 0.8, 1.2
_NEW_SHARE = 20
"""A swarm is strong when at least ``max_peers`` / 20 of its peers are new."""


@dataclass(frozen=True, slots=True)
class Source:
    """One tracker's numbers for a torrent."""

    peers: int
    new: int
    """Peers that joined since the previous scoring."""
    max_peers: int
    """The number of peers in one reply of that tracker. A smaller swarm is weak."""


def factor(sources: Iterable[Source]) -> float:
    """The factor of one scoring: the highest of all sources; EMPTY without a source."""
    return max((_factor(source) for source in sources), default=EMPTY)


def _factor(source: Source) -> float:
    if source.peers <= 0:
        return EMPTY
    if source.peers < source.max_peers or source.new * _NEW_SHARE < source.max_peers:
        return WEAK
    return STRONG


def next_score(score: float, by: float, cap: float) -> float | None:
    """``score`` times ``by``, at most ``cap``; None when the torrent leaves the ranking."""
    after = min(score * by, cap)
    return after if after >= DROP_BELOW else None

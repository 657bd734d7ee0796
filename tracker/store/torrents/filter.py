"""Which torrents a list has, its order, and the indexes for both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from tracker.names import fold, fold_name
from tracker.store.sharding.shards import Shard
from tracker.store.torrents.records import Enabled
from tracker.store.torrents.torrents import Torrent

Order = Literal["name", "size", "seeders", "leechers", "snatches", "score", "added", "last_activity"]
ORDERS: tuple[Order, ...] = get_args(Order)
VALUES = {"size": "size", "added": "added", "last_activity": "active"}
"""Orders by an index of ``Keys.torrent_list``."""
WHOLE_ORDERS = ("seeders", "leechers", "snatches", "added", "last_activity")
"""Orders that list all torrents."""
KeyOf = Callable[[Shard], str]
Check = Callable[[float | None], bool]


@dataclass(frozen=True, slots=True)
class TorrentFilter:
    """Which torrents a list has, and in which order. None: both. ``name``: a part of the name; its list is ordered by
    name."""

    order: Order = "seeders"
    descending: bool = True
    enabled: Enabled | None = None
    private: bool | None = None
    seeded: bool | None = None
    """Whether it has seeders."""
    name: str = ""

    @property
    def is_selective(self) -> bool:
        return bool(self.name) or self.flags > 0

    @property
    def is_descending(self) -> bool:
        return self.descending and not self.name

    @property
    def flags(self) -> int:
        """How many properties it selects by."""
        return 3 - [self.enabled, self.private, self.seeded].count(None)

    def fits(self, torrent: Torrent) -> bool:
        return (
            self.enabled in (None, torrent.switch)
            and self.private in (None, torrent.private)
            and self.seeded in (None, torrent.seeders > 0)
            and (not self.name or fold(self.name) in fold_name(torrent.name))
        )


def index_key(shard: Shard, order: str) -> str:
    return shard.keys.torrent_list(VALUES[order]) if order in VALUES else shard.keys.index(order)


class Index(NamedTuple):
    """Torrents with one property: those of an index with scores from ``lowest`` to ``highest``. ``order``: the sort
    order that the scores stand for."""

    key: KeyOf
    lowest: str
    highest: str
    order: Order


def indexes_of(wanted: TorrentFilter) -> list[Index]:
    """The indexes of the torrents that one property of the filter lets through. No index has enabled or public ones."""
    found: list[Index] = []
    if wanted.enabled in STATE_KEYS:
        found.append(Index(STATE_KEYS[wanted.enabled], "-inf", "+inf", "added"))
    if wanted.private:
        found.append(Index(private_key, "-inf", "+inf", "added"))
    if wanted.seeded is not None:
        lowest, highest = ("(0", "+inf") if wanted.seeded else ("-inf", "0")
        found.append(Index(seeders_key, lowest, highest, "seeders"))
    return found


def disabled_key(shard: Shard) -> str:
    return shard.keys.torrent_list("disabled")


def pending_key(shard: Shard) -> str:
    return shard.keys.torrent_list("pending")


STATE_KEYS: dict[Enabled | None, KeyOf] = {False: disabled_key, "pending": pending_key}
"""The indexes of torrents that are not enabled."""


def private_key(shard: Shard) -> str:
    return shard.keys.torrent_list("private")


def seeders_key(shard: Shard) -> str:
    return shard.keys.index("seeders")


def checks_of(wanted: TorrentFilter) -> list[tuple[KeyOf, Check]]:
    """Indexes, with what the score of a torrent that fits is in each; None: it is not in the index."""
    checks: list[tuple[KeyOf, Check]] = []
    if wanted.enabled is True:
        checks += [(key, _is_absent) for key in STATE_KEYS.values()]
    elif wanted.enabled is not None:
        checks.append((STATE_KEYS[wanted.enabled], _is_listed))
    if wanted.private is not None:
        checks.append((private_key, _is_listed if wanted.private else _is_absent))
    if wanted.seeded is not None:
        checks.append((seeders_key, lambda seeders: ((seeders or 0) > 0) == wanted.seeded))
    return checks


def _is_listed(score: float | None) -> bool:
    return score is not None


def _is_absent(score: float | None) -> bool:
    return score is None

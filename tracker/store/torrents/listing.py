"""Lists of torrents: which torrents, in which order."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from tracker.bittorrent import InfoHash
from tracker.names import fold, fold_name
from tracker.store.client.pipe import Argument
from tracker.store.sharding.listing import END, Condition, Filter, Listing, ListPage, page_of
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.torrents.hybrids import Hybrids
from tracker.store.torrents.records import Enabled, Torrent
from tracker.store.torrents.torrents import Torrents

Order = Literal["name", "size", "seeders", "leechers", "snatches", "score", "added", "last_activity"]
ORDERS: tuple[Order, ...] = get_args(Order)
_LISTS = {"last_activity": "active", **{each: each for each in ("size", "added", "disabled", "pending", "private")}}
"""Orders and properties with an index of ``Keys.torrent_list``."""
TORRENTS_A_CALL, RANKED_A_CALL = 250, 100
"""Torrents that one script call looks at, and that one ranks. Takes the store at most two milliseconds. Announces wait
for that call."""
CALLS_AT_ONCE = 4
"""The script calls of one round look at as many torrents in all shards as so many calls of a store with one shard."""
TORRENTS_A_PAGE = 7_000
"""Max torrents that are looked at for one page: takes the store about 40 ms. The next page continues from there."""
_MIN_LOOKED_AT, _SPARE = 10, 8
"""Torrents that a script call looks at, at least; and matches that a shard is asked for beyond twice its share."""


@dataclass(frozen=True, slots=True)
class TorrentFilter(Filter[Torrent]):
    """None: both."""

    order: Order = "seeders"
    descending: bool = True
    enabled: Enabled | None = None
    private: bool | None = None
    seeded: bool | None = None
    """Whether it has seeders."""
    name: str = ""

    @property
    def is_descending(self) -> bool:
        return self.descending and not self.name

    @property
    def switches(self) -> tuple[bool | str | None, ...]:
        return self.enabled, self.private, self.seeded

    @property
    def conditions(self) -> list[Condition]:
        """No index has enabled or public torrents."""
        found: list[Condition] = []
        if self.enabled is True:
            found += (Condition(state, "added", listed=False) for state in ("disabled", "pending"))
        elif self.enabled is not None:
            found.append(Condition(self.enabled or "disabled", "added"))
        if self.private is not None:
            found.append(Condition("private", "added", listed=self.private))
        if self.seeded is not None:
            found.append(Condition("seeders", "seeders", positive=self.seeded))
        return found

    def fits(self, torrent: Torrent) -> bool:
        return (
            self.enabled in (None, torrent.switch)
            and self.private in (None, torrent.private)
            and self.seeded in (None, torrent.seeders > 0)
            and (not self.name or fold(self.name) in fold_name(torrent.name))
        )


class _Match(NamedTuple):
    """A torrent that fits, its place in the order, and the position after it in the index of its shard."""

    key: tuple[float, bytes]
    info_hash: InfoHash
    position: int


class TorrentListing(Listing[TorrentFilter, Torrent]):
    """``torrents`` reads the rows of all shards. ``size``, ``added`` and ``last_activity`` follow announces, and what a
    site writes, within some minutes: see ``rank``."""

    kind = "torrents"
    whole = ("seeders", "leechers", "snatches", "added", "last_activity")

    def __init__(self, shards: Shards, torrents: Torrents, hybrids: Hybrids) -> None:
        super().__init__(shards, torrents.by_ids)
        self._torrents = torrents
        self._hybrids = hybrids

    async def page(self, wanted: TorrentFilter, offset: int = 0, count: int = 100) -> ListPage[Torrent]:
        """Returns ``count`` torrents from ``offset`` on, of a list without a filter. Orders ``name``, ``size`` and
        ``score`` list only torrents that have one."""
        total, pairs = await asyncio.gather(self.count(wanted.order), self._top(wanted.order, wanted, offset, count))
        if wanted.order == "name":
            hashes = [InfoHash(bytes.fromhex(entry[-40:])) for entry, _ in pairs]
            torrents = await self._torrents.get_all(hashes)
        else:
            torrents = await self._rows([torrent_id for torrent_id, _ in pairs])
        return page_of(torrents, offset, count, total)

    def _key(self, shard: Shard, index: str) -> str:
        return shard.keys.torrent_list(_LISTS[index]) if index in _LISTS else shard.keys.index(index)

    async def _by_name(self, ids: list[str], wanted: TorrentFilter, first: int, count: int) -> ListPage[Torrent]:
        """Sorted as the index of names is, without the torrents that have none."""
        torrents = await self._fitting_rows(ids, wanted)
        named = [(folded.encode(), each.info_hash.hex(), each) for each in torrents if (folded := fold_name(each.name))]
        named.sort(key=lambda row: row[:2], reverse=wanted.is_descending)
        return page_of([torrent for _, _, torrent in named[first : first + count]], first, count, len(named))

    async def _walk(
        self, wanted: TorrentFilter, positions: list[int] | None, first: int, count: int
    ) -> ListPage[Torrent]:
        began = positions or [0] * len(self._shards)
        walks = [_Walk(shard, position) for shard, position in zip(self._shards, began, strict=True)]
        left, found = TORRENTS_A_PAGE, list[InfoHash]()
        while len(found) < count:
            hungry = [walk for walk in walks if walk.is_hungry]
            if hungry and left <= 0:
                break
            if hungry:
                left -= await self._read_walks(hungry, wanted, count - len(found))
            found += _merged(walks, wanted, count - len(found))
            if not any(walk.is_hungry or walk.matches for walk in walks):
                break
        after = [walk.next_position for walk in walks]
        is_end = all(position == END for position in after)
        text = ".".join("e" if position == END else str(position) for position in after)
        return ListPage("" if is_end else f"w{text}", await self._torrents.get_all(found))

    async def _read_walks(self, walks: "Sequence[_Walk]", wanted: TorrentFilter, count: int) -> int:
        """Reads the next matches of some shards, of each some more than its share of ``count``. Returns about how many
        torrents were looked at. A shard that is unavailable is passed over."""
        looked_at = min(TORRENTS_A_CALL, max(_MIN_LOOKED_AT, TORRENTS_A_CALL * CALLS_AT_ONCE // len(walks)))
        some = min(count, 2 * count // len(walks) + _SPARE)
        found = await self._shards.run(
            lambda shard: shard.scripts.list_torrents,
            {walk.shard: walk.arguments(wanted, looked_at, some) for walk in walks},
        )
        for walk in walks:
            walk.take(wanted, *found.get(walk.shard, (END, [])))
        return looked_at * len(walks)

    async def _rank(self, shard: Shard, cursor: bytes) -> tuple[bytes, int]:
        after, ranked, halves = await shard.scripts.rank_torrents([cursor, RANKED_A_CALL])
        if halves:  # an announce cannot look at a half in another shard
            await self._hybrids.end_broken([InfoHash(bytes.fromhex(each.decode())) for each in halves])
        return after, int(ranked)


class _Walk:
    """A walk through the index of one shard. ``matches``: those read and not used yet, in order."""

    def __init__(self, shard: Shard, position: int) -> None:
        self.shard = shard
        self.position = position
        self.matches: deque[_Match] = deque()

    @property
    def is_hungry(self) -> bool:
        """Whether the next match is unknown."""
        return not self.matches and self.position != END

    @property
    def next_position(self) -> int:
        return self.matches[0].position - 1 if self.matches else self.position

    def arguments(self, wanted: TorrentFilter, looked_at: int, count: int) -> list[Argument]:
        """Those of list_torrents.lua."""
        order = "name" if wanted.name else wanted.order
        index = f"torrent_{_LISTS[order]}" if order in _LISTS else order
        return [index, int(wanted.is_descending), self.position, looked_at, count, *wanted.arguments(), ""]

    def take(self, wanted: TorrentFilter, position: int, found: list[Any]) -> None:
        """``position`` and ``found``: the answer of the script."""
        by_entry = wanted.name or wanted.order == "name"
        self.position = position
        for info_hash, after, key in zip(found[::3], found[1::3], found[2::3], strict=True):
            place = (0.0, key) if by_entry else (float(key), b"")
            self.matches.append(_Match(place, InfoHash(bytes.fromhex(info_hash.decode())), after))


def _merged(walks: Sequence[_Walk], wanted: TorrentFilter, count: int) -> list[InfoHash]:
    """The next matches of all shards, in order, as far as they are known."""
    if any(walk.is_hungry for walk in walks):
        return []
    matches = [(match.key, walk) for walk in walks for match in walk.matches]
    matches.sort(key=lambda pair: pair[0], reverse=wanted.is_descending)
    found: list[InfoHash] = []
    for _, walk in matches[:count]:
        found.append(walk.matches.popleft().info_hash)
        if walk.is_hungry:
            break
    return found

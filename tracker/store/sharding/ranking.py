"""Sorted sets of all shards as one: a page of it from any offset.

Each shard is asked for some more than its share of a page, and again only if all that it gave belong to the page. The
shards are not read from the beginning to a deep page: a search finds the place in each where the page begins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tracker.store.sharding.shards import Shard, Shards

MAX_SKIPPED = 500
"""Entries before a page, in all shards together, that are read with it."""
_SPARE = 8
"""Entries that a shard is asked for beyond twice its share."""
_ROUNDS = 3
"""Rounds of the search for a place that expect similar sets in all shards. Later ones halve the sets."""

KeyOf = Callable[[Shard], str]


class _Entry(NamedTuple):
    """In the order of a sorted set."""

    score: float
    member: bytes


async def top_of(
    shards: Shards, key_of: KeyOf, count: int, offset: int, *, ascending: bool = False
) -> list[tuple[str, float]]:
    """``count`` pairs (member, score) from ``offset`` on, of the sorted sets of all shards together: highest score
    first, unless ``ascending``. Members with equal scores are in the order of one sorted set."""
    if count <= 0:
        return []
    ranking = _Ranking(shards, key_of, ascending=ascending)
    first = await ranking.places(offset) if offset > MAX_SKIPPED else dict.fromkeys(shards, 0)
    skipped = offset - sum(first.values())
    found = await ranking.read(first, skipped + count)
    return [(member.decode("utf-8", "replace"), score) for score, member in found[skipped:]]


class _Ranking:
    """The sorted sets of one key in all shards, in one direction."""

    def __init__(self, shards: Shards, key_of: KeyOf, *, ascending: bool) -> None:
        self._shards = shards
        self._key_of = key_of
        self._descending = not ascending
        self._order = () if ascending else ("REV",)

    async def read(self, first: Mapping[Shard, int], wanted: int) -> list[_Entry]:
        """The next entries, at most ``wanted``, after the ``first`` ones of each shard."""
        some = min(wanted, 2 * wanted // len(self._shards) + _SPARE)
        parts = await self._read(first, 0, some)
        merged = self._merged(parts.values())
        page = set(merged[:wanted])
        more = {
            shard: first[shard]
            for shard, part in parts.items()
            if some < wanted and len(part) == some and part[-1] in page
        }
        if more:
            rest = await self._read(more, some, wanted)
            merged = self._merged([*parts.values(), *rest.values()])
        return merged[:wanted]

    async def _read(self, first: Mapping[Shard, int], begin: int, end: int) -> dict[Shard, list[_Entry]]:
        found = await self._shards.each(
            lambda shard: (
                *("ZRANGE", self._key_of(shard), first[shard] + begin, first[shard] + end - 1),
                *(*self._order, "WITHSCORES"),
            ),
            list(first),
        )
        return {
            shard: [_Entry(float(s), member) for member, s in zip(flat[::2], flat[1::2], strict=True)]
            for shard, flat in found.items()
        }

    def _merged(self, parts: Iterable[list[_Entry]]) -> list[_Entry]:
        return sorted((entry for part in parts for entry in part), reverse=self._descending)

    async def places(self, offset: int) -> dict[Shard, int]:
        """How many entries of each shard are before a page at ``offset``, or at most MAX_SKIPPED fewer of all shards.
        Each round chooses an entry near the offset. Its place in each shard says on which side of it the page
        begins."""
        ends = await self._shards.each(lambda shard: ("ZCARD", self._key_of(shard)))
        total = sum(ends.values())
        starts = {shard: min(size, max(0, offset - (total - size))) for shard, size in ends.items()}
        rounds = 0
        while (left := offset - sum(starts.values())) > MAX_SKIPPED:
            sizes = {shard: ends[shard] - start for shard, start in starts.items() if start < ends[shard]}
            if not sizes:
                break
            rounds += 1
            share = min(1.0, (left - MAX_SKIPPED / 2) / sum(sizes.values())) if rounds <= _ROUNDS else 0.5
            tried = {shard: starts[shard] + int((size - 1) * share) for shard, size in sizes.items()}
            entries = await self._read(tried, 0, 1)
            for shard in sizes:
                if not entries.get(shard):  # entries were removed meanwhile, or the shard is unavailable
                    ends[shard] = tried[shard]
            chosen = self._median({shard: (part[0], sizes[shard]) for shard, part in entries.items() if part})
            if chosen is None:
                continue
            before = await self._before(entries[chosen][0], [shard for shard in starts if shard is not chosen])
            before[chosen] = tried[chosen]
            is_before = sum(before.values()) < offset
            for shard, number in before.items():
                if is_before:
                    starts[shard] = min(max(number, starts[shard]), ends[shard])
                else:
                    ends[shard] = max(min(number, ends[shard]), starts[shard])
            starts[chosen] += is_before
        return starts

    def _median(self, weighted: Mapping[Shard, tuple[_Entry, int]]) -> Shard | None:
        """The shard of the entry in the middle."""
        half = sum(size for _, size in weighted.values()) / 2
        for shard, (_, size) in sorted(weighted.items(), key=lambda pair: pair[1][0], reverse=self._descending):
            half -= size
            if half <= 0:
                return shard
        return None

    async def _before(self, entry: _Entry, shards: Sequence[Shard]) -> dict[Shard, int]:
        """How many entries of each shard are before an entry of another one."""
        return await self._shards.run(
            lambda shard: shard.scripts.count_before,
            {
                shard: [
                    self._key_of(shard).removeprefix(shard.keys.prefix),
                    int(self._descending),
                    repr(entry.score),
                    entry.member,
                ]
                for shard in shards
            },
        )

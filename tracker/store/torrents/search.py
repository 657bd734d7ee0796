"""Finds torrents by a part of their name or by the first digits of their info hash, in all shards.

The sorted indexes `t:i:name` and `t:i:info_hash` make a walk through the key space unnecessary. An info-hash prefix
is a range lookup. A part of a name needs a scan of all names, NAMES_A_CALL in each script call.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tracker.bittorrent import HASH_LENGTH, InfoHash
from tracker.errors import ClientError, StoreUnavailable
from tracker.names import fold
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Part, Shard, Shards

NAMES_A_CALL = 1000
"""Torrents read in one call: more would block announces for longer than a millisecond."""
NAMES_A_PAGE = 50_000
"""Max names scanned for one page: takes the store about 50 ms. The next page continues from there."""
NAMES_AT_ONCE = 4 * NAMES_A_CALL
"""Names that the script calls of one round look at, in all shards: announces wait for the calls on the same node."""
HASHES_A_CALL = 500
SURE_DIGITS = 4
"""From this many hex digits on, the text more likely means an info hash than a part of a name."""
_HEX = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
_OF_SHARDS = re.compile(r"([0-9]{1,3})-([^-]*)", re.ASCII)
_CURSOR = re.compile(r"([hn])([0-9]{1,12})", re.ASCII)
SCORE_DIGITS = 13
"""A sorted-set score holds this many hex digits exactly."""
END = -1

Phase = Callable[[int, int], Awaitable[tuple[int, list[InfoHash]]]]


async def search_shards(shards: Shards, text: str, count: int, cursor: str) -> tuple[str, list[InfoHash]]:
    """Returns (next cursor, at most ``count`` info hashes). Small shards are searched at once."""
    match = _OF_SHARDS.fullmatch(cursor or "0-")
    if match is None or int(match[1]) >= len(shards):
        raise ClientError("invalid cursor")
    own, left_shards = match[2], list(shards)[int(match[1]) :]
    sizes = await shards.each(lambda shard: ("ZCARD", shard.keys.index("name")))
    found, seen = list[InfoHash](), 0
    while left_shards and seen < NAMES_A_PAGE and len(found) < count:
        some = _fitting(left_shards, sizes)
        seen += sum(sizes.get(shard, 0) for shard in some)
        starts = [own, *[""] * (len(some) - 1)]
        pages = await asyncio.gather(
            *(
                _search_in(shards, shard, text, count - len(found), start)
                for shard, start in zip(some, starts, strict=True)
            )
        )
        for shard, start, page in zip(some, starts, pages, strict=True):
            left = count - len(found)
            if not left:
                return f"{shard.number}-", found
            # Only now it is known how many of this shard the page has room for.
            fits = len(page[1]) <= left
            after, more = page if fits else await _search_in(shards, shard, text, left, start)
            found += more
            if after:
                return f"{shard.number}-{after}", found
        left_shards, own = left_shards[len(some) :], ""
    return f"{left_shards[0].number}-" if left_shards else "", found


async def _search_in(shards: Shards, shard: Shard, text: str, count: int, cursor: str) -> tuple[str, list[InfoHash]]:
    """The next cursor and the results of one shard; none while it is unavailable."""
    digits = _digits_of(text)
    may_have_hashes = len(digits) < 2 or int(digits[:2], 16) % len(shards) == shard.number
    try:
        return await Search(shard, text, hashes=may_have_hashes).page(count, cursor)
    except StoreUnavailable as error:
        shards.leave_out([shard.number], error)
        return "", []


def _fitting(shards: Sequence[Shard], names: Mapping[Shard, int]) -> list[Shard]:
    """The first shards that have at most NAMES_AT_ONCE names, at least one shard."""
    found, left = [shards[0]], NAMES_AT_ONCE - names.get(shards[0], 0)
    for shard in shards[1:]:
        left -= names.get(shard, 0)
        if left < 0:
            break
        found.append(shard)
    return found


class Search(Part):
    """The search for one text in one shard. ``hashes``: also for info hashes that begin with it."""

    def __init__(self, shard: Shard, text: str, *, hashes: bool = True) -> None:
        super().__init__(shard)
        self._part = fold(text)
        self._digits = _digits_of(text) if hashes else ""

    async def page(self, count: int, cursor: str) -> tuple[str, list[InfoHash]]:
        """Returns (next cursor, at most ``count`` info hashes). The cursor is '' at the end. Raises ClientError for an
        invalid cursor."""
        phases: dict[str, Phase] = {"n": self._names}  # the more likely one first
        if len(self._digits) >= SURE_DIGITS:
            phases = {"h": self._hashes, "n": self._names}
        elif self._digits:
            phases["h"] = self._hashes
        match = _CURSOR.fullmatch(cursor or f"{next(iter(phases))}0")
        if not match:
            raise ClientError("invalid cursor")
        name, position = match[1], int(match[2])
        if name not in phases:
            raise ClientError("this cursor belongs to another search")
        found: list[InfoHash] = []
        for phase in list(phases)[list(phases).index(name) :]:
            position, more = await phases[phase](position, count - len(found))
            found += more
            if position != END:
                return f"{phase}{position}", found
            position = 0
        return "", found

    async def _names(self, position: int, wanted: int) -> tuple[int, list[InfoHash]]:
        found: list[InfoHash] = []
        stop = position + NAMES_A_PAGE
        while len(found) < wanted and position != END and position < stop:
            left = wanted - len(found)
            walk: list[Argument] = ["name", 0, position, NAMES_A_CALL, left]
            position, more = await self._scripts.list_torrents([*walk, "", "", "", self._part, self._digits])
            found += (InfoHash(bytes.fromhex(info_hash.decode())) for info_hash in more[::3])
        return position, found

    async def _hashes(self, position: int, wanted: int) -> tuple[int, list[InfoHash]]:
        if len(self._digits) == 2 * HASH_LENGTH:  # also finds a known torrent that is in no index
            return (END, [InfoHash(bytes.fromhex(self._digits))]) if wanted else (position, [])
        # The range of those that begin with the first SCORE_DIGITS digits.
        digits, index = self._digits[:SCORE_DIGITS], self._keys.info_hashes()
        lowest, highest = (int(digits.ljust(SCORE_DIGITS, filling), 16) for filling in "0f")
        first, end = await self._connection.replies(
            ("ZCOUNT", index, "-inf", f"({lowest}"), ("ZCOUNT", index, "-inf", highest)
        )
        found: list[InfoHash] = []
        while len(found) < wanted and first + position < end:
            begin = first + position
            last = min(end, begin + wanted - len(found), begin + HASHES_A_CALL) - 1
            ids = await self._connection.command("ZRANGE", index, begin, last)
            if not ids:
                break
            position += len(ids)
            hexed = await self._connection.command("MGET", *(self._keys.torrent_id(i.decode()) for i in ids))
            texts = [text.decode() for text in hexed if text]
            found += (InfoHash(bytes.fromhex(text)) for text in texts if text.startswith(self._digits))
        return (position if first + position < end else END), found


def _digits_of(text: str) -> str:
    """The text as the beginning of an info hash; empty if none begins so."""
    digits = text.strip().lower()
    return digits if _HEX.fullmatch(digits) else ""

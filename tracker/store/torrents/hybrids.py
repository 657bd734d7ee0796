"""Hybrid torrents (BEP 52): a v1 and a v2 info hash of one .torrent file. Each half has a swarm of its own, and the v1
half counts for users.

The halves may be in different shards, so a link takes two steps, first at the v1 half. Each step checks its own half:
whatever is linked at the same time, a half gets no half of its own.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.sharding.shards import Shard, StorePart

_OF_V1, _OF_V2 = ("hybrid", "hybrid_of"), ("hybrid_of", "hybrid")
"""The field of a half, and the one that it may not have."""
V1_IS_UNREGISTERED = "the torrent that hybrid_of names is not registered"


class _Half(NamedTuple):
    """``hybrid_of``: the v1 half of this v2 half. ``hybrid``: the v2 half of this v1 half."""

    hybrid_of: InfoHash | None
    hybrid: InfoHash | None
    registered: bool


class Hybrids(StorePart):
    async def link(self, v2: InfoHash, v1: InfoHash) -> None:
        """Makes two registered torrents the halves of one. Raises ClientError for one that is not registered, and
        Conflict for a half of another torrent."""
        await self.check(v2, v1)
        if not await self._set(v1, _OF_V1, v2):
            raise ClientError(V1_IS_UNREGISTERED)
        try:
            if not await self._set(v2, _OF_V2, v1):
                raise ClientError("unknown torrent")
        except ClientError:
            await self._unset(v1, v2.hex())
            raise

    async def check(self, v2: InfoHash, v1: InfoHash) -> None:
        """Raises Conflict as ``link`` does."""
        if v1 == v2:
            raise Conflict("a torrent is no half of itself")
        await self._set(v1, _OF_V1, v2, only_check=True)
        await self._set(v2, _OF_V2, v1, only_check=True)

    async def _set(
        self, info_hash: InfoHash, fields: tuple[str, str], other: InfoHash, *, only_check: bool = False
    ) -> bool:
        """False if the torrent is not registered. Raises Conflict."""
        link = self._shards.of(info_hash).scripts.link
        answer = await link([info_hash.hex(), *fields, other.hex(), int(only_check)])
        if answer < 0:
            which = "the torrent that hybrid_of names" if fields is _OF_V1 else "this torrent"
            raise Conflict(f"{which} is a half of another hybrid torrent: end that link first")
        return bool(answer)

    async def unlink(self, info_hash: InfoHash) -> None:
        """Ends the link of a torrent, whichever half it is."""
        other = info_hash_of(await self._unset(info_hash))
        if other is not None:
            await self._unset(other, info_hash.hex())

    async def _unset(self, info_hash: InfoHash, other: str = "") -> bytes | None:
        """Returns the other half. ``other``: does nothing if it is another one."""
        found: bytes | None = await self._shards.of(info_hash).scripts.unlink([info_hash.hex(), other])
        return found

    async def end_broken(self, v2_halves: Sequence[InfoHash]) -> None:
        """Ends the links of those whose v1 half is not registered, or is a v2 half: a site wrote that. Does nothing
        while a shard is unavailable."""
        with suppress(StoreUnavailable):
            for each, counting in zip(v2_halves, await self.counting(v2_halves), strict=True):
                if counting == each:
                    await self.unlink(each)

    async def others(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, InfoHash]:
        """The other halves of those torrents that are halves, where both name each other."""
        halves = await self._read(info_hashes)
        named = {each: other for each, half in halves.items() if (other := half.hybrid_of or half.hybrid)}
        back = await self._read(list(named.values()))
        return {
            each: other
            for each, other in named.items()
            if (back[other].hybrid if halves[each].hybrid_of else back[other].hybrid_of) == each
        }

    async def counting(self, info_hashes: Sequence[InfoHash]) -> list[InfoHash]:
        """For each torrent, in order, the one that counts for users: the v1 half of a v2 half, else itself."""
        halves = await self._read(info_hashes)
        v1 = await self._read([half.hybrid_of for half in halves.values() if half.hybrid_of])
        counts = {each for each, half in v1.items() if half.registered and half.hybrid_of is None}
        return [of if (of := halves[each].hybrid_of) in counts and of else each for each in info_hashes]

    async def _read(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, _Half]:
        """A torrent with a key of a wrong type is no half."""
        unique = list(dict.fromkeys(info_hashes))
        commands: list[tuple[Shard, tuple[str, ...]]] = []
        for info_hash in unique:
            shard = self._shards.of(info_hash)
            commands.append((shard, ("HMGET", shard.keys.torrent(info_hash), "hybrid_of", "hybrid")))
            commands.append((shard, ("EXISTS", shard.keys.info_hash(info_hash))))
        replies = await self._shards.send(commands, keep_errors=True) if commands else []
        found: dict[InfoHash, _Half] = {}
        for info_hash, fields, registered in zip(unique, replies[::2], replies[1::2], strict=True):
            of, v2 = (None, None) if isinstance(fields, Exception) else map(info_hash_of, fields)
            found[info_hash] = _Half(of, v2, registered == 1)
        return found

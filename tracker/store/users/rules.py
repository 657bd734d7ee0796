"""The multipliers for all users."""

from collections.abc import Sequence

from tracker.store.schema.multipliers import (
    RuleChange,
    Rules,
    checked_multipliers,
    has_changed,
    multipliers_of,
)
from tracker.store.sharding.shards import Shard, Shards


class Multipliers:
    """The multipliers for all users, with copies in the other shards. A change applies from the next announce."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._main = shards.main

    async def get(self) -> tuple[Rules, Rules]:
        """(of upload, of download)"""
        found = await self._texts()
        upload, download = (multipliers_of(text.decode("utf-8", "replace")) for text in found)
        return upload, download

    async def _texts(self) -> list[bytes]:
        return [text or b"" for text in await self._main.connection.command("MGET", *_keys_in(self._main))]

    async def set(self, upload: str | None = None, download: str | None = None) -> None:
        """Replaces the rules of upload, those of download, or both, each as stored. Raises ClientError if one is
        invalid."""
        given = zip(_keys_in(self._main), (upload, download), strict=True)
        pairs = [part for key, text in given if text is not None for part in (key, checked_multipliers(text))]
        await self._main.connection.command("MSET", *pairs)
        await self._copy_to_others()

    async def change_rule(self, change: RuleChange) -> bool:
        """Sets or removes one rule. False if there is none to remove. Raises ClientError for too many."""
        changed = has_changed(await self._main.scripts.set_rule(change.arguments()))
        await self._copy_to_others()
        return changed

    async def _copy_to_others(self) -> None:
        """One that is unavailable gets them when it is back."""
        await self._shards.gather(self.copy_to, self._shards.others)

    async def outdated(self, shards: Sequence[Shard]) -> list[Shard]:
        """Those that have other ones than the main prefix. One round trip for each node."""
        wanted = await self._texts()
        found = await self._shards.send([(shard, ("MGET", *_keys_in(shard))) for shard in shards])
        return [
            shard
            for shard, copies in zip(shards, found, strict=True)
            if [text or b"" for text in copies] != wanted
        ]

    async def copy_to(self, shard: Shard) -> None:
        """Raises StoreUnavailable; a later call heals that."""
        texts = zip(_keys_in(shard), await self._texts(), strict=True)
        await shard.connection.command("MSET", *(part for pair in texts for part in pair))


def _keys_in(shard: Shard) -> tuple[str, str]:
    return shard.keys.upload_multiplier(), shard.keys.download_multiplier()

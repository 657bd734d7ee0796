"""The multipliers for all users."""

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import (
    RuleChange,
    Rules,
    checked_multipliers,
    has_changed,
    multipliers_of,
)


class Multipliers:
    """The multipliers for all users. A change applies from the next announce."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = {"upload": keys.upload_multiplier(), "download": keys.download_multiplier()}

    async def get(self) -> tuple[Rules, Rules]:
        """(of upload, of download)"""
        found = await self._connection.command("MGET", *self._keys.values())
        upload, download = (multipliers_of((text or b"").decode("utf-8", "replace")) for text in found)
        return upload, download

    async def set(self, upload: str | None = None, download: str | None = None) -> None:
        """Replaces the rules of upload, those of download, or both, each as stored. Raises ClientError if one is
        invalid."""
        given = {"upload": upload, "download": download}
        texts = {name: checked_multipliers(text) for name, text in given.items() if text is not None}
        pairs = [part for name, text in texts.items() for part in (self._keys[name], text)]
        await self._connection.command("MSET", *pairs)

    async def change_rule(self, change: RuleChange) -> bool:
        """Sets or removes one rule. False if there is none to remove. Raises ClientError for too many."""
        return has_changed(await self._scripts.set_rule(change.arguments()))

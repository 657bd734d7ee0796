"""Rules for users: fields of a user's row that change what counts for the user, and the multipliers for everybody."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import (
    MULTIPLIERS,
    NO_MULTIPLIER,
    RuleChange,
    Rules,
    checked_multipliers,
    has_changed,
    multipliers_of,
)

RULE_FIELDS = (*MULTIPLIERS, "max_downloads", "hnr_exempt")
"""The fields of `t:user:<passkey>` that hold a user's rules."""
LIMIT = re.compile(r"[0-9]{1,6}", re.ASCII)
"""A valid `max_downloads`."""


@dataclass(frozen=True, slots=True)
class UserRules:
    """What applies to one user."""

    upload_multiplier: Rules = NO_MULTIPLIER
    download_multiplier: Rules = NO_MULTIPLIER
    max_downloads: int | None = None
    """Torrents that the user downloads at once; 0: any number, None: as many as the setting allows."""
    hnr_exempt: bool = False
    """The user gets no hit-and-runs."""


def rules_of(values: Sequence[str]) -> UserRules:
    """Parses the values of RULE_FIELDS; an invalid one, which a site may have written, counts as absent."""
    upload, download, limit, exempt = values
    max_downloads = int(limit) if LIMIT.fullmatch(limit) else None
    return UserRules(multipliers_of(upload), multipliers_of(download), max_downloads, exempt == "1")


class Multipliers:
    """The multipliers for everybody. A change applies from the next announce."""

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

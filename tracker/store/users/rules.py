"""Rules for users: fields of a user's row that change what counts for the user, and the multipliers for everybody."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import (
    NO_MULTIPLIER,
    Multiplier,
    checked_multiplier,
    multiplier_field,
    multiplier_of,
)

_LIMIT = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UserRules:
    """What applies to one user."""

    upload_multiplier: Multiplier = NO_MULTIPLIER
    download_multiplier: Multiplier = NO_MULTIPLIER
    max_downloads: int | None = None
    """Torrents that the user downloads at once; 0: any number, None: as many as the setting allows."""
    hnr_exempt: bool = False
    """The user gets no hit-and-runs."""


def _checked_limit(text: str) -> str:
    if text and not _LIMIT.fullmatch(text):
        raise ClientError("max_downloads is a whole number of at most 6 digits")
    return text


def _checked_flag(text: str) -> str:
    if text not in ("0", "1"):
        raise ClientError("hnr_exempt is 0 or 1")
    return text


RULE_FIELDS = ("upload_multiplier", "download_multiplier", "max_downloads", "hnr_exempt")
"""The fields of `t:user:<passkey>` that hold a user's rules."""
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "upload_multiplier": checked_multiplier,
    "download_multiplier": checked_multiplier,
    "max_downloads": _checked_limit,
    "hnr_exempt": _checked_flag,
}


def rules_of(values: Sequence[str]) -> UserRules:
    """Parses the values of RULE_FIELDS; an invalid one, which a site may have written, counts as absent."""
    upload, download, limit, exempt = values
    max_downloads = int(limit) if _LIMIT.fullmatch(limit) else None
    return UserRules(multiplier_of(upload), multiplier_of(download), max_downloads, exempt == "1")


def checked_rules(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields as stored. Raises ClientError for an unknown field or an invalid value."""
    if not fields.keys() <= _CHECKS.keys():
        raise ClientError("a user has no such field")
    return {name: _CHECKS[name](text) for name, text in fields.items()}


def rule_fields(given: Mapping[str, Any]) -> dict[str, str]:
    """The stored fields for Users.edit_rules, from those of the API that are given. Raises ClientError for the end of a
    multiplier without the multiplier."""
    names = ("upload_multiplier", "download_multiplier")
    texts = {name: multiplier_field(name, given.get(name), given.get(f"{name}_until")) for name in names}
    limit, exempt = given.get("max_downloads"), given.get("hnr_exempt")
    texts["max_downloads"] = None if limit is None else "" if limit < 0 else str(limit)
    texts["hnr_exempt"] = None if exempt is None else str(int(exempt))
    return {name: text for name, text in texts.items() if text is not None}


class Multipliers:
    """The multipliers for everybody. A change applies from the next announce."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = {"upload": keys.upload_multiplier(), "download": keys.download_multiplier()}

    async def get(self) -> tuple[Multiplier, Multiplier]:
        """(of upload, of download)"""
        found = await self._connection.command("MGET", *self._keys.values())
        upload, download = (multiplier_of((text or b"").decode("utf-8", "replace")) for text in found)
        return upload, download

    async def set(self, upload: str, download: str) -> None:
        """Replaces both, each as stored. Raises ClientError if one is invalid."""
        texts = {"upload": checked_multiplier(upload), "download": checked_multiplier(download)}
        pairs = [part for name, text in texts.items() for part in (self._keys[name], text)]
        await self._connection.command("MSET", *pairs)

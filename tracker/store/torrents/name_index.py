"""How torrents are listed: the names they are found by, and bringing those into the index that are missing there."""

import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.exceptions import OutOfMemoryError

from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

NAME_CHARACTERS = 255
"""So much of a name is searched."""
_SEPARATORS = re.compile(r"[\s\x00-\x1f\x7f]+")


def fold(text: str) -> str:
    """A name, or a part of one, as it is compared: in one case, one form of each letter, one space between words."""
    letters = unicodedata.normalize("NFKC", text[:NAME_CHARACTERS]).casefold()
    return _SEPARATORS.sub(" ", letters)[:NAME_CHARACTERS]


def fold_name(text: str) -> str:
    """The name that a torrent is listed by; empty for one without a name."""
    return fold(text).strip()


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A torrent that is, or may be, not listed as it should. ``certain``: it is, whatever its name is."""

    info_hash: str
    torrent_id: str
    name: bytes
    listed: bytes
    certain: bool

    @property
    def folded(self) -> bytes:
        return fold_name(self.name.decode("utf-8", "replace")).encode()

    @property
    def wrong(self) -> bool:
        return self.certain or self.folded != self.listed


def unlisted(found: Sequence[Any]) -> list[Unlisted]:
    """What note_unlisted of naming.lua found, without those that are listed well: their names fold to what is there."""
    rows = [
        Unlisted(info_hash.decode(), torrent_id.decode(), name, listed, certain == 1)
        for info_hash, torrent_id, name, listed, certain in zip(*(found[i::5] for i in range(5)), strict=True)
    ]
    return [row for row in rows if row.wrong]


async def list_torrents(scripts: Scripts, now: int, rows: Sequence[Unlisted]) -> None:
    """Lists them. A store that is full has to wait for it: the next sweep finds them again."""
    if not rows:
        return
    argv: list[str | bytes | int | float] = [now]
    for row in rows:
        argv += (row.info_hash, row.torrent_id, row.name, row.folded)
    with suppress(OutOfMemoryError):
        await scripts.index(argv)


async def page_of_torrents(
    connection: Connection, keys: Keys, cursor: int, count: int
) -> tuple[int, list[str]]:
    """A page of all torrent ids, and the cursor of the next (0 at the end)."""
    after, members = await connection.command("ZSCAN", keys.index("seeders"), cursor, "COUNT", count)
    return int(after), [member.decode() for member in _members(members)]


def _members(scanned: Any) -> list[bytes]:
    """ZSCAN's answer as the client gives it (flat, or pairs) -> the members."""
    if scanned and isinstance(scanned[0], tuple | list):
        return [member for member, _ in scanned]
    return list(scanned[::2])

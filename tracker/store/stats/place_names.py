"""Renames the unique-user metrics of an earlier version to the current names.

That version named countries by their code, and cities and postcodes outside their country: ``countries.GB.users``,
``cities.GB/ENG/London.users`` and ``postcodes.GB/SW1A.users``, also below ``torrents.<ih>.`` and in leaderboards.
It also left out torrent columns that were 0.
"""

import re
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.stats.metric_names import MAX_COUNTRY_BYTES, MAX_NAME_BYTES, bounded, escape, metric_of
from tracker.store.stats.months import ALL_TIME

LEASE_SECONDS = 15
_SCAN = 1000
MAX_BATCH = 100
"""Renames in one script call."""
_DONE = b"2"
_OLD_PLACE = r"[A-Z]{2}/(?:[^./\s]+/)?[^./\s]+"
_OLD = re.compile(
    r"(?P<hll>hll:)?(?P<torrent>torrents\.[0-9a-f]{40}\.)?"
    rf"(?:countries\.(?P<country>[A-Z]{{2}})|(?P<scope>cities|postcodes)\.(?P<place>{_OLD_PLACE}))"
    r"\.users(?:\.(?P<rest>\S+))?"
)
_BOARD = re.compile(r"i:unique:(?:(?P<scope>countries|cities|postcodes):.+|torrents\.[0-9a-f]{40})")
_TORRENT = re.compile("[t]:[0-9a-f]{40}")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


class Rename(NamedTuple):
    """One rename, in the order of the arguments of rename_unique.lua."""

    kind: str
    old: str
    new: str = ""
    board: str = ""
    entries: str = ""


class PlaceNameMigration:
    """Renames metrics under one key prefix. ``country_names`` maps country codes to English names."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        country_names: Mapping[str, str] = MappingProxyType({}),
        *,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self._connection = connection
        self._rename = scripts.rename_unique
        self._keys = keys
        self.country_names = country_names
        self._max_batch = max_batch

    async def needed(self) -> bool:
        """Returns whether earlier names may exist.

        True until one run has renamed all of them, and again if an earlier version has counted since.
        """
        if await self._connection.command("GET", self._keys.unique_names()) != _DONE:
            return True
        async for entries in self._entries(self._keys.unique_index("countries", ALL_TIME)):
            if any(self._new_entry("countries", entry) for entry in entries):
                return True
        return False

    async def claim(self) -> bool:
        """Takes the lease on the renaming for LEASE_SECONDS; False if it is taken. ``run`` extends it."""
        lease = self._keys.unique_renaming()
        return bool(await self._connection.command("SET", lease, "1", "NX", "EX", LEASE_SECONDS))

    async def run(self) -> int:
        """Renames all metrics, page by page. Returns how many keys it left because their type or value is wrong.

        An interrupted run can be repeated.
        """
        left = 0
        # Leaderboards last: the rename of a counter also moves its entry.
        for steps in (self._key_renames, self._board_renames):
            async for renames in steps():
                for first in range(0, len(renames), self._max_batch):
                    parts = [part for each in renames[first : first + self._max_batch] for part in each]
                    left += int(await self._rename(parts))
                await self._connection.command("EXPIRE", self._keys.unique_renaming(), LEASE_SECONDS)
        await self._connection.command("SET", self._keys.unique_names(), _DONE)
        await self._connection.command("DEL", self._keys.unique_renaming())
        return left

    async def _key_renames(self) -> AsyncIterator[list[Rename]]:
        async for names in self._scan("[cpth]*"):
            yield [rename for name in names if (rename := self.rename(name))]

    async def _board_renames(self) -> AsyncIterator[list[Rename]]:
        async for names in self._scan("i:unique:*"):
            for name in names:
                if found := _BOARD.fullmatch(name):
                    async for entries in self._entries(self._keys.prefix + name):
                        yield [
                            rename for entry in entries if (rename := self._entry_rename(name, found, entry))
                        ]
            yield []

    async def _scan(self, pattern: str) -> AsyncIterator[list[str]]:
        prefix, cursor = self._keys.prefix, None
        while cursor != 0:
            match = ("MATCH", prefix + pattern, "COUNT", _SCAN)
            after, keys = await self._connection.command("SCAN", cursor or 0, *match)
            cursor = int(after)
            yield [key[len(prefix.encode()) :].decode("utf-8", "replace") for key in keys]

    def rename(self, name: str) -> Rename | None:
        """Returns the rename of a key, given without the prefix. None if the key keeps its name."""
        if _TORRENT.fullmatch(name):
            return Rename("torrent", name)
        found = _OLD.fullmatch(name)
        if found is None:
            return None
        torrent, rest = found["torrent"] or "", found["rest"] or ""
        scope, place = found["scope"] or "countries", found["place"] or found["country"]
        entry = self._new_name(scope, place)
        new = f"{found['hll'] or ''}{torrent}{metric_of(scope, entry)}{f'.{rest}' if rest else ''}"
        if new == name:
            return None
        month = _MONTH.fullmatch(rest)
        if found["hll"]:
            return Rename("hll", name, new)
        if rest and not month:
            return Rename("marker", name, new)
        if not torrent:
            board, entries = f"i:unique:{scope}:{rest or ALL_TIME}", f"{place} {entry}"
            return Rename("figure", name, new, board, entries)
        if month:
            return Rename("figure", name, new)
        return Rename("figure", name, new, f"i:unique:{torrent[:-1]}", f"{scope}.{place} {scope}.{entry}")

    def _new_name(self, scope: str, place: str) -> str:
        """``GB`` -> ``United_Kingdom``; ``GB/ENG/London`` -> ``United_Kingdom/London``."""
        code, _, below = place.partition("/")
        country = bounded(escape(self.country_names.get(code, code)), MAX_COUNTRY_BYTES)
        if scope == "countries":
            return country
        return f"{country}/{bounded(below.rpartition('/')[2], MAX_NAME_BYTES)}"

    def _new_entry(self, scope: str, entry: str) -> str:
        """Returns the new name of a leaderboard entry. Empty if the entry keeps its name."""
        old = "[A-Z]{2}" if scope == "countries" else _OLD_PLACE
        new = self._new_name(scope, entry) if re.fullmatch(old, entry) else entry
        return new if new != entry else ""

    def _entry_rename(self, board: str, found: re.Match[str], entry: str) -> Rename | None:
        """Returns the rename of a leaderboard entry without a counter. None if it keeps its name."""
        scope, head, place = (found["scope"], "", entry)
        if not scope:
            scope, _, place = entry.partition(".")
            head = f"{scope}."
        new = self._new_entry(scope, place)
        return Rename("entry", board, entries=f"{entry} {head}{new}") if new else None

    async def _entries(self, board: str) -> AsyncIterator[list[str]]:
        if await self._connection.command("TYPE", board) != b"zset":
            return
        cursor = None
        while cursor != 0:
            after, found = await self._connection.command("ZSCAN", board, cursor or 0, "COUNT", _SCAN)
            cursor = int(after)
            yield [member.decode("utf-8", "replace") for member in found[::2]]

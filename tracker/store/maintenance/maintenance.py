"""Maintenance by hand: deletes stale keys, resets statistics, lists what is not listed.

These commands walk all keys by SCAN, page by page, beside a running tracker. The script that deletes a key checks it
again.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.table.cleanup import CHECKS, DENIAL, FIRST, OF_TORRENTS, STATE, STATISTICS, Check
from tracker.store.schema.table.matching import row_of
from tracker.store.schema.table.row import KeySpec
from tracker.store.torrents.name_index import Unlisted, list_torrents, unlisted
from tracker.store.users.adoption import START, Adoption

PAGE = 500
BATCH = 100
"""Keys and entries per script call: more would delay announces by more than a millisecond."""
EXAMPLES = 5
MAX_PASSES = 3
UNKNOWN = "keys that docs/keys.md does not name (never deleted)"
UNUSABLE_IDS = "user ids that are not a positive number, or another user's (unchanged)"
WRONG_TYPE = "keys of a wrong type"
_TYPE_ONLY = Check(WRONG_TYPE, rule="")

Progress = Callable[[int, int], None]
"""Gets how many keys were checked, and about how many there are (with those of other prefixes)."""


@dataclass(slots=True)
class Finding:
    """Stale or missing things of one kind."""

    kind: str
    count: int = 0
    examples: tuple[str, ...] = ()
    """A few of them as text: keys, or `key entry`."""
    changed: int = 0
    """How many were deleted or repaired; 0 in a dry run."""


class _Findings(dict[str, Finding]):
    """Findings by kind."""

    def add(self, kind: str, found: Sequence[bytes], *, changed: bool) -> None:
        if not found:
            return
        finding = self.setdefault(kind, Finding(kind))
        finding.count += len(found)
        finding.changed += changed * len(found)
        room = EXAMPLES - len(finding.examples)
        finding.examples += tuple(name.decode("utf-8", "backslashreplace") for name in found[:room])

    @property
    def changed(self) -> int:
        return sum(finding.changed for finding in self.values())

    def by_count(self) -> list[Finding]:
        return sorted(self.values(), key=lambda finding: -finding.count)


def _ignore(done: int, about: int) -> None:
    del done, about


class Maintenance:
    """The maintenance of one prefix. ``clock`` gives epoch seconds; ``reindex_hit_and_runs`` and ``flush_uniques``
    belong to the users and the unique users."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        adoption: Adoption,
        reindex_hit_and_runs: Callable[[], Awaitable[int]],
        flush_uniques: Callable[[], AsyncIterator[int]],
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._prefix = keys.prefix
        self._adoption = adoption
        self._clock = clock
        self._reindex_hit_and_runs = reindex_hit_and_runs
        self._flush_uniques = flush_uniques

    async def cleanup(self, dry_run: bool = True, progress: Progress = _ignore) -> AsyncIterator[Finding]:
        """Finds stale keys and entries, the largest kind first, and deletes them unless ``dry_run``.

        Keys that become stale by a deletion are found in the next pass; a dry run has one pass, and may find less.
        """
        findings = _Findings()
        for number in range(1 if dry_run else MAX_PASSES):
            before = findings.changed
            async for page in self._pages(progress):
                if number == 0:
                    unknown = [key for key in page if row_of(_text(key)) is None]
                    findings.add(UNKNOWN, unknown, changed=False)
                await self._check_page(page, findings, delete=not dry_run)
            if findings.changed == before:
                break
        for finding in findings.by_count():
            yield finding

    async def wipe_statistics(self, uniques: bool = False) -> AsyncIterator[int]:
        """Deletes counters, distributions, histories, global totals and client statistics, with ``uniques`` unique
        users too. Yields how many keys so far. Torrents, users, swarms and scores stay."""
        removed = int(await self._connection.command("UNLINK", *(f"{self._prefix}{name}" for name in FIRST)))
        async for page in self._pages(_ignore):
            # Counters that count meanwhile are in FIRST again and have to stay there.
            kept = (*STATE, *FIRST)
            stale = [key for key, row in _rows(page) if row.pattern in STATISTICS and _text(key) not in kept]
            if stale:
                removed += int(await self._connection.command("UNLINK", *map(self._key, stale)))
            yield removed
        if uniques:
            async for flushed in self._flush_uniques():
                yield removed + flushed

    async def reindex(self, progress: Progress = _ignore) -> AsyncIterator[Finding]:
        """Lists torrents, denials, users and clients that a site wrote, names that it changed, and everything in a
        store that is older than the lists. The sweep does the same for users, clients and announced torrents."""
        findings = _Findings()
        async for page in self._pages(progress):
            torrents = [_text(key)[-40:] for key, row in _rows(page) if row.pattern in OF_TORRENTS]
            denied = [_text(key)[-40:] for key, row in _rows(page) if row.pattern == DENIAL]
            for batch in _batches(sorted(set(torrents))):
                await self._list_torrents(batch, findings)
            for batch in _batches(denied):
                await self._list_denied(batch, findings)
        await self._adopt(findings)
        await self._reindex_hit_and_runs()
        for finding in findings.by_count():
            yield finding

    async def key_count(self) -> int:
        """How many keys the database holds, whatever their prefix."""
        return int(await self._connection.command("DBSIZE"))

    async def _pages(self, progress: Progress) -> AsyncIterator[list[bytes]]:
        """All keys without the prefix. A key may come twice; one that exists all the time comes at least once."""
        about = await self.key_count()
        prefix = self._prefix.encode()
        done, cursor = 0, -1
        while cursor:
            after, found = await self._connection.command(
                "SCAN", max(cursor, 0), "MATCH", f"{self._keys.prefix_pattern}*", "COUNT", PAGE
            )
            cursor = int(after)
            done += len(found)
            progress(done, max(about, done))
            yield [key[len(prefix) :] for key in found if key.startswith(prefix)]

    def _key(self, name: bytes) -> bytes:
        return self._prefix.encode() + name

    async def _check_page(self, page: Sequence[bytes], findings: _Findings, *, delete: bool) -> None:
        by_row: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        for key, row in _rows(page):
            by_row[row.pattern, row.type].append(key)
        for (pattern, type_name), keys in by_row.items():
            check = CHECKS.get(pattern, _TYPE_ONLY)
            rules = (check.rule, check.needs, check.part, int(check.entries), int(delete), type_name.lower())
            cursor: str | bytes = "0"
            while keys:
                answer = await self._scripts.cleanup([*rules, cursor, BATCH, *keys[:BATCH]])
                done, cursor, stale, wrong = answer
                findings.add(check.kind, stale, changed=delete)
                findings.add(WRONG_TYPE, wrong, changed=delete)
                del keys[:done]

    async def _list_torrents(self, info_hashes: Sequence[str], findings: _Findings) -> None:
        now = int(self._clock())
        bound, found, _ = await self._scripts.reindex([now, *info_hashes])
        rows = unlisted(found)
        await list_torrents(self._scripts, now, rows)
        findings.add("torrents that were in no ranking", bound, changed=True)
        findings.add("torrents that were not listed", [row.info_hash.encode() for row in rows], changed=True)

    async def _list_denied(self, info_hashes: Sequence[str], findings: _Findings) -> None:
        listed = await self._connection.command("ZMSCORE", f"{self._prefix}denied", *info_hashes)
        missing = [ih for ih, score in zip(info_hashes, listed, strict=True) if score is None]
        rows = [Unlisted(info_hash, "", b"", b"", True) for info_hash in missing]
        await list_torrents(self._scripts, int(self._clock()), rows)
        findings.add("denials that were not listed", [ih.encode() for ih in missing], changed=True)

    async def _adopt(self, findings: _Findings) -> None:
        cursor = START
        while True:
            step = await self._adoption.step(cursor)
            findings.add("users that were not listed", [user.encode() for user in step.users], changed=True)
            findings.add("clients that were not listed", step.clients, changed=True)
            findings.add(UNUSABLE_IDS, [user.encode() for user in step.unusable], changed=False)
            if (cursor := step.cursor) == START:
                return


def _rows(page: Iterable[bytes]) -> Iterator[tuple[bytes, KeySpec]]:
    for key in page:
        row = row_of(_text(key))
        if row is not None:
            yield key, row


def _batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(items), BATCH):
        yield list(items[first : first + BATCH])


def _text(name: bytes) -> str:
    """Each byte of a key as one letter, as the patterns of the key table expect."""
    return name.decode("latin-1")

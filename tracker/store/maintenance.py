"""Looking after the store by hand: clearing out what no longer belongs, beginning statistics anew, listing what is not listed.

Only here, and where unique users are flushed, is the key space walked: by SCAN, page by page, so that a tracker goes on
beside it. What is to be deleted is looked at once more by the script that deletes it.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracker.store.connection import Connection
from tracker.store.key_table.matching import row_of
from tracker.store.key_table.row import KeySpec
from tracker.store.key_table.tidiness import CHECKS, DENIAL, FIRST, OF_TORRENTS, STATE, STATISTICS, Check
from tracker.store.keys import Keys
from tracker.store.listing import Unlisted, list_torrents, unlisted
from tracker.store.scripts import Scripts

PAGE = 500
BATCH = 100
"""Pairs in one call of a script: more would keep announces waiting for longer than a millisecond."""
EXAMPLES = 5
MOST_PASSES = 3
STRANGE = "keys that docs/keys.md does not name (never deleted)"
WRONG_TYPE = "keys of another type than theirs"
_SCANS = {"SET": "SSCAN", "ZSET": "ZSCAN", "HASH": "HSCAN"}

Progress = Callable[[int, int], None]
"""Hears how many keys were looked at, and about how many there are (those of other prefixes too)."""
Pair = tuple[bytes, bytes]
"""A key without its prefix, and an entry of it, or nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of things that do not belong, or that were missing."""

    kind: str
    count: int
    examples: tuple[str, ...]
    """A few of them as text: keys, entries as `key entry`."""
    changed: int
    """How many of them were deleted, or put right; 0 in a dry run."""


@dataclass(slots=True)
class _Tally:
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    changed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, found: Iterable[str], *, changed: bool) -> None:
        for one in found:
            self.counts[kind] += 1
            self.changed[kind] += changed
            if len(self.examples[kind]) < EXAMPLES:
                self.examples[kind].append(one)

    def findings(self) -> Iterator[Finding]:
        for kind, count in sorted(self.counts.items(), key=lambda each: -each[1]):
            yield Finding(kind, count, tuple(self.examples[kind]), self.changed[kind])


def _nobody_watches(done: int, about: int) -> None:
    del done, about


class Maintenance:
    """Of one prefix. ``clock`` gives epoch seconds; ``reindex_hit_and_runs`` and ``flush_uniques`` are those of the parts
    that keep them."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        reindex_hit_and_runs: Callable[[], Awaitable[int]],
        flush_uniques: Callable[[], AsyncIterator[int]],
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._prefix = keys.prefix
        self._clock = clock
        self._reindex_hit_and_runs = reindex_hit_and_runs
        self._flush_uniques = flush_uniques

    async def cleanup(
        self, dry_run: bool = True, progress: Progress = _nobody_watches
    ) -> AsyncIterator[Finding]:
        """Finds what no longer belongs, most of a kind first, and deletes it unless ``dry_run``.

        Safe beside a tracker at work. What became of no use by being the last to belong to something that was deleted
        is found in a second or third pass; a dry run has one pass, and may find less.
        """
        tally = _Tally()
        for number in range(1 if dry_run else MOST_PASSES):
            strange = number == 0
            before = sum(tally.changed.values())
            async for page in self._pages(progress):
                await self._tidy(page, tally, dry_run=dry_run, strange=strange)
            if sum(tally.changed.values()) == before:
                break
        for finding in tally.findings():
            yield finding

    async def wipe_statistics(self, uniques: bool = False) -> AsyncIterator[int]:
        """Deletes counters, distributions, histories, global figures and what clients were seen, and with ``uniques``
        unique users too: how many keys so far. Torrents, users and swarms stay with what they have, and so do scores."""
        removed = int(await self._connection.command("UNLINK", *(f"{self._prefix}{name}" for name in FIRST)))
        async for page in self._pages(_nobody_watches):
            # What is counted meanwhile is in FIRST again, and has to stay there.
            kept = (*STATE, *FIRST)
            doomed = [key for key, row in _rows(page) if row.pattern in STATISTICS and _text(key) not in kept]
            if doomed:
                removed += int(await self._connection.command("UNLINK", *map(self._key, doomed)))
            yield removed
        if uniques:
            async for flushed in self._flush_uniques():
                yield removed + flushed

    async def reindex(self, progress: Progress = _nobody_watches) -> AsyncIterator[Finding]:
        """Lists what is not listed as it should: torrents and denials that a site wrote by itself, names it changed, and
        all of a store of before there were lists. The sweep does the same for torrents that somebody has announced."""
        tally = _Tally()
        async for page in self._pages(progress):
            torrents = [_text(key)[-40:] for key, row in _rows(page) if row.pattern in OF_TORRENTS]
            denied = [_text(key)[-40:] for key, row in _rows(page) if row.pattern == DENIAL]
            for batch in _batches(sorted(set(torrents))):
                await self._list_torrents(batch, tally)
            for batch in _batches(denied):
                await self._list_denied(batch, tally)
        await self._reindex_hit_and_runs()
        for finding in tally.findings():
            yield finding

    # Walking the key space

    async def _pages(self, progress: Progress) -> AsyncIterator[list[bytes]]:
        """All keys, without their prefix. Those that are there all the while come at least once."""
        about = int(await self._connection.command("DBSIZE"))
        prefix = self._prefix.encode()
        done, cursor = 0, -1
        while cursor:
            after, found = await self._connection.command(
                "SCAN", max(cursor, 0), "MATCH", f"{_literal(self._prefix)}*", "COUNT", PAGE
            )
            cursor = int(after)
            done += len(found)
            progress(done, max(about, done))
            yield [key[len(prefix) :] for key in found if key.startswith(prefix)]

    def _key(self, name: bytes) -> bytes:
        return self._prefix.encode() + name

    # Clearing out

    async def _tidy(self, page: Sequence[bytes], tally: _Tally, *, dry_run: bool, strange: bool) -> None:
        work: dict[tuple[Check, str], list[bytes]] = defaultdict(list)
        for key in page:
            row = row_of(_text(key))
            if row is not None:
                work[CHECKS.get(row.pattern, _TYPE_ALONE), row.type].append(key)
            elif strange:
                tally.add(STRANGE, [_text(key)], changed=False)
        for (check, kind), keys in work.items():
            async for pairs in self._pairs(check, kind, keys):
                await self._check(check, kind, pairs, tally, dry_run=dry_run)

    async def _pairs(self, check: Check, kind: str, keys: Sequence[bytes]) -> AsyncIterator[list[Pair]]:
        """What is to be checked, so much at a time."""
        for batch in _batches([(key, b"") for key in keys]):
            yield batch
        if not check.entries:
            return
        waiting: list[Pair] = []
        open_keys = dict.fromkeys(keys, 0)
        while open_keys:
            some = list(open_keys.items())[:BATCH]
            answers = await self._connection.pipeline(
                *((_SCANS[kind], self._key(key), cursor, "COUNT", BATCH) for key, cursor in some)
            )
            for (key, _), answer in zip(some, answers, strict=True):
                cursor, entries = (0, []) if isinstance(answer, Exception) else _entries(answer, kind)
                waiting += ((key, entry) for entry in entries if entry)
                if cursor:
                    open_keys[key] = cursor
                else:
                    del open_keys[key]
            for batch in _batches(waiting):
                yield batch
            waiting = []

    async def _check(
        self, check: Check, kind: str, pairs: Sequence[Pair], tally: _Tally, *, dry_run: bool
    ) -> None:
        name = check.name if pairs and (pairs[0][1] or not check.entries) else ""
        argv: list[str | bytes | int | float] = [name, int(not dry_run), kind.lower()]
        for pair in pairs:
            argv += pair
        for found, what in zip(await self._scripts.tidy(argv), (check.kind, WRONG_TYPE), strict=True):
            tally.add(what, (_shown(pairs[number]) for number in found), changed=not dry_run)

    # Listing

    async def _list_torrents(self, info_hashes: Sequence[str], tally: _Tally) -> None:
        now = int(self._clock())
        bound, found, _ = await self._scripts.reindex([now, *info_hashes])
        rows = unlisted(found)
        await list_torrents(self._scripts, now, rows)
        tally.add(
            "torrents that were in no ranking", (info_hash.decode() for info_hash in bound), changed=True
        )
        tally.add("torrents that were not listed", (row.info_hash for row in rows), changed=True)

    async def _list_denied(self, info_hashes: Sequence[str], tally: _Tally) -> None:
        listed = await self._connection.command("ZMSCORE", f"{self._prefix}denied", *info_hashes)
        missing = [ih for ih, score in zip(info_hashes, listed, strict=True) if score is None]
        rows = [Unlisted(info_hash, "", b"", b"", True) for info_hash in missing]
        await list_torrents(self._scripts, int(self._clock()), rows)
        tally.add("denials that were not listed", missing, changed=True)


_TYPE_ALONE = Check(WRONG_TYPE, "")


def _rows(page: Iterable[bytes]) -> Iterator[tuple[bytes, KeySpec]]:
    for key in page:
        row = row_of(_text(key))
        if row is not None:
            yield key, row


def _batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(items), BATCH):
        yield list(items[first : first + BATCH])


def _entries(answer: Any, kind: str) -> tuple[int, list[bytes]]:
    """A page of SSCAN, ZSCAN or HSCAN, nested or flat, as the client has it."""
    cursor, found = answer
    if kind == "SET" or isinstance(found, dict):
        return int(cursor), list(found)
    if found and isinstance(found[0], tuple | list):
        return int(cursor), [pair[0] for pair in found]
    return int(cursor), list(found[::2])


def _text(name: bytes) -> str:
    """Keys hold bytes of all kinds: each is a letter of its own, as the patterns of the table expect."""
    return name.decode("latin-1")


def _shown(pair: Pair) -> str:
    return b" ".join(part for part in pair if part).decode("utf-8", "backslashreplace")


def _literal(prefix: str) -> str:
    r"""A prefix in a pattern: ``t:{07}:`` has nothing special, ``t[x]:`` has."""
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in prefix)

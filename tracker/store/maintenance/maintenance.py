"""Maintenance by hand: deletes stale keys, resets statistics, lists what is not listed.

These commands walk all keys by SCAN, one prefix after the other and page by page, beside a running tracker. The script
that deletes a key checks it again.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from tracker.errors import StoreUnavailable
from tracker.store.client.scripts import LIBRARIES, announce_library
from tracker.store.schema.keys import pattern_of
from tracker.store.schema.table import KEYS, row_of
from tracker.store.schema.table.cleanup import CHECKS, DENIAL, FIRST, OF_TORRENTS, STATE, STATISTICS, Check
from tracker.store.sharding.shards import Shard, in_parts, note_unavailable_shards, scan
from tracker.store.store import Store
from tracker.store.torrents.name_index import list_denials, list_torrents, unlisted
from tracker.store.users.adoption import START, adopt_some

PAGE = 500
BATCH = 100
"""Keys and entries per script call: more would delay announces by more than a millisecond."""
EXAMPLES = 5
MAX_PASSES = 3
UNKNOWN = "keys that docs/keys.md does not name (never deleted)"
UNUSABLE_IDS = "user ids that are not a positive number, or another user's (unchanged)"
WRONG_TYPE = "keys of a wrong type"
OTHER_LIBRARIES = "libraries of functions of other versions"
_TYPE_ONLY = Check(WRONG_TYPE)
_TYPES = {row.pattern: row.type.lower() for row in KEYS}

Progress = Callable[[int], None]
"""Gets how many keys were checked."""


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
    def add(self, kind: str, found: Sequence[bytes], *, changed: bool) -> None:
        if found:
            finding = self.setdefault(kind, Finding(kind))
            finding.count += len(found)
            finding.changed += changed * len(found)
            more = found[: EXAMPLES - len(finding.examples)]
            finding.examples += tuple(name.decode("utf-8", "backslashreplace") for name in more)

    def by_count(self) -> list[Finding]:
        return sorted(self.values(), key=lambda finding: -finding.count)


@dataclass(eq=False)
class Maintenance:
    """The maintenance of the main prefix and all shards. ``page``: keys in one SCAN. Other shards that are unavailable
    are passed over, but statistics are wiped in all of them or not to the end."""

    store: Store
    page: int = PAGE

    async def _in_all(self, call: Callable[[Shard], Awaitable[object]]) -> None:
        """Calls it for each prefix, one after the other."""
        for shard in self.store.shards.all:
            try:
                await call(shard)
            except StoreUnavailable:
                if shard is self.store.shards.main:
                    raise
                note_unavailable_shards([shard.number])

    async def cleanup(self, dry_run: bool = True, progress: Progress = lambda _: None) -> list[Finding]:
        """Finds stale keys and entries, the largest kind first, and deletes them unless ``dry_run``. Keys that become
        stale by a deletion are found in the next pass; a dry run has one pass, and may find less."""
        findings = _Findings()

        async def cleanup_in(shard: Shard) -> None:
            for number in range(1 if dry_run else MAX_PASSES):
                before = sum(finding.changed for finding in findings.values())
                async for page in self._pages(shard, progress):
                    unknown = page.pop("", [])
                    if not number:
                        findings.add(UNKNOWN, unknown, changed=False)
                    for pattern, keys in page.items():
                        await _check(shard, pattern, keys, findings, delete=not dry_run)
                if before == sum(finding.changed for finding in findings.values()):
                    break

        await self._in_all(cleanup_in)
        return findings.by_count()

    async def cleanup_libraries(self, dry_run: bool = True) -> list[Finding]:
        """Finds libraries of functions that other versions loaded, and deletes them unless ``dry_run``. A tracker that
        still uses one loads it again."""
        try:
            rows = await self.store.shards.main.connection.command("FUNCTION", "LIST", "LIBRARYNAME", f"{LIBRARIES}*")
        except ResponseError:  # the server allows no functions
            return []
        findings, names = _Findings(), [row[1] for row in rows]
        others = [name for name in names if name.decode() != announce_library().name]
        for name in () if dry_run else others:
            await self.store.shards.main.connection.command("FUNCTION", "DELETE", name)
        findings.add(OTHER_LIBRARIES, others, changed=not dry_run)
        return findings.by_count()

    async def wipe_statistics(self, uniques: bool = False) -> AsyncIterator[int]:
        """Deletes counters, distributions, histories, global totals and client statistics, with ``uniques`` unique
        users too. Yields how many keys so far. Torrents, users, swarms and scores stay."""
        removed = 0
        for shard in self.store.shards.all:
            removed += await _unlink(shard, list(FIRST))
            async for page in self._pages(shard):
                # Counters that count meanwhile are in FIRST again and have to stay there.
                kept = (*STATE, *FIRST)
                removed += await _unlink(
                    shard, [key for pattern in STATISTICS for key in page[pattern] if key not in kept]
                )
                yield removed
        if uniques:
            async for flushed in self.store.unique_users.flush():
                yield removed + flushed

    async def reset_repairs(self) -> int:
        """Resets the counter of repairs by the sweep. Returns what it was."""
        shards = self.store.shards
        counts = await shards.send([(shard, ("GETDEL", shard.keys.stat("repairs"))) for shard in shards.all])
        return sum(int(count or 0) for count in counts)

    async def reindex(self, progress: Progress = lambda _: None) -> list[Finding]:
        """Lists torrents, denials, users and clients that a site wrote, names that it changed, and everything in a
        store that is older than the lists. The sweep does the same for users, clients and announced torrents."""
        findings = _Findings()

        async def reindex_in(shard: Shard) -> None:
            async for page in self._pages(shard, progress):
                torrents = {key[-40:].decode() for pattern in OF_TORRENTS for key in page[pattern]}
                for batch in in_parts(sorted(torrents), BATCH):
                    await self._list_torrents(shard, batch, findings)
                for batch in in_parts([key[-40:].decode() for key in page[DENIAL]], BATCH):
                    listed = await shard.connection.command("ZMSCORE", shard.keys.denied(), *batch)
                    missing = [ih for ih, score in zip(batch, listed, strict=True) if score is None]
                    await list_denials(shard.scripts, int(self.store.clock()), missing)
                    findings.add("denials that were not listed", [ih.encode() for ih in missing], changed=True)

        await self._in_all(reindex_in)
        cursor = None
        while cursor != START:
            step = await adopt_some(self.store.shards.main, cursor or START)
            findings.add("users that were not listed", [user.encode() for user in step.users], changed=True)
            findings.add("clients that were not listed", step.clients, changed=True)
            findings.add("users who were not listed by name", [user.encode() for user in step.names], changed=True)
            findings.add(UNUSABLE_IDS, [user.encode() for user in step.unusable], changed=False)
            cursor = step.cursor
        await self.store.users.reindex_hit_and_runs()
        return findings.by_count()

    async def key_count(self) -> int:
        """How many keys the main database holds, whatever their prefix."""
        return int(await self.store.connection.command("DBSIZE"))

    async def _pages(self, shard: Shard, progress: Progress = lambda _: None) -> AsyncIterator[dict[str, list[bytes]]]:
        """All keys without the prefix by the pattern of their row, unknown ones under ``""``. A key may come twice;
        one that exists all the time comes at least once."""
        prefix = shard.keys.prefix
        how = ("MATCH", f"{pattern_of(prefix)}*", "COUNT", self.page)
        done = 0
        async for found in scan(shard.connection, ("SCAN",), *how):
            done += len(found)
            progress(done)
            page = defaultdict[str, list[bytes]](list)
            for key in found:
                name = key.removeprefix(prefix.encode())
                row = row_of(name.decode("latin-1"))  # each byte as one letter, as the patterns expect
                page[row.pattern if row else ""].append(name)
            yield page

    async def _list_torrents(self, shard: Shard, info_hashes: Sequence[str], findings: _Findings) -> None:
        now = int(self.store.clock())
        bound, found = await shard.scripts.reindex([now, *info_hashes])
        rows = unlisted(found)
        await list_torrents(shard.scripts, now, rows)
        findings.add("torrents that were in no ranking", bound, changed=True)
        findings.add("torrents that were not listed", [info_hash for info_hash, *_ in rows], changed=True)


async def _unlink(shard: Shard, names: Sequence[bytes]) -> int:
    if not names:
        return 0
    keys = (shard.keys.prefix.encode() + name for name in names)
    return int(await shard.connection.command("UNLINK", *keys))


async def _check(shard: Shard, pattern: str, keys: list[bytes], findings: _Findings, *, delete: bool) -> None:
    check = CHECKS.get(pattern, _TYPE_ONLY)
    how = (_TYPES[pattern], int(delete), f"^{check.pattern}$", check.needs)
    cursor: str | bytes = "0"
    while keys:
        done, cursor, stale, wrong = await shard.scripts.cleanup([*how, cursor, BATCH, *keys[:BATCH]])
        findings.add(check.kind, stale, changed=delete)
        findings.add(WRONG_TYPE, wrong, changed=delete)
        del keys[:done]

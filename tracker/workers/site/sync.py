"""Site sync: keeps the tables of a site's own database.

The change feed names the rows that changed. They are read as they are now and written, then the position in the feed.
What was lost before that is read and written again, which changes nothing the second time (writer.py).
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tracker.errors import StartupError
from tracker.settings.site import SiteSettings
from tracker.store.changes.changes import FIRST
from tracker.store.jobs.lease import Lease
from tracker.store.store import Store
from tracker.store.users.site_rows import SyncState
from tracker.system.logger import Logger
from tracker.workers.loop import forever
from tracker.workers.site.columns import problems
from tracker.workers.site.database import SiteDatabase, SiteError
from tracker.workers.site.importing import SiteImport
from tracker.workers.site.mapping import SiteMapping, load_mapping
from tracker.workers.site.rows import Comparison, Named, RowReader
from tracker.workers.site.writer import TableWriter, Written, open_writers

PAGE, MAX_PAGES = 1000, 20
"""Changes of one read, and reads of one round."""
LEASE_SECONDS = 10
"""At least: then another process goes on. Two that overlap write nothing twice."""
FEED, STORE, PASS = "feed", "store", "pass"
"""Sources in the table of positions."""

log = Logger("tracker.site")


@dataclass(eq=False)
class SiteSync:
    """Of one site. ``pass_hour``: from which hour on all rows are compared (UTC)."""

    store: Store
    database: SiteDatabase
    mapping: SiteMapping
    every_seconds: float = 3.0
    pass_hour: int = 4

    def __post_init__(self) -> None:
        self.state = SyncState()
        self._reader = RowReader(self.store, self.mapping)
        self._pass: tuple[Comparison, AsyncGenerator[int, None]] | None = None
        self._writers: list[TableWriter] = []
        self._missing: set[str] = set()
        """Users without a row at the site, of whom the log has told."""
        self.clock = self.store.clock
        seconds = max(LEASE_SECONDS, int(2 * self.every_seconds))
        self.lease = Lease(self.store.scripts, "site", "sync", seconds, self.clock)

    async def run(self) -> None:
        """Runs until cancelled, in one of several processes."""

        async def step() -> float:
            began = self.clock()
            return 0.0 if await self.step() else max(0.1, self.every_seconds - (self.clock() - began))

        failure, pause, connection = "site sync cannot read the store", self.every_seconds, self.store.connection
        await forever(step, None, failure, error_seconds=pause, connection=connection, lease=self.lease)

    @property
    def lag_seconds(self) -> float:
        """How far the site is behind."""
        return max(0.0, self.clock() - self.state.until) if self.state.until else 0.0

    async def step(self) -> bool:
        """A round; an error of the site's database is logged once, and the next round tries again. Returns whether more
        changes wait. Raises StoreUnavailable and redis.exceptions.RedisError."""
        more = False
        try:
            more = await self.round()
            if not more:
                await self._go_on_with_pass()
            if self.state.error:
                log.info("site sync works again")
                self._note(error="")
        except (SiteError, TimeoutError) as error:
            reason = str(error) or "the site's database does not answer"
            self.store.counters.count("site_sync.errors")
            self._pass, self._writers = None, []  # the site may change its tables meanwhile
            if reason != self.state.error:
                log.error("site sync failed, trying again", reason=reason)
            self._note(error=reason)
        self._note(at=int(self.clock()))
        await self.store.site_rows.save_state(self.state)
        return more

    def _note(self, **changed: int | str) -> None:
        self.state = replace(self.state, **changed)  # type: ignore[arg-type]

    async def round(self) -> bool:
        """Writes what has changed since the last round. Returns whether more waits. Raises SiteError."""
        await self.open()
        began = self.clock()
        position = (await self.database.positions([FEED])).get(FEED, "")
        named, gap, more = Named(), False, True
        for _ in range(MAX_PAGES):
            page = await self.store.changes.after(position or FIRST, PAGE)
            named.add(page.changes)
            position, gap, more = page.next, gap or page.gap, len(page.changes) == PAGE
            if not more:
                break
        if gap:
            log.warning("the change feed does not reach back to the last round: comparing all rows")
            await self.full_pass()
        done = await self.write(named)
        await self.database.record({FEED: position})
        if not more:
            self._note(until=int(began))
        self._tell(done)
        return more

    async def open(self) -> None:
        """Reads which columns the site's tables have, unless that was done. Raises SiteError with what is wrong."""
        if not self._writers:
            writers = await open_writers(self.database, self.mapping)
            known = (await self.database.positions([STORE])).get(STORE)
            if known is None:
                raise SiteError("the site's database is not moved in yet: run tracker sync import")
            if known != await self.store_id():  # the site's additions are those of one store
                raise SiteError(
                    "the site's database belongs to another store (was this one emptied?): run tracker sync import"
                )
            self._writers = writers

    async def write(self, named: Named) -> Written:
        """Writes the rows as they are now."""
        done = Written()
        if named:
            found = await self._reader.read(named)
            for writer in self._writers:
                done += await writer.write(found[writer.mapping.rows])
                if gone := self._reader.gone(writer, named, found[writer.mapping.rows]):
                    await writer.end(gone)
            self._reader.note_written(found)
        return done

    def _tell(self, done: Written) -> None:
        self._note(rows=self.state.rows + done.rows)
        if done.rows:
            self.store.counters.count("site_sync.written", by=done.rows)
        if done.failed:
            self.store.counters.count("site_sync.refused", by=done.failed)
        for problem in done.problems:
            log.warning("a row of the site was left out", reason=problem)
        if new := [name for name in done.missing if name.startswith("users") and name not in self._missing]:
            self._missing.update(new)
            log.warning(
                "the site has no row for users: what they are credited waits; delete them here if they are gone",
                first="; ".join(new[:3]),
                users=len(new),
            )

    async def full_pass(self) -> None:
        """Compares all rows, repairs them, and says what it repaired."""
        comparison = self.comparison(repair=True)
        async for _ in comparison.run():
            pass
        self._tell_pass(comparison)

    def comparison(self, *, repair: bool) -> Comparison:
        return Comparison(self.database, self._reader, self._writers, repair=repair)

    def _tell_pass(self, comparison: Comparison) -> None:
        self._tell(comparison.written)
        self._note(repaired=comparison.differences, compared_at=int(self.clock()))
        for each in comparison.tables.values():
            if each.differences:
                self.store.counters.count("site_sync.repaired", by=each.differences)
                log.warning(
                    "rows of the site differed and were repaired",
                    table=each.table,
                    missing=each.missing,
                    differing=each.differing,
                    stale=each.stale,
                    first="; ".join(each.named[:3]),
                )
        log.info("all rows of the site were compared", rows=sum(each.rows for each in comparison.tables.values()))

    async def _go_on_with_pass(self) -> None:
        """Does a part of the nightly pass, between two rounds."""
        now = datetime.fromtimestamp(self.clock(), UTC)
        if self._pass is None:
            today = f"{now:%Y-%m-%d}"
            if now.hour < self.pass_hour or (await self.database.positions([PASS])).get(PASS) == today:
                return
            await self.database.record({PASS: today})
            comparison = self.comparison(repair=True)
            self._pass = comparison, comparison.run()
        comparison, parts = self._pass
        until = self.clock() + self.every_seconds
        async for _ in parts:
            if self.clock() > until:
                return
        self._pass = None
        self._tell_pass(comparison)

    async def importing(self, *, again: bool, dry_run: bool) -> SiteImport:
        """Raises SiteError with what is wrong with the site's tables."""
        await open_writers(self.database, self.mapping)
        known = (await self.database.positions([STORE])).get(STORE)
        other = known is not None and known != await self.store_id()
        return SiteImport(self.store, self.database, self.mapping, again=again or other, dry_run=dry_run)

    async def problems(self) -> list[str]:
        """What keeps the site from being written, a line each. Changes nothing but an empty table of positions."""
        found: list[str] = []
        try:
            tables = await self.database.tables(self.mapping.names)
            found += problems(self.mapping, tables)
            found += await self.database.missing_rights(self.mapping.rights)
            found += await self.database.clock_problems(self.clock())
            if not found:
                await self.open()
        except SiteError as error:
            found.append(str(error))
        return found

    async def store_id(self) -> str:
        """Names the store, without its secret."""
        return hashlib.sha256(b"site sync" + await self.store.load_secret()).hexdigest()[:32]

    async def adopt(self) -> None:
        """The site's database belongs to this store from now on."""
        self._writers = self._writers or await open_writers(self.database, self.mapping)
        newest = await self.store.changes.newest(1)
        await self.database.record({STORE: await self.store_id(), FEED: newest[0].id if newest else FIRST})


@asynccontextmanager
async def open_sync(store: Store, settings: SiteSettings) -> AsyncIterator[SiteSync]:
    """Raises StartupError if a setting is wrong; the database itself may be unavailable."""
    if settings.database is None:
        raise StartupError("TRACKER_SITE__DATABASE is not set: the site's database, see docs/sync.md")
    mapping = load_mapping(settings.mapping)
    async with SiteDatabase(settings.database.get_secret_value(), settings.time_zone) as database:
        yield SiteSync(store, database, mapping, settings.sync_seconds, settings.full_pass_hour)

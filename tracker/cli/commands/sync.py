"""``tracker sync …``: the tables of a site's own database. Its libraries are the extra ``site``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from tracker.cli.commands import AsJson, group, load_settings
from tracker.cli.terminal import complain, note, progress, say, say_json
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.system.event_loop import running
from tracker.workers.site.mapping import check_libraries

if TYPE_CHECKING:
    from tracker.workers.site.rows import Compared
    from tracker.workers.site.sync import SiteSync

sync = group("Keep the tables of a site's own database, or move in from them.")


@asynccontextmanager
async def _opened(store: Store) -> "AsyncIterator[SiteSync]":
    """Raises ClientError with what is wrong with the site's database."""
    check_libraries()
    from tracker.workers.site.database import SiteError  # noqa: PLC0415
    from tracker.workers.site.sync import open_sync  # noqa: PLC0415

    async with open_sync(store, load_settings().site) as found:
        try:
            yield found
        except SiteError as error:
            raise ClientError(str(error)) from error


@sync.command("run")
async def run(store: Store) -> None:
    """Write what changes in swarms into the site's tables, until interrupted. Of several processes one does."""
    connection = store.connection
    async with _opened(store) as found, running(connection.watch, connection.topology.follow, store.counters.run):
        note("syncing; what goes wrong is in the log")
        await found.run()


@sync.command("import", audited="import")
async def import_site(
    store: Store,
    change: Change,
    dry_run: Annotated[bool, Option("--dry-run", help="Check each row and write nothing.")] = False,
    again: Annotated[bool, Option("--again", help="Replace the totals of users that were imported before.")] = False,
) -> None:
    """Read users, torrents, history, tokens, groups and client lists from the site's database. An interrupted import
    goes on where it was. Rows that cannot be imported are reported, one per line; then the exit code is 1."""
    failed = 0
    async with _opened(store) as found:
        work = await found.importing(again=again, dry_run=dry_run)
        parts = work.run()
        part = await anext(parts, None)
        while part is not None:
            kind, total = part.kind, part.total
            with progress(f"{'checked' if dry_run else 'imported'} {kind.replace('_', ' ')}", total) as shown:
                done = part
                while part is not None and part.kind == kind:
                    for problem in work.problems:
                        complain(problem)
                    work.problems = []
                    shown.reach(part.rows)
                    part = await anext(parts, None)
            say(f"{kind.replace('_', ' ')}: {done.rows - done.problems} of {done.rows}")
            change.count(**{kind: done.rows - done.problems})
            failed += done.problems
        if not dry_run:
            await found.adopt()
    if failed:
        complain(f"{failed} rows could not be imported")
        raise Exit(1)


@sync.command("check")
async def check(store: Store, as_json: AsJson = False) -> None:
    """Compare all rows of both sides, and name the first differing ones; exit code 1 if there are any."""
    async with _opened(store) as found:
        await found.open()
        comparison = found.comparison(repair=False)
        with progress("compared") as shown:
            async for rows in comparison.run():
                shown.advance(rows)
        for each in comparison.tables.values():
            _show(each, as_json=as_json)
        for problem in comparison.written.problems:
            complain(problem)
        if comparison.differences or comparison.written.failed:
            raise Exit(1)


def _show(compared: "Compared", *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                **{name: getattr(compared, name) for name in ("table", "rows", "missing", "differing", "stale")},
                **{f"{name}_ours": sums[0] for name, sums in compared.sums.items()},
                **{f"{name}_site": sums[1] for name, sums in compared.sums.items()},
                "named": "; ".join(compared.named),
            }
        )
        return
    say(f"{compared.table}: {compared.rows} rows, {compared.differences} differences")
    for name, (ours, sites) in compared.sums.items():
        own = f"  {sites - ours:+d} by the site" if ours != sites else ""
        say(f"  {name:<20} {ours:>20} {sites:>20}{own}")
    for text in compared.named:
        say(f"  {text}")

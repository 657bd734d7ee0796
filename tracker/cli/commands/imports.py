"""``tracker import``."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import AsJson, Config, load_settings, torrent_files, with_store
from tracker.cli.files import reading
from tracker.cli.files.reading import Keep
from tracker.cli.files.rows import KINDS, Item, Kind, Problem, Row
from tracker.cli.progress import Progress, progress
from tracker.cli.terminal import complain, say, say_json
from tracker.errors import ClientError
from tracker.operations import NOT_SERVED, keep_file, parse_prefix
from tracker.store.access.allow_list import check_prefix
from tracker.store.store import Store
from tracker.store.torrents.torrents import checked_fields
from tracker.store.users.importing import checked_user

_BATCH = 500
"""Rows per batch: a batch is read, then written."""
_CONCURRENCY = 32
_TORRENT_FIELDS = {"upload_multiplier": "multi_up", "download_multiplier": "multi_dn"}
_WHAT: dict[str, Kind] = {"torrents": "torrent", "users": "user", "denied": "denial", "clients": "client"}

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER|FILE…", help="Folders of .torrent files, or .torrent, .csv and .jsonl files."
    ),
]
What = Annotated[
    str | None,
    typer.Option(
        help=f"Kind of rows without a column `kind`: {', '.join(_WHAT)}.", show_default="by columns"
    ),
]
ReplaceTotals = Annotated[
    bool, typer.Option("--replace-totals", help="Replace the totals of known users by those in the file.")
]


def import_records(
    paths: Paths,
    what: What = None,
    replace_totals: ReplaceTotals = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check, without writing.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Import .torrent files, or torrents, users, denials and clients from files of `tracker export`.

    Known records are updated, so an import can be repeated. Empty fields are unchanged. Records that cannot be read or
    imported are reported on standard error, one per line; the others are imported, and the exit code is 1.
    """
    if what is not None and what not in _WHAT:
        raise typer.BadParameter(f"--what must be {', '.join(_WHAT)}")
    if missing := [path for path in paths if not path.exists()]:
        raise ClientError(f"{missing[0]}: there is no such file or folder")
    files = torrent_files(load_settings(config))
    keep = None if dry_run else partial(keep_file, files)
    work = _Import(paths, _WHAT[what] if what else None, keep, replace_totals=replace_totals)
    if dry_run:
        asyncio.run(work.run(None))
    else:
        with_store(config, work.run)
    work.summarize(as_json=as_json, dry_run=dry_run)


class _Import:
    """Reads batches in a thread; each batch is written before the next is read."""

    def __init__(
        self, paths: Sequence[Path], kind: Kind | None, keep: Keep | None, *, replace_totals: bool
    ) -> None:
        self._paths = paths
        self._kind = kind
        self._keep = keep
        self._replace_totals = replace_totals
        self._done: Counter[tuple[str, str]] = Counter()
        self._problems = 0

    async def run(self, store: Store | None) -> None:
        """Writes nothing if ``store`` is None."""
        total = await asyncio.to_thread(reading.count_torrents, self._paths)
        items = reading.read(self._paths, self._kind, self._keep)
        with progress("importing" if store else "reading", total) as shown:
            try:
                while batch := await asyncio.to_thread(lambda: list(islice(items, _BATCH))):
                    await self._process(store, batch, shown)
            except asyncio.CancelledError:
                complain(
                    f"interrupted after {shown.done} records; they are imported. Run the command again for the rest"
                )
                raise

    async def _process(self, store: Store | None, batch: list[Item | Problem], shown: Progress) -> None:
        waiting = iter(batch)

        async def work() -> None:
            for each in waiting:
                await self._one(store, each)
                shown.advance()

        await asyncio.gather(*(work() for _ in range(_CONCURRENCY)))

    async def _one(self, store: Store | None, each: Item | Problem) -> None:
        if isinstance(each, Problem):
            self._report(each.origin, each.reason)
            return
        try:
            new = await self._write(store, each) if store else _check(each)
        except ClientError as error:
            self._report(each.origin, error.text)
        else:
            self._done[each.kind, "added" if new else "known"] += 1

    def _report(self, origin: str, reason: str) -> None:
        self._problems += 1
        complain(f"{origin}: {reason}")

    async def _write(self, store: Store, item: Item) -> bool:
        """Whether the record is new. Raises ClientError if it is invalid."""
        row = item.row
        if item.kind == "torrent":
            _, new = await store.torrents.add(parse_info_hash(row["info_hash"]), _torrent_fields(row))
            return new
        if item.kind == "user":
            return await store.user_import.import_user(row, replace_totals=self._replace_totals)
        if item.kind == "denial":
            await store.torrents.deny(parse_info_hash(row["info_hash"]), row.get("reason", NOT_SERVED))
        else:
            await store.allow_list.allow(parse_prefix(row["prefix"]), row.get("name", ""))
        return True

    def summarize(self, *, as_json: bool, dry_run: bool) -> None:
        """Prints the totals; exit code 1 if there were problems."""
        for kind in KINDS:
            added, known = self._done[kind, "added"], self._done[kind, "known"]
            if as_json and added + known:
                say_json({"kind": kind, "added": added, "known": known, "dry_run": dry_run})
            elif added + known:
                does = "would be imported" if dry_run else f"added, {known} known"
                say(
                    f"{kind}s: {added} {does}"
                    if kind in ("torrent", "user") or dry_run
                    else f"{kind}s: {added} set"
                )
        if as_json:
            say_json({"problems": self._problems})
        elif not self._done and not self._problems:
            say("nothing to import")
        if self._problems:
            complain(f"{self._problems} could not be imported")
            raise typer.Exit(1)


def _torrent_fields(row: Row) -> dict[str, str]:
    return {_TORRENT_FIELDS.get(name, name): value for name, value in row.items() if name != "info_hash"}


def _check(item: Item) -> bool:
    """Checks the record without the store. Raises ClientError."""
    row = item.row
    if "info_hash" in row:
        parse_info_hash(row["info_hash"])
    if item.kind == "torrent":
        checked_fields(_torrent_fields(row))
    elif item.kind == "user":
        checked_user(row)
    elif item.kind == "client":
        check_prefix(parse_prefix(row["prefix"]))
    return True

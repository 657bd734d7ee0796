"""``tracker import``."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tracker.admin.operations import NOT_SERVED, parse_prefix
from tracker.bittorrent import parse_info_hash
from tracker.commands import AsJson, Config, with_stores
from tracker.errors import ClientError
from tracker.progress import Progress, progress
from tracker.register import files
from tracker.register.rows import KINDS, Item, Kind, Problem, Row
from tracker.store.accounts import Accounts, checked_user
from tracker.store.clients import check_prefix
from tracker.store.scripts import Scripts
from tracker.store.torrents import checked_fields
from tracker.stores import Stores
from tracker.terminal import complain, say, say_json

_BATCH = 500
"""Rows read, and then written, at a time."""
_AT_ONCE = 32
_TORRENT_FIELDS = {"upload_multiplier": "multi_up", "download_multiplier": "multi_dn"}
_WHAT: dict[str, Kind] = {"torrents": "torrent", "users": "user", "denied": "denial", "clients": "client"}

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="FOLDER|FILE…", help="Folders of .torrent files; .torrent, .csv, .jsonl."),
]
What = Annotated[
    str | None,
    typer.Option(
        help=f"What rows without a column `kind` are: {', '.join(_WHAT)}.", show_default="by columns"
    ),
]
ReplaceTotals = Annotated[
    bool, typer.Option("--replace-totals", help="Let the totals in the file replace those of known users.")
]


def import_register(
    paths: Paths,
    what: What = None,
    replace_totals: ReplaceTotals = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check only.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Register what is in files: torrents out of .torrent files, or anything that `tracker export` wrote.

    Known ones are brought up to date, so that an import can be repeated; what is empty in a file stays as it is.
    What cannot be read or taken over is a line on standard error each, and exit code 1 when the rest is done.
    """
    if what is not None and what not in _WHAT:
        raise typer.BadParameter(f"--what takes {', '.join(_WHAT)}")
    if missing := [path for path in paths if not path.exists()]:
        raise ClientError(f"{missing[0]}: there is no such file or folder")
    work = _Import(paths, _WHAT[what] if what else None, replace_totals=replace_totals)
    if dry_run:
        asyncio.run(work.run(None))
    else:
        with_stores(config, work.run)
    work.sum_up(as_json=as_json, dry_run=dry_run)


class _Import:
    """Reads in a thread, a batch at a time, and writes each batch before it reads on."""

    def __init__(self, paths: Sequence[Path], kind: Kind | None, *, replace_totals: bool) -> None:
        self._paths = paths
        self._kind = kind
        self._replace_totals = replace_totals
        self._done: Counter[tuple[str, str]] = Counter()
        self._problems = 0

    async def run(self, stores: Stores | None) -> None:
        """Without ``stores`` nothing is written."""
        total = await asyncio.to_thread(files.count_torrents, self._paths)
        items = files.read(self._paths, self._kind)
        with progress("importing" if stores else "reading", total) as shown:
            try:
                while batch := await asyncio.to_thread(lambda: list(islice(items, _BATCH))):
                    await self._take(stores, batch, shown)
            except asyncio.CancelledError:
                complain(
                    f"interrupted after {shown.done}; what is done stays, and a repetition does the rest"
                )
                raise

    async def _take(self, stores: Stores | None, batch: list[Item | Problem], shown: Progress) -> None:
        waiting = iter(batch)

        async def work() -> None:
            for each in waiting:
                await self._one(stores, each)
                shown.advance()

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))

    async def _one(self, stores: Stores | None, each: Item | Problem) -> None:
        if isinstance(each, Problem):
            self._tell(each.origin, each.reason)
            return
        try:
            new = await self._write(stores, each) if stores else _check(each)
        except ClientError as error:
            self._tell(each.origin, error.text)
        else:
            self._done[each.kind, "added" if new else "known"] += 1

    def _tell(self, origin: str, reason: str) -> None:
        self._problems += 1
        complain(f"{origin}: {reason}")

    async def _write(self, stores: Stores, item: Item) -> bool:
        """Whether it was new. Raises ClientError for what cannot be."""
        row = item.row
        if item.kind == "torrent":
            _, new = await stores.torrents.add(parse_info_hash(row["info_hash"]), _torrent_fields(row))
            return new
        if item.kind == "user":
            accounts = Accounts(
                stores.connection, Scripts(stores.connection, stores.keys.prefix), stores.keys
            )
            return await accounts.bring(row, replace_totals=self._replace_totals)
        if item.kind == "denial":
            await stores.torrents.deny(parse_info_hash(row["info_hash"]), row.get("reason", NOT_SERVED))
        else:
            await stores.clients.allow(parse_prefix(row["prefix"]), row.get("name", ""))
        return True

    def sum_up(self, *, as_json: bool, dry_run: bool) -> None:
        """What was done; exit code 1 where there were problems."""
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
    """As much as can be told without the store. Raises ClientError."""
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

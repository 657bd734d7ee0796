"""``tracker import``."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Exit, Option

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.cli.commands import AsJson, change_store, load_settings, torrent_files
from tracker.cli.files import reading
from tracker.cli.files.reading import Items, load_mapping
from tracker.cli.files.rows import KINDS, WHAT, Item, Kind, Problem, Row
from tracker.cli.terminal import Progress, Value, complain, note, progress, say, say_json, show
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.peers import parse_prefix
from tracker.operations.torrents import NOT_SERVED, counting_torrent, deny_torrent, keep_file, link_halves
from tracker.store.access.client_lists import check_prefix
from tracker.store.schema.multipliers import parse_time
from tracker.store.store import Store
from tracker.store.torrents.hybrids import V1_IS_UNREGISTERED
from tracker.store.torrents.records import STORED_NAMES
from tracker.store.torrents.torrents import checked_torrent
from tracker.store.users.fields import is_user_id
from tracker.store.users.history import checked_history
from tracker.store.users.importing import checked_user


@dataclass(slots=True)
class Imported:
    """Records read so far, and their outcomes: number by outcome, and number that could not be imported."""

    records: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: int = 0
    halves: dict[str, str] = field(default_factory=dict)
    """v2 halves of hybrid torrents whose v1 half has not come yet, by the info hash of that."""


def _identity(path: Path) -> list[str | int]:
    """A file is the same while its name, size and time are; a folder while its name is."""
    if path.is_dir():
        return [str(path)]
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]


_BATCH = 1000
"""Rows per batch: a batch is read, then written."""
Resume = Annotated[
    Path | None,
    Option(
        "--resume", metavar="FILE", help="Keep the progress in FILE, and continue from there after an interruption."
    ),
]


def import_records(
    paths: Annotated[
        list[Path],
        Argument(metavar="FOLDER|FILE…", help="Folders of .torrent files, or .torrent, .csv and .jsonl files."),
    ],
    what: Annotated[
        str | None, Option(help=f"Kind of rows without a column `kind`: {', '.join(WHAT)}.", show_default="by columns")
    ] = None,
    mapped: Annotated[
        Path | None,
        Option(
            "--map",
            metavar="FILE.toml",
            help="Which columns hold which fields, for CSV files and JSON lines of another program.",
        ),
    ] = None,
    replace_totals: Annotated[
        bool, Option("--replace-totals", help="Replace the totals of known users by those in the file.")
    ] = False,
    add_to_totals: Annotated[
        bool,
        Option(
            "--add-to-totals",
            help="Add what rows of users on torrents change to the totals of these users and torrents.",
        ),
    ] = False,
    resume: Resume = None,
    check: Annotated[
        bool, Option("--check", help="Read and check all records first, and import none if one is invalid.")
    ] = False,
    tsv: Annotated[
        bool, Option("--tsv", help="The files are tab-separated, as `mysql --batch` writes them, with its escapes.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Read and check, without writing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import .torrent files, or torrents, users, denials, clients, freeleech tokens and what users have on torrents,
    from files of `tracker export` or of a site.

    Known records are updated, so an import can be repeated. Empty fields are unchanged. Records that cannot be read or
    imported are reported on standard error, one per line; the others are imported, and the exit code is 1.
    """
    if what is not None and what not in WHAT:
        raise BadParameter(f"--what must be {', '.join(WHAT)}")
    if mapped is not None and what is not None:
        raise BadParameter("a mapping says what the rows are: leave out --what")
    if missing := [path for path in paths if not path.exists()]:
        raise ClientError(f"{missing[0]}: there is no such file or folder")
    files = torrent_files(load_settings())
    kind, mapping = WHAT[what] if what else None, load_mapping(mapped) if mapped else None
    checking = _Import(paths, partial(reading.read, paths, kind, None, mapping, tsv=tsv))
    if check or dry_run:
        asyncio.run(checking.run(None))
    if dry_run or checking.done.problems:
        checking.summarize(as_json=as_json, dry_run=True)
        return
    read = partial(reading.read, paths, kind, partial(keep_file, files), mapping, tsv=tsv)
    work = _Import(paths, read, resume, replace_totals=replace_totals, add_to_totals=add_to_totals)
    change_store("import", work.write)
    work.summarize(as_json=as_json, dry_run=False)


@dataclass(slots=True)
class _Import:
    """Reads batches in a thread; each batch is written before the next is read."""

    paths: Sequence[Path]
    read: Callable[[], Items]
    checkpoint: Path | None = None
    """Keeps ``done``; of the content of the files only info hashes."""
    replace_totals: bool = False
    add_to_totals: bool = False
    done: Imported = field(default_factory=Imported)
    _inputs: list[list[str | int]] = field(default_factory=list)
    _user_of: dict[str, str] = field(default_factory=dict)
    _passkey_of: dict[str, str] = field(default_factory=dict)
    """Of the rows that were only checked."""

    async def write(self, store: Store, change: Change) -> None:
        change.note(files=" ".join(map(str, self.paths)), replace_totals=self.replace_totals)
        if self.add_to_totals:
            change.note(add_to_totals=True)
        try:
            await self.run(store)
        finally:
            counts = {name.replace(" ", "_"): number for name, number in self.done.outcomes.items()}
            change.count(**counts, **({"problems": self.done.problems} if self.done.problems else {}))

    async def run(self, store: Store | None) -> None:
        """Writes nothing if ``store`` is None."""
        total = await asyncio.to_thread(reading.count_torrents, self.paths)
        items = self.read()
        if self.checkpoint is not None:
            self._load(self.checkpoint)
        with progress("importing" if store else "reading", total) as shown:
            if skipped := self.done.records:
                note(f"continues after {skipped} records")
                await asyncio.to_thread(lambda: next(islice(items, skipped, skipped), None))
                shown.advance(skipped)
            try:
                while batch := await asyncio.to_thread(lambda: list(islice(items, _BATCH))):
                    await self._process(store, batch, shown)
            except asyncio.CancelledError:
                complain(
                    f"interrupted after {shown.done} records; they are imported. Run the command again for the rest"
                )
                raise
        for v2 in self.done.halves.values():
            self._complain(v2, V1_IS_UNREGISTERED)
        if self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)

    def _load(self, checkpoint: Path) -> None:
        """Raises ClientError if the file is damaged, or if it belongs to other files or to an earlier state of them."""
        self._inputs = [_identity(each) for each in self.paths]
        try:
            found = json.loads(checkpoint.read_text())
        except FileNotFoundError:
            return
        except ValueError:
            raise ClientError(f"{checkpoint}: not a file of --resume") from None
        if not isinstance(found, Mapping) or found.get("inputs") != self._inputs:
            raise ClientError(f"{checkpoint}: belongs to an import of other files; delete it to start again")
        self.done = Imported(**{name: value for name, value in found.items() if name != "inputs"})

    async def _process(self, store: Store | None, batch: list[Item | Problem], shown: Progress) -> None:
        """Applies the records of each kind in the order of the batch. Reports problems in the order of the batch."""
        outcomes: dict[int, bool | str] = {}
        for kind in KINDS:
            numbered = {n: each.row for n, each in enumerate(batch) if isinstance(each, Item) and each.kind == kind}
            if rows := [*numbered.values()]:
                found = await self._write(store, kind, rows) if store else [self._check(kind, row) for row in rows]
                outcomes |= dict(zip(numbered, found, strict=True))
        counts = Counter(self.done.outcomes)
        for number, each in enumerate(batch):
            outcome = each.reason if isinstance(each, Problem) else outcomes[number]
            if isinstance(outcome, str):
                self._complain(each.origin, outcome)
            elif isinstance(each, Item):
                counts[f"{each.kind} {'added' if outcome else 'known'}"] += 1
        self.done.outcomes = dict(counts)
        self.done.records += len(batch)
        if self.checkpoint is not None:
            new = self.checkpoint.with_name(f"{self.checkpoint.name}.new")
            new.write_text(json.dumps({"inputs": self._inputs, **asdict(self.done)}))
            new.replace(self.checkpoint)
        shown.advance(len(batch))

    async def _write(self, store: Store, kind: Kind, rows: Sequence[Row]) -> list[bool | str]:
        """For each record whether it is new, or why it is not imported."""
        if kind == "torrent":
            outcomes = await _write_torrents(store, rows)
            await self._link(store, [row for row, each in zip(rows, outcomes, strict=True) if isinstance(each, bool)])
            return outcomes
        if kind == "user":
            saved = await store.user_import.save(rows, replace_totals=self.replace_totals)
            return [each.text if isinstance(each, ClientError) else each.new for each in saved]
        if kind == "user_torrent":
            known = await store.user_history.save(rows, add_to_totals=self.add_to_totals)
            return [each.text if isinstance(each, ClientError) else each for each in known]
        return [await _write_one(store, kind, row) for row in rows]

    async def _link(self, store: Store, rows: Sequence[Row]) -> None:
        """Links the halves of hybrid torrents, once both are registered: the v1 half may come in a later batch."""
        waiting, halves = self.done.halves, list[tuple[InfoHash, InfoHash]]()
        for row in rows:
            if "hybrid_of" in row:
                halves.append((parse_info_hash(row["info_hash"]), parse_info_hash(row["hybrid_of"])))
            if waits := waiting.pop(row["info_hash"].lower(), None):
                halves.append((parse_info_hash(waits), parse_info_hash(row["info_hash"])))
        unknown = set(await store.torrents.unregistered([v1 for _, v1 in halves]))
        for v2, v1 in halves:
            if v1 in unknown and waiting.setdefault(v1.hex(), v2.hex()) == v2.hex():
                continue
            try:
                await link_halves(store, v2, v1)
            except ClientError as error:
                self._complain(v2.hex(), error.text)

    def _complain(self, origin: str, problem: str) -> None:
        self.done.problems += 1
        complain(f"{origin}: {problem}")

    def _check(self, kind: Kind, row: Row) -> bool | str:
        """Checks the record without the store. Of the files, each passkey is of one user, and each user has one."""
        outcome, passkey, user_id = _check(kind, row), row.get("passkey"), row.get("user_id")
        if kind != "user" or outcome is not True or not passkey or not user_id:
            return outcome
        if self._user_of.setdefault(passkey, user_id) != user_id:
            return "this passkey belongs to another user: give one of them a new one"
        has_another = self._passkey_of.setdefault(user_id, passkey) != passkey
        return "the user with this id has another passkey" if has_another else True

    def summarize(self, *, as_json: bool, dry_run: bool) -> None:
        """Prints the totals; exit code 1 if there were problems."""
        done = self.done
        for kind in KINDS:
            added, known = (done.outcomes.get(f"{kind} {how}", 0) for how in ("added", "known"))
            does = f"added, {known} known" if kind in ("torrent", "user", "user_torrent") else "set"
            does = "would be imported" if dry_run else does
            row: dict[str, Value] = {"kind": kind, "added": added, "known": known, "dry_run": dry_run}
            if added + known:
                show(row, f"{kind.replace('_', ' ')}s: {added} {does}", as_json=as_json)
        if as_json:
            say_json({"problems": done.problems})
        elif not done.outcomes and not done.problems:
            say("nothing to import")
        if done.problems:
            complain(f"{done.problems} could not be imported")
            raise Exit(1)


async def _write_torrents(store: Store, rows: Sequence[Row]) -> list[bool | str]:
    outcomes: list[bool | str] = []
    valid = []
    for row in rows:
        try:
            parse_info_hash(row.get("hybrid_of", row["info_hash"]))
            valid.append((parse_info_hash(row["info_hash"]), _torrent_fields(row)))
            outcomes.append(False)
        except ClientError as error:
            outcomes.append(error.text)
    added = iter(await store.torrents.add_many(valid))
    for number, outcome in enumerate(outcomes):
        if outcome is False:
            found = next(added)
            outcomes[number] = found.text if isinstance(found, ClientError) else found[1]
    return outcomes


async def _write_one(store: Store, kind: Kind, row: Row) -> bool | str:
    try:
        if kind == "denial":
            await deny_torrent(store, parse_info_hash(row["info_hash"]), row.get("reason", NOT_SERVED))
        elif kind == "freeleech_token":
            info_hash, until = _token(row)
            torrent = await counting_torrent(store, info_hash)
            await store.freeleech.give(row["user_id"], torrent.torrent_id, until)
        elif kind == "denied_client":
            await store.deny_list.add(parse_prefix(row["prefix"]), row.get("reason", ""))
        else:
            await store.allow_list.add(parse_prefix(row["prefix"]), row.get("name", ""))
    except ClientError as error:
        return error.text
    return True


def _token(row: Row) -> tuple[InfoHash, int | None]:
    """(torrent, end in epoch s; None: never). Raises ClientError."""
    if not is_user_id(row["user_id"]):
        raise ClientError("a user id is a positive number")
    return parse_info_hash(row.get("info_hash", "")), parse_time(row["until"]) if "until" in row else None


def _torrent_fields(row: Row) -> dict[str, str]:
    """Without ``hybrid_of``: halves are linked afterwards."""
    others = {"info_hash", "hybrid_of"}
    return {STORED_NAMES.get(name, name): value for name, value in row.items() if name not in others}


def _check(kind: Kind, row: Row) -> bool | str:
    """Checks the record without the store."""
    try:
        for name in ("info_hash", "hybrid_of"):
            if name in row:
                parse_info_hash(row[name])
        if kind == "freeleech_token":
            _token(row)
        elif kind == "torrent":
            checked_torrent(_torrent_fields(row))
        elif kind == "user":
            checked_user(row)
        elif kind == "user_torrent":
            checked_history(row)
        elif kind in ("client", "denied_client"):
            check_prefix(parse_prefix(row["prefix"]))
    except ClientError as error:
        return error.text
    return True

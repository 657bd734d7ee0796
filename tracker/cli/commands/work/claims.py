"""The group ``tracker work``; in it ``release``, ``block``, ``unblock``, ``blocked``, ``top``, ``log`` and ``drain``.

``drain`` writes finished claims to files. A line is on the disk before its entry is acknowledged. So a command that is
killed loses no line; the next one repeats some, which their ids show.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option

from tracker.cli.commands import PAGE, Limit, Month, Pages, group, in_order, run_each, with_store
from tracker.cli.terminal import Moment, Row, progress, say
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.store.store import Store
from tracker.store.work.log import FinishedClaim
from tracker.store.work.statistics import Board, Rank
from tracker.system.private_file import open_private, sync_directory

commands = group("Give work to volunteers: projects, items and claims.")

Project = Annotated[str, Argument(metavar="PROJECT", help="Name of a project.")]
OlderThan = Annotated[float | None, Option(min=0, max=1_000_000, metavar="HOURS", help="Only those at least this old.")]
Who = Annotated[
    list[str], Argument(metavar="[PROJECT] WHO…", help="Claimants, addresses, or the /64 of IPv6 addresses.")
]
Everywhere = Annotated[bool, Option("--everywhere", help="In all projects; give no PROJECT.")]


def _check_filter(
    every: bool, older_than: float | None, claimant: str | None, item: str | None, prefix: str | None
) -> None:
    if not every and (older_than, claimant, item, prefix) == (None, None, None, None):
        raise BadParameter("give --older-than, --claimant, --item, --prefix or --all")


@commands.command("release", audited="claims.release", checks=_check_filter)
async def release_claims(
    store: Store,
    change: Change,
    project: Project,
    older_than: OlderThan = None,
    claimant: Annotated[str | None, Option(help="Only claims of this claimant.")] = None,
    item: Annotated[str | None, Option(help="Only claims of this item.")] = None,
    prefix: Annotated[str | None, Option(help="Only claims of items that begin with this.")] = None,
    every: Annotated[bool, Option("--all", help="All claims.")] = False,
) -> None:
    """End claims that match all options. Their items return to the queues that they came from."""
    await change.touch("project", project)
    await store.work.projects.get(project)
    seconds = None if older_than is None else older_than * 3600
    released = await store.work.claims.release_all(
        project, claimant=claimant, item=item, prefix=prefix or "", older_than=seconds
    )
    change.note(claimant=claimant, item=item, item_prefix=prefix, older_than_hours=older_than)
    change.count(released=released)
    say(f"released {released}")


@commands.command("block")
def block(who: Who, everywhere: Everywhere = False) -> None:
    """Give claimants or addresses no more work, in a project or in all. Claims stay until they end."""

    async def action(store: Store, name: str, project: str | None) -> str:
        new = await store.work.blocks.block(name, project)
        return f"blocked {name}" if new else f"{name} was blocked already"

    _run_each(who, everywhere, action, "block.add")


@commands.command("unblock")
def unblock(who: Who, everywhere: Everywhere = False) -> None:
    """Undo `tracker work block`."""

    async def action(store: Store, name: str, project: str | None) -> str:
        if not await store.work.blocks.unblock(name, project):
            raise ClientError("is not blocked")
        return f"unblocked {name}"

    _run_each(who, everywhere, action, "block.remove")


def _run_each(
    words: list[str], everywhere: bool, action: Callable[[Store, str, str | None], Awaitable[str]], operation: str
) -> None:
    """``words``: the project, unless the action is for all of them, and who is meant."""
    if not everywhere and len(words) < 2:
        raise BadParameter("give a project and whom to block, or --everywhere")
    project, names = (None, words) if everywhere else (words[0], words[1:])
    objects = [f"{project or ''}/{name}" for name in names]
    run_each(names, lambda store, name: action(store, name, project), operation, "block", objects=objects)


@commands.command("blocked", lists="who:45")
async def list_blocked(
    store: Store,
    project: Annotated[
        str | None, Argument(metavar="[PROJECT]", help="Default: the list that applies to all projects.")
    ] = None,
) -> Pages:
    """List blocked claimants and addresses."""
    if project is not None:
        await store.work.projects.get(project)
    yield ({"who": who} for who in await store.work.blocks.all(project))


def _check_week(week: str | None) -> str | None:
    if week is not None and not re.fullmatch(r"[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3])", week, re.ASCII):
        raise BadParameter("must be a year and an ISO week, such as 2026-W47")
    return week


@commands.command("top", lists="claimant:30 items>10 bytes>20 seconds>12")
async def show_top(
    store: Store,
    project: Project,
    by: Annotated[Board, Option(help="count: items.")] = "count",
    month: Month = None,
    week: Annotated[
        str | None, Option(metavar="YYYY-Www", help="Only this ISO week (UTC). Not with --month.", callback=_check_week)
    ] = None,
    limit: Limit = 20,
) -> Pages:
    """List claimants by finished items, reported bytes or verified seconds, highest first."""
    if week is not None and month is not None:
        raise BadParameter("give --month or --week")
    await store.work.projects.get(project)

    async def read(offset: int, count: int) -> list[Rank]:
        return (await store.work.leaderboard.table(project, by, month or week, count, offset))[0]

    async for page in in_order(limit, read):
        yield map(asdict, page)


@commands.command("log", lists="at:20 claimant:30 bytes>20 seconds>10 item")
async def show_log(store: Store, project: Project, limit: Limit = 20) -> Pages:
    """List finished claims, newest first. `tracker work drain` writes them to files."""

    def row(entry: FinishedClaim) -> Row:
        return {
            "at": Moment(entry.at),
            "bytes": entry.total_bytes,
            **{name: getattr(entry, name) for name in ("id", "claimant", "address", "seconds", "item")},
        }

    await store.work.projects.get(project)
    left, before = limit, ""
    while left:
        found = await store.work.log.newest(project, min(PAGE, left), before)
        yield map(row, found)
        if not found:
            return
        left, before = left - len(found), found[-1].id


@commands.command("drain")
def drain_log(
    project: Project,
    directory: Annotated[Path, Argument(metavar="DIR", help="Directory for PROJECT-DATE.jsonl; created if missing.")],
) -> None:
    """Append new finished claims to files, one JSON object a line. After that the store may delete them.

    There is one file per UTC day, by the end of the claims. Each claim is written at least once: after a crash a line
    may be repeated, or incomplete and then repeated. A claim's `id` is unique.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def work(store: Store) -> None:
        written = 0
        with locked(directory), progress("written") as shown:
            await store.work.log.open_drain(project)
            while entries := await store.work.log.read_drain(project, 500):
                write(directory, project, [entry for entry in entries if entry.item])
                await store.work.log.acknowledge(project, entries)
                written += len(entries)
                shown.advance(len(entries))
        say(f"written {written}")

    with_store(work)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Two commands at once would read the same entries. Raises ClientError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ClientError("another command writes to this directory") from error
    finally:
        os.close(descriptor)


def write(directory: Path, project: str, entries: Sequence[FinishedClaim]) -> None:
    """Appends the entries to the files of their days, and waits until they are on the disk. Raises OSError."""
    # Ids begin with milliseconds of the server's clock, and do not run backwards.
    days = groupby(entries, lambda each: time.strftime("%Y-%m-%d", time.gmtime(int(each.id.partition("-")[0]) / 1000)))
    for day, rows in days:
        with open(str(directory / f"{project}-{day}.jsonl"), "ab+", opener=open_private) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that was cut off by a crash must not swallow the next one
                    file.write(b"\n")
            for entry in rows:
                file.write(json.dumps({"project": project, **asdict(entry)}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    sync_directory(directory)

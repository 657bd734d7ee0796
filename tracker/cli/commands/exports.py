"""``tracker export``."""

import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Annotated

from typer import Argument, BadParameter, Option

from tracker.cli.commands import EVERYTHING, in_no_order, in_order, with_store
from tracker.cli.files.rows import COLUMNS, WHAT, Kind, Row, csv_writer, json_writer, text_of
from tracker.cli.terminal import progress
from tracker.errors import StoreUnavailable
from tracker.operations.peers import format_prefix
from tracker.operations.users import freeleech_tokens
from tracker.store.schema.multipliers import MULTIPLIERS
from tracker.store.schema.record import shown
from tracker.store.sharding.shards import named, noting_unavailable_shards
from tracker.store.store import Store
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import User
from tracker.store.users.freeleech import MAX_TOKENS
from tracker.system.private_file import private_file


def export_records(
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="Created readable by you only. Default: standard output.")
    ] = None,
    what: Annotated[str, Option(help=f"{', '.join(WHAT)} or all.")] = "torrents",
    format: Annotated[
        str | None, Option(help="csv or jsonl (JSON lines).", show_default="by the name of FILE, else jsonl")
    ] = None,
    no_passkeys: Annotated[bool, Option("--no-passkeys", help="Leave out passkeys.")] = False,
    with_auto: Annotated[
        bool, Option("--with-auto", help="Include torrents that registered themselves in open mode.")
    ] = False,
) -> None:
    """Export torrents, users, the deny list, clients, freeleech tokens or what users have on torrents, in the format of
    `tracker import`.

    Swarms and statistics are not exported: `tracker backup` has everything.
    """
    if what != "all" and what not in WHAT:
        raise BadParameter(f"--what must be {', '.join(WHAT)} or all")
    form = format or ("csv" if file and file.suffix.lower() == ".csv" else "jsonl")
    if form not in ("csv", "jsonl"):
        raise BadParameter("--format must be csv or jsonl")
    if form == "csv" and what == "all":
        raise BadParameter("a CSV file holds one kind of record: choose it with --what, or use --format jsonl")
    if form == "csv" and file is None and sys.stdout.isatty():
        raise BadParameter("names are not escaped in CSV, which is unsafe in a terminal: give a FILE")
    kinds = tuple(WHAT.values()) if what == "all" else (WHAT[what],)

    async def work(store: Store) -> None:
        with ExitStack() as stack:
            missing = stack.enter_context(noting_unavailable_shards())
            out: IO[str] = sys.stdout
            if file is not None:
                text = TextIOWrapper(stack.enter_context(private_file(file)), "utf-8", newline="", write_through=False)
                stack.callback(text.detach)  # private_file closes it
                out = text
            write = csv_writer(out, kinds[0]) if form == "csv" else json_writer(out)
            with progress("exported", quiet=file is None) as shown:
                for kind in kinds:
                    async for page in _pages(store, kind, passkeys=not no_passkeys, with_auto=with_auto):
                        for row in page:
                            write(kind, row)
                        shown.advance(len(page))
            if missing:
                raise StoreUnavailable(f"the store does not answer for {named(missing)}; nothing was exported")
            out.flush()

    with_store(work)


async def _pages(store: Store, kind: Kind, *, passkeys: bool, with_auto: bool) -> AsyncIterator[list[Row]]:
    """Tokens without those that have ended; tokens and users on torrents without those of removed torrents."""
    match kind:
        case "torrent":
            async for page in in_no_order(store.torrents.page):
                found = [each for each in page if each.registered and (with_auto or each.fields.get("auto") != "1")]
                yield [_row(kind, each, info_hash=each.info_hash.hex(), snatches=each.completions) for each in found]
        case "user":
            async for users in in_order(EVERYTHING, store.users.page):
                yield [_row(kind, each, passkey=each.passkey if passkeys else "") for each in users]
        case "denial":
            async for denials in in_order(EVERYTHING, store.torrents.denials):
                yield [{"info_hash": each.info_hash.hex(), "reason": each.reason} for each in denials]
        case "client" | "denied_client":
            clients, about = (store.allow_list, "name") if kind == "client" else (store.deny_list, "reason")
            async for prefixes in in_no_order(clients.page):
                yield [{"prefix": format_prefix(prefix), about: text} for prefix, text in prefixes]
        case "freeleech_token":
            async for users in in_order(EVERYTHING, store.users.page):
                yield [row for user in users for row in await _tokens(store, user.user_id)]
        case "user_torrent":
            async for _, rows in store.user_history.parts():
                yield [{name: text_of(value) for name, value in shown(each, COLUMNS[kind]).items()} for each in rows]


def _row(kind: Kind, found: Torrent | User, **others: str | int) -> Row:
    """The record as text; a multiplier of 1 is empty, as nearly all are."""
    values = {**found.settable(), **others}
    row = {name: text_of(values[name] if name in values else getattr(found, name)) for name in COLUMNS[kind]}
    for name in MULTIPLIERS:
        if row[name] == "1":
            row[name] = row[f"{name}_until"] = ""
    return row


async def _tokens(store: Store, user_id: str) -> list[Row]:
    tokens = await freeleech_tokens(store, user_id, 0, MAX_TOKENS)
    return [
        {"user_id": user_id, "info_hash": token["info_hash"], "until": str(token["until"] or "")}
        for token in tokens
        if token["info_hash"]
    ]

"""``tracker torrent …``."""

from pathlib import Path
from typing import Annotated

import typer

from tracker import terminal
from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.commands import DENIED, PAGE, AsJson, Config, InfoHashes, each, group, shown_bytes, with_stores
from tracker.errors import ClientError
from tracker.store.torrents import Peer, Torrent
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row
from tracker.torrent_file import MAX_BYTES, parse_torrent_file

_V2_HEX_DIGITS = 64

torrents = group("Register torrents, and look at them.")


@torrents.command("add")
def add_torrent(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.torrent|INFO_HASH…", help="Torrent files, or info hashes in hexadecimal."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Instead of the file's own; for one torrent only.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Mark as private even when the file does not.")
    ] = False,
    reset_score: Annotated[
        bool, typer.Option("--reset-score", help="Let the scores of known torrents begin anew.")
    ] = False,
    config: Config = None,
) -> None:
    """Register torrents; a hybrid file under its v1 and its v2 info hash. Known ones keep their figures."""
    if name is not None and len(what) > 1:
        raise typer.BadParameter("give --name with one torrent only")

    async def action(stores: Stores, text: str) -> str:
        info_hashes, fields = _described(text)
        fields |= {"name": name} if name is not None else {}
        fields |= {"private": "1"} if private else {}
        lines = []
        for info_hash in info_hashes:
            torrent_id, new = await stores.torrents.add(info_hash, fields, reset_score=reset_score)
            lines.append(
                f"{'added' if new else 'known'} {info_hash.hex()} as {torrent_id} {fields.get('name', '')}"
            )
        return "\n".join(line.rstrip() for line in lines)

    each(config, what, action)


def _described(text: str) -> tuple[tuple[InfoHash, ...], dict[str, str]]:
    """The info hashes that ``text``, a file or an info hash, stands for, and what the file says of them."""
    if _is_hex(text) and not Path(text).exists():
        # What a v2 info hash is announced by (BEP 52): its first 20 bytes.
        return (parse_info_hash(text[:40]),), {}
    with Path(text).open("rb") as file:
        found = parse_torrent_file(file.read(MAX_BYTES + 1))
    return found.announce_hashes, {"name": found.name, "private": str(int(found.private))}


def _is_hex(text: str) -> bool:
    return len(text) in (40, _V2_HEX_DIGITS) and all(c in "0123456789abcdefABCDEF" for c in text)


@torrents.command("remove")
def remove_torrent(info_hashes: InfoHashes, config: Config = None) -> None:
    """Take registrations away; in open mode the next announce registers anew (see `tracker deny`)."""

    async def action(stores: Stores, text: str) -> str:
        if not await stores.torrents.remove(parse_info_hash(text)):
            raise ClientError("is not registered")
        return f"removed {text}"

    each(config, info_hashes, action)


@torrents.command("enable")
def enable_torrent(info_hashes: InfoHashes, config: Config = None) -> None:
    """Serve disabled torrents again."""
    _edit_torrents(config, info_hashes, {"enabled": "1", "reason": ""}, "enabled")


@torrents.command("disable")
def disable_torrent(
    info_hashes: InfoHashes,
    reason: Annotated[str, typer.Option(help="Shown to whoever announces it.")] = DENIED,
    config: Config = None,
) -> None:
    """Refuse announces of registered torrents, and keep their figures."""
    _edit_torrents(config, info_hashes, {"enabled": "0", "reason": reason}, "disabled")


def _edit_torrents(config: Path | None, info_hashes: list[str], fields: dict[str, str], done: str) -> None:
    async def action(stores: Stores, text: str) -> str:
        await stores.torrents.edit(parse_info_hash(text), fields)
        return f"{done} {text}"

    each(config, info_hashes, action)


@torrents.command("edit")
def edit_torrent(
    info_hashes: InfoHashes,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    private: Annotated[bool | None, typer.Option("--private/--public", help="What its file says.")] = None,
    upload_multiplier: Annotated[
        str | None, typer.Option(help="What users are credited of what they upload, 0 to 1000 times.")
    ] = None,
    download_multiplier: Annotated[str | None, typer.Option(help="The same of what they download.")] = None,
    config: Config = None,
) -> None:
    """Change what is kept about registered torrents; what is not named stays."""
    given = {
        "name": name,
        "private": None if private is None else str(int(private)),
        "multi_up": upload_multiplier,
        "multi_dn": download_multiplier,
    }
    fields = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise typer.BadParameter("say what to change, such as --name")
    _edit_torrents(config, info_hashes, fields, "changed")


@torrents.command("search")
def search_torrents(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Part of a name, or how an info hash begins.")],
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Find torrents by name or info hash."""
    listing = Listing(_columns(score=False), as_json=as_json)

    async def work(stores: Stores) -> None:
        left, cursor = limit, "first"
        while left and cursor:
            cursor, found = await stores.torrents.search(
                text, min(PAGE, left), "" if cursor == "first" else cursor
            )
            listing.page(_torrent_row(each) for each in found)
            left -= len(found)

    with_stores(config, work)


@torrents.command("history")
def show_history(
    info_hash: Annotated[str, typer.Argument(metavar="INFO_HASH")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show how a torrent was at its last scorings, oldest first; times are epoch seconds."""
    figures = [Column(name, 12, right=True) for name in ("at", "seeders", "leechers", "completions", "score")]
    listing = Listing(figures, as_json=as_json)

    async def work(stores: Stores) -> None:
        found = await stores.torrents.get(parse_info_hash(info_hash))
        if found is None:
            raise ClientError("unknown torrent")
        points = await stores.torrents.history(found)
        listing.page({column.name: getattr(point, column.name) for column in figures} for point in points)

    with_stores(config, work)


@torrents.command("list")
def list_torrents(
    by: Annotated[str, typer.Option(help="The most of: seeders, leechers, snatches or score.")] = "seeders",
    limit: Annotated[int, typer.Option(min=1, help="How many.", show_default="all")] = 2**53,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List registered torrents; by score those that have one, which a torrent without peers loses in time."""
    if by not in ("seeders", "leechers", "snatches", "score"):
        raise typer.BadParameter("--by takes seeders, leechers, snatches or score")
    listing = Listing(_columns(score=by == "score"), as_json=as_json)

    async def work(stores: Stores) -> None:
        for offset in range(0, limit, PAGE):
            count = min(PAGE, limit - offset)
            found = await stores.torrents.top(by, count, offset)
            if offset and not found:
                return
            listing.page(_torrent_row(each) for each in found)

    with_stores(config, work)


def _columns(*, score: bool) -> list[Column]:
    return [
        Column("info_hash", 40),
        Column("seeders", 8, right=True),
        Column("leechers", 8, right=True),
        Column("completions", 11, right=True),
        *([Column("score", 6, right=True)] if score else []),
        Column("state", 12),
        Column("name"),
    ]


def _torrent_row(found: Torrent) -> Row:
    return {
        "info_hash": found.info_hash.hex(),
        "seeders": found.seeders,
        "leechers": found.leechers,
        "completions": found.completions,
        "score": found.score,
        "state": _state(found),
        "name": found.name,
    }


def _state(found: Torrent) -> str:
    if found.denied is not None:
        return "denied"
    if not found.enabled:
        return "disabled"
    return "registered" if found.registered else "unregistered"


@torrents.command("show")
def show_torrent(
    info_hash: Annotated[str, typer.Argument(metavar="INFO_HASH")],
    peers: Annotated[bool, typer.Option("--peers", help="List its peers as well.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show a torrent and its figures."""

    async def work(stores: Stores) -> None:
        found = await stores.torrents.get(parse_info_hash(info_hash))
        if found is None:
            raise ClientError("unknown torrent")
        terminal.describe(_torrent_details(found), as_json=as_json)
        if peers:
            await _list_peers(stores, found, as_json)

    with_stores(config, work)


def _torrent_details(found: Torrent) -> Row:
    return {
        **_torrent_row(found),
        "torrent_id": found.torrent_id,
        "private": found.private,
        "announces": found.announces,
        "reason": found.reason if found.denied is None else found.denied,
        "upload_multiplier": found.fields.get("multi_up", "1"),
        "download_multiplier": found.fields.get("multi_dn", "1"),
    }


async def _list_peers(stores: Stores, found: Torrent, as_json: bool) -> None:
    columns = [Column("peer_id", 30), Column("seeding", 8), Column("uploaded", 16, right=True)]
    listing = Listing([*columns, Column("downloaded", 16, right=True), Column("endpoints")], as_json=as_json)
    cursor = -1
    while cursor:
        cursor, page = await stores.torrents.peers(found, max(cursor, 0), PAGE)
        listing.page(_peer_row(peer) for peer in page)


def _peer_row(peer: Peer) -> Row:
    return {
        "peer_id": shown_bytes(peer.peer_id),
        "seeding": peer.seeding,
        "uploaded": peer.fields.get("uploaded", "0"),
        "downloaded": peer.fields.get("downloaded", "0"),
        "endpoints": " ".join(terminal.endpoint(packed) for packed in peer.endpoints),
    }

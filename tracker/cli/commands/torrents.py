"""``tracker torrent …``."""

import re
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tracker import terminal
from tracker.admin import operations
from tracker.bittorrent import parse_info_hash
from tracker.commands import AsJson, Config, InfoHashes, each, group, load_settings, with_stores
from tracker.commands.paging import EVERYTHING, PAGE, in_no_order, in_order
from tracker.errors import ClientError
from tracker.geoip import GeoIP
from tracker.store.torrents import Peer, Torrent
from tracker.stores import Stores
from tracker.terminal import MOMENT, Column, Listing, Moment, Row
from tracker.torrent_file import MAX_BYTES

_HASH = re.compile("[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")

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
        data = _file(text)
        if data is not None:
            added = await operations.add_file(
                stores.torrents, data, name=name, private=private, reset_score=reset_score
            )
        else:
            fields = operations.torrent_fields(name=name, private=private or None)
            info_hash = operations.parse_hash(text)
            one = await operations.add_torrent(stores.torrents, info_hash, fields, reset_score=reset_score)
            added = [one]
        return "\n".join(map(_told, added))

    each(config, what, action)


def _file(text: str) -> bytes | None:
    """What is in the file of this name; None for an info hash that is not one's name, too."""
    path = Path(text)
    if _HASH.fullmatch(text) and not path.exists():
        return None
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _told(added: operations.Added) -> str:
    how = "added" if added.new else "known"
    return f"{how} {added.info_hash.hex()} as {added.torrent_id} {added.name}".rstrip()


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
    reason: Annotated[str, typer.Option(help="Shown to whoever announces it.")] = operations.NOT_SERVED,
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
    """Show how a torrent was at its last scorings, oldest first."""
    figures = [Column(name, 12, right=True) for name in ("seeders", "leechers", "completions", "score")]
    listing = Listing([Column("at", MOMENT), *figures], as_json=as_json)

    async def work(stores: Stores) -> None:
        found = await stores.torrents.get(parse_info_hash(info_hash))
        if found is None:
            raise ClientError("unknown torrent")
        points = await stores.torrents.history(found)
        listing.page(
            {"at": Moment(point.at), **{column.name: getattr(point, column.name) for column in figures}}
            for point in points
        )

    with_stores(config, work)


@torrents.command("list")
def list_torrents(
    by: Annotated[str, typer.Option(help="The most of: seeders, leechers, snatches or score.")] = "seeders",
    least: Annotated[bool, typer.Option("--least", help="The least first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many.", show_default="all")] = EVERYTHING,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List registered torrents; by score those that have one, which a torrent without peers loses in time."""
    if by not in ("seeders", "leechers", "snatches", "score"):
        raise typer.BadParameter("--by takes seeders, leechers, snatches or score")
    listing = Listing(_columns(score=by == "score"), as_json=as_json)

    async def work(stores: Stores) -> None:
        async def read(offset: int, count: int) -> list[Torrent]:
            return await stores.torrents.top(by, count, offset, ascending=least)

        async for page in in_order(limit, read):
            listing.page(map(_torrent_row, page))

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
        "state": operations.state_of(found),
        "name": found.name,
    }


@torrents.command("show")
def show_torrent(
    info_hash: Annotated[str, typer.Argument(metavar="INFO_HASH")],
    peers: Annotated[bool, typer.Option("--peers", help="List its peers as well.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show a torrent and its figures."""
    settings = load_settings(config)

    async def work(stores: Stores) -> None:
        found = await stores.torrents.get(parse_info_hash(info_hash))
        if found is None:
            raise ClientError("unknown torrent")
        users = await stores.uniques.figure(f"torrents.{found.info_hash.hex()}.users")
        terminal.describe({**_torrent_details(found), "unique_users": users}, as_json=as_json)
        if peers:
            with closing(GeoIP(settings.geoip.database)) as places:
                await _list_peers(stores, found, places, as_json)

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


async def _list_peers(stores: Stores, found: Torrent, places: GeoIP, as_json: bool) -> None:
    columns = [Column("peer_id", 30), Column("seeding", 8), Column("uploaded", 16, right=True)]
    columns += [Column("downloaded", 16, right=True), Column("endpoints")]
    listing = Listing([*columns, Column("country", 7), Column("client", 20)], as_json=as_json)
    async for page in in_no_order(partial(stores.torrents.peers, found)):
        listing.page(_peer_row(peer, places) for peer in page)


def _peer_row(peer: Peer, places: GeoIP) -> Row:
    """With more than the columns show: all of it is for programs."""
    shown = operations.shown_prefix(peer.peer_id)
    view = operations.peer_view(peer, places)
    return {**asdict(view), "peer_id": shown, "endpoints": " ".join(view.endpoints)}

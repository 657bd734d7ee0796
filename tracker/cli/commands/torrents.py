"""``tracker torrent …``, ``tracker score …``, ``tracker deny``, ``tracker allow`` and ``tracker denied``."""

import re
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import (
    EVERYTHING,
    AsJson,
    InfoHash,
    Limit,
    LimitOrAll,
    Pages,
    group,
    in_no_order,
    in_order,
    load_settings,
    run_each,
    torrent_files,
    traits,
)
from tracker.cli.commands.options import (
    Given,
    OptionsOf,
    RemoveRule,
    Rule,
    Until,
    check_removed,
    given_multipliers,
    given_rules,
    row_of,
)
from tracker.cli.terminal import Listing, Moment, Row, describe, note, say
from tracker.errors import ClientError, existing
from tracker.operations import torrents as operations
from tracker.operations.peers import format_prefix, peer_views
from tracker.store.schema.multipliers import MULTIPLIERS
from tracker.store.store import Store
from tracker.store.torrents.listing import Order, TorrentFilter
from tracker.store.torrents.records import PENDING, Enabled
from tracker.store.torrents.torrents import Torrent
from tracker.wire.torrent_file import MAX_BYTES

State = Literal["enabled", "pending", "disabled"]
_STATES: dict[State | None, Enabled] = {"enabled": True, "pending": "pending", "disabled": False}

_HASH = re.compile("[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")

InfoHashes = Annotated[list[str], Argument(metavar="INFO_HASH…", help="40 hexadecimal digits each.")]
Reason = Annotated[str, Option(help="Reason shown to clients.")]
Pending = Annotated[bool, Option("--pending", help="Refuse announces until `tracker torrent enable` approves it.")]

torrents = group("Register and inspect torrents.")


@torrents.command("add", given=OptionsOf(Torrent, without=("enabled", "reason", "size", "hybrid_of")))
def add_torrent(
    what: Annotated[
        list[str], Argument(metavar="FILE.torrent|INFO_HASH…", help="Torrent files, or info hashes in hexadecimal.")
    ],
    given: Given = None,
    pending: Pending = False,
    until: Until = None,
    reset_score: Annotated[bool, Option("--reset-score", help="Reset the scores of known torrents.")] = False,
) -> None:
    """Register torrents, hybrid files under both info hashes as one torrent. Known ones keep their statistics.

    A name replaces the file's, and is for one torrent only. A torrent is private if its file says so, or the option.
    """
    fields = given_multipliers(given or {}, until)
    if "name" in fields and len(what) > 1:
        raise BadParameter("--name needs exactly one torrent")
    files = torrent_files(load_settings())
    new: list[str] = []

    async def action(store: Store, text: str) -> str:
        data = _file(text)
        if data is not None:
            added = await operations.add_file(
                store, data, files=files, pending=pending, reset_score=reset_score, **fields
            )
        else:
            row = operations.torrent_fields(**fields, enabled=PENDING if pending else None)
            info_hash = operations.parse_hash(text)
            added = [await operations.add_torrent(store, info_hash, row, reset_score=reset_score)]
        new.extend(one.info_hash.hex() for one in added if one.new)
        how = {True: "added", False: "known"}
        lines = (f"{how[one.new]} {one.info_hash.hex()} as {one.torrent_id} {one.name}" for one in added)
        return "\n".join(map(str.rstrip, lines))

    run_each(what, action, "torrent.add", "torrent", created=new)


def _file(text: str) -> bytes | None:
    """The content of this file; None for an info hash, unless a file has that name."""
    path = Path(text)
    if _HASH.fullmatch(text) and not path.exists():
        return None
    if path.is_dir():
        raise ClientError("a folder; `tracker import FOLDER` adds all its torrent files")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


@torrents.command("remove", audited="torrent.remove", each="torrent")
async def remove_torrent(store: Store, info_hash: InfoHash) -> str:
    """Unregister torrents. In open mode the next announce registers them again (see `tracker deny`).

    The other half of a hybrid torrent stays, and counts for itself from then on.
    """
    files = torrent_files(load_settings())
    if not await operations.remove_torrent(store, files, parse_info_hash(info_hash)):
        raise ClientError("is not registered")
    return f"removed {info_hash}"


@torrents.command("enable", audited="torrent.edit", each="torrent")
async def enable_torrent(store: Store, info_hash: InfoHash) -> str:
    """Enable torrents, both halves of hybrid ones, and approve pending ones."""
    await operations.edit_torrent(store, parse_info_hash(info_hash), {"enabled": "1", "reason": ""})
    return f"enabled {info_hash}"


@torrents.command("disable", audited="torrent.edit", each="torrent")
async def disable_torrent(store: Store, info_hash: InfoHash, reason: Reason = operations.NOT_SERVED) -> str:
    """Disable torrents, both halves of hybrid ones: announces are refused, statistics stay."""
    fields = {"enabled": "0", "reason": reason}
    await operations.edit_torrent(store, parse_info_hash(info_hash), fields)
    return f"disabled {info_hash}"


@torrents.command("renumber")
def renumber_torrents(
    file: Annotated[
        Path,
        Argument(
            metavar="FILE", help="Two columns: info hash or present id, and new id. A first line of names is skipped."
        ),
    ],
) -> None:
    """Give registered torrents other ids, while no tracker runs: in swarms, users' accounts and the change feed.

    If it is interrupted, run it again with the same file. No tracker starts before it has come to its end.
    """
    from tracker.cli.commands.maintenance import renumber  # noqa: PLC0415  # other commands do not need it

    renumber(file)


@torrents.command("edit", given=OptionsOf(Torrent, without=("enabled", "reason")))
def edit_torrent(
    info_hashes: InfoHashes,
    given: Given = None,
    pending: Pending = False,
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
) -> None:
    """Edit registered torrents; other fields are unchanged. Multipliers also change the other half of a hybrid one.

    An empty `--hybrid-of` ends the link between the halves of a hybrid torrent.
    """
    fields, changes = given_rules(given or {}, until, rule, remove_rule)
    row = operations.torrent_fields(**fields, enabled=PENDING if pending else None)
    if not row and not changes:
        raise BadParameter("nothing to change: give an option such as --name")

    async def action(store: Store, text: str) -> str:
        info_hash = parse_info_hash(text)
        await operations.edit_torrent(store, info_hash, row)
        for change in changes:
            check_removed(await operations.change_torrent_rule(store, info_hash, change))
        return f"changed {text}"

    run_each(info_hashes, action, "torrent.edit", "torrent")


@torrents.command("search")
async def search_torrents(
    store: Store,
    text: Annotated[str, Argument(metavar="TEXT", help="Part of a name, or the beginning of an info hash.")],
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Find torrents by name or info hash."""
    await _list(store, TorrentFilter(), text, limit, as_json=as_json)


@torrents.command("history", lists="at:20 seeders>12 leechers>12 snatches>12 score>12")
async def show_history(store: Store, info_hash: InfoHash) -> Pages:
    """Show a torrent's peers and score at its last scorings, oldest first."""
    found = existing(await store.torrents.get(parse_info_hash(info_hash)), "torrent")
    points = await store.torrents.history(found)
    yield (
        {"at": Moment(p.at), "seeders": p.seeders, "leechers": p.leechers, "snatches": p.completions, "score": p.score}
        for p in points
    )


@torrents.command("list")
async def list_torrents(
    store: Store,
    by: Annotated[Order, Option(help="Sort by this.")] = "seeders",
    least: Annotated[bool, Option("--least", help="Lowest first.")] = False,
    state: Annotated[State | None, Option(help="Only these torrents.")] = None,
    private: Annotated[bool | None, Option("--private/--public", help="Only private, or only public torrents.")] = None,
    seeded: Annotated[
        bool | None, Option("--seeded/--unseeded", help="Only torrents with seeders, or only others.")
    ] = None,
    search: Annotated[str, Option(help="Only torrents with this text in their name; sorted by name.")] = "",
    count: Annotated[bool, Option("--count", help="Print only their number.")] = False,
    limit: LimitOrAll = EVERYTHING,
    as_json: AsJson = False,
) -> None:
    """List registered torrents, highest first. By name, size or score, only torrents that have one are listed.

    Sizes, times and filters follow changes within some minutes.
    """
    wanted = TorrentFilter(by, not least, _STATES.get(state), private, seeded)
    await _list(store, wanted, search, limit, as_json=as_json, count=count)


async def _list(
    store: Store, wanted: TorrentFilter, text: str, limit: int, *, as_json: bool, count: bool = False
) -> None:
    """With ``count``, prints only the number of the torrents."""
    score = "score>6 " if wanted.order == "score" else ""
    shown_columns = f"info_hash:40 seeders>8 leechers>8 snatches>8 {score}state:12 name size>14? half:4?"
    listing = Listing(shown_columns, as_json=as_json)
    shown, total = 0, None
    async for page in operations.listed_torrents(store, wanted, text, limit):
        shown, total = shown + len(page.rows), page.total
        if count and total is not None:
            break
        if not count:
            listing.page(map(_torrent_row, page.rows))
    if count:
        say(str(shown if total is None else min(total, limit)))
    elif total is not None and shown < total:
        note(f"{shown} of {total} torrents")


def _torrent_row(found: Torrent) -> Row:
    return {
        "info_hash": found.info_hash.hex(),
        **row_of(found, _SHOWN),
        "snatches": found.completions,
        "state": operations.state_of(found),
        "half": "v2" if found.hybrid_of else "v1" if found.hybrid else "",
    }


_SHOWN = (
    *("name", "seeders", "leechers", "score", "size", "labels", "hybrid_of", "hybrid"),
    *(*MULTIPLIERS, "dht_seeds", "dht_peers", "dht_at"),
)


@torrents.command("show")
async def show_torrent(
    store: Store,
    info_hash: InfoHash,
    peers: Annotated[bool, Option("--peers", help="List its peers too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a torrent and its statistics."""
    found = existing(await store.torrents.get(parse_info_hash(info_hash)), "torrent")
    users = await store.unique_users.users_of(f"torrents.{found.info_hash.hex()}.users")
    row = {**_torrent_row(found), **row_of(found, ("torrent_id", "private", "announces"))}
    reason = found.reason if found.denied is None else found.denied
    describe({**row, "reason": reason, "unique_users": users}, as_json=as_json)
    if not peers:
        return
    from tracker.geoip import GeoIP  # noqa: PLC0415  # a slow import that only this needs

    # JSON output has more fields than the table.
    listing = Listing("peer_id:30 seeding:8 uploaded>16 downloaded>16 endpoints country:7 client:20", as_json=as_json)
    with closing(GeoIP(load_settings().geoip_file)) as places:
        async for page in in_no_order(partial(store.torrents.peers, found)):
            listing.page(
                {
                    **asdict(view),
                    "peer_id": format_prefix(bytes.fromhex(view.peer_id)),
                    "endpoints": " ".join(view.endpoints),
                }
                for view in await peer_views(store, page, places)
            )


@traits(audited="denial.add", each="torrent")
async def deny(store: Store, info_hash: InfoHash, reason: Reason = operations.NOT_SERVED) -> str:
    """Put torrents on the deny list, registered or not, from the next announce on; both halves of hybrid ones."""
    await operations.deny_torrent(store, parse_info_hash(info_hash), reason)
    return f"denied {info_hash}"


@traits(audited="denial.remove", each="torrent")
async def allow(store: Store, info_hash: InfoHash) -> str:
    """Remove torrents from the deny list, both halves of hybrid ones."""
    if not await operations.allow_torrent(store, parse_info_hash(info_hash)):
        raise ClientError("is not on the deny list")
    return f"allowed {info_hash}"


@traits(lists="info_hash:40 reason since:20")
async def denied(store: Store, limit: LimitOrAll = EVERYTHING) -> Pages:
    """List denied torrents with reason and date, newest first."""
    async for page in in_order(limit, store.torrents.denials):
        yield ({"info_hash": each.info_hash.hex(), "reason": each.reason, "since": Moment(each.since)} for each in page)


scores = group("Show torrent scores and scoring progress.")


@scores.command("top", lists="rank>8 score>8 info_hash:40 seeders>8 leechers>8 name")
async def show_ranking(store: Store, limit: Limit = 20) -> Pages:
    """List torrents by score, highest first."""
    rank = 1
    async for page in in_order(limit, lambda offset, count: store.torrents.top("score", count, offset)):
        yield (
            {
                "rank": rank,
                "info_hash": found.info_hash.hex(),
                **row_of(found, ("score", "seeders", "leechers", "name")),
            }
            for rank, found in enumerate(page, rank)
        )
        rank += len(page)


@scores.command("lag")
async def show_lag(store: Store) -> Row:
    """Show how many torrents are ranked, due and late."""
    lag = await store.scores.lag()
    return {**asdict(lag), "longest_seconds": round(lag.longest_seconds)}


@scores.command("place", lists="info_hash:40 rank>8 of>8 score>8 last_processed:20 next_turn:20 being_scored:12")
async def show_place(store: Store, info_hashes: InfoHashes) -> Pages:
    """Show the rank of torrents (1: highest score), and when they are scored next."""
    for text in info_hashes:
        found = await store.torrents.get(parse_info_hash(text))
        place = await store.scores.place(found.torrent_id) if found else None
        if found is None or place is None:
            raise ClientError("is not in the ranking")
        row: Row = {"info_hash": text, "rank": place.rank + 1, "of": place.of, "score": found.score}
        last, next_turn = Moment(place.last_processed), Moment(place.next_turn)
        turns: Row = {"last_processed": last, "next_turn": next_turn, "being_scored": place.being_scored}
        yield [{**row, **turns}]

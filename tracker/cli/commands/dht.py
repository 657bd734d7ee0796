"""``tracker dht …``."""

import asyncio
import time
from typing import Annotated

from typer import Argument, BadParameter, Exit

from tracker.bittorrent import parse_info_hash
from tracker.cli.commands import AsJson, Limit, Pages, group, load_settings
from tracker.cli.terminal import Moment, Row, complain, describe, note, say, say_json
from tracker.errors import ClientError
from tracker.settings.types import host_and_port
from tracker.store.dht.nodes import fields_of
from tracker.store.store import Store

dht = group("Show the node of the DHT, and ask the DHT.")


@dht.command("status")
async def status(store: Store, as_json: AsJson = False) -> None:
    """Show the nodes on this store: state, ids, addresses, known nodes, traffic. They save it every 5 seconds."""
    found = await store.dht_nodes.statuses()
    if not found:
        note("no node of the DHT has used this store in the last 7 days (TRACKER_DHT__ENABLED)")
    for each in found:
        fields = {name: value for name, value in fields_of(each).items() if value is not None}
        fields |= {name: Moment(fields[name]) for name in ("started", "saved", "last_answer") if name in fields}
        torrents = each.participation.sentence if each.participation else ""
        row: Row = {"name": each.name, "state": each.state(time.time()), **fields, "torrents": torrents}
        describe(row, as_json=as_json)
    if found and not as_json:
        say(f"{'looked up':<14}{await store.dht_torrents.looked_up_count()} torrents")


@dht.command("hashes", lists="info_hash:40 seeders>7 peers>7 announced_at:20")
async def hashes(
    store: Store,
    near: Annotated[str, Argument(help="Info hash: list those nearest to it first.")] = "",
    limit: Limit = 100,
) -> Pages:
    """List the torrents that other nodes announced to the nodes on this store, those with most peers first."""
    _, found = await store.dht_nodes.hashes(parse_info_hash(near) if near else None, 0, limit)
    yield (
        {**each._asdict(), "info_hash": each.info_hash.hex(), "announced_at": Moment(each.announced_at)}
        for each in found
    )


def _check_find(info_hash: str) -> None:
    parse_info_hash(info_hash)
    if not load_settings().dht.enabled:
        raise ClientError("the DHT is off (TRACKER_DHT__ENABLED=true)")


@dht.command("find", checks=_check_find)
async def find(store: Store, info_hash: str, as_json: AsJson = False) -> None:
    """Look up a torrent in the DHT now, for up to 45 seconds: its seeders and peers. Only torrents that take part."""
    from tracker.app.dht import find_torrent  # noqa: PLC0415

    settings, wanted = load_settings().dht, parse_info_hash(info_hash)
    if await store.dht_torrents.no_longer_part([wanted], all_torrents=settings.torrents == "all"):
        raise ClientError("this torrent does not take part in the DHT: it is not registered as public, see docs/dht.md")
    saved = [await store.dht_nodes.load(name) for name in await store.dht_nodes.names()]
    found = await find_torrent(settings, saved, wanted)
    if found is None:
        raise ClientError("no node of the DHT answered; is UDP blocked, or TRACKER_DHT__BOOTSTRAP empty?")
    if as_json:
        say_json(found._asdict())
        return
    say(f"{found.seeders} seeders, {found.peers} peers; {found.answered} nodes answered")
    for endpoint in found.endpoints:
        say(endpoint)


@dht.command("ping")
def ping(node: Annotated[str, Argument(metavar="HOST:PORT")]) -> None:
    """Ask one node of the DHT whether it answers."""
    from tracker.app.dht import ping_node  # noqa: PLC0415

    try:
        host_and_port(node)
    except ValueError as error:
        raise BadParameter(str(error)) from None
    seconds = asyncio.run(ping_node(load_settings().dht, node))
    if seconds is None:
        complain("no answer")
        raise Exit(1)
    say(f"answered after {seconds * 1000:.0f} ms")

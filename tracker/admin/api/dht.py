"""/dht: nodes of the DHT, lookups and their results."""

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.jobs import JobEnqueued
from tracker.admin.api.models import Hex, InfoHashText, ItemList, Moment, Page, Paged
from tracker.admin.api.torrents import TorrentRow, fields_of, known
from tracker.bittorrent import parse_info_hash
from tracker.errors import existing
from tracker.operations import service
from tracker.store.dht.nodes import Mode, NodeStatus, State

endpoints = Endpoints("dht", "Nodes of the DHT that trackers on this store run, and what they found.")

_NOT_NOW = "No tracker on this store runs a node, the torrent does not take part in the DHT, or the queue is full."


class DhtFamily(Reply):
    """The node in one address family. IPv4 and IPv6 are two DHTs."""

    id: str = Field(description="40 hexadecimal digits.")
    external_address: str = Field(description="This host's address as other nodes see it; empty if unknown.")
    nodes: int = Field(description="Known nodes.")
    buckets: dict[int, int] = Field(
        description="Known nodes by bucket: the number of leading bits that their ids share with this node's id."
    )


class DhtParticipation(Reply):
    """How many registered torrents take part."""

    registered: int
    looked_at: int = Field(description="How many of them were looked at.")
    torrents: int = Field(description="How many take part; an estimate unless all were looked at.")
    advice: str = Field(description="What to set where nearly none take part; else empty.")


class DhtNodeRow(Reply):
    """A node, as it saved its status. Packets, bytes and lookups count since its start."""

    name: str = Field(description="`TRACKER_DHT__NAME` of its tracker, or the host name.")
    state: State = Field(
        description="`down`: no node has answered for 60 s; `stopped`: its last status is older than 30 s."
    )
    torrents: Mode = Field(description="`TRACKER_DHT__TORRENTS` of its tracker.")
    started: Moment
    saved: Moment
    last_answer: Moment | None
    ipv4: DhtFamily | None
    ipv6: DhtFamily | None
    hashes: int = Field(description="Torrents that other nodes announced to this one.")
    peers: int = Field(description="Their peers.")
    packets_in: int
    packets_out: int
    bytes_in: int
    bytes_out: int
    dropped: dict[str, int] = Field(description="Packets without an answer, by reason.")
    lookups: dict[str, int] = Field(description="Lookups of torrents, by outcome.")
    participation: DhtParticipation | None = Field(description="null until it has been counted.")


class AnnouncedTorrent(Reply):
    """A torrent that other nodes announced to a node on this store. If several know it, as the one with most peers."""

    info_hash: Hex
    seeders: int
    peers: int = Field(description="Peers, seeders included.")
    announced_at: Moment = Field(description="The last announce.")


class AnnouncedQuery(Paged):
    near: InfoHashText | None = Field(None, description="List torrents by distance (XOR) from this info hash.")


@endpoints.get("/dht", "List DHT nodes", schema="DhtNodes: All nodes that ran in the last 7 days, by name.")
async def list_all(call: Call) -> ItemList[DhtNodeRow]:
    now = call.context.clock()
    return ItemList(items=[_row(status, now) for status in await call.store.dht_nodes.statuses()])


@endpoints.get(
    "/dht/hashes",
    "List torrents that DHT nodes announced",
    schema="AnnouncedTorrents: A page of them: nearest to `near` first, else most peers first.",
)
async def hashes(call: Call, query: AnnouncedQuery) -> Page[AnnouncedTorrent]:
    """Nodes save them every 30 seconds. With `TRACKER_DHT__TORRENTS=any` they need not be registered."""
    near = None if query.near is None else parse_info_hash(query.near)
    total, announced = await call.store.dht_nodes.hashes(near, query.offset, query.limit)
    return Page.of(query, [AnnouncedTorrent.from_record(each) for each in announced], total)


@endpoints.get(
    "/dht/lookups",
    "List torrents that were looked up in the DHT",
    schema="LookedUpTorrents: A page of torrents that were looked up, latest first. `dht_at` is the last lookup that "
    "was answered.",
)
async def lookups(call: Call, query: Paged) -> Page[TorrentRow]:
    """Latest first."""
    torrents = call.store.dht_torrents
    last = await torrents.last_lookups(query.offset, query.limit)
    total = await torrents.looked_up_count()
    found = await call.store.torrents.by_ids([torrent_id for torrent_id, _ in last])
    return Page.of(query, [TorrentRow(**fields_of(torrent)) for torrent in found], total)


@endpoints.post(
    "/torrents/{info_hash}/dht-lookup", "Look up a torrent in the DHT", "torrent.dht_lookup", conflict=_NOT_NOW
)
async def look_up(call: Call, info_hash: InfoHashText) -> JobEnqueued:
    """Queues a job. When it has completed, `dht_seeds` and `dht_peers` of the torrent have the result. It fails if no
    node answers."""
    torrent = await known(call, info_hash)
    existing(torrent.registered, "torrent")
    return JobEnqueued.from_record(await service.look_up(call.store, torrent.info_hash, call.context.clock()))


def _row(status: NodeStatus, now: float) -> DhtNodeRow:
    counted = status.participation
    return DhtNodeRow.from_record(
        status,
        state=status.state(now),
        torrents=status.mode,
        ipv4=_family(status, 4),
        ipv6=_family(status, 6),
        dropped=dict(sorted(status.dropped.items())),
        lookups=dict(sorted(status.lookups.items())),
        participation=(None if counted is None else DhtParticipation.from_record(counted, torrents=counted.estimate)),
    )


def _family(status: NodeStatus, family: int) -> DhtFamily | None:
    id = status.ids.get(family)
    if id is None:
        return None
    return DhtFamily(
        id=id.hex(),
        external_address=status.externals.get(family, ""),
        nodes=status.nodes(family),
        buckets=dict(status.buckets[family]),
    )

"""Peers in readable form, and lenient numbers of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote_to_bytes

from tracker.bittorrent import Endpoint
from tracker.store.schema.record import Field
from tracker.store.store import Store
from tracker.store.swarms.connect_checks import ConnectCheck, any_connectable
from tracker.store.torrents.torrents import Peer
from tracker.wire.endpoint import format_endpoint
from tracker.wire.peer_id import client_name

if TYPE_CHECKING:
    from tracker.geoip import GeoIP

_MAX_NUMBER = 10**16
"""Larger numbers were not written by the tracker, whose own end at 2^53."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """A peer in readable form: bytes, bytes/s, seconds and epoch s; 0 where unknown."""

    peer_id: Annotated[str, Field("40 hexadecimal digits.")]
    endpoints: Annotated[
        tuple[str, ...], Field("Addresses and ports, such as `192.0.2.1:6881` or `[2001:db8::1]:6881`.")
    ]
    client: Annotated[str, Field("Client name from the peer id.")]
    country: Annotated[str, Field("ISO 3166-1 alpha-2; empty if unknown.")]
    connectable: Annotated[
        bool | None,
        Field(
            "Whether it accepted a connection of the tracker in the last day; null: not checked. "
            "TRACKER_PROBE__CONNECTABLE switches the checks on."
        ),
    ]
    seeding: bool
    partial_seed: Annotated[bool, Field("Partial seed: has all wanted files, but not the whole torrent.")]
    user_id: Annotated[str, Field("Empty on a public tracker.")]
    uploaded: Annotated[int, Field("Bytes.")]
    downloaded: Annotated[int, Field("Bytes.")]
    bytes_left: Annotated[int | None, Field("null if not reported.")]
    upload_speed: Annotated[float, Field("Bytes per second between the last two announces.")]
    download_speed: float
    first_announce: int
    last_announce: int
    total_seconds: Annotated[int, Field("Time since the first announce.")]


async def peer_views(store: Store, peers: Sequence[Peer], places: "GeoIP") -> list[PeerView]:
    """Some peers in readable form, with the results of connecting to them."""
    endpoints = [endpoint for peer in peers for endpoint in peer.endpoints]
    checks = await store.shards.main_or(store.connect_checks.of(endpoints), {})
    return [peer_view(peer, places, checks) for peer in peers]


def peer_view(peer: Peer, places: "GeoIP", checks: Mapping[Endpoint, ConnectCheck]) -> PeerView:
    """The country is that of the first address with a known one."""
    fields, found = peer.fields, (places.lookup(endpoint[:-2]) for endpoint in peer.endpoints)
    return PeerView(
        peer_id=peer.peer_id.hex(),
        endpoints=tuple(format_endpoint(endpoint) for endpoint in peer.endpoints),
        client=client_name(peer.peer_id),
        country=next((place.country for place in found if place is not None and place.country), ""),
        connectable=any_connectable(checks, peer.endpoints),
        seeding=peer.seeding,
        partial_seed=fields.get("paused") == "1",
        user_id=fields.get("user_id", ""),
        uploaded=to_integer(fields.get("uploaded")),
        downloaded=to_integer(fields.get("downloaded")),
        bytes_left=to_integer(fields["left"]) if fields.get("left") else None,
        upload_speed=to_number(fields.get("speed_up")),
        download_speed=to_number(fields.get("speed_dn")),
        first_announce=to_integer(fields.get("first_announce")),
        last_announce=to_integer(fields.get("last_announce")),
        total_seconds=to_integer(fields.get("total_time")),
    )


def to_integer(text: str | None) -> int:
    """An integer from a field of the store; 0 for an invalid one, which a site may have written."""
    return int(to_number(text))


def to_number(text: str | None) -> float:
    """A number from a field of the store; 0 for an invalid one, which a site may have written."""
    try:
        number = float((text or "0")[:40])
    except ValueError:
        return 0.0
    return number if 0 <= number < _MAX_NUMBER else 0.0


def format_prefix(prefix: bytes) -> str:
    """A peer id or its prefix as text; other bytes than plain ASCII are percent-encoded."""
    return quote(prefix, safe="!#$&'()*+,/:;=?@[]<>^|~")


def parse_prefix(text: str) -> bytes:
    """The reverse of ``format_prefix``."""
    return unquote_to_bytes(text)

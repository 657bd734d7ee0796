"""What API, pages and command line do alike: registering torrents, changing them, showing peers, having jobs run."""

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.geoip import GeoIP
from tracker.store.job import REPROCESS, REPROCESS_RETRIES, SWEEP, Enqueued
from tracker.store.jobs import Jobs
from tracker.store.torrents import Peer, Torrent, Torrents
from tracker.stores import Stores
from tracker.torrent_file import MAX_BYTES, parse_torrent_file
from tracker.wire.compact import format_endpoint
from tracker.wire.peer_id import client_name

MOST = 2**53 - 1
"""The largest whole number that all programs read alike, and the store's scripts."""
NOT_SERVED = "this torrent is not served here"
"""What peers read of a torrent that was disabled or denied without a reason."""
State = Literal["registered", "disabled", "denied", "unregistered"]

# One file at a time: the largest holds a lot of memory while it is read, and takes the interpreter for seconds.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torrent-file")
_V2_HEX = re.compile(r"[0-9a-fA-F]{64}")
_LARGEST = 10**16
"""Figures so large somebody else wrote: ours end at 2^53."""


@dataclass(frozen=True, slots=True)
class Added:
    """A torrent that was registered; ``new`` is false when it had been already."""

    info_hash: InfoHash
    torrent_id: str
    new: bool
    name: str


@dataclass(frozen=True, slots=True)
class PeerView:
    """A peer for people. Bytes, bytes per second, seconds and epoch seconds; 0 where nothing is known."""

    peer_id: str
    endpoints: tuple[str, ...]
    client: str
    country: str
    """ISO 3166-1 alpha-2; empty when unknown."""
    seeding: bool
    partial_seed: bool
    user_id: str
    uploaded: int
    downloaded: int
    bytes_left: int | None
    upload_speed: float
    download_speed: float
    first_announce: int
    last_announce: int
    total_seconds: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sums of all time, and how much there is now; ``failures`` are refused requests by reason."""

    torrents: int
    scored_torrents: int
    denials: int
    users: int
    users_with_hit_and_runs: int
    totals: dict[str, int]
    failures: dict[str, int]


async def add_file(
    torrents: Torrents,
    data: bytes,
    *,
    name: str | None = None,
    private: bool = False,
    reset_score: bool = False,
    max_bytes: int = MAX_BYTES,
) -> list[Added]:
    """Registers what a .torrent file describes, a hybrid one under its v1 and its v2 hash.

    ``name`` stands instead of the file's own, ``private`` marks it even when the file does not. Raises ClientError
    for a file that is none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_READER, lambda: parse_torrent_file(data, max_bytes=max_bytes))
    fields = torrent_fields(name=found.name if name is None else name, private=private or found.private)
    return [
        await add_torrent(torrents, info_hash, fields, reset_score=reset_score)
        for info_hash in found.announce_hashes
    ]


async def add_torrent(
    torrents: Torrents, info_hash: InfoHash, fields: Mapping[str, str], *, reset_score: bool = False
) -> Added:
    """Registers an info hash, or changes the fields of a known one. Raises ClientError as Torrents.add does."""
    torrent_id, new = await torrents.add(info_hash, fields, reset_score=reset_score)
    return Added(info_hash, torrent_id, new, fields.get("name", ""))


def parse_hash(text: str) -> InfoHash:
    """40 hexadecimal digits, or the 64 of a v2 torrent, which is announced by the first 20 bytes (BEP 52)."""
    return parse_info_hash(text[:40] if _V2_HEX.fullmatch(text) else text)


def torrent_fields(
    *,
    name: str | None = None,
    private: bool | None = None,
    enabled: bool | None = None,
    reason: str | None = None,
    multi_up: float | None = None,
    multi_dn: float | None = None,
) -> dict[str, str]:
    """What Torrents.add and .edit take, of what is not None. Whoever is enabled has no reason not to be any more."""
    if enabled is not None and reason is None:
        reason = "" if enabled else NOT_SERVED
    switches = {"private": private, "enabled": enabled}
    multipliers = {"multi_up": multi_up, "multi_dn": multi_dn}
    return {
        **{field: text for field, text in (("name", name), ("reason", reason)) if text is not None},
        **{field: str(int(on)) for field, on in switches.items() if on is not None},
        **{field: decimal(factor) for field, factor in multipliers.items() if factor is not None},
    }


def decimal(number: float) -> str:
    """With at most six decimals and no exponent, as scripts read numbers."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def state_of(torrent: Torrent) -> State:
    if torrent.denied is not None:
        return "denied"
    if not torrent.enabled:
        return "disabled"
    return "registered" if torrent.registered else "unregistered"


def peer_view(peer: Peer, places: GeoIP) -> PeerView:
    """The first address that has a country decides which it is."""
    found = (places.lookup(endpoint[:-2]) for endpoint in peer.endpoints)
    fields = peer.fields
    return PeerView(
        peer_id=peer.peer_id.hex(),
        endpoints=tuple(format_endpoint(endpoint) for endpoint in peer.endpoints),
        client=client_name(peer.peer_id),
        country=next((place.country for place in found if place is not None and place.country), ""),
        seeding=peer.seeding,
        partial_seed=fields.get("paused") == "1",
        user_id=fields.get("user_id", ""),
        uploaded=whole(fields.get("uploaded")),
        downloaded=whole(fields.get("downloaded")),
        bytes_left=whole(fields["left"]) if fields.get("left") else None,
        upload_speed=figure(fields.get("speed_up")),
        download_speed=figure(fields.get("speed_dn")),
        first_announce=whole(fields.get("first_announce")),
        last_announce=whole(fields.get("last_announce")),
        total_seconds=whole(fields.get("total_time")),
    )


def whole(text: str | None) -> int:
    """0 for what is no whole number of ours: somebody else wrote it."""
    return int(figure(text))


def figure(text: str | None) -> float:
    """0 for what is no figure of ours: somebody else wrote it."""
    try:
        number = float((text or "0")[:40])
    except ValueError:
        return 0.0
    return number if 0 <= number < _LARGEST else 0.0


def shown_prefix(prefix: bytes) -> str:
    """A peer id or its beginning as text: what is not plain is ``%`` and two hexadecimal digits."""
    return quote(prefix, safe="!#$&'()*+,/:;=?@[]<>^|~")


def parse_prefix(text: str) -> bytes:
    """The reverse of ``shown_prefix``."""
    return unquote_to_bytes(text)


async def reprocess(
    jobs: Jobs,
    *,
    min_score: float | None = None,
    max_score: float | None = None,
    min_seeders: int | None = None,
    max_seeders: int | None = None,
) -> Enqueued:
    """Has all torrents, or those that fit, scored again in the background. Raises ClientError."""
    for least, most in ((min_score, max_score), (min_seeders, max_seeders)):
        if least is not None and most is not None and least > most:
            raise ClientError("no torrent has at least the larger and at most the smaller of two figures")
    if any(figure is not None and not 0 <= figure <= MOST for figure in (min_seeders, max_seeders)):
        raise ClientError(f"a number of seeders is 0 to {MOST}")
    filters = {
        "min_score": min_score,
        "max_score": max_score,
        "min_seeders": min_seeders,
        "max_seeders": max_seeders,
    }
    payload = {name: value for name, value in filters.items() if value is not None}
    try:
        return await jobs.enqueue(REPROCESS, payload, max_retries=REPROCESS_RETRIES)
    except ValueError as error:  # a score of nan or inf
        raise ClientError("a score is a number") from error


async def statistics(stores: Stores) -> Statistics:
    return Statistics(
        torrents=await stores.torrents.count(),
        scored_torrents=await stores.scores.count(),
        denials=await stores.torrents.denial_count(),
        users=await stores.users.count(),
        users_with_hit_and_runs=await stores.users.hit_and_run_count(),
        totals=await stores.counters.totals(),
        failures=await stores.counters.failures(),
    )


async def sweep(jobs: Jobs) -> Enqueued:
    """Has every swarm visited at once, in the background."""
    return await jobs.enqueue(SWEEP)

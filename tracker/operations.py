"""Operations shared by the API, the dashboard and the command line: torrents, peers, statistics, jobs and work."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote, unquote_to_bytes

from tracker.bittorrent import Endpoint, InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.geoip import GeoIP
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import REPROCESS, REPROCESS_RETRIES, SWEEP, Enqueued
from tracker.store.schema.multipliers import multiplier_field
from tracker.store.store import Store
from tracker.store.swarms.connect_checks import ConnectCheck, any_connectable
from tracker.store.torrents.torrents import Peer, Torrent, Torrents
from tracker.store.work.items import MAX_BATCH
from tracker.store.work.policy import Change
from tracker.store.work.records import Added as ItemsAdded
from tracker.store.work.records import Kind, NewItem, Place, Project
from tracker.system.torrent_files import SHARDS, TorrentFiles
from tracker.wire.endpoint import format_endpoint
from tracker.wire.peer_id import client_name
from tracker.wire.torrent_file import MAX_BYTES, parse_torrent_file
from tracker.workers.work.policy import WorkPolicy

MAX_INTEGER = 2**53 - 1
"""The largest integer that is exact in JSON and in the store's scripts."""
NOT_SERVED = "this torrent is not served here"
"""The failure reason of a torrent that was disabled or denied without one."""
FEED_OFF = "the change feed is off: set TRACKER_CHANGES__MAX_ENTRIES"
State = Literal["registered", "disabled", "denied", "unregistered"]

# One file at a time: parsing a large one takes much memory, and blocks the interpreter for seconds.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torrent-file")
_V2_HEX = re.compile(r"[0-9a-fA-F]{64}")
_FILES_A_CALL = 500
_SEEDING: dict[str, Any] = {"verify": "announce", "order": "weakest", "passkeys": True, "keep_done_days": 30}
"""Defaults of projects of kind ``seeding`` that differ from those of kind ``items``."""
_RENAMED = {"total_seconds": "total_time", "seed_seconds": "seed_time"}
_ACCOUNT_TOTALS = {"downloaded": "downloaded", "uploaded": "uploaded", **_RENAMED}
"""Fields of a user's account on a torrent, by name."""
_MAX_NUMBER = 10**16
"""Larger numbers were not written by the tracker, whose own end at 2^53."""


@dataclass(frozen=True, slots=True)
class Added:
    """A registered torrent; ``new`` is false if it was registered before."""

    info_hash: InfoHash
    torrent_id: str
    new: bool
    name: str


@dataclass(frozen=True, slots=True)
class PeerView:
    """A peer in readable form: bytes, bytes/s, seconds and epoch s; 0 where unknown. Country: ISO 3166-1 alpha-2."""

    peer_id: str
    endpoints: tuple[str, ...]
    client: str
    country: str
    connectable: bool | None
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
    """Current numbers, and totals since the last reset; ``failures`` are refused requests by reason."""

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
    labels: Sequence[str] | None = None,
    reset_score: bool = False,
    files: TorrentFiles,
    max_bytes: int = MAX_BYTES,
) -> list[Added]:
    """Registers the torrent of a .torrent file; a hybrid one under its v1 and its v2 hash.

    ``name`` replaces the name in the file. ``private`` marks the torrent as private even if the file does not. The
    file is kept in ``files`` if they are enabled. Raises ClientError for an invalid file, and if it cannot be kept.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_READER, lambda: parse_torrent_file(data, max_bytes=max_bytes))
    fields = torrent_fields(
        name=found.name if name is None else name,
        private=private or found.private,
        size=found.size_bytes,
        labels=labels,
    )
    for info_hash in found.announce_hashes:
        await loop.run_in_executor(_READER, keep_file, files, info_hash, found.bare)
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


def keep_file(files: TorrentFiles, info_hash: InfoHash, bare: bytes) -> None:
    """Blocks. Raises ClientError if the file cannot be written."""
    try:
        files.keep(info_hash, bare)
    except OSError as error:
        raise ClientError(f"cannot keep the .torrent file: {error.strerror or error}") from error


async def remove_torrent(torrents: Torrents, files: TorrentFiles, info_hash: InfoHash) -> bool:
    """Unregisters a torrent and deletes its kept file. False if it was not registered."""
    removed = await torrents.remove(info_hash)
    await asyncio.to_thread(files.delete, info_hash)
    return removed


async def stale_files(
    torrents: Torrents, files: TorrentFiles, *, delete: bool = False
) -> AsyncIterator[InfoHash]:
    """Kept .torrent files whose torrent is not registered, such as those of torrents that a site removed."""
    for shard in range(SHARDS):
        listed = await asyncio.to_thread(files.listed, shard)
        for first in range(0, len(listed), _FILES_A_CALL):
            batch = listed[first : first + _FILES_A_CALL]
            for info_hash in set(batch) - await torrents.registered(batch):
                if delete:
                    await asyncio.to_thread(files.delete, info_hash)
                yield info_hash


def parse_hash(text: str) -> InfoHash:
    """40 hexadecimal digits, or 64 of a v2 torrent, whose first 20 bytes clients announce (BEP 52)."""
    return parse_info_hash(text[:40] if _V2_HEX.fullmatch(text) else text)


def torrent_fields(
    *,
    name: str | None = None,
    private: bool | None = None,
    enabled: bool | None = None,
    reason: str | None = None,
    upload_multiplier: float | None = None,
    upload_multiplier_until: int | None = None,
    download_multiplier: float | None = None,
    download_multiplier_until: int | None = None,
    size: int | None = None,
    labels: Sequence[str] | None = None,
    snatches: int | None = None,
) -> dict[str, str]:
    """The stored fields for Torrents.add and .edit that are not None. Enabling a torrent clears its reason.

    Raises ClientError for the end of a multiplier without the multiplier.
    """
    if enabled is not None and reason is None:
        reason = "" if enabled else NOT_SERVED
    switches = {"private": private, "enabled": enabled}
    counts = {"size": size, "snatches": snatches}
    multipliers = {
        "multi_up": multiplier_field("upload_multiplier", upload_multiplier, upload_multiplier_until),
        "multi_dn": multiplier_field("download_multiplier", download_multiplier, download_multiplier_until),
    }
    return {
        **{field: text for field, text in (("name", name), ("reason", reason)) if text is not None},
        **{field: str(int(on)) for field, on in switches.items() if on is not None},
        **{field: text for field, text in multipliers.items() if text is not None},
        **{field: str(count) for field, count in counts.items() if count is not None},
        **({} if labels is None else {"labels": " ".join(labels)}),
    }


def state_of(torrent: Torrent) -> State:
    if torrent.denied is not None:
        return "denied"
    if not torrent.enabled:
        return "disabled"
    return "registered" if torrent.registered else "unregistered"


async def peer_views(store: Store, peers: Sequence[Peer], places: GeoIP) -> list[PeerView]:
    """Some peers in readable form, with the results of connecting to them."""
    checks = await store.connect_checks.of([endpoint for peer in peers for endpoint in peer.endpoints])
    return [peer_view(peer, places, checks) for peer in peers]


def peer_view(peer: Peer, places: GeoIP, checks: Mapping[Endpoint, ConnectCheck]) -> PeerView:
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


async def rescore(
    jobs: Jobs,
    *,
    min_score: float | None = None,
    max_score: float | None = None,
    min_seeders: int | None = None,
    max_seeders: int | None = None,
) -> Enqueued:
    """Starts a job that rescores all torrents, or those that match. Raises ClientError for an invalid filter."""
    for low, high in ((min_score, max_score), (min_seeders, max_seeders)):
        if low is not None and high is not None and low > high:
            raise ClientError("a minimum exceeds its maximum")
    if any(number is not None and not 0 <= number <= MAX_INTEGER for number in (min_seeders, max_seeders)):
        raise ClientError(f"a number of seeders is 0 to {MAX_INTEGER}")
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


async def statistics(store: Store) -> Statistics:
    return Statistics(
        torrents=await store.torrents.count(),
        scored_torrents=await store.scores.count(),
        denials=await store.torrents.denial_count(),
        users=await store.users.count(),
        users_with_hit_and_runs=await store.users.hit_and_run_count(),
        totals=await store.counters.totals(),
        failures=await store.counters.failures(),
    )


async def pending_hit_and_runs(store: Store, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` torrents whose users are in the grace period, from ``offset`` on; the next to be decided first.

    They become hit-and-runs at ``at`` (epoch s). Bytes and seconds; ``info_hash`` None: the torrent was removed.
    """
    found = await store.hit_and_runs.pending(offset, count)
    accounts = await store.users.accounts([(pending.user_id, pending.torrent_id) for pending in found])
    totals = [
        {n: to_integer(account.get(stored)) for n, stored in _ACCOUNT_TOTALS.items()} for account in accounts
    ]
    rows = await _with_names(store, [pending._asdict() for pending in found])
    return [{**row, **numbers} for row, numbers in zip(rows, totals, strict=True)]


async def freeleech_tokens(
    store: Store, user_id: str, offset: int = 0, count: int = 100
) -> list[dict[str, Any]]:
    """``count`` freeleech tokens of a user, from ``offset`` on. ``info_hash`` None: the torrent was removed."""
    return await _with_names(store, [t._asdict() for t in await store.freeleech.page(user_id, offset, count)])


async def _with_names(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds info hash and name to rows with a ``torrent_id``."""
    found = await store.torrents.by_ids([row["torrent_id"] for row in rows])
    names = {t.torrent_id: {"info_hash": t.info_hash.hex(), "name": t.name} for t in found}
    return [{**row, **names.get(row["torrent_id"], {"info_hash": None, "name": ""})} for row in rows]


async def sweep(jobs: Jobs) -> Enqueued:
    """Starts a job that sweeps all swarms now."""
    return await jobs.enqueue(SWEEP)


async def create_project(store: Store, name: str, kind: Kind, settings: Mapping[str, Any]) -> Project:
    """Creates a project of work distribution. Raises ProjectExists, and ClientError for an invalid setting."""
    defaults = _SEEDING if kind == "seeding" else {}
    if settings.get("verify") == "address":
        defaults = {**defaults, "passkeys": False}
    return await store.work.projects.create(Project(name, kind, **{**defaults, **settings}))


def items_of(text: str) -> list[str]:
    """The items of a text, one a line; without empty lines."""
    return [item for line in text.split("\n") if (item := line.strip())]


async def add_items(
    store: Store, project: str, items: Sequence[NewItem], *, again: bool = False
) -> ItemsAdded:
    """Adds items to a project; in one of kind ``seeding`` they are info hashes of registered torrents.

    Raises UnknownProject, and ClientError for an invalid item: then none is added.
    """
    if (await store.work.projects.get(project)).kind == "seeding":
        items = [replace(item, name=parse_hash(item.name).hex()) for item in items]
        for first in range(0, len(items), MAX_BATCH):
            hashes = [parse_info_hash(item.name) for item in items[first : first + MAX_BATCH]]
            unknown = await store.torrents.unregistered(hashes)
            if unknown:
                raise ClientError(f"torrent {unknown[0].hex()} is not registered")
    return await store.work.items.add(project, items, again=again)


async def purge_items(store: Store, project: str, place: Place, *, before: float | None = None) -> int:
    """Removes all items of a queue, or finished items, those done before ``before`` (epoch s). Claims stay.

    Raises UnknownProject.
    """
    items = store.work.items
    await store.work.projects.get(project)
    removed, cursor, more = 0, "", True
    while more:
        page = await items.page(project, place, cursor=cursor, count=MAX_BATCH)
        old = [name for name, at in page.entries if before is None or place != "done" or at < before]
        removed += await items.purge(project, old, place, before)
        cursor, more = page.cursor, bool(page.cursor) and len(old) == len(page.entries)
    return removed


def is_address(blocked: str) -> bool:
    """Whether somebody is blocked by address or network, and not by name."""
    return "." in blocked or ":" in blocked


async def policy_preview(store: Store, project: str, *, max_torrents: int | None = None) -> list[Change]:
    """What a run of the policy would change now in a project of kind ``seeding``, without changing it.

    It looks at ``max_torrents``, or as many as a run. Raises UnknownProject, and ClientError for another kind.
    """
    definition = await store.work.projects.get(project)
    if definition.kind != "seeding":
        raise ClientError("only projects of kind seeding have a policy")
    policy = WorkPolicy(store.work.projects, store.work.policy)
    if max_torrents is not None:
        half = max(1, max_torrents // 2)
        policy = WorkPolicy(store.work.projects, store.work.policy, max_managed=half, max_weak=half)
    return [change async for change in policy.changes(definition, dry_run=True)]

"""What a user does and did: live peers, pending hit-and-runs, and the latest events that the store still knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tracker.bittorrent import InfoHash
from tracker.geoip import GeoIP
from tracker.operations.peers import PeerView, peer_views, to_integer
from tracker.store.store import Store
from tracker.store.users.unregistered import Tried

MAX_EVENTS = 50
MAX_TORRENTS, MAX_COMPLETED = 5000, 500
"""Torrents of each set of the user that are searched for pending hit-and-runs, and for completions."""
MAX_CHANGES = 1000
"""The newest changes of the feed that are searched for those of the user."""


class TorrentName(NamedTuple):
    """``info_hash`` None: the torrent was removed."""

    torrent_id: str
    info_hash: InfoHash | None
    name: str


@dataclass(frozen=True, slots=True)
class UserPeer:
    torrent: TorrentName
    peer: PeerView


@dataclass(frozen=True, slots=True)
class Due:
    """A torrent that becomes a hit-and-run at ``at`` (epoch s) unless the user comes back."""

    torrent: TorrentName
    at: int


@dataclass(frozen=True, slots=True)
class Event:
    """``what``: as in the change feed, such as joined or completed."""

    at: int
    what: str
    torrent: TorrentName


@dataclass(frozen=True, slots=True)
class Activity:
    """``all_…``: whether these are all; ``all_completed``: whether all torrents of the user were searched for
    completions. ``last_seen`` is the end of the time that was last counted for the user, as far as it is known (epoch
    s; 0: never seen)."""

    peers: list[UserPeer]
    all_peers: bool
    pending: list[Due]
    all_pending: bool
    events: list[Event]
    all_completed: bool
    last_seen: int
    unregistered: list[Tried]


async def user_activity(store: Store, user_id: str, places: GeoIP) -> Activity:
    """Bounded: see user_peers.py and the MAX_… above."""
    live = await store.user_peers.of(user_id)
    views = await peer_views(store, [peer for _, peer in live.peers], places)
    sets = [
        await store.users.first_torrents(user_id, name, MAX_TORRENTS) for name in ("incomplete", "complete")
    ]
    left = [torrent_id for some, _ in sets for torrent_id in some[:MAX_COMPLETED]]
    accounts = await store.users.on_torrents(user_id, left)
    recorded = [
        (change.at, change.change, change.torrent_id)
        for change in await store.changes.newest(MAX_CHANGES)
        if change.user_id == user_id and change.torrent_id
    ]
    known = {torrent_id for _, what, torrent_id in recorded if what == "completed"}
    completed = [
        (at, "completed", torrent_id)
        for torrent_id, account in zip(left, accounts, strict=True)
        if torrent_id not in known and (at := to_integer(account.get("completed_at")))
    ]
    events = sorted([*completed, *recorded], reverse=True)[:MAX_EVENTS]
    pending = await store.hit_and_runs.pending_of(user_id, [each for some, _ in sets for each in some])
    ids = [*(t for t, _ in live.peers), *(t for _, _, t in events), *(each.torrent_id for each in pending)]
    names = await _names(store, ids)
    seen = [
        *(view.last_announce for view in views),
        *(to_integer(account.get("until")) for account in accounts),
        *(at for at, _, _ in recorded),
    ]
    return Activity(
        [UserPeer(names[torrent_id], view) for (torrent_id, _), view in zip(live.peers, views, strict=True)],
        live.complete,
        [Due(names[each.torrent_id], each.at) for each in pending],
        all(is_all for _, is_all in sets),
        [Event(at, what, names[torrent_id]) for at, what, torrent_id in events],
        all(is_all and len(some) <= MAX_COMPLETED for some, is_all in sets),
        max(seen, default=0),
        await store.unregistered.of(user_id),
    )


async def _names(store: Store, torrent_ids: Sequence[str]) -> dict[str, TorrentName]:
    unique = list(dict.fromkeys(torrent_ids))
    found = {torrent.torrent_id: torrent for torrent in await store.torrents.by_ids(unique)}
    return {
        torrent_id: TorrentName(torrent_id, found[torrent_id].info_hash, found[torrent_id].name)
        if torrent_id in found
        else TorrentName(torrent_id, None, "")
        for torrent_id in unique
    }

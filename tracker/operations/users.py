"""Lists of users' torrents, pending hit-and-runs and freeleech tokens, with the names of the torrents; what a user does
and did: live peers, pending hit-and-runs, and the latest events that the store still knows; changes of several
users."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.operations.peers import PeerView, peer_views, to_integer
from tracker.store.schema.record import Field, fields_of
from tracker.store.store import Store
from tracker.store.users.fields import Value
from tracker.store.users.unregistered import Tried

if TYPE_CHECKING:
    from tracker.geoip import GeoIP

UserAction = Literal["enable", "disable", "allow_leech", "block_leech", "forgive", "delete"]
USER_ACTIONS: tuple[UserAction, ...] = get_args(UserAction)
_STORED = {"total_seconds": "total_time", "seed_seconds": "seed_time"}
_ACCOUNT_TOTALS = {"downloaded": "downloaded", "uploaded": "uploaded", **_STORED}
"""Fields of a user's account on a torrent, by name."""


async def pending_hit_and_runs(store: Store, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` torrents whose users are in the grace period, from ``offset`` on; the next to be decided first. They
    become hit-and-runs at ``at`` (epoch s). Bytes and seconds; ``info_hash`` None: the torrent was removed."""
    found = await store.hit_and_runs.pending(offset, count)
    accounts = await store.users.accounts([(pending.user_id, pending.torrent_id) for pending in found])
    totals = [{n: to_integer(account.get(stored)) for n, stored in _ACCOUNT_TOTALS.items()} for account in accounts]
    rows = await _with_names(store, [pending._asdict() for pending in found])
    return [{**row, **numbers} for row, numbers in zip(rows, totals, strict=True)]


@dataclass(frozen=True, slots=True)
class Share:
    """A user's totals on a torrent, over all of the user's clients."""

    torrent_id: Annotated[str, Field()]
    info_hash: Annotated[str | None, Field("null if the torrent was removed.")]
    name: Annotated[str, Field()]
    uploaded: Annotated[int, Field()]
    downloaded: Annotated[int, Field()]
    total_seconds: Annotated[int, Field()]
    seed_seconds: Annotated[int, Field()]
    completed_at: Annotated[int | None, Field(unit="epoch s")]
    peers: Annotated[int, Field("The user's active clients on the torrent.")]
    credit_cut: Annotated[int, Field("Bytes that were not credited because of the maximum rate of credit.")]
    unreported: Annotated[
        int, Field("Bytes downloaded but not reported: `left` fell without `downloaded` rising. Not charged.")
    ]


async def shares(store: Store, user_id: str, torrent_ids: Sequence[str]) -> list[Share]:
    """In the order of ``torrent_ids``."""
    names, accounts = await asyncio.gather(_names(store, torrent_ids), store.users.on_torrents(user_id, torrent_ids))
    found: list[Share] = []
    for torrent_id, account in zip(torrent_ids, accounts, strict=True):
        totals: dict[str, Any] = {
            each: to_integer(account.get(_STORED.get(each, each))) for each in [*fields_of(Share)][3:]
        }
        totals["completed_at"] = totals["completed_at"] or None
        found.append(Share(**names[torrent_id].as_row(), **totals))
    return found


async def freeleech_tokens(store: Store, user_id: str, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` freeleech tokens of a user, from ``offset`` on. ``info_hash`` None: the torrent was removed."""
    return await _with_names(store, [t._asdict() for t in await store.freeleech.page(user_id, offset, count)])


async def _with_names(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds info hash and name to rows with a ``torrent_id``."""
    names = await _names(store, [row["torrent_id"] for row in rows])
    return [{**row, **names[row["torrent_id"]].as_row()} for row in rows]


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

    def as_row(self) -> dict[str, Any]:
        return {**self._asdict(), "info_hash": None if self.info_hash is None else self.info_hash.hex()}


class UserPeer(NamedTuple):
    torrent: TorrentName
    peer: PeerView


class Event(NamedTuple):
    """``what``: as in the change feed, such as joined or completed; `pending`: the torrent becomes a hit-and-run at
    ``at`` (epoch s) unless the user comes back."""

    at: int
    what: str
    torrent: TorrentName


@dataclass(slots=True)
class Activity:
    """``all_…``: whether these are all; ``all_completed``: whether all torrents of the user were searched for
    completions. ``last_seen`` is the end of the time that was last counted for the user, as far as it is known (epoch
    s; 0: never seen)."""

    peers: list[UserPeer] = field(default_factory=list)
    all_peers: bool = True
    pending: list[Event] = field(default_factory=list)
    all_pending: bool = True
    events: list[Event] = field(default_factory=list)
    all_completed: bool = True
    last_seen: int = 0
    unregistered: list[Tried] = field(default_factory=list)


async def user_activity(store: Store, user_id: str, places: "GeoIP") -> Activity:
    """Bounded: see user_peers.py and the MAX_… above."""
    found = Activity()
    *_, found.unregistered = await asyncio.gather(
        _read_peers(store, user_id, places, found), _read_past(store, user_id, found), store.unregistered.of(user_id)
    )
    found.last_seen = max([found.last_seen, *(each.peer.last_announce for each in found.peers)])
    return found


async def _read_peers(store: Store, user_id: str, places: "GeoIP", found: Activity) -> None:
    live = await store.user_peers.of(user_id)
    views, names = await asyncio.gather(
        peer_views(store, [peer for _, peer in live.peers], places), _names(store, [t for t, _ in live.peers])
    )
    found.peers = [UserPeer(names[torrent_id], view) for (torrent_id, _), view in zip(live.peers, views, strict=True)]
    found.all_peers = live.complete


async def _read_past(store: Store, user_id: str, found: Activity) -> None:
    """What the user's torrents and the change feed tell."""
    *sets, changes = await asyncio.gather(
        store.users.first_torrents(user_id, "incomplete", MAX_TORRENTS),
        store.users.first_torrents(user_id, "complete", MAX_TORRENTS),
        store.changes.newest(MAX_CHANGES),
    )
    left = [torrent_id for some, _ in sets for torrent_id in some[:MAX_COMPLETED]]
    accounts, pending = await asyncio.gather(
        store.users.on_torrents(user_id, left),
        store.hit_and_runs.pending_of(user_id, [each for some, _ in sets for each in some]),
    )
    recorded = [
        (change.at, change.change, change.torrent_id)
        for change in changes
        if change.user_id == user_id and change.torrent_id
    ]
    known = {torrent_id for _, what, torrent_id in recorded if what == "completed"}
    completed = [
        (at, "completed", torrent_id)
        for torrent_id, account in zip(left, accounts, strict=True)
        if torrent_id not in known and (at := to_integer(account.get("completed_at")))
    ]
    events = sorted([*completed, *recorded], reverse=True)[:MAX_EVENTS]
    names = await _names(store, [*(t for _, _, t in events), *(each.torrent_id for each in pending)])
    found.pending = [Event(each.at, "pending", names[each.torrent_id]) for each in pending]
    found.all_pending = all(is_all for _, is_all in sets)
    found.events = [Event(at, what, names[torrent_id]) for at, what, torrent_id in events]
    found.all_completed = all(is_all and len(some) <= MAX_COMPLETED for some, is_all in sets)
    ends = (to_integer(account.get("until")) for account in accounts)
    found.last_seen = max([*ends, *(at for at, _, _ in recorded)], default=0)


async def _names(store: Store, torrent_ids: Sequence[str]) -> dict[str, TorrentName]:
    names = {torrent_id: TorrentName(torrent_id, None, "") for torrent_id in torrent_ids}
    for torrent in await store.torrents.by_ids([*names]):
        names[torrent.torrent_id] = TorrentName(torrent.torrent_id, torrent.info_hash, torrent.name)
    return names


_RIGHTS: dict[UserAction, dict[str, Value]] = {
    "enable": {"enabled": True},
    "disable": {"enabled": False},
    "allow_leech": {"can_leech": True},
    "block_leech": {"can_leech": False},
}


async def change_users(store: Store, action: UserAction, user_ids: Sequence[str], reason: str) -> int:
    """Returns how many users were changed, or how many hit-and-runs were forgiven; unknown users are left out.
    ``reason``: of ``disable``."""
    changed, users = 0, store.users
    for user_id in user_ids:
        passkey = await users.passkey_of(user_id)
        if passkey is None:
            continue
        if action == "forgive":
            changed += await users.forgive(user_id)
            continue
        with suppress(ClientError):  # the user was deleted meanwhile
            if action == "delete":
                await users.delete(user_id)
            else:
                fields = _RIGHTS[action]
                await users.edit(passkey, {**fields, "reason": reason} if action == "disable" else fields)
            changed += 1
    return changed

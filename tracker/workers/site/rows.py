"""Reads what a site's tables hold: the rows that changes of the feed name, or all of them, in parts."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import starmap
from typing import NamedTuple

from tracker.store.changes.changes import Change
from tracker.store.store import Store
from tracker.store.users.site_rows import ROWS_A_CALL, PeerOnTorrent, SiteRow, UserOnTorrent
from tracker.wire.peer_id import client_name
from tracker.workers.site.mapping import Rows, SiteMapping
from tracker.workers.site.writer import Key, TableWriter, Written


class OfPeer(NamedTuple):
    """What a change says of a peer that the store may have forgotten."""

    user_id: str = ""
    endpoints: tuple[str, ...] = ()


@dataclass(slots=True)
class Named:
    """Rows by their keys, each once, in the order in which they were named."""

    users: dict[str, None] = field(default_factory=dict)
    torrents: dict[str, None] = field(default_factory=dict)
    history: dict[UserOnTorrent, None] = field(default_factory=dict)
    peers: dict[PeerOnTorrent, OfPeer] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.users) + len(self.torrents) + len(self.history) + len(self.peers)

    def add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if torrent_id := change.torrent_id:
                self.torrents[torrent_id] = None
            if user_id := change.user_id:
                self.users[user_id] = None
                if torrent_id:
                    self.history[UserOnTorrent(user_id, torrent_id)] = None
                if torrent_id and change.peer_id:
                    self.peers[PeerOnTorrent(torrent_id, change.peer_id)] = OfPeer(user_id, change.endpoints)


class RowReader:
    """Every method raises StoreUnavailable and redis.exceptions.RedisError."""

    def __init__(self, store: Store, mapping: SiteMapping) -> None:
        self._store = store
        self._tried: dict[str, int] = {}
        """When users last tried a torrent that was not registered, as far as the site has it (epoch s)."""
        self._wanted: dict[Rows, set[str]] = {}
        for table in mapping.tables:
            self._wanted.setdefault(table.rows, set()).update(table.values)

    async def read(self, named: Named, *, whole: bool = False) -> dict[Rows, list[SiteRow]]:
        """The rows of each kind that has a table. ``whole``: also those that do not change."""
        rows, found = self._store.site_rows, dict[Rows, list[SiteRow]]()
        if "users" in self._wanted:
            found["users"] = await rows.users(list(named.users))
        if "torrents" in self._wanted:
            found["torrents"] = await rows.torrents(list(named.torrents))
        if "history" in self._wanted:
            found["history"] = await rows.history(list(named.history))
        if "peers" in self._wanted:
            found["peers"] = await self._peers(named.peers)
            _complete(found.get("history", []), found["peers"])
        if "immune" in self._wanted.get("history", ()):
            await rows.note_immune(found["history"])
        if "unregistered" in self._wanted:
            since = {} if whole else self._tried
            found["unregistered"] = await rows.unregistered({each: since.get(each, 0) for each in named.users})
        return found

    def note_written(self, found: Mapping[Rows, Sequence[SiteRow]]) -> None:
        """The site has these rows."""
        for row in found.get("unregistered", ()):
            user_id = str(row["user_id"])
            self._tried[user_id] = max(self._tried.get(user_id, 0), row["first_announce"])

    async def _peers(self, named: Mapping[PeerOnTorrent, OfPeer]) -> list[SiteRow]:
        found = await self._store.site_rows.peers(list(named))
        for row in found:
            row["agent"] = row.get("agent") or client_name(row["peer_id"])
            if row["ip"] is None:
                peer = PeerOnTorrent(str(row["torrent_id"]), row["peer_id"].hex())
                row.update(_addresses(named[peer].endpoints))
        if "connectable" in self._wanted["peers"]:
            await self._store.site_rows.note_connectable(found)
        return found

    async def all(self) -> AsyncIterator[Named]:
        """The keys of all rows, in parts: of users with what they have on torrents, then of torrents with their active
        peers."""
        history = self._store.user_history
        if self._wanted.keys() & {"users", "history", "unregistered"}:
            async for ids in history.user_ids(ROWS_A_CALL):
                pairs = await history.pairs(ids) if "history" in self._wanted else []
                yield Named(users=dict.fromkeys(ids), history=dict.fromkeys(starmap(UserOnTorrent, pairs)))
        if "torrents" in self._wanted or "peers" in self._wanted:
            async for torrents, peers in self._store.site_rows.all_torrents():
                yield Named(torrents=dict.fromkeys(torrents), peers=dict.fromkeys(peers, OfPeer()))

    def gone(self, writer: TableWriter, named: Named, found: Sequence[SiteRow]) -> list[Key]:
        """The keys at the site of named peers that the store has forgotten since."""
        if writer.mapping.rows != "peers":
            return []
        known = {(str(row["torrent_id"]), row["peer_id"].hex()) for row in found}
        rows = [
            {"torrent_id": int(peer.torrent_id), "peer_id": bytes.fromhex(peer.peer_id), "user_id": int(user_id)}
            for peer, (user_id, _) in named.peers.items()
            if user_id and peer not in known
        ]
        return [writer.key_of(each) for _, each in writer.encode_all(rows, Written())]

    async def still_active(self, writer: TableWriter, keys: Sequence[Key]) -> set[Key]:
        """Those of the keys at the site that are active in the store now."""
        columns = {value: place for place, value in enumerate(writer.mapping.key.values())}
        users = [str(key[columns["user_id"]]) for key in keys]
        torrents = [str(key[columns["torrent_id"]]) for key in keys]
        named = Named()
        if writer.mapping.rows == "history":
            named.history = dict.fromkeys(map(UserOnTorrent, users, torrents))
        else:
            ids = [each if isinstance(each, str) else each.hex() for each in (key[columns["peer_id"]] for key in keys)]
            named.peers = dict(zip(map(PeerOnTorrent, torrents, ids), map(OfPeer, users), strict=True))
        rows = (await self.read(named))[writer.mapping.rows]
        return {writer.key_of(each) for row, each in writer.encode_all(rows, Written()) if row["active"]}


def _complete(history: Sequence[SiteRow], peers: Sequence[SiteRow]) -> None:
    """Adds what only peers have to what their users have on torrents."""
    in_order = sorted(peers, key=lambda peer: peer["last_announce"] or 0)
    of_users = {(peer["user_id"], peer["torrent_id"]): peer for peer in in_order}
    for row in history:
        peer = of_users.get((row["user_id"], row["torrent_id"]), {})
        row["announced"] = bool(peer)
        row["agent"] = peer.get("agent", "")
        row["client_uploaded"], row["client_downloaded"] = peer.get("uploaded", 0), peer.get("downloaded", 0)
        row["last_announce"] = max(row["last_announce"], peer.get("last_announce") or 0)


def _addresses(endpoints: Sequence[str]) -> SiteRow:
    """Of a peer that has left: it has none in the store any more."""
    found: SiteRow = {}
    for endpoint in reversed(endpoints):  # IPv4 comes first, and counts
        host, _, port = endpoint.rpartition(":")
        address = ip_address(host.strip("[]"))
        found |= {"ip": address.packed, "port": int(port), f"ipv{address.version}": address.packed}
    return found

"""Reads what a site's tables hold: the rows that changes of the feed name, or all of them, in parts. Compares the
tables with the store, row by row, and repairs them."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import starmap
from typing import Any, NamedTuple

from sqlalchemy import Integer, cast, select

from tracker.store.changes.changes import Change
from tracker.store.sharding.shards import in_parts
from tracker.store.store import Store
from tracker.store.users.site_rows import ROWS_A_CALL, PeerOnTorrent, SiteRow, UserOnTorrent
from tracker.wire.peer_id import client_name
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import Rows, SiteMapping, is_value
from tracker.workers.site.writer import OF_ANNOUNCES, Encoded, Key, Row, TableWriter, Written, shown


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


_NAMED = 20
"""Differing rows of a table that are named."""
_PAGE = 1000
_UNCOMPARED = frozenset({"now", "last_seeded", "last_announce", "connectable", *OF_ANNOUNCES})
"""Values that change without a change in the feed, or that the site may have from another tracker."""


@dataclass(slots=True)
class Compared:
    """One table, as far as it was compared."""

    table: str
    rows: int = 0
    missing: int = 0
    """Rows that the site does not have."""
    differing: int = 0
    stale: int = 0
    """Rows that are active at the site and not in the store."""
    named: list[str] = field(default_factory=list)
    """The first differing rows: ours, and the site's."""
    sums: dict[str, list[int]] = field(default_factory=dict)
    """Of each column of numbers, over the rows that both have: ours, and the site's."""

    @property
    def differences(self) -> int:
        return self.missing + self.differing + self.stale

    def name(self, text: str) -> None:
        if len(self.named) < _NAMED:
            self.named.append(text)

    def add(self, column: str, ours: object, sites: object) -> None:
        both = self.sums.setdefault(column, [0, 0])
        for place, value in enumerate((ours, sites)):
            if isinstance(value, int):
                both[place] += value


class Comparison:
    """Of all tables. With ``repair``, what differs is written."""

    def __init__(
        self, database: SiteDatabase, reader: RowReader, writers: Sequence[TableWriter], *, repair: bool
    ) -> None:
        self.tables = {writer: Compared(writer.mapping.name) for writer in writers}
        self.written = Written()
        self._database = database
        self._reader = reader
        self._repair = repair
        self._active: dict[TableWriter, set[Key]] = {writer: set() for writer in writers}

    @property
    def differences(self) -> int:
        return sum(each.differences for each in self.tables.values())

    async def run(self) -> AsyncGenerator[int, None]:
        """Yields the number of compared rows after each part. Raises SiteError, StoreUnavailable and RedisError."""
        async for named in self._reader.all():
            yield await self._compare(named)
        for writer in self.tables:
            if writer.activity:
                async for keys in self._active_at_site(writer):
                    yield await self._end(writer, keys)

    async def _compare(self, named: Named) -> int:
        found, count = await self._reader.read(named, whole=True), 0
        for writer, compared in self.tables.items():
            for some in in_parts(found[writer.mapping.rows], _PAGE):
                wrong = await self._differing(writer, compared, some)
                if self._repair and wrong:
                    self.written += await writer.write(wrong)
                count += len(some)
        return count

    async def _differing(self, writer: TableWriter, compared: Compared, rows: Sequence[Row]) -> list[Row]:
        pairs = writer.encode_all(rows, self.written)
        keys = [writer.key_of(encoded) for _, encoded in pairs]
        found = await self._database.rows(writer.select(keys, writer.mapping.columns)) if keys else ()
        theirs = {writer.key_of(row): row for row in found}
        recorded = await writer.recorded(row for row, _ in pairs)
        wrong: list[Row] = []
        for row, encoded in pairs:
            key = writer.key_of(encoded)
            compared.rows += 1
            if row.get("active"):
                self._active[writer].add(key)
            if key in theirs:
                texts = list(_differences(writer, compared, encoded, theirs[key]))
                texts += _unadded(writer, compared, row, theirs[key], recorded.get(writer.source_of(row)))
                compared.differing += bool(texts)
            else:
                expected = row.get("active", True) or (writer.mapping.rows == "history" and writer.mapping.insert)
                texts = ["missing at the site"] if expected else []
                compared.missing += bool(texts)
            if texts:
                compared.name(f"{writer.name_of(row)}: {'; '.join(texts)}")
                wrong.append(row)
        return wrong

    async def _active_at_site(self, writer: TableWriter) -> AsyncIterator[list[Key]]:
        """The keys of all active rows of the site that the store does not have as such, in parts."""
        columns = writer.table.c
        named = [columns[name] for name in writer.mapping.key]
        is_active = (
            cast(columns[writer.activity], Integer) != 0
            if self._database.is_postgresql
            else columns[writer.activity] != 0
        )
        async for rows in self._database.pages(select(*named).where(is_active).limit(_PAGE), named):
            yield [key for row in rows if (key := writer.key_of(row)) not in self._active[writer]]

    async def _end(self, writer: TableWriter, keys: Sequence[Key]) -> int:
        """Some may have become active since the store was read: what it has of them now is written."""
        still = await self._reader.still_active(writer, keys)
        compared, ended = self.tables[writer], [key for key in keys if key not in still]
        compared.stale += len(ended)
        for key in ended:
            compared.name(f"{writer.mapping.name} {shown(key)}: active at the site only")
        if self._repair and ended:
            await writer.end(ended)
            self.written.rows += len(ended)
        return len(keys)


def _differences(writer: TableWriter, compared: Compared, encoded: Encoded, theirs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in writer.mapping.replaced.items():
        if value in _UNCOMPARED or not is_value(value):
            continue
        ours, sites = encoded[name], theirs[name]
        if isinstance(ours, int | str) and sites is not None:
            sites = type(ours)(sites)
        compared.add(name, ours, sites)
        if ours != sites:
            yield f"{name} {shown(ours)}, at the site {shown(sites)}"


def _unadded(
    writer: TableWriter, compared: Compared, row: Row, theirs: Mapping[str, Any], recorded: list[int] | None
) -> Iterator[str]:
    """Of columns that the site changes too, what the tracker has not added yet counts."""
    for place, (name, value) in enumerate(writer.mapping.added.items()):
        compared.add(name, row[value], int(theirs[name] or 0))
        missing = row[value] - (recorded[place] if recorded else 0)
        if missing > 0:
            yield f"{name}: {missing} not added yet"

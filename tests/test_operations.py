from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import bencodepy
import pytest

from tests.store.harness import Store, info_hash, running, update
from tests.store.work.harness import add, check_work, claimed, project
from tracker import operations
from tracker.bittorrent import Endpoint, PeerId
from tracker.errors import ClientError
from tracker.geoip import GeoIP
from tracker.store.client.connection import Connection, connect
from tracker.store.schema.keys import Keys
from tracker.store.store import Store as RealStore
from tracker.store.swarms.connect_checks import ConnectCheck
from tracker.store.swarms.rules import SwarmRules
from tracker.store.torrents.torrents import Peer, Torrent
from tracker.store.work.records import NewItem, Place
from tracker.system.torrent_files import TorrentFiles


@pytest.fixture
def files(tmp_path: Path) -> TorrentFiles:
    return TorrentFiles(tmp_path, enabled=True)


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        yield store


HYBRID = {
    b"name": b"a film",
    b"pieces": bytes(20),
    b"piece length": 16384,
    b"length": 5,
    b"meta version": 2,
    b"file tree": {b"a film": {b"": {b"length": 5}}},
}


async def test_a_hybrid_file_is_registered_under_both_hashes(store: Store, files: TorrentFiles) -> None:
    data = bencodepy.encode({b"info": HYBRID})
    added = await operations.add_file(store.torrents, data, files=files)
    assert [(each.new, each.name) for each in added] == [(True, "a film"), (True, "a film")]
    for each in added:
        found = await store.torrents.get(each.info_hash)
        assert found is not None and found.name == "a film" and not found.private
        assert (found.size, found.labels) == (5, ())
    again = await operations.add_file(
        store.torrents, data, files=files, name="another name", private=True, labels=["films 4k"]
    )
    assert [each.new for each in again] == [False, False]
    found = await store.torrents.get(added[0].info_hash)
    assert found is not None and found.name == "another name" and found.private
    assert (found.size, found.labels) == (5, ("films", "4k"))


async def test_a_file_is_kept_without_announce_urls_until_its_torrent_is_removed(
    store: Store, files: TorrentFiles
) -> None:
    bare = bencodepy.encode({b"info": HYBRID, b"piece layers": {}})
    whole = {b"announce": b"http://x/secret", b"comment": b"c", b"info": HYBRID, b"piece layers": {}}
    added = await operations.add_file(store.torrents, bencodepy.encode(whole), files=files)
    assert [files.read(each.info_hash) for each in added] == [bare, bare]
    first, second = (each.info_hash for each in added)
    assert await operations.remove_torrent(store.torrents, files, first)
    assert (files.read(first), files.read(second)) == (None, bare)
    assert not await operations.remove_torrent(store.torrents, files, first)


async def test_a_file_that_cannot_be_kept_registers_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "torrents").write_text("in the way")
    with pytest.raises(ClientError, match=r"cannot keep the \.torrent file"):
        await operations.add_file(
            store.torrents, bencodepy.encode({b"info": HYBRID}), files=TorrentFiles(tmp_path, enabled=True)
        )
    assert await store.torrents.count() == 0


async def test_files_of_torrents_that_a_site_removed_are_found(store: Store, files: TorrentFiles) -> None:
    added = await operations.add_file(store.torrents, bencodepy.encode({b"info": HYBRID}), files=files)
    first, second = (each.info_hash for each in added)
    assert [each async for each in operations.stale_files(store.torrents, files, delete=True)] == []
    await store.redis.delete(store.keys.info_hash(first))
    assert [each async for each in operations.stale_files(store.torrents, files)] == [first]
    assert [each async for each in operations.stale_files(store.torrents, files, delete=True)] == [first]
    assert files.read(first) is None and files.read(second) is not None


async def test_an_invalid_torrent_file_is_refused(store: Store, files: TorrentFiles) -> None:
    with pytest.raises(ClientError, match="not a well-formed"):
        await operations.add_file(store.torrents, b"d4:info", files=files)
    with pytest.raises(ClientError, match="too large"):
        await operations.add_file(store.torrents, bytes(101), files=files, max_bytes=100)


async def test_disabling_sets_a_reason_and_enabling_clears_it(store: Store) -> None:
    await operations.add_torrent(store.torrents, info_hash(1), {})
    for fields, state, reason in (
        (operations.torrent_fields(enabled=False), "disabled", operations.NOT_SERVED),
        (operations.torrent_fields(enabled=False, reason="asked to"), "disabled", "asked to"),
        (operations.torrent_fields(enabled=True), "registered", ""),
    ):
        await store.torrents.edit(info_hash(1), fields)
        found = await store.torrents.get(info_hash(1))
        assert found is not None
        assert (operations.state_of(found), found.reason) == (state, reason)


def test_each_torrent_has_its_state() -> None:
    assert operations.state_of(Torrent(info_hash(1), "1", registered=False)) == "unregistered"
    assert operations.state_of(Torrent(info_hash(1), "1", registered=True, denied="")) == "denied"


async def test_a_peer_view_has_readable_fields(store: Store) -> None:
    peer_id = PeerId(b"-qB5020-" + bytes(12))
    await store.announce(update(1, peer_id=peer_id, uploaded=7, bytes_left=2**53 - 1))
    torrent = await store.torrents.get(info_hash(1))
    assert torrent is not None
    _, (peer,) = await store.torrents.peers(torrent)
    (view,) = await operations.peer_views(store, [peer], GeoIP(None))
    assert view.peer_id == peer_id.hex() and view.client == "qBittorrent 5.0.2"
    assert view.endpoints == ("11.0.0.1:6881",)
    assert (view.country, view.user_id, view.seeding, view.bytes_left) == ("", "", False, 2**53 - 1)
    assert view.last_announce == int(store.clock.now) and view.connectable is None


@pytest.mark.parametrize(
    ("results", "connectable"),
    [((True, False), True), ((False, True), True), ((None, False), False), ((None, None), None), ((), None)],
)
def test_a_peer_is_connectable_at_any_of_its_endpoints(
    results: tuple[bool | None, ...], connectable: bool | None
) -> None:
    endpoints = tuple(Endpoint(bytes(size)) for size in (6, 18))
    checks = {endpoint: ConnectCheck(result, 5) for endpoint, result in zip(endpoints, results, strict=False)}
    view = operations.peer_view(Peer(PeerId(bytes(20)), endpoints, False, {}), GeoIP(None), checks)
    assert view.connectable is connectable


def test_invalid_numbers_in_the_store_count_as_0() -> None:
    fields = {"uploaded": "9" * 5000, "downloaded": "nan", "left": "x", "speed_up": "inf", "user_id": "7"}
    peer = Peer(PeerId(bytes(20)), (Endpoint(b"\x01\x02\x03\x04\0\x05"),), False, fields)
    view = operations.peer_view(peer, GeoIP(None), {})
    assert (view.uploaded, view.downloaded, view.bytes_left, view.upload_speed) == (0, 0, 0, 0)


@pytest.mark.parametrize("prefix", [b"-TR40", b"\0\xff%41 /", bytes(range(20))])
def test_a_formatted_prefix_parses_to_the_same_bytes(prefix: bytes) -> None:
    assert operations.parse_prefix(operations.format_prefix(prefix)) == prefix


@pytest.mark.parametrize(("factor", "text"), [(0, "0"), (1000, "1000"), (1.5, "1.5"), (1e-7, "0")])
def test_multipliers_have_no_exponent(factor: float, text: str) -> None:
    assert operations.torrent_fields(upload_multiplier=factor) == {"multi_up": text}


def test_a_v2_hash_is_cut_to_20_bytes() -> None:
    assert operations.parse_hash("ab" * 32) == bytes.fromhex("ab" * 20)
    with pytest.raises(ClientError):
        operations.parse_hash("ab" * 21)


class Interrupted(Connection):
    """Something else happens in the store after the first page was read."""

    def __init__(self, url: str, then: Callable[[], Awaitable[None]]) -> None:
        super().__init__(connect(url, connect_timeout=5), timeout=5)
        self.then: Callable[[], Awaitable[None]] | None = then

    async def command(self, *args: Any) -> Any:
        answer = await super().command(*args)
        if args[0] == "ZRANGE" and self.then is not None:
            then, self.then = self.then, None
            await then()
        return answer


async def test_an_item_that_moves_while_its_list_is_purged_stays_where_it_is(store: Store) -> None:
    await project(store, start_budget=9)
    await add(store, "asked", claimants=("alice",))
    await add(store, "a", "b")
    done = [(await claimed(store, "alice")).item for _ in range(3)]
    for name in done:
        await store.work.claims.done("proj", "alice", name)

    async def again() -> None:
        await store.work.items.add("proj", [NewItem("a")], again=True)

    async def finish() -> None:
        await store.work.claims.done("proj", "bob", (await claimed(store, "bob")).item)

    for place, then, removed in (("done", again, 2), ("todo", finish, 0)):
        connection = Interrupted(store.url, then)
        try:
            other = RealStore(connection, store.keys.prefix, clock=store.clock)
            assert await operations.purge_items(other, "proj", cast(Place, place)) == removed
        finally:
            await connection.close()
    assert (await store.work.items.status("proj", "a")).status == "done"
    assert (await check_work(store)).wanted == 0

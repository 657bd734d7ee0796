from pathlib import Path

import bencodepy
import pytest

from tests.store.harness import Store, info_hash
from tracker.errors import ClientError
from tracker.operations.torrents import (
    NOT_SERVED,
    add_file,
    add_torrent,
    parse_hash,
    remove_torrent,
    stale_files,
    state_of,
    torrent_fields,
)
from tracker.store.torrents.torrents import Torrent
from tracker.system.torrent_files import TorrentFiles


@pytest.fixture
def files(tmp_path: Path) -> TorrentFiles:
    return TorrentFiles(tmp_path, enabled=True)


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
    added = await add_file(store.torrents, data, files=files)
    assert [(each.new, each.name) for each in added] == [(True, "a film"), (True, "a film")]
    for each in added:
        found = await store.torrents.get(each.info_hash)
        assert found is not None and found.name == "a film" and not found.private
        assert (found.size, found.labels) == (5, ())
    again = await add_file(
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
    added = await add_file(store.torrents, bencodepy.encode(whole), files=files)
    assert [files.read(each.info_hash) for each in added] == [bare, bare]
    first, second = (each.info_hash for each in added)
    assert await remove_torrent(store.torrents, files, first)
    assert (files.read(first), files.read(second)) == (None, bare)
    assert not await remove_torrent(store.torrents, files, first)


async def test_a_file_that_cannot_be_kept_registers_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "torrents").write_text("in the way")
    with pytest.raises(ClientError, match=r"cannot keep the \.torrent file"):
        await add_file(
            store.torrents, bencodepy.encode({b"info": HYBRID}), files=TorrentFiles(tmp_path, enabled=True)
        )
    assert await store.torrents.count() == 0


async def test_files_of_torrents_that_a_site_removed_are_found(store: Store, files: TorrentFiles) -> None:
    added = await add_file(store.torrents, bencodepy.encode({b"info": HYBRID}), files=files)
    first, second = (each.info_hash for each in added)
    assert [each async for each in stale_files(store.torrents, files, delete=True)] == []
    await store.redis.delete(store.keys.info_hash(first))
    assert [each async for each in stale_files(store.torrents, files)] == [first]
    assert [each async for each in stale_files(store.torrents, files, delete=True)] == [first]
    assert files.read(first) is None and files.read(second) is not None


async def test_an_invalid_torrent_file_is_refused(store: Store, files: TorrentFiles) -> None:
    with pytest.raises(ClientError, match="not a well-formed"):
        await add_file(store.torrents, b"d4:info", files=files)
    with pytest.raises(ClientError, match="too large"):
        await add_file(store.torrents, bytes(101), files=files, max_bytes=100)


async def test_disabling_sets_a_reason_and_enabling_clears_it(store: Store) -> None:
    await add_torrent(store.torrents, info_hash(1), {})
    for fields, state, reason in (
        (torrent_fields(enabled=False), "disabled", NOT_SERVED),
        (torrent_fields(enabled=False, reason="asked to"), "disabled", "asked to"),
        (torrent_fields(enabled=True), "registered", ""),
    ):
        await store.torrents.edit(info_hash(1), fields)
        found = await store.torrents.get(info_hash(1))
        assert found is not None
        assert (state_of(found), found.reason) == (state, reason)


def test_each_torrent_has_its_state() -> None:
    assert state_of(Torrent(info_hash(1), "1", registered=False)) == "unregistered"
    assert state_of(Torrent(info_hash(1), "1", registered=True, denied="")) == "denied"


@pytest.mark.parametrize(("factor", "text"), [(0, "0"), (1000, "1000"), (1.5, "1.5"), (1e-7, "0")])
def test_multipliers_have_no_exponent(factor: float, text: str) -> None:
    assert torrent_fields(upload_multiplier=factor) == {"multi_up": text}


def test_a_v2_hash_is_cut_to_20_bytes() -> None:
    assert parse_hash("ab" * 32) == bytes.fromhex("ab" * 20)
    with pytest.raises(ClientError):
        parse_hash("ab" * 21)

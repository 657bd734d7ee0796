from pathlib import Path

import bencodepy
import pytest

from tests.store.harness import Store, info_hash
from tests.torrent_files import HYBRID, changed, made
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, NotFound
from tracker.operations import torrents
from tracker.operations.torrents import (
    NOT_SERVED,
    add_file,
    add_torrent,
    allow_torrent,
    counting_torrent,
    deny_torrent,
    edit_torrent,
    find_torrents,
    listed_torrents,
    parse_hash,
    remove_torrent,
    stale_files,
    state_of,
    torrent_fields,
)
from tracker.store.torrents.listing import TorrentFilter
from tracker.store.torrents.records import Enabled
from tracker.store.torrents.torrents import Torrent
from tracker.system.torrent_files import TorrentFiles


@pytest.fixture
def files(tmp_path: Path) -> TorrentFiles:
    return TorrentFiles(tmp_path, enabled=True)


async def test_a_hybrid_file_is_registered_under_both_hashes(store: Store, files: TorrentFiles) -> None:
    data = bencodepy.encode({b"info": HYBRID})
    added = await add_file(store, data, files=files)
    assert [(each.new, each.name) for each in added] == [(True, "a film"), (True, "a film")]
    for each in added:
        found = await store.torrents.get(each.info_hash)
        assert found is not None and found.name == "a film" and not found.private
        assert (found.size, found.labels) == (5, ())
    again = await add_file(store, data, files=files, name="another name", private=True, labels=["films 4k"])
    assert [each.new for each in again] == [False, False]
    found = await store.torrents.get(added[0].info_hash)
    assert found is not None and found.name == "another name" and found.private
    assert (found.size, found.labels) == (5, ("films", "4k"))


async def test_a_file_is_kept_without_announce_urls_until_its_torrent_is_removed(
    store: Store, files: TorrentFiles
) -> None:
    bare = bencodepy.encode({b"info": HYBRID, b"piece layers": {}})
    whole = {b"announce": b"http://x/secret", b"comment": b"c", b"info": HYBRID, b"piece layers": {}}
    added = await add_file(store, bencodepy.encode(whole), files=files)
    assert [files.read(each.info_hash) for each in added] == [bare, bare]
    first, second = (each.info_hash for each in added)
    assert await remove_torrent(store, files, first)
    assert (files.read(first), files.read(second)) == (None, bare)
    assert not await remove_torrent(store, files, first)


@pytest.mark.parametrize("data_private", [None, 0, 1])
async def test_a_known_torrent_is_renamed_and_made_public_only_if_asked(
    store: Store, files: TorrentFiles, data_private: int | None
) -> None:
    info = HYBRID | ({} if data_private is None else {b"private": data_private})
    data = bencodepy.encode({b"info": info})
    added = await add_file(store, data, files=files)
    for each in added:
        await edit_torrent(store, each.info_hash, {"name": "my name", "private": "1"})
    again = await add_file(store, data, files=files)
    assert [(each.new, each.name) for each in again] == [(False, "my name")] * 2
    found = await store.torrents.get_all([each.info_hash for each in added])
    assert [(each.name, each.private) for each in found] == [("my name", True)] * 2
    assert len((await store.torrents.search("my name"))[1]) == 2
    again = await add_file(store, data, files=files, name="new name")
    assert [each.name for each in again] == ["new name"] * 2 and (await store.torrents.search("my name"))[1] == []
    for each in added:
        await edit_torrent(store, each.info_hash, {"name": "", "private": "0"})
    await add_file(store, data, files=files)
    found = await store.torrents.get_all([each.info_hash for each in added])
    assert [(each.name, each.private) for each in found] == [("a film", data_private == 1)] * 2


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
async def test_a_kept_file_is_not_replaced_by_one_with_fewer_piece_layers(
    store: Store, tmp_path: Path, files: TorrentFiles, kind: str
) -> None:
    data = made(tmp_path / "content", kind, {"large.bin": bytes(range(250)) * 300})
    less = changed(data, b"piece layers", to={})
    hashes = [each.info_hash for each in await add_file(store, less, files=files)]
    poor = files.read(hashes[0])
    await add_file(store, data, files=files)
    complete = files.read(hashes[0])
    assert poor is not None and complete is not None and len(poor) < len(complete)
    assert not any(each.new for each in await add_file(store, less, files=files))
    assert {files.read(each) for each in hashes} == {complete}


async def test_a_file_that_cannot_be_kept_registers_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "torrents").write_text("in the way")
    with pytest.raises(ClientError, match=r"cannot keep the \.torrent file"):
        await add_file(store, bencodepy.encode({b"info": HYBRID}), files=TorrentFiles(tmp_path, enabled=True))
    assert await store.torrents.count() == 0


async def test_files_of_torrents_that_a_site_removed_are_found(store: Store, files: TorrentFiles) -> None:
    added = await add_file(store, bencodepy.encode({b"info": HYBRID}), files=files)
    first, second = (each.info_hash for each in added)
    assert [each async for each in stale_files(store.torrents, files, delete=True)] == []
    await store.redis.delete(store.keys.info_hash(first))
    assert [each async for each in stale_files(store.torrents, files)] == [first]
    assert [each async for each in stale_files(store.torrents, files, delete=True)] == [first]
    assert files.read(first) is None and files.read(second) is not None


async def test_an_invalid_torrent_file_is_refused(store: Store, files: TorrentFiles) -> None:
    with pytest.raises(ClientError, match="not a well-formed"):
        await add_file(store, b"d4:info", files=files)
    with pytest.raises(ClientError, match="too large"):
        await add_file(store, bytes(101), files=files, max_bytes=100)


async def test_disabling_sets_a_reason_and_enabling_clears_it(store: Store) -> None:
    await add_torrent(store, info_hash(1), {})
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


V1, V2 = info_hash(1), info_hash(2)


async def linked(store: Store) -> None:
    for half in (V1, V2):
        await add_torrent(store, half, {})
    await edit_torrent(store, V2, {"hybrid_of": V1.hex()})


async def states(store: Store) -> list[str]:
    return [state_of(each) for each in await store.torrents.get_all([V1, V2])]


@pytest.mark.parametrize(("enabled", "state"), [(False, "disabled"), ("pending", "pending")])
async def test_a_half_is_linked_in_the_state_of_the_v1_half(store: Store, enabled: Enabled, state: str) -> None:
    await add_torrent(store, V1, torrent_fields(enabled=enabled, reason="wait"))
    await add_torrent(store, V2, {})
    await edit_torrent(store, V2, {"hybrid_of": V1.hex()})
    assert await states(store) == [state] * 2
    found = await store.torrents.get(V2)
    assert found is not None and found.reason == "wait"
    await edit_torrent(store, V1, torrent_fields(enabled=True))
    assert await states(store) == ["registered"] * 2


@pytest.mark.parametrize(("one", "other"), [(V1, V2), (V2, V1)])
async def test_what_keeps_one_half_from_being_served_keeps_both(store: Store, one: InfoHash, other: InfoHash) -> None:
    await linked(store)
    await edit_torrent(store, one, torrent_fields(enabled=False, reason="no", download_multiplier=0))
    assert await states(store) == ["disabled"] * 2
    found = await store.torrents.get(other)
    assert found is not None and found.reason == "no" and found.download_multiplier[0].factor == 0
    await add_torrent(store, other, torrent_fields(enabled=True))
    assert await states(store) == ["registered"] * 2
    await deny_torrent(store, one, "asked to")
    assert await states(store) == ["denied"] * 2
    assert await allow_torrent(store, other) and not await allow_torrent(store, one)
    assert await states(store) == ["registered"] * 2


async def test_other_fields_are_those_of_one_half(store: Store) -> None:
    await linked(store)
    await edit_torrent(store, V2, torrent_fields(name="v2", labels=["x"], private=True, size=5))
    found = await store.torrents.get(V1)
    assert found is not None
    assert (found.name, found.labels, found.private, found.size) == ("", (), False, None)


@pytest.mark.parametrize(("one", "other"), [(V1, V2), (V2, V1)])
async def test_removing_a_half_ends_the_link_of_the_other(
    store: Store, files: TorrentFiles, one: InfoHash, other: InfoHash
) -> None:
    await linked(store)
    assert await remove_torrent(store, files, one)
    found = await store.torrents.get(other)
    assert found is not None and (found.hybrid_of, found.hybrid, state_of(found)) == ("", "", "registered")
    await add_torrent(store, one, {})
    await edit_torrent(store, one, {"hybrid_of": other.hex()})


async def test_a_removed_file_is_linked_again_when_it_is_added_again(store: Store, files: TorrentFiles) -> None:
    data = bencodepy.encode({b"info": HYBRID})
    v1, v2 = (each.info_hash for each in await add_file(store, data, files=files))
    await remove_torrent(store, files, v1)
    assert await store.hybrids.others([v1, v2]) == {}
    await add_file(store, data, files=files)
    assert await store.hybrids.others([v1, v2]) == {v1: v2, v2: v1}


async def test_the_v1_half_counts_for_users(store: Store) -> None:
    await linked(store)
    for half in (V1, V2):
        assert (await counting_torrent(store, half)).info_hash == V1
    await store.redis.delete(store.keys.info_hash(V1))
    assert (await counting_torrent(store, V2)).info_hash == V2
    with pytest.raises(NotFound, match="unknown torrent"):
        await counting_torrent(store, info_hash(9))


async def test_invalid_fields_link_nothing(store: Store) -> None:
    for half in (V1, V2):
        await add_torrent(store, half, {})
    with pytest.raises(ClientError, match="a size is"):
        await edit_torrent(store, V2, {"hybrid_of": V1.hex(), "size": "-1"})
    assert await store.hybrids.others([V2]) == {}


async def test_a_half_of_a_torrent_that_is_not_served_is_not_served(store: Store) -> None:
    """What the v1 half does not count would count nowhere."""
    for half in (V1, V2):
        await add_torrent(store, half, {})
    await store.torrents.edit(V1, torrent_fields(enabled=False, reason="no"))
    await store.torrents.deny(V1, "asked to")
    await edit_torrent(store, V2, {"hybrid_of": V1.hex()})
    found = await store.torrents.get(V2)
    assert found is not None and (found.enabled, found.reason, found.denied) == (False, "no", "asked to")
    await edit_torrent(store, V2, {"hybrid_of": V1.hex(), **torrent_fields(enabled=True)})
    assert [each.enabled for each in await store.torrents.get_all([V1, V2])] == [True, True]


@pytest.fixture
async def filled(store: Store) -> Store:
    for number in range(1, 6):
        await store.torrents.add(info_hash(number), {"name": f"film {number}", "private": str(number % 2)})
        await store.users.add(str(number))
    return store


async def test_a_text_is_part_of_a_name_or_without_a_filter_the_start_of_an_info_hash(filled: Store) -> None:
    async def numbers(wanted: TorrentFilter, text: str) -> list[str]:
        return [each.name[-1] for each in (await find_torrents(filled, wanted, text)).rows]

    assert await numbers(TorrentFilter(), info_hash(3).hex()) == ["3"]
    assert await numbers(TorrentFilter(private=True), info_hash(3).hex()) == []
    assert await numbers(TorrentFilter(private=True), "FILM") == ["1", "3", "5"]
    assert await numbers(TorrentFilter("added", private=False), "") == ["4", "2"]


@pytest.mark.parametrize("page", [1, 2, 500])
async def test_a_list_is_read_in_pages_up_to_a_limit(filled: Store, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(torrents, "_PAGE", page)
    for bound in (100, 3):
        wanted = TorrentFilter("name", descending=False)
        pages = [each.rows async for each in listed_torrents(filled, wanted, "", bound)]
        assert [each.name[-1] for some in pages for each in some] == ["1", "2", "3", "4", "5"][:bound]

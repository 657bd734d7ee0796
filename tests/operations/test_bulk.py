"""Changes of several torrents and users."""

from pathlib import Path

import pytest

from tests.store.harness import ALICE, BOB, Store, info_hash
from tracker.operations.torrents import change_torrents
from tracker.operations.users import UserAction, change_users
from tracker.system.torrent_files import TorrentFiles

HASHES = [info_hash(1), info_hash(2)]


async def test_unknown_torrents_are_left_out(store: Store, tmp_path: Path) -> None:
    files = TorrentFiles(tmp_path, enabled=True)
    await store.torrents.add(HASHES[0])
    for action, number in (("disable", 1), ("enable", 1), ("deny", 2), ("allow", 2), ("remove", 1)):
        assert await change_torrents(store, files, action, HASHES, "no") == number, action  # type: ignore[arg-type]
        found = {each.info_hash: each for each in await store.torrents.get_all(HASHES)}
        if action == "disable":
            assert (found[HASHES[0]].enabled, found[HASHES[0]].reason) == (False, "no")
        if action == "enable":
            assert (found[HASHES[0]].enabled, found[HASHES[0]].reason) == (True, "")
        if action == "deny":
            assert found[HASHES[1]].denied == "no"
    assert await store.torrents.get_all(HASHES) == []


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        ("disable", "enabled", False),
        ("enable", "enabled", True),
        ("block_leech", "can_leech", False),
        ("allow_leech", "can_leech", True),
    ],
)
async def test_unknown_users_are_left_out(store: Store, action: UserAction, field: str, value: bool) -> None:
    await store.users.add("7", ALICE, enabled=not value, can_leech=not value)
    await store.users.add("8", BOB)
    before = await store.users.find("8")
    assert await change_users(store, action, ["7", "9"], "no") == 1
    changed = await store.users.find("7")
    assert getattr(changed, field) is value
    assert changed.reason == ("no" if action == "disable" else "")
    assert await store.users.find("8") == before


async def test_users_are_forgiven_and_deleted(store: Store) -> None:
    await store.users.add("7", ALICE)
    await store.redis.sadd(store.keys.user_set("7", "hnr"), "1", "2")
    assert await change_users(store, "forgive", ["7", "9"], "") == 2
    assert await change_users(store, "delete", ["7", "9"], "") == 1
    assert await store.users.count() == 0

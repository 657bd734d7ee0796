"""Changes as entries of the audit log: before and after, secrets, failures."""

import pytest
import structlog

from loadtest.servers import Server
from tests.store.client.proxy import Proxy
from tests.store.harness import Store, info_hash, running
from tests.waiting import in_background
from tracker.operations import audit
from tracker.operations.audit import Caller, Change
from tracker.operations.torrents import edit_torrent
from tracker.store.access.audit import AuditEntry, AuditFilter
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.system.masking import MASK

CALLER = Caller("site", "operate", "api", "0123456789ab", "192.0.2.1")
HASH = info_hash(1).hex()


async def newest(store: Store) -> AuditEntry:
    return (await store.audit.page(AuditFilter(), limit=1))[0][0]


async def count(store: Store) -> int:
    return len((await store.audit.page(AuditFilter()))[0])


async def test_an_entry_has_the_changed_fields_before_and_after(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"name": "old", "private": "1"})
    change = Change(store, CALLER, "torrent.edit")
    await change.touch("torrent", HASH)
    await store.torrents.edit(info_hash(1), {"name": "new", "reason": "because"})
    await change.record()
    entry = await newest(store)
    assert (entry.actor, entry.token_id, entry.role) == ("site", "0123456789ab", "operate")
    assert (entry.way, entry.address, entry.operation) == ("api", "192.0.2.1", "torrent.edit")
    (changed,) = entry.objects
    assert (changed.kind, changed.id) == ("torrent", HASH)
    assert changed.before == {"name": "old"}
    assert changed.after == {"name": "new", "reason": "because"}


async def test_new_and_deleted_objects(store: Store) -> None:
    change = Change(store, CALLER, "user.add")
    user = await store.users.add("7", name="Alice")
    change.created("user", user.user_id)
    await change.record()
    (added,) = (await newest(store)).objects
    assert added.before == {} and added.after["name"] == "Alice"
    change = Change(store, CALLER, "user.delete")
    await change.touch("user", user.passkey)
    await store.users.delete("7")
    await change.record()
    (deleted,) = (await newest(store)).objects
    assert (deleted.id, deleted.after) == ("7", {}) and deleted.before["name"] == "Alice"


async def test_passkeys_are_masked(store: Store) -> None:
    user = await store.users.add("7")
    change = Change(store, CALLER, "user.rotate")
    await change.touch("user", "7")
    rotated = await store.users.rotate(user.passkey)
    await change.record()
    (changed,) = (await newest(store)).objects
    assert changed.before == changed.after == {"passkey": MASK}
    kept = repr(await store.redis.xrange(store.keys.audit()))
    assert user.passkey not in kept and rotated.passkey not in kept


async def test_totals_that_announces_change_are_shown_only_if_they_were_sent(store: Store) -> None:
    user = await store.users.add("7")
    for given, shown in (({"name": "Bob"}, {"name"}), ({"uploaded": 9}, {"uploaded"})):
        change = Change(store, CALLER, "user.edit")
        await change.touch("user", "7")
        change.given(given)
        await store.users.edit(user.passkey, given)
        await store.redis.hincrby(store.keys.user("7"), "downloaded", 5)  # as an announce does
        await change.record()
        (changed,) = (await newest(store)).objects
        assert set(changed.after) == shown


async def test_all_objects_of_a_call_are_named_and_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a number that bounds what one call reads and writes."""
    monkeypatch.setattr(audit, "MAX_NAMED", 25)
    hashes = [info_hash(number).hex() for number in range(1, 31)]
    change = Change(store, CALLER, "torrent.add")
    await change.touch_all("torrent", hashes)
    for each in hashes:
        change.created("torrent", each)
        change.count(added=1)
    await change.record()
    entries, _ = await store.audit.page(AuditFilter())
    assert [each.id for entry in entries for each in entry.objects] == hashes[:25]
    assert [dict(entry.counts) for entry in entries] == [{"added": 30}, {}]


async def test_rows_are_named_if_they_changed(store: Store) -> None:
    """Users by id or passkey, new and known ones; passkeys are masked, and totals shown only if sent."""
    known = await store.users.add("7", name="old", uploaded=5)
    other = await store.users.add("8", name="same")
    rows = [{"passkey": known.passkey, "name": "new"}, {"user_id": "8", "name": "same"}, {"user_id": "9"}]
    for given, shown in (((), {"name"}), (("uploaded",), {"name", "uploaded"})):
        change = Change(store, CALLER, "user.batch")
        change.given(dict.fromkeys(given))
        before = await change.read_rows("user", [known.passkey, "8", "9"])
        await store.user_import.save([{**row, "uploaded": 6} for row in rows], replace_totals=True)
        await change.note_rows("user", before, ["7", "8", "9"])
        await change.record()
        objects = {each.id: each for each in (await newest(store)).objects}
        assert set(objects) == ({"7", "9"} if not given else {"7", "8", "9"})
        assert set(objects["7"].before) == set(objects["7"].after) == shown
        assert objects["9"].before == {} and objects["9"].after["passkey"] == MASK
        for user_id in ("7", "8"):
            await store.users.edit((await store.users.find(user_id)).passkey, {"uploaded": 5})
        await store.users.edit(known.passkey, {"name": "old"})
        await store.users.delete("9")
    assert other.passkey not in repr(await store.redis.xrange(store.keys.audit()))


async def test_a_row_that_cannot_be_read_does_not_hide_the_others(store: Store) -> None:
    user = await store.users.add("7")
    await store.redis.delete(store.keys.user("7"))
    await store.redis.set(store.keys.user("7"), "of another program")
    change = Change(store, CALLER, "user.batch")
    before = await change.read_rows("user", [user.passkey, "8"])
    await store.users.add("8")
    await change.note_rows("user", before, ["7", "8"])
    await change.record()
    assert [each.id for each in (await newest(store)).objects] == ["8"]


async def test_rows_that_cannot_be_read_are_not_noted(valkey: Server, prefix: str) -> None:
    async with Proxy(valkey) as proxy, running(Store(proxy.url, Keys(prefix), SwarmRules())) as store:
        await store.torrents.add(info_hash(1))
        change = Change(store, CALLER, "torrent.batch")
        proxy.swallow_answers()
        before = await change.read_rows("torrent", [HASH])
        await change.note_rows("torrent", before, [HASH])
        async with in_background(store.connection.watch()):
            await store.connection.until_available()
        await change.record()
        entry = await newest(store)
        assert (before, entry.objects, dict(entry.details)) == (None, (), {"not_read": "torrent"})


async def test_an_object_that_cannot_be_read_afterwards_has_its_id(store: Store) -> None:
    """As when its shard becomes unavailable in between. The other objects have their values."""
    change = Change(store, CALLER, "user.edit")
    users = [await store.users.add(user_id, name="old") for user_id in ("7", "8")]
    await change.touch_all("user", ["7", "8"])
    for user in users:
        await store.users.edit(user.passkey, {"name": "new"})
    await store.redis.set(store.keys.user_freeleech("7"), "of another program")
    await change.record()
    entry = await newest(store)
    assert [(each.id, each.before, each.after) for each in entry.objects] == [
        ("7", {}, {}),
        ("8", {"name": "old"}, {"name": "new"}),
    ]
    assert dict(entry.details) == {"not_read": "user"}


async def test_a_failed_call_has_an_entry_only_if_it_changed_something(store: Store) -> None:
    change = Change(store, CALLER, "torrent.edit")
    await change.touch("torrent", HASH)
    await change.record(failed=True)
    assert await count(store) == 0
    await store.torrents.add(info_hash(1))
    await change.record(failed=True)
    assert await count(store) == 1


@pytest.mark.parametrize("unavailable", [False, True])
async def test_a_lost_entry_is_logged_and_the_change_stays(store: Store, unavailable: bool) -> None:
    await store.redis.set(store.keys.audit(), "of another program")
    change = Change(store, CALLER, "torrent.add")
    await change.touch("torrent", HASH)
    await store.torrents.add(info_hash(1))
    if unavailable:
        await store.connection.close()
    with structlog.testing.capture_logs() as logs:
        await change.record()
    (line,) = logs
    assert (line["event"], line["by"], line["what"]) == ("audit entry lost", "site", "torrent.add")
    assert line["objects"] == [f"torrent {HASH}"] and line["log_level"] == "error"


async def test_the_other_half_of_a_hybrid_torrent_is_named_if_it_changes(store: Store) -> None:
    for number in (1, 2):
        await store.torrents.add(info_hash(number))
    await store.hybrids.link(info_hash(2), info_hash(1))
    for fields, changed in (({"enabled": "0", "reason": "no"}, 2), ({"name": "new"}, 1)):
        change = Change(store, CALLER, "torrent.edit")
        await change.touch("torrent", HASH)
        await edit_torrent(store, info_hash(1), fields)
        await change.record()
        objects = (await newest(store)).objects
        assert [each.id for each in objects] == [info_hash(number + 1).hex() for number in range(changed)]
        wanted = {"enabled": "false", "reason": "no"} if "enabled" in fields else fields
        assert all(each.after == wanted for each in objects)

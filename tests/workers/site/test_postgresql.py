"""A site of its own on PostgreSQL, with a mapping file and other types of columns."""

from loadtest.databases import Site
from loadtest.site_tables import OWN_MAPPING
from tests.store.harness import Store, info_hash, peer_id
from tests.workers.site.harness import announce, passkey, register, syncing
from tests.workers.site.test_comparing import compared
from tracker.workers.site.mapping import read_mapping


async def test_the_tables_of_a_mapping_file_are_kept(store: Store, own: Site) -> None:
    await register(store, [7, 8])
    own.sql(
        *(f"INSERT INTO members VALUES ({user}, 'u{user}', '{passkey(user)}', 5000)" for user in (7, 8)),
        f"INSERT INTO releases VALUES (1, 't', '{info_hash(1).hex()}')",
    )
    async with syncing(store, own, read_mapping("own", OWN_MAPPING)) as sync:
        await announce(store, 7, "s", left=0)
        await announce(store, 8, "s")
        await store.pass_time(600)
        await announce(store, 7, up=300, left=0)
        await announce(store, 8, "c", down=1000, left=0)
        await sync.round()
        await sync.round()
        own.sql("UPDATE downloads SET note = 'kept', up = 1 WHERE member = 7")
        assert (await compared(sync))["downloads"].named == ["downloads 7 1: up 300, at the site 1"]
        await announce(store, 8, "x", down=1000, left=0)
        await sync.full_pass()
        await sync.round()
        assert not any(each.differences for each in (await compared(sync)).values())

    assert own.sql("SELECT member, up, down FROM members ORDER BY member") == [
        ["7", "5300", "0"],
        ["8", "5000", "1000"],
    ]
    assert own.sql("SELECT seeders, leechers, snatched FROM releases") == [["1", "0", "1"]]
    now = int(store.clock.now)
    assert own.sql(
        "SELECT up, down, seconds, seeding, extract(epoch FROM finished)::bigint, note FROM downloads"
    ) == [
        ["300", "0", "600", "t", "", "kept"],
        ["0", "1000", "0", "f", str(now), "none"],
    ]
    assert own.sql("SELECT peer_id, address, port, active FROM clients ORDER BY member") == [
        [peer_id(7).hex(), "11.0.0.7", "6881", "t"],
        [peer_id(8).hex(), "11.0.0.8", "6881", "f"],
    ]

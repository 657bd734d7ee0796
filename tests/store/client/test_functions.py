"""The announce script is kept by the server as a Redis function, where the server allows functions."""

from tests.store.conftest import MakeStore
from tests.store.harness import Store, update
from tracker.store.client.scripts import Function, announce_library


def functions_of(store: Store) -> tuple[Function, Function]:
    announce, when_full = store.scripts.announce, store.scripts.announce_when_full
    assert isinstance(announce, Function) and isinstance(when_full, Function)
    return announce, when_full


async def calls_of(store: Store, command: str) -> int:
    statistics = await store.redis.info("commandstats")
    return int(statistics.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_announces_call_a_function(store: Store) -> None:
    before = await calls_of(store, "fcall")
    await store.announce(update(1, "s"))
    await store.announce(update(1))
    assert await calls_of(store, "fcall") >= before + 2
    libraries = await store.redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", announce_library().name)
    assert len(libraries) == 1


async def test_a_server_that_lost_its_functions_gets_them_again(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.execute_command("FUNCTION", "DELETE", announce_library().name)
    assert (await store.announce(update(2, "s"))).outcome == "join"
    assert functions_of(store)[0].head[0] == "FCALL"


async def test_a_call_starts_afresh_although_the_server_keeps_the_functions(make_store: MakeStore) -> None:
    """Rules, users and counts of one call do not reach the next, not even after an error."""
    open_store = await make_store()
    await open_store.announce(update(1, "s"))
    private = await make_store(accounts="required", open=False)
    assert await private.refused(update(2, "s", torrent=2)) == "unknown passkey"
    await open_store.redis.set(f"{open_store.keys.prefix}i:seeders", "another program's")
    assert await open_store.refused(update(3, "s", torrent=3)) == "error"
    await open_store.redis.delete(f"{open_store.keys.prefix}i:seeders")
    reply = await open_store.announce(update(4, "s", torrent=4))
    assert (reply.outcome, reply.seeders, reply.leechers) == ("join", 0, 1)


async def test_without_permission_for_functions_announces_run_as_a_script(store: Store) -> None:
    await store.redis.execute_command("ACL", "SETUSER", "default", "-fcall", "-function")
    try:
        assert (await store.announce(update(1, "s"))).outcome == "join"
        assert (await store.announce(update(1))).outcome == "update"
        assert functions_of(store)[0].head[0] == "EVALSHA"
    finally:
        await store.redis.execute_command("ACL", "SETUSER", "default", "+@all")

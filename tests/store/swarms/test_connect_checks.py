"""Results of connecting to peers, in the store."""

from tests.store.harness import Store
from tracker.bittorrent import Endpoint
from tracker.store.swarms.connect_checks import KEEP_SECONDS, ConnectCheck

ONE, SIX = Endpoint(b"\x0b\0\0\1\x1a\xe1"), Endpoint(bytes(16) + b"\x1a\xe1")


async def test_results_are_kept_for_a_day(store: Store) -> None:
    now = int(store.clock.now)
    await store.connect_checks.note(ONE, "", True)
    await store.connect_checks.note(SIX, "", None)
    assert await store.connect_checks.of([ONE, SIX, ONE]) == {
        ONE: ConnectCheck(True, now),
        SIX: ConnectCheck(None, now),
    }
    await store.connect_checks.note(ONE, "", False)
    assert await store.connect_checks.of([ONE]) == {ONE: ConnectCheck(False, now)}
    assert KEEP_SECONDS - 60 < await store.redis.ttl(store.keys.connectable(ONE)) <= KEEP_SECONDS
    assert await store.connect_checks.of([]) == {}


async def test_an_invalid_value_shows_nothing(store: Store) -> None:
    await store.redis.set(store.keys.connectable(ONE), b"\xff")
    assert await store.connect_checks.of([ONE, SIX]) == {ONE: ConnectCheck(None, 0)}


async def test_a_user_is_connectable_if_a_client_was_within_a_day(private: Store) -> None:
    checks, start = private.connect_checks, int(private.clock.now)
    await checks.note(ONE, "7", None)
    assert await checks.of_user("7") is None
    await checks.note(ONE, "7", False)
    assert await checks.of_user("7") == ConnectCheck(False, start)
    await checks.note(SIX, "7", True)
    private.clock.now += 10
    await checks.note(ONE, "7", False)
    assert await checks.of_user("7") == ConnectCheck(True, start)
    private.clock.now = start + KEEP_SECONDS
    assert await checks.of_user("7") == ConnectCheck(False, start + 10)
    private.clock.now += 10
    assert await checks.of_user("7") is None


async def test_a_deleted_user_does_not_come_back(private: Store) -> None:
    await private.users.delete("7")
    await private.connect_checks.note(ONE, "7", True)
    assert not await private.redis.exists(private.keys.user(7))
    assert await private.connect_checks.of_user("7") is None

"""Due lists: each peer is in one list, and moves to a later list while it announces."""

from tests.store.conftest import MakeStore
from tests.store.harness import Store, due_deadline, peer_id, timeout_key, update
from tracker.store.swarms.codec import DUE_STEP_SECONDS

TIMEOUT = 2700.0


def deadline(store: Store, seconds: float = TIMEOUT) -> int:
    return due_deadline(store.clock.now + 1, seconds)


def name(deadline: int) -> bytes:
    """The values of the timeouts in a list."""
    return b"%d" % (deadline // DUE_STEP_SECONDS % 10_000)


async def lists(store: Store) -> dict[int, list[int]]:
    """Deadline -> the numbers of the peers whose entries are in its list."""
    found = {}
    async for key in store.redis.scan_iter(f"{store.keys.prefix}due:*", 1000):
        entries = await store.redis.lrange(key, 0, -1)
        numbers = [int.from_bytes(entry[8:20], "big") for entry in entries]
        found[int(key.rpartition(b":")[2])] = sorted(numbers)
    return found


async def test_announces_leave_a_peer_in_its_list(store: Store) -> None:
    await store.announce(update(1, "s"))
    first = deadline(store)
    for event in "uucp":
        store.clock.now += 600
        await store.announce(update(1, event))
        await store.announce(update(2, event, torrent=2))
    assert await lists(store) == {first: [1], due_deadline(store.clock.now + 1 - 1800, TIMEOUT): [2]}


async def test_an_active_peer_moves_to_the_list_of_its_new_timeout(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s"))
    first = deadline(store)
    store.clock.now = first
    await store.announce(update(1))  # the timeout lives for another TIMEOUT
    await store.redis.unlink(timeout_key(store.keys, 1, peer_id(2)))  # this one has ended
    assert await store.reaping.reap_due(first, 0, 64, 64) == (2, 1)
    (second,) = await lists(store)
    assert abs(second - deadline(store)) <= DUE_STEP_SECONDS
    assert await lists(store) == {second: [1]}
    assert await store.redis.get(timeout_key(store.keys, 1, peer_id(1))) == name(second)
    assert TIMEOUT - 60 < await store.redis.ttl(timeout_key(store.keys, 1, peer_id(1))) <= TIMEOUT


async def test_a_peer_that_left_and_came_back_is_in_one_list(store: Store) -> None:
    await store.announce(update(1, "s"))
    first = deadline(store)
    store.clock.now += 600
    for _ in range(3):
        await store.announce(update(1, "x"))
        await store.announce(update(1, "s"))
    second = deadline(store)
    assert await lists(store) == {first: [1], second: [1, 1, 1]}
    assert await store.reaping.reap_due(first, 0, 64, 64) == (1, 0)
    assert await lists(store) == {second: [1, 1, 1]}
    store.clock.now = second
    assert await store.reaping.reap_due(second, 0, 64, 64) == (3, 0)
    assert list((await lists(store)).values()) == [[1]]


async def test_a_list_is_processed_in_slices(store: Store) -> None:
    """The list is unchanged until the last slice is done."""
    for number in range(1, 6):
        await store.announce(update(number, "s"))
    first = deadline(store)
    store.clock.now = first
    assert await store.reaping.reap_due(first, 0, 3, 3) == (3, 0)
    assert (await lists(store))[first] == [1, 2, 3, 4, 5]
    assert await store.reaping.reap_due(first, 3, 3, 3) == (2, 0)
    ((second, numbers),) = (await lists(store)).items()
    assert second > first and numbers == [1, 2, 3, 4, 5]


async def test_a_list_is_never_later_than_the_shortest_timeout(make_store: MakeStore) -> None:
    """A long timeout is checked before it ends, because the next announce may shorten it."""
    store = await make_store(min_timeout=1000)
    await store.announce(update(1, "s", timeout_seconds=1500))
    first = deadline(store, 1000)
    assert await lists(store) == {first: [1]}
    store.clock.now += 10
    await store.announce(update(1, timeout_seconds=1000))
    store.clock.now = first
    assert await store.reaping.reap_due(first, 0, 64, 64) == (1, 0)
    (second,) = await lists(store)
    assert second <= deadline(store, 1000) and first < second


async def test_a_lost_timeout_is_recreated(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.unlink(timeout_key(store.keys, 1, peer_id(1)))
    store.clock.now += 100
    await store.announce(update(1))
    assert deadline(store) in await lists(store)
    assert await store.redis.get(timeout_key(store.keys, 1, peer_id(1))) == name(deadline(store))

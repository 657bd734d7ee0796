"""Regular announces of users: nothing of one announce reaches the next, and they do what all others do."""

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, update
from tracker.bittorrent import PeerId


async def private(make_store: MakeStore) -> Store:
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.announce(update(1, "s", passkey=ALICE))
    await store.announce(update(2, "s", passkey=BOB))
    return store


async def unreported(store: Store, user_id: str) -> int:
    return int(await store.redis.hget(store.keys.user(user_id), "unreported") or 0)


async def test_a_decrease_of_left_is_noted_with_the_user_who_reported_it(make_store: MakeStore) -> None:
    store = await private(make_store)
    store.clock.now += 1800
    await store.announce(update(2, passkey=BOB, uploaded=50))
    await store.announce(update(1, passkey=ALICE, bytes_left=400))
    assert (await unreported(store, "7"), await unreported(store, "8")) == (600, 0)


async def test_the_same_in_one_call(make_store: MakeStore) -> None:
    store = await private(make_store)
    store.clock.now += 1800
    await store.announce_together(update(2, passkey=BOB, uploaded=50), update(1, passkey=ALICE, bytes_left=400))
    assert (await unreported(store, "7"), await unreported(store, "8")) == (600, 0)


async def test_a_restarted_counter_that_stands_still_is_charged_once(make_store: MakeStore) -> None:
    store = await private(make_store)
    store.clock.now += 1800
    await store.announce(update(1, passkey=ALICE, downloaded=300, bytes_left=700))
    for left in (600, 500, 400):
        store.clock.now += 1800
        await store.announce(update(1, passkey=ALICE, downloaded=100, bytes_left=left))
    assert (await store.users.find("7")).downloaded == 400


async def test_ids_that_begin_like_the_word_client_are_told_while_a_client_is_removed(make_store: MakeStore) -> None:
    store = await make_store()
    for number, first in enumerate((0xC1, 0xE2, 0x41), 1):
        peer = PeerId(bytes([first]) + number.to_bytes(19, "big"))
        await store.announce(update(number, "s")._replace(peer_id=peer))
    await store.redis.set(f"{store.keys.prefix}removing", " client:2d5554 ")
    reply = await store.announce(update(9, "s"))
    assert len(reply.peers) == 3 * 6

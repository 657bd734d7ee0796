"""Finding a claimant's address and port in a swarm."""

import pytest

from tests.store.harness import Store, endpoint, info_hash, update
from tests.store.work.harness import add, claim_of, claimed, project
from tests.store.work.volunteers import wait
from tracker.bittorrent import Endpoint

NUMBERS_OF_SHARDS = (1, 4)
ITEM = info_hash(1).hex()


async def found(store: Store) -> int:
    claim = await claim_of(store, "proj", "ada", ITEM)
    assert claim is not None
    return claim.seen_seconds


@pytest.mark.parametrize("v6", [False, True])
async def test_each_family_is_looked_at(store: Store, v6: bool) -> None:
    await store.pass_time(0)
    await store.torrents.add(info_hash(1))
    await project(store, kind="seeding", verify="address", keep_done_days=1)
    await add(store, ITEM)
    await claimed(store, "ada", endpoint=endpoint(7, v6=v6))
    for other in (5, 6, 8):
        await store.announce(update(other, "s", bytes_left=0, endpoint=endpoint(other, v6=v6)))
    await wait(store, 120)
    assert await found(store) == 0
    await store.announce(update(7, "s", bytes_left=0, endpoint=endpoint(7, v6=v6)))
    await wait(store, 120)
    assert await found(store) == 120
    await store.announce(update(7, "x", bytes_left=0, endpoint=endpoint(7, v6=v6)))
    await wait(store, 120)
    assert await found(store) == 120


async def test_a_seeder_that_announces_no_longer_loses_its_claim(store: Store) -> None:
    """Three intervals after its last announce, while its peer is still in the swarm."""
    await store.pass_time(0)
    await store.torrents.add(info_hash(1))
    await project(store, kind="seeding", verify="address", keep_done_days=1, seed_hours=1000)
    await add(store, ITEM)
    await claimed(store, "ada", endpoint=endpoint(7))
    for event in ("s", "u", "u"):
        await store.announce(update(7, event, bytes_left=0))
        await wait(store, 1800)
    await wait(store, 3600 - 60)
    assert await found(store) > 0
    await wait(store, 120)
    assert await claim_of(store, "proj", "ada", ITEM) is None


async def test_an_endpoint_across_two_others_is_not_there(store: Store) -> None:
    """The bytes of neighbours can read like it."""
    await store.pass_time(0)
    await store.torrents.add(info_hash(1))
    await project(store, kind="seeding", verify="address", keep_done_days=1)
    await add(store, ITEM)
    for number in (1, 2):
        await store.announce(update(number, "s", bytes_left=0))
    across = Endpoint((endpoint(1) + endpoint(2))[3:9])
    await claimed(store, "ada", endpoint=across)
    await wait(store, 120)
    assert await found(store) == 0


async def test_a_long_pause_of_the_job_counts_as_ten_minutes(store: Store) -> None:
    await store.pass_time(0)
    await store.torrents.add(info_hash(1))
    await project(store, kind="seeding", verify="address", keep_done_days=1)
    await add(store, ITEM)
    await claimed(store, "ada", endpoint=endpoint(7))
    await store.announce(update(7, "s", bytes_left=0))
    await store.pass_time(3600)
    await wait(store, 60)
    assert await found(store) == 600

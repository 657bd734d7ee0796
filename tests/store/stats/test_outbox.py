"""Counts wait in the store until they are sent, each to one sender, none twice (row B12)."""

import asyncio
import random

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import START, Store
from tests.store.stats.outbox import contents, dropped, export, outbox_of
from tracker.store.stats.outbox import OutboxBatch

NUMBERS_OF_SHARDS = (1, 4)

MINUTE = START - START % 60
LATER = MINUTE + 600
LEASE = 60.0


def counts(*taken: list[OutboxBatch]) -> dict[tuple[int, str], int]:
    """All counts in ``taken``; fails for a count that was handed out twice."""
    found: dict[tuple[int, str], int] = {}
    for batch in (batch for batches in taken for batch in batches):
        for statistic, count in batch.counts.items():
            key = batch.minute, statistic.decode()
            assert key not in found, key
            found[key] = count
    return found


async def test_counts_are_taken_once_and_removed_when_sent(store: Store) -> None:
    """B12."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a b", 2), (MINUTE, "é", 1), (MINUTE + 60, "a b", 5), (MINUTE, "a b", 1))
    batches = await outbox.take(LATER, 100, LEASE)
    assert counts(batches) == {(MINUTE, "a b"): 3, (MINUTE, "é"): 1, (MINUTE + 60, "a b"): 5}
    assert await outbox.take(LATER, 100, LEASE) == []
    assert await outbox.waiting() == 3
    await outbox.acknowledge(batches)
    assert await contents(store) == {}
    assert not [key for key in await store.dump() if b"outbox" in key]
    await outbox.acknowledge(batches)
    assert await outbox.take(LATER, 100, LEASE) == []


async def test_the_current_minute_waits(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1))
    assert await outbox.take(MINUTE + 59.9, 100, LEASE) == []
    assert len(await outbox.take(MINUTE + 60, 100, LEASE)) == 1


async def test_counts_added_while_sending_stay(store: Store) -> None:
    """B12: late counts of the same minute are sent with the next batch."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2), (MINUTE, "b", 1))
    batches = await outbox.take(LATER, 100, LEASE)
    await export(store, (MINUTE, "a", 5), (MINUTE, "c", 1))
    await outbox.acknowledge(batches)
    assert await contents(store) == {MINUTE: {"a": 5, "c": 1}}
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 5, (MINUTE, "c"): 1}


async def test_an_unsent_batch_can_be_taken_again_at_once(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    await outbox.release(await outbox.take(LATER, 100, LEASE))
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 2}


async def test_a_lease_ends_and_the_late_result_is_void(store: Store) -> None:
    """B12: a failed sender loses nothing. When it returns late, it takes nothing from the next sender."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    late = await outbox.take(LATER, 100, LEASE)
    assert await outbox.take(LATER + 59, 100, LEASE) == []
    again = await outbox.take(LATER + 60, 100, LEASE)
    await export(store, (MINUTE, "a", 1))
    await outbox.acknowledge(late)
    await outbox.release(late)
    assert await outbox.take(LATER + 61, 100, LEASE) == []
    await outbox.acknowledge(again)
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_a_lease_set_by_a_clock_that_was_ahead_ends_in_time(store: Store) -> None:
    """B12: clocks a few minutes apart do not end each other's leases."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    ahead = await outbox.take(LATER + 600, 100, LEASE)
    assert await outbox.take(LATER, 100, LEASE) == []
    await outbox.release(ahead)
    await outbox.take(LATER + 86_400, 100, LEASE)
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 2}


async def test_a_late_result_counts_if_no_other_sender_took_the_batch(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    batches = await outbox.take(LATER, 100, LEASE)
    await outbox.acknowledge(batches)  # hours later by the store's clock
    assert await contents(store) == {}


async def test_a_batch_is_bounded_and_its_pages_hold_everything(store: Store) -> None:
    """The oldest counts come first, and never more than requested."""
    outbox = outbox_of(store)
    wanted = {(MINUTE + 60 * (n % 3), f"s{n}"): n + 1 for n in range(3000)}
    await export(store, *((minute, name, by) for (minute, name), by in wanted.items()))
    pages: list[list[OutboxBatch]] = []
    while page := await outbox.take(LATER, 700, LEASE):
        assert sum(len(batch.counts) for batch in page) <= 700
        pages.append(page)
        await outbox.acknowledge(page)
    assert counts(*pages) == wanted
    assert [p.minute for page in pages for p in page] == sorted(p.minute for page in pages for p in page)
    assert await contents(store) == {}


async def test_concurrent_senders_get_each_count_once(store: Store) -> None:
    """B12: several trackers on one store."""
    outbox = outbox_of(store)
    wanted = {(MINUTE + 60 * n, f"s{i}"): i for n in range(9) for i in range(1, 40)}
    await export(store, *((minute, name, by) for (minute, name), by in wanted.items()))

    async def send() -> list[OutboxBatch]:
        mine: list[OutboxBatch] = []
        while page := await outbox.take(LATER, 25, LEASE):
            await asyncio.sleep(0)
            await outbox.acknowledge(page)
            mine += page
        return mine

    assert counts(*await asyncio.gather(*(send() for _ in range(8)))) == wanted


async def test_a_full_outbox_drops_new_counts_and_records_the_number(store: Store) -> None:
    """B12: counts that already wait still grow, because this needs no more room."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(10)), max_waiting=8)
    await export(store, (MINUTE, "s9", 7), (MINUTE, "s1", 5), max_waiting=8)
    assert await dropped(store) == 2 + 7
    assert (await contents(store))[MINUTE] == {f"s{n}": 6 if n == 1 else 1 for n in range(8)}
    outbox = outbox_of(store)
    await outbox.acknowledge(await outbox.take(LATER, 3, LEASE))
    await export(store, *((MINUTE, f"t{n}", 1) for n in range(4)), max_waiting=8)
    assert await dropped(store) == 10
    assert await outbox.waiting() == 8


async def test_nothing_is_kept_without_a_receiver(store: Store) -> None:
    await export(store, (MINUTE, "a", 1), max_waiting=0)
    assert await store.dump() == {}


async def test_discarded_counts_are_recorded_as_dropped(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 4), (MINUTE, "b", 1))
    batches = await outbox.take(LATER, 1, LEASE)
    await outbox.drop(batches)
    await outbox.drop(batches)
    assert len((await contents(store))[MINUTE]) == 1
    assert await dropped(store) == sum(counts(batches).values())


async def test_large_counts_and_unusual_names_are_kept(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, b"\xff\x00 name", 2**53), (MINUTE, "t:outbox", 1))
    batches = await outbox.take(LATER, 100, LEASE)
    assert batches[0].counts == {b"\xff\x00 name": 2**53, b"t:outbox": 1}
    await outbox.acknowledge(batches)
    assert await contents(store) == {}


async def test_counts_deleted_by_another_program_are_forgotten(store: Store) -> None:
    """Also during the sending."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1), (MINUTE + 60, "b", 1), (MINUTE + 120, "c", 1))
    batches = await outbox.take(LATER, 1, LEASE)
    await store.redis.delete(f"{store.keys.prefix}outbox:{MINUTE}", f"{store.keys.prefix}outbox:{MINUTE + 60}")
    await outbox.acknowledge(batches)
    rest = await outbox.take(LATER, 9, LEASE)
    assert counts(rest) == {(MINUTE + 120, "c"): 1}
    await outbox.acknowledge(rest)
    assert await contents(store) == {}


async def test_texts_that_another_program_wrote_keep_no_count_from_being_sent(store: Store) -> None:
    """A sender that asks for one count gets a count."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2), (MINUTE, "b", 3))
    await store.redis.hset(f"{store.keys.prefix}outbox:{MINUTE}", mapping={f"text {n}": "many" for n in range(50)})
    sent: list[list[OutboxBatch]] = []
    while batches := await outbox.take(LATER, 1, LEASE):
        sent.append(batches)
        await outbox.acknowledge(batches)
    assert counts(*sent) == {(MINUTE, "a"): 2, (MINUTE, "b"): 3}
    assert await outbox.waiting() == 0


async def test_minutes_take_one_round_trip_however_many_they_are(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, *((MINUTE + 60 * number, "a", 1) for number in range(9)))
    for finish in (outbox.release, outbox.acknowledge):
        batches = await outbox.take(LATER, 100, LEASE)
        before = (await store.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
        await finish(batches)
        assert (await store.redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before == 1
    assert await contents(store) == {}


async def test_a_key_of_another_type_is_left_alone_and_loses_nothing(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1), (MINUTE + 60, "b", 2))
    batches = await outbox.take(LATER, 9, LEASE)
    await store.redis.delete(f"{store.keys.prefix}outbox:{MINUTE}")
    await store.redis.set(f"{store.keys.prefix}outbox:{MINUTE}", "mine")
    before = await store.dump()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await outbox.acknowledge(batches)
    assert await store.dump() == before
    again = await outbox.take(LATER + LEASE, 9, LEASE)
    assert counts(again) == {(MINUTE + 60, "b"): 2}
    await outbox.acknowledge(again)
    assert await store.redis.get(f"{store.keys.prefix}outbox:{MINUTE}") == b"mine"
    assert await contents(store) == {}


@pytest.mark.parametrize("seed", range(3))
async def test_every_count_is_sent_or_waits(store: Store, seed: int) -> None:
    """B12: random exports, takes, results, crashes and time."""
    rng = random.Random(seed)
    outbox = outbox_of(store)
    now, exported, sent = float(LATER), 0, 0
    held: list[list[OutboxBatch]] = []
    for _ in range(150):
        match rng.choice(("export", "export", "take", "sent", "release", "die", "wait")):
            case "export":
                by = rng.randrange(1, 9)
                await export(store, (MINUTE + 60 * rng.randrange(4), f"s{rng.randrange(30)}", by))
                exported += by
            case "take":
                held.append(await outbox.take(now, rng.randrange(1, 20), LEASE))
            case "sent" if held:
                sent += sum(counts(batches := held.pop(rng.randrange(len(held)))).values())
                await outbox.acknowledge(batches)
            case "release" if held:
                await outbox.release(held.pop(rng.randrange(len(held))))
            case "die" if held:
                held.pop(rng.randrange(len(held)))
            case "wait" if not held:
                now += rng.choice((1, LEASE))
        waiting = sum(sum(minute.values()) for minute in (await contents(store)).values())
        assert sent + waiting == exported

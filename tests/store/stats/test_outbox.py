"""Figures wait in the store until somebody has sent them, each to one sender, none twice (row B12)."""

import asyncio
import random

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import START, Store
from tests.store.outbox import contents, dropped, export, outbox_of
from tracker.store.outbox import Parcel

MINUTE = START - START % 60
LATER = MINUTE + 600
LEASE = 60.0


def counts(*taken: list[Parcel]) -> dict[tuple[int, str], int]:
    """Everything in ``taken``; a figure that was handed out twice fails."""
    found: dict[tuple[int, str], int] = {}
    for parcel in (parcel for parcels in taken for parcel in parcels):
        for statistic, count in parcel.counts.items():
            key = parcel.minute, statistic.decode()
            assert key not in found, key
            found[key] = count
    return found


async def test_what_was_counted_is_taken_once_and_is_gone_when_sent(store: Store) -> None:
    """B12."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a b", 2), (MINUTE, "é", 1), (MINUTE + 60, "a b", 5), (MINUTE, "a b", 1))
    parcels = await outbox.take(LATER, 100, LEASE)
    assert counts(parcels) == {(MINUTE, "a b"): 3, (MINUTE, "é"): 1, (MINUTE + 60, "a b"): 5}
    assert await outbox.take(LATER, 100, LEASE) == []
    assert await outbox.waiting() == 3
    await outbox.sent(parcels)
    assert await contents(store) == {}
    assert not [key for key in await store.dump() if b"outbox" in key]
    await outbox.sent(parcels)
    assert await outbox.take(LATER, 100, LEASE) == []


async def test_the_minute_that_is_not_over_waits(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1))
    assert await outbox.take(MINUTE + 59.9, 100, LEASE) == []
    assert len(await outbox.take(MINUTE + 60, 100, LEASE)) == 1


async def test_what_is_counted_while_it_is_sent_stays(store: Store) -> None:
    """B12: late increments of the same minute go out with the next batch."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2), (MINUTE, "b", 1))
    parcels = await outbox.take(LATER, 100, LEASE)
    await export(store, (MINUTE, "a", 5), (MINUTE, "c", 1))
    await outbox.sent(parcels)
    assert await contents(store) == {MINUTE: {"a": 5, "c": 1}}
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 5, (MINUTE, "c"): 1}


async def test_what_was_not_sent_can_be_taken_at_once(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    await outbox.release(await outbox.take(LATER, 100, LEASE))
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 2}


async def test_a_lease_ends_and_the_late_result_is_void(store: Store) -> None:
    """B12: a sender that died loses nothing; one that comes back late takes nothing from the next."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    late = await outbox.take(LATER, 100, LEASE)
    assert await outbox.take(LATER + 59, 100, LEASE) == []
    again = await outbox.take(LATER + 60, 100, LEASE)
    await export(store, (MINUTE, "a", 1))
    await outbox.sent(late)
    await outbox.release(late)
    assert await outbox.take(LATER + 61, 100, LEASE) == []
    await outbox.sent(again)
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_a_lease_of_a_clock_that_was_ahead_does_not_last_until_then(store: Store) -> None:
    """B12: nor do clocks a few minutes apart end each other's leases."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    ahead = await outbox.take(LATER + 600, 100, LEASE)
    assert await outbox.take(LATER, 100, LEASE) == []
    await outbox.release(ahead)
    await outbox.take(LATER + 86_400, 100, LEASE)
    assert counts(await outbox.take(LATER, 100, LEASE)) == {(MINUTE, "a"): 2}


async def test_a_late_result_counts_when_nobody_else_took_it(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 2))
    parcels = await outbox.take(LATER, 100, LEASE)
    await outbox.sent(parcels)  # hours later, for all the store knows
    assert await contents(store) == {}


async def test_a_batch_is_bounded_and_the_pages_hold_everything(store: Store) -> None:
    """Thousands of figures in few minutes: the oldest first, never more than asked for."""
    outbox = outbox_of(store)
    wanted = {(MINUTE + 60 * (n % 3), f"s{n}"): n + 1 for n in range(3000)}
    await export(store, *((minute, name, by) for (minute, name), by in wanted.items()))
    pages: list[list[Parcel]] = []
    while page := await outbox.take(LATER, 700, LEASE):
        assert sum(len(parcel.counts) for parcel in page) <= 700
        pages.append(page)
        await outbox.sent(page)
    assert counts(*pages) == wanted
    assert [p.minute for page in pages for p in page] == sorted(p.minute for page in pages for p in page)
    assert await contents(store) == {}


async def test_many_takers_get_each_figure_once(store: Store) -> None:
    """B12: several trackers on one store."""
    outbox = outbox_of(store)
    wanted = {(MINUTE + 60 * n, f"s{i}"): i for n in range(9) for i in range(1, 40)}
    await export(store, *((minute, name, by) for (minute, name), by in wanted.items()))

    async def send() -> list[Parcel]:
        mine: list[Parcel] = []
        while page := await outbox.take(LATER, 25, LEASE):
            await asyncio.sleep(0)
            await outbox.sent(page)
            mine += page
        return mine

    assert counts(*await asyncio.gather(*(send() for _ in range(8)))) == wanted


async def test_a_full_outbox_drops_what_is_new_and_counts_it(store: Store) -> None:
    """B12: what already waits goes on growing, for it takes no more room."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(10)), most=8)
    await export(store, (MINUTE, "s9", 7), (MINUTE, "s1", 5), most=8)
    assert await dropped(store) == 2 + 7
    assert (await contents(store))[MINUTE] == {f"s{n}": 6 if n == 1 else 1 for n in range(8)}
    outbox = outbox_of(store)
    await outbox.sent(await outbox.take(LATER, 3, LEASE))
    await export(store, *((MINUTE, f"t{n}", 1) for n in range(4)), most=8)
    assert await dropped(store) == 10
    assert await outbox.waiting() == 8


async def test_nothing_is_kept_when_nobody_wants_it(store: Store) -> None:
    await export(store, (MINUTE, "a", 1), most=0)
    assert await store.dump() == {}


async def test_what_is_given_up_counts_as_dropped(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 4), (MINUTE, "b", 1))
    parcels = await outbox.take(LATER, 1, LEASE)
    await outbox.drop(parcels)
    await outbox.drop(parcels)
    assert len((await contents(store))[MINUTE]) == 1
    assert await dropped(store) == sum(counts(parcels).values())


async def test_large_counts_and_odd_names_survive(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, b"\xff\x00 name", 2**53), (MINUTE, "t:outbox", 1))
    parcels = await outbox.take(LATER, 100, LEASE)
    assert parcels[0].counts == {b"\xff\x00 name": 2**53, b"t:outbox": 1}
    await outbox.sent(parcels)
    assert await contents(store) == {}


async def test_what_somebody_deleted_is_forgotten(store: Store) -> None:
    """Also while it is sent."""
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1), (MINUTE + 60, "b", 1), (MINUTE + 120, "c", 1))
    parcels = await outbox.take(LATER, 1, LEASE)
    await store.redis.delete(store.keys.outbox_minute(MINUTE), store.keys.outbox_minute(MINUTE + 60))
    await outbox.sent(parcels)
    rest = await outbox.take(LATER, 9, LEASE)
    assert counts(rest) == {(MINUTE + 120, "c"): 1}
    await outbox.sent(rest)
    assert await contents(store) == {}


async def test_a_key_of_another_kind_is_left_alone_and_loses_nothing(store: Store) -> None:
    outbox = outbox_of(store)
    await export(store, (MINUTE, "a", 1), (MINUTE + 60, "b", 2))
    parcels = await outbox.take(LATER, 9, LEASE)
    await store.redis.delete(store.keys.outbox_minute(MINUTE))
    await store.redis.set(store.keys.outbox_minute(MINUTE), "mine")
    before = await store.dump()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await outbox.sent(parcels)
    assert await store.dump() == before
    again = await outbox.take(LATER + LEASE, 9, LEASE)
    assert counts(again) == {(MINUTE + 60, "b"): 2}
    await outbox.sent(again)
    assert await store.redis.get(store.keys.outbox_minute(MINUTE)) == b"mine"
    assert await contents(store) == {}


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_each_count_is_sent_or_waits(store: Store, seed: int) -> None:
    """B12: random exports, takes, results, deaths and time."""
    rng = random.Random(seed)
    outbox = outbox_of(store)
    now, exported, sent = float(LATER), 0, 0
    held: list[list[Parcel]] = []
    for _ in range(150):
        match rng.choice(("export", "export", "take", "sent", "release", "die", "wait")):
            case "export":
                by = rng.randrange(1, 9)
                await export(store, (MINUTE + 60 * rng.randrange(4), f"s{rng.randrange(30)}", by))
                exported += by
            case "take":
                held.append(await outbox.take(now, rng.randrange(1, 20), LEASE))
            case "sent" if held:
                sent += sum(counts(parcels := held.pop(rng.randrange(len(held)))).values())
                await outbox.sent(parcels)
            case "release" if held:
                await outbox.release(held.pop(rng.randrange(len(held))))
            case "die" if held:
                held.pop(rng.randrange(len(held)))
            case "wait" if not held:
                now += rng.choice((1, LEASE))
        waiting = sum(sum(minute.values()) for minute in (await contents(store)).values())
        assert sent + waiting == exported

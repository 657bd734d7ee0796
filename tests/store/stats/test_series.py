"""Reading the counters (rows C2, C8, C10, T20)."""

import pytest

from tests.store.harness import START, Store, update
from tracker.store.stats import counters
from tracker.store.stats.slices import PRECISIONS, RETAINED, Distribution


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_slices_are_sorted_and_old_ones_hidden(store: Store, precision: int) -> None:
    """C2: even before a cleanup."""
    now = start = START - START % precision
    store.clock.now = now + precision - 0.5
    ages = (0, 1, RETAINED - 1, RETAINED, RETAINED + 1, 9 * RETAINED)
    for age in ages:
        store.counters.count("n", by=age + 1, at=now - age * precision)
    await store.counters.flush()
    shown = [(start - age * precision, age + 1) for age in (RETAINED - 1, 1, 0)]
    assert await store.counters.series("n", precision) == shown
    assert await store.redis.hlen(store.keys.counter(precision, "n")) == len(ages)
    store.clock.now += 0.5
    assert await store.counters.series("n", precision) == shown[1:]


async def test_zeros_fill_empty_slices(store: Store) -> None:
    """C2: up to the current slice; a slice in the future is shown too."""
    for at, by in ((START - 5, 7), (START, 9), (START + 60, 11)):
        store.counters.count("n", at=at, by=by)
    await store.counters.flush()
    assert await store.counters.series("n", 1, first=START - 6, fill=True) == [
        (START - 6, 0),
        (START - 5, 7),
        (START - 4, 0),
        (START - 3, 0),
        (START - 2, 0),
        (START - 1, 0),
        (START, 9),
        (START + 60, 11),
    ]
    every = await store.counters.series("n", 1, fill=True)
    assert len(every) == RETAINED + 1 and sum(number for _, number in every) == 27
    assert [number for _, number in await store.counters.series("none", 60, fill=True)] == [0] * RETAINED
    assert len(await store.counters.series("none", 1, first=-(10**9), last=10**12, fill=True)) == RETAINED


async def test_a_period_is_read(store: Store) -> None:
    """``first`` and ``last`` are times within the first and last slice."""
    for age in range(5):
        store.counters.count("n", at=START - 60 * age)
        store.counters.observe("d", age, at=START - 60 * age)
    await store.counters.flush()
    stretch = (START - 150.5, START - 60.0)
    starts = [START - 180, START - 120, START - 60]
    assert [start for start, _ in await store.counters.series("n", 60, *stretch)] == starts
    assert await store.counters.series("n", 60, *stretch) == await store.counters.series("n", 60, *stretch, True)
    slices, total = await store.counters.distribution("d", 60, *stretch)
    assert [start for start, _ in slices] == starts
    assert total is not None and (total.count, total.min, total.max, total.mean) == (3, 1, 3, 2)
    assert await store.counters.series("n", 60, START + 1000) == []


async def test_old_distributions_are_hidden_too(store: Store) -> None:
    """C2, C10: when no slice remains, there is no distribution."""
    store.counters.observe("d", 1)
    await store.counters.flush()
    assert (await store.counters.distribution("d", 1))[0] == [(START, Distribution(1, 1, 0, 1, 1))]
    store.clock.now += RETAINED
    assert await store.counters.distribution("d", 1) == ([], None)
    assert await store.counters.distribution("none", 60) == ([], None)


async def test_values_of_other_programs_among_the_slices_are_left_out(store: Store) -> None:
    """C2: fields that are no time, values that are no number."""
    store.counters.count("n")
    store.counters.observe("d", 1)
    await store.counters.flush()
    for key in (store.keys.counter(60, "n"), store.keys.distribution(60, "d")):
        await store.redis.hset(key, mapping={"abc": "1", f"{START - 60}": "x", f"{START - 120}": "1 2"})
    assert [number for _, number in await store.counters.series("n", 60)] == [1]
    slices, total = await store.counters.distribution("d", 60)
    assert [distribution for _, distribution in slices] == [total] == [Distribution(1, 1, 0, 1, 1)]


@pytest.mark.parametrize("precision", [0, -1, 2, 59, 61])
async def test_an_unknown_precision_is_refused(store: Store, precision: int) -> None:
    with pytest.raises(ValueError, match="no slices"):
        await store.counters.series("n", precision)
    with pytest.raises(ValueError, match="no slices"):
        await store.counters.distribution("n", precision)


async def test_names_are_found_by_pattern(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: page by page, with any characters."""
    monkeypatch.setattr(counters, "_PAGE", 3)
    series = store.counters
    names = ["announces", "announces.v4", "failures.denied", "failures.not: here", "Z"]
    store.counters.count(*names)
    store.counters.observe("seconds", 1)
    await store.counters.flush()
    assert await series.names() == sorted(names)
    assert await series.names("failures.*") == names[2:4]
    assert await series.names("announces") == ["announces"]
    assert await series.names("z") == []
    assert await series.distribution_names("s*") == ["seconds"]


async def test_all_totals_are_read(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", bytes_left=0))
    store.counters.count("repairs", by=2)
    store.counters.count("failures.denied", by=3)
    await store.counters.flush()
    assert await store.counters.totals() == {
        "seeders": 1,
        "leechers": 1,
        "announces": 0,
        "scrapes": 0,
        "requests": 0,
        "reaped": 0,
        "repairs": 2,
        "forgotten": 0,
        "credit_cut": 0,
        "tally_dropped": 0,
        "outbox_dropped": 0,
        "software_dropped": 0,
        "unique_skipped": 0,
    }
    assert await store.counters.failures() == {"denied": 3}


@pytest.mark.parametrize("written", ["", "-1", "1.5", "many", "٣", "\x00", "9" * 5000])
async def test_an_invalid_total_reads_as_zero(store: Store, written: str) -> None:
    """A site may have written it; the totals beside it are read."""
    await store.redis.set(store.keys.stat("reaped"), written)
    await store.redis.set(store.keys.stat("repairs"), "2")
    await store.redis.hset(store.keys.failures(), mapping={"denied": written, b"\xff": "3"})
    await store.redis.hset(store.keys.counter(60, "n"), mapping={str(START): "4", written: "5"})
    totals = await store.counters.totals()
    assert (totals["reaped"], totals["repairs"]) == (0, 2)
    assert await store.counters.failures() == {"denied": 0, "\ufffd": 3}
    assert await store.counters.series("n", 60) == [(START, 4)]

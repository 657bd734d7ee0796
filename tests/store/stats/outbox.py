"""Writes counts into the outbox through the same fragment as the counting scripts."""

from tests.store.harness import Store
from tracker.store.client.scripts import Script, source
from tracker.store.stats.outbox import Outbox

_EXPORT = (
    "#!lua\nlocal P, call, max_waiting = KEYS[1], redis.call, tonumber(ARGV[1])\n"
    + source("outbox")
    + "for i = 2, #ARGV, 3 do export(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end\n"
)


async def export(store: Store, *figures: tuple[int, str | bytes, int], max_waiting: int = 100_000) -> None:
    """``figures`` are (minute, statistic, count); ``most`` is the maximum that may wait."""
    argv = [part for figure in figures for part in figure]
    await Script(store.connection.command, store.keys.prefix, _EXPORT)([max_waiting, *argv])


def outbox_of(store: Store) -> Outbox:
    return Outbox(store.shards)


async def dropped(store: Store) -> int:
    return int(await store.redis.get(store.keys.stat("outbox_dropped")) or 0)


async def contents(store: Store) -> dict[int, dict[str, int]]:
    """The waiting counts by minute; checks that their number and the list of minutes agree with them."""
    minutes = [int(m) for m in await store.redis.zrange(f"{store.keys.prefix}outbox", 0, -1)]
    found = {
        minute: {
            statistic.decode("utf-8", "replace"): int(count)
            for statistic, count in (await store.redis.hgetall(f"{store.keys.prefix}outbox:{minute}")).items()
        }
        for minute in minutes
    }
    assert await outbox_of(store).waiting() == sum(map(len, found.values()))
    assert all(found.values()), "a minute without figures"
    return found

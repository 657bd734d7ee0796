"""The cost of a run of the work policy in the store, by the processor time of its main thread.

Of the torrents below the target, six of ten have no peer and no user who completed them, two have no seeder but a
leecher or completers, and two have one or two seeders and a history of three days. Measured are the first runs of a
project, and those of the hour after the policy has enqueued as many as it may. The exit status is 1 if a run costs
more than a second, or a call more than a millisecond on average.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from loadtest.bench.sections import Section
from loadtest.servers import start_valkey
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store
from tracker.store.work.policy import Policy
from tracker.store.work.projects import Projects
from tracker.store.work.records import Project
from tracker.workers.work import WorkPolicy

_PREFIX, _STEP = "t:", 1000
_RUNS_AN_HOUR = 6
_POPULATE = """
local P, call, now, points = KEYS[1], redis.call, tonumber(ARGV[3]), {}
for i = 1, 72 do points[i] = string.format('%d %d 0 9 0.5', now - (73 - i) * 3600, i % 3) end
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local ih, kind = string.format('%040x', n), n % 10
  local seeders, leechers = kind >= 8 and kind - 7 or 0, kind == 6 and 1 or 0
  call('SET', P .. 'info_hash:' .. ih, n)
  call('SET', P .. 'torrent_id:' .. n, ih)
  call('HSET', P .. 't:' .. ih, 'tid', n, 'seeders', seeders, 'leechers', leechers, 'snatches', 9, 'size', 2 ^ 30)
  call('ZADD', P .. 'i:seeders', seeders, n)
  call('ZADD', P .. 'i:leechers', leechers, n)
  if kind >= 8 then
    call('RPUSH', P .. 'history:' .. n, unpack(points))
    call('ZADD', P .. 'i:score', 0.5, n)
  elseif kind >= 6 then
    call('RPUSH', P .. 'history:' .. n, now - 200000 .. ' 0 0 9 0')
    if kind == 7 then call('ZADD', P .. 'completed:' .. n, now, 7) end
  end
end
call('ZADD', P .. 'users', 7, 'a passkey of user 7')
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torrents", type=int, default=1_000_000, help="torrents below the target (1,000,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="policy-") as directory:
        server = start_valkey(Path(directory), "--appendonly", "no")
        try:
            section = asyncio.run(measure(server.url, options.torrents))
        finally:
            server.stop()
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


async def measure(url: str, torrents: int) -> Section:
    section = Section(f"Work policy with {torrents:,} torrents below the target")
    store = Store(Connection(connect(url, connect_timeout=60, timeout=60)), _PREFIX)
    try:
        command = store.connection.command
        for first in range(1, torrents + 1, _STEP):
            last = min(torrents, first + _STEP - 1)
            await command("EVAL", _POPULATE, 1, _PREFIX, first, last, int(time.time()))
        await store.work.projects.create(
            Project("seeds", kind="seeding", keep_done_days=7, verify="announce", order="weakest")
        )
        began = await number(store, "memory", "used_memory")
        await measure_runs(store, section, "the first runs", WorkPolicy(*parts_of(store), no_pause))
        unlimited = WorkPolicy(*parts_of(store), no_pause, max_cost=1000 * torrents, max_enqueued=torrents)
        for _ in range(2):  # the first goes on where the runs before stopped
            await unlimited.handle({})
        await measure_runs(store, section, "a full policy", WorkPolicy(*parts_of(store), no_pause))
        section.find("items of the policy", await store.connection.command("HLEN", store.keys.work_policy("seeds")), "")
        section.find("memory for them", (await number(store, "memory", "used_memory") - began) / 2**20, "MiB")
    finally:
        await store.connection.close()
    return section


async def measure_runs(store: Store, section: Section, when: str, policy: WorkPolicy) -> None:
    """An hour of runs."""
    worst, total, calls, changes, looked_at = 0.0, 0.0, await round_trips(store), 0, 0
    for _ in range(_RUNS_AN_HOUR):
        project = await store.work.projects.get("seeds")
        count, at = (
            await store.work.policy.states.weak_count(project),
            await store.work.policy.stored_position("seeds"),
        )
        before = await seconds(store)
        changes += len([change async for change in policy.changes(project)])
        spent = await seconds(store) - before
        worst, total = max(worst, spent), total + spent
        looked_at += (await store.work.policy.stored_position("seeds")).rank - at.rank % count
    calls = await round_trips(store) - calls
    section.find(f"{when}: the most expensive", worst, "s", 1.0)
    section.find(f"{when}: a call, on average", 1000 * total / calls, "ms", 1.0)
    section.find(f"{when}: torrents looked at", looked_at, f"in {_RUNS_AN_HOUR} runs")
    section.find(f"{when}: changes", changes, f"in {_RUNS_AN_HOUR} runs")


def parts_of(store: Store) -> tuple[Projects, Policy, Callable[[], float]]:
    return store.work.projects, store.work.policy, random.Random(1).random


async def no_pause(_: float) -> None:
    """No other program uses this store."""


async def seconds(store: Store) -> float:
    """Processor time of the store's main thread so far. Other programs on this machine do not count."""
    fields = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    return sum([await number(store, "cpu", field) for field in fields])


async def round_trips(store: Store) -> float:
    """Calls to the store so far: it serves no other client between the commands of a call."""
    return await number(store, "stats", "total_reads_processed")


async def number(store: Store, section: str, field: str) -> float:
    text = (await store.connection.command("INFO", section)).decode()
    return float(text.split(f"{field}:")[1].split()[0])


if __name__ == "__main__":
    main()

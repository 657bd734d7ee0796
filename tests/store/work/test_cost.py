"""Limits on the commands of a claim and of a finished item. They are counted, so the machine's load does not matter.

Each limit is just above the current count. A change that makes something cheaper lowers its limit. A change that needs
a higher limit states the reason.
"""

from collections.abc import Awaitable
from typing import Any

import pytest

from tests.store.harness import Store
from tests.store.work.harness import add, claimed, project, register

pytestmark = pytest.mark.serial

CALLS = 20
COMMANDS = {
    # the project, blocks and the claimant's own queue, outages and the rate, ended leases, the claimant's claims (and
    # trust, if it has any), a queue, copies, holders, two types; written: the last token, the lease, its token, the
    # queue, the claim, the claimant's item, its holder, the rate, the total
    "claim, items": 19.1,
    # also: whether the torrent is served, the account, own, finished and lapsed claims; copies, what is to be checked
    "claim, seeding": 28.1,
    # leaderboards, charts and sums are updated from the log, every ten seconds
    "done, items": 19.9,
    "done, seeding": 22.9,
}
"""Maximum commands of the store for each call, without the script call itself."""


async def commands_of(store: Store, call: Awaitable[Any]) -> int:
    async def so_far() -> int:
        statistics = await store.redis.info("commandstats")
        return sum(row["calls"] for name, row in statistics.items() if name not in ("cmdstat_evalsha", "cmdstat_info"))

    before = await so_far()
    await call
    return await so_far() - before


@pytest.mark.parametrize("kind", ["items", "seeding"])
async def test_claims_and_finished_items_take_few_commands(store: Store, kind: str) -> None:
    verify, domains = ("announce", ()) if kind == "seeding" else ("none", ("data",))
    await project(store, kind=kind, verify=verify, domains=domains, keep_done_days=1, per_minute=10**6)
    names = [f"{number:040x}" for number in range(3 * CALLS)]
    await register(store, *names)
    await add(store, *names)
    who, found = ("7" if kind == "seeding" else "alice"), dict.fromkeys(("claim", "done"), 0.0)
    await finish(store, who, kind, (await claimed(store, who)).item)
    for _ in range(CALLS):
        before = await store.work.claims.of_claimant("proj", who)
        found["claim"] += await commands_of(store, claimed(store, who, version="1")) / CALLS
        [claim] = [each for each in await store.work.claims.of_claimant("proj", who) if each not in before]
        found["done"] += await commands_of(store, finish(store, who, kind, claim.item)) / CALLS
    assert {f"{what}, {kind}": n for what, n in found.items() if n > COMMANDS[f"{what}, {kind}"]} == {}


async def finish(store: Store, who: str, kind: str, item: str) -> None:
    claims = store.work.claims
    if kind == "seeding":
        done = await claims.complete("proj", who, item, seconds=86_400, uploaded=10**9)
    else:
        done = await claims.done("proj", who, item, version="1", reported={"data": 5})
    assert done.counted

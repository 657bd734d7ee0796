"""Volunteers under test: users 7 and 8 announce to a project that verifies, while its job runs."""

from typing import Any

from tests.store.harness import ALICE, BOB, Store, info_hash, update
from tests.store.work.harness import add, claim_of, project
from tracker.store.swarms.codec import Admitted
from tracker.store.work.records import Project
from tracker.workers.work import VERIFY_EVERY_SECONDS, WorkVerification

ITEM = info_hash(1).hex()
INTERVAL = 1800
"""Announce interval (s): a quarter of the gap that the rules of the store `private` allow."""
SELDOM = 600
"""The job looks at each claim at least this often (s)."""
PASSKEYS = {"7": ALICE, "8": BOB, "": ""}


async def seeding_project(store: Store, **fields: Any) -> Project:
    """A project with an item: torrent 1, which has a leecher without a user here."""
    await store.pass_time(0)
    await store.torrents.add(info_hash(1))
    values: dict[str, Any] = {"kind": "seeding", "verify": "announce", "keep_done_days": 30, "seed_hours": 2}
    made = await project(store, **(values | fields))
    await add(store, ITEM)
    return made


async def announce(store: Store, user: str = "7", peer: int = 1, event: str = "u", **changes: Any) -> Admitted:
    """An announce of a user's peer, which is a seeder unless ``changes`` say something else."""
    return await store.announce(update(peer, event, passkey=PASSKEYS[user], **{"bytes_left": 0, **changes}))


async def verify(store: Store) -> None:
    """The job runs once, and so does the one that ends leases."""
    await WorkVerification(store).handle()
    await store.work.claims.lapse("proj")


async def wait(store: Store, seconds: float, every: float | None = None) -> None:
    """Time passes, and the jobs run so often; by default every minute, but where much time passes only every ten
    minutes between its first minute and its last ten."""
    seldom = max(0, int(seconds) - VERIFY_EVERY_SECONDS - SELDOM) // SELDOM
    rounds = [VERIFY_EVERY_SECONDS] * (int(seconds - seldom * SELDOM) // VERIFY_EVERY_SECONDS)
    rounds[1:1] = [SELDOM] * seldom
    for passed in rounds if every is None else [every] * int(seconds // every):
        await store.pass_time(passed)
        await verify(store)


async def seed(store: Store, intervals: int, user: str = "7", peer: int = 1, **changes: Any) -> None:
    """The peer is there for so many intervals, and announces after each."""
    for _ in range(intervals):
        await wait(store, INTERVAL)
        await announce(store, user, peer, **changes)
    await wait(store, VERIFY_EVERY_SECONDS)


async def state(store: Store, user: str = "7") -> str:
    """The state of the user's claim; ``done`` or ``gone`` without one."""
    claim = await claim_of(store, "proj", user, ITEM)
    if claim is not None:
        return claim.state
    return "done" if await store.redis.zscore(store.keys.work_done("proj"), ITEM) else "gone"

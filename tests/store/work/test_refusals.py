"""Who gets no item, and what is refused (rows W2, W8 to W10, W18, W19)."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.store.harness import START, Store
from tests.store.work.harness import add, check_sums, check_work, claimed, project, rank, refusal, register
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.store.work.items import Items
from tracker.store.work.records import Added, Claim, NewItem, Refusal


async def test_adding_twice_adds_once(store: Store) -> None:
    """W18."""
    await project(store)
    items = [NewItem("a"), NewItem("b", claimants=("alice",)), NewItem("a")]
    assert await store.work.items.add("proj", items) == Added(3, 2)
    assert await store.work.items.add("proj", items) == Added(3, 0)
    await claimed(store, "alice")
    assert await store.work.items.add("proj", items, again=True) == Added(3, 0)
    await store.work.claims.done("proj", "alice", "b")
    assert await store.work.items.add("proj", items) == Added(3, 0)
    assert await store.work.items.add("proj", items, again=True) == Added(3, 1)
    assert (await check_work(store)).added == 3


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", " a", "a\x7f", "\ud800", "a\u2028"])
async def test_an_invalid_item_adds_nothing(store: Store, name: str) -> None:
    await project(store)
    with pytest.raises(ClientError, match="item"):
        await add(store, "good", name)
    assert "added" not in (await store.work.statistics.read(["proj"]))[0].totals


@pytest.mark.parametrize("name", ["", "a b", "x" * 31, "a:b", "a\n", "é"])
async def test_an_impossible_claimant_is_an_error(store: Store, name: str) -> None:
    await project(store)
    for call in (store.work.claims.claim("proj", name), store.work.claims.done("proj", name, "a")):
        with pytest.raises(ClientError, match="claimant"):
            await call


async def test_queues_come_in_order_and_places_within_them(store: Store) -> None:
    """W2."""
    await project(store, order="weakest", start_budget=9)
    for name, place, options in (
        ("redo", 0, {"queue": "redo"}),
        ("late", 1, {"queue": "secondary"}),
        ("weak", 2, {}),
        ("weakest", 1, {}),
        ("own", 5, {"claimants": ("alice",)}),
    ):
        await add(store, name, place=place, **options)
    assert [(await claimed(store, "alice")).item for _ in range(5)] == ["own", "weakest", "weak", "late", "redo"]
    assert await refusal(store, "alice") == Refusal("empty")


@pytest.mark.slow
async def test_every_order_is_equally_likely(store: Store) -> None:
    """W2. 600 times three items: each of the six orders comes 100 times, give or take four deviations."""
    await project(store, "random", start_budget=2000, budget=2000)
    chance = random.Random(7).random
    items = Items(store.shards.main, store.work.projects, chance)
    orders: Counter[str] = Counter()
    for number in range(600):
        await items.add("random", [NewItem(f"{number}{letter}", place=1.0) for letter in "abc"])
        orders["".join([(await claimed(store, "alice", "random")).item[-1] for _ in range(3)])] += 1
    assert len(orders) == 6 and max(abs(times - 100) for times in orders.values()) < 4 * 9.2


async def test_versions_are_compared_as_text(store: Store) -> None:
    """W19."""
    await project(store, min_version="20260101.02", start_budget=20)
    await add(store, *"abcdefg")
    for version in ("20260101.01", "20260101", "", "1", "020260101.1.9", "100000000000000000000000"):
        assert await refusal(store, "alice", version=version) == Refusal("outdated", min_version="20260101.02")
    for version in ("20260101.02", "20260101.10", "20260101.02.0", "9", "20260102", "x", "\xe9"):
        await claimed(store, "alice", version=version)


@pytest.mark.parametrize("limit", [1, 2, 7, 10, 60, 600])
@pytest.mark.slow
async def test_the_rate_never_exceeds_its_limit(store: Store, limit: int) -> None:
    """W9, for five minutes of simulated time."""
    await project(store, per_minute=limit, start_budget=10**6, budget=10**6)
    await add(store, *(f"item {number}" for number in range(5 * limit + 50)))
    await store.reaping.heartbeat()
    granted: list[float] = []
    chance = random.Random(limit)
    while store.clock.now < START + 300:
        reply = await store.work.claims.claim("proj", "alice")
        if isinstance(reply, Claim):
            granted.append(store.clock.now)
            continue
        assert reply.reason == "rate" and 0 < reply.retry_seconds <= 61
        wait = reply.retry_seconds if chance.random() < 0.8 else chance.random() * 30 / limit
        await store.pass_time(wait)
    for first in range(len(granted) - limit):
        assert granted[first + limit] - granted[first] >= 60
    assert len(granted) >= 0.8 * 5 * limit


async def test_a_claim_that_finds_nothing_costs_no_rate(store: Store) -> None:
    await project(store, per_minute=1)
    for _ in range(5):
        assert await refusal(store, "alice") == Refusal("empty")
    await add(store, "a", "b")
    await claimed(store, "alice")
    assert (await refusal(store, "alice")).reason == "rate"


async def test_a_refusal_changes_nothing(store: Store) -> None:
    await project(store, min_version="2", start_budget=1, passkeys=True)
    await add(store, "a", "b")
    await store.work.blocks.block("mallory", "proj")
    await claimed(store, "alice", version="2")
    before = await store.dump()
    assert (await refusal(store, "alice", version="2")).reason == "budget"
    assert (await refusal(store, "bob", version="1")).reason == "outdated"
    assert (await refusal(store, "mallory", version="2")).reason == "blocked"
    for token in ("", "1-1"):
        assert (await store.work.claims.done("proj", "bob", "a", token=token)).outcome == "stranger"
        assert (await store.work.claims.done("proj", "bob", "none", token=token)).outcome == "unknown"
    assert await store.dump() == before


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("who", ["alice", "192.0.2.1", "2001:db8:0:1::/64", "2001:DB8:0:1:0::9"])
async def test_the_blocked_get_nothing_until_unblocked(store: Store, who: str, everywhere: bool) -> None:
    """W10."""
    address = "2001:db8:0:1::9" if ":" in who else "192.0.2.1"
    await project(store)
    await add(store, "a", "b")
    claim = await claimed(store, "alice", address=address)
    where = None if everywhere else "proj"
    assert await store.work.blocks.block(who, where)
    assert not await store.work.blocks.block(who, where)
    before = await store.dump()
    claims, token = store.work.claims, claim.token
    assert await refusal(store, "alice", address=address) == Refusal("blocked")
    assert (await claims.done("proj", "alice", claim.item, token=token, address=address)).outcome == "blocked"
    assert not await claims.release("proj", "alice", claim.item, token=token, address=address)
    assert await claims.extend("proj", "alice", claim.item, token, address=address) is None
    assert await store.dump() == before
    assert len(await store.work.blocks.all(where)) == 1
    assert await store.work.blocks.unblock(who, where)
    assert (await claims.done("proj", "alice", claim.item, token=token, address=address)).counted
    whats = [event.what for event in await store.work.blocks.log("proj")]
    assert whats == ([] if everywhere else ["unblocked", "blocked"])


@pytest.mark.parametrize("who", ["a b", "192.0.2.0/24", "2001:db8::/48", "1.2.3", ":", ""])
async def test_what_cannot_be_blocked_is_an_error(store: Store, who: str) -> None:
    with pytest.raises(ClientError):
        await store.work.blocks.block(who)


@pytest.mark.parametrize("blocks", [False, True])
async def test_wrong_domains_release_the_item(store: Store, blocks: bool) -> None:
    """W8: the sender is blocked only where the project says so."""
    await project(store, domains=("data", "more"), block_wrong_domains=blocks)
    await store.pass_time(0)
    await add(store, "a")
    for wrong in ({"data": 1}, {}, {"data": 1, "more": 2, "x": 3}):
        if blocks:
            await store.work.blocks.unblock("192.0.2.1", "proj")
        claim = await claimed(store, "alice", address="192.0.2.1")
        result = await store.work.claims.done("proj", "alice", "a", address="192.0.2.1", reported=wrong)
        assert result.outcome == "domains"
        await store.pass_time(60)
        assert (await store.work.items.status("proj", claim.item)).status == "todo"
    assert await store.work.blocks.all("proj") == (["192.0.2.1"] if blocks else [])
    events = [event for event in await store.work.blocks.log("proj") if event.what == "wrong domains"]
    assert [event.who for event in events] == ["alice"] * 3
    await claimed(store, "bob")
    assert (await store.work.claims.done("proj", "bob", "a", reported={"more": 2, "data": 0})).counted
    await check_work(store)
    await check_sums(store)


async def test_large_items_are_passed_over(store: Store) -> None:
    """The first 50 of a queue are looked at."""
    await project(store, "seed", kind="seeding", verify="announce", keep_done_days=1, order="weakest")
    hashes = [f"{number:040x}" for number in range(60)]
    for number, item in enumerate(hashes):
        await store.torrents.add(InfoHash(bytes.fromhex(item)), {"size": str(1000 - number)})
        await store.work.items.add("seed", [NewItem(item, place=float(number))])
    account = store.keys.user_torrent("7", "41")
    await store.redis.hset(account, mapping={"seed_time": 77, "uploaded": 2**53 - 1})
    assert await refusal(store, "7", "seed", free_bytes=949) == Refusal("empty")
    claim = await claimed(store, "7", "seed", free_bytes=960)
    assert (claim.item, claim.seed_time, claim.uploaded) == (hashes[40], 77, 2**53 - 1)


async def test_a_torrent_that_the_tracker_does_not_serve_is_not_given_out(store: Store) -> None:
    """A claimant who got it could only let the claim lapse. Many of them do not hide the rest of the queue."""
    await project(store, kind="seeding", keep_done_days=1, order="weakest")
    served, denied, disabled, pending, *gone = names = [f"{number:040x}" for number in range(60)]
    await register(store, served, denied, disabled, pending)
    for place, name in enumerate(reversed(names)):
        await add(store, name, place=place)
    await store.torrents.deny(InfoHash(bytes.fromhex(denied)), "")
    await store.torrents.edit(InfoHash(bytes.fromhex(disabled)), {"enabled": "0"})
    await store.torrents.edit(InfoHash(bytes.fromhex(pending)), {"enabled": "pending"})
    assert (await claimed(store, "7")).item == served
    assert await refusal(store, "7") == Refusal("empty")
    await register(store, gone[0])
    assert (await claimed(store, "7")).item == gone[0]


async def test_what_claimants_may_add_to_a_project_is_bounded(store: Store) -> None:
    await project(store, budget=500, start_budget=500)
    await add(store, *(f"item{number}" for number in range(12)))
    for first in range(12):
        claim = await claimed(store, "alice")
        domains = {f"domain{10 * first + number}": 1 for number in range(10)}
        sent: dict[str, Any] = {"version": "1" * 9999, "user_agent": "\udcff" * 9999, "id_text": "x" * 9999}
        assert (await store.work.claims.done("proj", "alice", claim.item, reported=domains, **sent)).counted
    await rank(store)
    assert len(await store.work.statistics.domain_bytes("proj")) == 100
    (entry,) = await store.work.log.newest("proj", 1)
    assert len(str(entry)) < 2000


@pytest.mark.parametrize("names", [range(21), ["x" * 65], [""], ["a\nb"], ["\ud800"]])
async def test_a_report_of_impossible_domains_is_an_error(store: Store, names: Iterable[object]) -> None:
    await project(store)
    await add(store, "a")
    await claimed(store, "alice")
    with pytest.raises(ClientError, match="domains"):
        await store.work.claims.done("proj", "alice", "a", reported={str(name): 1 for name in names})
    with pytest.raises(ClientError, match="domains"):
        await store.work.projects.edit("proj", {"domains": tuple(map(str, names))})


async def test_domains_of_a_project_differ(store: Store) -> None:
    """Otherwise no report would match them."""
    with pytest.raises(ClientError, match="different"):
        await project(store, domains=("data", "data"))


async def test_a_claim_verified_with_impossible_bytes_still_counts(store: Store) -> None:
    """A site may have written the account. Other claims would wait behind it."""
    await project(store, kind="seeding", verify="announce", keep_done_days=1)
    await register(store, "1" * 40)
    await add(store, "1" * 40)
    await claimed(store, "7")
    assert (await store.work.claims.complete("proj", "7", "1" * 40, seconds=1, uploaded=2**60)).counted


async def test_who_claims_and_gives_back_in_a_loop_leaves_the_rate_to_others(store: Store) -> None:
    """Claims that were given back count in the budget, one less each minute."""
    await store.pass_time(0)
    await project(store, per_minute=120, start_budget=3, budget=3)
    await add(store, *"abcdef")
    granted, waits = 0, list[float]()
    for _ in range(600):
        reply = await store.work.claims.claim("proj", "mallory")
        if isinstance(reply, Claim):
            granted += 1
            assert await store.work.claims.release("proj", "mallory", reply.item, token=reply.token)
        else:
            assert reply.reason == "rate"
            waits.append(reply.retry_seconds)
            assert isinstance(await store.work.claims.claim("proj", "alice"), Claim)
            assert await store.work.claims.release_all("proj", claimant="alice") == 1
        await store.pass_time(1)
    assert granted <= 3 + 600 / 60
    assert min(waits) > 0 and max(waits) <= 60


async def test_claims_given_back_and_claims_held_share_the_budget(store: Store) -> None:
    await store.pass_time(0)
    await project(store, start_budget=3, budget=3)
    await add(store, *"abcdef")
    first = await claimed(store, "alice")
    await claimed(store, "alice")
    await store.work.claims.release("proj", "alice", first.item)
    await claimed(store, "alice")  # one given back, two held
    await store.work.claims.release_all("proj", claimant="alice")  # an admin's
    assert (await claimed(store, "alice")).claimant == "alice"
    await claimed(store, "alice")
    reply = await refusal(store, "alice")
    assert reply == Refusal("rate", retry_seconds=60)
    await store.pass_time(59.5)
    assert (await refusal(store, "alice")).retry_seconds == 0.5
    await store.pass_time(0.5)
    await claimed(store, "alice")
    assert (await refusal(store, "alice")).reason == "budget"
    await claimed(store, "bob")
    await store.pass_time(1)
    await store.work.claims.lapse("proj")
    assert not await store.redis.exists(f"{store.keys.prefix}w:proj:released")


async def test_a_time_of_a_wrong_clock_does_not_count(store: Store) -> None:
    await store.pass_time(0)
    await project(store, start_budget=1)
    await add(store, "a")
    await store.redis.zadd(f"{store.keys.prefix}w:proj:released", {"alice": 1e300})
    for seconds in (0, 60):
        await store.pass_time(seconds)
        await claimed(store, "alice")
        await store.work.claims.release("proj", "alice", "a")
    assert await refusal(store, "alice") == Refusal("rate", retry_seconds=60)


async def test_many_claims_given_back_count_for_an_hour_at_most(store: Store) -> None:
    await store.pass_time(0)
    await project(store, start_budget=80, budget=80)
    await add(store, *map(str, range(80)))
    claims = [await claimed(store, "alice") for _ in range(80)]
    for claim in claims:
        assert await store.work.claims.release("proj", "alice", claim.item)
    until = await store.redis.zscore(f"{store.keys.prefix}w:proj:released", "alice")
    assert until == 1000 * (store.clock.now + 3600)

"""Four shards on a real cluster of three: T19, slots that move and nodes that fail under announces."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count

import pytest
from hypothesis.stateful import run_state_machine_as_test

from loadtest.cluster import Cluster, Node, cluster
from loadtest.invariants import check_invariants
from tests.examples import examples
from tests.store.client.test_cluster import PATIENCE_SECONDS, store_at, until_replicated
from tests.store.harness import ALICE, Store, update
from tests.store.sharding.harness import SHARDS, hash_in, on_cluster
from tests.store.sharding.test_state_machine import ShardedMachine
from tests.store.sharding.test_work import check_claims, seeding
from tests.store.work.harness import claimed, refusal
from tests.waiting import eventually
from tracker.bittorrent import Accounts
from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import Keys, shard_prefixes
from tracker.store.store import Store as PlainStore
from tracker.store.swarms.codec import Admitted
from tracker.store.swarms.rules import SwarmRules

PREFIX = "c:"
PREFIXES = shard_prefixes(PREFIX, SHARDS)


@pytest.fixture(scope="module")
def group() -> Iterator[Cluster]:
    """Nodes that no test stops. Each test has a prefix of its own."""
    with cluster() as group:
        yield group


class ClusterMachine(ShardedMachine):
    def opened(self, rules: SwarmRules) -> AbstractAsyncContextManager[Store]:
        return on_cluster(self.redis_url, self.keys, rules)


@pytest.mark.long
@pytest.mark.parametrize("accounts", ["off", "required"])
def test_swarms_on_a_cluster_agree_with_the_model(group: Cluster, accounts: Accounts) -> None:
    """T19: per shard, at each quiet moment."""
    machine = type("Machine", (ClusterMachine,), {"redis_url": group.url, "accounts": accounts})
    run_state_machine_as_test(machine, settings=examples(10, stateful_step_count=30))


class Joining:
    """Peers join torrents of all shards, until told to stop. Notes which joins were answered."""

    def __init__(self, store: PlainStore, torrents: int = 40) -> None:
        self._store = store
        self._stop = asyncio.Event()
        self.hashes = [hash_in(number % SHARDS, number) for number in range(torrents)]
        self.answered: set[tuple[int, int]] = set()
        """(number of the torrent, number of the peer)"""
        self.refused = [0] * SHARDS

    async def run(self, first: int) -> None:
        for peer in count(first, 4):
            if self._stop.is_set():
                return
            torrent = peer // 4 % len(self.hashes)
            try:
                reply = await self._store.swarms.announce(update(peer, "s", info_hash=self.hashes[torrent]))
            except StoreUnavailable:
                self.refused[torrent % SHARDS] += 1
                await asyncio.sleep(0)
            else:
                assert isinstance(reply, Admitted)
                self.answered.add((torrent, peer))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            for first in range(4):
                tasks.create_task(self.run(first))
            await self.more(500)
            try:
                yield
                await self.more(500)
            finally:
                self._stop.set()

    async def more(self, number: int) -> None:
        until_then = len(self.answered) + number
        await eventually(lambda: len(self.answered) > until_then, PATIENCE_SECONDS)

    async def check(self, others: int = 0) -> None:
        """Each join that was answered is in the swarm; counts, members and totals agree. ``others``: how many peers
        are in other torrents."""
        store = self._store
        counts = await store.swarms.scrape(self.hashes)
        assert isinstance(counts, dict)
        for torrent, info_hash in enumerate(self.hashes):
            shard = store.shards.of(info_hash)
            members = set(await shard.connection.command("SMEMBERS", shard.keys.swarm_peers(info_hash)))
            assert counts[info_hash].leechers == len(members)
            joined = {update(peer).peer_id.hex().encode() for each, peer in self.answered if each == torrent}
            assert joined <= members
        totals = [counts[each].leechers for each in self.hashes]
        assert (await store.counters.totals())["leechers"] == sum(totals) + others


def others(group: Cluster, prefix: str) -> list[Node]:
    serving = group.primary(prefix)
    return [node for node in group.nodes if node is not serving]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["at once", pytest.param("key by key", marks=pytest.mark.long)])
async def test_a_shard_moves_under_announces_to_all_shards(group: Cluster, kind: str) -> None:
    """S5: no torrent is torn, and nothing was answered that was not applied. Other shards are served meanwhile."""
    prefix = f"{kind.replace(' ', '-')}:"
    moving = shard_prefixes(prefix, SHARDS)[2]
    async with store_at(group.url, prefix, shards=SHARDS) as store:
        joining = Joining(store)
        async with joining.running():
            move = group.move if kind == "at once" else group.move_key_by_key
            for target in others(group, moving):
                await asyncio.to_thread(move, moving, target)
        await store.shards[2].connection.until_available()
        await joining.check()
        assert joining.refused[:2] == [0, 0] and joining.refused[3] == 0
        assert (joining.refused[2] > 0) == (kind == "key by key")
        assert store.shards[2].connection.master == f"127.0.0.1:{group.primary(moving).port}"
        async with on_cluster(group.url, Keys(prefix), SwarmRules()) as checked:
            for shard in checked.shards:
                await check_invariants(checked.redis, shard.keys)


@pytest.mark.slow
async def test_a_failover_between_announces_concerns_the_shards_of_the_node() -> None:
    """S6: each announce is applied once or refused; the others are served meanwhile."""
    with cluster() as group:
        main = group.primary(f"{PREFIX}{{main}}:")
        old = next(node for node in map(group.primary, PREFIXES) if node is not main)
        unavailable = [number for number, prefix in enumerate(PREFIXES) if group.primary(prefix) is old]
        new = await asyncio.to_thread(group.start_replica, old)
        async with store_at(main.tcp_url, PREFIX, timeout=2.0, shards=SHARDS) as store:
            joining = Joining(store)
            async with joining.running():
                pass
            await joining.check()
            await asyncio.to_thread(until_replicated, old)
            old.kill()
            hashes = [hash_in(number, 99) for number in range(SHARDS)]

            async def join(number: int) -> int:
                """How often it was refused."""
                for refused in count():
                    with suppress(StoreUnavailable):
                        await store.swarms.announce(update(7, "s", info_hash=hashes[number]))
                        return refused
                    await asyncio.sleep(0)
                raise AssertionError

            async with asyncio.timeout(PATIENCE_SECONDS):
                refused = await asyncio.gather(*map(join, range(SHARDS)))
            assert {number for number in range(SHARDS) if refused[number]} == set(unavailable)
            assert store.shards[unavailable[0]].connection.master == f"127.0.0.1:{new.port}"
            counts = await store.swarms.scrape(hashes)
            assert isinstance(counts, dict)
            assert [counts[each].leechers for each in hashes] == [1] * SHARDS
            await joining.check(others=SHARDS)


@pytest.mark.long
@pytest.mark.parametrize("lost", ["main", "another"])
async def test_a_node_that_is_killed_again_and_again_concerns_its_own_shards_only(lost: str) -> None:
    """S4: of the other nodes not one announce is refused. They are patient: on a busy machine they would take each
    other for lost, and refuse work themselves."""
    with cluster(options=("--appendonly", "yes")) as group:
        group.be_patient()
        main = group.primary(f"{PREFIX}{{main}}:")
        places = list(map(group.primary, PREFIXES))
        node = main if lost == "main" else next(each for each in places if each is not main)
        own = [number for number, place in enumerate(places) if place is node]
        async with store_at(main.tcp_url, PREFIX, shards=SHARDS) as store:
            joining = Joining(store)
            async with joining.running():
                for _ in range(5):
                    await asyncio.to_thread(node.kill)
                    await joining.more(1000)
                    await asyncio.to_thread(node.start)
                    for each in (store.connection, *(store.shards[number].connection for number in own)):
                        await asyncio.wait_for(each.until_available(), PATIENCE_SECONDS)
                    await joining.more(200)
        assert {number for number, times in enumerate(joining.refused) if times} == set(own)


@pytest.mark.slow
async def test_a_shard_that_is_unavailable_costs_no_claim() -> None:
    """W24: its torrents are not given out, and their claims do not lapse. Others go on."""
    with cluster() as group:
        main = group.primary(f"{PREFIX}{{main}}:")
        number, node = next(
            (number, group.primary(each)) for number, each in enumerate(PREFIXES) if group.primary(each) is not main
        )
        rules = SwarmRules(accounts="required", max_gap=7200)
        async with on_cluster(main.tcp_url, Keys(PREFIX), rules) as store:
            await store.users.add("7", ALICE)
            items = [hash_in(number), hash_in(number, 1)]
            for info_hash in items:
                await store.torrents.add(info_hash)
            await seeding(store, *items, start_budget=9)
            first = await claimed(store, "7")
            node.stop()
            assert (await refusal(store, "7")).reason == "empty"
            for _ in range(120):
                store.clock.now += 600
                await store.connection.command("SET", store.keys.heartbeat(), int(store.clock.now))
                await check_claims(store)
                await store.work.claims.lapse("proj")
            assert [claim.item for claim in await store.work.claims.of_claimant("proj", "7")] == [first.item]
            with pytest.raises(StoreUnavailable):
                await store.work.verification.ask("proj", "7", first.item)

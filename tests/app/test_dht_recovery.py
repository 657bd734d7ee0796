"""D14, D20: the node of a tracker among other nodes, on real sockets: restarts, outages, and a name that was taken."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.app.test_dht import asked, asker
from tests.dht.test_node import HASH, KNOWN, made
from tests.fake_time import FakeTime
from tests.store.harness import Store, info_hash, running, update
from tests.waiting import eventually
from tracker.app.background import build_prober
from tracker.app.dht import DhtRuntime, open_dht
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.responder import Swarm
from tracker.frontends.dht.server import serve_dht
from tracker.runtime.context import RuntimeContext
from tracker.runtime.telemetry import Telemetry
from tracker.settings.background import DhtSettings, ProbeSettings
from tracker.settings.model import LiveSettings, Settings
from tracker.store.jobs.lease import Lease
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.system.datagrams import close_all, open_datagram_sockets
from tracker.wire.endpoint import pack_address, pack_endpoint, split_address
from tracker.wire.krpc import Ping

NAME = "host"
DOWN = "127.0.0.1:1"
"""No node is there."""
PEER = Endpoint(b"\x7f\x09\x09\x09\x1a\xe1")


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        yield store


def tracker_node(
    store: Store,
    *bootstrap: str,
    enabled: bool = True,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AbstractAsyncContextManager[DhtRuntime]:
    dht = DhtSettings(
        enabled=enabled,
        listen=("127.0.0.1:0",),
        name=NAME,
        bootstrap=bootstrap,
        private_addresses=True,
        lookups_per_minute=0,
    )
    context = RuntimeContext(store, LiveSettings(Settings(dht=dht)), Telemetry())
    return open_dht(context, build_prober(context), timer=timer, sleep=sleep)


def known(runtime: DhtRuntime) -> int:
    return len(runtime.nodes[4].table) if runtime.nodes else 0


def packed(host: str, port: int) -> Endpoint:
    address = pack_address(host)
    assert address is not None
    return pack_endpoint(Address(address), port)


class Neighbours:
    """Nodes at loopback addresses of their own. The test moves their time, and that of the tracker's node."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.nodes = [made(number) for number in range(count)]
        self.addresses = [f"127.0.2.{number + 1}:0" for number in range(count)]
        """The first time that they are up, the system chooses the ports."""

    def timer(self) -> float:
        return self.now

    def endpoint(self, number: int) -> Endpoint:
        return packed(*split_address(self.addresses[number]))

    def contact(self, address: str) -> None:
        """All ask the node at this address."""
        host, port = split_address(address)
        for node in self.nodes:
            node.contact([packed(host, port)], self.now)

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        """All know the first one."""
        async with AsyncExitStack() as stack:
            (sockets,) = await open_datagram_sockets(self.addresses, 65_536)
            stack.callback(close_all, [sockets])
            self.addresses = [each.address for each in sockets]
            for node, each in zip(self.nodes, sockets, strict=True):
                await stack.enter_async_context(serve_dht({4: node}, [each], _read_nothing, self.timer))
            for node in self.nodes[1:]:
                node.contact([self.endpoint(0)], self.now)
            yield

    async def pass_until(self, condition: Callable[[], bool], step: float = 0.25) -> float:
        """Returns the time that has passed. The sockets look at the time four times a second."""
        began = self.now

        def holds() -> bool:
            self.now += step
            return condition()

        await eventually(holds)
        return self.now - began

    async def find(self, runtime: DhtRuntime) -> set[Endpoint]:
        """The peers that a lookup by the tracker's node finds."""
        lookup = runtime.nodes[4].find_peers(HASH, self.now)
        assert lookup is not None
        await self.pass_until(lambda: lookup.outcome is not None, step=0.1)
        assert lookup.outcome is not None
        return set(lookup.outcome.peers)


async def _read_nothing(info_hash: InfoHash, family: int) -> Swarm:
    del info_hash, family
    return KNOWN


async def test_table_and_id_survive_a_restart(store: Store) -> None:
    """D14: and without the bootstrap node."""
    neighbours = Neighbours(12)
    async with neighbours.up():
        first_node = neighbours.addresses[0]
        async with tracker_node(store, first_node, timer=neighbours.timer) as runtime:
            await neighbours.pass_until(lambda: known(runtime) >= 10)
            own, before = runtime.nodes[4].id, known(runtime)
        async with tracker_node(store, DOWN, timer=neighbours.timer) as runtime:
            await eventually(lambda: bool(runtime.nodes))  # the node's time stands still while the store answers
            took = await neighbours.pass_until(lambda: known(runtime) >= before, step=0.05)
            assert runtime.nodes[4].id == own
    assert took <= 10


async def test_damaged_keys_are_ignored(store: Store) -> None:
    """D14: and replaced."""
    keys = store.keys
    await store.redis.set(keys.dht_node(NAME), "no hash")
    await store.redis.set(keys.dht_table(NAME, 4), "no nodes")
    neighbours = Neighbours(2)
    async with neighbours.up():
        async with tracker_node(store, neighbours.addresses[0], timer=neighbours.timer) as runtime:
            await neighbours.pass_until(lambda: known(runtime) >= 1)
            own = runtime.nodes[4].id
    saved = await store.dht_nodes.load(NAME)
    assert saved.ids[4] == own and len(saved.nodes[4]) >= 26


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_disabled_node_has_no_socket_and_no_key(store: Store, *, enabled: bool) -> None:
    """D14"""
    before = udp_sockets()
    async with tracker_node(store, enabled=enabled) as runtime:
        assert len(udp_sockets() - before) == int(enabled)
        if enabled:
            await eventually(lambda: bool(runtime.nodes))
    found = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}dht*")]
    assert bool(found) == enabled


@pytest.mark.parametrize(("probes", "says"), [(False, True), (True, False)])
async def test_the_start_says_that_peers_cannot_be_checked(store: Store, *, probes: bool, says: bool) -> None:
    """D18"""
    dht = DhtSettings(enabled=True, listen=("127.0.0.1:0",), name=NAME, give_peers=True)
    settings = Settings(dht=dht, probe=ProbeSettings(enabled=probes))
    context = RuntimeContext(store, LiveSettings(settings), Telemetry())
    with capture_logs() as logs:
        async with open_dht(context, build_prober(context)):
            pass
    assert any("needs TRACKER_PROBE__ENABLED" in each["event"] for each in logs) == says


def udp_sockets() -> set[str]:
    """The inodes of those of this process."""
    rows = Path("/proc/net/udp").read_text("ascii").splitlines()[1:]
    inodes = {f"socket:[{row.split()[9]}]" for row in rows}
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder's own
            found.add(str(each.readlink()))
    return found & inodes


async def test_after_an_outage_of_ten_minutes_the_table_is_still_there(store: Store) -> None:
    """D20"""
    neighbours = Neighbours(10)
    async with tracker_node(store, DOWN, timer=neighbours.timer) as runtime:
        async with neighbours.up():
            neighbours.contact(runtime.addresses[0])
            await neighbours.pass_until(lambda: known(runtime) >= 8)
        before, end = known(runtime), neighbours.now + 600
        await neighbours.pass_until(lambda: neighbours.now >= end, step=1)
        assert known(runtime) == before
        async with neighbours.up():
            for node in neighbours.nodes:
                node.announced.announce(HASH, PEER, neighbours.now, seed=False)
            began = neighbours.now

            async def found() -> bool:
                return PEER in await neighbours.find(runtime)

            await eventually(found)
            assert neighbours.now - began <= 30


async def test_without_bootstrap_nodes_clients_of_public_swarms_do(store: Store) -> None:
    """D20: nothing is saved, and no bootstrap node answers."""
    neighbours = Neighbours(4)
    async with neighbours.up():
        await store.torrents.add(info_hash(1), {"private": "0"})
        await store.announce(update(1, "s", endpoint=neighbours.endpoint(2)))
        async with tracker_node(store, DOWN, timer=neighbours.timer) as runtime:
            await neighbours.pass_until(lambda: known(runtime) >= 3)


async def test_a_tracker_waits_while_another_one_runs_the_node(store: Store) -> None:
    """Then it has the same id, as it is the same node."""
    async with tracker_node(store) as runtime:
        await eventually(lambda: bool(runtime.nodes))
        own = runtime.nodes[4].id
    other = Lease(store.scripts, "dht", NAME, 60, time.time)
    assert await other.hold()
    passing = FakeTime()
    async with tracker_node(store, sleep=passing) as runtime:
        await passing.pass_by(600)
        assert not runtime.nodes
        await other.release()
        await passing.pass_until(lambda: bool(runtime.nodes))
        assert runtime.nodes[4].id == own


async def test_a_node_whose_name_was_taken_is_silent_until_it_has_the_name_again(store: Store) -> None:
    passing, prefix = FakeTime(), store.keys.prefix
    async with tracker_node(store, sleep=passing) as runtime:
        await eventually(lambda: bool(runtime.nodes))
        other = Lease(store.scripts, "dht", NAME, 60, time.time)
        while not other.held:  # the node may extend its lease between the two commands
            await store.redis.delete(f"{prefix}leases:dht", f"{prefix}leases:dht:tokens")
            await other.hold()
        await passing.pass_until(lambda: not runtime.nodes)
        with asker(runtime.addresses[0]) as to:
            to.settimeout(0.5)
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(asked, to, Ping())
        await other.release()
        await passing.pass_until(lambda: bool(runtime.nodes))
        with asker(runtime.addresses[0]) as to:
            answer = await asyncio.to_thread(asked, to, Ping())
        assert answer.id == runtime.nodes[4].id

"""Client programs are counted outside the announce path: bounded, in batches, and each join once."""

import asyncio
import random
import string
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.fake_time import FakeTime
from tests.store.client.proxy import Proxy
from tests.store.harness import Clock, Store, running
from tests.store.jobs.harness import Metrics
from tests.waiting import in_background
from tracker.bittorrent import Address, PeerId
from tracker.store.schema.keys import Keys
from tracker.store.stats import client_software
from tracker.store.stats.client_software import MAX_BATCH, ClientEvent, ClientSoftware
from tracker.store.stats.slices import month_of, month_start
from tracker.store.swarms.rules import SwarmRules
from tracker.wire.endpoint import pack_address
from tracker.wire.peer_id import client_name
from tracker.workers.join_counts import (
    FLUSH_SECONDS,
    KEPT_NAMES,
    LOG_SECONDS,
    MAX_NAMES,
    SEND_SECONDS,
    ClientSoftwareCounter,
)

SECONDS = 20.0


ADDRESS = Address(b"\x0b\0\0\1")


@pytest.fixture(autouse=True)
def one_address_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_software, "MIN_ADDRESSES", 1)


def called(name: str) -> PeerId:
    """A peer id of the program ``name`` (see ``Work``)."""
    return PeerId(name.encode().ljust(20, b" "))


@dataclass
class Work:
    """A counter and its counts. Peer ids contain the name of the program as text."""

    store: Store
    client_software: ClientSoftware | None = None
    clock: Clock = field(default_factory=Clock)
    counts: "Counter[str]" = field(default_factory=Counter)
    time: FakeTime = field(default_factory=FakeTime)

    def __post_init__(self) -> None:
        self.store.client_software = self.client_software or self.store.client_software
        self.store.clock = self.clock
        Metrics(self.counts).follow(self.store)
        self.counter = ClientSoftwareCounter(
            self.store,
            name=lambda peer_id: peer_id.decode().strip(),
            sleep=self.time,
            flush_seconds=0.05 if isinstance(self.client_software, Slow) else FLUSH_SECONDS,
        )

    def add(self, *names: str, label: str = "", times: int = 1) -> None:
        for name in names * times:
            self.counter.add(called(name), label, ADDRESS)

    async def joins(self) -> dict[str, int]:
        return dict(await self.store.client_software.top("joins", count=10_000))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Runs the counter and the store's watch; the counter is cancelled at the end, without a flush."""
        async with in_background(self.counter.run(), self.store.connection.watch()):
            yield


async def sent(work: Work) -> None:
    async def done() -> bool:
        return work.counter.waiting == 0

    await work.time.pass_until(done)


class Slow(ClientSoftware):
    """A store that never replies."""

    async def add(
        self,
        number: int,
        counts: Mapping[ClientEvent, int],
        now: float,
        addresses: Mapping[ClientEvent, Collection[Address]],
    ) -> None:
        await asyncio.Event().wait()


class Recorded(ClientSoftware):
    """Records the batches, and fails ``failures`` times."""

    failures = 0

    async def add(
        self,
        number: int,
        counts: Mapping[ClientEvent, int],
        now: float,
        addresses: Mapping[ClientEvent, Collection[Address]],
    ) -> None:
        self.batches = [*getattr(self, "batches", []), (number, len(counts), now)]
        if self.failures:
            self.failures -= 1
            raise ResponseError("the script failed")
        await super().add(number, counts, now, addresses)


def recorded(store: Store) -> Recorded:
    return Recorded(store.shards.main)


async def test_joins_and_refusals_add_up(store: Store) -> None:
    work = Work(store)
    work.add("qB", times=3)
    work.add("TR")
    work.add("qB", label="denied", times=2)
    assert work.counter.waiting == 6
    async with work.at_work():
        await sent(work)
        work.add("qB")
        await sent(work)
    assert await store.client_software.top("joins") == [("qB", 4), ("TR", 1)]
    assert await store.client_software.top("failures") == [("qB: denied", 2)]
    assert not work.counts


async def test_few_joins_take_few_calls(store: Store) -> None:
    """Batches are bounded; without joins there is no call."""
    programs = recorded(store)
    work = Work(store, programs)
    work.add(*(f"x{n}" for n in range(2 * MAX_BATCH + 50)))
    work.add("x0", times=5000)
    await work.counter.flush()
    assert [size for _, size, _ in programs.batches] == [MAX_BATCH] * 2 + [50]
    await work.counter.flush()
    assert len(programs.batches) == 3
    assert (await work.joins())["x0"] == 5001


async def test_counts_belong_to_the_month_of_their_batch(store: Store) -> None:
    work = Work(store)
    work.add("qB")
    await work.counter.flush()
    work.clock.now = month_start(work.clock.now, 1).timestamp()
    work.add("qB", times=2)
    await work.counter.flush()
    assert await store.client_software.top("joins", month_of(work.clock.now)) == [("qB", 2)]


async def test_names_are_cleaned_for_storage(store: Store) -> None:
    """Names that become equal add up."""
    work = Work(store)
    work.add("a\x1b", "a\x07", "", label="b\nb")
    await work.counter.flush()
    assert await store.client_software.top("failures") == [("a?: b b", 2), ("unknown: b b", 1)]


# Invented names


async def test_names_beyond_the_limit_are_dropped_and_counted(store: Store) -> None:
    work = Work(store)
    work.add(*(f"x{n}" for n in range(MAX_NAMES + 50)))
    work.add("x0")
    assert (work.counter.waiting, work.counts) == (MAX_NAMES + 1, {"software_dropped": 50})
    await work.counter.flush()
    assert sum((await work.joins()).values()) == MAX_NAMES + 1


async def test_a_flood_of_names_does_not_displace_frequent_ones(store: Store) -> None:
    """A frequent name keeps its entry; a name that is not seen again loses it."""
    work = Work(store)
    real = [f"real{n}" for n in range(KEPT_NAMES)]
    work.add(*real, times=2)
    work.add(*(f"a{n}" for n in range(MAX_NAMES)))
    await work.counter.flush()
    for wave in "bc":
        work.add(*(f"{wave}{n}" for n in range(MAX_NAMES)))
        work.add(*real, times=2)
        await work.counter.flush()
    joins = await work.joins()
    assert {joins.get(name) for name in real} == {6}
    for wave in "de":
        work.add(*(f"{wave}{n}" for n in range(MAX_NAMES)), times=3)
        await work.counter.flush()
    dropped = work.counts["software_dropped"]
    work.add(*(f"f{n}" for n in range(MAX_NAMES - KEPT_NAMES)))
    work.add(*real)
    assert work.counts["software_dropped"] == dropped + KEPT_NAMES


async def test_drops_are_logged_in_one_line(store: Store) -> None:
    work = Work(store)
    work.add(*(f"x{n}" for n in range(MAX_NAMES + 50)))
    with capture_logs() as logs:
        async with work.at_work():
            await work.time.pass_by(10 * LOG_SECONDS)
    assert [(line["log_level"], line["events"]) for line in logs] == [("warning", 50)]


# The store fails


@pytest.fixture
async def own(start_server: Callable[..., Server], prefix: str) -> AsyncIterator[tuple[Server, Work]]:
    """A server of the test's own, and a counter on it."""
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        yield server, Work(store)


async def test_an_outage_of_the_store_delays_counts_and_loses_none(own: tuple[Server, Work]) -> None:
    server, work = own
    async with work.at_work():
        work.add("qB", times=10)
        await sent(work)
        server.stop()
        work.add("qB", "TR", times=100)
        await work.time.pass_by(10 * SEND_SECONDS)
        assert work.counter.waiting == 200
        server.start()
        await sent(work)
    assert await work.joins() == {"qB": 110, "TR": 100}
    assert not work.counts


async def test_a_batch_whose_reply_is_lost_counts_once(valkey: Server, prefix: str) -> None:
    """The counter sends the same batch again, although the store has it."""
    async with Proxy(valkey) as proxy:
        async with running(Store(proxy.url, Keys(prefix), SwarmRules())) as far:
            programs = recorded(far)
            work = Work(far, programs)
            async with work.at_work():
                work.add("qB")  # opens a connection and loads the script
                await sent(work)
                proxy.swallow_answers()
                work.add("qB", "TR")
                work.clock.now += 7
                await sent(work)
            assert programs.batches[1:] == [programs.batches[1]] * (len(programs.batches) - 1)
            assert len(programs.batches) >= 3
            assert await work.joins() == {"qB": 2, "TR": 1}


async def test_counts_wait_while_the_store_is_full(own: tuple[Server, Work]) -> None:
    _, work = own
    await work.store.redis.config_set("maxmemory", 1)
    async with work.at_work():
        work.add("qB", times=10)
        await work.time.pass_by(10 * SEND_SECONDS)
        assert work.counter.waiting == 10
        await work.store.redis.config_set("maxmemory", 0)
        await sent(work)
    assert await work.joins() == {"qB": 10}
    assert not work.counts


@pytest.mark.parametrize(("failures", "dropped"), [(2, 0), (5, 10)])
async def test_a_batch_that_always_fails_is_dropped(store: Store, failures: int, dropped: int) -> None:
    programs = recorded(store)
    programs.failures = failures
    work = Work(store, programs)
    async with work.at_work():
        work.add("qB", times=10)
        await sent(work)
        work.add("qB", times=5)
        await sent(work)
    assert work.counts["software_dropped"] == dropped
    assert await work.joins() == {"qB": 15 - dropped}


# Stopping


async def test_a_flush_sends_all_waiting_counts(store: Store) -> None:
    """Also after a cancellation during a batch."""
    work = Work(store)
    async with work.at_work():
        for number in range(5):
            work.add(*(f"x{n}" for n in range(500)))
            await work.time.pass_by(number * SEND_SECONDS)
    await work.counter.flush()
    assert await work.joins() == {f"x{n}": 5 for n in range(500)}
    assert (work.counter.waiting, work.counts["software_dropped"]) == (0, 0)


async def test_a_flush_does_not_wait_for_an_unavailable_store(own: tuple[Server, Work]) -> None:
    """The loss is counted and logged."""
    server, work = own
    server.kill()
    work.add("qB", times=100)
    with capture_logs() as logs:
        async with asyncio.timeout(SECONDS):
            await work.counter.flush()
    assert (work.counter.waiting, work.counts["software_dropped"]) == (0, 100)
    assert [line["events"] for line in logs if "shutdown" in line["event"]] == [100]


async def test_a_flush_ends_within_its_time_limit(store: Store) -> None:
    work = Work(store, Slow(store.shards.main))
    work.add("qB", times=100)
    async with asyncio.timeout(SECONDS):
        await work.counter.flush()
    assert work.counts["software_dropped"] == 100


async def test_a_name_is_listed_once_it_came_from_three_addresses(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of several processes, and from then on; its failures too. A /64 is one address."""
    monkeypatch.setattr(client_software, "MIN_ADDRESSES", 3)
    works = [Work(store), Work(store, ClientSoftware(store.shards.main))]

    async def join(name: str, *addresses: str, work: int = 0, label: str = "") -> dict[str, int]:
        for address in addresses:
            packed = pack_address(address)
            assert packed is not None
            works[work].counter.add(called(name), label, packed)
        await works[work].counter.flush()
        return await works[work].joins()

    for number in range(20):
        assert await join(f"-R{number}", *["11.0.0.1"] * 9, "11.0.0.2") == {}
    assert await join("qB", "11.0.0.1", "11.0.0.2") == {}
    assert await join("qB", "11.0.0.2", work=1) == {}
    assert await join("v6", "2a00::1", "2a00::2", "2a00::3") == {}
    await join("qB", "11.0.0.9", label="denied")
    assert await join("qB", "11.0.0.3", work=1) == {"qB": 4}
    assert await join("qB", "11.0.0.3", "11.0.0.3") == {"qB": 6}
    assert await store.client_software.top("failures") == []
    await join("qB", "11.0.0.9", label="denied")
    await join("-R1", "11.0.0.9", label="denied")
    assert await store.client_software.top("failures") == [("qB: denied", 2)]
    assert await store.redis.hlen(f"{store.keys.prefix}unlisted_clients") == 22


async def test_random_peer_ids_of_rooms_are_not_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trystero's pages have a random peer id each, which joins several rooms from one address."""
    monkeypatch.setattr(client_software, "MIN_ADDRESSES", 3)
    work, chance = Work(store), random.Random(7)
    work.counter.name = client_name
    for number in range(400):
        room = PeerId("".join(chance.choices(string.ascii_letters + string.digits, k=20)).encode())
        for peer_id in (room, room, PeerId(b"-WW0300-" + number.to_bytes(12, "big"))):
            work.counter.add(peer_id, "", Address(b"\x0b\0" + number.to_bytes(2, "big")))
    await work.counter.flush()
    assert await work.joins() == {"WebTorrent 3.0": 400}
    assert not work.counts


async def test_addresses_of_few_unlisted_names_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_software, "MIN_ADDRESSES", 3)
    monkeypatch.setattr(client_software, "MAX_UNLISTED", 50)
    work = Work(store)
    work.add(*(f"-R{number}" for number in range(900)))
    await work.counter.flush()
    assert await work.joins() == {}
    assert await store.redis.hlen(f"{store.keys.prefix}unlisted_clients") == 50

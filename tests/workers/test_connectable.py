"""Checks which peers accept connections, with the product's prober and real listeners on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import ALICE, BOB, Store, info_hash, update
from tests.workers.prober.peers import is_here, loopback, peer
from tests.workers.upstreams.harness import loopback6
from tracker.bittorrent import Endpoint
from tracker.store.swarms.connect_checks import KEEP_SECONDS, ConnectCheck
from tracker.workers import connectable
from tracker.workers.connectable import ConnectableWorker
from tracker.workers.prober import CHECKS_A_DAY, DAY_SECONDS, Prober


class Checks:
    """The worker with a prober that may connect to loopback. Time passes as the prober sleeps."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self.store = store
        self.counted: list[str] = []
        self.enabled = enabled
        prober = Prober(lambda: self.enabled, self.counted.append, store.clock, self._sleep, is_target=is_here)
        self.worker = ConnectableWorker(store, prober)

    async def _sleep(self, seconds: float) -> None:
        self.store.clock.now += seconds
        await asyncio.sleep(0)

    async def run(self) -> list[str]:
        """Runs a job, and returns the outcomes of its connections."""
        self.counted.clear()
        await self.worker.handle()
        return sorted(name.removeprefix("probes.") for name in self.counted)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@asynccontextmanager
async def two_endpoints() -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """One that accepts connections, and one that refuses them."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with peer(accept) as accepts:
            yield accepts, loopback(taken.getsockname()[1])


async def result(store: Store, endpoint: Endpoint) -> bool | None:
    (check,) = (await store.connect_checks.of([endpoint])).values()
    return check.connectable


async def test_peers_are_checked_once_a_day_and_results_are_kept_by_user(private: Store) -> None:
    checks = Checks(private)
    async with two_endpoints() as (accepts, refuses):
        await private.announce(update(1, "s", endpoint=accepts, passkey=ALICE))
        await private.announce(update(2, "s", torrent=2, endpoint=refuses, passkey=BOB, bytes_left=0))
        outcomes = [each for _ in range(6) for each in await checks.run()]
        assert sorted(outcomes) == ["confirmed", "unreachable"]
        assert await result(private, accepts) is True
        assert await result(private, refuses) is False
        found = [await private.connect_checks.of_user(user) for user in ("7", "8")]
        assert [check and check.connectable for check in found] == [True, False]
        await private.redis.delete(private.keys.connectable(accepts))  # a day later
        private.clock.now += KEEP_SECONDS
        assert await checks.run() == ["confirmed"]


async def test_a_check_changes_nothing_that_peers_get(store: Store) -> None:
    checks = Checks(store)
    async with two_endpoints() as (accepts, refuses):
        await store.announce(update(1, "s", endpoint=accepts))
        await store.announce(update(2, "s", endpoint=refuses))
        before = await store.announce(update(3, "s"))
        await checks.run()
        after = await store.announce(update(3))
        assert {after.peers[at : at + 6] for at in (0, 6)} == {accepts, refuses}
        assert len(after.peers) == len(before.peers) and after.leechers == 3


async def test_no_connection_is_made_while_probes_are_off(store: Store) -> None:
    checks = Checks(store, enabled=False)
    async with two_endpoints() as (accepts, _):
        await store.announce(update(1, "s", endpoint=accepts))
        assert await checks.run() == []
        assert await store.connect_checks.of([accepts]) == {}


async def test_endpoints_that_may_not_be_probed_are_passed_over(store: Store) -> None:
    checks = Checks(store)
    await store.announce(update(1, "s", endpoint=Endpoint(b"\x0a\0\0\1\x1a\xe1")))
    await store.announce(update(2, "s", endpoint=loopback(80)))
    assert await checks.run() == []


async def test_a_run_makes_few_connections_and_the_next_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(store)
    monkeypatch.setattr(connectable, "MAX_CHECKS_A_RUN", 3)
    ports = await announced(store, 7)
    outcomes: list[str] = []
    for _ in range(8):
        found = await checks.run()
        assert len(found) <= 3
        outcomes += found
    assert outcomes == ["unreachable"] * 7
    assert len(await store.connect_checks.of(ports)) == 7


async def test_an_address_with_many_ports_is_checked_three_times_a_day_and_takes_no_turn_of_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks(store)
    monkeypatch.setattr(connectable, "MAX_CHECKS_A_RUN", 3)
    ports = [loopback(20_000 + at) for at in range(20)]
    for one, endpoint in enumerate(ports):
        await store.announce(update(100 + one, "s", endpoint=endpoint))
    others = (await announced(store, 5))[1:]
    for _ in range(12):
        await checks.run()
    assert len(await store.connect_checks.of(others)) == 4
    assert len(await store.connect_checks.of(ports)) == CHECKS_A_DAY
    store.clock.now += DAY_SECONDS
    await checks.run()
    assert len(await store.connect_checks.of(ports)) == CHECKS_A_DAY + 1


async def test_a_run_reads_few_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(store)
    monkeypatch.setattr(connectable, "MAX_READS_A_RUN", 2)
    await announced(store, 7)
    runs = [len(await checks.run()) for _ in range(6)]
    assert sum(runs) == 7 and max(runs) <= 2


async def announced(store: Store, number: int) -> Sequence[Endpoint]:
    """Peers in torrents of their own, at endpoints that refuse connections."""
    found = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for one in range(1, number + 1):
        endpoint = Endpoint(bytes((127, 0, 0, one)) + port.to_bytes(2, "big"))
        await store.announce(update(one, "s", torrent=one, endpoint=endpoint))
        found.append(endpoint)
    return found


async def test_a_failed_run_begins_anew(store: Store) -> None:
    checks = Checks(store)
    (endpoint,) = await announced(store, 1)
    await store.redis.rename(store.keys.swarm_peers(info_hash(1)), "kept")
    await store.redis.set(store.keys.swarm_peers(info_hash(1)), "text")
    with pytest.raises(ResponseError):
        await checks.run()
    await store.redis.rename("kept", store.keys.swarm_peers(info_hash(1)))
    assert await checks.run() == ["unreachable"]
    assert (await store.connect_checks.of([endpoint]))[endpoint] == ConnectCheck(False, int(store.clock.now))


@pytest.mark.skipif(not loopback6(), reason="no IPv6 here")
async def test_both_endpoints_of_a_peer_are_checked(store: Store) -> None:
    checks = Checks(store)
    async with await asyncio.start_server(accept, "::1", 0) as listener, two_endpoints() as (_, refuses):
        port = listener.sockets[0].getsockname()[1]
        six = Endpoint(bytes(15) + b"\1" + port.to_bytes(2, "big"))
        await store.announce(update(1, "s", endpoint=refuses, key=b"12345678"))
        await store.announce(update(1, endpoint=six, key=b"12345678"))
        assert await checks.run() == ["confirmed", "unreachable"]

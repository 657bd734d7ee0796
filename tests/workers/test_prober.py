"""Limits of the prober: where it connects, how often, and what it does without a connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager

import pytest

from tests.waiting import eventually, in_background, loop_turns
from tests.workers.prober.peers import HASH, PIECES, greet, is_here, loopback, peer
from tests.workers.upstreams.harness import Clock, loopback6
from tracker.bittorrent import Address, Endpoint
from tracker.settings.background import ProbeSettings
from tracker.wire.endpoint import pack_address, pack_endpoint
from tracker.wire.torrent_file import Pieces
from tracker.workers import prober
from tracker.workers.prober import Level, Prober, Status, Times, is_target, network_of


def enabled() -> bool:
    return True


class Probes:
    """A prober with a clock that its sleeps move forward."""

    def __init__(self, is_enabled: Callable[[], bool] = enabled, targets: Callable[[Endpoint], bool] = is_here) -> None:
        self.clock = Clock()
        self.counted: list[str] = []
        self.slept: list[float] = []
        self.prober = Prober(
            is_enabled,
            self.counted.append,
            self.clock,
            self.sleep,
            lambda count: count - 1,
            Times(connect=60, handshake=60, piece=60),
            targets,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.now += seconds
        await asyncio.sleep(0)


def endpoint(text: str, port: int = 6881) -> Endpoint:
    address = pack_address(text)
    assert address is not None
    return pack_endpoint(address, port)


@contextmanager
def refusing() -> Iterator[Endpoint]:
    """An endpoint that is taken, and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield loopback(taken.getsockname()[1])


class TestTargets:
    """Asked, not tried: tests connect to loopback only."""

    @pytest.mark.parametrize(
        "text",
        [
            *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.16.0.1", "192.168.1.1"),
            *("192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
            *("::", "::1", "fe80::1", "fc00::1", "ff02::1", "2001:db8::1", "100::1", "64:ff9b::808:808"),
            *("2001::1", "2002:a00:1::1", "2002:808:808::1"),
        ],
    )
    def test_only_routable_addresses_are_probed(self, text: str) -> None:
        """No Teredo and no 6to4 either, whatever address they contain."""
        assert not is_target(endpoint(text))

    @pytest.mark.parametrize("text", ["127.0.0.1", "8.8.8.8", "10.0.0.1"])
    def test_mapped_addresses_are_not_probed(self, text: str) -> None:
        mapped = Endpoint(bytes(10) + b"\xff\xff" + endpoint(text))
        assert not is_target(mapped) and not is_here(mapped)

    @pytest.mark.parametrize("port", [0, 1, 22, 80, 443, 1023])
    def test_ports_below_1024_are_not_probed(self, port: int) -> None:
        assert not is_target(endpoint("8.8.8.8", port)) and not is_here(loopback(port))

    @pytest.mark.parametrize("packed", [b"", b"\x1a\xe1", b"123\x1a\xe1", bytes(17), bytes(19)])
    def test_other_lengths_are_no_endpoint(self, packed: bytes) -> None:
        assert not is_target(Endpoint(packed)) and not is_here(Endpoint(packed))

    @pytest.mark.parametrize("text", ["8.8.8.8", "2a00::1"])
    def test_routable_addresses_are_probed(self, text: str) -> None:
        assert is_target(endpoint(text, 1024))

    @pytest.mark.parametrize("text", ["10.0.0.1", "0.0.0.0", "169.254.169.254", "11.0.0.1", "8.8.8.8", "fe80::1"])
    def test_probers_of_tests_probe_loopback_only(self, text: str) -> None:
        assert not is_here(endpoint(text))

    async def test_a_prober_connects_to_its_targets_only(self) -> None:
        """Loopback is none, unless it is said to be one."""
        connections: list[object] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(await greet(reader, writer))

        async with peer(behave) as there:
            assert await Prober(enabled, lambda _: None).check(there, HASH) is Status.SKIPPED
            assert not connections
            assert await Probes().prober.check(there, HASH) is Status.CONFIRMED

    @pytest.mark.skipif(not loopback6(), reason="no IPv6 here")
    async def test_a_peer_is_probed_over_ipv6(self) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            writer.close()

        async with await asyncio.start_server(serve, "::1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            found = await Probes().prober.check(pack_endpoint(Address(bytes(15) + b"\1"), port), HASH)
        assert found is Status.CONFIRMED


class TestConnect:
    async def test_a_peer_that_accepts_a_connection_is_confirmed(self) -> None:
        """It need not answer, as those that take encrypted connections only."""
        received: list[bytes] = []

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.read())

        probes = Probes()
        async with peer(silent) as target:
            found = await probes.prober.connect(target)
            await eventually(lambda: bool(received))
            assert await probes.prober.connect(target) is Status.DEFERRED
            assert await probes.prober.check(target, HASH) is Status.DEFERRED
        assert found is Status.CONFIRMED
        assert received == [b""], "nothing is sent"
        assert probes.counted == ["probes.confirmed", "probes.deferred", "probes.deferred"]

    async def test_a_peer_that_refuses_is_unreachable(self) -> None:
        with refusing() as target:
            assert await Probes().prober.connect(target) is Status.UNREACHABLE

    async def test_the_rules_are_those_of_other_probes(self) -> None:
        assert await Probes().prober.connect(endpoint("10.0.0.1")) is Status.SKIPPED
        assert await Probes().prober.connect(endpoint("127.0.0.1", 1023)) is Status.SKIPPED
        disabled = Probes(lambda: False).prober
        assert await disabled.connect(endpoint("127.0.0.1")) is Status.SKIPPED


class TestSettings:
    def test_probes_are_off_by_default(self) -> None:
        assert not ProbeSettings().enabled and not ProbeSettings().connectable

    async def test_a_disabled_prober_connects_to_no_peer(self) -> None:
        connections: list[object] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(await greet(reader, writer))

        async with peer(behave) as there:
            found = await Probes(lambda: False).prober.check(there, HASH)
            assert found is Status.SKIPPED and not connections
            assert await Probes().prober.check(there, HASH) is Status.CONFIRMED
        assert connections


class TestPace:
    async def test_an_endpoint_is_probed_once_an_hour(self) -> None:
        """Also if it is unreachable, and for another torrent."""
        probes = Probes()
        with refusing() as there:
            first = await probes.prober.check(there, HASH)
            assert first is Status.UNREACHABLE
            probes.clock.now += prober.RETRY_SECONDS - 1
            assert await probes.prober.check(there, HASH) is Status.DEFERRED
            probes.clock.now += 1
            assert await probes.prober.check(there, HASH) == first

    async def test_simultaneous_probes_of_an_endpoint_make_one_connection(self) -> None:
        probes = Probes()
        with refusing() as there:
            async with asyncio.TaskGroup() as tasks:
                found = [tasks.create_task(probes.prober.check(there, HASH)) for _ in range(5)]
        assert sorted(task.result() for task in found) == [*["deferred"] * 4, "unreachable"]

    async def test_two_connections_start_in_a_second(self) -> None:
        probes, times = Probes(), list[float]()

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            times.append(probes.clock.now)
            await greet(reader, writer)

        async with AsyncExitStack() as stack:
            for _ in range(6):
                there = await stack.enter_async_context(peer(behave))
                await probes.prober.check(there, HASH, is_claimant=True)
        assert times == [1000.0, 1000.5, 1001.0, 1001.5, 1002.0, 1002.5]

    async def test_waiting_probes_keep_the_pace_too(self) -> None:
        probes = Probes()
        with refusing() as one, refusing() as two, refusing() as three:
            async with asyncio.TaskGroup() as tasks:
                for there in (one, two, three):
                    tasks.create_task(probes.prober.check(there, HASH))
        assert probes.slept == [0.0, 0.5, 0.5]
        assert probes.counted == ["probes.unreachable"] * 3

    async def test_three_endpoints_of_an_address_are_checked_a_day_beside_those_of_claimants(self) -> None:
        """At the same time too, and whoever names them; an endpoint of another address has its own checks."""
        probes = Probes()
        ports = [loopback(20_000 + at) for at in range(8)]
        found = await asyncio.gather(
            *map(probes.prober.connect, ports[:3]), *(probes.prober.check(each, HASH) for each in ports[3:5])
        )
        assert list(found[:3]) == [Status.UNREACHABLE] * 3
        assert found[3:] == [Status.DEFERRED] * 2 and not probes.prober.has_checks_left(ports[5])
        other = await probes.prober.connect(endpoint("127.0.0.2", 20_000))
        claimant = await probes.prober.check(ports[6], HASH, is_claimant=True)
        assert other is claimant is Status.UNREACHABLE
        probes.clock.now += prober.DAY_SECONDS
        assert await probes.prober.connect(ports[3]) is Status.UNREACHABLE
        assert list(probes.prober._checked) == [network_of(ports[3])]

    async def test_addresses_take_turns(self) -> None:
        probes, order = Probes(), list[str]()

        async def check(port: int, address: str) -> None:
            await probes.prober.check(endpoint(address, port), HASH, is_claimant=True)
            order.append(address)

        await asyncio.gather(*(check(20_000 + at, "127.0.0.1") for at in range(5)), check(20_000, "127.0.0.2"))
        assert order.index("127.0.0.2") < 3

    async def test_tried_endpoints_are_forgotten_after_an_hour(self) -> None:
        """At two a second the table holds 7,200 entries at most."""
        probes = Probes()
        for _ in range(20):
            with refusing() as there:
                await probes.prober.check(there, HASH, is_claimant=True)
        assert 0 < len(probes.prober._tried) <= 20
        probes.clock.now += prober.RETRY_SECONDS
        with refusing() as there:
            await probes.prober.check(there, HASH, is_claimant=True)
        assert list(probes.prober._tried) == [there]

    async def test_the_number_of_waiting_probes_is_bounded(self) -> None:
        probes = Probes()
        probes.prober.sleep = forever
        waiting = [probes.prober.check(loopback(20_000 + at), HASH) for at in range(prober.MAX_QUEUED)]
        async with in_background(*map(_ignored, waiting)):
            await loop_turns(3)
            found = await probes.prober.check(loopback(40_000), HASH)
        assert found is Status.DEFERRED

    async def test_a_probe_that_is_cancelled_while_it_waits_was_none(self) -> None:
        probes = Probes()
        probes.prober.sleep = forever
        with refusing() as there:
            async with in_background(_ignored(probes.prober.check(there, HASH))):
                await loop_turns(3)
                assert await probes.prober.check(there, HASH) is Status.DEFERRED
            probes.prober.sleep = probes.sleep
            assert await probes.prober.check(there, HASH) is Status.UNREACHABLE


async def _ignored(checking: Awaitable[Status]) -> None:
    await checking


async def forever(_: float) -> None:
    await asyncio.Event().wait()


class TestWithoutAConnection:
    async def test_a_v2_torrent_has_no_piece_to_check(self) -> None:
        """Nor has one without its .torrent file. The endpoint remains unprobed."""
        probes = Probes()
        with refusing() as there:
            found = await probes.prober.check(there, HASH, Level.PIECE)
            assert found is Status.UNKNOWN
            assert await probes.prober.check(there, HASH) is Status.UNREACHABLE

    @pytest.mark.parametrize(("excess", "status"), [(0, Status.UNREACHABLE), (1, Status.UNKNOWN)])
    async def test_a_piece_may_have_4_mib(self, excess: int, status: Status) -> None:
        length = prober.MAX_PIECE_LENGTH + excess
        with refusing() as there:
            found = await Probes().prober.check(there, HASH, Level.PIECE, Pieces(length, length, bytes(20)))
        assert found is status

    async def test_a_peer_behind_a_firewall_is_unreachable(self) -> None:
        """A full accept queue does not answer, as a firewall that drops packets."""
        quick = Prober(enabled, lambda _: None, times=Times(connect=0.3), is_target=is_here)
        with socket.socket() as full, ExitStack() as stack:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            found = await quick.check(loopback(full.getsockname()[1]), HASH)
        assert found is Status.UNREACHABLE

    async def test_our_own_errors_say_nothing_about_the_peer(self) -> None:
        resource = pytest.importorskip("resource")
        probes = Probes()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with refusing() as there:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                found = await probes.prober.check(there, HASH)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert found is Status.UNKNOWN


async def test_each_outcome_is_counted() -> None:
    probes = Probes()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)

    async with peer(behave) as there:
        for level in (Level.HANDSHAKE, Level.PIECE, Level.HANDSHAKE):
            await probes.prober.check(there, HASH, level)
    assert probes.counted == ["probes.confirmed", "probes.unknown", "probes.deferred"]


async def test_the_random_piece_is_one_of_the_torrent() -> None:
    chosen: list[int] = []

    def choose(count: int) -> int:
        chosen.append(count)
        return count - 1

    with refusing() as there:
        quick = Prober(enabled, lambda _: None, randbelow=choose, is_target=is_here)
        await quick.check(there, HASH, Level.PIECE, PIECES)
    assert chosen == [71]

"""The same figures over UDP, as StatsD takes them (row B12). Against real sockets."""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from tests.servers import Server
from tests.store.harness import Clock, Store, running
from tests.store.outbox import contents, export, outbox_of
from tests.workers.flushing import MINUTE
from tracker.settings import StatsDSettings
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.figures import Figure
from tracker.workers.statsd import PACKET_BYTES, StatsD, line_of, packets

LINE = re.compile(r"([A-Za-z0-9_.\-]{1,255}):([0-9]+)\|([cg])")


@contextmanager
def statsd_server(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        sock.bind((host, 0))
        sock.setblocking(False)
        yield sock


def has_ipv6() -> bool:
    try:
        with statsd_server("::1"):
            return True
    except OSError:
        return False


def received(server: socket.socket) -> "tuple[Counter[str], dict[str, int], list[bytes]]":
    """(counters added up, gauges, packets) of everything that has come so far."""
    counters: Counter[str] = Counter()
    gauges: dict[str, int] = {}
    came = []
    while True:
        try:
            came.append(server.recv(65536))
        except BlockingIOError:
            break
        for line in came[-1].decode("ascii").split("\n"):
            found = LINE.fullmatch(line)
            assert found, line
            if found[3] == "c":
                counters[found[1]] += int(found[2])
            else:
                gauges[found[1]] = int(found[2])
    return counters, gauges, came


@pytest.fixture
async def store(valkey: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        yield store


class Flushing:
    def __init__(self, store: Store, address: str | None, prefix: str = "tracker.") -> None:
        self.counts: Counter[str] = Counter()
        self.clock = Clock(MINUTE + 600)
        self.worker = StatsD(
            StatsDSettings(address=address, prefix=prefix),
            outbox_of(store),
            store.connection,
            torrents=self.torrents,
            count=self.count,
            clock=self.clock,
            chance=lambda: 1.0,
        )

    async def torrents(self) -> int:
        return 42

    def count(self, *names: str, by: int = 1) -> None:
        self.counts.update(dict.fromkeys(names, by))

    async def flush(self) -> None:
        self.clock.now += 901
        await self.worker.flush({})


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_counts_and_values_arrive(store: Store, host: str) -> None:
    """B12."""
    await export(store, (MINUTE, "countries.GB.users", 2), (MINUTE + 60, "countries.GB.users", 1))
    await export(store, (MINUTE, "failures.unknown torrent", 3))
    if "::" in host and not has_ipv6():
        pytest.skip("no IPv6 here")
    with statsd_server(host.strip("[]")) as server:
        flushing = Flushing(store, f"{host}:{server.getsockname()[1]}")
        await flushing.flush()
        counters, gauges, _ = received(server)
    assert counters == {"tracker.countries.GB.users": 3, "tracker.failures.unknown_torrent": 3}
    assert gauges == {"tracker.torrents.count": 42}
    assert flushing.counts == {"statsd.sent": 4}
    assert await contents(store) == {}


@pytest.mark.parametrize("first", ["127.0.0.2", "::1", "192.0.2.1:0"])
async def test_of_several_addresses_one_that_listens_is_found(
    store: Store, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name like localhost may have an IPv6 address where nobody listens."""
    await export(store, (MINUTE, "a", 1))
    with statsd_server() as server:
        port = server.getsockname()[1]
        family = socket.AF_INET6 if "::" in first else socket.AF_INET
        found = [
            (family, socket.SOCK_DGRAM, 17, "", (first.removesuffix(":0"), port)),
            (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port)),
        ]
        if first.endswith(":0"):  # no way there: a kind of socket that cannot be connected so
            found[0] = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", port))

        async def resolve(*_: object, **__: object) -> object:
            return found

        flushing = Flushing(store, f"several.invalid:{port}")
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            await flushing.flush()
        assert received(server)[0] == {"tracker.a": 1}


async def test_without_an_address_nothing_happens(store: Store) -> None:
    await export(store, (MINUTE, "a", 1))
    flushing = Flushing(store, None)
    assert not flushing.worker.wanted
    await flushing.flush()
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_thousands_of_figures_fit_into_packets(store: Store) -> None:
    wanted = {f"s{n}": n + 1 for n in range(3000)}
    await export(store, *((MINUTE + 60 * (by % 3), name, by) for name, by in wanted.items()))
    with statsd_server() as server:
        flushing = Flushing(store, f"127.0.0.1:{server.getsockname()[1]}", prefix="")
        await flushing.flush()
        counters, _, came = received(server)
    assert counters == wanted
    assert max(map(len, came)) <= PACKET_BYTES
    assert len(came) < 60


async def test_while_nobody_listens_the_figures_wait(store: Store) -> None:
    """B12: a server on this host says so at once; from afar nothing says so, and what is sent is lost."""
    await export(store, (MINUTE, "a", 1))
    with statsd_server() as server:
        address = server.getsockname()
    flushing = Flushing(store, f"127.0.0.1:{address[1]}")
    with capture_logs() as told:
        for _ in range(3):
            await flushing.flush()
    assert await contents(store) == {MINUTE: {"a": 1}}
    assert flushing.counts == {"statsd.failed": 3}
    assert [line["reason"] for line in told] == ["nobody listens (ConnectionRefusedError)"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind(address)
        again.setblocking(False)
        await flushing.flush()
        assert received(again)[0] == {"tracker.a": 1}
    assert await contents(store) == {}


async def test_an_address_that_cannot_be_used_is_an_outage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is asked for at every flush: a server may move."""
    await export(store, (MINUTE, "a", 1))
    loop = asyncio.get_running_loop()
    asked: list[str] = []

    async def unknown(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(-2, "unknown")

    flushing = Flushing(store, "stats.invalid:8125")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", unknown)
        for _ in range(2):
            await flushing.flush()
    assert asked == ["stats.invalid"] * 2
    assert flushing.counts == {"statsd.failed": 2}
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_two_senders_send_each_figure_once(store: Store) -> None:
    """B12."""
    wanted = {f"s{n}": n + 1 for n in range(1500)}
    await export(store, *((MINUTE + 60 * (by % 7), name, by) for name, by in wanted.items()))
    with statsd_server() as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        await asyncio.gather(*(Flushing(store, address, prefix="").flush() for _ in range(3)))
        assert received(server)[0] == wanted


def test_names_are_what_statsd_takes() -> None:
    """B11: nothing that means something in a line; at most 255 characters."""
    assert line_of("x.", Figure("failures.a b:c|d@e#é\n", 3, 0)) == b"x.failures.a_b_c_d_e___:3|c"
    assert line_of("", Figure("torrents.count", 7, 0, "value")) == b"torrents.count:7|g"
    long = {line_of("", Figure("x" * 300 + end, 1, 0)) for end in "ab"}
    assert len(long) == 2
    assert {line.index(b":") for line in long} == {255}


def test_packets_hold_whole_lines() -> None:
    lines = [b"x" * length for length in (700, 731, 1, PACKET_BYTES, 5)]
    assert list(packets(lines)) == [
        lines[0] + b"\n" + lines[1],
        lines[2],
        lines[3],
        lines[4],
    ]
    assert not list(packets([]))

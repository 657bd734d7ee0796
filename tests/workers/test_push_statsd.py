"""The samples as StatsD lines over UDP (row B12). Tested against real sockets."""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.store.harness import Store, running
from tests.store.stats.outbox import contents, export
from tests.workers.flushing import MINUTE, Flushing
from tracker.settings.background import StatsDSettings
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.push import MAX_PACKET_BYTES, Sample, StatsD, to_line, to_packets

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
    """(sums of the counters, gauges, packets) of all that was received so far."""
    counters: Counter[str] = Counter()
    gauges: dict[str, int] = {}
    packets = []
    while True:
        try:
            packets.append(server.recv(65536))
        except BlockingIOError:
            break
        for line in packets[-1].decode("ascii").split("\n"):
            found = LINE.fullmatch(line)
            assert found, line
            if found[3] == "c":
                counters[found[1]] += int(found[2])
            else:
                gauges[found[1]] = int(found[2])
    return counters, gauges, packets


@pytest.fixture
async def store(valkey: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        yield store


def to_statsd(store: Store, address: str | None, prefix: str = "tracker.") -> Flushing:
    return Flushing(store, StatsD(StatsDSettings(address=address, prefix=prefix)))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_counts_and_gauges_arrive(store: Store, host: str) -> None:
    """B12."""
    await export(store, (MINUTE, "countries.France.users", 2), (MINUTE + 60, "countries.France.users", 1))
    await export(store, (MINUTE, "failures.unknown torrent", 3))
    if "::" in host and not has_ipv6():
        pytest.skip("no IPv6 here")
    with statsd_server(host.strip("[]")) as server:
        flushing = to_statsd(store, f"{host}:{server.getsockname()[1]}")
        flushing.gauges["peers"] = 7
        await flushing.flush()
        counters, gauges, _ = received(server)
    assert counters == {"tracker.countries.France.users": 3, "tracker.failures.unknown_torrent": 3}
    assert gauges == {"tracker.torrents.count": 42, "tracker.peers": 7}
    assert flushing.counts == {"statsd.sent": 5}
    assert await contents(store) == {}


@pytest.mark.parametrize("first", ["127.0.0.2", "::1", "192.0.2.1:0"])
async def test_the_first_address_with_an_open_port_is_used(
    store: Store, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name like localhost may have an IPv6 address with a closed port."""
    await export(store, (MINUTE, "a", 1))
    with statsd_server() as server:
        port = server.getsockname()[1]
        family = socket.AF_INET6 if "::" in first else socket.AF_INET
        found = [
            (family, socket.SOCK_DGRAM, 17, "", (first.removesuffix(":0"), port)),
            (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port)),
        ]
        if first.endswith(":0"):  # an IPv4 address that an IPv6 socket cannot connect to
            found[0] = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", port))

        async def resolve(*_: object, **__: object) -> object:
            return found

        flushing = to_statsd(store, f"several.invalid:{port}")
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            await flushing.flush()
        assert received(server)[0] == {"tracker.a": 1}


async def test_without_an_address_nothing_is_sent(store: Store) -> None:
    await export(store, (MINUTE, "a", 1))
    flushing = to_statsd(store, None)
    assert not flushing.receiver.enabled
    await flushing.flush()
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_many_samples_share_a_packet(store: Store) -> None:
    wanted = {f"s{n}": n + 1 for n in range(3000)}
    await export(store, *((MINUTE + 60 * (by % 3), name, by) for name, by in wanted.items()))
    with statsd_server() as server:
        flushing = to_statsd(store, f"127.0.0.1:{server.getsockname()[1]}", prefix="")
        await flushing.flush()
        counters, _, packets = received(server)
    assert counters == wanted
    assert max(map(len, packets)) <= MAX_PACKET_BYTES
    assert len(packets) < 60


async def test_samples_wait_while_the_port_is_closed(store: Store) -> None:
    """B12: this host reports a closed port at once. A remote host may report nothing; its samples are lost."""
    await export(store, (MINUTE, "a", 1))
    with statsd_server() as server:
        address = server.getsockname()
    flushing = to_statsd(store, f"127.0.0.1:{address[1]}")
    with capture_logs() as lines:
        for _ in range(3):
            await flushing.flush()
    assert await contents(store) == {MINUTE: {"a": 1}}
    assert flushing.counts == {"statsd.failed": 3}
    assert [line["reason"] for line in lines] == ["port closed (ConnectionRefusedError)"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind(address)
        again.setblocking(False)
        await flushing.flush()
        assert received(again)[0] == {"tracker.a": 1}
    assert await contents(store) == {}


async def test_samples_wait_while_the_name_does_not_resolve(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flush resolves the name, because a server may move."""
    await export(store, (MINUTE, "a", 1))
    loop = asyncio.get_running_loop()
    resolved: list[str] = []

    async def unknown(host: str, *_: object, **__: object) -> None:
        resolved.append(host)
        raise socket.gaierror(-2, "unknown")

    flushing = to_statsd(store, "stats.invalid:8125")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", unknown)
        for _ in range(2):
            await flushing.flush()
    assert resolved == ["stats.invalid"] * 2
    assert flushing.counts == {"statsd.failed": 2}
    assert await contents(store) == {MINUTE: {"a": 1}}


async def test_three_senders_on_one_store_send_each_sample_once(store: Store) -> None:
    """B12."""
    wanted = {f"s{n}": n + 1 for n in range(1500)}
    await export(store, *((MINUTE + 60 * (by % 7), name, by) for name, by in wanted.items()))
    with statsd_server() as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        await asyncio.gather(*(to_statsd(store, address, prefix="").flush() for _ in range(3)))
        assert received(server)[0] == wanted


def test_names_fit_statsd_and_stay_distinct() -> None:
    """B11: no character with a meaning in a line; at most 255 characters."""
    assert to_line("x.", Sample("failures.a b:c|d@e#é\n", 3, 0)) == b"x.failures.a_b_c_d_e___:3|c"
    assert to_line("", Sample("torrents.count", 7, 0, "gauge")) == b"torrents.count:7|g"
    long = {to_line("", Sample("x" * 300 + end, 1, 0)) for end in "ab"}
    assert len(long) == 2
    assert {line.index(b":") for line in long} == {255}


def test_a_packet_holds_whole_lines_only() -> None:
    lines = [b"x" * length for length in (700, 731, 1, MAX_PACKET_BYTES, 5)]
    assert list(to_packets(lines)) == [lines[0] + b"\n" + lines[1], lines[2], lines[3], lines[4]]
    assert not list(to_packets([]))
